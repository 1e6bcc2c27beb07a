//! Caller that a server gets for its questions, restricted to its grants.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use callboard_message::capabilities::CreateMessage;
use callboard_message::{
    Answer, Artifact, CallerCapabilities, Elicitation, ElicitationAction, ElicitationAnswer,
    Failure, FailureKind, Progress, Question, RawObject, SamplingAnswer, SamplingRequest,
};
use callboard_runtime::{AgentRef, AuditEntry, CallContext, Caller};
use futures::future::{BoxFuture, Either, select};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::approval::approval_text;
use super::ledger::{CallAccount, Usage};
use super::options::{AnswerStrategy, Answerer, ServerGrants};
use super::{ANSWERED_META_KEY, QuestionChain, RouterState};

/// Delay before a question is rejected because it isn't granted or exceeds a limit. It slows down a
/// server that keeps asking. Fixed.
pub const REFUSAL_DELAY: Duration = Duration::from_millis(100);
/// Key in a sampling request's `_meta` with the name of the asking server. A value set by the
/// server itself is overwritten.
const SOURCE_META_KEY: &str = "source_external_server";
/// Key in a sampling request's `_meta` that marks it as asked by a server.
const FROM_SERVER_META_KEY: &str = "bidirectional_request";
/// Key in a sampling request's `_meta` with the principal of the call that caused it. A value set by
/// the server itself is overwritten.
const ORIGIN_META_KEY: &str = "original_client_id";

/// Caller to which one server sends its questions in one call. It checks grants and caps and routes
/// each question.
pub(super) struct GrantedCaller {
    core: Arc<RouterState>,
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

    fn needs_approval(&self) -> bool {
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

    /// Returns the sampling capabilities to declare to this server: those of all answerers
    /// together. `None` if nobody can answer.
    fn sampling_abilities(&self, client: &CallerCapabilities) -> Option<RawObject> {
        let may_lead_elsewhere = !self.needs_approval() || client.has_elicitation_form();
        let known = |name: &String| {
            self.core
                .system
                .directory()
                .get(name)
                .is_some_and(|agent| answers_samples(&agent))
        };
        let mut can: Option<RawObject> = None;
        let mut add = |more: RawObject| {
            let sum = can.get_or_insert_default();
            more.iter()
                .for_each(|(name, value)| sum.set_raw(name, value.to_owned()));
        };
        for step in self.core.options.answerers(self.strategy()) {
            let model = || RawObject::single("tools", RawObject::new());
            match step {
                Answerer::Client => client.0.object("sampling").into_iter().for_each(&mut add),
                _ if !may_lead_elsewhere => {}
                Answerer::Models if self.core.options.models.iter().any(known) => add(model()),
                Answerer::Model(name) if known(&name) => add(model()),
                Answerer::Servers if !self.servers().is_empty() => add(RawObject::new()),
                Answerer::Server(name) if self.server(&name).is_some() => add(RawObject::new()),
                _ => {}
            }
        }
        can
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

impl GrantedCaller {
    /// Asks the person at the client whether anyone else may answer the server's sampling request.
    ///
    /// # Errors
    /// `Rejected`, if the person doesn't allow it; `NoResponder`, if nobody can be asked; the
    /// failure of the client.
    async fn approve(&self, sample: &SamplingRequest) -> Result<(), Failure> {
        let client = self.client.as_ref().ok_or_else(no_responder)?;
        if !client.capabilities().has_elicitation_form() {
            return Err(Failure::no_responder(
                "a model may answer only with a person's approval, and the client can't ask its user (elicitation)",
            ));
        }
        let schema = json!({
            "type": "object",
            "properties": {
                "allow": { "type": "boolean", "title": "Let a model answer", "default": false }
            },
            "required": ["allow"]
        });
        let message = format!(
            "Server \"{}\" asks a model:\n{}",
            self.source,
            approval_text(sample)
        );
        match client
            .ask(Question::Elicit(Elicitation::form(message, schema)))
            .await?
        {
            Answer::Elicit(answer)
                if answer
                    .content()
                    .is_some_and(|content| content["allow"] == true) =>
            {
                Ok(())
            }
            _ => Err(Failure::rejected(
                "the user of the client doesn't allow a model to answer",
            )),
        }
    }
}

/// Possible answerer of a question, with its agent from the directory.
#[derive(Clone)]
enum AnswerCandidate {
    Client,
    Model(String, AgentRef),
    Server(String, AgentRef),
}

impl fmt::Display for AnswerCandidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client => f.write_str("client"),
            Self::Model(name, _) => write!(f, "model:{name}"),
            Self::Server(name, _) => write!(f, "server:{name}"),
        }
    }
}

impl GrantedCaller {
    /// Asks one answerer. A model or server is asked within the caps, in a new call for which the
    /// waiting servers are recorded.
    ///
    /// # Errors
    /// The answerer's failure; `NoResponder`, if the client can't answer; `Overloaded` above a cap;
    /// `Rejected`, if the call passed through too many agents; `InvalidInput` for an answer without
    /// content.
    async fn ask_one(
        &self,
        candidate: &AnswerCandidate,
        sample: &SamplingRequest,
    ) -> Result<SamplingAnswer, Failure> {
        let answer = match candidate {
            AnswerCandidate::Client => self.ask_client(sample).await?,
            AnswerCandidate::Model(_, agent) | AnswerCandidate::Server(_, agent) => {
                self.ask_agent(agent, sample).await?
            }
        };
        match answer.0.has("content") {
            true => Ok(answer),
            false => Err(Failure::invalid(format!(
                "the answer of {candidate} has no `content`: the answerer has to be corrected"
            ))),
        }
    }

    async fn ask_client(&self, sample: &SamplingRequest) -> Result<SamplingAnswer, Failure> {
        let client = self.client.as_ref().ok_or_else(no_responder)?;
        if !self.client_can(sample) {
            return Err(Failure::no_responder(
                "the client doesn't answer sampling requests: use one that declares `sampling`, or a strategy that asks models",
            ));
        }
        match client.ask(Question::Sample(sample.clone())).await? {
            Answer::Sample(answer) => Ok(answer),
            _ => Err(Failure::invalid(
                "the client answered a sampling request with an answer of another kind",
            )),
        }
    }

    async fn ask_agent(
        &self,
        agent: &AgentRef,
        sample: &SamplingRequest,
    ) -> Result<SamplingAnswer, Failure> {
        let charge = self
            .account()?
            .reserve(sample.0.read("maxTokens").unwrap_or_default())?;
        let question = CreateMessage(sample.0.clone().with("maxTokens", charge.tokens()));
        let link = self.core.chains.enter_call(&self.chain, &self.source);
        let hops = self
            .call
            .hops
            .checked_add(1)
            .filter(|hops| *hops <= self.call.hops_max);
        let Some(hops) = hops else {
            charge.settle(&Usage::default());
            return Err(Failure::rejected(format!(
                "the call passed through more than {} agents: look for a loop",
                self.call.hops_max
            )));
        };
        let cancel = self.call.cancel.child_token();
        let call = CallContext {
            id: link.call,
            hops,
            trace: self.call.trace.child(),
            cancel: cancel.clone(),
            budget: charge.budget,
            // Questions asked in this call don't belong to another call of the session.
            session: None,
            caller: self
                .client
                .clone()
                .map(|client| Arc::new(QuietCaller(client)) as Arc<dyn Caller>),
            ..self.call.clone()
        };
        let _cancelled_with_this = cancel.drop_guard();
        let asked = agent.ask(question).within_call(Some(Arc::new(call)));
        let answer = asked.await.map_err(Failure::from).flatten();
        let used = answer.as_ref().map_or(Some(Usage::default()), |answer| {
            Usage::from_answer(&answer.0)
        });
        if let Some(used) = used {
            charge.settle(&used);
        }
        answer
    }
}

/// Caller for an answerer while it answers a question. Forwards its questions, and drops its
/// progress and artifacts.
struct QuietCaller(Arc<dyn Caller>);

impl Caller for QuietCaller {
    fn inner(&self) -> Option<&dyn Caller> {
        Some(&*self.0)
    }

    fn progress(&self, _: Progress) {}

    fn artifact(&self, _: Artifact) {}
}

/// Answerer and its answer.
type CandidateAnswer = (AnswerCandidate, SamplingAnswer);

impl GrantedCaller {
    /// Has a sampling request of the server answered by the configured strategy.
    ///
    /// # Errors
    /// The failure of the answerer, if only one was asked. Otherwise a failure that lists all that
    /// were asked, with the kind of each failure.
    pub async fn sample(&self, mut sample: SamplingRequest) -> Result<SamplingAnswer, Failure> {
        let strategy = self.strategy();
        let tokens = self.account()?.answer_tokens(sample.0.read("maxTokens"));
        sample.0.set("maxTokens", tokens);
        let meta = sample.0.object("_meta").unwrap_or_default();
        sample.0.set(
            "_meta",
            meta.with(SOURCE_META_KEY, &*self.source)
                .with(FROM_SERVER_META_KEY, true)
                .with(ORIGIN_META_KEY, &self.call.principal.id),
        );
        let (candidates, names_model) = self.candidates(strategy, &sample).await;
        let (who, answer) = match strategy {
            AnswerStrategy::Parallel => self.ask_in_parallel(candidates, &sample).await?,
            AnswerStrategy::Hybrid => {
                let models_first = names_model || !self.client_can(&sample);
                let (mut first, mut then): (Vec<_>, Vec<_>) = candidates
                    .into_iter()
                    .partition(|who| matches!(who, AnswerCandidate::Client) != models_first);
                first.append(&mut then);
                self.ask_in_turn(first, &sample).await?
            }
            _ => self.ask_in_turn(candidates, &sample).await?,
        };
        let by = who.to_string();
        let used = Usage::from_answer(&answer.0).unwrap_or_default();
        let entry = self.audit_entry("sample", &by, "answered");
        let entry = entry
            .with_detail("tokens_in", used.tokens_in)
            .with_detail("tokens_out", used.tokens_out);
        self.core.system.audit().enqueue(entry).await;
        let meta = answer.0.object("_meta").unwrap_or_default();
        let meta = meta.with(
            ANSWERED_META_KEY,
            RawObject::single("by", by).with("strategy", strategy),
        );
        Ok(SamplingAnswer(answer.0.with("_meta", meta)))
    }

    fn client_can(&self, sample: &SamplingRequest) -> bool {
        let question = Question::Sample(sample.clone());
        self.client
            .as_ref()
            .is_some_and(|client| client.capabilities().can_answer(&question))
    }

    /// Asks the candidates one after another, until one answers or fails in a way that is final
    /// ([`is_final`]). If the server's grants require it, a person at the client approves before
    /// anyone but the client is asked. All candidates but the last have the time limit
    /// `answer_timeout_s`.
    ///
    /// # Errors
    /// The final failure, or else the combined failures of all candidates.
    async fn ask_in_turn(
        &self,
        candidates: Vec<AnswerCandidate>,
        sample: &SamplingRequest,
    ) -> Result<CandidateAnswer, UnansweredReason> {
        let limit = Duration::from_secs(self.core.options.sampling.answer_timeout_s.into());
        let late = || {
            Failure::timed_out(format!(
                "no answer within {limit:?} (`answer_timeout_s` of `[routing.sampling]`)"
            ))
        };
        let mut approved = !self.needs_approval();
        let mut failures = Vec::new();
        let mut left = candidates.len();
        for who in candidates {
            left -= 1;
            if !approved && !matches!(who, AnswerCandidate::Client) {
                match self.approve(sample).await {
                    Ok(()) => approved = true,
                    Err(failure) if is_final(&AnswerCandidate::Client, &failure) => {
                        return Err(UnansweredReason::Final(failure));
                    }
                    Err(failure) => {
                        failures.push((who, failure));
                        continue;
                    }
                }
            }
            let asking = self.ask_one(&who, sample);
            let answer = match left {
                0 => asking.await,
                _ => timeout(limit, asking).await.unwrap_or_else(|_| Err(late())),
            };
            match answer {
                Ok(answer) => return Ok((who, answer)),
                Err(failure) if is_final(&who, &failure) => {
                    return Err(UnansweredReason::Final(failure));
                }
                Err(failure) => failures.push((who, failure)),
            }
        }
        Err(UnansweredReason::Failed(combine_failures(failures)))
    }

    /// Asks the client and, at the same time, the other candidates one after another. The first
    /// valid answer or final failure is returned, and the other request is cancelled. Without a
    /// client, or with the client only, this is [`Self::ask_in_turn`].
    async fn ask_in_parallel(
        &self,
        candidates: Vec<AnswerCandidate>,
        sample: &SamplingRequest,
    ) -> Result<CandidateAnswer, UnansweredReason> {
        let (client, others): (Vec<_>, Vec<_>) = candidates
            .into_iter()
            .partition(|who| matches!(who, AnswerCandidate::Client));
        if client.is_empty() || others.is_empty() {
            return self
                .ask_in_turn(client.into_iter().chain(others).collect(), sample)
                .await;
        }
        let client = std::pin::pin!(self.ask_in_turn(client, sample));
        let others = std::pin::pin!(self.ask_in_turn(others, sample));
        let (first, second) = match select(client, others).await {
            Either::Left((first, rest)) => (first, Either::Left(rest)),
            Either::Right((first, rest)) => (first, Either::Right(rest)),
        };
        match first {
            // The other one's failure is returned, unless there was nobody to ask.
            Err(UnansweredReason::Failed(failure)) => match second.await {
                Err(UnansweredReason::Failed(other)) if other.kind == FailureKind::NoResponder => {
                    Err(UnansweredReason::Failed(failure))
                }
                other => other,
            },
            decided => decided,
        }
    }

    /// Returns the candidates for a sampling request in the order of the strategy, without
    /// duplicates and agents that aren't in the directory. The flag tells whether the request names
    /// one of the models.
    async fn candidates(
        &self,
        strategy: AnswerStrategy,
        sample: &SamplingRequest,
    ) -> (Vec<AnswerCandidate>, bool) {
        let mut candidates = Vec::new();
        let mut names_model = false;
        for step in self.core.options.answerers(strategy) {
            match step {
                Answerer::Client => candidates.push(AnswerCandidate::Client),
                Answerer::Servers => {
                    candidates.extend(
                        self.servers()
                            .into_iter()
                            .map(|(name, agent)| AnswerCandidate::Server(name, agent)),
                    );
                }
                Answerer::Server(name) => {
                    candidates.extend(
                        self.server(&name)
                            .map(|agent| AnswerCandidate::Server(name, agent)),
                    );
                }
                Answerer::Models | Answerer::Model(_) => {
                    let named: Vec<&str> = match &step {
                        Answerer::Model(name) => vec![name],
                        _ => self
                            .core
                            .options
                            .models
                            .iter()
                            .map(String::as_str)
                            .collect(),
                    };
                    let (models, names_one) = self.core.models(&named, sample).await;
                    names_model |= names_one;
                    candidates.extend(
                        models
                            .into_iter()
                            .map(|(name, agent)| AnswerCandidate::Model(name, agent)),
                    );
                }
            }
        }
        let mut seen = std::collections::HashSet::new();
        candidates.retain(|who| seen.insert(who.to_string()));
        (candidates, names_model)
    }

    /// Returns the servers that may answer this server's sampling requests, sorted by name.
    pub fn servers(&self) -> Vec<(String, AgentRef)> {
        let granted = self
            .core
            .options
            .servers
            .iter()
            .filter(|(_, grants)| grants.answers_sampling);
        let mut servers: Vec<_> = granted
            .filter_map(|(name, _)| Some((name.clone(), self.server(name)?)))
            .collect();
        servers.sort_by(|(a, _), (b, _)| a.cmp(b));
        servers
    }

    /// Returns the server of this name, if it handles sampling requests. The asking server, and
    /// servers that wait for an answer themselves, are left out under any of their names. Whether
    /// it is granted to answer ([`ServerGrants::answers_sampling`]) is for the caller to check.
    pub fn server(&self, name: &str) -> Option<AgentRef> {
        let directory = self.core.system.directory();
        let agent = directory.get(name)?;
        let waits = |waiting: &str| {
            waiting == name || directory.get(waiting).is_some_and(|other| other == agent)
        };
        let is_waiting = waits(&self.source) || self.chain.iter().any(|waiting| waits(waiting));
        (!is_waiting && answers_samples(&agent)).then_some(agent)
    }
}

/// Returns whether the agent handles sampling requests. A proxy is assumed to; whether it is asked
/// depends on its grant.
pub(super) fn answers_samples(agent: &AgentRef) -> bool {
    agent.is_proxy() || agent.recipient::<CreateMessage>().is_some()
}

/// Reason a question got no answer, which decides whether the next candidate is asked.
enum UnansweredReason {
    /// No other answerer may be asked.
    Final(Failure),
    /// The next answerer may be asked.
    Failed(Failure),
}

impl From<UnansweredReason> for Failure {
    fn from(unanswered: UnansweredReason) -> Self {
        match unanswered {
            UnansweredReason::Final(failure) | UnansweredReason::Failed(failure) => failure,
        }
    }
}

/// Returns whether no other candidate may be asked after `who` failed.
///
/// - Any candidate: a guardrail's rejection and the end of the call are final.
/// - Client: every failure is final, because a person may have caused it, unless the client can't
///   answer.
/// - Server: a rejection is final too, because a person may have caused it.
/// - Model: a rejection comes from the model's provider, so the next candidate is asked.
fn is_final(who: &AnswerCandidate, failure: &Failure) -> bool {
    let can_not = matches!(
        failure.kind,
        FailureKind::NoResponder
            | FailureKind::Unavailable
            | FailureKind::TimedOut
            | FailureKind::Overloaded
    );
    match who {
        AnswerCandidate::Client => !can_not,
        AnswerCandidate::Server(..) => {
            matches!(
                failure.kind,
                FailureKind::Blocked | FailureKind::Cancelled | FailureKind::Rejected
            )
        }
        AnswerCandidate::Model(..) => {
            matches!(failure.kind, FailureKind::Blocked | FailureKind::Cancelled)
        }
    }
}

/// Combines the failures of all candidates to one. A single failure is returned as it is; without
/// one, it is `NoResponder`. Of several, the messages are left out, which the asking server must
/// not see, and the last one decides the kind. An internal one becomes `Unavailable`, because the
/// sentence wouldn't reach the server otherwise.
fn combine_failures(mut failures: Vec<(AnswerCandidate, Failure)>) -> Failure {
    let Some((_, last)) = failures.last() else {
        return no_responder();
    };
    let kind = match last.kind {
        FailureKind::Internal => FailureKind::Unavailable,
        kind => kind,
    };
    if failures.len() == 1 {
        return failures.remove(0).1;
    }
    let told: Vec<String> = failures
        .iter()
        .map(|(who, failure)| format!("{who}: {}", failure.kind))
        .collect();
    Failure::new(kind, format!("nobody answered ({})", told.join(", ")))
}
