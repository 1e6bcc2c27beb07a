//! Where this process may connect to when somebody else named the place: metadata of authorization servers, addresses in
//! a peer's documents, redirects.
//!
//! A URL is judged after it was parsed as browsers do, so that `0x7f.1` and `2130706433` are what they lead to; a name is
//! judged by the addresses that it resolves to, and exactly those are connected to, so that no second answer can differ.

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

/// Most redirects of one request.
pub const REDIRECTS_MAX: usize = 5;
/// Most addresses that are taken of one answer of the name service.
pub const ADDRESSES_MAX: usize = 16;

/// Why there is no connection. Only [`Lookup`](Self::Lookup) is worth another try.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EgressError {
    /// Name a place by an absolute URL.
    #[error("not an absolute URL")]
    Url,
    /// Use `https`, or `http` where that is allowed.
    #[error("the URL's scheme is not allowed here")]
    Scheme,
    /// Leave user and password out of the URL.
    #[error("a URL with a user or password in it is not followed")]
    Credentials,
    /// Allow the address's network, if this place is meant.
    #[error("connections to {0} are not allowed")]
    Address(IpAddr),
    /// Allow loopback, if this place is meant.
    #[error("connections to this machine are not allowed")]
    Loopback,
    /// Allow the network of one of its addresses, if this place is meant.
    #[error("the name has no address to which connections are allowed")]
    Name,
    /// The name service has no answer now: try again.
    #[error("the name could not be looked up")]
    Lookup,
    /// Name the place where the redirects end.
    #[error("more than {REDIRECTS_MAX} redirects")]
    Redirects,
}

impl EgressError {
    /// What the guard said, if it is why a request failed: it stands somewhere among the causes of the client's error.
    pub fn among_causes(error: &reqwest::Error) -> Option<Self> {
        let mut causes = successors(Some(error as &dyn Error), |error| (**error).source());
        causes.find_map(|error| error.downcast_ref().cloned())
    }
}

/// Where connections may go: by default to the public internet only.
#[derive(Debug, Clone)]
pub struct Egress {
    public: bool,
    loopback: bool,
    https_only: bool,
    networks: Vec<Network>,
    #[debug(skip)]
    lookup: Arc<dyn Resolve>,
}

impl Egress {
    /// The public internet, over `http` or `https`.
    pub fn public() -> Self {
        Self {
            public: true,
            ..Self::nowhere()
        }
    }

    /// Nowhere, until a network is named.
    pub fn nowhere() -> Self {
        Self {
            public: false,
            loopback: false,
            https_only: false,
            networks: Vec::new(),
            lookup: Arc::new(SystemLookup),
        }
    }

    /// This machine too: for development and tests.
    pub fn with_loopback(mut self) -> Self {
        self.loopback = true;
        self
    }

    /// These addresses too, whatever they are.
    pub fn with_network(mut self, network: Network) -> Self {
        self.networks.push(network);
        self
    }

    /// `https` alone; `http` stays where it leads to this machine, if that is allowed.
    pub fn https_only(mut self) -> Self {
        self.https_only = true;
        self
    }

    /// Asks this name service in place of the system's; its answers are judged all the same.
    pub fn with_lookup(mut self, lookup: Arc<dyn Resolve>) -> Self {
        self.lookup = lookup;
        self
    }

    /// Whether this address may be connected to.
    ///
    /// # Errors
    /// [`EgressError::Loopback`], [`EgressError::Address`].
    pub fn check_address(&self, ip: IpAddr) -> Result<(), EgressError> {
        if self.networks.iter().any(|network| network.contains(ip)) {
            return Ok(());
        }
        match Reach::of(ip) {
            Reach::Public if self.public => Ok(()),
            Reach::Loopback if self.loopback => Ok(()),
            Reach::Loopback => Err(EgressError::Loopback),
            Reach::Public | Reach::Special => Err(EgressError::Address(ip)),
        }
    }

    /// Reads a URL that somebody else wrote, and checks it.
    ///
    /// # Errors
    /// [`EgressError::Url`], and those of [`check`](Self::check).
    pub fn read(&self, url: &str) -> Result<Url, EgressError> {
        let url = Url::parse(url).map_err(|_| EgressError::Url)?;
        self.check(&url)?;
        Ok(url)
    }

    /// Whether a URL may be requested, as far as it can be told without the name service; the rest is told when a
    /// client of [`client_builder`](Self::client_builder) connects. Check every URL: a client asks no name service about
    /// an address.
    ///
    /// # Errors
    /// All but [`EgressError::Name`] and [`EgressError::Lookup`].
    pub fn check(&self, url: &Url) -> Result<(), EgressError> {
        let is_https = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(EgressError::Scheme),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(EgressError::Credentials);
        }
        let here = match url.host().ok_or(EgressError::Url)? {
            Host::Ipv4(ip) => self.address_is_here(ip.into())?,
            Host::Ipv6(ip) => self.address_is_here(ip.into())?,
            Host::Domain(name) if !is_localhost(name) => false,
            Host::Domain(_) if self.loopback || !self.networks.is_empty() => true,
            Host::Domain(_) => return Err(EgressError::Loopback),
        };
        if self.https_only && !is_https && !here {
            return Err(EgressError::Scheme);
        }
        Ok(())
    }

    /// The addresses that a URL leads to now, as far as connections to them are allowed. It says early what a client's
    /// connection would say; a later answer of the name service may be another.
    ///
    /// # Errors
    /// Those of [`check`](Self::check); [`EgressError::Name`] where the name has none that is allowed;
    /// [`EgressError::Lookup`].
    pub async fn look_up(&self, url: &Url) -> Result<Vec<IpAddr>, EgressError> {
        self.check(url)?;
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

    /// A client's builder: it resolves names through this, checks each redirect, and asks no proxy (which would resolve
    /// names by itself).
    pub fn client_builder(&self) -> ClientBuilder {
        let redirects = self.clone();
        Client::builder()
            .dns_resolver(Arc::new(self.clone()))
            .redirect(Policy::custom(move |attempt| redirects.follow(attempt)))
            .referer(false)
            .no_proxy()
    }

    fn address_is_here(&self, ip: IpAddr) -> Result<bool, EgressError> {
        self.check_address(ip)
            .map(|()| Reach::of(ip) == Reach::Loopback)
    }

    fn follow(&self, attempt: Attempt<'_>) -> Action {
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
        match self.check(attempt.url()) {
            Ok(()) => attempt.follow(),
            Err(error) => attempt.error(error),
        }
    }
}

impl Resolve for Egress {
    fn resolve(&self, name: Name) -> Resolving {
        let this = self.clone();
        Box::pin(async move {
            let answered = match is_localhost(name.as_str()) {
                true => Box::new(LOOPBACK.into_iter().map(|ip| SocketAddr::new(ip, 0))) as Addrs,
                false => this.lookup.resolve(name).await?,
            };
            let answered = answered.take(ADDRESSES_MAX);
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

/// Names that are this machine's, whatever a name service says (RFC 6761, section 6.3).
fn is_localhost(name: &str) -> bool {
    let last_label = name
        .trim_end_matches('.')
        .rsplit('.')
        .next()
        .unwrap_or_default();
    last_label.eq_ignore_ascii_case("localhost")
}

/// What the system resolves names by.
struct SystemLookup;

impl Resolve for SystemLookup {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> =
                tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// What an address leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reach {
    /// The public internet.
    Public,
    /// This machine.
    Loopback,
    /// This network or this link, and with it the metadata services of clouds; or nothing that one connects to: unspecified,
    /// multicast, documentation, translation of another address, reserved.
    Special,
}

impl Reach {
    /// What `ip` leads to. An IPv4 address in an IPv6 one (`::ffff:127.0.0.1`) is judged as what it is.
    pub fn of(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(v4) => of_v4(v4),
            IpAddr::V6(v6) => of_v6(v6),
        }
    }
}

fn of_v4(ip: Ipv4Addr) -> Reach {
    match ip.octets() {
        [127, ..] => Reach::Loopback,
        // Private and shared (CGNAT).
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..]
        // This link. Azure's metadata service has an address that looks public.
        | [169, 254, ..] | [168, 63, 129, 16]
        | [0, ..] | [224..=255, ..]
        // Protocol assignments, documentation, 6to4 relays, benchmarks.
        | [192, 0, 0 | 2, _] | [192, 88, 99, _] | [198, 18 | 19, ..] | [198, 51, 100, _] | [203, 0, 113, _] => Reach::Special,
        _ => Reach::Public,
    }
}

fn of_v6(ip: Ipv6Addr) -> Reach {
    match ip.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] => Reach::Loopback,
        // Protocol assignments (Teredo among them), 6to4, documentation: parts of the global unicast block.
        [0x2001, 0x0000..=0x01FF | 0x0DB8, ..] | [0x2002, ..] | [0x3FFF, 0x0000..=0x0FFF, ..] => {
            Reach::Special
        }
        [0x2000..=0x3FFF, ..] => Reach::Public,
        // Unique local, link-local and everything else, NAT64 and IPv4-compatible addresses too: they carry another address.
        _ => Reach::Special,
    }
}

/// A range of addresses, written `10.1.0.0/16` or as one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    base: IpAddr,
    prefix_bits: u32,
}

/// Write `ADDRESS` or `ADDRESS/BITS`, with no bit set after them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a network: write an address, or an address / its leading bits, all others zero"
)]
pub struct NetworkError(String);

impl Network {
    /// Whether `ip`, or the IPv4 address in it, is in the range.
    pub fn contains(&self, ip: IpAddr) -> bool {
        let ((all, base), (ip_all, ip)) = (bits_of(self.base), bits_of(ip.to_canonical()));
        all == ip_all && (base ^ ip).checked_shr(all - self.prefix_bits).unwrap_or(0) == 0
    }
}

/// How many bits an address has, and they.
fn bits_of(ip: IpAddr) -> (u32, u128) {
    match ip {
        IpAddr::V4(v4) => (32, v4.to_bits().into()),
        IpAddr::V6(v6) => (128, v6.to_bits()),
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(written: &str) -> Result<Self, NetworkError> {
        let network = || {
            let (base, bits) = written
                .split_once('/')
                .map_or((written, None), |(base, bits)| (base, Some(bits)));
            let base: IpAddr = base
                .parse()
                .ok()
                .filter(|ip: &IpAddr| ip.to_canonical() == *ip)?;
            let (all, value) = bits_of(base);
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
        network().ok_or_else(|| NetworkError(written.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(ip: &str) -> Reach {
        Reach::of(ip.parse().unwrap())
    }

    /// Goal: each special block is known to its edges. Method: first and last address of each, and their neighbours.
    #[test]
    fn special_addresses_are_known() {
        for (ips, expected) in [
            (
                "127.0.0.0 127.0.0.1 127.255.255.255 ::1 ::ffff:127.0.0.1 ::ffff:7f00:1",
                Reach::Loopback,
            ),
            (
                "10.0.0.0 10.255.255.255 172.16.0.0 172.31.255.255 192.168.0.0 192.168.255.255",
                Reach::Special,
            ),
            (
                "100.64.0.0 100.100.100.200 100.127.255.255 fc00:: fd00:ec2::254 fdff:ffff::1",
                Reach::Special,
            ),
            ("::ffff:10.0.0.1 ::ffff:192.168.1.1", Reach::Special),
            (
                "169.254.0.0 169.254.169.254 169.254.255.255 168.63.129.16 fe80:: febf::1",
                Reach::Special,
            ),
            ("::ffff:169.254.169.254 ::ffff:a9fe:a9fe", Reach::Special),
            (
                "0.0.0.0 0.255.255.255 192.0.0.192 192.0.2.1 192.88.99.1 198.18.0.0 198.19.255.255",
                Reach::Special,
            ),
            (
                "198.51.100.7 203.0.113.9 224.0.0.1 239.255.255.255 240.0.0.0 255.255.255.255",
                Reach::Special,
            ),
            (
                ":: ::2 ::127.0.0.1 64:ff9b::7f00:1 64:ff9b:1::1 100::1 2001::1 2001:1ff:: 2001:db8::1",
                Reach::Special,
            ),
            (
                "2002:7f00:1:: 3fff::1 3fff:fff:: 4000:: 5f00::1 fec0::1 ff02::1 ::ffff:0.0.0.0",
                Reach::Special,
            ),
            (
                "1.1.1.1 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0",
                Reach::Public,
            ),
            (
                "169.253.255.255 169.255.0.0 168.63.129.17 172.15.255.255 172.32.0.0 192.167.255.255",
                Reach::Public,
            ),
            (
                "192.169.0.0 192.0.1.0 198.17.255.255 198.20.0.0 203.0.112.255 223.255.255.255",
                Reach::Public,
            ),
            (
                "2000:: 2001:200:: 2001:4860:4860::8888 2003::1 2606:4700::1111 3ffe::1 3fff:1000::",
                Reach::Public,
            ),
            ("::ffff:1.1.1.1", Reach::Public),
        ] {
            for ip in ips.split(' ') {
                assert_eq!(reach(ip), expected, "{ip}");
            }
        }
    }

    /// Goal: a range holds its addresses and no other. Method: edges, whole families, what is no range.
    #[test]
    fn networks() {
        let holds = |network: &str, ip: &str| {
            network
                .parse::<Network>()
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
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
        // It would hold no address, as such a one is judged as the IPv4 address in it.
        assert!("::ffff:10.0.0.1".parse::<Network>().is_err());
    }
}
