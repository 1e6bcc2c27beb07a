//! Telling, asking, calling: the futures on the sender's side.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use callboard_message::{Failure, Message, Named, Principal};
use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, DropGuard, WaitForCancellationFutureOwned};

use super::{AgentRef, SendError, Target, Told, sealed};
use crate::call::{CallEvent, CallMeta, channel_caller};
use crate::cell::aside::Aside;
use crate::cell::{OnTheSpot, Pushed};
use crate::mailbox::lane::{Envelope, NoReply, ReplySlot, reply_channel};
use crate::mailbox::queue::WaiterId;

enum State<M: Message> {
    New,
    /// In line for room. Boxed: few asks are, and all are moved about.
    Waiting(Box<Waiting<M>>),
    Sent(ReplySlot<M::Reply>),
    /// The handler runs in this task.
    Here(Aside<M::Reply>),
    /// The agent takes messages as JSON.
    Outside(BoxFuture<'static, Result<M::Reply, Failure>>),
    Done,
}

struct Waiting<M: Message> {
    slot: Option<Envelope<M>>,
    place: Option<WaiterId>,
    answered: ReplySlot<M::Reply>,
    /// Fires when the call is cancelled: the mailbox hasn't the message yet, so nobody else would notice.
    cancelled: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

/// Sends a message and waits for its reply. See [`AgentRef::ask`].
#[must_use = "an ask does nothing until it is awaited"]
pub struct Ask<'a, M: Message, T: Target<M>> {
    to: &'a T,
    /// Until it is sent.
    message: Option<M>,
    state: State<M>,
    call: Option<Arc<CallMeta>>,
    waits_for_room: bool,
    limits: Option<Box<Limits>>,
}

/// What most asks don't have.
#[derive(Default)]
struct Limits {
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
            state: State::New,
            call: None,
            waits_for_room: true,
            limits: None,
        }
    }

    /// Gives up after `limit`; the handler is cancelled.
    pub fn within(mut self, limit: Duration) -> Self {
        let within = &mut self.limits.get_or_insert_default().within;
        *within = Some(within.map_or(limit, |l| l.min(limit)));
        self
    }

    /// Answers [`SendError::Full`] at once where there is no room.
    pub fn without_waiting(mut self) -> Self {
        self.waits_for_room = false;
        self
    }

    /// Sends the message as part of `call`, as it is.
    pub fn within_call(mut self, call: Option<Arc<CallMeta>>) -> Self {
        if call.as_ref().is_some_and(|c| c.deadline.is_some()) {
            self.limits.get_or_insert_default();
        }
        self.call = call;
        self
    }

    pub(crate) fn out_of_hops(mut self, hops_max: u16) -> Self {
        self.limits.get_or_insert_default().hops_max_met = Some(hops_max);
        self
    }

    /// Gives the call this ask's own limit as its deadline, so that the callee knows it.
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
            let call = call.unwrap_or_else(|| CallMeta::new(Arc::new(Principal::agent("system"))));
            self.call = Some(Arc::new(call.until(Instant::now() + within)));
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

    /// Has it handled in place if that can be, else sends it.
    #[inline]
    fn begin(&mut self, cx: &Context<'_>) -> Result<State<M>, Result<M::Reply, SendError<M>>> {
        self.limit_call().map_err(Err)?;
        match self.to.in_place(&mut self.message, self.call.as_ref()) {
            OnTheSpot::Nothing => {}
            OnTheSpot::Answer(answer) => return Err(answer.map_err(|why| self.no_reply(why))),
            OnTheSpot::Begun(aside) => return Ok(State::Here(aside)),
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
            Pushed::In => Ok(State::Sent(answered)),
            Pushed::Waiting => {
                let cancelled = self
                    .call
                    .as_ref()
                    .map(|call| Box::pin(call.cancel.clone().cancelled_owned()));
                Ok(State::Waiting(Box::new(Waiting {
                    slot,
                    place,
                    answered,
                    cancelled,
                })))
            }
            other => self.refused_or_outside(other, slot).map_err(Err),
        }
    }

    /// Looks again for room.
    fn look(
        &mut self,
        mut waiting: Box<Waiting<M>>,
        cx: &Context<'_>,
    ) -> Result<State<M>, SendError<M>> {
        match self
            .to
            .wait(&mut waiting.slot, &mut waiting.place, cx.waker())
        {
            Pushed::In => Ok(State::Sent(waiting.answered)),
            Pushed::Waiting => Ok(State::Waiting(waiting)),
            other => self.refused_or_outside(other, waiting.slot.take()),
        }
    }

    #[cold]
    fn refused_or_outside(
        &self,
        pushed: Pushed,
        slot: Option<Envelope<M>>,
    ) -> Result<State<M>, SendError<M>> {
        let Some(Envelope { message, .. }) = slot else {
            return Err(SendError::Stopped);
        };
        if let (Pushed::NotHandled, Some(agent), Some(wire)) =
            (&pushed, self.to.outside(), M::wire())
        {
            return Ok(outside(agent, wire, &message, self.call.clone()));
        }
        Err(refused(self.to, pushed, Some(message))
            .err()
            .unwrap_or(SendError::Stopped))
    }
}

/// Asks on one thread that are one unit of its tokio budget.
const ASKS_A_BUDGET_UNIT: u32 = 32;

thread_local! {
    static ASKS: Cell<u32> = const { Cell::new(0) };
}

/// Asks answered in place never suspend: without this, a loop of them would starve the thread. True where the task has used up its
/// budget and will be woken.
#[inline]
fn must_yield(cx: &mut Context<'_>) -> bool {
    let asks = ASKS.get().wrapping_add(1);
    ASKS.set(asks);
    if !asks.is_multiple_of(ASKS_A_BUDGET_UNIT) {
        return false;
    }
    let mut turn = std::pin::pin!(tokio::task::consume_budget());
    turn.as_mut().poll(cx).is_pending()
}

/// Asks an agent that takes messages as JSON.
fn outside<M: Message>(
    agent: AgentRef,
    wire: &'static callboard_message::Wire<M>,
    message: &M,
    call: Option<Arc<CallMeta>>,
) -> State<M> {
    let payload = (wire.encode)(message).map_err(|e| Failure::internal(e.to_string()));
    State::Outside(Box::pin(async move {
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
            this.state = match std::mem::replace(&mut this.state, State::Done) {
                State::New => {
                    if must_yield(cx) {
                        this.state = State::New;
                        return Poll::Pending;
                    }
                    match this.begin(cx) {
                        Ok(state) => state,
                        Err(answer) => return Poll::Ready(answer),
                    }
                }
                State::Waiting(waiting) => match this.look(waiting, cx) {
                    Ok(State::Waiting(mut waiting)) => {
                        if waiting
                            .cancelled
                            .as_mut()
                            .is_some_and(|gone| gone.as_mut().poll(cx).is_ready())
                        {
                            this.state = State::Waiting(waiting);
                            this.leave_line();
                            this.state = State::Done;
                            return Poll::Ready(Err(SendError::Cancelled));
                        }
                        break State::Waiting(waiting);
                    }
                    Ok(state) => state,
                    Err(error) => return Poll::Ready(Err(error)),
                },
                State::Sent(mut answered) => {
                    if let Poll::Ready(answer) = Pin::new(&mut answered).poll(cx) {
                        return Poll::Ready(match answer {
                            Ok(Ok(reply)) => Ok(reply),
                            Ok(Err(why)) => Err(this.no_reply(why)),
                            // A replier always ends with a word.
                            Err(_) => Err(SendError::Stopped),
                        });
                    }
                    break State::Sent(answered);
                }
                State::Here(mut aside) => {
                    if let Poll::Ready(answer) = Pin::new(&mut aside).poll(cx) {
                        return Poll::Ready(answer.map_err(|why| this.no_reply(why)));
                    }
                    // The handler's own watch wakes this task when the call is over: until then a second timer is of no use.
                    if !this.call.as_ref().is_some_and(|call| call.is_over()) {
                        this.state = State::Here(aside);
                        return Poll::Pending;
                    }
                    break State::Here(aside);
                }
                State::Outside(mut answer) => {
                    if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
                        return Poll::Ready(answer.map_err(SendError::Failed));
                    }
                    break State::Outside(answer);
                }
                // Polled after its end, which callers of futures don't do.
                State::Done => return Poll::Pending,
            }
        };
        ready!(this.poll_timer(cx));
        Poll::Ready(Err(this.timed_out()))
    }
}

impl<M: Message, T: Target<M>> Ask<'_, M, T> {
    /// Error for a missing reply. A handler that was cancelled is a timeout once the call's deadline has passed.
    #[cold]
    fn no_reply(&mut self, why: NoReply) -> SendError<M> {
        let deadline = self.call.as_ref().and_then(|call| call.deadline);
        match why {
            NoReply::Cancelled if deadline.is_some_and(|deadline| Instant::now() >= deadline) => {
                self.timed_out()
            }
            NoReply::Cancelled => SendError::Cancelled,
            NoReply::Panicked => SendError::Panicked,
            NoReply::Stopped => SendError::Stopped,
            NoReply::StashFull => SendError::StashFull,
        }
    }

    fn timed_out(&mut self) -> SendError<M> {
        self.leave_line();
        self.state = State::Done;
        let began = self.limits.as_ref().and_then(|limits| limits.began);
        SendError::TimedOut(began.map(|began| began.elapsed()).unwrap_or_default())
    }

    fn leave_line(&self) {
        if let State::Waiting(waiting) = &self.state
            && let Some(place) = waiting.place
        {
            self.to.forget(place);
        }
    }
}

impl<M: Message, T: Target<M>> Drop for Ask<'_, M, T> {
    fn drop(&mut self) {
        self.leave_line();
    }
}

pub(crate) fn try_tell<M: Message, T: Target<M>>(to: &T, message: M) -> Result<(), SendError<M>> {
    let mut slot = Some(message);
    match to.admit(&mut Told(&mut slot)) {
        Pushed::In => Ok(()),
        Pushed::NotHandled => match named(to, slot.as_ref())? {
            Some((agent, named)) => {
                match sealed::Target::<Named>::admit(&agent, &mut Told(&mut Some(named))) {
                    Pushed::In => Ok(()),
                    pushed => refused(&agent, pushed, slot),
                }
            }
            None => refused(to, Pushed::NotHandled, slot),
        },
        pushed => refused(to, pushed, slot),
    }
}

/// The message as JSON, where the agent takes those.
fn named<M: Message, T: Target<M>>(
    to: &T,
    message: Option<&M>,
) -> Result<Option<(AgentRef, Named)>, SendError<M>> {
    let (Some(agent), Some(wire), Some(message)) = (to.outside(), M::wire(), message) else {
        return Ok(None);
    };
    let payload =
        (wire.encode)(message).map_err(|e| SendError::Failed(Failure::internal(e.to_string())))?;
    Ok(Some((
        agent,
        Named {
            name: M::NAME.to_owned(),
            payload,
        },
    )))
}

/// The error, where the message came back.
fn refused<M: Message, T: Target<M>>(
    to: &T,
    pushed: Pushed,
    message: Option<M>,
) -> Result<(), SendError<M>> {
    let Some(message) = message else {
        return Ok(());
    };
    Err(match pushed {
        Pushed::Full(capacity) => SendError::Full { message, capacity },
        Pushed::NotHandled => {
            let cell = to.cell();
            let agent = cell
                .label()
                .map_or_else(|| cell.id().to_string(), |label| label.to_string());
            SendError::NotHandled {
                message,
                agent,
                name: M::NAME,
            }
        }
        Pushed::In | Pushed::Waiting | Pushed::Closed => SendError::Closed { message },
    })
}

/// Sends a message and waits for room. See [`AgentRef::tell`].
#[must_use = "a tell does nothing until it is awaited"]
pub struct Tell<'a, M: Message, T: Target<M>> {
    to: &'a T,
    message: Option<M>,
    place: Option<WaiterId>,
    /// To an agent that takes messages as JSON.
    outside: Option<BoxFuture<'static, Result<(), SendError<Named>>>>,
}

impl<'a, M: Message, T: Target<M>> Tell<'a, M, T> {
    #[inline]
    pub(crate) fn new(to: &'a T, message: M) -> Self {
        Self {
            to,
            message: Some(message),
            place: None,
            outside: None,
        }
    }

    /// No room at once, or something is wrong.
    #[cold]
    fn refused_or_waiting(
        &mut self,
        pushed: Pushed,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError<M>>> {
        let pushed = match pushed {
            Pushed::Full(_) | Pushed::Waiting => {
                self.to
                    .wait(&mut Told(&mut self.message), &mut self.place, cx.waker())
            }
            other => other,
        };
        match pushed {
            Pushed::In => Poll::Ready(Ok(())),
            Pushed::Waiting => Poll::Pending,
            Pushed::NotHandled => match named(self.to, self.message.as_ref())? {
                Some((agent, named)) => {
                    let outside = self
                        .outside
                        .insert(Box::pin(async move { agent.tell(named).await }));
                    Self::poll_outside(outside, &mut self.message, cx)
                }
                None => Poll::Ready(refused(self.to, pushed, self.message.take())),
            },
            other => Poll::Ready(refused(self.to, other, self.message.take())),
        }
    }

    fn poll_outside(
        outside: &mut BoxFuture<'static, Result<(), SendError<Named>>>,
        message: &mut Option<M>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError<M>>> {
        let told = ready!(outside.as_mut().poll(cx));
        // The agent can only have ended: it takes such messages, and the tell waited for room.
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
        if let Some(outside) = &mut this.outside {
            return Self::poll_outside(outside, &mut this.message, cx);
        }
        if this.message.is_none() {
            // Polled after its end.
            return Poll::Pending;
        }
        let pushed = match this.place {
            None => this.to.admit(&mut Told(&mut this.message)),
            Some(_) => Pushed::Waiting,
        };
        match pushed {
            Pushed::In => Poll::Ready(Ok(())),
            other => this.refused_or_waiting(other, cx),
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

/// How long a [`Call`] may take, by default.
pub const CALL_DEADLINE_DEFAULT: Duration = Duration::from_secs(60);

/// A call whose progress and questions the caller follows. See [`AgentRef::call`].
///
/// ```ignore
/// let mut call = agent.call(AskClinics { query }).start();
/// while let Some(event) = call.next().await { … }
/// let reply = call.reply().await?;
/// ```
#[must_use = "a call does nothing until it is started"]
pub struct Call<M: Message> {
    agent: AgentRef,
    meta: CallMeta,
    limit: Duration,
    message: M,
}

impl<M: Message> Call<M> {
    pub(crate) fn new(agent: AgentRef, message: M) -> Self {
        let meta = CallMeta::new(Arc::new(Principal::local_operator()));
        Self {
            agent,
            meta,
            limit: CALL_DEADLINE_DEFAULT,
            message,
        }
    }

    /// On whose behalf; by default the local operator's.
    pub fn principal(mut self, principal: Principal) -> Self {
        self.meta.principal = Arc::new(principal);
        self
    }

    /// How long it may take; [`CALL_DEADLINE_DEFAULT`] by default.
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Begins it.
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

/// A call under way. Dropped, it is cancelled.
pub struct RunningCall<M: Message> {
    events: mpsc::Receiver<CallEvent>,
    reply: BoxFuture<'static, Result<M::Reply, SendError<M>>>,
    outcome: Option<Result<M::Reply, SendError<M>>>,
    token: CancellationToken,
    /// Tells the whole chain of agents when this is dropped.
    _cancel: DropGuard,
}

impl<M: Message> RunningCall<M> {
    /// What happens next; `None` once the call has ended.
    pub async fn next(&mut self) -> Option<CallEvent> {
        if self.outcome.is_none() {
            tokio::select! {
                biased;
                Some(event) = self.events.recv() => return Some(event),
                outcome = &mut self.reply => self.outcome = Some(outcome),
            }
        }
        // What was told before the end is still told.
        self.events.try_recv().ok()
    }

    /// The result. Questions that come from here on are refused.
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

    /// Tells the callee that the result is no longer wanted; [`RunningCall::reply`] says how it ended.
    pub fn cancel(&self) {
        self.token.cancel();
    }
}
