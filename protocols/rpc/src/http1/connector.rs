//! Making connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{io, vec};

use futures::future::BoxFuture;
use hyper::Uri;
use hyper::client::conn::http1;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use reqwest::dns::Resolve;
use rustls::crypto::ring;
use tokio::time::timeout;
use tower_service::Service;

use super::NetError;
use super::connection::Connection;
use crate::Egress;

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
        Ok(Self { https, connect_timeout })
    }

    pub(super) async fn connect(&self, origin: &Uri) -> Result<Connection, NetError> {
        // Boxed: it is large, and most requests find a connection that was kept.
        let connecting = Box::pin(async {
            let stream = self.https.clone().call(origin.clone()).await.map_err(|_| NetError::Unreachable)?;
            http1::handshake(stream).await.map_err(|_| NetError::Unreachable)
        });
        let (sender, driver) = timeout(self.connect_timeout, connecting).await.map_err(|_| NetError::Unreachable)??;
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
                    egress.resolve(name).await.map_err(io::Error::other)?.collect()
                }
            };
            Ok(found.into_iter())
        })
    }
}
