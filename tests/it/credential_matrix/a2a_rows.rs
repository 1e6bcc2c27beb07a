//! Rows of A2A: JSON-RPC of three versions, HTTP+JSON of two, addresses, and public documents.

use callboard::a2a::{Dialect, Operation as A2aOperation, inbound};
use callboard::rpc::RESOURCE_METADATA_PATH;
use serde_json::Value;

use super::operation::{MatrixRow, RequiredAccess};
use super::site::Ids;

const NOTHING: &str = "{}";
const SEND: &str = r#"{"message":{"messageId":"m-{n}","role":"ROLE_USER","parts":[{"text":"{}"}],"metadata":{"skill":"who"}}}"#;
const FOLLOW_UP: &str = r#"{"message":{"messageId":"m-{n}","role":"ROLE_USER","parts":[{"text":"{}"}],"taskId":"{task}"}}"#;
const SEND_03: &str = r#"{"message":{"kind":"message","messageId":"m-{n}","role":"user","parts":[{"kind":"text","text":"{}"}],"metadata":{"skill":"who"}}}"#;
const FOLLOW_UP_03: &str = r#"{"message":{"kind":"message","messageId":"m-{n}","role":"user","parts":[{"kind":"text","text":"{}"}],"taskId":"{task}"}}"#;
const SEND_REST_03: &str = r#"{"request":{"messageId":"m-{n}","role":"ROLE_USER","content":[{"text":"{}"}],"metadata":{"skill":"who"}}}"#;
const FOLLOW_UP_REST_03: &str = r#"{"request":{"messageId":"m-{n}","role":"ROLE_USER","content":[{"text":"{}"}],"taskId":"{task}"}}"#;
// An id in use is another's or one's own task; a new one begins a task.
const SEND_01: &str = r#"{"id":"t-{n}","message":{"role":"user","parts":[{"type":"text","text":"{}"}],"metadata":{"skill":"who"}}}"#;
const TASK: &str = r#"{"id":"{task}"}"#;
const TASK_OF_CONFIGS: &str = r#"{"taskId":"{task}"}"#;
const CONFIG: &str = r#"{"taskId":"{task}","id":"c"}"#;
const CONFIG_03: &str = r#"{"id":"{task}","pushNotificationConfigId":"c"}"#;
const NEW_CONFIG: &str = r#"{"taskId":"{task}","id":"c","url":"http://127.0.0.1:9/hook"}"#;
const NEW_CONFIG_03: &str =
    r#"{"taskId":"{task}","pushNotificationConfig":{"id":"c","url":"http://127.0.0.1:9/hook"}}"#;
const NEW_CONFIG_REST_03: &str = r#"{"parent":"tasks/{task}","configId":"c","config":{"pushNotificationConfig":{"id":"c","url":"http://127.0.0.1:9/hook"}}}"#;
const NEW_CONFIG_01: &str =
    r#"{"id":"{task}","pushNotificationConfig":{"url":"http://127.0.0.1:9/hook"}}"#;

/// Error codes about a task that has ended.
const NOT_CANCELABLE: i64 = -32_002;
const UNSUPPORTED: i64 = -32_004;

/// Method, params and error code over JSON-RPC.
type RpcRow = (&'static str, &'static str, i64);
/// HTTP method, path, body and status over HTTP+JSON.
type RestRow = (&'static str, &'static str, &'static str, u16);

/// Methods over JSON-RPC, by version. The task has ended.
const RPC: &[(Dialect, &[RpcRow])] = &[
    (
        Dialect::V10,
        &[
            ("SendMessage", SEND, 0),
            ("SendMessage", FOLLOW_UP, UNSUPPORTED),
            ("SendStreamingMessage", SEND, 0),
            ("SendStreamingMessage", FOLLOW_UP, UNSUPPORTED),
            ("GetTask", TASK, 0),
            ("ListTasks", NOTHING, 0),
            ("CancelTask", TASK, NOT_CANCELABLE),
            ("SubscribeToTask", TASK, UNSUPPORTED),
            ("CreateTaskPushNotificationConfig", NEW_CONFIG, 0),
            ("GetTaskPushNotificationConfig", CONFIG, 0),
            ("ListTaskPushNotificationConfigs", TASK_OF_CONFIGS, 0),
            ("DeleteTaskPushNotificationConfig", CONFIG, 0),
            ("GetExtendedAgentCard", NOTHING, 0),
        ],
    ),
    (
        Dialect::V03,
        &[
            ("message/send", SEND_03, 0),
            ("message/send", FOLLOW_UP_03, UNSUPPORTED),
            ("message/stream", SEND_03, 0),
            ("message/stream", FOLLOW_UP_03, UNSUPPORTED),
            ("tasks/get", TASK, 0),
            ("tasks/cancel", TASK, NOT_CANCELABLE),
            ("tasks/resubscribe", TASK, UNSUPPORTED),
            ("tasks/pushNotificationConfig/set", NEW_CONFIG_03, 0),
            ("tasks/pushNotificationConfig/get", CONFIG_03, 0),
            ("tasks/pushNotificationConfig/list", TASK, 0),
            ("tasks/pushNotificationConfig/delete", CONFIG_03, 0),
            ("agent/getAuthenticatedExtendedCard", NOTHING, 0),
        ],
    ),
    (
        Dialect::V01,
        &[
            ("tasks/send", SEND_01, 0),
            ("tasks/sendSubscribe", SEND_01, 0),
            ("tasks/get", TASK, 0),
            ("tasks/cancel", TASK, NOT_CANCELABLE),
            ("tasks/resubscribe", TASK, UNSUPPORTED),
            ("tasks/pushNotification/set", NEW_CONFIG_01, 0),
            ("tasks/pushNotification/get", TASK, 0),
        ],
    ),
];

/// Paths over HTTP+JSON, by version. The task has ended.
const REST: &[(Dialect, &[RestRow])] = &[
    (
        Dialect::V10,
        &[
            ("POST", "message:send", SEND, 200),
            ("POST", "message:send", FOLLOW_UP, 400),
            ("POST", "message:stream", SEND, 200),
            ("POST", "message:stream", FOLLOW_UP, 400),
            ("GET", "tasks", "", 200),
            ("GET", "tasks/{task}", "", 200),
            ("POST", "tasks/{task}:cancel", "", 400),
            ("GET", "tasks/{task}:subscribe", "", 400),
            ("POST", "tasks/{task}:subscribe", "", 400),
            (
                "POST",
                "tasks/{task}/pushNotificationConfigs",
                NEW_CONFIG,
                200,
            ),
            ("GET", "tasks/{task}/pushNotificationConfigs", "", 200),
            (
                "GET",
                "tasks/{task}/pushNotificationConfigs/{config}",
                "",
                200,
            ),
            (
                "DELETE",
                "tasks/{task}/pushNotificationConfigs/{config}",
                "",
                200,
            ),
            ("GET", "extendedAgentCard", "", 200),
        ],
    ),
    (
        Dialect::V03Rest,
        &[
            ("POST", "message:send", SEND_REST_03, 200),
            ("POST", "message:send", FOLLOW_UP_REST_03, 400),
            ("POST", "message:stream", SEND_REST_03, 200),
            ("POST", "message:stream", FOLLOW_UP_REST_03, 400),
            ("GET", "tasks", "", 200),
            ("GET", "tasks/{task}", "", 200),
            ("POST", "tasks/{task}:cancel", "", 400),
            ("GET", "tasks/{task}:subscribe", "", 400),
            ("POST", "tasks/{task}:subscribe", "", 400),
            (
                "POST",
                "tasks/{task}/pushNotificationConfigs",
                NEW_CONFIG_REST_03,
                200,
            ),
            (
                "POST",
                "task/{task}/pushNotificationConfigs",
                NEW_CONFIG_REST_03,
                200,
            ),
            ("GET", "tasks/{task}/pushNotificationConfigs", "", 200),
            ("GET", "task/{task}/pushNotificationConfigs", "", 200),
            (
                "GET",
                "tasks/{task}/pushNotificationConfigs/{config}",
                "",
                200,
            ),
            (
                "DELETE",
                "tasks/{task}/pushNotificationConfigs/{config}",
                "",
                200,
            ),
            ("GET", "card", "", 200),
        ],
    ),
];

/// Ways to an agent: folder of its address, and its tenant at the address of all. Only 1.0 has tenants.
const WAYS: [(&str, &str); 3] = [("", ""), ("", "one"), ("/agents/one", "")];

/// Requests at an address: JSON-RPC, HTTP+JSON, or a public document.
#[derive(Clone, Copy)]
enum Address {
    Rpc,
    Rest,
    Document,
}

/// Path patterns of a listener, and a path of each.
const ADDRESSES: &[(&str, &str, Address)] = &[
    ("/a2a", "/a2a", Address::Rpc),
    ("/a2a/{tail:.*}", "/a2a/tasks", Address::Rest),
    ("/v1/{tail:.*}", "/v1/tasks", Address::Rest),
    (
        "/.well-known/{file}",
        "/.well-known/agent-card.json",
        Address::Document,
    ),
    ("/agents/{name}/a2a", "/agents/one/a2a", Address::Rpc),
    (
        "/agents/{name}/a2a/{tail:.*}",
        "/agents/one/a2a/tasks",
        Address::Rest,
    ),
    (
        "/agents/{name}/.well-known/{file}",
        "/agents/one/.well-known/agent-card.json",
        Address::Document,
    ),
    ("/", "/", Address::Rpc),
    ("/agents/{name}", "/agents/one", Address::Rpc),
    ("/agents/{name}/", "/agents/one/", Address::Rpc),
];

/// Well-known documents, and their status at the root and for a named agent.
const DOCUMENTS: &[(&str, u16, u16)] = &[
    ("agent-card.json", 200, 200),
    ("agent.json", 200, 200),
    ("jwks.json", 200, 200),
    ("ai-catalog.json", 200, 404),
];

/// Names of the operations in the product's tables.
pub fn names() -> impl Iterator<Item = String> {
    let versions = [Dialect::V10, Dialect::V03, Dialect::V01];
    let rpc = versions.into_iter().flat_map(|dialect| {
        let methods = A2aOperation::ALL.into_iter();
        let methods = methods.filter_map(move |operation| dialect.rpc_method(operation));
        methods.map(move |method| rpc_name(dialect, method))
    });
    let rest =
        inbound::rest_routes().map(|(dialect, method, path)| rest_name(dialect, method, path));
    let addresses = inbound::resource_paths().map(|path| format!("a2a at {path}"));
    let documents = inbound::document_names().map(|name| format!("a2a document {name}"));
    rpc.chain(rest).chain(addresses).chain(documents)
}

fn rpc_name(dialect: Dialect, method: &str) -> String {
    format!("a2a {} {method}", dialect.version())
}

fn rest_name(dialect: Dialect, method: &str, path: &str) -> String {
    format!("a2a {} {method} {path}", dialect.version())
}

/// The rows, for listeners with these URLs.
pub fn rows(bases: &Ids) -> Vec<MatrixRow> {
    let base = &bases["a2a"];
    let mut rows = Vec::new();
    for (folder, tenant) in WAYS {
        let has = |dialect: Dialect| tenant.is_empty() || dialect == Dialect::V10;
        for (dialect, methods) in RPC.iter().filter(|(dialect, _)| has(*dialect)) {
            for (method, params, code) in *methods {
                let params = with_tenant(params, tenant);
                let row = rpc(base, &format!("{folder}/a2a"), *dialect, method, &params);
                rows.push(row.right(200, *code));
            }
        }
        for (dialect, routes) in REST.iter().filter(|(dialect, _)| has(*dialect)) {
            let root = rest_root(*dialect, folder, tenant);
            for (method, path, body, status) in *routes {
                let url = format!("{base}{root}/{}", path.replace("{config}", "c"));
                let row = MatrixRow::new(rest_name(*dialect, method, path), method, url);
                rows.push(versioned(row, *dialect).body(*body).right(*status, 0));
            }
        }
    }
    for (pattern, path, address) in ADDRESSES {
        let row = match address {
            Address::Rpc => rpc(base, path, Dialect::V10, "SendMessage", SEND),
            Address::Rest => MatrixRow::new("", "GET", format!("{base}{path}")),
            Address::Document => document(base, path),
        };
        rows.push(row.named(format!("a2a at {pattern}")));
    }
    let by_key = rpc(base, "/a2a", Dialect::V10, "SendMessage", SEND).by_api_key();
    rows.push(by_key.named(format!("a2a at {}", inbound::A2A_PATH)));
    for (name, at_root, named) in DOCUMENTS {
        for (folder, status) in [("", at_root), ("/agents/one", named)] {
            let row = document(base, &format!("{folder}/.well-known/{name}"));
            let row = row.named(format!("a2a document {name}"));
            rows.push(row.right(*status, 0));
        }
    }
    rows
}

/// The rows of public documents and inboxes that no protocol's table has.
pub fn public_rows(bases: &Ids) -> Vec<MatrixRow> {
    let mut rows = Vec::new();
    for (base, path) in [("mcp", "/mcp"), ("a2a", "/a2a"), ("mail", "/api/agents")] {
        for path in ["", path] {
            rows.push(document(
                &bases[base],
                &format!("{RESOURCE_METADATA_PATH}{path}"),
            ));
        }
    }
    // Opened by the token of its URL alone.
    let url = format!("{}/a2a-push/nobody", bases["a2a"]);
    let inbox = MatrixRow::new("an inbox of pushes", "POST", url);
    rows.push(
        inbox
            .access(RequiredAccess::Public)
            .body(NOTHING)
            .right(404, 0),
    );
    rows
}

/// Returns params of JSON-RPC with a tenant, unless it is empty.
fn with_tenant(params: &str, tenant: &str) -> String {
    let mut params: Value = serde_json::from_str(params).unwrap();
    if !tenant.is_empty() {
        params["tenant"] = tenant.into();
    }
    params.to_string()
}

/// Returns the path before those of HTTP+JSON on a way to an agent.
fn rest_root(dialect: Dialect, folder: &str, tenant: &str) -> String {
    match (dialect, folder, tenant) {
        (Dialect::V10, _, "") => format!("{folder}/a2a"),
        (Dialect::V10, ..) => format!("{folder}/a2a/{tenant}"),
        (_, "", _) => "/v1".to_owned(),
        _ => format!("{folder}/a2a/v1"),
    }
}

fn rpc(base: &str, path: &str, dialect: Dialect, method: &str, params: &str) -> MatrixRow {
    let body = format!(r#"{{"jsonrpc":"2.0","id":{{n}},"method":"{method}","params":{params}}}"#);
    let row = MatrixRow::new(rpc_name(dialect, method), "POST", format!("{base}{path}"));
    versioned(row, dialect).body(body)
}

fn versioned(row: MatrixRow, dialect: Dialect) -> MatrixRow {
    row.header("a2a-version", dialect.version())
}

fn document(base: &str, path: &str) -> MatrixRow {
    MatrixRow::new(format!("document {path}"), "GET", format!("{base}{path}"))
        .access(RequiredAccess::Public)
}
