//! One who may answer a sample, and how they are asked.

use std::fmt;
use std::sync::Arc;

use callboard_message::surface::CreateMessage;
use callboard_message::{Answer, Artifact, Failure, Progress, Question, RawObject, Sample, SampleAnswer};
use callboard_runtime::{AgentRef, CallMeta, Caller};

use super::asker::{Asker, nobody};
use super::ledger::Spent;

/// One who may answer.
#[derive(Clone)]
pub(super) enum Candidate {
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
    pub(super) async fn ask_one(&self, candidate: &Candidate, sample: &Sample) -> Result<SampleAnswer, Failure> {
        let answer = match candidate {
            Candidate::Client => self.ask_client(sample).await?,
            Candidate::Model(_, agent) | Candidate::Server(_, agent) => self.ask_agent(agent, sample).await?,
        };
        match answer.0.has("content") {
            true => Ok(answer),
            false => Err(Failure::invalid("the answer has no content")),
        }
    }

    async fn ask_client(&self, sample: &Sample) -> Result<SampleAnswer, Failure> {
        let client = self.client.as_ref().ok_or_else(nobody)?;
        let question = Question::Sample(sample.clone());
        if !client.abilities().can_answer(&question) {
            return Err(Failure::nobody_to_ask("the client has no model to ask"));
        }
        match client.ask(question).await? {
            Answer::Sample(answer) => Ok(answer),
            _ => Err(Failure::invalid("the answer doesn't fit the question")),
        }
    }

    async fn ask_agent(&self, agent: &AgentRef, sample: &Sample) -> Result<SampleAnswer, Failure> {
        let charge = self.account()?.reserve(sample.0.read("maxTokens").unwrap_or_default())?;
        let question = CreateMessage(sample.0.clone().with("maxTokens", charge.tokens()));
        let link = self.core.chains.link(&self.chain, &self.source);
        let hops = self.call.hops.checked_add(1).filter(|hops| *hops <= self.call.hops_max);
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
            budget: charge.budget(),
            // What is asked in this call is no other call's of the session.
            session: None,
            caller: self.client.clone().map(|client| Arc::new(Unheard(client)) as Arc<dyn Caller>),
            ..self.call.clone()
        };
        let _cancelled_with_this = cancel.drop_guard();
        let answer = match agent.ask(question).within_call(Some(Arc::new(call))).await {
            Ok(answer) => answer,
            Err(unsent) => Err(unsent.into()),
        };
        match &answer {
            Ok(answer) => {
                if let Some(used) = Spent::told(&answer.0) {
                    charge.settle(&used);
                }
            }
            Err(_) => charge.settle(&Spent::default()),
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

/// `_meta` of the answer with a member more.
pub(super) fn with_meta(mut answer: SampleAnswer, name: &str, value: RawObject) -> SampleAnswer {
    let meta = answer.0.object("_meta").unwrap_or_default();
    answer.0.set("_meta", meta.with(name, value));
    answer
}
