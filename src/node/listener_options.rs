//! Options that the servers of every protocol take from a listener's declaration.

use callboard_rpc::{
    AccessControl, AllowedHosts, AllowedOrigins, DecodeLimits, ReloadingKeyStore,
    UnauthenticatedAccess,
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

pub(super) fn access_config(listener: &ListenerDeclaration) -> Result<AccessConfig, NodeError> {
    let wrong = |why: String| ConfigError::Listener {
        bind: listener.bind,
        why,
    };
    let access = match &listener.keys {
        Some(file) => AccessControl::with_keys(ReloadingKeyStore::open(file)?),
        None if listener.open || listener.serves_remote_guests() => AccessControl::Anyone,
        None => unauthenticated_access(listener).into(),
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

pub(super) fn listener_error(listener: &ListenerDeclaration, why: &str) -> NodeError {
    ConfigError::Listener {
        bind: listener.bind,
        why: why.to_owned(),
    }
    .into()
}
