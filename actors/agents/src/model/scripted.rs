//! Models that are none: answers that were written down, and an echo.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use callboard_message::Failure;

use super::config::ScriptedAnswer;
use super::draft::{Draft, Stop};
use super::error::ModelError;
use super::request::Request;

/// Answers from a script.
#[derive(Debug)]
pub(super) struct Script {
    rules: Vec<ScriptedAnswer>,
    in_turn: Vec<ScriptedAnswer>,
    next: AtomicUsize,
}

impl Script {
    pub fn new(answers: Vec<ScriptedAnswer>) -> Result<Self, ModelError> {
        if answers.is_empty() {
            return Err(ModelError::Setting { setting: "answers", rule: "a script has at least one answer" });
        }
        let (rules, in_turn) = answers.into_iter().partition(|answer| answer.when.is_some());
        Ok(Self { rules, in_turn, next: AtomicUsize::new(0) })
    }

    pub async fn answer(&self, request: &Request) -> Result<Draft, Failure> {
        let answer = self.pick(request).ok_or_else(|| Failure::unavailable("the script has no answer to this"))?;
        if answer.delay_ms > 0 {
            tokio::time::sleep(Duration::from_millis(answer.delay_ms)).await;
        }
        if let Some(sentence) = &answer.fails {
            return Err(Failure::unavailable(sentence));
        }
        let mut draft = Draft::said(answer.text.clone());
        if let Some(tool) = &answer.tool {
            let input = serde_json::to_string(&tool.input).unwrap_or_default();
            draft.tool_whole(None, &tool.name, &input).map_err(|trouble| trouble.failure())?;
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
        let fits = |answer: &&ScriptedAnswer| answer.when.as_ref().is_some_and(|when| last.contains(&**when));
        if let Some(rule) = self.rules.iter().find(fits) {
            return Some(rule);
        }
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        self.in_turn.get(turn).or(self.in_turn.last())
    }
}

/// What was said last.
pub(super) fn echo(request: &Request) -> Draft {
    Draft::said(request.last_text())
}
