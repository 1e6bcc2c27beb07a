//! Reading: what is new, one message, and what programs fetch.

use std::sync::Arc;
use std::time::SystemTime;

use callboard_message::Failure;
use callboard_message::mail::{
    AgentLogs, CheckInbox, Direction, Done, EntryState, Events, FetchMail, Fetched, History, Inbox,
    Logs, MAIL_EVENTS_MAX, MAIL_HISTORY_DEFAULT, MAIL_HISTORY_MAX, MAIL_INBOX_DEFAULT,
    MAIL_INBOX_MAX, MAIL_MEMBERS_MAX, MAIL_NAMED_MAX, MAIL_PREVIEW_CHARS, MailEvent, MailId,
    MailView, MarkRead, MemberWay, MessageHistory, Numbered, Priority, ReadEvents, ReadMessage,
    Receipt, WATCH_SCOPE,
};
use callboard_message::text::cut_chars;
use callboard_message::time::{read_rfc3339, rfc3339};
use callboard_runtime::{
    Cx, Letter, LetterFilter, MAIL_PAGE_MAX, MARKS_AT_ONCE_MAX, MailCopy, Mark, NewLetter,
    StoredEvent,
};

use super::Shared;
use super::member_identity::{Who, denied_without};
use super::text::Handed;

/// Letters that a look for some of them takes from the store at once.
const PAGE: usize = 256;
/// Letters that one look for some of them goes through.
const INBOX_SCANNED_MAX: usize = 10_000;

/// Receipts that one answer shows: as many as a message has recipients at most.
pub const RECEIPTS_MAX: usize = MAIL_MEMBERS_MAX;

impl Shared {
    pub async fn check(&self, message: CheckInbox, cx: &Cx) -> Result<Inbox, Failure> {
        let who = self.who(cx, message.sender_agent_id.as_deref()).await?;
        self.look(&who, message).await
    }

    /// What `who` hasn't read, as far as it is asked for. It counts as read, or as delivered where it is cut, unless it is
    /// only peeked at.
    pub async fn look(&self, who: &Who, message: CheckInbox) -> Result<Inbox, Failure> {
        let limit = page(message.limit, MAIL_INBOX_DEFAULT, MAIL_INBOX_MAX)?;
        let before = self.unread(&who.id);
        let (letters, unread) = self.find(who, &message, limit).await?;
        let more = unread.is_none();
        if let Some(unread) = unread {
            // What has expired meanwhile counts no more.
            self.unread_by(&who.id, unread - before);
        }
        let (mut whole, mut cut, mut messages) = (Vec::new(), Vec::new(), Vec::new());
        for (letter, copy) in letters {
            let mut view = self.view(who, &letter, copy.state, false);
            if !message.peek {
                let (mark, state) = if view.cut {
                    (&mut cut, EntryState::Delivered)
                } else {
                    (&mut whole, EntryState::Read)
                };
                mark.push(letter.number);
                view.state = view.state.max(state);
            }
            messages.push(view);
        }
        self.mark(&who.id, &cut, Mark::Delivered).await?;
        self.mark(&who.id, &whole, Mark::Read).await?;
        Ok(Inbox {
            unread: u64::try_from(self.unread(&who.id)).unwrap_or_default(),
            messages,
            more,
        })
    }

    /// Letters that fit, and how many weren't read, where all were gone through; else there are more.
    async fn find(
        &self,
        who: &Who,
        asked: &CheckInbox,
        limit: usize,
    ) -> Result<(Vec<(Arc<Letter>, MailCopy)>, Option<i64>), Failure> {
        let is = |wanted: &Option<String>, has: Option<&str>| {
            wanted.is_none() || wanted.as_deref() == has
        };
        let fits = |letter: &Letter| {
            is(&asked.from, Some(&letter.new.sender))
                && is(&asked.topic, letter.new.topic.as_deref())
                && is(&asked.thread, Some(letter.new.thread()))
                && (letter.new.urgent || !asked.urgent_only)
        };
        let takes_all = asked.from.is_none()
            && asked.topic.is_none()
            && asked.thread.is_none()
            && !asked.urgent_only;
        let page_max = if takes_all { limit + 1 } else { PAGE };
        let (mut letters, mut after, mut looked) = (Vec::new(), None, 0);
        loop {
            let page = self.mail.open(&who.id, after, false, page_max).await?;
            let is_last = page.len() < page_max;
            looked += page.len();
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
                return Ok((letters, i64::try_from(looked).ok()));
            }
            if looked >= INBOX_SCANNED_MAX {
                return Ok((letters, None));
            }
        }
    }

    pub async fn read(&self, message: ReadMessage, cx: &Cx) -> Result<MailView, Failure> {
        let who = self.who(cx, message.sender_agent_id.as_deref()).await?;
        self.read_one(&who, &message.message_id, message.receipts)
            .await
    }

    /// A message whole. It is read by that.
    pub async fn read_one(&self, who: &Who, id: &str, receipts: bool) -> Result<MailView, Failure> {
        let letter = self.letter_of(who, id).await?;
        let state = match letter.new.is_for(&who.id) {
            true => {
                self.mark(&who.id, &[letter.number], Mark::Read).await?;
                EntryState::Read
            }
            false => self.least(&letter).await?,
        };
        let mut view = self.view(who, &letter, state, true);
        if receipts && letter.new.sender == *who.id {
            view.receipts = Some(self.receipts(&letter).await?);
        }
        Ok(view)
    }

    pub async fn fetch(&self, message: FetchMail, cx: &Cx) -> Result<Fetched, Failure> {
        let who = self.who(cx, None).await?;
        if message.message_ids.len() > MAIL_HISTORY_MAX as usize {
            return Err(Failure::invalid(format!(
                "at most {MAIL_HISTORY_MAX} messages can be fetched at once"
            )));
        }
        let mut letters = Vec::new();
        for id in &message.message_ids {
            if MailId::parse(id.as_str()).is_ok()
                && let Some(letter) = self.mail.letter(id).await?
                && letter.new.concerns(&who.id)
                && !self.is_past(&who, &letter).await?
            {
                letters.push(letter);
            }
        }
        let own = letters
            .iter()
            .filter(|letter| message.receipts && letter.new.sender == *who.id);
        if own.map(|letter| letter.new.recipients.len()).sum::<usize>() > RECEIPTS_MAX {
            let why = format!(
                "these have more than {RECEIPTS_MAX} receipts: fetch fewer messages at once"
            );
            return Err(Failure::invalid(why));
        }
        let mine = letters.iter().filter(|letter| letter.new.is_for(&who.id));
        let numbers: Vec<u64> = mine.map(|letter| letter.number).collect();
        self.mark(&who.id, &numbers, Mark::Delivered).await?;
        let mut messages = Vec::new();
        for letter in letters {
            let state = self.state_of(&who, &letter).await?;
            let mut view = self.view(&who, &letter, state, true);
            view.message = Some(letter.new.body.clone());
            if message.receipts && letter.new.sender == *who.id {
                view.receipts = Some(self.receipts(&letter).await?);
            }
            messages.push(view);
        }
        Ok(Fetched { messages })
    }

    pub async fn mark_read(&self, message: MarkRead, cx: &Cx) -> Result<Done, Failure> {
        let who = self.who(cx, None).await?;
        let mark = match message.state.unwrap_or(EntryState::Read) {
            EntryState::Read => Mark::Read,
            EntryState::Delivered => Mark::Delivered,
            EntryState::Accepted => {
                return Err(Failure::invalid("`state` must be delivered or read"));
            }
        };
        let letter = self.letter_of(&who, &message.message_id).await?;
        if !letter.new.is_for(&who.id) {
            return Err(Failure::not_found("there is no such message for you"));
        }
        self.mark(&who.id, &[letter.number], mark).await?;
        Ok(Done { success: true })
    }

    /// Notes how far a member has come with letters. Ends when that is kept.
    pub async fn mark(&self, id: &str, letters: &[u64], mark: Mark) -> Result<(), Failure> {
        if let Some(line) = self
            .members()
            .get(id)
            .and_then(|member| member.line.as_ref())
        {
            line.forget(letters);
        }
        for some in letters.chunks(MARKS_AT_ONCE_MAX) {
            let marks = some.iter().map(|letter| (id.to_owned(), *letter)).collect();
            let moved = self.mail.mark(marks, mark).await?.len();
            if mark == Mark::Read {
                self.unread_by(id, -i64::try_from(moved).unwrap_or_default());
            }
            if moved > 0 {
                self.marks.happened();
            }
        }
        Ok(())
    }

    /// How far a letter has come with `who`, or where that sent it, with its last recipient.
    async fn state_of(&self, who: &Who, letter: &Letter) -> Result<EntryState, Failure> {
        if !letter.new.is_for(&who.id) {
            return self.least(letter).await;
        }
        let before = before(&who.id);
        let copies = self
            .mail
            .receipts(letter.number, before.as_deref(), 1)
            .await?;
        Ok(copies
            .first()
            .filter(|copy| copy.recipient == *who.id)
            .map_or(EntryState::Accepted, |copy| copy.state))
    }

    /// Whether a letter expired before `who`, whom it is for, had read it: then it is handed out no more, and counts as nothing.
    pub async fn is_past(&self, who: &Who, letter: &Letter) -> Result<bool, Failure> {
        if letter.new.expires > SystemTime::now() || !letter.new.is_for(&who.id) {
            return Ok(false);
        }
        Ok(self.state_of(who, letter).await? != EntryState::Read)
    }

    fn unread(&self, id: &str) -> i64 {
        self.members().get(id).map_or(0, |member| member.unread)
    }

    fn unread_by(&self, id: &str, more: i64) {
        if let Some(member) = self.members().get_mut(id) {
            member.unread += more;
        }
    }
}

/// A name right before that of a member, so that a page that begins after it begins with the member.
fn before(id: &str) -> Option<String> {
    let mut chars: Vec<char> = id.chars().collect();
    let last = chars.pop()?;
    let lower = char::from_u32(u32::from(last).checked_sub(1)?)?;
    // Whatever else begins so comes before it: no id has a character above `z`.
    let start: String = chars.into_iter().chain([lower]).collect();
    Some(format!("{start}{}", "~".repeat(MailId::CHARS_MAX)))
}

/// Letters whose state one look goes through; what is beyond them is on the next page.
const HISTORY_SCANNED_MAX: usize = 1_000;
/// Rows of the log that a page has where nobody says.
const LOG_ROWS_DEFAULT: u32 = 100;

impl Shared {
    pub async fn history(&self, message: MessageHistory, cx: &Cx) -> Result<History, Failure> {
        let who = self.who(cx, message.sender_agent_id.as_deref()).await?;
        let limit = page(message.limit, MAIL_HISTORY_DEFAULT, MAIL_HISTORY_MAX)?;
        let direction = message.direction.unwrap_or(Direction::All);
        let filter = LetterFilter {
            of: Some(who.id.to_string()),
            sent: match direction {
                Direction::In => Some(false),
                Direction::Out => Some(true),
                Direction::All => None,
            },
            with: message.with,
            sender: message.from,
            topic: message.topic,
            thread: message.thread,
            text: message.text,
            since: time("since", message.since)?,
            until: time("until", message.until)?,
            // The store knows how far a letter has come with one recipient, not with the last of all.
            state: message.state.filter(|_| direction == Direction::In),
        };
        let (mut messages, mut after, mut looked) = (Vec::new(), message.after.unwrap_or(0), 0);
        loop {
            let (letters, next) = self
                .mail
                .history(filter.clone(), after, limit - messages.len())
                .await?;
            looked += letters.len();
            for (letter, copy) in letters {
                if self.is_past(&who, &letter).await? {
                    continue;
                }
                let state = match copy {
                    Some(copy) => copy.state,
                    None => self.least(&letter).await?,
                };
                if message.state.is_none_or(|wanted| wanted == state) {
                    messages.push(self.view(&who, &letter, state, false));
                }
            }
            match next {
                // Only what was left out here is made up for: the store's own pages are as they are.
                Some(next)
                    if filter.state != message.state
                        && messages.len() < limit
                        && looked < HISTORY_SCANNED_MAX =>
                {
                    after = next;
                }
                next => return Ok(History { messages, next }),
            }
        }
    }

    pub async fn logs(&self, message: AgentLogs, cx: &Cx) -> Result<Logs, Failure> {
        let who = self.who_looks(cx).await?;
        let limit = page(message.limit, LOG_ROWS_DEFAULT, MAIL_PAGE_MAX as u32)?;
        if !who.watches
            && message
                .agent_id
                .as_ref()
                .is_some_and(|other| **other != *who.id)
        {
            let why = "only whoever may watch all mail (mail.watch) sees the log of others";
            return Err(denied_without(WATCH_SCOPE, why));
        }
        let of = message
            .agent_id
            .or_else(|| (!who.watches).then(|| who.id.to_string()));
        let logs = self
            .mail
            .logs(of.as_deref(), message.after.unwrap_or(0), limit)
            .await?;
        Ok(Logs { logs })
    }
}

/// How many items a page has.
///
/// # Errors
/// `InvalidInput` for none, or more than `most`.
fn page(limit: Option<u32>, default: u32, most: u32) -> Result<usize, Failure> {
    match limit.unwrap_or(default) {
        limit if (1..=most).contains(&limit) => Ok(limit as usize),
        _ => Err(Failure::invalid(format!("`limit` must be 1 to {most}"))),
    }
}

fn time(name: &str, said: Option<String>) -> Result<Option<SystemTime>, Failure> {
    let read = |text: String| {
        read_rfc3339(&text)
            .ok_or_else(|| Failure::invalid(format!("`{name}` must be a time as RFC 3339 has it")))
    };
    said.map(read).transpose()
}

impl Shared {
    pub async fn read_events(&self, message: ReadEvents, cx: &Cx) -> Result<Events, Failure> {
        let who = self.who_looks(cx).await?;
        let limit = page(message.limit, MAIL_EVENTS_MAX, MAIL_EVENTS_MAX)?;
        let after = message.after;
        // Before the page: what comes between is on the next one.
        let newest = self.mail.last_event().await?;
        let page = self.mail.events(after, limit).await?;
        let first = page
            .first()
            .map_or(newest.saturating_add(1), |(number, _)| *number);
        let last = page.last().map_or(newest.max(after), |(number, _)| *number);
        let mut events = Vec::new();
        // Whoever begins at 0 wants what there is.
        if after > 0 && first > after + 1 {
            let event = MailEvent::Missed {
                from: after + 1,
                to: first - 1,
            };
            events.push(Numbered {
                sequence: first - 1,
                event,
            });
        }
        for (sequence, stored) in page {
            let mut seen = self.seen(&who, stored);
            seen.retain(|event| {
                message.types.is_empty() || message.types.iter().any(|kind| kind == event.kind())
            });
            events.extend(seen.into_iter().map(|event| Numbered { sequence, event }));
        }
        Ok(Events {
            events,
            last,
            newest: newest.max(last),
        })
    }

    /// What `who` may know of an event.
    fn seen(&self, who: &Who, stored: StoredEvent) -> Vec<MailEvent> {
        let sees = |id: &str| who.watches || self.members().sees(&who.id, id);
        match stored {
            StoredEvent::Posted(letter) if who.watches || letter.new.concerns(&who.id) => {
                let known = self.members().known(&who.id, who.watches, &letter.new) as u64;
                vec![accepted(&letter, known), posted(&letter, known)]
            }
            StoredEvent::Posted(_) => Vec::new(),
            StoredEvent::Marked {
                id,
                sender,
                state,
                mut recipients,
                ..
            } => {
                if !who.watches && sender != *who.id {
                    recipients.retain(|recipient| **recipient == *who.id);
                }
                if recipients.is_empty() {
                    return Vec::new();
                }
                let (message_id, sender_agent_id, recipient_agent_ids) = (id, sender, recipients);
                vec![match state {
                    EntryState::Read => MailEvent::MessageRead {
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
            StoredEvent::Joined(agent_id, way) if sees(&agent_id) => {
                let way = MemberWay::parse(&way).unwrap_or(MemberWay::None);
                vec![MailEvent::AgentJoined { agent_id, way }]
            }
            StoredEvent::Left(agent_id, reason) if sees(&agent_id) => {
                vec![MailEvent::AgentLeft { agent_id, reason }]
            }
            StoredEvent::Joined(..) | StoredEvent::Left(..) => Vec::new(),
        }
    }
}

/// To `known` recipients, as far as whoever is told may know.
fn accepted(letter: &Letter, known: u64) -> MailEvent {
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

pub(super) fn priority(new: &NewLetter) -> Priority {
    if new.urgent {
        Priority::Urgent
    } else {
        Priority::Normal
    }
}

fn posted(letter: &Letter, known: u64) -> MailEvent {
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

/// Characters of a text that a list shows.
pub const SHOWN_CHARS_MAX: usize = 2_000;

impl Shared {
    /// A letter as `who` sees it, of whose text a list shows the beginning only (`whole` not).
    fn view(&self, who: &Who, letter: &Arc<Letter>, state: EntryState, whole: bool) -> MailView {
        let Letter {
            number,
            new,
            accepted,
            ..
        } = &**letter;
        let is_sender = new.sender == *who.id;
        let to = if new.is_for(&who.id) {
            Some(&*who.id)
        } else {
            new.recipients.first().map(String::as_str)
        };
        let mut text = self.text(&Handed::new(letter.clone()), to.unwrap_or_default());
        let shown = if whole {
            text.len()
        } else {
            cut_chars(&text, SHOWN_CHARS_MAX).len()
        };
        let cut = shown < text.len();
        text.truncate(shown);
        let members = self.members();
        let known = members.known(&who.id, who.watches, new);
        let named = new
            .recipients
            .iter()
            .filter(|id| is_sender || members.sees(&who.id, id));
        MailView {
            message_id: new.id.clone(),
            number: *number,
            kind: new.kind,
            from: new.sender.clone(),
            to: if known > MAIL_NAMED_MAX {
                Vec::new()
            } else {
                named.cloned().collect()
            },
            to_count: known as u64,
            thread: new.thread().to_owned(),
            reply_to: new.reply_to.clone(),
            topic: new.topic.clone(),
            priority: priority(new),
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
    async fn receipts(&self, letter: &Letter) -> Result<Vec<Receipt>, Failure> {
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
            receipts.extend(page.into_iter().map(receipt));
            if is_last {
                return Ok(receipts);
            }
        }
    }

    /// How far a letter has come with the last of its recipients.
    async fn least(&self, letter: &Letter) -> Result<EntryState, Failure> {
        let (mut least, mut after) = (EntryState::Read, None::<String>);
        loop {
            let page = self
                .mail
                .receipts(letter.number, after.as_deref(), MAIL_PAGE_MAX)
                .await?;
            least = page
                .iter()
                .map(|copy| copy.state)
                .fold(least, EntryState::min);
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
