//! Protocol servers as tower services in the HTTP server of a host, such as axum (feature `tower`).
//!
//! A [`MountedService`] passes each request on to the same actix-web application that
//! [`serve`](crate::serve::serve) has behind a listener, on worker threads of its own. Credentials,
//! checks of `Host` and `Origin`, limits of bodies and streams, delays of failed authentications and
//! the budget of buffered bytes are those of a listener.
//!
//! # Duties of the host
//!
//! The host has the listener, so these are its own: TLS and client certificates, PROXY headers,
//! limits on connections, timeouts of heads and idle connections, and the pace of reads.
//!
//! The host drops the response future or the response body when the client disconnects, as hyper
//! does. This is what a closed connection is to a listener: it cancels a call, unless the protocol
//! says that the call goes on.
//!
//! The address of the client is a request extension of the type [`SocketAddr`]. Without it the client
//! has no address: it isn't the local operator, and failed authentications of all such clients
//! count together.
//!
//! The header `Upgrade` is ignored (RFC 9110, section 7.8), so WebSockets aren't offered: their
//! handshakes are answered like any other GET request.

mod body;
mod head;
mod worker;

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use actix_web::web::ServiceConfig;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode};
use http_body::Body;
use tokio::sync::mpsc;
use tower_service::Service;

pub use body::MountedBody;

use crate::serve::client_address::TrustedProxies;
use crate::serve::{AppBuilder, BoundListener, ServeError, check_socket_address};
use crate::{AuthFailures, BufferBudget, TokenResource};
use worker::Exchange;

/// Listener of the host, and settings that a [`ListenOptions`](crate::serve::ListenOptions) has too.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// Address that the host listens on. Without credentials it must be a loopback address. Of several
    /// addresses, one that isn't loopback.
    pub address: SocketAddr,
    /// Whether clients reach the host over TLS. Default: false.
    pub is_tls: bool,
    /// Number of worker threads, at least 1. Default: 1.
    pub workers: usize,
    /// Counter of failed authentications. Default: a counter of this service alone, without reports.
    pub auth_failures: Arc<AuthFailures>,
    /// Budget of buffered bytes. Default: a budget of this service alone, with the default of
    /// [`BufferLimits`](crate::BufferLimits).
    pub buffers: BufferBudget,
    /// Metadata for clients that send access tokens. The host passes requests for
    /// [`RESOURCE_METADATA_PATH`](crate::RESOURCE_METADATA_PATH), and for paths below it, on to this
    /// service. Default: none.
    pub token_resource: Option<Arc<TokenResource>>,
    /// Reverse proxies in front of the host whose `X-Forwarded-For` names the client. Default: none.
    pub trusted_proxies: TrustedProxies,
}

impl MountOptions {
    /// Returns the default options for a host that listens on `address`.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            is_tls: false,
            workers: 1,
            auth_failures: Arc::default(),
            buffers: BufferBudget::default(),
            token_resource: None,
            trusted_proxies: TrustedProxies::default(),
        }
    }
}

/// Protocol servers as a tower service. Clones share its worker threads, which end once the last clone
/// is dropped and the last response has ended.
#[derive(Clone)]
pub struct MountedService {
    workers: Arc<WorkerPool>,
    /// Prefix of paths that the host's router has removed.
    base_path: Arc<str>,
}

struct WorkerPool {
    queues: Vec<mpsc::Sender<Exchange>>,
    requests: AtomicUsize,
}

impl WorkerPool {
    /// Returns the queues in turn; `None` if there are no workers.
    fn next_queue(&self) -> Option<mpsc::Sender<Exchange>> {
        let turn = self.requests.fetch_add(1, Ordering::Relaxed);
        let queue = self.queues.get(turn % self.queues.len().max(1));
        queue.cloned()
    }
}

impl MountedService {
    /// Starts the worker threads of a service. `may_listen_on` decides by IP address, as in
    /// [`check_address`](crate::serve::check_address); `configure` adds the application's routes, and is
    /// called once for each worker thread.
    ///
    /// # Errors
    /// [`ServeError::UnauthenticatedListener`] if the host's address is not permitted;
    /// [`ServeError::Io`] if a thread can't be started.
    pub fn new(
        mount: &MountOptions,
        may_listen_on: impl Fn(IpAddr) -> bool,
        configure: impl Fn(&mut ServiceConfig) + Clone + Send + 'static,
    ) -> Result<Self, ServeError> {
        check_socket_address(mount.address, may_listen_on)?;
        let bound = BoundListener {
            address: mount.address,
            is_tls: mount.is_tls,
        };
        let builder = AppBuilder::new(
            mount.auth_failures.clone(),
            &mount.buffers,
            mount.token_resource.clone(),
        );
        let start = |_| {
            let (builder, configure) = (builder.clone(), configure.clone());
            let proxies = mount.trusted_proxies.clone();
            worker::start(move || {
                builder.build(move |config: &mut ServiceConfig| {
                    config.app_data(bound).app_data(proxies);
                    configure(config);
                })
            })
        };
        let queues = (0..mount.workers.max(1)).map(start);
        let workers = WorkerPool {
            queues: queues.collect::<io::Result<_>>()?,
            requests: AtomicUsize::new(0),
        };
        Ok(Self {
            workers: Arc::new(workers),
            base_path: Arc::from(""),
        })
    }

    /// Returns the service for a router that removes the prefix `path` from the paths of requests, as
    /// axum's `nest_service` does. The service puts it back, because it has the same paths as a listener.
    /// Other clones aren't changed.
    pub fn nested_at(self, path: &str) -> Self {
        Self {
            base_path: Arc::from(path.trim_end_matches('/')),
            ..self
        }
    }
}

impl<B> Service<Request<B>> for MountedService
where
    B: Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<MountedBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    /// Passes a request on to the next worker thread. The response is 503 if that has ended, and 500 if
    /// the handler panicked.
    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (exchange, response) = Exchange::new(request, self.base_path.clone());
        let queue = self.workers.next_queue();
        Box::pin(async move {
            let is_queued = match queue {
                Some(queue) => queue.send(exchange).await.is_ok(),
                None => false,
            };
            if !is_queued {
                return Ok(head::empty_response(StatusCode::SERVICE_UNAVAILABLE));
            }
            let failed = |_| head::empty_response(StatusCode::INTERNAL_SERVER_ERROR);
            Ok(response.await.unwrap_or_else(failed))
        })
    }
}
