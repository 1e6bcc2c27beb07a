//! Statements of mail (SQLite and Postgres read JSON each in their way), and letters and copies from their rows.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use callboard_runtime::{BodyMark, Letter, LetterAndCopy, MailCopy, NewLetter};
use parking_lot::Mutex;

use crate::sql::{Row, Sql};

/// Whether the list in a column or value has a value in it.
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

/// The numbers in the list that is a parameter.
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

/// Pairs of a recipient and a letter, from the list of them that is a parameter: a table `pair (recipient, letter)`. SQLite
/// uses an index only for what has its column's type.
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

/// A list of rows as one text, for each row that SQLite answers wakes two threads.
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

/// A list as a parameter.
pub(super) fn written(list: &(impl serde::Serialize + ?Sized)) -> String {
    // Texts and numbers have no form that JSON hasn't.
    serde_json::to_string(list).unwrap_or_default()
}

/// A letter as [`letter`] reads it.
macro_rules! letter_columns {
    () => {
        "l.number, l.id, l.sender, l.key, l.kind, l.label, l.audience, l.thread, l.reply_to, l.topic, l.urgent, l.class, \
         l.at_ms, l.expires_ms, l.recipients, l.spread, l.bytes, l.mark, l.body"
    };
}
pub(super) use letter_columns;

/// A copy after a letter, as [`copy`] reads it; where there is none, each is NULL.
macro_rules! copy_columns {
    () => {
        "c.state, c.at_ms AS copied_ms, c.delivered_ms, c.read_ms, c.attempts"
    };
}
pub(super) use copy_columns;

/// How many columns a letter has.
const LETTER_COLUMNS: usize = 19;

pub(super) fn letter(row: &Row) -> sqlx::Result<Arc<Letter>> {
    let id: String = row.get(1)?;
    let new = NewLetter {
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
    Ok(Arc::new(Letter {
        number: row.get(0)?,
        new,
        mark: BodyMark {
            bytes: row.get(16)?,
            hash: row.get(17)?,
        },
        accepted: row.get(12)?,
        spread: row.get(15)?,
        is_new: false,
    }))
}

/// Letters that somebody holds: thousands who read one at the same time hold the same.
#[derive(Default)]
pub(super) struct Held(Mutex<HashMap<u64, Weak<Letter>>>);

/// Letters after which those that nobody holds any more are forgotten.
const HELD_MAX: usize = 4_096;

impl Held {
    /// The letter of a row; the one that somebody holds where it is still so.
    pub(super) fn letter(&self, row: &Row) -> sqlx::Result<Arc<Letter>> {
        let number = row.get(0)?;
        let known = self.0.lock().get(&number).and_then(Weak::upgrade);
        if let Some(known) = known
            && known.spread == row.get::<u32>(15)?
            && known.new.body == row.get::<Option<&str>>(18)?.unwrap_or_default()
        {
            return Ok(known);
        }
        let letter = letter(row)?;
        let mut held = self.0.lock();
        if held.len() >= HELD_MAX {
            held.retain(|_, letter| letter.strong_count() > 0);
        }
        // Where more than that are held, each has its own.
        if held.len() < HELD_MAX {
            held.insert(number, Arc::downgrade(&letter));
        }
        drop(held);
        Ok(letter)
    }

    /// The letter of a row and its copy for `recipient`: what isn't made yet is as one that is accepted. `None` where it isn't
    /// one of its recipients.
    pub(super) fn letter_and_copy(
        &self,
        row: &Row,
        recipient: Option<&str>,
    ) -> sqlx::Result<LetterAndCopy> {
        let letter = self.letter(row)?;
        let Some(recipient) = recipient else {
            return Ok((letter, None));
        };
        let made = copy(row, LETTER_COLUMNS, recipient, letter.number)?;
        let copy = made.or_else(|| {
            letter
                .new
                .is_for(recipient)
                .then(|| letter.fresh_copy(recipient))
        });
        Ok((letter, copy))
    }
}

/// The copy whose columns begin at `first`.
pub(super) fn copy(
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
        letter,
        state: row.get(first)?,
        accepted: row.get(first + 1)?,
        delivered: row.get(first + 2)?,
        read: row.get(first + 3)?,
        attempts: row.get(first + 4)?,
    }))
}

/// SQLite would read through all copies of a recipient otherwise, also those that it read long ago.
macro_rules! copy_open {
    (sqlite) => {
        "copy AS c INDEXED BY copy_open"
    };
    (postgres) => {
        "copy AS c"
    };
}
/// Copies of one urgency after a letter, in the order of the index.
macro_rules! made {
    ($database:ident, $urgent:literal, $after:literal) => {
        concat!(
            "SELECT * FROM (SELECT ",
            letter_columns!(),
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
            letter_columns!(),
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
pub(super) const OPEN: Sql = Sql::new(open!(sqlite), open!(postgres));

// Of the view `agent_log`. No index knows a row's number, which is made of the letter's: so many letters have as many rows
// at least, but that the first may have been seen.
pub(super) const LOGS: &str = "SELECT number, log_type, agent_id, message, details FROM agent_log \
     WHERE CAST($1 AS TEXT) IS NULL AND letter IN (SELECT number FROM letter WHERE number >= $2 ORDER BY number LIMIT $4 + 1) \
     AND number > $3 ORDER BY number LIMIT $4";
pub(super) const LOGS_OF_ONE: &str = "SELECT number, log_type, agent_id, message, details FROM agent_log \
     WHERE agent_id = $1 AND letter IN (SELECT letter FROM (SELECT letter FROM copy WHERE recipient = $1 AND letter >= $2 \
     ORDER BY letter LIMIT $4 + 1) AS made UNION SELECT number FROM letter WHERE spread < count) \
     AND number > $3 ORDER BY number LIMIT $4";
