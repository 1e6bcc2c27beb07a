//! Legacy era: sessions that begin with `initialize` (2024-11-05 … 2025-11-25), on any transport.
//!
//! A transport opens a [`LegacySession`] for a client, passes it the client's messages, and writes
//! its responses. Progress, log messages and questions of a request go to the sink that the
//! transport passed with the request.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};

use callboard_message::capabilities::{
    CallerCapabilities, CapabilityChange, DescribeAgentResult, LogLevel,
};
use callboard_message::json::raw_from_written;
use callboard_message::{Principal, RawObject};
use callboard_rpc::{
    RequestId, RpcBody, RpcError, RpcNotification, decode_body, encode_batch,
    encode_decode_failure, encode_error, encode_notification,
};
use callboard_runtime::{CallContext, CallOrigin, Caller, PeerSession};
use futures::future::join_all;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::agent_adapter::RpcResult;
use super::client_messages::MessageSink;
use super::endpoint::{ChangeSubscription, ResourceSubscription, change_notification};
use super::options::{
    CHANGE_INTERVAL, PENDING_REQUESTS_MAX, SUBSCRIPTION_URI_BYTES_MAX, SUBSCRIPTIONS_MAX,
};
use super::request::{
    ClientMessage, McpMethod, McpRequest, MetaName, ParamName, RequestParams, RunningRequests,
    parse_params_object,
};
use super::response::{self, EncodedResponse, RequestResult, ResponseForm};
use super::tasks::{TaskRequest, TaskService};
use crate::change_damper::ChangeDamper;
use crate::wire::{Era, Revision, code as mcp, hmcp};
use caller::{SessionCaller, SessionElicitations};

mod caller;

/// One session of the legacy era. The transport owns it, and closes it when the client is gone.
pub(crate) struct LegacySession {
    tasks: Arc<TaskService>,
    /// Principal that opened the session.
    pub principal: Arc<Principal>,
    /// Sink for messages that no request caused.
    unsolicited: Arc<dyn MessageSink>,
    /// Properties of the client, set by `initialize`.
    client: OnceLock<InitializedClient>,
    /// Minimum level of the log messages that are sent to the client.
    log_level: Mutex<LogLevel>,
    /// Open questions to the client.
    pub questions: SessionElicitations,
    running: RunningRequests,
    state: Mutex<SessionState>,
    /// Subscription to the agent's changes. Its number identifies the session within this process.
    change_subscription: ChangeSubscription,
    /// Damper of the changes that the client is notified of.
    changes: ChangeDamper,
    /// View of the session for agents: a caller for messages outside requests, the session's end,
    /// and changes of the client's roots.
    peer: Arc<PeerSession>,
    /// Cancelled once the client is initialized. Before, it gets no questions and no notifications of
    /// changes (2025-11-25, lifecycle).
    initialized: CancellationToken,
    closed: CancellationToken,
}

#[derive(Default)]
struct SessionState {
    subscriptions: HashMap<String, ResourceSubscription>,
    closed: bool,
}

impl LegacySession {
    /// Opens a session that waits for `initialize`. `unsolicited` receives messages that no request
    /// caused.
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
                questions: SessionElicitations::default(),
                running: RunningRequests::new(PENDING_REQUESTS_MAX),
                state: Mutex::default(),
                change_subscription: tasks.endpoint.changes.subscribe(move |change| {
                    if let Some(session) = listener.upgrade() {
                        session.report_change(change);
                    }
                }),
                changes: {
                    let session = session.clone();
                    ChangeDamper::new(CHANGE_INTERVAL, None, move |change| {
                        if let Some(session) = session.upgrade() {
                            session.notify_change(change);
                        }
                        None
                    })
                },
                peer: Arc::new(PeerSession::new(over.clone(), Arc::new(background))),
                initialized: CancellationToken::new(),
                closed: over,
                tasks,
            }
        })
    }

    /// Returns the negotiated revision; `None` before `initialize`.
    pub fn revision(&self) -> Option<Revision> {
        self.client.get().map(|client| client.revision)
    }

    fn abilities(&self) -> CallerCapabilities {
        self.client
            .get()
            .map(|client| client.abilities.clone())
            .unwrap_or_default()
    }

    /// Executes one request and returns its response. Messages that the request causes go to `sink`.
    /// Dropping the future cancels the agent's call.
    pub async fn handle_request(
        self: &Arc<Self>,
        id: RequestId,
        request: McpRequest,
        sink: Arc<dyn MessageSink>,
    ) -> EncodedResponse {
        let outcome = match (request.method, self.revision()) {
            // These two belong to no initialized session.
            (McpMethod::Initialize, _) => Box::pin(self.initialize(&request.params)).await,
            (McpMethod::Ping, _) => Ok(empty_result()),
            (_, None) => Err(RpcError::invalid_request("send `initialize` first")),
            (_, Some(revision)) => {
                // Some clients never send `notifications/initialized`.
                self.initialized.cancel();
                let (call, cancel) = self.call_context(&request.params, sink);
                match self.running.register(&id, &cancel) {
                    Err(refused) => Err(refused),
                    Ok(_running) => tokio::select! {
                        biased;
                        () = cancel.cancelled() => return EncodedResponse::cancelled(),
                        outcome = self.dispatch(&request, revision, call) => outcome,
                    },
                }
            }
        };
        let outcome = outcome.map(RequestResult::Complete);
        response::finish(&id, request.method, ResponseForm::Legacy, outcome)
    }

    /// Returns the context of a request's call, and the token that cancels it.
    fn call_context(
        self: &Arc<Self>,
        params: &RequestParams,
        sink: Arc<dyn MessageSink>,
    ) -> (CallContext, CancellationToken) {
        let mut call = CallContext::new(self.principal.clone());
        let cancel = call.cancel.clone();
        (call.trace, call.hops) = (params.trace(), params.hops());
        call.origin = CallOrigin {
            version: self.revision().map_or("", Revision::as_str),
            ..CallOrigin::MCP
        };
        call.caller = Some(self.caller(sink, cancel.clone(), params));
        call.session = Some(self.peer.clone());
        (call, cancel)
    }

    /// Returns the client as the caller of a request with these params.
    fn caller(
        self: &Arc<Self>,
        sink: Arc<dyn MessageSink>,
        ended: CancellationToken,
        params: &RequestParams,
    ) -> Arc<dyn Caller> {
        let token = params.meta(MetaName::ProgressToken);
        let session = Arc::downgrade(self);
        Arc::new(SessionCaller::new(session, sink, ended, token))
    }

    /// Dispatch table of the legacy era: one row a method, for requests of an initialized session.
    /// Futures of rare methods are boxed, so that the others don't carry their state.
    async fn dispatch(
        self: &Arc<Self>,
        request: &McpRequest,
        revision: Revision,
        call: CallContext,
    ) -> RpcResult {
        use super::tasks::legacy as task;
        use McpMethod as M;
        let (tasks, params) = (&self.tasks, &request.params);
        let (agent, has_tasks) = (tasks.endpoint.adapter(), tasks.serves(revision));
        let about = |call| self.task_request(request, revision, call);
        match request.method {
            M::SetLevel => self.set_level(params),
            M::Subscribe => Box::pin(self.subscribe(params, call)).await,
            M::Unsubscribe => self.unsubscribe(params),
            M::CallTool if has_tasks && task::begins_task(tasks, params)? => {
                Box::pin(task::start(tasks, &about(call))).await
            }
            M::CallTool => agent.call_tool(request, revision, call).await,
            M::ListTools => agent.list_tools(request, revision, call).await,
            M::ListResources | M::ListResourceTemplates => {
                agent.list_resources(request, revision, call).await
            }
            M::ReadResource => agent.read_resource(request, revision, call).await,
            M::CreateMessage => agent.create_message(request, revision, call).await,
            M::ListPrompts | M::GetPrompt | M::Complete => {
                agent.ask_or_forward(request, revision, call).await
            }
            M::GetTask if has_tasks => Box::pin(task::get(tasks, &about(call))).await,
            M::TaskResult if has_tasks => Box::pin(task::wait_result(tasks, &about(call))).await,
            M::ListTasks if has_tasks => Box::pin(task::list(tasks, &about(call))).await,
            M::CancelTask if has_tasks => Box::pin(task::cancel(tasks, &about(call))).await,
            // Methods of other revisions, and unknown ones, which a remote server may know.
            M::GetTask
            | M::TaskResult
            | M::ListTasks
            | M::UpdateTask
            | M::CancelTask
            | M::Initialize
            | M::Ping
            | M::Discover
            | M::Listen
            | M::Other => agent.forward(request, revision, call).await,
        }
    }

    fn task_request<'a>(
        self: &'a Arc<Self>,
        request: &'a McpRequest,
        revision: Revision,
        call: CallContext,
    ) -> TaskRequest<'a> {
        let background = move |over| self.caller(self.unsolicited.clone(), over, &request.params);
        TaskRequest {
            request,
            revision,
            call,
            session: Some(self.change_subscription.number),
            client: self.abilities(),
            background: Some(Box::new(background)),
            unsolicited: Some(self.unsolicited.clone()),
        }
    }

    /// Handles a client's notification. Unknown ones are ignored.
    pub fn handle_notification(&self, notification: &RpcNotification<'_>) {
        match &*notification.method {
            "notifications/initialized" => self.initialized.cancel(),
            "notifications/roots/list_changed" => {
                self.peer
                    .roots_changed
                    .send_modify(|count| *count = count.wrapping_add(1));
            }
            "notifications/cancelled" => _ = self.running.cancel(notification.params),
            _ => {}
        }
    }

    /// Closes the session: cancels running requests, ends subscriptions and fails open questions.
    /// Further requests are rejected.
    pub fn close(&self) {
        self.closed.cancel();
        let last = std::mem::replace(
            &mut *self.state.lock(),
            SessionState {
                closed: true,
                ..SessionState::default()
            },
        );
        self.running.close();
        drop(last);
        self.questions.close();
    }

    /// Notifies the client of a change of a list, or of a resource that it has subscribed to, at
    /// most once per [`CHANGE_INTERVAL`].
    fn report_change(&self, change: &CapabilityChange) {
        if self.wants_change(change) {
            self.changes.report(change);
        }
    }

    fn wants_change(&self, change: &CapabilityChange) -> bool {
        let state = self.state.lock();
        let is_watched = match change {
            CapabilityChange::Resource(uri) => state.subscriptions.contains_key(uri),
            _ => true,
        };
        is_watched && !state.closed && self.initialized.is_cancelled()
    }

    fn notify_change(&self, change: &CapabilityChange) {
        let Some((method, params)) = change_notification(change) else {
            return;
        };
        // It may have changed its subscriptions meanwhile.
        if !self.wants_change(change) {
            return;
        }
        let params = (!params.is_empty()).then(|| params.to_raw());
        self.unsolicited
            .send_once(encode_notification(method, params.as_deref()).into());
    }

    async fn initialize(&self, params: &RequestParams) -> RpcResult {
        let twice =
            || RpcError::invalid_request("the session is initialized already: begin another one");
        if self.client.get().is_some() {
            return Err(twice());
        }
        let client = InitializedClient::from_params(params.raw())?;
        let revision = client.revision;
        // Set before the description, which a remote server gives in a session that is opened with
        // this client's capabilities.
        self.client.set(client).map_err(|_| twice())?;
        let mut call = CallContext::new(self.principal.clone());
        call.hops = params.hops();
        call.caller = Some(self.peer.caller.clone());
        call.session = Some(self.peer.clone());
        let about = self.tasks.endpoint.adapter().describe(call).await;
        Ok(self.initialize_result(revision, &about))
    }

    fn initialize_result(&self, revision: Revision, about: &DescribeAgentResult) -> Box<RawValue> {
        let endpoint = &self.tasks.endpoint;
        let mut capabilities = endpoint.adapter().capabilities(about);
        hmcp::copy_to_extensions(&mut capabilities, false);
        if revision < Revision::V2025_03_26 {
            capabilities.remove("completions");
        }
        if let Some((name, tasks)) = self.tasks.capability(revision) {
            capabilities.set(name, tasks);
        }
        let mut result = RawObject::single("protocolVersion", revision.as_str())
            .with("capabilities", capabilities);
        let info = &endpoint.options.info;
        let theirs = info.implementation_of(about);
        result.set(
            "serverInfo",
            theirs.unwrap_or_else(|| info.implementation()),
        );
        result.set_some("instructions", &info.instructions_of(about));
        result.to_raw()
    }

    fn set_level(&self, params: &RequestParams) -> RpcResult {
        let level = params
            .get(ParamName::Level)
            .and_then(|level| serde_json::from_str(level.get()).ok());
        let invalid = || {
            RpcError::invalid_params(
                "`level` must be debug, info, notice, warning, error, critical, alert or emergency",
            )
        };
        let level = level.ok_or_else(invalid)?;
        *self.log_level.lock() = level;
        self.peer.log_level.send_replace(Some(level));
        Ok(empty_result())
    }

    async fn subscribe(&self, params: &RequestParams, call: CallContext) -> RpcResult {
        let uri = self.requested_uri(params)?;
        let is_full = |state: &SessionState| {
            state.subscriptions.len() >= SUBSCRIPTIONS_MAX
                && !state.subscriptions.contains_key(&uri)
        };
        let full = || {
            RpcError::new(
                mcp::OVERLOADED,
                format!(
                    "this session has {SUBSCRIPTIONS_MAX} subscriptions, which is the limit: end one first"
                ),
            )
        };
        if is_full(&self.state.lock()) {
            return Err(full());
        }
        let watching = self
            .tasks
            .endpoint
            .changes
            .subscribe_resource(&self.tasks.endpoint.adapter(), &uri, call)
            .await?;
        let mut state = self.state.lock();
        if state.closed || is_full(&state) {
            return Err(full());
        }
        state.subscriptions.insert(uri, watching);
        Ok(empty_result())
    }

    fn unsubscribe(&self, params: &RequestParams) -> RpcResult {
        let uri = self.requested_uri(params)?;
        let watching = self.state.lock().subscriptions.remove(&uri);
        drop(watching);
        Ok(empty_result())
    }

    /// Returns the `uri` of a subscription request.
    ///
    /// # Errors
    /// `METHOD_NOT_FOUND` if the agent has no resources, `INVALID_PARAMS` if the URI is missing or
    /// too long.
    fn requested_uri(&self, params: &RequestParams) -> Result<String, RpcError> {
        if !self.tasks.endpoint.adapter().has_resources() {
            return Err(RpcError::method_not_found(
                "method not found: there are no resources here",
            ));
        }
        params.check_object()?;
        let uri = params
            .text(ParamName::Uri)
            .filter(|uri| uri.len() <= SUBSCRIPTION_URI_BYTES_MAX)
            .map(Cow::into_owned);
        uri.ok_or_else(|| RpcError::invalid_params("`uri` must be a string of at most 8 KiB"))
    }
}

impl Drop for LegacySession {
    /// Ends the session for agents, if `initialize` was given up before a transport owned it.
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

/// Revision and capabilities negotiated with a client by `initialize`.
pub(crate) struct InitializedClient {
    /// Negotiated revision.
    revision: Revision,
    /// Client capabilities, without those that the revision doesn't have.
    abilities: CallerCapabilities,
}

impl InitializedClient {
    /// Parses the params of `initialize`. If the requested revision is unsupported or of the modern
    /// era, the latest legacy one is chosen, and the client decides whether to continue
    /// (2025-11-25, lifecycle).
    ///
    /// # Errors
    /// `INVALID_PARAMS` if a member is missing or has the wrong type.
    fn from_params(params: Option<&RawValue>) -> Result<Self, RpcError> {
        let params = parse_params_object(params)?;
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
            abilities: revision_capabilities(revision, capabilities),
        })
    }
}

fn invalid(why: &str) -> RpcError {
    RpcError::invalid_params(why)
}

fn empty_result() -> Box<RawValue> {
    raw_from_written("{}".into())
}

/// Removes the client capabilities that a revision doesn't have.
fn revision_capabilities(revision: Revision, mut capabilities: RawObject) -> CallerCapabilities {
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
    CallerCapabilities(capabilities)
}

/// Executes the messages of a JSON-RPC batch concurrently (2025-03-26 only). Returns the batch of
/// responses; `None` if no message needs a response.
pub(crate) async fn answer_batch(
    session: &Arc<LegacySession>,
    body: &[u8],
    sink: &Arc<dyn MessageSink>,
) -> Option<Vec<u8>> {
    let entries = match decode_body(body, &session.tasks.endpoint.options.limits) {
        Ok(RpcBody::Batch(entries)) => entries,
        Ok(RpcBody::One(_)) => return None,
        Err(refusal) => return Some(encode_decode_failure(&refusal)),
    };
    let answers = entries.into_iter().map(|entry| async move {
        match entry.map(ClientMessage::from) {
            Ok(ClientMessage::Request(id, request)) if request.method == McpMethod::Initialize => {
                let error = RpcError::invalid_request("`initialize` must not be part of a batch");
                return Some(encode_error(Some(&id), &error));
            }
            Ok(ClientMessage::Request(id, request)) => {
                return session.handle_request(id, request, sink.clone()).await.body;
            }
            Ok(ClientMessage::Notification(notification)) => {
                session.handle_notification(&notification)
            }
            Ok(ClientMessage::Response(response)) => session.questions.handle_response(response),
            Err(refusal) => return Some(encode_decode_failure(&refusal)),
        }
        None
    });
    encode_batch(join_all(answers).await.into_iter().flatten())
}
