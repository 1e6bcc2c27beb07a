use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callboard_message::{Answer, Failure, FailureKind, Progress, Question, RawObject};
use futures::StreamExt;
use futures::stream::BoxStream;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use crate::call::{CallEvent, CallMeta, PendingQuestion, channel_caller};
use crate::journal::JournalError;
use crate::system::System;
use crate::task::follow::FOLLOW_LOOK_EVERY;
use crate::task::{By, Lease, OpenQuestion, Released, TASK_LEASE, Task, TaskError, TaskEvent, TaskStep, Tasks, follow};

/// How long a store that is away is left alone before the end of a task is kept again.
const KEEP_PAUSE: Duration = Duration::from_millis(500);

/// Why a job is over before its agent has replied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
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
pub(super) struct Job {
    system: System,
    tasks: Arc<dyn Tasks>,
    task: Arc<Task>,
    lease: Lease,
}

impl Job {
    pub(super) fn new(system: System, task: Arc<Task>, lease: Lease) -> Self {
        let tasks = system.store().tasks.clone();
        Self { system, tasks, task, lease }
    }

    /// Until the task has ended, or is another's.
    pub(super) async fn run(&self, over: oneshot::Receiver<Why>) {
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
            callboard_message::log::warn!(task = %self.task.id, %error, "the task is left as it is; its lease runs out");
        }
    }

    async fn work(&self) {
        let step = match self.start().await {
            Ok(last_event) => match self.call(last_event).await {
                Ok(reply) => TaskStep::Completed(reply),
                Err(failure) => ending(failure),
            },
            // It has ended, or is another's.
            Err(TaskError::HasEnded(_) | TaskError::LostLease | TaskError::NotFound) => return,
            Err(error) => TaskStep::Failed(error.into()),
        };
        if let Err(error) = self.end(step).await {
            callboard_message::log::warn!(task = %self.task.id, %error, "what a task came to can't be kept; its lease runs out");
        }
    }

    async fn step(&self, steps: Vec<TaskStep>) -> Result<Arc<Task>, TaskError> {
        self.tasks.step(&self.task.id, By::Worker(&self.lease), steps).await
    }

    /// The number of its last event.
    async fn start(&self) -> Result<u64, TaskError> {
        Ok(self.step(vec![TaskStep::Start]).await?.last_event)
    }

    /// The call. Dropped, it is cancelled.
    async fn call(&self, last_event: u64) -> Result<Box<RawValue>, Failure> {
        let Task { agent, message, request, principal, deadline, expires, .. } = &*self.task;
        let Some(callee) = self.system.directory().get(agent) else {
            return Err(Failure::not_found(format!("there is no agent {agent}")));
        };
        let (caller, mut happening) = channel_caller();
        let call = CallMeta::new(Arc::new(principal.clone())).with_caller(Arc::new(caller));
        let left = deadline.unwrap_or(*expires).min(*expires).duration_since(SystemTime::now()).unwrap_or_default();
        let call = match Instant::now().checked_add(left) {
            Some(deadline) => call.until(deadline),
            None => call,
        };
        let _cancel = call.cancel.clone().drop_guard();
        let request = request.clone().unwrap_or_else(|| RawValue::NULL.to_owned());
        let work = timeout(left, callee.ask_named(message.as_str(), request, Some(Arc::new(call))));
        let mut work = std::pin::pin!(work);
        let mut asking = Asking { job: self, waiting: HashMap::new(), asked: 0, followed: None, last_event };
        loop {
            tokio::select! {
                biased;
                reply = &mut work => {
                    return reply.unwrap_or_else(|_| {
                        let why = "the task's time is over; whether the agent acted is unknown";
                        Err(Failure::new(FailureKind::TimedOut, why))
                    });
                }
                Some(event) = happening.recv() => asking.take(event).await?,
                event = asking.next() => asking.settle(event).await?,
            }
        }
    }

    /// Keeps the end of the task. Where parts of it still run it waits for them; where the store is away it tries again, as
    /// long as the lease may last.
    async fn end(&self, mut step: TaskStep) -> Result<(), JournalError> {
        let mut until = Instant::now() + TASK_LEASE;
        loop {
            match self.step(vec![step.clone()]).await {
                Ok(_) | Err(TaskError::HasEnded(_) | TaskError::LostLease | TaskError::NotFound) => return Ok(()),
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
                Err(error) if matches!(step, TaskStep::Completed(_)) => step = TaskStep::Failed(error.into()),
                Err(error) => return Err(JournalError::Store(error.to_string())),
            }
        }
    }

    /// Waits until no part of the task runs.
    async fn parts_end(&self) -> Result<(), JournalError> {
        let mut changes = self.tasks.changes();
        loop {
            // Marked as seen before the look: what comes after it wakes.
            changes.mark_unchanged();
            if self.tasks.get(&self.task.id).await?.is_none_or(|task| task.children_open == 0) {
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
    !matches!(error, JournalError::TooLarge { .. } | JournalError::Invalid(_) | JournalError::Fenced { .. })
}

/// How a task ends whose agent failed.
fn ending(failure: Failure) -> TaskStep {
    match failure.kind {
        FailureKind::Rejected => TaskStep::Rejected(failure),
        FailureKind::Cancelled => TaskStep::Cancelled { why: failure.message },
        _ => TaskStep::Failed(failure),
    }
}

/// The questions of a call.
struct Asking<'a> {
    job: &'a Job,
    waiting: HashMap<String, Waiting>,
    asked: usize,
    /// The task's events, once something was asked: an answer is one of them.
    followed: Option<BoxStream<'static, Result<TaskEvent, JournalError>>>,
    last_event: u64,
}

impl Asking<'_> {
    async fn take(&mut self, event: CallEvent) -> Result<(), Failure> {
        // What the agent gave up is open no more.
        let given_up: Vec<_> =
            self.waiting.iter().filter(|(_, w)| w.answer.is_closed()).map(|(k, _)| k.clone()).collect();
        for key in given_up {
            self.waiting.remove(&key);
            self.keep(TaskStep::GivenUp { key }).await?;
        }
        match event {
            CallEvent::Progress(Progress { message: Some(message), .. }) => self.keep(TaskStep::Said(message)).await,
            CallEvent::Question(PendingQuestion { mut question, answer }) => {
                self.asked += 1;
                let key = question.take_key().filter(|key| !self.waiting.contains_key(key));
                // Used once in the life of a task, also where it is done again.
                let key = key.unwrap_or_else(|| format!("q{}_{}", self.job.lease.epoch, self.asked));
                let question = Arc::new(question);
                self.waiting.insert(key.clone(), Waiting { question: question.clone(), answer });
                self.keep(TaskStep::Asked(OpenQuestion { key, question })).await?;
                let (tasks, id) = (self.job.tasks.clone(), self.job.task.id.clone());
                self.followed.get_or_insert_with(|| follow(tasks, id, self.last_event));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn keep(&mut self, step: TaskStep) -> Result<(), Failure> {
        match self.job.step(vec![step]).await {
            Ok(_) => Ok(()),
            // Answered meanwhile, or said once too often.
            Err(TaskError::Illegal { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The next event of the task; never where nothing was asked.
    async fn next(&mut self) -> Option<Result<TaskEvent, JournalError>> {
        match &mut self.followed {
            Some(events) => events.next().await,
            None => std::future::pending().await,
        }
    }

    async fn settle(&mut self, event: Option<Result<TaskEvent, JournalError>>) -> Result<(), Failure> {
        let Some(event) = event else {
            return Err(Failure::new(FailureKind::Cancelled, "the task has ended"));
        };
        let event = event.map_err(Failure::from)?;
        self.last_event = event.number;
        if let TaskStep::Answered { key, answer } = event.step
            && let Some(waiting) = self.waiting.remove(&key)
        {
            // An agent that gave up meanwhile doesn't need it.
            let _ = waiting.answer.send(read(&waiting.question, &answer));
        }
        Ok(())
    }
}

/// An answer as the agent gets it, by what was asked.
fn read(question: &Question, answer: &RawValue) -> Result<Answer, Failure> {
    let body = RawObject::parse(answer).map_err(|_| Failure::invalid("the answer is no JSON object"))?;
    Ok(question.answered(body))
}
