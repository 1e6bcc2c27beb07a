//! Limit on the connections of one address, so that it can't take all of a listener.

use std::collections::HashMap;
use std::net::{IpAddr, Shutdown};
use std::sync::Arc;

use actix_web::body::BoxBody;
use actix_web::dev::{Extensions, ServiceRequest, ServiceResponse};
use actix_web::http::header::RETRY_AFTER;
use actix_web::middleware::Next;
use actix_web::rt::net::TcpStream;
use actix_web::{Error, HttpResponse};
use parking_lot::Mutex;
use socket2::SockRef;

use crate::network_of;

/// Response to a connection over the limit, sent before any request.
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

/// Mark of a connection over the limit, whose requests aren't handled.
struct OverLimit;

/// Passes a request on, unless its connection is over the limit of its address: then it is answered
/// with 503. [`AddressConnections::admit`] has closed such a connection, but a request that had
/// arrived before is still read.
pub(crate) async fn reject_over_limit(
    request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse, Error> {
    if request.conn_data::<OverLimit>().is_none() {
        return next.call(request).await;
    }
    let rejection = HttpResponse::ServiceUnavailable()
        .force_close()
        .insert_header((RETRY_AFTER, "1"))
        .finish();
    Ok(request.into_response(rejection))
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
    /// and closed, and marked in `data` for [`reject_over_limit`].
    pub(crate) fn admit(&self, stream: &TcpStream, peer: IpAddr, data: &mut Extensions) {
        if let Some(counted) = self.count(peer) {
            data.insert(counted);
            return;
        }
        data.insert(OverLimit);
        // Closed now, so that connections without a request don't take the listener's places.
        let socket = SockRef::from(stream);
        // The peer may be gone already.
        let _ = socket.send(OVER_LIMIT_RESPONSE);
        let _ = socket.shutdown(Shutdown::Both);
    }

    /// Counts a connection of an address until the result is dropped. `None` if the address has the
    /// maximum; the caller closes the connection.
    pub fn count(&self, peer: IpAddr) -> Option<CountedConnection> {
        let counted = self.try_count(peer);
        if counted.is_none() {
            let (peer, max) = (peer.to_string(), self.max);
            callboard_message::log::warn!(by: &peer, peer, address_connections_max = max, "closed a connection: its address has too many");
        }
        counted
    }

    /// Counts a connection like [`count`](Self::count), without a line in the log.
    pub(crate) fn try_count(&self, peer: IpAddr) -> Option<CountedConnection> {
        let address = network_of(peer);
        let mut open = self.open.lock();
        let count = open.entry(address).or_default();
        if *count >= self.max {
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
    use std::future::ready;
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use actix_web::web;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::serve::{ListenOptions, serve};

    /// Goal: a request on a connection over the limit isn't executed. Method: 20 connections with
    /// their requests before the server starts, two of which it takes.
    #[tokio::test]
    async fn requests_over_the_limit_are_not_executed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut clients = Vec::new();
        for _ in 0..20 {
            let mut client = TcpStream::connect(address).await.unwrap();
            let request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
            client.write_all(request).await.unwrap();
            clients.push(client);
        }
        let listen = ListenOptions {
            address_connections_max: Some(2),
            ..ListenOptions::default()
        };
        let executed = Arc::<AtomicUsize>::default();
        let count = executed.clone();
        let bound = serve(listener, &listen, move |config| {
            let count = count.clone();
            let handler = move || {
                count.fetch_add(1, SeqCst);
                ready(HttpResponse::NoContent().finish())
            };
            config.route("/", web::get().to(handler));
        })
        .unwrap();
        let server = bound.server.handle();
        let running = tokio::spawn(bound.server);
        for client in &mut clients[2..] {
            let mut refused = Vec::new();
            client.read_to_end(&mut refused).await.unwrap();
            assert_eq!(
                String::from_utf8_lossy(&refused),
                String::from_utf8_lossy(OVER_LIMIT_RESPONSE)
            );
        }
        for client in &mut clients[..2] {
            let mut status = [0; 12];
            client.read_exact(&mut status).await.unwrap();
            assert_eq!(&status, b"HTTP/1.1 204");
        }
        drop(clients);
        server.stop(true).await;
        running.await.unwrap().unwrap();
        assert_eq!(executed.load(SeqCst), 2);
    }

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
