//! The client of a session as an agent sees it: told of progress, asked questions.

use crate::inbound::legacy::Outcome;
use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use callboard_message::surface::{Abilities, Log};
use callboard_message::{Answer, Failure, Progress, Question, RawObject};
use callboard_rpc::{Id, Response, encode_notification, encode_request};
use callboard_runtime::Caller;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::Session;
use crate::inbound::client::{MessageSink, Reports, nobody_answers, question_method};
use crate::inbound::options::QUESTIONS_PENDING_MAX;
use crate::wire::{failure, meta};

/// Who sent one request; or the client of a session, for what belongs to none of its requests for sure.
pub(crate) struct SessionCaller {
    session: Weak<Session>,
    /// Where the request came from.
    link: Arc<dyn MessageSink>,
    /// Fires when the request, or the session, is over.
    over: CancellationToken,
    progress: Option<Mutex<Reports>>,
}

impl SessionCaller {
    pub fn new(
        session: Weak<Session>,
        link: Arc<dyn MessageSink>,
        over: CancellationToken,
        meta: Option<&RawObject>,
    ) -> Self {
        let token = meta.and_then(|meta| meta.get(meta::PROGRESS_TOKEN));
        let token = token.filter(|token| Reports::is_token(token));
        let progress = token.map(|token| Mutex::new(Reports::under(token)));
        Self {
            session,
            link,
            over,
            progress,
        }
    }
}

impl Caller for SessionCaller {
    fn progress(&self, progress: Progress) {
        let Some(reports) = &self.progress else {
            return;
        };
        // After the answer nothing may be said of the request.
        if self.over.is_cancelled() {
            return;
        }
        let mut reports = reports.lock();
        if let Some(report) = reports.next(progress) {
            self.link.offer(report.into());
        }
    }

    fn log(&self, line: Log) {
        if self
            .session
            .upgrade()
            .is_some_and(|session| line.level() >= *session.log_level.lock())
        {
            self.link
                .offer(encode_notification("notifications/message", Some(&line.0.to_raw())).into());
        }
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(async move {
            let session = self
                .session
                .upgrade()
                .ok_or_else(|| Failure::nobody_to_ask("the client has gone"))?;
            let abilities = self.abilities();
            if !abilities.can_answer(&question) {
                return Err(nobody_answers());
            }
            let unknown = || Failure::nobody_to_ask("MCP has no such question");
            let (method, params) = (
                question_method(&question).ok_or_else(unknown)?,
                question.body().to_raw(),
            );
            let answer = session
                .questions
                .ask(method, &params, &*self.link, &self.over)
                .await?;
            let answer = RawObject::parse(&answer)
                .map_err(|_| Failure::invalid("the client's answer is no object"))?;
            Ok(question.answered(answer))
        })
    }

    fn elicitation_done(&self, id: &str) {
        if self
            .session
            .upgrade()
            .is_some_and(|session| session.abilities().elicitation_url())
        {
            let params = RawObject::of("elicitationId", id).to_raw();
            self.link.offer(
                encode_notification("notifications/elicitation/complete", Some(&params)).into(),
            );
        }
    }

    fn abilities(&self) -> Abilities {
        let session = self.session.upgrade().filter(|_| self.link.can_ask());
        session
            .map(|session| session.abilities())
            .unwrap_or_default()
    }
}

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
    /// `NobodyToAsk` where the link or the peer has nobody, `Overloaded` where too many questions wait, `Cancelled` when
    /// `over` fires; [`failure::of_answer`] where the peer answers with an error.
    async fn ask(
        &self,
        method: &str,
        params: &RawValue,
        link: &dyn MessageSink,
        over: &CancellationToken,
    ) -> Result<Box<RawValue>, Failure> {
        let id = Id::integer(self.last_id.fetch_add(1, Ordering::Relaxed) + 1);
        let (answer, answered) = oneshot::channel();
        {
            let mut waiting = self.waiting.lock();
            if waiting.len() >= QUESTIONS_PENDING_MAX {
                return Err(Failure::overloaded(
                    "too many questions wait for this client",
                ));
            }
            waiting.insert(id.clone(), answer);
        }
        let mut pending = Pending {
            questions: self,
            id,
            link,
            unanswered: false,
        };
        if !link.send(encode_request(&pending.id, method, params).into()) {
            return Err(nobody());
        }
        pending.unanswered = true;
        let outcome = tokio::select! {
            biased;
            outcome = answered => outcome.map_err(|_| nobody()),
            () = over.cancelled() => return Err(Failure::cancelled("the call was cancelled")),
        };
        pending.unanswered = false;
        outcome?.map_err(|error| failure::of_answer(&error))
    }

    /// Takes an answer. One that nobody waits for, or no more, is dropped and counted.
    pub fn answered(&self, response: Response<'_>) {
        let waiting = response
            .id
            .as_ref()
            .and_then(|id| self.waiting.lock().remove(id));
        let Some(waiting) = waiting else {
            let strays = self.stray.fetch_add(1, Ordering::Relaxed) + 1;
            callboard_message::log::debug!(strays, "a response that nobody waits for was dropped");
            return;
        };
        let _ = waiting.send(response.outcome.map(RawValue::to_owned));
    }

    /// Nobody answers any more.
    pub fn close(&self) {
        self.waiting.lock().clear();
    }
}

fn nobody() -> Failure {
    Failure::nobody_to_ask("the client can't be asked")
}

/// A question in the table; taken out when it goes out of scope.
struct Pending<'a> {
    questions: &'a Questions,
    id: Id,
    link: &'a dyn MessageSink,
    unanswered: bool,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let was_waiting = self.questions.waiting.lock().remove(&self.id).is_some();
        if self.unanswered && was_waiting {
            let id = serde_json::from_str::<Box<RawValue>>(self.id.as_json()).unwrap_or_default();
            let params = RawObject::of("requestId", id).to_raw();
            self.link
                .offer(encode_notification("notifications/cancelled", Some(&params)).into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use callboard_rpc::{Incoming, Limits, decode};
    use futures::FutureExt;

    use super::*;
    use callboard_message::FailureKind;

    /// Keeps what is sent.
    #[derive(Default)]
    struct Sent(Mutex<Vec<Bytes>>);

    impl MessageSink for Sent {
        fn send(&self, message: Bytes) -> bool {
            self.0.lock().push(message);
            true
        }
    }

    fn answer(questions: &Questions, json: &str) {
        let Ok(Incoming::Response(response)) = decode(json.as_bytes(), &Limits::default()) else {
            panic!("{json}")
        };
        questions.answered(response);
    }

    /// Goal: strays are counted and answer nobody; a question that is given up is taken back, and its late answer is a
    /// stray. Method: answers to other ids, then to the question's own after it was dropped.
    #[test]
    fn strays_are_counted() {
        let (questions, link, over) = (
            Questions::default(),
            Sent::default(),
            CancellationToken::new(),
        );
        let params = RawValue::from_string("{}".into()).unwrap();
        let mut asked = Box::pin(questions.ask("roots/list", &params, &link, &over));
        assert!((&mut asked).now_or_never().is_none());
        for stray in ["2", "\"1\"", "-1"] {
            answer(
                &questions,
                &format!(r#"{{"jsonrpc":"2.0","id":{stray},"result":{{}}}}"#),
            );
        }
        answer(
            &questions,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"m"}}"#,
        );
        assert!((&mut asked).now_or_never().is_none());
        assert_eq!(questions.stray.load(Ordering::Relaxed), 4);
        drop(asked);
        let sent = link.0.lock();
        let taken_back =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
        assert_eq!(sent.last().map(|m| &m[..]), Some(taken_back.as_bytes()));
        answer(&questions, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        assert_eq!(questions.stray.load(Ordering::Relaxed), 5);
        assert!(questions.waiting.lock().is_empty());
    }

    /// Goal: questions that wait are bounded, and the bound is exact. Method: the bound, one more, one answered.
    #[test]
    fn waiting_questions_are_bounded() {
        let questions = Arc::new(Questions::default());
        let (link, over) = (Sent::default(), CancellationToken::new());
        let params = RawValue::from_string("{}".into()).unwrap();
        let ask = || Box::pin(questions.ask("roots/list", &params, &link, &over));
        let mut waiting: Vec<_> = (0..QUESTIONS_PENDING_MAX).map(|_| ask()).collect();
        assert!(
            waiting
                .iter_mut()
                .all(|asked| asked.now_or_never().is_none())
        );
        assert_eq!(
            ask().now_or_never().unwrap().unwrap_err().kind,
            FailureKind::Overloaded
        );
        answer(&questions, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        assert!(waiting.swap_remove(0).now_or_never().unwrap().is_ok());
        assert!(ask().now_or_never().is_none());
        over.cancel();
        assert_eq!(
            waiting
                .swap_remove(0)
                .now_or_never()
                .unwrap()
                .unwrap_err()
                .kind,
            FailureKind::Cancelled
        );
    }
}
