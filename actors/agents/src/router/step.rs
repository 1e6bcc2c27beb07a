use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use callboard_message::{Failure, Progress};
use callboard_runtime::{CallMeta, Cx};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;

use super::outcome::{CODE_BLOCKED, StepError, StepOutcome};
use super::screen::{BLOCKED, Screened, screen, texts};
use super::{RouterConfig, unheard};
use crate::guardrail::Origin;
use crate::plan::Step;

/// How long a clinic's answer may be, in bytes.
pub const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// One plan on its way to the clinics.
pub(super) struct Dispatching<'a> {
    pub config: &'a RouterConfig,
    pub cx: &'a Cx,
    pub call: CallMeta,
    /// Progress reports so far.
    pub told: AtomicU32,
    /// Progress reports in all: two a step.
    pub tells: u32,
}

impl Dispatching<'_> {
    /// Takes one step to its clinic and the answer through the guardrail. It always ends with an outcome.
    pub async fn run(&self, step: Step) -> StepOutcome {
        let began = Instant::now();
        let name = format!("step {} {} {}", step.step_id, step.clinic, step.action);
        self.tell(format!("{name} started"));
        let answer = self.ask(&step).await;
        let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (call, id, clinic, action) = (self.call.id, step.step_id, &step.clinic, &step.action);
        // Ids, codes and times only: what a clinic answered is never logged.
        match answer {
            Ok(result) => {
                callboard_message::log::info!(by: clinic, %call, step = id, clinic, action, ms, "step done");
                self.tell(format!("{name} done in {ms} ms"));
                StepOutcome::succeeded(&step, result, ms)
            }
            Err(error) => {
                callboard_message::log::warn!(by: clinic, %call, step = id, clinic, action, ms, code = error.code, "step failed");
                self.tell(format!("{name} failed in {ms} ms ({})", error.code));
                StepOutcome::failed(&step, error, ms)
            }
        }
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
        match screen(guardrail, &self.call, within, text, Origin::ToolResult).await {
            Screened::Passed => outcome,
            Screened::Stopped => Err(StepError { code: CODE_BLOCKED, message: BLOCKED.into() }),
        }
    }

    async fn ask_clinic(&self, step: &Step) -> Result<Box<RawValue>, Failure> {
        let clinic = self.cx.system().directory().get(&step.clinic);
        let clinic = clinic.ok_or_else(|| Failure::unavailable("no agent of that name"))?;
        let parameters = to_raw_value(&step.parameters).map_err(|e| Failure::internal(e.to_string()))?;
        let within = self.config.step_within;
        let call = Arc::new(unheard(&self.call).until(Instant::now() + within));
        // The limit is kept here as well: dropping the ask cancels the clinic's handler, heed it its deadline or not.
        tokio::time::timeout(within, clinic.ask_named(step.action.as_str(), parameters, Some(call)))
            .await
            .unwrap_or_else(|_| Err(Failure::timed_out("no answer in time")))
    }

    fn tell(&self, message: String) {
        let done = f64::from(self.told.fetch_add(1, Ordering::Relaxed) + 1);
        self.cx.progress(Progress { done, total: Some(f64::from(self.tells)), message: Some(message) });
    }
}

fn read(raw: &RawValue) -> Result<Value, Failure> {
    let bytes = raw.get().len();
    if bytes > ANSWER_BYTES_MAX {
        return Err(Failure::internal(format!("an answer of {bytes} bytes, more than {ANSWER_BYTES_MAX}")));
    }
    // serde's message can quote the answer: it is left out.
    match serde_json::from_str(raw.get()) {
        Ok(Value::Null) => Err(Failure::internal("an answer without a result")),
        Ok(value) => Ok(value),
        Err(_) => Err(Failure::internal("an answer that can't be read")),
    }
}
