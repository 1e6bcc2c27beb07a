//! Agents are learned: by connecting, by what those say whom we connected to, by being told.

use std::time::Duration;

use callboard_message::surface::CallTool;
use callboard_message::{Failure, RawObject};
use callboard_runtime::AgentRef;
use futures::StreamExt;
use futures::stream;
use serde_json::json;
use tokio::time::{Instant, timeout};
use url::Url;

use super::book::{Entry, keep};
use super::place::{address, is_here, is_id, place, slug};
use super::says::{description, name, now_ms, skills};
use super::{Health, KNOWN_AGENTS_MAX, Known, KnownAgents, Learned, NamedBy, Seen};
use crate::tools::{LIST_AGENTS, REMEMBER_AGENT};

/// Most agents that are learned of one exchange.
pub const EXCHANGE_AGENTS_MAX: usize = 64;
/// How long finding an agent may take.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(15);
/// How long each part of an exchange may take: what the other knows; its agents' cards, all of them; telling it of us.
pub const EXCHANGE_WITHIN: Duration = Duration::from_secs(10);
/// Cards that are fetched at once.
const LOOKS_AT_ONCE: usize = 8;

/// What an agent says of itself and of others, as far as it is there.
struct Exchanged {
    /// Its own id.
    id: Option<String>,
    /// Id, name, address.
    agents: Vec<(String, String, String)>,
}

/// Who is learned, and how.
struct Lesson {
    url: Url,
    /// The id that it would have.
    id: String,
    /// Whether that id or none.
    exact: bool,
    learned: Learned,
    from: Option<String>,
}

impl KnownAgents {
    /// Goes to an address, learns who is there, and exchanges what both know.
    ///
    /// # Errors
    /// `Unavailable` where nobody answers, `InvalidInput` for what is no address or is our own, `Denied` where its card isn't
    /// believed, `Overloaded` where no more can be known.
    pub async fn connect(&self, written: &str) -> Result<Known, Failure> {
        let url = address(written)?;
        let there = place(&url);
        if self.here().is_some_and(|here| here.place == there) {
            return Err(Failure::invalid("that is this agent's own address"));
        }
        let seen = self.look(&url, NamedBy::Operator, CONNECT_WITHIN).await?;
        let before = self.book().at(&there).map(|entry| entry.known.id.clone());
        let agent = self.inner.connect.open(&self.inner.system, &url, NamedBy::Operator)?;
        let said = self.exchange(&agent, &seen).await;
        let wanted = said.as_ref().and_then(|said| said.id.clone()).filter(|id| is_id(id));
        let id = before.or(wanted).unwrap_or_else(|| slug(&seen.name));
        let is_local = is_here(&url);
        let lesson = Lesson { url, id, exact: false, learned: Learned::Connected, from: None };
        let known = match self.take(lesson, seen.clone()).await {
            Ok(known) => known,
            Err(failure) => {
                agent.stop();
                return Err(failure);
            }
        };
        // What was opened on hearsay could do less.
        let hearsay = self.book().get_mut(&known.id).and_then(|entry| {
            entry.used = Some(Instant::now());
            entry.agent.take()
        });
        if let Some(hearsay) = hearsay {
            self.inner.system.directory().withdraw(&hearsay);
            hearsay.stop();
        }
        let agent = self.opened(&known.id, agent);
        if let Some(said) = said {
            self.learn(said.agents, &known.id, is_local).await;
        }
        self.introduce(&agent, &seen).await;
        Ok(known)
    }

    /// Somebody says that an agent is at `url`. Of the operator that is enough; of others it is hearsay.
    ///
    /// # Errors
    /// As [`KnownAgents::connect`]; `Denied` where hearsay doesn't count, `InvalidInput` where the id is another's.
    pub async fn remember(
        &self,
        written: &str,
        id: Option<&str>,
        who: &str,
        by_operator: bool,
    ) -> Result<Known, Failure> {
        let url = address(written)?;
        let there = place(&url);
        let here = self.here();
        if here.as_ref().is_some_and(|here| here.place == there) {
            return Err(Failure::invalid("that is this agent's own address"));
        }
        if let Some(entry) = self.book().at(&there) {
            return Ok(entry.known.clone());
        }
        if let Some(id) = id {
            self.is_free(id)?;
        }
        let by = match by_operator {
            true => NamedBy::Operator,
            false => self.peer(&url, here.is_some_and(|here| here.is_local)),
        };
        let seen = self.look(&url, by, CONNECT_WITHIN).await?;
        let from = (!by_operator).then(|| who.to_owned());
        let (exact, id) = (id.is_some(), id.map_or_else(|| slug(&seen.name), str::to_owned));
        self.take(Lesson { url, id, exact, learned: Learned::Told, from }, seen).await
    }

    /// What a card says, in time.
    pub(super) async fn look(&self, url: &Url, by: NamedBy, within: Duration) -> Result<Seen, Failure> {
        let late = |_| Failure::timed_out(format!("no answer in {within:?}"));
        let seen = timeout(within, self.inner.connect.look(url, by)).await.map_err(late)??;
        let (name, description) = (name(&seen.name), description(&seen.description));
        match name.is_empty() {
            true => Err(Failure::unavailable("the agent's card has no name")),
            false => Ok(Seen { name, description, skills: skills(seen.skills) }),
        }
    }

    /// What an agent knows, if it tells.
    async fn exchange(&self, agent: &AgentRef, seen: &Seen) -> Option<Exchanged> {
        let arguments = json!({ "format": "exchange" });
        let said = self.use_skill(agent, seen, LIST_AGENTS, arguments).await?;
        let itself = said.object("self").unwrap_or_default();
        let entries: Vec<RawObject> = said.read("agents").unwrap_or_default();
        let entry = |entry: RawObject| Some((entry.text("id")?, entry.text("name")?, entry.text("url")?));
        let agents = entries.into_iter().take(EXCHANGE_AGENTS_MAX).filter_map(entry).collect();
        Some(Exchanged { id: itself.text("id"), agents })
    }

    /// Tells an agent where we are, if we are anywhere.
    async fn introduce(&self, agent: &AgentRef, seen: &Seen) {
        if let Some(here) = self.here() {
            let arguments = json!({ "url": here.url, "id": self.id() });
            self.use_skill(agent, seen, REMEMBER_AGENT, arguments).await;
        }
    }

    /// What a skill answers that the agent may not have, and needn't let us use.
    async fn use_skill(
        &self,
        agent: &AgentRef,
        seen: &Seen,
        skill: &str,
        arguments: serde_json::Value,
    ) -> Option<RawObject> {
        if !seen.skills.iter().any(|has| has.id == skill) {
            return None;
        }
        let asked = async {
            let result = agent.ask(CallTool::new(skill, arguments)).within(EXCHANGE_WITHIN).await??;
            let value = result.into_value(false)?;
            RawObject::parse(&value).map_err(|_| Failure::unavailable("the agent answered no object"))
        };
        match asked.await {
            Ok(said) => Some(said),
            Err(failure) => {
                callboard_message::log::debug!(agent = seen.name, skill, kind = %failure.kind, "an agent doesn't exchange");
                None
            }
        }
    }

    /// Takes what `teacher` says of others, as far as hearsay counts.
    async fn learn(&self, said: Vec<(String, String, String)>, teacher: &str, is_local: bool) {
        let lessons = said.into_iter().map(|(id, name, url)| self.learn_one(id, name, url, teacher, is_local));
        let all = stream::iter(lessons).buffer_unordered(LOOKS_AT_ONCE).collect::<Vec<_>>();
        match timeout(EXCHANGE_WITHIN, all).await {
            Ok(learned) => {
                let learned = learned.into_iter().filter(|is_new| *is_new).count();
                callboard_message::log::debug!(teacher, learned, "agents were learned of another");
            }
            Err(_) => callboard_message::log::warn!(teacher, "not all agents that another named answered in time"),
        }
    }

    async fn learn_one(&self, id: String, said: String, url: String, teacher: &str, is_local: bool) -> bool {
        let Ok(url) = address(&url) else { return false };
        let there = place(&url);
        let is_ours = self.here().is_some_and(|here| here.place == there);
        if is_ours || self.book().at(&there).is_some() || self.is_free(&id).is_err() {
            return false;
        }
        let by = self.peer(&url, is_local);
        // The root refuses too; here nobody is asked whose word can't count.
        if is_here(&url) && !is_local {
            callboard_message::log::warn!(teacher, id, "an agent elsewhere names a place on this machine");
            return false;
        }
        let seen = match self.look(&url, by, EXCHANGE_WITHIN).await {
            Ok(seen) if seen.name == name(&said) => seen,
            Ok(_) => {
                callboard_message::log::warn!(teacher, id, "an agent's card has another name than was said");
                return false;
            }
            Err(failure) => {
                callboard_message::log::debug!(teacher, id, %failure, "an agent isn't learned");
                return false;
            }
        };
        let from = Some(teacher.to_owned());
        let lesson = Lesson { url, id, exact: true, learned: Learned::Exchange, from };
        self.take(lesson, seen).await.is_ok()
    }

    /// Whether somebody new may have that id.
    fn is_free(&self, id: &str) -> Result<(), Failure> {
        let is_taken = |id: &str| id == self.id() || self.book().get(id).is_some();
        match is_id(id) {
            false => Err(Failure::invalid("not an agent's id: letters, digits, `-`, `_` and `.`")),
            true if is_taken(id) => Err(Failure::invalid("another agent has that id")),
            true => Ok(()),
        }
    }

    /// Puts one into the directory, under the id that it would have if that is free, or it had it before.
    async fn take(&self, lesson: Lesson, seen: Seen) -> Result<Known, Failure> {
        let Lesson { url, id, exact, learned, from } = lesson;
        let there = place(&url);
        let (known, before) = {
            let mut book = self.book();
            let known_as = book.at(&there).map(|entry| entry.known.id.clone());
            if known_as.is_none() && book.is_full() {
                let most = format!("{KNOWN_AGENTS_MAX} agents are known, and that is all: forget some");
                return Err(Failure::overloaded(most));
            }
            let is_free = |id: &str| id != self.id() && book.get(id).is_none();
            let id = match known_as {
                Some(id) => id,
                None if is_free(&id) => id,
                None if exact => return Err(Failure::invalid("another agent has that id")),
                None => (2..=KNOWN_AGENTS_MAX + 2).map(|n| format!("{id}-{n}")).find(|id| is_free(id)).unwrap_or(id),
            };
            let Seen { name, description, skills } = seen;
            let (url, seen_ms, state) = (url.to_string(), now_ms(), Health::Up);
            let known = Known { id, name, url, description, skills, learned, from, seen_ms, state };
            let before = book.get(&known.id).map(|entry| entry.known.clone());
            book.put(known.clone());
            (known, before)
        };
        if let Err(failure) = keep(&*self.inner.notes, &known).await {
            // What isn't kept isn't known: it would be gone after the next start.
            let mut book = self.book();
            match before {
                Some(before) => book.put(before),
                None => drop::<Option<Entry>>(book.remove(&known.id)),
            }
            return Err(failure);
        }
        Ok(known)
    }
}
