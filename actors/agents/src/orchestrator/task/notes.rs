//! What a run must not forget, beside its tasks: questions and answers that came before it had any, what was decided up to
//! them, and what its steps came to.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use callboard_message::{DataClass, Failure, RawObject};
use callboard_runtime::{JournalError, NoteError, Notes};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::decide::RunId;

/// Largest note of a run, in bytes.
pub(super) const RUN_NOTE_BYTES_MAX: usize = 48 * 1_024;
/// How often a note is written again that somebody else wrote meanwhile.
const TRIES_MAX: usize = 5;

/// The member of a note that holds answers, by key.
const ANSWERS: &str = "answers";
/// The member that holds questions, by key.
const QUESTIONS: &str = "questions";

/// The notes of one run: an object under its id in the space `run/AGENT`.
#[derive(Clone)]
pub(super) struct RunNotes {
    notes: Arc<dyn Notes>,
    space: Arc<str>,
    run: RunId,
    /// Whether anything may be kept: of patients nothing is.
    keeps: bool,
    /// Something is kept, as far as is known here.
    any: Arc<AtomicBool>,
    /// What is kept with the first question: most runs ask nobody, and are over sooner than it is written.
    staged: Arc<Mutex<RawObject>>,
}

impl RunNotes {
    pub fn new(notes: Arc<dyn Notes>, agent: &str, class: DataClass, run: RunId) -> Self {
        let keeps = class != DataClass::Clinical;
        Self { notes, space: format!("run/{agent}").into(), run, keeps, any: Arc::default(), staged: Arc::default() }
    }

    /// Others may have kept something.
    pub fn may_be_there(&self) {
        self.any.store(true, Relaxed);
    }

    /// What is kept under a name.
    pub async fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Failure> {
        if !self.keeps {
            return Ok(None);
        }
        let note = self.notes.get(&self.space, self.run.as_str()).await?;
        self.any.fetch_or(note.is_some(), Relaxed);
        Ok(note.and_then(|note| note.body.read(name)))
    }

    /// Keeps something under a name.
    pub async fn keep(&self, name: &str, value: &impl Serialize) -> Result<(), Failure> {
        self.change(|body| body.set(name, value)).await
    }

    /// Keeps something under a name as soon as somebody is asked.
    pub fn stage(&self, name: &str, value: &impl Serialize) {
        if self.keeps {
            self.staged.lock().unwrap_or_else(PoisonError::into_inner).set(name, value);
        }
    }

    /// What was asked under a key.
    pub async fn question(&self, key: &str) -> Result<Option<RawObject>, Failure> {
        Ok(self.get::<RawObject>(QUESTIONS).await?.and_then(|questions| questions.object(key)))
    }

    /// Keeps a question, and what was decided up to it.
    pub async fn keep_question(&self, key: &str, question: &RawObject) -> Result<(), Failure> {
        if self.question(key).await?.is_some_and(|there| there == *question) {
            return Ok(());
        }
        let staged = self.staged.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let kept = self.change(|body| {
            for (name, value) in staged.iter() {
                body.set(name, value);
            }
            let questions = body.object(QUESTIONS).unwrap_or_default();
            body.set(QUESTIONS, questions.with(key, question));
        });
        // It is asked all the same; after a restart it is decided anew.
        if let Err(failure) = kept.await {
            callboard_message::log::warn!(run = %self.run, %failure, "a question and what led to it aren't kept");
        }
        Ok(())
    }

    /// What was answered under a key.
    pub async fn answer(&self, key: &str) -> Result<Option<RawObject>, Failure> {
        Ok(self.get::<RawObject>(ANSWERS).await?.and_then(|answers| answers.object(key)))
    }

    pub async fn keep_answer(&self, key: &str, answer: RawObject) -> Result<(), Failure> {
        self.change(|body| {
            let answers = body.object(ANSWERS).unwrap_or_default();
            body.set(ANSWERS, answers.with(key, &answer));
        })
        .await
    }

    /// Forgets all of it: the run has ended.
    pub async fn forget(&self) {
        if self.any.load(Relaxed)
            && let Err(error) = self.notes.remove(&self.space, self.run.as_str()).await
        {
            callboard_message::log::warn!(run = %self.run, %error, "the notes of a run weren't removed");
        }
    }

    async fn change(&self, change: impl Fn(&mut RawObject)) -> Result<(), Failure> {
        if !self.keeps {
            return Ok(());
        }
        self.may_be_there();
        for _ in 0..TRIES_MAX {
            let there = self.notes.get(&self.space, self.run.as_str()).await?;
            let (mut body, version) = there.map_or((RawObject::new(), 0), |note| (note.body, note.version));
            change(&mut body);
            let bytes = body.to_raw().get().len();
            if bytes > RUN_NOTE_BYTES_MAX {
                return Err(JournalError::TooLarge { bytes, bytes_max: RUN_NOTE_BYTES_MAX }.into());
            }
            match self.notes.put(&self.space, self.run.as_str(), body, Some(version)).await {
                Ok(_) => return Ok(()),
                Err(NoteError::Changed { .. }) => {}
                Err(NoteError::Journal(error)) => return Err(error.into()),
                Err(error) => return Err(Failure::internal(error.to_string())),
            }
        }
        Err(Failure::unavailable("the notes of the run are written by others at the same time: try again"))
    }
}
