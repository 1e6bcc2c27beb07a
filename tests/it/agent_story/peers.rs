//! Agents elsewhere: one that works when it is let, and one that takes no message.

use std::collections::HashSet;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::{get, post};
use callboard::a2a::inbound::{A2aOptions, A2aServer, ListenOptions, NamedAgents, serve};
use callboard::message::surface::Converse;
use callboard::message::{Failure, ToolResult};
use callboard::{Agent, ConcurrentHandler, Cx, Handlers, System};
use serde_json::json;
use tokio::sync::watch;

use crate::kit::soon;

/// An agent that has a card, and is too busy for everything else.
pub struct Away {
    pub url: String,
    tried: Arc<AtomicUsize>,
}

impl Away {
    pub async fn start(name: &str) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let card = json!({
            "name": name, "description": "The weather", "version": "1", "capabilities": {},
            "supportedInterfaces":
                [{ "url": format!("{url}/a2a"), "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }],
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
            "skills": [{ "id": "weather", "name": "weather", "description": "Weather", "tags": ["weather"] }],
        });
        let tried = Arc::new(AtomicUsize::new(0));
        let counted = tried.clone();
        let busy = move || {
            counted.fetch_add(1, Relaxed);
            async { StatusCode::SERVICE_UNAVAILABLE }
        };
        let card = move || async move { ([(CONTENT_TYPE, "application/json")], card.to_string()) };
        let app = Router::new().route("/.well-known/agent-card.json", get(card)).route("/a2a", post(busy));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, tried }
    }

    pub fn tried(&self) -> usize {
        self.tried.load(Relaxed)
    }
}

/// An agent that does what it is told, once it may.
pub struct Peer {
    pub url: String,
    heard: Heard,
    may: watch::Sender<bool>,
    done: watch::Sender<HashSet<String>>,
    system: Option<System>,
}

type Heard = Arc<Mutex<Vec<String>>>;

struct Works {
    heard: Heard,
    may: watch::Receiver<bool>,
    done: watch::Sender<HashSet<String>>,
}

impl Agent for Works {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Converse>(16);
    }
}

impl ConcurrentHandler<Converse> for Works {
    fn handle(&mut self, said: Converse, _: Cx) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        let text = said.texts();
        self.heard.lock().unwrap().push(text.clone());
        let (mut may, done) = (self.may.clone(), self.done.clone());
        // Who waits for it looks again.
        done.send_modify(|_| {});
        async move {
            may.wait_for(|may| *may).await.map_err(|_| Failure::unavailable("it ends"))?;
            done.send_modify(|done| {
                done.insert(text.clone());
            });
            Ok(ToolResult::text(format!("{text}: 12 km/h")))
        }
    }
}

impl Peer {
    /// One that works at once, unless it is called `tides`.
    pub fn start(name: &str) -> Self {
        let system = System::start(1).unwrap();
        let (heard, done) = (Heard::default(), watch::Sender::new(HashSet::new()));
        let may = watch::Sender::new(name != "tides");
        let agent = system.spawn(Works { heard: heard.clone(), may: may.subscribe(), done: done.clone() });
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut options = A2aOptions::at(url.parse().unwrap());
        options.info.name = name.to_owned();
        let server = A2aServer::new(agent, options);
        let serving = serve(listener, server, NamedAgents::default(), &ListenOptions::default()).unwrap();
        tokio::spawn(serving.server);
        Self { url, heard, may, done, system: Some(system) }
    }

    /// From now on it works.
    pub fn open(&self) {
        self.may.send_replace(true);
    }

    /// What it was told, each task once.
    pub fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }

    pub async fn begun(&self) {
        let mut seen = self.done.subscribe();
        soon("a peer that is told something", seen.wait_for(|_| !self.heard().is_empty())).await.unwrap();
    }

    pub async fn done(&self, text: &str) {
        let mut seen = self.done.subscribe();
        soon("a peer's answer", seen.wait_for(|done| done.contains(text))).await.unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let Some(system) = self.system.take() else { return };
        // Its arbiter is a thread of its own.
        tokio::spawn(async move { system.shutdown(Duration::from_secs(1)).await });
    }
}
