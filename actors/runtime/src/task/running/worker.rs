//! Worker of a running task: the only place in this process that applies its steps.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use callboard_message::{Answer, Failure, Question, RawObject, log};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::caller::{CallReport, TaskCaller, WorkerEvent};
use super::{ArtifactEncoder, EndSteps, TASK_QUESTIONS_MAX, TaskCall};
use crate::journal::JournalError;
use crate::node_events::NodeEvents;
use crate::task::{
    Lease, OpenQuestion, Task, TaskActor, TaskError, TaskEvent, TaskResult, TaskStep, TaskStore,
    emit_state,
};

/// Maximum number of reports of a call that are stored at once.
const REPORT_BATCH_MAX: usize = 32;
/// Time limit for storing the end of a task while the store is unavailable. Afterwards the task
/// counts as interrupted and is recovered when its lease expires.
const END_RETRY_TIMEOUT: Duration = Duration::from_secs(30);
/// Delay before the second attempt to store the end of a task. Doubles with each attempt, up to
/// [`RETRY_DELAY_MAX`].
const RETRY_DELAY_MIN: Duration = Duration::from_millis(50);
/// Maximum delay between two attempts to store the end of a task.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(2);
/// Maximum number of events of other actors that a worker reads at once.
const EVENTS_READ_MAX: usize = 100;

/// Reason for which a worker ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkerExit {
    /// The task has ended.
    Ended,
    /// The task has expired.
    Expired,
    /// All work in this process was stopped.
    Stopped,
    /// Another worker has claimed the task, or its state can't be determined.
    Lost,
}

/// Question of a task with the channel for its answer.
struct PendingAnswer {
    question: Arc<Question>,
    answer: oneshot::Sender<Result<Answer, Failure>>,
}

pub(super) struct TaskWorker {
    tasks: Arc<dyn TaskStore>,
    lease: Lease,
    is_resumed: bool,
    updates: watch::Sender<Arc<Task>>,
    /// Set once the store had no room for the end of the task.
    store_full: watch::Sender<Option<JournalError>>,
    /// Number of the latest event that this worker knows.
    read: u64,
    /// True if another worker has claimed the task, or its state can't be determined.
    is_lost: bool,
    caller: Arc<TaskCaller>,
    artifacts: Option<ArtifactEncoder>,
    /// Event stream that is told of changed states.
    events: Option<Arc<NodeEvents>>,
    /// Open questions with the channels for their answers, by question key.
    waiting: HashMap<String, PendingAnswer>,
    /// Keys of all questions that this worker has stored. A key isn't used again for a later
    /// question.
    keys: HashSet<String>,
    /// Ids of artifacts sent since the task was resumed. The agent sends its artifacts again then;
    /// the first one with an id replaces what the earlier run stored under it.
    seen_artifacts: HashSet<String>,
}

impl TaskWorker {
    pub(super) fn new(
        tasks: Arc<dyn TaskStore>,
        lease: Lease,
        is_resumed: bool,
        updates: watch::Sender<Arc<Task>>,
        caller: Arc<TaskCaller>,
        artifacts: Option<ArtifactEncoder>,
        events: Option<Arc<NodeEvents>>,
    ) -> Self {
        let read = updates.borrow().last_event;
        let (waiting, keys, seen_artifacts) = (HashMap::new(), HashSet::new(), HashSet::new());
        Self {
            tasks,
            lease,
            is_resumed,
            updates,
            store_full: watch::Sender::new(None),
            read,
            is_lost: false,
            caller,
            artifacts,
            events,
            waiting,
            keys,
            seen_artifacts,
        }
    }

    /// Returns a receiver that gets the error once the store had no room for the end of the task.
    pub(super) fn store_full(&self) -> watch::Receiver<Option<JournalError>> {
        self.store_full.subscribe()
    }

    /// Runs until the task has ended or expired, another worker has claimed it, or work in this
    /// process is stopped. The call is dropped then.
    pub(super) async fn run(
        &mut self,
        mut happening: mpsc::Receiver<WorkerEvent>,
        work: TaskCall,
        expiry: Instant,
        stopped: &CancellationToken,
    ) -> WorkerExit {
        let mut work = work;
        while !self.is_over() {
            tokio::select! {
                biased;
                // Checked before the call, which has the same deadline: the task then expires
                // rather than fails.
                () = sleep_until(expiry) => return WorkerExit::Expired,
                () = stopped.cancelled() => return WorkerExit::Stopped,
                Some(event) = happening.recv() => self.handle_event(event).await,
                ending = &mut work => tokio::select! {
                    () = self.apply_end(ending) => {}
                    () = stopped.cancelled() => return WorkerExit::Stopped,
                },
            }
        }
        if self.is_lost {
            WorkerExit::Lost
        } else {
            WorkerExit::Ended
        }
    }

    /// Drops the worker, which fails open questions, and returns the channel for the task's state.
    pub(super) fn into_updates(self) -> watch::Sender<Arc<Task>> {
        self.updates
    }

    fn is_over(&self) -> bool {
        self.is_lost || self.updates.borrow().state.is_terminal()
    }

    async fn handle_event(&mut self, event: WorkerEvent) {
        self.store_reports().await;
        match event {
            WorkerEvent::Asked { question, answer } => self.put_question(question, answer).await,
            WorkerEvent::Steps {
                steps,
                answer,
                taken,
            } => drop(taken.send(self.apply_input(steps, answer).await)),
            // The request is repeated until it has been applied.
            WorkerEvent::CancelSoon => drop(self.apply(vec![TaskStep::cancelled()]).await),
            WorkerEvent::CheckReports => {}
            WorkerEvent::CatchUp => self.catch_up().await,
            WorkerEvent::Lost => self.is_lost = true,
        }
        let is_given_up = |(_, waiting): &(&String, &PendingAnswer)| waiting.answer.is_closed();
        let given_up: Vec<_> = self
            .waiting
            .iter()
            .filter(is_given_up)
            .map(|(key, _)| key.clone())
            .collect();
        for key in given_up {
            // Stays pending if the store is unavailable; a later check tries again.
            if self
                .apply(vec![TaskStep::GivenUp { key: key.clone() }])
                .await
                .is_ok()
                || self.is_over()
            {
                self.waiting.remove(&key);
            }
        }
    }

    /// Stores the buffered reports of the call.
    async fn store_reports(&mut self) {
        let mut told = self.caller.reports.take();
        while !told.is_empty() && !self.is_over() {
            let some: Vec<_> = told.drain(..told.len().min(REPORT_BATCH_MAX)).collect();
            let makes = some
                .iter()
                .any(|told| matches!(told, CallReport::Artifact(_)));
            let steps: Vec<_> = some
                .into_iter()
                .filter_map(|told| self.report_step(told))
                .collect();
            if self.apply(steps).await.is_err() && makes {
                // The reply has to repeat all artifacts then.
                self.caller.reports.mark_missed();
            }
        }
    }

    fn report_step(&mut self, told: CallReport) -> Option<TaskStep> {
        match told {
            CallReport::Status(text) => Some(TaskStep::Said(text)),
            CallReport::Artifact(artifact) => {
                let is_first = self.is_resumed && self.seen_artifacts.insert(artifact.id());
                let artifact = if is_first {
                    artifact.replacing()
                } else {
                    artifact
                };
                Some(TaskStep::Artifact(self.artifacts?(&artifact)))
            }
        }
    }

    async fn put_question(
        &mut self,
        mut question: Question,
        answer: oneshot::Sender<Result<Answer, Failure>>,
    ) {
        if self.waiting.len() >= TASK_QUESTIONS_MAX {
            let _ = answer.send(Err(Failure::overloaded(format!(
                "{TASK_QUESTIONS_MAX} questions of this task wait for answers already: ask later"
            ))));
            return;
        }
        let nth = self.keys.len() + 1;
        let wanted = question.take_key().unwrap_or_else(|| format!("q{nth}"));
        // Keys of earlier runs aren't known here.
        let wanted = if self.is_resumed {
            format!("{wanted}_{}", self.lease.epoch)
        } else {
            wanted
        };
        let key = if self.keys.contains(&wanted) {
            format!("{wanted}_{nth}")
        } else {
            wanted
        };
        let question = Arc::new(question);
        match self
            .apply(vec![TaskStep::Asked(OpenQuestion {
                key: key.clone(),
                question: question.clone(),
            })])
            .await
        {
            Ok(_) => {
                self.keys.insert(key.clone());
                self.waiting.insert(key, PendingAnswer { question, answer });
            }
            Err(error) => drop(answer.send(Err(error.into()))),
        }
    }

    /// Stores steps and an answer from outside. The agent gets the answer only after it is stored.
    async fn apply_input(
        &mut self,
        mut steps: Vec<TaskStep>,
        answer: Option<(String, Result<Answer, Failure>)>,
    ) -> TaskResult<Arc<Task>> {
        let Some((key, answer)) = answer else {
            return self.apply(steps).await;
        };
        if self
            .waiting
            .get(&key)
            .is_none_or(|waiting| waiting.answer.is_closed())
        {
            return Err(TaskError::Illegal {
                from: self.updates.borrow().state,
                step: "answered",
            });
        }
        steps.push(match &answer {
            Ok(answer) => TaskStep::Answered {
                key: key.clone(),
                answer: answer.to_raw(),
            },
            Err(_) => TaskStep::GivenUp { key: key.clone() },
        });
        let task = self.apply(steps).await?;
        if let Some(waiting) = self.waiting.remove(&key) {
            let _ = waiting.answer.send(answer);
        }
        Ok(task)
    }

    /// Stores the end of the call. Retries for [`END_RETRY_TIMEOUT`] if the store is unavailable,
    /// rather than lose the result.
    async fn apply_end(&mut self, ending: EndSteps) {
        self.store_reports().await;
        let mut steps = ending(self.caller.reports.has_all_artifacts());
        let (until, mut wait) = (Instant::now() + END_RETRY_TIMEOUT, RETRY_DELAY_MIN);
        while !self.is_over() {
            let error = match self.apply(steps.clone()).await {
                Ok(_) => return,
                Err(error) => error,
            };
            if let TaskError::Journal(full) = &error
                && full.is_full()
            {
                self.store_full.send_replace(Some(full.clone()));
            }
            if matches!(&error, TaskError::Journal(error) if error.is_transient())
                && Instant::now() < until
            {
                sleep(wait).await;
                wait = RETRY_DELAY_MAX.min(wait * 2);
                continue;
            }
            steps = match steps.pop() {
                // The result can't be stored, but a failure that says so can.
                Some(TaskStep::Completed(_)) => vec![TaskStep::Failed(error.into())],
                // After a question the state machine no longer allows `Rejected`.
                Some(TaskStep::Rejected(failure)) => vec![TaskStep::Failed(failure)],
                _ => {
                    log::error!(task = %self.lease.task, %error, "failed to store the end of a task; its lease will expire");
                    self.is_lost = true;
                    return;
                }
            };
        }
    }

    /// Applies steps to the task, all or none, and returns the task. They are stored before clients
    /// see them.
    async fn apply(&mut self, steps: Vec<TaskStep>) -> TaskResult<Arc<Task>> {
        let count = u64::try_from(steps.len()).unwrap_or(u64::MAX);
        match self
            .tasks
            .apply(&self.lease.task, TaskActor::Worker(&self.lease), steps)
            .await
        {
            Ok(task) => {
                let is_news = task.last_event > self.read.saturating_add(count);
                if !is_news {
                    self.read = task.last_event;
                }
                let before = self.updates.send_replace(task.clone());
                if let Some(events) = &self.events
                    && before.state != task.state
                {
                    emit_state(events, &task);
                }
                if is_news {
                    self.catch_up().await;
                }
                Ok(task)
            }
            Err(error) => {
                match error {
                    TaskError::HasEnded(_) => self.catch_up().await,
                    TaskError::LostLease | TaskError::NotFound => self.is_lost = true,
                    _ => {
                        log::warn!(task = %self.lease.task, %error, "failed to store a step of a task")
                    }
                }
                Err(error)
            }
        }
    }

    /// Reads and applies events that other actors have stored: answers and cancellations.
    async fn catch_up(&mut self) {
        loop {
            let Ok(events) = self
                .tasks
                .events(&self.lease.task, self.read, EVENTS_READ_MAX)
                .await
            else {
                return;
            };
            if events.is_empty() {
                break;
            }
            for TaskEvent { number, step, .. } in events {
                self.read = number;
                let TaskStep::Answered { key, answer } = step else {
                    continue;
                };
                if let Some(waiting) = self.waiting.remove(&key) {
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
            }
        }
        match self.tasks.get(&self.lease.task).await {
            Ok(Some(task)) => drop(self.updates.send_replace(task)),
            Ok(None) => self.is_lost = true,
            Err(_) => {}
        }
    }
}

/// Handle to a task that runs in this process.
#[derive(Clone)]
pub struct RunningTask {
    pub(super) events: mpsc::Sender<WorkerEvent>,
    pub(super) lease: Lease,
    /// True if the task continues after an interruption. Its agent then asks its open questions
    /// again.
    pub is_resumed: bool,
    /// Receiver of the task's current state. Closed when the task no longer runs in this process.
    pub updates: watch::Receiver<Arc<Task>>,
    /// Error of a store that had no room for the end of the task. Waiting clients get it at once.
    pub(super) store_full: watch::Receiver<Option<JournalError>>,
    /// Keys of the questions that are being presented to a client. See [`QuestionClaim`].
    pub claimed_questions: Arc<watch::Sender<HashSet<String>>>,
}

impl RunningTask {
    /// Applies steps of the owner, then the answer to the question with the given key: all or none.
    /// Returns the task afterwards.
    ///
    /// # Errors
    /// [`TaskError::Illegal`] if the question isn't open; [`TaskError::HasEnded`];
    /// [`TaskError::NotRunning`] if the task only stopped running in this process; the store's
    /// error. Nothing was applied then, except possibly after [`JournalError::Unknown`].
    pub async fn apply(
        &self,
        steps: Vec<TaskStep>,
        answer: Option<(String, Answer)>,
    ) -> TaskResult<Arc<Task>> {
        self.send(steps, answer.map(|(key, answer)| (key, Ok(answer))))
            .await
    }

    /// Withdraws the question with this key; its agent gets `why` as the failure. Returns the task
    /// afterwards.
    ///
    /// # Errors
    /// Those of [`Self::apply`].
    pub async fn withdraw_question(&self, key: String, why: Failure) -> TaskResult<Arc<Task>> {
        self.send(Vec::new(), Some((key, Err(why)))).await
    }

    /// Cancels the task and returns its state afterwards.
    ///
    /// # Errors
    /// [`TaskError::HasEnded`]; [`TaskError::NotRunning`] if the task only stopped running in this
    /// process; the store's error.
    pub async fn cancel(&self) -> TaskResult<Arc<Task>> {
        self.send(vec![TaskStep::cancelled()], None).await
    }

    async fn send(
        &self,
        steps: Vec<TaskStep>,
        answer: Option<(String, Result<Answer, Failure>)>,
    ) -> TaskResult<Arc<Task>> {
        let (taken, was_taken) = oneshot::channel();
        // The work here is over: the task ended, or another worker has it.
        let over = || Err(TaskError::not_running(self.updates.borrow().state));
        match self
            .events
            .send(WorkerEvent::Steps {
                steps,
                answer,
                taken,
            })
            .await
        {
            Ok(()) => was_taken.await.unwrap_or_else(|_| over()),
            Err(_) => over(),
        }
    }

    /// Sends an event to the task's worker. If its channel is full, the event is dropped; the next
    /// poll repeats it.
    pub(super) fn notify(&self, event: WorkerEvent) {
        let _ = self.events.try_send(event);
    }
}

/// Exclusive claim to present a question to a client, so that no two clients of a task get it.
/// Released on drop.
pub struct QuestionClaim {
    all: Arc<watch::Sender<HashSet<String>>>,
    key: String,
}

impl QuestionClaim {
    /// Claims the question with this key, where `all` holds the claimed keys. Returns `None` if the
    /// question is already being presented to another client.
    pub fn acquire(all: &Arc<watch::Sender<HashSet<String>>>, key: &str) -> Option<Self> {
        let is_taken = all.send_if_modified(|keys| keys.insert(key.to_owned()));
        is_taken.then(|| Self {
            all: all.clone(),
            key: key.to_owned(),
        })
    }
}

impl Drop for QuestionClaim {
    fn drop(&mut self) {
        self.all.send_if_modified(|keys| keys.remove(&self.key));
    }
}
