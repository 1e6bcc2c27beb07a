//! A2A 1.0 over JSON-RPC, as it is on the wire.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::{get, post};
use callboard::AgentRef;
use callboard::a2a::inbound::{self, A2aOptions, A2aServer, ListenOptions, NamedAgents};
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{Listening, soon};

/// Serves an agent, with other options than those of its address.
pub fn serve(agent: AgentRef, change: impl FnOnce(&mut A2aOptions)) -> Listening {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut options = A2aOptions::new(url.parse().unwrap());
    change(&mut options);
    let server = A2aServer::new(agent, options);
    let serving = inbound::serve(
        listener,
        server,
        NamedAgents::default(),
        &ListenOptions::default(),
    )
    .unwrap();
    let handle = serving.server.handle();
    tokio::spawn(serving.server);
    Listening { url, handle }
}

/// A card of A2A 1.0.
pub fn card(name: &str, url: &str, capabilities: Value, skills: Value) -> Value {
    json!({
        "name": name, "description": "", "version": "1", "capabilities": capabilities, "skills": skills,
        "supportedInterfaces": [{ "url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0" }],
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
    })
}

/// An agent that has a card with one skill, counts what else it is asked, and answers that with a status of HTTP.
pub struct Refusing {
    pub url: String,
    tried: Arc<AtomicU32>,
    serving: JoinHandle<()>,
}

impl Refusing {
    pub async fn start(name: &str, skill: Value, status: StatusCode) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let card = card(name, &format!("{url}/a2a"), json!({}), json!([skill])).to_string();
        let tried = Arc::new(AtomicU32::new(0));
        let counted = tried.clone();
        let refuse = move || {
            counted.fetch_add(1, Relaxed);
            async move { status }
        };
        let card = move || async move { ([(CONTENT_TYPE, "application/json")], card) };
        let app = Router::new()
            .route("/.well-known/agent-card.json", get(card))
            .route("/a2a", post(refuse));
        let serving = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self {
            url,
            tried,
            serving,
        }
    }

    pub fn tried(&self) -> u32 {
        self.tried.load(Relaxed)
    }
}

impl Drop for Refusing {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A request, to which headers may be added.
pub fn request(url: &str, method: &str, params: Value) -> RequestBuilder {
    let request = reqwest::Client::new()
        .post(url)
        .header("content-type", "application/json");
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string();
    request.header("a2a-version", "1.0").body(body)
}

/// The whole response.
pub async fn response(request: RequestBuilder) -> Value {
    let response = soon("an answer", request.send()).await.unwrap();
    let text = soon("a body", response.text()).await.unwrap();
    serde_json::from_str(&text).unwrap_or_else(|_| panic!("no answer: {text}"))
}

/// The result.
pub async fn ask(url: &str, method: &str, params: Value) -> Value {
    let mut answer = response(request(url, method, params)).await;
    assert!(answer["error"].is_null(), "{method}: {answer}");
    answer["result"].take()
}

/// Returns parameters of SendMessage: an empty message for a skill, answered at once or at the end.
pub fn for_skill(skill: &str, at_once: bool) -> Value {
    // No two messages may have one id.
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let id = format!("m-{}", NEXT.fetch_add(1, Relaxed));
    let metadata = json!({ "skill": skill });
    let message = json!({ "messageId": id, "role": "ROLE_USER", "parts": [{ "text": "{}" }], "metadata": metadata });
    json!({ "message": message, "configuration": { "returnImmediately": at_once } })
}

/// Returns the text of a message or of a task's artifact.
pub fn said(result: &Value) -> &str {
    let parts = if result["message"].is_object() {
        &result["message"]
    } else {
        &result["task"]["artifacts"][0]
    };
    parts["parts"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("{result}"))
}
