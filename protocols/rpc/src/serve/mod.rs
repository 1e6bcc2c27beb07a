//! HTTP listeners (feature `serve`): the timeouts and bounds of their connections, and what a request must be before its
//! body is read.

pub mod accept;
mod alive;
pub mod claim;
pub mod guard;
pub mod idle;
mod named;
mod permit;
pub mod reply;
mod standing;
pub mod websocket;

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::time::Duration;

use actix_web::dev::Server;
use actix_web::web::ServiceConfig;
use actix_web::{App, HttpServer};

pub use alive::Alive;
pub use named::Named;
pub use permit::Permit;
pub use standing::{COUNTS_NO_MORE, STANDING_LOOKED_AT_EVERY, Standing};

/// How long the head of a request may take to arrive, by default.
pub const HEADERS_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// Shortest time that the head of a request has: actix reads a clock that may be half a second old.
pub const HEADERS_TIMEOUT_MIN: Duration = Duration::from_secs(1);
/// How long an idle connection is kept, by default.
pub const KEEP_ALIVE_DEFAULT: Duration = Duration::from_secs(30);
/// How long running calls may take to end when the server stops, by default.
pub const DRAIN_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// Most connections at once, over all workers, by default.
pub const CONNECTIONS_MAX_DEFAULT: usize = 1_024;
/// Threads that serve connections, by default: what they do is parse and wait.
pub const WORKERS_DEFAULT: usize = 1;

/// How a listener treats its connections.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// How long the head of a request may take to arrive; [`HEADERS_TIMEOUT_MIN`] at least.
    pub headers_timeout: Duration,
    /// How long an idle connection is kept.
    pub keep_alive: Duration,
    /// How long running calls may take to end when the server stops. Whole seconds; a part counts as one.
    pub drain_timeout: Duration,
    /// Most connections at once, over all workers. Others wait in the kernel's queue.
    pub connections_max: usize,
    /// Threads that serve connections.
    pub workers: usize,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            headers_timeout: HEADERS_TIMEOUT_DEFAULT,
            keep_alive: KEEP_ALIVE_DEFAULT,
            drain_timeout: DRAIN_TIMEOUT_DEFAULT,
            connections_max: CONNECTIONS_MAX_DEFAULT,
            workers: WORKERS_DEFAULT,
        }
    }
}

/// Why a listener can't serve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Bind a loopback address, or require keys: beyond this machine anybody could use the agent.
    #[error("{address} is not a loopback address: keys are needed to listen there")]
    OpenBeyondLoopback {
        /// Where the listener is bound.
        address: SocketAddr,
    },
    /// The socket failed: see what the system says.
    #[error("can't listen: {0}")]
    Io(#[from] std::io::Error),
}

/// A server that is ready to run.
pub struct Serving {
    /// Where it listens.
    pub address: SocketAddr,
    /// Await or spawn it; `server.handle().stop(true)` ends it from elsewhere. It catches no signals.
    pub server: Server,
}

/// Whether what is served may be served on this socket: beyond this machine, peers must show who they are.
///
/// # Errors
/// [`ServeError::OpenBeyondLoopback`].
pub fn check_address(listener: &TcpListener, may_listen_on: impl Fn(IpAddr) -> bool) -> Result<(), ServeError> {
    let address = listener.local_addr()?;
    if may_listen_on(address.ip()) { Ok(()) } else { Err(ServeError::OpenBeyondLoopback { address }) }
}

/// Serves what `configure` adds to an application on a bound listener, with every timeout set.
///
/// # Errors
/// See [`ServeError`].
pub fn serve(
    listener: TcpListener,
    listen: &ListenOptions,
    configure: impl Fn(&mut ServiceConfig) + Clone + Send + 'static,
) -> Result<Serving, ServeError> {
    let address = listener.local_addr()?;
    let headers_timeout = listen.headers_timeout.max(HEADERS_TIMEOUT_MIN);
    let idle_max = listen.keep_alive + headers_timeout;
    let workers = listen.workers.max(1);
    let drain_seconds = listen.drain_timeout.as_millis().div_ceil(1_000);
    let server = HttpServer::new(move || App::new().configure(configure.clone()))
        .workers(workers)
        .max_connections(listen.connections_max.div_ceil(workers))
        .client_request_timeout(headers_timeout)
        .keep_alive(listen.keep_alive)
        .on_connect(move |connection, data| idle::watch(connection, data, idle_max))
        .tcp_nodelay(true)
        // A client that closes its side has gone away: its call is dropped, which cancels it.
        .h1_allow_half_closed(false)
        .shutdown_timeout(u64::try_from(drain_seconds).unwrap_or(u64::MAX))
        .disable_signals()
        .listen(listener)?
        .run();
    Ok(Serving { address, server })
}
