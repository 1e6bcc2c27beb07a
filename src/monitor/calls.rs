//! Latest calls of a node with their steps.

use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::iter::successors;
use std::sync::Arc;
use std::time::SystemTime;

use callboard_message::CallId;
use callboard_runtime::{Exchange, ExchangeEnd, PolicyRefusal, QuestionEnd, QuestionEvent};

use super::names;
use super::step::{EndedStep, Step, StepEnd, StepEvent, StepKind, ms, shown, unix_ms};
use super::view::{CallLine, Timeline};

/// Maximum number of calls that are kept. Beyond it, the oldest that has ended is dropped.
pub(crate) const CALLS_KEPT_MAX: usize = 2_000;
/// Maximum number of running calls that are spared while others have ended. It bounds calls whose end was lost.
const RUNNING_KEPT_MAX: usize = CALLS_KEPT_MAX / 2;
/// Maximum number of steps that are kept of one call. Further ones are counted.
pub(crate) const CALL_STEPS_MAX: usize = 200;
/// Maximum number of steps of all calls that are kept. Beyond it, calls are dropped as for [`CALLS_KEPT_MAX`].
pub(super) const STEPS_KEPT_MAX: usize = 40_000;
/// Maximum size of all requests, replies and names that are kept, in bytes. Beyond it, calls are dropped as for
/// [`CALLS_KEPT_MAX`].
const CONTENT_KEPT_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Maximum number of open questions that are kept. Beyond it, the oldest is dropped.
pub(super) const QUESTIONS_KEPT_MAX: usize = 1_000;
/// Maximum depth of a step in a timeline.
const DEPTH_MAX: usize = 32;

/// A call as a list shows it: by one of its steps.
#[derive(Clone)]
pub(super) struct CallSummary {
    id: CallId,
    event: StepEvent,
    end: Option<StepEnd>,
    /// Questions that wait for an answer.
    open_questions: usize,
    /// Whether events were lost while it ran, so that its end may be among them.
    is_forgotten: bool,
}

impl CallSummary {
    fn is_running(&self) -> bool {
        self.end.is_none() && !self.is_forgotten
    }

    fn line(&self) -> CallLine {
        let outcome = match self.end {
            Some(end) => end.outcome,
            None if self.is_forgotten => names::UNKNOWN,
            None if self.open_questions > 0 => names::ASKS,
            None => names::RUNNING,
        };
        let trace = self.event.trace().map(|trace| format!("{trace:032x}"));
        CallLine {
            call: self.id.to_string(),
            kind: self.event.kind().as_str().to_owned(),
            at_ms: unix_ms(self.event.at()),
            principal: self.event.principal(),
            agent: shown(self.event.agent()),
            target: shown(self.event.target()),
            protocol: self.event.protocol().to_owned(),
            ms: self.end.map(|end| ms(end.duration)),
            outcome: outcome.to_owned(),
            trace: trace.unwrap_or_default(),
        }
    }
}

/// Returns the lines of calls, newest first, at most `limit`. Each word of `filter` must occur in the line, whatever its
/// case.
pub(super) fn call_lines(mut calls: Vec<CallSummary>, filter: &str, limit: usize) -> Vec<CallLine> {
    let filter = filter.to_lowercase();
    let words: Vec<&str> = filter.split_whitespace().collect();
    calls.sort_unstable_by_key(|call| Reverse(call.id));
    let lines = calls.iter().map(CallSummary::line);
    lines
        .filter(|line| words.is_empty() || has_words(line, &words))
        .take(limit)
        .collect()
}

fn has_words(line: &CallLine, words: &[&str]) -> bool {
    let CallLine {
        call,
        principal,
        agent,
        target,
        protocol,
        outcome,
        trace,
        ..
    } = line;
    let text = format!("{principal} {agent} {target} {protocol} {outcome} {call} {trace}");
    let text = text.to_lowercase();
    words.iter().all(|word| text.contains(word))
}

/// A call with its steps in the order of their events.
#[derive(Clone)]
pub(super) struct CallRecord {
    summary: CallSummary,
    steps: Vec<Step>,
    /// First steps whose ends may have been lost.
    steps_forgotten: usize,
    /// Steps that were left out.
    more: usize,
    content_bytes: usize,
}

impl CallRecord {
    fn new(id: CallId, step: &Step) -> Self {
        Self {
            summary: CallSummary {
                id,
                event: step.event.clone(),
                end: step.end,
                open_questions: 0,
                is_forgotten: false,
            },
            steps: Vec::new(),
            steps_forgotten: 0,
            more: 0,
            content_bytes: 0,
        }
    }

    fn is_running(&self) -> bool {
        self.summary.is_running()
    }

    fn has_step(&self, ended: &EndedStep) -> bool {
        // Of a call with too many steps each beginning has been counted. Local exchanges have an end alone.
        let is_counted = self.more > 0 && ended.kind != StepKind::Local;
        is_counted || self.steps.iter().rev().any(|step| ended.is_of(&step.event))
    }

    /// Adds a step, or counts it beyond [`CALL_STEPS_MAX`]. Returns its size in bytes if it was added.
    fn push(&mut self, step: Step) -> Option<usize> {
        if step.event.kind() < self.summary.event.kind() {
            (self.summary.event, self.summary.end) = (step.event.clone(), step.end);
        }
        if self.steps.len() >= CALL_STEPS_MAX {
            self.more += 1;
            return None;
        }
        let bytes = step.event.content_bytes();
        self.content_bytes += bytes;
        self.steps.push(step);
        Some(bytes)
    }

    /// Ends a step, and the call if it is shown by that step. Returns the size of the reply in bytes.
    fn finish(&mut self, ended: EndedStep) -> usize {
        if ended.is_of(&self.summary.event) {
            self.summary.end = Some(ended.end);
        }
        let mut steps = self.steps.iter_mut().rev();
        let Some(step) = steps.find(|step| ended.is_of(&step.event)) else {
            return 0;
        };
        let bytes = ended.reply.as_ref().map_or(0, |reply| reply.len());
        self.content_bytes += bytes;
        step.end = Some(ended.end);
        step.answered_by = ended.answered_by;
        (step.reply_bytes, step.reply) = (ended.reply_bytes, ended.reply);
        bytes
    }

    /// Takes note that ends of what runs may have been lost.
    fn forget_open(&mut self) {
        self.summary.is_forgotten |= self.summary.end.is_none();
        self.summary.open_questions = 0;
        self.steps_forgotten = self.steps.len();
    }

    /// Returns the timeline of the call.
    pub fn timeline(&self, with_content: bool) -> Timeline {
        let mut steps: Vec<(usize, &Step)> = self.steps.iter().enumerate().collect();
        steps.sort_by_key(|(_, step)| step.event.at());
        let began_at = steps
            .first()
            .map_or(self.summary.event.at(), |(_, step)| step.event.at());
        let events = self.steps.iter().map(|step| &step.event);
        let parents: HashMap<u64, Option<u64>> = events
            .filter(|event| event.span() != 0)
            .map(|event| (event.span(), event.parent()))
            .collect();
        let depth = |parent: Option<u64>| {
            let above = successors(parent, |span| parents.get(span).copied().flatten());
            let known = above.take_while(|span| parents.contains_key(span));
            known.take(DEPTH_MAX).count()
        };
        let call_span = Some(self.summary.event.span()).filter(|span| *span != 0);
        let views = steps.into_iter().map(|(position, step)| {
            let parent = match step.event.kind() {
                StepKind::Refusal => call_span,
                _ => step.event.parent(),
            };
            let mut view = step.view(began_at, parent, with_content);
            view.depth = depth(parent);
            if step.end.is_none() {
                view.outcome = match position < self.steps_forgotten {
                    true => names::UNKNOWN.to_owned(),
                    false => names::RUNNING.to_owned(),
                };
            }
            view
        });
        Timeline {
            line: self.summary.line(),
            steps: views.collect(),
            more: self.more,
        }
    }
}

/// Latest calls by their beginning, within the limits of this module. Ids of calls are ordered by time.
#[derive(Default)]
pub(super) struct CallTable {
    calls: HashMap<CallId, CallRecord>,
    /// Ids of the calls in the order in which they are dropped.
    order: VecDeque<CallId>,
    /// Calls that run.
    running: usize,
    steps: usize,
    content_bytes: usize,
    /// Open questions by their ids.
    questions: BTreeMap<CallId, Arc<QuestionEvent>>,
}

impl CallTable {
    /// Adds an exchange as a step of its call.
    pub fn exchange_began(&mut self, exchange: Arc<Exchange>) {
        self.add(exchange.call, Step::new(StepEvent::Exchange(exchange)));
    }

    /// Ends an exchange and takes its reply. One without a beginning is added first: a local one, or one whose beginning
    /// was lost or not recorded.
    pub fn exchange_ended(&mut self, end: &mut ExchangeEnd) {
        let exchange = &end.exchange;
        let ended = EndedStep {
            kind: StepKind::of(exchange.kind),
            span: exchange.trace.span_id(),
            end: StepEnd {
                duration: end.duration,
                outcome: names::error_type(end.failure, end.is_tool_error).unwrap_or(names::OK),
            },
            answered_by: None,
            reply_bytes: end.reply_bytes,
            reply: end.content.take().map(Arc::from),
        };
        let call = self.calls.get(&exchange.call);
        if !call.is_some_and(|call| call.has_step(&ended)) {
            self.exchange_began(exchange.clone());
        }
        self.finish(exchange.call, ended);
    }

    /// Adds a question as a step of its call.
    pub fn question_asked(&mut self, question: Arc<QuestionEvent>) {
        let step = Step::new(StepEvent::Question(question.clone()));
        self.add(question.call, step);
        if let Some(call) = self.calls.get_mut(&question.call) {
            call.summary.open_questions += 1;
        }
        self.questions.insert(question.id, question);
        if self.questions.len() > QUESTIONS_KEPT_MAX
            && let Some(oldest) = self.questions.keys().next().copied()
        {
            self.close_question(oldest);
        }
    }

    /// Ends a question.
    pub fn question_ended(&mut self, end: &QuestionEnd) {
        let question = &end.question;
        self.close_question(question.id);
        let answered = match end.action {
            "" => names::ANSWERED,
            action => action,
        };
        let ended = EndedStep {
            kind: StepKind::Question,
            span: question.trace.span_id(),
            end: StepEnd {
                duration: end.duration,
                outcome: end.failure.map_or(answered, names::failure_name),
            },
            answered_by: end.answered_by.clone(),
            reply_bytes: 0,
            reply: None,
        };
        self.finish(question.call, ended);
    }

    /// Adds a refusal as a step of its call.
    pub fn refused(&mut self, at: SystemTime, refusal: PolicyRefusal) {
        let refusal = Arc::new(refusal);
        self.add(refusal.call, Step::new(StepEvent::Refusal { at, refusal }));
    }

    /// Takes note that events were lost: of what runs or waits, it is unknown whether it has ended. Ends that still come
    /// are taken.
    pub fn forget_open(&mut self) {
        self.questions.clear();
        self.calls.values_mut().for_each(CallRecord::forget_open);
        self.running = 0;
    }

    /// Returns the calls that are exchanges with peers or were refused, in any order.
    pub fn summaries(&self) -> Vec<CallSummary> {
        let calls = self.calls.values().map(|call| &call.summary);
        let shown = calls.filter(|call| call.event.kind() != StepKind::Local);
        shown.cloned().collect()
    }

    /// Returns a call; `None` if it isn't kept.
    pub fn record(&self, id: CallId) -> Option<CallRecord> {
        self.calls.get(&id).cloned()
    }

    /// Returns the open questions, oldest first.
    pub fn open_questions(&self) -> Vec<Arc<QuestionEvent>> {
        self.questions.values().cloned().collect()
    }

    /// Returns the number of calls from peers that run.
    pub fn running(&self) -> usize {
        let running = self.calls.values().filter(|call| call.is_running());
        running
            .filter(|call| call.summary.event.kind() == StepKind::Inbound)
            .count()
    }

    /// Returns the numbers of kept calls and steps.
    #[cfg(test)]
    pub fn kept(&self) -> (usize, usize) {
        let steps = self.calls.values().map(|call| call.steps.len()).sum();
        assert_eq!((self.order.len(), self.steps), (self.calls.len(), steps));
        let running = self.calls.values().filter(|call| call.is_running());
        assert_eq!(self.running, running.count());
        (self.calls.len(), steps)
    }

    fn close_question(&mut self, id: CallId) {
        if let Some(question) = self.questions.remove(&id)
            && let Some(call) = self.calls.get_mut(&question.call)
        {
            let open = &mut call.summary.open_questions;
            *open = open.saturating_sub(1);
        }
    }

    fn add(&mut self, id: CallId, step: Step) {
        let (call, was_running) = match self.calls.entry(id) {
            Entry::Vacant(free) => {
                self.order.push_back(id);
                (free.insert(CallRecord::new(id, &step)), false)
            }
            Entry::Occupied(known) => {
                let call = known.into_mut();
                let was_running = call.is_running();
                (call, was_running)
            }
        };
        if let Some(bytes) = call.push(step) {
            self.steps += 1;
            self.content_bytes += bytes;
        }
        let is_running = call.is_running();
        self.count_running(was_running, is_running);
        self.drop_oldest();
    }

    fn finish(&mut self, id: CallId, ended: EndedStep) {
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        let was_running = call.is_running();
        self.content_bytes += call.finish(ended);
        let is_running = call.is_running();
        self.count_running(was_running, is_running);
        self.drop_oldest();
    }

    fn count_running(&mut self, was_running: bool, is_running: bool) {
        self.running += usize::from(is_running);
        self.running = self.running.saturating_sub(usize::from(was_running));
    }

    /// Drops calls beyond the limits.
    fn drop_oldest(&mut self) {
        while self.calls.len() > CALLS_KEPT_MAX
            || self.steps > STEPS_KEPT_MAX
            || self.content_bytes > CONTENT_KEPT_BYTES_MAX
        {
            let Some(gone) = self.pop_oldest() else {
                return;
            };
            self.count_running(gone.is_running(), false);
            self.steps = self.steps.saturating_sub(gone.steps.len());
            self.content_bytes = self.content_bytes.saturating_sub(gone.content_bytes);
        }
    }

    /// Removes the oldest call. One that runs is spared if any has ended, unless too many run.
    fn pop_oldest(&mut self) -> Option<CallRecord> {
        if self.running <= RUNNING_KEPT_MAX && self.running < self.calls.len() {
            let has_ended = |id: &CallId| self.calls.get(id).is_none_or(|call| !call.is_running());
            let spared = self.order.iter().position(has_ended).unwrap_or_default();
            self.order.rotate_left(spared);
        }
        self.calls.remove(&self.order.pop_front()?)
    }
}
