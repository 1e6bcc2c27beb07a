//! One try: the tool is used, or the agent asked.

use std::time::{SystemTime, UNIX_EPOCH};

use callboard_message::{FAILURE, Failure, FailureKind, RawObject, SHOWN, TaskState, ToolResult};

use super::remote::{Telling, tell};
use super::screen::is_blocked;
use super::{Errand, passes, text_of};
use crate::decide::Action;
use crate::decide::limits::STEP_RESULT_BYTES_MAX;
use crate::guardrail::Origin;
use crate::known::Health;
use crate::memory::Outgoing;

/// Member of a result's `_meta`, and what a failure's data is: where the task stands at an A2A agent.
const PLACE: &str = "a2a";

/// Why a try failed.
pub(super) struct Trouble {
    pub failure: Failure,
    /// The agent isn't there at all.
    pub is_away: bool,
    /// Whoever failed has ended it: the same again under the same key would be the same failure.
    pub is_settled: bool,
}

impl Trouble {
    pub fn of(failure: Failure) -> Self {
        Self { failure, is_away: false, is_settled: true }
    }
}

impl Errand<'_> {
    /// Does it once. `settled` counts the tries before that came to an end at who did them.
    pub(super) async fn once(&self, action: &Action, settled: u32) -> Result<ToolResult, Trouble> {
        match action {
            Action::Local { tool, params } => {
                let Self { options, cx, run, history, .. } = *self;
                let used = options.tools.run_within(tool, params.clone(), run, history.to_vec(), cx).await;
                let result = used.map_err(Trouble::of)?;
                if result.is_error() { Err(Trouble::of(failure_of(result))) } else { Ok(result) }
            }
            Action::Remote { agent, text } => self.remote(agent, text, settled).await,
        }
    }

    async fn remote(&self, id: &str, text: &str, settled: u32) -> Result<ToolResult, Trouble> {
        let known = self.options.known.get(id);
        let is_away = known.as_ref().is_none_or(|known| known.state == Health::Down);
        let away = |failure| Trouble { failure, is_away, is_settled: false };
        let agent = self.options.known.agent(id).await.map_err(away)?;
        let key = match settled {
            0 => format!("{}/{}", self.run, self.step),
            settled => format!("{}/{}/{settled}", self.run, self.step),
        };
        let task = format!("{key}@{id}");
        self.remember(&task, id, text).await;
        let telling = Telling { agent: &agent, id, text, key: &key, context: self.context };
        let answer = tell(self, telling).await;
        let there = task_there(&answer);
        let ended = match answer {
            Ok(result) if result.is_error() => Err(Trouble::of(failure_of(result))),
            Ok(result) => match passes(self.options.guard.as_ref(), &result.texts(), Origin::ToolResult).await {
                Ok(()) if self.options.guard.is_some() => Ok(not_shown(result)),
                Ok(()) => Ok(result),
                Err(blocked) => Err(Trouble::of(blocked)),
            },
            Err(failure) => {
                let is_passing =
                    matches!(failure.kind, FailureKind::Unavailable | FailureKind::TimedOut | FailureKind::Overloaded);
                Err(Trouble { failure, is_away: is_away && is_passing, is_settled: !is_passing })
            }
        };
        self.heard(&task, there, &ended).await;
        ended
    }

    async fn remember(&self, task: &str, to: &str, request: &str) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let outgoing = Outgoing {
            task: task.to_owned(),
            to: to.to_owned(),
            request: request.to_owned(),
            answer: None,
            state: TaskState::Working,
            at_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
        };
        // What went out is asked for by people; the work doesn't hang on it.
        if let Err(failure) = self.options.memory.remember(outgoing).await {
            callboard_message::log::warn!(%failure, "a request that goes out isn't remembered");
        }
    }

    /// Notes what came of a task that went out; from then on it is remembered by its name there, where it has one.
    async fn heard(&self, task: &str, there: Option<String>, ended: &Result<ToolResult, Trouble>) {
        let (state, answer) = match ended {
            Ok(result) => (TaskState::Completed, text_of(result, STEP_RESULT_BYTES_MAX)),
            Err(trouble) if is_blocked(&trouble.failure) => (TaskState::Failed, String::new()),
            Err(trouble) => (state_of(&trouble.failure), trouble.failure.message.clone()),
        };
        let answer = Some(answer).filter(|answer| !answer.is_empty());
        let memory = &self.options.memory;
        let noted = match (there, memory.get(task).await) {
            (Some(there), Ok(Some(before))) => {
                memory.settle(task, Outgoing { task: there, state, answer, ..before }).await
            }
            _ => memory.update(task, state, answer).await,
        };
        if let Err(failure) = noted {
            callboard_message::log::warn!(%failure, "what came of a request isn't remembered");
        }
    }
}

/// A task's id at the agent that works on it, where that says it.
fn task_there(answer: &Result<ToolResult, Failure>) -> Option<String> {
    let place = match answer {
        Ok(result) => result.0.object("_meta")?.object(PLACE)?,
        Err(failure) => RawObject::parse(&serde_json::value::to_raw_value(failure.data.as_ref()?).ok()?).ok()?,
    };
    place.text("taskId").filter(|id| !id.is_empty())
}

/// A result of which nobody was shown anything before it was judged, whatever it says.
fn not_shown(mut result: ToolResult) -> ToolResult {
    if let Some(mut meta) = result.0.object("_meta").filter(|meta| meta.has(SHOWN)) {
        meta.remove(SHOWN);
        result.0.set("_meta", meta);
    }
    result
}

/// How a task ends that fails so.
pub(crate) fn state_of(failure: &Failure) -> TaskState {
    match failure.kind {
        FailureKind::Rejected => TaskState::Rejected,
        FailureKind::Cancelled => TaskState::Canceled,
        _ => TaskState::Failed,
    }
}

/// What a result says went wrong: of callboards as it was there, of others by where their task stands.
fn failure_of(result: ToolResult) -> Failure {
    let meta = result.0.object("_meta").unwrap_or_default();
    let ours = meta.object(FAILURE).and_then(|ours| ours.read("kind"));
    let theirs = meta.object("a2a").and_then(|place| place.read::<TaskState>("state"));
    let kind = ours.unwrap_or(match theirs {
        Some(TaskState::Rejected) => FailureKind::Rejected,
        Some(TaskState::Canceled) => FailureKind::Cancelled,
        Some(TaskState::InputRequired | TaskState::AuthRequired) => FailureKind::NobodyToAsk,
        // A tool that fails doesn't refuse: another may do it.
        _ => FailureKind::Internal,
    });
    let reason = result.0.object("structuredContent").and_then(|told: RawObject| told.text("reason"));
    let message = reason.unwrap_or_else(|| result.texts());
    Failure::new(kind, if message.is_empty() { "it failed, and didn't say why".to_owned() } else { message })
}
