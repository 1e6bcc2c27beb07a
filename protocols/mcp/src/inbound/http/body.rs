//! The body of an event stream, and the work whose answer ends it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use callboard_rpc::SSE_KEEP_ALIVE;
use callboard_rpc::serve::{COUNTS_NO_MORE, Permit, Standing};
use futures::Stream;
use futures::future::BoxFuture;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::log::{EventLog, Read, Reader};
use super::sessions::Active;
use callboard_rpc::serve::idle::Busy;

/// What a request comes to.
pub(super) struct Done {
    /// The HTTP status, where nothing was streamed before.
    pub(super) status: u16,
    /// The response; `None` where the request was cancelled.
    pub(super) body: Option<Vec<u8>>,
}

/// Work for one request. Dropped before it is done, it either ends, which cancels what it caused, or goes on without its
/// connection and leaves its answer in the log.
pub(super) struct Work {
    running: Option<BoxFuture<'static, Done>>,
    /// Where its answer goes if it outlives its connection.
    outlives: Option<Arc<EventLog>>,
}

impl Work {
    pub(super) fn new(running: BoxFuture<'static, Done>, outlives: Option<Arc<EventLog>>) -> Self {
        Self { running: Some(running), outlives }
    }

    /// Ends it now, whatever it was to outlive.
    pub(super) fn ends_here(mut self) {
        self.outlives = None;
    }
}

impl Future for Work {
    type Output = Done;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Done> {
        let Some(running) = &mut self.running else { return Poll::Pending };
        let done = std::task::ready!(running.as_mut().poll(cx));
        self.running = None;
        Poll::Ready(done)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let (Some(running), Some(log)) = (self.running.take(), self.outlives.take()) else { return };
        // Without a runtime the whole server ends, and the work with it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { log.finish(running.await.body) });
        }
    }
}

/// What a stream holds as long as it is open.
pub(super) struct Held {
    _busy: Busy,
    _permits: Vec<Permit>,
    _active: Option<Active>,
}

impl Held {
    pub(super) fn new(busy: Busy, permits: Vec<Permit>, active: Option<Active>) -> Self {
        Self { _busy: busy, _permits: permits, _active: active }
    }
}

/// A reader of a log as the body of a response.
pub(super) struct SseBody {
    reader: Reader,
    work: Option<Work>,
    first: Option<Bytes>,
    keep_alive: Duration,
    quiet: Pin<Box<Sleep>>,
    /// When the connection is closed though the stream goes on.
    closes: Option<Pin<Box<Sleep>>>,
    /// Whether its reader may still have it.
    standing: Standing,
    /// It has said why it ends.
    is_over: bool,
    _held: Held,
}

impl SseBody {
    pub(super) fn new(reader: Reader, keep_alive: Duration, standing: Standing, held: Held) -> Self {
        let quiet = Box::pin(sleep(keep_alive));
        Self { reader, work: None, first: None, keep_alive, quiet, closes: None, standing, is_over: false, _held: held }
    }

    /// With an event before all others.
    pub(super) fn starting_with(mut self, first: Option<Bytes>) -> Self {
        self.first = first;
        self
    }

    /// With work whose answer ends the stream.
    pub(super) fn driving(mut self, work: Work) -> Self {
        self.work = Some(work);
        self
    }

    /// Closed after a while, for the client to come back.
    pub(super) fn closing_after(mut self, patience: Option<Duration>) -> Self {
        self.closes = patience.map(|patience| Box::pin(sleep(patience)));
        self
    }
}

impl Stream for SseBody {
    type Item = io::Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.is_over {
            return Poll::Ready(None);
        }
        if this.standing.poll_lost(cx).is_ready() {
            // What it was to say goes to nobody any more, and in the modern era isn't worked on.
            (this.is_over, this.work) = (true, None);
            return Poll::Ready(Some(Ok(Bytes::from(format!(": {COUNTS_NO_MORE}\n\n")))));
        }
        if let Some(first) = this.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        if let Some(work) = &mut this.work
            && let Poll::Ready(done) = Pin::new(work).poll(cx)
        {
            this.work = None;
            this.reader.log().finish(done.body);
        }
        match this.reader.poll_next(cx) {
            Poll::Ready(Read::Event(event)) => {
                this.quiet.as_mut().reset(Instant::now() + this.keep_alive);
                return Poll::Ready(Some(Ok(event)));
            }
            Poll::Ready(Read::End) => return Poll::Ready(None),
            // An orderly end would say that nothing is missing.
            Poll::Ready(Read::Broken) => return Poll::Ready(Some(Err(io::ErrorKind::ConnectionAborted.into()))),
            Poll::Pending => {}
        }
        if let Some(closes) = &mut this.closes
            && closes.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(None);
        }
        if this.quiet.as_mut().poll(cx).is_ready() {
            this.quiet = Box::pin(sleep_until(Instant::now() + this.keep_alive));
            cx.waker().wake_by_ref();
            return Poll::Ready(Some(Ok(Bytes::from_static(SSE_KEEP_ALIVE))));
        }
        Poll::Pending
    }
}
