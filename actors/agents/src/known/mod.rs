//! The agents that an orchestrator knows: those declared, and those learned by connecting and by exchange.

use std::fmt;
use std::sync::Arc;

use callboard_message::{Failure, RawObject};
use callboard_runtime::{AgentRef, Notes, System};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::decide::{AgentView, SkillView};

/// An agent found at an address.
#[derive(Debug, Clone)]
pub struct Found {
    /// It.
    pub agent: AgentRef,
    /// As its card says.
    pub name: String,
    /// As its card says.
    pub description: String,
    /// Where it is.
    pub url: String,
    /// Its card.
    pub card: RawObject,
    /// What it can do.
    pub skills: Vec<SkillView>,
    /// Whether the card is signed by a key that is trusted.
    pub is_signed: bool,
}

/// How agents elsewhere are reached: this crate knows no protocol.
pub trait Connect: Send + Sync + 'static {
    /// Fetches the card at `url` (an address in any form that people write) and makes an agent that stands for it.
    fn connect<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<Found, Failure>>;

    /// Asks the agent which agents it knows, and tells it of us: its answer to `list_agents` in the format `exchange`.
    fn exchange<'a>(&'a self, found: &'a Found) -> BoxFuture<'a, Result<RawObject, Failure>>;
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
    /// Who named it.
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
    /// Patterns of origins: only what matches one, or is signed, is learned second-hand.
    pub allow: Vec<String>,
}

/// The directory of one orchestrator. Clones are the same directory.
#[derive(Clone)]
pub struct KnownAgents {
    _system: System,
}

impl fmt::Debug for KnownAgents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KnownAgents")
    }
}

impl KnownAgents {
    /// As `notes` has it.
    ///
    /// # Errors
    /// `Unavailable` where the store can't be read; `InvalidInput` for a pattern that isn't one.
    pub async fn open(
        system: &System,
        _notes: Arc<dyn Notes>,
        _connect: Arc<dyn Connect>,
        _options: KnownOptions,
    ) -> Result<Self, Failure> {
        Ok(Self { _system: system.clone() })
    }

    /// Where we can be reached from now on, for those that we tell of us; `None`: nowhere.
    pub fn listens(&self, _url: Option<&str>) {}

    /// An agent of the topology is one of them, under its id; what it can do is asked of it.
    pub fn declare(&self, _id: &str, _agent: AgentRef) {}

    /// All, by id.
    pub fn list(&self) -> Vec<Known> {
        Vec::new()
    }

    /// The one of exactly that id.
    pub fn get(&self, _id: &str) -> Option<Known> {
        None
    }

    /// The agent itself, opened where that is needed.
    ///
    /// # Errors
    /// `NotFound`; `Unavailable` where it can't be reached.
    pub async fn agent(&self, _id: &str) -> Result<AgentRef, Failure> {
        Err(Failure::internal("not built yet"))
    }

    /// Goes to an address, learns who is there, and exchanges what both know.
    ///
    /// # Errors
    /// `Unavailable` where nobody answers, `InvalidInput` for what is no address, `Denied` where it may not be reached.
    pub async fn connect(&self, _url: &str) -> Result<Known, Failure> {
        Err(Failure::internal("not built yet"))
    }

    /// Forgets one; whether it was known.
    ///
    /// # Errors
    /// The store's.
    pub async fn forget(&self, _id: &str) -> Result<bool, Failure> {
        Err(Failure::internal("not built yet"))
    }

    /// Asks all whether they answer.
    pub async fn check_all(&self) {}

    /// As deciders see them.
    pub fn view(&self) -> Vec<AgentView> {
        Vec::new()
    }
}
