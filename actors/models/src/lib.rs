//! Language models as agents: each handles [`CreateMessage`] (the params of MCP `sampling/createMessage` 2025-11-25) and
//! [`AskModel`], many at once.
//!
//! A [`Model`] stands for one model of a provider; [`Models`] chooses among several by the caller's hints and priorities,
//! and goes on to the next where one fails. The providers' shapes are in `wire/`, one file an API; `request.rs` is
//! what they have in common.
//!
//! What is said, either way, is in no log, error or `Debug` output, nor are keys.

mod config;
#[cfg(test)]
#[path = "../../../tests/kit/recording.rs"]
mod recording;
mod remote;
mod request;
mod spend;
#[cfg(test)]
mod tests;
mod trouble;
mod wire;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use callboard_macros::Message;
use callboard_message::surface::{About, CreateMessage, Describe};
use callboard_message::{Failure, FailureKind, Message, Progress, RawObject, SampleAnswer};
use callboard_runtime::{Agent, ConcurrentHandler, Cx, Handlers, Profile, SyncHandler};
use parking_lot::Mutex;
use schemars::JsonSchema;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use config::{Keys, Kind, Place};
use remote::{Pieces, Provider, Try};
use request::{Draft, Preferences, Request, Stop, Usage};
use spend::{Grant, Ledger};
use trouble::Trouble;

pub use config::{
    Api, EchoConfig, ModelConfig, ModelError, ModelLimits, ModelsConfig, Prices, Remote, Retries,
    Scores, ScriptedAnswer, ScriptedConfig, ScriptedTool, ScriptedUsage, Timeouts,
};
pub use remote::{
    MODEL_REQUEST_BYTES_MAX, STREAM_ARTIFACT, STREAM_PIECE_BYTES_MAX, STREAM_PIECE_EVERY,
};
pub use request::{
    MODEL_BLOCKS_MAX, MODEL_TOOL_USES_MAX, MODEL_TOOLS_MAX, PROVIDER_KEY, STREAM_KEY, USAGE_KEY,
};
pub use trouble::Refused;

/// Most messages of one kind that a model agent has begun with; of those `ModelLimits::calls_max` are at the provider.
pub const MODEL_HANDLERS_MAX: u32 = 64;
/// How often a caller is told how far an answer has come, at most.
pub const MODEL_PROGRESS_EVERY: Duration = Duration::from_millis(250);

/// Asks a language model, and gives the text of its answer.
#[derive(derive_more::Debug, Message, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
// What is asked may be anybody's data.
#[debug("AskModel({} bytes)", prompt.len())]
#[message(name = "ask_model", reply = String, fallible, open_world = true)]
#[serde(deny_unknown_fields)]
pub struct AskModel {
    /// What the model is asked.
    pub prompt: String,
    /// What it is told before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// The most it may write, in tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
}

impl AskModel {
    /// Asks this.
    pub fn new(prompt: impl Into<String>) -> Self {
        Self {
            prompt: prompt.into(),
            system_prompt: None,
            max_tokens: None,
        }
    }
}

/// One language model.
#[derive(derive_more::Debug, Clone)]
#[debug("Model({} of {})", _0.model, _0.provider)]
pub struct Model(Arc<Inner>);

struct Inner {
    voice: Voice,
    card: Card,
    /// Its name at the provider.
    model: String,
    provider: String,
    ledger: Arc<Ledger>,
    calls: Semaphore,
}

/// Where answers come from.
enum Voice {
    Provider(Box<Provider>),
    Script(Script),
    Echo,
}

impl Model {
    /// The model that this declares; its key is read from the environment now.
    ///
    /// # Errors
    /// What has to be changed before it can be used. The provider isn't asked yet.
    pub fn open(config: ModelConfig) -> Result<Self, ModelError> {
        Self::open_with(config, &|variable| {
            std::env::var(variable).ok().map(SecretString::from)
        })
    }

    /// The same with keys from elsewhere: by the name of the variable.
    ///
    /// # Errors
    /// Like [`Model::open`].
    pub fn open_with(config: ModelConfig, keys: Keys<'_>) -> Result<Self, ModelError> {
        let (kind, remote) = match config {
            ModelConfig::Openai(remote) => (Kind::Openai, remote),
            ModelConfig::AzureOpenai(remote) => (Kind::AzureOpenai, remote),
            ModelConfig::OpenaiCompatible(remote) => (Kind::OpenaiCompatible, remote),
            ModelConfig::Anthropic(remote) => (Kind::Anthropic, remote),
            ModelConfig::Ollama(remote) => (Kind::Ollama, remote),
            ModelConfig::Scripted(config) => return Self::scripted(config),
            ModelConfig::Echo(EchoConfig {
                model,
                aliases,
                scores,
            }) => {
                let card = Card::new(&model, aliases, scores)?;
                return Self::of(
                    Voice::Echo,
                    card,
                    &model,
                    "echo",
                    &ModelLimits::default(),
                    None,
                );
            }
        };
        let card = Card::new(&remote.model, remote.aliases.clone(), remote.scores)?;
        let provider = Provider::open(&remote, Place::of(kind, &remote, keys)?)?;
        let voice = Voice::Provider(Box::new(provider));
        Self::of(
            voice,
            card,
            &remote.model,
            kind.defaults().0,
            &remote.limits,
            remote.prices,
        )
    }

    /// A model that says what is written down.
    ///
    /// # Errors
    /// A script without an answer, or limits that can't be meant.
    pub fn scripted(config: ScriptedConfig) -> Result<Self, ModelError> {
        let card = Card::new(&config.model, config.aliases, config.scores)?;
        let script = Voice::Script(Script::new(config.answers)?);
        Self::of(
            script,
            card,
            &config.model,
            &config.named_provider,
            &config.limits,
            config.prices,
        )
    }

    fn of(
        voice: Voice,
        card: Card,
        model: &str,
        provider: &str,
        limits: &ModelLimits,
        prices: Option<Prices>,
    ) -> Result<Self, ModelError> {
        let ledger = Ledger::new(limits, prices)?;
        let (model, provider) = (model.to_owned(), provider.to_owned());
        let calls = Semaphore::new((limits.calls_max as usize).min(Semaphore::MAX_PERMITS));
        Ok(Self(Arc::new(Inner {
            voice,
            card,
            model,
            provider,
            ledger,
            calls,
        })))
    }

    /// By what others choose it.
    pub fn card(&self) -> Card {
        self.0.card.clone()
    }
}

impl Inner {
    /// Answers, unless the caller goes or its deadline passes. Either closes the connection to the provider.
    async fn sample(&self, request: Request, cx: &Cx) -> Result<SampleAnswer, Failure> {
        let begun = Instant::now();
        let answered = tokio::select! {
            answered = self.answer(&request, cx) => answered,
            () = cx.cancelled() => Err(Failure::cancelled("cancelled")),
        };
        let millis = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        match &answered {
            Ok((_, usage)) => callboard_message::log::info!(
                by: &self.model,
                call = cx.call().map(|c| tracing::field::display(c.id)),
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
                provider = self.provider,
                model = self.model,
                millis,
                kind = %failure.kind,
                "gave no answer"
            ),
        }
        answered.map(|(answer, _)| answer)
    }

    async fn answer(&self, request: &Request, cx: &Cx) -> Result<(SampleAnswer, Usage), Failure> {
        let own_end = match &self.voice {
            Voice::Provider(provider) => Some(provider.end()),
            _ => None,
        };
        let end = [own_end, cx.deadline()].into_iter().flatten().min();
        let permit = until(end, self.calls.acquire()).await?;
        let _permit = permit.map_err(|_| Failure::internal("the model takes no calls"))?;
        let budget = cx.call().map(|call| call.budget).unwrap_or_default();
        let (grant, tokens_max) =
            self.ledger
                .grant(request.tokens_estimate(), request.tokens_max, budget)?;
        let draft = match &self.voice {
            Voice::Provider(provider) => {
                let end = end.unwrap_or_else(|| provider.end());
                self.follow(provider, request, tokens_max, end, &grant, cx)
                    .await?
            }
            Voice::Script(script) => until(end, script.answer(request)).await??,
            Voice::Echo => Draft::said(request.last_text()),
        };
        let usage = draft.usage(request);
        grant.spend(usage);
        let cost = self.ledger.cost(usage);
        let answer = draft.answer(
            &self.model,
            &self.provider,
            usage,
            cost,
            request.tool_uses(),
        );
        Ok((answer.map_err(|trouble| trouble.failure())?, usage))
    }

    /// Asks the provider, tells the caller how far the answer is, and keeps account of it in case it ends here.
    async fn follow(
        &self,
        provider: &Provider,
        request: &Request,
        tokens_max: u32,
        end: Instant,
        grant: &Grant,
        cx: &Cx,
    ) -> Result<Draft, Failure> {
        let (report, shown) = (
            Report {
                cx,
                told: Mutex::default(),
            },
            Pieces::wanted(request, cx),
        );
        let pieces = |draft: &Draft| {
            grant.spend(draft.usage(request));
            match &shown {
                Some(shown) => shown.written(&draft.text),
                None => report.written(draft.written_bytes() as u64),
            }
        };
        let once = Try {
            request,
            tokens_max,
            pieces: &pieces,
        };
        provider
            .answer(&once, end)
            .await
            .map_err(|trouble| trouble.failure())
    }
}

/// Waits for something until `end`.
///
/// # Errors
/// `TimedOut`.
async fn until<T>(end: Option<Instant>, work: impl Future<Output = T>) -> Result<T, Failure> {
    match end {
        Some(end) => timeout_at(end, work)
            .await
            .map_err(|_| Trouble::TimedOut.failure()),
        None => Ok(work.await),
    }
}

/// Tells the caller how much is written, in bytes: never what.
struct Report<'a> {
    cx: &'a Cx,
    /// Bytes that were told, and when.
    told: Mutex<(u64, Option<Instant>)>,
}

impl Report<'_> {
    fn written(&self, bytes: u64) {
        let mut told = self.told.lock();
        let is_early = told
            .1
            .is_some_and(|last| last.elapsed() < MODEL_PROGRESS_EVERY);
        // Another try begins anew; progress only grows.
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

impl Agent for Model {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<CreateMessage>(MODEL_HANDLERS_MAX)
            .concurrent::<AskModel>(MODEL_HANDLERS_MAX)
            .sync::<Describe>();
    }

    /// It has no state that a dropped request could leave half changed.
    fn profile() -> Profile {
        Profile::default().cancel_safe()
    }

    fn observe(&self) -> serde_json::Value {
        let (tokens, micro_usd) = self.0.ledger.today();
        serde_json::json!({
            "provider": self.0.provider, "model": self.0.model, "tokensToday": tokens, "microUsdToday": micro_usd
        })
    }
}

/// Says by what others choose it.
impl SyncHandler<Describe> for Model {
    fn handle(&mut self, _: Describe, _: &mut Cx) -> Result<About, Failure> {
        Ok(About(RawObject::of("model", self.0.card.about())))
    }
}

impl ConcurrentHandler<CreateMessage> for Model {
    fn handle(
        &mut self,
        message: CreateMessage,
        cx: Cx,
    ) -> impl Future<Output = Result<SampleAnswer, Failure>> + Send + 'static {
        let inner = self.0.clone();
        async move { inner.sample(Request::read(&message)?, &cx).await }
    }
}

impl ConcurrentHandler<AskModel> for Model {
    fn handle(
        &mut self,
        message: AskModel,
        cx: Cx,
    ) -> impl Future<Output = Result<String, Failure>> + Send + 'static {
        let inner = self.0.clone();
        async move {
            inner
                .sample(Request::prompt(message)?, &cx)
                .await
                .map(|answer| answer.written().unwrap_or_default())
        }
    }
}

/// Answers from a script.
#[derive(Debug)]
struct Script {
    rules: Vec<ScriptedAnswer>,
    in_turn: Vec<ScriptedAnswer>,
    next: AtomicUsize,
}

impl Script {
    fn new(answers: Vec<ScriptedAnswer>) -> Result<Self, ModelError> {
        if answers.is_empty() {
            return Err(ModelError::Setting {
                setting: "answers",
                rule: "a script has at least one answer",
            });
        }
        let (rules, in_turn) = answers
            .into_iter()
            .partition(|answer| answer.when.is_some());
        Ok(Self {
            rules,
            in_turn,
            next: AtomicUsize::new(0),
        })
    }

    async fn answer(&self, request: &Request) -> Result<Draft, Failure> {
        let answer = self
            .pick(request)
            .ok_or_else(|| Failure::unavailable("the script has no answer to this"))?;
        if answer.delay_ms > 0 {
            tokio::time::sleep(Duration::from_millis(answer.delay_ms)).await;
        }
        if let Some(sentence) = &answer.fails {
            return Err(Failure::unavailable(sentence));
        }
        let mut draft = Draft::said(answer.text.clone());
        if let Some(tool) = &answer.tool {
            let input = serde_json::to_string(&tool.input).unwrap_or_default();
            draft
                .tool_whole(None, &tool.name, &input)
                .map_err(|trouble| trouble.failure())?;
        }
        if let Some(reason) = &answer.stop_reason {
            draft.stop = Some(Stop::Named(reason.clone()));
        }
        draft.input_tokens = answer.usage.map(|usage| usage.input_tokens);
        draft.output_tokens = answer.usage.map(|usage| usage.output_tokens);
        Ok(draft)
    }

    fn pick(&self, request: &Request) -> Option<&ScriptedAnswer> {
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
        self.in_turn.get(turn).or(self.in_turn.last())
    }
}

/// By what a model is chosen.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Card {
    /// Its own name and others, in lower case.
    names: Vec<String>,
    scores: Scores,
}

impl Card {
    /// A model of this name.
    ///
    /// # Errors
    /// [`ModelError::Setting`] for scores that aren't from 0 to 1.
    pub fn new(name: &str, aliases: Vec<String>, scores: Scores) -> Result<Self, ModelError> {
        if [scores.cost, scores.speed, scores.intelligence]
            .iter()
            .any(|score| !(0.0..=1.0).contains(score))
        {
            return Err(ModelError::Setting {
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

    /// The same in JSON: `{"names": [..], "scores": {"cost": .., "speed": .., "intelligence": ..}}`.
    fn about(&self) -> RawObject {
        let Scores {
            cost,
            speed,
            intelligence,
        } = self.scores;
        let scores = RawObject::of("cost", cost)
            .with("speed", speed)
            .with("intelligence", intelligence);
        RawObject::of("names", &self.names).with("scores", scores)
    }

    /// A hint is a part of a name (client/sampling, "Model Preferences").
    fn fits(&self, hint: &str) -> bool {
        self.names.iter().any(|name| name.contains(hint))
    }

    fn worth(&self, preferences: &Preferences) -> f64 {
        let Scores {
            cost,
            speed,
            intelligence,
        } = self.scores;
        let [cheap, fast, clever] = preferences.weights;
        cheap * cost + fast * speed + clever * intelligence
    }
}

/// One of several: whatever handles [`CreateMessage`] under a name of the directory.
#[derive(Debug, Clone)]
pub struct Member {
    name: String,
    card: Card,
}

impl Member {
    /// The agent that the directory has under `name` when it is asked; hints find it by that name too.
    pub fn new(name: impl Into<String>, mut card: Card) -> Self {
        let name = name.into();
        card.names.push(name.to_lowercase());
        Self { name, card }
    }
}

/// Several models as one.
#[derive(Debug, Clone)]
pub struct Models {
    members: Arc<[Member]>,
    fallback: bool,
}

impl Models {
    /// These, the preferred first; with `fallback` the next is asked where one fails.
    ///
    /// # Errors
    /// [`ModelError::Setting`] without a member.
    pub fn new(members: Vec<Member>, fallback: bool) -> Result<Self, ModelError> {
        if members.is_empty() {
            return Err(ModelError::Setting {
                setting: "members",
                rule: "there is at least one",
            });
        }
        Ok(Self {
            members: members.into(),
            fallback,
        })
    }

    /// All members, the best first: those that a hint names, in the order of the hints; then the others. Among equals what the
    /// caller cares for decides, and after that their order here.
    fn ranked(&self, preferences: &Preferences) -> Vec<&Member> {
        let place = |member: &Member| {
            preferences
                .hints
                .iter()
                .position(|hint| member.card.fits(hint))
                .unwrap_or(preferences.hints.len())
        };
        let better = |a: &&Member, b: &&Member| {
            let worth = || {
                b.card
                    .worth(preferences)
                    .partial_cmp(&a.card.worth(preferences))
            };
            place(a)
                .cmp(&place(b))
                .then_with(|| worth().unwrap_or(std::cmp::Ordering::Equal))
        };
        let mut members: Vec<&Member> = self.members.iter().collect();
        members.sort_by(better);
        members
    }

    async fn ask<M, T>(&self, message: M, preferences: &Preferences, cx: &Cx) -> Result<T, Failure>
    where
        M: Message<Reply = Result<T, Failure>> + Clone,
    {
        let mut failed: Option<(&str, Failure)> = None;
        for member in self.ranked(preferences) {
            if let Some((before, failure)) = &failed {
                callboard_message::log::warn!(by: &member.name, failed = before, kind = %failure.kind, next = member.name, "the next model is asked");
            }
            let answered = match cx.system().directory().get(&member.name) {
                Some(agent) => cx
                    .ask(&agent, message.clone())
                    .await
                    .map_err(Failure::from)
                    .and_then(|reply| reply),
                None => Err(Failure::unavailable("there is no such agent")),
            };
            match answered {
                Ok(answer) => return Ok(answer),
                Err(failure) if !self.fallback || !may_go_on(failure.kind) || cx.is_cancelled() => {
                    return Err(failure);
                }
                Err(failure) => failed = Some((&member.name, failure)),
            }
        }
        let (name, last) = failed.ok_or_else(|| Failure::unavailable("there is no model"))?;
        Err(Failure {
            message: format!("no model answered; `{name}`, the last: {}", last.message),
            ..last
        })
    }
}

/// Whether another model may fare better. What doesn't fit, isn't allowed or is blocked is so everywhere.
fn may_go_on(kind: FailureKind) -> bool {
    use FailureKind::{Internal, NotFound, Overloaded, Rejected, TimedOut, Unavailable};
    matches!(
        kind,
        Internal | NotFound | Overloaded | Rejected | TimedOut | Unavailable
    )
}

impl Agent for Models {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<CreateMessage>(MODEL_HANDLERS_MAX)
            .concurrent::<AskModel>(MODEL_HANDLERS_MAX);
    }

    /// It has no state that a dropped request could leave half changed.
    fn profile() -> Profile {
        Profile::default().cancel_safe()
    }

    fn observe(&self) -> serde_json::Value {
        serde_json::json!({ "members": self.members.iter().map(|member| &member.name).collect::<Vec<_>>() })
    }
}

impl ConcurrentHandler<CreateMessage> for Models {
    fn handle(
        &mut self,
        message: CreateMessage,
        cx: Cx,
    ) -> impl Future<Output = Result<SampleAnswer, Failure>> + Send + 'static {
        let models = self.clone();
        let preferences = Preferences::read(&message);
        async move { models.ask(message, &preferences, &cx).await }
    }
}

impl ConcurrentHandler<AskModel> for Models {
    fn handle(
        &mut self,
        message: AskModel,
        cx: Cx,
    ) -> impl Future<Output = Result<String, Failure>> + Send + 'static {
        let models = self.clone();
        async move { models.ask(message, &Preferences::default(), &cx).await }
    }
}
