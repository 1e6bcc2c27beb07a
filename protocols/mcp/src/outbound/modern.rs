//! Modern era: self-contained requests, and questions of the server as results (2026-07-28).

use std::borrow::Cow;
use std::sync::Arc;

use callboard_message::json::{RawCursor, quote, text};
use callboard_message::{Failure, RawObject};
use callboard_rpc::RpcError;
use callboard_runtime::Context;
use futures::future::join_all;
use serde_json::value::{RawValue, to_raw_value};

use super::call_exchange::ServerConnection;
use super::dialect::ServerDialect;
use super::exchange::{ExchangeResult, TransportError};
use super::options::{CONCURRENT_QUESTIONS_MAX, McpClientOptions};
use super::server_messages::ask_in_call;
use super::session::{MetaAdditions, UpstreamSession, encode_body};
use super::tool_cache::{ToolCache, header_value, param_headers};
use super::transport::{OutgoingRequest, RequestHeaders};
use crate::wire::{Era, Revision, code, error_mapping, hmcp, meta};

/// Methods whose result may hold questions of the server (2026-07-28, patterns/mrtr, supported
/// requests).
const INTERACTIVE_METHODS: [&str; 4] =
    ["tools/call", "prompts/get", "resources/read", hmcp::METHOD];
/// Members of a `server/discover` result that are left out of the server's description.
const RESULT_ONLY_MEMBERS: [&str; 4] = ["resultType", "ttlMs", "cacheScope", "supportedVersions"];

/// Sends `server/discover` and returns the description of a modern server. Returns `None` for a
/// legacy server: one that lists legacy revisions only, or whose response no modern server would
/// give.
pub(crate) async fn discover(
    connection: &ServerConnection,
) -> Result<Option<RawObject>, TransportError> {
    // A server may reject the first revision and name others; there is one to choose from.
    for again in [true, false] {
        let (params, options) = (RawObject::new(), &connection.options);
        let asked = connection.send_without_call(|number| {
            build_request(number, "server/discover", &params, None, options, None)
        });
        match asked.await {
            Ok(result) => return parse_discovery(&result),
            Err(TransportError::Rpc { error, .. }) if error.code == code::UNSUPPORTED_VERSION => {
                match era_from_error(error.data.as_deref()) {
                    Some(Era::Modern) if again => {}
                    Some(Era::Legacy) => return Ok(None),
                    _ => {
                        return Err(TransportError::Rpc {
                            error,
                            status: None,
                        });
                    }
                }
            }
            Err(TransportError::Rpc { error, status }) => {
                return match error.code {
                    code::HEADER_MISMATCH | code::MISSING_CLIENT_CAPABILITY => {
                        Err(TransportError::Rpc { error, status })
                    }
                    _ => Ok(None),
                };
            }
            // An authorization error says nothing about the era.
            Err(TransportError::Status(status)) if !matches!(status, 401 | 403 | 429) => {
                return Ok(None);
            }
            Err(TransportError::Protocol(_)) => return Ok(None),
            Err(other) => return Err(other),
        }
    }
    Ok(None)
}

fn parse_discovery(result: &RawValue) -> Result<Option<RawObject>, TransportError> {
    // Some legacy servers answer any request with a result.
    let Some(mut about) = RawObject::parse(result)
        .ok()
        .filter(|r| r.has("supportedVersions"))
    else {
        return Ok(None);
    };
    match newest_era(
        &about
            .read::<Vec<String>>("supportedVersions")
            .unwrap_or_default(),
    ) {
        Some(Era::Modern) => {}
        Some(Era::Legacy) => return Ok(None),
        None => {
            return Err(TransportError::Protocol(
                "the server supports no revision of MCP that callboard supports: update one of the two".into(),
            ));
        }
    }
    for name in RESULT_ONLY_MEMBERS {
        about.remove(name);
    }
    about.set_some(
        "serverInfo",
        &about
            .object("_meta")
            .and_then(|mut m| m.remove(meta::SERVER_INFO)),
    );
    about.set("protocolVersion", Revision::V2026_07_28.as_str());
    Ok(Some(about))
}

/// Returns the era of the newest revision that a server lists in the `data` of an
/// unsupported-version error. Returns `None` if this client knows none of them.
fn era_from_error(data: Option<&RawValue>) -> Option<Era> {
    newest_era(
        &RawObject::parse(data?)
            .ok()?
            .read::<Vec<String>>("supported")?,
    )
}

fn newest_era(versions: &[String]) -> Option<Era> {
    versions
        .iter()
        .filter_map(|version| Revision::parse(version))
        .max()
        .map(Revision::era)
}

/// Builds a request of the modern era. `cx` is the call that it belongs to, if any. `tools`
/// determines which arguments of a tool call are repeated in headers.
pub(crate) fn build_request(
    number: u64,
    method: &str,
    params: &RawObject,
    cx: Option<&Context>,
    options: &McpClientOptions,
    tools: Option<&ToolCache>,
) -> OutgoingRequest {
    let mut meta = MetaAdditions::default();
    if let Some(cx) = cx {
        meta.add_call(number, cx);
    }
    meta.add(
        meta::PROTOCOL_VERSION,
        quote(Revision::V2026_07_28.as_str()),
    );
    meta.add(meta::CLIENT_INFO, to_json(&options.client_info));
    let can = cx.map(Context::caller_capabilities).unwrap_or_default();
    meta.add(meta::CLIENT_CAPABILITIES, to_json(&can.0));
    let wants_log = cx
        .and_then(Context::call)
        .is_some_and(|call| call.caller.is_some());
    let says_level = || {
        params
            .object("_meta")
            .is_some_and(|own| own.has(meta::LOG_LEVEL))
    };
    if let Some(level) = options.log_level.filter(|_| wants_log && !says_level()) {
        let level = to_raw_value(&level).unwrap_or_default();
        meta.add(meta::LOG_LEVEL, level.get().to_owned());
    }
    let named = match method {
        "tools/call" | "prompts/get" => params.text("name"),
        "resources/read" => params.text("uri"),
        // The tasks extension (SEP-2663, routing headers).
        "tasks/get" | "tasks/update" | "tasks/cancel" => params.text("taskId"),
        _ => None,
    };
    let known = named
        .as_deref()
        .filter(|_| method == "tools/call")
        .and_then(|tool| tools?.get(tool));
    let mirrored = known
        .as_ref()
        .and_then(|known| known.header_params.as_deref())
        .unwrap_or_default();
    let arguments = params.object("arguments").filter(|_| !mirrored.is_empty());
    OutgoingRequest {
        number,
        method: method.to_owned(),
        body: encode_body(number, method, params, &meta),
        headers: RequestHeaders::Modern {
            name: named.as_deref().and_then(header_value),
            params: arguments
                .map(|arguments| param_headers(mirrored, &arguments))
                .unwrap_or_default(),
        },
        // A legacy server doesn't answer this, and has no use for a cancellation.
        is_cancellable: method != "server/discover",
    }
}

fn to_json(object: &RawObject) -> String {
    let mut out = String::new();
    object.write_with(&[], &mut out);
    out
}

/// Sends a request of the call `cx`. While the result holds questions of the server, asks the
/// caller and sends the request again with the answers. Fails with `Overloaded` after `rounds_max`
/// rounds.
pub(crate) async fn request_in_rounds(
    session: &UpstreamSession,
    tools: &Arc<ToolCache>,
    method: &str,
    params: &RawObject,
    cx: &Context,
) -> ExchangeResult {
    let mut next = Cow::Borrowed(params);
    for _ in 0..=session.options.rounds_max {
        let outgoing = |number| {
            build_request(
                number,
                method,
                &next,
                Some(cx),
                &session.options,
                Some(tools),
            )
        };
        let result = session.send_in_call(cx, outgoing).await?;
        match result_type(&result).as_deref() {
            None | Some("complete") => return Ok(result),
            Some("input_required") if INTERACTIVE_METHODS.contains(&method) => {}
            Some("input_required") => {
                return Err(TransportError::Protocol(format!(
                    "the server answered {method} with questions, which MCP doesn't allow: the server has to be corrected"
                )));
            }
            // A type of an extension that the caller has declared, and can handle.
            Some(_) if cx.caller_capabilities().0.has("extensions") => return Ok(result),
            Some(_) => {
                return Err(TransportError::Protocol(
                    "the server's result has an unknown `resultType`: the server has to be corrected".into(),
                ));
            }
        }
        next = Cow::Owned(Box::pin(next_round_params(session, params, &result, cx)).await?);
    }
    Err(TransportError::Failed(Failure::overloaded(format!(
        "the server asked more than {} times in one call",
        session.options.rounds_max
    ))))
}

/// Returns the member `resultType` of a result; `None` if absent.
fn result_type(result: &RawValue) -> Option<String> {
    let (_, kind) = RawCursor::object(result)?.find(|(name, _)| name == "resultType")?;
    text(kind).map(Cow::into_owned)
}

/// Asks the caller the questions in `result`. Returns the params for sending the request again:
/// `params` with the answers and the server's `requestState`.
async fn next_round_params(
    session: &UpstreamSession,
    params: &RawObject,
    result: &RawValue,
    cx: &Context,
) -> Result<RawObject, TransportError> {
    let read = RawObject::parse(result).map_err(|_| malformed_questions())?;
    let mut next = params.clone();
    if let Some(asked) = read.get("inputRequests") {
        let asked = RawObject::parse(asked).map_err(|_| malformed_questions())?;
        let dialect = session.notifications.dialect;
        let client = dialect.client_name(Some(params), cx.call().map(|call| &**call));
        next.set(
            "inputResponses",
            collect_answers(&asked, cx, (dialect, client)).await?,
        );
    }
    match (read.get("requestState"), read.has("inputRequests")) {
        (Some(state), _) => next.set_raw("requestState", state.to_owned()),
        (None, true) => {}
        (None, false) => return Err(malformed_questions()),
    }
    Ok(next)
}

/// Asks the caller all questions in `asked` concurrently and returns the answers by the same keys.
/// Fails with `Overloaded` for more than [`CONCURRENT_QUESTIONS_MAX`] questions.
async fn collect_answers(
    asked: &RawObject,
    cx: &Context,
    (dialect, client): (ServerDialect, Option<String>),
) -> Result<RawObject, TransportError> {
    if asked.len() > CONCURRENT_QUESTIONS_MAX {
        let why =
            format!("the server asked more than {CONCURRENT_QUESTIONS_MAX} questions at once");
        return Err(TransportError::Failed(Failure::overloaded(why)));
    }
    let client = &client;
    let asking = asked.iter().map(|(key, request)| async move {
        let request = RawObject::parse(request).map_err(|_| malformed_questions())?;
        let method = request.text("method").ok_or_else(malformed_questions)?;
        let question = dialect
            .parse_question(&method, request.get("params"), || client.clone())
            .map_err(|error| {
                TransportError::Protocol(format!(
                    "the server's input request is malformed: {}",
                    error.message
                ))
            })?;
        let answer = ask_in_call(cx, question)
            .await
            .map_err(|failure| TransportError::Failed(error_mapping::to_own_refusal(failure)))?;
        Ok::<_, TransportError>((key.to_owned(), answer))
    });
    let mut answers = RawObject::new();
    for answered in join_all(asking).await {
        let (key, answer) = answered?;
        answers.set_raw(&key, answer);
    }
    Ok(answers)
}

fn malformed_questions() -> TransportError {
    TransportError::Protocol(
        "the server's input request is malformed: it needs `requestState`, or `inputRequests` with a `method` each"
            .into(),
    )
}

/// Returns true if `error` is a rejection of `initialize` by a server that supports the modern era
/// only.
pub(crate) fn is_modern_only(error: &RpcError) -> bool {
    error.code == code::UNSUPPORTED_VERSION
        && era_from_error(error.data.as_deref()) == Some(Era::Modern)
}

/// Returns true if the server rejected a request because its headers don't match its body. The
/// cached tool schemas may then be outdated.
pub(crate) fn is_header_mismatch(error: &TransportError) -> bool {
    matches!(error, TransportError::Rpc { error, .. } if error.code == code::HEADER_MISMATCH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn raw(json: Value) -> Box<RawValue> {
        to_raw_value(&json).unwrap()
    }

    /// Goal: a server's era follows from its response. Method: results and errors of both kinds.
    #[test]
    fn eras_are_told_apart() {
        let found = parse_discovery(&raw(serde_json::json!({
            "supportedVersions": ["2025-11-25", "2026-07-28"], "capabilities": {"tools": {}}, "ttlMs": 1,
            "_meta": { "io.modelcontextprotocol/serverInfo": { "name": "s" } }, "odd": 1.0
        })));
        let Ok(Some(about_it)) = found else {
            panic!("not modern")
        };
        assert_eq!(
            about_it.object("serverInfo").unwrap().text("name").unwrap(),
            "s"
        );
        assert!(about_it.has("odd") && !about_it.has("ttlMs"));
        assert!(matches!(
            parse_discovery(&raw(serde_json::json!({"tools": []}))),
            Ok(None)
        ));
        assert!(
            parse_discovery(&raw(
                serde_json::json!({"supportedVersions": ["2031-01-01"]})
            ))
            .is_err()
        );
        assert_eq!(
            era_from_error(Some(&raw(serde_json::json!({"supported": ["2025-06-18"]})))),
            Some(Era::Legacy)
        );
        assert_eq!(
            era_from_error(Some(&raw(serde_json::json!({"supported": ["2026-07-28"]})))),
            Some(Era::Modern)
        );
        assert_eq!(era_from_error(None), None);
    }
}
