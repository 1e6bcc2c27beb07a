//! Chains at the synthesis and the confirmation, where a failing model must not spare a person.

use std::sync::Arc;
use std::time::Duration;

use callboard_macros::Message;
use callboard_message::TaskState;
use callboard_runtime::testkit::{ScriptStep, ScriptedAgent, run_with_paused_time};
use callboard_runtime::{Agent, ConcurrentHandler, Handlers, System};

use super::*;
use crate::decide::limits::CONFIDENCE_FALLBACK;
use crate::decide::rules::RulesDecider;
use crate::decide::{Confirm, ConfirmReason, DecideConfirm, StepReport, Synthesis, Synthesize};

/// Request to have results combined, as part of a call.
#[derive(Message)]
#[message(reply = DecisionResult<Synthesis>, local)]
struct Combine(Synthesize);

/// Request to have the need of a confirmation decided, as part of a call.
#[derive(Message)]
#[message(reply = DecisionResult<Confirm>, local)]
struct Check(DecideConfirm);

struct Desk(Arc<Deciders>);

impl Agent for Desk {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Combine>(1).concurrent::<Check>(1);
    }
}

impl ConcurrentHandler<Combine> for Desk {
    fn handle(
        &mut self,
        Combine(message): Combine,
        cx: Context,
    ) -> impl Future<Output = DecisionResult<Synthesis>> + Send + 'static {
        let deciders = self.0.clone();
        async move { deciders.decide(&cx, &RunId::random(), message).await }
    }
}

impl ConcurrentHandler<Check> for Desk {
    fn handle(
        &mut self,
        Check(message): Check,
        cx: Context,
    ) -> impl Future<Output = DecisionResult<Confirm>> + Send + 'static {
        let deciders = self.0.clone();
        async move { deciders.decide(&cx, &RunId::random(), message).await }
    }
}

fn rules(system: &System) -> Decider {
    Decider::rules(system.spawn(RulesDecider::new()))
}

fn model(system: &System, act: ScriptStep) -> Decider {
    Decider::model("m", system.spawn(ScriptedAgent::new([act])))
}

fn desk(system: &System, chain: Vec<Decider>) -> AgentRef {
    let deciders = Deciders::new("desk", DataClass::Personal, |_| chain.clone());
    system.spawn(Desk(Arc::new(deciders)))
}

/// Returns the replies that can't be used: a failure, no outcome, and none in time.
fn unusable() -> [ScriptStep; 3] {
    let away = ScriptStep::Fail(Failure::unavailable("away"));
    let unclear = ScriptStep::Reply(json!({ "outcome": null }));
    [away, unclear, ScriptStep::Hang]
}

/// Goal: a synthesis that isn't by the first decider has the confidence of the fallback at most, so
/// that NP5 follows. Method: rules alone, a model before rules, and models whose reply can't be used.
#[test]
fn later_syntheses_are_confirmed() {
    let report = StepReport {
        id: "a".to_owned(),
        goal: "g".to_owned(),
        by: "echo".to_owned(),
        state: TaskState::Completed,
        text: "so".to_owned(),
        attempts: 1,
    };
    let asked = Synthesize {
        goal: "g".to_owned(),
        results: vec![report],
    };
    run_with_paused_time(async |system| {
        let ask = async |chain: Vec<Decider>| {
            let desk = desk(system, chain);
            let settled = desk.ask(Combine(asked.clone())).await.unwrap();
            assert_eq!(settled.record.fallback, None);
            (settled.record.by, settled.outcome.unwrap().confidence)
        };
        let (by, confidence) = ask(vec![rules(system)]).await;
        assert_eq!(by, "rules");
        assert!(confidence > CONFIDENCE_FALLBACK, "{confidence}");
        let made = json!({ "outcome": { "final_answer": "so", "confidence": 0.9 } });
        let first = model(system, ScriptStep::Reply(made));
        let (by, confidence) = ask(vec![first, rules(system)]).await;
        assert_eq!((&*by, confidence), ("model:m", 0.9));
        for act in unusable() {
            let told = format!("{act:?}");
            let (by, confidence) = ask(vec![model(system, act), rules(system)]).await;
            let expected = ("rules", CONFIDENCE_FALLBACK);
            assert_eq!((&*by, confidence), expected, "{told}");
        }
        system.shutdown(Duration::from_secs(5)).await;
    });
}

/// Goal: only the first decider may find that no person has to confirm. Method: rules alone, and
/// models whose reply can't be used before rules.
#[test]
fn only_the_first_decider_confirms() {
    let asked = DecideConfirm {
        action: Value::Null,
        why: ConfirmReason::Risk,
        risk: 0.3,
        preference_known: false,
    };
    run_with_paused_time(async |system| {
        let ask = async |chain: Vec<Decider>| {
            let desk = desk(system, chain);
            desk.ask(Check(asked.clone())).await.unwrap()
        };
        let alone = ask(vec![rules(system)]).await;
        assert_eq!(alone.outcome.unwrap().label(), "safe_to_proceed");
        for act in unusable() {
            let told = format!("{act:?}");
            let settled = ask(vec![model(system, act), rules(system)]).await;
            assert_eq!(settled.outcome.unwrap().label(), "confirm_needed", "{told}");
            let record = settled.record;
            let by = (&*record.by, record.skipped.len());
            assert_eq!(by, ("model:m", 0), "{told}");
            assert!(record.fallback.is_some(), "{told}");
        }
        system.shutdown(Duration::from_secs(5)).await;
    });
}
