//! An A2A server's echo, SendMessage of 1.0 over JSON-RPC on loopback: ours beside the official Rust SDK's. Each is a process of
//! its own, with the same allocator and as many threads that serve; what it uses is read from `/proc`.
//!
//! `cargo bench --bench a2a -- [--rounds N] [--other PROGRAM] [--check TIMES]`; PROGRAM is `a2a-peer` of `tests/peers/a2a-rust`.

mod client;
#[path = "../kit.rs"]
mod kit;
mod servers;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use client::Client;
use kit::{Measured, middle, resident};
use rand::seq::SliceRandom;
use servers::Server;

// As in callboard's own program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Calls a round, over all connections.
const CALLS: u64 = 16_000;
/// With one connection.
const CALLS_ALONE: u64 = 6_000;
/// Before a round is measured.
const WARM_UP_CALLS: u64 = 2_048;
const CONNECTIONS: [usize; 3] = [1, 16, 64];
/// Minimum ratio of our throughput to the other server's.
const TIMES_MIN: f64 = 1.5;

/// Results of one round, and the server's memory after it, in bytes. The server keeps every task.
type Round = (Measured, u64);

#[derive(Parser)]
struct Arguments {
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// `a2a-peer` of `tests/peers/a2a-rust`.
    #[arg(long)]
    other: Option<PathBuf>,
    /// Fail below so many times the other's throughput.
    #[arg(long)]
    check: Option<f64>,
    /// A port, and how many threads serve it.
    #[arg(long, hide = true, num_args = 2)]
    serve: Vec<u16>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse_from(kit::words());
    kit::ended(match arguments.serve[..] {
        [port, threads] => servers::serve(port, threads.into()),
        _ => bench(&arguments),
    })
}

fn bench(arguments: &Arguments) -> Result<bool, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| e.to_string())?;
    let servers: Vec<_> = arguments
        .other
        .iter()
        .map(|program| Server::Other(program))
        .chain([Server::Ours])
        .collect();
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
                format!(
                    "{times:.2} | {:.2}",
                    ours.p99.as_secs_f64() / theirs.p99.as_secs_f64()
                )
            }
            _ => "– | –".to_owned(),
        };
        let s = if connections == 1 { "" } else { "s" };
        println!(
            "| {connections} connection{s} | {} | {} | {marks} |",
            cell(theirs),
            cell(ours)
        );
    }
    Ok(arguments.check.is_some_and(|wanted| least < wanted))
}

async fn one_round(server: Server<'_>, connections: usize) -> Result<Round, String> {
    let (serving, address) = server.start()?;
    let mut clients = Vec::with_capacity(connections);
    for number in 0..connections {
        clients.push(Client::open(address, server.path(), number).await?);
    }
    let total = if connections == 1 { CALLS_ALONE } else { CALLS };
    let measured = Measured::round(&mut clients, WARM_UP_CALLS, total, serving.0.id()).await?;
    Ok((measured, resident(serving.0.id())?))
}

fn median(rounds: &[Round]) -> Option<Round> {
    let measured: Vec<_> = rounds.iter().map(|(measured, _)| *measured).collect();
    Some((
        Measured::median(&measured)?,
        middle(rounds.iter().map(|(_, resident)| *resident), u64::cmp)?,
    ))
}
