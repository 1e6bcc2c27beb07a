//! Task runner: claims tasks and sends each to its agent as a call of its own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callboard_message::{
    Answer, Artifact, Failure, FailureKind, LogMessage, Progress, Question, RawObject, RawReply,
    log,
};
use futures::StreamExt;
use futures::stream::BoxStream;
use serde_json::value::RawValue;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::call::{CallContext, CallEvent, Caller, ChannelCaller, PendingQuestion, channel_caller};
use crate::journal::{JournalError, JournalResult};
use crate::shares::{FairShare, PRINCIPAL_SHARE_PERCENT_DEFAULT};
use crate::system::System;
use crate::task::{
    ClaimRequest, Lease, NewTask, OpenQuestion, ReleaseReason, TASK_CANCEL_POLL_INTERVAL,
    TASK_LEASE, TASK_POLL_INTERVAL, TASK_RENEW_INTERVAL, Task, TaskActor, TaskError, TaskEvent,
    TaskId, TaskOwner, TaskResult, TaskStep, TaskStore, emit_state, follow_task,
};

/// Default scope of a runner, the same as that of [`NewTask::new`](crate::NewTask::new).
const RUNNER_SCOPE_DEFAULT: &str = "agent";
/// Default maximum number of tasks that a runner works on at once.
const RUNNER_TASKS_MAX_DEFAULT: usize = 16;
/// Interval at which a runner looks for work without a change in this process: another node may
/// have created tasks, or a lease may have expired.
const RUNNER_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Options of a [`TaskRunner`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRunnerOptions {
    /// Scope of the tasks to run.
    pub scope: String,
    /// Maximum number of tasks worked on at once.
    pub tasks_max: usize,
    /// Share of an owner in the tasks worked on at once, in percent, 1 to 100. Beyond its share,
    /// tasks of an owner are begun as long as a share is left for others. Default: 25.
    pub principal_share_percent: u8,
}

impl Default for TaskRunnerOptions {
    fn default() -> Self {
        Self {
            scope: RUNNER_SCOPE_DEFAULT.to_owned(),
            tasks_max: RUNNER_TASKS_MAX_DEFAULT,
            principal_share_percent: PRINCIPAL_SHARE_PERCENT_DEFAULT,
        }
    }
}

/// Claims ready tasks from the system's store, sends each to the agent that it names, and stores
/// progress, questions and the reply or failure.
///
/// A task whose children are still open when its agent has replied completes after them.
pub struct TaskRunner {
    system: System,
    tasks: Arc<dyn TaskStore>,
    options: TaskRunnerOptions,
    jobs_by_task: HashMap<TaskId, RunningJob>,
    jobs: JoinSet<()>,
}

/// A task that is worked on: its owner, and the channel that stops it.
struct RunningJob {
    owner: TaskOwner,
    stop: oneshot::Sender<JobStopReason>,
}

/// Handle to a runner. Dropping it stops the runner.
pub struct TaskRunnerHandle {
    stop: DropGuard,
    ended: watch::Receiver<()>,
}

impl TaskRunnerHandle {
    /// Stops the runner and waits until it has ended. Running tasks are released as interrupted;
    /// their [`OnRestart`](crate::OnRestart) decides what happens when they are claimed again.
    pub async fn stop(mut self) {
        drop(self.stop);
        // An error means that the runner has ended.
        while self.ended.changed().await.is_ok() {}
    }
}

impl TaskRunner {
    /// Starts a runner on the current tokio runtime. It uses the system's present store, so call
    /// [`System::set_store`] first.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn start(system: &System, options: TaskRunnerOptions) -> TaskRunnerHandle {
        let stop = CancellationToken::new();
        let (ending, ended) = watch::channel(());
        let (tasks, system) = (system.store().tasks.clone(), system.clone());
        let runner = Self {
            system,
            tasks,
            options,
            jobs_by_task: HashMap::new(),
            jobs: JoinSet::new(),
        };
        let stopped = stop.clone();
        tokio::spawn(async move {
            runner.run(stopped).await;
            drop(ending);
        });
        TaskRunnerHandle {
            stop: stop.drop_guard(),
            ended,
        }
    }

    async fn run(mut self, stop: CancellationToken) {
        let mut changes = self.tasks.changes();
        let mut look_every = delayed_interval(RUNNER_POLL_INTERVAL);
        let mut renew_every = delayed_interval(TASK_RENEW_INTERVAL);
        let mut cancels_every = delayed_interval(TASK_CANCEL_POLL_INTERVAL);
        let mut may_be_work = true;
        loop {
            let room = self
                .options
                .tasks_max
                .saturating_sub(self.jobs_by_task.len());
            if may_be_work && room > 0 && !stop.is_cancelled() {
                // Marked as seen before claiming, so that a later change wakes.
                changes.mark_unchanged();
                may_be_work = self.claim_tasks(room).await;
                continue;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(_) = self.jobs.join_next(), if !self.jobs.is_empty() => {
                    self.jobs_by_task.retain(|_, job| !job.stop.is_closed());
                    may_be_work = true;
                }
                _ = renew_every.tick() => self.renew_leases().await,
                _ = cancels_every.tick() => self.poll_cancel_requests().await,
                Ok(()) = changes.changed() => may_be_work = true,
                _ = look_every.tick() => may_be_work = true,
            }
        }
        for (_, job) in self.jobs_by_task.drain() {
            // The job may have just ended.
            let _ = job.stop.send(JobStopReason::Stopped);
        }
        while self.jobs.join_next().await.is_some() {}
    }

    /// Returns how many of `room` tasks to claim at once, and the owners that get no more now. The
    /// places that are kept for owners below their share are filled one by one.
    fn shared_room(&self, room: usize) -> (usize, Vec<TaskOwner>) {
        let TaskRunnerOptions {
            tasks_max,
            principal_share_percent,
            ..
        } = self.options;
        let rule = FairShare::new(tasks_max, principal_share_percent);
        let used = self.jobs_by_task.len();
        let for_all = rule.alone_max().saturating_sub(used);
        if for_all > 0 {
            return (room.min(for_all), Vec::new());
        }
        let mut counts: HashMap<&TaskOwner, usize> = HashMap::new();
        for job in self.jobs_by_task.values() {
            *counts.entry(&job.owner).or_default() += 1;
        }
        let is_at_limit = |(owner, own)| {
            rule.check(own, used)
                .is_err()
                .then(|| TaskOwner::clone(owner))
        };
        (1, counts.into_iter().filter_map(is_at_limit).collect())
    }

    /// Claims up to `room` tasks and starts their jobs. Returns true if there may be more ready
    /// tasks.
    async fn claim_tasks(&mut self, room: usize) -> bool {
        let (tasks_max, except_owners) = self.shared_room(room);
        let claim = ClaimRequest {
            scope: self.options.scope.clone(),
            worker: self.tasks.worker_id().to_owned(),
            tasks_max,
            except_owners,
            lease: TASK_LEASE,
        };
        let claimed = match self.tasks.claim(claim).await {
            Ok(claimed) => claimed,
            Err(error) => {
                log::warn!(%error, "failed to claim tasks");
                return false;
            }
        };
        let took = !claimed.is_empty();
        for (task, lease) in claimed {
            let (stop, is_over) = oneshot::channel();
            let owner = task.owner.clone();
            // If an older job for this task exists, its lease expired unnoticed.
            let job = RunningJob { owner, stop };
            if let Some(before) = self.jobs_by_task.insert(task.id.clone(), job) {
                let _ = before.stop.send(JobStopReason::LeaseLost);
            }
            let job = TaskJob {
                system: self.system.clone(),
                tasks: self.tasks.clone(),
                task,
                lease,
            };
            self.jobs.spawn(async move { job.run(is_over).await });
        }
        took
    }

    /// Renews all leases and stops the jobs whose lease is lost.
    async fn renew_leases(&mut self) {
        if self.jobs_by_task.is_empty() {
            return;
        }
        let tasks = self.tasks.clone();
        match tasks.renew(tasks.worker_id(), TASK_LEASE).await {
            Ok(renewed) if renewed >= self.jobs_by_task.len() as u64 => {}
            Ok(_) => {
                let ids: Vec<_> = self.jobs_by_task.keys().cloned().collect();
                for id in ids {
                    let Ok(task) = tasks.get(&id).await else {
                        continue;
                    };
                    let lease = task.as_ref().and_then(|task| task.lease.as_ref());
                    if lease.is_none_or(|lease| lease.worker != tasks.worker_id()) {
                        self.stop_job(&id, JobStopReason::LeaseLost);
                    }
                }
            }
            Err(error) => log::warn!(%error, "failed to renew task leases"),
        }
    }

    async fn poll_cancel_requests(&mut self) {
        if self.jobs_by_task.is_empty() {
            return;
        }
        match self.tasks.cancel_requests(self.tasks.worker_id()).await {
            Ok(ids) => ids
                .iter()
                .for_each(|id| self.stop_job(id, JobStopReason::Cancelled)),
            Err(error) => log::warn!(%error, "failed to read cancellation requests"),
        }
    }

    fn stop_job(&mut self, id: &TaskId, why: JobStopReason) {
        if let Some(job) = self.jobs_by_task.remove(id) {
            let _ = job.stop.send(why);
        }
    }
}

fn delayed_interval(period: Duration) -> tokio::time::Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Delay between attempts to store the end of a task while the store is unavailable.
const STORE_RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Reason for which a job stops before its agent has replied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JobStopReason {
    /// The runner was stopped; the task is released as interrupted.
    Stopped,
    /// The lease was lost: another worker has the task.
    LeaseLost,
    /// A cancellation was requested.
    Cancelled,
}

/// Question of a task's call, with the channel for its answer.
struct PendingAnswer {
    question: Arc<Question>,
    answer: oneshot::Sender<Result<Answer, Failure>>,
}

/// Task that this runner works on, with its lease.
struct TaskJob {
    system: System,
    tasks: Arc<dyn TaskStore>,
    task: Arc<Task>,
    lease: Lease,
}

impl TaskJob {
    /// Runs until the task has ended or another worker has it.
    async fn run(&self, over: oneshot::Receiver<JobStopReason>) {
        let why = tokio::select! {
            biased;
            why = over => why.unwrap_or(JobStopReason::Stopped),
            () = self.work() => return,
        };
        let kept = match why {
            JobStopReason::LeaseLost => Ok(()),
            JobStopReason::Stopped => {
                self.tasks
                    .release(&self.lease, ReleaseReason::Interrupted)
                    .await
            }
            JobStopReason::Cancelled => self.apply_end(TaskStep::cancelled()).await,
        };
        if let Err(error) = kept {
            log::warn!(task = %self.task.id, %error, "failed to release or end a task; its lease will expire");
        }
    }

    async fn work(&self) {
        let step = match self.apply(vec![TaskStep::Start]).await {
            Ok(task) => match self.call(task.last_event).await {
                Ok(reply) => TaskStep::Completed(reply),
                Err(failure) => failure_step(failure),
            },
            // It has ended, or another worker has it.
            Err(TaskError::HasEnded(_) | TaskError::LostLease | TaskError::NotFound) => return,
            Err(error) => TaskStep::Failed(error.into()),
        };
        if let Err(error) = self.apply_end(step).await {
            log::warn!(task = %self.task.id, %error, "failed to store the end of a task; its lease will expire");
        }
    }

    async fn apply(&self, steps: Vec<TaskStep>) -> TaskResult<Arc<Task>> {
        self.tasks
            .apply(&self.task.id, TaskActor::Worker(&self.lease), steps)
            .await
            .inspect(|task| emit_state(self.system.node_events(), task))
    }

    /// Runs the call of the task and resolves to its reply. `last_event` is the number of the
    /// task's latest event. Dropping the future cancels the call.
    async fn call(&self, last_event: u64) -> RawReply {
        let NewTask {
            agent,
            message,
            request,
            principal,
            deadline,
            expires,
            ..
        } = &self.task.spec;
        let Some(callee) = self.system.directory().get(agent) else {
            return Err(Failure::not_found(format!(
                "the task's agent `{agent}` isn't registered in this process: register it before the \
                 task runs"
            )));
        };
        let (caller, mut happening) = channel_caller();
        let call = CallContext::new(Arc::new(principal.clone()))
            .with_caller(Arc::new(RunnerCaller(caller)));
        let left = deadline
            .unwrap_or(*expires)
            .min(*expires)
            .duration_since(SystemTime::now())
            .unwrap_or_default();
        let call = match Instant::now().checked_add(left) {
            Some(deadline) => call.with_deadline(deadline),
            None => call,
        };
        let _cancel = call.cancel.clone().drop_guard();
        let request = request.clone().unwrap_or_else(|| RawValue::NULL.to_owned());
        let work = timeout(
            left,
            callee.ask_named(message.as_str(), request, Some(Arc::new(call))),
        );
        let mut work = std::pin::pin!(work);
        let mut asking = CallQuestions {
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
                Some(event) = happening.recv() => asking.handle_event(event).await?,
                event = asking.next_event() => asking.resolve_answer(event).await?,
            }
        }
    }

    /// Stores the end of the task, after waiting for its open children. Retries for [`TASK_LEASE`]
    /// while the store is unavailable.
    async fn apply_end(&self, mut step: TaskStep) -> JournalResult<()> {
        let mut until = Instant::now() + TASK_LEASE;
        loop {
            match self.apply(vec![step.clone()]).await {
                Ok(_)
                | Err(TaskError::HasEnded(_) | TaskError::LostLease | TaskError::NotFound) => {
                    return Ok(());
                }
                Err(TaskError::ChildrenRunning(_)) => {
                    if self.wait_for_parts().await.is_err() {
                        sleep(STORE_RETRY_INTERVAL).await;
                    }
                    until = Instant::now() + TASK_LEASE;
                }
                Err(TaskError::Journal(error))
                    if is_retryable(&error) && Instant::now() < until =>
                {
                    sleep(STORE_RETRY_INTERVAL).await;
                }
                Err(TaskError::Journal(error)) if is_retryable(&error) => return Err(error),
                // The result can't be stored, but the reason why can.
                Err(error) if matches!(step, TaskStep::Completed(_)) => {
                    step = TaskStep::Failed(error.into())
                }
                Err(error) => return Err(JournalError::Store(error.to_string())),
            }
        }
    }

    /// Waits until the task has no open children.
    async fn wait_for_parts(&self) -> JournalResult<()> {
        let mut changes = self.tasks.changes();
        loop {
            // Marked as seen before reading, so that a later change wakes.
            changes.mark_unchanged();
            if self
                .tasks
                .get(&self.task.id)
                .await?
                .is_none_or(|task| task.open_children == 0)
            {
                return Ok(());
            }
            if let Ok(Err(_)) = timeout(TASK_POLL_INTERVAL, changes.changed()).await {
                // Without change notifications, poll.
                sleep(TASK_POLL_INTERVAL).await;
            }
        }
    }
}

/// Returns true if the same write may succeed later.
fn is_retryable(error: &JournalError) -> bool {
    !matches!(
        error,
        JournalError::TooLarge { .. } | JournalError::Invalid(_) | JournalError::Fenced { .. }
    )
}

/// Returns the step that ends a task whose agent failed.
fn failure_step(failure: Failure) -> TaskStep {
    match failure.kind {
        FailureKind::Rejected => TaskStep::Rejected(failure),
        FailureKind::Cancelled => TaskStep::Cancelled {
            why: failure.message,
        },
        _ => TaskStep::Failed(failure),
    }
}

/// Caller of a task's call. Drops log lines and artifacts, so that progress and questions have room
/// in the channel. The reply repeats the artifacts.
struct RunnerCaller(ChannelCaller);

impl Caller for RunnerCaller {
    fn inner(&self) -> Option<&dyn Caller> {
        Some(&self.0)
    }

    fn log(&self, _: LogMessage) {}

    fn artifact(&self, _: Artifact) {}

    fn elicitation_done(&self, _: &str) {}
}

/// Open questions of a task's call.
struct CallQuestions<'a> {
    job: &'a TaskJob,
    waiting: HashMap<String, PendingAnswer>,
    asked: usize,
    /// Stream of the task's events, to find the answers to questions. Opened at the first question.
    followed: Option<BoxStream<'static, JournalResult<TaskEvent>>>,
    last_event: u64,
}

impl CallQuestions<'_> {
    async fn handle_event(&mut self, event: CallEvent) -> Result<(), Failure> {
        // Questions that the agent has withdrawn are closed.
        let given_up: Vec<_> = self
            .waiting
            .iter()
            .filter(|(_, w)| w.answer.is_closed())
            .map(|(k, _)| k.clone())
            .collect();
        for key in given_up {
            self.waiting.remove(&key);
            self.apply_step(TaskStep::GivenUp { key }).await?;
        }
        match event {
            CallEvent::Progress(Progress {
                message: Some(message),
                ..
            }) => self.apply_step(TaskStep::Said(message)).await,
            CallEvent::Question(PendingQuestion {
                mut question,
                answer,
            }) => {
                self.asked += 1;
                let key = question
                    .take_key()
                    .filter(|key| !self.waiting.contains_key(key));
                // Unique in the life of a task, also when it is run again.
                let key =
                    key.unwrap_or_else(|| format!("q{}_{}", self.job.lease.epoch, self.asked));
                let question = Arc::new(question);
                self.waiting.insert(
                    key.clone(),
                    PendingAnswer {
                        question: question.clone(),
                        answer,
                    },
                );
                self.apply_step(TaskStep::Asked(OpenQuestion { key, question }))
                    .await?;
                let (tasks, id) = (self.job.tasks.clone(), self.job.task.id.clone());
                self.followed
                    .get_or_insert_with(|| follow_task(tasks, id, self.last_event));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn apply_step(&mut self, step: TaskStep) -> Result<(), Failure> {
        match self.job.apply(vec![step]).await {
            // Illegal: answered in the meantime.
            Ok(_) | Err(TaskError::Illegal { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the next event of the task; never resolves before the first question.
    async fn next_event(&mut self) -> Option<JournalResult<TaskEvent>> {
        match &mut self.followed {
            Some(events) => events.next().await,
            None => std::future::pending().await,
        }
    }

    async fn resolve_answer(
        &mut self,
        event: Option<JournalResult<TaskEvent>>,
    ) -> Result<(), Failure> {
        let Some(event) = event else {
            return Err(Failure::cancelled("the task has ended"));
        };
        let event = event.map_err(Failure::from)?;
        self.last_event = event.number;
        if let TaskStep::Answered { key, answer } = event.step
            && let Some(waiting) = self.waiting.remove(&key)
        {
            // The agent may have withdrawn it.
            let body = RawObject::parse(&answer).map_err(|_| {
                Failure::invalid(
                    "the stored answer to the question isn't a JSON object: \
                     start the task again, and answer anew",
                )
            });
            let _ = waiting
                .answer
                .send(body.map(|body| waiting.question.answer_with(body)));
        }
        Ok(())
    }
}
