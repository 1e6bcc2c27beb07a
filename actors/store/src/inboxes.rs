//! Inboxes. An entry and its line in the audit are one transaction.

mod accept;
mod row;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use callboard_runtime::{
    Audit, Entry, EntryFilter, EntryState, INBOX_ENTRIES_MAX_DEFAULT, Inboxes, JournalError, Mark, NewEntry, storable,
};
use futures::future::BoxFuture;

use crate::clock::{duration_ms, ms};
use crate::error::journal_error;
use crate::open::{Core, SqlStore};
use crate::readers::PAGE_MAX;
use crate::sql::Sql;
use crate::writer::{Tx, Write};
use accept::Accept;
use row::entries;

impl SqlStore {
    /// Its inboxes; `marks` says what stands for their bodies: its own audit, as a rule.
    pub fn inboxes(&self, marks: Arc<dyn Audit>) -> Arc<dyn Inboxes> {
        Arc::new(SqlInboxes { core: Arc::clone(&self.core), marks })
    }
}

/// The inboxes of an open store.
struct SqlInboxes {
    core: Arc<Core>,
    marks: Arc<dyn Audit>,
}

impl Inboxes for SqlInboxes {
    fn accept(&self, new: Vec<NewEntry>) -> BoxFuture<'_, Result<Vec<Entry>, JournalError>> {
        Box::pin(async move {
            NewEntry::check_all(&new)?;
            if new.is_empty() {
                return Ok(Vec::new());
            }
            let marked = |entry: NewEntry| (self.marks.mark(entry.class, entry.body.as_bytes()), entry);
            self.core.writer.submit(Accept::new(new.into_iter().map(marked).collect())).await?
        })
    }

    fn deliver<'a>(
        &'a self,
        recipient: &'a str,
        entries_max: usize,
        again_after: Duration,
    ) -> BoxFuture<'a, Result<Vec<Entry>, JournalError>> {
        Box::pin(async move {
            storable(recipient)?;
            let entries_max = i64::try_from(entries_max.min(PAGE_MAX)).unwrap_or(i64::MAX);
            // Most looks find nothing, and need no write then.
            let any = "SELECT number FROM inbox WHERE recipient = $1 AND state = 'accepted' AND due_ms <= $2 \
                       AND expires_ms > $2 LIMIT 1";
            let now = ms(SystemTime::now());
            if self.core.readers.rows(any, &[recipient.into(), now.into()]).await?.is_empty() {
                return Ok(Vec::new());
            }
            let recipient = recipient.to_owned();
            self.core.writer.submit(Deliver { recipient, entries_max, again_ms: duration_ms(again_after) }).await
        })
    }

    fn mark<'a>(
        &'a self,
        recipient: &'a str,
        numbers: &'a [u64],
        mark: Mark,
    ) -> BoxFuture<'a, Result<u64, JournalError>> {
        Box::pin(async move {
            storable(recipient)?;
            if numbers.len() > INBOX_ENTRIES_MAX_DEFAULT {
                return Err(JournalError::Invalid("too many entries at once"));
            }
            // What no entry can have as its number isn't looked for.
            let numbers: Vec<_> = numbers.iter().filter_map(|number| i64::try_from(*number).ok()).collect();
            let numbers = serde_json::to_string(&numbers).map_err(|e| JournalError::Store(e.to_string()))?;
            self.core.writer.submit(MarkAll { recipient: recipient.to_owned(), numbers, mark }).await
        })
    }

    fn history(
        &self,
        filter: EntryFilter,
        after: u64,
        entries_max: usize,
    ) -> BoxFuture<'_, Result<Vec<Entry>, JournalError>> {
        Box::pin(async move {
            let named = [&filter.recipient, &filter.sender, &filter.topic, &filter.kind];
            named.into_iter().flatten().try_for_each(|name| storable(name))?;
            let wants = |state| i64::from(filter.states.is_empty() || filter.states.contains(&state));
            let args = [
                filter.recipient.as_deref().into(),
                i64::try_from(after).unwrap_or(i64::MAX).into(),
                filter.sender.as_deref().into(),
                filter.topic.as_deref().into(),
                filter.kind.as_deref().into(),
                wants(EntryState::Accepted).into(),
                wants(EntryState::Delivered).into(),
                wants(EntryState::Read).into(),
                i64::try_from(entries_max.min(PAGE_MAX)).unwrap_or(i64::MAX).into(),
            ];
            let sql = if filter.recipient.is_some() { HISTORY_OF_ONE } else { HISTORY };
            entries(&self.core.readers.rows(sql, &args).await?).map_err(|e| journal_error(&e))
        })
    }

    fn waiting<'a>(&'a self, recipient: &'a str) -> BoxFuture<'a, Result<u64, JournalError>> {
        Box::pin(async move {
            storable(recipient)?;
            let mut db = self.core.readers.get().await?;
            let now = ms(SystemTime::now());
            let waiting = db.number(WAITING, &[recipient.into(), now.into()]).await.map_err(|e| journal_error(&e))?;
            Ok(waiting.unsigned_abs())
        })
    }
}

/// How many entries a recipient has not read.
const WAITING: &str = "SELECT count(*) FROM inbox WHERE recipient = $1 AND state <> 'read' AND expires_ms > $2";

/// An entry as [`row::entries`] reads it.
macro_rules! columns {
    () => {
        "recipient, number, key, sender, kind, topic, reply_to, class, state, at_ms, delivered_ms, read_ms, attempts, \
         expires_ms, bytes, mark, body"
    };
}
use columns;

macro_rules! wanted {
    () => {
        " AND (CAST($3 AS TEXT) IS NULL OR sender = $3) AND (CAST($4 AS TEXT) IS NULL OR topic = $4) \
         AND (CAST($5 AS TEXT) IS NULL OR kind = $5) AND (state = 'accepted' AND CAST($6 AS BIGINT) = 1 \
         OR state = 'delivered' AND CAST($7 AS BIGINT) = 1 OR state = 'read' AND CAST($8 AS BIGINT) = 1)"
    };
}

const HISTORY_OF_ONE: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM inbox WHERE recipient = $1 AND number > $2",
    wanted!(),
    " ORDER BY number LIMIT $9"
);
const HISTORY: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM inbox WHERE CAST($1 AS TEXT) IS NULL AND at_ms > $2",
    wanted!(),
    " ORDER BY at_ms, recipient, number LIMIT $9"
);

/// Hands out what is due. What another node hands out at the same time is looked at again, and left to it.
struct Deliver {
    recipient: String,
    entries_max: i64,
    again_ms: i64,
}

impl Write for Deliver {
    type Output = Vec<Entry>;
    const NAME: &'static str = "inbox.deliver";

    fn bytes(&self) -> usize {
        self.recipient.len()
    }

    fn run<'a>(&'a mut self, tx: &'a mut Tx) -> BoxFuture<'a, Result<Vec<Entry>, sqlx::Error>> {
        const SQL: &str = concat!(
            "UPDATE inbox SET due_ms = $3, attempts = attempts + 1 WHERE recipient = $1 AND state = 'accepted' \
             AND due_ms <= $2 AND number IN (SELECT number FROM inbox WHERE recipient = $1 AND state = 'accepted' \
             AND due_ms <= $2 AND expires_ms > $2 ORDER BY number LIMIT $4) RETURNING ",
            columns!()
        );
        Box::pin(async move {
            let now = tx.now_ms();
            let due = now.saturating_add(self.again_ms);
            let args = [(&self.recipient).into(), now.into(), due.into(), self.entries_max.into()];
            let mut handed = entries(&tx.db().rows(SQL, &args).await?)?;
            handed.sort_by_key(|entry| entry.number);
            Ok(handed)
        })
    }
}

/// Notes how far a recipient has come.
struct MarkAll {
    recipient: String,
    /// A list, as JSON.
    numbers: String,
    mark: Mark,
}

/// A statement that looks for `number` in the list `$2`.
macro_rules! of_numbers {
    ($text:literal) => {
        Sql {
            sqlite: concat!($text, " AND number IN (SELECT value FROM json_each($2))"),
            postgres: concat!(
                $text,
                " AND number = ANY (ARRAY(SELECT json_array_elements_text(CAST($2 AS json))::bigint))"
            ),
        }
    };
}

impl Write for MarkAll {
    type Output = u64;
    const NAME: &'static str = "inbox.mark";

    fn bytes(&self) -> usize {
        self.recipient.len() + self.numbers.len()
    }

    fn run<'a>(&'a mut self, tx: &'a mut Tx) -> BoxFuture<'a, Result<u64, sqlx::Error>> {
        const DELIVERED: Sql = of_numbers!(
            "UPDATE inbox SET state = 'delivered', delivered_ms = $3 WHERE recipient = $1 AND state = 'accepted'"
        );
        const READ: Sql = of_numbers!(
            "UPDATE inbox SET state = 'read', delivered_ms = coalesce(delivered_ms, $3), read_ms = $3 \
             WHERE recipient = $1 AND state <> 'read'"
        );
        Box::pin(async move {
            let args = [(&self.recipient).into(), (&self.numbers).into(), tx.now_ms().into()];
            let sql = match self.mark {
                Mark::Delivered => DELIVERED,
                Mark::Read => READ,
            };
            tx.db().execute(sql, &args).await
        })
    }
}
