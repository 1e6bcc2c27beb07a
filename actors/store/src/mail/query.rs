//! Message search (candidates by an index first, then the remaining conditions) and the stream of
//! mail events.

use std::collections::HashMap;
use std::sync::Arc;

use callboard_message::mail::DeliveryState;
use callboard_runtime::{
    JournalResult, MAIL_EVENTS_STREAM, MAIL_SCAN_MAX, MailHistoryEntry, MailHistoryPage,
    MailMessage, MailMessageFilter, StoredMailEvent,
};
use serde::{Deserialize, Serialize};

use super::SqlMail;
use super::sql::{copy_columns, has, json_param, message_columns, numbers};
use crate::append_records::stream_counter;
use crate::backend::ReadPool;
use crate::sql::{BulkStatement, Sql, SqlArg, args};
use crate::tx::{Tx, WriteOp};

/// Builds SQL that returns the message numbers of a query as one JSON list.
macro_rules! listed {
    (sqlite, $($query:expr),+) => {
        concat!("SELECT json_group_array(number) FROM (", $($query),+, ")")
    };
    (postgres, $($query:expr),+) => {
        concat!("SELECT CAST(coalesce(json_agg(number), '[]') AS TEXT) FROM (", $($query),+, ") AS found")
    };
}
macro_rules! of_one {
    ($database:ident) => {
        listed!(
            $database,
            "SELECT number FROM (SELECT letter AS number FROM copy WHERE recipient = $1 AND letter < $2 \
             ORDER BY letter DESC LIMIT $3) AS got UNION SELECT number FROM (SELECT number FROM letter \
             WHERE sender = $1 AND number < $2 ORDER BY number DESC LIMIT $3) AS sent UNION SELECT number FROM \
             (SELECT l.number FROM letter AS l WHERE l.spread < l.count AND l.number < $2 AND ",
            has!($database, "l.recipients", "$1"),
            " ORDER BY l.number DESC LIMIT $3) AS unmade ORDER BY number DESC LIMIT $3"
        )
    };
}
macro_rules! by_column {
    ($wanted:literal) => {
        Sql::new(
            listed!(
                sqlite,
                "SELECT number FROM letter WHERE ",
                $wanted,
                " AND number < $2 ORDER BY number DESC LIMIT $3"
            ),
            listed!(
                postgres,
                "SELECT number FROM letter WHERE ",
                $wanted,
                " AND number < $2 ORDER BY number DESC LIMIT $3"
            ),
        )
    };
}
const OF_ONE: Sql = Sql::new(of_one!(sqlite), of_one!(postgres));
const OF_THREAD: Sql = by_column!("thread = $1");
const OF_SENDER: Sql = by_column!("sender = $1");
const OF_ALL: Sql = by_column!("CAST($1 AS TEXT) IS NULL");

/// SQL condition: `$2` is a recipient of the message, with a copy or with one that isn't written
/// yet.
macro_rules! got {
    ($database:ident) => {
        concat!(
            "(c.letter IS NOT NULL OR l.spread < l.count AND ",
            has!($database, "l.recipients", "$2"),
            ")"
        )
    };
}
macro_rules! wanted {
    ($database:ident, $body_has:literal) => {
        concat!(
            "SELECT ",
            message_columns!(),
            ", ",
            copy_columns!(),
            " FROM letter AS l LEFT JOIN copy AS c ON c.recipient = $2 AND c.letter = l.number WHERE l.number IN ",
            numbers!($database, "$1"),
            " AND (CAST($2 AS TEXT) IS NULL OR l.sender = $2 AND coalesce(CAST($3 AS BIGINT), 1) = 1 \
             OR coalesce(CAST($3 AS BIGINT), 0) = 0 AND ",
            got!($database),
            ") AND (CAST($4 AS TEXT) IS NULL OR l.sender = $2 AND ",
            has!($database, "l.recipients", "$4"),
            " OR l.sender = $4 AND ",
            got!($database),
            ") AND (CAST($5 AS TEXT) IS NULL OR l.sender = $5) AND (CAST($6 AS TEXT) IS NULL OR l.topic = $6) \
             AND (CAST($7 AS TEXT) IS NULL OR l.thread = $7) AND (CAST($8 AS BIGINT) IS NULL OR l.at_ms >= $8) \
             AND (CAST($9 AS BIGINT) IS NULL OR l.at_ms < $9) AND (CAST($10 AS TEXT) IS NULL OR ",
            $body_has,
            ") AND (CAST($11 AS TEXT) IS NULL OR ",
            got!($database),
            " AND coalesce(c.state, 'accepted') = $11) ORDER BY l.number DESC LIMIT $12"
        )
    };
}
// Both databases ignore case only for ASCII letters.
const WANTED: Sql = Sql::new(
    wanted!(sqlite, "instr(lower(l.body), $10) > 0"),
    wanted!(
        postgres,
        "position(CAST($10 AS TEXT) in lower(l.body COLLATE \"C\")) > 0"
    ),
);

pub(super) async fn find_messages(
    mail: &SqlMail,
    filter: &MailMessageFilter,
    before: i64,
    letters_max: i64,
) -> JournalResult<MailHistoryPage> {
    let is_plain = *filter
        == MailMessageFilter {
            member: filter.member.clone(),
            ..MailMessageFilter::default()
        };
    let looked_max = if is_plain {
        letters_max + 1
    } else {
        super::db_number(MAIL_SCAN_MAX)
    };
    let readers = &mail.core.readers;
    let looked = candidates(readers, filter, before, looked_max).await?;
    let list = json_param(&looked);
    let text = filter.text.as_ref().map(|text| text.to_ascii_lowercase());
    let of = filter.member.as_deref();
    let args: [SqlArg<'_>; 12] = args![
        &list,
        of,
        filter.sent.map(i64::from),
        filter.with.as_deref(),
        filter.sender.as_deref(),
        filter.topic.as_deref(),
        filter.thread.as_deref(),
        filter.since,
        filter.until,
        text.as_deref(),
        filter.state.map(|state| state.as_str()),
        letters_max
    ];
    let found: Vec<MailHistoryEntry> = match looked.is_empty() {
        true => Vec::new(),
        false => {
            readers
                .read(WANTED, &args, |row| mail.cache.message_and_copy(row, of))
                .await?
        }
    };
    let is_all = (looked.len() as i64) < looked_max;
    let last = looked.last().copied();
    let next = match found.last() {
        // A full page: more of the scanned messages may match.
        Some((letter, _)) if found.len() as i64 == letters_max => {
            Some(letter.number).filter(|number| !is_all || last.is_some_and(|last| last < *number))
        }
        _ => last.filter(|_| !is_all),
    };
    Ok((found, next))
}

/// Returns the numbers of at most `looked_max` messages below number `before` that may match a
/// filter, newest first. The caller checks them against the whole filter.
async fn candidates(
    readers: &ReadPool,
    filter: &MailMessageFilter,
    before: i64,
    looked_max: i64,
) -> JournalResult<Vec<u64>> {
    let (sql, of) = match filter {
        MailMessageFilter {
            thread: Some(thread),
            ..
        } => (OF_THREAD, Some(thread)),
        MailMessageFilter {
            member: Some(of), ..
        } => (OF_ONE, Some(of)),
        MailMessageFilter {
            sender: Some(sender),
            ..
        } => (OF_SENDER, Some(sender)),
        _ => (OF_ALL, None),
    };
    let args = args![of.map(String::as_str), before, looked_max];
    let numbers = readers.read(sql, &args, |row| row.json(0)).await?;
    let mut numbers: Vec<u64> = numbers.into_iter().next().unwrap_or_default();
    numbers.sort_unstable_by(|one, next| next.cmp(one));
    Ok(numbers)
}

static INSERT_EVENTS: BulkStatement = BulkStatement::new(
    "INSERT INTO record (stream, number, at_ms, body) VALUES",
    4,
    "",
);
const SELECT_MESSAGES: Sql = Sql::new(
    concat!(
        "SELECT ",
        message_columns!(),
        " FROM letter AS l WHERE l.number IN ",
        numbers!(sqlite, "$1")
    ),
    concat!(
        "SELECT ",
        message_columns!(),
        " FROM letter AS l WHERE l.number IN ",
        numbers!(postgres, "$1")
    ),
);

/// Mail event as stored.
#[derive(Clone, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum EventRecord {
    Posted {
        letter: u64,
    },
    Marked {
        letter: u64,
        id: String,
        sender: String,
        state: DeliveryState,
        recipients: Vec<String>,
    },
    Joined {
        agent: String,
        way: String,
    },
    Left {
        agent: String,
        why: String,
    },
}

impl EventRecord {
    /// Converts the record to an event with its message from `letters`; `None` if the message was
    /// removed.
    fn into_stored_event(
        self,
        letters: &HashMap<u64, Arc<MailMessage>>,
    ) -> Option<StoredMailEvent> {
        Some(match self {
            Self::Posted { letter } => StoredMailEvent::Posted(Arc::clone(letters.get(&letter)?)),
            Self::Marked {
                letter,
                id,
                sender,
                state,
                recipients,
            } => StoredMailEvent::ReceiptsUpdated {
                message_number: letter,
                id,
                sender,
                state,
                recipients,
            },
            Self::Joined { agent, way } => StoredMailEvent::Joined(agent, way),
            Self::Left { agent, why } => StoredMailEvent::Left(agent, why),
        })
    }
}

/// Appends mail events in this transaction. Returns the number of the last one.
pub(super) async fn append_events(tx: &mut Tx, events: &[EventRecord]) -> sqlx::Result<u64> {
    let first = tx
        .take_numbers(&stream_counter(MAIL_EVENTS_STREAM), events.len() as u64)
        .await?;
    let now_ms = tx.now_ms;
    let bodies: Vec<String> = events.iter().map(json_param).collect();
    let values: Vec<SqlArg<'_>> = (super::db_number(first)..)
        .zip(&bodies)
        .flat_map(|(number, body)| args![MAIL_EVENTS_STREAM, number, now_ms, body])
        .collect();
    INSERT_EVENTS.execute(&mut tx.db, &values).await?;
    Ok(first + events.len() as u64 - 1)
}

/// Locks all mail of the store until the commit. Every mail write takes this lock before it reads,
/// so that two nodes can't deadlock. Does nothing on SQLite.
pub(super) async fn lock_mail(tx: &mut Tx) -> sqlx::Result<()> {
    if !tx.db.is_sqlite() {
        tx.take_numbers(&stream_counter(MAIL_EVENTS_STREAM), 0)
            .await?;
    }
    Ok(())
}

/// Write operation that appends a mail event without a message.
pub(super) struct AppendEvent {
    event: Option<EventRecord>,
}

impl AppendEvent {
    pub(super) fn new(event: StoredMailEvent) -> Self {
        let event = match event {
            StoredMailEvent::Joined(agent, way) => Some(EventRecord::Joined { agent, way }),
            StoredMailEvent::Left(agent, why) => Some(EventRecord::Left { agent, why }),
            // Rejected by the caller before.
            StoredMailEvent::Posted(_) | StoredMailEvent::ReceiptsUpdated { .. } => None,
        };
        Self { event }
    }
}

impl WriteOp for AppendEvent {
    type Output = u64;
    const NAME: &'static str = "mail.tell";

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<u64> {
        append_events(tx, self.event.as_slice()).await
    }
}

/// Reads mail events after a number. Events of removed messages are skipped. The result is empty
/// only at the end of the stream.
pub(super) async fn read_events(
    mail: &SqlMail,
    mut after: i64,
    events_max: i64,
) -> JournalResult<Vec<(u64, StoredMailEvent)>> {
    let readers = &mail.core.readers;
    loop {
        let sql = "SELECT number, body FROM record WHERE stream = $1 AND number > $2 ORDER BY number LIMIT $3";
        let args = args![MAIL_EVENTS_STREAM, after, events_max];
        let kept: Vec<(u64, EventRecord)> = readers
            .read(sql, &args, |row| Ok((row.get(0)?, row.json(1)?)))
            .await?;
        let Some((last, _)) = kept.last() else {
            return Ok(Vec::new());
        };
        after = super::db_number(*last);
        let posted: Vec<u64> = kept
            .iter()
            .filter_map(|(_, event)| match event {
                EventRecord::Posted { letter } => Some(*letter),
                _ => None,
            })
            .collect();
        let found = match posted.is_empty() {
            true => Vec::new(),
            false => {
                readers
                    .read(SELECT_MESSAGES, &args![&json_param(&posted)], |row| {
                        mail.cache.mail_message(row)
                    })
                    .await?
            }
        };
        let found: HashMap<u64, Arc<MailMessage>> = found
            .into_iter()
            .map(|letter| (letter.number, letter))
            .collect();
        let events: Vec<_> = kept
            .into_iter()
            .filter_map(|(number, event)| Some((number, event.into_stored_event(&found)?)))
            .collect();
        if !events.is_empty() {
            return Ok(events);
        }
    }
}

/// Returns the number of the newest mail event; 0 if there is none.
pub(super) async fn last_event(readers: &ReadPool) -> JournalResult<u64> {
    let name = stream_counter(MAIL_EVENTS_STREAM);
    let last = readers
        .read(
            "SELECT last FROM stream WHERE name = $1",
            &args![&name],
            |row| row.get(0),
        )
        .await?;
    Ok(last.into_iter().next().unwrap_or_default())
}
