//! Resolution of a URL to an agent card.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use callboard_message::RawObject;
use callboard_rpc::http1::ClientResponse;
use callboard_rpc::{DecodeLimits, check_json};
use reqwest::Method;
use reqwest::header::{
    ACCEPT, CACHE_CONTROL, ETAG, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH,
};
use serde_json::value::RawValue;
use tokio::time::Instant;
use url::Url;

use super::connection::{HttpClient, RequestCredentials, is_json, with_timeout};
use super::error::A2aClientError;
use super::interface_selection::{INTERFACES_MAX, interface_url, is_at_or_below};
use super::options::{
    CARD_BYTES_MAX, CARD_CACHE_AGE, CONTROL_REQUEST_TIMEOUT, CardTrust, RemoteAuth, RemoteOptions,
};
use crate::Dialect;
use crate::card::{CardSigner, verify_card_with_jku};
use crate::wire::{AgentCapabilities, AgentCard, WireType};

/// Maximum number of URLs at which a card is searched.
/// At the limit: the others are skipped.
const CARD_LOCATIONS_MAX: usize = 8;
/// Number of URLs at the beginning of [`card_locations`] that are below the agent's own address.
/// The others are below its parents.
const OWN_LOCATIONS: usize = 2;
/// Maximum length of an agent's name in an error, in characters.
const ERROR_NAME_CHARS_MAX: usize = 128;
const CARD_PATH: &str = ".well-known/agent-card.json";
/// Path of cards in 0.1 and 0.2.
const LEGACY_CARD_PATH: &str = ".well-known/agent.json";

/// An agent card with its origin.
#[derive(Debug, Clone)]
pub struct ResolvedCard {
    /// The card, converted to 1.0.
    pub card: Arc<AgentCard>,
    /// Those members of the card that a signature covers, which are the members of 1.0 only.
    pub signed_view: Arc<AgentCard>,
    /// The verified signature; `None` unless only signed cards are trusted.
    pub signed_by: Option<CardSigner>,
    /// URL where the card was found.
    pub url: Url,
}

/// A cached card with its expiry.
#[derive(Clone)]
pub(super) struct CachedCard {
    pub(super) resolved: ResolvedCard,
    /// Whether the card was found above the agent's address. Such a card may also list interfaces
    /// of other agents.
    pub(super) is_from_parent_path: bool,
    etag: Option<HeaderValue>,
    pub(super) expires_at: Instant,
}

/// Returns the URLs where a card is searched, in order. If the URL ends with `.json`, it is the
/// only one. Otherwise these are the well-known paths below the URL and below each of its parents.
fn card_locations(url: &Url) -> Vec<Url> {
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
    let mut found = vec![at(path, CARD_PATH), at(path, LEGACY_CARD_PATH)];
    let mut base = path;
    while let Some((parent, _)) = base.rsplit_once('/') {
        found.push(at(parent, CARD_PATH));
        base = parent;
    }
    found.push(at("", LEGACY_CARD_PATH));
    let mut seen = HashSet::new();
    found.retain(|place| seen.insert(place.clone()));
    // Of the remaining candidates the root's is the likeliest, so it stays.
    while found.len() > CARD_LOCATIONS_MAX {
        found.remove(CARD_LOCATIONS_MAX - 3);
    }
    found
}

/// Fetches the card of the agent at `url`. `before` is the card that was found earlier; the server
/// may confirm that it is unchanged.
///
/// The search continues at the next URL of [`card_locations`] only after HTTP status 404. If a card
/// was found before, only URLs in the same directory are tried, its own first. A card that was
/// found above `url` must have an interface at `url` or below; otherwise the error is
/// [`A2aClientError::OtherAgent`].
pub(super) async fn resolve_card(
    url: &Url,
    before: Option<&CachedCard>,
    http_client: &HttpClient,
    credentials: &RequestCredentials,
    options: &RemoteOptions,
) -> Result<CachedCard, A2aClientError> {
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
        let found = ResolvedCard {
            signed_view: card.clone(),
            card,
            signed_by: None,
            url: url.clone(),
        };
        return Ok(CachedCard {
            resolved: found,
            is_from_parent_path: false,
            etag: None,
            expires_at: Instant::now() + CARD_CACHE_AGE.1,
        });
    }
    let all = card_locations(url);
    let found_at = before.map(|kept| &kept.resolved.url);
    // A card once found is searched only where it was, never above that.
    let mut looked_at: Vec<(usize, &Url)> = all.iter().enumerate().collect();
    looked_at.retain(|(_, place)| found_at.is_none_or(|known| is_same_directory(place, known)));
    looked_at.sort_by_key(|(_, place)| found_at.is_some_and(|known| known != *place));
    for (nth, place) in looked_at {
        let before = before.filter(|kept| kept.resolved.url == *place);
        let Some(kept) = with_timeout(
            CONTROL_REQUEST_TIMEOUT,
            fetch_card(place, before, http_client, credentials, options),
        )
        .await?
        else {
            continue;
        };
        let is_above = nth >= OWN_LOCATIONS;
        return match is_above && !covers_address(&kept.resolved, url) {
            true => Err(other_agent_error(&kept.resolved, url)),
            false => Ok(CachedCard {
                is_from_parent_path: is_above,
                ..kept
            }),
        };
    }
    Err(found_at.map_or(A2aClientError::CardNotFound, |known| {
        A2aClientError::CardStatus {
            status: 404,
            url: redact_url(known),
        }
    }))
}

/// Returns whether two URLs have the same directory.
fn is_same_directory(one: &Url, other: &Url) -> bool {
    let directory = |url: &Url| {
        url.path()
            .rsplit_once('/')
            .map(|(directory, _)| directory.to_owned())
    };
    directory(one) == directory(other)
}

/// Returns whether a card that was found above `address` belongs to the agent at `address`: one of
/// the card's interfaces is at `address` or below it.
fn covers_address(found: &ResolvedCard, address: &Url) -> bool {
    let interfaces = found.card.supported_interfaces.iter().take(INTERFACES_MAX);
    interfaces
        .filter_map(|interface| interface_url(interface, &found.url))
        .any(|url| is_at_or_below(&url, address))
}

fn other_agent_error(found: &ResolvedCard, address: &Url) -> A2aClientError {
    let at = found
        .card
        .supported_interfaces
        .first()
        .and_then(|interface| interface_url(interface, &found.url));
    A2aClientError::OtherAgent {
        asked: redact_url(address),
        card: redact_url(&found.url),
        name: found.card.name.chars().take(ERROR_NAME_CHARS_MAX).collect(),
        at: at
            .as_ref()
            .map_or_else(|| "no known address".into(), redact_url),
    }
}

/// Returns a URL for error messages, without query and fragment, because a query may contain a key.
fn redact_url(url: &Url) -> Box<str> {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    url.as_str().into()
}

/// Fetches the card at the URL `place`; `None` if the server responds with HTTP status 404.
async fn fetch_card(
    place: &Url,
    before: Option<&CachedCard>,
    http_client: &HttpClient,
    credentials: &RequestCredentials,
    options: &RemoteOptions,
) -> Result<Option<CachedCard>, A2aClientError> {
    // If only the card names the token endpoint, there can't be a token yet.
    let is_known = !matches!(
        options.auth,
        RemoteAuth::ClientCredentials {
            token_url: None,
            ..
        }
    );
    let mut headers = if is_known {
        credentials.auth_headers(None, http_client).await?
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
    let response = http_client
        .send(place, true, Method::GET, headers, Bytes::new())
        .await?;
    let until = Instant::now() + cache_lifetime(response.headers());
    match (response.status().as_u16(), before) {
        (304, Some(kept)) => {
            return Ok(Some(CachedCard {
                expires_at: until,
                ..kept.clone()
            }));
        }
        (200, _) if is_json(&response) => {}
        (200, _) => {
            let (kind, url) = (response.media_type(), redact_url(place));
            return Err(A2aClientError::Protocol(format!(
                "the agent card is invalid: {url} answered with {kind:?}, not JSON"
            )));
        }
        (404, _) => return Ok(None),
        (status, _) => {
            return Err(A2aClientError::CardStatus {
                status,
                url: redact_url(place),
            });
        }
    }
    let etag = response.headers().get(ETAG).cloned();
    let raw = read_card_body(response).await?;
    let found = read_trusted_card(&raw, place, options).await?;
    Ok(Some(CachedCard {
        resolved: found,
        is_from_parent_path: false,
        etag,
        expires_at: until,
    }))
}

/// Parses a card that was found at `place`, and checks that the options trust it.
async fn read_trusted_card(
    raw: &RawValue,
    place: &Url,
    options: &RemoteOptions,
) -> Result<ResolvedCard, A2aClientError> {
    let wrong = |what: &str| A2aClientError::Protocol(format!("the agent card is invalid: {what}"));
    let card = Dialect::read_card(raw).map_err(|error| wrong(&error.message))?;
    let as_signed = AgentCard::from_raw(raw).unwrap_or_else(|_| card.clone());
    let signed_by = verify_signer(&as_signed, options).await?;
    // A signature doesn't cover the members of older versions.
    let card = if signed_by.is_some() {
        as_signed.clone()
    } else {
        card
    };
    Ok(ResolvedCard {
        card: Arc::new(card),
        signed_view: Arc::new(as_signed),
        signed_by,
        url: place.clone(),
    })
}

/// Checks that the options trust a card that contains 1.0 members only, and returns the card.
pub(super) async fn check_card_trust(
    card: AgentCard,
    options: &RemoteOptions,
) -> Result<AgentCard, A2aClientError> {
    verify_signer(&card, options).await.map(|_| card)
}

/// Verifies the signature of a card and returns its signer. `None`, without a check, if the options
/// trust unsigned cards.
async fn verify_signer(
    card: &AgentCard,
    options: &RemoteOptions,
) -> Result<Option<CardSigner>, A2aClientError> {
    match &options.card_trust {
        CardTrust::Any => Ok(None),
        CardTrust::Signed { keys, jku_hosts } => Ok(Some(
            verify_card_with_jku(card, keys, jku_hosts, &options.egress).await?,
        )),
    }
}

async fn read_card_body(response: ClientResponse) -> Result<Box<RawValue>, A2aClientError> {
    let body = response.body(CARD_BYTES_MAX).await?;
    let limits = DecodeLimits {
        body_bytes_max: CARD_BYTES_MAX,
        ..DecodeLimits::default()
    };
    let wrong = || {
        A2aClientError::Protocol(format!(
            "the agent card is no JSON object, or is over {CARD_BYTES_MAX} bytes or nested too deeply"
        ))
    };
    let text = check_json(&body, &limits).map_err(|_| wrong())?;
    let card: RawObject = serde_json::from_str(text).map_err(|_| wrong())?;
    Ok(card.to_raw())
}

/// Returns the time for which a response may be cached: its `max-age` within [`CARD_CACHE_AGE`].
fn cache_lifetime(headers: &HeaderMap) -> Duration {
    let said = headers
        .get(CACHE_CONTROL)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let max_age = said
        .split(',')
        .find_map(|part| part.trim().strip_prefix("max-age=")?.parse().ok());
    max_age
        .map_or(CARD_CACHE_AGE.0, Duration::from_secs)
        .clamp(CARD_CACHE_AGE.0, CARD_CACHE_AGE.1)
}

#[cfg(test)]
pub(super) mod tests;
