use std::collections::BTreeMap;

use callboard_message::{RawMembers, RawObject};

use crate::v03::{common, main_interface};
use crate::wire::*;

/// The card in 0.1's words.
pub(crate) fn write_card(card: &AgentCard) -> RawObject {
    let mut object = RawObject::new();
    common(card, &mut object);
    let main = main_interface(card, "0.1").or_else(|| main_interface(card, "0.3"));
    if let Some(main) = main.or_else(|| card.supported_interfaces.first()) {
        object.set("url", &main.url);
    }
    let is_on = |capability: Option<bool>| capability == Some(true);
    let capabilities = RawObject::new()
        .with("streaming", is_on(card.capabilities.streaming))
        .with("pushNotifications", is_on(card.capabilities.push_notifications))
        .with("stateTransitionHistory", false);
    object.set("capabilities", capabilities);
    if let Some(authentication) = authentication(card) {
        object.set("authentication", authentication);
    }
    let skill = |skill: &AgentSkill| AgentSkill { security_requirements: Vec::new(), ..skill.clone() }.to_raw();
    object.set("skills", card.skills.iter().map(skill).collect::<Vec<_>>());
    object
}

/// Schemes of the `Authorization` header are all that 0.1 has words for; `None` where there are none.
pub(crate) fn authentication(card: &AgentCard) -> Option<RawObject> {
    let name = |scheme: &SecurityScheme| match scheme {
        SecurityScheme::HttpAuth(scheme) => Some(scheme.scheme.clone()),
        SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_) => Some("Bearer".to_owned()),
        SecurityScheme::ApiKey(_) | SecurityScheme::MutualTls(_) => None,
    };
    let mut schemes: Vec<String> = card.security_schemes.values().filter_map(name).collect();
    schemes.dedup();
    (!schemes.is_empty()).then(|| RawObject::new().with("schemes", schemes))
}

/// Schemes of 0.1, where the card names no others.
pub(crate) fn read_authentication(members: &Members<'_>, card: &mut AgentCard) -> Result<(), ReadError> {
    let Some(raw) = members.find("authentication", &[])?.filter(|_| card.security_schemes.is_empty()) else {
        return Ok(());
    };
    let schemes: Vec<String> = RawMembers::parse(raw).ok().and_then(|all| all.read("schemes")).unwrap_or_default();
    for scheme in schemes {
        let name = scheme.to_ascii_lowercase();
        let schemes = BTreeMap::from([(name.clone(), StringList::default())]);
        card.security_requirements.push(SecurityRequirement { schemes });
        let scheme = HTTPAuthSecurityScheme { scheme, ..Default::default() };
        card.security_schemes.insert(name, SecurityScheme::HttpAuth(scheme));
    }
    Ok(())
}
