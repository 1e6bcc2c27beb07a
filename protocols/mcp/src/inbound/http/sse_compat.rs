//! HTTP+SSE, the transport of 2024-11-05: everything for the client goes by one event stream, everything from it is
//! posted to the address that the stream names first. The end of the stream ends the session.

use std::collections::HashMap;
use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use callboard_rpc::serve::guard::{Refused, refused};
use callboard_rpc::serve::idle;
use callboard_rpc::{SseEvent, decode, encode_event};
use parking_lot::Mutex;
use uuid::Uuid;

use super::replay_buffer::{Kind, LogEvents, ReplayBuffer};
use super::{Accepts, Rejection, Server, accepted, malformed_response, principal_of, read_post};
use crate::inbound::client::MessageSink;
use crate::inbound::legacy::{Session, batch};
use crate::wire::Revision;

/// The streams that are open, by the names of their sessions.
#[derive(Default)]
pub(crate) struct SseSessions(Mutex<HashMap<String, SseSession>>);

#[derive(Clone)]
struct SseSession {
    session: Arc<Session>,
    log: Arc<ReplayBuffer>,
}

pub(crate) async fn get(
    request: HttpRequest,
    server: Data<Server>,
) -> Result<HttpResponse, Rejection> {
    const GONE: Refused = refused(StatusCode::INTERNAL_SERVER_ERROR, "the stream is gone");
    let busy = idle::busy(&request);
    let principal = principal_of(&request, &server)?;
    Accepts::check_events(request.headers())?;
    let permits = server.permits(None)?;
    let log = ReplayBuffer::new(0, Kind::Once, true, server.options.streams.limits);
    let session = Session::open(
        server.service.tasks.clone(),
        Arc::new(principal),
        log.clone(),
    );
    // 122 random bits, and the principal is checked besides.
    let name = Uuid::new_v4().simple().to_string();
    let folder = request.path().strip_suffix("sse").unwrap_or("/");
    let endpoint = SseEvent {
        event: Some("endpoint".into()),
        data: format!("{folder}messages?session={name}").into(),
        ..SseEvent::default()
    };
    let reader = log.read(None).ok_or(GONE)?;
    server
        .sse
        .0
        .lock()
        .insert(name.clone(), SseSession { session, log });
    let events = LogEvents::new(reader, Some(encode_event(&endpoint).into()), None, None);
    Ok(server.stream(
        &request,
        events,
        (
            busy,
            permits,
            Open {
                name,
                server: server.clone(),
            },
        ),
    ))
}

/// A session's stream; its end is the session's.
struct Open {
    name: String,
    server: Data<Server>,
}

impl Drop for Open {
    fn drop(&mut self) {
        let ended = self.server.sse.0.lock().remove(&self.name);
        if let Some(ended) = ended {
            ended.session.close();
        }
    }
}

pub(crate) async fn post(
    request: HttpRequest,
    payload: Payload,
    server: Data<Server>,
) -> Result<HttpResponse, Rejection> {
    const UNKNOWN: Refused = refused(
        StatusCode::NOT_FOUND,
        "no such session: open a stream first",
    );
    let _busy = idle::busy(&request);
    let (principal, body) = read_post(&request, payload, &server).await?;
    let name = request
        .query_string()
        .split('&')
        .find_map(|pair| pair.strip_prefix("session="));
    let found = name.and_then(|name| server.sse.0.lock().get(name).cloned());
    let SseSession { session, log } = found
        .filter(|found| *found.session.principal == principal)
        .ok_or(UNKNOWN)?;
    if session.revision() == Some(Revision::V2025_03_26)
        && body.trim_ascii_start().starts_with(b"[")
    {
        actix_web::rt::spawn(async move {
            let sink: Arc<dyn MessageSink> = log;
            if let Some(answer) = batch(&session, &body, &sink).await {
                sink.send(answer.into());
            }
        });
        return Ok(accepted());
    }
    match decode(&body, &server.options.inbound.limits) {
        Err(refusal) => return Ok(malformed_response(&refusal)),
        Ok(message) => {
            if let Some((id, request)) = session.hear(message.into()) {
                actix_web::rt::spawn(async move {
                    if let Some(answer) = session.request(id, request, log.clone()).await {
                        log.send(answer.into());
                    }
                });
            }
        }
    }
    Ok(accepted())
}
