//! The general orchestrator: any request in, an answer out, by its own tools, other agents, or a plan of both.

mod options;

use std::sync::Arc;

use callboard_runtime::{Agent, Handlers};

pub use options::{CONFIDENCE_MIN_DEFAULT, RISK_MAX_DEFAULT, TASK_TTL_DEFAULT, TaskOptions};

/// The agent that takes requests to their answers.
#[derive(Debug, Clone)]
pub struct TaskOrchestrator {
    _options: Arc<TaskOptions>,
}

impl TaskOrchestrator {
    /// With these options.
    pub fn new(options: TaskOptions) -> Self {
        Self { _options: Arc::new(options) }
    }
}

impl Agent for TaskOrchestrator {
    // not built yet
    fn handlers(_on: &mut Handlers<Self>) {}
}
