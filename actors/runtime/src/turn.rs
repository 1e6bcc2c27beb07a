//! The turn: an agent takes its messages in batches and runs its handlers, until its budget is spent or nothing is left.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;

use crate::agent::Agent;
use crate::agent_ref::AgentRef;
use crate::cell::{Cell, Control};
use crate::cx::Cx;
use crate::host::Turn;
use crate::lane::Queue;
use crate::mailbox::{Batch, Rest};
use crate::ops::{Ran, Run};
use crate::reply::NoReply;
use crate::snapshot::AgentState;
use crate::supervision::{ExitReason, History, Verdict};

/// Messages handled at first before the clock is looked at; doubled from look to look.
const CHUNK_MIN: u32 = 4;
/// Messages handled at most between two looks.
const CHUNK_MAX: u32 = 64;
/// Mailboxes smaller than this, in messages, count each message as it is begun.
const EXACT_BELOW: u32 = 2 * CHUNK_MAX;
/// How long one turn lasts at most, but for a single handler's own length.
const TURN_TIME_MAX: Duration = Duration::from_micros(200);

/// An agent's ticket: it has the agent in it.
pub(crate) struct Runner<A: Agent> {
    pub(crate) cell: Arc<Cell<A>>,
    pub(crate) body: Body<A>,
}

/// What only the holder of the ticket touches.
pub(crate) struct Body<A: Agent> {
    phase: Phase,
    /// Here but while a handler has it, or before it is made.
    agent: Option<A>,
    cx: Option<Cx>,
    batch: Queue,
    /// The handler that has the agent to itself, with the agent in it.
    flight: Option<BoxFuture<'static, (A, bool)>>,
    others: Option<Box<Others>>,
    stash: Option<Box<Queue>>,
    history: Option<Box<History>>,
    draining: bool,
    panicked: Option<&'static str>,
    waker: Option<Waker>,
}

/// Handlers that run beside the agent.
#[derive(Default)]
struct Others {
    futures: FuturesUnordered<BoxFuture<'static, (u16, bool)>>,
    /// How many of each kind.
    by_lane: Vec<u32>,
}

enum Phase {
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
        }
    }

    pub(crate) fn alive(&mut self) -> Option<(&mut A, &mut Cx)> {
        match (&self.phase, &mut self.agent, &mut self.cx) {
            (Phase::Running, Some(agent), Some(cx)) => Some((agent, cx)),
            _ => None,
        }
    }

    pub(crate) fn note_panic(&mut self, message: &'static str) {
        self.panicked = Some(message);
    }

    fn takes_messages(&self) -> bool {
        matches!(self.phase, Phase::Running) && self.agent.is_some()
    }
}

/// What a step of a turn leads to.
enum Step {
    On,
    Rest(Rest),
    Ended,
}

impl<A: Agent> Turn for Runner<A> {
    fn turn(mut self: Box<Self>) {
        let mut begun = 0;
        let Self { cell, body } = &mut *self;
        let Some(rest) = cell.steps(body, &mut begun) else { return };
        let cell = cell.clone();
        match cell.mailbox.settle(begun, rest, self) {
            Some(runner) => cell.host.run(runner),
            None if cell.system.is_draining() => cell.system.note_settled(),
            None => {}
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
        loop {
            let wants = body.takes_messages();
            let work = self.mailbox.take(std::mem::take(begun), &mut body.batch, wants);
            let step = match work.control {
                Some(control) => self.obey(body, control),
                None => {
                    let mut step = if work.woken { self.poll_futures(body) } else { Step::On };
                    if let (Step::On, Some(message)) = (&step, body.panicked.take()) {
                        step = self.fail(body, message);
                    }
                    match step {
                        Step::On if !body.takes_messages() => self.bear(body),
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
            if chunk > CHUNK_MIN && began.get_or_insert_with(Instant::now).elapsed() > TURN_TIME_MAX {
                return Some(Rest::More);
            }
            chunk = (chunk * 2).min(CHUNK_MAX);
        }
    }

    /// Whether all that is left is what may arrive.
    fn rests(&self, body: &Body<A>) -> bool {
        body.takes_messages() && !body.draining && body.panicked.is_none()
    }

    /// Makes the agent and starts it, or waits with it.
    fn bear(self: &Arc<Self>, body: &mut Body<A>) -> Step {
        if !matches!(body.phase, Phase::New) {
            // A handler has the agent, or it pauses: only a wake-up changes that.
            return Step::Rest(Rest::Busy);
        }
        let made = || self.factory.as_ref().and_then(|make| catch_unwind(AssertUnwindSafe(|| make())).ok());
        let born = body.agent.take().or_else(made);
        let cx = body.cx.get_or_insert_with(|| Cx::new(AgentRef(self.clone())));
        let started =
            born.and_then(|mut agent| catch_unwind(AssertUnwindSafe(|| agent.started(cx))).ok().map(|()| agent));
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
        let Some((lane_at, in_a_row)) = body.batch.head() else { return self.out_of_work(body) };
        let op = &self.kind.handlers.ops[usize::from(lane_at)];
        if let Some(max) = op.in_flight_max()
            && body.others.as_ref().and_then(|o| o.by_lane.get(usize::from(lane_at))).is_some_and(|n| *n >= max)
        {
            return Step::Rest(Rest::Busy);
        }
        // A small mailbox gives room back before each message; a large one after each chunk, which costs less.
        let exact = self.profile.mailbox_capacity < EXACT_BELOW;
        let max = if exact { 1 } else { max.min(in_a_row) };
        if exact {
            self.mailbox.release(1);
        }
        let Body { agent, cx: Some(cx), batch, .. } = body else { return Step::Ended };
        let Some(lane) = batch.lane(lane_at) else { return Step::Ended };
        let ran = {
            let run = Run { agent, cx, profile: &self.profile, begun, max };
            catch_unwind(AssertUnwindSafe(|| op.run(lane, run)))
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
                let others = body.others.get_or_insert_default();
                let at = usize::from(lane_at);
                if others.by_lane.len() <= at {
                    others.by_lane.resize(at + 1, 0);
                }
                others.by_lane[at] += 1;
                others.futures.push(Box::pin(async move { (lane_at, future.await) }));
                self.stats.in_flight.fetch_add(1, Relaxed);
                self.poll_futures(body)
            }
            Err(_) => self.fail(body, op.name()),
        }
    }

    /// The batch is empty: new messages, or the end of the turn.
    fn out_of_work(self: &Arc<Self>, body: &mut Body<A>) -> Step {
        let in_flight = body.others.as_ref().is_some_and(|o| !o.futures.is_empty());
        if body.draining && !in_flight && !self.mailbox.has_queued() {
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
            self.system.dead_letter(self.id, message, "stash is full");
        }
        body.batch.advance(1);
    }

    /// Polls what is suspended.
    fn poll_futures(self: &Arc<Self>, body: &mut Body<A>) -> Step {
        let waker = body.waker.get_or_insert_with(|| Waker::from(self.clone())).clone();
        let mut context = Context::from_waker(&waker);
        if let Phase::Pausing(sleep) = &mut body.phase
            && sleep.as_mut().poll(&mut context).is_ready()
        {
            body.phase = Phase::New;
        }
        let mut panicked = false;
        if let Some(others) = &mut body.others {
            while let Poll::Ready(Some((lane, ended))) = others.futures.poll_next_unpin(&mut context) {
                others.by_lane[usize::from(lane)] -= 1;
                self.stats.in_flight.fetch_sub(1, Relaxed);
                panicked |= !ended;
            }
        }
        if let Some(flight) = &mut body.flight {
            let polled = catch_unwind(AssertUnwindSafe(|| flight.as_mut().poll(&mut context)));
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
        if panicked { self.fail(body, "an async handler") } else { Step::On }
    }

    /// A handler returns the agent; where it was dropped at an await, its state may be half changed.
    fn come_back(&self, body: &mut Body<A>, agent: A, ended: bool) {
        let good = ended || self.profile.cancel_safe || self.factory.is_none();
        if good {
            body.agent = Some(agent);
        } else {
            body.phase = Phase::New;
            self.stats.restarts.fetch_add(1, Relaxed);
        }
    }

    /// The agent panicked: a fresh one takes over, soon, or the agent ends.
    fn fail(self: &Arc<Self>, body: &mut Body<A>, message: &'static str) -> Step {
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
                tracing::error!(agent = %self.id, name = self.label.as_deref(), message, "agent ends: too many restarts, or none to make a fresh one");
                self.end(body, ExitReason::Failed)
            }
        }
    }

    fn restart(self: &Arc<Self>, body: &mut Body<A>, pause: Duration) {
        tracing::warn!(agent = %self.id, name = self.label.as_deref(), ?pause, "agent restarts");
        self.stats.restarts.fetch_add(1, Relaxed);
        self.drop_flight(body);
        self.show(AgentState::Restarting);
        body.agent = None;
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

    fn drop_flight(&self, body: &mut Body<A>) {
        if body.flight.take().is_some() {
            self.stats.in_flight.fetch_sub(1, Relaxed);
        }
    }

    fn obey(self: &Arc<Self>, body: &mut Body<A>, control: Control) -> Step {
        match control {
            Control::Kill(why) => return self.end(body, why),
            Control::Drain => {
                body.draining = true;
                self.mailbox.set_gate(crate::mailbox::Gate::Closed);
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
                let seen = body.alive().and_then(|(agent, _)| catch_unwind(AssertUnwindSafe(|| agent.observe())).ok());
                let _ = reply.send(seen.unwrap_or_default());
            }
            Control::Terminated(who, why) => {
                if let Some((agent, cx)) = body.alive()
                    && catch_unwind(AssertUnwindSafe(|| agent.terminated(who, why, cx))).is_err()
                {
                    return self.fail(body, "terminated");
                }
            }
        }
        Step::On
    }

    /// The last step: what is left becomes dead letters, whoever watches is told.
    fn end(self: &Arc<Self>, body: &mut Body<A>, why: ExitReason) -> Step {
        if let (ExitReason::Stopped, Some((agent, cx))) = (why, body.alive()) {
            let _ = catch_unwind(AssertUnwindSafe(|| agent.stopped(cx)));
        }
        body.phase = Phase::Ended;
        body.agent = None;
        self.drop_flight(body);
        body.others = None;
        self.stats.in_flight.store(0, Relaxed);
        let mut left = Queue::default();
        self.mailbox.close(&mut left);
        for queue in [&mut body.batch, &mut left].into_iter().chain(body.stash.as_deref_mut()) {
            queue.discard_all(NoReply::Stopped, |message| self.system.dead_letter(self.id, message, "agent ended"));
        }
        body.cx = None;
        body.waker = None;
        self.show(AgentState::Ended);
        self.stats.exit.store(why as u8, SeqCst);
        self.system.ended(self.id, why);
        Step::Ended
    }

    fn show(&self, state: AgentState) {
        self.stats.state.store(state as u8, Relaxed);
    }
}
