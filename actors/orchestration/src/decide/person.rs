//! Decider that asks the person behind the call with a form at each decision point.

#[cfg(test)]
mod tests;

use callboard_message::{Elicitation, Failure, FailureKind, RawObject, encode_hex};
use callboard_runtime::{Agent, AgentProfile, ConcurrentHandler, Context, Handlers};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    Action, Clarity, Confirm, DecideClarity, DecideConfirm, DecideFollowUp, DecideRecovery,
    DecideRoute, DecideSplit, DecideTool, DeciderReply, DecisionRequest, FollowUp, MakeSteps,
    Recovery, Route, Split, StepDefinition, StepMetadata, StepPlan, Synthesis, Synthesize,
    ToolChoice, WriteAnswer,
};
use crate::decide::limits::STEPS_MAX;

/// Maximum concurrent decisions of one decision point that wait for a person. Further decisions
/// wait in the decider's mailbox. Fixed.
pub const PERSON_DECISIONS_MAX: u32 = 64;
/// Maximum tools or agents offered as choices in a form. Further ones are left out. Fixed.
pub const FORM_CHOICES_MAX: usize = 64;

/// Decider that asks the caller by form. Without a caller to ask, or with an answer that fits no
/// option, the decision is unclear.
#[derive(Debug, Clone, Copy, Default)]
pub struct PersonDecider;

async fn decide_by_form<D: FormDecision>(
    asked: D,
    cx: Context,
) -> Result<DeciderReply<D::Outcome>, Failure> {
    let (message, schema) = asked.form();
    let form = Elicitation::form(message, schema).with_key(&question_key(&asked));
    let answer = match cx.elicit(form).await {
        Ok(answer) => answer,
        Err(nobody) if nobody.kind == FailureKind::NoResponder => {
            return Ok(DeciderReply::unclear(nobody.message));
        }
        Err(failure) => return Err(failure),
    };
    let Some(content) = answer.content() else {
        return Ok(DeciderReply::unclear("the person didn't say"));
    };
    Ok(match asked.parse_answer(&content) {
        Some(outcome) => DeciderReply::clear(outcome, 1.0, "a person says so"),
        None => DeciderReply::unclear("the person's answer is none of those that there were"),
    })
}

/// Derives the key of a question from the decision request. A repeated request finds its stored
/// answer by this key, and different questions can wait at the same time.
fn question_key<D: FormDecision>(asked: &D) -> String {
    let body = D::codec().and_then(|wire| (wire.encode)(asked).ok());
    let hash = Sha256::digest(body.as_deref().map_or("", |body| body.get()));
    format!("decide-{}-{}", D::POINT, encode_hex(&hash[..6]))
}

impl Agent for PersonDecider {
    fn handlers(on: &mut Handlers<Self>) {
        on.concurrent::<DecideFollowUp>(PERSON_DECISIONS_MAX)
            .concurrent::<DecideClarity>(PERSON_DECISIONS_MAX)
            .concurrent::<DecideSplit>(PERSON_DECISIONS_MAX)
            .concurrent::<MakeSteps>(PERSON_DECISIONS_MAX)
            .concurrent::<DecideRoute>(PERSON_DECISIONS_MAX)
            .concurrent::<DecideTool>(PERSON_DECISIONS_MAX)
            .concurrent::<WriteAnswer>(PERSON_DECISIONS_MAX)
            .concurrent::<DecideRecovery>(PERSON_DECISIONS_MAX)
            .concurrent::<Synthesize>(PERSON_DECISIONS_MAX)
            .concurrent::<DecideConfirm>(PERSON_DECISIONS_MAX);
    }

    /// Marks the agent as cancel-safe: it has no state that a dropped request could leave half
    /// changed.
    fn profile() -> AgentProfile {
        AgentProfile::default().cancel_safe()
    }
}

impl<D: FormDecision> ConcurrentHandler<D> for PersonDecider {
    fn handle(
        &mut self,
        message: D,
        cx: Context,
    ) -> impl Future<Output = Result<DeciderReply<D::Outcome>, Failure>> + Send + 'static {
        decide_by_form(message, cx)
    }
}

/// Always answers that confirmation is needed: asking the person whether to ask would be one
/// question too many.
impl ConcurrentHandler<DecideConfirm> for PersonDecider {
    fn handle(
        &mut self,
        _: DecideConfirm,
        _: Context,
    ) -> impl Future<Output = Result<DeciderReply<Confirm>, Failure>> + Send + 'static {
        std::future::ready(Ok(DeciderReply::clear(
            Confirm::ConfirmNeeded,
            1.0,
            "a person decides",
        )))
    }
}

/// Decision that can be made with a form.
trait FormDecision: DecisionRequest {
    /// Returns the question to the person and the JSON Schema of the form's values.
    fn form(&self) -> (String, RawObject);

    /// Converts the content of a filled-in form to an outcome. `None` if it is incomplete or
    /// invalid.
    fn parse_answer(&self, content: &Value) -> Option<Self::Outcome>;
}

/// Returns the schema of a form with these fields, in their order. The first one is required.
fn object_schema<const N: usize>(fields: [(&str, Value); N]) -> RawObject {
    let mut properties = RawObject::new();
    for (name, schema) in &fields {
        properties.set(name, schema);
    }
    let required = fields.first().map(|(name, _)| *name);
    RawObject::single("type", "object")
        .with("properties", properties)
        .with("required", Vec::from_iter(required))
}

/// Returns the member `name` of a form's content, trimmed. `None` if it isn't a text or is empty.
fn non_empty_text(content: &Value, name: &str) -> Option<String> {
    content[name]
        .as_str()
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .map(str::to_owned)
}

fn string_schema(title: &str) -> Value {
    json!({ "type": "string", "title": title })
}

fn boolean_schema(title: &str) -> Value {
    json!({ "type": "boolean", "title": title })
}

fn enum_schema(title: &str, words: &[String]) -> Value {
    json!({ "type": "string", "title": title, "enum": words })
}

/// Returns the id after the keyword `word` in a choice, such as `weather` in `remote weather`;
/// `None` if the choice doesn't begin with the keyword.
fn strip_word<'a>(choice: &'a str, word: &str) -> Option<&'a str> {
    choice.strip_prefix(word)?.strip_prefix(' ')
}

impl FormDecision for DecideFollowUp {
    fn form(&self) -> (String, RawObject) {
        let message = format!(
            "Is this answer enough to go on?\n\nQuestion: {}\nAnswer: {}",
            self.reason, self.message
        );
        let fields = [
            ("enough", boolean_schema("Enough")),
            ("question", string_schema("If not: what to ask")),
        ];
        (message, object_schema(fields))
    }

    fn parse_answer(&self, content: &Value) -> Option<FollowUp> {
        Some(match content["enough"].as_bool()? {
            true => FollowUp::HandleDirectly,
            false => FollowUp::NeedHumanInput {
                question: non_empty_text(content, "question"),
            },
        })
    }
}

impl FormDecision for DecideClarity {
    fn form(&self) -> (String, RawObject) {
        let fields = [
            ("clear", boolean_schema("Clear")),
            ("question", string_schema("If not: what to ask")),
        ];
        (
            format!("Is this request clear enough to begin?\n\n{}", self.request),
            object_schema(fields),
        )
    }

    fn parse_answer(&self, content: &Value) -> Option<Clarity> {
        match content["clear"].as_bool()? {
            true => Some(Clarity::Clear),
            false => Some(Clarity::NeedsClarify {
                question: non_empty_text(content, "question")?,
            }),
        }
    }
}

impl FormDecision for DecideSplit {
    fn form(&self) -> (String, RawObject) {
        let fields = [("several", boolean_schema("Several steps"))];
        (
            format!("Does this request need several steps?\n\n{}", self.request),
            object_schema(fields),
        )
    }

    fn parse_answer(&self, content: &Value) -> Option<Split> {
        Some(if content["several"].as_bool()? {
            Split::Yes
        } else {
            Split::No
        })
    }
}

impl FormDecision for MakeSteps {
    fn form(&self) -> (String, RawObject) {
        let message = format!(
            "Which steps does this request need? One a line, at most {STEPS_MAX}.\n\n{}",
            self.request
        );
        let fields = [
            ("steps", string_schema("Steps")),
            ("in_order", boolean_schema("Each needs the one before")),
        ];
        (message, object_schema(fields))
    }

    fn parse_answer(&self, content: &Value) -> Option<StepPlan> {
        let steps = non_empty_text(content, "steps")?;
        let in_order = content["in_order"].as_bool().unwrap_or(true);
        let lines = steps.lines().map(str::trim).filter(|line| !line.is_empty());
        let step = |(at, line): (usize, &str)| {
            let before = (in_order && at > 0).then(|| format!("step-{at}"));
            let metadata = StepMetadata {
                depends_on: before.into_iter().collect(),
            };
            StepDefinition {
                id: format!("step-{}", at + 1),
                input_message: line.to_owned(),
                metadata,
            }
        };
        StepPlan::try_new(lines.enumerate().map(step).collect()).ok()
    }
}

impl FormDecision for DecideRoute {
    fn form(&self) -> (String, RawObject) {
        let up = self
            .world
            .agents
            .iter()
            .filter(|agent| agent.is_up)
            .take(FORM_CHOICES_MAX);
        let mut choices: Vec<String> = vec!["local".to_owned()];
        choices.extend(up.map(|agent| format!("remote {}", agent.id)));
        choices.push("reject".to_owned());
        let fields = [
            ("who", enum_schema("Who", &choices)),
            ("reason", string_schema("If rejected: why")),
        ];
        (
            format!("Who should do this?\n\n{}", self.request),
            object_schema(fields),
        )
    }

    fn parse_answer(&self, content: &Value) -> Option<Route> {
        match content["who"].as_str()? {
            "local" => Some(Route::Local),
            "reject" => Some(Route::Reject {
                reason: non_empty_text(content, "reason")
                    .unwrap_or_else(|| "It was rejected.".into()),
            }),
            choice => strip_word(choice, "remote").map(|id| Route::Remote {
                agent: id.to_owned(),
            }),
        }
    }
}

impl FormDecision for DecideTool {
    fn form(&self) -> (String, RawObject) {
        let tools: Vec<String> = self
            .tools
            .iter()
            .take(FORM_CHOICES_MAX)
            .map(|tool| tool.name.clone())
            .collect();
        let params = string_schema("Parameters as a JSON object; empty: the request as its text");
        let fields = [("tool", enum_schema("Tool", &tools)), ("params", params)];
        (
            format!("Which tool should do this?\n\n{}", self.request),
            object_schema(fields),
        )
    }

    fn parse_answer(&self, content: &Value) -> Option<ToolChoice> {
        let params = match non_empty_text(content, "params") {
            None => RawObject::single("text", &self.request),
            Some(params) => serde_json::from_str(&params).ok()?,
        };
        Some(ToolChoice {
            tool_name: non_empty_text(content, "tool")?,
            params,
        })
    }
}

impl FormDecision for WriteAnswer {
    fn form(&self) -> (String, RawObject) {
        (
            format!("What is the answer?\n\n{}", self.request),
            object_schema([("answer", string_schema("Answer"))]),
        )
    }

    fn parse_answer(&self, content: &Value) -> Option<String> {
        non_empty_text(content, "answer")
    }
}

impl FormDecision for DecideRecovery {
    fn form(&self) -> (String, RawObject) {
        let mut choices = vec!["retry".to_owned()];
        if matches!(self.action, Action::Local { .. }) {
            choices.push("retry with other parameters".to_owned());
        }
        let others = self.tools.iter().chain(&self.agents).take(FORM_CHOICES_MAX);
        choices.extend(others.map(|id| format!("use {id}")));
        choices.push("give up".to_owned());
        let (target, times) = (self.action.target(), self.attempts);
        let message = format!(
            "{target} failed ({times} so far): {}. What now?\n\n{}",
            self.error, self.root_goal
        );
        let more = string_schema("The parameters as a JSON object, or why it is given up");
        (
            message,
            object_schema([("next", enum_schema("Next", &choices)), ("more", more)]),
        )
    }

    fn parse_answer(&self, content: &Value) -> Option<Recovery> {
        Some(match content["next"].as_str()? {
            "retry" => Recovery::RetrySame,
            "retry with other parameters" => Recovery::RetryModified {
                params: serde_json::from_str(&non_empty_text(content, "more")?).ok()?,
            },
            "give up" => Recovery::Abandon {
                reason: non_empty_text(content, "more").unwrap_or_else(|| self.error.clone()),
            },
            choice => Recovery::UseAlternative {
                which: strip_word(choice, "use")?.to_owned(),
            },
        })
    }
}

impl FormDecision for Synthesize {
    fn form(&self) -> (String, RawObject) {
        let line = |report: &crate::decide::StepReport| {
            format!("- {} ({}): {}", report.by, report.state, report.text)
        };
        let results = self.results.iter().map(line).collect::<Vec<_>>().join("\n");
        let sure =
            json!({ "type": "number", "title": "How sure, 0 to 1", "minimum": 0, "maximum": 1 });
        let message = format!(
            "What do these results come to?\n\n{}\n\n{results}",
            self.goal
        );
        (
            message,
            object_schema([("answer", string_schema("Answer")), ("sure", sure)]),
        )
    }

    fn parse_answer(&self, content: &Value) -> Option<Synthesis> {
        let confidence = content["sure"].as_f64().unwrap_or(1.0) as f32;
        Some(Synthesis {
            final_answer: non_empty_text(content, "answer")?,
            confidence,
            notes: None,
        })
    }
}
