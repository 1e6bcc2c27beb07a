//! Address of a request's client, behind reverse proxies that the operator trusts.

use std::net::IpAddr;
use std::sync::Arc;

use actix_web::HttpRequest;
use actix_web::dev::Extensions;

use crate::IpNetwork;

/// Header in which a proxy appends the address from which a request reached it.
pub const FORWARDED_FOR: &str = "x-forwarded-for";
/// Maximum number of addresses that are read of `X-Forwarded-For`, from its end. Beyond it, the last
/// one read counts as the client's.
pub const FORWARDED_HOPS_MAX: usize = 32;

/// Networks of the reverse proxies of a listener. Of their connections, the client's address is the
/// right-most one of `X-Forwarded-For` that isn't in these networks. Of all others the header is
/// ignored, because everybody can send it. The default is none. Clones share the networks.
#[derive(Debug, Clone, Default)]
pub struct TrustedProxies(Arc<[IpNetwork]>);

/// Mark of a connection from a trusted proxy.
struct FromProxy(TrustedProxies);

impl TrustedProxies {
    /// Returns whether an address belongs to a trusted proxy.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }

    /// Marks a new connection for [`client_address`] as that of a trusted proxy.
    pub(crate) fn mark(&self, data: &mut Extensions) {
        data.insert(FromProxy(self.clone()));
    }

    /// Returns the client of a request that came from `peer`. If that is a trusted proxy, `values` name
    /// the client: those of `X-Forwarded-For`, in their order. An entry that is no address ends the
    /// search at the proxy that sent it.
    pub fn client_of<'a>(
        &self,
        peer: IpAddr,
        values: impl DoubleEndedIterator<Item = &'a [u8]>,
    ) -> IpAddr {
        if !self.contains(peer) {
            return peer;
        }
        let entries = values
            .rev()
            .flat_map(|value| value.rsplit(|byte| *byte == b','));
        let mut client = peer;
        for entry in entries.take(FORWARDED_HOPS_MAX) {
            let Some(address) = parse_address(entry) else {
                return client;
            };
            client = address;
            if !self.contains(client) {
                return client;
            }
        }
        client
    }
}

impl FromIterator<IpNetwork> for TrustedProxies {
    fn from_iter<T: IntoIterator<Item = IpNetwork>>(networks: T) -> Self {
        Self(networks.into_iter().collect())
    }
}

/// Returns the address of a request's client: that of the connection, or the one that a trusted
/// proxy names. `None` if the transport has no addresses.
pub fn client_address(request: &HttpRequest) -> Option<IpAddr> {
    let peer = request.peer_addr()?.ip();
    let proxies = match request.conn_data::<FromProxy>() {
        Some(FromProxy(proxies)) => Some(proxies),
        // Those of an application whose connections another server has.
        None => request.app_data::<TrustedProxies>(),
    };
    Some(match proxies {
        None => peer,
        Some(proxies) => {
            let values = request.headers().get_all(FORWARDED_FOR);
            proxies.client_of(peer, values.map(|value| value.as_bytes()))
        }
    })
}

/// Parses an address, which some proxies write with a port, and IPv6 in brackets.
fn parse_address(entry: &[u8]) -> Option<IpAddr> {
    let entry = std::str::from_utf8(entry).ok()?.trim_ascii();
    if let Ok(address) = entry.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    if let Ok(socket) = entry.parse::<std::net::SocketAddr>() {
        return Some(socket.ip().to_canonical());
    }
    let bracketed = entry.strip_prefix('[')?.strip_suffix(']')?;
    bracketed.parse().ok().map(IpAddr::V6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(peer: &str, values: &[&str]) -> String {
        let proxies: TrustedProxies = ["10.0.0.0/8", "fd00::/8"]
            .iter()
            .map(|network| network.parse().unwrap())
            .collect();
        let values = values.iter().map(|value| value.as_bytes());
        proxies.client_of(peer.parse().unwrap(), values).to_string()
    }

    /// Goal: the client is the right-most address that no trusted proxy has, whatever a client wrote
    /// before it; an invalid entry names nobody. Method: rows.
    #[test]
    fn rightmost_untrusted_address() {
        for (values, expected) in [
            (&[][..], "10.0.0.1"),
            (&["192.0.2.7"], "192.0.2.7"),
            (&["198.51.100.1, 192.0.2.7"], "192.0.2.7"),
            (&["198.51.100.1, 192.0.2.7, 10.1.1.1"], "192.0.2.7"),
            (&["198.51.100.1", "192.0.2.7 , 10.1.1.1"], "192.0.2.7"),
            (&["192.0.2.7", "10.1.1.1"], "192.0.2.7"),
            (&["192.0.2.7:4711"], "192.0.2.7"),
            (&["[2001:db8::1]:4711"], "2001:db8::1"),
            (&["[2001:db8::1]"], "2001:db8::1"),
            (&["2001:db8::1, fd00::7"], "2001:db8::1"),
            (&["::ffff:192.0.2.7"], "192.0.2.7"),
            (&["10.2.2.2, 10.1.1.1"], "10.2.2.2"),
            (&["192.0.2.7, unknown"], "10.0.0.1"),
            (&["192.0.2.7, "], "10.0.0.1"),
            (&["192.0.2.7, _hidden, 10.1.1.1"], "10.1.1.1"),
        ] {
            assert_eq!(client("10.0.0.1", values), expected, "{values:?}");
        }
    }

    /// Goal: a long header costs no more than its limit. Method: the client at the limit, and one
    /// entry further.
    #[test]
    fn hops_are_bounded() {
        let behind = |hops: usize| {
            let value = format!("192.0.2.7{}", ", 10.1.1.1".repeat(hops));
            client("10.0.0.1", &[&value])
        };
        assert_eq!(behind(FORWARDED_HOPS_MAX - 1), "192.0.2.7");
        assert_eq!(behind(FORWARDED_HOPS_MAX), "10.1.1.1");
    }
}
