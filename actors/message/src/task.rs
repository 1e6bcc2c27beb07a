use std::fmt;

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

    /// Every state, in the order of a life.
    pub const ALL: [Self; 8] = [
        Self::Submitted,
        Self::Working,
        Self::InputRequired,
        Self::AuthRequired,
        Self::Completed,
        Self::Failed,
        Self::Canceled,
        Self::Rejected,
    ];

    /// Its name as it is written in JSON, for example `input_required`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Submitted => "submitted",
            Self::Working => "working",
            Self::InputRequired => "input_required",
            Self::AuthRequired => "auth_required",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
            Self::Rejected => "rejected",
        }
    }

    /// The state of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

impl fmt::Display for TaskState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a state has one name, here and in JSON, and reads back. Method: every state.
    #[test]
    fn names() {
        for state in TaskState::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
            assert_eq!(TaskState::parse(state.as_str()), Some(state));
        }
        assert_eq!(TaskState::parse("Working"), None);
    }
}
