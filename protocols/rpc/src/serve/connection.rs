//! HTTP server of a listener, and its connections with and without TLS.
//!
//! The connections are ours rather than actix-web's: reads take turns, and TLS has its own limits.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::task::{Context, Poll};

use actix_http::error::DispatchError;
use actix_http::{HttpService, Protocol, Request, Response};
use actix_server::Server;
use actix_service::{
    IntoServiceFactory, Service, ServiceFactory, ServiceFactoryExt, fn_service, map_config,
};
use actix_web::body::MessageBody;
use actix_web::dev::{AppConfig, Extensions};
use actix_web::rt::net::TcpStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::paced_stream::PacedStream;
use super::tls::{DISCONNECT_TIMEOUT, HTTP_1_1, Handshaker, ListenerTls, SecuredStream};
use super::{ConnectionSetup, ServeError, ServerLimits};

/// Listener that a connection belongs to, as connection data.
#[derive(Clone, Copy)]
pub(crate) struct BoundListener {
    pub address: SocketAddr,
    pub is_tls: bool,
}

/// Creates an HTTP server for a bound listener, with its TLS if it has any.
///
/// # Errors
/// [`ServeError::Io`] if the listener can't be used.
pub(super) fn serve<F, I, S, B>(
    listener: TcpListener,
    tls: Option<&ListenerTls>,
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
    let bound = BoundListener {
        address: listener.local_addr()?,
        is_tls: tls.is_some(),
    };
    let builder = Server::build()
        .workers(limits.workers)
        .max_concurrent_connections(limits.connections_max)
        .shutdown_timeout(limits.drain_seconds)
        .disable_signals();
    let stopping = builder.graceful_shutdown_signal();
    let handshaker = tls.map(|tls| Handshaker::new(tls, &setup, HTTP_1_1));
    let name = format!("http on {}", bound.address);
    let server = builder.listen(name, listener, move || {
        let (stopping, setup) = (stopping.clone(), setup.clone());
        let accepting = setup.clone();
        let handshaker = handshaker.clone();
        let http = HttpService::build()
            .graceful_shutdown_signal(move || {
                let stopping = stopping.clone();
                async move { stopping.notified().await }
            })
            .keep_alive(limits.keep_alive)
            .client_request_timeout(setup.headers_timeout)
            .client_disconnect_timeout(DISCONNECT_TIMEOUT)
            // A client that closes its side has left: its call is dropped, which cancels it.
            .h1_allow_half_closed(false)
            .local_addr(bound.address);
        let http = match bound.is_tls {
            true => http.secure(),
            false => http,
        };
        let http = http
            .on_connect_ext(move |connection: &Connection, data: &mut Extensions| {
                data.insert(bound);
                connection.set_up(&setup, data);
            })
            .finish(map_config(
                app()
                    .into_factory()
                    .map_err(|error| error.into().error_response()),
                |()| AppConfig::default(),
            ));
        fn_service(move |stream: TcpStream| {
            let (setup, handshaker) = (accepting.clone(), handshaker.clone());
            async move {
                let connection = accept(stream, &setup, handshaker.as_ref()).await;
                connection
                    .map(|connection| {
                        let client = connection.client();
                        (connection, Protocol::Http1, client)
                    })
                    .map_err(DispatchError::Io)
            }
        })
        .and_then(http)
    })?;
    Ok(server.run())
}

/// Makes a connection ready for HTTP: reads its PROXY header if there must be one, and performs the
/// handshake if the listener has TLS.
async fn accept(
    stream: TcpStream,
    setup: &ConnectionSetup,
    handshaker: Option<&Handshaker>,
) -> io::Result<Connection> {
    // Small messages are sent at once. A connection that is gone already fails at its first read.
    let _ = stream.set_nodelay(true);
    let peer = stream.peer_addr()?;
    let mut stream = PacedStream::new(stream);
    let origin = setup.origin_of(&mut stream, peer).await?;
    stream.set_origin(origin);
    Ok(match handshaker {
        None => Connection::Plain(stream),
        Some(handshaker) => Connection::Secured(Box::new(handshaker.accept(stream, origin).await?)),
    })
}

/// Connection of a client.
enum Connection {
    Plain(PacedStream),
    Secured(Box<SecuredStream<PacedStream>>),
}

impl Connection {
    fn set_up(&self, setup: &ConnectionSetup, data: &mut Extensions) {
        match self {
            Self::Plain(stream) => {
                data.insert(stream.refusal_mark());
                setup.admit(stream, data);
            }
            Self::Secured(secured) => {
                let stream = secured.stream.get_ref().0;
                data.insert(stream.refusal_mark());
                setup.watch(stream, data);
                if let Some(certificate) = &secured.certificate {
                    data.insert(certificate.clone());
                }
            }
        }
    }

    /// Returns the address of the client.
    fn client(&self) -> Option<SocketAddr> {
        let stream = match self {
            Self::Plain(stream) => stream,
            Self::Secured(secured) => secured.stream.get_ref().0,
        };
        stream.origin().map(|origin| origin.client)
    }

    fn stream(self: Pin<&mut Self>) -> Pin<&mut dyn ByteStream> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream),
            Self::Secured(secured) => Pin::new(&mut secured.stream),
        }
    }
}

/// Stream of bytes in both directions.
trait ByteStream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> ByteStream for S {}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream().poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Secured(secured) => secured.stream.is_write_vectored(),
        }
    }
}
