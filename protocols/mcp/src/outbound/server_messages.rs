//! What a server says that belongs to no request of ours, or says to all of them.

use std::mem::discriminant;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use callboard_message::{Change, Failure, Log, RawObject};
use callboard_rpc::{Id, Nulls, RpcError, encode_error, encode_response};
use callboard_runtime::{CallMeta, Caller, Cx, Direction};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::TaskTracker;

use super::dialect::{Asked, Dialect};
use super::exchange::{Heard, TransportError};
use super::options::{
    ClientOptions, QUESTIONS_AT_ONCE_MAX, ROOTS_GIVEN_WITHIN, ROOTS_TAKEN_UP_WITHIN,
};
use super::pending_requests::{PendingRequests, Unplaced};
use super::tool_cache::ToolCache;
use crate::wire::{code as mcp, failure, meta};

/// What a message from the server calls for.
pub(crate) enum Reply {
    None,
    /// To be sent back.
    Now(Vec<u8>),
    /// To be waited for, then sent back, if anything is.
    Later(BoxFuture<'static, Option<PreparedAnswer>>),
}

/// An answer to a question of the server's, to be kept until it is sent.
pub(crate) struct PreparedAnswer {
    pub body: Vec<u8>,
    pub roots: Option<RootsAsked>,
}

/// Listens for one connection.
pub(crate) struct NotificationHandler {
    pub flights: Arc<PendingRequests>,
    tools: Arc<ToolCache>,
    /// Whose followers are told of changes; nobody where another connection with the server tells.
    news: Option<Cx>,
    /// What is left to do when the client ends: children that end, sessions that are taken leave of.
    pub farewells: TaskTracker,
    /// Who is meant by what no call caused, where this client is for one caller only.
    only_caller: Option<Arc<dyn Caller>>,
    /// How the server words its questions.
    pub dialect: Dialect,
    /// What the only caller calls itself, as far as it has said.
    client: Mutex<Option<String>>,
    /// For the questions that are asked of them.
    places: Arc<Semaphore>,
    pub roots: Roots,
    /// A modern server asks nothing this way, and gets no answer.
    is_modern: AtomicBool,
}

impl NotificationHandler {
    pub fn new(
        tools: Arc<ToolCache>,
        news: Option<Cx>,
        farewells: TaskTracker,
        options: &ClientOptions,
    ) -> Self {
        let places = Arc::new(Semaphore::new(QUESTIONS_AT_ONCE_MAX));
        Self {
            flights: Arc::default(),
            tools,
            news,
            farewells,
            only_caller: options.only_caller.clone(),
            dialect: options.dialect,
            client: Mutex::default(),
            places,
            roots: Roots::default(),
            is_modern: AtomicBool::new(false),
        }
    }

    /// Learns from a request what the only caller calls itself.
    pub fn learn_client(&self, client: impl FnOnce() -> Option<String>) {
        if self.only_caller.is_some() && self.dialect != Dialect::Mcp {
            *self.client.lock() = client();
        }
    }

    pub fn set_modern(&self, is_modern: bool) {
        self.is_modern.store(is_modern, Relaxed);
    }

    /// Takes a message that came by a channel which is no single request's.
    pub fn hear(&self, heard: Heard) -> Reply {
        match heard {
            Heard::Request { id, method, .. } if self.is_modern.load(Relaxed) => {
                callboard_message::log::warn!(method, %id, "a request of a modern server's is dropped");
                Reply::None
            }
            Heard::Request { id, method, params } => {
                if let Some(answer) = self.answer(&id, &method) {
                    return Reply::Now(answer);
                }
                let asked = Heard::Request {
                    id: id.clone(),
                    method: method.clone(),
                    params: params.clone(),
                };
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
    pub fn ask_outside(
        &self,
        id: Id,
        method: String,
        params: Option<Box<RawValue>>,
        why: Unplaced,
    ) -> Reply {
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            return Reply::Now(refusal(&id, Unplaced::Full));
        };
        let Some(caller) = self.only_caller.clone() else {
            let flights = self.flights.clone();
            return Reply::Later(Box::pin(async move {
                let _place = place;
                let unplaced = match why {
                    Unplaced::NoCall if method == "roots/list" => {
                        let asked = Heard::Request {
                            id: id.clone(),
                            method,
                            params,
                        };
                        flights
                            .give_next_call(&asked, ROOTS_GIVEN_WITHIN)
                            .await
                            .err()?
                    }
                    why => why,
                };
                Some(PreparedAnswer {
                    body: refusal(&id, unplaced),
                    roots: None,
                })
            }));
        };
        let roots = self.roots.asked(&method);
        let question = self
            .dialect
            .read(&method, params.as_deref(), || self.client.lock().clone());
        Reply::Later(Box::pin(async move {
            let answer = match question {
                Ok(question) => ask_caller(&*caller, question).await,
                Err(why) => Err(why),
            };
            drop(place);
            Some(PreparedAnswer {
                body: answer_response(&id, answer),
                roots,
            })
        }))
    }

    /// The answer to a request that needs nobody to answer it: `ping`, and what no client knows.
    pub fn answer(&self, id: &Id, method: &str) -> Option<Vec<u8>> {
        match method {
            "ping" => Some(encode_response(
                Some(id),
                Ok(&RawObject::new().to_raw()),
                Nulls::Omit,
            )),
            method if Dialect::is_question(method) => None,
            _ => Some(encode_error(
                Some(id),
                &RpcError::method_not_found("method not found"),
            )),
        }
    }

    fn note(&self, method: String, params: Option<Box<RawValue>>) {
        if self.changed(&method, params.as_deref()) {
            return;
        }
        if method == "notifications/cancelled" && self.is_modern.load(Relaxed) {
            // A modern server ends a subscription so where there is no stream to close.
            let number = params
                .as_deref()
                .and_then(|p| RawObject::parse(p).ok()?.read("requestId"));
            self.flights.answer(
                number,
                Err(TransportError::Broken(
                    "the server has ended the subscription",
                )),
            );
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
        let (
            Some(caller),
            Heard::Notification {
                method,
                params: Some(params),
            },
        ) = (&self.only_caller, heard)
        else {
            return;
        };
        let Ok(params) = RawObject::parse(params) else {
            return;
        };
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
    pub fn changed(&self, method: &str, params: Option<&RawValue>) -> bool {
        let change = match method {
            "notifications/tools/list_changed" => {
                self.tools.forget();
                Change::Tools
            }
            "notifications/prompts/list_changed" => Change::Prompts,
            "notifications/resources/list_changed" => Change::Resources,
            "notifications/resources/updated" => {
                let uri = params
                    .and_then(|p| RawObject::parse(p).ok())
                    .and_then(|p| p.text("uri"));
                match uri {
                    Some(uri) => Change::Resource(uri),
                    None => return true,
                }
            }
            _ => return false,
        };
        if let Some(cx) = &self.news {
            cx.changed(change);
        }
        true
    }
}

/// The request that a notification names: by its progress token, or by the subscription's id.
fn owner(method: &str, params: Option<&RawValue>) -> Option<u64> {
    let params = RawObject::parse(params?).ok()?;
    match method {
        "notifications/progress" => params.read("progressToken"),
        "notifications/subscriptions/acknowledged" => {
            params.object("_meta")?.read(meta::SUBSCRIPTION_ID)
        }
        _ => None,
    }
}

/// Why a question of a server's is asked of nobody.
fn refusal(id: &Id, why: Unplaced) -> Vec<u8> {
    let why = match why {
        Unplaced::NoCall => "nobody to ask: no call of this client's is under way",
        Unplaced::Several => {
            "nobody to ask: several calls are under way, and it can't be told whose question it is"
        }
        Unplaced::Full => "nobody to ask: the call has too many questions open",
    };
    encode_error(Some(id), &RpcError::new(mcp::NOBODY_TO_ASK, why))
}

/// Asks whoever called. The answer is MCP's result, just as it was given, in the words of the server's dialect.
///
/// # Errors
/// Where nobody answers; the answerer's own failure.
async fn ask_caller(caller: &dyn Caller, asked: Asked) -> Result<Box<RawValue>, Failure> {
    let Asked { question, manner } = asked;
    let wanted = discriminant(&question.answered(RawObject::new()));
    let answer = caller.ask(question).await?;
    match discriminant(&answer) == wanted {
        true => Ok(manner.word(answer.body().clone()).to_raw()),
        false => Err(Failure::invalid("the answer doesn't fit the question")),
    }
}

/// The message that answers request `id`.
pub(crate) fn answer_response(id: &Id, answer: Result<Box<RawValue>, Failure>) -> Vec<u8> {
    let outcome = answer.map_err(failure::to_rpc);
    encode_response(Some(id), outcome.as_deref(), Nulls::Omit)
}

/// Asks whoever made the call `cx`.
///
/// # Errors
/// Like [`ask_caller`]; `NobodyToAsk` where nobody did.
pub(crate) async fn ask_in_call(cx: &Cx, asked: Asked) -> Result<Box<RawValue>, Failure> {
    // What a server asks crosses a boundary as its replies do.
    let call = cx.call().map(|call| {
        let server = cx.me().to_string();
        CallMeta::clone(call).judged(cx.system(), Direction::Outbound, &server)
    });
    match call.and_then(|call| call.caller) {
        Some(caller) => ask_caller(&*caller, asked).await,
        None => Err(Failure::nobody_to_ask("nobody to ask")),
    }
}

/// How far a server's question for roots has come.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    NotAsked,
    Asked,
    /// With an error, or by another client than the one that the call waits for.
    Refused,
    Given,
}

/// A round of questions, and how far it has come. What is left of an earlier round changes nothing.
#[derive(Clone, Copy, Default)]
struct Round {
    number: u64,
    state: State,
}

/// A server's questions for roots on one connection.
#[derive(Default)]
pub(crate) struct Roots {
    /// When the connection was made.
    connected: OnceLock<Instant>,
    /// Whether the server has asked, as far as that is known, once the first call has waited for that. Locked while one waits, so that
    /// other calls wait too.
    pub settled: tokio::sync::Mutex<Option<bool>>,
    round: watch::Sender<Round>,
}

/// A question for roots that isn't answered yet. Dropped, it is: with an answer or an error, or because nobody can be asked.
pub(crate) struct RootsAsked {
    round: watch::Sender<Round>,
    number: u64,
    /// Whether the server gets the roots of the client that the call waits for.
    pub given: bool,
}

impl Drop for RootsAsked {
    fn drop(&mut self) {
        let state = if self.given {
            State::Given
        } else {
            State::Refused
        };
        self.round.send_if_modified(|round| {
            let is_current = round.number == self.number;
            if is_current {
                round.state = state;
            }
            is_current
        });
    }
}

impl Roots {
    /// Returns when the connection was made: now, where that wasn't noted before.
    pub fn connected(&self) -> Instant {
        *self.connected.get_or_init(Instant::now)
    }

    /// Notes that the server asks, where `method` is its question for roots.
    pub fn asked(&self, method: &str) -> Option<RootsAsked> {
        if method != "roots/list" {
            return None;
        }
        self.round.send_modify(|round| round.state = State::Asked);
        let number = self.round.borrow().number;
        Some(RootsAsked {
            round: self.round.clone(),
            number,
            given: false,
        })
    }

    pub fn was_asked(&self) -> bool {
        self.round.borrow().state != State::NotAsked
    }

    /// Whether the server has the roots of the client that the call waits for.
    pub fn are_given(&self) -> bool {
        self.round.borrow().state == State::Given
    }

    /// Begins anew.
    pub fn forget(&self) {
        self.round.send_modify(|round| {
            *round = Round {
                number: round.number + 1,
                state: State::NotAsked,
            }
        });
    }

    /// Ends when the server has been answered and had time to take that up, or hasn't asked by `deadline`.
    pub async fn given(&self, deadline: Instant) {
        let mut round = self.round.subscribe();
        loop {
            let now = round.borrow_and_update().state;
            let limit = match now {
                State::NotAsked => deadline,
                State::Asked => deadline + ROOTS_GIVEN_WITHIN,
                State::Refused | State::Given => return sleep(ROOTS_TAKEN_UP_WITHIN).await,
            };
            if timeout_at(limit, round.changed()).await.is_err() {
                return;
            }
        }
    }
}
