//! Shared registries of a system: names, topics and dead letters.

use std::any::{Any, TypeId};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use callboard_message::{CapabilityChange, Message};
use dashmap::DashMap;
use dashmap::mapref::entry::Entry as MapEntry;
use serde::Serialize;

use crate::agent::AgentId;
use crate::handle::{AgentRef, Recipient, SendError};
use crate::sync::Mutex;

/// Default group in which an agent is visible.
pub const GROUP_DEFAULT: &str = "everyone";

/// Directory of agents by exact name. Groups restrict visibility: a lookup for a group finds only
/// agents of that group. An agent without groups is found only by [`Directory::get`].
#[derive(Default)]
pub struct Directory {
    names: DashMap<Arc<str>, DirectoryEntry>,
    by_id: DashMap<AgentId, Vec<Arc<str>>>,
}

struct DirectoryEntry {
    agent: AgentRef,
    groups: BTreeSet<Arc<str>>,
}

/// Error of registering a name that another living agent has. Choose another name, or stop that
/// agent first.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the agent name {name:?} is taken: choose another, or stop the agent that has it")]
pub struct NameTakenError {
    /// The requested name.
    pub name: String,
}

impl Directory {
    /// Registers `agent` under `name`, visible to [`GROUP_DEFAULT`], as [`Self::register_in`].
    ///
    /// # Errors
    /// [`NameTakenError`] if another living agent has the name.
    pub fn register(
        &self,
        name: impl Into<Arc<str>>,
        agent: &AgentRef,
    ) -> Result<(), NameTakenError> {
        self.register_in(name, agent, [GROUP_DEFAULT])
    }

    /// Registers `agent` under `name`, visible only to `groups`; they replace those of an earlier
    /// registration. The entry is removed when the agent ends.
    ///
    /// # Errors
    /// [`NameTakenError`] if another living agent has the name.
    pub fn register_in<'a>(
        &self,
        name: impl Into<Arc<str>>,
        agent: &AgentRef,
        groups: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), NameTakenError> {
        let name = name.into();
        match self.names.entry(name.clone()) {
            MapEntry::Occupied(taken) if taken.get().agent != *agent => {
                return Err(NameTakenError {
                    name: name.to_string(),
                });
            }
            entry => {
                let groups = groups.into_iter().map(Arc::from).collect();
                entry.insert(DirectoryEntry {
                    agent: agent.clone(),
                    groups,
                });
            }
        }
        let mut names = self.by_id.entry(agent.id()).or_default();
        if !names.contains(&name) {
            names.push(name);
        }
        drop(names);
        if agent.0.exit().is_some() {
            self.forget(agent.id());
        }
        Ok(())
    }

    /// Returns the agent with this exact name, whatever its groups.
    pub fn get(&self, name: &str) -> Option<AgentRef> {
        self.names.get(name).map(|listed| listed.agent.clone())
    }

    /// Returns the agent with this exact name if it is visible to `group`.
    pub fn find(&self, group: &str, name: &str) -> Option<AgentRef> {
        self.names
            .get(name)
            .filter(|listed| listed.groups.contains(group))
            .map(|listed| listed.agent.clone())
    }

    /// Removes all names of `agent`. Existing handles to it stay usable.
    pub fn unregister(&self, agent: &AgentRef) {
        self.forget(agent.id());
    }

    pub(crate) fn forget(&self, id: AgentId) {
        for name in self
            .by_id
            .remove(&id)
            .map(|(_, names)| names)
            .unwrap_or_default()
        {
            self.names
                .remove_if(&name, |_, listed| listed.agent.id() == id);
        }
    }
}

type TopicKey = (TypeId, Arc<str>);

/// Publish/subscribe bus. The events of a topic are messages of one type that have no reply.
#[derive(Default)]
pub struct EventBus {
    /// Subscribers by topic and event type. Each value is a `Vec<Recipient<E>>` for the key's event
    /// type `E`.
    topics: DashMap<TopicKey, Box<dyn Any + Send + Sync>>,
}

/// Result of publishing an event: how many subscribers got it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PublishReport {
    /// Number of subscribers whose mailbox accepted the event.
    pub delivered: usize,
    /// Number of subscribers that missed the event because their mailbox was full.
    pub missed: usize,
}

impl EventBus {
    /// Sends the events of `topic` to `subscriber` until that agent ends or unsubscribes.
    /// Subscribing again has no effect.
    pub fn subscribe<E: Message<Reply = ()> + Clone>(&self, topic: &str, subscriber: Recipient<E>) {
        let mut topic = self
            .topics
            .entry(topic_key::<E>(topic))
            .or_insert_with(|| Box::new(Vec::<Recipient<E>>::new()));
        if let Some(subscribers) = topic.downcast_mut::<Vec<Recipient<E>>>()
            && subscribers.iter().all(|s| s.id() != subscriber.id())
        {
            subscribers.push(subscriber);
        }
    }

    /// Removes the subscription of the agent `subscriber` to `topic`.
    pub fn unsubscribe<E: Message<Reply = ()> + Clone>(&self, topic: &str, subscriber: AgentId) {
        if let Some(mut topic) = self.topics.get_mut(&topic_key::<E>(topic))
            && let Some(subscribers) = topic.downcast_mut::<Vec<Recipient<E>>>()
        {
            subscribers.retain(|s| s.id() != subscriber);
        }
    }

    /// Sends `event` to the subscribers of `topic` without waiting for them.
    pub fn publish<E: Message<Reply = ()> + Clone>(&self, topic: &str, event: &E) -> PublishReport {
        let key = topic_key::<E>(topic);
        let subscribers = self
            .topics
            .get(&key)
            .and_then(|t| t.downcast_ref::<Vec<Recipient<E>>>().cloned());
        let mut published = PublishReport::default();
        for subscriber in subscribers.unwrap_or_default() {
            match subscriber.try_tell(event.clone()) {
                Ok(()) => published.delivered += 1,
                Err(SendError::Full { .. }) => published.missed += 1,
                Err(_) => self.unsubscribe::<E>(topic, subscriber.id()),
            }
        }
        published
    }
}

fn topic_key<E: 'static>(topic: &str) -> TopicKey {
    (TypeId::of::<E>(), Arc::from(topic))
}

/// Notification that an agent's tools, prompts or resources have changed. See [`AgentRef::follow`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentChanged {
    /// Id of the agent that changed.
    pub agent: AgentId,
    /// Kind of change: tools, prompts or resources.
    pub change: CapabilityChange,
}

impl Message for AgentChanged {
    type Reply = ();
    const NAME: &'static str = "callboard.changed";
}

impl AgentChanged {
    pub(crate) fn publish(agent: &AgentRef, change: CapabilityChange) {
        agent.system().events().publish(
            &change_topic(agent),
            &Self {
                agent: agent.id(),
                change,
            },
        );
    }
}

impl AgentRef {
    /// Sends each [`AgentChanged`] of this agent to `follower`, until that follower ends or
    /// [`AgentRef::unfollow`] is called. A follower whose mailbox is full misses it.
    pub fn follow(&self, follower: Recipient<AgentChanged>) {
        self.system()
            .events()
            .subscribe(&change_topic(self), follower);
    }

    /// Stops sending changes of this agent to `follower`.
    pub fn unfollow(&self, follower: AgentId) {
        self.system()
            .events()
            .unsubscribe::<AgentChanged>(&change_topic(self), follower);
    }
}

fn change_topic(agent: &AgentRef) -> String {
    format!("changed:{}", agent.id())
}

/// Maximum number of dead letters kept for inspection. Older ones are dropped but counted.
pub const DEAD_LETTERS_KEPT_MAX: usize = 1_000;

/// Message that a mailbox accepted but no handler received.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeadLetter {
    /// Id of the agent that the message was for.
    pub to: AgentId,
    /// Name of the message; never its content.
    pub message: &'static str,
    /// Reason for which the message wasn't delivered.
    pub why: &'static str,
}

/// Count of undeliverable messages of a system, with the latest of them.
#[derive(Default)]
pub struct DeadLetters {
    count: AtomicU64,
    latest: Mutex<VecDeque<DeadLetter>>,
}

impl DeadLetters {
    /// Returns the number of dead letters since the start.
    pub fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// Returns the latest dead letters, oldest first; at most [`DEAD_LETTERS_KEPT_MAX`].
    pub fn latest(&self) -> Vec<DeadLetter> {
        self.latest.lock().iter().cloned().collect()
    }

    pub(crate) fn record(&self, to: AgentId, message: &'static str, why: &'static str) {
        self.count.fetch_add(1, Relaxed);
        callboard_message::log::debug!(%to, message, why, "dead letter");
        let mut latest = self.latest.lock();
        if latest.len() == DEAD_LETTERS_KEPT_MAX {
            latest.pop_front();
        }
        latest.push_back(DeadLetter { to, message, why });
    }
}
