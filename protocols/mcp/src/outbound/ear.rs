//! What a server says that belongs to no request of ours, or says to all of them.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use callboard_message::{Change, Log, RawObject};
use callboard_rpc::{Id, Nulls, RpcError, code, encode_response};
use callboard_runtime::Caller;
use futures::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use super::dialect::Dialect;
use super::link::{Flights, Heard, Link, LinkError, Unplaced, lock};
use super::news::News;
use super::options::{QUESTIONS_AT_ONCE_MAX, ROOTS_GIVEN_WITHIN};
use super::questions;
use super::roots::{Roots, RootsAsked};
use super::tool_book::ToolBook;
use crate::wire::{code as mcp, meta};

/// What a message from the server calls for.
pub(super) enum Reply {
    None,
    /// To be sent back.
    Now(Vec<u8>),
    /// To be waited for, then sent back, if anything is.
    Later(BoxFuture<'static, Option<Answer>>),
}

impl Reply {
    /// Sends it, once it is there.
    pub(super) async fn send(self, link: &Link) {
        // Kept until it is sent.
        let answer = match self {
            Self::None => return,
            Self::Now(body) => Answer::new(body, None),
            Self::Later(answering) => match answering.await {
                Some(answer) => answer,
                None => return,
            },
        };
        answer.send(link).await;
    }
}

/// An answer to a question of the server's, to be kept until it is sent.
pub(super) struct Answer {
    pub(super) body: Vec<u8>,
    roots: Option<RootsAsked>,
}

impl Answer {
    pub(super) fn new(body: Vec<u8>, roots: Option<RootsAsked>) -> Self {
        Self { body, roots }
    }

    pub(super) async fn send(mut self, link: &Link) {
        if let Err(error) = link.send(self.body).await {
            if let Some(roots) = &mut self.roots {
                roots.set_given(false);
            }
            callboard_message::log::warn!(%error, "the server doesn't get the answer to its request");
        }
    }
}

/// Listens for one connection.
pub(crate) struct Ear {
    pub(super) flights: Arc<Flights>,
    tools: Arc<ToolBook>,
    /// Whom to tell of changes.
    news: News,
    /// What is left to do when the client ends: children that end, sessions that are taken leave of.
    pub(super) farewells: TaskTracker,
    /// Who is meant by what no call caused, where this client is for one caller only.
    only_caller: Option<Arc<dyn Caller>>,
    /// How the server words its questions.
    pub(super) dialect: Dialect,
    /// What the only caller calls itself, as far as it has said.
    client: Mutex<Option<String>>,
    /// For the questions that are asked of them.
    places: Arc<Semaphore>,
    pub(super) roots: Roots,
    /// A modern server asks nothing this way, and gets no answer.
    is_modern: AtomicBool,
}

impl Ear {
    pub(super) fn new(
        tools: Arc<ToolBook>,
        news: News,
        farewells: TaskTracker,
        only_caller: Option<Arc<dyn Caller>>,
        dialect: Dialect,
    ) -> Self {
        let places = Arc::new(Semaphore::new(QUESTIONS_AT_ONCE_MAX));
        Self {
            flights: Arc::default(),
            tools,
            news,
            farewells,
            only_caller,
            dialect,
            client: Mutex::default(),
            places,
            roots: Roots::default(),
            is_modern: AtomicBool::new(false),
        }
    }

    /// Learns from a request what the only caller calls itself.
    pub(super) fn learn_client(&self, client: impl FnOnce() -> Option<String>) {
        if self.only_caller.is_some() && self.dialect != Dialect::Mcp {
            *lock(&self.client) = client();
        }
    }

    pub(super) fn set_modern(&self, is_modern: bool) {
        self.is_modern.store(is_modern, Relaxed);
    }

    /// Takes a message that came by a channel which is no single request's.
    pub(super) fn hear(&self, heard: Heard) -> Reply {
        match heard {
            Heard::Request { id, method, .. } if self.is_modern.load(Relaxed) => {
                callboard_message::log::warn!(method, %id, "a request of a modern server's is dropped");
                Reply::None
            }
            Heard::Request { id, method, params } => {
                if let Some(answer) = self.answer(&id, &method) {
                    return Reply::Now(answer);
                }
                let asked = Heard::Request { id: id.clone(), method: method.clone(), params: params.clone() };
                match self.flights.give_only_call(asked) {
                    Ok(()) => Reply::None,
                    Err(Unplaced::Full) => Reply::Now(refusal(&id, Unplaced::Full)),
                    Err(why) => self.ask_outside(id, method, params, why),
                }
            }
            Heard::Notification { method, params } => {
                self.note(method, params);
                Reply::None
            }
        }
    }

    /// Asks whoever this client is for, where it is for one caller only; else nobody. The roots are then those of the call
    /// that begins next.
    pub(super) fn ask_outside(&self, id: Id, method: String, params: Option<Box<RawValue>>, why: Unplaced) -> Reply {
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            return Reply::Now(refusal(&id, Unplaced::Full));
        };
        let Some(caller) = self.only_caller.clone() else {
            let flights = self.flights.clone();
            return Reply::Later(Box::pin(async move {
                let _place = place;
                let unplaced = match why {
                    Unplaced::NoCall if method == "roots/list" => {
                        let asked = Heard::Request { id: id.clone(), method, params };
                        flights.give_next_call(&asked, ROOTS_GIVEN_WITHIN).await.err()?
                    }
                    why => why,
                };
                Some(Answer::new(refusal(&id, unplaced), None))
            }));
        };
        let roots = self.roots.asked(&method);
        let question = self.dialect.read(&method, params.as_deref(), || lock(&self.client).clone());
        Reply::Later(Box::pin(async move {
            let answer = match question {
                Ok(question) => questions::ask(&*caller, question).await,
                Err(why) => Err(why),
            };
            drop(place);
            Some(Answer::new(questions::response(&id, answer), roots))
        }))
    }

    /// The answer to a request that needs nobody to answer it: `ping`, and what no client knows.
    pub(super) fn answer(&self, id: &Id, method: &str) -> Option<Vec<u8>> {
        match method {
            "ping" => Some(encode_response(Some(id), Ok(&RawObject::new().to_raw()), Nulls::Omit)),
            method if Dialect::is_question(method) => None,
            _ => Some(error(id, &RpcError::new(code::METHOD_NOT_FOUND, "method not found"))),
        }
    }

    fn note(&self, method: String, params: Option<Box<RawValue>>) {
        if self.changed(&method, params.as_deref()) {
            return;
        }
        if method == "notifications/cancelled" && self.is_modern.load(Relaxed) {
            // A modern server ends a subscription so where there is no stream to close.
            let number = params.as_deref().and_then(|p| RawObject::parse(p).ok()?.read("requestId"));
            self.flights.answer(number, Err(LinkError::Broken("the server has ended the subscription")));
            return;
        }
        let owner = owner(&method, params.as_deref());
        let heard = Heard::Notification { method, params };
        match (owner, &heard) {
            (Some(number), _) => self.flights.give(number, heard),
            (None, Heard::Notification { method, .. }) if method == "notifications/cancelled" => {
                self.flights.give_all(&heard);
            }
            // A line that could be anyone's is nobody's, unless there is but one.
            _ => {
                if self.flights.give_only_call(heard.clone()).is_err() {
                    self.tell_the_only_caller(&heard);
                }
            }
        }
    }

    /// Tells whoever this client is for what belongs to no call for sure, where it is for one caller only.
    fn tell_the_only_caller(&self, heard: &Heard) {
        let (Some(caller), Heard::Notification { method, params: Some(params) }) = (&self.only_caller, heard) else {
            return;
        };
        let Ok(params) = RawObject::parse(params) else { return };
        match method.as_str() {
            "notifications/message" => caller.log(Log(params)),
            "notifications/elicitation/complete" => {
                if let Some(id) = params.text("elicitationId") {
                    caller.elicitation_done(&id);
                }
            }
            _ => {}
        }
    }

    /// Tells those who follow the agent of a change; `false` where it is no news of one.
    pub(super) fn changed(&self, method: &str, params: Option<&RawValue>) -> bool {
        let change = match method {
            "notifications/tools/list_changed" => {
                self.tools.forget();
                Change::Tools
            }
            "notifications/prompts/list_changed" => Change::Prompts,
            "notifications/resources/list_changed" => Change::Resources,
            "notifications/resources/updated" => {
                let uri = params.and_then(|p| RawObject::parse(p).ok()).and_then(|p| p.text("uri"));
                match uri {
                    Some(uri) => Change::Resource(uri),
                    None => return true,
                }
            }
            _ => return false,
        };
        self.news.tell(change);
        true
    }
}

/// The request that a notification names: by its progress token, or by the subscription's id.
fn owner(method: &str, params: Option<&RawValue>) -> Option<u64> {
    let params = RawObject::parse(params?).ok()?;
    match method {
        "notifications/progress" => params.read("progressToken"),
        "notifications/subscriptions/acknowledged" => params.object("_meta")?.read(meta::SUBSCRIPTION_ID),
        _ => None,
    }
}

/// Why a question of a server's is asked of nobody.
fn refusal(id: &Id, why: Unplaced) -> Vec<u8> {
    let why = match why {
        Unplaced::NoCall => "nobody to ask: no call of this client's is under way",
        Unplaced::Several => "nobody to ask: several calls are under way, and it can't be told whose question it is",
        Unplaced::Full => "nobody to ask: the call has too many questions open",
    };
    error(id, &RpcError::new(mcp::NOBODY_TO_ASK, why))
}

fn error(id: &Id, error: &RpcError) -> Vec<u8> {
    encode_response(Some(id), Err(error), Nulls::Omit)
}
