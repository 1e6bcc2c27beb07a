//! For the client: agents that stand for remote ones, and a remote one that the test plays itself, request by request.

use std::sync::Arc;
use std::time::Duration;

use callboard_a2a::outbound::{Binding, RemoteA2a, RemoteOptions, Version};
use callboard_message::{Failure, Named, Principal};
use callboard_runtime::{AgentRef, CallMeta, RunningCall, System};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::kit::soon;
use crate::played::Events;
pub use crate::played::{Hit, Played};

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
    RemoteOptions {
        versions: vec![version],
        bindings: vec![binding],
        ..quick()
    }
}

/// Options that look at tasks without long pauses.
pub fn quick() -> RemoteOptions {
    RemoteOptions {
        poll: (Duration::from_millis(5), Duration::from_millis(20)),
        ..RemoteOptions::default()
    }
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
        Self {
            agent: system.spawn_with(move || spawned.clone()),
            system,
            client,
        }
    }

    /// Asks by name, with nobody behind it.
    pub async fn ask(&self, name: &str, payload: Value) -> Result<Value, Failure> {
        let asked = self
            .agent
            .ask_named(name, to_raw_value(&payload).unwrap(), None);
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

    /// Asks as part of a call, which can be cancelled.
    pub fn ask_in(
        &self,
        name: &str,
        payload: Value,
        call: CallMeta,
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

impl Played {
    pub async fn start() -> Self {
        Self::at("").await
    }

    /// An agent, and a client of it.
    pub async fn with(options: RemoteOptions) -> (Self, Remote) {
        let peer = Self::start().await;
        let remote = Remote::at(&peer.url, options);
        (peer, remote)
    }

    /// An agent of 1.0 that a client has found and says something to.
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

    /// The next request, which must be for this path.
    pub async fn get(&mut self, path: &str) -> Hit {
        let hit = self.hit().await;
        assert_eq!(hit.target, path, "{}", hit.body);
        hit
    }

    /// Gives out its card.
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
    /// A result, as JSON-RPC wraps it; whether somebody still reads.
    pub async fn say(&mut self, result: Value) -> bool {
        let event = json!({ "jsonrpc": "2.0", "id": self.request["id"], "result": result });
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
