//! `callboard mcp list`.

use std::io;

use callboard_message::RawObject;
use callboard_message::surface::{Describe, ListPrompts, ListResourceTemplates, ListResources, ListTools};
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::EXIT_ANSWERED;
use super::server::{Server, connect};
use super::words::first_line;
use super::{CommandError, ListArguments, Outcome, show, unless_interrupted};

pub(super) async fn run(arguments: &ListArguments) -> Outcome {
    let server = connect(&arguments.server, None)?;
    let found = unless_interrupted(look(&server)).await;
    server.end().await;
    let found = found?;
    match arguments.server.json {
        true => show::json(&found)?,
        false => print(&found)?,
    }
    Ok(EXIT_ANSWERED)
}

/// Everything that the server says it has: `about`, and its lists.
async fn look(server: &Server) -> Result<RawObject, CommandError> {
    let about = server.ask::<Describe>(RawObject::new()).await?;
    let has = |name: &str| about.object("capabilities").is_some_and(|can| can.has(name));
    let (tools, resources, prompts) = (has("tools"), has("resources"), has("prompts"));
    let mut found = RawObject::new().with("about", about);
    if tools {
        found.set("tools", server.list::<ListTools>("tools").await?);
    }
    if resources {
        found.set("resources", server.list::<ListResources>("resources").await?);
        // Older servers have resources but know nothing of templates.
        let templates = server.list::<ListResourceTemplates>("resourceTemplates").await;
        found.set("resourceTemplates", templates.unwrap_or_default());
    }
    if prompts {
        found.set("prompts", server.list::<ListPrompts>("prompts").await?);
    }
    Ok(found)
}

fn print(found: &RawObject) -> io::Result<()> {
    let about = found.object("about").unwrap_or_default();
    let info = about.object("serverInfo").unwrap_or_default();
    let text = |name: &str| info.text(name).map(|text| first_line(&text).to_owned()).unwrap_or_default();
    let revision = about.text("protocolVersion").unwrap_or_default();
    show::heading(format_args!("{} {}  (MCP {revision})", text("name"), text("version")))?;
    if let Some(instructions) = about.text("instructions") {
        for line in instructions.lines() {
            show::line(format_args!("  {line}"))?;
        }
    }
    section(found, "tools", "Tools", "name", |tool| fields_of_schema(&tool.read("inputSchema").unwrap_or_default()))?;
    section(found, "resources", "Resources", "uri", |_| Vec::new())?;
    section(found, "resourceTemplates", "Families of resources", "uriTemplate", |_| Vec::new())?;
    section(found, "prompts", "Prompts", "name", fields_of_prompt)
}

fn section(
    found: &RawObject,
    list: &str,
    title: &str,
    key: &str,
    fields: impl Fn(&RawObject) -> Vec<String>,
) -> io::Result<()> {
    let items: Vec<Box<RawValue>> = found.read(list).unwrap_or_default();
    if items.is_empty() {
        return Ok(());
    }
    show::heading(format_args!("\n{title}"))?;
    for item in items.iter().filter_map(|item| RawObject::parse(item).ok()) {
        let described = item.text("description").or_else(|| item.text("title")).or_else(|| item.text("name"));
        let described =
            described.map(|text| first_line(&text).to_owned()).filter(|text| Some(text) != item.text(key).as_ref());
        let name = item.text(key).unwrap_or_default();
        show::line(format_args!("  {name}{}", described.map(|text| format!("  –  {text}")).unwrap_or_default()))?;
        for field in fields(&item) {
            show::line(format_args!("      {field}"))?;
        }
    }
    Ok(())
}

fn fields_of_schema(schema: &Value) -> Vec<String> {
    let is_required = |name: &str| schema["required"].as_array().is_some_and(|names| names.iter().any(|n| n == name));
    let fields = schema["properties"].as_object().into_iter().flatten();
    let mut lines: Vec<(bool, String)> = fields
        .map(|(name, field)| {
            let optional = if is_required(name) { "" } else { ", optional" };
            let told = field["description"].as_str().map(|d| format!("  {}", first_line(d))).unwrap_or_default();
            (!is_required(name), format!("{} ({}{optional}){told}", name, kind(field)))
        })
        .collect();
    // What must be given stands first.
    lines.sort_by_key(|(is_optional, _)| *is_optional);
    lines.into_iter().map(|(_, line)| line).collect()
}

/// What a field takes, in a word or by its choices.
fn kind(field: &Value) -> String {
    if let Some(choices) = field["enum"].as_array() {
        return choices
            .iter()
            .map(|c| c.as_str().map_or_else(|| c.to_string(), str::to_owned))
            .collect::<Vec<_>>()
            .join("|");
    }
    match &field["type"] {
        Value::String(kind) => kind.clone(),
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("|"),
        _ => "any".into(),
    }
}

fn fields_of_prompt(prompt: &RawObject) -> Vec<String> {
    let arguments: Vec<RawObject> = prompt.read("arguments").unwrap_or_default();
    let line = |argument: &RawObject| {
        let optional = if argument.read("required") == Some(true) { "" } else { " (optional)" };
        let told = argument.text("description").map(|d| format!("  {}", first_line(&d))).unwrap_or_default();
        format!("{}{optional}{told}", argument.text("name").unwrap_or_default())
    };
    arguments.iter().map(line).collect()
}
