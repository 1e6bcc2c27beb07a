//! Caller that a server gets for its questions, restricted to its grants.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use callboard_message::{
    Answer, CallerCapabilities, ElicitationAction, ElicitationAnswer, Failure, Question,
};
use callboard_runtime::{AuditEntry, CallContext, Caller};
use futures::future::BoxFuture;
use serde_json::value::RawValue;

use super::ledger::CallAccount;
use super::options::{AnswerStrategy, ServerGrants};
use super::{QuestionChain, RouterState};

/// Delay before a question is rejected because it isn't granted or exceeds a limit. It slows down a
/// server that keeps asking. Fixed.
pub const REFUSAL_DELAY: Duration = Duration::from_millis(100);
/// Caller to which one server sends its questions in one call. It checks grants and caps and routes
/// each question.
pub(super) struct GrantedCaller {
    pub(super) core: Arc<RouterState>,
    /// Name of the asking server.
    pub source: Arc<str>,
    pub call: CallContext,
    /// Client that made the call; `None` if the call has no client that can be asked.
    pub client: Option<Arc<dyn Caller>>,
    /// Servers that wait for an answer to which this call contributes, outermost first. They must
    /// not be asked themselves.
    pub chain: QuestionChain,
    /// Usage account of the server's questions in this call, created at the first question; `None`
    /// for a server without grants.
    account: OnceLock<Option<CallAccount>>,
}

impl GrantedCaller {
    pub fn new(core: Arc<RouterState>, source: &str, call: &CallContext) -> Self {
        let chain = core.chains.of(call.id);
        Self {
            core,
            source: source.into(),
            client: call.caller.clone(),
            call: call.clone(),
            chain,
            account: OnceLock::new(),
        }
    }

    fn grants(&self) -> Option<&ServerGrants> {
        self.core.options.servers.get(&*self.source)
    }

    /// Returns the usage account of the server's questions in this call.
    ///
    /// # Errors
    /// `Denied`, if the server has no grants.
    pub fn account(&self) -> Result<&CallAccount, Failure> {
        // Most calls ask nothing, so the account is opened lazily.
        let open = || {
            Some(
                self.core
                    .ledgers
                    .get(&*self.source)?
                    .account(self.call.id, self.call.budget),
            )
        };
        self.account
            .get_or_init(open)
            .as_ref()
            .ok_or_else(|| denied(&self.source, ASK_ANYTHING))
    }

    /// Returns the strategy by which the server's sampling requests are answered.
    pub fn strategy(&self) -> AnswerStrategy {
        self.core.options.sampling.strategy(&self.source)
    }

    pub(super) fn needs_approval(&self) -> bool {
        self.grants().is_none_or(|grants| grants.approval)
    }

    /// Returns whether another nested question is within the server's maximum nesting depth.
    fn is_within_depth(&self, grants: &ServerGrants) -> bool {
        self.chain.len() < usize::from(grants.caps.depth_max)
    }

    /// Admits a question: checks the grant and the nesting depth, and counts it against the caps.
    ///
    /// # Errors
    /// `Denied` without a grant, `Rejected` beyond the nesting depth, `Overloaded` above a cap.
    fn admit(&self, question: &Question) -> Result<(), Failure> {
        self.admit_granted(|grants| match question {
            Question::Sample(_) => (
                grants.supports_sampling,
                "ask a model: set `supports_sampling = true` for it",
            ),
            Question::Elicit(_) => (
                grants.supports_elicitation,
                "ask a person: set `supports_elicitation = true` for it",
            ),
            Question::Roots(_) => (
                grants.supports_roots,
                "ask for roots: set `supports_roots = true` for it",
            ),
            _ => (false, "ask a question of this kind: no key permits it"),
        })
    }

    /// Admits a request that `granted` allows; see [`Self::admit`]. `granted` also returns what the
    /// request does, for the error.
    fn admit_granted(
        &self,
        granted: impl FnOnce(&ServerGrants) -> (bool, &'static str),
    ) -> Result<(), Failure> {
        let grants = self
            .grants()
            .ok_or_else(|| denied(&self.source, ASK_ANYTHING))?;
        let (is_granted, what) = granted(grants);
        if !is_granted {
            return Err(denied(&self.source, what));
        }
        if !self.is_within_depth(grants) {
            return Err(Failure::rejected(format!(
                "questions are nested more than {} deep (`depth_max`): look for servers that ask each other",
                grants.caps.depth_max
            )));
        }
        self.account()?.admit()
    }

    async fn answer(&self, question: Question) -> Result<Answer, Failure> {
        if let Err(refused) = self.admit(&question) {
            // Without the delay, a server that keeps asking would occupy both processes and the
            // log.
            tokio::time::sleep(REFUSAL_DELAY).await;
            return Err(refused);
        }
        match question {
            Question::Sample(sample) => self.sample(sample).await.map(Answer::Sample),
            other => {
                self.client
                    .as_ref()
                    .ok_or_else(no_responder)?
                    .ask(other)
                    .await
            }
        }
    }

    /// Forwards a request of an extension to the client, if the server has the grant for it.
    async fn forward_extension(
        &self,
        method: String,
        params: Option<Box<RawValue>>,
    ) -> Result<Box<RawValue>, Failure> {
        let grant = |grants: &ServerGrants| {
            (
                grants.supports_extensions,
                "send requests of the client's extensions: set `supports_extensions = true` for it",
            )
        };
        if let Err(refused) = self.admit_granted(grant) {
            tokio::time::sleep(REFUSAL_DELAY).await;
            return Err(refused);
        }
        let client = self.client.as_ref().ok_or_else(no_responder)?;
        client.forward(method, params).await
    }
}

impl Caller for GrantedCaller {
    fn inner(&self) -> Option<&dyn Caller> {
        self.client.as_deref()
    }

    fn capabilities(&self) -> CallerCapabilities {
        let mut abilities = self
            .client
            .as_ref()
            .map(|client| client.capabilities())
            .unwrap_or_default();
        let grants = self
            .grants()
            .filter(|grants| self.is_within_depth(grants))
            .cloned()
            .unwrap_or_default();
        // The answerers of samples are looked up only for a server that may ask for them.
        match grants
            .supports_sampling
            .then(|| self.sampling_abilities(&abilities))
            .flatten()
        {
            Some(sampling) => abilities.0.set("sampling", sampling),
            None => drop(abilities.0.remove("sampling")),
        }
        for (name, granted) in [
            ("elicitation", grants.supports_elicitation),
            ("roots", grants.supports_roots),
        ] {
            if !granted {
                abilities.0.remove(name);
            }
        }
        abilities
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(async move {
            let asked = question_kind(&question);
            let answer = self.answer(question).await;
            let entry = match &answer {
                // Recorded where the answerer was chosen.
                Ok(Answer::Sample(_)) => return answer,
                Ok(Answer::Elicit(given)) => {
                    self.audit_entry(asked, "client", elicit_action_name(given))
                }
                Ok(_) => self.audit_entry(asked, "client", "answered"),
                Err(why) => self.audit_entry(asked, "nobody", why.kind.to_string()),
            };
            let log = self.core.system.audit();
            match &answer {
                // A person's consent must be recorded before the server receives it.
                Ok(Answer::Elicit(given)) if given.action() == ElicitationAction::Accept => {
                    let unrecorded = |error| {
                        Failure::unavailable(format!(
                            "failed to record the consent in the audit log, so it wasn't passed on: {error}"
                        ))
                    };
                    log.record(entry).await.map_err(unrecorded)?;
                }
                _ => log.enqueue(entry).await,
            }
            answer
        })
    }

    fn forward(
        &self,
        method: String,
        params: Option<Box<RawValue>>,
    ) -> BoxFuture<'_, Result<Box<RawValue>, Failure>> {
        Box::pin(async move {
            let result = self.forward_extension(method, params).await;
            let entry = match &result {
                Ok(_) => self.audit_entry("extension", "client", "answered"),
                Err(why) => self.audit_entry("extension", "nobody", why.kind.to_string()),
            };
            self.core.system.audit().enqueue(entry).await;
            result
        })
    }
}

impl GrantedCaller {
    /// Creates the audit entry of a question, without its content. `asked` is its kind as of
    /// [`question_kind`], and `by` names the answerer.
    pub fn audit_entry(
        &self,
        asked: &'static str,
        by: &str,
        outcome: impl Into<Cow<'static, str>>,
    ) -> AuditEntry {
        let strategy = match asked {
            "sample" => self.strategy(),
            "elicitation" => self.core.options.elicitation.strategy(&self.source),
            _ => AnswerStrategy::ClientForwarded,
        };
        let entry = AuditEntry::new("question")
            .with_message(asked)
            .with_peer(&*self.source)
            .with_call(self.call.id);
        let entry = entry
            .with_principal(&self.call.principal)
            .with_outcome(outcome);
        entry
            .with_detail("by", by)
            .with_detail("strategy", strategy.to_string())
    }
}

fn elicit_action_name(answer: &ElicitationAnswer) -> &'static str {
    match answer.action() {
        ElicitationAction::Accept => "accept",
        ElicitationAction::Decline => "decline",
        ElicitationAction::Cancel => "cancel",
    }
}

fn question_kind(question: &Question) -> &'static str {
    match question {
        Question::Sample(_) => "sample",
        Question::Elicit(_) => "elicitation",
        Question::Roots(_) => "roots",
        _ => "other",
    }
}

/// Prohibition for a server without any grant, and its remedy.
const ASK_ANYTHING: &str = "ask anything: set `supports_sampling`, `supports_elicitation` or \
     `supports_roots` for it";

fn denied(server: &str, what: &str) -> Failure {
    Failure::denied(format!("the server {server:?} may not {what}"))
}

pub(super) fn no_responder() -> Failure {
    Failure::no_responder(
        "nobody can answer the question: call from a client that supports such questions",
    )
}
