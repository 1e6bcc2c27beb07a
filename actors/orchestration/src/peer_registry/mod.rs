//! The agents that an orchestrator knows: those declared, and those learned by connecting and by exchange. It is kept in notes
//! (space [`DIRECTORY_SPACE`], an agent's id is its key), so it outlives the process.
//!
//! What somebody else says of a third is hearsay. An agent is learned so only if its origin is on the operator's list or its
//! card is signed by a key that the operator trusts; its card is fetched by us, from its own address, and must bear the name
//! that was said; whoever isn't on this machine never names a place on it. At most [`EXCHANGE_AGENTS_MAX`] are taken at once,
//! and nobody's id is given to another.

mod cache;
mod discovery;
mod sanitize;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use callboard_message::Failure;
use callboard_runtime::{AgentRef, Notes, Patterns, System};
use futures::future::{BoxFuture, join_all};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use url::Url;

use crate::decide::{AgentView, SkillView};

use cache::{Book, Entry};
use sanitize::{is_here, place};

pub use discovery::{
    CHECK_EVERY, CONNECT_WITHIN, DOWN_AFTER_MISSES, EXCHANGE_AGENTS_MAX, EXCHANGE_WITHIN,
    USED_WITHIN, skill_of_tool,
};
pub use sanitize::{ADDRESS_BYTES_MAX, AGENT_ID_BYTES_MAX, NAME_CHARS_MAX, SKILLS_KEPT_MAX};

/// The space of notes that the directory is kept in.
pub const DIRECTORY_SPACE: &str = "directory";
/// Most agents that are known.
pub const KNOWN_AGENTS_MAX: usize = 1_000;

/// What an agent's card says, fetched just now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// Its name.
    pub name: String,
    /// What it is.
    pub description: String,
    /// What it can do.
    pub skills: Vec<SkillView>,
}

/// Who named an address: what decides where it may lead, and whose card is believed there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedBy {
    /// Whoever runs this agent: it may lead anywhere.
    Operator,
    /// Somebody else: it leads to the public internet, and to the networks that the operator named.
    Peer {
        /// It may lead to this machine too: whoever named it is on it.
        may_be_here: bool,
        /// The card counts only with the signature of a key that the operator trusts.
        must_be_signed: bool,
    },
}

/// How agents elsewhere are reached: this crate knows no protocol.
pub trait Connect: Send + Sync + 'static {
    /// Fetches the card of the agent at `url`.
    ///
    /// # Errors
    /// `Denied` where the place may not be reached or the card isn't believed, else `Unavailable` or `TimedOut`.
    fn look<'a>(&'a self, url: &'a Url, by: NamedBy) -> BoxFuture<'a, Result<Seen, Failure>>;

    /// Makes an agent of `system` that stands for the one at `url`. It isn't asked anything yet.
    ///
    /// # Errors
    /// Where it can't be reached as it would have to be.
    fn open(&self, system: &System, url: &Url, by: NamedBy) -> Result<AgentRef, Failure>;

    /// Ends once what the agents that were opened had to end elsewhere has ended.
    fn said_goodbye(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// How an agent came to be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Learned {
    /// We connected to it.
    Connected,
    /// Another agent named it.
    Exchange,
    /// Somebody told us.
    Told,
    /// The topology declares it.
    Declared,
}

/// Whether an agent answers, as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// It does.
    Up,
    /// It doesn't.
    Down,
    /// Nobody asked.
    Unknown,
}

/// An agent that is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Known {
    /// Its exact id here.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Where it is; empty where it is declared.
    pub url: String,
    /// What it is.
    pub description: String,
    /// What it can do.
    pub skills: Vec<SkillView>,
    /// How it came to be known.
    pub learned: Learned,
    /// Who named it, where that wasn't the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// When it was heard of last, in milliseconds since 1970.
    pub seen_ms: u64,
    /// Whether it answers.
    pub state: Health,
}

/// What is taken on hearsay, and who we are.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct KnownOptions {
    /// Our own id.
    pub id: String,
    /// Our own name.
    pub name: String,
    /// Patterns of origins, for example `https://*.example.com` or `http://localhost:*`: only what matches one, or is
    /// signed, is learned second-hand.
    pub allow: Vec<String>,
}

/// The directory of one orchestrator. Clones are the same directory.
#[derive(derive_more::Debug, Clone)]
#[debug("KnownAgents {{ of: {:?}, .. }}", inner.id)]
pub struct KnownAgents {
    inner: Arc<Inner>,
}

struct Inner {
    system: System,
    notes: Arc<dyn Notes>,
    connect: Arc<dyn Connect>,
    id: String,
    name: String,
    allow: Patterns<()>,
    book: Mutex<Book>,
    here: Mutex<Option<Here>>,
}

/// Where we listen.
#[derive(Clone)]
struct Here {
    url: String,
    place: String,
    is_local: bool,
}

impl KnownAgents {
    /// As `notes` has it.
    ///
    /// # Errors
    /// The store's where it can't be read; `InvalidInput` for a pattern that isn't one.
    pub async fn open(
        system: &System,
        notes: Arc<dyn Notes>,
        connect: Arc<dyn Connect>,
        options: KnownOptions,
    ) -> Result<Self, Failure> {
        let KnownOptions { id, name, allow } = options;
        if let Some(wrong) = allow.iter().find(|pattern| !is_origin(pattern)) {
            let why = "write an origin like `https://*.example.com` or `http://localhost:*`";
            return Err(Failure::invalid(format!(
                "{wrong:?} is no pattern of origins: {why}"
            )));
        }
        let book = Mutex::new(Book::read(&*notes).await?);
        let (system, allow, here) = (
            system.clone(),
            allow.into_iter().collect(),
            Mutex::default(),
        );
        Ok(Self {
            inner: Arc::new(Inner {
                system,
                notes,
                connect,
                id,
                name,
                allow,
                book,
                here,
            }),
        })
    }

    /// Where we can be reached from now on, for those that we tell of us; `None`: nowhere. `is_local`: nobody who isn't on
    /// this machine can reach us there, so those who do may name places on it.
    pub fn listens(&self, url: Option<&str>, is_local: bool) {
        let read = |url: &str| Some((url.to_owned(), place(&Url::parse(url).ok()?)));
        let here = url.and_then(read).map(|(url, place)| Here {
            url,
            place,
            is_local,
        });
        *self.inner.here.lock() = here;
    }

    /// An agent of the topology is one of them, under its id; what it can do is asked of it.
    pub fn declare(&self, id: &str, agent: AgentRef) {
        self.book().declare(id, agent);
    }

    /// All, by id.
    pub fn list(&self) -> Vec<Known> {
        self.book().all().map(|entry| entry.known.clone()).collect()
    }

    /// The one of exactly that id.
    pub fn get(&self, id: &str) -> Option<Known> {
        self.book().get(id).map(|entry| entry.known.clone())
    }

    /// The agent itself, opened where that is needed.
    ///
    /// # Errors
    /// `NotFound`; where it can't be reached as it would have to be, why.
    pub async fn agent(&self, id: &str) -> Result<AgentRef, Failure> {
        let known = {
            let mut book = self.book();
            let entry = book
                .get_mut(id)
                .ok_or_else(|| Failure::not_found("no agent of that id is known"))?;
            entry.used = Some(Instant::now());
            if let Some(agent) = &entry.agent {
                return Ok(agent.clone());
            }
            entry.known.clone()
        };
        let Inner {
            connect, system, ..
        } = &*self.inner;
        let agent = connect.open(system, &url_of(&known)?, self.named_by(&known))?;
        Ok(self.opened(id, agent))
    }

    /// Forgets one; whether it was known. Those of the topology stay.
    ///
    /// # Errors
    /// The store's.
    pub async fn forget(&self, id: &str) -> Result<bool, Failure> {
        if self
            .get(id)
            .is_none_or(|known| known.learned == Learned::Declared)
        {
            return Ok(false);
        }
        self.inner.notes.remove(DIRECTORY_SPACE, id).await?;
        let gone = self.book().remove(id);
        if let Some(agent) = gone.and_then(|entry| entry.agent) {
            agent.stop();
        }
        Ok(true)
    }

    /// As deciders see them. Those of the topology are asked what they can do, at most now and then.
    pub async fn view(&self) -> Vec<AgentView> {
        self.describe_declared().await;
        self.book().all().map(Entry::view).collect()
    }

    /// Stops the agents that were opened, and ends once what they had to end elsewhere has ended. Nobody uses them after it.
    pub async fn close(&self) {
        let opened = self.book().close();
        opened.iter().for_each(AgentRef::stop);
        join_all(opened.iter().map(AgentRef::ended)).await;
        self.inner.connect.said_goodbye().await;
    }

    /// Our own id.
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// Our own name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Where we can be reached, while we listen.
    pub fn url(&self) -> Option<String> {
        self.here().map(|here| here.url)
    }

    fn here(&self) -> Option<Here> {
        self.inner.here.lock().clone()
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.inner.book.lock()
    }

    /// Takes an agent that was just made into use, and into the system's directory unless its name is taken there.
    fn opened(&self, id: &str, agent: AgentRef) -> AgentRef {
        let mut book = self.book();
        match book.get_mut(id) {
            // Somebody else was faster.
            Some(Entry {
                agent: Some(there), ..
            }) => {
                agent.stop();
                there.clone()
            }
            entry => {
                if let Some(entry) = entry {
                    entry.agent = Some(agent.clone());
                }
                // In no group: only who knows the id finds it.
                let listed = self.inner.system.directory().register_in(id, &agent, []);
                if listed.is_err() {
                    callboard_message::log::debug!(id, "another agent of this system has that id");
                }
                agent
            }
        }
    }

    /// Whose word an agent's address is.
    fn named_by(&self, known: &Known) -> NamedBy {
        let is_hearsay = known.learned == Learned::Exchange || known.from.is_some();
        match Url::parse(&known.url).ok().filter(|_| is_hearsay) {
            None => NamedBy::Operator,
            // It was judged when it was learned: what was here then may be here now.
            Some(url) => self.peer(&url, is_here(&url)),
        }
    }

    fn peer(&self, url: &Url, may_be_here: bool) -> NamedBy {
        let is_allowed = self.inner.allow.has(&url.origin().ascii_serialization());
        NamedBy::Peer {
            may_be_here,
            must_be_signed: !is_allowed,
        }
    }
}

fn url_of(known: &Known) -> Result<Url, Failure> {
    Url::parse(&known.url)
        .map_err(|_| Failure::unavailable("the agent's address is unknown: connect to it"))
}

/// Whether it may be a pattern of origins: scheme, host, perhaps port, and nothing behind.
fn is_origin(pattern: &str) -> bool {
    let host = pattern
        .strip_prefix("http://")
        .or_else(|| pattern.strip_prefix("https://"));
    host.is_some_and(|host| {
        !host.is_empty() && !host.contains(['/', '@', '#']) && !host.contains(char::is_whitespace)
    })
}
