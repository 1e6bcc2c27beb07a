//! Agent cards and the catalogue of agents as HTTP documents. They are built per request, but their
//! bytes stay the same as long as their content does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use actix_web::http::header::{
    CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    LAST_MODIFIED, VARY,
};
use actix_web::{HttpRequest, HttpResponse};
use bytes::Bytes;
use callboard_message::{Principal, PrincipalKind, RawObject, encode_hex};
use callboard_rpc::{AccessControl, KeyPairError};
use parking_lot::{Mutex, RwLock};
use sha2::{Digest, Sha256};
use url::Url;

use super::calls::{A2aTaskService, RequestContext, Skill, SkillSet};
use super::options::{A2aOptions, AgentDescription};
use crate::card::{API_KEY_HEADER, SCHEMAS_EXTENSION, TAG_DESTRUCTIVE, sign_card, sign_document};
use crate::wire::{
    APIKeySecurityScheme, AgentCapabilities, AgentCard, AgentExtension, AgentInterface, AgentSkill,
    HTTPAuthSecurityScheme, MutualTlsSecurityScheme, SecurityRequirement, SecurityScheme,
    StringList, WireType,
};
use crate::{A2aError, Dialect, ErrorKind};

/// Path of the key set under a listener's base URL.
const JWKS_PATH: &str = "/.well-known/jwks.json";

/// A JSON document with its HTTP validators (entity tag and modification time), so that clients can
/// cache it.
#[derive(Debug, Clone)]
pub(crate) struct HttpDocument {
    bytes: Bytes,
    /// Strong entity tag, with its quotes.
    etag: String,
    /// Time when the document last changed.
    modified: SystemTime,
}

impl HttpDocument {
    fn new(text: &str) -> Self {
        Self {
            bytes: Bytes::copy_from_slice(text.as_bytes()),
            etag: etag(text),
            modified: SystemTime::now(),
        }
    }

    /// Returns the response to a request for the document: 304 if the client's copy is current.
    pub(crate) fn to_response(&self, request: &HttpRequest) -> HttpResponse {
        let mut response = match self.is_fresh_for(request) {
            true => HttpResponse::NotModified().finish(),
            false => HttpResponse::Ok().body(self.bytes.clone()),
        };
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(
            CACHE_CONTROL,
            HeaderValue::from_static("public, max-age=60"),
        );
        headers.insert(VARY, HeaderValue::from_static("A2A-Version, Authorization"));
        if let Ok(etag) = HeaderValue::from_str(&self.etag) {
            headers.insert(ETAG, etag);
        }
        if let Ok(modified) = HeaderValue::from_str(&httpdate::fmt_http_date(self.modified)) {
            headers.insert(LAST_MODIFIED, modified);
        }
        response
    }

    /// Returns whether the document hasn't changed since the client cached it. As in RFC 9110,
    /// section 13.2.2, the modification time counts only if the client sent no entity tags.
    fn is_fresh_for(&self, request: &HttpRequest) -> bool {
        let text = |value: &HeaderValue| value.to_str().map(str::to_owned).unwrap_or_default();
        let tags: Vec<_> = request.headers().get_all(IF_NONE_MATCH).map(text).collect();
        if !tags.is_empty() {
            let all = tags.iter().flat_map(|tags| tags.split(',')).map(str::trim);
            return all
                .map(|tag| tag.strip_prefix("W/").unwrap_or(tag))
                .any(|tag| tag == "*" || tag == self.etag);
        }
        let since = request.headers().get(IF_MODIFIED_SINCE).map(text);
        let since = since.and_then(|date| httpdate::parse_http_date(&date).ok());
        // HTTP dates have whole seconds.
        let modified = httpdate::fmt_http_date(self.modified);
        since.is_some_and(|since| {
            httpdate::parse_http_date(&modified).is_ok_and(|modified| modified <= since)
        })
    }
}

fn etag(text: &str) -> String {
    format!("\"{}\"", encode_hex(&Sha256::digest(text)))
}

/// Cards of one agent.
pub(crate) struct AgentCards {
    calls: Arc<A2aTaskService>,
    options: Arc<A2aOptions>,
    /// The agent's purpose; if empty, it is derived from the skills.
    description: RwLock<String>,
    /// Latest public cards: one for readers of all versions, and one in the format of 1.0. They are
    /// cached because signing the same card again gives another signature, and thus another entity
    /// tag.
    made: [Mutex<Option<BuiltCard>>; 2],
}

#[derive(Clone)]
struct BuiltCard {
    /// JSON of the card without signatures, to detect changes.
    unsigned: String,
    body: HttpDocument,
}

impl AgentCards {
    pub(crate) fn new(calls: Arc<A2aTaskService>, options: Arc<A2aOptions>) -> Self {
        let description = RwLock::new(options.agent.description.clone());
        Self {
            calls,
            options,
            description,
            made: Default::default(),
        }
    }

    /// Replaces the description of the agent.
    pub(crate) fn update_description(&self, description: &str) {
        description.clone_into(&mut self.description.write());
    }

    /// Returns the configured description of the agent; empty if cards derive it from the skills.
    pub(crate) fn description(&self) -> String {
        self.description.read().clone()
    }

    /// Returns the public card: in the format of 1.0 if `reads_1_0`, else for readers of all
    /// versions.
    ///
    /// # Errors
    /// `Overloaded` if the agent's skills can't be determined now and no earlier card is cached.
    pub(crate) async fn public_card(&self, reads_1_0: bool) -> Result<HttpDocument, A2aError> {
        let [of_all, of_1_0] = &self.made;
        let made = if reads_1_0 { of_1_0 } else { of_all };
        let before = made.lock().clone();
        let who = RequestContext::new(Arc::new(Principal::anonymous()), Dialect::V10);
        let card = match (self.build_card(&who).await, &before) {
            (Ok(card), _) => card,
            // The previous card is better than none.
            (Err(_), Some(before)) => return Ok(before.body.clone()),
            (Err(error), None) => return Err(error),
        };
        let unsigned = card.to_json();
        if let Some(before) = before.filter(|before| before.unsigned == unsigned) {
            return Ok(before.body);
        }
        let card = self.sign_card(card)?;
        let text = match (reads_1_0, &self.options.signer) {
            (true, _) => card.to_raw(),
            (false, None) => Dialect::write_hybrid_card(&card),
            (false, Some(key)) => {
                let jku = jwks_url(&self.options.base_url);
                sign_document(&Dialect::write_hybrid_card(&card), key, jku.as_ref())
                    .map_err(signing_error)?
            }
        };
        let body = HttpDocument::new(text.get());
        let mut made = made.lock();
        // If two requests built the card at the same time, the first one counts.
        if let Some(other) = made.as_ref().filter(|other| other.unsigned == unsigned) {
            return Ok(other.body.clone());
        }
        *made = Some(BuiltCard {
            unsigned,
            body: body.clone(),
        });
        Ok(body)
    }

    /// Returns the extended card for a principal, with all skills that it may use.
    ///
    /// # Errors
    /// If there is no extended card, `UnsupportedOperation` for clients of 1.0 (section 3.1.11) and
    /// `ExtendedAgentCardNotConfigured` for clients of older versions. `Denied` for anonymous
    /// callers. `Overloaded` if the skills can't be determined.
    pub(crate) async fn extended_card(&self, who: &RequestContext) -> Result<AgentCard, A2aError> {
        if !self.options.extended_card {
            let kind = match who.dialect {
                Dialect::V10 => ErrorKind::UnsupportedOperation,
                Dialect::V03 | Dialect::V03Rest | Dialect::V01 => {
                    ErrorKind::ExtendedAgentCardNotConfigured
                }
            };
            return Err(kind.error("there is no extended card: use the public one"));
        }
        if who.principal.kind == PrincipalKind::Anonymous {
            return Err(
                ErrorKind::Denied.error("the extended card requires authentication: send a key")
            );
        }
        self.sign_card(self.build_card(who).await?)
    }

    /// Returns the key set for verifying cards; `None` if cards aren't signed.
    pub(crate) fn jwks(&self) -> Option<HttpDocument> {
        self.options
            .signer
            .as_ref()
            .map(|key| HttpDocument::new(key.jwks().to_raw().get()))
    }

    async fn build_card(&self, who: &RequestContext) -> Result<AgentCard, A2aError> {
        let call = who.call_context();
        let description = match self.calls.is_permitted(&call) {
            true => self.description(),
            false => String::new(),
        };
        let skills = self.calls.visible_skills(call).await?;
        Ok(agent_card(&self.options, &skills, &description))
    }

    fn sign_card(&self, mut card: AgentCard) -> Result<AgentCard, A2aError> {
        if let Some(key) = &self.options.signer {
            sign_card(&mut card, key, jwks_url(&self.options.base_url).as_ref())
                .map_err(signing_error)?;
        }
        Ok(card)
    }
}

fn signing_error(error: KeyPairError) -> A2aError {
    callboard_message::log::error!(%error, "failed to sign a card");
    A2aError::internal()
}

/// Returns the URL of a listener's key set. `base_url` is the listener's base URL, or that of a
/// named agent (`…/agents/NAME`), from which the listener's is derived.
fn jwks_url(base_url: &Url) -> Option<Url> {
    let base = base_url.as_str().trim_end_matches('/');
    let of_listener = match base.rsplit_once("/agents/") {
        Some((before, name)) if !name.contains('/') => before,
        _ => base,
    };
    Url::parse(&format!("{of_listener}{JWKS_PATH}")).ok()
}

/// Maximum number of skills in a derived description of an agent.
/// At the limit: the others are counted as "And n more." Changed by
/// `AgentDescription::description`.
const DESCRIBED_SKILLS_MAX: usize = 8;
/// Maximum length of each skill's sentence in a derived description, in characters.
/// At the limit: cut. Changed by `AgentDescription::description`.
const SENTENCE_CHARS_MAX: usize = 160;

/// Returns the unsigned card of an agent with these skills. If `description` is empty, it is
/// derived from the skills.
fn agent_card(options: &A2aOptions, skills: &SkillSet, description: &str) -> AgentCard {
    let info = &options.agent;
    let modes = skills.default_modes();
    let (security_schemes, security_requirements) = security_schemes(&options.access);
    AgentCard {
        name: info.name.clone(),
        description: if description.is_empty() {
            describe_skills(skills)
        } else {
            description.to_owned()
        },
        supported_interfaces: interfaces(options),
        provider: info.provider.clone(),
        version: info.version.clone(),
        documentation_url: info.documentation_url.clone(),
        capabilities: AgentCapabilities {
            streaming: Some(true),
            push_notifications: Some(true),
            extensions: schemas_extension(&skills.all)
                .into_iter()
                .chain(options.extensions.iter().cloned())
                .collect(),
            extended_agent_card: Some(options.extended_card),
        },
        security_schemes,
        security_requirements,
        // A conversing agent decides itself which of its tools it uses.
        skills: skills
            .all
            .iter()
            .map(|skill| card_skill(skill, &modes, !skills.accepts_messages))
            .collect(),
        default_input_modes: modes.0,
        default_output_modes: modes.1,
        signatures: Vec::new(),
        icon_url: info.icon_url.clone(),
    }
}

/// Returns the interfaces of an agent for its card. The newest version and JSON-RPC come first,
/// because clients use the first interface that they support.
fn interfaces(options: &A2aOptions) -> Vec<AgentInterface> {
    let url = format!("{}/a2a", options.base_url.as_str().trim_end_matches('/'));
    // Clients of 0.3 append `v1/…` to the URL, some by the rules for relative URLs.
    let with_slash = format!("{url}/");
    let interface = |url: &str, binding: &str, version: &str| AgentInterface {
        url: url.to_owned(),
        protocol_binding: binding.to_owned(),
        protocol_version: version.to_owned(),
        tenant: String::new(),
    };
    let grpc = options
        .grpc_target
        .as_ref()
        .map(|target| interface(target, "GRPC", "1.0"));
    let newest = [
        interface(&url, "JSONRPC", "1.0"),
        interface(&url, "HTTP+JSON", "1.0"),
    ];
    let older = [
        interface(&url, "JSONRPC", "0.3"),
        interface(&with_slash, "HTTP+JSON", "0.3"),
        interface(&url, "JSONRPC", "0.1"),
    ];
    newest.into_iter().chain(grpc).chain(older).collect()
}

/// Returns the security schemes of a card and its requirements: an API key in the header
/// `Authorization` or in `X-API-Key`, or a client certificate. Both are empty if callers need no
/// credentials.
fn security_schemes(
    access: &AccessControl,
) -> (BTreeMap<String, SecurityScheme>, Vec<SecurityRequirement>) {
    let bearer = HTTPAuthSecurityScheme {
        scheme: "Bearer".to_owned(),
        ..Default::default()
    };
    let key = APIKeySecurityScheme {
        location: "header".to_owned(),
        name: API_KEY_HEADER.to_owned(),
        ..Default::default()
    };
    let mut accepted = Vec::new();
    if access.accepts_tokens() {
        accepted.push(("bearer", SecurityScheme::HttpAuth(bearer)));
        accepted.push(("apiKey", SecurityScheme::ApiKey(key)));
    }
    if access.accepts_certificates() {
        let certificate = MutualTlsSecurityScheme::default();
        accepted.push(("mutualTls", SecurityScheme::MutualTls(certificate)));
    }
    let either = |name: &str| SecurityRequirement {
        schemes: [(name.to_owned(), StringList::default())].into(),
    };
    let requirements = accepted.iter().map(|(name, _)| either(name)).collect();
    let schemes = accepted.into_iter();
    let schemes = schemes.map(|(name, scheme)| (name.to_owned(), scheme));
    (schemes.collect(), requirements)
}

/// Converts a skill for the card, whose default media types of input and output are `modes`. With
/// `heeds_hints`, a skill whose annotations say that it may destroy something gets the tag
/// [`TAG_DESTRUCTIVE`].
fn card_skill(skill: &Skill, modes: &(Vec<String>, Vec<String>), heeds_hints: bool) -> AgentSkill {
    let spec = &skill.spec;
    let tags = spec
        .more
        .read::<Vec<String>>("tags")
        .filter(|tags| !tags.is_empty());
    let mut tags = tags.unwrap_or_else(|| vec![spec.name.clone()]);
    if heeds_hints
        && hints_destructive(&spec.more)
        && !tags
            .iter()
            .any(|tag| tag.eq_ignore_ascii_case(TAG_DESTRUCTIVE))
    {
        tags.push(TAG_DESTRUCTIVE.to_owned());
    }
    let others = |own: &Vec<String>, modes| {
        if own == modes {
            Vec::new()
        } else {
            own.clone()
        }
    };
    AgentSkill {
        id: spec.name.clone(),
        name: spec.more.text("title").unwrap_or_else(|| spec.name.clone()),
        description: spec.description.clone(),
        tags,
        examples: spec.more.read("examples").unwrap_or_default(),
        input_modes: others(&skill.input_modes, &modes.0),
        output_modes: others(&skill.output_modes, &modes.1),
        security_requirements: Vec::new(),
    }
}

/// Returns whether a tool's annotations state that it may destroy something.
fn hints_destructive(tool: &RawObject) -> bool {
    let hints = tool.object("annotations").unwrap_or_default();
    hints.read("destructiveHint") == Some(true) && hints.read("readOnlyHint") != Some(true)
}

/// Derives an agent's description from its skills: the first sentence of each skill's description.
fn describe_skills(skills: &SkillSet) -> String {
    let first = |text: &str| {
        let line = text.trim().lines().next().unwrap_or_default();
        let sentence = line
            .split_inclusive(". ")
            .next()
            .unwrap_or_default()
            .trim_end();
        sentence
            .chars()
            .take(SENTENCE_CHARS_MAX)
            .collect::<String>()
    };
    let told = |skill: &Skill| match (&*skill.spec.name, first(&skill.spec.description)) {
        (name, sentence) if sentence.is_empty() => format!("{name}."),
        (name, sentence) if sentence.ends_with(['.', '!', '?', '…']) => {
            format!("{name}: {sentence}")
        }
        (name, sentence) => format!("{name}: {sentence}."),
    };
    if skills.all.is_empty() && !skills.accepts_messages {
        return "It has no skills.".to_owned();
    }
    let converses = (skills.accepts_messages && !skills.takes_parts())
        .then(|| "Accepts any message.".to_owned());
    let more = skills.all.len().saturating_sub(DESCRIBED_SKILLS_MAX);
    let more = (more > 0).then(|| format!("And {more} more."));
    let told = skills.all.iter().take(DESCRIBED_SKILLS_MAX).map(told);
    converses
        .into_iter()
        .chain(told)
        .chain(more)
        .collect::<Vec<_>>()
        .join(" ")
}

fn schemas_extension(skills: &[Skill]) -> Option<AgentExtension> {
    let mut params = RawObject::new();
    for skill in skills {
        let mut schemas = RawObject::single("input", &skill.spec.input_schema);
        schemas.set_some("output", &skill.spec.output_schema);
        params.set(&skill.spec.name, schemas);
    }
    (!params.is_empty()).then(|| AgentExtension {
        uri: SCHEMAS_EXTENSION.to_owned(),
        description: "JSON Schemas of what each skill takes as data and gives".to_owned(),
        required: false,
        params: Some(params),
    })
}

/// Version of the catalogue's format.
const CATALOG_VERSION: &str = "1.0";
/// Media type of agent cards, stated by the catalogue's entries.
const CARD_TYPE: &str = "application/a2a-agent-card+json";

/// Builds the catalogue of named agents: their ids, descriptions and card URLs under the listener's
/// base URL.
pub(crate) fn catalog<'a>(
    base_url: &Url,
    agents: impl IntoIterator<Item = (&'a str, &'a AgentDescription, String)>,
) -> HttpDocument {
    let base = base_url.as_str().trim_end_matches('/');
    let host = base_url.host_str().unwrap_or("localhost");
    let entry = |(id, info, description): (&str, &AgentDescription, String)| {
        let entry = RawObject::single("identifier", format!("urn:air:{host}:agents:{id}"))
            .with("name", id)
            .with("displayName", &info.name)
            .with("version", &info.version)
            // The format was published with either name.
            .with("type", CARD_TYPE)
            .with("mediaType", CARD_TYPE)
            .with(
                "url",
                format!("{base}/agents/{id}/.well-known/agent-card.json"),
            );
        // A derived description is only in the agent's card.
        if description.is_empty() {
            entry
        } else {
            entry.with("description", description)
        }
    };
    let entries: Vec<_> = agents.into_iter().map(entry).collect();
    HttpDocument::new(
        RawObject::single("specVersion", CATALOG_VERSION)
            .with("entries", entries)
            .to_raw()
            .get(),
    )
}
