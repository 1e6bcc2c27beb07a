//! Messages a line each over a pair of byte streams: standard input and output, a socket, a pipe in a test. Both eras
//! on one pipe, told apart by each request's `_meta`.

use callboard_rpc::encode_error;
use std::future::pending;
use std::io;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use callboard_message::Principal;
use callboard_rpc::{
    DecodeError, Id, JsonError, Line, LineDecoder, Refusal, RpcError, decode, encode_line,
};
use callboard_runtime::AgentRef;
use futures::future::{BoxFuture, FutureExt};
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::client::MessageSink;
use super::legacy::batch;
use super::modern::ModernService;
use super::options::StdioOptions;
use super::request::{Message, Request, RunningRequests};
use super::response::Answer;
use super::{legacy, modern};
use crate::wire::{Revision, code as mcp};

/// Serves `agent` to the peer behind `reader` and `writer`, until it closes its side or can't be written to; then what
/// still runs is cancelled. Dropped, it cancels too.
///
/// A line that is no message is answered as such, and the next one is read. One over the limit of
/// [`callboard_rpc::Limits::body_bytes_max`] is dropped, and the peer is told.
///
/// # Errors
/// Those of `reader`, and of `writer` but for a peer that has gone away.
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
        drain,
    } = options;
    let limits = inbound.limits;
    let service = ModernService::new(agent, inbound);
    // Nobody comes back for the tasks of a pipe, nor for what is parked.
    let ends = Ends(service.clone());
    let (pipe, queue) = Pipe::new(queue_bytes_max);
    let mut requests = Requests::new(service, Arc::new(principal), pipe.clone(), requests_max);
    let mut lines = LineDecoder::new(limits.body_bytes_max);
    let mut writing = pin!(write_lines(queue, writer));
    let ended = loop {
        tokio::select! {
            line = lines.read(&mut reader), if requests.have_room() => match line {
                Ok(Some(Line::Whole(line))) => requests.begin(line),
                Ok(Some(Line::TooLong)) => requests.refuse(None, &too_long(limits.body_bytes_max)),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            },
            () = requests.work() => {}
            written = &mut writing => return gone_is_fine(written),
        }
    };
    requests.cancel_all();
    drop(ends);
    let finish = async {
        requests.finish().await;
        pipe.end();
    };
    let (_, written) = match timeout(drain, async { tokio::join!(finish, &mut writing) }).await {
        Ok(ended) => ended,
        Err(_) => {
            callboard_message::log::warn!(
                "what ran over standard input and output didn't end in time"
            );
            ((), Ok(()))
        }
    };
    ended.and(gone_is_fine(written))
}

/// Ends what a service keeps when it goes out of scope.
struct Ends(Arc<ModernService>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn too_long(max: usize) -> RpcError {
    RpcError::from(&Refusal {
        id: None,
        error: DecodeError::Json(JsonError::BytesOver { max }),
    })
}

/// A peer that has closed its end wants no more; it needn't be told.
fn gone_is_fine(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// What a message costs of the queue at least, in bytes: many small ones are a queue too.
const COST_MIN_BYTES: usize = 256;
/// Messages that are written before the stream is flushed, at most.
const FLUSH_EVERY: usize = 64;

/// The way to the peer: bounded by bytes.
pub(crate) struct Pipe {
    room: Arc<Semaphore>,
    bytes_max: usize,
    queue: mpsc::Sender<Queued>,
}

/// What is written next.
pub(crate) enum Queued {
    Message(Bytes, OwnedSemaphorePermit),
    End,
}

impl Pipe {
    /// A pipe and its other end, for [`write_lines`].
    pub fn new(bytes_max: usize) -> (Arc<Self>, mpsc::Receiver<Queued>) {
        let bytes_max = bytes_max.clamp(
            COST_MIN_BYTES,
            Semaphore::MAX_PERMITS.min(u32::MAX as usize),
        );
        // As many messages as there is room for, and the end.
        let (queue, queued) = mpsc::channel(bytes_max / COST_MIN_BYTES + 1);
        (
            Arc::new(Self {
                room: Arc::new(Semaphore::new(bytes_max)),
                bytes_max,
                queue,
            }),
            queued,
        )
    }

    /// Sends what must arrive; waits for room.
    async fn deliver(&self, message: Vec<u8>) {
        // Never closed; without the peer the queue is dropped, and so is this.
        if let Ok(permit) = self
            .room
            .clone()
            .acquire_many_owned(self.cost(message.len()))
            .await
        {
            let _ = self.queue.try_send(Queued::Message(message.into(), permit));
        }
    }

    /// Nothing more comes.
    fn end(&self) {
        let _ = self.queue.try_send(Queued::End);
    }

    fn cost(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.clamp(COST_MIN_BYTES, self.bytes_max)).unwrap_or(u32::MAX)
    }
}

impl MessageSink for Pipe {
    fn send(&self, message: Bytes) -> bool {
        let Ok(permit) = self
            .room
            .clone()
            .try_acquire_many_owned(self.cost(message.len()))
        else {
            return false;
        };
        self.queue
            .try_send(Queued::Message(message, permit))
            .is_ok()
    }
}

/// Writes what the pipe is given, a line each, until its end.
async fn write_lines(
    mut queue: mpsc::Receiver<Queued>,
    mut writer: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut next = Vec::with_capacity(FLUSH_EVERY);
    while queue.recv_many(&mut next, FLUSH_EVERY).await > 0 {
        let mut ended = false;
        for queued in next.drain(..) {
            match queued {
                Queued::Message(message, _permit) => {
                    writer.write_all(&encode_line(message.into())).await?
                }
                Queued::End => ended = true,
            }
        }
        writer.flush().await?;
        if ended {
            break;
        }
    }
    Ok(())
}

/// Refusals that may wait for room beside the requests that run, before no more is read.
const REFUSALS_WAITING_MAX: usize = 64;

/// What runs for the peer of one pipe.
pub(crate) struct Requests {
    service: Arc<ModernService>,
    principal: Arc<Principal>,
    session: Arc<legacy::Session>,
    pipe: Arc<Pipe>,
    running: FuturesUnordered<BoxFuture<'static, ()>>,
    running_max: usize,
    /// Those of the stateless era; the session has its own.
    stateless: Arc<RunningRequests>,
}

impl Requests {
    pub fn new(
        service: Arc<ModernService>,
        principal: Arc<Principal>,
        pipe: Arc<Pipe>,
        running_max: usize,
    ) -> Self {
        let session = legacy::Session::open(service.tasks.clone(), principal.clone(), pipe.clone());
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
        }
    }

    /// Whether another line may be read.
    pub fn have_room(&self) -> bool {
        self.running.len() < self.running_max.saturating_add(REFUSALS_WAITING_MAX)
    }

    /// Does some of the work. Never ends while there is none.
    pub async fn work(&mut self) {
        match self.running.next().await {
            Some(()) => {}
            None => pending().await,
        }
    }

    /// Ends when nothing runs any more.
    pub async fn finish(&mut self) {
        while self.running.next().await.is_some() {}
    }

    /// Cancels everything that runs.
    pub fn cancel_all(&self) {
        self.session.close();
        self.stateless.close();
    }

    /// Begins what a line asks for.
    pub fn begin(&mut self, line: Bytes) {
        let limits = self.service.tasks.endpoint.options.limits;
        if self.session.revision() == Some(Revision::V2025_03_26)
            && line.trim_ascii_start().starts_with(b"[")
        {
            return self.begin_batch(line);
        }
        let message = match decode(&line, &limits) {
            Ok(message) => Message::from(message),
            Err(refusal) => return self.refuse(refusal.id.as_ref(), &RpcError::from(&refusal)),
        };
        if let Message::Notification(told) = &message
            && told.method == "notifications/cancelled"
            && self.stateless.cancel(told.params)
        {
            return;
        }
        let is_modern = message.is_modern();
        if let Some((id, request)) = self.session.hear(message) {
            self.begin_request(id, request, is_modern);
        }
    }

    /// Says what is wrong with a line.
    fn refuse(&mut self, id: Option<&Id>, error: &RpcError) {
        let (pipe, answer) = (self.pipe.clone(), encode_error(id, error));
        self.run(async move { pipe.deliver(answer).await });
    }

    fn begin_request(&mut self, id: Id, request: Request, is_modern: bool) {
        if self.running.len() >= self.running_max {
            let error = RpcError::new(mcp::OVERLOADED, "too many requests are running");
            return self.refuse(Some(&id), &error);
        }
        let pipe = self.pipe.clone();
        if !is_modern {
            let session = self.session.clone();
            return self.run(async move {
                if let Some(answer) = session.request(id, request, pipe.clone()).await {
                    pipe.deliver(answer).await;
                }
            });
        }
        let (service, principal, stateless) = (
            self.service.clone(),
            self.principal.clone(),
            self.stateless.clone(),
        );
        self.run(async move {
            let hung_up = CancellationToken::new();
            let answer = match stateless.enter(&id, &hung_up) {
                Err(error) => Answer::error(Some(&id), error),
                Ok(_running) => tokio::select! {
                    biased;
                    // Of a request that was cancelled nothing more is said (2026-07-28, stdio).
                    () = hung_up.cancelled() => return,
                    answer = modern::request(&service, principal, &id, request, pipe.clone(), hung_up.clone()) => answer,
                },
            };
            if let Some(answer) = answer.body {
                pipe.deliver(answer).await;
            }
        });
    }

    fn begin_batch(&mut self, line: Bytes) {
        if self.running.len() >= self.running_max {
            let error = RpcError::new(mcp::OVERLOADED, "too many requests are running");
            return self.refuse(None, &error);
        }
        let (session, pipe) = (self.session.clone(), self.pipe.clone());
        self.run(async move {
            let sink: Arc<dyn MessageSink> = pipe.clone();
            if let Some(answer) = batch(&session, &line, &sink).await {
                pipe.deliver(answer).await;
            }
        });
    }

    /// Begins work. It gets its first turn here, so that what comes on the next line finds it begun.
    fn run(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        let mut work = work.boxed();
        if (&mut work).now_or_never().is_none() {
            self.running.push(work);
        }
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        self.cancel_all();
    }
}
