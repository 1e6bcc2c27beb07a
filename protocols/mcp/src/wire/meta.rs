//! Names of `_meta` members that concern one hop or the protocol itself.

pub use callboard_message::FAILURE_META_KEY;
use callboard_message::RawMembers;
use callboard_message::capabilities::SOURCE_MESSAGE_META_KEY;
use serde_json::value::RawValue;

/// Protocol revision of one request (2026-07-28).
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// Name and version of the client that sends the request (2026-07-28).
pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
/// Capabilities of the client that sends the request (2026-07-28).
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// Minimum level of the log messages that the client wants (2026-07-28).
pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// Id of the subscription that a notification belongs to (2026-07-28).
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
/// Name and version of the server that answered (2026-07-28).
pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
/// Token that progress notifications about this request must carry.
pub const PROGRESS_TOKEN: &str = "progressToken";
/// W3C Trace Context of the request.
pub const TRACEPARENT: &str = "traceparent";

/// Number of agents through which the call has passed, over all gateways: a whole number.
pub const HOPS: &str = "callboard/hops";
/// Purpose of the access, for policies that check it: a string.
pub const PURPOSE: &str = "callboard/purpose";
/// Maximum length of a purpose, in bytes.
pub const PURPOSE_BYTES_MAX: usize = 64;

/// Members of `_meta` that concern one client and its server only, and are never forwarded. No
/// client may send the source message of a tool call: it would replace the arguments that the
/// policy has checked.
const HOP_MEMBERS: &[&str] = &[
    PROTOCOL_VERSION,
    CLIENT_INFO,
    CLIENT_CAPABILITIES,
    LOG_LEVEL,
    SUBSCRIPTION_ID,
    PROGRESS_TOKEN,
    TRACEPARENT,
    HOPS,
    SOURCE_MESSAGE_META_KEY,
];

/// Returns `params` without the `_meta` members that must not be forwarded; [`PURPOSE`] stays only with
/// `keeps_purpose`. An empty `_meta` is removed.
///
/// # Errors
/// An error of the parser if `params` isn't an object.
pub fn strip_hop_members(
    params: &RawValue,
    keeps_purpose: bool,
) -> Result<Box<RawValue>, serde_json::Error> {
    let mut members = RawMembers::parse(params)?;
    let Some(mut meta) = members.read::<RawMembers<'_>>("_meta") else {
        return Ok(params.to_owned());
    };
    meta.retain(|name| !HOP_MEMBERS.contains(&name) && (keeps_purpose || name != PURPOSE));
    let mut written = String::with_capacity(params.get().len());
    match meta.is_empty() {
        true => {
            members.retain(|name| name != "_meta");
            members.write_with(&[], &mut written);
        }
        false => {
            let mut meta_json = String::new();
            meta.write_with(&[], &mut meta_json);
            members.write_with(&[("_meta", &meta_json)], &mut written);
        }
    }
    RawValue::from_string(written)
}
