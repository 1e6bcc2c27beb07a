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
use callboard_runtime::{AgentRef, CallContext, CallOrigin, PrincipalShares};
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::agent_adapter::{AgentAdapter, AgentHandler, RpcResult};
use super::client_messages::MessageSink;
use super::endpoint::AgentEndpoint;
use super::options::InboundOptions;
use super::request::{McpMethod, McpRequest, ParamName};
use super::response::{self, EncodedResponse, RequestResult, ResponseForm, ResultMembers};
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
    subscriptions: Arc<PrincipalShares>,
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
        Arc::new(Self {
            calls: SuspendedCalls::new(options),
            subscriptions: PrincipalShares::new(
                options.modern.subscriptions_max,
                options.principal_share_percent,
            ),
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
        Ok(meta) => {
            let request = ModernRequest {
                service,
                principal,
                id,
                request,
                meta,
                sink,
                hung_up: &hung_up,
            };
            request.dispatch().await
        }
        Err(error) => return bad_request(id, error),
    };
    let members = service.named_members.get().unwrap_or(&service.members);
    response::finish(id, method, ResponseForm::Modern(members), outcome)
}

/// Returns an error response with HTTP status 400, for a request that isn't valid in the modern
/// era.
pub(crate) fn bad_request(id: &RequestId, error: RpcError) -> EncodedResponse {
    EncodedResponse {
        status: StatusCode::BAD_REQUEST,
        ..EncodedResponse::error(Some(id), error)
    }
}

/// A request of the modern era that is being executed.
struct ModernRequest<'a> {
    service: &'a ModernService,
    principal: Arc<Principal>,
    id: &'a RequestId,
    request: McpRequest,
    meta: RequestMeta,
    sink: Arc<dyn MessageSink>,
    hung_up: &'a CancellationToken,
}

impl ModernRequest<'_> {
    /// Dispatch table of the modern era: one row a method.
    async fn dispatch(self) -> Result<RequestResult, RpcError> {
        use super::tasks::modern as task;
        use McpMethod as M;
        let service = self.service;
        let tasks = &service.tasks;
        // A retry belongs to the suspended call, not to a task.
        let has_tasks = self.meta.request_state.is_none() && tasks.serves(REVISION);
        match self.request.method {
            M::Discover => self.discover().await.map(RequestResult::Complete),
            M::Listen => listen::listen(self).await,
            M::CallTool
                if has_tasks
                    && task::begins_task(tasks, &self.request.params, &self.meta.abilities)? =>
            {
                let begun = task::start(tasks, &self.task_request()).await;
                begun.map(RequestResult::Complete)
            }
            M::CallTool => self.perform_interactive(AgentAdapter::call_tool).await,
            M::ReadResource => self.perform_interactive(AgentAdapter::read_resource).await,
            M::CreateMessage => self.perform_interactive(AgentAdapter::create_message).await,
            M::GetPrompt => self.perform_interactive(AgentAdapter::ask_or_forward).await,
            M::ListTools => self.perform(AgentAdapter::list_tools).await,
            M::ListResources | M::ListResourceTemplates => {
                self.perform(AgentAdapter::list_resources).await
            }
            M::ListPrompts | M::Complete => self.perform(AgentAdapter::ask_or_forward).await,
            M::GetTask if has_tasks => {
                let got = task::get(tasks, &self.task_request()).await;
                got.map(RequestResult::Complete)
            }
            M::UpdateTask if has_tasks => {
                let updated = task::update(tasks, &self.task_request()).await;
                updated.map(RequestResult::Complete)
            }
            M::CancelTask if has_tasks => {
                let cancelled = task::cancel(tasks, &self.task_request()).await;
                cancelled.map(RequestResult::Complete)
            }
            // Methods of other revisions, which the remote server of a proxy might answer.
            M::Initialize | M::Ping | M::SetLevel | M::Subscribe | M::Unsubscribe => {
                let unknown = format!("method not found: {}", self.request.name);
                Err(RpcError::method_not_found(unknown))
            }
            M::GetTask
            | M::TaskResult
            | M::ListTasks
            | M::UpdateTask
            | M::CancelTask
            | M::Other => self.perform(AgentAdapter::forward).await,
        }
    }

    fn call_context(&self) -> CallContext {
        CallContext {
            trace: self.meta.trace,
            origin: CallOrigin {
                version: REVISION.as_str(),
                ..CallOrigin::MCP
            },
            hops: self.meta.hops,
            ..CallContext::new(self.principal.clone())
        }
    }

    fn task_request(&self) -> TaskRequest<'_> {
        TaskRequest::modern(
            &self.request,
            self.call_context(),
            self.meta.abilities.clone(),
        )
    }

    /// Executes a request that can't ask the client questions.
    async fn perform(self, handler: AgentHandler) -> Result<RequestResult, RpcError> {
        let call = self.call_context();
        let sink = RequestSink::new(self.meta.progress, self.meta.log_level, &self.sink);
        let client = ModernCaller::new(sink, self.meta.abilities, None);
        let (service, hung_up) = (self.service, self.hung_up);
        perform_inline(
            service,
            handler,
            &self.request,
            Arc::new(client),
            call,
            hung_up,
        )
        .await
    }

    async fn discover(self) -> RpcResult {
        let call = self.call_context();
        let client = ModernCaller::new(None, self.meta.abilities, None);
        let (service, call) = (self.service, call.with_caller(Arc::new(client)));
        let endpoint = &service.tasks.endpoint;
        let about = endpoint.adapter().describe(call).await;
        if let Some(server) = endpoint.options.info.implementation_of(&about) {
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

    /// Resumes the suspended call that `state` names with the answers in the request, or hands it
    /// over to a task.
    async fn resume(mut self, state: &str) -> Result<RequestResult, RpcError> {
        let responses = self.meta.input_responses.take().unwrap_or_default();
        let sink = RequestSink::new(self.meta.progress.take(), self.meta.log_level, &self.sink);
        let task = self.task_request();
        let (service, abilities) = (self.service, &self.meta.abilities);
        let becomes_task = self.request.method == McpMethod::CallTool
            && service
                .tasks
                .asks_before_task(&self.request.params, abilities);
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
        let binding = StateBinding::new(&self.principal, &self.request);
        let retry = ResumeRequest {
            state,
            binding: &binding,
            abilities: abilities.clone(),
            responses,
            sink,
            adopt,
        };
        service.calls.resume(retry, self.hung_up).await
    }

    /// Executes a request during which the agent may ask the client questions. A question ends the
    /// request with `inputRequests` and suspends the call; a retry with `requestState` resumes it.
    async fn perform_interactive(
        mut self,
        handler: AgentHandler,
    ) -> Result<RequestResult, RpcError> {
        if let Some(state) = self.meta.request_state.take() {
            return self.resume(&state).await;
        }
        let call = self.call_context();
        let (service, hung_up, principal) = (self.service, self.hung_up, self.principal);
        let RequestMeta {
            abilities,
            log_level: level,
            progress: reports,
            input_responses: responses,
            ..
        } = self.meta;
        let sink = RequestSink::new(reports, level, &self.sink);
        let answerable = ["sampling", "elicitation", "roots"]
            .into_iter()
            .any(|ability| abilities.0.has(ability));
        let mut request = self.request;
        if responses.is_some() {
            // Answers are for this hop's questions: the agent gets the params without them.
            request.params = request.params.without(ParamName::InputResponses);
        }
        let elicitations =
            PendingElicitations::new(abilities.clone(), responses.unwrap_or_default());
        let questions = Some(elicitations.clone());
        let client = Arc::new(ModernCaller::new(sink, abilities, questions));
        if !answerable {
            return perform_inline(service, handler, &request, client, call, hung_up).await;
        }
        let request = Arc::new(request);
        let (agent, sent) = (service.tasks.endpoint.adapter(), request.clone());
        let (call, asked) = (call.with_caller(client.clone()), client.clone());
        let outcome = Box::pin(async move {
            perform_with_url_elicitation(&agent, handler, &sent, call, asked).await
        });
        let mut running = RunningCall {
            outcome,
            client,
            elicitations,
        };
        let step = running.run_until_input(hung_up).await;
        running.client.attach(None);
        match step {
            CallStep::Ended(outcome) => outcome.map(RequestResult::Complete),
            CallStep::HungUp => Err(cancelled_error()),
            CallStep::InputRequired(requests) => {
                let binding = StateBinding::new(&principal, &request);
                service
                    .calls
                    .suspend(running, requests, &principal, &binding)
            }
        }
    }
}

/// Executes a request whose call ends with it, because it needs no answers from the client.
async fn perform_inline(
    service: &ModernService,
    handler: AgentHandler,
    request: &McpRequest,
    client: Arc<ModernCaller>,
    call: CallContext,
    hung_up: &CancellationToken,
) -> Result<RequestResult, RpcError> {
    let agent = service.tasks.endpoint.adapter();
    let outcome = tokio::select! {
        biased;
        outcome = handler(&agent, request, REVISION, call.with_caller(client.clone())) => outcome,
        () = hung_up.cancelled() => Err(cancelled_error()),
    };
    client.attach(None);
    outcome.map(RequestResult::Complete)
}
