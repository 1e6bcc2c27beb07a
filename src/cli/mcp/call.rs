//! `callboard mcp call`.

use std::fmt::Display;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;

use callboard_message::surface::{CallTool, ListTools};
use callboard_message::{RawObject, Root, ToolResult};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use url::Url;

use super::super::EXIT_ANSWERED;
use super::server::{Server, connect};
use super::terminal::Terminal;
use super::words::show_result;
use super::{CallArguments, CommandError, Outcome, unless_interrupted};

pub(super) async fn run(arguments: &CallArguments) -> Outcome {
    let given = given(arguments)?;
    let asks = arguments.ask || std::io::stdin().is_terminal();
    let terminal = Terminal::new(asks, true, roots(&arguments.roots)?);
    let server = connect(&arguments.server, Some(Arc::new(terminal)))?;
    let result = unless_interrupted(use_tool(&server, arguments, given)).await;
    server.end().await;
    let result = ToolResult(result?);
    show_result(&result, arguments.server.json)?;
    if result.is_error() {
        return Err(CommandError::failed("the tool says that it failed"));
    }
    Ok(EXIT_ANSWERED)
}

/// Folders that are lent to a server.
fn roots(folders: &[PathBuf]) -> Result<Vec<Root>, CommandError> {
    let root = |path: &PathBuf| {
        let wrong = |why: &dyn Display| CommandError::usage(format_args!("{}: {why}", path.display()));
        let whole = path.canonicalize().map_err(|error| wrong(&error))?;
        let uri = Url::from_file_path(&whole).map_err(|()| wrong(&"it can't be in a URL"))?.to_string();
        Ok(Root { uri, name: whole.file_name().map(|name| name.to_string_lossy().into_owned()) })
    };
    folders.iter().map(root).collect()
}

async fn use_tool(
    server: &Server,
    arguments: &CallArguments,
    (mut given, loose): (RawObject, Vec<(&str, &str)>),
) -> Result<RawObject, CommandError> {
    // Only the tool's schema says whether `5` is text. A server that doesn't list its tools may have it all the same.
    if !loose.is_empty() {
        let tools = server.list::<ListTools>("tools").await.unwrap_or_default();
        let schema = schema_of(&tools, &arguments.tool);
        for (name, text) in loose {
            given.set_raw(name, value(text, &schema["properties"][name]));
        }
    }
    server.ask::<CallTool>(CallTool::new(&arguments.tool, given).0).await
}

/// The arguments: those in JSON, and those that a schema has to be asked about.
fn given(arguments: &CallArguments) -> Result<(RawObject, Vec<(&str, &str)>), CommandError> {
    let whole = arguments.json_args.as_deref().map(serde_json::from_str).transpose();
    let whole = whole.map_err(|e| CommandError::usage(format_args!("--json-args must be a JSON object: {e}")))?;
    let loose = arguments.arguments.iter().map(|given| {
        given.split_once('=').ok_or_else(|| CommandError::usage("an argument is written --arg NAME=VALUE"))
    });
    Ok((whole.unwrap_or_default(), loose.collect::<Result<_, _>>()?))
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
