//! Answers to the sampling requests of servers: choice of the answerer, approval, and fallback.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use callboard_message::capabilities::CreateMessage;
use callboard_message::{
    Answer, Artifact, CallerCapabilities, Elicitation, Failure, FailureKind, Progress, Question,
    RawObject, SamplingAnswer, SamplingRequest,
};
use callboard_runtime::{AgentRef, CallContext, Caller};
use futures::future::{Either, select};
use serde_json::json;
use tokio::time::timeout;

use super::ANSWERED_META_KEY;
use super::approval::approval_text;
use super::granted_caller::{GrantedCaller, no_responder};
use super::ledger::Usage;
use super::options::{AnswerStrategy, Answerer};

/// Key in a sampling request's `_meta` with the name of the asking server. A value set by the
/// server itself is overwritten.
const SOURCE_META_KEY: &str = "source_external_server";
/// Key in a sampling request's `_meta` that marks it as asked by a server.
const FROM_SERVER_META_KEY: &str = "bidirectional_request";
/// Key in a sampling request's `_meta` with the principal of the call that caused it. A value set by
/// the server itself is overwritten.
const ORIGIN_META_KEY: &str = "original_client_id";

impl GrantedCaller {
    /// Returns the sampling capabilities to declare to this server: those of all answerers
    /// together. `None` if nobody can answer.
    pub(super) fn sampling_abilities(&self, client: &CallerCapabilities) -> Option<RawObject> {
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

    /// Asks the person at the client whether anyone else may answer the server's sampling request.
    ///
    /// # Errors
    /// `Rejected`, if the person doesn't allow it; `NoResponder`, if nobody can be asked; the
    /// failure of the client.
    async fn approve(&self, sample: &SamplingRequest) -> Result<(), Failure> {
        // People at this node can't consent for the client.
        let client = self.call.own_caller().or(self.client.as_ref());
        let client = client.ok_or_else(no_responder)?;
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
