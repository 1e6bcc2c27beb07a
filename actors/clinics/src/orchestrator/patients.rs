//! Patients that the steps of a question found: those to leave out, those for whom a step is repeated,
//! and their numbers.

use std::collections::HashSet;

use callboard_message::text::fold;
use serde_json::{Value, json};

use crate::plan::{Counting, PATIENTS_EACH_MAX, ReplyOptions, Step};
use crate::router::{CODE_BLOCKED, CODE_INVALID_PARAMS, CODE_UNAVAILABLE, StepError, StepOutcome};
use crate::verifier::Rule;

/// Digits of a patient's id that are tried if the clinic has none with fewer.
const ID_DIGITS: usize = 3;

/// Steps of a question with an outcome each, in the same order.
#[derive(Debug, Default)]
pub(super) struct StepsRun {
    pub steps: Vec<Step>,
    pub outcomes: Vec<StepOutcome>,
}

/// Step to run for one patient, or the outcome of one that can't be.
pub(super) enum RepeatedStep {
    Run(Step),
    Failed(Step, StepError),
}

/// Field of a list or search answer with its rows.
fn row_field(outcome: &StepOutcome) -> &'static str {
    if outcome.action == "query" {
        "matches"
    } else {
        "patients"
    }
}

/// Returns the rows of a list or search; none if the step failed.
fn rows(outcome: &StepOutcome) -> &[Value] {
    let result = outcome.result.as_ref();
    let rows = result.and_then(|result| result.get(row_field(outcome))?.as_array());
    rows.map_or(&[], Vec::as_slice)
}

fn patient_ids(outcome: &StepOutcome) -> impl Iterator<Item = &str> {
    rows(outcome)
        .iter()
        .filter_map(|row| row.get("patient_id")?.as_str())
}

fn is_truncated(outcome: &StepOutcome) -> bool {
    let result = outcome.result.as_ref();
    result.is_some_and(|result| result.get("truncated") == Some(&Value::Bool(true)))
}

impl StepsRun {
    fn outcome_of(&self, step_id: u32) -> Option<&StepOutcome> {
        self.outcomes
            .iter()
            .find(|outcome| outcome.step_id == step_id)
    }

    /// Returns the index of the step whose answer is longest as JSON; `None` without an answer.
    pub fn longest_answer(&self) -> Option<usize> {
        let answers = self.outcomes.iter().enumerate();
        let sized = answers.filter_map(|(at, o)| Some((o.result.as_ref()?.to_string().len(), at)));
        sized.max().map(|(_, at)| at)
    }

    /// Replaces what a clinic said to a step by a sentence that names the broken rule.
    pub fn withhold(&mut self, at: usize, rule: Option<Rule>) {
        let reason = match rule {
            Some(rule) => format!("the verifier withheld its answer ({rule:?})"),
            None => "the verifier could not check its answer".to_owned(),
        };
        let outcome = &mut self.outcomes[at];
        outcome.result = None;
        outcome.error = Some(StepError::new(CODE_BLOCKED, reason));
    }

    /// Returns whether a step only finds patients that another leaves out.
    fn is_helper(&self, step_id: u32) -> bool {
        self.steps.iter().any(|step| step.except.contains(&step_id))
    }

    /// Removes the patients that each step leaves out from its rows. A step fails if those aren't all
    /// known. Of the steps that found them only their number stays.
    pub fn leave_out(&mut self) {
        for at in 0..self.steps.len() {
            let step = &self.steps[at];
            if step.except.is_empty() {
                continue;
            }
            let mut ids = HashSet::new();
            let mut failed = None;
            for of in &step.except {
                match self.outcome_of(*of) {
                    Some(found) if found.result.is_some() && !is_truncated(found) => {
                        ids.extend(patient_ids(found).map(fold));
                    }
                    _ => failed = Some(*of),
                }
            }
            let outcome = &mut self.outcomes[at];
            let field = row_field(outcome);
            if let Some(of) = failed {
                let message = format!(
                    "{} did not tell all patients of step {of}, which are to be left out",
                    step.clinic
                );
                outcome.result = None;
                outcome
                    .error
                    .get_or_insert(StepError::new(CODE_UNAVAILABLE, message));
            } else if let Some(Value::Array(rows)) = outcome
                .result
                .as_mut()
                .and_then(|result| result.get_mut(field))
            {
                let is_kept = |row: &Value| {
                    let id = row.get("patient_id").and_then(Value::as_str);
                    id.is_some_and(|id| !ids.contains(&fold(id)))
                };
                rows.retain(is_kept);
            }
        }
        for at in 0..self.steps.len() {
            if self.is_helper(self.steps[at].step_id) && self.outcomes[at].result.is_some() {
                let found = rows(&self.outcomes[at]).len();
                let field = row_field(&self.outcomes[at]);
                // What the clinic says of its own search stays: the verifier takes its words for known.
                if let Some(Value::Object(result)) = &mut self.outcomes[at].result {
                    result.remove(field);
                    result.insert("left_out".to_owned(), json!(found));
                }
            }
        }
    }

    /// Returns the steps that `planned` repeats for each patient, with ids and numbers after the last
    /// one. At most [`PATIENTS_EACH_MAX`] are to be run.
    pub fn repeated_steps(&self, planned: &[Step]) -> Vec<RepeatedStep> {
        let mut step_id = self
            .steps
            .iter()
            .map(|step| step.step_id)
            .max()
            .unwrap_or(0);
        let mut number = || {
            step_id = step_id.saturating_add(1);
            step_id
        };
        let (mut repeated, mut total) = (Vec::new(), 0);
        for (step, of) in planned
            .iter()
            .filter_map(|step| Some((step, step.for_each?)))
        {
            let source = self.outcome_of(of);
            let ids: Vec<&str> = source.into_iter().flat_map(patient_ids).collect();
            let error = match source {
                Some(source) if source.result.is_some() => {
                    let found = total + ids.len();
                    let too_many = found > PATIENTS_EACH_MAX || is_truncated(source);
                    too_many.then(|| {
                        let message = format!(
                            "{} was not asked for each of {} patients: the limit is {PATIENTS_EACH_MAX} a question. \
                             Ask for one clinic or condition",
                            step.clinic,
                            ids.len()
                        );
                        StepError::new(CODE_INVALID_PARAMS, message)
                    })
                }
                _ => {
                    let message = format!("step {of}, which it depends on, failed");
                    Some(StepError::new(CODE_UNAVAILABLE, message))
                }
            };
            if let Some(error) = error {
                let failed = Step {
                    step_id: number(),
                    ..step.clone()
                };
                repeated.push(RepeatedStep::Failed(failed, error));
                continue;
            }
            total += ids.len();
            let for_patient = |id: &str| {
                RepeatedStep::Run(Step::new(
                    number(),
                    &step.clinic,
                    &step.action,
                    Some(("patient_id", id)),
                ))
            };
            repeated.extend(ids.into_iter().map(for_patient));
        }
        repeated
    }

    /// Returns the steps about patients whom their clinic doesn't have, with the ids filled up with zeros
    /// to [`ID_DIGITS`] digits: `CARD-7` may be `CARD-007`. Each comes with its index.
    pub fn padded_steps(&self) -> Vec<(usize, Step)> {
        let padded = |(at, step): (usize, &Step)| {
            let not_found = self.outcomes.get(at)?.error.as_ref()?.not_found;
            let id = step.parameters.get("patient_id")?.as_str()?;
            let (prefix, digits) = id.rsplit_once('-')?;
            let is_short = digits.len() < ID_DIGITS && digits.bytes().all(|b| b.is_ascii_digit());
            (not_found && is_short).then(|| {
                let id = format!("{prefix}-{digits:0>ID_DIGITS$}");
                let step = Step::new(
                    step.step_id,
                    &step.clinic,
                    &step.action,
                    Some(("patient_id", &id)),
                );
                (at, step)
            })
        };
        self.steps.iter().enumerate().filter_map(padded).collect()
    }

    /// Returns the steps that list or search patients to be shown, with their outcomes.
    fn searches(&self) -> impl Iterator<Item = (&Step, &StepOutcome)> {
        let pairs = self.steps.iter().zip(&self.outcomes);
        pairs.filter(|(step, _)| step.finds_patients() && !self.is_helper(step.step_id))
    }

    /// Returns whether every step was answered, all of them search for patients, and none was found.
    pub fn is_nobody(&self) -> bool {
        let only_searches = self.steps.iter().all(Step::finds_patients);
        let all_answered = self.outcomes.iter().all(|outcome| outcome.result.is_some());
        only_searches && all_answered && self.searches().all(|(_, found)| rows(found).is_empty())
    }

    /// Returns the sentences about the numbers of patients that `reply` asks for, and that nobody was
    /// found. `specialty` is that of a clinic's id.
    pub fn summary<'a>(
        &self,
        reply: &ReplyOptions,
        specialty: impl Fn(&str) -> &'a str,
    ) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(counting) = reply.counting {
            lines.extend(self.numbers(counting, specialty));
        }
        if self.is_nobody() {
            lines.push("No patient was found.".to_owned());
        }
        lines
    }

    fn numbers<'a>(&self, counting: Counting, specialty: impl Fn(&str) -> &'a str) -> Vec<String> {
        // Label, number, and whether there are more or an unknown number beside.
        let mut numbers: Vec<(String, usize, bool)> = Vec::new();
        for (step, outcome) in self.searches() {
            let text = step.parameters.get("query").and_then(Value::as_str);
            let label = text.unwrap_or_else(|| specialty(&step.clinic)).to_owned();
            let open = outcome.result.is_none() || is_truncated(outcome);
            let found = rows(outcome).len();
            match numbers.iter_mut().find(|(other, ..)| *other == label) {
                Some((_, number, is_open)) => {
                    *number += found;
                    *is_open |= open;
                }
                None => numbers.push((label, found, open)),
            }
        }
        let line = |(label, number, open): &(String, usize, bool)| {
            let least = if *open { "at least " } else { "" };
            let patients = if *number == 1 { "patient" } else { "patients" };
            format!("{least}{number} {patients}: \"{label}\"")
        };
        let mut lines: Vec<String> = numbers.iter().map(line).collect();
        let largest = numbers.iter().map(|(_, number, _)| *number).max();
        let compares = counting == Counting::Compare && numbers.len() > 1;
        if compares && let Some(largest) = largest {
            let of_largest: Vec<&(String, usize, bool)> = numbers
                .iter()
                .filter(|(_, number, _)| *number == largest)
                .collect();
            lines.push(match &of_largest[..] {
                _ if numbers.iter().any(|(_, _, open)| *open) => {
                    "They can't be compared: a number is incomplete.".to_owned()
                }
                [(label, ..)] => format!("Most patients: \"{label}\"."),
                _ => "The largest numbers are equal.".to_owned(),
            });
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(step: Step, ids: &[&str], truncated: bool) -> (Step, StepOutcome) {
        let rows: Vec<Value> = ids
            .iter()
            .map(|id| json!({ "patient_id": id, "condition": "x" }))
            .collect();
        let field = if step.action == "query" {
            "matches"
        } else {
            "patients"
        };
        let mut result = json!({ field: rows });
        if truncated {
            result["truncated"] = true.into();
        }
        let outcome = StepOutcome::of(step.clone(), Ok(result), 1);
        (step, outcome)
    }

    fn run(pairs: Vec<(Step, StepOutcome)>) -> StepsRun {
        let (steps, outcomes) = pairs.into_iter().unzip();
        StepsRun { steps, outcomes }
    }

    fn list(id: u32) -> Step {
        Step::new(id, "clinic_a", "list_patients", None)
    }

    fn query(id: u32, text: &str) -> Step {
        Step::new(id, "clinic_a", "query", Some(("query", text)))
    }

    /// Goal: patients of the named steps are left out, apart from case, and those steps only keep their
    /// number; without all of them, the step fails. Method: one search left out of a list; the search
    /// truncated; the search failed.
    #[test]
    fn patients_are_left_out() {
        let base = Step {
            except: vec![1],
            ..list(2)
        };
        let of = |helper| run(vec![helper, found(base.clone(), &["A-1", "A-2"], false)]);
        let mut whole = of(found(query(1, "x"), &["a-2", "A-9"], false));
        whole.leave_out();
        assert_eq!(patient_ids(&whole.outcomes[1]).collect::<Vec<_>>(), ["A-1"]);
        assert_eq!(whole.outcomes[0].result, Some(json!({ "left_out": 2 })));

        let failed = StepOutcome::of(query(1, "x"), Err(StepError::new(-1, "x")), 1);
        for helper in [
            found(query(1, "x"), &["A-2"], true),
            (query(1, "x"), failed),
        ] {
            let mut part = of(helper);
            part.leave_out();
            assert!(part.outcomes[1].result.is_none() && part.outcomes[1].is_missing());
        }
    }

    /// Goal: a step is repeated for each patient, up to the limit; a failed source fails it. Method: two
    /// patients; as many as the limit, and one more; a failure.
    #[test]
    fn steps_are_repeated() {
        let planned = Step {
            for_each: Some(1),
            ..Step::new(2, "clinic_a", "check_medications", None)
        };
        let of = |pair| {
            let mut ran = Vec::new();
            for step in run(vec![pair]).repeated_steps(std::slice::from_ref(&planned)) {
                ran.push(match step {
                    RepeatedStep::Run(step) => {
                        Ok((step.step_id, step.parameters["patient_id"].clone()))
                    }
                    RepeatedStep::Failed(_, error) => Err(error.code),
                });
            }
            ran
        };
        let both = of(found(list(1), &["A-1", "A-2"], false));
        assert_eq!(both, [Ok((2, json!("A-1"))), Ok((3, json!("A-2")))]);
        let ids: Vec<String> = (0..=PATIENTS_EACH_MAX).map(|n| format!("A-{n}")).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        assert_eq!(
            of(found(list(1), &ids[1..], false)).len(),
            PATIENTS_EACH_MAX
        );
        assert_eq!(of(found(list(1), &ids, false)), [Err(CODE_INVALID_PARAMS)]);
        let failed = StepOutcome::of(list(1), Err(StepError::new(-1, "x")), 1);
        assert_eq!(of((list(1), failed)), [Err(CODE_UNAVAILABLE)]);
    }

    /// Goal: a short id that a clinic doesn't have is tried with zeros; others aren't. Method: ids of two,
    /// three and no digits; a failure of another kind.
    #[test]
    fn short_ids_are_padded() {
        let of = |id: &str, not_found: bool| {
            let step = Step::new(4, "clinic_a", "get_patient", Some(("patient_id", id)));
            let error = StepError {
                not_found,
                ..StepError::new(-32602, "x")
            };
            let outcome = StepOutcome::of(step.clone(), Err(error), 1);
            let padded = run(vec![(step, outcome)]).padded_steps();
            padded
                .first()
                .map(|(_, step)| step.parameters["patient_id"].clone())
        };
        assert_eq!(of("CARD-7", true), Some(json!("CARD-007")));
        assert_eq!(of("CARD-12", true), Some(json!("CARD-012")));
        assert_eq!(of("CARD-123", true), None);
        assert_eq!(of("CARD-x", true), None);
        assert_eq!(of("CARD-7", false), None);
    }

    /// Goal: numbers are summed for each search and compared; incomplete ones aren't. Method: rows.
    #[test]
    fn numbers_are_told() {
        let told = |pairs, counting| {
            let reply = ReplyOptions {
                counting: Some(counting),
                ..ReplyOptions::default()
            };
            run(pairs).summary(&reply, |_| "cardiology")
        };
        let more = || {
            vec![
                found(query(1, "x"), &["A-1", "A-2"], false),
                found(query(2, "y"), &["A-3"], false),
            ]
        };
        assert_eq!(
            told(more(), Counting::Compare),
            [
                "2 patients: \"x\"",
                "1 patient: \"y\"",
                "Most patients: \"x\"."
            ]
        );
        assert_eq!(told(more(), Counting::Count).len(), 2);
        let equal = vec![
            found(query(1, "x"), &["A-1"], false),
            found(list(2), &["A-3"], false),
        ];
        assert_eq!(
            told(equal, Counting::Compare)[1..],
            [
                "1 patient: \"cardiology\"",
                "The largest numbers are equal."
            ]
        );
        let open = vec![
            found(query(1, "x"), &["A-1"], true),
            found(query(2, "y"), &[], false),
        ];
        assert_eq!(
            told(open, Counting::Compare),
            [
                "at least 1 patient: \"x\"",
                "0 patients: \"y\"",
                "They can't be compared: a number is incomplete."
            ]
        );
        let none = vec![found(query(1, "x"), &[], false)];
        assert_eq!(
            told(none, Counting::Count),
            ["0 patients: \"x\"", "No patient was found."]
        );
    }
}
