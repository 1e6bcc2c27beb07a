//! Members of `_meta` that belong to one hop or to the protocol itself.

pub use callboard_message::FAILURE;
use callboard_message::{RawMembers, RawObject, TraceContext};
use serde_json::value::RawValue;

/// The revision of one request (2026-07-28).
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// Who sends the request (2026-07-28).
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// What the sender can answer (2026-07-28).
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// Which lines of the log the sender wants (2026-07-28).
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// Which subscription a notification belongs to (2026-07-28).
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// Who answered (2026-07-28).
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// Where progress of this request goes.
pub const PROGRESS_TOKEN: &str = "progressToken";
/// W3C Trace Context.
pub const TRACEPARENT: &str = "traceparent";

/// Why the caller asks, for policies that look at it: a string.
pub const PURPOSE: &str = "callboard/purpose";
/// Most bytes of a purpose.
pub const PURPOSE_BYTES_MAX: usize = 64;

/// Members that mean something to this hop only: never forwarded.
const OF_THIS_HOP: &[&str] = &[
    PROTOCOL_VERSION,
    CLIENT_INFO,
    CLIENT_CAPABILITIES,
    LOG_LEVEL,
    SUBSCRIPTION_ID,
    PROGRESS_TOKEN,
    TRACEPARENT,
];

/// Params without what belongs to this hop; without other members `_meta` goes too.
pub fn without_hop(params: &RawValue) -> Result<Box<RawValue>, serde_json::Error> {
    let mut members = RawMembers::parse(params)?;
    let Some(mut meta) = members.read::<RawMembers<'_>>("_meta") else {
        return Ok(params.to_owned());
    };
    meta.retain(|name| !OF_THIS_HOP.contains(&name));
    let mut written = String::with_capacity(params.get().len());
    match meta.is_empty() {
        true => {
            members.retain(|name| name != "_meta");
            members.write_with(&[], &mut written);
        }
        false => {
            let mut kept = String::new();
            meta.write_with(&[], &mut kept);
            members.write_with(&[("_meta", &kept)], &mut written);
        }
    }
    RawValue::from_string(written)
}

/// The trace that a request belongs to: a child of its `traceparent`, or a trace of its own (W3C, section 2.3).
pub fn trace(meta: Option<&RawObject>) -> TraceContext {
    let sent: Option<TraceContext> = meta.and_then(|meta| meta.read(TRACEPARENT));
    sent.as_ref()
        .map_or_else(TraceContext::root, TraceContext::child)
}
