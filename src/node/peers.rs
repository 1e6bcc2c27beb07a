//! Agents elsewhere, as an orchestrator meets them.

use callboard_a2a::card::Jwks;
use callboard_agents::known::{Connect, Found};
use callboard_message::{Failure, RawObject};
use callboard_rpc::Network;
use futures::future::BoxFuture;

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
    fn connect<'a>(&'a self, _url: &'a str) -> BoxFuture<'a, Result<Found, Failure>> {
        Box::pin(async { Err(Failure::internal("not built yet")) })
    }

    fn exchange<'a>(&'a self, _found: &'a Found) -> BoxFuture<'a, Result<RawObject, Failure>> {
        Box::pin(async { Err(Failure::internal("not built yet")) })
    }
}
