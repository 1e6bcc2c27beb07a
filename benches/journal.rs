//! Durable appends of 1 KiB: the store on SQLite, beside SQLite driven directly (`benches/sqlite-direct`, a program of its
//! own) with the same schema, settings and group commit, in turn; then how long reads take during the writes.
//!
//! `cargo bench --bench journal -- [--rounds N] [--only PRODUCERS] [--direct PROGRAM] [--check]`

use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use callboard_runtime::{Journal, JournalRecord};
use callboard_store::{SqlStore, StoreOptions};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Rounds when `--rounds` is not given.
const ROUNDS_DEFAULT: usize = 5;
/// Numbers of concurrent writers, one row each.
const PRODUCERS: [usize; 3] = [1, 64, 256];
/// The row that the marks are for.
const PRODUCERS_MARKED: usize = 64;
/// Least appends a second, as a multiple of SQLite's driven directly.
const OF_DIRECT_MIN: f64 = 0.8;
/// Longest 99th percentile of reads while others write.
const READ_P99_MAX: Duration = Duration::from_millis(5);
/// Before each sample is measured, and how long it is.
const WARM_UP: Duration = Duration::from_millis(500);
const MEASURED: Duration = Duration::from_secs(2);
/// Size of a record's body, in bytes.
const BODY_BYTES: usize = 1024;
/// Records a read, and the pause after each: reads are measured, not how many there can be.
const READ_RECORDS: u64 = 16;
const READ_EVERY: Duration = Duration::from_millis(2);

/// Results of one sample.
#[derive(Debug, Clone, Copy, Default)]
struct Measured {
    appends_a_second: f64,
    p50: Duration,
    p99: Duration,
    appends_a_commit: f64,
}

struct Arguments {
    rounds: usize,
    only: Option<usize>,
    direct: Option<String>,
    check: bool,
}

/// On one thread, as the agents of an arbiter and the store of a node are.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(why) => {
            eprintln!(
                "{why}\nusage: journal [--rounds N] [--only PRODUCERS] [--direct PROGRAM] [--check]"
            );
            return ExitCode::from(2);
        }
    };
    match tables(&arguments).await {
        Ok(true) if arguments.check => ExitCode::FAILURE,
        Ok(_) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

fn arguments() -> Result<Arguments, String> {
    let mut arguments = Arguments {
        rounds: ROUNDS_DEFAULT,
        only: None,
        direct: None,
        check: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            // Cargo adds it to every bench binary.
            "--bench" => {}
            "--check" => arguments.check = true,
            "--direct" => arguments.direct = Some(words.next().ok_or("--direct needs a program")?),
            "--rounds" => {
                arguments.rounds = number(words.next()).ok_or("--rounds needs a number")?
            }
            "--only" => {
                arguments.only =
                    Some(number(words.next()).ok_or("--only needs a number of producers")?)
            }
            other => return Err(format!("unknown argument {other:?}")),
        }
    }
    Ok(arguments)
}

fn number(word: Option<String>) -> Option<usize> {
    word.and_then(|word| word.parse().ok()).filter(|n| *n > 0)
}

/// Measures and prints. True where a mark is missed.
async fn tables(arguments: &Arguments) -> Outcome<bool> {
    println!(
        "| durable appends/s; p50, p99 ms; appends a commit | SQLite directly | callboard | of it | must |\n\
         |---|---|---|---|---|"
    );
    let mut missed = Vec::new();
    for producers in PRODUCERS
        .into_iter()
        .filter(|producers| arguments.only.is_none_or(|only| only == *producers))
    {
        let (mut direct, mut ours, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..arguments.rounds {
            let mut theirs = None;
            // Who comes first changes, so that neither always finds the disk as the other left it.
            for turn in 0..2 {
                match (&arguments.direct, (round + turn) % 2) {
                    (Some(program), 0) => theirs = Some(directly(program, producers)?),
                    (_, 1) => ours.extend([store(producers).await?]),
                    _ => {}
                }
            }
            if let (Some(theirs), Some(ours)) = (theirs, ours.last()) {
                ratios.push(ours.appends_a_second / theirs.appends_a_second);
                direct.push(theirs);
            }
        }
        let ratio = median(ratios);
        let is_marked = producers == PRODUCERS_MARKED;
        println!(
            "| {producers} producer{} | {} | {} | {} | {} |",
            if producers == 1 { "" } else { "s" },
            cell(&direct),
            cell(&ours),
            ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2}")),
            if is_marked {
                format!("≥ {OF_DIRECT_MIN}")
            } else {
                String::new()
            },
        );
        if let Some(ratio) = ratio.filter(|ratio| is_marked && *ratio < OF_DIRECT_MIN) {
            missed.push(format!(
                "{producers} producers: {ratio:.2} of SQLite directly, must be ≥ {OF_DIRECT_MIN}"
            ));
        }
    }
    let (p50, p99) = reads(arguments.rounds).await?;
    println!(
        "\n| reads of {READ_RECORDS} records during the writes of {PRODUCERS_MARKED} producers | p50 ms | p99 ms | must |\n\
         |---|---|---|---|\n| callboard | {} | {} | p99 < {} |",
        ms(p50),
        ms(p99),
        READ_P99_MAX.as_millis()
    );
    if p99 >= READ_P99_MAX {
        missed.push(format!(
            "reads: p99 {} ms, must be < {}",
            ms(p99),
            READ_P99_MAX.as_millis()
        ));
    }
    missed
        .iter()
        .for_each(|missed| println!("\nshort of the mark: {missed}"));
    Ok(!missed.is_empty())
}

/// SQLite, driven directly by another program.
fn directly(program: &str, producers: usize) -> Outcome<Measured> {
    let folder = folder()?;
    let mut command = Command::new(program);
    command.arg(folder.path());
    command.args(
        [producers as u128, WARM_UP.as_millis(), MEASURED.as_millis()].map(|n| n.to_string()),
    );
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(format!("{program} ended with {}", output.status).into());
    }
    let line: Value = serde_json::from_slice(&output.stdout)?;
    let number = |name: &str| {
        line[name]
            .as_f64()
            .ok_or_else(|| format!("{program} says no {name}"))
    };
    let appends = number("appends")?;
    let us = |name| number(name).map(|us| Duration::from_secs_f64(us / 1e6));
    Ok(Measured {
        appends_a_second: appends / number("seconds")?,
        p50: us("p50_us")?,
        p99: us("p99_us")?,
        appends_a_commit: appends / number("batches")?,
    })
}

/// The store, by one sample.
async fn store(producers: usize) -> Outcome<Measured> {
    let folder = folder()?;
    let store = open(&folder).await?;
    let journal = store.journal();
    let start = Instant::now() + WARM_UP;
    let end = start + MEASURED;
    let (_, writing) = produce_all(&journal, producers, start, end);
    tokio::time::sleep_until(start.into()).await;
    let batches_before = store.metrics().batches;
    tokio::time::sleep_until(end.into()).await;
    let batches = store.metrics().batches - batches_before;
    let mut latencies = Vec::new();
    for producer in writing {
        latencies.extend(producer.await??);
    }
    store.close().await;
    latencies.sort_unstable();
    let appends = latencies.len() as f64;
    Ok(Measured {
        appends_a_second: appends / MEASURED.as_secs_f64(),
        p50: percentile(&latencies, 50),
        p99: percentile(&latencies, 99),
        appends_a_commit: appends / batches.max(1) as f64,
    })
}

/// A producer at work; how long each append took.
type Writing = JoinHandle<Outcome<Vec<Duration>>>;

/// Starts the producers; the number of the last record of each, and what they come to.
fn produce_all(
    journal: &Arc<dyn Journal>,
    producers: usize,
    start: Instant,
    end: Instant,
) -> (Arc<[AtomicU64]>, Vec<Writing>) {
    let numbers: Arc<[AtomicU64]> = (0..producers).map(|_| AtomicU64::new(0)).collect();
    let one = |producer| {
        tokio::spawn(produce(
            Arc::clone(journal),
            producer,
            Arc::clone(&numbers),
            start,
            end,
        ))
    };
    (numbers.clone(), (0..producers).map(one).collect())
}

/// One producer: a record at a time, each acknowledged before the next. How long each took that was acknowledged in time.
async fn produce(
    journal: Arc<dyn Journal>,
    producer: usize,
    numbers: Arc<[AtomicU64]>,
    start: Instant,
    end: Instant,
) -> Outcome<Vec<Duration>> {
    let text = "x".repeat(BODY_BYTES - "{\"text\":\"\"}".len());
    let stream = format!("bench/{producer}");
    let mut latencies = Vec::new();
    for made in 1.. {
        let key = Some(format!("key-{made}"));
        let record = JournalRecord {
            stream: stream.clone(),
            key,
            body: json!({ "text": text }),
        };
        let since = Instant::now();
        let number = journal.append(record).await?;
        if number != made {
            return Err(format!("{stream} has a gap: {number} for {made}").into());
        }
        numbers[producer].store(number, Ordering::Relaxed);
        let now = Instant::now();
        if now >= end {
            break;
        }
        if now >= start {
            latencies.push(now - since);
        }
    }
    Ok(latencies)
}

/// Measures read latency during writes: the 50th and 99th percentile over all rounds.
async fn reads(rounds: usize) -> Outcome<(Duration, Duration)> {
    let mut latencies = Vec::new();
    for _ in 0..rounds {
        let folder = folder()?;
        let store = open(&folder).await?;
        let journal = store.journal();
        let start = Instant::now() + WARM_UP;
        let end = start + MEASURED;
        let (numbers, writing) = produce_all(&journal, PRODUCERS_MARKED, start, end);
        tokio::time::sleep_until(start.into()).await;
        for producer in (0..PRODUCERS_MARKED).cycle() {
            if Instant::now() >= end {
                break;
            }
            // The newest that were acknowledged: a read sees them, however young they are.
            let last = numbers[producer].load(Ordering::Relaxed);
            let after = last.saturating_sub(READ_RECORDS);
            let since = Instant::now();
            let records = journal
                .read(&format!("bench/{producer}"), after, READ_RECORDS as usize)
                .await?;
            latencies.push(since.elapsed());
            if (records.len() as u64) < last - after {
                return Err(format!(
                    "bench/{producer}: {} records after {after}, {last} were kept",
                    records.len()
                )
                .into());
            }
            tokio::time::sleep(READ_EVERY).await;
        }
        for producer in writing {
            producer.await??;
        }
        store.close().await;
    }
    latencies.sort_unstable();
    Ok((percentile(&latencies, 50), percentile(&latencies, 99)))
}

async fn open(folder: &TempDir) -> Outcome<SqlStore> {
    let options = StoreOptions::sqlite(folder.path().join("store.sqlite")).cleanup_interval(None);
    Ok(SqlStore::open(&options).await?)
}

/// Beside what was built: a folder for temporary files may be in memory, where nothing is synced.
fn folder() -> Outcome<TempDir> {
    Ok(tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?)
}

fn percentile(sorted: &[Duration], of: usize) -> Duration {
    sorted
        .get(sorted.len() * of / 100)
        .copied()
        .unwrap_or_default()
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// The median of each number over the rounds.
fn cell(rounds: &[Measured]) -> String {
    let of = |value: fn(&Measured) -> f64| median(rounds.iter().map(value).collect());
    let cell = || {
        Some(format!(
            "{:.0}; {:.1}, {:.1}; {:.1}",
            of(|m| m.appends_a_second)?,
            of(|m| m.p50.as_secs_f64() * 1e3)?,
            of(|m| m.p99.as_secs_f64() * 1e3)?,
            of(|m| m.appends_a_commit)?,
        ))
    };
    cell().unwrap_or_else(|| "–".to_owned())
}

fn ms(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64() * 1e3)
}
