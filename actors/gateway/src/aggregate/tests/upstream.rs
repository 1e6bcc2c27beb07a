//! Test double of a remote server, as an aggregate sees it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use callboard_message::capabilities::{
    CallTool, DescribeAgent, ListResources, ListTools, ReadResource, SubscribeResource,
    UnsubscribeResource,
};
use callboard_message::{CapabilityChange, Failure, Message, RawMessage, RawObject};
use callboard_runtime::{Agent, ConcurrentHandler, Context, Handlers};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Availability of the server.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Mode {
    Up,
    Away,
    Starting,
    Broken,
    Hangs,
    Late(Duration),
}

/// Server that accepts any message, has these tools (in pages) and resources, and records its
/// requests. It tells a change of each resource that is read.
#[derive(Clone)]
pub(super) struct Upstream {
    name: &'static str,
    pub(super) tools: Vec<String>,
    pub(super) page: usize,
    pub(super) kept_for_ms: u64,
    pub(super) resources: Arc<Mutex<Vec<&'static str>>>,
    pub(super) mode: Arc<Mutex<Mode>>,
    asked: Arc<Mutex<HashMap<String, usize>>>,
}

impl Upstream {
    pub(super) fn new(name: &'static str, tools: &[&str]) -> Self {
        let tools = tools.iter().map(|tool| (*tool).to_owned()).collect();
        let (resources, mode) = (Arc::default(), Arc::new(Mutex::new(Mode::Up)));
        Self {
            name,
            tools,
            page: 100,
            kept_for_ms: 9_000,
            resources,
            mode,
            asked: Arc::default(),
        }
    }

    pub(super) fn with_resources(self, resources: &[&'static str]) -> Self {
        *self.resources.lock().unwrap() = resources.to_vec();
        self
    }

    pub(super) fn set(&self, mode: Mode) -> &Self {
        *self.mode.lock().unwrap() = mode;
        self
    }

    pub(super) fn asked<M: Message>(&self) -> usize {
        self.asked
            .lock()
            .unwrap()
            .get(M::NAME)
            .copied()
            .unwrap_or_default()
    }

    fn answer(&self, message: &str, params: &RawObject) -> Result<Value, Failure> {
        let (uri, resources) = (
            params.text("uri").unwrap_or_default(),
            self.resources.lock().unwrap().clone(),
        );
        let has = |answer: Value| match resources.contains(&&*uri) {
            true => Ok(answer),
            false => Err(Failure::not_found("not here")),
        };
        match message {
            ListTools::NAME => {
                let from: usize = params
                    .text("cursor")
                    .map_or(0, |cursor| cursor.parse().unwrap());
                let tools: Vec<_> = self
                    .tools
                    .iter()
                    .skip(from)
                    .take(self.page)
                    .map(|n| json!({ "name": n }))
                    .collect();
                let next = from + tools.len();
                let next = (next < self.tools.len()).then(|| next.to_string());
                Ok(json!({ "tools": tools, "nextCursor": next, "ttlMs": self.kept_for_ms }))
            }
            CallTool::NAME => {
                let text = format!("{}: {}", self.name, params.text("name").unwrap());
                Ok(json!({ "content": [{ "type": "text", "text": text }] }))
            }
            DescribeAgent::NAME => Ok(
                json!({ "instructions": format!("I am {}.", self.name), "capabilities": { "tools": {} } }),
            ),
            ListResources::NAME => Ok(
                json!({ "resources": resources.iter().map(|uri| json!({ "uri": uri })).collect::<Vec<_>>() }),
            ),
            ReadResource::NAME => has(json!({ "contents": [{ "uri": uri, "text": self.name }] })),
            SubscribeResource::NAME | UnsubscribeResource::NAME => has(json!({})),
            // As a server without prompts.
            _ => Err(Failure::not_found("method not found")),
        }
    }
}

impl Agent for Upstream {
    fn handlers(on: &mut Handlers<Self>) {
        on.fallback(64);
    }
}

impl ConcurrentHandler<RawMessage> for Upstream {
    fn handle(
        &mut self,
        message: RawMessage,
        cx: Context,
    ) -> impl Future<Output = Result<Box<RawValue>, Failure>> + Send + 'static {
        let upstream = self.clone();
        async move {
            *upstream
                .asked
                .lock()
                .unwrap()
                .entry(message.name.clone())
                .or_default() += 1;
            let mode = *upstream.mode.lock().unwrap();
            match mode {
                Mode::Up => {}
                Mode::Away => return Err(Failure::unavailable("the server can't be reached")),
                Mode::Starting => {
                    return Err(Failure::unavailable(format!(
                        "{}: still starting",
                        upstream.name
                    )));
                }
                Mode::Broken => return Err(Failure::internal("panicked at 'Ana Souza'")),
                Mode::Hangs => std::future::pending().await,
                Mode::Late(pause) => tokio::time::sleep(pause).await,
            }
            let params = RawObject::parse(&message.payload).unwrap();
            if message.name == ReadResource::NAME {
                let change = CapabilityChange::Resource(params.text("uri").unwrap());
                match cx.call().and_then(|call| call.session.clone()) {
                    Some(session) => session.caller.changed(change),
                    None => cx.notify_changed(change),
                }
            }
            upstream
                .answer(&message.name, &params)
                .map(|value| RawValue::from_string(value.to_string()).unwrap())
        }
    }
}
