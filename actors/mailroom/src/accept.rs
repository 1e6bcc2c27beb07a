//! Acceptance of messages: a draft is stored, deduplicated, and passed on to its recipients.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use callboard_message::Failure;
use callboard_message::mail::{DeliverMessage, DisplayIds, MailMessageKind, SendReceipt};
use callboard_message::time::format_rfc3339;
use callboard_runtime::{MailMessage, MailMessageFilter};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::MailroomState;
use super::delivery::DeliveryQueue;
use super::groups::audience_name;
use super::member_identity::MemberIdentity;
use super::members::Members;
use super::post::{Draft, QuotaUse, broadcast_text};
use super::resources::NotificationTarget;
use super::text::{OutgoingMail, message_prefix};

/// Number of a sender's latest messages that are searched for an earlier message with the same
/// idempotency key.
const DUPLICATE_SCAN_MAX: usize = 256;

/// Maximum difference between the lifetimes of two messages that count as identical. Senders choose
/// lifetimes in whole seconds.
const EXPIRY_ROUNDING: Duration = Duration::from_millis(500);

impl Draft {
    /// Returns whether the draft has the same content as the stored message `letter`. If both name
    /// their recipients, the draft must name all recipients of `letter`. Further recipients are
    /// permitted, because they may have been unreachable when `letter` was sent.
    fn matches(&self, letter: &MailMessage) -> bool {
        let first = &letter.new;
        let is_named = |audience: &str| matches!(audience, "one" | "list");
        let new = &self.new;
        let is_audience = if is_named(&new.audience) && is_named(&first.audience) {
            first
                .recipients
                .iter()
                .all(|id| self.named_recipients.contains(id))
        } else {
            first.audience == new.audience
        };
        // The body is empty once the retention period has ended.
        let is_body = first.body == new.body
            || (first.body.is_empty() && letter.digest.bytes == new.body.len() as u64);
        let expired_after = first
            .expires
            .duration_since(sent_time(&first.id))
            .unwrap_or_default();
        let is_expiry =
            !self.is_expiry_chosen || expired_after.abs_diff(self.lifetime) < EXPIRY_ROUNDING;
        is_body
            && is_audience
            && is_expiry
            && (first.kind, first.urgent) == (new.kind, new.urgent)
            && (&first.label, &first.topic, &first.reply_to)
                == (&new.label, &new.topic, &new.reply_to)
    }
}

/// Returns the sending time, in milliseconds, that a message id (UUID version 7) contains; the Unix
/// epoch for other ids. The lifetime of a message begins at this time.
fn sent_time(id: &str) -> SystemTime {
    let sent = id
        .parse::<Uuid>()
        .ok()
        .and_then(|id| id.get_timestamp())
        .map(|sent| sent.to_unix());
    sent.map_or(UNIX_EPOCH, |(seconds, nanos)| {
        UNIX_EPOCH + Duration::new(seconds, nanos)
    })
}

impl MailroomState {
    /// Stores a message and dispatches it to its recipients. If the sender has already sent the
    /// same message with the same idempotency key, nothing is stored and the receipt of the earlier
    /// message is returned.
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
            .map_err(|_| Failure::internal("the message wasn't kept"))??;
        match again.filter(|_| !letter.is_new) {
            Some(again) => {
                let sent = self.duplicate_receipt(&letter, &again)?;
                self.refund_quota(identity, &again.quota);
                Ok(sent)
            }
            None => Ok(self.send_receipt(&letter, refused)),
        }
    }

    /// Returns the receipt of an earlier identical message with the same idempotency key. If there
    /// is none, returns the error receipt `nobody`.
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
            && let Some(member) = self.members().get(&identity.id)
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
            return Err(Failure::rejected("this key was used for another message"));
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
        if !letter.is_fanned_out() {
            self.receipts.fan_out(letter.clone());
        }
        self.notify_recipients(letter, DeliveryQueue::enqueue);
        self.receipts.notify_events();
    }

    /// Notifies the recipients of a message of this new message. Calls `hand` for each recipient
    /// that has a delivery queue, with the queue and the message.
    pub fn notify_recipients(
        self: &Arc<Self>,
        letter: &Arc<MailMessage>,
        hand: impl Fn(&DeliveryQueue, &Arc<OutgoingMail>),
    ) {
        let outgoing = Arc::new(OutgoingMail::new(letter.clone()));
        let mut targets = Vec::new();
        {
            let mut members = self.members();
            for recipient in &letter.new.recipients {
                let Some(member) = members.get_mut(recipient) else {
                    continue;
                };
                member.unread += 1;
                if let Some(line) = &member.line {
                    hand(line, &outgoing);
                }
                targets.extend(NotificationTarget::of(member));
            }
        }
        for target in targets {
            self.notify_member(&outgoing, target);
        }
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
                    self.members().display_names.display(to)
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

    /// Returns the text of a message as displayed to a recipient.
    pub fn display_text(&self, outgoing: &OutgoingMail, to: &str) -> String {
        // Computed outside the lock, because a long body takes a while.
        outgoing.neutral_body();
        self.format_text(&self.members(), outgoing, to)
    }

    fn format_text(&self, members: &Members, outgoing: &OutgoingMail, to: &str) -> String {
        let new = &outgoing.letter.new;
        let to = match new.kind {
            MailMessageKind::Group => audience_name(&new.audience),
            _ => members.display_names.display(to),
        };
        let mut text = message_prefix(
            new.kind,
            members.display_names.display(&new.sender),
            to,
            new.label.as_deref(),
        );
        text.push_str(outgoing.neutral_body());
        text
    }

    /// Builds the delivery request of a message for one recipient.
    pub fn delivery_request(
        &self,
        outgoing: &OutgoingMail,
        to: &str,
        attempt: u32,
    ) -> DeliverMessage {
        // Computed outside the lock, because a long body takes a while.
        outgoing.neutral_body();
        let members = self.members();
        let MailMessage {
            number,
            new,
            accepted,
            ..
        } = &*outgoing.letter;
        let shown = |id: &str| members.display_names.display(id).to_owned();
        DeliverMessage {
            message_id: new.id.clone(),
            number: *number,
            kind: new.kind,
            from: new.sender.clone(),
            to: to.to_owned(),
            thread: new.thread().to_owned(),
            reply_to: new.reply_to.clone(),
            topic: new.topic.clone(),
            urgent: new.urgent,
            sent: format_rfc3339(*accepted),
            attempt,
            text: self.format_text(&members, outgoing, to),
            message: new.body.clone(),
            display: DisplayIds {
                from: shown(&new.sender),
                to: shown(to),
            },
        }
    }
}
