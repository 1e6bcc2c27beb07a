//! The guardrail: rules with ids against text that tries to steer whoever reads it.
//!
//! A text is made plain (one letter for each disguise of it), read in every way that hides text (decoded, turned round,
//! closed up), and each reading is held against scored rules. Nothing is learned and nothing is asked: the same text
//! gets the same answer, in time linear in its length. What can't be read is blocked.

mod normalize;
mod rules;
mod screen;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use callboard_message::surface::{
    Describe, GetPrompt, ListPrompts, ListResourceTemplates, ListResources, ListTools, ReadResource,
};
use callboard_message::text::is_one_of;
use callboard_message::{Failure, FailureKind, Message};
use callboard_runtime::{
    Agent, AgentRef, Crossing, Cx, Handlers, Part, Policy, Profile, SyncHandler,
};
use futures::future::BoxFuture;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

pub use normalize::SCREEN_BYTES_MAX;
pub use rules::{OWN_RULE_BYTES_MAX, OWN_RULES_MAX, OwnRule, RuleError, Rules, SCORE_BLOCKED};
use screen::NO_RULES;
pub use screen::{Origin, Screen, Screening};

/// The guardrail as an agent: ask it to [`Screen`].
#[derive(derive_more::Debug)]
pub struct Guardrail {
    /// None where a rule can't be used: then every text is blocked.
    #[debug(skip)]
    rules: Option<Arc<Rules>>,
    screened: u64,
    stopped: u64,
}

impl Guardrail {
    /// Screens with the built-in rules and an operator's. Where one can't be used ([`Rules::with`]), every text is blocked.
    pub fn with(own: &[OwnRule]) -> Self {
        let rules = Rules::with(own).inspect_err(|error| {
            callboard_message::log::error!(%error, "the guardrail blocks every text");
        });
        Self {
            rules: rules.ok(),
            screened: 0,
            stopped: 0,
        }
    }
}

/// Screens with the rules of every guardrail.
impl Default for Guardrail {
    fn default() -> Self {
        Self::with(&[])
    }
}

impl Agent for Guardrail {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<Screen>();
    }

    /// It may think for long: not on the thread of whoever asks.
    fn profile() -> Profile {
        Profile::default().pinned()
    }

    fn observe(&self) -> Value {
        json!({"screened": self.screened, "blocked": self.stopped})
    }
}

impl SyncHandler<Screen> for Guardrail {
    fn handle(&mut self, message: Screen, _cx: &mut Cx) -> Screening {
        let screening = match &self.rules {
            Some(rules) => rules.screen(&message.text, message.origin),
            None => Screening::unread(NO_RULES),
        };
        self.screened += 1;
        self.stopped += u64::from(screening.blocked);
        screening
    }
}

/// How long the guardrail may take over one message, by default; one that it isn't done with by then is blocked.
pub const GUARD_TIMEOUT_DEFAULT: Duration = Duration::from_secs(2);
/// What the data of a guard's refusal says in `reason`.
pub const GUARD_REASON: &str = "guardrail";
/// The rule that hit where the guardrail is late, away or broken.
pub const GUARD_ABSENT: &str = "guard.absent";
/// The rule that hit where a message is no JSON.
pub const GUARD_UNREADABLE: &str = "guard.unreadable";

/// A guardrail agent, and how to ask it: what it doesn't pass in time is blocked. As a policy it stands before and behind every crossing:
/// messages, replies, and the questions and answers between.
#[derive(Debug, Clone)]
pub struct Guard {
    agent: AgentRef,
    limit: Duration,
}

impl Guard {
    /// Asks `agent`, which answers [`Screen`].
    pub fn new(agent: AgentRef) -> Self {
        Self {
            agent,
            limit: GUARD_TIMEOUT_DEFAULT,
        }
    }

    /// How long it may take over one message.
    pub fn within(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Lets a message pass, all of its texts read as one.
    ///
    /// # Errors
    /// [`FailureKind::Blocked`], with `reason` and the ids of the `rules` that hit in its data, never with text. Also
    /// where the guardrail crashed, is late or has ended.
    pub async fn pass(&self, message: &RawValue, origin: Origin) -> Result<(), Failure> {
        let Some(text) = texts(message) else {
            return Err(refusal([GUARD_UNREADABLE]));
        };
        if text.is_empty() {
            return Ok(());
        }
        match self
            .agent
            .ask(Screen { text, origin })
            .within(self.limit)
            .await
        {
            Ok(Screening { blocked: false, .. }) => Ok(()),
            Ok(Screening { rules, .. }) => {
                callboard_message::log::info!(?rules, "guardrail stopped a message");
                Err(refusal(rules))
            }
            Err(why) => {
                callboard_message::log::error!(%why, "guardrail could not screen a message: stopped");
                Err(refusal([GUARD_ABSENT]))
            }
        }
    }
}

/// What whoever sent a blocked text is told: not which rule, that would help to get round it.
fn refusal(rules: impl Into<Value>) -> Failure {
    let blocked = Failure::new(FailureKind::Blocked, "Request blocked by guardrails");
    blocked.with_data(json!({ "reason": GUARD_REASON, "rules": rules.into() }))
}

/// The ids of the rules that a guard's refusal names; `None` for any other failure.
pub fn rules_of(failure: &Failure) -> Option<Vec<String>> {
    let data = failure
        .data
        .as_ref()
        .filter(|_| failure.kind == FailureKind::Blocked)?;
    let by_guard = data
        .get("reason")
        .is_some_and(|reason| reason == GUARD_REASON);
    let rules = data
        .get("rules")
        .and_then(|rules| serde_json::from_value(rules.clone()).ok());
    by_guard.then(|| rules.unwrap_or_default())
}

impl Policy for Guard {
    fn judge<'a>(&'a self, crossing: Crossing<'a>) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(self.pass(crossing.payload, Origin::User))
    }

    fn judges_parts(&self) -> bool {
        true
    }

    fn judge_part<'a>(
        &'a self,
        part: Part,
        crossing: Crossing<'a>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(self.pass(crossing.payload, origin(part, crossing.message)))
    }
}

/// Who wrote a part. A question asks for something, as a user does; what a model or a tool wrote has no orders to give.
fn origin(part: Part, message: &str) -> Origin {
    match (part, message) {
        (Part::Question, _) | (Part::Answer, "elicit" | "roots") => Origin::User,
        (Part::Answer, _) => Origin::ToolResult,
        (
            Part::Reply,
            Describe::NAME
            | ListTools::NAME
            | ListPrompts::NAME
            | ListResources::NAME
            | ListResourceTemplates::NAME,
        ) => Origin::Description,
        (Part::Reply, ReadResource::NAME) => Origin::Document,
        // A prompt is what a user chose to say.
        (Part::Reply, GetPrompt::NAME) => Origin::User,
        (Part::Reply, _) => Origin::ToolResult,
    }
}

/// Names of members that say how a message is built, not what it says.
const OF_PROTOCOLS: &str = "_meta action annotations arguments blob content contents data description hints includeContext \
    inputSchema instructions intelligencePriority isError maxTokens message messages metadata method mimeType mode model \
    modelPreferences name outputSchema params prompt prompts properties requestedSchema required resource resources role \
    roots serverInfo speedPriority stopReason structuredContent systemPrompt temperature text title tools type uri";
/// The like, as values of `role` and `type`.
const WORDS_OF_PROTOCOLS: &str = "user assistant text image audio resource resource_link tool_use tool_result object \
    string number integer boolean array null";

/// Every text in a message, one a line, names of members too: an attack that is split over several is whole again. What
/// every message of a protocol has in common is left out, and so are pictures and sounds. `None` where it is no JSON.
fn texts(message: &RawValue) -> Option<String> {
    let value: Value = serde_json::from_str(message.get()).ok()?;
    let mut lines = Vec::new();
    collect(&value, &mut lines);
    Some(lines.join("\n"))
}

fn collect<'a>(value: &'a Value, lines: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => lines.push(text),
        Value::Array(items) => items.iter().for_each(|item| collect(item, lines)),
        Value::Object(members) => {
            let shows = is_medium(members);
            for (name, value) in members {
                if !is_one_of(name, OF_PROTOCOLS) {
                    lines.push(name);
                }
                match (name.as_str(), value) {
                    ("role" | "type", Value::String(word))
                        if is_one_of(word, WORDS_OF_PROTOCOLS) => {}
                    ("data" | "blob", Value::String(coded)) if shows && is_base64(coded) => {}
                    _ => collect(value, lines),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whether an object holds a picture, a sound or a film, by its media type.
fn is_medium(members: &Map<String, Value>) -> bool {
    let kind = members
        .get("mimeType")
        .and_then(Value::as_str)
        .unwrap_or_default();
    // An SVG is a text.
    ["image/", "audio/", "video/"]
        .iter()
        .any(|family| kind.starts_with(family))
        && !kind.contains("xml")
}

fn is_base64(text: &str) -> bool {
    text.bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=' | b'-' | b'_'))
}
