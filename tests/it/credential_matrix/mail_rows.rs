//! Rows of agent mail.

use callboard::mail::inbound;

use super::operation::{MatrixRow, RequiredAccess};
use super::site::Ids;

const LETTER: &str = r#"{"recipient_agent_id":"corp.bob","message":"hello"}"#;
const BROADCAST: &str = r#"{"message":"hello"}"#;
const NOTHING: &str = "{}";
const EVENTS: &str = "/api/events";
const ADMIN: RequiredAccess = RequiredAccess::Scope("mail.admin");

/// HTTP method, path, query, body and access of each route.
const ROUTES: &[(&str, &str, &str, &str, RequiredAccess)] = &[
    (
        "POST",
        "/api/broadcast_message",
        "",
        BROADCAST,
        RequiredAccess::Any,
    ),
    (
        "POST",
        "/broadcast_message",
        "",
        BROADCAST,
        RequiredAccess::Any,
    ),
    ("POST", "/api/send_message", "", LETTER, RequiredAccess::Any),
    ("POST", "/send_message", "", LETTER, RequiredAccess::Any),
    ("GET", "/api/agents", "", "", RequiredAccess::Any),
    ("GET", "/api/agents/{agent_id}", "", "", RequiredAccess::Any),
    ("POST", "/api/agents/{agent_id}/end", "", NOTHING, ADMIN),
    ("POST", "/api/agents/{agent_id}/back", "", NOTHING, ADMIN),
    ("GET", "/api/messages", "", "", RequiredAccess::Any),
    (
        "GET",
        "/api/messages/{message_id}",
        "",
        "",
        RequiredAccess::Any,
    ),
    (
        "POST",
        "/api/messages/{message_id}/read",
        "",
        NOTHING,
        RequiredAccess::Any,
    ),
    (
        "POST",
        "/api/messages/{message_id}/reply",
        "",
        BROADCAST,
        RequiredAccess::Any,
    ),
    ("GET", "/api/agent_logs", "", "", RequiredAccess::Any),
    // The log of another.
    (
        "GET",
        "/api/agent_logs",
        "?agent_id=corp.erin",
        "",
        RequiredAccess::Scope("mail.watch"),
    ),
    ("GET", EVENTS, "", "", RequiredAccess::Any),
    ("GET", "/ws", "", "", RequiredAccess::Any),
    ("GET", "/api/openapi.json", "", "", RequiredAccess::Public),
];

/// Names of the operations in the product's table.
pub fn names() -> impl Iterator<Item = String> {
    inbound::routes().map(|(method, path)| format!("mail {method} {path}"))
}

/// The rows, for listeners with these URLs.
pub fn rows(bases: &Ids) -> Vec<MatrixRow> {
    let row =
        |(method, path, query, body, access): &(&'static str, &str, &str, &str, RequiredAccess)| {
            let place = path
                .replace("{agent_id}", "corp.erin")
                .replace("{message_id}", "{mail}");
            let url = format!("{}{place}{query}", bases["mail"]);
            let row = MatrixRow::new(format!("mail {method} {path}"), method, url)
                .header("x-agent-id", "{me}")
                .body(*body)
                .access(*access);
            match [EVENTS, "/ws"].contains(path) {
                true => row.upgraded(),
                false => row,
            }
        };
    ROUTES.iter().map(row).collect()
}
