//! Synchronisation with other nodes on the same store: their messages, and their changes of
//! members.

use std::sync::Arc;
use std::time::Duration;

use callboard_macros::Message;
use callboard_message::Failure;
use callboard_runtime::{Context, JournalError, MAIL_PAGE_MAX, MailStore, StoredMailEvent};

use super::delivery::DeliveryService;
use super::members::directory::MemberDirectory;
use super::post::PostService;

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

/// Processes the stored events of other nodes on a shared store.
pub(super) struct PeerSync {
    pub mail: Arc<dyn MailStore>,
    pub directory: Arc<MemberDirectory>,
    pub post: Arc<PostService>,
    pub deliveries: Arc<DeliveryService>,
    /// Number of the last event that was processed; `None` until the mailroom has started.
    pub last_event: tokio::sync::Mutex<Option<u64>>,
}

impl PeerSync {
    /// Sets the position to the latest stored event. Called once, at the start of the mailroom.
    pub async fn start_cursor(&self) -> Result<(), JournalError> {
        *self.last_event.lock().await = Some(self.mail.last_event().await?);
        Ok(())
    }

    pub async fn poll_peers(self: Arc<Self>, _: PollPeers, cx: Context) -> Result<(), Failure> {
        // A second, concurrent poll is not needed.
        let Ok(mut processed) = self.last_event.try_lock() else {
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
                        if !self.post.own_messages.lock().remove(&letter.new.id) =>
                    {
                        self.post.notify_recipients(&letter, |line, outgoing| {
                            line.notify_stored(outgoing.letter.number)
                        });
                    }
                    StoredMailEvent::Joined(id, _) | StoredMailEvent::Left(id, _) => {
                        self.directory.reload_member(&id).await?;
                        // The member may have been resumed.
                        let is_still_here =
                            self.directory.members().get_mut(&id).is_some_and(|member| {
                                self.deliveries.open_queue(cx.system(), member);
                                member.is_gone && member.declared_groups.is_some()
                            });
                        if is_still_here {
                            // It was removed from another node's configuration, but is declared in
                            // this one.
                            self.directory.store_declared(&id, true).await?;
                        }
                    }
                    StoredMailEvent::Posted(_) | StoredMailEvent::ReceiptsUpdated { .. } => {}
                }
                // Set after each event, so that processed events aren't repeated if the next one
                // fails.
                *processed = Some(number);
            }
            self.post.receipts.notify_events();
        }
    }

    pub async fn recount_unread(
        self: Arc<Self>,
        _: RecountUnread,
        _: Context,
    ) -> Result<(), Failure> {
        let before: Vec<(Arc<str>, i64)> = self
            .directory
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
                .directory
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
