#![expect(
    clippy::manual_async_fn,
    reason = "an async fn would keep the agent borrowed"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use callboard_macros::Message;
use callboard_message::capabilities::{
    CapabilityChange, GetPrompt, GetPromptResult, ListPrompts, ListResources, ReadResource,
    ReadResourceResult,
};
use callboard_message::{
    Content, Elicitation, Failure, LogLevel, LogMessage, Principal, Progress, Question, RawObject,
    ResourceContent, SamplingRequest, Speaker, ToolResult,
};
use callboard_rpc::{DecodeLimits, decode};
use callboard_runtime::testkit::run_with_paused_time;
use callboard_runtime::{
    Agent, AgentProfile, AgentRef, ConcurrentHandler, Context, Handlers, SyncHandler, System,
};
use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::inbound::client_messages::MessageSink;
use crate::inbound::modern::{self, ModernService};
use crate::inbound::options::InboundOptions;
use crate::inbound::request;

/// Returns a text, repeated.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult)]
pub struct Echo {
    /// Text.
    #[serde(default)]
    #[schemars(extend("x-mcp-header" = "Text"))]
    pub text: String,
    /// Number of repetitions.
    #[serde(default)]
    #[schemars(extend("x-mcp-header" = "Times"))]
    pub times: i64,
}

/// A tool with an invalid header annotation.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult)]
pub struct Misnamed {
    #[schemars(extend("x-mcp-header" = "no name"))]
    pub text: String,
}

/// Asks for a name, then greets it once.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult, fallible)]
pub struct AskName {
    #[serde(default)]
    pub greeting: String,
}

/// Asks three questions concurrently.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult, fallible)]
pub struct AskThree {}

/// Asks twice, without keys.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult, fallible)]
pub struct AskTwice {}

/// Asks this many questions concurrently, and returns the number of answers.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult)]
pub struct AskMany {
    pub count: usize,
}

/// Reports progress and log messages.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult)]
pub struct Tell {}

/// Runs until cancelled.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult)]
pub struct Hang {}

/// Reports changes of the agent's lists and resources.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ())]
pub struct Touch {}

type Outcome<T> = Result<T, Failure>;

#[derive(Clone, Default)]
pub struct Counts {
    /// Number of greetings.
    pub greeted: Arc<AtomicUsize>,
    /// Number of cancelled calls.
    pub cancelled: Arc<AtomicUsize>,
}

#[derive(Clone, Default)]
pub struct Fixture {
    pub counts: Counts,
}

impl Agent for Fixture {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Echo>()
            .sync::<Misnamed>()
            .sync::<Tell>()
            .sync::<Touch>();
        on.sync::<ListPrompts>().sync::<ListResources>();
        on.concurrent::<AskName>(64)
            .concurrent::<AskThree>(64)
            .concurrent::<AskTwice>(64)
            .concurrent::<Hang>(64);
        on.concurrent::<AskMany>(64);
        on.concurrent::<ReadResource>(64)
            .concurrent::<GetPrompt>(64);
    }
}

pub fn form(key: &str) -> Elicitation {
    let schema = json!({ "type": "object", "properties": { "name": { "type": "string" } }, "required": ["name"] });
    Elicitation::form("What is your name?", schema).with_key(key)
}

async fn name(cx: &Context, key: &str) -> Result<String, Failure> {
    let answer = cx.elicit(form(key)).await?;
    Ok(answer
        .content()
        .and_then(|c| c["name"].as_str().map(str::to_owned))
        .unwrap_or_default())
}

impl SyncHandler<Echo> for Fixture {
    fn handle(&mut self, message: Echo, _: &mut Context) -> ToolResult {
        ToolResult::text(message.text)
    }
}

impl SyncHandler<Misnamed> for Fixture {
    fn handle(&mut self, message: Misnamed, _: &mut Context) -> ToolResult {
        ToolResult::text(message.text)
    }
}

impl SyncHandler<Tell> for Fixture {
    fn handle(&mut self, _: Tell, cx: &mut Context) -> ToolResult {
        for done in [0.0, 50.0, 50.0, 40.0, 100.0] {
            cx.progress(Progress {
                done,
                total: Some(100.0),
                message: None,
            });
        }
        for level in [LogLevel::Debug, LogLevel::Warning, LogLevel::Error] {
            cx.log(LogMessage::new(level, "tell", "a line"));
        }
        ToolResult::text("told")
    }
}

impl SyncHandler<Touch> for Fixture {
    fn handle(&mut self, _: Touch, cx: &mut Context) {
        for change in [
            CapabilityChange::Tools,
            CapabilityChange::Prompts,
            CapabilityChange::Resource("test://a".into()),
            CapabilityChange::Resource("x".into()),
        ] {
            cx.notify_changed(change);
        }
    }
}

impl SyncHandler<ListPrompts> for Fixture {
    fn handle(&mut self, _: ListPrompts, _: &mut Context) -> Result<RawObject, Failure> {
        Ok(RawObject::single("prompts", json!([])))
    }
}

impl SyncHandler<ListResources> for Fixture {
    fn handle(&mut self, _: ListResources, _: &mut Context) -> Result<RawObject, Failure> {
        Ok(RawObject::single("resources", json!([]))
            .with("ttlMs", 7)
            .with("cacheScope", "public"))
    }
}

impl ConcurrentHandler<AskName> for Fixture {
    fn handle(
        &mut self,
        m: AskName,
        cx: Context,
    ) -> impl Future<Output = Outcome<ToolResult>> + Send + 'static {
        let counts = self.counts.clone();
        async move {
            let name = tokio::select! {
                name = name(&cx, "user_name") => name?,
                () = cx.cancelled() => {
                    counts.cancelled.fetch_add(1, Ordering::SeqCst);
                    return Ok(ToolResult::text("cancelled"));
                }
            };
            counts.greeted.fetch_add(1, Ordering::SeqCst);
            cx.progress(Progress {
                done: 1.0,
                total: None,
                message: Some("greeted".into()),
            });
            Ok(ToolResult::text(format!("{} {name}", m.greeting)))
        }
    }
}

impl ConcurrentHandler<AskThree> for Fixture {
    fn handle(
        &mut self,
        _: AskThree,
        cx: Context,
    ) -> impl Future<Output = Outcome<ToolResult>> + Send + 'static {
        async move {
            let roots = cx.ask_caller(Question::roots().with_key("folders"));
            let asked = futures::join!(
                name(&cx, "who"),
                cx.sample(SamplingRequest::prompt("Greet", 50).with_key("greeting")),
                roots
            );
            let said = match asked {
                (Ok(name), Ok(greeting), Ok(_)) => {
                    format!("{} {name}", greeting.written_text().unwrap_or_default())
                }
                (name, greeting, roots) => {
                    format!("{} {} {}", name.is_ok(), greeting.is_ok(), roots.is_ok())
                }
            };
            Ok(ToolResult::text(said))
        }
    }
}

impl ConcurrentHandler<AskTwice> for Fixture {
    fn handle(
        &mut self,
        _: AskTwice,
        cx: Context,
    ) -> impl Future<Output = Outcome<ToolResult>> + Send + 'static {
        async move {
            let first = name(&cx, "").await?;
            let second = name(&cx, "").await?;
            Ok(ToolResult::text(format!("{first} {second}")))
        }
    }
}

impl ConcurrentHandler<AskMany> for Fixture {
    fn handle(
        &mut self,
        m: AskMany,
        cx: Context,
    ) -> impl Future<Output = ToolResult> + Send + 'static {
        async move {
            let asked = (0..m.count).map(|_| name(&cx, "same"));
            let refused = futures::future::join_all(asked)
                .await
                .into_iter()
                .filter(Result::is_err)
                .count();
            ToolResult::text(format!("{refused} refused"))
        }
    }
}

impl ConcurrentHandler<Hang> for Fixture {
    fn handle(
        &mut self,
        _: Hang,
        cx: Context,
    ) -> impl Future<Output = ToolResult> + Send + 'static {
        let counts = self.counts.clone();
        async move {
            cx.cancelled().await;
            counts.cancelled.fetch_add(1, Ordering::SeqCst);
            ToolResult::text("cancelled")
        }
    }
}

impl ConcurrentHandler<ReadResource> for Fixture {
    fn handle(
        &mut self,
        m: ReadResource,
        cx: Context,
    ) -> impl Future<Output = Outcome<ReadResourceResult>> + Send + 'static {
        async move {
            match m.uri().as_str() {
                "test://a" => Ok(ReadResourceResult::from_contents([ResourceContent::text(
                    "test://a",
                    "text/plain",
                    "a",
                )])),
                "test://asks" => {
                    let name = name(&cx, "user_name").await?;
                    Ok(ReadResourceResult::from_contents([ResourceContent::text(
                        "test://asks",
                        "text/plain",
                        name,
                    )]))
                }
                _ => Err(Failure::not_found("no such resource")),
            }
        }
    }
}

impl ConcurrentHandler<GetPrompt> for Fixture {
    fn handle(
        &mut self,
        _: GetPrompt,
        cx: Context,
    ) -> impl Future<Output = Outcome<GetPromptResult>> + Send + 'static {
        async move {
            Ok(GetPromptResult::from_turns([(
                Speaker::User,
                Content::text(name(&cx, "user_name").await?),
            )]))
        }
    }
}

/// Agent that waits for an answer for [`ImpatientAgent::PATIENCE`], in its caller's task. Counts as
/// cancelled the calls that got none.
pub struct ImpatientAgent(Counts);

impl ImpatientAgent {
    pub const PATIENCE: Duration = Duration::from_secs(5);

    pub fn spawn(system: &System, counts: Counts) -> AgentRef {
        system.spawn(Self(counts))
    }
}

impl Agent for ImpatientAgent {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<AskName>(64);
    }

    fn profile() -> AgentProfile {
        AgentProfile::default().inline_concurrent()
    }
}

impl ConcurrentHandler<AskName> for ImpatientAgent {
    fn handle(
        &mut self,
        _: AskName,
        cx: Context,
    ) -> impl Future<Output = Outcome<ToolResult>> + Send + 'static {
        let counts = self.0.clone();
        async move {
            let asked = tokio::time::timeout(Self::PATIENCE, name(&cx, "user_name")).await;
            let Ok(name) = asked else {
                counts.cancelled.fetch_add(1, Ordering::SeqCst);
                return Err(Failure::timed_out("no answer came in time"));
            };
            Ok(ToolResult::text(name?))
        }
    }
}

/// Runs a test with a peer and paused time.
pub fn with_peer(test: impl AsyncFnOnce(Peer)) {
    with_options(InboundOptions::default(), test);
}

pub fn with_options(options: InboundOptions, test: impl AsyncFnOnce(Peer)) {
    run_with_paused_time(async |system| {
        test(Peer::new(system, options)).await;
        system.shutdown(Duration::from_secs(5)).await;
    });
}

/// Messages sent on a sink.
#[derive(Default)]
pub struct Sent(Mutex<Vec<Value>>);

impl MessageSink for Sent {
    fn send(&self, message: Bytes) -> bool {
        self.0
            .lock()
            .push(serde_json::from_slice(&message).unwrap());
        true
    }
}

impl Sent {
    pub fn take(&self) -> Vec<Value> {
        std::mem::take(&mut self.0.lock())
    }
}

/// A client of the modern era.
pub struct Peer {
    pub service: Arc<ModernService>,
    pub counts: Counts,
    pub principal: Arc<Principal>,
    pub link: Arc<Sent>,
    pub hung_up: CancellationToken,
}

impl Peer {
    fn new(system: &System, options: InboundOptions) -> Self {
        let fixture = Fixture::default();
        let counts = fixture.counts.clone();
        Self::of(system.spawn(fixture), counts, options)
    }

    /// Returns a client of a server for `agent`.
    pub fn of(agent: AgentRef, counts: Counts, options: InboundOptions) -> Self {
        let service = ModernService::new(agent, options);
        let principal = Arc::new(Principal::anonymous());
        Self {
            service,
            counts,
            principal,
            link: Arc::default(),
            hung_up: CancellationToken::new(),
        }
    }

    /// Returns a client of the same server with another principal.
    pub fn other(&self, id: &str) -> Self {
        let (service, counts) = (self.service.clone(), self.counts.clone());
        let (principal, link) = (Arc::new(Principal::agent(id)), Arc::default());
        Self {
            service,
            counts,
            principal,
            link,
            hung_up: CancellationToken::new(),
        }
    }

    /// Sends a body and returns status and response.
    pub async fn send(&self, body: &Value) -> (u16, Value) {
        let text = body.to_string();
        let message = decode(text.as_bytes(), &DecodeLimits::default())
            .unwrap()
            .into();
        let request::ClientMessage::Request(id, request) = message else {
            panic!("no request")
        };
        let (principal, link, hung_up) = (
            self.principal.clone(),
            self.link.clone(),
            self.hung_up.clone(),
        );
        let answer =
            modern::handle_request(&self.service, principal, &id, request, link, hung_up).await;
        (
            answer.status.as_u16(),
            serde_json::from_slice(&answer.body.unwrap()).unwrap(),
        )
    }

    /// Sends a request of a client that can answer everything.
    pub async fn post(&self, method: &str, params: Value) -> (u16, Value) {
        self.post_as(
            method,
            params,
            json!({ "sampling": {}, "elicitation": {}, "roots": {} }),
        )
        .await
    }

    pub async fn post_as(
        &self,
        method: &str,
        mut params: Value,
        capabilities: Value,
    ) -> (u16, Value) {
        let mut meta = params.get("_meta").cloned().unwrap_or_else(|| json!({}));
        meta["io.modelcontextprotocol/protocolVersion"] = "2026-07-28".into();
        meta["io.modelcontextprotocol/clientCapabilities"] = capabilities;
        params["_meta"] = meta;
        self.send(&json!({ "jsonrpc": "2.0", "id": "r1", "method": method, "params": params }))
            .await
    }

    /// Returns the result of a `tools/call`.
    pub async fn tool(&self, name: &str, more: Value) -> Value {
        let (_, mut response) = self.call(name, more).await;
        response["result"].take()
    }

    pub async fn call(&self, name: &str, more: Value) -> (u16, Value) {
        let mut params = json!({ "name": name, "arguments": {} });
        for (member, value) in more.as_object().unwrap() {
            params[member] = value.clone();
        }
        self.post("tools/call", params).await
    }
}

/// Returns an answer to [`form`].
pub fn named(name: &str) -> Value {
    json!({ "action": "accept", "content": { "name": name } })
}

pub fn error_code(response: &Value) -> i64 {
    response["error"]["code"].as_i64().unwrap_or_default()
}
