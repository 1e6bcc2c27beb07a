//! What the agents of the topology can do, as they say themselves.

use std::time::Duration;

use callboard_message::surface::{Describe, ListTools, RESERVED_PREFIX};
use callboard_message::{Message as _, MessageSpec, RawObject};
use callboard_runtime::AgentRef;
use futures::future::{join, join_all};
use tokio::time::Instant;

use super::says::{description, name, now_ms, skills};
use super::{Health, KnownAgents, Learned, SKILLS_KEPT_MAX};
use crate::decide::SkillView;

/// How long what an agent said holds.
const DESCRIBED_FOR: Duration = Duration::from_secs(60);
/// How long it may take to say it.
const DESCRIBE_WITHIN: Duration = Duration::from_secs(5);

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
            let mut book = self.book();
            let ids: Vec<String> =
                book.all().filter(|e| e.known.learned == Learned::Declared).map(|e| e.known.id.clone()).collect();
            let mut stale = |id: String| {
                let entry = book.get_mut(&id)?;
                let is_fresh = entry.described.is_some_and(|at| now.duration_since(at) < DESCRIBED_FOR);
                if is_fresh { None } else { Some((id, entry.agent.clone()?)) }
            };
            ids.into_iter().filter_map(&mut stale).collect()
        };
        let described = asked.iter().map(|(_, agent)| describe(agent));
        let described = join_all(described).await;
        let mut book = self.book();
        for ((id, _), said) in asked.iter().zip(described) {
            let Some(entry) = book.get_mut(id).filter(|e| e.known.learned == Learned::Declared) else { continue };
            // One that is away is asked again with the next request.
            entry.described = said.skills.is_some().then_some(now);
            let known = &mut entry.known;
            known.state = if said.skills.is_some() { Health::Up } else { Health::Down };
            if let Some(all) = said.skills {
                known.skills = all;
                known.seen_ms = now_ms();
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
        Some(agent.ask(Describe(RawObject::new())).within(DESCRIBE_WITHIN).await.ok()?.ok()?.0)
    };
    let listed = async {
        if !has(ListTools::NAME) {
            return Some(specs.iter().filter(|spec| !spec.name.starts_with(RESERVED_PREFIX)).map(own).collect());
        }
        let page = agent.ask(ListTools(RawObject::new())).within(DESCRIBE_WITHIN).await.ok()?.ok()?;
        let tools: Vec<RawObject> = page.read("tools").unwrap_or_default();
        Some(tools.iter().take(SKILLS_KEPT_MAX).filter_map(tool).collect::<Vec<_>>())
    };
    let (about, listed) = join(about, listed).await;
    let about = about.unwrap_or_default();
    Described {
        name: about.object("serverInfo").and_then(|info| info.text("name")).map(|text| name(&text)),
        description: about.text("instructions").map(|text| description(&text)),
        skills: listed.map(skills),
    }
}

/// A message type as a skill.
fn own(spec: &MessageSpec) -> SkillView {
    skill(spec.name.clone(), &spec.description, &spec.more)
}

/// An entry of a list of tools as a skill.
fn tool(listed: &RawObject) -> Option<SkillView> {
    Some(skill(listed.text("name")?, &listed.text("description").unwrap_or_default(), listed))
}

fn skill(id: String, description: &str, more: &RawObject) -> SkillView {
    SkillView {
        name: more.text("title").unwrap_or_else(|| id.clone()),
        description: description.to_owned(),
        tags: more.read("tags").unwrap_or_default(),
        examples: more.read("examples").unwrap_or_default(),
        id,
    }
}
