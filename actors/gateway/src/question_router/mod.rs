//! Routing of the questions that servers ask during a call: to the client, a model, another server,
//! or nobody.
//!
//! [`StrategyQuestionRouter`] stands between a server that asks and the possible answerers.
//! [`ServerGrants`] state which kinds of questions a server may ask; an [`AnswerStrategy`] selects
//! the answerers; [`UsageCaps`] limit the cost. A question is never sent to a server that waits for
//! an answer in the same call, and only the client answers an elicitation. `docs/questions.md` has
//! the details.

mod approval;
mod granted_caller;
mod ledger;
mod options;
mod sampling;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use callboard_message::capabilities::{DescribeAgent, DescribeAgentResult};
use callboard_message::{CallId, Message, RawObject, SamplingRequest};
use callboard_runtime::{AgentRef, CallContext, Caller, QuestionRouter, System};
use parking_lot::Mutex;
use tokio::time::timeout;

use granted_caller::GrantedCaller;
use ledger::UsageLedger;

pub use granted_caller::REFUSAL_DELAY;
pub use options::{
    AnswerRouting, AnswerStrategy, Answerer, DEPTH_MAX_DEFAULT, QuestionRouterError,
    QuestionRouterOptions, REQUESTS_PER_CALL_MAX_DEFAULT, REQUESTS_PER_MINUTE_MAX_DEFAULT,
    SAMPLE_TIMEOUT_S_DEFAULT, ServerGrants, TOKENS_PER_ANSWER_DEFAULT,
    TOKENS_PER_ANSWER_MAX_DEFAULT, TOKENS_PER_CALL_MAX_DEFAULT, TOKENS_PER_MINUTE_MAX_DEFAULT,
    UnknownAnswerer, UsageCaps,
};

/// Key in an answer's `_meta` whose value names the answerer and the strategy: `{"by": …,
/// "strategy": …}`. `by` is `client`, `model:NAME` or `server:NAME`.
pub const ANSWERED_META_KEY: &str = "callboard/answered";
/// Key in an answer's `_meta` whose value states its usage: `{"inputTokens": …, "outputTokens":
/// …}`, with `microUsd` (millionths of a US dollar) if known.
pub const USAGE_META_KEY: &str = "callboard/usage";
/// Time limit for a model to describe itself. After it, only the model's name is used to match
/// preferences. Fixed.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(1);

/// Router that decides who answers the questions of servers, by configured strategies, grants and
/// caps.
///
/// It looks up agents by name in the directory for each question, so they may come and go. Cheap to
/// clone; clones share the usage of the servers.
#[derive(derive_more::Debug, Clone)]
#[debug("Answerers({:?})", _0.options)]
pub struct StrategyQuestionRouter(Arc<RouterState>);

struct RouterState {
    system: System,
    options: QuestionRouterOptions,
    chains: Arc<QuestionChains>,
    /// Usage ledger of each server that has grants, by the server's name.
    ledgers: HashMap<String, Arc<UsageLedger>>,
    /// Cached descriptions of the models, by name.
    profiles: Mutex<HashMap<String, Arc<ModelProfile>>>,
}

impl StrategyQuestionRouter {
    /// Creates a router for the agents of `system`.
    ///
    /// # Errors
    /// [`QuestionRouterError`], if the options contradict each other.
    pub fn new(
        system: System,
        options: QuestionRouterOptions,
    ) -> Result<Self, QuestionRouterError> {
        options.validate()?;
        let ledgers = options
            .servers
            .iter()
            .map(|(name, grants)| (name.clone(), UsageLedger::new(grants.caps.clone())));
        let ledgers = ledgers.collect();
        Ok(Self(Arc::new(RouterState {
            system,
            options,
            chains: Arc::default(),
            ledgers,
            profiles: Mutex::default(),
        })))
    }

    /// Returns the options of the router.
    pub fn options(&self) -> &QuestionRouterOptions {
        &self.0.options
    }
}

impl QuestionRouter for StrategyQuestionRouter {
    fn caller(&self, source: &str, call: &CallContext) -> Option<Arc<dyn Caller>> {
        let asker = GrantedCaller::new(self.0.clone(), source, call);
        (call.caller.is_some() || !asker.capabilities().0.is_empty())
            .then(|| Arc::new(asker) as Arc<dyn Caller>)
    }
}

/// Servers that wait for an answer, by call. Each call that answers a question has its own list,
/// outermost server first.
///
/// Such a call has a new id, which is passed on to every agent that it reaches. So the waiting
/// servers are known for each nested question, whichever agents it passes.
#[derive(Default)]
struct QuestionChains(Mutex<HashMap<CallId, QuestionChain>>);

type QuestionChain = Arc<[Arc<str>]>;

impl QuestionChains {
    /// Returns the servers that wait for the answer that a call gives; empty if the call doesn't
    /// answer a question.
    fn of(&self, call: CallId) -> QuestionChain {
        self.0.lock().get(&call).cloned().unwrap_or_default()
    }

    /// Registers a new call that answers a question of `asker`. `chain` are the servers that wait
    /// already. The registration ends when the guard is dropped.
    fn enter_call(self: &Arc<Self>, chain: &QuestionChain, asker: &Arc<str>) -> ChainGuard {
        let call = CallId::generate();
        let longer = chain.iter().chain([asker]).cloned().collect();
        self.0.lock().insert(call, longer);
        ChainGuard {
            chains: self.clone(),
            call,
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().len()
    }
}

/// Registration of a call that answers a question; ends when dropped.
struct ChainGuard {
    chains: Arc<QuestionChains>,
    call: CallId,
}

impl Drop for ChainGuard {
    fn drop(&mut self) {
        self.chains.0.lock().remove(&self.call);
    }
}

/// Description of a model, matched with the preferences of a sampling request.
#[derive(Debug, Default, PartialEq)]
struct ModelProfile {
    /// Names of the model in lower case, with which name hints are compared.
    names: Vec<String>,
    /// Scores for low cost, speed and intelligence, each from 0 to 1; higher is better, 0 if
    /// unknown.
    scores: [f64; 3],
}

impl RouterState {
    /// Returns those of the `named` models that are available, sorted by the preferences of the
    /// sampling request, or as named if it has none. The flag tells whether a name hint of the
    /// request fits one of them.
    async fn models(
        &self,
        named: &[&str],
        sample: &SamplingRequest,
    ) -> (Vec<(String, AgentRef)>, bool) {
        let directory = self.system.directory();
        let models: Vec<_> = named
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), directory.get(name)?)))
            .collect();
        let Some(wanted) = sample
            .0
            .object("modelPreferences")
            .map(|preferences| ModelPreferences::of(&preferences))
        else {
            return (models, false);
        };
        let mut known = Vec::with_capacity(models.len());
        for model in models {
            known.push((self.model_profile(&model).await, model));
        }
        let names_one = known
            .iter()
            .any(|(facts, _)| wanted.matching_hint(facts).is_some());
        known.sort_by(|(a, _), (b, _)| wanted.compare(a, b));
        (
            known.into_iter().map(|(_, model)| model).collect(),
            names_one,
        )
    }

    /// Returns the description of a model. The model is asked for it once. If that fails or takes
    /// longer than [`DESCRIBE_TIMEOUT`], the description has only the model's name and isn't
    /// cached.
    async fn model_profile(&self, (name, agent): &(String, AgentRef)) -> Arc<ModelProfile> {
        if let Some(facts) = self.profiles.lock().get(name) {
            return facts.clone();
        }
        let describes = agent.is_proxy()
            || agent
                .specs()
                .iter()
                .any(|spec| spec.name == DescribeAgent::NAME);
        let about = match describes {
            true => timeout(DESCRIBE_TIMEOUT, agent.ask(DescribeAgent::default())).await,
            false => Ok(Ok(Ok(DescribeAgentResult::default()))),
        };
        match about {
            Ok(Ok(Ok(about))) => {
                let facts = Arc::new(ModelProfile::of(name, &about.0));
                self.profiles.lock().insert(name.clone(), facts.clone());
                facts
            }
            // Not cached: the next attempt may succeed.
            _ => Arc::new(ModelProfile::of(name, &RawObject::new())),
        }
    }
}

impl ModelProfile {
    /// Creates a model's description from its name in the directory and its reply to
    /// `callboard.describe`. Of the reply, it reads `serverInfo.name`, `serverInfo.title`, and
    /// `model` in the form `{"names": [..], "scores": {"cost": .., "speed": .., "intelligence":
    /// ..}}`.
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

/// Preferences of a sampling request for the model that answers it (MCP `ModelPreferences`).
struct ModelPreferences {
    /// Name hints in lower case, most preferred first.
    hints: Vec<String>,
    /// Weights of cost, speed and intelligence; 0 if the request states none.
    weights: [f64; 3],
}

impl ModelPreferences {
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

    /// Returns the index of the first name hint that one of the model's names contains; `None` if
    /// there is none.
    fn matching_hint(&self, facts: &ModelProfile) -> Option<usize> {
        let fits =
            |hint: &String| !hint.is_empty() && facts.names.iter().any(|name| name.contains(hint));
        self.hints.iter().position(fits)
    }

    /// Compares two models by these preferences, the better one first: by the earlier matching
    /// hint, then by the higher weighted score.
    fn compare(&self, a: &ModelProfile, b: &ModelProfile) -> Ordering {
        let rank = |facts| self.matching_hint(facts).unwrap_or(usize::MAX);
        let score = |facts: &ModelProfile| {
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
