//! Agents elsewhere, as an orchestrator meets them: over A2A, those that others named behind a guard.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use callboard_a2a::card::Jwks;
use callboard_a2a::outbound::{CardTrust, Peer, RemoteA2a, RemoteOptions, skill_tools};
use callboard_a2a::wire::AgentCard;
use callboard_agents::peer_registry::{Connect, NamedBy, Seen, skill_of_tool};
use callboard_message::{Failure, FailureKind};
use callboard_rpc::{Egress, Network};
use callboard_runtime::{AgentRef, System};
use futures::future::{BoxFuture, join_all};
use url::Url;

/// Reaches agents over A2A.
pub(super) struct Peers {
    networks: Vec<Network>,
    keys: Option<Jwks>,
    /// Those that were opened, by their addresses: what they have to end elsewhere.
    opened: Mutex<HashMap<Url, RemoteA2a>>,
}

impl Peers {
    /// Cards may lead to these networks, beside the public internet and their own origin; `keys` are those of whose
    /// signatures agents are learned of second-hand.
    pub(super) fn new(networks: Vec<Network>, keys: Option<Jwks>) -> Self {
        Self { networks, keys, opened: Mutex::default() }
    }

    /// How an agent is reached whose address `by` named.
    ///
    /// # Errors
    /// `Denied` where nothing that it could say would be believed.
    fn options(&self, by: NamedBy) -> Result<RemoteOptions, Failure> {
        let egress = self.networks.iter().copied().fold(Egress::public(), Egress::with_network);
        let NamedBy::Peer { may_be_here, must_be_signed } = by else {
            return Ok(RemoteOptions { egress, ..RemoteOptions::default() });
        };
        let trust = match (must_be_signed, &self.keys) {
            (false, _) => CardTrust::Any,
            (true, Some(keys)) => CardTrust::Signed { keys: keys.clone(), jku_hosts: Vec::new() },
            (true, None) => {
                let why = "agents that others name have to be allowed, or signed by a trusted key";
                return Err(Failure::new(FailureKind::Denied, why));
            }
        };
        let egress = if may_be_here { egress.with_loopback() } else { egress };
        Ok(RemoteOptions { egress, trust, is_hearsay: true, ..RemoteOptions::default() })
    }
}

impl Connect for Peers {
    fn look<'a>(&'a self, url: &'a Url, by: NamedBy) -> BoxFuture<'a, Result<Seen, Failure>> {
        Box::pin(async move {
            // One of its own, so that the card is fetched now.
            let peer =
                Peer::new(url.clone(), self.options(by)?).map_err(|error| Failure::invalid(error.to_string()))?;
            Ok(seen(&peer.public_card().await?.card))
        })
    }

    fn open(&self, system: &System, url: &Url, by: NamedBy) -> Result<AgentRef, Failure> {
        let remote = RemoteA2a::new(url.clone(), self.options(by)?);
        let remote = remote.map_err(|error| Failure::invalid(error.to_string()))?;
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.insert(url.clone(), remote.clone());
        Ok(system.prepare_with(move || remote.clone()).label(url.as_str()).spawn())
    }

    fn said_goodbye(&self) -> BoxFuture<'_, ()> {
        let opened = std::mem::take(&mut *self.opened.lock().unwrap_or_else(PoisonError::into_inner));
        Box::pin(async move {
            join_all(opened.values().map(RemoteA2a::said_goodbye)).await;
        })
    }
}

/// What a card says. Its skills take the way of those of a declared agent: as tools.
fn seen(card: &AgentCard) -> Seen {
    let skills = skill_tools(card).iter().filter_map(skill_of_tool).collect();
    Seen { name: card.name.clone(), description: card.description.clone(), skills }
}
