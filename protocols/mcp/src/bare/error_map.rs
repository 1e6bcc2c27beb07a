//! Failures to the dialect's errors and back.

use callboard_message::{Failure, FailureKind, RawObject};
use callboard_rpc::{RpcError, code};
use serde_json::{Value, json};

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
    let mut data = RawObject::new().with("kind", failure.kind);
    if let Some(detail) = detail {
        data.set("detail", detail);
    }
    RpcError { code: code_of(failure.kind), message, data: Some(data.to_raw()) }
}

/// The failure that a remote agent's error is here. Its `data.code` is the code that came.
///
/// Foreign `data` is dropped: nobody here knows what it may hold.
pub(crate) fn from_rpc(error: &RpcError) -> Failure {
    let ours = error.data.as_deref().and_then(|raw| RawObject::parse(raw).ok());
    let ours =
        ours.and_then(|data| Some((data.read::<FailureKind>("kind")?, data.read::<Option<Value>>("detail").flatten())));
    let (kind, detail) = match (error.code, ours) {
        // A kind refines its own code; it doesn't overrule another.
        (code, Some((kind, detail))) if code_of(kind) == code => (kind, detail),
        (code::INVALID_PARAMS, _) => (FailureKind::InvalidInput, None),
        (code::METHOD_NOT_FOUND, _) => (FailureKind::NotFound, None),
        (code::PARSE_ERROR | code::INVALID_REQUEST | code::INTERNAL_ERROR, _) => (FailureKind::Internal, None),
        (code::SERVER_ERROR, _) => (FailureKind::Unavailable, None),
        _ => (FailureKind::Rejected, None),
    };
    let message: String = error.message.chars().filter(|c| !c.is_control()).take(MESSAGE_CHARS_MAX).collect();
    Failure::new(kind, message).with_data(data(error.code, detail))
}

fn code_of(kind: FailureKind) -> i64 {
    match kind {
        FailureKind::InvalidInput | FailureKind::NotFound => code::INVALID_PARAMS,
        _ => code::SERVER_ERROR,
    }
}

/// A failure of the way to the remote agent, or of what came back, is -32000 in the dialect.
pub(crate) fn coded(failure: Failure) -> Failure {
    if failure.data.is_some() { failure } else { failure.with_data(data(code::SERVER_ERROR, None)) }
}

fn data(code: i64, detail: Option<Value>) -> Value {
    match detail {
        Some(detail) => json!({ "code": code, "detail": detail }),
        None => json!({ "code": code }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    fn error(code: i64, data: Option<&str>) -> RpcError {
        RpcError { code, message: "m".into(), data: data.map(|d| RawValue::from_string(d.to_owned()).unwrap()) }
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
            assert_eq!(sent.code, if matches!(kind, InvalidInput | NotFound) { -32602 } else { -32000 });
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
        let sent = to_rpc(Failure::internal("reply can't be read: string \"Ana Souza\"").with_data(json!("Ana Souza")));
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
            for data in [None, Some("null"), Some("\"Ana Souza\""), Some(r#"{"kind":"no_such_kind"}"#)] {
                let failure = from_rpc(&error(code, data));
                assert_eq!((failure.kind, failure.data), (kind, Some(json!({ "code": code }))), "{code}");
            }
        }
        // -32602 that claims to be a block is still an invalid parameter.
        assert_eq!(from_rpc(&error(-32602, Some(r#"{"kind":"blocked"}"#))).kind, FailureKind::InvalidInput);
    }

    /// Goal: a peer's message is bounded and printable. Method: one character more, and an escape sequence.
    #[test]
    fn messages_are_cut() {
        let long = RpcError::new(-32000, format!("\u{1b}[2J{}", "é".repeat(MESSAGE_CHARS_MAX + 1)));
        let failure = from_rpc(&long);
        assert_eq!(failure.message.chars().count(), MESSAGE_CHARS_MAX);
        assert!(!failure.message.contains('\u{1b}'));
    }
}
