//! Access log: for each message from a peer, a line of the tracing target `callboard::access`; for each call, a line of
//! the audit; and the exchange among the events of the node.

use std::sync::Arc;
use std::time::{Duration, Instant};

use callboard_message::{CallId, Failure, FailureKind, Principal};
use serde_json::value::RawValue;

use crate::call::CallContext;
use crate::node_events::{ExchangeKind, ExchangeScope, ExchangeStart};
use crate::policy::PolicyRequest;
use crate::policy::access::AccessItem;
use crate::policy::rate_limit::tool_name;
use crate::store::AuditLog;
use crate::store::call_log::EndedCall;
use crate::system::System;

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
    /// Record among the events of the node; `None` if they aren't read.
    scope: Option<ExchangeScope>,
    /// Whether it is in the access log.
    is_logged: bool,
    /// Whether it is in the audit: it asks for no list.
    is_audited: bool,
}

impl AccessEntry {
    /// Begins an entry about a message from `principal`. `None` if the access log is off, which it is by default,
    /// the audit has no line about this message, and nobody reads events.
    pub fn begin(system: &System, request: &PolicyRequest<'_>, call: &CallContext) -> Option<Self> {
        let (principal, audit) = (&call.principal, system.audit());
        let is_logged = tracing::enabled!(target: "callboard::access", tracing::Level::INFO);
        let is_audited = audit.has_call_lines() && !AccessItem::is_of_agent(request.message);
        let is_recorded = system.node_events().is_on();
        if !is_logged && !is_audited && !is_recorded {
            return None;
        }
        let tool = tool_name(request);
        let scope = is_recorded.then(|| {
            ExchangeScope::begin(
                system.node_events(),
                &ExchangeStart {
                    kind: ExchangeKind::Inbound,
                    call: request.call,
                    trace: system.node_events().sampled(call.trace),
                    principal,
                    agent: request.agent,
                    message: request.message,
                    tool: tool.as_deref(),
                    origin: call.origin,
                    payload: request.payload.get(),
                },
            )
        });
        // Owned for its line; the record has its own copies.
        let has_line = is_logged || is_audited;
        let owned = |text: &str| {
            if has_line {
                text.to_owned()
            } else {
                String::new()
            }
        };
        let tool = owned(tool.as_deref().unwrap_or(request.message));
        Some(Self {
            principal: principal.clone(),
            audit: audit.clone(),
            agent: owned(request.agent),
            tool,
            call: request.call,
            began: Instant::now(),
            failed: Some(FailureKind::Cancelled),
            scope: scope.flatten(),
            is_logged,
            is_audited,
        })
    }

    /// Logs the message with the outcome of its reply.
    pub fn finish(mut self, reply: &Result<impl AsRef<RawValue>, Failure>) {
        self.failed = reply.as_ref().err().map(|failure| failure.kind);
        if let Some(scope) = self.scope.take() {
            let reply = reply.as_ref().map_or("", |reply| reply.as_ref().get());
            scope.finish(self.failed, reply);
        }
    }
}

impl Drop for AccessEntry {
    /// Logs who called which tool of which agent, with outcome and duration, never the content. The lines have no
    /// rate limit: whoever turns them on wants all of them.
    fn drop(&mut self) {
        if !self.is_logged && !self.is_audited {
            return;
        }
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
    use super::*;
    use crate::audit::MemoryAuditStore;
    use crate::policy::Direction;
    use crate::store::Store;
    use crate::testkit::run_with_paused_time;

    /// Goal: each call has one line with its outcome, also one whose caller has gone. Method: a reply, a failure, and a
    /// dropped entry.
    #[test]
    fn outcomes_of_calls() {
        run_with_paused_time(async |system| {
            let store = Arc::new(MemoryAuditStore::default());
            let stores = Store {
                audit: store.clone(),
                ..Store::in_memory()
            };
            system.set_store(stores).unwrap();
            let audit = system.audit();
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
            let call = CallContext::new(principal.clone());
            let begin = || AccessEntry::begin(system, &request, &call).unwrap();
            begin().finish(&Ok(RawValue::NULL.to_owned()));
            begin().finish(&Err::<Box<RawValue>, _>(Failure::invalid("no")));
            drop(begin());
            audit.flush().await;
            let entries = store.entries();
            let lines = entries.iter().flat_map(|entry| entry.call_lines());
            let outcomes: Vec<_> = lines.map(|line| line.split(' ').nth(4).unwrap()).collect();
            assert_eq!(outcomes, ["answered", "invalid_input", "cancelled"]);
        });
    }
}
