//! Options of the question router: strategies, grants and caps.

use std::collections::HashMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Default maximum questions of one server in one call. Further ones are rejected with
/// `Overloaded`. Changed by [`UsageCaps::requests_per_call_max`].
pub const REQUESTS_PER_CALL_MAX_DEFAULT: u32 = 32;
/// Default maximum questions of one server in any sixty seconds. Further ones are rejected with
/// `Overloaded`. Changed by [`UsageCaps::requests_per_minute_max`].
pub const REQUESTS_PER_MINUTE_MAX_DEFAULT: u32 = 120;
/// Default maximum tokens of one answer by a model. A question that asks for more is limited to
/// this. Changed by [`UsageCaps::tokens_per_answer_max`].
pub const TOKENS_PER_ANSWER_MAX_DEFAULT: u32 = 8_192;
/// Default limit of tokens for an answer by a model if the question sets none. Changed by
/// [`UsageCaps::tokens_per_answer_default`].
pub const TOKENS_PER_ANSWER_DEFAULT: u32 = 1_024;
/// Default maximum tokens, input and output, of one server's questions in one call. If few are
/// left, an answer is limited to these. If none are left, questions are rejected with `Overloaded`.
/// Changed by [`UsageCaps::tokens_per_call_max`].
pub const TOKENS_PER_CALL_MAX_DEFAULT: u64 = 100_000;
/// Default maximum tokens, input and output, of one server's questions in any sixty seconds. If few
/// are left, an answer is limited to these. If none are left, questions are rejected with
/// `Overloaded`. Changed by [`UsageCaps::tokens_per_minute_max`].
pub const TOKENS_PER_MINUTE_MAX_DEFAULT: u64 = 200_000;
/// Default maximum nesting depth of questions. A question that an answerer asks before it answers
/// is one level deeper. A question beyond the maximum fails with `Rejected`. Changed by
/// [`UsageCaps::depth_max`].
pub const DEPTH_MAX_DEFAULT: u16 = 4;
/// Default time limit for one answerer of a sampling request, in seconds, if another answerer
/// follows. After it, the next one is asked. Changed by [`AnswerRouting::answer_timeout_s`].
pub const SAMPLE_TIMEOUT_S_DEFAULT: u32 = 120;

/// Options of a question router: routing of sampling requests and elicitations, grants of servers,
/// and models.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuestionRouterOptions {
    /// Routing of sampling requests (`sampling/createMessage`).
    pub sampling: AnswerRouting,
    /// Routing of elicitations (`elicitation/create`). Only `client_forwarded` and `client_first`
    /// are allowed, because only a person may answer them.
    pub elicitation: AnswerRouting,
    /// Grants and caps of each server, by its agent name in the directory. A server without an
    /// entry may not ask questions.
    pub servers: HashMap<String, ServerGrants>,
    /// Names of the model agents in the directory, best first.
    pub models: Vec<String>,
}

/// Routing of one kind of question: strategy, order of answerers and time limit.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AnswerRouting {
    /// Strategy for servers that have none in `server_strategies`.
    pub default_strategy: AnswerStrategy,
    /// Strategies by the name of the server that asks.
    pub server_strategies: HashMap<String, AnswerStrategy>,
    /// Possible answerers in order of preference. The strategy selects from them. Empty: client,
    /// servers, models.
    pub order: Vec<Answerer>,
    /// Whether the models are asked last under `external_server` and `client_first`, if nobody else
    /// answered. Under `client_first`, models in `order` are asked even if it is not set. Other
    /// strategies ignore it.
    #[serde(alias = "fallback_to_magictunnel")]
    pub fallback_to_models: bool,
    /// Time limit for one answerer in seconds, if another one follows. The last one has the
    /// remaining time of the call.
    pub answer_timeout_s: u32,
}

impl Default for AnswerRouting {
    fn default() -> Self {
        Self {
            default_strategy: AnswerStrategy::default(),
            server_strategies: HashMap::new(),
            order: Vec::new(),
            fallback_to_models: true,
            answer_timeout_s: SAMPLE_TIMEOUT_S_DEFAULT,
        }
    }
}

impl AnswerRouting {
    /// Returns the strategy for questions of the server with the name `source`.
    pub fn strategy(&self, source: &str) -> AnswerStrategy {
        self.server_strategies
            .get(source)
            .copied()
            .unwrap_or(self.default_strategy)
    }
}

/// Strategy that selects and orders the answerers of a question; see `docs/questions.md`.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum AnswerStrategy {
    /// Only the models.
    // Answers and the audit record keep the older name.
    #[serde(
        rename(serialize = "magictunnel_handled", deserialize = "models"),
        alias = "magictunnel_handled"
    )]
    Models,
    /// Only the client that made the call in which the question arises.
    #[default]
    ClientForwarded,
    /// Other servers, never the asking one; then the models, if `fallback_to_models` is set.
    ExternalServer,
    /// The client first; then the others in the order of `order`.
    ClientFirst,
    /// The models first; then the client.
    #[serde(
        rename(serialize = "magictunnel_first", deserialize = "models_first"),
        alias = "magictunnel_first"
    )]
    ModelsFirst,
    /// The client and the models at the same time. The first valid answer is returned.
    Parallel,
    /// Models first if the question names a model or the client can't answer it, else the client
    /// first.
    Hybrid,
}

impl AnswerStrategy {
    /// Returns whether the strategy is allowed for elicitations, which only a person may answer:
    /// the client alone or the client first. With the latter, a sampling request may go on to
    /// others.
    pub fn asks_people_only(self) -> bool {
        matches!(self, Self::ClientForwarded | Self::ClientFirst)
    }
}

impl fmt::Display for AnswerStrategy {
    /// Writes the strategy's name as used in configuration files and in answers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Possible answerer of a question, in [`AnswerRouting::order`]. Written as `client`, `models`,
/// `servers`, `model:NAME` or `server:NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
#[schemars(with = "String")]
#[serde(try_from = "String")]
pub enum Answerer {
    /// Client that made the call in which the question arises.
    Client,
    /// Model with this agent name in the directory.
    Model(String),
    /// Server with this agent name in the directory.
    Server(String),
    /// All models, the best match for the question first.
    Models,
    /// All servers that may answer sampling requests, sorted by name.
    Servers,
}

/// Error for a text that isn't a valid [`Answerer`]; holds the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown answerer {0:?}: write client, models, servers, model:NAME or server:NAME")]
pub struct UnknownAnswerer(String);

impl TryFrom<String> for Answerer {
    type Error = UnknownAnswerer;

    fn try_from(text: String) -> Result<Self, UnknownAnswerer> {
        let named = |prefix| {
            text.strip_prefix(prefix)
                .filter(|name: &&str| !name.is_empty())
                .map(str::to_owned)
        };
        match text.as_str() {
            "client" => Ok(Self::Client),
            "models" => Ok(Self::Models),
            "servers" => Ok(Self::Servers),
            _ => match (named("model:"), named("server:")) {
                (Some(model), _) => Ok(Self::Model(model)),
                (_, Some(server)) => Ok(Self::Server(server)),
                _ => Err(UnknownAnswerer(text)),
            },
        }
    }
}

/// Grants and caps of a server: which questions it may ask, and whether it may answer those of
/// other servers. Nothing is granted by default.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerGrants {
    /// Whether the server may ask for a model's answer (`sampling/createMessage`).
    pub supports_sampling: bool,
    /// Whether the server may ask the person at the client (`elicitation/create`).
    pub supports_elicitation: bool,
    /// Whether the server may ask for the client's folders (`roots/list`).
    pub supports_roots: bool,
    /// Whether the server may send the client requests of the extensions that the client declares.
    /// The server is told of these extensions in any case.
    pub supports_extensions: bool,
    /// Whether the server may answer sampling requests of other servers, whose conversations it
    /// then receives. Grant it only to an agent that answers like a model over its protocol (HMCP),
    /// or that handles `callboard.sample` in this process.
    pub answers_sampling: bool,
    /// Limits of the number and cost of the server's questions.
    pub caps: UsageCaps,
    /// Whether a person at the client must approve before anyone but the client answers the
    /// server's sampling requests.
    pub approval: bool,
}

/// Limits of one server's questions: number, tokens, cost and nesting. A question above a limit
/// fails; the call in which it arises continues.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UsageCaps {
    /// Maximum questions of the server in one call. Further ones fail with `Overloaded`.
    pub requests_per_call_max: u32,
    /// Maximum questions of the server in any sixty seconds. Further ones fail with `Overloaded`.
    pub requests_per_minute_max: u32,
    /// Maximum tokens of one answer. A question that asks for more is limited to this.
    pub tokens_per_answer_max: u32,
    /// Limit of tokens for an answer if the question sets none.
    pub tokens_per_answer_default: u32,
    /// Maximum tokens, input and output, of the server's questions in one call. If none are left,
    /// further questions to models and servers fail with `Overloaded`.
    pub tokens_per_call_max: u64,
    /// Maximum tokens, input and output, of the server's questions in any sixty seconds. If none
    /// are left, further questions to models and servers fail with `Overloaded`.
    pub tokens_per_minute_max: u64,
    /// Maximum cost of the questions in one call, in millionths of a US dollar, as far as models
    /// report it. At this cost, further questions to models and servers fail with `Overloaded`.
    /// `None`: no limit.
    pub micro_usd_per_call_max: Option<u64>,
    /// Maximum cost of the questions in any sixty seconds, in millionths of a US dollar, as far as
    /// models report it. At this cost, further questions to models and servers fail with
    /// `Overloaded`. `None`: no limit.
    pub micro_usd_per_minute_max: Option<u64>,
    /// Maximum nesting depth of questions. A question beyond it fails with `Rejected`.
    pub depth_max: u16,
}

impl Default for UsageCaps {
    fn default() -> Self {
        Self {
            requests_per_call_max: REQUESTS_PER_CALL_MAX_DEFAULT,
            requests_per_minute_max: REQUESTS_PER_MINUTE_MAX_DEFAULT,
            tokens_per_answer_max: TOKENS_PER_ANSWER_MAX_DEFAULT,
            tokens_per_answer_default: TOKENS_PER_ANSWER_DEFAULT,
            tokens_per_call_max: TOKENS_PER_CALL_MAX_DEFAULT,
            tokens_per_minute_max: TOKENS_PER_MINUTE_MAX_DEFAULT,
            micro_usd_per_call_max: None,
            micro_usd_per_minute_max: None,
            depth_max: DEPTH_MAX_DEFAULT,
        }
    }
}

/// Error of question router options that contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuestionRouterError {
    /// The strategy for elicitations isn't `client_forwarded` or `client_first`. Only a person may
    /// answer them.
    #[error(
        "an elicitation is for a person and never answered by a model or server: {strategy} can't be its strategy{}, use client_forwarded",
        for_server(.server)
    )]
    ElicitationByModel {
        /// Strategy that is configured for elicitations.
        strategy: AnswerStrategy,
        /// Server for which the strategy is configured; `None` for the default strategy.
        server: Option<String>,
    },
    /// The order for elicitations contains models or servers. Only a person may answer them.
    #[error(
        "an elicitation is for a person and never answered by a model or server: its order can only be [\"client\"]"
    )]
    ElicitationOrder,
    /// `order` names an agent that may not answer: it is neither in `models` nor in `servers` with
    /// `answers_sampling`.
    #[error(
        "`order` names {name:?}, which is neither a model nor a server: add a model of that name, or set `answers_sampling` for the server"
    )]
    UnknownAnswerer {
        /// Name of the agent in `order`.
        name: String,
    },
    /// `order` has no answerer that the strategy may ask, so no question could be answered.
    #[error(
        "`order` has no answerer that the strategy {strategy} may ask: add one, or choose another strategy"
    )]
    NobodyInOrder {
        /// Strategy that finds no answerer.
        strategy: AnswerStrategy,
    },
}

fn for_server(server: &Option<String>) -> String {
    server
        .as_ref()
        .map(|server| format!(" of {server}"))
        .unwrap_or_default()
}

impl QuestionRouterOptions {
    /// Checks that the options don't contradict each other.
    ///
    /// # Errors
    /// [`QuestionRouterError`] for the first contradiction found.
    pub fn validate(&self) -> Result<(), QuestionRouterError> {
        self.check_elicitation()?;
        for answerer in &self.sampling.order {
            let (name, known) = match answerer {
                Answerer::Model(name) => (name, self.models.contains(name)),
                Answerer::Server(name) => (
                    name,
                    self.servers
                        .get(name)
                        .is_some_and(|server| server.answers_sampling),
                ),
                _ => continue,
            };
            if !known {
                return Err(QuestionRouterError::UnknownAnswerer { name: name.clone() });
            }
        }
        let strategies = self
            .sampling
            .server_strategies
            .values()
            .copied()
            .chain([self.sampling.default_strategy]);
        match strategies
            .filter(|strategy| self.answerers(*strategy).is_empty())
            .min()
        {
            Some(strategy) => Err(QuestionRouterError::NobodyInOrder { strategy }),
            None => Ok(()),
        }
    }

    fn check_elicitation(&self) -> Result<(), QuestionRouterError> {
        let routing = &self.elicitation;
        let named = routing
            .server_strategies
            .iter()
            .map(|(server, strategy)| (*strategy, Some(server.clone())));
        for (strategy, server) in named.chain([(routing.default_strategy, None)]) {
            if !strategy.asks_people_only() {
                return Err(QuestionRouterError::ElicitationByModel { strategy, server });
            }
        }
        match routing
            .order
            .iter()
            .all(|answerer| *answerer == Answerer::Client)
        {
            true => Ok(()),
            false => Err(QuestionRouterError::ElicitationOrder),
        }
    }

    /// Returns the answerers of a sampling request under `strategy`, in order. `Parallel` asks them
    /// concurrently, and `Hybrid` may change the order.
    pub(super) fn answerers(&self, strategy: AnswerStrategy) -> Vec<Answerer> {
        const WHOEVER: [Answerer; 3] = [Answerer::Client, Answerer::Servers, Answerer::Models];
        let order = match self.sampling.order.as_slice() {
            [] => &WHOEVER,
            order => order,
        };
        let only = |fits: fn(&Answerer) -> bool| order.iter().filter(move |who| fits(who)).cloned();
        let mut steps: Vec<Answerer> = match strategy {
            AnswerStrategy::Models => only(Answerer::is_model).collect(),
            AnswerStrategy::ClientForwarded => only(Answerer::is_client).collect(),
            AnswerStrategy::ExternalServer => only(Answerer::is_server).collect(),
            AnswerStrategy::ClientFirst => {
                let fallback = self.sampling.fallback_to_models || !self.sampling.order.is_empty();
                let others = only(|who| !who.is_client()).filter(|who| fallback || !who.is_model());
                only(Answerer::is_client).chain(others).collect()
            }
            AnswerStrategy::ModelsFirst => only(Answerer::is_model)
                .chain(only(Answerer::is_client))
                .collect(),
            AnswerStrategy::Parallel | AnswerStrategy::Hybrid => {
                only(|who| !who.is_server()).collect()
            }
        };
        let falls_back = matches!(
            strategy,
            AnswerStrategy::ExternalServer | AnswerStrategy::ClientFirst
        );
        if falls_back && self.sampling.fallback_to_models && !steps.iter().any(Answerer::is_model) {
            steps.push(Answerer::Models);
        }
        steps
    }
}

impl Answerer {
    fn is_client(&self) -> bool {
        *self == Self::Client
    }

    fn is_model(&self) -> bool {
        matches!(self, Self::Model(_) | Self::Models)
    }

    fn is_server(&self) -> bool {
        matches!(self, Self::Server(_) | Self::Servers)
    }
}
