//! What an orchestrator asked of other agents, and what they answered: bounded by count and age.

use std::fmt;
use std::sync::Arc;

use callboard_message::{DataClass, Failure, TaskState};
use callboard_runtime::Notes;
use serde::{Deserialize, Serialize};

/// A request that went out.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outgoing {
    /// The task's id: the remote's, or ours where it gave none.
    pub task: String,
    /// To which agent.
    pub to: String,
    /// What was asked.
    pub request: String,
    /// What was answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Where it stands.
    pub state: TaskState,
    /// When it went out, in milliseconds since 1970.
    pub at_ms: u64,
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outgoing({} to {}, {})", self.task, self.to, self.state)
    }
}

/// The rolling memory of one orchestrator. Clones are the same memory.
#[derive(Clone)]
pub struct Memory {
    _notes: Arc<dyn Notes>,
    _space: Arc<str>,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Memory")
    }
}

impl Memory {
    /// That of `agent`, in `notes`. Of clinical data nothing is kept.
    pub fn new(notes: Arc<dyn Notes>, agent: &str, _class: DataClass) -> Self {
        Self { _notes: notes, _space: format!("memory/{agent}").into() }
    }

    /// Keeps a request that goes out.
    ///
    /// # Errors
    /// The store's.
    pub async fn remember(&self, _outgoing: Outgoing) -> Result<(), Failure> {
        Err(Failure::internal("not built yet"))
    }

    /// What came of it.
    ///
    /// # Errors
    /// The store's.
    pub async fn update(&self, _task: &str, _state: TaskState, _answer: Option<String>) -> Result<(), Failure> {
        Err(Failure::internal("not built yet"))
    }

    /// All, oldest first.
    ///
    /// # Errors
    /// The store's.
    pub async fn list(&self) -> Result<Vec<Outgoing>, Failure> {
        Err(Failure::internal("not built yet"))
    }

    /// The one of that task.
    ///
    /// # Errors
    /// The store's.
    pub async fn get(&self, _task: &str) -> Result<Option<Outgoing>, Failure> {
        Err(Failure::internal("not built yet"))
    }

    /// Forgets all, and answers how many there were.
    ///
    /// # Errors
    /// The store's.
    pub async fn clear(&self) -> Result<u64, Failure> {
        Err(Failure::internal("not built yet"))
    }
}
