//! From a URL to an agent's card.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use callboard_message::RawObject;
use callboard_rpc::http1::Response;
use callboard_rpc::{Limits, check};
use reqwest::Method;
use reqwest::header::{
    ACCEPT, CACHE_CONTROL, ETAG, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH,
};
use serde_json::value::RawValue;
use tokio::time::Instant;
use url::Url;

use super::choose::{INTERFACES_MAX, interface_url, is_at_or_below};
use super::connection::{Badge, Door, is_json, within};
use super::error::PeerError;
use super::options::{ASIDE_TIMEOUT, Auth, CARD_AGE, CARD_BYTES_MAX, CardTrust, RemoteOptions};
use crate::Dialect;
use crate::card::{SignedBy, verify_with};
use crate::wire::{AgentCapabilities, AgentCard, Wire};

/// Most places where a card is looked for.
/// At the limit: it isn't found.
const PLACES_MAX: usize = 8;
/// The first of them are the addressed agent's own; the others are above it.
const OWN_PLACES: usize = 2;
/// Longest name of an agent in an error, in characters.
const NAME_CHARS_MAX: usize = 128;
const CARD: &str = ".well-known/agent-card.json";
/// Of 0.1 and 0.2.
const OLD_CARD: &str = ".well-known/agent.json";

/// A card, as an agent's server gave it.
#[derive(Debug, Clone)]
pub struct FoundCard {
    /// What it says, whatever its version.
    pub card: Arc<AgentCard>,
    /// What a signature covers of it: what 1.0 knows.
    pub as_signed: Arc<AgentCard>,
    /// Who signed it, where only signed cards are believed.
    pub signed_by: Option<SignedBy>,
    /// Where it was.
    pub url: Url,
}

/// A card and until when it needn't be looked at again.
#[derive(Clone)]
pub(super) struct Kept {
    pub(super) found: FoundCard,
    /// It was found above the agent's address, where it may have interfaces of other agents too.
    pub(super) is_above: bool,
    etag: Option<HeaderValue>,
    pub(super) until: Instant,
}

/// Where a card may be, in the order of the search: the URL itself if it is one of JSON, else under it and under each of
/// its parents up to the root.
fn places(url: &Url) -> Vec<Url> {
    if url.path().ends_with(".json") {
        return vec![url.clone()];
    }
    let at = |base: &str, name: &str| {
        let mut place = url.clone();
        place.set_query(None);
        place.set_fragment(None);
        place.set_path(&format!("{}/{name}", base.trim_end_matches('/')));
        place
    };
    let path = url.path().trim_end_matches('/');
    let mut found = vec![at(path, CARD), at(path, OLD_CARD)];
    let mut base = path;
    while let Some((parent, _)) = base.rsplit_once('/') {
        found.push(at(parent, CARD));
        base = parent;
    }
    found.push(at("", OLD_CARD));
    let mut seen = HashSet::new();
    found.retain(|place| seen.insert(place.clone()));
    // The root's is the likeliest of those that are left.
    while found.len() > PLACES_MAX {
        found.remove(PLACES_MAX - 3);
    }
    found
}

/// Looks for the card of the agent at `url`. `before`: what was found earlier, and may still be so.
///
/// Only HTTP status 404 makes it look elsewhere: first for the name of older versions, then, unless a card was found before,
/// above `url`, where only a card of the agent at `url` counts.
pub(super) async fn find(
    url: &Url,
    before: Option<&Kept>,
    door: &Door,
    badge: &Badge,
    options: &RemoteOptions,
) -> Result<Kept, PeerError> {
    if let Some(interface) = &options.interface {
        let capabilities = AgentCapabilities {
            streaming: Some(true),
            ..AgentCapabilities::default()
        };
        let card = AgentCard {
            supported_interfaces: vec![interface.clone()],
            capabilities,
            ..AgentCard::default()
        };
        let card = Arc::new(card);
        let found = FoundCard {
            as_signed: card.clone(),
            card,
            signed_by: None,
            url: url.clone(),
        };
        return Ok(Kept {
            found,
            is_above: false,
            etag: None,
            until: Instant::now() + CARD_AGE.1,
        });
    }
    let all = places(url);
    let found_at = before.map(|kept| &kept.found.url);
    // A card that was found once is looked for where it was, and never above that place.
    let mut looked_at: Vec<(usize, &Url)> = all.iter().enumerate().collect();
    looked_at.retain(|(_, place)| found_at.is_none_or(|known| is_beside(place, known)));
    looked_at.sort_by_key(|(_, place)| found_at.is_some_and(|known| known != *place));
    for (nth, place) in looked_at {
        let before = before.filter(|kept| kept.found.url == *place);
        let Some(kept) = within(ASIDE_TIMEOUT, look(place, before, door, badge, options)).await?
        else {
            continue;
        };
        let is_above = nth >= OWN_PLACES;
        return match is_above && !is_card_of(&kept.found, url) {
            true => Err(other_agent(&kept.found, url)),
            false => Ok(Kept { is_above, ..kept }),
        };
    }
    Err(
        found_at.map_or(PeerError::NoCard, |known| PeerError::CardStatus {
            status: 404,
            url: shown(known),
        }),
    )
}

/// Whether two places are in the same directory.
fn is_beside(one: &Url, other: &Url) -> bool {
    let directory = |url: &Url| {
        url.path()
            .rsplit_once('/')
            .map(|(directory, _)| directory.to_owned())
    };
    directory(one) == directory(other)
}

/// Whether a card that was found above `address` is that of the agent at `address`: one of its interfaces is there or below.
fn is_card_of(found: &FoundCard, address: &Url) -> bool {
    let interfaces = found.card.supported_interfaces.iter().take(INTERFACES_MAX);
    interfaces
        .filter_map(|interface| interface_url(interface, &found.url))
        .any(|url| is_at_or_below(&url, address))
}

fn other_agent(found: &FoundCard, address: &Url) -> PeerError {
    let at = found
        .card
        .supported_interfaces
        .first()
        .and_then(|interface| interface_url(interface, &found.url));
    PeerError::OtherAgent {
        asked: shown(address),
        card: shown(&found.url),
        name: found.card.name.chars().take(NAME_CHARS_MAX).collect(),
        at: at.as_ref().map_or_else(|| "no known address".into(), shown),
    }
}

/// A URL as errors show it: a query may hold a key.
fn shown(url: &Url) -> Box<str> {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    url.as_str().into()
}

/// Fetches the card at `place`; `None` where nothing is there (HTTP status 404).
async fn look(
    place: &Url,
    before: Option<&Kept>,
    door: &Door,
    badge: &Badge,
    options: &RemoteOptions,
) -> Result<Option<Kept>, PeerError> {
    // Where tokens are to be had, only the card may say.
    let is_known = !matches!(
        options.auth,
        Auth::ClientCredentials {
            token_url: None,
            ..
        }
    );
    let mut headers = if is_known {
        badge.headers(None, door).await?
    } else {
        options.headers.clone()
    };
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(
        HeaderName::from_static("a2a-version"),
        HeaderValue::from_static("1.0"),
    );
    if let Some(etag) = before.and_then(|kept| kept.etag.clone()) {
        headers.insert(IF_NONE_MATCH, etag);
    }
    let response = door
        .send(place, true, Method::GET, headers, Bytes::new())
        .await?;
    let until = Instant::now() + age(response.headers());
    match (response.status().as_u16(), before) {
        (304, Some(kept)) => {
            return Ok(Some(Kept {
                until,
                ..kept.clone()
            }));
        }
        (200, _) if is_json(&response) => {}
        (200, _) => {
            let (kind, url) = (response.media_type(), shown(place));
            return Err(PeerError::Protocol(format!(
                "the agent's card is none: {url} answered with {kind:?}, not JSON"
            )));
        }
        (404, _) => return Ok(None),
        (status, _) => {
            return Err(PeerError::CardStatus {
                status,
                url: shown(place),
            });
        }
    }
    let etag = response.headers().get(ETAG).cloned();
    let raw = body(response).await?;
    let found = believed(&raw, place, options).await?;
    Ok(Some(Kept {
        found,
        is_above: false,
        etag,
        until,
    }))
}

/// What a card says, if it is to be believed.
async fn believed(
    raw: &RawValue,
    place: &Url,
    options: &RemoteOptions,
) -> Result<FoundCard, PeerError> {
    let wrong = |what: &str| PeerError::Protocol(format!("the agent's card is none: {what}"));
    let card = Dialect::read_card(raw).map_err(|error| wrong(&error.message))?;
    let as_signed = AgentCard::from_raw(raw).unwrap_or_else(|_| card.clone());
    let signed_by = signer(&as_signed, options).await?;
    // What older versions say beside 1.0 isn't covered by a signature.
    let card = if signed_by.is_some() {
        as_signed.clone()
    } else {
        card
    };
    Ok(FoundCard {
        card: Arc::new(card),
        as_signed: Arc::new(as_signed),
        signed_by,
        url: place.clone(),
    })
}

/// A 1.0 card, if it is to be believed.
pub(super) async fn believe(
    card: AgentCard,
    options: &RemoteOptions,
) -> Result<AgentCard, PeerError> {
    signer(&card, options).await.map(|_| card)
}

/// Who signed a card; `None` where that needn't be known.
async fn signer(card: &AgentCard, options: &RemoteOptions) -> Result<Option<SignedBy>, PeerError> {
    match &options.trust {
        CardTrust::Any => Ok(None),
        CardTrust::Signed { keys, jku_hosts } => Ok(Some(
            verify_with(card, keys, jku_hosts, &options.egress).await?,
        )),
    }
}

async fn body(response: Response) -> Result<Box<RawValue>, PeerError> {
    let body = response.body(CARD_BYTES_MAX).await?;
    let limits = Limits {
        body_bytes_max: CARD_BYTES_MAX,
        ..Limits::default()
    };
    let wrong =
        || PeerError::Protocol("the agent's card is no JSON object within the limits".into());
    let text = check(&body, &limits).map_err(|_| wrong())?;
    let card: RawObject = serde_json::from_str(text).map_err(|_| wrong())?;
    Ok(card.to_raw())
}

/// For how long a card may be used unseen.
fn age(headers: &HeaderMap) -> Duration {
    let said = headers
        .get(CACHE_CONTROL)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let max_age = said
        .split(',')
        .find_map(|part| part.trim().strip_prefix("max-age=")?.parse().ok());
    max_age
        .map_or(CARD_AGE.0, Duration::from_secs)
        .clamp(CARD_AGE.0, CARD_AGE.1)
}

#[cfg(test)]
pub(super) mod tests;
