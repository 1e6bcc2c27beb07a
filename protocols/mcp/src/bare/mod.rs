//! The bare dialect: one JSON-RPC `tools/call` per POST, without handshake, session or version
//! header.
//!
//! The clinics use it. Any client that can POST JSON is served, and only the JSON-RPC envelope is
//! required of it. The server is [`McpServer`](crate::inbound::McpServer) with
//! [`CompatOptions::bare`](crate::inbound::CompatOptions::bare). It listens on loopback addresses
//! only, because the dialect has no credentials.
//!
//! # Inbound
//!
//! | request | HTTP status | code |
//! |---|---|---|
//! | `tools/call` that succeeds | 200 | the reply as `result`, and `"error":null` |
//! | another method | 200 | -32601 |
//! | `params` of the wrong shape, an unknown tool, arguments that don't fit or name nothing (say, an unknown patient) | 200 | -32602 |
//! | a call that the agent fails or refuses | 200 | -32000 |
//! | no JSON | 200 | -32700 |
//! | JSON that is no request, a batch, an id that is neither string nor integer, `tools/call` without id, a response | 200 | -32600 |
//! | another notification | 202, empty | |
//! | a body over the limit | 413 | -32600 |
//! | a body that doesn't arrive in time, or whole | 408, 400 | -32600 |
//! | another content type or encoding | 415 | -32600 |
//! | GET, DELETE, anything but POST | 405 with `Allow` | -32600 |
//! | an `Origin` or `Host` that isn't this machine's | 403 | -32600 |
//! | a credential that no verifier accepts | 401 | -32600 |
//!
//! Errors of the call have status 200, because the dialect's clients read the code from the body
//! and take any other status for a transport failure. A request that never became a call has its
//! error in both status and body. A reply has both `result` and `error`, one of them `null`. An
//! error's `data.kind` is the [`FailureKind`](callboard_message::FailureKind), which tells an
//! unknown patient from a malformed argument.
//!
//! # Metadata of a call
//!
//! Optional members of `params._meta`, ignored by servers that don't know them: `callboard/purpose`
//! (purpose of the access), `callboard/deadline-ms` (time that the caller will wait, in
//! milliseconds), `callboard/hops` (number of agents that the call has passed), `traceparent` (W3C
//! Trace Context). The principal is never taken from the body.

mod client;

use std::borrow::Cow;
use std::time::Duration;

use callboard_message::{Failure, FailureKind, RawMembers, RawObject, TraceContext};
use callboard_rpc::{RpcError, code};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::wire::meta::{HOPS, PURPOSE, PURPOSE_BYTES_MAX, TRACEPARENT};

pub use client::{
    BareClientError, BareClientOptions, BareMcpClient, CALL_TIMEOUT_DEFAULT,
    CONNECT_TIMEOUT_DEFAULT, PENDING_CALLS_MAX,
};

/// Default time limit of a call at a server of the bare dialect. The caller may set a shorter one.
pub const CALL_DEADLINE_DEFAULT: Duration = Duration::from_secs(30);

/// The only JSON-RPC method of the bare dialect.
pub(crate) const CALL_METHOD: &str = "tools/call";

/// Maximum length of a tool's name, in bytes.
pub const TOOL_NAME_BYTES_MAX: usize = 64;
/// Member of `_meta`: time that the caller will wait for the result, in milliseconds.
const DEADLINE_MS: &str = "callboard/deadline-ms";

/// A `tools/call` request of the bare dialect, with its metadata.
#[derive(Debug)]
pub(crate) struct BareCall<'a> {
    pub tool: String,
    /// Arguments of the tool: a JSON object.
    pub arguments: Cow<'a, RawValue>,
    pub meta: BareCallMeta,
}

/// Members of `_meta` that callboard defines.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct BareCallMeta {
    pub purpose: Option<String>,
    /// Time that the caller will wait for the result.
    pub timeout: Option<Duration>,
    pub hops: u16,
    pub trace: Option<TraceContext>,
}

/// Errors in the `params` of a `tools/call`. The call wasn't executed, and the caller must change
/// its request.
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

/// Parses the `params` of a `tools/call`. Unknown members are ignored.
pub(crate) fn parse_call(params: Option<&RawValue>) -> Result<BareCall<'_>, ParamsError> {
    let members = params
        .and_then(|raw| RawMembers::parse(raw).ok())
        .ok_or(ParamsError::NotAnObject)?;
    let tool = members
        .get("name")
        .and_then(|raw| parse_text(raw, TOOL_NAME_BYTES_MAX))
        .ok_or(ParamsError::Name)?;
    let arguments = match members.get("arguments") {
        None => Cow::Owned(RawObject::new().to_raw()),
        Some(raw) if raw.get().starts_with('{') => Cow::Borrowed(raw),
        Some(_) => return Err(ParamsError::Arguments),
    };
    let meta = members
        .get("_meta")
        .map_or(Ok(BareCallMeta::default()), parse_meta)?;
    Ok(BareCall {
        tool,
        arguments,
        meta,
    })
}

fn parse_meta(raw: &RawValue) -> Result<BareCallMeta, ParamsError> {
    let members = RawMembers::parse(raw).map_err(|_| ParamsError::Meta)?;
    let deadline_ms: Option<u64> =
        parse_member(&members, DEADLINE_MS, ParamsError::Deadline, parse_json)?;
    Ok(BareCallMeta {
        purpose: parse_member(&members, PURPOSE, ParamsError::Purpose, |raw| {
            parse_text(raw, PURPOSE_BYTES_MAX)
        })?,
        timeout: deadline_ms.map(Duration::from_millis),
        hops: parse_member(&members, HOPS, ParamsError::Hops, parse_json)?.unwrap_or(0),
        // W3C Trace Context, section 2.3: an unreadable `traceparent` starts a new trace.
        trace: members.read(TRACEPARENT),
    })
}

fn parse_member<T>(
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

/// Encodes the `params` of a `tools/call`.
fn encode_call(call: &BareCall<'_>) -> Box<RawValue> {
    let BareCallMeta {
        purpose,
        timeout,
        hops,
        trace,
    } = &call.meta;
    let mut meta = RawObject::new();
    meta.set_some(PURPOSE, purpose);
    meta.set_some(
        DEADLINE_MS,
        &timeout.map(|timeout| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX)),
    );
    meta.set_some(HOPS, &Some(hops).filter(|hops| **hops > 0));
    meta.set_some(TRACEPARENT, &trace.map(|trace| trace.to_string()));
    RawObject::single("name", &call.tool)
        .with("arguments", &call.arguments)
        .with("_meta", meta)
        .to_raw()
}

fn parse_json<T: DeserializeOwned>(raw: &RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

fn parse_text(raw: &RawValue, bytes_max: usize) -> Option<String> {
    parse_json::<String>(raw).filter(|text| (1..=bytes_max).contains(&text.len()))
}

/// Maximum length of a remote agent's error message in a failure, in characters. The rest is cut.
const MESSAGE_CHARS_MAX: usize = 300;

/// Converts an agent's failure to the JSON-RPC error for the caller.
///
/// `NotFound` becomes `INVALID_PARAMS`, because the caller must change its request. The message of
/// an `Internal` failure is withheld, because a panic or a parser may have put private data in it.
pub(crate) fn to_rpc(failure: Failure) -> RpcError {
    let (message, detail) = match failure.kind {
        FailureKind::Internal => ("internal error".to_owned(), None),
        _ => (failure.message, failure.data),
    };
    // The code alone doesn't tell the kinds apart.
    let mut data = RawObject::single("kind", failure.kind);
    data.set_some("detail", &detail);
    RpcError {
        data: Some(data.to_raw()),
        ..RpcError::new(code_for_kind(failure.kind), message)
    }
}

/// Converts a remote agent's JSON-RPC error to a failure, whose `data.code` is the error's code.
///
/// `data` that another system wrote is dropped, because its content is unknown.
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
        // A kind refines its own code; it can't override a different one.
        (code, Some((kind, detail))) if code_for_kind(kind) == code => (kind, detail),
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
    Failure::new(kind, message).with_data(failure_data(error.code, detail))
}

fn code_for_kind(kind: FailureKind) -> i64 {
    match kind {
        FailureKind::InvalidInput | FailureKind::NotFound => code::INVALID_PARAMS,
        _ => code::SERVER_ERROR,
    }
}

/// Sets `data.code` of a failure without data to -32000, the bare dialect's code for transport
/// failures and unusable responses.
fn with_code(failure: Failure) -> Failure {
    if failure.data.is_some() {
        failure
    } else {
        failure.with_data(failure_data(code::SERVER_ERROR, None))
    }
}

fn failure_data(code: i64, detail: Option<Value>) -> Value {
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

    /// Goal: a server reads exactly the call that a client writes. Method: with all metadata, and
    /// with none.
    #[test]
    fn calls_round_trip() {
        let arguments = raw(r#"{"patient_id":"CARD-001", "n":1.0}"#);
        let meta = || BareCallMeta {
            purpose: Some("treatment".into()),
            timeout: Some(Duration::from_millis(1500)),
            hops: 3,
            trace: Some(TraceContext::root()),
        };
        for wanted in [meta(), BareCallMeta::default()] {
            let sent = BareCall {
                tool: "get_patient".into(),
                arguments: Cow::Borrowed(&arguments),
                meta: wanted,
            };
            let written = encode_call(&sent);
            let read = parse_call(Some(&written)).unwrap();
            assert_eq!((read.tool, read.meta), (sent.tool, sent.meta));
            assert_eq!(read.arguments.get(), arguments.get());
        }
    }

    /// Goal: the error names the member of the wrong shape. Method: one fault at a time.
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
            assert_eq!(parse_call(Some(&raw(&json))).unwrap_err(), error, "{json}");
        }
        assert_eq!(parse_call(None).unwrap_err(), ParamsError::NotAnObject);
        assert!(parse_call(Some(&raw(&format!(r#"{{"name":"{}"}}"#, &long_name[1..])))).is_ok());
        assert!(
            parse_call(Some(&raw(&meta(&format!(
                r#""callboard/purpose":"{}""#,
                &long_purpose[1..]
            )))))
            .is_ok()
        );
    }

    /// Goal: unknown members are ignored. Method: foreign members, a broken traceparent.
    #[test]
    fn foreign_members_are_ignored() {
        let json = raw(r#"{"name":"t","x":1,"_meta":{"progressToken":7,"traceparent":"00-no"}}"#);
        let call = parse_call(Some(&json)).unwrap();
        assert_eq!(
            (call.arguments.get(), call.meta),
            ("{}", BareCallMeta::default())
        );
    }
}

#[cfg(test)]
mod error_map_tests {
    use serde_json::value::RawValue;

    use super::*;

    fn error(code: i64, data: Option<&str>) -> RpcError {
        RpcError {
            data: data.map(|d| RawValue::from_string(d.to_owned()).unwrap()),
            ..RpcError::new(code, "m")
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
            NoResponder,
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

    /// Goal: the message of an internal failure, which may quote private data, isn't sent. Method:
    /// a failure whose message holds a name.
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
        // -32602 that claims to be a policy block is still an invalid parameter.
        assert_eq!(
            from_rpc(&error(-32602, Some(r#"{"kind":"blocked"}"#))).kind,
            FailureKind::InvalidInput
        );
    }

    /// Goal: a peer's message is bounded and printable. Method: a message one character over the
    /// limit, and one with an escape sequence.
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
