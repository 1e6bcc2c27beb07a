//! The contestants: this program again, as a server that says what CPU time it has used.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use axum::serve::ListenerExt;
use callboard::mcp::inbound::{ListenOptions, McpServerOptions, serve as serve_agent};
use callboard::message::ToolResult;
use callboard::{Agent, Cx, Handlers, Message, SyncHandler, System};
use callboard_rpc::{Access, Trust};
use cpu_time::ProcessTime;
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{CallToolResult, ContentBlock};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, tool, tool_router};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who serves.
#[derive(Clone, Copy)]
pub enum Contestant {
    /// rmcp's streamable HTTP server on axum.
    Rmcp,
    /// Ours.
    Callboard,
}

impl Contestant {
    /// Both, in the order of the table.
    pub const ALL: [Self; 2] = [Self::Rmcp, Self::Callboard];

    fn name(self) -> &'static str {
        match self {
            Self::Rmcp => "rmcp",
            Self::Callboard => "callboard",
        }
    }
}

/// A contestant's process, ended when it is dropped.
pub struct Served {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Served {
    /// Starts it and waits until it listens.
    pub fn start(contestant: Contestant) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut command = Command::new(program);
        command.args(["--serve", contestant.name()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| format!("{} can't be started: {e}", contestant.name()))?;
        let (Some(questions), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a child without pipes".to_owned());
        };
        let mut answers = BufReader::new(answers);
        let address = line(&mut answers)?.parse().map_err(|e| format!("not an address: {e}"))?;
        Ok(Self { child, questions, answers, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The CPU time that it has used so far.
    pub fn cpu_time(&mut self) -> Result<Duration, String> {
        self.questions.write_all(b"\n").map_err(|e| e.to_string())?;
        let nanos = line(&mut self.answers)?.parse().map_err(|e| format!("not a time: {e}"))?;
        Ok(Duration::from_nanos(nanos))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Both fail only if it ended by itself in the meantime.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn line(answers: &mut BufReader<ChildStdout>) -> Result<String, String> {
    let mut line = String::new();
    answers.read_line(&mut line).map_err(|e| e.to_string())?;
    Ok(line.trim().to_owned())
}

/// The other side: serves until standard input ends.
pub fn serve(name: &str) -> ExitCode {
    let served = match name {
        "rmcp" => serve_rmcp(),
        "callboard" => serve_callboard(),
        other => Err(format!("no contestant {other}")),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{name}: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Says the address, then the CPU time for each line that comes in. A thread of its own; ends the process.
fn report(address: SocketAddr) {
    println!("{address}");
    std::thread::spawn(|| {
        for _ in std::io::stdin().lines().map_while(Result::ok) {
            println!("{}", ProcessTime::now().as_duration().as_nanos());
        }
        std::process::exit(0);
    });
}

#[derive(Deserialize, Serialize, JsonSchema)]
struct EchoArguments {
    text: String,
}

#[derive(Clone)]
struct RmcpEcho;

#[tool_router(server_handler)]
impl RmcpEcho {
    #[tool(description = "Answers the text it gets.")]
    async fn echo(&self, Parameters(echo): Parameters<EchoArguments>) -> Result<CallToolResult, ErrorData> {
        Ok(CallToolResult::success(vec![ContentBlock::text(echo.text)]))
    }
}

/// As its documentation sets it up; JSON answers where it can give them, and no delay on its sockets.
fn serve_rmcp() -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(async {
        let config = StreamableHttpServerConfig::default().with_json_response(true).with_sse_keep_alive(None);
        let sessions = Arc::new(LocalSessionManager::default());
        let service = StreamableHttpService::new(|| Ok(RmcpEcho), sessions, config);
        let router = axum::Router::new().nest_service("/mcp", service);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.map_err(|e| e.to_string())?;
        report(listener.local_addr().map_err(|e| e.to_string())?);
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        axum::serve(listener, router).await.map_err(|e| e.to_string())
    })
}

/// Answers the text it gets.
#[derive(Message, Serialize, Deserialize, JsonSchema)]
#[message(reply = ToolResult)]
struct Echo {
    text: String,
}

struct CallboardEcho;

impl Agent for CallboardEcho {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Echo>();
    }
}

impl SyncHandler<Echo> for CallboardEcho {
    fn handle(&mut self, Echo { text }: Echo, _: &mut Cx) -> ToolResult {
        ToolResult::text(text)
    }
}

/// With as many workers as rmcp's runtime has.
fn serve_callboard() -> Result<(), String> {
    actix_web::rt::System::new().block_on(async {
        let system = System::start(1).map_err(|e| e.to_string())?;
        let listener = TcpListener::bind("127.0.0.1:0").map_err(|e| e.to_string())?;
        let options = McpServerOptions { access: Access::Open(Trust::LoopbackOperator), ..McpServerOptions::default() };
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let listen = ListenOptions { workers, ..ListenOptions::default() };
        let serving =
            serve_agent(listener, system.spawn(CallboardEcho), options, &listen).map_err(|e| e.to_string())?;
        report(serving.address);
        serving.server.await.map_err(|e| e.to_string())
    })
}
