use callboard_message::{Failure, FailureKind};
use callboard_runtime::topological_order;
use serde_json::{Value, json};

use super::registry::is_name;
use super::{CATALOGUE, ClinicRegistry, Plan, STEPS_MAX, Step};

/// Validated plan that may be dispatched. Every step names a registered clinic and a tool of the
/// catalogue with valid parameters, and the dependencies have no cycle. Only [`Plan::check`]
/// creates one.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedPlan {
    steps: Vec<Step>,
}

impl CheckedPlan {
    /// Returns the steps as planned.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Consumes the plan and returns its steps.
    pub fn into_steps(self) -> Vec<Step> {
        self.steps
    }
}

/// Reason a plan is rejected. The messages tell the planner what to change. A fixed phrase replaces
/// a name from the plan that isn't a short plain one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The plan has no step.
    #[error("the plan has no step")]
    Empty,
    /// The plan has more than [`STEPS_MAX`] steps.
    #[error("the plan has {steps} steps, more than {STEPS_MAX}")]
    TooManySteps {
        /// Number of steps in the plan.
        steps: usize,
    },
    /// Two steps have the same number.
    #[error("two steps of the plan have the number {step_id}: give each step its own")]
    SameStepId {
        /// Number that both steps have.
        step_id: u32,
    },
    /// A step names a clinic that isn't registered.
    #[error("step {step_id} names {clinic}, which is not a registered clinic")]
    UnknownClinic {
        /// Number of the step.
        step_id: u32,
        /// Name of the clinic that isn't registered.
        clinic: String,
    },
    /// A step names a tool that isn't in the catalogue.
    #[error("step {step_id} names {action}, which is not a tool of the clinics")]
    UnknownTool {
        /// Number of the step.
        step_id: u32,
        /// Name of the tool that isn't in the catalogue.
        action: String,
    },
    /// A step has a parameter that its tool doesn't take.
    #[error("step {step_id} gives {action} the parameter {parameter}, which it does not have")]
    UnknownParameter {
        /// Number of the step.
        step_id: u32,
        /// Name of the tool.
        action: String,
        /// Name of the parameter that the tool doesn't take.
        parameter: String,
    },
    /// A parameter is missing, blank, longer than `chars_max` characters, not a text, or holds
    /// control characters.
    #[error(
        "step {step_id} needs {parameter} as text of 1 to {chars_max} characters, without control characters"
    )]
    BadParameter {
        /// Number of the step.
        step_id: u32,
        /// Name of the parameter.
        parameter: &'static str,
        /// Maximum length of the parameter, in characters.
        chars_max: usize,
    },
    /// A step's parameters name another clinic than the one that the step is for. Split it into two
    /// steps.
    #[error("step {step_id} is for {clinic} and also names {other}: split it into two steps")]
    TwoClinics {
        /// Number of the step.
        step_id: u32,
        /// Clinic that the step is for.
        clinic: String,
        /// Clinic that the parameters name.
        other: String,
    },
    /// A step depends on a step that isn't in the plan.
    #[error("step {step_id} depends on step {on}, which is not in the plan")]
    UnknownDependency {
        /// Number of the step.
        step_id: u32,
        /// Number of the missing step.
        on: u32,
    },
    /// A step is repeated for the patients of a step, or leaves out those of one, that isn't a
    /// `list_patients` or `query` step of the same clinic in the plan, or is repeated itself; or the
    /// step's own tool can't be repeated or find patients.
    #[error(
        "step {step_id} can't use the patients of step {of}: name a list_patients or query step of the same clinic"
    )]
    BadSource {
        /// Number of the step.
        step_id: u32,
        /// Number of the step whose patients it uses.
        of: u32,
    },
    /// The dependencies form a cycle.
    #[error("step {step_id} depends on itself, directly or through other steps")]
    Circle {
        /// Number of a step that is in the cycle or depends on it.
        step_id: u32,
    },
}

impl PlanError {
    /// Returns the JSON-RPC error code of the error: -32601 for an unknown clinic, else -32602.
    pub fn code(&self) -> i32 {
        match self {
            Self::UnknownClinic { .. } => -32601,
            _ => -32602,
        }
    }
}

impl From<PlanError> for Failure {
    fn from(error: PlanError) -> Self {
        let kind = match error {
            PlanError::UnknownClinic { .. } | PlanError::UnknownTool { .. } => {
                FailureKind::NotFound
            }
            _ => FailureKind::InvalidInput,
        };
        Self::new(kind, error.to_string()).with_data(json!({ "code": error.code() }))
    }
}

impl Plan {
    /// Checks that every step may be dispatched: registered clinic, catalogue tool, valid
    /// parameters, dependencies without a cycle. A `raw_response` plan never passes; use
    /// [`Plan::refusal`] to recognise one.
    ///
    /// # Errors
    /// [`PlanError`] for the first rule that is broken.
    pub fn check(self, registry: &ClinicRegistry) -> Result<CheckedPlan, PlanError> {
        let steps = self.steps;
        check_count(&steps)?;
        for (at, step) in steps.iter().enumerate() {
            if steps[..at].iter().any(|s| s.step_id == step.step_id) {
                return Err(PlanError::SameStepId {
                    step_id: step.step_id,
                });
            }
            check_step(step, registry)?;
        }
        steps
            .iter()
            .try_for_each(|step| check_sources(step, &steps))?;
        check_dependencies(&steps)?;
        Ok(CheckedPlan { steps })
    }
}

/// Checks that a plan has 1 to [`STEPS_MAX`] steps.
pub(super) fn check_count(steps: &[Step]) -> Result<(), PlanError> {
    match steps.len() {
        0 => Err(PlanError::Empty),
        1..=STEPS_MAX => Ok(()),
        steps => Err(PlanError::TooManySteps { steps }),
    }
}

fn check_step(step: &Step, registry: &ClinicRegistry) -> Result<(), PlanError> {
    let step_id = step.step_id;
    let clinic = registry
        .clinic(&step.clinic)
        .ok_or_else(|| PlanError::UnknownClinic {
            step_id,
            clinic: printable(&step.clinic),
        })?;
    let tool = CATALOGUE
        .iter()
        .find(|tool| tool.name == step.action)
        .ok_or_else(|| PlanError::UnknownTool {
            step_id,
            action: printable(&step.action),
        })?;
    if let Some(key) = step
        .parameters
        .keys()
        .find(|key| tool.parameter.is_none_or(|(name, _)| name != key.as_str()))
    {
        let parameter = printable(key);
        return Err(PlanError::UnknownParameter {
            step_id,
            action: tool.name.into(),
            parameter,
        });
    }
    if let Some(of) = step.for_each {
        // The orchestrator fills the parameter in, and checks each repeated step again.
        let fits = tool.parameter.is_some_and(|(name, _)| name == "patient_id");
        return match fits && step.parameters.is_empty() {
            true => Ok(()),
            false => Err(PlanError::BadSource { step_id, of }),
        };
    }
    if let Some((parameter, chars_max)) = tool.parameter {
        let text = step
            .parameters
            .get(parameter)
            .and_then(Value::as_str)
            .unwrap_or_default();
        let fits = !text.trim().is_empty()
            && text.chars().count() <= chars_max
            && !text.contains(char::is_control);
        if !fits {
            return Err(PlanError::BadParameter {
                step_id,
                parameter,
                chars_max,
            });
        }
        if let Some(other) = registry.find_other_clinic(&clinic.id, text) {
            return Err(PlanError::TwoClinics {
                step_id,
                clinic: clinic.id.clone(),
                other: other.id.clone(),
            });
        }
    }
    Ok(())
}

/// Checks the steps whose patients a step uses: they find patients, at the same clinic, and none of
/// those that are left out leaves out others.
fn check_sources(step: &Step, steps: &[Step]) -> Result<(), PlanError> {
    let finds = |of: u32, is_left_out: bool| {
        steps.iter().any(|s| {
            s.step_id == of
                && s.step_id != step.step_id
                && s.clinic == step.clinic
                && s.finds_patients()
                && (!is_left_out || s.except.is_empty())
        })
    };
    let bad = |of| {
        Err(PlanError::BadSource {
            step_id: step.step_id,
            of,
        })
    };
    match step.for_each {
        Some(of) if !finds(of, false) => return bad(of),
        _ => {}
    }
    match step
        .except
        .iter()
        .find(|of| !finds(**of, true) || !step.finds_patients())
    {
        Some(of) => bad(*of),
        None => Ok(()),
    }
}

fn check_dependencies(steps: &[Step]) -> Result<(), PlanError> {
    for step in steps {
        if let Some(on) = step
            .depends_on
            .iter()
            .find(|on| steps.iter().all(|s| s.step_id != **on))
        {
            return Err(PlanError::UnknownDependency {
                step_id: step.step_id,
                on: *on,
            });
        }
    }
    let sorted = topological_order(steps.iter().collect(), |step, done| {
        step.depends_on.contains(&done.step_id)
    });
    sorted.map(drop).map_err(|step| PlanError::Circle {
        step_id: step.step_id,
    })
}

/// Returns a name in a form that is safe in an error. The name may come from a model, so anything
/// but a short plain name is replaced.
fn printable(name: &str) -> String {
    if is_name(name, 64) {
        name.to_owned()
    } else {
        "something that is not a name".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::samples::two_clinics;
    use crate::plan::{PATIENT_ID_CHARS_MAX, QUERY_TEXT_CHARS_MAX};

    fn check(text: &str) -> Result<CheckedPlan, PlanError> {
        let plan = Plan::parse_strict(text).unwrap_or_else(|e| panic!("{e}: {text}"));
        plan.check(&two_clinics())
    }

    fn refused(text: &str) -> (i32, String) {
        check(text).map_or_else(|e| (e.code(), e.to_string()), |_| panic!("accepted {text}"))
    }

    /// Goal: the document's plan passes unchanged. Method: C-19 as text.
    #[test]
    fn the_documents_plan_passes() {
        let text = r#"[{"step_id":1,"clinic":"clinic_a","action":"list_patients","parameters":{}},
            {"step_id":2,"clinic":"clinic_b","action":"query","parameters":{"query":"psoriasis"},"depends_on":[1]}]"#;
        let checked = check(text).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(checked.steps().len(), 2);
    }

    /// Goal: each rule refuses with its code and a sentence. Method: one row a rule (T-C4 first).
    /// Rows: C-21.
    #[test]
    fn each_rule_refuses() {
        for (step, code, says) in [
            (
                r#"{"step_id":1,"clinic":"clinic_z","action":"list_patients","parameters":{}}"#,
                -32601,
                "clinic_z",
            ),
            (
                r#"{"step_id":1,"clinic":"","action":"raw_response","parameters":{}}"#,
                -32601,
                "not a name",
            ),
            (
                r#"{"step_id":1,"clinic":"clinic_a,clinic_b","action":"list_patients","parameters":{}}"#,
                -32601,
                "not a name",
            ),
            (
                r#"{"step_id":1,"clinic":"clinic_a","action":"dump_all","parameters":{}}"#,
                -32602,
                "dump_all",
            ),
            (
                r#"{"step_id":1,"clinic":"clinic_a","action":"raw_response","parameters":{}}"#,
                -32602,
                "raw_response",
            ),
            (
                r#"{"step_id":1,"clinic":"clinic_a","action":"list_patients","parameters":{"all":"1"}}"#,
                -32602,
                "all",
            ),
            (
                r#"{"step_id":1,"clinic":"clinic_a","action":"get_patient","parameters":{}}"#,
                -32602,
                "needs patient_id",
            ),
            (
                r#"{"step_id":1,"clinic":"clinic_a","action":"get_patient","parameters":{"patient_id":7}}"#,
                -32602,
                "as text",
            ),
            (
                r#"{"step_id":1,"clinic":"clinic_a","action":"query","parameters":{"query":"a\u0000b"}}"#,
                -32602,
                "control",
            ),
            (
                r#"{"step_id":1,"clinic":"clinic_a","action":"get_patient","parameters":{"patient_id":"DERM-001"}}"#,
                -32602,
                "also names clinic_b",
            ),
            (
                r#"{"step_id":1,"clinic":"clinic_a","action":"query","parameters":{"query":"join with clinic_b"}}"#,
                -32602,
                "also names clinic_b",
            ),
            (
                r#"{"step_id":1,"clinic":"clinic_a","action":"list_patients","parameters":{},"depends_on":[9]}"#,
                -32602,
                "step 9",
            ),
            (
                r#"{"step_id":1,"clinic":"clinic_a","action":"list_patients","parameters":{},"depends_on":[1]}"#,
                -32602,
                "depends on itself",
            ),
        ] {
            let (was, sentence) = refused(&format!("[{step}]"));
            assert_eq!(was, code, "{step}");
            assert!(sentence.contains(says), "{sentence}");
        }
    }

    /// Goal: numbers are unique and circles are found wherever they are. Method: two and three steps.
    #[test]
    fn numbers_and_circles() {
        let step = |id: u32, on: &str| {
            format!(
                r#"{{"step_id":{id},"clinic":"clinic_a","action":"list_patients","parameters":{{}},"depends_on":[{on}]}}"#
            )
        };
        let plan = |steps: &[String]| format!("[{}]", steps.join(","));
        assert_eq!(
            refused(&plan(&[step(1, ""), step(1, "")])).1,
            "two steps of the plan have the number 1: give each step its own"
        );
        assert_eq!(
            refused(&plan(&[step(5, ""), step(1, "2"), step(2, "1")])).1,
            "step 1 depends on itself, directly or through other steps"
        );
        assert!(check(&plan(&[step(3, "2,1"), step(2, "1"), step(1, "")])).is_ok());
    }

    /// Goal: parameter limits. Method: at the limit, in characters, and one above.
    #[test]
    fn parameter_limits() {
        let get = |id: String| {
            format!(
                r#"[{{"step_id":1,"clinic":"clinic_a","action":"get_patient","parameters":{{"patient_id":"{id}"}}}}]"#
            )
        };
        let query = |q: String| {
            format!(
                r#"[{{"step_id":1,"clinic":"clinic_a","action":"query","parameters":{{"query":"{q}"}}}}]"#
            )
        };
        assert!(check(&get("é".repeat(PATIENT_ID_CHARS_MAX))).is_ok());
        assert!(check(&get("é".repeat(PATIENT_ID_CHARS_MAX + 1))).is_err());
        assert!(check(&query("é".repeat(QUERY_TEXT_CHARS_MAX))).is_ok());
        assert!(check(&query("é".repeat(QUERY_TEXT_CHARS_MAX + 1))).is_err());
    }

    /// Goal: the codes of the document travel as data. Method: convert.
    /// Rows: X-39.
    #[test]
    fn failures_carry_the_code() {
        let failure = Failure::from(PlanError::UnknownClinic {
            step_id: 1,
            clinic: "clinic_z".into(),
        });
        assert_eq!(failure.data, Some(json!({ "code": -32601 })));
    }

    fn any_plan() -> impl Strategy<Value = String> {
        let clinic = prop_oneof![4 => "clinic_[ab]", 1 => "clinic_z", 1 => "\\PC{0,12}"];
        let action =
            prop_oneof![4 => "list_patients|get_patient|query", 1 => "dump_all", 1 => "\\PC{0,12}"];
        let parameters = prop_oneof![
            Just("{}".to_owned()),
            "(CARD|DERM)-[0-9]{1,3}".prop_map(|id| json!({ "patient_id": id }).to_string()),
            "\\PC{0,30}".prop_map(|q| json!({ "query": q }).to_string()),
        ];
        let step = (0u32..9, clinic, action, parameters, prop::collection::vec(0u32..9, 0..2)).prop_map(
            |(id, clinic, action, parameters, on)| {
                format!(
                    r#"{{"step_id":{id},"clinic":{},"action":{},"parameters":{parameters},"depends_on":{on:?}}}"#,
                    json!(clinic),
                    json!(action)
                )
            },
        );
        prop::collection::vec(step, 0..4).prop_map(|steps| format!("[{}]", steps.join(",")))
    }

    proptest! {
        /// Goal: no text makes reading panic; what isn't a plan is the refusal. Method: any text.
        #[test]
        fn any_text_is_a_plan_or_the_refusal(text in "\\PC{0,200}") {
            let plan = Plan::parse_or_refuse(&text);
            prop_assert!(plan.refusal().is_some());
        }

        /// Goal: an accepted plan names registered clinics and tools, and only its own clinic's patients.
        /// Method: plans from a grammar that is right about half the time.
        #[test]
        fn accepted_plans_stay_in_bounds(text in any_plan()) {
            let registry = two_clinics();
            if let Ok(checked) = Plan::parse_or_refuse(&text).check(&registry) {
                for step in checked.steps() {
                    prop_assert!(registry.clinic(&step.clinic).is_some());
                    prop_assert!(CATALOGUE.iter().any(|tool| tool.name == step.action));
                    let other = if step.clinic == "clinic_a" { "DERM" } else { "CARD" };
                    let names_other = step.parameters.get("patient_id").is_some_and(|id| id.to_string().contains(other));
                    prop_assert!(!names_other);
                    prop_assert!(!step.depends_on.contains(&step.step_id));
                }
            }
        }
    }
}
