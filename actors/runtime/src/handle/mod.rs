//! Handles to agents, and the ways that messages take through them into mailboxes.

pub(crate) mod ask;
pub(crate) mod pool;

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use ask::{Ask, Call, Tell};
use callboard_message::{Failure, FailureKind, Message, MessageSpec, Named, RawReply};
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use crate::agent::ops::{Exchange, Shortcut};
use crate::agent::{Agent, AgentId, AgentSnapshot};
use crate::call::CallMeta;
use crate::cell::{AnyCell, Cell, Control, OnTheSpot, Pushed};
use crate::mailbox::lane::{Envelope, Queue};
use crate::mailbox::queue::WaiterId;
use crate::system::System;
use crate::system::supervision::ExitReason;

/// A handle to an agent. Cheap to clone, `Send`, and it never says where the agent is: in this process, behind a protocol,
/// a model, a person.
#[derive(Clone, derive_more::Debug)]
#[debug("AgentRef({self})")]
pub struct AgentRef(pub(crate) Arc<dyn AnyCell>);

/// A handle to an agent for one message type: checked once, then the shortest way in.
#[derive(derive_more::Debug)]
#[debug("Recipient<{}>({})", M::NAME, self.id())]
pub struct Recipient<M: Message>(Arc<dyn Accept<M>>);

/// Where a message of type `M` can go.
pub trait Target<M: Message>: sealed::Target<M> {}

impl<M: Message> Target<M> for AgentRef {}
impl<M: Message> Target<M> for Recipient<M> {}
impl<M: Message> Target<M> for &dyn Accept<M> {}

pub(crate) mod sealed {
    use super::*;

    pub trait Target<M: Message> {
        #[doc(hidden)]
        fn admit(&self, source: &mut impl Source<M>) -> Pushed;
        #[doc(hidden)]
        fn wait(
            &self,
            source: &mut impl Source<M>,
            place: &mut Option<WaiterId>,
            waker: &Waker,
        ) -> Pushed;
        #[doc(hidden)]
        fn in_place(
            &self,
            slot: &mut Option<M>,
            call: Option<&Arc<CallMeta>>,
        ) -> OnTheSpot<M::Reply>;
        #[doc(hidden)]
        fn forget(&self, place: WaiterId);
        #[doc(hidden)]
        fn cell(&self) -> &dyn AnyCell;
        /// The agent as one that takes any message as JSON, if it is one.
        #[doc(hidden)]
        fn outside(&self) -> Option<AgentRef>;
    }
}

impl<M: Message> sealed::Target<M> for AgentRef {
    fn admit(&self, source: &mut impl Source<M>) -> Pushed {
        self.0.admit(TypeId::of::<M>(), &mut |queue, lane| {
            source.put(queue, lane)
        })
    }

    fn wait(
        &self,
        source: &mut impl Source<M>,
        place: &mut Option<WaiterId>,
        waker: &Waker,
    ) -> Pushed {
        self.0
            .wait(TypeId::of::<M>(), place, waker, &mut |queue, lane| {
                source.put(queue, lane)
            })
    }

    fn in_place(&self, slot: &mut Option<M>, call: Option<&Arc<CallMeta>>) -> OnTheSpot<M::Reply> {
        let mut exchange = Exchange {
            message: slot.take(),
            spot: OnTheSpot::Nothing,
        };
        self.0.in_place(TypeId::of::<M>(), &mut exchange, call);
        *slot = exchange.message;
        exchange.spot
    }

    fn forget(&self, place: WaiterId) {
        self.0.forget(place);
    }

    fn cell(&self) -> &dyn AnyCell {
        &*self.0
    }

    fn outside(&self) -> Option<AgentRef> {
        self.0.handles(TypeId::of::<Named>()).then(|| self.clone())
    }
}

impl<M: Message> sealed::Target<M> for Recipient<M> {
    fn admit(&self, source: &mut impl Source<M>) -> Pushed {
        self.0.admit(source)
    }

    fn wait(
        &self,
        source: &mut impl Source<M>,
        place: &mut Option<WaiterId>,
        waker: &Waker,
    ) -> Pushed {
        self.0.wait(source, place, waker)
    }

    fn in_place(&self, slot: &mut Option<M>, call: Option<&Arc<CallMeta>>) -> OnTheSpot<M::Reply> {
        self.0.in_place(slot, call)
    }

    fn forget(&self, place: WaiterId) {
        self.0.cell().forget(place);
    }

    fn cell(&self) -> &dyn AnyCell {
        self.0.cell()
    }

    fn outside(&self) -> Option<AgentRef> {
        None
    }
}

macro_rules! sending {
    ($($m:ident)?) => {
        /// Sends `message` and waits for room in the mailbox, in the order of those who wait, but not for the handler.
        ///
        /// # Errors
        /// [`SendError::Closed`] or [`SendError::NotHandled`], with the message.
        pub fn tell$(<$m: Message>)?(&self, message: M) -> Tell<'_, M, Self> {
            Tell::new(self, message)
        }

        /// Sends `message` at once.
        ///
        /// # Errors
        /// [`SendError::Full`], [`SendError::Closed`] or [`SendError::NotHandled`], with the message.
        pub fn try_tell$(<$m: Message>)?(&self, message: M) -> Result<(), SendError<M>> {
            crate::handle::ask::try_tell(self, message)
        }

        /// Sends `message` and waits for its reply. It waits for room too, unless [`Ask::without_waiting`]; it waits for
        /// ever, unless [`Ask::within`]. Dropped, it cancels the handler.
        ///
        /// # Errors
        /// Any [`SendError`].
        pub fn ask$(<$m: Message>)?(&self, message: M) -> Ask<'_, M, Self> {
            Ask::new(self, message)
        }
    };
}

impl AgentRef {
    sending!(M);

    /// Sends `message` as a call of its own: its progress can be followed and its questions answered.
    pub fn call<M: Message>(&self, message: M) -> Call<M> {
        Call::new(self.clone(), message)
    }

    /// Asks by name with a JSON object; the way in for every protocol. `call` says on whose behalf.
    ///
    /// # Errors
    /// `NotFound` where nothing goes by that name, `InvalidInput` where the payload doesn't fit, else what the agent or the
    /// kernel answered.
    pub async fn ask_named(
        &self,
        name: impl Into<String>,
        payload: Box<RawValue>,
        call: Option<Arc<CallMeta>>,
    ) -> RawReply {
        self.0
            .clone()
            .ask_named(
                Named {
                    name: name.into(),
                    payload,
                },
                call,
            )
            .await
    }

    /// The same agent, for one message type only. `None` where it doesn't handle that.
    pub fn recipient<M: Message>(&self) -> Option<Recipient<M>> {
        self.0
            .clone()
            .recipient(TypeId::of::<M>())?
            .downcast()
            .ok()
            .map(|r| *r)
    }

    /// Which messages it accepts from outside, with their schemas.
    pub fn specs(&self) -> Vec<MessageSpec> {
        self.0.specs()
    }

    /// Whether it takes any message by name ([`crate::Handlers::anything`]): it stands for something outside.
    pub fn is_outside(&self) -> bool {
        self.0.handles(TypeId::of::<Named>())
    }

    /// Its id in this system.
    pub fn id(&self) -> AgentId {
        self.0.id()
    }

    /// The name that it was given.
    pub fn name(&self) -> Option<&str> {
        self.0.label().map(|label| &**label)
    }

    /// The system in which it lives.
    pub fn system(&self) -> &System {
        self.0.system()
    }

    /// What people see of it.
    pub fn snapshot(&self) -> AgentSnapshot {
        self.0.snapshot()
    }

    /// What it shows of its own state ([`crate::Agent::observe`]); `null` while a handler has it or after its end. Goes before work.
    pub async fn observe(&self) -> serde_json::Value {
        let (reply, seen) = oneshot::channel();
        self.control(Control::Observe(reply));
        seen.await.unwrap_or_default()
    }

    /// Stops it after what its mailbox holds; new messages are refused at once.
    pub fn stop(&self) {
        self.control(Control::Drain);
    }

    /// Stops it now: running handlers are dropped at their await, what the mailbox holds becomes dead letters.
    pub fn kill(&self) {
        self.control(Control::Kill(ExitReason::Killed));
    }

    /// Ends when the agent has ended, and says why; at once where it has ended.
    pub async fn ended(&self) -> ExitReason {
        self.system().ended_of(self).await
    }

    pub(crate) fn control(&self, control: Control) {
        self.0.control(control);
    }
}

impl<M: Message> Recipient<M> {
    sending!();

    pub(crate) fn new(accept: Arc<dyn Accept<M>>) -> Self {
        Self(accept)
    }

    /// The agent's id in this system.
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

/// Where an envelope comes from when there is room for it.
pub trait Source<M: Message> {
    #[doc(hidden)]
    fn put(&mut self, queue: &mut Queue, lane: u16);
}

impl<M: Message> Source<M> for Option<Envelope<M>> {
    #[inline]
    fn put(&mut self, queue: &mut Queue, lane: u16) {
        if let Some(envelope) = self.take() {
            queue.push(lane, envelope);
        }
    }
}

/// A message without reply and call.
pub(crate) struct Told<'a, M>(pub(crate) &'a mut Option<M>);

impl<M: Message> Source<M> for Told<'_, M> {
    #[inline]
    fn put(&mut self, queue: &mut Queue, lane: u16) {
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

/// The way to one agent for one message type.
pub(crate) struct Port<A: Agent, M: Message> {
    pub(crate) cell: Arc<Cell<A>>,
    pub(crate) lane: u16,
    pub(crate) shortcut: Shortcut<A, M>,
}

/// A [`Port`] without its agent's type.
pub(crate) trait Accept<M: Message>: Send + Sync {
    fn admit(&self, source: &mut dyn Source<M>) -> Pushed;
    fn wait(
        &self,
        source: &mut dyn Source<M>,
        place: &mut Option<WaiterId>,
        waker: &Waker,
    ) -> Pushed;
    fn in_place(&self, slot: &mut Option<M>, call: Option<&Arc<CallMeta>>) -> OnTheSpot<M::Reply>;
    fn cell(&self) -> &dyn AnyCell;
}

impl<A: Agent, M: Message> Accept<M> for Port<A, M> {
    fn admit(&self, source: &mut dyn Source<M>) -> Pushed {
        self.cell.admit(|queue| source.put(queue, self.lane))
    }

    fn wait(
        &self,
        source: &mut dyn Source<M>,
        place: &mut Option<WaiterId>,
        waker: &Waker,
    ) -> Pushed {
        self.cell
            .wait(place, waker, |queue| source.put(queue, self.lane))
    }

    fn in_place(&self, slot: &mut Option<M>, call: Option<&Arc<CallMeta>>) -> OnTheSpot<M::Reply> {
        self.cell.shortcut(&self.shortcut, self.lane, slot, call)
    }

    fn cell(&self) -> &dyn AnyCell {
        &*self.cell
    }
}

// An ask that knows the port already, and has no need of a handle.
impl<M: Message> sealed::Target<M> for &dyn Accept<M> {
    fn admit(&self, source: &mut impl Source<M>) -> Pushed {
        (**self).admit(source)
    }

    fn wait(
        &self,
        source: &mut impl Source<M>,
        place: &mut Option<WaiterId>,
        waker: &Waker,
    ) -> Pushed {
        (**self).wait(source, place, waker)
    }

    fn in_place(&self, slot: &mut Option<M>, call: Option<&Arc<CallMeta>>) -> OnTheSpot<M::Reply> {
        (**self).in_place(slot, call)
    }

    fn forget(&self, place: WaiterId) {
        (**self).cell().forget(place);
    }

    fn cell(&self) -> &dyn AnyCell {
        (**self).cell()
    }

    fn outside(&self) -> Option<AgentRef> {
        None
    }
}

/// Why a message got no reply. Each variant tells the sender what to do next.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum SendError<M> {
    /// Nothing was queued: the message comes back. Send it later, or wait for room. `capacity` is in messages.
    #[error("mailbox is full ({capacity} messages)")]
    Full {
        /// The message, as it was.
        message: M,
        /// How many messages the mailbox holds.
        capacity: u32,
    },
    /// The agent has ended or its system is stopping: the message comes back. Find another agent.
    #[error("agent has ended")]
    Closed {
        /// The message, as it was.
        message: M,
    },
    /// The agent has no handler for this type: the message comes back.
    #[error("agent {agent} doesn't handle {name}")]
    NotHandled {
        /// The message, as it was.
        message: M,
        /// The agent's name.
        agent: String,
        /// The message's name.
        name: &'static str,
    },
    /// The message was queued, but the agent ended before it took it: nothing was done.
    #[error("agent stopped before it took the message")]
    Stopped,
    /// The deadline passed; whether the agent acted is unknown.
    #[error("no reply in {0:?}")]
    TimedOut(Duration),
    /// The call was cancelled; whether the agent acted is unknown.
    #[error("call was cancelled")]
    Cancelled,
    /// The handler panicked: a bug of the agent's. A fresh agent takes the next message.
    #[error("handler panicked")]
    Panicked,
    /// The agent wasn't ready for the message and could set no more aside. Send it later.
    #[error("stash is full")]
    StashFull,
    /// The call went through more agents than it may: a loop, most likely.
    #[error("call passed through more than {hops_max} agents")]
    TooManyHops {
        /// The limit that was met.
        hops_max: u16,
    },
    /// The agent is remote and answered with a failure, or the message couldn't be written or read as JSON.
    #[error("{0}")]
    Failed(Failure),
}

impl<M> SendError<M> {
    /// What a sender of any protocol can do about it.
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
    // The message may hold patient text: it is never printed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendError({self})")
    }
}

impl<M: Message> From<SendError<M>> for Failure {
    fn from(error: SendError<M>) -> Self {
        match error {
            SendError::Failed(failure) => failure,
            other => Failure::new(other.kind(), other.to_string()),
        }
    }
}
