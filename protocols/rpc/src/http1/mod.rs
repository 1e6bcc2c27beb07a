//! HTTP/1.1 client on hyper's connections (feature `client`).
//!
//! A connection is driven by the task that awaits its response, not by a task of its own, so that a
//! request wakes its caller only once, when the response has arrived. Unused connections wait in a
//! pool.
//!
//! The client follows no redirects and ignores proxy variables: both would send data and
//! credentials to servers that are not configured.

mod connection;
mod response;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::iter::successors;
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
use tokio::runtime::{Handle, Id};
use tokio::time::timeout;
use tower_service::Service;
use url::{Position, Url};

use crate::tls::find_tls_error;
use crate::{CertificateFault, ClientTls, EgressError, EgressPolicy};
use connection::{HttpConnection, IdleConnections, RequestSendError};

pub use connection::{IDLE_CONNECTION_AGE_MAX, IDLE_CONNECTIONS_MAX};
pub use response::{
    BodyError, ClientResponse, STREAM_RETRY_DEFAULT, STREAM_RETRY_MAX, SseStream, StreamPosition,
};

/// Network failure of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NetError {
    /// No connection could be established. No part of the request was sent.
    #[error("can't connect to the server: {0}")]
    Unreachable(ConnectFailure),
    /// The connection broke during the request. It is unknown whether the server processed the
    /// request.
    #[error("the connection to the server broke; whether it processed the request is unknown")]
    Broken,
}

/// Reason why no connection could be established. The text names no address, because callers of a
/// gateway may see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectFailure {
    /// The host is there, and no process listens at the port.
    #[error("connection refused")]
    Refused,
    /// The host name can't be resolved.
    #[error("the host name can't be resolved (DNS)")]
    Name,
    /// The egress policy forbids all addresses of the host name.
    #[error("connections to its address are not allowed")]
    NotAllowed,
    /// A certificate isn't accepted, that of the server or the client's own.
    #[error(transparent)]
    Certificate(#[from] CertificateFault),
    /// The TLS handshake failed for another reason than a certificate.
    #[error("the TLS handshake failed: check that the server has TLS 1.2 or 1.3 at this port")]
    Tls,
    /// The attempt took longer than the connection timeout.
    #[error("no connection within the time limit")]
    TimedOut,
    /// Another failure of the network.
    #[error("the network failed, or has no route to the server")]
    Network,
}

impl ConnectFailure {
    /// Returns the reason that the causes of an error name.
    pub fn from_error(error: &(dyn Error + 'static)) -> Self {
        if let Some(fault) = CertificateFault::find_in_causes(error) {
            return Self::Certificate(fault);
        }
        if find_tls_error(error).is_some() {
            return Self::Tls;
        }
        successors(Some(error), |error| (**error).source())
            .find_map(|error| Self::from_io(error.downcast_ref()?))
            .unwrap_or(Self::Network)
    }

    fn from_io(error: &io::Error) -> Option<Self> {
        let inner = error.get_ref();
        let egress = inner.and_then(|inner| inner.downcast_ref::<EgressError>());
        match (egress, error.kind()) {
            (Some(EgressError::Lookup), _) => Some(Self::Name),
            (Some(_), _) => Some(Self::NotAllowed),
            (None, io::ErrorKind::ConnectionRefused) => Some(Self::Refused),
            (None, io::ErrorKind::TimedOut) => Some(Self::TimedOut),
            (None, _) => None,
        }
    }
}

/// Destination of requests, parsed from a URL. User name, password and fragment are left out.
#[derive(Debug, Clone)]
pub struct RequestTarget {
    /// Scheme, host and port, for connecting.
    origin: Uri,
    /// Path and query.
    path: Uri,
    host: HeaderValue,
}

impl RequestTarget {
    /// Creates a target from a URL; `None` if the URL can't be used in an HTTP request.
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

/// HTTP/1.1 client with a pool of connections. Clones share the pool.
#[derive(Clone)]
pub struct Http1Client {
    connector: Connector,
    idle: Arc<IdleConnections>,
}

impl Http1Client {
    /// Creates a client without connections.
    pub fn new(connector: Connector) -> Self {
        Self {
            connector,
            idle: Arc::default(),
        }
    }

    /// Sends a request and returns the response once its head has arrived. If the future is dropped
    /// before, the connection is closed. If a pooled connection turns out to be closed before
    /// anything was sent, another connection is used.
    ///
    /// # Errors
    /// [`NetError::Unreachable`] if no connection could be established; [`NetError::Broken`] if the
    /// connection broke afterwards.
    pub async fn send(
        &self,
        target: &RequestTarget,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<ClientResponse, NetError> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = target.path.clone();
        *request.headers_mut() = headers;
        request.headers_mut().insert(HOST, target.host.clone());
        while let Some(kept) = self.idle.take(&target.origin) {
            match kept.send(request).await {
                Ok(response) => return Ok(ClientResponse::new(response, &self.idle)),
                Err(RequestSendError::Closed(unsent)) => request = *unsent,
                Err(RequestSendError::Broken | RequestSendError::Refused(_)) => {
                    return Err(NetError::Broken);
                }
            }
        }
        let made = self.connector.connect(&target.origin).await?;
        let answered = made.send(request).await.map_err(|error| match error {
            // In TLS 1.3 a server refuses a client's certificate after the handshake.
            RequestSendError::Refused(fault) => NetError::Unreachable(fault.into()),
            RequestSendError::Closed(_) | RequestSendError::Broken => NetError::Broken,
        })?;
        Ok(ClientResponse::new(answered, &self.idle))
    }
}

/// Maximum number of tokio runtimes for which an [`Http1Clients`] keeps a client. Beyond it, the
/// oldest client is dropped. Each actix arbiter and each worker of a listener has a runtime.
pub const CLIENT_RUNTIMES_MAX: usize = 64;

/// Set of HTTP clients, one for each tokio runtime of the process.
///
/// A connection is driven by the runtime that created it. Because each runtime has its own
/// connections, a request never has to wake another thread.
#[derive(Clone)]
pub struct Http1Clients(Arc<ClientRegistry>);

struct ClientRegistry {
    connector: Connector,
    made: Mutex<Vec<(Id, Http1Client)>>,
}

impl Http1Clients {
    /// Creates an empty set of clients whose connections are made by `connector`.
    pub fn new(connector: Connector) -> Self {
        Self(Arc::new(ClientRegistry {
            connector,
            made: Mutex::default(),
        }))
    }

    /// Returns the client of the current tokio runtime, which is created on first use. Outside a
    /// runtime, returns a new client each time.
    pub fn for_current_runtime(&self) -> Http1Client {
        let fresh = || Http1Client::new(self.0.connector.clone());
        let Ok(runtime) = Handle::try_current() else {
            return fresh();
        };
        let id = runtime.id();
        let mut made = self.0.made.lock();
        if let Some((_, client)) = made.iter().find(|(of, _)| *of == id) {
            return client.clone();
        }
        if made.len() == CLIENT_RUNTIMES_MAX {
            made.remove(0);
        }
        let client = fresh();
        made.push((id, client.clone()));
        client
    }
}

/// Factory of connections, with TLS for `https` URLs. Clones are cheap.
#[derive(Clone)]
pub struct Connector {
    https: HttpsConnector<HttpConnector<EgressResolver>>,
    connect_timeout: Duration,
}

impl Connector {
    /// Creates a connector. An attempt to connect that takes longer than `connect_timeout` fails
    /// with [`NetError::Unreachable`].
    ///
    /// # Errors
    /// Fails if the TLS library supports none of the safe protocol versions.
    pub fn new(connect_timeout: Duration) -> Result<Self, rustls::Error> {
        Self::with_tls(connect_timeout, &ClientTls::default())
    }

    /// Creates a connector like [`new`](Self::new), with these TLS settings.
    ///
    /// # Errors
    /// Fails like [`ClientTls::config`].
    pub fn with_tls(connect_timeout: Duration, tls: &ClientTls) -> Result<Self, rustls::Error> {
        Self::with_resolver(EgressResolver(None), connect_timeout, tls)
    }

    /// Creates a connector for URLs from untrusted sources, which connects host names only to
    /// addresses that `egress` allows. The caller must check each URL with
    /// [`EgressPolicy::check_url`] first, because IP addresses in URLs are not checked by the
    /// connector.
    ///
    /// # Errors
    /// Fails like [`with_tls`](Self::with_tls).
    pub fn with_egress(
        connect_timeout: Duration,
        egress: EgressPolicy,
        tls: &ClientTls,
    ) -> Result<Self, rustls::Error> {
        Self::with_resolver(EgressResolver(Some(egress)), connect_timeout, tls)
    }

    fn with_resolver(
        lookup: EgressResolver,
        connect_timeout: Duration,
        tls: &ClientTls,
    ) -> Result<Self, rustls::Error> {
        let mut http = HttpConnector::new_with_resolver(lookup);
        http.enforce_http(false);
        http.set_nodelay(true);
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls.config()?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        Ok(Self {
            https,
            connect_timeout,
        })
    }

    pub(crate) async fn connect(&self, origin: &Uri) -> Result<HttpConnection, NetError> {
        // Boxed because it is large, and most requests find a pooled connection.
        let connecting = Box::pin(async {
            let stream = self
                .https
                .clone()
                .call(origin.clone())
                .await
                .map_err(|error| NetError::Unreachable(ConnectFailure::from_error(&*error)))?;
            http1::handshake(stream)
                .await
                .map_err(|error| NetError::Unreachable(ConnectFailure::from_error(&error)))
        });
        let (sender, driver) = timeout(self.connect_timeout, connecting)
            .await
            .map_err(|_| NetError::Unreachable(ConnectFailure::TimedOut))??;
        Ok(HttpConnection::new(origin.clone(), sender, driver))
    }
}

/// Resolver for host names. It uses an egress policy if there is one, or else the operating system
/// without restrictions.
#[derive(Clone)]
struct EgressResolver(Option<EgressPolicy>);

impl Service<Name> for EgressResolver {
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
                None => tokio::net::lookup_host((name.as_str(), 0))
                    .await
                    .map_err(|_| io::Error::other(EgressError::Lookup))?
                    .collect(),
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

    /// Goal: each runtime has its own client, and their number is bounded. Method: one runtime more
    /// than the bound, each of which gets its client twice.
    #[test]
    fn one_a_runtime() {
        let clients = Http1Clients::new(Connector::new(Duration::from_secs(5)).unwrap());
        let remembered = |clients: &Http1Clients| clients.0.made.lock().len();
        clients.for_current_runtime();
        assert_eq!(remembered(&clients), 0, "this thread has no runtime");
        let runtimes: Vec<_> = (0..=CLIENT_RUNTIMES_MAX)
            .map(|_| {
                tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .unwrap()
            })
            .collect();
        for (nth, runtime) in runtimes.iter().enumerate() {
            let _here = runtime.enter();
            clients.for_current_runtime();
            clients.for_current_runtime();
            assert_eq!(remembered(&clients), (nth + 1).min(CLIENT_RUNTIMES_MAX));
        }
    }
}
