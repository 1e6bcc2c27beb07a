//! A language model that decides: prompts in files, an answer held to a JSON schema where the provider can, and read strictly
//! wherever it comes from.

mod points;
mod prompt;
mod read;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use callboard_message::surface::CreateMessage;
use callboard_message::{Failure, FailureKind, RawObject, Sample, SampleAnswer};
use callboard_models::STREAM_KEY;
use callboard_runtime::{Agent, AgentRef, CallMeta, ConcurrentHandler, Cx, Handlers, Profile};
use serde_json::{Value, json};

use super::{
    DecideClarity, DecideConfirm, DecideFollowUp, DecideRecovery, DecideRoute, DecideSplit,
    DecideTool, Decided, MakeSteps, Point, Synthesize, WriteAnswer,
};
pub use prompt::{PROMPT_BYTES_MAX, PROMPT_TOKENS_MAX};
pub use read::DECISION_BYTES_MAX;

use prompt::{Fill, Material, Prompts};
use read::{PromptSpec, Said, TOOL, read};

/// Maximum decisions of one point that a model decider works on at once. Further ones wait in its mailbox. Fixed.
pub const MODEL_DECISIONS_MAX: u32 = 64;
/// Maximum bytes of a model's answer to a request (DP4). A longer one is unclear. Fixed.
pub const WRITTEN_BYTES_MAX: usize = 64 * 1024;
/// Maximum tokens of an answer to a request (DP4).
const ANSWER_TOKENS_MAX: u32 = 4_096;
/// Held to a schema, with as little chance in the answer as the model has.
const HELD: u8 = 0;
/// The same with the chance that it always has: some take no other.
const HELD_LOOSELY: u8 = 1;
/// In text.
const PLAIN: u8 = 2;
const TOO_LONG: &str = "the request is too long for a prompt";
/// Confidence of an answer that the model couldn't finish.
const CONFIDENCE_CUT: f32 = 0.3;

/// Options of a model decider.
#[derive(Debug, Clone, Default)]
pub struct ModelDeciderOptions {
    /// A folder with prompts that stand in the place of ours, by file name.
    pub prompts_dir: Option<PathBuf>,
    /// Whether JSON schemas are used where the provider can (`auto`), or never.
    pub structured_off: bool,
}

/// Decides every point by a language model: it handles all messages of [`Decision`], many at once.
#[derive(Debug, Clone)]
pub struct ModelDecider(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    model: AgentRef,
    prompts: Prompts,
    /// How it is asked: [`HELD`], or by as much less as its provider refused.
    form: AtomicU8,
}

impl ModelDecider {
    /// Over the model agent `model`.
    ///
    /// # Errors
    /// `InvalidInput` where a prompt of `prompts_dir` can't be used.
    pub fn new(model: AgentRef, options: &ModelDeciderOptions) -> Result<Self, Failure> {
        let prompts = Prompts::open(options.prompts_dir.as_deref())
            .map_err(|wrong| Failure::invalid(wrong.to_string()))?;
        let form = if options.structured_off { PLAIN } else { HELD };
        Ok(Self(Arc::new(Inner {
            model,
            prompts,
            form: AtomicU8::new(form),
        })))
    }
}

impl Inner {
    async fn decide<D: PromptSpec>(
        &self,
        asked: &D,
        cx: &Cx,
    ) -> Result<Decided<D::Outcome>, Failure> {
        let Some(plain) = self.prompted(D::POINT, asked.material(), D::TOKENS_MAX) else {
            return Ok(Decided::unclear(TOO_LONG));
        };
        let answer = self.ask(D::POINT, plain, Some(asked.schema()), cx).await?;
        Ok(read(asked, &Said::of(&answer)))
    }

    async fn write(&self, asked: &WriteAnswer, cx: &Cx) -> Result<Decided<String>, Failure> {
        let Some(plain) = self.prompted(Point::Answer, answer_material(asked), ANSWER_TOKENS_MAX)
        else {
            return Ok(Decided::unclear(TOO_LONG));
        };
        // Whoever asked may read it while it is written.
        let streamed = plain.with("_meta", RawObject::of(STREAM_KEY, true));
        let answer = self.ask(Point::Answer, streamed, None, cx).await?;
        Ok(written(&Said::of(&answer)))
    }

    /// Request to the model, as a text; `None` where it doesn't fit.
    fn prompted(&self, point: Point, material: Material, tokens_max: u32) -> Option<RawObject> {
        let (system, turn) = prompt::fit(self.prompts.of(point), material, PROMPT_TOKENS_MAX)?;
        Some(Sample::prompt(turn, tokens_max).system_prompt(system).0)
    }

    /// Asks the model, with a schema for its answer where it takes one.
    async fn ask(
        &self,
        point: Point,
        plain: RawObject,
        schema: Option<Value>,
        cx: &Cx,
    ) -> Result<SampleAnswer, Failure> {
        let Some(schema) = schema else {
            return self.sample(point, plain, cx).await;
        };
        let mut form = self.form.load(Ordering::Relaxed);
        loop {
            let params = match form {
                HELD => held(plain.clone(), &schema).with("temperature", 0),
                HELD_LOOSELY => held(plain.clone(), &schema),
                _ => plain.clone(),
            };
            match self.sample(point, params, cx).await {
                // Some take no temperature, some no tools, or none that must be used.
                Err(refused) if form < PLAIN && is_refusal(&refused) => form += 1,
                Ok(answer) => {
                    if self.form.fetch_max(form, Ordering::Relaxed) < form {
                        callboard_message::log::info!(%point, form, "the model refuses a schema or a temperature: it gets none from now on");
                    }
                    return Ok(answer);
                }
                failed => return failed,
            }
        }
    }

    async fn sample(
        &self,
        point: Point,
        params: RawObject,
        cx: &Cx,
    ) -> Result<SampleAnswer, Failure> {
        let ask = cx.ask(&self.model, CreateMessage(params));
        match cx.next_hop() {
            // How far a decision has come is of no use to the caller.
            Some(call) if point != Point::Answer => {
                ask.within_call(Some(Arc::new(CallMeta {
                    caller: None,
                    ..(*call).clone()
                })))
                .await?
            }
            _ => ask.await?,
        }
    }
}

/// The same request with a tool for the answer, which must be used.
fn held(plain: RawObject, schema: &Value) -> RawObject {
    let tool = json!({ "name": TOOL, "description": "Gives the decision.", "inputSchema": schema });
    plain
        .with("tools", [tool])
        .with("toolChoice", json!({ "mode": "required" }))
}

/// Whether the request as it is can't be answered: another may be.
fn is_refusal(failure: &Failure) -> bool {
    matches!(
        failure.kind,
        FailureKind::InvalidInput | FailureKind::Rejected
    )
}

/// DP4: the answer is what was written.
fn written(said: &Said) -> Decided<String> {
    let text = said.text.trim();
    let decided = match said.stop.as_deref() {
        Some("refusal" | "contentFilter") => Decided::unclear("the model refused to answer"),
        _ if text.is_empty() => Decided::unclear("the model's answer is empty"),
        _ if text.len() > WRITTEN_BYTES_MAX => {
            Decided::unclear("the model's answer is over its limit")
        }
        Some("maxTokens") => Decided::sure(
            format!("{text}…"),
            CONFIDENCE_CUT,
            "the model's answer was cut off",
        ),
        _ => Decided::sure(text.to_owned(), super::limits::CONFIDENCE_UNSAID, ""),
    };
    decided.at_cost(said.cost)
}

fn answer_material(asked: &WriteAnswer) -> Material {
    Material {
        history: asked.history.clone(),
        fixed: vec![("system_prompt", Fill::Bare(asked.system_prompt.clone()))],
        ..Material::said(&asked.request)
    }
}

impl Agent for ModelDecider {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<DecideFollowUp>(MODEL_DECISIONS_MAX)
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

    /// It has no state that a dropped request could leave half changed.
    fn profile() -> Profile {
        Profile::default().cancel_safe()
    }
}

impl<D: PromptSpec + Sync> ConcurrentHandler<D> for ModelDecider {
    fn handle(
        &mut self,
        message: D,
        cx: Cx,
    ) -> impl Future<Output = Result<Decided<D::Outcome>, Failure>> + Send + 'static {
        let inner = self.0.clone();
        async move { inner.decide(&message, &cx).await }
    }
}

impl ConcurrentHandler<WriteAnswer> for ModelDecider {
    fn handle(
        &mut self,
        message: WriteAnswer,
        cx: Cx,
    ) -> impl Future<Output = Result<Decided<String>, Failure>> + Send + 'static {
        let inner = self.0.clone();
        async move { inner.write(&message, &cx).await }
    }
}
