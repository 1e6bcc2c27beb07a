//! Telling, asking, calling: the futures on the sender's side.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use callboard_message::{Failure, Message, Principal};
use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::agent_ref::{AgentRef, Target};
use crate::call::{CallEvent, CallMeta, channel_caller};
use crate::cell::Pushed;
use crate::error::SendError;
use crate::lane::Envelope;
use crate::mailbox::WaiterId;
use crate::reply::{ReplySlot, reply_channel};

/// How long a [`Call`] may take, by default.
pub const CALL_DEADLINE_DEFAULT: Duration = Duration::from_secs(60);

pub(crate) fn try_tell<M: Message, T: Target<M>>(to: &T, message: M) -> Result<(), SendError<M>> {
    let mut slot = Some(Envelope { message, reply: None, call: None });
    let pushed = to.admit(&mut slot);
    refused(to, pushed, slot.map(|e| e.message)).map_or(Ok(()), Err)
}

/// The error, where the message came back.
fn refused<M: Message, T: Target<M>>(to: &T, pushed: Pushed, message: Option<M>) -> Option<SendError<M>> {
    let message = message?;
    Some(match pushed {
        Pushed::Full(capacity) => SendError::Full { message, capacity },
        Pushed::NotHandled => {
            let cell = to.cell();
            let agent = cell.label().map_or_else(|| cell.id().to_string(), |label| label.to_string());
            SendError::NotHandled { message, agent, name: M::NAME }
        }
        Pushed::In | Pushed::Waiting | Pushed::Closed => SendError::Closed { message },
    })
}

/// Sends a message and waits for room. See [`AgentRef::tell`].
#[must_use = "a tell does nothing until it is awaited"]
pub struct Tell<'a, M: Message, T: Target<M>> {
    to: &'a T,
    slot: Option<Envelope<M>>,
    place: Option<WaiterId>,
}

impl<'a, M: Message, T: Target<M>> Tell<'a, M, T> {
    pub(crate) fn new(to: &'a T, message: M) -> Self {
        Self { to, slot: Some(Envelope { message, reply: None, call: None }), place: None }
    }
}

impl<M: Message, T: Target<M>> Unpin for Tell<'_, M, T> {}

impl<M: Message, T: Target<M>> Future for Tell<'_, M, T> {
    type Output = Result<(), SendError<M>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut pushed = Pushed::Waiting;
        if this.place.is_none() {
            pushed = this.to.admit(&mut this.slot);
        }
        if let Pushed::Full(_) | Pushed::Waiting = pushed {
            pushed = this.to.wait(&mut this.slot, &mut this.place, cx.waker());
        }
        match pushed {
            Pushed::In => Poll::Ready(Ok(())),
            Pushed::Waiting => Poll::Pending,
            other => match refused(this.to, other, this.slot.take().map(|e| e.message)) {
                Some(error) => Poll::Ready(Err(error)),
                None => Poll::Ready(Ok(())),
            },
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

enum State<M: Message> {
    New(M),
    Waiting(Envelope<M>, ReplySlot<M::Reply>, Option<WaiterId>),
    Sent(ReplySlot<M::Reply>),
    /// The agent takes messages as JSON.
    Outside(BoxFuture<'static, Result<M::Reply, Failure>>),
    Done,
}

/// Sends a message and waits for its reply. See [`AgentRef::ask`].
#[must_use = "an ask does nothing until it is awaited"]
pub struct Ask<'a, M: Message, T: Target<M>> {
    to: &'a T,
    state: State<M>,
    call: Option<Arc<CallMeta>>,
    hops_max_met: Option<u16>,
    waits_for_room: bool,
    limit: Option<Duration>,
    began: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl<'a, M: Message, T: Target<M>> Ask<'a, M, T> {
    pub(crate) fn new(to: &'a T, message: M) -> Self {
        Self {
            to,
            state: State::New(message),
            call: None,
            hops_max_met: None,
            waits_for_room: true,
            limit: None,
            began: None,
            timer: None,
        }
    }

    /// Gives up after `limit`; the handler is cancelled.
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit = Some(self.limit.map_or(limit, |l| l.min(limit)));
        self
    }

    /// Answers [`SendError::Full`] at once where there is no room.
    pub fn without_waiting(mut self) -> Self {
        self.waits_for_room = false;
        self
    }

    /// Sends the message as part of `call`, as it is.
    pub fn within_call(mut self, call: Option<Arc<CallMeta>>) -> Self {
        self.call = call;
        self
    }

    pub(crate) fn out_of_hops(mut self, hops_max: u16) -> Self {
        self.hops_max_met = Some(hops_max);
        self
    }

    /// The call with this ask's own limit as its deadline, so that the callee knows it.
    fn limited_call(&mut self) {
        if self.limit.is_some() || self.call.as_ref().is_some_and(|c| c.deadline.is_some()) {
            self.began = Some(Instant::now());
        }
        let Some(limit) = self.limit else { return };
        let call = match self.call.take() {
            Some(call) => Arc::unwrap_or_clone(call),
            None => CallMeta::new(Arc::new(Principal::agent("system"))),
        };
        let deadline = Instant::now() + limit;
        self.call = Some(Arc::new(call.until(deadline)));
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = self.call.as_ref().and_then(|c| c.deadline) else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        timer.as_mut().poll(cx)
    }

    fn begin(&mut self, message: M) -> Result<State<M>, Result<M::Reply, SendError<M>>> {
        if let Some(hops_max) = self.hops_max_met {
            return Err(Err(SendError::TooManyHops { hops_max }));
        }
        self.limited_call();
        let mut slot = Some(message);
        if let Some(answer) = self.to.in_place(&mut slot, self.call.as_ref()) {
            return Err(answer.map_err(SendError::no_reply));
        }
        let Some(message) = slot else { return Err(Err(SendError::Panicked)) };
        let (reply, answered) = reply_channel();
        Ok(State::Waiting(Envelope { message, reply: Some(reply), call: self.call.clone() }, answered, None))
    }

    fn send(
        &mut self,
        envelope: Envelope<M>,
        answered: ReplySlot<M::Reply>,
        mut place: Option<WaiterId>,
        cx: &Context<'_>,
    ) -> Result<State<M>, SendError<M>> {
        let mut slot = Some(envelope);
        let pushed = match self.waits_for_room {
            true => self.to.wait(&mut slot, &mut place, cx.waker()),
            false => self.to.admit(&mut slot),
        };
        let Some(envelope) = slot else { return Ok(State::Sent(answered)) };
        match pushed {
            Pushed::Waiting => Ok(State::Waiting(envelope, answered, place)),
            Pushed::NotHandled => match (self.to.outside(), M::wire()) {
                (Some(agent), Some(wire)) => Ok(outside(agent, wire, &envelope.message, self.call.clone())),
                _ => Err(refused(self.to, pushed, Some(envelope.message)).unwrap_or(SendError::Stopped)),
            },
            pushed => Err(refused(self.to, pushed, Some(envelope.message)).unwrap_or(SendError::Stopped)),
        }
    }
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
        loop {
            this.state = match std::mem::replace(&mut this.state, State::Done) {
                State::New(message) => {
                    // Asks answered in place never suspend: without this, a loop of them would starve the thread.
                    let mut turn = std::pin::pin!(tokio::task::consume_budget());
                    if turn.as_mut().poll(cx).is_pending() {
                        this.state = State::New(message);
                        return Poll::Pending;
                    }
                    match this.begin(message) {
                        Ok(state) => state,
                        Err(answer) => return Poll::Ready(answer),
                    }
                }
                State::Waiting(envelope, answered, place) => match this.send(envelope, answered, place, cx) {
                    Ok(State::Waiting(envelope, answered, place)) => {
                        this.state = State::Waiting(envelope, answered, place);
                        ready!(this.poll_timer(cx));
                        return Poll::Ready(Err(this.timed_out()));
                    }
                    Ok(state) => state,
                    Err(error) => return Poll::Ready(Err(error)),
                },
                State::Sent(mut answered) => {
                    if let Poll::Ready(answer) = Pin::new(&mut answered).poll(cx) {
                        return Poll::Ready(match answer {
                            Ok(Ok(reply)) => Ok(reply),
                            Ok(Err(why)) => Err(SendError::no_reply(why)),
                            // Only a handler that panicked drops its replier without a word.
                            Err(_) => Err(SendError::Panicked),
                        });
                    }
                    this.state = State::Sent(answered);
                    ready!(this.poll_timer(cx));
                    return Poll::Ready(Err(this.timed_out()));
                }
                State::Outside(mut answer) => {
                    if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
                        return Poll::Ready(answer.map_err(SendError::Failed));
                    }
                    this.state = State::Outside(answer);
                    ready!(this.poll_timer(cx));
                    return Poll::Ready(Err(this.timed_out()));
                }
                // Polled after its end, which callers of futures don't do.
                State::Done => return Poll::Pending,
            }
        }
    }
}

impl<M: Message, T: Target<M>> Ask<'_, M, T> {
    fn timed_out(&mut self) -> SendError<M> {
        self.leave_line();
        self.state = State::Done;
        SendError::TimedOut(self.began.map(|began| began.elapsed()).unwrap_or_default())
    }

    fn leave_line(&self) {
        if let State::Waiting(_, _, Some(place)) = &self.state {
            self.to.forget(*place);
        }
    }
}

impl<M: Message, T: Target<M>> Drop for Ask<'_, M, T> {
    fn drop(&mut self) {
        self.leave_line();
    }
}

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
        Self { agent, meta, limit: CALL_DEADLINE_DEFAULT, message }
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
        let reply = Box::pin(async move { agent.ask(body).within_call(Some(meta)).within(limit).await });
        RunningCall { events, reply, outcome: None, token, _cancel }
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
