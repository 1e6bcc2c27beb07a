//! Spans of time as commands read them.

use std::time::Duration;

use crate::config::SECONDS_A_DAY;

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
    use std::time::Duration;

    use super::span;

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
