//! Lanes: one queue a message type, so that a message is moved in and out without a box; the order among them; and
//! where a reply goes.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;

use callboard_message::Message;
use tokio::sync::oneshot;

use super::queue::Batch;
use crate::call::CallMeta;

/// A message on its way to a handler.
pub(crate) struct Envelope<M: Message> {
    pub(crate) message: M,
    pub(crate) reply: Option<Replier<M::Reply>>,
    pub(crate) call: Option<Arc<CallMeta>>,
}

/// The queue of one message type, known to the agent by what can be done with its head. Always a `VecDeque<Envelope<M>>`.
pub(crate) trait Lane: Any + Send {
    /// Moves the head to the back of a lane of the same type.
    fn shift(&mut self, to: &mut dyn Lane);
    /// Moves the tail to the front of a lane of the same type.
    fn shift_back(&mut self, to: &mut dyn Lane);
    /// An empty lane of the same type.
    fn fresh(&self) -> Box<dyn Lane>;
    /// Throws the head away, telling whoever waits for its reply. Returns the message's name.
    fn discard(&mut self, why: NoReply) -> &'static str;
}

impl<M: Message> Lane for VecDeque<Envelope<M>> {
    fn shift(&mut self, to: &mut dyn Lane) {
        if let (Some(envelope), Some(to)) = (self.pop_front(), typed::<M>(to)) {
            to.push_back(envelope);
        }
    }

    fn shift_back(&mut self, to: &mut dyn Lane) {
        if let (Some(envelope), Some(to)) = (self.pop_back(), typed::<M>(to)) {
            to.push_front(envelope);
        }
    }

    fn fresh(&self) -> Box<dyn Lane> {
        Box::new(Self::new())
    }

    fn discard(&mut self, why: NoReply) -> &'static str {
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
pub(crate) fn typed<M: Message>(lane: &mut dyn Lane) -> Option<&mut VecDeque<Envelope<M>>> {
    (lane as &mut dyn Any).downcast_mut()
}

/// Messages of several types in the order in which they came: runs of so many messages of one lane.
#[derive(Default)]
pub(crate) struct Queue {
    /// All runs but the last.
    order: VecDeque<Run>,
    /// The run that grows; empty only where the queue is.
    last: Run,
    lanes: Vec<Option<Box<dyn Lane>>>,
}

#[derive(Default, Clone, Copy)]
struct Run {
    lane: u16,
    count: u32,
}

impl Batch for Queue {
    fn is_empty(&self) -> bool {
        self.last.count == 0
    }
}

impl Queue {
    #[inline]
    pub(crate) fn push<M: Message>(&mut self, lane: u16, envelope: Envelope<M>) {
        let pushed = match self.lanes.get_mut(usize::from(lane)) {
            Some(Some(queue)) => typed::<M>(&mut **queue),
            _ => self.new_lane::<M>(lane),
        };
        if let Some(queue) = pushed {
            queue.push_back(envelope);
        }
        self.note(lane);
    }

    /// One more message in `lane`, at the end.
    #[inline]
    fn note(&mut self, lane: u16) {
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
        typed::<M>(
            &mut **self.lanes[at].get_or_insert_with(|| Box::new(VecDeque::<Envelope<M>>::new())),
        )
    }

    /// The next run: its lane and length.
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

    /// `count` messages of the head run left their lane.
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

    /// Moves the head to the back of `to` (the stash).
    pub(crate) fn shift_head<M: Message>(&mut self, to: &mut Queue) {
        let Some((at, _)) = self.head() else { return };
        if !matches!(to.lanes.get(usize::from(at)), Some(Some(_))) {
            to.new_lane::<M>(at);
        }
        if let (Some(from), Some(Some(into))) = (self.lane(at), to.lanes.get_mut(usize::from(at))) {
            from.shift(&mut **into);
        }
        to.note(at);
        self.advance(1);
    }

    /// Puts all of `from` before everything here, in its order (unstash).
    pub(crate) fn prepend(&mut self, from: &mut Queue) {
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
            let target = self.lanes[slot].get_or_insert_with(|| source.fresh());
            (0..run.count).for_each(|_| source.shift_back(&mut **target));
            if self.last.count == 0 {
                self.last = run;
            } else {
                self.order.push_front(run);
            }
        }
    }

    /// Throws everything away; `each` learns the names.
    pub(crate) fn discard_all(&mut self, why: NoReply, mut each: impl FnMut(&'static str)) {
        while let Some((at, _)) = self.head() {
            if let Some(lane) = self.lane(at) {
                each(lane.discard(why));
            }
            self.advance(1);
        }
    }
}

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
            self.end(Err(if std::thread::panicking() {
                NoReply::Panicked
            } else {
                NoReply::Stopped
            }));
        }
    }
}
