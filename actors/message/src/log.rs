//! Rate limit of log lines. Outside input can cause any line of a protocol or an agent, as often as
//! it likes; without a limit it fills the disk that the log is on.
//!
//! [`error!`], [`warn!`], [`info!`] and [`debug!`] take what the macros of `tracing` take. Each
//! call site logs [`LOG_LINES_MAX`] lines in [`LOG_WINDOW`], then counts; the count is a line of
//! its own. `by: NAME` as the first argument counts for each name apart, so that one noisy server
//! doesn't hide the lines of another. The crate that calls them depends on `tracing`.
//!
//! Limits belong to call sites, as `tracing`'s own metadata does: all systems of a process share
//! them, as they share the log.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use crate::{log_debug as debug, log_error as error, log_info as info, log_warn as warn};

/// Maximum number of lines that a call site logs for one name within [`LOG_WINDOW`]. Further lines
/// are suppressed and counted.
pub const LOG_LINES_MAX: u32 = 20;
/// Duration of the window in which lines are counted. It begins with the first line.
pub const LOG_WINDOW: Duration = Duration::from_secs(10);
/// Maximum number of names for which one call site counts lines separately. Further names share one
/// count.
pub const LOG_NAMES_MAX: usize = 64;
/// Maximum length of the part of a name that is compared, in bytes. Longer names are truncated.
pub const LOG_NAME_BYTES_MAX: usize = 64;

/// Name under which lines are counted once [`LOG_NAMES_MAX`] names are counted separately.
const OTHERS: &str = "(others)";

/// Call sites with suppressed lines whose number has not been logged.
static UNREPORTED: Mutex<Vec<&LogLimit>> = Mutex::new(Vec::new());

/// Rate limit of the log lines of one call site. Created only by the macros of this module.
pub struct LogLimit {
    windows: Mutex<Vec<Window>>,
    report: fn(name: &str, suppressed: u64),
}

/// Count of the lines that one name has logged since the window began.
struct Window {
    name: Box<str>,
    began: Instant,
    lines: u32,
    suppressed: u64,
}

impl LogLimit {
    /// Creates a limit. `report` is called to log the number of suppressed lines of a name.
    pub const fn new(report: fn(name: &str, suppressed: u64)) -> Self {
        Self {
            windows: Mutex::new(Vec::new()),
            report,
        }
    }

    /// Returns whether a line of `name` may be logged now. If not, it is counted as suppressed.
    /// Also reports the counts of windows that have ended. An empty `name` counts the lines without
    /// a name.
    pub fn admits(&'static self, name: &str) -> bool {
        let (is_admitted, is_first, ended) = self.count(name, Instant::now());
        if is_first {
            let mut unreported = locked(&UNREPORTED);
            if !unreported.iter().any(|limit| std::ptr::eq(*limit, self)) {
                unreported.push(self);
            }
        }
        ended
            .iter()
            .for_each(|(name, suppressed)| (self.report)(name, *suppressed));
        is_admitted
    }

    /// Counts one line of `name`. Returns whether it may be logged, whether it is the first
    /// suppressed line of its window, and the names and suppressed lines of windows that have
    /// ended.
    fn count(&self, name: &str, now: Instant) -> (bool, bool, Vec<(Box<str>, u64)>) {
        let end = (0..=LOG_NAME_BYTES_MAX)
            .rev()
            .find(|end| name.is_char_boundary(*end))
            .unwrap_or_default();
        let mut name = name.get(..end.min(name.len())).unwrap_or_default();
        let mut windows = locked(&self.windows);
        let mut ended = Vec::new();
        windows.retain_mut(|window| {
            let is_open = now.saturating_duration_since(window.began) < LOG_WINDOW;
            if !is_open && window.suppressed > 0 {
                ended.push((std::mem::take(&mut window.name), window.suppressed));
            }
            is_open
        });
        if windows.len() >= LOG_NAMES_MAX && !windows.iter().any(|window| &*window.name == name) {
            name = OTHERS;
        }
        let at = windows
            .iter()
            .position(|window| &*window.name == name)
            .unwrap_or_else(|| {
                windows.push(Window {
                    name: name.into(),
                    began: now,
                    lines: 0,
                    suppressed: 0,
                });
                windows.len() - 1
            });
        let Some(window) = windows.get_mut(at) else {
            return (true, false, ended);
        };
        if window.lines < LOG_LINES_MAX {
            window.lines += 1;
            return (true, false, ended);
        }
        window.suppressed += 1;
        (false, window.suppressed == 1, ended)
    }

    /// Reports and resets all counts of suppressed lines.
    fn report_all(&self) {
        let mut counts = Vec::new();
        for window in locked(&self.windows)
            .iter_mut()
            .filter(|window| window.suppressed > 0)
        {
            counts.push((window.name.clone(), std::mem::take(&mut window.suppressed)));
        }
        // After the lock is released: `report` may log.
        counts
            .iter()
            .for_each(|(name, suppressed)| (self.report)(name, *suppressed));
    }
}

/// Logs the numbers of suppressed lines that have not been logged, one line for each call site and
/// name.
///
/// Programs should call it every [`LOG_WINDOW`] and before they end. Otherwise a number is logged
/// only with the next line of its call site after the window.
pub fn report_suppressed() {
    let unreported = std::mem::take(&mut *locked(&UNREPORTED));
    unreported.iter().for_each(|limit| limit.report_all());
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Logs at the level ERROR, with the rate limit of [`log`](crate::log) for each call site. Takes
/// the arguments of `tracing::error!`, optionally after `by: NAME`, for whose values lines are
/// counted separately.
#[macro_export]
macro_rules! log_error {
    ($($line:tt)+) => { $crate::log_limited!(error, ERROR, $($line)+) };
}

/// Logs at the level WARN, with the rate limit of [`log`](crate::log) for each call site. Takes the
/// arguments of `tracing::warn!`, optionally after `by: NAME`, for whose values lines are counted
/// separately.
#[macro_export]
macro_rules! log_warn {
    ($($line:tt)+) => { $crate::log_limited!(warn, WARN, $($line)+) };
}

/// Logs at the level INFO, with the rate limit of [`log`](crate::log) for each call site. Takes the
/// arguments of `tracing::info!`, optionally after `by: NAME`, for whose values lines are counted
/// separately.
#[macro_export]
macro_rules! log_info {
    ($($line:tt)+) => { $crate::log_limited!(info, INFO, $($line)+) };
}

/// Logs at the level DEBUG, with the rate limit of [`log`](crate::log) for each call site. Takes
/// the arguments of `tracing::debug!`, optionally after `by: NAME`, for whose values lines are
/// counted separately.
#[macro_export]
macro_rules! log_debug {
    ($($line:tt)+) => { $crate::log_limited!(debug, DEBUG, $($line)+) };
}

/// Common implementation of the macros of [`log`](crate::log). Takes the macro of `tracing`, its
/// level, and the arguments of the line.
#[doc(hidden)]
#[macro_export]
macro_rules! log_limited {
    ($macro:ident, $level:ident, target: $target:expr, by: $name:expr, $($line:tt)+) => {{
        // With the level disabled, nothing is counted and no lock is taken.
        if ::tracing::enabled!(target: $target, ::tracing::Level::$level) {
            static LIMIT: $crate::log::LogLimit = $crate::log::LogLimit::new(|by, suppressed| {
                let at = ::core::concat!(::core::file!(), ":", ::core::line!());
                let by = (!by.is_empty()).then_some(by);
                ::tracing::$macro!(target: $target, by, at, "{suppressed} log lines like this were suppressed");
            });
            if LIMIT.admits($name) {
                ::tracing::$macro!(target: $target, $($line)+);
            }
        }
    }};
    ($macro:ident, $level:ident, by: $name:expr, $($line:tt)+) => {
        $crate::log_limited!($macro, $level, target: ::core::module_path!(), by: $name, $($line)+)
    };
    ($macro:ident, $level:ident, target: $target:expr, $($line:tt)+) => {
        $crate::log_limited!($macro, $level, target: $target, by: "", $($line)+)
    };
    ($macro:ident, $level:ident, $($line:tt)+) => {
        $crate::log_limited!($macro, $level, target: ::core::module_path!(), by: "", $($line)+)
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    static LIMIT: LogLimit =
        LogLimit::new(|name, suppressed| TOLD.lock().unwrap().push((name.to_owned(), suppressed)));
    static TOLD: Mutex<Vec<(String, u64)>> = Mutex::new(Vec::new());

    fn quiet() -> LogLimit {
        LogLimit::new(|_, _| {})
    }

    /// Goal: a flood of lines is [`LOG_LINES_MAX`] lines in a window and then one count, and other names aren't hidden by it.
    /// Method: a flood of one name, one line of another; the time is told.
    #[test]
    fn a_flood_is_counted() {
        let (limit, began) = (quiet(), Instant::now());
        let at = |ms: u64| began + Duration::from_millis(ms);
        let logged = (0..1_000)
            .filter(|ms| limit.count("noisy", at(*ms)).0)
            .count();
        assert_eq!(logged, LOG_LINES_MAX as usize);
        assert_eq!(limit.count("other", at(1_000)), (true, false, vec![]));
        let (is_admitted, _, ended) = limit.count("noisy", at(LOG_WINDOW.as_millis() as u64));
        assert_eq!(
            (is_admitted, ended),
            (
                true,
                vec![("noisy".into(), 1_000 - u64::from(LOG_LINES_MAX))]
            )
        );
        assert_eq!(
            limit.count("other", at(60_000)).2,
            [],
            "a count is told once"
        );
    }

    /// Goal: line [`LOG_LINES_MAX`] + 1 is the first that is suppressed, and its count is told without another line. Method: as
    /// many lines, then a report, twice.
    #[test]
    fn a_count_is_told_without_another_line() {
        for _ in 0..LOG_LINES_MAX {
            assert!(LIMIT.admits("a"));
        }
        assert!(!LIMIT.admits("a") && !LIMIT.admits("a"));
        report_suppressed();
        report_suppressed();
        assert_eq!(*TOLD.lock().unwrap(), [("a".to_owned(), 2)]);
    }

    /// Goal: what is counted is bounded, whatever names there are. Method: more names than are counted apart, and long ones.
    #[test]
    fn names_are_bounded() {
        let (limit, now) = (quiet(), Instant::now());
        for name in 0..LOG_NAMES_MAX {
            assert!(limit.count(&name.to_string(), now).0);
        }
        let logged = (0..1_000)
            .filter(|name| limit.count(&format!("more {name}"), now).0)
            .count();
        assert_eq!(
            logged, LOG_LINES_MAX as usize,
            "the others share one window"
        );
        assert!(limit.count("0", now).0, "a known name has its own");
        assert_eq!(limit.windows.lock().unwrap().len(), LOG_NAMES_MAX + 1);
        let limit = quiet();
        let long = "ö".repeat(LOG_NAME_BYTES_MAX);
        assert!(limit.count(&long, now).0);
        assert!(
            limit
                .windows
                .lock()
                .unwrap()
                .iter()
                .all(|window| window.name.len() <= LOG_NAME_BYTES_MAX)
        );
    }
}
