use callboard_message::{LogLevel, RawObject, TraceContext};
use callboard_rpc::{RpcError, code};
use serde::{Deserialize, Deserializer};
use serde_json::value::{RawValue, to_raw_value};

use crate::inbound::reports::Reports;
use crate::wire::code::UNSUPPORTED_VERSION;
use crate::wire::meta::PROTOCOL_VERSION;
use crate::wire::{Era, Revision};

/// What every request says of itself: its `_meta`, and its part in a multi-round-trip.
pub(super) struct Head<'a> {
    /// What the client can answer.
    pub capabilities: RawObject,
    /// Which lines of the log it wants; none without.
    pub level: Option<LogLevel>,
    /// Where progress goes; nowhere without.
    pub token: Option<&'a RawValue>,
    pub trace: TraceContext,
    /// Answers to questions.
    pub responses: Option<RawObject>,
    /// Which call they are for.
    pub state: Option<String>,
}

#[derive(Deserialize)]
struct Params<'a> {
    #[serde(borrow, rename = "_meta")]
    meta: Option<Meta<'a>>,
    #[serde(borrow, default, rename = "inputResponses", deserialize_with = "present")]
    responses: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "requestState", deserialize_with = "present")]
    state: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/logLevel")]
    level: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "progressToken")]
    token: Option<&'a RawValue>,
    #[serde(borrow, default)]
    traceparent: Option<&'a RawValue>,
}

/// Tells a member that is `null` from one that is missing.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'a> Head<'a> {
    /// Reads it.
    ///
    /// # Errors
    /// With the status 400: `INVALID_PARAMS` where something required is missing or of the wrong type,
    /// `UNSUPPORTED_VERSION` for another revision.
    pub fn read(params: Option<&'a RawValue>) -> Result<Self, RpcError> {
        // A struct can be read from an array too, which no params are.
        let params = params.filter(|p| p.get().starts_with('{')).ok_or_else(|| missing("_meta"))?;
        let params: Params<'a> = serde_json::from_str(params.get()).map_err(|_| malformed("_meta", "an object"))?;
        let meta = params.meta.ok_or_else(|| missing("_meta"))?;
        let version: String = match meta.version {
            None => return Err(missing(PROTOCOL_VERSION)),
            Some(raw) => serde_json::from_str(raw.get()).map_err(|_| malformed(PROTOCOL_VERSION, "a string"))?,
        };
        if !is_spoken(&version) {
            return Err(unsupported(&version));
        }
        let capabilities = meta.capabilities.ok_or_else(|| missing(crate::wire::meta::CLIENT_CAPABILITIES))?;
        let capabilities = RawObject::parse(capabilities)
            .map_err(|_| malformed(crate::wire::meta::CLIENT_CAPABILITIES, "an object"))?;
        let level = meta.level.map(|raw| serde_json::from_str(raw.get())).transpose();
        let level = level.map_err(|_| malformed(crate::wire::meta::LOG_LEVEL, "a level of RFC 5424"))?;
        if meta.token.is_some_and(|token| !Reports::is_token(token)) {
            return Err(malformed("progressToken", "a string or a number"));
        }
        let sent: Option<TraceContext> = meta.traceparent.and_then(|raw| serde_json::from_str(raw.get()).ok());
        let responses = params.responses.map(RawObject::parse).transpose();
        let state = params.state.map(|raw| serde_json::from_str(raw.get())).transpose();
        Ok(Self {
            capabilities,
            level,
            token: meta.token,
            trace: sent.as_ref().map_or_else(TraceContext::root, TraceContext::child),
            responses: responses.map_err(|_| malformed("inputResponses", "an object"))?,
            state: state.map_err(|_| malformed("requestState", "a string"))?,
        })
    }
}

/// The revisions that a request may name.
pub(super) fn spoken() -> impl Iterator<Item = &'static str> {
    Revision::ALL.into_iter().filter(|revision| revision.era() == Era::Modern).map(Revision::as_str)
}

pub(super) fn is_spoken(version: &str) -> bool {
    spoken().any(|spoken| spoken == version)
}

/// The last of the member's name: up to 32 bytes are found without a table.
const ENDS_IN: &str = PROTOCOL_VERSION.split_at(PROTOCOL_VERSION.len() - 32).1;

/// The revision that params name; `None` where they name none.
pub(super) fn version(params: Option<&RawValue>) -> Option<String> {
    #[derive(Deserialize)]
    struct Versioned<'a> {
        #[serde(borrow, default, rename = "_meta")]
        meta: Option<&'a RawValue>,
    }
    let params = params.map(RawValue::get).filter(|p| p.starts_with('{'))?;
    // Most that don't name it are told so by their bytes, of which an escape could hide some.
    if !params.contains(ENDS_IN) && !params.contains("\\u") {
        return None;
    }
    version_in(serde_json::from_str::<Versioned<'_>>(params).ok()?.meta?)
}

/// The revision that a `_meta` names.
pub(super) fn version_in(meta: &RawValue) -> Option<String> {
    #[derive(Deserialize)]
    struct Version {
        #[serde(default, rename = "io.modelcontextprotocol/protocolVersion")]
        version: Option<String>,
    }
    let meta = meta.get().starts_with('{').then_some(meta.get())?;
    serde_json::from_str::<Version>(meta).ok()?.version
}

fn unsupported(requested: &str) -> RpcError {
    const CHARS_MAX: usize = 64;
    let requested: String = requested.chars().take(CHARS_MAX).collect();
    let supported: Vec<&str> = spoken().collect();
    let message = format!("unsupported protocol version: this server speaks {}", supported.join(", "));
    let data = RawObject::new().with("supported", supported).with("requested", requested);
    RpcError { code: UNSUPPORTED_VERSION, message, data: to_raw_value(&data).ok() }
}

fn missing(name: &str) -> RpcError {
    RpcError::new(code::INVALID_PARAMS, format!("missing `{name}`"))
}

fn malformed(name: &str, expected: &str) -> RpcError {
    RpcError::new(code::INVALID_PARAMS, format!("`{name}` must be {expected}"))
}
