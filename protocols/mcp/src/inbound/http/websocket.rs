//! WebSocket, which MCP never had: a text frame a message, both ways, one session a socket.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use actix_ws::{AggregatedMessage, CloseCode, CloseReason, Closed, ProtocolError};
use callboard_message::Principal;
use callboard_rpc::serve::guard::{Refused, refused};
use callboard_rpc::serve::idle::Busy;
use callboard_rpc::serve::websocket::Messages;
use callboard_rpc::serve::{Alive, COUNTS_NO_MORE, Permit, Standing, idle, websocket};
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;

use super::{Rejection, Server, principal_of, streamable};
use crate::inbound::options::{
    STDIO_DRAIN_DEFAULT, STDIO_QUEUE_BYTES_MAX_DEFAULT, STDIO_REQUESTS_MAX_DEFAULT,
};
use crate::inbound::stdio::{Pipe, Queued, Requests};

/// What a client offers that wants MCP.
const SUBPROTOCOL: &str = "mcp";

pub(crate) async fn get(
    request: HttpRequest,
    payload: Payload,
    server: Data<Server>,
) -> Result<HttpResponse, Rejection> {
    const NO_HANDSHAKE: Refused = refused(
        StatusCode::BAD_REQUEST,
        "the WebSocket handshake is not complete",
    );
    if !server.options.compat.websocket {
        return streamable::other_method(request, server).await;
    }
    let busy = idle::busy(&request);
    let principal = principal_of(&request, &server)?;
    let permits = server.permits(None)?;
    let bytes_max = server.options.inbound.limits.body_bytes_max;
    let opened = websocket::open(&request, payload, &[SUBPROTOCOL], bytes_max);
    let (response, socket, messages) = opened.map_err(|_| NO_HANDSHAKE)?;
    let standing = server.standing(&request);
    actix_web::rt::spawn(serve(
        server,
        principal,
        standing,
        socket,
        messages,
        (busy, permits),
    ));
    Ok(response)
}

/// Serves one socket until either side closes it, the client no longer shows that it is there, or its key counts no more.
async fn serve(
    server: Data<Server>,
    principal: Principal,
    mut standing: Standing,
    socket: actix_ws::Session,
    mut messages: Messages,
    _held: (Busy, Vec<Permit>),
) {
    let (pipe, queue) = Pipe::new(STDIO_QUEUE_BYTES_MAX_DEFAULT);
    let mut requests = Requests::new(
        server.service.clone(),
        Arc::new(principal),
        pipe.clone(),
        STDIO_REQUESTS_MAX_DEFAULT,
    );
    let mut alive = Alive::new(server.options.streams.keep_alive);
    let closing = {
        let mut writing = pin!(write_frames(queue, socket.clone()));
        loop {
            let close = |code: CloseCode| Some(CloseReason::from(code));
            tokio::select! {
                message = messages.recv(), if requests.have_room() => {
                    alive.seen();
                    match message {
                        Some(Ok(AggregatedMessage::Text(text))) => requests.begin(text.into_bytes()),
                        Some(Ok(AggregatedMessage::Ping(payload))) => {
                            // A client that fills the way with pings gets no answer to them.
                            let mut socket = socket.clone();
                            let _ = timeout(Duration::ZERO, socket.pong(&payload)).await;
                        }
                        Some(Ok(AggregatedMessage::Pong(_))) => {}
                        Some(Ok(AggregatedMessage::Binary(_))) => break close(CloseCode::Unsupported),
                        Some(Ok(AggregatedMessage::Close(_))) | None => break None,
                        Some(Err(ProtocolError::Overflow)) => break close(CloseCode::Size),
                        Some(Err(_)) => break close(CloseCode::Protocol),
                    }
                }
                () = requests.work() => {}
                _ = &mut writing => break None,
                () = standing.lost() => {
                    let description = Some(COUNTS_NO_MORE.to_owned());
                    break Some(CloseReason { code: CloseCode::Policy, description });
                }
                () = alive.tick() => {
                    if alive.is_over() {
                        break None;
                    }
                    let mut socket = socket.clone();
                    let _ = timeout(Duration::ZERO, socket.ping(b"")).await;
                }
            }
        }
    };
    requests.cancel_all();
    let _ = timeout(STDIO_DRAIN_DEFAULT, async {
        tokio::join!(requests.finish(), socket.close(closing))
    })
    .await;
}

/// Writes what the pipe is given, a frame each.
async fn write_frames(
    mut queue: Receiver<Queued>,
    mut socket: actix_ws::Session,
) -> Result<(), Closed> {
    while let Some(Queued::Message(message, _room)) = queue.recv().await {
        // What was put together here is UTF-8.
        if let Ok(text) = String::from_utf8(message.into()) {
            socket.text(text).await?;
        }
    }
    Ok(())
}
