//! Addresses as people write them, and ids as they may be.

use callboard_message::Failure;
use url::{Host, Url};

use crate::text::{fold, words};

/// Longest id of an agent, in bytes.
pub const AGENT_ID_BYTES_MAX: usize = 64;
/// Longest address, in bytes.
pub const ADDRESS_BYTES_MAX: usize = 2_048;
/// Where a card is, behind an agent's address: the address with it and the one without are one.
const CARDS: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];
/// The id of an agent whose name has nothing that an id may have.
const NAMELESS: &str = "agent";

/// An address in any form that people write: `localhost:8080`, a URL, a card's URL.
///
/// # Errors
/// `InvalidInput` where it is none.
pub(super) fn address(written: &str) -> Result<Url, Failure> {
    let none =
        || Failure::invalid("not an address: write HOST:PORT or an http or https URL, without user and password");
    let written = written.trim();
    if written.is_empty() || written.len() > ADDRESS_BYTES_MAX || written.contains(char::is_whitespace) {
        return Err(none());
    }
    let whole = if written.contains("://") { written.to_owned() } else { format!("http://{written}") };
    let mut url = Url::parse(&whole).map_err(|_| none())?;
    let is_plain = matches!(url.scheme(), "http" | "https") && url.username().is_empty() && url.password().is_none();
    if !is_plain || !url.has_host() {
        return Err(none());
    }
    url.set_fragment(None);
    Ok(url)
}

/// What two addresses of one agent have in common: this machine's names are one, and a card is where its agent is.
pub(super) fn place(url: &Url) -> String {
    let host = match url.host() {
        _ if is_here(url) => "localhost".to_owned(),
        Some(host) => host.to_string(),
        None => String::new(),
    };
    let path = CARDS.iter().find_map(|card| url.path().strip_suffix(card)).unwrap_or(url.path());
    let (scheme, port) = (url.scheme(), url.port_or_known_default().unwrap_or_default());
    format!("{scheme}://{host}:{port}{}", path.trim_end_matches('/'))
}

/// Whether it is on this machine.
pub(super) fn is_here(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.to_canonical().is_loopback(),
        Some(Host::Domain(name)) => name.trim_end_matches('.').rsplit('.').next() == Some("localhost"),
        None => false,
    }
}

/// An agent's id made of its name: `Agent Two` is `agent-two`.
pub(super) fn slug(name: &str) -> String {
    let folded = fold(name);
    let ascii = words(&folded).filter(|word| word.is_ascii());
    let mut slug = ascii.collect::<Vec<_>>().join("-");
    slug.truncate(AGENT_ID_BYTES_MAX);
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() { NAMELESS.to_owned() } else { slug.to_owned() }
}

/// Whether a stranger may name an agent so.
pub(super) fn is_id(id: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    id.len() <= AGENT_ID_BYTES_MAX
        && id.bytes().all(fits)
        && id.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: what people write is an address, and nothing else is. Method: rows.
    #[test]
    fn addresses_are_read() {
        for (written, url) in [
            ("localhost:8080", "http://localhost:8080/"),
            (" 127.0.0.1:4201 ", "http://127.0.0.1:4201/"),
            ("agents.example", "http://agents.example/"),
            ("https://agents.example/a2a#x", "https://agents.example/a2a"),
        ] {
            assert_eq!(address(written).unwrap().as_str(), url);
        }
        for none in
            ["", "the dots for me", "ftp://a.example", "http://user@a.example", "http://", "http://a:99999", "::"]
        {
            assert!(address(none).is_err(), "{none:?}");
        }
        assert!(address(&"a".repeat(ADDRESS_BYTES_MAX)).is_ok());
        assert!(address(&"a".repeat(ADDRESS_BYTES_MAX + 1)).is_err());
    }

    /// Goal: an agent is known once, however its address is written. Method: spellings of one place, and others.
    #[test]
    fn one_place_has_many_spellings() {
        let of = |written: &str| place(&address(written).unwrap());
        for same in ["127.0.0.1:8080", "http://[::1]:8080/", "http://localhost:8080/.well-known/agent-card.json"] {
            assert_eq!(of(same), of("localhost:8080"), "{same}");
        }
        for other in ["localhost:8081", "https://localhost:8080", "localhost:8080/agents/x", "10.0.0.1:8080"] {
            assert_ne!(of(other), of("localhost:8080"), "{other}");
        }
        assert!(is_here(&address("http://a.localhost").unwrap()) && !is_here(&address("localhost.example").unwrap()));
    }

    /// Goal: names become ids. Method: rows, and one past the longest.
    #[test]
    fn names_become_ids() {
        for (name, id) in
            [("Agent Two", "agent-two"), ("Météo  (Paris)!", "meteo-paris"), ("天気", "agent"), ("", "agent")]
        {
            assert_eq!(slug(name), id);
            assert!(is_id(id));
        }
        assert_eq!(slug(&"a".repeat(AGENT_ID_BYTES_MAX + 1)).len(), AGENT_ID_BYTES_MAX);
        assert!(is_id(&"a".repeat(AGENT_ID_BYTES_MAX)) && !is_id(&"a".repeat(AGENT_ID_BYTES_MAX + 1)));
        for no in ["", "-a", ".", "a b", "a/b", "é"] {
            assert!(!is_id(no), "{no:?}");
        }
    }
}
