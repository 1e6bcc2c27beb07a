use std::time::SystemTime;

use callboard_message::{RawObject, TaskState};

use crate::wire::macros::wire;
use crate::wire::{Artifact, Message};

wire! {
    /// Where a task stands.
    pub struct TaskStatus {
        /// Its state.
        state: TaskState = state "state",
        /// What the agent says about it: a question, where it went, why it failed.
        message: Option<Message> = optional "message",
        /// Since when.
        timestamp: Option<SystemTime> = hint "timestamp",
    }

    /// A call as its caller may look at it.
    pub struct Task {
        /// Made by the server (in 0.1: by the client).
        id: String = required "id",
        /// The conversation.
        context_id: String = default "contextId" | "sessionId",
        /// Where it stands.
        status: TaskStatus = required "status",
        /// What it made so far; `None`: not asked for.
        artifacts: Option<Vec<Artifact>> = optional "artifacts",
        /// What was said, oldest first; `None`: not asked for.
        history: Option<Vec<Message>> = optional "history",
        /// Whatever the server put beside it.
        metadata: Option<RawObject> = optional "metadata",
    }
}

impl TaskStatus {
    /// A state, and nothing said about it.
    pub fn new(state: TaskState) -> Self {
        Self { state, message: None, timestamp: None }
    }
}

impl Task {
    /// A task without artifacts and history.
    pub fn new(id: impl Into<String>, context_id: impl Into<String>, status: TaskStatus) -> Self {
        let (id, context_id) = (id.into(), context_id.into());
        Self { id, context_id, status, artifacts: None, history: None, metadata: None }
    }
}
