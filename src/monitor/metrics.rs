//! Metrics of a node in the format of Prometheus.
//!
//! Histograms grow with the node's counts of exchanges, counters with the events. Gauges about agents are read when they
//! are scraped. Labels are bounded twice: each has at most [`LABEL_VALUES_MAX`] values, and each metric at most
//! [`SERIES_MAX`] combinations of them; agents within the node have limits of their own.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use callboard_message::FailureKind;
use callboard_runtime::{
    AgentSnapshot, DurationCounts, EXCHANGE_DURATION_BOUNDS_MS, ExchangeKind, ExchangeSeries,
    NodeEvent, OutcomeCounts, PolicyRefusal, QuestionEnd, visible,
};
use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::{MetricType, TypedMetric};
use prometheus_client::registry::{Registry, Unit};

use super::names::{self, label, metric};

/// Maximum number of values of a label. Further ones are counted as [`names::OTHER`].
pub(crate) const LABEL_VALUES_MAX: usize = 200;
/// Maximum number of combinations of label values in a metric. Further ones are counted with [`names::OTHER`] in each
/// label.
const SERIES_MAX: usize = 2_000;
/// Maximum length of a label value, in bytes. Longer ones are counted as [`names::OTHER`].
const LABEL_BYTES_MAX: usize = 256;
/// [`AgentEvent::event`](callboard_runtime::AgentEvent) of a restart.
const AGENT_RESTARTED: &str = "restarted";

type Label = (&'static str, Arc<str>);
type LabelSet = Vec<Label>;

/// Values of labels that have been seen, by the name of the label.
#[derive(Default)]
struct LabelValues {
    by_label: HashMap<&'static str, HashMap<Box<str>, Arc<str>>>,
}

impl LabelValues {
    /// Returns a label with the value `text`, or [`names::OTHER`] if the label has too many values.
    fn label(&mut self, name: &'static str, text: &str) -> Label {
        let known = self.by_label.entry(name).or_default();
        if let Some(value) = known.get(text) {
            return (name, value.clone());
        }
        if known.len() >= LABEL_VALUES_MAX || text.len() > LABEL_BYTES_MAX {
            return (name, names::OTHER.into());
        }
        let value: Arc<str> = visible(text).into();
        known.insert(text.into(), value.clone());
        (name, value)
    }
}

/// A metric with its combinations of label values.
struct Series<M> {
    family: Family<LabelSet, M>,
    seen: HashSet<LabelSet>,
}

impl<M: Clone> Series<M> {
    fn new(metric: fn() -> M) -> Self {
        Self {
            family: Family::new_with_constructor(metric),
            seen: HashSet::new(),
        }
    }

    /// Returns a part of the same metric with a limit of its own.
    fn part(&self) -> Self {
        Self {
            family: self.family.clone(),
            seen: HashSet::new(),
        }
    }

    /// Returns the metric with these labels, or the one for combinations beyond [`SERIES_MAX`].
    fn with(&mut self, mut labels: LabelSet) -> M {
        if !self.seen.contains(&labels) {
            if self.seen.len() < SERIES_MAX {
                self.seen.insert(labels.clone());
            } else {
                for (_, value) in &mut labels {
                    *value = names::OTHER.into();
                }
            }
        }
        self.family.get_or_create_owned(&labels)
    }
}

/// Facts about exchanges or questions that choose their series.
#[derive(Clone, Copy)]
struct SeriesKey<'a> {
    kind: ExchangeKind,
    protocol: &'static str,
    method: &'static str,
    error: &'static str,
    agent: &'a str,
    tool: Option<&'a str>,
}

/// Histogram of durations, with the buckets in which the node counts them.
#[derive(Debug, Clone, Default)]
struct DurationHistogram(Arc<Mutex<DurationCounts>>);

impl TypedMetric for DurationHistogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for DurationHistogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let counts = *self.0.lock();
        let bounds = EXCHANGE_DURATION_BOUNDS_MS.iter();
        let bounds = bounds.map(|ms| Duration::from_millis(*ms).as_secs_f64());
        let bounds = bounds.chain(std::iter::once(f64::INFINITY));
        let buckets: Vec<(f64, u64)> = bounds.zip(counts.buckets).collect();
        let sum = counts.sum.as_secs_f64();
        encoder.encode_histogram::<NoLabelSet>(sum, counts.count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

/// Counters and histograms of a node's events.
pub(super) struct NodeMetrics {
    /// Values of labels of exchanges with peers.
    labels: LabelValues,
    /// Values of labels of agents within the node, so that many of them don't displace peers.
    local_labels: LabelValues,
    mcp_server: Series<DurationHistogram>,
    mcp_client: Series<DurationHistogram>,
    a2a_server: Series<DurationHistogram>,
    a2a_client: Series<DurationHistogram>,
    exchanges: Series<DurationHistogram>,
    /// Part of `exchanges` for messages between agents of the node.
    local: Series<DurationHistogram>,
    restarts: Series<Counter>,
    guard_decisions: Series<Counter>,
    policy_refusals: Series<Counter>,
    tasks: Series<Counter>,
    mail_accepted: Counter,
}

impl NodeMetrics {
    /// Creates metrics and the registry that shows them.
    pub fn new() -> (Self, Registry) {
        let exchanges: Series<DurationHistogram> = Series::new(DurationHistogram::default);
        let metrics = Self {
            labels: LabelValues::default(),
            local_labels: LabelValues::default(),
            mcp_server: Series::new(DurationHistogram::default),
            mcp_client: Series::new(DurationHistogram::default),
            a2a_server: Series::new(DurationHistogram::default),
            a2a_client: Series::new(DurationHistogram::default),
            local: exchanges.part(),
            exchanges,
            restarts: Series::new(Counter::default),
            guard_decisions: Series::new(Counter::default),
            policy_refusals: Series::new(Counter::default),
            tasks: Series::new(Counter::default),
            mail_accepted: Counter::default(),
        };
        let registry = metrics.registry();
        (metrics, registry)
    }

    fn registry(&self) -> Registry {
        let mut registry = Registry::default();
        let mut duration = |name: &str, help: &str, series: &Series<DurationHistogram>| {
            registry.register_with_unit(name, help, Unit::Seconds, series.family.clone());
        };
        duration(
            metric::MCP_SERVER_DURATION,
            "Duration of requests from MCP clients",
            &self.mcp_server,
        );
        duration(
            metric::MCP_CLIENT_DURATION,
            "Duration of requests to MCP servers, and of questions to MCP clients",
            &self.mcp_client,
        );
        duration(
            metric::A2A_SERVER_DURATION,
            "Duration of requests from A2A clients",
            &self.a2a_server,
        );
        duration(
            metric::A2A_CLIENT_DURATION,
            "Duration of requests to A2A agents",
            &self.a2a_client,
        );
        duration(
            metric::EXCHANGE_DURATION,
            "Duration of messages between agents of the node, and of other protocols",
            &self.exchanges,
        );
        let mut counter = |name: &str, help: &str, series: &Series<Counter>| {
            registry.register(name, help, series.family.clone());
        };
        counter(metric::RESTARTS, "Restarts of agents", &self.restarts);
        counter(
            metric::GUARD_DECISIONS,
            "Messages that a guard or verifier blocked, by the first rule",
            &self.guard_decisions,
        );
        counter(
            metric::POLICY_REFUSALS,
            "Messages that a policy rejected",
            &self.policy_refusals,
        );
        counter(
            metric::TASKS,
            "Changes of the state of stored tasks, by the new state",
            &self.tasks,
        );
        let help = "Mail messages that were accepted";
        registry.register(metric::MAIL_ACCEPTED, help, self.mail_accepted.clone());
        registry
    }

    /// Counts an event. Exchanges are counted by [`Self::record_exchanges`].
    pub fn record(&mut self, event: &NodeEvent) {
        match event {
            NodeEvent::QuestionEnded(end) => self.record_question(end),
            NodeEvent::Refused { refusal, .. } => self.record_refusal(refusal),
            NodeEvent::Agent { event, .. } if &*event.event == AGENT_RESTARTED => {
                let agent = match &*event.name {
                    "" => event.kind,
                    name => name,
                };
                let labels = vec![self.local_labels.label(label::AGENT, agent)];
                self.restarts.with(labels).inc();
            }
            NodeEvent::Task { change, .. } => {
                let labels = vec![self.labels.label(label::STATE, change.state.as_str())];
                self.tasks.with(labels).inc();
            }
            NodeEvent::Mail { .. } => {
                self.mail_accepted.inc();
            }
            _ => {}
        }
    }

    /// Adds exchanges of a series with the same outcome.
    pub fn record_exchanges(&mut self, series: &ExchangeSeries, ended: &OutcomeCounts) {
        let error = names::error_type(ended.failure, ended.is_tool_error);
        let tool = series.tool.as_deref();
        let histogram = self.histogram(&SeriesKey {
            kind: series.kind,
            protocol: series.origin.protocol,
            method: names::method(&series.origin, &series.message, tool.is_some()),
            error: error.unwrap_or_default(),
            agent: &series.agent,
            tool,
        });
        histogram.0.lock().add(&ended.durations);
    }

    /// Records a question to an MCP client as a request. Those over other protocols are part of a reply.
    fn record_question(&mut self, end: &QuestionEnd) {
        let question = &*end.question;
        if question.origin.protocol != names::PROTOCOL_MCP {
            return;
        }
        let histogram = self.histogram(&SeriesKey {
            kind: ExchangeKind::Outbound,
            protocol: names::PROTOCOL_MCP,
            method: names::question_method(&question.kind),
            error: end.failure.map(names::failure_name).unwrap_or_default(),
            agent: &question.agent,
            tool: None,
        });
        histogram.0.lock().record(end.duration);
    }

    /// Returns the histogram of a key.
    fn histogram(&mut self, key: &SeriesKey<'_>) -> DurationHistogram {
        let labels = match key.kind {
            ExchangeKind::Local => &mut self.local_labels,
            ExchangeKind::Inbound | ExchangeKind::Outbound => &mut self.labels,
        };
        let mut set = vec![
            labels.label(label::AGENT, key.agent),
            labels.label(label::ERROR_TYPE, key.error),
        ];
        match (key.protocol, key.kind) {
            (names::PROTOCOL_MCP, ExchangeKind::Inbound | ExchangeKind::Outbound) => {
                set.push(labels.label(label::MCP_METHOD, key.method));
                set.push(labels.label(label::TOOL, key.tool.unwrap_or_default()));
            }
            (names::PROTOCOL_A2A, ExchangeKind::Inbound | ExchangeKind::Outbound) => {
                set.push(labels.label(label::A2A_METHOD, key.method));
            }
            (protocol, kind) => {
                set.push(labels.label(label::PROTOCOL, protocol));
                set.push(labels.label(label::DIRECTION, direction_name(kind)));
            }
        }
        let series = match (key.protocol, key.kind) {
            (_, ExchangeKind::Local) => &mut self.local,
            (names::PROTOCOL_MCP, ExchangeKind::Inbound) => &mut self.mcp_server,
            (names::PROTOCOL_MCP, ExchangeKind::Outbound) => &mut self.mcp_client,
            (names::PROTOCOL_A2A, ExchangeKind::Inbound) => &mut self.a2a_server,
            (names::PROTOCOL_A2A, ExchangeKind::Outbound) => &mut self.a2a_client,
            (_, ExchangeKind::Inbound | ExchangeKind::Outbound) => &mut self.exchanges,
        };
        series.with(set)
    }

    fn record_refusal(&mut self, refusal: &PolicyRefusal) {
        let kind = names::failure_name(refusal.kind);
        let labels = vec![
            self.labels.label(label::AGENT, &refusal.agent),
            self.labels.label(label::ERROR_TYPE, kind),
            self.labels
                .label(label::DIRECTION, direction_name(refusal.direction)),
        ];
        self.policy_refusals.with(labels).inc();
        if refusal.kind == FailureKind::Blocked {
            let rule = refusal.rules.first().map_or("", String::as_str);
            let labels = vec![
                self.labels.label(label::DECISION, kind),
                self.labels.label(label::RULE, rule),
            ];
            self.guard_decisions.with(labels).inc();
        }
    }
}

fn direction_name(kind: ExchangeKind) -> &'static str {
    match kind {
        ExchangeKind::Inbound => "inbound",
        ExchangeKind::Outbound => "outbound",
        ExchangeKind::Local => "local",
    }
}

/// State of a node at the time of a scrape.
pub(super) struct Scrape<'a> {
    /// Agents in the order in which they get values of labels.
    pub agents: &'a [AgentSnapshot],
    /// Kinds in the topology by the agent's name.
    pub kinds: &'a HashMap<String, String>,
    /// Upstreams that were connected or lost, and whether they are connected.
    pub upstreams: &'a [(String, bool)],
    /// Questions that wait for an answer.
    pub questions: usize,
    /// Messages that were accepted and lost since the start.
    pub dead_letters: u64,
    /// Events that were dropped since the start.
    pub events_dropped: u64,
    /// Exchanges that were counted and not recorded, since the start.
    pub exchanges_unrecorded: u64,
    /// Start of the node.
    pub started_at: SystemTime,
}

/// Returns all metrics as text, with those of `scrape`.
pub(super) fn metrics_text(registry: &Registry, scrape: &Scrape<'_>) -> String {
    let mut written = String::new();
    // Writing to a string doesn't fail.
    let _ = text::encode_registry(&mut written, registry);
    let _ = text::encode(&mut written, &scraped_registry(scrape));
    written
}

fn scraped_registry(scrape: &Scrape<'_>) -> Registry {
    let mut registry = Registry::default();
    let mut values = LabelValues::default();
    let (depth, capacity) = (Gauges::default(), Gauges::default());
    for agent in scrape.agents {
        let name = agent.name.as_deref().unwrap_or_default();
        let kind = scrape.kinds.get(name).map_or(agent.kind, String::as_str);
        let labels = vec![
            values.label(label::AGENT, name),
            values.label(label::AGENT_KIND, kind),
        ];
        depth
            .get_or_create(&labels)
            .inc_by(agent.mailbox_depth.into());
        capacity
            .get_or_create(&labels)
            .inc_by(agent.mailbox_capacity.into());
    }
    let up = Gauges::default();
    for (name, is_up) in scrape.upstreams {
        let labels = vec![values.label(label::UPSTREAM, name)];
        up.get_or_create(&labels).inc_by((*is_up).into());
    }
    let mut gauges = |name: &str, help: &str, gauges: Gauges| registry.register(name, help, gauges);
    gauges(
        metric::MAILBOX_DEPTH,
        "Messages in mailboxes, by agent; of agents without a name together by kind",
        depth,
    );
    gauges(
        metric::MAILBOX_CAPACITY,
        "Capacity of mailboxes, by agent; of agents without a name together by kind",
        capacity,
    );
    gauges(metric::UPSTREAM_UP, "Whether an upstream is connected", up);
    let mut counter = |name: &str, help: &str, count| {
        registry.register(name, help, ConstCounter::<u64>::new(count));
    };
    let lost = "Messages that were accepted and lost";
    counter(metric::DEAD_LETTERS, lost, scrape.dead_letters);
    let dropped = "Events that were dropped because the stream was full";
    counter(metric::EVENTS_DROPPED, dropped, scrape.events_dropped);
    let unrecorded = "Messages that were counted and, because of their rate, not recorded";
    counter(
        metric::EXCHANGES_UNRECORDED,
        unrecorded,
        scrape.exchanges_unrecorded,
    );
    let help = "Questions that wait for an answer";
    let questions = i64::try_from(scrape.questions).unwrap_or(i64::MAX);
    registry.register(
        metric::QUESTIONS_WAITING,
        help,
        ConstGauge::<i64>::new(questions),
    );
    register_process(&mut registry, scrape.started_at);
    registry
}

type Gauges = Family<LabelSet, Gauge>;

fn register_process(registry: &mut Registry, started_at: SystemTime) {
    let started = started_at.duration_since(UNIX_EPOCH).unwrap_or_default();
    registry.register_with_unit(
        metric::PROCESS_START_TIME,
        "Start of the node, as time since the Unix epoch",
        Unit::Seconds,
        ConstGauge::<f64>::new(started.as_secs_f64()),
    );
    if let Some(bytes) = resident_memory_bytes() {
        registry.register_with_unit(
            metric::PROCESS_RESIDENT_MEMORY,
            "Memory of the process that is in RAM",
            Unit::Bytes,
            ConstGauge::<u64>::new(bytes),
        );
    }
}

/// Returns the resident memory of this process, in bytes; `None` where the system has no `/proc`.
fn resident_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}
