//! Access log: a line of the tracing target `callboard::access` for each message from a peer.

use std::time::Duration;

use callboard_message::{Failure, Principal};

/// Maximum characters of a message's name in the access log; the rest is cut. Fixed.
const ACCESS_NAME_CHARS_MAX: usize = 128;

/// Logs at `info` who sent which message to which agent, with outcome and duration, never its
/// content. The lines have no rate limit: whoever turns them on wants all of them.
pub(crate) fn log_access<T>(
    principal: &Principal,
    agent: &str,
    message: &str,
    reply: &Result<T, Failure>,
    duration: Duration,
) {
    if !tracing::enabled!(target: "callboard::access", tracing::Level::INFO) {
        return;
    }
    let outcome = match reply {
        Ok(_) => "answered".to_owned(),
        Err(failure) => failure.kind.to_string(),
    };
    let message: String = message.chars().take(ACCESS_NAME_CHARS_MAX).collect();
    let ms = duration.as_millis();
    tracing::info!(target: "callboard::access", principal = principal.id, kind = ?principal.kind, agent, message, outcome, ms, "call");
}
