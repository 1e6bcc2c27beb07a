//! Partial success is told: whatever didn't complete is named in the answer.

use callboard_message::TaskState;

use crate::decide::{StepReport, Synthesis};
use crate::text::fold;

/// What a sentence says in which something fails, folded.
const FAILS: &str = "not done, not succe, not avail, could not, couldn't, cannot, can't, did not, didn't, unable, unavailable, \
    fail, error, missing, reject, refus, cancel, timed out, falh, nao foi possivel";

/// Names in the answer whatever didn't complete, unless the answer says so itself.
pub(super) fn name(answer: &mut Synthesis, reports: &[StepReport]) {
    let said = fold(&answer.final_answer).replace('’', "'");
    let is_missing = |report: &&StepReport| report.state != TaskState::Completed && !is_told(&said, report);
    let missing: Vec<String> =
        reports.iter().filter(is_missing).map(|report| format!("{} ({})", report.id, report.state)).collect();
    if !missing.is_empty() {
        answer.final_answer.push_str(&format!("\n\nNot everything succeeded: {}.", missing.join(", ")));
    }
}

/// Whether a sentence names the step, and says that something failed: an answer that names what it was about may say it all.
fn is_told(said: &str, report: &StepReport) -> bool {
    let StepReport { id, by, goal, .. } = report;
    let is_end = |c: char| matches!(c, '.' | '!' | '?' | '\n');
    let is_in = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    [id, by, goal].into_iter().map(|name| fold(name)).filter(|name| !name.trim().is_empty()).any(|name| {
        said.match_indices(&*name).any(|(at, _)| {
            let (before, after) = (&said[..at], &said[at + name.len()..]);
            if is_in(before.chars().next_back()) || is_in(after.chars().next()) {
                return false;
            }
            let begin = before.rfind(is_end).map_or(before, |end| &before[end..]);
            let rest = after.find(is_end).map_or(after, |end| &after[..end]);
            FAILS.split(", ").any(|fails| begin.contains(fails) || rest.contains(fails))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what failed is told, by the answer or behind it. Method: answers about a step `weather` that failed: silent, only about
    /// the subject, in so many words, by the agent, and about another step.
    #[test]
    fn told_once() {
        let report = StepReport {
            id: "weather".into(),
            goal: "What is the weather in Paris?".into(),
            by: "meteo".into(),
            state: TaskState::Failed,
            text: "away".into(),
            attempts: 3,
        };
        for (answer, is_added) in [
            ("The hotel is booked.", true),
            ("The weather in Paris is lovely; the hotel is booked.", true),
            ("The weathercock failed.", true),
            ("The weather is fine. The train could not be found.", true),
            ("The hotel is booked. I couldn’t look up the weather.", false),
            ("Meteo is unavailable.", false),
            ("1 of 2 steps succeeded. Not done: What is the weather in Paris? (failed: away).", false),
        ] {
            let mut synthesis = Synthesis { final_answer: answer.into(), confidence: 0.9, notes: None };
            name(&mut synthesis, std::slice::from_ref(&report));
            let added = synthesis.final_answer.strip_prefix(answer).unwrap();
            let expect = if is_added { "\n\nNot everything succeeded: weather (failed)." } else { "" };
            assert_eq!(added, expect, "{answer}");
        }
    }
}
