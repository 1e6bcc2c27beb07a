//! Monitor of a node: the only reader of its events, for the console, metrics and traces.
//!
//! Memory is bounded, whatever the number of agents and events.

mod agents;
mod calls;
mod metrics;
mod minute;
pub(crate) mod names;
#[cfg(feature = "otlp")]
pub(crate) mod otlp;
mod step;
#[cfg(test)]
mod tests;
pub(crate) mod view;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

use agents::CallCounts;
use callboard_message::CallId;
use callboard_runtime::{
    ExchangeCounts, ExchangeKind, LatencyCounts, NodeEvent, NodeEventOptions, NodeEventReader,
    NodeEventsTaken, QuestionEvent, System, UpstreamChange, WaitingQuestion,
};
use calls::{CallTable, call_lines};
use futures::future::join_all;
use metrics::{NodeMetrics, Scrape, metrics_text};
use minute::LastMinute;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use serde_json::Value;
pub(crate) use step::unix_ms;
use step::{shown, shown_principal};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout_at};
use tokio_util::sync::CancellationToken;
use view::{AgentView, CallLine, Overview, QuestionView, Timeline, UpstreamView};

/// Time between two readings of the event stream.
const EVENT_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum number of events that are read before other tasks of the thread run.
const EVENTS_PER_TURN_MAX: usize = 64;
/// Maximum number of turns in one reading of the event stream: enough for all events that it holds by default.
const TURNS_PER_POLL_MAX: usize = 1_024;
/// Minimum time between two changes of [`NodeMonitor::changes`].
const CHANGE_INTERVAL: Duration = Duration::from_millis(250);
/// Time after which [`NodeMonitor::changes`] changes without an event: fill of mailboxes and rates have none.
const IDLE_CHANGE_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum time for all upstreams together to tell their state.
const UPSTREAM_STATE_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for which a list of agents that leaves some out counts as current.
const LONG_LIST_TIME: Duration = Duration::from_secs(1);
/// Maximum number of upstreams whose connection is tracked. Further ones aren't.
const UPSTREAMS_TRACKED_MAX: usize = 1_000;

/// Reader of each event of a node before it is counted, such as an exporter of traces.
pub(crate) trait EventSink: Send {
    /// Takes note of an event. Must not block.
    fn event(&mut self, event: &NodeEvent);

    /// Called after each batch of events, at most each 50 ms. Must not block.
    fn flush(&mut self);
}

/// Options of a [`NodeMonitor`].
#[derive(Debug, Clone)]
pub(crate) struct MonitorOptions {
    /// Name of the node.
    pub node: String,
    /// Options of the event stream.
    pub events: NodeEventOptions,
}

/// Handle to the monitor of a node. Clones share it.
#[derive(Clone)]
pub(crate) struct NodeMonitor(Arc<Monitor>);

struct Monitor {
    node: String,
    system: System,
    began: Instant,
    started_at: SystemTime,
    state: Mutex<MonitorState>,
    registry: Registry,
    /// Used by the reading task, and while a sink is added.
    sinks: Mutex<Vec<Box<dyn EventSink>>>,
    changes: watch::Sender<u64>,
    /// Last list of agents and its time, if it left some out.
    long_list: Mutex<Option<(Instant, Arc<Vec<AgentView>>)>>,
    /// Whether requests and replies that were recorded are shown.
    shows_content: AtomicBool,
    /// Cancelled once the reading task has ended.
    ended: CancellationToken,
}

/// Facts about calls, and counts.
struct MonitorState {
    calls: CallTable,
    last_minute: LastMinute,
    counts: CallCounts,
    metrics: NodeMetrics,
    /// Whether an upstream is connected, by name; only those that were connected or lost.
    upstreams_up: BTreeMap<Box<str>, bool>,
    /// Names of the topology's upstreams.
    upstreams: Vec<String>,
    /// Kinds in the topology by the agent's name.
    kinds: Arc<HashMap<String, String>>,
    /// Exchanges that were counted and not recorded, since the start.
    unrecorded: u64,
    /// Whether something has changed since the last change was announced.
    is_changed: bool,
}

impl MonitorState {
    fn new() -> (Self, Registry) {
        let (metrics, registry) = NodeMetrics::new();
        let state = Self {
            calls: CallTable::default(),
            last_minute: LastMinute::default(),
            counts: CallCounts::default(),
            metrics,
            upstreams_up: BTreeMap::new(),
            upstreams: Vec::new(),
            kinds: Arc::default(),
            unrecorded: 0,
            is_changed: true,
        };
        (state, registry)
    }

    fn apply(&mut self, event: NodeEvent) {
        self.is_changed = true;
        self.metrics.record(&event);
        match event {
            NodeEvent::ExchangeBegan(exchange) => self.calls.exchange_began(exchange),
            NodeEvent::ExchangeEnded(mut end) => self.calls.exchange_ended(&mut end),
            NodeEvent::QuestionAsked(question) => self.calls.question_asked(question),
            NodeEvent::QuestionEnded(end) => self.calls.question_ended(&end),
            NodeEvent::Refused { at, refusal } => self.calls.refused(at, *refusal),
            NodeEvent::Upstream { change, .. } => self.upstream_changed(*change),
            _ => {}
        }
    }

    /// Adds counts of exchanges that ended until `now`.
    fn count(&mut self, counts: &ExchangeCounts, now: SystemTime) {
        self.is_changed = true;
        let series = &counts.series;
        for ended in &counts.outcomes {
            self.metrics.record_exchanges(series, ended);
            self.unrecorded += ended.unrecorded;
            let failed = names::error_type(ended.failure, ended.is_tool_error).is_some();
            let calls = ended.durations.count;
            self.counts
                .record(&series.agent, series.kind, calls, failed);
            if series.kind == ExchangeKind::Inbound {
                self.last_minute.record(now, calls, failed);
            }
        }
    }

    fn upstream_changed(&mut self, UpstreamChange { server, is_up }: UpstreamChange) {
        let is_tracked = self.upstreams_up.contains_key(&server);
        let has_room = is_tracked || self.upstreams_up.len() < UPSTREAMS_TRACKED_MAX;
        if has_room && !server.is_empty() {
            self.upstreams_up.insert(server, is_up);
        }
    }
}

impl NodeMonitor {
    /// Subscribes to the events of `system` and starts the task that reads them. The task ends with `stop`, after it has
    /// read what is in the stream.
    ///
    /// # Errors
    /// [`NodeEventsTaken`] if the events have a reader already.
    pub fn start(
        system: &System,
        options: MonitorOptions,
        stop: CancellationToken,
    ) -> Result<Self, NodeEventsTaken> {
        let reader = system.node_events().subscribe(options.events)?;
        let monitor = Self::new(system, options.node);
        let reading = monitor.0.clone().read(reader, stop);
        let ended = monitor.0.ended.clone().drop_guard();
        tokio::spawn(async move {
            reading.await;
            drop(ended);
        });
        Ok(monitor)
    }

    fn new(system: &System, node: String) -> Self {
        let (state, registry) = MonitorState::new();
        Self(Arc::new(Monitor {
            node,
            system: system.clone(),
            began: Instant::now(),
            started_at: SystemTime::now(),
            state: Mutex::new(state),
            registry,
            sinks: Mutex::new(Vec::new()),
            changes: watch::Sender::new(0),
            long_list: Mutex::new(None),
            shows_content: AtomicBool::new(true),
            ended: CancellationToken::new(),
        }))
    }

    /// Waits until the reading task has ended, after `stop` of [`Self::start`]: all events are counted, and the sinks
    /// have been dropped.
    pub async fn ended(&self) {
        self.0.ended.cancelled().await;
    }

    /// Returns the system that is monitored.
    pub fn system(&self) -> &System {
        &self.0.system
    }

    /// Adds a sink that gets each event from now on.
    pub fn add_sink(&self, sink: Box<dyn EventSink>) {
        self.0.sinks.lock().push(sink);
    }

    /// Returns a number that grows with each change, at most four times a second, and each 5 s without one.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changes.subscribe()
    }

    /// Sets the names in the directory of the topology's upstreams.
    pub fn set_upstreams(&self, mut names: Vec<String>) {
        names.sort_unstable();
        let kept: HashSet<&str> = names.iter().map(String::as_str).collect();
        let mut state = self.0.state.lock();
        state.upstreams_up.retain(|name, _| kept.contains(&**name));
        drop(kept);
        state.upstreams = names;
        state.is_changed = true;
    }

    /// Sets the kinds of agents in the topology by name.
    pub fn set_kinds(&self, kinds: HashMap<String, String>) {
        let mut state = self.0.state.lock();
        state.kinds = Arc::new(kinds);
        state.is_changed = true;
    }

    /// Returns the summary of the node.
    pub fn overview(&self) -> Overview {
        let questions = self.question_ids().len();
        let state = self.0.state.lock();
        let minute = state.last_minute.summary(SystemTime::now());
        let away = state.upstreams_up.values().filter(|is_up| !**is_up);
        Overview {
            node: shown(&self.0.node),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: self.0.began.elapsed().as_secs(),
            calls_per_minute: minute.calls,
            failures_per_minute: minute.failures,
            p99_ms: minute.p99_ms,
            running: state.calls.running(),
            questions,
            upstreams_away: away.count(),
            dead_letters: self.0.system.dead_letters().count(),
            events_dropped: self.0.system.node_events().dropped(),
            exchanges_unrecorded: state.unrecorded,
        }
    }

    /// Returns the agents in the order of the tree, at most [`agents::AGENTS_SHOWN_MAX`].
    /// If there are more, they are read at most once in [`LONG_LIST_TIME`].
    pub fn agents(&self) -> Arc<Vec<AgentView>> {
        let mut long_list = self.0.long_list.lock();
        if let Some((at, list)) = &*long_list
            && at.elapsed() < LONG_LIST_TIME
        {
            return list.clone();
        }
        let kinds = self.0.state.lock().kinds.clone();
        let all = self.0.system.snapshot();
        let is_long = all.len() > agents::AGENTS_SHOWN_MAX;
        let agents = agents::first_sorted(all, &kinds, agents::AGENTS_SHOWN_MAX);
        let counts = self.0.state.lock().counts.of(&agents);
        let views = agents.into_iter().zip(counts);
        let views = views.map(|(agent, count)| agents::view(agent, count, &kinds));
        let views = Arc::new(views.collect());
        *long_list = is_long.then(|| (Instant::now(), Arc::clone(&views)));
        views
    }

    /// Returns the latest exchanges with peers, newest first, at most `limit`. Each word of `filter` must occur in
    /// principal, agent, target, protocol, outcome, call id or trace.
    pub fn calls(&self, filter: &str, limit: usize) -> Vec<CallLine> {
        let calls = self.0.state.lock().calls.summaries();
        call_lines(calls, filter, limit)
    }

    /// Returns the timeline of a call by its id; `None` if the call isn't kept.
    pub fn timeline(&self, call: &str, with_content: bool) -> Option<Timeline> {
        let id: CallId = call.parse().ok()?;
        let call = self.0.state.lock().calls.record(id)?;
        Some(call.timeline(with_content && self.0.shows_content.load(Relaxed)))
    }

    /// Sets whether requests and replies that were recorded are shown.
    pub fn set_shows_content(&self, shows_content: bool) {
        self.0.shows_content.store(shows_content, Relaxed);
    }

    /// Returns the questions that wait, oldest first: those that can be answered at a console, and those that only the
    /// caller can answer. Text and schema are left out without `with_content`.
    pub fn questions(&self, with_content: bool) -> Vec<QuestionView> {
        let waiting = self.0.system.waiting_questions().list();
        let mut views: BTreeMap<CallId, QuestionView> = waiting
            .iter()
            .map(|question| (question.id, waiting_view(question, with_content)))
            .collect();
        let open = self.0.state.lock().calls.open_questions();
        for question in open {
            let view = views.entry(question.id);
            view.or_insert_with(|| open_view(&question));
        }
        views.into_values().collect()
    }

    fn question_ids(&self) -> HashSet<CallId> {
        let waiting = self.0.system.waiting_questions().list();
        let open = self.0.state.lock().calls.open_questions();
        let open = open.iter().map(|question| question.id);
        waiting.iter().map(|q| q.id).chain(open).collect()
    }

    /// Returns the topology's upstreams by name, with what they tell of themselves within 1 s.
    pub async fn upstreams(&self) -> Vec<UpstreamView> {
        let names: Vec<(String, Option<bool>)> = {
            let state = self.0.state.lock();
            let up = |name: &String| state.upstreams_up.get(name.as_str()).copied();
            let names = state.upstreams.iter();
            names.map(|name| (name.clone(), up(name))).collect()
        };
        let deadline = tokio::time::Instant::now() + UPSTREAM_STATE_TIMEOUT;
        let views = names.into_iter().map(|(name, is_up)| async move {
            let detail = match self.0.system.directory().get(&name) {
                Some(agent) => timeout_at(deadline, agent.observe()).await.ok(),
                None => None,
            };
            upstream_view(&name, is_up, detail.unwrap_or_default())
        });
        join_all(views).await
    }

    /// Returns all metrics in the text format of Prometheus (OpenMetrics).
    pub fn metrics_text(&self) -> String {
        let system = &self.0.system;
        let questions = self.question_ids().len();
        let (kinds, upstreams, exchanges_unrecorded) = {
            let state = self.0.state.lock();
            let up = state.upstreams_up.iter();
            let up: Vec<_> = up.map(|(name, is_up)| (name.to_string(), *is_up)).collect();
            (state.kinds.clone(), up, state.unrecorded)
        };
        let snapshot = agents::first_sorted(system.snapshot(), &kinds, usize::MAX);
        let scrape = Scrape {
            agents: &snapshot,
            kinds: &kinds,
            upstreams: &upstreams,
            questions,
            dead_letters: system.dead_letters().count(),
            events_dropped: system.node_events().dropped(),
            exchanges_unrecorded,
            started_at: self.0.started_at,
        };
        metrics_text(&self.0.registry, &scrape)
    }
}

impl Monitor {
    async fn read(self: Arc<Self>, mut reader: NodeEventReader, stop: CancellationToken) {
        let mut polls = interval(EVENT_POLL_INTERVAL);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut announced_at = Instant::now();
        let mut dropped = 0;
        loop {
            let is_stopped = tokio::select! {
                _ = polls.tick() => false,
                () = stop.cancelled() => true,
            };
            // Before the stream is read: what was dropped by now came after what it holds.
            let dropped_now = self.system.node_events().dropped();
            for _ in 0..TURNS_PER_POLL_MAX {
                if self.read_turn(&mut reader) < EVENTS_PER_TURN_MAX {
                    break;
                }
                tokio::task::yield_now().await;
            }
            if dropped_now != dropped {
                dropped = dropped_now;
                self.forget_open();
            }
            let counted = reader.take_counts();
            for counts in counted.series.chunks(EVENTS_PER_TURN_MAX) {
                self.count(counts);
                tokio::task::yield_now().await;
            }
            self.add_latencies(&counted.inbound);
            self.sinks.lock().iter_mut().for_each(|sink| sink.flush());
            if self.announce(announced_at.elapsed()) {
                announced_at = Instant::now();
            }
            if is_stopped {
                // Sinks end with the events.
                self.sinks.lock().clear();
                return;
            }
        }
    }

    /// Reads at most [`EVENTS_PER_TURN_MAX`] events and returns their number.
    fn read_turn(&self, reader: &mut NodeEventReader) -> usize {
        let Some(first) = reader.try_next() else {
            return 0;
        };
        let mut sinks = self.sinks.lock();
        let mut state = self.state.lock();
        let more = std::iter::from_fn(|| reader.try_next());
        let events = std::iter::once(first).chain(more);
        let mut count = 0;
        for event in events.take(EVENTS_PER_TURN_MAX) {
            sinks.iter_mut().for_each(|sink| sink.event(&event));
            state.apply(event);
            count += 1;
        }
        count
    }

    fn count(&self, counts: &[ExchangeCounts]) {
        let (mut state, now) = (self.state.lock(), SystemTime::now());
        counts.iter().for_each(|counts| state.count(counts, now));
    }

    fn add_latencies(&self, inbound: &LatencyCounts) {
        let mut state = self.state.lock();
        state.last_minute.add_latencies(SystemTime::now(), inbound);
    }

    /// Takes note that events were dropped.
    fn forget_open(&self) {
        let mut state = self.state.lock();
        state.calls.forget_open();
        state.is_changed = true;
    }

    /// Announces a change if there is one and the last is long enough ago. Returns whether it did.
    fn announce(&self, since_last: Duration) -> bool {
        if since_last < CHANGE_INTERVAL {
            return false;
        }
        let is_changed = std::mem::take(&mut self.state.lock().is_changed);
        if !is_changed && since_last < IDLE_CHANGE_INTERVAL {
            return false;
        }
        self.changes.send_modify(|change| *change += 1);
        true
    }
}

fn waiting_view(question: &WaitingQuestion, with_content: bool) -> QuestionView {
    let schema = question.question.schema();
    let can_answer = schema.as_ref().is_some_and(Value::is_object);
    let message = with_content.then(|| question.question.message());
    QuestionView {
        id: question.id.to_string(),
        call: question.call.to_string(),
        at_ms: unix_ms(question.asked_at),
        agent: shown(&question.agent),
        principal: shown_principal(&question.principal),
        message: message.unwrap_or_default(),
        schema: schema.filter(|_| with_content).unwrap_or_default(),
        can_answer,
    }
}

fn open_view(question: &QuestionEvent) -> QuestionView {
    QuestionView {
        id: question.id.to_string(),
        call: question.call.to_string(),
        at_ms: unix_ms(question.asked_at),
        agent: shown(&question.agent),
        principal: shown_principal(&question.principal),
        message: String::new(),
        schema: Value::Null,
        can_answer: false,
    }
}

/// Returns the view of an upstream: its state is the one that it tells, else the one that is known from events.
fn upstream_view(name: &str, is_up: Option<bool>, detail: Value) -> UpstreamView {
    let state = match (detail["state"].as_str(), is_up) {
        (Some(state), _) => shown(state),
        (None, Some(true)) => "connected".to_owned(),
        (None, Some(false)) => "away".to_owned(),
        (None, None) => "unknown".to_owned(),
    };
    UpstreamView {
        name: shown(name),
        state,
        retry_ms: detail["next_try_ms"].as_u64(),
        failures: detail["failures"].as_u64().unwrap_or_default(),
        detail,
    }
}
