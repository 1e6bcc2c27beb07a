//! Messages of an agent that is working: the answer of agents that give no other.

use std::collections::HashSet;

use super::story::{bytes_of, text_of};
use crate::wire::{Message, Role, TaskStatus};

/// Messages of an agent that is working, in order, each once.
#[derive(Default)]
pub(super) struct InterimMessages {
    messages: Vec<Message>,
    /// Their ids.
    ids: HashSet<String>,
}

impl InterimMessages {
    pub(super) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Adds the message of a status. Returns the bytes that were added.
    pub(super) fn add(&mut self, message: &Message) -> usize {
        if message.role == Role::User || message.parts.is_empty() {
            return 0;
        }
        // Most are new: only a known id is looked for.
        let is_new = message.message_id.is_empty() || self.ids.insert(message.message_id.clone());
        let known = if is_new { None } else { self.messages.iter_mut().rev().find(|known| has_id_of(known, message)) };
        match known {
            // It is told again, as far as it is written by now.
            Some(known) if is_longer(message, known) => *known = message.clone(),
            _ => self.messages.push(message.clone()),
        }
        bytes_of(&message.parts)
    }

    /// Adds what a task's history has of the agent since the client's last message, without the message of `status`,
    /// which isn't over yet. Returns the bytes that were added.
    pub(super) fn add_history(&mut self, history: &[Message], status: &TaskStatus) -> usize {
        let begin = history.iter().rposition(|said| said.role == Role::User).map_or(0, |at| at + 1);
        let current = status.message.as_ref();
        let (mut place, mut added) = (0, 0);
        for message in history.get(begin..).unwrap_or_default() {
            if message.parts.is_empty() || current.is_some_and(|current| is_same(current, message)) {
                continue;
            }
            match self.messages.iter().position(|known| is_same(known, message)) {
                Some(at) => place = at + 1,
                None => {
                    self.ids.insert(message.message_id.clone());
                    self.messages.insert(place.min(self.messages.len()), message.clone());
                    (place, added) = (place + 1, added + bytes_of(&message.parts));
                }
            }
        }
        added
    }
}

/// Whether `message` begins with all the words of `known`, which has some.
fn is_longer(message: &Message, known: &Message) -> bool {
    let words = text_of(known);
    !words.is_empty() && text_of(message).starts_with(&words)
}

fn has_id_of(one: &Message, other: &Message) -> bool {
    !one.message_id.is_empty() && one.message_id == other.message_id
}

fn is_same(one: &Message, other: &Message) -> bool {
    let lacks_id = one.message_id.is_empty() || other.message_id.is_empty();
    has_id_of(one, other) || lacks_id && one.parts == other.parts
}
