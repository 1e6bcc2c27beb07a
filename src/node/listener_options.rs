//! Options that the servers of every protocol take from a listener's declaration.

use callboard_rpc::{
    AccessControl, AllowedHosts, AllowedOrigins, BearerVerifier, DecodeLimits, IssuerRegistry,
    ReloadingKeyStore, TokenVerifier, UnauthenticatedAccess,
};

use super::NodeError;
use crate::config::{AnonymousAccess, ConfigError, ListenerDeclaration};

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

/// Returns the access checks of a listener. The keys of its token issuers are in `issuers`.
///
/// # Errors
/// [`NodeError`] if a key file can't be read, or a host or origin is invalid.
pub(super) fn access_config(
    listener: &ListenerDeclaration,
    issuers: &IssuerRegistry,
) -> Result<AccessConfig, NodeError> {
    let wrong = |why: String| ConfigError::Listener {
        bind: listener.bind,
        why,
    };
    let mut verifiers: Vec<Box<dyn BearerVerifier>> = Vec::new();
    if let Some(file) = &listener.keys {
        verifiers.push(Box::new(ReloadingKeyStore::open(file)?));
    }
    verifiers.extend(token_verifier(listener, issuers).map(|tokens| Box::new(tokens) as Box<_>));
    let access = if !verifiers.is_empty() {
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

/// Returns the verifier of the access tokens that a listener accepts; `None` if it accepts none.
pub(super) fn token_verifier(
    listener: &ListenerDeclaration,
    issuers: &IssuerRegistry,
) -> Option<TokenVerifier> {
    let auth = listener.auth.as_ref()?;
    let origin = auth.origin().or_else(|| {
        let public = listener.public_url.as_ref()?;
        public.url().join("/").ok()
    });
    Some(TokenVerifier::new(auth.issuers(), origin, issuers))
}

pub(super) fn listener_error(listener: &ListenerDeclaration, why: &str) -> NodeError {
    ConfigError::Listener {
        bind: listener.bind,
        why: why.to_owned(),
    }
    .into()
}
