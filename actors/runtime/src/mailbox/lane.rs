//! Lanes: one queue for each message type, so that messages aren't boxed; the order across lanes;
//! reply channels.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;

use callboard_message::Message;
use tokio::sync::oneshot;

use super::queue::Batch;
use crate::call::CallContext;

/// Queued message with its reply channel and call.
pub(crate) struct Envelope<M: Message> {
    pub(crate) message: M,
    pub(crate) reply: Option<ReplySender<M::Reply>>,
    pub(crate) call: Option<Arc<CallContext>>,
}

/// Queue of one message type, type-erased. Always a `VecDeque<Envelope<M>>`.
pub(crate) trait Lane: Any + Send {
    /// Moves the first message to the end of `to`, a lane of the same message type.
    fn shift(&mut self, to: &mut dyn Lane);
    /// Moves the last message to the front of `to`, a lane of the same message type.
    fn shift_back(&mut self, to: &mut dyn Lane);
    /// Returns an empty lane of the same message type.
    fn new_empty(&self) -> Box<dyn Lane>;
    /// Drops the first message, so that its caller gets `why` as the error. Returns the message's
    /// name.
    fn discard(&mut self, why: NoReplyReason) -> &'static str;
}

impl<M: Message> Lane for VecDeque<Envelope<M>> {
    fn shift(&mut self, to: &mut dyn Lane) {
        if let (Some(envelope), Some(to)) = (self.pop_front(), downcast_lane::<M>(to)) {
            to.push_back(envelope);
        }
    }

    fn shift_back(&mut self, to: &mut dyn Lane) {
        if let (Some(envelope), Some(to)) = (self.pop_back(), downcast_lane::<M>(to)) {
            to.push_front(envelope);
        }
    }

    fn new_empty(&self) -> Box<dyn Lane> {
        Box::new(Self::new())
    }

    fn discard(&mut self, why: NoReplyReason) -> &'static str {
        if let Some(Envelope {
            reply: Some(reply), ..
        }) = self.pop_front()
        {
            reply.fail(why);
        }
        M::NAME
    }
}

#[inline]
pub(crate) fn downcast_lane<M: Message>(lane: &mut dyn Lane) -> Option<&mut VecDeque<Envelope<M>>> {
    (lane as &mut dyn Any).downcast_mut()
}

/// Queue of messages of several types in arrival order. Each type has a lane, a queue of its own.
/// The order between lanes is stored as sequences of consecutive messages of one lane.
#[derive(Default)]
pub(crate) struct MessageQueue {
    /// Sequences of consecutive messages of one lane, oldest first. The newest one isn't among
    /// them, but in `last`.
    order: VecDeque<LaneRun>,
    /// Run of consecutive messages of one lane at the end of the queue; a new message of that lane
    /// extends it. Empty only if the queue is empty.
    last: LaneRun,
    lanes: Vec<Option<Box<dyn Lane>>>,
}

#[derive(Default, Clone, Copy)]
struct LaneRun {
    lane: u16,
    count: u32,
}

impl Batch for MessageQueue {
    fn is_empty(&self) -> bool {
        self.last.count == 0
    }
}

impl MessageQueue {
    #[inline]
    pub(crate) fn push<M: Message>(&mut self, lane: u16, envelope: Envelope<M>) {
        let pushed = match self.lanes.get_mut(usize::from(lane)) {
            Some(Some(queue)) => downcast_lane::<M>(&mut **queue),
            _ => self.new_lane::<M>(lane),
        };
        if let Some(queue) = pushed {
            queue.push_back(envelope);
        }
        self.append_run(lane);
    }

    /// Records in the order that one more message of `lane` has been added at the end.
    #[inline]
    fn append_run(&mut self, lane: u16) {
        if self.last.lane != lane && self.last.count > 0 {
            self.order.push_back(std::mem::take(&mut self.last));
        }
        self.last.lane = lane;
        self.last.count += 1;
    }

    #[cold]
    fn new_lane<M: Message>(&mut self, lane: u16) -> Option<&mut VecDeque<Envelope<M>>> {
        let at = usize::from(lane);
        if self.lanes.len() <= at {
            self.lanes.resize_with(at + 1, || None);
        }
        downcast_lane::<M>(
            &mut **self.lanes[at].get_or_insert_with(|| Box::new(VecDeque::<Envelope<M>>::new())),
        )
    }

    /// Returns the lane of the first message, and the number of consecutive messages of that lane.
    /// `None` if the queue is empty.
    pub(crate) fn head(&self) -> Option<(u16, u32)> {
        let head = self.order.front().unwrap_or(&self.last);
        (head.count > 0).then_some((head.lane, head.count))
    }

    pub(crate) fn lane(&mut self, lane: u16) -> Option<&mut dyn Lane> {
        self.lanes
            .get_mut(usize::from(lane))?
            .as_deref_mut()
            .map(|l| l as &mut dyn Lane)
    }

    /// Removes the first `count` messages, already taken from their lane, from the order.
    pub(crate) fn advance(&mut self, count: u32) {
        let Some(head) = self.order.front_mut() else {
            self.last.count -= count.min(self.last.count);
            return;
        };
        head.count -= count.min(head.count);
        if head.count == 0 {
            self.order.pop_front();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.order
            .iter()
            .chain([&self.last])
            .map(|run| run.count as usize)
            .sum()
    }

    /// Moves the first message to the end of `to`, the stash.
    pub(crate) fn shift_head<M: Message>(&mut self, to: &mut MessageQueue) {
        let Some((at, _)) = self.head() else { return };
        if !matches!(to.lanes.get(usize::from(at)), Some(Some(_))) {
            to.new_lane::<M>(at);
        }
        if let (Some(from), Some(Some(into))) = (self.lane(at), to.lanes.get_mut(usize::from(at))) {
            from.shift(&mut **into);
        }
        to.append_run(at);
        self.advance(1);
    }

    /// Moves all messages of `from`, the stash, to the front of the queue, in their order.
    pub(crate) fn prepend(&mut self, from: &mut MessageQueue) {
        if from.last.count > 0 {
            from.order.push_back(std::mem::take(&mut from.last));
        }
        while let Some(run) = from.order.pop_back() {
            let slot = usize::from(run.lane);
            if self.lanes.len() <= slot {
                self.lanes.resize_with(slot + 1, || None);
            }
            let Some(Some(source)) = from.lanes.get_mut(slot) else {
                continue;
            };
            let target = self.lanes[slot].get_or_insert_with(|| source.new_empty());
            (0..run.count).for_each(|_| source.shift_back(&mut **target));
            if self.last.count == 0 {
                self.last = run;
            } else {
                self.order.push_front(run);
            }
        }
    }

    /// Drops all messages, so that their callers get `why` as the error. Passes the name of each to
    /// `each`.
    pub(crate) fn discard_all(&mut self, why: NoReplyReason, mut each: impl FnMut(&'static str)) {
        while let Some((at, _)) = self.head() {
            if let Some(lane) = self.lane(at) {
                each(lane.discard(why));
            }
            self.advance(1);
        }
    }
}

/// Reason for which an accepted message got no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoReplyReason {
    /// The handler panicked.
    Panicked,
    /// The agent ended before it replied.
    Stopped,
    /// The call was cancelled or its deadline passed before the handler ended.
    Cancelled,
    /// The agent wasn't ready for the message and its stash was full.
    StashFull,
}

/// Callee's end of the reply channel of one message.
pub(crate) struct ReplySender<R>(Option<oneshot::Sender<Result<R, NoReplyReason>>>);

/// Caller's end of the reply channel of one message.
pub(crate) type ReplyReceiver<R> = oneshot::Receiver<Result<R, NoReplyReason>>;

pub(crate) fn reply_channel<R>() -> (ReplySender<R>, ReplyReceiver<R>) {
    let (tx, rx) = oneshot::channel();
    (ReplySender(Some(tx)), rx)
}

impl<R> ReplySender<R> {
    pub(crate) fn send(mut self, reply: R) {
        self.end(Ok(reply));
    }

    pub(crate) fn fail(mut self, why: NoReplyReason) {
        self.end(Err(why));
    }

    fn end(&mut self, end: Result<R, NoReplyReason>) {
        if let Some(slot) = self.0.take() {
            // The caller may have gone away.
            let _ = slot.send(end);
        }
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.0.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// Completes when the caller has dropped its end of the channel.
    pub(crate) async fn abandoned(&mut self) {
        if let Some(slot) = &mut self.0 {
            slot.closed().await;
        }
    }
}

impl<R> Drop for ReplySender<R> {
    /// Sends the caller the reason if no reply was sent, which happens only if the handler panicked
    /// or was dropped with its agent.
    fn drop(&mut self) {
        if self.0.is_some() {
            self.end(Err(if std::thread::panicking() {
                NoReplyReason::Panicked
            } else {
                NoReplyReason::Stopped
            }));
        }
    }
}
