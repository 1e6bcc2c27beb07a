//! The planner: a query in, a step graph out.
//!
//! Planning is a typed message, [`MakePlan`]. The [`Planner`] here answers it by rules from the registry's words, so
//! that all runs with no key and no network; any agent that answers the same message can stand in its place.

mod fragment;
mod lexicon;
mod names;
mod refusal;
mod rules;
#[cfg(test)]
mod tests;
mod words;

use std::sync::Arc;

use callboard_macros::Message;
use callboard_message::Failure;
use callboard_runtime::{Agent, Cx, Handlers, SyncHandler};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::plan::{Plan, Registry};
use rules::Rules;

/// How long a query may be, in characters.
pub const QUERY_CHARS_MAX: usize = 2_000;

/// Makes a step graph for a question about patients: which tool to call at which clinic. Nothing is called yet.
#[derive(derive_more::Debug, Message, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
// A question may name a patient.
#[debug("MakePlan({} bytes)", query.len())]
#[message(name = "make_plan", reply = Plan, fallible)]
#[serde(deny_unknown_fields)]
pub struct MakePlan {
    /// The question, English or Portuguese, at most [`QUERY_CHARS_MAX`] characters.
    pub query: String,
}

/// The agent that plans by rules.
#[derive(Debug, Clone)]
pub struct Planner {
    rules: Arc<Rules>,
}

impl Planner {
    /// A planner for the clinics of `registry`.
    pub fn new(registry: Arc<Registry>) -> Self {
        Self { rules: Arc::new(Rules::new(registry)) }
    }

    /// The plan for a query; the `raw_response` plan, with a sentence for the user, if no rule fits.
    ///
    /// Fails with [`callboard_message::FailureKind::InvalidInput`] if the query is longer than [`QUERY_CHARS_MAX`].
    pub fn plan(&self, query: &str) -> Result<Plan, Failure> {
        let chars = query.chars().count();
        if chars > QUERY_CHARS_MAX {
            let message =
                format!("the question has {chars} characters, more than {QUERY_CHARS_MAX}: ask a shorter one");
            return Err(Failure::invalid(message));
        }
        Ok(self.rules.plan(query))
    }
}

impl Agent for Planner {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<MakePlan>();
    }
}

impl SyncHandler<MakePlan> for Planner {
    fn handle(&mut self, message: MakePlan, cx: &mut Cx) -> Result<Plan, Failure> {
        let plan = self.plan(&message.query)?;
        let refused = plan.refusal().is_some();
        callboard_message::log::info!(
            call = cx.call().map(|c| tracing::field::display(c.id)),
            steps = plan.steps.len(),
            refused,
            "planned"
        );
        Ok(plan)
    }
}
