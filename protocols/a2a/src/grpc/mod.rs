//! The gRPC binding of 1.0 (specification, section 10; feature `grpc`).
//!
//! Messages use the generated types of `a2a-pb` and are converted to the canonical types via
//! ProtoJSON, so all bindings share one reader and one set of rules.

mod counted_service;
mod service;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use a2a_pb::proto::a2a_service_server::A2aServiceServer;
use callboard_rpc::ClientCertificate;
use callboard_rpc::serve::acceptor::{AcceptedConnection, ConnectionAcceptor};
use callboard_rpc::serve::check_address;
use callboard_rpc::serve::client_address::TrustedProxies;
use futures::StreamExt;
use futures::stream::{Stream, pending, unfold};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{self, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::Server;
use tonic::transport::server::Connected;

use crate::inbound::{A2aServer, AddressRouter, ListenOptions, NamedAgents, ServeError};
use counted_service::CountedService;
use service::GrpcService;

/// Maximum number of concurrent calls on one connection.
/// At the limit: the next one waits.
pub const GRPC_STREAMS_MAX: u32 = 128;
/// Maximum size of a call's headers, in bytes.
/// At the limit: the call is rejected.
pub const GRPC_HEADERS_BYTES_MAX: u32 = 16 * 1024;
/// HTTP/2 keep-alive: interval of pings on an idle connection, and timeout of the response to a
/// ping.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));

/// Handle of a running gRPC server. The server continues if the handle is dropped.
pub struct BoundGrpcServer {
    /// Address that the server listens on.
    pub address: SocketAddr,
    tokens: ServerTokens,
    running: JoinHandle<()>,
    drain_timeout: Duration,
}

/// Steps of a server's end.
#[derive(Clone, Default)]
struct ServerTokens {
    /// No further connection is accepted.
    accept_stopped: CancellationToken,
    /// No further call is accepted.
    stopped: CancellationToken,
    /// Connections that are left fail.
    closed: CancellationToken,
}

impl BoundGrpcServer {
    /// Stops accepting connections. Those that are open go on, and another server may accept on the
    /// same socket.
    pub fn stop_accepting(&self) {
        self.tokens.accept_stopped.cancel();
    }

    /// Stops accepting calls and waits until running calls have ended. Calls that are still running
    /// after the drain timeout of [`ListenOptions`] are aborted, and their connections closed.
    pub async fn stop(self) {
        self.tokens.stopped.cancel();
        let abort = self.running.abort_handle();
        if tokio::time::timeout(self.drain_timeout, self.running)
            .await
            .is_err()
        {
            abort.abort();
        }
        self.tokens.closed.cancel();
    }
}

/// Serves agents over gRPC on a bound listener. A request without a tenant goes to the aggregate
/// agent `all`; a tenant is the name of one of the agents `named`. Must be called within a tokio
/// runtime.
///
/// # Errors
/// [`ServeError`] if the address isn't allowed without authentication, or the server can't start.
pub fn serve(
    listener: TcpListener,
    all: A2aServer,
    named: NamedAgents,
    listen: &ListenOptions,
) -> Result<BoundGrpcServer, ServeError> {
    let address = listener.local_addr()?;
    let router = AddressRouter {
        aggregate: all,
        named,
    };
    check_address(&listener, |address| router.may_listen_on(address))?;
    listener.set_nonblocking(true)?;
    let tokens = ServerTokens::default();
    let connections = accept_connections(
        net::TcpListener::from_std(listener)?,
        listen,
        tokens.clone(),
    );
    let options = router.options();
    let (bytes_max, time_max) = (
        options.limits.body_bytes_max,
        options.call_deadline + options.body_timeout,
    );
    let service = GrpcService {
        router,
        auth_failures: listen.auth_failures.clone(),
        proxies: listen.trusted_proxies.clone(),
    };
    let service = CountedService {
        inner: A2aServiceServer::new(service).max_decoding_message_size(bytes_max),
        buffers: listen.buffers.listener(),
        proxies: listen.trusted_proxies.clone(),
    };
    let server = Server::builder()
        .timeout(time_max)
        .max_concurrent_streams(GRPC_STREAMS_MAX)
        .http2_max_header_list_size(GRPC_HEADERS_BYTES_MAX)
        .http2_keepalive_interval(Some(KEEPALIVE.0))
        .http2_keepalive_timeout(Some(KEEPALIVE.1))
        .add_service(service);
    let until = tokens.stopped.clone();
    let running = tokio::spawn(async move {
        let served = server
            .serve_with_incoming_shutdown(connections, until.cancelled_owned())
            .await;
        if let Err(error) = served {
            callboard_message::log::error!(%error, "the gRPC listener has stopped: restart the process to serve gRPC again");
        }
    });
    Ok(BoundGrpcServer {
        address,
        tokens,
        running,
        drain_timeout: listen.drain_timeout,
    })
}

/// Delay after a failed accept, because the process may be out of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Returns the stream of connections that a listener accepts, ready for HTTP/2. It has no end, so that
/// open connections go on. At most `connections_max` are open at once, those in their handshake
/// included; further ones wait in the kernel's queue. Those that don't keep the rules of the listener
/// are closed.
fn accept_connections(
    listener: net::TcpListener,
    listen: &ListenOptions,
    tokens: ServerTokens,
) -> impl Stream<Item = io::Result<GrpcConnection>> + Send + 'static {
    let acceptor = ConnectionAcceptor::http2(listen);
    let connections_max = listen.connections_max;
    let (preface_timeout, idle_max) = (listen.headers_timeout, listen.keep_alive);
    let room = Arc::new(Semaphore::new(connections_max));
    let until = tokens.accept_stopped;
    let accepted = unfold((listener, room), |(listener, room)| async move {
        let permit = room.clone().acquire_owned().await.ok()?;
        let stream = accept(&listener).await;
        Some(((stream, permit), (listener, room)))
    })
    .take_until(until.cancelled_owned())
    .chain(pending());
    accepted
        .map(move |(stream, permit)| {
            let (acceptor, closed) = (acceptor.clone(), tokens.closed.child_token());
            async move {
                let connection = acceptor.accept(stream).await.ok()?;
                Some(Ok(GrpcConnection {
                    connection,
                    missing_preface_bytes: PREFACE_BYTES,
                    calls: RunningCalls::default(),
                    idle_max,
                    timeout: Box::pin(sleep(preface_timeout)),
                    closed: Box::pin(closed.cancelled_owned()),
                    _permit: permit,
                }))
            }
        })
        .buffer_unordered(connections_max)
        .filter_map(std::future::ready)
}

/// Accepts a connection. Tries again after a failure.
async fn accept(listener: &net::TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                callboard_message::log::warn!(%error, "failed to accept a gRPC connection: trying again");
                sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

/// An accepted connection, counted towards the maximum of connections, and that of its address.
struct GrpcConnection {
    connection: AcceptedConnection,
    /// Number of bytes of the preface that haven't arrived, which the HTTP/2 library awaits without a limit.
    missing_preface_bytes: usize,
    calls: RunningCalls,
    /// Time for which the connection is kept open without a call.
    idle_max: Duration,
    /// Time of the preface, then of the next call.
    timeout: Pin<Box<Sleep>>,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    _permit: OwnedSemaphorePermit,
}

/// Length of the first bytes of a connection (RFC 9113, section 3.4).
const PREFACE_BYTES: usize = 24;

impl GrpcConnection {
    /// Returns the stream of the connection.
    ///
    /// # Errors
    /// Fails once the server has stopped.
    fn open_stream(
        &mut self,
        cx: &mut Context<'_>,
    ) -> io::Result<Pin<&mut (impl AsyncRead + AsyncWrite + use<>)>> {
        match self.closed.as_mut().poll(cx) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(Pin::new(&mut self.connection.stream)),
        }
    }

    /// Returns the error with which the connection ends while nothing arrives: the client hasn't sent the
    /// preface in time, or no call for too long.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        while self.timeout.as_mut().poll(cx).is_ready() {
            let idle_since = match self.missing_preface_bytes {
                0 => self.calls.idle_since(),
                _ => None,
            };
            let until = match (self.missing_preface_bytes, idle_since) {
                (0, None) => Instant::now() + self.idle_max,
                (0, Some(since)) if since.elapsed() < self.idle_max => since + self.idle_max,
                _ => return Poll::Ready(io::ErrorKind::TimedOut.into()),
            };
            self.timeout.as_mut().reset(until);
        }
        Poll::Pending
    }
}

/// Calls of a connection that aren't complete. Clones share their number.
#[derive(Clone, Default)]
struct RunningCalls(Arc<Mutex<CallCount>>);

struct CallCount {
    running: usize,
    /// End of the last one.
    last: Instant,
}

impl Default for CallCount {
    fn default() -> Self {
        Self {
            running: 0,
            last: Instant::now(),
        }
    }
}

/// A call that isn't complete, until it is dropped.
struct RunningCall(RunningCalls);

impl RunningCalls {
    fn begin(&self) -> RunningCall {
        self.0.lock().running += 1;
        RunningCall(self.clone())
    }

    /// Returns the time since which there is no call; `None` while there is one.
    fn idle_since(&self) -> Option<Instant> {
        let count = self.0.lock();
        (count.running == 0).then_some(count.last)
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        let mut count = self.0.0.lock();
        count.running -= 1;
        count.last = Instant::now();
    }
}

/// Addresses of a connection, certificate of its client and calls, as an extension of its requests.
#[derive(Clone)]
struct ConnectionInfo {
    local: Option<SocketAddr>,
    client: SocketAddr,
    /// Whether the client is a trusted proxy, each of whose requests names its own client.
    is_proxy: bool,
    certificate: Option<ClientCertificate>,
    calls: RunningCalls,
}

impl ConnectionInfo {
    /// Returns the address of a request's client. `forwarded` are the values of its
    /// [`FORWARDED_FOR`](callboard_rpc::serve::client_address::FORWARDED_FOR).
    fn client_address<'a>(
        &self,
        proxies: &TrustedProxies,
        forwarded: impl DoubleEndedIterator<Item = &'a [u8]>,
    ) -> IpAddr {
        let peer = self.client.ip();
        match self.is_proxy {
            true => proxies.client_of(peer, forwarded),
            false => peer,
        }
    }
}

impl Connected for GrpcConnection {
    type ConnectInfo = ConnectionInfo;

    fn connect_info(&self) -> ConnectionInfo {
        ConnectionInfo {
            local: self.connection.local,
            client: self.connection.client,
            is_proxy: self.connection.is_proxy,
            certificate: self.connection.certificate.clone(),
            calls: self.calls.clone(),
        }
    }
}

impl AsyncRead for GrpcConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = self.open_stream(cx)?.poll_read(cx, buf);
        if read.is_pending() {
            return self.poll_idle(cx).map(Err);
        }
        let read_bytes = buf.filled().len() - before;
        self.missing_preface_bytes = self.missing_preface_bytes.saturating_sub(read_bytes);
        read
    }
}

impl AsyncWrite for GrpcConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.open_stream(cx)?.poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.open_stream(cx)?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.open_stream(cx)?.poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.open_stream(cx)?.poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.stream.is_write_vectored()
    }
}
