use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use callboard_message::{Principal, TaskState};
use callboard_runtime::{
    AuditEntry, CreateOutcome, JournalError, JournalRecord, Lease, NewTask, Task, TaskActor,
    TaskError, TaskStep,
};
use callboard_store::{Retention, SqlStore};
use futures::future::join_all;
use serde_json::json;
use serde_json::value::RawValue;
use sqlx::ConnectOptions;
use tempfile::TempDir;
use tokio::time::timeout;

use crate::kit::{Child, arguments, in_database, in_file, of_parent};

/// Bytes of each record's body: a few hundred records fill the test disks.
const BODY_BYTES: usize = 16 * 1024;
/// Number of records that are tried.
const RECORDS: u64 = 400;

fn record(n: u64) -> JournalRecord {
    JournalRecord {
        stream: "s".to_owned(),
        key: Some(format!("key {n}")),
        body: json!("x".repeat(BODY_BYTES)),
    }
}

/// Reports of a child: acknowledged records with their numbers, and the error of the last rejected
/// write.
#[derive(Default)]
struct Told {
    acks: BTreeMap<u64, u64>,
    errors: BTreeMap<u64, String>,
}

impl Told {
    /// Makes the child write records, and reads its reports.
    fn write(&mut self, child: &mut Child, from: u64, to: u64) {
        self.errors.clear();
        child.say(&format!("write {from} {to}"));
        loop {
            let line = child.line();
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["ack", n, number] => {
                    let (n, number) = (n.parse().unwrap(), number.parse().unwrap());
                    let before = self.acks.insert(n, number);
                    assert!(
                        before.is_none_or(|before| before == number),
                        "record {n} has two numbers"
                    );
                }
                ["no", n, error] => {
                    drop(self.errors.insert(n.parse().unwrap(), (*error).to_owned()))
                }
                ["done"] => return,
                _ => panic!("the child said `{line}`"),
            }
        }
    }

    /// Checks the store: every acknowledged record, no rejected one, each key once, numbers without
    /// gaps.
    fn check(&self, child: &mut Child) {
        child.say("check");
        let mut kept = BTreeMap::new();
        loop {
            let line = child.line();
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["kept", n, number] => {
                    let twice =
                        kept.insert(n.parse::<u64>().unwrap(), number.parse::<u64>().unwrap());
                    assert!(twice.is_none(), "key {n} is there twice");
                }
                ["integrity", verdict] => {
                    assert_eq!(*verdict, "ok");
                    break;
                }
                _ => panic!("the child said `{line}`"),
            }
        }
        for (n, number) in &self.acks {
            assert_eq!(kept.get(n), Some(number), "record {n} was acknowledged");
        }
        for (n, error) in self.errors.iter().filter(|(_, error)| *error != "Unknown") {
            assert!(!kept.contains_key(n), "record {n} was refused with {error}");
        }
        let mut numbers: Vec<u64> = kept.into_values().collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    }
}

/// Writes until the disk is full and beyond; then frees space, and all keys must succeed.
fn full_and_free_again(child: &mut Child, make_room: impl FnOnce(&mut Child)) {
    assert_eq!(child.line(), "open");
    let mut told = Told::default();
    told.write(child, 0, RECORDS);
    assert!(!told.acks.is_empty(), "nothing went through");
    assert!(!told.errors.is_empty(), "the disk was never full");
    let full = |e: &String| matches!(e.as_str(), "NoSpace" | "Unknown" | "Unavailable");
    assert!(told.errors.values().all(full), "{:?}", told.errors);
    told.check(child);
    told.write(child, 0, RECORDS);
    assert!(!told.errors.is_empty(), "there was room again by itself");
    told.check(child);

    make_room(child);
    told.write(child, 0, RECORDS);
    assert_eq!(told.errors, BTreeMap::new());
    assert_eq!(told.acks.len() as u64, RECORDS);
    told.check(child);
}

/// Goal: on a full disk nothing unwritten is acknowledged and nothing is damaged; the same keys
/// succeed after space is freed. Method: a process with a file size limit of 2 MiB, which another
/// one lifts.
#[test]
fn a_file_that_may_not_grow() {
    let folder = TempDir::new().unwrap();
    let mut command = Command::new("prlimit");
    let ignoring = "trap '' XFSZ; exec \"$@\"";
    command.args(["--fsize=2097152:unlimited", "sh", "-c", ignoring, "sh"]);
    command
        .arg(std::env::current_exe().unwrap())
        .args(arguments("disk::child"));
    let url = format!("sqlite:{}", folder.path().join("store.sqlite").display());
    let mut child = Child::of(command, &[("CALLBOARD_TEST_STORE", url)]);
    full_and_free_again(&mut child, |child| {
        let lifted = Command::new("prlimit")
            .args(["--pid", &child.id().to_string(), "--fsize=unlimited"])
            .status();
        assert!(lifted.unwrap().success());
    });
}

/// Goal: the same on a full file system. Method: a small file system in memory with a file that is
/// deleted later; skipped without the right to mount.
#[test]
fn a_disk_without_room() {
    let folder = TempDir::new().unwrap();
    let script = format!(
        "mount -t tmpfs -o size=6m none '{}' && exec \"$@\"",
        folder.path().display()
    );
    let mounting = |unshare: &[&str], run: &mut dyn FnMut(&mut Command)| {
        let mut command = Command::new("unshare");
        command.args(unshare).args(["sh", "-c", &script, "sh"]);
        run(&mut command);
        command
    };
    let may = |unshare: &&[&str]| {
        let mut tried = mounting(unshare, &mut |command| {
            command.arg("true").stderr(Stdio::null());
        });
        tried.status().is_ok_and(|status| status.success())
    };
    let Some(unshare) = [["-m", "--"].as_slice(), &["-Urm", "--"]]
        .into_iter()
        .find(|unshare| may(unshare))
    else {
        return eprintln!("skipped: no file system may be mounted here");
    };
    let command = mounting(unshare, &mut |command| {
        command
            .arg(std::env::current_exe().unwrap())
            .args(arguments("disk::child"));
    });
    let url = format!("sqlite:{}", folder.path().join("store.sqlite").display());
    let mut child = Child::of(command, &[("CALLBOARD_TEST_STORE", url)]);
    // The file system fits all records, except for this file.
    let filler = folder.path().join("filler");
    full_and_free_again(&mut child, |child| {
        child.say(&format!("grow {}", folder.path().display()));
        assert_eq!(child.line(), "grown", "{}", filler.display());
    });
}

/// Goal: at its size limit a store rejects writes, still serves reads, and cleanup frees space.
/// Method: 128 pages.
#[tokio::test]
async fn a_store_at_its_limit() {
    const LIMIT: u64 = 128 * 4096;
    let streams = Some(Duration::ZERO);
    let retention = Retention {
        streams,
        ..Retention::default()
    };
    let opened = in_file(|options| options.size_max(LIMIT).retention(retention)).await;
    let journal = opened.sql.journal();
    let mut kept = 0;
    let error = loop {
        match journal.append(record(kept)).await {
            Ok(number) => kept = number,
            Err(error) => break error,
        }
    };
    assert_eq!(error, JournalError::SizeLimit { bytes_max: LIMIT });
    assert!(kept >= 4, "{kept}");
    assert_eq!(
        journal.append(record(kept)).await,
        Err(JournalError::SizeLimit { bytes_max: LIMIT })
    );
    assert_eq!(journal.read("s", 0, 1000).await.unwrap().len() as u64, kept);
    assert!(opened.sql.metrics().last_error.is_some());
    assert!(fs::metadata(opened.file()).unwrap().len() <= LIMIT);

    let cleaned = async { while opened.sql.clean().await.unwrap().records > 0 {} };
    timeout(Duration::from_secs(30), cleaned).await.unwrap();
    assert_eq!(
        opened
            .number("SELECT freelist_count FROM pragma_freelist_count")
            .await,
        0,
        "the disk got nothing back"
    );
    for n in 0..4 {
        assert_eq!(journal.append(record(kept + n)).await, Ok(kept + n + 1));
    }
    assert_eq!(opened.sql.metrics().last_error, None);
    assert_eq!(
        opened
            .number("SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'")
            .await,
        1
    );
    opened.end().await;
}

/// Goal: a store at its limit still takes the end of running work and its audit, but nothing new,
/// and no large result. Method: fill it beside a running task; then end tasks.
#[tokio::test]
async fn a_full_store_ends_what_runs() {
    const LIMIT: u64 = 256 * 4096;
    let opened = in_file(|options| options.size_max(LIMIT)).await;
    let tasks = opened.sql.tasks(opened.sql.audit());
    let begin = async |n: usize| {
        let expires = SystemTime::now() + Duration::from_secs(3600);
        let new = NewTask::new(Principal::agent("ann"), "agent", "do", expires);
        match tasks.create(new).await {
            Ok(CreateOutcome::Created(task, lease)) => Ok((task, lease)),
            Ok(CreateOutcome::Existing(_)) => panic!("task {n} was there"),
            Err(error) => Err(error),
        }
    };
    let (small, small_lease) = begin(0).await.unwrap();
    let (large, large_lease) = begin(1).await.unwrap();
    let journal = opened.sql.journal();
    let mut n = 0;
    while journal.append(record(n)).await.is_ok() {
        n += 1;
    }
    let full = TaskError::Journal(JournalError::SizeLimit { bytes_max: LIMIT });
    // What is smaller than a record may still fit into the last pages.
    let mut refused = None;
    for n in 2..2_000 {
        if let Err(error) = begin(n).await {
            refused = Some(error);
            break;
        }
    }
    assert_eq!(refused, Some(full.clone()));

    let end = async |task: &Task, lease: &Lease, bytes: usize| {
        let result = RawValue::from_string(json!("x".repeat(bytes)).to_string()).unwrap();
        let steps = vec![TaskStep::Completed(result)];
        tasks.apply(&task.id, TaskActor::Worker(lease), steps).await
    };
    assert_eq!(
        end(&large, &large_lease, 128 * 1024).await.err(),
        Some(full)
    );
    let ended = end(&small, &small_lease, 1024).await.unwrap();
    assert_eq!(ended.state, TaskState::Completed);
    let entries = vec![AuditEntry::new("test.full")];
    opened.sql.audit().append(entries).await.unwrap();
    opened.end().await;
}

/// Goal: commits don't wait for checkpoints. Method: records of less than the size at which the writer
/// makes one itself; the file has them while the store is open.
#[tokio::test]
async fn checkpoints_run_beside_the_writer() {
    const BODY_BYTES: usize = 256 * 1024;
    const RECORDS: usize = 64;
    let opened = in_file(|options| options).await;
    let file = opened.file();
    let journal = opened.sql.journal();
    for n in 0..RECORDS {
        let record = JournalRecord {
            stream: "s".to_owned(),
            key: Some(format!("key {n}")),
            body: json!("x".repeat(BODY_BYTES)),
        };
        journal.append(record).await.unwrap();
    }
    let copied = async {
        let half = (RECORDS * BODY_BYTES / 2) as u64;
        while fs::metadata(&file).unwrap().len() < half {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(30), copied).await.unwrap();
    opened.end().await;
}

/// Goal: results count for the owner's quota soon after they were written, and deleted tasks no more, not only at
/// the next interval. Method: a store that is half full; an owner within its quota gets a result beyond it; its
/// next task, another owner's, and its own after the first was deleted.
#[tokio::test]
async fn results_count_for_the_quota() {
    const LIMIT: u64 = 4 * 1024 * 1024;
    const QUOTA: u64 = 256 * 1024;
    let opened = in_file(|options| options.size_max(LIMIT).owner_bytes_max(QUOTA)).await;
    let journal = opened.sql.journal();
    // The size is measured with the first write; from then on the writes' bytes count.
    let mut n = 0;
    while opened.sql.metrics().bytes < LIMIT / 8 * 5 {
        journal.append(record(n)).await.unwrap();
        n += 1;
    }
    let tasks = opened.sql.tasks(opened.sql.audit());
    let create = async |owner: &str| {
        let expires = SystemTime::now() + Duration::from_secs(3600);
        tasks
            .create(NewTask::new(
                Principal::agent(owner),
                "agent",
                "do",
                expires,
            ))
            .await
    };
    let CreateOutcome::Created(task, lease) = create("ann").await.unwrap() else {
        panic!("the task was there");
    };
    let result = "x".repeat(usize::try_from(QUOTA).unwrap());
    let result = RawValue::from_string(json!(result).to_string()).unwrap();
    let steps = vec![TaskStep::Completed(result)];
    tasks
        .apply(&task.id, TaskActor::Worker(&lease), steps)
        .await
        .unwrap();
    let full = TaskError::Journal(JournalError::OwnerLimit { bytes_max: QUOTA });
    assert_eq!(create("ann").await.err(), Some(full));
    assert!(create("bob").await.is_ok());
    // What is deleted makes room at once.
    tasks.delete(&task.id).await.unwrap();
    assert!(create("ann").await.is_ok());
    opened.end().await;
}

/// Goal: one owner can't fill a store: beyond its quota it is refused with the limit, and others go
/// on. Method: a store that is half full when it is opened; the quota, and one byte more.
#[tokio::test]
async fn one_owner_does_not_fill_it() {
    const QUOTA: u64 = 64 * 1024;
    let mut opened =
        in_file(|options| options.size_max(4 * 1024 * 1024).owner_bytes_max(QUOTA)).await;
    // More than half of the limit, of nobody in particular.
    let journal = opened.sql.journal();
    for n in 0..150 {
        journal.append(record(n)).await.unwrap();
    }
    // The first write after opening measures the size.
    opened.restart().await;
    opened.sql.journal().append(record(150)).await.unwrap();
    let measured = async {
        while opened.sql.metrics().bytes < 2 * 1024 * 1024 {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(30), measured).await.unwrap();
    let tasks = opened.sql.tasks(opened.sql.audit());
    let create = async |owner: &str, bytes: usize| {
        let expires = SystemTime::now() + Duration::from_secs(3600);
        let new = NewTask::new(Principal::agent(owner), "agent", "do", expires);
        let frame = new.bytes();
        let request = json!("x".repeat(bytes - frame - 2)).to_string();
        let request = RawValue::from_string(request).unwrap();
        let new = NewTask {
            request: Some(request),
            ..new
        };
        assert_eq!(new.bytes(), bytes);
        tasks.create(new).await.map(|_| ())
    };
    let full = Err(TaskError::Journal(JournalError::OwnerLimit {
        bytes_max: QUOTA,
    }));
    let quota = usize::try_from(QUOTA).unwrap();
    assert_eq!(create("ann", quota + 1).await, full);
    assert_eq!(create("bob", quota).await, Ok(()));
    assert_eq!(create("bob", 1024).await, full);
    assert_eq!(create("cyd", 1024).await, Ok(()));
    opened.end().await;
}

/// Goal: the same on Postgres, whose size is checked periodically. Method: a limit below an empty
/// database's size.
#[tokio::test]
async fn a_database_at_its_limit() {
    let retention = Retention {
        streams: Some(Duration::ZERO),
        ..Retention::default()
    };
    let Some(opened) = in_database(|options| options.size_max(1).retention(retention)).await else {
        return;
    };
    let journal = opened.sql.journal();
    let error = async {
        loop {
            if let Err(error) = journal.append(record(1)).await {
                return error;
            }
        }
    };
    let error = timeout(Duration::from_secs(30), error).await.unwrap();
    assert_eq!(error, JournalError::SizeLimit { bytes_max: 1 });
    assert!(journal.read("s", 0, 10).await.unwrap().len() <= 1);
    opened.sql.clean().await.unwrap();
    opened.end().await;
}

#[tokio::test]
#[ignore = "a child of the disk tests"]
async fn child() {
    let options = of_parent("CALLBOARD_TEST_STORE");
    let file = PathBuf::from(options.place());
    let store = SqlStore::open(&options).await.unwrap();
    println!("open");
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["write", from, to] => write(&store, from.parse().unwrap(), to.parse().unwrap()).await,
            ["check"] => check(&store, &file).await,
            ["grow", folder] => grow(folder),
            _ => panic!("the parent said `{line}`"),
        }
    }
}

async fn write(store: &SqlStore, from: u64, to: u64) {
    let journal = store.journal();
    let all: Vec<u64> = (from..to).collect();
    for some in all.chunks(8) {
        let kept = join_all(some.iter().map(|n| journal.append(record(*n)))).await;
        for (n, kept) in some.iter().zip(kept) {
            match kept {
                Ok(number) => println!("ack {n} {number}"),
                Err(error) => {
                    println!("no {n} {}", format!("{error:?}").split('(').next().unwrap())
                }
            }
        }
    }
    println!("done");
}

async fn check(store: &SqlStore, file: &Path) {
    let journal = store.journal();
    let mut after = 0;
    loop {
        let page = journal.read("s", after, 100).await.unwrap();
        let Some((last, _)) = page.last() else { break };
        after = *last;
        for (number, record) in page {
            println!(
                "kept {} {number}",
                record.key.unwrap().trim_start_matches("key ")
            );
        }
    }
    let options = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(file)
        .read_only(true);
    let mut db = options.connect().await.unwrap();
    let (verdict,): (String,) = sqlx::query_as("PRAGMA integrity_check")
        .fetch_one(&mut db)
        .await
        .unwrap();
    println!("integrity {}", verdict.replace(' ', "_"));
}

/// Enlarges the file system, which only this process sees.
fn grow(folder: &str) {
    let grown = Command::new("mount")
        .args(["-o", "remount,size=64m", folder])
        .status();
    match grown {
        Ok(status) if status.success() => println!("grown"),
        Err(e) if e.kind() == ErrorKind::NotFound => println!("there is no mount here"),
        other => println!("{other:?}"),
    }
}
