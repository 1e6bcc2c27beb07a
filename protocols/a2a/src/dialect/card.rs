//! Agent cards in versions before 1.0, and cards that readers of all versions understand.

use std::collections::BTreeMap;

use callboard_message::{RawMembers, RawObject};
use serde_json::value::RawValue;

use crate::Dialect;
use crate::wire::*;

const JSON_RPC: &str = "JSONRPC";
/// Protocol version on cards of 0.3.
const PROTOCOL_VERSION: &str = "0.3.0";

/// Returns the interfaces of one protocol version, in the card's order.
fn interfaces<'a>(
    card: &'a AgentCard,
    version: &'a str,
) -> impl Iterator<Item = &'a AgentInterface> + Clone {
    card.supported_interfaces
        .iter()
        .filter(move |interface| interface.protocol_version == version)
}

/// Returns the interface that clients of `version` use first: the card's first JSON-RPC interface
/// of that version, else the first one of any binding. `None` if the card has no interface of that
/// version.
fn main_interface<'a>(card: &'a AgentCard, version: &'a str) -> Option<&'a AgentInterface> {
    let of_version = interfaces(card, version);
    of_version
        .clone()
        .find(|interface| interface.protocol_binding == JSON_RPC)
        .or_else(|| of_version.clone().next())
}

/// Returns those members of a card that have the same format in 0.3, 0.1 and 1.0.
fn common_members(card: &AgentCard) -> RawObject {
    let mut object = RawObject::single("name", &card.name);
    object.set("description", &card.description);
    object.set("version", &card.version);
    if let Some(provider) = &card.provider {
        object.set_raw("provider", provider.to_raw());
    }
    object.set_some("documentationUrl", &card.documentation_url);
    object.set("defaultInputModes", &card.default_input_modes);
    object.set("defaultOutputModes", &card.default_output_modes);
    object
}

/// Returns the card in the format of 0.3.
pub(super) fn write_card_03(card: &AgentCard) -> RawObject {
    let mut object = common_members(card);
    object.set_some("iconUrl", &card.icon_url);
    let capabilities = AgentCapabilities {
        extended_agent_card: None,
        ..card.capabilities.clone()
    };
    object.set_raw("capabilities", capabilities.to_raw());
    let skill = |skill: &AgentSkill| {
        let bare = AgentSkill {
            security_requirements: Vec::new(),
            ..skill.clone()
        };
        let mut object = RawObject::parse(&bare.to_raw()).unwrap_or_default();
        if !skill.security_requirements.is_empty() {
            object.set("security", write_security(&skill.security_requirements));
        }
        object
    };
    object.set("skills", card.skills.iter().map(skill).collect::<Vec<_>>());
    if !card.security_schemes.is_empty() {
        let mut schemes = RawObject::new();
        card.security_schemes
            .iter()
            .for_each(|(name, scheme)| schemes.set(name, write_scheme(scheme)));
        object.set("securitySchemes", schemes);
    }
    // Signatures cover the format of 1.0. The members below don't exist in 1.0.
    object.set("protocolVersion", PROTOCOL_VERSION);
    if let Some(main) = main_interface(card, "0.3").or_else(|| card.supported_interfaces.first()) {
        object.set("url", &main.url);
        object.set("preferredTransport", &main.protocol_binding);
    }
    let additional = interfaces(card, "0.3").map(|interface| {
        RawObject::single("url", &interface.url).with("transport", &interface.protocol_binding)
    });
    object.set("additionalInterfaces", additional.collect::<Vec<_>>());
    if !card.security_requirements.is_empty() {
        object.set("security", write_security(&card.security_requirements));
    }
    object.set(
        "supportsAuthenticatedExtendedCard",
        card.capabilities.extended_agent_card == Some(true),
    );
    object
}

fn write_security(requirements: &[SecurityRequirement]) -> Vec<RawObject> {
    let one = |requirement: &SecurityRequirement| {
        let schemes = requirement.schemes.iter();
        schemes.fold(RawObject::new(), |object, (name, scopes)| {
            object.with(name, &scopes.list)
        })
    };
    requirements.iter().map(one).collect()
}

/// Returns a security scheme in the format of OpenAPI, identified by `type`.
fn write_scheme(scheme: &SecurityScheme) -> RawObject {
    let (kind, own) = match scheme {
        SecurityScheme::ApiKey(scheme) => ("apiKey", scheme.to_raw()),
        SecurityScheme::HttpAuth(scheme) => ("http", scheme.to_raw()),
        SecurityScheme::OAuth2(scheme) => ("oauth2", scheme.to_raw()),
        SecurityScheme::OpenIdConnect(scheme) => ("openIdConnect", scheme.to_raw()),
        SecurityScheme::MutualTls(scheme) => ("mutualTLS", scheme.to_raw()),
    };
    let own = RawObject::parse(&own).unwrap_or_default();
    own.iter().fold(
        RawObject::single("type", kind),
        |mut object, (name, value)| {
            object.set_raw(
                if name == "location" { "in" } else { name },
                value.to_owned(),
            );
            object
        },
    )
}

pub(super) fn read_card(card: &RawValue) -> Result<AgentCard, ReadError> {
    let root = FieldPath::Root;
    let members = ObjectReader::parse(card, &root)?;
    let mut read = AgentCard::from_raw(card)?;
    if members.has("supportsAuthenticatedExtendedCard")
        && read.capabilities.extended_agent_card.is_none()
    {
        read.capabilities.extended_agent_card =
            members.optional("supportsAuthenticatedExtendedCard", &[])?;
    }
    let versions = card_versions(&members)?;
    let mut add = |url: String, protocol_binding: String, version: &str| {
        let is_same = |other: &AgentInterface| {
            (
                &other.url,
                &other.protocol_binding,
                &*other.protocol_version,
            ) == (&url, &protocol_binding, version)
        };
        if !read.supported_interfaces.iter().any(is_same) {
            let (tenant, protocol_version) = (String::new(), version.to_owned());
            read.supported_interfaces.push(AgentInterface {
                url,
                protocol_binding,
                tenant,
                protocol_version,
            });
        }
    };
    let url: String = members.default("url", &[])?;
    if !url.is_empty() {
        let binding = members.default::<String>("preferredTransport", &[])?;
        let binding = if binding.is_empty() {
            JSON_RPC.to_owned()
        } else {
            binding
        };
        versions
            .iter()
            .for_each(|version| add(url.clone(), binding.clone(), version));
    }
    if let Some(version) = versions.first() {
        let additional = members.find("additionalInterfaces", &[])?;
        let additional: Vec<&RawValue> = additional
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default();
        for interface in additional
            .into_iter()
            .filter_map(|raw| RawMembers::parse(raw).ok())
        {
            if let (Some(url), Some(binding)) = (interface.read("url"), interface.read("transport"))
            {
                add(url, binding, version);
            }
        }
    }
    read_authentication(&members, &mut read)?;
    Ok(read)
}

/// Determines the versions before 1.0 in which a card is written, from its members. Without any
/// sign of the version, both 0.3 and 0.1 are returned.
fn card_versions(members: &ObjectReader<'_>) -> Result<Vec<&'static str>, ReadError> {
    let of_03 = [
        "preferredTransport",
        "additionalInterfaces",
        "security",
        "supportsAuthenticatedExtendedCard",
    ];
    let version: String = members.default("protocolVersion", &[])?;
    Ok(match &*version {
        // A card may name 1.0 here too, but its interfaces already have their own versions.
        version if version.starts_with("1.") && members.has("supportedInterfaces") => vec![],
        version if version.starts_with("1.") => vec!["1.0"],
        version if version.starts_with("0.1") => vec!["0.1"],
        version if !version.is_empty() => vec!["0.3"],
        _ if members.has("authentication") => vec!["0.1"],
        _ if of_03.iter().any(|name| members.has(name)) => vec!["0.3"],
        _ => vec!["0.3", "0.1"],
    })
}

/// Returns the card in the format of 0.1.
pub(super) fn write_card_01(card: &AgentCard) -> RawObject {
    let mut object = common_members(card);
    let main = main_interface(card, "0.1").or_else(|| main_interface(card, "0.3"));
    if let Some(main) = main.or_else(|| card.supported_interfaces.first()) {
        object.set("url", &main.url);
    }
    let is_on = |capability: Option<bool>| capability == Some(true);
    let capabilities = RawObject::single("streaming", is_on(card.capabilities.streaming))
        .with(
            "pushNotifications",
            is_on(card.capabilities.push_notifications),
        )
        .with("stateTransitionHistory", false);
    object.set("capabilities", capabilities);
    if let Some(authentication) = write_authentication(card) {
        object.set("authentication", authentication);
    }
    let skill = |skill: &AgentSkill| {
        AgentSkill {
            security_requirements: Vec::new(),
            ..skill.clone()
        }
        .to_raw()
    };
    object.set("skills", card.skills.iter().map(skill).collect::<Vec<_>>());
    object
}

/// Returns the member `authentication` of a 0.1 card. It can express only security schemes that use
/// the `Authorization` header; `None` if the card has none of these.
fn write_authentication(card: &AgentCard) -> Option<RawObject> {
    let name = |scheme: &SecurityScheme| match scheme {
        SecurityScheme::HttpAuth(scheme) => Some(scheme.scheme.clone()),
        SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_) => Some("Bearer".to_owned()),
        SecurityScheme::ApiKey(_) | SecurityScheme::MutualTls(_) => None,
    };
    let mut schemes: Vec<String> = card.security_schemes.values().filter_map(name).collect();
    schemes.dedup();
    (!schemes.is_empty()).then(|| RawObject::single("schemes", schemes))
}

/// Adds security schemes to a card from the member `authentication` of 0.1, unless the card has
/// security schemes already.
fn read_authentication(members: &ObjectReader<'_>, card: &mut AgentCard) -> Result<(), ReadError> {
    let Some(raw) = members
        .find("authentication", &[])?
        .filter(|_| card.security_schemes.is_empty())
    else {
        return Ok(());
    };
    let schemes: Vec<String> = RawMembers::parse(raw)
        .ok()
        .and_then(|all| all.read("schemes"))
        .unwrap_or_default();
    for scheme in schemes {
        let name = scheme.to_ascii_lowercase();
        let schemes = BTreeMap::from([(name.clone(), StringList::default())]);
        card.security_requirements
            .push(SecurityRequirement { schemes });
        let scheme = HTTPAuthSecurityScheme {
            scheme,
            ..Default::default()
        };
        card.security_schemes
            .insert(name, SecurityScheme::HttpAuth(scheme));
    }
    Ok(())
}

/// Name of the card member that [`write_hybrid`] merges entry by entry instead of taking it from
/// one version.
const MERGED_MEMBER: &str = "securitySchemes";

/// Returns the JSON of the card in 1.0, extended by the members that only 0.3 and 0.1 have. If a
/// member occurs in several versions, the value of 1.0 is used.
pub(super) fn write_hybrid(card: &AgentCard) -> Box<RawValue> {
    let mut all = RawObject::parse(&card.to_raw()).unwrap_or_default();
    for older in [Dialect::V03, Dialect::V01] {
        let older = RawObject::parse(&older.write_card(card)).unwrap_or_default();
        for (name, value) in older.iter() {
            match all.object(name) {
                None if !all.has(name) => all.set_raw(name, value.to_owned()),
                Some(own) if name == MERGED_MEMBER => all.set(name, merge_each(own, value)),
                _ => {}
            }
        }
    }
    all.to_raw()
}

/// Merges two objects of objects: each entry of `own` gets the members that it lacks from the entry
/// of the same name in `older`, except `description`.
fn merge_each(mut own: RawObject, older: &RawValue) -> RawObject {
    let Ok(older) = RawObject::parse(older) else {
        return own;
    };
    for (name, value) in older.iter() {
        let (Some(mut both), Ok(value)) = (own.object(name), RawObject::parse(value)) else {
            continue;
        };
        for (member, value) in value.iter().filter(|(member, _)| *member != "description") {
            if !both.has(member) {
                both.set_raw(member, value.to_owned());
            }
        }
        own.set(name, both);
    }
    own
}
