//! Group commit on SQLite without anything around it: one thread writes, another is all the producers. Schema, settings,
//! keys and the limits of a transaction are the store's; what is lacking is whatever a store adds.
//!
//! `sqlite-direct FOLDER PRODUCERS WARM_UP_MS MEASURED_MS` prints one line of JSON.

use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

type Outcome<T = ()> = Result<T, Box<dyn Error + Send + Sync>>;

const SCHEMA: &str = include_str!("../../../actors/store/src/schema/sqlite/0001.sql");
/// As the store's limits of a transaction.
const BATCH_WRITES_MAX: usize = 256;
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Wait for the next record of a batch: producers that were just answered have their next one ready
/// soon, and an fsync takes a hundred times as long.
const NEXT_WAIT_MAX: Duration = Duration::from_micros(50);
/// Size of a record's body, in bytes.
const BODY_BYTES: usize = 1024;

/// One producer's record.
struct Append {
    producer: usize,
    stream: String,
    key: String,
    body: String,
    since: Instant,
}

/// Reply to a producer after the commit.
struct Kept {
    producer: usize,
    number: i64,
    since: Instant,
}

fn main() -> Outcome {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [folder, producers, warm_up, measured] = words.as_slice() else {
        return Err("usage: sqlite-direct FOLDER PRODUCERS WARM_UP_MS MEASURED_MS".into());
    };
    let db = open(&Path::new(folder).join("direct.sqlite"))?;
    let ms = |word: &str| word.parse().map(Duration::from_millis);
    run(db, producers.parse()?, ms(warm_up)?, ms(measured)?)
}

fn open(path: &Path) -> Outcome<Connection> {
    let db = Connection::open(path)?;
    db.execute_batch(
        "PRAGMA foreign_keys = ON; PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL;",
    )?;
    db.execute_batch(SCHEMA)?;
    db.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 1000; PRAGMA journal_size_limit = 67108864;",
    )?;
    let mode: String = db.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
    let synchronous: i64 = db.query_row("PRAGMA synchronous", [], |row| row.get(0))?;
    if (mode.as_str(), synchronous) == ("wal", 2) {
        Ok(db)
    } else {
        Err("the file system allows no log".into())
    }
}

/// Each producer has one record on its way at any time.
fn run(db: Connection, producers: usize, warm_up: Duration, measured: Duration) -> Outcome {
    let (queue, queued) = channel();
    let (keep, kept) = channel::<Vec<Kept>>();
    let batches = &AtomicU64::new(0);
    thread::scope(|scope| {
        let writer = scope.spawn(move || write(&db, &queued, &keep, batches));
        let mut next = producer();
        for producer in 0..producers {
            queue.send(next(producer)).map_err(|_| "the writer ended")?;
        }
        let start = Instant::now() + warm_up;
        let (mut batches_before, mut latencies) = (None, Vec::new());
        let mut last = vec![0; producers];
        while start.elapsed() < measured {
            for Kept {
                producer,
                number,
                since,
            } in kept.recv()?
            {
                assert_eq!(number, last[producer] + 1, "numbers have no gaps");
                last[producer] = number;
                if Instant::now() >= start {
                    batches_before.get_or_insert_with(|| batches.load(Ordering::Relaxed));
                    latencies.push(since.elapsed());
                }
                queue.send(next(producer)).map_err(|_| "the writer ended")?;
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let batches = batches.load(Ordering::Relaxed) - batches_before.unwrap_or_default() + 1;
        drop((queue, kept));
        writer.join().map_err(|_| "the writer panicked")??;
        latencies.sort_unstable();
        let percentile = |of: usize| {
            latencies
                .get(latencies.len() * of / 100)
                .map_or(0, Duration::as_micros)
        };
        let (p50, p99) = (percentile(50), percentile(99));
        println!(
            "{{\"appends\":{},\"seconds\":{seconds},\"p50_us\":{p50},\"p99_us\":{p99},\"batches\":{batches}}}",
            latencies.len()
        );
        Ok(())
    })
}

/// Makes each producer's next record.
fn producer() -> impl FnMut(usize) -> Append {
    let text = "x".repeat(BODY_BYTES - "{\"text\":\"\"}".len());
    let mut made = 0u64;
    move |producer| {
        made += 1;
        let body = format!("{{\"text\":\"{text}\"}}");
        Append {
            producer,
            stream: format!("bench/{producer}"),
            key: format!("key-{made}"),
            body,
            since: Instant::now(),
        }
    }
}

/// Until no producer is left: what came during the last commit is the next transaction.
fn write(
    db: &Connection,
    queued: &Receiver<Append>,
    keep: &Sender<Vec<Kept>>,
    batches: &AtomicU64,
) -> Outcome {
    while let Ok(first) = queued.recv() {
        let mut bytes = first.body.len();
        let mut batch = vec![first];
        while batch.len() < BATCH_WRITES_MAX && bytes < BATCH_BYTES_MAX {
            match queued.recv_timeout(NEXT_WAIT_MAX) {
                Ok(append) => {
                    bytes += append.body.len();
                    batch.push(append);
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        let kept = commit(db, batch)?;
        batches.fetch_add(1, Ordering::Relaxed);
        if keep.send(kept).is_err() {
            break;
        }
    }
    Ok(())
}

fn commit(db: &Connection, batch: Vec<Append>) -> Outcome<Vec<Kept>> {
    db.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let now = i64::try_from(
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)?
            .as_millis(),
    )?;
    let kept = {
        let mut find =
            db.prepare_cached("SELECT number FROM record WHERE stream = ?1 AND key = ?2")?;
        let mut count = db.prepare_cached(
            "INSERT INTO stream (name, last) VALUES ('r/' || ?1, 1) \
             ON CONFLICT (name) DO UPDATE SET last = stream.last + excluded.last RETURNING last",
        )?;
        let mut insert = db.prepare_cached(
            "INSERT INTO record (stream, number, key, at_ms, body) VALUES (?1, ?2, ?3, ?4, ?5)",
        )?;
        let one = |append: Append| append_one(append, now, &mut find, &mut count, &mut insert);
        batch.into_iter().map(one).collect::<Outcome<_>>()?
    };
    db.prepare_cached("COMMIT")?.execute([])?;
    Ok(kept)
}

fn append_one(
    append: Append,
    now: i64,
    find: &mut CachedStatement<'_>,
    count: &mut CachedStatement<'_>,
    insert: &mut CachedStatement<'_>,
) -> Outcome<Kept> {
    let Append {
        producer,
        stream,
        key,
        body,
        since,
    } = append;
    let found = find
        .query_row(params![stream, key], |row| row.get(0))
        .optional()?;
    let number = match found {
        Some(number) => number,
        None => {
            let number = count.query_row(params![stream], |row| row.get(0))?;
            insert.execute(params![stream, number, key, now, body])?;
            number
        }
    };
    Ok(Kept {
        producer,
        number,
        since,
    })
}
