//! The call: one exchange in flight, and what it carries from agent to agent.

use std::sync::Arc;

use callboard_message::{
    Abilities, Answer, Artifact, Budget, CallId, Failure, HOPS_MAX_DEFAULT, Log, Principal,
    Progress, Question, SessionId, TraceContext,
};
use futures::future::{BoxFuture, ready};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Progress reports, log lines, artifacts and questions that wait for a slow caller; past that, questions wait and the others
/// are dropped.
const CALL_EVENTS_MAX: usize = 64;

/// Who called, as the callee sees it. Every inbound adapter implements it once.
pub trait Caller: Send + Sync {
    /// Whom it stands in front of: all that it doesn't treat itself goes on to that one. `None`: it is dropped.
    fn behind(&self) -> Option<&dyn Caller> {
        None
    }

    /// Told how far the call has come. Never waits.
    fn progress(&self, progress: Progress) {
        if let Some(behind) = self.behind() {
            behind.progress(progress);
        }
    }

    /// Asked in mid-call. Fails with [`callboard_message::FailureKind::NobodyToAsk`] where no one can answer.
    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        match self.behind() {
            Some(behind) => behind.ask(question),
            None => Box::pin(ready(Err(nobody()))),
        }
    }

    /// Told a line of the call's log. Never waits.
    fn log(&self, line: Log) {
        if let Some(behind) = self.behind() {
            behind.log(line);
        }
    }

    /// Given a part of the result before the rest. Never waits. Nothing is lost with it: the reply holds all.
    fn artifact(&self, artifact: Artifact) {
        if let Some(behind) = self.behind() {
            behind.artifact(artifact);
        }
    }

    /// Told that what the person was sent to an address for ([`callboard_message::Elicitation::url`]) is done there. Never
    /// waits.
    fn elicitation_done(&self, id: &str) {
        if let Some(behind) = self.behind() {
            behind.elicitation_done(id);
        }
    }

    /// What it can answer, told truthfully: a callee needn't ask for more.
    fn abilities(&self) -> Abilities {
        self.behind()
            .map(|behind| behind.abilities())
            .unwrap_or_default()
    }
}

/// Decides who answers what somebody outside asks in the course of a call: the caller, a model, another server, nobody.
pub trait Answering: Send + Sync {
    /// Whom `source` (the name of the agent that stands for the asker) gets to ask in place of the call's own caller. What
    /// this one says that it can answer is told to the asker, so it must be true. `None`: there is nobody to ask.
    fn caller(&self, source: &str, call: &CallMeta) -> Option<Arc<dyn Caller>>;
}

/// A peer's session: what is kept for one is kept for no other.
pub struct PeerSession {
    /// No other session has or had it.
    pub id: SessionId,
    /// Fires when the session is over.
    pub over: CancellationToken,
    /// Whom to ask and tell what belongs to the session, and to none of its calls for sure.
    pub caller: Arc<dyn Caller>,
    /// Number of times that the peer has said that its roots have changed.
    pub roots_changed: watch::Sender<u64>,
}

impl PeerSession {
    /// A session of `caller`'s, until `over` fires.
    pub fn new(over: CancellationToken, caller: Arc<dyn Caller>) -> Self {
        Self {
            id: SessionId::fresh(),
            over,
            caller,
            roots_changed: watch::Sender::default(),
        }
    }
}

/// What a call carries: it goes along with every message that the call causes.
#[derive(Clone)]
pub struct CallMeta {
    /// The call.
    pub id: CallId,
    /// Who is behind it.
    pub principal: Arc<Principal>,
    /// When its result is of no use any more.
    pub deadline: Option<Instant>,
    /// What it may still spend.
    pub budget: Budget,
    /// How many agents it has passed through.
    pub hops: u16,
    /// How many it may pass through.
    pub hops_max: u16,
    /// Its place in a trace.
    pub trace: TraceContext,
    /// Fires when the caller no longer wants it.
    pub cancel: CancellationToken,
    /// Where progress and questions go.
    pub caller: Option<Arc<dyn Caller>>,
    /// The session that it came by; `None` where the protocol has none, or it began in this process.
    pub session: Option<Arc<PeerSession>>,
}

impl CallMeta {
    /// A call of `principal`'s, without deadline, with nobody to ask.
    pub fn new(principal: Arc<Principal>) -> Self {
        Self {
            id: CallId::fresh(),
            principal,
            deadline: None,
            budget: Budget::default(),
            hops: 0,
            hops_max: HOPS_MAX_DEFAULT,
            trace: TraceContext::root(),
            cancel: CancellationToken::new(),
            caller: None,
            session: None,
        }
    }

    /// The same call, with progress and questions going to `caller`.
    pub fn with_caller(mut self, caller: Arc<dyn Caller>) -> Self {
        self.caller = Some(caller);
        self
    }

    /// The same call, to be answered until `deadline`, or earlier where it already had to be.
    pub fn until(mut self, deadline: Instant) -> Self {
        self.deadline = Some(self.deadline.map_or(deadline, |d| d.min(deadline)));
        self
    }

    /// What the next agent gets: one hop further, cancelled with this one. `None` where the hops are used up.
    pub(crate) fn next_hop(&self) -> Option<Self> {
        let hops = self.hops.checked_add(1).filter(|h| *h <= self.hops_max)?;
        Some(Self {
            hops,
            trace: self.trace.child(),
            cancel: self.cancel.child_token(),
            ..self.clone()
        })
    }

    pub(crate) fn is_over(&self) -> bool {
        self.cancel.is_cancelled() || self.deadline.is_some_and(|d| Instant::now() >= d)
    }

    /// Ends when the call is cancelled or its deadline passes.
    pub(crate) async fn over(&self) {
        match self.deadline {
            None => self.cancel.cancelled().await,
            Some(deadline) => tokio::select! {
                biased;
                () = self.cancel.cancelled() => {}
                () = tokio::time::sleep_until(deadline) => {}
            },
        }
    }
}

/// What happens in a call before it ends.
#[derive(Debug)]
#[non_exhaustive]
pub enum CallEvent {
    /// It has come this far.
    Progress(Progress),
    /// A line of its log.
    Log(Log),
    /// A part of its result, before the rest.
    Artifact(Artifact),
    /// What the person was sent to an address for is done there: the elicitation's id.
    ElicitationDone(String),
    /// The callee asks; the call pauses until it is answered.
    Question(PendingQuestion),
}

/// A question that waits for its answer. Dropped unanswered, the callee learns that nobody was there.
#[derive(Debug)]
pub struct PendingQuestion {
    /// What is asked.
    pub question: Question,
    pub(crate) answer: oneshot::Sender<Result<Answer, Failure>>,
}

impl PendingQuestion {
    /// Answers it: the call goes on.
    pub fn answer(self, answer: Answer) {
        // A callee that gave up meanwhile doesn't need it.
        let _ = self.answer.send(Ok(answer));
    }

    /// Says why there is no answer: the call goes on and decides.
    pub fn refuse(self, why: Failure) {
        let _ = self.answer.send(Err(why));
    }
}

/// A caller at the other end of a channel.
pub(crate) struct ChannelCaller(mpsc::Sender<CallEvent>);

pub(crate) fn channel_caller() -> (ChannelCaller, mpsc::Receiver<CallEvent>) {
    let (tx, rx) = mpsc::channel(CALL_EVENTS_MAX);
    (ChannelCaller(tx), rx)
}

impl Caller for ChannelCaller {
    fn progress(&self, progress: Progress) {
        // A slow caller misses reports, not the result.
        let _ = self.0.try_send(CallEvent::Progress(progress));
    }

    fn log(&self, line: Log) {
        let _ = self.0.try_send(CallEvent::Log(line));
    }

    fn artifact(&self, artifact: Artifact) {
        let _ = self.0.try_send(CallEvent::Artifact(artifact));
    }

    fn elicitation_done(&self, id: &str) {
        let _ = self.0.try_send(CallEvent::ElicitationDone(id.to_owned()));
    }

    fn abilities(&self) -> Abilities {
        Abilities::all()
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            let pending = PendingQuestion { question, answer };
            self.0
                .send(CallEvent::Question(pending))
                .await
                .map_err(|_| nobody())?;
            answered.await.map_err(|_| nobody())?
        })
    }
}

pub(crate) fn nobody() -> Failure {
    Failure::nobody_to_ask("nobody to ask")
}
