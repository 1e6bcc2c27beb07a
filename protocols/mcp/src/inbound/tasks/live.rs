//! A task that runs: its call, and the one place that takes its steps.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::SystemTime;

use callboard_message::{Abilities, Answer, Failure, FailureKind, Log, Progress, Question};
use callboard_rpc::RpcError;
use callboard_runtime::Caller;
use futures::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use super::asking::nobody;
use super::options::TASK_QUESTIONS_MAX;
use super::record::{OpenQuestion, Step, TaskRecord};
use crate::inbound::endpoint::Endpoint;

/// Events that wait for a task to take them; then whoever has one waits, and what may be lost is.
const EVENTS_WAITING_MAX: usize = 64;

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
        taken: oneshot::Sender<()>,
    },
    Cancel {
        taken: oneshot::Sender<()>,
    },
    /// A question may have been given up.
    Look,
}

/// A handle to a running task.
#[derive(Clone)]
pub(super) struct Live {
    events: mpsc::Sender<Event>,
    /// The task as it is now.
    pub(super) seen: watch::Receiver<Arc<TaskRecord>>,
    /// Questions that are being put to somebody right now.
    pub(super) delivering: Arc<watch::Sender<HashSet<String>>>,
}

impl Live {
    /// Answers a question; nothing where it waits no more. Ends when the task has taken it.
    pub(super) async fn answer(&self, key: String, answer: Result<Answer, Failure>) {
        let (taken, was_taken) = oneshot::channel();
        if self.events.send(Event::Answered { key, answer, taken }).await.is_ok() {
            let _ = was_taken.await;
        }
    }

    /// Cancels the call. Ends when the task is cancelled, or had ended before.
    pub(super) async fn cancel(&self) {
        let (taken, was_taken) = oneshot::channel();
        if self.events.send(Event::Cancel { taken }).await.is_ok() {
            let _ = was_taken.await;
        }
    }

    /// Takes a question to put it to somebody; `None` where another does so already.
    pub(super) fn deliver(&self, key: &str) -> Option<Delivering> {
        let taken = self.delivering.send_if_modified(|keys| keys.insert(key.to_owned()));
        taken.then(|| Delivering { all: self.delivering.clone(), key: key.to_owned() })
    }
}

/// A question that is being put to somebody, until this is dropped.
pub(super) struct Delivering {
    all: Arc<watch::Sender<HashSet<String>>>,
    key: String,
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
pub(super) type Work = BoxFuture<'static, Result<Box<RawValue>, RpcError>>;

/// What a task is made of.
pub(super) struct Begin<'a> {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) record: Arc<TaskRecord>,
    pub(super) abilities: Abilities,
    pub(super) told: Option<Arc<dyn Caller>>,
    /// Begins the call, or goes on with it: it gets its caller, and until when it may take.
    pub(super) work: Box<dyn FnOnce(Arc<dyn Caller>, Instant) -> Work + Send + 'a>,
}

/// Begins a task that the store has. It runs, and stays until its time is over, in a tokio task of its own.
pub(super) fn begin(begin: Begin<'_>) -> Live {
    let Begin { endpoint, record, abilities, told, work } = begin;
    let (events, happening) = mpsc::channel(EVENTS_WAITING_MAX);
    let expiry = Instant::now() + record.ttl;
    let caller = TaskCaller { events: events.clone(), abilities, told };
    let work = work(Arc::new(caller), expiry);
    let (seen, watched) = watch::channel(record);
    let task = Task { endpoint, seen, waiting: HashMap::new(), keys: HashSet::new() };
    tokio::spawn(task.live(happening, work, expiry));
    Live { events, seen: watched, delivering: Arc::new(watch::Sender::new(HashSet::new())) }
}

struct Task {
    endpoint: Arc<Endpoint>,
    seen: watch::Sender<Arc<TaskRecord>>,
    /// Who waits for the answer to each open question.
    waiting: HashMap<String, oneshot::Sender<Result<Answer, Failure>>>,
    /// The keys of all its questions so far: none is used twice in the life of a task.
    keys: HashSet<String>,
}

impl Task {
    async fn live(mut self, mut happening: mpsc::Receiver<Event>, work: Work, expiry: Instant) {
        let endpoint = self.endpoint.clone();
        let stopped = endpoint.tasks.stopped();
        {
            let mut work = work;
            while !self.record().state.is_terminal() {
                tokio::select! {
                    biased;
                    // Before its call, which has the same deadline: a task is gone then, not failed.
                    () = sleep_until(expiry) => break,
                    () = stopped.cancelled() => break,
                    Some(event) = happening.recv() => self.take(event).await,
                    outcome = &mut work => self.step(Step::Ended(Arc::new(outcome))).await,
                }
            }
        }
        // Whatever the call still does elsewhere is cancelled by now; what comes finds the task ended.
        drop(happening);
        self.waiting.clear();
        tokio::select! {
            () = sleep_until(expiry) => {}
            () = stopped.cancelled() => {}
        }
        endpoint.tasks.forget(&self.record().id).await;
    }

    fn record(&self) -> Arc<TaskRecord> {
        self.seen.borrow().clone()
    }

    async fn take(&mut self, event: Event) {
        match event {
            Event::Said(message) => self.step(Step::Said(message)).await,
            Event::Asked { question, answer } => self.asked(question, answer).await,
            Event::Answered { key, answer, taken } => {
                if let Some(waiting) = self.waiting.remove(&key) {
                    self.step(Step::Settled(key)).await;
                    let _ = waiting.send(answer);
                }
                let _ = taken.send(());
            }
            Event::Cancel { taken } => {
                self.step(Step::Cancelled).await;
                let _ = taken.send(());
            }
            Event::Look => {}
        }
        let given_up: Vec<_> = self.waiting.iter().filter(|(_, w)| w.is_closed()).map(|(key, _)| key.clone()).collect();
        for key in given_up {
            self.waiting.remove(&key);
            self.step(Step::Settled(key)).await;
        }
    }

    async fn asked(&mut self, mut question: Question, answer: oneshot::Sender<Result<Answer, Failure>>) {
        if self.waiting.len() >= TASK_QUESTIONS_MAX {
            let _ = answer.send(Err(Failure::new(FailureKind::Overloaded, "too many questions of this task wait")));
            return;
        }
        let nth = self.keys.len() + 1;
        let wanted = question.take_key().unwrap_or_else(|| format!("q{nth}"));
        let key = if self.keys.contains(&wanted) { format!("{wanted}_{nth}") } else { wanted };
        self.keys.insert(key.clone());
        self.waiting.insert(key.clone(), answer);
        self.step(Step::Asked(OpenQuestion { key, question: Arc::new(question) })).await;
    }

    /// Takes a step; it is kept before anybody sees it.
    async fn step(&mut self, step: Step) {
        let mut next = (*self.record()).clone();
        if next.step(step, SystemTime::now()).is_ok() {
            let next = Arc::new(next);
            self.endpoint.tasks.put(next.clone()).await;
            self.seen.send_replace(next);
        }
    }
}
