//! Results of calls as an artifact and the end of a task; failures as errors of A2A.

use callboard_message::json::Walk;
use callboard_message::{
    Content, Failure, FailureKind, RawObject, RawReply, SAID_AT_ONCE, SHOWN, TaskState, ToolResult,
};
use callboard_runtime::{JournalError, TaskError, TaskStep};
use serde_json::Value;
use serde_json::value::RawValue;

use super::content::part_of;
use crate::wire::{Artifact, Part, Wire as _, state_of, written_about};
use crate::{A2aError, ErrorKind};

/// Bytes of a part around its text, and of an artifact around its name and parts.
const PART_BYTES: usize = 10;
const RESULT_BYTES: usize = 50;
/// The id of the artifact that is what a call answered.
const RESULT: &str = "result";

/// What becomes of a task whose call has ended.
pub(crate) struct Ended {
    /// What it made, as 1.0 writes it, where that isn't among its artifacts.
    pub(crate) artifact: Option<Box<RawValue>>,
    /// Its end.
    pub(crate) step: TaskStep,
}

/// `is_result`: the reply is a tool result, and no plain value. `has_all`: every artifact that the call gave is kept.
pub(crate) fn ended(reply: RawReply, skill: &str, is_result: bool, has_all: bool) -> Ended {
    let reply = match reply {
        Ok(reply) => reply,
        Err(failure) => {
            return Ended {
                artifact: None,
                step: failed(failure),
            };
        }
    };
    if !is_result {
        let artifact = plain(&reply).map(|part| result(skill, vec![part]));
        return Ended {
            artifact,
            step: TaskStep::Completed(reply),
        };
    }
    if let Some(artifact) = texts_of(&reply, skill) {
        return Ended {
            artifact: Some(artifact),
            step: TaskStep::Completed(reply),
        };
    }
    let Ok(told) = ToolResult::parse(&reply) else {
        let why = Failure::internal("the agent's answer can't be read");
        return Ended {
            artifact: None,
            step: TaskStep::Failed(why),
        };
    };
    if told.is_error() {
        return Ended {
            artifact: None,
            step: failed_by(&told),
        };
    }
    if is_marked(&told, SAID_AT_ONCE) || (has_all && is_marked(&told, SHOWN)) {
        return Ended {
            artifact: None,
            step: TaskStep::Completed(reply),
        };
    }
    let parts = result_of(&told);
    let artifact = (!parts.is_empty()).then(|| result(skill, parts));
    Ended {
        artifact,
        step: TaskStep::Completed(reply),
    }
}

fn result(skill: &str, parts: Vec<Part>) -> Box<RawValue> {
    Artifact {
        artifact_id: RESULT.to_owned(),
        name: skill.to_owned(),
        parts,
        ..Artifact::default()
    }
    .to_raw()
}

/// The same of a result that is texts and nothing else, without reading them.
fn texts_of(reply: &RawValue, skill: &str) -> Option<Box<RawValue>> {
    let mut members = Walk::object(reply)?;
    let (name, blocks) = members.next()?;
    if name != "content" || members.next().is_some() {
        return None;
    }
    let texts: Vec<&RawValue> = Walk::list(blocks)?.map(text_of).collect::<Option<_>>()?;
    let bytes: usize = texts.iter().map(|text| text.get().len() + PART_BYTES).sum();
    (!texts.is_empty()).then(|| {
        written_about(bytes + RESULT_BYTES + skill.len(), |out| {
            let mut artifact = out.object();
            artifact.text("artifactId", RESULT);
            artifact.words("name", skill);
            artifact.list("parts", texts, |text, out| {
                let mut part = out.object();
                part.member("text").json(text.get());
                part.end();
            });
            artifact.end();
        })
    })
}

/// The text of a block that has nothing else, as it is written.
fn text_of(block: &RawValue) -> Option<&RawValue> {
    let (mut members, mut kind, mut text) = (Walk::object(block)?, None, None);
    for (name, value) in members.by_ref() {
        match &*name {
            "type" => kind = Some(value.get()),
            "text" => text = Some(value),
            _ => return None,
        }
    }
    text.filter(|text| kind == Some("\"text\"") && text.get().starts_with('"'))
}

/// Whether a reply is what somebody says at once, and no task's result.
pub(crate) fn is_said_at_once(reply: &RawValue) -> Option<ToolResult> {
    // Most aren't, and then nothing is read.
    let told = reply
        .get()
        .contains(SAID_AT_ONCE)
        .then(|| ToolResult::parse(reply).ok())??;
    is_marked(&told, SAID_AT_ONCE).then_some(told)
}

fn is_marked(result: &ToolResult, mark: &str) -> bool {
    result
        .0
        .object("_meta")
        .and_then(|meta| meta.read::<bool>(mark))
        .unwrap_or_default()
}

/// A tool's result as parts: its blocks, and its value for programs in place of the text that repeats it.
fn result_of(result: &ToolResult) -> Vec<Part> {
    let mut parts: Vec<Part> = result.content().iter().map(part_of).collect();
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

/// A plain value: text as text, nothing as nothing.
fn plain(reply: &RawValue) -> Option<Part> {
    match reply.get().as_bytes().first()? {
        b'n' => None,
        b'"' => serde_json::from_str::<String>(reply.get())
            .ok()
            .map(Part::text),
        _ => Some(Part::data(reply.to_owned())),
    }
}

fn failed(failure: Failure) -> TaskStep {
    match failure.kind {
        FailureKind::Rejected => TaskStep::Rejected(failure),
        FailureKind::Cancelled => TaskStep::Cancelled {
            why: failure.message,
        },
        _ => TaskStep::Failed(failure),
    }
}

/// A tool that says what went wrong; what stands for an agent elsewhere says how its task ended.
fn failed_by(result: &ToolResult) -> TaskStep {
    let told = result.0.object("structuredContent").unwrap_or_default();
    let said = Some(result.texts()).filter(|said| !said.is_empty());
    let why = said
        .or_else(|| told.text("reason"))
        .unwrap_or_else(|| "the agent failed".to_owned());
    let failure = |kind| with_data(Failure::new(kind, &why), &told);
    match told.text("state").as_deref().and_then(state_of) {
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

/// What somebody says at once, as parts.
pub(crate) fn said_parts(result: &ToolResult) -> Vec<Part> {
    match result_of(result) {
        parts if parts.is_empty() => vec![part_of(&Content::text(""))],
        parts => parts,
    }
}

/// Member of the metadata of tasks and events: the number of the task's last event, which only grows.
pub(crate) const EVENT: &str = "callboard/event";

/// The reason why a message isn't taken. Once there is a task, a failure is its state instead.
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
        kind.error(failure.message)
    }
}

/// A failure of the store of tasks.
impl From<JournalError> for A2aError {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Invalid(why) => ErrorKind::InvalidParams.error(why),
            JournalError::Fenced { .. } | JournalError::Damaged(_) | JournalError::Store(_) => {
                callboard_message::log::error!(%error, "the store of tasks failed");
                Self::internal()
            }
            other => ErrorKind::Overloaded.error(other.to_string()),
        }
    }
}

/// The reason why a task isn't begun, or doesn't take a step.
impl From<TaskError> for A2aError {
    fn from(error: TaskError) -> Self {
        let kind = match error {
            TaskError::Journal(error) => return error.into(),
            TaskError::NotFound => ErrorKind::TaskNotFound,
            TaskError::HasEnded(_) | TaskError::Illegal { .. } => ErrorKind::UnsupportedOperation,
            TaskError::KeyReused | TaskError::TooLarge { .. } => ErrorKind::InvalidParams,
            TaskError::TooMany { .. } | TaskError::TooManyEvents { .. } | TaskError::LostLease => {
                ErrorKind::Overloaded
            }
            _ => return Self::internal(),
        };
        kind.error(error.to_string())
    }
}
