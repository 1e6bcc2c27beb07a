//! NP3: what is done about a try that failed.

use std::time::Duration;

use callboard_message::text::cut_chars;
use callboard_message::{Elicitation, Failure, FailureKind, Progress, RawObject};
use callboard_runtime::AuditEntry;
use rand::Rng;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::attempt::Trouble;
use super::{ASKS_MAX, Done, Doubt, Errand, REROUTES_MAX, TRIES_MAX, confirm, risk_of, screened};
use crate::decide::limits::STEP_INPUT_BYTES_MAX;
use crate::decide::{
    Action, ConfirmWhy, DecideRecovery, ErrorClass, Outcome, Recovery, Risk, class_of, text_member,
    told_instead,
};
use crate::tool_name::EXECUTE_COMMAND;
use crate::tools::{may_run, text_answer, text_question};

/// Before the first repetition; twice as long before each further one.
const BACKOFF_FIRST: Duration = Duration::from_millis(500);
/// And never longer, before chance has its half.
const BACKOFF_MAX: Duration = Duration::from_secs(8);
/// Answer of a person who wants no more attempts.
const SKIP: &str = "skip";
/// Longest text of an action that a person is shown, in characters.
const SHOWN_CHARS_MAX: usize = 600;

/// One errand under way.
pub(super) struct Trying<'a> {
    errand: &'a Errand<'a>,
    action: Action,
    /// Task in words, with a person's words about it since.
    text: String,
    attempts: u32,
    /// Failures in a row of this target.
    in_a_row: u32,
    /// Repetitions in a row, which pause ever longer.
    repeated: u32,
    /// Tries that came to an end at who did them.
    settled: u32,
    reroutes: u32,
    asks: u32,
    /// Every target so far.
    tried: Vec<String>,
    /// Number of confirmations.
    confirmed: u32,
    /// The action is new: nobody has confirmed it.
    is_new: bool,
}

impl<'a> Trying<'a> {
    pub fn new(errand: &'a Errand<'a>, action: Action) -> Self {
        Self {
            errand,
            text: errand.text.to_owned(),
            tried: vec![action.target().to_owned()],
            action,
            attempts: 0,
            in_a_row: 0,
            repeated: 0,
            settled: 0,
            reroutes: 0,
            asks: 0,
            confirmed: 0,
            is_new: true,
        }
    }

    pub async fn run(mut self) -> Result<Done, Failure> {
        loop {
            if self.is_command() {
                // Who may not isn't asked anything.
                may_run(self.errand.cx.principal())?;
            }
            let is_new = std::mem::take(&mut self.is_new);
            let tried = match self.is_fit() {
                Err(failure) => Err(Trouble::of(failure)),
                Ok(()) => {
                    if is_new {
                        self.confirm().await?;
                    }
                    self.errand.once(&self.action, self.settled).await
                }
            };
            self.attempts += 1;
            match tried {
                Ok(result) => {
                    return Ok(Done {
                        by: self.action.target().to_owned(),
                        result,
                        attempts: self.attempts,
                    });
                }
                Err(trouble) => self.after(trouble).await?,
            }
        }
    }

    /// NP5 for what may do harm: before it is done first, and whenever it becomes something else.
    async fn confirm(&mut self) -> Result<(), Failure> {
        let Errand {
            options,
            cx,
            asked,
            run,
            world,
            ..
        } = *self.errand;
        let risk = risk_of(&self.action, world);
        let always = self.is_command();
        if !always && risk <= options.max_risk {
            return Ok(());
        }
        self.confirmed += 1;
        let key = match self.confirmed {
            1 => super::CONFIRM.to_owned(),
            nth => format!("{}-{nth}", super::CONFIRM),
        };
        let what = match &self.action {
            Action::Local { tool, params } => options.tools.account(tool, params),
            Action::Remote { agent, text } => {
                format!("Ask {agent}: {}", cut_chars(text, SHOWN_CHARS_MAX))
            }
        };
        let action = serde_json::to_value(&self.action).unwrap_or_default();
        let doubt = Doubt {
            what,
            action,
            why: ConfirmWhy::Risk,
            risk,
            always,
            key: &key,
        };
        confirm(&options.deciders, cx, run, asked, doubt).await
    }

    /// Nobody is asked to confirm a program that isn't allowed.
    fn is_fit(&self) -> Result<(), Failure> {
        match &self.action {
            Action::Local { tool, params } if tool == EXECUTE_COMMAND => {
                self.errand.options.tools.check(tool, params)
            }
            _ => Ok(()),
        }
    }

    fn is_command(&self) -> bool {
        matches!(&self.action, Action::Local { tool, .. } if tool == EXECUTE_COMMAND)
    }

    /// Whether the same again may act twice.
    fn may_act_twice(&self) -> bool {
        match &self.action {
            Action::Local { tool, .. } => {
                self.is_command()
                    || self
                        .errand
                        .world
                        .tool(tool)
                        .is_some_and(|tool| tool.risk == Risk::Acts)
            }
            Action::Remote { .. } => false,
        }
    }

    /// Does what is done about it; then it is tried again.
    ///
    /// # Errors
    /// Why it isn't.
    async fn after(&mut self, trouble: Trouble) -> Result<(), Failure> {
        let Trouble {
            failure,
            is_away,
            is_settled,
        } = trouble;
        self.in_a_row += 1;
        self.settled += u32::from(is_settled);
        // What another agent says went wrong is shown, and told to others.
        let failure = match &self.action {
            Action::Remote { .. } => Failure {
                message: screened(self.errand.options.guard.as_ref(), &failure).await,
                ..failure
            },
            Action::Local { .. } => failure,
        };
        let Some(class) = class_of(&failure, self.in_a_row) else {
            return Err(failure);
        };
        let class = if is_away {
            ErrorClass::AgentUnavailable
        } else {
            class
        };
        if !self.errand.recovers {
            return Err(failure);
        }
        if self.attempts >= TRIES_MAX || !self.has_time() {
            self.tell(class, "abandon: over budget");
            return Err(failure);
        }
        if self.may_ask()
            && let Ok(Some(question)) = self.errand.asked.before(&self.question_key()).await
        {
            self.tell(class, "ask_human");
            return self.ask(question, failure).await;
        }
        let message = self.message(class, &failure).await;
        let settled = self
            .errand
            .options
            .deciders
            .decide(self.errand.cx, self.errand.run, message)
            .await;
        let decided = settled.outcome.unwrap_or_else(|| abandon(&failure));
        let strategy = self.possible(decided, &failure, is_settled);
        self.tell(class, &strategy.word());
        self.follow(strategy, failure).await
    }

    async fn message(&self, class: ErrorClass, failure: &Failure) -> DecideRecovery {
        let Errand {
            options,
            run,
            goal,
            step,
            world,
            ..
        } = *self.errand;
        let may_reroute = self.reroutes < REROUTES_MAX;
        let is_left = |name: &&str| may_reroute && !self.tried.iter().any(|tried| tried == name);
        let names = |all: Vec<&str>| all.into_iter().filter(is_left).map(str::to_owned).collect();
        DecideRecovery {
            task_id: format!("{run}.{step}"),
            root_goal: goal.to_owned(),
            action: self.action.clone(),
            class,
            error: screened(options.guard.as_ref(), failure).await,
            attempts: self.attempts,
            tools: names(world.tools.iter().map(|tool| &*tool.name).collect()),
            agents: names(
                world
                    .agents
                    .iter()
                    .filter(|agent| agent.is_up)
                    .map(|agent| &*agent.id)
                    .collect(),
            ),
            may_ask: self.may_ask(),
        }
    }

    fn may_ask(&self) -> bool {
        self.asks < ASKS_MAX && self.errand.cx.abilities().elicitation_form()
    }

    fn has_time(&self) -> bool {
        !self.errand.cx.is_cancelled()
            && self
                .errand
                .cx
                .deadline()
                .is_none_or(|deadline| Instant::now() < deadline)
    }

    /// The strategy, or what stands for one that can't be followed. `is_settled` is the failure's.
    fn possible(&self, strategy: Recovery, failure: &Failure, is_settled: bool) -> Recovery {
        let can = match &strategy {
            Recovery::RetrySame => !self.may_act_twice(),
            Recovery::RetryModified { params } => {
                // To an agent other words are another task: the one before may still be at work.
                let is_over = is_settled || matches!(self.action, Action::Local { .. });
                is_over && self.patched(params).is_some()
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
            false => abandon(failure),
        }
    }

    /// The action with other parameters, where those fit: what is named is changed, or left out where it is null. Parameters that
    /// fit only as a whole are the whole. An agent's only one is what it is told.
    fn patched(&self, patch: &RawObject) -> Option<Action> {
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
                    |params: &RawObject| self.errand.options.tools.check(tool, params).is_ok();
                let params = [merged, patch.clone()].into_iter().find(fits)?;
                Some(Action::Local {
                    tool: tool.clone(),
                    params,
                })
            }
            Action::Remote { agent, .. } => {
                let text = told_instead(patch).filter(|text| text.len() <= STEP_INPUT_BYTES_MAX)?;
                Some(Action::Remote {
                    agent: agent.clone(),
                    text,
                })
            }
        }
    }

    async fn follow(&mut self, strategy: Recovery, failure: Failure) -> Result<(), Failure> {
        match strategy {
            Recovery::RetrySame => {
                self.pause().await;
                return Ok(());
            }
            Recovery::RetryModified { params } => {
                if let Some(patched) = self.patched(&params) {
                    self.action = patched;
                }
                self.is_new = true;
            }
            Recovery::UseAlternative { which } => self.reroute(which),
            Recovery::AskHuman { message } => {
                let field =
                    json!({ "type": "string", "description": format!("What to do, or `{SKIP}`.") });
                return self
                    .ask(text_question(message, &self.question_key(), field), failure)
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
        self.action = if self.errand.world.tool(&which).is_some() {
            let params = self.params_of(&which);
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
        (self.in_a_row, self.settled, self.is_new) = (0, 0, true);
    }

    /// What a tool is given that shall do it in the place of another: the words.
    fn params_of(&self, tool: &str) -> RawObject {
        let schema = self.errand.world.tool(tool).map(|tool| &tool.params);
        let member = schema
            .and_then(text_member)
            .unwrap_or_else(|| "text".to_owned());
        RawObject::of(&member, &self.text)
    }

    fn question_key(&self) -> String {
        format!("recover-{}", self.asks + 1)
    }

    async fn ask(&mut self, question: Elicitation, failure: Failure) -> Result<(), Failure> {
        self.asks += 1;
        let answer = match self.errand.cx.elicit(question).await {
            Ok(answer) => answer,
            // Nobody helps: it failed as it failed.
            Err(nobody) if nobody.kind == FailureKind::NobodyToAsk => return Err(failure),
            Err(other) => return Err(other),
        };
        match text_answer(&answer) {
            Some(said) if !said.eq_ignore_ascii_case(SKIP) => {
                self.text = format!("{}\n{said}", self.text);
                match &mut self.action {
                    Action::Remote { text, .. } => text.clone_from(&self.text),
                    Action::Local { tool, params } => {
                        self.errand
                            .world
                            .append_text(tool, params, &format!("\n{said}"));
                    }
                }
                // What was said may have made another task of it.
                self.settled += 1;
                self.is_new = true;
                Ok(())
            }
            _ => Err(failure),
        }
    }

    async fn pause(&mut self) {
        let pause = BACKOFF_FIRST
            .saturating_mul(1 << self.repeated.min(8))
            .min(BACKOFF_MAX);
        self.repeated += 1;
        let chance = rand::rng().random_range(0.5..1.5);
        sleep(pause.mul_f64(chance)).await;
    }

    /// What is done about it, for whoever called and for the record: no texts.
    fn tell(&self, class: ErrorClass, strategy: &str) {
        let (cx, target, attempts) = (self.errand.cx, self.action.target(), self.attempts);
        let line = format!("NP3: {target} failed ({class}, attempt {attempts}): {strategy}");
        cx.progress(Progress {
            message: Some(line),
            ..Progress::default()
        });
        let mut entry = AuditEntry::new("recovery")
            .with_agent(&self.errand.options.id)
            .with_peer(target)
            .with_principal(cx.principal())
            .with_outcome(strategy.to_owned())
            .with("class", class.to_string())
            .with("attempts", attempts)
            .with("run", self.errand.run.as_str())
            .with("step", self.errand.step);
        if let Some(call) = cx.call() {
            entry = entry.with_call(call.id);
        }
        cx.system().audit().note(entry);
    }
}

fn abandon(failure: &Failure) -> Recovery {
    Recovery::Abandon {
        reason: failure.message.clone(),
    }
}
