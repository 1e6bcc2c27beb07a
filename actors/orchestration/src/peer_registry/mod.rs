//! Registry of the agents an orchestrator can delegate to: declared ones of the topology, and
//! discovered ones. It is kept in the key-value store (space [`DIRECTORY_SPACE`], key: agent id),
//! so it survives restarts.
//!
//! Agents named by another agent (second-hand) are added only if the operator's list has their
//! origin or a key trusted by the operator signs their card. The card is fetched directly from the
//! named address and must have the stated name. Only agents on this machine may name addresses on
//! it. At most [`EXCHANGE_AGENTS_MAX`] agents are added per exchange, and no agent gets an id that
//! another one has.

mod cache;
mod discovery;
mod sanitize;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use callboard_message::Failure;
use callboard_runtime::{AgentRef, KvStore, NamePatterns, System};
use futures::future::{BoxFuture, join_all};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use url::Url;

use crate::decide::{PeerAgentView, SkillView};

use cache::{PeerCache, PeerEntry};
use sanitize::{address_key, is_loopback};

pub use discovery::{
    CONNECT_TIMEOUT, DOWN_AFTER_MISSES, EXCHANGE_AGENTS_MAX, EXCHANGE_TIMEOUT,
    HEALTH_CHECK_IDLE_MAX, HEALTH_CHECK_INTERVAL, skill_of_tool,
};
pub use sanitize::{ADDRESS_BYTES_MAX, AGENT_ID_BYTES_MAX, AGENT_NAME_CHARS_MAX, AGENT_SKILLS_MAX};

/// Name of the key-value space in which the registry stores known agents.
pub const DIRECTORY_SPACE: &str = "directory";
/// Maximum number of known agents. Beyond it, new ones are rejected with `Overloaded`. Fixed.
pub const KNOWN_AGENTS_MAX: usize = 1_000;

/// Contents of a fetched agent card.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FetchedCard {
    /// Display name.
    pub name: String,
    /// Description.
    pub description: String,
    /// Skills of the agent.
    pub skills: Vec<SkillView>,
}

/// Origin of an agent's address. It decides which networks may be reached and which agent cards are
/// trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressSource {
    /// The operator: any network may be reached.
    Operator,
    /// Another agent or principal: only the public internet and networks that the operator named
    /// may be reached.
    Peer {
        /// Whether this machine may be reached too, because the peer is on it.
        may_be_local: bool,
        /// Whether the card needs a signature by a key that the operator trusts.
        must_be_signed: bool,
    },
}

/// Connector to remote agents. It keeps this crate independent of wire protocols.
pub trait AgentConnector: Send + Sync + 'static {
    /// Fetches the card of the agent at `url`.
    ///
    /// # Errors
    /// `Denied` if the address may not be reached or the card isn't trusted, else `Unavailable` or
    /// `TimedOut`.
    fn fetch_card<'a>(
        &'a self,
        url: &'a Url,
        by: AddressSource,
    ) -> BoxFuture<'a, Result<FetchedCard, Failure>>;

    /// Creates a proxy in `system` for the agent at `url`, without contacting it.
    ///
    /// # Errors
    /// A failure if the address can't be used, for example because it may not be reached.
    fn open(&self, system: &System, url: &Url, by: AddressSource) -> Result<AgentRef, Failure>;

    /// Waits until remote work of closed proxies has ended.
    fn drained(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// Way in which an agent became known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiscoverySource {
    /// This orchestrator connected to the agent.
    Connected,
    /// Another agent named this agent in an exchange of known agents.
    Exchange,
    /// The operator or a peer named the agent.
    Told,
    /// The topology declares the agent.
    Declared,
}

/// Reachability of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PeerHealth {
    /// The agent answered the latest health check.
    Up,
    /// The agent is unreachable.
    Down,
    /// The agent's health hasn't been checked.
    Unknown,
}

/// Known agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeerAgent {
    /// Exact id in this registry.
    pub id: String,
    /// Display name.
    pub name: String,
    /// Address; empty for a declared agent.
    pub url: String,
    /// Description.
    pub description: String,
    /// Skills of the agent.
    pub skills: Vec<SkillView>,
    /// Way in which the agent became known.
    pub learned: DiscoverySource,
    /// Id of the agent or principal that named this agent; `None` if the operator did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Time of the last sign of life, in milliseconds since the Unix epoch.
    pub seen_ms: u64,
    /// Reachability of the agent.
    pub state: PeerHealth,
}

/// Options of a [`PeerRegistry`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PeerRegistryOptions {
    /// Id of the orchestrator itself.
    pub id: String,
    /// Display name of the orchestrator itself.
    pub name: String,
    /// Patterns of origins whose agents may be added second-hand without a trusted signature, for
    /// example `https://*.example.com` or `http://localhost:*`.
    pub allowed_origins: Vec<String>,
}

/// Registry of one orchestrator's known agents. Clones share the registry.
#[derive(derive_more::Debug, Clone)]
#[debug("KnownAgents {{ of: {:?}, .. }}", inner.id)]
pub struct PeerRegistry {
    inner: Arc<RegistryInner>,
}

struct RegistryInner {
    system: System,
    notes: Arc<dyn KvStore>,
    connector: Arc<dyn AgentConnector>,
    id: String,
    name: String,
    allowed_origins: NamePatterns<()>,
    cache: Mutex<PeerCache>,
    listen_address: Mutex<Option<ListenAddress>>,
}

/// Address at which this orchestrator is reachable.
#[derive(Clone)]
struct ListenAddress {
    url: String,
    place: String,
    is_local: bool,
}

impl PeerRegistry {
    /// Opens the registry and loads the known agents from `notes`.
    ///
    /// # Errors
    /// Failures of the store; `InvalidInput` for an invalid origin pattern.
    pub async fn open(
        system: &System,
        notes: Arc<dyn KvStore>,
        connect: Arc<dyn AgentConnector>,
        options: PeerRegistryOptions,
    ) -> Result<Self, Failure> {
        let PeerRegistryOptions {
            id,
            name,
            allowed_origins: allow,
        } = options;
        if let Some(wrong) = allow.iter().find(|pattern| !is_origin_pattern(pattern)) {
            let why = "write an origin like `https://*.example.com` or `http://localhost:*`";
            return Err(Failure::invalid(format!(
                "{wrong:?} is no pattern of origins: {why}"
            )));
        }
        let cache = Mutex::new(PeerCache::load(&*notes).await?);
        let (system, allow, here) = (
            system.clone(),
            allow.into_iter().collect(),
            Mutex::default(),
        );
        Ok(Self {
            inner: Arc::new(RegistryInner {
                system,
                notes,
                connector: connect,
                id,
                name,
                allowed_origins: allow,
                cache,
                listen_address: here,
            }),
        })
    }

    /// Sets this orchestrator's own address, which is sent to other agents; `None` while it can't
    /// be reached. `is_local` tells that only this machine can reach it; then other agents may name
    /// addresses on this machine.
    pub fn set_listen_address(&self, url: Option<&str>, is_local: bool) {
        let read = |url: &str| Some((url.to_owned(), address_key(&Url::parse(url).ok()?)));
        let here = url.and_then(read).map(|(url, place)| ListenAddress {
            url,
            place,
            is_local,
        });
        *self.inner.listen_address.lock() = here;
    }

    /// Adds an agent of the topology. Its skills are queried when they are needed.
    pub fn declare(&self, id: &str, agent: AgentRef) {
        self.lock_cache().declare(id, agent);
    }

    /// Returns all known agents, ordered by id.
    pub fn list(&self) -> Vec<PeerAgent> {
        self.lock_cache()
            .iter()
            .map(|entry| entry.peer.clone())
            .collect()
    }

    /// Returns the agent with exactly this id; `None` if it isn't known.
    pub fn get(&self, id: &str) -> Option<PeerAgent> {
        self.lock_cache().get(id).map(|entry| entry.peer.clone())
    }

    /// Returns a reference to an agent, opening a proxy if needed.
    ///
    /// # Errors
    /// `NotFound` for an unknown id, or the failure of [`AgentConnector::open`].
    pub async fn agent_ref(&self, id: &str) -> Result<AgentRef, Failure> {
        let known = {
            let mut cache = self.lock_cache();
            let entry = cache.get_mut(id).ok_or_else(|| {
                Failure::not_found("no agent with that id is known: connect to it first")
            })?;
            entry.last_used = Some(Instant::now());
            if let Some(agent) = &entry.agent {
                return Ok(agent.clone());
            }
            entry.peer.clone()
        };
        let RegistryInner {
            connector: connect,
            system,
            ..
        } = &*self.inner;
        let agent = connect.open(system, &agent_url(&known)?, self.address_source(&known))?;
        Ok(self.register_opened(id, agent))
    }

    /// Removes a discovered agent. Returns `false` if it isn't known or is declared by the
    /// topology.
    ///
    /// # Errors
    /// Failures of the store.
    pub async fn forget(&self, id: &str) -> Result<bool, Failure> {
        if self
            .get(id)
            .is_none_or(|known| known.learned == DiscoverySource::Declared)
        {
            return Ok(false);
        }
        self.inner.notes.remove(DIRECTORY_SPACE, id).await?;
        let gone = self.lock_cache().remove(id);
        if let Some(agent) = gone.and_then(|entry| entry.agent) {
            agent.stop();
        }
        Ok(true)
    }

    /// Returns all known agents as deciders see them. Declared agents are asked for their skills
    /// first, if their last description has expired.
    pub async fn agent_views(&self) -> Vec<PeerAgentView> {
        self.describe_declared().await;
        self.lock_cache().iter().map(PeerEntry::view).collect()
    }

    /// Stops all opened proxies and waits until their remote work has ended. The registry must not
    /// be used afterwards.
    pub async fn close(&self) {
        let opened = self.lock_cache().take_opened();
        opened.iter().for_each(AgentRef::stop);
        join_all(opened.iter().map(AgentRef::wait_for_exit)).await;
        self.inner.connector.drained().await;
    }

    /// Returns the id of the orchestrator itself.
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// Returns the display name of the orchestrator itself.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns the address of the orchestrator itself; `None` while it can't be reached.
    pub fn url(&self) -> Option<String> {
        self.listen_address().map(|here| here.url)
    }

    fn listen_address(&self) -> Option<ListenAddress> {
        self.inner.listen_address.lock().clone()
    }

    fn lock_cache(&self) -> MutexGuard<'_, PeerCache> {
        self.inner.cache.lock()
    }

    /// Registers a newly opened proxy in the cache, and in the system's directory if the id is free
    /// there. Returns the agent to use: if another caller has opened one first, that one, and
    /// `agent` is stopped.
    fn register_opened(&self, id: &str, agent: AgentRef) -> AgentRef {
        let mut cache = self.lock_cache();
        match cache.get_mut(id) {
            // Another caller opened it first.
            Some(PeerEntry {
                agent: Some(there), ..
            }) => {
                agent.stop();
                there.clone()
            }
            entry => {
                if let Some(entry) = entry {
                    entry.agent = Some(agent.clone());
                }
                // No group: the agent is found only by its id.
                let listed = self.inner.system.directory().register_in(id, &agent, []);
                if listed.is_err() {
                    callboard_message::log::debug!(id, "another agent of this system has that id");
                }
                agent
            }
        }
    }

    /// Returns the origin of a known agent's address, by who named it.
    fn address_source(&self, known: &PeerAgent) -> AddressSource {
        let is_hearsay = known.learned == DiscoverySource::Exchange || known.from.is_some();
        match Url::parse(&known.url).ok().filter(|_| is_hearsay) {
            None => AddressSource::Operator,
            // Local access was checked when the agent was added, so it isn't checked again.
            Some(url) => self.peer_source(&url, is_loopback(&url)),
        }
    }

    fn peer_source(&self, url: &Url, may_be_here: bool) -> AddressSource {
        let is_allowed = self
            .inner
            .allowed_origins
            .has(&url.origin().ascii_serialization());
        AddressSource::Peer {
            may_be_local: may_be_here,
            must_be_signed: !is_allowed,
        }
    }
}

fn agent_url(known: &PeerAgent) -> Result<Url, Failure> {
    Url::parse(&known.url).map_err(|_| {
        Failure::unavailable(format!(
            "the address of the agent {} is unknown: connect to it",
            known.id
        ))
    })
}

/// Whether the text is an origin pattern: scheme, host and optional port, without a path.
fn is_origin_pattern(pattern: &str) -> bool {
    let host = pattern
        .strip_prefix("http://")
        .or_else(|| pattern.strip_prefix("https://"));
    host.is_some_and(|host| {
        !host.is_empty() && !host.contains(['/', '@', '#']) && !host.contains(char::is_whitespace)
    })
}
