//! Synchronisation with other nodes on the same store: their messages, and their changes of
//! members.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use callboard_macros::Message;
use callboard_message::Failure;
use callboard_runtime::{Context, MAIL_PAGE_MAX, StoredMailEvent};
use parking_lot::Mutex;

use super::MailroomState;

/// Interval at which the store is checked for events of other nodes.
pub const PEER_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Interval at which unread messages are recounted on a store of one node, because messages expire.
pub const RECOUNT_INTERVAL: Duration = Duration::from_secs(3_600);
/// Interval at which unread messages are recounted on a store shared by several nodes, because
/// messages expire and are read at other nodes.
pub const SHARED_RECOUNT_INTERVAL: Duration = Duration::from_secs(60);

/// Timer message: check the store for events of other nodes.
#[derive(Debug, Message)]
#[message(name = "callboard.mail.look", fallible, local)]
pub(super) struct PollPeers;

/// Timer message: recount unread messages.
#[derive(Debug, Message)]
#[message(name = "callboard.mail.count", fallible, local)]
pub(super) struct RecountUnread;

/// Position up to which this node has processed the stored events, to find those of other nodes on
/// a shared store.
#[derive(Default)]
pub(super) struct PeerEventCursor {
    /// Number of the last event that was processed; `None` until the mailroom has started.
    last_event: tokio::sync::Mutex<Option<u64>>,
    /// Ids of this node's own messages whose events haven't been processed. These events are
    /// skipped, because their recipients were notified when the message was posted.
    own_messages: Mutex<HashSet<String>>,
}

impl MailroomState {
    /// Records the id of a message that this node is about to post, so that its stored event is
    /// skipped. Has no effect unless the store is shared.
    pub fn expect_own(&self, id: &str) {
        if self.mail.is_shared() {
            self.peer_events.own_messages.lock().insert(id.to_owned());
        }
    }

    /// Removes the id of a message that wasn't posted after all.
    pub fn forget_own(&self, id: &str) {
        self.peer_events.own_messages.lock().remove(id);
    }

    /// Sets the position to the latest stored event. Called once, at the start of the mailroom.
    pub async fn start_cursor(&self) -> Result<(), callboard_runtime::JournalError> {
        *self.peer_events.last_event.lock().await = Some(self.mail.last_event().await?);
        Ok(())
    }

    pub async fn poll_peers(self: &Arc<Self>, _: PollPeers, cx: &Context) -> Result<(), Failure> {
        // A second, concurrent poll is not needed.
        let Ok(mut processed) = self.peer_events.last_event.try_lock() else {
            return Ok(());
        };
        let Some(mut after) = *processed else {
            return Ok(());
        };
        loop {
            let page = self.mail.events(after, MAIL_PAGE_MAX).await?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            after = *last;
            for (number, event) in page {
                match event {
                    // The delivery queue reads the message from the store.
                    StoredMailEvent::Posted(letter)
                        if !self.peer_events.own_messages.lock().remove(&letter.new.id) =>
                    {
                        self.notify_recipients(&letter, |line, outgoing| {
                            line.notify_stored(outgoing.letter.number)
                        });
                    }
                    StoredMailEvent::Joined(id, _) | StoredMailEvent::Left(id, _) => {
                        self.reload_member(&id).await?;
                        // The member may have been resumed.
                        let is_still_here = self.members().get_mut(&id).is_some_and(|member| {
                            self.open_queue(cx.system(), member);
                            member.is_gone && member.declared_groups.is_some()
                        });
                        if is_still_here {
                            // It was removed from another node's configuration, but is declared in
                            // this one.
                            self.store_declared(&id, true).await?;
                        }
                    }
                    StoredMailEvent::Posted(_) | StoredMailEvent::ReceiptsUpdated { .. } => {}
                }
                // Set after each event, so that processed events aren't repeated if the next one
                // fails.
                *processed = Some(number);
            }
            self.receipts.notify_events();
        }
    }

    pub async fn recount_unread(&self, _: RecountUnread, _: &Context) -> Result<(), Failure> {
        let before: Vec<(Arc<str>, i64)> = self
            .members()
            .all_mut()
            .map(|member| (member.id.clone(), member.unread))
            .collect();
        let waiting = self.mail.unread_counts().await?;
        for (id, before) in before {
            let now = waiting
                .get(&*id)
                .map_or(0, |now| i64::try_from(*now).unwrap_or(i64::MAX));
            // If messages arrived or were read meanwhile, they may be in both counts: the next
            // recount corrects it.
            if let Some(member) = self
                .members()
                .get_mut(&id)
                .filter(|member| member.unread == before)
            {
                member.unread = now;
            }
        }
        Ok(())
    }
}
