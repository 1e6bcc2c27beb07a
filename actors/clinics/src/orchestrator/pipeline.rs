use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use callboard_guardrail::TextOrigin;
use callboard_message::text::fold;
use callboard_message::{Failure, Progress, Question};
use callboard_runtime::{CallContext, Caller, Context};
use futures::future::BoxFuture;
use tokio::time::Instant;

use super::answer::{AnswerDraft, AnswerStatus, ClinicAnswer, TimesMs, verify_draft};
use super::{OrchestratorConfig, render};
use crate::plan::{CheckedPlan, Plan, Step};
use crate::planner::MakePlan;
use crate::router::{
    BLOCKED, Dispatch, DispatchResult, StepOutcome, forwarded_call, ms_since, passes_guardrail,
    without_caller,
};

const NO_PLANNER: &str = "The question could not be planned: the planner is away. Ask again later.";
const NO_ROUTER: &str =
    "The clinics could not be asked: the router is away or late. Ask again later.";
const NOT_VERIFIED: &str =
    "The answer is withheld: the verifier could not check it. Ask again later.";

/// One question on its way through all stages: screening, planning, routing and verifying.
pub(super) struct Pipeline<'a> {
    config: &'a OrchestratorConfig,
    /// Call context for the stages: the caller's, one hop further, with the question's purpose if
    /// it states one, and `progress` as the caller. Only the router receives that caller.
    call: CallContext,
    progress: Arc<ProgressCaller>,
    times: TimesMs,
}

impl<'a> Pipeline<'a> {
    pub fn new(
        config: &'a OrchestratorConfig,
        cx: &Context,
        purpose: Option<String>,
    ) -> Result<Self, Failure> {
        let mut call = forwarded_call(cx)?;
        // The principal comes from the credential; only the purpose comes from the message. Clinics
        // decide which fields a purpose opens, and for which principals.
        if let Some(purpose) = purpose {
            call.principal = Arc::new(cx.principal().clone().with_purpose(purpose));
        }
        let stages = Arc::new(ProgressCaller {
            caller: call.caller.take(),
            reported: AtomicU32::new(0),
        });
        call.caller = Some(stages.clone());
        Ok(Self {
            config,
            call,
            progress: stages,
            times: TimesMs::default(),
        })
    }

    pub async fn answer(mut self, query: &str) -> ClinicAnswer {
        let began = Instant::now();
        let answer = self.run_stages(query).await;
        self.times.total = ms_since(began);
        let (status, steps) = (answer.status(), answer.steps().len());
        // Neither question nor answer is logged.
        callboard_message::log::info!(call = %self.call.id, principal = self.call.principal.id, ?status, steps, ms = self.times.total, "question ended");
        answer.with_times(self.times)
    }

    async fn run_stages(&mut self, query: &str) -> ClinicAnswer {
        let began = Instant::now();
        let (guardrail, within) = (&self.config.guardrail, self.config.screen_within);
        let passed = passes_guardrail(
            guardrail,
            &self.call,
            within,
            query.to_owned(),
            TextOrigin::User,
        )
        .await;
        self.times.screening = ms_since(began);
        if !passed {
            self.progress
                .report("question blocked by the guardrail".into());
            return ClinicAnswer::without_data(AnswerStatus::Blocked, BLOCKED);
        }

        let began = Instant::now();
        let plan = self.plan(query).await;
        self.times.planning = ms_since(began);
        let Some(plan) = plan else {
            return ClinicAnswer::without_data(AnswerStatus::Failed, NO_PLANNER);
        };
        let checked = match self.check(plan, query) {
            Ok(checked) => checked,
            Err(refusal) => return self.verify(refusal).await,
        };

        let began = Instant::now();
        let outcomes = self.route(&checked).await;
        self.times.routing = ms_since(began);
        let Some(steps) = outcomes else {
            return ClinicAnswer::without_data(AnswerStatus::Failed, NO_ROUTER);
        };
        let text = render::render_steps(checked.steps(), &steps, &self.config.registry);
        let failed = steps.iter().all(|s| s.error.is_some());
        let status = if failed {
            AnswerStatus::Failed
        } else {
            AnswerStatus::Answered
        };
        self.verify(AnswerDraft {
            status,
            plan: checked.into_steps(),
            steps,
            text,
        })
        .await
    }

    async fn plan(&self, query: &str) -> Option<Plan> {
        let message = MakePlan {
            query: query.to_owned(),
        };
        let ask = self
            .config
            .planner
            .ask(message)
            .within_call(Some(Arc::new(without_caller(&self.call))));
        let call = self.call.id;
        match ask.within(self.config.plan_within).await {
            Ok(Ok(plan)) => return Some(plan),
            Ok(Err(failure)) => {
                callboard_message::log::error!(%call, principal = self.call.principal.id, kind = %failure.kind, "planner failed: the question is not answered")
            }
            Err(_) if self.call.cancel.is_cancelled() => {}
            Err(why) => {
                callboard_message::log::error!(%call, principal = self.call.principal.id, kind = %why.kind(), "planner did not answer: the question is not answered")
            }
        }
        None
    }

    /// Checks the plan and reports it as progress. Returns it ready to be dispatched, or a draft
    /// with the refusal for the user. `query` only decides which parameters the report may repeat.
    fn check(&self, plan: Plan, query: &str) -> Result<CheckedPlan, AnswerDraft> {
        let refuse = |plan: Plan, reason: String| {
            self.progress.report("no plan: refused".into());
            AnswerDraft {
                status: AnswerStatus::Failed,
                plan: plan.steps,
                steps: Vec::new(),
                text: render::single_line(&reason),
            }
        };
        if let Some(reason) = plan.refusal().map(str::to_owned) {
            return Err(refuse(plan, reason));
        }
        match plan.check(&self.config.registry) {
            Ok(checked) => {
                self.progress.report_plan(&checked, query);
                Ok(checked)
            }
            Err(why) => {
                callboard_message::log::warn!(call = %self.call.id, principal = self.call.principal.id, code = why.code(), "planner made an invalid plan: the question is refused");
                // The plan itself may be a model's text, so the user gets a refusal instead.
                let reason = format!("No clinic was asked, for the plan was not in order: {why}.");
                Err(refuse(Plan::raw_response("", reason.clone()), reason))
            }
        }
    }

    async fn route(&self, checked: &CheckedPlan) -> Option<Vec<StepOutcome>> {
        let message = Dispatch {
            plan: Plan {
                steps: checked.steps().to_vec(),
            },
        };
        let ask = self
            .config
            .router
            .ask(message)
            .within_call(Some(Arc::new(self.call.clone())));
        let kind = match ask.within(self.config.route_within).await {
            Ok(Ok(DispatchResult { steps })) if outcomes_match_steps(&steps, checked.steps()) => {
                return Some(steps);
            }
            Ok(Ok(_)) => "outcomes of other steps".to_owned(),
            Ok(Err(failure)) => failure.kind.to_string(),
            // The caller has cancelled: not worth an error in the log.
            Err(_) if self.call.cancel.is_cancelled() => return None,
            Err(why) => why.kind().to_string(),
        };
        callboard_message::log::error!(call = %self.call.id, principal = self.call.principal.id, kind, "router failed: the question is not answered");
        None
    }

    async fn verify(&mut self, draft: AnswerDraft) -> ClinicAnswer {
        let began = Instant::now();
        let identities = self.config.visible_identities(&self.call.principal);
        let verified = verify_draft(
            draft,
            &self.config.verifier,
            &self.call,
            self.config.verify_within,
            identities,
        )
        .await;
        self.times.verifying = ms_since(began);
        match verified {
            Ok(answer) => {
                self.progress.report("verdict: safe".into());
                answer
            }
            Err(Some(verdict)) => {
                let rule = verdict
                    .rule
                    .map_or_else(String::new, |r| format!(" ({r:?})"));
                callboard_message::log::warn!(call = %self.call.id, principal = self.call.principal.id, rule, "verifier blocked an answer");
                self.progress.report(format!("verdict: blocked{rule}"));
                ClinicAnswer::blocked(verdict)
            }
            Err(None) => {
                self.progress
                    .report("verdict: none, answer withheld".into());
                ClinicAnswer::without_data(AnswerStatus::Failed, NOT_VERIFIED)
            }
        }
    }
}

/// Returns whether there is exactly one outcome for each step, in order, with either a result or an
/// error.
fn outcomes_match_steps(outcomes: &[StepOutcome], steps: &[Step]) -> bool {
    let answer = |(o, s): (&StepOutcome, &Step)| {
        o.step_id == s.step_id
            && o.clinic == s.clinic
            && o.action == s.action
            && o.result.is_some() != o.error.is_some()
    };
    outcomes.len() == steps.len() && outcomes.iter().zip(steps).all(answer)
}

/// Caller that forwards progress reports to the outer caller. It numbers the reports of all stages
/// consecutively, as the outer caller requires. Questions to it fail.
struct ProgressCaller {
    caller: Option<Arc<dyn Caller>>,
    reported: AtomicU32,
}

impl ProgressCaller {
    /// Sends a progress report, which nothing verifies. So `message` may hold only fixed words,
    /// ids, tool names, times, names of rules, and the user's own words.
    pub fn report(&self, message: String) {
        self.progress(Progress {
            message: Some(message),
            ..Progress::default()
        });
    }

    pub fn report_plan(&self, plan: &CheckedPlan, query: &str) {
        let squeezed = |text: &str| {
            fold(text)
                .chars()
                .filter(|c| c.is_alphanumeric())
                .collect::<String>()
        };
        let asked = squeezed(query);
        for step in plan.steps() {
            let mut line = format!(
                "plan step {}: {} {}",
                step.step_id, step.clinic, step.action
            );
            for text in step.parameters.values().filter_map(|v| v.as_str()) {
                // A model's words would reach the user unverified; the user's own may be repeated.
                let shown = if asked.contains(&squeezed(text)) {
                    format!(" \"{text}\"")
                } else {
                    " …".to_owned()
                };
                line.push_str(&shown);
            }
            self.report(line);
        }
    }
}

impl Caller for ProgressCaller {
    fn progress(&self, progress: Progress) {
        let Some(caller) = &self.caller else { return };
        let done = f64::from(self.reported.fetch_add(1, Ordering::Relaxed) + 1);
        caller.progress(Progress {
            done,
            total: None,
            message: progress.message,
        });
    }

    fn ask(&self, _: Question) -> BoxFuture<'_, Result<callboard_message::Answer, Failure>> {
        Box::pin(async {
            Err(Failure::no_responder(
                "a clinic can't ask the user anything while it is queried",
            ))
        })
    }
}
