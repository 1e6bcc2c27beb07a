//! A store of mail that says when it had committed each letter.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use callboard::message::mail::AgentLogRow;
use callboard::{
    JournalError, Letter, LetterFilter, LetterOpen, LetterPage, Mail, MailCopy, Mark, NewLetter, StoredEvent,
};
use futures::future::BoxFuture;

/// What another keeps; the moment at which it had committed a letter is noted, by the letter's id.
pub struct Stamps {
    mail: Arc<dyn Mail>,
    accepted: Mutex<HashMap<String, Instant>>,
}

impl Stamps {
    pub fn new(mail: Arc<dyn Mail>) -> Arc<Self> {
        Arc::new(Self { mail, accepted: Mutex::default() })
    }

    /// Takes the moment of a letter, if it was committed.
    pub fn take(&self, id: &str) -> Option<Instant> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner).remove(id)
    }
}

type Done<'a, T> = BoxFuture<'a, Result<T, JournalError>>;

impl Mail for Stamps {
    fn post(&self, new: NewLetter) -> Done<'_, Arc<Letter>> {
        Box::pin(async move {
            let letter = self.mail.post(new).await?;
            let now = Instant::now();
            self.accepted.lock().unwrap_or_else(PoisonError::into_inner).insert(letter.new.id.clone(), now);
            Ok(letter)
        })
    }

    fn spread(&self, letter: u64, to: u32, delivered: Vec<String>) -> Done<'_, ()> {
        self.mail.spread(letter, to, delivered)
    }

    fn unspread(&self, letters_max: usize) -> Done<'_, Vec<Arc<Letter>>> {
        self.mail.unspread(letters_max)
    }

    fn mark(&self, marks: Vec<(String, u64)>, mark: Mark) -> Done<'_, Vec<(String, u64)>> {
        self.mail.mark(marks, mark)
    }

    fn tried<'a>(&'a self, recipient: &'a str, letter: u64) -> Done<'a, u32> {
        self.mail.tried(recipient, letter)
    }

    fn open<'a>(
        &'a self,
        recipient: &'a str,
        after: Option<(bool, u64)>,
        undelivered: bool,
        letters_max: usize,
    ) -> Done<'a, Vec<LetterOpen>> {
        self.mail.open(recipient, after, undelivered, letters_max)
    }

    fn waiting(&self) -> Done<'_, HashMap<String, u64>> {
        self.mail.waiting()
    }

    fn letter<'a>(&'a self, id: &'a str) -> Done<'a, Option<Arc<Letter>>> {
        self.mail.letter(id)
    }

    fn receipts<'a>(&'a self, letter: u64, after: Option<&'a str>, copies_max: usize) -> Done<'a, Vec<MailCopy>> {
        self.mail.receipts(letter, after, copies_max)
    }

    fn history(&self, filter: LetterFilter, before: u64, letters_max: usize) -> Done<'_, LetterPage> {
        self.mail.history(filter, before, letters_max)
    }

    fn events(&self, after: u64, events_max: usize) -> Done<'_, Vec<(u64, StoredEvent)>> {
        self.mail.events(after, events_max)
    }

    fn last_event(&self) -> Done<'_, u64> {
        self.mail.last_event()
    }

    fn tell(&self, event: StoredEvent) -> Done<'_, u64> {
        self.mail.tell(event)
    }

    fn logs<'a>(&'a self, agent: Option<&'a str>, after: u64, rows_max: usize) -> Done<'a, Vec<AgentLogRow>> {
        self.mail.logs(agent, after, rows_max)
    }
}
