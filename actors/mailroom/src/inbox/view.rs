//! Views of messages, and their delivery states.

use std::sync::Arc;

use callboard_message::Failure;
use callboard_message::mail::{
    DeliveryState, MAIL_LISTED_RECIPIENTS_MAX, MailView, Priority, Receipt,
};
use callboard_message::text::cut_chars;
use callboard_message::time::format_rfc3339;
use callboard_runtime::{MAIL_PAGE_MAX, MailCopy, MailMessage, NewMailMessage};

use super::InboxService;
use crate::members::identity::MemberIdentity;
use crate::text::OutgoingMail;

/// Maximum length of a message's text in lists (inbox and history), in characters. Longer texts are
/// truncated.
pub const LISTED_TEXT_CHARS_MAX: usize = 2_000;

impl InboxService {
    /// Builds the view of a message for `identity`, in the delivery state `state`. Unless `whole`
    /// is set, the text is truncated to [`LISTED_TEXT_CHARS_MAX`] characters.
    pub(super) fn mail_view(
        &self,
        identity: &MemberIdentity,
        letter: &Arc<MailMessage>,
        state: DeliveryState,
        whole: bool,
    ) -> MailView {
        let MailMessage {
            number,
            new,
            accepted,
            ..
        } = &**letter;
        let is_sender = new.sender == *identity.id;
        let to = if new.is_for(&identity.id) {
            Some(&*identity.id)
        } else {
            new.recipients.first().map(String::as_str)
        };
        let mut text = self
            .directory
            .display_text(&OutgoingMail::new(letter.clone()), to.unwrap_or_default());
        let shown = if whole {
            text.len()
        } else {
            cut_chars(&text, LISTED_TEXT_CHARS_MAX).len()
        };
        let cut = shown < text.len();
        text.truncate(shown);
        let members = self.directory.members();
        let known = members.count_visible_recipients(&identity.id, identity.watches, new);
        let named = new
            .recipients
            .iter()
            .filter(|id| is_sender || members.sees(&identity.id, id));
        MailView {
            message_id: new.id.clone(),
            number: *number,
            kind: new.kind,
            from: new.sender.clone(),
            to: if known > MAIL_LISTED_RECIPIENTS_MAX {
                Vec::new()
            } else {
                named.cloned().collect()
            },
            to_count: known as u64,
            thread: new.thread().to_owned(),
            reply_to: new.reply_to.clone(),
            topic: new.topic.clone(),
            priority: priority(new),
            sent: format_rfc3339(*accepted),
            expires: format_rfc3339(new.expires),
            state,
            text,
            cut,
            message: None,
            receipts: None,
        }
    }

    /// Returns the receipts of all recipients of a message.
    ///
    /// # Errors
    /// Failures of the store.
    pub(super) async fn receipts(&self, letter: &MailMessage) -> Result<Vec<Receipt>, Failure> {
        let mut receipts = Vec::new();
        loop {
            let after = receipts
                .last()
                .map(|receipt: &Receipt| receipt.agent_id.clone());
            let page = self
                .mail
                .receipts(letter.number, after.as_deref(), MAIL_PAGE_MAX)
                .await?;
            let is_last = page.len() < MAIL_PAGE_MAX;
            receipts.extend(page.into_iter().map(receipt_from_copy));
            if is_last {
                return Ok(receipts);
            }
        }
    }

    /// Returns the least advanced delivery state of a message among its recipients: `Read` only if
    /// all have read it.
    ///
    /// # Errors
    /// Failures of the store.
    pub(super) async fn least_state(&self, letter: &MailMessage) -> Result<DeliveryState, Failure> {
        let (mut least, mut after) = (DeliveryState::Read, None::<String>);
        loop {
            let page = self
                .mail
                .receipts(letter.number, after.as_deref(), MAIL_PAGE_MAX)
                .await?;
            least = page
                .iter()
                .map(|copy| copy.state)
                .fold(least, DeliveryState::min);
            match page.last() {
                Some(last) if page.len() == MAIL_PAGE_MAX && least != DeliveryState::Accepted => {
                    after = Some(last.recipient.clone());
                }
                _ => return Ok(least),
            }
        }
    }
}

fn receipt_from_copy(copy: MailCopy) -> Receipt {
    Receipt {
        agent_id: copy.recipient,
        state: copy.state,
        accepted: format_rfc3339(copy.accepted),
        delivered: copy.delivered.map(format_rfc3339),
        read: copy.read.map(format_rfc3339),
    }
}

pub(crate) fn priority(new: &NewMailMessage) -> Priority {
    if new.urgent {
        Priority::Urgent
    } else {
        Priority::Normal
    }
}
