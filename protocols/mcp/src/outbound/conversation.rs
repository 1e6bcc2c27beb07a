//! One request and all that comes before its response: progress, lines of the log, questions.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use callboard_message::{Failure, Log, Progress, RawObject};
use callboard_rpc::Id;
use callboard_runtime::Cx;
use futures::FutureExt;
use futures::future::{AbortHandle, Abortable, BoxFuture};
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::dialect::Dialect;
use super::ear::{Ear, Reply};
use super::link::{Flight, Heard, Link, LinkError, Outgoing, Unplaced};
use super::options::{ANSWERS_AT_ONCE_MAX, QUESTIONS_AT_ONCE_MAX};
use super::questions;

/// Sends a request of the call `cx` and waits for its response; whoever called is told and asked meanwhile.
pub(super) async fn converse(
    link: &Link,
    ear: &Arc<Ear>,
    cx: &Cx,
    outgoing: &Outgoing,
    (mut flight, heard): (Flight, mpsc::Receiver<Box<Heard>>),
) -> Result<Box<RawValue>, LinkError> {
    let mut talk = Talk::new(link, ear, cx, heard);
    (talk.number, talk.outgoing) = (flight.number, Some(outgoing));
    ear.learn_client(|| talk.client());
    talk.until(link.exchange(outgoing, &mut flight)).await
}

/// Waits for `end`; whoever made the call `cx` is asked meanwhile what the server wants to know.
pub(super) async fn attend<T>(
    link: &Link,
    ear: &Arc<Ear>,
    cx: &Cx,
    heard: mpsc::Receiver<Box<Heard>>,
    end: impl Future<Output = T>,
) -> T {
    Talk::new(link, ear, cx, heard).until(end).await
}

struct Talk<'a> {
    link: &'a Link,
    ear: &'a Arc<Ear>,
    cx: &'a Cx,
    /// The request, where one was sent.
    outgoing: Option<&'a Outgoing>,
    number: u64,
    heard: mpsc::Receiver<Box<Heard>>,
    /// Questions without an answer yet, for the server to take back.
    open: Vec<Question>,
    /// Each ends with the question that it answers. A few at most, and most requests have none.
    answers: Vec<BoxFuture<'a, Option<Id>>>,
    /// Whether it came to its end, rather than being given up.
    ended: bool,
}

/// A question of the server's that is being answered.
struct Question {
    id: Id,
    method: String,
    params: Option<Box<RawValue>>,
    abort: AbortHandle,
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
    fn new(link: &'a Link, ear: &'a Arc<Ear>, cx: &'a Cx, heard: mpsc::Receiver<Box<Heard>>) -> Self {
        let (open, answers) = Default::default();
        Self { link, ear, cx, outgoing: None, number: 0, heard, open, answers, ended: false }
    }

    async fn until<T>(mut self, end: impl Future<Output = T>) -> T {
        let mut end = pin!(end);
        loop {
            tokio::select! {
                biased;
                // A server that asks without taking answers waits with what it says next.
                Some(event) = self.heard.recv(), if self.answers.len() < ANSWERS_AT_ONCE_MAX => self.take(*event),
                answered = next(&mut self.answers) => self.answered(answered),
                result = &mut end => {
                    self.ended = true;
                    return result;
                }
            }
        }
    }

    fn take(&mut self, heard: Heard) {
        match heard {
            Heard::Notification { method, params } => self.told(&method, params.as_deref()),
            Heard::Request { id, method, params } => self.asked(id, method, params),
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
                let taken_back = params
                    .get("requestId")
                    .and_then(|raw| self.open.iter().find(|open| open.id.as_json() == raw.get()));
                if let Some(question) = taken_back {
                    question.abort.abort();
                }
            }
            _ => callboard_message::log::debug!(method, "a notification that nobody needs"),
        }
    }

    fn asked(&mut self, id: Id, method: String, params: Option<Box<RawValue>>) {
        let (link, cx) = (self.link, self.cx);
        if let Some(answer) = self.ear.answer(&id, &method) {
            self.answers.push(Box::pin(send(link, answer).map(|()| None)));
            return;
        }
        let question = match self.answers.len() < QUESTIONS_AT_ONCE_MAX {
            true => self.ear.dialect.read(&method, params.as_deref(), || self.client()),
            false => Err(Failure::new(callboard_message::FailureKind::Overloaded, "too many questions are open")),
        };
        let (abort, registration) = AbortHandle::new_pair();
        let (key, answered) = (id.clone(), id.clone());
        let roots = self.ear.roots.asked(&method);
        let answering = async move {
            let _roots = roots;
            let answer = match question {
                Ok(question) => questions::ask_in(cx, question).await,
                Err(why) => Err(why),
            };
            send(link, questions::response(&id, answer)).await;
        };
        // Aborted, the server wants no answer any more.
        self.answers.push(Box::pin(Abortable::new(answering, registration).map(|_| Some(answered))));
        self.open.retain(|open| open.id != key);
        self.open.push(Question { id: key, method, params, abort });
    }

    /// What the server is told of whose call it is, where its dialect tells that.
    fn client(&self) -> Option<String> {
        let request = match self.ear.dialect {
            Dialect::Mcp => None,
            _ => self
                .outgoing
                .and_then(|outgoing| serde_json::from_slice(&outgoing.body).ok())
                .and_then(|body: RawObject| body.object("params")),
        };
        self.ear.dialect.client(request.as_ref(), self.cx.call().map(|call| &**call))
    }

    fn answered(&mut self, question: Option<Id>) {
        if let Some(id) = question {
            self.open.retain(|open| open.id != id);
        }
    }
}

/// What is left when the call is over: the server gets an answer to whatever it asked, and what it told is told.
impl Drop for Talk<'_> {
    fn drop(&mut self) {
        // Whoever was asked in the call needs to answer no more.
        self.answers.clear();
        self.heard.close();
        while let Ok(event) = self.heard.try_recv() {
            match *event {
                Heard::Notification { method, params } if self.ended => self.told(&method, params.as_deref()),
                Heard::Notification { .. } => {}
                Heard::Request { id, method, params } => {
                    let (abort, _) = AbortHandle::new_pair();
                    self.open.push(Question { id, method, params, abort });
                }
            }
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        for Question { id, method, params, abort } in self.open.drain(..) {
            if abort.is_aborted() {
                continue;
            }
            let reply = match self.ear.answer(&id, &method) {
                Some(answer) => Reply::Now(answer),
                // A server that is told that its call was given up needs no more answers to what it asked for that.
                None if self.ended || method == "roots/list" => {
                    self.ear.ask_outside(id, method, params, Unplaced::NoCall)
                }
                None => continue,
            };
            let link = self.link.clone();
            runtime.spawn(async move { reply.send(&link).await });
        }
    }
}

async fn send(link: &Link, answer: Vec<u8>) {
    if let Err(error) = link.send(answer).await {
        callboard_message::log::warn!(%error, "the server doesn't get the answer to its question");
    }
}
