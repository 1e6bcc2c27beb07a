//! Who is asked in the course of one call: whoever answers in the caller's stead, or the caller.

use std::sync::Arc;

use callboard_message::{
    Abilities, Answer, CallId, Elicitation, Failure, Principal, Question, RawObject, Sample,
    SessionId,
};
use callboard_runtime::{Answering, AuditEntry, AuditLog, CallMeta, Caller, PeerSession};
use futures::future::BoxFuture;

/// A member by which some servers say for whom they ask.
const CLAIMED_ORIGIN: &str = "original_client_id";
/// The objects in which it is found.
const METADATA: [&str; 2] = ["metadata", "_meta"];

/// What relays of one bridge have in common.
pub(crate) struct UpstreamQuestions {
    /// The agent that stands for the server.
    pub server: String,
    pub answering: Option<Arc<dyn Answering>>,
    pub audit: AuditLog,
}

impl UpstreamQuestions {
    /// The call as the server's connection gets it: its questions go to whoever answers them, and to nobody else.
    pub fn relayed(self: &Arc<Self>, mut call: CallMeta) -> Arc<CallMeta> {
        let answers = match &self.answering {
            Some(answering) => answering.caller(&self.server, &call),
            None => call.caller.clone(),
        };
        let told = call.caller.take();
        if told.is_some() || answers.is_some() {
            let abilities = answers
                .as_ref()
                .map(|answers| answers.abilities())
                .unwrap_or_default();
            let origin = Origin {
                call: call.id,
                principal: call.principal.clone(),
                session: call.session.as_ref().map(|session| session.id),
            };
            call.caller = Some(Arc::new(Relay {
                desk: self.clone(),
                told,
                answers,
                abilities,
                origin,
            }));
        }
        Arc::new(call)
    }

    /// Whom to ask and tell what belongs to a session, and to none of its calls for sure.
    pub fn background(
        self: &Arc<Self>,
        session: &Arc<PeerSession>,
        call: &CallMeta,
    ) -> Option<Arc<dyn Caller>> {
        let mut background =
            CallMeta::new(call.principal.clone()).with_caller(session.caller.clone());
        background.session = Some(session.clone());
        self.relayed(background).caller.clone()
    }

    /// Records that a server claims to ask for somebody who isn't behind the call: the claim is ignored, and not kept.
    fn record_mismatch(&self, origin: &Origin) {
        let entry = AuditEntry::new("origin_mismatch")
            .with_peer(&self.server)
            .with_call(origin.call);
        self.audit.note(
            entry
                .with_principal(&origin.principal)
                .with_outcome("ignored"),
        );
    }
}

/// Where a call comes from: of its connection.
struct Origin {
    call: CallId,
    principal: Arc<Principal>,
    session: Option<SessionId>,
}

impl Origin {
    fn is(&self, claimed: &str) -> bool {
        claimed == self.principal.id
            || self
                .session
                .as_ref()
                .is_some_and(|session| session.to_string() == claimed)
    }
}

/// Stands before the caller of one call.
struct Relay {
    desk: Arc<UpstreamQuestions>,
    /// Told of progress, and the lines of its log.
    told: Option<Arc<dyn Caller>>,
    /// Asked.
    answers: Option<Arc<dyn Caller>>,
    /// What that one can answer.
    abilities: Abilities,
    origin: Origin,
}

impl Relay {
    /// The question without what it claims of its origin, where that isn't so.
    fn checked(&self, question: Question) -> Question {
        let mut forged = false;
        let mut check = |mut body: RawObject| {
            for name in METADATA {
                let Some(mut metadata) = body.object(name) else {
                    continue;
                };
                let Some(claimed) = metadata.get(CLAIMED_ORIGIN) else {
                    continue;
                };
                let claimed: Option<String> = serde_json::from_str(claimed.get()).ok();
                if !claimed.is_some_and(|claimed| self.origin.is(&claimed)) {
                    metadata.remove(CLAIMED_ORIGIN);
                    body.set(name, metadata);
                    forged = true;
                }
            }
            body
        };
        let question = match question {
            Question::Sample(sample) => Question::Sample(Sample(check(sample.0))),
            Question::Elicit(elicitation) => Question::Elicit(Elicitation(check(elicitation.0))),
            other => other,
        };
        if forged {
            self.desk.record_mismatch(&self.origin);
        }
        question
    }
}

impl Caller for Relay {
    fn behind(&self) -> Option<&dyn Caller> {
        self.told.as_deref()
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        match &self.answers {
            Some(answers) => answers.ask(self.checked(question)),
            None => Box::pin(async { Err(Failure::nobody_to_ask("nobody to ask")) }),
        }
    }

    fn abilities(&self) -> Abilities {
        self.abilities.clone()
    }
}
