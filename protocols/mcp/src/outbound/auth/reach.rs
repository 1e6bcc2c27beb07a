//! Which addresses may be contacted because another side named them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::Host;

/// Which addresses we contact because an upstream or an authorization server names them.
///
/// A name is resolved once and only those of its addresses are connected to that may be reached, so that no later
/// answer of its name server matters. Redirects are never followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Reach {
    /// Public addresses, over https.
    #[default]
    Public,
    /// Those, and this machine, where plain http will do.
    Loopback,
    /// Those, and the private networks, over https: for installations that are closed as a whole.
    Private,
}

impl Reach {
    /// Whether `url` may be contacted, as far as it shows before its host is resolved.
    pub(super) fn permits(self, url: &Url) -> bool {
        if !url.username().is_empty() || url.password().is_some() {
            return false;
        }
        let (address, local_name) = match url.host() {
            Some(Host::Ipv4(v4)) => (Some(IpAddr::V4(v4)), false),
            Some(Host::Ipv6(v6)) => (Some(IpAddr::V6(v6)), false),
            Some(Host::Domain(name)) => (None, name.trim_end_matches('.').eq_ignore_ascii_case("localhost")),
            None => return false,
        };
        let on_this_machine = local_name || address.is_some_and(|ip| ip.to_canonical().is_loopback());
        let scheme_fits = match url.scheme() {
            "https" => !on_this_machine || self.includes_loopback(),
            "http" => on_this_machine && self.includes_loopback(),
            _ => false,
        };
        scheme_fits && address.is_none_or(|ip| self.permits_address(ip))
    }

    fn includes_loopback(self) -> bool {
        !matches!(self, Self::Public)
    }

    /// Whether a connection to `ip` may be made.
    pub(super) fn permits_address(self, ip: IpAddr) -> bool {
        match ip.to_canonical() {
            ip if ip.is_loopback() => self.includes_loopback(),
            IpAddr::V4(v4) => is_public_v4(v4) || (self == Self::Private && is_private_v4(v4)),
            IpAddr::V6(v6) => is_public_v6(v6) || (self == Self::Private && v6.is_unique_local()),
        }
    }
}

/// The private networks, and the shared ones of carriers.
fn is_private_v4(ip: Ipv4Addr) -> bool {
    let [a, b, ..] = ip.octets();
    ip.is_private() || (a == 100 && (64..128).contains(&b))
}

/// All but the blocks that the IANA registry of special addresses holds back from the internet.
fn is_public_v4(ip: Ipv4Addr) -> bool {
    let [a, b, c, _] = ip.octets();
    let special = a == 0
        || a >= 224
        || is_private_v4(ip)
        || ip.is_loopback()
        || ip.is_link_local()
        || ip.is_documentation()
        || (a == 192 && b == 0 && c == 0)
        || (a == 192 && b == 88 && c == 99)
        || (a == 198 && (18..20).contains(&b));
    !special
}

/// Global unicast, without documentation, and public also in the IPv4 address that it may carry.
fn is_public_v6(ip: Ipv6Addr) -> bool {
    let s = ip.segments();
    let carried = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match s {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => carried(high, low),
        [0x2002, high, low, ..] => carried(high, low),
        // Teredo, benchmarks, ORCHID and documentation.
        [0x2001, second, ..] => second >= 0x200 && second != 0xdb8,
        [0x3fff, second, ..] => second >= 0x1000,
        [first, ..] => (0x2000..0x4000).contains(&first),
    }
}

/// Resolves names to what may be reached of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct GuardedResolver(pub(super) Reach);

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.0;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let allowed: Vec<SocketAddr> = found.filter(|address| reach.permits_address(address.ip())).collect();
            if allowed.is_empty() {
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, "no address that may be reached").into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(reach: Reach, url: &str) -> bool {
        reach.permits(&Url::parse(url).expect(url))
    }

    /// Goal: nothing that isn't public is contacted, however it is written. Method: the spellings of section D1.
    #[test]
    fn special_addresses_are_refused() {
        for host in [
            "169.254.169.254",
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.0.1",
            "0x7f.1",
            "2130706433",
            "0177.0.0.1",
            "127.1",
            "0.0.0.0",
            "100.64.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "198.18.0.1",
            "192.0.2.7",
            "localhost",
            "localhost.",
            "[::]",
            "[::1]",
            "[fc00::1]",
            "[fd12::1]",
            "[fe80::1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:10.0.0.1]",
            "[64:ff9b::10.0.0.1]",
            "[64:ff9b:1::1]",
            "[2002:7f00:1::]",
            "[2001::1]",
            "[2001:db8::1]",
            "[ff02::1]",
            "user@example.com",
            "user:pw@example.com",
        ] {
            assert!(!permits(Reach::Public, &format!("https://{host}/x")), "{host}");
        }
        for host in ["example.com", "93.184.215.14", "[2606:2800:21f:cb07:6820:80da:af6b:8b2c]", "[64:ff9b::8.8.8.8]"] {
            assert!(permits(Reach::Public, &format!("https://{host}/x")), "{host}");
        }
    }

    /// Goal: plain http goes to this machine only, other schemes nowhere. Method: each reach and scheme.
    #[test]
    fn schemes_go_by_reach() {
        for reach in [Reach::Public, Reach::Loopback, Reach::Private] {
            for url in
                ["http://example.com", "ftp://example.com", "file:///etc/passwd", "javascript:alert(1)", "data:,x"]
            {
                assert!(!permits(reach, url), "{reach:?} {url}");
            }
        }
        for url in ["http://localhost:3000/x", "http://127.0.0.1:1/", "https://[::1]/"] {
            assert!(permits(Reach::Loopback, url) && !permits(Reach::Public, url), "{url}");
        }
        assert!(permits(Reach::Private, "https://10.0.0.7/") && !permits(Reach::Loopback, "https://10.0.0.7/"));
        assert!(!permits(Reach::Private, "https://169.254.169.254/"));
    }

    /// Goal: a name counts by its addresses. Method: resolve `localhost` with and without leave.
    #[tokio::test]
    async fn names_are_judged_by_their_addresses() {
        let name = || "localhost".parse::<Name>().expect("a name");
        assert!(GuardedResolver(Reach::Public).resolve(name()).await.is_err());
        let found: Vec<_> = GuardedResolver(Reach::Loopback).resolve(name()).await.expect("this machine").collect();
        assert!(!found.is_empty() && found.iter().all(|address| address.ip().is_loopback()));
    }
}
