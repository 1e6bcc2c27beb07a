//! Reading mail: inbox, single messages, history, logs and events.

use std::sync::Arc;
use std::time::SystemTime;

use callboard_message::Failure;
use callboard_message::mail::{
    AgentLogPage, AgentLogs, CheckInbox, DeliveryMethod, DeliveryState, FetchMail, FetchedMail,
    Inbox, MAIL_EVENTS_MAX, MAIL_HISTORY_DEFAULT, MAIL_HISTORY_MAX, MAIL_INBOX_DEFAULT,
    MAIL_INBOX_MAX, MAIL_LISTED_RECIPIENTS_MAX, MAIL_MEMBERS_MAX, MAIL_PREVIEW_CHARS, MailAck,
    MailDirection, MailEvent, MailEventPage, MailView, MarkRead, MemberId, MessageHistory,
    MessageHistoryPage, NumberedMailEvent, Priority, ReadEvents, ReadMessage, Receipt, WATCH_SCOPE,
};
use callboard_message::text::cut_chars;
use callboard_message::time::{format_rfc3339, parse_rfc3339};
use callboard_runtime::{
    Context, MAIL_PAGE_MAX, MailCopy, MailMessage, MailMessageFilter, NewMailMessage,
    RECEIPT_BATCH_MAX, ReceiptUpdate, StoredMailEvent,
};

use super::MailroomState;
use super::member_identity::{MemberIdentity, denied_without};
use super::text::OutgoingMail;

/// Number of messages that `check_inbox` reads from the store at once if its request has a filter.
const SCAN_PAGE_MESSAGES: usize = 256;
/// Maximum number of unread messages that one `check_inbox` request with a filter examines.
const INBOX_SCANNED_MAX: usize = 10_000;

/// Maximum number of receipts in one response. It equals the maximum number of members, so that all
/// recipients of a message fit.
pub const RECEIPTS_MAX: usize = MAIL_MEMBERS_MAX;

impl MailroomState {
    pub async fn check_inbox(&self, message: CheckInbox, cx: &Context) -> Result<Inbox, Failure> {
        let identity = self
            .identify(cx, message.sender_agent_id.as_deref())
            .await?;
        self.list_unread(&identity, message).await
    }

    /// Returns the unread messages of `identity` that match the request. Unless `peek` is set,
    /// messages returned in full are marked as read, and messages with truncated text as delivered.
    pub async fn list_unread(
        &self,
        identity: &MemberIdentity,
        message: CheckInbox,
    ) -> Result<Inbox, Failure> {
        let limit = page_limit(message.limit, MAIL_INBOX_DEFAULT, MAIL_INBOX_MAX)?;
        let before = self.unread_count(&identity.id);
        let (letters, unread) = self.find_unread(identity, &message, limit).await?;
        let more = unread.is_none();
        if let Some(unread) = unread {
            // Expired messages no longer count as unread.
            self.add_unread(&identity.id, unread - before);
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
        self.update_receipts(&identity.id, &cut, ReceiptUpdate::Delivered)
            .await?;
        self.update_receipts(&identity.id, &whole, ReceiptUpdate::Read)
            .await?;
        Ok(Inbox {
            unread: u64::try_from(self.unread_count(&identity.id)).unwrap_or_default(),
            messages,
            more,
        })
    }

    /// Returns up to `limit` unread messages that match the request, each with the caller's copy
    /// (its delivery state). The second value is the number of all unread messages, or `None` if
    /// not all were examined.
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
        &self,
        message: ReadMessage,
        cx: &Context,
    ) -> Result<MailView, Failure> {
        let identity = self
            .identify(cx, message.sender_agent_id.as_deref())
            .await?;
        self.read_one(&identity, &message.message_id, message.receipts)
            .await
    }

    /// Returns the message `id` in full, with receipts if requested, and marks it as read if
    /// `identity` is a recipient.
    pub async fn read_one(
        &self,
        identity: &MemberIdentity,
        id: &str,
        receipts: bool,
    ) -> Result<MailView, Failure> {
        let letter = self.find_message(identity, id).await?;
        let state = match letter.new.is_for(&identity.id) {
            true => {
                self.update_receipts(&identity.id, &[letter.number], ReceiptUpdate::Read)
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
        &self,
        message: FetchMail,
        cx: &Context,
    ) -> Result<FetchedMail, Failure> {
        let identity = self.identify(cx, None).await?;
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
        self.update_receipts(&identity.id, &numbers, ReceiptUpdate::Delivered)
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

    pub async fn mark_read(&self, message: MarkRead, cx: &Context) -> Result<MailAck, Failure> {
        let identity = self.identify(cx, None).await?;
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
                "there is no such message, or it isn't yours",
            ));
        }
        self.update_receipts(&identity.id, &[letter.number], mark)
            .await?;
        Ok(MailAck { success: true })
    }

    /// Stores the delivery state `mark` of the member `id` for messages, by number. Removes them
    /// from its delivery queue, and returns once the state is stored.
    pub async fn update_receipts(
        &self,
        id: &str,
        letters: &[u64],
        mark: ReceiptUpdate,
    ) -> Result<(), Failure> {
        if let Some(line) = self
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
                self.add_unread(id, -i64::try_from(moved).unwrap_or_default());
            }
            if moved > 0 {
                self.receipts.notify_events();
            }
        }
        Ok(())
    }

    /// Returns the delivery state of a message: for a recipient its own state, for the sender the
    /// least advanced state of all recipients.
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

    /// Returns whether a message expired before its recipient `identity` had read it. Callers treat
    /// such a message as nonexistent.
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

    fn unread_count(&self, id: &str) -> i64 {
        self.members().get(id).map_or(0, |member| member.unread)
    }

    fn add_unread(&self, id: &str, more: i64) {
        if let Some(member) = self.members().get_mut(id) {
            member.unread += more;
        }
    }
}

/// Returns a text that sorts after all ids lower than `id` and before `id`, as an exclusive start
/// for a page of receipts that begins with `id`.
fn key_before(id: &str) -> Option<String> {
    let mut chars: Vec<char> = id.chars().collect();
    let last = chars.pop()?;
    let lower = char::from_u32(u32::from(last).checked_sub(1)?)?;
    // No id has a character above `z`, so all other ids with this start sort before it.
    let start: String = chars.into_iter().chain([lower]).collect();
    Some(format!("{start}{}", "~".repeat(MemberId::CHARS_MAX)))
}

/// Maximum number of messages that one history request examines when it filters by delivery state.
/// The caller continues on the next page.
const HISTORY_SCANNED_MAX: usize = 1_000;
/// Default number of rows in one page of the communication log.
const LOG_ROWS_DEFAULT: u32 = 100;

impl MailroomState {
    pub async fn history(
        &self,
        message: MessageHistory,
        cx: &Context,
    ) -> Result<MessageHistoryPage, Failure> {
        let identity = self
            .identify(cx, message.sender_agent_id.as_deref())
            .await?;
        let limit = page_limit(message.limit, MAIL_HISTORY_DEFAULT, MAIL_HISTORY_MAX)?;
        let direction = message.direction.unwrap_or(MailDirection::All);
        let filter = MailMessageFilter {
            member: Some(identity.id.to_string()),
            sent: match direction {
                MailDirection::In => Some(false),
                MailDirection::Out => Some(true),
                MailDirection::All => None,
            },
            with: message.with,
            sender: message.from,
            topic: message.topic,
            thread: message.thread,
            text: message.text,
            since: parse_time("since", message.since)?,
            until: parse_time("until", message.until)?,
            // The store knows the state for one recipient, not that of the last recipient.
            state: message.state.filter(|_| direction == MailDirection::In),
        };
        let (mut messages, mut after, mut scanned) = (Vec::new(), message.after.unwrap_or(0), 0);
        loop {
            let (letters, next) = self
                .mail
                .history(filter.clone(), after, limit - messages.len())
                .await?;
            scanned += letters.len();
            for (letter, copy) in letters {
                if self.is_expired(&identity, &letter).await? {
                    continue;
                }
                let state = match copy {
                    Some(copy) => copy.state,
                    None => self.least_state(&letter).await?,
                };
                if message.state.is_none_or(|wanted| wanted == state) {
                    messages.push(self.mail_view(&identity, &letter, state, false));
                }
            }
            match next {
                // Only messages filtered out here are replaced; a short page of the store is
                // returned as it is.
                Some(next)
                    if filter.state != message.state
                        && messages.len() < limit
                        && scanned < HISTORY_SCANNED_MAX =>
                {
                    after = next;
                }
                next => return Ok(MessageHistoryPage { messages, next }),
            }
        }
    }

    pub async fn logs(&self, message: AgentLogs, cx: &Context) -> Result<AgentLogPage, Failure> {
        let identity = self.identify_viewer(cx).await?;
        let limit = page_limit(message.limit, LOG_ROWS_DEFAULT, MAIL_PAGE_MAX as u32)?;
        if !identity.watches
            && message
                .agent_id
                .as_ref()
                .is_some_and(|other| **other != *identity.id)
        {
            let why = "reading the log of others requires the scope mail.watch";
            return Err(denied_without(WATCH_SCOPE, why));
        }
        let of = message
            .agent_id
            .or_else(|| (!identity.watches).then(|| identity.id.to_string()));
        let logs = self
            .mail
            .log_rows(of.as_deref(), message.after.unwrap_or(0), limit)
            .await?;
        Ok(AgentLogPage { logs })
    }
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

fn parse_time(name: &str, value: Option<String>) -> Result<Option<SystemTime>, Failure> {
    let read = |text: String| {
        parse_rfc3339(&text)
            .ok_or_else(|| Failure::invalid(format!("`{name}` must be a time as RFC 3339 has it")))
    };
    value.map(read).transpose()
}

impl MailroomState {
    pub async fn read_events(
        &self,
        message: ReadEvents,
        cx: &Context,
    ) -> Result<MailEventPage, Failure> {
        let identity = self.identify_viewer(cx).await?;
        let limit = page_limit(message.limit, MAIL_EVENTS_MAX, MAIL_EVENTS_MAX)?;
        let after = message.after;
        // Read before the page: later events are on the next page.
        let newest = self.mail.last_event().await?;
        let page = self.mail.events(after, limit).await?;
        let first = page
            .first()
            .map_or(newest.saturating_add(1), |(number, _)| *number);
        let last = page.last().map_or(newest.max(after), |(number, _)| *number);
        let mut events = Vec::new();
        // A reader that starts at 0 wants the events that are still stored.
        if after > 0 && first > after + 1 {
            let event = MailEvent::Missed {
                from: after + 1,
                to: first - 1,
            };
            events.push(NumberedMailEvent {
                sequence: first - 1,
                event,
            });
        }
        for (sequence, stored) in page {
            let mut seen = self.visible_events(&identity, stored);
            seen.retain(|event| {
                message.types.is_empty() || message.types.iter().any(|kind| kind == event.kind())
            });
            events.extend(
                seen.into_iter()
                    .map(|event| NumberedMailEvent { sequence, event }),
            );
        }
        Ok(MailEventPage {
            events,
            last,
            newest: newest.max(last),
        })
    }

    /// Converts a stored event to the mail events that `identity` may see, limited to the
    /// recipients that it may see.
    fn visible_events(&self, identity: &MemberIdentity, stored: StoredMailEvent) -> Vec<MailEvent> {
        let sees = |id: &str| identity.watches || self.members().sees(&identity.id, id);
        match stored {
            StoredMailEvent::Posted(letter)
                if identity.watches || letter.new.concerns(&identity.id) =>
            {
                let known = self.members().count_visible_recipients(
                    &identity.id,
                    identity.watches,
                    &letter.new,
                ) as u64;
                vec![accepted_event(&letter, known), posted_event(&letter, known)]
            }
            StoredMailEvent::Posted(_) => Vec::new(),
            StoredMailEvent::ReceiptsUpdated {
                id,
                sender,
                state,
                mut recipients,
                ..
            } => {
                if !identity.watches && sender != *identity.id {
                    recipients.retain(|recipient| **recipient == *identity.id);
                }
                if recipients.is_empty() {
                    return Vec::new();
                }
                let (message_id, sender_agent_id, recipient_agent_ids) = (id, sender, recipients);
                vec![match state {
                    DeliveryState::Read => MailEvent::MessageRead {
                        message_id,
                        sender_agent_id,
                        recipient_agent_ids,
                    },
                    _ => MailEvent::MessageDelivered {
                        message_id,
                        sender_agent_id,
                        recipient_agent_ids,
                    },
                }]
            }
            StoredMailEvent::Joined(agent_id, way) if sees(&agent_id) => {
                let way = DeliveryMethod::parse(&way).unwrap_or(DeliveryMethod::None);
                vec![MailEvent::AgentJoined { agent_id, way }]
            }
            StoredMailEvent::Left(agent_id, reason) if sees(&agent_id) => {
                vec![MailEvent::AgentLeft { agent_id, reason }]
            }
            StoredMailEvent::Joined(..) | StoredMailEvent::Left(..) => Vec::new(),
        }
    }
}

/// Builds the event of an accepted message. `known` is the number of recipients that the event's
/// reader may see.
fn accepted_event(letter: &MailMessage, known: u64) -> MailEvent {
    let new = &letter.new;
    MailEvent::MessageAccepted {
        message_id: new.id.clone(),
        thread: new.thread().to_owned(),
        sender_agent_id: new.sender.clone(),
        recipient_count: known,
        priority: priority(new),
        topic: new.topic.clone(),
    }
}

pub(super) fn priority(new: &NewMailMessage) -> Priority {
    if new.urgent {
        Priority::Urgent
    } else {
        Priority::Normal
    }
}

fn posted_event(letter: &MailMessage, known: u64) -> MailEvent {
    let new = &letter.new;
    let (sender_agent_id, message_preview) =
        (new.sender.clone(), letter.preview(MAIL_PREVIEW_CHARS));
    match (new.audience.as_str(), new.recipients.as_slice()) {
        ("one", [to]) => MailEvent::AgentDirectMessage {
            sender_agent_id,
            recipient_agent_id: to.clone(),
            message_preview,
        },
        _ => MailEvent::AgentBroadcast {
            sender_agent_id,
            recipient_count: known,
            message_preview,
        },
    }
}

/// Maximum length of a message's text in lists (inbox and history), in characters. Longer texts are
/// truncated.
pub const LISTED_TEXT_CHARS_MAX: usize = 2_000;

impl MailroomState {
    /// Builds the view of a message for `identity`, in the delivery state `state`. Unless `whole`
    /// is set, the text is truncated to [`LISTED_TEXT_CHARS_MAX`] characters.
    fn mail_view(
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
        let mut text =
            self.display_text(&OutgoingMail::new(letter.clone()), to.unwrap_or_default());
        let shown = if whole {
            text.len()
        } else {
            cut_chars(&text, LISTED_TEXT_CHARS_MAX).len()
        };
        let cut = shown < text.len();
        text.truncate(shown);
        let members = self.members();
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
    async fn receipts(&self, letter: &MailMessage) -> Result<Vec<Receipt>, Failure> {
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

    /// Returns the least advanced delivery state of a message among its recipients.
    async fn least_state(&self, letter: &MailMessage) -> Result<DeliveryState, Failure> {
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
