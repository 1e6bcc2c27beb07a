//! The cell: an agent with its mailbox, as everyone but its host sees it; also with its type forgotten, as an
//! [`AgentRef`](crate::AgentRef) holds it.

pub(crate) mod aside;

use std::any::{Any, TypeId};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Duration;

use aside::{Aside, Asides};
use callboard_message::{Failure, Message, MessageSpec, Named, RawReply};
use futures::future::BoxFuture;
use tokio::sync::oneshot;

use crate::agent::ops::{Begin, Direct, Op, Shortcut};
use crate::agent::{Agent, AgentId, AgentSnapshot, AgentState, Handlers, Profile};
use crate::call::CallMeta;
use crate::mailbox::body::{Runner, caught};
use crate::mailbox::host::{Host, as_agent, inside};
use crate::mailbox::lane::{NoReply, Queue, reply_channel};
use crate::mailbox::queue::{Admitted, Gate, Mailbox, Rest, WaiterId};
use crate::sync::Mutex;
use crate::system::System;
use crate::system::supervision::{ExitReason, Supervisor};

/// What goes before work.
pub(crate) enum Control {
    /// Stop now: what the mailbox holds becomes dead letters.
    Kill(ExitReason),
    /// Stop after what the mailbox holds.
    Drain,
    /// A sibling failed and all start afresh, after a pause.
    Restart(Duration),
    Unstash,
    Observe(oneshot::Sender<serde_json::Value>),
    Terminated(AgentId, ExitReason),
    /// A handler that ran elsewhere panicked.
    Panicked,
    /// A handler of that lane, left by its asker.
    Adopt(u16, BoxFuture<'static, bool>),
}

/// What can be done for an asker on the spot.
pub(crate) enum OnTheSpot<R> {
    /// Nothing: the message has to be queued.
    Nothing,
    Answer(Result<R, NoReply>),
    /// The handler has begun; the asker polls it.
    Begun(Aside<R>),
}

/// What became of a message.
pub(crate) enum Pushed {
    In,
    Full(u32),
    Waiting,
    Closed,
    NotHandled,
}

/// Moves a message into the queue, in the lane given.
type Push<'a> = &'a mut dyn FnMut(&mut Queue, u16);

/// What all agents of one type share.
pub(crate) struct Kind<A: Agent> {
    pub(crate) handlers: Handlers<A>,
    types: Vec<TypeId>,
    pub(crate) profile: Arc<Profile>,
}

impl<A: Agent> Kind<A> {
    pub(crate) fn new() -> Self {
        let handlers = Handlers::<A>::collect();
        let types = handlers.ops.iter().map(|op| op.message()).collect();
        Self {
            handlers,
            types,
            profile: Arc::new(A::profile()),
        }
    }

    pub(crate) fn lane(&self, message: TypeId) -> Option<u16> {
        self.types
            .iter()
            .position(|t| *t == message)
            .map(|at| at as u16)
    }

    fn find(&self, message: TypeId) -> Option<(u16, &dyn Op<A>)> {
        let lane = self.lane(message)?;
        Some((lane, &*self.handlers.ops[usize::from(lane)]))
    }
}

pub(crate) type Factory<A> = Arc<dyn Fn() -> A + Send + Sync>;

/// The counters that people see.
#[derive(Default)]
pub(crate) struct Stats {
    /// Written only by whoever has the ticket.
    handled: AtomicU64,
    pub(crate) restarts: AtomicU32,
    pub(crate) in_flight: AtomicU32,
    pub(crate) state: AtomicU8,
    /// The handler that panicked last.
    pub(crate) last_error: Mutex<Option<&'static str>>,
    /// Why it ended; 0 while it lives.
    pub(crate) exit: AtomicU8,
}

impl Stats {
    pub(crate) fn add_handled(&self, count: u32) {
        self.handled
            .store(self.handled.load(Relaxed) + u64::from(count), Relaxed);
    }
}

pub(crate) struct Cell<A: Agent> {
    pub(crate) id: AgentId,
    pub(crate) label: Option<Arc<str>>,
    pub(crate) system: System,
    pub(crate) host: Arc<Host>,
    pub(crate) kind: Arc<Kind<A>>,
    pub(crate) profile: Arc<Profile>,
    pub(crate) factory: Option<Factory<A>>,
    pub(crate) supervisor: Option<Supervisor>,
    /// Its ticket is the runner: whoever holds it may touch the agent, and nobody else can.
    pub(crate) mailbox: Mailbox<Queue, Box<Runner<A>>, Control>,
    pub(crate) stats: Stats,
    /// Made for the first handler that runs elsewhere.
    pub(crate) asides: OnceLock<Box<Asides>>,
}

impl<A: Agent> Cell<A> {
    /// Puts a message in by `push`, if there is room.
    #[inline]
    pub(crate) fn admit(&self, push: impl FnOnce(&mut Queue)) -> Pushed {
        self.pushed(self.mailbox.admit(inside, push))
    }

    /// Puts a message in by `push`, or keeps a place in the line.
    pub(crate) fn wait(
        &self,
        place: &mut Option<WaiterId>,
        waker: &Waker,
        push: impl FnOnce(&mut Queue),
    ) -> Pushed {
        let admitted = self.mailbox.admit_or_wait(inside, *place, waker, push);
        *place = if let Admitted::Waiting(id) = admitted {
            Some(id)
        } else {
            None
        };
        if let Admitted::Closed = admitted {
            // The room that was promised to it counted as work.
            self.note_settled();
        }
        self.pushed(admitted)
    }

    /// Handlers suspended, here and elsewhere.
    pub(crate) fn in_flight(&self) -> u32 {
        self.stats.in_flight.load(Relaxed) + self.suspended_elsewhere()
    }

    /// The agent has nothing to do: a system that drains wants to know.
    #[inline]
    pub(crate) fn note_settled(&self) {
        if self.system.is_draining() {
            self.system.note_settled();
        }
    }

    #[inline]
    fn pushed(&self, admitted: Admitted<Box<Runner<A>>>) -> Pushed {
        match admitted {
            Admitted::In(None) => Pushed::In,
            Admitted::In(Some(ticket)) => {
                self.host.run(ticket);
                Pushed::In
            }
            Admitted::Full => Pushed::Full(self.profile.mailbox_capacity),
            Admitted::Waiting(_) => Pushed::Waiting,
            Admitted::Closed => Pushed::Closed,
        }
    }

    /// Does on this thread what can be done there.
    #[inline]
    pub(crate) fn shortcut<M: Message>(
        &self,
        shortcut: &Shortcut<A, M>,
        lane: u16,
        slot: &mut Option<M>,
        call: Option<&Arc<CallMeta>>,
    ) -> OnTheSpot<M::Reply> {
        match shortcut {
            Shortcut::None => OnTheSpot::Nothing,
            Shortcut::All(direct) => self.in_place(direct, slot, call),
            Shortcut::Beginning(begin) => self.begin_in_place(begin, lane, slot, call),
        }
    }

    /// Runs a synchronous handler on this thread, if the agent has nothing at all to do.
    fn in_place<M: Message>(
        &self,
        direct: &Direct<A, M>,
        slot: &mut Option<M>,
        call: Option<&Arc<CallMeta>>,
    ) -> OnTheSpot<M::Reply> {
        if !self.profile.in_place {
            return OnTheSpot::Nothing;
        }
        if call.is_some_and(|call| call.is_over()) {
            return OnTheSpot::Answer(Err(NoReply::Cancelled));
        }
        let Some(mut runner) = self.mailbox.claim(inside) else {
            return OnTheSpot::Nothing;
        };
        let answer = runner.body.alive().and_then(|(agent, cx)| {
            let handled = as_agent(|| {
                caught(|| {
                    if !(direct.ready)(agent, slot.as_ref()?) {
                        return None;
                    }
                    let message = slot.take()?;
                    cx.call = call.cloned();
                    Some((direct.handle)(agent, message, cx))
                })
            });
            cx.call = None;
            handled.transpose()
        });
        self.stats.add_handled(u32::from(answer.is_some()));
        self.give_back(runner, matches!(answer, Some(Err(_))).then_some(M::NAME));
        match answer {
            Some(answer) => OnTheSpot::Answer(answer.map_err(|_| NoReply::Panicked)),
            None => OnTheSpot::Nothing,
        }
    }

    /// Begins a concurrent handler on this thread, if the agent has nothing to do but wait for others of that kind.
    fn begin_in_place<M: Message>(
        &self,
        begin: &Begin<A, M>,
        lane: u16,
        slot: &mut Option<M>,
        call: Option<&Arc<CallMeta>>,
    ) -> OnTheSpot<M::Reply> {
        // A handler that waits needs timers and sockets, which a task outside a runtime hasn't got.
        if !self.profile.in_place_concurrent || tokio::runtime::Handle::try_current().is_err() {
            return OnTheSpot::Nothing;
        }
        if call.is_some_and(|call| call.is_over()) {
            return OnTheSpot::Answer(Err(NoReply::Cancelled));
        }
        let Some(mut runner) = self.mailbox.claim(inside) else {
            return OnTheSpot::Nothing;
        };
        let cell = runner.cell.clone();
        let free = cell.suspended(&runner.body, lane) < begin.in_flight_max;
        let begun = runner
            .body
            .alive()
            .filter(|_| free)
            .and_then(|(agent, cx)| {
                let begun = as_agent(|| {
                    caught(|| {
                        if !(begin.ready)(agent, slot.as_ref()?) {
                            return None;
                        }
                        let message = slot.take()?;
                        let (reply, answered) = reply_channel();
                        Some((
                            (begin.begin)(
                                agent,
                                cx,
                                &self.profile,
                                (message, Some(reply), call.cloned()),
                            ),
                            answered,
                        ))
                    })
                });
                begun.transpose()
            });
        self.stats.add_handled(u32::from(begun.is_some()));
        // Counted before the ticket is back: nobody else may begin one too many.
        let (spot, panicked) = match begun {
            Some(Ok((flight, answered))) => {
                (OnTheSpot::Begun(cell.set_out(lane, flight, answered)), None)
            }
            Some(Err(_)) => (OnTheSpot::Answer(Err(NoReply::Panicked)), Some(M::NAME)),
            None => (OnTheSpot::Nothing, None),
        };
        self.give_back(runner, panicked);
        spot
    }

    /// Ends what was done in place. `panicked`: the message that the agent panicked over; what follows is for the host.
    fn give_back(&self, mut runner: Box<Runner<A>>, panicked: Option<&'static str>) {
        let rest = match panicked {
            Some(message) => {
                runner.body.panicked = Some(message);
                Rest::More
            }
            None => Rest::Idle,
        };
        match self.mailbox.settle(0, rest, runner) {
            Some(runner) => self.host.run(runner),
            None => self.note_settled(),
        }
    }
}

fn short_type_name<A>() -> &'static str {
    let name = std::any::type_name::<A>();
    name.split('<')
        .next()
        .and_then(|n| n.rsplit("::").next())
        .unwrap_or(name)
}

/// An agent of any type.
pub(crate) trait AnyCell: Send + Sync {
    fn id(&self) -> AgentId;
    fn label(&self) -> Option<&Arc<str>>;
    fn system(&self) -> &System;
    fn handles(&self, message: TypeId) -> bool;
    /// Puts a message in the mailbox, if there is room.
    fn admit(&self, message: TypeId, push: Push<'_>) -> Pushed;
    /// Puts a message in the mailbox, or keeps a place in the line.
    fn wait(
        &self,
        message: TypeId,
        place: &mut Option<WaiterId>,
        waker: &Waker,
        push: Push<'_>,
    ) -> Pushed;
    /// Does an [`crate::agent::ops::Exchange`] in place, if it can.
    fn in_place(&self, message: TypeId, exchange: &mut dyn Any, call: Option<&Arc<CallMeta>>);
    fn forget(&self, place: WaiterId);
    /// A handler of `lane` that ran elsewhere does so no more.
    fn came_back(self: Arc<Self>, lane: u16);
    fn control(&self, control: Control);
    fn set_gate(&self, gate: Gate);
    fn depth_and_activity(&self) -> (u32, bool);
    /// Messages waiting and handlers suspended.
    fn load(&self) -> u32;
    fn recipient(self: Arc<Self>, message: TypeId) -> Option<Box<dyn Any>>;
    fn specs(&self) -> Vec<MessageSpec>;
    fn ask_named(
        self: Arc<Self>,
        named: Named,
        call: Option<Arc<CallMeta>>,
    ) -> BoxFuture<'static, RawReply>;
    fn snapshot(&self) -> AgentSnapshot;
    /// The runtime of its arbiter, once that runs.
    fn runtime(&self) -> Option<tokio::runtime::Handle>;
    /// Why it ended, once it has.
    fn exit(&self) -> Option<ExitReason>;
}

impl<A: Agent> AnyCell for Cell<A> {
    fn id(&self) -> AgentId {
        self.id
    }

    fn label(&self) -> Option<&Arc<str>> {
        self.label.as_ref()
    }

    fn system(&self) -> &System {
        &self.system
    }

    fn handles(&self, message: TypeId) -> bool {
        self.kind.types.contains(&message)
    }

    fn admit(&self, message: TypeId, push: Push<'_>) -> Pushed {
        match self.kind.lane(message) {
            Some(lane) => self.admit(|queue| push(queue, lane)),
            None => Pushed::NotHandled,
        }
    }

    fn wait(
        &self,
        message: TypeId,
        place: &mut Option<WaiterId>,
        waker: &Waker,
        push: Push<'_>,
    ) -> Pushed {
        match self.kind.lane(message) {
            Some(lane) => self.wait(place, waker, |queue| push(queue, lane)),
            None => Pushed::NotHandled,
        }
    }

    fn in_place(&self, message: TypeId, exchange: &mut dyn Any, call: Option<&Arc<CallMeta>>) {
        if let Some((lane, op)) = self.kind.find(message) {
            op.in_place(self, lane, exchange, call);
        }
    }

    fn forget(&self, place: WaiterId) {
        self.mailbox.forget(place);
        self.note_settled();
    }

    fn came_back(self: Arc<Self>, lane: u16) {
        Cell::came_back(&self, lane);
    }

    fn control(&self, control: Control) {
        if let Some(ticket) = self.mailbox.control(control) {
            self.host.run(ticket);
        }
    }

    fn set_gate(&self, gate: Gate) {
        self.mailbox.set_gate(gate);
    }

    fn depth_and_activity(&self) -> (u32, bool) {
        let (depth, active) = self.mailbox.depth_and_activity();
        (depth, active || self.in_flight() > 0)
    }

    fn load(&self) -> u32 {
        self.mailbox.depth_and_activity().0 + self.in_flight()
    }

    fn recipient(self: Arc<Self>, message: TypeId) -> Option<Box<dyn Any>> {
        let kind = self.kind.clone();
        let (lane, op) = kind.find(message)?;
        Some(op.recipient(self, lane))
    }

    fn specs(&self) -> Vec<MessageSpec> {
        self.kind.handlers.specs()
    }

    fn ask_named(
        self: Arc<Self>,
        named: Named,
        call: Option<Arc<CallMeta>>,
    ) -> BoxFuture<'static, RawReply> {
        let kind = self.kind.clone();
        let mut lanes = (0..).zip(&kind.handlers.ops);
        if let Some((lane, op)) = lanes.find(|(_, op)| op.name() == named.name && op.has_wire()) {
            return op.ask_named(self, lane, named.payload, call);
        }
        let agent = crate::handle::AgentRef(self);
        Box::pin(async move {
            if !agent.0.handles(TypeId::of::<Named>()) {
                return Err(Failure::not_found(format!(
                    "{agent} doesn't handle {}",
                    named.name
                )));
            }
            agent.ask(named).within_call(call).await?
        })
    }

    fn runtime(&self) -> Option<tokio::runtime::Handle> {
        self.host.runtime()
    }

    fn exit(&self) -> Option<ExitReason> {
        ExitReason::from_u8(self.stats.exit.load(SeqCst))
    }

    fn snapshot(&self) -> AgentSnapshot {
        AgentSnapshot {
            id: self.id,
            name: self.label.as_deref().map(str::to_owned),
            kind: short_type_name::<A>(),
            state: AgentState::from_u8(self.stats.state.load(Relaxed)),
            mailbox_depth: self.mailbox.depth_and_activity().0,
            mailbox_capacity: self.profile.mailbox_capacity,
            in_flight: self.in_flight(),
            handled: self.stats.handled.load(Relaxed),
            restarts: self.stats.restarts.load(Relaxed),
            last_error: self
                .stats
                .last_error
                .lock()
                .map(|message| format!("panicked in {message}")),
        }
    }
}
