//! Clock of the cleanup. A system clock that jumps far ahead doesn't make data look old.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::sql::{DbConnection, args, duration_ms};
use crate::tx::{Tx, WriteOp};

/// Name of the `meta` row with the last trusted time, in Unix milliseconds.
const TRUSTED_TIME_META: &str = "clock.trusted_ms";

/// Time from which retention is counted: the system clock, unless it is further ahead of the last
/// trusted time than the limit. Then it is the last trusted time and the time since.
pub(crate) struct RetentionClock {
    jump_max: Duration,
    state: Mutex<ClockState>,
}

struct ClockState {
    trusted_ms: i64,
    trusted_at: Instant,
    is_suspended: bool,
}

/// Reading of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TrustedTime {
    /// Time from which retention is counted, in Unix milliseconds.
    pub(crate) ms: i64,
    /// Latest trusted time, in Unix milliseconds: later than `ms` if the system clock is behind.
    pub(crate) trusted_ms: i64,
    /// Distance of the system clock from the time that was expected, if this reading is the first
    /// that doesn't trust it.
    pub(crate) new_jump: Option<Duration>,
    /// Whether the system clock isn't trusted.
    pub(crate) is_suspended: bool,
}

impl RetentionClock {
    /// Reads the last trusted time. Without one it is `opened_before_ms`, the time of the previous
    /// opening; 0 for a new store, which trusts the clock. A jump of up to `jump_max` is trusted.
    pub(crate) async fn open(
        db: &mut DbConnection,
        opened_before_ms: i64,
        jump_max: Duration,
    ) -> sqlx::Result<Self> {
        let row = db
            .row(
                "SELECT value FROM meta WHERE name = $1",
                &args![TRUSTED_TIME_META],
            )
            .await?;
        let stored = match &row {
            Some(row) => row.get::<&str>(0)?.parse().ok(),
            None => None,
        };
        Ok(Self::starting_at(
            stored.unwrap_or(opened_before_ms),
            jump_max,
        ))
    }

    fn starting_at(trusted_ms: i64, jump_max: Duration) -> Self {
        let state = ClockState {
            trusted_ms,
            trusted_at: Instant::now(),
            is_suspended: false,
        };
        Self {
            jump_max,
            state: Mutex::new(state),
        }
    }

    /// Returns the time from which retention is counted, where the system clock is at `clock_ms`.
    pub(crate) fn now(&self, clock_ms: i64) -> TrustedTime {
        let mut state = self.state.lock();
        let now = Instant::now();
        let since = duration_ms(now.duration_since(state.trusted_at));
        let expected = state.trusted_ms.saturating_add(since);
        let ahead = clock_ms.saturating_sub(expected);
        let is_suspended = state.trusted_ms > 0 && ahead > duration_ms(self.jump_max);
        let is_new = is_suspended && !state.is_suspended;
        state.is_suspended = is_suspended;
        // A clock that is behind removes less, but is no new base: its correction isn't a jump.
        let ms = if is_suspended { expected } else { clock_ms };
        state.trusted_ms = ms.max(expected);
        state.trusted_at = now;
        TrustedTime {
            ms,
            trusted_ms: state.trusted_ms,
            new_jump: is_new.then(|| Duration::from_millis(ahead.unsigned_abs())),
            is_suspended,
        }
    }
}

/// Write operation that stores the last trusted time.
pub(crate) struct SaveTrustedTime(pub(crate) i64);

impl WriteOp for SaveTrustedTime {
    type Output = ();
    const NAME: &'static str = "clock";
    // Part of the cleanup, which must run in a full store.
    const MAKES_ROOM: bool = true;

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<()> {
        let value = self.0.to_string();
        tx.db
            .execute(
                "INSERT INTO meta (name, value) VALUES ($1, $2) \
                 ON CONFLICT (name) DO UPDATE SET value = excluded.value",
                &args![TRUSTED_TIME_META, value.as_str()],
            )
            .await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: i64 = 24 * 60 * 60 * 1000;

    /// Goal: a jump up to the limit is trusted, a farther one isn't until the clock is back.
    /// Method: readings around a limit of one day.
    #[test]
    fn far_jumps_are_not_trusted() {
        let clock = |ms| RetentionClock::starting_at(ms, Duration::from_secs(24 * 60 * 60));
        let start = 1_000 * DAY_MS;
        let kept = clock(start);
        // A margin for the time that the test itself takes.
        assert_eq!(kept.now(start + DAY_MS).ms, start + DAY_MS);
        let kept = clock(start);
        let jumped = kept.now(start + DAY_MS + 60_000);
        assert!(
            jumped.is_suspended && jumped.new_jump.is_some(),
            "{jumped:?}"
        );
        assert!(jumped.ms < start + 60_000, "{jumped:?}");
        let again = kept.now(start + 30 * DAY_MS);
        assert!(again.is_suspended && again.new_jump.is_none(), "{again:?}");
        let back = kept.now(start - 90 * DAY_MS);
        assert_eq!((back.ms, back.is_suspended), (start - 90 * DAY_MS, false));
        // A clock that was behind and is corrected hasn't jumped.
        assert!(back.trusted_ms >= start);
        assert!(!kept.now(start + 60_000).is_suspended);
        // A new store has no time to compare with.
        assert!(!clock(0).now(start).is_suspended);
    }
}
