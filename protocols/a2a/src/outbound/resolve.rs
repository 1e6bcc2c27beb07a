//! From a URL to an agent's card.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use callboard_message::RawObject;
use callboard_rpc::http1::Response;
use callboard_rpc::{Limits, check};
use reqwest::Method;
use reqwest::header::{ACCEPT, CACHE_CONTROL, ETAG, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH};
use serde_json::value::RawValue;
use tokio::time::Instant;
use url::Url;

use super::auth::{Auth, Badge};
use super::connection::{Door, is_json, within};
use super::error::PeerError;
use super::options::{ASIDE_TIMEOUT, CARD_AGE, CARD_BYTES_MAX, CardTrust, RemoteOptions};
use crate::Dialect;
use crate::card::{SignedBy, verify_with};
use crate::wire::{AgentCapabilities, AgentCard, Wire};

/// Most places where a card is looked for.
const PLACES_MAX: usize = 8;
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
    let mut seen = Vec::new();
    found.retain(|place| {
        !seen.contains(place) && {
            seen.push(place.clone());
            true
        }
    });
    // The root's is the likeliest of those that are left.
    while found.len() > PLACES_MAX {
        found.remove(PLACES_MAX - 3);
    }
    found
}

/// Looks for the card of the agent at `url`. `before`: what was found earlier, and may still be so.
pub(super) async fn find(
    url: &Url,
    before: Option<&Kept>,
    door: &Door,
    badge: &Badge,
    options: &RemoteOptions,
) -> Result<Kept, PeerError> {
    if let Some(interface) = &options.interface {
        let capabilities = AgentCapabilities { streaming: Some(true), ..AgentCapabilities::default() };
        let card = AgentCard { supported_interfaces: vec![interface.clone()], capabilities, ..AgentCard::default() };
        let card = Arc::new(card);
        let found = FoundCard { as_signed: card.clone(), card, signed_by: None, url: url.clone() };
        return Ok(Kept { found, etag: None, until: Instant::now() + CARD_AGE.1 });
    }
    let known = before.map(|kept| kept.found.url.clone());
    let elsewhere = places(url).into_iter().filter(|place| Some(place) != known.as_ref());
    let mut why = PeerError::NoCard;
    for place in known.iter().cloned().chain(elsewhere) {
        let before = before.filter(|kept| kept.found.url == place);
        match within(ASIDE_TIMEOUT, look(&place, before, door, badge, options)).await {
            Ok(kept) => return Ok(kept),
            Err(error @ (PeerError::Unreachable | PeerError::TimedOut(_) | PeerError::Untrusted(_))) => {
                return Err(error);
            }
            Err(PeerError::NoCard) => {}
            Err(error) => why = error,
        }
    }
    Err(why)
}

async fn look(
    place: &Url,
    before: Option<&Kept>,
    door: &Door,
    badge: &Badge,
    options: &RemoteOptions,
) -> Result<Kept, PeerError> {
    // Where tokens are to be had, only the card may say.
    let is_known = !matches!(options.auth, Auth::ClientCredentials { token_url: None, .. });
    let mut headers = if is_known { badge.headers(None, door).await? } else { options.headers.clone() };
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(HeaderName::from_static("a2a-version"), HeaderValue::from_static("1.0"));
    if let Some(etag) = before.and_then(|kept| kept.etag.clone()) {
        headers.insert(IF_NONE_MATCH, etag);
    }
    let response = door.send(place, true, Method::GET, headers, Bytes::new()).await?;
    let until = Instant::now() + age(response.headers());
    match (response.status().as_u16(), before) {
        (304, Some(kept)) => return Ok(Kept { until, ..kept.clone() }),
        (200, _) if is_json(&response) => {}
        (status @ (401 | 403 | 429 | 500..), _) => return Err(PeerError::Status(status)),
        _ => return Err(PeerError::NoCard),
    }
    let etag = response.headers().get(ETAG).cloned();
    let raw = body(response).await?;
    let found = believed(&raw, place, options).await?;
    Ok(Kept { found, etag, until })
}

/// What a card says, if it is to be believed.
async fn believed(raw: &RawValue, place: &Url, options: &RemoteOptions) -> Result<FoundCard, PeerError> {
    let wrong = |what: &str| PeerError::Protocol(format!("the agent's card is none: {what}"));
    let card = Dialect::read_card(raw).map_err(|error| wrong(&error.message))?;
    let as_signed = AgentCard::from_raw(raw).unwrap_or_else(|_| card.clone());
    let signed_by = signer(&as_signed, options).await?;
    // What older versions say beside 1.0 isn't covered by a signature.
    let card = if signed_by.is_some() { as_signed.clone() } else { card };
    Ok(FoundCard { card: Arc::new(card), as_signed: Arc::new(as_signed), signed_by, url: place.clone() })
}

/// A 1.0 card, if it is to be believed.
pub(super) async fn believe(card: AgentCard, options: &RemoteOptions) -> Result<AgentCard, PeerError> {
    signer(&card, options).await.map(|_| card)
}

/// Who signed a card; `None` where that needn't be known.
async fn signer(card: &AgentCard, options: &RemoteOptions) -> Result<Option<SignedBy>, PeerError> {
    match &options.trust {
        CardTrust::Any => Ok(None),
        CardTrust::Signed { keys, jku_hosts } => Ok(Some(verify_with(card, keys, jku_hosts, &options.egress).await?)),
    }
}

async fn body(response: Response) -> Result<Box<RawValue>, PeerError> {
    let body = response.body(CARD_BYTES_MAX).await?;
    let limits = Limits { body_bytes_max: CARD_BYTES_MAX, ..Limits::default() };
    let wrong = || PeerError::Protocol("the agent's card is no JSON object within the limits".into());
    let text = check(&body, &limits).map_err(|_| wrong())?;
    let card: RawObject = serde_json::from_str(text).map_err(|_| wrong())?;
    Ok(card.to_raw())
}

/// For how long a card may be used unseen.
fn age(headers: &HeaderMap) -> Duration {
    let said = headers.get(CACHE_CONTROL).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let max_age = said.split(',').find_map(|part| part.trim().strip_prefix("max-age=")?.parse().ok());
    max_age.map_or(CARD_AGE.0, Duration::from_secs).clamp(CARD_AGE.0, CARD_AGE.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looked_for(url: &str) -> Vec<String> {
        places(&url.parse().unwrap()).into_iter().map(|place| place.path().to_owned()).collect()
    }

    /// Goal: a card is found under its agent's URL, beside it, or at the root, in that order. Method: rows; a URL with more
    /// parents than are looked under.
    #[test]
    fn cards_are_looked_for() {
        assert_eq!(looked_for("https://a.example/card.json?x=1"), ["/card.json"]);
        assert_eq!(looked_for("https://a.example"), ["/.well-known/agent-card.json", "/.well-known/agent.json"]);
        assert_eq!(
            looked_for("https://a.example/agents/x/a2a/?q"),
            [
                "/agents/x/a2a/.well-known/agent-card.json",
                "/agents/x/a2a/.well-known/agent.json",
                "/agents/x/.well-known/agent-card.json",
                "/agents/.well-known/agent-card.json",
                "/.well-known/agent-card.json",
                "/.well-known/agent.json",
            ]
        );
        let deep = looked_for("https://a.example/1/2/3/4/5/6/7/8/9");
        assert_eq!(deep.len(), PLACES_MAX);
        assert_eq!(deep.last().unwrap(), "/.well-known/agent.json");
        assert!(deep.contains(&"/.well-known/agent-card.json".to_owned()));
    }

    /// Goal: a card is used for as long as its server says, within bounds. Method: at the bounds and past them.
    #[test]
    fn ages_are_bounded() {
        for (said, seconds) in [
            ("max-age=59", 60),
            ("public, max-age=61", 61),
            ("max-age=3600", 3600),
            ("max-age=3601", 3600),
            ("no-store", 60),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CACHE_CONTROL, said.parse().unwrap());
            assert_eq!(age(&headers), Duration::from_secs(seconds), "{said}");
        }
    }
}
