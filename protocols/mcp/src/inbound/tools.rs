//! The tools of an agent whose message types are its tools.

use std::collections::HashMap;

use callboard_message::surface::RESERVED_PREFIX;
use callboard_message::{MessageSpec, RawObject};
use callboard_runtime::OnRestart;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::wire::header::{HeaderParam, params_of};
use crate::wire::{Era, WRAPPED};

/// One message type as a tool.
pub(crate) struct Tool {
    /// What lists say of it, by era; `None` where it has no place in one.
    listed: [Option<Box<RawValue>>; 2],
    /// What its reply looks like.
    pub reply: Reply,
    /// Whether it may run as a task.
    pub task: TaskSupport,
    /// What becomes of its task where the process ends in the midst of it.
    pub on_restart: OnRestart,
    /// The arguments that headers repeat, in the modern era.
    pub header_params: Vec<HeaderParam>,
}

/// What a tool's reply becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A tool result: sent as it is.
    Result,
    /// An object: `structuredContent`, and its text.
    Object,
    /// Any other value: the modern era sends it as it is, the legacy one wrapped in an object.
    Value,
    /// Nothing.
    Nothing,
}

/// Whether a tool may, must or can't run as a task (MCP `execution.taskSupport`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum TaskSupport {
    #[default]
    Forbidden,
    /// A call is a task where the client can do with one.
    Optional,
    /// A call is always a task.
    Required,
    /// Required, but in the era that has no live questions the first of them are asked before the call becomes a task.
    AfterQuestions,
}

/// Member of a tool's `_meta` that says [`TaskSupport::AfterQuestions`]: MCP has no word for it.
const TASK: &str = "callboard/task";

/// The tools of one agent.
#[derive(Default)]
pub(crate) struct Tools {
    /// In the order of their handlers.
    all: Vec<Tool>,
    places: HashMap<String, usize>,
    /// Whether any of them may run as a task.
    pub has_tasks: bool,
}

impl Tools {
    pub fn of(specs: Vec<MessageSpec>) -> Self {
        let mut tools = Self::default();
        for spec in specs
            .into_iter()
            .filter(|spec| !spec.name.starts_with(RESERVED_PREFIX))
        {
            let tool = Tool::of(&spec);
            tools.has_tasks |= tool.task != TaskSupport::Forbidden;
            tools.places.insert(spec.name, tools.all.len());
            tools.all.push(tool);
        }
        tools
    }

    pub fn get(&self, name: &str, era: Era) -> Option<&Tool> {
        let tool = self.all.get(*self.places.get(name)?)?;
        tool.listed[era as usize].is_some().then_some(tool)
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// What lists say of those that an era has.
    pub fn listed(&self, era: Era) -> impl Iterator<Item = &RawValue> {
        self.all
            .iter()
            .filter_map(move |tool| tool.listed[era as usize].as_deref())
    }
}

impl Tool {
    fn of(spec: &MessageSpec) -> Self {
        let reply = match &spec.output_schema {
            None => Reply::Result,
            Some(schema) if schema["type"] == "null" => Reply::Nothing,
            Some(schema) if schema["type"] == "object" => Reply::Object,
            Some(_) => Reply::Value,
        };
        let task = match spec
            .more
            .object("execution")
            .and_then(|e| e.text("taskSupport"))
            .as_deref()
        {
            Some("optional") => TaskSupport::Optional,
            Some("required") if asks_first(&spec.more) => TaskSupport::AfterQuestions,
            Some("required") => TaskSupport::Required,
            _ => TaskSupport::Forbidden,
        };
        let mut listed =
            [Era::Legacy, Era::Modern].map(|era| Some(listed(spec, reply, era).to_raw()));
        let header_params = params_of(&spec.input_schema).unwrap_or_else(|error| {
            callboard_message::log::warn!(tool = %spec.name, %error, "not offered to clients of 2026-07-28");
            listed[Era::Modern as usize] = None;
            Vec::new()
        });
        Self {
            listed,
            reply,
            task,
            on_restart: OnRestart::of(spec),
            header_params,
        }
    }
}

fn asks_first(more: &RawObject) -> bool {
    more.object("_meta")
        .and_then(|meta| meta.text(TASK))
        .as_deref()
        == Some("after_questions")
}

fn listed(spec: &MessageSpec, reply: Reply, era: Era) -> RawObject {
    let mut tool = RawObject::of("name", &spec.name);
    tool.set_some("title", &spec.more.get("title"));
    tool.set("description", &spec.description);
    tool.set("inputSchema", &spec.input_schema);
    match (&spec.output_schema, reply, era) {
        (None, ..) | (_, Reply::Nothing | Reply::Result, _) => {}
        (Some(schema), Reply::Value, Era::Legacy) => tool.set("outputSchema", wrapped(schema)),
        (Some(schema), ..) => tool.set("outputSchema", schema),
    }
    for (name, value) in spec.more.iter().filter(|(name, _)| *name != "title") {
        tool.set_raw(name, value.to_owned());
    }
    tool
}

/// The schema of `{"result": reply}`; definitions stay at the root, where `$ref`s look for them.
fn wrapped(schema: &Value) -> Value {
    let mut inner = schema.clone();
    let members = inner.as_object_mut();
    let (definitions, dialect) =
        members.map_or((None, None), |m| (m.remove("$defs"), m.remove("$schema")));
    let mut outer = json!({ "type": "object", "properties": { "result": inner }, "required": ["result"], WRAPPED: true });
    if let Some(definitions) = definitions {
        outer["$defs"] = definitions;
    }
    if let Some(dialect) = dialect {
        outer["$schema"] = dialect;
    }
    outer
}
