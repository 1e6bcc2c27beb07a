//! Modern, stateless era (2026-07-28): each request is self-contained, and a call's questions are
//! results.
//!
//! `request_meta` parses the metadata of a request. A call that asks questions is suspended
//! (`suspended_requests`) with its questions (`pending_elicitations`), and the client's next
//! request, tied to it by a `state_token`, resumes it.

use std::sync::{Arc, OnceLock};

use actix_web::http::StatusCode;
use callboard_message::{Principal, RawObject};
use callboard_rpc::{RequestId, RpcError};
use callboard_runtime::{AgentRef, CallContext};
use futures::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::agent_adapter::RpcResult;
use super::client_messages::MessageSink;
use super::endpoint::AgentEndpoint;
use super::options::InboundOptions;
use super::request::{McpMethod, McpRequest};
use super::response::{EncodedResponse, ModernResult, ResultMembers};
use super::tasks::{self, TaskRequest, TaskService};
use crate::wire::{Revision, hmcp};
use pending_elicitations::{
    ModernCaller, PendingElicitations, RequestSink, perform_with_url_elicitation,
};
use request_meta::{RequestMeta, supported_versions};
use state_token::StateBinding;
use suspended_requests::{
    AdoptAsTask, CallStep, ResumeRequest, RunningCall, SuspendedCalls, cancelled_error,
};

pub(crate) use request_meta::{HeaderField, check_headers};

mod listen;
pub(crate) mod pending_elicitations;
mod request_meta;
mod state_token;
mod suspended_requests;
#[cfg(test)]
mod tests;

const REVISION: Revision = Revision::V2026_07_28;

/// MCP server of one agent in the modern era: its tasks, suspended calls and subscriptions.
pub(crate) struct ModernService {
    pub tasks: Arc<TaskService>,
    calls: Arc<SuspendedCalls>,
    subscriptions: Semaphore,
    /// Cancelled when streams that no request keeps open end, and subscriptions with them.
    pub closing: CancellationToken,
    members: ResultMembers,
    /// Members added to results, with the server's name as the agent itself reports it. Set by
    /// `server/discover`.
    named_members: OnceLock<ResultMembers>,
}

impl ModernService {
    pub fn new(agent: AgentRef, options: InboundOptions) -> Arc<Self> {
        let tasks = TaskService::new(AgentEndpoint::new(agent, options));
        let options = &tasks.endpoint.options;
        let subscriptions_max = options.modern.subscriptions_max.min(Semaphore::MAX_PERMITS);
        Arc::new(Self {
            calls: SuspendedCalls::new(options),
            subscriptions: Semaphore::new(subscriptions_max),
            closing: CancellationToken::new(),
            members: ResultMembers::new(&options.modern, options.info.implementation()),
            named_members: OnceLock::new(),
            tasks,
        })
    }

    /// Ends all subscriptions normally, and the streams that no request keeps open.
    pub fn end_streams(&self) {
        self.closing.cancel();
    }

    /// Ends all subscriptions normally, cancels suspended calls, and stops serving tasks.
    pub fn close(&self) {
        self.end_streams();
        self.calls.close();
        self.tasks.close();
    }
}

/// Returns the error for a client that sends a JSON-RPC response. In the modern era servers send no
/// requests that could be answered.
pub(crate) fn reject_response() -> EncodedResponse {
    let why = "responses aren't accepted: answers go into `inputResponses` of a request";
    EncodedResponse::error(None, RpcError::invalid_request(why))
}

/// Executes one request. Messages that the request causes go to `sink`. The request is cancelled
/// when `hung_up` is cancelled or the future is dropped.
pub(crate) async fn handle_request(
    service: &ModernService,
    principal: Arc<Principal>,
    id: &RequestId,
    request: McpRequest,
    sink: Arc<dyn MessageSink>,
    hung_up: CancellationToken,
) -> EncodedResponse {
    let method = request.method;
    let outcome = match RequestMeta::parse(&request.params) {
        Ok(meta) => dispatch(service, principal, id, request, meta, sink, &hung_up).await,
        Err(error) => return bad_request(id, error),
    };
    service
        .named_members
        .get()
        .unwrap_or(&service.members)
        .encode_response(id, method, outcome)
}

/// Returns an error response with HTTP status 400, for a request that isn't valid in the modern
/// era.
pub(crate) fn bad_request(id: &RequestId, error: RpcError) -> EncodedResponse {
    EncodedResponse {
        status: StatusCode::BAD_REQUEST,
        ..EncodedResponse::error(Some(id), error)
    }
}

async fn dispatch(
    service: &ModernService,
    principal: Arc<Principal>,
    id: &RequestId,
    request: McpRequest,
    meta: RequestMeta,
    sink: Arc<dyn MessageSink>,
    hung_up: &CancellationToken,
) -> Result<ModernResult, RpcError> {
    if meta.request_state.is_none() && service.tasks.handles_method(request.method) {
        let call = call_context(&principal, &meta);
        let request = TaskRequest::modern(&request, &call, &meta.abilities);
        if let Some(outcome) = service.tasks.perform(request).await {
            return outcome.map(ModernResult::Complete);
        }
    }
    match request.method {
        McpMethod::Discover => {
            let call = call_context(&principal, &meta);
            let client = ModernCaller::new(None, meta.abilities, None);
            discover(service, call.with_caller(Arc::new(client)))
                .await
                .map(ModernResult::Complete)
        }
        McpMethod::Listen => {
            listen::listen(
                service,
                principal,
                id,
                &request.params,
                &meta.abilities,
                sink,
                hung_up,
            )
            .await
        }
        McpMethod::CallTool
        | McpMethod::GetPrompt
        | McpMethod::ReadResource
        | McpMethod::CreateMessage => {
            perform_interactive(service, principal, request, meta, sink, hung_up).await
        }
        // Methods of other revisions, which the remote server of a proxy might answer.
        McpMethod::Initialize
        | McpMethod::Ping
        | McpMethod::SetLevel
        | McpMethod::Subscribe
        | McpMethod::Unsubscribe => Err(RpcError::method_not_found(format!(
            "method not found: {}",
            request.name
        ))),
        _ => {
            let call = call_context(&principal, &meta);
            let client = Arc::new(ModernCaller::new(
                RequestSink::new(meta.progress, meta.log_level, &sink),
                meta.abilities,
                None,
            ));
            perform_inline(service, &request, client, call, hung_up).await
        }
    }
}

fn call_context(principal: &Arc<Principal>, meta: &RequestMeta) -> CallContext {
    CallContext {
        trace: meta.trace,
        ..CallContext::new(principal.clone())
    }
}

/// Executes a request whose call ends with it, because it needs no answers from the client.
async fn perform_inline(
    service: &ModernService,
    request: &McpRequest,
    client: Arc<ModernCaller>,
    call: CallContext,
    hung_up: &CancellationToken,
) -> Result<ModernResult, RpcError> {
    let adapter = service.tasks.endpoint.adapter();
    let outcome = tokio::select! {
        biased;
        outcome = adapter.perform(request, REVISION, call.with_caller(client.clone())) => outcome,
        () = hung_up.cancelled() => Err(cancelled_error()),
    };
    client.attach(None);
    outcome.map(ModernResult::Complete)
}

async fn discover(service: &ModernService, call: CallContext) -> RpcResult {
    let endpoint = &service.tasks.endpoint;
    let about = endpoint.adapter().describe(call).await;
    if let Some(server) = about.0.object("serverInfo") {
        service
            .named_members
            .get_or_init(|| ResultMembers::new(&endpoint.options.modern, server));
    }
    let mut capabilities = endpoint.adapter().capabilities(&about);
    hmcp::copy_to_extensions(&mut capabilities, true);
    if let Some((_, tasks)) = service.tasks.capability(REVISION) {
        let mut extensions = capabilities.object("extensions").unwrap_or_default();
        tasks
            .iter()
            .for_each(|(name, settings)| extensions.set_raw(name, settings.to_owned()));
        capabilities.set("extensions", extensions);
    }
    let mut result = RawObject::single(
        "supportedVersions",
        supported_versions().collect::<Vec<_>>(),
    );
    result.set("capabilities", capabilities);
    result.set_some(
        "instructions",
        &endpoint.options.info.instructions_of(&about),
    );
    // It may change soon, for example because a part of the agent is missing.
    result.set_some("ttlMs", &about.0.get("ttlMs"));
    Ok(result.to_raw())
}

/// Resumes the suspended call that `state` names with the answers in `meta`, or hands it over to a
/// task.
async fn retry_call(
    service: &ModernService,
    principal: &Arc<Principal>,
    request: &McpRequest,
    meta: RequestMeta,
    state: &str,
    sink: &Arc<dyn MessageSink>,
    hung_up: &CancellationToken,
) -> Result<ModernResult, RpcError> {
    let call = call_context(principal, &meta);
    let RequestMeta {
        abilities,
        log_level: level,
        progress: reports,
        input_responses: responses,
        ..
    } = meta;
    let sink = RequestSink::new(reports, level, sink);
    let becomes_task = request.method == McpMethod::CallTool
        && service.tasks.asks_before_task(&request.params, &abilities);
    let task = TaskRequest::modern(request, &call, &abilities);
    let adopt = |call: RunningCall| -> BoxFuture<'_, _> {
        let RunningCall {
            outcome,
            client: caller,
            ..
        } = call;
        let hand_over = move |successor| caller.hand_over(successor);
        Box::pin(tasks::adopt_call(&service.tasks, &task, outcome, hand_over))
    };
    let adopt = becomes_task.then_some(&adopt as AdoptAsTask<'_>);
    let (responses, binding) = (
        responses.unwrap_or_default(),
        StateBinding::new(principal, request),
    );
    let retry = ResumeRequest {
        state,
        binding: &binding,
        abilities: abilities.clone(),
        responses,
        sink,
        adopt,
    };
    service.calls.resume(retry, hung_up).await
}

/// Executes a request during which the agent may ask the client questions. A question ends the
/// request with `inputRequests` and suspends the call; a retry with `requestState` resumes it.
async fn perform_interactive(
    service: &ModernService,
    principal: Arc<Principal>,
    mut request: McpRequest,
    mut meta: RequestMeta,
    sink: Arc<dyn MessageSink>,
    hung_up: &CancellationToken,
) -> Result<ModernResult, RpcError> {
    if let Some(state) = meta.request_state.take() {
        let retry = retry_call(service, &principal, &request, meta, &state, &sink, hung_up);
        return retry.await;
    }
    let call = call_context(&principal, &meta);
    let RequestMeta {
        abilities,
        log_level: level,
        progress: reports,
        input_responses: responses,
        ..
    } = meta;
    let sink = RequestSink::new(reports, level, &sink);
    let answerable = ["sampling", "elicitation", "roots"]
        .into_iter()
        .any(|ability| abilities.0.has(ability));
    if responses.is_some() {
        // Answers are for this hop's questions: the agent gets the params without them.
        let mut params = request
            .params
            .raw()
            .and_then(|raw| RawObject::parse(raw).ok())
            .unwrap_or_default();
        params.remove("inputResponses");
        request = McpRequest::new(request.name, Some(params.to_raw()));
    }
    let elicitations = PendingElicitations::new(abilities.clone(), responses.unwrap_or_default());
    let client = Arc::new(ModernCaller::new(
        sink,
        abilities,
        Some(elicitations.clone()),
    ));
    if !answerable {
        return perform_inline(service, &request, client, call, hung_up).await;
    }
    let request = Arc::new(request);
    let (adapter, sent) = (service.tasks.endpoint.adapter(), request.clone());
    let (call, asked) = (call.with_caller(client.clone()), client.clone());
    let outcome =
        Box::pin(async move { perform_with_url_elicitation(&adapter, &sent, call, asked).await });
    let mut running = RunningCall {
        outcome,
        client,
        elicitations,
    };
    let step = running.run_until_input(hung_up).await;
    running.client.attach(None);
    match step {
        CallStep::Ended(outcome) => outcome.map(ModernResult::Complete),
        CallStep::HungUp => Err(cancelled_error()),
        CallStep::InputRequired(requests) => {
            let binding = StateBinding::new(&principal, &request);
            service
                .calls
                .suspend(running, requests, principal, &binding)
        }
    }
}
