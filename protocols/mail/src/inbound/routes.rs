//! Table of routes, from which both the server and its OpenAPI description are built.

use std::sync::LazyLock;

use ParameterKind::{Boolean, Integer, Place, Text};
use callboard_message::mail::{
    AgentLogs, AgentView, BroadcastMessage, EndAgent, GetAgentStatus, MailEvent, MailView,
    MessageHistory, Priority, SendMessage,
};
use callboard_message::{Message, schema_of};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Response to the sending routes, unless details are requested.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SentBriefly")]
pub(super) struct BriefSendReceipt<'a> {
    pub(super) success: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) recipient_count: Option<u64>,
    pub(super) message: &'a str,
}

/// Body of a reply.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Reply")]
pub(super) struct ReplyBody {
    /// Text of the reply. At most 64 KiB.
    pub(super) message: String,
    /// Your own agent id. Optional; any other id is rejected.
    pub(super) sender_agent_id: Option<String>,
    /// Whether the other recipients of the message get the reply too.
    #[serde(default)]
    pub(super) to_all: bool,
    /// Priority; `urgent` is delivered before all other mail.
    pub(super) priority: Option<Priority>,
    /// Idempotency key: a message with the same key is sent only once.
    pub(super) idempotency_key: Option<String>,
}

/// Operation that a route performs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Broadcast,
    Send,
    Agents,
    Agent,
    EndAgent,
    AgentBack,
    Messages,
    Message,
    MarkRead,
    Reply,
    AgentLogs,
    Events,
    Description,
}

/// A route: method, path and operation, with its description.
#[derive(Debug)]
pub(super) struct Route {
    method: &'static str,
    path: &'static str,
    pub operation: Operation,
    /// Summary of the operation in the OpenAPI document.
    summary: &'static str,
    /// Query parameters.
    parameters: &'static [Parameter],
}

/// Query parameter: name, kind and description.
type Parameter = (&'static str, ParameterKind, &'static str);

/// Kind of a query parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParameterKind {
    Text,
    Integer,
    Boolean,
    /// Sequence number of an event, or `now`.
    Place,
    /// One of the listed values.
    Choice(&'static [&'static str]),
}

const fn route(
    method: &'static str,
    path: &'static str,
    operation: Operation,
    summary: &'static str,
    parameters: &'static [Parameter],
) -> Route {
    Route {
        method,
        path,
        operation,
        summary,
        parameters,
    }
}

/// Query parameter that requests the whole [`SendReceipt`](callboard_message::mail::SendReceipt) as
/// response.
const DETAIL: Parameter = (
    "detail",
    Boolean,
    "Also return the message's id, its thread, and the recipients whose mailboxes are full.",
);
const AFTER: Parameter = (
    "after",
    Integer,
    "Position to continue from: `next` of the previous page, or the last number.",
);

const ROUTES: &[Route] = &[
    route(
        "POST",
        "/api/broadcast_message",
        Operation::Broadcast,
        "Send a message to all active agents, or to a group",
        &[DETAIL],
    ),
    route(
        "POST",
        "/api/send_message",
        Operation::Send,
        "Send a message to one agent, or to a list",
        &[DETAIL],
    ),
    route(
        "GET",
        "/api/agents",
        Operation::Agents,
        "List the agents that the caller may see",
        &[(
            "state",
            ParameterKind::Choice(&["active", "away", "terminated"]),
            "Agents in this state only.",
        )],
    ),
    route(
        "GET",
        "/api/agents/{agent_id}",
        Operation::Agent,
        "Get one agent",
        &[],
    ),
    route(
        "POST",
        "/api/agents/{agent_id}/end",
        Operation::EndAgent,
        "Terminate an agent: it can neither send nor receive mail (scope mail.admin)",
        &[],
    ),
    route(
        "POST",
        "/api/agents/{agent_id}/back",
        Operation::AgentBack,
        "Resume a terminated agent (scope mail.admin)",
        &[],
    ),
    route(
        "GET",
        "/api/messages",
        Operation::Messages,
        "List messages to or from the caller, newest first; those returned are marked as delivered",
        &[
            (
                "box",
                ParameterKind::Choice(&["in", "out", "all"]),
                "Messages to the caller (`in`, the default), from it (`out`), or both (`all`).",
            ),
            ("from", Text, "From this agent only."),
            (
                "with",
                Text,
                "Between the caller and this agent, in both directions.",
            ),
            ("topic", Text, "Of this topic only."),
            ("thread", Text, "Of this thread only."),
            ("text", Text, "Containing this text, ignoring case."),
            ("since", Text, "Not before this time (RFC 3339)."),
            ("until", Text, "Before this time (RFC 3339)."),
            (
                "state",
                ParameterKind::Choice(&["accepted", "delivered", "read"]),
                "Messages in this state only: the caller's if received, the least advanced recipient's if sent.",
            ),
            AFTER,
            (
                "limit",
                Integer,
                "Maximum number of messages, 1 to 100 (default 50).",
            ),
        ],
    ),
    route(
        "GET",
        "/api/messages/{message_id}",
        Operation::Message,
        "Get one message; it is marked as delivered to the caller",
        &[(
            "receipts",
            Boolean,
            "Include the delivery state for each recipient. For the sender only.",
        )],
    ),
    route(
        "POST",
        "/api/messages/{message_id}/read",
        Operation::MarkRead,
        "Mark a message as read; idempotent",
        &[],
    ),
    route(
        "POST",
        "/api/messages/{message_id}/reply",
        Operation::Reply,
        "Reply to a message, in its thread",
        &[DETAIL],
    ),
    route(
        "GET",
        "/api/agent_logs",
        Operation::AgentLogs,
        "List the communication log, oldest first: the caller's own, or all (scope mail.watch)",
        &[
            ("agent_id", Text, "Of this recipient only."),
            AFTER,
            (
                "limit",
                Integer,
                "Maximum number of rows, 1 to 1000 (default 100).",
            ),
        ],
    ),
    route(
        "GET",
        "/api/events",
        Operation::Events,
        "Stream mail events over WebSocket, one JSON object a frame",
        &[
            (
                "after",
                Place,
                "Start after this sequence number, or `now`, and number the events: {\"sequence\": N, \"event\": {…}}. \
                 Events with the same cause share a number.",
            ),
            (
                "types",
                Text,
                "Event types, separated by commas; all by default.",
            ),
        ],
    ),
    route(
        "GET",
        "/api/openapi.json",
        Operation::Description,
        "Get this description",
        &[],
    ),
];

/// Paths of the client that callboard's mail was modelled on, with the path of the same route here.
/// They are served and not described.
const ALIASES: [(&str, &str); 3] = [
    ("/broadcast_message", "/api/broadcast_message"),
    ("/send_message", "/api/send_message"),
    ("/ws", "/api/events"),
];

/// Returns the other paths under which routes are served.
pub(super) fn alias_paths() -> impl Iterator<Item = &'static str> {
    ALIASES.iter().map(|(alias, _)| *alias)
}

/// Returns the path of the route that `path` names: its own, or that of which it is an alias.
pub(super) fn resolve_alias(path: &str) -> &str {
    let of = ALIASES.iter().find(|(alias, _)| *alias == path);
    of.map_or(path, |(_, path)| path)
}

/// Returns the HTTP method and path of each route, also under its other paths.
#[doc(hidden)]
pub fn routes() -> impl Iterator<Item = (&'static str, &'static str)> {
    let served = paths().chain(alias_paths());
    served.flat_map(|path| {
        let of_path = move |route: &&Route| route.path == resolve_alias(path);
        let routes = ROUTES.iter().filter(of_path);
        routes.map(move |route| (route.method, path))
    })
}

/// Returns the paths of all routes, without duplicates.
pub(super) fn paths() -> impl Iterator<Item = &'static str> {
    let first = |(nth, route): &(usize, &'static Route)| {
        ROUTES[..*nth]
            .iter()
            .all(|before| before.path != route.path)
    };
    ROUTES
        .iter()
        .enumerate()
        .filter(first)
        .map(|(_, route)| route.path)
}

/// Returns the route with this path and method. `path` must be the path of a route.
///
/// # Errors
/// Returns the methods of the path, for the header `Allow`, if `method` is none of them.
pub(super) fn find_route(path: &str, method: &str) -> Result<&'static Route, String> {
    let of_path = || ROUTES.iter().filter(|route| route.path == path);
    let found = of_path().find(|route| route.method == method);
    found.ok_or_else(|| {
        of_path()
            .map(|route| route.method)
            .collect::<Vec<_>>()
            .join(", ")
    })
}

impl Route {
    /// Returns whether the route has a query parameter of this name.
    pub fn has_parameter(&self, parameter: &str) -> bool {
        self.parameters
            .iter()
            .any(|(known, ..)| *known == parameter)
    }
}

/// Returns the OpenAPI document of all routes. It is built on first use.
pub(super) fn openapi_document() -> &'static Value {
    static DESCRIPTION: LazyLock<Value> = LazyLock::new(build_openapi);
    &DESCRIPTION
}

fn build_openapi() -> Value {
    let mut components = Components::default();
    let mut paths = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_ascii_lowercase()] = operation_object(route, &mut components);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Agent mail",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Messages between agents. Requests need a key, and in `X-Agent-ID` your own agent id, which must match the key.",
        },
        "paths": paths,
        "components": {
            "schemas": components.0,
            "responses": problem_responses(),
            "securitySchemes": {
                "key": { "type": "http", "scheme": "bearer" },
                "agent": {
                    "type": "apiKey", "in": "header", "name": "X-Agent-ID",
                    "description": "Your own agent id. It must match the key.",
                },
            },
        },
        "security": [{ "key": [], "agent": [] }],
    })
}

fn operation_object(route: &Route, components: &mut Components) -> Value {
    let in_path = route
        .path
        .split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut parameters: Vec<_> = in_path
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": id_schema() }))
        .chain(route.parameters.iter().map(describe_parameter))
        .collect();
    let body = body_schema(route.operation);
    if body
        .as_ref()
        .is_some_and(|schema| schema["properties"]["idempotency_key"].is_object())
    {
        let about = "As `idempotency_key` in the body.";
        parameters.push(
            json!({ "name": "Idempotency-Key", "in": "header", "schema": { "type": "string" }, "description": about }),
        );
    }
    let body =
        body.map(|schema| components.add_schema(&format!("{:?}Body", route.operation), schema));
    let mut described = json!({
        "operationId": format!("{:?}", route.operation),
        "summary": route.summary,
        "parameters": parameters,
        "responses": response_objects(route, components),
    });
    if let Some(schema) = body {
        described["requestBody"] =
            json!({ "required": true, "content": { "application/json": { "schema": schema } } });
    }
    if route.operation == Operation::Description {
        described["security"] = json!([]);
    }
    described
}

/// Returns the JSON Schema of agent ids and message ids.
fn id_schema() -> Value {
    json!({ "type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$" })
}

fn describe_parameter((name, kind, about): &Parameter) -> Value {
    let schema = match kind {
        Text => json!({ "type": "string" }),
        Integer => json!({ "type": "integer", "minimum": 0 }),
        Place => json!({ "oneOf": [{ "type": "integer", "minimum": 0 }, { "const": "now" }] }),
        Boolean => json!({ "type": "boolean" }),
        ParameterKind::Choice(words) => json!({ "enum": words }),
    };
    json!({ "name": name, "in": "query", "schema": schema, "description": about })
}

fn response_objects(route: &Route, components: &mut Components) -> Value {
    let mut responses = Map::new();
    let is_sent = matches!(
        route.operation,
        Operation::Broadcast | Operation::Send | Operation::Reply
    );
    match route.operation {
        Operation::Events => {
            let schema = components.add_schema("Event", schema_of::<MailEvent>());
            let about = "The socket is open. Each frame is an event; with `after` it is in `event`, beside its `sequence`. \
                A close with 1013 names the position to resume at.";
            let content = json!({ "application/json": { "schema": schema } });
            let newest = "Sequence number of the newest event. Later events have higher numbers.";
            let headers = json!({ "X-Event-Sequence": { "schema": { "type": "integer" }, "description": newest } });
            let open = json!({ "description": about, "content": content, "headers": headers });
            responses.insert("101".into(), open);
        }
        operation => {
            let mut good = json!({ "description": "Done." });
            if let Some(schema) = components.response_schema(operation) {
                good["content"] = json!({ "application/json": { "schema": schema } });
            }
            if is_sent {
                let header =
                    |about: &str| json!({ "schema": { "type": "string" }, "description": about });
                good["headers"] = json!({
                    "X-Message-ID": header("The message's id, if it was stored."),
                    "Location": header("URL of the message."),
                });
            }
            responses.insert("200".into(), good);
        }
    }
    for (status, _) in PROBLEMS {
        let is_here = match status {
            "400" => route.operation == Operation::Events,
            "403" => true,
            "404" => route.path.contains('{'),
            "408" | "413" | "415" => route.method == "POST",
            "429" => is_sent,
            _ => route.operation != Operation::Description,
        };
        if is_here {
            responses.insert(
                status.into(),
                json!({ "$ref": format!("#/components/responses/{status}") }),
            );
        }
    }
    responses.into()
}

/// Descriptions of the error responses, by status.
const PROBLEMS: [(&str, &str); 12] = [
    (
        "400",
        "No WebSocket handshake, or `after` is above the newest event.",
    ),
    ("401", "No valid key, or not exactly one `X-Agent-ID`."),
    (
        "403",
        "The id doesn't match the key, or a permission is missing.",
    ),
    ("404", "Not found, or not visible to the caller."),
    ("408", "The body did not arrive in time."),
    ("413", "The body is over the limit."),
    ("415", "The body is not JSON in UTF-8."),
    (
        "422",
        "The body or query is not valid: the detail names the member.",
    ),
    ("429", "Too many messages: see `Retry-After`."),
    ("500", "The store failed, or there is a defect."),
    ("503", "No capacity at the moment: see `Retry-After`."),
    ("504", "The mailroom did not reply in time."),
];

fn problem_responses() -> Map<String, Value> {
    let detail = json!({ "type": "object", "properties": { "detail": { "type": "string" } }, "required": ["detail"] });
    let content = json!({ "application/json": { "schema": detail } });
    let described = PROBLEMS.map(|(status, about)| {
        (
            status.into(),
            json!({ "description": about, "content": content }),
        )
    });
    described.into_iter().collect()
}

/// Returns the JSON Schema of an operation's request body; `None` if the body is empty or optional.
fn body_schema(operation: Operation) -> Option<Value> {
    match operation {
        Operation::Broadcast => Some(input_schema::<BroadcastMessage>()),
        Operation::Send => Some(input_schema::<SendMessage>()),
        Operation::Reply => Some(schema_of::<ReplyBody>()),
        _ => None,
    }
}

/// Schemas of the OpenAPI document's section `components`, by name.
#[derive(Default)]
struct Components(Map<String, Value>);

impl Components {
    /// Adds the schema of an operation's response and returns a reference to it; `None` if the
    /// response is no JSON object with a schema.
    fn response_schema(&mut self, operation: Operation) -> Option<Value> {
        let (name, schema) = match operation {
            Operation::Broadcast | Operation::Send | Operation::Reply => {
                // The full receipt is sent only with `detail`.
                let brief = self.add_schema("SentBriefly", schema_of::<BriefSendReceipt<'_>>());
                return Some(
                    json!({ "anyOf": [brief, self.add_schema("Sent", output_schema::<SendMessage>())] }),
                );
            }
            Operation::Agents => ("AgentsAnswer", output_schema::<GetAgentStatus>()),
            Operation::Agent => ("AgentView", schema_of::<AgentView>()),
            Operation::Messages => ("MessagesAnswer", output_schema::<MessageHistory>()),
            Operation::Message => ("MailView", schema_of::<MailView>()),
            Operation::MarkRead | Operation::EndAgent | Operation::AgentBack => {
                ("Done", output_schema::<EndAgent>())
            }
            Operation::AgentLogs => ("AgentLogsAnswer", output_schema::<AgentLogs>()),
            Operation::Events | Operation::Description => return None,
        };
        Some(self.add_schema(name, schema))
    }

    /// Adds a schema under `name`, and its `$defs` under their own names. Returns a reference to
    /// it.
    fn add_schema(&mut self, name: &str, mut schema: Value) -> Value {
        if let Some(object) = schema.as_object_mut() {
            object.remove("$schema");
            if let Some(Value::Object(definitions)) = object.remove("$defs") {
                for (name, definition) in definitions {
                    self.add_schema(&name, definition);
                }
            }
        }
        rewrite_refs(&mut schema);
        self.0.insert(name.to_owned(), schema);
        json!({ "$ref": format!("#/components/schemas/{name}") })
    }
}

/// Changes each `$ref` to `$defs` into one to `components/schemas`.
fn rewrite_refs(schema: &mut Value) {
    match schema {
        Value::Object(members) => members.iter_mut().for_each(|(name, member)| match member {
            Value::String(target) if name == "$ref" => {
                *target = target.replace("#/$defs/", "#/components/schemas/")
            }
            member => rewrite_refs(member),
        }),
        Value::Array(entries) => entries.iter_mut().for_each(rewrite_refs),
        _ => {}
    }
}

fn input_schema<M: Message>() -> Value {
    M::codec()
        .map(|wire| (wire.input_schema)())
        .unwrap_or_default()
}

fn output_schema<M: Message>() -> Value {
    M::codec()
        .map(|wire| (wire.output_schema)())
        .unwrap_or_default()
}
