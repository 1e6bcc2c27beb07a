use bytes::Bytes;

/// The way to a peer: a response stream, a pipe, a socket. What a request causes before it ends goes by the link that the
/// request came with; what nobody asked for goes by the peer's own.
pub(crate) trait Link: Send + Sync {
    /// Sends one JSON-RPC message, without framing. Never waits; `false` where the peer is gone, or so slow that its queue
    /// is full.
    fn send(&self, message: Bytes) -> bool;
}
