//! The clients of the matrix.

use rmcp::ClientLifecycleMode;

use crate::kit::{Client, Peers, Target, script};
use crate::rmcp::{caller, without_session};
use crate::round::{Round, Step};

const MODERN: &str = "2026-07-28";

/// An SDK at an era.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    RmcpLegacy,
    RmcpModern,
    /// SDK 1, which has no other era.
    PythonOld,
    PythonLegacy,
    PythonModern,
    TypescriptLegacy,
    TypescriptModern,
}

impl Row {
    pub const ALL: [Self; 7] = [
        Self::RmcpLegacy,
        Self::RmcpModern,
        Self::PythonOld,
        Self::PythonLegacy,
        Self::PythonModern,
        Self::TypescriptLegacy,
        Self::TypescriptModern,
    ];

    /// Whether the SDK says so to the server when a call is given up: the Python SDK 1 doesn't.
    pub fn gives_up(self) -> bool {
        self != Self::PythonOld
    }

    /// Whether it has no session that a line of the log can belong to which comes beside its call.
    pub fn is_stateless(self) -> bool {
        matches!(
            self,
            Self::RmcpModern | Self::PythonModern | Self::TypescriptModern
        )
    }

    /// Whether the SDK may lose the end of a call's progress: TypeScript's hears notifications a moment after they came, and by
    /// then the call's result, where it was read with them, has ended the call.
    pub fn loses_progress(self, target: &Target) -> bool {
        matches!(self, Self::TypescriptLegacy | Self::TypescriptModern)
            && matches!(target, Target::Command(_))
    }

    /// The client's process, where it isn't this one.
    pub fn start(self, peers: &Peers) -> Running {
        let python = |name, environment, arguments: &[&str]| {
            let script = script(name);
            let arguments: Vec<_> = [&[&*script], arguments].concat();
            Running::Process(Box::new(
                peers.client(&peers.python(environment), &arguments),
            ))
        };
        let typescript = |era| {
            Running::Process(Box::new(
                peers.client(&peers.node(), &[&script("client.mjs"), era]),
            ))
        };
        match self {
            Self::RmcpLegacy => Running::Rmcp(ClientLifecycleMode::Initialize),
            Self::RmcpModern => Running::Rmcp(without_session()),
            Self::PythonOld => python("client_old.py", "python-old", &[]),
            Self::PythonLegacy => python("client.py", "python", &["legacy"]),
            Self::PythonModern => python("client.py", "python", &[MODERN]),
            Self::TypescriptLegacy => typescript("legacy"),
            Self::TypescriptModern => typescript(MODERN),
        }
    }
}

/// A client that goes through rounds.
pub enum Running {
    Rmcp(ClientLifecycleMode),
    Process(Box<Client>),
}

impl Running {
    pub async fn round(
        &mut self,
        target: &Target,
        steps: impl IntoIterator<Item = &Step>,
    ) -> Round {
        match (self, target) {
            (Self::Process(client), _) => client.round(target, steps).await,
            (Self::Rmcp(lifecycle), Target::Url(url)) => {
                caller::round(url, lifecycle.clone(), steps).await
            }
            (Self::Rmcp(lifecycle), Target::Command(command)) => {
                let (program, arguments) = command.split_first().unwrap();
                let mut command = tokio::process::Command::new(program);
                command.args(arguments).kill_on_drop(true);
                caller::round_of_child(command, lifecycle.clone(), steps).await
            }
        }
    }
}
