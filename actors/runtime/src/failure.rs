//! What follows a failure or an order to end: a fresh agent, or none.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::task::{Context, Waker};
use std::time::Duration;

use crate::agent::Agent;
use crate::body::{Body, Phase, drop_caught};
use crate::cell::Cell;
use crate::lane::Queue;
use crate::reply::NoReply;
use crate::snapshot::AgentState;
use crate::supervision::{ExitReason, Verdict};
use crate::turn::Step;

impl<A: Agent> Cell<A> {
    /// A handler returns the agent; where it was dropped at an await, its state may be half changed.
    pub(crate) fn come_back(&self, body: &mut Body<A>, agent: A, ended: bool) {
        let good = ended || self.profile.cancel_safe || self.factory.is_none();
        if good {
            body.agent = Some(agent);
        } else {
            drop_caught(AssertUnwindSafe(|| drop(agent)));
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
            (Some(_), None) => body.history.get_or_insert_default().judge(self.profile.restarts, &self.profile.backoff),
            (Some(_), Some(supervisor)) => supervisor.judge(self.id),
        };
        match verdict {
            Verdict::Restart(pause) => {
                self.restart(body, pause);
                Step::On
            }
            Verdict::End => {
                callboard_message::log::error!(agent = %self.id, name = self.label.as_deref(), message, "agent ends: too many restarts, or none to make a fresh one");
                self.end(body, ExitReason::Failed)
            }
        }
    }

    pub(crate) fn restart(self: &Arc<Self>, body: &mut Body<A>, pause: Duration) {
        callboard_message::log::warn!(agent = %self.id, name = self.label.as_deref(), ?pause, "agent restarts");
        self.stats.restarts.fetch_add(1, Relaxed);
        self.drop_flight(body);
        self.show(AgentState::Restarting);
        body.panicked = None;
        let old = body.agent.take();
        drop_caught(AssertUnwindSafe(|| drop(old)));
        body.phase = Phase::New;
        if !pause.is_zero() {
            let mut sleep = Box::pin(tokio::time::sleep(pause));
            let waker = body.waker.get_or_insert_with(|| Waker::from(self.clone()));
            // Registers it with the timer.
            if sleep.as_mut().poll(&mut Context::from_waker(waker)).is_pending() {
                body.phase = Phase::Pausing(sleep);
            }
        }
    }

    pub(crate) fn drop_flight(&self, body: &mut Body<A>) {
        if let Some(flight) = body.flight.take() {
            drop_caught(AssertUnwindSafe(|| drop(flight)));
            self.stats.in_flight.fetch_sub(1, Relaxed);
        }
    }

    /// The last step: what is left becomes dead letters, whoever watches is told.
    pub(crate) fn end(self: &Arc<Self>, body: &mut Body<A>, why: ExitReason) -> Step {
        if let (ExitReason::Stopped, Some((agent, cx))) = (why, body.alive()) {
            let _ = catch_unwind(AssertUnwindSafe(|| agent.stopped(cx)));
        }
        body.phase = Phase::Ended;
        if let Some(asides) = self.asides.get() {
            asides.end();
        }
        let (agent, others) = (body.agent.take(), body.others.take());
        drop_caught(AssertUnwindSafe(|| drop(agent)));
        drop_caught(AssertUnwindSafe(|| drop(others)));
        self.drop_flight(body);
        self.stats.in_flight.store(0, Relaxed);
        let mut left = Queue::default();
        self.mailbox.close(&mut left);
        for queue in [&mut body.batch, &mut left].into_iter().chain(body.stash.as_deref_mut()) {
            let told = |message| self.system.dead_letter(self.id, message, "agent ended");
            drop_caught(AssertUnwindSafe(|| queue.discard_all(NoReply::Stopped, told)));
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
