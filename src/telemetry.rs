//! The log: to standard error, filtered. What agents say to one another is never in it. Lines are limited where they are written
//! (`callboard_message::log`); here the counts of suppressed ones are logged in time.

use std::io::{IsTerminal, stderr};

use callboard_message::log::{LOG_WINDOW, report_suppressed};
use tracing::Level;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Starts the log. Where one is set already (a test, a host service), that stays.
pub(crate) fn start(filter: &str, json: bool) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter).map_err(|e| format!("--log {filter}: {e}"))?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal());
    // At `debug`, a line for each message that was handled as part of a call: by whom, how long, in which trace.
    let log = log.with_span_events(FmtSpan::CLOSE);
    // Where nobody reads the log, there is nobody to tell that it can't be written either.
    let log = log.log_internal_errors(false);
    let discreet = filter_fn(|about| is_discreet(about.target(), about.level()));
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
        .map_err(|error| format!("failed to start a thread: {error}"))
}

/// Whether a line may be in the log, whatever the filter wants. Ours hold no payload and no secret; those of the libraries
/// below us do, from `debug` on: frames, handshakes, tokens.
fn is_discreet(target: &str, level: &Level) -> bool {
    *level <= Level::INFO || target.starts_with("callboard")
}
