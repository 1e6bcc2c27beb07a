//! A store of mail that says when it had committed each letter.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use callboard::message::mail::AgentLogRow;
use callboard::{
    JournalError, MailCopy, MailHistoryPage, MailMessage, MailMessageFilter, MailMessageWithCopy,
    MailStore, NewMailMessage, ReceiptUpdate, StoredMailEvent, async_trait,
};
use parking_lot::Mutex;

/// Mail store that wraps another and notes the time of each commit by message id.
pub struct Stamps {
    mail: Arc<dyn MailStore>,
    accepted: Mutex<HashMap<String, Instant>>,
}

impl Stamps {
    pub fn new(mail: Arc<dyn MailStore>) -> Arc<Self> {
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
impl MailStore for Stamps {
    async fn post(&self, new: NewMailMessage) -> Result<Arc<MailMessage>, JournalError> {
        let letter = self.mail.post(new).await?;
        let now = Instant::now();
        self.accepted.lock().insert(letter.new.id.clone(), now);
        Ok(letter)
    }

    async fn fan_out(
        &self,
        letter: u64,
        to: u32,
        delivered: Vec<String>,
    ) -> Result<(), JournalError> {
        self.mail.fan_out(letter, to, delivered).await
    }

    async fn pending_fan_out(
        &self,
        letters_max: usize,
    ) -> Result<Vec<Arc<MailMessage>>, JournalError> {
        self.mail.pending_fan_out(letters_max).await
    }

    async fn update_receipts(
        &self,
        marks: Vec<(String, u64)>,
        mark: ReceiptUpdate,
    ) -> Result<Vec<(String, u64)>, JournalError> {
        self.mail.update_receipts(marks, mark).await
    }

    async fn count_attempt(&self, recipient: &str, letter: u64) -> Result<u32, JournalError> {
        self.mail.count_attempt(recipient, letter).await
    }

    async fn list_open(
        &self,
        recipient: &str,
        after: Option<(bool, u64)>,
        undelivered: bool,
        letters_max: usize,
    ) -> Result<Vec<MailMessageWithCopy>, JournalError> {
        self.mail
            .list_open(recipient, after, undelivered, letters_max)
            .await
    }

    async fn unread_counts(&self) -> Result<HashMap<String, u64>, JournalError> {
        self.mail.unread_counts().await
    }

    async fn message(&self, id: &str) -> Result<Option<Arc<MailMessage>>, JournalError> {
        self.mail.message(id).await
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
        filter: MailMessageFilter,
        before: u64,
        letters_max: usize,
    ) -> Result<MailHistoryPage, JournalError> {
        self.mail.history(filter, before, letters_max).await
    }

    async fn events(
        &self,
        after: u64,
        events_max: usize,
    ) -> Result<Vec<(u64, StoredMailEvent)>, JournalError> {
        self.mail.events(after, events_max).await
    }

    async fn last_event(&self) -> Result<u64, JournalError> {
        self.mail.last_event().await
    }

    async fn append_event(&self, event: StoredMailEvent) -> Result<u64, JournalError> {
        self.mail.append_event(event).await
    }

    async fn log_rows(
        &self,
        agent: Option<&str>,
        after: u64,
        rows_max: usize,
    ) -> Result<Vec<AgentLogRow>, JournalError> {
        self.mail.log_rows(agent, after, rows_max).await
    }
}
