//! Tools made from the message types of an agent.

use std::collections::HashMap;

use callboard_message::capabilities::RESERVED_PREFIX;
use callboard_message::{MessageSpec, RawObject};
use callboard_runtime::OnRestart;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::wire::header::{HeaderParam, parse_header_params};
use crate::wire::{Era, WRAPPED_SCHEMA};

/// Tool of an agent, made from one of its message types.
pub(crate) struct AgentTool {
    /// Entry in `tools/list`, indexed by [`Era`]; `None` if the tool isn't offered in that era.
    listings: [Option<Box<RawValue>>; 2],
    pub reply: ReplyShape,
    pub task: TaskSupport,
    /// Handling of the tool's task if the process ended during the call.
    pub on_restart: OnRestart,
    /// Arguments that clients of the modern era repeat in request headers.
    pub header_params: Vec<HeaderParam>,
}

/// Shape of an agent's reply, which determines its conversion to a tool result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyShape {
    /// Already a tool result: sent unchanged.
    Result,
    /// An object: sent as `structuredContent` and as text.
    Object,
    /// Any other value: `structuredContent` unchanged in the modern era, wrapped in an object in
    /// the legacy one.
    Value,
    /// No value: the tool result has no content.
    Nothing,
}

/// Support of a tool for running as a task (MCP `execution.taskSupport`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum TaskSupport {
    #[default]
    Forbidden,
    /// A call becomes a task if the client requests it (2025-11-25), or supports tasks (modern
    /// era).
    Optional,
    /// Every call must be a task; any other is rejected.
    Required,
    /// Like `Required`, but in the modern era a call becomes a task only after its first questions
    /// are answered.
    AfterQuestions,
}

/// Member of a tool's `_meta` that sets [`TaskSupport::AfterQuestions`], which MCP doesn't have.
const TASK_META: &str = "callboard/task";

/// Tools of one agent.
#[derive(Default)]
pub(crate) struct AgentTools {
    /// All tools, in the order of the agent's message handlers.
    all: Vec<AgentTool>,
    index_by_name: HashMap<String, usize>,
    pub has_tasks: bool,
}

impl AgentTools {
    pub fn from_specs(specs: Vec<MessageSpec>) -> Self {
        let mut tools = Self::default();
        for spec in specs
            .into_iter()
            .filter(|spec| !spec.name.starts_with(RESERVED_PREFIX))
        {
            let tool = AgentTool::from_spec(&spec);
            tools.has_tasks |= tool.task != TaskSupport::Forbidden;
            tools.index_by_name.insert(spec.name, tools.all.len());
            tools.all.push(tool);
        }
        tools
    }

    pub fn get(&self, name: &str, era: Era) -> Option<&AgentTool> {
        let tool = self.all.get(*self.index_by_name.get(name)?)?;
        tool.listings[era as usize].is_some().then_some(tool)
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the `tools/list` entries of the tools that an era offers.
    pub fn listings(&self, era: Era) -> impl Iterator<Item = &RawValue> {
        self.all
            .iter()
            .filter_map(move |tool| tool.listings[era as usize].as_deref())
    }
}

impl AgentTool {
    fn from_spec(spec: &MessageSpec) -> Self {
        let reply = match &spec.output_schema {
            None => ReplyShape::Result,
            Some(schema) if schema["type"] == "null" => ReplyShape::Nothing,
            Some(schema) if schema["type"] == "object" => ReplyShape::Object,
            Some(_) => ReplyShape::Value,
        };
        let task = match spec
            .more
            .object("execution")
            .and_then(|e| e.text("taskSupport"))
            .as_deref()
        {
            Some("optional") => TaskSupport::Optional,
            Some("required") if asks_before_task(&spec.more) => TaskSupport::AfterQuestions,
            Some("required") => TaskSupport::Required,
            _ => TaskSupport::Forbidden,
        };
        let mut listings =
            [Era::Legacy, Era::Modern].map(|era| Some(tool_listing(spec, reply, era).to_raw()));
        let header_params = parse_header_params(&spec.input_schema).unwrap_or_else(|error| {
            callboard_message::log::warn!(tool = %spec.name, %error, "not offered to clients of 2026-07-28");
            listings[Era::Modern as usize] = None;
            Vec::new()
        });
        Self {
            listings,
            reply,
            task,
            on_restart: OnRestart::from_spec(spec),
            header_params,
        }
    }
}

fn asks_before_task(more: &RawObject) -> bool {
    more.object("_meta")
        .and_then(|meta| meta.text(TASK_META))
        .as_deref()
        == Some("after_questions")
}

fn tool_listing(spec: &MessageSpec, reply: ReplyShape, era: Era) -> RawObject {
    let mut tool = RawObject::single("name", &spec.name);
    tool.set_some("title", &spec.more.get("title"));
    tool.set("description", &spec.description);
    tool.set("inputSchema", &spec.input_schema);
    match (&spec.output_schema, reply, era) {
        (None, ..) | (_, ReplyShape::Nothing | ReplyShape::Result, _) => {}
        (Some(schema), ReplyShape::Value, Era::Legacy) => {
            tool.set("outputSchema", wrap_schema(schema))
        }
        (Some(schema), ..) => tool.set("outputSchema", schema),
    }
    for (name, value) in spec.more.iter().filter(|(name, _)| *name != "title") {
        tool.set_raw(name, value.to_owned());
    }
    tool
}

/// Returns the schema of `{"result": reply}`, where `schema` is that of the reply. `$defs` are
/// moved to the root, because `$ref`s refer to them there.
fn wrap_schema(schema: &Value) -> Value {
    let mut inner = schema.clone();
    let members = inner.as_object_mut();
    let (definitions, dialect) =
        members.map_or((None, None), |m| (m.remove("$defs"), m.remove("$schema")));
    let mut outer = json!({ "type": "object", "properties": { "result": inner }, "required": ["result"], WRAPPED_SCHEMA: true });
    if let Some(definitions) = definitions {
        outer["$defs"] = definitions;
    }
    if let Some(dialect) = dialect {
        outer["$schema"] = dialect;
    }
    outer
}
