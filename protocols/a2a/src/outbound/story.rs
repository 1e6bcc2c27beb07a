//! What a remote agent has said in the course of one call, and where its task stands.

use std::time::SystemTime;

use callboard_message::{RawObject, TaskState};

use super::error::PeerError;
use super::options::EVENTS_MAX;
use crate::convert::EVENT;
use crate::wire::{Artifact, Message, Part, PartContent, SendMessageResponse, StreamResponse, Task, TaskStatus};

/// Most that a call's artifacts hold together, in bytes.
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
    Artifact { artifact: Artifact, append: bool, last: bool },
}

impl Story {
    /// About a task that there is already.
    pub(super) fn of(task: &str, context: &str) -> Self {
        Self { task: task.to_owned(), context: context.to_owned(), ..Self::default() }
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
        let waits = matches!(self.state, Some(TaskState::InputRequired | TaskState::AuthRequired));
        waits && self.answered.as_ref().is_none_or(|answered| self.status.as_ref() != Some(answered))
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
    pub(super) fn hear(&mut self, event: &StreamResponse, resumed: bool) -> Result<Option<Vec<News>>, PeerError> {
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
            StreamResponse::StatusUpdate(update) if self.is_ours(&update.task_id) && self.is_new(&update.metadata) => {
                self.know(&update.task_id, &update.context_id);
                // A number tells it from the one before, were they alike in all else.
                Ok(self.status(&update.status, number(&update.metadata).is_some()))
            }
            StreamResponse::ArtifactUpdate(update)
                if self.is_ours(&update.task_id) && self.is_new(&update.metadata) && !self.has_ended() =>
            {
                self.know(&update.task_id, &update.context_id);
                let news = self.artifact(update.artifact.clone(), update.append, update.last_chunk)?;
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
        let status = self.status(&task.status, false);
        let is_news = status.is_some() || !news.is_empty();
        news.extend(status.into_iter().flatten());
        Ok(is_news.then_some(news))
    }

    /// What it has come to, as the agent would tell it.
    pub(super) fn into_response(self) -> SendMessageResponse {
        if let Some(message) = self.message {
            return SendMessageResponse::Message(message);
        }
        let state = self.state.unwrap_or(TaskState::Submitted);
        let status = TaskStatus { state, message: self.said, timestamp: self.since };
        let artifacts = (!self.artifacts.is_empty()).then_some(self.artifacts);
        SendMessageResponse::Task(Task { artifacts, ..Task::new(self.task, self.context, status) })
    }

    /// Whether it is about our task, or none yet.
    fn is_ours(&self, task: &str) -> bool {
        let is_ours = task.is_empty() || self.task.is_empty() || task == self.task;
        if !is_ours {
            callboard_message::log::debug!("a remote agent spoke of a task that nobody asked about");
        }
        is_ours
    }

    fn know(&mut self, task: &str, context: &str) {
        if self.task.is_empty() {
            task.clone_into(&mut self.task);
        }
        if let Some(context) = non_empty(context) {
            context.clone_into(&mut self.context);
        }
    }

    /// Whether an event hasn't come before, as far as its number says. It is remembered.
    fn is_new(&mut self, metadata: &Option<RawObject>) -> bool {
        let Some(number) = number(metadata) else { return true };
        let is_new = self.number.is_none_or(|last| number > last);
        self.number = self.number.max(Some(number));
        is_new
    }

    fn status(&mut self, status: &TaskStatus, is_another: bool) -> Option<Vec<News>> {
        if self.has_ended() {
            return None;
        }
        let message = status.message.as_ref().map(|message| message.message_id.clone()).unwrap_or_default();
        let text = status.message.as_ref().map(text_of).unwrap_or_default();
        let key = StatusKey { state: status.state, since: status.timestamp, message, text: text.clone() };
        self.state = Some(status.state);
        if !is_another && self.status.as_ref() == Some(&key) {
            return None;
        }
        self.status = Some(key);
        self.said.clone_from(&status.message);
        self.since = status.timestamp;
        let is_on_the_way = matches!(status.state, TaskState::Submitted | TaskState::Working);
        Some(Some(text).filter(|text| is_on_the_way && !text.is_empty()).map(News::Said).into_iter().collect())
    }

    fn artifact(&mut self, artifact: Artifact, append: bool, last: bool) -> Result<News, PeerError> {
        self.weigh(&artifact.parts)?;
        let there = self.artifacts.iter_mut().find(|there| there.artifact_id == artifact.artifact_id);
        match there {
            Some(there) if append => there.parts.extend(artifact.parts.iter().cloned()),
            Some(there) => *there = artifact.clone(),
            None => self.artifacts.push(artifact.clone()),
        }
        Ok(News::Artifact { artifact, append, last })
    }

    /// An artifact as it is by now: what of it is news.
    fn reconcile(&mut self, artifact: &Artifact) -> Result<Option<News>, PeerError> {
        let there = self.artifacts.iter().find(|there| there.artifact_id == artifact.artifact_id);
        let Some(there) = there else { return self.artifact(artifact.clone(), false, false).map(Some) };
        if there == artifact {
            return Ok(None);
        }
        let known = there.parts.len();
        match artifact.parts.get(..known).is_some_and(|begin| known > 0 && begin == &*there.parts) {
            true => {
                let parts = artifact.parts.iter().skip(known).cloned().collect();
                self.artifact(Artifact { parts, ..artifact.clone() }, true, false).map(Some)
            }
            false => self.artifact(artifact.clone(), false, false).map(Some),
        }
    }

    fn weigh(&mut self, parts: &[Part]) -> Result<(), PeerError> {
        let weight = |part: &Part| match &part.content {
            PartContent::Text(text) | PartContent::Url(text) => text.len(),
            PartContent::Raw(bytes) => bytes.len(),
            PartContent::Data(data) => data.get().len(),
        };
        self.bytes += parts.iter().map(weight).sum::<usize>();
        if self.bytes > ARTIFACT_BYTES_MAX { Err(PeerError::TooLarge) } else { Ok(()) }
    }
}

/// The texts of a message, one a line.
pub(super) fn text_of(message: &Message) -> String {
    let texts: Vec<&str> = message.parts.iter().filter_map(Part::as_text).collect();
    texts.join("\n")
}

fn number(metadata: &Option<RawObject>) -> Option<u64> {
    metadata.as_ref()?.read(EVENT)
}

fn non_empty(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{TaskArtifactUpdateEvent, TaskStatusUpdateEvent};

    fn numbered(number: u64) -> Option<RawObject> {
        (number > 0).then(|| RawObject::new().with(EVENT, number))
    }

    fn status(number: u64, state: TaskState, text: &str) -> StreamResponse {
        let message = Message { message_id: text.into(), parts: vec![Part::text(text)], ..Message::default() };
        StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
            task_id: "t".into(),
            context_id: "c".into(),
            status: TaskStatus { state, message: Some(message), timestamp: None },
            metadata: numbered(number),
        })
    }

    fn chunk(number: u64, text: &str, append: bool) -> StreamResponse {
        let artifact = Artifact { artifact_id: "a".into(), parts: vec![Part::text(text)], ..Artifact::default() };
        StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
            task_id: "t".into(),
            context_id: "c".into(),
            artifact,
            append,
            last_chunk: false,
            metadata: numbered(number),
        })
    }

    fn task(number: u64, state: TaskState, texts: &[&str]) -> Task {
        let parts: Vec<Part> = texts.iter().copied().map(Part::text).collect();
        let artifact = Artifact { artifact_id: "a".into(), parts, ..Artifact::default() };
        let artifacts = (!texts.is_empty()).then(|| vec![artifact]);
        Task { artifacts, metadata: numbered(number), ..Task::new("t", "c", TaskStatus::new(state)) }
    }

    fn told(news: Vec<News>) -> Vec<String> {
        let in_words = |news| match news {
            News::Said(text) => text,
            News::Artifact { artifact, append, .. } => {
                let texts: Vec<&str> = artifact.parts.iter().filter_map(Part::as_text).collect();
                format!("{}{}", if append { "+" } else { "=" }, texts.join("|"))
            }
        };
        news.into_iter().map(in_words).collect()
    }

    fn hear(story: &mut Story, event: StreamResponse, resumed: bool) -> Vec<String> {
        told(story.hear(&event, resumed).unwrap().unwrap_or_default())
    }

    /// Goal: numbered events count once each, however often a stream is taken up. Method: a stream, a snapshot of later and
    /// what had been heard already.
    #[test]
    fn numbered_events_count_once() {
        let mut story = Story::default();
        assert!(hear(&mut story, StreamResponse::Task(task(1, TaskState::Working, &[])), false).is_empty());
        assert_eq!(hear(&mut story, status(2, TaskState::Working, "one"), false), ["one"]);
        assert_eq!(hear(&mut story, chunk(3, "x", false), false), ["=x"]);
        // Broken off, taken up after 3; the task has come to 5 meanwhile.
        assert!(hear(&mut story, StreamResponse::Task(task(5, TaskState::Completed, &["x", "y"])), true).is_empty());
        assert!(hear(&mut story, chunk(3, "x", false), true).is_empty());
        assert_eq!(hear(&mut story, chunk(4, "y", true), true), ["+y"]);
        assert!(!story.is_settled());
        hear(&mut story, status(5, TaskState::Completed, "done"), true);
        assert!(story.has_ended());
        assert_eq!(story.artifacts[0].parts.len(), 2);
        // Nothing comes after the end.
        assert!(hear(&mut story, chunk(6, "z", true), true).is_empty());
        assert!(hear(&mut story, status(7, TaskState::Working, "again"), true).is_empty());
        assert!(story.has_ended());
    }

    /// Goal: without numbers, a snapshot brings what is new and nothing twice. Method: one that goes on, one that repeats, one
    /// that is another.
    #[test]
    fn snapshots_are_reconciled() {
        let mut story = Story::default();
        hear(&mut story, chunk(0, "x", false), false);
        let snapshot = |texts: &[&str]| StreamResponse::Task(task(0, TaskState::Working, texts));
        assert!(hear(&mut story, snapshot(&["x"]), false).is_empty());
        assert_eq!(hear(&mut story, snapshot(&["x", "y"]), false), ["+y"]);
        assert_eq!(hear(&mut story, snapshot(&["other"]), false), ["=other"]);
        assert_eq!(hear(&mut story, status(0, TaskState::Working, "on"), false), ["on"]);
        assert!(hear(&mut story, status(0, TaskState::Working, "on"), false).is_empty());
        // Two statuses without ids, of one moment.
        let bare = |text: &str| match status(0, TaskState::Working, text) {
            StreamResponse::StatusUpdate(mut update) => {
                update.status.message.as_mut().unwrap().message_id.clear();
                StreamResponse::StatusUpdate(update)
            }
            other => other,
        };
        assert_eq!([hear(&mut story, bare("a"), false), hear(&mut story, bare("b"), false)], [["a"], ["b"]]);
    }

    /// Goal: what belongs to another task is nothing to us. Method: each kind of event of another's.
    #[test]
    fn other_tasks_are_others() {
        let mut story = Story::of("mine", "c");
        for event in [
            StreamResponse::Task(task(1, TaskState::Completed, &["x"])),
            status(2, TaskState::Failed, "no"),
            chunk(3, "x", false),
        ] {
            assert!(hear(&mut story, event, false).is_empty());
        }
        assert!(story.artifacts.is_empty() && story.state.is_none());
    }

    /// Goal: a question is asked once; the next one is another. Method: the same status again after the answer, then a new
    /// one; and one that can't be told apart.
    #[test]
    fn questions_are_told_apart() {
        let mut story = Story::default();
        hear(&mut story, status(0, TaskState::InputRequired, "which?"), false);
        assert!(story.is_paused());
        story.answer();
        hear(&mut story, status(0, TaskState::InputRequired, "which?"), false);
        assert!(!story.is_paused(), "the agent hasn't heard the answer yet");
        hear(&mut story, status(0, TaskState::InputRequired, "and when?"), false);
        assert!(story.is_paused());
        let bare = || StreamResponse::Task(task(0, TaskState::InputRequired, &[]));
        let mut story = Story::default();
        hear(&mut story, bare(), false);
        story.answer();
        hear(&mut story, bare(), false);
        assert!(story.is_paused());
    }

    /// Goal: an agent can't fill this process. Method: events and bytes at their bounds, and one more.
    #[test]
    fn stories_are_bounded() {
        let mut story = Story::default();
        for n in 0..EVENTS_MAX {
            assert!(story.hear(&status(0, TaskState::Working, &n.to_string()), false).is_ok());
        }
        assert!(matches!(story.hear(&status(0, TaskState::Working, ""), false), Err(PeerError::TooLarge)));
        let mut story = Story::default();
        assert!(story.hear(&chunk(0, &"x".repeat(ARTIFACT_BYTES_MAX), false), false).is_ok());
        assert!(matches!(story.hear(&chunk(0, "x", true), false), Err(PeerError::TooLarge)));
    }
}
