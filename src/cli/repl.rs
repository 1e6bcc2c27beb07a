//! `callboard repl`: talk to an agent.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use super::serve::{self, Start};
use super::{EXIT_ANSWERED, EXIT_FAILED, EXIT_INPUT_REQUIRED};
use crate::config::{
    BIDIRECTIONAL_PORT_DEFAULT, Listener, ModeDeclaration, OrchestratorDeclaration, Protocol, Topology,
};
use crate::node::{Node, NodeError};
use crate::repl::{self, Ended, First, Setup};

/// The word of the prompt.
const PROMPT_DEFAULT: &str = "agent";
/// The lines that were typed, beside the store.
const HISTORY_FILE: &str = "repl_history";
/// Endings of names that are a file's, whether it is there or not.
const FILE_ENDINGS: [&str; 3] = ["toml", "yaml", "yml"];
/// The agent that no file declares: one of the bidirectional agent's files, with all that it can. Its model is asked with the key
/// that a variable holds; without one rules decide.
const OWN: &str = "experimental_clarification = true\nexperimental_decomposition = true\n[mode]\nrepl = true\n";

#[derive(Debug, clap::Args)]
pub(super) struct ReplArguments {
    /// A topology file, `example:NAME`, or the address of an agent elsewhere to connect to. Without it, an agent of its own.
    #[arg(value_name = "CONFIG|ADDRESS")]
    target: Option<String>,
    /// Which orchestrator of the file; without it, the first.
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// Listen on this port from the start.
    #[arg(long, value_name = "PORT")]
    listen: Option<u16>,
    /// Where agents keep their data. Without it, beside the file; without a file, in memory.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Say this, print the answer and end. Exit code: 0 answered, 4 failed, 5 the agent asks and nobody answered.
    #[arg(long, value_name = "TEXT")]
    message: Option<String>,
}

/// Runs it.
pub(super) async fn run(arguments: &ReplArguments) -> super::Outcome {
    let embedded =
        Embedded::choose(arguments.target.as_deref(), arguments.agent.as_deref(), arguments.state.as_deref())?;
    if let Source::File(start) = &embedded.source {
        start.warn();
    }
    let node = embedded.start().await?;
    let setup = embedded.setup();
    let connect = embedded.connect.clone().or(setup.connect.clone());
    let first = First { listen: arguments.listen, connect, message: arguments.message.clone() };
    Ok(match repl::run(node, setup, first).await? {
        Ended::Answered => EXIT_ANSWERED,
        Ended::Failed => EXIT_FAILED,
        Ended::Asks => EXIT_INPUT_REQUIRED,
    })
}

/// A node of this process, and the orchestrator of it that is talked to.
pub(super) struct Embedded {
    source: Source,
    /// Which orchestrator.
    pub(super) id: String,
    /// Where to connect to first.
    connect: Option<String>,
}

enum Source {
    File(Box<Start>),
    /// One that no file declares, with a folder for its data, if it has one.
    Own(Box<Topology>, Option<PathBuf>),
}

impl Embedded {
    /// What `target` names: a file that is there, else an address. `agent`: which orchestrator of the file.
    ///
    /// # Errors
    /// The file is of no use, or has no such orchestrator.
    pub(super) fn choose(target: Option<&str>, agent: Option<&str>, state: Option<&Path>) -> Result<Self, NodeError> {
        let is_file = |target: &&str| is_file(target);
        let source = match target.filter(is_file) {
            Some(file) => Source::File(Box::new(serve::read(file, state)?)),
            None => Source::Own(Box::new(Topology::parse(OWN, false, Path::new(""))?), state.map(Path::to_owned)),
        };
        let connect = target.filter(|target| !is_file(target)).map(str::to_owned);
        let mut all = source.topology().agents().map(|declared: &OrchestratorDeclaration| declared.id.clone());
        let id = all.find(|id| agent.is_none_or(|wanted| id == wanted));
        drop(all);
        let id = id.ok_or_else(|| NodeError::NoOrchestrator { id: agent.map(str::to_owned) })?;
        Ok(Self { source, id, connect })
    }

    /// Starts it, with its listeners closed. On an actix arbiter.
    ///
    /// # Errors
    /// See [`NodeError`].
    pub(super) async fn start(&self) -> Result<Node, NodeError> {
        match &self.source {
            Source::File(start) => Node::start_embedded(&start.topology, &start.state).await,
            Source::Own(topology, Some(state)) => Node::start_embedded(topology, state).await,
            Source::Own(topology, None) => Node::start_agents(topology, Path::new("")).await,
        }
    }

    fn setup(&self) -> Setup<'_> {
        let quiet = ModeDeclaration::default();
        let topology = self.source.topology();
        let declared = topology.orchestrator(&self.id);
        let mode = topology.mode.as_ref().unwrap_or(&quiet);
        let is_a2a = |listener: &&Listener| listener.protocol == Protocol::A2a;
        let bind = topology.listeners.iter().find(is_a2a).map(|listener| listener.bind);
        let state = match &self.source {
            Source::File(start) => Some(&*start.state),
            Source::Own(_, state) => state.as_deref(),
        };
        Setup {
            topology,
            id: self.id.clone(),
            name: declared.map(OrchestratorDeclaration::name).unwrap_or_default().to_owned(),
            description: declared.and_then(|declared| declared.description.clone()).unwrap_or_default(),
            class: declared.map(|declared| declared.class).unwrap_or_default(),
            bind: bind.unwrap_or((Ipv4Addr::LOCALHOST, BIDIRECTIONAL_PORT_DEFAULT).into()),
            prompt: mode.prompt.clone().unwrap_or_else(|| PROMPT_DEFAULT.to_owned()),
            log: mode.repl_log_file.clone(),
            connect: mode.target_url.clone(),
            history: state.map(|state| state.join(HISTORY_FILE)),
        }
    }
}

impl Source {
    fn topology(&self) -> &Topology {
        match self {
            Self::File(start) => &start.topology,
            Self::Own(topology, _) => topology,
        }
    }
}

/// Whether a file is meant: one that is there, an example, or what is named like one.
pub(super) fn is_file(target: &str) -> bool {
    let path = Path::new(target);
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    target.starts_with("example:") || path.is_file() || (!target.contains("://") && FILE_ENDINGS.contains(&ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the agent without a file is one that can be talked to. Method: choose it, alone and with somebody to connect to.
    #[test]
    fn the_own_agent_is_sound() {
        let own = Embedded::choose(None, None, None).unwrap();
        let setup = own.setup();
        assert_eq!((&*setup.id, &*setup.name), ("bidirectional-agent", "Bidirectional A2A Agent"));
        assert_eq!(setup.bind, "127.0.0.1:8080".parse().unwrap());
        let connecting = Embedded::choose(Some("localhost:8081"), None, None).unwrap();
        assert_eq!(connecting.connect.as_deref(), Some("localhost:8081"));
        let wrong = Embedded::choose(None, Some("other"), None).err().unwrap();
        assert!(wrong.is_usage(), "{wrong}");
    }

    /// Goal: what is there is a file, what isn't is an address, and a file that is missing isn't taken for one. Method: rows.
    #[test]
    fn files_and_addresses() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("localhost");
        std::fs::write(&file, "").unwrap();
        for (target, is) in [
            (file.to_str().unwrap(), true),
            ("example:agent1", true),
            ("missing.toml", true),
            ("localhost:8080", false),
            ("http://agent.example/card.toml", false),
            ("agent2", false),
        ] {
            assert_eq!(is_file(target), is, "{target}");
        }
    }
}
