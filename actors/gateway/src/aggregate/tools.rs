//! Message types of members as tools: descriptors and results.

use callboard_message::{MessageSpec, RawObject, ToolResult};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Tool of an aggregate; a call of it sends a message to the member that handles it.
pub(super) struct MessageTool {
    /// Index of the member that handles the message.
    pub member: usize,
    /// Name of the message.
    pub message: String,
    pub reply: ReplyShape,
    pub descriptor: RawObject,
}

impl MessageTool {
    pub fn new(member: usize, spec: &MessageSpec, shown: &str) -> Self {
        let reply = ReplyShape::of(spec);
        Self {
            member,
            message: spec.name.clone(),
            reply,
            descriptor: tool_descriptor(spec, shown, reply),
        }
    }
}

/// Form of a message's reply, which decides how it becomes a tool result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplyShape {
    /// The reply is already a tool result.
    Result,
    Object,
    /// The reply is another JSON value. It is wrapped in an object, as every MCP revision requires.
    Value,
    Nothing,
}

impl ReplyShape {
    pub fn of(spec: &MessageSpec) -> Self {
        match &spec.output_schema {
            None => Self::Result,
            Some(schema) if schema["type"] == "null" => Self::Nothing,
            Some(schema) if schema["type"] == "object" => Self::Object,
            Some(_) => Self::Value,
        }
    }

    /// Converts a reply to a tool result. An object or another value becomes both text and
    /// structured content; a reply without a value has no content.
    pub fn to_tool_result(self, reply: &RawValue) -> ToolResult {
        let text = || serde_json::from_str(reply.get()).unwrap_or_else(|_| reply.get().to_owned());
        match self {
            Self::Result => ToolResult(RawObject::parse(reply).unwrap_or_default()),
            Self::Nothing => ToolResult::from_content([]),
            Self::Object => ToolResult::text(text()).with_structured_content(reply),
            Self::Value => {
                ToolResult::text(text()).with_structured_content(RawObject::single("result", reply))
            }
        }
    }
}

/// Returns the MCP tool descriptor of a message type. It has no `execution` member, because calls
/// through an aggregate can't be tasks.
fn tool_descriptor(spec: &MessageSpec, name: &str, reply: ReplyShape) -> RawObject {
    let tool = RawObject::single("name", name).with("description", &spec.description);
    let mut tool = tool.with("inputSchema", &spec.input_schema);
    match (&spec.output_schema, reply) {
        (Some(schema), ReplyShape::Object) => tool.set("outputSchema", schema),
        (Some(schema), ReplyShape::Value) => tool.set("outputSchema", wrap_schema(schema)),
        _ => {}
    }
    for (member, value) in spec
        .more
        .iter()
        .filter(|(member, _)| *member != "execution")
    {
        tool.set_raw(member, value.to_owned());
    }
    tool
}

/// Wraps the schema of a reply into that of `{"result": reply}`. Definitions stay at the root, to
/// which `$ref`s refer.
fn wrap_schema(schema: &Value) -> Value {
    let mut inner = schema.clone();
    let members = inner.as_object_mut();
    let (definitions, dialect) =
        members.map_or((None, None), |m| (m.remove("$defs"), m.remove("$schema")));
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
