use std::collections::HashMap;
use std::future::Future;

use futures::StreamExt;
use futures::stream::FuturesUnordered;

use super::outcome::{StepError, StepOutcome};
use crate::plan::{CheckedPlan, Step};

/// Runs steps as soon as those they depend on have succeeded, at most `at_once` together; outcomes in the plan's order.
///
/// A step whose dependency failed isn't run: its outcome says so.
pub(super) async fn run<F>(plan: CheckedPlan, at_once: usize, mut start: impl FnMut(Step) -> F) -> Vec<StepOutcome>
where
    F: Future<Output = StepOutcome>,
{
    let order: Vec<u32> = plan.steps().iter().map(|s| s.step_id).collect();
    let mut waiting = plan.into_steps();
    let mut outcomes: HashMap<u32, StepOutcome> = HashMap::new();
    let mut running = FuturesUnordered::new();
    loop {
        waiting = settle(waiting, &mut outcomes);
        while running.len() < at_once.max(1)
            && let Some(at) = waiting.iter().position(|s| is_ready(s, &outcomes))
        {
            running.push(start(waiting.remove(at)));
        }
        match running.next().await {
            Some(outcome) => drop(outcomes.insert(outcome.step_id, outcome)),
            // A checked plan has no circle: what is still waiting here can't be.
            None => break,
        }
    }
    order.iter().filter_map(|id| outcomes.remove(id)).collect()
}

fn is_ready(step: &Step, outcomes: &HashMap<u32, StepOutcome>) -> bool {
    step.depends_on.iter().all(|on| outcomes.contains_key(on))
}

/// Gives steps that can't succeed any more their outcome; returns the others.
fn settle(waiting: Vec<Step>, outcomes: &mut HashMap<u32, StepOutcome>) -> Vec<Step> {
    let mut left = Vec::with_capacity(waiting.len());
    let before = waiting.len();
    for step in waiting {
        let failed = step.depends_on.iter().find(|on| outcomes.get(on).is_some_and(|o| o.error.is_some()));
        match failed {
            Some(on) => {
                let error = StepError::unavailable(format!("step {on}, which it depends on, failed"));
                outcomes.insert(step.step_id, StepOutcome::failed(&step, error, 0));
            }
            None => left.push(step),
        }
    }
    // One that was just settled may be what another waited for.
    if left.len() < before { settle(left, outcomes) } else { left }
}
