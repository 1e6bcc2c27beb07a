//! Windows of time in which quotas count, by the calendar of UTC.

use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use callboard_message::time::{UNIX_SECOND_MAX, format_rfc3339, parse_rfc3339};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::unix_s;

const MINUTE_S: u64 = 60;
const DAY_S: u64 = 86_400;
/// Maximum time by which the clock of another node may be ahead, in seconds; for windows of a minute, half of one. A
/// counter whose window begins later than that is wrong, and doesn't count.
const CLOCK_SKEW_MAX_S: u64 = 300;

/// Length of the window of time in which a quota counts. Windows begin by the calendar of UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QuotaWindow {
    /// A minute, from its first second.
    Minute,
    /// A day, from midnight.
    Day,
    /// A month, from midnight of its first day.
    Month,
}

/// Beginning and end of a window, in seconds since the Unix epoch. At the end the next window begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WindowSpan {
    pub start_s: u64,
    pub end_s: u64,
}

impl QuotaWindow {
    /// Returns the name, as it is written in a topology.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::Day => "day",
            Self::Month => "month",
        }
    }

    /// Returns the window that contains a time, in seconds since the Unix epoch.
    pub(super) fn span_at(self, time_s: u64) -> WindowSpan {
        let time_s = time_s.min(UNIX_SECOND_MAX);
        match self {
            Self::Minute => WindowSpan::aligned(time_s, MINUTE_S),
            Self::Day => WindowSpan::aligned(time_s, DAY_S),
            Self::Month => month_at(time_s),
        }
    }

    /// Returns the known window while it may be the present one, else that of now.
    pub(super) fn span_from(self, now_s: u64, known: WindowSpan) -> WindowSpan {
        match self.may_be_current(known, now_s) {
            true => known,
            false => self.span_at(now_s),
        }
    }

    /// Returns whether a window contains now, or begins soon: another node's clock may be ahead, or this node's
    /// clock was set back.
    pub(super) fn may_be_current(self, span: WindowSpan, now_s: u64) -> bool {
        let skew_max_s = match self {
            Self::Minute => MINUTE_S / 2,
            Self::Day | Self::Month => CLOCK_SKEW_MAX_S,
        };
        now_s < span.end_s && span.start_s <= now_s.saturating_add(skew_max_s)
    }
}

impl WindowSpan {
    fn aligned(time_s: u64, length_s: u64) -> Self {
        let start_s = time_s - time_s % length_s;
        Self {
            start_s,
            end_s: start_s + length_s,
        }
    }
}

fn month_at(time_s: u64) -> WindowSpan {
    let date = format_rfc3339(to_time(time_s));
    let number = |digits: Range<usize>| -> u64 {
        let digits = date.get(digits).unwrap_or_default();
        digits.parse().unwrap_or_default()
    };
    let (year, month) = (number(0..4), number(5..7));
    let (next_year, next_month) = match month {
        12 => (year + 1, 1),
        _ => (year, month + 1),
    };
    WindowSpan {
        start_s: first_second(year, month).unwrap_or_default(),
        end_s: first_second(next_year, next_month).unwrap_or(UNIX_SECOND_MAX + 1),
    }
}

/// Returns the first second of a month; `None` after the year 9999.
fn first_second(year: u64, month: u64) -> Option<u64> {
    parse_rfc3339(&format!("{year:04}-{month:02}-01T00:00:00Z")).map(unix_s)
}

/// Returns the time of a second since the Unix epoch, at most that of the first second of the year 10000.
pub(super) fn to_time(time_s: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(time_s.min(UNIX_SECOND_MAX + 1))
}
