//! `callboard mcp call`.

use std::io::IsTerminal;
use std::sync::Arc;

use callboard_mcp::outbound::PAGES_MAX_DEFAULT;
use callboard_message::surface::{CallTool, ListTools};
use callboard_message::{RawObject, ToolResult};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

use super::super::{EXIT_ANSWERED, EXIT_FAILED, show};
use super::server::Server;
use super::terminal::Terminal;
use super::words::{printable, told};
use super::{CallArguments, Stopped, unless_interrupted};

pub(super) async fn run(arguments: &CallArguments) -> Result<u8, Stopped> {
    let given = given(arguments)?;
    let asks = arguments.ask || std::io::stdin().is_terminal();
    let terminal = Terminal::new(asks, &arguments.roots)?;
    let server = Server::new(&arguments.server, Some(Arc::new(terminal)))?;
    let result = unless_interrupted(use_tool(&server, arguments, given)).await;
    server.end().await;
    let result = ToolResult(result?);
    match arguments.server.json {
        true => show::line(result.0.to_raw().get())?,
        false => print(&result)?,
    }
    if result.is_error() {
        show::complain("the tool says that it failed");
        return Ok(EXIT_FAILED);
    }
    Ok(EXIT_ANSWERED)
}

async fn use_tool(
    server: &Server,
    arguments: &CallArguments,
    (mut given, loose): (RawObject, Vec<(String, String)>),
) -> Result<RawObject, Stopped> {
    // Only the tool's schema says whether `5` is text. A server that doesn't list its tools may have it all the same.
    if !loose.is_empty() {
        let tools = server.list::<ListTools>("tools", PAGES_MAX_DEFAULT).await.unwrap_or_default();
        let schema = schema_of(&tools, &arguments.tool);
        for (name, text) in loose {
            given.set_raw(&name, value(&text, &schema["properties"][&name]));
        }
    }
    server.ask_object::<CallTool>(CallTool::new(&arguments.tool, given).0).await
}

/// The arguments: those in JSON, and those that a schema has to be asked about.
fn given(arguments: &CallArguments) -> Result<(RawObject, Vec<(String, String)>), Stopped> {
    let usage = |why: &str| Stopped::Usage(why.to_owned());
    let whole = match &arguments.json_args {
        Some(json) => {
            serde_json::from_str(json).map_err(|e| usage(&format!("--json-args must be a JSON object: {e}")))?
        }
        None => RawObject::new(),
    };
    let pair = |given: &String| {
        let (name, value) = given.split_once('=').ok_or_else(|| usage("an argument is written --arg NAME=VALUE"))?;
        Ok((name.to_owned(), value.to_owned()))
    };
    Ok((whole, arguments.arguments.iter().map(pair).collect::<Result<_, Stopped>>()?))
}

fn schema_of(tools: &[Box<RawValue>], name: &str) -> Value {
    let mut tools = tools.iter().filter_map(|tool| RawObject::parse(tool).ok());
    tools
        .find(|tool| tool.text("name").as_deref() == Some(name))
        .and_then(|t| t.read("inputSchema"))
        .unwrap_or_default()
}

/// Text where the schema wants text and nothing else, else JSON where it is some, else text.
fn value(text: &str, schema: &Value) -> Box<RawValue> {
    let quoted = || to_raw_value(text).unwrap_or_default();
    match schema["type"].as_str() {
        Some("string") => quoted(),
        _ => RawValue::from_string(text.to_owned()).unwrap_or_else(|_| quoted()),
    }
}

/// What people read of it: texts, what the other blocks are, and the value where nothing else says it.
fn print(result: &ToolResult) -> Result<(), Stopped> {
    let blocks = result.content();
    for block in &blocks {
        show::line(&printable(&told(block)))?;
    }
    if let Some(value) = result.structured_content().filter(|_| blocks.is_empty()) {
        show::line(&printable(&format!("{value:#}")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Goal: an argument is what the tool wants. Method: the same words against schemas.
    #[test]
    fn arguments_fit_the_schema() {
        for (text, schema, json) in [
            ("5", json!({ "type": "string" }), "\"5\""),
            ("5", json!({ "type": "integer" }), "5"),
            ("[1,2]", json!({ "type": "array" }), "[1,2]"),
            ("plain words", json!({}), "\"plain words\""),
            ("true", json!({}), "true"),
        ] {
            assert_eq!(value(text, &schema).get(), json);
        }
    }
}
