//! GET: what no request caused, or the rest of a stream; DELETE: the end of a session.

use actix_web::http::StatusCode;
use actix_web::http::header::HeaderMap;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};

use super::admit::{self, Accepts, LAST_EVENT_ID, SESSION_ID, Version};
use super::body::LogEvents;
use super::{Server, reply};
use crate::wire::Revision;
use callboard_rpc::serve::guard::{Refused, refused};
use callboard_rpc::serve::idle::{self, Busy};

const METHOD: Refused = refused(StatusCode::METHOD_NOT_ALLOWED, "messages are posted: use POST");

pub(super) async fn get(request: HttpRequest, server: Data<Server>) -> HttpResponse {
    let busy = idle::busy(&request);
    open(&request, &server, busy).unwrap_or_else(reply::refuse)
}

fn open(request: &HttpRequest, server: &Server, busy: Busy) -> Result<HttpResponse, Refused> {
    let principal = admit::principal(request, server)?;
    let headers = request.headers();
    check_version(headers)?;
    if !Accepts::of(headers).events {
        return Err(refused(StatusCode::NOT_ACCEPTABLE, "`Accept` must name text/event-stream"));
    }
    let session = admit::session(headers, &principal, server)?.ok_or(admit::NO_SESSION)?;
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

pub(super) async fn delete(request: HttpRequest, server: Data<Server>) -> HttpResponse {
    end(&request, &server).unwrap_or_else(reply::refuse)
}

fn end(request: &HttpRequest, server: &Server) -> Result<HttpResponse, Refused> {
    let principal = admit::principal(request, server)?;
    let headers = request.headers();
    check_version(headers)?;
    admit::session(headers, &principal, server)?.ok_or(admit::NO_SESSION)?;
    if let Some(id) = headers.get(&SESSION_ID).and_then(|id| id.to_str().ok()) {
        server.sessions.end(id);
    }
    Ok(HttpResponse::NoContent().finish())
}

pub(super) async fn other(request: HttpRequest, server: Data<Server>) -> HttpResponse {
    reply::refuse(admit::principal(&request, &server).err().unwrap_or(METHOD))
}

/// The modern era has neither GET nor DELETE.
fn check_version(headers: &HeaderMap) -> Result<(), Refused> {
    match Version::of(headers) {
        version if version.is_modern() => Err(METHOD),
        Version::Unknown(_) => Err(refused(StatusCode::BAD_REQUEST, "that protocol version is not spoken here")),
        _ => Ok(()),
    }
}
