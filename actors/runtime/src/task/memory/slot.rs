//! A task that is kept, with its events, and how both take steps.

use std::sync::Arc;
use std::time::SystemTime;

use callboard_message::TaskState;

use crate::task::step::KeptEvent;
use crate::task::{LeaseView, OpenQuestion, Task, TaskError, TaskId, TaskResult, TaskStep};

/// What is kept of a task.
pub(super) struct Slot {
    pub(super) task: Arc<Task>,
    pub(super) events: Vec<KeptEvent>,
    /// What it needs, as far as that is still kept: another task may get the id of a forgotten one.
    pub(super) needs: Vec<TaskId>,
    /// Of its latest lease.
    pub(super) epoch: u64,
}

impl Slot {
    /// Takes steps, all or none, and answers the task after them.
    pub(super) fn take(&mut self, steps: Vec<TaskStep>, now: SystemTime) -> TaskResult<Arc<Task>> {
        self.take_within(usize::MAX, steps, now)
    }

    /// The same, where the task isn't larger than `bytes_max` after them.
    pub(super) fn take_within(
        &mut self,
        bytes_max: usize,
        steps: Vec<TaskStep>,
        now: SystemTime,
    ) -> TaskResult<Arc<Task>> {
        // A copy is made where somebody looks at the task: they have it as it was.
        let task = Arc::make_mut(&mut self.task);
        let before = Before::of(task);
        let taken = task
            .take_over(steps, now)
            .and_then(|events| match task.bytes() {
                bytes if bytes > bytes_max => Err(TaskError::TooLarge { bytes, bytes_max }),
                _ => Ok(events),
            });
        match taken {
            Ok(events) => self.events.extend(events),
            Err(error) => {
                before.restore(task);
                return Err(error);
            }
        }
        Ok(self.task.clone())
    }
}

/// What steps change of a task, as it was before them.
struct Before {
    state: TaskState,
    updated: SystemTime,
    said: Option<String>,
    open: Vec<OpenQuestion>,
    artifacts: usize,
    last_event: u64,
    cancel_wanted: bool,
    lease: Option<LeaseView>,
}

impl Before {
    fn of(task: &Task) -> Self {
        let Task {
            state,
            updated,
            said,
            open,
            artifacts,
            last_event,
            cancel_wanted,
            lease,
            ..
        } = task;
        Self {
            state: *state,
            updated: *updated,
            said: said.clone(),
            open: open.clone(),
            artifacts: artifacts.len(),
            last_event: *last_event,
            cancel_wanted: *cancel_wanted,
            lease: lease.clone(),
        }
    }

    fn restore(self, task: &mut Task) {
        let Self {
            state,
            updated,
            said,
            open,
            artifacts,
            last_event,
            cancel_wanted,
            lease,
        } = self;
        // What has ended takes no step, so what took one had no outcome.
        if !state.is_terminal() {
            task.outcome = None;
        }
        task.artifacts.truncate(artifacts);
        (task.state, task.updated, task.said, task.open) = (state, updated, said, open);
        (task.last_event, task.cancel_wanted, task.lease) = (last_event, cancel_wanted, lease);
    }
}
