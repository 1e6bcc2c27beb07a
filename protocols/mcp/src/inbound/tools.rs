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
    /// What lists say of it, by era.
    listed: [Box<RawValue>; 2],
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

/// The tools of one agent, in the order of their handlers.
#[derive(Default)]
pub(crate) struct Tools {
    order: Vec<String>,
    /// Those of them that have no place in the modern era.
    legacy_only: Vec<String>,
    by_name: HashMap<String, Tool>,
    has_tasks: bool,
}

impl Tools {
    pub fn of(specs: Vec<MessageSpec>) -> Self {
        let mut tools = Self::default();
        for spec in specs.into_iter().filter(|spec| !spec.name.starts_with(RESERVED_PREFIX)) {
            let header_params = params_of(&spec.input_schema).unwrap_or_else(|error| {
                callboard_message::log::warn!(tool = %spec.name, %error, "not offered to clients of 2026-07-28");
                tools.legacy_only.push(spec.name.clone());
                Vec::new()
            });
            tools.order.push(spec.name.clone());
            let (name, tool) = (spec.name.clone(), Tool::of(spec, header_params));
            tools.has_tasks |= tool.task != TaskSupport::Forbidden;
            tools.by_name.insert(name, tool);
        }
        tools
    }

    pub fn get(&self, name: &str, era: Era) -> Option<&Tool> {
        self.by_name.get(name).filter(|_| self.is_of(name, era))
    }

    fn is_of(&self, name: &str, era: Era) -> bool {
        era == Era::Legacy || !self.legacy_only.iter().any(|other| other == name)
    }

    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Whether any of them may run as a task.
    pub fn has_tasks(&self) -> bool {
        self.has_tasks
    }

    /// What a list says of each, from the `from`th on.
    pub fn listed(&self, era: Era, from: usize, items_max: usize) -> Vec<&RawValue> {
        let names = self.order.iter().filter(|name| self.is_of(name, era)).skip(from).take(items_max);
        names.filter_map(|name| self.by_name.get(name)).map(|tool| &*tool.listed[era as usize]).collect()
    }

    pub fn len(&self, era: Era) -> usize {
        self.order.len() - if era == Era::Modern { self.legacy_only.len() } else { 0 }
    }
}

impl Tool {
    fn of(spec: MessageSpec, header_params: Vec<HeaderParam>) -> Self {
        let reply = match &spec.output_schema {
            None => Reply::Result,
            Some(schema) if schema["type"] == "null" => Reply::Nothing,
            Some(schema) if schema["type"] == "object" => Reply::Object,
            Some(_) => Reply::Value,
        };
        let task = match spec.more.object("execution").and_then(|e| e.text("taskSupport")).as_deref() {
            Some("optional") => TaskSupport::Optional,
            Some("required") if asks_first(&spec.more) => TaskSupport::AfterQuestions,
            Some("required") => TaskSupport::Required,
            _ => TaskSupport::Forbidden,
        };
        let on_restart = OnRestart::of(&spec);
        let listed = [Era::Legacy, Era::Modern].map(|era| listed(&spec, reply, era).to_raw());
        Self { listed, reply, task, on_restart, header_params }
    }
}

fn asks_first(more: &RawObject) -> bool {
    more.object("_meta").and_then(|meta| meta.text(TASK)).as_deref() == Some("after_questions")
}

fn listed(spec: &MessageSpec, reply: Reply, era: Era) -> RawObject {
    let mut tool = RawObject::of("name", &spec.name);
    if let Some(title) = spec.more.get("title") {
        tool.set_raw("title", title.to_owned());
    }
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
    let (definitions, dialect) = members.map_or((None, None), |m| (m.remove("$defs"), m.remove("$schema")));
    let mut outer =
        json!({ "type": "object", "properties": { "result": inner }, "required": ["result"], WRAPPED: true });
    if let Some(definitions) = definitions {
        outer["$defs"] = definitions;
    }
    if let Some(dialect) = dialect {
        outer["$schema"] = dialect;
    }
    outer
}
