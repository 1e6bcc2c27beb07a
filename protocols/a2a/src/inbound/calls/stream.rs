//! A task as a stream: first as it is, or was, then each thing that happens to it, once.

use std::sync::Arc;
use std::time::Duration;

use callboard_runtime::{Task, TaskEvent, TaskStep, follow};
use futures::stream::{self, StreamExt};
use tokio::time::{Instant, timeout_at};

use super::begin::{Sent, Taken};
use super::{Calls, Events, Numbered, view};
use crate::A2aError;
use crate::wire::{StreamResponse, TaskArtifactUpdateEvent, TaskStatusUpdateEvent};

/// How long the first event of a call waits for an answer that needs no task.
/// At the limit: it begins with the task.
const MESSAGE_REPLY_WAIT: Duration = Duration::from_millis(100);
/// Events that are read at once.
const EVENTS_READ_MAX: usize = 100;

/// When a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// With the task.
    End,
    /// With the task, or when it asks.
    EndOrQuestion,
}

impl Until {
    fn is_over(self, task: &Task) -> bool {
        task.state.is_terminal() || (self == Self::EndOrQuestion && view::is_interrupted(task))
    }
}

impl Calls {
    /// What a message brings about.
    pub(super) async fn told(
        &self,
        sent: Sent,
        messages_max: Option<u32>,
    ) -> Result<Events, A2aError> {
        if sent.how == Taken::Begun
            && let Some(live) = sent.live.clone()
        {
            let (mut seen, first) = (live.seen, sent.task.last_event);
            let is_news = |task: &Arc<Task>| task.last_event > first;
            let until = Instant::now() + MESSAGE_REPLY_WAIT;
            let now = timeout_at(until, seen.wait_for(is_news))
                .await
                .ok()
                .and_then(Result::ok)
                .map(|now| now.clone());
            if let Some(task) = now
                && let Some(message) = self.said_at_once(&task).await
            {
                let event = StreamResponse::Message(message);
                return Ok(stream::iter([Ok(Numbered {
                    number: task.last_event,
                    event,
                    ends: true,
                })])
                .boxed());
            }
        }
        let task = match sent.how == Taken::BegunBefore {
            // As it would have been told then.
            true => Arc::new(self.as_of(&sent.task, 1).await?),
            false => sent.task,
        };
        self.from(task, messages_max, Until::EndOrQuestion).await
    }

    /// A task as it is, and what happens to it from then on.
    pub(super) async fn from(
        &self,
        task: Arc<Task>,
        messages_max: Option<u32>,
        until: Until,
    ) -> Result<Events, A2aError> {
        let event = StreamResponse::Task(self.seen(&task, messages_max).await?);
        let (number, ends) = (task.last_event, until.is_over(&task));
        let first = stream::iter([Ok(Numbered {
            number,
            event,
            ends,
        })]);
        if ends {
            return Ok(first.boxed());
        }
        Ok(first.chain(self.after(Task::clone(&task), until)).boxed())
    }

    /// What happens to a task after it was as `task` says.
    pub(super) fn after(&self, task: Task, until: Until) -> Events {
        let events = follow(self.store.tasks.clone(), task.id.clone(), task.last_event);
        let teller = Teller {
            task: Box::new(Task {
                artifacts: Vec::new(),
                ..task
            }),
            until,
        };
        let told = stream::unfold((events, Some(teller)), |(mut events, teller)| async move {
            let mut teller = teller?;
            loop {
                match events.next().await? {
                    Ok(event) => {
                        if let Some(told) = teller.tell(event) {
                            let goes_on = (!told.ends).then_some(teller);
                            return Some((Ok(told), (events, goes_on)));
                        }
                    }
                    Err(error) => return Some((Err(error.into()), (events, None))),
                }
            }
        });
        told.boxed()
    }

    /// A task as it was after its event `number`: so that nobody who goes on from there gets anything twice.
    pub(super) async fn as_of(&self, now: &Task, number: u64) -> Result<Task, A2aError> {
        let mut then = Task {
            state: callboard_message::TaskState::Submitted,
            updated: now.created,
            said: None,
            open: Vec::new(),
            outcome: None,
            artifacts: Vec::new(),
            last_event: 0,
            waiting: 0,
            children_open: 0,
            ..now.clone()
        };
        while then.last_event < number {
            let after = then.last_event;
            let events = self
                .store
                .tasks
                .events(&now.id, after, EVENTS_READ_MAX)
                .await;
            for event in events? {
                if event.number <= number {
                    take(&mut then, &event);
                }
            }
            if then.last_event == after {
                break;
            }
        }
        Ok(then)
    }
}

/// The task takes a step that was kept.
fn take(task: &mut Task, event: &TaskEvent) {
    // What was kept was legal; where a task is told with less than it has, its state is told all the same.
    if task.step(&event.step, event.at).is_err() {
        task.updated = event.at;
    }
    task.state = event.state;
    task.last_event = event.number;
}

/// Goes along with a task's events and tells them.
struct Teller {
    /// As it was after the last one, without what it made.
    task: Box<Task>,
    until: Until,
}

impl Teller {
    fn tell(&mut self, event: TaskEvent) -> Option<Numbered> {
        let before = self.task.state;
        take(&mut self.task, &event);
        self.task.artifacts.clear();
        let (task_id, context_id) = (self.task.id.as_str().to_owned(), view::context(&self.task));
        let metadata = view::event(event.number);
        let told = match &event.step {
            TaskStep::History(_) => return None,
            // It began before anybody heard of it; beginning again is worth telling where it stood still.
            TaskStep::Start if before == event.state => return None,
            TaskStep::Artifact(kept) => {
                let (artifact, append, last_chunk) = view::artifact(kept)?;
                StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
                    task_id,
                    context_id,
                    artifact,
                    append,
                    last_chunk,
                    metadata,
                })
            }
            TaskStep::Said(text) if text.is_empty() => return None,
            _ => {
                let status = view::status(&self.task);
                StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
                    task_id,
                    context_id,
                    status,
                    metadata,
                })
            }
        };
        let ends = self.until.is_over(&self.task);
        Some(Numbered {
            number: event.number,
            event: told,
            ends,
        })
    }
}
