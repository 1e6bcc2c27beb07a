//! Mail: a letter with its recipients, its line in the audit and its event are one transaction; copies follow.

pub(crate) mod clean;
mod post;
mod query;
mod sql;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use callboard_message::mail::AgentLogRow;
use callboard_runtime::{
    Audit, JournalError, JournalResult, Letter, LetterFilter, LetterOpen, LetterPage,
    MAIL_LOG_ROWS_A_LETTER, MARKS_AT_ONCE_MAX, Mail, MailCopy, Mark, NewLetter, SPREAD_MAX,
    StoredEvent, storable,
};

use crate::parts::Core;
use crate::place::PAGE_MAX;
use crate::sql::{Row, Sql, args};
use post::{MarkAll, Post, Spread, Tried};
use sql::{Held, LOGS, LOGS_OF_ONE, OPEN, copy, letter_columns};

/// The mail of an open store.
pub(crate) struct SqlMail {
    core: Arc<Core>,
    marks: Arc<dyn Audit>,
    held: Held,
}

impl SqlMail {
    pub(crate) fn new(core: Arc<Core>, marks: Arc<dyn Audit>) -> Self {
        Self {
            core,
            marks,
            held: Held::default(),
        }
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

#[async_trait]
impl Mail for SqlMail {
    async fn post(&self, new: NewLetter) -> JournalResult<Arc<Letter>> {
        new.check()?;
        let mark = self.marks.mark(new.class, new.body.as_bytes());
        self.core.writer.submit(Post::new(new, mark)).await
    }

    async fn spread(&self, letter: u64, to: u32, delivered: Vec<String>) -> JournalResult<()> {
        if delivered.len() > SPREAD_MAX {
            return Err(JournalError::Invalid("too many copies at once"));
        }
        delivered
            .iter()
            .try_for_each(|recipient| storable(recipient))?;
        self.core
            .writer
            .submit(Spread::new(number(letter), to.into(), delivered))
            .await?
    }

    async fn unspread(&self, letters_max: usize) -> JournalResult<Vec<Arc<Letter>>> {
        const SQL: &str = concat!(
            "SELECT ",
            letter_columns!(),
            " FROM letter AS l WHERE l.spread < l.count ORDER BY l.number LIMIT $1"
        );
        self.core
            .readers
            .read(SQL, &args![letters_max.min(PAGE_MAX)], |row| {
                self.held.letter(row)
            })
            .await
    }

    async fn mark(
        &self,
        marks: Vec<(String, u64)>,
        mark: Mark,
    ) -> JournalResult<Vec<(String, u64)>> {
        if marks.len() > MARKS_AT_ONCE_MAX {
            return Err(JournalError::Invalid("too many marks at once"));
        }
        marks
            .iter()
            .try_for_each(|(recipient, _)| storable(recipient))?;
        match marks.is_empty() {
            true => Ok(Vec::new()),
            false => self.core.writer.submit(MarkAll::new(&marks, mark)).await,
        }
    }

    async fn tried(&self, recipient: &str, letter: u64) -> JournalResult<u32> {
        storable(recipient)?;
        self.core
            .writer
            .submit(Tried {
                recipient: recipient.to_owned(),
                letter: number(letter),
            })
            .await
    }

    async fn open(
        &self,
        recipient: &str,
        after: Option<(bool, u64)>,
        undelivered: bool,
        letters_max: usize,
    ) -> JournalResult<Vec<LetterOpen>> {
        storable(recipient)?;
        let letters_max = letters_max.min(PAGE_MAX);
        let (urgent, normal) = match after {
            None => (0, 0),
            Some((true, letter)) => (letter, 0),
            Some((false, letter)) => (u64::MAX, letter),
        };
        let args = args![
            recipient,
            urgent,
            normal,
            undelivered,
            SystemTime::now(),
            letters_max
        ];
        let row = |row: &Row| self.held.letter_and_copy(row, Some(recipient));
        let mut open = self.core.readers.read(OPEN, &args, row).await?;
        open.sort_by_key(|(letter, _)| (!letter.new.urgent, letter.number));
        open.truncate(letters_max);
        Ok(open
            .into_iter()
            .filter_map(|(letter, copy)| Some((letter, copy?)))
            .collect())
    }

    async fn waiting(&self) -> JournalResult<HashMap<String, u64>> {
        macro_rules! waiting {
            ($counts:literal, $each:literal) => {
                concat!(
                    "SELECT ",
                    $counts,
                    " FROM (SELECT recipient, count(*) AS n FROM (\
                     SELECT recipient FROM copy WHERE state <> 'read' AND expires_ms > $1 UNION ALL \
                     SELECT one.value AS recipient FROM letter AS l CROSS JOIN ",
                    $each,
                    " WHERE l.spread < l.count AND l.expires_ms > $1 AND NOT EXISTS \
                     (SELECT 1 FROM copy AS c WHERE c.recipient = one.value AND c.letter = l.number)\
                     ) AS open GROUP BY recipient) AS counted"
                )
            };
        }
        const SQL: Sql = Sql::new(
            waiting!(
                "json_group_object(recipient, n)",
                "json_each(l.recipients) AS one"
            ),
            waiting!(
                "CAST(coalesce(json_object_agg(recipient, n), '{}') AS TEXT)",
                "json_array_elements_text(CAST(l.recipients AS json)) AS one (value)"
            ),
        );
        let counts = self
            .core
            .readers
            .read(SQL, &args![SystemTime::now()], |row| row.json(0))
            .await?;
        Ok(counts.into_iter().next().unwrap_or_default())
    }

    async fn letter(&self, id: &str) -> JournalResult<Option<Arc<Letter>>> {
        storable(id)?;
        const SQL: &str = concat!(
            "SELECT ",
            letter_columns!(),
            " FROM letter AS l WHERE l.id = $1"
        );
        Ok(self
            .core
            .readers
            .read(SQL, &args![id], |row| self.held.letter(row))
            .await?
            .pop())
    }

    async fn receipts(
        &self,
        letter: u64,
        after: Option<&str>,
        copies_max: usize,
    ) -> JournalResult<Vec<MailCopy>> {
        after.map_or(Ok(()), storable)?;
        macro_rules! receipts {
            ($each:literal) => {
                concat!(
                    "SELECT one.value, coalesce(c.state, 'accepted'), coalesce(c.at_ms, l.at_ms), c.delivered_ms, c.read_ms, \
                     coalesce(c.attempts, 0) FROM letter AS l CROSS JOIN ",
                    $each,
                    " LEFT JOIN copy AS c ON c.recipient = one.value AND c.letter = l.number \
                     WHERE l.number = $1 AND one.value > $2 ORDER BY one.key LIMIT $3"
                )
            };
        }
        const SQL: Sql = Sql::new(
            receipts!("json_each(l.recipients) AS one"),
            receipts!(
                "LATERAL (SELECT value COLLATE \"C\" AS value, key \
                 FROM json_array_elements_text(CAST(l.recipients AS json)) WITH ORDINALITY AS of_list (value, key)) AS one"
            ),
        );
        let of_row = |row: &Row| copy(row, 1, row.get(0)?, letter);
        let args = args![letter, after.unwrap_or_default(), copies_max.min(PAGE_MAX)];
        let copies = self.core.readers.read(SQL, &args, of_row).await?;
        Ok(copies.into_iter().flatten().collect())
    }

    async fn history(
        &self,
        filter: LetterFilter,
        before: u64,
        letters_max: usize,
    ) -> JournalResult<LetterPage> {
        filter.check()?;
        let before = if before == 0 {
            i64::MAX
        } else {
            number(before)
        };
        query::find_letters(self, &filter, before, page(letters_max)).await
    }

    async fn events(
        &self,
        after: u64,
        events_max: usize,
    ) -> JournalResult<Vec<(u64, StoredEvent)>> {
        query::read_events(self, number(after), page(events_max)).await
    }

    async fn last_event(&self) -> JournalResult<u64> {
        query::last_event(&self.core.readers).await
    }

    async fn tell(&self, event: StoredEvent) -> JournalResult<u64> {
        event.check_told()?;
        self.core.writer.submit(query::Tell::new(event)).await
    }

    async fn logs(
        &self,
        agent: Option<&str>,
        after: u64,
        rows_max: usize,
    ) -> JournalResult<Vec<AgentLogRow>> {
        agent.map_or(Ok(()), storable)?;
        let args = args![
            agent,
            after / MAIL_LOG_ROWS_A_LETTER,
            after,
            rows_max.min(PAGE_MAX)
        ];
        let sql = if agent.is_some() { LOGS_OF_ONE } else { LOGS };
        let row = |row: &Row| {
            let (number, log_type, agent_id) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(AgentLogRow {
                number,
                log_type,
                agent_id,
                message: row.get(3)?,
                details: row.json(4)?,
            })
        };
        self.core.readers.read(sql, &args, row).await
    }

    fn is_shared(&self) -> bool {
        self.core.readers.is_shared()
    }
}
