use std::any::{Any, TypeId};
use std::sync::Arc;

use callboard_message::Message;
use dashmap::DashMap;

use crate::agent_ref::Recipient;
use crate::error::SendError;
use crate::ids::AgentId;

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
        let mut topic = self.topics.entry(key::<E>(topic)).or_insert_with(|| Box::new(Vec::<Recipient<E>>::new()));
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
        let subscribers = self.topics.get(&key).and_then(|t| t.downcast_ref::<Vec<Recipient<E>>>().cloned());
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
