//! Latest calls of a node with their steps, and the rate of the last minute.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::iter::successors;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use callboard_message::{CallId, Principal};
use callboard_runtime::{
    Exchange, ExchangeEnd, ExchangeKind, PolicyRefusal, QuestionEnd, QuestionEvent, visible,
};

use super::names;
use super::view::{CallLine, CallStep, Timeline};

/// Maximum number of calls that are kept. Beyond it, the oldest that has ended is dropped.
pub(crate) const CALLS_KEPT_MAX: usize = 2_000;
/// Maximum number of running calls that are kept while others have ended. It bounds calls whose end was lost.
const RUNNING_KEPT_MAX: usize = CALLS_KEPT_MAX / 2;
/// Maximum number of steps that are kept of one call. Further ones are counted.
pub(crate) const CALL_STEPS_MAX: usize = 200;
/// Maximum number of steps of all calls that are kept. Beyond it, calls are dropped as for [`CALLS_KEPT_MAX`].
pub(super) const STEPS_KEPT_MAX: usize = 40_000;
/// Maximum size of all requests and replies that are kept, in bytes. Beyond it, calls are dropped as for
/// [`CALLS_KEPT_MAX`].
const CONTENT_KEPT_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Maximum number of open questions that are kept. Beyond it, the oldest is dropped.
pub(super) const QUESTIONS_KEPT_MAX: usize = 1_000;
/// Maximum length of a shown name or reason, in characters. Longer ones are cut.
const SHOWN_CHARS_MAX: usize = 256;
/// Maximum depth of a step in a timeline.
const DEPTH_MAX: usize = 32;

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
pub(super) fn unix_ms(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Returns a duration in milliseconds, in steps of a microsecond.
fn ms(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1_000.0
}

/// Kind of a step. A call is shown by its first step of the least kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum StepKind {
    Inbound,
    Outbound,
    Local,
    Refusal,
    Question,
}

impl StepKind {
    fn of(kind: ExchangeKind) -> Self {
        match kind {
            ExchangeKind::Inbound => Self::Inbound,
            ExchangeKind::Outbound => Self::Outbound,
            ExchangeKind::Local => Self::Local,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Inbound => "inbound",
            Self::Outbound => "outbound",
            Self::Local => "local",
            Self::Refusal => "refusal",
            Self::Question => "question",
        }
    }
}

/// Step of a call.
struct Step {
    kind: StepKind,
    /// Span id; 0 for a refusal, which has no span.
    span: u64,
    parent: Option<u64>,
    at: SystemTime,
    /// `None` while it runs.
    duration: Option<Duration>,
    agent: String,
    target: String,
    protocol: &'static str,
    outcome: &'static str,
    detail: String,
    request_bytes: usize,
    reply_bytes: usize,
    request: Option<Box<str>>,
    reply: Option<Box<str>>,
}

impl Step {
    fn of_exchange(exchange: &Exchange) -> Self {
        let target = exchange.tool.as_deref().unwrap_or(&exchange.message);
        Self {
            kind: StepKind::of(exchange.kind),
            span: exchange.trace.span_id(),
            parent: exchange.trace.parent_id(),
            at: exchange.began_at,
            duration: None,
            agent: shown(&exchange.agent),
            target: shown(target),
            protocol: exchange.origin.protocol,
            outcome: names::RUNNING,
            detail: String::new(),
            request_bytes: exchange.request_bytes,
            reply_bytes: 0,
            request: exchange.content.clone(),
            reply: None,
        }
    }

    fn of_question(question: &QuestionEvent) -> Self {
        Self {
            kind: StepKind::Question,
            span: question.trace.span_id(),
            parent: question.trace.parent_id(),
            at: question.asked_at,
            duration: None,
            agent: shown(&question.agent),
            target: shown(&question.kind),
            protocol: question.origin.protocol,
            outcome: names::RUNNING,
            detail: String::new(),
            request_bytes: 0,
            reply_bytes: 0,
            request: None,
            reply: None,
        }
    }

    fn of_refusal(at: SystemTime, refusal: &PolicyRefusal) -> Self {
        let rules = refusal.rules.join(", ");
        let detail = match rules.is_empty() {
            true => refusal.reason.to_string(),
            false => format!("rules {rules}: {}", refusal.reason),
        };
        Self {
            kind: StepKind::Refusal,
            span: 0,
            parent: None,
            at,
            duration: Some(Duration::ZERO),
            agent: shown(&refusal.agent),
            target: shown(&refusal.message),
            protocol: "",
            outcome: names::failure_name(refusal.kind),
            detail: shown(&detail),
            request_bytes: 0,
            reply_bytes: 0,
            request: None,
            reply: None,
        }
    }

    fn content_bytes(&self) -> usize {
        let sizes = [&self.request, &self.reply].map(|text| text.as_ref().map_or(0, |t| t.len()));
        sizes.iter().sum()
    }

    fn view(&self, began_at: SystemTime, depth: usize, with_content: bool) -> CallStep {
        let start = self.at.duration_since(began_at).unwrap_or_default();
        let content = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
        CallStep {
            kind: self.kind.as_str().to_owned(),
            depth,
            start_ms: ms(start),
            ms: self.duration.map(ms),
            agent: self.agent.clone(),
            target: self.target.clone(),
            protocol: self.protocol.to_owned(),
            outcome: self.outcome.to_owned(),
            detail: self.detail.clone(),
            request_bytes: self.request_bytes,
            reply_bytes: self.reply_bytes,
            span: span_text(Some(self.span).filter(|span| *span != 0)),
            parent: span_text(self.parent),
            request: content(&self.request).filter(|_| with_content),
            reply: content(&self.reply).filter(|_| with_content),
        }
    }
}

fn span_text(span: Option<u64>) -> String {
    span.map(|span| format!("{span:016x}")).unwrap_or_default()
}

/// End of a step.
struct StepEnd {
    kind: StepKind,
    span: u64,
    duration: Duration,
    outcome: &'static str,
    detail: String,
    reply_bytes: usize,
    reply: Option<Box<str>>,
}

/// Step by which a call is shown in a list.
struct CallHead {
    kind: StepKind,
    span: u64,
    at: SystemTime,
    principal: String,
    agent: String,
    target: String,
    protocol: &'static str,
    duration: Option<Duration>,
    outcome: &'static str,
    trace: Option<u128>,
}

impl CallHead {
    fn new(step: &Step, principal: String, trace: Option<u128>) -> Self {
        Self {
            kind: step.kind,
            span: step.span,
            at: step.at,
            principal,
            agent: step.agent.clone(),
            target: step.target.clone(),
            protocol: step.protocol,
            duration: step.duration,
            outcome: step.outcome,
            trace,
        }
    }
}

/// A call with its steps in the order of their events.
struct CallRecord {
    head: CallHead,
    steps: Vec<Step>,
    /// Steps that were left out.
    more: usize,
    /// Questions that wait for an answer.
    open_questions: usize,
    content_bytes: usize,
}

impl CallRecord {
    fn new(head: CallHead) -> Self {
        Self {
            head,
            steps: Vec::new(),
            more: 0,
            open_questions: 0,
            content_bytes: 0,
        }
    }

    fn is_running(&self) -> bool {
        self.head.duration.is_none()
    }

    /// Adds a step, or counts it beyond [`CALL_STEPS_MAX`]. Returns whether it was added.
    fn push(&mut self, mut step: Step) -> bool {
        if self.steps.len() >= CALL_STEPS_MAX {
            self.more += 1;
            return false;
        }
        if step.kind == StepKind::Refusal && self.head.span != 0 {
            step.parent = Some(self.head.span);
        }
        self.content_bytes += step.content_bytes();
        self.steps.push(step);
        true
    }

    /// Ends the step of this kind and span, and the call if it is shown by that step.
    fn finish(&mut self, end: StepEnd) {
        if (self.head.kind, self.head.span) == (end.kind, end.span) {
            self.head.duration = Some(end.duration);
            self.head.outcome = end.outcome;
        }
        if let Some(step) = self.steps.iter_mut().rev().find(|step| end.is_of(step)) {
            self.content_bytes += end.reply.as_ref().map_or(0, |reply| reply.len());
            step.duration = Some(end.duration);
            step.outcome = end.outcome;
            step.detail = end.detail;
            step.reply_bytes = end.reply_bytes;
            step.reply = end.reply;
        }
    }

    fn line(&self, id: CallId) -> CallLine {
        let head = &self.head;
        let outcome = match (self.is_running(), self.open_questions) {
            (true, 0) => names::RUNNING,
            (true, _) => names::ASKS,
            (false, _) => head.outcome,
        };
        let trace = head.trace.map(|trace| format!("{trace:032x}"));
        CallLine {
            call: id.to_string(),
            at_ms: unix_ms(head.at),
            principal: head.principal.clone(),
            agent: head.agent.clone(),
            target: head.target.clone(),
            protocol: head.protocol.to_owned(),
            ms: head.duration.map(ms),
            outcome: outcome.to_owned(),
            trace: trace.unwrap_or_default(),
        }
    }

    fn timeline(&self, id: CallId, with_content: bool) -> Timeline {
        let mut steps: Vec<&Step> = self.steps.iter().collect();
        steps.sort_by_key(|step| step.at);
        let began_at = steps.first().map_or(self.head.at, |step| step.at);
        let spans = steps.iter().filter(|step| step.span != 0);
        let parents: HashMap<u64, Option<u64>> = spans.map(|s| (s.span, s.parent)).collect();
        let depth = |step: &Step| {
            let above = successors(step.parent, |span| parents.get(span).copied().flatten());
            let known = above.take_while(|span| parents.contains_key(span));
            known.take(DEPTH_MAX).count()
        };
        let views = steps.iter().copied();
        let views = views.map(|step| step.view(began_at, depth(step), with_content));
        Timeline {
            line: self.line(id),
            steps: views.collect(),
            more: self.more,
        }
    }
}

impl StepEnd {
    fn is_of(&self, step: &Step) -> bool {
        (step.kind, step.span) == (self.kind, self.span)
    }
}

/// Latest calls by their beginning, within the limits of this module. Ids of calls are ordered by time.
#[derive(Default)]
pub(super) struct CallTable {
    calls: BTreeMap<CallId, CallRecord>,
    running: BTreeSet<CallId>,
    ended: BTreeSet<CallId>,
    steps: usize,
    content_bytes: usize,
    /// Open questions by their ids.
    questions: BTreeMap<CallId, Arc<QuestionEvent>>,
    last_minute: LastMinute,
}

impl CallTable {
    /// Adds an exchange as a step of its call.
    pub fn exchange_began(&mut self, exchange: &Exchange) {
        let step = Step::of_exchange(exchange);
        let principal = shown_principal(&exchange.principal);
        let head = CallHead::new(&step, principal, Some(exchange.trace.trace_id()));
        self.add(exchange.call, head, step);
    }

    /// Ends an exchange. One without a beginning is added first: a local one, or one whose beginning was lost.
    pub fn exchange_ended(&mut self, end: ExchangeEnd) {
        let exchange = &end.exchange;
        let error = names::error_type(end.failure, end.is_tool_error);
        if exchange.kind == ExchangeKind::Inbound {
            let ended_at = exchange.began_at + end.duration;
            self.last_minute
                .record(ended_at, end.duration, error.is_some());
        }
        let step_end = StepEnd {
            kind: StepKind::of(exchange.kind),
            span: exchange.trace.span_id(),
            duration: end.duration,
            outcome: error.unwrap_or(names::OK),
            detail: String::new(),
            reply_bytes: end.reply_bytes,
            reply: end.content,
        };
        if !self.has_step(exchange.call, &step_end) {
            self.exchange_began(exchange);
        }
        self.finish(exchange.call, step_end);
    }

    /// Adds a question as a step of its call.
    pub fn question_asked(&mut self, question: Arc<QuestionEvent>) {
        let step = Step::of_question(&question);
        let principal = shown_principal(&question.principal);
        let head = CallHead::new(&step, principal, Some(question.trace.trace_id()));
        self.add(question.call, head, step);
        if let Some(call) = self.calls.get_mut(&question.call) {
            call.open_questions += 1;
        }
        self.questions.insert(question.id, question);
        if self.questions.len() > QUESTIONS_KEPT_MAX {
            self.questions.pop_first();
        }
    }

    /// Ends a question.
    pub fn question_ended(&mut self, end: &QuestionEnd) {
        let question = &end.question;
        self.questions.remove(&question.id);
        if let Some(call) = self.calls.get_mut(&question.call) {
            call.open_questions = call.open_questions.saturating_sub(1);
        }
        let answered = match end.action {
            "" => names::ANSWERED,
            action => action,
        };
        let answered_by = end.answered_by.as_deref().map(shown_principal);
        let end = StepEnd {
            kind: StepKind::Question,
            span: question.trace.span_id(),
            duration: end.duration,
            outcome: end.failure.map_or(answered, names::failure_name),
            detail: answered_by.unwrap_or_default(),
            reply_bytes: 0,
            reply: None,
        };
        self.finish(question.call, end);
    }

    /// Adds a refusal as a step of its call.
    pub fn refused(&mut self, at: SystemTime, refusal: &PolicyRefusal) {
        let step = Step::of_refusal(at, refusal);
        let head = CallHead::new(&step, shown(&refusal.principal), None);
        self.add(refusal.call, head, step);
    }

    /// Returns calls that are exchanges with peers, newest first, at most `limit`. Each word of `filter` must occur in
    /// the line, whatever its case.
    pub fn lines(&self, filter: &str, limit: usize) -> Vec<CallLine> {
        let filter = filter.to_lowercase();
        let words: Vec<&str> = filter.split_whitespace().collect();
        let calls = self.calls.iter().rev();
        let shown = calls.filter(|(_, call)| call.head.kind != StepKind::Local);
        shown
            .map(|(id, call)| call.line(*id))
            .filter(|line| words.is_empty() || has_words(line, &words))
            .take(limit)
            .collect()
    }

    /// Returns the timeline of a call; `None` if it isn't kept.
    pub fn timeline(&self, call: &str, with_content: bool) -> Option<Timeline> {
        let id: CallId = call.parse().ok()?;
        Some(self.calls.get(&id)?.timeline(id, with_content))
    }

    /// Returns whether a call came from a peer for this agent.
    pub fn is_inbound(&self, call: CallId, agent: &str) -> bool {
        let head = self.calls.get(&call).map(|call| &call.head);
        head.is_some_and(|head| head.kind == StepKind::Inbound && head.agent == shown(agent))
    }

    /// Returns the open questions, oldest first.
    pub fn open_questions(&self) -> Vec<Arc<QuestionEvent>> {
        self.questions.values().cloned().collect()
    }

    /// Returns the number of calls from peers that run.
    pub fn running(&self) -> usize {
        let records = self.running.iter().filter_map(|id| self.calls.get(id));
        records
            .filter(|call| call.head.kind == StepKind::Inbound)
            .count()
    }

    /// Returns rate and latency of calls from peers in the minute before `now`.
    pub fn last_minute(&self, now: SystemTime) -> MinuteSummary {
        self.last_minute.summary(now)
    }

    /// Returns the numbers of kept calls and steps.
    #[cfg(test)]
    pub fn kept(&self) -> (usize, usize) {
        let steps = self.calls.values().map(|call| call.steps.len()).sum();
        (self.calls.len(), steps)
    }

    fn has_step(&self, call: CallId, end: &StepEnd) -> bool {
        let Some(call) = self.calls.get(&call) else {
            return false;
        };
        // Of a call with too many steps each beginning has been counted. Local exchanges have an end alone.
        let is_counted = call.more > 0 && end.kind != StepKind::Local;
        is_counted || call.steps.iter().rev().any(|step| end.is_of(step))
    }

    fn add(&mut self, id: CallId, head: CallHead, step: Step) {
        let call = match self.calls.entry(id) {
            Entry::Vacant(free) => free.insert(CallRecord::new(head)),
            Entry::Occupied(known) => {
                let call = known.into_mut();
                if head.kind < call.head.kind {
                    call.head = head;
                }
                call
            }
        };
        let content_bytes = step.content_bytes();
        if call.push(step) {
            self.steps += 1;
            self.content_bytes += content_bytes;
        }
        self.after_change(id);
    }

    fn finish(&mut self, id: CallId, end: StepEnd) {
        if let Some(call) = self.calls.get_mut(&id) {
            let before = call.content_bytes;
            call.finish(end);
            self.content_bytes += call.content_bytes - before;
            self.after_change(id);
        }
    }

    /// Files a call as running or ended, and drops calls beyond the limits.
    fn after_change(&mut self, id: CallId) {
        let is_running = self.calls.get(&id).is_some_and(CallRecord::is_running);
        let (to, from) = match is_running {
            true => (&mut self.running, &mut self.ended),
            false => (&mut self.ended, &mut self.running),
        };
        from.remove(&id);
        to.insert(id);
        while self.calls.len() > CALLS_KEPT_MAX
            || self.steps > STEPS_KEPT_MAX
            || self.content_bytes > CONTENT_KEPT_BYTES_MAX
        {
            let Some(gone) = self.pop_oldest() else {
                return;
            };
            self.steps = self.steps.saturating_sub(gone.steps.len());
            self.content_bytes = self.content_bytes.saturating_sub(gone.content_bytes);
        }
    }

    /// Removes the oldest call that has ended, or a running one if there are too many of those.
    fn pop_oldest(&mut self) -> Option<CallRecord> {
        let id = match self.running.len() > RUNNING_KEPT_MAX {
            true => self.running.pop_first(),
            false => self.ended.pop_first().or_else(|| self.running.pop_first()),
        };
        self.calls.remove(&id?)
    }
}

fn has_words(line: &CallLine, words: &[&str]) -> bool {
    let CallLine {
        principal,
        agent,
        target,
        outcome,
        trace,
        ..
    } = line;
    let text = format!("{principal} {agent} {target} {outcome} {trace}").to_lowercase();
    words.iter().all(|word| text.contains(word))
}

/// Number of seconds that rates and latencies are computed over.
const MINUTE_S: u64 = 60;
/// Number of buckets of a histogram of durations. Each bound is 2^(1/4) times the one before, so that a percentile is
/// at most 19 % too large.
const LATENCY_BUCKETS: usize = 96;
/// Bound of the first bucket, in milliseconds. That of the last is 12 minutes.
const LATENCY_MIN_MS: f64 = 0.05;
/// Buckets for each doubling of the duration.
const BUCKETS_PER_DOUBLING: f64 = 4.0;
/// Percentile that is shown.
const PERCENTILE: f64 = 0.99;

/// Calls that ended in one second.
#[derive(Clone)]
struct Second {
    /// Seconds since the Unix epoch.
    at: u64,
    calls: u64,
    failures: u64,
    latencies: [u32; LATENCY_BUCKETS],
}

impl Second {
    const fn empty(at: u64) -> Self {
        Self {
            at,
            calls: 0,
            failures: 0,
            latencies: [0; LATENCY_BUCKETS],
        }
    }
}

/// Rate and latency of calls in a minute.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct MinuteSummary {
    /// Calls that ended.
    pub calls: u64,
    /// Calls that failed.
    pub failures: u64,
    /// 99th percentile of their duration, in milliseconds; `None` without any.
    pub p99_ms: Option<f64>,
}

/// Calls of the last minute, by second.
struct LastMinute {
    seconds: Vec<Second>,
}

impl Default for LastMinute {
    fn default() -> Self {
        Self {
            seconds: vec![Second::empty(0); MINUTE_S as usize],
        }
    }
}

impl LastMinute {
    fn record(&mut self, ended_at: SystemTime, duration: Duration, failed: bool) {
        let at = unix_ms(ended_at) / 1_000;
        let Some(second) = self.seconds.get_mut((at % MINUTE_S) as usize) else {
            return;
        };
        if second.at != at {
            *second = Second::empty(at);
        }
        second.calls += 1;
        second.failures += u64::from(failed);
        let doublings = (duration.as_secs_f64() * 1_000.0 / LATENCY_MIN_MS).log2();
        let last = (LATENCY_BUCKETS - 1) as f64;
        let bucket = (doublings * BUCKETS_PER_DOUBLING).ceil().clamp(0.0, last);
        if let Some(count) = second.latencies.get_mut(bucket as usize) {
            *count += 1;
        }
    }

    fn summary(&self, now: SystemTime) -> MinuteSummary {
        let now = unix_ms(now) / 1_000;
        let is_recent = |second: &&Second| second.at <= now && second.at + MINUTE_S > now;
        let mut summary = MinuteSummary::default();
        let mut latencies = [0_u64; LATENCY_BUCKETS];
        for second in self.seconds.iter().filter(is_recent) {
            summary.calls += second.calls;
            summary.failures += second.failures;
            for (sum, count) in latencies.iter_mut().zip(second.latencies) {
                *sum += u64::from(count);
            }
        }
        let wanted = (summary.calls as f64 * PERCENTILE).ceil() as u64;
        let mut passed = 0_u64;
        let bucket = latencies.iter().position(|count| {
            passed += *count;
            wanted > 0 && passed >= wanted
        });
        summary.p99_ms =
            bucket.map(|bucket| LATENCY_MIN_MS * (bucket as f64 / BUCKETS_PER_DOUBLING).exp2());
        summary
    }
}
