//! Letters and copies from their rows.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use callboard_runtime::{BodyMark, Letter, LetterAndCopy, MailCopy, NewLetter};
use parking_lot::Mutex;

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
        mark: BodyMark { bytes: row.get(16)?, hash: row.get(17)? },
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
    pub(super) fn letter(&self, row: &Row) -> Result<Arc<Letter>, sqlx::Error> {
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
