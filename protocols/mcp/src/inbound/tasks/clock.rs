//! Times as they stand in tasks: ISO 8601, in UTC (RFC 3339, section 5).

use std::time::{SystemTime, UNIX_EPOCH};

const DAY_S: u64 = 86_400;

/// For example `2026-07-28T10:30:00.123Z`. Before 1970 it is 1970.
pub(super) fn iso8601(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / DAY_S, since.as_secs() % DAY_S);
    let (year, month, day) = date(days);
    let (hour, minute, second, milli) = (second / 3_600, second / 60 % 60, second % 60, since.subsec_millis());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Year, month and day of a day counted from 1970-01-01.
fn date(mut days: u64) -> (u64, u64, u64) {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    let mut year = 1970 + 400 * (days / DAYS_OF_400_YEARS);
    days %= DAYS_OF_400_YEARS;
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = 1;
    for length in [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Goal: dates are right, leap years and centuries included. Method: known seconds.
    #[test]
    fn known_times() {
        for (seconds, written) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000Z"),
            (1_785_234_600, "2026-07-28T10:30:00.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
            (13_574_563_200, "2400-02-29T00:00:00.000Z"),
        ] {
            assert_eq!(iso8601(UNIX_EPOCH + Duration::from_secs(seconds)), written);
        }
        assert_eq!(iso8601(UNIX_EPOCH + Duration::from_millis(1_007)), "1970-01-01T00:00:01.007Z");
    }
}
