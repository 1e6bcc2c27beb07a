use callboard_message::json::{quote, quote_to};
use serde_json::value::RawValue;

use crate::{Id, Refusal, RpcError};

/// Whether the member that a response doesn't use is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Nulls {
    /// Left out, as JSON-RPC 2.0 (section 5) says.
    #[default]
    Omit,
    /// Written as `null`: what the bare dialect's readers expect.
    Emit,
}

/// Writes a request. `params` must be an object or an array.
pub fn encode_request(id: &Id, method: &str, params: &RawValue) -> Vec<u8> {
    encode_request_with(id, method, params.get().len(), |out| {
        out.push_str(params.get())
    })
}

/// The same, with `params` written where they belong: an object or an array, of about `params_bytes`.
pub fn encode_request_with(
    id: &Id,
    method: &str,
    params_bytes: usize,
    params: impl FnOnce(&mut String),
) -> Vec<u8> {
    let mut out = String::with_capacity(64 + id.as_json().len() + method.len() + params_bytes);
    out.push_str("{\"jsonrpc\":\"2.0\",\"id\":");
    out.push_str(id.as_json());
    out.push_str(",\"method\":");
    quote_to(method, &mut out);
    out.push_str(",\"params\":");
    params(&mut out);
    out.push('}');
    out.into_bytes()
}

/// Writes a notification. `params` must be an object or an array.
pub fn encode_notification(method: &str, params: Option<&RawValue>) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + method.len() + params.map_or(0, |p| p.get().len()));
    push(
        &mut out,
        &["{\"jsonrpc\":\"2.0\",\"method\":", &quote(method)],
    );
    if let Some(params) = params {
        push(&mut out, &[",\"params\":", params.get()]);
    }
    push(&mut out, &["}"]);
    out
}

/// Writes a response that is an error.
pub fn encode_error(id: Option<&Id>, error: &RpcError) -> Vec<u8> {
    encode_response(id, Err(error), Nulls::Omit)
}

/// Writes the response to a message that is none.
pub fn encode_refusal(refusal: &Refusal) -> Vec<u8> {
    encode_error(refusal.id.as_ref(), &RpcError::from(refusal))
}

/// Writes a response. An `id` of `None` is `null`: only for errors, where the request's could not be read.
pub fn encode_response(
    id: Option<&Id>,
    outcome: Result<&RawValue, &RpcError>,
    nulls: Nulls,
) -> Vec<u8> {
    let id = id.map_or("null", Id::as_json);
    let payload_bytes = match outcome {
        Ok(result) => result.get().len(),
        Err(error) => error.message.len() + error.data.as_ref().map_or(0, |data| data.get().len()),
    };
    let null = |unused| if nulls == Nulls::Emit { unused } else { "" };
    let mut out = Vec::with_capacity(96 + id.len() + payload_bytes);
    push(&mut out, &["{\"jsonrpc\":\"2.0\",\"id\":", id]);
    match outcome {
        Ok(result) => push(
            &mut out,
            &[",\"result\":", result.get(), null(",\"error\":null")],
        ),
        Err(error) => {
            let (code, message) = (error.code.to_string(), quote(&error.message));
            push(
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
                push(&mut out, &[",\"data\":", data.get()]);
            }
            push(&mut out, &["}"]);
        }
    }
    push(&mut out, &["}"]);
    out
}

fn push(out: &mut Vec<u8>, parts: &[&str]) {
    for part in parts {
        out.extend_from_slice(part.as_bytes());
    }
}
