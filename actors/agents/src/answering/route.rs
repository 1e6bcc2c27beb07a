//! A sample's way to whoever answers it.

use std::time::Duration;

use callboard_message::surface::CreateMessage;
use callboard_message::{Failure, FailureKind, Question, RawObject, Sample, SampleAnswer};
use callboard_runtime::AgentRef;
use futures::future::{Either, select};
use tokio::time::timeout;

use super::ANSWERED;
use super::asker::{Asker, nobody};
use super::candidate::{Candidate, with_meta};
use super::ledger::Spent;
use super::options::{Answerer, Strategy};

/// Member of a sample's `_meta`: the server that asks. What the server says of itself there doesn't count.
const SOURCE: &str = "source_external_server";
/// Member of a sample's `_meta`: it came from a server.
const FROM_SERVER: &str = "bidirectional_request";

/// Who answered, and what.
type Answered = (Candidate, SampleAnswer);

impl Asker {
    /// Has a sample answered by the strategy of the server that asks.
    ///
    /// # Errors
    /// The failure of the one who was asked; where several were, one that tells why none of them answered.
    pub(super) async fn sample(&self, mut sample: Sample) -> Result<SampleAnswer, Failure> {
        let strategy = self.strategy();
        let tokens = self.account()?.answer_tokens(sample.0.read("maxTokens"));
        sample.0.set("maxTokens", tokens);
        let meta = sample.0.object("_meta").unwrap_or_default();
        sample.0.set("_meta", meta.with(SOURCE, &*self.source).with(FROM_SERVER, true));
        let (candidates, names_model) = self.candidates(strategy, &sample).await;
        let (who, answer) = match strategy {
            Strategy::Parallel => self.at_once(candidates, &sample).await?,
            Strategy::Hybrid => {
                let models_first = names_model || !self.client_can(&sample);
                let (mut first, mut then): (Vec<_>, Vec<_>) =
                    candidates.into_iter().partition(|who| matches!(who, Candidate::Client) != models_first);
                first.append(&mut then);
                self.in_turn(first, &sample).await?
            }
            _ => self.in_turn(candidates, &sample).await?,
        };
        let by = who.to_string();
        let used = Spent::told(&answer.0).unwrap_or_default();
        let entry = self.entry("sample", &by, "answered");
        let entry = entry.with("tokens_in", used.tokens_in).with("tokens_out", used.tokens_out);
        self.core.system.audit().placed(entry).await;
        Ok(with_meta(answer, ANSWERED, RawObject::of("by", by).with("strategy", strategy)))
    }

    fn client_can(&self, sample: &Sample) -> bool {
        let question = Question::Sample(sample.clone());
        self.client.as_ref().is_some_and(|client| client.abilities().can_answer(&question))
    }

    /// Asks one after another until one answers, or ends it for all.
    async fn in_turn(&self, candidates: Vec<Candidate>, sample: &Sample) -> Result<Answered, Unanswered> {
        let limit = Duration::from_secs(self.core.options.sampling.answer_timeout_s.into());
        let mut approved = !self.needs_approval();
        let mut failures = Vec::new();
        let mut left = candidates.len();
        for who in candidates {
            left -= 1;
            if !approved && !matches!(who, Candidate::Client) {
                match self.approve(sample).await {
                    Ok(()) => approved = true,
                    Err(failure) if is_final(&Candidate::Client, &failure) => return Err(Unanswered::Final(failure)),
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
                Err(failure) if is_final(&who, &failure) => return Err(Unanswered::Final(failure)),
                Err(failure) => failures.push((who, failure)),
            }
        }
        Err(Unanswered::Failed(together(failures)))
    }

    /// Asks the client and the others at once. The first good answer counts; the rest is given up.
    async fn at_once(&self, candidates: Vec<Candidate>, sample: &Sample) -> Result<Answered, Unanswered> {
        let (client, others): (Vec<_>, Vec<_>) =
            candidates.into_iter().partition(|who| matches!(who, Candidate::Client));
        if client.is_empty() || others.is_empty() {
            return self.in_turn(client.into_iter().chain(others).collect(), sample).await;
        }
        let client = std::pin::pin!(self.in_turn(client, sample));
        let others = std::pin::pin!(self.in_turn(others, sample));
        let (first, second) = match select(client, others).await {
            Either::Left((first, rest)) => (first, Either::Left(rest)),
            Either::Right((first, rest)) => (first, Either::Right(rest)),
        };
        match first {
            Ok(answered) => Ok(answered),
            Err(Unanswered::Final(failure)) => Err(Unanswered::Final(failure)),
            // The other one's failure is told, unless it had nothing to say.
            Err(Unanswered::Failed(failure)) => match second.await {
                Err(Unanswered::Failed(other)) if other.kind == FailureKind::NobodyToAsk => {
                    Err(Unanswered::Failed(failure))
                }
                other => other,
            },
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
                    candidates.extend(self.servers().into_iter().map(|(name, agent)| Candidate::Server(name, agent)));
                }
                Answerer::Server(name) => {
                    candidates.extend(self.server(&name).map(|agent| Candidate::Server(name, agent)));
                }
                Answerer::Models | Answerer::Model(_) => {
                    let named: Vec<&str> = match &step {
                        Answerer::Model(name) => vec![name],
                        _ => self.core.options.models.iter().map(String::as_str).collect(),
                    };
                    let (models, names_one) = self.core.models(&named, sample).await;
                    names_model |= names_one;
                    candidates.extend(models.into_iter().map(|model| Candidate::Model(model.name, model.agent)));
                }
            }
        }
        let mut seen = std::collections::HashSet::new();
        candidates.retain(|who| seen.insert(who.to_string()));
        (candidates, names_model)
    }

    /// The servers that may answer, by name.
    pub(super) fn servers(&self) -> Vec<(String, AgentRef)> {
        let granted = self.core.options.servers.iter().filter(|(_, grants)| grants.answers_sampling);
        let mut servers: Vec<_> = granted.filter_map(|(name, _)| Some((name.clone(), self.server(name)?))).collect();
        servers.sort_by(|(a, _), (b, _)| a.cmp(b));
        servers
    }

    /// The server of this name, if it may answer: never the one that asks, nor one that waits for an answer itself, by
    /// whatever names.
    pub(super) fn server(&self, name: &str) -> Option<AgentRef> {
        let directory = self.core.system.directory();
        let agent = directory.get(name)?;
        let waits = |waiting: &str| waiting == name || directory.get(waiting).is_some_and(|other| other == agent);
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
        FailureKind::NobodyToAsk | FailureKind::Unavailable | FailureKind::TimedOut | FailureKind::Overloaded
    );
    match who {
        Candidate::Client => !can_not,
        Candidate::Server(..) => {
            matches!(failure.kind, FailureKind::Blocked | FailureKind::Cancelled | FailureKind::Rejected)
        }
        Candidate::Model(..) => matches!(failure.kind, FailureKind::Blocked | FailureKind::Cancelled),
    }
}

/// One failure for all that were asked. It names them without their words, which are no business of the asker's.
fn together(mut failures: Vec<(Candidate, Failure)>) -> Failure {
    let Some((_, last)) = failures.last() else { return nobody() };
    let kind = last.kind;
    if failures.len() == 1 {
        return failures.remove(0).1;
    }
    let told: Vec<String> = failures.iter().map(|(who, failure)| format!("{who}: {}", failure.kind)).collect();
    Failure::new(kind, format!("nobody answered ({})", told.join(", ")))
}

fn late() -> Failure {
    Failure::timed_out("no answer in time")
}
