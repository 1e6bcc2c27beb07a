//! Detector: another agent that judges texts at boundaries, such as a classifier behind MCP or A2A.

use std::sync::Arc;
use std::time::Duration;

use callboard_message::{Failure, Principal};
use callboard_runtime::{
    CallContext, Direction, ExchangePart, PRINCIPAL_SHARE_PERCENT_DEFAULT, Policy, PolicyRequest,
    PrincipalShares, System,
};
use futures::future::BoxFuture;

use super::{
    GUARD_BUSY_RULE, GUARD_TIMEOUT_DEFAULT, GUARD_UNAVAILABLE_RULE, GUARD_UNREADABLE_RULE, Screen,
    TextOrigin, blocked_failure, collect_texts, failure_data, part_origin,
};

/// Maximum texts that a detector judges at once, three quarters of them of one principal. With
/// more, it counts as unavailable. Fixed.
pub const DETECTIONS_IN_FLIGHT_MAX: usize = 64;

/// Options of a detector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetectorOptions {
    /// Id of the agent, which handles [`Screen`]: an agent of this process, or a remote one with a
    /// tool or skill of that name.
    pub agent: String,
    /// Time limit for one message. After it, the detector counts as unavailable.
    pub timeout: Duration,
    /// Whether messages are blocked while the detector is unavailable.
    pub is_required: bool,
}

impl DetectorOptions {
    /// Creates the options of a required detector with the time limit [`GUARD_TIMEOUT_DEFAULT`].
    pub fn new(agent: impl Into<String>) -> Self {
        Self {
            agent: agent.into(),
            timeout: GUARD_TIMEOUT_DEFAULT,
            is_required: true,
        }
    }
}

/// Policy that asks a detector about the texts of all exchanges but those by which it asks. It
/// blocks a text that the detector blocks and a message that isn't valid JSON, and passes no text
/// that another policy blocks. Clones share their limit.
#[derive(derive_more::Debug, Clone)]
#[debug("DetectorPolicy({options:?})")]
pub struct DetectorPolicy {
    system: System,
    options: DetectorOptions,
    permits: Arc<PrincipalShares>,
    /// Principal of the calls by which this policy and its clones ask. No other call has this
    /// allocation, whose address tells the own exchanges from others.
    asker: Arc<Principal>,
}

impl DetectorPolicy {
    /// Creates a policy that looks the detector up in the directory of `system` for each message.
    pub fn new(system: System, options: DetectorOptions) -> Self {
        Self {
            system,
            options,
            permits: PrincipalShares::new(
                DETECTIONS_IN_FLIGHT_MAX,
                PRINCIPAL_SHARE_PERCENT_DEFAULT,
            ),
            asker: Arc::new(Principal::system()),
        }
    }

    /// Returns a policy with other options, which shares the limit of this one and doesn't judge the
    /// exchanges that this one has begun with the same agent.
    pub fn with_options(&self, options: DetectorOptions) -> Self {
        Self {
            options,
            ..self.clone()
        }
    }

    /// Returns whether a message or part belongs to an exchange by which the policy asks the
    /// detector. What the detector asks other agents in turn doesn't.
    fn is_own_exchange(&self, crossing: &PolicyRequest<'_>) -> bool {
        crossing.direction == Direction::Outbound
            && crossing.agent == self.options.agent
            && std::ptr::eq(crossing.principal, &*self.asker)
    }

    /// Asks the detector about a message or part. Fails with the ids of the rules that block it.
    async fn detect(
        &self,
        crossing: PolicyRequest<'_>,
        origin: TextOrigin,
    ) -> Result<(), Vec<String>> {
        let DetectorOptions {
            agent: id,
            timeout,
            is_required,
        } = &self.options;
        // What the detector is asked crosses a boundary too.
        if self.is_own_exchange(&crossing) {
            return Ok(());
        }
        let Some(text) = collect_texts(crossing.payload) else {
            return Err(vec![GUARD_UNREADABLE_RULE.to_owned()]);
        };
        if text.is_empty() {
            return Ok(());
        }
        let unavailable = |rule: &str, why: &str| {
            let call = crossing.call;
            callboard_message::log::warn!(%call, detector = id, why, is_required, "the detector judged no message");
            match is_required {
                true => Err(vec![rule.to_owned()]),
                false => Ok(()),
            }
        };
        let Ok(_permit) = self.permits.try_acquire(crossing.principal) else {
            return unavailable(GUARD_BUSY_RULE, "too many messages wait for it");
        };
        let Some(detector) = self.system.directory().get(id) else {
            return unavailable(GUARD_UNAVAILABLE_RULE, "it isn't running");
        };
        let asked = detector.ask(Screen { text, origin });
        let call = Arc::new(CallContext::new(self.asker.clone()));
        match asked.within_call(Some(call)).within(*timeout).await {
            Ok(result) if result.blocked => {
                callboard_message::log::info!(call = %crossing.call, detector = id, "the detector stopped a message");
                Err(vec![format!("detector.{id}")])
            }
            Ok(_) => Ok(()),
            Err(error) => unavailable(GUARD_UNAVAILABLE_RULE, &error.to_string()),
        }
    }

    /// Creates the failure of a request of which nothing has been done. If the detector didn't judge
    /// it, the sender is told so and may repeat it.
    fn request_failure(&self, rules: Vec<String>) -> Failure {
        let DetectorOptions { agent, timeout, .. } = &self.options;
        let unjudged = match rules.as_slice() {
            [rule] if rule == GUARD_BUSY_RULE => Failure::overloaded(format!(
                "the detector {agent:?} judges as many texts as it may (at most {} of one \
                 principal, {DETECTIONS_IN_FLIGHT_MAX} in all): try again later",
                self.permits.rule().alone_max()
            )),
            [rule] if rule == GUARD_UNAVAILABLE_RULE => Failure::unavailable(format!(
                "the detector {agent:?} didn't judge the request (it isn't running, failed, or took \
                 longer than {} ms), so it was refused: try again later",
                timeout.as_millis()
            )),
            _ => return blocked_failure(rules),
        };
        unjudged.with_data(failure_data(&rules))
    }
}

impl Policy for DetectorPolicy {
    fn check<'a>(&'a self, crossing: PolicyRequest<'a>) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let detected = self.detect(crossing, TextOrigin::User).await;
            detected.map_err(|rules| match crossing.direction {
                Direction::Inbound => self.request_failure(rules),
                Direction::Outbound => blocked_failure(rules),
            })
        })
    }

    fn checks_parts(&self) -> bool {
        true
    }

    fn check_part<'a>(
        &'a self,
        part: ExchangePart,
        crossing: PolicyRequest<'a>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        let origin = part_origin(part, crossing.message);
        Box::pin(async move {
            let detected = self.detect(crossing, origin).await;
            detected.map_err(blocked_failure)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use callboard_message::{CallId, FailureKind, RawMessage, RawObject, RawReply};
    use callboard_runtime::outbound_policy::exchange;
    use callboard_runtime::testkit::{ScriptStep, ScriptedAgent, run_with_paused_time};
    use callboard_runtime::{Agent, CallOrigin, ConcurrentHandler, Context, Handlers};
    use serde_json::json;
    use serde_json::value::{RawValue, to_raw_value};

    use super::*;
    use crate::blocking_rules;

    const ID: &str = "classifier";

    /// Returns the result of the policy for a message of an anonymous principal from or to `agent`.
    async fn check(
        policy: &DetectorPolicy,
        direction: Direction,
        agent: &str,
    ) -> Result<(), Failure> {
        let payload = RawObject::single("text", "hello").to_raw();
        check_payload(policy, direction, agent, &Principal::anonymous(), &payload).await
    }

    /// Returns the result of the policy for an inbound request or the reply to an outbound one.
    async fn check_payload(
        policy: &DetectorPolicy,
        direction: Direction,
        agent: &str,
        principal: &Principal,
        payload: &RawValue,
    ) -> Result<(), Failure> {
        let crossing = PolicyRequest {
            direction,
            principal,
            call: CallId::generate(),
            agent,
            message: "callboard.tools.call",
            payload,
        };
        match direction {
            Direction::Inbound => Policy::check(policy, crossing).await,
            Direction::Outbound => policy.check_part(ExchangePart::Reply, crossing).await,
        }
    }

    fn judged(is_blocked: bool) -> ScriptStep {
        ScriptStep::Reply(json!({ "blocked": is_blocked, "score": 0, "rules": ["its own"] }))
    }

    /// Goal: a detector blocks what it says, in time; without its word the setting decides. Method:
    /// an agent that passes, blocks, fails, answers something else, and hangs, and none at all, with
    /// both settings and in both directions.
    #[test]
    fn detectors() {
        let absent = Some(GUARD_UNAVAILABLE_RULE);
        for (step, required, optional) in [
            (Some(judged(false)), None, None),
            (
                Some(judged(true)),
                Some("detector.classifier"),
                Some("detector.classifier"),
            ),
            (
                Some(ScriptStep::Fail(Failure::unavailable("away"))),
                absent,
                None,
            ),
            (Some(ScriptStep::Reply(json!("fine"))), absent, None),
            (Some(ScriptStep::Hang), absent, None),
            (None, absent, None),
        ] {
            for (is_required, expected) in [(true, required), (false, optional)] {
                for direction in [Direction::Inbound, Direction::Outbound] {
                    let told = format!("{step:?} {is_required} {direction:?}");
                    let step = step.clone();
                    run_with_paused_time(async |system| {
                        if let Some(step) = step {
                            let agent = system.spawn(ScriptedAgent::new([step]));
                            system.directory().register(ID, &agent).unwrap();
                        }
                        let options = DetectorOptions {
                            is_required,
                            ..DetectorOptions::new(ID)
                        };
                        let policy = DetectorPolicy::new(system.clone(), options);
                        let begun = tokio::time::Instant::now();
                        let failure = check(&policy, direction, "peer").await.err();
                        assert!(begun.elapsed() <= GUARD_TIMEOUT_DEFAULT, "{told}");
                        let is_away = expected == absent && direction == Direction::Inbound;
                        let kind = match is_away {
                            true => FailureKind::Unavailable,
                            false => FailureKind::Blocked,
                        };
                        assert_eq!(
                            failure.as_ref().map(|f| f.kind),
                            expected.map(|_| kind),
                            "{told}"
                        );
                        if let Some(rules) = failure.as_ref().and_then(blocking_rules) {
                            assert_eq!(rules, [expected.unwrap()], "{told}");
                        }
                        system.shutdown(Duration::from_secs(1)).await;
                    });
                }
            }
        }
    }

    /// Goal: a message that can't be read is blocked, whether the detector is required or not; one
    /// without text passes. Method: JSON nested too deep, half a surrogate pair and a number out of
    /// range, in both directions, with a detector that isn't running.
    #[test]
    fn unreadable_messages() {
        run_with_paused_time(async |system| {
            let nested = format!("{}{}", "[".repeat(200), "]".repeat(200));
            let nobody = Principal::anonymous();
            for is_required in [true, false] {
                let options = DetectorOptions {
                    is_required,
                    ..DetectorOptions::new(ID)
                };
                let policy = DetectorPolicy::new(system.clone(), options);
                for direction in [Direction::Inbound, Direction::Outbound] {
                    for json in [nested.as_str(), r#"{"text":"\ud800"}"#, "[1e999]"] {
                        let payload = RawValue::from_string(json.to_owned()).unwrap();
                        let blocked =
                            check_payload(&policy, direction, "peer", &nobody, &payload).await;
                        let rules = blocking_rules(&blocked.unwrap_err());
                        let expected = vec![GUARD_UNREADABLE_RULE.to_owned()];
                        assert_eq!(rules, Some(expected), "{json} {direction:?}");
                    }
                    let empty = RawObject::new().to_raw();
                    let passed = check_payload(&policy, direction, "peer", &nobody, &empty).await;
                    passed.unwrap();
                }
            }
            system.shutdown(Duration::from_secs(1)).await;
        });
    }

    /// Goal: a text over the limit isn't sent to the detector, its sender learns the detector and the
    /// limit, and a principal that uses its share leaves room for others; a sender learns which
    /// detector isn't running. Method: a detector that passes one text; as many permits taken as one
    /// principal may have.
    #[test]
    fn limits() {
        run_with_paused_time(async |system| {
            let policy = DetectorPolicy::new(system.clone(), DetectorOptions::new(ID));
            let refused = check(&policy, Direction::Inbound, "peer").await;
            let away = refused.unwrap_err();
            assert_eq!(away.kind, FailureKind::Unavailable);
            assert!(away.message.contains(ID), "{}", away.message);
            let agent = system.spawn(ScriptedAgent::new([judged(false), judged(true)]));
            system.directory().register(ID, &agent).unwrap();
            let nobody = Principal::anonymous();
            let held: Vec<_> =
                std::iter::from_fn(|| policy.permits.try_acquire(&nobody).ok()).collect();
            assert_eq!(held.len(), DETECTIONS_IN_FLIGHT_MAX * 3 / 4);
            // Other options don't change the limit.
            let reloaded = policy.with_options(DetectorOptions::new(ID));
            for policy in [&policy, &reloaded] {
                let refused = check(policy, Direction::Inbound, "peer").await;
                let busy = refused.unwrap_err();
                assert_eq!(busy.kind, FailureKind::Overloaded);
                for part in [ID, "48", "64", "try again later"] {
                    assert!(busy.message.contains(part), "{}", busy.message);
                }
            }
            let other = Principal::agent("other");
            let payload = RawObject::single("text", "hello").to_raw();
            let passed = check_payload(&policy, Direction::Inbound, "peer", &other, &payload);
            passed.await.unwrap();
            drop(held);
            let refused = check(&policy, Direction::Inbound, "peer").await;
            assert_eq!(refused.unwrap_err().kind, FailureKind::Blocked);
            system.shutdown(Duration::from_secs(1)).await;
        });
    }

    /// Detector whose exchanges cross a boundary, as those of a remote agent do. It blocks every text
    /// and counts them.
    struct RemoteDetector(Arc<AtomicUsize>);

    impl Agent for RemoteDetector {
        fn handlers(on: &mut Handlers<Self>) {
            on.fallback(64);
        }
    }

    impl ConcurrentHandler<RawMessage> for RemoteDetector {
        fn handle(
            &mut self,
            message: RawMessage,
            cx: Context,
        ) -> impl Future<Output = RawReply> + Send + 'static {
            let judged = self.0.clone();
            async move {
                let deadline = || tokio::time::Instant::now() + GUARD_TIMEOUT_DEFAULT;
                let work = |_| async move {
                    judged.fetch_add(1, Relaxed);
                    let result = json!({ "blocked": true, "score": 100, "rules": ["its own"] });
                    Ok(to_raw_value(&result).unwrap())
                };
                exchange(message, &cx, ID, CallOrigin::MCP, deadline, work).await
            }
        }
    }

    /// Goal: the detector judges neither the message nor the reply of an exchange by which the policy
    /// asks it, but what others send to it. Method: a remote detector behind the policy, asked by the
    /// policy and by another sender.
    #[test]
    fn own_exchange() {
        run_with_paused_time(async |system| {
            let judged = Arc::new(AtomicUsize::new(0));
            let agent = system.spawn(RemoteDetector(judged.clone()));
            system.directory().register(ID, &agent).unwrap();
            let policy = DetectorPolicy::new(system.clone(), DetectorOptions::new(ID));
            system.policy().push(policy.clone());
            let blocked = check(&policy, Direction::Inbound, "peer")
                .await
                .unwrap_err();
            let rules = vec![format!("detector.{ID}")];
            assert_eq!(blocking_rules(&blocked), Some(rules));
            assert_eq!(judged.load(Relaxed), 1);
            let sent = Screen {
                text: "hello".to_owned(),
                origin: TextOrigin::User,
            };
            let detector = system.directory().get(ID).unwrap();
            let sent = detector
                .ask(sent)
                .within_call(None)
                .within(GUARD_TIMEOUT_DEFAULT);
            assert!(sent.await.is_err(), "the policy blocks the message");
            assert_eq!(
                judged.load(Relaxed),
                2,
                "only the policy's own text was sent"
            );
            system.shutdown(Duration::from_secs(1)).await;
        });
    }

    /// Goal: nothing but the policy's own call to the detector is exempt. Method: the principal of
    /// the policy and an equal one, with the detector and another agent, in both directions, while
    /// the detector isn't running.
    #[test]
    fn exemption_needs_call_and_agent() {
        run_with_paused_time(async |system| {
            let policy = DetectorPolicy::new(system.clone(), DetectorOptions::new(ID));
            let reloaded = policy.with_options(DetectorOptions::new(ID));
            let equal = Principal::system();
            let payload = RawObject::single("text", "hello").to_raw();
            for (principal, agent, direction, is_exempt) in [
                (&*policy.asker, ID, Direction::Outbound, true),
                (&*policy.asker, ID, Direction::Inbound, false),
                (&*policy.asker, "peer", Direction::Outbound, false),
                (&equal, ID, Direction::Outbound, false),
            ] {
                for policy in [&policy, &reloaded] {
                    let passed = check_payload(policy, direction, agent, principal, &payload).await;
                    assert_eq!(passed.is_ok(), is_exempt, "{agent} {direction:?}");
                }
            }
            system.shutdown(Duration::from_secs(1)).await;
        });
    }
}
