//! A task as its agent sees it: somebody who may be asked, and answers when they look in.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use callboard_message::{Abilities, Answer, Artifact, Failure, Log, Progress, Question};
use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

use crate::call::{Caller, nobody};
use crate::sync::Mutex;
use crate::task::{TASK_BYTES_MAX_DEFAULT, Task, TaskResult, TaskStep};

/// Events that wait for a task to take them; then whoever has one waits.
const EVENTS_WAITING_MAX: usize = 64;
/// Reports and artifacts that wait to be kept; then reports are left out, and artifacts are missed.
const TOLD_WAITING_MAX: usize = 1_024;
/// Reports that wait to be kept: how far a call came isn't worth more.
const REPORTS_WAITING_MAX: usize = 64;

/// What happens to a running task from outside its call.
pub(super) enum Event {
    Asked {
        question: Question,
        answer: oneshot::Sender<Result<Answer, Failure>>,
    },
    /// Somebody outside tells it something, or answers a question; or who was to answer it can't.
    Told {
        steps: Vec<TaskStep>,
        answer: Option<(String, Result<Answer, Failure>)>,
        taken: oneshot::Sender<TaskResult<Arc<Task>>>,
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

/// What a call tells without waiting.
pub(super) enum Told {
    Said(String),
    Made(Artifact),
}

/// What a call told and its task has not kept yet, in order.
#[derive(Default)]
pub(super) struct Telling {
    waiting: Mutex<Waiting>,
    /// An artifact was missed: the reply must hold all.
    missed: AtomicBool,
    /// One was given.
    any: AtomicBool,
}

#[derive(Default)]
struct Waiting {
    told: VecDeque<Told>,
    reports: usize,
    bytes: usize,
}

impl Telling {
    /// Whether it is new that something waits.
    fn tell(&self, told: Told) -> bool {
        let mut waiting = self.waiting.lock();
        let (bytes, is_artifact) = match &told {
            Told::Said(_) => (0, false),
            Told::Made(artifact) => (
                artifact.0.iter().map(|(_, value)| value.get().len()).sum(),
                true,
            ),
        };
        if is_artifact {
            self.any.store(true, Ordering::Release);
        }
        let is_full = waiting.told.len() >= TOLD_WAITING_MAX
            || (is_artifact && waiting.bytes + bytes > TASK_BYTES_MAX_DEFAULT)
            || (!is_artifact && waiting.reports >= REPORTS_WAITING_MAX);
        if is_full {
            if is_artifact {
                self.miss();
            }
            return false;
        }
        waiting.bytes += bytes;
        waiting.reports += usize::from(!is_artifact);
        waiting.told.push_back(told);
        waiting.told.len() == 1
    }

    /// Whether nothing waits.
    fn is_empty(&self) -> bool {
        self.waiting.lock().told.is_empty()
    }

    /// What waits.
    pub(super) fn take(&self) -> VecDeque<Told> {
        mem::take(&mut *self.waiting.lock()).told
    }

    /// An artifact isn't kept.
    pub(super) fn miss(&self) {
        self.missed.store(true, Ordering::Release);
    }

    /// Whether artifacts were given, and all of them are kept.
    pub(super) fn has_all(&self) -> bool {
        self.any.load(Ordering::Acquire) && !self.missed.load(Ordering::Acquire)
    }
}

/// The way to a task's worker.
#[derive(Default)]
enum Line {
    /// Nobody has needed it yet: a call that ends at once never does.
    #[default]
    Unused,
    /// The second is there until the worker has it.
    Open(mpsc::Sender<Event>, Option<mpsc::Receiver<Event>>),
    /// There was no worker, and there won't be one.
    Over,
}

impl Line {
    /// Both ends of it, in use from now on; `None` once there won't be a worker.
    fn opened(&mut self) -> Option<(&mpsc::Sender<Event>, &mut Option<mpsc::Receiver<Event>>)> {
        if let Self::Unused = self {
            let (events, heard) = mpsc::channel(EVENTS_WAITING_MAX);
            *self = Self::Open(events, Some(heard));
        }
        match self {
            Self::Open(events, heard) => Some((events, heard)),
            Self::Unused | Self::Over => None,
        }
    }
}

/// The caller of a task's call.
pub(super) struct TaskCaller {
    line: Mutex<Line>,
    pub(super) telling: Telling,
    abilities: Arc<Abilities>,
    /// Who is told of progress and log lines as they come.
    told: Option<Arc<dyn Caller>>,
    /// Whether artifacts are kept as they come.
    keeps_artifacts: bool,
}

impl TaskCaller {
    pub(super) fn new(
        abilities: Arc<Abilities>,
        told: Option<Arc<dyn Caller>>,
        keeps_artifacts: bool,
    ) -> Self {
        Self {
            line: Mutex::default(),
            telling: Telling::default(),
            abilities,
            told,
            keeps_artifacts,
        }
    }

    /// What its worker has: the way to it, and where it hears. To be taken once, of a call that isn't over.
    pub(super) fn worker_ends(&self) -> (mpsc::Sender<Event>, mpsc::Receiver<Event>) {
        let taken = self
            .line
            .lock()
            .opened()
            .and_then(|(events, heard)| Some((events.clone(), heard.take()?)));
        taken.unwrap_or_else(|| mpsc::channel(1))
    }

    /// The call has ended. Whether it had nothing to say to a worker: then nobody is there from now on.
    pub(super) fn ends_unheard(&self) -> bool {
        let mut line = self.line.lock();
        let is_unheard = matches!(*line, Line::Unused) && self.telling.is_empty();
        if is_unheard {
            *line = Line::Over;
        }
        is_unheard
    }

    fn tell(&self, told: Told) {
        if self.telling.tell(told) {
            self.look();
        }
    }

    /// Makes the task look at what was told, and at its questions.
    fn look(&self) {
        if let Line::Open(events, _) = &*self.line.lock() {
            // In a queue that is full there are events that make the task look. Whoever opens the line looks by itself.
            let _ = events.try_send(Event::Look);
        }
    }
}

impl Caller for TaskCaller {
    fn progress(&self, progress: Progress) {
        if let Some(message) = progress
            .message
            .as_ref()
            .filter(|message| !message.is_empty())
        {
            self.tell(Told::Said(message.clone()));
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

    fn artifact(&self, artifact: Artifact) {
        if self.keeps_artifacts {
            self.tell(Told::Made(artifact));
        }
    }

    fn abilities(&self) -> Abilities {
        Abilities::clone(&self.abilities)
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(async move {
            if !self.abilities.can_answer(&question) {
                return Err(nobody());
            }
            let (answer, answered) = oneshot::channel();
            let events = self
                .line
                .lock()
                .opened()
                .map(|(events, _)| events.clone())
                .ok_or_else(nobody)?;
            events
                .send(Event::Asked { question, answer })
                .await
                .map_err(|_| nobody())?;
            // Dropped before it is answered, the question is taken back.
            let _given_up = Look(self);
            answered.await.map_err(|_| nobody())?
        })
    }
}

/// Makes the task look at its questions when this is dropped.
struct Look<'a>(&'a TaskCaller);

impl Drop for Look<'_> {
    fn drop(&mut self) {
        self.0.look();
    }
}
