//! The orchestrator: a question in, an answer out that guardrail and verifier have passed, or none.
//!
//! guardrail → planner → check → router → render → verifier. Whatever stage is away, late or answers nonsense, nothing
//! is shown that wasn't verified: [`Answer`]s with data are made of what only the verifier's stage can make.

mod answer;
mod pipeline;
mod render;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use callboard_macros::Message;
use callboard_message::{Failure, Principal};
use callboard_runtime::{Agent, AgentRef, ConcurrentHandler, Cx, Handlers};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clinic::{PURPOSE_DEFAULT, may_identify};
use crate::plan::{Registry, is_name};
#[cfg(any(doc, test))]
use crate::planner::QUERY_CHARS_MAX;
use crate::planner::check_length;
use crate::verifier::Identities;
use pipeline::Pipeline;

pub use answer::{Answer, Status, TimesMs};

/// Maximum characters of a stated purpose. A longer one is refused with `InvalidInput`. Fixed.
pub const PURPOSE_CHARS_MAX: usize = 64;
/// Maximum questions that one orchestrator answers at once. Further ones wait in its mailbox. Fixed.
pub const QUESTIONS_AT_ONCE_MAX: u32 = 64;
/// Answers a question about the clinics' patients, or says why not. What is shown has passed the verifier.
#[derive(derive_more::Debug, Message, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
// A question may name a patient.
#[debug("AskClinics({} bytes, purpose {:?})", query.len(), purpose)]
#[message(name = "ask_clinics", reply = Answer, fallible)]
#[serde(deny_unknown_fields)]
pub struct AskClinics {
    /// The question, English or Portuguese, at most [`QUERY_CHARS_MAX`] characters.
    pub query: String,
    /// Why it is asked, for example `treatment`: clinics show more or less by it. At most [`PURPOSE_CHARS_MAX`]
    /// letters, digits, `_`, `-`, `.`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purpose: Option<String>,
}

impl AskClinics {
    /// Whether it can be asked at all.
    ///
    /// # Errors
    /// [`InvalidInput`](callboard_message::FailureKind::InvalidInput): an empty question, or a limit that
    /// is passed.
    pub fn check(&self) -> Result<(), Failure> {
        if self.query.trim().is_empty() {
            return Err(Failure::invalid(
                "there is nothing to ask. Try: list all cardiology patients",
            ));
        }
        check_length(&self.query)?;
        if self
            .purpose
            .as_ref()
            .is_none_or(|purpose| is_name(purpose, PURPOSE_CHARS_MAX))
        {
            return Ok(());
        }
        Err(Failure::invalid(format!(
            "a purpose is 1 to {PURPOSE_CHARS_MAX} letters, digits, '_', '-' or '.'"
        )))
    }
}

/// Configuration of an orchestrator: the agents it asks, and their time limits.
#[derive(Debug, Clone)]
pub struct OrchestratorConfig {
    /// Clinics that may be asked.
    pub registry: Arc<Registry>,
    /// Answers `Screen`.
    pub guardrail: AgentRef,
    /// Answers `MakePlan`: the one here, or a model.
    pub planner: AgentRef,
    /// Answers `Dispatch`.
    pub router: AgentRef,
    /// Answers `Verify`.
    pub verifier: AgentRef,
    /// For which purposes a trusted principal sees identities.
    pub purposes_allowed: Vec<String>,
    /// Time limit of the guardrail for the question.
    pub screen_within: Duration,
    /// Time limit of the planner.
    pub plan_within: Duration,
    /// Time limit of the router for all steps.
    pub route_within: Duration,
    /// Time limit of the verifier.
    pub verify_within: Duration,
}

impl OrchestratorConfig {
    /// The default limits.
    pub fn new(
        registry: Arc<Registry>,
        guardrail: AgentRef,
        planner: AgentRef,
        router: AgentRef,
        verifier: AgentRef,
    ) -> Self {
        Self {
            registry,
            guardrail,
            planner,
            router,
            verifier,
            purposes_allowed: vec![PURPOSE_DEFAULT.into()],
            screen_within: Duration::from_secs(5),
            plan_within: Duration::from_secs(20),
            route_within: Duration::from_secs(40),
            verify_within: Duration::from_secs(10),
        }
    }

    /// Whether a principal may see who the patients are; clinics decide for themselves as well.
    fn identities(&self, principal: &Principal) -> Identities {
        if may_identify(principal, &self.purposes_allowed) {
            Identities::AsRecorded
        } else {
            Identities::Withheld
        }
    }
}

/// The agent that answers questions. It keeps nothing of what passes through it.
#[derive(Debug, Clone)]
pub struct Orchestrator {
    config: Arc<OrchestratorConfig>,
}

impl Orchestrator {
    /// An orchestrator with this configuration.
    pub fn new(config: OrchestratorConfig) -> Self {
        Self {
            config: Arc::new(config),
        }
    }
}

impl Agent for Orchestrator {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<AskClinics>(QUESTIONS_AT_ONCE_MAX);
    }
}

impl ConcurrentHandler<AskClinics> for Orchestrator {
    fn handle(
        &mut self,
        message: AskClinics,
        cx: Cx,
    ) -> impl Future<Output = Result<Answer, Failure>> + Send + 'static {
        let config = self.config.clone();
        async move {
            message.check()?;
            Ok(Pipeline::new(&config, &cx, message.purpose)?
                .answer(&message.query)
                .await)
        }
    }
}
