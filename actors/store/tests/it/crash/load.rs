use std::collections::VecDeque;
use std::fmt::Display;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use callboard_message::DataClass;
use callboard_runtime::{Inboxes, Journal, Mark, MemoryAudit, NewEntry, Record};
use callboard_store::{SqlStore, StoreOptions};
use futures::future::join_all;
use serde_json::json;

/// Who write at the same time.
const PRODUCERS: u32 = 16;
/// The streams that records go to.
pub const STREAMS: [&str; 3] = ["crash/a", "crash/b", "crash/c"];
/// The inboxes that entries go to.
pub const RECIPIENTS: [&str; 2] = ["bob", "eve"];
/// An entry that was handed out and not marked is handed out again after that.
const AGAIN_AFTER: Duration = Duration::from_millis(50);
const DELIVERED_AT_ONCE: usize = 8;
/// The last line of a child that was told to finish.
pub const DONE: &str = "done";

/// What is done, over and over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A record is appended.
    Record,
    /// An entry comes into an inbox; those that wait there are read.
    Entry,
}

impl Kind {
    pub const ALL: [Self; 2] = [Self::Record, Self::Entry];

    pub fn named(name: &str) -> Self {
        Self::ALL.into_iter().find(|kind| format!("{kind:?}") == name).unwrap()
    }
}

/// One thing to do: a kind, and the key under which it is tried until it is acknowledged.
pub type Job = (Kind, String);

/// As it is written in orders and told: `KIND KEY`.
pub fn written((kind, key): &Job) -> String {
    format!("{kind:?} {key}")
}

pub fn read(line: &str) -> Job {
    let (kind, key) = line.split_once(' ').unwrap();
    (Kind::named(kind), key.to_owned())
}

/// The stream that a record with that key goes to.
pub fn stream_of(key: &str) -> &'static str {
    STREAMS[sum(key) % STREAMS.len()]
}

/// The inbox that an entry with that key comes into.
pub fn recipient_of(key: &str) -> &'static str {
    RECIPIENTS[sum(key) % RECIPIENTS.len()]
}

fn sum(key: &str) -> usize {
    key.bytes().map(usize::from).sum()
}

pub fn inboxes(sql: &SqlStore) -> Arc<dyn Inboxes> {
    sql.inboxes(Arc::new(MemoryAudit::default()))
}

/// Opens the store, does first what it is told to try again, and goes on until it is killed, or has finished.
pub async fn run(options: StoreOptions) {
    let (retries, round) = orders();
    let sql = SqlStore::open(&options).await.unwrap();
    let (journal, inboxes) = (sql.journal(), inboxes(&sql));
    let load = Arc::new(Load { journal, inboxes, retries: Mutex::new(retries), round });
    let producers = (0..PRODUCERS).map(|producer| tokio::spawn(load.clone().produce(producer)));
    join_all(producers).await.into_iter().for_each(|ended| ended.unwrap());
    load.settle().await;
    sql.close().await;
    println!("{DONE}");
}

/// What is to be tried again, and which round this is; `None`: nothing is begun in it.
fn orders() -> (VecDeque<Job>, Option<u32>) {
    let mut retries = VecDeque::new();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        match line.split_once(' ') {
            None => return (retries, None),
            Some(("go", round)) => return (retries, Some(round.parse().unwrap())),
            Some(_) => retries.push_back(read(&line)),
        }
    }
    panic!("the parent has gone");
}

struct Load {
    journal: Arc<dyn Journal>,
    inboxes: Arc<dyn Inboxes>,
    retries: Mutex<VecDeque<Job>>,
    round: Option<u32>,
}

impl Load {
    async fn produce(self: Arc<Self>, producer: u32) {
        for nth in 0_usize.. {
            let again = self.retries.lock().unwrap().pop_front();
            let fresh =
                || self.round.map(|round| (Kind::ALL[nth % Kind::ALL.len()], format!("{round}.{producer}.{nth}")));
            let Some(job) = again.or_else(fresh) else { return };
            println!("try {}", written(&job));
            self.perform(job).await;
        }
    }

    async fn perform(&self, job: Job) {
        let key = &job.1;
        match job.0 {
            Kind::Record => {
                let body = json!({ "key": key, "filled": "x".repeat(key.len() * 20) });
                let record = Record { stream: stream_of(key).to_owned(), key: Some(key.clone()), body };
                ack(&job, self.journal.append(record).await.unwrap());
            }
            Kind::Entry => {
                let recipient = recipient_of(key);
                let entry = NewEntry {
                    recipient: recipient.to_owned(),
                    sender: "ann".to_owned(),
                    kind: "direct".to_owned(),
                    topic: None,
                    reply_to: None,
                    key: Some(key.clone()),
                    class: DataClass::Internal,
                    body: key.clone(),
                    expires: SystemTime::now() + Duration::from_secs(24 * 3_600),
                };
                ack(&job, self.inboxes.accept(vec![entry]).await.unwrap()[0].number);
                self.read(recipient).await;
            }
        }
    }

    /// Has a recipient read what is handed out to it.
    async fn read(&self, recipient: &str) {
        let handed = self.inboxes.deliver(recipient, DELIVERED_AT_ONCE, AGAIN_AFTER).await.unwrap();
        let numbers: Vec<_> = handed.iter().map(|entry| entry.number).collect();
        self.inboxes.mark(recipient, &numbers, Mark::Delivered).await.unwrap();
        self.inboxes.mark(recipient, &numbers, Mark::Read).await.unwrap();
        numbers.iter().for_each(|number| println!("read {recipient} {number}"));
    }

    /// Goes on until nothing is left that earlier processes began.
    async fn settle(&self) {
        for recipient in RECIPIENTS {
            while self.inboxes.waiting(recipient).await.unwrap() > 0 {
                self.read(recipient).await;
                tokio::time::sleep(AGAIN_AFTER / 5).await;
            }
        }
    }
}

fn ack(job: &Job, number: impl Display) {
    println!("ack {} {number}", written(job));
}
