//! The topology file: which agents there are, who listens, which clinics a host may ask.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use callboard_agents::clinic::ClinicConfig;
use callboard_agents::plan::{Registry, RegistryError};
use serde::Deserialize;

/// The largest topology file that is read, in bytes.
pub const TOPOLOGY_BYTES_MAX: u64 = 1024 * 1024;

/// A checked topology: its names fit together, its paths are resolved.
#[derive(Debug)]
pub struct Topology {
    /// The node's name.
    pub name: String,
    /// The agents to start.
    pub agents: Vec<AgentDeclaration>,
    /// The sockets to open, each in front of one of the agents.
    pub listeners: Vec<Listener>,
    /// The clinics that an orchestrator on this node may ask.
    pub registry: Registry,
}

/// An agent to start.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum AgentDeclaration {
    /// A clinic: a data silo with four tools. Its database is relative to the state directory, its seed to the file.
    Clinic(ClinicConfig),
}

impl AgentDeclaration {
    fn id(&self) -> &str {
        match self {
            Self::Clinic(clinic) => &clinic.id,
        }
    }
}

/// A socket in front of an agent.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// The protocol spoken.
    pub protocol: Protocol,
    /// Its dialect.
    pub dialect: Dialect,
    /// Where to listen; port 0 is a free one.
    pub bind: SocketAddr,
    /// The agent's id.
    pub agent: String,
    /// What a peer without a credential is.
    #[serde(default)]
    pub trust: Trust,
}

/// A protocol for listeners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// Model Context Protocol.
    Mcp,
}

/// A dialect of a protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// One JSON-RPC `tools/call` a POST, without handshake or session.
    Bare,
}

/// What a peer without a credential is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// Nobody in particular.
    #[default]
    Anonymous,
    /// The local operator: for development, on loopback addresses only.
    LoopbackOperator,
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    node: NodeDeclaration,
    #[serde(default, rename = "agent")]
    agents: Vec<AgentDeclaration>,
    #[serde(default, rename = "listener")]
    listeners: Vec<Listener>,
    #[serde(default, rename = "clinic")]
    clinics: Vec<callboard_agents::plan::ClinicEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeDeclaration {
    name: String,
}

/// Why a topology can't be used; each names the place to change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Check the path and its permissions.
    #[error("failed to read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Split the file.
    #[error("{path} has more than {TOPOLOGY_BYTES_MAX} bytes")]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// Correct the line named.
    #[error("{path}: {message}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        message: String,
    },
    /// Rename one of the two.
    #[error("two agents are called {id}")]
    SameId {
        /// The id that both have.
        id: String,
    },
    /// Declare the agent, or point the listener at another.
    #[error("the listener on {bind} is for agent {agent}, which isn't declared")]
    NoSuchAgent {
        /// Where it would listen.
        bind: SocketAddr,
        /// The agent it names.
        agent: String,
    },
    /// Correct the `[[clinic]]` named.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

impl Topology {
    /// Reads a file: YAML where its name ends in `.yaml` or `.yml`, else TOML.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let read = |source| ConfigError::Read { path: path.to_owned(), source };
        if fs::metadata(path).map_err(read)?.len() > TOPOLOGY_BYTES_MAX {
            return Err(ConfigError::TooLarge { path: path.to_owned() });
        }
        let text = fs::read_to_string(path).map_err(read)?;
        let is_yaml = path.extension().is_some_and(|e| e == "yaml" || e == "yml");
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::parse(&text, is_yaml, folder).map_err(|error| match error {
            ConfigError::Syntax { message, .. } => ConfigError::Syntax { path: path.to_owned(), message },
            other => other,
        })
    }

    /// Checks a text. `folder` is what its seeds are relative to.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn parse(text: &str, is_yaml: bool, folder: &Path) -> Result<Self, ConfigError> {
        let syntax = |message: String| ConfigError::Syntax { path: PathBuf::from("topology"), message };
        let file: File = match is_yaml {
            true => serde_yaml_ng::from_str(text).map_err(|e| syntax(e.to_string()))?,
            false => toml::from_str(text).map_err(|e| syntax(on_one_line(&e, text)))?,
        };
        let mut agents = file.agents;
        for (at, agent) in agents.iter().enumerate() {
            if agents[..at].iter().any(|other| other.id() == agent.id()) {
                return Err(ConfigError::SameId { id: agent.id().to_owned() });
            }
        }
        for listener in &file.listeners {
            if !agents.iter().any(|agent| agent.id() == listener.agent) {
                return Err(ConfigError::NoSuchAgent { bind: listener.bind, agent: listener.agent.clone() });
            }
        }
        for AgentDeclaration::Clinic(clinic) in &mut agents {
            clinic.seed = folder.join(&clinic.seed);
        }
        let registry = Registry::try_from(file.clinics)?;
        Ok(Self { name: file.node.name, agents, listeners: file.listeners, registry })
    }
}

/// Where and what, without the excerpt that the parser draws.
fn on_one_line(error: &toml::de::Error, text: &str) -> String {
    let before = text.get(..error.span().map_or(0, |span| span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    format!("{} at line {line}, column {column}", error.message().replace('\n', " "))
}
