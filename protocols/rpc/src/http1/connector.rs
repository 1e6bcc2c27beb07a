//! Making connections.

use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use hyper::client::conn::http1;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::crypto::ring;
use tokio::time::timeout;
use tower_service::Service;

use super::NetError;
use super::connection::Connection;

/// Makes connections, with TLS where the URL says so. Its clones are one.
#[derive(Clone)]
pub struct Connector {
    https: HttpsConnector<HttpConnector>,
    connect_timeout: Duration,
}

impl Connector {
    /// A connection that isn't made in `connect_timeout` counts as unreachable.
    ///
    /// # Errors
    /// Where the TLS library has none of the protocol versions that are safe.
    pub fn new(connect_timeout: Duration) -> Result<Self, rustls::Error> {
        let mut http = HttpConnector::new();
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
