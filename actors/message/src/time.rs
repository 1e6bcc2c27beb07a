//! Timestamps in the format of RFC 3339, section 5.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY_S: u64 = 86_400;
/// Number of days in 400 years of the Gregorian calendar.
const DAYS_OF_ERA: u64 = 146_097;
/// Number of days from 1 March of the year 0 to 1970-01-01. Years are counted from March, so that a
/// leap day is the last day of its year.
const DAYS_BEFORE_1970: u64 = 719_468;
/// Largest number of seconds since the Unix epoch that RFC 3339 can express: the last second of the
/// year 9999.
pub const UNIX_SECOND_MAX: u64 = 253_402_300_799;

/// Formats a time in UTC with milliseconds, for example `2026-11-22T13:20:00.250Z`. Times before
/// 1970 are formatted as the Unix epoch. After [`UNIX_SECOND_MAX`] the year has five or more
/// digits, which [`parse_rfc3339`] doesn't read.
pub fn format_rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, seconds) = (since.as_secs() / DAY_S, since.as_secs() % DAY_S);
    let days = days + DAYS_BEFORE_1970;
    let (era, day_of_era) = (days / DAYS_OF_ERA, days % DAYS_OF_ERA);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    // Written by hand because every task and event has a timestamp; the formatter takes ten times
    // as long.
    let mut out = String::with_capacity(RFC3339_BYTES);
    for (number, digits, after) in [
        (year, 4, '-'),
        (month, 2, '-'),
        (day, 2, 'T'),
        (hour, 2, ':'),
        (minute, 2, ':'),
        (second, 2, '.'),
        (u64::from(since.subsec_millis()), 3, 'Z'),
    ] {
        push_digits(number, digits, &mut out);
        out.push(after);
    }
    out
}

/// Length in bytes of a formatted time up to the year 9999, for the capacity of the text.
const RFC3339_BYTES: usize = 24;

/// Appends a number with at least `digits` decimal digits, filled with zeros on the left.
fn push_digits(number: u64, digits: u32, out: &mut String) {
    let digits = digits.max(number.checked_ilog10().unwrap_or_default() + 1);
    out.extend(
        (0..digits)
            .rev()
            .map(|place| char::from(b'0' + (number / 10_u64.pow(place) % 10) as u8)),
    );
}

/// Parses a time from 1970 to 9999 in the format of RFC 3339. The UTC offset may be missing, which
/// means UTC. Fractions of a second are cut to nanoseconds. A leap second is read as the first
/// second of the next minute. A space in place of `T`, a comma before the fraction, and lower-case
/// `t` and `z` are accepted. Returns `None` for any other text.
pub fn parse_rfc3339(text: &str) -> Option<SystemTime> {
    let (date, rest) = text.split_at_checked(10)?;
    let (time, rest) = rest.strip_prefix(['T', 't', ' '])?.split_at_checked(8)?;
    let [year, month, day] = parse_numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = parse_numbers(time, ':', [2, 2, 2])?;
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days_of_month = match month {
        2 => 28 + u64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    // A leap second is read as the first second of the next minute.
    if day == 0 || day > days_of_month || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (nanos, offset) = match rest.strip_prefix(['.', ',']) {
        None => (0, rest),
        Some(rest) => {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let (fraction, offset) = rest
                .split_at_checked(digits)
                .filter(|(fraction, _)| !fraction.is_empty())?;
            let to_nanos = |(place, digit): (usize, u8)| {
                u32::from(digit - b'0') * 10_u32.pow(8 - place as u32)
            };
            (
                fraction.bytes().take(9).enumerate().map(to_nanos).sum(),
                offset,
            )
        }
    };
    // Years begin with March here, as in `format_rfc3339`.
    let (year, month) = if month <= 2 {
        (year.checked_sub(1)?, month + 9)
    } else {
        (year, month - 3)
    };
    let (era, year_of_era) = (year / 400, year % 400);
    let day_of_era =
        year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + (153 * month + 2) / 5 + day - 1;
    let days = (era * DAYS_OF_ERA + day_of_era).checked_sub(DAYS_BEFORE_1970)?;
    let seconds = days * DAY_S + hour * 3_600 + minute * 60 + second;
    let seconds = seconds
        .checked_add_signed(-parse_offset_s(offset)?)
        .filter(|seconds| *seconds <= UNIX_SECOND_MAX)?;
    UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
}

/// Parses `N` decimal numbers that are separated by `separator`. Number `i` must have exactly
/// `digits[i]` digits. Returns `None` for any other text.
fn parse_numbers<const N: usize>(
    text: &str,
    separator: char,
    digits: [usize; N],
) -> Option<[u64; N]> {
    let mut found = [0; N];
    let mut parts = text.split(separator);
    for (number, digits) in found.iter_mut().zip(digits) {
        let part = parts
            .next()
            .filter(|part| part.len() == digits && part.bytes().all(|b| b.is_ascii_digit()))?;
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(found)
}

/// Parses a UTC offset, such as `+01:00`, `+0100`, `+01` or `Z`, and returns it in seconds east of
/// UTC. An empty text means UTC. Returns `None` for any other text.
fn parse_offset_s(text: &str) -> Option<i64> {
    if matches!(text, "" | "Z" | "z") {
        return Some(0);
    }
    let (sign, rest) = match text.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let [hours, minutes] = match rest.len() {
        5 => parse_numbers(rest, ':', [2, 2])?,
        _ => [
            rest.get(..2)?,
            rest.get(2..).filter(|rest| matches!(rest.len(), 0 | 2))?,
        ]
        .map(|part| match part {
            "" => 0,
            _ => parse_numbers(part, ':', [2]).map_or(u64::MAX, |[number]| number),
        }),
    };
    (hours <= 23 && minutes <= 59).then(|| sign * (hours * 3_600 + minutes * 60).cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: days are counted as calendars do, both ways. Method: known moments, around leap days too.
    #[test]
    fn moments() {
        for (ms, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_007, "1970-01-01T00:00:01.007Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_704_067_199_001, "2023-12-31T23:59:59.001Z"),
            (1_785_234_600_000, "2026-07-28T10:30:00.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (13_574_563_200_000, "2400-02-29T00:00:00.000Z"),
        ] {
            let time = UNIX_EPOCH + Duration::from_millis(ms);
            assert_eq!(format_rfc3339(time), expected);
            assert_eq!(parse_rfc3339(expected), Some(time), "{expected}");
        }
    }

    /// Goal: timestamps in the spellings of other programs are read. Method: rows of one moment,
    /// and rows that are no time.
    #[test]
    fn others_spellings() {
        let time = UNIX_EPOCH + Duration::from_millis(1_785_234_600_500);
        for text in [
            "2026-07-28T10:30:00.5Z",
            "2026-07-28t10:30:00.500000z",
            "2026-07-28 10:30:00,500000000999",
            "2026-07-28T12:30:00.5+02:00",
            "2026-07-28T12:30:00.5+0200",
            "2026-07-28T12:30:00.5+02",
            "2026-07-28T00:15:00.5-10:15",
        ] {
            assert_eq!(parse_rfc3339(text), Some(time), "{text}");
        }
        for text in [
            "",
            "2026-07-28",
            "2026-07-28T10:30",
            "2026-07-28T10:30:00.",
            "2026-13-28T10:30:00Z",
            "2026-02-29T10:30:00Z",
            "2026-07-00T10:30:00Z",
            "2026-07-28T24:30:00Z",
            "2026-07-28T10:30:00+24:00",
            "2026-07-28T10:30:00+0",
            "2026-07-28T10:30:00+02:",
            "2026-07-28T10:30:00ZZ",
            "+026-07-28T10:30:00Z",
            "1969-12-31T23:59:59Z",
            "0000-01-01T00:00:00Z",
            "1970-01-01T00:00:00+01:00",
            "9999-12-31T23:59:60Z",
            "２026-07-28T10:30:00Z",
        ] {
            assert_eq!(parse_rfc3339(text), None, "{text}");
        }
        assert_eq!(
            parse_rfc3339("9999-12-31T23:59:59Z"),
            UNIX_EPOCH.checked_add(Duration::from_secs(UNIX_SECOND_MAX))
        );
        assert_eq!(
            parse_rfc3339("2026-12-31T23:59:60Z"),
            parse_rfc3339("2027-01-01T00:00:00Z")
        );
    }
}
