//! In-memory store for the bodies of clinical tasks, which must not be written to disk. It lives as
//! long as the process.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use callboard_message::{Failure, Question, RawObject};
use callboard_runtime::{
    CANCEL_REASON_DEFAULT, OpenQuestion, Task, TaskError, TaskEvent, TaskId, TaskOutcome,
    TaskResult, TaskStep,
};
use parking_lot::{Mutex, MutexGuard};
use serde_json::value::RawValue;

/// Maximum total size of the bodies in memory, in bytes. Above it, bodies of ended tasks are
/// evicted, oldest first; if that isn't enough, the write fails with `TooLarge`.
const VOLATILE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Text stored on disk in place of a text that must not be stored.
const PLACEHOLDER: &str = "not kept";

/// In-memory store for the bodies of clinical tasks, by task id.
pub(crate) struct VolatileStore {
    bytes_max: usize,
    /// Counter of write ids, by which the bodies of a failed write are found and removed.
    writes: AtomicU64,
    bodies: Mutex<VolatileBodies>,
}

#[derive(Default)]
struct VolatileBodies {
    bytes: usize,
    tasks: HashMap<TaskId, TaskBodies>,
    ended: VecDeque<TaskId>,
}

/// Bodies of one task. It may hold steps of a write that failed. Only steps up to the last event in
/// the task's row are valid.
#[derive(Default)]
struct TaskBodies {
    created_by_write: u64,
    bytes: usize,
    request: Option<Box<RawValue>>,
    steps: BTreeMap<u64, (u64, TaskStep)>,
    has_ended: bool,
}

impl Default for VolatileStore {
    fn default() -> Self {
        Self::with_capacity(VOLATILE_BYTES_MAX)
    }
}

impl VolatileStore {
    fn with_capacity(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            writes: AtomicU64::new(0),
            bodies: Mutex::default(),
        }
    }

    fn bodies(&self) -> MutexGuard<'_, VolatileBodies> {
        self.bodies.lock()
    }

    pub(super) fn next_write_id(&self) -> u64 {
        self.writes.fetch_add(1, Ordering::Relaxed)
    }

    /// Evicts bodies of ended tasks until `bytes` more fit. Fails with [`TaskError::TooLarge`] if
    /// they don't.
    pub(super) fn make_room(&self, bytes: usize) -> TaskResult<()> {
        let mut bodies = self.bodies();
        while bodies.bytes + bytes > self.bytes_max {
            let Some(id) = bodies.ended.pop_front() else {
                return Err(TaskError::TooLarge {
                    bytes: bodies.bytes + bytes,
                    bytes_max: self.bytes_max,
                });
            };
            bodies.remove(&id);
        }
        Ok(())
    }

    pub(super) fn contains(&self, id: &TaskId) -> bool {
        self.bodies().tasks.contains_key(id)
    }

    pub(super) fn insert_request(&self, id: &TaskId, request: Option<Box<RawValue>>, write: u64) {
        let mut bodies = self.bodies();
        bodies.remove(id);
        let bytes = request.as_ref().map_or(0, |request| request.get().len());
        bodies.bytes += bytes;
        bodies.tasks.insert(
            id.clone(),
            TaskBodies {
                created_by_write: write,
                bytes,
                request,
                ..TaskBodies::default()
            },
        );
    }

    /// Stores the body of a step in memory. `number` is the number of the step's event; `write` is
    /// the id of the write.
    pub(super) fn insert_step(&self, id: &TaskId, number: u64, step: TaskStep, write: u64) {
        let mut bodies = self.bodies();
        let VolatileBodies { bytes, tasks, .. } = &mut *bodies;
        let of_task = tasks.entry(id.clone()).or_default();
        let new = step.bytes();
        let old = of_task
            .steps
            .insert(number, (write, step))
            .map_or(0, |(_, old)| old.bytes());
        of_task.bytes = of_task.bytes + new - old;
        *bytes = *bytes + new - old;
    }

    /// Marks a task as ended, so that its bodies may be evicted.
    pub(super) fn mark_ended(&self, id: &TaskId) {
        let mut bodies = self.bodies();
        let is_news = bodies
            .tasks
            .get_mut(id)
            .is_some_and(|task| !std::mem::replace(&mut task.has_ended, true));
        if is_news {
            bodies.ended.push_back(id.clone());
        }
    }

    /// Removes the bodies that the failed write with id `write` inserted for a task.
    pub(super) fn undo_write(&self, id: &TaskId, write: u64) {
        let mut bodies = self.bodies();
        let VolatileBodies { bytes, tasks, .. } = &mut *bodies;
        let Some(of_task) = tasks.get_mut(id) else {
            return;
        };
        if of_task.created_by_write == write && of_task.request.is_some() {
            return bodies.remove(id);
        }
        of_task.steps.retain(|_, (by, step)| {
            let stays = *by != write;
            if !stays {
                of_task.bytes -= step.bytes();
                *bytes -= step.bytes();
            }
            stays
        });
    }

    pub(super) fn remove(&self, id: &TaskId) {
        let mut bodies = self.bodies();
        bodies.remove(id);
        bodies.ended.retain(|ended| ended != id);
    }

    /// Fills in the bodies that the task's row doesn't hold: request, status message, questions,
    /// artifacts and outcome.
    pub(super) fn restore_task(&self, task: &mut Task) {
        let bodies = self.bodies();
        let Some(held) = bodies.tasks.get(&task.id) else {
            return;
        };
        task.request.clone_from(&held.request);
        let steps = || {
            held.steps
                .range(..=task.last_event)
                .map(|(_, (_, step))| step)
        };
        if task.status_message.as_deref() == Some(PLACEHOLDER) {
            task.status_message = steps()
                .rev()
                .find_map(step_text)
                .map(str::to_owned)
                .or(task.status_message.take());
        }
        for open in &mut task.open_questions {
            let asked = steps().rev().find_map(|step| match step {
                TaskStep::Asked(asked) if asked.key == open.key => Some(asked.question.clone()),
                _ => None,
            });
            open.question = asked.unwrap_or_else(|| open.question.clone());
        }
        let artifacts = steps().filter_map(|step| match step {
            TaskStep::Artifact(artifact) => Some(artifact.clone()),
            _ => None,
        });
        let artifacts: Vec<_> = artifacts.collect();
        if artifacts.len() == task.artifacts.len() {
            task.artifacts = artifacts;
        }
        let is_redacted = match &task.outcome {
            Some(TaskOutcome::Failed(failure)) => failure.message == PLACEHOLDER,
            outcome => outcome.is_some(),
        };
        let outcome = steps().next_back().and_then(|step| match step {
            TaskStep::Completed(reply) => Some(TaskOutcome::Reply(reply.clone())),
            TaskStep::Failed(failure) | TaskStep::Rejected(failure) => {
                Some(TaskOutcome::Failed(failure.clone()))
            }
            _ => None,
        });
        if is_redacted && outcome.is_some() {
            task.outcome = outcome;
        }
    }

    /// Replaces the redacted step of an event by the complete one from memory, if it is still
    /// there.
    pub(super) fn restore_event(&self, id: &TaskId, event: &mut TaskEvent) {
        let bodies = self.bodies();
        let held = bodies
            .tasks
            .get(id)
            .and_then(|task| task.steps.get(&event.number));
        if let Some((_, step)) = held.filter(|(_, step)| step.name() == event.step.name()) {
            event.step = step.clone();
        }
    }
}

impl VolatileBodies {
    fn remove(&mut self, id: &TaskId) {
        if let Some(task) = self.tasks.remove(id) {
            self.bytes -= task.bytes;
        }
    }
}

fn step_text(step: &TaskStep) -> Option<&str> {
    match step {
        TaskStep::Said(text) | TaskStep::AuthWanted(text) | TaskStep::Cancelled { why: text } => {
            Some(text)
        }
        TaskStep::Failed(failure) | TaskStep::Rejected(failure) => Some(&failure.message),
        _ => None,
    }
}

/// Returns a copy of a step that may be written to disk: its kind and question key without any text
/// or body.
pub(super) fn redact_step(step: &TaskStep) -> TaskStep {
    let not_kept = || PLACEHOLDER.to_owned();
    let failed = |failure: &Failure| Failure::new(failure.kind, PLACEHOLDER);
    match step {
        TaskStep::Start => TaskStep::Start,
        TaskStep::Said(_) => TaskStep::Said(not_kept()),
        TaskStep::History(_) => TaskStep::History(RawObject::new()),
        TaskStep::Artifact(_) => TaskStep::Artifact(RawObject::new()),
        TaskStep::Asked(open) => {
            let question = match &*open.question {
                Question::Sample(_) => Question::Sample(Default::default()),
                Question::Elicit(_) => Question::Elicit(Default::default()),
                _ => Question::roots(),
            };
            TaskStep::Asked(OpenQuestion {
                key: open.key.clone(),
                question: question.into(),
            })
        }
        TaskStep::AuthWanted(_) => TaskStep::AuthWanted(not_kept()),
        TaskStep::Answered { key, .. } => TaskStep::Answered {
            key: key.clone(),
            answer: null_body(),
        },
        TaskStep::GivenUp { key } => TaskStep::GivenUp { key: key.clone() },
        TaskStep::Completed(_) => TaskStep::Completed(null_body()),
        TaskStep::Failed(failure) => TaskStep::Failed(failed(failure)),
        TaskStep::Rejected(failure) => TaskStep::Rejected(failed(failure)),
        TaskStep::Cancelled { why } if why == CANCEL_REASON_DEFAULT => TaskStep::cancelled(),
        TaskStep::Cancelled { .. } => TaskStep::Cancelled { why: not_kept() },
    }
}

fn null_body() -> Box<RawValue> {
    RawValue::NULL.to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use callboard_message::{DataClass, Principal};
    use callboard_runtime::NewTask;
    use serde_json::json;

    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    fn task(id: &str) -> Task {
        let expires = SystemTime::now();
        let new = NewTask {
            id: TaskId::new(id).unwrap(),
            class: DataClass::Clinical,
            ..NewTask::new(Principal::agent("ann"), "clinic", "ask", expires)
        };
        Task::new_submitted(new, 1, 0, expires)
    }

    /// Goal: a redacted task can be restored while its bodies are in memory. Method: a task that
    /// takes every kind of step, and its twin that takes the redacted ones; compared after each.
    #[test]
    fn a_row_and_what_is_held_are_the_task() {
        let (held, mut whole, mut row) = (VolatileStore::default(), task("a"), task("a"));
        whole.request = Some(raw("[1]"));
        held.insert_request(&row.id, whole.request.clone(), 0);
        let question = OpenQuestion {
            key: "q".into(),
            question: Question::elicit("ill?", json!({})).into(),
        };
        let steps = [
            TaskStep::Start,
            TaskStep::Said("Ann is ill".into()),
            TaskStep::Artifact(RawObject::single("for", "Ann")),
            TaskStep::Asked(question),
            TaskStep::Answered {
                key: "q".into(),
                answer: raw("\"Ann\""),
            },
            TaskStep::AuthWanted("Ann's".into()),
            TaskStep::Start,
            TaskStep::History(RawObject::single("name", "Ann")),
            TaskStep::Failed(Failure::internal("Ann").with_data(json!("Ann"))),
        ];
        let now = SystemTime::now();
        for step in steps {
            whole.apply(&step, now).unwrap();
            let kept = redact_step(&step);
            row.apply(&kept, now).unwrap();
            assert!(
                !serde_json::to_string(&kept).unwrap().contains("Ann"),
                "{}",
                step.name()
            );
            let mut event = TaskEvent {
                number: row.last_event,
                at: now,
                state: row.state,
                step: kept,
            };
            held.insert_step(&row.id, row.last_event, step.clone(), 1);
            held.restore_event(&row.id, &mut event);
            assert_eq!(event.step.bytes(), step.bytes());
            let mut seen = row.clone();
            held.restore_task(&mut seen);
            assert_eq!(
                (seen.bytes(), &seen.status_message, &seen.open_questions),
                (whole.bytes(), &whole.status_message, &whole.open_questions)
            );
        }
    }

    /// Goal: the limit holds at one byte more, running tasks stay, and a failed write is undone.
    /// Method: a limit of 10.
    #[test]
    fn room() {
        let held = VolatileStore::with_capacity(10);
        let [a, b] = ["a", "b"].map(|id| TaskId::new(id).unwrap());
        held.insert_request(&a, Some(raw("12345")), 0);
        held.insert_step(&a, 1, TaskStep::Said("12345".into()), 1);
        assert!(held.make_room(0).is_ok());
        assert!(matches!(
            held.make_room(1),
            Err(TaskError::TooLarge {
                bytes: 11,
                bytes_max: 10
            })
        ));
        held.undo_write(&a, 1);
        held.make_room(5).unwrap();
        held.insert_request(&b, Some(raw("12345")), 2);
        held.undo_write(&b, 2);
        assert!(!held.contains(&b));
        held.mark_ended(&a);
        held.mark_ended(&a);
        held.make_room(10).unwrap();
        assert!(!held.contains(&a));
        assert_eq!(held.bodies().bytes, 0);
    }
}
