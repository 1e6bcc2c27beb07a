//! Reading of mail: inbox and single messages.

mod history;
mod view;

use std::sync::Arc;
use std::time::SystemTime;

use callboard_message::mail::{
    CheckInbox, DeliveryState, FetchMail, FetchedMail, Inbox, MAIL_HISTORY_MAX, MAIL_INBOX_DEFAULT,
    MAIL_INBOX_MAX, MAIL_MEMBERS_MAX, MailAck, MailView, MarkRead, MemberId, ReadMessage,
};
use callboard_message::{Failure, FailureKind};
use callboard_runtime::{
    Context, MailCopy, MailMessage, MailStore, RECEIPT_BATCH_MAX, ReceiptUpdate,
};

use crate::members::directory::MemberDirectory;
use crate::members::identity::MemberIdentity;
use crate::receipts::ReceiptWriter;

pub use view::LISTED_TEXT_CHARS_MAX;
pub(crate) use view::priority;

/// Number of messages that `check_inbox` reads from the store at once if its request has a filter.
const SCAN_PAGE_MESSAGES: usize = 256;
/// Maximum number of unread messages that one `check_inbox` request with a filter examines, rounded
/// up to a page. If there are more, the response says so (`more`), but those aren't searched.
const INBOX_SCANNED_MAX: usize = 10_000;

/// Maximum number of receipts in one response. It equals the maximum number of members, so that all
/// recipients of a message fit. A request to fetch messages with more receipts is rejected with
/// `InvalidInput`.
pub const RECEIPTS_MAX: usize = MAIL_MEMBERS_MAX;

/// Reads the mail of members, and records what they have read.
pub(crate) struct InboxService {
    pub mail: Arc<dyn MailStore>,
    pub directory: Arc<MemberDirectory>,
    pub receipts: Arc<ReceiptWriter>,
}

impl InboxService {
    pub async fn check_inbox(
        self: Arc<Self>,
        message: CheckInbox,
        cx: Context,
    ) -> Result<Inbox, Failure> {
        let identity = self
            .directory
            .identify(&cx, message.sender_agent_id.as_deref())
            .await?;
        self.list_unread(&identity, message).await
    }

    /// Returns the unread messages of `identity` that match the request, urgent ones first, then in
    /// order of arrival, at most as many as its `limit`. Unless `peek` is set, messages returned in
    /// full are marked as read, and messages with truncated text as delivered.
    ///
    /// # Errors
    /// `InvalidInput` if `limit` is out of range; failures of the store.
    pub async fn list_unread(
        &self,
        identity: &MemberIdentity,
        message: CheckInbox,
    ) -> Result<Inbox, Failure> {
        let limit = page_limit(message.limit, MAIL_INBOX_DEFAULT, MAIL_INBOX_MAX)?;
        let before = self.directory.unread_count(&identity.id);
        let (letters, unread) = self.find_unread(identity, &message, limit).await?;
        let more = unread.is_none();
        if let Some(unread) = unread {
            // Expired messages no longer count as unread.
            self.directory.add_unread(&identity.id, unread - before);
        }
        let (mut whole, mut cut, mut messages) = (Vec::new(), Vec::new(), Vec::new());
        for (letter, copy) in letters {
            let mut view = self.mail_view(identity, &letter, copy.state, false);
            if !message.peek {
                let (mark, state) = if view.cut {
                    (&mut cut, DeliveryState::Delivered)
                } else {
                    (&mut whole, DeliveryState::Read)
                };
                mark.push(letter.number);
                view.state = view.state.max(state);
            }
            messages.push(view);
        }
        self.record_shown(identity, cut, ReceiptUpdate::Delivered)
            .await?;
        self.record_shown(identity, whole, ReceiptUpdate::Read)
            .await?;
        Ok(Inbox {
            unread: u64::try_from(self.directory.unread_count(&identity.id)).unwrap_or_default(),
            messages,
            more,
        })
    }

    /// Returns up to `limit` unread messages that match the request, each with the caller's copy
    /// (its delivery state). The second value is the number of all unread messages, or `None` if
    /// not all were examined.
    ///
    /// # Errors
    /// Failures of the store.
    async fn find_unread(
        &self,
        identity: &MemberIdentity,
        request: &CheckInbox,
        limit: usize,
    ) -> Result<(Vec<(Arc<MailMessage>, MailCopy)>, Option<i64>), Failure> {
        let is = |wanted: &Option<String>, has: Option<&str>| {
            wanted.is_none() || wanted.as_deref() == has
        };
        let fits = |letter: &MailMessage| {
            is(&request.from, Some(&letter.new.sender))
                && is(&request.topic, letter.new.topic.as_deref())
                && is(&request.thread, Some(letter.new.thread()))
                && (letter.new.urgent || !request.urgent_only)
        };
        let takes_all = request.from.is_none()
            && request.topic.is_none()
            && request.thread.is_none()
            && !request.urgent_only;
        let page_max = if takes_all {
            limit + 1
        } else {
            SCAN_PAGE_MESSAGES
        };
        let (mut letters, mut after, mut scanned) = (Vec::new(), None, 0);
        loop {
            let page = self
                .mail
                .list_open(&identity.id, after, false, page_max)
                .await?;
            let is_last = page.len() < page_max;
            scanned += page.len();
            after = page
                .last()
                .map(|(letter, _)| (letter.new.urgent, letter.number));
            for (letter, copy) in page {
                if !fits(&letter) {
                    continue;
                }
                if letters.len() == limit {
                    return Ok((letters, None));
                }
                letters.push((letter, copy));
            }
            if is_last {
                return Ok((letters, i64::try_from(scanned).ok()));
            }
            if scanned >= INBOX_SCANNED_MAX {
                return Ok((letters, None));
            }
        }
    }

    pub async fn read_message(
        self: Arc<Self>,
        message: ReadMessage,
        cx: Context,
    ) -> Result<MailView, Failure> {
        let identity = self
            .directory
            .identify(&cx, message.sender_agent_id.as_deref())
            .await?;
        self.read_one(&identity, &message.message_id, message.receipts)
            .await
    }

    /// Returns the message `id` in full and marks it as read if `identity` is a recipient. Receipts
    /// are included if `receipts` is set and `identity` is the sender.
    ///
    /// # Errors
    /// `NotFound` as [`Self::find_message`]; failures of the store.
    pub async fn read_one(
        &self,
        identity: &MemberIdentity,
        id: &str,
        receipts: bool,
    ) -> Result<MailView, Failure> {
        let letter = self.find_message(identity, id).await?;
        let state = match letter.new.is_for(&identity.id) {
            true => {
                self.record_shown(identity, vec![letter.number], ReceiptUpdate::Read)
                    .await?;
                DeliveryState::Read
            }
            false => self.least_state(&letter).await?,
        };
        let mut view = self.mail_view(identity, &letter, state, true);
        if receipts && letter.new.sender == *identity.id {
            view.receipts = Some(self.receipts(&letter).await?);
        }
        Ok(view)
    }

    pub async fn fetch_mail(
        self: Arc<Self>,
        message: FetchMail,
        cx: Context,
    ) -> Result<FetchedMail, Failure> {
        let identity = self.directory.identify(&cx, None).await?;
        if message.message_ids.len() > MAIL_HISTORY_MAX as usize {
            return Err(Failure::invalid(format!(
                "at most {MAIL_HISTORY_MAX} messages can be fetched at once"
            )));
        }
        let mut letters = Vec::new();
        for id in &message.message_ids {
            if MemberId::parse(id.as_str()).is_ok()
                && let Some(letter) = self.mail.message(id).await?
                && letter.new.concerns(&identity.id)
                && !self.is_expired(&identity, &letter).await?
            {
                letters.push(letter);
            }
        }
        let own = letters
            .iter()
            .filter(|letter| message.receipts && letter.new.sender == *identity.id);
        if own.map(|letter| letter.new.recipients.len()).sum::<usize>() > RECEIPTS_MAX {
            let why = format!(
                "these have more than {RECEIPTS_MAX} receipts: fetch fewer messages at once"
            );
            return Err(Failure::invalid(why));
        }
        let mine = letters
            .iter()
            .filter(|letter| letter.new.is_for(&identity.id));
        let numbers: Vec<u64> = mine.map(|letter| letter.number).collect();
        self.record_shown(&identity, numbers, ReceiptUpdate::Delivered)
            .await?;
        let mut messages = Vec::new();
        for letter in letters {
            let state = self.state_of(&identity, &letter).await?;
            let mut view = self.mail_view(&identity, &letter, state, true);
            view.message = Some(letter.new.body.clone());
            if message.receipts && letter.new.sender == *identity.id {
                view.receipts = Some(self.receipts(&letter).await?);
            }
            messages.push(view);
        }
        Ok(FetchedMail { messages })
    }

    pub async fn mark_read(
        self: Arc<Self>,
        message: MarkRead,
        cx: Context,
    ) -> Result<MailAck, Failure> {
        let identity = self.directory.identify(&cx, None).await?;
        let mark = match message.state.unwrap_or(DeliveryState::Read) {
            DeliveryState::Read => ReceiptUpdate::Read,
            DeliveryState::Delivered => ReceiptUpdate::Delivered,
            DeliveryState::Accepted => {
                return Err(Failure::invalid("`state` must be delivered or read"));
            }
        };
        let letter = self.find_message(&identity, &message.message_id).await?;
        if !letter.new.is_for(&identity.id) {
            return Err(Failure::not_found(
                "there is no message with this id, or it isn't yours",
            ));
        }
        self.update_receipts(&identity.id, &[letter.number], mark)
            .await?;
        Ok(MailAck { success: true })
    }

    /// Stores the delivery state of messages that are about to be shown to a member. While the
    /// store is full or unavailable, the receipts are stored later, so that mail can be read
    /// meanwhile.
    ///
    /// # Errors
    /// Other failures of the store.
    async fn record_shown(
        &self,
        identity: &MemberIdentity,
        letters: Vec<u64>,
        mark: ReceiptUpdate,
    ) -> Result<(), Failure> {
        let Err(failure) = self.update_receipts(&identity.id, &letters, mark).await else {
            return Ok(());
        };
        if !matches!(
            failure.kind,
            FailureKind::Overloaded | FailureKind::Unavailable
        ) {
            return Err(failure);
        }
        callboard_message::log::warn!(by: &identity.id, member = &*identity.id, %failure, letters = letters.len(), "failed to store receipts: retrying");
        match mark {
            ReceiptUpdate::Read => self.receipts.record_read(&identity.id, letters),
            ReceiptUpdate::Delivered => {
                for letter in letters {
                    self.receipts.record_delivery(&identity.id, letter).await;
                }
            }
        }
        Ok(())
    }

    /// Stores the delivery state `mark` of the member `id` for messages, by number. Removes them
    /// from its delivery queue, and returns once the state is stored.
    ///
    /// # Errors
    /// Failures of the store.
    pub async fn update_receipts(
        &self,
        id: &str,
        letters: &[u64],
        mark: ReceiptUpdate,
    ) -> Result<(), Failure> {
        if let Some(line) = self
            .directory
            .members()
            .get(id)
            .and_then(|member| member.line.as_ref())
        {
            line.remove(letters);
        }
        for some in letters.chunks(RECEIPT_BATCH_MAX) {
            let marks = some.iter().map(|letter| (id.to_owned(), *letter)).collect();
            let moved = self.mail.update_receipts(marks, mark).await?.len();
            if mark == ReceiptUpdate::Read {
                self.directory
                    .add_unread(id, -i64::try_from(moved).unwrap_or_default());
            }
            if moved > 0 {
                self.receipts.notify_events();
            }
        }
        Ok(())
    }

    /// Returns the delivery state of a message: for a recipient its own state, for others, such as
    /// the sender, the least advanced state of all recipients.
    ///
    /// # Errors
    /// Failures of the store.
    async fn state_of(
        &self,
        identity: &MemberIdentity,
        letter: &MailMessage,
    ) -> Result<DeliveryState, Failure> {
        if !letter.new.is_for(&identity.id) {
            return self.least_state(letter).await;
        }
        let before = key_before(&identity.id);
        let copies = self
            .mail
            .receipts(letter.number, before.as_deref(), 1)
            .await?;
        Ok(copies
            .first()
            .filter(|copy| copy.recipient == *identity.id)
            .map_or(DeliveryState::Accepted, |copy| copy.state))
    }

    /// Returns whether a message expired before its recipient `identity` had read it; `false` if
    /// `identity` is no recipient. Callers treat an expired message as nonexistent.
    ///
    /// # Errors
    /// Failures of the store.
    pub async fn is_expired(
        &self,
        identity: &MemberIdentity,
        letter: &MailMessage,
    ) -> Result<bool, Failure> {
        if letter.new.expires > SystemTime::now() || !letter.new.is_for(&identity.id) {
            return Ok(false);
        }
        Ok(self.state_of(identity, letter).await? != DeliveryState::Read)
    }

    /// Returns the message with the given id.
    ///
    /// # Errors
    /// `NotFound` if there is none, if `identity` is neither its sender nor a recipient, or if it
    /// expired before `identity` read it.
    pub async fn find_message(
        &self,
        identity: &MemberIdentity,
        id: &str,
    ) -> Result<Arc<MailMessage>, Failure> {
        let unknown = || Failure::not_found("there is no message with this id, or it isn't yours");
        if MemberId::parse(id).is_err() {
            return Err(unknown());
        }
        let letter = self
            .mail
            .message(id)
            .await?
            .filter(|letter| letter.new.concerns(&identity.id))
            .ok_or_else(unknown)?;
        if self.is_expired(identity, &letter).await? {
            Err(unknown())
        } else {
            Ok(letter)
        }
    }
}

/// Returns a text that sorts after all ids lower than `id` and before `id`, as an exclusive start
/// for a page of receipts that begins with `id`. `None` if `id` is empty.
fn key_before(id: &str) -> Option<String> {
    let mut chars: Vec<char> = id.chars().collect();
    let last = chars.pop()?;
    let lower = char::from_u32(u32::from(last).checked_sub(1)?)?;
    // No id has a character above `z`, so all other ids with this start sort before it.
    let start: String = chars.into_iter().chain([lower]).collect();
    Some(format!("{start}{}", "~".repeat(MemberId::CHARS_MAX)))
}

/// Returns the maximum number of items of a page: `limit`, or `default` if absent.
///
/// # Errors
/// `InvalidInput` if `limit` is 0 or more than `most`.
fn page_limit(limit: Option<u32>, default: u32, most: u32) -> Result<usize, Failure> {
    match limit.unwrap_or(default) {
        limit if (1..=most).contains(&limit) => Ok(limit as usize),
        _ => Err(Failure::invalid(format!("`limit` must be 1 to {most}"))),
    }
}
