//! What others have of a task that runs here.

use std::collections::HashSet;
use std::sync::Arc;

use callboard_message::{Answer, Failure, Question};
use tokio::sync::{mpsc, oneshot, watch};

use crate::task::{Lease, Task, TaskError, TaskStep};

type Taken = oneshot::Sender<Result<Arc<Task>, TaskError>>;

/// What happens to a running task from outside its call.
pub(super) enum Event {
    Asked {
        question: Question,
        answer: oneshot::Sender<Result<Answer, Failure>>,
    },
    /// Somebody outside tells it something, or answers a question.
    Told {
        steps: Vec<TaskStep>,
        answer: Option<(String, Answer)>,
        taken: Taken,
    },
    /// Who was to answer a question can't.
    GivenUp {
        key: String,
        why: Failure,
        taken: Taken,
    },
    Cancel {
        taken: Taken,
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
    pub async fn tell(&self, steps: Vec<TaskStep>, answer: Option<(String, Answer)>) -> Result<Arc<Task>, TaskError> {
        self.send(|taken| Event::Told { steps, answer, taken }).await
    }

    /// Tells whoever asked under `key` why there is no answer. The task right after it.
    ///
    /// # Errors
    /// As of [`Self::tell`].
    pub async fn give_up(&self, key: String, why: Failure) -> Result<Arc<Task>, TaskError> {
        self.send(|taken| Event::GivenUp { key, why, taken }).await
    }

    /// Cancels its call. The task as it ended.
    ///
    /// # Errors
    /// `HasEnded`; the store's.
    pub async fn cancel(&self) -> Result<Arc<Task>, TaskError> {
        self.send(|taken| Event::Cancel { taken }).await
    }

    async fn send(&self, event: impl FnOnce(Taken) -> Event) -> Result<Arc<Task>, TaskError> {
        let (taken, was_taken) = oneshot::channel();
        // Its work is over, whether it ended or another goes on with it.
        let over = || Err(TaskError::HasEnded(self.seen.borrow().state));
        match self.events.send(event(taken)).await {
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
        is_taken.then(|| Self { all: all.clone(), key: key.to_owned() })
    }
}

impl Drop for Delivering {
    fn drop(&mut self) {
        self.all.send_if_modified(|keys| keys.remove(&self.key));
    }
}
