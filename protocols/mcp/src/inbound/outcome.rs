//! Replies and failures of agents as MCP's results and errors.

use callboard_message::json::quote;
use callboard_message::{Failure, FailureKind, RawObject, ToolResult};
use callboard_rpc::{RpcError, code};
use serde_json::Value;
use serde_json::value::RawValue;

use super::tools::Reply;
use crate::wire::code as mcp;
use crate::wire::failure::{sent_by_peer, to_rpc_or};
use crate::wire::{Era, Revision, meta};

/// The result of `tools/call`, from a reply.
pub(crate) fn tool_result(reply: Box<RawValue>, shape: Reply, era: Era) -> Box<RawValue> {
    match shape {
        Reply::Result => reply,
        Reply::Nothing => raw(r#"{"content":[]}"#.to_owned()),
        Reply::Object => result_of(&text_of(&reply), Some(reply.get())),
        Reply::Value if era == Era::Modern => result_of(&text_of(&reply), Some(reply.get())),
        Reply::Value => {
            let wrapped = format!("{{\"result\":{}}}", reply.get());
            result_of(&text_of(&reply), Some(&wrapped))
        }
    }
}

/// A reply as the text of a JSON string: itself where it is a string, else its JSON, quoted.
fn text_of(reply: &RawValue) -> String {
    match reply.get().starts_with('"') {
        true => reply.get().to_owned(),
        false => quote(reply.get()),
    }
}

fn result_of(quoted_text: &str, structured: Option<&str>) -> Box<RawValue> {
    let mut json = String::with_capacity(64 + quoted_text.len() + structured.map_or(0, str::len));
    json.push_str(r#"{"content":[{"type":"text","text":"#);
    json.push_str(quoted_text);
    json.push_str("}]");
    if let Some(structured) = structured {
        json.push_str(r#","structuredContent":"#);
        json.push_str(structured);
    }
    json.push('}');
    raw(json)
}

/// JSON that was put together from JSON.
pub(crate) fn raw(json: String) -> Box<RawValue> {
    RawValue::from_string(json).unwrap_or_default()
}

/// What a failed tool says: most failures are the tool's own word to the model; what no retry mends is an error.
///
/// # Errors
/// Where it is the protocol's or the policy's word.
pub(crate) fn tool_failure(failure: Failure, revision: Revision) -> Result<Box<RawValue>, RpcError> {
    let of_protocol = match failure.kind {
        FailureKind::Blocked | FailureKind::Denied | FailureKind::Cancelled => true,
        // Since 2025-11-25 a model is told what is wrong with its arguments.
        FailureKind::InvalidInput => revision < Revision::V2025_11_25,
        // A client that can't be asked what the tool needs is told so by the modern era's own code.
        FailureKind::NobodyToAsk => {
            revision.era() == Era::Modern && failure.data.as_ref().is_some_and(names_capabilities)
        }
        _ => false,
    };
    if of_protocol || sent_by_peer(&failure).is_some() {
        return Err(error(failure));
    }
    let shown = match failure.kind {
        FailureKind::Internal => "internal error".to_owned(),
        _ => failure.message,
    };
    let mut ours = RawObject::new().with("kind", failure.kind);
    if let Some(data) = failure.data.filter(|_| failure.kind != FailureKind::Internal) {
        ours.set("data", data);
    }
    let result = ToolResult::error(shown).0.with("_meta", RawObject::new().with(meta::FAILURE, ours));
    Ok(result.to_raw())
}

/// Member of a failure's data: what a client would have to declare to be asked.
pub(crate) const REQUIRED_CAPABILITIES: &str = "requiredCapabilities";

fn names_capabilities(data: &Value) -> bool {
    data.get(REQUIRED_CAPABILITIES).is_some()
}

/// A failure as an error.
pub(crate) fn error(failure: Failure) -> RpcError {
    to_rpc_or(code::INVALID_PARAMS, failure)
}

/// The error of `resources/read` for an address that nothing has.
pub(crate) fn resource_error(failure: Failure, revision: Revision, uri: &str) -> RpcError {
    let missing = failure.kind == FailureKind::NotFound && sent_by_peer(&failure).is_none();
    let mut error = error(failure);
    if missing && revision.era() == Era::Legacy {
        error.code = mcp::RESOURCE_NOT_FOUND_LEGACY;
    }
    if missing && error.data.is_none() {
        error.data = Some(RawObject::new().with("uri", uri).to_raw());
    }
    error
}
