//! Event stream of a node: what its agents, calls and policies do, for consoles, metrics and traces.
//!
//! The stream is off until a reader subscribes, and then costs a caller one relaxed load. It is bounded and lossy: an
//! event that doesn't fit is dropped and counted, so that a slow reader slows nothing down. The reader polls, because a
//! wake-up would cost a caller more than the event.
//!
//! Exchanges are counted exactly, by name and outcome. One by one they are recorded up to a rate: beyond it a share of
//! the calls is recorded, and of the others only what fails. So the cost of a call stays small under load.

mod event;
mod hop;
mod pace;
mod scope;
mod tally;

use std::num::NonZeroU32;
use std::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use callboard_message::text::cut_bytes;
use callboard_message::{CallId, TraceContext};
use pace::{CallShare, EndedCount, RecordingPace};
use tally::ExchangeTally;
use tokio::sync::mpsc;

pub use event::{
    AgentEvent, CallOrigin, Exchange, ExchangeEnd, ExchangeKind, NodeEvent, PolicyRefusal,
    QuestionEnd, QuestionEvent, TaskStateChange, UpstreamChange,
};
pub(crate) use hop::{Hop, HopStart};
pub use pace::EXCHANGES_RECORDED_PER_SECOND_DEFAULT;
pub(crate) use scope::{ExchangeScope, ExchangeStart, QuestionScope};
pub use tally::{
    CountedExchanges, DurationCounts, EXCHANGE_DURATION_BOUNDS_MS, EXCHANGE_SERIES_MAX,
    ExchangeCounts, ExchangeSeries, LatencyCounts, OTHER_SERIES, OutcomeCounts,
};

/// Default capacity of a node's event stream, in events.
pub const NODE_EVENTS_MAX_DEFAULT: usize = 8_192;
/// Maximum size of a recorded request or reply, in bytes. Longer ones are cut.
pub const EVENT_CONTENT_BYTES_MAX: usize = 4 * 1024;

/// Decides whether requests and replies of an agent may be recorded, by the agent's name.
pub type ContentFilter = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Options of a subscription to a node's events.
#[derive(derive_more::Debug, Clone)]
pub struct NodeEventOptions {
    /// Capacity, in events.
    pub capacity: usize,
    /// Agents whose requests and replies are recorded; `None` for none.
    #[debug(skip)]
    pub content: Option<ContentFilter>,
    /// Share of traces that begin here and are marked as sampled, from 0 to 1.
    pub sample_ratio: f64,
    /// Number of exchanges that are recorded one by one in a second, and as many failed ones; `None` for all.
    pub recorded_per_second: Option<NonZeroU32>,
}

impl Default for NodeEventOptions {
    fn default() -> Self {
        Self {
            capacity: NODE_EVENTS_MAX_DEFAULT,
            content: None,
            sample_ratio: 1.0,
            recorded_per_second: NonZeroU32::new(EXCHANGES_RECORDED_PER_SECOND_DEFAULT),
        }
    }
}

/// Event stream of a system. See the module.
pub struct NodeEvents {
    is_on: AtomicBool,
    dropped: AtomicU64,
    stream: OnceLock<Stream>,
    tally: ExchangeTally,
    /// Calls whose exchanges are recorded.
    recorded: CallShare,
    /// Calls whose exchanges are recorded if they fail.
    recorded_failed: CallShare,
}

impl Default for NodeEvents {
    fn default() -> Self {
        Self {
            is_on: AtomicBool::default(),
            dropped: AtomicU64::default(),
            stream: OnceLock::new(),
            tally: ExchangeTally::default(),
            recorded: CallShare::all(),
            recorded_failed: CallShare::all(),
        }
    }
}

struct Stream {
    sender: mpsc::Sender<NodeEvent>,
    content: Option<ContentFilter>,
    sample_ratio: f64,
}

/// The stream has a reader already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the events of this system have a reader already")]
pub struct NodeEventsTaken;

impl NodeEvents {
    /// Turns the stream on and returns its only reader. The stream ends with the reader.
    ///
    /// # Errors
    /// [`NodeEventsTaken`] if there has been a reader before.
    pub fn subscribe(
        self: &Arc<Self>,
        options: NodeEventOptions,
    ) -> Result<NodeEventReader, NodeEventsTaken> {
        let (sender, receiver) = mpsc::channel(options.capacity.max(1));
        let stream = Stream {
            sender,
            content: options.content,
            sample_ratio: options.sample_ratio,
        };
        self.stream.set(stream).map_err(|_| NodeEventsTaken)?;
        self.is_on.store(true, Release);
        Ok(NodeEventReader {
            receiver,
            events: self.clone(),
            pace: RecordingPace::default(),
            failed_pace: RecordingPace::default(),
            recorded_per_second: options.recorded_per_second,
        })
    }

    /// Returns whether events are read.
    pub fn is_on(&self) -> bool {
        self.is_on.load(Acquire)
    }

    /// Returns the number of events that were dropped because the stream was full.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Sends the event that `event` makes, which is called only if events are read. Never blocks.
    pub fn emit(&self, event: impl FnOnce() -> NodeEvent) {
        if !self.is_on() {
            return;
        }
        let Some(stream) = self.stream.get() else {
            return;
        };
        match stream.sender.try_send(event()) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.dropped.fetch_add(1, Relaxed);
            }
            Err(mpsc::error::TrySendError::Closed(_)) => self.is_on.store(false, Release),
        }
    }

    /// Returns whether the exchanges of a call are recorded one by one.
    fn records(&self, call: CallId) -> bool {
        self.recorded.has(call)
    }

    /// Returns whether the exchanges of a call are recorded if they fail.
    fn records_failure(&self, call: CallId) -> bool {
        self.recorded_failed.has(call)
    }

    /// Returns a trace context, of a new trace with the decision whether it is sampled: the same at each node with the
    /// same ratio. A trace that a peer began stays as it is.
    pub(crate) fn sampled(&self, trace: TraceContext) -> TraceContext {
        match self.is_on() && trace.parent_id().is_none() {
            true => trace.with_sampled(self.samples(trace.trace_id())),
            false => trace,
        }
    }

    fn samples(&self, trace_id: u128) -> bool {
        let ratio = self.stream.get().map_or(1.0, |stream| stream.sample_ratio);
        // As the samplers of OpenTelemetry, by the lower 63 bits of the trace id.
        let position = (trace_id as u64 >> 1) as f64 / (u64::MAX >> 1) as f64;
        ratio >= 1.0 || position < ratio
    }

    /// Returns a request or reply as it is recorded; `None` if those of `agent` aren't.
    pub(crate) fn content(&self, agent: &str, text: &str) -> Option<Box<str>> {
        let filter = self.stream.get()?.content.as_ref()?;
        filter(agent).then(|| cut_bytes(text, EVENT_CONTENT_BYTES_MAX).into())
    }
}

/// Reader of a node's events.
pub struct NodeEventReader {
    receiver: mpsc::Receiver<NodeEvent>,
    events: Arc<NodeEvents>,
    pace: RecordingPace,
    failed_pace: RecordingPace,
    recorded_per_second: Option<NonZeroU32>,
}

impl NodeEventReader {
    /// Returns the oldest unread event; `None` if there is none now. Call it again after a pause, for example of 50 ms.
    pub fn try_next(&mut self) -> Option<NodeEvent> {
        self.receiver.try_recv().ok()
    }

    /// Returns the counts of exchanges that ended since the last call. The share of exchanges that are recorded is set by
    /// these calls, so call it about each 50 ms.
    pub fn take_counts(&mut self) -> CountedExchanges {
        let counts = self.events.tally.take();
        if let Some(max) = self.recorded_per_second {
            let (mut all, mut failed) = (EndedCount::default(), EndedCount::default());
            for of in counts.series.iter().flat_map(|counts| &counts.outcomes) {
                let recorded = of.durations.count - of.unrecorded;
                all.all += of.durations.count;
                all.recorded += recorded - of.recorded_as_failed;
                if of.failure.is_some() || of.is_tool_error {
                    failed.all += of.durations.count;
                    failed.recorded += recorded;
                }
            }
            let (now, max) = (Instant::now(), max.get());
            self.pace.adjust(now, all, max, &self.events.recorded);
            let share = &self.events.recorded_failed;
            self.failed_pace.adjust(now, failed, max, share);
        }
        counts
    }
}

impl Drop for NodeEventReader {
    fn drop(&mut self) {
        self.events.is_on.store(false, Release);
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn mail() -> NodeEvent {
        NodeEvent::Mail {
            at: SystemTime::now(),
            from: "a".into(),
            recipients: 1,
        }
    }

    /// Goal: without a reader no event is made; a full stream drops and counts; the stream ends with its reader.
    #[test]
    fn stream_is_bounded_and_ends_with_its_reader() {
        let events = Arc::new(NodeEvents::default());
        events.emit(|| unreachable!("nobody reads"));
        let options = NodeEventOptions {
            capacity: 2,
            ..NodeEventOptions::default()
        };
        let mut reader = events.subscribe(options.clone()).unwrap();
        assert_eq!(events.subscribe(options).err(), Some(NodeEventsTaken));
        (0..3).for_each(|_| events.emit(mail));
        assert_eq!(events.dropped(), 1);
        assert!(reader.try_next().is_some() && reader.try_next().is_some());
        assert!(reader.try_next().is_none());
        events.emit(mail);
        assert!(reader.try_next().is_some());
        drop(reader);
        assert!(!events.is_on());
        events.emit(|| unreachable!("the reader has gone"));
    }

    /// Goal: the share of sampled traces is the ratio; a trace of a peer stays as it is.
    #[test]
    fn traces_are_sampled_by_their_id() {
        let events = Arc::new(NodeEvents::default());
        let options = NodeEventOptions {
            sample_ratio: 0.25,
            ..NodeEventOptions::default()
        };
        let _reader = events.subscribe(options).unwrap();
        let sampled = (0..10_000).filter(|_| events.sampled(TraceContext::root()).is_sampled());
        let sampled = sampled.count();
        assert!((2_200..2_800).contains(&sampled), "{sampled}");
        let of_peer = TraceContext::root().with_sampled(false).child();
        assert!(!events.sampled(of_peer).is_sampled());
    }

    /// Goal: only what the filter permits is recorded, cut at the limit within a character.
    #[test]
    fn content_is_filtered_and_cut() {
        let events = Arc::new(NodeEvents::default());
        let options = NodeEventOptions {
            content: Some(Arc::new(|agent| agent == "open")),
            ..NodeEventOptions::default()
        };
        let _reader = events.subscribe(options).unwrap();
        assert_eq!(events.content("clinic", "x"), None);
        let text = format!("{}é", "a".repeat(EVENT_CONTENT_BYTES_MAX - 1));
        let cut = events.content("open", &text).unwrap();
        assert_eq!(cut.len(), EVENT_CONTENT_BYTES_MAX - 1);
    }
}
