//! Where peers come in.

use std::net::SocketAddr;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::PathBuf;

use serde::Deserialize;

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
    /// The id of an agent, upstream or virtual server.
    #[serde(default)]
    pub agent: Option<String>,
    /// The ids of several, for [`Dialect::Mcp`]. Neither this nor `agent` is all agents and upstreams of the file.
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
    /// Most bytes of one message; [`callboard_rpc::BODY_BYTES_MAX_DEFAULT`] where it isn't said.
    #[serde(default)]
    pub body_bytes_max: Option<NonZeroUsize>,
    /// How many seconds a call may take, questions included; the dialect's default where it isn't said.
    #[serde(default)]
    pub call_deadline_s: Option<NonZeroU64>,
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
    /// What the dialect needs, or hasn't got: the key at fault, and why.
    pub(super) fn mistakes(&self) -> Vec<(&'static str, &'static str)> {
        let mut wrong = Vec::new();
        match self.dialect {
            Dialect::Bare => {
                if self.agent.is_none() {
                    wrong.push(("dialect", "the dialect \"bare\" needs `agent`"));
                }
                let only_mcp = [
                    ("agents", !self.agents.is_empty()),
                    ("keys", self.keys.is_some()),
                    ("hosts", !self.hosts.is_empty()),
                    ("origins", !self.origins.is_empty()),
                    ("compat", !self.compat.is_empty()),
                ];
                let why = "`agents`, `keys`, `hosts`, `origins` and `compat` are for the dialect \"mcp\"";
                wrong.extend(only_mcp.into_iter().filter(|(_, is_set)| *is_set).map(|(key, _)| (key, why)));
            }
            Dialect::Mcp => {
                if self.agent.is_some() && !self.agents.is_empty() {
                    wrong.push(("agents", "write `agent` or `agents`, not both"));
                }
                if self.keys.is_some() && self.trust != Trust::Anonymous {
                    wrong.push(("trust", "with `keys` nobody comes in without one: leave `trust` out"));
                }
            }
        }
        let is_loopback = self.bind.ip().is_loopback();
        if self.trust == Trust::LoopbackOperator && !is_loopback {
            wrong.push(("bind", "this is not a loopback address: peers there can't be the operator"));
        } else if self.dialect == Dialect::Mcp && self.keys.is_none() && !is_loopback {
            wrong.push(("bind", "this is not a loopback address: keys are needed to listen there"));
        }
        wrong
    }

    /// The ids that it names.
    pub(super) fn named(&self) -> impl Iterator<Item = &str> {
        self.agent.iter().chain(&self.agents).map(String::as_str)
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
