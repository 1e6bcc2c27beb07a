//! Message that is being prepared for posting, and its comparison with earlier ones.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use callboard_message::Failure;
use callboard_message::mail::{MAIL_BODY_BYTES_MAX, MAIL_KEY_BYTES_MAX, MAIL_TOPIC_CHARS_MAX};
use callboard_runtime::{MailMessage, NewMailMessage};
use uuid::Uuid;

/// Prefix of the idempotency key of an agent's answer. The id of the answered message follows.
pub(crate) const ANSWER_KEY_PREFIX: &str = "a2a:";
/// Maximum difference between the lifetimes of two messages that count as identical. Senders choose
/// lifetimes in whole seconds.
const EXPIRY_ROUNDING: Duration = Duration::from_millis(500);

/// Message that is being prepared for posting.
#[derive(Clone)]
pub(crate) struct Draft {
    /// Content of the message. Its id and expiry are set when it is posted.
    pub new: NewMailMessage,
    /// Recipients as the sender named them, reachable or not; empty for a broadcast. Used to
    /// compare the draft with an earlier message.
    pub named_recipients: BTreeSet<String>,
    /// Recipients that don't get the message, because their mailboxes are full.
    pub full_mailboxes: Vec<String>,
    pub lifetime: Duration,
    /// Whether the lifetime is compared when the draft repeats an earlier message. `false` for
    /// replies, whose senders can't choose it.
    pub is_expiry_chosen: bool,
    pub quota: QuotaUse,
}

/// Effect of a message on its sender's rate limit.
#[derive(Clone)]
pub(crate) enum QuotaUse {
    /// Nothing was deducted, for example because the sender has no rate limit.
    Exempt,
    /// One message was deducted from the sender's quota, and also one broadcast if `is_broadcast`.
    Consumed { is_broadcast: bool },
    /// The quota is exhausted, with this failure for the sender. The message is still accepted if
    /// it repeats an earlier one with the same idempotency key.
    OnlyDuplicate(Failure),
}

impl Draft {
    /// Makes the draft a reply to `letter`, in its thread and with its topic.
    pub fn in_reply_to(mut self, letter: &MailMessage) -> Self {
        self.new.topic.clone_from(&letter.new.topic);
        self.new.thread = Some(letter.new.thread().to_owned());
        self.new.reply_to = Some(letter.new.id.clone());
        self.is_expiry_chosen = false;
        self
    }

    pub fn check(&self) -> Result<(), Failure> {
        let too_long = |what: &str, most: usize, unit: &str| {
            Err(Failure::invalid(format!(
                "`{what}` is longer than {most} {unit}"
            )))
        };
        let NewMailMessage {
            body, topic, key, ..
        } = &self.new;
        if body.trim().is_empty() {
            return Err(Failure::invalid("`message` is empty"));
        }
        if body.len() > MAIL_BODY_BYTES_MAX {
            return too_long("message", MAIL_BODY_BYTES_MAX, "bytes");
        }
        if let Some(topic) = topic {
            if topic.chars().count() > MAIL_TOPIC_CHARS_MAX {
                return too_long("topic", MAIL_TOPIC_CHARS_MAX, "characters");
            }
            if topic.trim().is_empty() || topic.chars().any(char::is_control) {
                return Err(Failure::invalid(
                    "`topic` must be one line of text without control characters, and not empty",
                ));
            }
        }
        match key {
            Some(key) if key.is_empty() => Err(Failure::invalid("`idempotency_key` is empty")),
            Some(key) if key.len() > MAIL_KEY_BYTES_MAX => {
                too_long("idempotency_key", MAIL_KEY_BYTES_MAX, "bytes")
            }
            Some(key) if key.starts_with(ANSWER_KEY_PREFIX) => Err(Failure::invalid(format!(
                "`idempotency_key` may not begin with {ANSWER_KEY_PREFIX}"
            ))),
            _ => Ok(()),
        }
    }

    /// Returns whether the draft has the same content as the stored message `letter`. If both name
    /// their recipients, the draft must name all recipients of `letter`. Further recipients are
    /// permitted, because they may have been unreachable when `letter` was sent.
    pub fn matches(&self, letter: &MailMessage) -> bool {
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

/// Returns the sending time that a message id (UUID version 7) contains, to the millisecond; the
/// Unix epoch for other ids. The lifetime of a message begins at this time.
pub(crate) fn sent_time(id: &str) -> SystemTime {
    let sent = id
        .parse::<Uuid>()
        .ok()
        .and_then(|id| id.get_timestamp())
        .map(|sent| sent.to_unix());
    sent.map_or(UNIX_EPOCH, |(seconds, nanos)| {
        UNIX_EPOCH + Duration::new(seconds, nanos)
    })
}
