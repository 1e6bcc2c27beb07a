//! Rows of agent mail.

use callboard::mail::inbound;

use super::operation::{Access, Operation};
use super::site::Ids;

const LETTER: &str = r#"{"recipient_agent_id":"corp.bob","message":"hello"}"#;
const BROADCAST: &str = r#"{"message":"hello"}"#;
const NOTHING: &str = "{}";
const EVENTS: &str = "/api/events";
const ADMIN: Access = Access::Scope("mail.admin");

/// HTTP method, path, query, body and access of each route.
const ROUTES: &[(&str, &str, &str, &str, Access)] = &[
    ("POST", "/api/broadcast_message", "", BROADCAST, Access::Any),
    ("POST", "/broadcast_message", "", BROADCAST, Access::Any),
    ("POST", "/api/send_message", "", LETTER, Access::Any),
    ("POST", "/send_message", "", LETTER, Access::Any),
    ("GET", "/api/agents", "", "", Access::Any),
    ("GET", "/api/agents/{agent_id}", "", "", Access::Any),
    ("POST", "/api/agents/{agent_id}/end", "", NOTHING, ADMIN),
    ("POST", "/api/agents/{agent_id}/back", "", NOTHING, ADMIN),
    ("GET", "/api/messages", "", "", Access::Any),
    ("GET", "/api/messages/{message_id}", "", "", Access::Any),
    (
        "POST",
        "/api/messages/{message_id}/read",
        "",
        NOTHING,
        Access::Any,
    ),
    (
        "POST",
        "/api/messages/{message_id}/reply",
        "",
        BROADCAST,
        Access::Any,
    ),
    ("GET", "/api/agent_logs", "", "", Access::Any),
    // The log of another.
    (
        "GET",
        "/api/agent_logs",
        "?agent_id=corp.erin",
        "",
        Access::Scope("mail.watch"),
    ),
    ("GET", EVENTS, "", "", Access::Any),
    ("GET", "/ws", "", "", Access::Any),
    ("GET", "/api/openapi.json", "", "", Access::Public),
];

/// Names of the operations in the product's table.
pub fn names() -> impl Iterator<Item = String> {
    inbound::routes().map(|(method, path)| format!("mail {method} {path}"))
}

/// The rows, for listeners with these URLs.
pub fn rows(bases: &Ids) -> Vec<Operation> {
    let row = |(method, path, query, body, access): &(&'static str, &str, &str, &str, Access)| {
        let place = path
            .replace("{agent_id}", "corp.erin")
            .replace("{message_id}", "{mail}");
        let url = format!("{}{place}{query}", bases["mail"]);
        let row = Operation::new(format!("mail {method} {path}"), method, url)
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
