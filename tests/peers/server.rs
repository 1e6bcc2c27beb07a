//! Our server: an agent with the tools of a round, served in this process.

use std::net::TcpListener;

use callboard::mcp::inbound::{ListenOptions, McpServerOptions, serve};
use callboard::message::capabilities::{
    GetPrompt, GetPromptResult, ListPrompts, ListResources, ReadResource, ReadResourceResult,
};
use callboard::message::{
    Content, Elicitation, LogLevel, LogMessage, Progress, RawObject, ResourceContent,
    SamplingRequest, Speaker,
};
use callboard::message::{Failure, ToolResult};
use callboard::{Agent, ConcurrentHandler, Context, Handlers, Message, SyncHandler, System};
use callboard_rpc::{AccessControl, UnauthenticatedAccess};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::kit::Ours;
use crate::round::{self, ASKS_CAPITAL, ASKS_NAME, Plan};

/// Plan of this server.
pub fn plan() -> Plan {
    let mut plan = round::plain("error: on purpose");
    plan.insert(
        0,
        round::tools(&["ask_model", "ask_name", "count", "echo", "fail", "folders"]),
    );
    plan
}

const AT_ONCE_MAX: u32 = 16;

/// The agent.
pub struct Peer;

impl Agent for Peer {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Echo>().sync::<Count>().sync::<Fail>();
        on.concurrent::<AskName>(AT_ONCE_MAX)
            .concurrent::<AskModel>(AT_ONCE_MAX)
            .concurrent::<Folders>(AT_ONCE_MAX);
        on.sync::<ListResources>()
            .sync::<ReadResource>()
            .sync::<ListPrompts>()
            .sync::<GetPrompt>();
    }
}

/// Answers the text.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult)]
struct Echo {
    text: String,
}

impl SyncHandler<Echo> for Peer {
    fn handle(&mut self, Echo { text }: Echo, _: &mut Context) -> ToolResult {
        ToolResult::text(text)
    }
}

/// Asks a person.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult, fallible)]
struct AskName;

impl ConcurrentHandler<AskName> for Peer {
    fn handle(
        &mut self,
        _: AskName,
        cx: Context,
    ) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        async move { ask_name(&cx).await }
    }
}

/// Asks a person for their name, and greets them.
pub async fn ask_name(cx: &Context) -> Result<ToolResult, Failure> {
    let fields = json!({ "name": { "type": "string" } });
    let schema = json!({ "type": "object", "properties": fields, "required": ["name"] });
    let content = cx
        .elicit(Elicitation::form(ASKS_NAME, schema))
        .await?
        .content()
        .unwrap_or_default();
    Ok(ToolResult::text(format!(
        "Hello, {}!",
        content["name"].as_str().unwrap_or("nobody")
    )))
}

/// Asks the caller's model.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult, fallible)]
struct AskModel;

impl ConcurrentHandler<AskModel> for Peer {
    fn handle(
        &mut self,
        _: AskModel,
        cx: Context,
    ) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        async move {
            let written = cx
                .sample(SamplingRequest::prompt(ASKS_CAPITAL, 100))
                .await?
                .written_text();
            Ok(ToolResult::text(written.unwrap_or_default()))
        }
    }
}

/// Asks for the caller's folders.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult, fallible)]
struct Folders;

impl ConcurrentHandler<Folders> for Peer {
    fn handle(
        &mut self,
        _: Folders,
        cx: Context,
    ) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        async move {
            let roots = cx.roots().await?.roots();
            Ok(ToolResult::text(
                roots
                    .into_iter()
                    .map(|root| root.uri)
                    .collect::<Vec<_>>()
                    .join(","),
            ))
        }
    }
}

/// Counts, and says so.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult)]
struct Count {
    to: u32,
}

impl SyncHandler<Count> for Peer {
    fn handle(&mut self, Count { to }: Count, cx: &mut Context) -> ToolResult {
        for n in 1..=to {
            cx.progress(Progress {
                done: n.into(),
                total: Some(to.into()),
                message: None,
            });
            cx.log(LogMessage::new(LogLevel::Info, "peer", format!("at {n}")));
        }
        ToolResult::text(to.to_string())
    }
}

/// Fails.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult)]
struct Fail;

impl SyncHandler<Fail> for Peer {
    fn handle(&mut self, _: Fail, _: &mut Context) -> ToolResult {
        ToolResult::error("on purpose")
    }
}

impl SyncHandler<ListResources> for Peer {
    fn handle(&mut self, _: ListResources, _: &mut Context) -> Result<RawObject, Failure> {
        Ok(RawObject::new().with(
            "resources",
            json!([{ "uri": "peer://greeting", "name": "greeting" }]),
        ))
    }
}

impl SyncHandler<ReadResource> for Peer {
    fn handle(
        &mut self,
        wanted: ReadResource,
        _: &mut Context,
    ) -> Result<ReadResourceResult, Failure> {
        match &*wanted.uri() {
            uri @ "peer://greeting" => {
                Ok(ReadResourceResult::from_contents([ResourceContent::text(
                    uri,
                    "text/plain",
                    "Good morning",
                )]))
            }
            uri => Err(Failure::not_found(format!("there is no resource {uri}"))),
        }
    }
}

impl SyncHandler<ListPrompts> for Peer {
    fn handle(&mut self, _: ListPrompts, _: &mut Context) -> Result<RawObject, Failure> {
        let arguments = json!([{ "name": "name", "required": true }]);
        Ok(RawObject::new().with(
            "prompts",
            json!([{ "name": "greet", "arguments": arguments }]),
        ))
    }
}

impl SyncHandler<GetPrompt> for Peer {
    fn handle(&mut self, wanted: GetPrompt, _: &mut Context) -> Result<GetPromptResult, Failure> {
        let name = wanted
            .argument("name")
            .ok_or_else(|| Failure::invalid("whom to greet?"))?;
        Ok(GetPromptResult::from_turns([(
            Speaker::User,
            Content::text(format!("Greet {name}")),
        )]))
    }
}

/// Serves a [`Peer`] on a free port.
pub fn start() -> Ours {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let system = System::start(1).unwrap();
    let options = McpServerOptions {
        access: AccessControl::Open(UnauthenticatedAccess::LoopbackOperator),
        ..McpServerOptions::default()
    };
    let serving = serve(
        listener,
        system.spawn(Peer),
        options,
        &ListenOptions::default(),
    )
    .unwrap();
    Ours::new(
        format!("http://{}/mcp", serving.address),
        serving.server,
        system,
    )
}
