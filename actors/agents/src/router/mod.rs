//! The router: takes the steps of a plan to the clinics, and what they answer through the guardrail.
//!
//! It alone knows where the clinics are: under their ids in the directory.

mod graph;
mod outcome;
mod screen;
mod step;
pub mod task;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use callboard_macros::Message;
use callboard_message::Failure;
use callboard_runtime::{Agent, AgentRef, CallMeta, ConcurrentHandler, Cx, Handlers};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::plan::{Catalogue, Plan, Registry};

pub use outcome::{CODE_BLOCKED, CODE_INVALID_PARAMS, CODE_UNAVAILABLE, StepError, StepOutcome};
pub use step::ANSWER_BYTES_MAX;
use step::Dispatching;

pub(crate) use screen::{BLOCKED, Screened, screen};

/// How long one clinic may take for one step, by default.
pub const STEP_WITHIN_DEFAULT: Duration = Duration::from_secs(10);
/// How long the guardrail may take for one text, by default.
pub const SCREEN_WITHIN_DEFAULT: Duration = Duration::from_secs(5);
/// How many steps of one plan run at once, by default.
pub const STEPS_AT_ONCE_DEFAULT: usize = 8;
/// How many plans one router takes to the clinics at once.
pub const DISPATCHES_AT_ONCE_MAX: u32 = 64;

/// Takes a plan's steps to their clinics. A plan that names anything unregistered is refused as a whole.
#[derive(Message, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[message(name = "dispatch", reply = Dispatched, fallible)]
#[serde(deny_unknown_fields)]
pub struct Dispatch {
    /// The plan; it is checked again here, for nothing unchecked is sent.
    pub plan: Plan,
}

/// What the clinics answered, one outcome a step in the plan's order. Not for the user before it is verified.
#[derive(derive_more::Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[debug("{steps:?}")]
pub struct Dispatched {
    /// One a step.
    pub steps: Vec<StepOutcome>,
}

/// What a router needs to work.
#[derive(Debug, Clone)]
pub struct RouterConfig {
    /// Who may be asked.
    pub registry: Arc<Registry>,
    /// What may be asked.
    pub catalogue: Catalogue,
    /// Screens what the clinics answer.
    pub guardrail: AgentRef,
    /// How long one clinic may take for one step.
    pub step_within: Duration,
    /// How long the guardrail may take for one answer.
    pub screen_within: Duration,
    /// How many steps of one plan run at once; at least 1.
    pub steps_at_once: usize,
}

impl RouterConfig {
    /// The default limits and the four tools.
    pub fn new(registry: Arc<Registry>, guardrail: AgentRef) -> Self {
        Self {
            registry,
            catalogue: Catalogue::default(),
            guardrail,
            step_within: STEP_WITHIN_DEFAULT,
            screen_within: SCREEN_WITHIN_DEFAULT,
            steps_at_once: STEPS_AT_ONCE_DEFAULT,
        }
    }
}

/// The agent that dispatches. It keeps nothing of what passes through it.
#[derive(Debug, Clone)]
pub struct Router {
    config: Arc<RouterConfig>,
}

impl Router {
    /// A router with this configuration.
    pub fn new(config: RouterConfig) -> Self {
        Self { config: Arc::new(config) }
    }
}

impl Agent for Router {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Dispatch>(DISPATCHES_AT_ONCE_MAX);
    }
}

impl ConcurrentHandler<Dispatch> for Router {
    fn handle(
        &mut self,
        message: Dispatch,
        cx: Cx,
    ) -> impl Future<Output = Result<Dispatched, Failure>> + Send + 'static {
        let config = self.config.clone();
        async move {
            let checked = message.plan.check(&config.registry, &config.catalogue)?;
            // Two reports a step; a plan has few.
            let tells = u32::try_from(2 * checked.steps().len()).unwrap_or(u32::MAX);
            let call = onward(&cx)?;
            let dispatching = Dispatching { config: &config, cx: &cx, call, told: AtomicU32::new(0), tells };
            let steps = graph::run(checked, config.steps_at_once, |step| dispatching.run(step)).await;
            Ok(Dispatched { steps })
        }
    }
}

/// The call as the next agent gets it; one of its own where the message came without.
pub(crate) fn onward(cx: &Cx) -> Result<CallMeta, Failure> {
    let Some(call) = cx.call() else { return Ok(CallMeta::new(Arc::new(cx.principal().clone()))) };
    let next = cx.next_hop().ok_or_else(|| {
        let message = format!("the call passed through more than {} agents: look for a loop", call.hops_max);
        Failure::rejected(message)
    })?;
    Ok(Arc::unwrap_or_clone(next))
}

/// The same call without anyone to hear its progress or questions: what a clinic says in mid-call would reach the user
/// past guardrail and verifier.
pub(crate) fn unheard(call: &CallMeta) -> CallMeta {
    CallMeta { caller: None, ..call.clone() }
}
