//! An A2A server's echo, SendMessage of 1.0 over JSON-RPC on loopback: ours beside the official Rust SDK's. Each is a process of
//! its own, with the same allocator and as many threads that serve; what it uses is read from `/proc`.
//!
//! `cargo bench --bench a2a -- [--rounds N] [--other PROGRAM] [--check TIMES]`; PROGRAM is `a2a-peer` of `tests/peers/a2a-rust`.

mod client;
#[path = "../http/response.rs"]
mod response;
mod servers;
#[path = "../usage.rs"]
mod usage;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use client::{Client, calls};
use rand::seq::SliceRandom;
use servers::Server;

// As in callboard's own program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Rounds when `--rounds` is not given.
const ROUNDS_DEFAULT: usize = 5;
/// Calls a round, over all connections.
const CALLS: u64 = 16_000;
/// With one connection.
const CALLS_ALONE: u64 = 6_000;
/// Before a round is measured.
const WARM_UP_CALLS: u64 = 2_048;
const CONNECTIONS: [usize; 3] = [1, 16, 64];
/// How many times as much as the other we should do.
const TIMES_MIN: f64 = 1.5;

/// What one round came to.
#[derive(Clone, Copy)]
struct Measured {
    calls_a_second: f64,
    p50: Duration,
    p99: Duration,
    cpu_us_a_call: f64,
    /// In memory, after it: every task is kept.
    resident: u64,
}

struct Arguments {
    rounds: usize,
    other: Option<PathBuf>,
    check: Option<f64>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let outcome = match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--serve", port, threads] => servers::serve(port, threads).map(|()| ExitCode::SUCCESS),
        _ => arguments(&words).and_then(|arguments| bench(&arguments)),
    };
    outcome.unwrap_or_else(|why| {
        eprintln!("{why}");
        ExitCode::from(2)
    })
}

fn arguments(words: &[String]) -> Result<Arguments, String> {
    let usage = || "usage: a2a [--rounds N] [--other PROGRAM] [--check TIMES]".to_owned();
    let mut arguments = Arguments { rounds: ROUNDS_DEFAULT, other: None, check: None };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(usage)?;
        match word.as_str() {
            "--rounds" => arguments.rounds = value.parse().ok().filter(|n| *n > 0).ok_or_else(usage)?,
            "--other" => arguments.other = Some(value.into()),
            "--check" => arguments.check = Some(value.parse().map_err(|_| usage())?),
            _ => return Err(usage()),
        }
    }
    Ok(arguments)
}

/// Measures, prints, and fails if a check is missed.
fn bench(arguments: &Arguments) -> Result<ExitCode, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    let servers: Vec<_> = arguments.other.iter().map(|program| Server::Other(program)).chain([Server::Ours]).collect();
    let mut least = f64::INFINITY;
    println!(
        "| calls/s; p50, p99 µs; CPU µs a call; MB after it | a2a-server-lf 0.5.3 | callboard | throughput ≥ {TIMES_MIN} \
         | p99 |"
    );
    println!("|---|---|---|---|---|");
    for connections in CONNECTIONS {
        let mut measured: [Vec<Measured>; 2] = Default::default();
        for _ in 0..arguments.rounds {
            // Another order each round, so that a noisy minute hits both alike.
            let mut order = servers.clone();
            order.shuffle(&mut rand::rng());
            for server in order {
                let one = runtime.block_on(round(server, connections))?;
                measured[usize::from(matches!(server, Server::Ours))].push(one);
            }
        }
        let [theirs, ours] = measured.map(|rounds| median(&rounds));
        let cell = |measured: Option<Measured>| measured.map_or("–".to_owned(), |measured| measured.in_words());
        let marks = match (theirs, ours) {
            (Some(theirs), Some(ours)) => {
                let times = ours.calls_a_second / theirs.calls_a_second;
                least = least.min(times);
                format!("{times:.2} | {:.2}", ours.p99.as_secs_f64() / theirs.p99.as_secs_f64())
            }
            _ => "– | –".to_owned(),
        };
        let s = if connections == 1 { "" } else { "s" };
        println!("| {connections} connection{s} | {} | {} | {marks} |", cell(theirs), cell(ours));
    }
    Ok(match arguments.check {
        Some(wanted) if least < wanted => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    })
}

async fn round(server: Server<'_>, connections: usize) -> Result<Measured, String> {
    let serving = server.start()?;
    let mut clients = Vec::with_capacity(connections);
    for number in 0..connections {
        clients.push(Client::open(serving.address, server.path(), number).await?);
    }
    calls(&mut clients, WARM_UP_CALLS).await?;
    let total = if connections == 1 { CALLS_ALONE } else { CALLS };
    let (cpu, wall) = (usage::cpu_time(serving.id())?, Instant::now());
    let mut took = calls(&mut clients, total).await?;
    let (cpu, wall) = (usage::cpu_time(serving.id())? - cpu, wall.elapsed());
    took.sort_unstable();
    let done = took.len();
    Ok(Measured {
        calls_a_second: done as f64 / wall.as_secs_f64(),
        p50: took[done / 2],
        p99: took[done * 99 / 100],
        cpu_us_a_call: cpu.as_secs_f64() * 1e6 / done as f64,
        resident: usage::resident(serving.id())?,
    })
}

impl Measured {
    fn in_words(&self) -> String {
        let (p50, p99, mb) = (self.p50.as_micros(), self.p99.as_micros(), self.resident as f64 / 1e6);
        format!("{:.0}; {p50}, {p99}; {:.1}; {mb:.0}", self.calls_a_second, self.cpu_us_a_call)
    }
}

/// Of at least one round; each number by itself. `None` of no round.
fn median(rounds: &[Measured]) -> Option<Measured> {
    let middle = |of: fn(&Measured) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    (!rounds.is_empty()).then(|| Measured {
        calls_a_second: middle(|m| m.calls_a_second),
        p50: Duration::from_secs_f64(middle(|m| m.p50.as_secs_f64())),
        p99: Duration::from_secs_f64(middle(|m| m.p99.as_secs_f64())),
        cpu_us_a_call: middle(|m| m.cpu_us_a_call),
        resident: middle(|m| m.resident as f64) as u64,
    })
}
