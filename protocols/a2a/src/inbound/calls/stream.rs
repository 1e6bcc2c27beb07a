//! Streams of a task: first its current or earlier state, then each later event once.

use std::sync::Arc;

use callboard_runtime::{Task, TaskEvent, TaskStep, TaskStore, follow_task};
use futures::stream::{self, StreamExt};
use tokio_util::sync::CancellationToken;

use super::history::TaskHistory;
use super::{NumberedEvent, TaskEventStream, view};
use crate::A2aError;
use crate::wire::{StreamResponse, TaskArtifactUpdateEvent, TaskStatusUpdateEvent};

/// Number of events that are read from the store at once.
const EVENTS_READ_MAX: usize = 100;

/// Condition that ends a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamEnd {
    /// The stream ends when the task has ended.
    TaskEnd,
    /// The stream ends when the task has ended or has an open question.
    TaskEndOrQuestion,
}

impl StreamEnd {
    fn is_reached(self, task: &Task) -> bool {
        task.state.is_terminal() || (self == Self::TaskEndOrQuestion && view::is_interrupted(task))
    }
}

/// Source of the streams of tasks.
pub(super) struct TaskStreams {
    tasks: Arc<dyn TaskStore>,
    history: TaskHistory,
    /// Cancelled when the server stops. Subscriptions end then.
    stopping: CancellationToken,
}

impl TaskStreams {
    pub(super) fn new(tasks: Arc<dyn TaskStore>, history: TaskHistory) -> Self {
        Self {
            tasks,
            history,
            stopping: CancellationToken::new(),
        }
    }

    /// Returns a stream like [`Self::stream_from`] until the task ends or the server stops.
    pub(super) async fn subscribe(&self, task: Arc<Task>) -> Result<TaskEventStream, A2aError> {
        let events = self.stream_from(task, None, StreamEnd::TaskEnd).await?;
        let stopped = self.stopping.clone().cancelled_owned();
        Ok(events.take_until(stopped).boxed())
    }

    pub(super) fn end_subscriptions(&self) {
        self.stopping.cancel();
    }

    /// Returns a stream that begins with a task's current state, followed by its later events until
    /// the condition `until`. The task has at most the latest `messages_max` messages; all if that
    /// is `None`.
    pub(super) async fn stream_from(
        &self,
        task: Arc<Task>,
        messages_max: Option<u32>,
        until: StreamEnd,
    ) -> Result<TaskEventStream, A2aError> {
        let event = StreamResponse::Task(self.history.to_wire_task(&task, messages_max).await?);
        let (number, ends) = (task.last_event, until.is_reached(&task));
        let first = stream::iter([Ok(NumberedEvent {
            number,
            event,
            is_last: ends,
        })]);
        if ends {
            return Ok(first.boxed());
        }
        Ok(first
            .chain(self.stream_after(Task::clone(&task), until))
            .boxed())
    }

    /// Returns a stream of the events that follow the state `task`, until the condition `until`.
    pub(super) fn stream_after(&self, task: Task, until: StreamEnd) -> TaskEventStream {
        let events = follow_task(self.tasks.clone(), task.id.clone(), task.last_event);
        let teller = EventConverter {
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
                        if let Some(told) = teller.convert_event(event) {
                            let goes_on = (!told.is_last).then_some(teller);
                            return Some((Ok(told), (events, goes_on)));
                        }
                    }
                    Err(error) => return Some((Err(error.into()), (events, None))),
                }
            }
        });
        told.boxed()
    }

    /// Returns the state that a task had right after the event `number`. A stream that resumes
    /// there begins with this state, so that the client gets no event twice.
    pub(super) async fn task_at_event(&self, now: &Task, number: u64) -> Result<Task, A2aError> {
        let mut then = Task {
            state: callboard_message::TaskState::Submitted,
            updated: now.created,
            status_message: None,
            open_questions: Vec::new(),
            outcome: None,
            artifacts: Vec::new(),
            last_event: 0,
            pending_needs: 0,
            open_children: 0,
            ..now.clone()
        };
        while then.last_event < number {
            let after = then.last_event;
            let events = self.tasks.events(&now.id, after, EVENTS_READ_MAX).await;
            for event in events? {
                if event.number <= number {
                    apply_event(&mut then, &event);
                }
            }
            if then.last_event == after {
                break;
            }
        }
        Ok(then)
    }
}

/// Updates a task by an event that was recorded for it.
fn apply_event(task: &mut Task, event: &TaskEvent) {
    // Recorded steps were legal. If the task holds less than when they were recorded, only the
    // state is updated.
    if task.apply(&event.step, event.at).is_err() {
        task.updated = event.at;
    }
    task.state = event.state;
    task.last_event = event.number;
}

/// Converter from a task's recorded events to the events of a stream.
struct EventConverter {
    /// State of the task after the latest converted event, without artifacts.
    task: Box<Task>,
    until: StreamEnd,
}

impl EventConverter {
    fn convert_event(&mut self, event: TaskEvent) -> Option<NumberedEvent> {
        let before = self.task.state;
        apply_event(&mut self.task, &event);
        self.task.artifacts.clear();
        let (task_id, context_id) = (
            self.task.id.as_str().to_owned(),
            view::context_id(&self.task),
        );
        let metadata = view::event_metadata(event.number);
        let told = match &event.step {
            TaskStep::History(_) => return None,
            // The first start happens before a client knows the task. A later one is sent only if
            // the state has changed.
            TaskStep::Start if before == event.state => return None,
            TaskStep::Artifact(kept) => {
                let (artifact, append, last_chunk) = view::read_artifact(kept)?;
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
                let status = view::task_status(&self.task);
                StreamResponse::StatusUpdate(TaskStatusUpdateEvent {
                    task_id,
                    context_id,
                    status,
                    metadata: view::status_metadata(&self.task),
                })
            }
        };
        let ends = self.until.is_reached(&self.task);
        Some(NumberedEvent {
            number: event.number,
            event: told,
            is_last: ends,
        })
    }
}
