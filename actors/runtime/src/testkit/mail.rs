//! Mail that does one thing differently.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use callboard_message::mail::AgentLogRow;

use crate::{JournalError, Letter, LetterFilter, LetterOpen, LetterPage, Mail, MailCopy, Mark, NewLetter, StoredEvent};

/// In front of other mail: what it doesn't treat itself goes on to that. It is [`Mail`] by this.
#[async_trait]
pub trait MailLayer: Send + Sync + 'static {
    /// What it stands in front of.
    fn behind(&self) -> &dyn Mail;

    /// As [`Mail::post`].
    async fn post(&self, new: NewLetter) -> Result<Arc<Letter>, JournalError> {
        self.behind().post(new).await
    }

    /// As [`Mail::spread`].
    async fn spread(&self, letter: u64, to: u32, delivered: Vec<String>) -> Result<(), JournalError> {
        self.behind().spread(letter, to, delivered).await
    }

    /// As [`Mail::mark`].
    async fn mark(&self, marks: Vec<(String, u64)>, mark: Mark) -> Result<Vec<(String, u64)>, JournalError> {
        self.behind().mark(marks, mark).await
    }

    /// As [`Mail::is_shared`].
    fn is_shared(&self) -> bool {
        self.behind().is_shared()
    }
}

#[async_trait]
impl<L: MailLayer> Mail for L {
    async fn post(&self, new: NewLetter) -> Result<Arc<Letter>, JournalError> {
        MailLayer::post(self, new).await
    }

    async fn spread(&self, letter: u64, to: u32, delivered: Vec<String>) -> Result<(), JournalError> {
        MailLayer::spread(self, letter, to, delivered).await
    }

    async fn unspread(&self, letters_max: usize) -> Result<Vec<Arc<Letter>>, JournalError> {
        self.behind().unspread(letters_max).await
    }

    async fn mark(&self, marks: Vec<(String, u64)>, mark: Mark) -> Result<Vec<(String, u64)>, JournalError> {
        MailLayer::mark(self, marks, mark).await
    }

    async fn tried(&self, recipient: &str, letter: u64) -> Result<u32, JournalError> {
        self.behind().tried(recipient, letter).await
    }

    async fn open(
        &self,
        recipient: &str,
        after: Option<(bool, u64)>,
        undelivered: bool,
        letters_max: usize,
    ) -> Result<Vec<LetterOpen>, JournalError> {
        self.behind().open(recipient, after, undelivered, letters_max).await
    }

    async fn waiting(&self) -> Result<HashMap<String, u64>, JournalError> {
        self.behind().waiting().await
    }

    async fn letter(&self, id: &str) -> Result<Option<Arc<Letter>>, JournalError> {
        self.behind().letter(id).await
    }

    async fn receipts(
        &self,
        letter: u64,
        after: Option<&str>,
        copies_max: usize,
    ) -> Result<Vec<MailCopy>, JournalError> {
        self.behind().receipts(letter, after, copies_max).await
    }

    async fn history(&self, filter: LetterFilter, before: u64, letters_max: usize) -> Result<LetterPage, JournalError> {
        self.behind().history(filter, before, letters_max).await
    }

    async fn events(&self, after: u64, events_max: usize) -> Result<Vec<(u64, StoredEvent)>, JournalError> {
        self.behind().events(after, events_max).await
    }

    async fn last_event(&self) -> Result<u64, JournalError> {
        self.behind().last_event().await
    }

    async fn tell(&self, event: StoredEvent) -> Result<u64, JournalError> {
        self.behind().tell(event).await
    }

    async fn logs(&self, agent: Option<&str>, after: u64, rows_max: usize) -> Result<Vec<AgentLogRow>, JournalError> {
        self.behind().logs(agent, after, rows_max).await
    }

    fn is_shared(&self) -> bool {
        MailLayer::is_shared(self)
    }
}
