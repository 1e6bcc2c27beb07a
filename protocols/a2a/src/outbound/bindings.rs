//! The bindings JSON-RPC and HTTP+JSON: requests, their results, and events of streams.

use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;

use callboard_message::RawObject;
use callboard_rpc::http1::{ClientResponse, SseStream, StreamPosition};
use callboard_rpc::{DecodeLimits, RequestId, RpcMessage, check_json, decode, encode_request};
use reqwest::Method;
use serde_json::value::RawValue;

use super::connection::{ExtraHeaders, InterfaceConnection, OutboundRequest, is_json};
use super::error::{A2aClientError, RemoteAgentError};
use super::interface_selection::InterfaceCandidate;
use super::operations::{ClientOperation, path_segment};
use super::options::{ProtocolBinding, ProtocolVersion};
use crate::wire::StreamResponse;
use crate::{A2aError, Dialect};

/// Stream of events from a remote agent, in order.
pub struct RemoteEventStream {
    source: EventSource,
    dialect: Dialect,
    /// Id of the request that opened the stream; `None` over HTTP+JSON.
    id: Option<RequestId>,
    limits: DecodeLimits,
}

enum EventSource {
    Stream(Box<SseStream>),
    /// A single result in place of a stream, because some agents respond to a stream request
    /// without a stream. `None` once it was read.
    SingleResult(Option<Box<RawValue>>),
}

impl RemoteEventStream {
    /// Sends a request and opens the stream of its events.
    pub(super) async fn open(
        connection: &InterfaceConnection,
        ask: &ClientOperation<'_, StreamResponse>,
        beside: ExtraHeaders<'_>,
        limits: &DecodeLimits,
    ) -> Result<Self, A2aClientError> {
        let (response, id) = send_request(connection, ask, beside).await?;
        let dialect = connection.interface.dialect();
        let source = match response.status().is_success() {
            true if response.is_event_stream() => EventSource::Stream(Box::new(SseStream::new(
                response,
                limits.body_bytes_max,
                StreamPosition::default(),
            ))),
            true if !is_json(&response) => return Err(unexpected_media_type(&response)),
            _ => EventSource::SingleResult(Some(read_result(response, id.as_ref(), limits).await?)),
        };
        Ok(Self {
            source,
            dialect,
            id,
            limits: *limits,
        })
    }

    /// Waits for the next event; `None` if the stream has ended or its connection broke.
    ///
    /// # Errors
    /// [`A2aClientError::Agent`] if the agent sends an error in place of an event,
    /// [`A2aClientError::Protocol`] if an event is invalid.
    pub async fn next(&mut self) -> Result<Option<StreamResponse>, A2aClientError> {
        let raw = match &mut self.source {
            EventSource::SingleResult(whole) => whole.take(),
            EventSource::Stream(events) => match (events.next().await?, &self.id) {
                (None, _) => None,
                (Some(event), Some(id)) => Some(read_rpc_event(&event.data, id, &self.limits)?),
                (Some(event), None) => Some(read_rest_event(&event.data, &self.limits)?),
            },
        };
        raw.map(|raw| self.dialect.read_event(&raw).map_err(protocol_error))
            .transpose()
    }

    /// Returns the id of the last event, from which the stream can be resumed; `None` if the
    /// agent's events have no ids.
    pub fn last_event_id(&self) -> Option<&str> {
        match &self.source {
            EventSource::Stream(events) => events.position().last_event_id(),
            EventSource::SingleResult(_) => None,
        }
    }
}

pub(super) fn protocol_error(error: A2aError) -> A2aClientError {
    A2aClientError::Protocol(format!(
        "the agent's response isn't valid A2A: {}",
        error.message
    ))
}

static NEXT_REQUEST_ID: AtomicI64 = AtomicI64::new(1);

/// Sends a request. Returns the response and the request's id, which only JSON-RPC has.
pub(super) async fn send_request<T>(
    connection: &InterfaceConnection,
    ask: &ClientOperation<'_, T>,
    beside: ExtraHeaders<'_>,
) -> Result<(ClientResponse, Option<RequestId>), A2aClientError> {
    let to = &connection.interface;
    let (method, tail, body, id) = match to.binding {
        ProtocolBinding::JsonRpc => {
            let method = to
                .dialect()
                .rpc_method(ask.operation)
                .ok_or(A2aClientError::UnsupportedByVersion)?;
            let id = RequestId::integer(NEXT_REQUEST_ID.fetch_add(1, Relaxed));
            let body = encode_request(&id, method, &ask.rpc_params(to)).into();
            (Method::POST, String::new(), body, Some(id))
        }
        ProtocolBinding::HttpJson => {
            let method = ask.http_method();
            let body = match method == Method::POST {
                true => ask.http_body(to).get().to_owned().into(),
                false => bytes::Bytes::new(),
            };
            (method, interface_path(to, &ask.path), body, None)
        }
    };
    let sent = OutboundRequest {
        method,
        path: &tail,
        body,
        is_stream: ask.operation.is_stream(),
        extra_headers: beside,
    };
    Ok((connection.send(&sent).await?, id))
}

/// Returns the path and query of an HTTP+JSON request, relative to the interface's URL. In 1.0 the
/// tenant precedes `path`, if there is one; in 0.3 `/v1` does, unless the URL ends with it.
fn interface_path(to: &InterfaceCandidate, path: &str) -> String {
    let path = match (to.version, path) {
        (ProtocolVersion::V03 | ProtocolVersion::V01, "/extendedAgentCard") => "/card",
        (_, path) => path,
    };
    match to.version {
        ProtocolVersion::V10 if to.tenant.is_empty() => path.to_owned(),
        ProtocolVersion::V10 => format!("/{}{path}", path_segment(&to.tenant)),
        // Some cards include `/v1` in the URL.
        _ if to.url.path().trim_end_matches('/').ends_with("/v1") => path.to_owned(),
        _ => format!("/v1{path}"),
    }
}

/// Reads the result from a response's body. With an `id` the body is the JSON-RPC response to that
/// request; otherwise it is an HTTP+JSON response.
pub(super) async fn read_result(
    response: ClientResponse,
    id: Option<&RequestId>,
    limits: &DecodeLimits,
) -> Result<Box<RawValue>, A2aClientError> {
    let (is_success, status) = (response.status().is_success(), response.status().as_u16());
    // Missing authentication or permission is reported by the HTTP status, whatever the body is.
    if status == 401 || status == 403 && id.is_some() {
        return Err(A2aClientError::HttpStatus(status));
    }
    if !is_json(&response) {
        return match is_success {
            // An operation without a result may have an empty response.
            true if id.is_none() && response.content_length() == Some(0) => {
                Ok(RawValue::NULL.to_owned())
            }
            true => Err(unexpected_media_type(&response)),
            false => Err(A2aClientError::HttpStatus(status)),
        };
    }
    let body = response.body(limits.body_bytes_max).await?;
    let read = match id {
        Some(id) => read_rpc_response(&body, id, limits),
        None => read_json(&body, limits),
    };
    match read {
        Ok(raw) if id.is_none() && !is_success => Err(error_from_body(&raw, status)),
        Err(A2aClientError::Protocol(_)) if !is_success => Err(A2aClientError::HttpStatus(status)),
        read => read,
    }
}

/// Returns the error for a response with an unexpected media type. The error contains the media
/// type if that is printable.
fn unexpected_media_type(response: &ClientResponse) -> A2aClientError {
    let kind = response.media_type();
    let is_plain =
        kind.len() <= 64 && kind.bytes().all(|b| b.is_ascii_graphic()) && !kind.is_empty();
    A2aClientError::Protocol(format!(
        "the agent answered with {}, not with A2A's JSON or event stream: check its URL",
        if is_plain { &kind } else { "no media type" }
    ))
}

/// Reads the result from the JSON-RPC response to the request `id`.
fn read_rpc_response(
    body: &[u8],
    id: &RequestId,
    limits: &DecodeLimits,
) -> Result<Box<RawValue>, A2aClientError> {
    let refused = |error: &dyn std::fmt::Display| {
        A2aClientError::Protocol(format!("the agent's answer {error}"))
    };
    let RpcMessage::Response(response) =
        decode(body, limits).map_err(|refusal| refused(&refusal))?
    else {
        return Err(A2aClientError::Protocol(
            "the agent answered with a JSON-RPC request, not with a response".into(),
        ));
    };
    // Some agents return a numeric id as a string.
    let is_ours = response
        .id
        .as_ref()
        .is_none_or(|theirs| theirs.as_json().trim_matches('"') == id.as_json());
    match response.outcome {
        _ if !is_ours => Err(A2aClientError::Protocol(
            "the agent answered with the id of another request: the agent has to be corrected"
                .into(),
        )),
        Ok(result) => Ok(result.to_owned()),
        Err(error) => Err(A2aClientError::Agent(RemoteAgentError::new(
            Dialect::read_error(&error),
            Some(error.code),
        ))),
    }
}

/// Reads the result from an event of a JSON-RPC stream. The event is a response to the request
/// `id`. A bare result, as some agents send it, is accepted too.
fn read_rpc_event(
    data: &[u8],
    id: &RequestId,
    limits: &DecodeLimits,
) -> Result<Box<RawValue>, A2aClientError> {
    let text = check_json(data, limits).map_err(|error| {
        A2aClientError::Protocol(format!(
            "an event of the agent's stream can't be read: {error}"
        ))
    })?;
    let no_object =
        || A2aClientError::Protocol("an event of the agent's stream isn't a JSON object".into());
    let raw: &RawValue = serde_json::from_str(text).map_err(|_| no_object())?;
    let event = RawObject::parse(raw).map_err(|_| no_object())?;
    match event.has("jsonrpc") || event.has("result") || event.has("error") {
        true => read_rpc_response(data, id, limits),
        false => Ok(raw.to_owned()),
    }
}

/// Parses a single JSON value. Fails if it exceeds the limits.
fn read_json(body: &[u8], limits: &DecodeLimits) -> Result<Box<RawValue>, A2aClientError> {
    let wrong = |error: &dyn std::fmt::Display| {
        A2aClientError::Protocol(format!("the agent's answer can't be read: {error}"))
    };
    let text = check_json(body, limits).map_err(|error| wrong(&error))?;
    RawValue::from_string(text.to_owned()).map_err(|_| wrong(&"not JSON"))
}

/// Reads the result from an event of an HTTP+JSON stream.
fn read_rest_event(data: &[u8], limits: &DecodeLimits) -> Result<Box<RawValue>, A2aClientError> {
    let raw = read_json(data, limits)?;
    match RawObject::parse(&raw) {
        Ok(event) if event.has("error") => Err(error_from_body(&raw, 500)),
        _ => Ok(raw),
    }
}

/// Reads an A2A error from the body of an HTTP+JSON response with the given status. Without one,
/// returns [`A2aClientError::HttpStatus`].
fn error_from_body(raw: &RawValue, status: u16) -> A2aClientError {
    let Some(error) = Dialect::read_http_error(status, raw) else {
        return A2aClientError::HttpStatus(status);
    };
    A2aClientError::Agent(RemoteAgentError::new(error, None))
}
