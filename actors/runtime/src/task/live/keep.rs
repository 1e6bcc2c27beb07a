//! Tasks in a store that others write to as well: leases are kept, what an earlier process left goes on, and a task is found
//! that runs here, on another node, or nowhere any more.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use callboard_message::{Failure, log};
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::caller::Event;
use super::{LiveTask, LiveTasks, left};
use crate::journal::JournalResult;
use crate::task::{
    By, Claim, FOLLOW_LOOK_EVERY, Lease, LeaseView, TASK_CANCELS_EVERY, TASK_LEASE,
    TASK_RENEW_EVERY, Task, TaskError, TaskId, TaskOwner, TaskResult, TaskStep, Tasks,
};

/// How often a server looks for tasks that nobody works on any more.
const TASKS_RECOVERED_EVERY: Duration = Duration::from_secs(30);
/// Tasks that are taken at once.
const CLAIMED_AT_ONCE_MAX: usize = 64;

/// Whoever serves tasks, as far as those need to know it that were left.
pub trait TaskHost: Send + Sync + 'static {
    /// Whether it could go on with a task that was left. It is asked again each time.
    fn can_resume(&self) -> bool {
        true
    }

    /// Goes on with a task that was left: has it run, or answers why it can't go on.
    fn resume(
        self: Arc<Self>,
        task: Arc<Task>,
        lease: Lease,
    ) -> BoxFuture<'static, Result<(), CannotResume>>;
}

/// Why a task that was left doesn't go on.
#[derive(Debug)]
pub enum CannotResume {
    /// It fails with that.
    Fails(Failure),
    /// It fails and is forgotten: nobody can ask for it any more.
    IsForgotten(Failure),
}

impl LiveTasks {
    /// A host serves them from now on, as long as it is there: what was left goes on with it, or with a newer one.
    pub fn serve(self: &Arc<Self>, host: &Arc<impl TaskHost>) {
        let host = Arc::downgrade(host);
        let mut hosts = self.hosts.lock();
        hosts.retain(|host| host.strong_count() > 0);
        hosts.push(host);
        drop(hosts);
        self.start();
    }

    /// Begins to keep them, where that is needed and has not begun. Within a tokio runtime, which they run in then; outside of
    /// one it does nothing, and the first request begins it.
    pub fn start(self: &Arc<Self>) {
        if self.options.is_shared
            && self.keeper.get().is_none()
            && let Ok(runtime) = Handle::try_current()
            && self.keeper.set(runtime.clone()).is_ok()
        {
            runtime.spawn(keep(Arc::downgrade(self), self.stopped.clone()));
        }
    }

    /// The newest of those who serve them, if it can go on with what was left.
    fn host(&self) -> Option<Arc<dyn TaskHost>> {
        let hosts = self.hosts.lock();
        let newest = hosts.iter().rev().find_map(Weak::upgrade);
        drop(hosts);
        newest.filter(|host| host.can_resume())
    }

    /// Takes what is ready, and goes on with it.
    async fn recover(&self, host: &Arc<dyn TaskHost>) {
        while !self.stopped.is_cancelled() && host.can_resume() {
            let claim = Claim {
                scope: self.scope.clone(),
                by: self.tasks.worker().to_owned(),
                tasks_max: CLAIMED_AT_ONCE_MAX,
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
                    log::warn!(%error, "no look at tasks that were left");
                    return;
                }
            }
        }
    }

    async fn resume(&self, host: &Arc<dyn TaskHost>, task: Arc<Task>, lease: Lease) {
        let id = task.id.clone();
        let resumed = if left(&task).is_zero() {
            Err(CannotResume::IsForgotten(Failure::unavailable(
                "its time is over",
            )))
        } else {
            host.clone().resume(task, lease.clone()).await
        };
        match resumed {
            Ok(()) => log::info!(task = %id, "a task goes on that an earlier process left"),
            Err(CannotResume::Fails(why)) => self.give_up(&lease, why).await,
            Err(CannotResume::IsForgotten(why)) => {
                self.give_up(&lease, why).await;
                self.forget(&id).await;
            }
        }
    }

    async fn give_up(&self, lease: &Lease, why: Failure) {
        match self
            .tasks
            .step(&lease.task, By::Worker(lease), vec![TaskStep::Failed(why)])
            .await
        {
            Ok(_) | Err(TaskError::HasEnded(_)) => {}
            // It will be found again.
            Err(error) => {
                log::warn!(task = %lease.task, %error, "a task that can't go on wasn't ended")
            }
        }
    }

    /// Ends the work on tasks that another took.
    async fn lose_those_of_others(&self, running: &[LiveTask]) {
        for live in running {
            let Ok(Some(task)) = self.tasks.get(&live.lease.task).await else {
                continue;
            };
            let has = |view: &LeaseView| view.by == live.lease.by && view.epoch == live.lease.epoch;
            if !task.state.is_terminal() && !task.lease.as_ref().is_some_and(has) {
                live.hint(Event::Lost);
            }
        }
    }

    /// Hears what others want of the tasks that run here: to end them, or to answer.
    async fn hear(&self, running: &[LiveTask]) {
        match self.tasks.cancels(self.tasks.worker()).await {
            Ok(wanted) => {
                let is_wanted = |live: &&LiveTask| wanted.contains(&live.lease.task);
                running
                    .iter()
                    .filter(is_wanted)
                    .for_each(|live| live.hint(Event::CancelSoon));
            }
            Err(error) => log::warn!(%error, "no look at which tasks somebody wants ended"),
        }
        for live in running {
            let asks = !live.seen.borrow().open.is_empty();
            if asks && let Ok(Some(task)) = self.tasks.get(&live.lease.task).await {
                let known = live.seen.borrow().last_event;
                if task.last_event > known {
                    live.hint(Event::CatchUp);
                }
            }
        }
    }
}

/// As long as somebody serves them, or one runs.
async fn keep(all: Weak<LiveTasks>, stopped: CancellationToken) {
    let mut looks = interval(TASK_CANCELS_EVERY);
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
            match all.tasks.renew(all.tasks.worker(), TASK_LEASE).await {
                Ok(_) => {
                    (renewed, renew_at) = (began, began + TASK_RENEW_EVERY);
                    all.lose_those_of_others(&running).await;
                }
                Err(error) => log::warn!(%error, "the leases of tasks weren't renewed"),
            }
        }
        if renewed.elapsed() >= TASK_LEASE {
            // Others may have taken them by now, and do the same again.
            running.iter().for_each(|live| live.hint(Event::Lost));
        }
        if began >= recover_at
            && let Some(host) = all.host()
        {
            recover_at = began + TASKS_RECOVERED_EVERY;
            all.recover(&host).await;
        }
        // Looking would cost an idle server reads for nothing.
        if !running.is_empty() {
            all.hear(&running).await;
        }
    }
}

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
    pub async fn find(&self, id: &TaskId, owner: &TaskOwner) -> JournalResult<Option<Found>> {
        let (live, changes) = (self.get(id), self.tasks.changes());
        let task = match &live {
            Some(live) => Some(live.seen.borrow().clone()),
            None => self.tasks.get(id).await?,
        };
        let is_theirs = |task: &Arc<Task>| {
            task.owner == *owner && task.scope == self.scope && !left(task).is_zero()
        };
        Ok(task
            .filter(is_theirs)
            .map(|task| self.found_since(task, live, changes)))
    }

    /// A task that is at hand.
    pub fn found(&self, task: Arc<Task>, live: Option<LiveTask>) -> Found {
        self.found_since(task, live, self.tasks.changes())
    }

    fn found_since(
        &self,
        task: Arc<Task>,
        live: Option<LiveTask>,
        changes: watch::Receiver<u64>,
    ) -> Found {
        let delivering = live
            .as_ref()
            .map(|live| live.delivering.clone())
            .unwrap_or_default();
        Found {
            task,
            live,
            tasks: self.tasks.clone(),
            delivering,
            changes,
        }
    }
}

impl Found {
    /// Ends when it has taken a step, and has looked at it.
    ///
    /// # Errors
    /// `NotFound` where its time is over; the store's.
    pub async fn changed(&mut self) -> TaskResult<()> {
        let seen = self.task.last_event;
        if let Some(live) = &mut self.live {
            let moved = live
                .seen
                .wait_for(|task| task.last_event > seen)
                .await
                .map(|task| task.clone());
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

    async fn look(&mut self) -> TaskResult<()> {
        // Marked as seen before the look: what comes after it wakes.
        self.changes.mark_unchanged();
        self.task = self
            .tasks
            .get(&self.task.id)
            .await?
            .ok_or(TaskError::NotFound)?;
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
    pub async fn cancel(&mut self) -> TaskResult<()> {
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
        match self
            .tasks
            .want_cancel(&self.task.id, By::Owner(&self.task.owner))
            .await
        {
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
