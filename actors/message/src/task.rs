use crate::MessageSpec;
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
    /// What becomes of a task whose process ended in the midst of it.
    OnRestart {
        /// It is done again from its beginning: doing it twice does no harm.
        Resume = "resume",
        /// It has failed: whether the agent acted is unknown.
        Fail = "fail",
    }
}

impl TaskState {
    /// Whether the task has ended: no state follows a terminal one.
    pub fn is_terminal(self) -> bool {
        matches!(
            self,
            Self::Completed | Self::Failed | Self::Canceled | Self::Rejected
        )
    }
}

impl OnRestart {
    /// [`OnRestart::Resume`] for a message whose `annotations` say that it only reads, or may be repeated.
    pub fn of(spec: &MessageSpec) -> Self {
        let annotations = spec.more.object("annotations").unwrap_or_default();
        let says = |hint| annotations.read::<bool>(hint).unwrap_or_default();
        if says("readOnlyHint") || says("idempotentHint") {
            Self::Resume
        } else {
            Self::Fail
        }
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
