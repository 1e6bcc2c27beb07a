//! One channel for all requests: a child's pipes, a WebSocket, HTTP+SSE.

use std::sync::Arc;

use callboard_rpc::Limits;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Outgoing, Transport};
use crate::outbound::exchange::{Exchanged, Said, TransportError, cancelled, number_of, read};
use crate::outbound::pending_requests::PendingRequest;
use crate::outbound::server_messages::{NotificationHandler, Reply};

/// Messages that wait to be written; past that, whoever sends waits.
const OUTBOX_MAX: usize = 64;

/// A channel that a task of its own reads and writes. Dropped, the task ends in order.
pub(crate) struct Duplex {
    outbox: mpsc::Sender<Vec<u8>>,
    /// Fires when nothing more can come of it.
    pub closed: CancellationToken,
    _stop: DropGuard,
}

/// Nobody holds the channel any more.
pub(crate) const CLIENT_ENDED: TransportError = TransportError::Broken("the client has ended");

/// What is to be written.
pub(crate) type Outbox = mpsc::Receiver<Vec<u8>>;

/// The task's side of it.
pub(crate) struct Engine {
    /// To be sent beside what others send.
    replies: mpsc::Sender<Vec<u8>>,
    /// Fires when nobody holds the channel any more.
    stop: CancellationToken,
    ear: Arc<NotificationHandler>,
    limits: Limits,
    closed: CancellationToken,
    /// Name of the server in the log.
    server: Box<str>,
}

impl Duplex {
    pub fn open(
        ear: Arc<NotificationHandler>,
        limits: Limits,
        server: &str,
    ) -> (Transport, Engine, Outbox) {
        let (sender, outbox) = mpsc::channel(OUTBOX_MAX);
        let (stop, closed) = (CancellationToken::new(), CancellationToken::new());
        let (replies, server) = (sender.clone(), server.into());
        let engine = Engine {
            replies,
            stop: stop.clone(),
            ear,
            limits,
            closed: closed.clone(),
            server,
        };
        let duplex = Self {
            outbox: sender,
            closed,
            _stop: stop.drop_guard(),
        };
        (Transport::Duplex(Arc::new(duplex)), engine, outbox)
    }

    pub async fn exchange(&self, outgoing: &Outgoing, flight: &mut PendingRequest) -> Exchanged {
        self.send(outgoing.body.clone()).await?;
        match (&mut flight.response).await {
            Ok(Ok(outcome)) => outcome.map_err(|error| TransportError::Rpc {
                error,
                status: None,
            }),
            Ok(Err(why)) => Err(why),
            Err(_) => Err(closed()),
        }
    }

    /// Tells the server that nobody waits for request `number` any more.
    pub fn cancel(&self, number: u64) {
        if self.outbox.try_send(cancelled(number)).is_err() {
            callboard_message::log::debug!(
                "a server that reads nothing isn't told of a cancelled call"
            );
        }
    }

    pub async fn send(&self, body: Vec<u8>) -> Result<(), TransportError> {
        tokio::select! {
            sent = self.outbox.send(body) => sent.map_err(|_| closed()),
            () = self.closed.cancelled() => Err(closed()),
        }
    }
}

impl Engine {
    /// Takes one message of the server's.
    pub fn take(&self, message: &[u8]) {
        match read(message, &self.limits) {
            Ok(Said::Response { id, outcome }) => self
                .ear
                .flights
                .answer(id.as_ref().and_then(number_of), Ok(outcome)),
            Ok(Said::Event(heard)) => {
                match self.ear.hear(heard) {
                    Reply::None => {}
                    Reply::Now(reply) => {
                        if self.replies.try_send(reply).is_err() {
                            callboard_message::log::warn!(by: &self.server, server = &*self.server, "a server that reads nothing gets no answer to its request");
                        }
                    }
                    Reply::Later(answering) => {
                        let replies = self.replies.clone();
                        // Where the channel is closed by then, nobody waits for it.
                        tokio::spawn(async move {
                            if let Some(answer) = answering.await {
                                let _ = replies.send(answer.body).await;
                            }
                        });
                    }
                }
            }
            Err(refusal) => {
                callboard_message::log::warn!(by: &self.server, server = &*self.server, bytes = message.len(), %refusal, "what the server says is no message and is skipped");
            }
        }
    }

    /// A message over the limit: whoever can only be meant learns of it.
    pub fn too_long(&self) {
        callboard_message::log::warn!(by: &self.server, server = &*self.server, "a message of the server's is over the limit and dropped");
        self.ear.flights.fail_only(TransportError::TooLarge);
    }

    /// Hears and writes until one of both ends, or nobody holds the channel any more; then whoever waits learns why.
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
        self.ear.flights.close(why);
    }
}

impl Drop for Engine {
    // Also when its task is dropped with its runtime.
    fn drop(&mut self) {
        self.close(&closed());
    }
}

fn closed() -> TransportError {
    TransportError::Broken("the connection has ended")
}
