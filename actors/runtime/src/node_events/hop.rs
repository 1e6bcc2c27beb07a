//! Exchanges between agents of a node, within a call.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use callboard_message::{CallId, FailureKind, Principal, TraceContext};

use super::NodeEvents;
use super::event::{CallOrigin, Exchange, ExchangeEnd, ExchangeKind, NodeEvent};
use super::tally::{CountedEnd, RecordedPart, SeriesName};
use crate::sync::Mutex;

/// Handler of a message within a call, whose end is recorded as a local exchange.
pub(crate) struct Hop(Mutex<Option<OpenHop>>);

/// Facts about a hop that begins.
pub(crate) struct HopStart {
    pub call: CallId,
    pub trace: TraceContext,
    pub principal: Arc<Principal>,
    /// Name of the agent in the directory; `None` without one.
    pub agent: Option<Arc<str>>,
    pub message: &'static str,
}

struct OpenHop {
    events: Arc<NodeEvents>,
    start: HopStart,
    began: Instant,
}

impl Hop {
    /// Begins a hop.
    pub fn begin(events: &Arc<NodeEvents>, start: HopStart) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(OpenHop {
            events: events.clone(),
            start,
            began: Instant::now(),
        }))))
    }

    /// Leaves the hop's span to an exchange with a peer, so that the hop isn't recorded. Returns false if another
    /// exchange has it already.
    pub fn take_over(&self) -> bool {
        self.0.lock().take().is_some()
    }

    /// Records the end of the hop, with the failure of its handler, if any. Called twice, it does nothing the second
    /// time.
    pub fn finish(&self, failure: Option<FailureKind>) {
        let open = self.0.lock().take();
        let Some(open) = open else { return };
        let (events, start) = (open.events, open.start);
        let duration = open.began.elapsed();
        let recording = match failure {
            _ if events.records(start.call) => RecordedPart::Whole,
            Some(_) if events.records_failure(start.call) => RecordedPart::Failure,
            _ => RecordedPart::Nothing,
        };
        let agent = start.agent.as_deref().unwrap_or_default();
        let place = events.tally.find(&SeriesName {
            kind: ExchangeKind::Local,
            origin: CallOrigin::default(),
            agent,
            message: start.message,
            tool: None,
        });
        let counted = CountedEnd {
            failure,
            is_tool_error: false,
            duration,
            recording,
        };
        events.tally.count(place, &counted);
        if recording == RecordedPart::Nothing {
            return;
        }
        let exchange = Exchange {
            kind: ExchangeKind::Local,
            call: start.call,
            trace: start.trace,
            principal: start.principal,
            agent: agent.into(),
            message: start.message.into(),
            tool: None,
            origin: CallOrigin::default(),
            began_at: SystemTime::now() - duration,
            request_bytes: 0,
            content: None,
        };
        let end = ExchangeEnd {
            exchange: Arc::new(exchange),
            duration,
            failure,
            is_tool_error: false,
            reply_bytes: 0,
            content: None,
        };
        events.emit(|| NodeEvent::ExchangeEnded(Box::new(end)));
    }
}

impl Drop for Hop {
    /// Records a handler that panicked or was dropped before its end.
    fn drop(&mut self) {
        self.finish(Some(match std::thread::panicking() {
            true => FailureKind::Internal,
            false => FailureKind::Cancelled,
        }));
    }
}
