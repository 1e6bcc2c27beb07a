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

use callboard_message::mail::AgentLogRow;
use callboard_runtime::{
    Audit, JournalError, Letter, LetterFilter, LetterOpen, LetterPage, MARKS_AT_ONCE_MAX, Mail, MailCopy, Mark,
    NewLetter, SPREAD_MAX, StoredEvent, storable,
};
use futures::future::BoxFuture;

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

impl SqlMail {
    fn readers(&self) -> &Readers {
        &self.core.readers
    }
}

/// How many rows a page may have, as the database takes it.
fn page(rows_max: usize) -> i64 {
    i64::try_from(rows_max.min(PAGE_MAX)).unwrap_or(i64::MAX)
}

/// A number as the database has it.
fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

impl Mail for SqlMail {
    fn post(&self, new: NewLetter) -> BoxFuture<'_, Result<Arc<Letter>, JournalError>> {
        Box::pin(async move {
            new.check()?;
            let mark = self.marks.mark(new.class, new.body.as_bytes());
            self.core.writer.submit(Post::new(new, mark)).await
        })
    }

    fn spread(&self, letter: u64, to: u32, delivered: Vec<String>) -> BoxFuture<'_, Result<(), JournalError>> {
        Box::pin(async move {
            if delivered.len() > SPREAD_MAX {
                return Err(JournalError::Invalid("too many copies at once"));
            }
            delivered.iter().try_for_each(|recipient| storable(recipient))?;
            self.core.writer.submit(Spread::new(number(letter), to.into(), delivered)).await?
        })
    }

    fn unspread(&self, letters_max: usize) -> BoxFuture<'_, Result<Vec<Arc<Letter>>, JournalError>> {
        Box::pin(look::unspread(self, page(letters_max)))
    }

    fn mark(&self, marks: Vec<(String, u64)>, mark: Mark) -> BoxFuture<'_, Result<Vec<(String, u64)>, JournalError>> {
        Box::pin(async move {
            if marks.len() > MARKS_AT_ONCE_MAX {
                return Err(JournalError::Invalid("too many marks at once"));
            }
            marks.iter().try_for_each(|(recipient, _)| storable(recipient))?;
            match marks.is_empty() {
                true => Ok(Vec::new()),
                false => self.core.writer.submit(MarkAll::new(&marks, mark)).await,
            }
        })
    }

    fn tried<'a>(&'a self, recipient: &'a str, letter: u64) -> BoxFuture<'a, Result<u32, JournalError>> {
        Box::pin(async move {
            storable(recipient)?;
            self.core.writer.submit(Tried::new(recipient, number(letter))).await
        })
    }

    fn open<'a>(
        &'a self,
        recipient: &'a str,
        after: Option<(bool, u64)>,
        undelivered: bool,
        letters_max: usize,
    ) -> BoxFuture<'a, Result<Vec<LetterOpen>, JournalError>> {
        Box::pin(async move {
            storable(recipient)?;
            let after = after.map(|(urgent, letter)| (urgent, number(letter)));
            look::open(self, recipient, after, undelivered, page(letters_max)).await
        })
    }

    fn waiting(&self) -> BoxFuture<'_, Result<HashMap<String, u64>, JournalError>> {
        Box::pin(look::waiting(self.readers()))
    }

    fn letter<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Arc<Letter>>, JournalError>> {
        Box::pin(async move {
            storable(id)?;
            look::letter(self, id).await
        })
    }

    fn receipts<'a>(
        &'a self,
        letter: u64,
        after: Option<&'a str>,
        copies_max: usize,
    ) -> BoxFuture<'a, Result<Vec<MailCopy>, JournalError>> {
        Box::pin(async move {
            after.map_or(Ok(()), storable)?;
            look::receipts(self.readers(), number(letter), after.unwrap_or_default(), page(copies_max)).await
        })
    }

    fn history(
        &self,
        filter: LetterFilter,
        before: u64,
        letters_max: usize,
    ) -> BoxFuture<'_, Result<LetterPage, JournalError>> {
        Box::pin(async move {
            filter.check()?;
            let before = if before == 0 { i64::MAX } else { number(before) };
            history::history(self, &filter, before, page(letters_max)).await
        })
    }

    fn events(&self, after: u64, events_max: usize) -> BoxFuture<'_, Result<Vec<(u64, StoredEvent)>, JournalError>> {
        Box::pin(events::read(self, number(after), page(events_max)))
    }

    fn last_event(&self) -> BoxFuture<'_, Result<u64, JournalError>> {
        Box::pin(events::last(self.readers()))
    }

    fn tell(&self, event: StoredEvent) -> BoxFuture<'_, Result<u64, JournalError>> {
        Box::pin(async move {
            event.check_told()?;
            self.core.writer.submit(events::Tell::new(event)).await
        })
    }

    fn logs<'a>(
        &'a self,
        agent: Option<&'a str>,
        after: u64,
        rows_max: usize,
    ) -> BoxFuture<'a, Result<Vec<AgentLogRow>, JournalError>> {
        Box::pin(async move {
            agent.map_or(Ok(()), storable)?;
            logs::read(self.readers(), agent, number(after), page(rows_max)).await
        })
    }

    fn is_shared(&self) -> bool {
        matches!(self.core.readers, Readers::Postgres(_))
    }
}
