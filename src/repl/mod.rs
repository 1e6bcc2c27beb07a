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

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use callboard_message::{CallId, DataClass};
use desk::Desk;
use input::{Completion, Input};
use print::{Log, Screen};
use shell::Shell;

pub(crate) use input::Signals;
pub(crate) use shell::Ended;

use crate::config::Topology;
use crate::node::{Node, NodeError};

/// What a REPL is made of.
pub(crate) struct Setup<'a> {
    /// What the node was started with.
    pub(crate) topology: &'a Topology,
    /// The id of the agent that is talked to.
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) description: String,
    /// What may be kept of what is said.
    pub(crate) class: DataClass,
    /// Where the agent listens once it is told to.
    pub(crate) bind: SocketAddr,
    /// The word of the prompt.
    pub(crate) prompt: String,
    /// Where all that is typed and printed is kept.
    pub(crate) log: Option<PathBuf>,
    /// Where it connects to as it starts, unless somebody says otherwise.
    pub(crate) connect: Option<String>,
    /// Where the lines that were typed are found again.
    pub(crate) history: Option<PathBuf>,
}

/// What is done before the first line is read.
#[derive(Debug, Clone, Default)]
pub(crate) struct First {
    /// Listen there.
    pub(crate) listen: Option<u16>,
    /// Connect to that address.
    pub(crate) connect: Option<String>,
    /// Say that, and read no lines but answers.
    pub(crate) message: Option<String>,
}

/// Talks until nobody has more to say; then the node ends. On an actix arbiter.
///
/// # Errors
/// There is no such agent; the terminal, the log or the output is of no use.
pub(crate) async fn run(node: Node, setup: Setup<'_>, first: First) -> Result<Ended, NodeError> {
    let no_agent = || NodeError::NoOrchestrator { id: Some(setup.id.clone()) };
    let made = Made::of(&setup).map_err(NodeError::from);
    let made = made.and_then(|made| Ok((made, node.orchestrator(&setup.id).ok_or_else(no_agent)?)));
    let (Made { screen, input, signals, completion }, orchestrated) = match made {
        Ok(made) => made,
        Err(error) => {
            node.shutdown().await;
            return Err(error);
        }
    };
    let tasks = node.system().store().tasks.clone();
    let desk = Desk::open(tasks, orchestrated.agent.clone(), &setup.id, setup.class, &screen);
    let session = CallId::fresh().to_string();
    let (remote, listening) = (None, None);
    let mut shell =
        Shell { node, setup, orchestrated, desk, screen, input, signals, completion, session, remote, listening };
    let outcome = talk(&mut shell, first).await;
    shell.node.begins_to_end();
    shell.desk.close().await;
    let failed = shell.screen.failed();
    shell.node.shutdown().await;
    failed.map_or(Ok(outcome), |error| Err(error.into()))
}

async fn talk(shell: &mut Shell<'_>, first: First) -> Ended {
    if let Some(port) = first.listen {
        shell.listen(Some(port)).await;
    }
    if let Some(address) = first.connect {
        shell.connect_to(&address).await;
    }
    match first.message {
        Some(message) => shell.say(&message).await,
        None => {
            shell.welcome();
            shell.run().await;
            Ended::Answered
        }
    }
}

/// What a REPL has of this process.
struct Made {
    screen: Screen,
    input: Input,
    signals: Signals,
    completion: Completion,
}

impl Made {
    fn of(setup: &Setup<'_>) -> io::Result<Self> {
        let screen = Screen::new(setup.log.as_deref().map(Log::open).transpose()?);
        let completion = Completion::default();
        let input = Input::open(&screen, completion.clone(), setup.history.clone())?;
        Ok(Self { screen, input, signals: Signals::listen()?, completion })
    }
}
