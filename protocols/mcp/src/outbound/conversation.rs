//! One request and all that comes before its response: progress, lines of the log, questions.

use std::future::poll_fn;
use std::task::Poll;

use callboard_message::{Failure, Log, Progress, RawObject};
use callboard_rpc::{Id, Nulls, RpcError, encode_response};
use callboard_runtime::Cx;
use futures::FutureExt;
use futures::future::{AbortHandle, Abortable, BoxFuture};
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::dialect::Dialect;
use super::ear::Ear;
use super::link::{Flight, Heard, Link, LinkError, Outgoing};
use super::options::{ANSWERS_AT_ONCE_MAX, QUESTIONS_AT_ONCE_MAX};
use super::questions;
use crate::wire::failure;

/// Sends a request of the call `cx` and waits for its response; whoever called is told and asked meanwhile.
pub(super) async fn converse(
    link: &Link,
    ear: &Ear,
    cx: &Cx,
    outgoing: &Outgoing,
    (mut flight, mut heard): (Flight, mpsc::Receiver<Box<Heard>>),
) -> Result<Box<RawValue>, LinkError> {
    let number = flight.number;
    let mut talk = Talk { link, ear, cx, outgoing, number, open: Vec::new(), answers: Vec::new() };
    ear.learn_client(|| talk.client());
    let mut exchange = std::pin::pin!(link.exchange(outgoing, &mut flight));
    loop {
        tokio::select! {
            biased;
            // A server that asks without taking answers waits with what it says next.
            Some(event) = heard.recv(), if talk.answers.len() < ANSWERS_AT_ONCE_MAX => talk.take(*event),
            answered = next(&mut talk.answers) => talk.answered(answered),
            result = &mut exchange => {
                // What was said before the response is told before it.
                while let Ok(event) = heard.try_recv() {
                    if let Heard::Notification { method, params } = *event {
                        talk.told(&method, params.as_deref());
                    }
                }
                return result;
            }
        }
    }
}

struct Talk<'a> {
    link: &'a Link,
    ear: &'a Ear,
    cx: &'a Cx,
    outgoing: &'a Outgoing,
    number: u64,
    /// Questions without an answer yet, for the server to take back.
    open: Vec<(Id, AbortHandle)>,
    /// Each ends with the question that it answers. A few at most, and most requests have none.
    answers: Vec<BoxFuture<'a, Option<Id>>>,
}

/// What the first of them comes to that is done; never of none.
async fn next<T>(answers: &mut Vec<BoxFuture<'_, T>>) -> T {
    poll_fn(|cx| {
        let done = answers.iter_mut().enumerate().find_map(|(nth, answer)| match answer.as_mut().poll(cx) {
            Poll::Ready(done) => Some((nth, done)),
            Poll::Pending => None,
        });
        done.map_or(Poll::Pending, |(nth, done)| {
            drop(answers.swap_remove(nth));
            Poll::Ready(done)
        })
    })
    .await
}

impl<'a> Talk<'a> {
    fn take(&mut self, heard: Heard) {
        match heard {
            Heard::Notification { method, params } => self.told(&method, params.as_deref()),
            Heard::Request { id, method, params } => self.asked(id, &method, params.as_deref()),
        }
    }

    fn told(&mut self, method: &str, params: Option<&RawValue>) {
        if self.ear.changed(method, params) {
            return;
        }
        let Some(params) = params.and_then(|p| RawObject::parse(p).ok()) else { return };
        match method {
            "notifications/progress" if params.read("progressToken") == Some(self.number) => {
                let Some(done) = params.read("progress") else { return };
                self.cx.progress(Progress { done, total: params.read("total"), message: params.text("message") });
            }
            "notifications/message" => self.cx.log(Log(params)),
            "notifications/elicitation/complete" => {
                if let Some(id) = params.text("elicitationId") {
                    self.cx.elicitation_done(&id);
                }
            }
            "notifications/cancelled" => {
                let taken_back =
                    params.get("requestId").and_then(|raw| self.open.iter().find(|(id, _)| id.as_json() == raw.get()));
                if let Some((_, question)) = taken_back {
                    question.abort();
                }
            }
            _ => callboard_message::log::debug!(method, "a notification that nobody needs"),
        }
    }

    fn asked(&mut self, id: Id, method: &str, params: Option<&RawValue>) {
        let (link, cx) = (self.link, self.cx);
        if let Some(answer) = self.ear.answer(&id, method) {
            self.answers.push(Box::pin(send(link, answer).map(|()| None)));
            return;
        }
        let question = match self.answers.len() < QUESTIONS_AT_ONCE_MAX {
            true => self.ear.dialect().read(method, params, || self.client()),
            false => Err(Failure::new(callboard_message::FailureKind::Overloaded, "too many questions are open")),
        };
        let (abort, registration) = AbortHandle::new_pair();
        let (key, answered) = (id.clone(), id.clone());
        let answering = async move {
            let answer = match question {
                Ok(question) => questions::ask_in(cx, question).await,
                Err(why) => Err(why),
            };
            let outcome: Result<Box<RawValue>, RpcError> = answer.map_err(failure::to_rpc);
            send(link, encode_response(Some(&id), outcome.as_deref(), Nulls::Omit)).await;
        };
        // Aborted, the server wants no answer any more.
        self.answers.push(Box::pin(Abortable::new(answering, registration).map(|_| Some(answered))));
        self.open.retain(|(id, _)| *id != key);
        self.open.push((key, abort));
    }

    /// What the server is told of whose call it is, where its dialect tells that.
    fn client(&self) -> Option<String> {
        let request = match self.ear.dialect() {
            Dialect::Mcp => None,
            _ => serde_json::from_slice(&self.outgoing.body).ok().and_then(|body: RawObject| body.object("params")),
        };
        self.ear.dialect().client(request.as_ref(), self.cx.call().map(|call| &**call))
    }

    fn answered(&mut self, question: Option<Id>) {
        if let Some(id) = question {
            self.open.retain(|(open, _)| *open != id);
        }
    }
}

async fn send(link: &Link, answer: Vec<u8>) {
    if let Err(error) = link.send(answer).await {
        callboard_message::log::warn!(%error, "the server doesn't get the answer to its question");
    }
}
