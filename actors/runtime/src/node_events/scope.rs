//! Exchanges and questions in progress.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime};

use callboard_message::{CallId, FailureKind, Principal, TraceContext};
use memchr::memmem::Finder;

use super::NodeEvents;
use super::event::{
    CallOrigin, Exchange, ExchangeEnd, ExchangeKind, NodeEvent, QuestionEnd, QuestionEvent,
};
use super::tally::{CountedEnd, RecordedPart, SeriesName, SeriesPlace};

/// Facts about an exchange that begins.
pub(crate) struct ExchangeStart<'a> {
    pub kind: ExchangeKind,
    pub call: CallId,
    pub trace: TraceContext,
    pub principal: &'a Arc<Principal>,
    pub agent: &'a str,
    pub message: &'a str,
    pub tool: Option<&'a str>,
    pub origin: CallOrigin,
    /// Payload as JSON; empty if it isn't read.
    pub payload: &'a str,
}

/// Exchange in progress. Its end is counted and recorded when it is dropped: with its outcome, or as cancelled if that
/// isn't known.
pub(crate) struct ExchangeScope {
    events: Arc<NodeEvents>,
    began: Instant,
    /// Taken at the end.
    series: Option<SeriesPlace>,
    record: ExchangeRecord,
    failure: Option<FailureKind>,
    is_tool_error: bool,
    reply_bytes: usize,
    reply: Option<Box<str>>,
}

/// Record of an exchange in progress.
enum ExchangeRecord {
    /// All of it: the beginning has been recorded.
    Whole(Arc<Exchange>),
    /// The end, if it fails. The rest is known from the series.
    Failure {
        call: CallId,
        trace: TraceContext,
        principal: Arc<Principal>,
        request_bytes: usize,
    },
}

impl ExchangeScope {
    /// Records the beginning of an exchange. `None` if events aren't read.
    pub fn begin(events: &Arc<NodeEvents>, start: &ExchangeStart<'_>) -> Option<Self> {
        if !events.is_on() {
            return None;
        }
        let series = events.tally.find(&SeriesName {
            kind: start.kind,
            origin: start.origin,
            agent: start.agent,
            message: start.message,
            tool: start.tool,
        });
        let record = match events.records(start.call) {
            true => ExchangeRecord::Whole(record_beginning(events, start)),
            false => ExchangeRecord::Failure {
                call: start.call,
                trace: start.trace,
                principal: start.principal.clone(),
                request_bytes: start.payload.len(),
            },
        };
        Some(Self {
            events: events.clone(),
            began: Instant::now(),
            series: Some(series),
            record,
            failure: Some(FailureKind::Cancelled),
            is_tool_error: false,
            reply_bytes: 0,
            reply: None,
        })
    }

    /// Records the end with the failure, if any, and the reply as JSON.
    pub fn finish(mut self, failure: Option<FailureKind>, reply: &str) {
        let Some(SeriesPlace { series, .. }) = &self.series else {
            return;
        };
        self.failure = failure;
        self.reply_bytes = reply.len();
        self.is_tool_error = failure.is_none() && series.tool.is_some() && is_tool_error(reply);
        if matches!(self.record, ExchangeRecord::Whole(_)) && !reply.is_empty() {
            self.reply = self.events.content(&series.agent, reply);
        }
    }

    /// Returns the exchange as it is recorded at its end; `None` if it isn't.
    fn recorded(&self, place: &SeriesPlace, duration: Duration) -> Option<Arc<Exchange>> {
        let (call, trace, principal, request_bytes) = match &self.record {
            ExchangeRecord::Whole(exchange) => return Some(exchange.clone()),
            ExchangeRecord::Failure {
                call,
                trace,
                principal,
                request_bytes,
            } => (*call, *trace, principal, *request_bytes),
        };
        let has_failed = self.failure.is_some() || self.is_tool_error;
        if !has_failed || !self.events.records_failure(call) {
            return None;
        }
        let series = &place.series;
        Some(Arc::new(Exchange {
            kind: series.kind,
            call,
            trace,
            principal: principal.clone(),
            agent: series.agent.clone(),
            message: series.message.clone(),
            tool: series.tool.clone(),
            origin: series.origin,
            began_at: SystemTime::now() - duration,
            request_bytes,
            content: None,
        }))
    }
}

impl Drop for ExchangeScope {
    fn drop(&mut self) {
        let Some(place) = self.series.take() else {
            return;
        };
        let duration = self.began.elapsed();
        let exchange = self.recorded(&place, duration);
        let counted = CountedEnd {
            failure: self.failure,
            is_tool_error: self.is_tool_error,
            duration,
            recording: match (&self.record, &exchange) {
                (ExchangeRecord::Whole(_), _) => RecordedPart::Whole,
                (_, Some(_)) => RecordedPart::Failure,
                (_, None) => RecordedPart::Nothing,
            },
        };
        self.events.tally.count(place, &counted);
        let Some(exchange) = exchange else { return };
        let end = ExchangeEnd {
            exchange,
            duration,
            failure: self.failure,
            is_tool_error: self.is_tool_error,
            reply_bytes: self.reply_bytes,
            content: self.reply.take(),
        };
        self.events.emit(|| NodeEvent::ExchangeEnded(Box::new(end)));
    }
}

fn record_beginning(events: &NodeEvents, start: &ExchangeStart<'_>) -> Arc<Exchange> {
    let exchange = Arc::new(Exchange {
        kind: start.kind,
        call: start.call,
        trace: start.trace,
        principal: start.principal.clone(),
        agent: start.agent.into(),
        message: start.message.into(),
        tool: start.tool.map(Into::into),
        origin: start.origin,
        began_at: SystemTime::now(),
        request_bytes: start.payload.len(),
        content: events.content(start.agent, start.payload),
    });
    events.emit(|| NodeEvent::ExchangeBegan(exchange.clone()));
    exchange
}

/// Length of the end of a tool result in which `isError` is looked for, in bytes.
const TOOL_ERROR_TAIL_BYTES: usize = 256;

/// Returns whether a tool result has `"isError": true`. The result isn't parsed: the member is looked for at its two
/// ends, where servers write it.
fn is_tool_error(reply: &str) -> bool {
    static MEMBER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"isError\":"));
    let found = |part: &[u8]| {
        let at = MEMBER.find(part).map(|at| at + MEMBER.needle().len());
        let value = at.and_then(|at| part.get(at..)).unwrap_or_default();
        value.trim_ascii_start().starts_with(b"true")
    };
    let bytes = reply.as_bytes();
    let (head, tail) = bytes.split_at(bytes.len().min(TOOL_ERROR_TAIL_BYTES));
    found(head) || found(&tail[tail.len().saturating_sub(TOOL_ERROR_TAIL_BYTES)..])
}

/// Question in progress. Its end is recorded when it is dropped: with its outcome, or as cancelled.
pub(crate) struct QuestionScope {
    events: Arc<NodeEvents>,
    began: Instant,
    end: Option<Box<QuestionEnd>>,
}

impl QuestionScope {
    /// Records that a question has been asked. `None` if events aren't read.
    pub fn begin(
        events: &Arc<NodeEvents>,
        question: impl FnOnce() -> QuestionEvent,
    ) -> Option<Self> {
        if !events.is_on() {
            return None;
        }
        let question = Arc::new(question());
        events.emit(|| NodeEvent::QuestionAsked(question.clone()));
        Some(Self {
            events: events.clone(),
            began: Instant::now(),
            end: Some(Box::new(QuestionEnd {
                question,
                duration: Duration::ZERO,
                failure: Some(FailureKind::Cancelled),
                action: "",
                answered_by: None,
            })),
        })
    }

    /// Records the end of the question.
    pub fn finish(
        mut self,
        failure: Option<FailureKind>,
        action: &'static str,
        answered_by: Option<Arc<Principal>>,
    ) {
        if let Some(end) = &mut self.end {
            (end.failure, end.action, end.answered_by) = (failure, action, answered_by);
        }
    }
}

impl Drop for QuestionScope {
    fn drop(&mut self) {
        if let Some(mut end) = self.end.take() {
            end.duration = self.began.elapsed();
            self.events.emit(|| NodeEvent::QuestionEnded(end));
        }
    }
}
