//! The HTTP+JSON binding.

use callboard_message::RawObject;
use callboard_rpc::http1::Response;
use callboard_rpc::{Limits, check};
use reqwest::Method;
use serde_json::value::RawValue;

use super::asks::{Ask, segment};
use super::connection::{Beside, Connection, Sent, is_json};
use super::error::{AgentError, PeerError};
use super::jsonrpc::kind_of;
use super::options::Version;
use crate::Dialect;

/// Sends a request.
pub(super) async fn send<A: Ask>(connection: &Connection, ask: &A, beside: Beside<'_>) -> Result<Response, PeerError> {
    let (method, place) = ask.place();
    let to = &connection.to;
    let tail = match to.version {
        Version::V10 if to.tenant.is_empty() => place,
        Version::V10 => format!("/{}{place}", segment(&to.tenant)),
        // Some cards say it in the URL.
        _ if to.url.path().trim_end_matches('/').ends_with("/v1") => of_old(&place).to_owned(),
        _ => format!("/v1{}", of_old(&place)),
    };
    let body = match method == Method::POST {
        true => body_of(ask, connection).get().to_owned().into(),
        false => bytes::Bytes::new(),
    };
    let sent = Sent { method, tail: &tail, body, streams: A::OPERATION.is_stream(), beside };
    connection.send(&sent).await
}

fn of_old(place: &str) -> &str {
    if place == "/extendedAgentCard" { "/card" } else { place }
}

/// The request but for what the path says.
fn body_of(ask: &impl Ask, connection: &Connection) -> Box<RawValue> {
    let raw = ask.write(connection.to.dialect());
    match RawObject::parse(&raw) {
        Ok(mut body) if body.has("tenant") => {
            body.remove("tenant");
            body.to_raw()
        }
        _ => raw,
    }
}

/// The result in a response's body.
pub(super) async fn result(response: Response, limits: &Limits) -> Result<Box<RawValue>, PeerError> {
    let status = response.status();
    if status.as_u16() == 401 {
        return Err(PeerError::Status(401));
    }
    if !is_json(&response) {
        return Err(match status.is_success() {
            // An operation without a result may say nothing.
            true if response.content_length() == Some(0) => return Ok(RawValue::NULL.to_owned()),
            true => PeerError::Protocol(format!("the agent answered with {}", kind_of(&response))),
            false => PeerError::Status(status.as_u16()),
        });
    }
    let body = response.body(limits.body_bytes_max).await?;
    let raw = read(&body, limits);
    match (raw, status.is_success()) {
        (raw, true) => raw,
        (Ok(raw), false) => Err(refused(&raw, status.as_u16())),
        (Err(_), false) => Err(PeerError::Status(status.as_u16())),
    }
}

/// One JSON value.
fn read(body: &[u8], limits: &Limits) -> Result<Box<RawValue>, PeerError> {
    let wrong =
        |error: &dyn std::fmt::Display| PeerError::Protocol(format!("the agent's answer can't be read: {error}"));
    let text = check(body, limits).map_err(|error| wrong(&error))?;
    RawValue::from_string(text.to_owned()).map_err(|_| wrong(&"no JSON"))
}

/// The event in the data of an event stream.
pub(super) fn read_event(data: &[u8], limits: &Limits) -> Result<Box<RawValue>, PeerError> {
    let raw = read(data, limits)?;
    match RawObject::parse(&raw) {
        Ok(event) if event.has("error") => Err(refused(&raw, 500)),
        _ => Ok(raw),
    }
}

/// What an error's body says.
fn refused(raw: &RawValue, status: u16) -> PeerError {
    let Some(error) = Dialect::read_http_error(status, raw) else { return PeerError::Status(status) };
    PeerError::Agent(AgentError::new(error, None))
}
