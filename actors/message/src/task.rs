use crate::words::words;

words! {
    /// Where a task stands. The states are A2A's (specification 1.0, section 4.1.3).
    TaskState {
        /// Accepted, not begun.
        Submitted = "submitted",
        /// Running.
        Working = "working",
        /// Paused with a question.
        InputRequired = "input_required",
        /// Paused until the caller shows a credential.
        AuthRequired = "auth_required",
        /// Ended with a result.
        Completed = "completed",
        /// Ended with a failure.
        Failed = "failed",
        /// Ended by the caller.
        Canceled = "canceled",
        /// Refused by the agent.
        Rejected = "rejected",
    }
}

impl TaskState {
    /// Whether the task has ended: no state follows a terminal one.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled | Self::Rejected)
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
