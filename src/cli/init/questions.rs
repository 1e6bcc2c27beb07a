//! Questions of `callboard init` to the person at the terminal.

use std::net::SocketAddr;

use callboard_message::Elicitation;
use serde_json::{Value, json};

use super::plan::{
    AGENT_DEFAULT, EXAMPLE_SERVER, InitKind, MemberNames, UpstreamSource, parse_agent_id,
    parse_listen,
};
use crate::cli::mcp::terminal::read_typed_line;
use crate::cli::{CommandError, output};
use crate::form::fill_in;

/// Name of the only field of each form.
const ANSWER: &str = "answer";

/// Asks for the kind of the node.
///
/// # Errors
/// Fails if the person cancels the question, as the others do.
pub(super) async fn ask_kind() -> Result<InitKind, CommandError> {
    output::print_note(
        "Three questions. Enter takes the answer in brackets; Ctrl-C writes nothing.",
    );
    let choices: Vec<_> = InitKind::ALL
        .iter()
        .map(|kind| json!({ "const": kind.as_str(), "title": kind.title() }))
        .collect();
    let field = json!({
        "type": "string", "title": "Kind of node", "oneOf": choices, "default": InitKind::Gateway.as_str(),
    });
    let parse = |name: &str| {
        let mut kinds = InitKind::ALL.into_iter();
        let kind = kinds.find(|kind| kind.as_str() == name);
        kind.ok_or_else(|| "one of the choices".to_owned())
    };
    ask(&field, parse).await
}

/// Asks for the first MCP server of a gateway.
pub(super) async fn ask_server() -> Result<UpstreamSource, CommandError> {
    let title = "First MCP server: its command, its URL, or the example that comes with callboard";
    ask(&text_field(title, EXAMPLE_SERVER), UpstreamSource::parse).await
}

/// Asks for the id of the first agent.
pub(super) async fn ask_agent() -> Result<String, CommandError> {
    ask(
        &text_field("Id of the first agent", AGENT_DEFAULT),
        parse_agent_id,
    )
    .await
}

/// Asks for the ids of a mailroom's members.
pub(super) async fn ask_members() -> Result<MemberNames, CommandError> {
    let default = MemberNames::default().joined();
    let field = text_field("Ids of the members, with commas", &default);
    ask(&field, MemberNames::parse).await
}

/// Asks for the address of the first listener.
pub(super) async fn ask_listen(kind: InitKind) -> Result<SocketAddr, CommandError> {
    let default = kind.listen_default().to_string();
    ask(&text_field("Address to listen at", &default), parse_listen).await
}

fn text_field(title: &str, default: &str) -> Value {
    json!({ "type": "string", "title": title, "default": default })
}

/// Asks for a text until `parse` accepts it. `field` is the JSON Schema of the text.
async fn ask<T>(
    field: &Value,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<T, CommandError> {
    let form = Elicitation::form("", json!({ "properties": { ANSWER: field } }));
    loop {
        let line = async |prompt: String, _fields: usize| read_typed_line(&prompt).await;
        let filled = fill_in(&form, true, line).await.ok();
        let content = filled.and_then(|filled| filled.content()).ok_or_else(|| {
            CommandError::failed("the question was cancelled: nothing is written")
        })?;
        match parse(content[ANSWER].as_str().unwrap_or_default()) {
            Ok(answer) => return Ok(answer),
            Err(why) => output::print_note(format_args!("  {why}")),
        }
    }
}
