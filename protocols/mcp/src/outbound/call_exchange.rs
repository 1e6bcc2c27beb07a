//! Exchange of one call with a server: the request, and progress, log messages and questions before
//! its response.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use callboard_message::{Failure, LogMessage, Progress, RawObject};
use callboard_rpc::RequestId;
use callboard_runtime::Context;
use futures::FutureExt;
use futures::future::{AbortHandle, Abortable, BoxFuture};
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::dialect::ServerDialect;
use super::exchange::{ExchangeResult, ServerMessage};
use super::options::{CONCURRENT_ANSWERS_MAX, CONCURRENT_QUESTIONS_MAX, McpClientOptions};
use super::pending_requests::DeliveryError;
use super::server_messages::{
    NotificationHandler, PreparedAnswer, ServerReply, answer_response, ask_in_call,
};
use super::transport::{OutgoingRequest, Transport};

/// An open connection to a server, with the handler of its messages.
#[derive(Clone)]
pub(crate) struct ServerConnection {
    pub transport: Transport,
    pub notifications: Arc<NotificationHandler>,
    pub options: Arc<McpClientOptions>,
    /// Number of agents that the request which opened a legacy session has passed through; 0 for
    /// connections of several callers. It counts for requests that belong to no call.
    pub hops: u16,
}

impl ServerConnection {
    /// Sends a request for the call `cx` and waits for its response. `outgoing` builds the request
    /// from its number. Meanwhile the caller of `cx` receives the server's progress, log messages
    /// and questions.
    pub async fn send_in_call(
        &self,
        cx: &Context,
        outgoing: impl FnOnce(u64) -> OutgoingRequest,
    ) -> ExchangeResult {
        let (mut pending, messages) = self.notifications.pending_requests.register(true);
        let outgoing = outgoing(pending.number);
        let exchange = CallExchange::new(self, cx, Some(&outgoing), messages);
        self.notifications
            .record_client_name(|| exchange.client_name());
        exchange
            .run_until(self.transport.exchange(&outgoing, &mut pending))
            .await
    }

    /// Waits for the future `end`. Meanwhile the caller of `cx` answers the server's questions,
    /// although no request of the call has been sent yet.
    pub async fn answer_questions_until<T>(&self, cx: &Context, end: impl Future<Output = T>) -> T {
        let (_pending, messages) = self.notifications.pending_requests.register(true);
        CallExchange::new(self, cx, None, messages)
            .run_until(end)
            .await
    }

    /// Sends a request that belongs to no call and waits for its response. `outgoing` builds the
    /// request from its number.
    pub async fn send_without_call(
        &self,
        outgoing: impl FnOnce(u64) -> OutgoingRequest,
    ) -> ExchangeResult {
        let (mut pending, mut messages) = self.notifications.pending_requests.register(false);
        let outgoing = outgoing(pending.number);
        let mut exchange = pin!(self.transport.exchange(&outgoing, &mut pending));
        loop {
            tokio::select! {
                biased;
                Some(event) = messages.recv() => match *event {
                    ServerMessage::Notification { method, params } => drop(self.notifications.publish_change(&method, params.as_deref())),
                    asked => {
                        let (reply, transport) = (self.notifications.handle_message(asked), self.transport.clone());
                        tokio::spawn(async move { transport.send_reply(reply).await });
                    }
                },
                result = &mut exchange => return result,
            }
        }
    }
}

struct CallExchange<'a> {
    transport: &'a Transport,
    notifications: &'a Arc<NotificationHandler>,
    cx: &'a Context,
    /// Request of the call that was sent; `None` while the call waits before sending one.
    outgoing: Option<&'a OutgoingRequest>,
    events: mpsc::Receiver<Box<ServerMessage>>,
    /// Questions without an answer so far, which the server may cancel.
    open_questions: Vec<ActiveQuestion>,
    /// Futures that prepare or send answers, up to [`CONCURRENT_ANSWERS_MAX`].
    answers: Vec<BoxFuture<'a, AnswerStep>>,
    /// True if the awaited response arrived, false if the call was cancelled.
    ended: bool,
}

/// A question of the server that is being answered.
struct ActiveQuestion {
    id: RequestId,
    method: String,
    params: Option<Box<RawValue>>,
    abort: AbortHandle,
}

/// Output of a future in `answers`. `Some` holds a question's id and its prepared answer, or no
/// answer if the server cancelled the question. `None` means that an answer has been sent.
type AnswerStep = Option<(RequestId, Option<PreparedAnswer>)>;

/// Waits for the first of `answers` to complete and removes it. Pending forever if `answers` is
/// empty.
async fn next_completed(answers: &mut Vec<BoxFuture<'_, AnswerStep>>) -> AnswerStep {
    poll_fn(|cx| {
        let done = answers.iter_mut().enumerate().find_map(|(nth, answer)| {
            match answer.as_mut().poll(cx) {
                Poll::Ready(done) => Some((nth, done)),
                Poll::Pending => None,
            }
        });
        done.map_or(Poll::Pending, |(nth, done)| {
            drop(answers.swap_remove(nth));
            Poll::Ready(done)
        })
    })
    .await
}

impl<'a> CallExchange<'a> {
    fn new(
        ServerConnection {
            transport,
            notifications,
            ..
        }: &'a ServerConnection,
        cx: &'a Context,
        outgoing: Option<&'a OutgoingRequest>,
        events: mpsc::Receiver<Box<ServerMessage>>,
    ) -> Self {
        let (open_questions, answers) = Default::default();
        Self {
            transport,
            notifications,
            cx,
            outgoing,
            events,
            open_questions,
            answers,
            ended: false,
        }
    }

    async fn run_until<T>(mut self, end: impl Future<Output = T>) -> T {
        let mut end = pin!(end);
        loop {
            tokio::select! {
                biased;
                // A server that sends questions without reading answers has to wait.
                Some(event) = self.events.recv(), if self.answers.len() < CONCURRENT_ANSWERS_MAX => self.handle_message(*event),
                step = next_completed(&mut self.answers) => self.finish_step(step),
                result = &mut end => {
                    self.ended = true;
                    return result;
                }
            }
        }
    }

    fn handle_message(&mut self, message: ServerMessage) {
        match message {
            ServerMessage::Notification { method, params } => {
                self.handle_notification(&method, params.as_deref())
            }
            ServerMessage::Request { id, method, params } => {
                self.handle_question(id, method, params)
            }
        }
    }

    fn handle_notification(&mut self, method: &str, params: Option<&RawValue>) {
        if self.notifications.publish_change(method, params) {
            return;
        }
        let Some(params) = params.and_then(|p| RawObject::parse(p).ok()) else {
            return;
        };
        match method {
            "notifications/progress"
                if self
                    .outgoing
                    .is_some_and(|it| params.read("progressToken") == Some(it.number)) =>
            {
                let Some(done) = params.read("progress") else {
                    return;
                };
                self.cx.progress(Progress {
                    done,
                    total: params.read("total"),
                    message: params.text("message"),
                });
            }
            "notifications/message" => self.cx.log(LogMessage(params)),
            "notifications/elicitation/complete" => {
                if let Some(id) = params.text("elicitationId") {
                    self.cx.elicitation_done(&id);
                }
            }
            "notifications/cancelled" => {
                let taken_back = params.get("requestId").and_then(|raw| {
                    self.open_questions
                        .iter()
                        .find(|open| open.id.as_json() == raw.get())
                });
                if let Some(question) = taken_back {
                    question.abort.abort();
                }
            }
            _ => callboard_message::log::debug!(method, "dropped an unhandled notification"),
        }
    }

    fn handle_question(&mut self, id: RequestId, method: String, params: Option<Box<RawValue>>) {
        let cx = self.cx;
        if let Some(answer) = self.notifications.immediate_answer(&id, &method) {
            self.send_answer(PreparedAnswer {
                body: answer,
                roots_request: None,
            });
            return;
        }
        let question = match self.answers.len() < CONCURRENT_QUESTIONS_MAX {
            true => self
                .notifications
                .parse_request(method.clone(), params.clone(), || self.client_name()),
            false => Err(Failure::overloaded(format!(
                "{CONCURRENT_QUESTIONS_MAX} questions of this call are open already: wait for an answer"
            ))),
        };
        let (abort, registration) = AbortHandle::new_pair();
        let (key, answered) = (id.clone(), id.clone());
        let mut roots = self.notifications.roots.begin_request(&method);
        // Without a request, this is the wait of a call that is yet to be sent.
        let is_awaited = self.outgoing.is_none();
        let answering = async move {
            let answer = match question {
                Ok(question) => ask_in_call(cx, question).await,
                Err(why) => Err(why),
            };
            if let Some(roots) = &mut roots {
                roots.is_given = is_awaited && answer.is_ok();
            }
            PreparedAnswer {
                body: answer_response(&id, answer),
                roots_request: roots,
            }
        };
        // Aborted if the server cancels the question.
        let answering = Abortable::new(answering, registration);
        self.answers.push(Box::pin(
            answering.map(|answer| Some((answered, answer.ok()))),
        ));
        self.open_questions.retain(|open| open.id != key);
        self.open_questions.push(ActiveQuestion {
            id: key,
            method,
            params,
            abort,
        });
    }

    /// Returns the name of the client whose call this is, for a server whose dialect needs it;
    /// otherwise `None`.
    fn client_name(&self) -> Option<String> {
        let request = match self.notifications.dialect {
            ServerDialect::Mcp => None,
            _ => self
                .outgoing
                .and_then(|outgoing| serde_json::from_slice(&outgoing.body).ok())
                .and_then(|body: RawObject| body.object("params")),
        };
        self.notifications
            .dialect
            .client_name(request.as_ref(), self.cx.call().map(|call| &**call))
    }

    fn finish_step(&mut self, step: AnswerStep) {
        if let Some((id, answer)) = step {
            self.open_questions.retain(|open| open.id != id);
            answer
                .into_iter()
                .for_each(|answer| self.send_answer(answer));
        }
    }

    /// Sends an answer in a task of its own. It is sent even if the call ends meanwhile, so that
    /// the server doesn't ask the client again.
    fn send_answer(&mut self, answer: PreparedAnswer) {
        let transport = self.transport.clone();
        let sending = tokio::spawn(async move { transport.send_answer(answer).await });
        self.answers.push(Box::pin(sending.map(|_| None)));
    }
}

/// When the call is over, delivers the remaining notifications and responds to the questions still
/// open: the client's only caller is asked, or else they are rejected (`roots/list` first waits for
/// another call). If the call was cancelled, only `roots/list` and requests that need no caller are
/// answered.
impl Drop for CallExchange<'_> {
    fn drop(&mut self) {
        // The caller needn't answer any more.
        self.answers.clear();
        self.events.close();
        while let Ok(event) = self.events.try_recv() {
            match *event {
                ServerMessage::Notification { method, params } if self.ended => {
                    self.handle_notification(&method, params.as_deref())
                }
                ServerMessage::Notification { .. } => {}
                ServerMessage::Request { id, method, params } => {
                    let (abort, _) = AbortHandle::new_pair();
                    self.open_questions.push(ActiveQuestion {
                        id,
                        method,
                        params,
                        abort,
                    });
                }
            }
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        for ActiveQuestion {
            id,
            method,
            params,
            abort,
        } in self.open_questions.drain(..)
        {
            if abort.is_aborted() {
                continue;
            }
            let reply = match self.notifications.immediate_answer(&id, &method) {
                Some(answer) => ServerReply::Now(answer),
                // A server that learns of the cancelled call needs no answers to questions of that
                // call.
                None if self.ended || method == "roots/list" => self
                    .notifications
                    .ask_outside_call(id, method, params, DeliveryError::NoCall),
                None => continue,
            };
            let transport = self.transport.clone();
            runtime.spawn(async move { transport.send_reply(reply).await });
        }
    }
}
