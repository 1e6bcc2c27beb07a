use std::sync::Arc;

use callboard_message::capabilities::CallerCapabilities;
use callboard_message::{ElicitationAnswer, FailureKind, PrincipalKind, RawObject};
use futures::future::BoxFuture;
use serde_json::Value;

use super::store::SPACE;
use super::*;
use crate::kv_store::to_body;
use crate::sync::Mutex;
use crate::system::System;
use crate::testkit::run_with_paused_time;

fn principal(id: &str, scopes: &[&str]) -> Principal {
    Principal {
        id: id.to_owned(),
        kind: PrincipalKind::ApiKey,
        scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
        purpose: None,
    }
}

fn call_of(id: &str) -> CallContext {
    CallContext::new(Arc::new(principal(id, &["role:lead"])))
}

fn leads() -> ApprovalTerms {
    ApprovalTerms {
        rule: "pay".to_owned(),
        approvers: vec!["role:lead".to_owned()],
        minutes: 60,
    }
}

fn pay(arguments: &str) -> ToolUse<'static> {
    ToolUse {
        agent: "bank",
        tool: "pay",
        arguments: arguments.to_owned(),
    }
}

/// Waits for an approval, as [`super::obtain`] does, in a system.
async fn obtain(
    system: &System,
    call: &CallContext,
    terms: &ApprovalTerms,
    used: &ToolUse<'_>,
) -> Result<(), Failure> {
    let place = ApprovalPlace {
        store: &*system.store().kv,
        audit: system.audit(),
        waiting: system.policy().waiting_calls(),
    };
    super::obtain(place, call, terms, used).await
}

async fn key(
    system: &System,
    principal: &Principal,
    terms: &ApprovalTerms,
    used: &ToolUse<'_>,
) -> String {
    let secret = store::secret(&*system.store().kv).await.unwrap();
    store::key(&secret, principal, terms, used)
}

fn approve() -> ApprovalDecision {
    ApprovalDecision {
        is_approved: true,
        reason: None,
    }
}

/// Client whose person answers with this content, if it can ask one.
struct Person {
    answer: Option<Value>,
    asked: Mutex<Vec<String>>,
}

impl Caller for Person {
    fn capabilities(&self) -> CallerCapabilities {
        let mut capabilities = CallerCapabilities::default();
        if self.answer.is_some() {
            capabilities.0.set("elicitation", RawObject::new());
        }
        capabilities
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        let Question::Elicit(form) = question else {
            panic!("another question")
        };
        self.asked.lock().push(form.message());
        let content = self.answer.clone().unwrap_or_default();
        let answer = match content.is_null() {
            true => ElicitationAnswer::decline(),
            false => ElicitationAnswer::accept(content),
        };
        Box::pin(async move { Ok(Answer::Elicit(answer)) })
    }
}

/// Goal: the person at the caller sees requester, tool and all of the arguments, also what is invisible in them,
/// and the tool runs only if it says so. Method: persons that approve, accept without approving, and decline; a
/// client that can't ask, and none.
#[test]
fn person_at_the_caller() {
    run_with_paused_time(async |system| {
        let terms = ApprovalTerms {
            approvers: Vec::new(),
            ..leads()
        };
        let used = pay("{\"to\":\"b\u{200b}ob\"}");
        for (answer, expected) in [
            (Some(json!({ "approve": true })), None),
            (Some(json!({ "approve": false })), Some(FailureKind::Denied)),
            (Some(json!({})), Some(FailureKind::Denied)),
            (
                Some(json!({ "approve": "true" })),
                Some(FailureKind::Denied),
            ),
            (Some(Value::Null), Some(FailureKind::Denied)),
            (None, Some(FailureKind::NoResponder)),
        ] {
            let is_asked = answer.is_some();
            let person = Arc::new(Person {
                answer,
                asked: Mutex::default(),
            });
            let call = call_of("alice").with_caller(person.clone());
            let obtained = obtain(system, &call, &terms, &used).await;
            assert_eq!(obtained.err().map(|failure| failure.kind), expected);
            let shown = "api_key:alice wants to run the tool pay of bank with these arguments: {\"to\":\"b\\u{200b}ob\"}";
            let expected: &[&str] = if is_asked { &[shown] } else { &[] };
            assert_eq!(*person.asked.lock(), expected);
        }
        let nobody = obtain(system, &call_of("alice"), &terms, &used).await;
        assert_eq!(nobody.unwrap_err().kind, FailureKind::NoResponder);
        assert!(
            approvals(&*system.store().kv, &Principal::local_operator())
                .await
                .unwrap()
                .is_empty()
        );
    });
}

/// Goal: a use waits until somebody else with the scope has approved it, runs once, and neither its requester nor
/// somebody without the scope decides. Method: decisions by each of them while a call waits; calls after it.
#[test]
fn approved_by_somebody_else() {
    run_with_paused_time(async |system| {
        let store = &*system.store().kv;
        let (alice, bob, carol) = (
            principal("alice", &["role:lead"]),
            principal("bob", &["role:lead"]),
            principal("carol", &["role:leader"]),
        );
        // Another credential of the same person.
        let alice_again = Principal {
            kind: PrincipalKind::Token,
            ..alice.clone()
        };
        let (terms, used, call) = (leads(), pay("{\"to\":1}"), call_of("alice"));
        let waiting = obtain(system, &call, &terms, &used);
        let deciding = async {
            let pending = loop {
                tokio::time::sleep(POLL_INTERVAL / 2).await;
                if let Some(pending) = approvals(store, &bob).await.unwrap().pop() {
                    break pending;
                }
            };
            assert_eq!((&*pending.tool, &*pending.arguments), ("pay", "{\"to\":1}"));
            for (who, expected) in [
                (&alice, "request"),
                (&alice_again, "request"),
                (&carol, "isn't yours"),
            ] {
                let refused = decide_approval(store, &pending.id, approve(), who).await;
                let refused = refused.unwrap_err().to_string();
                assert!(refused.contains(expected), "{}: {refused}", who.id);
                assert!(approvals(store, who).await.unwrap().is_empty());
            }
            let other = format!("{}0", pending.id);
            for unknown in [&*other, "", "-", "x-1", &pending.id[..32]] {
                let refused = decide_approval(store, unknown, approve(), &bob).await;
                assert!(matches!(refused, Err(ApprovalError::Unknown)), "{unknown}");
            }
            decide_approval(store, &pending.id, approve(), &bob)
                .await
                .unwrap();
            let again = decide_approval(store, &pending.id, approve(), &bob).await;
            assert!(matches!(again, Err(ApprovalError::Decided)));
            pending.id
        };
        let (obtained, first) = tokio::join!(waiting, deciding);
        obtained.unwrap();
        // It was for one run.
        let soon = || call_of("alice").with_deadline(Instant::now() + 2 * POLL_INTERVAL);
        let pending = obtain(system, &soon(), &terms, &used).await.unwrap_err();
        assert_eq!(pending.kind, FailureKind::TimedOut);
        let id = pending.data.unwrap()["approval"]
            .as_str()
            .unwrap()
            .to_owned();
        assert_ne!(id, first);
        let late = decide_approval(store, &first, approve(), &bob).await;
        assert!(matches!(late, Err(ApprovalError::Unknown)));
        let denial = ApprovalDecision {
            is_approved: false,
            reason: Some("too much".to_owned()),
        };
        decide_approval(store, &id, denial, &Principal::local_operator())
            .await
            .unwrap();
        let denied = obtain(system, &call, &terms, &used).await.unwrap_err();
        assert_eq!(denied.kind, FailureKind::Denied);
        assert!(denied.message.contains("too much"), "{}", denied.message);
    });
}

/// Goal: an approval is for one use: of the same principal, tool and arguments, by one call. Method: other ones
/// after an approval, and two calls at once.
#[test]
fn approvals_are_for_one_use() {
    run_with_paused_time(async |system| {
        let store = &*system.store().kv;
        let (operator, terms) = (Principal::local_operator(), leads());
        let soon = |who| call_of(who).with_deadline(Instant::now() + 2 * POLL_INTERVAL);
        let asks = async |who, used: &ToolUse<'_>| obtain(system, &soon(who), &terms, used).await;
        let used = pay("{\"to\":1}");
        asks("alice", &used).await.unwrap_err();
        let [pending] = &approvals(store, &operator).await.unwrap()[..] else {
            panic!("not one")
        };
        decide_approval(store, &pending.id, approve(), &operator)
            .await
            .unwrap();
        let (other_agent, other_tool) = (
            ToolUse {
                agent: "other",
                ..pay("{\"to\":1}")
            },
            ToolUse {
                tool: "other",
                ..pay("{\"to\":1}")
            },
        );
        asks("bob", &used).await.unwrap_err();
        for other in [&pay("{\"to\":2}"), &other_agent, &other_tool] {
            asks("alice", other).await.unwrap_err();
        }
        let (one, other) = tokio::join!(asks("alice", &used), asks("alice", &used));
        assert_eq!(
            [one.is_ok(), other.is_ok()]
                .map(u8::from)
                .iter()
                .sum::<u8>(),
            1
        );
    });
}

/// Goal: neither a request nor an approval counts after its time. Method: entries whose time is over.
#[test]
fn approvals_expire() {
    run_with_paused_time(async |system| {
        let store = &*system.store().kv;
        let (operator, terms, used) = (Principal::local_operator(), leads(), pay("{}"));
        let alice = principal("alice", &[]);
        let key = key(system, &alice, &terms, &used).await;
        for state in [
            ApprovalState::Pending,
            ApprovalState::Approved,
            ApprovalState::Denied,
        ] {
            let expired = Approval {
                expires_s: 1,
                state,
                ..Approval::new(&key, &alice, &terms, &used)
            };
            store
                .put(SPACE, &key, to_body(&expired), None)
                .await
                .unwrap();
            assert!(approvals(store, &operator).await.unwrap().is_empty());
            let late = decide_approval(store, &expired.id, approve(), &operator).await;
            assert!(matches!(late, Err(ApprovalError::Unknown)));
            let soon = CallContext::new(Arc::new(alice.clone()))
                .with_deadline(Instant::now() + 2 * POLL_INTERVAL);
            let pending = obtain(system, &soon, &terms, &used).await.unwrap_err();
            assert_ne!(pending.data.unwrap()["approval"], expired.id);
        }
    });
}

/// Goal: a call doesn't ask again when nobody has decided in time. Method: a request that expires while it is awaited.
#[test]
fn requests_that_expire_while_awaited() {
    run_with_paused_time(async |system| {
        let store = &*system.store().kv;
        let (terms, used, call) = (leads(), pay("{}"), call_of("alice"));
        let expire = async {
            tokio::time::sleep(POLL_INTERVAL / 2).await;
            let entry = store.list(SPACE, None, 1).await.unwrap().remove(0);
            let expired = Approval {
                expires_s: 1,
                ..entry.record().unwrap()
            };
            store
                .put(SPACE, &entry.key, to_body(&expired), None)
                .await
                .unwrap();
        };
        let (obtained, ()) = tokio::join!(obtain(system, &call, &terms, &used), expire);
        let refused = obtained.unwrap_err();
        assert_eq!(refused.kind, FailureKind::Denied);
        assert!(refused.message.contains("in time"), "{}", refused.message);
        let operator = Principal::local_operator();
        assert!(approvals(store, &operator).await.unwrap().is_empty());
    });
}

/// Goal: what waits is bounded for each principal, and its expired uses make room; a cancelled call ends at once.
/// Method: the most requests and waiting calls, and one more; the longest arguments and reason, and a byte more.
#[test]
fn waiting_uses_are_bounded() {
    run_with_paused_time(async |system| {
        let store = &*system.store().kv;
        let (terms, operator) = (leads(), Principal::local_operator());
        let soon = |who: &str| call_of(who).with_deadline(Instant::now() + POLL_INTERVAL);
        let ask = async |who: &str, arguments: &str| {
            let refused = obtain(system, &soon(who), &terms, &pay(arguments)).await;
            refused.unwrap_err().kind
        };
        for at in 0..APPROVALS_PER_PRINCIPAL_MAX {
            let asked = ask("alice", &format!("{{\"n\":{at}}}")).await;
            assert_eq!(asked, FailureKind::TimedOut, "{at}");
        }
        assert_eq!(ask("alice", "{}").await, FailureKind::Overloaded);
        assert_eq!(ask("bob", "{}").await, FailureKind::TimedOut);
        let entries = store.list(SPACE, None, 1_000).await.unwrap();
        let of_alice = entries.iter().find(|entry| {
            let approval: Approval = entry.record().unwrap();
            approval.requester == "alice"
        });
        let of_alice = of_alice.unwrap();
        let expired = Approval {
            expires_s: 1,
            ..of_alice.record().unwrap()
        };
        let body = to_body(&expired);
        store.put(SPACE, &of_alice.key, body, None).await.unwrap();
        assert_eq!(ask("alice", "{}").await, FailureKind::TimedOut);
        let pending = approvals(store, &operator).await.unwrap();
        assert_eq!(pending.len(), APPROVALS_PER_PRINCIPAL_MAX + 1);
        // It was removed to make room.
        assert!(store.get(SPACE, &of_alice.key).await.unwrap().is_none());

        let longest = "x".repeat(APPROVAL_ARGUMENTS_BYTES_MAX);
        assert_eq!(ask("bob", &longest).await, FailureKind::TimedOut);
        let longer = format!("{longest}x");
        assert_eq!(ask("bob", &longer).await, FailureKind::InvalidInput);

        let decide = async |bytes: usize| {
            let decision = ApprovalDecision {
                is_approved: false,
                reason: Some("x".repeat(bytes)),
            };
            decide_approval(store, &pending[0].id, decision, &operator).await
        };
        let long = decide(APPROVAL_REASON_BYTES_MAX + 1).await;
        assert!(matches!(long, Err(ApprovalError::Reason)));
        decide(APPROVAL_REASON_BYTES_MAX).await.unwrap();

        let call = call_of("carol");
        let cancelling = async {
            tokio::time::sleep(POLL_INTERVAL / 2).await;
            call.cancel.cancel();
        };
        let used = pay("{}");
        let (ended, ()) = tokio::join!(obtain(system, &call, &terms, &used), cancelling);
        assert_eq!(ended.unwrap_err().kind, FailureKind::Cancelled);

        // One more than may wait at a time ends at once.
        let call = call_of("dave").with_deadline(Instant::now() + 10 * POLL_INTERVAL);
        let began = Instant::now();
        let all = (0..=APPROVAL_WAITS_PER_PRINCIPAL_MAX).map(|_| async {
            let ended = obtain(system, &call, &terms, &used).await.unwrap_err();
            assert_eq!(ended.kind, FailureKind::TimedOut);
            usize::from(began.elapsed() < POLL_INTERVAL)
        });
        let at_once: usize = futures::future::join_all(all).await.into_iter().sum();
        assert_eq!(at_once, 1);
    });
}
