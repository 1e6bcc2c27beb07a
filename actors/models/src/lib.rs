//! Language models as agents. Each handles [`CreateMessage`] (the params of MCP
//! `sampling/createMessage`, 2025-11-25) and [`AskModel`] concurrently.
//!
//! A [`LanguageModel`] is one model of a provider. A [`ModelPool`] chooses among several by the
//! caller's hints and priorities, and falls back to the next if one fails. The providers' wire
//! formats are in `wire/`, one file per API; `request.rs` has the provider-independent request.
//!
//! Prompts, answers and keys never appear in logs, errors or `Debug` output.

mod config;
mod embedding;
mod provider_client;
mod provider_failure;
#[cfg(test)]
#[path = "../../../tests/kit/recording.rs"]
mod recording;
mod request;
#[cfg(test)]
mod tests;
mod usage_ledger;
mod vector;
mod wire;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use callboard_macros::Message;
use callboard_message::capabilities::{CreateMessage, DescribeAgent, DescribeAgentResult};
use callboard_message::{Failure, FailureKind, Message, Progress, RawObject, SamplingAnswer};
use callboard_runtime::{
    Agent, AgentProfile, ConcurrentHandler, Context, Handlers, ModelUse, SyncHandler,
};
use parking_lot::Mutex;
use schemars::JsonSchema;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use config::{ApiEndpoint, KeyLookup, ProviderKind};
use embedding::WordVectors;
use provider_client::{AnswerStreamer, AttemptContext, ProviderClient};
use provider_failure::ProviderFailure;
use request::{AnswerDraft, ModelPreferences, ModelRequest, StopReason, TokenCounts};
use usage_ledger::{UsageLedger, UsageReservation};

pub use config::{
    EchoConfig, ModelConfig, ModelError, ModelLimits, ModelPoolConfig, ModelRetries, ModelScores,
    ModelTimeouts, OpenaiApi, RemoteModelConfig, ScriptedAnswer, ScriptedConfig, ScriptedTool,
    ScriptedUsage, TokenPrices, WordVectorsConfig,
};
pub use embedding::{
    EMBED_BATCH_MAX, EMBED_TEXT_BYTES_MAX, EMBED_TEXTS_MAX, EmbedTexts, WORD_VECTORS_BYTES_MAX,
};
pub use provider_client::{
    CA_FILE_BYTES_MAX, MODEL_REQUEST_BYTES_MAX, STREAM_ARTIFACT, STREAM_PIECE_BYTES_MAX,
    STREAM_PIECE_INTERVAL,
};
pub use provider_failure::RefusedPart;
pub use request::{
    MODEL_BLOCKS_MAX, MODEL_TOOL_USES_MAX, MODEL_TOOLS_MAX, PROVIDER_KEY, STREAM_KEY, USAGE_KEY,
};
pub use vector::{EMBEDDING_DIMENSIONS_MAX, Embedding};

/// Maximum messages of one kind that a model agent handles concurrently. At most
/// `ModelLimits::calls_max` of them are at the provider at once. Fixed.
pub const MODEL_HANDLERS_MAX: u32 = 64;
/// Minimum interval between two progress reports of one answer. Fixed.
pub const MODEL_PROGRESS_INTERVAL: Duration = Duration::from_millis(250);

/// Asks a language model and returns the text of its answer.
#[derive(derive_more::Debug, Message, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
// `Debug` omits the prompts: they may contain user data.
#[debug("AskModel({} bytes)", prompt.len())]
#[message(name = "ask_model", reply = String, fallible, open_world = true)]
#[serde(deny_unknown_fields)]
pub struct AskModel {
    /// User prompt.
    pub prompt: String,
    /// System prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// Maximum tokens of the answer; `None` uses the model's limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
}

impl AskModel {
    /// Creates a request with this prompt.
    pub fn new(prompt: impl Into<String>) -> Self {
        Self {
            prompt: prompt.into(),
            system_prompt: None,
            max_tokens: None,
        }
    }
}

/// Language model of one provider, as an agent.
#[derive(derive_more::Debug, Clone)]
#[debug("Model({} of {})", _0.model, _0.provider)]
pub struct LanguageModel(Arc<ModelInner>);

struct ModelInner {
    answer_source: AnswerSource,
    card: ModelCard,
    /// Id by which quotas know the model; that of the agent if it isn't set.
    id: OnceLock<String>,
    /// Model name at the provider.
    model: String,
    provider: String,
    ledger: Arc<UsageLedger>,
    call_permits: Semaphore,
}

/// Source of a model's answers.
enum AnswerSource {
    Provider(Box<ProviderClient>),
    Script(AnswerScript),
    Echo,
    /// Embeddings only.
    WordVectors(WordVectors),
}

impl LanguageModel {
    /// Creates the configured model and reads its API key from the environment. The provider isn't
    /// contacted yet.
    ///
    /// # Errors
    /// [`ModelError`] for a configuration or key that can't be used.
    pub fn open(config: ModelConfig) -> Result<Self, ModelError> {
        Self::open_with(config, &|variable| {
            std::env::var(variable).ok().map(SecretString::from)
        })
    }

    /// Creates the configured model with API keys from `keys`, a lookup by environment variable.
    ///
    /// # Errors
    /// Same as [`LanguageModel::open`].
    pub fn open_with(config: ModelConfig, keys: KeyLookup<'_>) -> Result<Self, ModelError> {
        let (kind, remote) = match config {
            ModelConfig::Openai(remote) => (ProviderKind::Openai, remote),
            ModelConfig::AzureOpenai(remote) => (ProviderKind::AzureOpenai, remote),
            ModelConfig::OpenaiCompatible(remote) => (ProviderKind::OpenaiCompatible, remote),
            ModelConfig::Anthropic(remote) => (ProviderKind::Anthropic, remote),
            ModelConfig::Ollama(remote) => (ProviderKind::Ollama, remote),
            ModelConfig::Scripted(config) => return Self::scripted(config),
            ModelConfig::Echo(EchoConfig {
                model,
                aliases,
                scores,
            }) => {
                let card = ModelCard::new(&model, aliases, scores)?;
                return Self::without_provider(AnswerSource::Echo, card, &model, "echo");
            }
            ModelConfig::WordVectors(WordVectorsConfig { path }) => {
                const NAME: &str = "word_vectors";
                let table = AnswerSource::WordVectors(WordVectors::open(&path)?);
                let card = ModelCard::new(NAME, Vec::new(), ModelScores::default())?;
                return Self::without_provider(table, card, NAME, NAME);
            }
        };
        let card = ModelCard::new(&remote.model, remote.aliases.clone(), remote.scores)?;
        let provider = ProviderClient::open(&remote, ApiEndpoint::resolve(kind, &remote, keys)?)?;
        let voice = AnswerSource::Provider(Box::new(provider));
        Self::from_parts(
            voice,
            card,
            &remote.model,
            kind.defaults().0,
            &remote.limits,
            remote.prices,
        )
    }

    /// Creates a model with scripted answers.
    ///
    /// # Errors
    /// [`ModelError::InvalidSetting`] for a script without an answer, or invalid scores, limits or
    /// prices.
    pub fn scripted(config: ScriptedConfig) -> Result<Self, ModelError> {
        let card = ModelCard::new(&config.model, config.aliases, config.scores)?;
        let script = AnswerSource::Script(AnswerScript::new(config.answers)?);
        Self::from_parts(
            script,
            card,
            &config.model,
            &config.named_provider,
            &config.limits,
            config.prices,
        )
    }

    fn without_provider(
        voice: AnswerSource,
        card: ModelCard,
        model: &str,
        provider: &str,
    ) -> Result<Self, ModelError> {
        Self::from_parts(voice, card, model, provider, &ModelLimits::default(), None)
    }

    fn from_parts(
        voice: AnswerSource,
        card: ModelCard,
        model: &str,
        provider: &str,
        limits: &ModelLimits,
        prices: Option<TokenPrices>,
    ) -> Result<Self, ModelError> {
        let ledger = UsageLedger::new(limits, prices)?;
        let (model, provider) = (model.to_owned(), provider.to_owned());
        let calls = Semaphore::new((limits.calls_max as usize).min(Semaphore::MAX_PERMITS));
        Ok(Self(Arc::new(ModelInner {
            answer_source: voice,
            card,
            id: OnceLock::new(),
            model,
            provider,
            ledger,
            call_permits: calls,
        })))
    }

    /// Sets the id by which quotas know the model, whatever agent it is, and returns the model. Without it, that is
    /// the agent's name, or the name at the provider if the agent has none. A model keeps its first id.
    pub fn with_id(self, id: impl Into<String>) -> Self {
        // It fails if there is one.
        let _ = self.0.id.set(id.into());
        self
    }

    /// Returns the model's card: its names and scores, by which a pool chooses among models.
    pub fn card(&self) -> ModelCard {
        self.0.card.clone()
    }
}

impl ModelInner {
    /// Answers a request, within the model's limits and the caller's budget. If the caller cancels
    /// or the deadline passes, fails and closes the connection to the provider.
    ///
    /// # Errors
    /// `Cancelled`, `TimedOut`, `Overloaded` for an exhausted limit or budget, or the failure of
    /// the provider.
    async fn sample(&self, request: ModelRequest, cx: &Context) -> Result<SamplingAnswer, Failure> {
        let begun = Instant::now();
        let answered = tokio::select! {
            answered = self.answer_within_limits(&request, cx) => answered,
            () = cx.cancelled() => Err(Failure::cancelled("cancelled")),
        };
        let millis = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        match &answered {
            Ok((_, usage)) => callboard_message::log::info!(
                by: &self.model,
                call = cx.call().map(|c| tracing::field::display(c.id)),
                principal = cx.call().map(|c| &*c.principal.id),
                provider = self.provider,
                model = self.model,
                millis,
                input_tokens = usage.input,
                output_tokens = usage.output,
                "answered"
            ),
            Err(failure) => callboard_message::log::info!(
                by: &self.model,
                call = cx.call().map(|c| tracing::field::display(c.id)),
                principal = cx.call().map(|c| &*c.principal.id),
                provider = self.provider,
                model = self.model,
                millis,
                kind = %failure.kind,
                "gave no answer"
            ),
        }
        answered.map(|(answer, _)| answer)
    }

    async fn answer_within_limits(
        &self,
        request: &ModelRequest,
        cx: &Context,
    ) -> Result<(SamplingAnswer, TokenCounts), Failure> {
        let own_end = match &self.answer_source {
            AnswerSource::Provider(provider) => Some(provider.deadline_from_now()),
            _ => None,
        };
        let end = [own_end, cx.deadline()].into_iter().flatten().min();
        let permit = with_deadline(end, self.call_permits.acquire()).await?;
        let _permit =
            permit.map_err(|_| Failure::internal("the model has stopped and takes no calls"))?;
        let quota_use = self.reserve_quotas(cx).await?;
        let budget = cx.call().map(|call| call.budget).unwrap_or_default();
        let reserved = self
            .ledger
            .reserve(request.tokens_estimate(), request.tokens_max, budget);
        // The request isn't made then.
        let (grant, tokens_max) = reserved.inspect_err(|_| quota_use.withdraw())?;
        let grant = grant.with_quotas(quota_use);
        let draft = match &self.answer_source {
            AnswerSource::Provider(provider) => {
                let end = end.unwrap_or_else(|| provider.deadline_from_now());
                self.ask_provider(provider, request, tokens_max, end, &grant, cx)
                    .await?
            }
            AnswerSource::Script(script) => with_deadline(end, script.answer(request)).await??,
            AnswerSource::Echo => AnswerDraft::from_text(request.last_text()),
            AnswerSource::WordVectors(_) => {
                return Err(Failure::rejected(
                    "word vectors write no answers: name another model",
                ));
            }
        };
        let usage = draft.usage(request);
        grant.record_usage(usage);
        let cost = self.ledger.cost(usage);
        let answer = draft.into_answer(
            &self.model,
            &self.provider,
            usage,
            cost,
            request.tool_use_count(),
        );
        Ok((answer.map_err(|trouble| trouble.to_failure())?, usage))
    }

    /// Counts the request at the quotas of the call's principal.
    ///
    /// # Errors
    /// `Overloaded` with the reset time if one of them is used up; `Unavailable` if that isn't known.
    async fn reserve_quotas(&self, cx: &Context) -> Result<ModelUse, Failure> {
        let id = self.id.get().map(String::as_str);
        let id = id.or_else(|| cx.me().name()).unwrap_or(&self.model);
        let system = cx.system();
        let quotas = system.policy().quotas();
        quotas.reserve(&system.store().kv, cx.principal(), id).await
    }

    /// Asks the provider and reports progress to the caller. Records the usage so far at the beginning
    /// and at each piece of the answer, so that a dropped request is counted too.
    ///
    /// # Errors
    /// The provider's failure, as [`ProviderFailure::to_failure`].
    async fn ask_provider(
        &self,
        provider: &ProviderClient,
        request: &ModelRequest,
        tokens_max: u32,
        end: Instant,
        grant: &UsageReservation,
        cx: &Context,
    ) -> Result<AnswerDraft, Failure> {
        let (report, shown) = (
            AnswerProgress {
                cx,
                last_report: Mutex::default(),
            },
            AnswerStreamer::if_requested(request, cx),
        );
        // A request that is cancelled before its answer begins costs its input.
        grant.record_usage(AnswerDraft::default().usage(request));
        let has_begun = AtomicBool::new(false);
        let pieces = |draft: &AnswerDraft| {
            has_begun.store(true, Relaxed);
            grant.record_usage(draft.usage(request));
            match &shown {
                Some(shown) => shown.send_new_text(&draft.text),
                None => report.report(draft.written_bytes() as u64),
            }
        };
        let once = AttemptContext {
            request,
            tokens_max,
            on_piece: &pieces,
        };
        provider.answer(&once, end).await.map_err(|trouble| {
            use ProviderFailure::{Disconnected, IdleTimeout, TimedOut};
            let may_be_read = matches!(trouble, Disconnected | IdleTimeout | TimedOut);
            // The provider has refused the request, or didn't get it.
            if !has_begun.load(Relaxed) && !may_be_read {
                grant.record_usage(TokenCounts::default());
            }
            trouble.to_failure()
        })
    }
}

/// Runs `work` until it ends or `end` passes; without a limit if `end` is `None`.
///
/// # Errors
/// `TimedOut` if `end` passes first.
async fn with_deadline<T>(
    end: Option<Instant>,
    work: impl Future<Output = T>,
) -> Result<T, Failure> {
    match end {
        Some(end) => timeout_at(end, work)
            .await
            .map_err(|_| ProviderFailure::TimedOut.to_failure()),
        None => Ok(work.await),
    }
}

/// Progress reports to the caller: bytes written, never their content.
struct AnswerProgress<'a> {
    cx: &'a Context,
    /// Number of bytes and time of the last report; 0 and `None` before the first.
    last_report: Mutex<(u64, Option<Instant>)>,
}

impl AnswerProgress<'_> {
    fn report(&self, bytes: u64) {
        let mut told = self.last_report.lock();
        let is_early = told
            .1
            .is_some_and(|last| last.elapsed() < MODEL_PROGRESS_INTERVAL);
        // A retry starts from 0, but reported progress only grows.
        if bytes <= told.0 || is_early {
            return;
        }
        *told = (bytes, Some(Instant::now()));
        let message = Some(format!("{bytes} bytes written"));
        self.cx.progress(Progress {
            done: bytes as f64,
            total: None,
            message,
        });
    }
}

impl Agent for LanguageModel {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<CreateMessage>(MODEL_HANDLERS_MAX)
            .concurrent::<AskModel>(MODEL_HANDLERS_MAX)
            .concurrent::<EmbedTexts>(MODEL_HANDLERS_MAX)
            .sync::<DescribeAgent>();
    }

    /// Marks the agent as cancel-safe: it has no state that a dropped request could leave half
    /// changed.
    fn profile() -> AgentProfile {
        AgentProfile::default().cancel_safe()
    }

    fn observe(&self) -> serde_json::Value {
        let (tokens, micro_usd) = self.0.ledger.usage_today();
        serde_json::json!({
            "provider": self.0.provider, "model": self.0.model, "tokensToday": tokens, "microUsdToday": micro_usd
        })
    }
}

/// Returns the model's card.
impl SyncHandler<DescribeAgent> for LanguageModel {
    fn handle(
        &mut self,
        _: DescribeAgent,
        _: &mut Context,
    ) -> Result<DescribeAgentResult, Failure> {
        Ok(DescribeAgentResult(RawObject::single(
            "model",
            self.0.card.to_json(),
        )))
    }
}

impl ConcurrentHandler<CreateMessage> for LanguageModel {
    fn handle(
        &mut self,
        message: CreateMessage,
        cx: Context,
    ) -> impl Future<Output = Result<SamplingAnswer, Failure>> + Send + 'static {
        let inner = self.0.clone();
        async move { inner.sample(ModelRequest::parse(&message)?, &cx).await }
    }
}

impl ConcurrentHandler<AskModel> for LanguageModel {
    fn handle(
        &mut self,
        message: AskModel,
        cx: Context,
    ) -> impl Future<Output = Result<String, Failure>> + Send + 'static {
        let inner = self.0.clone();
        async move {
            inner
                .sample(ModelRequest::from_prompt(message)?, &cx)
                .await
                .map(|answer| answer.written_text().unwrap_or_default())
        }
    }
}

/// Answers of a scripted model: those with a condition, those that follow in sequence, and the
/// position in the sequence.
#[derive(Debug)]
struct AnswerScript {
    rules: Vec<ScriptedAnswer>,
    sequence: Vec<ScriptedAnswer>,
    next: AtomicUsize,
}

impl AnswerScript {
    fn new(answers: Vec<ScriptedAnswer>) -> Result<Self, ModelError> {
        if answers.is_empty() {
            return Err(ModelError::InvalidSetting {
                setting: "answers",
                rule: "it is empty: write at least one answer",
            });
        }
        let (rules, in_turn) = answers
            .into_iter()
            .partition(|answer| answer.when.is_some());
        Ok(Self {
            rules,
            sequence: in_turn,
            next: AtomicUsize::new(0),
        })
    }

    async fn answer(&self, request: &ModelRequest) -> Result<AnswerDraft, Failure> {
        let answer = self.pick(request).ok_or_else(|| {
            Failure::unavailable("no entry of the model's `answers` is for this request: add one")
        })?;
        if answer.delay_ms > 0 {
            tokio::time::sleep(Duration::from_millis(answer.delay_ms)).await;
        }
        if let Some(sentence) = &answer.fails {
            return Err(Failure::unavailable(sentence));
        }
        let mut draft = AnswerDraft::from_text(answer.text.clone());
        if let Some(tool) = &answer.tool {
            let input = serde_json::to_string(&tool.input).unwrap_or_default();
            draft
                .add_complete_tool_use(None, &tool.name, &input)
                .map_err(|trouble| trouble.to_failure())?;
        }
        if let Some(reason) = &answer.stop_reason {
            draft.stop_reason = Some(StopReason::Named(reason.clone()));
        }
        draft.input_tokens = answer.usage.map(|usage| usage.input_tokens);
        draft.output_tokens = answer.usage.map(|usage| usage.output_tokens);
        Ok(draft)
    }

    fn pick(&self, request: &ModelRequest) -> Option<&ScriptedAnswer> {
        let last = request.last_text();
        let fits = |answer: &&ScriptedAnswer| {
            answer
                .when
                .as_ref()
                .is_some_and(|when| last.contains(&**when))
        };
        if let Some(rule) = self.rules.iter().find(fits) {
            return Some(rule);
        }
        let turn = self.next.fetch_add(1, Relaxed);
        self.sequence.get(turn).or(self.sequence.last())
    }
}

/// Names and scores by which a model is chosen.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelCard {
    /// Names of the model in lower case: its own name first, then its aliases.
    names: Vec<String>,
    scores: ModelScores,
}

impl ModelCard {
    /// Creates the card of a model with this name.
    ///
    /// # Errors
    /// [`ModelError::InvalidSetting`] for scores outside of 0 to 1.
    pub fn new(name: &str, aliases: Vec<String>, scores: ModelScores) -> Result<Self, ModelError> {
        if [scores.cost, scores.speed, scores.intelligence]
            .iter()
            .any(|score| !(0.0..=1.0).contains(score))
        {
            return Err(ModelError::InvalidSetting {
                setting: "scores",
                rule: "each is a number from 0 to 1",
            });
        }
        let names = std::iter::once(name)
            .chain(aliases.iter().map(String::as_str))
            .map(str::to_lowercase)
            .collect();
        Ok(Self { names, scores })
    }

    /// Returns the card as JSON: `{"names": [..], "scores": {"cost": .., "speed": ..,
    /// "intelligence": ..}}`.
    fn to_json(&self) -> RawObject {
        let ModelScores {
            cost,
            speed,
            intelligence,
        } = self.scores;
        let scores = RawObject::single("cost", cost)
            .with("speed", speed)
            .with("intelligence", intelligence);
        RawObject::single("names", &self.names).with("scores", scores)
    }

    /// Whether the hint, in lower case, is a substring of one of the model's names (MCP
    /// client/sampling, "Model Preferences").
    fn matches_hint(&self, hint: &str) -> bool {
        self.names.iter().any(|name| name.contains(hint))
    }

    fn weighted_score(&self, preferences: &ModelPreferences) -> f64 {
        let ModelScores {
            cost,
            speed,
            intelligence,
        } = self.scores;
        let [cheap, fast, clever] = preferences.weights;
        cheap * cost + fast * speed + clever * intelligence
    }
}

/// Member of a [`ModelPool`]: any agent in the directory that handles [`CreateMessage`].
#[derive(Debug, Clone)]
pub struct PoolMember {
    name: String,
    card: ModelCard,
}

impl PoolMember {
    /// Creates a member that is looked up in the directory under `name` for each request. Hints
    /// match this name too.
    pub fn new(name: impl Into<String>, mut card: ModelCard) -> Self {
        let name = name.into();
        card.names.push(name.to_lowercase());
        Self { name, card }
    }
}

/// Pool of several models that acts as one agent and chooses a model for each request.
#[derive(Debug, Clone)]
pub struct ModelPool {
    members: Arc<[PoolMember]>,
    fallback: bool,
}

impl ModelPool {
    /// Creates a pool, the preferred members first. With `fallback`, the next member is asked if
    /// one fails.
    ///
    /// # Errors
    /// [`ModelError::InvalidSetting`] without a member.
    pub fn new(members: Vec<PoolMember>, fallback: bool) -> Result<Self, ModelError> {
        if members.is_empty() {
            return Err(ModelError::InvalidSetting {
                setting: "members",
                rule: "it is empty: name at least one model",
            });
        }
        Ok(Self {
            members: members.into(),
            fallback,
        })
    }

    /// Ranks all members, the best first: those that match a hint, in the order of hints, then the
    /// others. Ties are decided by the scores, weighted by the caller's priorities, then by the
    /// order in the pool.
    fn rank_members(&self, preferences: &ModelPreferences) -> Vec<&PoolMember> {
        let place = |member: &PoolMember| {
            preferences
                .hints
                .iter()
                .position(|hint| member.card.matches_hint(hint))
                .unwrap_or(preferences.hints.len())
        };
        let better = |a: &&PoolMember, b: &&PoolMember| {
            let worth = || {
                b.card
                    .weighted_score(preferences)
                    .partial_cmp(&a.card.weighted_score(preferences))
            };
            place(a)
                .cmp(&place(b))
                .then_with(|| worth().unwrap_or(std::cmp::Ordering::Equal))
        };
        let mut members: Vec<&PoolMember> = self.members.iter().collect();
        members.sort_by(better);
        members
    }

    async fn ask<M, T>(
        &self,
        message: M,
        preferences: &ModelPreferences,
        cx: &Context,
    ) -> Result<T, Failure>
    where
        M: Message<Reply = Result<T, Failure>> + Clone,
    {
        let mut failed: Option<(&str, Failure)> = None;
        for member in self.rank_members(preferences) {
            if let Some((before, failure)) = &failed {
                callboard_message::log::warn!(by: &member.name, failed = before, kind = %failure.kind, next = member.name, "a model of a pool failed: asking the next one");
            }
            let answered = match cx.system().directory().get(&member.name) {
                Some(agent) => cx
                    .ask(&agent, message.clone())
                    .await
                    .map_err(Failure::from)
                    .and_then(|reply| reply),
                None => Err(Failure::unavailable("the model isn't running")),
            };
            match answered {
                Ok(answer) => return Ok(answer),
                Err(failure)
                    if !self.fallback || !may_fall_back(failure.kind) || cx.is_cancelled() =>
                {
                    return Err(failure);
                }
                Err(failure) => failed = Some((&member.name, failure)),
            }
        }
        let (name, last) = failed
            .ok_or_else(|| Failure::unavailable("the pool has no model: name one in `members`"))?;
        Err(Failure {
            message: format!(
                "no model of the pool answered; the last, `{name}`, failed: {}",
                last.message
            ),
            ..last
        })
    }
}

/// Whether another member of the pool may succeed after a failure of this kind. Invalid, denied and
/// blocked requests would fail with every model.
fn may_fall_back(kind: FailureKind) -> bool {
    use FailureKind::{Internal, NotFound, Overloaded, Rejected, TimedOut, Unavailable};
    matches!(
        kind,
        Internal | NotFound | Overloaded | Rejected | TimedOut | Unavailable
    )
}

impl Agent for ModelPool {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<CreateMessage>(MODEL_HANDLERS_MAX)
            .concurrent::<AskModel>(MODEL_HANDLERS_MAX);
    }

    /// Marks the agent as cancel-safe: it has no state that a dropped request could leave half
    /// changed.
    fn profile() -> AgentProfile {
        AgentProfile::default().cancel_safe()
    }

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({ "members": self.members.iter().map(|member| &member.name).collect::<Vec<_>>() })
    }
}

impl ConcurrentHandler<CreateMessage> for ModelPool {
    fn handle(
        &mut self,
        message: CreateMessage,
        cx: Context,
    ) -> impl Future<Output = Result<SamplingAnswer, Failure>> + Send + 'static {
        let models = self.clone();
        let preferences = ModelPreferences::parse(&message);
        async move { models.ask(message, &preferences, &cx).await }
    }
}

impl ConcurrentHandler<AskModel> for ModelPool {
    fn handle(
        &mut self,
        message: AskModel,
        cx: Context,
    ) -> impl Future<Output = Result<String, Failure>> + Send + 'static {
        let models = self.clone();
        async move { models.ask(message, &ModelPreferences::default(), &cx).await }
    }
}
