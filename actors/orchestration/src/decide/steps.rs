use std::collections::HashSet;

use callboard_message::TaskState;
use callboard_runtime::topological_order;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::limits::{STEP_ID_BYTES_MAX, STEP_INPUT_BYTES_MAX, STEPS_MAX};

/// Step of a plan. Unknown keys are rejected.
#[derive(derive_more::Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[debug("Step({}, {} bytes, needs {:?})", id, input_message.len(), metadata.depends_on)]
#[serde(deny_unknown_fields)]
pub struct StepDefinition {
    /// Step id: lower-case words joined by `-`, at most [`STEP_ID_BYTES_MAX`] bytes.
    pub id: String,
    /// Instruction of the step, at most [`STEP_INPUT_BYTES_MAX`] bytes.
    pub input_message: String,
    /// Dependencies of the step.
    pub metadata: StepMetadata,
}

/// Dependencies of a step.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepMetadata {
    /// Ids of the steps whose results this step uses.
    pub depends_on: Vec<String>,
}

/// Validated plan of 1 to [`STEPS_MAX`] steps in dependency order: each step follows the steps it
/// depends on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Steps")]
#[schemars(with = "Steps")]
pub struct StepPlan {
    steps: Vec<StepDefinition>,
}

/// Serialized form of a plan, before validation.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Steps {
    steps: Vec<StepDefinition>,
}

impl TryFrom<Steps> for StepPlan {
    type Error = StepPlanError;

    fn try_from(steps: Steps) -> Result<Self, StepPlanError> {
        Self::try_new(steps.steps)
    }
}

/// Reason that a list of steps isn't a valid plan. The remedy is another plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StepPlanError {
    /// The plan has no step.
    #[error("the plan has no step")]
    Empty,
    /// The plan has more steps than allowed.
    #[error("the plan has {count} steps, more than {max}: join some")]
    TooManySteps {
        /// Number of steps.
        count: usize,
        /// Maximum number of steps.
        max: usize,
    },
    /// A step id is malformed or too long.
    #[error(
        "step {at} has an id that isn't lower-case words with '-' between them, at most {STEP_ID_BYTES_MAX} bytes"
    )]
    BadId {
        /// Position of the step, counted from 1.
        at: usize,
    },
    /// Two steps have the same id.
    #[error("two steps are called {id}")]
    DuplicateId {
        /// The repeated id.
        id: String,
    },
    /// A step depends on a step outside the plan.
    #[error("step {id} needs a step that isn't in the plan")]
    UnknownDependency {
        /// Id of the dependent step.
        id: String,
    },
    /// Steps depend on each other in a cycle.
    #[error("step {id} depends on itself, directly or through other steps")]
    Cycle {
        /// Id of one step of the cycle.
        id: String,
    },
    /// The input message of a step is empty or too long.
    #[error(
        "step {id} has an input message of {bytes} bytes: 1 to {STEP_INPUT_BYTES_MAX} are allowed"
    )]
    BadInput {
        /// Id of the step.
        id: String,
        /// Length of the input message in bytes.
        bytes: usize,
    },
}

impl StepPlan {
    /// Validates steps and sorts them by dependency. Independent steps keep their order.
    ///
    /// # Errors
    /// [`StepPlanError`] for the first violated rule.
    pub fn try_new(steps: Vec<StepDefinition>) -> Result<Self, StepPlanError> {
        match steps.len() {
            0 => return Err(StepPlanError::Empty),
            count if count > STEPS_MAX => {
                return Err(StepPlanError::TooManySteps {
                    count,
                    max: STEPS_MAX,
                });
            }
            _ => {}
        }
        let mut ids = HashSet::new();
        for (at, step) in steps.iter().enumerate() {
            if !is_step_id(&step.id) {
                return Err(StepPlanError::BadId { at: at + 1 });
            }
            if !ids.insert(step.id.as_str()) {
                return Err(StepPlanError::DuplicateId {
                    id: step.id.clone(),
                });
            }
            let bytes = step.input_message.len();
            if step.input_message.trim().is_empty() || bytes > STEP_INPUT_BYTES_MAX {
                return Err(StepPlanError::BadInput {
                    id: step.id.clone(),
                    bytes,
                });
            }
        }
        let known = |need: &String| ids.contains(need.as_str());
        if let Some(step) = steps
            .iter()
            .find(|step| !step.metadata.depends_on.iter().all(known))
        {
            return Err(StepPlanError::UnknownDependency {
                id: step.id.clone(),
            });
        }
        let sorted = topological_order(steps, |step, other| {
            step.metadata.depends_on.contains(&other.id)
        });
        sorted
            .map(|steps| Self { steps })
            .map_err(|step| StepPlanError::Cycle { id: step.id })
    }

    /// Returns the steps in dependency order.
    pub fn steps(&self) -> &[StepDefinition] {
        &self.steps
    }

    /// Returns the steps in dependency order, consuming the plan.
    pub fn into_steps(self) -> Vec<StepDefinition> {
        self.steps
    }
}

/// Returns whether `id` is a valid step id: lower-case words of ASCII letters and digits joined by
/// `-`, at most [`STEP_ID_BYTES_MAX`] bytes.
pub fn is_step_id(id: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty()
            && word
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    id.len() <= STEP_ID_BYTES_MAX && id.split('-').all(is_word)
}

/// Final report of one step of a plan.
#[derive(derive_more::Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[debug("StepReport({} by {}, {}, {} bytes)", id, by, state, text.len())]
#[serde(deny_unknown_fields)]
pub struct StepReport {
    /// Id of the step.
    pub id: String,
    /// Instruction of the step.
    pub goal: String,
    /// Name of the tool or id of the agent that performed the step.
    pub by: String,
    /// Final state of the step's task.
    pub state: TaskState,
    /// Result, or reason of the failure: at most
    /// [`STEP_RESULT_BYTES_MAX`](super::limits::STEP_RESULT_BYTES_MAX) bytes.
    pub text: String,
    /// Number of attempts.
    pub attempts: u32,
}
