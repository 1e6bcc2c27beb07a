//! Futures of the sender's side: tell, ask and call.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use callboard_message::capabilities::RESERVED_PREFIX;
use callboard_message::{Failure, Message, Principal, RawMessage, log};
use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, DropGuard, WaitForCancellationFutureOwned};

use super::{AgentRef, SendError, Target, TellEnvelope, sealed};
use crate::agent_cell::inline_handler::InlineHandler;
use crate::agent_cell::{AnyAgentCell, InlineResult, SendStatus};
use crate::call::{CallContext, CallEvent, channel_caller};
use crate::mailbox::lane::{Envelope, NoReplyReason, ReplyReceiver, reply_channel};
use crate::mailbox::queue::WaiterId;

enum AskState<M: Message> {
    New,
    /// The sender waits for room in the mailbox. Boxed to keep all other asks small.
    Waiting(Box<WaitingForRoom<M>>),
    Sent(ReplyReceiver<M::Reply>),
    /// The agent's handler runs in the caller's task, polled by this future.
    Inline(InlineHandler<M::Reply>),
    /// The agent is a proxy, to which the message was sent as JSON. The future resolves to the
    /// decoded reply.
    Proxied(BoxFuture<'static, Result<M::Reply, Failure>>),
    Done,
}

struct WaitingForRoom<M: Message> {
    slot: Option<Envelope<M>>,
    place: Option<WaiterId>,
    answered: ReplyReceiver<M::Reply>,
    /// Future that completes when the call is cancelled. Needed because the message isn't queued
    /// yet, so no handler would notice.
    cancelled: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

/// Future that sends a message and resolves to its reply. See [`AgentRef::ask`].
#[must_use = "an ask does nothing until it is awaited"]
pub struct Ask<'a, M: Message, T: Target<M>> {
    to: &'a T,
    /// The message, until it is sent.
    message: Option<M>,
    state: AskState<M>,
    call: Option<Arc<CallContext>>,
    waits_for_room: bool,
    limits: Option<Box<AskLimits>>,
}

/// Optional limits of an ask, boxed because most asks have none.
#[derive(Default)]
struct AskLimits {
    within: Option<Duration>,
    hops_max_met: Option<u16>,
    began: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<'a, M: Message, T: Target<M>> Ask<'a, M, T> {
    #[inline]
    pub(crate) fn new(to: &'a T, message: M) -> Self {
        Self {
            to,
            message: Some(message),
            state: AskState::New,
            call: None,
            waits_for_room: true,
            limits: None,
        }
    }

    /// Sets a time limit; the shortest one set applies. When it passes, the ask fails with
    /// [`SendError::TimedOut`] and the handler is cancelled.
    pub fn within(mut self, limit: Duration) -> Self {
        let within = &mut self.limits.get_or_insert_default().within;
        *within = Some(within.map_or(limit, |l| l.min(limit)));
        self
    }

    /// Makes the ask fail with [`SendError::Full`] at once if the mailbox has no room.
    pub fn without_waiting(mut self) -> Self {
        self.waits_for_room = false;
        self
    }

    /// Sends the message as part of `call`, without counting a hop. `None` sends it outside of any
    /// call.
    pub fn within_call(mut self, call: Option<Arc<CallContext>>) -> Self {
        if call.as_ref().is_some_and(|c| c.deadline.is_some()) {
            self.limits.get_or_insert_default();
        }
        self.call = call;
        self
    }

    pub(crate) fn with_hops_exhausted(mut self, hops_max: u16) -> Self {
        self.limits.get_or_insert_default().hops_max_met = Some(hops_max);
        self
    }

    /// Sets the time limit as the call's deadline, so that the callee knows it.
    fn limit_call(&mut self) -> Result<(), SendError<M>> {
        let Some(limits) = &mut self.limits else {
            return Ok(());
        };
        if let Some(hops_max) = limits.hops_max_met {
            return Err(SendError::TooManyHops { hops_max });
        }
        limits.began = Some(Instant::now());
        if let Some(within) = limits.within {
            let call = self.call.take().map(Arc::unwrap_or_clone);
            let call = call.unwrap_or_else(|| CallContext::new(Arc::new(Principal::system())));
            self.call = Some(Arc::new(call.with_deadline(Instant::now() + within)));
        }
        Ok(())
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (Some(limits), Some(call)) = (&mut self.limits, &self.call) else {
            return Poll::Pending;
        };
        let Some(deadline) = call.deadline else {
            return Poll::Pending;
        };
        let timer = limits
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        timer.as_mut().poll(cx)
    }

    /// Handles the message in the caller's task if possible, otherwise sends it to the agent's
    /// mailbox.
    #[inline]
    fn begin(&mut self, cx: &Context<'_>) -> Result<AskState<M>, Result<M::Reply, SendError<M>>> {
        self.limit_call().map_err(Err)?;
        match self.to.in_place(&mut self.message, self.call.as_ref()) {
            InlineResult::NotRun => {}
            InlineResult::Answer(answer) => return Err(answer.map_err(|why| self.no_reply(why))),
            InlineResult::Started(handler) => return Ok(AskState::Inline(handler)),
        }
        let Some(message) = self.message.take() else {
            return Err(Err(SendError::Panicked));
        };
        let (reply, answered) = reply_channel();
        let mut slot = Some(Envelope {
            message,
            reply: Some(reply),
            call: self.call.clone(),
        });
        let mut place = None;
        let pushed = match self.waits_for_room {
            true => self.to.wait(&mut slot, &mut place, cx.waker()),
            false => self.to.admit(&mut slot),
        };
        match pushed {
            SendStatus::Queued => Ok(AskState::Sent(answered)),
            SendStatus::Waiting => {
                let cancelled = self
                    .call
                    .as_ref()
                    .map(|call| Box::pin(call.cancel.clone().cancelled_owned()));
                Ok(AskState::Waiting(Box::new(WaitingForRoom {
                    slot,
                    place,
                    answered,
                    cancelled,
                })))
            }
            other => self.reject_or_proxy(other, slot).map_err(Err),
        }
    }

    /// Tries again to queue the message after a wake-up.
    fn retry_admit(
        &mut self,
        mut waiting: Box<WaitingForRoom<M>>,
        cx: &Context<'_>,
    ) -> Result<AskState<M>, SendError<M>> {
        match self
            .to
            .wait(&mut waiting.slot, &mut waiting.place, cx.waker())
        {
            SendStatus::Queued => Ok(AskState::Sent(waiting.answered)),
            SendStatus::Waiting => Ok(AskState::Waiting(waiting)),
            other => self.reject_or_proxy(other, waiting.slot.take()),
        }
    }

    #[cold]
    fn reject_or_proxy(
        &self,
        pushed: SendStatus,
        slot: Option<Envelope<M>>,
    ) -> Result<AskState<M>, SendError<M>> {
        let Some(Envelope { message, .. }) = slot else {
            return Err(SendError::Stopped);
        };
        if let (SendStatus::NotHandled, Some(agent), Some(wire)) =
            (&pushed, self.to.as_proxy(), M::codec())
        {
            return Ok(ask_proxy(agent, wire, &message, self.call.clone()));
        }
        Err(rejection(self.to, pushed, Some(message))
            .err()
            .unwrap_or(SendError::Stopped))
    }
}

/// Number of asks on one thread that use up one unit of its tokio budget.
const ASKS_PER_BUDGET_UNIT: u32 = 32;

thread_local! {
    static ASKS: Cell<u32> = const { Cell::new(0) };
}

/// Returns true if the current task has used up its tokio budget and must return `Pending`; it is
/// woken again. Asks handled in the caller's task never suspend, so a loop of them would otherwise
/// starve the thread.
#[inline]
fn must_yield(cx: &mut Context<'_>) -> bool {
    let asks = ASKS.get().wrapping_add(1);
    ASKS.set(asks);
    if !asks.is_multiple_of(ASKS_PER_BUDGET_UNIT) {
        return false;
    }
    let mut turn = std::pin::pin!(tokio::task::consume_budget());
    turn.as_mut().poll(cx).is_pending()
}

/// Sends a typed message to a proxy agent as JSON and decodes the reply.
fn ask_proxy<M: Message>(
    agent: AgentRef,
    wire: &'static callboard_message::MessageCodec<M>,
    message: &M,
    call: Option<Arc<CallContext>>,
) -> AskState<M> {
    let payload = (wire.encode)(message).map_err(|e| Failure::internal(e.to_string()));
    AskState::Proxied(Box::pin(async move {
        let reply = match payload {
            Ok(payload) => agent.ask_named(M::NAME, payload, call).await,
            Err(failure) => Err(failure),
        };
        (wire.decode_reply)(reply)
    }))
}

impl<M: Message, T: Target<M>> Unpin for Ask<'_, M, T> {}

impl<M: Message, T: Target<M>> Future for Ask<'_, M, T> {
    type Output = Result<M::Reply, SendError<M>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.state = loop {
            this.state = match std::mem::replace(&mut this.state, AskState::Done) {
                AskState::New => {
                    if must_yield(cx) {
                        this.state = AskState::New;
                        return Poll::Pending;
                    }
                    match this.begin(cx) {
                        Ok(state) => state,
                        Err(answer) => return Poll::Ready(answer),
                    }
                }
                AskState::Waiting(waiting) => match this.retry_admit(waiting, cx) {
                    Ok(AskState::Waiting(mut waiting)) => {
                        if waiting
                            .cancelled
                            .as_mut()
                            .is_some_and(|gone| gone.as_mut().poll(cx).is_ready())
                        {
                            this.state = AskState::Waiting(waiting);
                            this.cancel_wait();
                            this.state = AskState::Done;
                            return Poll::Ready(Err(SendError::Cancelled));
                        }
                        break AskState::Waiting(waiting);
                    }
                    Ok(state) => state,
                    Err(error) => return Poll::Ready(Err(error)),
                },
                AskState::Sent(mut answered) => {
                    if let Poll::Ready(answer) = Pin::new(&mut answered).poll(cx) {
                        return Poll::Ready(match answer {
                            Ok(Ok(reply)) => Ok(reply),
                            Ok(Err(why)) => Err(this.no_reply(why)),
                            // A `ReplySender` always sends a result, also when it is dropped.
                            Err(_) => Err(SendError::Stopped),
                        });
                    }
                    break AskState::Sent(answered);
                }
                AskState::Inline(mut handler) => {
                    if let Poll::Ready(answer) = Pin::new(&mut handler).poll(cx) {
                        return Poll::Ready(answer.map_err(|why| this.no_reply(why)));
                    }
                    // The handler itself wakes this task when the call is over, so a timer is
                    // needed only from then on.
                    if !this.call.as_ref().is_some_and(|call| call.is_over()) {
                        this.state = AskState::Inline(handler);
                        return Poll::Pending;
                    }
                    break AskState::Inline(handler);
                }
                AskState::Proxied(mut answer) => {
                    if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
                        return Poll::Ready(answer.map_err(SendError::Failed));
                    }
                    break AskState::Proxied(answer);
                }
                // Polled after completion.
                AskState::Done => return Poll::Pending,
            }
        };
        ready!(this.poll_timer(cx));
        Poll::Ready(Err(this.timed_out()))
    }
}

impl<M: Message, T: Target<M>> Ask<'_, M, T> {
    /// Converts a missing reply to an error. A cancelled handler counts as a timeout if the call's
    /// deadline has passed.
    #[cold]
    fn no_reply(&mut self, why: NoReplyReason) -> SendError<M> {
        let deadline = self.call.as_ref().and_then(|call| call.deadline);
        match why {
            NoReplyReason::Cancelled
                if deadline.is_some_and(|deadline| Instant::now() >= deadline) =>
            {
                self.timed_out()
            }
            NoReplyReason::Cancelled => SendError::Cancelled,
            NoReplyReason::Panicked => SendError::Panicked,
            NoReplyReason::Stopped => SendError::Stopped,
            NoReplyReason::StashFull => SendError::StashFull,
        }
    }

    fn timed_out(&mut self) -> SendError<M> {
        self.cancel_wait();
        self.state = AskState::Done;
        let began = self.limits.as_ref().and_then(|limits| limits.began);
        SendError::TimedOut(began.map(|began| began.elapsed()).unwrap_or_default())
    }

    fn cancel_wait(&self) {
        if let AskState::Waiting(waiting) = &self.state
            && let Some(place) = waiting.place
        {
            self.to.forget(place);
        }
    }
}

impl<M: Message, T: Target<M>> Drop for Ask<'_, M, T> {
    fn drop(&mut self) {
        self.cancel_wait();
    }
}

pub(crate) fn try_tell<M: Message, T: Target<M>>(to: &T, message: M) -> Result<(), SendError<M>> {
    let mut slot = Some(message);
    match to.admit(&mut TellEnvelope(&mut slot)) {
        SendStatus::Queued => Ok(()),
        SendStatus::NotHandled => match encode_for_proxy(to, slot.as_ref())? {
            Some((agent, named)) => {
                match sealed::Target::<RawMessage>::admit(
                    &agent,
                    &mut TellEnvelope(&mut Some(named)),
                ) {
                    SendStatus::Queued => Ok(()),
                    pushed => rejection(&agent, pushed, slot),
                }
            }
            None => rejection(to, SendStatus::NotHandled, slot),
        },
        pushed => rejection(to, pushed, slot),
    }
}

/// Encodes the message as JSON if the target is a proxy agent and the message has a codec.
fn encode_for_proxy<M: Message, T: Target<M>>(
    to: &T,
    message: Option<&M>,
) -> Result<Option<(AgentRef, RawMessage)>, SendError<M>> {
    let (Some(agent), Some(wire), Some(message)) = (to.as_proxy(), M::codec(), message) else {
        return Ok(None);
    };
    let payload =
        (wire.encode)(message).map_err(|e| SendError::Failed(Failure::internal(e.to_string())))?;
    Ok(Some((
        agent,
        RawMessage {
            name: M::NAME.to_owned(),
            payload,
        },
    )))
}

/// Returns the error for a message that the mailbox rejected; `Ok` if the message was queued.
fn rejection<M: Message, T: Target<M>>(
    to: &T,
    pushed: SendStatus,
    message: Option<M>,
) -> Result<(), SendError<M>> {
    let Some(message) = message else {
        return Ok(());
    };
    Err(match pushed {
        SendStatus::Full(capacity) => SendError::Full { message, capacity },
        SendStatus::NotHandled => {
            let error = SendError::NotHandled {
                message,
                agent: describe_agent(to.cell()),
                name: M::NAME,
            };
            // Agents are asked for capabilities that they may lack. Any other message has a wrong
            // receiver or a handler that isn't registered, which a sender may overlook.
            if !M::NAME.starts_with(RESERVED_PREFIX) {
                log::warn!(by: M::NAME, "message not sent: {error}");
            }
            error
        }
        SendStatus::Queued | SendStatus::Waiting | SendStatus::Closed => {
            SendError::Closed { message }
        }
    })
}

/// Returns name and type of an agent; in debug builds also the messages that it has registered.
fn describe_agent(cell: &dyn AnyAgentCell) -> String {
    let name = cell
        .label()
        .map_or_else(|| cell.id().to_string(), |label| label.to_string());
    let kind = cell.type_name();
    if !cfg!(debug_assertions) {
        return format!("{name} ({kind})");
    }
    match &*cell.message_names() {
        [] => format!("{name} ({kind}, which handles nothing)"),
        names => format!("{name} ({kind}, which handles {})", names.join(", ")),
    }
}

/// Future that sends a message and waits for room in the mailbox. See [`AgentRef::tell`].
#[must_use = "a tell does nothing until it is awaited"]
pub struct Tell<'a, M: Message, T: Target<M>> {
    to: &'a T,
    message: Option<M>,
    place: Option<WaiterId>,
    /// Future that sends the message as JSON, if the target is a proxy agent.
    proxied: Option<BoxFuture<'static, Result<(), SendError<RawMessage>>>>,
}

impl<'a, M: Message, T: Target<M>> Tell<'a, M, T> {
    #[inline]
    pub(crate) fn new(to: &'a T, message: M) -> Self {
        Self {
            to,
            message: Some(message),
            place: None,
            proxied: None,
        }
    }

    /// Continues a tell that couldn't be queued at once: waits for room, sends through a proxy, or
    /// fails.
    #[cold]
    fn reject_or_wait(
        &mut self,
        pushed: SendStatus,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError<M>>> {
        let pushed = match pushed {
            SendStatus::Full(_) | SendStatus::Waiting => self.to.wait(
                &mut TellEnvelope(&mut self.message),
                &mut self.place,
                cx.waker(),
            ),
            other => other,
        };
        match pushed {
            SendStatus::Queued => Poll::Ready(Ok(())),
            SendStatus::Waiting => Poll::Pending,
            SendStatus::NotHandled => match encode_for_proxy(self.to, self.message.as_ref())? {
                Some((agent, named)) => {
                    let proxied = self
                        .proxied
                        .insert(Box::pin(async move { agent.tell(named).await }));
                    Self::poll_proxied(proxied, &mut self.message, cx)
                }
                None => Poll::Ready(rejection(self.to, pushed, self.message.take())),
            },
            other => Poll::Ready(rejection(self.to, other, self.message.take())),
        }
    }

    fn poll_proxied(
        proxied: &mut BoxFuture<'static, Result<(), SendError<RawMessage>>>,
        message: &mut Option<M>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError<M>>> {
        let told = ready!(proxied.as_mut().poll(cx));
        // Only the end of the agent can cause an error here: it is a proxy, and the tell waited for
        // room.
        Poll::Ready(match (told, message.take()) {
            (Err(_), Some(message)) => Err(SendError::Closed { message }),
            _ => Ok(()),
        })
    }
}

impl<M: Message, T: Target<M>> Unpin for Tell<'_, M, T> {}

impl<M: Message, T: Target<M>> Future for Tell<'_, M, T> {
    type Output = Result<(), SendError<M>>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Some(proxied) = &mut this.proxied {
            return Self::poll_proxied(proxied, &mut this.message, cx);
        }
        if this.message.is_none() {
            // Polled after completion.
            return Poll::Pending;
        }
        let pushed = match this.place {
            None => this.to.admit(&mut TellEnvelope(&mut this.message)),
            Some(_) => SendStatus::Waiting,
        };
        match pushed {
            SendStatus::Queued => Poll::Ready(Ok(())),
            other => this.reject_or_wait(other, cx),
        }
    }
}

impl<M: Message, T: Target<M>> Drop for Tell<'_, M, T> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.to.forget(place);
        }
    }
}

/// Default time limit of a [`Call`].
pub const CALL_DEADLINE_DEFAULT: Duration = Duration::from_secs(60);

/// Call that hasn't started. Once started, the caller can follow its events and answer its
/// questions. See [`AgentRef::call`].
///
/// ```ignore
/// let mut call = agent.call(AskClinics { query }).start();
/// while let Some(event) = call.next().await { … }
/// let reply = call.reply().await?;
/// ```
#[must_use = "a call does nothing until it is started"]
pub struct Call<M: Message> {
    agent: AgentRef,
    meta: CallContext,
    limit: Duration,
    message: M,
}

impl<M: Message> Call<M> {
    pub(crate) fn new(agent: AgentRef, message: M) -> Self {
        let meta = CallContext::new(Arc::new(Principal::local_operator()));
        Self {
            agent,
            meta,
            limit: CALL_DEADLINE_DEFAULT,
            message,
        }
    }

    /// Sets the principal on whose behalf the call is made; the local operator by default.
    pub fn principal(mut self, principal: Principal) -> Self {
        self.meta.principal = Arc::new(principal);
        self
    }

    /// Sets the time limit; [`CALL_DEADLINE_DEFAULT`] by default.
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Returns a handle for following the call's events and awaiting its reply. The message is
    /// sent, and its time limit begins, when [`RunningCall::next`] or [`RunningCall::reply`] is
    /// first polled.
    pub fn start(self) -> RunningCall<M> {
        let (caller, events) = channel_caller();
        let meta = Arc::new(self.meta.with_caller(Arc::new(caller)));
        let token = meta.cancel.clone();
        let _cancel = token.clone().drop_guard();
        let (agent, body, limit) = (self.agent, self.message, self.limit);
        let reply =
            Box::pin(async move { agent.ask(body).within_call(Some(meta)).within(limit).await });
        RunningCall {
            events,
            reply,
            outcome: None,
            token,
            _cancel,
        }
    }
}

/// Call in progress. Dropping it cancels the call.
pub struct RunningCall<M: Message> {
    events: mpsc::Receiver<CallEvent>,
    reply: BoxFuture<'static, Result<M::Reply, SendError<M>>>,
    outcome: Option<Result<M::Reply, SendError<M>>>,
    token: CancellationToken,
    /// Guard that cancels the call, in all agents that work on it, on drop.
    _cancel: DropGuard,
}

impl<M: Message> RunningCall<M> {
    /// Returns the next event; `None` once the call has ended.
    pub async fn next(&mut self) -> Option<CallEvent> {
        if self.outcome.is_none() {
            tokio::select! {
                biased;
                Some(event) = self.events.recv() => return Some(event),
                outcome = &mut self.reply => self.outcome = Some(outcome),
            }
        }
        // Events sent before the reply are still delivered.
        self.events.try_recv().ok()
    }

    /// Waits for the reply. Pending events are dropped, and questions from now on are refused.
    ///
    /// # Errors
    /// Any [`SendError`].
    pub async fn reply(mut self) -> Result<M::Reply, SendError<M>> {
        self.events.close();
        while self.events.try_recv().is_ok() {}
        match self.outcome.take() {
            Some(outcome) => outcome,
            None => (&mut self.reply).await,
        }
    }

    /// Cancels the call. [`RunningCall::reply`] still resolves to its outcome.
    pub fn cancel(&self) {
        self.token.cancel();
    }
}
