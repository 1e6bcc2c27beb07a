//! An echo tool over HTTP on this machine's loopback: callboard's server beside rmcp's, each in a process of its own, so
//! that its CPU time is its alone. With sessions (2025-11-25) and without (2026-07-28), one connection and sixteen.
//!
//! `cargo bench --bench http -- [--rounds N] [--check]`

mod client;
mod response;
#[path = "../round.rs"]
mod round;
mod servers;

use std::process::ExitCode;
use std::time::Instant;

use client::Connection;
use rand::seq::SliceRandom;
use round::{Measured, calls};
use servers::{Contestant, Served};

/// Rounds when `--rounds` is not given.
const ROUNDS_DEFAULT: usize = 7;
/// Calls a round, over all connections.
const CALLS: u64 = 16_000;
/// Before a round is measured.
const WARM_UP_CALLS: u64 = 800;
/// Least throughput, as a multiple of rmcp's.
const THROUGHPUT_MIN: f64 = 2.0;
/// Most CPU time a call, as a multiple of rmcp's.
const CPU_MAX: f64 = 0.45;

/// How the protocol is spoken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// A session a connection: 2025-11-25.
    Sessions,
    /// Everything in each request: 2026-07-28.
    Stateless,
}

/// One row of the table.
struct Row {
    title: &'static str,
    era: Era,
    connections: u64,
}

const ROWS: [Row; 4] = [
    Row { title: "sessions, 1 connection", era: Era::Sessions, connections: 1 },
    Row { title: "sessions, 16 connections", era: Era::Sessions, connections: 16 },
    Row { title: "stateless, 1 connection", era: Era::Stateless, connections: 1 },
    Row { title: "stateless, 16 connections", era: Era::Stateless, connections: 16 },
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["--serve", name] => return servers::serve(name),
        [] => bench(ROUNDS_DEFAULT, false),
        ["--check"] => bench(ROUNDS_DEFAULT, true),
        ["--rounds", rounds, rest @ ..] if rest.is_empty() || rest == ["--check"] => match rounds.parse() {
            Ok(rounds) if rounds > 0 => bench(rounds, !rest.is_empty()),
            _ => Err("--rounds needs a number".to_owned()),
        },
        _ => Err("usage: http [--rounds N] [--check]".to_owned()),
    };
    outcome.unwrap_or_else(|why| {
        eprintln!("{why}");
        ExitCode::from(2)
    })
}

/// Measures, prints, and with `check` fails if a mark is missed.
fn bench(rounds: usize, check: bool) -> Result<ExitCode, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    println!(
        "| calls/s; p50, p99 µs; server's CPU µs a call | rmcp | callboard | throughput ≥ {THROUGHPUT_MIN} | CPU ≤ {CPU_MAX} |"
    );
    println!("|---|---|---|---|---|");
    let mut missed = false;
    for row in &ROWS {
        let mut measured = [const { Vec::new() }; 2];
        for _ in 0..rounds {
            // Another order each round, so that a noisy minute hits both alike.
            let mut order = Contestant::ALL;
            order.shuffle(&mut rand::rng());
            for contestant in order {
                let one = runtime.block_on(one_round(row, contestant))?;
                measured[contestant as usize].push(one);
            }
        }
        let medians = measured.map(|rounds| Measured::median(&rounds));
        let [Some(rmcp), Some(ours)] = medians else { return Err("nothing was measured".to_owned()) };
        let throughput = ours.calls_a_second / rmcp.calls_a_second;
        let cpu = ours.cpu_us_a_call / rmcp.cpu_us_a_call;
        println!("| {} | {} | {} | {throughput:.2} | {cpu:.2} |", row.title, rmcp.in_words(), ours.in_words());
        missed |= throughput < THROUGHPUT_MIN || cpu > CPU_MAX;
    }
    if missed {
        println!("\nshort of the mark");
    }
    Ok(if missed && check { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn one_round(row: &Row, contestant: Contestant) -> Result<Measured, String> {
    let mut served = Served::start(contestant)?;
    let mut connections = Vec::new();
    for _ in 0..row.connections {
        connections.push(Connection::open(served.address(), row.era).await?);
    }
    calls(&mut connections, WARM_UP_CALLS).await?;
    let (cpu, wall) = (served.cpu_time()?, Instant::now());
    let took = calls(&mut connections, CALLS).await?;
    let (cpu, wall) = (served.cpu_time()? - cpu, wall.elapsed());
    Ok(Measured::of(took, cpu, wall))
}
