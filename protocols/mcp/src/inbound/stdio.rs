//! Transport over a pair of byte streams, one message per line: standard input and output, a
//! socket, a pipe in a test. Serves both eras, told apart by the `_meta` of each request.

use callboard_rpc::encode_error;
use std::future::pending;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use callboard_message::Principal;
use callboard_rpc::{
    BufferAccount, BufferReservation, ClosableBuffer, DecodeError, DecodeFailure, DecodedLine,
    JsonError, LineDecoder, ReaderReservation, RequestId, RpcError, decode, encode_line,
};
use callboard_runtime::AgentRef;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::client_messages::MessageSink;
use super::legacy::answer_batch;
use super::modern::ModernService;
use super::options::StdioOptions;
use super::request::{ClientMessage, McpRequest, RunningRequests};
use super::response::EncodedResponse;
use super::{legacy, modern};
use crate::wire::{Revision, code as mcp};

/// Serves `agent` to the peer behind `reader` and `writer`, until the end of input or a failed
/// write. Then, and when the future is dropped, running requests are cancelled.
///
/// An invalid line is answered with an error, and the next one is read. A line over
/// [`callboard_rpc::DecodeLimits::body_bytes_max`] is dropped and answered with an error.
///
/// # Errors
/// Errors of `reader`, and of `writer` except for a closed pipe.
pub async fn serve_stdio(
    agent: AgentRef,
    options: StdioOptions,
    mut reader: impl AsyncRead + Unpin,
    writer: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let StdioOptions {
        inbound,
        principal,
        requests_max,
        queue_bytes_max,
        drain_timeout: drain,
    } = options;
    let limits = inbound.limits;
    let service = ModernService::new(agent, inbound);
    // No client comes back for the tasks or suspended calls of a pipe.
    let ends = CloseOnDrop(service.clone());
    // One client alone, whose queue has its own limit, needs no share of a budget.
    let (pipe, queue) = OutgoingQueue::new(queue_bytes_max, None);
    let principal = Arc::new(principal);
    let mut requests = RequestRunner::new(service, principal, pipe.clone(), requests_max, None);
    let mut lines = LineDecoder::new(limits.body_bytes_max);
    let mut writing = pin!(write_lines(queue, writer));
    let ended = loop {
        tokio::select! {
            line = lines.read(&mut reader), if requests.has_capacity() => match line {
                Ok(Some(DecodedLine::Whole(line))) => requests.handle_line(line),
                Ok(Some(DecodedLine::TooLong)) => requests.reject(None, &line_too_long(limits.body_bytes_max)),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            },
            () = requests.run_next() => {}
            written = &mut writing => return ignore_broken_pipe(written),
        }
    };
    requests.cancel_all();
    drop(ends);
    let finish = async {
        requests.wait_finished().await;
        pipe.end();
    };
    let (_, written) = match timeout(drain, async { tokio::join!(finish, &mut writing) }).await {
        Ok(ended) => ended,
        Err(_) => {
            callboard_message::log::warn!(
                ?drain,
                "running requests didn't finish within the drain timeout and get no answer"
            );
            ((), Ok(()))
        }
    };
    ended.and(ignore_broken_pipe(written))
}

/// Closes a service when dropped.
struct CloseOnDrop(Arc<ModernService>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn line_too_long(max: usize) -> RpcError {
    RpcError::from(&DecodeFailure {
        id: None,
        error: DecodeError::Json(JsonError::BytesOver { max }),
    })
}

/// Treats a closed pipe as success, because the peer wants no more output.
fn ignore_broken_pipe(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Minimum number of bytes that a message counts in the queue, so that the number of small messages
/// is limited, too.
const MESSAGE_COST_MIN_BYTES: usize = 256;
/// Maximum number of messages written between two flushes.
const FLUSH_EVERY: usize = 64;

/// Outgoing message queue of one pipe or socket, limited in bytes.
pub(crate) struct OutgoingQueue {
    capacity: Arc<Semaphore>,
    bytes_max: usize,
    queue: mpsc::Sender<QueuedMessage>,
    queued: Arc<QueuedBytes>,
}

pub(crate) enum QueuedMessage {
    Message(Bytes, QueueRoom),
    End,
}

/// Bytes of the queued messages, counted in the node's budget.
struct QueuedBytes {
    bytes: AtomicUsize,
    /// Bytes of messages that were written, but not taken by the connection.
    written: AtomicUsize,
    /// `None` without a budget.
    held: Option<ReaderReservation>,
    /// Cancelled once the budget has closed the queue.
    closed: CancellationToken,
}

/// Room of one message in a queue, until it is dropped.
pub(crate) struct QueueRoom {
    _permit: OwnedSemaphorePermit,
    bytes: usize,
    queued: Arc<QueuedBytes>,
}

impl QueueRoom {
    fn new(permit: OwnedSemaphorePermit, bytes: usize, queued: &Arc<QueuedBytes>) -> Self {
        queued.bytes.fetch_add(bytes, Ordering::Relaxed);
        queued.track();
        Self {
            _permit: permit,
            bytes,
            queued: queued.clone(),
        }
    }
}

impl Drop for QueueRoom {
    fn drop(&mut self) {
        self.queued.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.queued.track();
    }
}

impl QueuedBytes {
    fn track(&self) {
        if let Some(held) = &self.held {
            held.track(|| self.buffered_bytes());
        }
    }
}

impl ClosableBuffer for QueuedBytes {
    fn buffered_bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed) + self.written.load(Ordering::Relaxed)
    }

    fn close_buffer(&self) {
        self.closed.cancel();
    }
}

impl OutgoingQueue {
    /// Creates a queue and its receiving end, for [`write_lines`]. Its messages count for
    /// `account`, if given, which closes the queue if the peer reads too slowly.
    pub fn new(
        bytes_max: usize,
        account: Option<&BufferAccount>,
    ) -> (Arc<Self>, mpsc::Receiver<QueuedMessage>) {
        let bytes_max = bytes_max.clamp(
            MESSAGE_COST_MIN_BYTES,
            Semaphore::MAX_PERMITS.min(u32::MAX as usize),
        );
        // Capacity for as many messages as fit, and the end marker.
        let (queue, queued) = mpsc::channel(bytes_max / MESSAGE_COST_MIN_BYTES + 1);
        (
            Arc::new(Self {
                capacity: Arc::new(Semaphore::new(bytes_max)),
                bytes_max,
                queue,
                queued: Arc::new_cyclic(|bytes: &Weak<QueuedBytes>| QueuedBytes {
                    bytes: AtomicUsize::new(0),
                    written: AtomicUsize::new(0),
                    held: account.map(|account| account.reader(bytes.clone())),
                    closed: CancellationToken::new(),
                }),
            }),
            queued,
        )
    }

    /// Waits until the budget closes the queue, because its peer reads too slowly.
    pub async fn closed(&self) {
        self.queued.closed.cancelled().await;
    }

    /// Counts the bytes of messages that were written, but that the connection hasn't taken yet.
    /// `room` is that of a message whose last bytes were written just now.
    pub fn count_written(&self, bytes: usize, room: Option<QueueRoom>) {
        self.queued.written.store(bytes, Ordering::Relaxed);
        drop(room);
        self.queued.track();
    }

    /// Sends a message that must not be lost; waits for room in the queue.
    async fn send_reliably(&self, message: Vec<u8>) {
        // The semaphore is never closed. When the peer is gone the receiver is dropped, and so is
        // the message.
        if let Ok(permit) = self
            .capacity
            .clone()
            .acquire_many_owned(self.queue_cost(message.len()))
            .await
        {
            let room = QueueRoom::new(permit, message.len(), &self.queued);
            let _ = self
                .queue
                .try_send(QueuedMessage::Message(message.into(), room));
        }
    }

    /// Appends the end marker, after which no more messages are written.
    pub fn end(&self) {
        let _ = self.queue.try_send(QueuedMessage::End);
    }

    fn queue_cost(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.clamp(MESSAGE_COST_MIN_BYTES, self.bytes_max)).unwrap_or(u32::MAX)
    }
}

impl MessageSink for OutgoingQueue {
    fn send(&self, message: Bytes) -> bool {
        let Ok(permit) = self
            .capacity
            .clone()
            .try_acquire_many_owned(self.queue_cost(message.len()))
        else {
            return false;
        };
        let room = QueueRoom::new(permit, message.len(), &self.queued);
        self.queue
            .try_send(QueuedMessage::Message(message, room))
            .is_ok()
    }
}

/// Writes queued messages, one per line, until the end of the queue.
async fn write_lines(
    mut queue: mpsc::Receiver<QueuedMessage>,
    mut writer: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut next = Vec::with_capacity(FLUSH_EVERY);
    while queue.recv_many(&mut next, FLUSH_EVERY).await > 0 {
        let mut ended = false;
        for queued in next.drain(..) {
            match queued {
                QueuedMessage::Message(message, _room) => {
                    writer.write_all(&encode_line(message.into())).await?
                }
                QueuedMessage::End => ended = true,
            }
        }
        writer.flush().await?;
        if ended {
            break;
        }
    }
    Ok(())
}

/// Maximum number of rejections that wait for room in the outgoing queue, in addition to the
/// running requests. Beyond it, no further input is read.
const PENDING_REJECTIONS_MAX: usize = 64;

/// Runs the requests of one pipe or socket.
pub(crate) struct RequestRunner {
    service: Arc<ModernService>,
    principal: Arc<Principal>,
    session: Arc<legacy::LegacySession>,
    pipe: Arc<OutgoingQueue>,
    running: FuturesUnordered<BoxFuture<'static, ()>>,
    running_max: usize,
    /// Running requests of the modern era, which has no sessions. Those of the legacy era are in
    /// `session`.
    stateless: Arc<RunningRequests>,
    /// Account that the running requests count for; `None` without a budget.
    account: Option<BufferAccount>,
}

impl RequestRunner {
    pub fn new(
        service: Arc<ModernService>,
        principal: Arc<Principal>,
        pipe: Arc<OutgoingQueue>,
        running_max: usize,
        account: Option<BufferAccount>,
    ) -> Self {
        let session =
            legacy::LegacySession::open(service.tasks.clone(), principal.clone(), pipe.clone());
        let (running, stateless) = (
            FuturesUnordered::new(),
            Arc::new(RunningRequests::new(usize::MAX)),
        );
        Self {
            service,
            principal,
            session,
            pipe,
            running,
            running_max: running_max.max(1),
            stateless,
            account,
        }
    }

    /// Returns true if the number of running requests and waiting rejections allows reading another
    /// line.
    pub fn has_capacity(&self) -> bool {
        self.running.len() < self.running_max.saturating_add(PENDING_REJECTIONS_MAX)
    }

    /// Returns true if no request runs.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Polls the running requests until one has ended. Never returns while there are none.
    pub async fn run_next(&mut self) {
        match self.running.next().await {
            Some(()) => {}
            None => pending().await,
        }
    }

    /// Waits until no request runs.
    pub async fn wait_finished(&mut self) {
        while self.running.next().await.is_some() {}
    }

    /// Cancels all running requests and closes the legacy session.
    pub fn cancel_all(&self) {
        self.session.close();
        self.stateless.close();
    }

    /// Handles one line: a request, notification, response or batch.
    pub fn handle_line(&mut self, line: Bytes) {
        let limits = self.service.tasks.endpoint.options.limits;
        if self.session.revision() == Some(Revision::V2025_03_26)
            && line.trim_ascii_start().starts_with(b"[")
        {
            return self.start_batch(line);
        }
        let message = match decode(&line, &limits) {
            Ok(message) => ClientMessage::from(message),
            Err(refusal) => return self.reject(refusal.id.as_ref(), &RpcError::from(&refusal)),
        };
        let is_modern = message.is_modern();
        match message {
            ClientMessage::Request(id, request) => {
                self.start_request(id, request, line.len(), is_modern);
            }
            ClientMessage::Response(response) => self.session.questions.handle_response(response),
            ClientMessage::Notification(notification) => {
                if notification.method != "notifications/cancelled"
                    || !self.stateless.cancel(notification.params)
                {
                    self.session.handle_notification(&notification);
                }
            }
        }
    }

    /// Answers an invalid line with an error.
    pub fn reject(&mut self, id: Option<&RequestId>, error: &RpcError) {
        let (pipe, answer) = (self.pipe.clone(), encode_error(id, error));
        self.spawn(async move { pipe.send_reliably(answer).await });
    }

    /// Returns the reservation of a request of `bytes` bytes, which is held while it runs.
    ///
    /// # Errors
    /// `OVERLOADED` if too many requests are running, or the budget of buffered bytes is used up.
    fn admit(&self, bytes: usize) -> Result<Option<BufferReservation>, RpcError> {
        if self.running.len() >= self.running_max {
            let message = format!(
                "{} requests are running, which is the limit: wait for one to end",
                self.running_max
            );
            return Err(RpcError::new(mcp::OVERLOADED, message));
        }
        let account = self.account.as_ref();
        let held = account.map(|account| account.reserve(bytes)).transpose();
        held.map_err(|full| RpcError::new(mcp::OVERLOADED, full.to_string()))
    }

    fn start_request(&mut self, id: RequestId, request: McpRequest, bytes: usize, is_modern: bool) {
        let held = match self.admit(bytes) {
            Ok(held) => held,
            Err(error) => return self.reject(Some(&id), &error),
        };
        let pipe = self.pipe.clone();
        if !is_modern {
            let session = self.session.clone();
            return self.spawn(async move {
                let _held = held;
                let answer = session.handle_request(id, request, pipe.clone()).await;
                if let Some(answer) = answer.body {
                    pipe.send_reliably(answer).await;
                }
            });
        }
        let (service, principal, stateless) = (
            self.service.clone(),
            self.principal.clone(),
            self.stateless.clone(),
        );
        self.spawn(async move {
            let _held = held;
            let hung_up = CancellationToken::new();
            let answer = match stateless.register(&id, &hung_up) {
                Err(error) => EncodedResponse::error(Some(&id), error),
                Ok(_running) => tokio::select! {
                    biased;
                    // A cancelled request gets no response (2026-07-28, stdio).
                    () = hung_up.cancelled() => return,
                    answer = modern::handle_request(&service, principal, &id, request, pipe.clone(), hung_up.clone()) => answer,
                },
            };
            if let Some(answer) = answer.body {
                pipe.send_reliably(answer).await;
            }
        });
    }

    fn start_batch(&mut self, line: Bytes) {
        let held = match self.admit(line.len()) {
            Ok(held) => held,
            Err(error) => return self.reject(None, &error),
        };
        let (session, pipe) = (self.session.clone(), self.pipe.clone());
        self.spawn(async move {
            let _held = held;
            let sink: Arc<dyn MessageSink> = pipe.clone();
            if let Some(answer) = answer_batch(&session, &line, &sink).await {
                pipe.send_reliably(answer).await;
            }
        });
    }

    /// Adds `work` to the running requests. It is polled once here, so that it has started before
    /// the next line is handled.
    fn spawn(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        let mut work = work.boxed();
        if (&mut work).now_or_never().is_none() {
            self.running.push(work);
        }
    }
}

impl Drop for RequestRunner {
    fn drop(&mut self) {
        self.cancel_all();
    }
}
