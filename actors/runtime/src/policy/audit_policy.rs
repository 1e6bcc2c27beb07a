//! Policy that writes an audit entry for each message across a boundary.

use std::sync::Arc;

use callboard_message::{DataClass, ElicitationAction, ElicitationAnswer, Failure, RawObject};
use futures::future::BoxFuture;

use super::{
    Direction, ExchangePart, Policy, PolicyFuture, PolicyRequest, RULES_MEMBER, has_reason,
};
use crate::audit::AuditEntry;
use crate::store::AuditLog;

/// Function that returns the data class of the messages of an agent, by the agent's name.
pub type DataClassLookup = Arc<dyn Fn(&str) -> DataClass + Send + Sync>;

/// Policy that writes an audit entry for each message, reply, question and answer: parties, message
/// name and body digest, never the content.
///
/// A message waits for room in the audit queue, but not until its entry is stored. Rejections by
/// other policies, and consents given by a person, are stored before their sender gets the result.
/// A consent that can't be stored fails as `Unavailable`; a rejection stands in any case.
#[derive(Clone, derive_more::Debug)]
#[debug("AuditPolicy {{ decisions_only: {decisions_only} }}")]
pub struct AuditPolicy {
    log: AuditLog,
    class_of: DataClassLookup,
    decisions_only: bool,
}

impl AuditPolicy {
    /// Creates the policy for `log`. `class_of` returns an agent's data class by name. The policy
    /// must be the first of the chain, so that it sees all messages.
    pub fn new(log: AuditLog, class_of: DataClassLookup) -> Self {
        Self {
            log,
            class_of,
            decisions_only: false,
        }
    }

    /// Restricts the policy to rejections and consents. Permitted messages, replies and questions
    /// leave no entry.
    pub fn decisions_only(self) -> Self {
        Self {
            decisions_only: true,
            ..self
        }
    }

    fn entry(&self, event: &'static str, request: PolicyRequest<'_>) -> AuditEntry {
        let class = (self.class_of)(request.agent);
        let direction = match request.direction {
            Direction::Inbound => "inbound",
            Direction::Outbound => "outbound",
        };
        let entry = AuditEntry::new(event)
            .with_agent(request.agent)
            .with_message(request.message);
        let entry = entry
            .with_principal(request.principal)
            .with_call(request.call)
            .with_class(class);
        entry
            .with_body(self.log.digest(class, request.payload.get().as_bytes()))
            .with_detail("direction", direction)
    }
}

impl Policy for AuditPolicy {
    fn check<'a>(&'a self, request: PolicyRequest<'a>) -> PolicyFuture<'a> {
        Box::pin(async move {
            if !self.decisions_only {
                self.log.enqueue(self.entry("message", request)).await;
            }
            Ok(())
        })
    }

    fn checks_parts(&self) -> bool {
        true
    }

    fn check_part<'a>(
        &'a self,
        part: ExchangePart,
        request: PolicyRequest<'a>,
    ) -> PolicyFuture<'a> {
        Box::pin(async move {
            if part == ExchangePart::Answer && is_consent(request) {
                let kept = self
                    .log
                    .record(self.entry("consent", request).with_outcome("accept"))
                    .await;
                return kept.map(drop).map_err(|error| {
                    Failure::unavailable(format!(
                        "failed to record the consent in the audit: {error}"
                    ))
                });
            }
            if !self.decisions_only {
                self.log
                    .enqueue(self.entry(event_name(Some(part)), request))
                    .await;
            }
            Ok(())
        })
    }

    fn on_rejected<'a>(
        &'a self,
        part: Option<ExchangePart>,
        request: PolicyRequest<'a>,
        failure: &'a Failure,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let entry = self
                .entry("denied", request)
                .with_outcome(failure.kind.to_string());
            let entry = entry.with_detail("part", event_name(part));
            let entry = match blocking_rules(failure) {
                Some(rules) => entry.with_detail("rules", rules),
                None => entry,
            };
            // The rejection stands in any case; a failing audit store is reported in the log.
            let _ = self.log.record(entry).await;
        })
    }
}

/// Returns the name of the audit event for a message (`None`) or a part of its exchange.
fn event_name(part: Option<ExchangePart>) -> &'static str {
    match part {
        None => "message",
        Some(ExchangePart::Reply) => "reply",
        Some(ExchangePart::Question) => "question",
        Some(ExchangePart::Answer) => "answer",
    }
}

/// Returns the ids of the rules that blocked a message; `None` if the failure names none.
fn blocking_rules(failure: &Failure) -> Option<Vec<String>> {
    let data = failure.data.as_ref().filter(|_| has_reason(failure))?;
    let rules = data.get(RULES_MEMBER)?.as_array()?.iter();
    rules.map(|rule| Some(rule.as_str()?.to_owned())).collect()
}

/// Returns true for an elicitation answer by which the user accepts.
fn is_consent(request: PolicyRequest<'_>) -> bool {
    let answer = || {
        serde_json::from_str::<RawObject>(request.payload.get())
            .ok()
            .map(ElicitationAnswer)
    };
    request.message == "elicit"
        && answer().is_some_and(|answer| answer.action() == ElicitationAction::Accept)
}

#[cfg(test)]
mod tests {
    use callboard_message::{CallId, Principal};
    use serde_json::value::{RawValue, to_raw_value};

    use callboard_message::FailureKind;
    use serde_json::json;

    use super::*;
    use crate::audit::{AuditValue, MemoryAuditStore};
    use crate::policy::PolicyChain;

    /// Rejects messages and parts with this name.
    struct Refuses(&'static str);

    impl Policy for Refuses {
        fn check<'a>(&'a self, request: PolicyRequest<'a>) -> PolicyFuture<'a> {
            let refused = request.message == self.0;
            Box::pin(async move {
                if refused {
                    let why = json!({ "reason": "test", "rules": ["test.rule"] });
                    Err(Failure::denied("no").with_data(why))
                } else {
                    Ok(())
                }
            })
        }

        fn checks_parts(&self) -> bool {
            true
        }

        fn check_part<'a>(
            &'a self,
            _: ExchangePart,
            request: PolicyRequest<'a>,
        ) -> PolicyFuture<'a> {
            self.check(request)
        }
    }

    fn chain(decisions_only: bool) -> (Arc<MemoryAuditStore>, AuditLog, PolicyChain) {
        let kept = Arc::new(MemoryAuditStore::default());
        let log = AuditLog::new(kept.clone());
        let class_of: DataClassLookup = Arc::new(|agent| {
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
        let (principal, call) = (Principal::agent("who"), CallId::generate());
        let payload: Box<RawValue> =
            to_raw_value(&serde_json::json!({ "name": "Ana Silva" })).unwrap();
        let yes: Box<RawValue> = to_raw_value(&serde_json::json!({ "action": "accept" })).unwrap();
        let no: Box<RawValue> = to_raw_value(&serde_json::json!({ "action": "decline" })).unwrap();
        let request = |message: &'static str| PolicyRequest {
            direction: Direction::Inbound,
            principal: &principal,
            call,
            agent: "clinic",
            message,
            payload: &payload,
        };
        chain.check(None, request("good")).await.unwrap();
        chain.check(None, request("bad")).await.unwrap_err();
        chain
            .check_reply(request("good"), Ok(payload.clone()))
            .await
            .unwrap();
        chain
            .check_reply(request("bad"), Ok(payload.clone()))
            .await
            .unwrap_err();
        chain
            .check(Some(ExchangePart::Question), request("elicit"))
            .await
            .unwrap();
        chain
            .check(
                Some(ExchangePart::Answer),
                PolicyRequest {
                    payload: &yes,
                    ..request("elicit")
                },
            )
            .await
            .unwrap();
        chain
            .check(
                Some(ExchangePart::Answer),
                PolicyRequest {
                    payload: &no,
                    ..request("elicit")
                },
            )
            .await
            .unwrap();
    }

    /// Goal: each message across a boundary leaves an entry with principal, name and keyed digest,
    /// and none of its content; a rejection by a later policy leaves one more. Method: every kind
    /// of message and part, passed once and rejected once.
    /// Rows: H-39, X-44.
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
        let rules = AuditValue::from(vec!["test.rule".to_owned()]);
        assert_eq!(entries[2].details.get("rules"), Some(&rules));
    }

    /// Goal: with decisions only, permitted messages leave no entry. Method: the same messages.
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
