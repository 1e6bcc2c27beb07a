//! What a server does for its tasks in a store that others write to as well: it keeps its leases, goes on with what an earlier
//! process or another node left, and hears what others want of the tasks that run here.

use std::sync::{Arc, Weak};
use std::time::Duration;

use callboard_message::{Failure, FailureKind};
use callboard_runtime::{
    By, CallMeta, Claim, Lease, LeaseView, TASK_CANCELS_EVERY, TASK_LEASE, TASK_RENEW_EVERY, Task, TaskError, TaskStep,
};
use tokio::runtime::Handle;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::Core;
use super::begin::{arguments, left, work};
use super::live::{Begin, Event, Live};

/// How often a server looks for tasks that nobody works on any more.
const RECOVER_EVERY: Duration = Duration::from_secs(30);
/// Tasks that are taken at once.
const CLAIMED_AT_ONCE_MAX: usize = 64;

/// Begins to keep a server's tasks, where that is needed and has not begun. Within a tokio runtime; outside of one it does
/// nothing, and the first request begins it.
pub(super) fn start(core: &Arc<Core>) {
    if core.is_shared
        && core.keeper.get().is_none()
        && let Ok(runtime) = Handle::try_current()
        && core.keeper.set(()).is_ok()
    {
        runtime.spawn(keep(Arc::downgrade(core)));
    }
}

async fn keep(core: Weak<Core>) {
    let Some(stopped) = core.upgrade().map(|core| core.stopped.clone()) else { return };
    let mut looks = interval(TASK_CANCELS_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut renewed, mut renew_at, mut recover_at) = (Instant::now(), Instant::now(), Instant::now());
    loop {
        tokio::select! {
            () = stopped.cancelled() => return,
            _ = looks.tick() => {}
        }
        let Some(core) = core.upgrade() else { return };
        let running = core.running();
        let began = Instant::now();
        if began >= renew_at && !running.is_empty() {
            match core.store.tasks.renew(core.store.tasks.worker(), TASK_LEASE).await {
                Ok(_) => {
                    (renewed, renew_at) = (began, began + TASK_RENEW_EVERY);
                    lose_those_of_others(&core, &running).await;
                }
                Err(error) => tracing::warn!(%error, "the leases of tasks weren't renewed"),
            }
        }
        if running.is_empty() {
            renewed = began;
        } else if renewed.elapsed() >= TASK_LEASE {
            // Others may have taken them by now, and do the same again.
            running.iter().for_each(|live| live.hint(Event::Lost));
        }
        if began >= recover_at {
            recover_at = began + RECOVER_EVERY;
            recover(&core).await;
        }
        // Looking would cost an idle server reads for nothing.
        if !running.is_empty() {
            hear(&core, &running).await;
        }
    }
}

/// Takes what is ready, and goes on with it.
async fn recover(core: &Arc<Core>) {
    while !core.stopped.is_cancelled() {
        let claim = Claim {
            scope: core.scope.clone(),
            by: core.store.tasks.worker().to_owned(),
            tasks_max: CLAIMED_AT_ONCE_MAX,
            lease: TASK_LEASE,
        };
        match core.store.tasks.claim(claim).await {
            Ok(claimed) if claimed.is_empty() => return,
            Ok(claimed) => {
                for (task, lease) in claimed {
                    resume(core, task, lease).await;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "no look at tasks that were left");
                return;
            }
        }
    }
}

async fn resume(core: &Arc<Core>, task: Arc<Task>, lease: Lease) {
    if left(&task).is_zero() {
        // Nobody can ask for it any more.
        give_up(core, &lease, Failure::new(FailureKind::Unavailable, "its time is over")).await;
        return core.forget(&task.id).await;
    }
    let Some(given) = arguments(&task) else {
        return give_up(core, &lease, Failure::new(FailureKind::Unavailable, "what it was asked wasn't kept")).await;
    };
    let (callee, call) = (core.callee(), CallMeta::new(Arc::new(task.principal.clone())));
    let call = match callee.judged(&task.message, &given, call).await {
        Ok(call) => call,
        Err(failure) => return give_up(core, &lease, failure).await,
    };
    tracing::info!(task = %task.id, skill = task.message, "a task goes on that an earlier process left");
    let work = work(callee, &task, given, call);
    core.go(Begin { core: core.clone(), left: left(&task), task, lease, is_resumed: true, work });
}

async fn give_up(core: &Core, lease: &Lease, why: Failure) {
    match core.store.tasks.step(&lease.task, By::Worker(lease), vec![TaskStep::Failed(why)]).await {
        Ok(_) | Err(TaskError::HasEnded(_)) => {}
        // It will be found again.
        Err(error) => tracing::warn!(task = %lease.task, %error, "a task that can't go on wasn't ended"),
    }
}

/// Ends the work on tasks that another took.
async fn lose_those_of_others(core: &Core, running: &[Live]) {
    for live in running {
        let Ok(Some(task)) = core.store.tasks.get(&live.lease.task).await else { continue };
        let has = |view: &LeaseView| view.by == live.lease.by && view.epoch == live.lease.epoch;
        if !task.state.is_terminal() && !task.lease.as_ref().is_some_and(has) {
            live.hint(Event::Lost);
        }
    }
}

/// Hears what others want of the tasks that run here: to end them, or to answer.
async fn hear(core: &Core, running: &[Live]) {
    match core.store.tasks.cancels(core.store.tasks.worker()).await {
        Ok(wanted) => {
            let is_wanted = |live: &&Live| wanted.contains(&live.lease.task);
            running.iter().filter(is_wanted).for_each(|live| live.hint(Event::CancelSoon));
        }
        Err(error) => tracing::warn!(%error, "no look at which tasks somebody wants ended"),
    }
    for live in running {
        let asks = !live.seen.borrow().open.is_empty();
        if asks && let Ok(Some(task)) = core.store.tasks.get(&live.lease.task).await {
            let known = live.seen.borrow().last_event;
            if task.last_event > known {
                live.hint(Event::CatchUp);
            }
        }
    }
}
