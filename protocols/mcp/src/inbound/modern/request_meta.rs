use callboard_message::json::text;
use callboard_message::{Abilities, LogLevel, RawMembers, RawObject, TraceContext};
use callboard_rpc::RpcError;
use serde_json::Value;
use serde_json::value::to_raw_value;

use crate::inbound::client::Reports;
use crate::inbound::endpoint::Endpoint;
use crate::inbound::request::{Member, Method, Params, Request, version_in_meta};
use crate::wire::code::{HEADER_MISMATCH, UNSUPPORTED_VERSION};
use crate::wire::header::{HeaderParam, ParamKind};
use crate::wire::meta::{
    CLIENT_CAPABILITIES, LOG_LEVEL, PROGRESS_TOKEN, PROTOCOL_VERSION, TRACEPARENT,
};
use crate::wire::{Era, Revision, header};

/// What every request says of itself: its `_meta`, and its part in a multi-round-trip.
pub(crate) struct RequestMeta {
    /// What the client can answer.
    pub abilities: Abilities,
    /// Which lines of the log it wants; none without.
    pub level: Option<LogLevel>,
    /// Its progress; nobody is told of it without.
    pub reports: Option<Reports>,
    pub trace: TraceContext,
    /// Answers to questions.
    pub responses: Option<RawObject>,
    /// Which call they are for.
    pub state: Option<String>,
}

impl RequestMeta {
    /// Reads it.
    ///
    /// # Errors
    /// With the status 400: `INVALID_PARAMS` where something required is missing or of the wrong type,
    /// `UNSUPPORTED_VERSION` for another revision.
    pub fn read(params: &Params) -> Result<Self, RpcError> {
        let meta = params.get(Member::Meta).ok_or_else(|| missing("_meta"))?;
        let meta = RawMembers::parse(meta).map_err(|_| malformed("_meta", "an object"))?;
        // `null` is as good as missing.
        let member = |name: &str| meta.get(name).filter(|value| value.get() != "null");
        let version = member(PROTOCOL_VERSION).ok_or_else(|| missing(PROTOCOL_VERSION))?;
        let version = text(version).ok_or_else(|| malformed(PROTOCOL_VERSION, "a string"))?;
        if !is_spoken(&version) {
            return Err(unsupported(&version));
        }
        let capabilities =
            member(CLIENT_CAPABILITIES).ok_or_else(|| missing(CLIENT_CAPABILITIES))?;
        let capabilities = RawObject::parse(capabilities)
            .map_err(|_| malformed(CLIENT_CAPABILITIES, "an object"))?;
        let level = member(LOG_LEVEL)
            .map(|raw| serde_json::from_str(raw.get()))
            .transpose();
        let level = level.map_err(|_| malformed(LOG_LEVEL, "a level of RFC 5424"))?;
        let token = member(PROGRESS_TOKEN);
        if token.is_some_and(|token| !Reports::is_token(token)) {
            return Err(malformed(PROGRESS_TOKEN, "a string or a number"));
        }
        let sent: Option<TraceContext> = meta.read(TRACEPARENT);
        let responses = params
            .get(Member::InputResponses)
            .map(RawObject::parse)
            .transpose();
        let state = params
            .get(Member::RequestState)
            .map(|raw| serde_json::from_str(raw.get()))
            .transpose();
        Ok(Self {
            abilities: Abilities(capabilities),
            level,
            reports: token.map(Reports::under),
            trace: sent
                .as_ref()
                .map_or_else(TraceContext::root, TraceContext::child),
            responses: responses.map_err(|_| malformed("inputResponses", "an object"))?,
            state: state.map_err(|_| malformed("requestState", "a string"))?,
        })
    }
}

/// The revisions that a request may name.
pub(crate) fn spoken_versions() -> impl Iterator<Item = &'static str> {
    Revision::ALL
        .into_iter()
        .filter(|revision| revision.era() == Era::Modern)
        .map(Revision::as_str)
}

fn is_spoken(version: &str) -> bool {
    spoken_versions().any(|spoken| spoken == version)
}

fn unsupported(requested: &str) -> RpcError {
    const CHARS_MAX: usize = 64;
    let requested: String = requested.chars().take(CHARS_MAX).collect();
    let supported: Vec<&str> = spoken_versions().collect();
    let message = format!(
        "unsupported protocol version: this server speaks {}",
        supported.join(", ")
    );
    let data = RawObject::of("supported", supported).with("requested", requested);
    RpcError {
        code: UNSUPPORTED_VERSION,
        message,
        data: to_raw_value(&data).ok(),
    }
}

fn missing(name: &str) -> RpcError {
    RpcError::invalid_params(format!("missing `{name}`"))
}

fn malformed(name: &str, expected: &str) -> RpcError {
    RpcError::invalid_params(format!("`{name}` must be {expected}"))
}

/// A header of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Field<'a> {
    /// It isn't there.
    Missing,
    /// Its value, in bytes.
    One(&'a [u8]),
    /// It stands several times.
    Several,
}

/// Finds a header by its name in lower case.
pub(crate) type Fields<'f, 'h> = &'f dyn Fn(&str) -> Field<'h>;

/// Holds the headers of streamable HTTP against the body (2026-07-28, basic/transports/streamable-http, Server
/// Validation).
///
/// A body without a revision, or with one that isn't spoken here, passes: [`super::request`] refuses it.
///
/// # Errors
/// `HEADER_MISMATCH`, to be answered with the status 400. No value of a header is repeated.
pub(crate) fn check_headers(
    endpoint: &Endpoint,
    field: Fields<'_, '_>,
    request: &Request,
) -> Result<(), RpcError> {
    let params = &request.params;
    let Some(version) = params.get(Member::Meta).and_then(version_in_meta) else {
        return Ok(());
    };
    same(field, header::PROTOCOL_VERSION, &version)?;
    if !is_spoken(&version) {
        return Ok(());
    }
    same(field, header::METHOD, &request.name)?;
    let about = match request.method {
        Method::CallTool | Method::GetPrompt => params.name(),
        Method::ReadResource => params.uri(),
        // An extension's: held to the body where it is sent.
        Method::GetTask | Method::UpdateTask | Method::CancelTask
            if field(header::NAME) != Field::Missing =>
        {
            params.task_id()
        }
        _ => None,
    };
    // Params that lack it are refused later, for that.
    if let Some(about) = &about {
        encoded(field, header::NAME, about)?;
    }
    if let Some(tool) = about.filter(|_| request.method == Method::CallTool) {
        let adapter = endpoint.adapter();
        let repeated = adapter.header_params(&tool);
        if !repeated.is_empty() {
            let arguments = params
                .get(Member::Arguments)
                .and_then(|raw| serde_json::from_str(raw.get()).ok())
                .unwrap_or_default();
            repeated
                .iter()
                .try_for_each(|param| argument(field, param, &arguments))?;
        }
    }
    Ok(())
}

/// A header that is never encoded.
fn same(field: Fields<'_, '_>, name: &str, body: &str) -> Result<(), RpcError> {
    match value(field, name)?.trim_ascii() == body.as_bytes() {
        true => Ok(()),
        false => Err(mismatch(name)),
    }
}

/// A header that may be.
fn encoded(field: Fields<'_, '_>, name: &str, body: &str) -> Result<(), RpcError> {
    match header::decode(value(field, name)?) {
        Some(value) if value == body => Ok(()),
        Some(_) => Err(mismatch(name)),
        None => Err(error(format!(
            "the header {name} holds invalid characters or encoding"
        ))),
    }
}

fn value<'h>(field: Fields<'_, 'h>, name: &str) -> Result<&'h [u8], RpcError> {
    match field(name) {
        Field::One(value) => Ok(value),
        Field::Missing => Err(error(format!("the header {name} is missing"))),
        Field::Several => Err(error(format!("the header {name} stands several times"))),
    }
}

/// `Mcp-Param-*` against its argument: there when, and only when, that has a value.
fn argument(field: Fields<'_, '_>, param: &HeaderParam, arguments: &Value) -> Result<(), RpcError> {
    let name = param.header.as_str();
    let mut found = Some(arguments);
    for member in &param.path {
        found = found.and_then(|value| value.get(member));
    }
    match (found.filter(|value| !value.is_null()), param.kind) {
        (None, _) if field(name) == Field::Missing => Ok(()),
        (None, _) => Err(mismatch(name)),
        (Some(Value::String(text)), ParamKind::String) => encoded(field, name, text),
        (Some(Value::Bool(flag)), ParamKind::Boolean) => {
            encoded(field, name, if *flag { "true" } else { "false" })
        }
        (Some(Value::Number(number)), ParamKind::Integer) => {
            let sent = header::decode(value(field, name)?);
            let sent = sent.and_then(|text| serde_json::from_str::<serde_json::Number>(&text).ok());
            let same = sent.is_some_and(|sent| match (sent.as_i64(), number.as_i64()) {
                (Some(sent), Some(body)) => sent == body,
                _ => sent.as_f64() == number.as_f64(),
            });
            if same { Ok(()) } else { Err(mismatch(name)) }
        }
        // A value of another type than the schema's: no header can repeat it.
        (Some(_), _) => Err(mismatch(name)),
    }
}

fn mismatch(name: &str) -> RpcError {
    error(format!("the header {name} doesn't match the body"))
}

fn error(message: String) -> RpcError {
    RpcError::new(HEADER_MISMATCH, message)
}
