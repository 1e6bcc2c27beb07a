//! Reading: what is new, one message, and what programs fetch.

use std::sync::Arc;
use std::time::SystemTime;

use callboard_message::Failure;
use callboard_message::mail::{
    CheckInbox, Done, EntryState, FetchMail, Fetched, Inbox, MAIL_HISTORY_MAX, MAIL_INBOX_DEFAULT, MAIL_INBOX_MAX,
    MAIL_MEMBERS_MAX, MailId, MailView, MarkRead, ReadMessage,
};
use callboard_runtime::{Cx, Letter, MARKS_AT_ONCE_MAX, MailCopy, Mark};

use super::Shared;
use super::history::page;
use super::who::Who;

/// Letters that a look for some of them takes from the store at once.
const PAGE: usize = 256;
/// Letters that one look for some of them goes through.
const LOOKED_MAX: usize = 10_000;

/// Receipts that one answer shows: as many as a message has recipients at most.
pub const RECEIPTS_MAX: usize = MAIL_MEMBERS_MAX;

/// What a look into an inbox found.
struct Found {
    letters: Vec<(Arc<Letter>, MailCopy)>,
    /// There are more of them.
    more: bool,
    /// How many were not read, where all were gone through.
    unread: Option<i64>,
}

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
        let Found { letters, more, unread } = self.find(who, &message, limit).await?;
        if let Some(unread) = unread {
            // What has expired meanwhile counts no more.
            self.unread_by(&who.id, unread - before);
        }
        let (mut whole, mut cut, mut messages) = (Vec::new(), Vec::new(), Vec::new());
        for (letter, copy) in letters {
            let mut view = self.view(who, &letter, copy.state, false);
            if !message.peek {
                let (mark, state) =
                    if view.cut { (&mut cut, EntryState::Delivered) } else { (&mut whole, EntryState::Read) };
                mark.push(letter.number);
                view.state = view.state.max(state);
            }
            messages.push(view);
        }
        self.mark(&who.id, &cut, Mark::Delivered).await?;
        self.mark(&who.id, &whole, Mark::Read).await?;
        Ok(Inbox { unread: u64::try_from(self.unread(&who.id)).unwrap_or_default(), messages, more })
    }

    async fn find(&self, who: &Who, asked: &CheckInbox, limit: usize) -> Result<Found, Failure> {
        let is = |wanted: &Option<String>, has: Option<&str>| wanted.is_none() || wanted.as_deref() == has;
        let fits = |letter: &Letter| {
            is(&asked.from, Some(&letter.new.sender))
                && is(&asked.topic, letter.new.topic.as_deref())
                && is(&asked.thread, Some(letter.new.thread()))
                && (letter.new.urgent || !asked.urgent_only)
        };
        let takes_all = asked.from.is_none() && asked.topic.is_none() && asked.thread.is_none() && !asked.urgent_only;
        let page_max = if takes_all { limit + 1 } else { PAGE };
        let (mut letters, mut after, mut looked) = (Vec::new(), None, 0);
        loop {
            let page = self.mail.open(&who.id, after, false, page_max).await?;
            let is_last = page.len() < page_max;
            looked += page.len();
            after = page.last().map(|(letter, _)| (letter.new.urgent, letter.number));
            for (letter, copy) in page {
                if !fits(&letter) {
                    continue;
                }
                if letters.len() == limit {
                    return Ok(Found { letters, more: true, unread: None });
                }
                letters.push((letter, copy));
            }
            if is_last {
                return Ok(Found { letters, more: false, unread: i64::try_from(looked).ok() });
            }
            if looked >= LOOKED_MAX {
                return Ok(Found { letters, more: true, unread: None });
            }
        }
    }

    pub async fn read(&self, message: ReadMessage, cx: &Cx) -> Result<MailView, Failure> {
        let who = self.who(cx, message.sender_agent_id.as_deref()).await?;
        self.read_one(&who, &message.message_id, message.receipts).await
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
            return Err(Failure::invalid(format!("at most {MAIL_HISTORY_MAX} messages can be fetched at once")));
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
        let own = letters.iter().filter(|letter| message.receipts && letter.new.sender == *who.id);
        if own.map(|letter| letter.new.recipients.len()).sum::<usize>() > RECEIPTS_MAX {
            let why = format!("these have more than {RECEIPTS_MAX} receipts: fetch fewer messages at once");
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
            EntryState::Accepted => return Err(Failure::invalid("`state` must be delivered or read")),
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
        if let Some(line) = self.members().get(id).and_then(|member| member.line.as_ref()) {
            line.forget(letters);
        }
        for some in letters.chunks(MARKS_AT_ONCE_MAX) {
            let marks = some.iter().map(|letter| (id.to_owned(), *letter)).collect();
            let moved = self.mail.mark(marks, mark).await?.len();
            if mark == Mark::Read {
                self.unread_by(id, -i64::try_from(moved).unwrap_or_default());
            }
            if moved > 0 {
                self.happened();
            }
        }
        Ok(())
    }

    /// How far a letter has come with `who`, or where that sent it, with its last recipient.
    pub async fn state_of(&self, who: &Who, letter: &Letter) -> Result<EntryState, Failure> {
        if !letter.new.is_for(&who.id) {
            return self.least(letter).await;
        }
        let before = before(&who.id);
        let copies = self.mail.receipts(letter.number, before.as_deref(), 1).await?;
        Ok(copies.first().filter(|copy| copy.recipient == *who.id).map_or(EntryState::Accepted, |copy| copy.state))
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

    pub fn unread_by(&self, id: &str, more: i64) {
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
