//! The REPL: a node in this process, and a person who talks to one of its agents.
//!
//! `shell` runs typed lines, which `command` parses. `task_session` keeps messages as tasks. `answer`
//! prints their answers, `views` formats lists and details, `remote` is the connection to another
//! agent, `input` reads lines and answers, and `print` writes all output.

mod answer;
mod command;
mod input;
mod print;
mod remote;
mod shell;
mod task_session;
mod views;

use std::net::SocketAddr;
use std::path::PathBuf;

use callboard_message::CallId;
use command::ConnectTarget;
use input::LineInput;
use print::{ReplLog, Screen};
use shell::Shell;
use task_session::TaskSession;

pub(crate) use input::ProcessSignals;
pub(crate) use shell::ReplOutcome;

use crate::config::{OrchestratorDeclaration, ReplDeclaration, Topology};
use crate::node::{Node, NodeError};

/// Options of a REPL.
pub(crate) struct ReplOptions<'a> {
    /// Topology of the node.
    pub(crate) topology: &'a Topology,
    /// Declaration of the agent that the user talks to.
    pub(crate) agent: &'a OrchestratorDeclaration,
    pub(crate) mode: ReplDeclaration,
    /// Address for `:listen`.
    pub(crate) bind: SocketAddr,
    /// File of the line history; `None` keeps it in memory.
    pub(crate) history: Option<PathBuf>,
    /// Port to listen on from the start.
    pub(crate) listen: Option<u16>,
    /// Whether that listener serves clients without a credential at an address that isn't loopback.
    pub(crate) anonymous: bool,
    /// Address to connect to at the start.
    pub(crate) connect: Option<String>,
    /// Message to send instead of reading commands; input then only answers questions.
    pub(crate) message: Option<String>,
}

/// Runs the REPL until the input ends or the user quits, then stops the node. Needs an actix
/// arbiter.
///
/// # Errors
/// [`NodeError`] if the agent doesn't exist, or if terminal, log file or standard output can't be
/// used.
pub(crate) async fn run_repl(node: Node, setup: ReplOptions<'_>) -> Result<ReplOutcome, NodeError> {
    let id = &setup.agent.id;
    let open = || {
        let screen = Screen::new(
            setup
                .mode
                .repl_log_file
                .as_deref()
                .map(ReplLog::open)
                .transpose()?,
        );
        let input = LineInput::open(&screen, setup.history.clone())?;
        let orchestrated = node
            .orchestrator(id)
            .ok_or_else(|| NodeError::NoOrchestrator {
                id: Some(id.clone()),
            })?;
        Ok((screen, input, orchestrated))
    };
    let (screen, input, orchestrated) = match open() {
        Ok(opened) => opened,
        Err(error) => {
            node.shutdown().await;
            return Err(error);
        }
    };
    let tasks = node.system().store().tasks.clone();
    let desk = TaskSession::open(tasks, orchestrated.agent.clone(), setup.agent, &screen);
    let session = CallId::generate().to_string();
    let mut shell = Shell {
        node,
        options: setup,
        orchestrator: orchestrated,
        tasks: desk,
        screen,
        input,
        session_id: session,
        remote: None,
        listen_address: None,
    };
    let outcome = run_shell(&mut shell).await;
    shell.node.begin_shutdown();
    shell.tasks.stop().await;
    let failed = shell.screen.take_error();
    shell.node.shutdown().await;
    failed.map_or(Ok(outcome), |error| Err(error.into()))
}

async fn run_shell(shell: &mut Shell<'_>) -> ReplOutcome {
    if shell.options.listen.is_some() {
        let (port, anonymous) = (shell.options.listen, shell.options.anonymous);
        shell.listen(port, anonymous).await;
    }
    if let Some(address) = shell.options.connect.take() {
        shell.connect(ConnectTarget::Address(address)).await;
    }
    match shell.options.message.take() {
        Some(message) => shell.send_to_agent(&message).await,
        None => {
            shell.print_welcome();
            shell.run_commands().await;
            ReplOutcome::Answered
        }
    }
}
