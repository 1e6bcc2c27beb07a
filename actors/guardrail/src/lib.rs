//! Guardrail against prompt injection: scored rules over every text that a model or agent will
//! read.
//!
//! A text is normalized (disguised letters become plain ones) and also read in every way that can
//! hide text, such as encodings, reversed text and spaced-out letters. Each reading is matched
//! against the rules. The result is deterministic, takes time linear in the length, and needs no
//! model. Text that can't be screened is blocked.

mod concept_words;
mod custom;
mod detector;
mod disguises;
mod encodings;
mod long_texts;
mod normalize;
mod patterns;
mod rules;
mod screen;
#[cfg(test)]
mod tests;
mod windows;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use callboard_message::capabilities::{
    DescribeAgent, GetPrompt, ListPrompts, ListResourceTemplates, ListResources, ListTools,
    ReadResource,
};
use callboard_message::text::is_one_of;
use callboard_message::{CallId, Failure, FailureKind, Message, Principal};
use callboard_runtime::{
    Agent, AgentProfile, AgentRef, CallContext, ConcurrentHandler, Context, Direction,
    ExchangePart, Handlers, Policy, PolicyRequest,
};
use futures::future::BoxFuture;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use long_texts::{
    LONG_TEXTS_QUEUED_MAX, LongTextQueue, PRINCIPAL_LONG_TEXTS_QUEUED_MAX, run_with_low_priority,
};

pub use custom::{CUSTOM_RULE_BYTES_MAX, CUSTOM_RULE_WEIGHT_MAX, CUSTOM_RULES_MAX, CustomRule};
pub use detector::{DETECTIONS_IN_FLIGHT_MAX, DetectorOptions, DetectorPolicy};
pub use normalize::SCREEN_BYTES_MAX;
pub use rules::RuleSet;
use screen::NO_RULES_ID;
pub use screen::{Screen, ScreenResult, TextOrigin};

/// Minimum score of a text that is blocked.
pub const BLOCKING_SCORE: u32 = 100;

/// Error in a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("guardrail rule `{id}`: {why}")]
pub struct RuleError {
    /// Id of the rule, or the name of a concept or section of the rule file.
    pub id: String,
    /// Mistake and remedy.
    pub why: String,
}

/// Maximum bytes of a text that is screened at once on the guardrail's own thread. A longer one
/// takes its turn on another thread, so that it doesn't delay short ones. Fixed.
const SHORT_TEXT_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of texts that a guardrail has in hand: those that wait for their turn, those that
/// are screened, and those whose callers have just gone. Fixed.
const SCREENS_IN_FLIGHT_MAX: u32 = 256;

/// Guardrail agent. It handles [`Screen`]: short texts at once, long ones in turn.
#[derive(derive_more::Debug)]
#[debug("Guardrail")]
pub struct Guardrail {
    screening: Arc<Screening>,
    long_texts: Arc<LongTextQueue>,
}

/// Rules of a guardrail and its counters.
struct Screening {
    /// Rules of the guardrail. `None` if a rule can't be used; then every text is blocked.
    rules: Option<Arc<RuleSet>>,
    screened: AtomicU64,
    blocked: AtomicU64,
}

impl Guardrail {
    /// Creates a guardrail with the built-in rules and an operator's custom rules. If a rule can't
    /// be used ([`RuleSet::with_custom`]), every text is blocked.
    pub fn with_rules(own: &[CustomRule]) -> Self {
        let rules = RuleSet::with_custom(own).inspect_err(|error| {
            callboard_message::log::error!(%error, "the guardrail blocks every text until this rule is corrected");
        });
        Self {
            screening: Arc::new(Screening {
                rules: rules.ok(),
                screened: AtomicU64::new(0),
                blocked: AtomicU64::new(0),
            }),
            long_texts: LongTextQueue::for_this_machine(),
        }
    }
}

/// Creates a guardrail with the built-in rules.
impl Default for Guardrail {
    fn default() -> Self {
        Self::with_rules(&[])
    }
}

impl Agent for Guardrail {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<Screen>(SCREENS_IN_FLIGHT_MAX);
    }

    /// Disables inline execution, because screening must not run on the caller's thread. Screenings
    /// may be cancelled at any time, because they leave nothing half done.
    fn profile() -> AgentProfile {
        AgentProfile::default().without_inline().cancel_safe()
    }

    fn observe(&self) -> Value {
        let Screening {
            screened, blocked, ..
        } = &*self.screening;
        json!({"screened": screened.load(Relaxed), "blocked": blocked.load(Relaxed)})
    }
}

impl ConcurrentHandler<Screen> for Guardrail {
    fn handle(
        &mut self,
        message: Screen,
        cx: Context,
    ) -> impl Future<Output = ScreenResult> + Send + 'static {
        let (screening, long_texts) = (self.screening.clone(), self.long_texts.clone());
        async move {
            let bytes = message.text.len();
            // A text over the limit is blocked without screening.
            if bytes <= SHORT_TEXT_BYTES_MAX || bytes > SCREEN_BYTES_MAX {
                return screening.screen(&message);
            }
            let place = tokio::select! {
                place = long_texts.acquire(cx.principal()) => place,
                () = cx.cancelled() => return ScreenResult::blocked_by(GUARD_UNAVAILABLE_RULE),
            };
            let Some(place) = place else {
                callboard_message::log::warn!(
                    principal = cx.principal().id,
                    "too many long texts wait for the guardrail, so one was blocked"
                );
                return ScreenResult::blocked_by(GUARD_BUSY_RULE);
            };
            let screened = tokio::task::spawn_blocking(move || {
                let _place = place;
                run_with_low_priority(|| screening.screen(&message))
            });
            let screened = screened.await.ok().flatten();
            screened.unwrap_or_else(|| ScreenResult::blocked_by(GUARD_UNAVAILABLE_RULE))
        }
    }
}

impl Screening {
    fn screen(&self, message: &Screen) -> ScreenResult {
        let result = match &self.rules {
            Some(rules) => rules.screen(&message.text, message.origin),
            None => ScreenResult::blocked_by(NO_RULES_ID),
        };
        self.screened.fetch_add(1, Relaxed);
        self.blocked.fetch_add(u64::from(result.blocked), Relaxed);
        result
    }
}

/// Default time limit of the guardrail for one message. A message not screened within it is
/// blocked. Changed by [`GuardrailPolicy::with_timeout`].
pub const GUARD_TIMEOUT_DEFAULT: Duration = Duration::from_secs(2);
/// Value of `reason` in the data of a guardrail's failure.
pub const GUARD_REASON: &str = "guardrail";
/// Rule id in the data of a failure because the guardrail or detector timed out, ended or crashed.
pub const GUARD_UNAVAILABLE_RULE: &str = "guard.absent";
/// Rule id of a long text that was blocked because too many others waited for the guardrail, or of
/// a text because the detector judged too many others.
pub const GUARD_BUSY_RULE: &str = "guard.busy";
/// Rule id in the data of a failure because a message isn't valid JSON.
pub const GUARD_UNREADABLE_RULE: &str = "guard.unreadable";

/// Policy that has a guardrail agent screen all exchanged texts: messages, replies, and the
/// questions and answers during a call. Text that the guardrail doesn't pass in time is blocked. An
/// inbound request fails as `Overloaded` or `Unavailable` then, since its sender may repeat it.
#[derive(Debug, Clone)]
pub struct GuardrailPolicy {
    agent: AgentRef,
    timeout: Duration,
    descriptions_only: bool,
}

impl GuardrailPolicy {
    /// Creates a policy that sends [`Screen`] to `agent`, with the time limit
    /// [`GUARD_TIMEOUT_DEFAULT`].
    pub fn new(agent: AgentRef) -> Self {
        Self {
            agent,
            timeout: GUARD_TIMEOUT_DEFAULT,
            descriptions_only: false,
        }
    }

    /// Sets the time limit for one message. A message not screened within it is blocked.
    pub fn with_timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    /// Restricts the policy to how remote agents describe themselves and their tools, prompts and
    /// resources. They are then screened as texts of the user: harmless descriptions tell a model
    /// what to do, which the rules for other origins block.
    pub fn descriptions_only(self) -> Self {
        Self {
            descriptions_only: true,
            ..self
        }
    }

    /// Screens a message of `principal`: all of its texts joined into one. A message without text
    /// passes.
    ///
    /// # Errors
    /// [`FailureKind::Blocked`], with `reason` and the ids of the matching `rules` in its data,
    /// never with text. Also if the message isn't valid JSON, or the guardrail crashed, timed out
    /// or ended.
    pub async fn check(
        &self,
        message: &RawValue,
        origin: TextOrigin,
        principal: &Principal,
    ) -> Result<(), Failure> {
        let screened = self.screen_message(message, origin, principal, None).await;
        screened.map_err(blocked_failure)
    }

    async fn screen_crossing(
        &self,
        crossing: PolicyRequest<'_>,
        origin: TextOrigin,
    ) -> Result<(), Vec<String>> {
        let PolicyRequest {
            payload,
            principal,
            call,
            ..
        } = crossing;
        self.screen_message(payload, origin, principal, Some(call))
            .await
    }

    /// Screens a message of `principal`, possibly of a `call`. Fails with the ids of the rules that
    /// block it.
    async fn screen_message(
        &self,
        message: &RawValue,
        origin: TextOrigin,
        principal: &Principal,
        call: Option<CallId>,
    ) -> Result<(), Vec<String>> {
        let Some(text) = collect_texts(message) else {
            return Err(vec![GUARD_UNREADABLE_RULE.to_owned()]);
        };
        if text.is_empty() {
            return Ok(());
        }
        // Principals take turns with long texts.
        let turn = (text.len() > SHORT_TEXT_BYTES_MAX)
            .then(|| Arc::new(CallContext::new(Arc::new(principal.clone()))));
        let screened = self.agent.ask(Screen { text, origin });
        let by = || call.map(|call| call.to_string());
        match screened.within_call(turn).within(self.timeout).await {
            Ok(ScreenResult { blocked: false, .. }) => Ok(()),
            Ok(ScreenResult { rules, .. }) => {
                callboard_message::log::info!(call = by(), ?rules, "guardrail stopped a message");
                Err(rules)
            }
            Err(why) => {
                callboard_message::log::error!(call = by(), %why, "the guardrail couldn't screen a message, so the message was blocked");
                Err(vec![GUARD_UNAVAILABLE_RULE.to_owned()])
            }
        }
    }
}

/// Creates the failure of a blocked message. Its message doesn't name the rule, which would help to
/// evade it. A sender other than the local operator doesn't get the rule ids in its data either
/// ([`inbound_policy`](callboard_runtime::inbound_policy)).
fn blocked_failure(rules: Vec<String>) -> Failure {
    let blocked = Failure::new(FailureKind::Blocked, "Request blocked by guardrails");
    blocked.with_data(failure_data(&rules))
}

/// Returns the data of a failure because of these rules.
fn failure_data(rules: &[String]) -> Value {
    json!({ "reason": GUARD_REASON, "rules": rules })
}

/// Creates the failure of a request of which nothing has been done. If the guardrail didn't screen
/// it, the sender is told so and may repeat it.
fn request_failure(rules: Vec<String>) -> Failure {
    let unscreened = match rules.as_slice() {
        [rule] if rule == GUARD_BUSY_RULE => Failure::overloaded(format!(
            "too many requests of more than {SHORT_TEXT_BYTES_MAX} bytes wait for the guardrail \
             (at most {PRINCIPAL_LONG_TEXTS_QUEUED_MAX} of one principal, {LONG_TEXTS_QUEUED_MAX} \
             in all): try again later"
        )),
        [rule] if rule == GUARD_UNAVAILABLE_RULE => Failure::unavailable(
            "the guardrail didn't screen the request in time, so it was refused: try again later",
        ),
        _ => return blocked_failure(rules),
    };
    unscreened.with_data(failure_data(&rules))
}

/// Returns the rule ids in the failure of a blocked message, empty if its data has none; `None` for
/// any other failure.
pub fn blocking_rules(failure: &Failure) -> Option<Vec<String>> {
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

impl Policy for GuardrailPolicy {
    fn check<'a>(&'a self, crossing: PolicyRequest<'a>) -> BoxFuture<'a, Result<(), Failure>> {
        if self.descriptions_only {
            return Box::pin(std::future::ready(Ok(())));
        }
        // Others might react to another failure than a block by repeating what a peer has begun.
        let failure: fn(Vec<String>) -> Failure = match crossing.direction == Direction::Inbound {
            true => request_failure,
            false => blocked_failure,
        };
        Box::pin(async move {
            let screened = self.screen_crossing(crossing, TextOrigin::User).await;
            screened.map_err(failure)
        })
    }

    fn checks_parts(&self) -> bool {
        true
    }

    fn check_part<'a>(
        &'a self,
        part: ExchangePart,
        crossing: PolicyRequest<'a>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        let origin = part_origin(part, crossing.message);
        let describes = origin == TextOrigin::Description;
        let is_remote = crossing.direction == Direction::Outbound;
        if self.descriptions_only && !(describes && is_remote) {
            return Box::pin(std::future::ready(Ok(())));
        }
        let origin = match self.descriptions_only {
            true => TextOrigin::User,
            false => origin,
        };
        Box::pin(async move {
            let screened = self.screen_crossing(crossing, origin).await;
            screened.map_err(blocked_failure)
        })
    }
}

/// Returns the text origin of a part of an exchange. A question counts as text of the user, because
/// it legitimately asks for something. Text from models and tools must contain no instructions.
fn part_origin(part: ExchangePart, message: &str) -> TextOrigin {
    match (part, message) {
        (ExchangePart::Question, _) | (ExchangePart::Answer, "elicit" | "roots") => {
            TextOrigin::User
        }
        (ExchangePart::Answer, _) => TextOrigin::ToolResult,
        (
            ExchangePart::Reply,
            DescribeAgent::NAME
            | ListTools::NAME
            | ListPrompts::NAME
            | ListResources::NAME
            | ListResourceTemplates::NAME,
        ) => TextOrigin::Description,
        (ExchangePart::Reply, ReadResource::NAME) => TextOrigin::Document,
        // A prompt is chosen by the user.
        (ExchangePart::Reply, GetPrompt::NAME) => TextOrigin::User,
        (ExchangePart::Reply, _) => TextOrigin::ToolResult,
    }
}

/// Names of JSON members that belong to the protocol's structure and aren't screened as content.
const PROTOCOL_MEMBERS: &str = "_meta action annotations arguments blob content contents data description hints includeContext \
    inputSchema instructions intelligencePriority isError maxTokens message messages metadata method mimeType mode model \
    modelPreferences name outputSchema params prompt prompts properties requestedSchema required resource resources role \
    roots serverInfo speedPriority stopReason structuredContent systemPrompt temperature text title tools type uri";
/// Values of the members `role` and `type` that belong to the protocol's structure and aren't
/// screened as content.
const PROTOCOL_VALUES: &str = "user assistant text image audio resource resource_link tool_use tool_result object \
    string number integer boolean array null";

/// Collects all texts of a message, one per line, including member names: an attack may be split
/// over several texts. Protocol structure, images and audio are left out. `None` for invalid JSON.
fn collect_texts(message: &RawValue) -> Option<String> {
    let value: Value = serde_json::from_str(message.get()).ok()?;
    let mut lines = Vec::new();
    collect_lines(&value, &mut lines);
    Some(lines.join("\n"))
}

fn collect_lines<'a>(value: &'a Value, lines: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => lines.push(text),
        Value::Array(items) => items.iter().for_each(|item| collect_lines(item, lines)),
        Value::Object(members) => {
            let shows = is_media(members);
            for (name, value) in members {
                if !is_one_of(name, PROTOCOL_MEMBERS) {
                    lines.push(name);
                }
                match (name.as_str(), value) {
                    ("role" | "type", Value::String(word)) if is_one_of(word, PROTOCOL_VALUES) => {}
                    ("data" | "blob", Value::String(coded)) if shows && is_base64(coded) => {}
                    _ => collect_lines(value, lines),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns whether an object holds an image, audio or video, by its media type. XML formats such as
/// SVG don't count, because they hold text.
fn is_media(members: &Map<String, Value>) -> bool {
    let kind = members
        .get("mimeType")
        .and_then(Value::as_str)
        .unwrap_or_default();
    // SVG is XML text and is screened.
    ["image/", "audio/", "video/"]
        .iter()
        .any(|family| kind.starts_with(family))
        && !kind.contains("xml")
}

fn is_base64(text: &str) -> bool {
    text.bytes()
        .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=' | b'-' | b'_'))
}
