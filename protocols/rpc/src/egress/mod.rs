//! Where this process may connect to when somebody else named the place: metadata of authorization servers, addresses in
//! a peer's documents, redirects.
//!
//! A URL is judged after it was parsed as browsers do, so that `0x7f.1` and `2130706433` are what they lead to; a name is
//! judged by the addresses that it resolves to, and exactly those are connected to, so that no second answer can differ.

mod reach;

use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::{Action, Attempt, Policy};
use reqwest::{Client, ClientBuilder};
use url::{Host, Url};

pub use reach::{Network, NetworkError, Reach};

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
        let mut cause: Option<&dyn Error> = Some(error);
        while let Some(error) = cause {
            if let Some(found) = error.downcast_ref() {
                return Some(Self::clone(found));
            }
            cause = error.source();
        }
        None
    }
}

/// Where connections may go: by default to the public internet only.
#[derive(Clone)]
pub struct Egress {
    public: bool,
    loopback: bool,
    https_only: bool,
    networks: Vec<Network>,
    lookup: Arc<dyn Resolve>,
}

impl Egress {
    /// The public internet, over `http` or `https`.
    pub fn public() -> Self {
        Self { public: true, ..Self::nowhere() }
    }

    /// Nowhere, until a network is named.
    pub fn nowhere() -> Self {
        Self { public: false, loopback: false, https_only: false, networks: Vec::new(), lookup: Arc::new(SystemLookup) }
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
            _ => Err(EgressError::Address(ip)),
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
            Host::Domain(name) => self.name_is_here(name)?,
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
        self.check_address(ip).map(|()| Reach::of(ip) == Reach::Loopback)
    }

    fn name_is_here(&self, name: &str) -> Result<bool, EgressError> {
        let here = is_localhost(name);
        if here && !self.loopback && self.networks.is_empty() {
            return Err(EgressError::Loopback);
        }
        Ok(here)
    }

    fn follow(&self, attempt: Attempt<'_>) -> Action {
        if attempt.previous().len() > REDIRECTS_MAX {
            return attempt.error(EgressError::Redirects);
        }
        let was_https = attempt.previous().last().is_some_and(|url| url.scheme() == "https");
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
            let allowed: Vec<SocketAddr> =
                answered.filter(|address| this.check_address(address.ip()).is_ok()).collect();
            match allowed.is_empty() {
                true => Err(EgressError::Name.into()),
                false => Ok(Box::new(allowed.into_iter()) as Addrs),
            }
        })
    }
}

impl fmt::Debug for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Egress")
            .field("public", &self.public)
            .field("loopback", &self.loopback)
            .field("https_only", &self.https_only)
            .field("networks", &self.networks)
            .finish_non_exhaustive()
    }
}

const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// Names that are this machine's, whatever a name service says (RFC 6761, section 6.3).
fn is_localhost(name: &str) -> bool {
    let last_label = name.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    last_label.eq_ignore_ascii_case("localhost")
}

/// What the system resolves names by.
struct SystemLookup;

impl Resolve for SystemLookup {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: io::Result<Vec<SocketAddr>> =
                tokio::net::lookup_host((name.as_str(), 0)).await.map(Iterator::collect);
            Ok(Box::new(found?.into_iter()) as Addrs)
        })
    }
}
