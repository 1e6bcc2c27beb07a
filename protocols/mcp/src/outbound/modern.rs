//! The modern era: each request says everything, and a server's questions are results (2026-07-28).

use std::borrow::Cow;
use std::sync::Arc;

use callboard_message::json::{Walk, quote, text};
use callboard_message::{Failure, RawObject};
use callboard_rpc::RpcError;
use callboard_runtime::Cx;
use futures::future::join_all;
use serde_json::value::{RawValue, to_raw_value};

use super::conversation::Connection;
use super::dialect::Dialect;
use super::exchange::{Exchanged, TransportError};
use super::options::{ClientOptions, QUESTIONS_AT_ONCE_MAX};
use super::server_messages::ask_in_call;
use super::session::{Meta, Session, body};
use super::tool_cache::{ToolCache, header_params, header_value};
use super::transport::{Head, Outgoing};
use crate::wire::{Era, Revision, code, hmcp, meta};

/// The requests that a server may answer with questions (2026-07-28, patterns/mrtr, supported requests).
const MAY_ASK: [&str; 4] = ["tools/call", "prompts/get", "resources/read", hmcp::METHOD];
/// Members of a `server/discover` result that say nothing of the server itself.
const NOT_ABOUT: [&str; 4] = ["resultType", "ttlMs", "cacheScope", "supportedVersions"];

/// Asks a server what it is, and returns what a modern one says of itself. `None`: a legacy server, which is any without an
/// answer that only a modern server gives.
pub(crate) async fn discover(connection: &Connection) -> Result<Option<RawObject>, TransportError> {
    // A server may refuse the first choice and name others; there is one to choose.
    for again in [true, false] {
        let (params, options) = (RawObject::new(), &connection.options);
        let asked = connection
            .quietly(|number| request(number, "server/discover", &params, None, options, None));
        match asked.await {
            Ok(result) => return about(&result),
            Err(TransportError::Rpc { error, .. }) if error.code == code::UNSUPPORTED_VERSION => {
                match choose(error.data.as_deref()) {
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
            // Who may ask is another matter than what it is.
            Err(TransportError::Status(status)) if !matches!(status, 401 | 403 | 429) => {
                return Ok(None);
            }
            Err(TransportError::Protocol(_)) => return Ok(None),
            Err(other) => return Err(other),
        }
    }
    Ok(None)
}

fn about(result: &RawValue) -> Result<Option<RawObject>, TransportError> {
    // Some legacy servers answer whatever they are asked.
    let Some(mut about) = RawObject::parse(result)
        .ok()
        .filter(|r| r.has("supportedVersions"))
    else {
        return Ok(None);
    };
    match era_of(
        &about
            .read::<Vec<String>>("supportedVersions")
            .unwrap_or_default(),
    ) {
        Some(Era::Modern) => {}
        Some(Era::Legacy) => return Ok(None),
        None => {
            return Err(TransportError::Protocol(
                "the server speaks no revision that is spoken here".into(),
            ));
        }
    }
    for name in NOT_ABOUT {
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

/// Which era to speak to a server that names what it speaks.
fn choose(data: Option<&RawValue>) -> Option<Era> {
    era_of(
        &RawObject::parse(data?)
            .ok()?
            .read::<Vec<String>>("supported")?,
    )
}

fn era_of(versions: &[String]) -> Option<Era> {
    versions
        .iter()
        .filter_map(|version| Revision::parse(version))
        .max()
        .map(Revision::era)
}

/// A request of the modern era, of the call `cx` or of none.
pub(crate) fn request(
    number: u64,
    method: &str,
    params: &RawObject,
    cx: Option<&Cx>,
    options: &ClientOptions,
    tools: Option<&ToolCache>,
) -> Outgoing {
    let mut meta = Meta::default();
    if let Some(cx) = cx {
        meta.put_call(number, cx);
    }
    meta.put(
        meta::PROTOCOL_VERSION,
        quote(Revision::V2026_07_28.as_str()),
    );
    meta.put(meta::CLIENT_INFO, json(&options.info));
    let can = cx.map(Cx::abilities).unwrap_or_default();
    meta.put(meta::CLIENT_CAPABILITIES, json(&can.0));
    let wants_log = cx
        .and_then(Cx::call)
        .is_some_and(|call| call.caller.is_some());
    let says_level = || {
        params
            .object("_meta")
            .is_some_and(|own| own.has(meta::LOG_LEVEL))
    };
    if let Some(level) = options.log_level.filter(|_| wants_log && !says_level()) {
        let level = to_raw_value(&level).unwrap_or_default();
        meta.put(meta::LOG_LEVEL, level.get().to_owned());
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
    Outgoing {
        number,
        method: method.to_owned(),
        body: body(number, method, params, &meta),
        head: Head::Modern {
            name: named.as_deref().and_then(header_value),
            params: arguments
                .map(|arguments| header_params(mirrored, &arguments))
                .unwrap_or_default(),
        },
        // A legacy server, which leaves this unanswered, would make nothing of being told.
        cancellable: method != "server/discover",
    }
}

fn json(object: &RawObject) -> String {
    let mut out = String::new();
    object.write_with(&[], &mut out);
    out
}

/// Does a request of the call `cx`, round by round, until the server has asked all that it wants to know.
pub(crate) async fn rounds(
    session: &Session,
    tools: &Arc<ToolCache>,
    method: &str,
    params: &RawObject,
    cx: &Cx,
) -> Exchanged {
    let mut next = Cow::Borrowed(params);
    for _ in 0..=session.options.rounds_max {
        let outgoing = |number| {
            request(
                number,
                method,
                &next,
                Some(cx),
                &session.options,
                Some(tools),
            )
        };
        let result = session.converse(cx, outgoing).await?;
        match result_type(&result).as_deref() {
            None | Some("complete") => return Ok(result),
            Some("input_required") if MAY_ASK.contains(&method) => {}
            Some("input_required") => {
                return Err(TransportError::Protocol(format!(
                    "the server answers {method} with questions"
                )));
            }
            // Of an extension that the caller has declared; it knows what to make of it.
            Some(_) if cx.abilities().0.has("extensions") => return Ok(result),
            Some(_) => {
                return Err(TransportError::Protocol(
                    "the server's result is of an unknown type".into(),
                ));
            }
        }
        next = Cow::Owned(Box::pin(answered(session, params, &result, cx)).await?);
    }
    Err(TransportError::Failed(Failure::overloaded(format!(
        "the server asked more than {} times",
        session.options.rounds_max
    ))))
}

/// What a result says of its kind.
fn result_type(result: &RawValue) -> Option<String> {
    let (_, kind) = Walk::object(result)?.find(|(name, _)| name == "resultType")?;
    text(kind).map(Cow::into_owned)
}

/// The params of the next round, after a result that asks.
async fn answered(
    session: &Session,
    params: &RawObject,
    result: &RawValue,
    cx: &Cx,
) -> Result<RawObject, TransportError> {
    let read = RawObject::parse(result).map_err(|_| bad_questions())?;
    let mut next = params.clone();
    if let Some(asked) = read.get("inputRequests") {
        let asked = RawObject::parse(asked).map_err(|_| bad_questions())?;
        let dialect = session.ear.dialect;
        let client = dialect.client(Some(params), cx.call().map(|call| &**call));
        next.set(
            "inputResponses",
            answers(&asked, cx, (dialect, client)).await?,
        );
    }
    match (read.get("requestState"), read.has("inputRequests")) {
        (Some(state), _) => next.set_raw("requestState", state.to_owned()),
        (None, true) => {}
        (None, false) => return Err(bad_questions()),
    }
    Ok(next)
}

/// Asks all that a server wants to know, at once.
async fn answers(
    asked: &RawObject,
    cx: &Cx,
    (dialect, client): (Dialect, Option<String>),
) -> Result<RawObject, TransportError> {
    if asked.len() > QUESTIONS_AT_ONCE_MAX {
        let why = format!("the server has more than {QUESTIONS_AT_ONCE_MAX} questions at once");
        return Err(TransportError::Failed(Failure::overloaded(why)));
    }
    let client = &client;
    let asking = asked.iter().map(|(key, request)| async move {
        let request = RawObject::parse(request).map_err(|_| bad_questions())?;
        let method = request.text("method").ok_or_else(bad_questions)?;
        let question = dialect
            .read(&method, request.get("params"), || client.clone())
            .map_err(|_| bad_questions())?;
        let answer = ask_in_call(cx, question)
            .await
            .map_err(TransportError::Failed)?;
        Ok::<_, TransportError>((key.to_owned(), answer))
    });
    let mut answers = RawObject::new();
    for answered in join_all(asking).await {
        let (key, answer) = answered?;
        answers.set_raw(&key, answer);
    }
    Ok(answers)
}

fn bad_questions() -> TransportError {
    TransportError::Protocol("the server asks for input in a way that can't be read".into())
}

/// Whether a server refused `initialize` for it speaks the modern era.
pub(crate) fn is_modern_only(error: &RpcError) -> bool {
    error.code == code::UNSUPPORTED_VERSION && choose(error.data.as_deref()) == Some(Era::Modern)
}

/// Whether the server found the headers of a request wrong: what is known of its tools may be out of date.
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

    /// Goal: a server's own words say which era it is of. Method: results and errors of both kinds.
    #[test]
    fn eras_are_told_apart() {
        let found = about(&raw(serde_json::json!({
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
            about(&raw(serde_json::json!({"tools": []}))),
            Ok(None)
        ));
        assert!(
            about(&raw(
                serde_json::json!({"supportedVersions": ["2031-01-01"]})
            ))
            .is_err()
        );
        assert_eq!(
            choose(Some(&raw(serde_json::json!({"supported": ["2025-06-18"]})))),
            Some(Era::Legacy)
        );
        assert_eq!(
            choose(Some(&raw(serde_json::json!({"supported": ["2026-07-28"]})))),
            Some(Era::Modern)
        );
        assert_eq!(choose(None), None);
    }
}
