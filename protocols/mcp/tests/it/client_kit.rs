//! For the client: a server that the test plays itself, request by request.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use callboard_mcp::outbound::{ClientOptions, Endpoint, Era, EraChoice, McpClient};
use callboard_message::{Failure, Named, Principal};
use callboard_runtime::{AgentRef, CallMeta, RunningCall, System};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::kit::soon;

/// What a test leaves unread, in requests.
const HITS_MAX: usize = 256;

/// Options of one era, without listeners that a test would have to answer.
pub fn only(era: Era) -> ClientOptions {
    ClientOptions { era: EraChoice::Only(era), ..auto() }
}

/// Options that leave the era open.
pub fn auto() -> ClientOptions {
    ClientOptions { listen: false, log_level: None, ..ClientOptions::default() }
}

/// A client in a system of its own.
pub struct Client {
    pub agent: AgentRef,
    pub system: System,
}

impl Client {
    pub fn of(endpoint: Endpoint, options: ClientOptions) -> Self {
        let system = System::start(1).unwrap();
        let client = McpClient::new(endpoint, options).unwrap();
        Self { agent: system.spawn_with(move || client.clone()), system }
    }

    pub fn at(url: &str, options: ClientOptions) -> Self {
        Self::of(Endpoint::url(url).unwrap(), options)
    }

    /// Asks by name in a task, so that the test can play the server meanwhile.
    pub fn ask(&self, name: &str, payload: Value) -> tokio::task::JoinHandle<Result<Value, Failure>> {
        let asked = self.ask_raw(name, &payload.to_string());
        tokio::spawn(async move { Ok(serde_json::from_str(asked.await.unwrap()?.get()).unwrap()) })
    }

    /// The same, to the byte.
    pub fn ask_raw(&self, name: &str, payload: &str) -> tokio::task::JoinHandle<Result<Box<RawValue>, Failure>> {
        let (agent, name) = (self.agent.clone(), name.to_owned());
        let payload = RawValue::from_string(payload.to_owned()).unwrap();
        tokio::spawn(async move { soon(agent.ask_named(name, payload, None)).await })
    }

    /// Calls a tool raw, as a call whose caller is told and asked.
    pub fn call(&self, name: &str, payload: Value) -> RunningCall<Named> {
        let named = Named { name: name.to_owned(), payload: to_raw_value(&payload).unwrap() };
        self.agent.call(named).principal(Principal::local_operator()).within(Duration::from_secs(30)).start()
    }

    /// Asks as a call with nobody behind it, which can be cancelled.
    pub fn ask_in(
        &self,
        name: &str,
        payload: Value,
        call: CallMeta,
    ) -> tokio::task::JoinHandle<Result<Box<RawValue>, Failure>> {
        let (agent, name) = (self.agent.clone(), name.to_owned());
        tokio::spawn(async move { agent.ask_named(name, to_raw_value(&payload).unwrap(), Some(Arc::new(call))).await })
    }

    pub async fn stop(self) {
        self.system.shutdown(Duration::ZERO).await;
    }
}

/// A tool call, raw.
pub fn tool(name: &str, arguments: Value) -> Value {
    json!({ "name": name, "arguments": arguments })
}

/// What a task came to.
pub async fn joined<T>(task: tokio::task::JoinHandle<T>) -> T {
    soon(task).await.unwrap()
}

/// An HTTP server that the test plays.
pub struct Peer {
    pub url: String,
    /// What ends a session is answered here, and not seen by the test.
    pub skips_farewells: bool,
    hits: mpsc::Receiver<Hit>,
}

/// One HTTP request that waits for the test's answer.
pub struct Hit {
    pub method: String,
    pub target: String,
    pub headers: HashMap<String, String>,
    pub body: Value,
    pub text: String,
    stream: TcpStream,
}

impl Peer {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
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
        Self { url, skips_farewells: false, hits }
    }

    pub async fn hit(&mut self) -> Hit {
        loop {
            let hit = soon(self.hits.recv()).await.expect("no listener");
            if !self.skips_farewells || hit.method != "DELETE" {
                return hit;
            }
            hit.empty(404).await;
        }
    }

    /// The next request, which must be this one.
    pub async fn expect(&mut self, method: &str) -> Hit {
        let hit = self.hit().await;
        assert_eq!(hit.body["method"], method, "{} {}", hit.method, hit.text);
        hit
    }

    /// Plays a legacy handshake. Gives the params of `initialize`.
    pub async fn initialize(&mut self, revision: &str, session: Option<&str>) -> Value {
        let hit = self.expect("initialize").await;
        let params = hit.body["params"].clone();
        let result =
            json!({ "protocolVersion": revision, "capabilities": {}, "serverInfo": { "name": "p", "version": "1" } });
        let header = session.map(|id| format!("Mcp-Session-Id: {id}\r\n")).unwrap_or_default();
        let body = hit.response(Ok(result));
        hit.write(200, &header, "application/json", &body.to_string()).await;
        self.expect("notifications/initialized").await.empty(202).await;
        params
    }

    /// Plays `server/discover`.
    pub async fn discover(&mut self, capabilities: Value) {
        let hit = self.expect("server/discover").await;
        let result = json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": capabilities,
            "ttlMs": 0, "cacheScope": "private"
        });
        hit.result(result).await;
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
        let mut first = lines.next()?.split(' ').map(str::to_owned);
        let (method, target) = (first.next()?, first.next()?);
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
        let text = String::from_utf8(bytes[end..].to_vec()).unwrap();
        let body = serde_json::from_str(&text).unwrap_or_default();
        Some(Self { method, target, headers, body, text, stream })
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The response to it, with this outcome.
    pub fn response(&self, outcome: Result<Value, Value>) -> Value {
        let (name, value) = match outcome {
            Ok(result) => ("result", result),
            Err(error) => ("error", error),
        };
        json!({ "jsonrpc": "2.0", "id": self.body["id"], name: value })
    }

    pub async fn result(self, result: Value) {
        let body = self.response(Ok(result)).to_string();
        self.write(200, "", "application/json", &body).await;
    }

    pub async fn error(self, status: u16, error: Value) {
        let body = self.response(Err(error)).to_string();
        self.write(status, "", "application/json", &body).await;
    }

    pub async fn empty(self, status: u16) {
        self.write(status, "", "text/plain", "").await;
    }

    pub async fn write(mut self, status: u16, headers: &str, kind: &str, body: &str) {
        let length = body.len();
        let response = format!(
            "HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n{headers}\r\n{body}"
        );
        self.stream.write_all(response.as_bytes()).await.unwrap();
    }

    /// Answers with an event stream, which ends when it is dropped.
    pub async fn stream(mut self) -> Events {
        let head = "HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
        self.stream.write_all(head.as_bytes()).await.unwrap();
        Events {
            id: self.body["id"].clone(),
            token: self.body["params"]["_meta"]["progressToken"].clone(),
            stream: self.stream,
        }
    }
}

/// An event stream under way.
pub struct Events {
    pub id: Value,
    pub token: Value,
    stream: TcpStream,
}

impl Events {
    pub async fn raw(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    pub async fn say(&mut self, message: Value) {
        self.raw(&format!("event: message\ndata: {message}\n\n")).await;
    }

    pub async fn notify(&mut self, method: &str, params: Value) {
        self.say(json!({ "jsonrpc": "2.0", "method": method, "params": params })).await;
    }

    pub async fn ask(&mut self, id: Value, method: &str, params: Value) {
        self.say(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
    }

    pub async fn result(mut self, result: Value) {
        let id = self.id.clone();
        self.say(json!({ "jsonrpc": "2.0", "id": id, "result": result })).await;
    }

    /// Ends when the client has closed the connection.
    pub async fn closed(&mut self) {
        let mut rest = Vec::new();
        let _ = soon(self.stream.read_to_end(&mut rest)).await;
    }
}
