//! Questions of a run and their answers, stored so that after a restart nobody is asked twice.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use callboard_message::{
    Answer, DataClass, ElicitAnswer, Elicitation, FAILURE, Failure, FailureKind, Progress,
    Question, RawObject, hex,
};
use callboard_runtime::{Caller, Cx, JournalError, NoteError, Notes, TaskId, TaskStep, Tasks};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::bell::Ringer;
use crate::decide::{RunId, with_caller};
use crate::memory::unkept;

/// Events of a task that are read at once.
const EVENTS_READ_MAX: usize = 100;
/// Bytes of the hash that names a question without a name.
const HASH_BYTES: usize = 6;
/// Maximum bytes of the stored note of a run: its questions, their answers and what was decided up to them. Over it, a
/// question is asked without being stored and decided anew after a restart. Fixed.
pub(super) const RUN_NOTE_BYTES_MAX: usize = 48 * 1_024;
/// Maximum attempts to write a note that others write at the same time.
const TRIES_MAX: usize = 5;

/// The member of a note that holds answers, by key.
const ANSWERS: &str = "answers";
/// The member that holds questions, by key.
const QUESTIONS: &str = "questions";

/// Storage of questions and answers.
pub(super) enum Kept {
    /// Among the events of the task that asks.
    Task {
        tasks: Arc<dyn Tasks>,
        id: TaskId,
        ringer: Ringer,
    },
    /// In the run's notes.
    Notes(RunNotes),
}

/// What was asked before, by this process or an earlier one: what led to it needn't be decided anew.
#[derive(Clone, Default)]
pub(crate) struct Asked(Option<Arc<Kept>>);

impl Asked {
    /// The question that was asked under a key.
    pub(crate) async fn before(&self, key: &str) -> Result<Option<Elicitation>, Failure> {
        let Some(kept) = &self.0 else { return Ok(None) };
        match &**kept {
            Kept::Notes(notes) => Ok(notes
                .under(QUESTIONS, key)
                .await?
                .map(|body| Elicitation(body).key(key))),
            Kept::Task { tasks, id, .. } => {
                let asked = last(&**tasks, id, |step| match step {
                    TaskStep::Asked(open) if open.key == key => Some(open.question),
                    _ => None,
                });
                match asked.await?.as_deref() {
                    Some(Question::Elicit(form)) => Ok(Some(form.clone().key(key))),
                    _ => Ok(None),
                }
            }
        }
    }
}

/// The same surroundings, in which no person is asked twice what was answered already: before a restart, for example.
/// Questions without a key get one that is the same each time.
pub(super) fn asked_once(cx: &Cx, kept: Kept) -> (Cx, Asked) {
    let kept = Arc::new(kept);
    match with_caller(cx, |inner| {
        Arc::new(Once {
            inner,
            kept: kept.clone(),
            asked: Mutex::default(),
        })
    }) {
        Some(once) => (once, Asked(Some(kept))),
        None => (cx.clone(), Asked::default()),
    }
}

struct Once {
    inner: Arc<dyn Caller>,
    kept: Arc<Kept>,
    /// Number of times that each nameless question was asked.
    asked: Mutex<HashMap<String, u32>>,
}

impl Once {
    /// The key of a question: its own, or what it says.
    fn key(&self, question: &mut Question) -> String {
        if let Some(key) = question.take_key() {
            return key;
        }
        let body = question.body().to_raw();
        let mut key = format!("ask-{}", hex(&Sha256::digest(body.get())[..HASH_BYTES]));
        let mut asked = self.asked.lock();
        let times = asked.entry(key.clone()).or_default();
        *times += 1;
        if *times > 1 {
            let _ = write!(key, "-{times}");
        }
        key
    }

    async fn answered(&self, key: &str) -> Result<Option<RawObject>, Failure> {
        let answer = match &*self.kept {
            Kept::Notes(notes) => return notes.under(ANSWERS, key).await,
            Kept::Task { tasks, id, .. } => {
                let answered = last(&**tasks, id, |step| match step {
                    TaskStep::Answered { key: of, answer } if of == key => Some(answer),
                    _ => None,
                });
                answered.await?
            }
        };
        let unreadable = |_| Failure::invalid("the answer is no JSON object");
        answer
            .map(|answer| RawObject::parse(&answer).map_err(unreadable))
            .transpose()
    }
}

/// The last of what is looked for among a task's events.
async fn last<T>(
    tasks: &dyn Tasks,
    id: &TaskId,
    mut wanted: impl FnMut(TaskStep) -> Option<T>,
) -> Result<Option<T>, Failure> {
    let (mut after, mut found) = (0, None);
    loop {
        let events = tasks.events(id, after, EVENTS_READ_MAX).await?;
        let Some(last) = events.last() else {
            return Ok(found);
        };
        after = last.number;
        for event in events {
            found = wanted(event.step).or(found);
        }
    }
}

impl Caller for Once {
    fn behind(&self) -> Option<&dyn Caller> {
        Some(&*self.inner)
    }

    fn progress(&self, progress: Progress) {
        self.inner.progress(progress);
        if let Kept::Task { ringer, .. } = &*self.kept {
            ringer.ring();
        }
    }

    fn ask(&self, mut question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(async move {
            if matches!(question, Question::Sample(_)) {
                return self.inner.ask(question).await;
            }
            let key = self.key(&mut question);
            if let Some(body) = self.answered(&key).await? {
                return heard(question.answered(body));
            }
            match (&*self.kept, &question) {
                (Kept::Task { ringer, .. }, _) => ringer.ring(),
                // A task keeps what it asks; here it is kept before anybody sees it.
                (Kept::Notes(notes), Question::Elicit(form)) => {
                    notes.keep_question(&key, &form.0).await?
                }
                _ => {}
            }
            let answer = self.inner.ask(question.key(&key)).await?;
            if let Kept::Notes(notes) = &*self.kept {
                // Before it is used: what is done with it must not be done with another.
                notes
                    .keep_under(ANSWERS, &key, answer.body(), &RawObject::new())
                    .await?;
            }
            heard(answer)
        })
    }
}

/// The answer that says why there is none: a task can be given nothing else.
pub(super) fn no_answer(failure: &Failure) -> Box<RawValue> {
    let why = RawObject::of("kind", failure.kind);
    let meta = RawObject::of(FAILURE, why);
    ElicitAnswer::cancel().0.with("_meta", meta).to_raw()
}

/// An answer, unless it says why there is none.
fn heard(answer: Answer) -> Result<Answer, Failure> {
    let meta = answer.body().object("_meta");
    match meta.and_then(|meta| meta.object(FAILURE)?.read::<FailureKind>("kind")) {
        Some(kind) => Err(Failure::new(kind, "nobody answered the question")),
        None => Ok(answer),
    }
}

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
        Self {
            notes,
            space: format!("run/{agent}").into(),
            run,
            keeps,
            any: Arc::default(),
            staged: Arc::default(),
        }
    }

    /// Others may have kept something.
    pub fn may_be_there(&self) {
        self.any.store(true, Relaxed);
    }

    /// Value under a name.
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
            self.staged.lock().set(name, value);
        }
    }

    /// Question or answer under a key.
    async fn under(&self, member: &str, key: &str) -> Result<Option<RawObject>, Failure> {
        Ok(self
            .get::<RawObject>(member)
            .await?
            .and_then(|all| all.object(key)))
    }

    /// Keeps a question or an answer under a key, and the members of `more`.
    async fn keep_under(
        &self,
        member: &str,
        key: &str,
        body: &RawObject,
        more: &RawObject,
    ) -> Result<(), Failure> {
        let change = |note: &mut RawObject| {
            more.iter().for_each(|(name, value)| note.set(name, value));
            let all = note.object(member).unwrap_or_default();
            note.set(member, all.with(key, body));
        };
        self.change(change).await
    }

    /// Keeps a question, and what was decided up to it.
    async fn keep_question(&self, key: &str, question: &RawObject) -> Result<(), Failure> {
        if self.under(QUESTIONS, key).await?.as_ref() == Some(question) {
            return Ok(());
        }
        let staged = self.staged.lock().clone();
        // It is asked all the same; after a restart it is decided anew.
        if let Err(failure) = self.keep_under(QUESTIONS, key, question, &staged).await {
            callboard_message::log::warn!(run = %self.run, %failure, "a question and what led to it aren't kept");
        }
        Ok(())
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
            let (mut body, version) =
                there.map_or((RawObject::new(), 0), |note| (note.body, note.version));
            change(&mut body);
            let bytes = body.to_raw().get().len();
            if bytes > RUN_NOTE_BYTES_MAX {
                return Err(JournalError::TooLarge {
                    bytes,
                    bytes_max: RUN_NOTE_BYTES_MAX,
                }
                .into());
            }
            match self
                .notes
                .put(&self.space, self.run.as_str(), body, Some(version))
                .await
            {
                Ok(_) => return Ok(()),
                Err(NoteError::Changed { .. }) => {}
                Err(error) => return Err(unkept(error)),
            }
        }
        Err(Failure::unavailable(
            "the notes of the run are written by others at the same time: try again",
        ))
    }
}
