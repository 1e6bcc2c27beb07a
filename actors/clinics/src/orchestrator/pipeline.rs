use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use callboard_guardrail::Origin;
use callboard_message::text::fold;
use callboard_message::{Failure, Progress, Question};
use callboard_runtime::{CallMeta, Caller, Cx};
use futures::future::BoxFuture;
use tokio::time::Instant;

use super::answer::{Answer, Draft, Status, TimesMs, verify};
use super::{OrchestratorConfig, render};
use crate::plan::{CheckedPlan, Plan, Step};
use crate::planner::MakePlan;
use crate::router::{
    BLOCKED, Dispatch, Dispatched, StepOutcome, ms_since, onward, passes, unheard,
};

const NO_PLANNER: &str = "The question could not be planned: the planner is away. Ask again later.";
const NO_ROUTER: &str =
    "The clinics could not be asked: the router is away or late. Ask again later.";
const NOT_VERIFIED: &str =
    "The answer is withheld: the verifier could not check it. Ask again later.";

/// One question on its way to an answer.
pub(super) struct Pipeline<'a> {
    config: &'a OrchestratorConfig,
    /// Call that goes to the stages: the caller's, with the stated purpose.
    call: CallMeta,
    stages: Arc<Stages>,
    times: TimesMs,
}

impl<'a> Pipeline<'a> {
    pub fn new(
        config: &'a OrchestratorConfig,
        cx: &Cx,
        purpose: Option<String>,
    ) -> Result<Self, Failure> {
        let mut call = onward(cx)?;
        // Who asks is the credential's to say; why, the asker's. Clinics decide what a purpose opens, and for whom.
        if let Some(purpose) = purpose {
            call.principal = Arc::new(cx.principal().clone().for_purpose(purpose));
        }
        let stages = Arc::new(Stages {
            caller: call.caller.take(),
            told: AtomicU32::new(0),
        });
        call.caller = Some(stages.clone());
        Ok(Self {
            config,
            call,
            stages,
            times: TimesMs::default(),
        })
    }

    pub async fn answer(mut self, query: &str) -> Answer {
        let began = Instant::now();
        let answer = self.stages(query).await;
        self.times.total = ms_since(began);
        let (status, steps) = (answer.status(), answer.steps().len());
        // Nothing of question or answer is logged.
        callboard_message::log::info!(call = %self.call.id, ?status, steps, ms = self.times.total, "question ended");
        answer.timed(self.times)
    }

    async fn stages(&mut self, query: &str) -> Answer {
        let began = Instant::now();
        let (guardrail, within) = (&self.config.guardrail, self.config.screen_within);
        let passed = passes(
            guardrail,
            &self.call,
            within,
            query.to_owned(),
            Origin::User,
        )
        .await;
        self.times.screening = ms_since(began);
        if !passed {
            self.stages.tell("question blocked by the guardrail".into());
            return Answer::without_data(Status::Blocked, BLOCKED);
        }

        let began = Instant::now();
        let plan = self.plan(query).await;
        self.times.planning = ms_since(began);
        let Some(plan) = plan else {
            return Answer::without_data(Status::Failed, NO_PLANNER);
        };
        let checked = match self.check(plan, query) {
            Ok(checked) => checked,
            Err(refusal) => return self.verify(refusal).await,
        };

        let began = Instant::now();
        let outcomes = self.route(&checked).await;
        self.times.routing = ms_since(began);
        let Some(steps) = outcomes else {
            return Answer::without_data(Status::Failed, NO_ROUTER);
        };
        let text = render::text(checked.steps(), &steps, &self.config.registry);
        let failed = steps.iter().all(|s| s.error.is_some());
        let status = if failed {
            Status::Failed
        } else {
            Status::Answered
        };
        self.verify(Draft {
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
            .within_call(Some(Arc::new(unheard(&self.call))));
        let call = self.call.id;
        match ask.within(self.config.plan_within).await {
            Ok(Ok(plan)) => return Some(plan),
            Ok(Err(failure)) => {
                callboard_message::log::error!(%call, kind = %failure.kind, "planner failed")
            }
            Err(_) if self.call.cancel.is_cancelled() => {}
            Err(why) => {
                callboard_message::log::error!(%call, kind = %why.kind(), "planner could not be asked")
            }
        }
        None
    }

    /// The plan to dispatch, or the refusal for the user.
    fn check(&self, plan: Plan, query: &str) -> Result<CheckedPlan, Draft> {
        let refuse = |plan: Plan, reason: String| {
            self.stages.tell("no plan: refused".into());
            Draft {
                status: Status::Failed,
                plan: plan.steps,
                steps: Vec::new(),
                text: render::line(&reason),
            }
        };
        if let Some(reason) = plan.refusal().map(str::to_owned) {
            return Err(refuse(plan, reason));
        }
        match plan.check(&self.config.registry) {
            Ok(checked) => {
                self.stages.tell_plan(&checked, query);
                Ok(checked)
            }
            Err(why) => {
                callboard_message::log::warn!(call = %self.call.id, code = why.code(), "planner made a plan that does not pass");
                // The plan itself is a stranger's: the user gets the refusal that stands for it.
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
            Ok(Ok(Dispatched { steps })) if answers(&steps, checked.steps()) => return Some(steps),
            Ok(Ok(_)) => "outcomes of other steps".to_owned(),
            Ok(Err(failure)) => failure.kind.to_string(),
            // Whoever asked has gone: that's no fault of anybody's here.
            Err(_) if self.call.cancel.is_cancelled() => return None,
            Err(why) => why.kind().to_string(),
        };
        callboard_message::log::error!(call = %self.call.id, kind, "router failed");
        None
    }

    async fn verify(&mut self, draft: Draft) -> Answer {
        let began = Instant::now();
        let identities = self.config.identities(&self.call.principal);
        let verified = verify(
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
                self.stages.tell("verdict: safe".into());
                answer
            }
            Err(Some(verdict)) => {
                let rule = verdict
                    .rule
                    .map_or_else(String::new, |r| format!(" ({r:?})"));
                callboard_message::log::warn!(call = %self.call.id, rule, "verifier blocked an answer");
                self.stages.tell(format!("verdict: blocked{rule}"));
                Answer::blocked(verdict)
            }
            Err(None) => {
                self.stages.tell("verdict: none, answer withheld".into());
                Answer::without_data(Status::Failed, NOT_VERIFIED)
            }
        }
    }
}

/// Whether there is exactly one outcome a step, each with a result or an error (envelope integrity).
fn answers(outcomes: &[StepOutcome], steps: &[Step]) -> bool {
    let answer = |(o, s): (&StepOutcome, &Step)| {
        o.step_id == s.step_id
            && o.clinic == s.clinic
            && o.action == s.action
            && o.result.is_some() != o.error.is_some()
    };
    outcomes.len() == steps.len() && outcomes.iter().zip(steps).all(answer)
}

/// The caller as the router sees it: reports of all stages are counted as one row, as the outer caller needs them.
struct Stages {
    caller: Option<Arc<dyn Caller>>,
    told: AtomicU32,
}

impl Stages {
    /// Tells how far it has come. Only ids, names of tools, times and the user's own words.
    pub fn tell(&self, message: String) {
        self.progress(Progress {
            message: Some(message),
            ..Progress::default()
        });
    }

    pub fn tell_plan(&self, plan: &CheckedPlan, query: &str) {
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
            self.tell(line);
        }
    }
}

impl Caller for Stages {
    fn progress(&self, progress: Progress) {
        let Some(caller) = &self.caller else { return };
        let done = f64::from(self.told.fetch_add(1, Ordering::Relaxed) + 1);
        caller.progress(Progress {
            done,
            total: None,
            message: progress.message,
        });
    }

    fn ask(&self, _: Question) -> BoxFuture<'_, Result<callboard_message::Answer, Failure>> {
        Box::pin(async { Err(Failure::nobody_to_ask("nobody is asked while clinics are")) })
    }
}
