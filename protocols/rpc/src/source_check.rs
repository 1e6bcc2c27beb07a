//! Checks of a request's `Origin` and `Host` headers.
//!
//! A web page anywhere can make a browser send requests to this machine, and a name anywhere can be
//! made to resolve to it (DNS rebinding). MCP 2025-11-25, transports, security warning. By default
//! only loopback names and their pages are allowed.

use std::net::{IpAddr, SocketAddr};

/// Rejection of an HTTP request because of its `Origin` or `Host`. The response status is 403.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The value of `Origin` is not an allowed web origin.
    #[error("the page's origin is not allowed here: add it to the allowed origins")]
    Origin,
    /// The value of `Host` is not an allowed host name, or is missing.
    #[error("the host name is not allowed here: add it to the allowed hosts")]
    Host,
}

/// Error for an invalid entry of an allow-list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllowListError {
    /// The entry is not `name` or `name:port`. It must have no scheme, path or wildcard.
    #[error("{0:?} is not a host: write a name or address, with :port if only that port is meant")]
    Host(String),
    /// The entry is not `https://name` or `https://name:port` (or the same with `http://`). It must
    /// have no path or wildcard.
    #[error(
        "{0:?} is not an origin: write http:// or https://, a name or address, and :port if it isn't the usual one"
    )]
    Origin(String),
}

/// Names of headers that proxies, load balancers and content delivery networks add to forwarded
/// requests, in lower case and sorted (RFC 7239, RFC 9110 section 7.6.3, RFC 8586, and product
/// documentation). Names with the prefix `x-forwarded` are recognised separately.
const FORWARDING_HEADERS: [&str; 24] = [
    "cdn-loop",
    "cf-connecting-ip",
    "cf-connecting-ipv6",
    "cf-pseudo-ipv4",
    "cf-ray",
    "client-ip",
    "cloudfront-viewer-address",
    "fastly-client-ip",
    "fly-client-ip",
    "forwarded",
    "forwarded-for",
    "proxy-client-ip",
    "true-client-ip",
    "via",
    "x-appengine-user-ip",
    "x-azure-clientip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-envoy-external-address",
    "x-original-forwarded-for",
    "x-original-host",
    "x-original-url",
    "x-proxyuser-ip",
    "x-real-ip",
];

/// Returns whether the presence of a header shows that a proxy forwarded the request. `name` must
/// be in lower case.
pub fn is_forwarding_header(name: &str) -> bool {
    name.starts_with("x-forwarded") || FORWARDING_HEADERS.binary_search(&name).is_ok()
}

/// Allow-list of host names under which a listener may be addressed. This machine's loopback names
/// and addresses are always allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedHosts {
    more: Vec<ParsedAuthority>,
}

/// Allow-list of web origins whose pages may send requests. Origins on this machine's loopback
/// names and addresses are always allowed, but for WebSockets only those with the listener's port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedOrigins {
    more: Vec<ParsedOrigin>,
}

impl AllowedHosts {
    /// Adds `host`, which is `name` for any port or `name:port`. A request whose `Host` has no port
    /// matches an entry with port 80 or 443.
    ///
    /// # Errors
    /// [`AllowListError::Host`] if `host` has another format.
    pub fn with_host(mut self, host: &str) -> Result<Self, AllowListError> {
        let host =
            ParsedAuthority::parse(host).ok_or_else(|| AllowListError::Host(host.to_owned()))?;
        self.more.push(host);
        Ok(self)
    }

    /// Returns whether a value of the `Host` header (or of `:authority`) is allowed.
    pub fn allows(&self, authority: &str) -> bool {
        let Some(asked) = ParsedAuthority::parse(authority) else {
            return false;
        };
        let usual = |port: u16| port == 80 || port == 443;
        asked.is_loopback()
            || self.more.iter().any(|allowed| {
                let same_port = allowed
                    .port
                    .is_none_or(|port| asked.port.map_or(usual(port), |asked| asked == port));
                allowed.host == asked.host && same_port
            })
    }

    /// Checks the host names of a request: all values of `Host`, and the authority of its target if
    /// it has one. `reached` is the local address of the connection. At a loopback address, a host
    /// name is required and must be allowed. At other addresses, every request passes as long as no
    /// hosts were added.
    ///
    /// # Errors
    /// [`SourceError::Host`] if a host name is not allowed, or is missing where one is required.
    pub fn check<'a>(
        &self,
        hosts: impl IntoIterator<Item = &'a [u8]>,
        reached: IpAddr,
    ) -> Result<(), SourceError> {
        if self.more.is_empty() && !reached.to_canonical().is_loopback() {
            return Ok(());
        }
        let mut named = false;
        for host in hosts {
            named = true;
            if !std::str::from_utf8(host).is_ok_and(|host| self.allows(host)) {
                return Err(SourceError::Host);
            }
        }
        if named {
            Ok(())
        } else {
            Err(SourceError::Host)
        }
    }
}

impl AllowedOrigins {
    /// Adds an origin, for example `https://app.example`.
    ///
    /// # Errors
    /// [`AllowListError::Origin`] if `origin` is not a web origin.
    pub fn with_origin(mut self, origin: &str) -> Result<Self, AllowListError> {
        let origin =
            ParsedOrigin::parse(origin).ok_or_else(|| AllowListError::Origin(origin.to_owned()))?;
        self.more.push(origin);
        Ok(self)
    }

    /// Returns whether pages of an origin may send requests. `null` is never allowed.
    pub fn allows(&self, origin: &str) -> bool {
        ParsedOrigin::parse(origin)
            .is_some_and(|asked| asked.authority.is_loopback() || self.more.contains(&asked))
    }

    /// Checks all values of a request's `Origin` header. A request without the header passes,
    /// because it doesn't come from a page's script.
    ///
    /// # Errors
    /// [`SourceError::Origin`] if an origin is not allowed.
    pub fn check<'a>(
        &self,
        origins: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(), SourceError> {
        check_all(origins, |origin| self.allows(origin))
    }

    /// Checks all values of the `Origin` header of a request to open a WebSocket. Browsers open one
    /// for any page without asking first (CORS preflight), so of this machine's own origins only
    /// those with the listener's port are allowed; a page of another port must be listed.
    ///
    /// # Errors
    /// [`SourceError::Origin`] if an origin is not allowed.
    pub fn check_upgrade<'a>(
        &self,
        origins: impl IntoIterator<Item = &'a [u8]>,
        port: u16,
    ) -> Result<(), SourceError> {
        check_all(origins, |origin| {
            ParsedOrigin::parse(origin).is_some_and(|asked| {
                let is_own = asked.authority.is_loopback() && asked.authority.port == Some(port);
                is_own || self.more.contains(&asked)
            })
        })
    }
}

fn check_all<'a>(
    origins: impl IntoIterator<Item = &'a [u8]>,
    allows: impl Fn(&str) -> bool,
) -> Result<(), SourceError> {
    let is_allowed = |origin: &[u8]| std::str::from_utf8(origin).is_ok_and(&allows);
    if origins.into_iter().all(is_allowed) {
        Ok(())
    } else {
        Err(SourceError::Origin)
    }
}

/// Parsed `host` or `host:port`. A user name, a path, and numbers that only some parsers read as an
/// IP address are rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ParsedAuthority {
    host: AuthorityHost,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum AuthorityHost {
    Address(IpAddr),
    /// Host name in lower case.
    Name(String),
}

impl ParsedAuthority {
    fn parse(written: &str) -> Option<Self> {
        let address = |ip: IpAddr, port| Self {
            host: AuthorityHost::Address(ip.to_canonical()),
            port,
        };
        if let Ok(socket) = written.parse::<SocketAddr>() {
            return Some(address(socket.ip(), Some(socket.port())));
        }
        if let Some(v6) = written
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            return v6.parse().ok().map(|ip| address(IpAddr::V6(ip), None));
        }
        let (host, port) = match written.split_once(':') {
            // The integer parser would accept a sign too.
            Some((host, port)) => (
                host,
                Some(port.parse().ok().filter(|_| !port.starts_with('+'))?),
            ),
            None => (written, None),
        };
        if let Ok(ip) = host.parse() {
            return Some(address(ip, port));
        }
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        // Some parsers read a name whose last label is numeric as an address: 127.1, 0x7f.1,
        // 2130706433.
        let last_label = host.rsplit('.').next().unwrap_or_default();
        let is_number = last_label
            .bytes()
            .next()
            .is_none_or(|first| first.is_ascii_digit());
        (host.chars().all(is_name) && !is_number).then(|| Self {
            host: AuthorityHost::Name(host.to_ascii_lowercase()),
            port,
        })
    }

    fn is_loopback(&self) -> bool {
        match &self.host {
            AuthorityHost::Address(ip) => ip.is_loopback(),
            AuthorityHost::Name(name) => name == "localhost",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ParsedOrigin {
    is_https: bool,
    /// Host and port. The port is never `None`.
    authority: ParsedAuthority,
}

impl ParsedOrigin {
    fn parse(written: &str) -> Option<Self> {
        let (is_https, authority) = match (
            written.strip_prefix("http://"),
            written.strip_prefix("https://"),
        ) {
            (Some(authority), _) => (false, authority),
            (_, Some(authority)) => (true, authority),
            _ => return None,
        };
        let mut authority = ParsedAuthority::parse(authority)?;
        authority.port = authority.port.or(Some(if is_https { 443 } else { 80 }));
        Some(Self {
            is_https,
            authority,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: forwarding headers are recognised, and no usual header is taken for one. Method: rows;
    /// the list is sorted as its search requires.
    #[test]
    fn headers_of_proxies() {
        assert!(FORWARDING_HEADERS.is_sorted());
        for name in ["x-forwarded", "x-forwarded-for", "x-forwarded-client-cert"]
            .iter()
            .chain(&FORWARDING_HEADERS)
        {
            assert!(is_forwarding_header(name), "{name}");
        }
        for name in [
            "",
            "host",
            "origin",
            "x-api-key",
            "x-agent-id",
            "x-request-id",
            "traceparent",
            "viable",
            "x-for",
        ] {
            assert!(!is_forwarding_header(name), "{name}");
        }
    }

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const ELSEWHERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 7));

    /// Goal: by default only this machine's names pass, and none that only look like one. Method:
    /// rows.
    #[test]
    fn names_of_this_machine() {
        let (hosts, origins) = (AllowedHosts::default(), AllowedOrigins::default());
        for host in [
            "localhost",
            "LOCALHOST:80",
            "127.0.0.1",
            "127.0.0.1:8001",
            "127.8.9.1",
            "[::1]",
            "[::1]:8001",
        ] {
            assert!(hosts.allows(host), "{host}");
            assert!(origins.allows(&format!("http://{host}")), "{host}");
        }
        let others = "evil.example localhost.evil.example 127.0.0.1.evil.example localhost. 127.1 0x7f.1 2130706433 0.0.0.0 \
            192.168.0.1 [::] user@localhost localhost:80@evil.example localhost: localhost:x localhost:+80 [::1 ::1 \
            [127.0.0.1] localhost/path localhost,evil.example null";
        for host in others
            .split(' ')
            .chain(["", "localhost evil.example", " localhost"])
        {
            assert!(!hosts.allows(host), "{host}");
            assert!(!origins.allows(&format!("https://{host}")), "{host}");
        }
        for origin in [
            "null",
            "",
            "localhost",
            "file://",
            "ftp://localhost",
            "http://localhost/x",
            "HTTP://localhost",
        ] {
            assert!(!origins.allows(origin), "{origin}");
        }
    }

    /// Goal: entries of the list are allowed, and nothing else. Method: names with and without
    /// port, near misses.
    #[test]
    fn lists_add_exactly_what_they_say() {
        let hosts = AllowedHosts::default()
            .with_host("Agents.example")
            .and_then(|h| h.with_host("b.example:8443"))
            .unwrap();
        let hosts = hosts
            .with_host("b.example:443")
            .and_then(|h| h.with_host("[2001:DB8::1]"))
            .unwrap();
        for host in [
            "agents.EXAMPLE",
            "agents.example:1",
            "b.example:8443",
            "b.example",
            "[2001:db8:0::1]:9",
            "localhost",
        ] {
            assert!(hosts.allows(host), "{host}");
        }
        for host in [
            "x.agents.example",
            "agents.example.",
            "b.example:8444",
            "b.example:80",
            "[2001:db8::2]",
            "example",
        ] {
            assert!(!hosts.allows(host), "{host}");
        }
        let origins = AllowedOrigins::default()
            .with_origin("https://app.example")
            .unwrap();
        for origin in [
            "https://app.example",
            "https://APP.example:443",
            "http://localhost:3000",
        ] {
            assert!(origins.allows(origin), "{origin}");
        }
        for origin in [
            "http://app.example",
            "https://app.example:8443",
            "https://x.app.example",
            "null",
        ] {
            assert!(!origins.allows(origin), "{origin}");
        }
        for bad in [
            "",
            "*",
            "*.example",
            "https://a.example",
            "a.example/x",
            "a.example:",
            "u@a.example",
            "7",
        ] {
            assert_eq!(
                AllowedHosts::default().with_host(bad),
                Err(AllowListError::Host(bad.into()))
            );
        }
        for bad in [
            "",
            "*",
            "null",
            "a.example",
            "https://",
            "https://*.example",
            "https://a.example/",
            "ws://a.example",
        ] {
            assert_eq!(
                AllowedOrigins::default().with_origin(bad),
                Err(AllowListError::Origin(bad.into()))
            );
        }
    }

    /// Goal: every header is checked, and a loopback address requires a host. Method: none, one,
    /// two of which one is foreign.
    #[test]
    fn every_header_counts() {
        let (good, foreign, broken): (&[u8], &[u8], &[u8]) =
            (b"localhost:1", b"evil.example", b"\xFF");
        let hosts = AllowedHosts::default();
        assert_eq!(hosts.check([good], HERE), Ok(()));
        for bad in [
            vec![],
            vec![foreign],
            vec![good, foreign],
            vec![foreign, good],
            vec![broken],
        ] {
            assert_eq!(hosts.check(bad.clone(), HERE), Err(SourceError::Host));
            assert_eq!(hosts.check(bad.clone(), ELSEWHERE), Ok(()));
            let configured = hosts.clone().with_host("agents.example").unwrap();
            assert_eq!(configured.check(bad, ELSEWHERE), Err(SourceError::Host));
        }
        let origins = AllowedOrigins::default();
        let (page, evil): (&[u8], &[u8]) = (b"http://localhost:1", b"http://evil.example");
        assert_eq!(origins.check([]), Ok(()));
        assert_eq!(origins.check([page]), Ok(()));
        for bad in [
            vec![evil],
            vec![page, evil],
            vec![b"null".as_slice()],
            vec![broken],
        ] {
            assert_eq!(origins.check(bad), Err(SourceError::Origin));
        }
    }

    /// Goal: a WebSocket is opened for pages of the listener itself and listed ones only. Method:
    /// rows.
    #[test]
    fn pages_that_open_websockets() {
        let origins = AllowedOrigins::default()
            .with_origin("http://localhost:3000")
            .and_then(|origins| origins.with_origin("https://app.example"))
            .unwrap();
        for (origin, expect) in [
            ("http://localhost:8001", true),
            ("http://127.0.0.1:8001", true),
            ("http://localhost:3000", true),
            ("https://app.example", true),
            ("http://127.0.0.1:3000", false),
            ("http://localhost:8002", false),
            ("http://localhost", false),
            ("http://evil.example:8001", false),
            ("null", false),
        ] {
            let checked = origins.check_upgrade([origin.as_bytes()], 8_001);
            assert_eq!(checked.is_ok(), expect, "{origin}");
        }
        assert_eq!(origins.check_upgrade([], 8_001), Ok(()));
    }
}
