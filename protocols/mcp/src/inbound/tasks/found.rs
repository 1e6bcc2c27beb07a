//! A task that its owner looks for: one that runs here, or one that another node or an earlier process left in the store.

use std::collections::HashSet;
use std::sync::Arc;

use callboard_message::{Answer, Failure};
use callboard_rpc::{RpcError, code};
use callboard_runtime::live::{Delivering, LiveTask};
use callboard_runtime::{By, FOLLOW_LOOK_EVERY, Task, TaskError, TaskId, TaskOwner, TaskStep, Tasks};
use tokio::sync::watch;
use tokio::time::{Duration, timeout};

use super::record::{left, refused};
use super::{TaskRequest, TaskState};

/// How long somebody who cancels a task of another node waits for it to be cancelled; then it is told how it stands.
const CANCEL_SEEN_IN: Duration = Duration::from_secs(2);

/// A task that was found.
pub(super) struct Found {
    /// As it was when this last looked.
    pub(super) task: Arc<Task>,
    /// Questions that are being put to somebody right now.
    pub(super) delivering: Arc<watch::Sender<HashSet<String>>>,
    /// While it runs here.
    live: Option<LiveTask>,
    store: Arc<dyn Tasks>,
    changes: watch::Receiver<u64>,
}

impl TaskState {
    /// A task of `request`'s owner.
    ///
    /// # Errors
    /// `INVALID_PARAMS` where it names none: another's isn't told from one that never was.
    pub(super) async fn find(&self, request: &TaskRequest<'_>) -> Result<Found, RpcError> {
        let id = super::super::surface::object(request.params)?.text("taskId");
        let id = id.ok_or_else(|| RpcError::new(code::INVALID_PARAMS, "`taskId` must be a string"))?;
        self.find_of(&self.owner(&request.call.principal, request.session), &id).await
    }

    pub(super) async fn find_of(&self, owner: &TaskOwner, id: &str) -> Result<Found, RpcError> {
        let id = TaskId::new(id).map_err(|_| unknown())?;
        let live = self.live.get(&id);
        let changes = self.live.tasks.changes();
        let task = match &live {
            Some(live) => Some(live.seen.borrow().clone()),
            None => self
                .live
                .tasks
                .get(&id)
                .await
                .map_err(|error| refused(error.into()))?
                .filter(|task| !left(task).is_zero()),
        };
        let task = task.filter(|task| task.owner == *owner && task.scope == self.live.scope).ok_or_else(unknown)?;
        let delivering = live.as_ref().map(|live| live.delivering.clone()).unwrap_or_default();
        Ok(Found { task, delivering, live, store: self.live.tasks.clone(), changes })
    }
}

impl Found {
    /// Ends when it has taken a step, and has looked at it.
    ///
    /// # Errors
    /// `INVALID_PARAMS` where it is there no more: its time is over.
    pub(super) async fn changed(&mut self) -> Result<(), RpcError> {
        if let Some(live) = &mut self.live {
            if live.seen.changed().await.is_ok() {
                self.task = live.seen.borrow_and_update().clone();
                return Ok(());
            }
            // It runs here no more: what became of it stands in the store.
            self.live = None;
        }
        let seen = self.task.last_event;
        while self.task.last_event == seen {
            self.look().await?;
            if self.task.last_event == seen {
                // Where nobody tells any more, time does.
                if let Ok(Err(_)) = timeout(FOLLOW_LOOK_EVERY, self.changes.changed()).await {
                    tokio::time::sleep(FOLLOW_LOOK_EVERY).await;
                }
            }
        }
        Ok(())
    }

    /// Looks at the task again, where it runs here.
    pub(super) fn refresh(&mut self) {
        if let Some(live) = &mut self.live {
            self.task = live.seen.borrow_and_update().clone();
        }
    }

    async fn look(&mut self) -> Result<(), RpcError> {
        // Marked as seen before the look: what comes after it wakes.
        self.changes.mark_unchanged();
        let task = self.store.get(&self.task.id).await.map_err(|error| refused(error.into()))?;
        self.task = task.ok_or_else(unknown)?;
        Ok(())
    }

    /// Takes a question to put it to somebody; `None` where another does so already.
    pub(super) fn deliver(&self, key: &str) -> Option<Delivering> {
        Delivering::of(&self.delivering, key)
    }

    /// Answers a question; nothing where it waits no more. Ends when the answer is kept.
    ///
    /// # Errors
    /// The store's: the question still waits.
    pub(super) async fn answer(&mut self, key: String, answer: Result<Answer, Failure>) -> Result<(), RpcError> {
        let taken = match (&self.live, answer) {
            (Some(live), Ok(answer)) => live.tell(Vec::new(), Some((key, answer))).await,
            (Some(live), Err(why)) => live.give_up(key, why).await,
            // That somebody couldn't answer is no answer: only its worker gives a question up.
            (None, Err(_)) => return Ok(()),
            (None, Ok(answer)) => {
                let step = TaskStep::Answered { key, answer: answer.to_raw() };
                self.store.step(&self.task.id, By::Owner(&self.task.owner), vec![step]).await
            }
        };
        match taken {
            Ok(task) => {
                self.task = task;
                Ok(())
            }
            Err(TaskError::HasEnded(_) | TaskError::Illegal { .. } | TaskError::NotFound) => Ok(()),
            Err(error) => Err(refused(error)),
        }
    }

    /// Cancels it, where it still runs, and looks what became of it.
    ///
    /// # Errors
    /// The store's.
    pub(super) async fn cancel(&mut self) -> Result<(), RpcError> {
        if let Some(live) = &self.live {
            let cancelled = live.cancel().await;
            self.refresh();
            // Ended otherwise is ended.
            return if self.task.state.is_terminal() { Ok(()) } else { cancelled.map(drop).map_err(refused) };
        }
        if self.task.state.is_terminal() {
            return Ok(());
        }
        match self.store.want_cancel(&self.task.id, By::Owner(&self.task.owner)).await {
            Ok(task) => self.task = task,
            Err(TaskError::HasEnded(_)) => return self.look().await,
            Err(error) => return Err(refused(error)),
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

fn unknown() -> RpcError {
    RpcError::new(code::INVALID_PARAMS, "there is no such task")
}
