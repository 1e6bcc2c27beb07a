//! TLS of a listener: handshakes with their limits, in front of the HTTP server.
//!
//! The handshake is ours rather than actix-web's, because connections must count for their address
//! before it, and changed certificates hold for new connections without a new server.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_http::error::DispatchError;
use actix_http::{HttpService, Protocol, Request, Response};
use actix_server::Server;
use actix_service::{
    IntoServiceFactory, Service, ServiceFactory, ServiceFactoryExt, fn_service, map_config,
};
use actix_web::HttpRequest;
use actix_web::body::MessageBody;
use actix_web::dev::{AppConfig, Extensions};
use actix_web::rt::net::TcpStream;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::address_limit::{AddressConnections, CountedConnection};
use super::{ConcurrencyPermit, ConnectionSetup, ServeError, ServerLimits};
use crate::{ReloadingServerConfig, TLS_FILE_POLL_INTERVAL, TlsFileError, TlsFiles};

/// Default time within which a client must complete the TLS handshake. Then its connection is
/// closed.
pub const HANDSHAKE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// Default maximum number of TLS handshakes in progress at a listener, of which one address may have
/// three quarters. The next connection is closed.
pub const HANDSHAKES_MAX_DEFAULT: usize = 256;
/// Maximum number of bytes that a TLS connection holds encrypted for a client that doesn't read.
/// Beyond it, the response waits.
pub const TLS_WRITE_BUFFER_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of bytes that are read of a connection after its handshake has failed.
const REFUSED_BYTES_MAX: u64 = 64 * 1024;
/// Time that a client has to close its side after the server has closed its own.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// TLS of a listener: its certificate files, and the limits of handshakes. Clones share the
/// certificate, which is read again when its files change.
#[derive(Clone)]
pub struct ListenerTls {
    config: Arc<ReloadingServerConfig>,
    handshake_timeout: Duration,
    handshakes_max: usize,
}

impl ListenerTls {
    /// Reads the certificate files, with the default limits. The files are checked for changes at
    /// most once per [`TLS_FILE_POLL_INTERVAL`].
    ///
    /// # Errors
    /// [`TlsFileError`] if a file can't be used.
    pub fn open(files: TlsFiles) -> Result<Self, TlsFileError> {
        Self::open_with_poll_interval(files, TLS_FILE_POLL_INTERVAL)
    }

    /// Reads the certificate files like [`open`](Self::open), and checks them for changes at most
    /// once per `poll_interval`; zero means at every connection.
    ///
    /// # Errors
    /// [`TlsFileError`] if a file can't be used.
    pub fn open_with_poll_interval(
        files: TlsFiles,
        poll_interval: Duration,
    ) -> Result<Self, TlsFileError> {
        Ok(Self {
            config: Arc::new(ReloadingServerConfig::open(files, poll_interval)?),
            handshake_timeout: HANDSHAKE_TIMEOUT_DEFAULT,
            handshakes_max: HANDSHAKES_MAX_DEFAULT,
        })
    }

    /// Sets the time within which a client must complete the handshake.
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// Sets the maximum number of handshakes in progress, at least 1.
    pub fn handshakes_max(mut self, max: usize) -> Self {
        self.handshakes_max = max.max(1);
        self
    }
}

impl fmt::Debug for ListenerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenerTls")
            .field("handshake_timeout", &self.handshake_timeout)
            .field("handshakes_max", &self.handshakes_max)
            .finish_non_exhaustive()
    }
}

/// Certificate that a client has shown, in DER, as connection data. The listener's `client_ca` has
/// verified it.
struct ShownCertificate(Vec<u8>);

/// Returns the certificate that the client of a request has shown and the listener has verified, in
/// DER. `None` without TLS, or at a listener that demands none.
pub fn client_certificate(request: &HttpRequest) -> Option<&[u8]> {
    let shown = request.conn_data::<ShownCertificate>()?;
    Some(&shown.0)
}

/// Address that a listener is bound to, as connection data. The HTTP server behind the handshake
/// doesn't know it.
pub(super) struct BoundAddress(pub(super) SocketAddr);

/// Creates an HTTPS server for a bound listener.
pub(super) fn serve<F, I, S, B>(
    listener: TcpListener,
    tls: &ListenerTls,
    setup: ConnectionSetup,
    limits: ServerLimits,
    app: F,
) -> Result<Server, ServeError>
where
    F: Fn() -> I + Send + Clone + 'static,
    I: IntoServiceFactory<S, Request>,
    S: ServiceFactory<Request, Config = AppConfig> + 'static,
    S::Error: Into<actix_web::Error> + 'static,
    S::InitError: fmt::Debug,
    S::Response: Into<Response<B>> + 'static,
    <S::Service as Service<Request>>::Future: 'static,
    S::Service: 'static,
    B: MessageBody + 'static,
{
    let address = listener.local_addr()?;
    let builder = Server::build()
        .workers(limits.workers)
        .max_concurrent_connections(limits.connections_max)
        .shutdown_timeout(limits.drain_seconds)
        .disable_signals();
    let stopping = builder.graceful_shutdown_signal();
    let handshakes = HandshakeLimit::new(tls.handshakes_max);
    let tls = tls.clone();
    let server = builder.listen(format!("https on {address}"), listener, move || {
        let stopping = stopping.clone();
        let handshaker = Handshaker {
            tls: tls.clone(),
            setup: setup.clone(),
            handshakes: handshakes.clone(),
        };
        let setup = setup.clone();
        let http = HttpService::build()
            .graceful_shutdown_signal(move || {
                let stopping = stopping.clone();
                async move { stopping.notified().await }
            })
            .keep_alive(limits.keep_alive)
            .client_request_timeout(limits.headers_timeout)
            .client_disconnect_timeout(DISCONNECT_TIMEOUT)
            .h1_allow_half_closed(false)
            .secure()
            .local_addr(address)
            .on_connect_ext(move |connection: &TlsConnection, data: &mut Extensions| {
                data.insert(BoundAddress(address));
                connection.set_up(&setup, data);
            })
            .finish(map_config(
                app()
                    .into_factory()
                    .map_err(|error| error.into().error_response()),
                |()| AppConfig::default(),
            ));
        fn_service(move |stream: TcpStream| {
            let handshaker = handshaker.clone();
            async move {
                let peer = stream.peer_addr().ok();
                let stream = handshaker.accept(stream, peer).await;
                stream
                    .map(|stream| (stream, Protocol::Http1, peer))
                    .map_err(DispatchError::Io)
            }
        })
        .and_then(http)
    })?;
    Ok(server.run())
}

/// Performer of the handshakes of a listener.
#[derive(Clone)]
struct Handshaker {
    tls: ListenerTls,
    setup: ConnectionSetup,
    handshakes: HandshakeLimit,
}

impl Handshaker {
    /// Counts a connection for its address, and performs the handshake within its limits. The
    /// connection is closed if that fails. (A response can't be sent without TLS.)
    async fn accept(
        &self,
        stream: TcpStream,
        peer: Option<SocketAddr>,
    ) -> io::Result<TlsConnection> {
        let peer = peer.map(|peer| peer.ip());
        // Trusted proxies have connections for many clients.
        let limited = peer.filter(|peer| !self.setup.proxies.contains(*peer));
        let refused = |_| io::Error::from(io::ErrorKind::ConnectionRefused);
        let counted = limited
            .map(|peer| self.setup.addresses.count(peer).ok_or(()))
            .transpose()
            .map_err(refused)?;
        let running = self.handshakes.begin(limited).ok_or(()).map_err(refused)?;
        // Small messages are sent at once.
        stream.set_nodelay(true)?;
        let acceptor = TlsAcceptor::from(self.tls.config.current());
        let handshake = acceptor.accept(stream).into_fallible();
        let handshake = match timeout(self.tls.handshake_timeout, handshake).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err((error, stream))) => {
                close_refused(stream).await;
                Err(error)
            }
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        drop(running);
        let mut stream = handshake.inspect_err(|error| {
            let peer = peer.map(|peer| peer.to_string()).unwrap_or_default();
            callboard_message::log::info!(by: &peer, peer, %error, "a TLS handshake failed");
        })?;
        let (_, session) = stream.get_mut();
        session.set_buffer_limit(Some(TLS_WRITE_BUFFER_BYTES_MAX));
        Ok(TlsConnection {
            stream,
            _counted: counted,
        })
    }
}

/// Closes a connection whose handshake has failed, after the client has closed its side or
/// [`DISCONNECT_TIMEOUT`]. With unread data, an immediate close would reset the connection, and the
/// client might not read the reason (RFC 8446, section 6).
async fn close_refused(mut stream: TcpStream) {
    let read_rest = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(REFUSED_BYTES_MAX), &mut tokio::io::sink()).await
    };
    // The client may be gone already.
    let _ = timeout(DISCONNECT_TIMEOUT, read_rest).await;
}

/// Limit on the handshakes in progress, over all workers of a listener.
#[derive(Clone)]
struct HandshakeLimit {
    running: Arc<AtomicUsize>,
    max: usize,
    addresses: AddressConnections,
}

/// Handshake in progress, which counts until it is dropped.
struct RunningHandshake {
    _place: ConcurrencyPermit,
    _counted: Option<CountedConnection>,
}

impl HandshakeLimit {
    fn new(max: usize) -> Self {
        Self {
            running: Arc::default(),
            max,
            addresses: AddressConnections::new(max - max / 4),
        }
    }

    /// Counts a new handshake for `limited`, the address whose share it counts in. `None` at the
    /// limit.
    fn begin(&self, limited: Option<IpAddr>) -> Option<RunningHandshake> {
        let begin = || {
            let counted = limited
                .map(|peer| self.addresses.try_count(peer).ok_or(()))
                .transpose()
                .ok()?;
            Some(RunningHandshake {
                _place: ConcurrencyPermit::try_acquire(&self.running, self.max)?,
                _counted: counted,
            })
        };
        let running = begin();
        if running.is_none() {
            let peer = limited.map(|peer| peer.to_string()).unwrap_or_default();
            callboard_message::log::warn!(by: &peer, peer, handshakes_max = self.max, "closed a connection: too many TLS handshakes are in progress");
        }
        running
    }
}

/// Connection whose handshake is complete.
struct TlsConnection {
    stream: TlsStream<TcpStream>,
    /// Counts the connection for its address; `None` for those of trusted proxies.
    _counted: Option<CountedConnection>,
}

impl TlsConnection {
    fn set_up(&self, setup: &ConnectionSetup, data: &mut Extensions) {
        let (tcp, session) = self.stream.get_ref();
        setup.watch(tcp, data);
        let shown = session.peer_certificates().and_then(|chain| chain.first());
        if let Some(certificate) = shown {
            data.insert(ShownCertificate(certificate.to_vec()));
        }
    }
}

impl AsyncRead for TlsConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for TlsConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
