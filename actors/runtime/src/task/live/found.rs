//! A task that its owner looks for: one that runs here, or one that another node or an earlier process left in the store.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::{LiveTask, LiveTasks, left};
use crate::journal::JournalError;
use crate::task::follow::FOLLOW_LOOK_EVERY;
use crate::task::{By, Task, TaskError, TaskId, TaskOwner, Tasks};

/// How long somebody who cancels a task of another node waits for it to be cancelled; then it is told how it stands.
const CANCEL_SEEN_IN: Duration = Duration::from_secs(2);

/// A task that was found.
pub struct Found {
    /// As it was when this last looked.
    pub task: Arc<Task>,
    /// While it runs here.
    pub live: Option<LiveTask>,
    /// The store.
    pub tasks: Arc<dyn Tasks>,
    /// See [`LiveTask::delivering`].
    pub delivering: Arc<watch::Sender<HashSet<String>>>,
    changes: watch::Receiver<u64>,
}

impl LiveTasks {
    /// A task of `owner`'s. Another's isn't told from one that never was, or whose time is over.
    ///
    /// # Errors
    /// The store's.
    pub async fn find(&self, id: &TaskId, owner: &TaskOwner) -> Result<Option<Found>, JournalError> {
        let (live, changes) = (self.get(id), self.tasks.changes());
        let task = match &live {
            Some(live) => Some(live.seen.borrow().clone()),
            None => self.tasks.get(id).await?,
        };
        let is_theirs = |task: &Arc<Task>| task.owner == *owner && task.scope == self.scope && !left(task).is_zero();
        Ok(task.filter(is_theirs).map(|task| self.found_since(task, live, changes)))
    }

    /// A task that is at hand.
    pub fn found(&self, task: Arc<Task>, live: Option<LiveTask>) -> Found {
        self.found_since(task, live, self.tasks.changes())
    }

    fn found_since(&self, task: Arc<Task>, live: Option<LiveTask>, changes: watch::Receiver<u64>) -> Found {
        let delivering = live.as_ref().map(|live| live.delivering.clone()).unwrap_or_default();
        Found { task, live, tasks: self.tasks.clone(), delivering, changes }
    }
}

impl Found {
    /// Ends when it has taken a step, and has looked at it.
    ///
    /// # Errors
    /// `NotFound` where its time is over; the store's.
    pub async fn changed(&mut self) -> Result<(), TaskError> {
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

    async fn look(&mut self) -> Result<(), TaskError> {
        // Marked as seen before the look: what comes after it wakes.
        self.changes.mark_unchanged();
        self.task = self.tasks.get(&self.task.id).await?.ok_or(TaskError::NotFound)?;
        Ok(())
    }

    /// Looks at it again, where it runs here.
    pub fn refresh(&mut self) {
        if let Some(live) = &mut self.live {
            self.task = live.seen.borrow_and_update().clone();
        }
    }

    /// Cancels it where it hasn't ended, and looks what became of it: it may have ended otherwise, or its worker be slow to hear.
    ///
    /// # Errors
    /// `NotFound` where its time is over; the store's.
    pub async fn cancel(&mut self) -> Result<(), TaskError> {
        if let Some(live) = &self.live {
            match live.cancel().await {
                Ok(task) => {
                    self.task = task;
                    return Ok(());
                }
                // Or its work is over here, and another has it.
                Err(TaskError::HasEnded(_)) => self.look().await?,
                Err(error) => return Err(error),
            }
        }
        if self.task.state.is_terminal() {
            return Ok(());
        }
        self.live = None;
        match self.tasks.want_cancel(&self.task.id, By::Owner(&self.task.owner)).await {
            Ok(task) => self.task = task,
            Err(TaskError::HasEnded(_)) => return self.look().await,
            Err(error) => return Err(error),
        }
        let ended = async {
            while !self.task.state.is_terminal() {
                self.changed().await?;
            }
            Ok(())
        };
        // Its worker is told; when it does so is its own matter.
        timeout(CANCEL_SEEN_IN, ended).await.unwrap_or(Ok(()))
    }
}
