//! Telling those who are here that they have mail.

use std::sync::Arc;

use callboard_message::mail::Priority;
use callboard_message::{Change, Log, LogLevel};
use callboard_runtime::{Letter, PeerSession};
use serde_json::json;

use super::Shared;

/// What an agent's log lines about mail are told under.
const LOGGER: &str = "mail";

/// Who is told of new mail, and how.
pub(super) struct Told {
    pub(super) id: Arc<str>,
    pub(super) is_watched: bool,
    pub(super) unread: i64,
    pub(super) sessions: Vec<Arc<PeerSession>>,
}

/// The address of a member's inbox.
pub(super) fn inbox_uri(id: &str) -> String {
    format!("callboard://inbox/{id}")
}

impl Shared {
    /// Tells a member that it has mail; never a word of what it says.
    pub(super) fn tell_mail(&self, letter: &Letter, told: &Told) {
        if told.is_watched {
            self.changed(Change::Resource(inbox_uri(&told.id)));
        }
        let new = &letter.new;
        let priority = if new.urgent { Priority::Urgent } else { Priority::Normal };
        for session in &told.sessions {
            let data = json!({
                "message_id": new.id, "from": new.sender, "priority": priority, "unread": told.unread,
            });
            session.caller.log(Log::new(LogLevel::Notice, LOGGER, data));
        }
    }
}
