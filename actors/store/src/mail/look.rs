//! Looking at letters and copies.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::SystemTime;

use callboard_runtime::{JournalError, Letter, LetterAndCopy, LetterOpen, MailCopy};

use super::SqlMail;
use super::list::has;
use super::row::{copy, copy_columns, letter_columns};
use crate::error::journal_error;
use crate::readers::Readers;
use crate::sql::{Row, Sql, args};

pub(super) async fn letter(mail: &SqlMail, id: &str) -> Result<Option<Arc<Letter>>, JournalError> {
    const SQL: &str = concat!("SELECT ", letter_columns!(), " FROM letter AS l WHERE l.id = $1");
    Ok(mail.core.readers.read(SQL, &args![id], |row| mail.held.letter(row)).await?.pop())
}

pub(super) async fn unspread(mail: &SqlMail, letters_max: i64) -> Result<Vec<Arc<Letter>>, JournalError> {
    const SQL: &str =
        concat!("SELECT ", letter_columns!(), " FROM letter AS l WHERE l.spread < l.count ORDER BY l.number LIMIT $1");
    mail.core.readers.read(SQL, &args![letters_max], |row| mail.held.letter(row)).await
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
const OPEN: Sql = Sql::new(open!(sqlite), open!(postgres));

pub(super) async fn open(
    mail: &SqlMail,
    recipient: &str,
    after: Option<(bool, i64)>,
    undelivered: bool,
    letters_max: i64,
) -> Result<Vec<LetterOpen>, JournalError> {
    let (urgent, normal) = match after {
        None => (0, 0),
        Some((true, letter)) => (letter, 0),
        Some((false, letter)) => (i64::MAX, letter),
    };
    let args = args![recipient, urgent, normal, undelivered, SystemTime::now(), letters_max];
    let rows = mail.core.readers.rows(OPEN, &args).await?;
    let read = || {
        let place = |row: &Row| Ok::<_, sqlx::Error>((!row.get::<bool>(10)?, row.get::<i64>(0)?));
        let mut places = rows.iter().map(|row| Ok((place(row)?, row))).collect::<Result<Vec<_>, sqlx::Error>>()?;
        places.sort_unstable_by_key(|(place, _)| *place);
        places.truncate(usize::try_from(letters_max).unwrap_or_default());
        places.into_iter().map(|(_, row)| mail.held.letter_and_copy(row, Some(recipient))).collect::<Result<_, _>>()
    };
    let open: Vec<LetterAndCopy> = read().map_err(|e: sqlx::Error| journal_error(&e))?;
    Ok(open.into_iter().filter_map(|(letter, copy)| Some((letter, copy?))).collect())
}

pub(super) async fn waiting(readers: &Readers) -> Result<HashMap<String, u64>, JournalError> {
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
        waiting!("json_group_object(recipient, n)", "json_each(l.recipients) AS one"),
        waiting!(
            "CAST(coalesce(json_object_agg(recipient, n), '{}') AS TEXT)",
            "json_array_elements_text(CAST(l.recipients AS json)) AS one (value)"
        ),
    );
    let counts = readers.read(SQL, &args![SystemTime::now()], |row| row.json(0)).await?;
    Ok(counts.into_iter().next().unwrap_or_default())
}

pub(super) async fn receipts(
    readers: &Readers,
    letter: i64,
    after: &str,
    copies_max: i64,
) -> Result<Vec<MailCopy>, JournalError> {
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
    let of_row = |row: &Row| copy(row, 1, row.get(0)?, letter.unsigned_abs());
    Ok(readers.read(SQL, &args![letter, after, copies_max], of_row).await?.into_iter().flatten().collect())
}
