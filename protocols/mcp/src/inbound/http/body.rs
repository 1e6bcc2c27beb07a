//! What an event stream sends, and the work whose answer ends it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use futures::future::BoxFuture;
use tokio::time::{Sleep, sleep};

use super::log::{EventLog, Read, Reader};

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

/// What a response streams: the events of a log, and the work that ends it.
pub(super) struct LogEvents {
    reader: Reader,
    work: Option<Work>,
    first: Option<Bytes>,
    /// When the connection is closed though the stream goes on.
    closes: Option<Pin<Box<Sleep>>>,
}

impl LogEvents {
    pub(super) fn new(reader: Reader) -> Self {
        Self { reader, work: None, first: None, closes: None }
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

impl Stream for LogEvents {
    type Item = io::Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
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
            Poll::Ready(Read::Event(event)) => return Poll::Ready(Some(Ok(event))),
            Poll::Ready(Read::End) => return Poll::Ready(None),
            // An orderly end would say that nothing is missing.
            Poll::Ready(Read::Broken) => return Poll::Ready(Some(Err(io::ErrorKind::ConnectionAborted.into()))),
            Poll::Pending => {}
        }
        match &mut this.closes {
            Some(closes) => closes.as_mut().poll(cx).map(|()| None),
            None => Poll::Pending,
        }
    }
}
