//! `callboard mcp list`.

use callboard_mcp::outbound::PAGES_MAX_DEFAULT;
use callboard_message::RawObject;
use callboard_message::surface::{Describe, ListPrompts, ListResourceTemplates, ListResources, ListTools};
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::{EXIT_ANSWERED, show};
use super::server::Server;
use super::words::{first_line, printable};
use super::{ListArguments, Stopped, unless_interrupted};

pub(super) async fn run(arguments: &ListArguments) -> Result<u8, Stopped> {
    let server = Server::new(&arguments.server, None)?;
    let found = unless_interrupted(look(&server)).await;
    server.end().await;
    let found = found?;
    match arguments.server.json {
        true => show::line(found.to_raw().get())?,
        false => print(&found)?,
    }
    Ok(EXIT_ANSWERED)
}

/// Everything that the server says it has: `about`, and its lists.
async fn look(server: &Server) -> Result<RawObject, Stopped> {
    let about = server.ask_object::<Describe>(RawObject::new()).await?;
    let has = |name: &str| about.object("capabilities").is_some_and(|can| can.has(name));
    let (tools, resources, prompts) = (has("tools"), has("resources"), has("prompts"));
    let mut found = RawObject::new().with("about", about);
    if tools {
        found.set("tools", server.list::<ListTools>("tools", PAGES_MAX_DEFAULT).await?);
    }
    if resources {
        found.set("resources", server.list::<ListResources>("resources", PAGES_MAX_DEFAULT).await?);
        // Older servers have resources but know nothing of templates.
        let templates = server.list::<ListResourceTemplates>("resourceTemplates", PAGES_MAX_DEFAULT).await;
        found.set("resourceTemplates", templates.unwrap_or_default());
    }
    if prompts {
        found.set("prompts", server.list::<ListPrompts>("prompts", PAGES_MAX_DEFAULT).await?);
    }
    Ok(found)
}

fn print(found: &RawObject) -> Result<(), Stopped> {
    let about = found.object("about").unwrap_or_default();
    let info = about.object("serverInfo").unwrap_or_default();
    let text = |name: &str| info.text(name).map(|text| first_line(&text)).unwrap_or_default();
    let revision = about.text("protocolVersion").unwrap_or_default();
    show::heading(&format!("{} {}  (MCP {revision})", text("name"), text("version")))?;
    if let Some(instructions) = about.text("instructions") {
        for line in printable(&instructions).lines() {
            show::line(&format!("  {line}"))?;
        }
    }
    section(found, "tools", "Tools", "name", |tool| fields_of_schema(&tool.read("inputSchema").unwrap_or_default()))?;
    section(found, "resources", "Resources", "uri", |_| Vec::new())?;
    section(found, "resourceTemplates", "Families of resources", "uriTemplate", |_| Vec::new())?;
    section(found, "prompts", "Prompts", "name", fields_of_prompt)?;
    Ok(())
}

fn section(
    found: &RawObject,
    list: &str,
    title: &str,
    key: &str,
    fields: impl Fn(&RawObject) -> Vec<String>,
) -> Result<(), Stopped> {
    let items: Vec<Box<RawValue>> = found.read(list).unwrap_or_default();
    if items.is_empty() {
        return Ok(());
    }
    show::heading(&format!("\n{title}"))?;
    for item in items.iter().filter_map(|item| RawObject::parse(item).ok()) {
        let described = item.text("description").or_else(|| item.text("title")).or_else(|| item.text("name"));
        let described = described.map(|text| first_line(&text)).filter(|text| Some(text) != item.text(key).as_ref());
        let name = printable(&item.text(key).unwrap_or_default());
        show::line(&format!("  {name}{}", described.map(|text| format!("  –  {text}")).unwrap_or_default()))?;
        for field in fields(&item) {
            show::line(&format!("      {field}"))?;
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
            (!is_required(name), format!("{} ({}{optional}){told}", printable(name), kind(field)))
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
            .map(|c| c.as_str().map_or_else(|| c.to_string(), printable))
            .collect::<Vec<_>>()
            .join("|");
    }
    match &field["type"] {
        Value::String(kind) => printable(kind),
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).map(printable).collect::<Vec<_>>().join("|"),
        _ => "any".into(),
    }
}

fn fields_of_prompt(prompt: &RawObject) -> Vec<String> {
    let arguments: Vec<RawObject> = prompt.read("arguments").unwrap_or_default();
    let line = |argument: &RawObject| {
        let optional = if argument.read("required") == Some(true) { "" } else { " (optional)" };
        let told = argument.text("description").map(|d| format!("  {}", first_line(&d))).unwrap_or_default();
        format!("{}{optional}{told}", printable(&argument.text("name").unwrap_or_default()))
    };
    arguments.iter().map(line).collect()
}
