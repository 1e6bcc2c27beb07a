//! What is known, in memory and in notes.

use std::collections::BTreeMap;

use callboard_message::{Failure, RawObject};
use callboard_runtime::{AgentRef, NOTE_BYTES_MAX_DEFAULT, Note, Notes};
use serde_json::value::to_raw_value;
use tokio::time::Instant;

use super::sanitize::{description, name, place, skills};
use super::{DIRECTORY_SPACE, Health, KNOWN_AGENTS_MAX, Known, Learned};
use crate::decide::AgentView;
use crate::memory::unkept;

/// Notes of one look at the store.
const PAGE: usize = 200;

/// All agents that are known, by id.
#[derive(Default)]
pub(super) struct Book {
    entries: BTreeMap<String, Entry>,
}

/// One of them.
pub(super) struct Entry {
    pub known: Known,
    /// What its address comes to.
    place: Option<String>,
    /// Once it was used.
    pub agent: Option<AgentRef>,
    /// When it was used, or connected to, last.
    pub used: Option<Instant>,
    /// How often in a row it didn't answer.
    pub misses: u32,
    /// When it was asked what it can do, of those declared.
    pub described: Option<Instant>,
}

impl Entry {
    fn new(known: Known) -> Self {
        let place = url::Url::parse(&known.url).ok().map(|url| place(&url));
        Self {
            known,
            place,
            agent: None,
            used: None,
            misses: 0,
            described: None,
        }
    }

    pub fn view(&self) -> AgentView {
        let Known {
            id,
            name,
            description,
            skills,
            state,
            ..
        } = self.known.clone();
        AgentView {
            id,
            name,
            description,
            skills,
            is_up: state != Health::Down,
        }
    }
}

impl Book {
    /// As it is kept. What isn't an agent's is left where it is.
    ///
    /// # Errors
    /// The store's.
    pub async fn read(notes: &dyn Notes) -> Result<Self, Failure> {
        let mut book = Self::default();
        let mut after: Option<String> = None;
        while book.entries.len() < KNOWN_AGENTS_MAX {
            let page = notes.list(DIRECTORY_SPACE, after.as_deref(), PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.key.clone());
            let read = page
                .iter()
                .filter_map(read)
                .take(KNOWN_AGENTS_MAX - book.entries.len());
            book.entries
                .extend(read.map(|known| (known.id.clone(), Entry::new(known))));
        }
        Ok(book)
    }

    pub fn all(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    pub fn get(&self, id: &str) -> Option<&Entry> {
        self.entries.get(id)
    }

    pub fn get_mut(&mut self, id: &str) -> Option<&mut Entry> {
        self.entries.get_mut(id)
    }

    /// The one at that place.
    pub fn at(&self, place: &str) -> Option<&Entry> {
        self.entries
            .values()
            .find(|entry| entry.place.as_deref() == Some(place))
    }

    pub fn is_full(&self) -> bool {
        self.entries.len() >= KNOWN_AGENTS_MAX
    }

    /// Puts one in the place of what stood there; what it had open stays open.
    pub fn put(&mut self, known: Known) {
        match self.entries.get_mut(&known.id) {
            Some(entry) => {
                *entry = Entry {
                    agent: entry.agent.take(),
                    used: entry.used,
                    ..Entry::new(known)
                }
            }
            None => drop(self.entries.insert(known.id.clone(), Entry::new(known))),
        }
    }

    /// One of the topology. An agent that was learned under the same id gives way.
    pub fn declare(&mut self, id: &str, agent: AgentRef) {
        let known = Known {
            id: id.to_owned(),
            name: id.to_owned(),
            url: String::new(),
            description: String::new(),
            skills: Vec::new(),
            learned: Learned::Declared,
            from: None,
            seen_ms: 0,
            state: Health::Unknown,
        };
        self.entries.insert(
            id.to_owned(),
            Entry {
                agent: Some(agent),
                ..Entry::new(known)
            },
        );
    }

    /// Gives back the agents that were opened.
    pub fn close(&mut self) -> Vec<AgentRef> {
        let learned = self
            .entries
            .values_mut()
            .filter(|entry| entry.known.learned != Learned::Declared);
        learned.filter_map(|entry| entry.agent.take()).collect()
    }

    pub fn remove(&mut self, id: &str) -> Option<Entry> {
        self.entries.remove(id)
    }
}

/// Keeps one.
///
/// # Errors
/// The store's.
pub(super) async fn keep(notes: &dyn Notes, known: &Known) -> Result<(), Failure> {
    let mut known = known.clone();
    let body = loop {
        let raw = to_raw_value(&known).and_then(|raw| RawObject::parse(&raw));
        let raw = raw.map_err(|_| Failure::internal("an agent can't be written down"))?;
        if raw.to_raw().get().len() <= NOTE_BYTES_MAX_DEFAULT || known.skills.is_empty() {
            break raw;
        }
        // Those that may destroy something go last.
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
        .map_err(unkept)
}

/// A note as an agent, however little it says: the file that it was imported from may be anybody's.
fn read(note: &Note) -> Option<Known> {
    let body = &note.body;
    let url = body.text("url").filter(|url| url::Url::parse(url).is_ok());
    if url.is_none() {
        callboard_message::log::warn!(
            id = note.key,
            "an agent of the directory has no address and is left out"
        );
    }
    Some(Known {
        id: note.key.clone(),
        name: name(&body.text("name").unwrap_or_else(|| note.key.clone())),
        url: url?,
        description: description(&body.text("description").unwrap_or_default()),
        skills: skills(body.read("skills").unwrap_or_default()),
        learned: body
            .read("learned")
            .filter(|how| *how != Learned::Declared)
            .unwrap_or(Learned::Told),
        from: body.text("from"),
        seen_ms: body.read("seen_ms").unwrap_or_default(),
        state: Health::Unknown,
    })
}
