//! The JSON-RPC binding.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use callboard_message::RawObject;
use callboard_rpc::http1::Response;
use callboard_rpc::{Id, Incoming, Limits, check, decode, encode_request};
use reqwest::Method;
use serde_json::value::RawValue;

use super::asks::Ask;
use super::connection::{Beside, Connection, Sent, is_json};
use super::error::{AgentError, PeerError};
use crate::Dialect;

static NEXT: AtomicI64 = AtomicI64::new(1);

/// Sends a request.
pub(super) async fn send<A: Ask>(
    connection: &Connection,
    ask: &A,
    beside: Beside<'_>,
) -> Result<(Response, Id), PeerError> {
    let dialect = connection.to.dialect();
    let method = dialect.method(A::OPERATION).ok_or(PeerError::NotInVersion)?;
    let id = Id::integer(NEXT.fetch_add(1, Relaxed));
    let sent = Sent {
        method: Method::POST,
        tail: "",
        body: encode_request(&id, method, &ask.write(dialect)).into(),
        streams: A::OPERATION.is_stream(),
        beside,
    };
    Ok((connection.send(&sent).await?, id))
}

/// The result in a response's body.
pub(super) async fn result(response: Response, id: &Id, limits: &Limits) -> Result<Box<RawValue>, PeerError> {
    let status = response.status();
    // Who may not is told so by HTTP, whatever else is said.
    if matches!(status.as_u16(), 401 | 403) {
        return Err(PeerError::Status(status.as_u16()));
    }
    if !is_json(&response) {
        return Err(match status.is_success() {
            true => PeerError::Protocol(format!("the agent answered with {}", kind_of(&response))),
            false => PeerError::Status(status.as_u16()),
        });
    }
    let body = response.body(limits.body_bytes_max).await?;
    match read(&body, id, limits) {
        Err(PeerError::Protocol(_)) if !status.is_success() => Err(PeerError::Status(status.as_u16())),
        read => read,
    }
}

/// A media type that may be shown.
pub(super) fn kind_of(response: &Response) -> String {
    let kind = response.media_type();
    let is_plain = kind.len() <= 64 && kind.bytes().all(|b| b.is_ascii_graphic()) && !kind.is_empty();
    if is_plain { kind } else { "no media type".into() }
}

/// The result in a response to request `id`.
pub(super) fn read(body: &[u8], id: &Id, limits: &Limits) -> Result<Box<RawValue>, PeerError> {
    let refused = |error: &dyn std::fmt::Display| PeerError::Protocol(format!("the agent's answer {error}"));
    let Incoming::Response(response) = decode(body, limits).map_err(|refusal| refused(&refusal))? else {
        return Err(PeerError::Protocol("the agent's answer is a request".into()));
    };
    // Some repeat a number as a string.
    let is_ours = response.id.as_ref().is_none_or(|theirs| theirs.as_json().trim_matches('"') == id.as_json());
    match response.outcome {
        _ if !is_ours => Err(PeerError::Protocol("the agent answered another request".into())),
        Ok(result) => Ok(result.to_owned()),
        Err(error) => Err(PeerError::Agent(AgentError::new(Dialect::read_error(&error), Some(error.code)))),
    }
}

/// The result in an event: a response, or, as some write it, the bare result.
pub(super) fn read_event(data: &[u8], id: &Id, limits: &Limits) -> Result<Box<RawValue>, PeerError> {
    let text = check(data, limits).map_err(|error| PeerError::Protocol(format!("an event can't be read: {error}")))?;
    let no_object = || PeerError::Protocol("an event is no object".into());
    let raw: &RawValue = serde_json::from_str(text).map_err(|_| no_object())?;
    let event = RawObject::parse(raw).map_err(|_| no_object())?;
    match event.has("jsonrpc") || event.has("result") || event.has("error") {
        true => read(data, id, limits),
        false => Ok(raw.to_owned()),
    }
}
