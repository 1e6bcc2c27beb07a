//! Protection against server-side request forgery: limits connections to URLs from untrusted
//! sources, such as metadata of authorization servers, documents of peers, and redirects.
//!
//! URLs are parsed as browsers do before they are checked, so that `0x7f.1` and `2130706433` are
//! seen as the addresses that they denote. Host names are checked by the addresses that they
//! resolve to, and exactly those are connected to, so that a second DNS answer can't differ.

use derive_more::Debug;
use std::error::Error;
use std::iter::successors;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::{Action, Attempt, Policy};
use reqwest::{Client, ClientBuilder};
use url::{Host, Url};

/// Maximum number of redirects that are followed for one request.
pub const REDIRECTS_MAX: usize = 5;
/// Maximum number of addresses that are used of one DNS answer. Further ones are ignored.
pub const RESOLVED_ADDRESSES_MAX: usize = 16;

/// Reason why a connection to a URL is not allowed or not possible. Only after
/// [`Lookup`](Self::Lookup) may a retry succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EgressError {
    /// The text is not an absolute URL.
    #[error("the URL isn't absolute: write it with its scheme, such as https://host/path")]
    Url,
    /// The scheme is neither `https` nor `http`, or it is `http` where `https` is required.
    #[error("the URL's scheme is not allowed here: use https")]
    Scheme,
    /// The URL has a user name or a password.
    #[error("the URL must not hold a user or password: remove them")]
    Credentials,
    /// The address is not in an allowed network.
    #[error("connections to {0} are not allowed: its network must be allowed in the configuration")]
    Address(IpAddr),
    /// The address is loopback, which is not allowed.
    #[error("connections to this machine are not allowed: name another host")]
    Loopback,
    /// The host name has no allowed address.
    #[error(
        "the host name has no address to which connections are allowed: its network must be allowed in the configuration"
    )]
    Name,
    /// The DNS lookup failed. A retry may succeed.
    #[error("the host name could not be looked up (DNS): check it, or try again later")]
    Lookup,
    /// The request exceeded [`REDIRECTS_MAX`] redirects.
    #[error("the request was redirected more than {REDIRECTS_MAX} times: use the final URL")]
    Redirects,
}

impl EgressError {
    /// Returns the [`EgressError`] that caused a request to fail; `None` if it failed for another
    /// reason.
    pub fn find_in_causes(error: &reqwest::Error) -> Option<Self> {
        let mut causes = successors(Some(error as &dyn Error), |error| (**error).source());
        causes.find_map(|error| error.downcast_ref().cloned())
    }
}

/// Policy that decides to which addresses outgoing connections are allowed.
#[derive(Debug, Clone)]
pub struct EgressPolicy {
    public: bool,
    loopback: bool,
    https_only: bool,
    networks: Vec<IpNetwork>,
    #[debug(skip)]
    lookup: Arc<dyn Resolve>,
}

impl EgressPolicy {
    /// Creates a policy that allows the public internet only, over `https` or `http`.
    pub fn public_internet() -> Self {
        Self {
            public: true,
            ..Self::deny_all()
        }
    }

    /// Creates a policy that allows no address; add networks with
    /// [`with_network`](Self::with_network).
    pub fn deny_all() -> Self {
        Self {
            public: false,
            loopback: false,
            https_only: false,
            networks: Vec::new(),
            lookup: Arc::new(SystemResolver),
        }
    }

    /// Also allows loopback addresses, for development and tests.
    pub fn with_loopback(mut self) -> Self {
        self.loopback = true;
        self
    }

    /// Also allows all addresses of `network`, even private or loopback ones.
    pub fn with_network(mut self, network: IpNetwork) -> Self {
        self.networks.push(network);
        self
    }

    /// Requires `https`. Loopback addresses may still use `http`, if they are allowed.
    pub fn https_only(mut self) -> Self {
        self.https_only = true;
        self
    }

    /// Uses `lookup` instead of the operating system's resolver. The addresses that it returns are
    /// checked in the same way.
    pub fn with_resolver(mut self, lookup: Arc<dyn Resolve>) -> Self {
        self.lookup = lookup;
        self
    }

    /// Checks whether connections to an address are allowed.
    ///
    /// # Errors
    /// [`EgressError::Loopback`] or [`EgressError::Address`] if they are not.
    pub fn check_address(&self, ip: IpAddr) -> Result<(), EgressError> {
        if self.networks.iter().any(|network| network.contains(ip)) {
            return Ok(());
        }
        match AddressScope::of(ip) {
            AddressScope::Public if self.public => Ok(()),
            AddressScope::Loopback if self.loopback => Ok(()),
            AddressScope::Loopback => Err(EgressError::Loopback),
            AddressScope::Public | AddressScope::Special => Err(EgressError::Address(ip)),
        }
    }

    /// Parses a URL from an untrusted source and checks it with [`check_url`](Self::check_url).
    ///
    /// # Errors
    /// [`EgressError::Url`] if the URL can't be parsed, and the errors of `check_url`.
    pub fn parse_url(&self, url: &str) -> Result<Url, EgressError> {
        let url = Url::parse(url).map_err(|_| EgressError::Url)?;
        self.check_url(&url)?;
        Ok(url)
    }

    /// Checks the scheme, credentials and host of a URL, without a DNS lookup. Must be called for
    /// every URL, because clients don't look up IP addresses and so don't check them. The addresses
    /// of host names are checked when a client of
    /// [`http_client_builder`](Self::http_client_builder) connects.
    ///
    /// # Errors
    /// Any [`EgressError`] but `Name`, `Lookup` and `Redirects`.
    pub fn check_url(&self, url: &Url) -> Result<(), EgressError> {
        let is_https = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(EgressError::Scheme),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(EgressError::Credentials);
        }
        let here = match url.host().ok_or(EgressError::Url)? {
            Host::Ipv4(ip) => self.is_local_address(ip.into())?,
            Host::Ipv6(ip) => self.is_local_address(ip.into())?,
            Host::Domain(name) if !is_localhost(name) => false,
            Host::Domain(_) if self.loopback || !self.networks.is_empty() => true,
            Host::Domain(_) => return Err(EgressError::Loopback),
        };
        if self.https_only && !is_https && !here {
            return Err(EgressError::Scheme);
        }
        Ok(())
    }

    /// Checks a URL and returns the addresses of its host that are allowed. The result only serves
    /// to reject a URL early: DNS may answer differently later, so each connection is checked
    /// again.
    ///
    /// # Errors
    /// The errors of [`check_url`](Self::check_url); [`EgressError::Name`] if the host has no
    /// allowed address; [`EgressError::Lookup`] if the DNS lookup failed.
    pub async fn resolve_url(&self, url: &Url) -> Result<Vec<IpAddr>, EgressError> {
        self.check_url(url)?;
        let name = match url.host().ok_or(EgressError::Url)? {
            Host::Ipv4(ip) => return Ok(vec![ip.into()]),
            Host::Ipv6(ip) => return Ok(vec![ip.into()]),
            Host::Domain(name) => name.parse().map_err(|_| EgressError::Url)?,
        };
        match self.resolve(name).await {
            Ok(allowed) => Ok(allowed.map(|address| address.ip()).collect()),
            Err(error) => Err(error.downcast_ref().cloned().unwrap_or(EgressError::Lookup)),
        }
    }

    /// Creates a builder of HTTP clients that connect only to allowed addresses and check each
    /// redirect. They use no proxy, because it would resolve names by itself.
    pub fn http_client_builder(&self) -> ClientBuilder {
        let redirects = self.clone();
        Client::builder()
            .dns_resolver(Arc::new(self.clone()))
            .redirect(Policy::custom(move |attempt| {
                redirects.check_redirect(attempt)
            }))
            .referer(false)
            .no_proxy()
    }

    fn is_local_address(&self, ip: IpAddr) -> Result<bool, EgressError> {
        self.check_address(ip)
            .map(|()| AddressScope::of(ip) == AddressScope::Loopback)
    }

    fn check_redirect(&self, attempt: Attempt<'_>) -> Action {
        if attempt.previous().len() > REDIRECTS_MAX {
            return attempt.error(EgressError::Redirects);
        }
        let was_https = attempt
            .previous()
            .last()
            .is_some_and(|url| url.scheme() == "https");
        if was_https && attempt.url().scheme() != "https" {
            return attempt.error(EgressError::Scheme);
        }
        match self.check_url(attempt.url()) {
            Ok(()) => attempt.follow(),
            Err(error) => attempt.error(error),
        }
    }
}

impl Resolve for EgressPolicy {
    fn resolve(&self, name: Name) -> Resolving {
        let this = self.clone();
        Box::pin(async move {
            let answered = match is_localhost(name.as_str()) {
                true => Box::new(LOOPBACK.into_iter().map(|ip| SocketAddr::new(ip, 0))) as Addrs,
                false => this.lookup.resolve(name).await?,
            };
            let answered = answered.take(RESOLVED_ADDRESSES_MAX);
            let mut allowed = answered
                .filter(move |address| this.check_address(address.ip()).is_ok())
                .peekable();
            match allowed.peek() {
                None => Err(EgressError::Name.into()),
                Some(_) => Ok(Box::new(allowed) as Addrs),
            }
        })
    }
}

const LOOPBACK: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    IpAddr::V6(Ipv6Addr::LOCALHOST),
];

/// Returns whether a host name is `localhost` or ends in `.localhost`. Such names denote this
/// machine regardless of DNS (RFC 6761, section 6.3).
fn is_localhost(name: &str) -> bool {
    let last_label = name
        .trim_end_matches('.')
        .rsplit('.')
        .next()
        .unwrap_or_default();
    last_label.eq_ignore_ascii_case("localhost")
}

/// Resolver of the operating system.
struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> =
                tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// Scope of an IP address, by which a policy allows or rejects it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressScope {
    /// The public internet.
    Public,
    /// This machine.
    Loopback,
    /// Private and link-local networks, which include the metadata services of clouds, and ranges
    /// that are no regular destinations: unspecified, multicast, documentation, translated
    /// addresses, reserved.
    Special,
}

impl AddressScope {
    /// Classifies `ip`. An IPv4-mapped IPv6 address (`::ffff:127.0.0.1`) is classified by its IPv4
    /// address.
    pub fn of(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(v4) => classify_v4(v4),
            IpAddr::V6(v6) => classify_v6(v6),
        }
    }
}

/// Returns true if a URL names this machine: `localhost` or a loopback address. Nothing is resolved.
pub fn is_loopback_host(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

fn classify_v4(ip: Ipv4Addr) -> AddressScope {
    match ip.octets() {
        [127, ..] => AddressScope::Loopback,
        // Private and shared address space (CGNAT).
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..]
        // Link-local. Azure's metadata service has an address that looks public.
        | [169, 254, ..] | [168, 63, 129, 16]
        | [0, ..] | [224..=255, ..]
        // Protocol assignments, documentation, 6to4 relays, benchmarks.
        | [192, 0, 0 | 2, _] | [192, 88, 99, _] | [198, 18 | 19, ..] | [198, 51, 100, _] | [203, 0, 113, _] => AddressScope::Special,
        _ => AddressScope::Public,
    }
}

fn classify_v6(ip: Ipv6Addr) -> AddressScope {
    match ip.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] => AddressScope::Loopback,
        // Protocol assignments (Teredo among them), 6to4, documentation: parts of the global unicast block.
        [0x2001, 0x0000..=0x01FF | 0x0DB8, ..] | [0x2002, ..] | [0x3FFF, 0x0000..=0x0FFF, ..] => {
            AddressScope::Special
        }
        [0x2000..=0x3FFF, ..] => AddressScope::Public,
        // Unique local, link-local and all others. NAT64 and IPv4-compatible addresses are
        // included, because they embed another address.
        _ => AddressScope::Special,
    }
}

/// A range of IP addresses in CIDR notation, such as `10.1.0.0/16`, or a single address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpNetwork {
    base: IpAddr,
    prefix_bits: u32,
}

/// Error for text that isn't `ADDRESS` or `ADDRESS/BITS`, or whose address has bits set after the
/// first `BITS`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a network: write an address, or a range such as 10.0.0.0/8, whose other bits must be 0"
)]
pub struct ParseNetworkError(String);

impl IpNetwork {
    /// Returns whether the range contains `ip`. An IPv4-mapped IPv6 address is treated as its IPv4
    /// address.
    pub fn contains(&self, ip: IpAddr) -> bool {
        let ((all, base), (ip_all, ip)) = (to_bits(self.base), to_bits(ip.to_canonical()));
        all == ip_all && (base ^ ip).checked_shr(all - self.prefix_bits).unwrap_or(0) == 0
    }
}

/// Returns the length of an address in bits (32 or 128), and the address as a number.
fn to_bits(ip: IpAddr) -> (u32, u128) {
    match ip {
        IpAddr::V4(v4) => (32, v4.to_bits().into()),
        IpAddr::V6(v6) => (128, v6.to_bits()),
    }
}

impl FromStr for IpNetwork {
    type Err = ParseNetworkError;

    fn from_str(written: &str) -> Result<Self, ParseNetworkError> {
        let network = || {
            let (base, bits) = written
                .split_once('/')
                .map_or((written, None), |(base, bits)| (base, Some(bits)));
            let base: IpAddr = base
                .parse()
                .ok()
                .filter(|ip: &IpAddr| ip.to_canonical() == *ip)?;
            let (all, value) = to_bits(base);
            let prefix_bits = match bits {
                Some(bits) => bits
                    .parse()
                    .ok()
                    .filter(|bits| *bits <= all && !written.contains('+'))?,
                None => all,
            };
            let after = all - prefix_bits;
            let clear = value
                .checked_shr(after)
                .and_then(|kept| kept.checked_shl(after))
                .unwrap_or(0)
                == value;
            clear.then_some(Self { base, prefix_bits })
        };
        network().ok_or_else(|| ParseNetworkError(written.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(ip: &str) -> AddressScope {
        AddressScope::of(ip.parse().unwrap())
    }

    /// Goal: each special block is known to its edges. Method: first and last address of each, and
    /// their neighbours.
    #[test]
    fn special_addresses_are_known() {
        for (ips, expected) in [
            (
                "127.0.0.0 127.0.0.1 127.255.255.255 ::1 ::ffff:127.0.0.1 ::ffff:7f00:1",
                AddressScope::Loopback,
            ),
            (
                "10.0.0.0 10.255.255.255 172.16.0.0 172.31.255.255 192.168.0.0 192.168.255.255",
                AddressScope::Special,
            ),
            (
                "100.64.0.0 100.100.100.200 100.127.255.255 fc00:: fd00:ec2::254 fdff:ffff::1",
                AddressScope::Special,
            ),
            ("::ffff:10.0.0.1 ::ffff:192.168.1.1", AddressScope::Special),
            (
                "169.254.0.0 169.254.169.254 169.254.255.255 168.63.129.16 fe80:: febf::1",
                AddressScope::Special,
            ),
            (
                "::ffff:169.254.169.254 ::ffff:a9fe:a9fe",
                AddressScope::Special,
            ),
            (
                "0.0.0.0 0.255.255.255 192.0.0.192 192.0.2.1 192.88.99.1 198.18.0.0 198.19.255.255",
                AddressScope::Special,
            ),
            (
                "198.51.100.7 203.0.113.9 224.0.0.1 239.255.255.255 240.0.0.0 255.255.255.255",
                AddressScope::Special,
            ),
            (
                ":: ::2 ::127.0.0.1 64:ff9b::7f00:1 64:ff9b:1::1 100::1 2001::1 2001:1ff:: 2001:db8::1",
                AddressScope::Special,
            ),
            (
                "2002:7f00:1:: 3fff::1 3fff:fff:: 4000:: 5f00::1 fec0::1 ff02::1 ::ffff:0.0.0.0",
                AddressScope::Special,
            ),
            (
                "1.1.1.1 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0",
                AddressScope::Public,
            ),
            (
                "169.253.255.255 169.255.0.0 168.63.129.17 172.15.255.255 172.32.0.0 192.167.255.255",
                AddressScope::Public,
            ),
            (
                "192.169.0.0 192.0.1.0 198.17.255.255 198.20.0.0 203.0.112.255 223.255.255.255",
                AddressScope::Public,
            ),
            (
                "2000:: 2001:200:: 2001:4860:4860::8888 2003::1 2606:4700::1111 3ffe::1 3fff:1000::",
                AddressScope::Public,
            ),
            ("::ffff:1.1.1.1", AddressScope::Public),
        ] {
            for ip in ips.split(' ') {
                assert_eq!(reach(ip), expected, "{ip}");
            }
        }
    }

    /// Goal: a range contains its addresses and no others. Method: edges, whole families, invalid
    /// ranges.
    #[test]
    fn networks() {
        let holds = |network: &str, ip: &str| {
            network
                .parse::<IpNetwork>()
                .unwrap()
                .contains(ip.parse().unwrap())
        };
        for (network, inside, outside) in [
            (
                "10.1.0.0/16",
                "10.1.255.255 10.1.0.0 ::ffff:10.1.2.3",
                "10.0.255.255 10.2.0.0 ::1",
            ),
            ("10.1.2.3", "10.1.2.3", "10.1.2.2 10.1.2.4"),
            ("10.1.2.2/31", "10.1.2.2 10.1.2.3", "10.1.2.1 10.1.2.4"),
            (
                "0.0.0.0/0",
                "0.0.0.0 255.255.255.255 ::ffff:1.2.3.4",
                "::1 2000::",
            ),
            ("fd00::/8", "fd00:: fdff::1", "fc00:: fe00:: 10.0.0.1"),
            ("::/0", ":: ffff::", "1.2.3.4"),
            ("::1", "::1", "::2 0.0.0.1"),
        ] {
            assert!(inside.split(' ').all(|ip| holds(network, ip)), "{network}");
            assert!(
                !outside.split(' ').any(|ip| holds(network, ip)),
                "{network}"
            );
        }
        for bad in [
            "",
            "10",
            "10.1.0.0/8",
            "10.1.0.0/33",
            "10.1.0.0/",
            "10.1.0.0/+16",
            "::/129",
            "::1/64",
            "a",
            "10.0.0.0/a",
        ] {
            assert!(bad.parse::<IpNetwork>().is_err(), "{bad}");
        }
        // It would hold no address, as such a one is judged as the IPv4 address in it.
        assert!("::ffff:10.0.0.1".parse::<IpNetwork>().is_err());
    }
}
