//! SQL of the mail store, with the JSON functions of each database, and decoding of messages and
//! copies from rows.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use callboard_runtime::{BodyDigest, MailCopy, MailHistoryEntry, MailMessage, NewMailMessage};
use parking_lot::Mutex;

use crate::sql::{Row, Sql};

/// SQL condition: a JSON list contains a value.
macro_rules! has {
    (sqlite, $list:literal, $value:literal) => {
        concat!(
            "EXISTS (SELECT 1 FROM json_each(",
            $list,
            ") AS one WHERE one.value = ",
            $value,
            ")"
        )
    };
    (postgres, $list:literal, $value:literal) => {
        concat!(
            "EXISTS (SELECT 1 FROM json_array_elements_text(CAST(",
            $list,
            " AS json)) AS one (value) WHERE one.value = ",
            $value,
            ")"
        )
    };
}
pub(super) use has;

/// SQL subquery: the numbers of a parameter that is a JSON list.
macro_rules! numbers {
    (sqlite, $list:literal) => {
        concat!("(SELECT value FROM json_each(", $list, "))")
    };
    (postgres, $list:literal) => {
        concat!(
            "(SELECT CAST(value AS BIGINT) FROM json_array_elements_text(CAST(",
            $list,
            " AS json)) AS one (value))"
        )
    };
}
pub(super) use numbers;

/// SQL table `pair (recipient, letter)` from a parameter that is a JSON list of pairs. The casts
/// give the columns a type, without which SQLite doesn't use its indexes.
macro_rules! pairs {
    (sqlite, $list:literal) => {
        concat!(
            "(SELECT CAST(json_extract(value, '$[0]') AS TEXT) AS recipient, \
             CAST(json_extract(value, '$[1]') AS INTEGER) AS letter FROM json_each(",
            $list,
            ")) AS pair"
        )
    };
    (postgres, $list:literal) => {
        concat!(
            "(SELECT value ->> 0 AS recipient, CAST(value ->> 1 AS BIGINT) AS letter FROM json_array_elements(CAST(",
            $list,
            " AS json)) AS one (value)) AS pair"
        )
    };
}
pub(super) use pairs;

/// SQL expression that aggregates all rows to one JSON text. It saves time, because each row that
/// SQLite returns wakes two threads.
macro_rules! as_list {
    (sqlite, $($column:literal),+) => {
        concat!("json_group_array(json_array(", as_list!(@list $($column),+), "))")
    };
    (postgres, $($column:literal),+) => {
        concat!("CAST(coalesce(json_agg(json_build_array(", as_list!(@list $($column),+), ")), '[]') AS TEXT)")
    };
    (@list $first:literal $(, $more:literal)*) => { concat!($first $(, ", ", $more)*) };
}
pub(super) use as_list;

/// Serializes a list as a JSON parameter.
pub(super) fn json_param(list: &(impl serde::Serialize + ?Sized)) -> String {
    // Strings and numbers always serialize.
    serde_json::to_string(list).unwrap_or_default()
}

/// Columns of a message, in the order that [`mail_message`] reads.
macro_rules! message_columns {
    () => {
        "l.number, l.id, l.sender, l.key, l.kind, l.label, l.audience, l.thread, l.reply_to, l.topic, l.urgent, l.class, \
         l.at_ms, l.expires_ms, l.recipients, l.spread, l.bytes, l.mark, l.body"
    };
}
pub(super) use message_columns;

/// Columns of a recipient's copy of a message, in the order that [`mail_copy`] reads. They follow
/// those of the message. All are NULL if the copy doesn't exist.
macro_rules! copy_columns {
    () => {
        "c.state, c.at_ms AS copied_ms, c.delivered_ms, c.read_ms, c.attempts"
    };
}
pub(super) use copy_columns;

/// Number of columns in [`message_columns`].
const MESSAGE_COLUMNS: usize = 19;

pub(super) fn mail_message(row: &Row) -> sqlx::Result<Arc<MailMessage>> {
    let id: String = row.get(1)?;
    let new = NewMailMessage {
        sender: row.get(2)?,
        key: row.get(3)?,
        kind: row.get(4)?,
        label: row.get(5)?,
        audience: row.get(6)?,
        thread: Some(row.get::<String>(7)?).filter(|thread| *thread != id),
        reply_to: row.get(8)?,
        topic: row.get(9)?,
        urgent: row.get(10)?,
        class: row.get(11)?,
        expires: row.get(13)?,
        recipients: row.json(14)?,
        body: row.get::<Option<_>>(18)?.unwrap_or_default(),
        id,
    };
    Ok(Arc::new(MailMessage {
        number: row.get(0)?,
        new,
        digest: BodyDigest {
            bytes: row.get(16)?,
            hash: row.get(17)?,
        },
        accepted: row.get(12)?,
        copies_made: row.get(15)?,
        is_new: false,
    }))
}

/// Cache of messages that are in use, by message number, so that all readers of one message share
/// its memory.
#[derive(Default)]
pub(super) struct MailMessageCache(Mutex<HashMap<u64, Weak<MailMessage>>>);

/// Number of entries at which messages that are no longer in use are evicted.
const CACHE_SWEEP_ENTRIES: usize = 4_096;

impl MailMessageCache {
    /// Returns the message of a row. If an equal message is in the cache, that one is returned.
    pub(super) fn mail_message(&self, row: &Row) -> sqlx::Result<Arc<MailMessage>> {
        let number = row.get(0)?;
        let known = self.0.lock().get(&number).and_then(Weak::upgrade);
        if let Some(known) = known
            && known.copies_made == row.get::<u32>(15)?
            && known.new.body == row.get::<Option<&str>>(18)?.unwrap_or_default()
        {
            return Ok(known);
        }
        let letter = mail_message(row)?;
        let mut held = self.0.lock();
        if held.len() >= CACHE_SWEEP_ENTRIES {
            held.retain(|_, letter| letter.strong_count() > 0);
        }
        // If more are in use, further ones aren't shared.
        if held.len() < CACHE_SWEEP_ENTRIES {
            held.insert(number, Arc::downgrade(&letter));
        }
        drop(held);
        Ok(letter)
    }

    /// Returns the message of a row and the recipient's copy. A copy that isn't written yet is
    /// returned as accepted. The copy is `None` if `recipient` is `None` or isn't a recipient of
    /// the message.
    pub(super) fn message_and_copy(
        &self,
        row: &Row,
        recipient: Option<&str>,
    ) -> sqlx::Result<MailHistoryEntry> {
        let letter = self.mail_message(row)?;
        let Some(recipient) = recipient else {
            return Ok((letter, None));
        };
        let made = mail_copy(row, MESSAGE_COLUMNS, recipient, letter.number)?;
        let copy = made.or_else(|| {
            letter
                .new
                .is_for(recipient)
                .then(|| letter.new_copy(recipient))
        });
        Ok((letter, copy))
    }
}

/// Reads a recipient's copy, whose columns begin at index `first`; `None` if the copy doesn't
/// exist.
pub(super) fn mail_copy(
    row: &Row,
    first: usize,
    recipient: &str,
    letter: u64,
) -> sqlx::Result<Option<MailCopy>> {
    if row.get::<Option<&str>>(first)?.is_none() {
        return Ok(None);
    }
    Ok(Some(MailCopy {
        recipient: recipient.to_owned(),
        message_number: letter,
        state: row.get(first)?,
        accepted: row.get(first + 1)?,
        delivered: row.get(first + 2)?,
        read: row.get(first + 3)?,
        attempts: row.get(first + 4)?,
    }))
}

/// SQL name of the table of copies, with an index hint on SQLite. Without the hint, SQLite would
/// scan all copies of the recipient, including those read long ago.
macro_rules! copy_open {
    (sqlite) => {
        "copy AS c INDEXED BY copy_open"
    };
    (postgres) => {
        "copy AS c"
    };
}
/// Builds SQL that selects the unread copies that are already written, of one urgency, with message
/// numbers above a parameter, in the order of the index.
macro_rules! made {
    ($database:ident, $urgent:literal, $after:literal) => {
        concat!(
            "SELECT * FROM (SELECT ",
            message_columns!(),
            ", ",
            copy_columns!(),
            " FROM ",
            copy_open!($database),
            " JOIN letter AS l ON l.number = c.letter WHERE c.recipient = $1 AND c.urgent = ",
            $urgent,
            " AND c.letter > ",
            $after,
            " AND c.state <> 'read' AND (c.state = 'accepted' OR $4 = 0) AND c.expires_ms > $5 \
             ORDER BY c.letter LIMIT $6) AS made_",
            $urgent
        )
    };
}
macro_rules! open {
    ($database:ident) => {
        concat!(
            made!($database, 1, "$2"),
            " UNION ALL ",
            made!($database, 0, "$3"),
            " UNION ALL SELECT * FROM (SELECT ",
            message_columns!(),
            ", ",
            copy_columns!(),
            " FROM letter AS l LEFT JOIN copy AS c ON c.recipient = $1 AND c.letter = l.number \
             WHERE l.spread < l.count AND c.letter IS NULL AND l.expires_ms > $5 \
             AND (l.urgent = 1 AND l.number > $2 OR l.urgent = 0 AND l.number > $3) AND ",
            has!($database, "l.recipients", "$1"),
            " ORDER BY l.urgent DESC, l.number LIMIT $6) AS unmade"
        )
    };
}
pub(super) const SELECT_OPEN: Sql = Sql::new(open!(sqlite), open!(postgres));

// `agent_log` is a view without an index on the row number, which is derived from the message's
// number. `$4` messages have at least `$4` rows, plus one because the first message's rows may
// precede `$3`.
pub(super) const SELECT_LOGS: &str = "SELECT number, log_type, agent_id, message, details FROM agent_log \
     WHERE CAST($1 AS TEXT) IS NULL AND letter IN (SELECT number FROM letter WHERE number >= $2 ORDER BY number LIMIT $4 + 1) \
     AND number > $3 ORDER BY number LIMIT $4";
pub(super) const SELECT_AGENT_LOGS: &str = "SELECT number, log_type, agent_id, message, details FROM agent_log \
     WHERE agent_id = $1 AND letter IN (SELECT letter FROM (SELECT letter FROM copy WHERE recipient = $1 AND letter >= $2 \
     ORDER BY letter LIMIT $4 + 1) AS made UNION SELECT number FROM letter WHERE spread < count) \
     AND number > $3 ORDER BY number LIMIT $4";
