//! Acceptance of messages: a draft is stored, deduplicated, and passed on to its recipients.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use callboard_message::Failure;
use callboard_message::mail::SendReceipt;
use callboard_runtime::{MailMessage, MailMessageFilter, NodeEvent};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::draft::{Draft, QuotaUse, sent_time};
use super::{PostService, broadcast_text};
use crate::members::identity::MemberIdentity;
use crate::members::queue::DeliveryQueue;

/// Number of a sender's latest messages that are searched for an earlier message with the same
/// idempotency key. An older one isn't found, and the new message isn't recognised as its
/// repetition.
const DUPLICATE_SCAN_MAX: usize = 256;

impl PostService {
    /// Stores a message and dispatches it to its recipients. If the sender has already sent the
    /// same message with the same idempotency key, nothing is stored and the receipt of the earlier
    /// message is returned.
    ///
    /// # Errors
    /// `Rejected` if the key was used for another message, the failure of the rate limit if the
    /// draft's quota is [`QuotaUse::OnlyDuplicate`] and there is no earlier message, and failures
    /// of the store.
    pub async fn post_message(
        self: &Arc<Self>,
        identity: &MemberIdentity,
        mut draft: Draft,
    ) -> Result<SendReceipt, Failure> {
        if let QuotaUse::OnlyDuplicate(_) = draft.quota {
            return self
                .duplicate_or(identity, draft, SendReceipt::default())
                .await;
        }
        draft.new.id = Uuid::now_v7().to_string();
        draft.new.expires = sent_time(&draft.new.id) + draft.lifetime;
        let again = draft.new.key.is_some().then(|| draft.clone());
        let Draft {
            new,
            full_mailboxes: refused,
            ..
        } = draft;
        self.expect_own(&new.id);
        let room = self.clone();
        let (answer, posted) = oneshot::channel();
        // Stored in a task of its own, so that a sender that cancels its call doesn't keep an
        // accepted message from its recipients.
        tokio::spawn(async move {
            let id = new.id.clone();
            let posted = room.mail.post(new).await;
            // The sender gets its receipt before the message is dispatched, which takes long for
            // many recipients.
            let _ = answer.send(posted.clone());
            match posted {
                Ok(letter) if letter.is_new => room.dispatch(&letter),
                _ => room.forget_own(&id),
            }
        });
        let letter = posted
            .await
            .map_err(|_| Failure::internal("storing the message was interrupted, it may be stored: look into your sent messages before you send it again"))??;
        match again.filter(|_| !letter.is_new) {
            Some(again) => {
                let sent = self.duplicate_receipt(&letter, &again)?;
                self.refund_quota(identity, &again.quota);
                Ok(sent)
            }
            None => Ok(self.send_receipt(&letter, refused)),
        }
    }

    /// Returns the receipt of an earlier message of the sender with the same content and
    /// idempotency key. If there is none, returns `nobody`, the error receipt of the draft.
    ///
    /// # Errors
    /// Fails like [`Self::find_duplicate`]. Fails with the rate limit's failure if there is no
    /// earlier message and the draft's quota is [`QuotaUse::OnlyDuplicate`].
    pub async fn duplicate_or(
        &self,
        identity: &MemberIdentity,
        draft: Draft,
        nobody: SendReceipt,
    ) -> Result<SendReceipt, Failure> {
        match (self.find_duplicate(identity, &draft).await?, draft.quota) {
            (Some(sent), turn) => {
                self.refund_quota(identity, &turn);
                Ok(sent)
            }
            (None, QuotaUse::OnlyDuplicate(refused)) => Err(refused),
            (None, _) => Ok(nobody),
        }
    }

    /// Refunds the quota that a duplicate message consumed to its sender.
    fn refund_quota(&self, identity: &MemberIdentity, turn: &QuotaUse) {
        if let QuotaUse::Consumed { is_broadcast } = turn
            && let Some(member) = self.directory.members().get(&identity.id)
        {
            member.rate_limit.refund(*is_broadcast);
        }
    }

    /// Returns the receipt of an earlier message of the sender with the draft's idempotency key;
    /// `None` if there is none, or the draft has no key.
    ///
    /// # Errors
    /// `Rejected` if the earlier message has other content; failures of the store.
    async fn find_duplicate(
        &self,
        identity: &MemberIdentity,
        draft: &Draft,
    ) -> Result<Option<SendReceipt>, Failure> {
        let Some(key) = &draft.new.key else {
            return Ok(None);
        };
        let filter = MailMessageFilter {
            member: Some(identity.id.to_string()),
            sent: Some(true),
            ..MailMessageFilter::default()
        };
        let (letters, _) = self.mail.history(filter, 0, DUPLICATE_SCAN_MAX).await?;
        let first = letters
            .into_iter()
            .map(|(letter, _)| letter)
            .find(|letter| letter.new.key.as_ref() == Some(key));
        first
            .map(|letter| self.duplicate_receipt(&letter, draft))
            .transpose()
    }

    fn duplicate_receipt(
        &self,
        first: &MailMessage,
        again: &Draft,
    ) -> Result<SendReceipt, Failure> {
        if !again.matches(first) {
            return Err(Failure::rejected(
                "this `idempotency_key` was used for another message: use a new one",
            ));
        }
        let Draft {
            new,
            named_recipients: asked,
            full_mailboxes: refused,
            ..
        } = again;
        let missed = |id: &&String| asked.contains(*id) && !first.new.is_for(id);
        let refused: BTreeSet<_> = new
            .recipients
            .iter()
            .chain(refused)
            .filter(missed)
            .cloned()
            .collect();
        Ok(self.send_receipt(first, refused.into_iter().collect()))
    }

    /// Adds a new message to the delivery queues of its recipients, and notifies recipients and
    /// event listeners.
    fn dispatch(self: &Arc<Self>, letter: &Arc<MailMessage>) {
        self.events.emit(|| NodeEvent::Mail {
            at: SystemTime::now(),
            from: letter.new.sender.as_str().into(),
            recipients: letter.new.recipients.len(),
        });
        if !letter.is_fanned_out() {
            self.receipts.fan_out(letter.clone());
        }
        self.notify_recipients(letter, DeliveryQueue::enqueue);
        self.receipts.notify_events();
    }

    /// Builds the sender's receipt for a stored message. `refused` are the recipients that don't
    /// get the message, because their mailboxes are full.
    fn send_receipt(&self, letter: &MailMessage, refused: Vec<String>) -> SendReceipt {
        let count = letter.new.recipients.len();
        let (recipient_count, message) = match (
            letter.new.audience.as_str(),
            letter.new.recipients.as_slice(),
        ) {
            ("one", [to]) => (
                None,
                format!(
                    "Message sent to agent {}",
                    self.directory.members().display_names.display(to)
                ),
            ),
            ("one" | "list", _) => (Some(count), format!("Message sent to {count} agent(s)")),
            _ => (Some(count), broadcast_text(count)),
        };
        SendReceipt {
            success: true,
            recipient_count: recipient_count.map(|count| count as u64),
            message,
            message_id: Some(letter.new.id.clone()),
            thread: Some(letter.new.thread().to_owned()),
            refused,
        }
    }

    /// Records the id of a message that this node is about to post, so that its stored event is
    /// skipped. Has no effect unless the store is shared.
    fn expect_own(&self, id: &str) {
        if self.mail.is_shared() {
            self.own_messages.lock().insert(id.to_owned());
        }
    }

    /// Removes the id of a message that wasn't posted after all.
    fn forget_own(&self, id: &str) {
        self.own_messages.lock().remove(id);
    }
}
