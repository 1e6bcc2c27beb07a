//! HTTP+SSE, the transport of 2024-11-05: one event stream carries all messages to the client,
//! which posts its own to the URL in the first event. The end of the stream ends the session.

use std::collections::HashMap;
use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use callboard_rpc::serve::guard::{self, HttpRejection, JSON, http_rejection};
use callboard_rpc::serve::{buffers, idle_timeout};
use callboard_rpc::{SseEvent, decode, encode_event};
use futures::FutureExt;
use parking_lot::Mutex;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::replay_buffer::{ReplayBuffer, ReplayStream, StreamKind};
use super::{
    AcceptedTypes, JsonRpcRejection, ServerState, accepted_response, authenticate,
    malformed_response,
};
use crate::inbound::client_messages::MessageSink;
use crate::inbound::legacy::{LegacySession, answer_batch};
use crate::inbound::request::ClientMessage;
use crate::wire::Revision;

/// Open sessions of the HTTP+SSE transport (2024-11-05), by their random names.
#[derive(Default)]
pub(crate) struct SseSessions(Mutex<HashMap<String, SseSession>>);

#[derive(Clone)]
struct SseSession {
    session: Arc<LegacySession>,
    buffer: Arc<ReplayBuffer>,
    /// Running requests, whose responses the stream waits for when the server stops.
    running: TaskTracker,
}

pub(crate) async fn open_stream(
    request: HttpRequest,
    server: Data<ServerState>,
) -> Result<HttpResponse, JsonRpcRejection> {
    const GONE: HttpRejection = http_rejection(
        StatusCode::INTERNAL_SERVER_ERROR,
        "the event stream has ended: open another one",
    );
    let busy = idle_timeout::track_request(&request);
    let principal = authenticate(&request, &server).await?;
    AcceptedTypes::check_events(request.headers())?;
    let permits = server.acquire_stream_permits(&principal, None)?;
    let (limits, account) = (server.options.streams.limits, buffers::account_of(&request));
    let log = ReplayBuffer::new(0, StreamKind::Once, true, limits, account.as_ref());
    let session = LegacySession::open(
        server.service.tasks.clone(),
        Arc::new(principal),
        log.clone(),
    );
    // The name has 122 random bits, and the principal is checked as well.
    let name = Uuid::new_v4().simple().to_string();
    let path = request.path().trim_end_matches('/');
    let folder = path.strip_suffix("sse").unwrap_or("/");
    let endpoint = SseEvent {
        event: Some("endpoint".into()),
        data: format!("{folder}messages?session={name}").into(),
        ..SseEvent::default()
    };
    let reader = log.reader_after(None).ok_or(GONE)?;
    let running = TaskTracker::new();
    server.sse.0.lock().insert(
        name.clone(),
        SseSession {
            session,
            buffer: log,
            running: running.clone(),
        },
    );
    let stopping = server.service.closing.clone();
    let closes = async move {
        stopping.cancelled().await;
        running.close();
        running.wait().await;
    };
    let first = encode_event(&endpoint).into();
    let events = ReplayStream::new(reader, Some(first), None, Some(closes.boxed()));
    Ok(server.idle_stream_response(
        &request,
        events,
        (
            busy,
            permits,
            SseSessionGuard {
                name,
                server: server.clone(),
            },
        ),
    ))
}

/// Closes a session when its event stream is dropped.
struct SseSessionGuard {
    name: String,
    server: Data<ServerState>,
}

impl Drop for SseSessionGuard {
    fn drop(&mut self) {
        let ended = self.server.sse.0.lock().remove(&self.name);
        if let Some(ended) = ended {
            ended.session.close();
        }
    }
}

pub(crate) async fn post_message(
    request: HttpRequest,
    payload: Payload,
    server: Data<ServerState>,
) -> Result<HttpResponse, JsonRpcRejection> {
    const UNKNOWN: HttpRejection = http_rejection(
        StatusCode::NOT_FOUND,
        "there is no such session: open an event stream first",
    );
    let _busy = idle_timeout::track_request(&request);
    let principal = authenticate(&request, &server).await?;
    let (limits, body_timeout) = (&server.options.inbound.limits, server.options.body_timeout);
    let bytes_max = limits.body_bytes_max;
    let body = guard::read_json(&request, payload, &[JSON], bytes_max, body_timeout).await?;
    let name = request
        .query_string()
        .split('&')
        .find_map(|pair| pair.strip_prefix("session="));
    let found = name.and_then(|name| server.sse.0.lock().get(name).cloned());
    let SseSession {
        session,
        buffer: log,
        running,
    } = found
        .filter(|found| *found.session.principal == principal)
        .ok_or_else(|| JsonRpcRejection::of_message(UNKNOWN, &body, limits))?;
    if session.revision() == Some(Revision::V2025_03_26)
        && body.trim_ascii_start().starts_with(b"[")
    {
        running.spawn_local(async move {
            let sink: Arc<dyn MessageSink> = log;
            if let Some(answer) = answer_batch(&session, &body, &sink).await {
                sink.send(answer.into());
            }
        });
        return Ok(accepted_response());
    }
    match decode(&body, limits).map(ClientMessage::from) {
        Err(refusal) => return Ok(malformed_response(&refusal)),
        Ok(ClientMessage::Notification(notification)) => session.handle_notification(&notification),
        Ok(ClientMessage::Response(response)) => session.questions.handle_response(response),
        Ok(ClientMessage::Request(id, request)) => {
            running.spawn_local(async move {
                let answer = session.handle_request(id, request, log.clone()).await;
                if let Some(answer) = answer.body {
                    log.send(answer.into());
                }
            });
        }
    }
    Ok(accepted_response())
}
