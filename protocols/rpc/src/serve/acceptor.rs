//! Acceptance of connections for servers other than that of [`serve`](super::serve).

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::address_limit::CountedConnection;
use super::tls::{HTTP_2, Handshaker, SecuredStream};
use super::{ConnectionSetup, ListenOptions};
use crate::ClientCertificate;

/// Acceptor of connections with the limits, PROXY headers and TLS of a listener. Clones share the
/// numbers of connections.
#[derive(Clone)]
pub struct ConnectionAcceptor {
    setup: ConnectionSetup,
    handshaker: Option<Handshaker>,
}

/// Connection that an acceptor has made ready for its protocol. It counts for its client's address
/// until it is dropped.
pub struct AcceptedConnection {
    /// Data of the connection, without PROXY header and TLS.
    pub stream: Either<TcpStream, TlsStream<TcpStream>>,
    /// Address of the client: the peer's, or the one that the PROXY header of a trusted proxy names.
    pub client: SocketAddr,
    /// Whether the client is a trusted proxy, each of whose requests names its own client.
    pub is_proxy: bool,
    /// Address of the listener's side.
    pub local: Option<SocketAddr>,
    /// Certificate of the client; `None` without TLS, if the listener demands none, or of a trusted proxy.
    pub certificate: Option<ClientCertificate>,
    _counted: Option<CountedConnection>,
}

impl ConnectionAcceptor {
    /// Creates an acceptor for a server that speaks HTTP/2 only.
    pub fn http2(listen: &ListenOptions) -> Self {
        let setup = ConnectionSetup::new(listen);
        let tls = listen.tls.as_ref();
        Self {
            handshaker: tls.map(|tls| Handshaker::new(tls, &setup, HTTP_2)),
            setup,
        }
    }

    /// Reads the PROXY header of a new connection if it must have one, counts it for its client's
    /// address, and performs the TLS handshake if the listener has TLS.
    ///
    /// # Errors
    /// Fails if the connection is over a limit, has a wrong PROXY header, or fails in its handshake;
    /// the reason is in the log, and the connection is closed.
    pub async fn accept(&self, mut stream: TcpStream) -> io::Result<AcceptedConnection> {
        // Small messages are sent at once. A connection that is gone already fails at its first read.
        let _ = stream.set_nodelay(true);
        let (peer, local) = (stream.peer_addr()?, stream.local_addr().ok());
        let origin = self.setup.origin_of(&mut stream, peer).await?;
        let (stream, counted, certificate) = match &self.handshaker {
            None => (Either::Left(stream), self.setup.count(origin)?, None),
            Some(handshaker) => {
                let accepted = handshaker.accept(stream, origin).await?;
                let SecuredStream {
                    stream,
                    counted,
                    certificate,
                } = accepted;
                (Either::Right(stream), counted, certificate)
            }
        };
        Ok(AcceptedConnection {
            stream,
            client: origin.client,
            is_proxy: origin.is_proxy,
            local,
            certificate,
            _counted: counted,
        })
    }
}
