use std::collections::{BTreeMap, BTreeSet, HashMap};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, Executor, Row};

use super::load::{Job, Kind, STREAMS, read, stream_of, written};
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
    streams: HashMap<String, Stream>,
}

/// A stream as far as it was read.
#[derive(Default)]
struct Stream {
    last: u64,
    numbers: HashMap<String, u64>,
}

impl Stream {
    async fn read_on(&mut self, opened: &Opened, name: &str) {
        let journal = opened.sql.journal();
        loop {
            let page = journal.read(name, self.last, PAGE).await.unwrap();
            if page.is_empty() {
                return;
            }
            for (number, record) in page {
                assert_eq!(number, self.last + 1, "{name} has a gap");
                self.last = number;
                let key = record.key.unwrap();
                assert_eq!(record.body["key"], key.as_str(), "{name} {number}: the body is another's");
                let twice = self.numbers.insert(key, number);
                assert_eq!(twice, None, "{name} {number}: its key is there twice");
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
            self.streams.entry(name.to_owned()).or_default().read_on(opened, name).await;
        }
        for job in std::mem::take(&mut self.fresh) {
            self.is_there(&job);
        }
    }

    /// Reads everything again, from the beginning, and has the database look at itself.
    pub async fn look_at_all(&mut self, opened: &Opened) {
        self.streams.clear();
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
