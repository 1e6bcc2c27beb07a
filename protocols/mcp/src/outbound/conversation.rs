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
use super::exchange::{Exchanged, Heard};
use super::options::{ANSWERS_AT_ONCE_MAX, ClientOptions, QUESTIONS_AT_ONCE_MAX};
use super::pending_requests::Unplaced;
use super::server_messages::{
    NotificationHandler, PreparedAnswer, Reply, answer_response, ask_in_call,
};
use super::transport::{Outgoing, Transport};

/// An open way to a server, and who listens there.
#[derive(Clone)]
pub(crate) struct Connection {
    pub link: Transport,
    pub ear: Arc<NotificationHandler>,
    pub options: Arc<ClientOptions>,
}

impl Connection {
    /// Sends a request of the call `cx`, made for its number, and waits for its response; whoever called is told and asked
    /// meanwhile.
    pub async fn converse(&self, cx: &Cx, outgoing: impl FnOnce(u64) -> Outgoing) -> Exchanged {
        let (mut flight, heard) = self.ear.flights.open(true);
        let outgoing = outgoing(flight.number);
        let talk = Talk::new(self, cx, Some(&outgoing), heard);
        self.ear.learn_client(|| talk.client());
        talk.until(self.link.exchange(&outgoing, &mut flight)).await
    }

    /// Waits for `end`; whoever made the call `cx` is asked meanwhile what the server wants to know.
    pub async fn attend<T>(&self, cx: &Cx, end: impl Future<Output = T>) -> T {
        let (_flight, heard) = self.ear.flights.open(true);
        Talk::new(self, cx, None, heard).until(end).await
    }

    /// Sends a request that belongs to no call and waits for its response.
    pub async fn quietly(&self, outgoing: impl FnOnce(u64) -> Outgoing) -> Exchanged {
        let (mut flight, mut heard) = self.ear.flights.open(false);
        let outgoing = outgoing(flight.number);
        let mut exchange = pin!(self.link.exchange(&outgoing, &mut flight));
        loop {
            tokio::select! {
                biased;
                Some(event) = heard.recv() => match *event {
                    Heard::Notification { method, params } => drop(self.ear.changed(&method, params.as_deref())),
                    asked => {
                        let (reply, link) = (self.ear.hear(asked), self.link.clone());
                        tokio::spawn(async move { link.reply(reply).await });
                    }
                },
                result = &mut exchange => return result,
            }
        }
    }
}

struct Talk<'a> {
    link: &'a Transport,
    ear: &'a Arc<NotificationHandler>,
    cx: &'a Cx,
    /// The request, where one was sent.
    outgoing: Option<&'a Outgoing>,
    heard: mpsc::Receiver<Box<Heard>>,
    /// Questions without an answer yet, for the server to take back.
    open: Vec<Question>,
    /// Answers that are made or sent. A few at most, and most requests have none.
    answers: Vec<BoxFuture<'a, Step>>,
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

/// A step of an answer that is done: a question has one, or none where the server wants none any more; `None` once it is sent.
type Step = Option<(Id, Option<PreparedAnswer>)>;

/// What the first of them comes to that is done; never of none.
async fn next(answers: &mut Vec<BoxFuture<'_, Step>>) -> Step {
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

impl<'a> Talk<'a> {
    fn new(
        Connection { link, ear, .. }: &'a Connection,
        cx: &'a Cx,
        outgoing: Option<&'a Outgoing>,
        heard: mpsc::Receiver<Box<Heard>>,
    ) -> Self {
        let (open, answers) = Default::default();
        Self {
            link,
            ear,
            cx,
            outgoing,
            heard,
            open,
            answers,
            ended: false,
        }
    }

    async fn until<T>(mut self, end: impl Future<Output = T>) -> T {
        let mut end = pin!(end);
        loop {
            tokio::select! {
                biased;
                // A server that asks without taking answers waits with what it says next.
                Some(event) = self.heard.recv(), if self.answers.len() < ANSWERS_AT_ONCE_MAX => self.take(*event),
                step = next(&mut self.answers) => self.done(step),
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
        let cx = self.cx;
        if let Some(answer) = self.ear.answer(&id, &method) {
            self.send(PreparedAnswer {
                body: answer,
                roots: None,
            });
            return;
        }
        let question = match self.answers.len() < QUESTIONS_AT_ONCE_MAX {
            true => self
                .ear
                .dialect
                .read(&method, params.as_deref(), || self.client()),
            false => Err(Failure::overloaded("too many questions are open")),
        };
        let (abort, registration) = AbortHandle::new_pair();
        let (key, answered) = (id.clone(), id.clone());
        let mut roots = self.ear.roots.asked(&method);
        // Without a request, this is the wait of a call that is still to be sent.
        let is_awaited = self.outgoing.is_none();
        let answering = async move {
            let answer = match question {
                Ok(question) => ask_in_call(cx, question).await,
                Err(why) => Err(why),
            };
            if let Some(roots) = &mut roots {
                roots.given = is_awaited && answer.is_ok();
            }
            PreparedAnswer {
                body: answer_response(&id, answer),
                roots,
            }
        };
        // Aborted, the server wants no answer any more.
        let answering = Abortable::new(answering, registration);
        self.answers.push(Box::pin(
            answering.map(|answer| Some((answered, answer.ok()))),
        ));
        self.open.retain(|open| open.id != key);
        self.open.push(Question {
            id: key,
            method,
            params,
            abort,
        });
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
        self.ear
            .dialect
            .client(request.as_ref(), self.cx.call().map(|call| &**call))
    }

    fn done(&mut self, step: Step) {
        if let Some((id, answer)) = step {
            self.open.retain(|open| open.id != id);
            answer.into_iter().for_each(|answer| self.send(answer));
        }
    }

    /// Sends an answer, also where the call ends before the server has taken it: nobody is asked twice.
    fn send(&mut self, answer: PreparedAnswer) {
        let link = self.link.clone();
        let sending = tokio::spawn(async move { link.answer(answer).await });
        self.answers.push(Box::pin(sending.map(|_| None)));
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
                Heard::Notification { method, params } if self.ended => {
                    self.told(&method, params.as_deref())
                }
                Heard::Notification { .. } => {}
                Heard::Request { id, method, params } => {
                    let (abort, _) = AbortHandle::new_pair();
                    self.open.push(Question {
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
        for Question {
            id,
            method,
            params,
            abort,
        } in self.open.drain(..)
        {
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
            runtime.spawn(async move { link.reply(reply).await });
        }
    }
}
