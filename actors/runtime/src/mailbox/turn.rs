//! Turns: an agent takes its messages in batches and runs its handlers until its budget is used up
//! or no work is left.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Poll, Wake, Waker};
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::BoxFuture;

use super::agent_slot::{AgentPhase, AgentSlot, RunToken, TurnStep, catch_panic};
use super::lane::{MessageQueue, NoReplyReason};
use super::queue::{Batch, Gate, LARGE_CAPACITY_MIN, NextWork, TurnOutcome};
use super::scheduler::Runnable;
use crate::agent::context::Context;
use crate::agent::ops::{HandlerRun, HandlerRunResult};
use crate::agent::{Agent, AgentState};
use crate::agent_cell::{AgentCell, Control};
use crate::handle::AgentRef;
use crate::system::supervision::ExitReason;

/// Number of messages that an agent handles before the clock is read for the first time in a turn.
/// Doubled at each reading.
const CHUNK_MIN: u32 = 4;
/// Maximum number of messages that an agent handles between two readings of the clock.
const CHUNK_MAX: u32 = 64;
/// Maximum length of an agent's turn. A single handler that runs longer extends it.
const TURN_TIME_MAX: Duration = Duration::from_micros(200);

impl<A: Agent> Runnable for RunToken<A> {
    fn run_turn(mut self: Box<Self>) {
        let mut begun = 0;
        let Self { cell, slot: body } = &mut *self;
        // Panics of handlers are caught within; a user's value may still panic when it is dropped.
        let steps = catch_panic(|| cell.run_steps(body, &mut begun));
        let Ok(Some(rest)) = steps else { return };
        let cell = cell.clone();
        match cell.mailbox.settle(begun, rest, self) {
            Some(runner) => cell.host.run(runner),
            None => cell.note_settled(),
        }
    }
}

impl<A: Agent> Wake for AgentCell<A> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(ticket) = self.mailbox.wake() {
            self.host.run(ticket);
        }
    }
}

impl<A: Agent> AgentCell<A> {
    /// Takes steps until the agent's turn is over. Returns `None` if the agent has ended, which
    /// makes its run token invalid.
    fn run_steps(
        self: &Arc<Self>,
        body: &mut AgentSlot<A>,
        begun: &mut u32,
    ) -> Option<TurnOutcome> {
        let mut budget = self.profile.turn_messages_max.max(1);
        let mut chunk = CHUNK_MIN;
        let mut began: Option<Instant> = None;
        if let Some(message) = body.panicked.take()
            && let TurnStep::Ended = self.fail(body, message)
        {
            return None;
        }
        loop {
            let wants = body.takes_messages();
            // A message that came with the token needs no look into the mailbox, unless control
            // messages wait.
            let at_hand = wants
                && *begun == 0
                && !body.batch.is_empty()
                && body.has_no_suspended()
                && !self.mailbox.is_urgent();
            let work = match at_hand && chunk == CHUNK_MIN {
                true => NextWork {
                    control: None,
                    woken: false,
                },
                false => self
                    .mailbox
                    .take(std::mem::take(begun), &mut body.batch, wants),
            };
            let step = match work.control {
                Some(control) => self.apply_control(body, control),
                None => {
                    let step = if work.woken {
                        self.poll_futures(body)
                    } else {
                        TurnStep::Continue
                    };
                    match step {
                        TurnStep::Continue if !body.takes_messages() => self.start_agent(body),
                        TurnStep::Continue if !body.terminations.is_empty() => {
                            self.deliver_terminations(body)
                        }
                        TurnStep::Continue => self.handle_head(body, begun, chunk.min(budget)),
                        step => step,
                    }
                }
            };
            match step {
                TurnStep::Continue => {}
                TurnStep::EndTurn(rest) => return Some(rest),
                TurnStep::Ended => return None,
            }
            budget = budget.saturating_sub((*begun).max(1));
            if budget == 0 {
                return Some(TurnOutcome::More);
            }
            if body.batch.is_empty() && self.is_idle(body) {
                // Messages that arrive in the meantime are noticed when the token is returned.
                return Some(TurnOutcome::Idle);
            }
            // Reading the clock costs as much as a message; the first chunk is too short to need
            // it.
            if chunk > CHUNK_MIN && began.get_or_insert_with(Instant::now).elapsed() > TURN_TIME_MAX
            {
                return Some(TurnOutcome::More);
            }
            chunk = (chunk * 2).min(CHUNK_MAX);
        }
    }

    /// Returns true if the agent has nothing to do but wait for messages.
    fn is_idle(&self, body: &AgentSlot<A>) -> bool {
        body.takes_messages() && !body.draining && body.terminations.is_empty()
    }

    /// Creates and starts the agent, or ends the turn while it can't be started.
    fn start_agent(self: &Arc<Self>, body: &mut AgentSlot<A>) -> TurnStep {
        if !matches!(body.phase, AgentPhase::New) {
            // A handler owns the agent, or a restart is delayed: only a wake-up changes that.
            return TurnStep::EndTurn(TurnOutcome::Busy);
        }
        let made = || {
            self.factory
                .as_ref()
                .and_then(|make| catch_panic(|| make()).ok())
        };
        let born = body.agent.take().or_else(made);
        let cx = body
            .cx
            .get_or_insert_with(|| Context::new(AgentRef(self.clone())));
        let started =
            born.and_then(|mut agent| catch_panic(|| agent.started(cx)).ok().map(|()| agent));
        match started {
            Some(agent) => {
                body.agent = Some(agent);
                body.phase = AgentPhase::Running;
                self.set_state(AgentState::Running);
                TurnStep::Continue
            }
            None => self.fail(body, "started"),
        }
    }

    /// Drops the first message of a lane, on which `ready` panicked: the next instance would panic
    /// on it too.
    fn drop_head(&self, batch: &mut MessageQueue, lane_at: u16) {
        if let Some(lane) = batch.lane(lane_at) {
            let message = lane.discard(NoReplyReason::Panicked);
            self.system
                .dead_letters()
                .record(self.id, message, "agent panicked on it");
        }
        batch.advance(1);
    }

    /// Handles up to `max` of the first messages in the batch that belong to the same lane.
    fn handle_head(
        self: &Arc<Self>,
        body: &mut AgentSlot<A>,
        begun: &mut u32,
        max: u32,
    ) -> TurnStep {
        let Some((lane_at, in_a_row)) = body.batch.head() else {
            return self.end_or_idle(body);
        };
        let op = &self.agent_type.handlers.ops[usize::from(lane_at)];
        if let Some(max) = op.in_flight_max()
            && self.suspended_count(body, lane_at) >= max
        {
            self.wake_on_inline_end();
            // An inline handler may have ended before the wake-up was requested.
            if self.suspended_count(body, lane_at) < max {
                return TurnStep::Continue;
            }
            return TurnStep::EndTurn(TurnOutcome::Busy);
        }
        // A small mailbox frees room before each message, a large one after each chunk, which is
        // cheaper.
        let exact = self.profile.mailbox_capacity < LARGE_CAPACITY_MIN;
        let max = if exact { 1 } else { max.min(in_a_row) };
        if exact {
            self.mailbox.release(1);
        }
        let AgentSlot {
            agent,
            cx: Some(cx),
            batch,
            ..
        } = body
        else {
            return TurnStep::Ended;
        };
        let Some(lane) = batch.lane(lane_at) else {
            return TurnStep::Ended;
        };
        let ran = {
            let run = HandlerRun {
                agent,
                cx,
                profile: &self.profile,
                begun,
                max,
            };
            catch_panic(|| op.run(lane, run))
        };
        let done = *begun;
        batch.advance(done);
        self.stats.add_handled(done);
        if exact {
            *begun = 0;
        }
        match ran {
            Ok(HandlerRunResult::Done) => TurnStep::Continue,
            Ok(HandlerRunResult::NotReady) => {
                *begun += u32::from(!exact);
                self.stash_head(body, lane_at);
                TurnStep::Continue
            }
            Ok(HandlerRunResult::Exclusive(flight)) => {
                body.exclusive_handler = Some(flight);
                self.stats.in_flight.fetch_add(1, Relaxed);
                self.poll_futures(body)
            }
            Ok(HandlerRunResult::Concurrent(future)) => {
                self.add_concurrent(body, lane_at, future);
                self.poll_futures(body)
            }
            Err(_) => {
                if done == 0 {
                    *begun += u32::from(!exact);
                    self.drop_head(batch, lane_at);
                }
                self.fail(body, op.name())
            }
        }
    }

    /// Adds the future of a suspended concurrent handler of `lane`.
    fn add_concurrent(&self, body: &mut AgentSlot<A>, lane: u16, future: BoxFuture<'static, bool>) {
        let others = body.concurrent_handlers.get_or_insert_default();
        let at = usize::from(lane);
        if others.by_lane.len() <= at {
            others.by_lane.resize(at + 1, 0);
        }
        others.by_lane[at] += 1;
        others
            .futures
            .push(Box::pin(async move { (lane, future.await) }));
        self.stats.in_flight.fetch_add(1, Relaxed);
    }

    /// Calls [`Agent::terminated`] for watched agents that have ended.
    fn deliver_terminations(self: &Arc<Self>, body: &mut AgentSlot<A>) -> TurnStep {
        for (who, why) in std::mem::take(&mut body.terminations) {
            if let Some((agent, cx)) = body.agent_and_context()
                && catch_panic(|| agent.terminated(who, why, cx)).is_err()
            {
                return self.fail(body, "terminated");
            }
        }
        TurnStep::Continue
    }

    /// Ends the turn because the batch is empty; ends a draining agent that has no work left.
    fn end_or_idle(self: &Arc<Self>, body: &mut AgentSlot<A>) -> TurnStep {
        if !body.draining {
            return TurnStep::EndTurn(TurnOutcome::Idle);
        }
        self.wake_on_inline_end();
        let in_flight = body
            .concurrent_handlers
            .as_ref()
            .is_some_and(|o| !o.futures.is_empty())
            || self.inline_count() > 0;
        if !in_flight && !self.mailbox.has_queued() {
            return self.end(body, ExitReason::Stopped);
        }
        TurnStep::EndTurn(TurnOutcome::Idle)
    }

    fn stash_head(self: &Arc<Self>, body: &mut AgentSlot<A>, lane: u16) {
        let stash = body.stash.get_or_insert_default();
        if stash.len() < self.profile.stash_capacity as usize {
            self.agent_type.handlers.ops[usize::from(lane)].stash(&mut body.batch, stash);
            return;
        }
        if let Some(lane) = body.batch.lane(lane) {
            let message = lane.discard(NoReplyReason::StashFull);
            self.system
                .dead_letters()
                .record(self.id, message, "stash is full");
        }
        body.batch.advance(1);
    }

    /// Polls all suspended handlers and the restart delay.
    fn poll_futures(self: &Arc<Self>, body: &mut AgentSlot<A>) -> TurnStep {
        // Taken and put back: a clone would cost two atomic operations a message.
        let waker = body
            .waker
            .take()
            .unwrap_or_else(|| Waker::from(self.clone()));
        let panicked = self.poll_all(body, &mut std::task::Context::from_waker(&waker));
        body.waker = Some(waker);
        if panicked {
            self.fail(body, "an async handler")
        } else {
            TurnStep::Continue
        }
    }

    /// Polls all suspended handlers and the restart delay once. Returns true if a handler panicked.
    fn poll_all(&self, body: &mut AgentSlot<A>, context: &mut std::task::Context<'_>) -> bool {
        if let AgentPhase::Pausing(sleep) = &mut body.phase
            && sleep.as_mut().poll(context).is_ready()
        {
            body.phase = AgentPhase::New;
        }
        let mut panicked = false;
        if let Some(others) = &mut body.concurrent_handlers {
            while let Poll::Ready(Some((lane, ended))) = others.futures.poll_next_unpin(context) {
                others.by_lane[usize::from(lane)] -= 1;
                self.stats.in_flight.fetch_sub(1, Relaxed);
                panicked |= !ended;
            }
        }
        if let Some(flight) = &mut body.exclusive_handler {
            let polled = catch_panic(|| flight.as_mut().poll(context));
            if !matches!(polled, Ok(Poll::Pending)) {
                body.exclusive_handler = None;
                self.stats.in_flight.fetch_sub(1, Relaxed);
            }
            match polled {
                Ok(Poll::Pending) => {}
                Ok(Poll::Ready((agent, ended))) => self.return_agent(body, agent, ended),
                Err(_) => panicked = true,
            }
        }
        panicked
    }

    fn apply_control(self: &Arc<Self>, body: &mut AgentSlot<A>, control: Control) -> TurnStep {
        match control {
            Control::Kill(why) => return self.end(body, why),
            Control::Drain => {
                body.draining = true;
                self.mailbox.set_gate(Gate::Closed);
                self.set_state(AgentState::Draining);
            }
            Control::Restart(pause) => {
                if self.factory.is_none() {
                    return self.end(body, ExitReason::Failed);
                }
                self.restart(body, pause);
            }
            Control::Unstash => {
                if let Some(stash) = &mut body.stash {
                    self.mailbox.hold(stash.len() as u32);
                    body.batch.prepend(stash);
                }
            }
            Control::Observe(reply) => {
                if matches!(body.phase, AgentPhase::New)
                    && let TurnStep::Ended = self.start_agent(body)
                {
                    return TurnStep::Ended;
                }
                let seen = body
                    .agent_and_context()
                    .and_then(|(agent, _)| catch_panic(|| agent.observe()).ok());
                let _ = reply.send(seen.unwrap_or_default());
            }
            Control::Panicked => return self.fail(body, "an async handler"),
            Control::Adopt(lane, flight) => {
                self.add_concurrent(body, lane, flight);
                return self.poll_futures(body);
            }
            // Delivered once the agent is available.
            Control::Terminated(who, why) => body.terminations.push((who, why)),
        }
        TurnStep::Continue
    }
}
