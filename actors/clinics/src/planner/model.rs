//! Planner agent that asks a language model.

use std::sync::Arc;

use callboard_message::capabilities::CreateMessage;
use callboard_message::{Content, Failure, RawObject, Speaker};
use callboard_runtime::{Agent, AgentRef, ConcurrentHandler, Context, Handlers};

use super::{MakePlan, check_length};
use crate::plan::{CATALOGUE, ClinicRegistry, Plan, STEPS_MAX, UNREADABLE_PLAN};
use crate::router::{forwarded_call, without_caller};

/// Maximum questions that one [`ModelPlanner`] sends to its model at the same time. Further ones wait.
/// Fixed.
pub const MODEL_PLANS_AT_ONCE_MAX: u32 = 16;
/// Maximum tokens of the plan that the model writes.
const PLAN_TOKENS_MAX: u32 = 2_048;
/// Maximum conditions of one clinic that the model is told.
const CONDITIONS_TOLD_MAX: usize = 48;

/// Planner agent that asks a language model for the plan, at temperature 0. Handles [`MakePlan`].
///
/// The model receives the question, the tools, and the ids, specialties and conditions of the clinics;
/// never an answer of a clinic. Its text must be a JSON array of steps, as [`Plan::parse_strict`]
/// reads it; anything else is the refusal of a `raw_response` plan. The plan is checked like every
/// other before anything is sent.
#[derive(Debug, Clone)]
pub struct ModelPlanner {
    model: AgentRef,
    instructions: Arc<str>,
}

impl ModelPlanner {
    /// Creates a planner for the clinics of `registry` that asks `model`, an agent that handles
    /// [`CreateMessage`].
    pub fn new(registry: &ClinicRegistry, model: AgentRef) -> Self {
        Self {
            model,
            instructions: instructions(registry).into(),
        }
    }

    fn request(&self, query: &str) -> CreateMessage {
        let message =
            RawObject::single("role", Speaker::User).with("content", Content::text(query));
        CreateMessage(
            RawObject::single("messages", [message])
                .with("systemPrompt", &*self.instructions)
                .with("temperature", 0.0)
                .with("maxTokens", PLAN_TOKENS_MAX),
        )
    }
}

impl Agent for ModelPlanner {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<MakePlan>(MODEL_PLANS_AT_ONCE_MAX);
    }
}

impl ConcurrentHandler<MakePlan> for ModelPlanner {
    fn handle(
        &mut self,
        message: MakePlan,
        cx: Context,
    ) -> impl Future<Output = Result<Plan, Failure>> + Send + 'static {
        let this = self.clone();
        async move {
            check_length(&message.query)?;
            // A model's own progress and questions would reach the user unverified.
            let call = without_caller(&forwarded_call(&cx)?);
            let (id, principal) = (call.id, call.principal.clone());
            let ask = this.model.ask(this.request(&message.query));
            let answer = ask.within_call(Some(Arc::new(call))).await;
            let answer = answer.map_err(Failure::from)??;
            let plan = match answer.written_text() {
                Some(text) => Plan::parse_or_refuse(&text),
                None => Plan::raw_response("", UNREADABLE_PLAN),
            };
            callboard_message::log::info!(
                call = %id,
                principal = principal.id,
                steps = plan.steps.len(),
                refused = plan.refusal().is_some(),
                "planned by a model"
            );
            Ok(plan)
        }
    }
}

/// Returns the system prompt: format, tools, rules and clinics.
fn instructions(registry: &ClinicRegistry) -> String {
    let tools = CATALOGUE.iter().map(|tool| match tool.parameter {
        Some((name, _)) => format!("- {} with the parameter {name}", tool.name),
        None => format!("- {} without parameters", tool.name),
    });
    let clinics = registry.clinics().iter().map(|clinic| {
        let conditions: Vec<&str> = clinic
            .conditions
            .iter()
            .take(CONDITIONS_TOLD_MAX)
            .map(String::as_str)
            .collect();
        format!(
            "- {} ({}), patient ids {}-…: {}",
            clinic.id,
            clinic.specialty,
            clinic.id_prefix,
            conditions.join(", ")
        )
    });
    format!(
        "You plan questions about the patients of clinics. Answer with a JSON array of 1 to {STEPS_MAX} steps and \
         nothing else: no Markdown, no prose. A step is \
         {{\"step_id\":1,\"clinic\":\"…\",\"action\":\"…\",\"parameters\":{{}}}}. Optional members of a step: \
         \"for_each\": the step_id of a list_patients or query step of the same clinic; the step is repeated for \
         each patient that it found, without parameters. \"except\": an array of step_ids of query steps of the same \
         clinic, whose patients are left out.\n\
         Tools:\n{}\n\
         Rules: one clinic a step; only the clinics below; never join clinics; `query` is a condition or medicine in \
         few words. If the question is no question about these clinics' patients, answer with the empty array.\n\
         Clinics:\n{}\n",
        tools.collect::<Vec<_>>().join("\n"),
        clinics.collect::<Vec<_>>().join("\n")
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use callboard_message::FailureKind;
    use callboard_message::SamplingAnswer;
    use callboard_runtime::testkit::{Probe, run_with_paused_time};

    use super::*;
    use crate::plan::samples::{SAMPLE_PLAN, two_clinics};
    use crate::planner::QUERY_CHARS_MAX;

    /// Goal: a model's plan is read strictly; anything else is the refusal, and a model that fails is
    /// a failure; the request has temperature 0, the question and the clinics, and no step is
    /// invented. Method: a scripted model that answers a plan, prose, a fenced plan, nothing, and a
    /// failure; record its requests.
    /// Rows: C-5, C-22.
    #[test]
    fn a_model_plans() {
        run_with_paused_time(async |system| {
            let fenced = format!("```json\n{SAMPLE_PLAN}\n```");
            for (text, steps) in [
                (Some(SAMPLE_PLAN), Some(SAMPLE_PLAN)),
                (Some("I would list the patients."), None),
                (Some(&*fenced), None),
                (Some("[]"), None),
                (None, None),
            ] {
                let answer = text.map(str::to_owned);
                let (model, mut asked) = Probe::<CreateMessage>::spawn(system, move |_| {
                    answer.as_deref().map_or_else(
                        || Ok(SamplingAnswer(RawObject::default())),
                        |text| Ok(SamplingAnswer::text("m", text, None)),
                    )
                });
                let planner = system.spawn(ModelPlanner::new(&two_clinics(), model));
                let query = "List all cardiology patients".to_owned();
                let plan = planner.ask(MakePlan { query }).await;
                let plan = plan
                    .unwrap_or_else(|e| panic!("{e}"))
                    .unwrap_or_else(|e| panic!("{e}"));
                match steps {
                    Some(steps) => {
                        let json = serde_json::to_string(&plan.steps).ok();
                        assert_eq!(json.as_deref(), Some(steps));
                    }
                    None => assert_eq!(plan.refusal(), Some(UNREADABLE_PLAN), "{text:?}"),
                }
                let request = asked.recv().await.unwrap_or_else(|| panic!("not asked"));
                let request = request.0.to_raw().get().to_owned();
                for part in [
                    r#""temperature":0.0"#,
                    "List all cardiology patients",
                    "clinic_b (dermatology)",
                ] {
                    assert!(request.contains(part), "{request}");
                }
            }
            let failing =
                Probe::<CreateMessage>::spawn(system, |_| Err(Failure::overloaded("full"))).0;
            let planner = system.spawn(ModelPlanner::new(&two_clinics(), failing));
            for (query, kind) in [
                ("x".to_owned(), FailureKind::Overloaded),
                ("é".repeat(QUERY_CHARS_MAX + 1), FailureKind::InvalidInput),
            ] {
                let failed = planner.ask(MakePlan { query }).await;
                let failed = failed.unwrap_or_else(|e| panic!("{e}"));
                assert_eq!(failed.map_err(|f| f.kind), Err(kind));
            }
            system.shutdown(Duration::from_secs(60)).await;
        });
    }
}
