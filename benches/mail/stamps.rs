//! A store of mail that says when it had committed each letter.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use callboard::message::mail::AgentLogRow;
use callboard::{
    JournalError, Letter, LetterFilter, LetterOpen, LetterPage, Mail, MailCopy, Mark, NewLetter,
    StoredEvent, async_trait,
};
use parking_lot::Mutex;

/// What another keeps; the moment at which it had committed a letter is noted, by the letter's id.
pub struct Stamps {
    mail: Arc<dyn Mail>,
    accepted: Mutex<HashMap<String, Instant>>,
}

impl Stamps {
    pub fn new(mail: Arc<dyn Mail>) -> Arc<Self> {
        Arc::new(Self {
            mail,
            accepted: Mutex::default(),
        })
    }

    /// Takes the moment of a letter, if it was committed.
    pub fn take(&self, id: &str) -> Option<Instant> {
        self.accepted.lock().remove(id)
    }
}

#[async_trait]
impl Mail for Stamps {
    async fn post(&self, new: NewLetter) -> Result<Arc<Letter>, JournalError> {
        let letter = self.mail.post(new).await?;
        let now = Instant::now();
        self.accepted.lock().insert(letter.new.id.clone(), now);
        Ok(letter)
    }

    async fn spread(
        &self,
        letter: u64,
        to: u32,
        delivered: Vec<String>,
    ) -> Result<(), JournalError> {
        self.mail.spread(letter, to, delivered).await
    }

    async fn unspread(&self, letters_max: usize) -> Result<Vec<Arc<Letter>>, JournalError> {
        self.mail.unspread(letters_max).await
    }

    async fn mark(
        &self,
        marks: Vec<(String, u64)>,
        mark: Mark,
    ) -> Result<Vec<(String, u64)>, JournalError> {
        self.mail.mark(marks, mark).await
    }

    async fn tried(&self, recipient: &str, letter: u64) -> Result<u32, JournalError> {
        self.mail.tried(recipient, letter).await
    }

    async fn open(
        &self,
        recipient: &str,
        after: Option<(bool, u64)>,
        undelivered: bool,
        letters_max: usize,
    ) -> Result<Vec<LetterOpen>, JournalError> {
        self.mail
            .open(recipient, after, undelivered, letters_max)
            .await
    }

    async fn waiting(&self) -> Result<HashMap<String, u64>, JournalError> {
        self.mail.waiting().await
    }

    async fn letter(&self, id: &str) -> Result<Option<Arc<Letter>>, JournalError> {
        self.mail.letter(id).await
    }

    async fn receipts(
        &self,
        letter: u64,
        after: Option<&str>,
        copies_max: usize,
    ) -> Result<Vec<MailCopy>, JournalError> {
        self.mail.receipts(letter, after, copies_max).await
    }

    async fn history(
        &self,
        filter: LetterFilter,
        before: u64,
        letters_max: usize,
    ) -> Result<LetterPage, JournalError> {
        self.mail.history(filter, before, letters_max).await
    }

    async fn events(
        &self,
        after: u64,
        events_max: usize,
    ) -> Result<Vec<(u64, StoredEvent)>, JournalError> {
        self.mail.events(after, events_max).await
    }

    async fn last_event(&self) -> Result<u64, JournalError> {
        self.mail.last_event().await
    }

    async fn tell(&self, event: StoredEvent) -> Result<u64, JournalError> {
        self.mail.tell(event).await
    }

    async fn logs(
        &self,
        agent: Option<&str>,
        after: u64,
        rows_max: usize,
    ) -> Result<Vec<AgentLogRow>, JournalError> {
        self.mail.logs(agent, after, rows_max).await
    }
}
