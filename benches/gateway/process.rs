//! The processes: the echo server, and the gateways before it. What they use is read from outside.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use callboard::mcp::inbound::{ListenOptions, McpServerOptions, serve as serve_agent};
use callboard::message::ToolResult;
use callboard::{Agent, Cx, Handlers, Message, SyncHandler, System};
use callboard_rpc::{Access, Trust};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::load::Endpoint;
use crate::{Era, usage};

/// How long a process may take until it listens.
const START_MAX: Duration = Duration::from_secs(20);

/// A process that serves, ended when it is dropped.
pub struct Process {
    child: Child,
    /// What it serves.
    pub endpoint: Endpoint,
    /// Its configuration, removed at the end.
    _folder: Option<TempDir>,
}

/// What a process has in memory, in bytes.
pub type Bytes = u64;

impl Process {
    /// The echo server: this program again.
    pub fn echo() -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut command = Command::new(program);
        command.args(["--serve", "echo"]).stdin(Stdio::piped());
        Self::announced(command, None)
    }

    /// callboard's own binary, with a topology of one upstream.
    pub fn callboard(program: &Path, upstream: &Endpoint, era: Era) -> Result<Self, String> {
        let folder = TempDir::new().map_err(|e| e.to_string())?;
        let file = folder.path().join("gateway.toml");
        let (address, path) = (upstream.address, upstream.path);
        let era = match era {
            Era::Legacy => "legacy",
            Era::Modern => "modern",
        };
        let topology = format!(
            "[node]\nname = \"gateway\"\n\n[[upstream]]\nid = \"upstream\"\nurl = \"http://{address}{path}\"\n\
             era = \"{era}\"\n\n[[listener]]\nprotocol = \"mcp\"\ndialect = \"mcp\"\nbind = \"127.0.0.1:0\"\n\
             trust = \"loopback_operator\"\n"
        );
        fs::write(&file, topology).map_err(|e| e.to_string())?;
        let mut command = Command::new(program);
        command.arg("serve").arg(&file).arg("--lifeline").stdin(Stdio::piped());
        Self::announced(command, Some(folder))
    }

    /// The crate `mcp-proxy`, with one backend and all else as it is by default.
    pub fn mcp_proxy(program: &Path, upstream: &Endpoint) -> Result<Self, String> {
        let folder = TempDir::new().map_err(|e| e.to_string())?;
        let file = folder.path().join("proxy.toml");
        // It can't say which port it got: one that was free a moment ago.
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let address = free.map_err(|e| e.to_string())?;
        let configuration = format!(
            "[proxy]\nname = \"gateway\"\nseparator = \"_\"\n\n[proxy.listen]\nhost = \"127.0.0.1\"\nport = {}\n\n\
             [[backends]]\nname = \"up\"\ntransport = \"http\"\nurl = \"http://{}{}\"\n",
            address.port(),
            upstream.address,
            upstream.path
        );
        fs::write(&file, configuration).map_err(|e| e.to_string())?;
        let mut command = Command::new(program);
        command.arg("--config").arg(&file).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|e| format!("{} can't be started: {e}", program.display()))?;
        let endpoint = Endpoint { address, path: "/", tool: "up_echo" };
        let process = Self { child, endpoint, _folder: Some(folder) };
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            if began.elapsed() > START_MAX {
                return Err("mcp-proxy doesn't listen".to_owned());
            }
            // It says nothing when it listens: it has to be tried.
            pause(Duration::from_millis(20));
        }
        Ok(process)
    }

    /// One that prints `listening NAME URL` once it does.
    fn announced(mut command: Command, folder: Option<TempDir>) -> Result<Self, String> {
        let mut child = command.stdout(Stdio::piped()).spawn().map_err(|e| format!("can't be started: {e}"))?;
        let mut output = BufReader::new(child.stdout.take().ok_or("a child without output")?);
        let mut line = String::new();
        output.read_line(&mut line).map_err(|e| e.to_string())?;
        let url = line.trim().rsplit(' ').next().and_then(|url| url.strip_prefix("http://"));
        let address = url.and_then(|url| url.split('/').next()?.parse().ok());
        let address: SocketAddr = address.ok_or_else(|| format!("no address: {line:?}"))?;
        let endpoint = Endpoint { address, path: "/mcp", tool: "echo" };
        // What it says later must not fill the pipe.
        std::thread::spawn(move || output.lines().map_while(Result::ok).for_each(drop));
        Ok(Self { child, endpoint, _folder: folder })
    }

    /// The CPU time that it has used so far, of all its threads.
    pub fn cpu_time(&self) -> Result<Duration, String> {
        usage::cpu_time(self.child.id())
    }

    /// What it has in memory.
    pub fn resident(&self) -> Result<Bytes, String> {
        usage::resident(self.child.id())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail only if it ended by itself in the meantime.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Answers the text it gets.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult)]
struct Echo {
    text: String,
}

struct EchoAgent;

impl Agent for EchoAgent {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Echo>();
    }
}

impl SyncHandler<Echo> for EchoAgent {
    fn handle(&mut self, Echo { text }: Echo, _: &mut Cx) -> ToolResult {
        ToolResult::text(text)
    }
}

/// The echo server, until standard input ends.
pub fn serve_echo() -> ExitCode {
    let served: Result<(), String> = actix_web::rt::System::new().block_on(async {
        let system = System::start(1).map_err(|e| e.to_string())?;
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
        let mut options =
            McpServerOptions { access: Access::Open(Trust::LoopbackOperator), ..McpServerOptions::default() };
        // A gateway may open a session a client.
        options.sessions.sessions_max = 4_096;
        options.sessions.of_principal_max = 4_096;
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let listen = ListenOptions { workers, connections_max: 4_096, ..ListenOptions::default() };
        let serving = serve_agent(listener, system.spawn(EchoAgent), options, &listen).map_err(|e| e.to_string())?;
        println!("listening echo http://{}/mcp", serving.address);
        std::thread::spawn(|| {
            std::io::stdin().lines().map_while(Result::ok).for_each(drop);
            std::process::exit(0);
        });
        serving.server.await.map_err(|e| e.to_string())
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("echo: {why}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a bounded wait for another's socket, outside what is measured")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
