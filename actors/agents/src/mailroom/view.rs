//! A letter as one of those sees it whom it concerns.

use std::sync::Arc;

use callboard_message::Failure;
use callboard_message::mail::{EntryState, MAIL_NAMED_MAX, MailView, Priority, Receipt};
use callboard_message::time::rfc3339;
use callboard_runtime::{Letter, MAIL_PAGE_MAX, MailCopy};

use super::Shared;
use super::hand_out::Handed;
use super::who::Who;
use crate::decide::limits::cut_chars;

/// Characters of a text that a list shows.
pub const SHOWN_CHARS_MAX: usize = 2_000;

impl Shared {
    /// A letter as `who` sees it, of whose text a list shows the beginning only (`whole` not).
    pub fn view(&self, who: &Who, letter: &Arc<Letter>, state: EntryState, whole: bool) -> MailView {
        let Letter { number, new, accepted, .. } = &**letter;
        let is_sender = new.sender == *who.id;
        let to = if new.is_for(&who.id) { Some(&*who.id) } else { new.recipients.first().map(String::as_str) };
        let mut text = self.text(&Handed::new(letter.clone()), to.unwrap_or_default());
        let shown = if whole { text.len() } else { cut_chars(&text, SHOWN_CHARS_MAX).len() };
        let cut = shown < text.len();
        text.truncate(shown);
        let members = self.members();
        let known = members.known(who, new);
        let named = new.recipients.iter().filter(|id| is_sender || members.sees(&who.id, id));
        MailView {
            message_id: new.id.clone(),
            number: *number,
            kind: new.kind,
            from: new.sender.clone(),
            to: if known > MAIL_NAMED_MAX { Vec::new() } else { named.cloned().collect() },
            to_count: known as u64,
            thread: new.thread().to_owned(),
            reply_to: new.reply_to.clone(),
            topic: new.topic.clone(),
            priority: if new.urgent { Priority::Urgent } else { Priority::Normal },
            sent: rfc3339(*accepted),
            expires: rfc3339(new.expires),
            state,
            text,
            cut,
            message: None,
            receipts: None,
        }
    }

    /// How far a letter has come with each recipient.
    pub async fn receipts(&self, letter: &Letter) -> Result<Vec<Receipt>, Failure> {
        let mut receipts = Vec::new();
        loop {
            let after = receipts.last().map(|receipt: &Receipt| receipt.agent_id.clone());
            let page = self.mail.receipts(letter.number, after.as_deref(), MAIL_PAGE_MAX).await?;
            let is_last = page.len() < MAIL_PAGE_MAX;
            receipts.extend(page.into_iter().map(receipt));
            if is_last {
                return Ok(receipts);
            }
        }
    }

    /// How far a letter has come with the last of its recipients.
    pub async fn least(&self, letter: &Letter) -> Result<EntryState, Failure> {
        let (mut least, mut after) = (EntryState::Read, None::<String>);
        loop {
            let page = self.mail.receipts(letter.number, after.as_deref(), MAIL_PAGE_MAX).await?;
            least = page.iter().map(|copy| copy.state).fold(least, EntryState::min);
            match page.last() {
                Some(last) if page.len() == MAIL_PAGE_MAX && least != EntryState::Accepted => {
                    after = Some(last.recipient.clone());
                }
                _ => return Ok(least),
            }
        }
    }
}

fn receipt(copy: MailCopy) -> Receipt {
    Receipt {
        agent_id: copy.recipient,
        state: copy.state,
        accepted: rfc3339(copy.accepted),
        delivered: copy.delivered.map(rfc3339),
        read: copy.read.map(rfc3339),
    }
}
