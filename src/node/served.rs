//! The servers of MCP and of A2A, as a topology declares them.

use std::fs;
use std::time::Duration;

use callboard_a2a::card::SigningKey;
use callboard_a2a::inbound::{self as a2a, A2aOptions, A2aServer, PushOptions};
use callboard_a2a::wire::AgentProvider;
use callboard_mcp::inbound::{self as mcp, Compat, InboundOptions, McpServer, McpServerOptions, TaskStore};
use callboard_runtime::AgentRef;
use secrecy::SecretString;
use url::Url;

use super::NodeError;
use super::front::{Place, Served, Who};
use super::listen::{entrance, limits};
use crate::config::{CompatTransport, ConfigError, Listener};

/// MCP, both eras.
pub(super) struct Mcp;

impl Served for Mcp {
    type Server = McpServer;
    const PATH: &'static str = mcp::PATH_DEFAULT;
    const NAMED_PATH: &'static str = mcp::NAMED_PATH;

    fn can_serve(listener: &Listener) -> Result<(), NodeError> {
        mcp_options(listener).map(drop)
    }

    fn server(place: &Place<'_>, who: Who<'_>, agent: AgentRef) -> Result<McpServer, NodeError> {
        let options = mcp_options(place.listener)?;
        let info = mcp::Info { name: who.name().to_owned(), ..mcp::Info::default() };
        // In the node's store, as far as what is behind it may be on a disk.
        let store = place.node.store.as_ref().map(|_| TaskStore::from(place.node.system.store()));
        let tasks = mcp::TaskOptions { store, class: who.class(place.topology), ..options.inbound.tasks };
        let inbound = InboundOptions { info, tasks, ..options.inbound };
        let claims_must_match = place.topology.has_mailroom(who.ids());
        let path = Self::PATH.to_owned();
        Ok(McpServer::new(agent, McpServerOptions { inbound, path, claims_must_match, ..options }))
    }

    fn replace(_: &Place<'_>, _: Who<'_>, server: &McpServer, agent: AgentRef) {
        server.replace(agent);
    }

    /// It says nothing of what anything is for.
    fn describe(_: &Place<'_>, _: Who<'_>, _: &McpServer) {}

    fn end(server: McpServer) {
        // Its sessions have had their answers.
        drop(server);
    }
}

pub(super) fn mcp_options(listener: &Listener) -> Result<McpServerOptions, NodeError> {
    let entrance = entrance(listener)?;
    let has = |transport| listener.compat.contains(&transport);
    let default = if listener.is_bare() { McpServerOptions::bare() } else { McpServerOptions::default() };
    let InboundOptions { call_deadline, .. } = default.inbound;
    let call_deadline = listener.call_deadline_s.map_or(call_deadline, |s| Duration::from_secs(s.get()));
    Ok(McpServerOptions {
        inbound: InboundOptions { limits: limits(listener), call_deadline, ..default.inbound },
        access: entrance.access,
        hosts: entrance.hosts,
        origins: entrance.origins,
        compat: Compat { websocket: has(CompatTransport::Websocket), sse: has(CompatTransport::Sse), ..default.compat },
        ..default
    })
}

/// A2A, all versions.
pub(super) struct A2a;

impl Served for A2a {
    type Server = A2aServer;
    const PATH: &'static str = a2a::PATH;
    const NAMED_PATH: &'static str = a2a::NAMED_PATH;

    fn can_serve(listener: &Listener) -> Result<(), NodeError> {
        let base = format!("http://{}", listener.bind);
        a2a_options(listener, base.parse().map_err(|_| wrong(listener, "its address can't be in a URL"))?).map(drop)
    }

    fn server(place: &Place<'_>, who: Who<'_>, agent: AgentRef) -> Result<A2aServer, NodeError> {
        let listener = place.listener;
        let mut options = a2a_options(listener, base(place, who)?)?;
        options.info.name = who.name().to_owned();
        if let Some(orchestrator) = place.topology.orchestrator(who.name()) {
            options.info.name = orchestrator.name().to_owned();
        }
        options.info.description = description(place, who);
        options.one_anonymous = listener.lists_anonymous();
        if let Some(seconds) = listener.repeat_s {
            options.tasks.repeat_within = Duration::from_secs(seconds);
        }
        // Each by itself is a tenant there, which no card of its own can say.
        if let (Who::All(..), Some(address)) = (who, place.grpc) {
            options.grpc_target = Some(listener.grpc_target.clone().unwrap_or_else(|| address.to_string()));
        }
        // In the node's store, as far as what is behind it may be on a disk.
        options.tasks.store = place.node.store.as_ref().map(|_| place.node.system.store().clone());
        options.tasks.class = who.class(place.topology);
        Ok(A2aServer::new(agent, options))
    }

    fn replace(place: &Place<'_>, who: Who<'_>, server: &A2aServer, agent: AgentRef) {
        server.replace(agent);
        Self::describe(place, who, server);
    }

    fn describe(place: &Place<'_>, who: Who<'_>, server: &A2aServer) {
        server.describe(&description(place, who));
    }

    fn end(server: A2aServer) {
        server.leave();
    }
}

/// What the file says that it is for; empty where it doesn't, and for several as one.
fn description(place: &Place<'_>, who: Who<'_>) -> String {
    let id = match who {
        Who::One(id) => id,
        Who::All(_, [alone]) => alone,
        Who::All(..) => return String::new(),
    };
    place.topology.description(id).unwrap_or_default().to_owned()
}

/// What stands before a server's paths in its card.
fn base(place: &Place<'_>, who: Who<'_>) -> Result<Url, NodeError> {
    let public = match &place.listener.public_url {
        Some(declared) => declared.url().as_str().trim_end_matches('/').to_owned(),
        None => format!("http://{}", place.address),
    };
    let base = match who {
        Who::All(..) => public,
        Who::One(id) => format!("{public}/agents/{id}"),
    };
    base.parse().map_err(|_| wrong(place.listener, "its address can't be in a URL"))
}

fn a2a_options(listener: &Listener, base: Url) -> Result<A2aOptions, NodeError> {
    let entrance = entrance(listener)?;
    let mut options = A2aOptions::at(base);
    options.access = entrance.access;
    options.hosts = entrance.hosts;
    options.origins = entrance.origins;
    options.limits = limits(listener);
    if let Some(seconds) = listener.call_deadline_s {
        options.call_deadline = Duration::from_secs(seconds.get());
    }
    let allow = listener.push_allow.iter().map(|range| range.network()).collect();
    options.push = PushOptions { allow, ..options.push };
    options.signer = listener.signing_key.as_ref().map(|_| signing_key(listener)).transpose()?;
    options.extended = listener.extended_card.unwrap_or(listener.keys.is_some());
    if let Some(version) = &listener.version {
        options.info.version.clone_from(version);
    }
    options.info.provider = listener.provider.as_ref().map(|provider| AgentProvider {
        url: provider.url.url().to_string(),
        organization: provider.organization.clone(),
    });
    options.info.documentation_url = listener.documentation_url.as_ref().map(|url| url.url().to_string());
    options.info.icon_url = listener.icon_url.as_ref().map(|url| url.url().to_string());
    Ok(options)
}

fn signing_key(listener: &Listener) -> Result<SigningKey, NodeError> {
    let Some(path) = &listener.signing_key else { return Err(wrong(listener, "it has no signing key")) };
    let pem = fs::read_to_string(path).map(SecretString::from);
    let pem = pem.map_err(|error| wrong(listener, &format!("failed to read {}: {error}", path.display())))?;
    SigningKey::from_pem(&pem).map_err(|error| wrong(listener, &format!("{}: {error}", path.display())))
}

fn wrong(listener: &Listener, why: &str) -> NodeError {
    ConfigError::Listener { bind: listener.bind, why: why.to_owned() }.into()
}
