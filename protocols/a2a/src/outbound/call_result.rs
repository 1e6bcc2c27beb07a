//! Results of remote tasks, as tool results or plain values for the caller.

use callboard_message::{
    ARTIFACTS_SENT_META_KEY, Content, DIRECT_MESSAGE_META_KEY, FAILURE_META_KEY, Failure,
    FailureKind, RawObject, TaskState, ToolResult,
};
use serde_json::value::{RawValue, to_raw_value};

use super::error::{A2aClientError, RemoteAgentError};
use super::task_state::RemoteTaskState;
use super::tools::SkillTool;
use crate::convert::parts_to_content;
use crate::wire::{A2aMessage, Part};

/// Member of a tool result's `_meta` that contains id, context and state of the remote task.
const A2A: &str = "a2a";

/// Converts a task's result to a tool result. For a failed or rejected task it is an error result.
///
/// # Errors
/// [`Failure`] of kind `Cancelled` if the task was cancelled.
pub(super) fn to_tool_result(task: &RemoteTaskState) -> Result<ToolResult, Failure> {
    let parts = artifact_parts(task);
    let mut place = task_reference(task);
    let failed = match (task.state, &task.direct_reply) {
        (_, Some(_)) | (Some(TaskState::Completed), None) => None,
        (Some(TaskState::Canceled), None) => return Err(to_failure(task)),
        _ => Some(to_failure(task)),
    };
    let mut meta = RawObject::single(A2A, &place);
    if let Some(failure) = failed {
        let reason = [Content::text(&failure.message)];
        place.set("reason", &failure.message);
        let told = ToolResult::from_content(reason.into_iter().chain(parts_to_content(&parts)))
            .with_structured_content(place)
            .0;
        return Ok(ToolResult(told.with("isError", true).with("_meta", meta)));
    }
    if task.direct_reply.is_some() {
        meta.set(DIRECT_MESSAGE_META_KEY, true);
    } else if !task.artifacts.is_empty() {
        meta.set(ARTIFACTS_SENT_META_KEY, true);
    }
    let last = final_message_parts(task);
    let (mut content, value) = content_and_value(&parts);
    content.extend(parts_to_content(&last));
    let mut told = ToolResult::from_content(content);
    if let Some(value) =
        value.or_else(|| parts.is_empty().then(|| sole_data_object(&last)).flatten())
    {
        told.0.set_raw("structuredContent", value);
    }
    Ok(ToolResult(told.0.with("_meta", meta)))
}

/// Converts a task's result to a plain value, for a call of the skill as a message type.
///
/// # Errors
/// [`Failure`] if the task didn't complete.
pub(super) fn to_value(
    task: &RemoteTaskState,
    skill: Option<&SkillTool>,
) -> Result<Box<RawValue>, Failure> {
    if task.direct_reply.is_none() && task.state != Some(TaskState::Completed) {
        return Err(to_failure(task));
    }
    let artifacts = artifact_parts(task);
    let parts = if artifacts.is_empty() {
        final_message_parts(task)
    } else {
        artifacts
    };
    if let ([only], true) = (&*parts, skill.is_some_and(|skill| skill.answers_text))
        && let Some(text) = only.as_text()
    {
        return Ok(to_raw_value(text).unwrap_or_default());
    }
    let (content, value) = content_and_value(&parts);
    let mut told = ToolResult::from_content(content);
    if let Some(value) = value {
        told.0.set_raw("structuredContent", value);
    }
    told.into_value(skill.is_some_and(|skill| skill.is_wrapped))
}

/// Converts an error response of the remote agent to an error tool result, so that the calling
/// model sees it.
pub(super) fn error_tool_result(error: RemoteAgentError) -> ToolResult {
    let failure = Failure::from(A2aClientError::Agent(error.clone()));
    let told = RawObject::single("a2aErrorCode", error.code).with("reason", &failure.message);
    let ours = RawObject::single("kind", failure.kind);
    let result = ToolResult::error(&failure.message)
        .with_structured_content(told)
        .0;
    ToolResult(result.with("_meta", RawObject::single(FAILURE_META_KEY, ours)))
}

/// Returns the failure for a task that ended without completing.
fn to_failure(task: &RemoteTaskState) -> Failure {
    let (kind, otherwise) = match task.state {
        Some(TaskState::Canceled) => (FailureKind::Cancelled, "the agent cancelled the task"),
        Some(TaskState::Failed) => (FailureKind::Rejected, "the agent's task failed"),
        _ => (FailureKind::Rejected, "the agent refused"),
    };
    let said = task
        .status_message
        .as_ref()
        .map(A2aMessage::text)
        .filter(|text| !text.is_empty());
    let told = serde_json::to_value(task_reference(task)).unwrap_or_default();
    Failure::new(kind, said.unwrap_or_else(|| otherwise.to_owned())).with_data(told)
}

fn task_reference(task: &RemoteTaskState) -> RawObject {
    let mut place = RawObject::new();
    for (name, id) in [("taskId", &task.task_id), ("contextId", &task.context_id)] {
        if !id.is_empty() {
            place.set(name, id);
        }
    }
    if let Some(state) = task.state {
        place.set("state", state);
    }
    place
}

fn artifact_parts(task: &RemoteTaskState) -> Vec<Part> {
    task.artifacts
        .iter()
        .flat_map(|artifact| &artifact.parts)
        .cloned()
        .collect()
}

/// Returns the parts of the agent's final message. If the task ended without one, these are the
/// parts of the interim messages that serve as its answer.
fn final_message_parts(task: &RemoteTaskState) -> Vec<Part> {
    let interim = task.interim_answer();
    let last = task
        .direct_reply
        .as_ref()
        .or(task.status_message.as_ref())
        .filter(|_| interim.is_empty());
    last.into_iter()
        .chain(interim)
        .flat_map(|message| message.parts.iter().cloned())
        .collect()
}

/// Converts parts to content blocks, and returns the only data object as the structured value. The
/// block of that object is omitted if there are other blocks.
fn content_and_value(parts: &[Part]) -> (Vec<Content>, Option<Box<RawValue>>) {
    let value = sole_data_object(parts);
    let mut content = parts_to_content(parts);
    if value.is_some() && content.len() > 1 {
        let at = parts.iter().position(|part| part.as_data().is_some());
        at.map(|at| content.remove(at));
    }
    (content, value)
}

/// Returns the data part's value, if there is exactly one data part and its value is an object.
fn sole_data_object(parts: &[Part]) -> Option<Box<RawValue>> {
    let mut data = parts.iter().filter_map(Part::as_data);
    let only = data.next().filter(|_| data.next().is_none())?;
    only.get().starts_with('{').then(|| only.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::wire::A2aArtifact;

    fn data(value: Value) -> Part {
        Part::data(to_raw_value(&value).unwrap())
    }

    fn task(state: TaskState, parts: Vec<Part>, said: Option<&str>) -> RemoteTaskState {
        let artifact = A2aArtifact {
            artifact_id: "a".into(),
            parts,
            ..A2aArtifact::default()
        };
        let said = said.map(|text| A2aMessage {
            parts: vec![Part::text(text)],
            ..A2aMessage::default()
        });
        let artifacts = if artifact.parts.is_empty() {
            vec![]
        } else {
            vec![artifact]
        };
        let mut task = RemoteTaskState::for_task("t", "c");
        (task.state, task.artifacts, task.status_message) = (Some(state), artifacts, said);
        task
    }

    fn json(result: &ToolResult) -> Value {
        serde_json::to_value(result).unwrap()
    }

    /// Goal: a completed task is a result with all that it made, its value once. Method: texts, a
    /// value, both, a last message.
    #[test]
    fn completed_tasks_are_results() {
        let told = to_tool_result(&task(
            TaskState::Completed,
            vec![Part::text("a"), data(json!({ "n": 1 }))],
            Some("bye"),
        ));
        let told = json(&told.unwrap());
        assert_eq!(
            told["content"],
            json!([{ "type": "text", "text": "a" }, { "type": "text", "text": "bye" }])
        );
        assert_eq!(told["structuredContent"], json!({ "n": 1 }));
        let place = json!({ "taskId": "t", "contextId": "c", "state": "completed" });
        assert_eq!(
            told["_meta"],
            json!({ "a2a": place, "callboard/shown": true })
        );
        let told = json(
            &to_tool_result(&task(TaskState::Completed, vec![data(json!([1]))], None)).unwrap(),
        );
        assert_eq!(
            (
                told["content"][0]["text"].as_str(),
                told.get("structuredContent")
            ),
            (Some("[1]"), None)
        );
    }

    /// Goal: a typed request gets the plain value. Method: each shape.
    #[test]
    fn values_are_plain() {
        let plain = |parts: Vec<Part>, said| {
            let value = to_value(&task(TaskState::Completed, parts, said), None).unwrap();
            serde_json::from_str::<Value>(value.get()).unwrap()
        };
        assert_eq!(
            plain(vec![data(json!({ "n": 1 }))], Some("bye")),
            json!({ "n": 1 })
        );
        assert_eq!(plain(vec![data(json!(7))], None), json!(7));
        assert_eq!(plain(vec![Part::text("words")], None), json!("words"));
        assert_eq!(plain(vec![], Some("said")), json!("said"));
        assert_eq!(plain(vec![], None), json!(null));
    }

    /// Goal: other final states are reported with their reasons. Method: failed and rejected as
    /// results and as failures; cancelled.
    #[test]
    fn other_ends_are_told() {
        for (state, said, reason) in [
            (TaskState::Failed, Some("no disk"), "no disk"),
            (TaskState::Rejected, None, "the agent refused"),
        ] {
            let told = json(&to_tool_result(&task(state, vec![], said)).unwrap());
            assert_eq!(
                (
                    told["isError"].as_bool(),
                    told["content"][0]["text"].as_str()
                ),
                (Some(true), Some(reason))
            );
            let expected =
                json!({ "taskId": "t", "contextId": "c", "state": state, "reason": reason });
            assert_eq!(told["structuredContent"], expected);
            let failure = to_value(&task(state, vec![], said), None).unwrap_err();
            assert_eq!(
                (failure.kind, failure.message.as_str()),
                (FailureKind::Rejected, reason)
            );
        }
        assert_eq!(
            to_tool_result(&task(TaskState::Canceled, vec![], None))
                .unwrap_err()
                .kind,
            FailureKind::Cancelled
        );
    }
}
