//! What a remote agent's answer is to whoever called.

use callboard_message::{
    Content, FAILURE, Failure, FailureKind, RawObject, SAID_AT_ONCE, SHOWN, TaskState, ToolResult,
};
use serde_json::value::{RawValue, to_raw_value};

use super::error::{AgentError, PeerError};
use super::story::Story;
use super::tools::Skill;
use crate::convert::content_of;
use crate::wire::{Message, Part};

/// Member of a result's `_meta`: task, conversation and state at the agent's.
const A2A: &str = "a2a";

/// The result of a tool.
///
/// # Errors
/// Where the task was cancelled.
pub(super) fn result(story: &Story) -> Result<ToolResult, Failure> {
    let parts = parts(story);
    let mut place = place(story);
    let failed = match (story.state, &story.message) {
        (_, Some(_)) | (Some(TaskState::Completed), None) => None,
        (Some(TaskState::Canceled), None) => return Err(failure(story)),
        _ => Some(failure(story)),
    };
    let mut meta = RawObject::of(A2A, &place);
    if let Some(failure) = failed {
        let reason = [Content::text(&failure.message)];
        place.set("reason", &failure.message);
        let told = ToolResult::of(reason.into_iter().chain(content_of(&parts)))
            .structured(place)
            .0;
        return Ok(ToolResult(told.with("isError", true).with("_meta", meta)));
    }
    if story.message.is_some() {
        meta.set(SAID_AT_ONCE, true);
    } else if !story.artifacts.is_empty() {
        meta.set(SHOWN, true);
    }
    let last = last_parts(story);
    let (mut content, value) = valued(&parts);
    content.extend(content_of(&last));
    let mut told = ToolResult::of(content);
    if let Some(value) = value.or_else(|| parts.is_empty().then(|| only_object(&last)).flatten()) {
        told.0.set_raw("structuredContent", value);
    }
    Ok(ToolResult(told.0.with("_meta", meta)))
}

/// The answer as a plain value.
///
/// # Errors
/// Where the task came to another end than completion.
pub(super) fn value(story: &Story, skill: Option<&Skill>) -> Result<Box<RawValue>, Failure> {
    if story.message.is_none() && story.state != Some(TaskState::Completed) {
        return Err(failure(story));
    }
    let artifacts = parts(story);
    let parts = if artifacts.is_empty() {
        last_parts(story)
    } else {
        artifacts
    };
    if let ([only], true) = (&*parts, skill.is_some_and(|skill| skill.answers_text))
        && let Some(text) = only.as_text()
    {
        return Ok(to_raw_value(text).unwrap_or_default());
    }
    let (content, value) = valued(&parts);
    let mut told = ToolResult::of(content);
    if let Some(value) = value {
        told.0.set_raw("structuredContent", value);
    }
    told.into_value(skill.is_some_and(|skill| skill.is_wrapped))
}

/// What an agent refused, for the model that called.
pub(super) fn refused(error: AgentError) -> ToolResult {
    let failure = Failure::from(PeerError::Agent(error.clone()));
    let told = RawObject::of("a2aErrorCode", error.code).with("reason", &failure.message);
    let ours = RawObject::of("kind", failure.kind);
    let result = ToolResult::error(&failure.message).structured(told).0;
    ToolResult(result.with("_meta", RawObject::of(FAILURE, ours)))
}

/// Why there is no result.
fn failure(story: &Story) -> Failure {
    let (kind, otherwise) = match story.state {
        Some(TaskState::Canceled) => (FailureKind::Cancelled, "the agent cancelled the task"),
        Some(TaskState::Failed) => (FailureKind::Rejected, "the agent's task failed"),
        _ => (FailureKind::Rejected, "the agent refused"),
    };
    let said = story
        .said
        .as_ref()
        .map(Message::text)
        .filter(|text| !text.is_empty());
    let told = serde_json::to_value(place(story)).unwrap_or_default();
    Failure::new(kind, said.unwrap_or_else(|| otherwise.to_owned())).with_data(told)
}

fn place(story: &Story) -> RawObject {
    let mut place = RawObject::new();
    for (name, id) in [("taskId", &story.task), ("contextId", &story.context)] {
        if !id.is_empty() {
            place.set(name, id);
        }
    }
    if let Some(state) = story.state {
        place.set("state", state);
    }
    place
}

fn parts(story: &Story) -> Vec<Part> {
    story
        .artifacts
        .iter()
        .flat_map(|artifact| &artifact.parts)
        .cloned()
        .collect()
}

/// Parts of the last message, or of those that are the answer in place of one.
fn last_parts(story: &Story) -> Vec<Part> {
    let interim = story.interim_answer();
    let last = story
        .message
        .as_ref()
        .or(story.said.as_ref())
        .filter(|_| interim.is_empty());
    last.into_iter()
        .chain(interim)
        .flat_map(|message| message.parts.iter().cloned())
        .collect()
}

/// Blocks, and the value for programs, which isn't repeated beside others.
fn valued(parts: &[Part]) -> (Vec<Content>, Option<Box<RawValue>>) {
    let value = only_object(parts);
    let mut content = content_of(parts);
    if value.is_some() && content.len() > 1 {
        let at = parts.iter().position(|part| part.as_data().is_some());
        at.map(|at| content.remove(at));
    }
    (content, value)
}

/// The only data part, if it is an object.
fn only_object(parts: &[Part]) -> Option<Box<RawValue>> {
    let mut data = parts.iter().filter_map(Part::as_data);
    let only = data.next().filter(|_| data.next().is_none())?;
    only.get().starts_with('{').then(|| only.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::wire::Artifact;

    fn data(value: Value) -> Part {
        Part::data(to_raw_value(&value).unwrap())
    }

    fn story(state: TaskState, parts: Vec<Part>, said: Option<&str>) -> Story {
        let artifact = Artifact {
            artifact_id: "a".into(),
            parts,
            ..Artifact::default()
        };
        let said = said.map(|text| Message {
            parts: vec![Part::text(text)],
            ..Message::default()
        });
        let artifacts = if artifact.parts.is_empty() {
            vec![]
        } else {
            vec![artifact]
        };
        let mut story = Story::of("t", "c");
        (story.state, story.artifacts, story.said) = (Some(state), artifacts, said);
        story
    }

    fn json(result: &ToolResult) -> Value {
        serde_json::to_value(result).unwrap()
    }

    /// Goal: a completed task is a result with all that it made, its value once. Method: texts, a value, both, a last word.
    #[test]
    fn completed_tasks_are_results() {
        let told = result(&story(
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
        let told =
            json(&result(&story(TaskState::Completed, vec![data(json!([1]))], None)).unwrap());
        assert_eq!(
            (
                told["content"][0]["text"].as_str(),
                told.get("structuredContent")
            ),
            (Some("[1]"), None)
        );
    }

    /// Goal: whoever asks by a type gets the plain value. Method: each shape.
    #[test]
    fn values_are_plain() {
        let plain = |parts: Vec<Part>, said| {
            let value = value(&story(TaskState::Completed, parts, said), None).unwrap();
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

    /// Goal: other ends say what they are and why. Method: failed and rejected as results and as failures; cancelled.
    #[test]
    fn other_ends_are_told() {
        for (state, said, reason) in [
            (TaskState::Failed, Some("no disk"), "no disk"),
            (TaskState::Rejected, None, "the agent refused"),
        ] {
            let told = json(&result(&story(state, vec![], said)).unwrap());
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
            let failure = value(&story(state, vec![], said), None).unwrap_err();
            assert_eq!(
                (failure.kind, failure.message.as_str()),
                (FailureKind::Rejected, reason)
            );
        }
        assert_eq!(
            result(&story(TaskState::Canceled, vec![], None))
                .unwrap_err()
                .kind,
            FailureKind::Cancelled
        );
    }
}
