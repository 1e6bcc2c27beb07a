//! Access log: a line of the tracing target `callboard::access` for each message from a peer.

use std::time::{Duration, Instant};

use callboard_message::{Failure, Principal};

use crate::policy::PolicyRequest;
use crate::policy::rate_limit::tool_name;

/// Message from a peer that is logged when its outcome is known.
pub(crate) struct AccessEntry {
    agent: String,
    tool: String,
    began: Instant,
}

impl AccessEntry {
    /// Begins an entry. `None` if the log is off, which it is by default.
    pub fn begin(request: &PolicyRequest<'_>) -> Option<Self> {
        if !tracing::enabled!(target: "callboard::access", tracing::Level::INFO) {
            return None;
        }
        let tool = tool_name(request).unwrap_or_else(|| request.message.to_owned());
        Some(Self {
            agent: request.agent.to_owned(),
            tool,
            began: Instant::now(),
        })
    }

    /// Logs at `info` who called which tool of which agent, with outcome and duration, never the
    /// content. The lines have no rate limit: whoever turns them on wants all of them.
    pub fn finish<T>(self, principal: &Principal, reply: &Result<T, Failure>) {
        let Self { agent, tool, began } = self;
        let outcome = match reply {
            Ok(_) => "answered".to_owned(),
            Err(failure) => failure.kind.to_string(),
        };
        let ms = Duration::as_millis(&began.elapsed());
        tracing::info!(target: "callboard::access", principal = principal.id, kind = ?principal.kind, agent, tool, outcome, ms, "call");
    }
}
