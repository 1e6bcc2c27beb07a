//! Expiry of credentials, as people write it.

use std::time::{SystemTime, UNIX_EPOCH};

const SECONDS_PER_DAY: u64 = 24 * 60 * 60;
/// Latest expiry: the last second that a timestamp can state.
const EXPIRY_MAX_UNIX_S: u64 = 253_402_300_799;
/// Length of a date, `2026-12-31`.
const DATE_CHARS: usize = 10;
/// Length of a timestamp, `2026-12-31T12:00:00Z`.
const TIMESTAMP_CHARS: usize = 20;

/// Returns the number of seconds since the Unix epoch.
pub(crate) fn now_unix_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Parses an expiry in UTC: a date (`2026-12-31`), through whose end a credential is valid, or a
/// timestamp (`2026-12-31T12:00:00Z`). Returns the first second at which the credential isn't valid
/// any more, counted from the Unix epoch and at most the last of the year 9999; `None` for any other text, and for years before 1970.
pub fn parse_expiry(text: &str) -> Option<u64> {
    let number = |from: usize, to: usize| -> Option<u64> {
        let digits = text.get(from..to)?;
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| digits.parse().ok())?
    };
    let has = |at: usize, mark: &str| text.get(at..at + mark.len()) == Some(mark);
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let is_date = has(4, "-") && has(7, "-") && (1..=days_in_month(year, month)).contains(&day);
    if !is_date || year < 1970 {
        return None;
    }
    let midnight = days_since_epoch(year, month, day) * SECONDS_PER_DAY;
    match text.len() {
        DATE_CHARS => Some((midnight + SECONDS_PER_DAY).min(EXPIRY_MAX_UNIX_S)),
        TIMESTAMP_CHARS if has(10, "T") && has(13, ":") && has(16, ":") && has(19, "Z") => {
            let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
            (hour < 24 && minute < 60 && second < 60)
                .then_some(midnight + hour * 3_600 + minute * 60 + second)
        }
        _ => None,
    }
}

/// Formats a time as a timestamp that [`parse_expiry`] reads. A later one than it can state is the
/// last second of the year 9999.
pub fn format_expiry(unix_s: u64) -> String {
    let unix_s = unix_s.min(EXPIRY_MAX_UNIX_S);
    let (days, second) = (unix_s / SECONDS_PER_DAY, unix_s % SECONDS_PER_DAY);
    let (year, month, day) = date_of_day(days);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

fn is_leap_year(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

/// Returns the number of days of a month; 0 if there is no such month.
fn days_in_month(year: u64, month: u64) -> u64 {
    match month {
        2 => 28 + u64::from(is_leap_year(year)),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    }
}

/// Returns the number of days of the years from 1970 to the one before `year`.
fn days_before_year(year: u64) -> u64 {
    let leap_days = |year: u64| year / 4 - year / 100 + year / 400;
    (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969)
}

fn days_since_epoch(year: u64, month: u64, day: u64) -> u64 {
    let months = (1..month).map(|month| days_in_month(year, month));
    days_before_year(year) + months.sum::<u64>() + day - 1
}

/// Returns year, month and day of a day since the epoch.
fn date_of_day(days: u64) -> (u64, u64, u64) {
    // A year of 366 days never overshoots; at most two corrections follow.
    let mut year = 1970 + days / 366;
    while days_before_year(year + 1) <= days {
        year += 1;
    }
    let (mut month, mut rest) = (1, days - days_before_year(year));
    while rest >= days_in_month(year, month) {
        rest -= days_in_month(year, month);
        month += 1;
    }
    (year, month, rest + 1)
}

/// Serialisation of an expiry: written as a timestamp, read as a date, a timestamp or seconds since
/// the Unix epoch.
pub(crate) mod optional {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Seconds(u64),
        Text(String),
    }

    pub(crate) fn serialize<S: Serializer>(
        expires_unix_s: &Option<u64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match expires_unix_s {
            Some(at) => serializer.serialize_str(&super::format_expiry(*at)),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<u64>, D::Error> {
        let at = match Written::deserialize(deserializer)? {
            Written::Seconds(at) => Some(at),
            Written::Text(text) => super::parse_expiry(&text),
        };
        let wrong = "the expiry must be a date (2026-12-31) or a timestamp (2026-12-31T12:00:00Z)";
        at.map(Some).ok_or_else(|| D::Error::custom(wrong))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a date is valid through its end, a timestamp to its second, and nothing else is
    /// guessed. Method: rows.
    #[test]
    fn expiries_are_read() {
        for (text, at) in [
            ("1970-01-01", Some(86_400)),
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2000-02-29", Some(951_868_800)),
            ("9999-12-31", Some(EXPIRY_MAX_UNIX_S)),
            ("2026-12-31", Some(1_798_761_600)),
            ("2026-12-31T23:59:59Z", Some(1_798_761_599)),
            ("2024-02-29T12:00:00Z", Some(1_709_208_000)),
            ("2023-02-29", None),
            ("2100-02-29", None),
            ("1969-12-31", None),
            ("2026-13-01", None),
            ("2026-00-10", None),
            ("2026-12-00", None),
            ("2026-12-31T24:00:00Z", None),
            ("2026-12-31T12:60:00Z", None),
            ("2026-12-31T12:00:00", None),
            ("2026-12-31T12:00:00+01:00", None),
            ("2026-12-31 12:00:00Z", None),
            ("+026-12-31", None),
            ("31.12.2026", None),
            ("é026-12-31", None),
            ("tomorrow", None),
            ("", None),
        ] {
            assert_eq!(parse_expiry(text), at, "{text}");
        }
    }

    /// Goal: what is written is read back. Method: every ninth hour of two centuries.
    #[test]
    fn expiries_are_read_back() {
        for at in (0..200 * 366 * SECONDS_PER_DAY).step_by(9 * 3_600 + 7) {
            assert_eq!(parse_expiry(&format_expiry(at)), Some(at));
        }
    }

    /// Goal: whatever expiry a file states can be written and read again. Method: the latest one, and
    /// later ones.
    #[test]
    fn late_expiries_stay_readable() {
        for at in [EXPIRY_MAX_UNIX_S, EXPIRY_MAX_UNIX_S + 1, u64::MAX] {
            assert_eq!(
                parse_expiry(&format_expiry(at)),
                Some(EXPIRY_MAX_UNIX_S),
                "{at}"
            );
        }
    }
}
