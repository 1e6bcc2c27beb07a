//! The router: takes the steps of a plan to the clinics, and what they answer through the guardrail.
//!
//! It alone knows where the clinics are: under their ids in the directory.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use callboard_guardrail::{Origin, Screen};
use callboard_macros::Message;
use callboard_message::text::plain;
use callboard_message::{Failure, FailureKind, Progress};
use callboard_runtime::{Agent, AgentRef, CallMeta, ConcurrentHandler, Cx, Directory, Handlers};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;

use crate::plan::{CheckedPlan, Plan, Registry, Step};

/// Default time limit of one clinic for one step. After it the step fails. Changed by [`RouterConfig::step_within`].
pub const STEP_WITHIN_DEFAULT: Duration = Duration::from_secs(10);
/// Default time limit of the guardrail for one text. After it the text doesn't pass. Changed by
/// [`RouterConfig::screen_within`].
pub const SCREEN_WITHIN_DEFAULT: Duration = Duration::from_secs(5);
/// Default maximum steps of one plan under way at once. Further ones wait. Changed by [`RouterConfig::steps_at_once`].
pub const STEPS_AT_ONCE_DEFAULT: usize = 8;
/// Maximum plans that one router takes to the clinics at once. Further ones wait in its mailbox. Fixed.
pub const DISPATCHES_AT_ONCE_MAX: u32 = 64;
/// A clinic can't be reached or couldn't answer (technical blueprint, section 2.2).
pub const CODE_UNAVAILABLE: i32 = -32000;
/// A clinic didn't accept the parameters.
pub const CODE_INVALID_PARAMS: i32 = -32602;
/// The guardrail stopped a clinic's answer.
pub const CODE_BLOCKED: i32 = -1;

/// Maximum characters of a clinic's own words in an error; the rest is cut.
const MESSAGE_CHARS_MAX: usize = 200;
/// Maximum bytes of a clinic's answer to one step. With a longer one the step fails. Fixed.
pub const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// Text in place of one that the guardrail stopped, or could not screen.
pub(crate) const BLOCKED: &str = "Request blocked by guardrails";

/// Takes a plan's steps to their clinics. A plan that names anything unregistered is refused as a whole.
#[derive(Message, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[message(name = "dispatch", reply = Dispatched, fallible)]
#[serde(deny_unknown_fields)]
pub struct Dispatch {
    /// The plan; it is checked again here, for nothing unchecked is sent.
    pub plan: Plan,
}

/// What the clinics answered, one outcome a step in the plan's order. Not for the user before it is verified.
#[derive(derive_more::Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[debug("{steps:?}")]
pub struct Dispatched {
    /// One a step.
    pub steps: Vec<StepOutcome>,
}

/// Configuration of a router.
#[derive(Debug, Clone)]
pub struct RouterConfig {
    /// Clinics that may be asked.
    pub registry: Arc<Registry>,
    /// Screens what the clinics answer.
    pub guardrail: AgentRef,
    /// Time limit of one clinic for one step.
    pub step_within: Duration,
    /// Time limit of the guardrail for one answer.
    pub screen_within: Duration,
    /// Maximum steps of one plan under way at once; at least 1.
    pub steps_at_once: usize,
}

impl RouterConfig {
    /// The default limits.
    pub fn new(registry: Arc<Registry>, guardrail: AgentRef) -> Self {
        Self {
            registry,
            guardrail,
            step_within: STEP_WITHIN_DEFAULT,
            screen_within: SCREEN_WITHIN_DEFAULT,
            steps_at_once: STEPS_AT_ONCE_DEFAULT,
        }
    }
}

/// The agent that dispatches. It keeps nothing of what passes through it.
#[derive(Debug, Clone)]
pub struct Router {
    config: Arc<RouterConfig>,
}

impl Router {
    /// A router with this configuration.
    pub fn new(config: RouterConfig) -> Self {
        Self {
            config: Arc::new(config),
        }
    }
}

impl Agent for Router {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Dispatch>(DISPATCHES_AT_ONCE_MAX);
    }
}

impl ConcurrentHandler<Dispatch> for Router {
    fn handle(
        &mut self,
        message: Dispatch,
        cx: Cx,
    ) -> impl Future<Output = Result<Dispatched, Failure>> + Send + 'static {
        let config = self.config.clone();
        async move {
            let checked = message.plan.check(&config.registry)?;
            // Two reports a step; a plan has few.
            let tells = u32::try_from(2 * checked.steps().len()).unwrap_or(u32::MAX);
            let call = onward(&cx)?;
            let directory = cx.system().directory();
            let dispatching = Dispatching {
                config: &config,
                directory,
                call,
                told: AtomicU32::new(0),
                tells,
            };
            let steps = run(checked, config.steps_at_once, |step| dispatching.run(step)).await;
            Ok(Dispatched { steps })
        }
    }
}

/// The call as the next agent gets it; one of its own where the message came without.
pub(crate) fn onward(cx: &Cx) -> Result<CallMeta, Failure> {
    let Some(call) = cx.call() else {
        return Ok(CallMeta::new(Arc::new(cx.principal().clone())));
    };
    let next = cx.next_hop().ok_or_else(|| {
        let message = format!(
            "the call passed through more than {} agents: look for a loop",
            call.hops_max
        );
        Failure::rejected(message)
    })?;
    Ok(Arc::unwrap_or_clone(next))
}

/// The same call without anyone to hear its progress or questions: what a clinic says in mid-call would reach the user
/// past guardrail and verifier.
pub(crate) fn unheard(call: &CallMeta) -> CallMeta {
    CallMeta {
        caller: None,
        ..call.clone()
    }
}

/// How one step ended: with a result, or with an error.
// The result is patient data and an error may quote it: neither is printed.
#[derive(derive_more::Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[debug(
    "StepOutcome({step_id} {clinic} {action}: {}, {ms} ms)",
    error.as_ref().map_or("result".to_owned(), |error| format!("error {}", error.code))
)]
pub struct StepOutcome {
    /// The step's number.
    pub step_id: u32,
    /// Who was asked.
    pub clinic: String,
    /// Which tool.
    pub action: String,
    /// What the clinic answered. Patient data: never logged, never stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Why there is no result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<StepError>,
    /// How long it took, in milliseconds.
    pub ms: u64,
}

/// Why a step has no result.
#[derive(derive_more::Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[debug("StepError({})", code)]
pub struct StepError {
    /// As in JSON-RPC: [`CODE_UNAVAILABLE`], [`CODE_INVALID_PARAMS`], [`CODE_BLOCKED`], or what the clinic's peer said.
    pub code: i32,
    /// One sentence for a person.
    pub message: String,
}

impl StepOutcome {
    fn of(
        Step {
            step_id,
            clinic,
            action,
            ..
        }: Step,
        ended: Result<Value, StepError>,
        ms: u64,
    ) -> Self {
        let (result, error) = match ended {
            Ok(result) => (Some(result), None),
            Err(error) => (None, Some(error)),
        };
        Self {
            step_id,
            clinic,
            action,
            result,
            error,
            ms,
        }
    }
}

impl StepError {
    /// A clinic's failure. Its own words are kept only where they tell what to change, and are still to be screened.
    fn of_clinic(clinic: &str, failure: &Failure) -> Self {
        let told = failure
            .data
            .as_ref()
            .and_then(|d| d.get("code"))
            .and_then(Value::as_i64);
        let told = told.and_then(|code| i32::try_from(code).ok());
        let words = printable(&failure.message);
        let code = match failure.kind {
            FailureKind::InvalidInput | FailureKind::NotFound => CODE_INVALID_PARAMS,
            FailureKind::Blocked => CODE_BLOCKED,
            _ => CODE_UNAVAILABLE,
        };
        let message = match failure.kind {
            FailureKind::InvalidInput | FailureKind::NotFound => format!("{clinic}: {words}"),
            FailureKind::Denied | FailureKind::Rejected => format!("{clinic} refused: {words}"),
            FailureKind::Blocked => format!("{clinic} blocked the request"),
            FailureKind::TimedOut => format!("{clinic} did not answer in time"),
            FailureKind::Overloaded => format!("{clinic} is overloaded: ask again later"),
            FailureKind::Cancelled => format!("the request to {clinic} was cancelled"),
            FailureKind::Unavailable => format!("{clinic} can't be reached"),
            _ => format!("{clinic} failed to answer"),
        };
        Self {
            code: told.unwrap_or(code),
            message,
        }
    }
}

fn printable(words: &str) -> String {
    plain(words)
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MESSAGE_CHARS_MAX)
        .collect()
}

/// One plan on its way to the clinics. It holds neither the system nor its surroundings: from here no store can be reached.
struct Dispatching<'a> {
    config: &'a RouterConfig,
    /// Finds the clinics.
    directory: &'a Directory,
    call: CallMeta,
    /// Progress reports so far.
    told: AtomicU32,
    /// Progress reports in all: two a step.
    tells: u32,
}

impl Dispatching<'_> {
    /// Takes one step to its clinic and the answer through the guardrail. It always ends with an outcome.
    async fn run(&self, step: Step) -> StepOutcome {
        let began = Instant::now();
        let name = format!("step {} {} {}", step.step_id, step.clinic, step.action);
        self.tell(format!("{name} started"));
        let answer = self.ask(&step).await;
        let ms = ms_since(began);
        let (call, id, clinic, action) = (self.call.id, step.step_id, &step.clinic, &step.action);
        // Ids, codes and times only: what a clinic answered is never logged.
        match &answer {
            Ok(_) => {
                callboard_message::log::info!(by: clinic, %call, step = id, clinic, action, ms, "step done");
                self.tell(format!("{name} done in {ms} ms"));
            }
            Err(error) => {
                callboard_message::log::warn!(by: clinic, %call, step = id, clinic, action, ms, code = error.code, "step failed");
                self.tell(format!("{name} failed in {ms} ms ({})", error.code));
            }
        }
        StepOutcome::of(step, answer, ms)
    }

    async fn ask(&self, step: &Step) -> Result<Value, StepError> {
        let answer = self.ask_clinic(step).await.and_then(|raw| read(&raw));
        let (text, outcome) = match answer {
            Ok(value) => (texts(&value), Ok(value)),
            Err(failure) => {
                let error = StepError::of_clinic(&step.clinic, &failure);
                (error.message.clone(), Err(error))
            }
        };
        let (guardrail, within) = (&self.config.guardrail, self.config.screen_within);
        match passes(guardrail, &self.call, within, text, Origin::ToolResult).await {
            true => outcome,
            false => Err(StepError {
                code: CODE_BLOCKED,
                message: BLOCKED.into(),
            }),
        }
    }

    async fn ask_clinic(&self, step: &Step) -> Result<Box<RawValue>, Failure> {
        let clinic = self.directory.get(&step.clinic);
        let clinic = clinic.ok_or_else(|| Failure::unavailable("no agent of that name"))?;
        let parameters =
            to_raw_value(&step.parameters).map_err(|e| Failure::internal(e.to_string()))?;
        let within = self.config.step_within;
        let call = Arc::new(unheard(&self.call).until(Instant::now() + within));
        // The limit is kept here as well: dropping the ask cancels the clinic's handler, heed it its deadline or not.
        tokio::time::timeout(
            within,
            clinic.ask_named(step.action.as_str(), parameters, Some(call)),
        )
        .await
        .unwrap_or_else(|_| Err(Failure::timed_out("no answer in time")))
    }

    fn tell(&self, message: String) {
        let done = f64::from(self.told.fetch_add(1, Ordering::Relaxed) + 1);
        if let Some(caller) = &self.call.caller {
            caller.progress(Progress {
                done,
                total: Some(f64::from(self.tells)),
                message: Some(message),
            });
        }
    }
}

fn read(raw: &RawValue) -> Result<Value, Failure> {
    let bytes = raw.get().len();
    if bytes > ANSWER_BYTES_MAX {
        return Err(Failure::internal(format!(
            "an answer of {bytes} bytes, more than {ANSWER_BYTES_MAX}"
        )));
    }
    // serde's message can quote the answer: it is left out.
    match serde_json::from_str(raw.get()) {
        Ok(Value::Null) => Err(Failure::internal("an answer without a result")),
        Ok(value) => Ok(value),
        Err(_) => Err(Failure::internal("an answer that can't be read")),
    }
}

/// Runs steps as soon as those they depend on have succeeded, at most `at_once` together; outcomes in the plan's order.
///
/// A step whose dependency failed isn't run: its outcome says so.
async fn run<F>(
    plan: CheckedPlan,
    at_once: usize,
    mut start: impl FnMut(Step) -> F,
) -> Vec<StepOutcome>
where
    F: Future<Output = StepOutcome>,
{
    let order: Vec<u32> = plan.steps().iter().map(|s| s.step_id).collect();
    let mut waiting = plan.into_steps();
    let mut outcomes: HashMap<u32, StepOutcome> = HashMap::new();
    let mut running = FuturesUnordered::new();
    loop {
        settle(&mut waiting, &mut outcomes);
        while running.len() < at_once.max(1)
            && let Some(at) = waiting.iter().position(|s| is_ready(s, &outcomes))
        {
            running.push(start(waiting.remove(at)));
        }
        match running.next().await {
            Some(outcome) => drop(outcomes.insert(outcome.step_id, outcome)),
            // A checked plan has no circle: what is still waiting here can't be.
            None => break,
        }
    }
    order.iter().filter_map(|id| outcomes.remove(id)).collect()
}

fn is_ready(step: &Step, outcomes: &HashMap<u32, StepOutcome>) -> bool {
    step.depends_on.iter().all(|on| outcomes.contains_key(on))
}

/// Gives steps that can't succeed any more their outcome.
fn settle(waiting: &mut Vec<Step>, outcomes: &mut HashMap<u32, StepOutcome>) {
    let failed = |on: &&u32| {
        outcomes
            .get(on)
            .is_some_and(|outcome| outcome.error.is_some())
    };
    let fails = |(at, step): (usize, &Step)| Some((at, *step.depends_on.iter().find(failed)?));
    if let Some((at, on)) = waiting.iter().enumerate().find_map(fails) {
        let message = format!("step {on}, which it depends on, failed");
        let outcome = StepOutcome::of(
            waiting.remove(at),
            Err(StepError {
                code: CODE_UNAVAILABLE,
                message,
            }),
            0,
        );
        outcomes.insert(outcome.step_id, outcome);
        // It may be what another waited for.
        settle(waiting, outcomes);
    }
}

/// Whether the guardrail lets a text go on. What it can't screen, for it is late or away, doesn't pass.
pub(crate) async fn passes(
    guardrail: &AgentRef,
    call: &CallMeta,
    within: Duration,
    text: String,
    origin: Origin,
) -> bool {
    let call_on = Some(Arc::new(unheard(call)));
    match guardrail
        .ask(Screen { text, origin })
        .within_call(call_on)
        .within(within)
        .await
    {
        Ok(screening) if !screening.blocked => return true,
        Ok(screening) => {
            callboard_message::log::info!(rules = ?screening.rules, "guardrail stopped a text")
        }
        // Whoever asked has gone: that's no fault of anybody's here.
        Err(_) if call.cancel.is_cancelled() => {}
        Err(why) => {
            callboard_message::log::error!(%why, "guardrail could not screen a text: stopped")
        }
    }
    false
}

/// Milliseconds since then.
pub(crate) fn ms_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Every text in a value, keys too, one a line: an instruction that is split over fields is whole again.
fn texts(value: &Value) -> String {
    let mut lines = Vec::new();
    collect(value, &mut lines);
    lines.join("\n")
}

fn collect<'a>(value: &'a Value, lines: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => lines.push(text),
        Value::Array(items) => items.iter().for_each(|v| collect(v, lines)),
        Value::Object(fields) => fields.iter().for_each(|(key, v)| {
            lines.push(key);
            collect(v, lines);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
