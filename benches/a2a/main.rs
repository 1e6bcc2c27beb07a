//! An A2A server's echo, SendMessage of 1.0 over JSON-RPC on loopback: ours beside the official Rust SDK's. Each is a process of
//! its own, with the same allocator and as many threads that serve; what it uses is read from `/proc`.
//!
//! `cargo bench --bench a2a -- [--rounds N] [--other PROGRAM] [--check TIMES]`; PROGRAM is `a2a-peer` of `tests/peers/a2a-rust`.

mod client;
#[path = "../http/response.rs"]
mod response;
#[path = "../round.rs"]
mod round;
mod servers;
#[path = "../usage.rs"]
mod usage;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use client::Client;
use rand::seq::SliceRandom;
use round::{Measured, calls, middle};
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

/// What one round came to, and what the server then had in memory, in bytes: every task is kept.
type Round = (Measured, u64);

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
        let mut measured: [Vec<Round>; 2] = Default::default();
        for _ in 0..arguments.rounds {
            // Another order each round, so that a noisy minute hits both alike.
            let mut order = servers.clone();
            order.shuffle(&mut rand::rng());
            for server in order {
                let one = runtime.block_on(one_round(server, connections))?;
                measured[usize::from(matches!(server, Server::Ours))].push(one);
            }
        }
        let [theirs, ours] = measured.map(|rounds| median(&rounds));
        let cell = |round: Option<Round>| {
            round.map_or("–".to_owned(), |(measured, resident)| {
                format!("{}; {:.0}", measured.in_words(), resident as f64 / 1e6)
            })
        };
        let marks = match (theirs, ours) {
            (Some((theirs, _)), Some((ours, _))) => {
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

async fn one_round(server: Server<'_>, connections: usize) -> Result<Round, String> {
    let serving = server.start()?;
    let mut clients = Vec::with_capacity(connections);
    for number in 0..connections {
        clients.push(Client::open(serving.address, server.path(), number).await?);
    }
    calls(&mut clients, WARM_UP_CALLS).await?;
    let total = if connections == 1 { CALLS_ALONE } else { CALLS };
    let (cpu, wall) = (usage::cpu_time(serving.id())?, Instant::now());
    let took = calls(&mut clients, total).await?;
    let (cpu, wall) = (usage::cpu_time(serving.id())? - cpu, wall.elapsed());
    Ok((Measured::of(took, cpu, wall), usage::resident(serving.id())?))
}

fn median(rounds: &[Round]) -> Option<Round> {
    let measured: Vec<_> = rounds.iter().map(|(measured, _)| *measured).collect();
    Some((Measured::median(&measured)?, middle(rounds.iter().map(|(_, resident)| *resident), u64::cmp)?))
}
