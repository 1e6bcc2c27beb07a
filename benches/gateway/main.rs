//! A gateway in front of an echo tool, over streamable HTTP on loopback: callboard's own binary beside the crate
//! `mcp-proxy`, and no gateway at all. Each server is a process of its own; what it uses is read from `/proc`.
//!
//! `cargo bench --bench gateway -- [--rounds N] [--only CONNECTIONS] [--callboard PROGRAM] [--mcp-proxy PROGRAM] [--check]`

#[path = "../echo.rs"]
mod echo;
// An authorization server of the tests, of which the keys are needed.
#[path = "../../tests/kit/issuer.rs"]
#[expect(dead_code, reason = "the tests need more of it")]
mod issuer;
#[path = "../kit.rs"]
mod kit;
mod table;

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use clap::Parser;
use echo::{Client, Endpoint, Era, Process};
use issuer::{SigningKey, now_s};
use kit::{Measured, calls, resident};
use rand::seq::SliceRandom;
use serde_json::json;
use tempfile::TempDir;

/// Calls a round, over all connections.
const CALLS: u64 = 16_000;
/// With one connection.
const CALLS_ALONE: u64 = 6_000;
/// Before a round is measured.
const WARM_UP_CALLS: u64 = 2_048;
/// Idle clients when memory is looked at, each with a session or at least a connection, and one call behind it.
const IDLE_CLIENTS: usize = 1_000;

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
}

impl Contestant {
    /// All of them, in the order of the table's columns.
    pub const ALL: [Self; 4] = [
        Self::Direct,
        Self::McpProxy,
        Self::Callboard,
        Self::CallboardTokens,
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
    /// Rows with this in their title only.
    #[arg(long)]
    only: Option<String>,
    #[arg(long, default_value = env!("CARGO_BIN_EXE_callboard"))]
    callboard: PathBuf,
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
    table::begin_memory();
    for (era, title) in [
        (Era::Legacy, "legacy clients"),
        (Era::Modern, "modern clients"),
    ] {
        let with_memory = [Contestant::McpProxy, Contestant::Callboard];
        for contestant in contestants().filter(|who| with_memory.contains(who)) {
            if contestant == Contestant::McpProxy && era == Era::Modern {
                continue;
            }
            let used = runtime.block_on(memory(era, contestant, arguments));
            missed |= table::memory(title, contestant, used)?;
        }
    }
    if missed {
        println!("\nshort of the mark");
    }
    Ok(missed && arguments.check)
}

/// How a listener takes the tokens of [`access_token`].
const AUTH: &str = "[listener.auth]\n[[listener.auth.issuer]]\nname = \"bench\"\nissuer = \"https://issuer.example\"\n\
                    jwks = \"jwks.json\"\naudiences = [\"bench\"]\n";

/// Makes a key, writes its public part to `jwks.json` in a folder, and returns an access token that is valid
/// for a day.
fn access_token(folder: &Path) -> Result<String, String> {
    let key = SigningKey::new("k", "EdDSA");
    let jwks = json!({ "keys": [key.jwk()] }).to_string();
    std::fs::write(folder.join("jwks.json"), jwks).map_err(|e| e.to_string())?;
    let now = now_s();
    Ok(key.token(&json!({
        "iss": "https://issuer.example", "aud": "bench", "sub": "client", "iat": now, "exp": now + 86_400,
    })))
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
        let file = folder.path().join("gateway.toml");
        let write = |text: String| std::fs::write(&file, text).map_err(|e| e.to_string());
        let echo = Process::serving("echo")?;
        let url = format!("http://{}{}", echo.endpoint.address, echo.endpoint.path);
        let gateway = match (contestant, &programs.mcp_proxy) {
            (Contestant::Callboard | Contestant::CallboardTokens, _) => {
                let token = match contestant {
                    Contestant::CallboardTokens => Some(access_token(folder.path())?),
                    _ => None,
                };
                let access = token
                    .as_ref()
                    .map_or("anonymous = \"operator\"\n", |_| AUTH);
                let era = if upstream == Era::Legacy {
                    "legacy"
                } else {
                    "modern"
                };
                write(format!(
                    "[node]\nname = \"gateway\"\n\n[[upstream]]\nid = \"upstream\"\nurl = \"{url}\"\nera = \"{era}\"\n\n\
                     [[listener]]\nprotocol = \"mcp\"\ndialect = \"mcp\"\nbind = \"127.0.0.1:0\"\n{access}"
                ))?;
                let mut command = Command::new(&programs.callboard);
                let command = command.arg("serve").arg(&file).arg("--lifeline");
                let mut process = Process::announced(command)?;
                process.endpoint.token = token;
                Some(process)
            }
            // The crate `mcp-proxy`, with one backend and all else as it is by default.
            (Contestant::McpProxy, Some(program)) => {
                // It can't say which port it got: one that was free a moment ago.
                let free =
                    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
                let address = free.map_err(|e| e.to_string())?;
                let port = address.port();
                write(format!(
                    "[proxy]\nname = \"gateway\"\nseparator = \"_\"\n\n[proxy.listen]\nhost = \"127.0.0.1\"\nport = {port}\n\n\
                     [[backends]]\nname = \"up\"\ntransport = \"http\"\nurl = \"{url}\"\n"
                ))?;
                let mut command = Command::new(program);
                command
                    .arg("--config")
                    .arg(&file)
                    .stdout(Stdio::null())
                    .stderr(Stdio::null());
                Some(Process::at(
                    &mut command,
                    Endpoint {
                        address,
                        path: "/",
                        tool: "up_echo",
                        token: None,
                    },
                )?)
            }
            _ => None,
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

async fn one_round(
    row: &Row,
    contestant: Contestant,
    programs: &Arguments,
) -> Result<Measured, String> {
    let served = Served::start(contestant, row.upstream, programs)?;
    let front = served.front();
    let mut clients =
        Client::open_all(&front.endpoint, contestant.client(row), row.connections).await?;
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
    calls(&mut many, IDLE_CLIENTS as u64).await?;
    Ok(Memory {
        start,
        loaded,
        idle: resident(id)?,
    })
}
