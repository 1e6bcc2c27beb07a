//! Access log: for each message from a peer, a line of the tracing target `callboard::access`; for each call, a line of
//! the audit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use callboard_message::{CallId, Failure, FailureKind, Principal};

use crate::policy::PolicyRequest;
use crate::policy::access::AccessItem;
use crate::policy::rate_limit::tool_name;
use crate::store::AuditLog;
use crate::store::call_log::EndedCall;

/// Message from a peer. It is logged when it is dropped: with its outcome, or as cancelled if that isn't known.
pub(crate) struct AccessEntry {
    principal: Arc<Principal>,
    audit: AuditLog,
    agent: String,
    tool: String,
    call: CallId,
    began: Instant,
    /// Kind of the failure; `None` if the message was answered.
    failed: Option<FailureKind>,
    /// Whether it is in the access log.
    is_logged: bool,
    /// Whether it is in the audit: it asks for no list.
    is_audited: bool,
}

impl AccessEntry {
    /// Begins an entry about a message from `principal`. `None` if the access log is off, which it is by default,
    /// and the audit has no line about this message.
    pub fn begin(
        request: &PolicyRequest<'_>,
        principal: &Arc<Principal>,
        audit: &AuditLog,
    ) -> Option<Self> {
        let is_logged = tracing::enabled!(target: "callboard::access", tracing::Level::INFO);
        let is_audited = audit.has_call_lines() && !AccessItem::is_of_agent(request.message);
        if !is_logged && !is_audited {
            return None;
        }
        let tool = tool_name(request).unwrap_or_else(|| request.message.to_owned());
        Some(Self {
            principal: principal.clone(),
            audit: audit.clone(),
            agent: request.agent.to_owned(),
            tool,
            call: request.call,
            began: Instant::now(),
            failed: Some(FailureKind::Cancelled),
            is_logged,
            is_audited,
        })
    }

    /// Logs the message with the outcome of its reply.
    pub fn finish<T>(mut self, reply: &Result<T, Failure>) {
        self.failed = reply.as_ref().err().map(|failure| failure.kind);
    }
}

impl Drop for AccessEntry {
    /// Logs who called which tool of which agent, with outcome and duration, never the content. The lines have no
    /// rate limit: whoever turns them on wants all of them.
    fn drop(&mut self) {
        let time = self.began.elapsed();
        let outcome = match self.failed {
            None => "answered".to_owned(),
            Some(kind) => kind.to_string(),
        };
        let Self {
            principal,
            agent,
            tool,
            ..
        } = &*self;
        if self.is_logged {
            let ms = Duration::as_millis(&time);
            tracing::info!(target: "callboard::access", principal = principal.id, kind = ?principal.kind, agent, tool, outcome, ms, "call");
        }
        if self.is_audited {
            self.audit.enqueue_call(&EndedCall {
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

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;
    use crate::audit::MemoryAuditStore;
    use crate::policy::Direction;
    use crate::testkit::run_with_paused_time;

    /// Goal: each call has one line with its outcome, also one whose caller has gone. Method: a reply, a failure, and a
    /// dropped entry.
    #[test]
    fn outcomes_of_calls() {
        run_with_paused_time(async |_| {
            let store = Arc::new(MemoryAuditStore::default());
            let audit = AuditLog::new(store.clone());
            audit.set_call_lines(true);
            let principal = Arc::new(Principal::agent("a"));
            let request = PolicyRequest {
                direction: Direction::Inbound,
                principal: &principal,
                call: CallId::generate(),
                agent: "files",
                message: "read",
                payload: RawValue::NULL,
            };
            let begin = || AccessEntry::begin(&request, &principal, &audit).unwrap();
            begin().finish(&Ok(()));
            begin().finish(&Err::<(), _>(Failure::invalid("no")));
            drop(begin());
            audit.flush().await;
            let entries = store.entries();
            let lines = entries.iter().flat_map(|entry| entry.call_lines());
            let outcomes: Vec<_> = lines.map(|line| line.split(' ').nth(4).unwrap()).collect();
            assert_eq!(outcomes, ["answered", "invalid_input", "cancelled"]);
        });
    }
}
