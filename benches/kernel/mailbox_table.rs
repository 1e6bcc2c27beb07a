//! Table of each contestant's CPU time as a multiple of bare tokio's in the same run. The benchmark
//! by which regressions are judged.
//!
//! `cargo bench --bench mailbox_table -- [--rounds N] [--only WORK] [--check]`

#[macro_use]
#[expect(dead_code, reason = "the slow agents are for the stress bench")]
mod contest;

use std::process::ExitCode;

use contest::clock::Sample;
use contest::works::{self, Work};
use contest::{Contestant, OURS, OURS_PINNED};
use rand::seq::SliceRandom;

/// Default number of rounds. Each runs every workload once with every contestant.
const ROUNDS_DEFAULT: usize = 15;
/// Minimum factor by which a tell must be cheaper than ractor's and kameo's.
const CHEAPER_MIN: f64 = 5.0;

/// Row of the table: a workload and the targets for our contestant.
struct Row {
    work: Work,
    title: &'static str,
    operations: u64,
    /// Maximum CPU time, as a multiple of the first contestant's.
    must: f64,
    /// Desired CPU time, as a multiple of the first contestant's.
    stretch: f64,
}

const ROWS: [Row; 9] = [
    row(
        Work::Tell,
        "tell, 1 producer, one thread",
        200_000,
        0.5,
        0.35,
    ),
    row(
        Work::TellFour,
        "tell, 4 producers, 2 threads",
        200_000,
        0.4,
        0.25,
    ),
    row(
        Work::TellAcross,
        "tell across two arbiters",
        200_000,
        0.5,
        0.4,
    ),
    row(Work::Ask, "ask, sequential", 50_000, 1.0, 0.15),
    row(Work::AskMany, "ask ×64", 64_000, 0.8, 0.15),
    row(Work::PingPong, "ping-pong", 50_000, 1.0, 0.75),
    row(Work::Ring, "ring of 1,000", 50_000, 0.9, 0.6),
    row(Work::FanOut, "fan-out to 100 and gather", 50_000, 0.9, 0.75),
    row(
        Work::Spawn,
        "spawn 100,000, one ask each",
        100_000,
        0.8,
        0.8,
    ),
];

const fn row(work: Work, title: &'static str, operations: u64, must: f64, stretch: f64) -> Row {
    Row {
        work,
        title,
        operations,
        must,
        stretch,
    }
}

/// Contestant: its name and the function that runs a workload with a number of operations.
struct Entry {
    name: &'static str,
    run: fn(Work, u64) -> Sample,
}

fn entry<C: Contestant>() -> Entry {
    Entry {
        name: C::NAME,
        run: works::run::<C>,
    }
}

struct Arguments {
    rounds: usize,
    only: Option<String>,
    check: bool,
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(why) => {
            eprintln!("{why}\nusage: mailbox_table [--rounds N] [--only WORK] [--check]");
            return ExitCode::from(2);
        }
    };
    let rows: Vec<&Row> = ROWS
        .iter()
        .filter(|row| {
            arguments
                .only
                .as_deref()
                .is_none_or(|only| only == row.work.name())
        })
        .collect();
    let entries = contestants!(entry).map(|entry| entry());
    let samples = measure(&rows, &entries, arguments.rounds);
    let failures = report(&rows, &entries, &samples);
    for failure in &failures {
        println!("\nshort of the mark: {failure}");
    }
    match arguments.check && !failures.is_empty() {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

fn arguments() -> Result<Arguments, String> {
    let mut parsed = Arguments {
        rounds: ROUNDS_DEFAULT,
        only: None,
        check: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            // Cargo passes it to every bench binary.
            "--bench" => {}
            "--check" => parsed.check = true,
            "--rounds" => {
                let count = words.next().unwrap_or_default();
                parsed.rounds = count
                    .parse()
                    .ok()
                    .filter(|n| *n > 0)
                    .ok_or(format!("--rounds needs a number, not {count:?}"))?;
            }
            "--only" => {
                let name = words.next().unwrap_or_default();
                if !Work::ALL.iter().any(|work| work.name() == name) {
                    return Err(format!(
                        "--only needs one of {:?}",
                        Work::ALL.map(Work::name)
                    ));
                }
                parsed.only = Some(name);
            }
            other => return Err(format!("unknown argument {other:?}")),
        }
    }
    Ok(parsed)
}

/// Returns CPU nanoseconds an operation: `[row][contestant][round]`. The order is shuffled in each
/// round, so that a noisy minute affects all contestants alike.
fn measure(rows: &[&Row], entries: &[Entry], rounds: usize) -> Vec<Vec<Vec<f64>>> {
    let mut samples = vec![vec![Vec::with_capacity(rounds); entries.len()]; rows.len()];
    let mut order: Vec<usize> = (0..entries.len()).collect();
    for round in 0..rounds {
        eprint!("\rround {} of {rounds}", round + 1);
        for (row, samples) in rows.iter().zip(&mut samples) {
            order.shuffle(&mut rand::rng());
            for &index in &order {
                samples[index].push((entries[index].run)(row.work, row.operations).cpu_ns());
            }
        }
    }
    eprintln!();
    samples
}

/// Prints the table and returns the missed targets.
fn report(rows: &[&Row], entries: &[Entry], samples: &[Vec<Vec<f64>>]) -> Vec<String> {
    let names: Vec<&str> = entries.iter().map(|entry| entry.name).collect();
    println!(
        "| CPU ns an operation (× {}) | {} | must | stretch |",
        names[0],
        names.join(" | ")
    );
    println!("|---|{}---|---|", "---|".repeat(names.len()));
    let mut failures = Vec::new();
    for (row, samples) in rows.iter().zip(samples) {
        let medians: Vec<f64> = samples.iter().map(|rounds| median(rounds)).collect();
        let cells: Vec<String> = medians
            .iter()
            .map(|m| format!("{m:.0} ({:.2})", m / medians[0]))
            .collect();
        println!(
            "| {} | {} | ≤ {} | {} |",
            row.title,
            cells.join(" | "),
            row.must,
            row.stretch
        );
        failures.extend(shortfalls(row, &names, &medians));
    }
    failures
}

fn shortfalls(row: &Row, names: &[&str], medians: &[f64]) -> Vec<String> {
    let cost = |name: &str| {
        names
            .iter()
            .zip(medians)
            .find(|(n, _)| **n == name)
            .map(|(_, median)| *median)
    };
    // Asks handled inline say nothing about the queue, so the pinned variant must pass as well.
    let on_trial: &[&str] = match row.work {
        Work::Ask | Work::AskMany | Work::FanOut => &[OURS, OURS_PINNED],
        _ => &[OURS],
    };
    let mut failures = Vec::new();
    for name in on_trial {
        match cost(name).map(|ours| ours / medians[0]) {
            Some(ratio) if ratio <= row.must => {}
            Some(ratio) => {
                failures.push(format!(
                    "{}: {name} {ratio:.2} × {}, must be ≤ {}",
                    row.title, names[0], row.must
                ));
            }
            None => failures.push(format!("{}: {name} did not take part", row.title)),
        }
    }
    if let (Work::Tell, Some(ours)) = (row.work, cost(OURS)) {
        for rival in ["ractor", "kameo"] {
            if let Some(times) = cost(rival)
                .map(|theirs| theirs / ours)
                .filter(|times| *times < CHEAPER_MIN)
            {
                failures.push(format!(
                    "{}: {times:.1} × cheaper than {rival}, must be ≥ {CHEAPER_MIN}",
                    row.title
                ));
            }
        }
    }
    failures
}

/// Returns the median of at least one value.
fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}
