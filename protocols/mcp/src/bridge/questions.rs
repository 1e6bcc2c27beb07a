//! Routing of a server's questions to the call's caller or to a configured answerer.

use std::sync::Arc;

use callboard_message::{
    Answer, CallId, CallerCapabilities, Elicitation, Failure, Principal, Question, RawObject,
    SamplingRequest, SessionId,
};
use callboard_runtime::{
    AuditEntry, AuditLog, CallContext, Caller, Direction, PeerSession, QuestionRouter, System,
};
use futures::future::BoxFuture;
use serde_json::value::RawValue;

use super::call_slots::CallSlots;

/// Metadata member in which some servers name the client whose request led to a question.
const CLAIMED_ORIGIN_MEMBER: &str = "original_client_id";
/// Objects of a question that may hold [`CLAIMED_ORIGIN_MEMBER`].
const METADATA_MEMBERS: [&str; 2] = ["metadata", "_meta"];

/// Settings shared by all [`RelayCaller`]s of one bridge.
pub(crate) struct UpstreamQuestions {
    /// Name of the bridge's agent.
    pub server: String,
    pub question_router: Option<Arc<dyn QuestionRouter>>,
    pub audit: AuditLog,
    /// System whose policies check the questions.
    pub system: System,
    pub slots: Arc<CallSlots>,
}

impl UpstreamQuestions {
    /// Replaces the call's caller by a relay that sends questions to the configured answerer, or
    /// else to the caller. Progress and log messages still go to the caller.
    pub fn relay_call(self: &Arc<Self>, mut call: CallContext) -> Arc<CallContext> {
        let answerer = match &self.question_router {
            Some(answering) => answering.caller(&self.server, &call),
            None => call.caller.clone(),
        };
        let observer = call.caller.take();
        call.caller_alone = None;
        if observer.is_some() || answerer.is_some() {
            let abilities = answerer
                .as_ref()
                .map(|answerer| answerer.capabilities())
                .unwrap_or_default();
            let origin = CallOrigin {
                call: call.id,
                principal: call.principal.clone(),
                session: call.session.as_ref().map(|session| session.id),
            };
            call.caller = Some(Arc::new(RelayCaller {
                questions: self.clone(),
                observer,
                answerer,
                abilities,
                origin,
            }));
        }
        Arc::new(call)
    }

    /// Returns the relay that receives a session's questions and notifications if they name none of
    /// the session's calls. `call` supplies the principal.
    pub fn background_caller(
        self: &Arc<Self>,
        session: &Arc<PeerSession>,
        call: &CallContext,
    ) -> Arc<dyn Caller> {
        Arc::new(BackgroundCaller {
            questions: self.clone(),
            session: session.clone(),
            principal: call.principal.clone(),
        })
    }

    /// Records in the audit log that the server named a client other than the one that made the
    /// call. The name that the server sent isn't recorded.
    fn record_mismatch(&self, origin: &CallOrigin) {
        let entry = AuditEntry::new("origin_mismatch")
            .with_peer(&self.server)
            .with_call(origin.call);
        self.audit.try_enqueue(
            entry
                .with_principal(&origin.principal)
                .with_outcome("ignored"),
        );
    }
}

/// Caller for questions that name none of the session's calls. Each question is a call of its own,
/// so that limits per call hold for it alone, and not for all questions during the session.
struct BackgroundCaller {
    questions: Arc<UpstreamQuestions>,
    session: Arc<PeerSession>,
    principal: Arc<Principal>,
}

impl BackgroundCaller {
    /// Returns the caller of a new call. The policies apply to its questions as to those of a call of
    /// the client.
    fn relay(&self) -> Arc<dyn Caller> {
        let caller = self.session.caller.clone();
        let mut call = CallContext::new(self.principal.clone()).with_caller(caller.clone());
        call.session = Some(self.session.clone());
        let (system, server) = (&self.questions.system, &self.questions.server);
        let call = CallContext::clone(&self.questions.relay_call(call));
        let call = call.with_policy(system, Direction::Outbound, server);
        call.caller.unwrap_or(caller)
    }
}

impl Caller for BackgroundCaller {
    fn inner(&self) -> Option<&dyn Caller> {
        Some(&*self.session.caller)
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        let relay = self.relay();
        let parked = self.questions.slots.park_in_session(self.session.id);
        Box::pin(async move {
            let _parked = parked;
            relay.ask(question).await
        })
    }

    fn forward(
        &self,
        method: String,
        params: Option<Box<RawValue>>,
    ) -> BoxFuture<'_, Result<Box<RawValue>, Failure>> {
        let relay = self.relay();
        let parked = self.questions.slots.park_in_session(self.session.id);
        Box::pin(async move {
            let _parked = parked;
            relay.forward(method, params).await
        })
    }

    fn capabilities(&self) -> CallerCapabilities {
        self.relay().capabilities()
    }
}

/// Call, principal and session for which a request was sent to the server. Compared with the origin
/// that the server claims in its questions.
struct CallOrigin {
    call: CallId,
    principal: Arc<Principal>,
    session: Option<SessionId>,
}

impl CallOrigin {
    fn matches(&self, claimed: &str) -> bool {
        claimed == self.principal.id
            || self
                .session
                .as_ref()
                .is_some_and(|session| session.to_string() == claimed)
    }
}

/// Caller of one call that passes questions of the server to `answerer`, and progress and log
/// messages to `observer`.
struct RelayCaller {
    questions: Arc<UpstreamQuestions>,
    observer: Option<Arc<dyn Caller>>,
    answerer: Option<Arc<dyn Caller>>,
    /// Capabilities of `answerer`.
    abilities: CallerCapabilities,
    origin: CallOrigin,
}

impl RelayCaller {
    /// Removes the client that the server names in `question` if it is neither the call's principal
    /// nor its session, and records the mismatch in the audit log.
    fn strip_forged_origin(&self, question: Question) -> Question {
        let mut forged = false;
        let mut check = |mut body: RawObject| {
            for name in METADATA_MEMBERS {
                let Some(mut metadata) = body.object(name) else {
                    continue;
                };
                let Some(claimed) = metadata.get(CLAIMED_ORIGIN_MEMBER) else {
                    continue;
                };
                let claimed: Option<String> = serde_json::from_str(claimed.get()).ok();
                if !claimed.is_some_and(|claimed| self.origin.matches(&claimed)) {
                    metadata.remove(CLAIMED_ORIGIN_MEMBER);
                    body.set(name, metadata);
                    forged = true;
                }
            }
            body
        };
        let question = match question {
            Question::Sample(sample) => Question::Sample(SamplingRequest(check(sample.0))),
            Question::Elicit(elicitation) => Question::Elicit(Elicitation(check(elicitation.0))),
            other => other,
        };
        if forged {
            self.questions.record_mismatch(&self.origin);
        }
        question
    }
}

impl Caller for RelayCaller {
    fn inner(&self) -> Option<&dyn Caller> {
        self.observer.as_deref()
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        match &self.answerer {
            Some(answerer) => answerer.ask(self.strip_forged_origin(question)),
            None => Box::pin(async {
                Err(Failure::no_responder(
                    "nobody can answer the question: call from a client that supports such questions",
                ))
            }),
        }
    }

    fn forward(
        &self,
        method: String,
        params: Option<Box<RawValue>>,
    ) -> BoxFuture<'_, Result<Box<RawValue>, Failure>> {
        match &self.answerer {
            Some(answerer) => answerer.forward(method, params),
            None => Box::pin(async { Err(Failure::not_found("method not found")) }),
        }
    }

    fn capabilities(&self) -> CallerCapabilities {
        self.abilities.clone()
    }
}
