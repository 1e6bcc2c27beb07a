//! Log setup: filtered output to standard error. Messages between agents are never logged. Rate
//! limits of log lines are in `callboard_message::log`; the counts of suppressed lines are logged
//! here at intervals.

use std::io::{IsTerminal, stderr};

use callboard_message::log::{LOG_WINDOW, report_suppressed};
use tracing::Level;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Installs the log subscriber, and starts the thread that logs counts of suppressed lines. An
/// existing subscriber (of a test or a host service) is kept.
///
/// # Errors
/// Text for the user: the filter is invalid, or the thread can't be started.
pub(crate) fn start(filter: &str, json: bool) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter).map_err(|e| format!("--log {filter}: {e}"))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal());
    // At `debug`, one line for each message handled within a call: handler, duration and trace.
    let log = log.with_span_events(FmtSpan::CLOSE);
    // If standard error can't be written, errors of the log can't be either.
    let log = log.log_internal_errors(false);
    let discreet = filter_fn(|about| is_log_allowed(about.target(), about.level()));
    let _ = match json {
        true => log.json().finish().with(discreet).try_init(),
        false => log.compact().finish().with(discreet).try_init(),
    };
    let counts = std::thread::Builder::new()
        .name("log-counts".to_owned())
        .spawn(|| {
            loop {
                std::thread::park_timeout(LOG_WINDOW);
                report_suppressed();
            }
        });
    counts
        .map(drop)
        .map_err(|error| format!("failed to start the thread of the log: {error}"))
}

/// Whether a line may be logged at all, regardless of the filter. Callboard's own lines contain no
/// payloads or secrets; those of libraries do from `debug` on (frames, handshakes, tokens).
fn is_log_allowed(target: &str, level: &Level) -> bool {
    *level <= Level::INFO || target.starts_with("callboard")
}
