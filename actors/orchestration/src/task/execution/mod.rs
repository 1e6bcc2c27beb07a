//! Does what was decided: a tool of ours is used, another agent asked, and errors are recovered from (NP3).

mod attempt;
mod recover;

use callboard_guardrail::{Guard, Origin};
use callboard_message::json::quoted;
use callboard_message::text::{cut_bytes, cut_chars, plain};
use callboard_message::{Elicitation, Failure, ToolResult};
use callboard_runtime::{AgentRef, Cx};
use serde_json::{Value, json};

use crate::decide::limits::ERROR_CHARS_MAX;
use crate::decide::{
    Action, AgentView, Confirm, ConfirmWhy, DecideConfirm, Deciders, Risk, RunId, SkillView, Turn,
    World,
};
use crate::task::{Asked, TaskOptions};
use crate::tool_name::EXECUTE_COMMAND;

/// Maximum attempts of one step, in all.
pub const TRIES_MAX: u32 = 4;
/// Maximum reroutes of one step to another tool or agent.
pub const REROUTES_MAX: u32 = 2;
/// Maximum questions to a person about the errors of one step.
pub const ASKS_MAX: u32 = 1;
/// The first line of the question.
pub(crate) const CONFIRM_FIRST_LINE: &str = "⚠️ Planned action needs your confirmation…";
/// The key of the question, and the member of its answer.
pub(crate) const CONFIRM: &str = "confirm";
/// Risk of asking an agent with a destructive skill, or one that never said what it does.
const RISK_DESTRUCTIVE: f32 = 0.8;
/// Longest account of what is planned, in characters: a person reads it.
const SHOWN_CHARS_MAX: usize = 1_000;
/// Text in place of an error that the guardrail stopped.
const STOPPED: &str = "the error isn't shown: the guardrail stopped it";

/// One thing to do, and what it takes to do it.
pub(crate) struct Errand<'a> {
    /// Options of the orchestrator.
    pub options: &'a TaskOptions,
    /// The call that it belongs to.
    pub cx: &'a Cx,
    /// Earlier questions, if it is done once more.
    pub asked: &'a Asked,
    /// The run that it belongs to.
    pub run: &'a RunId,
    /// Names it among what the run does.
    pub step: &'a str,
    /// Goal of the run.
    pub goal: &'a str,
    /// Task in words.
    pub text: &'a str,
    /// The conversation that the run belongs to; empty where it is in none.
    pub context: &'a str,
    /// History of that conversation.
    pub history: &'a [Turn],
    /// Tools and agents that could do it.
    pub world: &'a World,
    /// Whether errors are recovered from.
    pub recovers: bool,
}

/// It is done.
pub(crate) struct Done {
    /// By whom: a tool's name or an agent's id.
    pub by: String,
    pub result: ToolResult,
    /// How often it was tried.
    pub attempts: u32,
}

/// Text of a result, as others get to see it.
pub(crate) fn text_of(result: &ToolResult, bytes_max: usize) -> String {
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

impl Errand<'_> {
    /// Does it. What fails is tried again, by others or otherwise, as far as there is any use in it.
    ///
    /// # Errors
    /// What the last of them failed with, or why it was given up.
    pub(crate) async fn run(&self, action: Action) -> Result<Done, Failure> {
        recover::Trying::new(self, action).run().await
    }
}

/// Something that may have to be confirmed.
pub(crate) struct Doubt<'a> {
    /// Plan in words.
    pub what: String,
    /// The same, for a decider.
    pub action: Value,
    pub why: ConfirmWhy,
    /// 0 to 1.
    pub risk: f32,
    /// Whether a person has to be asked, whatever is decided.
    pub always: bool,
    /// Key of the question.
    pub key: &'a str,
}

/// Has it confirmed, where that is needed. What was asked before the process ended is asked again as it was.
///
/// # Errors
/// `Cancelled` where the person doesn't want it, `NobodyToAsk` where there is nobody.
pub(crate) async fn confirm(
    deciders: &Deciders,
    cx: &Cx,
    run: &RunId,
    asked: &Asked,
    doubt: Doubt<'_>,
) -> Result<(), Failure> {
    let before = asked.before(doubt.key).await?;
    if before.is_none() && !doubt.always {
        let Doubt {
            action, why, risk, ..
        } = &doubt;
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
    let question = before.unwrap_or_else(|| question(&doubt));
    let answer = cx.elicit(question).await?;
    match answer
        .content()
        .and_then(|content| content.get(CONFIRM)?.as_bool())
    {
        Some(true) => Ok(()),
        _ => Err(Failure::cancelled("not confirmed")),
    }
}

fn question(doubt: &Doubt<'_>) -> Elicitation {
    let Doubt {
        what,
        why,
        risk,
        key,
        ..
    } = doubt;
    let because = match why {
        ConfirmWhy::Confidence => format!("The answer is not sure enough: {:.2} of 1.", 1.0 - risk),
        ConfirmWhy::Risk => {
            format!("It may change something that can't be undone: risk {risk:.2} of 1.")
        }
        ConfirmWhy::Cost => "It may cost more than was set as the limit.".to_owned(),
    };
    // Nobody agrees to what they weren't shown: what always needs a person is bounded by what it may be, and shown whole.
    let shown = if doubt.always {
        what
    } else {
        cut_chars(what, SHOWN_CHARS_MAX)
    };
    let schema = json!({
        "type": "object",
        "properties": { CONFIRM: { "type": "boolean", "title": "Go on?" } },
        "required": [CONFIRM],
    });
    Elicitation::form(format!("{CONFIRM_FIRST_LINE}\n{shown}\n{because}"), schema).key(key)
}

/// Risk of an action, 0 to 1.
pub(crate) fn risk_of(action: &Action, world: &World) -> f32 {
    match action {
        Action::Local { tool, .. } if tool == EXECUTE_COMMAND => Risk::Acts.score(),
        // What isn't there does nothing.
        Action::Local { tool, .. } => world.tool(tool).map_or(0.0, |tool| tool.risk.score()),
        Action::Remote { agent, .. } => {
            let may_destroy = |agent: &AgentView| {
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

/// Lets a text pass.
///
/// # Errors
/// `Blocked`, without the text.
pub(crate) async fn passes(
    guard: Option<&AgentRef>,
    text: &str,
    origin: Origin,
) -> Result<(), Failure> {
    let Some(guard) = guard else { return Ok(()) };
    Guard::new(guard.clone()).pass(&quoted(text), origin).await
}

/// An error as a decider may see it: one line, [`ERROR_CHARS_MAX`] characters.
pub(crate) async fn screened(guard: Option<&AgentRef>, failure: &Failure) -> String {
    let text = plain(&failure.message)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    let text = cut_chars(&text, ERROR_CHARS_MAX).to_owned();
    match passes(guard, &text, Origin::ToolResult).await {
        Ok(()) if !text.is_empty() => text,
        Ok(()) => failure.kind.to_string(),
        Err(_) => STOPPED.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::TAG_DESTRUCTIVE;

    /// Goal: an agent that never said what it does is as risky as one that destroys. Method: an agent up and down, with no
    /// skill, a harmless one and one that destroys; one that isn't there.
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
            (true, tagged(TAG_DESTRUCTIVE), RISK_DESTRUCTIVE),
        ] {
            let told = format!("{is_up} {skills:?}");
            let agents = vec![AgentView {
                id: "a".into(),
                is_up,
                skills,
                ..AgentView::default()
            }];
            let world = World {
                agents,
                ..World::default()
            };
            let risk = |agent: &str| {
                risk_of(
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
