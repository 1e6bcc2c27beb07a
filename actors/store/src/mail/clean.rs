//! Removal of mail past its retention: first message bodies, later the messages with their copies.

use super::sql::{json_param, numbers};
use crate::sql::{DbConnection, Sql, args};
use crate::tx::CLEANUP_ROWS_MAX;

/// SQL condition: message `l` must be kept, because a recipient hasn't read it, or has read it at
/// time `$1` or later.
macro_rules! is_kept {
    ($each:literal) => {
        concat!(
            "EXISTS (SELECT 1 FROM ",
            $each,
            " LEFT JOIN copy AS c ON c.recipient = one.value AND c.letter = l.number \
             WHERE c.read_ms IS NULL OR c.read_ms >= $1)"
        )
    };
}
macro_rules! bodies {
    ($each:literal) => {
        concat!(
            "UPDATE letter SET body = NULL WHERE number IN (SELECT number FROM (SELECT number FROM letter \
             WHERE body IS NOT NULL AND expires_ms < $2 LIMIT 500) AS expired UNION SELECT number FROM \
             (SELECT l.number FROM letter AS l WHERE l.body IS NOT NULL AND l.at_ms < $1 AND l.spread = l.count AND NOT ",
            is_kept!($each),
            " LIMIT 500) AS read)"
        )
    };
}

/// Removes bodies of messages that every recipient read before `before`, or that expired before
/// `now`, in Unix milliseconds. One call removes at most 500 bodies for each of the two reasons.
/// Returns their number.
pub(crate) async fn remove_bodies(
    db: &mut DbConnection,
    before: i64,
    now: i64,
) -> sqlx::Result<u64> {
    const SQL: Sql = Sql::new(
        bodies!("json_each(l.recipients) AS one"),
        bodies!("json_array_elements_text(CAST(l.recipients AS json)) AS one (value)"),
    );
    db.execute(SQL, &args![before, now]).await
}

macro_rules! copies {
    ($database:ident, $each:literal) => {
        concat!(
            "DELETE FROM copy WHERE (recipient, letter) IN (SELECT c.recipient, c.letter FROM letter AS l CROSS JOIN ",
            $each,
            " JOIN copy AS c ON c.recipient = one.value AND c.letter = l.number WHERE l.number IN ",
            numbers!($database, "$1"),
            " LIMIT 500)"
        )
    };
}

/// Removes messages without a body that were accepted before `before`, in Unix milliseconds, and
/// their copies for recipients. Returns the number of removed rows. If a message has more copies
/// than one transaction may remove, only copies are removed; a later call removes the message.
pub(crate) async fn remove_messages(db: &mut DbConnection, before: i64) -> sqlx::Result<u64> {
    const COPIES: Sql = Sql::new(
        copies!(sqlite, "json_each(l.recipients) AS one"),
        copies!(
            postgres,
            "json_array_elements_text(CAST(l.recipients AS json)) AS one (value)"
        ),
    );
    const LETTERS: Sql = Sql::new(
        concat!(
            "DELETE FROM letter WHERE number IN ",
            numbers!(sqlite, "$1")
        ),
        concat!(
            "DELETE FROM letter WHERE number IN ",
            numbers!(postgres, "$1")
        ),
    );
    let old = db
        .rows(
            "SELECT number, count FROM letter WHERE body IS NULL AND at_ms < $1 ORDER BY at_ms LIMIT 500",
            &args![before],
        )
        .await?;
    let mut going: Vec<u64> = Vec::new();
    let mut rows = 0;
    for row in &old {
        rows += row.get::<u64>(1)?;
        if rows > CLEANUP_ROWS_MAX as u64 && !going.is_empty() {
            break;
        }
        going.push(row.get(0)?);
    }
    if going.is_empty() {
        return Ok(0);
    }
    let going = json_param(&going);
    let copies = db.execute(COPIES, &args![&going]).await?;
    // A full batch may have left copies behind: the message's row must stay until they are gone.
    match copies < CLEANUP_ROWS_MAX as u64 {
        true => Ok(copies + db.execute(LETTERS, &args![&going]).await?),
        false => Ok(copies),
    }
}
