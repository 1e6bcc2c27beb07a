//! Helpers for client tests: remote agents, and a remote agent that the test plays itself, request
//! by request.

use std::sync::Arc;
use std::time::Duration;

use callboard_a2a::outbound::{ProtocolBinding, ProtocolVersion, RemoteA2aAgent, RemoteOptions};
use callboard_message::{Failure, Principal, RawMessage};
use callboard_runtime::{AgentRef, CallContext, RunningCall, System};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::kit::soon;
use crate::played::Events;
pub use crate::played::{Hit, Played};

/// All versions and bindings that the client supports.
pub const WAYS: [(ProtocolVersion, ProtocolBinding); 5] = [
    (ProtocolVersion::V10, ProtocolBinding::JsonRpc),
    (ProtocolVersion::V10, ProtocolBinding::HttpJson),
    (ProtocolVersion::V03, ProtocolBinding::JsonRpc),
    (ProtocolVersion::V03, ProtocolBinding::HttpJson),
    (ProtocolVersion::V01, ProtocolBinding::JsonRpc),
];

/// Returns options for one version and binding with short polling delays.
pub fn only((version, binding): (ProtocolVersion, ProtocolBinding)) -> RemoteOptions {
    RemoteOptions {
        versions: vec![version],
        bindings: vec![binding],
        ..quick()
    }
}

/// Returns options with short polling delays.
pub fn quick() -> RemoteOptions {
    RemoteOptions {
        poll_interval: (Duration::from_millis(5), Duration::from_millis(20)),
        ..RemoteOptions::default()
    }
}

/// A remote agent in a system of its own.
pub struct Remote {
    pub agent: AgentRef,
    pub system: System,
    pub client: RemoteA2aAgent,
}

impl Remote {
    pub fn at(url: &str, options: RemoteOptions) -> Self {
        let system = System::start(1).unwrap();
        let client = RemoteA2aAgent::new(url.parse().unwrap(), options).unwrap();
        let spawned = client.clone();
        Self {
            agent: system.spawn_with(move || spawned.clone()),
            system,
            client,
        }
    }

    /// Asks by name, without a caller.
    pub async fn ask(&self, name: &str, payload: Value) -> Result<Value, Failure> {
        let asked = self
            .agent
            .ask_named(name, to_raw_value(&payload).unwrap(), None);
        Ok(serde_json::from_str(soon(asked).await?.get()).unwrap())
    }

    /// Asks by name in a task, so that the test can play the agent meanwhile.
    pub fn asking(&self, name: &str, payload: Value) -> JoinHandle<Result<Value, Failure>> {
        let (agent, name) = (self.agent.clone(), name.to_owned());
        tokio::spawn(async move {
            let asked = agent.ask_named(name, to_raw_value(&payload).unwrap(), None);
            Ok(serde_json::from_str(soon(asked).await?.get()).unwrap())
        })
    }

    /// Begins a call whose caller receives progress and questions.
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

    /// Asks as part of a call, which can be cancelled.
    pub fn ask_in(
        &self,
        name: &str,
        payload: Value,
        call: CallContext,
    ) -> JoinHandle<Result<Value, Failure>> {
        let (agent, name) = (self.agent.clone(), name.to_owned());
        tokio::spawn(async move {
            let asked =
                agent.ask_named(name, to_raw_value(&payload).unwrap(), Some(Arc::new(call)));
            Ok(serde_json::from_str(asked.await?.get()).unwrap())
        })
    }

    pub async fn stop(self) {
        self.system.shutdown(Duration::ZERO).await;
        soon(self.client.drained()).await;
    }
}

/// Returns a raw call of a tool.
pub fn tool(name: &str, arguments: Value) -> Value {
    json!({ "name": name, "arguments": arguments })
}

/// Waits for a task's result.
pub async fn joined<T>(task: JoinHandle<T>) -> T {
    soon(task).await.unwrap()
}

impl Played {
    pub async fn start() -> Self {
        Self::at("").await
    }

    /// Starts a played agent and a client of it.
    pub async fn with(options: RemoteOptions) -> (Self, Remote) {
        let peer = Self::start().await;
        let remote = Remote::at(&peer.url, options);
        (peer, remote)
    }

    /// Starts a played agent of 1.0 whose card was fetched and which is being sent a message.
    pub async fn asked(
        options: RemoteOptions,
        streaming: bool,
    ) -> (Self, Remote, JoinHandle<Result<Value, Failure>>) {
        let (mut peer, remote) = Self::with(options).await;
        let asked = remote.asking(
            "callboard.tools.call",
            tool("message", json!({ "text": "hello" })),
        );
        let card = peer.card("1.0", "/a2a", streaming);
        peer.show(&card).await;
        (peer, remote, asked)
    }

    /// Returns a card with one interface at `path`.
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

    /// Waits for the next request, which must be for this path.
    pub async fn get(&mut self, path: &str) -> Hit {
        let hit = self.hit().await;
        assert_eq!(hit.target, path, "{}", hit.body);
        hit
    }

    /// Answers the request for the card.
    pub async fn show(&mut self, card: &Value) {
        self.get("/.well-known/agent-card.json")
            .await
            .json(200, card)
            .await;
    }
}

impl Hit {
    pub async fn error(self, code: i64, message: &str) {
        let body = self.response(Err(json!({ "code": code, "message": message })));
        self.json(200, &body).await;
    }
}

impl Events {
    /// Sends a result as a JSON-RPC stream event. Returns whether the client still reads.
    pub async fn say(&mut self, result: Value) -> bool {
        let event = json!({ "jsonrpc": "2.0", "id": self.request["id"], "result": result });
        self.raw(&format!("data: {event}\n\n")).await
    }
}

/// Returns a task of 1.0.
pub fn task(id: &str, state: &str) -> Value {
    json!({ "task": { "id": id, "contextId": "c", "status": { "state": state } } })
}

/// Returns a status event with a message.
pub fn status(id: &str, state: &str, text: &str) -> Value {
    let message = json!({ "messageId": text, "role": "ROLE_AGENT", "parts": [{ "text": text }] });
    json!({ "statusUpdate": { "taskId": id, "contextId": "c", "status": { "state": state, "message": message } } })
}

/// Returns an artifact event with a piece of text.
pub fn piece(id: &str, artifact: &str, text: &str, append: bool) -> Value {
    let artifact = json!({ "artifactId": artifact, "parts": [{ "text": text }] });
    json!({ "artifactUpdate": { "taskId": id, "contextId": "c", "artifact": artifact, "append": append } })
}
