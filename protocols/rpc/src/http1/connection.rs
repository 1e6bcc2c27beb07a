//! HTTP/1.1 connections that are driven by the task that uses them, and the pool of idle ones.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Request, Uri};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::CertificateFault;

pub(crate) type OutgoingRequest = Request<Full<Bytes>>;
type ConnectionDriver = http1::Connection<MaybeHttpsStream<TokioIo<TcpStream>>, Full<Bytes>>;

/// Open HTTP/1.1 connection to one origin. Boxed, because it is large and moved often.
pub(crate) struct HttpConnection(Box<OpenConnection>);

struct OpenConnection {
    origin: Uri,
    sender: http1::SendRequest<Full<Bytes>>,
    /// Future that performs the reads and writes; `None` once the connection has ended.
    driver: Option<ConnectionDriver>,
}

/// Reason why a request got no response on a connection.
pub(crate) enum RequestSendError {
    /// The connection was closed before any part of the request was sent. Contains the request, to
    /// be sent on another connection.
    Closed(Box<OutgoingRequest>),
    /// The server refused the client's certificate. It hasn't processed the request.
    Refused(CertificateFault),
    /// The connection broke after sending had begun.
    Broken,
}

impl HttpConnection {
    pub fn new(
        origin: Uri,
        sender: http1::SendRequest<Full<Bytes>>,
        driver: ConnectionDriver,
    ) -> Self {
        Self(Box::new(OpenConnection {
            origin,
            sender,
            driver: Some(driver),
        }))
    }

    /// Performs all reads and writes that are possible without blocking.
    pub fn poll_io(&mut self, cx: &mut Context<'_>) {
        poll_driver(&mut self.0.driver, cx);
    }

    /// Returns whether the connection can take another request. It may still turn out to be closed.
    pub fn is_ready(&mut self) -> bool {
        // No waker is needed: the next user of the connection drives it again.
        self.poll_io(&mut Context::from_waker(Waker::noop()));
        self.0.driver.is_some() && self.0.sender.is_ready()
    }

    /// Sends a request. Returns the head of the response, and the connection, which is still needed
    /// to receive the body.
    pub async fn send(
        mut self,
        request: OutgoingRequest,
    ) -> Result<(hyper::Response<Incoming>, Self), RequestSendError> {
        let answered = {
            let OpenConnection { sender, driver, .. } = &mut *self.0;
            let mut answered = std::pin::pin!(sender.try_send_request(request));
            poll_fn(|cx| {
                poll_driver(driver, cx);
                answered.as_mut().poll(cx)
            })
            .await
        };
        match answered {
            Ok(response) => Ok((response, self)),
            Err(mut error) => {
                if let Some(fault) = CertificateFault::find_in_causes(error.error()) {
                    return Err(RequestSendError::Refused(fault));
                }
                Err(error
                    .take_message()
                    .map_or(RequestSendError::Broken, |unsent| {
                        RequestSendError::Closed(Box::new(unsent))
                    }))
            }
        }
    }
}

fn poll_driver(driver: &mut Option<ConnectionDriver>, cx: &mut Context<'_>) {
    if let Some(running) = driver
        && Pin::new(running).poll(cx).is_ready()
    {
        // The reason is reported by the request and the body.
        *driver = None;
    }
}

/// Maximum number of idle connections that a client keeps. Beyond it, the connection idle longest
/// is closed.
pub const IDLE_CONNECTIONS_MAX: usize = 64;
/// Maximum time for which an idle connection is kept.
pub const IDLE_CONNECTION_AGE_MAX: Duration = Duration::from_secs(90);

/// Pool of a client's idle connections, ordered by last use, oldest first.
#[derive(Default)]
pub(crate) struct IdleConnections(Mutex<IdleState>);

#[derive(Default)]
struct IdleState {
    connections: Vec<(HttpConnection, Instant)>,
    /// Whether a task that closes expired connections is running.
    swept: bool,
}

impl IdleConnections {
    /// Removes and returns an idle connection to `origin` that appears to be open.
    pub fn take(&self, origin: &Uri) -> Option<HttpConnection> {
        loop {
            let mut connection = {
                let mut waiting = self.0.lock();
                let at = waiting
                    .connections
                    .iter()
                    .rposition(|(connection, _)| connection.0.origin == *origin)?;
                waiting.connections.remove(at).0
            };
            if connection.is_ready() {
                return Some(connection);
            }
        }
    }

    /// Returns a connection to the pool; closes it if it can't be used again.
    pub fn put(self: &Arc<Self>, mut connection: HttpConnection) {
        if !connection.is_ready() {
            return;
        }
        let mut waiting = self.0.lock();
        if waiting.connections.len() == IDLE_CONNECTIONS_MAX {
            waiting.connections.remove(0);
        }
        waiting.connections.push((connection, Instant::now()));
        if waiting.swept {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            waiting.swept = true;
            runtime.spawn(close_expired_periodically(Arc::downgrade(self)));
        }
    }

    /// Closes expired connections. Returns the time of the next expiry; `None` if the pool is
    /// empty.
    fn close_expired(&self) -> Option<Instant> {
        let mut waiting = self.0.lock();
        let now = Instant::now();
        waiting
            .connections
            .retain(|(_, since)| now < *since + IDLE_CONNECTION_AGE_MAX);
        let oldest = waiting
            .connections
            .iter()
            .map(|(_, since)| *since + IDLE_CONNECTION_AGE_MAX)
            .min();
        waiting.swept = oldest.is_some();
        oldest
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.lock().connections.len()
    }
}

async fn close_expired_periodically(idle: Weak<IdleConnections>) {
    let mut wait = IDLE_CONNECTION_AGE_MAX;
    loop {
        sleep(wait).await;
        let Some(next) = idle.upgrade().and_then(|idle| idle.close_expired()) else {
            return;
        };
        wait = next.saturating_duration_since(Instant::now());
    }
}
