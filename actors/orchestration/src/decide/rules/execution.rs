//! Rules for running steps: follow-up replies (DP1), recovery (NP3), synthesis (NP4) and
//! confirmation (NP5).

mod conflict;
#[cfg(test)]
mod tests;

use callboard_message::text::{fold, normalize, words};
use callboard_message::{RawObject, TaskState};

use crate::decide::{
    Action, Confirm, ConfirmReason, DecideConfirm, DecideFollowUp, DecideRecovery, DeciderReply,
    ErrorClass, FollowUp, Recovery, StepReport, Synthesis, Synthesize, TOOL_LLM,
};
use crate::tool_name::EXECUTE_COMMAND;

use conflict::{Conflict, find_conflicts};

/// Maximum attempts of the same action after a transient failure.
pub const RULES_ATTEMPTS_MAX: u32 = 3;
/// Confidence of a synthesis in which all steps have completed and their results agree.
const SYNTHESIS_CONFIDENCE: f32 = 0.85;
/// Factor for the confidence of a synthesis of conflicting results. The product lies below the
/// default confidence threshold, so that a person is asked.
const CONFLICT_FACTOR: f32 = 0.4;

/// DP1: decides whether the user's reply suffices as the answer to another agent's question.
pub(crate) fn decide_follow_up(asked: &DecideFollowUp) -> DeciderReply<FollowUp> {
    let said = normalize(&asked.message);
    match said.trim() {
        "" => DeciderReply::clear(
            FollowUp::NeedHumanInput { question: None },
            0.95,
            "the answer is empty",
        ),
        said if said.ends_with('?') => DeciderReply::clear(
            FollowUp::NeedHumanInput { question: None },
            0.7,
            "the answer is itself a question",
        ),
        _ => DeciderReply::clear(FollowUp::HandleDirectly, 0.8, "there is an answer"),
    }
}

/// NP3: decides the recovery strategy. `attempts` includes the failed attempt.
pub(crate) fn decide_recovery(asked: &DecideRecovery) -> DeciderReply<Recovery> {
    use ErrorClass::{AgentUnavailable, PermissionAuth, ToolSyntax, TransientNetwork, Unknown};
    let first = asked.attempts < 2;
    match asked.class {
        TransientNetwork if asked.attempts < RULES_ATTEMPTS_MAX => {
            DeciderReply::clear(Recovery::RetrySame, 0.8, "it may pass")
        }
        TransientNetwork => {
            use_other_agent(asked).unwrap_or_else(|| ask_person_or_abandon(asked, "it didn't pass"))
        }
        AgentUnavailable => use_other_agent(asked).unwrap_or_else(|| match first {
            true => DeciderReply::clear(Recovery::RetrySame, 0.5, "nobody else can do it"),
            false => ask_person_or_abandon(asked, "the agent stays away"),
        }),
        PermissionAuth => ask_person_or_abandon(asked, "it isn't allowed"),
        // A command runs exactly as requested or not at all: it is neither changed nor replaced.
        ToolSyntax if asked.action.target() == EXECUTE_COMMAND => {
            ask_person_or_abandon(asked, "a command isn't mended")
        }
        ToolSyntax => match corrected_params(asked).filter(|_| first) {
            Some(params) => DeciderReply::clear(
                Recovery::RetryModified { params },
                0.6,
                "the parameters can be mended",
            ),
            None => use_llm(asked)
                .unwrap_or_else(|| ask_person_or_abandon(asked, "the parameters don't fit")),
        },
        Unknown => {
            use_other_agent(asked).unwrap_or_else(|| abandon(asked, "nobody else can do it"))
        }
    }
}

/// Chooses the alternative agent whose id shares the most words with the task. An agent without a
/// shared word isn't known to fit: the answering tool is used instead.
fn use_other_agent(asked: &DecideRecovery) -> Option<DeciderReply<Recovery>> {
    let failed = asked.action.target();
    let wanted = match &asked.action {
        Action::Remote { agent, text } => fold(&format!("{agent} {text}")),
        Action::Local { tool, .. } => fold(&format!("{tool} {}", asked.root_goal)),
    };
    let shared = |id: &str| {
        words(&fold(id))
            .filter(|word| words(&wanted).any(|w| w == *word))
            .count()
    };
    let fits = |id: &&String| **id != failed && shared(id) > 0;
    let others = asked.agents.iter().filter(fits);
    // `max_by_key` returns the last maximum; the reversed order makes it the caller's first.
    let Some(which) = others.rev().max_by_key(|id| shared(id)) else {
        return use_llm(asked);
    };
    Some(DeciderReply::clear(
        Recovery::UseAlternative {
            which: which.clone(),
        },
        0.6,
        "another agent may do it",
    ))
}

fn use_llm(asked: &DecideRecovery) -> Option<DeciderReply<Recovery>> {
    let there =
        asked.action.target() != TOOL_LLM && asked.tools.iter().any(|tool| tool == TOOL_LLM);
    let which = || Recovery::UseAlternative {
        which: TOOL_LLM.to_owned(),
    };
    there.then(|| DeciderReply::clear(which(), 0.5, "it can be answered without"))
}

/// Asks a person if possible, else gives up.
fn ask_person_or_abandon(asked: &DecideRecovery, why: &str) -> DeciderReply<Recovery> {
    match asked.may_ask {
        true => {
            let message = format!(
                "{} failed: {}. How should I go on?",
                asked.action.target(),
                asked.error.trim_end_matches('.')
            );
            DeciderReply::clear(Recovery::AskHuman { message }, 0.7, why)
        }
        false => abandon(asked, why),
    }
}

fn abandon(asked: &DecideRecovery, why: &str) -> DeciderReply<Recovery> {
    DeciderReply::clear(
        Recovery::Abandon {
            reason: asked.error.clone(),
        },
        0.7,
        why,
    )
}

/// Corrects parameters according to the error message: parameters named as unknown are removed,
/// missing ones get the goal as their value.
fn corrected_params(asked: &DecideRecovery) -> Option<RawObject> {
    let Action::Local { params, .. } = &asked.action else {
        return None;
    };
    let mut mended = params.clone();
    let error = fold(&asked.error);
    let too_much = ["unknown", "unexpected", "additional", "not allowed"]
        .iter()
        .any(|word| error.contains(word));
    // Error messages quote names in backticks or quotation marks.
    for name in asked
        .error
        .split(['`', '"'])
        .skip(1)
        .step_by(2)
        .filter(|name| is_name(name))
    {
        match too_much && mended.has(name) {
            true => drop(mended.remove(name)),
            false if !too_much => mended.set(name, &asked.root_goal),
            false => {}
        }
    }
    (mended != *params).then_some(mended)
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 64
        && text
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-'))
}

/// NP4: combines the results into one answer: conflicts first, then the results in step order, then
/// the failed steps.
pub(crate) fn synthesize(asked: &Synthesize) -> DeciderReply<Synthesis> {
    let is_done = |report: &&StepReport| report.state == TaskState::Completed;
    let (done, failed): (Vec<&StepReport>, Vec<&StepReport>) =
        asked.results.iter().partition(is_done);
    let conflicts = find_conflicts(&done);
    let mut parts: Vec<String> = conflicts.iter().map(Conflict::describe).collect();
    parts.extend(
        done.iter()
            .map(|report| report.text.trim().to_owned())
            .filter(|text| !text.is_empty()),
    );
    if !failed.is_empty() {
        let each = failed
            .iter()
            .map(|report| format!("{} ({})", report.goal.trim(), failure_reason(report)));
        let each = each.collect::<Vec<_>>().join("; ");
        parts.push(format!(
            "{} of {} steps succeeded. Not done: {each}.",
            done.len(),
            asked.results.len()
        ));
    }
    let share = done.len() as f32 / asked.results.len().max(1) as f32;
    let confidence = SYNTHESIS_CONFIDENCE
        * share
        * if conflicts.is_empty() {
            1.0
        } else {
            CONFLICT_FACTOR
        };
    let ids = |reports: &[&StepReport]| {
        reports
            .iter()
            .map(|report| &*report.id)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let mut notes: Vec<String> = conflicts.iter().map(Conflict::describe_redacted).collect();
    if !failed.is_empty() {
        notes.push(format!("not done: {}", ids(&failed)));
    }
    let notes = (!notes.is_empty()).then(|| notes.join("; "));
    let why = if conflicts.is_empty() {
        "the results agree"
    } else {
        "results conflict"
    };
    DeciderReply::clear(
        Synthesis {
            final_answer: parts.join("\n\n"),
            confidence,
            notes,
        },
        confidence,
        why,
    )
}

fn failure_reason(report: &StepReport) -> String {
    match report.text.trim().trim_end_matches('.') {
        "" => report.state.to_string(),
        text => format!("{}: {text}", report.state),
    }
}

/// NP5: decides whether a person has to confirm.
pub(crate) fn decide_confirm(asked: &DecideConfirm, max_risk: f32) -> DeciderReply<Confirm> {
    match asked.why {
        ConfirmReason::Risk if asked.risk <= max_risk => {
            DeciderReply::clear(Confirm::SafeToProceed, 0.8, "the risk is small")
        }
        ConfirmReason::Risk => {
            DeciderReply::clear(Confirm::ConfirmNeeded, 0.9, "it changes something outside")
        }
        ConfirmReason::Cost if asked.preference_known => {
            DeciderReply::clear(Confirm::SafeToProceed, 0.6, "the person wants it so")
        }
        ConfirmReason::Cost => {
            DeciderReply::clear(Confirm::ConfirmNeeded, 0.9, "it costs more than was meant")
        }
        ConfirmReason::Confidence => {
            DeciderReply::clear(Confirm::ConfirmNeeded, 0.9, "the answer isn't sure enough")
        }
    }
}
