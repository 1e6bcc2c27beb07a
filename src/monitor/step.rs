//! Steps of calls, and names as they are shown.
//!
//! A step keeps its event as it is, which costs no copy. Its names become text only when they are shown.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use callboard_message::Principal;
use callboard_runtime::{Exchange, ExchangeKind, PolicyRefusal, QuestionEvent, visible};

use super::names;
use super::view::CallStep;

/// Maximum length of a shown name or reason, in characters. Longer ones are cut.
const SHOWN_CHARS_MAX: usize = 256;

/// Returns a name as it is shown: cut, with control and invisible characters escaped.
pub(super) fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => visible(&text[..end]),
        None => visible(text),
    }
}

/// Returns kind and id of a principal as they are shown, such as `api_key:alice`.
pub(super) fn shown_principal(principal: &Principal) -> String {
    shown(&format!("{}:{}", principal.kind, principal.id))
}

/// Returns a time in milliseconds since the Unix epoch; 0 for an earlier one.
pub(crate) fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Returns a duration in milliseconds, in steps of a microsecond.
pub(super) fn ms(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1_000.0
}

/// Kind of a step. A call is shown by its first step of the least kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StepKind {
    /// Exchange with a peer that sent the message.
    Inbound,
    /// Exchange with a peer that got the message.
    Outbound,
    /// Exchange between agents of the node.
    Local,
    /// Refusal of a policy.
    Refusal,
    /// Question to the caller.
    Question,
}

impl StepKind {
    /// Returns the kind of an exchange as a step.
    pub fn of(kind: ExchangeKind) -> Self {
        match kind {
            ExchangeKind::Inbound => Self::Inbound,
            ExchangeKind::Outbound => Self::Outbound,
            ExchangeKind::Local => Self::Local,
        }
    }

    /// Returns the name in [`CallStep::kind`].
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inbound => "inbound",
            Self::Outbound => "outbound",
            Self::Local => "local",
            Self::Refusal => "refusal",
            Self::Question => "question",
        }
    }
}

/// Event that began a step.
#[derive(Clone)]
pub(super) enum StepEvent {
    /// Beginning of an exchange.
    Exchange(Arc<Exchange>),
    /// Question.
    Question(Arc<QuestionEvent>),
    /// Refusal of a policy.
    Refusal {
        /// Time of the decision.
        at: SystemTime,
        /// Rejected message.
        refusal: Arc<PolicyRefusal>,
    },
}

impl StepEvent {
    /// Returns the kind of the step.
    pub fn kind(&self) -> StepKind {
        match self {
            Self::Exchange(exchange) => StepKind::of(exchange.kind),
            Self::Question(_) => StepKind::Question,
            Self::Refusal { .. } => StepKind::Refusal,
        }
    }

    /// Returns the span id; 0 for a refusal, which has no span.
    pub fn span(&self) -> u64 {
        match self {
            Self::Exchange(exchange) => exchange.trace.span_id(),
            Self::Question(question) => question.trace.span_id(),
            Self::Refusal { .. } => 0,
        }
    }

    /// Returns the id of the span above; `None` without one.
    pub fn parent(&self) -> Option<u64> {
        match self {
            Self::Exchange(exchange) => exchange.trace.parent_id(),
            Self::Question(question) => question.trace.parent_id(),
            Self::Refusal { .. } => None,
        }
    }

    /// Returns the trace id; `None` for a refusal.
    pub fn trace(&self) -> Option<u128> {
        match self {
            Self::Exchange(exchange) => Some(exchange.trace.trace_id()),
            Self::Question(question) => Some(question.trace.trace_id()),
            Self::Refusal { .. } => None,
        }
    }

    /// Returns the time of the event.
    pub fn at(&self) -> SystemTime {
        match self {
            Self::Exchange(exchange) => exchange.began_at,
            Self::Question(question) => question.asked_at,
            Self::Refusal { at, .. } => *at,
        }
    }

    /// Returns the name of the agent or peer, as it came.
    pub fn agent(&self) -> &str {
        match self {
            Self::Exchange(exchange) => &exchange.agent,
            Self::Question(question) => &question.agent,
            Self::Refusal { refusal, .. } => &refusal.agent,
        }
    }

    /// Returns tool, message or kind of the question, as it came.
    pub fn target(&self) -> &str {
        match self {
            Self::Exchange(exchange) => exchange.tool.as_deref().unwrap_or(&exchange.message),
            Self::Question(question) => &question.kind,
            Self::Refusal { refusal, .. } => &refusal.message,
        }
    }

    /// Returns the protocol; empty within the node and for a refusal.
    pub fn protocol(&self) -> &'static str {
        match self {
            Self::Exchange(exchange) => exchange.origin.protocol,
            Self::Question(question) => question.origin.protocol,
            Self::Refusal { .. } => "",
        }
    }

    /// Returns kind and id of the principal as they are shown.
    pub fn principal(&self) -> String {
        match self {
            Self::Exchange(exchange) => shown_principal(&exchange.principal),
            Self::Question(question) => shown_principal(&question.principal),
            Self::Refusal { refusal, .. } => shown(&refusal.principal),
        }
    }

    /// Returns ids of the rules of a refusal, and its reason; empty for others.
    fn detail(&self) -> String {
        let Self::Refusal { refusal, .. } = self else {
            return String::new();
        };
        let rules = refusal.rules.join(", ");
        match rules.is_empty() {
            true => shown(&refusal.reason),
            false => shown(&format!("rules {rules}: {}", refusal.reason)),
        }
    }

    fn request(&self) -> (usize, Option<&str>) {
        match self {
            Self::Exchange(exchange) => (exchange.request_bytes, exchange.content.as_deref()),
            Self::Question(_) | Self::Refusal { .. } => (0, None),
        }
    }

    /// Returns the size of its texts, in bytes.
    pub fn content_bytes(&self) -> usize {
        let more = match self {
            Self::Exchange(exchange) => exchange.content.as_ref().map_or(0, |text| text.len()),
            Self::Question(_) => 0,
            Self::Refusal { refusal, .. } => {
                let rules: usize = refusal.rules.iter().map(String::len).sum();
                rules + refusal.reason.len() + refusal.principal.len()
            }
        };
        self.agent().len() + self.target().len() + more
    }
}

/// Duration and outcome of what has ended.
#[derive(Clone, Copy)]
pub(super) struct StepEnd {
    /// Time since the beginning.
    pub duration: Duration,
    /// Outcome, as in [`CallStep::outcome`].
    pub outcome: &'static str,
}

/// Step of a call.
#[derive(Clone)]
pub(super) struct Step {
    /// Event that began it.
    pub event: StepEvent,
    /// `None` while it runs.
    pub end: Option<StepEnd>,
    /// Principal that answered a question at a console.
    pub answered_by: Option<Arc<Principal>>,
    /// Size of the reply, in bytes.
    pub reply_bytes: usize,
    /// Reply, cut; `None` if it isn't recorded.
    pub reply: Option<Arc<str>>,
}

impl Step {
    /// Returns a step that runs; a refusal has ended at once.
    pub fn new(event: StepEvent) -> Self {
        let end = match &event {
            StepEvent::Refusal { refusal, .. } => Some(StepEnd {
                duration: Duration::ZERO,
                outcome: names::failure_name(refusal.kind),
            }),
            StepEvent::Exchange(_) | StepEvent::Question(_) => None,
        };
        Self {
            event,
            end,
            answered_by: None,
            reply_bytes: 0,
            reply: None,
        }
    }

    /// Returns the view without depth, and without an outcome while it runs.
    pub fn view(&self, began_at: SystemTime, parent: Option<u64>, with_content: bool) -> CallStep {
        let event = &self.event;
        let start = event.at().duration_since(began_at).unwrap_or_default();
        let (request_bytes, request) = event.request();
        let detail = match &self.answered_by {
            Some(person) => shown_principal(person),
            None => event.detail(),
        };
        CallStep {
            kind: event.kind().as_str().to_owned(),
            depth: 0,
            start_ms: ms(start),
            ms: self.end.map(|end| ms(end.duration)),
            agent: shown(event.agent()),
            target: shown(event.target()),
            protocol: event.protocol().to_owned(),
            outcome: self.end.map_or("", |end| end.outcome).to_owned(),
            detail,
            request_bytes,
            reply_bytes: self.reply_bytes,
            span: span_text(Some(event.span()).filter(|span| *span != 0)),
            parent: span_text(parent),
            request: request.filter(|_| with_content).map(str::to_owned),
            reply: self
                .reply
                .as_deref()
                .filter(|_| with_content)
                .map(str::to_owned),
        }
    }
}

fn span_text(span: Option<u64>) -> String {
    span.map(|span| format!("{span:016x}")).unwrap_or_default()
}

/// End of the step with a kind and a span.
pub(super) struct EndedStep {
    /// Kind of the step.
    pub kind: StepKind,
    /// Span id of the step.
    pub span: u64,
    /// Duration and outcome.
    pub end: StepEnd,
    /// As [`Step::answered_by`].
    pub answered_by: Option<Arc<Principal>>,
    /// As [`Step::reply_bytes`].
    pub reply_bytes: usize,
    /// As [`Step::reply`].
    pub reply: Option<Arc<str>>,
}

impl EndedStep {
    /// Returns whether the step began with this event.
    pub fn is_of(&self, event: &StepEvent) -> bool {
        (event.span(), event.kind()) == (self.span, self.kind)
    }
}
