//! Completion of responses of both eras: result members, error codes and HTTP status.

use std::time::Duration;

use actix_web::http::StatusCode;
use callboard_message::json::quote;
use callboard_message::mail::RETRY_AFTER_DATA_KEY;
use callboard_message::{RawMembers, RawObject};
use callboard_rpc::{RequestId, RpcError, UnusedMember, code, encode_error, encode_response};
use serde_json::value::RawValue;

use super::options::{CacheHint, ModernOptions};
use super::request::McpMethod;
use super::tools::REQUIRED_CAPABILITIES;
use crate::wire::code as mcp;
use crate::wire::meta::SERVER_INFO;

/// Successful outcome of a request. In the legacy era it is always complete.
#[derive(Clone)]
pub(crate) enum RequestResult {
    /// The final result.
    Complete(Box<RawValue>),
    /// The final result of a call that needed the client's answers. It is never cacheable.
    Resumed(Box<RawValue>),
    /// A result with `inputRequests`: questions that the client answers with a retry of the
    /// request.
    InputRequired(Box<RawValue>),
}

impl RequestResult {
    /// Returns the result as JSON.
    pub fn as_raw(&self) -> &RawValue {
        let (Self::Complete(raw) | Self::Resumed(raw) | Self::InputRequired(raw)) = self;
        raw
    }

    fn into_raw(self) -> Box<RawValue> {
        let (Self::Complete(raw) | Self::Resumed(raw) | Self::InputRequired(raw)) = self;
        raw
    }
}

/// An encoded response.
pub(crate) struct EncodedResponse {
    /// HTTP status, used unless an event stream has been started already.
    pub status: StatusCode,
    /// JSON-RPC response, without line breaks if the agent's reply has none. `None` if the request
    /// was cancelled, or needs no response.
    pub body: Option<Vec<u8>>,
    /// Scope that the request's credential lacks. If HTTP can still tell it, the status is 403.
    pub needed_scope: Option<String>,
    /// Time in seconds after which a refused request may succeed, for the header `Retry-After`.
    pub retry_after_s: Option<u64>,
}

impl EncodedResponse {
    /// Encodes an error, with the HTTP status that the specification assigns to its code.
    pub fn error(id: Option<&RequestId>, error: RpcError) -> Self {
        let status = match error.code {
            code::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
            code::PARSE_ERROR | code::INVALID_REQUEST => StatusCode::BAD_REQUEST,
            mcp::HEADER_MISMATCH | mcp::MISSING_CLIENT_CAPABILITY | mcp::UNSUPPORTED_VERSION => {
                StatusCode::BAD_REQUEST
            }
            _ => StatusCode::OK,
        };
        Self {
            status,
            body: Some(encode_error(id, &error)),
            retry_after_s: retry_after_s(&error),
            needed_scope: error.needed_scope,
        }
    }

    fn ok(body: Vec<u8>) -> Self {
        Self {
            status: StatusCode::OK,
            body: Some(body),
            needed_scope: None,
            retry_after_s: None,
        }
    }

    /// Returns the outcome of a cancelled request, which has no response.
    pub fn cancelled() -> Self {
        Self {
            status: StatusCode::OK,
            body: None,
            needed_scope: None,
            retry_after_s: None,
        }
    }
}

/// Form of the responses of an era.
#[derive(Clone, Copy)]
pub(crate) enum ResponseForm<'a> {
    Legacy,
    /// With these members added to results.
    Modern(&'a ResultMembers),
}

/// Maximum value of the header `Retry-After`, in seconds: more than a month. A longer time is shortened.
const RETRY_AFTER_S_MAX: u64 = 32 * 24 * 60 * 60;

/// Returns the time after which a request may succeed that a quota or the rate limit of a mailroom refused, in
/// seconds, from the data of its error. Data of other errors may be that of a server behind the agent.
fn retry_after_s(error: &RpcError) -> Option<u64> {
    if error.code != mcp::OVERLOADED {
        return None;
    }
    let data = RawObject::parse(error.data.as_deref()?).ok()?;
    // A mailroom says nothing but the time.
    let is_own = data.len() == 1 || data.text("reason").as_deref() == Some("quota");
    let seconds = data.read::<u64>(RETRY_AFTER_DATA_KEY)?;
    is_own.then_some(seconds.min(RETRY_AFTER_S_MAX))
}

/// Completes and encodes the outcome of a request: the one place where results get and lose
/// members, in both eras.
pub(crate) fn finish(
    id: &RequestId,
    method: McpMethod,
    form: ResponseForm<'_>,
    outcome: Result<RequestResult, RpcError>,
) -> EncodedResponse {
    match (form, outcome) {
        (ResponseForm::Legacy, outcome) => {
            let result = outcome.map(|result| without_modern_members(result.into_raw()));
            let response = encode_response(Some(id), result.as_deref(), UnusedMember::Omit);
            EncodedResponse {
                retry_after_s: result.as_ref().err().and_then(retry_after_s),
                needed_scope: result.err().and_then(|error| error.needed_scope),
                ..EncodedResponse::ok(response)
            }
        }
        (ResponseForm::Modern(_), Err(error)) => {
            EncodedResponse::error(Some(id), to_modern_error(error))
        }
        (ResponseForm::Modern(members), Ok(result)) => {
            let hint = method.cache_hint(&members.options);
            let (kind, cache) = match &result {
                RequestResult::InputRequired(_) => ("input_required", None),
                RequestResult::Complete(_) => ("complete", hint),
                // A result that depends on answers must not be cached for callers without them
                // (server/utilities/caching).
                RequestResult::Resumed(_) => {
                    ("complete", hint.map(|_| CacheHint::private(Duration::ZERO)))
                }
            };
            EncodedResponse::ok(members.encode_result(id, kind, cache, &result.into_raw()))
        }
    }
}

/// Members added to results of the modern era: `resultType`, cache hint and `_meta`.
pub(crate) struct ResultMembers {
    /// Options of the modern era, of which the cache hints are used.
    options: ModernOptions,
    /// Member `"_meta":{…}` as JSON text; empty if results don't name the server.
    meta: String,
    /// Value of `serverInfo` as JSON text; `None` if results don't name the server.
    server: Option<String>,
}

impl ResultMembers {
    pub fn new(options: &ModernOptions, server: RawObject) -> Self {
        let server = options
            .includes_server_info
            .then(|| server.to_raw().get().to_owned());
        let meta = match &server {
            Some(server) => format!(r#""_meta":{{"{SERVER_INFO}":{server}}}"#),
            None => String::new(),
        };
        Self {
            options: options.clone(),
            meta,
            server,
        }
    }

    /// Encodes a response. Members that `result` lacks are inserted at its start; its own members
    /// are kept unchanged.
    fn encode_result(
        &self,
        id: &RequestId,
        kind: &str,
        cache: Option<CacheHint>,
        result: &RawValue,
    ) -> Vec<u8> {
        let mut out =
            Vec::with_capacity(128 + id.as_json().len() + self.meta.len() + result.get().len());
        push_all(
            &mut out,
            &["{\"jsonrpc\":\"2.0\",\"id\":", id.as_json(), ",\"result\":"],
        );
        match result.get().strip_prefix('{') {
            Some(rest) if !may_contain_members(result.get(), cache.is_some()) => {
                push_all(&mut out, &["{\"resultType\":\"", kind, "\""]);
                if let Some(cache) = cache {
                    let (ttl_ms, scope) = cache.wire_members();
                    push_all(
                        &mut out,
                        &[
                            ",\"ttlMs\":",
                            &ttl_ms.to_string(),
                            ",\"cacheScope\":\"",
                            scope,
                            "\"",
                        ],
                    );
                }
                if !self.meta.is_empty() {
                    push_all(&mut out, &[",", &self.meta]);
                }
                let empty = rest.trim_start_matches([' ', '\t', '\r', '\n']) == "}";
                push_all(&mut out, &[if empty { "" } else { "," }, rest]);
            }
            _ => push_all(&mut out, &[&self.merged(kind, cache, result)]),
        }
        out.push(b'}');
        out
    }

    /// Returns `result` with the missing members added, for a result that may already have some of
    /// them.
    fn merged(&self, kind: &str, cache: Option<CacheHint>, result: &RawValue) -> String {
        // A result that isn't an object is invalid, and counts as empty: a proxy's remote server
        // may send anything.
        let members = RawMembers::parse(result).unwrap_or_default();
        let mut put = Vec::new();
        if members.read::<String>("resultType").is_none() {
            put.push(("resultType", quote(kind)));
        }
        if let Some(cache) = cache {
            let (ttl_ms, scope) = cache.wire_members();
            if members.read::<u64>("ttlMs").is_none() {
                put.push(("ttlMs", ttl_ms.to_string()));
            }
            if !matches!(
                members.read::<String>("cacheScope").as_deref(),
                Some("public" | "private")
            ) {
                put.push(("cacheScope", quote(scope)));
            }
        }
        if let Some(server) = &self.server {
            let mut meta = String::with_capacity(2 * server.len());
            let own = members.read::<RawMembers<'_>>("_meta").unwrap_or_default();
            own.write_with(&[(SERVER_INFO, server)], &mut meta);
            put.push(("_meta", meta));
        }
        let put: Vec<_> = put
            .iter()
            .map(|(name, json)| (*name, json.as_str()))
            .collect();
        let mut merged = String::with_capacity(result.get().len() + self.meta.len() + 64);
        members.write_with(&put, &mut merged);
        merged
    }
}

/// Returns true if the text may contain the name of a member that [`ResultMembers`] adds. Any `\u`
/// escape counts, because it could hide a name.
fn may_contain_members(result: &str, cached: bool) -> bool {
    let has = |name: &str| result.contains(name);
    has("\"resultType\"")
        || has("\"_meta\"")
        || has("\\u")
        || (cached && (has("\"ttlMs\"") || has("\"cacheScope\"")))
}

/// Removes the members that a result has in the modern era only, for a client of the legacy era: a
/// modern server behind the agent, or an aggregate, sets them. Other members are kept unchanged.
fn without_modern_members(result: Box<RawValue>) -> Box<RawValue> {
    const MODERN_MEMBERS: [&str; 3] = ["resultType", "ttlMs", "cacheScope"];
    if !may_contain_members(result.get(), true) {
        return result;
    }
    let Ok(mut members) = RawObject::parse(&result) else {
        return result;
    };
    let removed = MODERN_MEMBERS.map(|name| members.remove(name));
    match removed.iter().any(Option::is_some) {
        true => members.to_raw(),
        false => result,
    }
}

fn push_all(out: &mut Vec<u8>, parts: &[&str]) {
    for part in parts {
        out.extend_from_slice(part.as_bytes());
    }
}

/// Replaces error codes that the modern era doesn't have, and gives errors about missing client
/// capabilities their own code.
fn to_modern_error(mut error: RpcError) -> RpcError {
    let names_capabilities = || {
        error
            .data
            .as_ref()
            .and_then(|data| RawObject::parse(data).ok()?.object(REQUIRED_CAPABILITIES))
    };
    match error.code {
        mcp::RESOURCE_NOT_FOUND_LEGACY => error.code = code::INVALID_PARAMS,
        mcp::URL_ELICITATION_REQUIRED => error.code = mcp::NO_RESPONDER,
        mcp::NO_RESPONDER if names_capabilities().is_some() => {
            error.code = mcp::MISSING_CLIENT_CAPABILITY
        }
        _ => {}
    }
    error
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use std::time::Duration;

    use super::*;

    fn response(result: &str, cache: Option<CacheHint>) -> String {
        let members = ResultMembers::new(
            &ModernOptions::default(),
            RawObject::single("name", "s").with("version", "1"),
        );
        let result = RawValue::from_string(result.to_owned()).unwrap();
        String::from_utf8(members.encode_result(&RequestId::integer(1), "complete", cache, &result))
            .unwrap()
    }

    /// Goal: the agent's result keeps its bytes, and missing members are inserted once. Method:
    /// results with each of our names, plain, nested, and hidden by an escape.
    #[test]
    fn a_result_keeps_its_bytes() {
        let head = r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}"#;
        assert_eq!(response("{}", None), format!("{head}}}}}"));
        assert_eq!(response("{ }", None), format!("{head} }}}}"));
        let odd = r#"{ "b":1.0,"a":123456789012345678901234567890, "c" : [ 1e2 ]}"#;
        assert_eq!(response(odd, None), format!("{head},{}}}", &odd[1..]));
        let cache = Some(CacheHint::private(Duration::from_millis(5)));
        for (result, kept) in [
            (
                r#"{"resultType":"task","n":1.0}"#,
                json!({ "resultType": "task" }),
            ),
            (
                r#"{"_meta":{"a":1.0},"n":1.0}"#,
                json!({ "resultType": "complete" }),
            ),
            (
                r#"{"\u005fmeta":{"a":1.0},"n":1.0}"#,
                json!({ "resultType": "complete" }),
            ),
            (
                r#"{"content":[{"_meta":{"a":1.0}}],"n":1.0}"#,
                json!({ "resultType": "complete" }),
            ),
            (
                r#"{"ttlMs":9,"cacheScope":"public","n":1.0}"#,
                json!({ "ttlMs": 9, "cacheScope": "public" }),
            ),
            (
                r#"{"ttlMs":-9,"cacheScope":"all","n":1.0}"#,
                json!({ "ttlMs": 5, "cacheScope": "private" }),
            ),
        ] {
            let text = response(result, cache);
            let parsed: Value = serde_json::from_str(&text).unwrap();
            assert!(text.contains("\"n\":1.0"), "{text}");
            for (name, value) in kept.as_object().unwrap() {
                assert_eq!(&parsed["result"][name], value, "{text}");
            }
            assert_eq!(
                parsed["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
                "s"
            );
            let object: RawObject = serde_json::from_str(&text).unwrap();
            assert!(
                object.object("result").is_some(),
                "no member stands twice: {text}"
            );
        }
    }

    /// Goal: only quotas and mailrooms tell clients to wait, for a month at most. Method: rows of code, data and
    /// header.
    #[test]
    fn times_to_wait() {
        let other = json!({ "reason": "other", "retry_after_s": 7 });
        for (error_code, data, expected) in [
            (mcp::OVERLOADED, json!({ "retry_after_s": 7 }), Some(7)),
            (
                mcp::OVERLOADED,
                json!({ "reason": "quota", "quota": "q", "retry_after_s": u64::MAX }),
                Some(RETRY_AFTER_S_MAX),
            ),
            (mcp::OVERLOADED, json!({ "reason": "quota" }), None),
            (mcp::OVERLOADED, other, None),
            (mcp::UNAVAILABLE, json!({ "retry_after_s": 7 }), None),
            (
                -32000,
                json!({ "reason": "quota", "retry_after_s": 7 }),
                None,
            ),
        ] {
            let error = RpcError {
                data: RawValue::from_string(data.to_string()).ok(),
                ..RpcError::new(error_code, "later")
            };
            assert_eq!(retry_after_s(&error), expected, "{error_code} {data}");
        }
    }

    /// Goal: a legacy client gets no member of the modern era, and all others byte for byte. Method:
    /// results with such members, at the top and below, with escapes, and without.
    #[test]
    fn results_for_legacy_clients() {
        for (result, seen) in [
            (
                r#"{"resultType":"complete","n": 1.0,"ttlMs":5,"cacheScope":"private","_meta":{"ttlMs":1}}"#,
                r#"{"n":1.0,"_meta":{"ttlMs":1}}"#,
            ),
            (r#"{"tools":[],"ttl\u004ds":5}"#, r#"{"tools":[]}"#),
            (
                r#"{ "structuredContent": {"resultType": "x"}, "n": 1.0 }"#,
                r#"{ "structuredContent": {"resultType": "x"}, "n": 1.0 }"#,
            ),
            (r#"{ "content":[] }"#, r#"{ "content":[] }"#),
            ("[1]", "[1]"),
        ] {
            let raw = RawValue::from_string(result.to_owned()).unwrap();
            assert_eq!(without_modern_members(raw).get(), seen);
        }
    }
}
