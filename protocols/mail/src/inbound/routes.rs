//! One table of routes: the server and its description both read it.

use std::sync::LazyLock;

use Kind::{Integer, Place, Text, Truth};
use callboard_message::Message;
use callboard_message::mail::{
    AgentLogs, AgentView, BroadcastMessage, EndAgent, GetAgentStatus, MailEvent, MailView,
    MessageHistory, Priority, SendMessage,
};
use schemars::{JsonSchema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// What the two ways to write answer, and nothing more unless it is wanted.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "SentBriefly")]
pub(super) struct Brief<'a> {
    pub(super) success: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) recipient_count: Option<u64>,
    pub(super) message: &'a str,
}

/// The body of a reply.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Reply")]
pub(super) struct ReplyBody {
    /// What is said. At most 64 KiB.
    pub(super) message: String,
    /// Your own id; may be left out; any other is refused.
    pub(super) sender_agent_id: Option<String>,
    /// Its other recipients get it too.
    #[serde(default)]
    pub(super) to_all: bool,
    /// `urgent` goes before all else.
    pub(super) priority: Option<Priority>,
    /// The same key again is the same message: it isn't sent twice.
    pub(super) idempotency_key: Option<String>,
}

/// What a route does.
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

/// A method of a path.
#[derive(Debug)]
pub(super) struct Route {
    method: &'static str,
    path: &'static str,
    pub operation: Operation,
    /// For whoever reads the description.
    summary: &'static str,
    /// What its query may have.
    parameters: &'static [Parameter],
}

/// A parameter of a query: its name, what it is, and what it is about.
type Parameter = (&'static str, Kind, &'static str);

/// What a parameter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Integer,
    Truth,
    /// A number, or `now`.
    Place,
    /// One of these.
    Word(&'static [&'static str]),
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

/// Whether the whole [`Sent`](callboard_message::mail::Sent) is wanted.
const DETAIL: Parameter = (
    "detail",
    Truth,
    "Answer also the message's id, its thread and whose box is full.",
);
const AFTER: Parameter = ("after", Integer, "Go on where a page ended.");

/// Every route.
const ROUTES: &[Route] = &[
    route(
        "POST",
        "/api/broadcast_message",
        Operation::Broadcast,
        "Tell all active agents, or a group, something that concerns them all",
        &[DETAIL],
    ),
    route(
        "POST",
        "/api/send_message",
        Operation::Send,
        "Write to one agent, or to a list",
        &[DETAIL],
    ),
    route(
        "GET",
        "/api/agents",
        Operation::Agents,
        "Who is here, as far as the caller sees them",
        &[(
            "state",
            Kind::Word(&["active", "away", "terminated"]),
            "In this state only.",
        )],
    ),
    route(
        "GET",
        "/api/agents/{agent_id}",
        Operation::Agent,
        "One of them",
        &[],
    ),
    route(
        "POST",
        "/api/agents/{agent_id}/end",
        Operation::EndAgent,
        "Say that an agent is terminated: it neither sends nor gets mail (scope mail.admin)",
        &[],
    ),
    route(
        "POST",
        "/api/agents/{agent_id}/back",
        Operation::AgentBack,
        "Say that an agent is back (scope mail.admin)",
        &[],
    ),
    route(
        "GET",
        "/api/messages",
        Operation::Messages,
        "Messages to the caller, newest first: those shown count as delivered; or from it, or both",
        &[
            (
                "box",
                Kind::Word(&["in", "out", "all"]),
                "To the caller (in, the default), from it, or both.",
            ),
            ("from", Text, "From this agent only."),
            (
                "with",
                Text,
                "Between the caller and this agent, both ways.",
            ),
            ("topic", Text, "Of this topic only."),
            ("thread", Text, "Of this thread only."),
            ("text", Text, "With these words in it, in any case."),
            ("since", Text, "Not before this time (RFC 3339)."),
            ("until", Text, "Before this time (RFC 3339)."),
            (
                "state",
                Kind::Word(&["accepted", "delivered", "read"]),
                "Only those in this state: what came, with the caller; what it sent, with its last recipient.",
            ),
            AFTER,
            ("limit", Integer, "At most so many, 1 to 100 (50)."),
        ],
    ),
    route(
        "GET",
        "/api/messages/{message_id}",
        Operation::Message,
        "One message; it counts as delivered to the caller",
        &[(
            "receipts",
            Truth,
            "Also how far it has come with each recipient: to its sender only.",
        )],
    ),
    route(
        "POST",
        "/api/messages/{message_id}/read",
        Operation::MarkRead,
        "Say that a message is read; again does no harm",
        &[],
    ),
    route(
        "POST",
        "/api/messages/{message_id}/reply",
        Operation::Reply,
        "Answer a message, in its thread",
        &[DETAIL],
    ),
    route(
        "GET",
        "/api/agent_logs",
        Operation::AgentLogs,
        "Who wrote to whom, oldest first: the caller's own, or all (scope mail.watch)",
        &[
            ("agent_id", Text, "Of this recipient only."),
            AFTER,
            ("limit", Integer, "At most so many, 1 to 1000 (100)."),
        ],
    ),
    route(
        "GET",
        "/api/events",
        Operation::Events,
        "What happens to mail, over WebSocket, a JSON object a frame",
        &[
            (
                "after",
                Place,
                "Begin with the events after this number, or `now`, and number each: {\"sequence\": N, \"event\": {…}}. \
                 What one thing gave rise to has one number.",
            ),
            ("types", Text, "Of these types only, with commas between."),
        ],
    ),
    route(
        "GET",
        "/api/openapi.json",
        Operation::Description,
        "This description",
        &[],
    ),
];

/// Each path once.
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

/// The route of a path and method; else the methods that the path has.
///
/// # Errors
/// The value of `Allow`.
pub(super) fn find(path: &str, method: &str) -> Result<&'static Route, String> {
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
    /// Whether its query may have this parameter.
    pub fn knows(&self, parameter: &str) -> bool {
        self.parameters
            .iter()
            .any(|(known, ..)| *known == parameter)
    }
}

/// The whole description.
pub(super) fn description() -> &'static Value {
    static DESCRIPTION: LazyLock<Value> = LazyLock::new(describe);
    &DESCRIPTION
}

fn describe() -> Value {
    let mut components = Components::default();
    let mut paths = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_ascii_lowercase()] = operation(route, &mut components);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Agent mail",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Agents write to each other. Show a key, and in `X-Agent-ID` your own id: it must be the key's.",
        },
        "paths": paths,
        "components": {
            "schemas": components.0,
            "responses": problems(),
            "securitySchemes": {
                "key": { "type": "http", "scheme": "bearer" },
                "agent": {
                    "type": "apiKey", "in": "header", "name": "X-Agent-ID",
                    "description": "Your own id. It is a claim, and must match the key.",
                },
            },
        },
        "security": [{ "key": [], "agent": [] }],
    })
}

fn operation(route: &Route, components: &mut Components) -> Value {
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
    let body = body.map(|schema| components.add(&format!("{:?}Body", route.operation), schema));
    let mut described = json!({
        "operationId": format!("{:?}", route.operation),
        "summary": route.summary,
        "parameters": parameters,
        "responses": responses(route, components),
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

/// What an agent's or a message's id may be.
fn id_schema() -> Value {
    json!({ "type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$" })
}

fn describe_parameter((name, kind, about): &Parameter) -> Value {
    let schema = match kind {
        Text => json!({ "type": "string" }),
        Integer => json!({ "type": "integer", "minimum": 0 }),
        Place => json!({ "oneOf": [{ "type": "integer", "minimum": 0 }, { "const": "now" }] }),
        Truth => json!({ "type": "boolean" }),
        Kind::Word(words) => json!({ "enum": words }),
    };
    json!({ "name": name, "in": "query", "schema": schema, "description": about })
}

fn responses(route: &Route, components: &mut Components) -> Value {
    let mut responses = Map::new();
    let is_sent = matches!(
        route.operation,
        Operation::Broadcast | Operation::Send | Operation::Reply
    );
    match route.operation {
        Operation::Events => {
            let schema = components.add("Event", schema_of::<MailEvent>());
            let about = "The socket is open. Each frame is an event; with `after` it is in `event`, beside its `sequence`. \
                Closed with 1013 it says where to go on.";
            let content = json!({ "application/json": { "schema": schema } });
            let newest = "The number of the newest event: what happens from now on comes after it.";
            let headers = json!({ "X-Event-Sequence": { "schema": { "type": "integer" }, "description": newest } });
            let open = json!({ "description": about, "content": content, "headers": headers });
            responses.insert("101".into(), open);
        }
        operation => {
            let mut good = json!({ "description": "Done." });
            if let Some(schema) = components.answer(operation) {
                good["content"] = json!({ "application/json": { "schema": schema } });
            }
            if is_sent {
                let header =
                    |about: &str| json!({ "schema": { "type": "string" }, "description": about });
                good["headers"] = json!({
                    "X-Message-ID": header("The message's id, where it was kept."),
                    "Location": header("Where it is."),
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

/// What is answered in place of what was asked for, by status.
const PROBLEMS: [(&str, &str); 12] = [
    (
        "400",
        "No handshake of WebSocket, or `after` is above the newest event.",
    ),
    ("401", "No good key, or not one `X-Agent-ID`."),
    ("403", "The id isn't the key's, or may not do this."),
    ("404", "There is none such for the caller."),
    ("408", "The body did not arrive in time."),
    ("413", "The body is over the limit."),
    ("415", "The body is not JSON in UTF-8."),
    (
        "422",
        "The body or query doesn't fit: the detail names the member.",
    ),
    ("429", "Too many messages: see `Retry-After`."),
    ("500", "The store failed, or there is a bug."),
    ("503", "No room just now: see `Retry-After`."),
    ("504", "The mailroom did not answer in time."),
];

fn problems() -> Map<String, Value> {
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

/// What a route is sent, where that is an object with members.
fn body_schema(operation: Operation) -> Option<Value> {
    match operation {
        Operation::Broadcast => Some(schema_in::<BroadcastMessage>()),
        Operation::Send => Some(schema_in::<SendMessage>()),
        Operation::Reply => Some(schema_of::<ReplyBody>()),
        _ => None,
    }
}

/// The schemas that others name.
#[derive(Default)]
struct Components(Map<String, Value>);

impl Components {
    /// What a route answers.
    fn answer(&mut self, operation: Operation) -> Option<Value> {
        let (name, schema) = match operation {
            Operation::Broadcast | Operation::Send | Operation::Reply => {
                // The rest of it comes with `detail` alone.
                let brief = self.add("SentBriefly", schema_of::<Brief<'_>>());
                return Some(
                    json!({ "anyOf": [brief, self.add("Sent", schema_out::<SendMessage>())] }),
                );
            }
            Operation::Agents => ("AgentsAnswer", schema_out::<GetAgentStatus>()),
            Operation::Agent => ("AgentView", schema_of::<AgentView>()),
            Operation::Messages => ("MessagesAnswer", schema_out::<MessageHistory>()),
            Operation::Message => ("MailView", schema_of::<MailView>()),
            Operation::MarkRead | Operation::EndAgent | Operation::AgentBack => {
                ("Done", schema_out::<EndAgent>())
            }
            Operation::AgentLogs => ("AgentLogsAnswer", schema_out::<AgentLogs>()),
            Operation::Events | Operation::Description => return None,
        };
        Some(self.add(name, schema))
    }

    /// Adds a schema, and what it defines beside itself. Answers a reference to it.
    fn add(&mut self, name: &str, mut schema: Value) -> Value {
        if let Some(object) = schema.as_object_mut() {
            object.remove("$schema");
            if let Some(Value::Object(definitions)) = object.remove("$defs") {
                for (name, definition) in definitions {
                    self.add(&name, definition);
                }
            }
        }
        point_here(&mut schema);
        self.0.insert(name.to_owned(), schema);
        json!({ "$ref": format!("#/components/schemas/{name}") })
    }
}

/// What a schema names beside itself is a component here.
fn point_here(schema: &mut Value) {
    match schema {
        Value::Object(members) => members.iter_mut().for_each(|(name, member)| match member {
            Value::String(target) if name == "$ref" => {
                *target = target.replace("#/$defs/", "#/components/schemas/")
            }
            member => point_here(member),
        }),
        Value::Array(entries) => entries.iter_mut().for_each(point_here),
        _ => {}
    }
}

fn schema_of<T: JsonSchema>() -> Value {
    SchemaGenerator::default()
        .into_root_schema_for::<T>()
        .to_value()
}

fn schema_in<M: Message>() -> Value {
    M::wire()
        .map(|wire| (wire.input_schema)())
        .unwrap_or_default()
}

fn schema_out<M: Message>() -> Value {
    M::wire()
        .map(|wire| (wire.output_schema)())
        .unwrap_or_default()
}
