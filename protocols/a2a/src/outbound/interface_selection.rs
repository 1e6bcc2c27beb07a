//! Selection of an agent's interfaces to use.

use url::{Host, Url};

use super::options::{ProtocolBinding, ProtocolVersion, RemoteOptions, is_plain_http_url};
use crate::dialect::Dialect;
use crate::wire::{AgentCard, AgentInterface};

/// Maximum number of a card's interfaces that are considered.
/// At the limit: the others are ignored.
pub(super) const INTERFACES_MAX: usize = 32;

/// An interface whose version and binding the client supports.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct InterfaceCandidate {
    pub(super) version: ProtocolVersion,
    pub(super) binding: ProtocolBinding,
    pub(super) url: Url,
    /// Tenant to send with every request; empty if there is none.
    pub(super) tenant: String,
    /// Whether the URL has the card's own origin, or one that the operator trusts.
    pub(super) is_trusted: bool,
}

impl InterfaceCandidate {
    pub(super) fn dialect(&self) -> Dialect {
        match (self.version, self.binding) {
            (ProtocolVersion::V10, _) => Dialect::V10,
            (ProtocolVersion::V03, ProtocolBinding::JsonRpc) => Dialect::V03,
            (ProtocolVersion::V03, ProtocolBinding::HttpJson) => Dialect::V03Rest,
            (ProtocolVersion::V01, _) => Dialect::V01,
        }
    }
}

/// Returns those interfaces of `card` that the client supports, best first. They are sorted by
/// version (newest first), then by the order of bindings in `options`, then by the card's order.
/// `base` is the URL of the card.
pub(super) fn select_interfaces(
    card: &AgentCard,
    base: &Url,
    options: &RemoteOptions,
) -> Vec<InterfaceCandidate> {
    let spoken = card.supported_interfaces.iter().take(INTERFACES_MAX);
    let mut found: Vec<InterfaceCandidate> = spoken
        .filter_map(|interface| parse_interface(interface, base, options))
        .collect();
    let rank =
        |binding: ProtocolBinding| options.bindings.iter().position(|known| *known == binding);
    found.sort_by_key(|candidate| (candidate.version, rank(candidate.binding)));
    found
}

fn parse_interface(
    interface: &AgentInterface,
    base: &Url,
    options: &RemoteOptions,
) -> Option<InterfaceCandidate> {
    let binding = match &*interface.protocol_binding.to_ascii_uppercase() {
        "JSONRPC" | "JSON-RPC" | "JSON_RPC" => ProtocolBinding::JsonRpc,
        "HTTP+JSON" | "HTTP_JSON" | "HTTPJSON" | "REST" => ProtocolBinding::HttpJson,
        _ => return None,
    };
    let version = parse_version(&interface.protocol_version)?;
    let is_spoken = options.bindings.contains(&binding)
        && options.versions.contains(&version)
        // 0.1 exists over JSON-RPC only.
        && (version, binding) != (ProtocolVersion::V01, ProtocolBinding::HttpJson);
    let url = interface_url(interface, base)?;
    if !is_spoken || !is_plain_http_url(&url) {
        return None;
    }
    let is_trusted = std::iter::once(base)
        .chain(&options.trusted_origins)
        .any(|known| is_same_origin(known, &url));
    Some(InterfaceCandidate {
        version,
        binding,
        url,
        tenant: interface.tenant.clone(),
        is_trusted,
    })
}

/// Returns the absolute URL of an interface. `base` is the URL where the card was found; its host
/// replaces an unspecified address such as 0.0.0.0. `None` if the text is no URL, or the host can't
/// be replaced. The scheme isn't checked.
pub(super) fn interface_url(interface: &AgentInterface, base: &Url) -> Option<Url> {
    let mut url = base.join(&interface.url).ok()?;
    // A listening address such as 0.0.0.0 isn't a destination: the card's own host is meant.
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

/// Returns whether two URLs have the same origin. All names of the loopback interface count as the
/// same host.
pub(super) fn is_same_origin(one: &Url, other: &Url) -> bool {
    let is_here = |url: &Url| match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    let place = |url: &Url| (url.scheme() == "https", url.port_or_known_default());
    one.origin() == other.origin() || is_here(one) && is_here(other) && place(one) == place(other)
}

/// Returns whether the path of `url` is that of `address` or below it, on the same origin. If
/// `address` has a query, `url` must have the same one.
pub(super) fn is_at_or_below(url: &Url, address: &Url) -> bool {
    let below = url
        .path()
        .trim_end_matches('/')
        .strip_prefix(address.path().trim_end_matches('/'));
    is_same_origin(url, address)
        && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        && (address.query().is_none() || url.query() == address.query())
}

/// Parses a version from a card; `None` if it is unsupported. An empty version means 0.3, because
/// cards of versions before 0.3 didn't state theirs.
fn parse_version(name: &str) -> Option<ProtocolVersion> {
    let mut parts = name.trim().trim_start_matches(['v', 'V']).split('.');
    match (parts.next().unwrap_or_default(), parts.next()) {
        ("1", _) => Some(ProtocolVersion::V10),
        ("0", Some("1")) => Some(ProtocolVersion::V01),
        ("0", Some("2" | "3")) | ("", None) => Some(ProtocolVersion::V03),
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
        let told = |c: InterfaceCandidate| {
            format!("{:?} {:?} {} {}", c.version, c.binding, c.url, c.is_trusted)
        };
        select_interfaces(&card, &base, options)
            .into_iter()
            .map(told)
            .collect()
    }

    /// Goal: the newest version first, then JSON-RPC, then the card's order; unsupported interfaces
    /// are left out, and another origin is recognised. Method: a card with all of that.
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
            bindings: vec![ProtocolBinding::HttpJson],
            versions: vec![ProtocolVersion::V10],
            trusted_origins: vec!["https://other.example".parse().unwrap()],
            ..RemoteOptions::default()
        };
        assert_eq!(
            chosen(interfaces, &rest),
            ["V10 HttpJson https://agent.example/rest true"]
        );
    }

    /// Goal: a card that names its own machine by another name is trusted, and no other. Method:
    /// what development servers write, and URLs of other hosts.
    #[test]
    fn own_machines_have_names() {
        let trusted = |base: &str, url: &str| {
            let card = AgentCard {
                supported_interfaces: vec![interface("JSONRPC", "1.0", url)],
                ..AgentCard::default()
            };
            let found = select_interfaces(&card, &base.parse().unwrap(), &RemoteOptions::default());
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

    /// Goal: versions are parsed as real cards write them. Method: rows.
    #[test]
    fn versions_are_read() {
        for (name, read) in [
            ("1.0", Some(ProtocolVersion::V10)),
            ("1.1.0", Some(ProtocolVersion::V10)),
            ("v1", Some(ProtocolVersion::V10)),
            ("0.3.0", Some(ProtocolVersion::V03)),
            ("0.2.6", Some(ProtocolVersion::V03)),
            ("", Some(ProtocolVersion::V03)),
            ("0.1", Some(ProtocolVersion::V01)),
            ("2.0", None),
            ("0.4", None),
            ("one", None),
        ] {
            assert_eq!(parse_version(name), read, "{name}");
        }
    }
}
