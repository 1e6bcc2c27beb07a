//! A gateway in front of an echo tool, over streamable HTTP on loopback: callboard's own binary beside the crate
//! `mcp-proxy`, and no gateway at all. Each server is a process of its own; what it uses is read from `/proc`.
//!
//! `cargo bench --bench gateway -- [--rounds N] [--only CONNECTIONS] [--callboard PROGRAM] [--mcp-proxy PROGRAM] [--check]`
//!
//! Without `--mcp-proxy`, that one isn't measured. With `--only`, memory isn't.

#[path = "../echo.rs"]
mod echo;
// An authorization server of the tests, of which the keys are needed.
#[path = "../../tests/kit/issuer.rs"]
#[expect(dead_code, reason = "the tests need more of it")]
mod issuer;
#[path = "../kit.rs"]
mod kit;
mod table;
mod topology;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::Parser;
use echo::{Client, Endpoint, Era, Process};
use kit::{Measured, calls, resident};
use rand::seq::SliceRandom;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use topology::WrittenTopology;

/// Calls a round, over all connections.
const CALLS: u64 = 16_000;
/// With one connection.
const CALLS_ALONE: u64 = 6_000;
/// Before a round is measured.
const WARM_UP_CALLS: u64 = 2_048;
/// Idle clients when memory is looked at, each with a session or at least a connection, and one call behind it.
const IDLE_CLIENTS: usize = 1_000;
/// Idle clients that make their call at the same time.
const CALLS_AT_ONCE: usize = 32;

/// One row of the table.
pub struct Row {
    /// MCP era of the clients.
    pub client: Era,
    /// MCP era between callboard and the echo server.
    pub upstream: Era,
    /// Number of concurrent clients.
    pub connections: usize,
}

const fn row(client: Era, upstream: Era, connections: usize) -> Row {
    Row {
        client,
        upstream,
        connections,
    }
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

/// Gateway between the clients and the echo server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Contestant {
    /// Nothing.
    Direct,
    /// The crate `mcp-proxy`.
    McpProxy,
    /// Ours.
    Callboard,
    /// Ours, whose clients send access tokens.
    CallboardTokens,
    /// Ours, with an audit entry for each call.
    CallboardAudit,
    /// Ours, with such an audit, rules, rate limits and pinned tools.
    CallboardPolicies,
    /// Ours, with a console, which reads the events of the node.
    CallboardConsole,
}

impl Contestant {
    /// All of them, in the order of the table's columns.
    pub const ALL: [Self; 7] = [
        Self::Direct,
        Self::McpProxy,
        Self::Callboard,
        Self::CallboardTokens,
        Self::CallboardAudit,
        Self::CallboardPolicies,
        Self::CallboardConsole,
    ];

    /// The era of its clients in `row`. mcp-proxy knows sessions only, towards either side.
    fn client(self, row: &Row) -> Era {
        if self == Self::McpProxy {
            Era::Legacy
        } else {
            row.client
        }
    }
}

/// Resident memory of a gateway, in bytes.
#[derive(Clone, Copy)]
pub struct Memory {
    /// Before its first client.
    pub start: u64,
    /// After the load of 64 connections.
    pub loaded: u64,
    /// With [`IDLE_CLIENTS`] beside what that left.
    pub idle: u64,
}

#[derive(Parser)]
struct Arguments {
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Rows with this in their title only, and no memory.
    #[arg(long)]
    only: Option<String>,
    #[arg(long, default_value = env!("CARGO_BIN_EXE_callboard"))]
    callboard: PathBuf,
    /// Program of the crate `mcp-proxy`. Without it, that one isn't measured.
    #[arg(long)]
    mcp_proxy: Option<PathBuf>,
    /// Fail where a mark is missed.
    #[arg(long)]
    check: bool,
    #[arg(long, hide = true)]
    serve: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse_from(kit::words());
    kit::ended(if arguments.serve.is_some() {
        echo::serve()
    } else {
        bench(&arguments)
    })
}

fn bench(arguments: &Arguments) -> Result<bool, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| e.to_string())?;
    let has_rival = arguments.mcp_proxy.is_some();
    let contestants = || {
        Contestant::ALL
            .into_iter()
            .filter(|who| *who != Contestant::McpProxy || has_rival)
    };
    let mut missed = false;
    table::begin();
    for row in ROWS.iter().filter(|row| {
        arguments
            .only
            .as_ref()
            .is_none_or(|only| row.title().contains(only))
    }) {
        let mut measured = [const { Vec::new() }; Contestant::ALL.len()];
        for _ in 0..arguments.rounds {
            // Another order each round, so that a noisy minute hits all alike.
            let mut order: Vec<Contestant> = contestants().collect();
            order.shuffle(&mut rand::rng());
            for contestant in order {
                let one = runtime.block_on(one_round(row, contestant, arguments))?;
                measured[contestant as usize].push(one);
            }
        }
        missed |= table::row(row, &measured.map(|rounds| Measured::median(&rounds)));
    }
    if arguments.only.is_none() {
        missed |= bench_memory(&runtime, arguments)?;
    }
    if missed {
        println!("\nshort of the mark");
    }
    Ok(missed && arguments.check)
}

/// Prints the table of memory. Returns whether a mark is missed.
fn bench_memory(runtime: &Runtime, arguments: &Arguments) -> Result<bool, String> {
    let mut missed = false;
    table::begin_memory();
    for (era, title) in [
        (Era::Legacy, "legacy clients"),
        (Era::Modern, "modern clients"),
    ] {
        if era == Era::Legacy && arguments.mcp_proxy.is_some() {
            let used = runtime.block_on(memory(era, Contestant::McpProxy, arguments));
            missed |= table::memory(title, Contestant::McpProxy, used)?;
        }
        let used = runtime.block_on(memory(era, Contestant::Callboard, arguments));
        missed |= table::memory(title, Contestant::Callboard, used)?;
    }
    Ok(missed)
}

/// The servers of a round, ended when this is dropped.
struct Served {
    echo: Process,
    gateway: Option<Process>,
    /// The gateway's configuration.
    _folder: TempDir,
}

impl Served {
    fn start(contestant: Contestant, upstream: Era, programs: &Arguments) -> Result<Self, String> {
        let folder = TempDir::new().map_err(|e| e.to_string())?;
        let echo = Process::serving("echo")?;
        let url = format!("http://{}{}", echo.endpoint.address, echo.endpoint.path);
        let gateway = match (contestant, &programs.mcp_proxy) {
            (Contestant::Direct, _) | (Contestant::McpProxy, None) => None,
            (Contestant::McpProxy, Some(program)) => {
                Some(start_mcp_proxy(program, &url, folder.path())?)
            }
            _ => {
                let written = WrittenTopology::write(contestant, upstream, &url, folder.path())?;
                let mut command = Command::new(&programs.callboard);
                let command = command.arg("serve").arg(&written.file).arg("--lifeline");
                let mut process = Process::announced(command)?;
                process.endpoint.token = written.token;
                Some(process)
            }
        };
        Ok(Self {
            echo,
            gateway,
            _folder: folder,
        })
    }

    /// Returns the process that the clients connect to.
    fn front(&self) -> &Process {
        self.gateway.as_ref().unwrap_or(&self.echo)
    }
}

/// Starts the crate `mcp-proxy`, with one backend and all else as it is by default.
fn start_mcp_proxy(program: &Path, url: &str, folder: &Path) -> Result<Process, String> {
    // It can't say which port it got: one that was free a moment ago.
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = free.map_err(|e| e.to_string())?;
    let port = address.port();
    let text = format!(
        "[proxy]\nname = \"gateway\"\nseparator = \"_\"\n\n[proxy.listen]\nhost = \"127.0.0.1\"\nport = {port}\n\n\
         [[backends]]\nname = \"up\"\ntransport = \"http\"\nurl = \"{url}\"\n"
    );
    let file = folder.join("gateway.toml");
    std::fs::write(&file, text).map_err(|e| e.to_string())?;
    let mut command = Command::new(program);
    command
        .arg("--config")
        .arg(&file)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Process::at(
        &mut command,
        Endpoint {
            address,
            path: "/",
            tool: "up_echo",
            token: None,
        },
    )
}

async fn one_round(
    row: &Row,
    contestant: Contestant,
    programs: &Arguments,
) -> Result<Measured, String> {
    let served = Served::start(contestant, row.upstream, programs)?;
    let front = served.front();
    let mut clients =
        Client::open_all(&front.endpoint, contestant.client(row), row.connections).await?;
    // With `pin`, tools are approved by the first list, which the first call asks for.
    calls(&mut clients[..1], 1).await?;
    let total = if row.connections == 1 {
        CALLS_ALONE
    } else {
        CALLS
    };
    Measured::round(&mut clients, WARM_UP_CALLS, total, front.id()).await
}

/// Measures a gateway's memory at the start, after load, and with idle clients.
async fn memory(era: Era, contestant: Contestant, programs: &Arguments) -> Result<Memory, String> {
    let served = Served::start(contestant, era, programs)?;
    let (front, id) = (served.front(), served.front().id());
    let start = resident(id)?;
    let mut few = Client::open_all(&front.endpoint, era, 64).await?;
    calls(&mut few, CALLS).await?;
    drop(few);
    let loaded = resident(id)?;
    let mut many = Client::open_all(&front.endpoint, era, IDLE_CLIENTS).await?;
    // A principal's calls that may wait for a place in the gateway are limited.
    for some in many.chunks_mut(CALLS_AT_ONCE) {
        let count = some.len() as u64;
        calls(some, count).await?;
    }
    Ok(Memory {
        start,
        loaded,
        idle: resident(id)?,
    })
}
