//! HTTP/1.1 to servers, on hyper's connections (feature `client`).
//!
//! Whoever sends a request drives its connection meanwhile: no task stands between the two, so that an exchange wakes its
//! caller once, when the response is there. While nobody uses it a connection waits among the idle ones.
//!
//! It follows no redirects and no proxy variables: both would take data, and credentials, where nobody configured them to
//! go.

mod clients;
mod connection;
mod connector;
mod idle;
mod response;
mod stream;

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{HOST, HeaderMap, HeaderValue};
use hyper::{Method, Request, Uri};
use url::{Position, Url};

pub use self::clients::{Clients, RUNTIMES_MAX};
use self::connection::Unsent;
pub use self::connector::Connector;
use self::idle::Idle;
pub use self::idle::{IDLE_CONNECTIONS_MAX, IDLE_TIME_MAX};
pub use self::response::{BodyError, Response};
pub use self::stream::{EventStream, Place, RETRY_DEFAULT, RETRY_MAX};

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
            path: url[Position::BeforePath..Position::AfterQuery].parse().ok()?,
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
        Self { connector, idle: Arc::default() }
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
        match made.send(request).await {
            Ok(response) => Ok(Response::new(response, &self.idle)),
            Err(_) => Err(NetError::Broken),
        }
    }
}

#[cfg(test)]
mod tests;
