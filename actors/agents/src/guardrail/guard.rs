use std::time::Duration;

use callboard_message::{Failure, FailureKind};
use callboard_runtime::AgentRef;
use serde_json::json;
use serde_json::value::RawValue;

use super::screen::{Origin, Screen, Screening, blocked};
use super::texts::texts;

/// How long the guardrail may take over one message, by default; one that it isn't done with by then is blocked.
pub const GUARD_TIMEOUT_DEFAULT: Duration = Duration::from_secs(2);
/// What the data of a guard's refusal says in `reason`.
pub const GUARD_REASON: &str = "guardrail";
/// The rule that hit where the guardrail is late, away or broken.
pub const GUARD_ABSENT: &str = "guard.absent";
/// The rule that hit where a message is no JSON.
pub const GUARD_UNREADABLE: &str = "guard.unreadable";

/// A guardrail agent, and how to ask it: what it doesn't pass in time is blocked.
#[derive(Debug, Clone)]
pub struct Guard {
    agent: AgentRef,
    limit: Duration,
}

impl Guard {
    /// Asks `agent`, which answers [`Screen`].
    pub fn new(agent: AgentRef) -> Self {
        Self { agent, limit: GUARD_TIMEOUT_DEFAULT }
    }

    /// How long it may take over one message.
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// The agent that is asked.
    pub fn agent(&self) -> &AgentRef {
        &self.agent
    }

    /// Lets a message pass, all of its texts read as one.
    ///
    /// # Errors
    /// [`FailureKind::Blocked`], with `reason` and the ids of the `rules` that hit in its data, never with text. Also
    /// where the guardrail crashed, is late or has ended.
    pub async fn pass(&self, message: &RawValue, origin: Origin) -> Result<(), Failure> {
        let Some(text) = texts(message) else { return Err(refusal(&[GUARD_UNREADABLE.to_owned()])) };
        if text.is_empty() {
            return Ok(());
        }
        match self.agent.ask(Screen { text, origin }).within(self.limit).await {
            Ok(Screening { blocked: false, .. }) => Ok(()),
            Ok(Screening { rules, .. }) => {
                callboard_message::log::info!(?rules, "guardrail stopped a message");
                Err(refusal(&rules))
            }
            Err(why) => {
                callboard_message::log::error!(%why, "guardrail could not screen a message: stopped");
                Err(refusal(&[GUARD_ABSENT.to_owned()]))
            }
        }
    }
}

fn refusal(rules: &[String]) -> Failure {
    blocked().with_data(json!({ "reason": GUARD_REASON, "rules": rules }))
}

/// The ids of the rules that a guard's refusal names; `None` for any other failure.
pub fn rules_of(failure: &Failure) -> Option<Vec<String>> {
    let data = failure.data.as_ref().filter(|_| failure.kind == FailureKind::Blocked)?;
    let by_guard = data.get("reason").is_some_and(|reason| reason == GUARD_REASON);
    let rules = data.get("rules").and_then(|rules| serde_json::from_value(rules.clone()).ok());
    by_guard.then(|| rules.unwrap_or_default())
}
