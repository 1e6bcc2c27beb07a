use crate::shape::shape;
use crate::task::plan::{RunPlan, RunStep, StepResult};
use crate::task::request_pipeline::RoutedRequest;

/// Goal: later versions can finish a run that an earlier version began. Method: compare the fields
/// and variants of a run's stored tasks and data.
#[test]
fn run() {
    let of = [
        ("step", shape::<RunStep>()),
        ("done", shape::<StepResult>()),
        ("plan", shape::<RunPlan>()),
        ("routed", shape::<RoutedRequest>()),
    ];
    let all: String = of
        .iter()
        .map(|(what, lines)| format!("{what}\n{lines}"))
        .collect();
    insta::assert_snapshot!("run", all);
}
