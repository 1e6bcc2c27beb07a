//! What other nodes do on the same store: letters that they take, members that they see come and go.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use callboard_macros::Message;
use callboard_message::Failure;
use callboard_runtime::{Cx, MAIL_PAGE_MAX, StoredEvent};
use parking_lot::Mutex;

use super::Shared;

/// How often it is looked what other nodes did.
pub const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often unread messages are counted anew: some expire.
pub const COUNT_EVERY: Duration = Duration::from_secs(3_600);
/// The same where members of other nodes read theirs.
pub const COUNT_SHARED_EVERY: Duration = Duration::from_secs(60);

/// Look what others did.
#[derive(Debug, Message)]
#[message(name = "callboard.mail.look", fallible, local)]
pub(super) struct Look;

/// Count what isn't read.
#[derive(Debug, Message)]
#[message(name = "callboard.mail.count", fallible, local)]
pub(super) struct Count;

/// How far it was looked, and what of the rest is this node's own.
#[derive(Default)]
pub(super) struct Elsewhere {
    /// The number of the last event that was looked at, once it is known.
    looked: tokio::sync::Mutex<Option<u64>>,
    /// Ids of letters that this node took, until their events are looked at.
    own: Mutex<HashSet<String>>,
}

impl Shared {
    /// This node is about to take a letter.
    pub fn takes(&self, id: &str) {
        if self.mail.is_shared() {
            self.elsewhere.own.lock().insert(id.to_owned());
        }
    }

    /// It didn't after all.
    pub fn took_none(&self, id: &str) {
        self.elsewhere.own.lock().remove(id);
    }

    /// It was begun from what there was up to now.
    pub async fn begun(&self) -> Result<(), callboard_runtime::JournalError> {
        *self.elsewhere.looked.lock().await = Some(self.mail.last_event().await?);
        Ok(())
    }

    pub async fn look_elsewhere(self: &Arc<Self>, _: Look, cx: &Cx) -> Result<(), Failure> {
        // One that finds another looking isn't needed.
        let Ok(mut looked) = self.elsewhere.looked.try_lock() else {
            return Ok(());
        };
        let Some(mut after) = *looked else {
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
                    // Whoever gets its mail here gets it from the store.
                    StoredEvent::Posted(letter)
                        if !self.elsewhere.own.lock().remove(&letter.new.id) =>
                    {
                        self.tell_recipients(&letter, |line, handed| {
                            line.look(handed.letter.number)
                        });
                    }
                    StoredEvent::Joined(id, _) | StoredEvent::Left(id, _) => {
                        self.recall_one(&id).await?;
                        // It may be back.
                        let is_still_here = self.members().get_mut(&id).is_some_and(|member| {
                            self.open_line(cx.system(), member);
                            member.is_gone && member.declared.is_some()
                        });
                        if is_still_here {
                            // It was taken out of another node's file.
                            self.keep_declared(&id, true).await?;
                        }
                    }
                    StoredEvent::Posted(_) | StoredEvent::Marked { .. } => {}
                }
                // At each: what is done isn't done again where the next can't be.
                *looked = Some(number);
            }
            self.marks.happened();
        }
    }

    pub async fn count(&self, _: Count, _: &Cx) -> Result<(), Failure> {
        let before: Vec<(Arc<str>, i64)> = self
            .members()
            .all_mut()
            .map(|member| (member.id.clone(), member.unread))
            .collect();
        let waiting = self.mail.waiting().await?;
        for (id, before) in before {
            let now = waiting
                .get(&*id)
                .map_or(0, |now| i64::try_from(*now).unwrap_or(i64::MAX));
            // Where some came or were read meanwhile, they may be in both counts: the next time will do.
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
