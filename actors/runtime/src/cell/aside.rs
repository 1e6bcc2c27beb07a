//! Concurrent handlers in the task of whoever asked, rather than beside their agent.
//!
//! Only where they are polled is different: they count as the agent's, end with it, and go back to it when the asker
//! leaves before they have ended, so that they learn of that and tidy up as all others do.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::{AnyCell, Cell, Control};
use crate::agent::Agent;
use crate::mailbox::body::{Body, caught};
use crate::mailbox::host::as_agent;
use crate::mailbox::lane::{NoReply, ReplySlot};

/// What an agent knows of its handlers that are elsewhere.
pub(crate) struct Asides {
    /// How many of each kind.
    by_lane: Box<[AtomicU32]>,
    /// The agent waits for one of them to end.
    awaited: AtomicBool,
    /// Fires when the agent has ended.
    over: CancellationToken,
}

impl Asides {
    pub(crate) fn new(lanes: usize) -> Self {
        let by_lane = (0..lanes).map(|_| AtomicU32::new(0)).collect();
        Self {
            by_lane,
            awaited: AtomicBool::new(false),
            over: CancellationToken::new(),
        }
    }

    fn of(&self, lane: u16) -> u32 {
        self.by_lane
            .get(usize::from(lane))
            .map_or(0, |count| count.load(SeqCst))
    }

    fn all(&self) -> u32 {
        self.by_lane.iter().map(|count| count.load(SeqCst)).sum()
    }

    /// The agent has ended, and they with it.
    pub(crate) fn end(&self) {
        self.over.cancel();
    }
}

impl<A: Agent> Cell<A> {
    /// A handler of `lane` goes with its asker.
    pub(crate) fn set_out<R>(
        self: &Arc<Self>,
        lane: u16,
        flight: BoxFuture<'static, bool>,
        answered: ReplySlot<R>,
    ) -> Aside<R> {
        let asides = self
            .asides
            .get_or_init(|| Box::new(Asides::new(self.kind.types.len())));
        if let Some(count) = asides.by_lane.get(usize::from(lane)) {
            count.fetch_add(1, SeqCst);
        }
        let over = Box::pin(asides.over.clone().cancelled_owned());
        Aside {
            cell: self.clone(),
            lane,
            flight: Some(flight),
            over,
            answered: Some(answered),
        }
    }

    /// How many handlers of `lane` are suspended, here and elsewhere.
    pub(crate) fn suspended(&self, body: &Body<A>, lane: u16) -> u32 {
        let here = body
            .others
            .as_ref()
            .and_then(|o| o.by_lane.get(usize::from(lane)));
        here.copied().unwrap_or_default() + self.asides.get().map_or(0, |asides| asides.of(lane))
    }

    /// How many handlers are suspended elsewhere.
    pub(crate) fn suspended_elsewhere(&self) -> u32 {
        self.asides.get().map_or(0, |asides| asides.all())
    }

    /// From here on the end of a handler elsewhere wakes the agent, which looks once more after this.
    pub(crate) fn await_asides(&self) {
        if let Some(asides) = self.asides.get() {
            asides.awaited.store(true, SeqCst);
        }
    }

    /// A handler of `lane` is elsewhere no more.
    pub(super) fn came_back(self: &Arc<Self>, lane: u16) {
        let Some(asides) = self.asides.get() else {
            return;
        };
        if let Some(count) = asides.by_lane.get(usize::from(lane)) {
            count.fetch_sub(1, SeqCst);
        }
        if asides.awaited.swap(false, SeqCst)
            && let Some(ticket) = self.mailbox.wake()
        {
            self.host.run(ticket);
        }
        self.note_settled();
    }
}

/// A handler that the asker polls.
pub(crate) struct Aside<R> {
    cell: Arc<dyn AnyCell>,
    lane: u16,
    /// False where it panicked.
    flight: Option<BoxFuture<'static, bool>>,
    over: Pin<Box<WaitForCancellationFutureOwned>>,
    answered: Option<ReplySlot<R>>,
}

impl<R> Aside<R> {
    /// It has ended, or is to.
    fn end(&mut self) {
        let flight = self.flight.take();
        let _ = caught(|| drop(flight));
        self.cell.clone().came_back(self.lane);
    }
}

impl<R> Future for Aside<R> {
    type Output = Result<R, NoReply>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(flight) = &mut this.flight else {
            return Poll::Pending;
        };
        if this.over.as_mut().poll(cx).is_ready() {
            this.end();
            return Poll::Ready(Err(NoReply::Stopped));
        }
        if !ready!(as_agent(|| flight.as_mut().poll(cx))) {
            // What follows a panic is for the agent's host, before anything that comes now.
            this.cell.control(Control::Panicked);
        }
        this.end();
        let answer = this
            .answered
            .as_mut()
            .and_then(|answered| answered.try_recv().ok());
        // A replier always ends with a word.
        Poll::Ready(answer.unwrap_or(Err(NoReply::Stopped)))
    }
}

impl<R> Drop for Aside<R> {
    /// The asker leaves: the handler goes on beside its agent, is told, and has its grace.
    fn drop(&mut self) {
        let Some(flight) = self.flight.take() else {
            return;
        };
        self.answered = None;
        let (cell, lane) = (self.cell.clone(), self.lane);
        let _ = caught(|| cell.control(Control::Adopt(lane, flight)));
        cell.came_back(lane);
    }
}
