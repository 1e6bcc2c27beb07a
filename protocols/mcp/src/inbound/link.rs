use bytes::Bytes;

/// The way to a peer: a response stream, a pipe, a socket. What a request causes before it ends goes by the link that the
/// request came with; what nobody asked for goes by the peer's own.
pub(crate) trait Link: Send + Sync {
    /// Sends one JSON-RPC message, without framing. Never waits; `false` where the peer is gone, or so slow that its queue
    /// is full.
    fn send(&self, message: Bytes) -> bool;

    /// Sends what may be lost (progress, lines of a log): left out while the peer is slow, so that it never costs the
    /// link.
    fn offer(&self, message: Bytes) -> bool {
        self.send(message)
    }

    /// Whether a peer that is asked something could see it at all.
    fn can_ask(&self) -> bool {
        true
    }
}
