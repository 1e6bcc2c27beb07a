//! Orchestrator agent: takes a question and returns an answer that the verifier has passed, or the
//! reason there is none.
//!
//! Stages: guardrail → planner → plan check → router → renderer → verifier. If a stage is
//! unavailable, late or returns an invalid result, nothing unverified is shown: only the verifier
//! stage can make a [`ClinicAnswer`] with data.

mod answer;
mod patients;
mod pipeline;
mod render;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_access;

use std::sync::Arc;
use std::time::Duration;

use callboard_macros::Message;
use callboard_message::capabilities::Converse;
use callboard_message::{DataClass, Failure, FailureKind, Message as _, Principal, ToolResult};
use callboard_runtime::{
    Agent, AgentProfile, AgentRef, AuditEntry, ConcurrentHandler, Context, Handlers,
    PRINCIPAL_SHARE_PERCENT_DEFAULT,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::access::{NamedPatients, admit_to_clinic};
use crate::clinic::{PURPOSE_DEFAULT, may_identify};
use crate::plan::{ClinicRegistry, is_name};
#[cfg(any(doc, test))]
use crate::planner::QUERY_CHARS_MAX;
use crate::planner::check_length;
use crate::verifier::Identities;
use pipeline::Pipeline;

pub use answer::{AnswerStatus, ClinicAnswer, TimesMs};

/// Maximum length of the purpose in [`AskClinics`], in characters. A longer one is refused with
/// `InvalidInput`. Fixed.
pub const PURPOSE_CHARS_MAX: usize = 64;
/// Maximum questions that one orchestrator answers at once. Of those that a server receives, one
/// principal has at most three quarters of the maximum. Further ones wait. Fixed.
pub const QUESTIONS_AT_ONCE_MAX: u32 = 64;
/// Answers a question about the clinics' patients, or states why it can't. The answer has passed
/// the verifier.
#[derive(derive_more::Debug, Message, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
// A question may name a patient.
#[debug("AskClinics({} bytes, purpose {:?})", query.len(), purpose)]
#[message(name = "ask_clinics", reply = ClinicAnswer, fallible)]
#[serde(deny_unknown_fields)]
pub struct AskClinics {
    /// The question, in English or Portuguese, at most [`QUERY_CHARS_MAX`] characters.
    pub query: String,
    /// Purpose of the question, for example `treatment`; clinics decide by it which fields they
    /// show. At most [`PURPOSE_CHARS_MAX`] letters, digits, `_`, `-`, `.`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub purpose: Option<String>,
}

impl AskClinics {
    /// Validates the question and its purpose.
    ///
    /// # Errors
    /// [`InvalidInput`](callboard_message::FailureKind::InvalidInput), if the question is blank or
    /// too long, or the purpose is empty, too long, or has characters that aren't allowed.
    pub fn validate(&self) -> Result<(), Failure> {
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
            "`purpose` must be 1 to {PURPOSE_CHARS_MAX} letters, digits, '_', '-' or '.'"
        )))
    }
}

/// Configuration of an orchestrator: the agents that it calls, and their time limits.
#[derive(Debug, Clone)]
pub struct OrchestratorConfig {
    /// Registry of the clinics that may be called.
    pub registry: Arc<ClinicRegistry>,
    /// Guardrail agent that screens the question; must handle `Screen`. The clinics' answers are
    /// screened by the router's guardrail.
    pub guardrail: AgentRef,
    /// Planner agent; must handle `MakePlan`: [`Planner`](crate::planner::Planner), or a model.
    pub planner: AgentRef,
    /// Router agent; must handle `Dispatch`.
    pub router: AgentRef,
    /// Verifier agent; must handle `Verify`.
    pub verifier: AgentRef,
    /// Purposes for which a principal that is the local operator or has the scope
    /// [`IDENTITY_SCOPE`](crate::clinic::IDENTITY_SCOPE), and may claim the purpose, may see patients'
    /// identities. For all others, the verifier is told to block an answer with identities.
    pub purposes_allowed: Vec<String>,
    /// Tenant whose principals may ask, besides the local operator; `None`, the default, for all.
    pub tenant: Option<String>,
    /// Time limit for the guardrail to screen the question; 5 seconds by default. After it the
    /// question counts as blocked.
    pub screen_within: Duration,
    /// Time limit for the planner to make a plan; 20 seconds by default. After it the question has
    /// failed.
    pub plan_within: Duration,
    /// Time limit for the router to run all steps; 40 seconds by default. After it the question has
    /// failed, and the answers so far aren't shown.
    pub route_within: Duration,
    /// Time limit for the verifier to check the answer; 10 seconds by default. After it the
    /// question has failed, and its answer isn't shown.
    pub verify_within: Duration,
}

impl OrchestratorConfig {
    /// Creates a configuration with the default time limits and the purpose [`PURPOSE_DEFAULT`].
    pub fn new(
        registry: Arc<ClinicRegistry>,
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
            tenant: None,
            screen_within: Duration::from_secs(5),
            plan_within: Duration::from_secs(20),
            route_within: Duration::from_secs(40),
            verify_within: Duration::from_secs(10),
        }
    }

    /// Returns whether the answer may show patients' identities to the principal. Each clinic also
    /// decides for itself.
    fn visible_identities(&self, principal: &Principal) -> Identities {
        if may_identify(principal, &self.purposes_allowed) {
            Identities::AsRecorded
        } else {
            Identities::Withheld
        }
    }
}

/// Orchestrator agent: answers [`AskClinics`] with the help of guardrail, planner, router and
/// verifier. It stores nothing about a question.
#[derive(Debug, Clone)]
pub struct Orchestrator {
    config: Arc<OrchestratorConfig>,
}

impl Orchestrator {
    /// Creates an orchestrator.
    pub fn new(config: OrchestratorConfig) -> Self {
        Self {
            config: Arc::new(config),
        }
    }
}

impl Agent for Orchestrator {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<AskClinics>(QUESTIONS_AT_ONCE_MAX)
            .concurrent::<Converse>(QUESTIONS_AT_ONCE_MAX);
    }

    fn profile() -> AgentProfile {
        AgentProfile::default().principal_share(PRINCIPAL_SHARE_PERCENT_DEFAULT)
    }
}

impl ConcurrentHandler<AskClinics> for Orchestrator {
    fn handle(
        &mut self,
        message: AskClinics,
        cx: Context,
    ) -> impl Future<Output = Result<ClinicAnswer, Failure>> + Send + 'static {
        let config = self.config.clone();
        async move { answer_question(&config, message, &cx).await }
    }
}

/// Takes the text of a message as the question, without a purpose: identities stay withheld.
impl ConcurrentHandler<Converse> for Orchestrator {
    fn handle(
        &mut self,
        message: Converse,
        cx: Context,
    ) -> impl Future<Output = Result<ToolResult, Failure>> + Send + 'static {
        let config = self.config.clone();
        async move {
            let question = AskClinics {
                query: message.texts(),
                purpose: None,
            };
            let answer = answer_question(&config, question, &cx).await?;
            match answer.status() {
                AnswerStatus::Blocked => {
                    Err(Failure::new(FailureKind::Blocked, answer.text().to_owned()))
                }
                AnswerStatus::Failed => Ok(ToolResult::error(answer.text())),
                _ => Ok(ToolResult::text(answer.text()).with_structured_content(&answer)),
            }
        }
    }
}

/// Answers a question, and records in the audit how it ended, which clinics were asked, and whether
/// the answer may show identities. Neither question nor answer is recorded.
///
/// # Errors
/// `Denied`, if the caller's credential is of another tenant or for one patient only, because a
/// question may be about any; `InvalidInput`, if the question is invalid; `Rejected` at the maximum number of hops;
/// `Unavailable`, if the answer may show identities and that can't be recorded.
async fn answer_question(
    config: &OrchestratorConfig,
    question: AskClinics,
    cx: &Context,
) -> Result<ClinicAnswer, Failure> {
    let tenant = config.tenant.as_deref();
    admit_to_clinic(cx, AskClinics::NAME, tenant, NamedPatients::None).await?;
    question.validate()?;
    let mut pipeline = Pipeline::new(config, cx, question.purpose)?;
    let answer = pipeline.answer(&question.query).await;
    record_answer(cx, &question.query, &pipeline, &answer).await?;
    Ok(answer)
}

async fn record_answer(
    cx: &Context,
    query: &str,
    pipeline: &Pipeline<'_>,
    answer: &ClinicAnswer,
) -> Result<(), Failure> {
    let log = cx.system().audit();
    let verdict = answer.verdict();
    // An answer that is blocked or failed holds no record.
    let has_identities = pipeline.visible_identities() == Identities::AsRecorded
        && !matches!(
            answer.status(),
            AnswerStatus::Blocked | AnswerStatus::Failed
        );
    let mut entry = AuditEntry::new("clinics.question")
        .with_agent(cx.me().to_string())
        .with_message(AskClinics::NAME)
        .with_principal(cx.principal())
        .with_class(DataClass::Clinical)
        .with_body(log.digest(DataClass::Clinical, query.as_bytes()))
        .with_outcome(answer.status().as_str())
        .with_detail("clinics", pipeline.asked_clinics())
        .with_detail("identities", has_identities)
        .with_detail(
            "redactions",
            verdict.map_or(0, |verdict| verdict.redactions),
        );
    if let Some(rule) = verdict.and_then(|verdict| verdict.rule) {
        entry = entry.with_detail("rule", format!("{rule:?}"));
    }
    if let Some(call) = cx.call() {
        entry = entry.with_call(call.id).with_detail("hops", call.hops);
    }
    if has_identities {
        let unkept = |error| {
            Failure::unavailable(format!(
                "the answer is withheld, because its disclosure can't be recorded in the audit: {error}"
            ))
        };
        return log.record(entry).await.map(drop).map_err(unkept);
    }
    log.enqueue(entry).await;
    Ok(())
}
