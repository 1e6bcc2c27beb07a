use callboard_message::json::{quote, quote_into};
use serde_json::value::RawValue;

use crate::{DecodeFailure, RequestId, RpcError};

/// Encoding of the member that a JSON-RPC response doesn't use: `error` beside a result, or
/// `result` beside an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnusedMember {
    /// The member is left out, as JSON-RPC 2.0 (section 5) requires.
    #[default]
    Omit,
    /// The member is written as `null`, for clients that expect both members.
    Emit,
}

/// Encodes a request. `params` must be an object or an array.
pub fn encode_request(id: &RequestId, method: &str, params: &RawValue) -> Vec<u8> {
    encode_request_with(id, method, params.get().len(), |out| {
        out.push_str(params.get())
    })
}

/// Encodes a request. The function `params` appends the parameters, an object or an array in JSON,
/// to the buffer. `params_bytes` is their approximate length.
pub fn encode_request_with(
    id: &RequestId,
    method: &str,
    params_bytes: usize,
    params: impl FnOnce(&mut String),
) -> Vec<u8> {
    let mut out = String::with_capacity(64 + id.as_json().len() + method.len() + params_bytes);
    out.push_str("{\"jsonrpc\":\"2.0\",\"id\":");
    out.push_str(id.as_json());
    out.push_str(",\"method\":");
    quote_into(method, &mut out);
    out.push_str(",\"params\":");
    params(&mut out);
    out.push('}');
    out.into_bytes()
}

/// Encodes a notification. `params` must be an object or an array.
pub fn encode_notification(method: &str, params: Option<&RawValue>) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + method.len() + params.map_or(0, |p| p.get().len()));
    push_all(
        &mut out,
        &["{\"jsonrpc\":\"2.0\",\"method\":", &quote(method)],
    );
    if let Some(params) = params {
        push_all(&mut out, &[",\"params\":", params.get()]);
    }
    push_all(&mut out, &["}"]);
    out
}

/// Encodes an error response. If `id` is `None`, it is written as `null`.
pub fn encode_error(id: Option<&RequestId>, error: &RpcError) -> Vec<u8> {
    encode_response(id, Err(error), UnusedMember::Omit)
}

/// Encodes the error response to a message that could not be decoded.
pub fn encode_decode_failure(refusal: &DecodeFailure) -> Vec<u8> {
    encode_error(refusal.id.as_ref(), &RpcError::from(refusal))
}

/// Encodes a response with a result or an error. If `id` is `None`, it is written as `null`, which
/// is allowed only for an error response to a request whose id could not be read.
pub fn encode_response(
    id: Option<&RequestId>,
    outcome: Result<&RawValue, &RpcError>,
    nulls: UnusedMember,
) -> Vec<u8> {
    let id = id.map_or("null", RequestId::as_json);
    let payload_bytes = match outcome {
        Ok(result) => result.get().len(),
        Err(error) => error.message.len() + error.data.as_ref().map_or(0, |data| data.get().len()),
    };
    let null = |unused| {
        if nulls == UnusedMember::Emit {
            unused
        } else {
            ""
        }
    };
    let mut out = Vec::with_capacity(96 + id.len() + payload_bytes);
    push_all(&mut out, &["{\"jsonrpc\":\"2.0\",\"id\":", id]);
    match outcome {
        Ok(result) => push_all(
            &mut out,
            &[",\"result\":", result.get(), null(",\"error\":null")],
        ),
        Err(error) => {
            let (code, message) = (error.code.to_string(), quote(&error.message));
            push_all(
                &mut out,
                &[
                    null(",\"result\":null"),
                    ",\"error\":{\"code\":",
                    &code,
                    ",\"message\":",
                    &message,
                ],
            );
            if let Some(data) = &error.data {
                push_all(&mut out, &[",\"data\":", data.get()]);
            }
            push_all(&mut out, &["}"]);
        }
    }
    push_all(&mut out, &["}"]);
    out
}

fn push_all(out: &mut Vec<u8>, parts: &[&str]) {
    for part in parts {
        out.extend_from_slice(part.as_bytes());
    }
}
