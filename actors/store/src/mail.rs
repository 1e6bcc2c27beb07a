//! Mail: a letter with its recipients, its line in the audit and its event are one transaction; copies follow.

pub(crate) mod clean;
mod events;
mod history;
mod list;
mod logs;
mod look;
mod mark;
mod post;
mod row;
mod spread;

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use callboard_message::mail::AgentLogRow;
use callboard_runtime::{
    Audit, JournalError, Letter, LetterFilter, LetterOpen, LetterPage, MARKS_AT_ONCE_MAX, Mail, MailCopy, Mark,
    NewLetter, SPREAD_MAX, StoredEvent, storable,
};

use crate::open::{Core, SqlStore};
use crate::readers::{PAGE_MAX, Readers};
use mark::{MarkAll, Tried};
use post::Post;
use row::Held;
use spread::Spread;

impl SqlStore {
    /// Its mail; `marks` says what stands for the letters' bodies: its own audit, as a rule.
    pub fn mail(&self, marks: Arc<dyn Audit>) -> Arc<dyn Mail> {
        Arc::new(SqlMail { core: Arc::clone(&self.core), marks, held: Held::default() })
    }
}

/// The mail of an open store.
struct SqlMail {
    core: Arc<Core>,
    marks: Arc<dyn Audit>,
    held: Held,
}

/// How many rows a page may have, as the database takes it.
fn page(rows_max: usize) -> i64 {
    i64::try_from(rows_max.min(PAGE_MAX)).unwrap_or(i64::MAX)
}

/// A number as the database has it.
fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[async_trait]
impl Mail for SqlMail {
    async fn post(&self, new: NewLetter) -> Result<Arc<Letter>, JournalError> {
        new.check()?;
        let mark = self.marks.mark(new.class, new.body.as_bytes());
        self.core.writer.submit(Post::new(new, mark)).await
    }

    async fn spread(&self, letter: u64, to: u32, delivered: Vec<String>) -> Result<(), JournalError> {
        if delivered.len() > SPREAD_MAX {
            return Err(JournalError::Invalid("too many copies at once"));
        }
        delivered.iter().try_for_each(|recipient| storable(recipient))?;
        self.core.writer.submit(Spread::new(number(letter), to.into(), delivered)).await?
    }

    async fn unspread(&self, letters_max: usize) -> Result<Vec<Arc<Letter>>, JournalError> {
        look::unspread(self, page(letters_max)).await
    }

    async fn mark(&self, marks: Vec<(String, u64)>, mark: Mark) -> Result<Vec<(String, u64)>, JournalError> {
        if marks.len() > MARKS_AT_ONCE_MAX {
            return Err(JournalError::Invalid("too many marks at once"));
        }
        marks.iter().try_for_each(|(recipient, _)| storable(recipient))?;
        match marks.is_empty() {
            true => Ok(Vec::new()),
            false => self.core.writer.submit(MarkAll::new(&marks, mark)).await,
        }
    }

    async fn tried(&self, recipient: &str, letter: u64) -> Result<u32, JournalError> {
        storable(recipient)?;
        self.core.writer.submit(Tried::new(recipient, number(letter))).await
    }

    async fn open(
        &self,
        recipient: &str,
        after: Option<(bool, u64)>,
        undelivered: bool,
        letters_max: usize,
    ) -> Result<Vec<LetterOpen>, JournalError> {
        storable(recipient)?;
        let after = after.map(|(urgent, letter)| (urgent, number(letter)));
        look::open(self, recipient, after, undelivered, page(letters_max)).await
    }

    async fn waiting(&self) -> Result<HashMap<String, u64>, JournalError> {
        look::waiting(&self.core.readers).await
    }

    async fn letter(&self, id: &str) -> Result<Option<Arc<Letter>>, JournalError> {
        storable(id)?;
        look::letter(self, id).await
    }

    async fn receipts(
        &self,
        letter: u64,
        after: Option<&str>,
        copies_max: usize,
    ) -> Result<Vec<MailCopy>, JournalError> {
        after.map_or(Ok(()), storable)?;
        look::receipts(&self.core.readers, number(letter), after.unwrap_or_default(), page(copies_max)).await
    }

    async fn history(&self, filter: LetterFilter, before: u64, letters_max: usize) -> Result<LetterPage, JournalError> {
        filter.check()?;
        let before = if before == 0 { i64::MAX } else { number(before) };
        history::history(self, &filter, before, page(letters_max)).await
    }

    async fn events(&self, after: u64, events_max: usize) -> Result<Vec<(u64, StoredEvent)>, JournalError> {
        events::read(self, number(after), page(events_max)).await
    }

    async fn last_event(&self) -> Result<u64, JournalError> {
        events::last(&self.core.readers).await
    }

    async fn tell(&self, event: StoredEvent) -> Result<u64, JournalError> {
        event.check_told()?;
        self.core.writer.submit(events::Tell::new(event)).await
    }

    async fn logs(&self, agent: Option<&str>, after: u64, rows_max: usize) -> Result<Vec<AgentLogRow>, JournalError> {
        agent.map_or(Ok(()), storable)?;
        logs::read(&self.core.readers, agent, number(after), page(rows_max)).await
    }

    fn is_shared(&self) -> bool {
        matches!(self.core.readers, Readers::Postgres(_))
    }
}
