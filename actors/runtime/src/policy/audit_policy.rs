//! Puts on record what crosses a boundary.

use std::sync::Arc;

use callboard_message::{DataClass, ElicitAction, ElicitAnswer, Failure, RawObject};
use futures::future::BoxFuture;

use super::{Crossing, Direction, Part, Policy, PolicyFuture};
use crate::audit::AuditEntry;
use crate::store::AuditLog;

/// What messages to an agent may hold.
pub type ClassOf = Arc<dyn Fn(&str) -> DataClass + Send + Sync>;

/// The link of the chain that puts every crossing on record: who, what, how much; never what was said.
///
/// A message waits for a place in the audit's queue, never for its commit. What another link refuses, and what a person
/// agrees to, is on record before its sender hears of it.
#[derive(Clone, derive_more::Debug)]
#[debug("AuditPolicy {{ decisions_only: {decisions_only} }}")]
pub struct AuditPolicy {
    log: AuditLog,
    class_of: ClassOf,
    decisions_only: bool,
}

impl AuditPolicy {
    /// A link over `log`; `class_of` tells by an agent's name what its messages may hold. Put it first in the chain.
    pub fn new(log: AuditLog, class_of: ClassOf) -> Self {
        Self {
            log,
            class_of,
            decisions_only: false,
        }
    }

    /// The same for refusals and consents only: messages, replies and questions that pass leave nothing.
    pub fn decisions_only(self) -> Self {
        Self {
            decisions_only: true,
            ..self
        }
    }

    fn entry(&self, event: &'static str, crossing: Crossing<'_>) -> AuditEntry {
        let class = (self.class_of)(crossing.agent);
        let direction = match crossing.direction {
            Direction::Inbound => "inbound",
            Direction::Outbound => "outbound",
        };
        let entry = AuditEntry::new(event)
            .with_agent(crossing.agent)
            .with_message(crossing.message);
        let entry = entry
            .with_principal(crossing.principal)
            .with_call(crossing.call)
            .with_class(class);
        entry
            .with_body(self.log.mark(class, crossing.payload.get().as_bytes()))
            .with("direction", direction)
    }
}

impl Policy for AuditPolicy {
    fn judge<'a>(&'a self, crossing: Crossing<'a>) -> PolicyFuture<'a> {
        Box::pin(async move {
            if !self.decisions_only {
                self.log.placed(self.entry("message", crossing)).await;
            }
            Ok(())
        })
    }

    fn judges_parts(&self) -> bool {
        true
    }

    fn judge_part<'a>(&'a self, part: Part, crossing: Crossing<'a>) -> PolicyFuture<'a> {
        Box::pin(async move {
            if part == Part::Answer && is_consent(crossing) {
                let kept = self
                    .log
                    .record(self.entry("consent", crossing).with_outcome("accept"))
                    .await;
                return kept.map(drop).map_err(|error| {
                    Failure::unavailable(format!("the consent can't be put on record: {error}"))
                });
            }
            if !self.decisions_only {
                self.log
                    .placed(self.entry(name(Some(part)), crossing))
                    .await;
            }
            Ok(())
        })
    }

    fn refused<'a>(
        &'a self,
        part: Option<Part>,
        crossing: Crossing<'a>,
        failure: &'a Failure,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let entry = self
                .entry("denied", crossing)
                .with_outcome(failure.kind.to_string());
            let entry = entry.with("part", name(part));
            // It is refused whether or not that is on record; the log tells of an audit that isn't kept.
            let _ = self.log.record(entry).await;
        })
    }
}

/// What a message or a part of one is called on record.
fn name(part: Option<Part>) -> &'static str {
    match part {
        None => "message",
        Some(Part::Reply) => "reply",
        Some(Part::Question) => "question",
        Some(Part::Answer) => "answer",
    }
}

/// Whether a person says yes.
fn is_consent(crossing: Crossing<'_>) -> bool {
    let answer = || {
        serde_json::from_str::<RawObject>(crossing.payload.get())
            .ok()
            .map(ElicitAnswer)
    };
    crossing.message == "elicit"
        && answer().is_some_and(|answer| answer.action() == ElicitAction::Accept)
}

#[cfg(test)]
mod tests {
    use callboard_message::{CallId, Principal};
    use serde_json::value::{RawValue, to_raw_value};

    use callboard_message::FailureKind;

    use super::*;
    use crate::audit::MemoryAudit;
    use crate::policy::PolicyChain;

    /// Refuses messages and parts of this name.
    struct Refuses(&'static str);

    impl Policy for Refuses {
        fn judge<'a>(&'a self, crossing: Crossing<'a>) -> PolicyFuture<'a> {
            let refused = crossing.message == self.0;
            Box::pin(async move {
                if refused {
                    Err(Failure::denied("no"))
                } else {
                    Ok(())
                }
            })
        }

        fn judges_parts(&self) -> bool {
            true
        }

        fn judge_part<'a>(&'a self, _: Part, crossing: Crossing<'a>) -> PolicyFuture<'a> {
            self.judge(crossing)
        }
    }

    fn chain(decisions_only: bool) -> (Arc<MemoryAudit>, AuditLog, PolicyChain) {
        let kept = Arc::new(MemoryAudit::default());
        let log = AuditLog::new(kept.clone());
        let class_of: ClassOf = Arc::new(|agent| {
            if agent == "clinic" {
                DataClass::Clinical
            } else {
                DataClass::Internal
            }
        });
        let policy = AuditPolicy::new(log.clone(), class_of);
        let chain = PolicyChain::default();
        chain.push(if decisions_only {
            policy.decisions_only()
        } else {
            policy
        });
        chain.push(Refuses("bad"));
        (kept, log, chain)
    }

    async fn everything(chain: &PolicyChain) {
        let (principal, call) = (Principal::agent("who"), CallId::fresh());
        let payload: Box<RawValue> =
            to_raw_value(&serde_json::json!({ "name": "Ana Silva" })).unwrap();
        let yes: Box<RawValue> = to_raw_value(&serde_json::json!({ "action": "accept" })).unwrap();
        let no: Box<RawValue> = to_raw_value(&serde_json::json!({ "action": "decline" })).unwrap();
        let crossing = |message: &'static str| Crossing {
            direction: Direction::Inbound,
            principal: &principal,
            call,
            agent: "clinic",
            message,
            payload: &payload,
        };
        chain.judge(crossing("good")).await.unwrap();
        chain.judge(crossing("bad")).await.unwrap_err();
        chain
            .judge_reply(crossing("good"), Ok(payload.clone()))
            .await
            .unwrap();
        chain
            .judge_reply(crossing("bad"), Ok(payload.clone()))
            .await
            .unwrap_err();
        chain
            .judge_part(Part::Question, crossing("elicit"))
            .await
            .unwrap();
        chain
            .judge_part(
                Part::Answer,
                Crossing {
                    payload: &yes,
                    ..crossing("elicit")
                },
            )
            .await
            .unwrap();
        chain
            .judge_part(
                Part::Answer,
                Crossing {
                    payload: &no,
                    ..crossing("elicit")
                },
            )
            .await
            .unwrap();
    }

    /// Goal: each crossing leaves an entry with who, what and a keyed mark, and none of what was said; refusals by later links
    /// leave one more. Method: everything that can cross, once passed and once refused.
    #[tokio::test]
    async fn every_crossing_is_on_record() {
        let (kept, log, chain) = chain(false);
        everything(&chain).await;
        log.flush().await;
        let entries = kept.entries();
        let events: Vec<&str> = entries.iter().map(|entry| &*entry.event).collect();
        let expected = [
            "message", "message", "denied", "reply", "reply", "denied", "question", "consent",
            "answer",
        ];
        assert_eq!(events, expected);
        for entry in &entries {
            assert_eq!(entry.agent.as_deref(), Some("clinic"));
            assert_eq!(
                entry.principal.as_ref().map(|(_, id)| id.as_str()),
                Some("who")
            );
            assert!(entry.call.is_some() && entry.class == DataClass::Clinical);
            assert!(
                entry
                    .body
                    .as_ref()
                    .is_some_and(|body| body.hash.starts_with("hmac-sha256:"))
            );
            assert!(!format!("{entry:?}").contains("Silva"));
        }
        assert_eq!(
            entries[2].outcome.as_deref(),
            Some(FailureKind::Denied.to_string().as_str())
        );
    }

    /// Goal: where only decisions are wanted, what merely passes leaves nothing. Method: the same.
    #[tokio::test]
    async fn decisions_alone() {
        let (kept, log, chain) = chain(true);
        everything(&chain).await;
        log.flush().await;
        let entries = kept.entries();
        let events: Vec<&str> = entries.iter().map(|entry| &*entry.event).collect();
        assert_eq!(events, ["denied", "denied", "consent"]);
    }
}
