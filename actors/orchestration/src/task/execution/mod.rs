//! Execution of an action: runs a tool or asks an agent, recovers from failures (NP3) and asks for
//! confirmations (NP5).

mod alternatives;
mod attempt;
mod recovery;

use callboard_guardrail::{GuardrailPolicy, TextOrigin};
use callboard_message::json::quote_raw;
use callboard_message::text::{cut_bytes, cut_chars, normalize};
use callboard_message::{Elicitation, Failure, ToolResult};
use callboard_runtime::{AgentRef, Context, TaskId};
use serde_json::{Value, json};

use crate::decide::limits::ERROR_CHARS_MAX;
use crate::decide::{
    Action, Confirm, ConfirmReason, DecideConfirm, Deciders, PeerAgentView, Risk, RoutingContext,
    RunId, SkillView, Turn,
};
use crate::task::{QuestionHistory, TaskOrchestratorOptions};
use crate::tool_name::EXECUTE_COMMAND;

/// Maximum attempts of one step in total, over all tools and agents. After that many, the step
/// fails with the last failure. Fixed.
pub const STEP_ATTEMPTS_MAX: u32 = 4;
/// Maximum switches of one step to another tool or agent. After that many, no alternatives are
/// offered to the decider. Fixed.
pub const STEP_REROUTES_MAX: u32 = 2;
/// Maximum questions to a person about the failures of one step. After that many, nobody is asked.
/// Fixed.
pub const STEP_QUESTIONS_MAX: u32 = 1;
/// Line between the instruction of a step and the results that it needs.
pub(crate) const RESULTS_HEADING: &str = "\n\nResults of earlier steps:";
/// First line of a confirmation question.
pub(crate) const CONFIRM_FIRST_LINE: &str = "⚠️ Planned action needs your confirmation…";
/// Default key of a confirmation question, and the name of its answer field.
pub(crate) const CONFIRM_KEY: &str = "confirm";
/// Risk of asking an agent with a destructive skill, or an unreachable agent with unknown skills.
const RISK_DESTRUCTIVE: f32 = 0.8;
/// Maximum characters of a plan's description in a confirmation question. A longer one is cut.
const PLAN_SHOWN_CHARS_MAX: usize = 1_000;
/// Replacement for an error message that the guardrail blocks.
const BLOCKED_ERROR_TEXT: &str = "the error isn't shown: the guardrail stopped it";

/// Action to execute, with its surroundings.
pub(crate) struct StepExecution<'a> {
    /// Options of the orchestrator.
    pub options: &'a TaskOrchestratorOptions,
    /// Context of the call.
    pub cx: &'a Context,
    /// Questions asked in an earlier execution of this step.
    pub question_history: &'a QuestionHistory,
    /// Id of the run.
    pub run: &'a RunId,
    /// Step id within the run.
    pub step: &'a str,
    /// Goal of the run.
    pub goal: &'a str,
    /// Instruction of the step.
    pub text: &'a str,
    /// Conversation id; empty if none.
    pub context: &'a str,
    /// Task that the step belongs to, named to other agents.
    pub parent: Option<&'a TaskId>,
    /// Earlier turns of the conversation.
    pub history: &'a [Turn],
    /// Available tools and agents.
    pub routing_context: &'a RoutingContext,
    /// Whether a failed attempt is followed by recovery (NP3), such as a retry.
    pub recovers_errors: bool,
}

/// Completed action.
pub(crate) struct CompletedStep {
    /// Name of the tool or id of the agent that performed it.
    pub performed_by: String,
    pub result: ToolResult,
    /// Number of attempts.
    pub attempts: u32,
}

/// Returns the text of a result, cut to `bytes_max` bytes with `…` at the end. A result without
/// text yields its structured content as JSON.
pub(crate) fn result_text(result: &ToolResult, bytes_max: usize) -> String {
    let texts = result.texts();
    let text = match result.structured_content() {
        Some(value) if texts.is_empty() => value.to_string(),
        _ => texts,
    };
    match text.len() > bytes_max {
        true => format!(
            "{}…",
            cut_bytes(&text, bytes_max.saturating_sub('…'.len_utf8()))
        ),
        false => text,
    }
}

impl StepExecution<'_> {
    /// Executes the action. Retries, reroutes or asks a person on failure, within the limits of
    /// this module.
    ///
    /// # Errors
    /// The failure of the last attempt, or the reason for giving up.
    pub(crate) async fn run(&self, action: Action) -> Result<CompletedStep, Failure> {
        recovery::RecoveringExecution::new(self, action).run().await
    }
}

/// Action or answer for which confirmation may be needed.
pub(crate) struct ConfirmationRequest<'a> {
    /// Description in words, for the person.
    pub description: String,
    /// Description as JSON, for the decider.
    pub action: Value,
    pub reason: ConfirmReason,
    /// Risk, 0 to 1.
    pub risk: f32,
    /// Whether a person is always asked, without consulting the decider (NP5).
    pub always_asks: bool,
    /// Key of the question.
    pub key: &'a str,
}

/// Asks a person for confirmation if the decider (NP5) requires it. A question asked before a
/// restart is repeated unchanged.
///
/// # Errors
/// `Cancelled` if the person doesn't confirm, `NoResponder` if there is no person to ask, and
/// failures of the caller and the store.
pub(crate) async fn confirm(
    deciders: &Deciders,
    cx: &Context,
    run: &RunId,
    asked: &QuestionHistory,
    confirmation: ConfirmationRequest<'_>,
) -> Result<(), Failure> {
    let before = asked.find_question(confirmation.key).await?;
    if before.is_none() && !confirmation.always_asks {
        let ConfirmationRequest {
            action,
            reason: why,
            risk,
            ..
        } = &confirmation;
        let message = DecideConfirm {
            action: action.clone(),
            why: *why,
            risk: *risk,
            preference_known: false,
        };
        if deciders.decide(cx, run, message).await.outcome == Some(Confirm::SafeToProceed) {
            return Ok(());
        }
    }
    let question = before.unwrap_or_else(|| confirmation_form(&confirmation));
    let answer = cx.elicit(question).await?;
    match answer
        .content()
        .and_then(|content| content.get(CONFIRM_KEY)?.as_bool())
    {
        Some(true) => Ok(()),
        _ => Err(Failure::cancelled("the confirmation was declined")),
    }
}

fn confirmation_form(confirmation: &ConfirmationRequest<'_>) -> Elicitation {
    let ConfirmationRequest {
        description: what,
        reason: why,
        risk,
        key,
        ..
    } = confirmation;
    let because = match why {
        ConfirmReason::Confidence => {
            format!("The answer is not sure enough: {:.2} of 1.", 1.0 - risk)
        }
        ConfirmReason::Risk => {
            format!("It may change something that can't be undone: risk {risk:.2} of 1.")
        }
        ConfirmReason::Cost => "It may cost more than was set as the limit.".to_owned(),
    };
    // The person must see all of what they agree to: requests that always need confirmation have a
    // bounded size and are shown whole.
    let shown = if confirmation.always_asks {
        what
    } else {
        cut_chars(what, PLAN_SHOWN_CHARS_MAX)
    };
    let schema = json!({
        "type": "object",
        "properties": { CONFIRM_KEY: { "type": "boolean", "title": "Go on?" } },
        "required": [CONFIRM_KEY],
    });
    Elicitation::form(format!("{CONFIRM_FIRST_LINE}\n{shown}\n{because}"), schema).with_key(key)
}

/// Returns the risk of an action, 0 to 1; 0 for a missing tool or unknown agent.
pub(crate) fn action_risk(action: &Action, world: &RoutingContext) -> f32 {
    match action {
        Action::Local { tool, .. } if tool == EXECUTE_COMMAND => Risk::Acts.score(),
        // A missing tool fails without effect.
        Action::Local { tool, .. } => world.tool(tool).map_or(0.0, |tool| tool.risk.score()),
        Action::Remote { agent, .. } => {
            let may_destroy = |agent: &PeerAgentView| {
                agent.skills.iter().any(SkillView::is_destructive)
                    || !agent.is_up && agent.skills.is_empty()
            };
            if world.agent(agent).is_some_and(may_destroy) {
                RISK_DESTRUCTIVE
            } else {
                0.0
            }
        }
    }
}

/// Checks a text with the guardrail, on behalf of the principal of `cx`. Passes every text if there
/// is no guardrail.
///
/// # Errors
/// `Blocked`, without the text.
pub(crate) async fn check_guardrail(
    guard: Option<&AgentRef>,
    text: &str,
    origin: TextOrigin,
    cx: &Context,
) -> Result<(), Failure> {
    let Some(guard) = guard else { return Ok(()) };
    GuardrailPolicy::new(guard.clone())
        .check(&quote_raw(text), origin, cx.principal())
        .await
}

/// Returns an error message fit for deciders: on one line, at most [`ERROR_CHARS_MAX`] characters,
/// and replaced if the guardrail blocks it.
pub(crate) async fn screen_error(
    guard: Option<&AgentRef>,
    failure: &Failure,
    cx: &Context,
) -> String {
    let text = normalize(&failure.message)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    let text = cut_chars(&text, ERROR_CHARS_MAX).to_owned();
    match check_guardrail(guard, &text, TextOrigin::ToolResult, cx).await {
        Ok(()) if !text.is_empty() => text,
        Ok(()) => failure.kind.to_string(),
        Err(_) => BLOCKED_ERROR_TEXT.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::DESTRUCTIVE_TAG;

    /// Goal: an agent that never described its skills is as risky as a destructive one. Method: an
    /// agent up and down, without skills, with a harmless and with a destructive one; an unknown
    /// agent.
    #[test]
    fn agents_never_described_are_risky() {
        let tagged = |tag: &str| {
            vec![SkillView {
                id: "s".into(),
                tags: vec![tag.into()],
                ..SkillView::default()
            }]
        };
        for (is_up, skills, expected) in [
            (false, vec![], RISK_DESTRUCTIVE),
            (true, vec![], 0.0),
            (false, tagged("tame"), 0.0),
            (true, tagged(DESTRUCTIVE_TAG), RISK_DESTRUCTIVE),
        ] {
            let told = format!("{is_up} {skills:?}");
            let agents = vec![PeerAgentView {
                id: "a".into(),
                is_up,
                skills,
                ..PeerAgentView::default()
            }];
            let world = RoutingContext {
                agents,
                ..RoutingContext::default()
            };
            let risk = |agent: &str| {
                action_risk(
                    &Action::Remote {
                        agent: agent.into(),
                        text: "t".into(),
                    },
                    &world,
                )
            };
            assert!((risk("a") - expected).abs() < f32::EPSILON, "{told}");
            assert!(risk("b").abs() < f32::EPSILON, "{told}");
        }
    }
}
