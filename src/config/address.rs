//! URLs and network ranges in topologies.

use std::fmt;

use callboard_rpc::IpNetwork;
use serde::Deserialize;
use url::Url;

/// An `http` or `https` URL, without user, password or fragment.
#[derive(Clone, PartialEq, Eq, Deserialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
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
