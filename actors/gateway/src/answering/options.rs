//! Who may ask, who answers, and how much.

use std::collections::HashMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Default maximum questions of one server in one call. Further ones are refused with `Overloaded`. Changed by
/// [`Caps::requests_per_call_max`].
pub const REQUESTS_PER_CALL_MAX_DEFAULT: u32 = 32;
/// Default maximum questions of one server in any sixty seconds. Further ones are refused with `Overloaded`. Changed by
/// [`Caps::requests_per_minute_max`].
pub const REQUESTS_PER_MINUTE_MAX_DEFAULT: u32 = 120;
/// Default maximum tokens that a model may write in one answer. A question that asks for more gets this many. Changed
/// by [`Caps::tokens_per_answer_max`].
pub const TOKENS_PER_ANSWER_MAX_DEFAULT: u32 = 8_192;
/// Default tokens that a model may write where the question doesn't say. The answer ends there. Changed by
/// [`Caps::tokens_per_answer_default`].
pub const TOKENS_PER_ANSWER_DEFAULT: u32 = 1_024;
/// Default maximum tokens, in and out, that one server's questions may cost in one call. An answer gets what is left;
/// then questions are refused with `Overloaded`. Changed by [`Caps::tokens_per_call_max`].
pub const TOKENS_PER_CALL_MAX_DEFAULT: u64 = 100_000;
/// Default maximum tokens, in and out, that one server's questions may cost in any sixty seconds. An answer gets what
/// is left; then questions are refused with `Overloaded`. Changed by [`Caps::tokens_per_minute_max`].
pub const TOKENS_PER_MINUTE_MAX_DEFAULT: u64 = 200_000;
/// Default maximum depth of questions within questions: an answerer that asks while it answers is one deeper. A deeper
/// question is refused with `Rejected`. Changed by [`Caps::depth_max`].
pub const DEPTH_MAX_DEFAULT: u16 = 4;
/// Default time limit, in seconds, of one answerer of a sample while there is another. After it the next is asked.
/// Changed by [`Routing::answer_timeout_s`].
pub const SAMPLE_TIMEOUT_S_DEFAULT: u32 = 120;

/// Who answers what servers ask in mid-call.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AnswerOptions {
    /// For `sampling/createMessage`.
    pub sampling: Routing,
    /// For `elicitation/create`: `client_forwarded` or `client_first`, for only a person answers one.
    pub elicitation: Routing,
    /// What each server may ask, by the name of its agent in the directory. One that isn't here may ask nothing.
    pub servers: HashMap<String, ServerGrants>,
    /// Our own models, by the names of their agents in the directory, best first.
    pub models: Vec<String>,
}

/// Who is asked, in which order.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Routing {
    /// For servers that have no strategy of their own.
    pub default_strategy: Strategy,
    /// By the server that asks.
    pub server_strategies: HashMap<String, Strategy>,
    /// Who may answer, first to last; a strategy takes from it what it allows. Empty: the client, other servers, models.
    pub order: Vec<Answerer>,
    /// Whether our own models answer at last what other servers, or the client under `client_first`, didn't.
    pub fallback_to_magictunnel: bool,
    /// How long one answerer has, in seconds, while there is another to be asked after it. The last has what is left
    /// of the call.
    pub answer_timeout_s: u32,
}

impl Default for Routing {
    fn default() -> Self {
        Self {
            default_strategy: Strategy::default(),
            server_strategies: HashMap::new(),
            order: Vec::new(),
            fallback_to_magictunnel: true,
            answer_timeout_s: SAMPLE_TIMEOUT_S_DEFAULT,
        }
    }
}

impl Routing {
    /// What a question of `source`'s is answered by.
    pub fn strategy(&self, source: &str) -> Strategy {
        self.server_strategies
            .get(source)
            .copied()
            .unwrap_or(self.default_strategy)
    }
}

/// How the one who answers is chosen. `docs/questions.md` says what each does.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Our own models, nobody else.
    MagictunnelHandled,
    /// The client whose call it is, nobody else.
    #[default]
    ClientForwarded,
    /// Other servers, never the one that asks; then our models, with `fallback_to_magictunnel`.
    ExternalServer,
    /// The client; then the rest of `order`.
    ClientFirst,
    /// Our models; then the client.
    MagictunnelFirst,
    /// The client and our models at once; the first good answer counts.
    Parallel,
    /// By the question: our models first where it names one of them or the client can't answer it, else the client first.
    Hybrid,
}

impl Strategy {
    /// Whether it leaves the answer to whoever called, so that a person can give it.
    pub fn asks_people_only(self) -> bool {
        matches!(self, Self::ClientForwarded | Self::ClientFirst)
    }
}

impl fmt::Display for Strategy {
    /// Its name in files and answers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// One who may answer, as `order` names it: `client`, `models`, `servers`, `model:NAME`, `server:NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub enum Answerer {
    /// The client whose call it is.
    Client,
    /// One of our models, by its name in the directory.
    Model(String),
    /// One server, by its name in the directory.
    Server(String),
    /// All of our models, the one that fits the question best first.
    Models,
    /// All servers that answer samples, by name.
    Servers,
}

/// Write `client`, `models`, `servers`, `model:NAME` or `server:NAME`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is nobody who answers: write client, models, servers, model:NAME or server:NAME")]
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

/// What a server may ask, and what it may be asked. All `false` by default.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerGrants {
    /// It may ask for a model's answer.
    pub supports_sampling: bool,
    /// It may ask a person.
    pub supports_elicitation: bool,
    /// It may ask which folders the client lends.
    pub supports_roots: bool,
    /// It may be given the conversations that other servers ask to have answered. Only for one that answers like a
    /// model over its protocol (HMCP); an agent in this process that handles `callboard.sample` needs it too.
    pub answers_sampling: bool,
    /// How much its questions may cost.
    pub caps: Caps,
    /// A person at the client must agree before anyone but the client answers a sample of its.
    pub approval: bool,
}

/// How much a server's questions may cost. Over one of them, the question fails and the call goes on.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Caps {
    /// Questions in one call.
    pub requests_per_call_max: u32,
    /// Questions in any sixty seconds.
    pub requests_per_minute_max: u32,
    /// Tokens that one answer may have: a question that wants more gets as many.
    pub tokens_per_answer_max: u32,
    /// Tokens that an answer may have where the question doesn't say.
    pub tokens_per_answer_default: u32,
    /// Tokens, in and out, for one call's questions.
    pub tokens_per_call_max: u64,
    /// Tokens, in and out, for its questions in any sixty seconds.
    pub tokens_per_minute_max: u64,
    /// Money for one call's questions, in millionths of a US dollar, where models tell what they cost. `None`: no limit.
    pub micro_usd_per_call_max: Option<u64>,
    /// Money for its questions in any sixty seconds, likewise.
    pub micro_usd_per_minute_max: Option<u64>,
    /// How deep questions may nest.
    pub depth_max: u16,
}

impl Default for Caps {
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

/// Why nobody can be made to answer so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// Choose `client_forwarded` or `client_first`.
    #[error(
        "an elicitation is for a person and never answered by a model or server: {strategy} can't be its strategy{}, use client_forwarded",
        of(.server)
    )]
    ElicitationByModel {
        /// What was chosen.
        strategy: Strategy,
        /// For which server; `None`: by default.
        server: Option<String>,
    },
    /// Leave models and servers out of the order of elicitations.
    #[error(
        "an elicitation is for a person and never answered by a model or server: its order can only be [\"client\"]"
    )]
    ElicitationOrder,
    /// Name one of `models`, or one of `servers` with `answers_sampling`.
    #[error("{name} is no model, and no server with answers_sampling")]
    UnknownAnswerer {
        /// The name in `order`.
        name: String,
    },
    /// Add to `order` whom the strategy asks, or choose another strategy.
    #[error("the order has nobody whom {strategy} may ask")]
    NobodyInOrder {
        /// The strategy.
        strategy: Strategy,
    },
}

fn of(server: &Option<String>) -> String {
    server
        .as_ref()
        .map(|server| format!(" of {server}"))
        .unwrap_or_default()
}

impl AnswerOptions {
    /// Whether it can be done so.
    ///
    /// # Errors
    /// See [`AnswerError`].
    pub fn check(&self) -> Result<(), AnswerError> {
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
                return Err(AnswerError::UnknownAnswerer { name: name.clone() });
            }
        }
        let strategies = self
            .sampling
            .server_strategies
            .values()
            .copied()
            .chain([self.sampling.default_strategy]);
        match strategies
            .filter(|strategy| self.steps(*strategy).is_empty())
            .min()
        {
            Some(strategy) => Err(AnswerError::NobodyInOrder { strategy }),
            None => Ok(()),
        }
    }

    fn check_elicitation(&self) -> Result<(), AnswerError> {
        let routing = &self.elicitation;
        let named = routing
            .server_strategies
            .iter()
            .map(|(server, strategy)| (*strategy, Some(server.clone())));
        for (strategy, server) in named.chain([(routing.default_strategy, None)]) {
            if !strategy.asks_people_only() {
                return Err(AnswerError::ElicitationByModel { strategy, server });
            }
        }
        match routing
            .order
            .iter()
            .all(|answerer| *answerer == Answerer::Client)
        {
            true => Ok(()),
            false => Err(AnswerError::ElicitationOrder),
        }
    }

    /// Whom a sample goes to under `strategy`, first to last. `Parallel` asks them at once, `Hybrid` may turn them round.
    pub(super) fn steps(&self, strategy: Strategy) -> Vec<Answerer> {
        const WHOEVER: [Answerer; 3] = [Answerer::Client, Answerer::Servers, Answerer::Models];
        let order = match self.sampling.order.as_slice() {
            [] => &WHOEVER,
            order => order,
        };
        let only = |fits: fn(&Answerer) -> bool| order.iter().filter(move |who| fits(who)).cloned();
        let mut steps: Vec<Answerer> = match strategy {
            Strategy::MagictunnelHandled => only(Answerer::is_model).collect(),
            Strategy::ClientForwarded => only(Answerer::is_client).collect(),
            Strategy::ExternalServer => only(Answerer::is_server).collect(),
            Strategy::ClientFirst => {
                let fallback =
                    self.sampling.fallback_to_magictunnel || !self.sampling.order.is_empty();
                let others = only(|who| !who.is_client()).filter(|who| fallback || !who.is_model());
                only(Answerer::is_client).chain(others).collect()
            }
            Strategy::MagictunnelFirst => only(Answerer::is_model)
                .chain(only(Answerer::is_client))
                .collect(),
            Strategy::Parallel | Strategy::Hybrid => only(|who| !who.is_server()).collect(),
        };
        let falls_back = matches!(strategy, Strategy::ExternalServer | Strategy::ClientFirst);
        if falls_back
            && self.sampling.fallback_to_magictunnel
            && !steps.iter().any(Answerer::is_model)
        {
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
