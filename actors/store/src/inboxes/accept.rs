//! Taking entries in.

use std::collections::{BTreeMap, HashMap};

use callboard_runtime::{AuditEntry, BodyMark, Entry, EntryState, INBOX_ENTRIES_MAX_DEFAULT, JournalError, NewEntry};
use futures::future::BoxFuture;

use super::row::entries;
use super::{WAITING, columns};
use crate::clock::{ms, time};
use crate::sql::{Arg, ManyRows};
use crate::writer::{Tx, Write};

static INSERT: ManyRows = ManyRows::new(
    "INSERT INTO inbox (recipient, number, key, sender, kind, topic, reply_to, class, state, at_ms, due_ms, expires_ms, \
     bytes, mark, body) VALUES",
    15,
    "",
);
// The cross join makes SQLite look each pair up, instead of every row.
static FIND: ManyRows = ManyRows::new(
    concat!("SELECT ", columns!(), " FROM (VALUES"),
    2,
    ") AS wanted CROSS JOIN inbox WHERE inbox.recipient = wanted.column1 AND inbox.key = wanted.column2 \
     AND inbox.key IS NOT NULL",
);

/// Entries of which all or none are kept, with their marks.
pub(super) struct Accept {
    new: Vec<(BodyMark, NewEntry)>,
}

impl Accept {
    pub(super) fn new(new: Vec<(BodyMark, NewEntry)>) -> Self {
        Self { new }
    }

    /// Entries whose key is there, by recipient and key. Counters are locked first: what another node has numbered and not
    /// yet committed is waited for.
    async fn there(&self, tx: &mut Tx) -> Result<HashMap<(String, String), Entry>, sqlx::Error> {
        if !tx.db().is_sqlite() {
            let recipients: BTreeMap<_, _> = self.new.iter().map(|(_, new)| (&new.recipient, ())).collect();
            for recipient in recipients.into_keys() {
                tx.numbers(&counter(recipient), 0).await?;
            }
        }
        let keyed = self.new.iter().filter_map(|(_, new)| Some((&new.recipient, new.key.as_ref()?)));
        let values: Vec<Arg<'_>> = keyed.flat_map(|(recipient, key)| [recipient.into(), key.into()]).collect();
        let found = entries(&FIND.rows(tx.db(), &values).await?)?;
        Ok(found.into_iter().filter_map(|e| Some(((e.new.recipient.clone(), e.new.key.clone()?), e))).collect())
    }

    /// The new ones of each recipient: places in `self.new`.
    fn fresh(&self, there: &HashMap<(String, String), Entry>) -> BTreeMap<&str, Vec<usize>> {
        let mut fresh: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        let mut seen = HashMap::new();
        for (at, (_, new)) in self.new.iter().enumerate() {
            let key = new.key.as_ref().map(|key| (new.recipient.clone(), key.clone()));
            let twin = key.is_some_and(|key| there.contains_key(&key) || seen.insert(key, at).is_some());
            if !twin {
                fresh.entry(&new.recipient).or_default().push(at);
            }
        }
        fresh
    }

    async fn accept(&self, tx: &mut Tx) -> Result<Result<Vec<Entry>, JournalError>, sqlx::Error> {
        let mut there = self.there(tx).await?;
        let fresh = self.fresh(&there);
        let now_ms = tx.now_ms();
        for (recipient, new) in &fresh {
            let waiting = tx.db().number(WAITING, &[(*recipient).into(), now_ms.into()]).await?;
            if waiting.unsigned_abs() as usize + new.len() > INBOX_ENTRIES_MAX_DEFAULT {
                return Ok(Err(JournalError::Full { records_max: INBOX_ENTRIES_MAX_DEFAULT }));
            }
        }
        let mut kept: HashMap<usize, Entry> = HashMap::new();
        for (recipient, new) in fresh {
            let first = tx.numbers(&counter(recipient), new.len() as u64).await?;
            kept.extend((first..).zip(new).filter_map(|(number, at)| {
                let (mark, new) = self.new.get(at)?;
                Some((at, entry(number, mark.clone(), new.clone(), now_ms)))
            }));
        }
        self.insert(tx, &kept, now_ms).await?;
        let mut all = Vec::with_capacity(self.new.len());
        for (at, (_, new)) in self.new.iter().enumerate() {
            let key = new.key.as_ref().map(|key| (new.recipient.clone(), key.clone()));
            match kept.remove(&at) {
                Some(entry) => {
                    tx.audit(AuditEntry::communication(&entry));
                    there.extend(key.map(|key| (key, Entry { is_new: false, ..entry.clone() })));
                    all.push(entry);
                }
                // Its key was there before, or stands before it in this call.
                None => all.extend(key.and_then(|key| there.get(&key).cloned())),
            }
        }
        Ok(Ok(all))
    }

    async fn insert(&self, tx: &mut Tx, kept: &HashMap<usize, Entry>, now_ms: i64) -> Result<(), sqlx::Error> {
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let values: Vec<Arg<'_>> = kept
            .values()
            .flat_map(|Entry { number: nth, new, mark, .. }| {
                [
                    (&new.recipient).into(),
                    number(*nth).into(),
                    new.key.as_deref().into(),
                    (&new.sender).into(),
                    (&new.kind).into(),
                    new.topic.as_deref().into(),
                    new.reply_to.map(number).into(),
                    new.class.as_str().into(),
                    EntryState::Accepted.as_str().into(),
                    now_ms.into(),
                    now_ms.into(),
                    ms(new.expires).into(),
                    number(mark.bytes).into(),
                    (&mark.hash).into(),
                    (&new.body).into(),
                ]
            })
            .collect();
        INSERT.execute(tx.db(), &values).await
    }
}

impl Write for Accept {
    type Output = Result<Vec<Entry>, JournalError>;
    const NAME: &'static str = "inbox.accept";

    fn bytes(&self) -> usize {
        self.new.iter().map(|(_, new)| new.body.len() + new.recipient.len() + new.sender.len()).sum()
    }

    fn run<'a>(&'a mut self, tx: &'a mut Tx) -> BoxFuture<'a, Result<Self::Output, sqlx::Error>> {
        Box::pin(self.accept(tx))
    }
}

fn counter(recipient: &str) -> String {
    format!("i/{recipient}")
}

/// An entry that was just taken in; its times are as the store has them.
fn entry(number: u64, mark: BodyMark, new: NewEntry, now_ms: i64) -> Entry {
    let new = NewEntry { expires: time(ms(new.expires)), ..new };
    Entry {
        number,
        mark,
        new,
        state: EntryState::Accepted,
        accepted: time(now_ms),
        delivered: None,
        read: None,
        attempts: 0,
        is_new: true,
    }
}
