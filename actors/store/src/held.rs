//! What of clinical tasks may not reach the disk: held in memory, as long as this process lives.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use callboard_message::{Failure, Question, RawObject};
use callboard_runtime::{
    CANCELLED_WHY, OpenQuestion, Task, TaskError, TaskEvent, TaskId, TaskOutcome, TaskResult,
    TaskStep,
};
use parking_lot::{Mutex, MutexGuard};
use serde_json::value::RawValue;

/// Bytes of clinical tasks' bodies that are held; the oldest that have ended give way.
/// At the limit: `TooLarge` or `Overloaded`.
const CLINICAL_HELD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What stands in the store for what is only held.
const NOT_KEPT: &str = "not kept";

/// The bodies of clinical tasks.
pub(crate) struct Held {
    bytes_max: usize,
    /// Names one write, so that what it put here can be taken back.
    writes: AtomicU64,
    bodies: Mutex<Bodies>,
}

#[derive(Default)]
struct Bodies {
    bytes: usize,
    tasks: HashMap<TaskId, OfTask>,
    ended: VecDeque<TaskId>,
}

/// Of one task. What a write has put here before its commit counts only as far as the row does.
#[derive(Default)]
struct OfTask {
    begun_by: u64,
    bytes: usize,
    request: Option<Box<RawValue>>,
    steps: BTreeMap<u64, (u64, TaskStep)>,
    has_ended: bool,
}

impl Default for Held {
    fn default() -> Self {
        Self::with_room(CLINICAL_HELD_BYTES_MAX)
    }
}

impl Held {
    fn with_room(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            writes: AtomicU64::new(0),
            bodies: Mutex::default(),
        }
    }

    fn bodies(&self) -> MutexGuard<'_, Bodies> {
        self.bodies.lock()
    }

    /// A name for a write.
    pub(super) fn write(&self) -> u64 {
        self.writes.fetch_add(1, Ordering::Relaxed)
    }

    /// Makes room for `bytes` more.
    pub(super) fn make_room(&self, bytes: usize) -> TaskResult<()> {
        let mut bodies = self.bodies();
        while bodies.bytes + bytes > self.bytes_max {
            let Some(id) = bodies.ended.pop_front() else {
                return Err(TaskError::TooLarge {
                    bytes: bodies.bytes + bytes,
                    bytes_max: self.bytes_max,
                });
            };
            bodies.forget(&id);
        }
        Ok(())
    }

    pub(super) fn has(&self, id: &TaskId) -> bool {
        self.bodies().tasks.contains_key(id)
    }

    pub(super) fn begin(&self, id: &TaskId, request: Option<Box<RawValue>>, write: u64) {
        let mut bodies = self.bodies();
        bodies.forget(id);
        let bytes = request.as_ref().map_or(0, |request| request.get().len());
        bodies.bytes += bytes;
        bodies.tasks.insert(
            id.clone(),
            OfTask {
                begun_by: write,
                bytes,
                request,
                ..OfTask::default()
            },
        );
    }

    /// The step that became event `number`.
    pub(super) fn put(&self, id: &TaskId, number: u64, step: TaskStep, write: u64) {
        let mut bodies = self.bodies();
        let Bodies { bytes, tasks, .. } = &mut *bodies;
        let of_task = tasks.entry(id.clone()).or_default();
        let new = step.bytes();
        let old = of_task
            .steps
            .insert(number, (write, step))
            .map_or(0, |(_, old)| old.bytes());
        of_task.bytes = of_task.bytes + new - old;
        *bytes = *bytes + new - old;
    }

    /// It may give way from now on.
    pub(super) fn ended(&self, id: &TaskId) {
        let mut bodies = self.bodies();
        let is_news = bodies
            .tasks
            .get_mut(id)
            .is_some_and(|task| !std::mem::replace(&mut task.has_ended, true));
        if is_news {
            bodies.ended.push_back(id.clone());
        }
    }

    /// A write was not kept.
    pub(super) fn undo(&self, id: &TaskId, write: u64) {
        let mut bodies = self.bodies();
        let Bodies { bytes, tasks, .. } = &mut *bodies;
        let Some(of_task) = tasks.get_mut(id) else {
            return;
        };
        if of_task.begun_by == write && of_task.request.is_some() {
            return bodies.forget(id);
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

    pub(super) fn forget(&self, id: &TaskId) {
        let mut bodies = self.bodies();
        bodies.forget(id);
        bodies.ended.retain(|ended| ended != id);
    }

    /// Puts back into a task what its row doesn't have.
    pub(super) fn complete(&self, task: &mut Task) {
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
        if task.said.as_deref() == Some(NOT_KEPT) {
            task.said = steps()
                .rev()
                .find_map(said)
                .map(str::to_owned)
                .or(task.said.take());
        }
        for open in &mut task.open {
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
            Some(TaskOutcome::Failed(failure)) => failure.message == NOT_KEPT,
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

    /// Puts back into an event what its row doesn't have.
    pub(super) fn complete_event(&self, id: &TaskId, event: &mut TaskEvent) {
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

impl Bodies {
    fn forget(&mut self, id: &TaskId) {
        if let Some(task) = self.tasks.remove(id) {
            self.bytes -= task.bytes;
        }
    }
}

fn said(step: &TaskStep) -> Option<&str> {
    match step {
        TaskStep::Said(text) | TaskStep::AuthWanted(text) | TaskStep::Cancelled { why: text } => {
            Some(text)
        }
        TaskStep::Failed(failure) | TaskStep::Rejected(failure) => Some(&failure.message),
        _ => None,
    }
}

/// The step as the store may have it: which one, and of a question which, but no word of it.
pub(super) fn redacted(step: &TaskStep) -> TaskStep {
    let not_kept = || NOT_KEPT.to_owned();
    let failed = |failure: &Failure| Failure::new(failure.kind, NOT_KEPT);
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
            answer: null(),
        },
        TaskStep::GivenUp { key } => TaskStep::GivenUp { key: key.clone() },
        TaskStep::Completed(_) => TaskStep::Completed(null()),
        TaskStep::Failed(failure) => TaskStep::Failed(failed(failure)),
        TaskStep::Rejected(failure) => TaskStep::Rejected(failed(failure)),
        TaskStep::Cancelled { why } if why == CANCELLED_WHY => TaskStep::cancelled(),
        TaskStep::Cancelled { .. } => TaskStep::Cancelled { why: not_kept() },
    }
}

fn null() -> Box<RawValue> {
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
        Task::submitted(new, 1, 0, expires)
    }

    /// Goal: what was redacted is whole again while it is held. Method: a task that takes every kind of step, and its twin
    /// that takes the redacted ones; compared after each.
    #[test]
    fn a_row_and_what_is_held_are_the_task() {
        let (held, mut whole, mut row) = (Held::default(), task("a"), task("a"));
        whole.request = Some(raw("[1]"));
        held.begin(&row.id, whole.request.clone(), 0);
        let question = OpenQuestion {
            key: "q".into(),
            question: Question::elicit("ill?", json!({})).into(),
        };
        let steps = [
            TaskStep::Start,
            TaskStep::Said("Ann is ill".into()),
            TaskStep::Artifact(RawObject::of("for", "Ann")),
            TaskStep::Asked(question),
            TaskStep::Answered {
                key: "q".into(),
                answer: raw("\"Ann\""),
            },
            TaskStep::AuthWanted("Ann's".into()),
            TaskStep::Start,
            TaskStep::History(RawObject::of("name", "Ann")),
            TaskStep::Failed(Failure::internal("Ann").with_data(json!("Ann"))),
        ];
        let now = SystemTime::now();
        for step in steps {
            whole.step(&step, now).unwrap();
            let kept = redacted(&step);
            row.step(&kept, now).unwrap();
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
            held.put(&row.id, row.last_event, step.clone(), 1);
            held.complete_event(&row.id, &mut event);
            assert_eq!(event.step.bytes(), step.bytes());
            let mut seen = row.clone();
            held.complete(&mut seen);
            assert_eq!(
                (seen.bytes(), &seen.said, &seen.open),
                (whole.bytes(), &whole.said, &whole.open)
            );
        }
    }

    /// Goal: the bound holds at one byte more, running tasks stay, and what wasn't kept isn't held. Method: a bound of 10.
    #[test]
    fn room() {
        let held = Held::with_room(10);
        let [a, b] = ["a", "b"].map(|id| TaskId::new(id).unwrap());
        held.begin(&a, Some(raw("12345")), 0);
        held.put(&a, 1, TaskStep::Said("12345".into()), 1);
        assert!(held.make_room(0).is_ok());
        assert!(matches!(
            held.make_room(1),
            Err(TaskError::TooLarge {
                bytes: 11,
                bytes_max: 10
            })
        ));
        held.undo(&a, 1);
        held.make_room(5).unwrap();
        held.begin(&b, Some(raw("12345")), 2);
        held.undo(&b, 2);
        assert!(!held.has(&b));
        held.ended(&a);
        held.ended(&a);
        held.make_room(10).unwrap();
        assert!(!held.has(&a));
        assert_eq!(held.bodies().bytes, 0);
    }
}
