//! `callboard repl`: talk to an agent.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use super::serve::{self, Start};
use super::{EXIT_ANSWERED, EXIT_FAILED, EXIT_INPUT_REQUIRED};
use crate::config::{
    BIDIRECTIONAL_PORT_DEFAULT, Listener, OrchestratorDeclaration, Protocol, StoreDeclaration,
    Topology,
};
use crate::node::{Node, NodeError};
use crate::repl::{self, Ended, Setup};

/// The lines that were typed, beside the store.
const HISTORY_FILE: &str = "repl_history";
/// Endings of names that are a file's, whether it is there or not.
const FILE_ENDINGS: [&str; 3] = ["toml", "yaml", "yml"];
/// The agent that no file declares: one of the bidirectional agent's files, with all that it can. Its model is asked with the key
/// that a variable holds; without one rules decide.
const OWN: &str =
    "experimental_clarification = true\nexperimental_decomposition = true\n[mode]\nrepl = true\n";

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
pub(super) async fn run(
    ReplArguments {
        target,
        agent,
        listen,
        state,
        message,
    }: ReplArguments,
) -> super::Outcome {
    let embedded = Embedded::choose(target.as_deref(), agent, state.as_deref())?;
    let setup = Setup {
        listen,
        message,
        ..embedded.setup()?
    };
    embedded.start.warn();
    Ok(match repl::run(embedded.node().await?, setup).await? {
        Ended::Answered => EXIT_ANSWERED,
        Ended::Failed => EXIT_FAILED,
        Ended::Asks => EXIT_INPUT_REQUIRED,
    })
}

/// A node of this process, and the orchestrator of it that is talked to.
pub(super) struct Embedded {
    start: Start,
    /// Whether there is a folder for its data.
    is_kept: bool,
    /// Which orchestrator; without it, the first.
    agent: Option<String>,
    /// Where to connect to first.
    connect: Option<String>,
}

impl Embedded {
    /// What `target` names: a file that is there, else an address. `agent`: which orchestrator of the file.
    ///
    /// # Errors
    /// The file is of no use.
    pub(super) fn choose(
        target: Option<&str>,
        agent: Option<String>,
        state: Option<&Path>,
    ) -> Result<Self, NodeError> {
        let file = target.filter(|target| is_file(target));
        let is_kept = file.is_some() || state.is_some();
        let start = match file {
            Some(file) => serve::read(file, state)?,
            None => {
                let mut topology = Topology::parse(OWN, false, Path::new(""))?;
                if state.is_none() {
                    topology.declare(StoreDeclaration::in_memory());
                }
                Start::of(topology, state.unwrap_or(Path::new("")))
            }
        };
        let connect = target.filter(|_| file.is_none()).map(str::to_owned);
        Ok(Self {
            start,
            is_kept,
            agent,
            connect,
        })
    }

    /// The orchestrator that is talked to.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn declared(&self) -> Result<&OrchestratorDeclaration, NodeError> {
        let is_wanted = |declared: &&OrchestratorDeclaration| {
            self.agent
                .as_ref()
                .is_none_or(|wanted| declared.id == *wanted)
        };
        let declared = self.start.topology.agents().find(is_wanted);
        declared.ok_or_else(|| NodeError::NoOrchestrator {
            id: self.agent.clone(),
        })
    }

    /// Starts it, with its listeners closed. On an actix arbiter.
    ///
    /// # Errors
    /// See [`NodeError`].
    pub(super) async fn node(&self) -> Result<Node, NodeError> {
        Node::start_embedded(&self.start.topology, &self.start.state).await
    }

    fn setup(&self) -> Result<Setup<'_>, NodeError> {
        let Start {
            topology, state, ..
        } = &self.start;
        let mode = topology.mode.clone().unwrap_or_default();
        let is_a2a = |listener: &&Listener| listener.protocol == Protocol::A2a;
        let bind = topology
            .listeners
            .iter()
            .find(is_a2a)
            .map(|listener| listener.bind);
        Ok(Setup {
            topology,
            agent: self.declared()?,
            bind: bind.unwrap_or((Ipv4Addr::LOCALHOST, BIDIRECTIONAL_PORT_DEFAULT).into()),
            connect: self.connect.clone().or(mode.target_url.clone()),
            mode,
            history: self.is_kept.then(|| state.join(HISTORY_FILE)),
            listen: None,
            message: None,
        })
    }
}

/// Whether a file is meant: one that is there, an example, or what is named like one.
pub(super) fn is_file(target: &str) -> bool {
    let path = Path::new(target);
    let ending = path
        .extension()
        .and_then(|ending| ending.to_str())
        .unwrap_or_default();
    target.starts_with("example:")
        || path.is_file()
        || (!target.contains("://") && FILE_ENDINGS.contains(&ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the agent without a file is one that can be talked to. Method: choose it, alone and with somebody to connect to.
    #[test]
    fn the_own_agent_is_sound() {
        let own = Embedded::choose(None, None, None).unwrap();
        let setup = own.setup().unwrap();
        assert_eq!(
            (&*setup.agent.id, setup.agent.name()),
            ("bidirectional-agent", "Bidirectional A2A Agent")
        );
        assert_eq!(setup.bind, "127.0.0.1:8080".parse().unwrap());
        let connecting = Embedded::choose(Some("localhost:8081"), None, None).unwrap();
        assert_eq!(connecting.connect.as_deref(), Some("localhost:8081"));
        let other = Embedded::choose(None, Some("other".to_owned()), None).unwrap();
        let wrong = other.declared().err().unwrap();
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
