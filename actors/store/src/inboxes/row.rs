//! An entry from its row, and errors for rows that can't be.

use std::time::SystemTime;

use callboard_message::DataClass;
use callboard_runtime::{BodyMark, Entry, EntryState, NewEntry};

use crate::clock::time;
use crate::sql::Row;

/// Rows with the columns of [`super::columns`].
pub(super) fn entries(rows: &[Row]) -> Result<Vec<Entry>, sqlx::Error> {
    rows.iter().map(entry).collect()
}

fn entry(row: &Row) -> Result<Entry, sqlx::Error> {
    let text = |column| Ok::<_, sqlx::Error>(row.text(column)?.to_owned());
    let text_or_null = |column| Ok::<_, sqlx::Error>(row.text_or_null(column)?.map(str::to_owned));
    let time_or_null = |column| Ok::<Option<SystemTime>, sqlx::Error>(row.int_or_null(column)?.map(time));
    let new = NewEntry {
        recipient: text(0)?,
        key: text_or_null(2)?,
        sender: text(3)?,
        kind: text(4)?,
        topic: text_or_null(5)?,
        reply_to: row.int_or_null(6)?.map(i64::unsigned_abs),
        class: DataClass::parse(row.text(7)?).ok_or_else(|| unknown(7))?,
        expires: time(row.int(13)?),
        body: text_or_null(16)?.unwrap_or_default(),
    };
    Ok(Entry {
        number: row.count(1)?,
        new,
        mark: BodyMark { bytes: row.count(14)?, hash: text(15)? },
        state: EntryState::parse(row.text(8)?).ok_or_else(|| unknown(8))?,
        accepted: time(row.int(9)?),
        delivered: time_or_null(10)?,
        read: time_or_null(11)?,
        attempts: u32::try_from(row.count(12)?).unwrap_or(u32::MAX),
        is_new: false,
    })
}

fn unknown(column: usize) -> sqlx::Error {
    sqlx::Error::ColumnDecode { index: column.to_string(), source: "no such word".into() }
}
