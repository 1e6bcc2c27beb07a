//! The messages of one stream, kept until they are read, and as long as they may be asked for again.

use crate::inbound::response::Answer;
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use callboard_rpc::{SseEvent, encode_event};
use futures::Stream;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::{Sleep, sleep};

use crate::inbound::client::MessageSink;
use crate::inbound::options::StreamLimits;

/// What a stream is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// What one request causes, and its answer. Nothing of it may be lost; a reader may come back.
    Resumable,
    /// The same, for one reader only: what it has read is gone.
    Once,
    /// What no request caused. Without a reader the oldest gives way.
    Unsolicited,
}

/// One stream. It is the link of those who write to it; a [`Reader`] takes from it.
pub(crate) struct ReplayBuffer {
    /// Unique in the session; part of each event's id.
    pub number: u64,
    kind: Kind,
    /// Whether its reader could see a question at all.
    readable: bool,
    limits: StreamLimits,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// Framed, oldest first.
    events: VecDeque<Bytes>,
    bytes: usize,
    /// How many events have left the front for good.
    gone: u64,
    /// How many events have been handed to a reader.
    read: u64,
    /// How many readers there were: the last is the one.
    readers: u64,
    finished: bool,
    /// Something was lost that may not be.
    broken: bool,
    waker: Option<Waker>,
}

impl ReplayBuffer {
    pub fn new(number: u64, kind: Kind, readable: bool, limits: StreamLimits) -> Arc<Self> {
        Arc::new(Self {
            number,
            kind,
            readable,
            limits,
            inner: Mutex::default(),
        })
    }

    /// The event that carries nothing but where to go on from (2025-11-25, transports), and after which pause.
    pub fn priming(&self, retry: Duration) -> Bytes {
        let id = Some(format!("{}-0", self.number));
        encode_event(&SseEvent {
            id,
            retry: Some(retry),
            ..SseEvent::default()
        })
        .into()
    }

    /// Ends the stream, after `last` where there is one.
    pub fn finish(&self, last: Option<Vec<u8>>) {
        let waker = {
            let mut inner = self.inner.lock();
            if let Some(last) = last {
                self.append(&mut inner, last);
            }
            inner.finished = true;
            inner.waker.take()
        };
        wake(waker);
    }

    pub fn is_finished(&self) -> bool {
        self.inner.lock().finished
    }

    /// Ready when there is something to read.
    pub fn poll_begun(&self, cx: &Context<'_>) -> Poll<()> {
        let mut inner = self.inner.lock();
        if !inner.events.is_empty() || inner.finished {
            return Poll::Ready(());
        }
        inner.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Reads from after event `after` on, or from the first that nobody has read. Whoever read before reads no more. `None` where
    /// what follows isn't kept any more, or never was.
    pub fn read(self: &Arc<Self>, after: Option<u64>) -> Option<Reader> {
        let (reader, waker) = {
            let mut inner = self.inner.lock();
            let next = after.unwrap_or(inner.read.max(inner.gone));
            if next < inner.gone || next > inner.gone + inner.events.len() as u64 || inner.broken {
                return None;
            }
            inner.readers += 1;
            (
                Reader {
                    log: self.clone(),
                    number: inner.readers,
                    next,
                },
                inner.waker.take(),
            )
        };
        wake(waker);
        Some(reader)
    }

    fn append(&self, inner: &mut Inner, message: Vec<u8>) -> bool {
        if inner.finished || inner.broken {
            return false;
        }
        let number = inner.gone + inner.events.len() as u64 + 1;
        let mut event = SseEvent::message(message);
        if self.kind != Kind::Once {
            event.id = Some(format!("{}-{number}", self.number));
        }
        let framed = Bytes::from(encode_event(&event));
        inner.bytes += framed.len();
        inner.events.push_back(framed);
        self.trim(inner);
        !inner.broken
    }

    /// Lets go of what was read long ago; of what wasn't, only where the bound says so.
    fn trim(&self, inner: &mut Inner) {
        let StreamLimits {
            events_max,
            bytes_max,
            replay_bytes_max,
        } = self.limits;
        while inner.events.len() > 1 {
            let was_read = inner.read > inner.gone;
            let unread = inner.gone + inner.events.len() as u64 - inner.read.max(inner.gone);
            let give_way = match was_read {
                true => {
                    inner.bytes > replay_bytes_max
                        || inner.events.len() - unread as usize > events_max
                }
                false => inner.bytes > bytes_max || inner.events.len() > events_max,
            };
            if !give_way {
                return;
            }
            // Nobody is promised what no request caused; of the rest, a gap would be a lie.
            inner.broken |= !was_read && self.kind != Kind::Unsolicited;
            if let Some(event) = inner.events.pop_front() {
                inner.bytes -= event.len();
                inner.gone += 1;
            }
        }
    }
}

impl MessageSink for ReplayBuffer {
    fn send(&self, message: Bytes) -> bool {
        if !self.readable {
            return false;
        }
        let (sent, waker) = {
            let mut inner = self.inner.lock();
            (self.append(&mut inner, message.into()), inner.waker.take())
        };
        wake(waker);
        sent
    }

    fn offer(&self, message: Bytes) -> bool {
        let slow = {
            let inner = self.inner.lock();
            let unread = inner.gone + inner.events.len() as u64 - inner.read.max(inner.gone);
            unread as usize >= self.limits.events_max / 2 || inner.bytes > self.limits.bytes_max / 2
        };
        (!slow || self.kind == Kind::Unsolicited) && self.send(message)
    }

    fn can_ask(&self) -> bool {
        self.readable
    }
}

/// Takes events from a log, in order, each once.
pub(crate) struct Reader {
    log: Arc<ReplayBuffer>,
    number: u64,
    /// How many events it has behind it.
    next: u64,
}

impl Reader {
    /// The next event, framed; `None` where the stream is over, or another reader has taken it; an error where the reader was
    /// too slow: something is lost.
    fn poll_next(&mut self, cx: &Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        // An orderly end would say that nothing is missing.
        let broken = || Poll::Ready(Some(Err(io::ErrorKind::ConnectionAborted.into())));
        let mut inner = self.log.inner.lock();
        if inner.readers != self.number {
            return Poll::Ready(None);
        }
        let Some(at) = self.next.checked_sub(inner.gone) else {
            return broken();
        };
        if let Some(event) = inner.events.get(at as usize).cloned() {
            self.next += 1;
            inner.read = inner.read.max(self.next);
            if self.log.kind == Kind::Once {
                inner.bytes -= event.len();
                inner.gone += 1;
                inner.events.pop_front();
            }
            return Poll::Ready(Some(Ok(event)));
        }
        if inner.broken {
            return broken();
        }
        if inner.finished {
            return Poll::Ready(None);
        }
        inner.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut inner = self.log.inner.lock();
        if inner.readers == self.number {
            inner.waker = None;
        }
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Work for one request. Dropped before it is done, it either ends, which cancels what it caused, or goes on without its
/// connection and leaves its answer in the log.
pub(crate) struct Work {
    running: Option<BoxFuture<'static, Answer>>,
    /// Where its answer goes if it outlives its connection.
    outlives: Option<Arc<ReplayBuffer>>,
}

impl Work {
    pub fn new(running: BoxFuture<'static, Answer>, outlives: Option<Arc<ReplayBuffer>>) -> Self {
        Self {
            running: Some(running),
            outlives,
        }
    }

    /// Ends it now, whatever it was to outlive.
    pub fn ends_here(mut self) {
        self.outlives = None;
    }
}

impl Future for Work {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let Some(running) = &mut self.running else {
            return Poll::Pending;
        };
        let done = std::task::ready!(running.as_mut().poll(cx));
        self.running = None;
        Poll::Ready(done)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let (Some(running), Some(log)) = (self.running.take(), self.outlives.take()) else {
            return;
        };
        // Without a runtime the whole server ends, and the work with it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { log.finish(running.await.body) });
        }
    }
}

/// What a response streams: the events of a log, and the work that ends it.
pub(crate) struct LogEvents {
    reader: Reader,
    work: Option<Work>,
    first: Option<Bytes>,
    /// When the connection is closed though the stream goes on.
    closes: Option<Pin<Box<Sleep>>>,
}

impl LogEvents {
    /// `first` goes before all others; the answer of `work` ends the stream; after `patience` the connection is closed, for the
    /// client to come back.
    pub fn new(
        reader: Reader,
        first: Option<Bytes>,
        work: Option<Work>,
        patience: Option<Duration>,
    ) -> Self {
        Self {
            reader,
            work,
            first,
            closes: patience.map(|patience| Box::pin(sleep(patience))),
        }
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
            this.reader.log.finish(done.body);
        }
        match (this.reader.poll_next(cx), &mut this.closes) {
            (Poll::Pending, Some(closes)) => closes.as_mut().poll(cx).map(|()| None),
            (read, _) => read,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::task::noop_waker_ref;

    use super::*;

    const LIMITS: StreamLimits = StreamLimits {
        events_max: 4,
        bytes_max: 1_000,
        replay_bytes_max: 1_000,
    };

    fn next(reader: &mut Reader) -> Poll<Option<io::Result<Bytes>>> {
        reader.poll_next(&Context::from_waker(noop_waker_ref()))
    }

    fn event(reader: &mut Reader) -> String {
        match next(reader) {
            Poll::Ready(Some(Ok(bytes))) => String::from_utf8(bytes.into()).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Goal: what waits is bounded, and the bound is exact; a reader with a gap is told. Method: the bound, then one
    /// more, for each kind of stream.
    #[test]
    fn waiting_events_are_bounded() {
        for kind in [Kind::Resumable, Kind::Once] {
            let log = ReplayBuffer::new(1, kind, true, LIMITS);
            let mut reader = log.read(None).unwrap();
            assert!((0..4).all(|_| log.send("{}".into())));
            assert!(!log.send("{}".into()));
            assert!(matches!(next(&mut reader), Poll::Ready(Some(Err(_)))));
            assert!(log.read(None).is_none());
            assert!(!log.send("{}".into()));
        }
        let log = ReplayBuffer::new(0, Kind::Unsolicited, true, LIMITS);
        assert!((0..9).all(|_| log.send("{}".into())));
        let mut reader = log.read(None).unwrap();
        for number in 6..=9 {
            assert_eq!(
                event(&mut reader),
                format!("id: 0-{number}\ndata: {{}}\n\n")
            );
        }
        assert!(next(&mut reader).is_pending());
    }

    /// Goal: bytes are bounded as well; one message may be larger than the bound. Method: sizes around it.
    #[test]
    fn waiting_bytes_are_bounded() {
        let log = ReplayBuffer::new(1, Kind::Resumable, true, LIMITS);
        assert!(log.send(vec![b'x'; 5_000].into()));
        let mut reader = log.read(None).unwrap();
        assert!(event(&mut reader).len() > 5_000);
        assert!(log.send("{}".into()));
        // What was read gave way to it.
        assert!(log.read(Some(0)).is_none());
        assert_eq!(event(&mut reader), "id: 1-2\ndata: {}\n\n");
        assert!(log.send(vec![b'x'; 900].into()));
        assert!(!log.send(vec![b'x'; 900].into()));
    }

    /// Goal: what may be lost is left out before it costs the stream. Method: offers without end.
    #[test]
    fn offers_never_break_a_stream() {
        let log = ReplayBuffer::new(1, Kind::Resumable, true, LIMITS);
        assert_eq!((0..100).filter(|_| log.offer("{}".into())).count(), 2);
        assert!(log.send("{}".into()));
        log.finish(Some(b"[]".to_vec()));
        let mut reader = log.read(None).unwrap();
        assert_eq!(
            (0..4)
                .map(|_| event(&mut reader))
                .filter(|event| event.contains("{}"))
                .count(),
            3
        );
        assert!(matches!(next(&mut reader), Poll::Ready(None)));
    }

    /// Goal: text can't forge an event. Method: line ends of each kind in a message.
    #[test]
    fn events_are_not_forged() {
        let log = ReplayBuffer::new(1, Kind::Once, true, LIMITS);
        log.send("{\r\n\n\"id\":1,\revent: x}".into());
        let framed = event(&mut log.read(None).unwrap());
        assert!(
            framed
                .lines()
                .filter(|line| !line.is_empty())
                .all(|line| line.starts_with("data: ")),
            "{framed}"
        );
        assert_eq!(framed.matches("\n\n").count(), 1);
    }
}
