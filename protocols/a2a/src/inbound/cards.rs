//! Cards, and the catalogue of them, as documents: made when they are asked for, the same bytes as long as they say the same.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use actix_web::http::header::{
    CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    LAST_MODIFIED, VARY,
};
use actix_web::{HttpRequest, HttpResponse};
use bytes::Bytes;
use callboard_message::{Principal, PrincipalKind, RawObject, hex};
use callboard_rpc::Access;
use parking_lot::{Mutex, RwLock};
use sha2::{Digest, Sha256};
use url::Url;

use super::calls::{Calls, Skill, Skills, Who};
use super::options::{A2aOptions, Info};
use crate::card::{API_KEY_HEADER, SCHEMAS_EXTENSION, TAG_DESTRUCTIVE, sign};
use crate::wire::{
    APIKeySecurityScheme, AgentCapabilities, AgentCard, AgentExtension, AgentInterface, AgentSkill,
    HTTPAuthSecurityScheme, SecurityRequirement, SecurityScheme, StringList, Wire,
};
use crate::{A2aError, Dialect, ErrorKind};

/// Where the key set stands under a listener's address.
const JWKS_PATH: &str = "/.well-known/jwks.json";

/// A document and what HTTP says of it.
#[derive(Debug, Clone)]
pub(crate) struct CardBody {
    bytes: Bytes,
    /// Strong, with its quotes.
    etag: String,
    /// When it came to say this.
    modified: SystemTime,
}

impl CardBody {
    fn new(text: &str) -> Self {
        Self {
            bytes: Bytes::copy_from_slice(text.as_bytes()),
            etag: etag(text),
            modified: SystemTime::now(),
        }
    }

    /// The answer to a request for it: 304 where the client has it.
    pub(crate) fn answer(&self, request: &HttpRequest) -> HttpResponse {
        let mut response = match self.is_known_to(request) {
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

    /// Whether the client has it already (RFC 9110, section 13.2.2: a date counts only without tags).
    fn is_known_to(&self, request: &HttpRequest) -> bool {
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
        // A date has whole seconds.
        let modified = httpdate::fmt_http_date(self.modified);
        since.is_some_and(|since| {
            httpdate::parse_http_date(&modified).is_ok_and(|modified| modified <= since)
        })
    }
}

fn etag(text: &str) -> String {
    format!("\"{}\"", hex(&Sha256::digest(text)))
}

/// The cards of one agent.
pub(crate) struct Cards {
    calls: Arc<Calls>,
    options: Arc<A2aOptions>,
    /// What the agent is for; empty: what its skills say.
    description: RwLock<String>,
    /// The public ones as they were made last, for readers of all versions and of 1.0: a signature is another each time.
    made: [Mutex<Option<Made>>; 2],
}

#[derive(Clone)]
struct Made {
    /// What was signed.
    unsigned: String,
    body: CardBody,
}

impl Cards {
    pub(crate) fn new(calls: Arc<Calls>, options: Arc<A2aOptions>) -> Self {
        let description = RwLock::new(options.info.description.clone());
        Self {
            calls,
            options,
            description,
            made: Default::default(),
        }
    }

    /// Says from now on what the agent is for.
    pub(crate) fn describe(&self, description: &str) {
        description.clone_into(&mut self.description.write());
    }

    /// What the agent is for, as it was said last; empty: what its skills say.
    pub(crate) fn description(&self) -> String {
        self.description.read().clone()
    }

    /// The card for everybody: that of 1.0 for who says that it reads that, else one for readers of all versions.
    ///
    /// # Errors
    /// `Overloaded` where the agent can't tell what it can do now.
    pub(crate) async fn public(&self, reads_1_0: bool) -> Result<CardBody, A2aError> {
        let [of_all, of_1_0] = &self.made;
        let made = if reads_1_0 { of_1_0 } else { of_all };
        let before = made.lock().clone();
        let who = Who::new(Arc::new(Principal::anonymous()), Dialect::V10);
        let card = match (self.card(&who).await, &before) {
            (Ok(card), _) => card,
            // It said what it can do before: that is better than nothing.
            (Err(_), Some(before)) => return Ok(before.body.clone()),
            (Err(error), None) => return Err(error),
        };
        let unsigned = card.to_json();
        if let Some(before) = before.filter(|before| before.unsigned == unsigned) {
            return Ok(before.body);
        }
        let card = self.signed(card)?;
        let text = if reads_1_0 {
            card.to_raw()
        } else {
            Dialect::write_hybrid_card(&card)
        };
        let body = CardBody::new(text.get());
        let mut made = made.lock();
        // Made twice at once, it is the first one.
        if let Some(other) = made.as_ref().filter(|other| other.unsigned == unsigned) {
            return Ok(other.body.clone());
        }
        *made = Some(Made {
            unsigned,
            body: body.clone(),
        });
        Ok(body)
    }

    /// The card for a principal, with what else it may use.
    ///
    /// # Errors
    /// Where there is none, `UnsupportedOperation` (1.0, section 3.1.11: the card doesn't announce one), which older versions
    /// call `ExtendedAgentCardNotConfigured`; `Denied` to nobody in particular; `Overloaded`.
    pub(crate) async fn extended(&self, who: &Who) -> Result<AgentCard, A2aError> {
        if !self.options.extended {
            let kind = match who.dialect {
                Dialect::V10 => ErrorKind::UnsupportedOperation,
                Dialect::V03 | Dialect::V03Rest | Dialect::V01 => {
                    ErrorKind::ExtendedAgentCardNotConfigured
                }
            };
            return Err(kind.error("there is no extended card: the public one is all"));
        }
        if who.principal.kind == PrincipalKind::Anonymous {
            return Err(ErrorKind::Denied.error("the extended card is for who shows a credential"));
        }
        self.signed(self.card(who).await?)
    }

    /// The keys that cards are signed with; `None` where they aren't.
    pub(crate) fn jwks(&self) -> Option<CardBody> {
        self.options
            .signer
            .as_ref()
            .map(|key| CardBody::new(key.jwks().to_raw().get()))
    }

    async fn card(&self, who: &Who) -> Result<AgentCard, A2aError> {
        let skills = self.calls.skills(who.call()).await?;
        Ok(card(&self.options, &skills, &self.description.read()))
    }

    fn signed(&self, mut card: AgentCard) -> Result<AgentCard, A2aError> {
        if let Some(key) = &self.options.signer {
            sign(&mut card, key, jwks_url(&self.options.base_url).as_ref()).map_err(|error| {
                callboard_message::log::error!(%error, "a card can't be signed");
                A2aError::internal()
            })?;
        }
        Ok(card)
    }
}

/// Where a listener's key set is, by the address of one of its agents: of all of them, or `…/agents/NAME`.
fn jwks_url(base_url: &Url) -> Option<Url> {
    let base = base_url.as_str().trim_end_matches('/');
    let of_listener = match base.rsplit_once("/agents/") {
        Some((before, name)) if !name.contains('/') => before,
        _ => base,
    };
    Url::parse(&format!("{of_listener}{JWKS_PATH}")).ok()
}

/// The media types of skills that say nothing else.
const MODES: [&str; 2] = ["text/plain", "application/json"];

/// Skills that a description of an agent tells of at most.
/// At the limit: the others are told as "And n more." Changed by `Info::description`.
const SKILLS_TOLD_MAX: usize = 8;
/// Characters of what it tells of each at most.
/// At the limit: cut. Changed by `Info::description`.
const SENTENCE_CHARS_MAX: usize = 160;

/// The card of an agent with these skills, not signed. `description`: what it is for; empty: what its skills say.
fn card(options: &A2aOptions, skills: &Skills, description: &str) -> AgentCard {
    let info = &options.info;
    let modes: Vec<String> = match skills.converses {
        true => vec!["*/*".to_owned()],
        false => MODES.map(str::to_owned).to_vec(),
    };
    let (security_schemes, security_requirements) = security(&options.access);
    AgentCard {
        name: info.name.clone(),
        description: if description.is_empty() {
            of_skills(skills)
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
            extensions: schemas(&skills.all)
                .into_iter()
                .chain(options.extensions.iter().cloned())
                .collect(),
            extended_agent_card: Some(options.extended),
        },
        security_schemes,
        security_requirements,
        // Whoever converses decides for itself what of its tools is done.
        skills: skills
            .all
            .iter()
            .map(|skill| described(skill, &modes, !skills.converses))
            .collect(),
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

/// How to show who one is: by a key, in either header.
fn security(access: &Access) -> (BTreeMap<String, SecurityScheme>, Vec<SecurityRequirement>) {
    if matches!(access, Access::Open(_) | Access::Anyone) {
        return Default::default();
    }
    let bearer = HTTPAuthSecurityScheme {
        scheme: "Bearer".to_owned(),
        ..Default::default()
    };
    let key = APIKeySecurityScheme {
        location: "header".to_owned(),
        name: API_KEY_HEADER.to_owned(),
        ..Default::default()
    };
    let schemes = [
        ("apiKey".to_owned(), SecurityScheme::ApiKey(key)),
        ("bearer".to_owned(), SecurityScheme::HttpAuth(bearer)),
    ];
    let either = |name: &str| SecurityRequirement {
        schemes: [(name.to_owned(), StringList::default())].into(),
    };
    (schemes.into(), vec![either("bearer"), either("apiKey")])
}

fn described(skill: &Skill, modes: &[String], heeds_hints: bool) -> AgentSkill {
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
    let others = |own: &Vec<String>| {
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
    if skills.all.is_empty() && !skills.converses {
        return "It has no skills.".to_owned();
    }
    let converses = skills
        .converses
        .then(|| "Takes whatever is said to it.".to_owned());
    let more = skills.all.len().saturating_sub(SKILLS_TOLD_MAX);
    let more = (more > 0).then(|| format!("And {more} more."));
    let told = skills.all.iter().take(SKILLS_TOLD_MAX).map(told);
    converses
        .into_iter()
        .chain(told)
        .chain(more)
        .collect::<Vec<_>>()
        .join(" ")
}

fn schemas(skills: &[Skill]) -> Option<AgentExtension> {
    let mut params = RawObject::new();
    for skill in skills {
        let mut schemas = RawObject::of("input", &skill.spec.input_schema);
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

/// The version of the catalogue's form.
const CATALOG_VERSION: &str = "1.0";
/// What an entry leads to.
const CARD_TYPE: &str = "application/a2a-agent-card+json";

/// The catalogue of agents by their ids, with what they are for, under the listener's address.
pub(crate) fn catalog<'a>(
    base_url: &Url,
    agents: impl IntoIterator<Item = (&'a str, &'a Info, String)>,
) -> CardBody {
    let base = base_url.as_str().trim_end_matches('/');
    let host = base_url.host_str().unwrap_or("localhost");
    let entry = |(id, info, description): (&str, &Info, String)| {
        let entry = RawObject::of("identifier", format!("urn:air:{host}:agents:{id}"))
            .with("name", id)
            .with("displayName", &info.name)
            .with("version", &info.version)
            // The form was published with either name.
            .with("type", CARD_TYPE)
            .with("mediaType", CARD_TYPE)
            .with(
                "url",
                format!("{base}/agents/{id}/.well-known/agent-card.json"),
            );
        // What its skills say stands in its card.
        if description.is_empty() {
            entry
        } else {
            entry.with("description", description)
        }
    };
    let entries: Vec<_> = agents.into_iter().map(entry).collect();
    CardBody::new(
        RawObject::of("specVersion", CATALOG_VERSION)
            .with("entries", entries)
            .to_raw()
            .get(),
    )
}
