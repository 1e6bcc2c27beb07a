//! A task that runs here: its call, and the one place that takes its steps.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use callboard_message::{Abilities, Answer, Failure, FailureKind, Log, Progress, Question};
use callboard_rpc::RpcError;
use callboard_runtime::{By, Caller, Lease, OpenQuestion, Released, Task, TaskError, TaskEvent, TaskStep};
use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::asking::{self, nobody};
use super::options::TASK_QUESTIONS_MAX;
use super::record::{Outcome, ended, may_be_tried_again, refused};
use crate::inbound::endpoint::Endpoint;

/// Events that wait for a task to take them; then whoever has one waits, and what may be lost is.
const EVENTS_WAITING_MAX: usize = 64;
/// How long the store is tried again with the end of a task; then what another reads of it decides.
const END_TRIED_FOR: Duration = Duration::from_secs(30);
const TRY_AGAIN_FIRST: Duration = Duration::from_millis(50);
const TRY_AGAIN_MAX: Duration = Duration::from_secs(2);
/// Events that are read at once.
const EVENTS_READ_MAX: usize = 100;

/// What happens to a running task from outside its call.
pub(super) enum Event {
    Said(String),
    Asked {
        question: Question,
        answer: oneshot::Sender<Result<Answer, Failure>>,
    },
    Answered {
        key: String,
        answer: Result<Answer, Failure>,
        taken: oneshot::Sender<Result<(), RpcError>>,
    },
    Cancel {
        taken: oneshot::Sender<Result<(), RpcError>>,
    },
    /// Somebody elsewhere wants it ended.
    CancelSoon,
    /// A question may have been given up.
    Look,
    /// Somebody else took a step.
    CatchUp,
    /// Another has the task.
    Lost,
}

/// A handle to a running task.
#[derive(Clone)]
pub(super) struct Live {
    events: mpsc::Sender<Event>,
    /// The task as it is now.
    pub(super) seen: watch::Receiver<Arc<Task>>,
    /// Its worker's right to it.
    pub(super) lease: Lease,
    /// Questions that are being put to somebody right now.
    pub(super) delivering: Arc<watch::Sender<HashSet<String>>>,
}

impl Live {
    /// Answers a question; nothing where it waits no more. Ends when the task has taken it.
    pub(super) async fn answer(&self, key: String, answer: Result<Answer, Failure>) -> Result<(), RpcError> {
        self.tell(|taken| Event::Answered { key, answer, taken }).await
    }

    /// Cancels the call. Ends when the task is cancelled, or had ended before.
    pub(super) async fn cancel(&self) -> Result<(), RpcError> {
        self.tell(|taken| Event::Cancel { taken }).await
    }

    async fn tell(&self, event: impl FnOnce(oneshot::Sender<Result<(), RpcError>>) -> Event) -> Result<(), RpcError> {
        let (taken, was_taken) = oneshot::channel();
        match self.events.send(event(taken)).await {
            // It has ended in between: so it has taken nothing, and needs nothing.
            Ok(()) => was_taken.await.unwrap_or(Ok(())),
            Err(_) => Ok(()),
        }
    }

    /// Tells it what others did, or want: [`Event::CatchUp`], [`Event::CancelSoon`], [`Event::Lost`]. It is told again where its
    /// queue is full.
    pub(super) fn hint(&self, event: Event) {
        let _ = self.events.try_send(event);
    }
}

/// A question that is being put to somebody, until this is dropped.
pub(super) struct Delivering {
    all: Arc<watch::Sender<HashSet<String>>>,
    key: String,
}

impl Delivering {
    /// Takes a question to put it to somebody; `None` where another does so already.
    pub(super) fn of(all: &Arc<watch::Sender<HashSet<String>>>, key: &str) -> Option<Self> {
        let is_taken = all.send_if_modified(|keys| keys.insert(key.to_owned()));
        is_taken.then(|| Self { all: all.clone(), key: key.to_owned() })
    }
}

impl Drop for Delivering {
    fn drop(&mut self) {
        self.all.send_if_modified(|keys| keys.remove(&self.key));
    }
}

/// The task as its agent sees it: somebody who may be asked, and answers when they look in.
struct TaskCaller {
    events: mpsc::Sender<Event>,
    abilities: Abilities,
    /// Who is told of progress and log lines as they come, where the era has that.
    told: Option<Arc<dyn Caller>>,
}

impl Caller for TaskCaller {
    fn progress(&self, progress: Progress) {
        if let Some(message) = &progress.message {
            let _ = self.events.try_send(Event::Said(message.clone()));
        }
        if let Some(told) = &self.told {
            told.progress(progress);
        }
    }

    fn log(&self, line: Log) {
        if let Some(told) = &self.told {
            told.log(line);
        }
    }

    fn abilities(&self) -> Abilities {
        self.abilities.clone()
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(async move {
            if !self.abilities.can_answer(&question) {
                return Err(nobody());
            }
            let (answer, answered) = oneshot::channel();
            self.events.send(Event::Asked { question, answer }).await.map_err(|_| nobody())?;
            // Dropped before it is answered, the question is taken back.
            let _given_up = Look(&self.events);
            answered.await.map_err(|_| nobody())?
        })
    }
}

/// Makes the task look at its questions when this is dropped.
struct Look<'a>(&'a mpsc::Sender<Event>);

impl Drop for Look<'_> {
    fn drop(&mut self) {
        // In a queue that is full there are events that make it look.
        let _ = self.0.try_send(Event::Look);
    }
}

/// The call of a task, until it ends. Dropped, it is cancelled.
pub(super) type Work = BoxFuture<'static, Outcome>;

/// What a task is made of.
pub(super) struct Begin<'a> {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) task: Arc<Task>,
    pub(super) lease: Lease,
    /// It goes on after its process ended.
    pub(super) is_resumed: bool,
    /// For how long it is kept, from now on.
    pub(super) left: Duration,
    pub(super) abilities: Abilities,
    pub(super) told: Option<Arc<dyn Caller>>,
    /// Begins the call, or goes on with it: it gets its caller, and until when it may take.
    pub(super) work: Box<dyn FnOnce(Arc<dyn Caller>, Instant) -> Work + Send + 'a>,
}

/// Begins a task that the store has. It runs, and stays until its time is over, in a tokio task of its own.
pub(super) fn begin(begin: Begin<'_>) -> Live {
    let Begin { endpoint, task, lease, is_resumed, left, abilities, told, work } = begin;
    let (events, happening) = mpsc::channel(EVENTS_WAITING_MAX);
    let expiry = Instant::now() + left;
    let caller = TaskCaller { events: events.clone(), abilities, told };
    let work = work(Arc::new(caller), expiry);
    let read = task.last_event;
    let (seen, watched) = watch::channel(task);
    let worker = Worker {
        endpoint,
        lease: lease.clone(),
        is_resumed,
        seen,
        read,
        is_lost: false,
        waiting: HashMap::new(),
        keys: HashSet::new(),
    };
    tokio::spawn(worker.live(happening, work, expiry));
    Live { events, seen: watched, lease, delivering: Arc::new(watch::Sender::new(HashSet::new())) }
}

/// Who waits for an answer.
struct Waiting {
    question: Arc<Question>,
    answer: oneshot::Sender<Result<Answer, Failure>>,
}

struct Worker {
    endpoint: Arc<Endpoint>,
    lease: Lease,
    is_resumed: bool,
    seen: watch::Sender<Arc<Task>>,
    /// The number of the last event that is known here.
    read: u64,
    /// Another has the task, or nobody can say.
    is_lost: bool,
    /// Who waits for the answer to each open question.
    waiting: HashMap<String, Waiting>,
    /// The keys of all its questions so far: none is used twice in the life of a task.
    keys: HashSet<String>,
}

impl Worker {
    async fn live(mut self, mut happening: mpsc::Receiver<Event>, work: Work, expiry: Instant) {
        let endpoint = self.endpoint.clone();
        let stopped = endpoint.tasks.stopped();
        {
            let mut work = work;
            while !self.is_over() {
                tokio::select! {
                    biased;
                    // Before its call, which has the same deadline: a task is gone then, not failed.
                    () = sleep_until(expiry) => break,
                    () = stopped.cancelled() => break,
                    Some(event) = happening.recv() => self.take(event).await,
                    outcome = &mut work => tokio::select! {
                        () = self.end(outcome) => {}
                        () = stopped.cancelled() => break,
                    },
                }
            }
        }
        // Whatever the call still does elsewhere is cancelled by now; what comes finds the task ended.
        drop(happening);
        self.waiting.clear();
        if !self.is_lost {
            tokio::select! {
                () = sleep_until(expiry) => endpoint.tasks.forget(&self.lease.task).await,
                () = stopped.cancelled() => endpoint.tasks.release(&self.lease, Released::Interrupted).await,
            }
        }
        endpoint.tasks.is_gone(&self.lease);
    }

    fn is_over(&self) -> bool {
        self.is_lost || self.seen.borrow().state.is_terminal()
    }

    async fn take(&mut self, event: Event) {
        match event {
            // How far it came isn't worth more than a try.
            Event::Said(message) => drop(self.step(TaskStep::Said(message)).await),
            Event::Asked { question, answer } => self.asked(question, answer).await,
            Event::Answered { key, answer, taken } => {
                let _ = taken.send(self.answered(key, answer).await.map_err(refused));
            }
            Event::Cancel { taken } => {
                let cancelled = self.step(TaskStep::cancelled()).await;
                // Ended otherwise is ended.
                let _ = taken.send(if self.is_over() { Ok(()) } else { cancelled.map_err(refused) });
            }
            // It is wanted again until it is so.
            Event::CancelSoon => drop(self.step(TaskStep::cancelled()).await),
            Event::Look => {}
            Event::CatchUp => self.catch_up().await,
            Event::Lost => self.is_lost = true,
        }
        let is_given_up = |(_, waiting): &(&String, &Waiting)| waiting.answer.is_closed();
        let given_up: Vec<_> = self.waiting.iter().filter(is_given_up).map(|(key, _)| key.clone()).collect();
        for key in given_up {
            // Kept open where the store is away: the next look tries again.
            if self.step(TaskStep::GivenUp { key: key.clone() }).await.is_ok() || self.is_over() {
                self.waiting.remove(&key);
            }
        }
    }

    async fn asked(&mut self, mut question: Question, answer: oneshot::Sender<Result<Answer, Failure>>) {
        if self.waiting.len() >= TASK_QUESTIONS_MAX {
            let _ = answer.send(Err(Failure::new(FailureKind::Overloaded, "too many questions of this task wait")));
            return;
        }
        let nth = self.keys.len() + 1;
        let wanted = question.take_key().unwrap_or_else(|| format!("q{nth}"));
        // Those of an earlier life aren't known here.
        let wanted = if self.is_resumed { format!("{wanted}_{}", self.lease.epoch) } else { wanted };
        let key = if self.keys.contains(&wanted) { format!("{wanted}_{nth}") } else { wanted };
        let question = Arc::new(question);
        match self.step(TaskStep::Asked(OpenQuestion { key: key.clone(), question: question.clone() })).await {
            Ok(()) => {
                self.keys.insert(key.clone());
                self.waiting.insert(key, Waiting { question, answer });
            }
            Err(error) => drop(answer.send(Err(error.into()))),
        }
    }

    /// An answer is kept before the agent has it.
    async fn answered(&mut self, key: String, answer: Result<Answer, Failure>) -> Result<(), TaskError> {
        if !self.waiting.contains_key(&key) {
            return Ok(());
        }
        let step = match &answer {
            Ok(answer) => TaskStep::Answered { key: key.clone(), answer: asking::raw(answer) },
            Err(_) => TaskStep::GivenUp { key: key.clone() },
        };
        self.step(step).await?;
        if let Some(waiting) = self.waiting.remove(&key) {
            let _ = waiting.answer.send(answer);
        }
        Ok(())
    }

    /// Its call ended. The store may be away for a while; what came of the call is worth some patience.
    async fn end(&mut self, outcome: Outcome) {
        let (until, mut wait) = (Instant::now() + END_TRIED_FOR, TRY_AGAIN_FIRST);
        let mut step = ended(outcome);
        while !self.is_over() {
            match self.step(step.clone()).await {
                Ok(()) => return,
                Err(error) if may_be_tried_again(&error) && Instant::now() < until => {
                    sleep(wait).await;
                    wait = TRY_AGAIN_MAX.min(wait * 2);
                }
                // What can't be kept can't be the end; that it couldn't can.
                Err(error) if matches!(step, TaskStep::Completed(_)) => step = TaskStep::Failed(error.into()),
                Err(error) => {
                    tracing::error!(task = %self.lease.task, %error, "the end of a task wasn't kept");
                    self.is_lost = true;
                }
            }
        }
    }

    /// Takes a step; it is kept before anybody sees it.
    async fn step(&mut self, step: TaskStep) -> Result<(), TaskError> {
        let endpoint = self.endpoint.clone();
        let kept = endpoint.tasks.store.step(&self.lease.task, By::Worker(&self.lease), vec![step]).await;
        match kept {
            Ok(task) if task.last_event > self.read + 1 => {
                self.seen.send_replace(task);
                self.catch_up().await;
                Ok(())
            }
            Ok(task) => {
                self.read = task.last_event;
                self.seen.send_replace(task);
                Ok(())
            }
            Err(error) => {
                match error {
                    TaskError::HasEnded(_) => self.catch_up().await,
                    TaskError::LostLease | TaskError::NotFound => self.is_lost = true,
                    _ => tracing::warn!(task = %self.lease.task, %error, "a step of a task wasn't kept"),
                }
                Err(error)
            }
        }
    }

    /// Reads what others did to the task: they answer, and end it.
    async fn catch_up(&mut self) {
        let store = self.endpoint.tasks.store.clone();
        loop {
            let Ok(events) = store.events(&self.lease.task, self.read, EVENTS_READ_MAX).await else { return };
            if events.is_empty() {
                break;
            }
            for TaskEvent { number, step, .. } in events {
                self.read = number;
                let TaskStep::Answered { key, answer } = step else { continue };
                if let Some(waiting) = self.waiting.remove(&key) {
                    let _ = waiting.answer.send(asking::answer(&waiting.question, &answer));
                }
            }
        }
        match store.get(&self.lease.task).await {
            Ok(Some(task)) => drop(self.seen.send_replace(task)),
            Ok(None) => self.is_lost = true,
            Err(_) => {}
        }
    }
}
