//! Client for the official MCP conformance suite: it runs each scenario by asking an agent. The
//! suite names the scenario in the environment and passes the server's URL as the last argument.

mod auth;

use std::env;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use callboard::mcp::outbound::{Era, EraChoice, McpClient, McpClientOptions, ServerEndpoint};
use callboard::message::capabilities::{CallTool, GetPrompt, ListPrompts, ListResources, ListTools, ReadResource};
use callboard::message::{Answer, ElicitationAnswer, Failure, Question, RawObject, RootsAnswer, SamplingAnswer};
use callboard::{AgentRef, CallEvent, Message, System};
use serde_json::{Map, Value, json};

type Outcome<T> = Result<T, Box<dyn Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let url = env::args().next_back().ok_or("the URL is the last argument")?;
    let scenario = env::var("MCP_CONFORMANCE_SCENARIO")?;
    let context: Value = serde_json::from_str(&env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or("{}".into()))?;
    let is_modern = env::var("MCP_CONFORMANCE_PROTOCOL_VERSION").is_ok_and(|version| *version >= *"2026");
    let era = EraChoice::Only(if is_modern { Era::Modern } else { Era::Legacy });
    let mut options = McpClientOptions { era, ..McpClientOptions::default() };
    if scenario.starts_with("auth/") {
        options.authorizer = Some(Arc::new(auth::authorizer(&url, &scenario, &context)?));
    }
    let client = McpClient::new(ServerEndpoint::from_url(&url)?, options)?;
    let system = System::start(1)?;
    let done = play(&system.spawn_with(move || client.clone()), &scenario, &context).await;
    system.shutdown(Duration::from_secs(1)).await;
    done
}

async fn play(server: &AgentRef, scenario: &str, context: &Value) -> Outcome<()> {
    let tools: Vec<RawObject> = call(server, ListTools::default()).await?.read("tools").unwrap_or_default();
    if scenario == "http-standard-headers" {
        call(server, ListResources::default()).await?;
        call(server, ReadResource(RawObject::single("uri", "file:///path/to/file%20name.txt"))).await?;
        call(server, ListPrompts::default()).await?;
        call(server, GetPrompt(RawObject::single("name", "test_prompt"))).await?;
    }
    let schema = tools.first().and_then(|tool| tool.get("inputSchema"));
    let arguments = json!({ "a": 2, "b": 3, "region": "eu", "schema": schema });
    let calls: Vec<CallTool> = match context["toolCalls"].as_array() {
        Some(calls) => serde_json::from_value(calls.clone().into())?,
        None => tools.iter().filter_map(|tool| Some(CallTool::new(&tool.text("name")?, &arguments))).collect(),
    };
    for tool in calls {
        call(server, tool).await?;
    }
    Ok(())
}

async fn call<T, M: Message<Reply = Result<T, Failure>>>(server: &AgentRef, message: M) -> Outcome<T> {
    let mut call = server.call(message).start();
    while let Some(event) = call.next().await {
        if let CallEvent::Question(pending) = event {
            let answer = answer(&pending.question);
            pending.answer(answer);
        }
    }
    Ok(call.reply().await??)
}

fn answer(question: &Question) -> Answer {
    match question {
        Question::Elicit(form) => {
            Answer::Elicit(ElicitationAnswer::accept(defaults(&form.schema().unwrap_or_default())))
        }
        Question::Sample(_) => Answer::Sample(SamplingAnswer::text("none", "No.", Some("endTurn"))),
        _ => Answer::Roots(RootsAnswer::from_roots(Vec::new())),
    }
}

fn defaults(schema: &Value) -> Value {
    let fields = schema["properties"].as_object().into_iter().flatten();
    Value::Object(
        fields.filter_map(|(name, field)| Some((name.clone(), field.get("default")?.clone()))).collect::<Map<_, _>>(),
    )
}
