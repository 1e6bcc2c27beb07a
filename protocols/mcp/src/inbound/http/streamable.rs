//! POST: one message, or a batch where the session's revision has them.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderMap, HeaderValue};
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use callboard_message::Principal;
use callboard_rpc::serve::guard::{Refused, refused};
use callboard_rpc::serve::idle;
use callboard_rpc::serve::idle::Busy;
use callboard_rpc::serve::reply::event_stream;
use callboard_rpc::{Body, Incoming, Request, RpcError, decode, decode_body, encode_error};
use futures::FutureExt;
use serde_json::json;
use serde_json::value::to_raw_value;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::replay_buffer::{Kind, LogEvents, ReplayBuffer, Work};
use super::sessions::HttpSession;
use super::{
    Accepts, LAST_EVENT_ID, NO_SESSION, SESSION_ID, Server, Version, accepted, find_session, json_response,
    malformed_response, principal_of, read_body, refusal_response,
};
use crate::inbound::client::MessageSink;
use crate::inbound::legacy::batch;
use crate::inbound::modern;
use crate::inbound::modern::Field;
use crate::inbound::request::{OwnedRequest, is_modern as names_revision};
use crate::inbound::response::Answer;
use crate::wire::{Revision, code as mcp};

pub(crate) async fn post(request: HttpRequest, payload: Payload, server: Data<Server>) -> HttpResponse {
    let busy = idle::busy(&request);
    let answer = answer(&request, payload, &server, busy).await;
    answer.unwrap_or_else(refusal_response)
}

const NOT_ACCEPTABLE: Refused =
    refused(StatusCode::NOT_ACCEPTABLE, "`Accept` must name application/json or text/event-stream, better both");

async fn answer(
    request: &HttpRequest,
    payload: Payload,
    server: &Data<Server>,
    busy: Busy,
) -> Result<HttpResponse, Refused> {
    let principal = principal_of(request, server)?;
    let headers = request.headers();
    // Says first what is wrong with the content.
    let body = read_body(request, payload, server).await?;
    let accepts = Accepts::of(headers);
    if !accepts.json && !accepts.events {
        return Err(NOT_ACCEPTABLE);
    }
    let limits = &server.options.inbound.limits;
    let version = Version::of(headers);
    let exchange = Exchange { request, server, accepts, busy };
    // A session means nothing to the modern era.
    let session = match version.is_modern() {
        true => None,
        false => find_session(headers, &principal, server)?,
    };
    if let Some(session) = session.as_ref().filter(|s| s.session.revision() == Some(Revision::V2025_03_26)) {
        return match decode_body(&body, limits) {
            Ok(Body::One(message)) => exchange.legacy(message, Some(session.clone()), principal, version).await,
            Ok(Body::Batch(_)) => Box::pin(exchange.batch(body.freeze(), session.clone())).await,
            Err(refusal) => Ok(malformed_response(&refusal)),
        };
    }
    match decode(&body, limits) {
        Ok(message) if version.is_modern() || is_modern(&message) => {
            post_modern(exchange, message, principal, request).await
        }
        Ok(message) => exchange.legacy(message, session, principal, version).await,
        Err(refusal) => Ok(malformed_response(&refusal)),
    }
}

/// One POST on its way to an answer.
struct Exchange<'a> {
    request: &'a HttpRequest,
    server: &'a Data<Server>,
    accepts: Accepts,
    busy: Busy,
}

impl Exchange<'_> {
    async fn legacy(
        self,
        message: Incoming<'_>,
        session: Option<Arc<HttpSession>>,
        principal: Principal,
        version: Version<'_>,
    ) -> Result<HttpResponse, Refused> {
        if let Version::Unknown(wanted) = version {
            return Ok(unsupported(&message, wanted));
        }
        match (message, session) {
            (Incoming::Request(request), None) if request.method == "initialize" => {
                // Boxed, for it is rare: other requests carry no room for it.
                Box::pin(self.initialize(request, principal)).await
            }
            (_, None) => Err(NO_SESSION),
            (Incoming::Request(request), Some(session)) => {
                let log = session.new_stream(self.accepts.events);
                let (active, sink, request) = (session.busy(), log.clone(), request.into());
                let running = async move {
                    let body = active.0.session.request(request, sink).await;
                    Answer { status: 200, body }
                };
                self.legacy_work(running.boxed(), log, session).await
            }
            (Incoming::Notification(notification), Some(session)) => {
                session.session.notification(notification);
                Ok(accepted())
            }
            (Incoming::Response(response), Some(session)) => {
                session.session.response(response);
                Ok(accepted())
            }
        }
    }

    async fn initialize(self, request: Request<'_>, principal: Principal) -> Result<HttpResponse, Refused> {
        const FULL: Refused = refused(StatusCode::SERVICE_UNAVAILABLE, "there are too many sessions: try again later");
        if !self.server.sessions.has_room(&principal) {
            return Err(FULL);
        }
        let session = self.server.sessions.prepare(&self.server.endpoint, principal);
        let body = session.session.request(request.into(), session.unsolicited.clone()).await;
        let id = match session.session.revision() {
            Some(_) => Some(self.server.sessions.admit(session.clone()).ok_or(FULL)?),
            None => None,
        };
        let log = ReplayBuffer::new(0, Kind::Once, false, self.server.options.streams.limits);
        let mut response = self.whole(Answer { status: 200, body }, &log)?;
        if let Some(id) = id.and_then(|id| HeaderValue::try_from(id).ok()) {
            response.headers_mut().insert(SESSION_ID.clone(), id);
        }
        Ok(response)
    }

    async fn batch(self, body: bytes::Bytes, session: Arc<HttpSession>) -> Result<HttpResponse, Refused> {
        let log = session.new_stream(self.accepts.events);
        let (active, sink) = (session.busy(), log.clone() as Arc<dyn MessageSink>);
        let running = async move {
            // Read again, for the work may outlive the connection and then owns what it reads.
            let body = batch(&active.0.session, &body, &sink).await;
            Answer { status: if body.is_some() { 200 } else { 202 }, body }
        };
        self.legacy_work(running.boxed(), log, session).await
    }

    /// Answers at once where that is possible, else by a stream that can be resumed.
    async fn legacy_work(
        self,
        running: futures::future::BoxFuture<'static, Answer>,
        log: Arc<ReplayBuffer>,
        session: Arc<HttpSession>,
    ) -> Result<HttpResponse, Refused> {
        let mut work = Work::new(running, Some(log.clone()));
        if let Some(done) = self.before_stream(&mut work, &log, Some(self.server.options.streams.after)).await {
            return self.whole(done, &log);
        }
        let streams = &self.server.options.streams;
        let permits = match self.server.permits(Some(&session)) {
            Ok(permits) => permits,
            Err(refused) => {
                // A call that was refused must not go on.
                work.ends_here();
                return Err(refused);
            }
        };
        session.keep(&log);
        let polls = session.session.revision() >= Some(Revision::V2025_11_25);
        let first = polls.then(|| log.priming(streams.retry));
        let events = LogEvents::new(log.read(None).map_err(|_| BROKEN)?)
            .starting_with(first)
            .driving(work)
            .closing_after(streams.poll_after.filter(|_| polls));
        Ok(self.server.stream(self.request, events, (self.busy, permits, session.busy())))
    }

    /// The answer, if it comes before anything must be streamed.
    async fn before_stream(
        &self,
        work: &mut Work,
        log: &ReplayBuffer,
        patience: Option<std::time::Duration>,
    ) -> Option<Answer> {
        let streams = self.accepts.events;
        let mut late = std::pin::pin!(async {
            match patience {
                Some(patience) => sleep(patience).await,
                None => std::future::pending().await,
            }
        });
        poll_fn(|cx| {
            if let Poll::Ready(done) = Pin::new(&mut *work).poll(cx) {
                // What was sent before goes first.
                return Poll::Ready(Some(done)).map(|done| match log.poll_begun(cx) {
                    Poll::Ready(()) => {
                        log.finish(done.and_then(|done| done.body));
                        None
                    }
                    Poll::Pending => done,
                });
            }
            if streams && (log.poll_begun(cx).is_ready() || late.as_mut().poll(cx).is_ready()) {
                return Poll::Ready(None);
            }
            Poll::Pending
        })
        .await
    }

    /// An answer that needs no stream; as one event where the client reads nothing else.
    fn whole(self, done: Answer, log: &Arc<ReplayBuffer>) -> Result<HttpResponse, Refused> {
        match done.body {
            Some(body) if self.accepts.json => Ok(json_response(done.status, body)),
            Some(body) => {
                log.finish(Some(body));
                let held = (self.busy, self.server.permits(None)?);
                let reader = log.read(None).map_err(|_| BROKEN)?;
                Ok(self.server.stream(self.request, LogEvents::new(reader), held))
            }
            None if done.status == 202 => Ok(accepted()),
            // A request that was cancelled.
            None => Ok(event_stream().finish()),
        }
    }
}

/// A call that said more, before anybody could read it, than is kept.
const BROKEN: Refused = refused(StatusCode::INTERNAL_SERVER_ERROR, "the call said more than is kept for a reader");

/// The answer to a revision that isn't spoken here (2025-06-18, transports).
fn unsupported(message: &Incoming<'_>, wanted: &str) -> HttpResponse {
    const SHOWN_CHARS_MAX: usize = 40;
    let wanted: String = wanted.chars().take(SHOWN_CHARS_MAX).collect();
    let supported: Vec<&str> = Revision::ALL.iter().map(|revision| revision.as_str()).collect();
    let mut error = RpcError::new(mcp::UNSUPPORTED_VERSION, "that protocol version is not spoken here");
    error.data = to_raw_value(&json!({ "supported": supported, "requested": wanted })).ok();
    let id = match message {
        Incoming::Request(request) => Some(&request.id),
        _ => None,
    };
    let status = StatusCode::BAD_REQUEST.as_u16();
    json_response(status, encode_error(id, &error))
}

const METHOD_NOT_ALLOWED: Refused = refused(StatusCode::METHOD_NOT_ALLOWED, "messages are posted: use POST");

pub(crate) async fn get(request: HttpRequest, server: Data<Server>) -> HttpResponse {
    let busy = idle::busy(&request);
    open_stream(&request, &server, busy).unwrap_or_else(refusal_response)
}

fn open_stream(request: &HttpRequest, server: &Server, busy: Busy) -> Result<HttpResponse, Refused> {
    let principal = principal_of(request, server)?;
    let headers = request.headers();
    check_version(headers)?;
    if !Accepts::of(headers).events {
        return Err(refused(StatusCode::NOT_ACCEPTABLE, "`Accept` must name text/event-stream"));
    }
    let session = find_session(headers, &principal, server)?.ok_or(NO_SESSION)?;
    let gone = refused(StatusCode::BAD_REQUEST, "nothing can be resumed from that `Last-Event-ID`");
    let (log, after) = match headers.get(&LAST_EVENT_ID) {
        None => (session.unsolicited.clone(), None),
        Some(id) => {
            let (stream, event) = id.to_str().ok().and_then(event_id).ok_or(gone)?;
            (session.stream(stream).ok_or(gone)?, Some(event))
        }
    };
    let permits = server.permits(Some(&session))?;
    let reader = log.read(after).map_err(|_| gone)?;
    let streams = &server.options.streams;
    let polls = session.session.revision() >= Some(Revision::V2025_11_25);
    let first = (polls && after.is_none()).then(|| log.priming(streams.retry));
    let of_call = log.number() > 0 && polls;
    let events = LogEvents::new(reader).starting_with(first).closing_after(streams.poll_after.filter(|_| of_call));
    Ok(server.stream(request, events, (busy, permits, session.busy())))
}

/// `stream-event`, as it was sent.
fn event_id(text: &str) -> Option<(u64, u64)> {
    let (stream, event) = text.split_once('-')?;
    Some((stream.parse().ok()?, event.parse().ok()?))
}

pub(crate) async fn delete(request: HttpRequest, server: Data<Server>) -> HttpResponse {
    end_session(&request, &server).unwrap_or_else(refusal_response)
}

fn end_session(request: &HttpRequest, server: &Server) -> Result<HttpResponse, Refused> {
    let principal = principal_of(request, server)?;
    let headers = request.headers();
    check_version(headers)?;
    find_session(headers, &principal, server)?.ok_or(NO_SESSION)?;
    if let Some(id) = headers.get(&SESSION_ID).and_then(|id| id.to_str().ok()) {
        server.sessions.end(id);
    }
    Ok(HttpResponse::NoContent().finish())
}

pub(crate) async fn other_method(request: HttpRequest, server: Data<Server>) -> HttpResponse {
    refusal_response(principal_of(&request, &server).err().unwrap_or(METHOD_NOT_ALLOWED))
}

/// The modern era has neither GET nor DELETE.
fn check_version(headers: &HeaderMap) -> Result<(), Refused> {
    match Version::of(headers) {
        version if version.is_modern() => Err(METHOD_NOT_ALLOWED),
        Version::Unknown(_) => Err(refused(StatusCode::BAD_REQUEST, "that protocol version is not spoken here")),
        _ => Ok(()),
    }
}

/// Whether a message's `_meta` names a revision.
fn is_modern(message: &Incoming<'_>) -> bool {
    match message {
        Incoming::Request(request) => names_revision(request.params),
        Incoming::Notification(notification) => names_revision(notification.params),
        Incoming::Response(_) => false,
    }
}

async fn post_modern(
    exchange: Exchange<'_>,
    message: Incoming<'_>,
    principal: Principal,
    request: &HttpRequest,
) -> Result<HttpResponse, Refused> {
    let request_sent = match message {
        Incoming::Request(request) => OwnedRequest::from(request),
        Incoming::Notification(_) => return Ok(accepted()),
        Incoming::Response(_) => {
            let refused = modern::response_refused();
            return Ok(json_response(refused.status, refused.body.unwrap_or_default()));
        }
    };
    let endpoint = exchange.server.endpoint.clone();
    let field = |name: &str| field(request.headers(), name);
    if let Err(error) = modern::check_headers(&endpoint, field, &request_sent.read()) {
        return Ok(json_response(400, encode_error(Some(&request_sent.id), &error)));
    }
    let options = &exchange.server.options.streams;
    let log = ReplayBuffer::new(0, Kind::Once, exchange.accepts.events, options.limits);
    let sink = log.clone();
    let running = async move {
        modern::request(&endpoint, Arc::new(principal), request_sent, sink, CancellationToken::new()).await
    };
    let mut work = Work::new(running.boxed(), None);
    if let Some(done) = exchange.before_stream(&mut work, &log, None).await {
        return exchange.whole(done, &log);
    }
    let permits = exchange.server.permits(None)?;
    let reader = log.read(None).map_err(|_| BROKEN)?;
    Ok(exchange.server.stream(request, LogEvents::new(reader).driving(work), (exchange.busy, permits)))
}

/// A header by its name, in bytes.
fn field<'h>(headers: &'h HeaderMap, name: &str) -> Field<'h> {
    let mut values = headers.get_all(name);
    match (values.next(), values.next()) {
        (None, _) => Field::Missing,
        (Some(value), None) => Field::One(value.as_bytes()),
        _ => Field::Several,
    }
}
