//! Share of exchanges that are recorded one by one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use callboard_message::CallId;

/// Default of [`NodeEventOptions::recorded_per_second`](super::NodeEventOptions::recorded_per_second), in exchanges.
pub const EXCHANGES_RECORDED_PER_SECOND_DEFAULT: u32 = 2_000;
/// Time over which recorded exchanges are counted.
const RATE_WINDOW: Duration = Duration::from_secs(1);
/// Number of intervals between two readings for which what is left of the limit must do.
const INTERVALS_AHEAD: u64 = 4;

/// Share of calls, chosen by their ids, so that while it stays the same all exchanges of a call are recorded or none.
pub(crate) struct CallShare(AtomicU64);

impl CallShare {
    /// Returns the share of all calls.
    pub const fn all() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }

    /// Returns whether a call belongs to the share.
    pub fn has(&self, call: CallId) -> bool {
        // Widened, because the highest position is a call too.
        let position = u64::from(call.random_bits()) << 32;
        position < self.0.load(Relaxed)
    }

    /// Sets the share so that of as many exchanges as `ended` about `wanted` belong to it.
    fn set(&self, wanted: u64, ended: u64) {
        let share = wanted as f64 / ended.max(1) as f64;
        // Rounded down at 1 and above by the conversion.
        self.0.store((share * u64::MAX as f64) as u64, Relaxed);
    }
}

/// Exchanges that ended between two readings.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct EndedCount {
    /// Number of all.
    pub all: u64,
    /// Number of those that were recorded one by one.
    pub recorded: u64,
}

/// Number of exchanges that were recorded in the last second.
#[derive(Default)]
pub(super) struct RecordingPace {
    window: VecDeque<(Instant, EndedCount)>,
    recorded: u64,
}

impl RecordingPace {
    /// Takes note of exchanges that ended since the last call, and sets the share for the next ones: at the highest rate of the last
    /// second they use a part of what is left of `max` in a second.
    pub fn adjust(&mut self, now: Instant, ended: EndedCount, max: u32, share: &CallShare) {
        self.window.push_back((now, ended));
        self.recorded += ended.recorded;
        while let Some((at, gone)) = self.window.front().copied()
            && now.duration_since(at) >= RATE_WINDOW
        {
            self.window.pop_front();
            self.recorded -= gone.recorded;
        }
        // A burst may come back after a pause.
        let busiest = self.window.iter().map(|(_, ended)| ended.all).max();
        let left = u64::from(max).saturating_sub(self.recorded);
        share.set(left.div_ceil(INTERVALS_AHEAD), busiest.unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: up to the limit each exchange is recorded; above it about as many as the limit, from the first second on; a
    /// second later all again. Method: rates in steps of 50 ms, and calls of which the share is counted.
    #[test]
    fn share_follows_the_rate() {
        let (share, mut pace, began) = (CallShare::all(), RecordingPace::default(), Instant::now());
        let mut second = |at: u32, exchanges: u64| -> u64 {
            let steps = (0..20).map(|step| {
                let calls = (0..exchanges / 20).map(|_| CallId::generate());
                let ended = EndedCount {
                    all: exchanges / 20,
                    recorded: calls.filter(|call| share.has(*call)).count() as u64,
                };
                let now = began + Duration::from_millis(50) * (at * 20 + step);
                pace.adjust(now, ended, 1_000, &share);
                ended.recorded
            });
            steps.sum()
        };
        assert_eq!(second(0, 200), 200);
        let busy = second(1, 40_000);
        assert!(
            (2_000..4_000).contains(&busy),
            "a first step at full rate: {busy}"
        );
        for at in 2..5 {
            let busy = second(at, 40_000);
            assert!((500..1_500).contains(&busy), "{busy}");
        }
        second(5, 0);
        assert_eq!(second(6, 200), 200);
    }

    /// Goal: what is beyond the limit isn't recorded. Method: one more than the limit at once, then the next call.
    #[test]
    fn nothing_is_recorded_beyond_the_limit() {
        let (share, mut pace) = (CallShare::all(), RecordingPace::default());
        let ended = |count| EndedCount {
            all: count,
            recorded: count,
        };
        let now = Instant::now();
        pace.adjust(now, ended(999), 1_000, &share);
        assert!((0..100_000).any(|_| share.has(CallId::generate())));
        pace.adjust(now, ended(1), 1_000, &share);
        assert!((0..100_000).all(|_| !share.has(CallId::generate())));
    }
}
