//! What an endpoint does for its tasks in a store that others write to as well: it keeps its leases, goes on with what an
//! earlier process or another node left, and hears what others want of the tasks that run here.

use std::sync::{Arc, Weak};
use std::time::Duration;

use callboard_message::{Failure, FailureKind};
use callboard_runtime::{
    By, CallMeta, Claim, Lease, LeaseView, TASK_CANCELS_EVERY, TASK_LEASE, TASK_RENEW_EVERY, Task, TaskError, TaskStep,
};
use tokio::runtime::Handle;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::live::{Begin, Event, Live};
use super::record::{Extra, left};
use super::{TaskState, perform};
use crate::inbound::endpoint::Endpoint;

/// How often an endpoint looks for tasks that nobody works on any more.
const RECOVER_EVERY: Duration = Duration::from_secs(30);
/// Tasks that are taken at once.
const CLAIMED_AT_ONCE_MAX: usize = 64;

/// Begins to keep an endpoint's tasks, where that is needed and has not begun. Within a tokio runtime; outside of one it does
/// nothing, and the first request begins it.
pub(crate) fn start(endpoint: &Arc<Endpoint>) {
    let tasks = &endpoint.tasks;
    if tasks.is_shared
        && let Ok(runtime) = Handle::try_current()
        && tasks.keeper.set(()).is_ok()
    {
        runtime.spawn(keep(Arc::downgrade(endpoint)));
    }
}

async fn keep(endpoint: Weak<Endpoint>) {
    let Some(stopped) = endpoint.upgrade().map(|endpoint| endpoint.tasks.stopped()) else { return };
    let mut looks = interval(TASK_CANCELS_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut renewed, mut renew_at, mut recover_at) = (Instant::now(), Instant::now(), Instant::now());
    loop {
        tokio::select! {
            () = stopped.cancelled() => return,
            _ = looks.tick() => {}
        }
        let Some(endpoint) = endpoint.upgrade() else { return };
        let tasks = &endpoint.tasks;
        // Looking would cost an idle gateway reads for nothing. Another agent may have such tools later.
        if !endpoint.surface().has_task_tools() && tasks.running().is_empty() {
            continue;
        }
        let began = Instant::now();
        if began >= renew_at {
            match tasks.store.renew(tasks.store.worker(), TASK_LEASE).await {
                Ok(_) => {
                    (renewed, renew_at) = (began, began + TASK_RENEW_EVERY);
                    tasks.lose_those_of_others().await;
                }
                Err(error) => tracing::warn!(%error, "the leases of tasks weren't renewed"),
            }
        }
        if renewed.elapsed() >= TASK_LEASE {
            // Others may have taken them by now, and do the same again.
            tasks.running().iter().for_each(|live| live.hint(Event::Lost));
        }
        if began >= recover_at {
            recover_at = began + RECOVER_EVERY;
            recover(&endpoint).await;
        }
        tasks.hear().await;
    }
}

/// Takes what is ready, and goes on with it.
async fn recover(endpoint: &Arc<Endpoint>) {
    let tasks = &endpoint.tasks;
    // Who serves no tools as tasks could only fail them.
    while !tasks.stopped.is_cancelled() && endpoint.surface().has_task_tools() {
        let claim = Claim {
            scope: tasks.scope.clone(),
            by: tasks.store.worker().to_owned(),
            tasks_max: CLAIMED_AT_ONCE_MAX,
            lease: TASK_LEASE,
        };
        match tasks.store.claim(claim).await {
            Ok(claimed) if claimed.is_empty() => return,
            Ok(claimed) => {
                for (task, lease) in claimed {
                    resume(endpoint, task, lease).await;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "no look at tasks that were left");
                return;
            }
        }
    }
}

async fn resume(endpoint: &Arc<Endpoint>, task: Arc<Task>, lease: Lease) {
    let tasks = &endpoint.tasks;
    if left(&task).is_zero() || tasks.is_of_lost_session(&task) {
        // Nobody can ask for it any more.
        tasks.give_up(&lease, "nobody can ask for it any more").await;
        return tasks.forget(&task.id).await;
    }
    let (Some(extra), Some(params)) = (Extra::of(&task), &task.request) else {
        return tasks.give_up(&lease, "what it was asked wasn't kept").await;
    };
    tracing::info!(task = %task.id, tool = task.message, "a task goes on that an earlier process left");
    let call = CallMeta::new(Arc::new(task.principal.clone()));
    let work = perform(endpoint, Some(params), extra.revision, call);
    tasks.go(Begin {
        endpoint: endpoint.clone(),
        left: left(&task),
        task,
        lease,
        is_resumed: true,
        abilities: extra.client,
        told: None,
        work,
    });
}

impl TaskState {
    fn running(&self) -> Vec<Live> {
        let live = self.live();
        live.values().filter(|live| !live.seen.borrow().state.is_terminal()).cloned().collect()
    }

    /// Whether the task is of a session of nobody in particular in an earlier run: its number means another by now.
    fn is_of_lost_session(&self, task: &Task) -> bool {
        let session = task.owner.as_str().strip_prefix("session:");
        session.is_some_and(|session| session.rsplit_once(':').is_none_or(|(run, _)| run != &*self.run))
    }

    async fn give_up(&self, lease: &Lease, why: &str) {
        let failed = TaskStep::Failed(Failure::new(FailureKind::Unavailable, why));
        match self.store.step(&lease.task, By::Worker(lease), vec![failed]).await {
            Ok(_) | Err(TaskError::HasEnded(_)) => {}
            // It will be found again.
            Err(error) => tracing::warn!(task = %lease.task, %error, "a task that can't go on wasn't ended"),
        }
    }

    /// Ends the work on tasks that another took.
    async fn lose_those_of_others(&self) {
        for live in self.running() {
            let Ok(Some(task)) = self.store.get(&live.lease.task).await else { continue };
            let has = |view: &LeaseView| view.by == live.lease.by && view.epoch == live.lease.epoch;
            if !task.state.is_terminal() && !task.lease.as_ref().is_some_and(has) {
                live.hint(Event::Lost);
            }
        }
    }

    /// Hears what others want of the tasks that run here: to end them, or to answer.
    async fn hear(&self) {
        match self.store.cancels(self.store.worker()).await {
            Ok(wanted) => {
                let here = self.live();
                wanted.iter().filter_map(|id| here.get(id)).for_each(|live| live.hint(Event::CancelSoon));
            }
            Err(error) => tracing::warn!(%error, "no look at which tasks somebody wants ended"),
        }
        for live in self.running() {
            let asks = !live.seen.borrow().open.is_empty();
            if asks && let Ok(Some(task)) = self.store.get(&live.lease.task).await {
                let known = live.seen.borrow().last_event;
                if task.last_event > known {
                    live.hint(Event::CatchUp);
                }
            }
        }
    }
}
