//! Buffer of one event stream's messages, until they are read and as long as they can be replayed.

use crate::inbound::response::EncodedResponse;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use callboard_rpc::{BufferAccount, ClosableBuffer, ReaderReservation, SseEvent, encode_event};
use futures::Stream;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use crate::inbound::client_messages::MessageSink;
use crate::inbound::options::StreamLimits;

/// Kind of an event stream, which determines the events that may be dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamKind {
    /// Messages and response of one request. No unread event may be lost, and a client may
    /// reconnect and resume.
    Resumable,
    /// Messages and response of one request, for one reader. Events are dropped once read, so the
    /// client can't resume.
    Once,
    /// Messages that no request caused. At the buffer limits the oldest is dropped.
    Unsolicited,
}

/// Event buffer of one stream. Senders write to it, a [`ReplayReader`] reads from it.
pub(crate) struct ReplayBuffer {
    /// Number of the stream, unique in its session; part of each event's id.
    pub number: u64,
    kind: StreamKind,
    /// False if the client can't read an event stream. Messages are then rejected.
    has_reader: bool,
    limits: StreamLimits,
    inner: Mutex<BufferState>,
    /// Bytes of the events in the node's budget; `None` without one.
    held: Option<ReaderReservation>,
}

#[derive(Default)]
struct BufferState {
    /// Encoded events, oldest first.
    events: VecDeque<Bytes>,
    bytes: usize,
    /// Number of events dropped from the front.
    dropped_events: u64,
    /// Position after the last event that a reader has received, counted from the start of the
    /// stream.
    read_events: u64,
    /// Number of readers opened so far. Only the latest may read.
    readers_opened: u64,
    finished: bool,
    /// True once an unread event of a request's stream was dropped. Readers then get an error.
    broken: bool,
    waker: Option<Waker>,
}

impl ReplayBuffer {
    /// Creates a buffer. Its events count for `account`, which closes the stream if its client
    /// reads too slowly.
    pub fn new(
        number: u64,
        kind: StreamKind,
        readable: bool,
        limits: StreamLimits,
        account: Option<&BufferAccount>,
    ) -> Arc<Self> {
        Arc::new_cyclic(|buffer: &Weak<Self>| Self {
            number,
            kind,
            has_reader: readable,
            limits,
            inner: Mutex::default(),
            held: account.map(|account| account.reader(buffer.clone())),
        })
    }

    /// Counts the bytes of the events after they have changed. Not to be called with a lock on
    /// them.
    fn track_bytes(&self) {
        if let Some(held) = &self.held {
            held.track(|| self.buffered_bytes());
        }
    }

    /// Returns the initial event of a stream: an id to resume from, and the reconnect delay,
    /// without data (2025-11-25, transports).
    pub fn priming_event(&self, retry: Duration) -> Bytes {
        let id = Some(format!("{}-0", self.number));
        encode_event(&SseEvent {
            id,
            retry: Some(retry),
            ..SseEvent::default()
        })
        .into()
    }

    /// Appends the message `last`, if given, and ends the stream.
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
        self.track_bytes();
    }

    pub fn is_finished(&self) -> bool {
        self.inner.lock().finished
    }

    /// Returns ready if the buffer holds an event or the stream has ended; otherwise registers the
    /// waker.
    pub fn poll_readable(&self, cx: &Context<'_>) -> Poll<()> {
        let mut inner = self.inner.lock();
        if !inner.events.is_empty() || inner.finished {
            return Poll::Ready(());
        }
        inner.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Opens a reader after event number `after`, or at the first unread event, and closes the
    /// previous reader. Returns `None` if the following events are no longer buffered or never
    /// existed, or if an unread event was lost.
    pub fn reader_after(self: &Arc<Self>, after: Option<u64>) -> Option<ReplayReader> {
        let (reader, waker) = {
            let mut inner = self.inner.lock();
            let next = after.unwrap_or(inner.read_events.max(inner.dropped_events));
            if next < inner.dropped_events
                || next > inner.dropped_events + inner.events.len() as u64
                || inner.broken
            {
                return None;
            }
            inner.readers_opened += 1;
            (
                ReplayReader {
                    buffer: self.clone(),
                    number: inner.readers_opened,
                    next,
                },
                inner.waker.take(),
            )
        };
        wake(waker);
        Some(reader)
    }

    fn append(&self, inner: &mut BufferState, message: Vec<u8>) -> bool {
        if inner.finished || inner.broken {
            return false;
        }
        let number = inner.dropped_events + inner.events.len() as u64 + 1;
        let mut event = SseEvent::message(message);
        if self.kind != StreamKind::Once {
            event.id = Some(format!("{}-{number}", self.number));
        }
        let framed = Bytes::from(encode_event(&event));
        inner.bytes += framed.len();
        inner.events.push_back(framed);
        self.trim(inner);
        !inner.broken
    }

    /// Drops the oldest events: read ones over the replay limits, and unread ones over the limits
    /// of the stream. The newest event always stays.
    fn trim(&self, inner: &mut BufferState) {
        let StreamLimits {
            events_max,
            bytes_max,
            replay_bytes_max,
        } = self.limits;
        while inner.events.len() > 1 {
            let was_read = inner.read_events > inner.dropped_events;
            let unread = inner.dropped_events + inner.events.len() as u64
                - inner.read_events.max(inner.dropped_events);
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
            // Unsolicited messages may be lost. A stream of a request is broken by a gap.
            inner.broken |= !was_read && self.kind != StreamKind::Unsolicited;
            if let Some(event) = inner.events.pop_front() {
                inner.bytes -= event.len();
                inner.dropped_events += 1;
            }
        }
    }
}

impl MessageSink for ReplayBuffer {
    fn send(&self, message: Bytes) -> bool {
        if !self.has_reader {
            return false;
        }
        // Without the lock, because the bytes that it drops may count.
        let message = Vec::from(message);
        let (sent, waker) = {
            let mut inner = self.inner.lock();
            (self.append(&mut inner, message), inner.waker.take())
        };
        wake(waker);
        self.track_bytes();
        sent
    }

    fn send_lossy(&self, message: Bytes) -> bool {
        let slow = {
            let inner = self.inner.lock();
            let unread = inner.dropped_events + inner.events.len() as u64
                - inner.read_events.max(inner.dropped_events);
            unread as usize >= self.limits.events_max / 2 || inner.bytes > self.limits.bytes_max / 2
        };
        (!slow || self.kind == StreamKind::Unsolicited) && self.send(message)
    }

    fn send_once(&self, message: Bytes) -> bool {
        let is_pending = {
            let inner = self.inner.lock();
            let read = inner.read_events.saturating_sub(inner.dropped_events) as usize;
            let line = [b"\ndata: ", &*message, b"\n\n"].concat();
            let mut unread = inner.events.iter().skip(read);
            unread.any(|event| event.ends_with(&line))
        };
        is_pending || self.send_lossy(message)
    }

    fn can_ask(&self) -> bool {
        self.has_reader
    }
}

impl ClosableBuffer for ReplayBuffer {
    fn buffered_bytes(&self) -> usize {
        self.inner.lock().bytes
    }

    fn close_buffer(&self) {
        let waker = {
            let mut inner = self.inner.lock();
            let end = inner.dropped_events + inner.events.len() as u64;
            inner.broken |= inner.read_events < end && self.kind != StreamKind::Unsolicited;
            inner.dropped_events = end;
            inner.events = VecDeque::new();
            inner.bytes = 0;
            inner.waker.take()
        };
        wake(waker);
        // A stream that goes on is counted anew.
        self.track_bytes();
    }
}

/// Reader of a [`ReplayBuffer`], which returns each event once, in order.
pub(crate) struct ReplayReader {
    buffer: Arc<ReplayBuffer>,
    number: u64,
    /// Position of the next event to read, counted from the start of the stream.
    next: u64,
}

impl ReplayReader {
    /// Returns the next encoded event. Returns `None` if the stream has ended, or if another reader
    /// has been opened. Returns an error if events were lost because the client read too slowly.
    fn poll_next(&mut self, cx: &Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        // An ordinary end would hide the loss.
        let broken = || Poll::Ready(Some(Err(io::ErrorKind::ConnectionAborted.into())));
        let mut inner = self.buffer.inner.lock();
        if inner.readers_opened != self.number {
            return Poll::Ready(None);
        }
        let Some(at) = self.next.checked_sub(inner.dropped_events) else {
            return broken();
        };
        if let Some(event) = inner.events.get(at as usize).cloned() {
            self.next += 1;
            inner.read_events = inner.read_events.max(self.next);
            if self.buffer.kind == StreamKind::Once {
                inner.bytes -= event.len();
                inner.dropped_events += 1;
                inner.events.pop_front();
                drop(inner);
                self.buffer.track_bytes();
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

impl Drop for ReplayReader {
    fn drop(&mut self) {
        let mut inner = self.buffer.inner.lock();
        if inner.readers_opened == self.number {
            inner.waker = None;
        }
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// Execution of one request, polled by the body of its response. If dropped before its end, it is
/// cancelled; with an `answer_buffer` it continues without its connection instead.
pub(crate) struct RequestWork {
    /// `None` once the execution has ended.
    pub running: Option<BoxFuture<'static, EncodedResponse>>,
    /// Buffer that receives the response if the execution outlives its connection.
    pub answer_buffer: Option<Arc<ReplayBuffer>>,
}

impl Drop for RequestWork {
    fn drop(&mut self) {
        let (Some(running), Some(log)) = (self.running.take(), self.answer_buffer.take()) else {
            return;
        };
        // Without a runtime the whole server ends, and the execution with it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { log.finish(running.await.body) });
        }
    }
}

/// Body of a streamed response: the events of a buffer, and the request whose response ends the
/// stream.
pub(crate) struct ReplayStream {
    reader: ReplayReader,
    work: Option<RequestWork>,
    first: Option<Bytes>,
    /// Condition that closes the connection once it has sent what there is, but not the stream: the
    /// client reconnects for the rest.
    closes: Option<BoxFuture<'static, ()>>,
}

impl ReplayStream {
    /// Creates a response body. `first` precedes all events of `reader`. The response of `work`
    /// ends the stream. When `closes` ends the connection is closed, and the client reconnects.
    pub fn new(
        reader: ReplayReader,
        first: Option<Bytes>,
        work: Option<RequestWork>,
        closes: Option<BoxFuture<'static, ()>>,
    ) -> Self {
        Self {
            reader,
            work,
            first,
            closes,
        }
    }
}

impl Stream for ReplayStream {
    type Item = io::Result<Bytes>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if let Some(first) = this.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        if let Some(work) = &mut this.work
            && let Some(running) = &mut work.running
            && let Poll::Ready(done) = running.as_mut().poll(cx)
        {
            work.running = None;
            this.reader.buffer.finish(done.body);
        }
        match (this.reader.poll_next(cx), &mut this.closes) {
            (Poll::Pending, Some(closes)) => closes.as_mut().poll(cx).map(|()| None),
            (read, _) => read,
        }
    }
}

#[cfg(test)]
mod tests {
    use callboard_rpc::{BufferBudget, BufferLimits};
    use futures::task::noop_waker_ref;

    use super::*;

    const LIMITS: StreamLimits = StreamLimits {
        events_max: 4,
        bytes_max: 1_000,
        replay_bytes_max: 1_000,
    };

    fn next(reader: &mut ReplayReader) -> Poll<Option<io::Result<Bytes>>> {
        reader.poll_next(&Context::from_waker(noop_waker_ref()))
    }

    fn event(reader: &mut ReplayReader) -> String {
        match next(reader) {
            Poll::Ready(Some(Ok(bytes))) => String::from_utf8(bytes.into()).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Goal: unread events are bounded, the limit is exact, and a reader with a gap gets an error.
    /// Method: the limit, then one more, for each kind of stream.
    #[test]
    fn waiting_events_are_bounded() {
        for kind in [StreamKind::Resumable, StreamKind::Once] {
            let log = ReplayBuffer::new(1, kind, true, LIMITS, None);
            let mut reader = log.reader_after(None).unwrap();
            assert!((0..4).all(|_| log.send("{}".into())));
            assert!(!log.send("{}".into()));
            assert!(matches!(next(&mut reader), Poll::Ready(Some(Err(_)))));
            assert!(log.reader_after(None).is_none());
            assert!(!log.send("{}".into()));
        }
        let log = ReplayBuffer::new(0, StreamKind::Unsolicited, true, LIMITS, None);
        assert!((0..9).all(|_| log.send("{}".into())));
        let mut reader = log.reader_after(None).unwrap();
        for number in 6..=9 {
            assert_eq!(
                event(&mut reader),
                format!("id: 0-{number}\ndata: {{}}\n\n")
            );
        }
        assert!(next(&mut reader).is_pending());
    }

    /// Goal: bytes are bounded as well; one message may be larger than the limit. Method: sizes
    /// around it.
    #[test]
    fn waiting_bytes_are_bounded() {
        let log = ReplayBuffer::new(1, StreamKind::Resumable, true, LIMITS, None);
        assert!(log.send(vec![b'x'; 5_000].into()));
        let mut reader = log.reader_after(None).unwrap();
        assert!(event(&mut reader).len() > 5_000);
        assert!(log.send("{}".into()));
        // Events already read were dropped for it.
        assert!(log.reader_after(Some(0)).is_none());
        assert_eq!(event(&mut reader), "id: 1-2\ndata: {}\n\n");
        assert!(log.send(vec![b'x'; 900].into()));
        assert!(!log.send(vec![b'x'; 900].into()));
    }

    /// Goal: a buffer counts until it is read or dropped, and a slow reader gets an error, not an
    /// end, once the budget has closed its stream. Method: buffers of one client in a small budget.
    #[test]
    fn budget_closes_the_stream() {
        let budget = BufferBudget::new(BufferLimits {
            bytes_max: 1_000_000,
            principal_percent: 25,
        });
        let account = budget.listener().account(budget.owner(None, None));
        let limits = StreamLimits {
            bytes_max: 1_000_000,
            ..LIMITS
        };
        let new = |kind| ReplayBuffer::new(1, kind, true, limits, Some(&account));
        let event_of = |bytes| vec![b'x'; bytes].into();
        let (read, slow) = (new(StreamKind::Once), new(StreamKind::Resumable));
        assert!(read.send(event_of(200_000)));
        event(&mut read.reader_after(None).unwrap());
        assert_eq!(budget.used_bytes(), 0);
        let mut reader = slow.reader_after(None).unwrap();
        assert!(slow.send(event_of(400_000)));
        assert!(read.send(event_of(90_000)));
        assert!(read.send(event_of(90_000)));
        assert!(matches!(next(&mut reader), Poll::Ready(Some(Err(_)))));
        assert!(!slow.send("{}".into()) && slow.reader_after(None).is_none());
        assert!(event(&mut read.reader_after(None).unwrap()).len() > 90_000);
        assert!(budget.used_bytes() < 200_000);
        drop((read, reader, slow));
        assert_eq!(budget.used_bytes(), 0);
    }

    /// Goal: lossy messages are dropped before they break the stream. Method: lossy messages
    /// without end.
    #[test]
    fn offers_never_break_a_stream() {
        let log = ReplayBuffer::new(1, StreamKind::Resumable, true, LIMITS, None);
        assert_eq!((0..100).filter(|_| log.send_lossy("{}".into())).count(), 2);
        assert!(log.send("{}".into()));
        log.finish(Some(b"[]".to_vec()));
        let mut reader = log.reader_after(None).unwrap();
        assert_eq!(
            (0..4)
                .map(|_| event(&mut reader))
                .filter(|event| event.contains("{}"))
                .count(),
            3
        );
        assert!(matches!(next(&mut reader), Poll::Ready(None)));
    }

    /// Goal: a message that waits to be read isn't queued twice, and is sent again once it was
    /// read. Method: two messages, repeated, of which the last is the end of the first.
    #[test]
    fn waiting_messages_are_not_repeated() {
        let log = ReplayBuffer::new(0, StreamKind::Unsolicited, true, LIMITS, None);
        let (one, two) = (r#"{"a":1}"#, r#"1}"#);
        assert!((0..9).all(|_| log.send_once(one.into()) && log.send_once(two.into())));
        let mut reader = log.reader_after(None).unwrap();
        for sent in [one, two] {
            assert!(event(&mut reader).contains(&format!("data: {sent}\n")));
        }
        assert!(next(&mut reader).is_pending());
        assert!(log.send_once(one.into()));
        assert!(event(&mut reader).contains(one));
    }

    /// Goal: text can't forge an event. Method: line ends of each kind in a message.
    #[test]
    fn events_are_not_forged() {
        let log = ReplayBuffer::new(1, StreamKind::Once, true, LIMITS, None);
        log.send("{\r\n\n\"id\":1,\revent: x}".into());
        let framed = event(&mut log.reader_after(None).unwrap());
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
