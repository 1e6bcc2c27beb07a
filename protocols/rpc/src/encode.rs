use callboard_message::json::quote;
use serde_json::value::RawValue;

use crate::{Id, RpcError};

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
    let mut out = begin(Some(id), params.get().len() + method.len());
    push(&mut out, &[",\"method\":", &quote(method), ",\"params\":", params.get(), "}"]);
    out
}

/// Writes a notification. `params` must be an object or an array.
pub fn encode_notification(method: &str, params: Option<&RawValue>) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + method.len() + params.map_or(0, |p| p.get().len()));
    push(&mut out, &["{\"jsonrpc\":\"2.0\",\"method\":", &quote(method)]);
    if let Some(params) = params {
        push(&mut out, &[",\"params\":", params.get()]);
    }
    push(&mut out, &["}"]);
    out
}

/// Writes a response. An `id` of `None` is `null`: only for errors, where the request's could not be read.
pub fn encode_response(id: Option<&Id>, outcome: Result<&RawValue, &RpcError>, nulls: Nulls) -> Vec<u8> {
    match outcome {
        Ok(result) => {
            let mut out = begin(id, result.get().len());
            push(&mut out, &[",\"result\":", result.get()]);
            if nulls == Nulls::Emit {
                push(&mut out, &[",\"error\":null"]);
            }
            push(&mut out, &["}"]);
            out
        }
        Err(error) => {
            let mut out = begin(id, error.message.len() + error.data.as_ref().map_or(0, |d| d.get().len()));
            if nulls == Nulls::Emit {
                push(&mut out, &[",\"result\":null"]);
            }
            push(
                &mut out,
                &[",\"error\":{\"code\":", &error.code.to_string(), ",\"message\":", &quote(&error.message)],
            );
            if let Some(data) = &error.data {
                push(&mut out, &[",\"data\":", data.get()]);
            }
            push(&mut out, &["}}"]);
            out
        }
    }
}

fn begin(id: Option<&Id>, payload_bytes: usize) -> Vec<u8> {
    let id = id.map_or("null", Id::as_json);
    let mut out = Vec::with_capacity(96 + id.len() + payload_bytes);
    push(&mut out, &["{\"jsonrpc\":\"2.0\",\"id\":", id]);
    out
}

fn push(out: &mut Vec<u8>, parts: &[&str]) {
    for part in parts {
        out.extend_from_slice(part.as_bytes());
    }
}
