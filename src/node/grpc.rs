//! A2A over gRPC, beside a listener over HTTP: what of it depends on the feature `grpc`.

use std::net::{SocketAddr, TcpListener};

#[cfg(feature = "grpc")]
use callboard_a2a::grpc::GrpcServing;
use callboard_a2a::inbound::{A2aServer, NamedAgents};
use callboard_rpc::serve::ListenOptions;

use super::NodeError;

#[cfg(feature = "grpc")]
fn serve(
    socket: TcpListener,
    all: A2aServer,
    named: NamedAgents,
    listen: &ListenOptions,
) -> Result<GrpcServing, NodeError> {
    Ok(callboard_a2a::grpc::serve(socket, all, named, listen)?)
}

/// There is none.
#[cfg(not(feature = "grpc"))]
enum GrpcServing {}

#[cfg(not(feature = "grpc"))]
impl GrpcServing {
    async fn stop(self) {
        match self {}
    }
}

#[cfg(not(feature = "grpc"))]
fn serve(
    socket: TcpListener,
    _: A2aServer,
    _: NamedAgents,
    _: &ListenOptions,
) -> Result<GrpcServing, NodeError> {
    use crate::config::ConfigError;

    // No topology comes to it: the check says so before.
    let why = "this callboard speaks no gRPC".to_owned();
    Err(ConfigError::Listener {
        bind: socket.local_addr()?,
        why,
    }
    .into())
}

/// A socket for gRPC that is open, and what serves on it.
pub(super) struct Grpc {
    /// As it was declared.
    pub(super) bind: SocketAddr,
    /// The socket itself, so that another server can take it over.
    pub(super) socket: TcpListener,
    /// Where it listens.
    pub(super) address: SocketAddr,
    serving: GrpcServing,
}

impl Grpc {
    /// Serves those of an HTTP listener on `socket`, which was declared to be at `bind`: all as one, and each as a tenant.
    pub(super) fn open(
        bind: SocketAddr,
        socket: TcpListener,
        (all, named): (A2aServer, NamedAgents),
        listen: &ListenOptions,
    ) -> Result<Self, NodeError> {
        let (kept, address) = (socket.try_clone()?, socket.local_addr()?);
        Ok(Self {
            bind,
            socket: kept,
            address,
            serving: serve(socket, all, named, listen)?,
        })
    }

    /// Takes no more calls, and ends once those that run have ended, within the drain time.
    pub(super) async fn close(self) {
        drop(self.socket);
        self.serving.stop().await;
    }
}
