use crate::shape::shape;
use crate::task::call::Routed;
use crate::task::plan::{RunPlan, RunStep, StepDone};

/// Goal: a run that an earlier version began is finished by every later one. Method: the members and variants of what a run
/// keeps in its tasks and notes.
#[test]
fn run() {
    let of = [
        ("step", shape::<RunStep>()),
        ("done", shape::<StepDone>()),
        ("plan", shape::<RunPlan>()),
        ("routed", shape::<Routed>()),
    ];
    let all: String = of
        .iter()
        .map(|(what, lines)| format!("{what}\n{lines}"))
        .collect();
    insta::assert_snapshot!("run", all);
}
