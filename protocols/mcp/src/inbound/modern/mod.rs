//! The stateless era (2026-07-28): each request says all there is to know, a call's questions are results.
//!
//! `request_meta` reads what a request says of itself. A call that asks is suspended (`suspended_requests`), its questions are
//! kept (`pending_elicitations`), and the client's next request, tied to it by a `state_token`, goes on with it.

use std::sync::{Arc, OnceLock};

use actix_web::http::StatusCode;
use callboard_message::{Principal, RawObject};
use callboard_rpc::{Id, RpcError};
use callboard_runtime::{AgentRef, CallMeta};
use futures::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::agent_adapter::Outcome;
use super::client::MessageSink;
use super::endpoint::Endpoint;
use super::options::InboundOptions;
use super::request::{Method, Request};
use super::response::{Answer, Members, Reply};
use super::tasks::{self, TaskRequest, TaskService};
use crate::wire::{Revision, hmcp};
use pending_elicitations::{Client, PendingElicitations, RequestSink, perform_with_visits};
use request_meta::{RequestMeta, spoken_versions};
use state_token::Binding;
use suspended_requests::{Adopt, Retry, RunningCall, Step, SuspendedCalls, cancelled};

pub(crate) use request_meta::{Field, check_headers};

mod listen;
pub(crate) mod pending_elicitations;
mod request_meta;
mod state_token;
mod suspended_requests;
#[cfg(test)]
mod tests;

const REVISION: Revision = Revision::V2026_07_28;

/// An endpoint as the stateless era serves it.
pub(crate) struct ModernService {
    pub tasks: Arc<TaskService>,
    calls: Arc<SuspendedCalls>,
    subscriptions: Semaphore,
    closing: CancellationToken,
    members: Members,
    /// The same in the name that the agent gave itself, once it was asked.
    named: OnceLock<Members>,
}

impl ModernService {
    pub fn new(agent: AgentRef, options: InboundOptions) -> Arc<Self> {
        let tasks = TaskService::new(Endpoint::new(agent, options));
        let options = &tasks.endpoint.options;
        let subscriptions_max = options.modern.subscriptions_max.min(Semaphore::MAX_PERMITS);
        Arc::new(Self {
            calls: SuspendedCalls::new(options),
            subscriptions: Semaphore::new(subscriptions_max),
            closing: CancellationToken::new(),
            members: Members::new(&options.modern, options.info.implementation()),
            named: OnceLock::new(),
            tasks,
        })
    }

    /// Ends subscriptions, each with its result, cancels the calls that wait for answers, and leaves the tasks.
    pub fn close(&self) {
        self.closing.cancel();
        self.calls.close();
        self.tasks.leave();
    }
}

/// What answers a JSON-RPC response that a client sends in this era: nobody asked it anything.
pub(crate) fn response_refused() -> Answer {
    let why = "responses aren't accepted: answers go into `inputResponses` of a request";
    Answer::error(None, RpcError::invalid_request(why))
}

/// Answers one request. What it causes meanwhile goes by `sink`; when `hung_up` fires, or this is dropped, it is cancelled.
pub(crate) async fn request(
    service: &ModernService,
    principal: Arc<Principal>,
    id: &Id,
    request: Request,
    sink: Arc<dyn MessageSink>,
    hung_up: CancellationToken,
) -> Answer {
    let method = request.method;
    let outcome = match RequestMeta::read(&request.params) {
        Ok(meta) => dispatch(service, principal, id, request, meta, sink, &hung_up).await,
        Err(error) => return bad_request(id, error),
    };
    service
        .named
        .get()
        .unwrap_or(&service.members)
        .finish(id, method, outcome)
}

/// The answer to a request that isn't one of this era: an error with the status 400.
pub(crate) fn bad_request(id: &Id, error: RpcError) -> Answer {
    Answer {
        status: StatusCode::BAD_REQUEST,
        ..Answer::error(Some(id), error)
    }
}

async fn dispatch(
    service: &ModernService,
    principal: Arc<Principal>,
    id: &Id,
    request: Request,
    meta: RequestMeta,
    sink: Arc<dyn MessageSink>,
    hung_up: &CancellationToken,
) -> Result<Reply, RpcError> {
    if meta.state.is_none() && service.tasks.concerns(request.method) {
        let call = call(&principal, &meta);
        let request = TaskRequest::modern(&request, &call, &meta.abilities);
        if let Some(outcome) = service.tasks.perform(request).await {
            return outcome.map(Reply::Complete);
        }
    }
    match request.method {
        Method::Discover => discover(service, call(&principal, &meta))
            .await
            .map(Reply::Complete),
        Method::Listen => {
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
        Method::CallTool | Method::GetPrompt | Method::ReadResource | Method::CreateMessage => {
            may_ask(service, principal, request, meta, sink, hung_up).await
        }
        // What other revisions had, and an agent that stands for one of their servers would answer.
        Method::Initialize
        | Method::Ping
        | Method::SetLevel
        | Method::Subscribe
        | Method::Unsubscribe => Err(RpcError::method_not_found(format!(
            "method not found: {}",
            request.name
        ))),
        _ => {
            let call = call(&principal, &meta);
            let client = Arc::new(Client::new(
                RequestSink::of(meta.reports, meta.level, &sink),
                None,
            ));
            perform_here(service, &request, client, call, hung_up).await
        }
    }
}

fn call(principal: &Arc<Principal>, meta: &RequestMeta) -> CallMeta {
    CallMeta {
        trace: meta.trace,
        ..CallMeta::new(principal.clone())
    }
}

/// Does a request whose call needn't outlive it.
async fn perform_here(
    service: &ModernService,
    request: &Request,
    client: Arc<Client>,
    call: CallMeta,
    hung_up: &CancellationToken,
) -> Result<Reply, RpcError> {
    let adapter = service.tasks.endpoint.adapter();
    let outcome = tokio::select! {
        biased;
        outcome = adapter.perform(request, REVISION, call.with_caller(client.clone())) => outcome,
        () = hung_up.cancelled() => Err(cancelled()),
    };
    client.attach(None);
    outcome.map(Reply::Complete)
}

async fn discover(service: &ModernService, call: CallMeta) -> Outcome {
    let endpoint = &service.tasks.endpoint;
    let about = endpoint.adapter().about(call).await;
    if let Some(server) = about.0.object("serverInfo") {
        service
            .named
            .get_or_init(|| Members::new(&endpoint.options.modern, server));
    }
    let mut capabilities = endpoint.adapter().capabilities(&about);
    hmcp::translate(&mut capabilities, true);
    if let Some((_, tasks)) = service.tasks.capability(REVISION) {
        let mut extensions = capabilities.object("extensions").unwrap_or_default();
        tasks
            .iter()
            .for_each(|(name, settings)| extensions.set_raw(name, settings.to_owned()));
        capabilities.set("extensions", extensions);
    }
    let mut result = RawObject::of("supportedVersions", spoken_versions().collect::<Vec<_>>());
    result.set("capabilities", capabilities);
    result.set_some(
        "instructions",
        &endpoint.options.info.instructions_of(&about),
    );
    // It may change soon, for example because a part of it is missing.
    result.set_some("ttlMs", &about.0.get("ttlMs"));
    Ok(result.to_raw())
}

/// The requests in whose course the client may be asked.
async fn may_ask(
    service: &ModernService,
    principal: Arc<Principal>,
    mut request: Request,
    meta: RequestMeta,
    sink: Arc<dyn MessageSink>,
    hung_up: &CancellationToken,
) -> Result<Reply, RpcError> {
    let call = call(&principal, &meta);
    let RequestMeta {
        abilities,
        level,
        reports,
        responses,
        state,
        ..
    } = meta;
    let sink = RequestSink::of(reports, level, &sink);
    if let Some(state) = state {
        let becomes_task = request.method == Method::CallTool
            && service.tasks.asks_first(&request.params, &abilities);
        let task = TaskRequest::modern(&request, &call, &abilities);
        let adopt = |call: RunningCall| -> BoxFuture<'_, _> {
            let RunningCall {
                outcome,
                client: caller,
                ..
            } = call;
            let hand_over = move |successor| caller.hand_over(successor);
            Box::pin(tasks::adopt(&service.tasks, &task, outcome, hand_over))
        };
        let adopt = becomes_task.then_some(&adopt as Adopt<'_>);
        let (responses, binding) = (
            responses.unwrap_or_default(),
            Binding::of(&principal, &request),
        );
        let retry = Retry {
            state: &state,
            binding: &binding,
            abilities: abilities.clone(),
            responses,
            sink,
            adopt,
        };
        return service.calls.resume(retry, hung_up).await;
    }
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
        request = Request::new(request.name, Some(params.to_raw()));
    }
    let elicitations = PendingElicitations::new(abilities, responses.unwrap_or_default());
    let client = Arc::new(Client::new(sink, Some(elicitations.clone())));
    if !answerable {
        return perform_here(service, &request, client, call, hung_up).await;
    }
    let request = Arc::new(request);
    let (adapter, sent) = (service.tasks.endpoint.adapter(), request.clone());
    let (call, asked) = (call.with_caller(client.clone()), client.clone());
    let outcome = Box::pin(async move { perform_with_visits(&adapter, &sent, call, asked).await });
    let mut running = RunningCall {
        outcome,
        client,
        elicitations,
    };
    let step = running.step(hung_up).await;
    running.client.attach(None);
    match step {
        Step::Ended(outcome) => outcome.map(Reply::Complete),
        Step::HungUp => Err(cancelled()),
        Step::Asks(requests) => {
            let binding = Binding::of(&principal, &request);
            service
                .calls
                .suspend(running, requests, principal, &binding)
        }
    }
}
