use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use callboard_message::Message;

use super::AgentRef;
use super::ask::{Ask, Tell};
use crate::agent::Agent;
use crate::system::System;

/// Strategy for choosing a pool member for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolStrategy {
    /// Members get messages in turn.
    RoundRobin,
    /// The member with the fewest waiting messages and suspended handlers gets the message. Equal
    /// ones take turns.
    LeastLoaded,
}

/// Group of agents of one type that share the load. Each member has its own mailbox and is
/// restarted on its own.
///
/// Messages keep their order only within a member. Send messages that must stay in order by
/// [`Pool::for_key`].
#[derive(Debug)]
pub struct Pool {
    members: Vec<AgentRef>,
    strategy: PoolStrategy,
    next: AtomicUsize,
}

impl Pool {
    /// Spawns `size` agents (at least 1), distributed over the system's arbiters.
    pub fn spawn<A: Agent>(
        system: &System,
        size: usize,
        strategy: PoolStrategy,
        factory: impl Fn() -> A + Clone + Send + Sync + 'static,
    ) -> Self {
        let members = (0..size.max(1))
            .map(|_| system.spawn_with(factory.clone()))
            .collect();
        Self {
            members,
            strategy,
            next: AtomicUsize::new(0),
        }
    }

    /// Returns all members, including those that have ended.
    pub fn members(&self) -> &[AgentRef] {
        &self.members
    }

    /// Returns the next member by the pool's strategy. Skips members that have ended, unless all
    /// have.
    pub fn next_member(&self) -> &AgentRef {
        let first = self.next.fetch_add(1, Relaxed) % self.members.len();
        let in_turn = || self.members[first..].iter().chain(&self.members[..first]);
        let alive = || in_turn().filter(|member| member.0.exit().is_none());
        let chosen = match self.strategy {
            PoolStrategy::RoundRobin => alive().next(),
            PoolStrategy::LeastLoaded => alive().min_by_key(|member| member.0.load()),
        };
        chosen.unwrap_or(&self.members[first])
    }

    /// Returns the member for `key`: the same one for equal keys as long as it is alive, afterwards
    /// another (rendezvous hashing).
    pub fn for_key(&self, key: &impl Hash) -> &AgentRef {
        // Rendezvous hashing: if a member ends, only its keys move.
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        let weight = |member: &&AgentRef| hasher.hash_one((hasher.hash_one(key), member.id().0));
        let alive = self
            .members
            .iter()
            .filter(|member| member.0.exit().is_none());
        alive.max_by_key(weight).unwrap_or(&self.members[0])
    }

    /// Sends a message to the next member, as [`AgentRef::tell`].
    pub fn tell<M: Message>(&self, message: M) -> Tell<'_, M, AgentRef> {
        self.next_member().tell(message)
    }

    /// Sends a message to the next member and resolves to its reply, as [`AgentRef::ask`].
    pub fn ask<M: Message>(&self, message: M) -> Ask<'_, M, AgentRef> {
        self.next_member().ask(message)
    }
}
