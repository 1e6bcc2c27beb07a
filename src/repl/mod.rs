//! The REPL: a node in this process, and a person who talks to one of its agents.
//!
//! `shell` reads lines and does what they mean: `command` and `words` read them, `desk` has what was said as tasks, `answer` and
//! `ask` show what comes of those, `remote` is the agent that one is connected to, `views` are lists and details, `steps` those of plans. `input` is
//! where lines come from, a terminal or a pipe; everything that is printed goes through one `Screen` (`print`).

mod answer;
mod command;
mod desk;
mod input;
mod print;
mod remote;
mod shell;
mod views;

use std::net::SocketAddr;
use std::path::PathBuf;

use callboard_message::CallId;
use command::Whom;
use desk::Desk;
use input::Input;
use print::{Log, Screen};
use shell::Shell;

pub(crate) use input::Signals;
pub(crate) use shell::Ended;

use crate::config::{ModeDeclaration, OrchestratorDeclaration, Topology};
use crate::node::{Node, NodeError};

/// What a REPL is made of.
pub(crate) struct Setup<'a> {
    /// What the node was started with.
    pub(crate) topology: &'a Topology,
    /// The agent that is talked to.
    pub(crate) agent: &'a OrchestratorDeclaration,
    pub(crate) mode: ModeDeclaration,
    /// Where the agent listens once it is told to.
    pub(crate) bind: SocketAddr,
    /// Where the lines that were typed are found again.
    pub(crate) history: Option<PathBuf>,
    /// Where it listens before the first line is read.
    pub(crate) listen: Option<u16>,
    /// Where it connects to before the first line is read.
    pub(crate) connect: Option<String>,
    /// What it says in place of reading lines: only answers are read.
    pub(crate) message: Option<String>,
}

/// Talks until nobody has more to say; then the node ends. On an actix arbiter.
///
/// # Errors
/// There is no such agent; the terminal, the log or the output is of no use.
pub(crate) async fn run(node: Node, setup: Setup<'_>) -> Result<Ended, NodeError> {
    let id = &setup.agent.id;
    let open = || {
        let screen = Screen::new(
            setup
                .mode
                .repl_log_file
                .as_deref()
                .map(Log::open)
                .transpose()?,
        );
        let input = Input::open(&screen, setup.history.clone())?;
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
    let desk = Desk::open(tasks, orchestrated.agent.clone(), setup.agent, &screen);
    let session = CallId::fresh().to_string();
    let mut shell = Shell {
        node,
        setup,
        orchestrated,
        desk,
        screen,
        input,
        session,
        remote: None,
        listening: None,
    };
    let outcome = talk(&mut shell).await;
    shell.node.begins_to_end();
    shell.desk.close().await;
    let failed = shell.screen.failed();
    shell.node.shutdown().await;
    failed.map_or(Ok(outcome), |error| Err(error.into()))
}

async fn talk(shell: &mut Shell<'_>) -> Ended {
    if shell.setup.listen.is_some() {
        shell.listen(shell.setup.listen).await;
    }
    if let Some(address) = shell.setup.connect.take() {
        shell.connect(Whom::Address(address)).await;
    }
    match shell.setup.message.take() {
        Some(message) => shell.say(&message).await,
        None => {
            shell.welcome();
            shell.run().await;
            Ended::Answered
        }
    }
}
