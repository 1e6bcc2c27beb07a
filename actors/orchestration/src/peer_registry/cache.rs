//! In-memory cache of known agents, backed by the key-value store.

use std::collections::BTreeMap;

use callboard_message::{Failure, RawObject};
use callboard_runtime::{AgentRef, KV_VALUE_BYTES_MAX_DEFAULT, KvEntry, KvStore};
use serde_json::value::to_raw_value;
use tokio::time::Instant;

use super::sanitize::{address_key, sanitize_description, sanitize_name, sanitize_skills};
use super::{DIRECTORY_SPACE, DiscoverySource, KNOWN_AGENTS_MAX, PeerAgent, PeerHealth};
use crate::decide::PeerAgentView;
use crate::memory::note_failure;

/// Entries read per page from the store.
const PAGE_SIZE: usize = 200;

/// Known agents, by id.
#[derive(Default)]
pub(super) struct PeerCache {
    entries: BTreeMap<String, PeerEntry>,
}

/// Cached state of one known agent.
pub(super) struct PeerEntry {
    pub peer: PeerAgent,
    /// Normalized address: see [`address_key`].
    address_key: Option<String>,
    /// Reference to the agent; `None` until a proxy is opened at its first use.
    pub agent: Option<AgentRef>,
    /// Time of the agent's last use or connection.
    pub last_used: Option<Instant>,
    /// Consecutive failed health checks.
    pub misses: u32,
    /// Time when a declared agent last described its skills.
    pub last_described: Option<Instant>,
}

impl PeerEntry {
    fn new(peer: PeerAgent) -> Self {
        let address_key = url::Url::parse(&peer.url).ok().map(|url| address_key(&url));
        Self {
            peer,
            address_key,
            agent: None,
            last_used: None,
            misses: 0,
            last_described: None,
        }
    }

    pub fn view(&self) -> PeerAgentView {
        let PeerAgent {
            id,
            name,
            description,
            skills,
            state,
            ..
        } = self.peer.clone();
        PeerAgentView {
            id,
            name,
            description,
            skills,
            is_up: state != PeerHealth::Down,
        }
    }
}

impl PeerCache {
    /// Loads up to [`KNOWN_AGENTS_MAX`] known agents from the store. Entries that aren't agents are
    /// skipped and kept.
    ///
    /// # Errors
    /// Failures of the store.
    pub async fn load(notes: &dyn KvStore) -> Result<Self, Failure> {
        let mut cache = Self::default();
        let mut after: Option<String> = None;
        while cache.entries.len() < KNOWN_AGENTS_MAX {
            let page = notes
                .list(DIRECTORY_SPACE, after.as_deref(), PAGE_SIZE)
                .await?;
            let Some(last) = page.last() else { break };
            after = Some(last.key.clone());
            let read = page
                .iter()
                .filter_map(parse_note)
                .take(KNOWN_AGENTS_MAX - cache.entries.len());
            cache
                .entries
                .extend(read.map(|known| (known.id.clone(), PeerEntry::new(known))));
        }
        Ok(cache)
    }

    pub fn iter(&self) -> impl Iterator<Item = &PeerEntry> {
        self.entries.values()
    }

    pub fn get(&self, id: &str) -> Option<&PeerEntry> {
        self.entries.get(id)
    }

    pub fn get_mut(&mut self, id: &str) -> Option<&mut PeerEntry> {
        self.entries.get_mut(id)
    }

    /// Returns the agent with the normalized address `place` (see [`address_key`]); `None` if it
    /// isn't known.
    pub fn find_by_address(&self, place: &str) -> Option<&PeerEntry> {
        self.entries
            .values()
            .find(|entry| entry.address_key.as_deref() == Some(place))
    }

    pub fn is_full(&self) -> bool {
        self.entries.len() >= KNOWN_AGENTS_MAX
    }

    /// Inserts or replaces an agent. The opened reference and the last use of a replaced agent are
    /// kept.
    pub fn insert(&mut self, known: PeerAgent) {
        match self.entries.get_mut(&known.id) {
            Some(entry) => {
                *entry = PeerEntry {
                    agent: entry.agent.take(),
                    last_used: entry.last_used,
                    ..PeerEntry::new(known)
                }
            }
            None => drop(self.entries.insert(known.id.clone(), PeerEntry::new(known))),
        }
    }

    /// Inserts an agent of the topology. It replaces a discovered agent with the same id.
    pub fn declare(&mut self, id: &str, agent: AgentRef) {
        let known = PeerAgent {
            id: id.to_owned(),
            name: id.to_owned(),
            url: String::new(),
            description: String::new(),
            skills: Vec::new(),
            learned: DiscoverySource::Declared,
            from: None,
            seen_ms: 0,
            state: PeerHealth::Unknown,
        };
        self.entries.insert(
            id.to_owned(),
            PeerEntry {
                agent: Some(agent),
                ..PeerEntry::new(known)
            },
        );
    }

    /// Removes and returns all opened references to discovered agents. The agents stay known.
    pub fn take_opened(&mut self) -> Vec<AgentRef> {
        let learned = self
            .entries
            .values_mut()
            .filter(|entry| entry.peer.learned != DiscoverySource::Declared);
        learned.filter_map(|entry| entry.agent.take()).collect()
    }

    pub fn remove(&mut self, id: &str) -> Option<PeerEntry> {
        self.entries.remove(id)
    }
}

/// Stores an agent. Drops skills if the entry is too large for the store, harmless ones first.
///
/// # Errors
/// Failures of the store.
pub(super) async fn store_peer(notes: &dyn KvStore, known: &PeerAgent) -> Result<(), Failure> {
    let mut known = known.clone();
    let body = loop {
        let raw = to_raw_value(&known).and_then(|raw| RawObject::parse(&raw));
        let raw = raw
            .map_err(|_| Failure::internal("failed to encode an agent of the registry as JSON"))?;
        if raw.to_raw().get().len() <= KV_VALUE_BYTES_MAX_DEFAULT || known.skills.is_empty() {
            break raw;
        }
        // Harmless skills are dropped first, because the risk of an agent follows from its
        // destructive ones.
        let tame = known
            .skills
            .iter()
            .rposition(|skill| !skill.is_destructive());
        known.skills.remove(tame.unwrap_or(known.skills.len() - 1));
    };
    notes
        .put(DIRECTORY_SPACE, &known.id, body, None)
        .await
        .map(drop)
        .map_err(note_failure)
}

/// Parses a stored entry and leaves out invalid fields, because imported files may come from
/// anyone. `None` without a valid address.
fn parse_note(note: &KvEntry) -> Option<PeerAgent> {
    let body = &note.body;
    let url = body.text("url").filter(|url| url::Url::parse(url).is_ok());
    if url.is_none() {
        callboard_message::log::warn!(
            id = note.key,
            "an agent stored in the registry has no valid `url`: skipped"
        );
    }
    Some(PeerAgent {
        id: note.key.clone(),
        name: sanitize_name(&body.text("name").unwrap_or_else(|| note.key.clone())),
        url: url?,
        description: sanitize_description(&body.text("description").unwrap_or_default()),
        skills: sanitize_skills(body.read("skills").unwrap_or_default()),
        learned: body
            .read("learned")
            .filter(|how| *how != DiscoverySource::Declared)
            .unwrap_or(DiscoverySource::Told),
        from: body.text("from"),
        seen_ms: body.read("seen_ms").unwrap_or_default(),
        state: PeerHealth::Unknown,
    })
}
