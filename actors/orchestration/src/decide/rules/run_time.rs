//! What the rules decide while steps run: whether an answer will do, what follows a failure, what the results say together,
//! and whether a person is asked first.

mod conflict;
#[cfg(test)]
mod tests;

use callboard_message::text::{fold, plain, words};
use callboard_message::{RawObject, TaskState};

use crate::decide::{
    Action, Confirm, ConfirmWhy, DecideConfirm, DecideFollowUp, DecideRecovery, Decided,
    ErrorClass, FollowUp, Recovery, StepReport, Synthesis, Synthesize, TOOL_LLM,
};
use crate::tool_name::EXECUTE_COMMAND;

use conflict::{Conflict, conflicts};

/// How often the same is tried in all after what passes by itself.
pub const RULES_TRIES_MAX: u32 = 3;
/// How sure a synthesis is whose steps are all done and agree.
const SYNTHESIS_CONFIDENCE: f32 = 0.85;
/// How much of that is left where results conflict: below the confidence at which a person is asked.
const CONFLICT_FACTOR: f32 = 0.4;

/// DP1: whether a remote agent can go on with what a person answered to its question.
pub(crate) fn follow_up(asked: &DecideFollowUp) -> Decided<FollowUp> {
    let said = plain(&asked.message);
    match said.trim() {
        "" => Decided::sure(
            FollowUp::NeedHumanInput { question: None },
            0.95,
            "the answer is empty",
        ),
        said if said.ends_with('?') => Decided::sure(
            FollowUp::NeedHumanInput { question: None },
            0.7,
            "the answer is itself a question",
        ),
        _ => Decided::sure(FollowUp::HandleDirectly, 0.8, "there is an answer"),
    }
}

/// NP3: what follows a failed attempt. `attempts` counts those so far, the failed one included.
pub(crate) fn recovery(asked: &DecideRecovery) -> Decided<Recovery> {
    use ErrorClass::{AgentUnavailable, PermissionAuth, ToolSyntax, TransientNetwork, Unknown};
    let first = asked.attempts < 2;
    match asked.class {
        TransientNetwork if asked.attempts < RULES_TRIES_MAX => {
            Decided::sure(Recovery::RetrySame, 0.8, "it may pass")
        }
        TransientNetwork => {
            elsewhere(asked).unwrap_or_else(|| last_resort(asked, "it didn't pass"))
        }
        AgentUnavailable => elsewhere(asked).unwrap_or_else(|| match first {
            true => Decided::sure(Recovery::RetrySame, 0.5, "nobody else can do it"),
            false => last_resort(asked, "the agent stays away"),
        }),
        PermissionAuth => last_resort(asked, "it isn't allowed"),
        // What is run is what was asked for, or nothing: no other words are put into it, and none in its place.
        ToolSyntax if asked.action.target() == EXECUTE_COMMAND => {
            last_resort(asked, "a command isn't mended")
        }
        ToolSyntax => match mended(asked).filter(|_| first) {
            Some(params) => Decided::sure(
                Recovery::RetryModified { params },
                0.6,
                "the parameters can be mended",
            ),
            None => llm(asked).unwrap_or_else(|| last_resort(asked, "the parameters don't fit")),
        },
        Unknown => elsewhere(asked).unwrap_or_else(|| give_up(asked, "nobody else can do it")),
    }
}

/// Another agent, the one first whose name has most words of what is to be done, else the tool that answers in its own words.
fn elsewhere(asked: &DecideRecovery) -> Option<Decided<Recovery>> {
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
    let others = asked.agents.iter().filter(|id| **id != failed);
    // The first of those that match equally: the caller gives them in its own order.
    let Some(which) = others.rev().max_by_key(|id| shared(id)) else {
        return llm(asked);
    };
    Some(Decided::sure(
        Recovery::UseAlternative {
            which: which.clone(),
        },
        0.6,
        "another agent may do it",
    ))
}

fn llm(asked: &DecideRecovery) -> Option<Decided<Recovery>> {
    let there =
        asked.action.target() != TOOL_LLM && asked.tools.iter().any(|tool| tool == TOOL_LLM);
    let which = || Recovery::UseAlternative {
        which: TOOL_LLM.to_owned(),
    };
    there.then(|| Decided::sure(which(), 0.5, "it can be answered without"))
}

/// A person, where one can be asked.
fn last_resort(asked: &DecideRecovery, why: &str) -> Decided<Recovery> {
    match asked.may_ask {
        true => {
            let message = format!(
                "{} failed: {}. How should I go on?",
                asked.action.target(),
                asked.error.trim_end_matches('.')
            );
            Decided::sure(Recovery::AskHuman { message }, 0.7, why)
        }
        false => give_up(asked, why),
    }
}

fn give_up(asked: &DecideRecovery, why: &str) -> Decided<Recovery> {
    Decided::sure(
        Recovery::Abandon {
            reason: asked.error.clone(),
        },
        0.7,
        why,
    )
}

/// The parameters as the error wants them: what it calls unknown is left out, what it misses by name gets the goal.
fn mended(asked: &DecideRecovery) -> Option<RawObject> {
    let Action::Local { params, .. } = &asked.action else {
        return None;
    };
    let mut mended = params.clone();
    let error = fold(&asked.error);
    let too_much = ["unknown", "unexpected", "additional", "not allowed"]
        .iter()
        .any(|word| error.contains(word));
    // Names stand between backticks or quotes.
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

/// NP4: the results as one answer: conflicts first, then each result in the order of the steps, then what isn't done.
pub(crate) fn synthesis(asked: &Synthesize) -> Decided<Synthesis> {
    let is_done = |report: &&StepReport| report.state == TaskState::Completed;
    let (done, failed): (Vec<&StepReport>, Vec<&StepReport>) =
        asked.results.iter().partition(is_done);
    let conflicts = conflicts(&done);
    let mut parts: Vec<String> = conflicts.iter().map(Conflict::sentence).collect();
    parts.extend(
        done.iter()
            .map(|report| report.text.trim().to_owned())
            .filter(|text| !text.is_empty()),
    );
    if !failed.is_empty() {
        let each = failed
            .iter()
            .map(|report| format!("{} ({})", report.goal.trim(), reason(report)));
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
    let mut notes: Vec<String> = conflicts.iter().map(Conflict::note).collect();
    if !failed.is_empty() {
        notes.push(format!("not done: {}", ids(&failed)));
    }
    let notes = (!notes.is_empty()).then(|| notes.join("; "));
    let why = if conflicts.is_empty() {
        "the results agree"
    } else {
        "results conflict"
    };
    Decided::sure(
        Synthesis {
            final_answer: parts.join("\n\n"),
            confidence,
            notes,
        },
        confidence,
        why,
    )
}

fn reason(report: &StepReport) -> String {
    match report.text.trim().trim_end_matches('.') {
        "" => report.state.to_string(),
        text => format!("{}: {text}", report.state),
    }
}

/// NP5: whether a person is asked before it goes on.
pub(crate) fn confirm(asked: &DecideConfirm, max_risk: f32) -> Decided<Confirm> {
    match asked.why {
        ConfirmWhy::Risk if asked.risk <= max_risk => {
            Decided::sure(Confirm::SafeToProceed, 0.8, "the risk is small")
        }
        ConfirmWhy::Risk => {
            Decided::sure(Confirm::ConfirmNeeded, 0.9, "it changes something outside")
        }
        ConfirmWhy::Cost if asked.preference_known => {
            Decided::sure(Confirm::SafeToProceed, 0.6, "the person wants it so")
        }
        ConfirmWhy::Cost => {
            Decided::sure(Confirm::ConfirmNeeded, 0.9, "it costs more than was meant")
        }
        ConfirmWhy::Confidence => {
            Decided::sure(Confirm::ConfirmNeeded, 0.9, "the answer isn't sure enough")
        }
    }
}
