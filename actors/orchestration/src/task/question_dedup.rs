//! Stored questions and answers of a run, so that no question is asked twice after a restart.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use callboard_message::{
    Answer, DataClass, Elicitation, ElicitationAnswer, FAILURE_META_KEY, Failure, FailureKind,
    Progress, Question, RawObject, encode_hex,
};
use callboard_runtime::{
    Caller, Context, JournalError, KvError, KvStore, TaskId, TaskStep, TaskStore,
};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::task_notifier::TaskNotificationSender;
use crate::decide::{RunId, with_caller};
use crate::memory::note_failure;

/// Task events read per page.
const EVENTS_PAGE_SIZE: usize = 100;
/// Bytes of the content hash that is the key of a question without a key.
const HASH_BYTES: usize = 6;
/// Maximum bytes of a run's stored data: questions, answers and the decisions that led to them. A
/// question that doesn't fit is asked without being stored; after a restart it is decided and asked
/// again. An answer that doesn't fit fails the question with `InvalidInput`. Fixed.
pub(super) const RUN_STORE_BYTES_MAX: usize = 48 * 1_024;
/// Maximum attempts to write stored data while other writers change it. After them the write fails
/// as `Unavailable`.
const WRITE_ATTEMPTS_MAX: usize = 5;

/// Key of the stored answers, an object by question key.
const ANSWERS_MEMBER: &str = "answers";
/// Key of the stored questions, an object by question key.
const QUESTIONS_MEMBER: &str = "questions";

/// Storage of the questions and answers of a run.
pub(super) enum QuestionStore {
    /// Events of the task that asks.
    Task {
        tasks: Arc<dyn TaskStore>,
        id: TaskId,
        notifications: TaskNotificationSender,
    },
    /// Stored data of the run.
    Notes(RunStore),
}

/// Questions asked earlier in this run, by this process or before a restart. An earlier question is
/// repeated without deciding again.
#[derive(Clone, Default)]
pub(crate) struct QuestionHistory(Option<Arc<QuestionStore>>);

impl QuestionHistory {
    /// Returns the stored question with this key; `None` if none was asked, or the run has no
    /// caller.
    ///
    /// # Errors
    /// Failures of the store.
    pub(crate) async fn find_question(&self, key: &str) -> Result<Option<Elicitation>, Failure> {
        let Some(store) = &self.0 else {
            return Ok(None);
        };
        match &**store {
            QuestionStore::Notes(notes) => Ok(notes
                .get_entry(QUESTIONS_MEMBER, key)
                .await?
                .map(|body| Elicitation(body).with_key(key))),
            QuestionStore::Task { tasks, id, .. } => {
                let asked = find_last_step(&**tasks, id, |step| match step {
                    TaskStep::Asked(open) if open.key == key => Some(open.question),
                    _ => None,
                });
                match asked.await?.as_deref() {
                    Some(Question::Elicit(form)) => Ok(Some(form.clone().with_key(key))),
                    _ => Ok(None),
                }
            }
        }
    }
}

/// Returns a context that stores questions and answers, and its question history. Answered
/// questions return the stored answer instead of being asked again, also after a restart. Questions
/// without a key get a key derived from their content. Prompts for the caller's model aren't
/// stored. Without a caller, the context is unchanged and the history empty.
pub(super) fn dedup_questions(cx: &Context, store: QuestionStore) -> (Context, QuestionHistory) {
    let store = Arc::new(store);
    match with_caller(cx, |inner| {
        Arc::new(DedupCaller {
            inner,
            store: store.clone(),
            asked: Mutex::default(),
        })
    }) {
        Some(once) => (once, QuestionHistory(Some(store))),
        None => (cx.clone(), QuestionHistory::default()),
    }
}

struct DedupCaller {
    inner: Arc<dyn Caller>,
    store: Arc<QuestionStore>,
    /// Number of times that each question without a key of its own was asked, by derived key.
    asked: Mutex<HashMap<String, u32>>,
}

impl DedupCaller {
    /// Returns the key of a question: its own, or one derived from its content.
    fn question_key(&self, question: &mut Question) -> String {
        if let Some(key) = question.take_key() {
            return key;
        }
        let body = question.body().to_raw();
        let mut key = format!(
            "ask-{}",
            encode_hex(&Sha256::digest(body.get())[..HASH_BYTES])
        );
        let mut asked = self.asked.lock();
        let times = asked.entry(key.clone()).or_default();
        *times += 1;
        if *times > 1 {
            let _ = write!(key, "-{times}");
        }
        key
    }

    async fn stored_answer(&self, key: &str) -> Result<Option<RawObject>, Failure> {
        let answer = match &*self.store {
            QuestionStore::Notes(notes) => return notes.get_entry(ANSWERS_MEMBER, key).await,
            QuestionStore::Task { tasks, id, .. } => {
                let answered = find_last_step(&**tasks, id, |step| match step {
                    TaskStep::Answered { key: of, answer } if of == key => Some(answer),
                    _ => None,
                });
                answered.await?
            }
        };
        let unreadable = |_| Failure::invalid("the answer to the question must be a JSON object");
        answer
            .map(|answer| RawObject::parse(&answer).map_err(unreadable))
            .transpose()
    }
}

/// Returns the last of the values that `wanted` returns for a task's events; `None` if it returns
/// none.
///
/// # Errors
/// Failures of the store.
async fn find_last_step<T>(
    tasks: &dyn TaskStore,
    id: &TaskId,
    mut wanted: impl FnMut(TaskStep) -> Option<T>,
) -> Result<Option<T>, Failure> {
    let (mut after, mut found) = (0, None);
    loop {
        let events = tasks.events(id, after, EVENTS_PAGE_SIZE).await?;
        let Some(last) = events.last() else {
            return Ok(found);
        };
        after = last.number;
        for event in events {
            found = wanted(event.step).or(found);
        }
    }
}

impl Caller for DedupCaller {
    fn inner(&self) -> Option<&dyn Caller> {
        Some(&*self.inner)
    }

    fn progress(&self, progress: Progress) {
        self.inner.progress(progress);
        if let QuestionStore::Task { notifications, .. } = &*self.store {
            notifications.notify();
        }
    }

    fn ask(&self, mut question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(async move {
            if matches!(question, Question::Sample(_)) {
                return self.inner.ask(question).await;
            }
            let key = self.question_key(&mut question);
            if let Some(body) = self.stored_answer(&key).await? {
                return answer_or_failure(question.answer_with(body));
            }
            match (&*self.store, &question) {
                (QuestionStore::Task { notifications, .. }, _) => notifications.notify(),
                // A task store records questions itself; here they are stored before anyone sees
                // them.
                (QuestionStore::Notes(notes), Question::Elicit(form)) => {
                    notes.put_question(&key, &form.0).await?
                }
                _ => {}
            }
            let answer = self.inner.ask(question.with_key(&key)).await?;
            if let QuestionStore::Notes(notes) = &*self.store {
                // Stored before use: whatever follows from this answer must not be repeated with
                // another one.
                notes
                    .put_entry(ANSWERS_MEMBER, &key, answer.body(), &RawObject::new())
                    .await?;
            }
            answer_or_failure(answer)
        })
    }
}

/// Encodes a failure as a cancelled answer with the failure kind in `_meta`, because a task accepts
/// only answers.
pub(super) fn failure_as_answer(failure: &Failure) -> Box<RawValue> {
    let why = RawObject::single("kind", failure.kind);
    let meta = RawObject::single(FAILURE_META_KEY, why);
    ElicitationAnswer::cancel().0.with("_meta", meta).to_raw()
}

/// Returns the answer, or the failure encoded in it.
fn answer_or_failure(answer: Answer) -> Result<Answer, Failure> {
    let meta = answer.body().object("_meta");
    match meta.and_then(|meta| meta.object(FAILURE_META_KEY)?.read::<FailureKind>("kind")) {
        Some(kind) => Err(Failure::new(kind, "nobody answered the question")),
        None => Ok(answer),
    }
}

/// Stored data of one run: an object under the run id in the key-value space `run/AGENT`.
#[derive(Clone)]
pub(super) struct RunStore {
    notes: Arc<dyn KvStore>,
    space: Arc<str>,
    run: RunId,
    /// Whether anything may be stored. `false` for clinical data.
    is_enabled: bool,
    /// Whether stored data of the run may exist, as far as this process knows.
    may_exist: Arc<AtomicBool>,
    /// Data to be stored together with the run's first question. Most runs ask no question, so
    /// nothing is written for them.
    staged: Arc<Mutex<RawObject>>,
}

impl RunStore {
    pub fn new(notes: Arc<dyn KvStore>, agent: &str, class: DataClass, run: RunId) -> Self {
        let is_enabled = class != DataClass::Clinical;
        Self {
            notes,
            space: format!("run/{agent}").into(),
            run,
            is_enabled,
            may_exist: Arc::default(),
            staged: Arc::default(),
        }
    }

    /// Records that another process may have stored data of the run.
    pub fn mark_written(&self) {
        self.may_exist.store(true, Relaxed);
    }

    /// Returns the value under `name`; `None` if there is none, it doesn't fit the type, or nothing
    /// may be stored.
    ///
    /// # Errors
    /// Failures of the store.
    pub async fn get<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Failure> {
        if !self.is_enabled {
            return Ok(None);
        }
        let note = self.notes.get(&self.space, self.run.as_str()).await?;
        self.may_exist.fetch_or(note.is_some(), Relaxed);
        Ok(note.and_then(|note| note.body.read(name)))
    }

    /// Stores a value in the run's data under `name`. Has no effect for clinical data.
    ///
    /// # Errors
    /// `InvalidInput` if the data exceed [`RUN_STORE_BYTES_MAX`]; failures of the store.
    pub async fn put(&self, name: &str, value: &impl Serialize) -> Result<(), Failure> {
        self.update(|body| body.set(name, value)).await
    }

    /// Holds a value in memory and stores it under `name` with the first question.
    pub fn stage(&self, name: &str, value: &impl Serialize) {
        if self.is_enabled {
            self.staged.lock().set(name, value);
        }
    }

    /// Returns the entry `key` in the member `member` of the run's data: a stored question or
    /// answer.
    async fn get_entry(&self, member: &str, key: &str) -> Result<Option<RawObject>, Failure> {
        Ok(self
            .get::<RawObject>(member)
            .await?
            .and_then(|all| all.object(key)))
    }

    /// Stores a question or an answer under `key` in the member `member` of the run's data,
    /// together with the members of `more`.
    async fn put_entry(
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
        self.update(change).await
    }

    /// Stores a question under `key`, together with the staged decisions that led to it. If it
    /// can't be stored, this is only logged: after a restart it is decided anew.
    async fn put_question(&self, key: &str, question: &RawObject) -> Result<(), Failure> {
        if self.get_entry(QUESTIONS_MEMBER, key).await?.as_ref() == Some(question) {
            return Ok(());
        }
        let staged = self.staged.lock().clone();
        // The question is asked even if it can't be stored; after a restart it is decided anew.
        if let Err(failure) = self
            .put_entry(QUESTIONS_MEMBER, key, question, &staged)
            .await
        {
            callboard_message::log::warn!(run = %self.run, %failure, "failed to store a question: it is decided anew after a restart");
        }
        Ok(())
    }

    /// Deletes the stored data once the run has ended. A failure is only logged.
    pub async fn clear(&self) {
        if self.may_exist.load(Relaxed)
            && let Err(error) = self.notes.remove(&self.space, self.run.as_str()).await
        {
            callboard_message::log::warn!(run = %self.run, %error, "failed to remove the stored data of a run");
        }
    }

    async fn update(&self, change: impl Fn(&mut RawObject)) -> Result<(), Failure> {
        if !self.is_enabled {
            return Ok(());
        }
        self.mark_written();
        for _ in 0..WRITE_ATTEMPTS_MAX {
            let there = self.notes.get(&self.space, self.run.as_str()).await?;
            let (mut body, version) =
                there.map_or((RawObject::new(), 0), |note| (note.body, note.version));
            change(&mut body);
            let bytes = body.to_raw().get().len();
            if bytes > RUN_STORE_BYTES_MAX {
                return Err(JournalError::TooLarge {
                    bytes,
                    bytes_max: RUN_STORE_BYTES_MAX,
                }
                .into());
            }
            match self
                .notes
                .put(&self.space, self.run.as_str(), body, Some(version))
                .await
            {
                Ok(_) => return Ok(()),
                Err(KvError::VersionConflict { .. }) => {}
                Err(error) => return Err(note_failure(error)),
            }
        }
        Err(Failure::unavailable(
            "the stored data of the run is being changed concurrently: try again",
        ))
    }
}
