use std::collections::VecDeque;
use std::fmt::Display;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use callboard_message::mail::LetterKind;
use callboard_message::{DataClass, Principal};
use callboard_runtime::{
    AuditEntry, Begun, By, Claim, Lease, Letter, Mark, NewLetter, NewTask, OnRestart, Record,
    Store, TASK_LEASE, TaskStep,
};
use callboard_store::{SqlStore, StoreOptions};
use futures::future::join_all;
use serde_json::json;
use serde_json::value::to_raw_value;
use uuid::Uuid;

/// Who write at the same time.
const PRODUCERS: u32 = 16;
/// The streams that records go to.
pub const STREAMS: [&str; 3] = ["crash/a", "crash/b", "crash/c"];
/// What tasks do: one record each, under the task's id.
pub const EFFECTS: &str = "effects";
/// What tasks are kept under.
pub const SCOPE: &str = "crash";
const CLAIMED_AT_ONCE: usize = 8;
/// Who get letters; a letter is for two of them, or for all.
const READERS: usize = 20;
const READ_AT_ONCE: usize = 8;
/// Copies that are made at once.
const SPREAD: u32 = 8;
/// More than all processes together left so: one batch of each producer in each round.
const GOT_MAX: usize = 1_000;
/// The last line of a child that was told to finish.
pub const DONE: &str = "done";

/// What is done, over and over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A record is appended.
    Record,
    /// A letter is posted, its copies are made, some of its recipients read it.
    Letter,
    /// A task is begun and done.
    Task,
    /// Something is on record. A retry is on record too.
    Audit,
}

impl Kind {
    pub const ALL: [Self; 4] = [Self::Record, Self::Letter, Self::Task, Self::Audit];

    pub fn named(name: &str) -> Self {
        Self::ALL
            .into_iter()
            .find(|kind| format!("{kind:?}") == name)
            .unwrap()
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

fn sum(key: &str) -> usize {
    key.bytes().map(usize::from).sum()
}

/// Opens the store, does first what it is told to try again, and goes on until it is killed, or has finished.
pub async fn run(options: StoreOptions) {
    let (retries, round) = orders();
    let sql = SqlStore::open(&options).await.unwrap();
    let load = Arc::new(Load {
        store: sql.store(),
        retries: Mutex::new(retries),
        round,
    });
    let recovering = tokio::spawn(load.clone().recover());
    let producers = (0..PRODUCERS).map(|producer| tokio::spawn(load.clone().produce(producer)));
    join_all(producers)
        .await
        .into_iter()
        .for_each(|ended| ended.unwrap());
    recovering.await.unwrap();
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
    store: Store,
    retries: Mutex<VecDeque<Job>>,
    round: Option<u32>,
}

impl Load {
    async fn produce(self: Arc<Self>, producer: u32) {
        for nth in 0_usize.. {
            let again = self.retries.lock().unwrap().pop_front();
            // All kinds are there from the beginning, however early the end comes.
            let kind = Kind::ALL[(nth + producer as usize) % Kind::ALL.len()];
            let fresh = || {
                self.round
                    .map(|round| (kind, format!("{round}.{producer}.{nth}")))
            };
            let Some(job) = again.or_else(fresh) else {
                return;
            };
            println!("try {}", written(&job));
            self.perform(job).await;
        }
    }

    async fn perform(&self, job: Job) {
        let key = &job.1;
        match job.0 {
            Kind::Record => {
                let body = json!({ "key": key, "filled": "x".repeat(key.len() * 20) });
                let record = Record {
                    stream: stream_of(key).to_owned(),
                    key: Some(key.clone()),
                    body,
                };
                ack(&job, self.store.journal.append(record).await.unwrap());
            }
            Kind::Letter => {
                let posted = self.store.mail.post(letter(key)).await.unwrap();
                ack(&job, posted.number);
                self.spread(&posted).await;
                let readers = &posted.new.recipients;
                self.read_mail(&readers[sum(key) % readers.len()]).await;
            }
            Kind::Task => {
                let on_restart = if sum(key).is_multiple_of(2) {
                    OnRestart::Resume
                } else {
                    OnRestart::Fail
                };
                let expires = SystemTime::now() + Duration::from_secs(24 * 3_600);
                let new = NewTask {
                    scope: SCOPE.to_owned(),
                    key: Some(key.clone()),
                    request: Some(to_raw_value(key).unwrap()),
                    on_restart,
                    ..NewTask::new(Principal::agent("ann"), "worker", "work", expires)
                };
                match self.store.tasks.begin(new).await.unwrap() {
                    // Whoever began it was killed, or does it: see `recover`.
                    Begun::Again(task) => ack(&job, task.number),
                    Begun::New(task, lease) => {
                        ack(&job, task.number);
                        self.work(&lease).await;
                    }
                }
            }
            Kind::Audit => {
                let entry = AuditEntry::new("crash").with_agent(key);
                ack(&job, self.store.audit.append(vec![entry]).await.unwrap());
            }
        }
    }

    /// Does a task: what it does is known by its id.
    async fn work(&self, lease: &Lease) {
        let (id, by) = (lease.task.as_str(), By::Worker(lease));
        let said = vec![TaskStep::Said("begun".to_owned())];
        self.store.tasks.step(&lease.task, by, said).await.unwrap();
        let effect = Record {
            stream: EFFECTS.to_owned(),
            key: Some(id.to_owned()),
            body: json!({ "key": id }),
        };
        let number = self.store.journal.append(effect).await.unwrap();
        let done = vec![TaskStep::Completed(to_raw_value(&number).unwrap())];
        self.store.tasks.step(&lease.task, by, done).await.unwrap();
        println!("end {id}");
    }

    /// Does what earlier processes left, as far as it may be done again; the others have failed.
    async fn recover(self: Arc<Self>) {
        loop {
            let claim = Claim {
                scope: SCOPE.to_owned(),
                by: self.store.tasks.worker().to_owned(),
                tasks_max: CLAIMED_AT_ONCE,
                lease: TASK_LEASE,
            };
            let claimed = self.store.tasks.claim(claim).await.unwrap();
            if claimed.is_empty() {
                return;
            }
            join_all(claimed.iter().map(|(_, lease)| self.work(lease))).await;
        }
    }

    /// Makes a letter's copies, a part at a time; the last of each part has it then.
    async fn spread(&self, letter: &Letter) {
        let recipients = &letter.new.recipients;
        let mut made = letter.spread;
        while (made as usize) < recipients.len() {
            made += SPREAD;
            let has_it = recipients[recipients.len().min(made as usize) - 1].clone();
            self.store
                .mail
                .spread(letter.number, made, vec![has_it])
                .await
                .unwrap();
        }
    }

    /// Has an agent read its letters.
    async fn read_mail(&self, reader: &str) {
        let open = self
            .store
            .mail
            .open(reader, None, false, READ_AT_ONCE)
            .await
            .unwrap();
        let marks: Vec<_> = open
            .iter()
            .map(|(letter, _)| (reader.to_owned(), letter.number))
            .collect();
        for (reader, number) in self.store.mail.mark(marks, Mark::Read).await.unwrap() {
            println!("got {reader} {number}");
        }
    }

    /// Goes on until nothing is left that earlier processes began.
    async fn settle(&self) {
        for letter in self.store.mail.unspread(GOT_MAX).await.unwrap() {
            self.spread(&letter).await;
        }
        for reader in self.store.mail.waiting().await.unwrap().into_keys() {
            while !self
                .store
                .mail
                .open(&reader, None, false, 1)
                .await
                .unwrap()
                .is_empty()
            {
                self.read_mail(&reader).await;
            }
        }
    }
}

/// The letter with that key, with an id of this attempt's.
fn letter(key: &str) -> NewLetter {
    let all = || (0..READERS).map(|n| format!("a{n:02}"));
    let to = if sum(key).is_multiple_of(2) {
        all().collect()
    } else {
        all().take(2).collect()
    };
    NewLetter {
        id: Uuid::now_v7().to_string(),
        sender: "ann".to_owned(),
        kind: LetterKind::Broadcast,
        label: None,
        audience: "all".to_owned(),
        recipients: to,
        topic: None,
        thread: None,
        reply_to: None,
        urgent: sum(key).is_multiple_of(3),
        key: Some(key.to_owned()),
        class: DataClass::Personal,
        body: key.to_owned(),
        expires: SystemTime::now() + Duration::from_secs(24 * 3_600),
    }
}

fn ack(job: &Job, number: impl Display) {
    println!("ack {} {number}", written(job));
}
