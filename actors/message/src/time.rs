//! Times as protocols and people write them (RFC 3339, section 5).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DAY_S: u64 = 86_400;
/// In the calendar that begins with March, so that a leap day is a year's last: days of four centuries, and before 1970.
const DAYS_OF_ERA: u64 = 146_097;
const DAYS_BEFORE_1970: u64 = 719_468;
/// The last second that has a text, from 1970 on: the end of the year 9999.
pub const SECOND_MAX: u64 = 253_402_300_799;

/// In UTC with milliseconds, for example `2026-11-22T13:20:00.250Z`. What is before 1970 is its first moment.
pub fn rfc3339(time: SystemTime) -> String {
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
    // Every task and event that is shown has one: by hand it costs a tenth of what the formatter takes.
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
        put(number, digits, &mut out);
        out.push(after);
    }
    out
}

/// Length of a time that is written, up to the year 9999.
const RFC3339_BYTES: usize = 24;

/// So many digits, or more where a number has more.
fn put(number: u64, digits: u32, out: &mut String) {
    let digits = digits.max(number.checked_ilog10().unwrap_or_default() + 1);
    out.extend(
        (0..digits)
            .rev()
            .map(|place| char::from(b'0' + (number / 10_u64.pow(place) % 10) as u8)),
    );
}

/// Reads a time from 1970 on: any offset (none is UTC), any fraction of a second (to the nanosecond), a space or any case
/// for `T` and `Z`. `None` where it is no such time.
pub fn read_rfc3339(text: &str) -> Option<SystemTime> {
    let (date, rest) = text.split_at_checked(10)?;
    let (time, rest) = rest.strip_prefix(['T', 't', ' '])?.split_at_checked(8)?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let days_of_month = match month {
        2 => 28 + u64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    // A leap second is the next one.
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
    // Years begin with March here too.
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
        .checked_add_signed(-offset_s(offset)?)
        .filter(|seconds| *seconds <= SECOND_MAX)?;
    UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
}

/// Numbers of so many digits each, a separator between them.
fn numbers<const N: usize>(text: &str, separator: char, digits: [usize; N]) -> Option<[u64; N]> {
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

/// Seconds east of UTC.
fn offset_s(text: &str) -> Option<i64> {
    if matches!(text, "" | "Z" | "z") {
        return Some(0);
    }
    let (sign, rest) = match text.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let [hours, minutes] = match rest.len() {
        5 => numbers(rest, ':', [2, 2])?,
        _ => [
            rest.get(..2)?,
            rest.get(2..).filter(|rest| matches!(rest.len(), 0 | 2))?,
        ]
        .map(|part| match part {
            "" => 0,
            _ => numbers(part, ':', [2]).map_or(u64::MAX, |[number]| number),
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
            assert_eq!(rfc3339(time), expected);
            assert_eq!(read_rfc3339(expected), Some(time), "{expected}");
        }
    }

    /// Goal: whatever clocks write is read. Method: rows of one moment, and of what is none.
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
            assert_eq!(read_rfc3339(text), Some(time), "{text}");
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
            assert_eq!(read_rfc3339(text), None, "{text}");
        }
        assert_eq!(
            read_rfc3339("9999-12-31T23:59:59Z"),
            UNIX_EPOCH.checked_add(Duration::from_secs(SECOND_MAX))
        );
        assert_eq!(
            read_rfc3339("2026-12-31T23:59:60Z"),
            read_rfc3339("2027-01-01T00:00:00Z")
        );
    }
}
