use std::sync::Arc;

use callboard_message::mail::EntryState;

use super::Letter;
use crate::journal::{JournalError, storable};

/// Something that happened to mail, as it is kept: with the letter, never with a word of it.
#[derive(Debug, Clone, PartialEq)]
pub enum StoredEvent {
    /// A letter was accepted. Its body is empty once its retention is over.
    Posted(Arc<Letter>),
    /// Recipients came so far with a letter.
    Marked {
        /// Its number.
        letter: u64,
        /// Its id.
        id: String,
        /// Who sent it.
        sender: String,
        /// Delivered or read.
        state: EntryState,
        /// Which recipients, by name.
        recipients: Vec<String>,
    },
    /// An agent has mail from now on: its id, and how mail comes to it.
    Joined(String, String),
    /// An agent is gone, and why.
    Left(String, String),
}

impl StoredEvent {
    /// Refuses what isn't told: what letters give rise to is kept with them.
    ///
    /// # Errors
    /// [`JournalError::Invalid`].
    pub fn check_told(&self) -> Result<(), JournalError> {
        match self {
            Self::Joined(agent, how) | Self::Left(agent, how) => storable(agent).and_then(|()| storable(how)),
            Self::Posted(_) | Self::Marked { .. } => Err(JournalError::Invalid("such an event comes with its letter")),
        }
    }
}
