//! Message types as tools, and replies as their results.

use callboard_message::surface::RESERVED_PREFIX;
use callboard_message::{MessageSpec, RawObject, ToolResult};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// What a tool's reply becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply {
    /// It is a tool result.
    Result,
    Object,
    /// Any other value: wrapped in an object, which every revision of MCP takes.
    Value,
    Nothing,
}

impl Reply {
    pub fn of(spec: &MessageSpec) -> Self {
        match &spec.output_schema {
            None => Self::Result,
            Some(schema) if schema["type"] == "null" => Self::Nothing,
            Some(schema) if schema["type"] == "object" => Self::Object,
            Some(_) => Self::Value,
        }
    }

    /// The tool's result.
    pub fn result(self, reply: &RawValue) -> ToolResult {
        let text = || match serde_json::from_str::<String>(reply.get()) {
            Ok(text) => text,
            Err(_) => reply.get().to_owned(),
        };
        match self {
            Self::Result => ToolResult(RawObject::parse(reply).unwrap_or_default()),
            Self::Nothing => ToolResult::of([]),
            Self::Object => ToolResult::text(text()).structured(reply),
            Self::Value => ToolResult::text(text()).structured(RawObject::of("result", reply)),
        }
    }
}

/// Whether a message type is a tool.
pub(super) fn is_tool(spec: &MessageSpec) -> bool {
    !spec.name.starts_with(RESERVED_PREFIX)
}

/// A message type as a tool of this name. Calls here aren't tasks, so `execution` stays away.
pub(super) fn listed(spec: &MessageSpec, name: &str, reply: Reply) -> RawObject {
    let mut tool = RawObject::of("name", name);
    tool.set("description", &spec.description);
    tool.set("inputSchema", &spec.input_schema);
    match (&spec.output_schema, reply) {
        (Some(schema), Reply::Object) => tool.set("outputSchema", schema),
        (Some(schema), Reply::Value) => tool.set("outputSchema", wrapped(schema)),
        _ => {}
    }
    for (member, value) in spec.more.iter().filter(|(member, _)| *member != "execution") {
        tool.set_raw(member, value.to_owned());
    }
    tool
}

/// The schema of `{"result": reply}`; definitions stay at the root, where `$ref`s look for them.
fn wrapped(schema: &Value) -> Value {
    let mut inner = schema.clone();
    let members = inner.as_object_mut();
    let (definitions, dialect) = members.map_or((None, None), |m| (m.remove("$defs"), m.remove("$schema")));
    let mut outer = json!({
        "type": "object", "properties": { "result": inner }, "required": ["result"], "x-callboard-wrapped": true
    });
    if let Some(definitions) = definitions {
        outer["$defs"] = definitions;
    }
    if let Some(dialect) = dialect {
        outer["$schema"] = dialect;
    }
    outer
}
