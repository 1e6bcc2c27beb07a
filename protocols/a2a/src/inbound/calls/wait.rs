//! A task that its owner looks for, and waits for.

use std::sync::Arc;
use std::time::Duration;

use callboard_message::TaskState;
use callboard_runtime::live::LiveTask;
use callboard_runtime::{By, FOLLOW_LOOK_EVERY, Task, TaskError, TaskId, TaskOwner};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::begin::left;
use super::{Core, Who, view};
use crate::convert::{of_store, of_tasks};
use crate::{A2aError, ErrorKind};

/// How long somebody who cancels a task of another node waits for it to be cancelled; then it is told how it stands.
const CANCEL_SEEN_IN: Duration = Duration::from_secs(2);

/// A task that was found: one that runs here, or one that another node or an earlier process left in the store.
pub(super) struct Found {
    /// As it was when this last looked.
    pub(super) task: Arc<Task>,
    /// While it runs here.
    pub(super) live: Option<LiveTask>,
    core: Arc<Core>,
    changes: watch::Receiver<u64>,
}

impl Core {
    /// A task of `who`'s. Another's isn't told from one that never was.
    ///
    /// # Errors
    /// `TaskNotFound`.
    pub(super) async fn find(self: &Arc<Self>, who: &Who, id: &str) -> Result<Found, A2aError> {
        let found = match TaskId::new(id) {
            Ok(task) => self.look_for(&task, &who.owner()).await?,
            Err(_) => None,
        };
        found.ok_or_else(|| A2aError::task_not_found(id))
    }

    pub(super) async fn look_for(self: &Arc<Self>, id: &TaskId, owner: &TaskOwner) -> Result<Option<Found>, A2aError> {
        let live = self.live.get(id);
        let changes = self.store.tasks.changes();
        let task = match &live {
            Some(live) => Some(live.seen.borrow().clone()),
            None => self.store.tasks.get(id).await.map_err(|error| of_store(&error))?,
        };
        let is_theirs =
            |task: &Arc<Task>| task.owner == *owner && task.scope == self.live.scope && !left(task).is_zero();
        Ok(task.filter(is_theirs).map(|task| Found { task, live, core: self.clone(), changes }))
    }

    pub(super) fn found(self: &Arc<Self>, task: Arc<Task>, live: Option<LiveTask>) -> Found {
        Found { task, live, core: self.clone(), changes: self.store.tasks.changes() }
    }
}

impl Found {
    /// Ends when it stands still: it has ended, or waits for its owner. At `until` it is as it is.
    ///
    /// # Errors
    /// `TaskNotFound` where its time is over; the store's.
    pub(super) async fn settled(&mut self, until: Instant) -> Result<(), A2aError> {
        while !self.task.state.is_terminal() && !view::is_interrupted(&self.task) {
            match timeout_at(until, self.changed()).await {
                Ok(changed) => changed?,
                Err(_) => return Ok(()),
            }
        }
        Ok(())
    }

    /// Ends when it stands still, where it goes on after a restart: what it had asked is asked again. At `until` it is as it is.
    ///
    /// # Errors
    /// As [`Found::settled`].
    pub(super) async fn asks_again(&mut self, until: Instant) -> Result<(), A2aError> {
        match &self.live {
            Some(live) if live.is_resumed => self.settled(until).await,
            _ => Ok(()),
        }
    }

    /// Ends when it has taken a step, and has looked at it.
    ///
    /// # Errors
    /// As [`Found::settled`].
    pub(super) async fn changed(&mut self) -> Result<(), A2aError> {
        let seen = self.task.last_event;
        if let Some(live) = &mut self.live {
            let moved = live.seen.wait_for(|task| task.last_event > seen).await.map(|task| task.clone());
            if let Ok(task) = moved {
                self.task = task;
                return Ok(());
            }
            // It runs here no more: what became of it stands in the store.
            self.live = None;
        }
        while self.task.last_event == seen {
            self.look().await?;
            if self.task.last_event == seen {
                // Where nobody tells any more, time does.
                if let Ok(Err(_)) = timeout(FOLLOW_LOOK_EVERY, self.changes.changed()).await {
                    sleep(FOLLOW_LOOK_EVERY).await;
                }
            }
        }
        Ok(())
    }

    async fn look(&mut self) -> Result<(), A2aError> {
        // Marked as seen before the look: what comes after it wakes.
        self.changes.mark_unchanged();
        let task = self.core.store.tasks.get(&self.task.id).await.map_err(|error| of_store(&error))?;
        self.task = task.ok_or_else(|| A2aError::task_not_found(self.task.id.as_str()))?;
        Ok(())
    }

    /// Cancels it, and looks what became of it.
    ///
    /// # Errors
    /// `TaskNotCancelable` where it has ended; the store's.
    pub(super) async fn cancel(&mut self) -> Result<(), A2aError> {
        let by_worker = match &self.live {
            Some(live) => Some(live.cancel().await),
            None => None,
        };
        match by_worker {
            Some(Ok(task)) => {
                self.task = task;
                return Ok(());
            }
            Some(Err(TaskError::HasEnded(_))) => self.look().await?,
            Some(Err(error)) => return Err(of_tasks(&error)),
            None => {}
        }
        if self.task.state.is_terminal() {
            return Err(self.ended());
        }
        self.live = None;
        match self.core.store.tasks.want_cancel(&self.task.id, By::Owner(&self.task.owner)).await {
            Ok(task) => self.task = task,
            Err(TaskError::HasEnded(_)) => return Err(self.ended()),
            Err(TaskError::NotFound) => return Err(A2aError::task_not_found(self.task.id.as_str())),
            Err(error) => return Err(of_tasks(&error)),
        }
        // Its worker is told; when it does so is its own matter.
        let until = Instant::now() + CANCEL_SEEN_IN;
        while !self.task.state.is_terminal() {
            match timeout_at(until, self.changed()).await {
                Ok(changed) => changed?,
                Err(_) => break,
            }
        }
        match self.task.state {
            TaskState::Completed | TaskState::Failed | TaskState::Rejected => Err(self.ended()),
            _ => Ok(()),
        }
    }

    fn ended(&self) -> A2aError {
        let error = A2aError::new(ErrorKind::TaskNotCancelable, "the task has ended");
        error.about(self.task.id.as_str())
    }
}
