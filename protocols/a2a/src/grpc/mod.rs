//! The gRPC binding of 1.0 (specification, section 10; feature `grpc`).
//!
//! Messages cross as the generated types of `a2a-pb`, and become the canonical ones by way of ProtoJSON: one reader, and
//! one set of rules, for all bindings.

mod service;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use a2a_pb::proto::a2a_service_server::A2aServiceServer;
use callboard_rpc::serve::check_address;
use futures::stream::{Stream, unfold};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{self, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::transport::server::{Connected, TcpConnectInfo};

use crate::inbound::{A2aServer, Front, ListenOptions, NamedAgents, ServeError};
use service::Service;

/// Most calls of one connection that are under way at once.
/// At the limit: the next one waits.
pub const GRPC_STREAMS_MAX: u32 = 128;
/// Largest headers of a call, in bytes.
/// At the limit: refused.
pub const GRPC_HEADERS_BYTES_MAX: u32 = 16 * 1024;
/// How often a silent connection is asked whether it lives, and how long it may take to say so.
const PING: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));

/// A gRPC server that runs. Dropped, it goes on.
pub struct GrpcServing {
    /// Where it listens.
    pub address: SocketAddr,
    stopped: CancellationToken,
    running: JoinHandle<()>,
    drain_timeout: Duration,
}

impl GrpcServing {
    /// Takes no more calls, and waits for those that run, as long as its options say.
    pub async fn stop(self) {
        self.stopped.cancel();
        let abort = self.running.abort_handle();
        if tokio::time::timeout(self.drain_timeout, self.running)
            .await
            .is_err()
        {
            abort.abort();
        }
    }
}

/// Serves agents over gRPC on one bound listener: `all` of them as one, and those of `named` as its tenants. Call it within
/// a tokio runtime.
///
/// # Errors
/// See [`ServeError`].
pub fn serve(
    listener: TcpListener,
    all: A2aServer,
    named: NamedAgents,
    listen: &ListenOptions,
) -> Result<GrpcServing, ServeError> {
    let address = listener.local_addr()?;
    let front = Front { all, named };
    check_address(&listener, |address| front.may_listen_on(address))?;
    listener.set_nonblocking(true)?;
    let connections = incoming(
        net::TcpListener::from_std(listener)?,
        listen.connections_max,
    );
    let options = front.options();
    let (bytes_max, time_max) = (
        options.limits.body_bytes_max,
        options.call_deadline + options.body_timeout,
    );
    let service = A2aServiceServer::new(Service(front)).max_decoding_message_size(bytes_max);
    let server = Server::builder()
        .timeout(time_max)
        .max_concurrent_streams(GRPC_STREAMS_MAX)
        .http2_max_header_list_size(GRPC_HEADERS_BYTES_MAX)
        .http2_keepalive_interval(Some(PING.0))
        .http2_keepalive_timeout(Some(PING.1))
        .add_service(service);
    let stopped = CancellationToken::new();
    let until = stopped.clone();
    let running = tokio::spawn(async move {
        let served = server
            .serve_with_incoming_shutdown(connections, until.cancelled_owned())
            .await;
        if let Err(error) = served {
            callboard_message::log::error!(%error, "the gRPC listener failed");
        }
    });
    Ok(GrpcServing {
        address,
        stopped,
        running,
        drain_timeout: listen.drain_timeout,
    })
}

/// How long it waits after a connection that failed before it was one: the system may lack file descriptors.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// Connections of a listener. Over `connections_max` they wait in the kernel's queue.
fn incoming(
    listener: net::TcpListener,
    connections_max: usize,
) -> impl Stream<Item = io::Result<Connection>> + Send + 'static {
    let room = Arc::new(Semaphore::new(connections_max));
    unfold((listener, room), |(listener, room)| async move {
        let permit = room.clone().acquire_owned().await.ok()?;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    if let Err(error) = stream.set_nodelay(true) {
                        callboard_message::log::debug!(%error, "a connection waits to fill its packets");
                    }
                    return Some((
                        Ok(Connection {
                            stream,
                            _permit: permit,
                        }),
                        (listener, room),
                    ));
                }
                Err(error) => {
                    callboard_message::log::warn!(%error, "a connection failed before it was one");
                    tokio::time::sleep(AFTER_FAILURE).await;
                }
            }
        }
    })
}

/// One of them.
struct Connection {
    stream: TcpStream,
    _permit: OwnedSemaphorePermit,
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
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
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
