//! Taking a letter in.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use callboard_message::mail::EntryState;
use callboard_runtime::{BodyMark, COPIES_AT_ONCE_MAX, Letter, NewLetter};

use super::events::{self, Kept};
use super::row::{letter, letter_columns};
use super::{list, number};
use crate::clock::{ms, time};
use crate::sql::{Arg, Db, ManyRows, args};
use crate::writer::{Tx, Write};

/// The counter of letters.
const COUNTER: &str = "letter";

static INSERT: ManyRows = ManyRows::new(
    "INSERT INTO letter (number, id, sender, key, kind, label, audience, thread, reply_to, topic, urgent, class, at_ms, \
     expires_ms, recipients, count, spread, bytes, mark, body) VALUES",
    20,
    "",
);
static INSERT_COPIES: ManyRows =
    ManyRows::new("INSERT INTO copy (recipient, letter, urgent, state, at_ms, expires_ms) VALUES", 6, "");
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
        let recipients = list::written(&new.recipients);
        Self { new, mark, recipients }
    }

    fn key(&self) -> Option<Key<'_>> {
        Some((&self.new.sender, self.new.key.as_deref()?))
    }

    fn letter(&self, number: u64, now_ms: i64) -> Letter {
        // Its times are as the store has them.
        let new = NewLetter { expires: time(ms(self.new.expires)), ..self.new.clone() };
        Letter::accepted(number, new, self.mark.clone(), time(now_ms))
    }
}

/// Takes in all that is new; each is answered with its letter, or the one that was there.
async fn post(posts: &[&mut Post], tx: &mut Tx) -> Result<Vec<Arc<Letter>>, sqlx::Error> {
    // What another node has taken in and not yet committed is waited for.
    events::lock(tx).await?;
    let mut there = there(posts, tx.db()).await?;
    let mut keys: BTreeSet<Key<'_>> = there.keys().copied().collect();
    let new = posts.iter().filter(|post| post.key().is_none_or(|key| keys.insert(key))).count() as u64;
    if new == 0 {
        return Ok(posts.iter().filter_map(|post| there.get(&post.key()?).cloned()).collect());
    }
    let mut numbers = tx.numbers(COUNTER, new).await?..;
    let now_ms = tx.now_ms();
    let (mut letters, mut kept) = (Vec::with_capacity(posts.len()), Vec::with_capacity(posts.len()));
    for post in posts {
        if let Some(first) = post.key().and_then(|key| there.get(&key)) {
            letters.push(Arc::new(Letter { is_new: false, ..Letter::clone(first) }));
            continue;
        }
        let letter = Arc::new(post.letter(numbers.next().unwrap_or(u64::MAX), now_ms));
        there.extend(post.key().map(|key| (key, Arc::clone(&letter))));
        kept.push((&**post, Arc::clone(&letter)));
        letters.push(letter);
    }
    insert(tx, &kept, now_ms).await?;
    let events: Vec<_> = kept.iter().map(|(_, letter)| Kept::Posted { letter: letter.number }).collect();
    events::append(tx, &events).await?;
    for (_, letter) in kept {
        tx.audit(letter.audit_entry());
    }
    Ok(letters)
}

/// The letters that are there already, by their keys.
async fn there<'a>(posts: &'a [&mut Post], db: &mut Db) -> Result<HashMap<Key<'a>, Arc<Letter>>, sqlx::Error> {
    let keys: BTreeSet<Key<'a>> = posts.iter().filter_map(|post| post.key()).collect();
    let values: Vec<Arg<'_>> = keys.iter().flat_map(|(sender, key)| args![*sender, *key]).collect();
    let mut there = HashMap::new();
    for row in FIND.rows(db, &values).await? {
        let letter = letter(&row)?;
        let is_its = |(sender, key): &&Key<'a>| *sender == letter.new.sender && letter.new.key.as_deref() == Some(*key);
        if let Some(key) = keys.iter().find(is_its) {
            there.insert(*key, letter);
        }
    }
    Ok(there)
}

async fn insert(tx: &mut Tx, kept: &[(&Post, Arc<Letter>)], now_ms: i64) -> Result<(), sqlx::Error> {
    let (mut letters, mut copies): (Vec<Arg<'_>>, Vec<Arg<'_>>) = (Vec::with_capacity(kept.len() * 20), Vec::new());
    for (post, letter) in kept {
        let new = &letter.new;
        let (nth, urgent, expires_ms) = (number(letter.number), i64::from(new.urgent), ms(new.expires));
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
        let made = new.recipients.get(..letter.spread as usize).unwrap_or_default();
        debug_assert!(made.len() <= COPIES_AT_ONCE_MAX, "the others are spread");
        let accepted = EntryState::Accepted.as_str();
        copies.extend(
            made.iter()
                .flat_map(|recipient| -> [Arg<'_>; 6] { args![recipient, nth, urgent, accepted, now_ms, expires_ms] }),
        );
    }
    INSERT.execute(tx.db(), &letters).await?;
    INSERT_COPIES.execute(tx.db(), &copies).await
}

impl Write for Post {
    type Output = Arc<Letter>;
    const NAME: &'static str = "mail.post";
    const TOGETHER: bool = true;

    fn bytes(&self) -> usize {
        self.new.body.len() + self.recipients.len()
    }

    async fn run_all(all: Vec<&mut Self>, tx: &mut Tx) -> Result<Vec<Self::Output>, sqlx::Error> {
        post(&all, tx).await
    }
}
