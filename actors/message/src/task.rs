use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a task stands. The states are A2A's (specification 1.0, section 4.1.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// Accepted, not begun.
    Submitted,
    /// Running.
    Working,
    /// Paused with a question.
    InputRequired,
    /// Paused until the caller shows a credential.
    AuthRequired,
    /// Ended with a result.
    Completed,
    /// Ended with a failure.
    Failed,
    /// Ended by the caller.
    Canceled,
    /// Refused by the agent.
    Rejected,
}

impl TaskState {
    /// Whether the task has ended: no state follows a terminal one.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled | Self::Rejected)
    }
}
