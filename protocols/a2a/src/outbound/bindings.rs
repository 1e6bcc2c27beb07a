//! The bindings, JSON-RPC and HTTP+JSON: requests, their results, and the events of streams.

use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;

use callboard_message::RawObject;
use callboard_rpc::http1::{EventStream, Place, Response};
use callboard_rpc::{Id, Incoming, Limits, check, decode, encode_request};
use reqwest::Method;
use serde_json::value::RawValue;

use super::choose::Candidate;
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
        let source = match response.status().is_success() {
            true if response.is_event_stream() => Source::Stream(Box::new(EventStream::new(
                response,
                limits.body_bytes_max,
                Place::default(),
            ))),
            true if !is_json(&response) => return Err(no_json(&response)),
            _ => Source::Whole(Some(result(response, id.as_ref(), limits).await?)),
        };
        Ok(Self {
            source,
            dialect,
            id,
            limits: *limits,
        })
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
        raw.map(|raw| self.dialect.read_event(&raw).map_err(unreadable))
            .transpose()
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
    let (method, tail, body, id) = match to.binding {
        Binding::JsonRpc => {
            let method = to
                .dialect()
                .method(ask.operation)
                .ok_or(PeerError::NotInVersion)?;
            let id = Id::integer(NEXT.fetch_add(1, Relaxed));
            let body = encode_request(&id, method, &ask.params(to)).into();
            (Method::POST, String::new(), body, Some(id))
        }
        Binding::HttpJson => {
            let method = ask.method();
            let body = match method == Method::POST {
                true => ask.body(to).get().to_owned().into(),
                false => bytes::Bytes::new(),
            };
            (method, tail(to, &ask.path), body, None)
        }
    };
    let sent = Sent {
        method,
        tail: &tail,
        body,
        streams: ask.operation.is_stream(),
        beside,
    };
    Ok((connection.send(&sent).await?, id))
}

/// What follows the URL of an interface over HTTP+JSON.
fn tail(to: &Candidate, path: &str) -> String {
    let path = match (to.version, path) {
        (Version::V03 | Version::V01, "/extendedAgentCard") => "/card",
        (_, path) => path,
    };
    match to.version {
        Version::V10 if to.tenant.is_empty() => path.to_owned(),
        Version::V10 => format!("/{}{path}", segment(&to.tenant)),
        // Some cards say it in the URL.
        _ if to.url.path().trim_end_matches('/').ends_with("/v1") => path.to_owned(),
        _ => format!("/v1{path}"),
    }
}

/// The result in the body of a response to a request of JSON-RPC's with an id, else to one of HTTP+JSON.
pub(super) async fn result(
    response: Response,
    id: Option<&Id>,
    limits: &Limits,
) -> Result<Box<RawValue>, PeerError> {
    let (is_success, status) = (response.status().is_success(), response.status().as_u16());
    // Who may not is told so by HTTP, whatever else is said.
    if status == 401 || status == 403 && id.is_some() {
        return Err(PeerError::Status(status));
    }
    if !is_json(&response) {
        return match is_success {
            // An operation without a result may say nothing.
            true if id.is_none() && response.content_length() == Some(0) => {
                Ok(RawValue::NULL.to_owned())
            }
            true => Err(no_json(&response)),
            false => Err(PeerError::Status(status)),
        };
    }
    let body = response.body(limits.body_bytes_max).await?;
    let read = match id {
        Some(id) => read_rpc(&body, id, limits),
        None => read_json(&body, limits),
    };
    match read {
        Ok(raw) if id.is_none() && !is_success => Err(refused(&raw, status)),
        Err(PeerError::Protocol(_)) if !is_success => Err(PeerError::Status(status)),
        read => read,
    }
}

/// An answer of another media type, which is told if it may be shown.
fn no_json(response: &Response) -> PeerError {
    let kind = response.media_type();
    let is_plain =
        kind.len() <= 64 && kind.bytes().all(|b| b.is_ascii_graphic()) && !kind.is_empty();
    PeerError::Protocol(format!(
        "the agent answered with {}",
        if is_plain { &kind } else { "no media type" }
    ))
}

/// The result in a response to request `id`.
fn read_rpc(body: &[u8], id: &Id, limits: &Limits) -> Result<Box<RawValue>, PeerError> {
    let refused =
        |error: &dyn std::fmt::Display| PeerError::Protocol(format!("the agent's answer {error}"));
    let Incoming::Response(response) = decode(body, limits).map_err(|refusal| refused(&refusal))?
    else {
        return Err(PeerError::Protocol(
            "the agent's answer is a request".into(),
        ));
    };
    // Some repeat a number as a string.
    let is_ours = response
        .id
        .as_ref()
        .is_none_or(|theirs| theirs.as_json().trim_matches('"') == id.as_json());
    match response.outcome {
        _ if !is_ours => Err(PeerError::Protocol(
            "the agent answered another request".into(),
        )),
        Ok(result) => Ok(result.to_owned()),
        Err(error) => Err(PeerError::Agent(AgentError::new(
            Dialect::read_error(&error),
            Some(error.code),
        ))),
    }
}

/// The result in an event: a response, or, as some write it, the bare result.
fn rpc_event(data: &[u8], id: &Id, limits: &Limits) -> Result<Box<RawValue>, PeerError> {
    let text = check(data, limits)
        .map_err(|error| PeerError::Protocol(format!("an event can't be read: {error}")))?;
    let no_object = || PeerError::Protocol("an event is no object".into());
    let raw: &RawValue = serde_json::from_str(text).map_err(|_| no_object())?;
    let event = RawObject::parse(raw).map_err(|_| no_object())?;
    match event.has("jsonrpc") || event.has("result") || event.has("error") {
        true => read_rpc(data, id, limits),
        false => Ok(raw.to_owned()),
    }
}

/// One JSON value.
fn read_json(body: &[u8], limits: &Limits) -> Result<Box<RawValue>, PeerError> {
    let wrong = |error: &dyn std::fmt::Display| {
        PeerError::Protocol(format!("the agent's answer can't be read: {error}"))
    };
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
    let Some(error) = Dialect::read_http_error(status, raw) else {
        return PeerError::Status(status);
    };
    PeerError::Agent(AgentError::new(error, None))
}
