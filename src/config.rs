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
    pub(crate) fn id(&self) -> &str {
        match self {
            Self::Clinic(clinic) => &clinic.id,
        }
    }
}

/// A socket in front of agents.
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
    #[serde(default)]
    pub agent: Option<String>,
    /// The ids of several, for [`Dialect::Mcp`]. Neither this nor `agent` is all that the file declares.
    #[serde(default)]
    pub agents: Vec<String>,
    /// What a peer without a credential is.
    #[serde(default)]
    pub trust: Trust,
    /// The key file: every request must have one of its keys. Relative to the topology file.
    #[serde(default)]
    pub keys: Option<PathBuf>,
    /// Names (`Host`) under which this machine may be reached, beside its own.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Web pages (`Origin`) that may send requests, beside this machine's own.
    #[serde(default)]
    pub origins: Vec<String>,
    /// Transports beside streamable HTTP.
    #[serde(default)]
    pub compat: Vec<CompatTransport>,
}

/// A transport that isn't MCP's any more, or never was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompatTransport {
    /// WebSocket.
    Websocket,
    /// HTTP+SSE, of 2024-11-05.
    Sse,
}

impl Listener {
    /// What the dialect needs, or hasn't got.
    fn check(&self) -> Result<(), &'static str> {
        let only_mcp =
            self.keys.is_some() || !self.hosts.is_empty() || !self.origins.is_empty() || !self.compat.is_empty();
        match self.dialect {
            Dialect::Bare if self.agent.is_none() => Err("the dialect \"bare\" needs `agent`"),
            Dialect::Bare if only_mcp || !self.agents.is_empty() => {
                Err("`agents`, `keys`, `hosts`, `origins` and `compat` are for the dialect \"mcp\"")
            }
            Dialect::Mcp if self.agent.is_some() && !self.agents.is_empty() => {
                Err("write `agent` or `agents`, not both")
            }
            Dialect::Mcp if self.keys.is_some() && self.trust != Trust::Anonymous => {
                Err("with `keys` nobody comes in without one: leave `trust` out")
            }
            _ => Ok(()),
        }
    }

    /// The ids of the agents behind it.
    pub(crate) fn agents<'a>(&'a self, declared: &'a [AgentDeclaration]) -> Vec<&'a str> {
        match (&self.agent, self.agents.is_empty()) {
            (Some(agent), _) => vec![agent],
            (None, false) => self.agents.iter().map(String::as_str).collect(),
            (None, true) => declared.iter().map(AgentDeclaration::id).collect(),
        }
    }
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
    /// All of it, both eras, over streamable HTTP.
    Mcp,
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
    /// Name one that is declared.
    #[error("there is no agent {agent} in the topology")]
    UnknownAgent {
        /// Who was asked for.
        agent: String,
    },
    /// Add an `[[agent]]`.
    #[error("the topology declares no agent")]
    NoAgents,
    /// Correct the listener.
    #[error("the listener on {bind}: {why}")]
    Listener {
        /// Where it would listen.
        bind: SocketAddr,
        /// What is wrong with it.
        why: String,
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
        let mut listeners = file.listeners;
        for listener in &mut listeners {
            let bind = listener.bind;
            let wrong = |why: &str| ConfigError::Listener { bind, why: why.to_owned() };
            listener.check().map_err(wrong)?;
            let ids = listener.agents(&agents);
            if let Some(unknown) = ids.iter().find(|id| !agents.iter().any(|agent| agent.id() == **id)) {
                return Err(ConfigError::NoSuchAgent { bind, agent: (*unknown).to_owned() });
            }
            if listener.dialect == Dialect::Mcp {
                if ids.is_empty() {
                    return Err(wrong("there is no agent to serve"));
                }
                if let Some(id) = ids.iter().find(|id| !fits_into_a_path(id)) {
                    return Err(wrong(&format!("the id {id:?} can't stand in an address: use A-Z a-z 0-9 - _ .")));
                }
            }
            listener.keys = listener.keys.take().map(|keys| folder.join(keys));
        }
        for AgentDeclaration::Clinic(clinic) in &mut agents {
            clinic.seed = folder.join(&clinic.seed);
        }
        let registry = Registry::try_from(file.clinics)?;
        Ok(Self { name: file.node.name, agents, listeners, registry })
    }
}

fn fits_into_a_path(id: &str) -> bool {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !id.is_empty() && !id.chars().all(|c| c == '.') && id.chars().all(is_fine)
}

/// Where and what, without the excerpt that the parser draws.
fn on_one_line(error: &toml::de::Error, text: &str) -> String {
    let before = text.get(..error.span().map_or(0, |span| span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    format!("{} at line {line}, column {column}", error.message().replace('\n', " "))
}
