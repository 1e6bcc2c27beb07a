//! The ticket of an agent and what it carries, and what follows a failure or an order to end: a fresh agent, or none.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::task::{Context, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;

use super::lane::{NoReply, Queue};
use super::queue::{HasBatch, Rest};
use crate::agent::cx::Cx;
use crate::agent::{Agent, AgentId, AgentState};
use crate::cell::Cell;
use crate::system::supervision::{ExitReason, History, Verdict};
use callboard_message::log;

/// An agent's ticket: it has the agent in it.
pub(crate) struct Runner<A: Agent> {
    pub(crate) cell: Arc<Cell<A>>,
    pub(crate) body: Body<A>,
}

impl<A: Agent> HasBatch<Queue> for Box<Runner<A>> {
    fn batch(&mut self) -> &mut Queue {
        &mut self.body.batch
    }
}

impl<A: Agent> Drop for Runner<A> {
    /// A ticket that is lost, because its thread has ended, ends its agent: whoever waits for it learns so.
    fn drop(&mut self) {
        if !matches!(self.body.phase, Phase::Ended) {
            let Self { cell, body } = self;
            let _ = caught(|| cell.end(body, ExitReason::Killed));
        }
    }
}

/// What `f` comes to, which runs code of the user's: a panic there must not take the arbiter along.
#[inline]
pub(crate) fn caught<R>(f: impl FnOnce() -> R) -> std::thread::Result<R> {
    catch_unwind(AssertUnwindSafe(f))
}

/// What only the holder of the ticket touches.
pub(crate) struct Body<A: Agent> {
    pub(crate) phase: Phase,
    /// Here but while a handler has it, or before it is made.
    pub(crate) agent: Option<A>,
    pub(crate) cx: Option<Cx>,
    pub(crate) batch: Queue,
    /// The handler that has the agent to itself, with the agent in it.
    pub(crate) flight: Option<BoxFuture<'static, (A, bool)>>,
    pub(crate) others: Option<Box<Others>>,
    pub(crate) stash: Option<Box<Queue>>,
    history: Option<Box<History>>,
    pub(crate) draining: bool,
    pub(crate) panicked: Option<&'static str>,
    pub(crate) waker: Option<Waker>,
    /// Watched agents that ended, not yet told.
    pub(crate) ends: Vec<(AgentId, ExitReason)>,
}

/// Handlers that run beside the agent.
#[derive(Default)]
pub(crate) struct Others {
    pub(crate) futures: FuturesUnordered<BoxFuture<'static, (u16, bool)>>,
    /// How many of each kind.
    pub(crate) by_lane: Vec<u32>,
}

/// What a step of a turn leads to.
pub(crate) enum Step {
    On,
    Rest(Rest),
    Ended,
}

pub(crate) enum Phase {
    /// To be made, unless it was given, and started.
    New,
    Running,
    /// A pause before a restart.
    Pausing(Pin<Box<tokio::time::Sleep>>),
    Ended,
}

impl<A: Agent> Body<A> {
    pub(crate) fn new(agent: Option<A>) -> Self {
        Self {
            phase: Phase::New,
            agent,
            cx: None,
            batch: Queue::default(),
            flight: None,
            others: None,
            stash: None,
            history: None,
            draining: false,
            panicked: None,
            waker: None,
            ends: Vec::new(),
        }
    }

    pub(crate) fn alive(&mut self) -> Option<(&mut A, &mut Cx)> {
        match (&self.phase, &mut self.agent, &mut self.cx) {
            (Phase::Running, Some(agent), Some(cx)) => Some((agent, cx)),
            _ => None,
        }
    }

    /// Whether no handler is suspended.
    pub(crate) fn is_alone(&self) -> bool {
        self.flight.is_none()
            && self
                .others
                .as_ref()
                .is_none_or(|others| others.futures.is_empty())
    }

    pub(crate) fn takes_messages(&self) -> bool {
        matches!(self.phase, Phase::Running) && self.agent.is_some()
    }
}

impl<A: Agent> Cell<A> {
    /// A handler returns the agent; where it was dropped at an await, its state may be half changed.
    pub(crate) fn come_back(&self, body: &mut Body<A>, agent: A, ended: bool) {
        let good = ended || self.profile.cancel_safe || self.factory.is_none();
        if good {
            body.agent = Some(agent);
        } else {
            let _ = caught(|| drop(agent));
            body.phase = Phase::New;
            self.stats.restarts.fetch_add(1, Relaxed);
        }
    }

    /// The agent panicked: a fresh one takes over, soon, or the agent ends.
    pub(crate) fn fail(self: &Arc<Self>, body: &mut Body<A>, message: &'static str) -> Step {
        *self.stats.last_error.lock() = Some(message);
        if let Some(cx) = &mut body.cx {
            cx.call = None;
        }
        let verdict = match (&self.factory, &self.supervisor) {
            (None, _) => Verdict::End,
            (Some(_), None) => body
                .history
                .get_or_insert_default()
                .judge(self.profile.restarts, &self.profile.backoff),
            (Some(_), Some(supervisor)) => supervisor.judge(self.id),
        };
        match verdict {
            Verdict::Restart(pause) => {
                self.restart(body, pause);
                Step::On
            }
            Verdict::End => {
                log::error!(agent = %self.id, name = self.label.as_deref(), message, "agent ends: too many restarts, or none to make a fresh one");
                self.end(body, ExitReason::Failed)
            }
        }
    }

    pub(crate) fn restart(self: &Arc<Self>, body: &mut Body<A>, pause: Duration) {
        log::warn!(agent = %self.id, name = self.label.as_deref(), ?pause, "agent restarts");
        self.stats.restarts.fetch_add(1, Relaxed);
        self.drop_flight(body);
        self.show(AgentState::Restarting);
        body.panicked = None;
        let old = body.agent.take();
        let _ = caught(|| drop(old));
        body.phase = Phase::New;
        if !pause.is_zero() {
            let mut sleep = Box::pin(tokio::time::sleep(pause));
            let waker = body.waker.get_or_insert_with(|| Waker::from(self.clone()));
            // Registers it with the timer.
            if sleep
                .as_mut()
                .poll(&mut Context::from_waker(waker))
                .is_pending()
            {
                body.phase = Phase::Pausing(sleep);
            }
        }
    }

    fn drop_flight(&self, body: &mut Body<A>) {
        if let Some(flight) = body.flight.take() {
            let _ = caught(|| drop(flight));
            self.stats.in_flight.fetch_sub(1, Relaxed);
        }
    }

    /// The last step: what is left becomes dead letters, whoever watches is told.
    pub(crate) fn end(self: &Arc<Self>, body: &mut Body<A>, why: ExitReason) -> Step {
        if let (ExitReason::Stopped, Some((agent, cx))) = (why, body.alive()) {
            let _ = caught(|| agent.stopped(cx));
        }
        body.phase = Phase::Ended;
        if let Some(asides) = self.asides.get() {
            asides.end();
        }
        let (agent, others) = (body.agent.take(), body.others.take());
        let _ = caught(|| drop(agent));
        let _ = caught(|| drop(others));
        self.drop_flight(body);
        self.stats.in_flight.store(0, Relaxed);
        let mut left = Queue::default();
        self.mailbox.close(&mut left);
        for queue in [&mut body.batch, &mut left]
            .into_iter()
            .chain(body.stash.as_deref_mut())
        {
            let told = |message| {
                self.system
                    .dead_letters()
                    .record(self.id, message, "agent ended")
            };
            let _ = caught(|| queue.discard_all(NoReply::Stopped, told));
        }
        body.cx = None;
        body.waker = None;
        self.show(AgentState::Ended);
        self.stats.exit.store(why as u8, SeqCst);
        self.system.ended(self.id, why);
        Step::Ended
    }

    pub(crate) fn show(&self, state: AgentState) {
        self.stats.state.store(state as u8, Relaxed);
    }
}
