use serde::Serialize;

use crate::ids::AgentId;

/// What an agent is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum AgentState {
    /// Not yet made.
    Starting = 0,
    /// Takes messages.
    Running = 1,
    /// Failed; a fresh one is being made.
    Restarting = 2,
    /// Takes no more messages, works off what it has.
    Draining = 3,
    /// Has ended.
    Ended = 4,
}

impl AgentState {
    pub(crate) fn from_u8(state: u8) -> Self {
        match state {
            0 => Self::Starting,
            1 => Self::Running,
            2 => Self::Restarting,
            3 => Self::Draining,
            _ => Self::Ended,
        }
    }
}

/// One agent, as people see it. Read without disturbing it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AgentSnapshot {
    /// Its id in this system.
    pub id: AgentId,
    /// Its name, where it was given one.
    pub name: Option<String>,
    /// The Rust type, without its path.
    pub kind: &'static str,
    /// What it is doing.
    pub state: AgentState,
    /// Messages in the mailbox.
    pub mailbox_depth: u32,
    /// Messages that the mailbox holds at most.
    pub mailbox_capacity: u32,
    /// Handlers suspended at an await.
    pub in_flight: u32,
    /// Messages begun since it was spawned; counted a chunk at a time, so it may lag behind the replies.
    pub handled: u64,
    /// Fresh agents made after the first.
    pub restarts: u32,
    /// What went wrong last; the handler's name, never a message's content.
    pub last_error: Option<String>,
}
