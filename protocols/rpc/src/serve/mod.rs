//! HTTP listeners (feature `serve`): the timeouts and bounds of their connections, and what a request must be before its
//! body is read.

pub mod accept;
pub mod claim;
pub mod guard;
pub mod idle;
pub mod reply;
pub mod websocket;

use std::collections::HashMap;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix_web::dev::Server;
use actix_web::http::header::AUTHORIZATION;
use actix_web::web::ServiceConfig;
use actix_web::{App, HttpRequest, HttpServer};
use callboard_message::Principal;
use parking_lot::RwLock;
use tokio::time::{Instant, Interval, MissedTickBehavior, Sleep, interval, sleep};

use crate::{Access, Credential};

/// Shortest time that the head of a request has: actix reads a clock that may be half a second old.
pub const HEADERS_TIMEOUT_MIN: Duration = Duration::from_secs(1);
/// Most connections at once, over all workers, by default.
pub const CONNECTIONS_MAX_DEFAULT: usize = 1_024;

/// How a listener treats its connections.
#[derive(Debug, Clone)]
pub struct ListenOptions {
    /// How long the head of a request may take to arrive; [`HEADERS_TIMEOUT_MIN`] at least.
    /// Default: 5 s.
    pub headers_timeout: Duration,
    /// How long an idle connection is kept.
    /// Default: 30 s.
    pub keep_alive: Duration,
    /// How long running calls may take to end when the server stops. Whole seconds; a part counts as one.
    /// Default: 5 s.
    pub drain_timeout: Duration,
    /// Most connections at once, over all workers. Others wait in the kernel's queue.
    pub connections_max: usize,
    /// Threads that serve connections.
    /// Default: 1.
    pub workers: usize,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            headers_timeout: Duration::from_secs(5),
            keep_alive: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(5),
            connections_max: CONNECTIONS_MAX_DEFAULT,
            workers: 1,
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
pub fn check_address(
    listener: &TcpListener,
    may_listen_on: impl Fn(IpAddr) -> bool,
) -> Result<(), ServeError> {
    let address = listener.local_addr()?;
    if may_listen_on(address.ip()) {
        Ok(())
    } else {
        Err(ServeError::OpenBeyondLoopback { address })
    }
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

/// Servers by name, of which some may come and go while a listener serves. Clones are the same servers.
#[derive(Clone)]
pub struct Named<S>(Arc<RwLock<HashMap<String, S>>>);

impl<S> Default for Named<S> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<S: Clone> Named<S> {
    /// Serves these from now on, and no others. A request that was begun ends as it began; another name is 404.
    pub fn set(&self, servers: HashMap<String, S>) {
        let before = std::mem::replace(&mut *self.0.write(), servers);
        drop(before);
    }

    /// The one of this name.
    pub fn get(&self, name: &str) -> Option<S> {
        self.0.read().get(name).cloned()
    }

    /// All of them, in the order of their names.
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

/// One of a bounded number, until it is dropped.
pub struct Permit(Arc<AtomicUsize>);

impl Permit {
    /// `None` where there are `max` already.
    pub fn take(count: &Arc<AtomicUsize>, max: usize) -> Option<Self> {
        if count.fetch_add(1, Ordering::Relaxed) >= max {
            count.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Self(count.clone()))
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How often a credential is looked at again while what it opened is open.
pub const STANDING_LOOKED_AT_EVERY: Duration = Duration::from_millis(500);

/// Why a stream ends whose credential counts no more, for a person.
pub const COUNTS_NO_MORE: &str = "the key counts no more";

/// The credential of a request that opened a stream, looked at again as long as that is open: a key may be revoked meanwhile.
pub struct Standing {
    /// `None` where nobody has to show anything.
    shown: Option<Shown>,
    next: Pin<Box<Sleep>>,
}

struct Shown {
    access: Access,
    authorization: Option<Vec<u8>>,
    peer: Option<IpAddr>,
    local: Option<IpAddr>,
    principal: Option<Principal>,
}

impl Shown {
    fn principal(&self) -> Option<Principal> {
        let Self {
            authorization,
            peer,
            local,
            ..
        } = self;
        // A key counts whoever passes it on.
        let shown = Credential {
            peer: *peer,
            local: *local,
            authorization: authorization.as_deref(),
            is_forwarded: false,
        };
        self.access.principal(&shown).ok()
    }
}

impl Standing {
    /// Of a request that was let in just now.
    pub fn of(request: &HttpRequest, access: &Access) -> Self {
        let shown = matches!(access, Access::Bearer(_)).then(|| {
            let shown = Shown {
                access: access.clone(),
                authorization: request
                    .headers()
                    .get(AUTHORIZATION)
                    .map(|value| value.as_bytes().to_vec()),
                peer: request.peer_addr().map(|address| address.ip()),
                local: Some(request.app_config().local_addr().ip()),
                principal: None,
            };
            Shown {
                principal: shown.principal(),
                ..shown
            }
        });
        Self {
            shown,
            next: Box::pin(sleep(STANDING_LOOKED_AT_EVERY)),
        }
    }

    /// Ready once the credential stands for somebody else than it did, or for nobody.
    pub fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(shown) = &self.shown else {
            return Poll::Pending;
        };
        loop {
            ready!(self.next.as_mut().poll(cx));
            let now = shown.principal();
            if now.is_none() || now != shown.principal {
                return Poll::Ready(());
            }
            self.next
                .as_mut()
                .reset(Instant::now() + STANDING_LOOKED_AT_EVERY);
        }
    }

    /// Ends once the credential stands for somebody else than it did, or for nobody.
    pub async fn lost(&mut self) {
        poll_fn(|cx| self.poll_lost(cx)).await;
    }
}

/// Whether the other end of a socket shows that it is there: it is asked at once and after each period, and is gone once
/// three in a row brought no word by the end of their period.
pub struct Alive {
    ticks: Interval,
    /// How often it was asked since it said something.
    silent: u32,
}

impl Alive {
    const SILENT_MAX: u32 = 3;

    /// Begins now.
    pub fn new(period: Duration) -> Self {
        let mut ticks = interval(period.max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { ticks, silent: 0 }
    }

    /// It said something.
    pub fn seen(&mut self) {
        self.silent = 0;
    }

    /// Waits for the end of a period: it is then to be asked, unless it is gone.
    pub async fn tick(&mut self) {
        self.ticks.tick().await;
        self.silent += 1;
    }

    /// Whether it is gone.
    pub fn is_over(&self) -> bool {
        self.silent > Self::SILENT_MAX
    }
}
