//! Detector: another agent that judges texts at boundaries, such as a classifier behind MCP or A2A.

use std::sync::Arc;
use std::time::Duration;

use callboard_message::Failure;
use callboard_runtime::{Direction, ExchangePart, Policy, PolicyRequest, System};
use futures::future::BoxFuture;
use tokio::sync::Semaphore;

use super::{
    GUARD_BUSY_RULE, GUARD_TIMEOUT_DEFAULT, GUARD_UNAVAILABLE_RULE, Screen, TextOrigin,
    blocked_failure, collect_texts, part_origin, request_failure,
};

/// Maximum texts that a detector judges at once. With more, it counts as unavailable. Fixed.
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

/// Policy that asks a detector about the texts of all exchanges but those with the detector itself.
/// It blocks a text that the detector blocks, and passes no text that another policy blocks.
#[derive(derive_more::Debug)]
#[debug("DetectorPolicy({options:?})")]
pub struct DetectorPolicy {
    system: System,
    options: DetectorOptions,
    permits: Arc<Semaphore>,
}

impl DetectorPolicy {
    /// Creates a policy that looks the detector up in the directory of `system` for each message.
    pub fn new(system: System, options: DetectorOptions) -> Self {
        Self {
            system,
            options,
            permits: Arc::new(Semaphore::new(DETECTIONS_IN_FLIGHT_MAX)),
        }
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
        let text = collect_texts(crossing.payload).filter(|text| !text.is_empty());
        let Some(text) = text.filter(|_| crossing.agent != id) else {
            return Ok(());
        };
        let unavailable = |rule: &str, why: &str| {
            let call = crossing.call;
            callboard_message::log::warn!(%call, detector = id, why, is_required, "the detector judged no message");
            match is_required {
                true => Err(vec![rule.to_owned()]),
                false => Ok(()),
            }
        };
        let Ok(_permit) = self.permits.try_acquire() else {
            return unavailable(GUARD_BUSY_RULE, "too many messages wait for it");
        };
        let Some(detector) = self.system.directory().get(id) else {
            return unavailable(GUARD_UNAVAILABLE_RULE, "it isn't running");
        };
        let asked = detector.ask(Screen { text, origin });
        match asked.within_call(None).within(*timeout).await {
            Ok(result) if result.blocked => {
                callboard_message::log::info!(call = %crossing.call, detector = id, "the detector stopped a message");
                Err(vec![format!("detector.{id}")])
            }
            Ok(_) => Ok(()),
            Err(error) => unavailable(GUARD_UNAVAILABLE_RULE, &error.to_string()),
        }
    }
}

impl Policy for DetectorPolicy {
    fn check<'a>(&'a self, crossing: PolicyRequest<'a>) -> BoxFuture<'a, Result<(), Failure>> {
        let failure: fn(Vec<String>) -> Failure = match crossing.direction == Direction::Inbound {
            true => request_failure,
            false => blocked_failure,
        };
        Box::pin(async move {
            let detected = self.detect(crossing, TextOrigin::User).await;
            detected.map_err(failure)
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
    use callboard_message::{CallId, FailureKind, Principal, RawObject};
    use callboard_runtime::testkit::{ScriptStep, ScriptedAgent, run_with_paused_time};
    use serde_json::json;

    use super::*;
    use crate::blocking_rules;

    const ID: &str = "classifier";

    /// Returns the result of the policy for a message from or to `agent`.
    async fn check(
        policy: &DetectorPolicy,
        direction: Direction,
        agent: &str,
    ) -> Result<(), Failure> {
        let payload = RawObject::single("text", "hello").to_raw();
        let crossing = PolicyRequest {
            direction,
            principal: &Principal::anonymous(),
            call: CallId::generate(),
            agent,
            message: "callboard.tools.call",
            payload: &payload,
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

    /// Goal: the exchange with the detector isn't judged by it, and one message more than it judges
    /// at once isn't sent to it. Method: a detector that blocks all; all permits taken.
    #[test]
    fn own_exchange_and_limit() {
        run_with_paused_time(async |system| {
            let agent = system.spawn(ScriptedAgent::new([judged(true)]));
            system.directory().register(ID, &agent).unwrap();
            let policy = DetectorPolicy::new(system.clone(), DetectorOptions::new(ID));
            check(&policy, Direction::Outbound, ID).await.unwrap();
            let held = policy
                .permits
                .clone()
                .acquire_many_owned(DETECTIONS_IN_FLIGHT_MAX as u32);
            let held = held.await.unwrap();
            let busy = check(&policy, Direction::Inbound, "peer")
                .await
                .unwrap_err();
            assert_eq!(busy.kind, FailureKind::Overloaded);
            drop(held);
            let blocked = check(&policy, Direction::Inbound, "peer")
                .await
                .unwrap_err();
            assert_eq!(blocked.kind, FailureKind::Blocked);
            system.shutdown(Duration::from_secs(1)).await;
        });
    }
}
