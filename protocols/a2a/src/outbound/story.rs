//! What a remote agent has said in the course of one call, where its task stands, and what it said while working.

use std::collections::HashSet;
use std::time::SystemTime;

use callboard_message::{RawObject, TaskState};
use serde_json::{Value, json};

use super::error::PeerError;
use super::options::{EVENTS_MAX, HISTORY_MESSAGES_MAX};
use crate::convert::EVENT;
use crate::wire::{
    Artifact, Message, Part, PartContent, Role, SendMessageResponse, StreamResponse, Task,
    TaskStatus,
};

/// Most that a call's artifacts, and what the agent says while it is working, hold together, in bytes.
/// At the limit: `Overloaded`, the agent is told.
pub const ARTIFACT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What a remote agent has said so far.
#[derive(Default)]
pub(super) struct Story {
    /// Empty: none that is known.
    pub(super) task: String,
    pub(super) context: String,
    pub(super) state: Option<TaskState>,
    /// What the agent says about the state, and since when it is so.
    pub(super) said: Option<Message>,
    since: Option<SystemTime>,
    /// In the order in which each first came.
    pub(super) artifacts: Vec<Artifact>,
    /// An answer that no task stands for.
    pub(super) message: Option<Message>,
    /// What the agent said while it was working.
    interim: InterimMessages,
    /// The agent numbers what happens: the last number.
    number: Option<u64>,
    status: Option<StatusKey>,
    /// The status whose question has been answered.
    answered: Option<StatusKey>,
    events: u32,
    bytes: usize,
}

/// What tells one status from another.
#[derive(Clone, PartialEq)]
struct StatusKey {
    state: TaskState,
    since: Option<SystemTime>,
    message: String,
    /// Some agents say several things in one millisecond, and give none of them an id.
    text: String,
}

/// Something that whoever called is told.
pub(super) enum News {
    Said(String),
    Artifact {
        artifact: Artifact,
        append: bool,
        last: bool,
    },
}

impl Story {
    /// About a task that there is already.
    pub(super) fn of(task: &str, context: &str) -> Self {
        Self {
            task: task.to_owned(),
            context: context.to_owned(),
            ..Self::default()
        }
    }

    /// Where the conversation can be taken up.
    pub(super) fn place(&self) -> Value {
        json!({ "taskId": self.task, "contextId": self.context })
    }

    /// Whether the agent numbers what happens, so that nothing is lost or doubled when a stream is taken up.
    pub(super) fn is_numbered(&self) -> bool {
        self.number.is_some()
    }

    /// Whether there is nothing to wait for: an answer, the task's end, or a question that wasn't answered yet.
    pub(super) fn is_settled(&self) -> bool {
        self.message.is_some() || self.has_ended() || self.is_paused()
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
                .answered
                .as_ref()
                .is_none_or(|answered| self.status.as_ref() != Some(answered))
    }

    /// The question is being answered: until it says something else, the agent hasn't heard.
    pub(super) fn answer(&mut self) {
        // Without a time or an id, the next status can't be told from this one.
        let can_tell = |status: &&StatusKey| status.since.is_some() || !status.message.is_empty();
        self.answered = self.status.as_ref().filter(can_tell).cloned();
        self.state = Some(TaskState::Working);
    }

    /// Takes in what the agent says: what is to be told of it, `None` where it isn't news. `resumed`: the stream was taken up
    /// where an earlier one broke off.
    ///
    /// # Errors
    /// [`PeerError::TooLarge`].
    pub(super) fn hear(
        &mut self,
        event: &StreamResponse,
        resumed: bool,
    ) -> Result<Option<Vec<News>>, PeerError> {
        self.events += 1;
        if self.events > EVENTS_MAX {
            return Err(PeerError::TooLarge);
        }
        match event {
            StreamResponse::Message(message) if self.is_ours(&message.task_id) => {
                self.know("", &message.context_id);
                self.message = Some(message.clone());
                Ok(Some(Vec::new()))
            }
            // Everything since follows by itself.
            StreamResponse::Task(_) if resumed && self.is_numbered() => Ok(None),
            StreamResponse::Task(task) => self.adopt(task),
            StreamResponse::StatusUpdate(update)
                if self.is_ours(&update.task_id) && self.is_new(&update.metadata) =>
            {
                self.know(&update.task_id, &update.context_id);
                // A number tells it from the one before, were they alike in all else.
                self.status(&update.status, number(&update.metadata).is_some())
            }
            StreamResponse::ArtifactUpdate(update)
                if self.is_ours(&update.task_id)
                    && self.is_new(&update.metadata)
                    && !self.has_ended() =>
            {
                self.know(&update.task_id, &update.context_id);
                let news =
                    self.artifact(update.artifact.clone(), update.append, update.last_chunk)?;
                Ok(Some(vec![news]))
            }
            _ => Ok(None),
        }
    }

    /// Takes in the task as it is: what is to be told of it, `None` where nothing is new.
    ///
    /// # Errors
    /// [`PeerError::TooLarge`].
    pub(super) fn adopt(&mut self, task: &Task) -> Result<Option<Vec<News>>, PeerError> {
        if !self.is_ours(&task.id) || self.has_ended() && !task.status.state.is_terminal() {
            return Ok(None);
        }
        self.know(&task.id, &task.context_id);
        self.number = self.number.max(number(&task.metadata));
        let mut news = Vec::new();
        for artifact in task.artifacts.iter().flatten() {
            news.extend(self.reconcile(artifact)?);
        }
        self.hear_history(task)?;
        let status = self.status(&task.status, false)?;
        let is_news = status.is_some() || !news.is_empty();
        news.extend(status.into_iter().flatten());
        Ok(is_news.then_some(news))
    }

    /// Takes in what a task's history says that the agent said.
    ///
    /// # Errors
    /// [`PeerError::TooLarge`].
    pub(super) fn hear_history(&mut self, task: &Task) -> Result<(), PeerError> {
        let added = self
            .interim
            .add_history(task.history.as_deref().unwrap_or_default(), &task.status)?;
        self.weigh(added)
    }

    /// Whether the task is completed with neither artifacts nor a message in its last status.
    pub(super) fn ended_without_answer(&self) -> bool {
        let says_nothing = self.said.as_ref().is_none_or(|said| said.parts.is_empty());
        let made_nothing = self
            .artifacts
            .iter()
            .all(|artifact| artifact.parts.is_empty());
        self.state == Some(TaskState::Completed)
            && self.message.is_none()
            && says_nothing
            && made_nothing
    }

    /// The answer of a task that ended without another: what the agent said while it was working, in order. Agents that
    /// number what happens are callboards, where such words are progress and nothing else.
    pub(super) fn interim_answer(&self) -> &[Message] {
        if self.ended_without_answer() && !self.is_numbered() {
            &self.interim.messages
        } else {
            &[]
        }
    }

    /// What it has come to, as the agent would tell it.
    pub(super) fn into_response(self) -> SendMessageResponse {
        if let Some(message) = self.message {
            return SendMessageResponse::Message(message);
        }
        let history = Some(self.interim_answer().to_vec()).filter(|said| !said.is_empty());
        let state = self.state.unwrap_or(TaskState::Submitted);
        let status = TaskStatus {
            state,
            message: self.said,
            timestamp: self.since,
        };
        let artifacts = (!self.artifacts.is_empty()).then_some(self.artifacts);
        SendMessageResponse::Task(Task {
            artifacts,
            history,
            ..Task::new(self.task, self.context, status)
        })
    }

    /// Whether it is about our task, or none yet.
    fn is_ours(&self, task: &str) -> bool {
        let is_ours = task.is_empty() || self.task.is_empty() || task == self.task;
        if !is_ours {
            callboard_message::log::debug!(
                "a remote agent spoke of a task that nobody asked about"
            );
        }
        is_ours
    }

    fn know(&mut self, task: &str, context: &str) {
        if self.task.is_empty() {
            task.clone_into(&mut self.task);
        }
        if !context.is_empty() {
            context.clone_into(&mut self.context);
        }
    }

    /// Whether an event hasn't come before, as far as its number says. It is remembered.
    fn is_new(&mut self, metadata: &Option<RawObject>) -> bool {
        let Some(number) = number(metadata) else {
            return true;
        };
        let is_new = self.number.is_none_or(|last| number > last);
        self.number = self.number.max(Some(number));
        is_new
    }

    fn status(
        &mut self,
        status: &TaskStatus,
        is_another: bool,
    ) -> Result<Option<Vec<News>>, PeerError> {
        if self.has_ended() {
            return Ok(None);
        }
        let message = status
            .message
            .as_ref()
            .map(|message| message.message_id.clone())
            .unwrap_or_default();
        let text = status
            .message
            .as_ref()
            .map(Message::text)
            .unwrap_or_default();
        let key = StatusKey {
            state: status.state,
            since: status.timestamp,
            message,
            text: text.clone(),
        };
        self.state = Some(status.state);
        if !is_another && self.status.as_ref() == Some(&key) {
            return Ok(None);
        }
        if let (TaskState::Working, Some(message)) = (status.state, &status.message) {
            let added = self.interim.add(message)?;
            self.weigh(added)?;
        }
        self.status = Some(key);
        self.said.clone_from(&status.message);
        self.since = status.timestamp;
        let is_on_the_way = matches!(status.state, TaskState::Submitted | TaskState::Working);
        Ok(Some(
            Some(text)
                .filter(|text| is_on_the_way && !text.is_empty())
                .map(News::Said)
                .into_iter()
                .collect(),
        ))
    }

    fn artifact(
        &mut self,
        artifact: Artifact,
        append: bool,
        last: bool,
    ) -> Result<News, PeerError> {
        self.weigh(bytes_of(&artifact.parts))?;
        let there = self
            .artifacts
            .iter_mut()
            .find(|there| there.artifact_id == artifact.artifact_id);
        match there {
            Some(there) if append => there.parts.extend(artifact.parts.iter().cloned()),
            Some(there) => *there = artifact.clone(),
            None => self.artifacts.push(artifact.clone()),
        }
        Ok(News::Artifact {
            artifact,
            append,
            last,
        })
    }

    /// An artifact as it is by now: what of it is news.
    fn reconcile(&mut self, artifact: &Artifact) -> Result<Option<News>, PeerError> {
        let there = self
            .artifacts
            .iter()
            .find(|there| there.artifact_id == artifact.artifact_id);
        let known = match there {
            Some(there) if there == artifact => return Ok(None),
            Some(there) if artifact.parts.starts_with(&there.parts) => there.parts.len(),
            _ => 0,
        };
        let parts = artifact.parts.iter().skip(known).cloned().collect();
        self.artifact(
            Artifact {
                parts,
                ..artifact.clone()
            },
            known > 0,
            false,
        )
        .map(Some)
    }

    fn weigh(&mut self, bytes: usize) -> Result<(), PeerError> {
        self.bytes += bytes;
        if self.bytes > ARTIFACT_BYTES_MAX {
            Err(PeerError::TooLarge)
        } else {
            Ok(())
        }
    }
}

/// What parts hold, with what the sender put beside it, in bytes.
fn bytes_of(parts: &[Part]) -> usize {
    let bytes = |part: &Part| {
        let content = match &part.content {
            PartContent::Raw(bytes) => bytes.len(),
            _ => part.bytes(),
        };
        let beside = part
            .metadata
            .as_ref()
            .map_or(0, |metadata| metadata.to_raw().get().len());
        content + beside + part.filename.len() + part.media_type.len()
    };
    parts.iter().map(bytes).sum()
}

fn number(metadata: &Option<RawObject>) -> Option<u64> {
    metadata.as_ref()?.read(EVENT)
}

#[cfg(test)]
mod tests;

/// Maximum number of interim messages of one call. One more is [`PeerError::TooLarge`]: an answer is never cut silently.
/// At the limit: `Overloaded`, the agent is told.
const INTERIM_MESSAGES_MAX: usize = EVENTS_MAX as usize;

/// Messages of an agent that is working, in order, each once: their ids, roles and parts.
#[derive(Default)]
struct InterimMessages {
    messages: Vec<Message>,
    /// Their ids.
    ids: HashSet<String>,
}

impl InterimMessages {
    /// Adds the message of a status. Returns the weight that was added, in bytes.
    ///
    /// # Errors
    /// [`PeerError::TooLarge`] beyond [`INTERIM_MESSAGES_MAX`].
    fn add(&mut self, message: &Message) -> Result<usize, PeerError> {
        if message.role == Role::User || message.parts.is_empty() {
            return Ok(0);
        }
        // Most are new: only a known id is looked for.
        let is_new = message.message_id.is_empty() || self.ids.insert(message.message_id.clone());
        let known = if is_new {
            None
        } else {
            self.messages
                .iter_mut()
                .rev()
                .find(|known| has_id_of(known, message))
        };
        match known {
            // It is told again, as far as it is written by now.
            Some(known) if is_longer(message, known) => *known = kept(message),
            _ => self.insert(self.messages.len(), message)?,
        }
        Ok(weight(message))
    }

    /// Adds what the last [`HISTORY_MESSAGES_MAX`] messages of a task's history have of the agent since the client's last
    /// message, without the message of `status`, which isn't over yet. Returns the weight that was added, in bytes.
    ///
    /// # Errors
    /// [`PeerError::TooLarge`] beyond [`INTERIM_MESSAGES_MAX`].
    fn add_history(
        &mut self,
        history: &[Message],
        status: &TaskStatus,
    ) -> Result<usize, PeerError> {
        // An agent may send more than it was asked for.
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
            if message.parts.is_empty() || current.is_some_and(|current| is_same(current, message))
            {
                continue;
            }
            match self
                .messages
                .iter()
                .position(|known| is_same(known, message))
            {
                Some(at) => place = at + 1,
                None => {
                    self.insert(place, message)?;
                    self.ids.insert(message.message_id.clone());
                    (place, added) = (place + 1, added + weight(message));
                }
            }
        }
        Ok(added)
    }

    fn insert(&mut self, place: usize, message: &Message) -> Result<(), PeerError> {
        if self.messages.len() >= INTERIM_MESSAGES_MAX {
            return Err(PeerError::TooLarge);
        }
        self.messages
            .insert(place.min(self.messages.len()), kept(message));
        Ok(())
    }
}

/// The members of a message that are kept: those that are weighed.
fn kept(message: &Message) -> Message {
    let Message {
        message_id,
        role,
        parts,
        ..
    } = message;
    Message {
        message_id: message_id.clone(),
        role: *role,
        parts: parts.clone(),
        ..Message::default()
    }
}

/// Memory that a kept message takes, in bytes. Its id is there twice.
fn weight(message: &Message) -> usize {
    let parts = message.parts.len() * size_of::<Part>() + bytes_of(&message.parts);
    size_of::<Message>() + 2 * message.message_id.len() + parts
}

/// Whether `message` begins with all the words of `known`, which has some.
fn is_longer(message: &Message, known: &Message) -> bool {
    let words = known.text();
    !words.is_empty() && message.text().starts_with(&words)
}

fn has_id_of(one: &Message, other: &Message) -> bool {
    !one.message_id.is_empty() && one.message_id == other.message_id
}

fn is_same(one: &Message, other: &Message) -> bool {
    let lacks_id = one.message_id.is_empty() || other.message_id.is_empty();
    has_id_of(one, other) || lacks_id && one.parts == other.parts
}
