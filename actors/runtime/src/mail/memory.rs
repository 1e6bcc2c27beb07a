use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use callboard_message::mail::{AgentLogRow, EntryState, LogDetails};
use callboard_message::time::rfc3339;

use super::{
    Letter, LetterFilter, LetterOpen, LetterPage, MAIL_LOG_ROWS_A_LETTER, MAIL_LOOKED_MAX,
    MAIL_PAGE_MAX, MARKS_AT_ONCE_MAX, Mail, MailCopy, Mark, NewLetter, SPREAD_MAX, StoredEvent,
};
use crate::audit::Audit;
use crate::journal::{JournalError, JournalResult};
use crate::sync::Mutex;

/// Letters that [`MemoryMail`] holds, by default.
const MEMORY_LETTERS_MAX_DEFAULT: usize = 100_000;
/// Events that [`MemoryMail`] holds: the oldest go.
const EVENTS_MAX: usize = 100_000;

/// Mail that lasts as long as the process, and its bodies with it: they have no retention here.
pub struct MemoryMail {
    audit: Arc<dyn Audit>,
    letters_max: usize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// By number, from 1.
    letters: Vec<Arc<Letter>>,
    by_id: HashMap<String, u64>,
    by_key: HashMap<(String, String), u64>,
    /// By recipient and letter: all, also those that count as not spread.
    copies: HashMap<String, BTreeMap<u64, MailCopy>>,
    events: VecDeque<StoredEvent>,
    last_event: u64,
}

impl MemoryMail {
    /// Mail whose letters are put on record in `audit`.
    pub fn new(audit: Arc<dyn Audit>) -> Self {
        Self::with_capacity(audit, MEMORY_LETTERS_MAX_DEFAULT)
    }

    /// The same for `letters_max` letters: then it answers [`JournalError::Full`].
    pub fn with_capacity(audit: Arc<dyn Audit>, letters_max: usize) -> Self {
        Self {
            audit,
            letters_max,
            kept: Mutex::default(),
        }
    }

    fn keep(&self, new: NewLetter) -> JournalResult<Arc<Letter>> {
        new.check()?;
        let mut kept = self.kept.lock();
        let key = new.key.clone().map(|key| (new.sender.clone(), key));
        if let Some(first) = key
            .as_ref()
            .and_then(|key| kept.by_key.get(key))
            .and_then(|number| kept.at(*number))
        {
            return Ok(first);
        }
        if kept.by_id.contains_key(&new.id) {
            return Err(JournalError::Store(
                "a letter of that id is there".to_owned(),
            ));
        }
        if kept.letters.len() >= self.letters_max {
            return Err(JournalError::Full {
                records_max: self.letters_max,
            });
        }
        let number = kept.letters.len() as u64 + 1;
        let mark = self.audit.mark(new.class, new.body.as_bytes());
        let letter = Letter::accepted(number, new, mark, SystemTime::now());
        for recipient in &letter.new.recipients {
            let copy = letter.fresh_copy(recipient);
            kept.copies
                .entry(recipient.clone())
                .or_default()
                .insert(number, copy);
        }
        kept.by_id.insert(letter.new.id.clone(), number);
        kept.by_key.extend(key.map(|key| (key, number)));
        let first = Arc::new(Letter {
            is_new: false,
            ..letter.clone()
        });
        kept.letters.push(first.clone());
        kept.tell(StoredEvent::Posted(first));
        Ok(Arc::new(letter))
    }
}

impl Kept {
    fn at(&self, number: u64) -> Option<Arc<Letter>> {
        self.letters
            .get(usize::try_from(number.checked_sub(1)?).ok()?)
            .cloned()
    }

    fn tell(&mut self, event: StoredEvent) {
        self.last_event += 1;
        self.events.push_back(event);
        if self.events.len() > EVENTS_MAX {
            self.events.pop_front();
        }
    }

    /// Moves copies, tells of those that moved, letter by letter, and answers them.
    fn mark(&mut self, marks: Vec<(String, u64)>, state: EntryState) -> Vec<(String, u64)> {
        let now = SystemTime::now();
        let mut by_letter: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        let mut moved = Vec::new();
        for (recipient, letter) in marks {
            let copy = self
                .copies
                .get_mut(&recipient)
                .and_then(|copies| copies.get_mut(&letter));
            let Some(copy) = copy.filter(|copy| copy.state < state) else {
                continue;
            };
            copy.state = state;
            copy.delivered.get_or_insert(now);
            copy.read = (state == EntryState::Read).then_some(now);
            by_letter.entry(letter).or_default().push(recipient.clone());
            moved.push((recipient, letter));
        }
        for (letter, mut recipients) in by_letter {
            recipients.sort_unstable();
            let Some(of) = self.at(letter) else { continue };
            let (id, sender) = (of.new.id.clone(), of.new.sender.clone());
            self.tell(StoredEvent::Marked {
                letter,
                id,
                sender,
                state,
                recipients,
            });
        }
        moved
    }

    fn copy_of(&self, recipient: Option<&str>, letter: u64) -> Option<MailCopy> {
        self.copies.get(recipient?)?.get(&letter).cloned()
    }

    fn rows(&self, agent: Option<&str>) -> impl Iterator<Item = AgentLogRow> {
        self.letters.iter().flat_map(move |letter| {
            let new = &letter.new;
            let of =
                move |recipient: &&String| agent.is_none_or(|agent| agent == recipient.as_str());
            (0..)
                .zip(&new.recipients)
                .filter(move |(_, recipient)| of(recipient))
                .map(|(nth, recipient)| AgentLogRow {
                    number: letter.number * MAIL_LOG_ROWS_A_LETTER + nth,
                    log_type: "agent_communication".to_owned(),
                    agent_id: recipient.clone(),
                    message: letter.summary(),
                    details: LogDetails {
                        sender_id: new.sender.clone(),
                        recipient_id: recipient.clone(),
                        message_type: new.kind,
                        message_content: letter.logged(),
                        timestamp: rfc3339(letter.accepted),
                    },
                })
        })
    }
}

#[async_trait]
impl Mail for MemoryMail {
    async fn post(&self, new: NewLetter) -> JournalResult<Arc<Letter>> {
        let letter = self.keep(new)?;
        if letter.is_new {
            self.audit.append(vec![letter.audit_entry()]).await?;
        }
        Ok(letter)
    }

    async fn spread(&self, letter: u64, to: u32, delivered: Vec<String>) -> JournalResult<()> {
        let mut kept = self.kept.lock();
        let there = kept
            .at(letter)
            .ok_or(JournalError::Invalid("there is no such letter"))?;
        let to = to.min(u32::try_from(there.new.recipients.len()).unwrap_or(u32::MAX));
        if to.saturating_sub(there.spread) as usize > SPREAD_MAX || delivered.len() > SPREAD_MAX {
            return Err(JournalError::Invalid("too many copies at once"));
        }
        let to = to.max(there.spread);
        let delivered = delivered
            .into_iter()
            .map(|recipient| (recipient, letter))
            .collect();
        drop(there);
        if let Some(letter) = kept.letters.get_mut(
            usize::try_from(letter)
                .unwrap_or_default()
                .saturating_sub(1),
        ) {
            Arc::make_mut(letter).spread = to;
        }
        kept.mark(delivered, EntryState::Delivered);
        Ok(())
    }

    async fn unspread(&self, letters_max: usize) -> JournalResult<Vec<Arc<Letter>>> {
        let kept = self.kept.lock();
        let unspread = kept.letters.iter().filter(|letter| !letter.is_spread());
        Ok(unspread
            .take(letters_max.min(MAIL_PAGE_MAX))
            .cloned()
            .collect())
    }

    async fn mark(
        &self,
        marks: Vec<(String, u64)>,
        mark: Mark,
    ) -> JournalResult<Vec<(String, u64)>> {
        if marks.len() > MARKS_AT_ONCE_MAX {
            return Err(JournalError::Invalid("too many marks at once"));
        }
        let state = match mark {
            Mark::Delivered => EntryState::Delivered,
            Mark::Read => EntryState::Read,
        };
        Ok(self.kept.lock().mark(marks, state))
    }

    async fn tried(&self, recipient: &str, letter: u64) -> JournalResult<u32> {
        let mut kept = self.kept.lock();
        let copy = kept
            .copies
            .get_mut(recipient)
            .and_then(|copies| copies.get_mut(&letter));
        Ok(copy.map_or(0, |copy| {
            copy.attempts += 1;
            copy.attempts
        }))
    }

    async fn open(
        &self,
        recipient: &str,
        after: Option<(bool, u64)>,
        undelivered: bool,
        letters_max: usize,
    ) -> JournalResult<Vec<LetterOpen>> {
        let now = SystemTime::now();
        let kept = self.kept.lock();
        let below = if undelivered {
            EntryState::Delivered
        } else {
            EntryState::Read
        };
        let copies = kept
            .copies
            .get(recipient)
            .into_iter()
            .flat_map(BTreeMap::values);
        let waiting = copies
            .filter(|copy| copy.state < below)
            .filter_map(|copy| Some((kept.at(copy.letter)?, copy)));
        let place = |letter: &Letter| (!letter.new.urgent, letter.number);
        let later = |letter: &Letter| {
            after.is_none_or(|(urgent, number)| place(letter) > (!urgent, number))
        };
        let mut open: Vec<_> = waiting
            .filter(|(letter, _)| letter.new.expires > now && later(letter))
            .map(|(letter, copy)| (letter, copy.clone()))
            .collect();
        open.sort_by_key(|(letter, _)| place(letter));
        open.truncate(letters_max.min(MAIL_PAGE_MAX));
        Ok(open)
    }

    async fn waiting(&self) -> JournalResult<HashMap<String, u64>> {
        let now = SystemTime::now();
        let kept = self.kept.lock();
        let waits = |copy: &&MailCopy| {
            copy.state < EntryState::Read
                && kept
                    .at(copy.letter)
                    .is_some_and(|letter| letter.new.expires > now)
        };
        let waiting = kept.copies.iter().map(|(name, copies)| {
            let waiting = copies.values().filter(waits).count() as u64;
            (name.clone(), waiting)
        });
        Ok(waiting.filter(|(_, waiting)| *waiting > 0).collect())
    }

    async fn letter(&self, id: &str) -> JournalResult<Option<Arc<Letter>>> {
        let kept = self.kept.lock();
        Ok(kept.by_id.get(id).and_then(|number| kept.at(*number)))
    }

    async fn receipts(
        &self,
        letter: u64,
        after: Option<&str>,
        copies_max: usize,
    ) -> JournalResult<Vec<MailCopy>> {
        let kept = self.kept.lock();
        let there = kept.at(letter);
        let recipients = there.iter().flat_map(|letter| &letter.new.recipients);
        let later =
            recipients.filter(|recipient| after.is_none_or(|after| recipient.as_str() > after));
        let copies = later.filter_map(|recipient| kept.copy_of(Some(recipient), letter));
        Ok(copies.take(copies_max.min(MAIL_PAGE_MAX)).collect())
    }

    async fn history(
        &self,
        filter: LetterFilter,
        before: u64,
        letters_max: usize,
    ) -> JournalResult<LetterPage> {
        filter.check()?;
        let kept = self.kept.lock();
        let of = filter.of.as_deref();
        let below = |letter: &&Arc<Letter>| before == 0 || letter.number < before;
        let concerned = |letter: &&Arc<Letter>| of.is_none_or(|of| letter.new.concerns(of));
        let (mut found, mut looked) = (Vec::new(), 0);
        for letter in kept.letters.iter().rev().filter(below).filter(concerned) {
            if found.len() >= letters_max.min(MAIL_PAGE_MAX) || looked >= MAIL_LOOKED_MAX {
                return Ok((found, Some(letter.number + 1)));
            }
            looked += 1;
            let copy = kept.copy_of(of, letter.number);
            if filter.leaves(letter, copy.as_ref()) {
                found.push((Arc::clone(letter), copy));
            }
        }
        Ok((found, None))
    }

    async fn events(
        &self,
        after: u64,
        events_max: usize,
    ) -> JournalResult<Vec<(u64, StoredEvent)>> {
        let kept = self.kept.lock();
        let first = kept.last_event + 1 - kept.events.len() as u64;
        let skip = usize::try_from(after.saturating_sub(first - 1)).unwrap_or(usize::MAX);
        let events = (first..)
            .zip(&kept.events)
            .skip(skip)
            .take(events_max.min(MAIL_PAGE_MAX));
        let told = |event: &StoredEvent| match event {
            // As far as its copies are made by now.
            StoredEvent::Posted(letter) => kept.at(letter.number).map(StoredEvent::Posted),
            event => Some(event.clone()),
        };
        Ok(events
            .filter_map(|(number, event)| Some((number, told(event)?)))
            .collect())
    }

    async fn last_event(&self) -> JournalResult<u64> {
        Ok(self.kept.lock().last_event)
    }

    async fn tell(&self, event: StoredEvent) -> JournalResult<u64> {
        event.check_told()?;
        let mut kept = self.kept.lock();
        kept.tell(event);
        Ok(kept.last_event)
    }

    async fn logs(
        &self,
        agent: Option<&str>,
        after: u64,
        rows_max: usize,
    ) -> JournalResult<Vec<AgentLogRow>> {
        let kept = self.kept.lock();
        Ok(kept
            .rows(agent)
            .filter(|row| row.number > after)
            .take(rows_max.min(MAIL_PAGE_MAX))
            .collect())
    }
}
