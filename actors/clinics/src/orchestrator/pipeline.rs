use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use callboard_guardrail::TextOrigin;
use callboard_message::text::fold;
use callboard_message::{Failure, Principal, Progress, Question};
use callboard_runtime::{CallContext, Caller, Context};
use futures::future::BoxFuture;
use tokio::time::Instant;

use super::answer::{AnswerDraft, AnswerStatus, ClinicAnswer, TimesMs, verify_draft};
use super::patients::{RepeatedStep, StepsRun};
use super::{OrchestratorConfig, render};
use crate::access::claimed_purpose;
use crate::plan::{Plan, ReplyOptions, STEPS_MAX, Step};
use crate::planner::MakePlan;
use crate::router::{
    BLOCKED, CODE_UNAVAILABLE, Dispatch, DispatchResult, StepError, StepOutcome, forwarded_call,
    ms_since, passes_guardrail, without_caller,
};
use crate::verifier::{Finding, Identities, Rule, Verdict};

const NO_PLANNER: &str = "The question could not be planned: the planner is away. Ask again later.";
const NO_ROUTER: &str =
    "The clinics could not be asked: the router is away or late. Ask again later.";
const NOT_VERIFIED: &str =
    "The answer is withheld: the verifier could not check it. Ask again later.";

/// One question on its way through all stages: screening, planning, routing and verifying.
pub(super) struct Pipeline<'a> {
    config: &'a OrchestratorConfig,
    /// Call context for the stages: the caller's, one hop further, with the question's purpose if
    /// it states one that the caller's credential may claim, and `progress` as the caller. Only the router receives that caller.
    call: CallContext,
    progress: Arc<ProgressCaller>,
    times: TimesMs,
    /// Ids of the clinics that the plan asks, once it is dispatched.
    asked: BTreeSet<String>,
}

impl<'a> Pipeline<'a> {
    pub fn new(
        config: &'a OrchestratorConfig,
        cx: &Context,
        purpose: Option<String>,
    ) -> Result<Self, Failure> {
        let mut call = forwarded_call(cx)?;
        // The principal comes from the credential; only the purpose comes from the message. Clinics
        // decide which fields a purpose opens, and for which principals. They may know this node only,
        // so that a purpose goes no further unless the caller's credential may claim it.
        let mut principal = Principal::clone(&call.principal);
        principal.purpose = purpose.or(principal.purpose);
        principal.purpose = claimed_purpose(&principal).map(str::to_owned);
        call.principal = Arc::new(principal);
        let stages = Arc::new(ProgressCaller {
            caller: call.caller.take(),
            reported: AtomicU32::new(0),
        });
        call.caller = Some(stages.clone());
        call.caller_alone = None;
        Ok(Self {
            config,
            call,
            progress: stages,
            times: TimesMs::default(),
            asked: BTreeSet::new(),
        })
    }

    /// Returns whether the answer may show patients' identities.
    pub fn visible_identities(&self) -> Identities {
        self.config.visible_identities(&self.call.principal)
    }

    /// Returns the ids of the clinics that were asked so far, whatever became of their answers.
    pub fn asked_clinics(&self) -> Vec<String> {
        self.asked.iter().cloned().collect()
    }

    pub async fn answer(&mut self, query: &str) -> ClinicAnswer {
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
        let (steps, reply) = match self.check(plan, query) {
            Ok(checked) => checked,
            Err(refusal) => {
                let verified = self.verify(refusal).await;
                return self.ended(verified);
            }
        };

        self.asked
            .extend(steps.iter().map(|step| step.clinic.clone()));
        let began = Instant::now();
        let run = self.run_steps(steps).await;
        self.times.routing = ms_since(began);
        match run {
            Some(run) => self.verify_run(run, &reply).await,
            None => ClinicAnswer::without_data(AnswerStatus::Failed, NO_ROUTER),
        }
    }

    /// Runs the planned steps: first those that are complete, then those that are repeated for the
    /// patients that these found, with their ids. `None`, if the router failed.
    ///
    /// Ids of patients only go back to the clinic that they came from: a checked plan repeats a step
    /// at the clinic of its source.
    async fn run_steps(&self, planned: Vec<Step>) -> Option<StepsRun> {
        let until = Instant::now() + self.config.route_within;
        let mut run = StepsRun {
            steps: planned
                .iter()
                .filter(|step| step.for_each.is_none())
                .cloned()
                .collect(),
            outcomes: Vec::new(),
        };
        // The router runs a step as soon as its dependencies have ended; what is left out and repeated
        // is done here.
        let plain = |step: &Step| Step {
            except: Vec::new(),
            depends_on: depends_on_plain(step, &run.steps),
            ..step.clone()
        };
        run.outcomes = self
            .route(run.steps.iter().map(plain).collect(), until)
            .await?;
        let padded = run.padded_steps();
        if !padded.is_empty() {
            let steps = padded.iter().map(|(_, step)| step.clone()).collect();
            // What was answered before stays if the time is over.
            let outcomes = self.route(steps, until).await.unwrap_or_default();
            for ((at, step), outcome) in padded.into_iter().zip(outcomes) {
                if outcome.result.is_some() {
                    (run.steps[at], run.outcomes[at]) = (step, outcome);
                }
            }
        }
        run.leave_out();
        let repeated = run.repeated_steps(&planned);
        let runnable = repeated.iter().filter_map(|step| match step {
            RepeatedStep::Run(step) => Some(step.clone()),
            RepeatedStep::Failed(..) => None,
        });
        let runnable: Vec<Step> = runnable.collect();
        let mut outcomes = Vec::with_capacity(runnable.len());
        for steps in runnable.chunks(STEPS_MAX) {
            let routed = self.route(steps.to_vec(), until).await;
            outcomes.extend(routed.unwrap_or_else(|| steps.iter().map(late_outcome).collect()));
        }
        let mut outcomes = outcomes.into_iter();
        for step in repeated {
            let (step, outcome) = match step {
                RepeatedStep::Run(step) => (step, outcomes.next()?),
                RepeatedStep::Failed(step, error) => {
                    (step.clone(), StepOutcome::of(step, Err(error), 0))
                }
            };
            run.steps.push(step);
            run.outcomes.push(outcome);
        }
        Some(run)
    }

    /// Makes the text and status of an answer.
    fn draft(&self, run: &StepsRun, reply: &ReplyOptions) -> AnswerDraft {
        if let Some(sentence) = reply.if_none.as_ref().filter(|_| run.is_nobody()) {
            return AnswerDraft {
                status: AnswerStatus::Failed,
                plan: Plan::raw_response("", sentence).steps,
                steps: Vec::new(),
                text: render::single_line(sentence),
            };
        }
        let missing = run
            .outcomes
            .iter()
            .filter(|outcome| outcome.is_missing())
            .count();
        let status = match missing {
            0 => AnswerStatus::Answered,
            missing if missing == run.outcomes.len() => AnswerStatus::Failed,
            _ => AnswerStatus::Partial,
        };
        let text = render::render_answer(run, reply, &self.config.registry, status);
        AnswerDraft {
            status,
            plan: run.steps.clone(),
            steps: run.outcomes.clone(),
            text,
        }
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

    /// Checks the plan and reports it as progress. Returns its steps and the additions to the answer, or
    /// a draft with the answer or refusal for the user. `query` only decides which parameters the report
    /// may repeat.
    fn check(&self, plan: Plan, query: &str) -> Result<(Vec<Step>, ReplyOptions), AnswerDraft> {
        let refuse = |plan: Plan, reason: String| {
            let (status, report) = match plan.reply.is_answer {
                true => (AnswerStatus::Answered, "no plan: answered without a clinic"),
                false => (AnswerStatus::Failed, "no plan: refused"),
            };
            self.progress.report(report.into());
            AnswerDraft {
                status,
                plan: plan.steps,
                steps: Vec::new(),
                text: render::single_line(&reason),
            }
        };
        if let Some(reason) = plan.refusal().map(str::to_owned) {
            return Err(refuse(plan, reason));
        }
        let reply = plan.reply.clone();
        match plan.check(&self.config.registry) {
            Ok(checked) => {
                let steps = checked.into_steps();
                self.progress.report_plan(&steps, query);
                Ok((steps, reply))
            }
            Err(why) => {
                callboard_message::log::warn!(call = %self.call.id, principal = self.call.principal.id, code = why.code(), "planner made an invalid plan: the question is refused");
                // The plan itself may be a model's text, so the user gets a refusal instead.
                let reason = format!("No clinic was asked, for the plan was not in order: {why}.");
                Err(refuse(Plan::raw_response("", reason.clone()), reason))
            }
        }
    }

    /// Dispatches complete steps, at most [`STEPS_MAX`]. Returns an outcome for each; `None`, if the
    /// router failed or `until` passed.
    async fn route(&self, steps: Vec<Step>, until: Instant) -> Option<Vec<StepOutcome>> {
        let message = Dispatch {
            plan: Plan::from(steps.clone()),
        };
        let ask = self
            .config
            .router
            .ask(message)
            .within_call(Some(Arc::new(CallContext {
                trace: self.call.trace.sibling(),
                ..self.call.clone()
            })));
        let within = until.saturating_duration_since(Instant::now());
        let kind = match ask.within(within).await {
            Ok(Ok(DispatchResult { steps: outcomes }))
                if outcomes_match_steps(&outcomes, &steps) =>
            {
                return Some(outcomes);
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

    /// Verifies the answer of all steps. If it isn't safe, the steps that aren't safe on their own are
    /// withheld, so that one clinic costs no other's answer. If that doesn't help, nothing is shown.
    async fn verify_run(&mut self, mut run: StepsRun, reply: &ReplyOptions) -> ClinicAnswer {
        let until = Instant::now() + self.config.verify_within;
        let first = self.verify_until(self.draft(&run, reply), until).await;
        let Err(Some(verdict)) = &first else {
            return self.ended(first);
        };
        let steps = run.outcomes.len();
        if steps < 2 {
            // It was checked alone.
            return self.ended(first);
        }
        let mut found = self.unsafe_steps(&run, until).await;
        if found.is_empty() && verdict.rule.is_none() {
            // Each of them can be checked, but not all together.
            found.extend(run.longest_answer().map(|at| (at, None)));
        }
        if found.is_empty() || found.len() == steps {
            return self.ended(first);
        }
        let mut findings = Vec::new();
        for (at, rule) in found {
            let clinic = &run.steps[at].clinic;
            callboard_message::log::warn!(call = %self.call.id, principal = self.call.principal.id, clinic, ?rule, "verifier withheld the answer of one clinic");
            let note = format!("An answer of {clinic} was withheld.");
            findings.extend(rule.map(|rule| Finding::new(rule, note)));
            run.withhold(at, rule);
        }
        match self.verify_until(self.draft(&run, reply), until).await {
            Ok(answer) => self.ended(Ok(answer.with_findings(findings))),
            Err(_) => self.ended(first),
        }
    }

    /// Returns the steps that aren't safe on their own, with the broken rule of each if it has one.
    async fn unsafe_steps(&mut self, run: &StepsRun, until: Instant) -> Vec<(usize, Option<Rule>)> {
        let mut found = Vec::new();
        for (at, (step, outcome)) in run.steps.iter().zip(&run.outcomes).enumerate() {
            let alone = StepsRun {
                steps: vec![step.clone()],
                outcomes: vec![outcome.clone()],
            };
            let draft = self.draft(&alone, &ReplyOptions::default());
            if let Err(Some(verdict)) = self.verify_until(draft, until).await {
                found.push((at, verdict.rule));
            }
        }
        found
    }

    async fn verify(&mut self, draft: AnswerDraft) -> Result<ClinicAnswer, Option<Verdict>> {
        let until = Instant::now() + self.config.verify_within;
        self.verify_until(draft, until).await
    }

    async fn verify_until(
        &mut self,
        draft: AnswerDraft,
        until: Instant,
    ) -> Result<ClinicAnswer, Option<Verdict>> {
        let began = Instant::now();
        let identities = self.visible_identities();
        let verified = verify_draft(
            draft,
            &self.config.verifier,
            &self.call,
            until.saturating_duration_since(began),
            identities,
        )
        .await;
        self.times.verifying += ms_since(began);
        verified
    }

    /// Reports the end of the verification as progress, and returns the answer that is shown.
    fn ended(&self, verified: Result<ClinicAnswer, Option<Verdict>>) -> ClinicAnswer {
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

/// Returns the step's dependencies among the steps that are dispatched with it.
fn depends_on_plain(step: &Step, plain: &[Step]) -> Vec<u32> {
    let is_plain = |on: &u32| plain.iter().any(|step| step.step_id == *on);
    step.depends_on.iter().copied().filter(is_plain).collect()
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

    pub fn report_plan(&self, steps: &[Step], query: &str) {
        let squeezed = |text: &str| {
            fold(text)
                .chars()
                .filter(|c| c.is_alphanumeric())
                .collect::<String>()
        };
        let asked = squeezed(query);
        for step in steps {
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
            line.push_str(&render::flow_of(step));
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

/// Returns the outcome of a step for which no time was left.
fn late_outcome(step: &Step) -> StepOutcome {
    let message = format!("{} did not answer in time", step.clinic);
    StepOutcome::of(
        step.clone(),
        Err(StepError::new(CODE_UNAVAILABLE, message)),
        0,
    )
}
