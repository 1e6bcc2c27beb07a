use std::time::Duration;

use crate::supervision::{Backoff, Intensity};

/// Messages a mailbox holds, by default.
pub const MAILBOX_CAPACITY_DEFAULT: u32 = 1_024;
/// Messages an agent handles before others have a turn, by default.
const TURN_MESSAGES_MAX_DEFAULT: u32 = 256;
/// Messages a stash holds, by default.
const STASH_CAPACITY_DEFAULT: u32 = 1_024;
/// How long a cancelled handler may tidy up, by default.
pub const CANCEL_GRACE_DEFAULT: Duration = Duration::from_secs(1);

/// How an agent is run: its limits, and what it promises.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Messages that the mailbox holds at most; at least 1.
    pub mailbox_capacity: u32,
    /// Messages the agent handles before others on its arbiter have a turn; at least 1.
    pub turn_messages_max: u32,
    /// Messages set aside at most by handlers that weren't ready for them.
    pub stash_capacity: u32,
    /// How long a handler may run on after its call was cancelled, before it is dropped at an await.
    pub cancel_grace: Duration,
    /// A handler may be dropped at any await and the state is still good. Where this is false, a fresh agent takes over
    /// after a handler was dropped (if there is a factory to make one).
    pub cancel_safe: bool,
    /// A synchronous handler of an idle agent may run on the thread that asks. Say `false` for agents that block for long
    /// or need their own arbiter's thread.
    pub in_place: bool,
    /// A concurrent handler of an idle agent may begin on the thread that asks, and go on in the task that asks, if that
    /// has a tokio runtime: two wake-ups less. Say `true` for agents that hand a request on and wait for its answer. What
    /// has to outlast the asker's task and runtime, they must spawn on a runtime that does.
    pub in_place_concurrent: bool,
    /// How many restarts in which time are borne, for an agent without a supervisor of its own.
    pub restarts: Intensity,
    /// How long to wait before a restart.
    pub backoff: Backoff,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            mailbox_capacity: MAILBOX_CAPACITY_DEFAULT,
            turn_messages_max: TURN_MESSAGES_MAX_DEFAULT,
            stash_capacity: STASH_CAPACITY_DEFAULT,
            cancel_grace: CANCEL_GRACE_DEFAULT,
            cancel_safe: false,
            in_place: true,
            in_place_concurrent: false,
            restarts: Intensity::default(),
            backoff: Backoff::default(),
        }
    }
}

impl Profile {
    /// The same profile with another mailbox capacity, in messages.
    pub fn mailbox_capacity(mut self, messages: u32) -> Self {
        self.mailbox_capacity = messages;
        self
    }

    /// The same profile, promising that handlers are cancel-safe.
    pub fn cancel_safe(mut self) -> Self {
        self.cancel_safe = true;
        self
    }

    /// The same profile, with concurrent handlers in the tasks of those who ask, where that can be.
    pub fn with_askers(mut self) -> Self {
        self.in_place_concurrent = true;
        self
    }

    /// The same profile, always run on the agent's own arbiter.
    pub fn pinned(mut self) -> Self {
        self.in_place = false;
        self.in_place_concurrent = false;
        self
    }
}
