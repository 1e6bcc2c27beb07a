use std::collections::{BTreeMap, HashMap};
use std::future::ready;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::BoxFuture;

use super::{Entry, EntryFilter, EntryState, INBOX_ENTRIES_MAX_DEFAULT, Inboxes, Mark, NewEntry};
use crate::audit::{Audit, AuditEntry};
use crate::journal::JournalError;
use crate::sync::Mutex;

/// Inboxes that last as long as the process.
pub struct MemoryInboxes {
    audit: Arc<dyn Audit>,
    inboxes: Mutex<BTreeMap<String, Inbox>>,
}

#[derive(Default)]
struct Inbox {
    entries: Vec<Kept>,
    keys: HashMap<String, u64>,
}

struct Kept {
    entry: Entry,
    /// When it is handed out (again).
    due: SystemTime,
}

impl Kept {
    fn is_waiting(&self, now: SystemTime) -> bool {
        self.entry.state != EntryState::Read && self.entry.new.expires > now
    }
}

impl MemoryInboxes {
    /// Inboxes whose entries are put on record in `audit`.
    pub fn new(audit: Arc<dyn Audit>) -> Self {
        Self { audit, inboxes: Mutex::default() }
    }

    fn keep(&self, new: Vec<NewEntry>) -> Result<Vec<Entry>, JournalError> {
        NewEntry::check_all(&new)?;
        let now = SystemTime::now();
        let mut inboxes = self.inboxes.lock();
        let mut wanted: HashMap<&str, usize> = HashMap::new();
        for entry in &new {
            let there = |inbox: &Inbox| entry.key.as_ref().is_some_and(|key| inbox.keys.contains_key(key));
            if !inboxes.get(&entry.recipient).is_some_and(there) {
                *wanted.entry(&entry.recipient).or_default() += 1;
            }
        }
        for (recipient, wanted) in wanted {
            let waiting = |inbox: &Inbox| inbox.entries.iter().filter(|kept| kept.is_waiting(now)).count();
            if inboxes.get(recipient).map_or(0, waiting) + wanted > INBOX_ENTRIES_MAX_DEFAULT {
                return Err(JournalError::Full { records_max: INBOX_ENTRIES_MAX_DEFAULT });
            }
        }
        let mut entries = Vec::with_capacity(new.len());
        for new in new {
            let inbox = inboxes.entry(new.recipient.clone()).or_default();
            entries.push(inbox.push(new, now, &*self.audit));
        }
        Ok(entries)
    }
}

impl Inbox {
    fn push(&mut self, new: NewEntry, now: SystemTime, audit: &dyn Audit) -> Entry {
        let there = new.key.as_ref().and_then(|key| self.keys.get(key)).and_then(|number| self.at(*number));
        if let Some(there) = there {
            return Entry { is_new: false, ..self.entries[there].entry.clone() };
        }
        let number = self.entries.len() as u64 + 1;
        if let Some(key) = new.key.clone() {
            self.keys.insert(key, number);
        }
        let entry = Entry {
            number,
            mark: audit.mark(new.class, new.body.as_bytes()),
            new,
            state: EntryState::Accepted,
            accepted: now,
            delivered: None,
            read: None,
            attempts: 0,
            is_new: true,
        };
        self.entries.push(Kept { entry: Entry { is_new: false, ..entry.clone() }, due: now });
        entry
    }

    fn at(&self, number: u64) -> Option<usize> {
        usize::try_from(number).ok()?.checked_sub(1).filter(|at| *at < self.entries.len())
    }
}

impl Inboxes for MemoryInboxes {
    fn accept(&self, new: Vec<NewEntry>) -> BoxFuture<'_, Result<Vec<Entry>, JournalError>> {
        Box::pin(async move {
            let entries = self.keep(new)?;
            let told: Vec<_> = entries.iter().filter(|entry| entry.is_new).map(AuditEntry::communication).collect();
            if !told.is_empty() {
                self.audit.append(told).await?;
            }
            Ok(entries)
        })
    }

    fn deliver<'a>(
        &'a self,
        recipient: &'a str,
        entries_max: usize,
        again_after: Duration,
    ) -> BoxFuture<'a, Result<Vec<Entry>, JournalError>> {
        let now = SystemTime::now();
        let mut inboxes = self.inboxes.lock();
        let kept = inboxes.get_mut(recipient).map(|inbox| inbox.entries.iter_mut()).into_iter().flatten();
        let is_due = |kept: &&mut Kept| {
            kept.entry.state == EntryState::Accepted && kept.due <= now && kept.entry.new.expires > now
        };
        let handed = kept.filter(is_due).take(entries_max).map(|kept| {
            kept.due = now + again_after;
            kept.entry.attempts += 1;
            kept.entry.clone()
        });
        Box::pin(ready(Ok(handed.collect())))
    }

    fn mark<'a>(
        &'a self,
        recipient: &'a str,
        numbers: &'a [u64],
        mark: Mark,
    ) -> BoxFuture<'a, Result<u64, JournalError>> {
        let now = SystemTime::now();
        let state = match mark {
            Mark::Delivered => EntryState::Delivered,
            Mark::Read => EntryState::Read,
        };
        let mut inboxes = self.inboxes.lock();
        let mut moved = 0;
        if let Some(inbox) = inboxes.get_mut(recipient) {
            for number in numbers {
                let Some(at) = inbox.at(*number) else { continue };
                let entry = &mut inbox.entries[at].entry;
                if entry.state < state {
                    entry.state = state;
                    entry.delivered.get_or_insert(now);
                    entry.read = (state == EntryState::Read).then_some(now);
                    moved += 1;
                }
            }
        }
        Box::pin(ready(Ok(moved)))
    }

    fn history(
        &self,
        filter: EntryFilter,
        after: u64,
        entries_max: usize,
    ) -> BoxFuture<'_, Result<Vec<Entry>, JournalError>> {
        let inboxes = self.inboxes.lock();
        let ms = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        let entries = inboxes.values().flat_map(|inbox| &inbox.entries).map(|kept| &kept.entry);
        let of_one = filter.recipient.is_some();
        let later = |entry: &&Entry| if of_one { entry.number > after } else { ms(entry.accepted) > after.into() };
        let mut found: Vec<_> = entries.filter(|entry| filter.leaves(entry)).filter(later).cloned().collect();
        // By recipient and number they are in order already.
        found.sort_by_key(|entry| if of_one { UNIX_EPOCH } else { entry.accepted });
        found.truncate(entries_max);
        Box::pin(ready(Ok(found)))
    }

    fn waiting<'a>(&'a self, recipient: &'a str) -> BoxFuture<'a, Result<u64, JournalError>> {
        let now = SystemTime::now();
        let inboxes = self.inboxes.lock();
        let waiting =
            inboxes.get(recipient).map_or(0, |inbox| inbox.entries.iter().filter(|k| k.is_waiting(now)).count());
        Box::pin(ready(Ok(waiting as u64)))
    }
}
