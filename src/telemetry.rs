//! The log: to standard error, filtered. What agents say to one another is never in it.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

/// Starts the log. Where one is set already (a test, a host service), that stays.
pub(crate) fn start(filter: &str, json: bool) -> Result<(), String> {
    let filter = EnvFilter::try_new(filter).map_err(|e| format!("--log {filter}: {e}"))?;
    let log = fmt().with_env_filter(filter).with_writer(stderr).with_ansi(stderr().is_terminal());
    // Where nobody reads the log, there is nobody to tell that it can't be written either.
    let log = log.log_internal_errors(false);
    let _ = if json { log.json().try_init() } else { log.compact().try_init() };
    Ok(())
}
