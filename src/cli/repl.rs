//! `callboard repl`: talk to an agent.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use super::address::Address;
use super::serve::{self, LoadedTopology};
use super::{CommandError, EXIT_ANSWERED, EXIT_FAILED, EXIT_INPUT_REQUIRED};
use crate::config::{
    BIDIRECTIONAL_PORT_DEFAULT, ListenerDeclaration, ListenerProtocol, OrchestratorDeclaration,
    StoreDeclaration, Topology,
};
use crate::node::{Node, NodeError};
use crate::repl::{self, ReplOptions, ReplOutcome};

/// Name of the file in the state directory that keeps the lines typed at the prompt.
const HISTORY_FILE: &str = "repl_history";
/// Topology used without a file: a bidirectional agent with all features. Its model needs a key in
/// an environment variable; without one, rules decide.
const DEFAULT_TOPOLOGY: &str =
    "experimental_clarification = true\nexperimental_decomposition = true\n[mode]\nrepl = true\n";

#[derive(Debug, clap::Args)]
pub(super) struct ReplArguments {
    /// Topology file, `example:NAME`, or address of a remote agent to connect to. Without it, a
    /// default agent runs in this process.
    #[arg(value_name = "CONFIG|ADDRESS")]
    target: Option<String>,
    /// Orchestrator of the file. The default is the first.
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    /// Port to listen on from the start.
    #[arg(long, value_name = "PORT")]
    listen: Option<u16>,
    /// Serve anybody who reaches the address, without a key, also beyond this machine.
    #[arg(long, requires = "listen")]
    anonymous: bool,
    /// Folder for the agents' data. The default is the file's own folder; without a file, data is
    /// kept in memory.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Send this text, print the answer and end. Exit code: 0 answered, 4 failed, 5 the agent needs
    /// an answer first.
    #[arg(long, value_name = "TEXT")]
    message: Option<String>,
}

/// Runs `callboard repl`.
pub(super) async fn run(
    ReplArguments {
        target,
        agent,
        listen,
        anonymous,
        state,
        message,
    }: ReplArguments,
) -> super::CommandResult {
    let embedded = EmbeddedNode::resolve(target.as_deref(), agent, state.as_deref())?;
    let setup = ReplOptions {
        listen,
        anonymous,
        message,
        ..embedded.repl_options()?
    };
    embedded.loaded.print_warnings();
    Ok(
        match repl::run_repl(embedded.start_node().await?, setup).await? {
            ReplOutcome::Answered => EXIT_ANSWERED,
            ReplOutcome::Failed => EXIT_FAILED,
            ReplOutcome::InputRequired => EXIT_INPUT_REQUIRED,
        },
    )
}

/// Node in this process, and the orchestrator that answers.
pub(super) struct EmbeddedNode {
    loaded: LoadedTopology,
    /// Whether the node has a folder for its data, in which typed lines are kept too.
    has_data_folder: bool,
    /// Chosen orchestrator; `None`: the first.
    agent: Option<String>,
    /// Address of a remote agent to connect to at the start; `None` for none.
    connect: Option<String>,
}

impl EmbeddedNode {
    /// Loads the topology that `target` names, or the default one if `target` is remote or absent.
    /// `agent` is the id of an orchestrator in it.
    ///
    /// # Errors
    /// Usage error if `target` is neither a file nor an address, or if the file can't be used.
    pub(super) fn resolve(
        target: Option<&str>,
        agent: Option<String>,
        state: Option<&Path>,
    ) -> Result<Self, CommandError> {
        let (file, connect) = match target.map(Address::parse).transpose()? {
            Some(Address::File(file)) => (Some(file), None),
            Some(Address::Remote(typed)) => (None, Some(typed)),
            None => (None, None),
        };
        let is_kept = file.is_some() || state.is_some();
        let start = match file {
            Some(file) => serve::load_topology(&file, state)?,
            None => {
                let mut topology = Topology::parse(DEFAULT_TOPOLOGY, false, Path::new(""))?;
                if state.is_none() {
                    topology.add_section_if_absent(StoreDeclaration::in_memory());
                }
                LoadedTopology::without_file(topology, state.unwrap_or(Path::new("")))
            }
        };
        Ok(Self {
            loaded: start,
            has_data_folder: is_kept,
            agent,
            connect,
        })
    }

    /// Returns the chosen orchestrator; without a choice, the first in the file.
    ///
    /// # Errors
    /// [`NodeError::NoOrchestrator`] if the file declares none, or not the chosen one.
    pub(super) fn orchestrator(&self) -> Result<&OrchestratorDeclaration, NodeError> {
        let is_wanted = |declared: &&OrchestratorDeclaration| {
            self.agent
                .as_ref()
                .is_none_or(|wanted| declared.id == *wanted)
        };
        let declared = self.loaded.topology.agents_of_kind().find(is_wanted);
        declared.ok_or_else(|| NodeError::NoOrchestrator {
            id: self.agent.clone(),
        })
    }

    /// Returns the chosen orchestrator; without a choice, the only one.
    ///
    /// # Errors
    /// Usage error if there is none, or if there are several and none is chosen.
    pub(super) fn only_orchestrator(
        &self,
        file: &str,
    ) -> Result<&OrchestratorDeclaration, CommandError> {
        let declared = self
            .loaded
            .topology
            .agents_of_kind()
            .map(|declared: &OrchestratorDeclaration| &*declared.id);
        let ids: Vec<&str> = declared.collect();
        if self.agent.is_none() && ids.len() > 1 {
            let (first, all) = (ids.first().copied().unwrap_or_default(), ids.join(", "));
            return Err(CommandError::usage(format_args!(
                "{file} declares several orchestrators ({all}): choose one, for example ask --to {file} --agent {first}"
            )));
        }
        Ok(self.orchestrator()?)
    }

    /// Starts the node with its listeners closed. Must be called on an actix arbiter.
    ///
    /// # Errors
    /// See [`NodeError`].
    pub(super) async fn start_node(&self) -> Result<Node, NodeError> {
        Node::start_embedded(&self.loaded.topology, &self.loaded.state).await
    }

    fn repl_options(&self) -> Result<ReplOptions<'_>, NodeError> {
        let LoadedTopology {
            topology, state, ..
        } = &self.loaded;
        let mode = topology.mode.clone().unwrap_or_default();
        let is_a2a = |listener: &&ListenerDeclaration| listener.protocol == ListenerProtocol::A2a;
        let bind = topology
            .listeners
            .iter()
            .find(is_a2a)
            .map(|listener| listener.bind);
        Ok(ReplOptions {
            topology,
            agent: self.orchestrator()?,
            bind: bind.unwrap_or((Ipv4Addr::LOCALHOST, BIDIRECTIONAL_PORT_DEFAULT).into()),
            connect: self.connect.clone().or(mode.target_url.clone()),
            mode,
            history: self.has_data_folder.then(|| state.join(HISTORY_FILE)),
            listen: None,
            anonymous: false,
            message: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the agent without a file is one that can be talked to. Method: choose it, alone and with somebody to connect to.
    #[test]
    fn the_own_agent_is_sound() {
        let own = EmbeddedNode::resolve(None, None, None).unwrap();
        let setup = own.repl_options().unwrap();
        assert_eq!(
            (&*setup.agent.id, setup.agent.name()),
            ("bidirectional-agent", "Bidirectional A2A Agent")
        );
        assert_eq!(setup.bind, "127.0.0.1:8080".parse().unwrap());
        let connecting = EmbeddedNode::resolve(Some("localhost:8081"), None, None).unwrap();
        assert_eq!(connecting.connect.as_deref(), Some("localhost:8081"));
        let other = EmbeddedNode::resolve(None, Some("other".to_owned()), None).unwrap();
        let wrong = other.orchestrator().err().unwrap();
        assert!(wrong.is_usage(), "{wrong}");
    }

    /// Goal: one of several orchestrators is chosen, not guessed. Method: a file with two, without a choice and with each.
    #[test]
    fn several_orchestrators_need_a_choice() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("two.toml");
        let agent = |id: &str| format!("[[agent]]\nkind = \"orchestrator\"\nid = \"{id}\"\n");
        std::fs::write(
            &file,
            format!("[node]\nname = \"n\"\n{}{}", agent("a"), agent("b")),
        )
        .unwrap();
        let file = file.to_str().unwrap();
        let chosen = |id: Option<&str>| {
            EmbeddedNode::resolve(Some(file), id.map(str::to_owned), None).unwrap()
        };
        let refused = chosen(None)
            .only_orchestrator("two.toml")
            .err()
            .unwrap()
            .message;
        assert!(
            refused.contains("(a, b)") && refused.contains("--agent a"),
            "{refused}"
        );
        for id in ["a", "b"] {
            assert_eq!(
                chosen(Some(id)).only_orchestrator("two.toml").unwrap().id,
                id
            );
        }
        assert!(chosen(Some("c")).only_orchestrator("two.toml").is_err());
    }
}
