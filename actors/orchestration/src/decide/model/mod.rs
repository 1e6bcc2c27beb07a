//! Decider that asks a language model. Prompts are files; the answer is constrained by a JSON
//! Schema if the provider supports it, and parsed strictly in every case.

mod answer_parser;
mod intake_spec;
mod prompt;
mod prompt_specs;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use callboard_message::capabilities::CreateMessage;
use callboard_message::{Failure, FailureKind, RawObject, SamplingAnswer, SamplingRequest};
use callboard_models::STREAM_KEY;
use callboard_runtime::{
    Agent, AgentProfile, AgentRef, CallContext, ConcurrentHandler, Context, Handlers,
};
use serde_json::{Value, json};

use super::{
    DecideClarity, DecideConfirm, DecideFollowUp, DecideIntake, DecideRecovery, DecideRoute,
    DecideSplit, DecideTool, DeciderReply, DecisionPoint, MakeSteps, Synthesize, WriteAnswer,
};
pub use answer_parser::DECISION_BYTES_MAX;
pub use prompt::{PROMPT_BYTES_MAX, PROMPT_TOKENS_MAX};

use answer_parser::{DECISION_TOOL, ModelAnswer, PromptSpec, parse_decision};
use prompt::{PlaceholderValue, PromptData, PromptSet};

/// Maximum concurrent decisions of one decision point per model decider. Further ones wait in the
/// decider's mailbox. Fixed.
pub const MODEL_DECISIONS_MAX: u32 = 64;
/// Maximum bytes of a model's answer to a request (DP4). A longer answer counts as unclear. Fixed.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Maximum output tokens of an answer to a request (DP4).
const ANSWER_TOKENS_MAX: u32 = 4_096;
/// Answer mode in which the model must call a tool whose input is the decision, with temperature 0.
const MODE_SCHEMA_COLD: u8 = 0;
/// Answer mode in which the model must call a tool whose input is the decision, with the model's
/// own temperature. Some models accept no other.
const MODE_SCHEMA: u8 = 1;
/// Answer mode in which the model writes its decision as text, which is parsed.
const MODE_TEXT: u8 = 2;
const PROMPT_TOO_LONG: &str = "the request is too long for a prompt";
/// Confidence in an answer to a request (DP4) that was cut off at the token limit.
const CONFIDENCE_TRUNCATED: f32 = 0.3;

/// Options of a model decider.
#[derive(Debug, Clone, Default)]
pub struct ModelDeciderOptions {
    /// Directory with prompt files that replace built-in ones of the same name.
    pub prompts_dir: Option<PathBuf>,
    /// Whether decisions are always requested as text. By default, they are requested as the input
    /// of a tool with a JSON Schema if the provider supports it.
    pub without_schemas: bool,
}

/// Agent that decides every decision point with a language model. It handles all messages of
/// [`DecisionRequest`](super::DecisionRequest) concurrently.
#[derive(Debug, Clone)]
pub struct ModelDecider(Arc<ModelDeciderInner>);

#[derive(Debug)]
struct ModelDeciderInner {
    model: AgentRef,
    prompts: PromptSet,
    /// Current answer mode. It is [`MODE_SCHEMA_COLD`] at first, and a simpler mode after the
    /// provider has rejected a request.
    answer_mode: AtomicU8,
}

impl ModelDecider {
    /// Creates a decider over the model agent `model`.
    ///
    /// # Errors
    /// `InvalidInput` if `prompts_dir` or a prompt file in it can't be used.
    pub fn new(model: AgentRef, options: &ModelDeciderOptions) -> Result<Self, Failure> {
        let prompts = PromptSet::open(options.prompts_dir.as_deref())
            .map_err(|wrong| Failure::invalid(wrong.to_string()))?;
        let form = if options.without_schemas {
            MODE_TEXT
        } else {
            MODE_SCHEMA_COLD
        };
        Ok(Self(Arc::new(ModelDeciderInner {
            model,
            prompts,
            answer_mode: AtomicU8::new(form),
        })))
    }
}

impl ModelDeciderInner {
    async fn decide<D: PromptSpec>(
        &self,
        asked: &D,
        cx: &Context,
    ) -> Result<DeciderReply<D::Outcome>, Failure> {
        let Some(plain) = self.build_request(D::POINT, asked.prompt_data(), D::TOKENS_MAX) else {
            return Ok(DeciderReply::unclear(PROMPT_TOO_LONG));
        };
        let answer = self.ask(D::POINT, plain, Some(asked.schema()), cx).await?;
        Ok(parse_decision(asked, &ModelAnswer::from_sample(&answer)))
    }

    async fn write_answer(
        &self,
        asked: &WriteAnswer,
        cx: &Context,
    ) -> Result<DeciderReply<String>, Failure> {
        let Some(plain) = self.build_request(
            DecisionPoint::Answer,
            answer_prompt_data(asked),
            ANSWER_TOKENS_MAX,
        ) else {
            return Ok(DeciderReply::unclear(PROMPT_TOO_LONG));
        };
        // Streamed, so that the user can read the answer while it is written.
        let streamed = plain.with("_meta", RawObject::single(STREAM_KEY, true));
        let answer = self.ask(DecisionPoint::Answer, streamed, None, cx).await?;
        Ok(parse_written_answer(&ModelAnswer::from_sample(&answer)))
    }

    /// Builds the model request for a prompt, without a decision tool. `None` if the prompt exceeds
    /// the token limit even after cutting.
    fn build_request(
        &self,
        point: DecisionPoint,
        material: PromptData,
        tokens_max: u32,
    ) -> Option<RawObject> {
        let (system, turn) =
            prompt::fit_prompt(self.prompts.template(point), material, PROMPT_TOKENS_MAX)?;
        Some(
            SamplingRequest::prompt(turn, tokens_max)
                .with_system_prompt(system)
                .0,
        )
    }

    /// Asks the model. Without a `schema`, `plain` is sent as it is. With one, a decision tool is
    /// added; if the provider rejects that, the request is repeated in a simpler answer mode, which
    /// is used from then on.
    ///
    /// # Errors
    /// The model's failure in the last mode tried.
    async fn ask(
        &self,
        point: DecisionPoint,
        plain: RawObject,
        schema: Option<Value>,
        cx: &Context,
    ) -> Result<SamplingAnswer, Failure> {
        let Some(schema) = schema else {
            return self.sample(point, plain, cx).await;
        };
        let mut form = self.answer_mode.load(Ordering::Relaxed);
        loop {
            let params = match form {
                MODE_SCHEMA_COLD => {
                    with_decision_tool(plain.clone(), &schema).with("temperature", 0)
                }
                MODE_SCHEMA => with_decision_tool(plain.clone(), &schema),
                _ => plain.clone(),
            };
            match self.sample(point, params, cx).await {
                // Some models reject a temperature, some reject tools or required tools.
                Err(refused) if form < MODE_TEXT && is_request_refused(&refused) => form += 1,
                Ok(answer) => {
                    if self.answer_mode.fetch_max(form, Ordering::Relaxed) < form {
                        callboard_message::log::info!(%point, form, "the provider rejects a schema or temperature: a simpler answer mode is used from now on");
                    }
                    return Ok(answer);
                }
                failed => return failed,
            }
        }
    }

    async fn sample(
        &self,
        point: DecisionPoint,
        params: RawObject,
        cx: &Context,
    ) -> Result<SamplingAnswer, Failure> {
        let ask = cx.ask(&self.model, CreateMessage(params));
        match cx.next_hop() {
            // Partial output of a decision is of no use to the caller.
            Some(call) if point != DecisionPoint::Answer => {
                ask.within_call(Some(Arc::new(CallContext {
                    caller: None,
                    caller_alone: None,
                    ..(*call).clone()
                })))
                .await?
            }
            _ => ask.await?,
        }
    }
}

/// Adds a tool to a model request that the model must call, and whose input is the decision.
fn with_decision_tool(plain: RawObject, schema: &Value) -> RawObject {
    let tool = json!({ "name": DECISION_TOOL, "description": "Gives the decision.", "inputSchema": schema });
    plain
        .with("tools", [tool])
        .with("toolChoice", json!({ "mode": "required" }))
}

/// Whether the provider rejected the request itself, so that a simpler answer mode may succeed.
fn is_request_refused(failure: &Failure) -> bool {
    matches!(
        failure.kind,
        FailureKind::InvalidInput | FailureKind::Rejected
    )
}

/// Builds the reply with the model's answer to a request (DP4). Its text is used unchanged, except
/// that `…` is appended if it was cut off at the token limit. The reply is unclear if the model
/// refused, or the text is empty or longer than [`ANSWER_BYTES_MAX`].
fn parse_written_answer(said: &ModelAnswer) -> DeciderReply<String> {
    let text = said.text.trim();
    let decided = match said.stop_reason.as_deref() {
        Some("refusal" | "contentFilter") => DeciderReply::unclear("the model refused to answer"),
        _ if text.is_empty() => DeciderReply::unclear("the model's answer is empty"),
        _ if text.len() > ANSWER_BYTES_MAX => {
            DeciderReply::unclear("the model's answer is over its limit")
        }
        Some("maxTokens") => DeciderReply::clear(
            format!("{text}…"),
            CONFIDENCE_TRUNCATED,
            "the model's answer was cut off",
        ),
        _ => DeciderReply::clear(text.to_owned(), super::limits::CONFIDENCE_DEFAULT, ""),
    };
    decided.with_cost(said.cost)
}

fn answer_prompt_data(asked: &WriteAnswer) -> PromptData {
    PromptData {
        history: asked.history.clone(),
        fixed_values: vec![(
            "system_prompt",
            PlaceholderValue::Trusted(asked.system_prompt.clone()),
        )],
        ..PromptData::for_request(&asked.request)
    }
}

impl Agent for ModelDecider {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<DecideFollowUp>(MODEL_DECISIONS_MAX)
            .concurrent::<DecideIntake>(MODEL_DECISIONS_MAX)
            .concurrent::<DecideClarity>(MODEL_DECISIONS_MAX)
            .concurrent::<DecideSplit>(MODEL_DECISIONS_MAX)
            .concurrent::<MakeSteps>(MODEL_DECISIONS_MAX)
            .concurrent::<DecideRoute>(MODEL_DECISIONS_MAX)
            .concurrent::<DecideTool>(MODEL_DECISIONS_MAX)
            .concurrent::<WriteAnswer>(MODEL_DECISIONS_MAX)
            .concurrent::<DecideRecovery>(MODEL_DECISIONS_MAX)
            .concurrent::<Synthesize>(MODEL_DECISIONS_MAX)
            .concurrent::<DecideConfirm>(MODEL_DECISIONS_MAX);
    }

    /// Marks the agent as cancel-safe: it has no state that a dropped request could leave half
    /// changed.
    fn profile() -> AgentProfile {
        AgentProfile::default().cancel_safe()
    }
}

impl<D: PromptSpec + Sync> ConcurrentHandler<D> for ModelDecider {
    fn handle(
        &mut self,
        message: D,
        cx: Context,
    ) -> impl Future<Output = Result<DeciderReply<D::Outcome>, Failure>> + Send + 'static {
        let inner = self.0.clone();
        async move { inner.decide(&message, &cx).await }
    }
}

impl ConcurrentHandler<WriteAnswer> for ModelDecider {
    fn handle(
        &mut self,
        message: WriteAnswer,
        cx: Context,
    ) -> impl Future<Output = Result<DeciderReply<String>, Failure>> + Send + 'static {
        let inner = self.0.clone();
        async move { inner.write_answer(&message, &cx).await }
    }
}
