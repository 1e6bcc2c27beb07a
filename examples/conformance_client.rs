//! The client that the official MCP suite tests: does what each of its scenarios wants, by asking an agent.
//!
//! The suite names the scenario in its environment and gives the URL as the last argument.

use std::env;
use std::error::Error;
use std::time::Duration;

use callboard::mcp::outbound::{ClientOptions, Endpoint, Era, EraChoice, McpClient};
use callboard::message::surface::{CallTool, GetPrompt, ListPrompts, ListResources, ListTools, ReadResource};
use callboard::message::{ElicitAnswer, RawObject, Root, RootsAnswer, SampleAnswer};
use callboard::message::{Answer, Question};
use callboard::{AgentRef, CallEvent, Message, System};
use serde_json::{Value, json};

type Outcome<T> = Result<T, Box<dyn Error>>;

#[actix_web::main]
async fn main() -> Outcome<()> {
    let url = env::args().last().ok_or("the URL is the last argument")?;
    let scenario = env::var("MCP_CONFORMANCE_SCENARIO")?;
    let context: Value = serde_json::from_str(&env::var("MCP_CONFORMANCE_CONTEXT").unwrap_or("{}".into()))?;
    let modern = env::var("MCP_CONFORMANCE_PROTOCOL_VERSION").is_ok_and(|version| version >= "2026".into());
    let era = EraChoice::Only(if modern { Era::Modern } else { Era::Legacy });
    let client = McpClient::new(Endpoint::url(&url)?, ClientOptions { era, ..ClientOptions::default() })?;
    let system = System::here();
    let server = system.spawn_with(move || client.clone());
    let done = play(&server, &scenario, &context).await;
    server.stop();
    system.shutdown(Duration::from_secs(1)).await;
    done
}

async fn play(server: &AgentRef, scenario: &str, context: &Value) -> Outcome<()> {
    let tools: Vec<RawObject> = ask(server, ListTools::default()).await?.read("tools").unwrap_or_default();
    if scenario == "http-standard-headers" {
        ask(server, ListResources::default()).await?;
        ask(server, ListPrompts::default()).await?;
        ask(server, ReadResource(RawObject::new().with("uri", "file:///path/to/file%20name.txt"))).await?;
        ask(server, GetPrompt(RawObject::new().with("name", "test_prompt"))).await?;
    }
    let planned: Vec<(String, Value)> = match (scenario, context["toolCalls"].as_array()) {
        (_, Some(calls)) => calls.iter().map(|c| (c["name"].as_str().unwrap_or_default().into(), c["arguments"].clone())).collect(),
        ("json-schema-2020-12-preservation", _) => vec![("json_schema_echo".into(), json!({ "schema": tools[0].get("inputSchema") }))],
        _ => tools.iter().filter_map(|tool| Some((tool.text("name")?, json!({ "a": 2, "b": 3, "region": "eu" })))).collect(),
    };
    for (tool, arguments) in planned {
        ask(server, CallTool::new(&tool, arguments)).await?;
    }
    Ok(())
}
