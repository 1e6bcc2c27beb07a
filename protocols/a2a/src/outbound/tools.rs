//! Skills of a remote agent as tools.

use callboard_message::capabilities::{
    Converse, PARTS_META_KEY, RESERVED_PREFIX, SOURCE_MESSAGE_META_KEY,
};
use callboard_message::{Failure, RawObject};
use callboard_runtime::outbound_policy::is_confusable;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use uuid::Uuid;

use super::conversation_request::{ConversationRequest, SKILL_METADATA};
use crate::card::{SCHEMAS_EXTENSION, TAG_DESTRUCTIVE};
use crate::wire::{A2aMessage, AgentCard, AgentSkill, Part, Role, WireType};

/// Maximum number of a card's skills that become tools.
/// At the limit: the others are skipped.
const SKILLS_MAX: usize = 1_024;
/// Maximum length of a tool's name, in bytes.
const TOOL_NAME_BYTES_MAX: usize = 128;
/// Name of the only tool of an agent that has no skills.
const MESSAGE_TOOL: &str = "message";
/// Member of a tool's output schema. If it is `true`, the skill's value is wrapped: it is the
/// member `result` of the tool's structured content.
const WRAPPED_SCHEMA: &str = "x-callboard-wrapped";
/// Names of the arguments that a tool takes if its skill has no input schema.
const PLAIN_ARGUMENTS: [&str; 6] = ["text", "data", "files", "contextId", "taskId", "keep"];

/// The tools made from an agent's skills.
pub(super) struct SkillTools {
    skills: Vec<SkillTool>,
    /// Result of `tools/list` with all of these tools.
    page: RawObject,
}

/// A skill of a remote agent as a tool.
#[derive(Default)]
pub(super) struct SkillTool {
    pub(super) tool: String,
    /// Id of the skill; `None` for the tool of an agent without skills.
    id: Option<String>,
    takes_schema: bool,
    takes_data: bool,
    /// Whether the skill's result is a plain text. Such a text isn't parsed, even if it looks like
    /// JSON.
    pub(super) answers_text: bool,
    pub(super) is_wrapped: bool,
}

/// Returns a card's skills as tools in the format of `tools/list`, with all metadata of the card.
/// Empty for an agent without skills.
pub fn skill_tools(card: &AgentCard) -> Vec<RawObject> {
    let tools: Vec<RawObject> = SkillTools::from_card(card)
        .page
        .read("tools")
        .unwrap_or_default();
    if card.skills.is_empty() {
        Vec::new()
    } else {
        tools
    }
}

impl SkillTools {
    pub(super) fn from_card(card: &AgentCard) -> Self {
        let schemas = card
            .capabilities
            .extensions
            .iter()
            .find(|extension| extension.uri == SCHEMAS_EXTENSION);
        let schemas = schemas
            .and_then(|extension| extension.params.clone())
            .unwrap_or_default();
        let (mut skills, mut tools) = (Vec::<SkillTool>::new(), Vec::new());
        // As a tool's name a confusable id would lose its odd characters and look genuine.
        let (disguised, honest): (Vec<_>, Vec<_>) = card
            .skills
            .iter()
            .partition(|skill| is_confusable(&skill.id));
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
            let tool = unique_tool_name(&skill.id, &skills);
            tools.push(with_skill_metadata(
                tool_listing(&tool, skill, &own),
                skill,
                card,
            ));
            let output: Value = own.read("output").unwrap_or_default();
            skills.push(SkillTool {
                tool,
                id: Some(skill.id.clone()),
                takes_schema: own.has("input"),
                takes_data: accepts_json(own_or_default(
                    &skill.input_modes,
                    &card.default_input_modes,
                )),
                answers_text: output["type"] == "string",
                is_wrapped: output[WRAPPED_SCHEMA] == true,
            });
        }
        // An agent without usable skills gets the same tool as one without skills.
        if skills.is_empty() {
            let agent = AgentSkill {
                description: card.description.clone(),
                ..AgentSkill::default()
            };
            tools.push(with_skill_metadata(
                tool_listing(MESSAGE_TOOL, &agent, &RawObject::new()),
                &agent,
                card,
            ));
            skills.push(SkillTool {
                tool: MESSAGE_TOOL.into(),
                takes_data: accepts_json(&card.default_input_modes),
                ..SkillTool::default()
            });
        }
        // The omitted skills may be reached through any tool, so the first one carries their
        // warning.
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
            page: RawObject::single("tools", tools),
        }
    }

    pub(super) fn list_result(&self) -> Box<RawValue> {
        self.page.to_raw()
    }

    /// Returns the tool with this name; if there is none, the tool of the skill with this id.
    pub(super) fn get(&self, name: &str) -> Option<&SkillTool> {
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

    /// Converts a tool call to the first message of a conversation. If a conversational message
    /// calls the tool, it is that message, and the arguments aren't used.
    ///
    /// # Errors
    /// [`Failure`] if the arguments aren't an object, contain nothing to send, or describe a file
    /// wrongly.
    pub(super) fn conversation_request(
        &self,
        skill: &SkillTool,
        arguments: &RawValue,
        meta: &RawObject,
    ) -> Result<ConversationRequest, Failure> {
        if let Some(said) = meta.object(SOURCE_MESSAGE_META_KEY) {
            let opening = ConversationRequest::from_converse(&Converse(said), skill.id.as_deref());
            return match opening.message.parts.is_empty() {
                true => Err(Failure::invalid(
                    "nothing to send: the message has no parts",
                )),
                false => Ok(opening.continuing(meta)),
            };
        }
        let given = RawObject::parse(arguments)
            .map_err(|_| Failure::invalid("the arguments must be an object"))?;
        let is_plain = !skill.takes_schema
            && !given.is_empty()
            && given
                .iter()
                .all(|(name, _)| PLAIN_ARGUMENTS.contains(&name));
        let (parts, place) = match is_plain {
            true => (plain_parts(&given)?, given),
            false => (
                vec![arguments_part(&given, arguments, skill)],
                RawObject::new(),
            ),
        };
        let said = skill
            .id
            .as_ref()
            .map(|id| RawObject::single(SKILL_METADATA, id));
        let opening = ConversationRequest {
            message: A2aMessage {
                message_id: Uuid::new_v4().to_string(),
                context_id: place.text("contextId").unwrap_or_default(),
                task_id: place.text("taskId").unwrap_or_default(),
                role: Role::User,
                parts,
                metadata: said,
                ..A2aMessage::default()
            },
            keeps_task: place.read("keep") == Some(true),
            ..ConversationRequest::default()
        };
        Ok(opening.continuing(meta))
    }
}

fn plain_parts(given: &RawObject) -> Result<Vec<Part>, Failure> {
    let mut parts = Vec::new();
    if let Some(text) = given.text("text") {
        parts.push(Part::text(text));
    }
    let files = given.get("files").filter(|files| files.get() != "null");
    // Models pass `null` for arguments that they don't use.
    let is_all = parts.is_empty() && files.is_none();
    if let Some(data) = given
        .get("data")
        .filter(|data| is_all || data.get() != "null")
    {
        parts.push(Part::data(data.to_owned()));
    }
    let wrong = || {
        Failure::invalid(
            "`files` is a list of files; a file has `uri` or, in base64, `bytes`, and may have `name` and `mimeType`",
        )
    };
    let files: Vec<Box<RawValue>> = match files {
        Some(files) => serde_json::from_str(files.get()).map_err(|_| wrong())?,
        None => Vec::new(),
    };
    for file in files {
        let file = RawObject::parse(&file).map_err(|_| wrong())?;
        let nested = RawObject::single("file", file).to_raw();
        parts.push(Part::from_raw(&nested).map_err(|_| wrong())?);
    }
    match parts.is_empty() {
        true => Err(Failure::invalid(
            "nothing to send: give `text`, `data` or `files`",
        )),
        false => Ok(parts),
    }
}

/// Converts the arguments of a tool call to a data part, or to a text part if the skill accepts no
/// JSON.
fn arguments_part(given: &RawObject, arguments: &RawValue, skill: &SkillTool) -> Part {
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

/// Returns a name for the tool of the skill `id`: one that all tool clients accept and that none of
/// the tools `before` has.
fn unique_tool_name(id: &str, before: &[SkillTool]) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') {
            c
        } else {
            '_'
        }
    };
    let mut name: String = id
        .chars()
        .map(plain)
        .take(TOOL_NAME_BYTES_MAX - 5)
        .collect();
    if name.starts_with(RESERVED_PREFIX) {
        name = name.replacen('.', "_", 1);
    }
    if name.is_empty() {
        MESSAGE_TOOL.clone_into(&mut name);
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

fn tool_listing(tool: &str, skill: &AgentSkill, schemas: &RawObject) -> RawObject {
    let mut described =
        RawObject::single("name", tool).with("_meta", RawObject::single(PARTS_META_KEY, true));
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
    // Tools return objects.
    if schemas
        .object("output")
        .is_some_and(|output| output.text("type").as_deref() == Some("object"))
        && let Some(output) = schemas.get("output")
    {
        described.set_raw("outputSchema", output.to_owned());
    }
    described
}

/// Adds metadata to a tool, for routing, policies and models: the skill's tags, examples and media
/// types (by default the card's), and the security requirements of the skill and the card.
fn with_skill_metadata(mut tool: RawObject, skill: &AgentSkill, card: &AgentCard) -> RawObject {
    let lists = [
        ("tags", &skill.tags),
        ("examples", &skill.examples),
        (
            "inputModes",
            own_or_default(&skill.input_modes, &card.default_input_modes),
        ),
        (
            "outputModes",
            own_or_default(&skill.output_modes, &card.default_output_modes),
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

/// Marks a tool as destructive, by the tag `destructive` and by MCP's annotations.
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

fn own_or_default<'a>(own: &'a Vec<String>, otherwise: &'a Vec<String>) -> &'a Vec<String> {
    if own.is_empty() { otherwise } else { own }
}

/// Returns whether an agent with these input modes accepts JSON; one that states none does.
fn accepts_json(modes: &[String]) -> bool {
    modes.is_empty()
        || modes
            .iter()
            .any(|mode| mode == "*/*" || mode.contains("json"))
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
            "data": { "description": "A value for the agent, of any JSON type" },
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
