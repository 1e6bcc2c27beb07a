//! The points before anything is done: DP1, NP1, NP2, DP2, DP3.

use callboard_message::RawObject;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Posed, Shown, UNKNOWN_WORD, one_of, shape, string};
use crate::decide::limits::STEPS_MAX;
use crate::decide::model::budget::Material;
use crate::decide::model::read::{Line, Read, Reading, bare, sentence, word_of};
use crate::decide::{
    Clarity, DecideClarity, DecideFollowUp, DecideRoute, DecideSplit, DecideTool, FollowUp, MakeSteps, Route, Split,
    StepDefinition, StepPlan, ToolChoice,
};

/// Longest reason of a rejection, in characters.
const REASON_CHARS_MAX: usize = 500;
/// Longest question, in characters: more than is let pass, so that a longer one is seen to be.
const QUESTION_CHARS_READ: usize = 1_000;
/// Ids that a schema lists.
const IDS_LISTED_MAX: usize = 64;
/// What whoever asked is told where the model rejects without a reason: it must not be done for want of one.
const NO_REASON: &str = "This request was refused.";

impl Shown for DecideFollowUp {
    const TOKENS_MAX: u32 = 256;

    fn material(&self) -> Material {
        let mut material = Material { history: self.history.clone(), ..Material::said(&self.message) };
        material.texts.push(("reason", self.reason.clone()));
        material
    }
}

impl Posed for DecideFollowUp {
    fn schema(&self) -> Value {
        let words = one_of(&["HANDLE_DIRECTLY", "NEED_HUMAN_INPUT"]);
        shape(&[("decision", words), ("question", string())], &["decision"])
    }

    fn object(&self, object: &RawObject) -> Option<Read<FollowUp>> {
        let question = object.text("question").filter(|question| !question.trim().is_empty());
        let outcome = match &*word_of(&object.text("decision")?) {
            "HANDLE_DIRECTLY" => FollowUp::HandleDirectly,
            "NEED_HUMAN_INPUT" => {
                FollowUp::NeedHumanInput { question: question.map(|text| sentence(&text, QUESTION_CHARS_READ)) }
            }
            _ => return Some(Err(UNKNOWN_WORD)),
        };
        Some(Ok(Reading::of(outcome, object)))
    }

    fn lines(&self, lines: &[Line]) -> Vec<Read<FollowUp>> {
        let asked = lines.iter().find_map(|line| line.value("QUESTION").or_else(|| line.value("NEED_HUMAN_INPUT")));
        let asked = asked.map(|question| sentence(question, QUESTION_CHARS_READ));
        let question = asked.filter(|question| !question.is_empty());
        let outcome = |line: &Line| match () {
            () if line.is("HANDLE_DIRECTLY") => Some(FollowUp::HandleDirectly),
            () if line.is("NEED_HUMAN_INPUT") || line.value("NEED_HUMAN_INPUT").is_some() => {
                Some(FollowUp::NeedHumanInput { question: question.clone() })
            }
            () => None,
        };
        lines.iter().filter_map(outcome).map(|outcome| Ok(Reading::from(outcome, lines))).collect()
    }
}

impl Shown for DecideClarity {
    const TOKENS_MAX: u32 = 256;

    fn material(&self) -> Material {
        Material { history: self.history.clone(), ..Material::said(&self.request) }
    }
}

impl Posed for DecideClarity {
    fn schema(&self) -> Value {
        shape(&[("clarity", one_of(&["CLEAR", "NEEDS_CLARIFY"])), ("question", string())], &["clarity"])
    }

    fn object(&self, object: &RawObject) -> Option<Read<Clarity>> {
        let clarity = clarity(&object.text("clarity")?, object.text("question").as_deref());
        Some(clarity.map(|outcome| Reading::of(outcome, object)))
    }

    fn lines(&self, lines: &[Line]) -> Vec<Read<Clarity>> {
        let question = lines.iter().find_map(|line| line.value("QUESTION"));
        let is_word = |line: &&Line| line.is("CLEAR") || line.is("NEEDS_CLARIFY");
        let bare_words = lines.iter().filter(is_word).map(Line::text);
        let words = lines.iter().filter_map(|line| line.value("CLARITY")).chain(bare_words);
        words.map(|word| Ok(Reading::from(clarity(word, question)?, lines))).collect()
    }
}

fn clarity(word: &str, question: Option<&str>) -> Result<Clarity, &'static str> {
    match &*word_of(word) {
        "CLEAR" => Ok(Clarity::Clear),
        "NEEDS_CLARIFY" => {
            let question = question.map(|question| sentence(question, QUESTION_CHARS_READ)).unwrap_or_default();
            match question.is_empty() {
                true => Err("the model wants to ask something and doesn't say what"),
                false => Ok(Clarity::NeedsClarify { question }),
            }
        }
        _ => Err(UNKNOWN_WORD),
    }
}

impl Shown for DecideSplit {
    const TOKENS_MAX: u32 = 256;

    fn material(&self) -> Material {
        Material {
            history: self.history.clone(),
            tools: self.world.tools.clone(),
            agents: self.world.agents.clone(),
            ..Material::said(&self.request)
        }
    }
}

impl Posed for DecideSplit {
    fn schema(&self) -> Value {
        shape(&[("should_decompose", one_of(&["YES", "NO"])), ("reason", string())], &["should_decompose"])
    }

    fn object(&self, object: &RawObject) -> Option<Read<Split>> {
        let said = match object.read::<bool>("should_decompose") {
            Some(true) => "YES".to_owned(),
            Some(false) => "NO".to_owned(),
            None => object.text("should_decompose")?,
        };
        Some(split(&said).map(|outcome| Reading::of(outcome, object)))
    }

    fn lines(&self, lines: &[Line]) -> Vec<Read<Split>> {
        let words = lines.iter().filter_map(|line| line.value("SHOULD_DECOMPOSE"));
        words.map(|word| Ok(Reading::from(split(word)?, lines))).collect()
    }
}

fn split(word: &str) -> Result<Split, &'static str> {
    match &*word_of(word) {
        "YES" => Ok(Split::Yes),
        "NO" => Ok(Split::No),
        _ => Err(UNKNOWN_WORD),
    }
}

impl Shown for MakeSteps {
    const TOKENS_MAX: u32 = 2_048;

    fn material(&self) -> Material {
        Material { tools: self.world.tools.clone(), agents: self.world.agents.clone(), ..Material::said(&self.request) }
    }
}

impl Posed for MakeSteps {
    fn schema(&self) -> Value {
        let needs = json!({ "type": "object", "properties": { "depends_on": { "type": "array", "items": string() } },
            "required": ["depends_on"], "additionalProperties": false });
        let step = json!({ "type": "object", "properties": { "id": string(), "input_message": string(), "metadata": needs },
            "required": ["id", "input_message", "metadata"], "additionalProperties": false });
        let steps = json!({ "type": "array", "items": step, "minItems": 1, "maxItems": STEPS_MAX });
        shape(&[("steps", steps)], &["steps"])
    }

    fn object(&self, object: &RawObject) -> Option<Read<StepPlan>> {
        Some(plan(object.get("steps")?).map(|outcome| Reading::of(outcome, object)))
    }

    fn list(&self, list: &RawValue) -> Option<Read<StepPlan>> {
        Some(plan(list).map(|outcome| Reading::of(outcome, &RawObject::new())))
    }
}

fn plan(steps: &RawValue) -> Result<StepPlan, &'static str> {
    let steps: Vec<StepDefinition> =
        serde_json::from_str(steps.get()).map_err(|_| "a step of the model's plan hasn't exactly the keys of one")?;
    StepPlan::checked(steps)
        .map_err(|_| "the model's plan has no step, too many, or steps that can't follow each other")
}

impl Shown for DecideRoute {
    const TOKENS_MAX: u32 = 512;

    fn material(&self) -> Material {
        Material {
            history: self.history.clone(),
            tools: self.world.tools.clone(),
            agents: self.world.agents.clone(),
            ..Material::said(&self.request)
        }
    }
}

impl Posed for DecideRoute {
    fn schema(&self) -> Value {
        let ids: Vec<&str> = self.world.agents.iter().map(|agent| &*agent.id).collect();
        let agent_id = if (1..=IDS_LISTED_MAX).contains(&ids.len()) { one_of(&ids) } else { string() };
        let words = one_of(&["LOCAL", "REMOTE", "REJECT"]);
        shape(&[("decision", words), ("agent_id", agent_id), ("reason", string())], &["decision"])
    }

    fn object(&self, object: &RawObject) -> Option<Read<Route>> {
        let outcome = match &*word_of(&object.text("decision")?) {
            "LOCAL" => Route::Local,
            "REMOTE" => match object.text("agent_id") {
                Some(agent) => Route::Remote { agent },
                None => return Some(Err("the model names no agent")),
            },
            "REJECT" => Route::Reject { reason: reason(&object.text("reason").unwrap_or_default()) },
            _ => return Some(Err(UNKNOWN_WORD)),
        };
        Some(Ok(Reading::of(outcome, object)))
    }

    fn lines(&self, lines: &[Line]) -> Vec<Read<Route>> {
        let mut found: Vec<Read<Route>> = Vec::new();
        for line in lines {
            let answer = match line {
                line if line.is("LOCAL") => Ok(Route::Local),
                line if line.is("REJECT") => Ok(Route::Reject { reason: String::new() }),
                line => match (line.value("REMOTE").map(bare), line.value("REJECT").map(bare)) {
                    (Some(""), _) => Err("the model names no agent"),
                    (Some(agent), _) => Ok(Route::Remote { agent: agent.to_owned() }),
                    (None, Some(reason)) => Ok(Route::Reject { reason: reason.to_owned() }),
                    (None, None) => {
                        // A reason may go on in the lines behind it.
                        if let Some(Ok(Reading { outcome: Route::Reject { reason }, .. })) = found.last_mut()
                            && line.value("CONFIDENCE").is_none()
                        {
                            reason.push(' ');
                            reason.push_str(line.text());
                        }
                        continue;
                    }
                },
            };
            found.push(answer.map(|outcome| Reading { why: None, ..Reading::from(outcome, lines) }));
        }
        for answer in found.iter_mut().flatten() {
            if let Route::Reject { reason: said } = &mut answer.outcome {
                *said = reason(said);
            }
        }
        found
    }
}

fn reason(said: &str) -> String {
    match sentence(said, REASON_CHARS_MAX) {
        none if none.is_empty() => NO_REASON.to_owned(),
        reason => reason,
    }
}

impl Shown for DecideTool {
    const TOKENS_MAX: u32 = 2_048;

    fn material(&self) -> Material {
        Material {
            history: self.history.clone(),
            tools: self.tools.clone(),
            with_params: true,
            ..Material::said(&self.request)
        }
    }
}

impl Posed for DecideTool {
    fn schema(&self) -> Value {
        let names: Vec<&str> = self.tools.iter().map(|tool| &*tool.name).collect();
        let tool_name = if names.is_empty() { string() } else { one_of(&names) };
        shape(&[("tool_name", tool_name), ("params", json!({ "type": "object" }))], &["tool_name", "params"])
    }

    fn object(&self, object: &RawObject) -> Option<Read<ToolChoice>> {
        let tool_name = object.text("tool_name")?;
        let params = match object.get("params") {
            None => RawObject::new(),
            Some(raw) => match RawObject::parse(raw) {
                Ok(params) => params,
                Err(_) => return Some(Err("the model's parameters are no object")),
            },
        };
        Some(Ok(Reading::of(ToolChoice { tool_name, params }, object)))
    }
}
