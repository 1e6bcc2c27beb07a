//! An agent's skills as tools.

use callboard_message::surface::RESERVED_PREFIX;
use callboard_message::{Failure, RawObject};
use callboard_runtime::outward::is_disguised;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use uuid::Uuid;

use super::conversation::Opening;
use crate::card::{SCHEMAS_EXTENSION, TAG_DESTRUCTIVE};
use crate::wire::{AgentCard, AgentSkill, Message, Part, Role, Wire};

/// Most skills of a card that become tools.
/// At the limit: the others don't.
const SKILLS_MAX: usize = 1_024;
/// Longest name of a tool, in bytes.
const NAME_BYTES_MAX: usize = 128;
/// The tool of an agent without skills.
const MESSAGE: &str = "message";
/// Member of an output schema: the value is `result` of the structured content.
const WRAPPED: &str = "x-callboard-wrapped";
/// Member of a message's metadata, and of a tool's `_meta`: the skill.
const SKILL: &str = "skill";
/// Member of a call's `_meta`: `taskId`, `contextId`, `keep`.
const A2A: &str = "a2a";
/// What a tool takes whose skill doesn't say.
const PLAIN: [&str; 6] = ["text", "data", "files", "contextId", "taskId", "keep"];

/// The tools that an agent's skills are.
pub(super) struct Book {
    skills: Vec<Skill>,
    /// What `tools/list` answers.
    page: RawObject,
}

/// A skill as a tool.
#[derive(Default)]
pub(super) struct Skill {
    tool: String,
    /// `None`: the agent has none, and is just spoken to.
    id: Option<String>,
    takes_schema: bool,
    takes_data: bool,
    /// Its value is a text, whatever that looks like.
    pub(super) answers_text: bool,
    pub(super) is_wrapped: bool,
}

/// The skills of a card as tools are listed, with all that the card says of them; none for an agent without skills.
pub fn skill_tools(card: &AgentCard) -> Vec<RawObject> {
    let tools: Vec<RawObject> = Book::of(card).page.read("tools").unwrap_or_default();
    if card.skills.is_empty() {
        Vec::new()
    } else {
        tools
    }
}

impl Book {
    pub(super) fn of(card: &AgentCard) -> Self {
        let schemas = card
            .capabilities
            .extensions
            .iter()
            .find(|extension| extension.uri == SCHEMAS_EXTENSION);
        let schemas = schemas
            .and_then(|extension| extension.params.clone())
            .unwrap_or_default();
        let (mut skills, mut tools) = (Vec::<Skill>::new(), Vec::new());
        // A disguised id would lose its disguise as a tool's name, and stand there as an honest one.
        let (disguised, honest): (Vec<_>, Vec<_>) = card
            .skills
            .iter()
            .partition(|skill| is_disguised(&skill.id));
        if !disguised.is_empty() {
            callboard_message::log::warn!(
                agent = card.name,
                skills = disguised.len(),
                "skills with ids that look like others are left out"
            );
        }
        let (kept, beyond) = honest.split_at(honest.len().min(SKILLS_MAX));
        for skill in kept {
            let own = schemas.object(&skill.id).unwrap_or_default();
            let tool = unique(&skill.id, &skills);
            tools.push(with_traits(described(&tool, skill, &own), skill, card));
            let output: Value = own.read("output").unwrap_or_default();
            let modes = own_or(&skill.input_modes, &card.default_input_modes);
            skills.push(Skill {
                tool,
                id: Some(skill.id.clone()),
                takes_schema: own.has("input"),
                takes_data: modes.is_empty()
                    || modes
                        .iter()
                        .any(|mode| mode == "*/*" || mode.contains("json")),
                answers_text: output["type"] == "string",
                is_wrapped: output[WRAPPED] == true,
            });
        }
        // An agent of which no skill can be named is spoken to like one that has none.
        if skills.is_empty() {
            let agent = AgentSkill {
                description: card.description.clone(),
                ..AgentSkill::default()
            };
            tools.push(described(MESSAGE, &agent, &RawObject::new()));
            skills.push(Skill {
                tool: MESSAGE.into(),
                takes_data: true,
                ..Skill::default()
            });
        }
        // What the agent may do without naming it, it may do whichever tool is used.
        if disguised
            .iter()
            .chain(beyond)
            .any(|skill| is_destructive(skill))
            && let Some(first) = tools.first_mut()
        {
            mark_destructive(first);
        }
        Self {
            skills,
            page: RawObject::of("tools", tools),
        }
    }

    pub(super) fn page(&self) -> Box<RawValue> {
        self.page.to_raw()
    }

    /// The tool of that name, or the skill of that id.
    pub(super) fn get(&self, name: &str) -> Option<&Skill> {
        let by_id = || {
            self.skills
                .iter()
                .find(|skill| skill.id.as_deref() == Some(name))
        };
        self.skills
            .iter()
            .find(|skill| skill.tool == name)
            .or_else(by_id)
    }

    /// What is said first to use a tool.
    ///
    /// # Errors
    /// Where the arguments say nothing, or not in a way that can be sent.
    pub(super) fn opening(
        &self,
        skill: &Skill,
        arguments: &RawValue,
        meta: &RawObject,
    ) -> Result<Opening, Failure> {
        let given = RawObject::parse(arguments)
            .map_err(|_| Failure::invalid("the arguments must be an object"))?;
        let is_plain = !skill.takes_schema
            && !given.is_empty()
            && given.iter().all(|(name, _)| PLAIN.contains(&name));
        let (parts, place) = match is_plain {
            true => (plain_parts(&given)?, given),
            false => (vec![typed_part(&given, arguments, skill)], RawObject::new()),
        };
        let asked = meta.object(A2A).unwrap_or_default();
        let either = |name: &str| {
            place
                .text(name)
                .or_else(|| asked.text(name))
                .unwrap_or_default()
        };
        let said = skill.id.as_ref().map(|id| RawObject::of(SKILL, id));
        Ok(Opening {
            message: Message {
                message_id: Uuid::new_v4().to_string(),
                context_id: either("contextId"),
                task_id: either("taskId"),
                role: Role::User,
                parts,
                metadata: said,
                ..Message::default()
            },
            keeps: [&place, &asked]
                .iter()
                .any(|said| said.read("keep") == Some(true)),
        })
    }
}

fn plain_parts(given: &RawObject) -> Result<Vec<Part>, Failure> {
    let mut parts = Vec::new();
    if let Some(text) = given.text("text") {
        parts.push(Part::text(text));
    }
    if let Some(data) = given.get("data").filter(|data| data.get() != "null") {
        parts.push(Part::data(data.to_owned()));
    }
    for file in given
        .read::<Vec<Box<RawValue>>>("files")
        .unwrap_or_default()
    {
        let wrong = || {
            Failure::invalid(
                "a file has `uri` or, in base64, `bytes`; it may have `name` and `mimeType`",
            )
        };
        let file = RawObject::parse(&file).map_err(|_| wrong())?;
        let nested = RawObject::of("file", file).to_raw();
        parts.push(Part::from_raw(&nested).map_err(|_| wrong())?);
    }
    match parts.is_empty() {
        true => Err(Failure::invalid("say something: `text`, `data` or `files`")),
        false => Ok(parts),
    }
}

/// Arguments as a value; as words for who takes no values.
fn typed_part(given: &RawObject, arguments: &RawValue, skill: &Skill) -> Part {
    if skill.takes_schema || skill.takes_data {
        return Part::data(arguments.to_owned());
    }
    let only = given
        .iter()
        .next()
        .filter(|_| given.len() == 1)
        .and_then(|(name, _)| given.text(name));
    Part::text(only.unwrap_or_else(|| arguments.get().to_owned()))
}

/// A name that every client of tools takes, and that no tool before has.
fn unique(id: &str, before: &[Skill]) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') {
            c
        } else {
            '_'
        }
    };
    let mut name: String = id.chars().map(plain).take(NAME_BYTES_MAX - 5).collect();
    if name.starts_with(RESERVED_PREFIX) {
        name = name.replacen('.', "_", 1);
    }
    if name.is_empty() {
        MESSAGE.clone_into(&mut name);
    }
    let is_free = |name: &String| before.iter().all(|skill| skill.tool != *name);
    if is_free(&name) {
        return name;
    }
    (2..=SKILLS_MAX + 1)
        .map(|n| format!("{name}-{n}"))
        .find(is_free)
        .unwrap_or(name)
}

fn described(tool: &str, skill: &AgentSkill, schemas: &RawObject) -> RawObject {
    let mut described = RawObject::of("name", tool);
    if !skill.name.is_empty() {
        described.set("title", &skill.name);
    }
    let mut description = skill.description.clone();
    if !skill.examples.is_empty() {
        description.push_str(&format!("\nFor example: {}", skill.examples.join(" | ")));
    }
    described.set("description", description.trim());
    match schemas.get("input") {
        Some(input) => described.set_raw("inputSchema", input.to_owned()),
        None => described.set_raw("inputSchema", plain_schema()),
    }
    // Tools answer objects.
    if schemas
        .object("output")
        .is_some_and(|output| output.text("type").as_deref() == Some("object"))
        && let Some(output) = schemas.get("output")
    {
        described.set_raw("outputSchema", output.to_owned());
    }
    described
}

/// The same tool with what deciders, policies and models go by: tags, examples, modes and security requirements of the skill,
/// or of its card where it has none of its own. Its requirements come beside the card's.
fn with_traits(mut tool: RawObject, skill: &AgentSkill, card: &AgentCard) -> RawObject {
    let lists = [
        ("tags", &skill.tags),
        ("examples", &skill.examples),
        (
            "inputModes",
            own_or(&skill.input_modes, &card.default_input_modes),
        ),
        (
            "outputModes",
            own_or(&skill.output_modes, &card.default_output_modes),
        ),
    ];
    for (member, words) in lists.into_iter().filter(|(_, words)| !words.is_empty()) {
        tool.set(member, words);
    }
    let security = card
        .security_requirements
        .iter()
        .chain(&skill.security_requirements);
    let security: Vec<RawObject> = security
        .filter_map(|needed| RawObject::parse(&needed.to_raw()).ok())
        .collect();
    if !security.is_empty() {
        tool.set("securityRequirements", security);
    }
    if is_destructive(skill) {
        mark_destructive(&mut tool);
    }
    tool
}

fn is_destructive(skill: &AgentSkill) -> bool {
    skill
        .tags
        .iter()
        .any(|tag| tag.eq_ignore_ascii_case(TAG_DESTRUCTIVE))
}

/// Says of a tool that it may destroy something, by its tags and by the hints of MCP.
fn mark_destructive(tool: &mut RawObject) {
    let mut tags: Vec<String> = tool.read("tags").unwrap_or_default();
    if !tags
        .iter()
        .any(|tag| tag.eq_ignore_ascii_case(TAG_DESTRUCTIVE))
    {
        tags.push(TAG_DESTRUCTIVE.to_owned());
        tool.set("tags", tags);
    }
    tool.set(
        "annotations",
        json!({ "readOnlyHint": false, "destructiveHint": true }),
    );
}

fn own_or<'a>(own: &'a Vec<String>, otherwise: &'a Vec<String>) -> &'a Vec<String> {
    if own.is_empty() { otherwise } else { own }
}

fn plain_schema() -> Box<RawValue> {
    let file = json!({
        "type": "object",
        "properties": {
            "name": { "type": "string" },
            "mimeType": { "type": "string" },
            "bytes": { "type": "string", "contentEncoding": "base64" },
            "uri": { "type": "string", "format": "uri" },
        },
    });
    let schema = json!({
        "type": "object",
        "properties": {
            "text": { "type": "string", "description": "What to say to the agent" },
            "data": { "type": "object", "description": "A value for the agent" },
            "files": { "type": "array", "items": file },
            "contextId": { "type": "string", "description": "Of an earlier answer, to go on with that conversation" },
            "taskId": { "type": "string", "description": "Of an earlier answer that asked for more" },
        },
        "anyOf": [{ "required": ["text"] }, { "required": ["data"] }, { "required": ["files"] }],
    });
    to_raw_value(&schema).unwrap_or_default()
}

#[cfg(test)]
mod tests;
