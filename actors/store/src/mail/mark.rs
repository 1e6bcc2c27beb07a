//! How far recipients have come.

use std::collections::{BTreeMap, BTreeSet};

use callboard_message::mail::EntryState;
use callboard_runtime::Mark;

use super::events::{self, Kept};
use super::list::{as_list, has, pairs, written};
use crate::sql::{Sql, args};
use crate::writer::{Tx, Write};

macro_rules! movable {
    ($database:ident, $wanted:literal) => {
        concat!(
            "SELECT ",
            as_list!($database, "c.recipient", "c.letter", "l.id", "l.sender"),
            " FROM ",
            pairs!($database, "$1"),
            " CROSS JOIN copy AS c JOIN letter AS l ON l.number = c.letter \
             WHERE c.recipient = pair.recipient AND c.letter = pair.letter AND ",
            $wanted
        )
    };
}
const TO_DELIVER: Sql = Sql::new(movable!(sqlite, "c.state = 'accepted'"), movable!(postgres, "c.state = 'accepted'"));
const TO_READ: Sql = Sql::new(movable!(sqlite, "c.state <> 'read'"), movable!(postgres, "c.state <> 'read'"));

macro_rules! of_pairs {
    ($database:ident, $update:literal) => {
        concat!($update, " AND (recipient, letter) IN (SELECT recipient, letter FROM ", pairs!($database, "$1"), ")")
    };
}
macro_rules! update {
    ($update:literal) => {
        Sql::new(of_pairs!(sqlite, $update), of_pairs!(postgres, $update))
    };
}
const DELIVERED: Sql = update!("UPDATE copy SET state = 'delivered', delivered_ms = $2 WHERE state = 'accepted'");
const READ: Sql = update!(
    "UPDATE copy SET state = 'read', delivered_ms = coalesce(delivered_ms, $2), read_ms = $2 WHERE state <> 'read'"
);

macro_rules! make {
    ($database:ident) => {
        concat!(
            "INSERT INTO copy (recipient, letter, urgent, state, at_ms, expires_ms) \
             SELECT pair.recipient, l.number, l.urgent, 'accepted', l.at_ms, l.expires_ms FROM ",
            pairs!($database, "$1"),
            " CROSS JOIN letter AS l WHERE l.number = pair.letter AND l.spread < l.count AND ",
            has!($database, "l.recipients", "pair.recipient"),
            " ON CONFLICT DO NOTHING"
        )
    };
}
/// Copies that aren't spread yet, of those who are recipients.
const MAKE: Sql = Sql::new(make!(sqlite), make!(postgres));

/// Moves copies, by recipient and letter, tells of those that moved, letter by letter, and answers them.
pub(super) async fn mark(tx: &mut Tx, wanted: &[(String, u64)], mark: Mark) -> Result<Vec<(String, u64)>, sqlx::Error> {
    let (find, update, state) = match mark {
        Mark::Delivered => (TO_DELIVER, DELIVERED, EntryState::Delivered),
        Mark::Read => (TO_READ, READ, EntryState::Read),
    };
    let list = written(wanted);
    let mut found = movable(tx, find, &list).await?;
    // Most copies are there.
    if found.len() < wanted.len() && tx.db().execute(MAKE, &args![&list]).await? > 0 {
        found = movable(tx, find, &list).await?;
    }
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let now_ms = tx.now_ms();
    tx.db().execute(update, &args![&list, now_ms]).await?;
    let mut events: BTreeMap<u64, Kept> = BTreeMap::new();
    for (recipient, letter, id, sender) in &found {
        let event = events.entry(*letter).or_insert_with(|| {
            let (id, sender) = (id.clone(), sender.clone());
            Kept::Marked { letter: *letter, id, sender, state, recipients: Vec::new() }
        });
        if let Kept::Marked { recipients, .. } = event {
            recipients.push(recipient.clone());
        }
    }
    let events: Vec<Kept> = events.into_values().collect();
    events::append(tx, &events).await?;
    Ok(found.into_iter().map(|(recipient, letter, ..)| (recipient, letter)).collect())
}

/// Recipient, letter, its id and its sender.
type Movable = (String, u64, String, String);

/// Copies that would move: by name, each once.
async fn movable(tx: &mut Tx, find: Sql, list: &str) -> Result<Vec<Movable>, sqlx::Error> {
    let row = tx.db().row(find, &args![list]).await?;
    let mut found: Vec<Movable> = row.map(|row| row.json(0)).transpose()?.unwrap_or_default();
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

pub(super) struct MarkAll {
    wanted: Vec<(String, u64)>,
    mark: Mark,
}

impl MarkAll {
    pub(super) fn new(wanted: &[(String, u64)], mark: Mark) -> Self {
        let mut wanted = wanted.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        // What no letter can have as its number isn't looked for.
        wanted.retain(|(_, letter)| i64::try_from(*letter).is_ok());
        Self { wanted, mark }
    }
}

impl Write for MarkAll {
    type Output = Vec<(String, u64)>;
    const NAME: &'static str = "mail.mark";
    const TOGETHER: bool = true;

    fn bytes(&self) -> usize {
        self.wanted.iter().map(|(recipient, _)| recipient.len() + 64).sum()
    }

    async fn run_all(all: Vec<&mut Self>, tx: &mut Tx) -> Result<Vec<Self::Output>, sqlx::Error> {
        mark_all(&all, tx).await
    }
}

/// Moves what any of them wants moved; the first that did is answered it.
async fn mark_all(all: &[&mut MarkAll], tx: &mut Tx) -> Result<Vec<Vec<(String, u64)>>, sqlx::Error> {
    events::lock(tx).await?;
    let mut outputs = vec![Vec::new(); all.len()];
    // What was delivered is told of before it is told of as read.
    for to in [Mark::Delivered, Mark::Read] {
        let wanted: BTreeSet<_> = all.iter().filter(|one| one.mark == to).flat_map(|one| &one.wanted).collect();
        if wanted.is_empty() {
            continue;
        }
        let wanted: Vec<_> = wanted.into_iter().cloned().collect();
        let mut moved = BTreeSet::from_iter(mark(tx, &wanted, to).await?);
        for (one, output) in all.iter().zip(&mut outputs).filter(|(one, _)| one.mark == to) {
            output.extend(one.wanted.iter().filter_map(|copy| moved.take(copy)));
        }
    }
    Ok(outputs)
}

/// One more attempt.
pub(super) struct Tried {
    recipient: String,
    letter: i64,
}

impl Tried {
    pub(super) fn new(recipient: &str, letter: i64) -> Self {
        Self { recipient: recipient.to_owned(), letter }
    }
}

impl Write for Tried {
    type Output = u32;
    const NAME: &'static str = "mail.tried";

    async fn run(&mut self, tx: &mut Tx) -> Result<u32, sqlx::Error> {
        const COUNT: &str =
            "UPDATE copy SET attempts = attempts + 1 WHERE recipient = $1 AND letter = $2 RETURNING attempts";
        // It locks copies as those do who write events, and before them.
        events::lock(tx).await?;
        let args = args![&self.recipient, self.letter];
        let mut attempts = tx.db().number(COUNT, &args).await?;
        let list = written(&[(&self.recipient, self.letter)]);
        if attempts == 0 && tx.db().execute(MAKE, &args![&list]).await? > 0 {
            attempts = tx.db().number(COUNT, &args).await?;
        }
        Ok(u32::try_from(attempts).unwrap_or(u32::MAX))
    }
}
