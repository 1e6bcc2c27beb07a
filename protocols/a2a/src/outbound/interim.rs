//! What an agent says while its task is working: the answer of agents that give no other.

use std::collections::HashSet;

use super::error::PeerError;
use super::options::{EVENTS_MAX, HISTORY_MESSAGES_MAX};
use super::story::{bytes_of, text_of};
use crate::wire::{Message, Part, Role, TaskStatus};

/// Maximum number of interim messages of one call. One more is [`PeerError::TooLarge`]: an answer is never cut silently.
pub(super) const INTERIM_MESSAGES_MAX: usize = EVENTS_MAX as usize;

/// Messages of an agent that is working, in order, each once: their ids, roles and parts.
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

    /// Adds the message of a status. Returns the weight that was added, in bytes.
    ///
    /// # Errors
    /// [`PeerError::TooLarge`] beyond [`INTERIM_MESSAGES_MAX`].
    pub(super) fn add(&mut self, message: &Message) -> Result<usize, PeerError> {
        if message.role == Role::User || message.parts.is_empty() {
            return Ok(0);
        }
        // Most are new: only a known id is looked for.
        let is_new = message.message_id.is_empty() || self.ids.insert(message.message_id.clone());
        let known = if is_new { None } else { self.messages.iter_mut().rev().find(|known| has_id_of(known, message)) };
        match known {
            // It is told again, as far as it is written by now.
            Some(known) if is_longer(message, known) => *known = kept(message),
            _ => self.insert(self.messages.len(), message)?,
        }
        Ok(weight(message))
    }

    /// Adds what the last [`HISTORY_MESSAGES_MAX`] messages of a task's history have of the agent since the client's last
    /// message, without the message of `status`, which isn't over yet. Returns the weight that was added, in bytes.
    ///
    /// # Errors
    /// [`PeerError::TooLarge`] beyond [`INTERIM_MESSAGES_MAX`].
    pub(super) fn add_history(&mut self, history: &[Message], status: &TaskStatus) -> Result<usize, PeerError> {
        // An agent may send more than it was asked for.
        let asked_for = HISTORY_MESSAGES_MAX.unsigned_abs() as usize;
        let history = history.get(history.len().saturating_sub(asked_for)..).unwrap_or_default();
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
                    self.insert(place, message)?;
                    self.ids.insert(message.message_id.clone());
                    (place, added) = (place + 1, added + weight(message));
                }
            }
        }
        Ok(added)
    }

    fn insert(&mut self, place: usize, message: &Message) -> Result<(), PeerError> {
        if self.messages.len() >= INTERIM_MESSAGES_MAX {
            return Err(PeerError::TooLarge);
        }
        self.messages.insert(place.min(self.messages.len()), kept(message));
        Ok(())
    }
}

/// The members of a message that are kept: those that are weighed.
fn kept(message: &Message) -> Message {
    let Message { message_id, role, parts, .. } = message;
    Message { message_id: message_id.clone(), role: *role, parts: parts.clone(), ..Message::default() }
}

/// Memory that a kept message takes, in bytes. Its id is there twice.
fn weight(message: &Message) -> usize {
    let parts = message.parts.len() * size_of::<Part>() + bytes_of(&message.parts);
    size_of::<Message>() + 2 * message.message_id.len() + parts
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
