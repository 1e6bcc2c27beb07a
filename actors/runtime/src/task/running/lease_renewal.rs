//! Tasks in a shared store: lease renewal, recovery of interrupted tasks, and lookup of tasks that
//! run here, on another node, or nowhere.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use callboard_message::{Failure, log};
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::caller::WorkerEvent;
use super::{RunningTask, RunningTasks, time_left};
use crate::journal::JournalResult;
use crate::task::{
    ClaimRequest, Lease, LeaseView, TASK_CANCEL_POLL_INTERVAL, TASK_LEASE, TASK_POLL_INTERVAL,
    TASK_RENEW_INTERVAL, Task, TaskActor, TaskError, TaskId, TaskOwner, TaskResult, TaskStep,
    TaskStore,
};

/// Interval at which a server looks for interrupted tasks.
const TASK_RECOVERY_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum number of interrupted tasks that a server claims at once.
const CLAIM_BATCH_MAX: usize = 64;

/// Server of a task scope that can resume interrupted tasks.
pub trait TaskHost: Send + Sync + 'static {
    /// Returns true if the server can resume tasks now. Checked before each search for interrupted
    /// tasks.
    fn can_resume(&self) -> bool {
        true
    }

    /// Resumes an interrupted task that was claimed with `lease`, or returns the reason for which
    /// it can't be resumed.
    fn resume(
        self: Arc<Self>,
        task: Arc<Task>,
        lease: Lease,
    ) -> BoxFuture<'static, Result<(), CannotResume>>;
}

/// Reason for which an interrupted task can't be resumed.
#[derive(Debug)]
pub enum CannotResume {
    /// The task can't continue. It ends with this failure.
    Fail(Failure),
    /// The task can't continue, and no client can ask for it any more. It ends with this failure
    /// and is deleted.
    Forget(Failure),
}

impl RunningTasks {
    /// Attaches a server for as long as the server exists, and starts lease renewal. Interrupted
    /// tasks are resumed by the server attached last.
    pub fn attach_host(self: &Arc<Self>, host: &Arc<impl TaskHost>) {
        let host = Arc::downgrade(host);
        let mut hosts = self.hosts.lock();
        hosts.retain(|host| host.strong_count() > 0);
        hosts.push(host);
        drop(hosts);
        self.start_renewal();
    }

    /// Starts lease renewal and the search for interrupted tasks on the current tokio runtime. Does
    /// nothing if they have been started, the store isn't shared, or there is no runtime.
    pub fn start_renewal(self: &Arc<Self>) {
        if self.options.is_shared
            && self.renewal_runtime.get().is_none()
            && let Ok(runtime) = Handle::try_current()
            && self.renewal_runtime.set(runtime.clone()).is_ok()
        {
            runtime.spawn(renew_leases(Arc::downgrade(self), self.stopped.clone()));
        }
    }

    /// Returns the server attached last, if it can resume tasks now.
    fn newest_host(&self) -> Option<Arc<dyn TaskHost>> {
        let hosts = self.hosts.lock();
        let newest = hosts.iter().rev().find_map(Weak::upgrade);
        drop(hosts);
        newest.filter(|host| host.can_resume())
    }

    /// Claims all ready tasks of the scope and has the server resume them.
    async fn recover(&self, host: &Arc<dyn TaskHost>) {
        while !self.stopped.is_cancelled() && host.can_resume() {
            let claim = ClaimRequest {
                scope: self.scope.clone(),
                worker: self.tasks.worker_id().to_owned(),
                tasks_max: CLAIM_BATCH_MAX,
                except_owners: Vec::new(),
                lease: TASK_LEASE,
            };
            match self.tasks.claim(claim).await {
                Ok(claimed) if claimed.is_empty() => return,
                Ok(claimed) => {
                    for (task, lease) in claimed {
                        self.resume(host, task, lease).await;
                    }
                }
                Err(error) => {
                    log::warn!(%error, "failed to claim interrupted tasks");
                    return;
                }
            }
        }
    }

    async fn resume(&self, host: &Arc<dyn TaskHost>, task: Arc<Task>, lease: Lease) {
        let id = task.id.clone();
        let resumed = if time_left(&task).is_zero() {
            Err(CannotResume::Forget(Failure::unavailable(
                "the task expired while no process worked on it",
            )))
        } else {
            host.clone().resume(task, lease.clone()).await
        };
        match resumed {
            Ok(()) => log::info!(task = %id, "resumed an interrupted task"),
            Err(CannotResume::Fail(why)) => self.fail_task(&lease, why).await,
            Err(CannotResume::Forget(why)) => {
                self.fail_task(&lease, why).await;
                self.delete(&id).await;
            }
        }
    }

    async fn fail_task(&self, lease: &Lease, why: Failure) {
        match self
            .tasks
            .apply(
                &lease.task,
                TaskActor::Worker(lease),
                vec![TaskStep::Failed(why)],
            )
            .await
        {
            Ok(_) | Err(TaskError::HasEnded(_)) => {}
            // A later recovery finds it again.
            Err(error) => {
                log::warn!(task = %lease.task, %error, "failed to end a task that can't be resumed; the next recovery tries again")
            }
        }
    }

    /// Stops work in this process on tasks that another worker has claimed.
    async fn stop_lost_tasks(&self, running: &[RunningTask]) {
        for live in running {
            let Ok(Some(task)) = self.tasks.get(&live.lease.task).await else {
                continue;
            };
            let has = |view: &LeaseView| {
                view.worker == live.lease.worker && view.epoch == live.lease.epoch
            };
            if !task.state.is_terminal() && !task.lease.as_ref().is_some_and(has) {
                live.notify(WorkerEvent::Lost);
            }
        }
    }

    /// Notifies the workers of tasks in this process of cancellation requests and answers that
    /// other nodes have stored.
    async fn poll_changes(&self, running: &[RunningTask]) {
        match self.tasks.cancel_requests(self.tasks.worker_id()).await {
            Ok(wanted) => {
                let is_wanted = |live: &&RunningTask| wanted.contains(&live.lease.task);
                running
                    .iter()
                    .filter(is_wanted)
                    .for_each(|live| live.notify(WorkerEvent::CancelSoon));
            }
            Err(error) => log::warn!(%error, "failed to read cancellation requests"),
        }
        for live in running {
            let asks = !live.updates.borrow().open_questions.is_empty();
            if asks && let Ok(Some(task)) = self.tasks.get(&live.lease.task).await {
                let known = live.updates.borrow().last_event;
                if task.last_event > known {
                    live.notify(WorkerEvent::CatchUp);
                }
            }
        }
    }
}

/// Renews leases and resumes interrupted tasks until `stopped`, or until no server and no task is
/// left.
async fn renew_leases(all: Weak<RunningTasks>, stopped: CancellationToken) {
    let mut looks = interval(TASK_CANCEL_POLL_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut renewed, mut renew_at, mut recover_at) =
        (Instant::now(), Instant::now(), Instant::now());
    loop {
        tokio::select! {
            () = stopped.cancelled() => return,
            _ = looks.tick() => {}
        }
        let Some(all) = all.upgrade() else { return };
        let began = Instant::now();
        let running = all.running();
        if running.is_empty() {
            renewed = began;
        } else if began >= renew_at {
            match all.tasks.renew(all.tasks.worker_id(), TASK_LEASE).await {
                Ok(_) => {
                    (renewed, renew_at) = (began, began + TASK_RENEW_INTERVAL);
                    all.stop_lost_tasks(&running).await;
                }
                Err(error) => log::warn!(%error, "failed to renew task leases"),
            }
        }
        if renewed.elapsed() >= TASK_LEASE {
            // Other workers may have claimed the tasks by now and repeat their work.
            running
                .iter()
                .for_each(|live| live.notify(WorkerEvent::Lost));
        }
        if began >= recover_at
            && let Some(host) = all.newest_host()
        {
            recover_at = began + TASK_RECOVERY_INTERVAL;
            all.recover(&host).await;
        }
        // An idle server must not cost reads.
        if !running.is_empty() {
            all.poll_changes(&running).await;
        }
    }
}

/// Maximum time to wait until another node has cancelled its task. Then the task's current state is
/// returned.
const CANCEL_WAIT_MAX: Duration = Duration::from_secs(2);

/// Task found by [`RunningTasks::find`], with its handle if it runs in this process.
pub struct FoundTask {
    /// State of the task when it was last read.
    pub task: Arc<Task>,
    /// Handle of the task; `None` if it doesn't run in this process.
    pub running: Option<RunningTask>,
    /// Store of the task.
    pub tasks: Arc<dyn TaskStore>,
    /// Keys of the questions that are being presented to a client. See
    /// [`RunningTask::claimed_questions`].
    pub claimed_questions: Arc<watch::Sender<HashSet<String>>>,
    changes: watch::Receiver<u64>,
}

impl RunningTasks {
    /// Returns the task of `owner` with this id in the scope. `None` if there is none, it belongs
    /// to another owner, or it has expired.
    ///
    /// # Errors
    /// The store's error.
    pub async fn find(&self, id: &TaskId, owner: &TaskOwner) -> JournalResult<Option<FoundTask>> {
        let (live, changes) = (self.get(id), self.tasks.changes());
        let task = match &live {
            Some(live) => Some(live.updates.borrow().clone()),
            None => self.tasks.get(id).await?,
        };
        let is_theirs = |task: &Arc<Task>| {
            task.owner == *owner && task.scope == self.scope && !time_left(task).is_zero()
        };
        Ok(task
            .filter(is_theirs)
            .map(|task| self.found_task_since(task, live, changes)))
    }

    /// Creates a [`FoundTask`] from a task that has already been read. `live` is its handle if it
    /// runs in this process.
    pub fn found_task(&self, task: Arc<Task>, live: Option<RunningTask>) -> FoundTask {
        self.found_task_since(task, live, self.tasks.changes())
    }

    fn found_task_since(
        &self,
        task: Arc<Task>,
        live: Option<RunningTask>,
        changes: watch::Receiver<u64>,
    ) -> FoundTask {
        let delivering = live
            .as_ref()
            .map(|live| live.claimed_questions.clone())
            .unwrap_or_default();
        FoundTask {
            task,
            running: live,
            tasks: self.tasks.clone(),
            claimed_questions: delivering,
            changes,
        }
    }
}

impl FoundTask {
    /// Waits until the task has new events, then reads its state.
    ///
    /// # Errors
    /// [`TaskError::NotFound`] if it has been deleted; [`TaskError::ResultNotStored`] if the call
    /// has ended and the store has no room for its result; the store's error.
    pub async fn wait_until_changed(&mut self) -> TaskResult<()> {
        let seen = self.task.last_event;
        if let Some(live) = &mut self.running {
            let moved = tokio::select! {
                biased;
                moved = live.updates.wait_for(|task| task.last_event > seen) => {
                    moved.map(|task| task.clone())
                }
                Ok(Some(full)) = async { live.store_full.wait_for(Option::is_some).await.map(|full| full.clone()) } => {
                    return Err(TaskError::ResultNotStored(full));
                }
            };
            if let Ok(task) = moved {
                self.task = task;
                return Ok(());
            }
            // It no longer runs here: the store has its state.
            self.running = None;
        }
        while self.task.last_event == seen {
            self.reload().await?;
            if self.task.last_event == seen {
                // Without change notifications, poll.
                if let Ok(Err(_)) = timeout(TASK_POLL_INTERVAL, self.changes.changed()).await {
                    sleep(TASK_POLL_INTERVAL).await;
                }
            }
        }
        Ok(())
    }

    async fn reload(&mut self) -> TaskResult<()> {
        // Marked as seen before reading, so that a later change wakes.
        self.changes.mark_unchanged();
        self.task = self
            .tasks
            .get(&self.task.id)
            .await?
            .ok_or(TaskError::NotFound)?;
        Ok(())
    }

    /// Updates the state of the task if it runs in this process; otherwise does nothing.
    pub fn refresh(&mut self) {
        if let Some(live) = &mut self.running {
            self.task = live.updates.borrow_and_update().clone();
        }
    }

    /// Cancels the task if it is open, and reads its state. The state needn't be cancelled
    /// afterwards: the task may have ended in another way before. If its worker is on another node,
    /// it may still be open after 2 s.
    ///
    /// # Errors
    /// [`TaskError::NotFound`] if it has been deleted; the store's error.
    pub async fn cancel(&mut self) -> TaskResult<()> {
        if let Some(live) = &self.running {
            match live.cancel().await {
                Ok(task) => {
                    self.task = task;
                    return Ok(());
                }
                // Or it no longer runs here and another worker has it.
                Err(TaskError::HasEnded(_) | TaskError::NotRunning) => self.reload().await?,
                Err(error) => return Err(error),
            }
        }
        if self.task.state.is_terminal() {
            return Ok(());
        }
        self.running = None;
        match self
            .tasks
            .request_cancel(&self.task.id, TaskActor::Owner(&self.task.owner))
            .await
        {
            Ok(task) => self.task = task,
            Err(TaskError::HasEnded(_)) => return self.reload().await,
            Err(error) => return Err(error),
        }
        let ended = async {
            while !self.task.state.is_terminal() {
                self.wait_until_changed().await?;
            }
            Ok(())
        };
        // The worker is notified; it may take longer than this wait.
        timeout(CANCEL_WAIT_MAX, ended).await.unwrap_or(Ok(()))
    }
}
