//! Transport with one channel for all requests: a child's pipes, a WebSocket, HTTP+SSE.

use std::borrow::Cow;
use std::sync::Arc;

use callboard_rpc::{DecodeLimits, EnvelopeScan, RequestId};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{OutgoingRequest, Transport};
use crate::outbound::exchange::{
    DecodedMessage, ExchangeResult, TransportError, cancelled_notification, decode_server_message,
    request_number,
};
use crate::outbound::pending_requests::PendingRequest;
use crate::outbound::server_messages::{NotificationHandler, ServerReply};

/// Maximum number of messages waiting to be written. Beyond it, senders wait.
const OUTBOX_MAX: usize = 64;

/// Factor between the largest message of a framed channel (WebSocket, HTTP+SSE) that is read to be
/// skipped and the limit of a message. A larger one closes the channel.
const DROPPABLE_BYTES_FACTOR: usize = 4;

/// Returns the maximum size of a message that is read to be skipped, in bytes.
pub(crate) fn droppable_bytes_max(limits: &DecodeLimits) -> usize {
    limits.body_bytes_max.saturating_mul(DROPPABLE_BYTES_FACTOR)
}

/// Sending side of a channel that all requests to a server share. A task with a [`DuplexDriver`]
/// reads and writes the channel. Dropping this value shuts the task down.
pub(crate) struct DuplexChannel {
    outbox: mpsc::Sender<Vec<u8>>,
    /// Cancelled when the channel is closed.
    pub closed: CancellationToken,
    _stop: DropGuard,
}

/// Error of requests that are pending when the channel's last handle is dropped.
pub(crate) const CLIENT_ENDED: TransportError = TransportError::Broken(Cow::Borrowed(
    "the client was stopped before the server answered",
));

pub(crate) type OutboxReceiver = mpsc::Receiver<Vec<u8>>;

/// State of the task that reads and writes a [`DuplexChannel`].
pub(crate) struct DuplexDriver {
    /// Queue for answers to the server's requests.
    replies: mpsc::Sender<Vec<u8>>,
    /// Cancelled when the last handle of the channel is dropped.
    stop: CancellationToken,
    notifications: Arc<NotificationHandler>,
    limits: DecodeLimits,
    closed: CancellationToken,
    /// Name of the server in logs.
    server: Box<str>,
}

impl DuplexChannel {
    pub fn open(
        notifications: Arc<NotificationHandler>,
        limits: DecodeLimits,
        server: &str,
    ) -> (Transport, DuplexDriver, OutboxReceiver) {
        let (sender, outbox) = mpsc::channel(OUTBOX_MAX);
        let (stop, closed) = (CancellationToken::new(), CancellationToken::new());
        let (replies, server) = (sender.clone(), server.into());
        let driver = DuplexDriver {
            replies,
            stop: stop.clone(),
            notifications,
            limits,
            closed: closed.clone(),
            server,
        };
        let duplex = Self {
            outbox: sender,
            closed,
            _stop: stop.drop_guard(),
        };
        (Transport::Duplex(Arc::new(duplex)), driver, outbox)
    }

    pub async fn exchange(
        &self,
        outgoing: &OutgoingRequest,
        pending: &mut PendingRequest,
    ) -> ExchangeResult {
        self.send(outgoing.body.clone()).await?;
        match (&mut pending.response).await {
            Ok(Ok(outcome)) => outcome.map_err(|error| TransportError::Rpc {
                error,
                status: None,
            }),
            Ok(Err(why)) => Err(why),
            Err(_) => Err(connection_ended()),
        }
    }

    /// Notifies the server that request `number` is cancelled.
    pub fn cancel(&self, number: u64) {
        if self
            .outbox
            .try_send(cancelled_notification(number))
            .is_err()
        {
            callboard_message::log::debug!(
                "failed to notify a server of a cancelled call, because the server doesn't read its input"
            );
        }
    }

    pub async fn send(&self, body: Vec<u8>) -> Result<(), TransportError> {
        tokio::select! {
            sent = self.outbox.send(body) => sent.map_err(|_| connection_ended()),
            () = self.closed.cancelled() => Err(connection_ended()),
        }
    }
}

impl DuplexDriver {
    /// Decodes a message from the server. Completes the pending request if it is a response;
    /// otherwise passes it to the notification handler and queues the reply. Returns whether a
    /// pending request waited for it.
    pub fn handle_message(&self, message: &[u8]) -> bool {
        if message.len() > self.limits.body_bytes_max {
            let mut scan = EnvelopeScan::default();
            scan.push(message);
            self.handle_oversized(scan.response_id());
            return false;
        }
        match decode_server_message(message, &self.limits) {
            Ok(DecodedMessage::Response { id, outcome }) => {
                return self
                    .notifications
                    .pending_requests
                    .complete(id.as_ref().and_then(request_number), Ok(outcome));
            }
            Ok(DecodedMessage::Message(decoded)) => {
                match self.notifications.handle_message(decoded) {
                    ServerReply::None => {}
                    ServerReply::Now(reply) => {
                        if self.replies.try_send(reply).is_err() {
                            callboard_message::log::warn!(by: &self.server, server = &*self.server, "dropped the answer to a request of a server, because the server doesn't read its input");
                        }
                    }
                    ServerReply::Later(answering) => {
                        let replies = self.replies.clone();
                        // If the channel has been closed, the answer isn't needed.
                        tokio::spawn(async move {
                            if let Some(answer) = answering.await {
                                let _ = replies.send(answer.body).await;
                            }
                        });
                    }
                }
            }
            Err(unreadable) => {
                let (number, refusal) = (unreadable.number, &unreadable.failure);
                callboard_message::log::warn!(by: &self.server, server = &*self.server, bytes = message.len(), %refusal, "skipped a message of the server that is no valid JSON-RPC");
                self.fail_request(number, unreadable.to_error());
            }
        }
        false
    }

    /// Drops a message over the size limit, and logs a warning. If it is a response, `id` is its
    /// id, and its request fails with [`TransportError::TooLarge`].
    pub fn handle_oversized(&self, id: Option<RequestId>) {
        let bytes_max = self.limits.body_bytes_max;
        callboard_message::log::warn!(by: &self.server, server = &*self.server, bytes_max, "dropped a message of the server over the size limit; `body_bytes_max` raises it");
        let number = id.as_ref().and_then(request_number);
        self.fail_request(number, TransportError::TooLarge(bytes_max));
    }

    /// Fails the request whose response can't be read. Counts other messages.
    fn fail_request(&self, number: Option<u64>, why: TransportError) {
        let pending = &self.notifications.pending_requests;
        pending.complete(number, Err(why));
    }

    /// Runs the reader `hear` and the writer `write` until either ends or the last handle of the
    /// channel is dropped. Then closes the channel and fails all pending requests with the reason.
    pub async fn run(
        &self,
        hear: impl Future<Output = TransportError>,
        write: impl Future<Output = TransportError>,
    ) {
        let why = tokio::select! {
            why = hear => why,
            why = write => why,
            () = self.stop.cancelled() => CLIENT_ENDED,
        };
        self.close(&why);
    }

    fn close(&self, why: &TransportError) {
        self.closed.cancel();
        self.notifications.pending_requests.close(why);
    }
}

impl Drop for DuplexDriver {
    // The task may also be dropped with its runtime.
    fn drop(&mut self) {
        self.close(&connection_ended());
    }
}

fn connection_ended() -> TransportError {
    TransportError::Broken("the connection to the server has ended".into())
}
