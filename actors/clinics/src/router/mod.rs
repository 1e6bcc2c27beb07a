//! Router agent: sends the steps of a plan to the clinics, and their answers through the guardrail.
//!
//! It resolves clinic ids to the agents it was given, or through the directory.

mod shape;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use callboard_guardrail::{Screen, TextOrigin};
use callboard_macros::Message;
use callboard_message::text::normalize;
use callboard_message::{Failure, FailureKind, Progress};
use callboard_runtime::{
    Agent, AgentRef, CallContext, ConcurrentHandler, Context, Directory, Handlers,
};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;

use crate::plan::{CheckedPlan, ClinicRegistry, Plan, Step};

use shape::check_answer;

/// Default time limit for a clinic to answer one step. After it the step fails. Changed by
/// [`RouterConfig::step_within`].
pub const STEP_WITHIN_DEFAULT: Duration = Duration::from_secs(10);
/// Default time limit for the guardrail to screen one text. After it the text counts as blocked.
/// Changed by [`RouterConfig::screen_within`].
pub const SCREEN_WITHIN_DEFAULT: Duration = Duration::from_secs(5);
/// Default maximum of steps of one plan that run at the same time. Further ones wait. Changed by
/// [`RouterConfig::steps_at_once`].
pub const STEPS_AT_ONCE_DEFAULT: usize = 8;
/// Maximum number of plans that one router dispatches at once. Further ones wait in its mailbox.
/// Fixed.
pub const DISPATCHES_AT_ONCE_MAX: u32 = 64;
/// Error code of a step whose clinic refused, failed, or was unreachable, overloaded or late, or
/// answered something else than it was asked, or that wasn't run because a step it depends on failed
/// (technical blueprint, section 2.2).
pub const CODE_UNAVAILABLE: i32 = -32000;
/// Error code of a step whose parameters the clinic rejected, or that asked for a patient or tool
/// that the clinic doesn't have.
pub const CODE_INVALID_PARAMS: i32 = -32602;
/// Error code of a step whose answer the guardrail blocked or couldn't screen, or that the clinic's
/// own guardrail blocked.
pub const CODE_BLOCKED: i32 = -1;

/// Maximum characters of a clinic's own error message that a [`StepError`] includes; the rest is
/// cut.
const MESSAGE_CHARS_MAX: usize = 200;
/// Maximum size of a clinic's answer to one step, in bytes. A larger one fails the step. Fixed.
pub const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// Text that replaces one that the guardrail blocked or could not screen.
pub(crate) const BLOCKED: &str = "Request blocked by guardrails";

/// Sends a plan's steps to their clinics. A plan with anything unregistered is rejected as a whole.
#[derive(Message, Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[message(name = "dispatch", reply = DispatchResult, fallible)]
#[serde(deny_unknown_fields)]
pub struct Dispatch {
    /// The plan. The router checks it again before it sends anything.
    pub plan: Plan,
}

/// Outcomes of the steps of a plan, in the plan's order. They must be verified before they are
/// shown to the user.
#[derive(derive_more::Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[debug("{steps:?}")]
#[schemars(rename = "Dispatched")]
pub struct DispatchResult {
    /// One outcome for each step.
    pub steps: Vec<StepOutcome>,
}

/// Configuration of a router: the registered clinics, the guardrail, and time limits.
#[derive(Debug, Clone)]
pub struct RouterConfig {
    /// Registry of the clinics that may be called.
    pub registry: Arc<ClinicRegistry>,
    /// Agents of clinics by id. Other clinics are looked up in the directory.
    pub clinics: HashMap<String, AgentRef>,
    /// Guardrail agent that screens the clinics' answers and error messages.
    pub guardrail: AgentRef,
    /// Time limit for a clinic to answer one step. After it the step fails.
    pub step_within: Duration,
    /// Time limit for the guardrail to screen one answer. After it the answer counts as blocked.
    pub screen_within: Duration,
    /// Maximum of steps of one plan that run at the same time; 0 counts as 1. Further ones wait.
    pub steps_at_once: usize,
}

impl RouterConfig {
    /// Creates a configuration with the default limits.
    pub fn new(registry: Arc<ClinicRegistry>, guardrail: AgentRef) -> Self {
        Self {
            registry,
            clinics: HashMap::new(),
            guardrail,
            step_within: STEP_WITHIN_DEFAULT,
            screen_within: SCREEN_WITHIN_DEFAULT,
            steps_at_once: STEPS_AT_ONCE_DEFAULT,
        }
    }
}

/// Router agent: handles [`Dispatch`]. It stores nothing about a plan.
#[derive(Debug, Clone)]
pub struct Router {
    config: Arc<RouterConfig>,
}

impl Router {
    /// Creates a router.
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
        cx: Context,
    ) -> impl Future<Output = Result<DispatchResult, Failure>> + Send + 'static {
        let config = self.config.clone();
        async move {
            let checked = message.plan.check(&config.registry)?;
            let by_patients = |step: &Step| step.for_each.is_some() || !step.except.is_empty();
            if checked.steps().iter().any(by_patients) {
                return Err(Failure::invalid(
                    "a step depends on the patients of another: dispatch it with their ids filled in",
                ));
            }
            // Two progress reports for each step.
            let tells = u32::try_from(2 * checked.steps().len()).unwrap_or(u32::MAX);
            let call = forwarded_call(&cx)?;
            let directory = cx.system().directory();
            let dispatching = DispatchRun {
                config: &config,
                directory,
                call,
                reported: AtomicU32::new(0),
                reports_total: tells,
            };
            let steps =
                run_steps(checked, config.steps_at_once, |step| dispatching.run(step)).await;
            Ok(DispatchResult { steps })
        }
    }
}

/// Returns the call context for calling another agent: that of `cx` with one more hop, or a new one
/// if `cx` has none. Fails with `Rejected` at the maximum number of hops.
pub(crate) fn forwarded_call(cx: &Context) -> Result<CallContext, Failure> {
    let Some(call) = cx.call() else {
        return Ok(CallContext::new(Arc::new(cx.principal().clone())));
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

/// Returns the call context without its caller, so that the called agent can't send progress or
/// questions. Texts of a clinic during the call would bypass guardrail and verifier.
pub(crate) fn without_caller(call: &CallContext) -> CallContext {
    CallContext {
        caller: None,
        caller_alone: None,
        // Several agents are called with it.
        trace: call.trace.sibling(),
        ..call.clone()
    }
}

/// Outcome of one step: either a result or an error.
// The result is patient data and an error may quote it: neither is printed.
#[derive(derive_more::Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[debug(
    "StepOutcome({step_id} {clinic} {action}: {}, {ms} ms)",
    error.as_ref().map_or("result".to_owned(), |error| format!("error {}", error.code))
)]
pub struct StepOutcome {
    /// Number of the step in its plan.
    pub step_id: u32,
    /// Id of the clinic.
    pub clinic: String,
    /// Name of the tool that was called.
    pub action: String,
    /// Result of the clinic, absent if the step failed. Patient data: never logged, never stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Error, if there is no result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<StepError>,
    /// Duration of the step, in milliseconds; 0 if it wasn't run.
    pub ms: u64,
}

/// Error of a step that has no result.
#[derive(derive_more::Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[debug("StepError({})", code)]
pub struct StepError {
    /// JSON-RPC error code: [`CODE_UNAVAILABLE`], [`CODE_INVALID_PARAMS`], [`CODE_BLOCKED`], or the
    /// clinic's own.
    pub code: i32,
    /// Description for a person, in one sentence.
    pub message: String,
    /// Whether the clinic answered that it has no such patient; absent if not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub not_found: bool,
}

impl StepOutcome {
    /// Returns whether the step has no answer of its clinic. That there is no such patient is one.
    pub fn is_missing(&self) -> bool {
        self.error.as_ref().is_some_and(|error| !error.not_found)
    }

    pub(crate) fn of(
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
    /// Converts a clinic's failure to a step error. The clinic's own message is included only if it
    /// says what to change or why the clinic refused. The caller must still have that message
    /// screened. An integer `code` in the failure's data replaces the code for the kind of failure.
    fn of_clinic(clinic: &str, action: &str, failure: &Failure) -> Self {
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
            // To any other call it means that the clinic lacks the tool.
            not_found: failure.kind == FailureKind::NotFound
                && matches!(action, "get_patient" | "check_medications"),
        }
    }

    /// Creates the error of a step that this program ends itself.
    pub(crate) fn new(code: i32, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            not_found: false,
        }
    }
}

fn printable(words: &str) -> String {
    normalize(words)
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MESSAGE_CHARS_MAX)
        .collect()
}

/// State for dispatching one plan. It has no access to the agent system, so it can't reach a store.
struct DispatchRun<'a> {
    config: &'a RouterConfig,
    /// Agent directory, which resolves ids of clinics that the configuration doesn't have.
    directory: &'a Directory,
    call: CallContext,
    /// Number of progress reports sent so far.
    reported: AtomicU32,
    /// Announced total of progress reports: two for each step. A step that isn't run sends none.
    reports_total: u32,
}

impl DispatchRun<'_> {
    /// Runs one step: calls the clinic and screens its answer. A failure becomes the outcome's
    /// error.
    async fn run(&self, step: Step) -> StepOutcome {
        let began = Instant::now();
        let name = format!("step {} {} {}", step.step_id, step.clinic, step.action);
        self.report(format!("{name} started"));
        let answer = self.ask(&step).await;
        let ms = ms_since(began);
        let (call, id, clinic, action) = (self.call.id, step.step_id, &step.clinic, &step.action);
        // Only ids, codes and times are logged, never a clinic's answer.
        match &answer {
            Ok(_) => {
                callboard_message::log::info!(by: clinic, %call, principal = self.call.principal.id, step = id, clinic, action, ms, "step done");
                self.report(format!("{name} done in {ms} ms"));
            }
            Err(error) => {
                callboard_message::log::warn!(by: clinic, %call, principal = self.call.principal.id, step = id, clinic, action, ms, code = error.code, "step failed");
                self.report(format!("{name} failed in {ms} ms ({})", error.code));
            }
        }
        StepOutcome::of(step, answer, ms)
    }

    async fn ask(&self, step: &Step) -> Result<Value, StepError> {
        let answer = self
            .ask_clinic(step)
            .await
            .and_then(|raw| parse_answer(&raw));
        let (text, outcome) = match answer {
            Ok(value) => match check_answer(step, &value, &self.config.registry) {
                Ok(()) => (joined_text(&value), Ok(value)),
                // Nothing of the answer is in the error, so there is nothing to screen.
                Err(why) => {
                    let message = format!("{} {why}", step.clinic);
                    return Err(StepError::new(CODE_UNAVAILABLE, message));
                }
            },
            Err(failure) => {
                let error = StepError::of_clinic(&step.clinic, &step.action, &failure);
                (error.message.clone(), Err(error))
            }
        };
        let (guardrail, within) = (&self.config.guardrail, self.config.screen_within);
        match passes_guardrail(guardrail, &self.call, within, text, TextOrigin::ToolResult).await {
            true => outcome,
            false => Err(StepError::new(CODE_BLOCKED, BLOCKED)),
        }
    }

    async fn ask_clinic(&self, step: &Step) -> Result<Box<RawValue>, Failure> {
        let known = self.config.clinics.get(&step.clinic).cloned();
        let clinic = known.or_else(|| self.directory.get(&step.clinic));
        let clinic =
            clinic.ok_or_else(|| Failure::unavailable("the clinic's agent isn't running"))?;
        let parameters =
            to_raw_value(&step.parameters).map_err(|e| Failure::internal(e.to_string()))?;
        let within = self.config.step_within;
        let call = Arc::new(without_caller(&self.call).with_deadline(Instant::now() + within));
        // The limit is enforced here too: dropping the request cancels the clinic's handler,
        // whether or not it observes its deadline.
        tokio::time::timeout(
            within,
            clinic.ask_named(step.action.as_str(), parameters, Some(call)),
        )
        .await
        .unwrap_or_else(|_| Err(Failure::timed_out("no answer in time")))
    }

    fn report(&self, message: String) {
        let done = f64::from(self.reported.fetch_add(1, Ordering::Relaxed) + 1);
        if let Some(caller) = &self.call.caller {
            caller.progress(Progress {
                done,
                total: Some(f64::from(self.reports_total)),
                message: Some(message),
            });
        }
    }
}

fn parse_answer(raw: &RawValue) -> Result<Value, Failure> {
    let bytes = raw.get().len();
    if bytes > ANSWER_BYTES_MAX {
        return Err(Failure::internal(format!(
            "an answer of {bytes} bytes, more than {ANSWER_BYTES_MAX}"
        )));
    }
    // Serde's message is dropped, because it may quote the answer.
    match serde_json::from_str(raw.get()) {
        Ok(Value::Null) => Err(Failure::internal("an answer without a result")),
        Ok(value) => Ok(value),
        Err(_) => Err(Failure::internal("an answer that can't be read")),
    }
}

/// Runs each step as soon as its dependencies have succeeded, at most `at_once` concurrently.
/// Returns the outcomes in the plan's order.
///
/// A step with a failed dependency isn't run; its outcome is an error.
async fn run_steps<F>(
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
        fail_unreachable_steps(&mut waiting, &mut outcomes);
        while running.len() < at_once.max(1)
            && let Some(at) = waiting.iter().position(|s| is_ready(s, &outcomes))
        {
            running.push(start(waiting.remove(at)));
        }
        match running.next().await {
            Some(outcome) => drop(outcomes.insert(outcome.step_id, outcome)),
            // A checked plan has no cycle, so no step is left waiting here.
            None => break,
        }
    }
    order.iter().filter_map(|id| outcomes.remove(id)).collect()
}

fn is_ready(step: &Step, outcomes: &HashMap<u32, StepOutcome>) -> bool {
    step.depends_on.iter().all(|on| outcomes.contains_key(on))
}

/// Adds error outcomes for the waiting steps that have a failed dependency, and removes these
/// steps.
fn fail_unreachable_steps(waiting: &mut Vec<Step>, outcomes: &mut HashMap<u32, StepOutcome>) {
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
            Err(StepError::new(CODE_UNAVAILABLE, message)),
            0,
        );
        outcomes.insert(outcome.step_id, outcome);
        // It may be a dependency of another step.
        fail_unreachable_steps(waiting, outcomes);
    }
}

/// Returns whether the guardrail lets a text pass. If the guardrail is late or unavailable, the
/// text doesn't pass.
pub(crate) async fn passes_guardrail(
    guardrail: &AgentRef,
    call: &CallContext,
    within: Duration,
    text: String,
    origin: TextOrigin,
) -> bool {
    let call_on = Some(Arc::new(without_caller(call)));
    match guardrail
        .ask(Screen { text, origin })
        .within_call(call_on)
        .within(within)
        .await
    {
        Ok(screening) if !screening.blocked => return true,
        Ok(screening) => {
            callboard_message::log::info!(call = %call.id, principal = call.principal.id, rules = ?screening.rules, "guardrail stopped a text")
        }
        // The caller has cancelled: not worth an error in the log.
        Err(_) if call.cancel.is_cancelled() => {}
        Err(why) => {
            callboard_message::log::error!(call = %call.id, principal = call.principal.id, %why, "guardrail could not screen a text: stopped")
        }
    }
    false
}

/// Returns the milliseconds since `began`.
pub(crate) fn ms_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Joins every text in a JSON value, including keys, with line breaks. The guardrail screens the
/// result as a whole, so an instruction that is split over several fields is found.
fn joined_text(value: &Value) -> String {
    let mut lines = Vec::new();
    collect_text(value, &mut lines);
    lines.join("\n")
}

fn collect_text<'a>(value: &'a Value, lines: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => lines.push(text),
        Value::Array(items) => items.iter().for_each(|v| collect_text(v, lines)),
        Value::Object(fields) => fields.iter().for_each(|(key, v)| {
            lines.push(key);
            collect_text(v, lines);
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
