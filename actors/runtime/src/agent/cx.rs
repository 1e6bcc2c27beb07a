//! Context of a handler: the agent itself, its system, the call, and timers.

use std::future::Future;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use callboard_message::{
    Abilities, Answer, Artifact, Change, ElicitAnswer, Elicitation, Failure, Log, Message,
    Principal, Progress, Question, RootsAnswer, RootsRequest, Sample, SampleAnswer,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::AgentId;
use crate::call::{CallMeta, Caller, nobody};
use crate::cell::Control;
use crate::handle::AgentRef;
use crate::handle::ask::Ask;
use crate::system::System;
use crate::system::directory::Changed;

/// What a handler knows of its surroundings: itself, its system, and the call that it serves.
#[derive(Clone)]
pub struct Cx {
    me: AgentRef,
    pub(crate) call: Option<Arc<CallMeta>>,
    /// Fires when the caller no longer wants the reply, in async handlers.
    pub(crate) cancel: Option<CancellationToken>,
}

static NO_PRINCIPAL: LazyLock<Principal> = LazyLock::new(|| Principal::agent("system"));

impl Cx {
    pub(crate) fn new(me: AgentRef) -> Self {
        Self {
            me,
            call: None,
            cancel: None,
        }
    }

    pub(crate) fn for_handler(&self, call: Option<Arc<CallMeta>>, asked: bool) -> Self {
        let cancel = match &call {
            Some(call) => Some(call.cancel.child_token()),
            None => asked.then(CancellationToken::new),
        };
        Self {
            me: self.me.clone(),
            call,
            cancel,
        }
    }

    /// A span for the handler, where the call is traced and somebody listens.
    pub(crate) fn span(&self, message: &'static str) -> Option<tracing::Span> {
        let call = self.call.as_ref()?;
        let span = tracing::debug_span!(
            "handle", agent = %self.me.id(), message, call = %call.id, trace = format_args!("{:032x}", call.trace.trace_id())
        );
        (!span.is_disabled()).then_some(span)
    }

    /// The agent itself.
    pub fn me(&self) -> &AgentRef {
        &self.me
    }

    /// The system in which it lives.
    pub fn system(&self) -> &System {
        self.me.system()
    }

    /// The call that this message belongs to; `None` for a plain tell or ask.
    pub fn call(&self) -> Option<&Arc<CallMeta>> {
        self.call.as_ref()
    }

    /// The same surroundings, as part of `call`: what is asked and told goes to that call's caller. Cancellation stays
    /// this handler's.
    pub fn within(&self, call: Arc<CallMeta>) -> Self {
        Self {
            me: self.me.clone(),
            call: Some(call),
            cancel: self.cancel.clone(),
        }
    }

    /// Who is behind the message: the call's principal, or for a plain tell or ask an agent of this system.
    pub fn principal(&self) -> &Principal {
        match &self.call {
            Some(call) => &call.principal,
            None => &NO_PRINCIPAL,
        }
    }

    /// When the reply is of no use any more.
    pub fn deadline(&self) -> Option<Instant> {
        self.call.as_ref()?.deadline
    }

    /// Whether the caller no longer wants the reply.
    pub fn is_cancelled(&self) -> bool {
        self.cancel
            .as_ref()
            .is_some_and(CancellationToken::is_cancelled)
            || self.call.as_ref().is_some_and(|c| c.is_over())
    }

    /// Ends when the caller no longer wants the reply. After it the handler has its profile's grace to tidy up.
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

    /// Tells the caller how far the call has come. Never waits.
    pub fn progress(&self, progress: Progress) {
        if let Some(caller) = self.caller() {
            caller.progress(progress);
        }
    }

    /// Asks back: whoever caused the call answers, over whatever protocol it came.
    ///
    /// # Errors
    /// [`callboard_message::FailureKind::NobodyToAsk`] where no one can answer, or the answerer's own failure.
    pub async fn question(&self, question: Question) -> Result<Answer, Failure> {
        self.caller().ok_or_else(nobody)?.ask(question).await
    }

    /// Asks the caller's language model.
    ///
    /// # Errors
    /// Like [`Cx::question`].
    pub async fn sample(&self, sample: Sample) -> Result<SampleAnswer, Failure> {
        match self.question(Question::Sample(sample)).await? {
            Answer::Sample(answer) => Ok(answer),
            _ => Err(wrong_answer()),
        }
    }

    /// Asks the person behind the call.
    ///
    /// # Errors
    /// Like [`Cx::question`].
    pub async fn elicit(&self, elicitation: Elicitation) -> Result<ElicitAnswer, Failure> {
        match self.question(Question::Elicit(elicitation)).await? {
            Answer::Elicit(answer) => Ok(answer),
            _ => Err(wrong_answer()),
        }
    }

    /// Asks which folders the caller lends.
    ///
    /// # Errors
    /// Like [`Cx::question`].
    pub async fn roots(&self) -> Result<RootsAnswer, Failure> {
        match self
            .question(Question::Roots(RootsRequest::default()))
            .await?
        {
            Answer::Roots(answer) => Ok(answer),
            _ => Err(wrong_answer()),
        }
    }

    /// What the caller can answer; nothing where there is no caller.
    pub fn abilities(&self) -> Abilities {
        self.caller()
            .map(|caller| caller.abilities())
            .unwrap_or_default()
    }

    /// Tells the caller a line of the call's log. Never waits.
    pub fn log(&self, line: Log) {
        if let Some(caller) = self.caller() {
            caller.log(line);
        }
    }

    /// Gives the caller a part of the result before the rest. Never waits. A caller may miss it, so the reply holds all of it,
    /// unless it says otherwise ([`callboard_message::SHOWN`]).
    pub fn artifact(&self, artifact: Artifact) {
        if let Some(caller) = self.caller() {
            caller.artifact(artifact);
        }
    }

    /// Tells the caller that what its person was sent to an address for is done there. Never waits.
    pub fn elicitation_done(&self, id: &str) {
        if let Some(caller) = self.caller() {
            caller.elicitation_done(id);
        }
    }

    /// Tells whoever follows this agent ([`AgentRef::follow`]) that something it shows has changed.
    pub fn changed(&self, change: Change) {
        Changed::publish(&self.me, change);
    }

    /// Asks another agent as part of this call: deadline, principal, trace and caller go along, one hop is counted, and
    /// cancelling this call cancels it.
    pub fn ask<'a, M: Message>(&self, agent: &'a AgentRef, message: M) -> Ask<'a, M, AgentRef> {
        let ask = agent.ask(message);
        match (&self.call, self.next_hop()) {
            (None, _) => ask,
            (Some(_), Some(next)) => ask.within_call(Some(next)),
            (Some(call), None) => ask.out_of_hops(call.hops_max),
        }
    }

    /// The call as another agent gets it, for [`AgentRef::ask_named`]. `None` where there is no call, or its hops are used up.
    pub fn next_hop(&self) -> Option<Arc<CallMeta>> {
        let mut next = self.call.as_ref()?.next_hop()?;
        if let Some(cancel) = &self.cancel {
            // Told with this handler, not only with the whole call.
            next.cancel = cancel.child_token();
        }
        Some(Arc::new(next))
    }

    /// Puts the messages set aside back at the head of the mailbox.
    pub fn unstash(&self) {
        self.me.control(Control::Unstash);
    }

    /// Stops this agent after what its mailbox holds.
    pub fn stop(&self) {
        self.me.stop();
    }

    /// Calls [`crate::Agent::terminated`] when `other` ends; at once where it has ended.
    pub fn watch(&self, other: &AgentRef) {
        other.system().watch(other, self.me.clone());
    }

    /// Like [`Cx::watch`], undone.
    pub fn unwatch(&self, other: AgentId) {
        self.system().unwatch(self.me.id(), other);
    }

    /// Sends `message` to this agent after `delay`. The timer ends with the agent, or when [`Timer::cancel`]led.
    pub fn tell_after<M: Message>(&self, delay: Duration, message: M) -> Timer {
        let me = self.me.clone();
        Timer::run(&self.me, async move {
            tokio::time::sleep(delay).await;
            // An agent without room or gone gets no tick.
            let _ = me.try_tell(message);
        })
    }

    /// Sends what `make` makes to this agent every `period` (at least a millisecond), first after one period. A tick that
    /// finds the mailbox full is left out.
    pub fn tell_every<M: Message>(
        &self,
        period: Duration,
        mut make: impl FnMut() -> M + Send + 'static,
    ) -> Timer {
        let me = self.me.clone();
        Timer::run(&self.me, async move {
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

fn wrong_answer() -> Failure {
    Failure::invalid("the answer doesn't fit the question")
}

/// The shortest period of a timer.
const TIMER_PERIOD_MIN: Duration = Duration::from_millis(1);

/// A timer of an agent's. It goes on when this is dropped; it ends with the agent, or by [`Timer::cancel`].
pub struct Timer {
    stop: CancellationToken,
}

impl Timer {
    fn run(of: &AgentRef, ticking: impl Future<Output = ()> + Send + 'static) -> Self {
        let stop = CancellationToken::new();
        let (of, stopped) = (of.clone(), stop.clone());
        // On the agent's arbiter: the current thread may be an asker's, and end before the timer.
        let runtime = of.0.runtime();
        let ticking = async move {
            tokio::select! {
                biased;
                () = stopped.cancelled() => {}
                _ = of.ended() => {}
                () = ticking => {}
            }
        };
        match runtime {
            Some(runtime) => drop(runtime.spawn(ticking)),
            None => drop(tokio::spawn(ticking)),
        }
        Self { stop }
    }

    /// Ends it.
    pub fn cancel(self) {
        self.stop.cancel();
    }
}
