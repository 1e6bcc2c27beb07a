//! Traits and settings for authors of agents: handlers, limits, identity and state.

pub(crate) mod context;
pub(crate) mod ops;

use std::any::TypeId;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use callboard_message::{Message, MessageSpec, RawMessage};
use context::Context;
use ops::{ConcurrentFnOp, ConcurrentOp, ExclusiveOp, HandlerOp, SyncOp};
use serde::Serialize;

use crate::system::supervision::{Backoff, ExitReason, RestartIntensity};

/// An actor: private state with handlers for typed messages. At most one thread touches the state
/// at a time.
///
/// Handlers come in three kinds: [`SyncHandler`] (synchronous), [`Handler`] (async with `&mut
/// self`, one at a time) and [`ConcurrentHandler`] (async, several at once). An agent may mix them;
/// each message type has one handler.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an agent",
    label = "not an agent",
    note = "implement `Agent` for it; its function `handlers` registers a handler for each message, such as `on.sync::<M>()`"
)]
pub trait Agent: Sized + Send + 'static {
    /// Registers the handlers of this agent type. Called once for each type in a system, not for
    /// each agent. A message whose handler isn't registered fails with
    /// [`SendError::NotHandled`](crate::SendError::NotHandled), which names the line to add.
    fn handlers(on: &mut Handlers<Self>);

    /// Returns the default limits and options for agents of this type.
    /// [`SpawnBuilder`](crate::SpawnBuilder) may override them.
    fn profile() -> AgentProfile {
        AgentProfile::default()
    }

    /// Called before the agent's first message, and again after each restart.
    fn started(&mut self, _cx: &mut Context) {}

    /// Called after the last message when the agent stops in an orderly way. Not called after a
    /// panic or a kill.
    fn stopped(&mut self, _cx: &mut Context) {}

    /// Called when an agent watched with [`Context::watch`] has ended, with its id and the reason.
    fn terminated(&mut self, _who: AgentId, _why: ExitReason, _cx: &mut Context) {}

    /// Returns the agent's state for display and tests, as JSON. Must not contain secrets or
    /// patient data.
    fn observe(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
}

/// Synchronous handler of a message. The cheapest kind of handler: if the agent is idle, it may run
/// on the caller's thread.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no synchronous handler for `{M}`",
    label = "`SyncHandler<{M}>` is not implemented",
    note = "implement `SyncHandler<{M}>` for `{Self}`",
    note = "a handler of another kind is registered by its own function: `on.exclusive::<{M}>()` for `Handler`, `on.concurrent::<{M}>(in_flight_max)` for `ConcurrentHandler`"
)]
pub trait SyncHandler<M: Message>: Agent {
    /// Handles `message` and returns the reply.
    fn handle(&mut self, message: M, cx: &mut Context) -> M::Reply;

    /// Returns true if the agent can handle `message` now. Otherwise the message is stashed until
    /// [`Context::unstash`].
    fn ready(&self, _message: &M) -> bool {
        true
    }
}

/// Async handler with exclusive access to the agent's state. The next message waits until it has
/// finished.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no exclusive handler for `{M}`",
    label = "`Handler<{M}>` is not implemented",
    note = "implement `Handler<{M}>` for `{Self}`",
    note = "a handler of another kind is registered by its own function: `on.sync::<{M}>()` for `SyncHandler`, `on.concurrent::<{M}>(in_flight_max)` for `ConcurrentHandler`"
)]
pub trait Handler<M: Message>: Agent {
    /// Handles `message` and resolves to the reply. Write it as `async fn`.
    fn handle(&mut self, message: M, cx: &mut Context) -> impl Future<Output = M::Reply> + Send;

    /// Returns true if the agent can handle `message` now. Otherwise the message is stashed until
    /// [`Context::unstash`].
    fn ready(&self, _message: &M) -> bool {
        true
    }
}

/// Async handler that runs concurrently with other handlers of the same agent. Its future is
/// `'static` and owns the state it needs.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no concurrent handler for `{M}`",
    label = "`ConcurrentHandler<{M}>` is not implemented",
    note = "implement `ConcurrentHandler<{M}>` for `{Self}`",
    note = "a handler of another kind is registered by its own function: `on.sync::<{M}>()` for `SyncHandler`, `on.exclusive::<{M}>()` for `Handler`"
)]
pub trait ConcurrentHandler<M: Message>: Agent {
    /// Starts handling `message` with access to the state. The returned future runs concurrently
    /// with other handlers and resolves to the reply.
    fn handle(
        &mut self,
        message: M,
        cx: Context,
    ) -> impl Future<Output = M::Reply> + Send + 'static;

    /// Returns true if the agent can handle `message` now. Otherwise the message is stashed until
    /// [`Context::unstash`].
    fn ready(&self, _message: &M) -> bool {
        true
    }
}

/// Handler table of one agent type, filled in [`Agent::handlers`]. A second handler for the same
/// message is ignored; debug builds panic.
pub struct Handlers<A: Agent> {
    pub(crate) ops: Vec<Box<dyn HandlerOp<A>>>,
    idempotent: Vec<TypeId>,
}

impl<A: Agent> Handlers<A> {
    pub(crate) fn collect() -> Self {
        let mut handlers = Self {
            ops: Vec::new(),
            idempotent: Vec::new(),
        };
        A::handlers(&mut handlers);
        handlers
    }

    /// Registers the [`SyncHandler`] for `M`.
    pub fn sync<M: Message>(&mut self) -> &mut Self
    where
        A: SyncHandler<M>,
    {
        self.add(SyncOp::<M>(PhantomData))
    }

    /// Registers the [`Handler`] for `M`: async, one message at a time.
    pub fn exclusive<M: Message>(&mut self) -> &mut Self
    where
        A: Handler<M>,
    {
        self.add(ExclusiveOp::<M>(PhantomData))
    }

    /// Registers the [`ConcurrentHandler`] for `M`, with at most `in_flight_max` (at least 1) of
    /// its futures running at once. While the limit is reached, further messages `M` and all
    /// messages behind them wait in the mailbox.
    pub fn concurrent<M: Message>(&mut self, in_flight_max: u32) -> &mut Self
    where
        A: ConcurrentHandler<M>,
    {
        self.add(ConcurrentOp::<M>(in_flight_max.max(1), PhantomData))
    }

    /// Registers a function as the concurrent handler of `M`, whose type is that of its argument.
    /// At most `in_flight_max` of its futures run at once, and at least one, as for
    /// [`Self::concurrent`].
    ///
    /// A handler in this form can't be forgotten silently: the compiler warns of a function without
    /// use, while an implementation of a trait that isn't registered compiles. It runs on the
    /// agent's arbiter only.
    pub fn concurrent_with<M: Message, Fut>(
        &mut self,
        in_flight_max: u32,
        handle: impl Fn(&mut A, M, Context) -> Fut + Send + Sync + 'static,
    ) -> &mut Self
    where
        Fut: Future<Output = M::Reply> + Send + 'static,
    {
        self.add(ConcurrentFnOp {
            in_flight_max: in_flight_max.max(1),
            handle,
            types: PhantomData,
        })
    }

    /// Registers a catch-all handler, which receives messages without a handler of their own as
    /// [`RawMessage`]. Meant for proxy agents of remote systems. At most `in_flight_max` of its
    /// futures run at once.
    pub fn fallback(&mut self, in_flight_max: u32) -> &mut Self
    where
        A: ConcurrentHandler<RawMessage>,
    {
        self.concurrent::<RawMessage>(in_flight_max)
    }

    /// Declares that handling `M` twice does no harm. Sets `idempotentHint` in
    /// [`crate::AgentRef::specs`]; an interrupted task of this message may then be restarted after
    /// a crash.
    pub fn idempotent<M: Message>(&mut self) -> &mut Self {
        self.idempotent.push(TypeId::of::<M>());
        self
    }

    /// Returns name, description and schema of each message that can be called from outside the
    /// process.
    pub(crate) fn specs(&self) -> Vec<MessageSpec> {
        let spec = |op: &dyn HandlerOp<A>| {
            let mut spec = op.spec()?;
            if self.idempotent.contains(&op.message()) {
                let hints = spec.more.object("annotations").unwrap_or_default();
                spec.more
                    .set("annotations", hints.with("idempotentHint", true));
            }
            Some(spec)
        };
        self.ops.iter().filter_map(|op| spec(&**op)).collect()
    }

    fn add(&mut self, op: impl HandlerOp<A> + 'static) -> &mut Self {
        // A second handler of a message would never run: the first one wins, and debug builds
        // panic.
        debug_assert!(
            self.ops.iter().all(|o| o.message() != op.message()),
            "two handlers for {}",
            op.name()
        );
        self.ops.push(Box::new(op));
        self
    }
}

/// Default mailbox capacity, in messages.
pub const MAILBOX_CAPACITY_DEFAULT: u32 = 1_024;
/// Default number of messages that an agent handles in one turn before other agents run.
const TURN_MESSAGES_MAX_DEFAULT: u32 = 256;
/// Default stash capacity, in messages.
const STASH_CAPACITY_DEFAULT: u32 = 1_024;
/// Default time that a cancelled handler has to clean up.
pub const CANCEL_GRACE_DEFAULT: Duration = Duration::from_secs(1);

/// Limits and options of an agent.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentProfile {
    /// Mailbox capacity, in messages; at least 1.
    pub mailbox_capacity: u32,
    /// Maximum number of messages that the agent handles in one turn before other agents on its
    /// arbiter run; at least 1.
    pub turn_messages_max: u32,
    /// Stash capacity, in messages. When it is full, a message that would be stashed becomes a dead
    /// letter, and its ask fails with [`SendError::StashFull`](crate::SendError::StashFull).
    pub stash_capacity: u32,
    /// Time that a handler may continue after its call was cancelled. Then its future is dropped.
    pub cancel_grace: Duration,
    /// Declares that handlers may be dropped at any await without corrupting the agent's state. If
    /// false, the agent is replaced by a fresh one after a handler was dropped so. This requires an
    /// agent spawned with a factory.
    pub cancel_safe: bool,
    /// Allows synchronous handlers of an idle agent to run on the caller's thread. Set it to false
    /// for agents that block for long or depend on their arbiter's thread.
    pub inline_sync: bool,
    /// Allows concurrent handlers of an idle agent to run in the caller's tokio task, which saves
    /// two wake-ups. Suits agents that forward a request and wait for its answer. Work that must
    /// outlive the caller's task has to be spawned on another runtime.
    pub inline_concurrent: bool,
    /// Share of a principal in the concurrent handlers of each message type, in percent, 1 to 100.
    /// It applies to messages that a server of the system receives for the agent, or for an
    /// aggregate of which the agent is a member: beyond its share, a principal may use handlers as
    /// long as a share is left for others, and then waits. A handler counts until it ends, also if
    /// its caller has gone. With 100, the default, one principal may use all. Suits agents whose
    /// handlers wait, for example for people.
    pub principal_share_percent: u8,
    /// Declares that the agent stands for others, and checks itself what its callers may use of them
    /// ([`inbound_policy::authorize_for`](crate::inbound_policy::authorize_for)). The rules of the system
    /// aren't applied to the agent itself.
    pub authorizes_itself: bool,
    /// Restart limit for an agent without a supervisor.
    pub restarts: RestartIntensity,
    /// Delay before each restart of an agent without a supervisor.
    pub backoff: Backoff,
}

impl Default for AgentProfile {
    fn default() -> Self {
        Self {
            mailbox_capacity: MAILBOX_CAPACITY_DEFAULT,
            turn_messages_max: TURN_MESSAGES_MAX_DEFAULT,
            stash_capacity: STASH_CAPACITY_DEFAULT,
            cancel_grace: CANCEL_GRACE_DEFAULT,
            cancel_safe: false,
            inline_sync: true,
            inline_concurrent: false,
            principal_share_percent: 100,
            authorizes_itself: false,
            restarts: RestartIntensity::default(),
            backoff: Backoff::default(),
        }
    }
}

impl AgentProfile {
    /// Sets the mailbox capacity, in messages; at least 1.
    pub fn mailbox_capacity(mut self, messages: u32) -> Self {
        self.mailbox_capacity = messages;
        self
    }

    /// Declares that handlers are cancel-safe (see
    /// [`AgentProfile::cancel_safe`](#structfield.cancel_safe)).
    pub fn cancel_safe(mut self) -> Self {
        self.cancel_safe = true;
        self
    }

    /// Allows concurrent handlers to run in the caller's task (see
    /// [`AgentProfile::inline_concurrent`](#structfield.inline_concurrent)).
    pub fn inline_concurrent(mut self) -> Self {
        self.inline_concurrent = true;
        self
    }

    /// Sets the share of a principal in the concurrent handlers (see
    /// [`AgentProfile::principal_share_percent`](#structfield.principal_share_percent)).
    pub fn principal_share(mut self, percent: u8) -> Self {
        self.principal_share_percent = percent;
        self
    }

    /// Declares that the agent checks rights itself (see
    /// [`AgentProfile::authorizes_itself`](#structfield.authorizes_itself)).
    pub fn authorizes_itself(mut self) -> Self {
        self.authorizes_itself = true;
        self
    }

    /// Runs all handlers on the agent's own arbiter, never on the caller's thread.
    pub fn without_inline(mut self) -> Self {
        self.inline_sync = false;
        self.inline_concurrent = false;
        self
    }
}

/// Unique id of an agent within its system; never reused. Displayed as `#N`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, derive_more::Display,
)]
#[serde(transparent)]
#[display("#{_0}")]
pub struct AgentId(pub(crate) u64);

/// Lifecycle state of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum AgentState {
    /// Spawned, but not yet started.
    Starting = 0,
    /// Accepts and handles messages.
    Running = 1,
    /// Failed; a fresh instance is being created.
    Restarting = 2,
    /// Rejects new messages and handles those in the mailbox.
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

/// State of an agent at one moment, for display and metrics. Taking it doesn't disturb the agent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AgentSnapshot {
    /// Id of the agent in its system.
    pub id: AgentId,
    /// Name given at spawn; `None` if it has none.
    pub name: Option<Arc<str>>,
    /// Rust type name of the agent, without path and type parameters.
    pub kind: &'static str,
    /// Lifecycle state of the agent.
    pub state: AgentState,
    /// Number of messages in the mailbox.
    pub mailbox_depth: u32,
    /// Mailbox capacity, in messages.
    pub mailbox_capacity: u32,
    /// Number of the agent's handlers that are suspended at an await.
    pub in_flight: u32,
    /// Number of messages whose handling has started since spawn. Updated once a batch of messages,
    /// so it may lag behind the replies.
    pub handled: u64,
    /// Number of restarts since spawn.
    pub restarts: u32,
    /// Latest error: the name of the message whose handler panicked, never its content.
    pub last_error: Option<String>,
}
