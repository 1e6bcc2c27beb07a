use std::collections::{BTreeMap, BTreeSet, HashMap};

use callboard_message::TaskState;
use callboard_runtime::{DeliveryState, StoredMailEvent, TaskFilter, TaskId};
use callboard_store::AuditVerifyOptions;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, Executor, Row};

use super::load::{EFFECTS, Job, Kind, SCOPE, STREAMS, read, stream_of, written};
use crate::kit::Opened;

const PAGE: usize = 1_000;
/// Number of audit entries in one query.
const ENTRIES: usize = 200;
/// Queries whose count must be 0 in any store.
const NEVER: [(&str, &str); 3] = [
    (
        "a task that has ended has one end",
        "SELECT count(*) FROM task t WHERE t.state IN ('completed', 'failed', 'canceled', 'rejected') AND \
         (SELECT count(*) FROM task_event e WHERE e.task = t.id AND e.is_end = 1) <> 1",
    ),
    (
        "events have no gaps",
        "SELECT count(*) FROM (SELECT count(*) AS n, max(number) AS last FROM task_event GROUP BY task) AS x WHERE n <> last",
    ),
    (
        "a completed task did its work once",
        "SELECT count(*) FROM task t WHERE t.state = 'completed' AND \
         (SELECT count(*) FROM record r WHERE r.stream = 'effects' AND r.key = t.id) <> 1",
    ),
];
const NOT_ENDED: &str =
    "SELECT count(*) FROM task WHERE state NOT IN ('completed', 'failed', 'canceled', 'rejected')";

const NOT_READ: &str = "SELECT count(*) FROM copy WHERE state <> 'read'";
/// Messages with a missing or an extra copy.
const NOT_SPREAD: &str = "SELECT count(*) FROM letter AS l LEFT JOIN \
    (SELECT letter, count(*) AS n FROM copy GROUP BY letter) AS c ON c.letter = l.number \
    WHERE coalesce(c.n, 0) <> l.count OR l.spread <> l.count";

/// Record of what a child reported, and of what was found in its store.
#[derive(Default)]
pub struct Ledger {
    /// Started, and not acknowledged.
    tried: BTreeSet<Job>,
    /// Acknowledged, with its number.
    acked: BTreeMap<Job, u64>,
    /// Acknowledged, but not yet looked up in the store.
    fresh: Vec<Job>,
    streams: HashMap<&'static str, Numbered>,
    letters: Letters,
    /// Messages reported as read.
    got: Vec<(String, u64)>,
    fresh_got: Vec<(String, u64)>,
    tasks: Numbered,
    /// Tasks reported as done.
    ended: Vec<TaskId>,
    fresh_ended: Vec<TaskId>,
}

/// Numbered stream, messages or tasks, up to the last one read.
#[derive(Default)]
struct Numbered {
    last: u64,
    numbers: HashMap<String, u64>,
}

impl Numbered {
    fn take(&mut self, name: &str, number: u64, key: String) {
        assert_eq!(number, self.last + 1, "{name} has a gap");
        self.last = number;
        assert_eq!(
            self.numbers.insert(key, number),
            None,
            "{name} {number}: its key is there twice"
        );
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
                assert_eq!(
                    record.body["key"],
                    key.as_str(),
                    "{name} {number}: the body is another's"
                );
                self.take(name, number, key);
            }
        }
    }

    async fn read_tasks(&mut self, opened: &Opened) {
        let tasks = opened.sql.store().tasks;
        let ours = TaskFilter {
            scope: Some(SCOPE.to_owned()),
            ..TaskFilter::default()
        };
        loop {
            let (page, more) = tasks.list(ours.clone(), self.last, PAGE).await.unwrap();
            for task in page {
                let key = task.key.clone().unwrap();
                assert_eq!(
                    task.request.as_ref().unwrap().get(),
                    format!("\"{key}\""),
                    "{task:?}: another's request"
                );
                self.take("tasks", task.number, key);
            }
            if !more {
                return;
            }
        }
    }
}

/// Mail, up to the last event read.
#[derive(Default)]
struct Letters {
    last_event: u64,
    posted: Numbered,
    /// Copies by recipient and message.
    read: BTreeSet<(String, u64)>,
}

impl Letters {
    async fn read(&mut self, opened: &Opened) {
        let mail = opened.sql.store().mail;
        loop {
            let page = mail.events(self.last_event, PAGE).await.unwrap();
            if page.is_empty() {
                assert_eq!(mail.last_event().await, Ok(self.last_event));
                return;
            }
            for (number, event) in page {
                assert_eq!(number, self.last_event + 1, "events of mail have a gap");
                self.last_event = number;
                match event {
                    StoredMailEvent::Posted(letter) => {
                        let key = letter.new.key.clone().unwrap();
                        assert_eq!(
                            letter.new.body, key,
                            "letter {}: the body is another's",
                            letter.number
                        );
                        self.posted.take("letters", letter.number, key);
                    }
                    StoredMailEvent::ReceiptsUpdated {
                        message_number: letter,
                        state: DeliveryState::Read,
                        recipients,
                        ..
                    } => {
                        for recipient in recipients {
                            let read = (recipient, letter);
                            assert!(self.read.insert(read.clone()), "{read:?} was read twice");
                        }
                    }
                    _ => {}
                }
            }
        }
    }
}

impl Ledger {
    /// Parses a line of a child. Returns whether it was an acknowledgement.
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
                assert!(
                    self.tried.remove(&job),
                    "{job:?} was acknowledged, but not tried, or twice"
                );
                self.acked.insert(job.clone(), number);
                self.fresh.push(job);
                true
            }
            Some(("got", told)) => {
                let (recipient, number) = told.split_once(' ').unwrap();
                let read = (recipient.to_owned(), number.parse().unwrap());
                self.got.push(read.clone());
                self.fresh_got.push(read);
                false
            }
            Some(("end", id)) => {
                let id = TaskId::new(id).unwrap();
                self.ended.push(id.clone());
                self.fresh_ended.push(id);
                false
            }
            _ => panic!("the child says: {line}"),
        }
    }

    /// Returns the jobs to retry.
    pub fn pending(&self) -> Vec<String> {
        self.tried.iter().map(written).collect()
    }

    pub fn tally(&self) -> String {
        let of = |kind| self.acked.keys().filter(|job| job.0 == kind).count();
        Kind::ALL
            .map(|kind| format!("{kind:?} {}", of(kind)))
            .join(", ")
    }

    /// Checks that everything acknowledged since the last check is in the store, and that new rows
    /// are in order.
    pub async fn look(&mut self, opened: &Opened) {
        for name in STREAMS.into_iter().chain([EFFECTS]) {
            self.streams
                .entry(name)
                .or_default()
                .read_stream(opened, name)
                .await;
        }
        self.letters.read(opened).await;
        for read in std::mem::take(&mut self.fresh_got) {
            assert!(self.letters.read.contains(&read), "{read:?} was read");
        }
        self.tasks.read_tasks(opened).await;
        let (audit, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.fresh)
            .into_iter()
            .partition(|job| job.0 == Kind::Audit);
        others.iter().for_each(|job| self.is_there(job));
        self.are_on_record(opened, &audit).await;
        let store = opened.sql.store();
        for id in std::mem::take(&mut self.fresh_ended) {
            let task = store.tasks.get(&id).await.unwrap().unwrap();
            assert_eq!(task.state, TaskState::Completed, "{id} was done");
            assert!(
                self.streams[EFFECTS].numbers.contains_key(id.as_str()),
                "{id} was done, and has done nothing"
            );
        }
    }

    /// Checks that no work is left unfinished.
    pub async fn is_settled(&self, opened: &Opened) {
        assert_eq!(
            self.pending(),
            Vec::<String>::new(),
            "what was tried has been acknowledged in the end"
        );
        assert_eq!(opened.number(NOT_ENDED).await, 0, "no task is forgotten");
        assert_eq!(
            opened.number(NOT_SPREAD).await,
            0,
            "each letter has each of its copies"
        );
        assert_eq!(
            opened.number(NOT_READ).await,
            0,
            "each letter is read by all"
        );
    }

    /// Reads everything again from the beginning, and runs the database's own integrity check.
    pub async fn look_at_all(&mut self, opened: &Opened) {
        self.streams.clear();
        self.letters = Letters::default();
        self.fresh_got = self.got.clone();
        self.tasks = Numbered::default();
        self.fresh_ended = self.ended.clone();
        self.fresh = self.acked.keys().cloned().collect();
        self.look(opened).await;
        for (promise, counts_others) in NEVER {
            assert_eq!(opened.number(counts_others).await, 0, "{promise}");
        }
        let chains = opened
            .sql
            .verify_audit(&AuditVerifyOptions::default())
            .await
            .unwrap();
        assert!(
            chains.iter().all(|chain| chain.fault.is_none()),
            "{chains:?}"
        );
        if opened.is_sqlite() {
            assert_eq!(texts(opened, "PRAGMA integrity_check").await, ["ok"]);
        }
    }

    fn is_there(&self, job: &Job) {
        let (kind, key) = job;
        let acked = self.acked.get(job);
        let found = match kind {
            Kind::Record => self
                .streams
                .get(stream_of(key))
                .and_then(|stream| stream.numbers.get(key)),
            Kind::Letter => self.letters.posted.numbers.get(key),
            Kind::Task => self.tasks.numbers.get(key),
            Kind::Audit => return,
        };
        assert_eq!(
            found, acked,
            "{job:?} was acknowledged with the one number, and has the other"
        );
    }
}

impl Ledger {
    async fn are_on_record(&self, opened: &Opened, jobs: &[Job]) {
        for jobs in jobs.chunks(ENTRIES) {
            let told: Vec<_> = jobs
                .iter()
                .map(|job| format!("({}, '{}')", self.acked[job], job.1))
                .collect();
            let query = format!(
                "SELECT count(*) FROM audit WHERE (number, agent) IN (VALUES {})",
                told.join(", ")
            );
            let found = opened.number(&query).await;
            assert_eq!(
                found,
                i64::try_from(jobs.len()).unwrap(),
                "what was on record is on record"
            );
        }
    }
}

/// Returns the first column of a query's rows.
async fn texts(opened: &Opened, query: &'static str) -> Vec<String> {
    let mut db = SqliteConnectOptions::new()
        .filename(opened.file())
        .read_only(true)
        .connect()
        .await
        .unwrap();
    let rows = db.fetch_all(query).await.unwrap();
    db.close().await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}
