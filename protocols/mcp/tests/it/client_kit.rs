//! Test kit of the client: clients, and messages of a server played by the test.

use std::sync::Arc;
use std::time::Duration;

use callboard_mcp::outbound::{Era, EraChoice, McpClient, McpClientOptions, ServerEndpoint};
use callboard_message::{Failure, Principal, RawMessage};
use callboard_runtime::{AgentRef, CallContext, RunningCall, System};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::task::JoinHandle;

use crate::kit::soon;
pub use crate::played::Played;
use crate::played::{Events, Hit};

/// Returns options of one era, without listeners that a test would have to answer.
pub fn only(era: Era) -> McpClientOptions {
    McpClientOptions {
        era: EraChoice::Only(era),
        ..auto()
    }
}

/// Returns options that detect the era.
pub fn auto() -> McpClientOptions {
    McpClientOptions {
        listen: false,
        compares_lists: false,
        log_level: None,
        ..McpClientOptions::default()
    }
}

/// A client in its own system.
pub struct Client {
    pub agent: AgentRef,
    pub system: System,
}

impl Client {
    pub fn of(endpoint: ServerEndpoint, options: McpClientOptions) -> Self {
        let system = System::start(1).unwrap();
        let client = McpClient::new(endpoint, options).unwrap();
        Self {
            agent: system.spawn_with(move || client.clone()),
            system,
        }
    }

    pub fn at(url: &str, options: McpClientOptions) -> Self {
        Self::of(ServerEndpoint::from_url(url).unwrap(), options)
    }

    /// Sends a message by name in a task, so that the test can play the server meanwhile.
    pub fn ask(&self, name: &str, payload: Value) -> JoinHandle<Result<Value, Failure>> {
        let asked = self.ask_raw(name, &payload.to_string());
        tokio::spawn(async move { Ok(serde_json::from_str(asked.await.unwrap()?.get()).unwrap()) })
    }

    /// Sends a message by name with exactly this payload.
    pub fn ask_raw(&self, name: &str, payload: &str) -> JoinHandle<Result<Box<RawValue>, Failure>> {
        let (agent, name) = (self.agent.clone(), name.to_owned());
        let payload = RawValue::from_string(payload.to_owned()).unwrap();
        tokio::spawn(async move { soon(agent.ask_named(name, payload, None)).await })
    }

    /// Calls a tool with a caller that records questions and notifications.
    pub fn call(&self, name: &str, payload: Value) -> RunningCall<RawMessage> {
        let named = RawMessage {
            name: name.to_owned(),
            payload: to_raw_value(&payload).unwrap(),
        };
        self.agent
            .call(named)
            .principal(Principal::local_operator())
            .within(Duration::from_secs(30))
            .start()
    }

    /// Sends a message in `call`, which has no caller and can be cancelled.
    pub fn ask_in(
        &self,
        name: &str,
        payload: Value,
        call: CallContext,
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

/// Returns the raw params of a tool call.
pub fn tool(name: &str, arguments: Value) -> Value {
    json!({ "name": name, "arguments": arguments })
}

/// Returns the result of a spawned task.
pub async fn joined<T>(task: JoinHandle<T>) -> T {
    soon(task).await.unwrap()
}

impl Played {
    pub async fn start() -> Self {
        Self::at("/mcp").await
    }

    /// Plays a legacy handshake. Returns the params of `initialize`.
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
    /// Returns the request's progress token.
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

    /// Waits until the client has closed the connection.
    pub async fn closed(&mut self) {
        let mut rest = Vec::new();
        let _ = soon(self.stream.read_to_end(&mut rest)).await;
    }
}
