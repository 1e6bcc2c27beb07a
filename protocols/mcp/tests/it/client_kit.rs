//! For the client: clients, and the words of a server that the test plays.

use std::sync::Arc;
use std::time::Duration;

use callboard_mcp::outbound::{ClientOptions, Endpoint, Era, EraChoice, McpClient};
use callboard_message::{Failure, Named, Principal};
use callboard_runtime::{AgentRef, CallMeta, RunningCall, System};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::task::JoinHandle;

use crate::kit::soon;
pub use crate::played::Played;
use crate::played::{Events, Hit};

/// Options of one era, without listeners that a test would have to answer.
pub fn only(era: Era) -> ClientOptions {
    ClientOptions {
        era: EraChoice::Only(era),
        ..auto()
    }
}

/// Options that leave the era open.
pub fn auto() -> ClientOptions {
    ClientOptions {
        listen: false,
        log_level: None,
        ..ClientOptions::default()
    }
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
        Self {
            agent: system.spawn_with(move || client.clone()),
            system,
        }
    }

    pub fn at(url: &str, options: ClientOptions) -> Self {
        Self::of(Endpoint::url(url).unwrap(), options)
    }

    /// Asks by name in a task, so that the test can play the server meanwhile.
    pub fn ask(&self, name: &str, payload: Value) -> JoinHandle<Result<Value, Failure>> {
        let asked = self.ask_raw(name, &payload.to_string());
        tokio::spawn(async move { Ok(serde_json::from_str(asked.await.unwrap()?.get()).unwrap()) })
    }

    /// The same, to the byte.
    pub fn ask_raw(&self, name: &str, payload: &str) -> JoinHandle<Result<Box<RawValue>, Failure>> {
        let (agent, name) = (self.agent.clone(), name.to_owned());
        let payload = RawValue::from_string(payload.to_owned()).unwrap();
        tokio::spawn(async move { soon(agent.ask_named(name, payload, None)).await })
    }

    /// Calls a tool raw, as a call whose caller is told and asked.
    pub fn call(&self, name: &str, payload: Value) -> RunningCall<Named> {
        let named = Named {
            name: name.to_owned(),
            payload: to_raw_value(&payload).unwrap(),
        };
        self.agent
            .call(named)
            .principal(Principal::local_operator())
            .within(Duration::from_secs(30))
            .start()
    }

    /// Asks as a call with nobody behind it, which can be cancelled.
    pub fn ask_in(
        &self,
        name: &str,
        payload: Value,
        call: CallMeta,
    ) -> JoinHandle<Result<Box<RawValue>, Failure>> {
        let (agent, name) = (self.agent.clone(), name.to_owned());
        tokio::spawn(async move {
            agent
                .ask_named(name, to_raw_value(&payload).unwrap(), Some(Arc::new(call)))
                .await
        })
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
pub async fn joined<T>(task: JoinHandle<T>) -> T {
    soon(task).await.unwrap()
}

impl Played {
    pub async fn start() -> Self {
        Self::at("/mcp").await
    }

    /// Plays a legacy handshake. Gives the params of `initialize`.
    pub async fn initialize(&mut self, revision: &str, session: Option<&str>) -> Value {
        let hit = self.expect("initialize").await;
        let params = hit.body["params"].clone();
        let result = json!({ "protocolVersion": revision, "capabilities": {}, "serverInfo": { "name": "p", "version": "1" } });
        let header = session
            .map(|id| format!("Mcp-Session-Id: {id}\r\n"))
            .unwrap_or_default();
        let body = hit.response(Ok(result));
        hit.write(200, &header, "application/json", &body.to_string())
            .await;
        self.expect("notifications/initialized")
            .await
            .empty(202)
            .await;
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
}

impl Hit {
    pub async fn error(self, status: u16, error: Value) {
        let body = self.response(Err(error));
        self.json(status, &body).await;
    }
}

impl Events {
    /// What the request's progress is told by.
    pub fn token(&self) -> &Value {
        &self.request["params"]["_meta"]["progressToken"]
    }

    pub async fn say(&mut self, message: Value) {
        assert!(
            self.raw(&format!("event: message\ndata: {message}\n\n"))
                .await,
            "nobody reads"
        );
    }

    pub async fn notify(&mut self, method: &str, params: Value) {
        self.say(json!({ "jsonrpc": "2.0", "method": method, "params": params }))
            .await;
    }

    pub async fn ask(&mut self, id: Value, method: &str, params: Value) {
        self.say(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
            .await;
    }

    pub async fn result(mut self, result: Value) {
        let id = self.request["id"].take();
        self.say(json!({ "jsonrpc": "2.0", "id": id, "result": result }))
            .await;
    }

    /// Ends when the client has closed the connection.
    pub async fn closed(&mut self) {
        let mut rest = Vec::new();
        let _ = soon(self.stream.read_to_end(&mut rest)).await;
    }
}
