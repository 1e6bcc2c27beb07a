use std::collections::VecDeque;
use std::fmt::Display;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use callboard_message::mail::MailMessageKind;
use callboard_message::{DataClass, Principal};
use callboard_runtime::{
    AuditEntry, ClaimRequest, CreateOutcome, JournalRecord, Lease, MailMessage, NewMailMessage,
    NewTask, OnRestart, ReceiptUpdate, Store, TASK_LEASE, TaskActor, TaskStep,
};
use callboard_store::{SqlStore, StoreOptions};
use futures::future::join_all;
use serde_json::json;
use serde_json::value::to_raw_value;
use uuid::Uuid;

/// Number of concurrent producers.
const PRODUCERS: u32 = 16;
/// Streams that records are appended to.
pub const STREAMS: [&str; 3] = ["crash/a", "crash/b", "crash/c"];
/// Stream of the effects of tasks: one record each, under the task's id.
pub const EFFECTS: &str = "effects";
/// Scope of the tasks.
pub const SCOPE: &str = "crash";
const CLAIMED_AT_ONCE: usize = 8;
/// Number of agents that receive messages. A message is for two of them, or for all.
const READERS: usize = 20;
const READ_AT_ONCE: usize = 8;
/// Number of copies written at once.
const SPREAD: u32 = 8;
/// Upper bound of leftovers by all processes: one batch of each producer in each round.
const GOT_MAX: usize = 1_000;
/// Last line of a child that was told to finish.
pub const DONE: &str = "done";

/// Kind of job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Append a record.
    Record,
    /// Post a message, write its copies, and let some recipients read it.
    Letter,
    /// Create a task and complete it.
    Task,
    /// Append an audit entry. A retry adds another entry.
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

/// Job: its kind, and the key under which it is retried until acknowledged.
pub type Job = (Kind, String);

/// Returns the text of a job in orders and reports: `KIND KEY`.
pub fn written((kind, key): &Job) -> String {
    format!("{kind:?} {key}")
}

pub fn read(line: &str) -> Job {
    let (kind, key) = line.split_once(' ').unwrap();
    (Kind::named(kind), key.to_owned())
}

/// Returns the stream for the record with this key.
pub fn stream_of(key: &str) -> &'static str {
    STREAMS[sum(key) % STREAMS.len()]
}

fn sum(key: &str) -> usize {
    key.bytes().map(usize::from).sum()
}

/// Opens the store, first retries the jobs it was given, then continues until it is killed or has
/// finished.
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

/// Reads the jobs to retry and the number of the round; `None`: no new jobs are started.
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
            // All kinds from the beginning, however early the kill comes.
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
                let record = JournalRecord {
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
                match self.store.tasks.create(new).await.unwrap() {
                    // Its creator was killed, or runs it: see `recover`.
                    CreateOutcome::Existing(task) => ack(&job, task.number),
                    CreateOutcome::Created(task, lease) => {
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

    /// Runs a task; its effect is keyed by the task's id.
    async fn work(&self, lease: &Lease) {
        let (id, by) = (lease.task.as_str(), TaskActor::Worker(lease));
        let said = vec![TaskStep::Said("begun".to_owned())];
        self.store.tasks.apply(&lease.task, by, said).await.unwrap();
        let effect = JournalRecord {
            stream: EFFECTS.to_owned(),
            key: Some(id.to_owned()),
            body: json!({ "key": id }),
        };
        let number = self.store.journal.append(effect).await.unwrap();
        let done = vec![TaskStep::Completed(to_raw_value(&number).unwrap())];
        self.store.tasks.apply(&lease.task, by, done).await.unwrap();
        println!("end {id}");
    }

    /// Runs tasks that earlier processes left, if they may be repeated; the others have failed.
    async fn recover(self: Arc<Self>) {
        loop {
            let claim = ClaimRequest {
                scope: SCOPE.to_owned(),
                worker: self.store.tasks.worker_id().to_owned(),
                tasks_max: CLAIMED_AT_ONCE,
                except_owners: Vec::new(),
                lease: TASK_LEASE,
            };
            let claimed = self.store.tasks.claim(claim).await.unwrap();
            if claimed.is_empty() {
                return;
            }
            join_all(claimed.iter().map(|(_, lease)| self.work(lease))).await;
        }
    }

    /// Writes a message's copies in parts; the last recipient of each part has received it.
    async fn spread(&self, letter: &MailMessage) {
        let recipients = &letter.new.recipients;
        let mut made = letter.copies_made;
        while (made as usize) < recipients.len() {
            made += SPREAD;
            let has_it = recipients[recipients.len().min(made as usize) - 1].clone();
            self.store
                .mail
                .fan_out(letter.number, made, vec![has_it])
                .await
                .unwrap();
        }
    }

    /// Marks an agent's messages as read.
    async fn read_mail(&self, reader: &str) {
        let open = self
            .store
            .mail
            .list_open(reader, None, false, READ_AT_ONCE)
            .await
            .unwrap();
        let marks: Vec<_> = open
            .iter()
            .map(|(letter, _)| (reader.to_owned(), letter.number))
            .collect();
        for (reader, number) in self
            .store
            .mail
            .update_receipts(marks, ReceiptUpdate::Read)
            .await
            .unwrap()
        {
            println!("got {reader} {number}");
        }
    }

    /// Continues until no work of earlier processes is left.
    async fn settle(&self) {
        for letter in self.store.mail.pending_fan_out(GOT_MAX).await.unwrap() {
            self.spread(&letter).await;
        }
        for reader in self.store.mail.unread_counts().await.unwrap().into_keys() {
            while !self
                .store
                .mail
                .list_open(&reader, None, false, 1)
                .await
                .unwrap()
                .is_empty()
            {
                self.read_mail(&reader).await;
            }
        }
    }
}

/// Returns the message for a key, with a new id for each attempt.
fn letter(key: &str) -> NewMailMessage {
    let all = || (0..READERS).map(|n| format!("a{n:02}"));
    let to = if sum(key).is_multiple_of(2) {
        all().collect()
    } else {
        all().take(2).collect()
    };
    NewMailMessage {
        id: Uuid::now_v7().to_string(),
        sender: "ann".to_owned(),
        kind: MailMessageKind::Broadcast,
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
