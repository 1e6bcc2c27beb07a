//! How a request ends: its status over HTTP; in the stateless era, the members that its result lacks and the code of its error.

use std::time::Duration;

use actix_web::http::StatusCode;
use callboard_message::json::quote;
use callboard_message::{RawMembers, RawObject};
use callboard_rpc::{Id, RpcError, code, encode_error};
use serde_json::value::RawValue;

use super::agent_adapter::REQUIRED_CAPABILITIES;
use super::options::{CacheHint, ModernOptions};
use super::request::Method;
use crate::wire::code as mcp;
use crate::wire::meta::SERVER_INFO;

/// What a request of the stateless era comes to that isn't an error.
#[derive(Clone)]
pub(crate) enum Reply {
    /// To its result.
    Complete(Box<RawValue>),
    /// To its result, by way of questions.
    Resumed(Box<RawValue>),
    /// To questions.
    InputRequired(Box<RawValue>),
}

/// What a request is answered with.
pub(crate) struct Answer {
    /// The status of HTTP, where nothing was sent before.
    pub status: StatusCode,
    /// One JSON-RPC response, on one line where the agent's reply is; `None` where a request was cancelled, or needs none.
    pub body: Option<Vec<u8>>,
}

impl Answer {
    /// An error with the status that the specification gives its code.
    pub fn error(id: Option<&Id>, error: RpcError) -> Self {
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
        }
    }

    pub fn ok(body: Option<Vec<u8>>) -> Self {
        Self {
            status: StatusCode::OK,
            body,
        }
    }
}

/// Members that every result of the stateless era gets; written once.
pub(crate) struct Members {
    /// For how long and for whom results may be kept.
    options: ModernOptions,
    /// `"_meta":{…}`, or nothing.
    meta: String,
    /// `serverInfo` in JSON, or nothing.
    server: Option<String>,
}

impl Members {
    pub fn new(options: &ModernOptions, server: RawObject) -> Self {
        let server = options
            .names_server
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

    /// Completes what a request came to.
    pub fn finish(&self, id: &Id, method: Method, outcome: Result<Reply, RpcError>) -> Answer {
        let (kind, cache, result) = match outcome {
            Err(error) => return Answer::error(Some(id), of_modern_era(error)),
            Ok(Reply::InputRequired(result)) => ("input_required", None, result),
            Ok(Reply::Complete(result)) => ("complete", self.cache_hint(method), result),
            // What answers led to is not for those who ask the same without them (server/utilities/caching).
            Ok(Reply::Resumed(result)) => (
                "complete",
                self.cache_hint(method)
                    .map(|_| CacheHint::private(Duration::ZERO)),
                result,
            ),
        };
        Answer::ok(Some(self.response(id, kind, cache, &result)))
    }

    /// For how long and for whom a result may be kept; `None` where the specification has no such thing.
    fn cache_hint(&self, method: Method) -> Option<CacheHint> {
        match method {
            Method::Discover => Some(self.options.discover_cache),
            Method::ListTools
            | Method::ListPrompts
            | Method::ListResources
            | Method::ListResourceTemplates => Some(self.options.list_cache),
            Method::ReadResource => Some(self.options.read_cache),
            _ => None,
        }
    }

    /// The response with `result` as it came, and what it lacks put at its beginning. A result that says so itself keeps
    /// what it says.
    fn response(
        &self,
        id: &Id,
        kind: &str,
        cache: Option<CacheHint>,
        result: &RawValue,
    ) -> Vec<u8> {
        let mut out =
            Vec::with_capacity(128 + id.as_json().len() + self.meta.len() + result.get().len());
        push(
            &mut out,
            &["{\"jsonrpc\":\"2.0\",\"id\":", id.as_json(), ",\"result\":"],
        );
        match result.get().strip_prefix('{') {
            Some(rest) if !may_have_ours(result.get(), cache.is_some()) => {
                push(&mut out, &["{\"resultType\":\"", kind, "\""]);
                if let Some(cache) = cache {
                    let (ttl_ms, scope) = cache.members();
                    push(
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

/// Whether a member of a result may have one of our names; an escape could hide one.
fn may_have_ours(result: &str, cached: bool) -> bool {
    let has = |name: &str| result.contains(name);
    has("\"resultType\"")
        || has("\"_meta\"")
        || has("\\u")
        || (cached && (has("\"ttlMs\"") || has("\"cacheScope\"")))
}

fn push(out: &mut Vec<u8>, parts: &[&str]) {
    for part in parts {
        out.extend_from_slice(part.as_bytes());
    }
}

/// An error without the codes that this era took back, and with the one that it has for a client that can't be asked.
fn of_modern_era(mut error: RpcError) -> RpcError {
    let names_capabilities = || {
        error
            .data
            .as_ref()
            .and_then(|data| RawObject::parse(data).ok()?.object(REQUIRED_CAPABILITIES))
    };
    match error.code {
        mcp::RESOURCE_NOT_FOUND_LEGACY => error.code = code::INVALID_PARAMS,
        mcp::URL_ELICITATION_REQUIRED => error.code = mcp::NOBODY_TO_ASK,
        mcp::NOBODY_TO_ASK if names_capabilities().is_some() => {
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
        let members = Members::new(
            &ModernOptions::default(),
            RawObject::of("name", "s").with("version", "1"),
        );
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
}
