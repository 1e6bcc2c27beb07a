//! Where peers come in.

use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use url::Host;

use super::address::{Range, WebUrl};
use super::tree::Tree;

/// A socket in front of agents.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// The protocol spoken.
    pub protocol: Protocol,
    /// Its dialect; MCP has two, A2A none, for each call says its own, and mail none.
    pub dialect: Option<Dialect>,
    /// Where to listen; port 0 is a free one.
    pub bind: SocketAddr,
    /// The id of an agent, upstream or virtual server.
    pub agent: Option<String>,
    /// The ids of several, but for [`Dialect::Bare`] and [`Protocol::Mail`]. Neither this nor `agent` is all agents and upstreams of the file.
    #[serde(default)]
    pub agents: Vec<String>,
    /// What a peer without a credential is.
    #[serde(default)]
    pub trust: Trust,
    /// The key file: every request must have one of its keys. Relative to the topology file.
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
    pub body_bytes_max: Option<NonZeroUsize>,
    /// How many seconds a call may take, questions included; the dialect's default where it isn't said.
    pub call_deadline_s: Option<NonZeroU64>,
    /// Where others reach it, for A2A's cards; where it isn't said, the address that it listens on.
    pub public_url: Option<WebUrl>,
    /// Where A2A is spoken over gRPC too; port 0 is a free one. Needs the feature `grpc`.
    pub grpc_bind: Option<SocketAddr>,
    /// Where others reach that, for A2A's cards, as gRPC's clients want it (`host:port`); where it isn't said, the address
    /// that it listens on.
    pub grpc_target: Option<String>,
    /// Networks that A2A's webhooks may be in, beside the public internet.
    #[serde(default)]
    pub push_allow: Vec<Range>,
    /// The key that A2A's cards are signed with. Relative to the topology file.
    pub signing_key: Option<PathBuf>,
    /// Whether who has a key may read the card of what keys are needed for; by default, where there are `keys`.
    pub extended_card: Option<bool>,
    /// Whether who has no key sees the list of A2A's tasks that were begun without one, there or at another listener where this holds;
    /// where it isn't said, see [`Listener::lists_anonymous`].
    pub list_anonymous: Option<bool>,
    /// For how many seconds a message of A2A's that comes again is answered by the task that it began; 0: never.
    pub repeat_s: Option<u64>,
    /// Who provides the agents, in A2A's cards.
    pub provider: Option<ProviderDeclaration>,
    /// The agents' version, in A2A's cards.
    pub version: Option<String>,
    /// Where they are described, in A2A's cards.
    pub documentation_url: Option<WebUrl>,
    /// Their picture, in A2A's cards.
    pub icon_url: Option<WebUrl>,
    /// Whether anybody who reaches it may use it, also from beyond this machine. Not a key of the file: it comes of another
    /// document's words.
    #[serde(skip)]
    pub open: bool,
}

/// Who provides an agent, in its card.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderDeclaration {
    /// The organization's name.
    pub organization: String,
    /// Its address.
    pub url: WebUrl,
}

/// A transport that isn't MCP's any more, or never was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompatTransport {
    /// WebSocket.
    Websocket,
    /// HTTP+SSE, of 2024-11-05.
    Sse,
    /// One JSON-RPC `tools/call` a POST, without handshake or session, in place of all else: see [`Dialect::Bare`].
    Bare,
}

impl Listener {
    /// One of A2A at `bind`, all else by default.
    pub(super) fn a2a(bind: SocketAddr) -> Self {
        Self {
            protocol: Protocol::A2a,
            dialect: None,
            bind,
            agent: None,
            agents: Vec::new(),
            trust: Trust::default(),
            keys: None,
            hosts: Vec::new(),
            origins: Vec::new(),
            compat: Vec::new(),
            body_bytes_max: None,
            call_deadline_s: None,
            public_url: None,
            grpc_bind: None,
            grpc_target: None,
            push_allow: Vec::new(),
            signing_key: None,
            extended_card: None,
            list_anonymous: None,
            repeat_s: None,
            provider: None,
            version: None,
            documentation_url: None,
            icon_url: None,
            open: false,
        }
    }

    /// What is spoken there.
    pub fn speaks(&self) -> Speaks {
        match self.protocol {
            Protocol::A2a => Speaks::A2a,
            Protocol::Mail => Speaks::Mail,
            Protocol::Mcp if self.is_bare() => Speaks::Bare,
            Protocol::Mcp => Speaks::Mcp,
        }
    }

    /// Whether its MCP is the bare dialect: by `compat`, or by the older key `dialect`.
    pub(crate) fn is_bare(&self) -> bool {
        self.dialect == Some(Dialect::Bare) || self.compat.contains(&CompatTransport::Bare)
    }

    /// What is spoken there needs, or hasn't got: the key at fault, and why. `tree` is its table.
    pub(super) fn mistakes(&self, tree: &Tree) -> Vec<(&'static str, &'static str)> {
        let mut wrong = Vec::new();
        let is_set = |key: &&str| tree.get(key).is_some_and(|value| !value.is_nothing());
        match (self.protocol, self.dialect) {
            (Protocol::Mcp, None) if !self.is_bare() => wrong.push((
                "dialect",
                "the protocol \"mcp\" needs `dialect`: \"mcp\" or \"bare\"",
            )),
            (Protocol::A2a, Some(_)) => wrong.push((
                "dialect",
                "the protocol \"a2a\" has no dialects: leave it out",
            )),
            (Protocol::Mail, Some(_)) => wrong.push((
                "dialect",
                "the protocol \"mail\" has no dialects: leave it out",
            )),
            _ => {}
        }
        let speaks = self.speaks();
        if speaks == Speaks::Bare {
            if self.agent.is_none() {
                wrong.push(("dialect", "the dialect \"bare\" needs `agent`"));
            }
            let why = "`agents`, `keys`, `hosts`, `origins` and other `compat` are for the dialect \"mcp\"";
            let has_other = self
                .compat
                .iter()
                .any(|transport| *transport != CompatTransport::Bare);
            let not_bare = NOT_BARE
                .into_iter()
                .filter(is_set)
                .chain(has_other.then_some("compat"));
            wrong.extend(not_bare.map(|key| (key, why)));
        } else {
            if self.agent.is_some() && !self.agents.is_empty() {
                wrong.push(("agents", "write `agent` or `agents`, not both"));
            }
            if self.keys.is_some() && self.trust != Trust::Anonymous {
                wrong.push((
                    "trust",
                    "with `keys` nobody comes in without one: leave `trust` out",
                ));
            }
        }
        if speaks == Speaks::Mail {
            wrong.extend(self.mistakes_of_mail());
        }
        if speaks == Speaks::A2a {
            wrong.extend(self.mistakes_of_a2a());
        } else {
            wrong.extend(
                ONLY_A2A
                    .into_iter()
                    .filter(is_set)
                    .map(|key| (key, "this is for the protocol \"a2a\"")),
            );
        }
        if self.trust == Trust::LoopbackOperator {
            wrong.extend(
                REACHED_BY_PROXY
                    .into_iter()
                    .filter(is_set)
                    .map(|key| (key, OPERATOR_BEHIND_PROXY)),
            );
        }
        for (key, _) in self
            .wants()
            .filter(|(_, address)| !address.ip().is_loopback())
        {
            if self.trust == Trust::LoopbackOperator {
                wrong.push((
                    key,
                    "this is not a loopback address: peers there can't be the operator",
                ));
            } else if speaks == Speaks::Bare {
                wrong.push((key, BARE_BEYOND_LOOPBACK));
            } else if self.keys.is_none() && !self.open {
                wrong.push((
                    key,
                    "this is not a loopback address: keys are needed to listen there",
                ));
            }
        }
        wrong
    }

    /// Whether a proxy may pass requests on to it: one of [`REACHED_BY_PROXY`] is set.
    pub(crate) fn is_behind_proxy(&self) -> bool {
        self.public_url.is_some() || !self.hosts.is_empty() || self.grpc_target.is_some()
    }

    /// Whether all who come in without a key are taken for one party, which sees the list of its tasks: as the file says, else where
    /// nobody has a key and nobody comes from beyond this machine, by itself or by way of a proxy.
    pub(crate) fn lists_anonymous(&self) -> bool {
        let is_of_this_machine =
            self.wants().all(|(_, address)| address.ip().is_loopback()) && !self.is_behind_proxy();
        self.list_anonymous
            .unwrap_or(is_of_this_machine && self.keys.is_none() && self.trust == Trust::Anonymous)
    }

    fn mistakes_of_mail(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let wrong = [
            (
                "agent",
                self.agent.is_none(),
                "the protocol \"mail\" needs `agent`: a mailroom",
            ),
            (
                "agents",
                !self.agents.is_empty(),
                "the protocol \"mail\" is for one mailroom: write `agent`",
            ),
            (
                "compat",
                !self.compat.is_empty(),
                "`compat` is for the dialect \"mcp\"",
            ),
        ];
        wrong
            .into_iter()
            .filter(|(_, is_wrong, _)| *is_wrong)
            .map(|(key, _, why)| (key, why))
    }

    fn mistakes_of_a2a(&self) -> Vec<(&'static str, &'static str)> {
        let mut wrong = Vec::new();
        if !self.compat.is_empty() {
            wrong.push(("compat", "`compat` is for the dialect \"mcp\""));
        }
        if self.extended_card == Some(true) && self.keys.is_none() && self.trust == Trust::Anonymous
        {
            wrong.push((
                "extended_card",
                "nobody has a key to read it with: write `keys` too",
            ));
        }
        if self.list_anonymous == Some(true)
            && (self.keys.is_some() || self.trust != Trust::Anonymous)
        {
            wrong.push(("list_anonymous", "nobody is anonymous there: leave it out"));
        }
        if self
            .public_url
            .as_ref()
            .is_some_and(|url| url.url().query().is_some())
        {
            wrong.push(("public_url", "it can't have a query"));
        }
        if self.bind.ip().is_unspecified() && self.public_url.is_none() {
            wrong.push(("bind", "cards can't give this address: write `public_url`"));
        }
        wrong.extend(self.mistakes_of_grpc());
        wrong
    }

    fn mistakes_of_grpc(&self) -> Vec<(&'static str, &'static str)> {
        let mut wrong = Vec::new();
        let Some(bind) = self.grpc_bind else {
            if self.grpc_target.is_some() {
                wrong.push((
                    "grpc_target",
                    "nothing listens for it: write `grpc_bind` too",
                ));
            }
            return wrong;
        };
        if !cfg!(feature = "grpc") {
            wrong.push((
                "grpc_bind",
                "this callboard speaks no gRPC: build it with `--features grpc`",
            ));
        }
        match &self.grpc_target {
            None if bind.ip().is_unspecified() => {
                wrong.push((
                    "grpc_bind",
                    "cards can't give this address: write `grpc_target`",
                ));
            }
            Some(target) if !is_host_and_port(target) => {
                wrong.push((
                    "grpc_target",
                    "it must be `host:port`, without scheme or path",
                ));
            }
            _ => {}
        }
        wrong
    }

    /// The addresses that it wants, each with its key.
    pub(super) fn wants(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        std::iter::once(("bind", self.bind)).chain(self.grpc_bind.map(|bind| ("grpc_bind", bind)))
    }

    /// The ids that it names.
    pub(super) fn named(&self) -> impl Iterator<Item = &str> {
        self.agent.iter().chain(&self.agents).map(String::as_str)
    }

    /// Paths as this process sees them.
    pub(super) fn resolve(&mut self, folder: &Path) {
        for path in [&mut self.keys, &mut self.signing_key]
            .into_iter()
            .flatten()
        {
            *path = folder.join(&*path);
        }
    }
}

/// Keys that the bare dialect hasn't got.
const NOT_BARE: [&str; 4] = ["agents", "keys", "hosts", "origins"];
/// Keys of A2A alone.
const ONLY_A2A: [&str; 12] = [
    "public_url",
    "grpc_bind",
    "grpc_target",
    "push_allow",
    "signing_key",
    "extended_card",
    "list_anonymous",
    "repeat_s",
    "provider",
    "version",
    "documentation_url",
    "icon_url",
];
/// Keys that declare that others reach it by another address or name, by way of a proxy.
const REACHED_BY_PROXY: [&str; 3] = ["public_url", "hosts", "grpc_target"];
const OPERATOR_BEHIND_PROXY: &str = "whoever comes by this address or name comes through a proxy and would be the operator: \
                                     write `keys` in place of `trust = \"loopback_operator\"`";
const BARE_BEYOND_LOOPBACK: &str = "this is not a loopback address, and the dialect \"bare\" has no credentials: bind a loopback \
                                    address, or write the dialect \"mcp\" and `keys`";

fn is_host_and_port(target: &str) -> bool {
    let parts = target.rsplit_once(':');
    parts
        .is_some_and(|(host, port)| Host::parse(host).is_ok() && port.parse::<NonZeroU16>().is_ok())
}

/// What is spoken on a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaks {
    /// MCP, in its bare dialect.
    Bare,
    /// MCP.
    Mcp,
    /// A2A, in all its versions.
    A2a,
    /// Agent mail.
    Mail,
}

/// A protocol for listeners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// Model Context Protocol.
    Mcp,
    /// Agent2Agent.
    A2a,
    /// Agent mail: HTTP and WebSocket in front of a mailroom.
    Mail,
}

/// A dialect of MCP.
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

/// Whether two listeners can't both have their address.
pub(super) fn clash(one: SocketAddr, other: SocketAddr) -> bool {
    let same_machine =
        one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0 && one.port() == other.port() && same_machine
}

/// Whether an id can be a part of a URL's path.
pub(super) fn fits_into_a_path(id: &str) -> bool {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !id.is_empty() && !id.chars().all(|c| c == '.') && id.chars().all(is_fine)
}
