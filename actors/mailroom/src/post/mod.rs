//! Sending: resolution of recipients, quotas and replies.

mod accept;
pub(crate) mod draft;
pub(crate) mod notify;

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callboard_message::Failure;
use callboard_message::mail::{
    BroadcastMessage, MAIL_BODY_BYTES_MAX, MAIL_EXPIRES_MAX, MAIL_RECIPIENTS_MAX, MailMessageKind,
    Priority, ReplyMessage, SendMessage, SendReceipt,
};
use callboard_message::text::{cut_bytes, cut_chars};
use callboard_runtime::{Context, MailMessage, MailStore, NewMailMessage, NodeEvents};
use parking_lot::Mutex;

use crate::inbox::InboxService;
use crate::members::directory::MemberDirectory;
use crate::members::identity::{MemberIdentity, denied};
use crate::members::{Member, Members};
use crate::options::groups::Group;
use crate::receipts::ReceiptWriter;
use crate::text::{DISPLAY_CHARS_MIN, LABEL_CHARS_MAX, is_label, neutralize};
use draft::{Draft, QuotaUse};

pub(crate) use draft::ANSWER_KEY_PREFIX;

/// Builds the receipt for a recipient that can't be reached. The text is the same whether or not
/// the recipient exists.
fn unknown_recipient_receipt(id: &str) -> SendReceipt {
    // The id is unvalidated input, so it is sanitised.
    let id = neutralize(cut_chars(id, DISPLAY_CHARS_MIN)).replace(char::is_whitespace, " ");
    let message =
        format!("Failed to send message - recipient agent {id} may not exist or is terminated");
    SendReceipt {
        message,
        ..SendReceipt::default()
    }
}

/// Accepts messages of members, stores them, and passes them on to their recipients.
pub(crate) struct PostService {
    pub mail: Arc<dyn MailStore>,
    pub directory: Arc<MemberDirectory>,
    pub inbox: Arc<InboxService>,
    pub receipts: Arc<ReceiptWriter>,
    /// Event stream of the node.
    pub events: Arc<NodeEvents>,
    /// Ids of this node's own messages whose events haven't been processed. These events are
    /// skipped, because their recipients were notified when the message was posted.
    pub own_messages: Mutex<HashSet<String>>,
}

impl PostService {
    pub async fn broadcast(
        self: Arc<Self>,
        message: BroadcastMessage,
        cx: Context,
    ) -> Result<SendReceipt, Failure> {
        let identity = self
            .directory
            .identify(&cx, message.sender_agent_id.as_deref())
            .await?;
        let unfit = || {
            Failure::invalid(
                "`group` must be group:NAME, role:NAME or phase:NAME, as list_groups shows them",
            )
        };
        let group = message
            .group
            .map(|name| Group::parse(&name).ok_or_else(unfit))
            .transpose()?;
        let mut draft = self.draft(
            &identity,
            message.message,
            message.priority,
            message.idempotency_key,
        );
        (draft.new.topic, draft.new.reply_to) = (message.topic, message.reply_to);
        self.finish_draft(&identity, &mut draft, message.expires_in_s)
            .await?;
        self.acquire_quota(&identity, true, &mut draft)?;
        self.address_broadcast(&identity, group.as_ref(), &mut draft);
        if !identity.is_guardian {
            draft.new.kind = if group.is_some() {
                MailMessageKind::Group
            } else {
                MailMessageKind::Broadcast
            };
        }
        let is_there = group
            .as_ref()
            .is_none_or(|group| self.directory.members().has_group(&identity.id, group));
        draft.new.audience = group.map_or_else(|| "all".to_owned(), |group| group.to_string());
        if !draft.new.recipients.is_empty() {
            return self.post_message(&identity, draft).await;
        }
        let none = if is_there {
            let refused = draft.full_mailboxes.clone();
            SendReceipt {
                success: true,
                recipient_count: Some(0),
                message: broadcast_text(0),
                refused,
                ..SendReceipt::default()
            }
        } else {
            let why = "is not there: list_groups shows those that are";
            let message = format!(
                "Failed to broadcast message - group {} {why}",
                draft.new.audience
            );
            SendReceipt {
                message,
                ..SendReceipt::default()
            }
        };
        self.duplicate_or(&identity, draft, none).await
    }

    pub async fn send(
        self: Arc<Self>,
        message: SendMessage,
        cx: Context,
    ) -> Result<SendReceipt, Failure> {
        let identity = self
            .directory
            .identify(&cx, message.sender_agent_id.as_deref())
            .await?;
        if message.guidance.is_some() && !identity.is_guardian {
            return Err(Failure::rejected("only the Guardian gives guidance"));
        }
        if message
            .guidance
            .as_ref()
            .is_some_and(|label| !is_label(label))
        {
            let why = format!(
                "`guidance` must be 1 to {LABEL_CHARS_MAX} upper-case letters, digits, _ and spaces"
            );
            return Err(Failure::invalid(why));
        }
        let (audience, to) = match (message.recipient_agent_id, message.recipient_agent_ids) {
            (Some(one), list) if list.is_empty() => ("one", vec![one]),
            (None, list) if !list.is_empty() => ("list", list),
            _ => {
                return Err(Failure::invalid(
                    "give either `recipient_agent_id` or `recipient_agent_ids`",
                ));
            }
        };
        if to.len() > MAIL_RECIPIENTS_MAX {
            return Err(Failure::invalid(format!(
                "a message has at most {MAIL_RECIPIENTS_MAX} recipients"
            )));
        }
        let mut draft = self.draft(
            &identity,
            message.message,
            message.priority,
            message.idempotency_key,
        );
        (draft.new.topic, draft.new.reply_to) = (message.topic, message.reply_to);
        self.finish_draft(&identity, &mut draft, message.expires_in_s)
            .await?;
        self.acquire_quota(&identity, false, &mut draft)?;
        (draft.new.label, draft.new.audience) = (message.guidance, audience.to_owned());
        draft.named_recipients = to.iter().cloned().collect();
        let found = {
            let members = self.directory.members();
            resolve_recipients(&members, &identity, to, |id| members.sees(&identity.id, id))
        };
        self.post_to(&identity, found, draft).await
    }

    /// Posts a message to the recipients `found`: those that get it, and those that don't because
    /// their mailboxes are full. If `found` is an error receipt, no message is posted: returns the
    /// receipt of an earlier identical message, or else the error receipt.
    ///
    /// # Errors
    /// Failures as of [`Self::post_message`] and [`Self::duplicate_or`].
    async fn post_to(
        self: &Arc<Self>,
        identity: &MemberIdentity,
        found: Result<(BTreeSet<String>, Vec<String>), SendReceipt>,
        mut draft: Draft,
    ) -> Result<SendReceipt, Failure> {
        match found {
            Ok((recipients, refused)) => {
                draft.new.recipients = recipients.into_iter().collect();
                self.post_message(
                    identity,
                    Draft {
                        full_mailboxes: refused,
                        ..draft
                    },
                )
                .await
            }
            Err(nobody) => self.duplicate_or(identity, draft, nobody).await,
        }
    }

    pub async fn reply(
        self: Arc<Self>,
        message: ReplyMessage,
        cx: Context,
    ) -> Result<SendReceipt, Failure> {
        let identity = self
            .directory
            .identify(&cx, message.sender_agent_id.as_deref())
            .await?;
        self.reply_as(&identity, message).await
    }

    /// Sends a reply as the member `identity`: to the sender of the message and, with `to_all`, its
    /// other recipients; if the member sent the message itself, to its recipients. Unreachable
    /// recipients and full mailboxes are reported by the receipt, not as a failure.
    ///
    /// # Errors
    /// `Denied` if the member is terminated, `NotFound` if the message doesn't exist or isn't the
    /// member's, `InvalidInput` for an invalid field, `Overloaded` if the quota is exhausted, and
    /// failures of the store.
    pub async fn reply_as(
        self: &Arc<Self>,
        identity: &MemberIdentity,
        message: ReplyMessage,
    ) -> Result<SendReceipt, Failure> {
        if self.directory.is_terminated(identity) {
            return Err(denied(
                "this agent is terminated: it can neither send nor receive messages",
            ));
        }
        let letter = self
            .inbox
            .find_message(identity, &message.message_id)
            .await?;
        let mut draft = self
            .draft(
                identity,
                message.message,
                message.priority,
                message.idempotency_key,
            )
            .in_reply_to(&letter);
        draft.check()?;
        self.acquire_quota(identity, false, &mut draft)?;
        let is_own = letter.new.sender == *identity.id;
        let mut to = Vec::new();
        let found = {
            let members = self.directory.members();
            if message.to_all || is_own {
                draft
                    .named_recipients
                    .extend(letter.new.recipients.iter().cloned());
                let there = |id: &&String| {
                    **id != *identity.id
                        && members.sees(&identity.id, id)
                        && members.get(id).is_some_and(Member::accepts_mail)
                };
                to.extend(letter.new.recipients.iter().filter(there).cloned());
            }
            if !is_own {
                draft.named_recipients.insert(letter.new.sender.clone());
                to.push(letter.new.sender.clone());
            }
            // The sender of a message may be answered even if it isn't visible.
            let sees = |id: &str| id == letter.new.sender || members.sees(&identity.id, id);
            if to.is_empty() {
                Err(unknown_recipient_receipt(
                    letter.new.recipients.first().map_or("", String::as_str),
                ))
            } else {
                resolve_recipients(&members, identity, to, sees)
            }
        };
        if found
            .as_ref()
            .is_ok_and(|(open, full)| open.len() + full.len() == 1)
        {
            draft.new.audience = "one".to_owned();
        }
        self.post_to(identity, found, draft).await
    }

    /// Posts the answer of a conversing agent to the message `letter` as a reply to its sender, cut
    /// to [`MAIL_BODY_BYTES_MAX`] bytes. `id` is the answering member. A repeated answer to the
    /// same message isn't posted again. Nothing is posted if the answer is empty, the member is
    /// terminated, or the sender accepts no mail or has a full mailbox.
    ///
    /// # Errors
    /// Fails like [`Self::post_message`].
    pub async fn post_agent_answer(
        self: &Arc<Self>,
        letter: &MailMessage,
        id: &str,
        text: &str,
    ) -> Result<(), Failure> {
        let there = |member: &Member| member.accepts_mail() && !member.is_mailbox_full();
        let to = &letter.new.sender;
        let identity = MemberIdentity::of_member(id);
        if text.trim().is_empty()
            || self.directory.is_terminated(&identity)
            || !self.directory.members().get(to).is_some_and(there)
        {
            return Ok(());
        }
        let body = cut_bytes(&text.replace('\0', ""), MAIL_BODY_BYTES_MAX).to_owned();
        let key = Some(format!("{ANSWER_KEY_PREFIX}{}", letter.new.id));
        let mut draft = self.draft(&identity, body, None, key).in_reply_to(letter);
        draft.new.audience = "one".to_owned();
        draft.new.recipients.push(to.clone());
        draft.named_recipients.insert(to.clone());
        self.post_message(&identity, draft).await.map(drop)
    }

    /// Creates a draft of a direct message (guidance, if from the Guardian) without recipients and
    /// with the default lifetime.
    fn draft(
        &self,
        identity: &MemberIdentity,
        body: String,
        priority: Option<Priority>,
        key: Option<String>,
    ) -> Draft {
        let options = self.directory.options();
        let new = NewMailMessage {
            id: String::new(),
            sender: identity.id.to_string(),
            kind: if identity.is_guardian {
                MailMessageKind::Guidance
            } else {
                MailMessageKind::Direct
            },
            label: None,
            audience: "list".to_owned(),
            recipients: Vec::new(),
            topic: None,
            thread: None,
            reply_to: None,
            urgent: priority == Some(Priority::Urgent),
            key,
            class: options.class,
            body,
            expires: SystemTime::UNIX_EPOCH,
        };
        let (asked, refused, lifetime) = (BTreeSet::new(), Vec::new(), options.expires);
        Draft {
            new,
            named_recipients: asked,
            full_mailboxes: refused,
            lifetime,
            is_expiry_chosen: true,
            quota: QuotaUse::Exempt,
        }
    }

    /// Sets the draft's lifetime, validates the draft, and puts a reply into the thread of the
    /// message that it replies to. Without `expires_in_s` (in seconds), the default lifetime is
    /// kept.
    ///
    /// # Errors
    /// `InvalidInput` for an invalid field or a lifetime of 0 or more than [`MAIL_EXPIRES_MAX`];
    /// `NotFound` if the caller can't see the message that it replies to.
    async fn finish_draft(
        &self,
        identity: &MemberIdentity,
        draft: &mut Draft,
        expires_in_s: Option<u64>,
    ) -> Result<(), Failure> {
        draft.lifetime = expires_in_s.map_or(draft.lifetime, Duration::from_secs);
        if draft.lifetime.is_zero() || draft.lifetime > MAIL_EXPIRES_MAX {
            return Err(Failure::invalid(format!(
                "`expires_in_s` must be 1 to {}",
                MAIL_EXPIRES_MAX.as_secs()
            )));
        }
        draft.check()?;
        if let Some(before) = &draft.new.reply_to {
            let before = self.inbox.find_message(identity, before).await?;
            draft.new.thread = Some(before.new.thread().to_owned());
        }
        Ok(())
    }

    /// Deducts one message from the sender's quota, and one broadcast if `is_broadcast`. If the
    /// quota is exhausted, a draft with an idempotency key is restricted to
    /// [`QuotaUse::OnlyDuplicate`]. The Guardian is exempt.
    ///
    /// # Errors
    /// `Overloaded` if the quota is exhausted and the draft has no key, or too many repetitions
    /// were sent.
    fn acquire_quota(
        &self,
        identity: &MemberIdentity,
        is_broadcast: bool,
        draft: &mut Draft,
    ) -> Result<(), Failure> {
        if identity.is_guardian {
            return Ok(());
        }
        let members = self.directory.members();
        let Some(limit) = members.get(&identity.id).map(|member| &member.rate_limit) else {
            return Ok(());
        };
        draft.quota = match limit.acquire(is_broadcast) {
            Ok(()) => QuotaUse::Consumed { is_broadcast },
            Err(refused) if draft.new.key.is_some() && limit.try_repeat() => {
                QuotaUse::OnlyDuplicate(refused)
            }
            Err(refused) => return Err(refused),
        };
        Ok(())
    }

    /// Sets the recipients of a broadcast: all agents that the sender sees, of the group if one is
    /// given, except itself, terminated ones, and those that mute it. Urgent messages and those of
    /// the Guardian reach agents that mute them too. Agents with full mailboxes go to
    /// `full_mailboxes` instead. Recipients beyond [`MAIL_RECIPIENTS_MAX`] are left out.
    fn address_broadcast(
        &self,
        identity: &MemberIdentity,
        group: Option<&Group>,
        draft: &mut Draft,
    ) {
        let members = self.directory.members();
        let hears = |member: &&Member| {
            !member.is_ended
                && *member.id != *identity.id
                && group.is_none_or(|group| member.place.is_in(group))
                && (identity.is_guardian
                    || draft.new.urgent
                    || !member.mutes(&identity.id, draft.new.topic.as_deref()))
        };
        let (full, open): (Vec<_>, Vec<_>) = members
            .visible_to(&identity.id)
            .filter(hears)
            .partition(|member| member.is_mailbox_full());
        let id = |member: &Member| member.id.to_string();
        draft.new.recipients = open.into_iter().take(MAIL_RECIPIENTS_MAX).map(id).collect();
        draft.full_mailboxes = full.into_iter().map(id).collect();
    }
}

/// Checks the named recipients `to`. Returns those that get the message, and those whose mailboxes
/// are full. `sees` tells whether the sender `identity` may write to an id.
///
/// # Errors
/// Returns the error receipt to reply if a recipient is unreachable, or all mailboxes are full.
fn resolve_recipients(
    members: &Members,
    identity: &MemberIdentity,
    to: Vec<String>,
    sees: impl Fn(&str) -> bool,
) -> Result<(BTreeSet<String>, Vec<String>), SendReceipt> {
    let (mut open, mut full) = (BTreeSet::new(), Vec::new());
    for id in to {
        let member = members
            .get(&id)
            .filter(|member| member.accepts_mail() && *member.id != *identity.id && sees(&id));
        let Some(member) = member else {
            return Err(unknown_recipient_receipt(&id));
        };
        if !member.is_mailbox_full() {
            open.insert(id);
        } else if !full.contains(&id) {
            full.push(id);
        }
    }
    match full.last() {
        Some(id) if open.is_empty() => {
            let shown = cut_chars(id, DISPLAY_CHARS_MIN);
            let message =
                format!("Failed to send message - the inbox of recipient agent {shown} is full");
            Err(SendReceipt {
                message,
                refused: vec![id.clone()],
                ..SendReceipt::default()
            })
        }
        _ => Ok((open, full)),
    }
}

/// Returns the text of the receipt for a broadcast to `count` agents.
pub(crate) fn broadcast_text(count: usize) -> String {
    format!("Message broadcast to {count} agent(s)")
}
