//! Delivery queue of a member. It holds few messages in memory; further ones are read from the
//! store once there is room.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use callboard_message::Message;
use callboard_runtime::{AgentRef, Recipient};
use parking_lot::{Mutex, MutexGuard};

use crate::text::OutgoingMail;

/// Maximum number of messages that a delivery queue holds in memory. Further messages are read from
/// the store later.
pub const QUEUE_MESSAGES_MAX: usize = 256;

/// Request to a delivery worker to look for messages to deliver.
pub(crate) struct WakeWorker {
    /// Whether to retry a failed delivery without waiting for the end of the backoff, because the
    /// recipient may be available again.
    pub is_retry_now: bool,
}

impl Message for WakeWorker {
    type Reply = ();
    const NAME: &'static str = "callboard.mail.wake";
}

/// Delivery queue of one member, and the handle of the worker that empties it.
pub(crate) struct DeliveryQueue {
    /// Worker agent that delivers the messages. When stopped, it first completes the delivery in
    /// progress.
    pub worker: AgentRef,
    wake: Recipient<WakeWorker>,
    queue: Arc<QueueState>,
    /// Directory name of the agent to which the worker delivers.
    pub delivery_agent: Arc<str>,
}

/// State shared by a queue and its worker.
#[derive(Default)]
pub(crate) struct QueueState {
    pending: Mutex<PendingMessages>,
    /// Whether the last delivery failed.
    pub has_failed: AtomicBool,
    /// Whether the delivery agent handles neither `DeliverMessage` nor `Converse`, so that nothing
    /// can be delivered.
    pub has_no_receiver: AtomicBool,
    pub is_closed: AtomicBool,
    /// Reason that the last delivery or probe failed; `None` after a success.
    last_failure: Mutex<Option<Arc<str>>>,
}

#[derive(Default)]
pub(crate) struct PendingMessages {
    /// Messages in memory. Key: `false` for urgent messages, which come first, then the message
    /// number.
    pub messages: BTreeMap<(bool, u64), Arc<OutgoingMail>>,
    /// Whether the store may hold undelivered messages that aren't in memory.
    pub has_stored: bool,
    /// Whether reading from the store must begin again, because messages may have been added before
    /// the worker's cursor.
    pub needs_rescan: bool,
    /// Number of undelivered messages, in memory or not. Messages that were stored before the queue
    /// started are counted by the worker's first run.
    pub count: usize,
    /// Whether `count` includes the messages stored before the queue started.
    pub is_counted: bool,
    /// Lowest number of the messages that arrived since the queue started. Only lower numbers are
    /// counted by the worker's first run.
    pub first: Option<u64>,
}

impl DeliveryQueue {
    /// Creates the handle of a queue whose `worker` delivers to the agent named `delivery_agent`.
    /// Returns `None` if the worker handles no [`WakeWorker`].
    pub fn new(worker: AgentRef, queue: Arc<QueueState>, delivery_agent: Arc<str>) -> Option<Self> {
        let wake = worker.recipient()?;
        Some(Self {
            worker,
            wake,
            queue,
            delivery_agent,
        })
    }

    /// Adds a message. If the queue is full or messages still wait in the store, it isn't held in
    /// memory but read from the store later.
    pub fn enqueue(&self, outgoing: &Arc<OutgoingMail>) {
        self.queue.lock_pending().push(outgoing);
        self.wake(false);
    }

    /// Removes messages, by number, that the member has fetched by itself.
    pub fn remove(&self, letters: &[u64]) {
        let mut waiting = self.queue.lock_pending();
        for letter in letters {
            for is_normal in [false, true] {
                if waiting.messages.remove(&(is_normal, *letter)).is_some() {
                    waiting.count = waiting.count.saturating_sub(1);
                }
            }
        }
    }

    /// Returns the number of undelivered messages, in memory and in the store.
    pub fn undelivered_count(&self) -> usize {
        self.queue.lock_pending().count
    }

    /// Wakes the worker to retry a failed delivery without waiting for the backoff, because the
    /// recipient may be available again.
    pub fn retry_now(&self) {
        if self.queue.has_failed.load(Relaxed) {
            self.wake(true);
        }
    }

    /// Records that another node has stored a message for this member, with the number `letter`.
    /// The worker reads it from the store.
    pub fn notify_stored(&self, letter: u64) {
        {
            let mut waiting = self.queue.lock_pending();
            waiting.count_arrival(letter);
            waiting.mark_stored();
        }
        self.wake(false);
    }

    fn wake(&self, again: bool) {
        // A full mailbox means that the worker is awake.
        let _ = self.wake.try_tell(WakeWorker {
            is_retry_now: again,
        });
    }

    /// Returns whether the last delivery or probe didn't fail and the delivery agent handles mail.
    /// A queue that hasn't tried yet counts as working.
    pub fn is_working(&self) -> bool {
        !self.queue.has_failed.load(Relaxed) && !self.has_no_receiver()
    }

    /// Returns whether the delivery agent handles neither `DeliverMessage` nor `Converse`.
    pub fn has_no_receiver(&self) -> bool {
        self.queue.has_no_receiver.load(Relaxed)
    }

    /// Returns the reason that mail can't be delivered at the moment; `None` if the last delivery
    /// or probe didn't fail.
    pub fn trouble(&self) -> Option<Arc<str>> {
        self.queue.last_failure.lock().clone()
    }

    /// Stops the worker. Undelivered messages stay in the store.
    pub fn close(&self) {
        self.queue.is_closed.store(true, Relaxed);
        self.queue.lock_pending().messages.clear();
        self.worker.stop();
    }
}

impl QueueState {
    /// Records a failed delivery or probe. Returns whether the reason differs from that of the
    /// previous one, or that one succeeded.
    pub fn record_failure(&self, why: &str) -> bool {
        self.has_failed.store(true, Relaxed);
        let mut last = self.last_failure.lock();
        let is_changed = last.as_deref() != Some(why);
        if is_changed {
            *last = Some(why.into());
        }
        is_changed
    }

    /// Records a delivery or probe that didn't fail. Returns whether the previous one did.
    pub fn record_success(&self) -> bool {
        self.has_failed.store(false, Relaxed);
        self.last_failure.lock().take().is_some()
    }

    pub fn lock_pending(&self) -> MutexGuard<'_, PendingMessages> {
        self.pending.lock()
    }
}

impl PendingMessages {
    fn count_arrival(&mut self, letter: u64) {
        self.count += 1;
        self.first = Some(self.first.map_or(letter, |first| first.min(letter)));
    }

    fn push(&mut self, outgoing: &Arc<OutgoingMail>) {
        self.count_arrival(outgoing.letter.number);
        // While messages wait in the store, a new one must not overtake them.
        if self.has_stored || self.messages.len() >= QUEUE_MESSAGES_MAX {
            self.mark_stored();
        } else {
            self.insert(outgoing.clone());
        }
    }

    /// Returns whether there may be messages to deliver.
    pub fn has_pending(&self) -> bool {
        self.has_stored || !self.messages.is_empty()
    }

    pub fn insert(&mut self, outgoing: Arc<OutgoingMail>) {
        self.messages.insert(
            (!outgoing.letter.new.urgent, outgoing.letter.number),
            outgoing,
        );
    }

    fn mark_stored(&mut self) {
        self.has_stored = true;
        self.needs_rescan = true;
    }
}
