//! Recovery from failed attempts (NP3).

use std::time::Duration;

use callboard_message::text::cut_chars;
use callboard_message::{Elicitation, Failure, FailureKind, Progress, RawObject};
use callboard_runtime::AuditEntry;
use rand::RngExt;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::alternatives::fitting_agents;
use super::attempt::StepAttemptError;
use super::{
    CompletedStep, ConfirmationRequest, STEP_ATTEMPTS_MAX, STEP_QUESTIONS_MAX, STEP_REROUTES_MAX,
    StepExecution, action_risk, confirm, screen_error,
};
use crate::decide::limits::STEP_INPUT_BYTES_MAX;
use crate::decide::{
    Action, ConfirmReason, DecideRecovery, DecisionOutcome, DecisionPoint, ErrorClass, Recovery,
    Risk, classify_failure, describe_outcome, only_text_param, replacement_text,
};
use crate::tool_name::EXECUTE_COMMAND;
use crate::tools::{check_may_run, text_answer, text_question};

/// Pause before the first retry. It doubles with each retry.
const BACKOFF_FIRST: Duration = Duration::from_millis(500);
/// Maximum pause between retries, before jitter of ±50 %.
const BACKOFF_MAX: Duration = Duration::from_secs(8);
/// Answer of a person who wants no further attempts.
const SKIP_ANSWER: &str = "skip";
/// Maximum characters of an action's text shown to a person. A longer one is cut.
const SHOWN_CHARS_MAX: usize = 600;

/// Execution of one action with retries.
pub(super) struct RecoveringExecution<'a> {
    execution: &'a StepExecution<'a>,
    action: Action,
    /// Instruction of the step, with a person's later answers appended.
    text: String,
    attempts: u32,
    /// Consecutive failures of the current target.
    failures_in_a_row: u32,
    /// Consecutive retries of the same action, which lengthen the pause.
    repeated: u32,
    /// Number of attempts that ended with a final failure ([`StepAttemptError::is_final`]). The
    /// idempotency key contains it.
    settled: u32,
    reroutes: u32,
    asks: u32,
    /// Tools and agents tried so far. They aren't offered as alternatives again.
    tried: Vec<String>,
    confirmed: u32,
    /// Whether the action changed since it was last confirmed.
    is_new: bool,
}

impl<'a> RecoveringExecution<'a> {
    pub fn new(execution: &'a StepExecution<'a>, action: Action) -> Self {
        Self {
            execution,
            text: execution.text.to_owned(),
            tried: vec![action.target().to_owned()],
            action,
            attempts: 0,
            failures_in_a_row: 0,
            repeated: 0,
            settled: 0,
            reroutes: 0,
            asks: 0,
            confirmed: 0,
            is_new: true,
        }
    }

    pub async fn run(mut self) -> Result<CompletedStep, Failure> {
        loop {
            if self.is_command() {
                // Callers without the permission are refused before any question.
                check_may_run(self.execution.cx.principal())?;
            }
            let is_new = std::mem::take(&mut self.is_new);
            let tried = match self.check_command() {
                Err(failure) => Err(StepAttemptError::from_failure(failure)),
                Ok(()) => {
                    if is_new {
                        self.confirm().await?;
                    }
                    self.execution.attempt(&self.action, self.settled).await
                }
            };
            self.attempts += 1;
            match tried {
                Ok(result) => {
                    return Ok(CompletedStep {
                        performed_by: self.action.target().to_owned(),
                        result,
                        attempts: self.attempts,
                    });
                }
                Err(trouble) => self.recover(trouble).await?,
            }
        }
    }

    /// Asks for confirmation (NP5) of an action above the risk threshold, and always of running a
    /// program, before the first attempt and after each change.
    ///
    /// # Errors
    /// Fails like [`confirm`].
    async fn confirm(&mut self) -> Result<(), Failure> {
        let StepExecution {
            options,
            cx,
            question_history: asked,
            run,
            routing_context: world,
            ..
        } = *self.execution;
        let risk = action_risk(&self.action, world);
        let always = self.is_command();
        if !always && risk <= options.max_risk {
            return Ok(());
        }
        self.confirmed += 1;
        let key = match self.confirmed {
            1 => super::CONFIRM_KEY.to_owned(),
            nth => format!("{}-{nth}", super::CONFIRM_KEY),
        };
        let what = match &self.action {
            Action::Local { tool, params } => options.tools.describe_use(tool, params),
            Action::Remote { agent, text } => {
                format!("Ask {agent}: {}", cut_chars(text, SHOWN_CHARS_MAX))
            }
        };
        let action = serde_json::to_value(&self.action).unwrap_or_default();
        let confirmation = ConfirmationRequest {
            description: what,
            action,
            reason: ConfirmReason::Risk,
            risk,
            always_asks: always,
            key: &key,
        };
        confirm(&options.deciders, cx, run, asked, confirmation).await
    }

    /// Checks a program before confirmation: a disallowed one is rejected without a question. Other
    /// actions pass.
    ///
    /// # Errors
    /// `Denied` or `InvalidInput` of [`Toolbox::check`](crate::tools::Toolbox::check).
    fn check_command(&self) -> Result<(), Failure> {
        match &self.action {
            Action::Local { tool, params } if tool == EXECUTE_COMMAND => {
                self.execution.options.tools.check(tool, params)
            }
            _ => Ok(()),
        }
    }

    fn is_command(&self) -> bool {
        matches!(&self.action, Action::Local { tool, .. } if tool == EXECUTE_COMMAND)
    }

    /// Whether repeating the action may cause its side effects twice.
    fn may_act_twice(&self) -> bool {
        match &self.action {
            Action::Local { tool, .. } => {
                self.is_command()
                    || self
                        .execution
                        .routing_context
                        .tool(tool)
                        .is_some_and(|tool| tool.risk == Risk::Acts)
            }
            Action::Remote { .. } => false,
        }
    }

    /// Decides and applies a recovery strategy, so that another attempt can follow.
    ///
    /// # Errors
    /// The failure, if it isn't recovered from.
    async fn recover(&mut self, trouble: StepAttemptError) -> Result<(), Failure> {
        let StepAttemptError {
            failure,
            is_agent_unavailable: is_away,
            is_final: is_settled,
        } = trouble;
        self.failures_in_a_row += 1;
        self.settled += u32::from(is_settled);
        // Another agent's error message is shown to people and deciders, so it is screened first.
        let failure = match &self.action {
            Action::Remote { .. } => Failure {
                message: screen_error(
                    self.execution.options.guard.as_ref(),
                    &failure,
                    self.execution.cx,
                )
                .await,
                ..failure
            },
            Action::Local { .. } => failure,
        };
        let Some(class) = classify_failure(&failure, self.failures_in_a_row) else {
            return Err(failure);
        };
        let class = if is_away {
            ErrorClass::AgentUnavailable
        } else {
            class
        };
        if !self.execution.recovers_errors {
            return Err(failure);
        }
        if self.attempts >= STEP_ATTEMPTS_MAX || !self.has_time() {
            self.report_strategy(class, "abandon: over budget");
            return Err(failure);
        }
        if self.may_ask()
            && let Ok(Some(question)) = self
                .execution
                .question_history
                .find_question(&self.question_key())
                .await
        {
            self.report_strategy(class, "ask_human");
            return self.ask_person(question, failure).await;
        }
        let message = self.recovery_request(class, &failure).await;
        let settled = self
            .execution
            .options
            .deciders
            .decide(self.execution.cx, self.execution.run, message)
            .await;
        let decided = settled
            .outcome
            .unwrap_or_else(|| abandon_strategy(&failure));
        let strategy = self.feasible_strategy(decided, &failure, is_settled);
        self.report_strategy(class, &strategy.label());
        self.apply_strategy(strategy, failure).await
    }

    async fn recovery_request(&self, class: ErrorClass, failure: &Failure) -> DecideRecovery {
        let StepExecution {
            options,
            run,
            goal,
            step,
            routing_context: world,
            ..
        } = *self.execution;
        let may_reroute = self.reroutes < STEP_REROUTES_MAX;
        let is_left = |name: &&str| may_reroute && !self.tried.iter().any(|tried| tried == name);
        let names = |all: Vec<&str>| all.into_iter().filter(is_left).map(str::to_owned).collect();
        DecideRecovery {
            task_id: format!("{run}.{step}"),
            root_goal: goal.to_owned(),
            action: self.action.clone(),
            class,
            error: screen_error(options.guard.as_ref(), failure, self.execution.cx).await,
            attempts: self.attempts,
            tools: names(world.tools.iter().map(|tool| &*tool.name).collect()),
            agents: names(fitting_agents(world, &self.action, &self.text)),
            may_ask: self.may_ask(),
        }
    }

    fn may_ask(&self) -> bool {
        self.asks < STEP_QUESTIONS_MAX
            && self
                .execution
                .cx
                .caller_capabilities()
                .has_elicitation_form()
    }

    fn has_time(&self) -> bool {
        !self.execution.cx.is_cancelled()
            && self
                .execution
                .cx
                .deadline()
                .is_none_or(|deadline| Instant::now() < deadline)
    }

    /// Returns the strategy if it is feasible, otherwise a question to a person or, if no person
    /// can be asked, giving up. `is_settled` tells that the failed attempt ended with a final
    /// failure ([`StepAttemptError::is_final`]).
    fn feasible_strategy(
        &self,
        strategy: Recovery,
        failure: &Failure,
        is_settled: bool,
    ) -> Recovery {
        let can = match &strategy {
            Recovery::RetrySame => !self.may_act_twice(),
            Recovery::RetryModified { params } => {
                // For an agent, other text is another task, and the earlier one may still be
                // running.
                let is_over = is_settled || matches!(self.action, Action::Local { .. });
                is_over && self.patch_action(params).is_some()
            }
            Recovery::UseAlternative { .. }
            | Recovery::AskHuman { .. }
            | Recovery::Abandon { .. } => true,
        };
        match can {
            true => strategy,
            false if self.may_ask() => {
                let target = self.action.target();
                Recovery::AskHuman {
                    message: format!("{target} failed: {}. What should I do?", failure.message),
                }
            }
            false => abandon_strategy(failure),
        }
    }

    /// Returns the action with changed parameters. `None` if the parameters don't fit the action.
    /// For a tool, the patch is merged into the parameters, and null removes one; if the result
    /// doesn't fit, the patch alone is tried. For an agent, the patch is a single text that
    /// replaces the request.
    fn patch_action(&self, patch: &RawObject) -> Option<Action> {
        match &self.action {
            Action::Local { tool, params } => {
                let mut merged = params.clone();
                for (name, value) in patch.iter() {
                    match value.get() {
                        "null" => drop(merged.remove(name)),
                        _ => merged.set_raw(name, value.to_owned()),
                    }
                }
                let fits =
                    |params: &RawObject| self.execution.options.tools.check(tool, params).is_ok();
                let params = [merged, patch.clone()].into_iter().find(fits)?;
                Some(Action::Local {
                    tool: tool.clone(),
                    params,
                })
            }
            Action::Remote { agent, .. } => {
                let text =
                    replacement_text(patch).filter(|text| text.len() <= STEP_INPUT_BYTES_MAX)?;
                Some(Action::Remote {
                    agent: agent.clone(),
                    text,
                })
            }
        }
    }

    async fn apply_strategy(
        &mut self,
        strategy: Recovery,
        failure: Failure,
    ) -> Result<(), Failure> {
        match strategy {
            Recovery::RetrySame => {
                self.back_off().await;
                return Ok(());
            }
            Recovery::RetryModified { params } => {
                if let Some(patched) = self.patch_action(&params) {
                    self.action = patched;
                }
                self.is_new = true;
            }
            Recovery::UseAlternative { which } => self.reroute(which),
            Recovery::AskHuman { message } => {
                let field = json!({ "type": "string", "description": format!("What to do, or `{SKIP_ANSWER}`.") });
                return self
                    .ask_person(text_question(message, &self.question_key(), field), failure)
                    .await;
            }
            Recovery::Abandon { reason } => {
                return Err(Failure {
                    message: reason,
                    ..failure
                });
            }
        }
        self.repeated = 0;
        Ok(())
    }

    fn reroute(&mut self, which: String) {
        self.action = if self.execution.routing_context.tool(&which).is_some() {
            let params = self.text_params(&which);
            Action::Local {
                tool: which,
                params,
            }
        } else {
            Action::Remote {
                agent: which,
                text: self.text.clone(),
            }
        };
        self.tried.push(self.action.target().to_owned());
        self.reroutes += 1;
        (self.failures_in_a_row, self.settled, self.is_new) = (0, 0, true);
    }

    /// Returns the parameters of an alternative tool: the instruction as its only required text
    /// parameter, or as `text` if it has no such parameter.
    fn text_params(&self, tool: &str) -> RawObject {
        let schema = self
            .execution
            .routing_context
            .tool(tool)
            .map(|tool| &tool.params);
        let member = schema
            .and_then(only_text_param)
            .unwrap_or_else(|| "text".to_owned());
        RawObject::single(&member, &self.text)
    }

    fn question_key(&self) -> String {
        format!("recover-{}", self.asks + 1)
    }

    async fn ask_person(&mut self, question: Elicitation, failure: Failure) -> Result<(), Failure> {
        self.asks += 1;
        let answer = match self.execution.cx.elicit(question).await {
            Ok(answer) => answer,
            // Without anyone to ask, the original failure stands.
            Err(nobody) if nobody.kind == FailureKind::NoResponder => return Err(failure),
            Err(other) => return Err(other),
        };
        match text_answer(&answer) {
            Some(said) if !said.eq_ignore_ascii_case(SKIP_ANSWER) => {
                self.text = format!("{}\n{said}", self.text);
                match &mut self.action {
                    Action::Remote { text, .. } => text.clone_from(&self.text),
                    Action::Local { tool, params } => {
                        self.execution.routing_context.append_text(
                            tool,
                            params,
                            &format!("\n{said}"),
                        );
                    }
                }
                // The answer may have changed the task, so it needs a new idempotency key.
                self.settled += 1;
                self.is_new = true;
                Ok(())
            }
            _ => Err(failure),
        }
    }

    async fn back_off(&mut self) {
        let pause = BACKOFF_FIRST
            .saturating_mul(1 << self.repeated.min(8))
            .min(BACKOFF_MAX);
        self.repeated += 1;
        let chance = rand::rng().random_range(0.5..1.5);
        sleep(pause.mul_f64(chance)).await;
    }

    /// Reports the strategy as progress and in the audit log, without any user text.
    fn report_strategy(&self, class: ErrorClass, strategy: &str) {
        let (cx, target, attempts) = (self.execution.cx, self.action.target(), self.attempts);
        let next = describe_outcome(DecisionPoint::Recovery, strategy);
        let line = format!("Attempt {attempts} by {target} failed ({class}). {next}");
        cx.progress(Progress {
            message: Some(line),
            ..Progress::default()
        });
        let mut entry = AuditEntry::new("recovery")
            .with_agent(&self.execution.options.id)
            .with_peer(target)
            .with_principal(cx.principal())
            .with_outcome(strategy.to_owned())
            .with_detail("class", class.to_string())
            .with_detail("attempts", attempts)
            .with_detail("run", self.execution.run.as_str())
            .with_detail("step", self.execution.step);
        if let Some(call) = cx.call() {
            entry = entry.with_call(call.id);
        }
        cx.system().audit().try_enqueue(entry);
    }
}

fn abandon_strategy(failure: &Failure) -> Recovery {
    Recovery::Abandon {
        reason: failure.message.clone(),
    }
}
