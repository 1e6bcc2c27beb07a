//! HTTP listeners (feature `serve`): timeouts and limits of connections, and checks of requests
//! before their bodies are read.

pub mod accept_header;
pub mod acceptor;
pub mod address_limit;
pub mod agent_id_header;
pub mod buffers;
pub mod client_address;
mod connection;
pub mod guard;
pub mod http_response;
pub mod idle_timeout;
mod paced_stream;
mod proxy_header;
mod rejections;
pub mod tls;
mod token_metadata;
pub mod websocket;

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix_web::body::BoxBody;
use actix_web::dev::{Extensions, Server, ServiceFactory, ServiceRequest, ServiceResponse};
use actix_web::http::header::{AUTHORIZATION, TRANSFER_ENCODING};
use actix_web::middleware::{Next, from_fn};
use actix_web::web::ServiceConfig;
use actix_web::{App, Error, HttpMessage, HttpRequest};
use callboard_message::Principal;
use parking_lot::RwLock;
use tokio::io::AsyncRead;
use tokio::time::{
    Instant, Interval, MissedTickBehavior, Sleep, interval, sleep, timeout, timeout_at,
};

use crate::{
    AccessControl, AuthFailures, BufferBudget, ClientCertificate, CredentialError, ListenerBuffers,
    PresentedCredential, TokenResource,
};
use address_limit::{AddressConnections, CountedConnection, reject_over_limit};
use client_address::{TrustedProxies, client_address};
pub(crate) use connection::BoundListener;
use paced_stream::{PacedStream, READ_TURN_BYTES_MAX, RefusalMark};
use rejections::delay_rejections;
use tls::ListenerTls;

/// Minimum value of [`ListenOptions::headers_timeout`]. Shorter values are inaccurate, because
/// actix reads a clock that may be half a second old.
pub const HEADERS_TIMEOUT_MIN: Duration = Duration::from_secs(1);
/// Default maximum number of concurrent connections of a listener, over all its worker threads.
pub const CONNECTIONS_MAX_DEFAULT: usize = 1_024;

/// Connection settings of a listener.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// Time within which the head of a request must arrive; at least [`HEADERS_TIMEOUT_MIN`]. Over gRPC,
    /// that of a connection's first bytes, without a minimum. Default: 5 s.
    pub headers_timeout: Duration,
    /// Time for which a connection without requests is kept open. Default: 30 s.
    pub keep_alive: Duration,
    /// Time that requests in progress have to complete when the server stops, rounded up to whole
    /// seconds. Default: 5 s.
    pub drain_timeout: Duration,
    /// Maximum number of concurrent connections, over all worker threads. Further connections wait
    /// in the kernel's queue. Default: [`CONNECTIONS_MAX_DEFAULT`].
    pub connections_max: usize,
    /// Maximum number of concurrent connections of one address: an IPv4 address, or the first 64
    /// bits of an IPv6 address. Further connections are closed. Default: `None`, which is three
    /// quarters of `connections_max`.
    pub address_connections_max: Option<usize>,
    /// Counter of failed authentications. A node shares one among its listeners. Default: a counter
    /// of this listener alone, without reports.
    pub auth_failures: Arc<AuthFailures>,
    /// Budget of buffered bytes. A node shares one among its listeners. Default: a budget of this
    /// listener alone, with the default of [`BufferLimits`](crate::BufferLimits).
    pub buffers: BufferBudget,
    /// Metadata for clients that send access tokens, which are served at
    /// [`RESOURCE_METADATA_PATH`](crate::RESOURCE_METADATA_PATH). Default: none.
    pub token_resource: Option<Arc<TokenResource>>,
    /// Number of worker threads. Default: 1.
    pub workers: usize,
    /// TLS of all connections. Default: `None`, plain HTTP.
    pub tls: Option<ListenerTls>,
    /// Reverse proxies whose `X-Forwarded-For` names the client. Their own connections have no
    /// limit for their address, but for those whose PROXY header names nobody. Default: none.
    pub trusted_proxies: TrustedProxies,
    /// Whether each connection of a trusted proxy begins with a PROXY header (version 1 or 2), which
    /// names the client. The header must arrive within `headers_timeout`. Default: false.
    pub proxy_protocol: bool,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            headers_timeout: Duration::from_secs(5),
            keep_alive: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(5),
            connections_max: CONNECTIONS_MAX_DEFAULT,
            address_connections_max: None,
            auth_failures: Arc::default(),
            buffers: BufferBudget::default(),
            token_resource: None,
            workers: 1,
            tls: None,
            trusted_proxies: TrustedProxies::default(),
            proxy_protocol: false,
        }
    }
}

impl ListenOptions {
    /// Returns new counters of the open connections of each address, with their limit.
    pub fn address_connections(&self) -> AddressConnections {
        let share = self.connections_max - self.connections_max / 4;
        AddressConnections::new(self.address_connections_max.unwrap_or(share))
    }
}

/// Reason why a listener can't be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address is not loopback and the listener requires no keys, so that anybody on the
    /// network could use the agent.
    #[error("{address} is not a loopback address: keys are needed to listen there")]
    UnauthenticatedListener {
        /// Address of the listener.
        address: SocketAddr,
    },
    /// An operation on the socket failed.
    #[error("can't listen: {0}")]
    Io(#[from] io::Error),
    /// A worker thread of a mounted service can't be started.
    #[error("failed to start a worker thread: {0}")]
    WorkerThread(#[source] io::Error),
}

/// HTTP server on a bound listener, ready to be run.
pub struct BoundServer {
    /// Address that the server listens on.
    pub address: SocketAddr,
    /// Server future, to be awaited or spawned. It handles no signals; `server.handle().stop(true)`
    /// stops it.
    pub server: Server,
}

/// Checks that a server may listen on the address of `listener`. `may_listen_on` decides by IP
/// address; without authentication only loopback addresses are safe.
///
/// # Errors
/// [`ServeError::UnauthenticatedListener`] if the address is not permitted; [`ServeError::Io`] if
/// the listener has no local address.
pub fn check_address(
    listener: &TcpListener,
    may_listen_on: impl Fn(IpAddr) -> bool,
) -> Result<(), ServeError> {
    check_socket_address(listener.local_addr()?, may_listen_on)
}

/// Checks like [`check_address`] that a server may be reached at `address`.
///
/// # Errors
/// [`ServeError::UnauthenticatedListener`] if the address is not permitted.
pub(crate) fn check_socket_address(
    address: SocketAddr,
    may_listen_on: impl Fn(IpAddr) -> bool,
) -> Result<(), ServeError> {
    if may_listen_on(address.ip()) {
        Ok(())
    } else {
        Err(ServeError::UnauthenticatedListener { address })
    }
}

/// Limits and timeouts that the HTTP server itself keeps.
#[derive(Clone, Copy)]
struct ServerLimits {
    workers: usize,
    /// Maximum number of connections of one worker.
    connections_max: usize,
    keep_alive: Duration,
    drain_seconds: u64,
}

impl ServerLimits {
    fn new(listen: &ListenOptions) -> Self {
        let workers = listen.workers.max(1);
        let drain_seconds = listen.drain_timeout.as_millis().div_ceil(1_000);
        Self {
            workers,
            connections_max: listen.connections_max.div_ceil(workers),
            keep_alive: listen.keep_alive,
            drain_seconds: u64::try_from(drain_seconds).unwrap_or(u64::MAX),
        }
    }
}

/// Preparation of each new connection.
#[derive(Clone)]
struct ConnectionSetup {
    idle_max: Duration,
    headers_timeout: Duration,
    addresses: AddressConnections,
    proxies: TrustedProxies,
    proxy_protocol: bool,
}

impl ConnectionSetup {
    fn new(listen: &ListenOptions) -> Self {
        let headers_timeout = listen.headers_timeout.max(HEADERS_TIMEOUT_MIN);
        Self {
            idle_max: listen.keep_alive + headers_timeout,
            headers_timeout,
            addresses: listen.address_connections(),
            proxies: listen.trusted_proxies.clone(),
            proxy_protocol: listen.proxy_protocol,
        }
    }

    /// Returns the origin of a new connection from `peer`: `peer` itself, or whom the PROXY header of
    /// a trusted proxy names.
    ///
    /// # Errors
    /// Fails if a PROXY header is expected and doesn't arrive in time, or is invalid.
    async fn origin_of(
        &self,
        stream: &mut (impl AsyncRead + Unpin),
        peer: SocketAddr,
    ) -> io::Result<ConnectionOrigin> {
        let is_proxy = |address: SocketAddr| self.proxies.contains(address.ip());
        if !self.proxy_protocol || !is_proxy(peer) {
            return Ok(ConnectionOrigin {
                client: peer,
                is_proxy: is_proxy(peer),
            });
        }
        let reading = timeout(
            self.headers_timeout,
            proxy_header::read_proxy_header(stream),
        );
        let client = reading.await.unwrap_or_else(|late| Err(late.into()));
        let client = client.inspect_err(|error| {
            let peer = peer.ip().to_string();
            callboard_message::log::warn!(by: &peer, peer, %error, "closed a connection without a PROXY header");
        })?;
        Ok(ConnectionOrigin {
            client: client.unwrap_or(peer),
            // A header that names nobody is that of one connection, not of many clients.
            is_proxy: client.is_some_and(is_proxy),
        })
    }

    /// Counts a connection for the address of its client, unless that is a trusted proxy, which has
    /// connections for many.
    ///
    /// # Errors
    /// Fails if the address has the maximum of connections.
    fn count(&self, origin: ConnectionOrigin) -> io::Result<Option<CountedConnection>> {
        let Some(client) = origin.limited_address() else {
            return Ok(None);
        };
        let counted = self.addresses.count(client);
        counted
            .map(Some)
            .ok_or_else(|| io::ErrorKind::ConnectionRefused.into())
    }

    /// Prepares a connection without TLS, which isn't counted yet.
    fn admit(&self, stream: &PacedStream, data: &mut Extensions) {
        if let Some(client) = self.watch(stream, data) {
            self.addresses.admit(stream.tcp(), client, data);
        }
    }

    /// Starts the idle timer of a connection, and marks it if its client is a trusted proxy. Returns
    /// the address that the connection counts for, if any.
    fn watch(&self, stream: &PacedStream, data: &mut Extensions) -> Option<IpAddr> {
        idle_timeout::watch_connection(stream.tcp(), data, self.idle_max);
        let origin = stream.origin()?;
        if origin.is_proxy {
            self.proxies.mark(data);
        }
        origin.limited_address()
    }
}

/// Origin of a connection.
#[derive(Debug, Clone, Copy)]
struct ConnectionOrigin {
    /// Address of the client: the peer's, or the one in the PROXY header.
    client: SocketAddr,
    /// Whether the client is a trusted proxy, each of whose requests names its own client.
    is_proxy: bool,
}

impl ConnectionOrigin {
    /// Returns the address whose limits the connection counts for; `None` for a trusted proxy.
    fn limited_address(&self) -> Option<IpAddr> {
        (!self.is_proxy).then(|| self.client.ip())
    }
}

/// Returns the listener of a request: that of its connection, or of its application, if another
/// server has the connections.
fn bound_listener(request: &HttpRequest) -> Option<&BoundListener> {
    request.conn_data().or_else(|| request.app_data())
}

/// Returns the address that the listener of a request is bound to.
fn bound_address(request: &HttpRequest) -> SocketAddr {
    match bound_listener(request) {
        Some(bound) => bound.address,
        None => request.app_config().local_addr(),
    }
}

/// Returns whether another server, which has the connections, accepted the client of a request from
/// elsewhere, although its address is said to be loopback.
fn contradicts_address(request: &HttpRequest) -> bool {
    let is_loopback = |address: SocketAddr| address.ip().to_canonical().is_loopback();
    // A listener of ours is connection data. Its clients from elsewhere are those of PROXY headers.
    let bound = request.app_data::<BoundListener>();
    let client = request.peer_addr();
    bound.is_some_and(|bound| is_loopback(bound.address))
        && client.is_some_and(|client| !client.ip().is_unspecified() && !is_loopback(client))
}

/// Returns whether the listener of a request has TLS.
fn is_tls(request: &HttpRequest) -> bool {
    bound_listener(request).is_some_and(|bound| bound.is_tls)
}

/// Builder of the actix-web application of a listener, with all that happens before and after its
/// handlers. Clones build applications with the same counters.
#[derive(Clone)]
pub(crate) struct AppBuilder {
    failures: Arc<AuthFailures>,
    budget: ListenerBuffers,
    resource: Option<Arc<TokenResource>>,
}

impl AppBuilder {
    pub(crate) fn new(
        failures: Arc<AuthFailures>,
        buffers: &BufferBudget,
        resource: Option<Arc<TokenResource>>,
    ) -> Self {
        Self {
            failures,
            budget: buffers.listener(),
            resource,
        }
    }

    /// Builds an application. `configure` adds its routes.
    pub(crate) fn build(
        self,
        configure: impl FnOnce(&mut ServiceConfig) + 'static,
    ) -> App<
        impl ServiceFactory<
            ServiceRequest,
            Config = (),
            Response = ServiceResponse,
            Error = Error,
            InitError = (),
        > + 'static,
    > {
        let Self {
            failures,
            budget,
            resource,
        } = self;
        let finish = move |request: ServiceRequest, next: Next<BoxBody>| {
            let failures = failures.clone();
            async move {
                let mark = request.conn_data::<RefusalMark>().cloned();
                // The body of the request before was read to its end.
                mark.iter().for_each(|mark| mark.set(false));
                let response = delay_rejections(failures, request, next).await?;
                mark.iter()
                    .for_each(|mark| mark.set(leaves_much_unread(&response)));
                Ok(buffers::count_response(response))
            }
        };
        App::new()
            .app_data(budget)
            .wrap(from_fn(finish))
            .wrap(from_fn(reject_over_limit))
            .configure(|config| {
                // Before the application's routes, which may include other well-known documents.
                if let Some(resource) = resource {
                    token_metadata::configure(config, resource);
                }
            })
            .configure(configure)
    }
}

/// Creates an HTTP server for a bound listener, with all timeouts of `listen`, and with its TLS if
/// it has any. `configure` adds the application's routes; it is called once for each worker thread.
///
/// # Errors
/// [`ServeError::Io`] if the listener can't be used.
pub fn serve(
    listener: TcpListener,
    listen: &ListenOptions,
    configure: impl Fn(&mut ServiceConfig) + Clone + Send + 'static,
) -> Result<BoundServer, ServeError> {
    let address = listener.local_addr()?;
    let limits = ServerLimits::new(listen);
    let setup = ConnectionSetup::new(listen);
    let builder = AppBuilder::new(
        listen.auth_failures.clone(),
        &listen.buffers,
        listen.token_resource.clone(),
    );
    let app = move || builder.clone().build(configure.clone());
    let server = connection::serve(listener, listen.tls.as_ref(), setup, limits, app)?;
    Ok(BoundServer { address, server })
}

/// Returns whether a response may be a refusal before the request's body was read, and the body is large.
fn leaves_much_unread(response: &ServiceResponse) -> bool {
    if response.status().as_u16() < 400 {
        return false;
    }
    let headers = response.request().headers();
    match guard::declared_length(headers) {
        Some(length) => length > READ_TURN_BYTES_MAX as u64,
        // Without a length, only a body in chunks is large.
        None => headers.contains_key(TRANSFER_ENCODING),
    }
}

/// Registry of protocol servers by name, shared by all workers of a listener. Servers can be
/// replaced while the listener runs. Clones share the registry.
#[derive(Clone)]
pub struct ServerRegistry<S>(Arc<RwLock<HashMap<String, S>>>);

impl<S> Default for ServerRegistry<S> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<S: Clone> ServerRegistry<S> {
    /// Replaces all servers. Requests in progress complete with the previous servers.
    pub fn set(&self, servers: HashMap<String, S>) {
        let before = std::mem::replace(&mut *self.0.write(), servers);
        drop(before);
    }

    /// Returns the server with the given name; `None` if there is none.
    pub fn get(&self, name: &str) -> Option<S> {
        self.0.read().get(name).cloned()
    }

    /// Returns all servers with their names, sorted by name.
    pub fn all(&self) -> Vec<(String, S)> {
        let servers = self.0.read();
        let mut all: Vec<_> = servers
            .iter()
            .map(|(name, server)| (name.clone(), server.clone()))
            .collect();
        all.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        all
    }
}

/// Permit of a limit on concurrency. Dropping the permit releases it.
pub struct ConcurrencyPermit(Arc<AtomicUsize>);

impl ConcurrencyPermit {
    /// Acquires a permit. `count` is the number of permits in use; returns `None` if `max` permits
    /// are in use.
    pub fn try_acquire(count: &Arc<AtomicUsize>, max: usize) -> Option<Self> {
        if count.fetch_add(1, Ordering::Relaxed) >= max {
            count.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Self(count.clone()))
    }
}

impl Drop for ConcurrencyPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Interval at which the credential of an open stream is verified again.
pub const CREDENTIAL_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum time for which a stream stays open while its credential can't be verified, because an
/// issuer of tokens doesn't answer. A credential that expires in that time ends it at once.
pub const CREDENTIAL_OUTAGE_MAX: Duration = Duration::from_secs(30);

/// Message to the client when a stream ends because its credential isn't valid any more.
pub const CREDENTIAL_ENDED_MESSAGE: &str = "the credential was revoked or has expired";

/// Monitor of the credential with which a long-lived stream was opened. A credential may expire or
/// be revoked while the stream is open.
pub struct CredentialWatch {
    /// Credential to verify again; `None` if the listener requires none.
    shown: Option<Arc<WatchedCredential>>,
    /// Principal of the credential; `None` until it could be verified.
    principal: Option<Principal>,
    /// Time at which it was last verified.
    verified: Instant,
    next: Pin<Box<Sleep>>,
    /// Verification in progress.
    check: Option<CredentialCheck>,
}

type CredentialCheck = Pin<Box<dyn Future<Output = Result<Principal, CredentialError>> + Send>>;

/// Credential of a request that isn't in its `Authorization` header, in the format of that header.
pub(crate) struct OtherCredential(pub(crate) Vec<u8>);

struct WatchedCredential {
    access: AccessControl,
    authorization: Option<Vec<u8>>,
    certificate: Option<ClientCertificate>,
    peer: Option<IpAddr>,
    local: Option<IpAddr>,
}

impl WatchedCredential {
    fn shown(&self) -> PresentedCredential<'_> {
        PresentedCredential {
            peer: self.peer,
            local: self.local,
            authorization: self.authorization.as_deref(),
            certificate: self.certificate.as_ref(),
            // It was accepted before: a token is valid through proxies too, and a certificate counted
            // only without one.
            is_forwarded: false,
        }
    }

    fn authenticate(&self) -> Result<Principal, CredentialError> {
        self.access.authenticate(&self.shown())
    }

    async fn verify_again(self: Arc<Self>) -> Result<Principal, CredentialError> {
        self.access.prepare(&self.shown()).await;
        self.authenticate()
    }
}

impl CredentialWatch {
    /// Creates a monitor of the credential of a request that has just been authenticated.
    pub fn new(request: &HttpRequest, access: &AccessControl) -> Self {
        let extensions = request.extensions();
        let other = extensions.get::<OtherCredential>();
        let header = || request.headers().get(AUTHORIZATION);
        let authorization = other.map_or_else(
            || header().map(|value| value.as_bytes()),
            |OtherCredential(shown)| Some(shown),
        );
        let shown = PresentedCredential {
            peer: client_address(request),
            local: Some(bound_address(request).ip()),
            authorization,
            certificate: tls::client_certificate(request),
            is_forwarded: false,
        };
        Self::of_credential(&shown, access)
    }

    /// Creates a monitor of a credential that has just been accepted by `access`. Must be called
    /// within a tokio runtime.
    pub fn of_credential(shown: &PresentedCredential<'_>, access: &AccessControl) -> Self {
        let shown = matches!(access, AccessControl::Bearer(_)).then(|| {
            Arc::new(WatchedCredential {
                access: access.clone(),
                authorization: shown.authorization.map(<[u8]>::to_vec),
                certificate: shown.certificate.cloned(),
                peer: shown.peer,
                local: shown.local,
            })
        });
        Self {
            principal: shown.as_ref().and_then(|shown| shown.authenticate().ok()),
            shown,
            verified: Instant::now(),
            next: Box::pin(sleep(CREDENTIAL_CHECK_INTERVAL)),
            check: None,
        }
    }

    /// Returns `Ready` once the credential is no longer valid, or belongs to another principal, or
    /// couldn't be verified for [`CREDENTIAL_OUTAGE_MAX`]. It is verified every
    /// [`CREDENTIAL_CHECK_INTERVAL`]. Never ready if the listener requires no credential.
    pub fn poll_revoked(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(shown) = &self.shown else {
            return Poll::Pending;
        };
        loop {
            let Some(check) = &mut self.check else {
                ready!(self.next.as_mut().poll(cx));
                let (shown, latest) = (shown.clone(), self.verified + CREDENTIAL_OUTAGE_MAX);
                self.check = Some(Box::pin(async move {
                    let checked = timeout_at(latest, shown.verify_again()).await;
                    checked.unwrap_or(Err(CredentialError::Unavailable))
                }));
                continue;
            };
            let checked = ready!(check.as_mut().poll(cx));
            self.check = None;
            match checked {
                // The answer of an issuer may have become too old since the request was accepted.
                Ok(now) if *self.principal.get_or_insert_with(|| now.clone()) == now => {
                    self.verified = Instant::now();
                }
                Err(CredentialError::Unavailable)
                    if self.verified.elapsed() < CREDENTIAL_OUTAGE_MAX => {}
                Ok(_) | Err(_) => return Poll::Ready(()),
            }
            self.next
                .as_mut()
                .reset(Instant::now() + CREDENTIAL_CHECK_INTERVAL);
        }
    }

    /// Waits until the credential is no longer valid, or belongs to another principal. Waits
    /// forever if the listener requires no credential.
    pub async fn wait_revoked(&mut self) {
        poll_fn(|cx| self.poll_revoked(cx)).await;
    }
}

/// Detector of a dead peer by heartbeats. The caller sends a ping after each [`tick`](Self::tick).
/// The peer counts as dead if it has sent nothing for three periods.
pub struct HeartbeatMonitor {
    ticks: Interval,
    /// Number of ticks since the peer's last activity.
    silent: u32,
}

impl HeartbeatMonitor {
    const MISSED_HEARTBEATS_MAX: u32 = 3;

    /// Creates a detector with the given period between pings. The first tick is immediate.
    pub fn new(period: Duration) -> Self {
        let mut ticks = interval(period.max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { ticks, silent: 0 }
    }

    /// Records that the peer has sent something, so that it doesn't count as dead.
    pub fn record_activity(&mut self) {
        self.silent = 0;
    }

    /// Waits for the next tick. Afterwards the caller checks [`is_dead`](Self::is_dead) and sends a
    /// ping.
    pub async fn tick(&mut self) {
        self.ticks.tick().await;
        self.silent += 1;
    }

    /// Returns whether the peer has sent nothing since three pings.
    pub fn is_dead(&self) -> bool {
        self.silent > Self::MISSED_HEARTBEATS_MAX
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::BearerVerifier;

    /// Verifier whose result is set.
    struct SetResult(Arc<Mutex<Result<Principal, CredentialError>>>);

    impl BearerVerifier for SetResult {
        fn verify(&self, _: &[u8]) -> Option<Result<Principal, CredentialError>> {
            Some(self.0.lock().clone())
        }
    }

    /// Goal: a watched credential ends when it is wrong or another principal's; while it can't be
    /// verified, after the time for that, counted from its latest verification. Method: the times of the
    /// end for each, in paused time.
    #[tokio::test(start_paused = true)]
    async fn ends_of_watched_credentials() {
        let (first, other) = (Ok(Principal::agent("a")), Ok(Principal::agent("b")));
        let unavailable = Err(CredentialError::Unavailable);
        let shown = PresentedCredential {
            peer: None,
            local: None,
            authorization: Some(b"Bearer x"),
            certificate: None,
            is_forwarded: false,
        };
        let outage = CREDENTIAL_OUTAGE_MAX;
        for (opened_with, then, ends_after) in [
            (
                &first,
                Err(CredentialError::Wrong),
                CREDENTIAL_CHECK_INTERVAL,
            ),
            (&first, other.clone(), CREDENTIAL_CHECK_INTERVAL),
            (&first, unavailable.clone(), outage),
            (&unavailable, unavailable.clone(), outage),
        ] {
            let result = Arc::new(Mutex::new(opened_with.clone()));
            let verifier = Box::new(SetResult(result.clone()));
            let access = AccessControl::with_verifiers(vec![verifier]);
            let mut watch = CredentialWatch::of_credential(&shown, &access);
            *result.lock() = then.clone();
            let began = Instant::now();
            watch.wait_revoked().await;
            let late = began.elapsed() - ends_after;
            assert!(late < CREDENTIAL_CHECK_INTERVAL, "{opened_with:?} {then:?}");
        }
        let result = Arc::new(Mutex::new(unavailable.clone()));
        let verifier = Box::new(SetResult(result.clone()));
        let access = AccessControl::with_verifiers(vec![verifier]);
        let mut watch = CredentialWatch::of_credential(&shown, &access);
        for now in [&first, &unavailable, &first, &unavailable, &first] {
            *result.lock() = now.clone();
            let held = timeout(outage * 9 / 10, watch.wait_revoked()).await;
            assert!(held.is_err(), "{now:?}");
        }
        *result.lock() = other;
        watch.wait_revoked().await;
    }
}
