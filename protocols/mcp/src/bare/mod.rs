//! The bare dialect: one JSON-RPC `tools/call` a POST, no handshake, no session, no version header.
//!
//! What the clinics speak. Any client that can POST JSON is served; nothing but the envelope is required of it. The server is
//! [`McpServer`](crate::inbound::McpServer) with [`Compat::bare`](crate::inbound::Compat::bare), on loopback addresses only:
//! the dialect has no credentials.
//!
//! # Inbound
//!
//! | sent | HTTP status | code |
//! |---|---|---|
//! | `tools/call` that succeeds | 200 | the reply as `result`, and `"error":null` |
//! | another method | 200 | -32601 |
//! | `params` of the wrong shape, an unknown tool, arguments that don't fit or name nothing (say, an unknown patient) | 200 | -32602 |
//! | anything that the agent can't or won't do | 200 | -32000 |
//! | no JSON | 200 | -32700 |
//! | JSON that is no request, a batch, an id that is neither string nor integer, `tools/call` without id, a response | 200 | -32600 |
//! | another notification | 202, empty | |
//! | a body over the limit | 413 | -32600 |
//! | a body that doesn't arrive in time, or whole | 408, 400 | -32600 |
//! | another content type or encoding | 415 | -32600 |
//! | GET, DELETE, anything but POST | 405 with `Allow` | -32600 |
//! | an `Origin` or `Host` that isn't this machine's | 403 | -32600 |
//! | a credential that nobody verifies | 401 | -32600 |
//!
//! Errors of the call have status 200 because the dialect's clients read the code from the body and take any other
//! status for a transport failure; where the request never became a call, the status says so, and the body says it
//! again. A reply has the document's shape: both `result` and `error`, one of them `null`. An error's `data.kind` is
//! the [`FailureKind`](callboard_message::FailureKind), which tells an unknown patient from a malformed argument.
//!
//! # What travels with a call
//!
//! Optional members of `params._meta`, ignored by servers that don't know them: `callboard/purpose` (why the principal
//! asks), `callboard/deadline-ms` (how long the caller will wait), `callboard/hops` (how many agents the call passed),
//! `traceparent` (W3C Trace Context). Who the principal is never comes from the body.

mod client;

use std::borrow::Cow;
use std::time::Duration;

use callboard_message::{Failure, FailureKind, RawMembers, RawObject, TraceContext};
use callboard_rpc::{RpcError, code};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::wire::meta::{PURPOSE, PURPOSE_BYTES_MAX, TRACEPARENT};

pub use client::{
    BareClientError, BareClientOptions, BareMcpClient, CALL_TIMEOUT_DEFAULT, CALLS_IN_FLIGHT_MAX,
    CONNECT_TIMEOUT_DEFAULT,
};

/// How long a call may take at a server, by default; the caller may want less.
pub const CALL_DEADLINE_DEFAULT: Duration = Duration::from_secs(30);

/// The only method of the dialect.
pub(crate) const METHOD: &str = "tools/call";

/// Most bytes of a tool's name.
pub const TOOL_NAME_BYTES_MAX: usize = 64;
/// How many milliseconds the caller will wait.
const DEADLINE_MS: &str = "callboard/deadline-ms";
/// How many agents the call has passed.
const HOPS: &str = "callboard/hops";

/// A call of a tool, and what travels with it.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub tool: String,
    /// An object.
    pub arguments: Cow<'a, RawValue>,
    pub meta: CallMetaParams,
}

/// The members of `_meta` that are ours.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct CallMetaParams {
    pub purpose: Option<String>,
    /// How long the caller will wait.
    pub patience: Option<Duration>,
    pub hops: u16,
    pub trace: Option<TraceContext>,
}

/// What is wrong with `params`. Change it; nothing was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ParamsError {
    #[error("`params` must be an object")]
    NotAnObject,
    #[error("`params.name` must be a string of 1 to {TOOL_NAME_BYTES_MAX} bytes")]
    Name,
    #[error("`params.arguments` must be an object")]
    Arguments,
    #[error("`params._meta` must be an object")]
    Meta,
    #[error(
        "`params._meta[\"callboard/purpose\"]` must be a string of 1 to {PURPOSE_BYTES_MAX} bytes"
    )]
    Purpose,
    #[error("`params._meta[\"callboard/deadline-ms\"]` must be a whole number of milliseconds")]
    Deadline,
    #[error("`params._meta[\"callboard/hops\"]` must be a whole number up to 65535")]
    Hops,
}

/// Reads what a caller sent. Members that aren't ours are ignored.
pub(crate) fn read_call(params: Option<&RawValue>) -> Result<Call<'_>, ParamsError> {
    let members = params
        .and_then(|raw| RawMembers::parse(raw).ok())
        .ok_or(ParamsError::NotAnObject)?;
    let tool = members
        .get("name")
        .and_then(|raw| text(raw, TOOL_NAME_BYTES_MAX))
        .ok_or(ParamsError::Name)?;
    let arguments = match members.get("arguments") {
        None => Cow::Owned(RawObject::new().to_raw()),
        Some(raw) if raw.get().starts_with('{') => Cow::Borrowed(raw),
        Some(_) => return Err(ParamsError::Arguments),
    };
    let meta = members
        .get("_meta")
        .map_or(Ok(CallMetaParams::default()), read_meta)?;
    Ok(Call {
        tool,
        arguments,
        meta,
    })
}

fn read_meta(raw: &RawValue) -> Result<CallMetaParams, ParamsError> {
    let members = RawMembers::parse(raw).map_err(|_| ParamsError::Meta)?;
    let deadline_ms: Option<u64> = read_member(&members, DEADLINE_MS, ParamsError::Deadline, json)?;
    Ok(CallMetaParams {
        purpose: read_member(&members, PURPOSE, ParamsError::Purpose, |raw| {
            text(raw, PURPOSE_BYTES_MAX)
        })?,
        patience: deadline_ms.map(Duration::from_millis),
        hops: read_member(&members, HOPS, ParamsError::Hops, json)?.unwrap_or(0),
        // W3C Trace Context, section 2.3: whoever can't read it begins a trace of its own.
        trace: members.read(TRACEPARENT),
    })
}

fn read_member<T>(
    members: &RawMembers<'_>,
    name: &str,
    error: ParamsError,
    read: impl FnOnce(&RawValue) -> Option<T>,
) -> Result<Option<T>, ParamsError> {
    members
        .get(name)
        .map(|raw| read(raw).ok_or(error))
        .transpose()
}

/// Writes what a server is sent.
fn write_call(call: &Call<'_>) -> Box<RawValue> {
    let CallMetaParams {
        purpose,
        patience,
        hops,
        trace,
    } = &call.meta;
    let mut meta = RawObject::new();
    meta.set_some(PURPOSE, purpose);
    meta.set_some(
        DEADLINE_MS,
        &patience.map(|patience| u64::try_from(patience.as_millis()).unwrap_or(u64::MAX)),
    );
    meta.set_some(HOPS, &Some(hops).filter(|hops| **hops > 0));
    meta.set_some(TRACEPARENT, &trace.map(|trace| trace.to_string()));
    RawObject::of("name", &call.tool)
        .with("arguments", &call.arguments)
        .with("_meta", meta)
        .to_raw()
}

fn json<T: DeserializeOwned>(raw: &RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

fn text(raw: &RawValue, bytes_max: usize) -> Option<String> {
    json::<String>(raw).filter(|text| (1..=bytes_max).contains(&text.len()))
}

/// Most characters of a peer's error message that are passed on.
const MESSAGE_CHARS_MAX: usize = 300;

/// The error that tells a caller of an agent's failure.
///
/// An unknown patient is an invalid parameter as an unknown tool is: the caller must change what it sends. A bug's
/// message stays here, because a panic or a parser may have put data in it.
pub(crate) fn to_rpc(failure: Failure) -> RpcError {
    let (message, detail) = match failure.kind {
        FailureKind::Internal => ("internal error".to_owned(), None),
        _ => (failure.message, failure.data),
    };
    // The code is too coarse for the kind.
    let mut data = RawObject::of("kind", failure.kind);
    data.set_some("detail", &detail);
    RpcError {
        code: code_of(failure.kind),
        message,
        data: Some(data.to_raw()),
    }
}

/// The failure that a remote agent's error is here. Its `data.code` is the code that came.
///
/// Foreign `data` is dropped: nobody here knows what it may hold.
fn from_rpc(error: &RpcError) -> Failure {
    let ours = error
        .data
        .as_deref()
        .and_then(|raw| RawObject::parse(raw).ok());
    let ours = ours.and_then(|data| {
        Some((
            data.read::<FailureKind>("kind")?,
            data.read::<Option<Value>>("detail").flatten(),
        ))
    });
    let (kind, detail) = match (error.code, ours) {
        // A kind refines its own code; it doesn't overrule another.
        (code, Some((kind, detail))) if code_of(kind) == code => (kind, detail),
        (code::INVALID_PARAMS, _) => (FailureKind::InvalidInput, None),
        (code::METHOD_NOT_FOUND, _) => (FailureKind::NotFound, None),
        (code::PARSE_ERROR | code::INVALID_REQUEST | code::INTERNAL_ERROR, _) => {
            (FailureKind::Internal, None)
        }
        (code::SERVER_ERROR, _) => (FailureKind::Unavailable, None),
        _ => (FailureKind::Rejected, None),
    };
    let message: String = error
        .message
        .chars()
        .filter(|c| !c.is_control())
        .take(MESSAGE_CHARS_MAX)
        .collect();
    Failure::new(kind, message).with_data(data(error.code, detail))
}

fn code_of(kind: FailureKind) -> i64 {
    match kind {
        FailureKind::InvalidInput | FailureKind::NotFound => code::INVALID_PARAMS,
        _ => code::SERVER_ERROR,
    }
}

/// A failure of the way to the remote agent, or of what came back, is -32000 in the dialect.
fn coded(failure: Failure) -> Failure {
    if failure.data.is_some() {
        failure
    } else {
        failure.with_data(data(code::SERVER_ERROR, None))
    }
}

fn data(code: i64, detail: Option<Value>) -> Value {
    match detail {
        Some(detail) => json!({ "code": code, "detail": detail }),
        None => json!({ "code": code }),
    }
}

#[cfg(test)]
mod params_tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    /// Goal: what a caller writes is what a server reads. Method: with everything that travels, and with nothing.
    #[test]
    fn calls_round_trip() {
        let arguments = raw(r#"{"patient_id":"CARD-001", "n":1.0}"#);
        let meta = || CallMetaParams {
            purpose: Some("treatment".into()),
            patience: Some(Duration::from_millis(1500)),
            hops: 3,
            trace: Some(TraceContext::root()),
        };
        for wanted in [meta(), CallMetaParams::default()] {
            let sent = Call {
                tool: "get_patient".into(),
                arguments: Cow::Borrowed(&arguments),
                meta: wanted,
            };
            let written = write_call(&sent);
            let read = read_call(Some(&written)).unwrap();
            assert_eq!((read.tool, read.meta), (sent.tool, sent.meta));
            assert_eq!(read.arguments.get(), arguments.get());
        }
    }

    /// Goal: each member of the wrong shape is named. Method: one fault at a time.
    #[test]
    fn wrong_members_are_named() {
        let (long_name, long_purpose) = (
            "n".repeat(TOOL_NAME_BYTES_MAX + 1),
            "p".repeat(PURPOSE_BYTES_MAX + 1),
        );
        let meta = |members: &str| format!(r#"{{"name":"t","_meta":{{{members}}}}}"#);
        for (json, error) in [
            ("[]".to_owned(), ParamsError::NotAnObject),
            ("{}".to_owned(), ParamsError::Name),
            (r#"{"name":null}"#.to_owned(), ParamsError::Name),
            (r#"{"name":""}"#.to_owned(), ParamsError::Name),
            (r#"{"name":7}"#.to_owned(), ParamsError::Name),
            (format!(r#"{{"name":"{long_name}"}}"#), ParamsError::Name),
            (
                r#"{"name":"t","arguments":null}"#.to_owned(),
                ParamsError::Arguments,
            ),
            (
                r#"{"name":"t","arguments":[1]}"#.to_owned(),
                ParamsError::Arguments,
            ),
            (r#"{"name":"t","_meta":1}"#.to_owned(), ParamsError::Meta),
            (r#"{"name":"t","_meta":[]}"#.to_owned(), ParamsError::Meta),
            (meta(r#""callboard/purpose":1"#), ParamsError::Purpose),
            (meta(r#""callboard/purpose":"""#), ParamsError::Purpose),
            (
                meta(&format!(r#""callboard/purpose":"{long_purpose}""#)),
                ParamsError::Purpose,
            ),
            (meta(r#""callboard/deadline-ms":-1"#), ParamsError::Deadline),
            (
                meta(r#""callboard/deadline-ms":"1""#),
                ParamsError::Deadline,
            ),
            (meta(r#""callboard/hops":65536"#), ParamsError::Hops),
        ] {
            assert_eq!(read_call(Some(&raw(&json))).unwrap_err(), error, "{json}");
        }
        assert_eq!(read_call(None).unwrap_err(), ParamsError::NotAnObject);
        assert!(read_call(Some(&raw(&format!(r#"{{"name":"{}"}}"#, &long_name[1..])))).is_ok());
        assert!(
            read_call(Some(&raw(&meta(&format!(
                r#""callboard/purpose":"{}""#,
                &long_purpose[1..]
            )))))
            .is_ok()
        );
    }

    /// Goal: what isn't ours is left alone. Method: foreign members, a broken traceparent.
    #[test]
    fn foreign_members_are_ignored() {
        let json = raw(r#"{"name":"t","x":1,"_meta":{"progressToken":7,"traceparent":"00-no"}}"#);
        let call = read_call(Some(&json)).unwrap();
        assert_eq!(
            (call.arguments.get(), call.meta),
            ("{}", CallMetaParams::default())
        );
    }
}

#[cfg(test)]
mod error_map_tests {
    use serde_json::value::RawValue;

    use super::*;

    fn error(code: i64, data: Option<&str>) -> RpcError {
        RpcError {
            code,
            message: "m".into(),
            data: data.map(|d| RawValue::from_string(d.to_owned()).unwrap()),
        }
    }

    /// Goal: a failure keeps its kind and details over the wire. Method: every kind, there and back.
    #[test]
    fn kinds_round_trip() {
        use FailureKind::*;
        for kind in [
            InvalidInput,
            NotFound,
            Denied,
            Blocked,
            Rejected,
            Overloaded,
            Unavailable,
            TimedOut,
            Cancelled,
            NobodyToAsk,
            Internal,
        ] {
            let sent = to_rpc(Failure::new(kind, "m").with_data(json!({"rule": "R1"})));
            assert_eq!(
                sent.code,
                if matches!(kind, InvalidInput | NotFound) {
                    -32602
                } else {
                    -32000
                }
            );
            let read = from_rpc(&sent);
            assert_eq!(read.kind, kind);
            let data = read.data.unwrap();
            assert_eq!(data["code"], sent.code);
            assert_eq!(data.get("detail").is_some(), kind != Internal);
        }
    }

    /// Goal: a bug's message, which may quote data, doesn't leave. Method: a name in it.
    #[test]
    fn bugs_keep_their_message() {
        let sent = to_rpc(
            Failure::internal("reply can't be read: string \"Ana Souza\"")
                .with_data(json!("Ana Souza")),
        );
        assert_eq!(sent.message, "internal error");
        assert!(!sent.data.unwrap().get().contains("Souza"));
    }

    /// Goal: foreign errors become failures by their code. Method: each code, with and without foreign data.
    #[test]
    fn foreign_errors_are_read_by_code() {
        for (code, kind) in [
            (-32700, FailureKind::Internal),
            (-32600, FailureKind::Internal),
            (-32601, FailureKind::NotFound),
            (-32602, FailureKind::InvalidInput),
            (-32603, FailureKind::Internal),
            (-32000, FailureKind::Unavailable),
            (-1, FailureKind::Rejected),
            (i64::MAX, FailureKind::Rejected),
        ] {
            for data in [
                None,
                Some("null"),
                Some("\"Ana Souza\""),
                Some(r#"{"kind":"no_such_kind"}"#),
            ] {
                let failure = from_rpc(&error(code, data));
                assert_eq!(
                    (failure.kind, failure.data),
                    (kind, Some(json!({ "code": code }))),
                    "{code}"
                );
            }
        }
        // -32602 that claims to be a block is still an invalid parameter.
        assert_eq!(
            from_rpc(&error(-32602, Some(r#"{"kind":"blocked"}"#))).kind,
            FailureKind::InvalidInput
        );
    }

    /// Goal: a peer's message is bounded and printable. Method: one character more, and an escape sequence.
    #[test]
    fn messages_are_cut() {
        let long = RpcError::new(
            -32000,
            format!("\u{1b}[2J{}", "é".repeat(MESSAGE_CHARS_MAX + 1)),
        );
        let failure = from_rpc(&long);
        assert_eq!(failure.message.chars().count(), MESSAGE_CHARS_MAX);
        assert!(!failure.message.contains('\u{1b}'));
    }
}
