//! What the agents of the topology can do, as they say themselves.

use std::time::Duration;

use callboard_message::surface::{Converse, Describe, ListTools, RESERVED_PREFIX};
use callboard_message::{Message as _, MessageSpec, RawObject};
use callboard_runtime::AgentRef;
use futures::future::{join, join_all};
use serde_json::Value;
use tokio::time::Instant;

use super::says::{description, name, now_ms, skills};
use super::{Health, KnownAgents, Learned};
use crate::decide::{SkillView, TAG_DESTRUCTIVE, text_member};

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
        let converses = specs.iter().any(|spec| spec.name == Converse::NAME);
        Some(tools.iter().filter_map(if converses { skill_of_tool } else { bare_tool }).collect::<Vec<_>>())
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
    let skill = skill(spec.name.clone(), &spec.description, &spec.more);
    if destroys(&spec.more, &spec.input_schema) { tagged(skill) } else { skill }
}

/// An entry of a list of tools as a skill, with all that it says for deciders. `None` for one without a name.
pub fn skill_of_tool(listed: &RawObject) -> Option<SkillView> {
    Some(skill(listed.text("name")?, &listed.text("description").unwrap_or_default(), listed))
}

/// The same of an agent that is used by its tools, and decides nothing itself.
fn bare_tool(listed: &RawObject) -> Option<SkillView> {
    let schema = listed.read("inputSchema").unwrap_or_default();
    skill_of_tool(listed).map(|skill| if destroys(listed, &schema) { tagged(skill) } else { skill })
}

/// Whether a tool says that it may destroy something (the hints of MCP), and can be used from plain words: no other is used.
fn destroys(more: &RawObject, schema: &Value) -> bool {
    let hints = more.object("annotations").unwrap_or_default();
    // A tool that says that it changes something may destroy it unless it says that it doesn't; of one that says nothing
    // at all, nothing is known.
    let (reads, destroys) = (hints.read::<bool>("readOnlyHint"), hints.read::<bool>("destructiveHint"));
    let says_so = match (reads, destroys) {
        (Some(true), _) => false,
        (Some(false), said) => said.unwrap_or(true),
        (None, said) => said.unwrap_or(false),
    };
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
        description: description.strip_suffix(&repeated).unwrap_or(description).trim_end().to_owned(),
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
    for needed in more.read::<Vec<RawObject>>("securityRequirements").unwrap_or_default() {
        let schemes = needed.object("schemes").unwrap_or_default();
        let names = schemes.iter().map(|(name, _)| name).collect::<Vec<_>>().join(" + ");
        if !names.is_empty() && !all.contains(&names) {
            all.push(names);
        }
    }
    all
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
            (json!({ "destructiveHint": true, "readOnlyHint": false }), &text, true),
            (json!({ "destructiveHint": false, "readOnlyHint": false }), &text, false),
            (json!({ "readOnlyHint": false }), &text, true),
            (json!({ "destructiveHint": true, "readOnlyHint": true }), &text, false),
            (json!({ "destructiveHint": "yes" }), &text, false),
            (json!({ "destructiveHint": true }), &two, false),
        ] {
            let listed = json!({ "name": "drop", "annotations": hints, "inputSchema": schema, "tags": ["db"] });
            let listed: RawObject = serde_json::from_value(listed).unwrap();
            let tags = |skill: Option<SkillView>| skill.unwrap().tags.contains(&TAG_DESTRUCTIVE.to_owned());
            assert_eq!(tags(bare_tool(&listed)), expect, "{hints}");
            assert!(!tags(skill_of_tool(&listed)), "who converses decides for itself");
        }
    }
}
