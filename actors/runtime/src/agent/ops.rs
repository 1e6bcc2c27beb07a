//! What an agent type can do with one message type: typed inside, the same to look at from outside.

use std::any::{Any, TypeId};
use std::marker::PhantomData;
use std::sync::Arc;

use callboard_message::{Failure, Message, MessageSpec, RawReply};
use futures::FutureExt;
use futures::future::{BoxFuture, OptionFuture};
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::cx::Cx;
use super::{Agent, ConcurrentHandler, Handler, Profile, SyncHandler};
use crate::call::CallMeta;
use crate::cell::{Cell, OnTheSpot};
use crate::handle::ask::Ask;
use crate::handle::{Accept, Port, Recipient};
use crate::mailbox::lane::{Envelope, Lane, NoReply, Queue, Replier, typed};

/// What a run over the head of the queue needs.
pub(crate) struct Run<'a, A> {
    pub(crate) agent: &'a mut Option<A>,
    pub(crate) cx: &'a mut Cx,
    pub(crate) profile: &'a Profile,
    /// Messages taken from the lane, kept even when a handler panics.
    pub(crate) begun: &'a mut u32,
    /// Messages that may be taken.
    pub(crate) max: u32,
}

pub(crate) enum Ran<A> {
    /// As many as `begun` says are done.
    Done,
    /// The agent isn't ready for the head.
    NotReady,
    /// The head runs with the agent in it; `false` where its handler was dropped at an await.
    Exclusive(BoxFuture<'static, (A, bool)>),
    /// The head runs beside the agent; `false` where it panicked.
    Concurrent(BoxFuture<'static, bool>),
}

/// The direct way into a synchronous handler.
pub(crate) struct Direct<A: Agent, M: Message> {
    pub(crate) handle: fn(&mut A, M, &mut Cx) -> M::Reply,
    pub(crate) ready: fn(&A, &M) -> bool,
}

/// The direct way to begin a concurrent handler.
pub(crate) struct Begin<A: Agent, M: Message> {
    pub(crate) begin: fn(&mut A, &Cx, &Profile, Wanted<M>) -> BoxFuture<'static, bool>,
    pub(crate) ready: fn(&A, &M) -> bool,
    pub(crate) in_flight_max: u32,
}

/// What an asker can do without the host.
pub(crate) enum Shortcut<A: Agent, M: Message> {
    None,
    All(Direct<A, M>),
    Beginning(Begin<A, M>),
}

/// A message that may be answered on the spot.
pub(crate) struct Exchange<M: Message> {
    pub(crate) message: Option<M>,
    pub(crate) spot: OnTheSpot<M::Reply>,
}

pub(crate) trait Op<A: Agent>: Send + Sync {
    fn message(&self) -> TypeId;
    fn name(&self) -> &'static str;
    fn spec(&self) -> Option<MessageSpec>;
    /// Whether the message can be written as JSON, so that it can be asked by name.
    fn has_wire(&self) -> bool;
    /// How many handlers of this kind may be suspended at once; `None` for those that have the agent to themselves.
    fn in_flight_max(&self) -> Option<u32>;
    /// Begins on the head of `lane`.
    fn run(&self, lane: &mut dyn Lane, run: Run<'_, A>) -> Ran<A>;
    /// Sets the head of `queue` aside.
    fn stash(&self, queue: &mut Queue, stash: &mut Queue);
    /// Does an [`Exchange`] in place, or begins it there, if it can.
    fn in_place(
        &self,
        cell: &Cell<A>,
        lane: u16,
        exchange: &mut dyn Any,
        call: Option<&Arc<CallMeta>>,
    );
    /// A `Recipient<M>`.
    fn recipient(&self, cell: Arc<Cell<A>>, lane: u16) -> Box<dyn Any>;
    /// Asks by name with JSON.
    fn ask_named(
        &self,
        cell: Arc<Cell<A>>,
        lane: u16,
        payload: Box<RawValue>,
        call: Option<Arc<CallMeta>>,
    ) -> BoxFuture<'static, RawReply>;
}

macro_rules! op {
    ($op:ident, $handler:ident, $shortcut:expr, $in_flight_max:expr, $run:ident) => {
        impl<A: $handler<M>, M: Message> Op<A> for $op<M> {
            fn message(&self) -> TypeId {
                TypeId::of::<M>()
            }

            fn name(&self) -> &'static str {
                M::NAME
            }

            fn spec(&self) -> Option<MessageSpec> {
                M::wire().map(|wire| wire.spec())
            }

            fn has_wire(&self) -> bool {
                M::wire().is_some()
            }

            fn in_flight_max(&self) -> Option<u32> {
                ($in_flight_max)(self)
            }

            fn run(&self, lane: &mut dyn Lane, run: Run<'_, A>) -> Ran<A> {
                $run::<A, M>(lane, run)
            }

            fn stash(&self, queue: &mut Queue, stash: &mut Queue) {
                queue.shift_head::<M>(stash);
            }

            fn in_place(
                &self,
                cell: &Cell<A>,
                lane: u16,
                exchange: &mut dyn Any,
                call: Option<&Arc<CallMeta>>,
            ) {
                if let Some(exchange) = exchange.downcast_mut::<Exchange<M>>() {
                    let shortcut: Shortcut<A, M> = ($shortcut)(self);
                    exchange.spot = cell.shortcut(&shortcut, lane, &mut exchange.message, call);
                }
            }

            fn recipient(&self, cell: Arc<Cell<A>>, lane: u16) -> Box<dyn Any> {
                Box::new(Recipient::<M>::new(Arc::new(Port {
                    cell,
                    lane,
                    shortcut: ($shortcut)(self),
                })))
            }

            fn ask_named(
                &self,
                cell: Arc<Cell<A>>,
                lane: u16,
                payload: Box<RawValue>,
                call: Option<Arc<CallMeta>>,
            ) -> BoxFuture<'static, RawReply> {
                let port = Port {
                    cell,
                    lane,
                    shortcut: ($shortcut)(self),
                };
                Box::pin(async move {
                    let Some(wire) = M::wire() else {
                        return Err(Failure::not_found(format!(
                            "{} is not for use from outside",
                            M::NAME
                        )));
                    };
                    let message =
                        (wire.decode)(&payload).map_err(|e| Failure::invalid(e.to_string()))?;
                    let port: &dyn Accept<M> = &port;
                    let reply = Ask::new(&port, message).within_call(call).await?;
                    (wire.encode_reply)(reply)
                })
            }
        }
    };
}

pub(super) struct SyncOp<M>(pub(super) PhantomData<fn(M)>);
pub(super) struct ExclusiveOp<M>(pub(super) PhantomData<fn(M)>);
/// With the most handlers in flight, at least 1.
pub(super) struct ConcurrentOp<M>(pub(super) u32, pub(super) PhantomData<fn(M)>);

op!(
    SyncOp,
    SyncHandler,
    |_: &Self| Shortcut::All(Direct {
        handle: <A as SyncHandler<M>>::handle,
        ready: <A as SyncHandler<M>>::ready
    }),
    |_: &Self| None,
    run_sync
);
op!(
    ExclusiveOp,
    Handler,
    |_: &Self| Shortcut::None,
    |_: &Self| None,
    run_exclusive
);
op!(
    ConcurrentOp,
    ConcurrentHandler,
    |op: &Self| Shortcut::Beginning(Begin {
        begin: begin::<A, M>,
        ready: <A as ConcurrentHandler<M>>::ready,
        in_flight_max: op.0
    }),
    |op: &Self| Some(op.0),
    run_concurrent
);

fn run_sync<A: SyncHandler<M>, M: Message>(lane: &mut dyn Lane, run: Run<'_, A>) -> Ran<A> {
    let (Some(queue), Some(agent)) = (typed::<M>(lane), run.agent) else {
        return Ran::Done;
    };
    while *run.begun < run.max {
        let Some(envelope) = queue.pop_front() else {
            break;
        };
        *run.begun += 1;
        if !agent.ready(&envelope.message) {
            *run.begun -= 1;
            queue.push_front(envelope);
            return Ran::NotReady;
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
    Ran::Done
}

fn run_in_call<A: SyncHandler<M>, M: Message>(agent: &mut A, envelope: Envelope<M>, cx: &mut Cx) {
    let Some((message, reply, call)) = wanted(envelope) else {
        return;
    };
    cx.call = call;
    let answer = {
        let _span = cx.span(M::NAME).map(|span| span.entered());
        agent.handle(message, cx)
    };
    cx.call = None;
    if let Some(reply) = reply {
        reply.send(answer);
    }
}

fn run_exclusive<A: Handler<M>, M: Message>(lane: &mut dyn Lane, run: Run<'_, A>) -> Ran<A> {
    let Some(queue) = typed::<M>(lane) else {
        return Ran::Done;
    };
    match (queue.front(), &run.agent) {
        (Some(head), Some(agent)) if !agent.ready(&head.message) => return Ran::NotReady,
        _ => {}
    }
    let Some(envelope) = queue.pop_front() else {
        return Ran::Done;
    };
    *run.begun += 1;
    let Some((message, mut reply, call)) = wanted(envelope) else {
        return Ran::Done;
    };
    let Some(mut agent) = run.agent.take() else {
        return Ran::Done;
    };
    let mut cx = run.cx.for_handler(call, reply.is_some());
    let (cancel, grace) = (cx.cancel.clone(), run.profile.cancel_grace);
    let span = cx.span(M::NAME);
    if reply.is_none() && cx.call.is_none() {
        // A plain tell: nobody can stop wanting it, so nothing has to watch.
        return Ran::Exclusive(Box::pin(async move {
            agent.handle(message, &mut cx).await;
            (agent, true)
        }));
    }
    let flight = async move {
        let call = cx.call.clone();
        let answer = {
            let work = std::pin::pin!(agent.handle(message, &mut cx));
            watched(work, reply.as_mut(), call.as_deref(), cancel, grace).await
        };
        let ended = answer.is_some();
        finish(reply, answer);
        (agent, ended)
    };
    Ran::Exclusive(match span {
        Some(span) => Box::pin(tracing::Instrument::instrument(flight, span)),
        None => Box::pin(flight),
    })
}

fn run_concurrent<A: ConcurrentHandler<M>, M: Message>(
    lane: &mut dyn Lane,
    run: Run<'_, A>,
) -> Ran<A> {
    let (Some(queue), Some(agent)) = (typed::<M>(lane), run.agent) else {
        return Ran::Done;
    };
    if queue
        .front()
        .is_some_and(|head| !agent.ready(&head.message))
    {
        return Ran::NotReady;
    }
    let Some(envelope) = queue.pop_front() else {
        return Ran::Done;
    };
    *run.begun += 1;
    match wanted(envelope) {
        Some(wanted) => Ran::Concurrent(begin(agent, run.cx, run.profile, wanted)),
        None => Ran::Done,
    }
}

/// Begins a concurrent handler; `false` where it panics on the way.
fn begin<A: ConcurrentHandler<M>, M: Message>(
    agent: &mut A,
    cx: &Cx,
    profile: &Profile,
    (message, mut reply, call): Wanted<M>,
) -> BoxFuture<'static, bool> {
    let cx = cx.for_handler(call.clone(), reply.is_some());
    let (cancel, grace) = (cx.cancel.clone(), profile.cancel_grace);
    let span = cx.span(M::NAME);
    // Boxed before anything is built around it: what holds a future and awaits it has room for it twice.
    let work = Box::pin(agent.handle(message, cx));
    let flight = async move {
        let answer = watched(work, reply.as_mut(), call.as_deref(), cancel, grace).await;
        finish(reply, answer);
    };
    let flight = std::panic::AssertUnwindSafe(flight)
        .catch_unwind()
        .map(|end| end.is_ok());
    match span {
        Some(span) => Box::pin(tracing::Instrument::instrument(flight, span)),
        None => Box::pin(flight),
    }
}

/// What is left of an envelope whose reply somebody waits for.
type Wanted<M> = (
    M,
    Option<Replier<<M as Message>::Reply>>,
    Option<Arc<CallMeta>>,
);

/// The parts of an envelope whose reply somebody still waits for.
fn wanted<M: Message>(envelope: Envelope<M>) -> Option<Wanted<M>> {
    let Envelope {
        message,
        reply,
        call,
    } = envelope;
    if reply.as_ref().is_some_and(Replier::is_abandoned) {
        return None;
    }
    if call.as_ref().is_some_and(|c| c.is_over()) {
        if let Some(reply) = reply {
            reply.fail(NoReply::Cancelled);
        }
        return None;
    }
    Some((message, reply, call))
}

/// Runs `work` until the caller no longer wants it, then tells the handler and gives it `grace`.
async fn watched<F: Future + Unpin, R>(
    mut work: F,
    reply: Option<&mut Replier<R>>,
    call: Option<&CallMeta>,
    cancel: Option<CancellationToken>,
    grace: std::time::Duration,
) -> Option<F::Output> {
    tokio::select! {
        biased;
        answer = &mut work => return Some(answer),
        Some(()) = OptionFuture::from(reply.map(Replier::abandoned)) => {}
        Some(()) = OptionFuture::from(call.map(CallMeta::over)) => {}
    }
    if let Some(cancel) = cancel {
        cancel.cancel();
    }
    tokio::time::timeout(grace, work).await.ok()
}

fn finish<R>(reply: Option<Replier<R>>, answer: Option<R>) {
    match (reply, answer) {
        (Some(reply), Some(answer)) => reply.send(answer),
        (Some(reply), None) => reply.fail(NoReply::Cancelled),
        (None, _) => {}
    }
}
