//! Handler context: the agent's own handle, its system, the current call, and timers.

use std::future::Future;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use callboard_message::{
    Answer, Artifact, CallerCapabilities, CapabilityChange, Elicitation, ElicitationAnswer,
    Failure, FailureKind, LogMessage, Message, Principal, Progress, Question, RootsAnswer,
    RootsRequest, SamplingAnswer, SamplingRequest,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::AgentId;
use crate::agent_cell::Control;
use crate::call::{CallContext, Caller, no_responder};
use crate::handle::AgentRef;
use crate::handle::ask::Ask;
use crate::node_events::{Hop, HopStart};
use crate::system::System;
use crate::system::directory::AgentChanged;

/// Context passed to a handler: the agent's own handle, its system, and the call being served.
#[derive(Clone)]
pub struct Context {
    agent_ref: AgentRef,
    pub(crate) call: Option<Arc<CallContext>>,
    /// Token that is cancelled when the caller no longer wants the reply. `None` for synchronous
    /// handlers and plain tells.
    pub(crate) cancel: Option<CancellationToken>,
    /// Record of the running handler; `None` outside of a call, and if events aren't read.
    pub(crate) hop: Option<Arc<Hop>>,
}

static NO_PRINCIPAL: LazyLock<Principal> = LazyLock::new(Principal::system);

impl Context {
    pub(crate) fn new(agent_ref: AgentRef) -> Self {
        Self {
            agent_ref,
            call: None,
            cancel: None,
            hop: None,
        }
    }

    pub(crate) fn for_handler(
        &self,
        call: Option<Arc<CallContext>>,
        asked: bool,
        message: &'static str,
    ) -> Self {
        let cancel = match &call {
            Some(call) => Some(call.cancel.child_token()),
            None => asked.then(CancellationToken::new),
        };
        let mut cx = Self {
            agent_ref: self.agent_ref.clone(),
            call,
            cancel,
            hop: None,
        };
        cx.hop = cx.begin_hop(message);
        cx
    }

    /// Begins the synchronous handler of a message that belongs to `call`.
    pub(crate) fn enter_call(&mut self, call: Option<Arc<CallContext>>, message: &'static str) {
        self.call = call;
        self.hop = self.begin_hop(message);
    }

    /// Begins the record of a handler. `None` outside of a call, and if events aren't read.
    fn begin_hop(&self, message: &'static str) -> Option<Arc<Hop>> {
        let call = self.call.as_ref()?;
        let events = self.system().node_events();
        if !events.is_on() {
            return None;
        }
        let start = HopStart {
            call: call.id,
            trace: call.trace,
            principal: call.principal.clone(),
            agent: self.agent_ref.0.label().cloned(),
            message,
        };
        Some(Hop::begin(events, start))
    }

    /// Ends what [`Self::enter_call`] began, with the failure of the handler, if any.
    pub(crate) fn leave_call(&mut self, failure: Option<FailureKind>) {
        self.call = None;
        if let Some(hop) = self.hop.take() {
            hop.finish(failure);
        }
    }

    /// Returns a tracing span for the handler; `None` outside a call or if no subscriber has the
    /// span enabled.
    pub(crate) fn span(&self, message: &'static str) -> Option<tracing::Span> {
        let call = self.call.as_ref()?;
        let span = tracing::debug_span!(
            "handle", agent = %self.agent_ref.id(), message, call = %call.id, principal = call.principal.id, trace = format_args!("{:032x}", call.trace.trace_id())
        );
        (!span.is_disabled()).then_some(span)
    }

    /// Returns a handle to the agent that runs this handler.
    pub fn me(&self) -> &AgentRef {
        &self.agent_ref
    }

    /// Returns the system that the agent runs in.
    pub fn system(&self) -> &System {
        self.agent_ref.system()
    }

    /// Returns the call that this message belongs to; `None` for a plain tell or ask.
    pub fn call(&self) -> Option<&Arc<CallContext>> {
        self.call.as_ref()
    }

    /// Returns a copy of this context that belongs to `call`: questions, progress and log lines go
    /// to the caller of `call`. The cancellation token stays that of the running handler.
    pub fn with_call(&self, call: Arc<CallContext>) -> Self {
        Self {
            agent_ref: self.agent_ref.clone(),
            call: Some(call),
            cancel: self.cancel.clone(),
            hop: self.hop.clone(),
        }
    }

    /// Returns the principal of the call; for a plain tell or ask, the built-in agent principal
    /// `system`.
    pub fn principal(&self) -> &Principal {
        match &self.call {
            Some(call) => &call.principal,
            None => &NO_PRINCIPAL,
        }
    }

    /// Returns the deadline of the call; `None` without a call or a deadline.
    pub fn deadline(&self) -> Option<Instant> {
        self.call.as_ref()?.deadline
    }

    /// Returns true if the caller no longer wants the reply, the call is cancelled, or its deadline
    /// has passed.
    pub fn is_cancelled(&self) -> bool {
        self.cancel
            .as_ref()
            .is_some_and(CancellationToken::is_cancelled)
            || self.call.as_ref().is_some_and(|c| c.is_over())
    }

    /// Completes when the caller no longer wants the reply; never, in a handler that can't be
    /// cancelled. Afterwards the handler has
    /// [`AgentProfile::cancel_grace`](crate::AgentProfile::cancel_grace) to clean up before it is
    /// dropped.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + 'static {
        let cancel = self.cancel.clone();
        async move {
            match cancel {
                Some(cancel) => cancel.cancelled().await,
                None => std::future::pending().await,
            }
        }
    }

    fn caller(&self) -> Option<&dyn Caller> {
        self.call.as_ref()?.caller.as_deref()
    }

    /// Reports progress of the call to its caller. Never blocks. Does nothing if the call has no
    /// caller.
    pub fn progress(&self, progress: Progress) {
        if let Some(caller) = self.caller() {
            caller.progress(progress);
        }
    }

    /// Asks the call's caller a question and returns the answer. Works over every protocol.
    ///
    /// # Errors
    /// [`callboard_message::FailureKind::NoResponder`] if no caller can answer; otherwise the
    /// caller's failure if it refuses.
    pub async fn ask_caller(&self, question: Question) -> Result<Answer, Failure> {
        self.caller().ok_or_else(no_responder)?.ask(question).await
    }

    /// Requests a completion from the caller's language model (MCP sampling).
    ///
    /// # Errors
    /// Those of [`Context::ask_caller`], and `InvalidInput` if the caller's answer isn't a sampling
    /// answer.
    pub async fn sample(&self, sample: SamplingRequest) -> Result<SamplingAnswer, Failure> {
        match self.ask_caller(Question::Sample(sample)).await? {
            Answer::Sample(answer) => Ok(answer),
            _ => Err(mismatched_answer()),
        }
    }

    /// Requests input from the caller's user (MCP elicitation).
    ///
    /// # Errors
    /// Those of [`Context::ask_caller`], and `InvalidInput` if the caller's answer isn't an
    /// elicitation answer.
    pub async fn elicit(&self, elicitation: Elicitation) -> Result<ElicitationAnswer, Failure> {
        match self.ask_caller(Question::Elicit(elicitation)).await? {
            Answer::Elicit(answer) => Ok(answer),
            _ => Err(mismatched_answer()),
        }
    }

    /// Requests the caller's file system roots (MCP roots).
    ///
    /// # Errors
    /// Those of [`Context::ask_caller`], and `InvalidInput` if the caller's answer isn't a list of
    /// roots.
    pub async fn roots(&self) -> Result<RootsAnswer, Failure> {
        match self
            .ask_caller(Question::Roots(RootsRequest::default()))
            .await?
        {
            Answer::Roots(answer) => Ok(answer),
            _ => Err(mismatched_answer()),
        }
    }

    /// Returns the kinds of question that the caller can answer; empty without a caller.
    pub fn caller_capabilities(&self) -> CallerCapabilities {
        self.caller()
            .map(|caller| caller.capabilities())
            .unwrap_or_default()
    }

    /// Sends the caller a log line of the call. Never blocks. Does nothing if the call has no
    /// caller.
    pub fn log(&self, line: LogMessage) {
        if let Some(caller) = self.caller() {
            caller.log(line);
        }
    }

    /// Sends the caller a part of the result before the reply. Never blocks. Delivery isn't
    /// guaranteed, so the reply must repeat every part, unless it carries
    /// [`callboard_message::ARTIFACTS_SENT_META_KEY`].
    pub fn artifact(&self, artifact: Artifact) {
        if let Some(caller) = self.caller() {
            caller.artifact(artifact);
        }
    }

    /// Notifies the caller that the URL elicitation with this id has been completed. Never blocks.
    pub fn elicitation_done(&self, id: &str) {
        if let Some(caller) = self.caller() {
            caller.elicitation_done(id);
        }
    }

    /// Publishes a capability change of this agent to its followers ([`AgentRef::follow`]).
    pub fn notify_changed(&self, change: CapabilityChange) {
        AgentChanged::publish(&self.agent_ref, change);
    }

    /// Asks another agent as part of this call. Deadline, principal, trace and caller are passed
    /// on, the hop count grows by one, and cancelling this call cancels the ask. Resolves to
    /// [`SendError::TooManyHops`](crate::SendError::TooManyHops) once the call's hops are used up.
    pub fn ask<'a, M: Message>(&self, agent: &'a AgentRef, message: M) -> Ask<'a, M, AgentRef> {
        let ask = agent.ask(message);
        match (&self.call, self.next_hop()) {
            (None, _) => ask,
            (Some(_), Some(next)) => ask.within_call(Some(next)),
            (Some(call), None) => ask.with_hops_exhausted(call.hops_max),
        }
    }

    /// Returns the call context for a message to another agent by [`AgentRef::ask_named`]: one hop
    /// further, cancelled with this handler. `None` without a call, or if its hops are used up.
    pub fn next_hop(&self) -> Option<Arc<CallContext>> {
        let mut next = self.call.as_ref()?.next_hop()?;
        if let Some(cancel) = &self.cancel {
            // Cancelled with this handler, not only with the whole call.
            next.cancel = cancel.child_token();
        }
        Some(Arc::new(next))
    }

    /// Moves all stashed messages back to the head of the agent's mailbox, in their order.
    pub fn unstash(&self) {
        self.agent_ref.control(Control::Unstash);
    }

    /// Stops this agent once it has handled the messages in its mailbox.
    pub fn stop(&self) {
        self.agent_ref.stop();
    }

    /// Calls [`crate::Agent::terminated`] on this agent when `other` ends; at once if it has
    /// already ended.
    pub fn watch(&self, other: &AgentRef) {
        other.system().watch(other, self.agent_ref.clone());
    }

    /// Cancels [`Context::watch`] for the agent `other`.
    pub fn unwatch(&self, other: AgentId) {
        self.system().unwatch(self.agent_ref.id(), other);
    }

    /// Sends `message` to this agent after `delay`. The message is dropped if the mailbox is full.
    /// The timer ends with the agent or by [`Timer::cancel`].
    pub fn tell_after<M: Message>(&self, delay: Duration, message: M) -> Timer {
        let me = self.agent_ref.clone();
        Timer::run(&self.agent_ref, async move {
            tokio::time::sleep(delay).await;
            // Deliberately dropped if the mailbox is full or the agent has ended.
            let _ = me.try_tell(message);
        })
    }

    /// Sends a message made by `make` to this agent every `period` (at least 1 ms). The first is
    /// sent after one period. A message is skipped if the mailbox is full. The timer ends with the
    /// agent or by [`Timer::cancel`].
    pub fn tell_every<M: Message>(
        &self,
        period: Duration,
        mut make: impl FnMut() -> M + Send + 'static,
    ) -> Timer {
        let me = self.agent_ref.clone();
        Timer::run(&self.agent_ref, async move {
            let mut ticks = tokio::time::interval(period.max(TIMER_PERIOD_MIN));
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            ticks.tick().await;
            loop {
                ticks.tick().await;
                let _ = me.try_tell(make());
            }
        })
    }
}

fn mismatched_answer() -> Failure {
    Failure::invalid(
        "the answer is of another kind than the question: the client has to be corrected",
    )
}

/// Shortest period of a timer.
const TIMER_PERIOD_MIN: Duration = Duration::from_millis(1);

/// Timer of an agent. Dropping it doesn't stop it; it ends with the agent or by [`Timer::cancel`].
pub struct Timer {
    stop: CancellationToken,
}

impl Timer {
    fn run(of: &AgentRef, ticking: impl Future<Output = ()> + Send + 'static) -> Self {
        let stop = CancellationToken::new();
        let (of, stopped) = (of.clone(), stop.clone());
        // Runs on the agent's arbiter: the current thread may belong to a short-lived caller.
        let runtime = of.0.runtime();
        let ticking = async move {
            tokio::select! {
                biased;
                () = stopped.cancelled() => {}
                _ = of.wait_for_exit() => {}
                () = ticking => {}
            }
        };
        match runtime {
            Some(runtime) => drop(runtime.spawn(ticking)),
            None => drop(tokio::spawn(ticking)),
        }
        Self { stop }
    }

    /// Stops the timer: no further message is sent.
    pub fn cancel(self) {
        self.stop.cancel();
    }
}
