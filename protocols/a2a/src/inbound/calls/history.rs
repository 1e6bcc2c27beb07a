//! Messages of a task, read from its events.

use std::sync::Arc;

use callboard_message::capabilities::SOURCE_MESSAGE_META_KEY;
use callboard_message::{Content, RawObject};
use callboard_runtime::{OpenQuestion, Task, TaskEvent, TaskStep, TaskStore};
use serde_json::value::RawValue;

use super::view::{
    self, NEEDED_PREFIX, agent_message, context_id, first_message, has_single_message,
    is_same_message,
};
use crate::A2aError;
use crate::convert::{QUESTION_METADATA, content_to_parts, question_parts};
use crate::wire::{self, A2aMessage, Part, Role, WireType as _};

/// Number of events that are read from the store at once.
const EVENTS_READ_MAX: usize = 100;

/// Reader of the messages of tasks.
#[derive(Clone)]
pub(super) struct TaskHistory {
    tasks: Arc<dyn TaskStore>,
}

impl TaskHistory {
    pub(super) fn new(tasks: Arc<dyn TaskStore>) -> Self {
        Self { tasks }
    }

    /// Returns the messages of a task, oldest first: those of its owner, and the agent's questions,
    /// once more for each answer that didn't fit. The latest asking of an open question is left
    /// out, because the task's status shows it. At most the latest `messages_max` are returned; all
    /// if that is `None`. The result is `None` if `messages_max` is 0.
    pub(super) async fn read(
        &self,
        task: &Task,
        messages_max: Option<u32>,
    ) -> Result<Option<Vec<A2aMessage>>, A2aError> {
        if messages_max == Some(0) {
            return Ok(None);
        }
        let mut replay = HistoryReplay::new(task);
        let mut after = if has_single_message(task) {
            task.last_event
        } else {
            0
        };
        while after < task.last_event {
            let events = self.tasks.events(&task.id, after, EVENTS_READ_MAX).await?;
            let Some(last) = events.last() else { break };
            after = last.number;
            let events = events.into_iter();
            for event in events.filter(|event| event.number <= task.last_event) {
                replay.add(event);
            }
        }
        let mut said = replay.into_messages();
        if let Some(messages_max) = messages_max.and_then(|max| usize::try_from(max).ok()) {
            said.drain(..said.len().saturating_sub(messages_max));
        }
        Ok(Some(said))
    }

    /// Converts a task to the format of 1.0, with at most the latest `messages_max` messages of its
    /// history; with all messages if that is `None`.
    ///
    /// # Errors
    /// Errors of the task store.
    pub(super) async fn to_wire_task(
        &self,
        task: &Task,
        messages_max: Option<u32>,
    ) -> Result<wire::A2aTask, A2aError> {
        let said = self.read(task, messages_max).await?;
        Ok(view::wire_task(task, said, true))
    }
}

/// Maximum number of askings after an unsuitable answer in a task's history, the latest ones.
const REPEATED_QUESTIONS_MAX: usize = 16;

/// History of a task, collected from its events.
struct HistoryReplay<'a> {
    task: &'a Task,
    entries: Vec<HistoryEntry>,
    /// Questions that are open after the latest event.
    open: Vec<OpenQuestion>,
}

enum HistoryEntry {
    Message(A2aMessage),
    Question {
        /// Number of the event that asked.
        number: u64,
        open: OpenQuestion,
        /// Reason why the previous answer didn't fit; `None` for the first asking.
        lacks: Option<String>,
    },
}

impl<'a> HistoryReplay<'a> {
    fn new(task: &'a Task) -> Self {
        let first = first_message(task).map(HistoryEntry::Message);
        Self {
            task,
            entries: first.into_iter().collect(),
            open: Vec::new(),
        }
    }

    fn add(&mut self, event: TaskEvent) {
        let number = event.number;
        match event.step {
            TaskStep::History(message) => {
                let message = A2aMessage::from_raw(&message.to_raw()).ok();
                self.entries.extend(message.map(HistoryEntry::Message));
            }
            TaskStep::Asked(open) => {
                self.open.retain(|other| other.key != open.key);
                self.open.push(open.clone());
                self.entries.push(HistoryEntry::Question {
                    number,
                    open,
                    lacks: None,
                });
            }
            TaskStep::Said(text) if text.starts_with(NEEDED_PREFIX) => {
                // The status showed the text under the oldest question.
                let open = self.open.first().cloned();
                self.entries.extend(open.map(|open| HistoryEntry::Question {
                    number,
                    open,
                    lacks: Some(text),
                }));
            }
            TaskStep::Answered { key, answer } => {
                self.open.retain(|open| open.key != key);
                let message = answer_message(self.task, &answer, &self.entries);
                self.entries.extend(message.map(HistoryEntry::Message));
            }
            TaskStep::GivenUp { key } => self.open.retain(|open| open.key != key),
            _ => {}
        }
    }

    /// Returns the messages, without the latest asking of each question that is open.
    fn into_messages(self) -> Vec<A2aMessage> {
        let mut shown: Vec<_> = self.task.open_questions.iter().map(|o| &*o.key).collect();
        let mut repeats = 0;
        let mut said = Vec::with_capacity(self.entries.len());
        for entry in self.entries.into_iter().rev() {
            match entry {
                HistoryEntry::Message(message) => said.push(message),
                HistoryEntry::Question {
                    number,
                    open,
                    lacks,
                } => {
                    if let Some(at) = shown.iter().position(|key| *key == open.key) {
                        shown.swap_remove(at);
                        continue;
                    }
                    repeats += usize::from(lacks.is_some());
                    if lacks.is_none() || repeats <= REPEATED_QUESTIONS_MAX {
                        let mut message = question_message(self.task, number, &open);
                        message.parts.extend(lacks.map(Part::text));
                        said.push(message);
                    }
                }
            }
        }
        said.reverse();
        said
    }
}

/// Returns a question as a message of the agent. `number` is the number of the event that recorded
/// the question.
fn question_message(task: &Task, number: u64, open: &OpenQuestion) -> A2aMessage {
    let metadata = RawObject::single(QUESTION_METADATA, &open.key);
    agent_message(
        task,
        number,
        question_parts(&open.key, &open.question),
        Some(metadata),
    )
}

/// Returns the message of the owner that contained an answer, unless `known` contains it already.
/// If another node than the task's worker accepts an answer, its message is recorded only within
/// the answer.
fn answer_message(task: &Task, answer: &RawValue, known: &[HistoryEntry]) -> Option<A2aMessage> {
    let told = RawObject::parse(answer)
        .ok()?
        .object("_meta")?
        .object(SOURCE_MESSAGE_META_KEY)?;
    let message_id = told.text("key")?;
    let content: Vec<Content> = told.read("content").unwrap_or_default();
    let message = A2aMessage {
        message_id,
        context_id: context_id(task),
        task_id: task.id.as_str().to_owned(),
        role: Role::User,
        parts: content_to_parts(&content),
        metadata: told.object("metadata"),
        ..A2aMessage::default()
    };
    let is_known = known.iter().any(|entry| match entry {
        HistoryEntry::Message(known) => is_same_message(known, &message),
        HistoryEntry::Question { .. } => false,
    });
    (!is_known).then_some(message)
}
