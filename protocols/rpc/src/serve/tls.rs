//! TLS of a listener: handshakes with their limits, in front of the HTTP server.
//!
//! The handshake is ours rather than actix-web's, because connections must count for their address
//! before it, and changed certificates hold for new connections without a new server.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use actix_web::HttpRequest;
use rustls::{ServerConfig, ServerConnection};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::address_limit::{AddressConnections, CountedConnection};
use super::{ConcurrencyPermit, ConnectionOrigin, ConnectionSetup};
use crate::{
    ClientCertificate, ReloadingServerConfig, TLS_FILE_POLL_INTERVAL, TlsFileError, TlsFiles,
};

/// Default time within which a client must complete the TLS handshake. Then its connection is
/// closed.
pub const HANDSHAKE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);
/// Default maximum number of TLS handshakes in progress at a listener, of which one address may have
/// three quarters. The next connection is closed.
pub const HANDSHAKES_MAX_DEFAULT: usize = 256;
/// Maximum number of bytes that a TLS connection holds encrypted for a client that doesn't read.
/// Beyond it, the response waits.
pub const TLS_WRITE_BUFFER_BYTES_MAX: usize = 16 * 1024;
/// Name of HTTP/1.1 in the handshake (ALPN).
pub(super) const HTTP_1_1: &[u8] = b"http/1.1";
/// Name of HTTP/2 in the handshake (ALPN).
pub(super) const HTTP_2: &[u8] = b"h2";
/// Maximum number of bytes that are read of a connection after its handshake has failed.
const REFUSED_BYTES_MAX: u64 = 64 * 1024;
/// Time that a client has to close its side after the server has closed its own.
pub(super) const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// TLS of a listener: its certificate files, and the limits of handshakes. Clones share the
/// certificate, which is read again when its files change.
#[derive(Clone)]
pub struct ListenerTls {
    source: CertificateSource,
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
        let files = ReloadingServerConfig::open(files, poll_interval)?;
        Ok(Self::from_source(CertificateSource::Files(Arc::new(files))))
    }

    /// Takes the certificate with these settings from `registry`, with the default limits. Must be called
    /// within a tokio runtime.
    ///
    /// # Errors
    /// [`TlsFileError`] if the folder can't be created or others can read it, or the file of authorities
    /// can't be used.
    #[cfg(feature = "acme")]
    pub fn open_acme(
        settings: &crate::AcmeSettings,
        registry: &crate::AcmeRegistry,
    ) -> Result<Self, TlsFileError> {
        let certificate = registry.certificate(settings)?;
        Ok(Self::from_source(CertificateSource::Acme(certificate)))
    }

    fn from_source(source: CertificateSource) -> Self {
        Self {
            source,
            handshake_timeout: HANDSHAKE_TIMEOUT_DEFAULT,
            handshakes_max: HANDSHAKES_MAX_DEFAULT,
        }
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

/// Origin of a listener's certificate.
#[derive(Clone)]
enum CertificateSource {
    Files(Arc<ReloadingServerConfig>),
    #[cfg(feature = "acme")]
    Acme(Arc<crate::tls::AcmeCertificate>),
}

impl CertificateSource {
    /// Returns the current configuration of a listener that speaks this protocol.
    fn config(&self, protocol: &[u8]) -> ServerConfig {
        let (current, other) = match self {
            Self::Files(files) => (files.current(), None),
            #[cfg(feature = "acme")]
            Self::Acme(certificate) => (certificate.config.clone(), Some(crate::tls::ACME_TLS_1)),
        };
        let mut config = ServerConfig::clone(&current);
        let protocols = std::iter::once(protocol).chain(other);
        config.alpn_protocols = protocols.map(<[u8]>::to_vec).collect();
        config
    }

    /// Returns the certificate that the client of a connection has shown; `None` if the listener
    /// demands none.
    fn client_certificate(&self, session: &ServerConnection) -> Option<ClientCertificate> {
        match self {
            Self::Files(files) => {
                let shown = session.peer_certificates()?;
                Some(ClientCertificate::new(shown.to_vec(), files.clone()))
            }
            #[cfg(feature = "acme")]
            Self::Acme(_) => None,
        }
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

/// Returns the certificate that the client of a request has shown. `None` without TLS, or at a listener
/// that demands none.
pub fn client_certificate(request: &HttpRequest) -> Option<&ClientCertificate> {
    request.conn_data::<ClientCertificate>()
}

/// Performer of the handshakes of a listener.
#[derive(Clone)]
pub(super) struct Handshaker {
    tls: ListenerTls,
    setup: ConnectionSetup,
    handshakes: HandshakeLimit,
    /// The only protocol that is offered, by its name in the handshake.
    protocol: &'static [u8],
}

/// Connection whose handshake is complete.
pub(super) struct SecuredStream<S> {
    pub stream: TlsStream<S>,
    /// Counts the connection for its address; `None` for those of trusted proxies.
    pub counted: Option<CountedConnection>,
    /// Certificate of the client; `None` if the listener demands none, or it is that of a trusted proxy,
    /// which passes on requests of others.
    pub certificate: Option<ClientCertificate>,
}

impl Handshaker {
    pub fn new(tls: &ListenerTls, setup: &ConnectionSetup, protocol: &'static [u8]) -> Self {
        Self {
            tls: tls.clone(),
            setup: setup.clone(),
            handshakes: HandshakeLimit::new(tls.handshakes_max),
            protocol,
        }
    }

    /// Counts a connection for its client, and performs the handshake within its limits. The
    /// connection is closed if that fails. (A response can't be sent without TLS.)
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        origin: ConnectionOrigin,
    ) -> io::Result<SecuredStream<S>> {
        let counted = self.setup.count(origin)?;
        let running = self
            .handshakes
            .begin(origin.limited_address())
            .ok_or(io::ErrorKind::ConnectionRefused)?;
        let config = self.tls.source.config(self.protocol);
        let handshake = TlsAcceptor::from(Arc::new(config))
            .accept(stream)
            .into_fallible();
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
            let peer = origin.client.ip().to_string();
            callboard_message::log::info!(by: &peer, peer, %error, "a TLS handshake failed");
        })?;
        let (_, session) = stream.get_mut();
        if session
            .alpn_protocol()
            .is_some_and(|name| name != self.protocol)
        {
            // The check of a domain by an ACME authority ends with the handshake.
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        session.set_buffer_limit(Some(TLS_WRITE_BUFFER_BYTES_MAX));
        let shown = self.tls.source.client_certificate(session);
        Ok(SecuredStream {
            stream,
            counted,
            certificate: shown.filter(|_| !origin.is_proxy),
        })
    }
}

/// Closes a connection whose handshake has failed, after the client has closed its side or
/// [`DISCONNECT_TIMEOUT`]. With unread data, an immediate close would reset the connection, and the
/// client might not read the reason (RFC 8446, section 6).
async fn close_refused(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
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
