//! Concurrent handlers that run in the task of the caller instead of on the agent's arbiter.
//!
//! They differ only in the task that polls them: they count as the agent's and end with it. If the
//! caller drops its future first, the handler moves to the agent's arbiter and gets the usual
//! cancellation and grace period, but ends with the caller's runtime, which has its timers.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::AbortOnDropHandle;

use super::{AgentCell, AnyAgentCell, Control};
use crate::agent::Agent;
use crate::mailbox::agent_slot::{AgentSlot, catch_panic};
use crate::mailbox::lane::{NoReplyReason, ReplyReceiver};
use crate::mailbox::scheduler::run_as_agent;

/// Bookkeeping of an agent's concurrent handlers that run in their callers' tasks.
pub(crate) struct InlineHandlers {
    /// Number of running handlers by lane, the index of their message type.
    by_lane: Box<[AtomicU32]>,
    /// True while the agent waits for an inline handler to end.
    is_awaited: AtomicBool,
    /// Token that is cancelled when the agent has ended, so that its inline handlers end too.
    agent_ended: CancellationToken,
}

impl InlineHandlers {
    pub(crate) fn new(lanes: usize) -> Self {
        let by_lane = (0..lanes).map(|_| AtomicU32::new(0)).collect();
        Self {
            by_lane,
            is_awaited: AtomicBool::new(false),
            agent_ended: CancellationToken::new(),
        }
    }

    fn count(&self, lane: u16) -> u32 {
        self.by_lane
            .get(usize::from(lane))
            .map_or(0, |count| count.load(SeqCst))
    }

    fn total(&self) -> u32 {
        self.by_lane.iter().map(|count| count.load(SeqCst)).sum()
    }

    /// Ends all inline handlers because the agent has ended.
    pub(crate) fn end(&self) {
        self.agent_ended.cancel();
    }
}

impl<A: Agent> AgentCell<A> {
    /// Wraps a started handler of `lane`, which the caller's task on `runtime` then polls, and
    /// counts it.
    pub(crate) fn start_inline<R>(
        self: &Arc<Self>,
        lane: u16,
        runtime: Handle,
        flight: BoxFuture<'static, bool>,
        reply: ReplyReceiver<R>,
    ) -> InlineHandler<R> {
        let inline_handlers = self
            .inline_handlers
            .get_or_init(|| Box::new(InlineHandlers::new(self.agent_type.types.len())));
        if let Some(count) = inline_handlers.by_lane.get(usize::from(lane)) {
            count.fetch_add(1, SeqCst);
        }
        let over = Box::pin(inline_handlers.agent_ended.clone().cancelled_owned());
        InlineHandler {
            cell: self.clone(),
            lane,
            runtime,
            flight: Some(flight),
            over,
            reply: Some(reply),
        }
    }

    /// Returns the number of suspended handlers of `lane`, both on the agent's arbiter and in
    /// callers' tasks.
    pub(crate) fn suspended_count(&self, body: &AgentSlot<A>, lane: u16) -> u32 {
        let here = body
            .concurrent_handlers
            .as_ref()
            .and_then(|o| o.by_lane.get(usize::from(lane)));
        here.copied().unwrap_or_default()
            + self
                .inline_handlers
                .get()
                .map_or(0, |inline_handlers| inline_handlers.count(lane))
    }

    /// Returns the number of this agent's handlers that now run in callers' tokio tasks.
    pub(crate) fn inline_count(&self) -> u32 {
        self.inline_handlers
            .get()
            .map_or(0, |inline_handlers| inline_handlers.total())
    }

    /// Requests a wake-up of the agent when its next inline handler ends. The agent must check its
    /// state once more after this call, as a handler may have ended before.
    pub(crate) fn wake_on_inline_end(&self) {
        if let Some(inline_handlers) = self.inline_handlers.get() {
            inline_handlers.is_awaited.store(true, SeqCst);
        }
    }

    /// Records that an inline handler of `lane` has ended.
    pub(super) fn inline_ended(self: &Arc<Self>, lane: u16) {
        let Some(inline_handlers) = self.inline_handlers.get() else {
            return;
        };
        if let Some(count) = inline_handlers.by_lane.get(usize::from(lane)) {
            count.fetch_sub(1, SeqCst);
        }
        if inline_handlers.is_awaited.swap(false, SeqCst)
            && let Some(ticket) = self.mailbox.wake()
        {
            self.host.run(ticket);
        }
        self.note_settled();
    }
}

/// Concurrent handler that its caller polls.
pub(crate) struct InlineHandler<R> {
    cell: Arc<dyn AnyAgentCell>,
    lane: u16,
    /// Runtime of the caller's task.
    runtime: Handle,
    /// Future of the handler. Resolves to false if the handler panicked.
    flight: Option<BoxFuture<'static, bool>>,
    over: Pin<Box<WaitForCancellationFutureOwned>>,
    reply: Option<ReplyReceiver<R>>,
}

/// Runs the future of a handler elsewhere than on `runtime`, where it began. Drops it when `runtime`
/// shuts down, because timers of that runtime panic from then on.
async fn run_within(runtime: Handle, flight: BoxFuture<'static, bool>) -> bool {
    // A runtime that shuts down ends all its tasks before its timers.
    let ended = AbortOnDropHandle::new(runtime.spawn(std::future::pending::<()>()));
    tokio::select! {
        biased;
        _ = ended => true,
        is_sound = flight => is_sound,
    }
}

impl<R> InlineHandler<R> {
    /// Drops the handler and removes it from the count.
    fn end(&mut self) {
        let flight = self.flight.take();
        let _ = catch_panic(|| drop(flight));
        self.cell.clone().inline_ended(self.lane);
    }
}

impl<R> Future for InlineHandler<R> {
    type Output = Result<R, NoReplyReason>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let Some(flight) = &mut this.flight else {
            return Poll::Pending;
        };
        if this.over.as_mut().poll(cx).is_ready() {
            this.end();
            return Poll::Ready(Err(NoReplyReason::Stopped));
        }
        if !ready!(run_as_agent(|| flight.as_mut().poll(cx))) {
            // The agent's host handles the panic before any further message.
            this.cell.control(Control::Panicked);
        }
        this.end();
        let answer = this.reply.as_mut().and_then(|reply| reply.try_recv().ok());
        // A `ReplySender` always sends a result, also when it is dropped.
        Poll::Ready(answer.unwrap_or(Err(NoReplyReason::Stopped)))
    }
}

impl<R> Drop for InlineHandler<R> {
    /// Passes the handler to the agent's arbiter if its caller has dropped it before its end. There
    /// it is cancelled and gets its grace period.
    fn drop(&mut self) {
        let Some(flight) = self.flight.take() else {
            return;
        };
        self.reply = None;
        let (cell, lane) = (self.cell.clone(), self.lane);
        let flight = Box::pin(run_within(self.runtime.clone(), flight));
        let _ = catch_panic(|| cell.control(Control::Adopt(lane, flight)));
        cell.inline_ended(lane);
    }
}
