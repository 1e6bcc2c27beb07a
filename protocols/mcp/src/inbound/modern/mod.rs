//! The stateless era (2026-07-28): each request says all there is to know, a call's questions are results.
//!
//! `head` reads what a request says of itself, `answer` writes what every result needs. A call that asks is parked
//! (`parked`), its questions wait at a `desk`, and the client's next request, sealed to it (`seal`), goes on with it.

use std::sync::{Arc, OnceLock};

use callboard_message::json::quote;
use callboard_message::{Abilities, Principal, RawMembers, RawObject};
use callboard_rpc::{Id, Nulls, Request, RpcError, code, encode_response};
use callboard_runtime::CallMeta;
use futures::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use self::pending_elicitations::{Client, PendingElicitations, RequestSink, perform_with_visits};
use self::request_meta::{RequestMeta, named_version, response_refused as response_refused_error, spoken_versions};
use self::state_token::Binding;
use self::suspended_requests::{Adopt, Reply, Retry, Running, Step, SuspendedCalls, cancelled};
use super::agent_adapter::REQUIRED_CAPABILITIES;
use super::client::MessageSink;
use super::endpoint::Endpoint;
use super::options::{CacheHint, InboundOptions, ModernOptions};
use super::tasks;
use super::tasks::{Adoption, TaskRequest};
use crate::wire::meta::SERVER_INFO;
use crate::wire::{Revision, code as mcp, hmcp};

pub(crate) use self::request_meta::{Field, check_headers};

mod listen;
pub(crate) mod pending_elicitations;
mod request_meta;
mod state_token;
mod suspended_requests;
#[cfg(test)]
mod tests;

const REVISION: Revision = Revision::V2026_07_28;

/// What other revisions had, and an agent that stands for one of their servers would answer.
const REMOVED: [&str; 5] = ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];

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
    pub(crate) fn new(options: &Arc<InboundOptions>) -> Self {
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
    named_version(params).is_some()
}

/// What answers a JSON-RPC response that a client sends in this era.
pub(crate) fn response_refused() -> Answer {
    Answer::error(None, &response_refused_error())
}

/// Answers one request. What it causes meanwhile goes by `link`; when `hung_up` fires, or this is dropped, it is cancelled.
pub(crate) async fn request(
    endpoint: &Arc<Endpoint>,
    principal: Arc<Principal>,
    request: Request<'_>,
    link: Arc<dyn MessageSink>,
    hung_up: CancellationToken,
) -> Answer {
    let Request { id, method, params } = request;
    let head = match RequestMeta::read(params) {
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
            let client = Arc::new(Client::new(RequestSink::of(&head, &link), None));
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

fn call(principal: Arc<Principal>, head: &RequestMeta<'_>) -> CallMeta {
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
    head: &RequestMeta<'_>,
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
    Ok(Reply::Complete(result.to_raw()))
}

/// The requests in whose course the client may be asked.
async fn may_ask(
    endpoint: &Arc<Endpoint>,
    principal: Arc<Principal>,
    method: &str,
    params: Option<&RawValue>,
    head: RequestMeta<'_>,
    link: Arc<dyn MessageSink>,
    hung_up: &CancellationToken,
) -> Result<Reply, RpcError> {
    let line = RequestSink::of(&head, &link);
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
    let desk = PendingElicitations::new(head.capabilities, early.clone().unwrap_or_default());
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
        Box::pin(
            async move { perform_with_visits(&endpoint_held.surface(), &named, owned.as_deref(), meta, asked).await },
        );
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

/// What a request is answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The status of HTTP, where nothing was sent before.
    pub status: u16,
    /// One JSON-RPC response, on one line where the agent's reply is.
    pub body: Vec<u8>,
}

impl Answer {
    /// An error with the status that the specification gives its code.
    pub(crate) fn error(id: Option<&Id>, error: &RpcError) -> Self {
        let status = match error.code {
            code::METHOD_NOT_FOUND => 404,
            code::PARSE_ERROR | code::INVALID_REQUEST => 400,
            mcp::HEADER_MISMATCH | mcp::MISSING_CLIENT_CAPABILITY | mcp::UNSUPPORTED_VERSION => 400,
            _ => 200,
        };
        Self::error_with(status, id, error)
    }

    fn error_with(status: u16, id: Option<&Id>, error: &RpcError) -> Self {
        Self { status, body: encode_response(id, Err(error), Nulls::Omit) }
    }
}

/// Members that every result gets; written once.
pub(crate) struct Members {
    /// `"_meta":{…}`, or nothing.
    meta: String,
    /// `serverInfo` in JSON, or nothing.
    server: Option<String>,
}

impl Members {
    pub fn new(options: &ModernOptions, server: RawObject) -> Self {
        let server = options.names_server.then(|| server.to_raw().get().to_owned());
        let meta = match &server {
            Some(server) => format!(r#""_meta":{{"{SERVER_INFO}":{server}}}"#),
            None => String::new(),
        };
        Self { meta, server }
    }

    /// The response with `result` as it came, and what it lacks put at its beginning. A result that says so itself keeps
    /// what it says.
    pub fn response(&self, id: &Id, kind: &str, cache: Option<CacheHint>, result: &RawValue) -> Vec<u8> {
        let mut out = Vec::with_capacity(128 + id.as_json().len() + self.meta.len() + result.get().len());
        push(&mut out, &["{\"jsonrpc\":\"2.0\",\"id\":", id.as_json(), ",\"result\":"]);
        match result.get().strip_prefix('{') {
            Some(rest) if !may_have_ours(result.get(), cache.is_some()) => {
                push(&mut out, &["{\"resultType\":\"", kind, "\""]);
                if let Some(cache) = cache {
                    let (ttl_ms, scope) = cache.members();
                    push(&mut out, &[",\"ttlMs\":", &ttl_ms.to_string(), ",\"cacheScope\":\"", scope, "\""]);
                }
                if !self.meta.is_empty() {
                    push(&mut out, &[",", &self.meta]);
                }
                let empty = rest.trim_start_matches([' ', '\t', '\r', '\n']) == "}";
                push(&mut out, &[if empty { "" } else { "," }, rest]);
            }
            _ => push(&mut out, &[&self.merged(kind, cache, result)]),
        }
        out.push(b'}');
        out
    }

    /// The same by members, for a result that may have some of them.
    fn merged(&self, kind: &str, cache: Option<CacheHint>, result: &RawValue) -> String {
        // What is no object is no result: an agent that stands for something outside may have been told nonsense.
        let members = RawMembers::parse(result).unwrap_or_default();
        let mut put = Vec::new();
        if members.read::<String>("resultType").is_none() {
            put.push(("resultType", quote(kind)));
        }
        if let Some(cache) = cache {
            let (ttl_ms, scope) = cache.members();
            if members.read::<u64>("ttlMs").is_none() {
                put.push(("ttlMs", ttl_ms.to_string()));
            }
            if !matches!(members.read::<String>("cacheScope").as_deref(), Some("public" | "private")) {
                put.push(("cacheScope", quote(scope)));
            }
        }
        if let Some(server) = &self.server {
            let mut meta = String::with_capacity(2 * server.len());
            let own = members.read::<RawMembers<'_>>("_meta").unwrap_or_default();
            own.write_with(&[(SERVER_INFO, server)], &mut meta);
            put.push(("_meta", meta));
        }
        let put: Vec<_> = put.iter().map(|(name, json)| (*name, json.as_str())).collect();
        let mut merged = String::with_capacity(result.get().len() + self.meta.len() + 64);
        members.write_with(&put, &mut merged);
        merged
    }
}

/// Whether a member of a result may have one of our names; an escape could hide one.
fn may_have_ours(result: &str, cached: bool) -> bool {
    let has = |name: &str| result.contains(name);
    has("\"resultType\"") || has("\"_meta\"") || has("\\u") || (cached && (has("\"ttlMs\"") || has("\"cacheScope\"")))
}

fn push(out: &mut Vec<u8>, parts: &[&str]) {
    for part in parts {
        out.extend_from_slice(part.as_bytes());
    }
}

#[cfg(test)]
mod result_tests {
    use serde_json::{Value, json};
    use std::time::Duration;

    use super::*;

    fn response(result: &str, cache: Option<CacheHint>) -> String {
        let members = Members::new(&ModernOptions::default(), RawObject::new().with("name", "s").with("version", "1"));
        let result = RawValue::from_string(result.to_owned()).unwrap();
        String::from_utf8(members.response(&Id::integer(1), "complete", cache, &result)).unwrap()
    }

    /// Goal: what the agent wrote keeps its bytes, what it lacks is put in once. Method: results with each of our names,
    /// plain, nested, and hidden by an escape.
    #[test]
    fn a_result_keeps_its_bytes() {
        let head = r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}"#;
        assert_eq!(response("{}", None), format!("{head}}}}}"));
        assert_eq!(response("{ }", None), format!("{head} }}}}"));
        let odd = r#"{ "b":1.0,"a":123456789012345678901234567890, "c" : [ 1e2 ]}"#;
        assert_eq!(response(odd, None), format!("{head},{}}}", &odd[1..]));
        let cache = Some(CacheHint::private(Duration::from_millis(5)));
        for (result, kept) in [
            (r#"{"resultType":"task","n":1.0}"#, json!({ "resultType": "task" })),
            (r#"{"_meta":{"a":1.0},"n":1.0}"#, json!({ "resultType": "complete" })),
            (r#"{"\u005fmeta":{"a":1.0},"n":1.0}"#, json!({ "resultType": "complete" })),
            (r#"{"content":[{"_meta":{"a":1.0}}],"n":1.0}"#, json!({ "resultType": "complete" })),
            (r#"{"ttlMs":9,"cacheScope":"public","n":1.0}"#, json!({ "ttlMs": 9, "cacheScope": "public" })),
            (r#"{"ttlMs":-9,"cacheScope":"all","n":1.0}"#, json!({ "ttlMs": 5, "cacheScope": "private" })),
        ] {
            let text = response(result, cache);
            let parsed: Value = serde_json::from_str(&text).unwrap();
            assert!(text.contains("\"n\":1.0"), "{text}");
            for (name, value) in kept.as_object().unwrap() {
                assert_eq!(&parsed["result"][name], value, "{text}");
            }
            assert_eq!(parsed["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "s");
            let object: RawObject = serde_json::from_str(&text).unwrap();
            assert!(object.object("result").is_some(), "no member stands twice: {text}");
        }
    }
}
