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
//! The address of the client is a request extension of the type [`ClientAddress`]. Without it the client
//! counts as one at 0.0.0.0: it isn't the local operator, and failed authentications of all such clients
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
use crate::serve::{
    AppBuilder, BoundListener, CONNECTIONS_MAX_DEFAULT, ServeError, check_socket_address,
};
use crate::{AuthFailures, BufferBudget, TokenResource};
use worker::Exchange;

/// Address of a request's client, as an extension of the request that the host sets: that of the connection's
/// other end, or the one in its PROXY header. The host leaves `X-Forwarded-For` to
/// [`MountOptions::trusted_proxies`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientAddress(pub SocketAddr);

/// Listener of the host, and settings that a [`ListenOptions`](crate::serve::ListenOptions) has too.
#[derive(Debug, Clone)]
pub struct MountOptions {
    /// Address that the host listens on; of several, one that isn't loopback. A wrong address opens the
    /// server: with [`AccessControl::Open`](crate::AccessControl::Open) it must be a loopback address, because
    /// only clients of this machine need no credential. Clients whose [`ClientAddress`] isn't loopback are
    /// then answered 403, but those without one are served. A service that is deliberately public has
    /// [`AccessControl::Anyone`](crate::AccessControl::Anyone).
    pub address: SocketAddr,
    /// Whether clients reach the host over TLS. Default: false.
    pub is_tls: bool,
    /// Number of worker threads, at least 1. Default: 1.
    pub workers: usize,
    /// Maximum number of requests in progress, at least 1, which the worker threads share evenly, rounded up.
    /// A request is in progress until its response has ended. Further requests wait in the queue of a worker
    /// thread, and then in the host. Default: [`CONNECTIONS_MAX_DEFAULT`].
    pub requests_max: usize,
    /// Counter of failed authentications. Default: a counter of this service alone, without reports.
    pub auth_failures: Arc<AuthFailures>,
    /// Budget of buffered bytes. Default: a budget of this service alone, with the default of
    /// [`BufferLimits`](crate::BufferLimits).
    pub buffers: BufferBudget,
    /// Metadata for clients that send access tokens. The host passes requests for
    /// [`RESOURCE_METADATA_PATH`](crate::RESOURCE_METADATA_PATH), and for paths below it, on to a clone of this
    /// service from before [`MountedService::nested_at`], with their whole paths. Default: none.
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
            requests_max: CONNECTIONS_MAX_DEFAULT,
            auth_failures: Arc::default(),
            buffers: BufferBudget::default(),
            token_resource: None,
            trusted_proxies: TrustedProxies::default(),
        }
    }
}

/// Protocol servers as a tower service. Clones share its worker threads, which end once the last clone
/// is dropped and the last response has ended. Work that goes on without an open response, such as a task,
/// is dropped with them: keep a clone until the servers have stopped.
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
    /// [`ServeError::WorkerThread`] if a thread or its application can't be started.
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
        let workers = mount.workers.max(1);
        let requests_max = mount.requests_max.div_ceil(workers);
        let start = |_| {
            let (builder, configure) = (builder.clone(), configure.clone());
            let proxies = mount.trusted_proxies.clone();
            let app = move || {
                builder.build(move |config: &mut ServiceConfig| {
                    config.app_data(bound).app_data(proxies);
                    configure(config);
                })
            };
            worker::start(app, requests_max)
        };
        let queues = (0..workers).map(start).collect::<io::Result<_>>();
        let pool = WorkerPool {
            queues: queues.map_err(ServeError::WorkerThread)?,
            requests: AtomicUsize::new(0),
        };
        Ok(Self {
            workers: Arc::new(pool),
            base_path: Arc::from(""),
        })
    }

    /// Returns the service of MCP servers for a router that removes the prefix `path` from the paths of
    /// requests, as axum's `nest_service` does. The service puts it back, because an MCP server has the same
    /// path as at a listener. (Paths of A2A don't need it: they are relative to a base URL.) A `/` at the
    /// beginning is added if it is missing, one at the end is ignored. A pattern such as `/{tenant}` isn't
    /// expanded. Other clones aren't changed.
    pub fn nested_at(self, path: &str) -> Self {
        let base_path = match path.trim_matches('/') {
            "" => String::new(),
            path => format!("/{path}"),
        };
        Self {
            base_path: base_path.into(),
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

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::sync::atomic::Ordering::SeqCst;
    use std::time::Duration;

    use actix_web::{HttpResponse, web};
    use futures::{StreamExt, future, stream};
    use tokio::sync::Semaphore;
    use tokio::time::timeout;

    use super::*;
    use crate::tower::worker::RESPONSE_CHUNKS_QUEUED_MAX;

    /// Timeout of a test's waits; long, for machines under load.
    const SOON: Duration = Duration::from_secs(60);

    fn loopback() -> MountOptions {
        MountOptions::new(SocketAddr::from(([127, 0, 0, 1], 80)))
    }

    fn mounted(
        mount: &MountOptions,
        configure: impl Fn(&mut ServiceConfig) + Clone + Send + 'static,
    ) -> MountedService {
        MountedService::new(mount, |_| true, configure).unwrap()
    }

    fn get(
        service: &MountedService,
    ) -> BoxFuture<'static, Result<Response<MountedBody>, Infallible>> {
        let request = Request::get("http://localhost/").body(MountedBody::whole(Bytes::new()));
        service.clone().call(request.unwrap())
    }

    async fn response(service: &MountedService) -> Response<MountedBody> {
        timeout(SOON, get(service)).await.unwrap().unwrap()
    }

    async fn next_chunk(body: &mut MountedBody) -> Option<Bytes> {
        let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx));
        let frame = timeout(SOON, frame).await.unwrap();
        frame.map(|frame| frame.unwrap().into_data().unwrap())
    }

    /// Goal: a nested service sees the path that its client requested, however its prefix is written.
    /// Method: rows of prefixes.
    #[tokio::test]
    async fn nested_paths() {
        let service = mounted(&loopback(), |config| {
            let handler = || future::ready(HttpResponse::NoContent().finish());
            config.route("/mcp", web::get().to(handler));
        });
        for (path, status) in [
            ("/mcp", StatusCode::NO_CONTENT),
            ("mcp", StatusCode::NO_CONTENT),
            ("/mcp/", StatusCode::NO_CONTENT),
            ("/a2a", StatusCode::NOT_FOUND),
            ("/", StatusCode::NOT_FOUND),
            ("", StatusCode::NOT_FOUND),
        ] {
            let nested = service.clone().nested_at(path);
            assert_eq!(response(&nested).await.status(), status, "{path:?}");
        }
    }

    /// Handler whose calls end once `end` is closed.
    struct WaitingHandler {
        running: AtomicUsize,
        running_max: AtomicUsize,
        began: mpsc::Sender<()>,
        end: Semaphore,
    }

    impl WaitingHandler {
        async fn handle(self: Arc<Self>) -> HttpResponse {
            let running = self.running.fetch_add(1, SeqCst) + 1;
            self.running_max.fetch_max(running, SeqCst);
            self.began.send(()).await.unwrap();
            let _ = self.end.acquire().await;
            // The worker thread has time to begin another request, if it may.
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            self.running.fetch_sub(1, SeqCst);
            HttpResponse::NoContent().finish()
        }
    }

    /// Goal: no more requests are in progress than allowed; further ones wait, and are answered. Method: the
    /// limit and one more, all sent before the first one ends.
    #[tokio::test]
    async fn requests_in_progress_are_limited() {
        const REQUESTS_MAX: usize = 2;
        let mount = MountOptions {
            requests_max: REQUESTS_MAX,
            ..loopback()
        };
        let (began, mut begun) = mpsc::channel(REQUESTS_MAX + 1);
        let handler = Arc::new(WaitingHandler {
            running: AtomicUsize::new(0),
            running_max: AtomicUsize::new(0),
            began,
            end: Semaphore::new(0),
        });
        let handling = handler.clone();
        let service = mounted(&mount, move |config| {
            let handling = handling.clone();
            config.route("/", web::get().to(move || handling.clone().handle()));
        });
        let mut responses: Vec<_> = (0..=REQUESTS_MAX).map(|_| get(&service)).collect();
        for response in &mut responses {
            assert!(futures::poll!(response).is_pending());
        }
        for _ in 0..REQUESTS_MAX {
            timeout(SOON, begun.recv()).await.unwrap().unwrap();
        }
        handler.end.close();
        let responses = timeout(SOON, future::join_all(responses)).await.unwrap();
        for response in responses {
            assert_eq!(response.unwrap().status(), StatusCode::NO_CONTENT);
        }
        assert_eq!(handler.running_max.load(SeqCst), REQUESTS_MAX);
    }

    /// Goal: a large body arrives whole, in parts, with its length. Method: one of about a megabyte.
    #[tokio::test]
    async fn large_bodies_come_in_parts() {
        const BODY_BYTES: usize = 1_000_000;
        let service = mounted(&loopback(), |config| {
            let handler = || future::ready(HttpResponse::Ok().body(vec![7_u8; BODY_BYTES]));
            config.route("/", web::get().to(handler));
        });
        let mut body = response(&service).await.into_body();
        assert_eq!(body.size_hint().exact(), Some(BODY_BYTES as u64));
        let mut received = Vec::new();
        while let Some(part) = next_chunk(&mut body).await {
            assert!(part.len() <= 64 * 1024, "{} bytes", part.len());
            received.extend_from_slice(&part);
        }
        assert_eq!(received.len(), BODY_BYTES);
        assert!(received.iter().all(|byte| *byte == 7));
    }

    /// Goal: a body is made no faster than the host takes it. Method: count the chunks that are made while
    /// others are taken.
    #[tokio::test]
    async fn chunks_wait_for_the_host() {
        const CHUNKS: usize = 100;
        let made = Arc::<AtomicUsize>::default();
        let counter = made.clone();
        let service = mounted(&loopback(), move |config| {
            let counter = counter.clone();
            let handler = move || {
                let counter = counter.clone();
                let chunks = stream::iter(0..CHUNKS).map(move |_| {
                    counter.fetch_add(1, SeqCst);
                    Ok::<_, io::Error>(Bytes::from_static(b"chunk"))
                });
                future::ready(HttpResponse::Ok().streaming(chunks))
            };
            config.route("/", web::get().to(handler));
        });
        let mut body = response(&service).await.into_body();
        let mut taken = 0;
        while let Some(chunk) = next_chunk(&mut body).await {
            taken += 1;
            assert_eq!(chunk, "chunk");
            let ahead = made.load(SeqCst) - taken;
            assert!(ahead <= RESPONSE_CHUNKS_QUEUED_MAX, "{ahead} chunks");
        }
        assert_eq!(taken, CHUNKS);
    }

    /// Goal: a worker thread that can't start is an error that says so, within a runtime too. Method: an
    /// application that panics.
    #[tokio::test]
    async fn failed_starts_are_errors() {
        let failed = MountedService::new(&loopback(), |_| true, |_| panic!("no application"));
        assert_eq!(
            failed.err().unwrap().to_string(),
            "failed to start a worker thread: it ended before it was ready"
        );
    }
}
