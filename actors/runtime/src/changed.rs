//! What agents show to others changes; those who follow them are told.

use callboard_message::{Change, Message};

use crate::agent_ref::{AgentRef, Recipient};
use crate::ids::AgentId;

/// An agent's tools, prompts or resources changed. See [`AgentRef::follow`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// Whose.
    pub agent: AgentId,
    /// What.
    pub change: Change,
}

impl Message for Changed {
    type Reply = ();
    const NAME: &'static str = "callboard.changed";
}

impl Changed {
    pub(crate) fn publish(agent: &AgentRef, change: Change) {
        agent.system().events().publish(&topic(agent), &Self { agent: agent.id(), change });
    }
}

impl AgentRef {
    /// Sends `follower` every [`Changed`] of this agent, until it ends or [`AgentRef::unfollow`]s.
    pub fn follow(&self, follower: Recipient<Changed>) {
        self.system().events().subscribe(&topic(self), follower);
    }

    /// Ends it.
    pub fn unfollow(&self, follower: AgentId) {
        self.system().events().unsubscribe::<Changed>(&topic(self), follower);
    }
}

fn topic(agent: &AgentRef) -> String {
    format!("changed:{}", agent.id())
}
