//! Which of an agent's interfaces is spoken to.

use url::{Host, Url};

use super::options::{Binding, RemoteOptions, Version, is_plain};
use crate::dialect::Dialect;
use crate::wire::{AgentCard, AgentInterface};

/// Most interfaces of a card that are looked at.
/// At the limit: the others aren't.
pub(super) const INTERFACES_MAX: usize = 32;

/// An interface that is spoken here.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Candidate {
    pub(super) version: Version,
    pub(super) binding: Binding,
    pub(super) url: Url,
    /// Goes with every request, where it isn't empty.
    pub(super) tenant: String,
    /// It is on the card's own origin, or one that the operator named.
    pub(super) is_trusted: bool,
}

impl Candidate {
    pub(super) fn dialect(&self) -> Dialect {
        match (self.version, self.binding) {
            (Version::V10, _) => Dialect::V10,
            (Version::V03, Binding::JsonRpc) => Dialect::V03,
            (Version::V03, Binding::HttpJson) => Dialect::V03Rest,
            (Version::V01, _) => Dialect::V01,
        }
    }
}

/// The interfaces of `card` that are spoken here, best first: the newest version, then the binding as `options` order
/// them, then as the card does. `base` is where the card was found.
pub(super) fn candidates(card: &AgentCard, base: &Url, options: &RemoteOptions) -> Vec<Candidate> {
    let spoken = card.supported_interfaces.iter().take(INTERFACES_MAX);
    let mut found: Vec<Candidate> = spoken
        .filter_map(|interface| candidate(interface, base, options))
        .collect();
    let rank = |binding: Binding| options.bindings.iter().position(|known| *known == binding);
    found.sort_by_key(|candidate| (candidate.version, rank(candidate.binding)));
    found
}

fn candidate(interface: &AgentInterface, base: &Url, options: &RemoteOptions) -> Option<Candidate> {
    let binding = match &*interface.protocol_binding.to_ascii_uppercase() {
        "JSONRPC" | "JSON-RPC" | "JSON_RPC" => Binding::JsonRpc,
        "HTTP+JSON" | "HTTP_JSON" | "HTTPJSON" | "REST" => Binding::HttpJson,
        _ => return None,
    };
    let version = version(&interface.protocol_version)?;
    let is_spoken = options.bindings.contains(&binding)
        && options.versions.contains(&version)
        // 0.1 has JSON-RPC only.
        && (version, binding) != (Version::V01, Binding::HttpJson);
    let url = interface_url(interface, base)?;
    if !is_spoken || !is_plain(&url) {
        return None;
    }
    let is_trusted = std::iter::once(base)
        .chain(&options.trusted_origins)
        .any(|known| is_same_place(known, &url));
    Some(Candidate {
        version,
        binding,
        url,
        tenant: interface.tenant.clone(),
        is_trusted,
    })
}

/// Where an interface is, of a card that was found at `base`.
pub(super) fn interface_url(interface: &AgentInterface, base: &Url) -> Option<Url> {
    let mut url = base.join(&interface.url).ok()?;
    // Where a server listens is no place to go: the card's own host is meant.
    if is_unspecified(&url) && url.set_host(base.host_str()).is_err() {
        return None;
    }
    Some(url)
}

fn is_unspecified(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_unspecified(),
        Some(Host::Ipv6(ip)) => ip.is_unspecified(),
        _ => false,
    }
}

/// Whether both are of one origin; the names of this machine are one.
pub(super) fn is_same_place(one: &Url, other: &Url) -> bool {
    let is_here = |url: &Url| match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    let place = |url: &Url| (url.scheme() == "https", url.port_or_known_default());
    one.origin() == other.origin() || is_here(one) && is_here(other) && place(one) == place(other)
}

/// Whether `url` is at `address` or below it, with the same query where `address` has one.
pub(super) fn is_at_or_below(url: &Url, address: &Url) -> bool {
    let below = url
        .path()
        .trim_end_matches('/')
        .strip_prefix(address.path().trim_end_matches('/'));
    is_same_place(url, address)
        && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        && (address.query().is_none() || url.query() == address.query())
}

/// A version by its name; what says none is of before there were any.
fn version(name: &str) -> Option<Version> {
    let mut parts = name.trim().trim_start_matches(['v', 'V']).split('.');
    match (parts.next().unwrap_or_default(), parts.next()) {
        ("1", _) => Some(Version::V10),
        ("0", Some("1")) => Some(Version::V01),
        ("0", Some("2" | "3")) | ("", None) => Some(Version::V03),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(binding: &str, version: &str, url: &str) -> AgentInterface {
        AgentInterface {
            url: url.into(),
            protocol_binding: binding.into(),
            protocol_version: version.into(),
            ..AgentInterface::default()
        }
    }

    fn chosen(interfaces: Vec<AgentInterface>, options: &RemoteOptions) -> Vec<String> {
        let card = AgentCard {
            supported_interfaces: interfaces,
            ..AgentCard::default()
        };
        let base = "https://agent.example/.well-known/agent-card.json"
            .parse()
            .unwrap();
        let told =
            |c: Candidate| format!("{:?} {:?} {} {}", c.version, c.binding, c.url, c.is_trusted);
        candidates(&card, &base, options)
            .into_iter()
            .map(told)
            .collect()
    }

    /// Goal: the newest version, then JSON-RPC, then the card's order; what isn't spoken is left out, and another origin is
    /// known as one. Method: a card with all of that.
    #[test]
    fn best_interface_first() {
        let interfaces = vec![
            interface("GRPC", "1.0", "https://agent.example/g"),
            interface("jsonrpc", "0.3.0", "https://agent.example/old"),
            interface("HTTP+JSON", "1.0", "/rest"),
            interface("JSONRPC", "1.0.1", "https://other.example/a"),
            interface("JSONRPC", "1.0", "https://agent.example/b"),
            interface("JSONRPC", "2.0", "https://agent.example/new"),
            interface("HTTP+JSON", "0.1", "https://agent.example/never"),
            interface("JSONRPC", "0.1", "https://agent.example/oldest"),
            interface("JSONRPC", "1.0", "ftp://agent.example/b"),
        ];
        let all = RemoteOptions::default();
        assert_eq!(
            chosen(interfaces.clone(), &all),
            [
                "V10 JsonRpc https://other.example/a false",
                "V10 JsonRpc https://agent.example/b true",
                "V10 HttpJson https://agent.example/rest true",
                "V03 JsonRpc https://agent.example/old true",
                "V01 JsonRpc https://agent.example/oldest true",
            ]
        );
        let rest = RemoteOptions {
            bindings: vec![Binding::HttpJson],
            versions: vec![Version::V10],
            trusted_origins: vec!["https://other.example".parse().unwrap()],
            ..RemoteOptions::default()
        };
        assert_eq!(
            chosen(interfaces, &rest),
            ["V10 HttpJson https://agent.example/rest true"]
        );
    }

    /// Goal: a card that names its own machine by another name is believed, and no other. Method: what development servers
    /// write, and what leads elsewhere.
    #[test]
    fn own_machines_have_names() {
        let trusted = |base: &str, url: &str| {
            let card = AgentCard {
                supported_interfaces: vec![interface("JSONRPC", "1.0", url)],
                ..AgentCard::default()
            };
            let found = candidates(&card, &base.parse().unwrap(), &RemoteOptions::default());
            found
                .first()
                .map(|candidate| (candidate.url.to_string(), candidate.is_trusted))
                .unwrap()
        };
        for (base, url, expected, is_trusted) in [
            (
                "http://127.0.0.1:9/c.json",
                "http://localhost:9/",
                "http://localhost:9/",
                true,
            ),
            (
                "http://localhost:9/c.json",
                "http://0.0.0.0:9/",
                "http://localhost:9/",
                true,
            ),
            (
                "https://a.example/c.json",
                "https://[::]/",
                "https://a.example/",
                true,
            ),
            (
                "http://127.0.0.1:9/c.json",
                "http://localhost:8/",
                "http://localhost:8/",
                false,
            ),
            (
                "https://a.example/c.json",
                "http://localhost/",
                "http://localhost/",
                false,
            ),
            (
                "https://a.example/c.json",
                "http://a.example/",
                "http://a.example/",
                false,
            ),
        ] {
            assert_eq!(
                trusted(base, url),
                (expected.to_owned(), is_trusted),
                "{base} {url}"
            );
        }
    }

    /// Goal: versions are read as real cards write them. Method: rows.
    #[test]
    fn versions_are_read() {
        for (name, read) in [
            ("1.0", Some(Version::V10)),
            ("1.1.0", Some(Version::V10)),
            ("v1", Some(Version::V10)),
            ("0.3.0", Some(Version::V03)),
            ("0.2.6", Some(Version::V03)),
            ("", Some(Version::V03)),
            ("0.1", Some(Version::V01)),
            ("2.0", None),
            ("0.4", None),
            ("one", None),
        ] {
            assert_eq!(version(name), read, "{name}");
        }
    }
}
