//! What happened, as a stream of the journal: with numbers of letters, never with a word of them.

use std::collections::HashMap;
use std::sync::Arc;

use callboard_message::mail::EntryState;
use callboard_runtime::{JournalError, Letter, MAIL_EVENTS_STREAM, StoredEvent};
use serde::{Deserialize, Serialize};

use super::SqlMail;
use super::list::{numbers, written};
use super::row::letter_columns;
use crate::append::counter;
use crate::readers::Readers;
use crate::sql::{Arg, ManyRows, Sql, args};
use crate::writer::{Tx, Write};

static INSERT: ManyRows = ManyRows::new("INSERT INTO record (stream, number, at_ms, body) VALUES", 4, "");
const LETTERS: Sql = Sql::new(
    concat!("SELECT ", letter_columns!(), " FROM letter AS l WHERE l.number IN ", numbers!(sqlite, "$1")),
    concat!("SELECT ", letter_columns!(), " FROM letter AS l WHERE l.number IN ", numbers!(postgres, "$1")),
);

/// An event as it is kept.
#[derive(Clone, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Kept {
    Posted { letter: u64 },
    Marked { letter: u64, id: String, sender: String, state: EntryState, recipients: Vec<String> },
    Joined { agent: String, way: String },
    Left { agent: String, why: String },
}

impl Kept {
    /// As it is answered; `None` where its letter is gone.
    fn told(self, letters: &HashMap<u64, Arc<Letter>>) -> Option<StoredEvent> {
        Some(match self {
            Self::Posted { letter } => StoredEvent::Posted(Arc::clone(letters.get(&letter)?)),
            Self::Marked { letter, id, sender, state, recipients } => {
                StoredEvent::Marked { letter, id, sender, state, recipients }
            }
            Self::Joined { agent, way } => StoredEvent::Joined(agent, way),
            Self::Left { agent, why } => StoredEvent::Left(agent, why),
        })
    }
}

/// Appends events in this transaction; answers the last one's number.
pub(super) async fn append(tx: &mut Tx, events: &[Kept]) -> Result<u64, sqlx::Error> {
    let first = tx.numbers(&counter(MAIL_EVENTS_STREAM), events.len() as u64).await?;
    let now_ms = tx.now_ms();
    let bodies: Vec<String> = events.iter().map(written).collect();
    let values: Vec<Arg<'_>> = (super::number(first)..)
        .zip(&bodies)
        .flat_map(|(number, body)| args![MAIL_EVENTS_STREAM, number, now_ms, body])
        .collect();
    INSERT.execute(tx.db(), &values).await?;
    Ok(first + events.len() as u64 - 1)
}

/// Has other nodes' mail wait for this transaction: whoever writes mail does so before it looks, so that two never wait for
/// each other's rows.
pub(super) async fn lock(tx: &mut Tx) -> Result<(), sqlx::Error> {
    if !tx.db().is_sqlite() {
        tx.numbers(&counter(MAIL_EVENTS_STREAM), 0).await?;
    }
    Ok(())
}

/// An event that no letter gives rise to.
pub(super) struct Tell {
    event: Option<Kept>,
}

impl Tell {
    pub(super) fn new(event: StoredEvent) -> Self {
        let event = match event {
            StoredEvent::Joined(agent, way) => Some(Kept::Joined { agent, way }),
            StoredEvent::Left(agent, why) => Some(Kept::Left { agent, why }),
            // Refused before it came here.
            StoredEvent::Posted(_) | StoredEvent::Marked { .. } => None,
        };
        Self { event }
    }
}

impl Write for Tell {
    type Output = u64;
    const NAME: &'static str = "mail.tell";

    async fn run(&mut self, tx: &mut Tx) -> Result<u64, sqlx::Error> {
        append(tx, self.event.as_slice()).await
    }
}

/// Events after a number. Those of letters that are gone are left out; a page is empty only at the end.
pub(super) async fn read(
    mail: &SqlMail,
    mut after: i64,
    events_max: i64,
) -> Result<Vec<(u64, StoredEvent)>, JournalError> {
    let readers = &mail.core.readers;
    loop {
        let sql = "SELECT number, body FROM record WHERE stream = $1 AND number > $2 ORDER BY number LIMIT $3";
        let args = args![MAIL_EVENTS_STREAM, after, events_max];
        let kept: Vec<(u64, Kept)> = readers.read(sql, &args, |row| Ok((row.get(0)?, row.json(1)?))).await?;
        let Some((last, _)) = kept.last() else { return Ok(Vec::new()) };
        after = super::number(*last);
        let posted: Vec<u64> = kept
            .iter()
            .filter_map(|(_, event)| match event {
                Kept::Posted { letter } => Some(*letter),
                _ => None,
            })
            .collect();
        let found = match posted.is_empty() {
            true => Vec::new(),
            false => readers.read(LETTERS, &args![&written(&posted)], |row| mail.held.letter(row)).await?,
        };
        let found: HashMap<u64, Arc<Letter>> = found.into_iter().map(|letter| (letter.number, letter)).collect();
        let events: Vec<_> =
            kept.into_iter().filter_map(|(number, event)| Some((number, event.told(&found)?))).collect();
        if !events.is_empty() {
            return Ok(events);
        }
    }
}

/// The newest event's number.
pub(super) async fn last(readers: &Readers) -> Result<u64, JournalError> {
    let name = counter(MAIL_EVENTS_STREAM);
    let last = readers.read("SELECT last FROM stream WHERE name = $1", &args![&name], |row| row.get(0)).await?;
    Ok(last.into_iter().next().unwrap_or_default())
}
