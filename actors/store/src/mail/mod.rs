//! Mail store. A message with its recipients, audit entry and event is written in one transaction;
//! copies for many recipients follow later.

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
    AuditStore, FAN_OUT_BATCH_MAX, JournalError, JournalResult, MAIL_LOG_ROWS_PER_MESSAGE,
    MailCopy, MailHistoryPage, MailMessage, MailMessageFilter, MailMessageWithCopy, MailStore,
    NewMailMessage, RECEIPT_BATCH_MAX, ReceiptUpdate, StoredMailEvent, check_storable,
};

use crate::backend::PAGE_ROWS_MAX;
use crate::owner_quota::OwnedKind;
use crate::sql::{Row, Sql, args};
use crate::store_core::StoreCore;
use post::{CountAttempt, FanOut, PostMessage, UpdateReceipts};
use sql::{
    MailMessageCache, SELECT_AGENT_LOGS, SELECT_LOGS, SELECT_OPEN, mail_copy, message_columns,
};

pub(crate) struct SqlMail {
    core: Arc<StoreCore>,
    audit: Arc<dyn AuditStore>,
    cache: MailMessageCache,
}

impl SqlMail {
    pub(crate) fn new(core: Arc<StoreCore>, audit: Arc<dyn AuditStore>) -> Self {
        Self {
            core,
            audit,
            cache: MailMessageCache::default(),
        }
    }
}

/// Returns a page size as an SQL parameter, limited to [`PAGE_ROWS_MAX`].
fn page_limit(rows_max: usize) -> i64 {
    i64::try_from(rows_max.min(PAGE_ROWS_MAX)).unwrap_or(i64::MAX)
}

fn db_number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[async_trait]
impl MailStore for SqlMail {
    async fn post(&self, new: NewMailMessage) -> JournalResult<Arc<MailMessage>> {
        new.check()?;
        let owner = (OwnedKind::Mail, new.sender.as_str());
        let key = args![new.sender.as_str(), new.key.as_deref()];
        let is_repeated = "SELECT 1 FROM letter WHERE sender = $1 AND key = $2";
        self.core
            .admit_or_repeat(owner, new.body.len(), is_repeated, &key)
            .await?;
        let mark = self.audit.digest(new.class, new.body.as_bytes());
        self.core.writer.submit(PostMessage::new(new, mark)).await
    }

    async fn fan_out(&self, letter: u64, to: u32, delivered: Vec<String>) -> JournalResult<()> {
        if delivered.len() > FAN_OUT_BATCH_MAX {
            return Err(JournalError::Invalid(
                "at most 128 copies can be made at once (`FAN_OUT_BATCH_MAX`)",
            ));
        }
        delivered
            .iter()
            .try_for_each(|recipient| check_storable(recipient))?;
        self.core
            .writer
            .submit(FanOut::new(db_number(letter), to.into(), delivered))
            .await?
    }

    async fn pending_fan_out(&self, letters_max: usize) -> JournalResult<Vec<Arc<MailMessage>>> {
        const SQL: &str = concat!(
            "SELECT ",
            message_columns!(),
            " FROM letter AS l WHERE l.spread < l.count ORDER BY l.number LIMIT $1"
        );
        self.core
            .readers
            .read(SQL, &args![letters_max.min(PAGE_ROWS_MAX)], |row| {
                self.cache.mail_message(row)
            })
            .await
    }

    async fn update_receipts(
        &self,
        marks: Vec<(String, u64)>,
        mark: ReceiptUpdate,
    ) -> JournalResult<Vec<(String, u64)>> {
        if marks.len() > RECEIPT_BATCH_MAX {
            return Err(JournalError::Invalid(
                "at most 256 receipts can be stored at once (`RECEIPT_BATCH_MAX`)",
            ));
        }
        marks
            .iter()
            .try_for_each(|(recipient, _)| check_storable(recipient))?;
        match marks.is_empty() {
            true => Ok(Vec::new()),
            false => {
                self.core
                    .writer
                    .submit(UpdateReceipts::new(&marks, mark))
                    .await
            }
        }
    }

    async fn count_attempt(&self, recipient: &str, letter: u64) -> JournalResult<u32> {
        check_storable(recipient)?;
        self.core
            .writer
            .submit(CountAttempt {
                recipient: recipient.to_owned(),
                letter: db_number(letter),
            })
            .await
    }

    async fn list_open(
        &self,
        recipient: &str,
        after: Option<(bool, u64)>,
        undelivered: bool,
        letters_max: usize,
    ) -> JournalResult<Vec<MailMessageWithCopy>> {
        check_storable(recipient)?;
        let letters_max = letters_max.min(PAGE_ROWS_MAX);
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
        let row = |row: &Row| self.cache.message_and_copy(row, Some(recipient));
        let mut open = self.core.readers.read(SELECT_OPEN, &args, row).await?;
        open.sort_by_key(|(letter, _)| (!letter.new.urgent, letter.number));
        open.truncate(letters_max);
        Ok(open
            .into_iter()
            .filter_map(|(letter, copy)| Some((letter, copy?)))
            .collect())
    }

    async fn unread_counts(&self) -> JournalResult<HashMap<String, u64>> {
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

    async fn message(&self, id: &str) -> JournalResult<Option<Arc<MailMessage>>> {
        check_storable(id)?;
        const SQL: &str = concat!(
            "SELECT ",
            message_columns!(),
            " FROM letter AS l WHERE l.id = $1"
        );
        Ok(self
            .core
            .readers
            .read(SQL, &args![id], |row| self.cache.mail_message(row))
            .await?
            .pop())
    }

    async fn receipts(
        &self,
        letter: u64,
        after: Option<&str>,
        copies_max: usize,
    ) -> JournalResult<Vec<MailCopy>> {
        after.map_or(Ok(()), check_storable)?;
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
        let of_row = |row: &Row| mail_copy(row, 1, row.get(0)?, letter);
        let args = args![
            letter,
            after.unwrap_or_default(),
            copies_max.min(PAGE_ROWS_MAX)
        ];
        let copies = self.core.readers.read(SQL, &args, of_row).await?;
        Ok(copies.into_iter().flatten().collect())
    }

    async fn history(
        &self,
        filter: MailMessageFilter,
        before: u64,
        letters_max: usize,
    ) -> JournalResult<MailHistoryPage> {
        filter.check()?;
        let before = if before == 0 {
            i64::MAX
        } else {
            db_number(before)
        };
        query::find_messages(self, &filter, before, page_limit(letters_max)).await
    }

    async fn events(
        &self,
        after: u64,
        events_max: usize,
    ) -> JournalResult<Vec<(u64, StoredMailEvent)>> {
        query::read_events(self, db_number(after), page_limit(events_max)).await
    }

    async fn last_event(&self) -> JournalResult<u64> {
        query::last_event(&self.core.readers).await
    }

    async fn append_event(&self, event: StoredMailEvent) -> JournalResult<u64> {
        event.check_appendable()?;
        self.core
            .writer
            .submit(query::AppendEvent::new(event))
            .await
    }

    async fn log_rows(
        &self,
        agent: Option<&str>,
        after: u64,
        rows_max: usize,
    ) -> JournalResult<Vec<AgentLogRow>> {
        agent.map_or(Ok(()), check_storable)?;
        let args = args![
            agent,
            after / MAIL_LOG_ROWS_PER_MESSAGE,
            after,
            rows_max.min(PAGE_ROWS_MAX)
        ];
        let sql = if agent.is_some() {
            SELECT_AGENT_LOGS
        } else {
            SELECT_LOGS
        };
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
