//! The servers, each in a process of its own.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};

use callboard::a2a::inbound::{A2A_PATH, A2aOptions, A2aServer, NamedAgents};
use callboard::message::capabilities::Converse;
use callboard::message::{Failure, ToolResult};
use callboard::rpc::serve::ListenOptions;
use callboard::{Agent, Context, Handlers, SyncHandler, System};
use callboard_rpc::{AccessControl, UnauthenticatedAccess};

use crate::kit::Running;

/// More tasks than a round has: all are kept, as the other does.
const TASKS_MAX: usize = 1_000_000;

/// Server under measurement.
#[derive(Clone, Copy)]
pub enum Server<'a> {
    /// The official Rust SDK's, by its program.
    Other(&'a Path),
    /// This program again.
    Ours,
}

impl Server<'_> {
    /// Returns the path of its JSON-RPC endpoint.
    pub fn path(self) -> &'static str {
        match self {
            Self::Other(_) => "/",
            Self::Ours => A2A_PATH,
        }
    }

    /// Starts it, on as many threads as there are cores, and waits until it listens.
    pub fn start(self) -> Result<(Running, SocketAddr), String> {
        let free =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
        let address = free.map_err(|e| e.to_string())?;
        let threads = std::thread::available_parallelism()
            .map_or(1, usize::from)
            .to_string();
        let port = address.port().to_string();
        let mut command = match self {
            Self::Other(program) => {
                let mut command = Command::new(program);
                command.args(["echo", &port, &threads]);
                command
            }
            Self::Ours => {
                let mut command = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
                command.args(["--serve", &port, &threads]);
                command
            }
        };
        Ok((
            Running::start(command.stdout(Stdio::null()))?.listens(address)?,
            address,
        ))
    }
}

struct Echo;

impl Agent for Echo {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Converse>();
    }
}

impl SyncHandler<Converse> for Echo {
    fn handle(&mut self, said: Converse, _: &mut Context) -> Result<ToolResult, Failure> {
        Ok(ToolResult::text(said.texts()))
    }
}

/// Serves the echo until the process is ended.
pub fn serve(port: u16, workers: usize) -> Result<bool, String> {
    actix_web::rt::System::new().block_on(async {
        let system = System::start(1).map_err(|e| e.to_string())?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(|e| e.to_string())?;
        let base = format!("http://127.0.0.1:{port}")
            .parse()
            .map_err(|_| "no URL".to_owned())?;
        let mut options = A2aOptions::new(base);
        options.access = AccessControl::Open(UnauthenticatedAccess::LoopbackOperator);
        (options.tasks.tasks_max, options.tasks.owner_tasks_max) = (TASKS_MAX, TASKS_MAX);
        let server = A2aServer::new(system.spawn(Echo), options);
        let listen = ListenOptions {
            workers,
            ..ListenOptions::default()
        };
        let serving =
            callboard::a2a::inbound::serve(listener, server, NamedAgents::default(), &listen);
        serving
            .map_err(|e| e.to_string())?
            .server
            .await
            .map(|()| false)
            .map_err(|e| e.to_string())
    })
}
