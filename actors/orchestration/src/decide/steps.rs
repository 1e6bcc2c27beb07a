use std::collections::HashSet;

use callboard_message::TaskState;
use callboard_runtime::in_dependency_order;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::limits::{STEP_ID_BYTES_MAX, STEP_INPUT_BYTES_MAX, STEPS_MAX};

/// A step of a plan. It has exactly these keys.
#[derive(derive_more::Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[debug("Step({}, {} bytes, needs {:?})", id, input_message.len(), metadata.depends_on)]
#[serde(deny_unknown_fields)]
pub struct StepDefinition {
    /// Its id: lower-case words with `-` between them, at most [`STEP_ID_BYTES_MAX`] bytes.
    pub id: String,
    /// What to do, at most [`STEP_INPUT_BYTES_MAX`] bytes.
    pub input_message: String,
    /// What it needs.
    pub metadata: StepMetadata,
}

/// What a step needs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StepMetadata {
    /// Ids of the steps whose results it uses.
    pub depends_on: Vec<String>,
}

/// Steps that can be done: 1 to [`STEPS_MAX`], in an order in which what a step needs comes before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Steps")]
#[schemars(with = "Steps")]
pub struct StepPlan {
    steps: Vec<StepDefinition>,
}

/// A plan as it is written.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Steps {
    steps: Vec<StepDefinition>,
}

impl TryFrom<Steps> for StepPlan {
    type Error = StepPlanError;

    fn try_from(steps: Steps) -> Result<Self, StepPlanError> {
        Self::checked(steps.steps)
    }
}

/// Why steps aren't a plan. Ask for another one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StepPlanError {
    /// There is none.
    #[error("the plan has no step")]
    Empty,
    /// There are too many.
    #[error("the plan has {count} steps, more than {max}: join some")]
    TooManySteps {
        /// How many.
        count: usize,
        /// How many there may be.
        max: usize,
    },
    /// An id isn't one.
    #[error(
        "step {at} has an id that isn't lower-case words with '-' between them, at most {STEP_ID_BYTES_MAX} bytes"
    )]
    BadId {
        /// Its place, from 1.
        at: usize,
    },
    /// An id is there twice.
    #[error("two steps are called {id}")]
    Twice {
        /// Which.
        id: String,
    },
    /// A step needs one that isn't there.
    #[error("step {id} needs a step that isn't in the plan")]
    UnknownNeed {
        /// Which step.
        id: String,
    },
    /// Steps wait for one another.
    #[error("step {id} needs itself, by way of others or not")]
    Cycle {
        /// One of them.
        id: String,
    },
    /// A step says nothing, or too much.
    #[error("step {id} has {bytes} bytes to say: 1 to {STEP_INPUT_BYTES_MAX}")]
    BadInput {
        /// Which.
        id: String,
        /// How many.
        bytes: usize,
    },
}

impl StepPlan {
    /// Steps as a plan, in an order in which they can be done; otherwise they stay in theirs.
    ///
    /// # Errors
    /// See [`StepPlanError`].
    pub fn checked(steps: Vec<StepDefinition>) -> Result<Self, StepPlanError> {
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
                return Err(StepPlanError::Twice {
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
            return Err(StepPlanError::UnknownNeed {
                id: step.id.clone(),
            });
        }
        let sorted = in_dependency_order(steps, |step, other| {
            step.metadata.depends_on.contains(&other.id)
        });
        sorted
            .map(|steps| Self { steps })
            .map_err(|step| StepPlanError::Cycle { id: step.id })
    }

    /// The steps, each after those that it needs.
    pub fn steps(&self) -> &[StepDefinition] {
        &self.steps
    }

    /// The steps, each after those that it needs.
    pub fn into_steps(self) -> Vec<StepDefinition> {
        self.steps
    }
}

/// Whether that is a step's id: lower-case words with `-` between them.
pub fn is_step_id(id: &str) -> bool {
    let is_word = |word: &str| {
        !word.is_empty()
            && word
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    id.len() <= STEP_ID_BYTES_MAX && id.split('-').all(is_word)
}

/// How a step ended.
#[derive(derive_more::Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[debug("StepReport({} by {}, {}, {} bytes)", id, by, state, text.len())]
#[serde(deny_unknown_fields)]
pub struct StepReport {
    /// The step.
    pub id: String,
    /// What it was for.
    pub goal: String,
    /// Who did it: a tool's name or an agent's id.
    pub by: String,
    /// Its end.
    pub state: TaskState,
    /// Its result, or why there is none: at most [`STEP_RESULT_BYTES_MAX`](super::limits::STEP_RESULT_BYTES_MAX) bytes.
    pub text: String,
    /// How often it was tried.
    pub attempts: u32,
}
