//! The caller as a server sees it that may ask only what it was granted.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use callboard_message::surface::CreateMessage;
use callboard_message::{
    Abilities, Answer, Artifact, ElicitAction, ElicitAnswer, Elicitation, Failure, FailureKind,
    Progress, Question, RawObject, Sample, SampleAnswer,
};
use callboard_runtime::{AgentRef, AuditEntry, CallMeta, Caller};
use futures::future::{BoxFuture, Either, select};
use serde_json::json;
use tokio::time::timeout;

use super::ledger::{Account, Spent};
use super::options::{Answerer, ServerGrants, Strategy};
use super::{ANSWERED, Chain, Core};

/// Delay before a question that is over its limits, or isn't granted, is refused. The server waits that long. Fixed.
pub const REFUSAL_PAUSE: Duration = Duration::from_millis(100);
/// Maximum characters that a person sees of a question that they are to approve. A longer one is cut. Fixed.
const SHOWN_CHARS_MAX: usize = 500;
/// Member of a sample's `_meta`: the server that asks. What the server says of itself there doesn't count.
const SOURCE: &str = "source_external_server";
/// Member of a sample's `_meta`: it came from a server.
const FROM_SERVER: &str = "bidirectional_request";

/// Whom one server gets to ask in one call.
pub(super) struct Asker {
    core: Arc<Core>,
    /// The server that asks.
    pub source: Arc<str>,
    pub call: CallMeta,
    /// Whose call it is.
    pub client: Option<Arc<dyn Caller>>,
    /// Who waits for an answer that this server is to help with.
    pub chain: Chain,
    /// What its questions cost; `None` where it was granted nothing.
    account: OnceLock<Option<Account>>,
}

impl Asker {
    pub fn new(core: Arc<Core>, source: &str, call: &CallMeta) -> Self {
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

    /// What the server's questions cost.
    ///
    /// # Errors
    /// `Denied` where it was granted nothing.
    pub fn account(&self) -> Result<&Account, Failure> {
        // Most calls ask nothing: theirs is never opened.
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
            .ok_or_else(|| denied("ask anything"))
    }

    /// How its samples are answered.
    pub fn strategy(&self) -> Strategy {
        self.core.options.sampling.strategy(&self.source)
    }

    fn needs_approval(&self) -> bool {
        self.grants().is_none_or(|grants| grants.approval)
    }

    /// Whether questions nest no deeper than they may.
    fn is_shallow(&self, grants: &ServerGrants) -> bool {
        self.chain.len() < usize::from(grants.caps.depth_max)
    }

    /// Lets a question pass that was granted, and counts it.
    fn admit(&self, question: &Question) -> Result<(), Failure> {
        let grants = self.grants().ok_or_else(|| denied("ask anything"))?;
        let (granted, what) = match question {
            Question::Sample(_) => (grants.supports_sampling, "ask a model"),
            Question::Elicit(_) => (grants.supports_elicitation, "ask a person"),
            Question::Roots(_) => (grants.supports_roots, "ask for roots"),
            _ => (false, "ask that"),
        };
        if !granted {
            return Err(denied(what));
        }
        if !self.is_shallow(grants) {
            return Err(Failure::rejected("questions nest too deep"));
        }
        self.account()?.admit()
    }

    async fn answer(&self, question: Question) -> Result<Answer, Failure> {
        if let Err(refused) = self.admit(&question) {
            // One who asks on and on, whatever it is told, would keep both processes and the log busy with nothing else.
            tokio::time::sleep(REFUSAL_PAUSE).await;
            return Err(refused);
        }
        match question {
            Question::Sample(sample) => self.sample(sample).await.map(Answer::Sample),
            other => self.client.as_ref().ok_or_else(nobody)?.ask(other).await,
        }
    }

    /// What the client's and our own models can do for a sample of this server's.
    fn sampling(&self, client: &Abilities) -> Option<RawObject> {
        let may_lead_elsewhere = !self.needs_approval() || client.elicitation_form();
        let known = |name: &String| {
            self.core
                .system
                .directory()
                .get(name)
                .is_some_and(|agent| answers(&agent))
        };
        let mut can: Option<RawObject> = None;
        let mut add = |more: RawObject| {
            let sum = can.get_or_insert_default();
            more.iter()
                .for_each(|(name, value)| sum.set_raw(name, value.to_owned()));
        };
        for step in self.core.options.steps(self.strategy()) {
            let model = || RawObject::of("tools", RawObject::new());
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

impl Caller for Asker {
    fn behind(&self) -> Option<&dyn Caller> {
        self.client.as_deref()
    }

    fn abilities(&self) -> Abilities {
        let mut abilities = self
            .client
            .as_ref()
            .map(|client| client.abilities())
            .unwrap_or_default();
        let grants = self
            .grants()
            .filter(|grants| self.is_shallow(grants))
            .cloned()
            .unwrap_or_default();
        // Who could answer a sample is looked up only for a server that may ask for one.
        match grants
            .supports_sampling
            .then(|| self.sampling(&abilities))
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
            let asked = what(&question);
            let answer = self.answer(question).await;
            let entry = match &answer {
                // Whoever chose the answerer has said it.
                Ok(Answer::Sample(_)) => return answer,
                Ok(Answer::Elicit(given)) => self.entry(asked, "client", action(given)),
                Ok(_) => self.entry(asked, "client", "answered"),
                Err(why) => self.entry(asked, "nobody", why.kind.to_string()),
            };
            let log = self.core.system.audit();
            match &answer {
                // What a person agreed to must be on record before the server hears of it.
                Ok(Answer::Elicit(given)) if given.action() == ElicitAction::Accept => {
                    let unrecorded = |error| {
                        Failure::unavailable(format!("the consent can't be put on record: {error}"))
                    };
                    log.record(entry).await.map_err(unrecorded)?;
                }
                _ => log.placed(entry).await,
            }
            answer
        })
    }
}

impl Asker {
    /// An entry of the audit. It never says what was asked.
    pub fn entry(
        &self,
        asked: &'static str,
        by: &str,
        outcome: impl Into<Cow<'static, str>>,
    ) -> AuditEntry {
        let strategy = match asked {
            "sample" => self.strategy(),
            "elicitation" => self.core.options.elicitation.strategy(&self.source),
            _ => Strategy::ClientForwarded,
        };
        let entry = AuditEntry::new("question")
            .with_message(asked)
            .with_peer(&*self.source)
            .with_call(self.call.id);
        let entry = entry
            .with_principal(&self.call.principal)
            .with_outcome(outcome);
        entry.with("by", by).with("strategy", strategy.to_string())
    }
}

fn action(answer: &ElicitAnswer) -> &'static str {
    match answer.action() {
        ElicitAction::Accept => "accept",
        ElicitAction::Decline => "decline",
        ElicitAction::Cancel => "cancel",
    }
}

fn what(question: &Question) -> &'static str {
    match question {
        Question::Sample(_) => "sample",
        Question::Elicit(_) => "elicitation",
        Question::Roots(_) => "roots",
        _ => "other",
    }
}

fn denied(what: &str) -> Failure {
    Failure::denied(format!("the server may not {what} here"))
}

pub(super) fn nobody() -> Failure {
    Failure::nobody_to_ask("nobody to ask")
}

impl Asker {
    /// Asks the person at the client whether a model may answer.
    ///
    /// # Errors
    /// `Rejected` where they said no; `NobodyToAsk` where there is nobody who could say.
    async fn approve(&self, sample: &Sample) -> Result<(), Failure> {
        let client = self.client.as_ref().ok_or_else(nobody)?;
        if !client.abilities().elicitation_form() {
            return Err(Failure::nobody_to_ask(
                "nobody is there to let a model answer",
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
            "Server \"{}\" asks a model: \u{201c}{}\u{201d}",
            self.source,
            shown(sample)
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
                "the person at the client doesn't let a model answer",
            )),
        }
    }
}

/// The last turn of the conversation, on one line.
fn shown(sample: &Sample) -> String {
    let last = sample
        .texts()
        .pop()
        .map(|(_, text)| text)
        .unwrap_or_default();
    let line: String = last
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(SHOWN_CHARS_MAX + 1)
        .collect();
    match line.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((cut, _)) => format!("{}…", &line[..cut]),
        None => line,
    }
}

/// One who may answer.
#[derive(Clone)]
enum Candidate {
    Client,
    Model(String, AgentRef),
    Server(String, AgentRef),
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Client => f.write_str("client"),
            Self::Model(name, _) => write!(f, "model:{name}"),
            Self::Server(name, _) => write!(f, "server:{name}"),
        }
    }
}

impl Asker {
    /// Asks one for the answer. A model or server is asked within the caps, and in a call of its own that knows who waits.
    ///
    /// # Errors
    /// Its own; `Overloaded` over a cap.
    async fn ask_one(
        &self,
        candidate: &Candidate,
        sample: &Sample,
    ) -> Result<SampleAnswer, Failure> {
        let answer = match candidate {
            Candidate::Client => self.ask_client(sample).await?,
            Candidate::Model(_, agent) | Candidate::Server(_, agent) => {
                self.ask_agent(agent, sample).await?
            }
        };
        match answer.0.has("content") {
            true => Ok(answer),
            false => Err(Failure::invalid("the answer has no content")),
        }
    }

    async fn ask_client(&self, sample: &Sample) -> Result<SampleAnswer, Failure> {
        let client = self.client.as_ref().ok_or_else(nobody)?;
        if !self.client_can(sample) {
            return Err(Failure::nobody_to_ask("the client has no model to ask"));
        }
        match client.ask(Question::Sample(sample.clone())).await? {
            Answer::Sample(answer) => Ok(answer),
            _ => Err(Failure::invalid("the answer doesn't fit the question")),
        }
    }

    async fn ask_agent(&self, agent: &AgentRef, sample: &Sample) -> Result<SampleAnswer, Failure> {
        let charge = self
            .account()?
            .reserve(sample.0.read("maxTokens").unwrap_or_default())?;
        let question = CreateMessage(sample.0.clone().with("maxTokens", charge.tokens()));
        let link = self.core.chains.link(&self.chain, &self.source);
        let hops = self
            .call
            .hops
            .checked_add(1)
            .filter(|hops| *hops <= self.call.hops_max);
        let Some(hops) = hops else {
            charge.settle(&Spent::default());
            return Err(Failure::rejected("the call passed through too many agents"));
        };
        let cancel = self.call.cancel.child_token();
        let call = CallMeta {
            id: link.call,
            hops,
            trace: self.call.trace.child(),
            cancel: cancel.clone(),
            budget: charge.budget,
            // What is asked in this call is no other call's of the session.
            session: None,
            caller: self
                .client
                .clone()
                .map(|client| Arc::new(Unheard(client)) as Arc<dyn Caller>),
            ..self.call.clone()
        };
        let _cancelled_with_this = cancel.drop_guard();
        let asked = agent.ask(question).within_call(Some(Arc::new(call)));
        let answer = asked.await.map_err(Failure::from).flatten();
        let used = answer
            .as_ref()
            .map_or(Some(Spent::default()), |answer| Spent::told(&answer.0));
        if let Some(used) = used {
            charge.settle(&used);
        }
        answer
    }
}

/// The client, as those see it who answer a question for it: asked, but not told how far *they* have come.
struct Unheard(Arc<dyn Caller>);

impl Caller for Unheard {
    fn behind(&self) -> Option<&dyn Caller> {
        Some(&*self.0)
    }

    fn progress(&self, _: Progress) {}

    fn artifact(&self, _: Artifact) {}
}

/// Who answered, and what.
type Answered = (Candidate, SampleAnswer);

impl Asker {
    /// Has a sample answered by the strategy of the server that asks.
    ///
    /// # Errors
    /// The failure of the one who was asked; where several were, one that tells why none of them answered.
    pub async fn sample(&self, mut sample: Sample) -> Result<SampleAnswer, Failure> {
        let strategy = self.strategy();
        let tokens = self.account()?.answer_tokens(sample.0.read("maxTokens"));
        sample.0.set("maxTokens", tokens);
        let meta = sample.0.object("_meta").unwrap_or_default();
        sample.0.set(
            "_meta",
            meta.with(SOURCE, &*self.source).with(FROM_SERVER, true),
        );
        let (candidates, names_model) = self.candidates(strategy, &sample).await;
        let (who, answer) = match strategy {
            Strategy::Parallel => self.at_once(candidates, &sample).await?,
            Strategy::Hybrid => {
                let models_first = names_model || !self.client_can(&sample);
                let (mut first, mut then): (Vec<_>, Vec<_>) = candidates
                    .into_iter()
                    .partition(|who| matches!(who, Candidate::Client) != models_first);
                first.append(&mut then);
                self.in_turn(first, &sample).await?
            }
            _ => self.in_turn(candidates, &sample).await?,
        };
        let by = who.to_string();
        let used = Spent::told(&answer.0).unwrap_or_default();
        let entry = self.entry("sample", &by, "answered");
        let entry = entry
            .with("tokens_in", used.tokens_in)
            .with("tokens_out", used.tokens_out);
        self.core.system.audit().placed(entry).await;
        let meta = answer.0.object("_meta").unwrap_or_default();
        let meta = meta.with(ANSWERED, RawObject::of("by", by).with("strategy", strategy));
        Ok(SampleAnswer(answer.0.with("_meta", meta)))
    }

    fn client_can(&self, sample: &Sample) -> bool {
        let question = Question::Sample(sample.clone());
        self.client
            .as_ref()
            .is_some_and(|client| client.abilities().can_answer(&question))
    }

    /// Asks one after another until one answers, or ends it for all.
    async fn in_turn(
        &self,
        candidates: Vec<Candidate>,
        sample: &Sample,
    ) -> Result<Answered, Unanswered> {
        let limit = Duration::from_secs(self.core.options.sampling.answer_timeout_s.into());
        let mut approved = !self.needs_approval();
        let mut failures = Vec::new();
        let mut left = candidates.len();
        for who in candidates {
            left -= 1;
            if !approved && !matches!(who, Candidate::Client) {
                match self.approve(sample).await {
                    Ok(()) => approved = true,
                    Err(failure) if is_final(&Candidate::Client, &failure) => {
                        return Err(Unanswered::Final(failure));
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
                _ => timeout(limit, asking)
                    .await
                    .unwrap_or_else(|_| Err(Failure::timed_out("no answer in time"))),
            };
            match answer {
                Ok(answer) => return Ok((who, answer)),
                Err(failure) if is_final(&who, &failure) => return Err(Unanswered::Final(failure)),
                Err(failure) => failures.push((who, failure)),
            }
        }
        Err(Unanswered::Failed(together(failures)))
    }

    /// Asks the client and the others at once. The first good answer counts; the rest is given up.
    async fn at_once(
        &self,
        candidates: Vec<Candidate>,
        sample: &Sample,
    ) -> Result<Answered, Unanswered> {
        let (client, others): (Vec<_>, Vec<_>) = candidates
            .into_iter()
            .partition(|who| matches!(who, Candidate::Client));
        if client.is_empty() || others.is_empty() {
            return self
                .in_turn(client.into_iter().chain(others).collect(), sample)
                .await;
        }
        let client = std::pin::pin!(self.in_turn(client, sample));
        let others = std::pin::pin!(self.in_turn(others, sample));
        let (first, second) = match select(client, others).await {
            Either::Left((first, rest)) => (first, Either::Left(rest)),
            Either::Right((first, rest)) => (first, Either::Right(rest)),
        };
        match first {
            // The other one's failure is told, unless it had nothing to say.
            Err(Unanswered::Failed(failure)) => match second.await {
                Err(Unanswered::Failed(other)) if other.kind == FailureKind::NobodyToAsk => {
                    Err(Unanswered::Failed(failure))
                }
                other => other,
            },
            decided => decided,
        }
    }

    /// Who may answer, first to last; and whether the question names a model of ours.
    async fn candidates(&self, strategy: Strategy, sample: &Sample) -> (Vec<Candidate>, bool) {
        let mut candidates = Vec::new();
        let mut names_model = false;
        for step in self.core.options.steps(strategy) {
            match step {
                Answerer::Client => candidates.push(Candidate::Client),
                Answerer::Servers => {
                    candidates.extend(
                        self.servers()
                            .into_iter()
                            .map(|(name, agent)| Candidate::Server(name, agent)),
                    );
                }
                Answerer::Server(name) => {
                    candidates.extend(
                        self.server(&name)
                            .map(|agent| Candidate::Server(name, agent)),
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
                            .map(|(name, agent)| Candidate::Model(name, agent)),
                    );
                }
            }
        }
        let mut seen = std::collections::HashSet::new();
        candidates.retain(|who| seen.insert(who.to_string()));
        (candidates, names_model)
    }

    /// The servers that may answer, by name.
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

    /// The server of this name, if it may answer: never the one that asks, nor one that waits for an answer itself, by
    /// whatever names.
    pub fn server(&self, name: &str) -> Option<AgentRef> {
        let directory = self.core.system.directory();
        let agent = directory.get(name)?;
        let waits = |waiting: &str| {
            waiting == name || directory.get(waiting).is_some_and(|other| other == agent)
        };
        let is_waiting = waits(&self.source) || self.chain.iter().any(|waiting| waits(waiting));
        (!is_waiting && answers(&agent)).then_some(agent)
    }
}

/// Whether the agent can go on with a conversation. Of one that stands for something outside, the grant says so.
pub(super) fn answers(agent: &AgentRef) -> bool {
    agent.is_outside() || agent.recipient::<CreateMessage>().is_some()
}

/// Outcome of asking without an answer.
enum Unanswered {
    /// Nobody else may be asked.
    Final(Failure),
    /// Whoever was asked could not answer.
    Failed(Failure),
}

impl From<Unanswered> for Failure {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Final(failure) | Unanswered::Failed(failure) => failure,
        }
    }
}

/// Whether nobody else may be asked after `who` failed. A guard's refusal and the call's end are final, and so is any
/// failure that a person may have caused. A client is final unless it can't answer. A server may stand before a person of
/// its own, so its rejection is final; a model's rejection is its provider's, and the next one is asked.
fn is_final(who: &Candidate, failure: &Failure) -> bool {
    let can_not = matches!(
        failure.kind,
        FailureKind::NobodyToAsk
            | FailureKind::Unavailable
            | FailureKind::TimedOut
            | FailureKind::Overloaded
    );
    match who {
        Candidate::Client => !can_not,
        Candidate::Server(..) => {
            matches!(
                failure.kind,
                FailureKind::Blocked | FailureKind::Cancelled | FailureKind::Rejected
            )
        }
        Candidate::Model(..) => {
            matches!(failure.kind, FailureKind::Blocked | FailureKind::Cancelled)
        }
    }
}

/// One failure for all that were asked. It names them without their words, which are no business of the asker's.
fn together(mut failures: Vec<(Candidate, Failure)>) -> Failure {
    let Some((_, last)) = failures.last() else {
        return nobody();
    };
    let kind = last.kind;
    if failures.len() == 1 {
        return failures.remove(0).1;
    }
    let told: Vec<String> = failures
        .iter()
        .map(|(who, failure)| format!("{who}: {}", failure.kind))
        .collect();
    Failure::new(kind, format!("nobody answered ({})", told.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a person sees a bounded line. Method: a text of the limit, of one character more, with line ends.
    #[test]
    fn what_is_shown_is_bounded() {
        let of = |text: &str| shown(&Sample::prompt(text, 1));
        assert_eq!(of("a\nb"), "a b");
        assert_eq!(
            of(&"é".repeat(SHOWN_CHARS_MAX)),
            "é".repeat(SHOWN_CHARS_MAX)
        );
        assert_eq!(
            of(&"é".repeat(SHOWN_CHARS_MAX + 1)),
            format!("{}…", "é".repeat(SHOWN_CHARS_MAX))
        );
        assert_eq!(shown(&Sample::default()), "");
    }
}
