//! Agents as their author writes them: handlers and limits.

pub(crate) mod cx;
pub(crate) mod ops;

use std::any::TypeId;
use std::future::Future;
use std::marker::PhantomData;
use std::time::Duration;

use callboard_message::{Message, MessageSpec, Named};
use cx::Cx;
use ops::{ConcurrentOp, ExclusiveOp, Op, SyncOp};
use serde::Serialize;

use crate::system::supervision::{Backoff, ExitReason, Intensity};

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
        let mut handlers = Self {
            ops: Vec::new(),
            repeatable: Vec::new(),
        };
        A::handlers(&mut handlers);
        handlers
    }

    /// `M` is handled at once, by [`SyncHandler`].
    pub fn sync<M: Message>(&mut self) -> &mut Self
    where
        A: SyncHandler<M>,
    {
        self.add(SyncOp::<M>(PhantomData))
    }

    /// `M` is handled over awaits, one at a time, by [`Handler`].
    pub fn exclusive<M: Message>(&mut self) -> &mut Self
    where
        A: Handler<M>,
    {
        self.add(ExclusiveOp::<M>(PhantomData))
    }

    /// `M` is handled by [`ConcurrentHandler`], at most `in_flight_max` at once (at least 1); further ones wait in the mailbox,
    /// and what came after them too.
    pub fn concurrent<M: Message>(&mut self, in_flight_max: u32) -> &mut Self
    where
        A: ConcurrentHandler<M>,
    {
        self.add(ConcurrentOp::<M>(in_flight_max.max(1), PhantomData))
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
                spec.more
                    .set("annotations", hints.with("idempotentHint", true));
            }
            Some(spec)
        };
        self.ops.iter().filter_map(|op| spec(&**op)).collect()
    }

    fn add(&mut self, op: impl Op<A> + 'static) -> &mut Self {
        // A second handler for a message would never run: the first wins, and in tests it is an error.
        debug_assert!(
            self.ops.iter().all(|o| o.message() != op.message()),
            "two handlers for {}",
            op.name()
        );
        self.ops.push(Box::new(op));
        self
    }
}

/// Messages a mailbox holds, by default.
pub const MAILBOX_CAPACITY_DEFAULT: u32 = 1_024;
/// Messages an agent handles before others have a turn, by default.
const TURN_MESSAGES_MAX_DEFAULT: u32 = 256;
/// Messages a stash holds, by default.
const STASH_CAPACITY_DEFAULT: u32 = 1_024;
/// How long a cancelled handler may tidy up, by default.
pub const CANCEL_GRACE_DEFAULT: Duration = Duration::from_secs(1);

/// How an agent is run: its limits, and what it promises.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Messages that the mailbox holds at most; at least 1.
    pub mailbox_capacity: u32,
    /// Messages the agent handles before others on its arbiter have a turn; at least 1.
    pub turn_messages_max: u32,
    /// Messages set aside at most by handlers that weren't ready for them.
    pub stash_capacity: u32,
    /// How long a handler may run on after its call was cancelled, before it is dropped at an await.
    pub cancel_grace: Duration,
    /// A handler may be dropped at any await and the state is still good. Where this is false, a fresh agent takes over
    /// after a handler was dropped (if there is a factory to make one).
    pub cancel_safe: bool,
    /// A synchronous handler of an idle agent may run on the thread that asks. Say `false` for agents that block for long
    /// or need their own arbiter's thread.
    pub in_place: bool,
    /// A concurrent handler of an idle agent may begin on the thread that asks, and go on in the task that asks, if that
    /// has a tokio runtime: two wake-ups less. Say `true` for agents that hand a request on and wait for its answer. What
    /// has to outlast the asker's task and runtime, they must spawn on a runtime that does.
    pub in_place_concurrent: bool,
    /// How many restarts in which time are borne, for an agent without a supervisor of its own.
    pub restarts: Intensity,
    /// How long to wait before a restart.
    pub backoff: Backoff,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            mailbox_capacity: MAILBOX_CAPACITY_DEFAULT,
            turn_messages_max: TURN_MESSAGES_MAX_DEFAULT,
            stash_capacity: STASH_CAPACITY_DEFAULT,
            cancel_grace: CANCEL_GRACE_DEFAULT,
            cancel_safe: false,
            in_place: true,
            in_place_concurrent: false,
            restarts: Intensity::default(),
            backoff: Backoff::default(),
        }
    }
}

impl Profile {
    /// The same profile with another mailbox capacity, in messages.
    pub fn mailbox_capacity(mut self, messages: u32) -> Self {
        self.mailbox_capacity = messages;
        self
    }

    /// The same profile, promising that handlers are cancel-safe.
    pub fn cancel_safe(mut self) -> Self {
        self.cancel_safe = true;
        self
    }

    /// The same profile, with concurrent handlers in the tasks of those who ask, where that can be.
    pub fn with_askers(mut self) -> Self {
        self.in_place_concurrent = true;
        self
    }

    /// The same profile, always run on the agent's own arbiter.
    pub fn pinned(mut self) -> Self {
        self.in_place = false;
        self.in_place_concurrent = false;
        self
    }
}

/// One agent of one system, for as long as the system lives; never used twice.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, derive_more::Display,
)]
#[serde(transparent)]
#[display("#{_0}")]
pub struct AgentId(pub(crate) u64);

/// What an agent is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum AgentState {
    /// Not yet made.
    Starting = 0,
    /// Takes messages.
    Running = 1,
    /// Failed; a fresh one is being made.
    Restarting = 2,
    /// Takes no more messages, works off what it has.
    Draining = 3,
    /// Has ended.
    Ended = 4,
}

impl AgentState {
    pub(crate) fn from_u8(state: u8) -> Self {
        match state {
            0 => Self::Starting,
            1 => Self::Running,
            2 => Self::Restarting,
            3 => Self::Draining,
            _ => Self::Ended,
        }
    }
}

/// One agent, as people see it. Read without disturbing it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AgentSnapshot {
    /// Its id in this system.
    pub id: AgentId,
    /// Its name, where it was given one.
    pub name: Option<String>,
    /// The Rust type, without its path.
    pub kind: &'static str,
    /// What it is doing.
    pub state: AgentState,
    /// Messages in the mailbox.
    pub mailbox_depth: u32,
    /// Messages that the mailbox holds at most.
    pub mailbox_capacity: u32,
    /// Handlers suspended at an await.
    pub in_flight: u32,
    /// Messages begun since it was spawned; counted a chunk at a time, so it may lag behind the replies.
    pub handled: u64,
    /// Fresh agents made after the first.
    pub restarts: u32,
    /// What went wrong last; the handler's name, never a message's content.
    pub last_error: Option<String>,
}
