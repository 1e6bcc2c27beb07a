use callboard_rpc::{RpcError, code};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::head;
use crate::inbound::endpoint::Endpoint;
use crate::wire::code::HEADER_MISMATCH;
use crate::wire::header::{self, HeaderParam, ParamKind};

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

/// Holds the headers of streamable HTTP against the body (2026-07-28, basic/transports/streamable-http, Server
/// Validation). `field` finds a header by its name in lower case.
///
/// A body without a revision, or with one that isn't spoken here, passes: [`super::request`] refuses it.
///
/// # Errors
/// `HEADER_MISMATCH`, to be answered with the status 400. No value of a header is repeated.
pub(crate) fn check_headers<'h>(
    endpoint: &Endpoint,
    field: impl Fn(&str) -> Field<'h>,
    method: &str,
    params: Option<&RawValue>,
) -> Result<(), RpcError> {
    let body = Body::read(params);
    let Some(version) = body.meta.and_then(head::version_in) else { return Ok(()) };
    same(&field, header::PROTOCOL_VERSION, &version)?;
    if !head::is_spoken(&version) {
        return Ok(());
    }
    same(&field, header::METHOD, method)?;
    match method {
        "tools/call" | "prompts/get" => about(&field, body.name)?,
        "resources/read" => about(&field, body.uri)?,
        // An extension's: held to the body where it is sent.
        "tasks/get" | "tasks/update" | "tasks/cancel" if field(header::NAME) != Field::Missing => {
            about(&field, body.task_id)?;
        }
        _ => {}
    }
    if method == "tools/call" {
        let name: Option<String> = body.name.and_then(|raw| serde_json::from_str(raw.get()).ok());
        let surface = endpoint.surface();
        let params = name.map(|name| surface.header_params(&name)).unwrap_or_default();
        if !params.is_empty() {
            let arguments = body.arguments.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
            params.iter().try_for_each(|param| argument(&field, param, &arguments))?;
        }
    }
    Ok(())
}

#[derive(Default, Deserialize)]
struct Body<'a> {
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<&'a RawValue>,
    #[serde(borrow, default)]
    name: Option<&'a RawValue>,
    #[serde(borrow, default)]
    uri: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "taskId")]
    task_id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

impl<'a> Body<'a> {
    fn read(params: Option<&'a RawValue>) -> Self {
        let params = params.map(RawValue::get).filter(|p| p.starts_with('{'));
        params.and_then(|p| serde_json::from_str(p).ok()).unwrap_or_default()
    }
}

/// `Mcp-Name` against what it repeats. Params that lack it are refused later, for that.
fn about<'h>(field: &impl Fn(&str) -> Field<'h>, body: Option<&RawValue>) -> Result<(), RpcError> {
    match body.and_then(|raw| serde_json::from_str::<String>(raw.get()).ok()) {
        Some(body) => encoded(field, header::NAME, &body),
        None => Ok(()),
    }
}

/// A header that is never encoded.
fn same<'h>(field: &impl Fn(&str) -> Field<'h>, name: &str, body: &str) -> Result<(), RpcError> {
    match value(field, name)?.trim_ascii() == body.as_bytes() {
        true => Ok(()),
        false => Err(mismatch(name)),
    }
}

/// A header that may be.
fn encoded<'h>(field: &impl Fn(&str) -> Field<'h>, name: &str, body: &str) -> Result<(), RpcError> {
    match header::decode(value(field, name)?) {
        Some(value) if value == body => Ok(()),
        Some(_) => Err(mismatch(name)),
        None => Err(error(format!("the header {name} holds invalid characters or encoding"))),
    }
}

fn value<'h>(field: &impl Fn(&str) -> Field<'h>, name: &str) -> Result<&'h [u8], RpcError> {
    match field(name) {
        Field::One(value) => Ok(value),
        Field::Missing => Err(error(format!("the header {name} is missing"))),
        Field::Several => Err(error(format!("the header {name} stands several times"))),
    }
}

/// `Mcp-Param-*` against its argument: there when, and only when, that has a value.
fn argument<'h>(field: &impl Fn(&str) -> Field<'h>, param: &HeaderParam, arguments: &Value) -> Result<(), RpcError> {
    let name = &param.header;
    let mut found = Some(arguments);
    for member in &param.path {
        found = found.and_then(|value| value.get(member));
    }
    match (found.filter(|value| !value.is_null()), param.kind) {
        (None, _) if field(name) == Field::Missing => Ok(()),
        (None, _) => Err(mismatch(name)),
        (Some(Value::String(text)), ParamKind::String) => encoded(field, name, text),
        (Some(Value::Bool(flag)), ParamKind::Boolean) => encoded(field, name, if *flag { "true" } else { "false" }),
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

/// What answers a JSON-RPC response that a client sends: nobody asked it anything.
pub(super) fn response_refused() -> RpcError {
    RpcError::new(code::INVALID_REQUEST, "responses aren't accepted: answers go into `inputResponses` of a request")
}
