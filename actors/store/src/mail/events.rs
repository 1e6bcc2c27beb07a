//! What happened, as a stream of the journal: with numbers of letters, never with a word of them.

use std::collections::HashMap;
use std::sync::Arc;

use callboard_message::mail::EntryState;
use callboard_runtime::{JournalError, Letter, MAIL_EVENTS_STREAM, StoredEvent};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use super::SqlMail;
use super::list::{each, numbers, written};
use super::row::letter_columns;
use crate::append::counter;
use crate::error::journal_error;
use crate::readers::Readers;
use crate::sql::{Arg, ManyRows, Sql};
use crate::writer::{Tx, Write};

static INSERT: ManyRows = ManyRows::new("INSERT INTO record (stream, number, at_ms, body) VALUES", 4, "");
const LETTERS: Sql = each(
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
        .flat_map(|(number, body)| [MAIL_EVENTS_STREAM.into(), number.into(), now_ms.into(), body.into()])
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

    fn bytes(&self) -> usize {
        256
    }

    fn run<'a>(&'a mut self, tx: &'a mut Tx) -> BoxFuture<'a, Result<u64, sqlx::Error>> {
        Box::pin(async move { append(tx, self.event.as_slice()).await })
    }
}

/// Events after a number. Those of letters that are gone are left out; a page is empty only at the end.
pub(super) async fn read(
    mail: &SqlMail,
    mut after: i64,
    events_max: i64,
) -> Result<Vec<(u64, StoredEvent)>, JournalError> {
    let told = |e| journal_error(&e);
    let readers = mail.readers();
    loop {
        let rows = readers
            .rows(
                "SELECT number, body FROM record WHERE stream = $1 AND number > $2 ORDER BY number LIMIT $3",
                &[MAIL_EVENTS_STREAM.into(), after.into(), events_max.into()],
            )
            .await?;
        let Some(last) = rows.last() else { return Ok(Vec::new()) };
        after = last.int(0).map_err(told)?;
        let mut kept = Vec::with_capacity(rows.len());
        for row in &rows {
            let number = row.count(0).map_err(told)?;
            let event: Kept = serde_json::from_str(row.text(1).map_err(told)?)
                .map_err(|_| JournalError::Damaged(format!("event {number} of mail is none")))?;
            kept.push((number, event));
        }
        let posted: Vec<u64> = kept
            .iter()
            .filter_map(|(_, event)| match event {
                Kept::Posted { letter } => Some(*letter),
                _ => None,
            })
            .collect();
        let found = match posted.is_empty() {
            true => Vec::new(),
            false => mail.held.letters(&readers.rows(LETTERS, &[(&written(&posted)).into()]).await?).map_err(told)?,
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
    let mut db = readers.get().await?;
    let name = counter(MAIL_EVENTS_STREAM);
    let last = db.number("SELECT last FROM stream WHERE name = $1", &[(&name).into()]).await;
    Ok(last.map_err(|e| journal_error(&e))?.unsigned_abs())
}
