//! Who answers what a server asks in mid-call: the client, a model of ours, another server, nobody.
//!
//! [`Answerers`] stands between a server that asks and everyone who could answer. What a server may ask is granted by
//! name ([`ServerGrants`]); who answers is chosen by a [`Strategy`]; how much it may cost is capped ([`Caps`]). A
//! question never goes to a server that waits for an answer in the same call, and only a person answers an elicitation.
//! `docs/questions.md` tells the whole of it.

mod asker;
mod ledger;
mod options;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use callboard_message::surface::{About, Describe};
use callboard_message::{CallId, Message, RawObject, Sample};
use callboard_runtime::{AgentRef, Answering, CallMeta, Caller, System};
use parking_lot::Mutex;
use tokio::time::timeout;

use asker::Asker;
use ledger::Ledger;

pub use asker::REFUSAL_PAUSE;
pub use options::{
    AnswerError, AnswerOptions, Answerer, Caps, DEPTH_MAX_DEFAULT, REQUESTS_PER_CALL_MAX_DEFAULT,
    REQUESTS_PER_MINUTE_MAX_DEFAULT, Routing, SAMPLE_TIMEOUT_S_DEFAULT, ServerGrants, Strategy,
    TOKENS_PER_ANSWER_DEFAULT, TOKENS_PER_ANSWER_MAX_DEFAULT, TOKENS_PER_CALL_MAX_DEFAULT,
    TOKENS_PER_MINUTE_MAX_DEFAULT, UnknownAnswerer,
};

/// Member of an answer's `_meta`: `{"by": …, "strategy": …}`. `by` is `client`, `model:NAME` or `server:NAME`.
pub const ANSWERED: &str = "callboard/answered";
/// Member of an answer's `_meta`: `{"inputTokens": …, "outputTokens": …}`, and `microUsd` where the cost is known.
pub const USAGE: &str = "callboard/usage";
/// Time limit of a model for saying what it is. After it only its name is known. Fixed.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(1);

/// Answers what servers ask in mid-call, or has it answered.
///
/// Agents are looked up in the directory by name whenever they are needed, so they may come and go. Cheap to clone; the
/// clones share what servers have used up of their caps.
#[derive(derive_more::Debug, Clone)]
#[debug("Answerers({:?})", _0.options)]
pub struct Answerers(Arc<Core>);

struct Core {
    system: System,
    options: AnswerOptions,
    chains: Arc<Chains>,
    /// What each granted server has used up.
    ledgers: HashMap<String, Arc<Ledger>>,
    /// What our models said of themselves, by name.
    facts: Mutex<HashMap<String, Arc<Facts>>>,
}

impl Answerers {
    /// Answers so in `system`.
    ///
    /// # Errors
    /// See [`AnswerError`].
    pub fn new(system: System, options: AnswerOptions) -> Result<Self, AnswerError> {
        options.check()?;
        let ledgers = options
            .servers
            .iter()
            .map(|(name, grants)| (name.clone(), Ledger::new(grants.caps.clone())));
        let ledgers = ledgers.collect();
        Ok(Self(Arc::new(Core {
            system,
            options,
            chains: Arc::default(),
            ledgers,
            facts: Mutex::default(),
        })))
    }

    /// What it does.
    pub fn options(&self) -> &AnswerOptions {
        &self.0.options
    }
}

impl Answering for Answerers {
    fn caller(&self, source: &str, call: &CallMeta) -> Option<Arc<dyn Caller>> {
        let asker = Asker::new(self.0.clone(), source, call);
        (call.caller.is_some() || !asker.abilities().0.is_empty())
            .then(|| Arc::new(asker) as Arc<dyn Caller>)
    }
}

/// For each call that was made to answer a question: who asked, and who asked before that, outermost first.
///
/// Such a call has an id of its own, which goes along to every agent that it reaches. So whoever asks in the course of it
/// is found here, through whatever agents and callers there are in between.
#[derive(Default)]
struct Chains(Mutex<HashMap<CallId, Chain>>);

type Chain = Arc<[Arc<str>]>;

impl Chains {
    /// Who waits behind the call.
    fn of(&self, call: CallId) -> Chain {
        self.0.lock().get(&call).cloned().unwrap_or_default()
    }

    /// A call that answers a question of `asker`'s, who has `chain` behind it. It is known while the link is kept.
    fn link(self: &Arc<Self>, chain: &Chain, asker: &Arc<str>) -> Link {
        let call = CallId::fresh();
        let longer = chain.iter().chain([asker]).cloned().collect();
        self.0.lock().insert(call, longer);
        Link {
            chains: self.clone(),
            call,
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().len()
    }
}

/// A call that answers a question. Dropped, it is forgotten.
struct Link {
    chains: Arc<Chains>,
    call: CallId,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.chains.0.lock().remove(&self.call);
    }
}

/// What a model says of itself.
#[derive(Debug, Default, PartialEq)]
struct Facts {
    /// By which hints find it, in lower case.
    names: Vec<String>,
    /// How it compares to others by cost, speed and intelligence, each from 0 to 1.
    scores: [f64; 3],
}

impl Core {
    /// The models there are, of those named, the one that fits the question best first; and whether it names one.
    async fn models(&self, named: &[&str], sample: &Sample) -> (Vec<(String, AgentRef)>, bool) {
        let directory = self.system.directory();
        let models: Vec<_> = named
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), directory.get(name)?)))
            .collect();
        let Some(wanted) = sample
            .0
            .object("modelPreferences")
            .map(|preferences| Wanted::of(&preferences))
        else {
            return (models, false);
        };
        let mut known = Vec::with_capacity(models.len());
        for model in models {
            known.push((self.facts(&model).await, model));
        }
        let names_one = known.iter().any(|(facts, _)| wanted.hint(facts).is_some());
        known.sort_by(|(a, _), (b, _)| wanted.compare(a, b));
        (
            known.into_iter().map(|(_, model)| model).collect(),
            names_one,
        )
    }

    /// What the model says of itself. It is asked once.
    async fn facts(&self, (name, agent): &(String, AgentRef)) -> Arc<Facts> {
        if let Some(facts) = self.facts.lock().get(name) {
            return facts.clone();
        }
        let describes =
            agent.is_outside() || agent.specs().iter().any(|spec| spec.name == Describe::NAME);
        let about = match describes {
            true => timeout(DESCRIBE_TIMEOUT, agent.ask(Describe::default())).await,
            false => Ok(Ok(Ok(About::default()))),
        };
        match about {
            Ok(Ok(Ok(about))) => {
                let facts = Arc::new(Facts::of(name, &about.0));
                self.facts.lock().insert(name.clone(), facts.clone());
                facts
            }
            // It may say more the next time.
            _ => Arc::new(Facts::of(name, &RawObject::new())),
        }
    }
}

impl Facts {
    /// From a model's name in the directory and its `callboard.describe`: `serverInfo.name` and `.title`, and of `model`
    /// `{"names": [..], "scores": {"cost": .., "speed": .., "intelligence": ..}}`.
    fn of(name: &str, about: &RawObject) -> Self {
        let info = about.object("serverInfo").unwrap_or_default();
        let model = about.object("model").unwrap_or_default();
        let mut names = vec![name.to_lowercase()];
        names.extend(
            ["name", "title"]
                .iter()
                .filter_map(|member| info.text(member))
                .map(|n| n.to_lowercase()),
        );
        let more: Vec<String> = model.read("names").unwrap_or_default();
        names.extend(more.iter().map(|name| name.to_lowercase()));
        let scores = model.object("scores").unwrap_or_default();
        let scores =
            ["cost", "speed", "intelligence"].map(|name| scores.read(name).unwrap_or_default());
        Self { names, scores }
    }
}

/// What a question wants of its model (MCP `ModelPreferences`).
struct Wanted {
    /// In lower case, the most wanted first.
    hints: Vec<String>,
    /// Weights of cost, speed and intelligence.
    weights: [f64; 3],
}

impl Wanted {
    fn of(preferences: &RawObject) -> Self {
        let hints: Vec<RawObject> = preferences.read("hints").unwrap_or_default();
        let weights = ["costPriority", "speedPriority", "intelligencePriority"];
        Self {
            hints: hints
                .iter()
                .filter_map(|hint| hint.text("name"))
                .map(|hint| hint.to_lowercase())
                .collect(),
            weights: weights.map(|name| preferences.read(name).unwrap_or_default()),
        }
    }

    /// The first hint that is a part of one of the model's names.
    fn hint(&self, facts: &Facts) -> Option<usize> {
        let fits =
            |hint: &String| !hint.is_empty() && facts.names.iter().any(|name| name.contains(hint));
        self.hints.iter().position(fits)
    }

    /// The earlier hint goes first, then the higher score; else the order stays.
    fn compare(&self, a: &Facts, b: &Facts) -> Ordering {
        let rank = |facts| self.hint(facts).unwrap_or(usize::MAX);
        let score = |facts: &Facts| {
            facts
                .scores
                .iter()
                .zip(&self.weights)
                .map(|(has, wants)| has * wants)
                .sum::<f64>()
        };
        rank(a)
            .cmp(&rank(b))
            .then_with(|| score(b).total_cmp(&score(a)))
    }
}
