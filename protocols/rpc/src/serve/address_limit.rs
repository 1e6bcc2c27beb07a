//! Limit on the connections of one address, so that it can't take all of a listener.

use std::any::Any;
use std::collections::HashMap;
use std::net::{IpAddr, Shutdown};
use std::sync::Arc;

use actix_web::dev::Extensions;
use actix_web::rt::net::TcpStream;
use parking_lot::Mutex;
use socket2::SockRef;

use crate::network_of;

/// Response to a connection over the limit. The connection is closed without reading a request.
const OVER_LIMIT_RESPONSE: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    Content-Type: text/plain\r\nContent-Length: 42\r\nRetry-After: 1\r\nConnection: close\r\n\r\n\
    too many connections from this address\r\n\r\n";

/// Numbers of open connections of a listener by address: an IPv4 address, or the first 64 bits of
/// an IPv6 address. Clones share the numbers.
#[derive(Clone)]
pub struct AddressConnections {
    open: Arc<Mutex<HashMap<IpAddr, usize>>>,
    max: usize,
}

/// Connection that counts for its address until it is dropped.
pub struct CountedConnection {
    connections: AddressConnections,
    address: IpAddr,
}

impl AddressConnections {
    /// Creates the numbers of a listener. `max` is the maximum for one address, at least 1.
    pub fn new(max: usize) -> Self {
        Self {
            open: Arc::default(),
            max: max.max(1),
        }
    }

    /// Counts a new connection until its `data` is dropped. One over the limit is answered with 503
    /// and closed.
    pub(crate) fn admit(&self, connection: &dyn Any, data: &mut Extensions) {
        let Some(stream) = connection.downcast_ref::<TcpStream>() else {
            return;
        };
        let Ok(peer) = stream.peer_addr() else {
            return;
        };
        if let Some(counted) = self.count(peer.ip()) {
            data.insert(counted);
            return;
        }
        let socket = SockRef::from(stream);
        // The peer may be gone already.
        let _ = socket.send(OVER_LIMIT_RESPONSE);
        let _ = socket.shutdown(Shutdown::Both);
    }

    /// Counts a connection of an address until the result is dropped. `None` if the address has the
    /// maximum; the caller closes the connection.
    pub fn count(&self, peer: IpAddr) -> Option<CountedConnection> {
        let address = network_of(peer);
        let mut open = self.open.lock();
        let count = open.entry(address).or_default();
        if *count >= self.max {
            drop(open);
            let (peer, max) = (peer.to_string(), self.max);
            callboard_message::log::warn!(by: &peer, peer, address_connections_max = max, "closed a connection: its address has too many");
            return None;
        }
        *count += 1;
        Some(CountedConnection {
            connections: self.clone(),
            address,
        })
    }
}

impl Drop for CountedConnection {
    fn drop(&mut self) {
        let mut open = self.connections.open.lock();
        if let Some(count) = open.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: an address has at most its share, others aren't touched, and a closed connection makes
    /// room. Method: the limit and one more, for two networks.
    #[test]
    fn share_of_an_address() {
        let connections = AddressConnections::new(2);
        let of = |address: &str| connections.count(address.parse().unwrap());
        let first = of("2001:db8::1").unwrap();
        let _second = of("2001:db8::2").unwrap();
        assert!(of("2001:db8::3").is_none());
        let other = of("2001:db8:0:1::1");
        assert!(other.is_some());
        drop(first);
        let _third = of("2001:db8::3").unwrap();
        assert!(of("2001:db8::4").is_none());
        drop(other);
        assert_eq!(connections.open.lock().len(), 1);
    }

    /// Goal: the response is whole. Method: compare the declared length with the body.
    #[test]
    fn response_is_whole() {
        let text = std::str::from_utf8(OVER_LIMIT_RESPONSE).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())));
    }
}
