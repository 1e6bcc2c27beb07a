//! Calling: an ask whose progress and questions the caller follows.

use std::sync::Arc;
use std::time::Duration;

use callboard_message::{Message, Principal};
use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::agent_ref::AgentRef;
use crate::call::{CallEvent, CallMeta, channel_caller};
use crate::error::SendError;

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
