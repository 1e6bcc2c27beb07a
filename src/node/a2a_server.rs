//! A2A servers of a node's listeners.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use callboard_a2a::card::CardSigningKey;
use callboard_a2a::inbound as a2a;
use callboard_a2a::inbound::{A2aOptions, A2aServer, PushOptions, RelatedAgents};
use callboard_a2a::wire::AgentProvider;
use callboard_rpc::TokenVerifier;
use callboard_runtime::AgentRef;
use secrecy::SecretString;
use url::Url;

use super::NodeError;
use super::listener_options::{access_config, listener_error, request_limits};
use super::listener_servers::{ListenerContext, ProtocolServer, ServedAgents, aggregate_name};
use crate::config::ListenerDeclaration;

/// Marker type: A2A servers of a listener, all versions.
pub(super) struct A2aProtocol;

impl ProtocolServer for A2aProtocol {
    type Server = A2aServer;
    const PATH: &'static str = a2a::A2A_PATH;
    const NAMED_PATH: &'static str = a2a::NAMED_AGENT_PATH;

    fn validate(listener: &ListenerDeclaration) -> Result<(), NodeError> {
        a2a_options(
            listener,
            listener
                .base_url(listener.bind)
                .parse()
                .map_err(|_| listener_error(listener, "its address can't be in a URL"))?,
            None,
        )
        .map(drop)
    }

    fn create(
        place: &ListenerContext<'_>,
        who: ServedAgents<'_>,
        agent: AgentRef,
    ) -> Result<A2aServer, NodeError> {
        let listener = place.listener;
        let mut options = a2a_options(listener, base_url(place, who)?, place.tokens)?;
        options.agent.name = agent_name(place, who.name());
        options.agent.description = description(place, who);
        options.shares_anonymous_tasks = listener.lists_anonymous();
        if let Some(seconds) = listener.idempotency_window_s {
            options.tasks.idempotency_window = Duration::from_secs(seconds);
        }
        // Each agent is a tenant of the gRPC server; the card of a single agent can't express a
        // tenant.
        if let (ServedAgents::All(..), Some(address)) = (who, place.grpc) {
            options.grpc_target = Some(
                listener
                    .grpc_target
                    .clone()
                    .unwrap_or_else(|| address.to_string()),
            );
        }
        // In the node's store, unless the data class forbids writing to disk.
        options.tasks.store = place
            .node
            .store
            .as_ref()
            .map(|_| place.node.system.store().clone());
        options.tasks.memory = Some(place.node.a2a_memory.clone());
        options.tasks.data_class = who.data_class(place.topology);
        let server = A2aServer::new(agent, options);
        server.set_related_agents(related_agents(place, who));
        Ok(server)
    }

    fn replace_agent(
        place: &ListenerContext<'_>,
        who: ServedAgents<'_>,
        server: &A2aServer,
        agent: AgentRef,
    ) {
        server.replace_agent(agent);
        Self::update_description(place, who, server);
    }

    fn update_description(place: &ListenerContext<'_>, who: ServedAgents<'_>, server: &A2aServer) {
        server.update_description(&description(place, who));
        server.set_related_agents(related_agents(place, who));
    }

    fn close(server: A2aServer) {
        server.detach();
    }
}

/// Returns the name of a server, under which its tasks are stored.
fn agent_name(place: &ListenerContext<'_>, name: &str) -> String {
    let orchestrator = place.topology.orchestrator(name);
    orchestrator
        .map_or(name, |orchestrator| orchestrator.name())
        .to_owned()
}

/// Returns the servers whose tasks a server shows too: that of all agents shows those of each, and
/// each finds those of all by id.
fn related_agents(place: &ListenerContext<'_>, who: ServedAgents<'_>) -> RelatedAgents {
    let own = agent_name(place, who.name());
    let ids = place.topology.served_ids(place.listener);
    let names: Vec<_> = match who {
        ServedAgents::All(_, ids) => ids.iter().map(|id| agent_name(place, id)).collect(),
        ServedAgents::One(_) => vec![agent_name(place, &aggregate_name(&ids, place.topology))],
    };
    RelatedAgents {
        names: names.into_iter().filter(|name| *name != own).collect(),
        are_listed: matches!(who, ServedAgents::All(..)),
    }
}

/// Returns the declared description; empty without one, and for several agents as one.
fn description(place: &ListenerContext<'_>, who: ServedAgents<'_>) -> String {
    let id = match who {
        ServedAgents::One(id) => id,
        ServedAgents::All(_, [alone]) => alone,
        ServedAgents::All(..) => return String::new(),
    };
    place
        .topology
        .description(id)
        .unwrap_or_default()
        .to_owned()
}

/// Returns the base URL of a server in its card.
fn base_url(place: &ListenerContext<'_>, who: ServedAgents<'_>) -> Result<Url, NodeError> {
    let public = match &place.listener.public_url {
        Some(declared) => declared.url().as_str().trim_end_matches('/').to_owned(),
        None => place.listener.base_url(place.address),
    };
    let base = match who {
        ServedAgents::All(..) => public,
        ServedAgents::One(id) => format!("{public}/agents/{id}"),
    };
    base.parse()
        .map_err(|_| listener_error(place.listener, "its address can't be in a URL"))
}

fn a2a_options(
    listener: &ListenerDeclaration,
    base: Url,
    tokens: Option<&Arc<TokenVerifier>>,
) -> Result<A2aOptions, NodeError> {
    let entrance = access_config(listener, tokens)?;
    let mut options = A2aOptions::new(base);
    options.access = entrance.access;
    options.hosts = entrance.hosts;
    options.origins = entrance.origins;
    options.limits = request_limits(listener);
    options.principal_share_percent = listener.principal_share();
    if let Some(seconds) = listener.call_deadline_s {
        options.call_deadline = Duration::from_secs(seconds.get());
    }
    let allow = listener
        .push_allow
        .iter()
        .map(|range| range.network())
        .collect();
    options.push = PushOptions {
        allowed_networks: allow,
        ..options.push
    };
    options.signer = listener
        .signing_key
        .as_ref()
        .map(|_| signing_key(listener))
        .transpose()?;
    options.extended_card = listener
        .extended_card
        .unwrap_or(listener.requires_credential());
    if let Some(version) = &listener.version {
        options.agent.version.clone_from(version);
    }
    options.agent.provider = listener.provider.as_ref().map(|provider| AgentProvider {
        url: provider.url.url().to_string(),
        organization: provider.organization.clone(),
    });
    options.agent.documentation_url = listener
        .documentation_url
        .as_ref()
        .map(|url| url.url().to_string());
    options.agent.icon_url = listener.icon_url.as_ref().map(|url| url.url().to_string());
    Ok(options)
}

fn signing_key(listener: &ListenerDeclaration) -> Result<CardSigningKey, NodeError> {
    let Some(path) = &listener.signing_key else {
        return Err(listener_error(listener, "`signing_key` is missing"));
    };
    let pem = fs::read_to_string(path).map(SecretString::from);
    let pem = pem.map_err(|error| {
        listener_error(
            listener,
            &format!("failed to read {}: {error}", path.display()),
        )
    })?;
    CardSigningKey::from_pem(&pem)
        .map_err(|error| listener_error(listener, &format!("{}: {error}", path.display())))
}
