//! Tools made from the message types of an agent, and the results of their calls.

use std::borrow::Cow;
use std::collections::HashMap;

use callboard_message::capabilities::RESERVED_PREFIX;
use callboard_message::json::{quote, raw_from_written};
use callboard_message::{Failure, FailureKind, MessageSpec, RawObject};
use callboard_rpc::{RpcError, code};
use callboard_runtime::OnRestart;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::wire::error_mapping::{peer_error, to_rpc_or};
use crate::wire::header::{HeaderParam, parse_header_params};
use crate::wire::{Era, Revision, WRAPPED_SCHEMA, meta};

/// Tool of an agent, made from one of its message types.
pub(crate) struct AgentTool {
    name: String,
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

    /// Returns the names and `tools/list` entries of the tools that an era offers.
    pub fn listings(&self, era: Era) -> impl Iterator<Item = (&str, &RawValue)> {
        self.all.iter().filter_map(move |tool| {
            let listing = tool.listings[era as usize].as_deref()?;
            Some((&*tool.name, listing))
        })
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
            callboard_message::log::warn!(tool = %spec.name, %error, "a tool has invalid x-mcp-header annotations: it isn't offered to clients of 2026-07-28");
            listings[Era::Modern as usize] = None;
            Vec::new()
        });
        Self {
            name: spec.name.clone(),
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

/// Converts the outcome of a tool's call to the result of `tools/call`, for both eras. A failure is
/// a result with `isError`, so that the model can react to it. The result of an agent that calls its
/// tools itself is returned as it is.
///
/// # Errors
/// Failures of the protocol, the policy or a remote server, which the model can't correct.
pub(crate) fn tool_result(
    outcome: Result<Box<RawValue>, Failure>,
    shape: ReplyShape,
    revision: Revision,
) -> Result<Box<RawValue>, RpcError> {
    let to_error = |failure| to_rpc_or(code::INVALID_PARAMS, failure);
    let (text, structured, failure) = match &outcome {
        Err(failure) => match shown_failure(failure, revision) {
            Some(shown) => (Some(Cow::Owned(quote(shown))), None, Some(failure)),
            None => return outcome.map_err(to_error),
        },
        Ok(_) if shape == ReplyShape::Result => return outcome.map_err(to_error),
        Ok(_) if shape == ReplyShape::Nothing => (None, None, None),
        Ok(reply) => {
            let reply = reply.get();
            let structured = match shape == ReplyShape::Value && revision.era() == Era::Legacy {
                true => Cow::Owned(format!(r#"{{"result":{reply}}}"#)),
                false => Cow::Borrowed(reply),
            };
            // The text is the reply itself if it is a string, otherwise its JSON.
            let text = match reply.starts_with('"') {
                true => Cow::Borrowed(reply),
                false => Cow::Owned(quote(reply)),
            };
            (Some(text), Some(structured), None)
        }
    };
    let meta = failure.map(|failure| {
        let mut meta = RawObject::single("kind", failure.kind);
        let data = failure.data.as_ref();
        let shown = data.filter(|_| failure.kind != FailureKind::Internal);
        meta.set_some("data", &shown);
        RawObject::single(meta::FAILURE_META_KEY, meta).to_raw()
    });
    let mut parts = vec![r#"{"content":["#];
    if let Some(text) = &text {
        parts.extend([r#"{"type":"text","text":"#, text, "}"]);
    }
    parts.push("]");
    if let Some(structured) = &structured {
        parts.extend([r#","structuredContent":"#, structured]);
    }
    if let Some(meta) = &meta {
        parts.extend([r#","isError":true,"_meta":"#, meta.get()]);
    }
    parts.push("}");
    Ok(raw_from_written(parts.concat()))
}

/// Returns the text by which the model is told of a tool's failure; `None` for a failure that it
/// can't correct.
fn shown_failure(failure: &Failure, revision: Revision) -> Option<&str> {
    let of_protocol = match failure.kind {
        FailureKind::Blocked | FailureKind::Denied | FailureKind::Cancelled => true,
        // Since 2025-11-25 the model is told about invalid arguments.
        FailureKind::InvalidInput => revision < Revision::V2025_11_25,
        // The modern era has an error code for a client that lacks a required capability.
        FailureKind::NoResponder => {
            let data = failure.data.as_ref();
            revision.era() == Era::Modern
                && data.is_some_and(|data| data.get(REQUIRED_CAPABILITIES).is_some())
        }
        _ => false,
    };
    if of_protocol || peer_error(failure).is_some() {
        return None;
    }
    Some(match failure.kind {
        FailureKind::Internal => "internal error",
        _ => &failure.message,
    })
}

/// Member of a failure's data that names the client capabilities required to answer a question.
pub(crate) const REQUIRED_CAPABILITIES: &str = "requiredCapabilities";
