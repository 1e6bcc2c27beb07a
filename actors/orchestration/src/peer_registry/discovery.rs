//! Discovery and health checks of agents. Agents are discovered by connecting, by exchange with
//! connected agents, and by being named.

use std::sync::Arc;
use std::time::Duration;

use callboard_message::capabilities::{
    CallTool, Converse, DescribeAgent, ListTools, RESERVED_PREFIX,
};
use callboard_message::{Failure, Message as _, MessageSpec, RawObject};
use callboard_runtime::AgentRef;
use futures::future::{join, join_all};
use futures::{StreamExt, stream};
use rand::RngExt;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::cache::{PeerEntry, store_peer};
use super::sanitize::{
    address_key, agent_id_from_name, check_agent_id, id_taken, is_agent_id, is_loopback,
    parse_address, sanitize_description, sanitize_name, sanitize_skills,
};
use super::{
    AddressSource, DiscoverySource, FetchedCard, KNOWN_AGENTS_MAX, PeerAgent, PeerHealth,
    PeerRegistry, agent_url,
};
use crate::decide::{DESTRUCTIVE_TAG, SkillView, only_text_param};
use crate::memory::now_ms;
use crate::tool_name::{LIST_AGENTS, REMEMBER_AGENT};

/// Maximum agents accepted from another agent's list in one exchange of known agents. Further ones
/// are ignored. Fixed.
pub const EXCHANGE_AGENTS_MAX: usize = 64;
/// Time limit for fetching an agent's card while connecting to it. Fixed.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Time limit of each part of an exchange of known agents: reading the other agent's list, fetching
/// the cards of all agents in it, and sending our own address. Fixed.
pub const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum agent cards fetched concurrently.
const CONCURRENT_FETCHES_MAX: usize = 8;
/// Time after which a declared agent is asked for its skills again.
const DESCRIPTION_TTL: Duration = Duration::from_secs(60);
/// Time limit for a declared agent's reply about its skills.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(5);
/// Mean interval of health checks. Each pause is between half of it and one and a half times as
/// long, at random.
pub const HEALTH_CHECK_INTERVAL: Duration = Duration::from_secs(60);
/// Time without use after which an agent is no longer health-checked. Fixed.
pub const HEALTH_CHECK_IDLE_MAX: Duration = Duration::from_secs(3_600);
/// Consecutive failed health checks after which an agent counts as down. Fixed.
pub const DOWN_AFTER_MISSES: u32 = 2;

/// Another agent's reply in an exchange of known agents.
struct ExchangeReply {
    /// Id of the answering agent.
    id: Option<String>,
    /// Id, name and address of each agent that the other agent knows.
    agents: Vec<(String, String, String)>,
}

/// Agent to be added to the registry.
struct DiscoveredAgent {
    url: Url,
    /// Proposed id.
    id: String,
    /// Whether the agent must get exactly the proposed id, or isn't added.
    is_id_fixed: bool,
    source: DiscoverySource,
    named_by: Option<String>,
}

impl PeerRegistry {
    /// Connects to the agent at an address, adds it to the registry, and exchanges known agents
    /// with it.
    ///
    /// # Errors
    /// `InvalidInput` for an invalid address or our own, `Unavailable` or `TimedOut` if no agent
    /// answers, `Denied` if its card isn't trusted, `Overloaded` at
    /// [`KNOWN_AGENTS_MAX`](super::KNOWN_AGENTS_MAX) agents.
    pub async fn connect(&self, written: &str) -> Result<PeerAgent, Failure> {
        let (url, there) = self.resolve_address(written)?;
        let seen = self
            .fetch_card(&url, AddressSource::Operator, CONNECT_TIMEOUT)
            .await?;
        let before = self
            .lock_cache()
            .find_by_address(&there)
            .map(|entry| entry.peer.id.clone());
        let agent = self
            .inner
            .connector
            .open(&self.inner.system, &url, AddressSource::Operator)?;
        let said = self.exchange(&agent, &seen).await;
        let wanted = said
            .as_ref()
            .and_then(|said| said.id.clone())
            .filter(|id| is_agent_id(id));
        let id = before
            .or(wanted)
            .unwrap_or_else(|| agent_id_from_name(&seen.name));
        let is_local = is_loopback(&url);
        let discovered = DiscoveredAgent {
            url,
            id,
            is_id_fixed: false,
            source: DiscoverySource::Connected,
            named_by: None,
        };
        let known = match self.register(discovered, seen.clone()).await {
            Ok(known) => known,
            Err(failure) => {
                agent.stop();
                return Err(failure);
            }
        };
        // An agent opened on a third party's word has fewer rights, so it is replaced.
        let hearsay = self.lock_cache().get_mut(&known.id).and_then(|entry| {
            entry.last_used = Some(Instant::now());
            entry.agent.take()
        });
        if let Some(hearsay) = hearsay {
            self.inner.system.directory().unregister(&hearsay);
            hearsay.stop();
        }
        let agent = self.register_opened(&known.id, agent);
        if let Some(said) = said {
            self.learn_agents(said.agents, &known.id, is_local).await;
        }
        self.introduce(&agent, &seen).await;
        Ok(known)
    }

    /// Adds the agent at the address `written`, which the principal `who` named. An agent named by
    /// the operator is trusted. Any other must have a card with a trusted signature or an address
    /// that matches
    /// [`PeerRegistryOptions::allowed_origins`](super::PeerRegistryOptions::allowed_origins). For a
    /// known address, returns the existing agent. Without an `id`, one is made from the card's
    /// name.
    ///
    /// # Errors
    /// Same as [`PeerRegistry::connect`]. `Denied` if the agent isn't trusted, `InvalidInput` if
    /// the id is invalid or taken.
    pub async fn remember(
        &self,
        written: &str,
        id: Option<&str>,
        who: &str,
        by_operator: bool,
    ) -> Result<PeerAgent, Failure> {
        let (url, there) = self.resolve_address(written)?;
        if let Some(entry) = self.lock_cache().find_by_address(&there) {
            return Ok(entry.peer.clone());
        }
        if let Some(id) = id {
            self.check_id_free(id)?;
        }
        let by = match by_operator {
            true => AddressSource::Operator,
            false => self.peer_source(
                &url,
                self.listen_address().is_some_and(|here| here.is_local),
            ),
        };
        let seen = self.fetch_card(&url, by, CONNECT_TIMEOUT).await?;
        let from = (!by_operator).then(|| who.to_owned());
        let (exact, id) = (
            id.is_some(),
            id.map_or_else(|| agent_id_from_name(&seen.name), str::to_owned),
        );
        self.register(
            DiscoveredAgent {
                url,
                id,
                is_id_fixed: exact,
                source: DiscoverySource::Told,
                named_by: from,
            },
            seen,
        )
        .await
    }

    /// Parses an address and returns it with its normalized form (see [`address_key`]).
    ///
    /// # Errors
    /// `InvalidInput` if it isn't an address, or is this orchestrator's own.
    fn resolve_address(&self, written: &str) -> Result<(Url, String), Failure> {
        let url = parse_address(written)?;
        let there = address_key(&url);
        match self
            .listen_address()
            .is_some_and(|here| here.place == there)
        {
            true => Err(Failure::invalid("that is this agent's own address")),
            false => Ok((url, there)),
        }
    }

    /// Fetches an agent's card within a time limit and sanitizes its texts.
    ///
    /// # Errors
    /// `TimedOut` after the time limit, `Unavailable` if the card has no name, and the failures of
    /// [`AgentConnector::fetch_card`](super::AgentConnector::fetch_card).
    pub(super) async fn fetch_card(
        &self,
        url: &Url,
        by: AddressSource,
        within: Duration,
    ) -> Result<FetchedCard, Failure> {
        let late = |_| {
            let origin = url.origin().ascii_serialization();
            Failure::timed_out(format!(
                "no agent card came from {origin} within {within:?}: check the address, or try again"
            ))
        };
        let seen = timeout(within, self.inner.connector.fetch_card(url, by))
            .await
            .map_err(late)??;
        let (name, description) = (
            sanitize_name(&seen.name),
            sanitize_description(&seen.description),
        );
        match name.is_empty() {
            true => Err(Failure::unavailable(
                "the agent's card has no usable `name`: its operator has to correct it",
            )),
            false => Ok(FetchedCard {
                name,
                description,
                skills: sanitize_skills(seen.skills),
            }),
        }
    }

    /// Asks an agent for the agents that it knows, and takes up to [`EXCHANGE_AGENTS_MAX`] of them.
    /// `None` if it has no skill for that, or if the call fails.
    async fn exchange(&self, agent: &AgentRef, seen: &FetchedCard) -> Option<ExchangeReply> {
        let arguments = json!({ "format": "exchange" });
        let said = self.call_skill(agent, seen, LIST_AGENTS, arguments).await?;
        let entries: Vec<RawObject> = said.read("agents").unwrap_or_default();
        let entry =
            |entry: RawObject| Some((entry.text("id")?, entry.text("name")?, entry.text("url")?));
        let agents = entries
            .into_iter()
            .take(EXCHANGE_AGENTS_MAX)
            .filter_map(entry)
            .collect();
        Some(ExchangeReply {
            id: said.object("self").and_then(|itself| itself.text("id")),
            agents,
        })
    }

    /// Sends this orchestrator's own address to an agent, if this one has an address and the agent
    /// a skill for it. Failures are ignored.
    async fn introduce(&self, agent: &AgentRef, seen: &FetchedCard) {
        if let Some(here) = self.listen_address() {
            let arguments = json!({ "url": here.url, "id": self.id() });
            self.call_skill(agent, seen, REMEMBER_AGENT, arguments)
                .await;
        }
    }

    /// Calls an optional skill of an agent. `None` if the agent lacks the skill, rejects the call,
    /// fails, or doesn't answer within [`EXCHANGE_TIMEOUT`].
    async fn call_skill(
        &self,
        agent: &AgentRef,
        seen: &FetchedCard,
        skill: &str,
        arguments: Value,
    ) -> Option<RawObject> {
        if !seen.skills.iter().any(|has| has.id == skill) {
            return None;
        }
        let asked = async {
            let result = agent
                .ask(CallTool::new(skill, arguments))
                .within(EXCHANGE_TIMEOUT)
                .await??;
            let value = result.into_value(false)?;
            RawObject::parse(&value)
                .map_err(|_| Failure::unavailable("the agent answered no object"))
        };
        match asked.await {
            Ok(said) => Some(said),
            Err(failure) => {
                callboard_message::log::debug!(agent = seen.name, skill, kind = %failure.kind, "failed to exchange known agents");
                None
            }
        }
    }

    /// Adds the agents that the agent `teacher` named in an exchange, each as id, name and address,
    /// as far as the registry trusts them and they answer within [`EXCHANGE_TIMEOUT`]. `is_local`
    /// tells that the teacher is on this machine, so that it may name addresses on it.
    async fn learn_agents(
        &self,
        said: Vec<(String, String, String)>,
        teacher: &str,
        is_local: bool,
    ) {
        let additions = said
            .into_iter()
            .map(|(id, name, url)| self.learn_agent(id, name, url, teacher, is_local));
        let all = stream::iter(additions)
            .buffer_unordered(CONCURRENT_FETCHES_MAX)
            .collect::<Vec<_>>();
        match timeout(EXCHANGE_TIMEOUT, all).await {
            Ok(learned) => {
                let learned = learned.into_iter().filter(|is_new| *is_new).count();
                callboard_message::log::debug!(
                    teacher,
                    learned,
                    "added agents named by another agent"
                );
            }
            Err(_) => callboard_message::log::warn!(
                teacher,
                "some agents named by another agent didn't answer in time"
            ),
        }
    }

    async fn learn_agent(
        &self,
        id: String,
        said: String,
        url: String,
        teacher: &str,
        is_local: bool,
    ) -> bool {
        let Ok((url, there)) = self.resolve_address(&url) else {
            return false;
        };
        if self.lock_cache().find_by_address(&there).is_some() || self.check_id_free(&id).is_err() {
            return false;
        }
        let by = self.peer_source(&url, is_local);
        // The connector refuses this too; the check here avoids even contacting the address.
        if is_loopback(&url) && !is_local {
            callboard_message::log::warn!(
                teacher,
                id,
                "a remote agent named another agent at an address on this machine: ignored"
            );
            return false;
        }
        let seen = match self.fetch_card(&url, by, EXCHANGE_TIMEOUT).await {
            Ok(seen) if seen.name == sanitize_name(&said) => seen,
            Ok(_) => {
                callboard_message::log::warn!(
                    teacher,
                    id,
                    "an agent's card has another name than stated: ignored"
                );
                return false;
            }
            Err(failure) => {
                callboard_message::log::debug!(teacher, id, %failure, "failed to add an agent named by another agent");
                return false;
            }
        };
        let from = Some(teacher.to_owned());
        let discovered = DiscoveredAgent {
            url,
            id,
            is_id_fixed: true,
            source: DiscoverySource::Exchange,
            named_by: from,
        };
        self.register(discovered, seen).await.is_ok()
    }

    /// Checks that an agent id is valid and free.
    ///
    /// # Errors
    /// `InvalidInput` if it isn't.
    fn check_id_free(&self, id: &str) -> Result<(), Failure> {
        let is_taken = |id: &str| id == self.id() || self.lock_cache().get(id).is_some();
        check_agent_id(id)?;
        match is_taken(id) {
            true => Err(id_taken(id)),
            false => Ok(()),
        }
    }

    /// Adds an agent to the registry and stores it, under its proposed id if that is free. An agent
    /// with a known address keeps its id and is updated. Otherwise it gets another id, unless the
    /// id is fixed.
    ///
    /// # Errors
    /// `InvalidInput` if a fixed id is taken, `Overloaded` at [`KNOWN_AGENTS_MAX`] agents, and
    /// failures of the store; nothing is changed then.
    async fn register(
        &self,
        discovered: DiscoveredAgent,
        seen: FetchedCard,
    ) -> Result<PeerAgent, Failure> {
        let DiscoveredAgent {
            url,
            id,
            is_id_fixed: exact,
            source: learned,
            named_by: from,
        } = discovered;
        let there = address_key(&url);
        let (known, before) = {
            let mut cache = self.lock_cache();
            let known_as = cache
                .find_by_address(&there)
                .map(|entry| entry.peer.id.clone());
            if known_as.is_none() && cache.is_full() {
                let full = format!("{KNOWN_AGENTS_MAX} agents are known, the maximum: forget some");
                return Err(Failure::overloaded(full));
            }
            let is_free = |id: &str| id != self.id() && cache.get(id).is_none();
            let id = match known_as {
                Some(id) => id,
                None if is_free(&id) => id,
                None if exact => return Err(id_taken(&id)),
                None => (2..=KNOWN_AGENTS_MAX + 2)
                    .map(|n| format!("{id}-{n}"))
                    .find(|id| is_free(id))
                    .unwrap_or(id),
            };
            let FetchedCard {
                name,
                description,
                skills,
            } = seen;
            let (url, seen_ms, state) = (url.to_string(), now_ms(), PeerHealth::Up);
            let known = PeerAgent {
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
            let before = cache.get(&known.id).map(|entry| entry.peer.clone());
            cache.insert(known.clone());
            (known, before)
        };
        if let Err(failure) = store_peer(&*self.inner.notes, &known).await {
            // An agent that can't be stored would vanish with the next start, so the cache is
            // rolled back.
            let mut cache = self.lock_cache();
            match before {
                Some(before) => cache.insert(before),
                None => drop(cache.remove(&known.id)),
            }
            return Err(failure);
        }
        Ok(known)
    }
}

/// Description that an agent gives of itself.
struct AgentDescription {
    name: Option<String>,
    description: Option<String>,
    /// Skills; `None` if the agent didn't answer.
    skills: Option<Vec<SkillView>>,
}

impl PeerRegistry {
    /// Asks declared agents for their skills concurrently, unless the last description is still
    /// valid. An agent that doesn't answer counts as down and is asked again the next time.
    pub(super) async fn describe_declared(&self) {
        let now = Instant::now();
        let asked: Vec<(String, AgentRef)> = {
            let is_fresh = |entry: &PeerEntry| {
                entry
                    .last_described
                    .is_some_and(|at| now.duration_since(at) < DESCRIPTION_TTL)
            };
            let cache = self.lock_cache();
            let stale = cache.iter().filter(|entry| {
                entry.peer.learned == DiscoverySource::Declared && !is_fresh(entry)
            });
            stale
                .filter_map(|entry| Some((entry.peer.id.clone(), entry.agent.clone()?)))
                .collect()
        };
        let described = join_all(asked.iter().map(|(_, agent)| describe_agent(agent))).await;
        let mut cache = self.lock_cache();
        for ((id, _), said) in asked.iter().zip(described) {
            let Some(entry) = cache
                .get_mut(id)
                .filter(|e| e.peer.learned == DiscoverySource::Declared)
            else {
                continue;
            };
            // An agent without an answer is asked again for the next request.
            entry.last_described = said.skills.is_some().then_some(now);
            let known = &mut entry.peer;
            known.state = PeerHealth::Down;
            if let Some(all) = said.skills {
                (known.skills, known.state, known.seen_ms) = (all, PeerHealth::Up, now_ms());
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

async fn describe_agent(agent: &AgentRef) -> AgentDescription {
    let specs = agent.specs();
    let has = |message: &str| agent.is_proxy() || specs.iter().any(|spec| spec.name == message);
    let about = async {
        if !has(DescribeAgent::NAME) {
            return None;
        }
        Some(
            agent
                .ask(DescribeAgent(RawObject::new()))
                .within(DESCRIBE_TIMEOUT)
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
                    .map(skill_of_message)
                    .collect(),
            );
        }
        let page = agent
            .ask(ListTools(RawObject::new()))
            .within(DESCRIBE_TIMEOUT)
            .await
            .ok()?
            .ok()?;
        let tools: Vec<RawObject> = page.read("tools").unwrap_or_default();
        let converses = specs.iter().any(|spec| spec.name == Converse::NAME);
        Some(
            tools
                .iter()
                .filter_map(if converses {
                    skill_of_tool
                } else {
                    skill_of_bare_tool
                })
                .collect::<Vec<_>>(),
        )
    };
    let (about, listed) = join(about, listed).await;
    let about = about.unwrap_or_default();
    AgentDescription {
        name: about
            .object("serverInfo")
            .and_then(|info| info.text("name"))
            .map(|text| sanitize_name(&text)),
        description: about
            .text("instructions")
            .map(|text| sanitize_description(&text)),
        skills: listed.map(sanitize_skills),
    }
}

/// Converts a message type to a skill.
fn skill_of_message(spec: &MessageSpec) -> SkillView {
    let skill = build_skill_view(spec.name.clone(), &spec.description, &spec.more);
    if is_destructive_tool(&spec.more, &spec.input_schema) {
        tag_destructive(skill)
    } else {
        skill
    }
}

/// Converts an entry of a tool list to a skill. `None` without a name.
pub fn skill_of_tool(listed: &RawObject) -> Option<SkillView> {
    Some(build_skill_view(
        listed.text("name")?,
        &listed.text("description").unwrap_or_default(),
        listed,
    ))
}

/// Converts a tool to a skill, for an agent that offers only tools; `None` without a name. Tags the
/// skill as destructive if the tool's MCP annotations say so and it takes a single text.
fn skill_of_bare_tool(listed: &RawObject) -> Option<SkillView> {
    let schema = listed.read("inputSchema").unwrap_or_default();
    skill_of_tool(listed).map(|skill| {
        if is_destructive_tool(listed, &schema) {
            tag_destructive(skill)
        } else {
            skill
        }
    })
}

/// Whether a tool takes a single text and its MCP annotations mark it as destructive. Tools with
/// other parameters are never called from plain text.
fn is_destructive_tool(more: &RawObject, schema: &Value) -> bool {
    let hints = more.object("annotations").unwrap_or_default();
    // As in MCP, a tool that isn't read-only counts as destructive unless it says otherwise.
    // Without any hint, nothing is assumed.
    let (reads, destroys) = (
        hints.read::<bool>("readOnlyHint"),
        hints.read::<bool>("destructiveHint"),
    );
    let says_so = reads != Some(true) && destroys.unwrap_or(reads == Some(false));
    says_so && only_text_param(schema).is_some()
}

fn tag_destructive(mut skill: SkillView) -> SkillView {
    if !skill.is_destructive() {
        skill.tags.push(DESTRUCTIVE_TAG.to_owned());
    }
    skill
}

fn build_skill_view(id: String, description: &str, more: &RawObject) -> SkillView {
    let examples: Vec<String> = more.read("examples").unwrap_or_default();
    // Tools made from A2A skills repeat their examples in the description.
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
        security: security_schemes(more),
        examples,
        id,
    }
}

/// Returns the distinct names of the security schemes that a card or skill requires. Schemes
/// required together are joined by ` + `.
fn security_schemes(more: &RawObject) -> Vec<String> {
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

impl PeerRegistry {
    /// Checks the health of recently used agents at intervals, until `ending` is cancelled or the
    /// registry is dropped.
    pub fn run_health_checks(
        &self,
        ending: CancellationToken,
    ) -> impl Future<Output = ()> + Send + 'static {
        let inner = Arc::downgrade(&self.inner);
        async move {
            loop {
                let pause = HEALTH_CHECK_INTERVAL.mul_f64(rand::rng().random_range(0.5..1.5));
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
                    () = known.check_recently_used() => {}
                }
            }
        }
    }

    /// Checks the health of all discovered agents, one after the other.
    pub async fn check_all_health(&self) {
        let all: Vec<_> = self.list().into_iter().map(|known| known.id).collect();
        self.check_health(all).await;
    }

    async fn check_recently_used(&self) {
        let is_used = |since: Instant| since.elapsed() < HEALTH_CHECK_IDLE_MAX;
        let used: Vec<_> = {
            let cache = self.lock_cache();
            let used = cache
                .iter()
                .filter(|entry| entry.last_used.is_some_and(is_used));
            used.map(|entry| entry.peer.id.clone()).collect()
        };
        self.check_health(used).await;
    }

    async fn check_health(&self, ids: Vec<String>) {
        for id in ids {
            // Declared agents are described on demand instead.
            let Some(known) = self
                .get(&id)
                .filter(|known| known.learned != DiscoverySource::Declared)
            else {
                continue;
            };
            let Ok(url) = agent_url(&known) else { continue };
            let seen = self
                .fetch_card(&url, self.address_source(&known), EXCHANGE_TIMEOUT)
                .await;
            match seen {
                // A second-hand agent must keep the name under which it was accepted.
                Ok(seen)
                    if seen.name == known.name || known.learned == DiscoverySource::Connected =>
                {
                    self.record_response(&id, seen).await;
                }
                _ => self.record_miss(&id).await,
            }
        }
    }

    /// Records that an agent answered a health check, and updates its name, description and skills
    /// from its card.
    async fn record_response(
        &self,
        id: &str,
        FetchedCard {
            name,
            description,
            skills,
        }: FetchedCard,
    ) {
        let changed = {
            let mut cache = self.lock_cache();
            let Some(entry) = cache.get_mut(id) else {
                return;
            };
            entry.misses = 0;
            let known = &mut entry.peer;
            let before = known.clone();
            (known.name, known.description, known.skills, known.state) =
                (name, description, skills, PeerHealth::Up);
            let is_other = *known != before;
            known.seen_ms = now_ms();
            is_other.then(|| known.clone())
        };
        self.store_if_changed(changed).await;
    }

    /// Records that an agent didn't answer a health check. After [`DOWN_AFTER_MISSES`] such checks
    /// in a row, it counts as down.
    async fn record_miss(&self, id: &str) {
        let changed = {
            let mut cache = self.lock_cache();
            let Some(entry) = cache.get_mut(id) else {
                return;
            };
            entry.misses = entry.misses.saturating_add(1);
            let goes_down =
                entry.misses >= DOWN_AFTER_MISSES && entry.peer.state != PeerHealth::Down;
            goes_down.then(|| {
                callboard_message::log::info!(id, "an agent doesn't answer any more");
                entry.peer.state = PeerHealth::Down;
                entry.peer.clone()
            })
        };
        self.store_if_changed(changed).await;
    }

    async fn store_if_changed(&self, changed: Option<PeerAgent>) {
        if let Some(known) = changed
            && let Err(failure) = store_peer(&*self.inner.notes, &known).await
        {
            callboard_message::log::warn!(id = known.id, %failure, "failed to store an agent of the registry: the change is lost at a restart");
        }
    }
}

#[cfg(test)]
mod tests;
