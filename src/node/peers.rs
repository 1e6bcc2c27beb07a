//! Agents elsewhere, as an orchestrator meets them.

use callboard_a2a::card::Jwks;
use callboard_agents::known::{Connect, NamedBy, Seen};
use callboard_message::Failure;
use callboard_rpc::Network;
use callboard_runtime::AgentRef;
use futures::future::BoxFuture;
use url::Url;

/// Reaches agents over A2A.
pub(super) struct Peers {
    _networks: Vec<Network>,
    _keys: Option<Jwks>,
}

impl Peers {
    /// Cards may lead to these networks, beside the public internet and their own origin; `keys` are those of whose
    /// signatures agents are learned of second-hand.
    pub(super) fn new(networks: Vec<Network>, keys: Option<Jwks>) -> Self {
        Self { _networks: networks, _keys: keys }
    }
}

impl Connect for Peers {
    fn look<'a>(&'a self, _url: &'a Url, _by: NamedBy) -> BoxFuture<'a, Result<Seen, Failure>> {
        Box::pin(async { Err(Failure::internal("not built yet")) })
    }

    fn open(&self, _url: &Url, _by: NamedBy) -> Result<AgentRef, Failure> {
        Err(Failure::internal("not built yet"))
    }
}
