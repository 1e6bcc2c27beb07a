//! A server's errors as failures, whole, so that they can be passed on as they came.

use callboard_message::{Failure, FailureKind};
use callboard_rpc::{RpcError, code};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::code as mcp;

/// Most characters of a server's sentence that stand in a failure's; `data.rpc.message` has all of it.
const MESSAGE_CHARS_MAX: usize = 500;

/// Words, in lower case, of a client's -32600 that mean that it can't answer the question.
const NOT_SUPPORTED: &str = "not supported";

/// Member of a failure's data: the error of a server, as it came.
const RPC: &str = "rpc";
/// Member of a failure's data: the error by which a client answered a question, as it came.
const ANSWERED: &str = "answered";

/// The failure that a server's error is here. `data.rpc` is the error as it came: `code`, `message`, `data`.
pub(crate) fn of_rpc(error: &RpcError) -> Failure {
    keeping(RPC, kind_of(error.code), error)
}

/// The failure that a client's error is, by which it answers a question. `data.answered` is the error as it came.
///
/// Only the codes of a client that can't answer give a kind after which others may be asked. Any other error may be the
/// refusal of a person, or of a policy in their stead: SDKs send -1, 0 and -32603 for what a handler throws.
pub(crate) fn of_answer(error: &RpcError) -> Failure {
    let kind = match error.code {
        code::METHOD_NOT_FOUND => FailureKind::NobodyToAsk,
        // The Python SDK says so with "Sampling not supported", and gives the code to other errors too.
        code::INVALID_REQUEST if error.message.to_ascii_lowercase().contains(NOT_SUPPORTED) => {
            FailureKind::NobodyToAsk
        }
        mcp::MISSING_CLIENT_CAPABILITY
        | mcp::NOBODY_TO_ASK
        | mcp::OVERLOADED
        | mcp::UNAVAILABLE
        | mcp::TIMED_OUT
        | mcp::CANCELLED => kind_of(error.code),
        _ => FailureKind::Rejected,
    };
    keeping(ANSWERED, kind, error)
}

fn keeping(member: &str, kind: FailureKind, error: &RpcError) -> Failure {
    let message: String = error
        .message
        .chars()
        .filter(|c| !c.is_control())
        .take(MESSAGE_CHARS_MAX)
        .collect();
    let mut kept = json!({ "code": error.code, "message": error.message });
    if let Some(data) = &error.data {
        kept["data"] = serde_json::from_str(data.get()).unwrap_or(Value::Null);
    }
    Failure::new(kind, message).with_data(json!({ member: kept }))
}

/// What can be done about an error of this code.
fn kind_of(error_code: i64) -> FailureKind {
    match error_code {
        code::INVALID_PARAMS => FailureKind::InvalidInput,
        code::METHOD_NOT_FOUND | mcp::RESOURCE_NOT_FOUND_LEGACY => FailureKind::NotFound,
        code::PARSE_ERROR | code::INVALID_REQUEST | code::INTERNAL_ERROR | mcp::HEADER_MISMATCH => {
            FailureKind::Internal
        }
        mcp::MISSING_CLIENT_CAPABILITY | mcp::URL_ELICITATION_REQUIRED | mcp::NOBODY_TO_ASK => {
            FailureKind::NobodyToAsk
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

/// The error that a failure of ours is to a server whose question it answers, or to a client that asks us like a model:
/// what isn't there is a method. What the guardrail stops is told in HMCP's words, in which there is no more to say. An
/// error by which a client answered goes on as it came.
pub(crate) fn to_rpc(failure: Failure) -> RpcError {
    if is_guardrail(&failure) {
        return RpcError::new(mcp::BLOCKED, failure.message);
    }
    kept_in(ANSWERED, &failure).unwrap_or_else(|| to_rpc_or(code::METHOD_NOT_FOUND, failure))
}

/// Whether the guardrail of this system made it.
fn is_guardrail(failure: &Failure) -> bool {
    let reason = || failure.data.as_ref()?.get("reason")?.as_str();
    failure.kind == FailureKind::Blocked && reason() == Some("guardrail")
}

/// The error that a failure of ours is to a peer; `not_found` is what isn't there to it. One that came from another peer
/// goes on as it came; a bug's message stays here, because a panic or a parser may have put data in it.
pub(crate) fn to_rpc_or(not_found: i64, failure: Failure) -> RpcError {
    if let Some(theirs) = sent_by_peer(&failure) {
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
        FailureKind::NobodyToAsk => mcp::NOBODY_TO_ASK,
        FailureKind::Cancelled => mcp::CANCELLED,
        _ => return RpcError::new(code::INTERNAL_ERROR, "internal error"),
    };
    RpcError {
        code: error_code,
        message: failure.message,
        data: failure.data.and_then(|d| to_raw_value(&d).ok()),
    }
}

/// The error of a peer behind the agent, as it came: `data.rpc` of a failure that [`of_rpc`] made.
pub(crate) fn sent_by_peer(failure: &Failure) -> Option<RpcError> {
    kept_in(RPC, failure)
}

fn kept_in(member: &str, failure: &Failure) -> Option<RpcError> {
    let kept = failure.data.as_ref()?.get(member)?;
    let data = kept.get("data").and_then(|data| to_raw_value(data).ok());
    Some(RpcError {
        code: kept.get("code")?.as_i64()?,
        message: kept.get("message")?.as_str()?.to_owned(),
        data,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::RawValue;

    /// Goal: an error can be passed on as it came. Method: a code, a sentence and data that nobody here knows.
    #[test]
    fn errors_travel_whole() {
        let data =
            RawValue::from_string(r#"{"elicitations":[{"url":"https://a.example"}]}"#.into())
                .unwrap();
        let failure = of_rpc(&RpcError {
            code: -32042,
            message: "visit\nfirst".into(),
            data: Some(data),
        });
        assert_eq!(failure.kind, FailureKind::NobodyToAsk);
        assert_eq!(failure.message, "visitfirst");
        let rpc = &failure.data.unwrap()["rpc"];
        assert_eq!(rpc["code"], -32042);
        assert_eq!(rpc["message"], "visit\nfirst");
        assert_eq!(rpc["data"]["elicitations"][0]["url"], "https://a.example");
    }

    /// Goal: the guardrail's refusal has HMCP's words where it answers a sample, and its own code and reason elsewhere; the
    /// verifier's keeps its code. Method: both, written and read back.
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
        assert_eq!(of_rpc(&elsewhere).kind, FailureKind::Blocked);
        assert_eq!(to_rpc_or(code::INVALID_PARAMS, refusal).code, -1);
    }

    /// Goal: a client's refusal reaches the server that asked as it came, and only a client that can't answer lets others
    /// be asked. Method: codes that SDKs send, with data, there and back.
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
            (-32601, refused, FailureKind::NobodyToAsk),
            (-32600, "Sampling not supported", FailureKind::NobodyToAsk),
            (
                -32600,
                "Elicitation NOT SUPPORTED",
                FailureKind::NobodyToAsk,
            ),
            (-32600, refused, FailureKind::Rejected),
            (-32601, "Sampling not supported", FailureKind::NobodyToAsk),
            (-32603, "Sampling not supported", FailureKind::Rejected),
            (-32021, refused, FailureKind::NobodyToAsk),
            (-7, refused, FailureKind::NobodyToAsk),
            (-3, refused, FailureKind::Overloaded),
            (-4, refused, FailureKind::Unavailable),
            (-5, refused, FailureKind::TimedOut),
            (-8, refused, FailureKind::Cancelled),
        ] {
            let data = RawValue::from_string(r#"{"by":"person"}"#.into()).unwrap();
            let error = RpcError {
                code: error_code,
                message: message.into(),
                data: Some(data),
            };
            let failure = of_answer(&error);
            assert_eq!(failure.kind, kind, "{error_code} {message}");
            // To whoever called, it is no error of the method that they called.
            assert!(sent_by_peer(&failure).is_none());
            let sent = to_rpc(failure);
            assert_eq!((sent.code, &sent.message), (error_code, &error.message));
            assert_eq!(sent.data.unwrap().get(), r#"{"by":"person"}"#);
        }
    }

    /// Goal: what a sender can do about a failure follows from the code. Method: a code of each kind, and an unknown one.
    #[test]
    fn kinds_follow_codes() {
        for (error_code, kind) in [
            (-32602, FailureKind::InvalidInput),
            (-32601, FailureKind::NotFound),
            (-32002, FailureKind::NotFound),
            (-32603, FailureKind::Internal),
            (-32021, FailureKind::NobodyToAsk),
            (-2, FailureKind::Denied),
            (4_711, FailureKind::Rejected),
        ] {
            assert_eq!(
                of_rpc(&RpcError::new(error_code, "m")).kind,
                kind,
                "{error_code}"
            );
        }
    }
}
