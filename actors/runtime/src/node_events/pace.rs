//! Share of exchanges that are recorded one by one.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use callboard_message::CallId;

/// Default of [`NodeEventOptions::recorded_per_second`](super::NodeEventOptions::recorded_per_second), in exchanges.
pub const EXCHANGES_RECORDED_PER_SECOND_DEFAULT: u32 = 2_000;
/// Time over which the rate of exchanges is measured.
const RATE_WINDOW: Duration = Duration::from_secs(1);

/// Share of calls, chosen by their ids, so that all exchanges of a call are recorded or none.
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

    /// Sets the share so that of `ended` exchanges about `max` belong to it.
    fn set(&self, max: u32, ended: u64) {
        let share = f64::from(max) / ended.max(1) as f64;
        // Rounded down at 1 and above by the conversion.
        self.0.store((share * u64::MAX as f64) as u64, Relaxed);
    }
}

/// Rates of a node's exchanges, and of those that failed.
#[derive(Default)]
pub(super) struct Pace {
    window: VecDeque<(Instant, Ended)>,
    sum: Ended,
}

/// Numbers of exchanges that ended.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ended {
    pub all: u64,
    pub failed: u64,
}

impl Pace {
    /// Takes note of exchanges that ended since the last call, and sets the shares for the next ones.
    pub fn adjust(
        &mut self,
        now: Instant,
        ended: Ended,
        max: u32,
        all: &CallShare,
        failed: &CallShare,
    ) {
        self.window.push_back((now, ended));
        self.sum.all += ended.all;
        self.sum.failed += ended.failed;
        while let Some((at, gone)) = self.window.front().copied()
            && now.duration_since(at) >= RATE_WINDOW
        {
            self.window.pop_front();
            self.sum.all -= gone.all;
            self.sum.failed -= gone.failed;
        }
        all.set(max, self.sum.all);
        failed.set(max, self.sum.failed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: up to the limit each exchange is recorded, above it about as many as the limit, and a second later all
    /// again; failures have a limit of their own. Method: rates in steps of 100 ms.
    #[test]
    fn shares_follow_the_rate() {
        let (all, failed) = (CallShare::all(), CallShare::all());
        let recorded = |share: &CallShare| {
            let calls = (0..10_000).map(|_| CallId::generate());
            calls.filter(|call| share.has(*call)).count()
        };
        let (mut pace, began) = (Pace::default(), Instant::now());
        let mut step = |tenth: u32, count: u64| {
            let now = began + Duration::from_millis(100) * tenth;
            let ended = Ended {
                all: count,
                failed: 1,
            };
            pace.adjust(now, ended, 1_000, &all, &failed);
        };
        (0..10).for_each(|tenth| step(tenth, 100));
        assert_eq!(recorded(&all), 10_000);
        (10..20).for_each(|tenth| step(tenth, 400));
        let share = recorded(&all);
        assert!((2_200..2_800).contains(&share), "{share}");
        assert_eq!(recorded(&failed), 10_000);
        (20..30).for_each(|tenth| step(tenth, 0));
        assert_eq!(recorded(&all), 10_000);
        step(30, 1_001);
        assert!(recorded(&all) < 10_000, "one more than the limit");
    }
}
