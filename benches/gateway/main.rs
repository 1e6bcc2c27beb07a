//! A gateway in front of an echo tool, over streamable HTTP on loopback: callboard's own binary beside the crate
//! `mcp-proxy`, and no gateway at all. Each server is a process of its own; what it uses is read from `/proc`.
//!
//! `cargo bench --bench gateway -- [--rounds N] [--only CONNECTIONS] [--callboard PROGRAM] [--mcp-proxy PROGRAM] [--check]`

mod load;
mod process;
#[path = "../http/response.rs"]
mod response;
#[path = "../round.rs"]
mod round;
mod table;
#[path = "../usage.rs"]
mod usage;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use load::{Client, Endpoint};
use process::Process;
use rand::seq::SliceRandom;
use round::{Measured, calls};

/// Rounds when `--rounds` is not given.
const ROUNDS_DEFAULT: usize = 5;
/// Calls a round, over all connections.
const CALLS: u64 = 16_000;
/// With one connection.
const CALLS_ALONE: u64 = 6_000;
/// Before a round is measured.
const WARM_UP_CALLS: u64 = 2_048;
/// Idle clients when memory is looked at, each with a session or at least a connection, and one call behind it.
const IDLE_CLIENTS: usize = 1_000;

/// How the protocol is spoken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// With sessions: 2025-11-25.
    Legacy,
    /// Without: 2026-07-28.
    Modern,
}

/// One row of the table.
pub struct Row {
    /// What the clients speak.
    pub client: Era,
    /// What callboard speaks to the echo server.
    pub upstream: Era,
    /// How many there are at once.
    pub connections: usize,
}

const fn row(client: Era, upstream: Era, connections: usize) -> Row {
    Row { client, upstream, connections }
}

const ROWS: [Row; 8] = [
    row(Era::Legacy, Era::Legacy, 1),
    row(Era::Legacy, Era::Legacy, 16),
    row(Era::Legacy, Era::Legacy, 64),
    row(Era::Modern, Era::Modern, 1),
    row(Era::Modern, Era::Modern, 16),
    row(Era::Modern, Era::Modern, 64),
    row(Era::Legacy, Era::Modern, 16),
    row(Era::Modern, Era::Legacy, 16),
];

/// What stands between the clients and the echo server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Contestant {
    /// Nothing.
    Direct,
    /// The crate `mcp-proxy`.
    McpProxy,
    /// Ours.
    Callboard,
}

impl Contestant {
    const ALL: [Self; 3] = [Self::Direct, Self::McpProxy, Self::Callboard];

    /// The era of its clients in `row`. mcp-proxy knows sessions only, towards either side.
    fn client(self, row: &Row) -> Era {
        if self == Self::McpProxy { Era::Legacy } else { row.client }
    }
}

/// What a gateway has in memory, in bytes.
#[derive(Clone, Copy)]
pub struct Memory {
    /// Before its first client.
    pub start: u64,
    /// After the load of 64 connections.
    pub loaded: u64,
    /// With [`IDLE_CLIENTS`] beside what that left.
    pub idle: u64,
}

/// The gateways.
pub struct Programs {
    /// Ours: cargo's own profile for benches, unless another is given.
    callboard: PathBuf,
    /// The rival, if it is to be measured.
    mcp_proxy: Option<PathBuf>,
}

struct Arguments {
    rounds: usize,
    programs: Programs,
    check: bool,
    only: Option<String>,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    if let ["--serve", "echo"] = words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        return process::serve_echo();
    }
    let outcome = arguments(&words).and_then(|arguments| bench(&arguments));
    outcome.unwrap_or_else(|why| {
        eprintln!("{why}");
        ExitCode::from(2)
    })
}

fn arguments(words: &[String]) -> Result<Arguments, String> {
    let usage = || {
        "usage: gateway [--rounds N] [--only CONNECTIONS] [--callboard PROGRAM] [--mcp-proxy PROGRAM] [--check]"
            .to_owned()
    };
    let programs = Programs { callboard: env!("CARGO_BIN_EXE_callboard").into(), mcp_proxy: None };
    let mut arguments = Arguments { rounds: ROUNDS_DEFAULT, programs, check: false, only: None };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--check" => arguments.check = true,
            "--rounds" => {
                let rounds = words.next().and_then(|n| n.parse().ok()).filter(|n| *n > 0);
                arguments.rounds = rounds.ok_or_else(usage)?;
            }
            "--only" => arguments.only = Some(words.next().ok_or_else(usage)?.clone()),
            "--callboard" => arguments.programs.callboard = words.next().ok_or_else(usage)?.into(),
            "--mcp-proxy" => arguments.programs.mcp_proxy = Some(words.next().ok_or_else(usage)?.into()),
            _ => return Err(usage()),
        }
    }
    Ok(arguments)
}

/// Measures, prints, and with `check` fails if a mark is missed.
fn bench(arguments: &Arguments) -> Result<ExitCode, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    let programs = &arguments.programs;
    let has_rival = programs.mcp_proxy.is_some();
    let contestants = || Contestant::ALL.into_iter().filter(|who| *who != Contestant::McpProxy || has_rival);
    let mut missed = false;
    table::begin();
    for row in ROWS.iter().filter(|row| arguments.only.as_ref().is_none_or(|only| row.title().contains(only))) {
        let mut measured = [const { Vec::new() }; 3];
        for _ in 0..arguments.rounds {
            // Another order each round, so that a noisy minute hits all alike.
            let mut order: Vec<Contestant> = contestants().collect();
            order.shuffle(&mut rand::rng());
            for contestant in order {
                let one = runtime.block_on(one_round(row, contestant, programs))?;
                measured[contestant as usize].push(one);
            }
        }
        missed |= table::row(row, &measured.map(|rounds| Measured::median(&rounds)));
    }
    table::begin_memory();
    for (era, title) in [(Era::Legacy, "legacy clients"), (Era::Modern, "modern clients")] {
        for contestant in contestants().filter(|who| *who != Contestant::Direct) {
            if contestant == Contestant::McpProxy && era == Era::Modern {
                continue;
            }
            let used = runtime.block_on(memory(era, contestant, programs));
            missed |= table::memory(title, contestant, used)?;
        }
    }
    if missed {
        println!("\nshort of the mark");
    }
    Ok(if missed && arguments.check { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The echo server, and the gateway before it.
struct Served {
    echo: Process,
    gateway: Option<Process>,
}

impl Served {
    fn start(contestant: Contestant, upstream: Era, programs: &Programs) -> Result<Self, String> {
        let echo = Process::echo()?;
        let gateway = match (contestant, &programs.mcp_proxy) {
            (Contestant::Callboard, _) => Some(Process::callboard(&programs.callboard, &echo.endpoint, upstream)?),
            (Contestant::McpProxy, Some(program)) => Some(Process::mcp_proxy(program, &echo.endpoint)?),
            _ => None,
        };
        Ok(Self { echo, gateway })
    }

    /// The one that is measured.
    fn front(&self) -> &Process {
        self.gateway.as_ref().unwrap_or(&self.echo)
    }
}

async fn clients(endpoint: &Endpoint, era: Era, count: usize) -> Result<Vec<Client>, String> {
    let mut clients = Vec::with_capacity(count);
    for number in 0..count {
        clients.push(Client::open(endpoint, era, number).await?);
    }
    Ok(clients)
}

/// The CPU time is the gateway's; the echo server's where there is none.
async fn one_round(row: &Row, contestant: Contestant, programs: &Programs) -> Result<Measured, String> {
    let served = Served::start(contestant, row.upstream, programs)?;
    let front = served.front();
    let mut clients = clients(&front.endpoint, contestant.client(row), row.connections).await?;
    calls(&mut clients, WARM_UP_CALLS).await?;
    let total = if row.connections == 1 { CALLS_ALONE } else { CALLS };
    let (cpu, wall) = (front.cpu_time()?, Instant::now());
    let took = calls(&mut clients, total).await?;
    let (cpu, wall) = (front.cpu_time()? - cpu, wall.elapsed());
    Ok(Measured::of(took, cpu, wall))
}

/// What `contestant` has in memory as its clients come and stay.
async fn memory(era: Era, contestant: Contestant, programs: &Programs) -> Result<Memory, String> {
    let served = Served::start(contestant, era, programs)?;
    let front = served.front();
    let start = front.resident()?;
    let mut few = clients(&front.endpoint, era, 64).await?;
    calls(&mut few, CALLS).await?;
    drop(few);
    let loaded = front.resident()?;
    let mut many = clients(&front.endpoint, era, IDLE_CLIENTS).await?;
    calls(&mut many, IDLE_CLIENTS as u64).await?;
    let idle = front.resident()?;
    Ok(Memory { start, loaded, idle })
}
