use std::collections::{BTreeMap, BTreeSet, HashMap};

use callboard_runtime::{EntryFilter, EntryState};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, Executor, Row};

use super::load::{Job, Kind, RECIPIENTS, STREAMS, inboxes, read, recipient_of, stream_of, written};
use crate::kit::Opened;

const PAGE: usize = 1_000;

/// What a child said, and what was found of it so far.
#[derive(Default)]
pub struct Ledger {
    /// Begun, and not acknowledged.
    tried: BTreeSet<Job>,
    /// Acknowledged, with its number.
    acked: BTreeMap<Job, u64>,
    /// Those of them that nobody has looked for yet.
    fresh: Vec<Job>,
    streams: HashMap<&'static str, Numbered>,
    inboxes: HashMap<&'static str, Numbered>,
    /// Entries that were said to be read.
    read: BTreeSet<(String, u64)>,
    fresh_read: Vec<(String, u64)>,
}

/// A stream or an inbox, as far as it was read.
#[derive(Default)]
struct Numbered {
    last: u64,
    numbers: HashMap<String, u64>,
}

impl Numbered {
    fn take(&mut self, name: &str, number: u64, key: String) {
        assert_eq!(number, self.last + 1, "{name} has a gap");
        self.last = number;
        assert_eq!(self.numbers.insert(key, number), None, "{name} {number}: its key is there twice");
    }

    async fn read_stream(&mut self, opened: &Opened, name: &str) {
        let journal = opened.sql.journal();
        loop {
            let page = journal.read(name, self.last, PAGE).await.unwrap();
            if page.is_empty() {
                return;
            }
            for (number, record) in page {
                let key = record.key.unwrap();
                assert_eq!(record.body["key"], key.as_str(), "{name} {number}: the body is another's");
                self.take(name, number, key);
            }
        }
    }

    async fn read_inbox(&mut self, opened: &Opened, name: &str) {
        let inboxes = inboxes(&opened.sql);
        loop {
            let filter = EntryFilter { recipient: Some(name.to_owned()), ..EntryFilter::default() };
            let page = inboxes.history(filter, self.last, PAGE).await.unwrap();
            if page.is_empty() {
                return;
            }
            for entry in page {
                let key = entry.new.key.unwrap();
                assert_eq!(entry.new.body, key, "{name} {}: the body is another's", entry.number);
                self.take(name, entry.number, key);
            }
        }
    }
}

impl Ledger {
    /// Takes a line of a child's; whether it was an acknowledgement.
    pub fn hear(&mut self, line: &str) -> bool {
        match line.split_once(' ') {
            Some(("try", job)) => {
                let job = read(job);
                if !self.acked.contains_key(&job) {
                    self.tried.insert(job);
                }
                false
            }
            Some(("ack", told)) => {
                let (job, number) = told.rsplit_once(' ').unwrap();
                let (job, number) = (read(job), number.parse().unwrap());
                assert!(self.tried.remove(&job), "{job:?} was acknowledged, but not tried, or twice");
                self.acked.insert(job.clone(), number);
                self.fresh.push(job);
                true
            }
            Some(("read", told)) => {
                let (recipient, number) = told.split_once(' ').unwrap();
                let entry = (recipient.to_owned(), number.parse().unwrap());
                self.read.insert(entry.clone());
                self.fresh_read.push(entry);
                false
            }
            _ => panic!("the child says: {line}"),
        }
    }

    /// What is to be tried again.
    pub fn pending(&self) -> Vec<String> {
        self.tried.iter().map(written).collect()
    }

    pub fn tally(&self) -> String {
        let of = |kind| self.acked.keys().filter(|job| job.0 == kind).count();
        Kind::ALL.map(|kind| format!("{kind:?} {}", of(kind))).join(", ")
    }

    /// Looks for all that was acknowledged since the last look, and that what came to the store since then is in order.
    pub async fn look(&mut self, opened: &Opened) {
        for name in STREAMS {
            self.streams.entry(name).or_default().read_stream(opened, name).await;
        }
        for name in RECIPIENTS {
            self.inboxes.entry(name).or_default().read_inbox(opened, name).await;
        }
        for job in std::mem::take(&mut self.fresh) {
            self.is_there(&job);
        }
        let inboxes = inboxes(&opened.sql);
        for (recipient, number) in std::mem::take(&mut self.fresh_read) {
            let filter = EntryFilter { recipient: Some(recipient.clone()), ..EntryFilter::default() };
            let found = inboxes.history(filter, number - 1, 1).await.unwrap();
            assert_eq!(found[0].state, EntryState::Read, "{recipient} {number} was read");
        }
    }

    /// Nothing is left that nobody has seen to.
    pub async fn is_settled(&self, opened: &Opened) {
        assert_eq!(self.pending(), Vec::<String>::new(), "what was tried has been acknowledged in the end");
        for (name, inbox) in &self.inboxes {
            let read = self.read.iter().filter(|(recipient, _)| recipient == name).count() as u64;
            assert!(read <= inbox.last);
            assert_eq!(inboxes(&opened.sql).waiting(name).await, Ok(0));
        }
    }

    /// Reads everything again, from the beginning, and has the database look at itself.
    pub async fn look_at_all(&mut self, opened: &Opened) {
        self.streams.clear();
        self.inboxes.clear();
        self.fresh_read = self.read.iter().cloned().collect();
        self.fresh = self.acked.keys().cloned().collect();
        self.look(opened).await;
        if opened.is_sqlite() {
            assert_eq!(texts(opened, "PRAGMA integrity_check").await, ["ok"]);
        }
    }

    fn is_there(&self, job: &Job) {
        let (kind, key) = job;
        let acked = self.acked.get(job);
        let found = match kind {
            Kind::Record => self.streams.get(stream_of(key)).and_then(|stream| stream.numbers.get(key)),
            Kind::Entry => self.inboxes.get(recipient_of(key)).and_then(|inbox| inbox.numbers.get(key)),
        };
        assert_eq!(found, acked, "{job:?} was acknowledged with the one number, and has the other");
    }
}

/// The first column of a query's rows.
async fn texts(opened: &Opened, query: &'static str) -> Vec<String> {
    let mut db = SqliteConnectOptions::new().filename(opened.file()).read_only(true).connect().await.unwrap();
    let rows = db.fetch_all(query).await.unwrap();
    db.close().await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}
