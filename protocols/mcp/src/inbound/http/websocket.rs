//! WebSocket transport, which no revision of MCP has: one message per text frame, one session per
//! socket.

use std::pin::pin;
use std::sync::Arc;

use actix_web::http::StatusCode;
use actix_web::web::{Bytes, Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use actix_ws::{AggregatedMessage, CloseCode, CloseReason, Closed, Item, ProtocolError};
use callboard_message::Principal;
use callboard_rpc::serve::guard::{HttpRejection, http_rejection};
use callboard_rpc::serve::idle_timeout::ActiveRequest;
use callboard_rpc::serve::websocket::{
    AcceptedWebSocket, WebSocketError, WebSocketReader, WebSocketSender,
};
use callboard_rpc::serve::{
    CREDENTIAL_ENDED_MESSAGE, CredentialWatch, HeartbeatMonitor, buffers, idle_timeout, websocket,
};
use callboard_rpc::{BufferAccount, RpcError};
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::{JsonRpcRejection, ServerState, StreamPermits, authenticate, streamable};
use crate::inbound::options::{
    STDIO_DRAIN_TIMEOUT_DEFAULT, STDIO_QUEUE_BYTES_MAX_DEFAULT, STDIO_REQUESTS_MAX_DEFAULT,
};
use crate::inbound::stdio::{OutgoingQueue, QueuedMessage, RequestRunner};
use crate::wire::code as mcp;

/// WebSocket subprotocol that a client must offer.
const SUBPROTOCOL: &str = "mcp";
/// Maximum size of a frame to the client, in bytes. A larger message has several. The connection
/// holds up to 32 frames that the client hasn't read.
const FRAME_BYTES_MAX: usize = 16 * 1024;

pub(crate) async fn upgrade(
    request: HttpRequest,
    payload: Payload,
    server: Data<ServerState>,
) -> Result<HttpResponse, JsonRpcRejection> {
    const NO_HANDSHAKE: HttpRejection = http_rejection(
        StatusCode::BAD_REQUEST,
        "the WebSocket handshake is not complete: send `Upgrade`, `Sec-WebSocket-Key` and `Sec-WebSocket-Version: 13`",
    );
    if !server.options.compat.websocket {
        return streamable::other_method(request, server).await;
    }
    let busy = idle_timeout::track_request(&request);
    let principal = authenticate(&request, &server).await?;
    let permits = server.acquire_stream_permits(&principal, None)?;
    let bytes_max = server.options.inbound.limits.body_bytes_max;
    let opened = websocket::accept_handshake(&request, payload, &[SUBPROTOCOL], bytes_max);
    let AcceptedWebSocket {
        response,
        sender,
        messages,
    } = opened.map_err(|_| NO_HANDSHAKE)?;
    let account = buffers::account_of(&request);
    let standing = server.credential_watch(&request);
    let stream = server.idle_streams.token();
    actix_web::rt::spawn(serve_socket(
        server,
        (principal, account),
        standing,
        (sender, messages),
        (busy, permits, stream),
    ));
    Ok(response)
}

/// Serves one WebSocket until either side closes it, its heartbeat fails, or its credential is
/// revoked.
async fn serve_socket(
    server: Data<ServerState>,
    (principal, account): (Principal, Option<BufferAccount>),
    mut standing: CredentialWatch,
    (sender, mut messages): (WebSocketSender, WebSocketReader),
    _held: (ActiveRequest, StreamPermits, TaskTrackerToken),
) {
    let (pipe, queue) = OutgoingQueue::new(STDIO_QUEUE_BYTES_MAX_DEFAULT, account.as_ref());
    let mut requests = RequestRunner::new(
        server.service.clone(),
        Arc::new(principal),
        pipe.clone(),
        STDIO_REQUESTS_MAX_DEFAULT,
        account,
    );
    let mut alive = HeartbeatMonitor::new(server.options.streams.keep_alive);
    let closing = {
        let mut writing = pin!(write_frames(queue, &pipe, sender.clone()));
        let stopping = &server.service.closing;
        loop {
            if stopping.is_cancelled() && requests.is_idle() {
                pipe.end();
                let _ = timeout(STDIO_DRAIN_TIMEOUT_DEFAULT, &mut writing).await;
                break Some(CloseReason::from(CloseCode::Away));
            }
            let close = |code: CloseCode| Some(CloseReason::from(code));
            tokio::select! {
                message = messages.recv(), if requests.has_capacity() => {
                    alive.record_activity();
                    match message {
                        Some(Ok(AggregatedMessage::Text(text))) => requests.handle_line(text.into_bytes()),
                        Some(Ok(AggregatedMessage::Ping(payload))) => {
                            sender.clone().try_pong(&payload).await;
                        }
                        Some(Ok(AggregatedMessage::Pong(_))) => {}
                        Some(Ok(AggregatedMessage::Binary(_))) => break close(CloseCode::Unsupported),
                        Some(Ok(AggregatedMessage::Close(_))) | None => break None,
                        Some(Err(WebSocketError::Protocol(ProtocolError::Overflow))) => break close(CloseCode::Size),
                        Some(Err(WebSocketError::Full(full))) => {
                            requests.reject(None, &RpcError::new(mcp::OVERLOADED, full.to_string()));
                            pipe.end();
                            let _ = timeout(STDIO_DRAIN_TIMEOUT_DEFAULT, &mut writing).await;
                            break close(CloseCode::Again);
                        }
                        Some(Err(_)) => break close(CloseCode::Protocol),
                    }
                }
                () = requests.run_next() => {}
                // Requests are answered first.
                () = stopping.cancelled(), if !stopping.is_cancelled() => {}
                _ = &mut writing => break None,
                () = pipe.closed() => break None,
                () = standing.wait_revoked() => {
                    let description = Some(CREDENTIAL_ENDED_MESSAGE.to_owned());
                    break Some(CloseReason { code: CloseCode::Policy, description });
                }
                () = alive.tick() => {
                    if alive.is_dead() {
                        break None;
                    }
                    sender.clone().try_ping().await;
                }
            }
        }
    };
    requests.cancel_all();
    let _ = timeout(STDIO_DRAIN_TIMEOUT_DEFAULT, async {
        tokio::join!(requests.wait_finished(), sender.close(closing))
    })
    .await;
}

/// Writes queued messages to the WebSocket. A message has its room in the queue until its last
/// frame is accepted. From then on, its frames count until the connection takes them.
async fn write_frames(
    mut queue: Receiver<QueuedMessage>,
    pipe: &OutgoingQueue,
    mut sender: WebSocketSender,
) -> Result<(), Closed> {
    loop {
        let (message, room) = tokio::select! {
            queued = queue.recv() => match queued {
                Some(QueuedMessage::Message(message, room)) => (message, room),
                Some(QueuedMessage::End) | None => return Ok(()),
            },
            () = sender.wait_taken() => {
                pipe.count_written(sender.untaken_bytes(), None);
                continue;
            }
        };
        if message.len() <= FRAME_BYTES_MAX {
            // Encoded messages are UTF-8.
            if let Ok(text) = String::from_utf8(message.into()) {
                sender.text(text).await?;
            }
        } else {
            send_in_frames(message, &mut sender).await?;
        }
        pipe.count_written(sender.untaken_bytes(), Some(room));
    }
}

/// Sends a message that is too large for one frame.
async fn send_in_frames(mut message: Bytes, sender: &mut WebSocketSender) -> Result<(), Closed> {
    let mut to_item: fn(Bytes) -> Item = Item::FirstText;
    while message.len() > FRAME_BYTES_MAX {
        let frame = message.split_to(FRAME_BYTES_MAX);
        sender.continuation(to_item(frame)).await?;
        to_item = Item::Continue;
    }
    sender.continuation(Item::Last(message)).await
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::Pin;

    use actix_web::FromRequest;
    use actix_web::body::MessageBody;
    use actix_web::test::TestRequest;
    use callboard_rpc::{BufferBudget, BufferLimits};
    use futures::FutureExt;

    use super::*;
    use crate::inbound::client_messages::MessageSink;

    /// Goal: frames that the connection holds for a client that doesn't read count, and no longer
    /// than that. Method: a message of several frames and a small one, before and after the
    /// connection takes them.
    #[tokio::test]
    async fn frames_count_until_they_are_taken() {
        const LARGE: usize = 5 * FRAME_BYTES_MAX;
        const SMALL: usize = FRAME_BYTES_MAX;
        let budget = BufferBudget::new(BufferLimits::default());
        let account = budget.listener().account(budget.owner(None, None));
        let (request, mut payload) = TestRequest::default()
            .insert_header(("upgrade", "websocket"))
            .insert_header(("connection", "upgrade"))
            .insert_header(("sec-websocket-version", "13"))
            .insert_header(("sec-websocket-key", "x3JJHMbDL1EzLkh9GBhXDw=="))
            .to_http_parts();
        let payload = Payload::from_request(&request, &mut payload).await.unwrap();
        let opened = websocket::accept_handshake(&request, payload, &[], 1).unwrap();
        let (pipe, queue) = OutgoingQueue::new(STDIO_QUEUE_BYTES_MAX_DEFAULT, Some(&account));
        let mut writing = pin!(write_frames(queue, &pipe, opened.sender));
        for (bytes, all) in [(LARGE, LARGE), (SMALL, LARGE + SMALL)] {
            assert!(pipe.send("x".repeat(bytes).into()));
            assert!(writing.as_mut().now_or_never().is_none());
            assert!(budget.used_bytes() >= all, "{}", budget.used_bytes());
            assert!(budget.used_bytes() < all + FRAME_BYTES_MAX);
        }
        let mut body = opened.response.into_body();
        let mut next = || poll_fn(|cx| Pin::new(&mut body).poll_next(cx)).now_or_never();
        while let Some(Some(chunk)) = next() {
            chunk.unwrap();
        }
        assert!(writing.as_mut().now_or_never().is_none());
        assert_eq!(budget.used_bytes(), 0);
    }
}
