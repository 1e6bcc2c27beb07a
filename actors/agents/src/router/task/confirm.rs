//! NP5: what may do harm, is not sure or is dear is confirmed by a person first.

use callboard_message::{Elicitation, Failure};
use callboard_runtime::Cx;
use serde_json::{Value, json};

use super::TOOL_COMMAND;
use crate::decide::limits::cut_chars;
use crate::decide::{Action, AgentView, Confirm, ConfirmWhy, DecideConfirm, Deciders, Risk, RunId, SkillView, World};
use crate::orchestrator::task::Asked;

/// The first line of the question.
pub(crate) const CONFIRM_FIRST_LINE: &str = "⚠️ Planned action needs your confirmation…";
/// The key of the question, and the member of its answer.
pub(crate) const CONFIRM: &str = "confirm";
/// How risky it is to ask an agent one of whose skills says that it destroys, or one that never said what it does.
const RISK_DESTRUCTIVE: f32 = 0.8;
/// The tag that says so; a tool's own hints say the same.
pub(crate) const TAG_DESTRUCTIVE: &str = "destructive";
/// Longest account of what is planned, in characters: a person reads it.
const SHOWN_CHARS_MAX: usize = 1_000;

/// Something that may have to be confirmed.
pub(crate) struct Doubt<'a> {
    /// What is planned, in words.
    pub what: String,
    /// The same, for a decider.
    pub action: Value,
    pub why: ConfirmWhy,
    /// 0 to 1.
    pub risk: f32,
    /// Whether a person has to be asked, whatever is decided.
    pub always: bool,
    /// What the question is asked under.
    pub key: &'a str,
}

/// Has it confirmed, where that is needed. What was asked before the process ended is asked again as it was.
///
/// # Errors
/// [`FailureKind::Cancelled`] where the person doesn't want it, [`FailureKind::NobodyToAsk`] where there is nobody.
pub(crate) async fn confirm(
    deciders: &Deciders,
    cx: &Cx,
    run: &RunId,
    asked: &Asked,
    doubt: Doubt<'_>,
) -> Result<(), Failure> {
    let before = asked.before(doubt.key).await?;
    if before.is_none() && !doubt.always && is_safe(deciders, cx, run, &doubt).await {
        return Ok(());
    }
    let question = before.unwrap_or_else(|| question(&doubt));
    let answer = cx.elicit(question).await?;
    match answer.content().and_then(|content| content.get(CONFIRM)?.as_bool()) {
        Some(true) => Ok(()),
        _ => Err(Failure::cancelled("not confirmed")),
    }
}

async fn is_safe(deciders: &Deciders, cx: &Cx, run: &RunId, doubt: &Doubt<'_>) -> bool {
    let Doubt { action, why, risk, .. } = doubt;
    let message = DecideConfirm { action: action.clone(), why: *why, risk: *risk, preference_known: false };
    deciders.decide(cx, run, message).await.outcome == Some(Confirm::SafeToProceed)
}

fn question(doubt: &Doubt<'_>) -> Elicitation {
    let Doubt { what, why, risk, key, .. } = doubt;
    let because = match why {
        ConfirmWhy::Confidence => format!("The answer is not sure enough: {:.2} of 1.", 1.0 - risk),
        ConfirmWhy::Risk => format!("It may change something that can't be undone: risk {risk:.2} of 1."),
        ConfirmWhy::Cost => "It may cost more than was set as the limit.".to_owned(),
    };
    // Nobody agrees to what they weren't shown: what always needs a person is bounded by what it may be, and shown whole.
    let shown = if doubt.always { what } else { cut_chars(what, SHOWN_CHARS_MAX) };
    let schema = json!({
        "type": "object",
        "properties": { CONFIRM: { "type": "boolean", "title": "Go on?" } },
        "required": [CONFIRM],
    });
    Elicitation::form(format!("{CONFIRM_FIRST_LINE}\n{shown}\n{because}"), schema).key(key)
}

/// Whether a skill says that it may destroy something.
pub(crate) fn is_destructive(skill: &SkillView) -> bool {
    skill.tags.iter().any(|tag| tag.eq_ignore_ascii_case(TAG_DESTRUCTIVE))
}

/// How risky an action is, 0 to 1.
pub(crate) fn risk_of(action: &Action, world: &World) -> f32 {
    match action {
        Action::Local { tool, .. } if tool == TOOL_COMMAND => Risk::Acts.score(),
        // What isn't there does nothing.
        Action::Local { tool, .. } => world.tool(tool).map_or(0.0, |tool| tool.risk.score()),
        Action::Remote { agent, .. } => {
            let may_destroy =
                |agent: &AgentView| agent.skills.iter().any(is_destructive) || !agent.is_up && agent.skills.is_empty();
            if world.agent(agent).is_some_and(may_destroy) { RISK_DESTRUCTIVE } else { 0.0 }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an agent that never said what it does is as risky as one that destroys. Method: an agent up and down, with no
    /// skill, a harmless one and one that destroys; one that isn't there.
    #[test]
    fn agents_never_described_are_risky() {
        let tagged = |tag: &str| vec![SkillView { id: "s".into(), tags: vec![tag.into()], ..SkillView::default() }];
        for (is_up, skills, expected) in [
            (false, vec![], RISK_DESTRUCTIVE),
            (true, vec![], 0.0),
            (false, tagged("tame"), 0.0),
            (true, tagged(TAG_DESTRUCTIVE), RISK_DESTRUCTIVE),
        ] {
            let told = format!("{is_up} {skills:?}");
            let agents = vec![AgentView { id: "a".into(), is_up, skills, ..AgentView::default() }];
            let world = World { agents, ..World::default() };
            let risk = |agent: &str| risk_of(&Action::Remote { agent: agent.into(), text: "t".into() }, &world);
            assert!((risk("a") - expected).abs() < f32::EPSILON, "{told}");
            assert!(risk("b").abs() < f32::EPSILON, "{told}");
        }
    }
}
