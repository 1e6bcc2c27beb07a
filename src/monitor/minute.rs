//! Rate and latency of the calls of the last minute.

use std::time::SystemTime;

use callboard_runtime::LatencyCounts;

use super::step::unix_ms;

/// Number of seconds that rates and latencies are computed over.
const MINUTE_S: u64 = 60;
/// Share of the calls that last no longer than the shown percentile.
const PERCENTILE: f64 = 0.99;

/// Calls that ended in one second.
#[derive(Clone, Default)]
struct Second {
    /// Seconds since the Unix epoch.
    at: u64,
    calls: u64,
    failures: u64,
    latencies: LatencyCounts,
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
pub(super) struct LastMinute {
    seconds: Vec<Second>,
}

impl Default for LastMinute {
    fn default() -> Self {
        Self {
            seconds: vec![Second::default(); MINUTE_S as usize],
        }
    }
}

impl LastMinute {
    /// Counts calls that ended in the second of `ended_at`.
    pub fn record(&mut self, ended_at: SystemTime, calls: u64, failed: bool) {
        if let Some(second) = self.second(ended_at) {
            second.calls += calls;
            second.failures += if failed { calls } else { 0 };
        }
    }

    /// Adds the durations of calls that ended in the second of `ended_at`.
    pub fn add_latencies(&mut self, ended_at: SystemTime, latencies: &LatencyCounts) {
        if let Some(second) = self.second(ended_at) {
            second.latencies.add(latencies);
        }
    }

    fn second(&mut self, ended_at: SystemTime) -> Option<&mut Second> {
        let at = unix_ms(ended_at) / 1_000;
        let second = self.seconds.get_mut((at % MINUTE_S) as usize)?;
        if second.at != at {
            *second = Second {
                at,
                ..Second::default()
            };
        }
        Some(second)
    }

    /// Returns rate and latency of the calls in the minute before `now`.
    pub fn summary(&self, now: SystemTime) -> MinuteSummary {
        let now = unix_ms(now) / 1_000;
        let is_recent = |second: &&Second| second.at <= now && second.at + MINUTE_S > now;
        let mut summary = MinuteSummary::default();
        let mut latencies = LatencyCounts::default();
        for second in self.seconds.iter().filter(is_recent) {
            summary.calls += second.calls;
            summary.failures += second.failures;
            latencies.add(&second.latencies);
        }
        let percentile = latencies.quantile(PERCENTILE);
        summary.p99_ms = percentile.map(|time| time.as_secs_f64() * 1_000.0);
        summary
    }
}
