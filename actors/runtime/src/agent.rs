use std::any::TypeId;
use std::future::Future;

use callboard_message::{Message, MessageSpec, Named};

use crate::cx::Cx;
use crate::ids::AgentId;
use crate::ops::{ConcurrentOp, ExclusiveOp, Op, SyncOp};
use crate::profile::Profile;
use crate::supervision::ExitReason;

/// Private state and handlers for typed messages; exactly one actor runs it.
///
/// Handlers come in three kinds: [`SyncHandler`] (at once), [`Handler`] (async, `&mut self`, one at a time) and
/// [`ConcurrentHandler`] (async, many at once). An agent may mix them; a message type has one.
pub trait Agent: Sized + Send + 'static {
    /// Registers the handlers. Called once a type, not once an agent.
    fn handlers(on: &mut Handlers<Self>);

    /// How agents of this type are run, unless the one who spawns says otherwise.
    fn profile() -> Profile {
        Profile::default()
    }

    /// Called before the first message, by every incarnation.
    fn started(&mut self, _cx: &mut Cx) {}

    /// Called after the last message when the agent stops in order; not after a panic.
    fn stopped(&mut self, _cx: &mut Cx) {}

    /// An agent watched with [`Cx::watch`] ended.
    fn terminated(&mut self, _who: AgentId, _why: ExitReason, _cx: &mut Cx) {}

    /// What the agent shows of its state to people and tests. Never secrets or patient text.
    fn observe(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// Handles a message at once. The cheapest kind: asked while idle, it may run on the asker's thread.
pub trait SyncHandler<M: Message>: Agent {
    /// Handles `message`; what it returns is the reply.
    fn handle(&mut self, message: M, cx: &mut Cx) -> M::Reply;

    /// `false` sets the message aside until [`Cx::unstash`].
    fn ready(&self, _message: &M) -> bool {
        true
    }
}

/// Handles a message over awaits with the state to itself: the next message waits, no update is lost.
pub trait Handler<M: Message>: Agent {
    /// Handles `message`; what it returns is the reply. Write it as `async fn`.
    fn handle(&mut self, message: M, cx: &mut Cx) -> impl Future<Output = M::Reply> + Send;

    /// `false` sets the message aside until [`Cx::unstash`].
    fn ready(&self, _message: &M) -> bool {
        true
    }
}

/// Handles many messages at once, each in a future of its own that takes what it needs of the state along.
pub trait ConcurrentHandler<M: Message>: Agent {
    /// Starts on `message` with the state at hand; the future it returns runs beside others.
    fn handle(&mut self, message: M, cx: Cx) -> impl Future<Output = M::Reply> + Send + 'static;

    /// `false` sets the message aside until [`Cx::unstash`].
    fn ready(&self, _message: &M) -> bool {
        true
    }
}

/// The handlers of one agent type.
pub struct Handlers<A: Agent> {
    pub(crate) ops: Vec<Box<dyn Op<A>>>,
    repeatable: Vec<TypeId>,
}

impl<A: Agent> Handlers<A> {
    pub(crate) fn collect() -> Self {
        let mut handlers = Self { ops: Vec::new(), repeatable: Vec::new() };
        A::handlers(&mut handlers);
        handlers
    }

    /// `M` is handled at once, by [`SyncHandler`].
    pub fn sync<M: Message>(&mut self) -> &mut Self
    where
        A: SyncHandler<M>,
    {
        self.add(SyncOp::<M>::new())
    }

    /// `M` is handled over awaits, one at a time, by [`Handler`].
    pub fn exclusive<M: Message>(&mut self) -> &mut Self
    where
        A: Handler<M>,
    {
        self.add(ExclusiveOp::<M>::new())
    }

    /// `M` is handled by [`ConcurrentHandler`], at most `in_flight_max` at once (at least 1); further ones wait in the mailbox,
    /// and what came after them too.
    pub fn concurrent<M: Message>(&mut self, in_flight_max: u32) -> &mut Self
    where
        A: ConcurrentHandler<M>,
    {
        self.add(ConcurrentOp::<M>::new(in_flight_max))
    }

    /// Whatever has no handler of its own arrives as [`Named`]: for agents that stand for something outside. At most
    /// `in_flight_max` at once.
    pub fn anything(&mut self, in_flight_max: u32) -> &mut Self
    where
        A: ConcurrentHandler<Named>,
    {
        self.concurrent::<Named>(in_flight_max)
    }

    /// Doing `M` twice does no harm, beyond what the message says of itself: [`crate::AgentRef::specs`] shows it
    /// (`idempotentHint`), and whoever holds a task of it may begin it again after a crash.
    pub fn repeatable<M: Message>(&mut self) -> &mut Self {
        self.repeatable.push(TypeId::of::<M>());
        self
    }

    /// What is handled, in words and schemas.
    pub(crate) fn specs(&self) -> Vec<MessageSpec> {
        let spec = |op: &dyn Op<A>| {
            let mut spec = op.spec()?;
            if self.repeatable.contains(&op.message()) {
                let hints = spec.more.object("annotations").unwrap_or_default();
                spec.more.set("annotations", hints.with("idempotentHint", true));
            }
            Some(spec)
        };
        self.ops.iter().filter_map(|op| spec(&**op)).collect()
    }

    fn add(&mut self, op: impl Op<A> + 'static) -> &mut Self {
        // A second handler for a message would never run: the first wins, and in tests it is an error.
        debug_assert!(self.ops.iter().all(|o| o.message() != op.message()), "two handlers for {}", op.name());
        self.ops.push(Box::new(op));
        self
    }
}
