//! What a session asked its client, until it is answered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use callboard_message::{Failure, FailureKind, RawObject};
use callboard_rpc::{Id, Response, RpcError, encode_notification, encode_request};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::QUESTIONS_PENDING_MAX;
use crate::inbound::link::Link;

type Outcome = Result<Box<RawValue>, RpcError>;

/// Questions that wait for an answer, by the id that they were sent under.
#[derive(Default)]
pub(crate) struct Questions {
    last_id: AtomicI64,
    waiting: Mutex<HashMap<Id, oneshot::Sender<Outcome>>>,
    /// Answers that nobody waited for.
    stray: AtomicU64,
}

impl Questions {
    /// Asks by `link` and waits until it is answered or `over` fires. Dropped before that, it tells the peer so.
    ///
    /// # Errors
    /// `NobodyToAsk` where the link or the peer has nobody, `Overloaded` where too many questions wait, `Rejected` where
    /// the peer answers with an error, `Cancelled` when `over` fires.
    pub(crate) async fn ask(
        &self,
        method: &str,
        params: &RawValue,
        link: &dyn Link,
        over: &CancellationToken,
    ) -> Result<Box<RawValue>, Failure> {
        let id = Id::integer(self.last_id.fetch_add(1, Ordering::Relaxed) + 1);
        let (answer, answered) = oneshot::channel();
        {
            let mut waiting = self.waiting();
            if waiting.len() >= QUESTIONS_PENDING_MAX {
                return Err(Failure::new(FailureKind::Overloaded, "too many questions wait for this client"));
            }
            waiting.insert(id.clone(), answer);
        }
        let mut pending = Pending { questions: self, id, link, unanswered: false };
        if !link.send(encode_request(&pending.id, method, params).into()) {
            return Err(nobody());
        }
        pending.unanswered = true;
        let outcome = tokio::select! {
            biased;
            outcome = answered => outcome.map_err(|_| nobody()),
            () = over.cancelled() => return Err(Failure::new(FailureKind::Cancelled, "the call was cancelled")),
        };
        pending.unanswered = false;
        outcome?.map_err(refused)
    }

    /// Takes an answer. One that nobody waits for, or no more, is dropped and counted.
    pub(crate) fn answered(&self, response: Response<'_>) {
        let waiting = response.id.as_ref().and_then(|id| self.waiting().remove(id));
        let Some(waiting) = waiting else {
            let strays = self.stray.fetch_add(1, Ordering::Relaxed) + 1;
            tracing::debug!(strays, "a response that nobody waits for was dropped");
            return;
        };
        let _ = waiting.send(response.outcome.map(RawValue::to_owned));
    }

    /// How many answers nobody waited for.
    #[cfg(test)]
    pub(crate) fn stray(&self) -> u64 {
        self.stray.load(Ordering::Relaxed)
    }

    /// Nobody answers any more.
    pub(crate) fn close(&self) {
        self.waiting().clear();
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, HashMap<Id, oneshot::Sender<Outcome>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn nobody() -> Failure {
    Failure::new(FailureKind::NobodyToAsk, "the client can't be asked")
}

/// What a client that answers with an error means: its person or its policy said no, or it can't.
fn refused(error: RpcError) -> Failure {
    let kind = match error.code {
        callboard_rpc::code::METHOD_NOT_FOUND => FailureKind::NobodyToAsk,
        _ => FailureKind::Rejected,
    };
    let data = error.data.and_then(|data| serde_json::to_value(data).ok());
    Failure::new(kind, error.message).with_data(json!({ "answered": { "code": error.code, "data": data } }))
}

/// A question in the table; taken out when it goes out of scope.
struct Pending<'a> {
    questions: &'a Questions,
    id: Id,
    link: &'a dyn Link,
    unanswered: bool,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let was_waiting = self.questions.waiting().remove(&self.id).is_some();
        if self.unanswered && was_waiting {
            let id = serde_json::from_str::<Box<RawValue>>(self.id.as_json()).unwrap_or_default();
            let params = RawObject::new().with("requestId", id).to_raw();
            self.link.offer(encode_notification("notifications/cancelled", Some(&params)).into());
        }
    }
}
