//! Where a reply goes.

use tokio::sync::oneshot;

/// Why an accepted message got no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoReply {
    /// The handler panicked.
    Panicked,
    /// The agent stopped before it took the message.
    Stopped,
    /// The call was cancelled or its deadline passed before the handler ended.
    Cancelled,
    /// The stash was full.
    StashFull,
}

/// The callee's end of an ask.
pub(crate) struct Replier<R>(oneshot::Sender<Result<R, NoReply>>);

/// The caller's end.
pub(crate) type ReplySlot<R> = oneshot::Receiver<Result<R, NoReply>>;

pub(crate) fn reply_channel<R>() -> (Replier<R>, ReplySlot<R>) {
    let (tx, rx) = oneshot::channel();
    (Replier(tx), rx)
}

impl<R> Replier<R> {
    pub(crate) fn send(self, reply: R) {
        // A caller that went away doesn't want it.
        let _ = self.0.send(Ok(reply));
    }

    pub(crate) fn fail(self, why: NoReply) {
        let _ = self.0.send(Err(why));
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.0.is_closed()
    }

    /// Ends when the caller goes away.
    pub(crate) async fn abandoned(&mut self) {
        self.0.closed().await;
    }
}
