//! The legacy era: sessions that begin with `initialize` (2024-11-05 … 2025-11-25), whatever carries them.
//!
//! A transport opens a [`Session`] for a peer, hands it what the peer sends, and writes what it answers. What a request
//! causes meanwhile (progress, log lines, questions) goes by the link that the transport gave with the request.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};

use callboard_message::json::raw;
use callboard_message::surface::{Abilities, About, Change, LogLevel};
use callboard_message::{Principal, RawObject};
use callboard_rpc::{
    Body, Id, Nulls, RpcError, decode_body, encode_batch, encode_error, encode_notification,
    encode_refusal, encode_response,
};
use callboard_runtime::{CallMeta, Caller, PeerSession};
use futures::future::join_all;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::agent_adapter::Outcome;
use super::client::MessageSink;
use super::endpoint::{Listening, Watching, change_notification};
use super::options::{REQUESTS_IN_FLIGHT_MAX, SUBSCRIPTION_URI_BYTES_MAX, SUBSCRIPTIONS_MAX};
use super::request::{Member, Message, Method, Params, Request, RunningRequests, object};
use super::tasks::{TaskRequest, TaskService};
use crate::wire::{Era, Revision, code as mcp, hmcp, meta};
use caller::{Questions, SessionCaller};

mod caller;

/// A client's side of the state. A transport owns it, and closes it when the client is gone.
pub(crate) struct Session {
    tasks: Arc<TaskService>,
    /// Who opened it.
    pub principal: Arc<Principal>,
    /// Where goes what no request caused.
    unsolicited: Arc<dyn MessageSink>,
    /// Set by `initialize`.
    client: OnceLock<Client>,
    /// The least grave line that the client wants.
    log_level: Mutex<LogLevel>,
    questions: Questions,
    running: RunningRequests,
    state: Mutex<State>,
    /// Hears what changes. Its number is the session's: no other of this process has or had it.
    listening: Listening,
    /// The session as agents see it.
    peer: Arc<PeerSession>,
    over: CancellationToken,
}

#[derive(Default)]
struct State {
    subscriptions: HashMap<String, Watching>,
    closed: bool,
}

impl Session {
    /// A session that awaits `initialize`. `unsolicited` is where goes what no request caused.
    pub fn open(
        tasks: Arc<TaskService>,
        principal: Arc<Principal>,
        unsolicited: Arc<dyn MessageSink>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|session: &Weak<Self>| {
            let (over, listener) = (CancellationToken::new(), session.clone());
            let background =
                SessionCaller::new(session.clone(), unsolicited.clone(), over.clone(), None);
            Self {
                principal,
                unsolicited,
                client: OnceLock::new(),
                log_level: Mutex::new(LogLevel::Info),
                questions: Questions::default(),
                running: RunningRequests::new(REQUESTS_IN_FLIGHT_MAX),
                state: Mutex::default(),
                listening: tasks.endpoint.changes.listen(move |change| {
                    if let Some(session) = listener.upgrade() {
                        session.changed(change);
                    }
                }),
                peer: Arc::new(PeerSession::new(over.clone(), Arc::new(background))),
                over,
                tasks,
            }
        })
    }

    /// What both sides speak; `None` before `initialize`.
    pub fn revision(&self) -> Option<Revision> {
        self.client.get().map(|client| client.revision)
    }

    fn abilities(&self) -> Abilities {
        self.client
            .get()
            .map(|client| client.abilities.clone())
            .unwrap_or_default()
    }

    /// Answers one request; what it causes meanwhile goes by `sink`. `None` where it was cancelled. Dropped, it cancels what it
    /// caused.
    pub async fn request(
        self: &Arc<Self>,
        id: Id,
        request: Request,
        sink: Arc<dyn MessageSink>,
    ) -> Option<Vec<u8>> {
        let outcome = match (request.method, self.revision()) {
            (Method::Initialize, _) => Box::pin(self.initialize(request.params.raw())).await,
            (Method::Ping, _) => Ok(raw("{}".into())),
            (_, None) => Err(RpcError::invalid_request("send `initialize` first")),
            (method, Some(revision)) => {
                let mut call = CallMeta::new(self.principal.clone());
                let (cancel, params) = (call.cancel.clone(), &request.params);
                let meta = params
                    .get(Member::Meta)
                    .and_then(|meta| RawObject::parse(meta).ok());
                call.trace = meta::trace(meta.as_ref());
                call.caller = Some(Arc::new(SessionCaller::new(
                    Arc::downgrade(self),
                    sink,
                    cancel.clone(),
                    meta.as_ref(),
                )));
                call.session = Some(self.peer.clone());
                let work = async {
                    match method {
                        Method::SetLevel => return self.set_level(params),
                        Method::Subscribe => return Box::pin(self.subscribe(params, call)).await,
                        Method::Unsubscribe => return self.unsubscribe(params),
                        _ if !self.tasks.concerns(method) => {}
                        _ => {
                            let background = |over: CancellationToken| -> Arc<dyn Caller> {
                                let (session, sink) =
                                    (Arc::downgrade(self), self.unsolicited.clone());
                                Arc::new(SessionCaller::new(session, sink, over, meta.as_ref()))
                            };
                            let request = TaskRequest {
                                request: &request,
                                revision,
                                call: &call,
                                session: Some(self.listening.number),
                                client: &self.abilities(),
                                background: Some(&background),
                                unsolicited: Some(&self.unsolicited),
                            };
                            // Boxed, for most requests carry no room for it.
                            if let Some(outcome) = Box::pin(self.tasks.perform(request)).await {
                                return outcome;
                            }
                        }
                    }
                    self.tasks
                        .endpoint
                        .adapter()
                        .perform(&request, revision, call)
                        .await
                };
                match self.running.enter(&id, &cancel) {
                    Err(refused) => Err(refused),
                    Ok(_running) => tokio::select! {
                        biased;
                        () = cancel.cancelled() => return None,
                        outcome = work => outcome,
                    },
                }
            }
        };
        Some(encode_response(Some(&id), outcome.as_deref(), Nulls::Omit))
    }

    /// Takes a notification, or an answer to something that the session asked; gives a request back.
    pub fn hear(&self, message: Message<'_>) -> Option<(Id, Request)> {
        match message {
            Message::Request(id, request) => return Some((id, request)),
            Message::Response(response) => self.questions.answered(response),
            Message::Notification(told) if told.method == "notifications/roots/list_changed" => {
                self.peer
                    .roots_changed
                    .send_modify(|count| *count = count.wrapping_add(1));
            }
            Message::Notification(told) if told.method == "notifications/cancelled" => {
                self.running.cancel(told.params);
            }
            Message::Notification(_) => {}
        }
        None
    }

    /// Cancels what runs and fails what it asked. Nothing begins any more.
    pub fn close(&self) {
        self.over.cancel();
        let last = std::mem::replace(
            &mut *self.state.lock(),
            State {
                closed: true,
                ..State::default()
            },
        );
        self.running.close();
        drop(last);
        self.questions.close();
    }

    /// Tells the client of a change, where it wants to know.
    fn changed(&self, change: &Change) {
        let Some((method, params)) = change_notification(change) else {
            return;
        };
        let is_wanted = {
            let state = self.state.lock();
            !state.closed
                && !matches!(change, Change::Resource(uri) if !state.subscriptions.contains_key(uri))
        };
        if self.client.get().is_none() || !is_wanted {
            return;
        }
        let params = (!params.is_empty()).then(|| params.to_raw());
        self.unsolicited
            .offer(encode_notification(method, params.as_deref()).into());
    }

    async fn initialize(&self, params: Option<&RawValue>) -> Outcome {
        let twice = || RpcError::invalid_request("the session is initialized already");
        if self.client.get().is_some() {
            return Err(twice());
        }
        let client = Client::read(params)?;
        let revision = client.revision;
        let about = self
            .tasks
            .endpoint
            .adapter()
            .about(CallMeta::new(self.principal.clone()))
            .await;
        self.client.set(client).map_err(|_| twice())?;
        Ok(self.welcome(revision, &about))
    }

    /// The result of `initialize`.
    fn welcome(&self, revision: Revision, about: &About) -> Box<RawValue> {
        let endpoint = &self.tasks.endpoint;
        let mut capabilities = endpoint.adapter().capabilities(about);
        hmcp::translate(&mut capabilities, false);
        if revision < Revision::V2025_03_26 {
            capabilities.remove("completions");
        }
        if let Some((name, tasks)) = self.tasks.capability(revision) {
            capabilities.set(name, tasks);
        }
        let mut result =
            RawObject::of("protocolVersion", revision.as_str()).with("capabilities", capabilities);
        match about.0.get("serverInfo") {
            Some(theirs) => result.set_raw("serverInfo", theirs.to_owned()),
            None => result.set("serverInfo", endpoint.options.info.implementation()),
        }
        result.set_some(
            "instructions",
            &endpoint.options.info.instructions_of(about),
        );
        result.to_raw()
    }

    fn set_level(&self, params: &Params) -> Outcome {
        let level = params
            .get(Member::Level)
            .and_then(|level| serde_json::from_str(level.get()).ok());
        let invalid =
            || RpcError::invalid_params("`level` must be one of RFC 5424's, in lower case");
        *self.log_level.lock() = level.ok_or_else(invalid)?;
        Ok(raw("{}".into()))
    }

    async fn subscribe(&self, params: &Params, call: CallMeta) -> Outcome {
        let uri = self.resource(params)?;
        let is_full = |state: &State| {
            state.subscriptions.len() >= SUBSCRIPTIONS_MAX
                && !state.subscriptions.contains_key(&uri)
        };
        let full = || RpcError::new(mcp::OVERLOADED, "too many subscriptions of this session");
        if is_full(&self.state.lock()) {
            return Err(full());
        }
        let watching = self
            .tasks
            .endpoint
            .changes
            .watch(&self.tasks.endpoint.adapter(), &uri, call)
            .await?;
        let mut state = self.state.lock();
        if state.closed || is_full(&state) {
            return Err(full());
        }
        state.subscriptions.insert(uri, watching);
        Ok(raw("{}".into()))
    }

    fn unsubscribe(&self, params: &Params) -> Outcome {
        let uri = self.resource(params)?;
        let watching = self.state.lock().subscriptions.remove(&uri);
        drop(watching);
        Ok(raw("{}".into()))
    }

    /// Which resource is meant.
    fn resource(&self, params: &Params) -> Result<String, RpcError> {
        if !self.tasks.endpoint.adapter().has_resources() {
            return Err(RpcError::method_not_found(
                "method not found: there are no resources here",
            ));
        }
        params.check_object()?;
        let uri = params
            .uri()
            .filter(|uri| uri.len() <= SUBSCRIPTION_URI_BYTES_MAX)
            .map(Cow::into_owned);
        uri.ok_or_else(|| RpcError::invalid_params("`uri` must be a string of at most 8 KiB"))
    }
}

/// What a session knows of its client.
pub(crate) struct Client {
    /// What both speak.
    revision: Revision,
    /// What it can be asked, as far as the revision has it.
    abilities: Abilities,
}

impl Client {
    /// Reads the params of `initialize`. A revision that isn't spoken here, or is of the other era, is answered with the
    /// newest legacy one: the client decides whether that will do (2025-11-25, lifecycle).
    ///
    /// # Errors
    /// `INVALID_PARAMS` where a member has the wrong type.
    fn read(params: Option<&RawValue>) -> Result<Self, RpcError> {
        let params = object(params)?;
        let wanted = params
            .text("protocolVersion")
            .ok_or_else(|| invalid("`protocolVersion` must be a string"))?;
        let spoken = Revision::parse(&wanted).filter(|revision| revision.era() == Era::Legacy);
        let revision = spoken.unwrap_or(Revision::LATEST_LEGACY);
        let capabilities = match params.get("capabilities") {
            None => RawObject::new(),
            Some(raw) => {
                RawObject::parse(raw).map_err(|_| invalid("`capabilities` must be an object"))?
            }
        };
        if params
            .get("clientInfo")
            .is_some_and(|info| !info.get().starts_with('{'))
        {
            return Err(invalid("`clientInfo` must be an object"));
        }
        Ok(Self {
            revision,
            abilities: known_to(revision, capabilities),
        })
    }
}

fn invalid(why: &str) -> RpcError {
    RpcError::invalid_params(why)
}

/// What of a client's capabilities may be used: a revision before a question has never heard of it.
fn known_to(revision: Revision, mut capabilities: RawObject) -> Abilities {
    if revision < Revision::V2025_06_18 {
        capabilities.remove("elicitation");
    }
    if revision < Revision::V2025_11_25 {
        if let Some(mut elicitation) = capabilities.object("elicitation") {
            elicitation.remove("url");
            capabilities.set("elicitation", elicitation);
        }
        if let Some(mut sampling) = capabilities.object("sampling") {
            sampling.remove("tools");
            capabilities.set("sampling", sampling);
        }
    }
    Abilities(capabilities)
}

/// Answers the messages of a batch (2025-03-26 only), all at once, in one batch; `None` where none of them wants an answer.
pub(crate) async fn batch(
    session: &Arc<Session>,
    body: &[u8],
    sink: &Arc<dyn MessageSink>,
) -> Option<Vec<u8>> {
    let entries = match decode_body(body, &session.tasks.endpoint.options.limits) {
        Ok(Body::Batch(entries)) => entries,
        Ok(Body::One(_)) => return None,
        Err(refusal) => return Some(encode_refusal(&refusal)),
    };
    let answers = entries.into_iter().map(|entry| async move {
        let message = match entry {
            Ok(message) => Message::from(message),
            Err(refusal) => return Some(encode_refusal(&refusal)),
        };
        let (id, request) = session.hear(message)?;
        if request.method == Method::Initialize {
            let error = RpcError::invalid_request("`initialize` must not be part of a batch");
            return Some(encode_error(Some(&id), &error));
        }
        session.request(id, request, sink.clone()).await
    });
    encode_batch(join_all(answers).await.into_iter().flatten())
}
