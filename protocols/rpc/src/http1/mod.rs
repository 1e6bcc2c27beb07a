//! HTTP/1.1 to servers, on hyper's connections (feature `client`).
//!
//! Whoever sends a request drives its connection meanwhile: no task stands between the two, so that an exchange wakes its
//! caller once, when the response is there. While nobody uses it a connection waits among the idle ones.
//!
//! It follows no redirects and no proxy variables: both would take data, and credentials, where nobody configured them to
//! go.

mod connection;
mod response;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{io, vec};

use bytes::Bytes;
use futures::future::BoxFuture;
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderMap, HeaderValue};
use hyper::{Method, Request, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use parking_lot::Mutex;
use reqwest::dns::Resolve;
use rustls::crypto::ring;
use tokio::runtime::{Handle, Id};
use tokio::time::timeout;
use tower_service::Service;
use url::{Position, Url};

use crate::Egress;
use connection::{Connection, Idle, Unsent};

pub use connection::{IDLE_CONNECTIONS_MAX, IDLE_TIME_MAX};
pub use response::{BodyError, EventStream, Place, RETRY_DEFAULT, RETRY_MAX, Response};

/// Why there is no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NetError {
    /// No connection could be made: the server has seen nothing of the request.
    #[error("can't connect to the server")]
    Unreachable,
    /// The connection broke: whether the server acted is unknown.
    #[error("the connection to the server broke")]
    Broken,
}

/// Where requests go: a URL without user, password and fragment, in the parts that HTTP wants.
#[derive(Debug, Clone)]
pub struct Target {
    /// Whole, for making a connection.
    origin: Uri,
    /// Path and query.
    path: Uri,
    host: HeaderValue,
}

impl Target {
    /// `None` where the URL can't stand in an HTTP request.
    pub fn new(url: &Url) -> Option<Arc<Self>> {
        let host = &url[Position::BeforeHost..Position::AfterPort];
        Some(Arc::new(Self {
            origin: url[..Position::BeforePath].parse().ok()?,
            path: url[Position::BeforePath..Position::AfterQuery]
                .parse()
                .ok()?,
            host: HeaderValue::from_str(host).ok()?,
        }))
    }
}

/// Sends requests; its clones share its connections.
#[derive(Clone)]
pub struct Client {
    connector: Connector,
    idle: Arc<Idle>,
}

impl Client {
    /// A client without connections yet.
    pub fn new(connector: Connector) -> Self {
        Self {
            connector,
            idle: Arc::default(),
        }
    }

    /// Sends a request and waits for the head of its response. Dropped before that, it closes the connection.
    ///
    /// A kept connection that turns out to be closed before anything was sent is replaced by another.
    ///
    /// # Errors
    /// See [`NetError`].
    pub async fn send(
        &self,
        target: &Target,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response, NetError> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = target.path.clone();
        *request.headers_mut() = headers;
        request.headers_mut().insert(HOST, target.host.clone());
        while let Some(kept) = self.idle.take(&target.origin) {
            match kept.send(request).await {
                Ok(response) => return Ok(Response::new(response, &self.idle)),
                Err(Unsent::Closed(unsent)) => request = *unsent,
                Err(Unsent::Broken) => return Err(NetError::Broken),
            }
        }
        let made = self.connector.connect(&target.origin).await?;
        let answered = made.send(request).await.map_err(|_| NetError::Broken)?;
        Ok(Response::new(answered, &self.idle))
    }
}

/// Runtimes that one agent's requests come from, and that are remembered: an arbiter or a listener's worker is one.
pub const RUNTIMES_MAX: usize = 64;

/// The HTTP clients of one agent.
///
/// A connection is woken by the runtime that made it. So each runtime has a client, with connections of its own: a
/// request then wakes no other thread.
#[derive(Clone)]
pub struct Clients(Arc<Inner>);

struct Inner {
    connector: Connector,
    made: Mutex<Vec<(Id, Client)>>,
}

impl Clients {
    /// Without connections yet; how they are made says `connector`.
    pub fn new(connector: Connector) -> Self {
        Self(Arc::new(Inner {
            connector,
            made: Mutex::default(),
        }))
    }

    /// The client of this runtime.
    pub fn here(&self) -> Client {
        let fresh = || Client::new(self.0.connector.clone());
        let Ok(runtime) = Handle::try_current() else {
            return fresh();
        };
        let id = runtime.id();
        let mut made = self.0.made.lock();
        if let Some((_, client)) = made.iter().find(|(of, _)| *of == id) {
            return client.clone();
        }
        if made.len() == RUNTIMES_MAX {
            made.remove(0);
        }
        let client = fresh();
        made.push((id, client.clone()));
        client
    }
}

/// Makes connections, with TLS where the URL says so. Its clones are one.
#[derive(Clone)]
pub struct Connector {
    https: HttpsConnector<HttpConnector<Lookup>>,
    connect_timeout: Duration,
}

impl Connector {
    /// A connection that isn't made in `connect_timeout` counts as unreachable.
    ///
    /// # Errors
    /// Where the TLS library has none of the protocol versions that are safe.
    pub fn new(connect_timeout: Duration) -> Result<Self, rustls::Error> {
        Self::looking_up(Lookup(None), connect_timeout)
    }

    /// One for places that somebody else named: names lead only where `egress` allows. Check each URL
    /// ([`Egress::check`]) before: nobody is asked about an address.
    ///
    /// # Errors
    /// Like [`new`](Self::new).
    pub fn guarded(connect_timeout: Duration, egress: Egress) -> Result<Self, rustls::Error> {
        Self::looking_up(Lookup(Some(egress)), connect_timeout)
    }

    fn looking_up(lookup: Lookup, connect_timeout: Duration) -> Result<Self, rustls::Error> {
        let mut http = HttpConnector::new_with_resolver(lookup);
        http.enforce_http(false);
        http.set_nodelay(true);
        let https = HttpsConnectorBuilder::new()
            .with_provider_and_webpki_roots(Arc::new(ring::default_provider()))?
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        Ok(Self {
            https,
            connect_timeout,
        })
    }

    pub(crate) async fn connect(&self, origin: &Uri) -> Result<Connection, NetError> {
        // Boxed: it is large, and most requests find a connection that was kept.
        let connecting = Box::pin(async {
            let stream = self
                .https
                .clone()
                .call(origin.clone())
                .await
                .map_err(|_| NetError::Unreachable)?;
            http1::handshake(stream)
                .await
                .map_err(|_| NetError::Unreachable)
        });
        let (sender, driver) = timeout(self.connect_timeout, connecting)
            .await
            .map_err(|_| NetError::Unreachable)??;
        Ok(Connection::new(origin.clone(), sender, driver))
    }
}

/// What names lead to: what the system says, as far as the guard, where there is one, lets it.
#[derive(Clone)]
struct Lookup(Option<Egress>);

impl Service<Name> for Lookup {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let guard = self.0.clone();
        Box::pin(async move {
            let found: Vec<SocketAddr> = match guard {
                None => tokio::net::lookup_host((name.as_str(), 0)).await?.collect(),
                Some(egress) => {
                    let name = name.as_str().parse().map_err(io::Error::other)?;
                    egress
                        .resolve(name)
                        .await
                        .map_err(io::Error::other)?
                        .collect()
                }
            };
            Ok(found.into_iter())
        })
    }
}

#[cfg(test)]
mod clients_tests {
    use std::time::Duration;

    use super::*;

    /// Goal: each runtime has a client of its own, and those remembered are bounded. Method: one runtime more than the
    /// bound, each of which asks twice.
    #[test]
    fn one_a_runtime() {
        let clients = Clients::new(Connector::new(Duration::from_secs(5)).unwrap());
        let remembered = |clients: &Clients| clients.0.made.lock().len();
        clients.here();
        assert_eq!(remembered(&clients), 0, "this thread has no runtime");
        let runtimes: Vec<_> = (0..=RUNTIMES_MAX)
            .map(|_| {
                tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .unwrap()
            })
            .collect();
        for (nth, runtime) in runtimes.iter().enumerate() {
            let _here = runtime.enter();
            clients.here();
            clients.here();
            assert_eq!(remembered(&clients), (nth + 1).min(RUNTIMES_MAX));
        }
    }
}
