//! Writes of mail: letters, their copies to many, and how far recipients have come.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use callboard_message::mail::EntryState;
use callboard_runtime::{
    BodyMark, COPIES_AT_ONCE_MAX, JournalError, JournalResult, Letter, Mark, NewLetter, SPREAD_MAX,
};

use super::number;
use super::query::{Kept, append_events, lock_mail};
use super::sql::{as_list, has, letter, letter_columns, pairs, written};
use crate::sql::{Arg, Db, ManyRows, Sql, args, ms, time};
use crate::tx::{Tx, Write};

/// The counter of letters.
const COUNTER: &str = "letter";

static INSERT: ManyRows = ManyRows::new(
    "INSERT INTO letter (number, id, sender, key, kind, label, audience, thread, reply_to, topic, urgent, class, at_ms, \
     expires_ms, recipients, count, spread, bytes, mark, body) VALUES",
    20,
    "",
);
static INSERT_COPIES: ManyRows = ManyRows::new(
    "INSERT INTO copy (recipient, letter, urgent, state, at_ms, expires_ms) VALUES",
    6,
    "",
);
static FIND: ManyRows = ManyRows::new(
    concat!("SELECT ", letter_columns!(), " FROM (VALUES"),
    2,
    ") AS wanted CROSS JOIN letter AS l WHERE l.sender = wanted.column1 AND l.key = wanted.column2 AND l.key IS NOT NULL",
);

pub(super) struct Post {
    new: NewLetter,
    mark: BodyMark,
    /// Its recipients, as JSON.
    recipients: String,
}

/// A sender, and its key for a letter.
type Key<'a> = (&'a str, &'a str);

impl Post {
    pub(super) fn new(new: NewLetter, mark: BodyMark) -> Self {
        let recipients = written(&new.recipients);
        Self {
            new,
            mark,
            recipients,
        }
    }

    fn key(&self) -> Option<Key<'_>> {
        Some((&self.new.sender, self.new.key.as_deref()?))
    }

    fn letter(&self, number: u64, now_ms: i64) -> Letter {
        // Its times are as the store has them.
        let new = NewLetter {
            expires: time(ms(self.new.expires)),
            ..self.new.clone()
        };
        Letter::accepted(number, new, self.mark.clone(), time(now_ms))
    }
}

/// The letters that are there already, by their keys.
async fn there<'a>(
    posts: &'a [&mut Post],
    db: &mut Db,
) -> sqlx::Result<HashMap<Key<'a>, Arc<Letter>>> {
    let keys: BTreeSet<Key<'a>> = posts.iter().filter_map(|post| post.key()).collect();
    let values: Vec<Arg<'_>> = keys
        .iter()
        .flat_map(|(sender, key)| args![*sender, *key])
        .collect();
    let mut there = HashMap::new();
    for row in FIND.rows(db, &values).await? {
        let letter = letter(&row)?;
        let is_its = |(sender, key): &&Key<'a>| {
            *sender == letter.new.sender && letter.new.key.as_deref() == Some(*key)
        };
        if let Some(key) = keys.iter().find(is_its) {
            there.insert(*key, letter);
        }
    }
    Ok(there)
}

async fn insert(tx: &mut Tx, kept: &[(&Post, Arc<Letter>)], now_ms: i64) -> sqlx::Result<()> {
    let (mut letters, mut copies): (Vec<Arg<'_>>, Vec<Arg<'_>>) =
        (Vec::with_capacity(kept.len() * 20), Vec::new());
    for (post, letter) in kept {
        let new = &letter.new;
        let (nth, urgent, expires_ms) = (
            number(letter.number),
            i64::from(new.urgent),
            ms(new.expires),
        );
        letters.extend::<[Arg<'_>; 20]>(args![
            nth,
            &new.id,
            &new.sender,
            new.key.as_deref(),
            new.kind.as_str(),
            new.label.as_deref(),
            &new.audience,
            new.thread(),
            new.reply_to.as_deref(),
            new.topic.as_deref(),
            urgent,
            new.class.as_str(),
            now_ms,
            expires_ms,
            &post.recipients,
            new.recipients.len() as u64,
            letter.spread,
            letter.mark.bytes,
            &letter.mark.hash,
            &new.body
        ]);
        let made = new
            .recipients
            .get(..letter.spread as usize)
            .unwrap_or_default();
        debug_assert!(made.len() <= COPIES_AT_ONCE_MAX, "the others are spread");
        let accepted = EntryState::Accepted.as_str();
        copies.extend(made.iter().flat_map(|recipient| -> [Arg<'_>; 6] {
            args![recipient, nth, urgent, accepted, now_ms, expires_ms]
        }));
    }
    INSERT.execute(&mut tx.db, &letters).await?;
    INSERT_COPIES.execute(&mut tx.db, &copies).await
}

impl Write for Post {
    type Output = Arc<Letter>;
    const NAME: &'static str = "mail.post";
    const TOGETHER: bool = true;

    fn bytes(&self) -> usize {
        self.new.body.len() + self.recipients.len()
    }

    /// Takes in all that is new; each is answered with its letter, or the one that was there.
    async fn run_all(posts: Vec<&mut Self>, tx: &mut Tx) -> sqlx::Result<Vec<Self::Output>> {
        // What another node has taken in and not yet committed is waited for.
        lock_mail(tx).await?;
        let mut there = there(&posts, &mut tx.db).await?;
        let mut keys: BTreeSet<Key<'_>> = there.keys().copied().collect();
        let new = posts
            .iter()
            .filter(|post| post.key().is_none_or(|key| keys.insert(key)))
            .count() as u64;
        if new == 0 {
            return Ok(posts
                .iter()
                .filter_map(|post| there.get(&post.key()?).cloned())
                .collect());
        }
        let mut numbers = tx.numbers(COUNTER, new).await?..;
        let now_ms = tx.now_ms;
        let (mut letters, mut kept) = (
            Vec::with_capacity(posts.len()),
            Vec::with_capacity(posts.len()),
        );
        for post in &posts {
            if let Some(first) = post.key().and_then(|key| there.get(&key)) {
                letters.push(Arc::new(Letter {
                    is_new: false,
                    ..Letter::clone(first)
                }));
                continue;
            }
            let letter = Arc::new(post.letter(numbers.next().unwrap_or(u64::MAX), now_ms));
            there.extend(post.key().map(|key| (key, letter.clone())));
            kept.push((&**post, letter.clone()));
            letters.push(letter);
        }
        insert(tx, &kept, now_ms).await?;
        let events: Vec<_> = kept
            .iter()
            .map(|(_, letter)| Kept::Posted {
                letter: letter.number,
            })
            .collect();
        append_events(tx, &events).await?;
        for (_, letter) in kept {
            tx.audit(letter.audit_entry());
        }
        Ok(letters)
    }
}

const SPREAD: Sql = Sql::new(
    "INSERT INTO copy (recipient, letter, urgent, state, at_ms, expires_ms) \
     SELECT one.value, l.number, l.urgent, 'accepted', l.at_ms, l.expires_ms \
     FROM letter AS l CROSS JOIN json_each(l.recipients) AS one \
     WHERE l.number = $1 AND one.key >= $2 AND one.key < $3 ON CONFLICT DO NOTHING",
    "INSERT INTO copy (recipient, letter, urgent, state, at_ms, expires_ms) \
     SELECT one.value, l.number, l.urgent, 'accepted', l.at_ms, l.expires_ms \
     FROM letter AS l CROSS JOIN json_array_elements_text(CAST(l.recipients AS json)) WITH ORDINALITY AS one (value, key) \
     WHERE l.number = $1 AND one.key > $2 AND one.key <= $3 ON CONFLICT DO NOTHING",
);

pub(super) struct Spread {
    letter: i64,
    to: i64,
    /// Recipients that have it, with the letter.
    delivered: Vec<(String, u64)>,
}

impl Spread {
    pub(super) fn new(letter: i64, to: i64, delivered: Vec<String>) -> Self {
        let mut delivered: Vec<_> = delivered
            .into_iter()
            .map(|to| (to, letter.unsigned_abs()))
            .collect();
        delivered.sort_unstable();
        delivered.dedup();
        Self {
            letter,
            to,
            delivered,
        }
    }
}

impl Write for Spread {
    type Output = JournalResult<()>;
    const NAME: &'static str = "mail.spread";

    fn bytes(&self) -> usize {
        SPREAD_MAX * 128
    }

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<Self::Output> {
        lock_mail(tx).await?;
        let at = tx
            .db
            .row(
                "SELECT spread, count FROM letter WHERE number = $1",
                &args![self.letter],
            )
            .await?;
        let Some(at) = at else {
            return Ok(Err(JournalError::Invalid("there is no such letter")));
        };
        let (from, count) = (at.get(0)?, at.get(1)?);
        let to = self.to.min(count);
        if to - from > SPREAD_MAX as i64 {
            return Ok(Err(JournalError::Invalid("too many copies at once")));
        }
        if to > from {
            tx.db.execute(SPREAD, &args![self.letter, from, to]).await?;
            tx.db
                .execute(
                    "UPDATE letter SET spread = $2 WHERE number = $1",
                    &args![self.letter, to],
                )
                .await?;
        }
        if !self.delivered.is_empty() {
            mark(tx, &self.delivered, Mark::Delivered).await?;
        }
        Ok(Ok(()))
    }
}

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
const TO_DELIVER: Sql = Sql::new(
    movable!(sqlite, "c.state = 'accepted'"),
    movable!(postgres, "c.state = 'accepted'"),
);
const TO_READ: Sql = Sql::new(
    movable!(sqlite, "c.state <> 'read'"),
    movable!(postgres, "c.state <> 'read'"),
);

macro_rules! of_pairs {
    ($database:ident, $update:literal) => {
        concat!(
            $update,
            " AND (recipient, letter) IN (SELECT recipient, letter FROM ",
            pairs!($database, "$1"),
            ")"
        )
    };
}
macro_rules! update {
    ($update:literal) => {
        Sql::new(of_pairs!(sqlite, $update), of_pairs!(postgres, $update))
    };
}
const DELIVERED: Sql =
    update!("UPDATE copy SET state = 'delivered', delivered_ms = $2 WHERE state = 'accepted'");
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
async fn mark(
    tx: &mut Tx,
    wanted: &[(String, u64)],
    mark: Mark,
) -> sqlx::Result<Vec<(String, u64)>> {
    let (find, update, state) = match mark {
        Mark::Delivered => (TO_DELIVER, DELIVERED, EntryState::Delivered),
        Mark::Read => (TO_READ, READ, EntryState::Read),
    };
    let list = written(wanted);
    let mut found = movable(tx, find, &list).await?;
    // Most copies are there.
    if found.len() < wanted.len() && tx.db.execute(MAKE, &args![&list]).await? > 0 {
        found = movable(tx, find, &list).await?;
    }
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let now_ms = tx.now_ms;
    tx.db.execute(update, &args![&list, now_ms]).await?;
    let mut events: BTreeMap<u64, Kept> = BTreeMap::new();
    for (recipient, letter, id, sender) in &found {
        let event = events.entry(*letter).or_insert_with(|| {
            let (id, sender) = (id.clone(), sender.clone());
            Kept::Marked {
                letter: *letter,
                id,
                sender,
                state,
                recipients: Vec::new(),
            }
        });
        if let Kept::Marked { recipients, .. } = event {
            recipients.push(recipient.clone());
        }
    }
    let events: Vec<Kept> = events.into_values().collect();
    append_events(tx, &events).await?;
    Ok(found
        .into_iter()
        .map(|(recipient, letter, ..)| (recipient, letter))
        .collect())
}

/// Recipient, letter, its id and its sender.
type Movable = (String, u64, String, String);

/// Copies that would move: by name, each once.
async fn movable(tx: &mut Tx, find: Sql, list: &str) -> sqlx::Result<Vec<Movable>> {
    let row = tx.db.row(find, &args![list]).await?;
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
        self.wanted
            .iter()
            .map(|(recipient, _)| recipient.len() + 64)
            .sum()
    }

    /// Moves what any of them wants moved; the first that did is answered it.
    async fn run_all(all: Vec<&mut Self>, tx: &mut Tx) -> sqlx::Result<Vec<Self::Output>> {
        lock_mail(tx).await?;
        let mut outputs = vec![Vec::new(); all.len()];
        // What was delivered is told of before it is told of as read.
        for to in [Mark::Delivered, Mark::Read] {
            let wanted: BTreeSet<_> = all
                .iter()
                .filter(|one| one.mark == to)
                .flat_map(|one| &one.wanted)
                .collect();
            if wanted.is_empty() {
                continue;
            }
            let wanted: Vec<_> = wanted.into_iter().cloned().collect();
            let mut moved = BTreeSet::from_iter(mark(tx, &wanted, to).await?);
            for (one, output) in all
                .iter()
                .zip(&mut outputs)
                .filter(|(one, _)| one.mark == to)
            {
                output.extend(one.wanted.iter().filter_map(|copy| moved.take(copy)));
            }
        }
        Ok(outputs)
    }
}

/// One more attempt.
pub(super) struct Tried {
    pub(super) recipient: String,
    pub(super) letter: i64,
}

impl Write for Tried {
    type Output = u32;
    const NAME: &'static str = "mail.tried";

    async fn run(&mut self, tx: &mut Tx) -> sqlx::Result<u32> {
        const COUNT: &str = "UPDATE copy SET attempts = attempts + 1 WHERE recipient = $1 AND letter = $2 RETURNING attempts";
        // It locks copies as those do who write events, and before them.
        lock_mail(tx).await?;
        let args = args![&self.recipient, self.letter];
        let mut attempts = tx.db.number(COUNT, &args).await?;
        let list = written(&[(&self.recipient, self.letter)]);
        if attempts == 0 && tx.db.execute(MAKE, &args![&list]).await? > 0 {
            attempts = tx.db.number(COUNT, &args).await?;
        }
        Ok(u32::try_from(attempts).unwrap_or(u32::MAX))
    }
}
