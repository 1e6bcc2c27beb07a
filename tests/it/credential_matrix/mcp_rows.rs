//! Rows of MCP: the methods of both eras, the routes, and the bare dialect.

use callboard::mcp::inbound;
use callboard::rpc::code;
use serde_json::{Value, json};

use super::operation::{MatrixRow, RequiredAccess};
use super::site::{Ids, capabilities, initialize_params};

/// Method that no table has.
const OTHER: &str = "test/other";

const UNKNOWN_METHOD: i64 = code::METHOD_NOT_FOUND;
const INVALID_PARAMS: i64 = code::INVALID_PARAMS;

/// Server of a row: the node's for all agents, that of its HMCP agent or its mailroom, or that of the agent that has tasks and asks.
#[derive(Clone, Copy)]
enum Server {
    All,
    Hmcp,
    Mail,
    Tasks,
}
use Server::{All, Hmcp, Mail, Tasks};

impl Server {
    fn access(self) -> RequiredAccess {
        match self {
            All | Mail | Tasks => RequiredAccess::Any,
            Hmcp => RequiredAccess::Scope(HMCP),
        }
    }

    /// Listener, path, and the object that is a session there.
    fn place(self) -> (&'static str, &'static str, &'static str) {
        match self {
            All => ("mcp", "/mcp", "{session}"),
            Hmcp => ("mcp", "/agents/patients/mcp", "{patients_session}"),
            Mail => ("mcp", "/agents/room/mcp", "{room_session}"),
            Tasks => ("tasks", "/mcp", "{tasks_session}"),
        }
    }
}

const SAMPLE: &str =
    r#"{"messages":[{"role":"user","content":{"type":"text","text":"Jane Doe"}}],"maxTokens":9}"#;
const WHO: &str = r#"{"name":"who","arguments":{}}"#;
const WORK_AS_TASK: &str = r#"{"name":"work","arguments":{},"task":{}}"#;
const ANSWER: &str =
    r#"{"name":"ask","arguments":{},"requestState":"{suspended_call}","inputResponses":{}}"#;
const WORK: &str = r#"{"name":"work","arguments":{}}"#;
const COMPLETE: &str =
    r#"{"ref":{"type":"ref/prompt","name":"x"},"argument":{"name":"a","value":""}}"#;
// Of the script.
const RESOURCE: &str = r#"{"uri":"x:y"}"#;
const PROMPT: &str = r#"{"name":"x"}"#;
const RESOURCE_CHANGES: &str = r#"{"notifications":{"resourceSubscriptions":["x:y"]}}"#;
const LETTER: &str = r#"{"uri":"callboard://messages/{mail}"}"#;
const MEMBERS: &str = r#"{"name":"get_agent_status","arguments":{}}"#;
const NEW_LETTER: &str =
    r#"{"name":"send_message","arguments":{"recipient_agent_id":"corp.bob","message":"hello"}}"#;
const LEGACY_TASK: &str = r#"{"taskId":"{legacy_task}"}"#;
const MODERN_TASK: &str = r#"{"taskId":"{modern_task}"}"#;
const NOTHING: &str = "{}";

/// Scope that the HMCP agent needs.
const HMCP: &str = "hmcp:read";

/// Method, server, params, and error code of each method in a session. (`initialize` opens one.)
const LEGACY: &[(&str, Server, &str, i64)] = &[
    ("ping", All, NOTHING, 0),
    ("logging/setLevel", All, r#"{"level":"info"}"#, 0),
    ("tools/list", All, NOTHING, 0),
    ("tools/list", Mail, NOTHING, 0),
    ("tools/list", Tasks, NOTHING, 0),
    ("tools/call", All, WHO, 0),
    ("tools/call", Mail, MEMBERS, 0),
    ("tools/call", Mail, NEW_LETTER, 0),
    ("tools/call", Tasks, WORK_AS_TASK, 0),
    ("resources/list", All, NOTHING, 0),
    ("resources/templates/list", All, NOTHING, 0),
    ("resources/read", All, RESOURCE, 0),
    ("resources/read", Mail, LETTER, 0),
    ("resources/subscribe", All, RESOURCE, 0),
    ("resources/unsubscribe", All, RESOURCE, 0),
    ("prompts/list", All, NOTHING, 0),
    ("prompts/get", All, PROMPT, 0),
    ("completion/complete", All, COMPLETE, 0),
    ("sampling/createMessage", Hmcp, SAMPLE, 0),
    ("tasks/get", Tasks, LEGACY_TASK, 0),
    ("tasks/result", Tasks, LEGACY_TASK, 0),
    ("tasks/list", Tasks, NOTHING, 0),
    // It has ended.
    ("tasks/cancel", Tasks, LEGACY_TASK, INVALID_PARAMS),
    // Methods of the other era.
    ("tasks/update", Tasks, LEGACY_TASK, UNKNOWN_METHOD),
    ("server/discover", All, NOTHING, UNKNOWN_METHOD),
    ("subscriptions/listen", All, NOTHING, UNKNOWN_METHOD),
    (OTHER, All, NOTHING, UNKNOWN_METHOD),
];

/// Method, server, params, and error code of each method of the stateless era.
const MODERN: &[(&str, Server, &str, i64)] = &[
    ("server/discover", All, NOTHING, 0),
    ("tools/list", All, NOTHING, 0),
    ("tools/list", Mail, NOTHING, 0),
    ("tools/list", Tasks, NOTHING, 0),
    ("tools/call", All, WHO, 0),
    ("tools/call", Mail, MEMBERS, 0),
    ("tools/call", Mail, NEW_LETTER, 0),
    ("tools/call", Tasks, WORK, 0),
    ("tools/call", Tasks, ANSWER, 0),
    ("resources/list", All, NOTHING, 0),
    ("resources/templates/list", All, NOTHING, 0),
    ("resources/read", All, RESOURCE, 0),
    ("resources/read", Mail, LETTER, 0),
    ("prompts/list", All, NOTHING, 0),
    ("prompts/get", All, PROMPT, 0),
    ("completion/complete", All, COMPLETE, 0),
    ("sampling/createMessage", Hmcp, SAMPLE, 0),
    (
        "subscriptions/listen",
        All,
        r#"{"notifications":{"toolsListChanged":true}}"#,
        0,
    ),
    ("subscriptions/listen", All, RESOURCE_CHANGES, 0),
    ("tasks/get", Tasks, MODERN_TASK, 0),
    (
        "tasks/update",
        Tasks,
        r#"{"taskId":"{modern_task}","inputResponses":{}}"#,
        0,
    ),
    ("tasks/cancel", Tasks, MODERN_TASK, 0),
    // Methods of the other era.
    ("tasks/result", Tasks, MODERN_TASK, UNKNOWN_METHOD),
    ("tasks/list", Tasks, NOTHING, UNKNOWN_METHOD),
    ("initialize", All, NOTHING, UNKNOWN_METHOD),
    ("ping", All, NOTHING, UNKNOWN_METHOD),
    (
        "logging/setLevel",
        All,
        r#"{"level":"info"}"#,
        UNKNOWN_METHOD,
    ),
    ("resources/subscribe", All, RESOURCE, UNKNOWN_METHOD),
    ("resources/unsubscribe", All, RESOURCE, UNKNOWN_METHOD),
    (OTHER, All, NOTHING, UNKNOWN_METHOD),
];

/// Names of the operations in the product's tables.
pub fn names() -> impl Iterator<Item = String> {
    let methods = inbound::method_names().chain([OTHER]);
    let methods =
        methods.flat_map(|method| [format!("legacy {method}"), format!("modern {method}")]);
    let routes = inbound::routes().map(|(method, path)| format!("mcp {method} {path}"));
    let bare = format!("bare POST {}", inbound::PATH_DEFAULT);
    methods.chain(routes).chain([bare])
}

/// The rows, for listeners with these URLs.
pub fn rows(bases: &Ids) -> Vec<MatrixRow> {
    let mut rows = vec![hello(bases)];
    rows.extend(LEGACY.iter().map(|row| legacy(bases, *row)));
    rows.extend(MODERN.iter().map(|row| modern(bases, *row)));
    rows.extend(routes(bases, "", ""));
    rows.extend(routes(bases, "/agents/one", "named_"));
    let call = r#"{"jsonrpc":"2.0","id":{n},"method":"tools/call","params":{"name":"list_patients","arguments":{}}}"#;
    let bare = format!("{}/mcp", bases["bare"]);
    rows.push(
        MatrixRow::new("bare POST /mcp", "POST", bare)
            .body(call)
            .access(RequiredAccess::Local),
    );
    rows
}

fn request(method: &str, params: &Value) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{{n}},"method":"{method}","params":{params}}}"#)
}

fn hello(bases: &Ids) -> MatrixRow {
    let url = format!("{}/mcp", bases["mcp"]);
    MatrixRow::new("legacy initialize", "POST", url)
        .body(request("initialize", &initialize_params()))
}

fn legacy(bases: &Ids, (method, server, params, code): (&str, Server, &str, i64)) -> MatrixRow {
    let (base, path, session) = server.place();
    let params: Value = serde_json::from_str(params).unwrap();
    let url = format!("{}{path}", bases[base]);
    MatrixRow::new(format!("legacy {method}"), "POST", url)
        .header("mcp-session-id", session)
        .header("mcp-protocol-version", "2025-11-25")
        .body(request(method, &params))
        .access(server.access())
        .right(200, code)
}

fn modern(bases: &Ids, (method, server, params, code): (&str, Server, &str, i64)) -> MatrixRow {
    let (base, path, _) = server.place();
    let mut params: Value = serde_json::from_str(params).unwrap();
    let capabilities = match server {
        Tasks => capabilities(),
        All | Hmcp | Mail => json!({}),
    };
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    let url = format!("{}{path}", bases[base]);
    let status = if code == UNKNOWN_METHOD { 404 } else { 200 };
    let row = MatrixRow::new(format!("modern {method}"), "POST", url)
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", method)
        .body(request(method, &params))
        .access(server.access())
        .right(status, code);
    let named = ["name", "uri", "taskId"]
        .iter()
        .find_map(|name| params[name].as_str());
    named
        .into_iter()
        .fold(row, |row, name| row.header("mcp-name", name))
}

/// The routes of a server in a folder, whose objects' names begin with `object_prefix`.
fn routes(bases: &Ids, folder: &str, object_prefix: &str) -> Vec<MatrixRow> {
    let pattern = match folder {
        "" => "",
        _ => "/agents/{name}",
    };
    let row = |name: &str, method: &'static str, file: &str| {
        let url = format!("{}{folder}/{file}", bases["mcp"]);
        let (file, _) = file.split_once('?').unwrap_or((file, ""));
        MatrixRow::new(format!("mcp {name} {pattern}/{file}"), method, url)
    };
    let session = |name: &str| format!("{{{object_prefix}{name}}}");
    let ping = request("ping", &json!({}));
    vec![
        row("POST", "POST", "mcp")
            .header("mcp-session-id", session("session"))
            .body(&*ping),
        row("GET (WebSocket)", "GET", "mcp")
            .header("sec-websocket-protocol", "mcp")
            .upgraded(),
        row("GET", "GET", "mcp").header("mcp-session-id", session("session")),
        row("DELETE", "DELETE", "mcp")
            .header("mcp-session-id", session("ended"))
            .right(204, 0),
        row("GET", "GET", "sse"),
        row(
            "POST",
            "POST",
            &format!("messages?session={}", session("sse")),
        )
        .body(&*ping)
        .right(202, 0),
    ]
}
