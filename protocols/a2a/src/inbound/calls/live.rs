//! A task that runs here: its call, and the one place that takes its steps.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use callboard_message::{Answer, ElicitAnswer, Failure, FailureKind, Question, RawObject, RootsAnswer, SampleAnswer};
use callboard_runtime::{
    By, Caller, JournalError, Lease, OpenQuestion, Released, Task, TaskError, TaskEvent, TaskStep,
};
use futures::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::caller::{TaskCaller, Telling, Told};
use super::let_go::LetGo;
use super::{Core, view};
use crate::convert::{Ended, parts_of};
use crate::wire::Artifact;

/// Events that wait for a task to take them; then whoever has one waits.
const EVENTS_WAITING_MAX: usize = 64;
/// Most questions of one task that wait for an answer.
const TASK_QUESTIONS_MAX: usize = 64;
/// Reports and artifacts that are kept at once.
const TOLD_AT_ONCE_MAX: usize = 32;
/// How long the store is tried again with the end of a task; then what another reads of it decides.
const END_TRIED_FOR: Duration = Duration::from_secs(30);
const TRY_AGAIN_FIRST: Duration = Duration::from_millis(50);
const TRY_AGAIN_MAX: Duration = Duration::from_secs(2);
/// Events that are read at once.
const EVENTS_READ_MAX: usize = 100;

/// What happens to a running task from outside its call.
pub(super) enum Event {
    Asked {
        question: Question,
        answer: oneshot::Sender<Result<Answer, Failure>>,
    },
    /// A message of its owner's: what it brings, and which question it answers.
    Told {
        steps: Vec<TaskStep>,
        answer: Option<(String, Answer)>,
        taken: oneshot::Sender<Result<Arc<Task>, TaskError>>,
    },
    Cancel {
        taken: oneshot::Sender<Result<Arc<Task>, TaskError>>,
    },
    /// Somebody elsewhere wants it ended.
    CancelSoon,
    /// Its call told something, or a question may have been given up.
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
}

impl Live {
    /// Takes a message; answers the task right after it.
    ///
    /// # Errors
    /// `Illegal` where the question waits no more; the store's.
    pub(super) async fn tell(
        &self,
        steps: Vec<TaskStep>,
        answer: Option<(String, Answer)>,
    ) -> Result<Arc<Task>, TaskError> {
        self.send(|taken| Event::Told { steps, answer, taken }).await
    }

    /// Cancels the call; answers the task as it ended.
    ///
    /// # Errors
    /// `HasEnded`; the store's.
    pub(super) async fn cancel(&self) -> Result<Arc<Task>, TaskError> {
        self.send(|taken| Event::Cancel { taken }).await
    }

    async fn send(
        &self,
        event: impl FnOnce(oneshot::Sender<Result<Arc<Task>, TaskError>>) -> Event,
    ) -> Result<Arc<Task>, TaskError> {
        let (taken, was_taken) = oneshot::channel();
        // Its work is over, whether it ended or another goes on with it.
        let over = || Err(TaskError::HasEnded(self.seen.borrow().state));
        match self.events.send(event(taken)).await {
            Ok(()) => was_taken.await.unwrap_or_else(|_| over()),
            Err(_) => over(),
        }
    }

    /// Tells it what others did, or want: [`Event::CatchUp`], [`Event::CancelSoon`], [`Event::Lost`]. It is told again where its
    /// queue is full.
    pub(super) fn hint(&self, event: Event) {
        let _ = self.events.try_send(event);
    }
}

/// The call of a task, until it ends: what becomes of the task, where all that it gave is kept or isn't. Dropped, it is
/// cancelled.
pub(super) type Work = BoxFuture<'static, Box<dyn FnOnce(bool) -> Ended + Send>>;

/// What a task is made of.
pub(super) struct Begin {
    pub(super) core: Arc<Core>,
    pub(super) task: Arc<Task>,
    pub(super) lease: Lease,
    /// It goes on after its process ended.
    pub(super) is_resumed: bool,
    /// For how long it is kept, from now on.
    pub(super) left: Duration,
    /// Begins the call, or goes on with it: it gets its caller, and until when it may take.
    pub(super) work: Box<dyn FnOnce(Arc<dyn Caller>, Instant) -> Work + Send>,
}

/// Begins a task that the store has, in a tokio task of its own.
pub(super) fn begin(begin: Begin) -> Live {
    let Begin { core, task, lease, is_resumed, left, work } = begin;
    let (events, happening) = mpsc::channel(EVENTS_WAITING_MAX);
    let expiry = Instant::now() + left;
    let telling = Arc::new(Telling::default());
    let work = work(Arc::new(TaskCaller { events: events.clone(), telling: telling.clone() }), expiry);
    let read = task.last_event;
    let (seen, watched) = watch::channel(task);
    let worker = Worker {
        core,
        lease: lease.clone(),
        is_resumed,
        seen,
        read,
        telling,
        is_lost: false,
        waiting: HashMap::new(),
        keys: HashSet::new(),
    };
    tokio::spawn(worker.live(happening, work, expiry));
    Live { events, seen: watched, lease }
}

/// Who waits for an answer.
struct Waiting {
    question: Arc<Question>,
    answer: oneshot::Sender<Result<Answer, Failure>>,
}

struct Worker {
    core: Arc<Core>,
    lease: Lease,
    is_resumed: bool,
    seen: watch::Sender<Arc<Task>>,
    /// The number of the last event that is known here.
    read: u64,
    telling: Arc<Telling>,
    /// Another has the task, or nobody can say.
    is_lost: bool,
    /// Who waits for the answer to each open question.
    waiting: HashMap<String, Waiting>,
    /// The keys of all its questions so far: none is used twice in the life of a task.
    keys: HashSet<String>,
}

impl Worker {
    async fn live(mut self, mut happening: mpsc::Receiver<Event>, work: Work, expiry: Instant) {
        let core = self.core.clone();
        let let_go = LetGo::of(&core, &self.lease);
        let mut has_expired = false;
        {
            let mut work = work;
            while !self.is_over() {
                tokio::select! {
                    biased;
                    // Before its call, which has the same deadline: a task is gone then, not failed.
                    () = sleep_until(expiry) => {
                        has_expired = true;
                        break;
                    }
                    () = core.stopped.cancelled() => break,
                    Some(event) = happening.recv() => self.take(event).await,
                    ended = &mut work => tokio::select! {
                        () = self.end(ended) => {}
                        () = core.stopped.cancelled() => break,
                    },
                }
            }
        }
        // Whatever the call still does elsewhere is cancelled by now; what comes finds the task ended.
        drop(happening);
        self.waiting.clear();
        if has_expired {
            core.forget(&self.lease.task).await;
        } else if !self.is_over() {
            core.release(&self.lease, Released::Interrupted).await;
        }
        let_go.done();
    }

    fn is_over(&self) -> bool {
        self.is_lost || self.seen.borrow().state.is_terminal()
    }

    async fn take(&mut self, event: Event) {
        self.keep_told().await;
        match event {
            Event::Asked { question, answer } => self.asked(question, answer).await,
            Event::Told { steps, answer, taken } => drop(taken.send(self.told(steps, answer).await)),
            Event::Cancel { taken } => drop(taken.send(self.step(vec![TaskStep::cancelled()]).await)),
            // It is wanted again until it is so.
            Event::CancelSoon => drop(self.step(vec![TaskStep::cancelled()]).await),
            Event::Look => {}
            Event::CatchUp => self.catch_up().await,
            Event::Lost => self.is_lost = true,
        }
        let is_given_up = |(_, waiting): &(&String, &Waiting)| waiting.answer.is_closed();
        let given_up: Vec<_> = self.waiting.iter().filter(is_given_up).map(|(key, _)| key.clone()).collect();
        for key in given_up {
            // Kept open where the store is away: the next look tries again.
            if self.step(vec![TaskStep::GivenUp { key: key.clone() }]).await.is_ok() || self.is_over() {
                self.waiting.remove(&key);
            }
        }
    }

    /// Keeps what the call told so far.
    async fn keep_told(&mut self) {
        let mut told = self.telling.take();
        while !told.is_empty() && !self.is_over() {
            let some: Vec<_> = told.drain(..told.len().min(TOLD_AT_ONCE_MAX)).collect();
            let makes = some.iter().any(|told| matches!(told, Told::Made(_)));
            let steps: Vec<_> = some.into_iter().map(step_of).collect();
            if self.step(steps).await.is_err() && makes {
                // The reply tells it all then.
                self.telling.miss();
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
        match self.step(vec![TaskStep::Asked(OpenQuestion { key: key.clone(), question: question.clone() })]).await {
            Ok(_) => {
                self.keys.insert(key.clone());
                self.waiting.insert(key, Waiting { question, answer });
            }
            Err(error) => drop(answer.send(Err(error.into()))),
        }
    }

    /// A message is kept, and what it answers, before the agent has the answer.
    async fn told(
        &mut self,
        mut steps: Vec<TaskStep>,
        answer: Option<(String, Answer)>,
    ) -> Result<Arc<Task>, TaskError> {
        let Some((key, answer)) = answer else { return self.step(steps).await };
        if self.waiting.get(&key).is_none_or(|waiting| waiting.answer.is_closed()) {
            let from = self.seen.borrow().state;
            return Err(TaskError::Illegal { from, step: "answered" });
        }
        steps.push(TaskStep::Answered { key: key.clone(), answer: raw(&answer) });
        let task = self.step(steps).await?;
        if let Some(waiting) = self.waiting.remove(&key) {
            let _ = waiting.answer.send(Ok(answer));
        }
        Ok(task)
    }

    /// Its call ended. The store may be away for a while; what came of the call is worth some patience.
    async fn end(&mut self, ended: Box<dyn FnOnce(bool) -> Ended + Send>) {
        self.keep_told().await;
        let Ended { artifact, step } = ended(self.telling.has_all());
        let made = artifact.map(|artifact| TaskStep::Artifact(view::kept(&artifact, false, true)));
        let mut steps: Vec<_> = made.into_iter().chain([step]).collect();
        let (until, mut wait) = (Instant::now() + END_TRIED_FOR, TRY_AGAIN_FIRST);
        while !self.is_over() {
            let error = match self.step(steps.clone()).await {
                Ok(_) => return,
                Err(error) => error,
            };
            if may_be_tried_again(&error) && Instant::now() < until {
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
                    tracing::error!(task = %self.lease.task, %error, "the end of a task wasn't kept");
                    self.is_lost = true;
                    return;
                }
            };
        }
    }

    /// Takes steps, all or none; they are kept before anybody sees them. Answers the task right after them.
    async fn step(&mut self, steps: Vec<TaskStep>) -> Result<Arc<Task>, TaskError> {
        let core = self.core.clone();
        let count = u64::try_from(steps.len()).unwrap_or(u64::MAX);
        match core.store.tasks.step(&self.lease.task, By::Worker(&self.lease), steps).await {
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
                    _ => tracing::warn!(task = %self.lease.task, %error, "a step of a task wasn't kept"),
                }
                Err(error)
            }
        }
    }

    /// Reads what others did to the task: they answer, and end it.
    async fn catch_up(&mut self) {
        let store = self.core.store.tasks.clone();
        loop {
            let Ok(events) = store.events(&self.lease.task, self.read, EVENTS_READ_MAX).await else { return };
            if events.is_empty() {
                break;
            }
            for TaskEvent { number, step, .. } in events {
                self.read = number;
                let TaskStep::Answered { key, answer } = step else { continue };
                if let Some(waiting) = self.waiting.remove(&key) {
                    let _ = waiting.answer.send(read(&waiting.question, &answer));
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

fn step_of(told: Told) -> TaskStep {
    match told {
        Told::Said(text) => TaskStep::Said(text),
        Told::Made(given) => {
            let artifact = Artifact {
                artifact_id: given.id(),
                name: given.0.text("name").unwrap_or_default(),
                description: given.0.text("description").unwrap_or_default(),
                parts: parts_of(&given.content()),
                metadata: given.0.object("metadata"),
                ..Artifact::default()
            };
            TaskStep::Artifact(view::kept(&artifact, given.is_appended(), given.is_last()))
        }
    }
}

/// What an answer is kept as.
pub(super) fn raw(answer: &Answer) -> Box<RawValue> {
    match answer {
        Answer::Sample(sample) => sample.0.to_raw(),
        Answer::Elicit(elicited) => elicited.0.to_raw(),
        Answer::Roots(roots) => roots.0.to_raw(),
        _ => RawObject::new().to_raw(),
    }
}

/// An answer as it was kept.
fn read(question: &Question, kept: &RawValue) -> Result<Answer, Failure> {
    let body = RawObject::parse(kept).map_err(|_| Failure::invalid("the answer is no object"))?;
    Ok(match question {
        Question::Sample(_) => Answer::Sample(SampleAnswer(body)),
        Question::Elicit(_) => Answer::Elicit(ElicitAnswer(body)),
        _ => Answer::Roots(RootsAnswer(body)),
    })
}

/// Whether a step that the store didn't take may be taken if it is tried again.
fn may_be_tried_again(error: &TaskError) -> bool {
    use JournalError::{NoSpace, Overloaded, SizeLimit, Unavailable, Unknown};
    let TaskError::Journal(error) = error else { return false };
    matches!(error, Unavailable(_) | Unknown(_) | Overloaded { .. } | NoSpace | SizeLimit { .. })
}
