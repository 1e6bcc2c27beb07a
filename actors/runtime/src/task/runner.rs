//! Works tasks off: each is asked of its agent, as its own call.

mod job;

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Claim, Claimed, TASK_CANCELS_EVERY, TASK_LEASE, TASK_RENEW_EVERY, TaskId, Tasks};
use crate::system::System;
use job::{Job, Why};

/// The scope that a runner takes tasks of, by default: [`super::NewTask::new`]'s.
const RUNNER_SCOPE_DEFAULT: &str = "agent";
/// Tasks that a runner works on at once, by default.
const RUNNER_TASKS_MAX_DEFAULT: usize = 16;
/// How often a runner looks for work where nothing in this process says that there is some: another node may have begun it,
/// and a lease may have run out.
const RUNNER_LOOK_EVERY: Duration = Duration::from_secs(1);

/// What a [`TaskRunner`] takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunnerOptions {
    /// Tasks of this scope.
    pub scope: String,
    /// At most so many at once.
    pub tasks_max: usize,
}

impl Default for RunnerOptions {
    fn default() -> Self {
        Self { scope: RUNNER_SCOPE_DEFAULT.to_owned(), tasks_max: RUNNER_TASKS_MAX_DEFAULT }
    }
}

/// Takes tasks that are ready from the system's store, asks each of the agent that it names, and keeps what comes of it: what
/// the agent says and asks, its reply, or why there is none.
///
/// A task whose parts still run when its agent has replied completes after them.
pub struct TaskRunner {
    system: System,
    options: RunnerOptions,
    working: HashMap<TaskId, oneshot::Sender<Why>>,
    jobs: JoinSet<()>,
}

/// A runner at work. Dropped, it is stopped.
pub struct RunnerHandle {
    stop: DropGuard,
    ended: watch::Receiver<()>,
}

impl RunnerHandle {
    /// Takes no more tasks and lets go of those under way: they are interrupted, and go on or fail as they say
    /// ([`super::OnRestart`]) when somebody takes them again.
    pub async fn stop(mut self) {
        drop(self.stop);
        // An error is the end as well: the other side is gone.
        while self.ended.changed().await.is_ok() {}
    }
}

impl TaskRunner {
    /// Starts one, on this thread's runtime.
    pub fn start(system: &System, options: RunnerOptions) -> RunnerHandle {
        let stop = CancellationToken::new();
        let (ending, ended) = watch::channel(());
        let runner = Self { system: system.clone(), options, working: HashMap::new(), jobs: JoinSet::new() };
        let stopped = stop.clone();
        tokio::spawn(async move {
            runner.run(stopped).await;
            drop(ending);
        });
        RunnerHandle { stop: stop.drop_guard(), ended }
    }

    async fn run(mut self, stop: CancellationToken) {
        let tasks = self.system.store().tasks.clone();
        let mut changes = tasks.changes();
        let mut look_every = every(RUNNER_LOOK_EVERY);
        let mut renew_every = every(TASK_RENEW_EVERY);
        let mut cancels_every = every(TASK_CANCELS_EVERY);
        let mut may_be_work = true;
        loop {
            let room = self.options.tasks_max.saturating_sub(self.working.len());
            if may_be_work && room > 0 && !stop.is_cancelled() {
                // Marked as seen before the look: what comes after it wakes.
                changes.mark_unchanged();
                may_be_work = self.take(&*tasks, room).await;
                continue;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(_) = self.jobs.join_next(), if !self.jobs.is_empty() => {
                    self.working.retain(|_, over| !over.is_closed());
                    may_be_work = true;
                }
                _ = renew_every.tick() => self.renew(&*tasks).await,
                _ = cancels_every.tick() => self.look_for_cancels(&*tasks).await,
                Ok(()) = changes.changed() => may_be_work = true,
                _ = look_every.tick() => may_be_work = true,
            }
        }
        for (_, over) in self.working.drain() {
            // Whose job has just ended needs no word.
            let _ = over.send(Why::Stopped);
        }
        while self.jobs.join_next().await.is_some() {}
    }

    /// Takes work; whether there may be more.
    async fn take(&mut self, tasks: &dyn Tasks, room: usize) -> bool {
        let claim = Claim {
            scope: self.options.scope.clone(),
            by: tasks.worker().to_owned(),
            tasks_max: room,
            lease: TASK_LEASE,
        };
        let claimed = match tasks.claim(claim).await {
            Ok(claimed) => claimed,
            Err(error) => {
                callboard_message::log::warn!(%error, "no tasks can be taken");
                return false;
            }
        };
        let took = !claimed.is_empty();
        for (task, lease) in claimed {
            self.begin((task, lease));
        }
        took
    }

    fn begin(&mut self, (task, lease): Claimed) {
        let (over, is_over) = oneshot::channel();
        // One of before, whose lease ran out unnoticed, is another's now: this one.
        if let Some(before) = self.working.insert(task.id.clone(), over) {
            let _ = before.send(Why::Lost);
        }
        let job = Job::new(self.system.clone(), task, lease);
        self.jobs.spawn(async move { job.run(is_over).await });
    }

    /// Renews all leases; where one is missing, its job ends.
    async fn renew(&mut self, tasks: &dyn Tasks) {
        if self.working.is_empty() {
            return;
        }
        let by = tasks.worker().to_owned();
        match tasks.renew(&by, TASK_LEASE).await {
            Ok(renewed) if renewed >= self.working.len() as u64 => {}
            Ok(_) => {
                let ids: Vec<_> = self.working.keys().cloned().collect();
                for id in ids {
                    let Ok(task) = tasks.get(&id).await else { continue };
                    let is_ours = task.is_some_and(|task| task.lease.as_ref().is_some_and(|lease| lease.by == by));
                    if !is_ours {
                        self.over(&id, Why::Lost);
                    }
                }
            }
            Err(error) => callboard_message::log::warn!(%error, "leases of tasks can't be renewed"),
        }
    }

    async fn look_for_cancels(&mut self, tasks: &dyn Tasks) {
        if self.working.is_empty() {
            return;
        }
        match tasks.cancels(tasks.worker()).await {
            Ok(ids) => ids.iter().for_each(|id| self.over(id, Why::Cancelled)),
            Err(error) => callboard_message::log::warn!(%error, "nobody can say which tasks are to be cancelled"),
        }
    }

    fn over(&mut self, id: &TaskId, why: Why) {
        if let Some(over) = self.working.remove(id) {
            let _ = over.send(why);
        }
    }
}

fn every(period: Duration) -> tokio::time::Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
