//! The stateless era (2026-07-28): each request says all there is to know, a call's questions are results.
//!
//! `head` reads what a request says of itself, `answer` writes what every result needs. A call that asks is parked
//! (`parked`), its questions wait at a `desk`, and the client's next request, sealed to it (`seal`), goes on with it.

mod answer;
mod client;
mod desk;
mod head;
mod headers;
mod listen;
pub(crate) mod options;
mod parked;
mod running;
mod seal;
#[cfg(test)]
mod tests;
pub(crate) mod visits;

use std::sync::{Arc, OnceLock};

use callboard_message::{Abilities, Principal, RawObject};
use callboard_rpc::{Request, RpcError, code};
use callboard_runtime::CallMeta;
use futures::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

pub(crate) use self::answer::Answer;
use self::answer::Members;
use self::client::{Client, Line};
use self::desk::Desk;
use self::head::Head;
pub(crate) use self::headers::{Field, check_headers};
use self::options::CacheHint;
use self::parked::{Adopt, ParkedCalls, Reply, Retry};
use self::running::{Running, Step, cancelled};
use self::seal::Binding;
use super::endpoint::Endpoint;
use super::link::Link;
use super::options::InboundOptions;
use super::outcome::REQUIRED_CAPABILITIES;
use super::tasks::{self, Adoption, TaskRequest};
use crate::wire::{Revision, code as mcp, hmcp};

const REVISION: Revision = Revision::V2026_07_28;

/// What other revisions had, and an agent that stands for one of their servers would answer.
const REMOVED: [&str; 5] = ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];

/// What an endpoint keeps.
pub(crate) struct ModernState {
    calls: Arc<ParkedCalls>,
    subscriptions: Arc<Semaphore>,
    closing: CancellationToken,
    members: Members,
    /// The same in the name that the agent gave itself, once it was asked.
    named: OnceLock<Members>,
}

impl ModernState {
    pub(crate) fn new(options: &Arc<InboundOptions>) -> Self {
        let subscriptions_max = options.modern.subscriptions_max.min(Semaphore::MAX_PERMITS);
        Self {
            calls: ParkedCalls::new(options),
            subscriptions: Arc::new(Semaphore::new(subscriptions_max)),
            closing: CancellationToken::new(),
            members: Members::new(&options.modern, options.info.implementation()),
            named: OnceLock::new(),
        }
    }

    /// Ends subscriptions, each with its result, and cancels the calls that wait for answers.
    pub(crate) fn close(&self) {
        self.closing.cancel();
        self.calls.close();
    }

    fn members(&self) -> &Members {
        self.named.get().unwrap_or(&self.members)
    }
}

/// Whether a request says that it is of this era.
pub(crate) fn is_modern(params: Option<&RawValue>) -> bool {
    head::version(params).is_some()
}

/// What answers a JSON-RPC response that a client sends in this era.
pub(crate) fn response_refused() -> Answer {
    Answer::error(None, &headers::response_refused())
}

/// Answers one request. What it causes meanwhile goes by `link`; when `hung_up` fires, or this is dropped, it is cancelled.
pub(crate) async fn request(
    endpoint: &Arc<Endpoint>,
    principal: Arc<Principal>,
    request: Request<'_>,
    link: Arc<dyn Link>,
    hung_up: CancellationToken,
) -> Answer {
    let Request { id, method, params } = request;
    let head = match Head::read(params) {
        Ok(head) => head,
        Err(error) => return Answer::error_with(400, Some(&id), &error),
    };
    let about_task = match tasks::concerns(endpoint, &method) && head.state.is_none() {
        true => task(endpoint, &principal, &method, params, &head).await,
        false => None,
    };
    let replied = match method.as_str() {
        _ if about_task.is_some() => about_task.unwrap_or_else(|| Err(cancelled())).map(Reply::Complete),
        "server/discover" => discover(endpoint, call(principal, &head)).await,
        "subscriptions/listen" => {
            let client = Abilities(head.capabilities);
            listen::listen(endpoint, principal, &id, params, &client, link, &hung_up).await
        }
        // The last is HMCP's, an extension.
        "tools/call" | "prompts/get" | "resources/read" | hmcp::METHOD => {
            may_ask(endpoint, principal, &method, params, head, link, &hung_up).await
        }
        method if REMOVED.contains(&method) => {
            Err(RpcError::new(code::METHOD_NOT_FOUND, format!("method not found: {method}")))
        }
        _ => {
            let client = Arc::new(Client::new(Line::of(&head, &link), None));
            let meta = call(principal, &head).with_caller(client.clone());
            let surface = endpoint.surface();
            let replied = tokio::select! {
                biased;
                replied = surface.perform(&method, params, REVISION, meta) => replied,
                () = hung_up.cancelled() => Err(cancelled()),
            };
            client.turn_to(None);
            replied.map(Reply::Complete)
        }
    };
    match replied {
        Ok(reply) => {
            let (kind, cache, result) = match &reply {
                Reply::Complete(result) => ("complete", cache_hint(endpoint, &method, false), result),
                Reply::Resumed(result) => ("complete", cache_hint(endpoint, &method, true), result),
                Reply::InputRequired(result) => ("input_required", None, result),
                Reply::Task(result) => ("task", None, result),
            };
            Answer { status: 200, body: endpoint.modern.members().response(&id, kind, cache, result) }
        }
        Err(error) => Answer::error(Some(&id), &of_this_era(error)),
    }
}

fn call(principal: Arc<Principal>, head: &Head<'_>) -> CallMeta {
    let mut call = CallMeta::new(principal);
    call.trace = head.trace;
    call
}

/// A request about tasks, or one that begins a task; `None` where it is neither.
async fn task(
    endpoint: &Arc<Endpoint>,
    principal: &Arc<Principal>,
    method: &str,
    params: Option<&RawValue>,
    head: &Head<'_>,
) -> Option<Result<Box<RawValue>, RpcError>> {
    let request = TaskRequest {
        method,
        params,
        revision: REVISION,
        call: &call(principal.clone(), head),
        session: None,
        client: &Abilities(head.capabilities.clone()),
        background: &|_| None,
        unsolicited: None,
    };
    tasks::intercept(endpoint, request).await
}

async fn discover(endpoint: &Endpoint, call: CallMeta) -> Result<Reply, RpcError> {
    let about = endpoint.surface().about(call).await;
    if let Some(server) = about.0.object("serverInfo") {
        endpoint.modern.named.get_or_init(|| Members::new(&endpoint.options.modern, server));
    }
    let mut capabilities = endpoint.surface().capabilities(&about);
    hmcp::translate(&mut capabilities, true);
    if let Some((_, tasks)) = tasks::capability(endpoint, REVISION) {
        let mut extensions = capabilities.object("extensions").unwrap_or_default();
        tasks.iter().for_each(|(name, settings)| extensions.set_raw(name, settings.to_owned()));
        capabilities.set("extensions", extensions);
    }
    let mut result = RawObject::new()
        .with("supportedVersions", head::spoken().collect::<Vec<_>>())
        .with("capabilities", capabilities);
    let instructions = about.0.text("instructions").or_else(|| endpoint.options.info.instructions.clone());
    if let Some(instructions) = instructions {
        result.set("instructions", instructions);
    }
    // It may change soon, for example because a part of it is missing.
    if let Some(kept_for) = about.0.get("ttlMs") {
        result.set_raw("ttlMs", kept_for.to_owned());
    }
    Ok(Reply::Complete(result.to_raw()))
}

/// The requests in whose course the client may be asked.
async fn may_ask(
    endpoint: &Arc<Endpoint>,
    principal: Arc<Principal>,
    method: &str,
    params: Option<&RawValue>,
    head: Head<'_>,
    link: Arc<dyn Link>,
    hung_up: &CancellationToken,
) -> Result<Reply, RpcError> {
    let line = Line::of(&head, &link);
    if let Some(state) = &head.state {
        let binding = Binding::of(&principal, method, params);
        let (capabilities, responses) = (head.capabilities, head.responses.unwrap_or_default());
        let client = Abilities(capabilities.clone());
        let adopt = |running: Running| -> BoxFuture<'_, _> {
            let Running { outcome: work, client: peer, .. } = running;
            let hand_over = Box::new(move |successor| peer.hand_over(successor));
            Box::pin(tasks::adopt(
                endpoint,
                Adoption { principal: &principal, client: client.clone(), params, work, hand_over },
            ))
        };
        let becomes_task = method == "tools/call" && tasks::asks_first(endpoint, params, &client);
        let adopt = becomes_task.then_some(&adopt as Adopt<'_>);
        let retry = Retry { state, binding: &binding, capabilities, responses, line, adopt };
        return endpoint.modern.calls.resume(retry, hung_up).await;
    }
    let meta = call(principal.clone(), &head);
    let answerable = can_answer(&head.capabilities);
    let early = head.responses;
    let desk = Desk::new(head.capabilities, early.clone().unwrap_or_default());
    let client = Arc::new(Client::new(line, Some(desk.clone())));
    let meta = meta.with_caller(client.clone());
    // Answers are for this hop's questions: the agent gets the params without them.
    let without = early.and(params).map(without_answers);
    if !answerable {
        // No question can come up: the call needn't outlive the request.
        let params = without.as_deref().or(params);
        let surface = endpoint.surface();
        let outcome = tokio::select! {
            biased;
            outcome = surface.perform(method, params, REVISION, meta) => outcome,
            () = hung_up.cancelled() => Err(cancelled()),
        };
        client.turn_to(None);
        return outcome.map(Reply::Complete);
    }
    let owned = without.or_else(|| params.map(RawValue::to_owned));
    let (endpoint_held, named, asked) = (endpoint.clone(), method.to_owned(), client.clone());
    let outcome =
        Box::pin(async move { visits::perform(&endpoint_held.surface(), &named, owned.as_deref(), meta, asked).await });
    let mut running = Running { outcome, client, desk };
    let step = running.step(hung_up).await;
    running.client.turn_to(None);
    match step {
        Step::Ended(outcome) => outcome.map(Reply::Complete),
        Step::HungUp => Err(cancelled()),
        Step::Asks(requests) => {
            let binding = Binding::of(&principal, method, params);
            endpoint.modern.calls.park(running, requests, principal, &binding)
        }
    }
}

fn can_answer(capabilities: &RawObject) -> bool {
    ["sampling", "elicitation", "roots"].into_iter().any(|ability| capabilities.has(ability))
}

fn without_answers(params: &RawValue) -> Box<RawValue> {
    let mut params = RawObject::parse(params).unwrap_or_default();
    params.remove("inputResponses");
    params.to_raw()
}

/// For how long and for whom a result may be kept; `None` where the specification has no such thing.
fn cache_hint(endpoint: &Endpoint, method: &str, resumed: bool) -> Option<CacheHint> {
    let options = &endpoint.options.modern;
    let hint = match method {
        "server/discover" => options.discover_cache,
        "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list" => options.list_cache,
        "resources/read" => options.read_cache,
        _ => return None,
    };
    // What answers led to is not for those who ask the same without them (server/utilities/caching).
    Some(if resumed { CacheHint::private(std::time::Duration::ZERO) } else { hint })
}

/// An error without the codes that this era took back, and with the one that it has for a client that can't be asked.
fn of_this_era(mut error: RpcError) -> RpcError {
    let names_capabilities =
        || error.data.as_ref().and_then(|data| RawObject::parse(data).ok()?.object(REQUIRED_CAPABILITIES));
    match error.code {
        mcp::RESOURCE_NOT_FOUND_LEGACY => error.code = code::INVALID_PARAMS,
        mcp::URL_ELICITATION_REQUIRED => error.code = mcp::NOBODY_TO_ASK,
        mcp::NOBODY_TO_ASK if names_capabilities().is_some() => error.code = mcp::MISSING_CLIENT_CAPABILITY,
        _ => {}
    }
    error
}
