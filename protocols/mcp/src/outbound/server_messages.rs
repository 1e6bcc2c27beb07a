//! Notifications and requests from the server, outside any of our requests or shared by all of
//! them.

use std::mem::discriminant;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock, Weak};

use callboard_message::{CapabilityChange, Failure, LogMessage, RawObject};
use callboard_rpc::{RequestId, RpcError, UnusedMember, encode_error, encode_response};
use callboard_runtime::{CallContext, Caller, Context, Direction};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::TaskTracker;

use super::change_route::{ChangeRoute, ChangeSource, ListSource};
use super::dialect::{ServerDialect, ServerQuestion};
use super::exchange::{ServerMessage, TransportError};
use super::options::{
    CONCURRENT_QUESTIONS_MAX, McpClientOptions, ROOTS_ANSWER_TIMEOUT, ROOTS_SETTLE_DELAY,
};
use super::pending_requests::{DeliveryError, PendingRequests};
use super::tool_cache::ToolCache;
use super::url_elicitation;
use crate::wire::{code as mcp, error_mapping, meta};

/// Client capabilities for which requests of a legacy server are forwarded. `tasks` is none of them:
/// the answer to a question that became a task would come by `tasks/result`, past the policies,
/// grants and limits that hold for answers.
pub(crate) const EXTENSION_CAPABILITIES: [&str; 2] = ["extensions", "experimental"];
/// First parts of the methods of MCP itself, which no extension has.
const CORE_NAMESPACES: [&str; 12] = [
    "completion",
    "elicitation",
    "logging",
    "notifications",
    "prompts",
    "resources",
    "roots",
    "sampling",
    "server",
    "subscriptions",
    "tasks",
    "tools",
];

/// Reply to a message from the server.
pub(crate) enum ServerReply {
    None,
    /// Message to be sent at once.
    Now(Vec<u8>),
    /// Future of the message to be sent; `None` if there is nothing to send.
    Later(BoxFuture<'static, Option<PreparedAnswer>>),
}

/// Encoded response to a server's request, ready to be sent.
pub(crate) struct PreparedAnswer {
    pub body: Vec<u8>,
    pub roots_request: Option<PendingRootsRequest>,
}

/// Handler of the server's notifications and requests on one connection.
pub(crate) struct NotificationHandler {
    pub pending_requests: Arc<PendingRequests>,
    tools: Arc<ToolCache>,
    changes: ChangeRoute,
    /// Identity of this connection among those that may publish changes of lists.
    identity: Arc<()>,
    /// Session on this connection, once it is initialized.
    session: OnceLock<Weak<dyn ListSource>>,
    /// Number of times that the list of tools may have changed in this session.
    tools_edition: AtomicU64,
    /// Tasks that end child processes and server sessions after the client has ended.
    pub cleanup_tasks: TaskTracker,
    /// Caller for questions and notifications that can't be assigned to a pending call; `None` if
    /// the client serves several callers.
    only_caller: Option<Arc<dyn Caller>>,
    pub dialect: ServerDialect,
    /// Name of the only caller, read from its latest request. Used in dialects that name the
    /// client.
    client_name: Mutex<Option<String>>,
    /// Limits concurrent questions that are asked outside a call.
    question_permits: Arc<Semaphore>,
    pub roots: RootsTracker,
    /// True if requests of extensions are forwarded to the only caller, because its client has
    /// declared extensions to the server.
    forwards_extensions: bool,
    /// True if the server is of the modern era. Its JSON-RPC requests are dropped then, because
    /// that era has none from servers.
    is_modern: AtomicBool,
}

impl NotificationHandler {
    pub fn new(
        tools: Arc<ToolCache>,
        changes: ChangeRoute,
        cleanup_tasks: TaskTracker,
        options: &McpClientOptions,
    ) -> Self {
        let question_permits = Arc::new(Semaphore::new(CONCURRENT_QUESTIONS_MAX));
        Self {
            pending_requests: Arc::default(),
            tools,
            changes,
            identity: Arc::default(),
            session: OnceLock::new(),
            tools_edition: AtomicU64::new(0),
            cleanup_tasks,
            only_caller: options.only_caller.clone(),
            dialect: options.dialect,
            client_name: Mutex::default(),
            question_permits,
            forwards_extensions: options.only_caller.is_some()
                && EXTENSION_CAPABILITIES
                    .iter()
                    .any(|name| options.offered_capabilities.0.has(name)),
            roots: RootsTracker::default(),
            is_modern: AtomicBool::new(false),
        }
    }

    /// Stores the name of the only caller for later questions, if the dialect needs it. `client`
    /// reads it from a request.
    pub fn record_client_name(&self, client: impl FnOnce() -> Option<String>) {
        if self.only_caller.is_some() && self.dialect != ServerDialect::Mcp {
            *self.client_name.lock() = client();
        }
    }

    /// Sets the session on this connection, in which changed lists are fetched.
    pub fn set_session(&self, session: Weak<dyn ListSource>) {
        // A connection has one session.
        let _ = self.session.set(session);
    }

    /// Returns the number of times that the list of tools may have changed in this session.
    pub fn tools_edition(&self) -> u64 {
        self.tools_edition.load(Relaxed)
    }

    pub fn set_modern(&self, is_modern: bool) {
        self.is_modern.store(is_modern, Relaxed);
    }

    /// Handles a message that the server sent on a channel shared by all requests, such as a
    /// child's pipe or the GET stream. Returns the reply to send.
    pub fn handle_message(&self, message: ServerMessage) -> ServerReply {
        match message {
            ServerMessage::Request { id, method, .. } if self.is_modern.load(Relaxed) => {
                callboard_message::log::warn!(method, %id, "dropped a request of a server of 2026-07-28, which may send none: the server has to be corrected");
                ServerReply::None
            }
            ServerMessage::Request { id, method, params } => {
                if let Some(answer) = self.immediate_answer(&id, &method) {
                    return ServerReply::Now(answer);
                }
                let asked = ServerMessage::Request {
                    id: id.clone(),
                    method: method.clone(),
                    params: params.clone(),
                };
                match self.pending_requests.deliver_to_sole_call(asked) {
                    Ok(()) => ServerReply::None,
                    Err(DeliveryError::Full) => {
                        ServerReply::Now(delivery_error_response(&id, DeliveryError::Full))
                    }
                    Err(why) => self.ask_outside_call(id, method, params, why),
                }
            }
            ServerMessage::Notification { method, params } => {
                self.handle_notification(method, params);
                ServerReply::None
            }
        }
    }

    /// Answers a question that can't be delivered to a call, for the reason `why`. If the client
    /// has an only caller, it is asked. Otherwise the question is rejected, except that
    /// `roots/list` first waits up to [`ROOTS_ANSWER_TIMEOUT`] for a call if none is pending.
    pub fn ask_outside_call(
        &self,
        id: RequestId,
        method: String,
        params: Option<Box<RawValue>>,
        why: DeliveryError,
    ) -> ServerReply {
        let Ok(place) = self.question_permits.clone().try_acquire_owned() else {
            return ServerReply::Now(delivery_error_response(&id, DeliveryError::Full));
        };
        let Some(caller) = self.only_caller.clone() else {
            let pending_requests = self.pending_requests.clone();
            return ServerReply::Later(Box::pin(async move {
                let _place = place;
                let unplaced = match why {
                    DeliveryError::NoCall if method == "roots/list" => {
                        let asked = ServerMessage::Request {
                            id: id.clone(),
                            method,
                            params,
                        };
                        pending_requests
                            .deliver_to_next_call(&asked, ROOTS_ANSWER_TIMEOUT)
                            .await
                            .err()?
                    }
                    why => why,
                };
                Some(PreparedAnswer {
                    body: delivery_error_response(&id, unplaced),
                    roots_request: None,
                })
            }));
        };
        let roots = self.roots.begin_request(&method);
        let request = self.parse_request(method, params, || self.client_name.lock().clone());
        ServerReply::Later(Box::pin(async move {
            let answer = match request {
                Ok(request) => ask_caller(&*caller, request).await,
                Err(why) => Err(why),
            };
            drop(place);
            Some(PreparedAnswer {
                body: answer_response(&id, answer),
                roots_request: roots,
            })
        }))
    }

    /// Parses a request of the server to its client. `client` returns the name of the client whose
    /// call caused it.
    ///
    /// # Errors
    /// `NotFound` for an unknown method, `InvalidInput` for invalid params.
    pub fn parse_request(
        &self,
        method: String,
        params: Option<Box<RawValue>>,
        client: impl FnOnce() -> Option<String>,
    ) -> Result<ClientRequest, Failure> {
        if self.is_forwarded(&method) {
            return Ok(ClientRequest::Extension { method, params });
        }
        let question = self
            .dialect
            .parse_question(&method, params.as_deref(), client)?;
        Ok(ClientRequest::Question(question))
    }

    /// Returns true if requests of this method are forwarded to the client.
    fn is_forwarded(&self, method: &str) -> bool {
        let is_extension = |(first, _): (&str, &str)| !CORE_NAMESPACES.contains(&first);
        self.forwards_extensions && method.split_once('/').is_some_and(is_extension)
    }

    /// Returns the response to a request that needs no caller: `ping`, or an unknown method.
    /// Returns `None` for a question to the caller.
    pub fn immediate_answer(&self, id: &RequestId, method: &str) -> Option<Vec<u8>> {
        match method {
            "ping" => Some(encode_response(
                Some(id),
                Ok(&RawObject::new().to_raw()),
                UnusedMember::Omit,
            )),
            method if ServerDialect::is_question(method) || self.is_forwarded(method) => None,
            _ => Some(encode_error(
                Some(id),
                &RpcError::method_not_found("method not found"),
            )),
        }
    }

    fn handle_notification(&self, method: String, params: Option<Box<RawValue>>) {
        if self.publish_change(&method, params.as_deref()) {
            return;
        }
        if method == "notifications/cancelled" && self.is_modern.load(Relaxed) {
            // A modern server ends a subscription this way on channels without separate streams.
            let number = params
                .as_deref()
                .and_then(|p| RawObject::parse(p).ok()?.read("requestId"));
            self.pending_requests.complete(
                number,
                Err(TransportError::Broken(
                    "the server has ended the subscription".into(),
                )),
            );
            return;
        }
        let owner = owning_request(&method, params.as_deref());
        let message = ServerMessage::Notification { method, params };
        match (owner, &message) {
            (Some(number), _) => self.pending_requests.deliver(number, message),
            (None, ServerMessage::Notification { method, .. })
                if method == "notifications/cancelled" =>
            {
                self.pending_requests.deliver_to_calls(&message);
            }
            // A message that could belong to any call is delivered only if there is just one.
            _ => {
                if self
                    .pending_requests
                    .deliver_to_sole_call(message.clone())
                    .is_err()
                {
                    self.notify_only_caller(&message);
                }
            }
        }
    }

    /// Passes a log message or the completion of an elicitation to the client's only caller, if it
    /// has one.
    fn notify_only_caller(&self, message: &ServerMessage) {
        let (
            Some(caller),
            ServerMessage::Notification {
                method,
                params: Some(params),
            },
        ) = (&self.only_caller, message)
        else {
            return;
        };
        // Other clients may use the connection too.
        if self.is_modern.load(Relaxed) {
            return;
        }
        let Ok(params) = RawObject::parse(params) else {
            return;
        };
        match method.as_str() {
            "notifications/message" => caller.log(LogMessage(params)),
            "notifications/elicitation/complete" => {
                if let Some(id) = params.text("elicitationId") {
                    caller.elicitation_done(&id);
                }
            }
            _ => {}
        }
    }

    /// If the notification reports a change of lists or resources, publishes it to the agent's
    /// followers and returns true. Otherwise returns false.
    pub fn publish_change(&self, method: &str, params: Option<&RawValue>) -> bool {
        let change = match method {
            "notifications/tools/list_changed" => {
                self.invalidate_tools();
                CapabilityChange::Tools
            }
            "notifications/prompts/list_changed" => CapabilityChange::Prompts,
            "notifications/resources/list_changed" => CapabilityChange::Resources,
            "notifications/resources/updated" => {
                let uri = params
                    .and_then(|p| RawObject::parse(p).ok())
                    .and_then(|p| p.text("uri"));
                match uri {
                    Some(uri) => CapabilityChange::Resource(uri),
                    None => return true,
                }
            }
            _ => return false,
        };
        self.publish(&change);
        true
    }

    /// Publishes that all lists that a server with the capabilities in `about` has may have changed,
    /// because it was connected anew.
    pub fn publish_lists(&self, about: &RawObject) {
        self.invalidate_tools();
        list_changes(about).for_each(|change| self.publish(&change));
    }

    fn invalidate_tools(&self) {
        self.tools.invalidate();
        self.tools_edition.fetch_add(1, Relaxed);
    }

    fn publish(&self, change: &CapabilityChange) {
        let source = ChangeSource {
            identity: &self.identity,
            is_modern: self.is_modern.load(Relaxed),
            lists: self.session.get().and_then(Weak::upgrade),
        };
        self.changes.publish(change, source);
    }
}

/// Returns a change of each list that a server with the capabilities in `about` has.
pub(crate) fn list_changes(about: &RawObject) -> impl Iterator<Item = CapabilityChange> + use<> {
    let can = about.object("capabilities").unwrap_or_default();
    [
        ("tools", CapabilityChange::Tools),
        ("prompts", CapabilityChange::Prompts),
        ("resources", CapabilityChange::Resources),
    ]
    .into_iter()
    .filter_map(move |(capability, change)| can.has(capability).then_some(change))
}

/// Returns the number of the request that a notification belongs to, read from its progress token
/// or subscription id. `None` if it names none.
fn owning_request(method: &str, params: Option<&RawValue>) -> Option<u64> {
    let params = RawObject::parse(params?).ok()?;
    match method {
        "notifications/progress" => params.read("progressToken"),
        "notifications/subscriptions/acknowledged" => {
            params.object("_meta")?.read(meta::SUBSCRIPTION_ID)
        }
        _ => None,
    }
}

/// Encodes the error response to a question that can't be delivered, for the reason `why`.
fn delivery_error_response(id: &RequestId, why: DeliveryError) -> Vec<u8> {
    let why = match why {
        DeliveryError::NoCall => "no caller to ask: this client has no pending call",
        DeliveryError::Ambiguous => {
            "no caller to ask: several calls are pending, and the question names none"
        }
        DeliveryError::Full => "no caller to ask: too many questions of the call are open already",
    };
    encode_error(Some(id), &RpcError::new(mcp::NO_RESPONDER, why))
}

/// Request of a server to its client.
pub(crate) enum ClientRequest {
    /// Question that is put to whoever answers for the client.
    Question(ServerQuestion),
    /// Request of an extension, which the client itself gets unchanged.
    Extension {
        method: String,
        params: Option<Box<RawValue>>,
    },
}

impl From<ServerQuestion> for ClientRequest {
    fn from(question: ServerQuestion) -> Self {
        Self::Question(question)
    }
}

/// Puts the server's request to `caller`. Returns the answer in the format that the server expects.
///
/// # Errors
/// The caller's failure; `Rejected` if it isn't put, because it would send a person to an address
/// that isn't encrypted; `InvalidInput` if the answer is of another kind than the question.
async fn ask_caller(caller: &dyn Caller, asked: ClientRequest) -> Result<Box<RawValue>, Failure> {
    let ServerQuestion {
        question,
        answer_format: manner,
    } = match asked {
        ClientRequest::Question(question) => question,
        ClientRequest::Extension { method, params } => return caller.forward(method, params).await,
    };
    url_elicitation::check_question(&question)?;
    let wanted = discriminant(&question.answer_with(RawObject::new()));
    let answer = caller.ask(question).await?;
    match discriminant(&answer) == wanted {
        true => Ok(manner.format_answer(answer.body().clone()).to_raw()),
        false => Err(Failure::invalid(
            "the caller's answer is of another kind than the server's question",
        )),
    }
}

/// Encodes the response to the server's request `id`.
pub(crate) fn answer_response(id: &RequestId, answer: Result<Box<RawValue>, Failure>) -> Vec<u8> {
    let outcome = answer.map_err(error_mapping::to_rpc);
    encode_response(Some(id), outcome.as_deref(), UnusedMember::Omit)
}

/// Puts the server's request to the caller of `cx`, subject to the outbound policy. Returns the
/// answer in the format that the server expects.
///
/// # Errors
/// The caller's failure; `NoResponder` if the call has no caller.
pub(crate) async fn ask_in_call(
    cx: &Context,
    asked: impl Into<ClientRequest>,
) -> Result<Box<RawValue>, Failure> {
    // The policy applies to a server's questions as to its replies.
    let call = cx.call().map(|call| {
        let server = cx.me().to_string();
        CallContext::clone(call).with_policy(cx.system(), Direction::Outbound, &server)
    });
    match call.and_then(|call| call.caller) {
        Some(caller) => ask_caller(&*caller, asked.into()).await,
        None => Err(Failure::no_responder(
            "nobody can answer the question: call from a client that supports such questions",
        )),
    }
}

/// State of a server's `roots/list` request.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum RootsState {
    #[default]
    NotAsked,
    Asked,
    /// Answered with an error, not delivered, or answered by a client other than the one whose call
    /// waits.
    Refused,
    Given,
}

/// Period between two notifications that the roots have changed. Answers to `roots/list` requests
/// of an earlier round don't change the state.
#[derive(Clone, Copy, Default)]
struct RootsRound {
    number: u64,
    state: RootsState,
}

/// Tracks a server's `roots/list` requests on one connection, so that calls can wait until the
/// server has their caller's roots.
#[derive(Default)]
pub(crate) struct RootsTracker {
    /// Time at which the session was ready.
    connected: OnceLock<Instant>,
    /// `Some(true)` if the server requests roots, `Some(false)` if it didn't during the first
    /// call's wait, `None` before that wait has ended. Locked during the wait, so that other calls
    /// wait too.
    pub settled: tokio::sync::Mutex<Option<bool>>,
    round: watch::Sender<RootsRound>,
}

/// A `roots/list` request that is being answered. Dropping it records the outcome:
/// [`RootsState::Given`] if `is_given`, otherwise [`RootsState::Refused`].
pub(crate) struct PendingRootsRequest {
    round: watch::Sender<RootsRound>,
    number: u64,
    /// True if the server gets the roots of the client whose call waits.
    pub is_given: bool,
}

impl Drop for PendingRootsRequest {
    fn drop(&mut self) {
        let state = if self.is_given {
            RootsState::Given
        } else {
            RootsState::Refused
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

impl RootsTracker {
    /// Returns the time at which the session was ready. The first invocation records the current
    /// time.
    pub fn connected_at(&self) -> Instant {
        *self.connected.get_or_init(Instant::now)
    }

    /// Records that the server has requested roots, if `method` is `roots/list`; otherwise returns
    /// `None`.
    pub fn begin_request(&self, method: &str) -> Option<PendingRootsRequest> {
        if method != "roots/list" {
            return None;
        }
        self.round
            .send_modify(|round| round.state = RootsState::Asked);
        let number = self.round.borrow().number;
        Some(PendingRootsRequest {
            round: self.round.clone(),
            number,
            is_given: false,
        })
    }

    pub fn was_requested(&self) -> bool {
        self.round.borrow().state != RootsState::NotAsked
    }

    /// Returns true if the server has received the roots of the client whose call waits.
    pub fn is_given(&self) -> bool {
        self.round.borrow().state == RootsState::Given
    }

    /// Begins a new round, in which the server hasn't requested roots yet.
    pub fn reset(&self) {
        self.round.send_modify(|round| {
            *round = RootsRound {
                number: round.number + 1,
                state: RootsState::NotAsked,
            }
        });
    }

    /// Waits until the server's `roots/list` request has been answered, and [`ROOTS_SETTLE_DELAY`]
    /// longer. Stops waiting if the server doesn't request roots by `deadline`, or if the answer
    /// takes [`ROOTS_ANSWER_TIMEOUT`] beyond it.
    pub async fn wait_until_given(&self, deadline: Instant) {
        let mut round = self.round.subscribe();
        loop {
            let now = round.borrow_and_update().state;
            let limit = match now {
                RootsState::NotAsked => deadline,
                RootsState::Asked => deadline + ROOTS_ANSWER_TIMEOUT,
                RootsState::Refused | RootsState::Given => return sleep(ROOTS_SETTLE_DELAY).await,
            };
            if timeout_at(limit, round.changed()).await.is_err() {
                return;
            }
        }
    }
}
