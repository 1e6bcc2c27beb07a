//! The one place that takes the steps of a task that runs here.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use callboard_message::{Answer, Failure, Question, RawObject, log};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::caller::{Event, TaskCaller, Told};
use super::{Artifacts, Ending, TASK_QUESTIONS_MAX, Work};
use crate::task::{
    By, Lease, OpenQuestion, Task, TaskError, TaskEvent, TaskResult, TaskStep, Tasks,
};

/// Reports and artifacts that are kept at once.
const TOLD_AT_ONCE_MAX: usize = 32;
/// Maximum time during which the end of a task is offered to a store that fails. Afterwards the recovery of the task decides. Fixed.
const END_TRIED_FOR: Duration = Duration::from_secs(30);
/// Pause before the second of these attempts; it doubles up to [`TRY_AGAIN_MAX`]. Fixed.
const TRY_AGAIN_FIRST: Duration = Duration::from_millis(50);
/// Maximum pause between two of these attempts. Fixed.
const TRY_AGAIN_MAX: Duration = Duration::from_secs(2);
/// Events that are read at once.
const EVENTS_READ_MAX: usize = 100;

/// Why a worker is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Done {
    /// The task has ended.
    Ended,
    /// Its time is over.
    Expired,
    /// Nobody is to work here any more.
    Stopped,
    /// Another has it, or nobody can say.
    Lost,
}

/// Who waits for an answer.
struct Waiting {
    question: Arc<Question>,
    answer: oneshot::Sender<Result<Answer, Failure>>,
}

pub(super) struct Worker {
    tasks: Arc<dyn Tasks>,
    lease: Lease,
    is_resumed: bool,
    seen: watch::Sender<Arc<Task>>,
    /// The number of the last event that is known here.
    read: u64,
    /// Another has the task, or nobody can say.
    is_lost: bool,
    caller: Arc<TaskCaller>,
    artifacts: Option<Artifacts>,
    /// Who waits for the answer to each open question.
    waiting: HashMap<String, Waiting>,
    /// The keys of all its questions so far: none is used twice in the life of a task.
    keys: HashSet<String>,
    /// The artifacts that a call which goes on has given so far: of an earlier life's it gives all once more.
    given: HashSet<String>,
}

impl Worker {
    pub(super) fn new(
        tasks: Arc<dyn Tasks>,
        lease: Lease,
        is_resumed: bool,
        seen: watch::Sender<Arc<Task>>,
        caller: Arc<TaskCaller>,
        artifacts: Option<Artifacts>,
    ) -> Self {
        let read = seen.borrow().last_event;
        let (waiting, keys, given) = (HashMap::new(), HashSet::new(), HashSet::new());
        Self {
            tasks,
            lease,
            is_resumed,
            seen,
            read,
            is_lost: false,
            caller,
            artifacts,
            waiting,
            keys,
            given,
        }
    }

    /// Until the task has ended, its time is over, it is another's, or nobody is to work here any more. The call is cancelled
    /// by then.
    pub(super) async fn run(
        &mut self,
        mut happening: mpsc::Receiver<Event>,
        work: Work,
        expiry: Instant,
        stopped: &CancellationToken,
    ) -> Done {
        let mut work = work;
        while !self.is_over() {
            tokio::select! {
                biased;
                // Before its call, which has the same deadline: a task is gone then, not failed.
                () = sleep_until(expiry) => return Done::Expired,
                () = stopped.cancelled() => return Done::Stopped,
                Some(event) = happening.recv() => self.take(event).await,
                ending = &mut work => tokio::select! {
                    () = self.end(ending) => {}
                    () = stopped.cancelled() => return Done::Stopped,
                },
            }
        }
        if self.is_lost {
            Done::Lost
        } else {
            Done::Ended
        }
    }

    /// The task's place in sight. Who still waits for an answer hears that there is none.
    pub(super) fn into_seen(self) -> watch::Sender<Arc<Task>> {
        self.seen
    }

    fn is_over(&self) -> bool {
        self.is_lost || self.seen.borrow().state.is_terminal()
    }

    async fn take(&mut self, event: Event) {
        self.keep_told().await;
        match event {
            Event::Asked { question, answer } => self.asked(question, answer).await,
            Event::Told {
                steps,
                answer,
                taken,
            } => drop(taken.send(self.told(steps, answer).await)),
            // It is wanted again until it is so.
            Event::CancelSoon => drop(self.step(vec![TaskStep::cancelled()]).await),
            Event::Look => {}
            Event::CatchUp => self.catch_up().await,
            Event::Lost => self.is_lost = true,
        }
        let is_given_up = |(_, waiting): &(&String, &Waiting)| waiting.answer.is_closed();
        let given_up: Vec<_> = self
            .waiting
            .iter()
            .filter(is_given_up)
            .map(|(key, _)| key.clone())
            .collect();
        for key in given_up {
            // Kept open where the store is away: the next look tries again.
            if self
                .step(vec![TaskStep::GivenUp { key: key.clone() }])
                .await
                .is_ok()
                || self.is_over()
            {
                self.waiting.remove(&key);
            }
        }
    }

    /// Keeps what the call told so far.
    async fn keep_told(&mut self) {
        let mut told = self.caller.telling.take();
        while !told.is_empty() && !self.is_over() {
            let some: Vec<_> = told.drain(..told.len().min(TOLD_AT_ONCE_MAX)).collect();
            let makes = some.iter().any(|told| matches!(told, Told::Made(_)));
            let steps: Vec<_> = some
                .into_iter()
                .filter_map(|told| self.step_of(told))
                .collect();
            if self.step(steps).await.is_err() && makes {
                // The reply tells it all then.
                self.caller.telling.miss();
            }
        }
    }

    fn step_of(&mut self, told: Told) -> Option<TaskStep> {
        match told {
            Told::Said(text) => Some(TaskStep::Said(text)),
            Told::Made(artifact) => {
                let is_first = self.is_resumed && self.given.insert(artifact.id());
                let artifact = if is_first { artifact.anew() } else { artifact };
                Some(TaskStep::Artifact(self.artifacts?(&artifact)))
            }
        }
    }

    async fn asked(
        &mut self,
        mut question: Question,
        answer: oneshot::Sender<Result<Answer, Failure>>,
    ) {
        if self.waiting.len() >= TASK_QUESTIONS_MAX {
            let _ = answer.send(Err(Failure::overloaded(
                "too many questions of this task wait",
            )));
            return;
        }
        let nth = self.keys.len() + 1;
        let wanted = question.take_key().unwrap_or_else(|| format!("q{nth}"));
        // Those of an earlier life aren't known here.
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
            .step(vec![TaskStep::Asked(OpenQuestion {
                key: key.clone(),
                question: question.clone(),
            })])
            .await
        {
            Ok(_) => {
                self.keys.insert(key.clone());
                self.waiting.insert(key, Waiting { question, answer });
            }
            Err(error) => drop(answer.send(Err(error.into()))),
        }
    }

    /// What is told is kept, and what it answers, before the agent has the answer.
    async fn told(
        &mut self,
        mut steps: Vec<TaskStep>,
        answer: Option<(String, Result<Answer, Failure>)>,
    ) -> TaskResult<Arc<Task>> {
        let Some((key, answer)) = answer else {
            return self.step(steps).await;
        };
        if self
            .waiting
            .get(&key)
            .is_none_or(|waiting| waiting.answer.is_closed())
        {
            return Err(TaskError::Illegal {
                from: self.seen.borrow().state,
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
        let task = self.step(steps).await?;
        if let Some(waiting) = self.waiting.remove(&key) {
            let _ = waiting.answer.send(answer);
        }
        Ok(task)
    }

    /// Its call ended. The store may be away for a while; what came of the call is worth some patience.
    async fn end(&mut self, ending: Ending) {
        self.keep_told().await;
        let mut steps = ending(self.caller.telling.has_all());
        let (until, mut wait) = (Instant::now() + END_TRIED_FOR, TRY_AGAIN_FIRST);
        while !self.is_over() {
            let error = match self.step(steps.clone()).await {
                Ok(_) => return,
                Err(error) => error,
            };
            if matches!(&error, TaskError::Journal(error) if error.may_pass())
                && Instant::now() < until
            {
                sleep(wait).await;
                wait = TRY_AGAIN_MAX.min(wait * 2);
                continue;
            }
            steps = match steps.pop() {
                // What can't be kept can't be the end; that it couldn't can.
                Some(TaskStep::Completed(_)) => vec![TaskStep::Failed(error.into())],
                // An agent that asked can't have refused.
                Some(TaskStep::Rejected(failure)) => vec![TaskStep::Failed(failure)],
                _ => {
                    log::error!(task = %self.lease.task, %error, "the end of a task wasn't kept");
                    self.is_lost = true;
                    return;
                }
            };
        }
    }

    /// Takes steps, all or none; they are kept before anybody sees them. The task right after them.
    async fn step(&mut self, steps: Vec<TaskStep>) -> TaskResult<Arc<Task>> {
        let count = u64::try_from(steps.len()).unwrap_or(u64::MAX);
        match self
            .tasks
            .step(&self.lease.task, By::Worker(&self.lease), steps)
            .await
        {
            Ok(task) => {
                let is_news = task.last_event > self.read.saturating_add(count);
                if !is_news {
                    self.read = task.last_event;
                }
                self.seen.send_replace(task.clone());
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
                        log::warn!(task = %self.lease.task, %error, "a step of a task wasn't kept")
                    }
                }
                Err(error)
            }
        }
    }

    /// Reads what others did to the task: they answer, and end it.
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
                    let body = RawObject::parse(&answer)
                        .map_err(|_| Failure::invalid("the answer is no object"));
                    let _ = waiting
                        .answer
                        .send(body.map(|body| waiting.question.answered(body)));
                }
            }
        }
        match self.tasks.get(&self.lease.task).await {
            Ok(Some(task)) => drop(self.seen.send_replace(task)),
            Ok(None) => self.is_lost = true,
            Err(_) => {}
        }
    }
}

/// A handle to a task that runs here.
#[derive(Clone)]
pub struct LiveTask {
    pub(super) events: mpsc::Sender<Event>,
    pub(super) lease: Lease,
    /// It goes on with what an earlier process or another node left: what that had asked is asked again.
    pub is_resumed: bool,
    /// The task as it is now; closed once it runs here no more.
    pub seen: watch::Receiver<Arc<Task>>,
    /// Keys of the questions that are being put to somebody right now.
    pub delivering: Arc<watch::Sender<HashSet<String>>>,
}

impl LiveTask {
    /// Takes steps that its owner wants, and the answer to a question after them, all or nothing. The task right after them.
    ///
    /// # Errors
    /// `Illegal` where the question waits no more; `HasEnded`; the store's: then nothing was taken.
    pub async fn tell(
        &self,
        steps: Vec<TaskStep>,
        answer: Option<(String, Answer)>,
    ) -> TaskResult<Arc<Task>> {
        self.send(steps, answer.map(|(key, answer)| (key, Ok(answer))))
            .await
    }

    /// Tells whoever asked under `key` why there is no answer. The task right after it.
    ///
    /// # Errors
    /// As of [`Self::tell`].
    pub async fn give_up(&self, key: String, why: Failure) -> TaskResult<Arc<Task>> {
        self.send(Vec::new(), Some((key, Err(why)))).await
    }

    /// Cancels its call. The task as it ended.
    ///
    /// # Errors
    /// `HasEnded`; the store's.
    pub async fn cancel(&self) -> TaskResult<Arc<Task>> {
        self.send(vec![TaskStep::cancelled()], None).await
    }

    async fn send(
        &self,
        steps: Vec<TaskStep>,
        answer: Option<(String, Result<Answer, Failure>)>,
    ) -> TaskResult<Arc<Task>> {
        let (taken, was_taken) = oneshot::channel();
        // Its work is over, whether it ended or another goes on with it.
        let over = || Err(TaskError::HasEnded(self.seen.borrow().state));
        match self
            .events
            .send(Event::Told {
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

    /// Tells it what others did, or want. It is told again where its queue is full.
    pub(super) fn hint(&self, event: Event) {
        let _ = self.events.try_send(event);
    }
}

/// A question that is being put to somebody, until this is dropped.
pub struct Delivering {
    all: Arc<watch::Sender<HashSet<String>>>,
    key: String,
}

impl Delivering {
    /// Takes a question to put it to somebody; `None` where another does so already.
    pub fn of(all: &Arc<watch::Sender<HashSet<String>>>, key: &str) -> Option<Self> {
        let is_taken = all.send_if_modified(|keys| keys.insert(key.to_owned()));
        is_taken.then(|| Self {
            all: all.clone(),
            key: key.to_owned(),
        })
    }
}

impl Drop for Delivering {
    fn drop(&mut self) {
        self.all.send_if_modified(|keys| keys.remove(&self.key));
    }
}
