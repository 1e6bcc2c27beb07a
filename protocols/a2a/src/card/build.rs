//! What a card says.

use std::collections::BTreeMap;

use callboard_message::RawObject;
use callboard_rpc::Access;

use crate::inbound::calls::{Skill, Skills};
use crate::inbound::options::A2aOptions;
use crate::wire::{
    APIKeySecurityScheme, AgentCapabilities, AgentCard, AgentExtension, AgentInterface, AgentSkill,
    HTTPAuthSecurityScheme, SecurityRequirement, SecurityScheme, StringList,
};

/// The extension whose params are `{SKILL: {"input": JSON Schema, "output": JSON Schema}}`: what a skill takes as data, and
/// what it gives. Nobody has to know it.
pub const SCHEMAS_EXTENSION: &str = "urn:callboard:schemas";
/// The header that a key may stand in, beside `Authorization`.
pub const API_KEY_HEADER: &str = "X-API-Key";

/// The tag of a skill that may destroy something.
pub const TAG_DESTRUCTIVE: &str = "destructive";

/// The media types of skills that say nothing else.
const MODES: [&str; 2] = ["text/plain", "application/json"];

/// Skills that a description of an agent tells of at most.
const SKILLS_TOLD_MAX: usize = 8;
/// Characters of what it tells of each at most.
const SENTENCE_CHARS_MAX: usize = 160;

/// The card of an agent with these skills, not signed. `description`: what it is for; empty: what its skills say.
pub(super) fn card(options: &A2aOptions, skills: &Skills, description: &str) -> AgentCard {
    let info = &options.info;
    let modes: Vec<String> = match skills.converses {
        true => vec!["*/*".to_owned()],
        false => MODES.map(str::to_owned).to_vec(),
    };
    let (security_schemes, security_requirements) = security(&options.access);
    AgentCard {
        name: info.name.clone(),
        description: if description.is_empty() { of_skills(skills) } else { description.to_owned() },
        supported_interfaces: interfaces(options),
        provider: info.provider.clone(),
        version: info.version.clone(),
        documentation_url: info.documentation_url.clone(),
        capabilities: AgentCapabilities {
            streaming: Some(true),
            push_notifications: Some(true),
            extensions: schemas(&skills.all).into_iter().chain(options.extensions.iter().cloned()).collect(),
            extended_agent_card: Some(options.extended),
        },
        security_schemes,
        security_requirements,
        // Whoever converses decides for itself what of its tools is done.
        skills: skills.all.iter().map(|skill| described(skill, &modes, !skills.converses)).collect(),
        default_input_modes: modes.clone(),
        default_output_modes: modes,
        signatures: Vec::new(),
        icon_url: info.icon_url.clone(),
    }
}

/// Newest first, JSON-RPC first: a client takes the first that it knows.
fn interfaces(options: &A2aOptions) -> Vec<AgentInterface> {
    let url = format!("{}/a2a", options.base_url.as_str().trim_end_matches('/'));
    // Clients of 0.3 put `v1/…` behind the URL, some by the rules for relative ones.
    let with_slash = format!("{url}/");
    let interface = |url: &str, binding: &str, version: &str| AgentInterface {
        url: url.to_owned(),
        protocol_binding: binding.to_owned(),
        protocol_version: version.to_owned(),
        tenant: String::new(),
    };
    let grpc = options.grpc_target.as_ref().map(|target| interface(target, "GRPC", "1.0"));
    let newest = [interface(&url, "JSONRPC", "1.0"), interface(&url, "HTTP+JSON", "1.0")];
    let older = [
        interface(&url, "JSONRPC", "0.3"),
        interface(&with_slash, "HTTP+JSON", "0.3"),
        interface(&url, "JSONRPC", "0.1"),
    ];
    newest.into_iter().chain(grpc).chain(older).collect()
}

/// How to show who one is: by a key, in either header.
fn security(access: &Access) -> (BTreeMap<String, SecurityScheme>, Vec<SecurityRequirement>) {
    if matches!(access, Access::Open(_) | Access::Anyone) {
        return Default::default();
    }
    let bearer = HTTPAuthSecurityScheme { scheme: "Bearer".to_owned(), ..Default::default() };
    let key =
        APIKeySecurityScheme { location: "header".to_owned(), name: API_KEY_HEADER.to_owned(), ..Default::default() };
    let schemes =
        [("apiKey".to_owned(), SecurityScheme::ApiKey(key)), ("bearer".to_owned(), SecurityScheme::HttpAuth(bearer))];
    let either = |name: &str| SecurityRequirement { schemes: [(name.to_owned(), StringList::default())].into() };
    (schemes.into(), vec![either("bearer"), either("apiKey")])
}

fn described(skill: &Skill, modes: &[String], heeds_hints: bool) -> AgentSkill {
    let spec = &skill.spec;
    let tags = spec.more.read::<Vec<String>>("tags").filter(|tags| !tags.is_empty());
    let mut tags = tags.unwrap_or_else(|| vec![spec.name.clone()]);
    if heeds_hints && hints_destructive(&spec.more) && !tags.iter().any(|tag| tag.eq_ignore_ascii_case(TAG_DESTRUCTIVE))
    {
        tags.push(TAG_DESTRUCTIVE.to_owned());
    }
    let others = |own: &Vec<String>| if own == modes { Vec::new() } else { own.clone() };
    AgentSkill {
        id: spec.name.clone(),
        name: spec.more.text("title").unwrap_or_else(|| spec.name.clone()),
        description: spec.description.clone(),
        tags,
        examples: spec.more.read("examples").unwrap_or_default(),
        input_modes: others(&skill.input_modes),
        output_modes: others(&skill.output_modes),
        security_requirements: Vec::new(),
    }
}

/// Whether a tool's annotations say outright that it may destroy something.
fn hints_destructive(tool: &RawObject) -> bool {
    let hints = tool.object("annotations").unwrap_or_default();
    hints.read("destructiveHint") == Some(true) && hints.read("readOnlyHint") != Some(true)
}

/// What an agent of which nobody says anything says of itself: what its skills are, a sentence of each.
fn of_skills(skills: &Skills) -> String {
    let first = |text: &str| {
        let line = text.trim().lines().next().unwrap_or_default();
        let sentence = line.split_inclusive(". ").next().unwrap_or_default().trim_end();
        sentence.chars().take(SENTENCE_CHARS_MAX).collect::<String>()
    };
    let told = |skill: &Skill| match (&*skill.spec.name, first(&skill.spec.description)) {
        (name, sentence) if sentence.is_empty() => format!("{name}."),
        (name, sentence) if sentence.ends_with(['.', '!', '?', '…']) => format!("{name}: {sentence}"),
        (name, sentence) => format!("{name}: {sentence}."),
    };
    if skills.all.is_empty() && !skills.converses {
        return "It has no skills.".to_owned();
    }
    let converses = skills.converses.then(|| "Takes whatever is said to it.".to_owned());
    let more = skills.all.len().saturating_sub(SKILLS_TOLD_MAX);
    let more = (more > 0).then(|| format!("And {more} more."));
    let told = skills.all.iter().take(SKILLS_TOLD_MAX).map(told);
    converses.into_iter().chain(told).chain(more).collect::<Vec<_>>().join(" ")
}

fn schemas(skills: &[Skill]) -> Option<AgentExtension> {
    let mut params = RawObject::new();
    for skill in skills {
        let mut schemas = RawObject::new().with("input", &skill.spec.input_schema);
        if let Some(output) = &skill.spec.output_schema {
            schemas.set("output", output);
        }
        params.set(&skill.spec.name, schemas);
    }
    (!params.is_empty()).then(|| AgentExtension {
        uri: SCHEMAS_EXTENSION.to_owned(),
        description: "JSON Schemas of what each skill takes as data and gives".to_owned(),
        required: false,
        params: Some(params),
    })
}
