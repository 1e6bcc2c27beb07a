//! Routing after a combined decision that failed.

use std::time::Duration;

use callboard_macros::Message;
use callboard_message::{DataClass, Failure};
use callboard_runtime::testkit::{ScriptStep, ScriptedAgent, run_with_paused_time};
use callboard_runtime::{Agent, ConcurrentHandler, Handlers};
use serde_json::json;

use super::*;

/// Request to have a request routed, as part of a call.
#[derive(Message)]
#[message(reply = IntakeResult, local)]
struct Go(RoutingRequest);

struct Desk(Arc<Deciders>);

impl Agent for Desk {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Go>(1);
    }
}

impl ConcurrentHandler<Go> for Desk {
    fn handle(
        &mut self,
        Go(request): Go,
        cx: Context,
    ) -> impl Future<Output = IntakeResult> + Send + 'static {
        let deciders = self.0.clone();
        async move {
            let (world, options) = (Arc::default(), IntakeOptions::default());
            let from = IntakeStage::Clarity;
            route(&deciders, &cx, &request, &world, &options, from).await
        }
    }
}

/// Goal: a model whose combined decision failed isn't asked again, and every other decider of the
/// points is asked. Method: a model that fails, alone and with another decider at one point.
#[test]
fn other_deciders_after_a_failure() {
    use DecisionPoint::{Clarity, Intake, Route, Split, Tool};
    let question = json!({ "needs_clarify": { "question": "Which city?" } });
    let llm = "Local(llm)";
    for (other, outcome, expected, points) in [
        (None, json!(null), llm, [Intake].as_slice()),
        (
            Some(Clarity),
            question,
            "NeedsClarification",
            &[Intake, Clarity],
        ),
        (
            Some(Split),
            json!("no"),
            llm,
            &[Intake, Clarity, Split, Route],
        ),
        (
            Some(Route),
            json!({ "reject": { "reason": "no" } }),
            "Reject",
            &[Intake, Clarity, Split, Route],
        ),
        (Some(Tool), json!(null), llm, &[Intake]),
    ] {
        run_with_paused_time(async |system| {
            let away = ScriptStep::Fail(Failure::unavailable("away"));
            let model = system.spawn(ScriptedAgent::new([away]));
            let reply = ScriptStep::Reply(json!({ "outcome": outcome }));
            let second = Decider::rules(system.spawn(ScriptedAgent::new([reply])));
            let deciders = Deciders::new("desk", DataClass::Personal, |point| {
                let mut chain = vec![Decider::model("m", model.clone())];
                chain.extend((other == Some(point)).then(|| second.clone()));
                chain
            });
            let desk = system.spawn(Desk(Arc::new(deciders)));
            let request = RoutingRequest {
                run: RunId::random(),
                text: "the weather".to_owned(),
                history: Vec::new(),
            };
            let taken = desk.ask(Go(request)).await.unwrap();
            let asked: Vec<DecisionPoint> = taken.records.iter().map(|r| r.point).collect();
            assert_eq!(format!("{:?}", taken.decision), expected, "{other:?}");
            assert_eq!(asked, points, "{other:?}");
            system.shutdown(Duration::from_secs(5)).await;
        });
    }
}
