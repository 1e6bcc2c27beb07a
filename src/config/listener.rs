//! Listener declarations (`[[listener]]`): addresses, protocols and access rules.

use std::fmt;
use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};

use callboard_runtime::PRINCIPAL_SHARE_PERCENT_DEFAULT;
use schemars::JsonSchema;
use serde::de::{self, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use url::Host;

use super::address::{NetworkRange, WebUrl, optional_socket_address, socket_address};
use super::listener_auth::AuthDeclaration;
use super::tls::{CertificateClientDeclaration, ListenerTlsDeclaration};
use super::tree::ConfigTree;

/// A socket in front of agents (`[[listener]]`).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListenerDeclaration {
    /// Protocol of the listener.
    pub protocol: ListenerProtocol,
    /// Dialect of MCP. Required for MCP without the bare mode, and refused for other protocols.
    pub dialect: Option<ListenerDialect>,
    /// Address to listen on. Port 0 picks a free port.
    #[serde(deserialize_with = "socket_address")]
    pub bind: SocketAddr,
    /// Id of the agent, upstream or virtual server to serve.
    pub agent: Option<String>,
    /// Ids of several agents to serve. Refused for the bare dialect and [`ListenerProtocol::Mail`].
    /// If both this and `agent` are absent, all agents and upstreams of the file are served.
    #[serde(default)]
    pub agents: Vec<String>,
    /// Access of clients without a credential. Default: [`AnonymousAccess::Guest`] on loopback
    /// addresses where no credential is required, else [`AnonymousAccess::Denied`]; see
    /// [`Self::anonymous_access`]. Beyond loopback, a listener that requires no credential needs
    /// [`AnonymousAccess::Guest`] written out.
    pub anonymous: Option<AnonymousAccess>,
    /// Key file, relative to the topology file. If set, every request needs one of its keys, or
    /// another credential of the listener.
    pub keys: Option<PathBuf>,
    /// Access tokens of authorization servers. If set, every request needs one of them, or another
    /// credential of the listener.
    pub auth: Option<AuthDeclaration>,
    /// TLS. Without it the listener speaks plain HTTP.
    pub tls: Option<ListenerTlsDeclaration>,
    /// Networks of the reverse proxies whose `X-Forwarded-For` names the client. Of others the
    /// header is ignored.
    #[serde(default)]
    pub trusted_proxies: Vec<NetworkRange>,
    /// Whether each connection of `trusted_proxies` begins with a PROXY header, which names the
    /// client.
    #[serde(default)]
    pub proxy_protocol: bool,
    /// Accepted `Host` names, in addition to this machine's own.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// Accepted `Origin` values, in addition to this machine's own.
    #[serde(default)]
    pub origins: Vec<String>,
    /// Compatibility transports, in addition to streamable HTTP.
    #[serde(default)]
    pub compat: Vec<CompatTransport>,
    /// Maximum size of one message in bytes. Default: [`callboard_rpc::BODY_BYTES_MAX_DEFAULT`],
    /// less for mail.
    pub body_bytes_max: Option<NonZeroUsize>,
    /// Maximum number of connections of one address at a time. Default: three quarters of the
    /// listener's.
    pub address_connections_max: Option<NonZeroUsize>,
    /// Share of a principal in the sessions, streams, subscriptions and sockets of each served
    /// agent, and in the requests that the aggregate of all agents handles at a time, in percent, 1
    /// to 100. Default: [`callboard_runtime::PRINCIPAL_SHARE_PERCENT_DEFAULT`].
    pub principal_share_percent: Option<u8>,
    /// Maximum duration of a call in seconds, questions included. The default depends on the
    /// protocol.
    pub call_deadline_s: Option<NonZeroU64>,
    /// URL in A2A agent cards under which clients reach the listener. Default: the address that it
    /// listens on.
    pub public_url: Option<WebUrl>,
    /// Address for A2A over gRPC; port 0 picks a free one. Needs the feature `grpc`.
    #[serde(default, deserialize_with = "optional_socket_address")]
    pub grpc_bind: Option<SocketAddr>,
    /// gRPC target (`host:port`) in agent cards. Default: the address that `grpc_bind` listens on.
    pub grpc_target: Option<String>,
    /// Networks in which A2A webhooks are allowed, in addition to the public internet.
    #[serde(default)]
    pub push_allow: Vec<NetworkRange>,
    /// Key file for signing A2A agent cards, relative to the topology file.
    pub signing_key: Option<PathBuf>,
    /// Whether authenticated clients may fetch the extended agent card. Default: true if `keys` or
    /// `auth` is set.
    pub extended_card: Option<bool>,
    /// Whether clients without a key may list A2A tasks that were started without one, at this or
    /// another such listener. Default: true for guests of a listener on loopback addresses without
    /// `public_url`, `hosts` and `grpc_target`.
    pub anonymous_task_listing: Option<bool>,
    /// Time in seconds for which a repeated A2A message is answered by the task that it started. 0
    /// disables it.
    pub idempotency_window_s: Option<u64>,
    /// Provider in A2A agent cards.
    pub provider: Option<ProviderDeclaration>,
    /// Name that MCP clients are told at the address of all agents. Default: the agent's, or the
    /// node's.
    pub name: Option<String>,
    /// Version that MCP clients are told, and in A2A agent cards. Default: that of a served MCP
    /// server, else callboard's.
    pub version: Option<String>,
    /// Instructions for the model of an MCP client, at the address of all agents. Default: those of
    /// the agents.
    pub instructions: Option<String>,
    /// Documentation URL in A2A agent cards.
    pub documentation_url: Option<WebUrl>,
    /// Icon URL in A2A agent cards.
    pub icon_url: Option<WebUrl>,
    /// Whether anonymous clients are served on non-loopback addresses too, whatever the data class.
    /// Not a key of the file: `anonymous` of a bidirectional agent's file sets it, and the REPL's
    /// `--anonymous`.
    #[serde(skip)]
    pub open: bool,
}

/// Provider of an agent, in its A2A card.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProviderDeclaration {
    /// Name of the organization.
    pub organization: String,
    /// URL of the organization.
    pub url: WebUrl,
}

/// A transport outside the current MCP specification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CompatTransport {
    /// MCP over WebSocket.
    Websocket,
    /// HTTP+SSE of MCP 2024-11-05.
    Sse,
    /// One JSON-RPC `tools/call` for each POST, without handshake or session, in place of MCP. See
    /// [`ServedProtocol::Bare`].
    Bare,
}

impl ListenerDeclaration {
    /// Returns an A2A listener at `bind` with default settings.
    pub(super) fn a2a_default(bind: SocketAddr) -> Self {
        Self {
            protocol: ListenerProtocol::A2a,
            dialect: None,
            bind,
            agent: None,
            agents: Vec::new(),
            anonymous: None,
            keys: None,
            auth: None,
            tls: None,
            trusted_proxies: Vec::new(),
            proxy_protocol: false,
            hosts: Vec::new(),
            origins: Vec::new(),
            compat: Vec::new(),
            body_bytes_max: None,
            address_connections_max: None,
            principal_share_percent: None,
            call_deadline_s: None,
            public_url: None,
            grpc_bind: None,
            grpc_target: None,
            push_allow: Vec::new(),
            signing_key: None,
            extended_card: None,
            anonymous_task_listing: None,
            idempotency_window_s: None,
            provider: None,
            name: None,
            version: None,
            instructions: None,
            documentation_url: None,
            icon_url: None,
            open: false,
        }
    }

    /// Returns the protocol that is served.
    pub fn served_protocol(&self) -> ServedProtocol {
        match self.protocol {
            ListenerProtocol::A2a => ServedProtocol::A2a,
            ListenerProtocol::Mail => ServedProtocol::Mail,
            ListenerProtocol::Mcp if self.is_bare() => ServedProtocol::Bare,
            ListenerProtocol::Mcp => ServedProtocol::Mcp,
        }
    }

    /// Returns the URL of the listener at this address, without a path.
    pub(crate) fn base_url(&self, address: SocketAddr) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{address}")
    }

    /// Returns the share of a principal in what the listener's clients share, in percent.
    pub(crate) fn principal_share(&self) -> u8 {
        self.principal_share_percent
            .unwrap_or(PRINCIPAL_SHARE_PERCENT_DEFAULT)
    }

    /// Whether the listener serves the bare dialect of MCP.
    pub(crate) fn is_bare(&self) -> bool {
        self.compat.contains(&CompatTransport::Bare)
    }

    /// Whether every request needs a credential.
    pub(crate) fn requires_credential(&self) -> bool {
        self.keys.is_some() || self.auth.is_some() || !self.certificate_clients().is_empty()
    }

    /// Returns the clients that are authenticated by their certificates.
    pub(crate) fn certificate_clients(&self) -> &[CertificateClientDeclaration] {
        self.tls.as_ref().map_or(&[][..], |tls| &tls.client)
    }

    /// Whether guests may come from beyond this machine: because the file says so, or through a proxy to a
    /// loopback address.
    pub(crate) fn may_serve_remote_guests(&self) -> bool {
        let by_proxy = self.is_loopback_only() && self.is_behind_proxy() && !self.open;
        let has_guests = self.anonymous_access() == AnonymousAccess::Guest;
        by_proxy && has_guests || self.serves_remote_guests()
    }

    /// Whether guests beyond this machine are served, because the file says so.
    pub(crate) fn serves_remote_guests(&self) -> bool {
        self.anonymous == Some(AnonymousAccess::Guest)
            && !self.requires_credential()
            && !self.is_local()
    }

    /// Whether the listener must not be opened: clients beyond this machine reach it, no credential is
    /// required, and nothing says that anybody may use it.
    pub(crate) fn lacks_authentication(&self) -> bool {
        !self.requires_credential()
            && !self.is_local()
            && !self.open
            && self.anonymous != Some(AnonymousAccess::Guest)
    }

    /// Returns the access of clients without a credential. Where a credential is required it is
    /// denied. Without a declaration, clients are guests if all are on this machine, and denied otherwise.
    pub fn anonymous_access(&self) -> AnonymousAccess {
        match self.anonymous {
            _ if self.requires_credential() => AnonymousAccess::Denied,
            Some(access) => access,
            None if self.is_local() || self.open => AnonymousAccess::Guest,
            None => AnonymousAccess::Denied,
        }
    }

    /// Whether only clients on this machine reach the listener: its addresses are loopback ones, and
    /// no proxy is declared by whose address others come.
    fn is_local(&self) -> bool {
        self.is_loopback_only() && self.trusted_proxies.is_empty()
    }

    fn is_loopback_only(&self) -> bool {
        self.bind_addresses()
            .all(|(_, address)| address.ip().is_loopback())
    }

    /// Returns the listener's keys that are invalid or don't fit one another, each with a reason;
    /// empty if all are valid. The addresses are left to [`Self::address_errors`]. `tree` is the listener's table, by which keys that are set are told
    /// from defaults.
    pub(super) fn key_errors(&self, tree: &ConfigTree) -> Vec<(&'static str, &'static str)> {
        let is_set = |key: &&str| tree.get(key).is_some_and(|value| !value.is_empty());
        let mut wrong: Vec<_> = self.dialect_error().into_iter().collect();
        let speaks = self.served_protocol();
        if speaks == ServedProtocol::Bare {
            wrong.extend(self.bare_key_errors(tree));
        } else {
            if self.agent.is_some() && !self.agents.is_empty() {
                wrong.push(("agents", "write `agent` or `agents`, not both"));
            }
            match self.anonymous {
                Some(AnonymousAccess::Guest | AnonymousAccess::Operator)
                    if self.requires_credential() =>
                {
                    wrong.push((
                        "anonymous",
                        "with `keys`, `auth` or `tls.client` every request needs a credential: leave `anonymous` out",
                    ));
                }
                _ => {}
            }
        }
        if self
            .principal_share_percent
            .is_some_and(|percent| !(1..=100).contains(&percent))
        {
            let why = "it must be from 1 to 100: the percentage of one principal";
            wrong.push(("principal_share_percent", why));
        }
        if speaks == ServedProtocol::Mail {
            wrong.extend(self.mail_key_errors());
        }
        if speaks != ServedProtocol::Mcp {
            let for_mcp = MCP_KEYS.into_iter().filter(is_set);
            wrong.extend(for_mcp.map(|key| (key, "this is for the dialect \"mcp\"")));
        }
        if matches!(speaks, ServedProtocol::Mail | ServedProtocol::Bare) && self.version.is_some() {
            wrong.push((
                "version",
                "this is for the dialect \"mcp\" and the protocol \"a2a\"",
            ));
        }
        if speaks == ServedProtocol::A2a {
            wrong.extend(self.a2a_key_errors());
        } else {
            wrong.extend(
                A2A_KEYS
                    .into_iter()
                    .filter(is_set)
                    .map(|key| (key, "this is for the protocol \"a2a\"")),
            );
        }
        if !self.requires_credential()
            && self.anonymous == Some(AnonymousAccess::Denied)
            && self.is_loopback_only()
        {
            wrong.push((
                "anonymous",
                "every request would be refused: write `keys`, or leave `anonymous` out",
            ));
        }
        if self.proxy_protocol && self.trusted_proxies.is_empty() {
            wrong.push(("proxy_protocol", PROXY_PROTOCOL_MESSAGE));
        }
        let is_operator = self.anonymous == Some(AnonymousAccess::Operator);
        let is_proxied = !self.trusted_proxies.is_empty() && self.is_loopback_only();
        if is_proxied && !is_operator && !self.is_bare() && self.lacks_authentication() {
            wrong.push(("trusted_proxies", UNAUTHENTICATED_PROXY_MESSAGE));
        }
        if is_operator {
            wrong.extend(
                PROXY_KEYS
                    .into_iter()
                    .filter(is_set)
                    .map(|key| (key, OPERATOR_PROXY_MESSAGE)),
            );
        }
        wrong
    }

    /// Returns the keys that don't fit the dialect "bare", each with a reason.
    fn bare_key_errors(&self, tree: &ConfigTree) -> Vec<(&'static str, &'static str)> {
        let is_set = |key: &&str| tree.get(key).is_some_and(|value| !value.is_empty());
        let mut wrong = Vec::new();
        if self.agent.is_none() {
            wrong.push(("compat", "the dialect \"bare\" needs `agent`"));
        }
        let why = "`agents`, `keys`, `auth`, `trusted_proxies`, `proxy_protocol`, `hosts`, `origins`, `principal_share_percent` and other `compat` are \
                   for the dialect \"mcp\"";
        let has_other = self
            .compat
            .iter()
            .any(|transport| *transport != CompatTransport::Bare);
        let not_bare = KEYS_NOT_BARE
            .into_iter()
            .filter(is_set)
            .chain(has_other.then_some("compat"));
        wrong.extend(not_bare.map(|key| (key, why)));
        if !self.certificate_clients().is_empty() {
            wrong.push(("tls", BARE_CLIENTS_MESSAGE));
        }
        wrong
    }

    /// Returns the key `dialect` and a reason if it is missing or doesn't fit the protocol; `None`
    /// if it is right.
    fn dialect_error(&self) -> Option<(&'static str, &'static str)> {
        let why = match (self.protocol, self.dialect) {
            (ListenerProtocol::Mcp, None) if !self.is_bare() => {
                "the protocol \"mcp\" needs `dialect`: write `dialect = \"mcp\"`, or `compat = [\"bare\"]`"
            }
            (ListenerProtocol::A2a, Some(_)) => {
                "the protocol \"a2a\" has no dialects: leave it out"
            }
            (ListenerProtocol::Mail, Some(_)) => {
                "the protocol \"mail\" has no dialects: leave it out"
            }
            _ => return None,
        };
        Some(("dialect", why))
    }

    /// Returns the keys of addresses beyond loopback on which the listener must not listen, each
    /// with a reason.
    pub(super) fn address_errors(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let why = if self.anonymous == Some(AnonymousAccess::Operator) {
            Some("this is not a loopback address: peers there can't be the operator")
        } else if self.served_protocol() == ServedProtocol::Bare {
            Some(BARE_LOOPBACK_MESSAGE)
        } else if self.lacks_authentication() {
            Some(UNAUTHENTICATED_MESSAGE)
        } else {
            None
        };
        self.bind_addresses()
            .filter(|(_, address)| !address.ip().is_loopback())
            .filter_map(move |(key, _)| Some((key, why?)))
    }

    /// Whether the listener may be reached through a proxy: one of [`PROXY_KEYS`] is set.
    pub(crate) fn is_behind_proxy(&self) -> bool {
        self.public_url.is_some()
            || !self.hosts.is_empty()
            || self.grpc_target.is_some()
            || !self.trusted_proxies.is_empty()
    }

    /// Whether anonymous clients may list anonymous tasks. Default: only guests of a listener on
    /// loopback addresses without a declared proxy may.
    pub(crate) fn lists_anonymous(&self) -> bool {
        let is_local = self.is_loopback_only() && !self.is_behind_proxy();
        self.anonymous_task_listing
            .unwrap_or(is_local && self.anonymous_access() == AnonymousAccess::Guest)
    }

    fn mail_key_errors(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
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
                "this is for the dialect \"mcp\"",
            ),
        ];
        wrong
            .into_iter()
            .filter(|(_, is_wrong, _)| *is_wrong)
            .map(|(key, _, why)| (key, why))
    }

    fn a2a_key_errors(&self) -> Vec<(&'static str, &'static str)> {
        let mut wrong = Vec::new();
        if !self.compat.is_empty() {
            wrong.push(("compat", "this is for the dialect \"mcp\""));
        }
        let is_operator = self.anonymous == Some(AnonymousAccess::Operator);
        if self.extended_card == Some(true) && !self.requires_credential() && !is_operator {
            wrong.push((
                "extended_card",
                "no client could read it without keys: write `keys` too",
            ));
        }
        if self.anonymous_task_listing == Some(true) && (self.requires_credential() || is_operator)
        {
            wrong.push((
                "anonymous_task_listing",
                "this listener accepts no anonymous clients: leave it out",
            ));
        }
        if self
            .public_url
            .as_ref()
            .is_some_and(|url| url.url().query().is_some())
        {
            wrong.push(("public_url", "it can't have a query"));
        }
        if self.bind.ip().is_unspecified() && self.public_url.is_none() {
            wrong.push((
                "bind",
                "agent cards can't name this address: write `public_url`",
            ));
        }
        wrong.extend(self.grpc_key_errors());
        wrong
    }

    fn grpc_key_errors(&self) -> Vec<(&'static str, &'static str)> {
        let mut wrong = Vec::new();
        let Some(bind) = self.grpc_bind else {
            if self.grpc_target.is_some() {
                wrong.push((
                    "grpc_target",
                    "no gRPC listener is declared for it: write `grpc_bind` too",
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
                    "agent cards can't name this address: write `grpc_target`",
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

    /// Returns the declared addresses, each with its key.
    pub(super) fn bind_addresses(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        std::iter::once(("bind", self.bind)).chain(self.grpc_bind.map(|bind| ("grpc_bind", bind)))
    }

    /// Returns the ids of the agents that the listener names.
    pub(super) fn named_ids(&self) -> impl Iterator<Item = &str> {
        self.agent.iter().chain(&self.agents).map(String::as_str)
    }

    /// Resolves relative paths against `folder`.
    pub(super) fn resolve_paths(&mut self, folder: &Path) {
        for path in [&mut self.keys, &mut self.signing_key]
            .into_iter()
            .flatten()
        {
            *path = folder.join(&*path);
        }
        if let Some(auth) = &mut self.auth {
            auth.resolve_paths(folder);
        }
        if let Some(tls) = &mut self.tls {
            tls.resolve_paths(folder);
        }
    }
}

/// Keys that are invalid in the bare dialect.
const KEYS_NOT_BARE: [&str; 8] = [
    "agents",
    "keys",
    "auth",
    "trusted_proxies",
    "proxy_protocol",
    "hosts",
    "origins",
    "principal_share_percent",
];
/// Keys for the dialect `mcp` only.
const MCP_KEYS: [&str; 2] = ["name", "instructions"];
/// Keys for the protocol A2A only.
const A2A_KEYS: [&str; 11] = [
    "public_url",
    "grpc_bind",
    "grpc_target",
    "push_allow",
    "signing_key",
    "extended_card",
    "anonymous_task_listing",
    "idempotency_window_s",
    "provider",
    "documentation_url",
    "icon_url",
];
/// Keys that declare a proxy in front of the listener.
const PROXY_KEYS: [&str; 4] = ["public_url", "hosts", "grpc_target", "trusted_proxies"];
const OPERATOR_PROXY_MESSAGE: &str = "requests to this address or name come through a proxy, and their senders would be the operator: \
                                     write `keys` in place of `anonymous = \"operator\"`";
/// Reason why a listener without authentication isn't opened beyond this machine, with the remedies.
pub(crate) const UNAUTHENTICATED_MESSAGE: &str = "this is not a loopback address: keys are needed to listen there (`keys`), or tokens (`[listener.auth]`), or client certificates (`[[listener.tls.client]]`), or \
                                                  `anonymous = \"guest\"` if anybody who reaches it may use it";
const PROXY_PROTOCOL_MESSAGE: &str =
    "only the PROXY headers of trusted proxies are read: name their addresses in `trusted_proxies`";
const UNAUTHENTICATED_PROXY_MESSAGE: &str = "everybody beyond the proxy could use this listener: write `keys`, or `[listener.auth]`, or \
                                             `anonymous = \"guest\"` if anybody who reaches it may use it";
const BARE_CLIENTS_MESSAGE: &str = "the dialect \"bare\" has no credentials: leave `client` out of it, or write the dialect \"mcp\"";
const BARE_LOOPBACK_MESSAGE: &str = "this is not a loopback address, and the dialect \"bare\" has no credentials: bind a loopback \
                                    address, or write the dialect \"mcp\" and `keys`";

fn is_host_and_port(target: &str) -> bool {
    let parts = target.rsplit_once(':');
    parts
        .is_some_and(|(host, port)| Host::parse(host).is_ok() && port.parse::<NonZeroU16>().is_ok())
}

/// Protocol served on a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServedProtocol {
    /// The bare dialect of MCP: one JSON-RPC `tools/call` for each POST.
    Bare,
    /// MCP, both eras.
    Mcp,
    /// A2A, all versions, chosen by the request.
    A2a,
    /// Agent mail over HTTP and WebSocket.
    Mail,
}

/// Protocol of a listener, as declared (`protocol`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ListenerProtocol {
    /// Model Context Protocol.
    Mcp,
    /// Agent2Agent.
    A2a,
    /// Agent mail: HTTP and WebSocket in front of a mailroom.
    Mail,
}

/// Dialect of MCP, as declared (`dialect`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ListenerDialect {
    /// MCP of both eras over streamable HTTP.
    Mcp,
}

/// Access of clients without a credential (`anonymous`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
#[schemars(with = "serde_json::Value", extend("enum" = ["guest", "operator", false]))]
pub enum AnonymousAccess {
    /// Served as an anonymous principal (`"guest"`).
    Guest,
    /// Served as the local operator (`"operator"`). For development, on loopback addresses only.
    Operator,
    /// Refused (`false`): every request needs a key.
    Denied,
}

impl<'de> Deserialize<'de> for AnonymousAccess {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnonymousAccessVisitor)
    }
}

struct AnonymousAccessVisitor;

impl Visitor<'_> for AnonymousAccessVisitor {
    type Value = AnonymousAccess;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"guest\", \"operator\" or false")
    }

    fn visit_bool<E: de::Error>(self, is_allowed: bool) -> Result<AnonymousAccess, E> {
        // `true` doesn't say which principal the client gets.
        if is_allowed {
            Err(E::invalid_value(Unexpected::Bool(true), &self))
        } else {
            Ok(AnonymousAccess::Denied)
        }
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<AnonymousAccess, E> {
        match name {
            "guest" => Ok(AnonymousAccess::Guest),
            "operator" => Ok(AnonymousAccess::Operator),
            _ => Err(E::unknown_variant(name, &["guest", "operator"])),
        }
    }
}

/// Whether two listeners can't both bind their addresses.
pub(super) fn addresses_conflict(one: SocketAddr, other: SocketAddr) -> bool {
    let same_machine =
        one.ip() == other.ip() || one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() != 0 && one.port() == other.port() && same_machine
}

/// Whether an id can be a segment of a URL path.
pub(super) fn is_path_segment(id: &str) -> bool {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    !id.is_empty() && !id.chars().all(|c| c == '.') && id.chars().all(is_fine)
}
