use std::collections::VecDeque;
use std::fmt::Display;
use std::sync::{Arc, Mutex};

use callboard_runtime::{Journal, Record};
use callboard_store::{SqlStore, StoreOptions};
use futures::future::join_all;
use serde_json::json;

/// Who write at the same time.
const PRODUCERS: u32 = 16;
/// The streams that records go to.
pub const STREAMS: [&str; 3] = ["crash/a", "crash/b", "crash/c"];
/// The last line of a child that was told to finish.
pub const DONE: &str = "done";

/// What is done, over and over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A record is appended.
    Record,
}

impl Kind {
    pub const ALL: [Self; 1] = [Self::Record];

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
    STREAMS[key.bytes().map(usize::from).sum::<usize>() % STREAMS.len()]
}

/// Opens the store, does first what it is told to try again, and goes on until it is killed, or has finished.
pub async fn run(options: StoreOptions) {
    let (retries, round) = orders();
    let sql = SqlStore::open(&options).await.unwrap();
    let load = Arc::new(Load { journal: sql.journal(), retries: Mutex::new(retries), round });
    let producers = (0..PRODUCERS).map(|producer| tokio::spawn(load.clone().produce(producer)));
    join_all(producers).await.into_iter().for_each(|ended| ended.unwrap());
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
    retries: Mutex<VecDeque<Job>>,
    round: Option<u32>,
}

impl Load {
    async fn produce(self: Arc<Self>, producer: u32) {
        for nth in 0_usize.. {
            let again = self.retries.lock().unwrap().pop_front();
            let fresh = || self.round.map(|round| (Kind::ALL[nth % Kind::ALL.len()], format!("{round}.{producer}.{nth}")));
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
        }
    }
}

fn ack(job: &Job, number: impl Display) {
    println!("ack {} {number}", written(job));
}
