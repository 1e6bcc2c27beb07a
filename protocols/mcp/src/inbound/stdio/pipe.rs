//! What waits to be written to the peer.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use callboard_rpc::encode_line;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::inbound::link::Link;

/// What a message costs of the queue at least, in bytes: many small ones are a queue too.
const COST_MIN_BYTES: usize = 256;
/// Messages that are written before the stream is flushed, at most.
const FLUSH_EVERY: usize = 64;

/// The way to the peer: bounded by bytes.
pub(in crate::inbound) struct Pipe {
    room: Arc<Semaphore>,
    bytes_max: usize,
    queue: mpsc::Sender<Queued>,
}

/// What is written next.
pub(in crate::inbound) enum Queued {
    Message(Bytes, OwnedSemaphorePermit),
    End,
}

impl Pipe {
    /// A pipe and its other end, for [`write_lines`].
    pub(in crate::inbound) fn new(bytes_max: usize) -> (Arc<Self>, mpsc::Receiver<Queued>) {
        let bytes_max = bytes_max.clamp(COST_MIN_BYTES, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        // As many messages as there is room for, and the end.
        let (queue, queued) = mpsc::channel(bytes_max / COST_MIN_BYTES + 1);
        (Arc::new(Self { room: Arc::new(Semaphore::new(bytes_max)), bytes_max, queue }), queued)
    }

    /// Sends what must arrive; waits for room.
    pub(in crate::inbound) async fn deliver(&self, message: Vec<u8>) {
        // Never closed; without the peer the queue is dropped, and so is this.
        if let Ok(permit) = self.room.clone().acquire_many_owned(self.cost(message.len())).await {
            let _ = self.queue.try_send(Queued::Message(message.into(), permit));
        }
    }

    /// Nothing more comes.
    pub(in crate::inbound) fn end(&self) {
        let _ = self.queue.try_send(Queued::End);
    }

    fn cost(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.clamp(COST_MIN_BYTES, self.bytes_max)).unwrap_or(u32::MAX)
    }
}

impl Link for Pipe {
    fn send(&self, message: Bytes) -> bool {
        let Ok(permit) = self.room.clone().try_acquire_many_owned(self.cost(message.len())) else { return false };
        self.queue.try_send(Queued::Message(message, permit)).is_ok()
    }
}

/// Writes what the pipe is given, a line each, until its end.
pub(in crate::inbound) async fn write_lines(
    mut queue: mpsc::Receiver<Queued>,
    mut writer: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut next = Vec::with_capacity(FLUSH_EVERY);
    while queue.recv_many(&mut next, FLUSH_EVERY).await > 0 {
        let mut ended = false;
        for queued in next.drain(..) {
            match queued {
                Queued::Message(message, _permit) => writer.write_all(&encode_line(message.into())).await?,
                Queued::End => ended = true,
            }
        }
        writer.flush().await?;
        if ended {
            break;
        }
    }
    Ok(())
}
