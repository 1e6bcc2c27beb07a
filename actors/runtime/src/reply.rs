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
pub(crate) struct Replier<R>(Option<oneshot::Sender<Result<R, NoReply>>>);

/// The caller's end.
pub(crate) type ReplySlot<R> = oneshot::Receiver<Result<R, NoReply>>;

pub(crate) fn reply_channel<R>() -> (Replier<R>, ReplySlot<R>) {
    let (tx, rx) = oneshot::channel();
    (Replier(Some(tx)), rx)
}

impl<R> Replier<R> {
    pub(crate) fn send(mut self, reply: R) {
        self.end(Ok(reply));
    }

    pub(crate) fn fail(mut self, why: NoReply) {
        self.end(Err(why));
    }

    fn end(&mut self, end: Result<R, NoReply>) {
        if let Some(slot) = self.0.take() {
            // A caller that went away doesn't want it.
            let _ = slot.send(end);
        }
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.0.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// Ends when the caller goes away.
    pub(crate) async fn abandoned(&mut self) {
        if let Some(slot) = &mut self.0 {
            slot.closed().await;
        }
    }
}

impl<R> Drop for Replier<R> {
    /// Without a word only a handler goes that panicked, or that was dropped with its agent.
    fn drop(&mut self) {
        if self.0.is_some() {
            self.end(Err(if std::thread::panicking() { NoReply::Panicked } else { NoReply::Stopped }));
        }
    }
}
