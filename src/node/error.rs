use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use callboard_agents::answering::AnswerError;
use callboard_agents::bundle::BundleError;
use callboard_agents::clinic::ClinicError;
use callboard_agents::hmcp::HmcpError;
use callboard_agents::mailroom::MailroomError;
use callboard_agents::model::ModelError;
use callboard_mcp::inbound::ServeError;
use callboard_mcp::outbound::ClientError;
use callboard_rpc::KeyError;
use callboard_runtime::{NameTaken, StoreIsSet};
use callboard_store::StoreError;

use crate::config::{ConfigError, UpstreamError};

/// Why a node doesn't start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// Correct the topology file.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// See what the clinic says of its database or seed.
    #[error("failed to start {id}: {source}")]
    Clinic {
        /// Whose.
        id: String,
        /// Why.
        source: ClinicError,
    },
    /// Correct the `[[upstream]]`.
    #[error("upstream {id}: {source}")]
    Upstream {
        /// Whose.
        id: String,
        /// Why.
        source: ClientError,
    },
    /// Correct the `[[agent]]`, or what it names.
    #[error("agent {id}: {why}")]
    Remote {
        /// Whose.
        id: String,
        /// What is wrong with it.
        why: String,
    },
    /// Correct the `[[agent]]`, or what it names.
    #[error("orchestrator {id}: {why}")]
    Orchestrator {
        /// Whose.
        id: String,
        /// What is wrong with it.
        why: String,
    },
    /// Correct the `[[agent]]`, or see what the store says.
    #[error("mailroom {id}: {source}")]
    Mailroom {
        /// Whose.
        id: String,
        /// Why.
        source: MailroomError,
    },
    /// Declare one: `[[agent]]` of the kind `orchestrator`.
    #[error("there is no orchestrator to talk to{}", .id.as_ref().map(|id| format!(" of the id {id}")).unwrap_or_default())]
    NoOrchestrator {
        /// Which one was wanted.
        id: Option<String>,
    },
    /// Correct the model, or set its key.
    #[error("model {id}: {source}")]
    Model {
        /// Whose.
        id: String,
        /// Why.
        source: ModelError,
    },
    /// See what the agent says of its file or patients.
    #[error("failed to start {id}: {source}")]
    Hmcp {
        /// Whose.
        id: String,
        /// Why.
        source: HmcpError,
    },
    /// Correct `[routing]`.
    #[error("routing: {0}")]
    Routing(#[from] AnswerError),
    /// Bind another address, or ask who has that one.
    #[error("failed to listen on {bind}: {source}")]
    Bind {
        /// Where.
        bind: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// Correct the listener.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// Make a key (`callboard keys add`), or mend the key file.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// See what the store says: correct `[store]`, or make room, or ask who has it.
    #[error("store: {}", super::in_full(.0))]
    Store(#[from] StoreError),
    /// Start another system: this one has kept something already.
    #[error(transparent)]
    StoreIsSet(#[from] StoreIsSet),
    /// Restart the node: a store can't be changed under what runs.
    #[error("[store] has changed: restart the node for it")]
    StoreChanged,
    /// Rename an agent, or serve fewer as one.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// Rename an agent.
    #[error(transparent)]
    Name(#[from] NameTaken),
    /// Name the file of a node that listens; a host's file is for `callboard ask --topology`.
    #[error("{path} declares no listener: there is nothing to serve")]
    NothingToServe {
        /// The file.
        path: PathBuf,
    },
    /// Name one that comes with callboard.
    #[error("no example {name}; there are {known}")]
    NoSuchExample {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// Point `TMPDIR` at a folder that can be written to.
    #[error("failed to make a folder for the example's data: {0}")]
    Scratch(#[source] io::Error),
    /// Reload with SIGHUP, or see why the system can't tell of changes.
    #[error("failed to watch the topology file: {0}")]
    Watch(#[source] notify::Error),
    /// See what the system says.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<UpstreamError> for NodeError {
    fn from(error: UpstreamError) -> Self {
        Self::Config(error.into())
    }
}

impl NodeError {
    /// Whether the user's command line or file is at fault.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Serve(ServeError::OpenBeyondLoopback { .. }) => true,
            Self::Config(_) | Self::Keys(_) | Self::Bundle(_) | Self::Upstream { .. } => true,
            Self::Model { .. }
            | Self::Remote { .. }
            | Self::Orchestrator { .. }
            | Self::NoOrchestrator { .. }
            | Self::Routing(_) => true,
            Self::Mailroom { source, .. } => !matches!(source, MailroomError::Store(_)),
            Self::Store(error) => matches!(error, StoreError::Url(_)),
            Self::StoreChanged => true,
            Self::Name(_) | Self::NothingToServe { .. } | Self::NoSuchExample { .. } => true,
            Self::Clinic { .. } | Self::Hmcp { .. } | Self::Bind { .. } | Self::Serve(_) => false,
            Self::StoreIsSet(_) | Self::Scratch(_) | Self::Watch(_) | Self::Io(_) => false,
        }
    }
}
