//! For the client: agents that stand for remote ones, and a remote one that the test plays itself, request by request.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use callboard_a2a::outbound::{Binding, RemoteA2a, RemoteOptions, Version};
use callboard_message::{Failure, Named, Principal};
use callboard_runtime::{AgentRef, CallMeta, RunningCall, System};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::kit::soon;

/// What a test leaves unread, in requests.
const HITS_MAX: usize = 256;

/// Every version and binding that the client speaks.
pub const WAYS: [(Version, Binding); 5] = [
    (Version::V10, Binding::JsonRpc),
    (Version::V10, Binding::HttpJson),
    (Version::V03, Binding::JsonRpc),
    (Version::V03, Binding::HttpJson),
    (Version::V01, Binding::JsonRpc),
];

/// Options that speak one way only, and look at tasks without long pauses.
pub fn only((version, binding): (Version, Binding)) -> RemoteOptions {
    RemoteOptions { versions: vec![version], bindings: vec![binding], ..quick() }
}

/// Options that look at tasks without long pauses.
pub fn quick() -> RemoteOptions {
    RemoteOptions { poll: (Duration::from_millis(5), Duration::from_millis(20)), ..RemoteOptions::default() }
}

/// A remote agent in a system of its own.
pub struct Remote {
    pub agent: AgentRef,
    pub system: System,
    pub client: RemoteA2a,
}

impl Remote {
    pub fn at(url: &str, options: RemoteOptions) -> Self {
        let system = System::start(1).unwrap();
        let client = RemoteA2a::new(url.parse().unwrap(), options).unwrap();
        let spawned = client.clone();
        Self { agent: system.spawn_with(move || spawned.clone()), system, client }
    }

    /// Asks by name, with nobody behind it.
    pub async fn ask(&self, name: &str, payload: Value) -> Result<Value, Failure> {
        let asked = self.agent.ask_named(name, to_raw_value(&payload).unwrap(), None);
        Ok(serde_json::from_str(soon(asked).await?.get()).unwrap())
    }

    /// The same in a task, so that the test can play the agent meanwhile.
    pub fn asking(&self, name: &str, payload: Value) -> JoinHandle<Result<Value, Failure>> {
        let (agent, name) = (self.agent.clone(), name.to_owned());
        tokio::spawn(async move {
            let asked = agent.ask_named(name, to_raw_value(&payload).unwrap(), None);
            Ok(serde_json::from_str(soon(asked).await?.get()).unwrap())
        })
    }

    /// Asks as a call whose caller is told and asked.
    pub fn call(&self, name: &str, payload: Value) -> RunningCall<Named> {
        let named = Named { name: name.to_owned(), payload: to_raw_value(&payload).unwrap() };
        self.agent.call(named).principal(Principal::local_operator()).within(Duration::from_secs(30)).start()
    }

    /// Asks as part of a call, which can be cancelled.
    pub fn ask_in(&self, name: &str, payload: Value, call: CallMeta) -> JoinHandle<Result<Value, Failure>> {
        let (agent, name) = (self.agent.clone(), name.to_owned());
        tokio::spawn(async move {
            let asked = agent.ask_named(name, to_raw_value(&payload).unwrap(), Some(Arc::new(call)));
            Ok(serde_json::from_str(asked.await?.get()).unwrap())
        })
    }

    pub async fn stop(self) {
        self.system.shutdown(Duration::ZERO).await;
        soon(self.client.said_goodbye()).await;
    }
}

/// A use of a tool, raw.
pub fn tool(name: &str, arguments: Value) -> Value {
    json!({ "name": name, "arguments": arguments })
}

/// What a task came to.
pub async fn joined<T>(task: JoinHandle<T>) -> T {
    soon(task).await.unwrap()
}

/// A remote agent that the test plays.
pub struct Played {
    pub url: String,
    hits: mpsc::Receiver<Hit>,
}

/// One request that waits for the test's answer.
pub struct Hit {
    pub path: String,
    pub headers: HashMap<String, String>,
    pub body: Value,
    stream: TcpStream,
}

impl Played {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, hits) = mpsc::channel(HITS_MAX);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let sender = sender.clone();
                tokio::spawn(async move {
                    if let Some(hit) = Hit::read(stream).await {
                        let _ = sender.send(hit).await;
                    }
                });
            }
        });
        Self { url, hits }
    }

    /// A card with one interface, at `path`.
    pub fn card(&self, version: &str, path: &str, streaming: bool) -> Value {
        json!({
            "name": "played", "description": "", "version": "1",
            "supportedInterfaces": [
                { "url": format!("{}{path}", self.url), "protocolBinding": "JSONRPC", "protocolVersion": version },
            ],
            "capabilities": { "streaming": streaming },
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"], "skills": [],
        })
    }

    pub async fn hit(&mut self) -> Hit {
        soon(self.hits.recv()).await.expect("no listener")
    }

    /// The next request, which must be for this path.
    pub async fn get(&mut self, path: &str) -> Hit {
        let hit = self.hit().await;
        assert_eq!(hit.path, path, "{}", hit.body);
        hit
    }

    /// The next request, which must be this method of JSON-RPC.
    pub async fn expect(&mut self, method: &str) -> Hit {
        let hit = self.hit().await;
        assert_eq!(hit.body["method"], method, "{} {}", hit.path, hit.body);
        hit
    }

    /// Gives out its card.
    pub async fn show(&mut self, card: &Value) {
        self.get("/.well-known/agent-card.json").await.json(200, card).await;
    }

    /// Whether no request waits now.
    pub fn is_quiet(&mut self) -> bool {
        self.hits.try_recv().is_err()
    }
}

impl Hit {
    async fn read(mut stream: TcpStream) -> Option<Self> {
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(at) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        };
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let mut lines = head.lines();
        let path = lines.next()?.split(' ').nth(1)?.to_owned();
        let headers: HashMap<String, String> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let length: usize = headers.get("content-length").map_or(0, |l| l.parse().unwrap());
        while bytes.len() < end + length {
            if stream.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        }
        let body = serde_json::from_slice(&bytes[end..]).unwrap_or_default();
        Some(Self { path, headers, body, stream })
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    pub async fn result(self, result: Value) {
        let body = json!({ "jsonrpc": "2.0", "id": self.body["id"], "result": result });
        self.json(200, &body).await;
    }

    pub async fn error(self, code: i64, message: &str) {
        let error = json!({ "code": code, "message": message });
        let body = json!({ "jsonrpc": "2.0", "id": self.body["id"], "error": error });
        self.json(200, &body).await;
    }

    pub async fn json(self, status: u16, body: &Value) {
        self.write(status, "", "application/json", &body.to_string()).await;
    }

    pub async fn empty(self, status: u16) {
        self.write(status, "", "text/plain", "").await;
    }

    pub async fn write(mut self, status: u16, headers: &str, kind: &str, body: &str) {
        let length = body.len();
        let response = format!(
            "HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n{headers}\r\n{body}"
        );
        // Whoever asked may have left.
        let _ = self.stream.write_all(response.as_bytes()).await;
    }

    /// Answers with an event stream, which ends when it is dropped.
    pub async fn stream(mut self) -> Said {
        let head = "HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
        self.stream.write_all(head.as_bytes()).await.unwrap();
        Said { id: self.body["id"].clone(), stream: self.stream }
    }
}

/// An event stream under way.
pub struct Said {
    pub id: Value,
    stream: TcpStream,
}

impl Said {
    pub async fn raw(&mut self, text: &str) -> bool {
        self.stream.write_all(text.as_bytes()).await.is_ok()
    }

    /// A result, as JSON-RPC wraps it; whether somebody still reads.
    pub async fn say(&mut self, result: Value) -> bool {
        let event = json!({ "jsonrpc": "2.0", "id": self.id, "result": result });
        self.raw(&format!("data: {event}\n\n")).await
    }
}

/// A task of 1.0.
pub fn task(id: &str, state: &str) -> Value {
    json!({ "task": { "id": id, "contextId": "c", "status": { "state": state } } })
}

/// A status of a task, and what is said about it.
pub fn status(id: &str, state: &str, text: &str) -> Value {
    let message = json!({ "messageId": text, "role": "ROLE_AGENT", "parts": [{ "text": text }] });
    json!({ "statusUpdate": { "taskId": id, "contextId": "c", "status": { "state": state, "message": message } } })
}

/// A piece of a task's artifact.
pub fn piece(id: &str, artifact: &str, text: &str, append: bool) -> Value {
    let artifact = json!({ "artifactId": artifact, "parts": [{ "text": text }] });
    json!({ "artifactUpdate": { "taskId": id, "contextId": "c", "artifact": artifact, "append": append } })
}
