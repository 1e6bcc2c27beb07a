//! POST: one message, or a batch where the session's revision has them.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderMap, HeaderValue};
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use callboard_message::Principal;
use callboard_rpc::serve::guard::{JSON, Refused, refused};
use callboard_rpc::serve::idle::Busy;
use callboard_rpc::serve::reply::event_stream;
use callboard_rpc::serve::{idle, reply};
use callboard_rpc::{Body, Id, RpcError, decode, decode_body, encode_error};
use futures::FutureExt;
use futures::future::{BoxFuture, OptionFuture};
use serde_json::json;
use serde_json::value::to_raw_value;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::replay_buffer::{Kind, LogEvents, ReplayBuffer, Work};
use super::sessions::HttpSession;
use super::{
    Accepts, LAST_EVENT_ID, NO_SESSION, Rejection, SESSION_ID, Server, Version, accepted,
    answer_response, find_session, malformed_response, principal_of, read_post,
};
use crate::inbound::client::MessageSink;
use crate::inbound::legacy::batch;
use crate::inbound::modern;
use crate::inbound::modern::Field;
use crate::inbound::request::{Message, Method, Request};
use crate::inbound::response::Answer;
use crate::wire::{Revision, code as mcp};

const NOT_ACCEPTABLE: Refused = refused(
    StatusCode::NOT_ACCEPTABLE,
    "`Accept` must name application/json or text/event-stream, better both",
);

pub(crate) async fn post(
    request: HttpRequest,
    payload: Payload,
    server: Data<Server>,
) -> Result<HttpResponse, Rejection> {
    let busy = idle::busy(&request);
    // Says first what is wrong with the content.
    let (principal, body) = read_post(&request, payload, &server).await?;
    let (limits, headers) = (&server.options.inbound.limits, request.headers());
    let accepts = Accepts::of(headers);
    if !accepts.json && !accepts.events {
        return Err(NOT_ACCEPTABLE.into());
    }
    let version = Version::of(headers);
    // A session means nothing to the modern era.
    let session = match version.is_modern() {
        true => None,
        false => find_session(headers, &principal, &server)?,
    };
    let exchange = Exchange {
        request: &request,
        server: &server,
        accepts,
        busy,
    };
    let has_batches = session
        .as_ref()
        .is_some_and(|s| s.session.revision() == Some(Revision::V2025_03_26));
    let decoded = match &session {
        Some(session) if has_batches => match decode_body(&body, limits) {
            Ok(Body::One(message)) => Ok(message),
            Ok(Body::Batch(_)) => {
                return Ok(Box::pin(exchange.batch(body.freeze(), session.clone())).await?);
            }
            Err(refusal) => Err(refusal),
        },
        _ => decode(&body, limits),
    };
    let message = match decoded {
        Ok(message) => Message::from(message),
        Err(refusal) => return Ok(malformed_response(&refusal)),
    };
    if version.is_modern() || (!has_batches && message.is_modern()) {
        return match message {
            Message::Request(id, request) => Ok(exchange.modern(id, request, principal).await?),
            Message::Notification(_) => Ok(accepted()),
            Message::Response(_) => Ok(answer_response(modern::response_refused())),
        };
    }
    if let Version::Unknown(wanted) = version {
        return Ok(unsupported(&message, wanted));
    }
    match (session, message) {
        (None, Message::Request(id, request)) if request.method == Method::Initialize => {
            // Boxed, for it is rare: other requests carry no room for it.
            Ok(Box::pin(exchange.initialize(id, request, principal)).await?)
        }
        (None, _) => Err(NO_SESSION.into()),
        (Some(session), message) => match session.session.hear(message) {
            None => Ok(accepted()),
            Some((id, request)) => {
                let log = session.new_stream(accepts.events);
                let (active, sink) = (session.busy(), log.clone());
                let running =
                    async move { Answer::ok(active.0.session.request(id, request, sink).await) };
                Ok(exchange
                    .respond(running.boxed(), log, Some(session))
                    .await?)
            }
        },
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
    async fn initialize(
        self,
        id: Id,
        request: Request,
        principal: Principal,
    ) -> Result<HttpResponse, Refused> {
        const FULL: Refused = refused(
            StatusCode::SERVICE_UNAVAILABLE,
            "there are too many sessions: try again later",
        );
        let server = self.server;
        if !server.sessions.has_room(&principal) {
            return Err(FULL);
        }
        let session = server.sessions.prepare(&server.service.tasks, principal);
        let opened = session.clone();
        let running = async move {
            Answer::ok(
                opened
                    .session
                    .request(id, request, opened.unsolicited.clone())
                    .await,
            )
        };
        let log = ReplayBuffer::new(0, Kind::Once, false, server.options.streams.limits);
        let mut response = self.respond(running.boxed(), log, None).await?;
        if session.session.revision().is_some() {
            let id = server.sessions.admit(session).ok_or(FULL)?;
            if let Ok(id) = HeaderValue::try_from(id) {
                response.headers_mut().insert(SESSION_ID.clone(), id);
            }
        }
        Ok(response)
    }

    async fn batch(
        self,
        body: bytes::Bytes,
        session: Arc<HttpSession>,
    ) -> Result<HttpResponse, Refused> {
        let log = session.new_stream(self.accepts.events);
        let (active, sink) = (session.busy(), log.clone() as Arc<dyn MessageSink>);
        let running = async move {
            // Read again, for the work may outlive the connection and then owns what it reads.
            let body = batch(&active.0.session, &body, &sink).await;
            Answer {
                status: if body.is_some() {
                    StatusCode::OK
                } else {
                    StatusCode::ACCEPTED
                },
                body,
            }
        };
        self.respond(running.boxed(), log, Some(session)).await
    }

    async fn modern(
        self,
        id: Id,
        request: Request,
        principal: Principal,
    ) -> Result<HttpResponse, Refused> {
        let service = self.server.service.clone();
        let field = |name: &str| field(self.request.headers(), name);
        if let Err(error) = modern::check_headers(&service.tasks.endpoint, &field, &request) {
            return Ok(answer_response(modern::bad_request(&id, error)));
        }
        let limits = self.server.options.streams.limits;
        let log = ReplayBuffer::new(0, Kind::Once, self.accepts.events, limits);
        let sink = log.clone();
        let running = async move {
            modern::request(
                &service,
                Arc::new(principal),
                &id,
                request,
                sink,
                CancellationToken::new(),
            )
            .await
        };
        self.respond(running.boxed(), log, None).await
    }

    /// Answers in one piece where the answer comes before anything must be streamed, else by a stream. In a session the work
    /// outlives the connection, a late answer is a stream too, and streams can be resumed.
    async fn respond(
        self,
        running: BoxFuture<'static, Answer>,
        log: Arc<ReplayBuffer>,
        session: Option<Arc<HttpSession>>,
    ) -> Result<HttpResponse, Refused> {
        let streams = &self.server.options.streams;
        let mut work = Work::new(running, session.is_some().then(|| log.clone()));
        let mut late = pin!(OptionFuture::from(
            session.is_some().then(|| sleep(streams.after))
        ));
        let done = poll_fn(|cx| {
            if let Poll::Ready(done) = Pin::new(&mut work).poll(cx) {
                // What was sent before goes first.
                if log.poll_begun(cx).is_ready() {
                    log.finish(done.body);
                    return Poll::Ready(None);
                }
                return Poll::Ready(Some(done));
            }
            let is_late = session.is_some() && late.as_mut().poll(cx).is_ready();
            if self.accepts.events && (log.poll_begun(cx).is_ready() || is_late) {
                return Poll::Ready(None);
            }
            Poll::Pending
        })
        .await;
        let session = match done {
            None => session,
            Some(Answer {
                status: StatusCode::ACCEPTED,
                body: None,
            }) => return Ok(accepted()),
            // A request that was cancelled.
            Some(Answer { body: None, .. }) => return Ok(event_stream().finish()),
            Some(answer) if self.accepts.json => return Ok(answer_response(answer)),
            // As one event where the client reads nothing else.
            Some(answer) => {
                log.finish(answer.body);
                None
            }
        };
        let permits = match self.server.permits(session.as_deref()) {
            Ok(permits) => permits,
            Err(refused) => {
                // A call that was refused must not go on.
                work.ends_here();
                return Err(refused);
            }
        };
        let polls = session
            .as_ref()
            .is_some_and(|s| s.session.revision() >= Some(Revision::V2025_11_25));
        if let Some(session) = &session {
            session.keep(&log);
        }
        let first = polls.then(|| log.priming(streams.retry));
        let closes = streams.poll_after.filter(|_| polls);
        let reader = log.read(None).ok_or(BROKEN)?;
        let events = LogEvents::new(reader, first, Some(work), closes);
        let active = session.map(|session| session.busy());
        Ok(self
            .server
            .stream(self.request, events, (self.busy, permits, active)))
    }
}

/// A call that said more, before anybody could read it, than is kept.
const BROKEN: Refused = refused(
    StatusCode::INTERNAL_SERVER_ERROR,
    "the call said more than is kept for a reader",
);

/// The answer to a revision that isn't spoken here (2025-06-18, transports).
fn unsupported(message: &Message<'_>, wanted: &str) -> HttpResponse {
    const SHOWN_CHARS_MAX: usize = 40;
    let wanted: String = wanted.chars().take(SHOWN_CHARS_MAX).collect();
    let supported: Vec<&str> = Revision::ALL
        .iter()
        .map(|revision| revision.as_str())
        .collect();
    let mut error = RpcError::new(
        mcp::UNSUPPORTED_VERSION,
        "that protocol version is not spoken here",
    );
    error.data = to_raw_value(&json!({ "supported": supported, "requested": wanted })).ok();
    let id = match message {
        Message::Request(id, _) => Some(id),
        _ => None,
    };
    reply::json(StatusCode::BAD_REQUEST, JSON, encode_error(id, &error))
}

const METHOD_NOT_ALLOWED: Refused = refused(
    StatusCode::METHOD_NOT_ALLOWED,
    "messages are posted: use POST",
);

pub(crate) async fn get(
    request: HttpRequest,
    server: Data<Server>,
) -> Result<HttpResponse, Rejection> {
    const GONE: Refused = refused(
        StatusCode::BAD_REQUEST,
        "nothing can be resumed from that `Last-Event-ID`",
    );
    let busy = idle::busy(&request);
    let principal = principal_of(&request, &server)?;
    let headers = request.headers();
    check_version(headers)?;
    Accepts::check_events(headers)?;
    let session = find_session(headers, &principal, &server)?.ok_or(NO_SESSION)?;
    let (log, after) = match headers.get(&LAST_EVENT_ID) {
        None => (session.unsolicited.clone(), None),
        Some(id) => {
            let (stream, event) = id.to_str().ok().and_then(event_id).ok_or(GONE)?;
            (session.stream(stream).ok_or(GONE)?, Some(event))
        }
    };
    let permits = server.permits(Some(&session))?;
    let reader = log.read(after).ok_or(GONE)?;
    let streams = &server.options.streams;
    let polls = session.session.revision() >= Some(Revision::V2025_11_25);
    let first = (polls && after.is_none()).then(|| log.priming(streams.retry));
    let of_call = log.number > 0 && polls;
    let events = LogEvents::new(reader, first, None, streams.poll_after.filter(|_| of_call));
    Ok(server.stream(&request, events, (busy, permits, session.busy())))
}

/// `stream-event`, as it was sent.
fn event_id(text: &str) -> Option<(u64, u64)> {
    let (stream, event) = text.split_once('-')?;
    Some((stream.parse().ok()?, event.parse().ok()?))
}

pub(crate) async fn delete(
    request: HttpRequest,
    server: Data<Server>,
) -> Result<HttpResponse, Rejection> {
    let principal = principal_of(&request, &server)?;
    let headers = request.headers();
    check_version(headers)?;
    find_session(headers, &principal, &server)?.ok_or(NO_SESSION)?;
    if let Some(id) = headers.get(&SESSION_ID).and_then(|id| id.to_str().ok()) {
        server.sessions.end(id);
    }
    Ok(HttpResponse::NoContent().finish())
}

pub(crate) async fn other_method(
    request: HttpRequest,
    server: Data<Server>,
) -> Result<HttpResponse, Rejection> {
    principal_of(&request, &server)?;
    Err(METHOD_NOT_ALLOWED.into())
}

/// The modern era has neither GET nor DELETE.
fn check_version(headers: &HeaderMap) -> Result<(), Refused> {
    match Version::of(headers) {
        version if version.is_modern() => Err(METHOD_NOT_ALLOWED),
        Version::Unknown(_) => Err(refused(
            StatusCode::BAD_REQUEST,
            "that protocol version is not spoken here",
        )),
        _ => Ok(()),
    }
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
