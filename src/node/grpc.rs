//! A2A over gRPC beside an HTTP listener. Everything that depends on the feature `grpc` is here.

use std::net::{SocketAddr, TcpListener};

#[cfg(feature = "grpc")]
use callboard_a2a::grpc::BoundGrpcServer;
use callboard_a2a::inbound::{A2aServer, NamedAgents};
use callboard_rpc::serve::ListenOptions;

use super::NodeError;

#[cfg(feature = "grpc")]
fn serve(
    socket: TcpListener,
    all: A2aServer,
    named: NamedAgents,
    listen: &ListenOptions,
) -> Result<BoundGrpcServer, NodeError> {
    Ok(callboard_a2a::grpc::serve(socket, all, named, listen)?)
}

/// Placeholder without the feature.
#[cfg(not(feature = "grpc"))]
enum BoundGrpcServer {}

#[cfg(not(feature = "grpc"))]
impl BoundGrpcServer {
    fn stop_accepting(&self) {
        match *self {}
    }

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
) -> Result<BoundGrpcServer, NodeError> {
    use crate::config::ConfigError;

    // Unreachable from a topology: its check reports `grpc_bind` without the feature.
    let why = "this callboard speaks no gRPC".to_owned();
    Err(ConfigError::Listener {
        bind: socket.local_addr()?,
        why,
    }
    .into())
}

/// An open gRPC socket and its server.
pub(super) struct GrpcListener {
    /// Declared address.
    pub(super) bind: SocketAddr,
    /// The socket, so that another server can take it over.
    pub(super) socket: TcpListener,
    /// Actual address.
    pub(super) address: SocketAddr,
    serving: BoundGrpcServer,
}

impl GrpcListener {
    /// Serves the agents of an HTTP listener on `socket`, declared as `bind`: all as one agent, and
    /// each as a tenant.
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

    /// Stops accepting connections. The socket stays open, and another server accepts on it.
    pub(super) fn stop_accepting(&self) {
        self.serving.stop_accepting();
    }

    /// Stops accepting calls, and returns when running ones have ended or the drain time is over.
    pub(super) async fn close(self) {
        drop(self.socket);
        self.serving.stop().await;
    }
}
