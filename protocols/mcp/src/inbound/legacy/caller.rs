//! Client of a legacy session as the caller of an agent: progress, log messages and questions.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use callboard_message::capabilities::{CallerCapabilities, CapabilityChange, LogMessage};
use callboard_message::{Answer, Failure, Progress, Question, RawObject};
use callboard_rpc::{RequestId, RpcResponse, encode_notification, encode_request};
use callboard_runtime::Caller;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::LegacySession;
use crate::inbound::agent_adapter::RpcResult;
use crate::inbound::client_messages::{
    MessageSink, ProgressReporter, parse_answer, question_method,
};
use crate::inbound::options::PENDING_ELICITATIONS_MAX;
use crate::wire::error_mapping;

/// Client of a legacy session, as the agent sees it: the sender of one request, or the session's
/// client for messages outside requests.
pub(crate) struct SessionCaller {
    session: Weak<LegacySession>,
    /// Sink for messages to the client: that of the request, or that of the session.
    sink: Arc<dyn MessageSink>,
    /// Cancelled when the request or the session has ended.
    ended: CancellationToken,
    progress: Option<Mutex<ProgressReporter>>,
}

impl SessionCaller {
    pub fn new(
        session: Weak<LegacySession>,
        sink: Arc<dyn MessageSink>,
        ended: CancellationToken,
        progress_token: Option<&RawValue>,
    ) -> Self {
        let token = progress_token.filter(|token| ProgressReporter::is_progress_token(token));
        let progress = token.map(|token| Mutex::new(ProgressReporter::for_token(token)));
        Self {
            session,
            sink,
            ended,
            progress,
        }
    }
}

impl SessionCaller {
    /// Waits until the client may be sent requests, and returns its session.
    ///
    /// # Errors
    /// `NoResponder` if the session has ended.
    async fn ready_session(&self) -> Result<Arc<LegacySession>, Failure> {
        let initialized = self
            .session
            .upgrade()
            .map(|session| session.initialized.clone());
        if let Some(initialized) = initialized {
            tokio::select! {
                () = initialized.cancelled() => {}
                () = self.ended.cancelled() => return Err(no_responder()),
            }
        }
        self.session.upgrade().ok_or_else(|| {
            Failure::no_responder("the client has disconnected, so it can't be asked")
        })
    }
}

impl Caller for SessionCaller {
    fn progress(&self, progress: Progress) {
        let Some(reports) = &self.progress else {
            return;
        };
        // After the response no notification of the request may follow.
        if self.ended.is_cancelled() {
            return;
        }
        let mut reports = reports.lock();
        if let Some(report) = reports.next_notification(progress) {
            self.sink.send_lossy(report.into());
        }
    }

    fn log(&self, line: LogMessage) {
        if self
            .session
            .upgrade()
            .is_some_and(|session| line.level() >= *session.log_level.lock())
        {
            self.sink.send_lossy(
                encode_notification("notifications/message", Some(&line.0.to_raw())).into(),
            );
        }
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(async move {
            let session = self.ready_session().await?;
            let abilities = self.capabilities();
            if !abilities.can_answer(&question) {
                return Err(no_responder());
            }
            let unknown = || Failure::no_responder("MCP has no method for this kind of question");
            let (method, params) = (
                question_method(&question).ok_or_else(unknown)?,
                question.body().to_raw(),
            );
            let answer = session
                .questions
                .ask(method, &params, &*self.sink, &self.ended)
                .await?;
            parse_answer(&question, &answer)
        })
    }

    fn forward(
        &self,
        method: String,
        params: Option<Box<RawValue>>,
    ) -> BoxFuture<'_, Result<Box<RawValue>, Failure>> {
        Box::pin(async move {
            let session = self.ready_session().await?;
            let can = self.capabilities().0;
            if !can.has("extensions") && !can.has("experimental") {
                return Err(Failure::not_found("method not found"));
            }
            let params = params.unwrap_or_else(|| RawObject::new().to_raw());
            session
                .questions
                .ask(&method, &params, &*self.sink, &self.ended)
                .await
        })
    }

    fn elicitation_done(&self, id: &str) {
        if self
            .session
            .upgrade()
            .is_some_and(|session| session.abilities().has_elicitation_url())
        {
            let params = RawObject::single("elicitationId", id).to_raw();
            self.sink.send_lossy(
                encode_notification("notifications/elicitation/complete", Some(&params)).into(),
            );
        }
    }

    fn changed(&self, change: CapabilityChange) {
        if let Some(session) = self.session.upgrade() {
            session.report_change(&change);
        }
    }

    fn capabilities(&self) -> CallerCapabilities {
        let session = self.session.upgrade().filter(|_| self.sink.can_ask());
        session
            .map(|session| session.abilities())
            .unwrap_or_default()
    }
}

/// Questions to a session's client that wait for answers, by request id.
#[derive(Default)]
pub(crate) struct SessionElicitations {
    last_id: AtomicI64,
    waiting: Mutex<HashMap<RequestId, oneshot::Sender<RpcResult>>>,
    /// Number of dropped responses that answered no open question.
    unknown_responses: AtomicU64,
}

impl SessionElicitations {
    /// Sends a question to `sink` and waits for the client's answer. If the call is cancelled or
    /// dropped first, the client is notified.
    ///
    /// # Errors
    /// - `NoResponder` if the question can't be sent or the session closes.
    /// - `Overloaded` if too many questions are open.
    /// - `Cancelled` if `over` is cancelled.
    /// - The failure of [`error_mapping::from_answer_error`] if the client answers with an error.
    async fn ask(
        &self,
        method: &str,
        params: &RawValue,
        sink: &dyn MessageSink,
        over: &CancellationToken,
    ) -> Result<Box<RawValue>, Failure> {
        let id = RequestId::integer(self.last_id.fetch_add(1, Ordering::Relaxed) + 1);
        let (answer, answered) = oneshot::channel();
        {
            let mut waiting = self.waiting.lock();
            if waiting.len() >= PENDING_ELICITATIONS_MAX {
                return Err(Failure::overloaded(format!(
                    "{PENDING_ELICITATIONS_MAX} questions wait for this client already: try again later"
                )));
            }
            waiting.insert(id.clone(), answer);
        }
        let mut pending = ElicitationGuard {
            questions: self,
            id,
            sink,
            unanswered: false,
        };
        if !sink.send(encode_request(&pending.id, method, params).into()) {
            return Err(no_responder());
        }
        pending.unanswered = true;
        let outcome = tokio::select! {
            biased;
            outcome = answered => outcome.map_err(|_| no_responder()),
            () = over.cancelled() => return Err(Failure::cancelled("the call was cancelled")),
        };
        pending.unanswered = false;
        outcome?.map_err(|error| error_mapping::from_answer_error(&error))
    }

    /// Passes a client's response to the open question with its id. A response to no open question
    /// is dropped and counted.
    pub fn handle_response(&self, response: RpcResponse<'_>) {
        let waiting = response
            .id
            .as_ref()
            .and_then(|id| self.waiting.lock().remove(id));
        let Some(waiting) = waiting else {
            let strays = self.unknown_responses.fetch_add(1, Ordering::Relaxed) + 1;
            callboard_message::log::debug!(strays, "dropped a response without an open question");
            return;
        };
        let _ = waiting.send(response.outcome.map(RawValue::to_owned));
    }

    /// Fails all open questions with `NoResponder`.
    pub fn close(&self) {
        self.waiting.lock().clear();
    }
}

fn no_responder() -> Failure {
    Failure::no_responder(
        "the client can't be asked: it doesn't support such questions, or its call or connection has ended",
    )
}

/// Guard of an open question. When dropped, it removes the question, and notifies the client if it
/// hasn't answered.
struct ElicitationGuard<'a> {
    questions: &'a SessionElicitations,
    id: RequestId,
    sink: &'a dyn MessageSink,
    unanswered: bool,
}

impl Drop for ElicitationGuard<'_> {
    fn drop(&mut self) {
        let was_waiting = self.questions.waiting.lock().remove(&self.id).is_some();
        if self.unanswered && was_waiting {
            let id = serde_json::from_str::<Box<RawValue>>(self.id.as_json()).unwrap_or_default();
            let params = RawObject::single("requestId", id).to_raw();
            self.sink
                .send_lossy(encode_notification("notifications/cancelled", Some(&params)).into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use callboard_rpc::{DecodeLimits, RpcMessage, decode};
    use futures::FutureExt;

    use super::*;
    use callboard_message::FailureKind;

    /// Records sent messages.
    #[derive(Default)]
    struct Sent(Mutex<Vec<Bytes>>);

    impl MessageSink for Sent {
        fn send(&self, message: Bytes) -> bool {
            self.0.lock().push(message);
            true
        }
    }

    fn answer(questions: &SessionElicitations, json: &str) {
        let Ok(RpcMessage::Response(response)) = decode(json.as_bytes(), &DecodeLimits::default())
        else {
            panic!("{json}")
        };
        questions.handle_response(response);
    }

    /// Goal: unknown responses are counted and answer no question; a dropped question is cancelled
    /// at the client, and its late answer is unknown. Method: responses to other ids, then to a
    /// dropped question.
    #[test]
    fn strays_are_counted() {
        let (questions, sink, over) = (
            SessionElicitations::default(),
            Sent::default(),
            CancellationToken::new(),
        );
        let params = RawValue::from_string("{}".into()).unwrap();
        let mut asked = Box::pin(questions.ask("roots/list", &params, &sink, &over));
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
        assert_eq!(questions.unknown_responses.load(Ordering::Relaxed), 4);
        drop(asked);
        let sent = sink.0.lock();
        let taken_back =
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
        assert_eq!(sent.last().map(|m| &m[..]), Some(taken_back.as_bytes()));
        answer(&questions, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
        assert_eq!(questions.unknown_responses.load(Ordering::Relaxed), 5);
        assert!(questions.waiting.lock().is_empty());
    }

    /// Goal: open questions are bounded, and the limit is exact. Method: the limit, one more, one
    /// answered.
    #[test]
    fn waiting_questions_are_bounded() {
        let questions = Arc::new(SessionElicitations::default());
        let (sink, over) = (Sent::default(), CancellationToken::new());
        let params = RawValue::from_string("{}".into()).unwrap();
        let ask = || Box::pin(questions.ask("roots/list", &params, &sink, &over));
        let mut waiting: Vec<_> = (0..PENDING_ELICITATIONS_MAX).map(|_| ask()).collect();
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
