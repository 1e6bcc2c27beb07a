//! Stored task with its events, and the application of steps to both.

use std::sync::Arc;
use std::time::SystemTime;

use callboard_message::TaskState;

use crate::task::step::CompactEvent;
use crate::task::{LeaseView, OpenQuestion, Task, TaskError, TaskId, TaskResult, TaskStep};

/// Stored task with its events.
pub(super) struct TaskSlot {
    pub(super) task: Arc<Task>,
    pub(super) events: Vec<CompactEvent>,
    /// Ids of the tasks that this task needs and that haven't been deleted. The id of a deleted
    /// task may be reused.
    pub(super) needs: Vec<TaskId>,
    /// Fencing token of the task's latest lease.
    pub(super) epoch: u64,
}

impl TaskSlot {
    /// Applies steps to the task, all or none, and returns the task afterwards.
    pub(super) fn apply(&mut self, steps: Vec<TaskStep>, now: SystemTime) -> TaskResult<Arc<Task>> {
        self.apply_within(usize::MAX, steps, now)
    }

    /// Applies steps to the task, all or none, and returns the task afterwards. Fails if its bodies
    /// would exceed `bytes_max` in total.
    pub(super) fn apply_within(
        &mut self,
        bytes_max: usize,
        steps: Vec<TaskStep>,
        now: SystemTime,
    ) -> TaskResult<Arc<Task>> {
        // Readers that hold the task keep their version: it is copied on write.
        let task = Arc::make_mut(&mut self.task);
        let before = TaskUndo::of(task);
        let taken = task
            .apply_all_compact(steps, now)
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

/// Fields of a task that steps change, saved for a rollback.
struct TaskUndo {
    state: TaskState,
    updated: SystemTime,
    status: Option<String>,
    open: Vec<OpenQuestion>,
    artifacts: usize,
    last_event: u64,
    cancel_requested: bool,
    lease: Option<LeaseView>,
}

impl TaskUndo {
    fn of(task: &Task) -> Self {
        let Task {
            state,
            updated,
            status_message: status,
            open_questions: open,
            artifacts,
            last_event,
            cancel_requested,
            lease,
            ..
        } = task;
        Self {
            state: *state,
            updated: *updated,
            status: status.clone(),
            open: open.clone(),
            artifacts: artifacts.len(),
            last_event: *last_event,
            cancel_requested: *cancel_requested,
            lease: lease.clone(),
        }
    }

    fn restore(self, task: &mut Task) {
        let Self {
            state,
            updated,
            status,
            open,
            artifacts,
            last_event,
            cancel_requested,
            lease,
        } = self;
        // Ended tasks take no steps, so a task that was open had no outcome.
        if !state.is_terminal() {
            task.outcome = None;
        }
        task.artifacts.truncate(artifacts);
        (
            task.state,
            task.updated,
            task.status_message,
            task.open_questions,
        ) = (state, updated, status, open);
        (task.last_event, task.cancel_requested, task.lease) =
            (last_event, cancel_requested, lease);
    }
}
