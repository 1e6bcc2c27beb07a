//! Operations on one message type of an agent type, behind an object-safe trait.

use std::any::{Any, TypeId};
use std::marker::PhantomData;
use std::sync::Arc;

use callboard_message::{Failure, FailureKind, Message, MessageSpec, RawReply};
use futures::FutureExt;
use futures::future::{BoxFuture, OptionFuture};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::context::Context;
use super::{Agent, AgentProfile, ConcurrentHandler, Handler, SyncHandler};
use crate::agent_cell::{AgentCell, InlineResult};
use crate::call::CallContext;
use crate::handle::ask::Ask;
use crate::handle::{DynMessageRoute, MessageRoute, Recipient};
use crate::mailbox::lane::{
    Envelope, Lane, MessageQueue, NoReplyReason, ReplySender, downcast_lane,
};
use crate::node_events::Hop;
use crate::shares::SharePermit;

/// Arguments of [`HandlerOp::run`].
pub(crate) struct HandlerRun<'a, A> {
    pub(crate) agent: &'a mut Option<A>,
    pub(crate) cx: &'a mut Context,
    pub(crate) profile: &'a AgentProfile,
    /// Number of messages taken from the lane so far; correct even if a handler panics.
    pub(crate) begun: &'a mut u32,
    /// Maximum number of messages to take from the lane.
    pub(crate) max: u32,
}

pub(crate) enum HandlerRunResult<A> {
    /// All messages taken have been handled.
    Done,
    /// The agent isn't ready for the first message, which stays in the lane to be stashed.
    NotReady,
    /// Future of the exclusive handler of the first message, which owns the agent. Resolves to the
    /// agent and a flag, false if the handler was dropped at an await.
    Exclusive(BoxFuture<'static, (A, bool)>),
    /// Future of the concurrent handler of the first message. Resolves to false if it panicked.
    Concurrent(BoxFuture<'static, bool>),
}

/// Functions to run a synchronous handler on the caller's thread.
pub(crate) struct SyncEntry<A: Agent, M: Message> {
    pub(crate) handle: fn(&mut A, M, &mut Context) -> M::Reply,
    pub(crate) ready: fn(&A, &M) -> bool,
}

/// Functions to start a concurrent handler in the caller's task.
pub(crate) struct ConcurrentEntry<A: Agent, M: Message> {
    pub(crate) begin:
        fn(&mut A, &Context, &AgentProfile, UnpackedEnvelope<M>) -> BoxFuture<'static, bool>,
    pub(crate) ready: fn(&A, &M) -> bool,
    pub(crate) in_flight_max: u32,
}

/// Functions for handling a message directly in the caller's task, without the scheduler.
pub(crate) enum InlineEntry<A: Agent, M: Message> {
    None,
    Sync(SyncEntry<A, M>),
    Concurrent(ConcurrentEntry<A, M>),
}

/// Message that may be handled directly in the caller's task, with room for the result.
pub(crate) struct InlineRequest<M: Message> {
    pub(crate) message: Option<M>,
    pub(crate) result: InlineResult<M::Reply>,
}

pub(crate) trait HandlerOp<A: Agent>: Send + Sync {
    fn message(&self) -> TypeId;
    fn name(&self) -> &'static str;
    fn spec(&self) -> Option<MessageSpec>;
    /// Returns true if the message has a JSON codec and can be called by name.
    fn has_codec(&self) -> bool;
    /// Returns the maximum number of concurrent handlers of this message type that run at once;
    /// `None` if the handler isn't concurrent.
    fn in_flight_max(&self) -> Option<u32>;
    /// Handles the messages at the head of `lane`, the queue of this message type, or starts their
    /// handlers.
    fn run(&self, lane: &mut dyn Lane, run: HandlerRun<'_, A>) -> HandlerRunResult<A>;
    /// Moves the first message of `queue` to the end of the stash.
    fn stash(&self, queue: &mut MessageQueue, stash: &mut MessageQueue);
    /// Handles the message of an [`InlineRequest`] in the caller's task, or starts its handler
    /// there, if the agent is idle. Otherwise leaves the message in `exchange`.
    fn in_place(
        &self,
        cell: &AgentCell<A>,
        lane: u16,
        exchange: &mut dyn Any,
        call: Option<&Arc<CallContext>>,
    );
    /// Returns a boxed `Recipient<M>` for the agent, where `M` is this handler's message type.
    fn recipient(&self, cell: Arc<AgentCell<A>>, lane: u16) -> Box<dyn Any>;
    /// Decodes a JSON payload, asks the agent, and encodes the reply.
    fn ask_named(
        &self,
        cell: Arc<AgentCell<A>>,
        lane: u16,
        payload: Box<RawValue>,
        call: Option<Arc<CallContext>>,
    ) -> BoxFuture<'static, RawReply>;
}

macro_rules! impl_handler_op {
    ([$($generics:tt)*] $op:ty, $shortcut:expr, $in_flight_max:expr, $run:expr) => {
        impl<$($generics)*> HandlerOp<A> for $op {
            fn message(&self) -> TypeId {
                TypeId::of::<M>()
            }

            fn name(&self) -> &'static str {
                M::NAME
            }

            fn spec(&self) -> Option<MessageSpec> {
                M::codec().map(|codec| codec.spec())
            }

            fn has_codec(&self) -> bool {
                M::codec().is_some()
            }

            fn in_flight_max(&self) -> Option<u32> {
                ($in_flight_max)(self)
            }

            fn run(&self, lane: &mut dyn Lane, run: HandlerRun<'_, A>) -> HandlerRunResult<A> {
                ($run)(self, lane, run)
            }

            fn stash(&self, queue: &mut MessageQueue, stash: &mut MessageQueue) {
                queue.shift_head::<M>(stash);
            }

            fn in_place(
                &self,
                cell: &AgentCell<A>,
                lane: u16,
                exchange: &mut dyn Any,
                call: Option<&Arc<CallContext>>,
            ) {
                if let Some(exchange) = exchange.downcast_mut::<InlineRequest<M>>() {
                    let shortcut: InlineEntry<A, M> = ($shortcut)(self);
                    exchange.result = cell.run_inline(&shortcut, lane, &mut exchange.message, call);
                }
            }

            fn recipient(&self, cell: Arc<AgentCell<A>>, lane: u16) -> Box<dyn Any> {
                Box::new(Recipient::<M>::new(Arc::new(MessageRoute {
                    cell,
                    lane,
                    shortcut: ($shortcut)(self),
                })))
            }

            fn ask_named(
                &self,
                cell: Arc<AgentCell<A>>,
                lane: u16,
                payload: Box<RawValue>,
                call: Option<Arc<CallContext>>,
            ) -> BoxFuture<'static, RawReply> {
                let port = MessageRoute {
                    cell,
                    lane,
                    shortcut: ($shortcut)(self),
                };
                Box::pin(async move {
                    let Some(codec) = M::codec() else {
                        return Err(Failure::not_found(format!(
                            "{} can only be sent by agents of the same process: send one of the messages that the agent describes",
                            M::NAME
                        )));
                    };
                    let message =
                        (codec.decode)(&payload).map_err(|e| Failure::invalid(e.to_string()))?;
                    let port: &dyn DynMessageRoute<M> = &port;
                    let reply = Ask::new(&port, message).within_call(call).await?;
                    (codec.encode_reply)(reply)
                })
            }
        }
    };
}

pub(super) struct SyncOp<M>(pub(super) PhantomData<fn(M)>);
pub(super) struct ExclusiveOp<M>(pub(super) PhantomData<fn(M)>);
/// Operation of a concurrent handler, with the maximum number of its futures in flight, at least 1.
pub(super) struct ConcurrentOp<M>(pub(super) u32, pub(super) PhantomData<fn(M)>);
/// Operation of a function as concurrent handler, with the maximum number of its futures in flight,
/// at least 1.
pub(super) struct ConcurrentFnOp<A, M, F, Fut> {
    pub(super) in_flight_max: u32,
    pub(super) handle: F,
    pub(super) types: PhantomData<fn(A, M) -> Fut>,
}

impl_handler_op!(
    [A: SyncHandler<M>, M: Message] SyncOp<M>,
    |_: &Self| InlineEntry::Sync(SyncEntry {
        handle: <A as SyncHandler<M>>::handle,
        ready: <A as SyncHandler<M>>::ready
    }),
    |_: &Self| None,
    |_, lane, run| run_sync::<A, M>(lane, run)
);
impl_handler_op!(
    [A: Handler<M>, M: Message] ExclusiveOp<M>,
    |_: &Self| InlineEntry::None,
    |_: &Self| None,
    |_, lane, run| run_exclusive::<A, M>(lane, run)
);
impl_handler_op!(
    [A: ConcurrentHandler<M>, M: Message] ConcurrentOp<M>,
    |op: &Self| InlineEntry::Concurrent(ConcurrentEntry {
        begin: begin_concurrent::<A, M>,
        ready: <A as ConcurrentHandler<M>>::ready,
        in_flight_max: op.0
    }),
    |op: &Self| Some(op.0),
    |_, lane, run| run_concurrent::<A, M>(lane, run)
);
impl_handler_op!(
    [
        A: Agent,
        M: Message,
        F: Fn(&mut A, M, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = M::Reply> + Send + 'static
    ] ConcurrentFnOp<A, M, F, Fut>,
    |_: &Self| InlineEntry::None,
    |op: &Self| Some(op.in_flight_max),
    |op: &Self, lane, run| run_concurrent_fn(&op.handle, lane, run)
);

fn run_sync<A: SyncHandler<M>, M: Message>(
    lane: &mut dyn Lane,
    run: HandlerRun<'_, A>,
) -> HandlerRunResult<A> {
    let (Some(queue), Some(agent)) = (downcast_lane::<M>(lane), run.agent) else {
        return HandlerRunResult::Done;
    };
    while *run.begun < run.max {
        let Some(envelope) = queue.pop_front() else {
            break;
        };
        *run.begun += 1;
        if !agent.ready(&envelope.message) {
            *run.begun -= 1;
            queue.push_front(envelope);
            return HandlerRunResult::NotReady;
        }
        if envelope.call.is_some() {
            run_in_call(agent, envelope, run.cx);
            continue;
        }
        match envelope.reply {
            None => drop(agent.handle(envelope.message, run.cx)),
            Some(reply) if reply.is_abandoned() => {}
            Some(reply) => reply.send(agent.handle(envelope.message, run.cx)),
        }
    }
    HandlerRunResult::Done
}

fn run_in_call<A: SyncHandler<M>, M: Message>(
    agent: &mut A,
    envelope: Envelope<M>,
    cx: &mut Context,
) {
    let Some((message, reply, call, _)) = unpack_if_awaited(envelope) else {
        return;
    };
    cx.enter_call(call, M::NAME);
    let answer = {
        let _span = cx.span(M::NAME).map(|span| span.entered());
        agent.handle(message, cx)
    };
    cx.leave_call(failure_of::<M>(&answer));
    if let Some(reply) = reply {
        reply.send(answer);
    }
}

fn run_exclusive<A: Handler<M>, M: Message>(
    lane: &mut dyn Lane,
    run: HandlerRun<'_, A>,
) -> HandlerRunResult<A> {
    let Some(queue) = downcast_lane::<M>(lane) else {
        return HandlerRunResult::Done;
    };
    match (queue.front(), &run.agent) {
        (Some(head), Some(agent)) if !agent.ready(&head.message) => {
            return HandlerRunResult::NotReady;
        }
        _ => {}
    }
    let Some(envelope) = queue.pop_front() else {
        return HandlerRunResult::Done;
    };
    *run.begun += 1;
    let Some((message, mut reply, call, _)) = unpack_if_awaited(envelope) else {
        return HandlerRunResult::Done;
    };
    let Some(mut agent) = run.agent.take() else {
        return HandlerRunResult::Done;
    };
    let mut cx = run.cx.for_handler(call, reply.is_some(), M::NAME);
    let hop = cx.hop.clone();
    let (cancel, grace) = (cx.cancel.clone(), run.profile.cancel_grace);
    let span = cx.span(M::NAME);
    if reply.is_none() && cx.call.is_none() {
        // A plain tell can't be cancelled, so nothing needs to watch for it.
        return HandlerRunResult::Exclusive(Box::pin(async move {
            agent.handle(message, &mut cx).await;
            (agent, true)
        }));
    }
    let flight = async move {
        let call = cx.call.clone();
        let answer = {
            let work = std::pin::pin!(agent.handle(message, &mut cx));
            run_until_cancelled(work, reply.as_mut(), call.as_deref(), cancel, grace).await
        };
        let ended = answer.is_some();
        finish_hop::<M>(hop, answer.as_ref());
        send_reply(reply, answer);
        (agent, ended)
    };
    HandlerRunResult::Exclusive(match span {
        Some(span) => Box::pin(tracing::Instrument::instrument(flight, span)),
        None => Box::pin(flight),
    })
}

fn run_concurrent<A: ConcurrentHandler<M>, M: Message>(
    lane: &mut dyn Lane,
    run: HandlerRun<'_, A>,
) -> HandlerRunResult<A> {
    let (Some(queue), Some(agent)) = (downcast_lane::<M>(lane), run.agent) else {
        return HandlerRunResult::Done;
    };
    if queue
        .front()
        .is_some_and(|head| !agent.ready(&head.message))
    {
        return HandlerRunResult::NotReady;
    }
    let Some(envelope) = queue.pop_front() else {
        return HandlerRunResult::Done;
    };
    *run.begun += 1;
    match unpack_if_awaited(envelope) {
        Some(wanted) => {
            HandlerRunResult::Concurrent(begin_concurrent(agent, run.cx, run.profile, wanted))
        }
        None => HandlerRunResult::Done,
    }
}

fn run_concurrent_fn<A: Agent, M: Message, Fut>(
    handle: impl Fn(&mut A, M, Context) -> Fut,
    lane: &mut dyn Lane,
    run: HandlerRun<'_, A>,
) -> HandlerRunResult<A>
where
    Fut: Future<Output = M::Reply> + Send + 'static,
{
    let (Some(queue), Some(agent)) = (downcast_lane::<M>(lane), run.agent) else {
        return HandlerRunResult::Done;
    };
    let Some(envelope) = queue.pop_front() else {
        return HandlerRunResult::Done;
    };
    *run.begun += 1;
    match unpack_if_awaited(envelope) {
        Some(wanted) => {
            let handle = |message, cx| handle(agent, message, cx);
            HandlerRunResult::Concurrent(start_concurrent(run.cx, run.profile, wanted, handle))
        }
        None => HandlerRunResult::Done,
    }
}

/// Starts the concurrent handler of an agent (see [`start_concurrent`]).
fn begin_concurrent<A: ConcurrentHandler<M>, M: Message>(
    agent: &mut A,
    cx: &Context,
    profile: &AgentProfile,
    wanted: UnpackedEnvelope<M>,
) -> BoxFuture<'static, bool> {
    start_concurrent(cx, profile, wanted, |message, cx| agent.handle(message, cx))
}

/// Starts a concurrent handler and returns its future, which resolves to false if the handler
/// panics.
fn start_concurrent<M: Message, Fut>(
    cx: &Context,
    profile: &AgentProfile,
    (message, mut reply, call, permit): UnpackedEnvelope<M>,
    handle: impl FnOnce(M, Context) -> Fut,
) -> BoxFuture<'static, bool>
where
    Fut: Future<Output = M::Reply> + Send + 'static,
{
    let cx = cx.for_handler(call.clone(), reply.is_some(), M::NAME);
    let hop = cx.hop.clone();
    let (cancel, grace) = (cx.cancel.clone(), profile.cancel_grace);
    let span = cx.span(M::NAME);
    // Boxed first: a future that holds another and awaits it reserves room for it twice.
    let work = Box::pin(handle(message, cx));
    let flight = async move {
        let answer =
            run_until_cancelled(work, reply.as_mut(), call.as_deref(), cancel, grace).await;
        // The handler has ended. Before the reply, so that the caller's next call finds it free.
        drop(permit);
        finish_hop::<M>(hop, answer.as_ref());
        send_reply(reply, answer);
    };
    let flight = std::panic::AssertUnwindSafe(flight)
        .catch_unwind()
        .map(|end| end.is_ok());
    match span {
        Some(span) => Box::pin(tracing::Instrument::instrument(flight, span)),
        None => Box::pin(flight),
    }
}

/// Records the end of a handler within a call, if events are read. `reply` is `None` if it was dropped.
fn finish_hop<M: Message>(hop: Option<Arc<Hop>>, reply: Option<&M::Reply>) {
    let Some(hop) = hop else { return };
    match reply {
        Some(reply) => hop.finish(failure_of::<M>(reply)),
        None => hop.finish(Some(FailureKind::Cancelled)),
    }
}

/// Returns the kind of the failure in a reply to a message by name; `None` for other replies, whose types aren't known.
fn failure_of<M: Message>(reply: &M::Reply) -> Option<FailureKind> {
    let reply = (reply as &dyn Any).downcast_ref::<RawReply>()?;
    reply.as_ref().err().map(|failure| failure.kind)
}

/// Parts of an envelope: message, reply channel and call, and the call's place in the handlers that
/// principals share.
type UnpackedEnvelope<M> = (
    M,
    Option<ReplySender<<M as Message>::Reply>>,
    Option<Arc<CallContext>>,
    Option<Arc<SharePermit>>,
);

/// Returns the parts of an envelope; `None` if its caller no longer wants the reply.
fn unpack_if_awaited<M: Message>(envelope: Envelope<M>) -> Option<UnpackedEnvelope<M>> {
    let Envelope {
        message,
        reply,
        call,
    } = envelope;
    // Before the check of the caller, who gives the place up only after the reply.
    let permit = call.as_ref().and_then(|call| call.handler.hold());
    if reply.as_ref().is_some_and(ReplySender::is_abandoned) {
        return None;
    }
    if call.as_ref().is_some_and(|c| c.is_over()) {
        if let Some(reply) = reply {
            reply.fail(NoReplyReason::Cancelled);
        }
        return None;
    }
    Some((message, reply, call, permit))
}

/// Awaits `work`, the future of a handler, until its caller no longer wants the reply. Then cancels
/// the handler's token and waits `grace` longer. Returns `None` if the handler hasn't finished by
/// then.
async fn run_until_cancelled<F: Future + Unpin, R>(
    mut work: F,
    reply: Option<&mut ReplySender<R>>,
    call: Option<&CallContext>,
    cancel: Option<CancellationToken>,
    grace: std::time::Duration,
) -> Option<F::Output> {
    tokio::select! {
        biased;
        answer = &mut work => return Some(answer),
        Some(()) = OptionFuture::from(reply.map(ReplySender::abandoned)) => {}
        Some(()) = OptionFuture::from(call.map(CallContext::wait_until_over)) => {}
    }
    if let Some(cancel) = cancel {
        cancel.cancel();
    }
    tokio::time::timeout(grace, work).await.ok()
}

fn send_reply<R>(reply: Option<ReplySender<R>>, answer: Option<R>) {
    match (reply, answer) {
        (Some(reply), Some(answer)) => reply.send(answer),
        (Some(reply), None) => reply.fail(NoReplyReason::Cancelled),
        (None, _) => {}
    }
}
