//! The stateless era (2026-07-28): each request says all there is to know, a call's questions are results.
//!
//! `request_meta` reads what a request says of itself. A call that asks is suspended (`suspended_requests`), its questions are
//! kept (`pending_elicitations`), and the client's next request, tied to it by a `state_token`, goes on with it.

use std::sync::{Arc, OnceLock};

use actix_web::http::StatusCode;
use callboard_message::{Abilities, Principal, RawObject};
use callboard_rpc::{Id, RpcError};
use callboard_runtime::CallMeta;
use futures::future::BoxFuture;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::agent_adapter::Outcome;
use super::client::MessageSink;
use super::endpoint::Endpoint;
use super::options::InboundOptions;
use super::request::{Method, Request};
use super::response::{Answer, Members, Reply, finish};
use super::tasks::{self, TaskRequest};
use crate::wire::{Era, Revision, hmcp};
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

/// What an endpoint keeps.
pub(crate) struct ModernState {
    calls: Arc<SuspendedCalls>,
    subscriptions: Arc<Semaphore>,
    closing: CancellationToken,
    members: Members,
    /// The same in the name that the agent gave itself, once it was asked.
    named: OnceLock<Members>,
}

impl ModernState {
    pub fn new(options: &Arc<InboundOptions>) -> Self {
        let subscriptions_max = options.modern.subscriptions_max.min(Semaphore::MAX_PERMITS);
        Self {
            calls: SuspendedCalls::new(options),
            subscriptions: Arc::new(Semaphore::new(subscriptions_max)),
            closing: CancellationToken::new(),
            members: Members::new(&options.modern, options.info.implementation()),
            named: OnceLock::new(),
        }
    }

    /// Ends subscriptions, each with its result, and cancels the calls that wait for answers.
    pub fn close(&self) {
        self.closing.cancel();
        self.calls.close();
    }

    pub fn members(&self) -> &Members {
        self.named.get().unwrap_or(&self.members)
    }
}

/// What answers a JSON-RPC response that a client sends in this era: nobody asked it anything.
pub(crate) fn response_refused() -> Answer {
    let why = "responses aren't accepted: answers go into `inputResponses` of a request";
    Answer::error(None, RpcError::invalid_request(why))
}

/// Answers one request. What it causes meanwhile goes by `sink`; when `hung_up` fires, or this is dropped, it is cancelled.
pub(crate) async fn request(
    endpoint: &Arc<Endpoint>,
    principal: Arc<Principal>,
    id: &Id,
    request: Request,
    sink: Arc<dyn MessageSink>,
    hung_up: CancellationToken,
) -> Answer {
    let method = request.method;
    let outcome = match RequestMeta::read(&request.params) {
        Ok(meta) => dispatch(endpoint, principal, id, request, meta, sink, &hung_up).await,
        Err(error) => return bad_request(id, error),
    };
    finish(endpoint, id, method, Era::Modern, outcome)
}

/// The answer to a request that isn't one of this era: an error with the status 400.
pub(crate) fn bad_request(id: &Id, error: RpcError) -> Answer {
    Answer { status: StatusCode::BAD_REQUEST, ..Answer::error(Some(id), error) }
}

async fn dispatch(
    endpoint: &Arc<Endpoint>,
    principal: Arc<Principal>,
    id: &Id,
    request: Request,
    meta: RequestMeta,
    sink: Arc<dyn MessageSink>,
    hung_up: &CancellationToken,
) -> Result<Reply, RpcError> {
    if meta.state.is_none() && tasks::concerns(endpoint, request.method) {
        let (call, client) = (call(&principal, &meta), Abilities(meta.capabilities.clone()));
        let request = TaskRequest::modern(&request, &call, &client);
        if let Some(outcome) = tasks::perform(endpoint, request).await {
            return outcome.map(Reply::Complete);
        }
    }
    match request.method {
        Method::Discover => discover(endpoint, call(&principal, &meta)).await.map(Reply::Complete),
        Method::Listen => {
            let client = Abilities(meta.capabilities);
            listen::listen(endpoint, principal, id, &request.params, &client, sink, hung_up).await
        }
        Method::CallTool | Method::GetPrompt | Method::ReadResource | Method::CreateMessage => {
            may_ask(endpoint, principal, request, meta, sink, hung_up).await
        }
        // What other revisions had, and an agent that stands for one of their servers would answer.
        Method::Initialize | Method::Ping | Method::SetLevel | Method::Subscribe | Method::Unsubscribe => {
            Err(RpcError::method_not_found(format!("method not found: {}", request.name)))
        }
        _ => {
            let call = call(&principal, &meta);
            let client = Arc::new(Client::new(RequestSink::of(meta.reports, meta.level, &sink), None));
            perform_here(endpoint, &request, client, call, hung_up).await
        }
    }
}

fn call(principal: &Arc<Principal>, meta: &RequestMeta) -> CallMeta {
    CallMeta { trace: meta.trace, ..CallMeta::new(principal.clone()) }
}

/// Does a request whose call needn't outlive it.
async fn perform_here(
    endpoint: &Endpoint,
    request: &Request,
    client: Arc<Client>,
    call: CallMeta,
    hung_up: &CancellationToken,
) -> Result<Reply, RpcError> {
    let adapter = endpoint.adapter();
    let outcome = tokio::select! {
        biased;
        outcome = adapter.perform(request, REVISION, call.with_caller(client.clone())) => outcome,
        () = hung_up.cancelled() => Err(cancelled()),
    };
    client.attach(None);
    outcome.map(Reply::Complete)
}

async fn discover(endpoint: &Endpoint, call: CallMeta) -> Outcome {
    let about = endpoint.adapter().about(call).await;
    if let Some(server) = about.0.object("serverInfo") {
        endpoint.modern.named.get_or_init(|| Members::new(&endpoint.options.modern, server));
    }
    let mut capabilities = endpoint.adapter().capabilities(&about);
    hmcp::translate(&mut capabilities, true);
    if let Some((_, tasks)) = tasks::capability(endpoint, REVISION) {
        let mut extensions = capabilities.object("extensions").unwrap_or_default();
        tasks.iter().for_each(|(name, settings)| extensions.set_raw(name, settings.to_owned()));
        capabilities.set("extensions", extensions);
    }
    let mut result = RawObject::new()
        .with("supportedVersions", spoken_versions().collect::<Vec<_>>())
        .with("capabilities", capabilities);
    let instructions = about.0.text("instructions").or_else(|| endpoint.options.info.instructions.clone());
    if let Some(instructions) = instructions {
        result.set("instructions", instructions);
    }
    // It may change soon, for example because a part of it is missing.
    if let Some(kept_for) = about.0.get("ttlMs") {
        result.set_raw("ttlMs", kept_for.to_owned());
    }
    Ok(result.to_raw())
}

/// The requests in whose course the client may be asked.
async fn may_ask(
    endpoint: &Arc<Endpoint>,
    principal: Arc<Principal>,
    mut request: Request,
    meta: RequestMeta,
    sink: Arc<dyn MessageSink>,
    hung_up: &CancellationToken,
) -> Result<Reply, RpcError> {
    let call = call(&principal, &meta);
    let RequestMeta { capabilities, level, reports, responses, state, .. } = meta;
    let sink = RequestSink::of(reports, level, &sink);
    if let Some(state) = state {
        let client = Abilities(capabilities.clone());
        let task = TaskRequest::modern(&request, &call, &client);
        let adopt = |call: RunningCall| -> BoxFuture<'_, _> {
            let RunningCall { outcome, client: caller, .. } = call;
            let hand_over = move |successor| caller.hand_over(successor);
            Box::pin(tasks::adopt(endpoint, &task, outcome, hand_over))
        };
        let becomes_task = request.method == Method::CallTool && tasks::asks_first(endpoint, &request.params, &client);
        let adopt = becomes_task.then_some(&adopt as Adopt<'_>);
        let responses = responses.unwrap_or_default();
        let binding = Binding::of(&principal, &request);
        let retry = Retry { state: &state, binding: &binding, capabilities, responses, sink, adopt };
        return endpoint.modern.calls.resume(retry, hung_up).await;
    }
    let answerable = ["sampling", "elicitation", "roots"].into_iter().any(|ability| capabilities.has(ability));
    if responses.is_some() {
        // Answers are for this hop's questions: the agent gets the params without them.
        let mut params = request.params.raw().and_then(|raw| RawObject::parse(raw).ok()).unwrap_or_default();
        params.remove("inputResponses");
        request = Request::new(request.name, Some(params.to_raw()));
    }
    let elicitations = PendingElicitations::new(capabilities, responses.unwrap_or_default());
    let client = Arc::new(Client::new(sink, Some(elicitations.clone())));
    if !answerable {
        return perform_here(endpoint, &request, client, call, hung_up).await;
    }
    let request = Arc::new(request);
    let (endpoint_held, sent) = (endpoint.clone(), request.clone());
    let (call, asked) = (call.with_caller(client.clone()), client.clone());
    let outcome = Box::pin(async move { perform_with_visits(&endpoint_held.adapter(), &sent, call, asked).await });
    let mut running = RunningCall { outcome, client, elicitations };
    let step = running.step(hung_up).await;
    running.client.attach(None);
    match step {
        Step::Ended(outcome) => outcome.map(Reply::Complete),
        Step::HungUp => Err(cancelled()),
        Step::Asks(requests) => {
            let binding = Binding::of(&principal, &request);
            endpoint.modern.calls.suspend(running, requests, principal, &binding)
        }
    }
}
