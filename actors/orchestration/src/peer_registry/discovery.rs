//! Agents are learned: by connecting, by what those say whom we connected to, by being told.

use std::sync::Arc;
use std::time::Duration;

use callboard_message::surface::{CallTool, Converse, Describe, ListTools, RESERVED_PREFIX};
use callboard_message::{Failure, Message as _, MessageSpec, RawObject};
use callboard_runtime::AgentRef;
use futures::future::{join, join_all};
use futures::{StreamExt, stream};
use rand::Rng;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::cache::{Entry, keep};
use super::sanitize::{address, description, is_here, is_id, name, place, skills, slug};
use super::{Health, KNOWN_AGENTS_MAX, Known, KnownAgents, Learned, NamedBy, Seen, url_of};
use crate::decide::{SkillView, TAG_DESTRUCTIVE, text_member};
use crate::memory::now_ms;
use crate::tool_name::{LIST_AGENTS, REMEMBER_AGENT};

/// Most agents that are learned of one exchange.
pub const EXCHANGE_AGENTS_MAX: usize = 64;
/// How long finding an agent may take.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(15);
/// How long each part of an exchange may take: what the other knows; its agents' cards, all of them; telling it of us.
pub const EXCHANGE_WITHIN: Duration = Duration::from_secs(10);
/// Cards that are fetched at once.
const LOOKS_AT_ONCE: usize = 8;
/// How long what an agent said holds.
const DESCRIBED_FOR: Duration = Duration::from_secs(60);
/// How long it may take to say it.
const DESCRIBE_WITHIN: Duration = Duration::from_secs(5);
/// How often those that were used lately are looked at: half of it, or half more, at random.
pub const CHECK_EVERY: Duration = Duration::from_secs(60);
/// Who wasn't used for that long isn't looked at.
pub const USED_WITHIN: Duration = Duration::from_secs(3_600);
/// How often in a row an agent doesn't answer before it counts as down.
pub const DOWN_AFTER_MISSES: u32 = 2;

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
        let (url, there) = self.elsewhere(written)?;
        let seen = self.look(&url, NamedBy::Operator, CONNECT_WITHIN).await?;
        let before = self.book().at(&there).map(|entry| entry.known.id.clone());
        let agent = self
            .inner
            .connect
            .open(&self.inner.system, &url, NamedBy::Operator)?;
        let said = self.exchange(&agent, &seen).await;
        let wanted = said
            .as_ref()
            .and_then(|said| said.id.clone())
            .filter(|id| is_id(id));
        let id = before.or(wanted).unwrap_or_else(|| slug(&seen.name));
        let is_local = is_here(&url);
        let lesson = Lesson {
            url,
            id,
            exact: false,
            learned: Learned::Connected,
            from: None,
        };
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
        let (url, there) = self.elsewhere(written)?;
        if let Some(entry) = self.book().at(&there) {
            return Ok(entry.known.clone());
        }
        if let Some(id) = id {
            self.is_free(id)?;
        }
        let by = match by_operator {
            true => NamedBy::Operator,
            false => self.peer(&url, self.here().is_some_and(|here| here.is_local)),
        };
        let seen = self.look(&url, by, CONNECT_WITHIN).await?;
        let from = (!by_operator).then(|| who.to_owned());
        let (exact, id) = (
            id.is_some(),
            id.map_or_else(|| slug(&seen.name), str::to_owned),
        );
        self.take(
            Lesson {
                url,
                id,
                exact,
                learned: Learned::Told,
                from,
            },
            seen,
        )
        .await
    }

    /// An address that isn't our own, and its place.
    fn elsewhere(&self, written: &str) -> Result<(Url, String), Failure> {
        let url = address(written)?;
        let there = place(&url);
        match self.here().is_some_and(|here| here.place == there) {
            true => Err(Failure::invalid("that is this agent's own address")),
            false => Ok((url, there)),
        }
    }

    /// What a card says, in time.
    pub(super) async fn look(
        &self,
        url: &Url,
        by: NamedBy,
        within: Duration,
    ) -> Result<Seen, Failure> {
        let late = |_| Failure::timed_out(format!("no answer in {within:?}"));
        let seen = timeout(within, self.inner.connect.look(url, by))
            .await
            .map_err(late)??;
        let (name, description) = (name(&seen.name), description(&seen.description));
        match name.is_empty() {
            true => Err(Failure::unavailable("the agent's card has no name")),
            false => Ok(Seen {
                name,
                description,
                skills: skills(seen.skills),
            }),
        }
    }

    /// What an agent knows, if it tells.
    async fn exchange(&self, agent: &AgentRef, seen: &Seen) -> Option<Exchanged> {
        let arguments = json!({ "format": "exchange" });
        let said = self.use_skill(agent, seen, LIST_AGENTS, arguments).await?;
        let entries: Vec<RawObject> = said.read("agents").unwrap_or_default();
        let entry =
            |entry: RawObject| Some((entry.text("id")?, entry.text("name")?, entry.text("url")?));
        let agents = entries
            .into_iter()
            .take(EXCHANGE_AGENTS_MAX)
            .filter_map(entry)
            .collect();
        Some(Exchanged {
            id: said.object("self").and_then(|itself| itself.text("id")),
            agents,
        })
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
        arguments: Value,
    ) -> Option<RawObject> {
        if !seen.skills.iter().any(|has| has.id == skill) {
            return None;
        }
        let asked = async {
            let result = agent
                .ask(CallTool::new(skill, arguments))
                .within(EXCHANGE_WITHIN)
                .await??;
            let value = result.into_value(false)?;
            RawObject::parse(&value)
                .map_err(|_| Failure::unavailable("the agent answered no object"))
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
        let lessons = said
            .into_iter()
            .map(|(id, name, url)| self.learn_one(id, name, url, teacher, is_local));
        let all = stream::iter(lessons)
            .buffer_unordered(LOOKS_AT_ONCE)
            .collect::<Vec<_>>();
        match timeout(EXCHANGE_WITHIN, all).await {
            Ok(learned) => {
                let learned = learned.into_iter().filter(|is_new| *is_new).count();
                callboard_message::log::debug!(teacher, learned, "agents were learned of another");
            }
            Err(_) => callboard_message::log::warn!(
                teacher,
                "not all agents that another named answered in time"
            ),
        }
    }

    async fn learn_one(
        &self,
        id: String,
        said: String,
        url: String,
        teacher: &str,
        is_local: bool,
    ) -> bool {
        let Ok((url, there)) = self.elsewhere(&url) else {
            return false;
        };
        if self.book().at(&there).is_some() || self.is_free(&id).is_err() {
            return false;
        }
        let by = self.peer(&url, is_local);
        // The root refuses too; here nobody is asked whose word can't count.
        if is_here(&url) && !is_local {
            callboard_message::log::warn!(
                teacher,
                id,
                "an agent elsewhere names a place on this machine"
            );
            return false;
        }
        let seen = match self.look(&url, by, EXCHANGE_WITHIN).await {
            Ok(seen) if seen.name == name(&said) => seen,
            Ok(_) => {
                callboard_message::log::warn!(
                    teacher,
                    id,
                    "an agent's card has another name than was said"
                );
                return false;
            }
            Err(failure) => {
                callboard_message::log::debug!(teacher, id, %failure, "an agent isn't learned");
                return false;
            }
        };
        let from = Some(teacher.to_owned());
        let lesson = Lesson {
            url,
            id,
            exact: true,
            learned: Learned::Exchange,
            from,
        };
        self.take(lesson, seen).await.is_ok()
    }

    /// Whether somebody new may have that id.
    fn is_free(&self, id: &str) -> Result<(), Failure> {
        let is_taken = |id: &str| id == self.id() || self.book().get(id).is_some();
        match is_id(id) {
            false => Err(Failure::invalid(
                "not an agent's id: letters, digits, `-`, `_` and `.`",
            )),
            true if is_taken(id) => Err(Failure::invalid("another agent has that id")),
            true => Ok(()),
        }
    }

    /// Puts one into the directory, under the id that it would have if that is free, or it had it before.
    async fn take(&self, lesson: Lesson, seen: Seen) -> Result<Known, Failure> {
        let Lesson {
            url,
            id,
            exact,
            learned,
            from,
        } = lesson;
        let there = place(&url);
        let (known, before) = {
            let mut book = self.book();
            let known_as = book.at(&there).map(|entry| entry.known.id.clone());
            if known_as.is_none() && book.is_full() {
                let most =
                    format!("{KNOWN_AGENTS_MAX} agents are known, and that is all: forget some");
                return Err(Failure::overloaded(most));
            }
            let is_free = |id: &str| id != self.id() && book.get(id).is_none();
            let id = match known_as {
                Some(id) => id,
                None if is_free(&id) => id,
                None if exact => return Err(Failure::invalid("another agent has that id")),
                None => (2..=KNOWN_AGENTS_MAX + 2)
                    .map(|n| format!("{id}-{n}"))
                    .find(|id| is_free(id))
                    .unwrap_or(id),
            };
            let Seen {
                name,
                description,
                skills,
            } = seen;
            let (url, seen_ms, state) = (url.to_string(), now_ms(), Health::Up);
            let known = Known {
                id,
                name,
                url,
                description,
                skills,
                learned,
                from,
                seen_ms,
                state,
            };
            let before = book.get(&known.id).map(|entry| entry.known.clone());
            book.put(known.clone());
            (known, before)
        };
        if let Err(failure) = keep(&*self.inner.notes, &known).await {
            // What isn't kept isn't known: it would be gone after the next start.
            let mut book = self.book();
            match before {
                Some(before) => book.put(before),
                None => drop(book.remove(&known.id)),
            }
            return Err(failure);
        }
        Ok(known)
    }
}

/// What an agent says of itself.
struct Described {
    name: Option<String>,
    description: Option<String>,
    /// `None`: it didn't answer.
    skills: Option<Vec<SkillView>>,
}

impl KnownAgents {
    /// Asks those of the topology what they can do, all at once, where that wasn't asked lately.
    pub(super) async fn describe_declared(&self) {
        let now = Instant::now();
        let asked: Vec<(String, AgentRef)> = {
            let is_fresh = |entry: &Entry| {
                entry
                    .described
                    .is_some_and(|at| now.duration_since(at) < DESCRIBED_FOR)
            };
            let book = self.book();
            let stale = book
                .all()
                .filter(|entry| entry.known.learned == Learned::Declared && !is_fresh(entry));
            stale
                .filter_map(|entry| Some((entry.known.id.clone(), entry.agent.clone()?)))
                .collect()
        };
        let described = join_all(asked.iter().map(|(_, agent)| describe(agent))).await;
        let mut book = self.book();
        for ((id, _), said) in asked.iter().zip(described) {
            let Some(entry) = book
                .get_mut(id)
                .filter(|e| e.known.learned == Learned::Declared)
            else {
                continue;
            };
            // One that is away is asked again with the next request.
            entry.described = said.skills.is_some().then_some(now);
            let known = &mut entry.known;
            known.state = Health::Down;
            if let Some(all) = said.skills {
                (known.skills, known.state, known.seen_ms) = (all, Health::Up, now_ms());
            }
            if let Some(text) = said.name.filter(|text| !text.is_empty()) {
                known.name = text;
            }
            if let Some(text) = said.description {
                known.description = text;
            }
        }
    }
}

async fn describe(agent: &AgentRef) -> Described {
    let specs = agent.specs();
    let has = |message: &str| agent.is_outside() || specs.iter().any(|spec| spec.name == message);
    let about = async {
        if !has(Describe::NAME) {
            return None;
        }
        Some(
            agent
                .ask(Describe(RawObject::new()))
                .within(DESCRIBE_WITHIN)
                .await
                .ok()?
                .ok()?
                .0,
        )
    };
    let listed = async {
        if !has(ListTools::NAME) {
            return Some(
                specs
                    .iter()
                    .filter(|spec| !spec.name.starts_with(RESERVED_PREFIX))
                    .map(own)
                    .collect(),
            );
        }
        let page = agent
            .ask(ListTools(RawObject::new()))
            .within(DESCRIBE_WITHIN)
            .await
            .ok()?
            .ok()?;
        let tools: Vec<RawObject> = page.read("tools").unwrap_or_default();
        let converses = specs.iter().any(|spec| spec.name == Converse::NAME);
        Some(
            tools
                .iter()
                .filter_map(if converses { skill_of_tool } else { bare_tool })
                .collect::<Vec<_>>(),
        )
    };
    let (about, listed) = join(about, listed).await;
    let about = about.unwrap_or_default();
    Described {
        name: about
            .object("serverInfo")
            .and_then(|info| info.text("name"))
            .map(|text| name(&text)),
        description: about.text("instructions").map(|text| description(&text)),
        skills: listed.map(skills),
    }
}

/// A message type as a skill.
fn own(spec: &MessageSpec) -> SkillView {
    let skill = skill(spec.name.clone(), &spec.description, &spec.more);
    if destroys(&spec.more, &spec.input_schema) {
        tagged(skill)
    } else {
        skill
    }
}

/// An entry of a list of tools as a skill, with all that it says for deciders. `None` for one without a name.
pub fn skill_of_tool(listed: &RawObject) -> Option<SkillView> {
    Some(skill(
        listed.text("name")?,
        &listed.text("description").unwrap_or_default(),
        listed,
    ))
}

/// The same of an agent that is used by its tools, and decides nothing itself.
fn bare_tool(listed: &RawObject) -> Option<SkillView> {
    let schema = listed.read("inputSchema").unwrap_or_default();
    skill_of_tool(listed).map(|skill| {
        if destroys(listed, &schema) {
            tagged(skill)
        } else {
            skill
        }
    })
}

/// Whether a tool says that it may destroy something (the hints of MCP), and can be used from plain words: no other is used.
fn destroys(more: &RawObject, schema: &Value) -> bool {
    let hints = more.object("annotations").unwrap_or_default();
    // A tool that says that it changes something may destroy it unless it says that it doesn't; of one that says nothing
    // at all, nothing is known.
    let (reads, destroys) = (
        hints.read::<bool>("readOnlyHint"),
        hints.read::<bool>("destructiveHint"),
    );
    let says_so = reads != Some(true) && destroys.unwrap_or(reads == Some(false));
    says_so && text_member(schema).is_some()
}

fn tagged(mut skill: SkillView) -> SkillView {
    if !skill.is_destructive() {
        skill.tags.push(TAG_DESTRUCTIVE.to_owned());
    }
    skill
}

fn skill(id: String, description: &str, more: &RawObject) -> SkillView {
    let examples: Vec<String> = more.read("examples").unwrap_or_default();
    // A tool of an A2A skill repeats them for those who read nothing else.
    let repeated = format!("For example: {}", examples.join(" | "));
    SkillView {
        name: more.text("title").unwrap_or_else(|| id.clone()),
        description: description
            .strip_suffix(&repeated)
            .unwrap_or(description)
            .trim_end()
            .to_owned(),
        tags: more.read("tags").unwrap_or_default(),
        input_modes: more.read("inputModes").unwrap_or_default(),
        output_modes: more.read("outputModes").unwrap_or_default(),
        security: security(more),
        examples,
        id,
    }
}

/// Names of the security schemes that a tool needs, each once; those of one requirement are joined by ` + `.
fn security(more: &RawObject) -> Vec<String> {
    let mut all = Vec::new();
    for needed in more
        .read::<Vec<RawObject>>("securityRequirements")
        .unwrap_or_default()
    {
        let schemes = needed.object("schemes").unwrap_or_default();
        let names = schemes
            .iter()
            .map(|(name, _)| name)
            .collect::<Vec<_>>()
            .join(" + ");
        if !names.is_empty() && !all.contains(&names) {
            all.push(names);
        }
    }
    all
}

impl KnownAgents {
    /// Looks, now and then, whether those that were used lately still answer: until `ending` fires, or nobody has the
    /// directory any more.
    pub fn keep_checking(
        &self,
        ending: CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static {
        let inner = Arc::downgrade(&self.inner);
        async move {
            loop {
                let pause = CHECK_EVERY.mul_f64(rand::rng().random_range(0.5..1.5));
                tokio::select! {
                    biased;
                    () = ending.cancelled() => return,
                    () = sleep(pause) => {}
                }
                let Some(known) = inner.upgrade().map(|inner| Self { inner }) else {
                    return;
                };
                tokio::select! {
                    biased;
                    () = ending.cancelled() => return,
                    () = known.check_lately_used() => {}
                }
            }
        }
    }

    /// Asks all whether they answer, one after the other.
    pub async fn check_all(&self) {
        let all: Vec<_> = self.list().into_iter().map(|known| known.id).collect();
        self.check(all).await;
    }

    async fn check_lately_used(&self) {
        let is_used = |since: Instant| since.elapsed() < USED_WITHIN;
        let used: Vec<_> = {
            let book = self.book();
            let used = book.all().filter(|entry| entry.used.is_some_and(is_used));
            used.map(|entry| entry.known.id.clone()).collect()
        };
        self.check(used).await;
    }

    async fn check(&self, ids: Vec<String>) {
        for id in ids {
            // Those of the topology say what they can do when a request needs it.
            let Some(known) = self
                .get(&id)
                .filter(|known| known.learned != Learned::Declared)
            else {
                continue;
            };
            let Ok(url) = url_of(&known) else { continue };
            let seen = self
                .look(&url, self.named_by(&known), EXCHANGE_WITHIN)
                .await;
            match seen {
                // Of hearsay the name was part.
                Ok(seen) if seen.name == known.name || known.learned == Learned::Connected => {
                    self.answered(&id, seen).await;
                }
                _ => self.missed(&id).await,
            }
        }
    }

    /// Notes that an agent answered, and what its card says.
    async fn answered(
        &self,
        id: &str,
        Seen {
            name,
            description,
            skills,
        }: Seen,
    ) {
        let changed = {
            let mut book = self.book();
            let Some(entry) = book.get_mut(id) else {
                return;
            };
            entry.misses = 0;
            let known = &mut entry.known;
            let before = known.clone();
            (known.name, known.description, known.skills, known.state) =
                (name, description, skills, Health::Up);
            let is_other = *known != before;
            known.seen_ms = now_ms();
            is_other.then(|| known.clone())
        };
        self.keep_quietly(changed).await;
    }

    /// Notes that an agent didn't answer: it is away, not that it failed at something.
    async fn missed(&self, id: &str) {
        let changed = {
            let mut book = self.book();
            let Some(entry) = book.get_mut(id) else {
                return;
            };
            entry.misses = entry.misses.saturating_add(1);
            let goes_down = entry.misses >= DOWN_AFTER_MISSES && entry.known.state != Health::Down;
            goes_down.then(|| {
                callboard_message::log::info!(id, "an agent doesn't answer any more");
                entry.known.state = Health::Down;
                entry.known.clone()
            })
        };
        self.keep_quietly(changed).await;
    }

    async fn keep_quietly(&self, changed: Option<Known>) {
        if let Some(known) = changed
            && let Err(failure) = keep(&*self.inner.notes, &known).await
        {
            callboard_message::log::warn!(id = known.id, %failure, "what is known of an agent can't be kept");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Goal: what may destroy something is known by what its tool says (MCP's hints, with their defaults), and only of tools
    /// that are used from plain words. Method: rows.
    #[test]
    fn hints_are_heard() {
        let text = json!({ "type": "object", "required": ["t"], "properties": { "t": { "type": "string" } } });
        let two = json!({ "type": "object", "required": ["t", "u"], "properties": {} });
        for (hints, schema, expect) in [
            (json!({}), &text, false),
            (json!({ "destructiveHint": true }), &text, true),
            (
                json!({ "destructiveHint": true, "readOnlyHint": false }),
                &text,
                true,
            ),
            (
                json!({ "destructiveHint": false, "readOnlyHint": false }),
                &text,
                false,
            ),
            (json!({ "readOnlyHint": false }), &text, true),
            (
                json!({ "destructiveHint": true, "readOnlyHint": true }),
                &text,
                false,
            ),
            (json!({ "destructiveHint": "yes" }), &text, false),
            (json!({ "destructiveHint": true }), &two, false),
        ] {
            let listed = json!({ "name": "drop", "annotations": hints, "inputSchema": schema, "tags": ["db"] });
            let listed: RawObject = serde_json::from_value(listed).unwrap();
            let tags = |skill: Option<SkillView>| {
                skill.unwrap().tags.contains(&TAG_DESTRUCTIVE.to_owned())
            };
            assert_eq!(tags(bare_tool(&listed)), expect, "{hints}");
            assert!(
                !tags(skill_of_tool(&listed)),
                "who converses decides for itself"
            );
        }
    }
}
