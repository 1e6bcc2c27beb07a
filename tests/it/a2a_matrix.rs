use std::sync::Arc;
use std::time::Duration;

use callboard::a2a::outbound::{ProtocolBinding, ProtocolVersion, RemoteA2aAgent, RemoteOptions};
use callboard::mcp::inbound::McpServerOptions;
use callboard::mcp::outbound::{Era, EraChoice, McpClient, McpClientOptions, ServerEndpoint};
use callboard::message::capabilities::CallTool;
use callboard::message::{
    Answer, Elicitation, ElicitationAnswer, Failure, Progress, Question, RawObject, ToolResult,
};
use callboard::rpc::{AccessControl, UnauthenticatedAccess};
use callboard::{
    Agent, AgentRef, CallEvent, ConcurrentHandler, Context, Handlers, Message, SyncHandler, System,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::kit::{Listening, a2a, mcp, soon};

/// Timeout of a call.
const WITHIN: Duration = Duration::from_secs(30);
const AT_ONCE_MAX: u32 = 8;
const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];
const VERSIONS: [ProtocolVersion; 3] = [
    ProtocolVersion::V10,
    ProtocolVersion::V03,
    ProtocolVersion::V01,
];

/// The agent at the far end.
#[derive(Clone, Default)]
struct Far {
    given_up: Arc<Notify>,
}

impl Agent for Far {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<AskName>(AT_ONCE_MAX)
            .sync::<Count>()
            .concurrent::<Wait>(AT_ONCE_MAX);
    }
}

/// Asks a person, and about the answer.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "ask_name", reply = ToolResult, fallible)]
struct AskName {}

impl ConcurrentHandler<AskName> for Far {
    fn handle(
        &mut self,
        _: AskName,
        cx: Context,
    ) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        async move {
            let name = asked(&cx, "What is your name?").await?;
            let again = asked(&cx, &format!("Sure, {name}?")).await?;
            Ok(ToolResult::text(format!("Hello, {again}!"))
                .with_structured_content(json!({ "name": again })))
        }
    }
}

async fn asked(cx: &Context, what: &str) -> Result<String, Failure> {
    let fields = json!({ "name": { "type": "string" } });
    let form = json!({ "type": "object", "properties": fields, "required": ["name"] });
    let content = cx
        .elicit(Elicitation::form(what, form))
        .await?
        .content()
        .unwrap_or_default();
    Ok(content["name"].as_str().unwrap_or("nobody").to_owned())
}

/// Counts, and says so.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "count", reply = ToolResult)]
struct Count {
    to: u32,
}

impl SyncHandler<Count> for Far {
    fn handle(&mut self, Count { to }: Count, cx: &mut Context) -> ToolResult {
        for n in 1..=to {
            cx.progress(Progress {
                done: n.into(),
                total: Some(to.into()),
                message: Some(format!("at {n}")),
            });
        }
        ToolResult::text(to.to_string())
    }
}

/// Waits until it is given up.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(name = "wait", reply = ToolResult)]
struct Wait {}

impl ConcurrentHandler<Wait> for Far {
    fn handle(
        &mut self,
        _: Wait,
        cx: Context,
    ) -> impl Future<Output = ToolResult> + Send + 'static {
        let given_up = self.given_up.clone();
        async move {
            cx.progress(Progress {
                done: 0.0,
                total: None,
                message: Some("waiting".to_owned()),
            });
            // However it ends: by a word, or by being dropped.
            let _told = Told(given_up);
            cx.cancelled().await;
            ToolResult::text("given up")
        }
    }
}

struct Told(Arc<Notify>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

fn over_mcp(agent: AgentRef) -> Listening {
    let access = AccessControl::Open(UnauthenticatedAccess::LoopbackOperator);
    mcp::serve(
        agent,
        McpServerOptions {
            access,
            ..McpServerOptions::default()
        },
    )
}

fn over_a2a(agent: AgentRef) -> Listening {
    a2a::serve(agent, |options| {
        options.access = AccessControl::Open(UnauthenticatedAccess::LoopbackOperator)
    })
}

fn mcp_client(system: &System, url: &str, era: Era) -> AgentRef {
    let options = McpClientOptions {
        era: EraChoice::Only(era),
        ..McpClientOptions::default()
    };
    system.spawn(McpClient::new(ServerEndpoint::from_url(url).unwrap(), options).unwrap())
}

fn a2a_client(system: &System, url: &str, version: ProtocolVersion) -> AgentRef {
    let options = RemoteOptions {
        versions: vec![version],
        bindings: vec![ProtocolBinding::JsonRpc],
        ..RemoteOptions::default()
    };
    system.spawn(RemoteA2aAgent::new(url.parse().unwrap(), options).unwrap())
}

/// Result of a call.
#[derive(Debug, Default, PartialEq)]
struct Heard {
    text: String,
    value: Option<Value>,
    asked: Vec<String>,
    told: Vec<String>,
}

fn tool(name: &str, arguments: Value) -> CallTool {
    CallTool(
        RawObject::new()
            .with("name", name)
            .with("arguments", arguments),
    )
}

async fn call(agent: &AgentRef, name: &str, arguments: Value) -> Result<Heard, String> {
    let mut call = agent.call(tool(name, arguments)).within(WITHIN).start();
    let mut heard = Heard::default();
    while let Some(event) = soon("what a call says", call.next()).await {
        match event {
            CallEvent::Progress(progress) => heard.told.extend(progress.message),
            CallEvent::Question(pending) => {
                let Question::Elicit(form) = &pending.question else {
                    return Err(format!("{:?}", pending.question));
                };
                heard.asked.push(form.message());
                pending.answer(Answer::Elicit(ElicitationAnswer::accept(
                    json!({ "name": "Ada" }),
                )));
            }
            _ => {}
        }
    }
    let result = call
        .reply()
        .await
        .map_err(|error| format!("{name}: {error}"))?;
    let result = result.map_err(|failure| format!("{name}: {failure}"))?;
    if result.is_error() {
        return Err(format!("{name}: {}", result.texts()));
    }
    (heard.text, heard.value) = (result.texts(), result.structured_content());
    Ok(heard)
}

/// Returns the losses on the way to the far end; empty if nothing was lost.
async fn lost(near: &AgentRef, far: &Far) -> Vec<String> {
    let mut lost = Vec::new();
    let mut expect = |what: &str, heard: Result<Heard, String>, wanted: Heard| match heard {
        Ok(heard) if heard == wanted => {}
        other => lost.push(format!("{what}: {other:?}, not {wanted:?}")),
    };
    let words = |words: &[&str]| {
        words
            .iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    let wanted = Heard {
        text: "Hello, Ada!".to_owned(),
        value: Some(json!({ "name": "Ada" })),
        asked: words(&["What is your name?", "Sure, Ada?"]),
        told: Vec::new(),
    };
    expect("questions", call(near, "ask_name", json!({})).await, wanted);
    let wanted = Heard {
        text: "3".to_owned(),
        told: words(&["at 1", "at 2", "at 3"]),
        ..Heard::default()
    };
    expect(
        "progress",
        call(near, "count", json!({ "to": 3 })).await,
        wanted,
    );
    let mut waiting = near.call(tool("wait", json!({}))).within(WITHIN).start();
    while let Some(event) = soon("that it waits", waiting.next()).await {
        if let CallEvent::Progress(_) = event {
            break;
        }
    }
    drop(waiting);
    if tokio::time::timeout(WITHIN, far.given_up.notified())
        .await
        .is_err()
    {
        lost.push("cancel: the far end isn't told".to_owned());
    }
    lost
}

/// Goal: an MCP client of either era uses an A2A agent of any version, and nothing is lost: questions (one about the answer to
/// another), progress, a call that is given up. Method: every pair, over sockets.
/// Rows: X-46.
#[actix_web::test]
async fn mcp_clients_before_a2a_agents() {
    let (system, far) = (System::start(1).unwrap(), Far::default());
    let agent = over_a2a(system.spawn(far.clone()));
    let mut all = Vec::new();
    for version in VERSIONS {
        let between = over_mcp(a2a_client(&system, &agent.url, version));
        for era in ERAS {
            let lost = lost(&mcp_client(&system, &between.url, era), &far).await;
            all.extend(
                lost.into_iter()
                    .map(|what| format!("MCP {era:?} before A2A {version:?}: {what}")),
            );
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

/// Goal: an A2A client of any version uses an MCP server of either era, and nothing is lost. Method: every pair, over sockets.
/// Rows: X-46.
#[actix_web::test]
async fn a2a_clients_before_mcp_servers() {
    let (system, far) = (System::start(1).unwrap(), Far::default());
    let server = over_mcp(system.spawn(far.clone()));
    let mut all = Vec::new();
    for era in ERAS {
        let between = over_a2a(mcp_client(&system, &server.url, era));
        for version in VERSIONS {
            let lost = lost(&a2a_client(&system, &between.url, version), &far).await;
            all.extend(
                lost.into_iter()
                    .map(|what| format!("A2A {version:?} before MCP {era:?}: {what}")),
            );
        }
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}
