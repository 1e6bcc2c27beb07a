//! Rate and latency of the calls of the last minute.

use std::time::{Duration, SystemTime};

use super::step::unix_ms;

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
pub(super) struct LastMinute {
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
    /// Counts a call that ended.
    pub fn record(&mut self, ended_at: SystemTime, duration: Duration, failed: bool) {
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

    /// Returns rate and latency of the calls in the minute before `now`.
    pub fn summary(&self, now: SystemTime) -> MinuteSummary {
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
