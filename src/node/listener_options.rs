//! Options that the servers of every protocol take from a listener's declaration.

use std::sync::Arc;

use callboard_clinics::access::HmcpAccess;
use callboard_rpc::{
    AccessControl, AllowedHosts, AllowedOrigins, BearerVerifier, CertificateClients, DecodeLimits,
    IssuerRegistry, ReloadingKeyStore, TokenVerifier, UnauthenticatedAccess,
};

use super::NodeError;
use crate::config::{
    AgentDeclaration, AnonymousAccess, CertificateClientDeclaration, ConfigError,
    ListenerDeclaration, Topology,
};

/// Returns the access without a credential, of a listener without keys. (A listener that denies it
/// is rejected by the check.)
fn unauthenticated_access(listener: &ListenerDeclaration) -> UnauthenticatedAccess {
    match listener.anonymous_access() {
        AnonymousAccess::Operator => UnauthenticatedAccess::LoopbackOperator,
        _ if listener.is_behind_proxy() => UnauthenticatedAccess::BehindProxy,
        _ => UnauthenticatedAccess::Anonymous,
    }
}

pub(super) fn request_limits(listener: &ListenerDeclaration) -> DecodeLimits {
    let default = DecodeLimits::default();
    DecodeLimits {
        body_bytes_max: listener
            .body_bytes_max
            .map_or(default.body_bytes_max, |bytes| bytes.get()),
        ..default
    }
}

/// Access checks of a listener.
pub(super) struct AccessConfig {
    pub(super) access: AccessControl,
    pub(super) hosts: AllowedHosts,
    pub(super) origins: AllowedOrigins,
}

/// Scopes that the agents of a listener need, of which clients with tokens are told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ServedScopes {
    /// Scopes for all data, if every agent needs one.
    needed: Vec<String>,
    /// Scopes that open a part: some of the agents, or the data of one patient.
    optional: Vec<String>,
}

impl ServedScopes {
    /// Returns the scopes of the agents that a listener of `topology` serves; none if it takes no tokens.
    pub(super) fn of(topology: &Topology, listener: &ListenerDeclaration) -> Self {
        if listener.auth.is_none() {
            return Self::default();
        }
        let ids = topology.served_ids(listener);
        let found: Vec<_> = topology
            .agents_behind(&ids)
            .map(AgentDeclaration::hmcp_access)
            .collect();
        let accesses = [HmcpAccess::Read, HmcpAccess::Write];
        let accesses = accesses.into_iter().filter(|a| found.contains(&Some(*a)));
        let (all, of_patient): (Vec<_>, Vec<_>) = accesses
            .map(|access| (access.scope().to_owned(), access.patient_scope().to_owned()))
            .unzip();
        match found.contains(&None) {
            true => Self {
                needed: Vec::new(),
                optional: [all, of_patient].concat(),
            },
            false => Self {
                needed: all,
                optional: of_patient,
            },
        }
    }
}

/// Returns the access checks of a listener. `tokens` verifies its access tokens, for all its
/// servers; `None` if it accepts none, and to check the declaration alone.
///
/// # Errors
/// [`NodeError`] if a key file can't be read, or a host or origin is invalid.
pub(super) fn access_config(
    listener: &ListenerDeclaration,
    tokens: Option<&Arc<TokenVerifier>>,
) -> Result<AccessConfig, NodeError> {
    let wrong = |why: String| ConfigError::Listener {
        bind: listener.bind,
        why,
    };
    let mut verifiers: Vec<Box<dyn BearerVerifier>> = Vec::new();
    if let Some(file) = &listener.keys {
        verifiers.push(Box::new(ReloadingKeyStore::open(file)?));
    }
    verifiers.extend(tokens.map(|tokens| Box::new(tokens.clone()) as Box<_>));
    let clients = listener.certificate_clients();
    if !clients.is_empty() {
        let clients = clients.iter().map(CertificateClientDeclaration::to_client);
        verifiers.push(Box::new(CertificateClients::new(clients)));
    }
    // Without their verifier no token is accepted.
    let access = if listener.requires_credential() {
        AccessControl::with_verifiers(verifiers)
    } else if listener.open || listener.serves_remote_guests() {
        AccessControl::Anyone
    } else {
        unauthenticated_access(listener).into()
    };
    let hosts = listener
        .hosts
        .iter()
        .try_fold(AllowedHosts::default(), |hosts, host| hosts.with_host(host));
    let origins = listener
        .origins
        .iter()
        .try_fold(AllowedOrigins::default(), |origins, origin| {
            origins.with_origin(origin)
        });
    Ok(AccessConfig {
        access,
        hosts: hosts.map_err(|error| wrong(error.to_string()))?,
        origins: origins.map_err(|error| wrong(error.to_string()))?,
    })
}

/// Returns the verifier of the access tokens that a listener accepts, whose agents need `scopes`;
/// `None` if it accepts none. The keys of their issuers are in `issuers`.
///
/// # Errors
/// [`NodeError`] if the secret of an introspection endpoint can't be read.
pub(super) fn token_verifier(
    listener: &ListenerDeclaration,
    issuers: &IssuerRegistry,
    scopes: ServedScopes,
) -> Result<Option<Arc<TokenVerifier>>, NodeError> {
    let Some(auth) = &listener.auth else {
        return Ok(None);
    };
    let origin = auth.origin().or_else(|| {
        let public = listener.public_url.as_ref()?;
        public.url().join("/").ok()
    });
    let accepted = auth.issuers();
    let accepted = accepted.map_err(|why| listener_error(listener, &format!("`auth`: {why}")))?;
    let verifier = TokenVerifier::new(accepted, origin, issuers);
    Ok(Some(Arc::new(
        verifier.with_served_scopes(scopes.needed, scopes.optional),
    )))
}

pub(super) fn listener_error(listener: &ListenerDeclaration, why: &str) -> NodeError {
    ConfigError::Listener {
        bind: listener.bind,
        why: why.to_owned(),
    }
    .into()
}
