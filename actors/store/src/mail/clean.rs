//! Removing what is past its retention: first the body of a letter, later the letter with its copies.

use super::sql::{numbers, written};
use crate::sql::{Db, Sql, args};
use crate::tx::CLEAN_ROWS_MAX;

/// Whether a recipient of `l` has not read it, or not before `$1`.
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

/// Of letters that all have read long ago, or that nobody may read any more. At most twice as many as of other things: each
/// is one row.
pub(crate) async fn bodies(db: &mut Db, before: i64, now: i64) -> sqlx::Result<u64> {
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

/// Letters without a body, and their copies; answers how many rows. Of a letter with many copies only those go first.
pub(crate) async fn letters(db: &mut Db, before: i64) -> sqlx::Result<u64> {
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
        if rows > CLEAN_ROWS_MAX as u64 && !going.is_empty() {
            break;
        }
        going.push(row.get(0)?);
    }
    if going.is_empty() {
        return Ok(0);
    }
    let going = written(&going);
    let copies = db.execute(COPIES, &args![&going]).await?;
    // There may be more of one that has many.
    match copies < CLEAN_ROWS_MAX as u64 {
        true => Ok(copies + db.execute(LETTERS, &args![&going]).await?),
        false => Ok(copies),
    }
}
