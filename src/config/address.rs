//! URLs, socket addresses and network ranges in topologies.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use callboard_rpc::IpNetwork;
use schemars::JsonSchema;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};
use url::Url;

/// An `http` or `https` URL, without user, password or fragment.
#[derive(Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(with = "String")]
#[serde(try_from = "String")]
pub struct WebUrl(Url);

impl WebUrl {
    /// Returns the URL.
    pub fn url(&self) -> &Url {
        &self.0
    }
}

// The query may contain a secret.
impl fmt::Debug for WebUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.origin().ascii_serialization())
    }
}

impl TryFrom<String> for WebUrl {
    type Error = &'static str;

    fn try_from(written: String) -> Result<Self, Self::Error> {
        let url = Url::parse(&written).map_err(
            |_| "this is not a URL: write it with its scheme, as in https://host.example",
        )?;
        match url.scheme() {
            "http" | "https" if url.host().is_none() => Err("this is not a URL"),
            "http" | "https" if !url.username().is_empty() || url.password().is_some() => {
                Err("a URL can't have user and password here")
            }
            "http" | "https" if url.fragment().is_some() => Err("a URL can't have a fragment here"),
            "http" | "https" => Ok(Self(url)),
            _ => Err("this is not an http or https URL"),
        }
    }
}

/// A range of IP addresses in CIDR notation, or a single address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(with = "String")]
#[serde(try_from = "String")]
pub struct NetworkRange(IpNetwork);

impl NetworkRange {
    /// Returns the range.
    pub fn network(self) -> IpNetwork {
        self.0
    }
}

impl TryFrom<String> for NetworkRange {
    type Error = &'static str;

    fn try_from(written: String) -> Result<Self, Self::Error> {
        // The parser's own error repeats the input.
        let network = written.parse().map(Self);
        network.map_err(
            |_| "write an IP address, or a network such as 10.0.0.0/8 with all other bits zero",
        )
    }
}

/// Parses the address of a socket: an IP address and a port.
///
/// # Errors
/// Returns the reason with the remedy. It doesn't repeat the text, which may be a secret.
pub(crate) fn parse_socket_address(written: &str) -> Result<SocketAddr, &'static str> {
    written.parse().map_err(|_| socket_address_error(written))
}

/// Returns the reason why a text is no address of a socket.
fn socket_address_error(written: &str) -> &'static str {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    if written.contains("://") {
        return "it must be an address without scheme and path, as in 127.0.0.1:8080";
    }
    if written.parse::<IpAddr>().is_ok() {
        return "the port is missing: write it after the IP address, as in 127.0.0.1:8080 or [::1]:8080";
    }
    let (host, port) = match written.rsplit_once(':') {
        Some(parts) => parts,
        None if is_number(written) => ("", written),
        None => (written, ""),
    };
    if is_number(port) && port.parse::<u16>().is_err() {
        "the port is too large: write a port up to 65535"
    } else if host.eq_ignore_ascii_case("localhost") {
        "a name can't be used here: write 127.0.0.1 in place of localhost, as in 127.0.0.1:8080"
    } else if is_number(port) && matches!(host, "" | "*") {
        "the IP address is missing: write 127.0.0.1 before the port for this machine alone, or 0.0.0.0 for all of its addresses"
    } else if is_number(port) {
        "a name can't be used here: write an IP address before the port, as in 127.0.0.1:8080"
    } else {
        "it must be an IP address and a port, as in 127.0.0.1:8080"
    }
}

/// Address of a socket in a topology.
struct SocketAddress(SocketAddr);

impl<'de> Deserialize<'de> for SocketAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(SocketAddressVisitor)
    }
}

struct SocketAddressVisitor;

impl Visitor<'_> for SocketAddressVisitor {
    type Value = SocketAddress;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an IP address and a port in quotes, as in \"127.0.0.1:8080\"")
    }

    fn visit_str<E: de::Error>(self, written: &str) -> Result<SocketAddress, E> {
        parse_socket_address(written)
            .map(SocketAddress)
            .map_err(E::custom)
    }
}

/// Deserializes the address of a socket, for `deserialize_with`.
pub(super) fn socket_address<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<SocketAddr, D::Error> {
    SocketAddress::deserialize(deserializer).map(|address| address.0)
}

/// Deserializes the address of a socket or none, for `deserialize_with`.
pub(super) fn optional_socket_address<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<SocketAddr>, D::Error> {
    let address = Option::<SocketAddress>::deserialize(deserializer)?;
    Ok(address.map(|address| address.0))
}
