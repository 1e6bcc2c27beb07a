//! Shared registries of a system: names, topics, followers of changes, and dead letters.

use std::any::{Any, TypeId};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use callboard_message::{Change, Message};
use dashmap::DashMap;
use dashmap::mapref::entry::Entry as MapEntry;
use serde::Serialize;

use crate::agent::AgentId;
use crate::handle::{AgentRef, Recipient, SendError};
use crate::sync::Mutex;

/// The group that an agent is visible in unless it says otherwise.
pub const GROUP_DEFAULT: &str = "everyone";

/// Which agents exist under which exact names, and who may see them.
///
/// Visibility is by group: whoever looks on behalf of a group sees the agents of that group and no other. An agent in no
/// group is found by its exact name only by the system itself ([`Directory::get`]): a silo.
#[derive(Default)]
pub struct Directory {
    names: DashMap<Arc<str>, Listed>,
    by_id: DashMap<AgentId, Vec<Arc<str>>>,
}

struct Listed {
    agent: AgentRef,
    groups: BTreeSet<Arc<str>>,
}

/// Another agent has that name. Choose another, or stop that one first.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the name {name} is taken")]
pub struct NameTaken {
    /// The name.
    pub name: String,
}

impl Directory {
    /// Lists `agent` under `name`, visible to [`GROUP_DEFAULT`]. It is taken off when the agent ends.
    ///
    /// # Errors
    /// Where another living agent has that name.
    pub fn register(&self, name: impl Into<Arc<str>>, agent: &AgentRef) -> Result<(), NameTaken> {
        self.register_in(name, agent, [GROUP_DEFAULT])
    }

    /// As [`Directory::register`], visible to `groups` only.
    ///
    /// # Errors
    /// Where another living agent has that name.
    pub fn register_in<'a>(
        &self,
        name: impl Into<Arc<str>>,
        agent: &AgentRef,
        groups: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), NameTaken> {
        let name = name.into();
        match self.names.entry(name.clone()) {
            MapEntry::Occupied(taken) if taken.get().agent != *agent => {
                return Err(NameTaken {
                    name: name.to_string(),
                });
            }
            entry => {
                let groups = groups.into_iter().map(Arc::from).collect();
                entry.insert(Listed {
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

    /// The agent of exactly this name, for the system's own use.
    pub fn get(&self, name: &str) -> Option<AgentRef> {
        self.names.get(name).map(|listed| listed.agent.clone())
    }

    /// The agent of exactly this name, if `group` may see it.
    pub fn find(&self, group: &str, name: &str) -> Option<AgentRef> {
        self.names
            .get(name)
            .filter(|listed| listed.groups.contains(group))
            .map(|listed| listed.agent.clone())
    }

    /// Takes `agent` off: nobody finds it any more, and whoever has a handle can still use it.
    pub fn withdraw(&self, agent: &AgentRef) {
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

type Key = (TypeId, Arc<str>);

/// Publish and subscribe by topic. A topic's events are messages of one type without a reply.
#[derive(Default)]
pub struct Events {
    /// Each value is a `Vec<Recipient<E>>` of the key's `E`.
    topics: DashMap<Key, Box<dyn Any + Send + Sync>>,
}

/// Whom an event reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Published {
    /// Subscribers whose mailbox took it.
    pub delivered: usize,
    /// Subscribers whose mailbox was full: they miss this one, nobody waits for them.
    pub missed: usize,
}

impl Events {
    /// Sends the events of `topic` to `subscriber`, once however often it subscribes, until it ends or unsubscribes.
    pub fn subscribe<E: Message<Reply = ()> + Clone>(&self, topic: &str, subscriber: Recipient<E>) {
        let mut topic = self
            .topics
            .entry(key::<E>(topic))
            .or_insert_with(|| Box::new(Vec::<Recipient<E>>::new()));
        if let Some(subscribers) = topic.downcast_mut::<Vec<Recipient<E>>>()
            && subscribers.iter().all(|s| s.id() != subscriber.id())
        {
            subscribers.push(subscriber);
        }
    }

    /// Ends a subscription.
    pub fn unsubscribe<E: Message<Reply = ()> + Clone>(&self, topic: &str, subscriber: AgentId) {
        if let Some(mut topic) = self.topics.get_mut(&key::<E>(topic))
            && let Some(subscribers) = topic.downcast_mut::<Vec<Recipient<E>>>()
        {
            subscribers.retain(|s| s.id() != subscriber);
        }
    }

    /// Sends `event` to whoever subscribed to `topic`, without waiting for anyone.
    pub fn publish<E: Message<Reply = ()> + Clone>(&self, topic: &str, event: &E) -> Published {
        let key = key::<E>(topic);
        let subscribers = self
            .topics
            .get(&key)
            .and_then(|t| t.downcast_ref::<Vec<Recipient<E>>>().cloned());
        let mut published = Published::default();
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

fn key<E: 'static>(topic: &str) -> Key {
    (TypeId::of::<E>(), Arc::from(topic))
}

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
        agent.system().events().publish(
            &topic(agent),
            &Self {
                agent: agent.id(),
                change,
            },
        );
    }
}

impl AgentRef {
    /// Sends `follower` every [`Changed`] of this agent, until it ends or [`AgentRef::unfollow`]s.
    pub fn follow(&self, follower: Recipient<Changed>) {
        self.system().events().subscribe(&topic(self), follower);
    }

    /// Ends it.
    pub fn unfollow(&self, follower: AgentId) {
        self.system()
            .events()
            .unsubscribe::<Changed>(&topic(self), follower);
    }
}

fn topic(agent: &AgentRef) -> String {
    format!("changed:{}", agent.id())
}

/// Dead letters kept for people to look at; older ones are only counted.
pub const DEAD_LETTERS_KEPT_MAX: usize = 1_000;

/// An accepted message that no handler got.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeadLetter {
    /// The agent that it was for.
    pub to: AgentId,
    /// The message's name; never its content.
    pub message: &'static str,
    /// Why it wasn't delivered.
    pub why: &'static str,
}

/// What could not be delivered: counted, and the latest kept.
#[derive(Default)]
pub struct DeadLetters {
    count: AtomicU64,
    latest: Mutex<VecDeque<DeadLetter>>,
}

impl DeadLetters {
    /// How many there have been.
    pub fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// The latest, oldest first; at most [`DEAD_LETTERS_KEPT_MAX`].
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
