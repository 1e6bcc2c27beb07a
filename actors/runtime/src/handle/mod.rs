//! Handles to agents, and the paths of messages through them into mailboxes.

pub(crate) mod ask;
pub(crate) mod pool;

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use ask::{Ask, Call, Tell};
use callboard_message::{Failure, FailureKind, Message, MessageSpec, RawMessage, RawReply};
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use crate::agent::ops::{InlineEntry, InlineRequest};
use crate::agent::{Agent, AgentId, AgentSnapshot};
use crate::agent_cell::{
    AgentCell, AnyAgentCell, Control, InlineResult, SendStatus, short_type_name,
};
use crate::call::CallContext;
use crate::mailbox::lane::{Envelope, MessageQueue};
use crate::mailbox::queue::WaiterId;
use crate::system::System;
use crate::system::supervision::ExitReason;

/// Handle to an agent. Cheap to clone and `Send`. The agent may be local, or a proxy for a remote
/// peer, a language model or a person.
#[derive(Clone, derive_more::Debug)]
#[debug("AgentRef({self})")]
pub struct AgentRef(pub(crate) Arc<dyn AnyAgentCell>);

/// Handle to an agent for one message type. Whether the agent handles that type is checked once, so
/// sending is cheaper than with an [`AgentRef`].
#[derive(derive_more::Debug)]
#[debug("Recipient<{}>({})", M::NAME, self.id())]
pub struct Recipient<M: Message>(Arc<dyn DynMessageRoute<M>>);

/// Destination for messages of type `M`: an [`AgentRef`] or a [`Recipient`]. Sealed: other crates
/// can't implement it.
pub trait Target<M: Message>: sealed::Target<M> {}

impl<M: Message> Target<M> for AgentRef {}
impl<M: Message> Target<M> for Recipient<M> {}
impl<M: Message> Target<M> for &dyn DynMessageRoute<M> {}

pub(crate) mod sealed {
    use super::*;

    pub trait Target<M: Message> {
        #[doc(hidden)]
        fn admit(&self, source: &mut impl EnvelopeSource<M>) -> SendStatus;
        #[doc(hidden)]
        fn wait(
            &self,
            source: &mut impl EnvelopeSource<M>,
            place: &mut Option<WaiterId>,
            waker: &Waker,
        ) -> SendStatus;
        #[doc(hidden)]
        fn in_place(
            &self,
            slot: &mut Option<M>,
            call: Option<&Arc<CallContext>>,
        ) -> InlineResult<M::Reply>;
        #[doc(hidden)]
        fn forget(&self, place: WaiterId);
        #[doc(hidden)]
        fn cell(&self) -> &dyn AnyAgentCell;
        /// Returns the target's agent if it is a proxy, which accepts any message as JSON; `None`
        /// otherwise.
        #[doc(hidden)]
        fn as_proxy(&self) -> Option<AgentRef>;
    }
}

impl<M: Message> sealed::Target<M> for AgentRef {
    fn admit(&self, source: &mut impl EnvelopeSource<M>) -> SendStatus {
        self.0.admit(TypeId::of::<M>(), &mut |queue, lane| {
            source.put(queue, lane)
        })
    }

    fn wait(
        &self,
        source: &mut impl EnvelopeSource<M>,
        place: &mut Option<WaiterId>,
        waker: &Waker,
    ) -> SendStatus {
        self.0
            .wait(TypeId::of::<M>(), place, waker, &mut |queue, lane| {
                source.put(queue, lane)
            })
    }

    fn in_place(
        &self,
        slot: &mut Option<M>,
        call: Option<&Arc<CallContext>>,
    ) -> InlineResult<M::Reply> {
        let mut exchange = InlineRequest {
            message: slot.take(),
            result: InlineResult::NotRun,
        };
        self.0.in_place(TypeId::of::<M>(), &mut exchange, call);
        *slot = exchange.message;
        exchange.result
    }

    fn forget(&self, place: WaiterId) {
        self.0.forget(place);
    }

    fn cell(&self) -> &dyn AnyAgentCell {
        &*self.0
    }

    fn as_proxy(&self) -> Option<AgentRef> {
        self.0
            .handles(TypeId::of::<RawMessage>())
            .then(|| self.clone())
    }
}

impl<M: Message> sealed::Target<M> for Recipient<M> {
    fn admit(&self, source: &mut impl EnvelopeSource<M>) -> SendStatus {
        self.0.admit(source)
    }

    fn wait(
        &self,
        source: &mut impl EnvelopeSource<M>,
        place: &mut Option<WaiterId>,
        waker: &Waker,
    ) -> SendStatus {
        self.0.wait(source, place, waker)
    }

    fn in_place(
        &self,
        slot: &mut Option<M>,
        call: Option<&Arc<CallContext>>,
    ) -> InlineResult<M::Reply> {
        self.0.in_place(slot, call)
    }

    fn forget(&self, place: WaiterId) {
        self.0.cell().forget(place);
    }

    fn cell(&self) -> &dyn AnyAgentCell {
        self.0.cell()
    }

    fn as_proxy(&self) -> Option<AgentRef> {
        None
    }
}

macro_rules! sending_methods {
    ($($m:ident)?) => {
        /// Sends `message`, waiting for room in the mailbox but not for the handler. Waiting
        /// senders are served in order.
        ///
        /// # Errors
        /// [`SendError::Closed`] or [`SendError::NotHandled`], which return the message;
        /// [`SendError::Failed`] if it can't be encoded as JSON for a proxy.
        pub fn tell$(<$m: Message>)?(&self, message: M) -> Tell<'_, M, Self> {
            Tell::new(self, message)
        }

        /// Sends `message` without waiting for room in the mailbox.
        ///
        /// # Errors
        /// [`SendError::Full`], [`SendError::Closed`] or [`SendError::NotHandled`], which return
        /// the message; [`SendError::Failed`] if it can't be encoded as JSON for a proxy.
        pub fn try_tell$(<$m: Message>)?(&self, message: M) -> Result<(), SendError<M>> {
            crate::handle::ask::try_tell(self, message)
        }

        /// Sends `message` and resolves to its reply. Waits for room (unless
        /// [`Ask::without_waiting`]) and for the reply, without a time limit (unless
        /// [`Ask::within`]). Dropping the future cancels the handler.
        ///
        /// # Errors
        /// Any [`SendError`].
        pub fn ask$(<$m: Message>)?(&self, message: M) -> Ask<'_, M, Self> {
            Ask::new(self, message)
        }
    };
}

impl AgentRef {
    sending_methods!(M);

    /// Prepares a call with `message`. Unlike [`AgentRef::ask`], it lets the caller follow progress
    /// and answer questions.
    pub fn call<M: Message>(&self, message: M) -> Call<M> {
        Call::new(self.clone(), message)
    }

    /// Sends a message by name with a JSON payload and resolves to the JSON reply. The entry point
    /// for all protocols. `call` carries principal and deadline.
    ///
    /// # Errors
    /// `NotFound` if the agent has no such message, `InvalidInput` if the payload doesn't match its
    /// schema, otherwise the failure of the agent or of the delivery.
    pub async fn ask_named(
        &self,
        name: impl Into<String>,
        payload: Box<RawValue>,
        call: Option<Arc<CallContext>>,
    ) -> RawReply {
        self.0
            .clone()
            .ask_named(
                RawMessage {
                    name: name.into(),
                    payload,
                },
                call,
            )
            .await
    }

    /// Returns a handle for one message type; `None` if the agent has no handler for it.
    pub fn recipient<M: Message>(&self) -> Option<Recipient<M>> {
        self.0
            .clone()
            .recipient(TypeId::of::<M>())?
            .downcast()
            .ok()
            .map(|r| *r)
    }

    /// Returns the messages that the agent accepts from outside the process, with their schemas.
    pub fn specs(&self) -> Vec<MessageSpec> {
        self.0.specs()
    }

    /// Returns true if the agent accepts any message by name ([`crate::Handlers::fallback`]), as
    /// proxies of remote peers do.
    pub fn is_proxy(&self) -> bool {
        self.0.handles(TypeId::of::<RawMessage>())
    }

    /// Returns true if the agent checks rights itself
    /// ([`AgentProfile::authorizes_itself`](crate::AgentProfile::authorizes_itself)).
    pub fn authorizes_itself(&self) -> bool {
        self.0.authorizes_itself()
    }

    /// Returns the agent's id in its system.
    pub fn id(&self) -> AgentId {
        self.0.id()
    }

    /// Returns the agent's name for display ([`crate::SpawnBuilder::label`]); `None` if it has
    /// none.
    pub fn name(&self) -> Option<&str> {
        self.0.label().map(|label| &**label)
    }

    /// Returns the system that the agent runs in.
    pub fn system(&self) -> &System {
        self.0.system()
    }

    /// Returns the agent's lifecycle state, mailbox depth and counters, for display and metrics.
    pub fn snapshot(&self) -> AgentSnapshot {
        self.0.snapshot()
    }

    /// Returns the state that the agent shows of itself ([`crate::Agent::observe`]) as JSON. The
    /// request is handled before queued messages. Returns `null` while a handler has the agent's
    /// state, or after the agent's end.
    pub async fn observe(&self) -> serde_json::Value {
        let (reply, seen) = oneshot::channel();
        self.control(Control::Observe(reply));
        seen.await.unwrap_or_default()
    }

    /// Stops the agent once it has handled the messages in its mailbox. New messages are rejected
    /// as soon as the agent has seen the request, which a running synchronous handler delays.
    pub fn stop(&self) {
        self.control(Control::Drain);
    }

    /// Stops the agent without waiting for its handlers or messages. Running handlers are dropped
    /// at an await, and queued messages become dead letters. A synchronous handler delays the end.
    pub fn kill(&self) {
        self.control(Control::Kill(ExitReason::Killed));
    }

    /// Waits until the agent has ended and returns the reason; immediately if it has already ended.
    pub async fn wait_for_exit(&self) -> ExitReason {
        self.system().wait_for_exit(self).await
    }

    pub(crate) fn control(&self, control: Control) {
        self.0.control(control);
    }
}

impl<M: Message> Recipient<M> {
    sending_methods!();

    pub(crate) fn new(accept: Arc<dyn DynMessageRoute<M>>) -> Self {
        Self(accept)
    }

    /// Returns the agent's id in its system.
    pub fn id(&self) -> AgentId {
        self.0.cell().id()
    }
}

impl<M: Message> Clone for Recipient<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl PartialEq for AgentRef {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for AgentRef {}

impl fmt::Display for AgentRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => self.id().fmt(f),
        }
    }
}

/// Source of a queued message's envelope, which is moved into the mailbox's queue once there is
/// room.
pub trait EnvelopeSource<M: Message> {
    #[doc(hidden)]
    fn put(&mut self, queue: &mut MessageQueue, lane: u16);
}

impl<M: Message> EnvelopeSource<M> for Option<Envelope<M>> {
    #[inline]
    fn put(&mut self, queue: &mut MessageQueue, lane: u16) {
        if let Some(envelope) = self.take() {
            queue.push(lane, envelope);
        }
    }
}

/// Source of an envelope for a tell: a message without reply channel and call.
pub(crate) struct TellEnvelope<'a, M>(pub(crate) &'a mut Option<M>);

impl<M: Message> EnvelopeSource<M> for TellEnvelope<'_, M> {
    #[inline]
    fn put(&mut self, queue: &mut MessageQueue, lane: u16) {
        if let Some(message) = self.0.take() {
            queue.push(
                lane,
                Envelope {
                    message,
                    reply: None,
                    call: None,
                },
            );
        }
    }
}

/// Route to one agent for one message type, with the index of its handler.
pub(crate) struct MessageRoute<A: Agent, M: Message> {
    pub(crate) cell: Arc<AgentCell<A>>,
    pub(crate) lane: u16,
    pub(crate) shortcut: InlineEntry<A, M>,
}

/// Interface of a [`MessageRoute`] that hides the agent's type.
pub(crate) trait DynMessageRoute<M: Message>: Send + Sync {
    fn admit(&self, source: &mut dyn EnvelopeSource<M>) -> SendStatus;
    fn wait(
        &self,
        source: &mut dyn EnvelopeSource<M>,
        place: &mut Option<WaiterId>,
        waker: &Waker,
    ) -> SendStatus;
    fn in_place(
        &self,
        slot: &mut Option<M>,
        call: Option<&Arc<CallContext>>,
    ) -> InlineResult<M::Reply>;
    fn cell(&self) -> &dyn AnyAgentCell;
}

impl<A: Agent, M: Message> DynMessageRoute<M> for MessageRoute<A, M> {
    fn admit(&self, source: &mut dyn EnvelopeSource<M>) -> SendStatus {
        self.cell.admit(|queue| source.put(queue, self.lane))
    }

    fn wait(
        &self,
        source: &mut dyn EnvelopeSource<M>,
        place: &mut Option<WaiterId>,
        waker: &Waker,
    ) -> SendStatus {
        self.cell
            .wait(place, waker, |queue| source.put(queue, self.lane))
    }

    fn in_place(
        &self,
        slot: &mut Option<M>,
        call: Option<&Arc<CallContext>>,
    ) -> InlineResult<M::Reply> {
        self.cell.run_inline(&self.shortcut, self.lane, slot, call)
    }

    fn cell(&self) -> &dyn AnyAgentCell {
        &*self.cell
    }
}

// For an ask that already has the route and needs no handle.
impl<M: Message> sealed::Target<M> for &dyn DynMessageRoute<M> {
    fn admit(&self, source: &mut impl EnvelopeSource<M>) -> SendStatus {
        (**self).admit(source)
    }

    fn wait(
        &self,
        source: &mut impl EnvelopeSource<M>,
        place: &mut Option<WaiterId>,
        waker: &Waker,
    ) -> SendStatus {
        (**self).wait(source, place, waker)
    }

    fn in_place(
        &self,
        slot: &mut Option<M>,
        call: Option<&Arc<CallContext>>,
    ) -> InlineResult<M::Reply> {
        (**self).in_place(slot, call)
    }

    fn forget(&self, place: WaiterId) {
        (**self).cell().forget(place);
    }

    fn cell(&self) -> &dyn AnyAgentCell {
        (**self).cell()
    }

    fn as_proxy(&self) -> Option<AgentRef> {
        None
    }
}

/// Error of sending a message: it wasn't accepted, or got no reply.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum SendError<M> {
    /// The mailbox is full; the message is returned. Retry later, or wait for room with `tell`.
    #[error("the agent's mailbox is full ({capacity} messages): try again later")]
    Full {
        /// The message, unchanged.
        message: M,
        /// Capacity of the mailbox, in messages.
        capacity: u32,
    },
    /// The agent has ended or its system is stopping; the message is returned.
    #[error("the agent has ended, or its system is stopping: the log tells why")]
    Closed {
        /// The message, unchanged.
        message: M,
    },
    /// The agent has no handler for this type, or hasn't registered it; the message is returned.
    #[error(
        "agent {agent} has no handler for {name}: if it implements one, add `on.sync::<{message_type}>()`, or `exclusive` or `concurrent`, to its `handlers`; otherwise send one of the messages that it describes",
        message_type = short_type_name::<M>()
    )]
    NotHandled {
        /// The message, unchanged.
        message: M,
        /// Name and type of the agent; in debug builds also the messages that it has registered.
        agent: String,
        /// Name of the message.
        name: &'static str,
    },
    /// The message was accepted, but the agent ended before it replied. A message that still waited
    /// had no effect; a handler that was running was dropped at an await.
    #[error("the agent ended before it replied; whether it acted is unknown")]
    Stopped,
    /// The deadline passed. Holds the time since the ask began. Whether the message took effect is
    /// unknown.
    #[error("the agent sent no reply in {0:?}; whether it acted is unknown")]
    TimedOut(Duration),
    /// The call was cancelled; whether the message took effect is unknown.
    #[error("the call was cancelled; whether the agent acted is unknown")]
    Cancelled,
    /// The handler panicked, which is a bug in the agent. If the agent restarts, it continues with
    /// the next message.
    #[error("the agent's handler panicked: this is a bug in the agent, report it")]
    Panicked,
    /// The agent wasn't ready for the message and its stash is full. Retry later.
    #[error("the agent isn't ready, and its stash of waiting messages is full: try again later")]
    StashFull,
    /// The call passed through more agents than allowed, probably in a loop.
    #[error("the call passed through more than {hops_max} agents: look for a loop")]
    TooManyHops {
        /// Maximum number of agents that the call may pass through.
        hops_max: u16,
    },
    /// A remote agent answered with a failure, or the message couldn't be encoded or decoded as
    /// JSON.
    #[error("{0}")]
    Failed(Failure),
}

impl<M> SendError<M> {
    /// Returns the protocol-independent kind of failure.
    pub fn kind(&self) -> FailureKind {
        match self {
            Self::Full { .. } | Self::StashFull => FailureKind::Overloaded,
            Self::Closed { .. } | Self::Stopped => FailureKind::Unavailable,
            Self::NotHandled { .. } => FailureKind::NotFound,
            Self::TimedOut(_) => FailureKind::TimedOut,
            Self::Cancelled => FailureKind::Cancelled,
            Self::Panicked => FailureKind::Internal,
            Self::TooManyHops { .. } => FailureKind::Rejected,
            Self::Failed(failure) => failure.kind,
        }
    }
}

impl<M> fmt::Debug for SendError<M> {
    // Never prints the message, which may hold patient data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendError({self})")
    }
}

impl<M: Message> From<SendError<M>> for Failure {
    fn from(error: SendError<M>) -> Self {
        match error {
            SendError::Failed(failure) => failure,
            // Peers get no names of Rust types.
            SendError::NotHandled { name, .. } => {
                Failure::not_found(format!("the agent has no handler for {name}"))
            }
            other => Failure::new(other.kind(), other.to_string()),
        }
    }
}
