//! State of a remote task as seen by one call, and the interim messages of its agent.

use std::collections::HashSet;
use std::time::SystemTime;

use callboard_message::{RawObject, TaskState};
use serde_json::{Value, json};

use super::error::A2aClientError;
use super::options::{CALL_EVENTS_MAX, HISTORY_MESSAGES_MAX};
use crate::convert::EVENT_METADATA;
use crate::wire::{
    A2aArtifact, A2aMessage, A2aTask, Part, PartContent, Role, SendMessageResponse, StreamResponse,
    TaskStatus, append_parts, parts_beyond,
};

/// Maximum total size of a call's artifacts and interim messages, in bytes.
/// At the limit: `Overloaded`, and the remote task is cancelled.
pub const ARTIFACT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// State of a remote task or direct reply, collected from stream events and polls.
#[derive(Default)]
pub(super) struct RemoteTaskState {
    /// Id of the task; empty until it is known.
    pub(super) task_id: String,
    pub(super) context_id: String,
    pub(super) state: Option<TaskState>,
    /// The agent's message in the task's latest status.
    pub(super) status_message: Option<A2aMessage>,
    status_since: Option<SystemTime>,
    /// Artifacts in the order of their first event.
    pub(super) artifacts: Vec<A2aArtifact>,
    /// The agent's reply, if it responded with a message instead of a task.
    pub(super) direct_reply: Option<A2aMessage>,
    /// Messages that the agent sent while the task was working.
    interim: InterimMessages,
    /// Whether the task ended by an event with its status alone, not with the whole task.
    ended_by_status: bool,
    /// Number of the last event, if the agent numbers its events.
    last_event: Option<u64>,
    status: Option<StatusKey>,
    /// Status whose question the client has answered.
    answered_status: Option<StatusKey>,
    events: u32,
    bytes: usize,
}

/// Identity of a status, by which a repeated status is recognised.
#[derive(Clone, PartialEq)]
struct StatusKey {
    state: TaskState,
    since: Option<SystemTime>,
    message: String,
    /// Text of the message. It distinguishes the messages of agents that send several in one
    /// millisecond, all without ids.
    text: String,
}

/// Change of a task that is reported to the caller: progress or an artifact.
pub(super) enum TaskUpdate {
    Progress(String),
    Artifact {
        artifact: A2aArtifact,
        append: bool,
        last: bool,
    },
}

impl RemoteTaskState {
    /// Creates the state of a new call. `task` and `context` are the ids of task and conversation,
    /// each empty if not yet known.
    pub(super) fn for_task(task: &str, context: &str) -> Self {
        Self {
            task_id: task.to_owned(),
            context_id: context.to_owned(),
            ..Self::default()
        }
    }

    /// Returns the ids of task and conversation as JSON, by which a later message can continue the
    /// conversation.
    pub(super) fn task_reference(&self) -> Value {
        json!({ "taskId": self.task_id, "contextId": self.context_id })
    }

    /// Returns whether the agent numbers its events. Then no event is lost or repeated when a
    /// stream is resumed.
    pub(super) fn has_event_numbers(&self) -> bool {
        self.last_event.is_some()
    }

    /// Returns whether there is nothing left to wait for: there is a direct reply, the task has
    /// ended, or it has an unanswered question.
    pub(super) fn is_settled(&self) -> bool {
        self.direct_reply.is_some() || self.has_ended() || self.is_paused()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state.is_some_and(TaskState::is_terminal)
    }

    pub(super) fn is_paused(&self) -> bool {
        let waits = matches!(
            self.state,
            Some(TaskState::InputRequired | TaskState::AuthRequired)
        );
        waits
            && self
                .answered_status
                .as_ref()
                .is_none_or(|answered| self.status.as_ref() != Some(answered))
    }

    /// Marks the current question as answered. Until the agent sends a new status, the task counts
    /// as working.
    pub(super) fn mark_answered(&mut self) {
        // Without a time or an id the next status couldn't be distinguished from this one.
        let can_tell = |status: &&StatusKey| status.since.is_some() || !status.message.is_empty();
        self.answered_status = self.status.as_ref().filter(can_tell).cloned();
        self.state = Some(TaskState::Working);
    }

    /// Applies an event and returns the changes to report to the caller; `None` if the event isn't
    /// new. `resumed` tells that the stream continues an earlier one.
    ///
    /// # Errors
    /// [`A2aClientError::TooLarge`] beyond [`CALL_EVENTS_MAX`] or [`ARTIFACT_BYTES_MAX`].
    pub(super) fn apply_event(
        &mut self,
        event: &StreamResponse,
        resumed: bool,
    ) -> Result<Option<Vec<TaskUpdate>>, A2aClientError> {
        self.events += 1;
        if self.events > CALL_EVENTS_MAX {
            return Err(A2aClientError::TooLarge);
        }
        match event {
            StreamResponse::Message(message) if self.is_own_task(&message.task_id) => {
                self.record_ids("", &message.context_id);
                self.direct_reply = Some(message.clone());
                Ok(Some(Vec::new()))
            }
            // All later events follow on the stream.
            StreamResponse::Task(_) if resumed && self.has_event_numbers() => Ok(None),
            StreamResponse::Task(task) => self.apply_task(task),
            StreamResponse::StatusUpdate(update)
                if self.is_own_task(&update.task_id) && self.is_new_event(&update.metadata) =>
            {
                self.record_ids(&update.task_id, &update.context_id);
                self.ended_by_status |= !self.has_ended() && update.status.state.is_terminal();
                // Its number distinguishes it from an otherwise equal status.
                self.apply_status(&update.status, event_number(&update.metadata).is_some())
            }
            StreamResponse::ArtifactUpdate(update)
                if self.is_own_task(&update.task_id)
                    && self.is_new_event(&update.metadata)
                    && !self.has_ended() =>
            {
                self.record_ids(&update.task_id, &update.context_id);
                let news =
                    self.apply_artifact(update.artifact.clone(), update.append, update.last_chunk)?;
                Ok(Some(vec![news]))
            }
            _ => Ok(None),
        }
    }

    /// Applies a task's current state and returns the changes to report to the caller; `None` if
    /// nothing has changed.
    ///
    /// # Errors
    /// [`A2aClientError::TooLarge`] beyond [`ARTIFACT_BYTES_MAX`].
    pub(super) fn apply_task(
        &mut self,
        task: &A2aTask,
    ) -> Result<Option<Vec<TaskUpdate>>, A2aClientError> {
        if !self.is_own_task(&task.id) || self.has_ended() && !task.status.state.is_terminal() {
            return Ok(None);
        }
        self.record_ids(&task.id, &task.context_id);
        self.last_event = self.last_event.max(event_number(&task.metadata));
        let mut news = Vec::new();
        for artifact in task.artifacts.iter().flatten() {
            news.extend(self.reconcile_artifact(artifact)?);
        }
        self.apply_history(task)?;
        let status = self.apply_status(&task.status, false)?;
        let is_news = status.is_some() || !news.is_empty();
        news.extend(status.into_iter().flatten());
        Ok(is_news.then_some(news))
    }

    /// Adds the agent's messages in a task's history to the interim messages.
    ///
    /// # Errors
    /// [`A2aClientError::TooLarge`] beyond [`ARTIFACT_BYTES_MAX`].
    pub(super) fn apply_history(&mut self, task: &A2aTask) -> Result<(), A2aClientError> {
        let added = self
            .interim
            .add_history(task.history.as_deref().unwrap_or_default(), &task.status)?;
        self.add_bytes(added)
    }

    /// Returns whether the task is completed and has neither artifacts nor a message in its last
    /// status.
    pub(super) fn ended_without_answer(&self) -> bool {
        let says_nothing = self
            .status_message
            .as_ref()
            .is_none_or(|said| said.parts.is_empty());
        let made_nothing = self
            .artifacts
            .iter()
            .all(|artifact| artifact.parts.is_empty());
        self.state == Some(TaskState::Completed)
            && self.direct_reply.is_none()
            && says_nothing
            && made_nothing
    }

    /// Returns whether the task was completed by a status event and has told nothing, also on the
    /// way: the task itself may have an answer. That isn't asked of agents that number their
    /// events: nothing of theirs is elsewhere.
    pub(super) fn ended_in_silence(&self) -> bool {
        self.ended_by_status
            && self.ended_without_answer()
            && !self.has_event_numbers()
            && self.interim.messages.is_empty()
    }

    /// Returns the agent's interim messages, in order, if they serve as the answer of a task that
    /// ended without one; otherwise an empty slice. It is always empty for agents that number their
    /// events: these are callboards, whose interim messages are only progress.
    pub(super) fn interim_answer(&self) -> &[A2aMessage] {
        if self.ended_without_answer() && !self.has_event_numbers() {
            &self.interim.messages
        } else {
            &[]
        }
    }

    /// Converts the state to a response to `SendMessage`: the direct reply or the task.
    pub(super) fn into_response(self) -> SendMessageResponse {
        if let Some(message) = self.direct_reply {
            return SendMessageResponse::Message(message);
        }
        let history = Some(self.interim_answer().to_vec()).filter(|said| !said.is_empty());
        let state = self.state.unwrap_or(TaskState::Submitted);
        let status = TaskStatus {
            state,
            message: self.status_message,
            timestamp: self.status_since,
        };
        let artifacts = (!self.artifacts.is_empty()).then_some(self.artifacts);
        SendMessageResponse::Task(A2aTask {
            artifacts,
            history,
            ..A2aTask::new(self.task_id, self.context_id, status)
        })
    }

    /// Returns whether an event of the task `task` belongs to this state: it is the same task, or
    /// this state's task isn't known yet.
    fn is_own_task(&self, task: &str) -> bool {
        let is_ours = task.is_empty() || self.task_id.is_empty() || task == self.task_id;
        if !is_ours {
            callboard_message::log::debug!("ignored an event of another task from a remote agent");
        }
        is_ours
    }

    fn record_ids(&mut self, task: &str, context: &str) {
        if self.task_id.is_empty() {
            task.clone_into(&mut self.task_id);
        }
        if !context.is_empty() {
            context.clone_into(&mut self.context_id);
        }
    }

    /// Returns whether an event's number is higher than that of the last event, and records it. An
    /// event without a number counts as new.
    fn is_new_event(&mut self, metadata: &Option<RawObject>) -> bool {
        let Some(number) = event_number(metadata) else {
            return true;
        };
        let is_new = self.last_event.is_none_or(|last| number > last);
        self.last_event = self.last_event.max(Some(number));
        is_new
    }

    fn apply_status(
        &mut self,
        status: &TaskStatus,
        is_another: bool,
    ) -> Result<Option<Vec<TaskUpdate>>, A2aClientError> {
        if self.has_ended() {
            return Ok(None);
        }
        // Some agents of 0.1 repeat the user's message in the status.
        let said = status.message.as_ref();
        let said = said.filter(|message| message.role != Role::User);
        let text = said.map(A2aMessage::text).unwrap_or_default();
        let key = StatusKey {
            state: status.state,
            since: status.timestamp,
            message: said.map_or_else(String::new, |said| said.message_id.clone()),
            text: text.clone(),
        };
        self.state = Some(status.state);
        if !is_another && self.status.as_ref() == Some(&key) {
            return Ok(None);
        }
        if let (TaskState::Working, Some(message)) = (status.state, said) {
            let added = self.interim.add(message)?;
            self.add_bytes(added)?;
        }
        self.status = Some(key);
        self.status_message = said.cloned();
        self.status_since = status.timestamp;
        let is_on_the_way = matches!(status.state, TaskState::Submitted | TaskState::Working);
        Ok(Some(
            Some(text)
                .filter(|text| is_on_the_way && !text.is_empty())
                .map(TaskUpdate::Progress)
                .into_iter()
                .collect(),
        ))
    }

    fn apply_artifact(
        &mut self,
        artifact: A2aArtifact,
        append: bool,
        last: bool,
    ) -> Result<TaskUpdate, A2aClientError> {
        self.add_bytes(part_bytes(&artifact.parts))?;
        let there = self
            .artifacts
            .iter_mut()
            .find(|there| there.artifact_id == artifact.artifact_id);
        match there {
            Some(there) if append => append_parts(&mut there.parts, artifact.parts.clone()),
            Some(there) => *there = artifact.clone(),
            None => self.artifacts.push(artifact.clone()),
        }
        Ok(TaskUpdate::Artifact {
            artifact,
            append,
            last,
        })
    }

    /// Updates an artifact to its current state, and returns the change to report to the caller:
    /// the new parts, or text, if there are more than before, else all parts. `None` if the
    /// artifact is unchanged.
    fn reconcile_artifact(
        &mut self,
        artifact: &A2aArtifact,
    ) -> Result<Option<TaskUpdate>, A2aClientError> {
        let there = self
            .artifacts
            .iter()
            .find(|there| there.artifact_id == artifact.artifact_id);
        let beyond = there.and_then(|there| parts_beyond(&there.parts, &artifact.parts));
        if beyond.as_ref().is_some_and(Vec::is_empty) || there == Some(artifact) {
            return Ok(None);
        }
        let append = beyond.is_some();
        let piece = A2aArtifact {
            parts: beyond.unwrap_or_else(|| artifact.parts.clone()),
            ..artifact.clone()
        };
        self.apply_artifact(piece, append, false).map(Some)
    }

    fn add_bytes(&mut self, bytes: usize) -> Result<(), A2aClientError> {
        self.bytes += bytes;
        if self.bytes > ARTIFACT_BYTES_MAX {
            Err(A2aClientError::TooLarge)
        } else {
            Ok(())
        }
    }
}

/// Returns the size of parts including names, media types and metadata, in bytes.
fn part_bytes(parts: &[Part]) -> usize {
    let bytes = |part: &Part| {
        let content = match &part.content {
            PartContent::Raw(bytes) => bytes.len(),
            _ => part.content_bytes(),
        };
        let beside = part
            .metadata
            .as_ref()
            .map_or(0, |metadata| metadata.to_raw().get().len());
        content + beside + part.filename.len() + part.media_type.len()
    };
    parts.iter().map(bytes).sum()
}

fn event_number(metadata: &Option<RawObject>) -> Option<u64> {
    metadata.as_ref()?.read(EVENT_METADATA)
}

#[cfg(test)]
mod tests;

/// Maximum number of interim messages of one call. They are never truncated silently.
/// At the limit: `Overloaded`, and the remote task is cancelled.
const INTERIM_MESSAGES_MAX: usize = CALL_EVENTS_MAX as usize;

/// Messages that an agent sent while its task was working, in order and without repetitions. Only
/// their ids, roles and parts are stored.
#[derive(Default)]
struct InterimMessages {
    messages: Vec<A2aMessage>,
    /// Ids of the messages.
    ids: HashSet<String>,
}

impl InterimMessages {
    /// Adds the message of a status. Returns the number of bytes added.
    ///
    /// # Errors
    /// [`A2aClientError::TooLarge`] if there would be more than [`INTERIM_MESSAGES_MAX`] messages.
    fn add(&mut self, message: &A2aMessage) -> Result<usize, A2aClientError> {
        if message.role == Role::User || message.parts.is_empty() {
            return Ok(0);
        }
        // Most messages are new: the list is searched only for a known id.
        let is_new = message.message_id.is_empty() || self.ids.insert(message.message_id.clone());
        let known = if is_new {
            None
        } else {
            self.messages
                .iter_mut()
                .rev()
                .find(|known| has_same_id(known, message))
        };
        match known {
            // The agent repeats the message with more text.
            Some(known) if is_extension_of(message, known) => *known = stored_copy(message),
            _ => self.insert(self.messages.len(), message)?,
        }
        Ok(message_bytes(message))
    }

    /// Adds the messages that follow the client's last message in a task's history. Only the latest
    /// [`HISTORY_MESSAGES_MAX`] messages of the history are considered. The message of `status` is
    /// skipped, because it may still change. Returns the number of bytes added.
    ///
    /// # Errors
    /// [`A2aClientError::TooLarge`] if there would be more than [`INTERIM_MESSAGES_MAX`] messages.
    fn add_history(
        &mut self,
        history: &[A2aMessage],
        status: &TaskStatus,
    ) -> Result<usize, A2aClientError> {
        // An agent may send more than was requested.
        let asked_for = HISTORY_MESSAGES_MAX.unsigned_abs() as usize;
        let history = history
            .get(history.len().saturating_sub(asked_for)..)
            .unwrap_or_default();
        let begin = history
            .iter()
            .rposition(|said| said.role == Role::User)
            .map_or(0, |at| at + 1);
        let current = status.message.as_ref();
        let (mut place, mut added) = (0, 0);
        for message in history.get(begin..).unwrap_or_default() {
            if message.parts.is_empty()
                || current.is_some_and(|current| is_same_message(current, message))
            {
                continue;
            }
            match self
                .messages
                .iter()
                .position(|known| is_same_message(known, message))
            {
                Some(at) => place = at + 1,
                None => {
                    self.insert(place, message)?;
                    self.ids.insert(message.message_id.clone());
                    (place, added) = (place + 1, added + message_bytes(message));
                }
            }
        }
        Ok(added)
    }

    fn insert(&mut self, place: usize, message: &A2aMessage) -> Result<(), A2aClientError> {
        if self.messages.len() >= INTERIM_MESSAGES_MAX {
            return Err(A2aClientError::TooLarge);
        }
        self.messages
            .insert(place.min(self.messages.len()), stored_copy(message));
        Ok(())
    }
}

/// Returns a copy of a message with only its id, role and parts, which are stored and counted.
fn stored_copy(message: &A2aMessage) -> A2aMessage {
    let A2aMessage {
        message_id,
        role,
        parts,
        ..
    } = message;
    A2aMessage {
        message_id: message_id.clone(),
        role: *role,
        parts: parts.clone(),
        ..A2aMessage::default()
    }
}

/// Returns the memory that a stored message takes, in bytes. Its id counts twice, because it is
/// stored twice.
fn message_bytes(message: &A2aMessage) -> usize {
    let parts = message.parts.len() * size_of::<Part>() + part_bytes(&message.parts);
    size_of::<A2aMessage>() + 2 * message.message_id.len() + parts
}

/// Returns whether the text of `message` is that of `known` with more text appended. `known` must
/// not be empty.
fn is_extension_of(message: &A2aMessage, known: &A2aMessage) -> bool {
    let words = known.text();
    !words.is_empty() && message.text().starts_with(&words)
}

fn has_same_id(one: &A2aMessage, other: &A2aMessage) -> bool {
    !one.message_id.is_empty() && one.message_id == other.message_id
}

fn is_same_message(one: &A2aMessage, other: &A2aMessage) -> bool {
    let lacks_id = one.message_id.is_empty() || other.message_id.is_empty();
    has_same_id(one, other) || lacks_id && one.parts == other.parts
}
