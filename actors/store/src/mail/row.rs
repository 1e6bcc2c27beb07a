//! Letters and copies from their rows.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::SystemTime;

use callboard_message::DataClass;
use callboard_message::mail::{EntryState, LetterKind};
use callboard_runtime::{BodyMark, Letter, LetterAndCopy, MailCopy, NewLetter};

use crate::clock::time;
use crate::sql::Row;

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

pub(super) fn letter(row: &Row) -> Result<Arc<Letter>, sqlx::Error> {
    let text = |column| Ok::<_, sqlx::Error>(row.text(column)?.to_owned());
    let text_or_null = |column| Ok::<_, sqlx::Error>(row.text_or_null(column)?.map(str::to_owned));
    let id = text(1)?;
    let recipients = serde_json::from_str(row.text(14)?).map_err(|e| sqlx::Error::Decode(Box::new(e)))?;
    let new = NewLetter {
        sender: text(2)?,
        key: text_or_null(3)?,
        kind: LetterKind::parse(row.text(4)?).ok_or_else(|| unknown(4))?,
        label: text_or_null(5)?,
        audience: text(6)?,
        thread: Some(text(7)?).filter(|thread| *thread != id),
        reply_to: text_or_null(8)?,
        topic: text_or_null(9)?,
        urgent: row.int(10)? == 1,
        class: DataClass::parse(row.text(11)?).ok_or_else(|| unknown(11))?,
        expires: time(row.int(13)?),
        recipients,
        body: text_or_null(18)?.unwrap_or_default(),
        id,
    };
    Ok(Arc::new(Letter {
        number: row.count(0)?,
        new,
        mark: BodyMark { bytes: row.count(16)?, hash: text(17)? },
        accepted: time(row.int(12)?),
        spread: u32::try_from(row.count(15)?).unwrap_or(u32::MAX),
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
    pub(super) fn letter(&self, row: &Row) -> Result<Arc<Letter>, sqlx::Error> {
        let number = row.count(0)?;
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&number).and_then(Weak::upgrade);
        if let Some(known) = known
            && u64::from(known.spread) == row.count(15)?
            && known.new.body == row.text_or_null(18)?.unwrap_or_default()
        {
            return Ok(known);
        }
        let letter = letter(row)?;
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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

    pub(super) fn letters(&self, rows: &[Row]) -> Result<Vec<Arc<Letter>>, sqlx::Error> {
        rows.iter().map(|row| self.letter(row)).collect()
    }

    /// The letter of a row and its copy for `recipient`: what isn't made yet is as one that is accepted. `None` where it isn't
    /// one of its recipients.
    pub(super) fn letter_and_copy(&self, row: &Row, recipient: Option<&str>) -> Result<LetterAndCopy, sqlx::Error> {
        let letter = self.letter(row)?;
        let Some(recipient) = recipient else { return Ok((letter, None)) };
        let made = copy(row, LETTER_COLUMNS, recipient, letter.number)?;
        let copy = made.or_else(|| letter.new.is_for(recipient).then(|| letter.fresh_copy(recipient)));
        Ok((letter, copy))
    }
}

/// The copy whose columns begin at `first`.
pub(super) fn copy(row: &Row, first: usize, recipient: &str, letter: u64) -> Result<Option<MailCopy>, sqlx::Error> {
    let Some(state) = row.text_or_null(first)? else { return Ok(None) };
    let time_or_null = |column| Ok::<Option<SystemTime>, sqlx::Error>(row.int_or_null(column)?.map(time));
    Ok(Some(MailCopy {
        recipient: recipient.to_owned(),
        letter,
        state: EntryState::parse(state).ok_or_else(|| unknown(first))?,
        accepted: time(row.int(first + 1)?),
        delivered: time_or_null(first + 2)?,
        read: time_or_null(first + 3)?,
        attempts: u32::try_from(row.count(first + 4)?).unwrap_or(u32::MAX),
    }))
}

fn unknown(column: usize) -> sqlx::Error {
    sqlx::Error::ColumnDecode { index: column.to_string(), source: "no such word".into() }
}
