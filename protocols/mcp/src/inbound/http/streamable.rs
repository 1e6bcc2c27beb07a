//! Handlers of streamable HTTP: POST with one message or a batch, GET and DELETE.

use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use bytes::Bytes;
use callboard_message::{Principal, TraceContext};
use callboard_rpc::serve::guard::{self, HttpRejection, JSON, http_rejection};
use callboard_rpc::serve::http_response::event_stream_head;
use callboard_rpc::serve::idle_timeout::ActiveRequest;
use callboard_rpc::serve::{buffers, http_response, idle_timeout};
use callboard_rpc::{RequestId, RpcBody, RpcError, decode, decode_body, encode_error};
use futures::FutureExt;
use futures::future::{BoxFuture, OptionFuture};
use serde_json::json;
use serde_json::value::to_raw_value;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::replay_buffer::{ReplayBuffer, ReplayStream, RequestWork, StreamKind};
use super::sessions::HttpSession;
use super::{
    AcceptedTypes, JsonRpcRejection, LAST_EVENT_ID, MISSING_SESSION, SESSION_ID, ServerState,
    VersionHeader, accepted_response, answer_response, authenticate, malformed_response,
    share_rejection,
};
use crate::inbound::client_messages::MessageSink;
use crate::inbound::legacy::answer_batch;
use crate::inbound::modern;
use crate::inbound::modern::HeaderField;
use crate::inbound::request::{ClientMessage, McpMethod, McpRequest};
use crate::inbound::response::EncodedResponse;
use crate::wire::meta::TRACEPARENT;
use crate::wire::{Revision, code as mcp};

pub(crate) async fn post(
    request: HttpRequest,
    payload: Payload,
    server: Data<ServerState>,
) -> Result<HttpResponse, JsonRpcRejection> {
    let busy = idle_timeout::track_request(&request);
    let (limits, headers) = (&server.options.inbound.limits, request.headers());
    let principal = authenticate(&request, &server).await?;
    // Content errors are reported before others.
    let body = guard::read_json(
        &request,
        payload,
        &[JSON],
        limits.body_bytes_max,
        server.options.body_timeout,
    )
    .await?;
    let body = body.freeze();
    let exchange = PostExchange {
        request: &request,
        server: &server,
        principal: Arc::new(principal),
        accepts: AcceptedTypes::from_headers(headers),
        busy,
    };
    let responded = exchange.respond_to_body(&body).await;
    responded.map_err(|rejection| JsonRpcRejection::of_message(rejection, &body, limits))
}

/// A POST request that is being answered.
struct PostExchange<'a> {
    request: &'a HttpRequest,
    server: &'a Data<ServerState>,
    principal: Arc<Principal>,
    accepts: AcceptedTypes,
    busy: ActiveRequest,
}

impl PostExchange<'_> {
    /// Answers the message or batch in `body`, in the era that it belongs to.
    async fn respond_to_body(self, body: &Bytes) -> Result<HttpResponse, HttpRejection> {
        self.accepts.check_any()?;
        let (server, headers) = (self.server, self.request.headers());
        let limits = &server.options.inbound.limits;
        let version = VersionHeader::from_headers(headers);
        // The modern era ignores sessions.
        let session = match version.is_modern() {
            true => None,
            false => server.sessions.find(headers, &self.principal)?,
        };
        let has_batches = session
            .as_ref()
            .is_some_and(|s| s.session.revision() == Some(Revision::V2025_03_26));
        let decoded = match &session {
            Some(session) if has_batches => match decode_body(body, limits) {
                Ok(RpcBody::One(message)) => Ok(message),
                Ok(RpcBody::Batch(_)) => {
                    return Box::pin(self.respond_batch(body.clone(), session.clone())).await;
                }
                Err(refusal) => Err(refusal),
            },
            _ => decode(body, limits),
        };
        let mut message = match decoded {
            Ok(message) => ClientMessage::from(message),
            Err(refusal) => return Ok(malformed_response(&refusal)),
        };
        if let ClientMessage::Request(_, request) = &mut message {
            request.params.set_header_trace(trace_parent(headers));
        }
        if version.is_modern() || (!has_batches && message.is_modern()) {
            return self.respond_modern(message).await;
        }
        if let VersionHeader::Unknown(wanted) = version {
            return Ok(unsupported_version(&message, wanted));
        }
        match (session, message) {
            (None, ClientMessage::Request(id, request))
                if request.method == McpMethod::Initialize =>
            {
                // Boxed because it is rare, so that other requests don't carry its state.
                Box::pin(self.respond_initialize(id, request)).await
            }
            (None, _) => Err(MISSING_SESSION),
            (Some(session), ClientMessage::Request(id, request)) => {
                let log = session.new_stream(self.accepts.events);
                let (active, sink) = (session.mark_active(), log.clone());
                let running =
                    async move { active.0.session.handle_request(id, request, sink).await };
                self.respond(running.boxed(), log, Some(session)).await
            }
            (Some(session), ClientMessage::Notification(notification)) => {
                session.session.handle_notification(&notification);
                Ok(accepted_response())
            }
            (Some(session), ClientMessage::Response(response)) => {
                session.session.questions.handle_response(response);
                Ok(accepted_response())
            }
        }
    }

    async fn respond_initialize(
        self,
        id: RequestId,
        request: McpRequest,
    ) -> Result<HttpResponse, HttpRejection> {
        let server = self.server;
        let place = server.sessions.acquire_place(&self.principal);
        let place = place.map_err(|error| share_rejection("sessions", error))?;
        let account = buffers::account_of(self.request);
        let log = self.new_stream(false);
        let session =
            server
                .sessions
                .create_session(&server.service.tasks, self.principal.clone(), account);
        let opened = session.clone();
        let running = async move {
            let sink = opened.unsolicited.clone();
            opened.session.handle_request(id, request, sink).await
        };
        let mut response = self.respond(running.boxed(), log, None).await?;
        if session.session.revision().is_some() {
            let id = server.sessions.insert(session, place);
            if let Ok(id) = HeaderValue::try_from(id) {
                response.headers_mut().insert(SESSION_ID.clone(), id);
            }
        }
        Ok(response)
    }

    async fn respond_batch(
        self,
        body: Bytes,
        session: Arc<HttpSession>,
    ) -> Result<HttpResponse, HttpRejection> {
        let log = session.new_stream(self.accepts.events);
        let (active, sink) = (session.mark_active(), log.clone() as Arc<dyn MessageSink>);
        let running = async move {
            // Decoded again, because the execution may outlive the connection and must own its
            // input.
            let body = answer_batch(&active.0.session, &body, &sink).await;
            EncodedResponse {
                status: if body.is_some() {
                    StatusCode::OK
                } else {
                    StatusCode::ACCEPTED
                },
                body,
                // A refused entry doesn't refuse the others.
                needed_scope: None,
                retry_after_s: None,
            }
        };
        self.respond(running.boxed(), log, Some(session)).await
    }

    async fn respond_modern(
        self,
        message: ClientMessage<'_>,
    ) -> Result<HttpResponse, HttpRejection> {
        let (id, request) = match message {
            ClientMessage::Request(id, request) => (id, request),
            ClientMessage::Notification(_) => return Ok(accepted_response()),
            ClientMessage::Response(_) => return Ok(answer_response(modern::reject_response())),
        };
        let service = self.server.service.clone();
        let field = |name: &str| header_field(self.request.headers(), name);
        if let Err(error) = modern::check_headers(&service.tasks.endpoint, &field, &request) {
            return Ok(answer_response(modern::bad_request(&id, error)));
        }
        let log = self.new_stream(self.accepts.events);
        let (sink, principal) = (log.clone(), self.principal.clone());
        let running = async move {
            modern::handle_request(
                &service,
                principal,
                &id,
                request,
                sink,
                CancellationToken::new(),
            )
            .await
        };
        self.respond(running.boxed(), log, None).await
    }

    /// Creates the stream of a request without a session.
    fn new_stream(&self, readable: bool) -> Arc<ReplayBuffer> {
        let limits = self.server.options.streams.limits;
        let account = buffers::account_of(self.request);
        ReplayBuffer::new(0, StreamKind::Once, readable, limits, account.as_ref())
    }

    /// Responds with JSON; with status 403 and a challenge if the credential lacks a scope and its client
    /// can ask an issuer for another.
    fn respond_json(&self, answer: EncodedResponse) -> HttpResponse {
        let access = &self.server.options.access;
        let needed = answer.needed_scope.as_deref();
        let needed = needed.filter(|_| access.token_resource().is_some());
        let challenge =
            needed.and_then(|scope| guard::scope_challenge(self.request, access, scope));
        let mut response = answer_response(answer);
        if let Some(challenge) = challenge {
            *response.status_mut() = StatusCode::FORBIDDEN;
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        response
    }

    /// Responds with JSON if the result is ready before any other message, otherwise with an event
    /// stream. A request of a session continues if its connection is lost, and the client can
    /// resume its stream. Its result is also streamed if it takes longer than `stream_after`.
    async fn respond(
        self,
        running: BoxFuture<'static, EncodedResponse>,
        log: Arc<ReplayBuffer>,
        session: Option<Arc<HttpSession>>,
    ) -> Result<HttpResponse, HttpRejection> {
        let streams = &self.server.options.streams;
        let mut work = RequestWork {
            running: Some(running),
            answer_buffer: session.is_some().then(|| log.clone()),
        };
        let mut late = pin!(OptionFuture::from(
            session.is_some().then(|| sleep(streams.stream_after))
        ));
        let done = poll_fn(|cx| {
            if let Some(running) = &mut work.running
                && let Poll::Ready(done) = running.as_mut().poll(cx)
            {
                work.running = None;
                // Earlier messages come first.
                if log.poll_readable(cx).is_ready() {
                    log.finish(done.body);
                    return Poll::Ready(None);
                }
                return Poll::Ready(Some(done));
            }
            let is_late = session.is_some() && late.as_mut().poll(cx).is_ready();
            if self.accepts.events && (log.poll_readable(cx).is_ready() || is_late) {
                return Poll::Ready(None);
            }
            Poll::Pending
        })
        .await;
        let session = match done {
            None => session,
            Some(EncodedResponse {
                status: StatusCode::ACCEPTED,
                body: None,
                ..
            }) => return Ok(accepted_response()),
            // The request was cancelled.
            Some(EncodedResponse { body: None, .. }) => return Ok(event_stream_head().finish()),
            Some(answer) if self.accepts.json => return Ok(self.respond_json(answer)),
            // As one event, if the client accepts event streams only.
            Some(answer) => {
                log.finish(answer.body);
                None
            }
        };
        let permits = self
            .server
            .acquire_stream_permits(&self.principal, session.as_deref());
        let permits = match permits {
            Ok(permits) => permits,
            Err(refused) => {
                // A rejected call must not continue.
                work.answer_buffer = None;
                return Err(refused);
            }
        };
        let polls = session
            .as_ref()
            .is_some_and(|s| s.session.revision() >= Some(Revision::V2025_11_25));
        if let Some(session) = &session {
            session.retain_stream(&log);
        }
        let first = polls.then(|| log.priming_event(streams.retry));
        let close_after = streams.close_after.filter(|_| polls);
        let closes = close_after.map(|close_after| sleep(close_after).boxed());
        let reader = log.reader_after(None).ok_or(STREAM_OVERFLOW)?;
        let events = ReplayStream::new(reader, first, Some(work), closes);
        let active = session.map(|session| session.mark_active());
        Ok(self
            .server
            .event_stream_response(self.request, events, (self.busy, permits, active)))
    }
}

/// Rejection of a call whose messages overflowed the buffer before they could be read.
const STREAM_OVERFLOW: HttpRejection = http_rejection(
    StatusCode::INTERNAL_SERVER_ERROR,
    "the messages of the call overflowed the buffer: call again, and read them while the call runs",
);

/// Returns the response to a request that names an unsupported revision (2025-06-18, transports).
fn unsupported_version(message: &ClientMessage<'_>, wanted: &str) -> HttpResponse {
    const SHOWN_CHARS_MAX: usize = 40;
    let wanted: String = wanted.chars().take(SHOWN_CHARS_MAX).collect();
    let supported: Vec<&str> = Revision::ALL
        .iter()
        .map(|revision| revision.as_str())
        .collect();
    let why = format!(
        "unsupported protocol version: this server speaks {}",
        supported.join(", ")
    );
    let mut error = RpcError::new(mcp::UNSUPPORTED_VERSION, why);
    error.data = to_raw_value(&json!({ "supported": supported, "requested": wanted })).ok();
    let id = match message {
        ClientMessage::Request(id, _) => Some(id),
        _ => None,
    };
    http_response::json_response(StatusCode::BAD_REQUEST, JSON, encode_error(id, &error))
}

const METHOD_NOT_ALLOWED: HttpRejection = http_rejection(
    StatusCode::METHOD_NOT_ALLOWED,
    "messages are posted: use POST",
);

pub(crate) async fn get(
    request: HttpRequest,
    server: Data<ServerState>,
) -> Result<HttpResponse, JsonRpcRejection> {
    const GONE: HttpRejection = http_rejection(
        StatusCode::BAD_REQUEST,
        "no stream can be resumed from that `Last-Event-ID`: it is unknown, or too old",
    );
    let busy = idle_timeout::track_request(&request);
    let principal = authenticate(&request, &server).await?;
    let headers = request.headers();
    check_version(headers)?;
    AcceptedTypes::check_events(headers)?;
    let session = server
        .sessions
        .find(headers, &principal)?
        .ok_or(MISSING_SESSION)?;
    let (log, after) = match headers.get(&LAST_EVENT_ID) {
        None => (session.unsolicited.clone(), None),
        Some(id) => {
            let (stream, event) = id.to_str().ok().and_then(parse_event_id).ok_or(GONE)?;
            (session.stream(stream).ok_or(GONE)?, Some(event))
        }
    };
    let permits = server.acquire_stream_permits(&principal, Some(&session))?;
    let reader = log.reader_after(after).ok_or(GONE)?;
    let streams = &server.options.streams;
    let polls = session.session.revision() >= Some(Revision::V2025_11_25);
    let first = (polls && after.is_none()).then(|| log.priming_event(streams.retry));
    let of_call = log.number > 0;
    let (stopping, close_after) = (
        server.service.closing.clone(),
        streams.close_after.filter(|_| of_call && polls),
    );
    let closes = async move {
        let late = OptionFuture::from(close_after.map(sleep));
        tokio::select! {
            Some(()) = late => {}
            // A running call is waited for; it ends its stream.
            () = stopping.cancelled(), if !of_call => {}
            else => pending().await,
        }
    };
    let events = ReplayStream::new(reader, first, None, Some(closes.boxed()));
    let held = (busy, permits, session.mark_active());
    Ok(server.idle_stream_response(&request, events, held))
}

/// Parses an event id of the form `stream number-event number`.
fn parse_event_id(text: &str) -> Option<(u64, u64)> {
    let (stream, event) = text.split_once('-')?;
    Some((stream.parse().ok()?, event.parse().ok()?))
}

pub(crate) async fn delete(
    request: HttpRequest,
    server: Data<ServerState>,
) -> Result<HttpResponse, JsonRpcRejection> {
    let principal = authenticate(&request, &server).await?;
    let headers = request.headers();
    check_version(headers)?;
    server
        .sessions
        .find(headers, &principal)?
        .ok_or(MISSING_SESSION)?;
    if let Some(id) = headers.get(&SESSION_ID).and_then(|id| id.to_str().ok()) {
        server.sessions.end(id);
    }
    Ok(HttpResponse::NoContent().finish())
}

pub(crate) async fn other_method(
    request: HttpRequest,
    server: Data<ServerState>,
) -> Result<HttpResponse, JsonRpcRejection> {
    authenticate(&request, &server).await?;
    Err(METHOD_NOT_ALLOWED.into())
}

/// Rejects a GET or DELETE that names an unsupported revision, or one of the modern era, which has
/// neither method.
fn check_version(headers: &HeaderMap) -> Result<(), HttpRejection> {
    match VersionHeader::from_headers(headers) {
        version if version.is_modern() => Err(METHOD_NOT_ALLOWED),
        VersionHeader::Unknown(_) => Err(http_rejection(
            StatusCode::BAD_REQUEST,
            "unsupported protocol version: send the one that `initialize` returned",
        )),
        _ => Ok(()),
    }
}

/// Returns the trace context of a request's header; `None` if there is none, several, or an unreadable one.
fn trace_parent(headers: &HeaderMap) -> Option<TraceContext> {
    let HeaderField::One(parent) = header_field(headers, TRACEPARENT) else {
        return None;
    };
    std::str::from_utf8(parent).ok()?.parse().ok()
}

fn header_field<'h>(headers: &'h HeaderMap, name: &str) -> HeaderField<'h> {
    let mut values = headers.get_all(name);
    match (values.next(), values.next()) {
        (None, _) => HeaderField::Missing,
        (Some(value), None) => HeaderField::One(value.as_bytes()),
        _ => HeaderField::Several,
    }
}
