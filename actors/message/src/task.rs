use crate::MessageSpec;
use crate::text_enum::text_enum;

text_enum! {
    /// State of a task, as in A2A (specification 1.0, section 4.1.3).
    TaskState {
        /// Accepted, not started.
        Submitted = "submitted",
        /// Running.
        Working = "working",
        /// Paused until a question is answered.
        InputRequired = "input_required",
        /// Paused until the caller presents a credential.
        AuthRequired = "auth_required",
        /// Ended with a result (terminal).
        Completed = "completed",
        /// Ended with a failure (terminal).
        Failed = "failed",
        /// Ended by the caller (terminal).
        Canceled = "canceled",
        /// Refused by the agent (terminal).
        Rejected = "rejected",
    }
    /// Handling of a task that was running when its process ended, once the process has started
    /// again.
    OnRestart {
        /// The task is run again from its beginning. This is safe only for idempotent work.
        Resume = "resume",
        /// The task fails, because it is unknown whether the agent did the work.
        Fail = "fail",
    }
}

impl TaskState {
    /// Returns whether the task has ended: completed, failed, canceled or rejected. Such a state
    /// never changes.
    pub fn is_terminal(self) -> bool {
        matches!(
            self,
            Self::Completed | Self::Failed | Self::Canceled | Self::Rejected
        )
    }
}

impl OnRestart {
    /// Returns [`OnRestart::Resume`] if the message's `annotations` set `readOnlyHint` or
    /// `idempotentHint`, else [`OnRestart::Fail`].
    pub fn from_spec(spec: &MessageSpec) -> Self {
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
