//! Through which page (`Origin`) and under which name (`Host`) a request may come.
//!
//! A web page anywhere can make its reader's browser send requests to this machine, and a name anywhere can be made to
//! lead here (DNS rebinding). MCP 2025-11-25, transports, security warning. By default only this machine's own pages
//! and names pass.

use std::net::{IpAddr, SocketAddr};

/// Why a request may not come this way: 403, whatever it asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// Allow the page's origin, or send no `Origin`.
    #[error("the page's origin is not allowed here")]
    Origin,
    /// Reach this machine under a name that it allows.
    #[error("the host's name is not allowed here")]
    Host,
}

/// Why an entry of an allow-list can't be one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AllowListError {
    /// Write `name` or `name:port`, without scheme, path or wildcard.
    #[error("{0:?} is not a host: write a name or address, with :port if only that port is meant")]
    Host(String),
    /// Write `https://name` or `https://name:port`, without path or wildcard.
    #[error(
        "{0:?} is not an origin: write http:// or https://, a name or address, and :port if it isn't the usual one"
    )]
    Origin(String),
}

/// Headers by which proxies, load balancers and content delivery networks say that they passed a request on (RFC 7239, RFC
/// 9110 section 7.6.3, RFC 8586, and what products add by themselves), in lower case. Beside them, all `x-forwarded…`.
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

/// Whether a request with this header, its name in lower case, was passed on by a proxy.
pub fn is_forwarding_header(name: &str) -> bool {
    name.starts_with("x-forwarded") || FORWARDING_HEADERS.binary_search(&name).is_ok()
}

/// The names under which this machine may be reached: its loopback names, and what is added.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedHosts {
    more: Vec<Authority>,
}

/// The origins whose pages may send requests: this machine's, and what is added.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedOrigins {
    more: Vec<Origin>,
}

impl AllowedHosts {
    /// Allows `host` on any port, or `host:port`.
    ///
    /// # Errors
    /// [`AllowListError::Host`].
    pub fn with(mut self, host: &str) -> Result<Self, AllowListError> {
        let host = Authority::read(host).ok_or_else(|| AllowListError::Host(host.to_owned()))?;
        self.more.push(host);
        Ok(self)
    }

    /// Whether one `Host` (or `:authority`) may be used.
    pub fn allows(&self, authority: &str) -> bool {
        let Some(asked) = Authority::read(authority) else {
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

    /// Checks a request: each `Host` header, and the authority of its target if it has one, as they came. `reached` is
    /// the address at this end: at a loopback address a name is required; elsewhere names are free until some are added.
    ///
    /// # Errors
    /// [`SourceError::Host`].
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
    /// Allows pages of one origin, for example `https://app.example`.
    ///
    /// # Errors
    /// [`AllowListError::Origin`].
    pub fn with(mut self, origin: &str) -> Result<Self, AllowListError> {
        let origin =
            Origin::read(origin).ok_or_else(|| AllowListError::Origin(origin.to_owned()))?;
        self.more.push(origin);
        Ok(self)
    }

    /// Whether pages of this origin may send requests. `null` may not.
    pub fn allows(&self, origin: &str) -> bool {
        Origin::read(origin)
            .is_some_and(|asked| asked.authority.is_loopback() || self.more.contains(&asked))
    }

    /// Checks a request's `Origin` headers, as they came. None is none of a page's, and passes.
    ///
    /// # Errors
    /// [`SourceError::Origin`].
    pub fn check<'a>(
        &self,
        origins: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(), SourceError> {
        let allowed =
            |origin: &[u8]| std::str::from_utf8(origin).is_ok_and(|origin| self.allows(origin));
        if origins.into_iter().all(allowed) {
            Ok(())
        } else {
            Err(SourceError::Origin)
        }
    }
}

/// `host` or `host:port`, written plainly: no user, no path, no number that only some take for an address.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Authority {
    host: Host,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    Address(IpAddr),
    /// In lower case.
    Name(String),
}

impl Authority {
    fn read(written: &str) -> Option<Self> {
        let address = |ip: IpAddr, port| Self {
            host: Host::Address(ip.to_canonical()),
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
            // A number's own reader takes a sign too.
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
        // A last label of digits makes it an address to some readers: 127.1, 0x7f.1, 2130706433.
        let last_label = host.rsplit('.').next().unwrap_or_default();
        let is_number = last_label
            .bytes()
            .next()
            .is_none_or(|first| first.is_ascii_digit());
        (host.chars().all(is_name) && !is_number).then(|| Self {
            host: Host::Name(host.to_ascii_lowercase()),
            port,
        })
    }

    fn is_loopback(&self) -> bool {
        match &self.host {
            Host::Address(ip) => ip.is_loopback(),
            Host::Name(name) => name == "localhost",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Origin {
    is_https: bool,
    /// Its port is always known.
    authority: Authority,
}

impl Origin {
    fn read(written: &str) -> Option<Self> {
        let (is_https, authority) = match (
            written.strip_prefix("http://"),
            written.strip_prefix("https://"),
        ) {
            (Some(authority), _) => (false, authority),
            (_, Some(authority)) => (true, authority),
            _ => return None,
        };
        let mut authority = Authority::read(authority)?;
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

    /// Goal: a proxy is known by the headers that it adds, and no usual header is taken for one. Method: rows; the list is in
    /// the order that its search needs.
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

    /// Goal: by default only this machine's names pass, and none that only look like one. Method: rows.
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

    /// Goal: what is added passes, and nothing beside it. Method: names with and without port, near misses.
    #[test]
    fn lists_add_exactly_what_they_say() {
        let hosts = AllowedHosts::default()
            .with("Agents.example")
            .and_then(|h| h.with("b.example:8443"))
            .unwrap();
        let hosts = hosts
            .with("b.example:443")
            .and_then(|h| h.with("[2001:DB8::1]"))
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
            .with("https://app.example")
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
                AllowedHosts::default().with(bad),
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
                AllowedOrigins::default().with(bad),
                Err(AllowListError::Origin(bad.into()))
            );
        }
    }

    /// Goal: every header counts, and a loopback address wants a name. Method: none, one, two of which one is foreign.
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
            let configured = hosts.clone().with("agents.example").unwrap();
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
}
