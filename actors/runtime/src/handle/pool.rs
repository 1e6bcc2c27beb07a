use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use callboard_message::Message;

use super::AgentRef;
use super::ask::{Ask, Tell};
use crate::agent::Agent;
use crate::system::System;

/// How a pool chooses the member for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// One after the other.
    RoundRobin,
    /// The one with the fewest messages waiting and handlers suspended; among equals they take turns.
    LeastLoaded,
}

/// Agents of one type that share the work. Each is an agent like any other, with a mailbox and restarts of its own.
///
/// Order holds for each member only: where messages that belong together must stay in order, send them by
/// [`Pool::for_key`].
#[derive(Debug)]
pub struct Pool {
    members: Vec<AgentRef>,
    choice: Choice,
    next: AtomicUsize,
}

impl Pool {
    /// Spawns `size` agents (at least 1), spread over the system's arbiters.
    pub fn spawn<A: Agent>(
        system: &System,
        size: usize,
        choice: Choice,
        factory: impl Fn() -> A + Clone + Send + Sync + 'static,
    ) -> Self {
        let members = (0..size.max(1))
            .map(|_| system.spawn_with(factory.clone()))
            .collect();
        Self {
            members,
            choice,
            next: AtomicUsize::new(0),
        }
    }

    /// Its members, those that have ended too.
    pub fn members(&self) -> &[AgentRef] {
        &self.members
    }

    /// The member whose turn it is. One that has ended is passed over while another lives.
    pub fn member(&self) -> &AgentRef {
        let first = self.next.fetch_add(1, Relaxed) % self.members.len();
        let in_turn = || self.members[first..].iter().chain(&self.members[..first]);
        let alive = || in_turn().filter(|member| member.0.exit().is_none());
        let chosen = match self.choice {
            Choice::RoundRobin => alive().next(),
            Choice::LeastLoaded => alive().min_by_key(|member| member.0.load()),
        };
        chosen.unwrap_or(&self.members[first])
    }

    /// The member for `key`: always the same one, as long as it lives; then always the same other.
    pub fn for_key(&self, key: &impl Hash) -> &AgentRef {
        // Rendezvous hashing: only the keys of a member that ended move.
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        let weight = |member: &&AgentRef| hasher.hash_one((hasher.hash_one(key), member.id().0));
        let alive = self
            .members
            .iter()
            .filter(|member| member.0.exit().is_none());
        alive.max_by_key(weight).unwrap_or(&self.members[0])
    }

    /// [`AgentRef::tell`] of the member whose turn it is.
    pub fn tell<M: Message>(&self, message: M) -> Tell<'_, M, AgentRef> {
        self.member().tell(message)
    }

    /// [`AgentRef::ask`] of the member whose turn it is.
    pub fn ask<M: Message>(&self, message: M) -> Ask<'_, M, AgentRef> {
        self.member().ask(message)
    }
}
