//! Questions that are asked once, whatever happens to the process meanwhile, and in the same words each time.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use callboard_message::{
    Answer, ElicitAnswer, Elicitation, FAILURE, Failure, FailureKind, Progress, Question, RawObject, hex,
};
use callboard_runtime::{Caller, Cx, TaskId, TaskStep, Tasks};
use futures::future::BoxFuture;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::bell::Ringer;
use super::notes::RunNotes;
use crate::decide::with_caller;

/// Events of a task that are read at once.
const EVENTS_READ_MAX: usize = 100;
/// Bytes of the hash that names a question without a name.
const HASH_BYTES: usize = 6;

/// Where questions and answers are found again.
pub(super) enum Kept {
    /// Among the events of the task that asks.
    Task { tasks: Arc<dyn Tasks>, id: TaskId, ringer: Ringer },
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
            Kept::Notes(notes) => Ok(notes.question(key).await?.map(|body| Elicitation(body).key(key))),
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
    match with_caller(cx, |inner| Arc::new(Once { inner, kept: kept.clone(), asked: Mutex::default() })) {
        Some(once) => (once, Asked(Some(kept))),
        None => (cx.clone(), Asked::default()),
    }
}

struct Once {
    inner: Arc<dyn Caller>,
    kept: Arc<Kept>,
    /// How often each nameless question was asked by now.
    asked: Mutex<HashMap<String, u32>>,
}

impl Once {
    /// The key of a question: its own, or what it says.
    fn key(&self, question: &mut Question) -> String {
        if let Some(key) = question.take_key() {
            return key;
        }
        let body = match &*question {
            Question::Sample(sample) => sample.0.to_raw(),
            Question::Elicit(elicitation) => elicitation.0.to_raw(),
            Question::Roots(roots) => roots.0.to_raw(),
            _ => RawValue::NULL.to_owned(),
        };
        let mut key = format!("ask-{}", hex(&Sha256::digest(body.get())[..HASH_BYTES]));
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let times = asked.entry(key.clone()).or_default();
        *times += 1;
        if *times > 1 {
            let _ = write!(key, "-{times}");
        }
        key
    }

    async fn answered(&self, key: &str) -> Result<Option<RawObject>, Failure> {
        let answer = match &*self.kept {
            Kept::Notes(notes) => return notes.answer(key).await,
            Kept::Task { tasks, id, .. } => {
                let answered = last(&**tasks, id, |step| match step {
                    TaskStep::Answered { key: of, answer } if of == key => Some(answer),
                    _ => None,
                });
                answered.await?
            }
        };
        let unreadable = |_| Failure::invalid("the answer is no JSON object");
        answer.map(|answer| RawObject::parse(&answer).map_err(unreadable)).transpose()
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
        let Some(last) = events.last() else { return Ok(found) };
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
                (Kept::Notes(notes), Question::Elicit(form)) => notes.keep_question(&key, &form.0).await?,
                _ => {}
            }
            let answer = self.inner.ask(question.key(&key)).await?;
            if let Kept::Notes(notes) = &*self.kept
                && let Ok(body) = RawObject::parse(&answer.to_raw())
            {
                // Before it is used: what is done with it must not be done with another.
                notes.keep_answer(&key, body).await?;
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
    let (Answer::Sample(callboard_message::SampleAnswer(body))
    | Answer::Elicit(ElicitAnswer(body))
    | Answer::Roots(callboard_message::RootsAnswer(body))) = &answer
    else {
        return Ok(answer);
    };
    let failed = body.object("_meta").and_then(|meta| meta.object(FAILURE)?.read::<FailureKind>("kind"));
    match failed {
        Some(kind) => Err(Failure::new(kind, "nobody answered the question")),
        None => Ok(answer),
    }
}
