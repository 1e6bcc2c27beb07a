//! Conversion between JSON-RPC errors and failures. A peer's error is kept whole, so that it can be
//! passed on unchanged.

use callboard_message::{Failure, FailureKind};
use callboard_rpc::{RpcError, code};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::code as mcp;

/// Maximum length of a peer's message in a failure, in characters. The failure's data holds the
/// whole message.
const MESSAGE_CHARS_MAX: usize = 500;

/// Text in a client's -32600 error that means that the client can't answer the question. Messages
/// are compared in lower case.
const NOT_SUPPORTED: &str = "not supported";

/// Member of a failure's data that holds a server's error, unchanged.
const RPC_MEMBER: &str = "rpc";
/// Member of a failure's data that holds the error with which a client answered a question,
/// unchanged.
const ANSWERED_MEMBER: &str = "answered";

/// Converts a server's error to a failure. `data.rpc` holds the error unchanged, with `code`,
/// `message` and `data`.
pub(crate) fn from_rpc(error: &RpcError) -> Failure {
    with_original_error(RPC_MEMBER, kind_from_code(error.code), error)
}

/// Converts the error with which a client answered a question to a failure. `data.answered` holds
/// the error unchanged.
///
/// Errors which mean that the client can't answer get a kind after which another responder may be
/// asked. All others become `Rejected`, because they may be the refusal of a user, or of a policy
/// on the user's behalf: SDKs send -1, 0 and -32603 for exceptions of a handler.
pub(crate) fn from_answer_error(error: &RpcError) -> Failure {
    let kind = match error.code {
        code::METHOD_NOT_FOUND => FailureKind::NoResponder,
        // The Python SDK sends "Sampling not supported" with this code, which it uses for other
        // errors too.
        code::INVALID_REQUEST if error.message.to_ascii_lowercase().contains(NOT_SUPPORTED) => {
            FailureKind::NoResponder
        }
        mcp::MISSING_CLIENT_CAPABILITY
        | mcp::NO_RESPONDER
        | mcp::OVERLOADED
        | mcp::UNAVAILABLE
        | mcp::TIMED_OUT
        | mcp::CANCELLED => kind_from_code(error.code),
        _ => FailureKind::Rejected,
    };
    with_original_error(ANSWERED_MEMBER, kind, error)
}

/// Converts the refusal of a call's own client to a failure that reaches that client with its own code,
/// message and data. Other failures are returned unchanged, and so are errors which mean that the client
/// can't answer: as the error of its call, it would mistake their codes.
pub(crate) fn to_own_refusal(mut failure: Failure) -> Failure {
    let answered = match &mut failure.data {
        Some(Value::Object(data)) if failure.kind == FailureKind::Rejected => {
            data.remove(ANSWERED_MEMBER)
        }
        _ => None,
    };
    match answered {
        Some(error) => failure.with_data(json!({ RPC_MEMBER: error })),
        None => failure,
    }
}

fn with_original_error(member: &str, kind: FailureKind, error: &RpcError) -> Failure {
    let message: String = error
        .message
        .chars()
        .filter(|c| !c.is_control())
        .take(MESSAGE_CHARS_MAX)
        .collect();
    let mut original = json!({ "code": error.code, "message": error.message });
    if let Some(data) = &error.data {
        original["data"] = serde_json::from_str(data.get()).unwrap_or(Value::Null);
    }
    Failure::new(kind, message).with_data(json!({ member: original }))
}

/// Maps an error code to the failure kind by which a caller decides what to do.
fn kind_from_code(error_code: i64) -> FailureKind {
    match error_code {
        code::INVALID_PARAMS => FailureKind::InvalidInput,
        code::METHOD_NOT_FOUND | mcp::RESOURCE_NOT_FOUND_LEGACY => FailureKind::NotFound,
        code::PARSE_ERROR | code::INVALID_REQUEST | code::INTERNAL_ERROR | mcp::HEADER_MISMATCH => {
            FailureKind::Internal
        }
        mcp::MISSING_CLIENT_CAPABILITY | mcp::URL_ELICITATION_REQUIRED | mcp::NO_RESPONDER => {
            FailureKind::NoResponder
        }
        mcp::BLOCKED | mcp::BLOCKED_BY_GUARDRAIL => FailureKind::Blocked,
        mcp::DENIED => FailureKind::Denied,
        mcp::OVERLOADED => FailureKind::Overloaded,
        mcp::UNAVAILABLE => FailureKind::Unavailable,
        mcp::TIMED_OUT => FailureKind::TimedOut,
        mcp::CANCELLED => FailureKind::Cancelled,
        _ => FailureKind::Rejected,
    }
}

/// Converts a failure to the error that answers a server's question or a client's sampling request.
///
/// `NotFound` becomes `METHOD_NOT_FOUND`. A block by the guardrail becomes -1 without data, as HMCP
/// defines. The error with which a client answered a question is passed on unchanged.
pub(crate) fn to_rpc(failure: Failure) -> RpcError {
    if is_guardrail(&failure) {
        return RpcError::new(mcp::BLOCKED, failure.message);
    }
    original_error(ANSWERED_MEMBER, &failure)
        .unwrap_or_else(|| to_rpc_or(code::METHOD_NOT_FOUND, failure))
}

/// Returns true if callboard's own guardrail blocked the call.
fn is_guardrail(failure: &Failure) -> bool {
    let reason = || failure.data.as_ref()?.get("reason")?.as_str();
    failure.kind == FailureKind::Blocked && reason() == Some("guardrail")
}

/// Converts a failure to an error for a peer, with code `not_found` for `NotFound`. An error in
/// `data.rpc` is passed on unchanged. The message of an `Internal` failure is withheld, because a
/// panic or a parser may have put private data in it.
pub(crate) fn to_rpc_or(not_found: i64, failure: Failure) -> RpcError {
    if let Some(theirs) = peer_error(&failure) {
        return theirs;
    }
    let error_code = match failure.kind {
        FailureKind::InvalidInput => code::INVALID_PARAMS,
        FailureKind::NotFound => not_found,
        FailureKind::Blocked if is_guardrail(&failure) => mcp::BLOCKED_BY_GUARDRAIL,
        FailureKind::Blocked => mcp::BLOCKED,
        FailureKind::Denied => mcp::DENIED,
        FailureKind::Overloaded => mcp::OVERLOADED,
        FailureKind::Unavailable => mcp::UNAVAILABLE,
        FailureKind::TimedOut => mcp::TIMED_OUT,
        FailureKind::Rejected => mcp::REJECTED,
        FailureKind::NoResponder => mcp::NO_RESPONDER,
        FailureKind::Cancelled => mcp::CANCELLED,
        _ => return RpcError::new(code::INTERNAL_ERROR, "internal error"),
    };
    RpcError {
        needed_scope: failure.needed_scope().map(str::to_owned),
        data: failure.data.and_then(|d| to_raw_value(&d).ok()),
        ..RpcError::new(error_code, failure.message)
    }
}

/// Returns the server's error in `data.rpc`, from which [`from_rpc`] made the failure; `None` for
/// other failures.
pub(crate) fn peer_error(failure: &Failure) -> Option<RpcError> {
    original_error(RPC_MEMBER, failure)
}

fn original_error(member: &str, failure: &Failure) -> Option<RpcError> {
    let original = failure.data.as_ref()?.get(member)?;
    let data = original
        .get("data")
        .and_then(|data| to_raw_value(data).ok());
    let code = original.get("code")?.as_i64()?;
    Some(RpcError {
        data,
        ..RpcError::new(code, original.get("message")?.as_str()?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::RawValue;

    /// Goal: an error can be passed on unchanged. Method: an unknown code, message and data.
    #[test]
    fn errors_travel_whole() {
        let data =
            RawValue::from_string(r#"{"elicitations":[{"url":"https://a.example"}]}"#.into())
                .unwrap();
        let failure = from_rpc(&RpcError {
            data: Some(data),
            ..RpcError::new(-32042, "visit\nfirst")
        });
        assert_eq!(failure.kind, FailureKind::NoResponder);
        assert_eq!(failure.message, "visitfirst");
        let rpc = &failure.data.unwrap()["rpc"];
        assert_eq!(rpc["code"], -32042);
        assert_eq!(rpc["message"], "visit\nfirst");
        assert_eq!(rpc["data"]["elicitations"][0]["url"], "https://a.example");
    }

    /// Goal: only a failure of this system makes an HTTP challenge: a server behind it can't have clients
    /// ask their issuer for more rights. Method: the same refusal from here and from a server.
    #[test]
    fn challenges_are_of_own_refusals() {
        let own = Failure::lacking_scope("no", "hmcp:read");
        let told = to_rpc_or(code::INVALID_PARAMS, own);
        assert_eq!(told.needed_scope.as_deref(), Some("hmcp:read"));
        assert_eq!(
            told.data.as_ref().unwrap().get(),
            r#"{"needed_scope":"hmcp:read"}"#
        );
        let passed_on = to_rpc_or(code::INVALID_PARAMS, from_rpc(&told));
        assert_eq!((passed_on.code, passed_on.needed_scope), (told.code, None));
        let other_kind = Failure::invalid("no").with_data(json!({ "needed_scope": "a" }));
        assert_eq!(to_rpc(other_kind).needed_scope, None);
    }

    /// Goal: the guardrail's refusal follows HMCP where it answers a sampling request, and has its
    /// own code and reason elsewhere; the verifier's keeps its code. Method: both, written and read
    /// back.
    /// Rows: H-41, X-18.
    #[test]
    fn refusals_of_the_guardrail() {
        let refusal = Failure::new(FailureKind::Blocked, "Request blocked by guardrails");
        let data = json!({ "reason": "guardrail", "rules": ["leak.prompt"] });
        let of_guard = refusal.clone().with_data(data.clone());
        let sampled = to_rpc(of_guard.clone());
        assert_eq!(
            (sampled.code, &*sampled.message, sampled.data.is_none()),
            (-1, "Request blocked by guardrails", true)
        );
        let elsewhere = to_rpc_or(code::INVALID_PARAMS, of_guard);
        assert_eq!(
            (elsewhere.code, elsewhere.data.as_ref().unwrap().get()),
            (1_001, &*data.to_string())
        );
        assert_eq!(from_rpc(&elsewhere).kind, FailureKind::Blocked);
        assert_eq!(to_rpc_or(code::INVALID_PARAMS, refusal).code, -1);
    }

    /// Goal: a client's refusal reaches the asking server unchanged, and only a client that can't
    /// answer lets others be asked. Method: codes that SDKs send, with data, converted both ways.
    #[test]
    fn answers_of_clients() {
        let refused = "User rejected sampling request";
        for (error_code, message, kind) in [
            (-1, refused, FailureKind::Rejected),
            (0, refused, FailureKind::Rejected),
            (-32603, refused, FailureKind::Rejected),
            (-32602, refused, FailureKind::Rejected),
            (-2, refused, FailureKind::Rejected),
            (-6, refused, FailureKind::Rejected),
            (-32601, refused, FailureKind::NoResponder),
            (-32600, "Sampling not supported", FailureKind::NoResponder),
            (
                -32600,
                "Elicitation NOT SUPPORTED",
                FailureKind::NoResponder,
            ),
            (-32600, refused, FailureKind::Rejected),
            (-32601, "Sampling not supported", FailureKind::NoResponder),
            (-32603, "Sampling not supported", FailureKind::Rejected),
            (-32021, refused, FailureKind::NoResponder),
            (-7, refused, FailureKind::NoResponder),
            (-3, refused, FailureKind::Overloaded),
            (-4, refused, FailureKind::Unavailable),
            (-5, refused, FailureKind::TimedOut),
            (-8, refused, FailureKind::Cancelled),
        ] {
            let data = RawValue::from_string(r#"{"by":"person"}"#.into()).unwrap();
            let error = RpcError {
                data: Some(data),
                ..RpcError::new(error_code, message)
            };
            let failure = from_answer_error(&error);
            assert_eq!(failure.kind, kind, "{error_code} {message}");
            // To the caller it is no error of its own request.
            assert!(peer_error(&failure).is_none());
            // Unless that ends with it.
            let own = peer_error(&to_own_refusal(failure.clone()));
            let expected = (kind == FailureKind::Rejected).then_some(error_code);
            assert_eq!(own.map(|error| error.code), expected);
            let sent = to_rpc(failure);
            assert_eq!((sent.code, &sent.message), (error_code, &error.message));
            assert_eq!(sent.data.unwrap().get(), r#"{"by":"person"}"#);
        }
    }

    /// Goal: the failure kind follows from the code. Method: a code of each kind, and an unknown
    /// one.
    #[test]
    fn kinds_follow_codes() {
        for (error_code, kind) in [
            (-32602, FailureKind::InvalidInput),
            (-32601, FailureKind::NotFound),
            (-32002, FailureKind::NotFound),
            (-32603, FailureKind::Internal),
            (-32021, FailureKind::NoResponder),
            (-2, FailureKind::Denied),
            (4_711, FailureKind::Rejected),
        ] {
            assert_eq!(
                from_rpc(&RpcError::new(error_code, "m")).kind,
                kind,
                "{error_code}"
            );
        }
    }
}
