//! A person who decides: whoever called gets a form at each point.

#[cfg(test)]
mod tests;

use callboard_message::{Elicitation, Failure, FailureKind, RawObject, hex};
use callboard_runtime::{Agent, ConcurrentHandler, Cx, Handlers, Profile};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{
    Action, Clarity, Confirm, DecideClarity, DecideConfirm, DecideFollowUp, DecideRecovery,
    DecideRoute, DecideSplit, DecideTool, Decided, Decision, FollowUp, MakeSteps, Recovery, Route,
    Split, StepDefinition, StepMetadata, StepPlan, Synthesis, Synthesize, ToolChoice, WriteAnswer,
};
use crate::decide::limits::STEPS_MAX;

/// Maximum decisions of one point that wait for a person at once. Further ones wait in the mailbox. Fixed.
pub const PERSON_DECISIONS_MAX: u32 = 64;
/// Maximum tools or agents in a person's form. Further ones aren't offered. Fixed.
pub const CHOICES_MAX: usize = 64;

/// Whoever called decides, by forms. Where there is nobody to ask, or they give none of the answers, it is unclear.
#[derive(Debug, Clone, Copy, Default)]
pub struct PersonDecider;

async fn decide<D: Formed>(asked: D, cx: Cx) -> Result<Decided<D::Outcome>, Failure> {
    let (message, schema) = asked.form();
    let form = Elicitation::form(message, schema).key(&key(&asked));
    let answer = match cx.elicit(form).await {
        Ok(answer) => answer,
        Err(nobody) if nobody.kind == FailureKind::NobodyToAsk => {
            return Ok(Decided::unclear(nobody.message));
        }
        Err(failure) => return Err(failure),
    };
    let Some(content) = answer.content() else {
        return Ok(Decided::unclear("the person didn't say"));
    };
    Ok(match asked.read(&content) {
        Some(outcome) => Decided::sure(outcome, 1.0, "a person says so"),
        None => Decided::unclear("the person's answer is none of those that there were"),
    })
}

/// The same for the same question, so that an answer is found again, and another for any other that waits beside it.
fn key<D: Formed>(asked: &D) -> String {
    let body = D::wire().and_then(|wire| (wire.encode)(asked).ok());
    let hash = Sha256::digest(body.as_deref().map_or("", |body| body.get()));
    format!("decide-{}-{}", D::POINT, hex(&hash[..6]))
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

    /// It has no state that a dropped request could leave half changed.
    fn profile() -> Profile {
        Profile::default().cancel_safe()
    }
}

impl<D: Formed> ConcurrentHandler<D> for PersonDecider {
    fn handle(
        &mut self,
        message: D,
        cx: Cx,
    ) -> impl Future<Output = Result<Decided<D::Outcome>, Failure>> + Send + 'static {
        decide(message, cx)
    }
}

/// Asking whether to ask would be one question too many.
impl ConcurrentHandler<DecideConfirm> for PersonDecider {
    fn handle(
        &mut self,
        _: DecideConfirm,
        _: Cx,
    ) -> impl Future<Output = Result<Decided<Confirm>, Failure>> + Send + 'static {
        std::future::ready(Ok(Decided::sure(
            Confirm::ConfirmNeeded,
            1.0,
            "a person decides",
        )))
    }
}

/// A decision that a person can be asked for.
trait Formed: Decision {
    /// Text for the person, and the schema of the answer.
    fn form(&self) -> (String, Value);

    /// Outcome of the answer; `None` where that isn't clear.
    fn read(&self, content: &Value) -> Option<Self::Outcome>;
}

fn form(properties: Value, required: &str) -> Value {
    json!({ "type": "object", "properties": properties, "required": [required] })
}

/// A member that is a text with something in it.
fn text(content: &Value, name: &str) -> Option<String> {
    content[name]
        .as_str()
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .map(str::to_owned)
}

fn string(title: &str) -> Value {
    json!({ "type": "string", "title": title })
}

fn boolean(title: &str) -> Value {
    json!({ "type": "boolean", "title": title })
}

fn one_of(title: &str, words: &[String]) -> Value {
    json!({ "type": "string", "title": title, "enum": words })
}

/// Behind a word, an id: `remote weather`.
fn id_behind<'a>(choice: &'a str, word: &str) -> Option<&'a str> {
    choice.strip_prefix(word)?.strip_prefix(' ')
}

impl Formed for DecideFollowUp {
    fn form(&self) -> (String, Value) {
        let message = format!(
            "Is this answer enough to go on?\n\nQuestion: {}\nAnswer: {}",
            self.reason, self.message
        );
        let properties =
            json!({ "enough": boolean("Enough"), "question": string("If not: what to ask") });
        (message, form(properties, "enough"))
    }

    fn read(&self, content: &Value) -> Option<FollowUp> {
        Some(match content["enough"].as_bool()? {
            true => FollowUp::HandleDirectly,
            false => FollowUp::NeedHumanInput {
                question: text(content, "question"),
            },
        })
    }
}

impl Formed for DecideClarity {
    fn form(&self) -> (String, Value) {
        let properties =
            json!({ "clear": boolean("Clear"), "question": string("If not: what to ask") });
        (
            format!("Is this request clear enough to begin?\n\n{}", self.request),
            form(properties, "clear"),
        )
    }

    fn read(&self, content: &Value) -> Option<Clarity> {
        match content["clear"].as_bool()? {
            true => Some(Clarity::Clear),
            false => Some(Clarity::NeedsClarify {
                question: text(content, "question")?,
            }),
        }
    }
}

impl Formed for DecideSplit {
    fn form(&self) -> (String, Value) {
        let properties = json!({ "several": boolean("Several steps") });
        (
            format!("Does this request need several steps?\n\n{}", self.request),
            form(properties, "several"),
        )
    }

    fn read(&self, content: &Value) -> Option<Split> {
        Some(if content["several"].as_bool()? {
            Split::Yes
        } else {
            Split::No
        })
    }
}

impl Formed for MakeSteps {
    fn form(&self) -> (String, Value) {
        let message = format!(
            "Which steps does this request need? One a line, at most {STEPS_MAX}.\n\n{}",
            self.request
        );
        let properties =
            json!({ "steps": string("Steps"), "in_order": boolean("Each needs the one before") });
        (message, form(properties, "steps"))
    }

    fn read(&self, content: &Value) -> Option<StepPlan> {
        let steps = text(content, "steps")?;
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
        StepPlan::checked(lines.enumerate().map(step).collect()).ok()
    }
}

impl Formed for DecideRoute {
    fn form(&self) -> (String, Value) {
        let up = self
            .world
            .agents
            .iter()
            .filter(|agent| agent.is_up)
            .take(CHOICES_MAX);
        let mut choices: Vec<String> = vec!["local".to_owned()];
        choices.extend(up.map(|agent| format!("remote {}", agent.id)));
        choices.push("reject".to_owned());
        let properties =
            json!({ "who": one_of("Who", &choices), "reason": string("If rejected: why") });
        (
            format!("Who should do this?\n\n{}", self.request),
            form(properties, "who"),
        )
    }

    fn read(&self, content: &Value) -> Option<Route> {
        match content["who"].as_str()? {
            "local" => Some(Route::Local),
            "reject" => Some(Route::Reject {
                reason: text(content, "reason").unwrap_or_else(|| "It was rejected.".into()),
            }),
            choice => id_behind(choice, "remote").map(|id| Route::Remote {
                agent: id.to_owned(),
            }),
        }
    }
}

impl Formed for DecideTool {
    fn form(&self) -> (String, Value) {
        let tools: Vec<String> = self
            .tools
            .iter()
            .take(CHOICES_MAX)
            .map(|tool| tool.name.clone())
            .collect();
        let params = string("Parameters as a JSON object; empty: the request as its text");
        let properties = json!({ "tool": one_of("Tool", &tools), "params": params });
        (
            format!("Which tool should do this?\n\n{}", self.request),
            form(properties, "tool"),
        )
    }

    fn read(&self, content: &Value) -> Option<ToolChoice> {
        let params = match text(content, "params") {
            None => RawObject::of("text", &self.request),
            Some(params) => serde_json::from_str(&params).ok()?,
        };
        Some(ToolChoice {
            tool_name: text(content, "tool")?,
            params,
        })
    }
}

impl Formed for WriteAnswer {
    fn form(&self) -> (String, Value) {
        (
            format!("What is the answer?\n\n{}", self.request),
            form(json!({ "answer": string("Answer") }), "answer"),
        )
    }

    fn read(&self, content: &Value) -> Option<String> {
        text(content, "answer")
    }
}

impl Formed for DecideRecovery {
    fn form(&self) -> (String, Value) {
        let mut choices = vec!["retry".to_owned()];
        if matches!(self.action, Action::Local { .. }) {
            choices.push("retry with other parameters".to_owned());
        }
        let others = self.tools.iter().chain(&self.agents).take(CHOICES_MAX);
        choices.extend(others.map(|id| format!("use {id}")));
        choices.push("give up".to_owned());
        let (target, times) = (self.action.target(), self.attempts);
        let message = format!(
            "{target} failed ({times} so far): {}. What now?\n\n{}",
            self.error, self.root_goal
        );
        let more = string("The parameters as a JSON object, or why it is given up");
        (
            message,
            form(
                json!({ "next": one_of("Next", &choices), "more": more }),
                "next",
            ),
        )
    }

    fn read(&self, content: &Value) -> Option<Recovery> {
        Some(match content["next"].as_str()? {
            "retry" => Recovery::RetrySame,
            "retry with other parameters" => Recovery::RetryModified {
                params: serde_json::from_str(&text(content, "more")?).ok()?,
            },
            "give up" => Recovery::Abandon {
                reason: text(content, "more").unwrap_or_else(|| self.error.clone()),
            },
            choice => Recovery::UseAlternative {
                which: id_behind(choice, "use")?.to_owned(),
            },
        })
    }
}

impl Formed for Synthesize {
    fn form(&self) -> (String, Value) {
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
            form(
                json!({ "answer": string("Answer"), "sure": sure }),
                "answer",
            ),
        )
    }

    fn read(&self, content: &Value) -> Option<Synthesis> {
        let confidence = content["sure"].as_f64().unwrap_or(1.0) as f32;
        Some(Synthesis {
            final_answer: text(content, "answer")?,
            confidence,
            notes: None,
        })
    }
}
