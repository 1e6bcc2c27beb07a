//! Times as commands print and read them: RFC 3339, in UTC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SECONDS_A_DAY: u64 = 24 * 60 * 60;
/// In the calendar that begins with March, so that a leap day is a year's last: days of four centuries, and before 1970.
const DAYS_OF_ERA: u64 = 146_097;
const DAYS_BEFORE_1970: u64 = 719_468;

/// For example `2026-11-22T13:20:00.250Z`. What is before 1970 is its first moment.
pub(super) fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / SECONDS_A_DAY, since.as_secs() % SECONDS_A_DAY);
    let days = days + DAYS_BEFORE_1970;
    let (era, day_of_era) = (days / DAYS_OF_ERA, days % DAYS_OF_ERA);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", since.subsec_millis())
}

/// A span as people write it: a number and `s`, `m`, `h` or `d`.
///
/// # Errors
/// What is expected.
pub(super) fn span(text: &str) -> Result<Duration, String> {
    let wanted = || "write a number and s, m, h or d, for example 2h".to_owned();
    let unit = text.chars().next_back().ok_or_else(wanted)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => SECONDS_A_DAY,
        _ => return Err(wanted()),
    };
    let number: u64 = text.strip_suffix(unit).unwrap_or_default().parse().map_err(|_| wanted())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wanted)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::{rfc3339, span};

    /// Goal: days are counted as calendars do. Method: known moments, around leap days too.
    #[test]
    fn moments() {
        for (ms, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_704_067_199_001, "2023-12-31T23:59:59.001Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_millis(ms)), expected);
        }
    }

    /// Goal: a span is read exactly, or refused. Method: rows.
    #[test]
    fn spans() {
        for (text, seconds) in [("90s", 90), ("5m", 300), ("2h", 7_200), ("7d", 604_800)] {
            assert_eq!(span(text), Ok(Duration::from_secs(seconds)));
        }
        for wrong in ["", "h", "2", "-1h", "1.5h", "2w", "é", "99999999999999999999d", "9999999999999999999d"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }
}
