//! Counts of a node's exchanges: exact, also for exchanges that aren't recorded one by one.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, Hash};
use std::sync::Arc;
use std::time::Duration;

use callboard_message::FailureKind;
use callboard_message::capabilities::RESERVED_PREFIX;
use foldhash::fast::RandomState;
use parking_lot::RwLock;

use super::event::{CallOrigin, ExchangeEnd, ExchangeKind};
use crate::sync::Mutex;

/// Bounds of the buckets of [`DurationCounts`], in milliseconds: those that the semantic conventions for MCP advise, and
/// three below for exchanges within the process.
pub const EXCHANGE_DURATION_BOUNDS_MS: [u64; 17] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 120_000,
    300_000,
];
/// Maximum number of series of exchanges. Exchanges of further ones are counted under the name [`OTHER_SERIES`] until a
/// reading has forgotten idle series.
pub const EXCHANGE_SERIES_MAX: usize = 16_384;
/// Number of series from which on a reading forgets idle ones, so that there is room until the next.
const EXCHANGE_SERIES_KEPT: usize = EXCHANGE_SERIES_MAX / 4 * 3;
/// Name of the agent of exchanges beyond [`EXCHANGE_SERIES_MAX`], and of tools that never answered.
pub const OTHER_SERIES: &str = "other";
/// Number of buckets of [`LatencyCounts`]. The bound of the last is above an hour.
const LATENCY_BUCKETS: usize = 128;

/// Names that the exchanges of a series have in common.
#[derive(Debug, Clone, Copy, Hash)]
pub(crate) struct SeriesName<'a> {
    pub kind: ExchangeKind,
    pub origin: CallOrigin,
    pub agent: &'a str,
    pub message: &'a str,
    pub tool: Option<&'a str>,
}

/// Exchanges with the same kind, protocol, agent, message and tool.
#[derive(derive_more::Debug)]
pub struct ExchangeSeries {
    /// Kind of the exchanges.
    pub kind: ExchangeKind,
    /// Protocol of the peer; empty for [`ExchangeKind::Local`].
    pub origin: CallOrigin,
    /// Name by which policies know the agent or peer.
    pub agent: Box<str>,
    /// Name of the message.
    pub message: Box<str>,
    /// Tool that the message calls; `None` if it calls none.
    pub tool: Option<Box<str>>,
    #[debug(skip)]
    ended: Mutex<EndedExchanges>,
}

/// Exchanges of a series that have ended since the last reading.
#[derive(Default)]
struct EndedExchanges {
    by_outcome: Vec<OutcomeCounts>,
    /// Whether the series is in the list of those that have changed.
    is_listed: bool,
}

/// Exchanges with the same outcome.
#[derive(Debug, Clone, Default)]
pub struct OutcomeCounts {
    /// Kind of the failure; `None` if they were answered.
    pub failure: Option<FailureKind>,
    /// Whether the answers are tool results with `isError`.
    pub is_tool_error: bool,
    /// Number of exchanges that weren't recorded one by one.
    pub unrecorded: u64,
    /// Number of those that were recorded only because they failed.
    pub(super) recorded_as_failed: u64,
    /// Durations of all.
    pub durations: DurationCounts,
}

/// Counts of a series since the last reading.
#[derive(Debug)]
pub struct ExchangeCounts {
    /// The series.
    pub series: Arc<ExchangeSeries>,
    /// Exchanges by their outcome.
    pub outcomes: Vec<OutcomeCounts>,
}

/// Counts of all series since the last reading.
#[derive(Debug, Default)]
pub struct CountedExchanges {
    /// Series with exchanges that ended.
    pub series: Vec<ExchangeCounts>,
    /// Durations of all exchanges of [`ExchangeKind::Inbound`].
    pub inbound: LatencyCounts,
}

/// Number and sum of durations, and their numbers by bucket.
#[derive(Debug, Clone, Copy, Default)]
pub struct DurationCounts {
    /// Number of durations.
    pub count: u64,
    /// Sum of the durations.
    pub sum: Duration,
    /// Numbers of the durations up to each of [`EXCHANGE_DURATION_BOUNDS_MS`] and above the one before, then of those above all.
    pub buckets: [u64; EXCHANGE_DURATION_BOUNDS_MS.len() + 1],
}

impl DurationCounts {
    /// Counts a duration.
    pub fn record(&mut self, duration: Duration) {
        self.count += 1;
        self.sum += duration;
        let is_above = |bound: &&u64| duration > Duration::from_millis(**bound);
        let above = EXCHANGE_DURATION_BOUNDS_MS.iter().take_while(is_above);
        if let Some(bucket) = self.buckets.get_mut(above.count()) {
            *bucket += 1;
        }
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
        for (sum, count) in self.buckets.iter_mut().zip(other.buckets) {
            *sum += count;
        }
    }
}

/// Durations by buckets, four for each doubling: a percentile from them is at most 25 % too large.
#[derive(Debug, Clone)]
pub struct LatencyCounts([u64; LATENCY_BUCKETS]);

impl Default for LatencyCounts {
    fn default() -> Self {
        Self([0; LATENCY_BUCKETS])
    }
}

impl LatencyCounts {
    /// Counts a duration.
    pub fn record(&mut self, duration: Duration) {
        let micros = u64::try_from(duration.as_micros())
            .unwrap_or(u64::MAX)
            .max(1);
        let doublings = micros.ilog2();
        // The two bits below the highest one choose the quarter.
        let quarter = (u128::from(micros) << 2 >> doublings) & 3;
        let bucket = 4 * doublings as usize + quarter as usize;
        if let Some(count) = self.0.get_mut(bucket.min(LATENCY_BUCKETS - 1)) {
            *count += 1;
        }
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &Self) {
        for (sum, count) in self.0.iter_mut().zip(other.0) {
            *sum += count;
        }
    }

    /// Returns the duration that the share `quantile` of all durations doesn't exceed; `None` without any.
    pub fn quantile(&self, quantile: f64) -> Option<Duration> {
        let total: u64 = self.0.iter().sum();
        let wanted = (total as f64 * quantile).ceil() as u64;
        let mut passed = 0_u64;
        let bucket = self.0.iter().position(|count| {
            passed += *count;
            wanted > 0 && passed >= wanted
        })?;
        let (doublings, quarter) = (bucket / 4, bucket % 4);
        let micros = ((5 + quarter as u64) << doublings) as f64 / 4.0;
        Some(Duration::from_secs_f64(micros / 1e6))
    }
}

impl ExchangeSeries {
    fn new(name: &SeriesName<'_>) -> Self {
        Self {
            kind: name.kind,
            origin: name.origin,
            agent: name.agent.into(),
            message: name.message.into(),
            tool: name.tool.map(Into::into),
            ended: Mutex::default(),
        }
    }

    fn name(&self) -> SeriesName<'_> {
        SeriesName {
            kind: self.kind,
            origin: self.origin,
            agent: &self.agent,
            message: &self.message,
            tool: self.tool.as_deref(),
        }
    }

    /// Returns whether the exchange shows that its names are real ones, of which there are few: a caller may name any
    /// tool and any message, but only real ones answer.
    fn is_confirmed_by(&self, end: &CountedEnd) -> bool {
        let Some(failure) = end.failure else {
            // Servers answer an unknown tool with an error result.
            return !end.is_tool_error;
        };
        let may_be_invented = matches!(
            failure,
            FailureKind::NotFound | FailureKind::InvalidInput | FailureKind::Denied
        );
        self.kind == ExchangeKind::Local || (self.tool.is_none() && !may_be_invented)
    }
}

impl ExchangeCounts {
    /// Returns the counts of a single exchange.
    pub fn of(end: &ExchangeEnd) -> Self {
        let exchange = &*end.exchange;
        let series = ExchangeSeries::new(&SeriesName {
            kind: exchange.kind,
            origin: exchange.origin,
            agent: &exchange.agent,
            message: &exchange.message,
            tool: exchange.tool.as_deref(),
        });
        let counted = CountedEnd {
            failure: end.failure,
            is_tool_error: end.is_tool_error,
            duration: end.duration,
            recording: RecordedPart::Whole,
        };
        let mut ended = EndedExchanges::default();
        ended.record(&counted);
        Self {
            series: Arc::new(series),
            outcomes: ended.by_outcome,
        }
    }
}

/// End of an exchange, as it is counted.
pub(crate) struct CountedEnd {
    pub failure: Option<FailureKind>,
    pub is_tool_error: bool,
    pub duration: Duration,
    pub recording: RecordedPart,
}

/// Part of an exchange that is recorded on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RecordedPart {
    /// All of it, because its call belongs to the recorded share.
    Whole,
    /// Its end, because it failed.
    Failure,
    /// Nothing.
    Nothing,
}

impl EndedExchanges {
    fn record(&mut self, end: &CountedEnd) {
        let same = |counts: &OutcomeCounts| {
            (counts.failure, counts.is_tool_error) == (end.failure, end.is_tool_error)
        };
        let known = self.by_outcome.iter().position(same);
        let place = known.unwrap_or_else(|| {
            self.by_outcome.push(OutcomeCounts {
                failure: end.failure,
                is_tool_error: end.is_tool_error,
                ..OutcomeCounts::default()
            });
            self.by_outcome.len() - 1
        });
        let Some(counts) = self.by_outcome.get_mut(place) else {
            return;
        };
        counts.durations.record(end.duration);
        match end.recording {
            RecordedPart::Whole => {}
            RecordedPart::Failure => counts.recorded_as_failed += 1,
            RecordedPart::Nothing => counts.unrecorded += 1,
        }
    }
}

/// Series of a node's exchanges, by the hash of their names.
#[derive(Default)]
pub(crate) struct ExchangeTally {
    hasher: RandomState,
    /// The hash alone decides: it is seeded, and two of the series have the same one in one process of a hundred billion.
    series: RwLock<HashMap<u64, Arc<ExchangeSeries>, RandomState>>,
    /// Series with exchanges that ended since the last reading.
    changed: Mutex<Vec<Arc<ExchangeSeries>>>,
    /// Durations of inbound exchanges that ended since the last reading.
    inbound: Mutex<LatencyCounts>,
}

/// Series of an exchange in progress.
pub(crate) struct SeriesPlace {
    pub series: Arc<ExchangeSeries>,
    /// Whether the tally has it. Otherwise it gets it when the exchange shows that its names are real.
    is_known: bool,
}

impl ExchangeTally {
    /// Returns the series of an exchange that begins.
    pub fn find(&self, name: &SeriesName<'_>) -> SeriesPlace {
        let known = self.series.read().get(&self.hasher.hash_one(name)).cloned();
        match known {
            Some(series) => SeriesPlace {
                series,
                is_known: true,
            },
            None => SeriesPlace {
                series: Arc::new(ExchangeSeries::new(name)),
                is_known: false,
            },
        }
    }

    /// Counts the end of an exchange.
    pub fn count(&self, place: SeriesPlace, end: &CountedEnd) {
        let series = match place.is_known {
            true => place.series,
            false => self.register(place.series, end),
        };
        if series.kind == ExchangeKind::Inbound {
            self.inbound.lock().record(end.duration);
        }
        let mut ended = series.ended.lock();
        ended.record(end);
        if !std::mem::replace(&mut ended.is_listed, true) {
            drop(ended);
            self.changed.lock().push(series);
        }
    }

    /// Returns the counts since the last reading.
    pub fn take(&self) -> CountedExchanges {
        self.forget_idle();
        let changed = std::mem::take(&mut *self.changed.lock());
        let counts = changed.into_iter().map(|series| {
            let outcomes = std::mem::take(&mut *series.ended.lock()).by_outcome;
            ExchangeCounts { series, outcomes }
        });
        CountedExchanges {
            series: counts.collect(),
            inbound: std::mem::take(&mut *self.inbound.lock()),
        }
    }

    /// Forgets all series without an exchange in progress or uncounted if there are too many: they begin anew.
    fn forget_idle(&self) {
        if self.series.read().len() >= EXCHANGE_SERIES_KEPT {
            let mut known = self.series.write();
            known.retain(|_, series| Arc::strong_count(series) > 1);
        }
    }

    /// Adds a series, and returns the one that counts its exchanges.
    fn register(&self, series: Arc<ExchangeSeries>, end: &CountedEnd) -> Arc<ExchangeSeries> {
        let is_confirmed = series.is_confirmed_by(end);
        if is_confirmed {
            let mut known = self.series.write();
            let hash = self.hasher.hash_one(series.name());
            let has_room = known.len() < EXCHANGE_SERIES_MAX;
            match known.get(&hash) {
                Some(first) => return first.clone(),
                None if has_room => {
                    known.insert(hash, series.clone());
                    return series;
                }
                None => {}
            }
        }
        // There are few of these: they have no names that a caller chose.
        let has_room = self.series.read().len() < EXCHANGE_SERIES_MAX;
        let other = SeriesName {
            agent: match !is_confirmed && has_room {
                true => &series.agent,
                false => OTHER_SERIES,
            },
            message: RESERVED_PREFIX,
            tool: series.tool.as_ref().map(|_| OTHER_SERIES),
            ..series.name()
        };
        let hash = self.hasher.hash_one(other);
        let mut known = self.series.write();
        let counted = known
            .entry(hash)
            .or_insert_with(|| Arc::new(ExchangeSeries::new(&other)));
        counted.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name<'a>(agent: &'a str, tool: &'a str) -> SeriesName<'a> {
        SeriesName {
            kind: ExchangeKind::Inbound,
            origin: CallOrigin::MCP,
            agent,
            message: "callboard.tools.call",
            tool: Some(tool),
        }
    }

    fn ended(failure: Option<FailureKind>) -> CountedEnd {
        CountedEnd {
            failure,
            is_tool_error: false,
            duration: Duration::from_millis(2),
            recording: RecordedPart::Nothing,
        }
    }

    fn end(tally: &ExchangeTally, name: &SeriesName<'_>, failure: Option<FailureKind>) {
        tally.count(tally.find(name), &ended(failure));
    }

    /// Returns agent, tool, outcome and number of all counts.
    fn taken(tally: &ExchangeTally) -> Vec<String> {
        let counts = tally.take().series.into_iter();
        let lines = counts.flat_map(|ExchangeCounts { series, outcomes }| {
            let line = move |of: &OutcomeCounts| {
                let (agent, tool) = (&series.agent, series.tool.as_deref());
                let (tool, count) = (tool.unwrap_or_default(), of.durations.count);
                assert_eq!(of.unrecorded, count);
                format!("{agent} {tool} {:?} {count}", of.failure)
            };
            outcomes.iter().map(line).collect::<Vec<_>>()
        });
        let mut lines: Vec<String> = lines.collect();
        lines.sort_unstable();
        lines
    }

    /// Goal: exchanges are counted once, by name and outcome; a tool has a series once it has answered. Method: a tool
    /// that fails before and after it has answered; two readings.
    #[test]
    fn tools_are_named_once_they_have_answered() {
        let tally = ExchangeTally::default();
        let create = name("jira", "create");
        let denied = Some(FailureKind::Denied);
        for failure in [denied, None, denied, denied, None] {
            end(&tally, &create, failure);
        }
        let lines = [
            "jira create None 2",
            "jira create Some(Denied) 2",
            "jira other Some(Denied) 1",
        ];
        assert_eq!(taken(&tally), lines);
        assert_eq!(taken(&tally), [""; 0]);
        end(&tally, &create, None);
        assert_eq!(taken(&tally), ["jira create None 1"]);
        let unknown = CountedEnd {
            is_tool_error: true,
            ..ended(None)
        };
        tally.count(tally.find(&name("jira", "invented")), &unknown);
        assert_eq!(taken(&tally), ["jira other None 1"]);
    }

    /// Goal: the number of series is bounded, and nothing beyond is lost. Method: one more agent than the limit, then names
    /// that only a caller has invented.
    #[test]
    fn series_are_bounded() {
        let tally = ExchangeTally::default();
        for n in 0..=EXCHANGE_SERIES_MAX {
            end(&tally, &name(&format!("agent-{n}"), "t"), None);
        }
        let lines = taken(&tally);
        assert_eq!(lines.len(), EXCHANGE_SERIES_MAX + 1);
        assert!(lines.contains(&"other other None 1".to_owned()));
        assert_eq!(taken(&tally), [""; 0]);
        end(&tally, &name("late", "t"), None);
        assert_eq!(taken(&tally), ["late t None 1"]);
        let tally = ExchangeTally::default();
        for n in 0..100 {
            let tool = format!("invented-{n}");
            end(&tally, &name("jira", &tool), Some(FailureKind::NotFound));
        }
        assert_eq!(taken(&tally), ["jira other Some(NotFound) 100"]);
        assert_eq!(tally.series.read().len(), 1);
    }

    /// Goal: a duration is in the bucket of the first bound that it doesn't exceed, and percentiles are at most a quarter too
    /// large. Method: rows at bounds and beside them.
    #[test]
    fn durations_have_buckets() {
        for (micros, bucket) in [
            (0, 0),
            (1_000, 0),
            (1_001, 1),
            (5_000, 2),
            (300_000_001, 17),
        ] {
            let mut counts = DurationCounts::default();
            counts.record(Duration::from_micros(micros));
            assert_eq!(counts.buckets[bucket], 1, "{micros}");
        }
        for micros in [1, 2, 3, 7, 100, 1_023, 1_024, 77_777, 3_000_000_000] {
            let mut latencies = LatencyCounts::default();
            latencies.record(Duration::from_micros(micros));
            let shown = latencies.quantile(0.99).unwrap().as_secs_f64() * 1e6;
            let ratio = shown / micros as f64;
            assert!((1.0..=1.25).contains(&ratio), "{micros}: {shown}");
        }
        assert_eq!(LatencyCounts::default().quantile(0.5), None);
    }
}
