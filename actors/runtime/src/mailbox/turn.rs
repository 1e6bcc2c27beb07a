//! The turn: an agent takes its messages in batches and runs its handlers, until its budget is spent or nothing is left.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::BoxFuture;

use super::body::{Body, Phase, Runner, Step, caught};
use super::host::Turn;
use super::lane::NoReply;
use super::queue::{Batch, Gate, LARGE_FROM, Rest, Work};
use crate::agent::cx::Cx;
use crate::agent::ops::{Ran, Run};
use crate::agent::{Agent, AgentState};
use crate::cell::{Cell, Control};
use crate::handle::AgentRef;
use crate::system::supervision::ExitReason;

/// Messages handled at first before the clock is looked at; doubled from look to look.
const CHUNK_MIN: u32 = 4;
/// Messages handled at most between two looks.
const CHUNK_MAX: u32 = 64;
/// How long one turn lasts at most, but for a single handler's own length.
const TURN_TIME_MAX: Duration = Duration::from_micros(200);

impl<A: Agent> Turn for Runner<A> {
    fn turn(mut self: Box<Self>) {
        let mut begun = 0;
        let Self { cell, body } = &mut *self;
        // The kernel catches what handlers do; what is left is a value of the user's that panics when it is dropped.
        let steps = caught(|| cell.steps(body, &mut begun));
        let Ok(Some(rest)) = steps else { return };
        let cell = cell.clone();
        match cell.mailbox.settle(begun, rest, self) {
            Some(runner) => cell.host.run(runner),
            None => cell.note_settled(),
        }
    }
}

impl<A: Agent> Wake for Cell<A> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(ticket) = self.mailbox.wake() {
            self.host.run(ticket);
        }
    }
}

impl<A: Agent> Cell<A> {
    /// Takes steps until the turn is over. `None`: the agent has ended, its ticket is void.
    fn steps(self: &Arc<Self>, body: &mut Body<A>, begun: &mut u32) -> Option<Rest> {
        let mut budget = self.profile.turn_messages_max.max(1);
        let mut chunk = CHUNK_MIN;
        let mut began: Option<Instant> = None;
        if let Some(message) = body.panicked.take()
            && let Step::Ended = self.fail(body, message)
        {
            return None;
        }
        loop {
            let wants = body.takes_messages();
            // A message that came with the ticket needs no look into the mailbox, unless something goes before it.
            let at_hand = wants
                && *begun == 0
                && !body.batch.is_empty()
                && body.is_alone()
                && !self.mailbox.is_urgent();
            let work = match at_hand && chunk == CHUNK_MIN {
                true => Work {
                    control: None,
                    woken: false,
                },
                false => self
                    .mailbox
                    .take(std::mem::take(begun), &mut body.batch, wants),
            };
            let step = match work.control {
                Some(control) => self.obey(body, control),
                None => {
                    let step = if work.woken {
                        self.poll_futures(body)
                    } else {
                        Step::On
                    };
                    match step {
                        Step::On if !body.takes_messages() => self.bear(body),
                        Step::On if !body.ends.is_empty() => self.tell_ends(body),
                        Step::On => self.work(body, begun, chunk.min(budget)),
                        step => step,
                    }
                }
            };
            match step {
                Step::On => {}
                Step::Rest(rest) => return Some(rest),
                Step::Ended => return None,
            }
            budget = budget.saturating_sub((*begun).max(1));
            if budget == 0 {
                return Some(Rest::More);
            }
            if body.batch.is_empty() && self.rests(body) {
                // What came meanwhile is seen when the ticket is given back.
                return Some(Rest::Idle);
            }
            // Looking at the clock costs as much as a message: the first chunk is too short to need it.
            if chunk > CHUNK_MIN && began.get_or_insert_with(Instant::now).elapsed() > TURN_TIME_MAX
            {
                return Some(Rest::More);
            }
            chunk = (chunk * 2).min(CHUNK_MAX);
        }
    }

    /// Whether all that is left is what may arrive.
    fn rests(&self, body: &Body<A>) -> bool {
        body.takes_messages() && !body.draining && body.ends.is_empty()
    }

    /// Makes the agent and starts it, or waits with it.
    fn bear(self: &Arc<Self>, body: &mut Body<A>) -> Step {
        if !matches!(body.phase, Phase::New) {
            // A handler has the agent, or it pauses: only a wake-up changes that.
            return Step::Rest(Rest::Busy);
        }
        let made = || {
            self.factory
                .as_ref()
                .and_then(|make| caught(|| make()).ok())
        };
        let born = body.agent.take().or_else(made);
        let cx = body
            .cx
            .get_or_insert_with(|| Cx::new(AgentRef(self.clone())));
        let started = born.and_then(|mut agent| caught(|| agent.started(cx)).ok().map(|()| agent));
        match started {
            Some(agent) => {
                body.agent = Some(agent);
                body.phase = Phase::Running;
                self.show(AgentState::Running);
                Step::On
            }
            None => self.fail(body, "started"),
        }
    }

    /// Handles up to `max` messages at the head of the batch.
    fn work(self: &Arc<Self>, body: &mut Body<A>, begun: &mut u32, max: u32) -> Step {
        let Some((lane_at, in_a_row)) = body.batch.head() else {
            return self.out_of_work(body);
        };
        let op = &self.kind.handlers.ops[usize::from(lane_at)];
        if let Some(max) = op.in_flight_max()
            && self.suspended(body, lane_at) >= max
        {
            self.await_asides();
            // One that has ended in between wakes nobody.
            if self.suspended(body, lane_at) < max {
                return Step::On;
            }
            return Step::Rest(Rest::Busy);
        }
        // A small mailbox gives room back before each message; a large one after each chunk, which costs less.
        let exact = self.profile.mailbox_capacity < LARGE_FROM;
        let max = if exact { 1 } else { max.min(in_a_row) };
        if exact {
            self.mailbox.release(1);
        }
        let Body {
            agent,
            cx: Some(cx),
            batch,
            ..
        } = body
        else {
            return Step::Ended;
        };
        let Some(lane) = batch.lane(lane_at) else {
            return Step::Ended;
        };
        let ran = {
            let run = Run {
                agent,
                cx,
                profile: &self.profile,
                begun,
                max,
            };
            caught(|| op.run(lane, run))
        };
        let done = *begun;
        batch.advance(done);
        self.stats.add_handled(done);
        if exact {
            *begun = 0;
        }
        match ran {
            Ok(Ran::Done) => Step::On,
            Ok(Ran::NotReady) => {
                *begun += u32::from(!exact);
                self.set_aside(body, lane_at);
                Step::On
            }
            Ok(Ran::Exclusive(flight)) => {
                body.flight = Some(flight);
                self.stats.in_flight.fetch_add(1, Relaxed);
                self.poll_futures(body)
            }
            Ok(Ran::Concurrent(future)) => {
                self.run_beside(body, lane_at, future);
                self.poll_futures(body)
            }
            Err(_) => {
                if done == 0 {
                    // It panicked over whether it is ready: the message would fail the next agent too.
                    *begun += u32::from(!exact);
                    if let Some(lane) = batch.lane(lane_at) {
                        let message = lane.discard(NoReply::Panicked);
                        self.system.dead_letters().record(
                            self.id,
                            message,
                            "agent panicked over it",
                        );
                    }
                    batch.advance(1);
                }
                self.fail(body, op.name())
            }
        }
    }

    /// Keeps a concurrent handler, to be polled beside the agent.
    fn run_beside(&self, body: &mut Body<A>, lane: u16, future: BoxFuture<'static, bool>) {
        let others = body.others.get_or_insert_default();
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

    /// Tells the agent which of those that it watches ended.
    fn tell_ends(self: &Arc<Self>, body: &mut Body<A>) -> Step {
        for (who, why) in std::mem::take(&mut body.ends) {
            if let Some((agent, cx)) = body.alive()
                && caught(|| agent.terminated(who, why, cx)).is_err()
            {
                return self.fail(body, "terminated");
            }
        }
        Step::On
    }

    /// The batch is empty: new messages, or the end of the turn.
    fn out_of_work(self: &Arc<Self>, body: &mut Body<A>) -> Step {
        if !body.draining {
            return Step::Rest(Rest::Idle);
        }
        self.await_asides();
        let in_flight = body.others.as_ref().is_some_and(|o| !o.futures.is_empty())
            || self.suspended_elsewhere() > 0;
        if !in_flight && !self.mailbox.has_queued() {
            return self.end(body, ExitReason::Stopped);
        }
        Step::Rest(Rest::Idle)
    }

    fn set_aside(self: &Arc<Self>, body: &mut Body<A>, lane: u16) {
        let stash = body.stash.get_or_insert_default();
        if stash.len() < self.profile.stash_capacity as usize {
            self.kind.handlers.ops[usize::from(lane)].stash(&mut body.batch, stash);
            return;
        }
        if let Some(lane) = body.batch.lane(lane) {
            let message = lane.discard(NoReply::StashFull);
            self.system
                .dead_letters()
                .record(self.id, message, "stash is full");
        }
        body.batch.advance(1);
    }

    /// Polls what is suspended.
    fn poll_futures(self: &Arc<Self>, body: &mut Body<A>) -> Step {
        // Lent, not cloned: that would cost two atomic operations a message.
        let waker = body
            .waker
            .take()
            .unwrap_or_else(|| Waker::from(self.clone()));
        let panicked = self.poll_all(body, &mut Context::from_waker(&waker));
        body.waker = Some(waker);
        if panicked {
            self.fail(body, "an async handler")
        } else {
            Step::On
        }
    }

    /// True where one panicked.
    fn poll_all(&self, body: &mut Body<A>, context: &mut Context<'_>) -> bool {
        if let Phase::Pausing(sleep) = &mut body.phase
            && sleep.as_mut().poll(context).is_ready()
        {
            body.phase = Phase::New;
        }
        let mut panicked = false;
        if let Some(others) = &mut body.others {
            while let Poll::Ready(Some((lane, ended))) = others.futures.poll_next_unpin(context) {
                others.by_lane[usize::from(lane)] -= 1;
                self.stats.in_flight.fetch_sub(1, Relaxed);
                panicked |= !ended;
            }
        }
        if let Some(flight) = &mut body.flight {
            let polled = caught(|| flight.as_mut().poll(context));
            if !matches!(polled, Ok(Poll::Pending)) {
                body.flight = None;
                self.stats.in_flight.fetch_sub(1, Relaxed);
            }
            match polled {
                Ok(Poll::Pending) => {}
                Ok(Poll::Ready((agent, ended))) => self.come_back(body, agent, ended),
                Err(_) => panicked = true,
            }
        }
        panicked
    }

    fn obey(self: &Arc<Self>, body: &mut Body<A>, control: Control) -> Step {
        match control {
            Control::Kill(why) => return self.end(body, why),
            Control::Drain => {
                body.draining = true;
                self.mailbox.set_gate(Gate::Closed);
                self.show(AgentState::Draining);
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
                if matches!(body.phase, Phase::New)
                    && let Step::Ended = self.bear(body)
                {
                    return Step::Ended;
                }
                let seen = body
                    .alive()
                    .and_then(|(agent, _)| caught(|| agent.observe()).ok());
                let _ = reply.send(seen.unwrap_or_default());
            }
            Control::Panicked => return self.fail(body, "an async handler"),
            Control::Adopt(lane, flight) => {
                self.run_beside(body, lane, flight);
                return self.poll_futures(body);
            }
            // Told when the agent is there to hear it.
            Control::Terminated(who, why) => body.ends.push((who, why)),
        }
        Step::On
    }
}
