//! Works tasks off: each is asked of its agent, as its own call.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callboard_message::{
    Answer, Artifact, Failure, FailureKind, Log, Progress, Question, RawObject, RawReply, log,
};
use futures::StreamExt;
use futures::stream::BoxStream;
use serde_json::value::RawValue;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::call::{CallEvent, CallMeta, Caller, ChannelCaller, PendingQuestion, channel_caller};
use crate::journal::{JournalError, JournalResult};
use crate::system::System;
use crate::task::{
    By, Claim, FOLLOW_LOOK_EVERY, Lease, NewTask, OpenQuestion, Released, TASK_CANCELS_EVERY,
    TASK_LEASE, TASK_RENEW_EVERY, Task, TaskError, TaskEvent, TaskId, TaskResult, TaskStep, Tasks,
    follow,
};

/// The scope that a runner takes tasks of, by default: [`NewTask::new`](crate::NewTask::new)'s.
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
        Self {
            scope: RUNNER_SCOPE_DEFAULT.to_owned(),
            tasks_max: RUNNER_TASKS_MAX_DEFAULT,
        }
    }
}

/// Takes tasks that are ready from the system's store, asks each of the agent that it names, and keeps what comes of it: what
/// the agent says and asks, its reply, or why there is none.
///
/// A task whose parts still run when its agent has replied completes after them.
pub struct TaskRunner {
    system: System,
    tasks: Arc<dyn Tasks>,
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
    /// ([`crate::task::OnRestart`]) when somebody takes them again.
    pub async fn stop(mut self) {
        drop(self.stop);
        // An error is the end as well: the other side is gone.
        while self.ended.changed().await.is_ok() {}
    }
}

impl TaskRunner {
    /// Starts one, on this thread's runtime. It works with the store that the system has now: [`System::keep_in`] comes first.
    pub fn start(system: &System, options: RunnerOptions) -> RunnerHandle {
        let stop = CancellationToken::new();
        let (ending, ended) = watch::channel(());
        let (tasks, system) = (system.store().tasks.clone(), system.clone());
        let runner = Self {
            system,
            tasks,
            options,
            working: HashMap::new(),
            jobs: JoinSet::new(),
        };
        let stopped = stop.clone();
        tokio::spawn(async move {
            runner.run(stopped).await;
            drop(ending);
        });
        RunnerHandle {
            stop: stop.drop_guard(),
            ended,
        }
    }

    async fn run(mut self, stop: CancellationToken) {
        let mut changes = self.tasks.changes();
        let mut look_every = every(RUNNER_LOOK_EVERY);
        let mut renew_every = every(TASK_RENEW_EVERY);
        let mut cancels_every = every(TASK_CANCELS_EVERY);
        let mut may_be_work = true;
        loop {
            let room = self.options.tasks_max.saturating_sub(self.working.len());
            if may_be_work && room > 0 && !stop.is_cancelled() {
                // Marked as seen before the look: what comes after it wakes.
                changes.mark_unchanged();
                may_be_work = self.take(room).await;
                continue;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(_) = self.jobs.join_next(), if !self.jobs.is_empty() => {
                    self.working.retain(|_, over| !over.is_closed());
                    may_be_work = true;
                }
                _ = renew_every.tick() => self.renew().await,
                _ = cancels_every.tick() => self.look_for_cancels().await,
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
    async fn take(&mut self, room: usize) -> bool {
        let claim = Claim {
            scope: self.options.scope.clone(),
            by: self.tasks.worker().to_owned(),
            tasks_max: room,
            lease: TASK_LEASE,
        };
        let claimed = match self.tasks.claim(claim).await {
            Ok(claimed) => claimed,
            Err(error) => {
                log::warn!(%error, "no tasks can be taken");
                return false;
            }
        };
        let took = !claimed.is_empty();
        for (task, lease) in claimed {
            let (over, is_over) = oneshot::channel();
            // One of before, whose lease ran out unnoticed, is another's now: this one.
            if let Some(before) = self.working.insert(task.id.clone(), over) {
                let _ = before.send(Why::Lost);
            }
            let job = Job {
                system: self.system.clone(),
                tasks: self.tasks.clone(),
                task,
                lease,
            };
            self.jobs.spawn(async move { job.run(is_over).await });
        }
        took
    }

    /// Renews all leases; where one is missing, its job ends.
    async fn renew(&mut self) {
        if self.working.is_empty() {
            return;
        }
        let tasks = self.tasks.clone();
        match tasks.renew(tasks.worker(), TASK_LEASE).await {
            Ok(renewed) if renewed >= self.working.len() as u64 => {}
            Ok(_) => {
                let ids: Vec<_> = self.working.keys().cloned().collect();
                for id in ids {
                    let Ok(task) = tasks.get(&id).await else {
                        continue;
                    };
                    let lease = task.as_ref().and_then(|task| task.lease.as_ref());
                    if lease.is_none_or(|lease| lease.by != tasks.worker()) {
                        self.over(&id, Why::Lost);
                    }
                }
            }
            Err(error) => log::warn!(%error, "leases of tasks can't be renewed"),
        }
    }

    async fn look_for_cancels(&mut self) {
        if self.working.is_empty() {
            return;
        }
        match self.tasks.cancels(self.tasks.worker()).await {
            Ok(ids) => ids.iter().for_each(|id| self.over(id, Why::Cancelled)),
            Err(error) => log::warn!(%error, "nobody can say which tasks are to be cancelled"),
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

/// How long a store that is away is left alone before the end of a task is kept again.
const KEEP_PAUSE: Duration = Duration::from_millis(500);

/// Why a job is over before its agent has replied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// The runner is stopped: the task is interrupted.
    Stopped,
    /// Another worker has the task.
    Lost,
    /// Somebody wants it ended.
    Cancelled,
}

/// A question that waits for its answer.
struct Waiting {
    question: Arc<Question>,
    answer: oneshot::Sender<Result<Answer, Failure>>,
}

/// One task that is worked on.
struct Job {
    system: System,
    tasks: Arc<dyn Tasks>,
    task: Arc<Task>,
    lease: Lease,
}

impl Job {
    /// Until the task has ended, or is another's.
    async fn run(&self, over: oneshot::Receiver<Why>) {
        let why = tokio::select! {
            biased;
            why = over => why.unwrap_or(Why::Stopped),
            () = self.work() => return,
        };
        let kept = match why {
            Why::Lost => Ok(()),
            Why::Stopped => self.tasks.release(&self.lease, Released::Interrupted).await,
            Why::Cancelled => self.end(TaskStep::cancelled()).await,
        };
        if let Err(error) = kept {
            log::warn!(task = %self.task.id, %error, "the task is left as it is; its lease runs out");
        }
    }

    async fn work(&self) {
        let step = match self.step(vec![TaskStep::Start]).await {
            Ok(task) => match self.call(task.last_event).await {
                Ok(reply) => TaskStep::Completed(reply),
                Err(failure) => ending(failure),
            },
            // It has ended, or is another's.
            Err(TaskError::HasEnded(_) | TaskError::LostLease | TaskError::NotFound) => return,
            Err(error) => TaskStep::Failed(error.into()),
        };
        if let Err(error) = self.end(step).await {
            log::warn!(task = %self.task.id, %error, "what a task came to can't be kept; its lease runs out");
        }
    }

    async fn step(&self, steps: Vec<TaskStep>) -> TaskResult<Arc<Task>> {
        self.tasks
            .step(&self.task.id, By::Worker(&self.lease), steps)
            .await
    }

    /// The call, after the event `last_event` of its task. Dropped, it is cancelled.
    async fn call(&self, last_event: u64) -> RawReply {
        let NewTask {
            agent,
            message,
            request,
            principal,
            deadline,
            expires,
            ..
        } = &self.task.new;
        let Some(callee) = self.system.directory().get(agent) else {
            return Err(Failure::not_found(format!("there is no agent {agent}")));
        };
        let (caller, mut happening) = channel_caller();
        let call =
            CallMeta::new(Arc::new(principal.clone())).with_caller(Arc::new(Listener(caller)));
        let left = deadline
            .unwrap_or(*expires)
            .min(*expires)
            .duration_since(SystemTime::now())
            .unwrap_or_default();
        let call = match Instant::now().checked_add(left) {
            Some(deadline) => call.until(deadline),
            None => call,
        };
        let _cancel = call.cancel.clone().drop_guard();
        let request = request.clone().unwrap_or_else(|| RawValue::NULL.to_owned());
        let work = timeout(
            left,
            callee.ask_named(message.as_str(), request, Some(Arc::new(call))),
        );
        let mut work = std::pin::pin!(work);
        let mut asking = Asking {
            job: self,
            waiting: HashMap::new(),
            asked: 0,
            followed: None,
            last_event,
        };
        loop {
            tokio::select! {
                biased;
                reply = &mut work => {
                    return reply.unwrap_or_else(|_| {
                        let why = "the task's time is over; whether the agent acted is unknown";
                        Err(Failure::timed_out(why))
                    });
                }
                Some(event) = happening.recv() => asking.take(event).await?,
                event = asking.next() => asking.settle(event).await?,
            }
        }
    }

    /// Keeps the end of the task. Where parts of it still run it waits for them; where the store is away it tries again, as
    /// long as the lease may last.
    async fn end(&self, mut step: TaskStep) -> JournalResult<()> {
        let mut until = Instant::now() + TASK_LEASE;
        loop {
            match self.step(vec![step.clone()]).await {
                Ok(_)
                | Err(TaskError::HasEnded(_) | TaskError::LostLease | TaskError::NotFound) => {
                    return Ok(());
                }
                Err(TaskError::ChildrenRunning(_)) => {
                    if self.parts_end().await.is_err() {
                        sleep(KEEP_PAUSE).await;
                    }
                    until = Instant::now() + TASK_LEASE;
                }
                Err(TaskError::Journal(error)) if is_passing(&error) && Instant::now() < until => {
                    sleep(KEEP_PAUSE).await;
                }
                Err(TaskError::Journal(error)) if is_passing(&error) => return Err(error),
                // What it came to can't be kept as it is: why can.
                Err(error) if matches!(step, TaskStep::Completed(_)) => {
                    step = TaskStep::Failed(error.into())
                }
                Err(error) => return Err(JournalError::Store(error.to_string())),
            }
        }
    }

    /// Waits until no part of the task runs.
    async fn parts_end(&self) -> JournalResult<()> {
        let mut changes = self.tasks.changes();
        loop {
            // Marked as seen before the look: what comes after it wakes.
            changes.mark_unchanged();
            if self
                .tasks
                .get(&self.task.id)
                .await?
                .is_none_or(|task| task.children_open == 0)
            {
                return Ok(());
            }
            if let Ok(Err(_)) = timeout(FOLLOW_LOOK_EVERY, changes.changed()).await {
                // Nobody tells any more.
                sleep(FOLLOW_LOOK_EVERY).await;
            }
        }
    }
}

/// Whether the same may go through later.
fn is_passing(error: &JournalError) -> bool {
    !matches!(
        error,
        JournalError::TooLarge { .. } | JournalError::Invalid(_) | JournalError::Fenced { .. }
    )
}

/// How a task ends whose agent failed.
fn ending(failure: Failure) -> TaskStep {
    match failure.kind {
        FailureKind::Rejected => TaskStep::Rejected(failure),
        FailureKind::Cancelled => TaskStep::Cancelled {
            why: failure.message,
        },
        _ => TaskStep::Failed(failure),
    }
}

/// Caller of a task's call. Log lines and artifacts aren't kept, so they take no room from progress and questions; the reply
/// holds what the artifacts do.
struct Listener(ChannelCaller);

impl Caller for Listener {
    fn behind(&self) -> Option<&dyn Caller> {
        Some(&self.0)
    }

    fn log(&self, _: Log) {}

    fn artifact(&self, _: Artifact) {}

    fn elicitation_done(&self, _: &str) {}
}

/// The questions of a call.
struct Asking<'a> {
    job: &'a Job,
    waiting: HashMap<String, Waiting>,
    asked: usize,
    /// The task's events, once something was asked: an answer is one of them.
    followed: Option<BoxStream<'static, JournalResult<TaskEvent>>>,
    last_event: u64,
}

impl Asking<'_> {
    async fn take(&mut self, event: CallEvent) -> Result<(), Failure> {
        // What the agent gave up is open no more.
        let given_up: Vec<_> = self
            .waiting
            .iter()
            .filter(|(_, w)| w.answer.is_closed())
            .map(|(k, _)| k.clone())
            .collect();
        for key in given_up {
            self.waiting.remove(&key);
            self.keep(TaskStep::GivenUp { key }).await?;
        }
        match event {
            CallEvent::Progress(Progress {
                message: Some(message),
                ..
            }) => self.keep(TaskStep::Said(message)).await,
            CallEvent::Question(PendingQuestion {
                mut question,
                answer,
            }) => {
                self.asked += 1;
                let key = question
                    .take_key()
                    .filter(|key| !self.waiting.contains_key(key));
                // Used once in the life of a task, also where it is done again.
                let key =
                    key.unwrap_or_else(|| format!("q{}_{}", self.job.lease.epoch, self.asked));
                let question = Arc::new(question);
                self.waiting.insert(
                    key.clone(),
                    Waiting {
                        question: question.clone(),
                        answer,
                    },
                );
                self.keep(TaskStep::Asked(OpenQuestion { key, question }))
                    .await?;
                let (tasks, id) = (self.job.tasks.clone(), self.job.task.id.clone());
                self.followed
                    .get_or_insert_with(|| follow(tasks, id, self.last_event));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn keep(&mut self, step: TaskStep) -> Result<(), Failure> {
        match self.job.step(vec![step]).await {
            // Illegal: answered meanwhile, or said once too often.
            Ok(_) | Err(TaskError::Illegal { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The next event of the task; never where nothing was asked.
    async fn next(&mut self) -> Option<JournalResult<TaskEvent>> {
        match &mut self.followed {
            Some(events) => events.next().await,
            None => std::future::pending().await,
        }
    }

    async fn settle(&mut self, event: Option<JournalResult<TaskEvent>>) -> Result<(), Failure> {
        let Some(event) = event else {
            return Err(Failure::cancelled("the task has ended"));
        };
        let event = event.map_err(Failure::from)?;
        self.last_event = event.number;
        if let TaskStep::Answered { key, answer } = event.step
            && let Some(waiting) = self.waiting.remove(&key)
        {
            // An agent that gave up meanwhile doesn't need it.
            let body = RawObject::parse(&answer)
                .map_err(|_| Failure::invalid("the answer is no JSON object"));
            let _ = waiting
                .answer
                .send(body.map(|body| waiting.question.answered(body)));
        }
        Ok(())
    }
}
