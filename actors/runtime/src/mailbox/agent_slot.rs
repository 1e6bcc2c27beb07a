//! Run token of an agent and the state it carries; restart and end of the agent.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::task::Waker;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;

use super::lane::{MessageQueue, NoReplyReason};
use super::queue::{HasBatch, TurnOutcome};
use crate::agent::context::Context;
use crate::agent::{Agent, AgentId, AgentState};
use crate::agent_cell::AgentCell;
use crate::system::supervision::{ExitReason, RestartDecision, RestartHistory};
use callboard_message::{FailureKind, log};

/// Run token: exists once for each agent and owns its state. Only its holder may run the agent.
pub(crate) struct RunToken<A: Agent> {
    pub(crate) cell: Arc<AgentCell<A>>,
    pub(crate) slot: AgentSlot<A>,
}

impl<A: Agent> HasBatch<MessageQueue> for Box<RunToken<A>> {
    fn batch(&mut self) -> &mut MessageQueue {
        &mut self.slot.batch
    }
}

impl<A: Agent> Drop for RunToken<A> {
    /// Ends the agent if its token is dropped while the agent is alive, for example because its
    /// thread exits, so that waiting callers get an error.
    fn drop(&mut self) {
        if !matches!(self.slot.phase, AgentPhase::Ended) {
            let Self { cell, slot: body } = self;
            let _ = catch_panic(|| cell.end(body, ExitReason::Killed));
        }
    }
}

/// Runs `f`, code of an agent, and catches a panic, which must not take down the arbiter.
#[inline]
pub(crate) fn catch_panic<R>(f: impl FnOnce() -> R) -> std::thread::Result<R> {
    catch_unwind(AssertUnwindSafe(f))
}

/// State of an agent that only the holder of the run token touches.
pub(crate) struct AgentSlot<A: Agent> {
    pub(crate) phase: AgentPhase,
    /// The agent; `None` while a handler owns it, or before it is created.
    pub(crate) agent: Option<A>,
    pub(crate) cx: Option<Context>,
    pub(crate) batch: MessageQueue,
    /// Future of the running exclusive handler, which owns the agent.
    pub(crate) exclusive_handler: Option<BoxFuture<'static, (A, bool)>>,
    pub(crate) concurrent_handlers: Option<Box<ConcurrentHandlers>>,
    pub(crate) stash: Option<Box<MessageQueue>>,
    history: Option<Box<RestartHistory>>,
    pub(crate) draining: bool,
    pub(crate) panicked: Option<&'static str>,
    pub(crate) waker: Option<Waker>,
    /// Watched agents that have ended and haven't been reported to this agent yet.
    pub(crate) terminations: Vec<(AgentId, ExitReason)>,
}

/// Suspended concurrent handlers of the agent.
#[derive(Default)]
pub(crate) struct ConcurrentHandlers {
    pub(crate) futures: FuturesUnordered<BoxFuture<'static, (u16, bool)>>,
    /// Number of suspended handlers by lane, the index of their message type.
    pub(crate) by_lane: Vec<u32>,
}

/// Result of one step of a turn.
pub(crate) enum TurnStep {
    Continue,
    EndTurn(TurnOutcome),
    Ended,
}

pub(crate) enum AgentPhase {
    /// The agent hasn't been started; it may have to be created.
    New,
    Running,
    /// The agent waits for this delay before it restarts.
    Pausing(Pin<Box<tokio::time::Sleep>>),
    Ended,
}

impl<A: Agent> AgentSlot<A> {
    pub(crate) fn new(agent: Option<A>) -> Self {
        Self {
            phase: AgentPhase::New,
            agent,
            cx: None,
            batch: MessageQueue::default(),
            exclusive_handler: None,
            concurrent_handlers: None,
            stash: None,
            history: None,
            draining: false,
            panicked: None,
            waker: None,
            terminations: Vec::new(),
        }
    }

    pub(crate) fn agent_and_context(&mut self) -> Option<(&mut A, &mut Context)> {
        match (&self.phase, &mut self.agent, &mut self.cx) {
            (AgentPhase::Running, Some(agent), Some(cx)) => Some((agent, cx)),
            _ => None,
        }
    }

    /// Returns true if no handler is suspended.
    pub(crate) fn has_no_suspended(&self) -> bool {
        self.exclusive_handler.is_none()
            && self
                .concurrent_handlers
                .as_ref()
                .is_none_or(|others| others.futures.is_empty())
    }

    pub(crate) fn takes_messages(&self) -> bool {
        matches!(self.phase, AgentPhase::Running) && self.agent.is_some()
    }
}

impl<A: Agent> AgentCell<A> {
    /// Takes the agent back from an exclusive handler. `ended` is false if the handler was dropped
    /// at an await. The state may be inconsistent then, so a fresh agent replaces it, unless its
    /// profile says `cancel_safe` or it has no factory.
    pub(crate) fn return_agent(&self, body: &mut AgentSlot<A>, agent: A, ended: bool) {
        let good = ended || self.profile.cancel_safe || self.factory.is_none();
        if good {
            body.agent = Some(agent);
        } else {
            let _ = catch_panic(|| drop(agent));
            body.phase = AgentPhase::New;
            self.stats.restarts.fetch_add(1, Relaxed);
        }
    }

    /// Handles a panic in the handler of `message`: restarts the agent, or ends it if the restart
    /// limit is reached.
    pub(crate) fn fail(
        self: &Arc<Self>,
        body: &mut AgentSlot<A>,
        message: &'static str,
    ) -> TurnStep {
        *self.stats.last_error.lock() = Some(message);
        if let Some(cx) = &mut body.cx {
            cx.leave_call(Some(FailureKind::Internal));
        }
        let verdict = match (&self.factory, &self.supervisor) {
            (None, _) => RestartDecision::End,
            (Some(_), None) => body
                .history
                .get_or_insert_default()
                .decide(self.profile.restarts, &self.profile.backoff),
            (Some(_), Some(supervisor)) => supervisor.decide(self.id),
        };
        match verdict {
            RestartDecision::Restart(pause) => {
                self.restart(body, pause);
                TurnStep::Continue
            }
            RestartDecision::End => {
                log::error!(agent = %self.id, name = self.label.as_deref(), message, "agent panicked and ends: its restart limit is reached, or it has no factory for a restart");
                self.end(body, ExitReason::Failed)
            }
        }
    }

    pub(crate) fn restart(self: &Arc<Self>, body: &mut AgentSlot<A>, pause: Duration) {
        log::warn!(agent = %self.id, name = self.label.as_deref(), ?pause, "agent restarts: it, or another agent of its supervisor, panicked");
        self.stats.restarts.fetch_add(1, Relaxed);
        self.emit_event("restarted");
        self.drop_exclusive_handler(body);
        self.set_state(AgentState::Restarting);
        body.panicked = None;
        let old = body.agent.take();
        let _ = catch_panic(|| drop(old));
        body.phase = AgentPhase::New;
        if !pause.is_zero() {
            let mut sleep = Box::pin(tokio::time::sleep(pause));
            let waker = body.waker.get_or_insert_with(|| Waker::from(self.clone()));
            // The first poll registers the timer.
            if sleep
                .as_mut()
                .poll(&mut std::task::Context::from_waker(waker))
                .is_pending()
            {
                body.phase = AgentPhase::Pausing(sleep);
            }
        }
    }

    fn drop_exclusive_handler(&self, body: &mut AgentSlot<A>) {
        if let Some(flight) = body.exclusive_handler.take() {
            let _ = catch_panic(|| drop(flight));
            self.stats.in_flight.fetch_sub(1, Relaxed);
        }
    }

    /// Ends the agent: discards remaining messages as dead letters and notifies watchers.
    pub(crate) fn end(self: &Arc<Self>, body: &mut AgentSlot<A>, why: ExitReason) -> TurnStep {
        if let (ExitReason::Stopped, Some((agent, cx))) = (why, body.agent_and_context()) {
            let _ = catch_panic(|| agent.stopped(cx));
        }
        body.phase = AgentPhase::Ended;
        if let Some(inline_handlers) = self.inline_handlers.get() {
            inline_handlers.end();
        }
        let (agent, others) = (body.agent.take(), body.concurrent_handlers.take());
        let _ = catch_panic(|| drop(agent));
        let _ = catch_panic(|| drop(others));
        self.drop_exclusive_handler(body);
        self.stats.in_flight.store(0, Relaxed);
        let mut left = MessageQueue::default();
        self.mailbox.close(&mut left);
        for queue in [&mut body.batch, &mut left]
            .into_iter()
            .chain(body.stash.as_deref_mut())
        {
            let record = |message| {
                self.system
                    .dead_letters()
                    .record(self.id, message, "agent ended")
            };
            let _ = catch_panic(|| queue.discard_all(NoReplyReason::Stopped, record));
        }
        body.cx = None;
        body.waker = None;
        self.set_state(AgentState::Ended);
        self.stats.exit.store(why as u8, SeqCst);
        if self.label.is_some() {
            self.emit_event(match why {
                ExitReason::Stopped => "stopped",
                ExitReason::Failed => "failed",
                ExitReason::Escalated => "escalated",
                ExitReason::Killed => "killed",
            });
        }
        self.system.agent_ended(self.id, why);
        TurnStep::Ended
    }

    pub(crate) fn set_state(&self, state: AgentState) {
        self.stats.state.store(state as u8, Relaxed);
    }
}
