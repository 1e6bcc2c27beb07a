//! The bindings, JSON-RPC and HTTP+JSON: requests, their results, and the events of streams.

use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;

use callboard_message::RawObject;
use callboard_rpc::http1::{EventStream, Place, Response};
use callboard_rpc::{Id, Incoming, Limits, check, decode, encode_request};
use reqwest::Method;
use serde_json::value::RawValue;

use super::connection::{Beside, Connection, Sent, is_json};
use super::error::{AgentError, PeerError};
use super::operations::{Ask, segment};
use super::options::{Binding, Version};
use crate::wire::StreamResponse;
use crate::{A2aError, Dialect};

/// The events of a stream, in order.
pub struct Events {
    source: Source,
    dialect: Dialect,
    /// The request's id, over JSON-RPC.
    id: Option<Id>,
    limits: Limits,
}

enum Source {
    Stream(Box<EventStream>),
    /// An agent that has no stream after all answered in one piece.
    Whole(Option<Box<RawValue>>),
}

impl Events {
    /// Opens a stream.
    pub(super) async fn open(
        connection: &Connection,
        ask: &Ask<'_, StreamResponse>,
        beside: Beside<'_>,
        limits: &Limits,
    ) -> Result<Self, PeerError> {
        let (response, id) = send(connection, ask, beside).await?;
        let dialect = connection.to.dialect();
        let source = match response.status().is_success() && response.is_event_stream() {
            true => Source::Stream(Box::new(EventStream::new(response, limits.body_bytes_max, Place::default()))),
            false => Source::Whole(Some(Self::whole(response, id.as_ref(), limits).await?)),
        };
        Ok(Self { source, dialect, id, limits: *limits })
    }

    async fn whole(response: Response, id: Option<&Id>, limits: &Limits) -> Result<Box<RawValue>, PeerError> {
        if response.status().is_success() && !is_json(&response) {
            return Err(PeerError::Protocol(format!("the agent answered with {}", kind_of(&response))));
        }
        result(response, id, limits).await
    }

    /// The next event; `None` where the stream has ended or broken.
    ///
    /// # Errors
    /// What the agent says in place of an event, and what is no event.
    pub async fn next(&mut self) -> Result<Option<StreamResponse>, PeerError> {
        let raw = match &mut self.source {
            Source::Whole(whole) => whole.take(),
            Source::Stream(events) => match (events.next().await?, &self.id) {
                (None, _) => None,
                (Some(event), Some(id)) => Some(rpc_event(&event.data, id, &self.limits)?),
                (Some(event), None) => Some(rest_event(&event.data, &self.limits)?),
            },
        };
        raw.map(|raw| self.dialect.read_event(&raw).map_err(unreadable)).transpose()
    }

    /// Where the stream can be taken up again, if the agent says so.
    pub fn last_event_id(&self) -> Option<&str> {
        match &self.source {
            Source::Stream(events) => events.place().last_event_id(),
            Source::Whole(_) => None,
        }
    }
}

pub(super) fn unreadable(error: A2aError) -> PeerError {
    PeerError::Protocol(format!("the agent's answer is no A2A: {}", error.message))
}

static NEXT: AtomicI64 = AtomicI64::new(1);

/// Sends a request; over JSON-RPC it has an id.
pub(super) async fn send<T>(
    connection: &Connection,
    ask: &Ask<'_, T>,
    beside: Beside<'_>,
) -> Result<(Response, Option<Id>), PeerError> {
    let to = &connection.to;
    let streams = ask.operation.is_stream();
    if to.binding == Binding::JsonRpc {
        let method = to.dialect().method(ask.operation).ok_or(PeerError::NotInVersion)?;
        let id = Id::integer(NEXT.fetch_add(1, Relaxed));
        let body = encode_request(&id, method, &ask.params(to)).into();
        let sent = Sent { method: Method::POST, tail: "", body, streams, beside };
        return Ok((connection.send(&sent).await?, Some(id)));
    }
    let place = match (to.version, &*ask.path) {
        (Version::V03 | Version::V01, "/extendedAgentCard") => "/card",
        (_, place) => place,
    };
    let tail = match to.version {
        Version::V10 if to.tenant.is_empty() => place.to_owned(),
        Version::V10 => format!("/{}{place}", segment(&to.tenant)),
        // Some cards say it in the URL.
        _ if to.url.path().trim_end_matches('/').ends_with("/v1") => place.to_owned(),
        _ => format!("/v1{place}"),
    };
    let body = match ask.method == Method::POST {
        true => ask.body(to).get().to_owned().into(),
        false => bytes::Bytes::new(),
    };
    let sent = Sent { method: ask.method.clone(), tail: &tail, body, streams, beside };
    Ok((connection.send(&sent).await?, None))
}

/// The result in the body of a response to a request of JSON-RPC's with an id, else to one of HTTP+JSON.
pub(super) async fn result(response: Response, id: Option<&Id>, limits: &Limits) -> Result<Box<RawValue>, PeerError> {
    match id {
        Some(id) => rpc_result(response, id, limits).await,
        None => rest_result(response, limits).await,
    }
}

async fn rpc_result(response: Response, id: &Id, limits: &Limits) -> Result<Box<RawValue>, PeerError> {
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
    match read_rpc(&body, id, limits) {
        Err(PeerError::Protocol(_)) if !status.is_success() => Err(PeerError::Status(status.as_u16())),
        read => read,
    }
}

/// A media type that may be shown.
fn kind_of(response: &Response) -> String {
    let kind = response.media_type();
    let is_plain = kind.len() <= 64 && kind.bytes().all(|b| b.is_ascii_graphic()) && !kind.is_empty();
    if is_plain { kind } else { "no media type".into() }
}

/// The result in a response to request `id`.
fn read_rpc(body: &[u8], id: &Id, limits: &Limits) -> Result<Box<RawValue>, PeerError> {
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
fn rpc_event(data: &[u8], id: &Id, limits: &Limits) -> Result<Box<RawValue>, PeerError> {
    let text = check(data, limits).map_err(|error| PeerError::Protocol(format!("an event can't be read: {error}")))?;
    let no_object = || PeerError::Protocol("an event is no object".into());
    let raw: &RawValue = serde_json::from_str(text).map_err(|_| no_object())?;
    let event = RawObject::parse(raw).map_err(|_| no_object())?;
    match event.has("jsonrpc") || event.has("result") || event.has("error") {
        true => read_rpc(data, id, limits),
        false => Ok(raw.to_owned()),
    }
}

async fn rest_result(response: Response, limits: &Limits) -> Result<Box<RawValue>, PeerError> {
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
    let raw = read_json(&body, limits);
    match (raw, status.is_success()) {
        (raw, true) => raw,
        (Ok(raw), false) => Err(refused(&raw, status.as_u16())),
        (Err(_), false) => Err(PeerError::Status(status.as_u16())),
    }
}

/// One JSON value.
fn read_json(body: &[u8], limits: &Limits) -> Result<Box<RawValue>, PeerError> {
    let wrong =
        |error: &dyn std::fmt::Display| PeerError::Protocol(format!("the agent's answer can't be read: {error}"));
    let text = check(body, limits).map_err(|error| wrong(&error))?;
    RawValue::from_string(text.to_owned()).map_err(|_| wrong(&"no JSON"))
}

/// The event in the data of an event stream.
fn rest_event(data: &[u8], limits: &Limits) -> Result<Box<RawValue>, PeerError> {
    let raw = read_json(data, limits)?;
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
