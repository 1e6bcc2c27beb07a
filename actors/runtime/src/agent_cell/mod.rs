//! Agent cell: an agent's shared state around its mailbox. [`AnyAgentCell`] is the type-erased view
//! that an [`AgentRef`](crate::AgentRef) holds.

pub(crate) mod inline_handler;

use std::any::{Any, TypeId};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::{Duration, SystemTime};

use callboard_message::{Failure, FailureKind, Message, MessageSpec, RawMessage, RawReply};
use futures::future::BoxFuture;
use inline_handler::{InlineHandler, InlineHandlers};
use tokio::sync::oneshot;

use crate::agent::ops::{ConcurrentEntry, HandlerOp, InlineEntry, SyncEntry};
use crate::agent::{Agent, AgentId, AgentProfile, AgentSnapshot, AgentState, Handlers};
use crate::call::CallContext;
use crate::mailbox::agent_slot::{RunToken, catch_panic};
use crate::mailbox::lane::{MessageQueue, NoReplyReason, reply_channel};
use crate::mailbox::queue::{Gate, Mailbox, PushResult, TurnOutcome, WaiterId};
use crate::mailbox::scheduler::{Scheduler, is_agent_code, run_as_agent};
use crate::node_events::{AgentEvent, NodeEvent};
use crate::shares::PrincipalShares;
use crate::sync::Mutex;
use crate::system::System;
use crate::system::supervision::{ExitReason, Supervisor};

/// Control messages of an agent, handled before the messages in its mailbox.
pub(crate) enum Control {
    /// End the agent at once; the messages in its mailbox become dead letters.
    Kill(ExitReason),
    /// End the agent after the messages in its mailbox.
    Drain,
    /// Restart the agent after this delay, because another member of its supervisor's group failed.
    Restart(Duration),
    Unstash,
    Observe(oneshot::Sender<serde_json::Value>),
    Terminated(AgentId, ExitReason),
    /// A handler that ran in a caller's task panicked.
    Panicked,
    /// Continue a handler on the arbiter because its caller has dropped it: the lane of its message
    /// type, and its future.
    Adopt(u16, BoxFuture<'static, bool>),
}

/// Result of an attempt to handle a message in the caller's task.
pub(crate) enum InlineResult<R> {
    /// Not possible now: the message has to be queued.
    NotRun,
    Answer(Result<R, NoReplyReason>),
    /// The handler has started; the caller has to poll it.
    Started(InlineHandler<R>),
}

/// Result of an attempt to put a message in the mailbox. `Full` holds the capacity in messages.
pub(crate) enum SendStatus {
    Queued,
    Full(u32),
    Waiting,
    Closed,
    NotHandled,
}

/// Callback that moves a message into the queue. The number is the lane, the index of the message
/// type.
type PushFn<'a> = &'a mut dyn FnMut(&mut MessageQueue, u16);

/// Handlers and default profile shared by all agents of one type.
pub(crate) struct AgentType<A: Agent> {
    pub(crate) handlers: Handlers<A>,
    types: Vec<TypeId>,
    pub(crate) profile: Arc<AgentProfile>,
}

impl<A: Agent> AgentType<A> {
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

    fn find(&self, message: TypeId) -> Option<(u16, &dyn HandlerOp<A>)> {
        let lane = self.lane(message)?;
        Some((lane, &*self.handlers.ops[usize::from(lane)]))
    }

    /// Returns the handler of messages that are sent as JSON under this name, and its lane.
    fn find_named(&self, name: &str) -> Option<(u16, &dyn HandlerOp<A>)> {
        let mut lanes = (0..).zip(&self.handlers.ops);
        let (lane, op) = lanes.find(|(_, op)| op.name() == name && op.has_codec())?;
        Some((lane, &**op))
    }
}

pub(crate) type Factory<A> = Arc<dyn Fn() -> A + Send + Sync>;

/// Counters for [`AgentSnapshot`].
#[derive(Default)]
pub(crate) struct AgentStats {
    /// Number of messages started. Written only by the holder of the run token.
    handled: AtomicU64,
    pub(crate) restarts: AtomicU32,
    pub(crate) in_flight: AtomicU32,
    pub(crate) state: AtomicU8,
    /// Name of the message whose handler panicked last.
    pub(crate) last_error: Mutex<Option<&'static str>>,
    /// [`ExitReason`] as a number; 0 while the agent is alive.
    pub(crate) exit: AtomicU8,
}

impl AgentStats {
    pub(crate) fn add_handled(&self, count: u32) {
        self.handled
            .store(self.handled.load(Relaxed) + u64::from(count), Relaxed);
    }
}

pub(crate) struct AgentCell<A: Agent> {
    pub(crate) id: AgentId,
    pub(crate) label: Option<Arc<str>>,
    pub(crate) system: System,
    pub(crate) host: Arc<Scheduler>,
    pub(crate) agent_type: Arc<AgentType<A>>,
    pub(crate) profile: Arc<AgentProfile>,
    pub(crate) factory: Option<Factory<A>>,
    pub(crate) supervisor: Option<Supervisor>,
    /// Only the holder of the mailbox's run token may touch the agent.
    pub(crate) mailbox: Mailbox<MessageQueue, Box<RunToken<A>>, Control>,
    pub(crate) stats: AgentStats,
    /// Bookkeeping of handlers that run in callers' tasks. Created with the first of them.
    pub(crate) inline_handlers: OnceLock<Box<InlineHandlers>>,
    /// Handlers as shared by principals, by lane. Created with the first message of each.
    pub(crate) handler_shares: OnceLock<Box<[OnceLock<Arc<PrincipalShares>>]>>,
}

impl<A: Agent> AgentCell<A> {
    /// Tells readers of events about this agent.
    pub(crate) fn emit_event(&self, event: &str) {
        self.system.node_events().emit(|| NodeEvent::Agent {
            at: SystemTime::now(),
            event: Box::new(AgentEvent {
                name: self.label.as_deref().unwrap_or_default().into(),
                kind: short_type_name::<A>(),
                event: event.into(),
            }),
        });
    }

    /// Calls `push` to queue a message if the mailbox has room.
    #[inline]
    pub(crate) fn admit(&self, push: impl FnOnce(&mut MessageQueue)) -> SendStatus {
        self.send_status(self.mailbox.admit(is_agent_code, push))
    }

    /// Calls `push` to queue a message if the mailbox has room. Otherwise adds the sender to the
    /// waiting senders.
    pub(crate) fn wait(
        &self,
        place: &mut Option<WaiterId>,
        waker: &Waker,
        push: impl FnOnce(&mut MessageQueue),
    ) -> SendStatus {
        let admitted = self
            .mailbox
            .admit_or_wait(is_agent_code, *place, waker, push);
        *place = if let PushResult::Waiting(id) = admitted {
            Some(id)
        } else {
            None
        };
        if let PushResult::Closed = admitted {
            // A room reserved for this sender counted as work.
            self.note_settled();
        }
        self.send_status(admitted)
    }

    /// Returns the number of suspended handlers, both on the agent's arbiter and in callers' tasks.
    pub(crate) fn in_flight(&self) -> u32 {
        self.stats.in_flight.load(Relaxed) + self.inline_count()
    }

    /// Notifies the system that this agent may have become idle. Does nothing unless the system is
    /// shutting down.
    #[inline]
    pub(crate) fn note_settled(&self) {
        if self.system.is_draining() {
            self.system.note_settled();
        }
    }

    #[inline]
    fn send_status(&self, admitted: PushResult<Box<RunToken<A>>>) -> SendStatus {
        match admitted {
            PushResult::Queued(None) => SendStatus::Queued,
            PushResult::Queued(Some(ticket)) => {
                self.host.run(ticket);
                SendStatus::Queued
            }
            PushResult::Full => SendStatus::Full(self.profile.mailbox_capacity),
            PushResult::Waiting(_) => SendStatus::Waiting,
            PushResult::Closed => SendStatus::Closed,
        }
    }

    /// Handles a message in the caller's task, or starts its handler there, if the agent is idle.
    #[inline]
    pub(crate) fn run_inline<M: Message>(
        &self,
        shortcut: &InlineEntry<A, M>,
        lane: u16,
        slot: &mut Option<M>,
        call: Option<&Arc<CallContext>>,
    ) -> InlineResult<M::Reply> {
        match shortcut {
            InlineEntry::None => InlineResult::NotRun,
            InlineEntry::Sync(direct) => self.in_place(direct, slot, call),
            InlineEntry::Concurrent(begin) => self.begin_in_place(begin, lane, slot, call),
        }
    }

    /// Runs a synchronous handler on the calling thread if the agent is idle.
    fn in_place<M: Message>(
        &self,
        direct: &SyncEntry<A, M>,
        slot: &mut Option<M>,
        call: Option<&Arc<CallContext>>,
    ) -> InlineResult<M::Reply> {
        if !self.profile.inline_sync {
            return InlineResult::NotRun;
        }
        if call.is_some_and(|call| call.is_over()) {
            return InlineResult::Answer(Err(NoReplyReason::Cancelled));
        }
        let Some(mut runner) = self.mailbox.claim(is_agent_code) else {
            return InlineResult::NotRun;
        };
        let answer = runner.slot.agent_and_context().and_then(|(agent, cx)| {
            let handled = run_as_agent(|| {
                catch_panic(|| {
                    if !(direct.ready)(agent, slot.as_ref()?) {
                        return None;
                    }
                    let message = slot.take()?;
                    cx.enter_call(call.cloned(), M::NAME);
                    Some((direct.handle)(agent, message, cx))
                })
            });
            cx.leave_call(match &handled {
                Ok(_) => None,
                Err(_) => Some(FailureKind::Internal),
            });
            handled.transpose()
        });
        self.stats.add_handled(u32::from(answer.is_some()));
        self.finish_in_place(runner, matches!(answer, Some(Err(_))).then_some(M::NAME));
        match answer {
            Some(answer) => InlineResult::Answer(answer.map_err(|_| NoReplyReason::Panicked)),
            None => InlineResult::NotRun,
        }
    }

    /// Starts a concurrent handler on the calling thread if the agent is idle apart from other
    /// concurrent handlers.
    fn begin_in_place<M: Message>(
        &self,
        begin: &ConcurrentEntry<A, M>,
        lane: u16,
        slot: &mut Option<M>,
        call: Option<&Arc<CallContext>>,
    ) -> InlineResult<M::Reply> {
        if !self.profile.inline_concurrent {
            return InlineResult::NotRun;
        }
        // A suspended handler needs timers and sockets, hence a tokio runtime.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return InlineResult::NotRun;
        };
        if call.is_some_and(|call| call.is_over()) {
            return InlineResult::Answer(Err(NoReplyReason::Cancelled));
        }
        let Some(mut runner) = self.mailbox.claim(is_agent_code) else {
            return InlineResult::NotRun;
        };
        let cell = runner.cell.clone();
        let free = cell.suspended_count(&runner.slot, lane) < begin.in_flight_max;
        let begun = runner
            .slot
            .agent_and_context()
            .filter(|_| free)
            .and_then(|(agent, cx)| {
                let begun = run_as_agent(|| {
                    catch_panic(|| {
                        if !(begin.ready)(agent, slot.as_ref()?) {
                            return None;
                        }
                        let message = slot.take()?;
                        let (reply, answered) = reply_channel();
                        let permit = call.and_then(|call| call.handler.hold());
                        let wanted = (message, Some(reply), call.cloned(), permit);
                        Some(((begin.begin)(agent, cx, &self.profile, wanted), answered))
                    })
                });
                begun.transpose()
            });
        self.stats.add_handled(u32::from(begun.is_some()));
        // Counted before the token is returned, so that no other caller exceeds the limit.
        let (spot, panicked) = match begun {
            Some(Ok((flight, answered))) => (
                InlineResult::Started(cell.start_inline(lane, runtime, flight, answered)),
                None,
            ),
            Some(Err(_)) => (
                InlineResult::Answer(Err(NoReplyReason::Panicked)),
                Some(M::NAME),
            ),
            None => (InlineResult::NotRun, None),
        };
        self.finish_in_place(runner, panicked);
        spot
    }

    /// Gives the run token back after a handler has run in the caller's task. `panicked` names the
    /// message whose handler panicked; the agent is then scheduled for a restart.
    fn finish_in_place(&self, mut runner: Box<RunToken<A>>, panicked: Option<&'static str>) {
        let rest = match panicked {
            Some(message) => {
                runner.slot.panicked = Some(message);
                TurnOutcome::More
            }
            None => TurnOutcome::Idle,
        };
        match self.mailbox.settle(0, rest, runner) {
            Some(runner) => self.host.run(runner),
            None => self.note_settled(),
        }
    }
}

/// Returns the name of a type without path and type parameters.
pub(crate) fn short_type_name<T>() -> &'static str {
    let name = std::any::type_name::<T>();
    name.split('<')
        .next()
        .and_then(|n| n.rsplit("::").next())
        .unwrap_or(name)
}

/// Interface of an agent cell that hides the agent's type. Agent handles hold it.
pub(crate) trait AnyAgentCell: Send + Sync {
    fn id(&self) -> AgentId;
    fn label(&self) -> Option<&Arc<str>>;
    /// Returns the name of the agent's type, without path and type parameters.
    fn type_name(&self) -> &'static str;
    fn system(&self) -> &System;
    fn handles(&self, message: TypeId) -> bool;
    /// Returns the names of the messages that the agent's type has registered.
    fn message_names(&self) -> Vec<&'static str>;
    /// Calls `push` to queue a message of this type if the mailbox has room.
    fn admit(&self, message: TypeId, push: PushFn<'_>) -> SendStatus;
    /// Calls `push` to queue a message of this type if the mailbox has room. Otherwise adds the
    /// sender to the waiting senders.
    fn wait(
        &self,
        message: TypeId,
        place: &mut Option<WaiterId>,
        waker: &Waker,
        push: PushFn<'_>,
    ) -> SendStatus;
    /// Handles an [`crate::agent::ops::InlineRequest`] in the caller's task, or starts its handler
    /// there, if the agent is idle.
    fn in_place(&self, message: TypeId, exchange: &mut dyn Any, call: Option<&Arc<CallContext>>);
    fn forget(&self, place: WaiterId);
    /// Records that an inline handler of `lane` has ended.
    fn inline_ended(self: Arc<Self>, lane: u16);
    fn control(&self, control: Control);
    fn set_gate(&self, gate: Gate);
    fn depth_and_activity(&self) -> (u32, bool);
    /// Returns the agent's load: the number of waiting messages plus suspended handlers.
    fn load(&self) -> u32;
    fn recipient(self: Arc<Self>, message: TypeId) -> Option<Box<dyn Any>>;
    fn specs(&self) -> Vec<MessageSpec>;
    fn ask_named(
        self: Arc<Self>,
        named: RawMessage,
        call: Option<Arc<CallContext>>,
    ) -> BoxFuture<'static, RawReply>;
    /// Returns the handlers of a message as shared by principals; `None` if there is no share, or
    /// the handlers aren't concurrent.
    fn handler_shares(&self, message: &str) -> Option<&Arc<PrincipalShares>>;
    /// Returns whether the agent checks rights itself.
    fn authorizes_itself(&self) -> bool;
    fn snapshot(&self) -> AgentSnapshot;
    /// Returns the tokio runtime of the agent's arbiter; `None` until the arbiter has started.
    fn runtime(&self) -> Option<tokio::runtime::Handle>;
    /// Returns the reason for which the agent ended; `None` while it is alive.
    fn exit(&self) -> Option<ExitReason>;
}

impl<A: Agent> AnyAgentCell for AgentCell<A> {
    fn id(&self) -> AgentId {
        self.id
    }

    fn label(&self) -> Option<&Arc<str>> {
        self.label.as_ref()
    }

    fn type_name(&self) -> &'static str {
        short_type_name::<A>()
    }

    fn system(&self) -> &System {
        &self.system
    }

    fn handles(&self, message: TypeId) -> bool {
        self.agent_type.types.contains(&message)
    }

    fn message_names(&self) -> Vec<&'static str> {
        let handlers = self.agent_type.handlers.ops.iter();
        handlers.map(|op| op.name()).collect()
    }

    fn admit(&self, message: TypeId, push: PushFn<'_>) -> SendStatus {
        match self.agent_type.lane(message) {
            Some(lane) => self.admit(|queue| push(queue, lane)),
            None => SendStatus::NotHandled,
        }
    }

    fn wait(
        &self,
        message: TypeId,
        place: &mut Option<WaiterId>,
        waker: &Waker,
        push: PushFn<'_>,
    ) -> SendStatus {
        match self.agent_type.lane(message) {
            Some(lane) => self.wait(place, waker, |queue| push(queue, lane)),
            None => SendStatus::NotHandled,
        }
    }

    fn in_place(&self, message: TypeId, exchange: &mut dyn Any, call: Option<&Arc<CallContext>>) {
        if let Some((lane, op)) = self.agent_type.find(message) {
            op.in_place(self, lane, exchange, call);
        }
    }

    fn forget(&self, place: WaiterId) {
        self.mailbox.forget(place);
        self.note_settled();
    }

    fn inline_ended(self: Arc<Self>, lane: u16) {
        AgentCell::inline_ended(&self, lane);
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
        let kind = self.agent_type.clone();
        let (lane, op) = kind.find(message)?;
        Some(op.recipient(self, lane))
    }

    fn specs(&self) -> Vec<MessageSpec> {
        self.agent_type.handlers.specs()
    }

    fn ask_named(
        self: Arc<Self>,
        named: RawMessage,
        call: Option<Arc<CallContext>>,
    ) -> BoxFuture<'static, RawReply> {
        let kind = self.agent_type.clone();
        if let Some((lane, op)) = kind.find_named(&named.name) {
            return op.ask_named(self, lane, named.payload, call);
        }
        let agent = crate::handle::AgentRef(self);
        Box::pin(async move {
            if !agent.0.handles(TypeId::of::<RawMessage>()) {
                return Err(Failure::not_found(format!(
                    "{agent} has no handler for {}: send one of the messages that it describes",
                    named.name
                )));
            }
            agent.ask(named).within_call(call).await?
        })
    }

    fn authorizes_itself(&self) -> bool {
        self.profile.authorizes_itself
    }

    fn handler_shares(&self, message: &str) -> Option<&Arc<PrincipalShares>> {
        let AgentProfile {
            principal_share_percent,
            mailbox_capacity,
            ..
        } = *self.profile;
        if principal_share_percent >= 100 {
            return None;
        }
        let kind = &self.agent_type;
        let fallback = || kind.find(TypeId::of::<RawMessage>());
        let (lane, op) = kind.find_named(message).or_else(fallback)?;
        let max = op.in_flight_max()? as usize;
        let lanes = self
            .handler_shares
            .get_or_init(|| kind.types.iter().map(|_| OnceLock::new()).collect());
        let shares = lanes.get(usize::from(lane))?;
        Some(shares.get_or_init(|| {
            let waiters_max = mailbox_capacity as usize;
            PrincipalShares::with_queue(max, principal_share_percent, waiters_max)
        }))
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
            name: self.label.clone(),
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
