//! Replies of calls as the artifact and final state of a task, and failures as A2A errors.

use callboard_message::capabilities::RESERVED_PREFIX;
use callboard_message::json::RawCursor;
use callboard_message::mail::RETRY_AFTER_DATA_KEY;
use callboard_message::{
    ARTIFACTS_SENT_META_KEY, Content, DIRECT_MESSAGE_META_KEY, Failure, FailureKind, RawObject,
    RawReply, TaskState, ToolResult,
};
use callboard_runtime::{JournalError, TaskError, TaskStep};
use serde_json::Value;
use serde_json::value::RawValue;

use super::content::block_to_part;
use crate::error::RETRY_INFO;
use crate::wire::{A2aArtifact, Part, WireType as _, parse_task_state, write_json_sized};
use crate::{A2aError, ErrorKind};

/// Estimated sizes for the initial capacity of buffers, in bytes: a part's JSON without its text,
/// and an artifact's JSON without its name and parts.
const PART_OVERHEAD_BYTES: usize = 10;
const RESULT_OVERHEAD_BYTES: usize = 50;
/// Id of the artifact that holds a call's reply.
const RESULT_ARTIFACT_ID: &str = "result";

/// Artifact and final step of a task, made from the reply of its call.
pub(crate) struct TaskCompletion {
    /// Artifact with the reply, as JSON of 1.0; `None` if the call failed, the reply is empty or a
    /// direct reply, or the task's artifacts contain it already.
    pub(crate) artifact: Option<Box<RawValue>>,
    pub(crate) step: TaskStep,
}

/// Converts the reply of a call to the artifact and final step of its task. `is_result` tells
/// whether the reply is a tool result; otherwise it is a plain value. `has_all` tells whether every
/// artifact that the call reported was stored.
pub(crate) fn task_completion(
    reply: RawReply,
    skill: &str,
    is_result: bool,
    has_all: bool,
) -> TaskCompletion {
    let reply = match reply {
        Ok(reply) => reply,
        Err(failure) => {
            return TaskCompletion {
                artifact: None,
                step: failure_step(failure),
            };
        }
    };
    if !is_result {
        let artifact = value_part(&reply).map(|part| result_artifact(skill, vec![part]));
        return TaskCompletion {
            artifact,
            step: TaskStep::Completed(reply),
        };
    }
    if let Some(artifact) = text_result_artifact(&reply, skill) {
        return TaskCompletion {
            artifact: Some(artifact),
            step: TaskStep::Completed(reply),
        };
    }
    let Ok(told) = ToolResult::parse(&reply) else {
        let why = Failure::internal(
            "the agent's reply is no valid tool result: the agent has to be corrected",
        );
        return TaskCompletion {
            artifact: None,
            step: TaskStep::Failed(why),
        };
    };
    if told.is_error() {
        return TaskCompletion {
            artifact: None,
            step: tool_error_step(&told),
        };
    }
    if has_meta_flag(&told, DIRECT_MESSAGE_META_KEY)
        || (has_all && has_meta_flag(&told, ARTIFACTS_SENT_META_KEY))
    {
        return TaskCompletion {
            artifact: None,
            step: TaskStep::Completed(reply),
        };
    }
    let parts = result_parts(&told);
    let artifact = (!parts.is_empty()).then(|| result_artifact(skill, parts));
    TaskCompletion {
        artifact,
        step: TaskStep::Completed(reply),
    }
}

fn result_artifact(skill: &str, parts: Vec<Part>) -> Box<RawValue> {
    A2aArtifact {
        artifact_id: RESULT_ARTIFACT_ID.to_owned(),
        name: artifact_name(skill).to_owned(),
        parts,
        ..A2aArtifact::default()
    }
    .to_raw()
}

/// Returns the name of the artifact with a skill's result; empty for callboard's own messages,
/// whose names are no skills.
fn artifact_name(skill: &str) -> &str {
    match skill.starts_with(RESERVED_PREFIX) {
        true => "",
        false => skill,
    }
}

/// Converts a tool result to an artifact without decoding its texts; `None` unless the result has
/// only `content` and all blocks are plain text.
fn text_result_artifact(reply: &RawValue, skill: &str) -> Option<Box<RawValue>> {
    let mut members = RawCursor::object(reply)?;
    let (name, blocks) = members.next()?;
    if name != "content" || members.next().is_some() {
        return None;
    }
    let texts: Vec<&RawValue> = RawCursor::list(blocks)?
        .map(block_text)
        .collect::<Option<_>>()?;
    let bytes: usize = texts
        .iter()
        .map(|text| text.get().len() + PART_OVERHEAD_BYTES)
        .sum();
    (!texts.is_empty()).then(|| {
        write_json_sized(bytes + RESULT_OVERHEAD_BYTES + skill.len(), |out| {
            let mut artifact = out.object();
            artifact.text("artifactId", RESULT_ARTIFACT_ID);
            artifact.non_empty_text("name", artifact_name(skill));
            artifact.list("parts", texts, |text, out| {
                let mut part = out.object();
                part.member("text").json(text.get());
                part.end();
            });
            artifact.end();
        })
    })
}

/// Returns the text of a text block, still encoded as a JSON string; `None` if the block has
/// members besides its type and text.
fn block_text(block: &RawValue) -> Option<&RawValue> {
    let (mut members, mut kind, mut text) = (RawCursor::object(block)?, None, None);
    for (name, value) in members.by_ref() {
        match &*name {
            "type" => kind = Some(value.get()),
            "text" => text = Some(value),
            _ => return None,
        }
    }
    text.filter(|text| kind == Some("\"text\"") && text.get().starts_with('"'))
}

/// Parses a reply as a tool result, if it is a direct reply: a message to the client in place of a
/// task's result. `None` for any other reply.
pub(crate) fn parse_direct_reply(reply: &RawValue) -> Option<ToolResult> {
    // Most replies aren't direct: the search avoids parsing them.
    let told = reply
        .get()
        .contains(DIRECT_MESSAGE_META_KEY)
        .then(|| ToolResult::parse(reply).ok())??;
    has_meta_flag(&told, DIRECT_MESSAGE_META_KEY).then_some(told)
}

fn has_meta_flag(result: &ToolResult, mark: &str) -> bool {
    result
        .0
        .object("_meta")
        .and_then(|meta| meta.read::<bool>(mark))
        .unwrap_or_default()
}

/// Converts a tool result to parts, one for each content block. The structured content replaces the
/// part that repeats it as JSON text, or is appended as a data part.
fn result_parts(result: &ToolResult) -> Vec<Part> {
    let mut parts: Vec<Part> = result.content().iter().map(block_to_part).collect();
    let Some(value) = result.0.get("structuredContent") else {
        return parts;
    };
    let known = serde_json::from_str::<Value>(value.get()).unwrap_or_default();
    let repeats = |part: &&mut Part| {
        let said = part
            .as_data()
            .map(RawValue::get)
            .or_else(|| part.as_text().filter(|_| part.media_type.is_empty()));
        said.and_then(|said| serde_json::from_str::<Value>(said).ok())
            .is_some_and(|said| said == known)
    };
    match parts.iter_mut().find(repeats) {
        Some(part) => part.content = crate::wire::PartContent::Data(value.to_owned()),
        None => parts.push(Part::data(value.to_owned())),
    }
    parts
}

/// Converts a plain value to a part: a string to a text part, anything else to a data part. `None`
/// for `null`.
fn value_part(reply: &RawValue) -> Option<Part> {
    match reply.get().as_bytes().first()? {
        b'n' => None,
        b'"' => serde_json::from_str::<String>(reply.get())
            .ok()
            .map(Part::text),
        _ => Some(Part::data(reply.to_owned())),
    }
}

fn failure_step(failure: Failure) -> TaskStep {
    match failure.kind {
        FailureKind::Rejected => TaskStep::Rejected(failure),
        FailureKind::Cancelled => TaskStep::Cancelled {
            why: failure.message,
        },
        _ => TaskStep::Failed(failure),
    }
}

/// Returns the final step of a task whose tool reported an error: `Failed`, or the state of the
/// remote task if the tool is a proxy for a remote agent that reports it as rejected or cancelled.
fn tool_error_step(result: &ToolResult) -> TaskStep {
    let told = result.0.object("structuredContent").unwrap_or_default();
    let said = Some(result.texts()).filter(|said| !said.is_empty());
    let why = said
        .or_else(|| told.text("reason"))
        .unwrap_or_else(|| "the agent failed without giving a reason".to_owned());
    let failure = |kind| with_data(Failure::new(kind, &why), &told);
    match told.text("state").as_deref().and_then(parse_task_state) {
        Some(TaskState::Rejected) => TaskStep::Rejected(failure(FailureKind::Rejected)),
        Some(TaskState::Canceled) => TaskStep::Cancelled { why },
        _ => TaskStep::Failed(failure(FailureKind::Internal)),
    }
}

fn with_data(failure: Failure, told: &RawObject) -> Failure {
    match told.is_empty() {
        true => failure,
        false => failure.with_data(serde_json::to_value(told).unwrap_or_default()),
    }
}

/// Converts a direct reply to parts. An empty reply gives one part with an empty text.
pub(crate) fn direct_reply_parts(result: &ToolResult) -> Vec<Part> {
    match result_parts(result) {
        parts if parts.is_empty() => vec![block_to_part(&Content::text(""))],
        parts => parts,
    }
}

/// Key in the metadata of tasks and events: the number of the task's latest event. Numbers increase
/// within a task.
pub(crate) const EVENT_METADATA: &str = "callboard/event";

/// Converts a failure that occurs before a message's task exists. A later failure becomes the
/// task's state instead of an error.
impl From<Failure> for A2aError {
    fn from(failure: Failure) -> Self {
        let kind = match failure.kind {
            FailureKind::InvalidInput | FailureKind::NotFound => ErrorKind::InvalidParams,
            FailureKind::Denied => ErrorKind::Denied,
            FailureKind::Blocked | FailureKind::Rejected => ErrorKind::Blocked,
            FailureKind::Overloaded | FailureKind::Unavailable | FailureKind::TimedOut => {
                ErrorKind::Overloaded
            }
            _ => return Self::internal(),
        };
        let data = failure.data.as_ref();
        let wait = data.and_then(|data| data.get(RETRY_AFTER_DATA_KEY)?.as_u64());
        let retry = wait.map(|seconds| {
            RawObject::single("@type", RETRY_INFO).with("retryDelay", format!("{seconds}s"))
        });
        let error = kind.error(failure.message);
        Self {
            retry_after_s: wait,
            details: retry.into_iter().collect(),
            ..error
        }
    }
}

/// Converts an error of the task store to the error of the operation.
impl From<JournalError> for A2aError {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Invalid(why) => ErrorKind::InvalidParams.error(why),
            JournalError::Fenced { .. } | JournalError::Damaged(_) | JournalError::Store(_) => {
                callboard_message::log::error!(%error, "the task store failed");
                Self::internal()
            }
            other => ErrorKind::Overloaded.error(other.to_string()),
        }
    }
}

/// Converts the error of a task that can't begin, or can't apply a step.
impl From<TaskError> for A2aError {
    fn from(error: TaskError) -> Self {
        let kind = match error {
            TaskError::Journal(error) => return error.into(),
            TaskError::NotFound => ErrorKind::TaskNotFound,
            TaskError::HasEnded(_) | TaskError::Illegal { .. } => ErrorKind::UnsupportedOperation,
            TaskError::KeyReused | TaskError::TooLarge { .. } => ErrorKind::InvalidParams,
            TaskError::TooMany { .. }
            | TaskError::TooManyEvents { .. }
            | TaskError::ResultNotStored(_)
            | TaskError::NotRunning
            | TaskError::LostLease => ErrorKind::Overloaded,
            _ => return Self::internal(),
        };
        kind.error(error.to_string())
    }
}
