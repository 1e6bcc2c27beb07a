//! Call context, which travels with every message that a call causes, and the callee's view of its
//! caller.

use std::sync::{Arc, Weak};

use callboard_message::{
    Answer, Artifact, Budget, CallId, CallerCapabilities, CapabilityChange, Failure,
    HOPS_MAX_DEFAULT, LogLevel, LogMessage, Principal, Progress, Question, SessionId, TraceContext,
};
use futures::future::{BoxFuture, ready};
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::node_events::CallOrigin;
use crate::shares::SharePermit;

/// Capacity of a call's event channel, in events. When it is full, questions wait; progress, log
/// lines and artifacts are dropped.
const CALL_EVENTS_MAX: usize = 64;

/// Caller of a call, as the callee sees it: receives progress, log lines and artifacts, and answers
/// questions. Each inbound adapter implements it.
pub trait Caller: Send + Sync {
    /// Returns the caller that this one wraps, to which methods that aren't overridden forward.
    /// With `None`, questions and forwarded requests fail, there are no capabilities, and the other
    /// methods do nothing.
    fn inner(&self) -> Option<&dyn Caller> {
        None
    }

    /// Reports progress of the call to the caller. Never blocks.
    fn progress(&self, progress: Progress) {
        if let Some(behind) = self.inner() {
            behind.progress(progress);
        }
    }

    /// Asks the caller a question in the course of the call. Fails with
    /// [`callboard_message::FailureKind::NoResponder`] if the caller can't have it answered, and
    /// with the caller's failure if it refuses.
    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        match self.inner() {
            Some(behind) => behind.ask(question),
            None => Box::pin(ready(Err(no_responder()))),
        }
    }

    /// Forwards a request of an extension of the peer's protocol, which has no meaning here, to the
    /// client, and returns the client's result. `params` are unchanged. Fails with
    /// [`callboard_message::FailureKind::NotFound`] if the client has declared no extension.
    fn forward(
        &self,
        method: String,
        params: Option<Box<RawValue>>,
    ) -> BoxFuture<'_, Result<Box<RawValue>, Failure>> {
        match self.inner() {
            Some(behind) => behind.forward(method, params),
            None => Box::pin(ready(Err(Failure::not_found(format!(
                "the client has declared no extension with the method `{method}`"
            ))))),
        }
    }

    /// Sends the caller a log line of the call. Never blocks.
    fn log(&self, line: LogMessage) {
        if let Some(behind) = self.inner() {
            behind.log(line);
        }
    }

    /// Sends the caller a part of the result before the reply. Never blocks. Delivery isn't
    /// guaranteed; the reply repeats every part, unless it carries
    /// [`callboard_message::ARTIFACTS_SENT_META_KEY`].
    fn artifact(&self, artifact: Artifact) {
        if let Some(behind) = self.inner() {
            behind.artifact(artifact);
        }
    }

    /// Notifies the caller that the URL elicitation with this id
    /// ([`callboard_message::Elicitation::url`]) has been completed. Never blocks.
    fn elicitation_done(&self, id: &str) {
        if let Some(behind) = self.inner() {
            behind.elicitation_done(id);
        }
    }

    /// Notifies the caller of a change that only its session sees. Changes that everybody sees go
    /// to the followers of the agent ([`AgentRef::follow`](crate::AgentRef::follow)). Never blocks.
    fn changed(&self, change: CapabilityChange) {
        if let Some(behind) = self.inner() {
            behind.changed(change);
        }
    }

    /// Returns the kinds of question that this caller can answer. It must not claim more than that,
    /// as callees rely on it. While a list is requested, they are those of the client's calls.
    fn capabilities(&self) -> CallerCapabilities {
        self.inner()
            .map(|behind| behind.capabilities())
            .unwrap_or_default()
    }
}

/// Chooses who answers questions that a remote agent asks during a call: the caller, a language
/// model, another server, or none of them.
pub trait QuestionRouter: Send + Sync {
    /// Returns the caller that answers questions from the peer behind the proxy agent `source`, in
    /// place of the call's own caller. With `None`, the questions are refused.
    ///
    /// The peer is told the [`Caller::capabilities`] of the returned caller, so they must be
    /// truthful.
    fn caller(&self, source: &str, call: &CallContext) -> Option<Arc<dyn Caller>>;
}

/// Live session of a peer, such as a legacy MCP session: its id, its end, and the receiver of
/// questions outside calls. State kept for one session is never shared with another.
pub struct PeerSession {
    /// Unique id, never reused.
    pub id: SessionId,
    /// Cancelled when the session has ended.
    pub closed: CancellationToken,
    /// Receiver of questions and notifications that belong to the session but to no particular
    /// call.
    pub caller: Arc<dyn Caller>,
    /// Number of roots-changed notifications from the peer so far.
    pub roots_changed: watch::Sender<u64>,
    /// Minimum level of the log messages that the peer wants; `None` until it has set one.
    pub log_level: watch::Sender<Option<LogLevel>>,
}

impl PeerSession {
    /// Creates a session with a fresh id. `caller` receives its questions and notifications; the
    /// session lasts until `closed` is cancelled.
    pub fn new(closed: CancellationToken, caller: Arc<dyn Caller>) -> Self {
        Self {
            id: SessionId::generate(),
            closed,
            caller,
            roots_changed: watch::Sender::default(),
            log_level: watch::Sender::default(),
        }
    }
}

/// Context of a call: principal, limits and caller. It is passed along with every message that the
/// call causes.
#[derive(Clone)]
pub struct CallContext {
    /// Id of the call.
    pub id: CallId,
    /// Principal on whose behalf the call is made.
    pub principal: Arc<Principal>,
    /// Time after which the result is no longer wanted; `None` for no limit.
    pub deadline: Option<Instant>,
    /// Remaining budget of the call.
    pub budget: Budget,
    /// Number of agents that the call has passed through.
    pub hops: u16,
    /// Maximum number of agents that the call may pass through.
    pub hops_max: u16,
    /// Trace context of the call (W3C Trace Context).
    pub trace: TraceContext,
    /// Protocol by which the call came.
    pub origin: CallOrigin,
    /// Token that is cancelled when the caller no longer wants the result.
    pub cancel: CancellationToken,
    /// Receiver of progress, log lines, artifacts and questions; `None` if there is none.
    pub caller: Option<Arc<dyn Caller>>,
    /// The caller without the people at this node, who may answer beside it; `None` if they don't.
    pub caller_alone: Option<Arc<dyn Caller>>,
    /// Session that the call arrived on; `None` if the protocol has no sessions or the call started
    /// in this process.
    pub session: Option<Arc<PeerSession>>,
    /// Handler that the principal uses for this call; empty if principals don't share the agent's
    /// handlers.
    pub handler: HandlerPlace,
}

/// Place of a call in the handlers that principals share. It is freed when the handler has ended,
/// or with the call if no handler has begun.
#[derive(Clone, Default)]
pub struct HandlerPlace(Weak<SharePermit>);

impl HandlerPlace {
    pub(crate) fn new(permit: &Arc<SharePermit>) -> Self {
        Self(Arc::downgrade(permit))
    }

    /// Returns the permit, for the handler to hold to its end; `None` if there is none, or the
    /// caller has gone.
    pub(crate) fn hold(&self) -> Option<Arc<SharePermit>> {
        self.0.upgrade()
    }
}

impl CallContext {
    /// Creates the context of a new call by `principal`, with a fresh id and trace, without a
    /// deadline and without a caller.
    pub fn new(principal: Arc<Principal>) -> Self {
        Self {
            id: CallId::generate(),
            principal,
            deadline: None,
            budget: Budget::default(),
            hops: 0,
            hops_max: HOPS_MAX_DEFAULT,
            trace: TraceContext::root(),
            origin: CallOrigin::default(),
            cancel: CancellationToken::new(),
            caller: None,
            caller_alone: None,
            session: None,
            handler: HandlerPlace::default(),
        }
    }

    /// Sets the caller that receives progress, log lines, artifacts and questions.
    pub fn with_caller(mut self, caller: Arc<dyn Caller>) -> Self {
        self.caller = Some(caller);
        self.caller_alone = None;
        self
    }

    /// Returns the caller for questions that only its own person may answer, such as a consent; `None` if there is no
    /// caller.
    pub fn own_caller(&self) -> Option<&Arc<dyn Caller>> {
        self.caller_alone.as_ref().or(self.caller.as_ref())
    }

    /// Sets the deadline, unless the call already has an earlier one.
    pub fn with_deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(self.deadline.map_or(deadline, |d| d.min(deadline)));
        self
    }

    /// Returns the context for the next agent: one hop further, and cancelled when this one is.
    /// `None` if the maximum number of hops is reached.
    pub(crate) fn next_hop(&self) -> Option<Self> {
        let hops = self.hops.checked_add(1).filter(|h| *h <= self.hops_max)?;
        Some(Self {
            hops,
            trace: self.trace.child(),
            cancel: self.cancel.child_token(),
            handler: HandlerPlace::default(),
            ..self.clone()
        })
    }

    pub(crate) fn is_over(&self) -> bool {
        self.cancel.is_cancelled() || self.deadline.is_some_and(|d| Instant::now() >= d)
    }

    /// Completes when the call is cancelled or its deadline passes.
    pub(crate) async fn wait_until_over(&self) {
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

/// Event of a running call, as its caller receives it.
#[derive(Debug)]
#[non_exhaustive]
pub enum CallEvent {
    /// Progress report of the callee.
    Progress(Progress),
    /// Log line of the callee.
    Log(LogMessage),
    /// Part of the result, before the reply.
    Artifact(Artifact),
    /// URL elicitation that has been completed, by its id.
    ElicitationDone(String),
    /// Question from the callee. The call pauses until it is answered.
    Question(PendingQuestion),
}

/// Question that waits for an answer. If it is dropped, the callee gets a `NoResponder` failure.
#[derive(Debug)]
pub struct PendingQuestion {
    /// The question of the callee.
    pub question: Question,
    pub(crate) answer: oneshot::Sender<Result<Answer, Failure>>,
}

impl PendingQuestion {
    /// Sends the answer to the callee, so that the call continues.
    pub fn answer(self, answer: Answer) {
        // The callee may have given up in the meantime.
        let _ = self.answer.send(Ok(answer));
    }

    /// Refuses to answer the question. The callee gets `why` as the failure and decides how to
    /// continue.
    pub fn refuse(self, why: Failure) {
        let _ = self.answer.send(Err(why));
    }
}

/// Caller that sends questions and reports as [`CallEvent`]s on a channel. A full channel drops
/// reports.
pub(crate) struct ChannelCaller(mpsc::Sender<CallEvent>);

pub(crate) fn channel_caller() -> (ChannelCaller, mpsc::Receiver<CallEvent>) {
    let (tx, rx) = mpsc::channel(CALL_EVENTS_MAX);
    (ChannelCaller(tx), rx)
}

impl Caller for ChannelCaller {
    fn progress(&self, progress: Progress) {
        // A slow caller loses reports, but not the result.
        let _ = self.0.try_send(CallEvent::Progress(progress));
    }

    fn log(&self, line: LogMessage) {
        let _ = self.0.try_send(CallEvent::Log(line));
    }

    fn artifact(&self, artifact: Artifact) {
        let _ = self.0.try_send(CallEvent::Artifact(artifact));
    }

    fn elicitation_done(&self, id: &str) {
        let _ = self.0.try_send(CallEvent::ElicitationDone(id.to_owned()));
    }

    fn capabilities(&self) -> CallerCapabilities {
        CallerCapabilities::all()
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            let pending = PendingQuestion { question, answer };
            self.0
                .send(CallEvent::Question(pending))
                .await
                .map_err(|_| no_responder())?;
            answered.await.map_err(|_| no_responder())?
        })
    }
}

pub(crate) fn no_responder() -> Failure {
    Failure::no_responder(
        "nobody can answer the question: call from a client that supports such questions",
    )
}
