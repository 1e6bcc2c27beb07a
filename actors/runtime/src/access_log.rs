//! Access log: for each message from a peer, a line of the tracing target `callboard::access`; for each call, a line of
//! the audit.

use std::time::{Duration, Instant};

use callboard_message::{CallId, Failure, Principal};

use crate::policy::PolicyRequest;
use crate::policy::access::AccessItem;
use crate::policy::rate_limit::tool_name;
use crate::store::AuditLog;
use crate::store::call_log::EndedCall;

/// Message from a peer that is logged when its outcome is known.
pub(crate) struct AccessEntry {
    agent: String,
    tool: String,
    call: CallId,
    began: Instant,
    /// Whether it is in the access log.
    is_logged: bool,
    /// Whether it is in the audit: it asks for no list.
    is_audited: bool,
}

impl AccessEntry {
    /// Begins an entry. `None` if the access log is off, which it is by default, and the audit has no line about
    /// this message.
    pub fn begin(request: &PolicyRequest<'_>, audit: &AuditLog) -> Option<Self> {
        let is_logged = tracing::enabled!(target: "callboard::access", tracing::Level::INFO);
        let is_audited = audit.has_call_lines() && !AccessItem::is_of_agent(request.message);
        if !is_logged && !is_audited {
            return None;
        }
        let tool = tool_name(request).unwrap_or_else(|| request.message.to_owned());
        Some(Self {
            agent: request.agent.to_owned(),
            tool,
            call: request.call,
            began: Instant::now(),
            is_logged,
            is_audited,
        })
    }

    /// Logs who called which tool of which agent, with outcome and duration, never the content. The lines have no
    /// rate limit: whoever turns them on wants all of them.
    pub fn finish<T>(self, principal: &Principal, audit: &AuditLog, reply: &Result<T, Failure>) {
        let time = self.began.elapsed();
        let outcome = match reply {
            Ok(_) => "answered".to_owned(),
            Err(failure) => failure.kind.to_string(),
        };
        let Self { agent, tool, .. } = &self;
        if self.is_logged {
            let ms = Duration::as_millis(&time);
            tracing::info!(target: "callboard::access", principal = principal.id, kind = ?principal.kind, agent, tool, outcome, ms, "call");
        }
        if self.is_audited {
            audit.enqueue_call(&EndedCall {
                principal,
                agent,
                tool,
                outcome: &outcome,
                time,
                call: self.call,
            });
        }
    }
}
