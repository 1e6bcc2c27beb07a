//! Prompt data, answer schema and answer parser of the combined decision (DP0).

use callboard_message::RawObject;
use serde_json::{Value, json};

use super::answer_parser::{ParseResult, PromptSpec, normalize_word};
use super::prompt::{PlaceholderValue, PromptData};
use super::prompt_specs::{
    UNKNOWN_CHOICE, agent_id_schema, enum_schema, name_schema, object_schema, parse_clarity,
    parse_params, parse_plan, reason_or_default, remote_agent, routing_prompt_data, steps_schema,
    string_schema,
};
use crate::decide::{Clarity, DecideIntake, Intake, ToolChoice};

/// Choices of DP0: the word, what it means, and the keys that it needs, in the order of the prompt.
const INTAKE_CHOICES: [(&str, &str); 6] = [
    (
        "REJECT",
        "it asks for something illegal or harmful to others, however it is dressed up. `reason`: why, in one or two polite sentences, in the language of the request. Alarming words in a harmless request are no reason.",
    ),
    (
        "CLARIFY",
        "it names no object, points at something that isn't in the conversation, or lacks the one fact without which nothing can be done. `question`: one short question for exactly that, in the language of the request.",
    ),
    (
        "STEPS",
        "it needs two or more different tools or agents, or one part needs the result of another. `steps`: two to five of {\"id\": \"a few lower-case words with hyphens\", \"input_message\": \"what whoever does the step is told, standing alone\", \"metadata\": {\"depends_on\": [\"ids of the steps whose results it needs\"]}}.",
    ),
    (
        "REMOTE",
        "the skills of one agent in the list fit what is asked. `agent_id`: exactly as it is listed. One that is away can't do it.",
    ),
    (
        "ANSWER",
        "it can be answered from general knowledge in a few sentences, and no tool fits better. `answer`: the answer.",
    ),
    (
        "LOCAL",
        "everything else. `tool_name`: exactly as it is listed. `params`: an object that fits the tool's JSON schema, filled from the request and the conversation; invent nothing. Where no tool fits better, `llm` answers in its own words.",
    ),
];

impl DecideIntake {
    /// Returns the choices that this request has, with their meaning.
    fn choices(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let (clarify, split, answer) = (
            self.may_clarify,
            self.may_split,
            self.answer_prompt.is_some(),
        );
        INTAKE_CHOICES
            .into_iter()
            .filter(move |(word, _)| match *word {
                "CLARIFY" => clarify,
                "STEPS" => split,
                "ANSWER" => answer,
                _ => true,
            })
    }
}

impl PromptSpec for DecideIntake {
    const TOKENS_MAX: u32 = 2_048;
    const HAS_REASON_LINE: bool = false;

    fn prompt_data(&self) -> PromptData {
        let choices: Vec<String> = self
            .choices()
            .map(|(word, meaning)| format!("- {word}: {meaning}"))
            .collect();
        let answers = match self.answer_prompt.as_deref() {
            Some(prompt) if !prompt.is_empty() => format!("For the text of `answer`: {prompt}"),
            _ => String::new(),
        };
        PromptData {
            with_params: true,
            fixed_values: vec![
                ("choices", PlaceholderValue::Trusted(choices.join("\n"))),
                ("system_prompt", PlaceholderValue::Trusted(answers)),
            ],
            ..routing_prompt_data(&self.request, &self.world, &self.history)
        }
    }

    fn schema(&self) -> Value {
        let words: Vec<&str> = self.choices().map(|(word, _)| word).collect();
        let names: Vec<&str> = self.world.tools.iter().map(|tool| &*tool.name).collect();
        let mut members = vec![
            ("decision", enum_schema(&words)),
            ("reason", string_schema()),
            ("agent_id", agent_id_schema(&self.world)),
            ("tool_name", name_schema(&names)),
            ("params", json!({ "type": "object" })),
        ];
        for word in words {
            members.extend(match word {
                "CLARIFY" => Some(("question", string_schema())),
                "STEPS" => Some(("steps", steps_schema())),
                "ANSWER" => Some(("answer", string_schema())),
                _ => None,
            });
        }
        object_schema(&members, &["decision"])
    }

    fn parse_object(&self, object: &RawObject) -> Option<ParseResult<Intake>> {
        let said = normalize_word(&object.text("decision")?);
        let Some((word, _)) = self.choices().find(|(word, _)| *word == said) else {
            return Some(Err(UNKNOWN_CHOICE));
        };
        Some(match word {
            "CLARIFY" => match parse_clarity("NEEDS_CLARIFY", object.text("question").as_deref()) {
                Ok(Clarity::NeedsClarify { question }) => Ok(Intake::NeedsClarify { question }),
                Ok(Clarity::Clear) => Err(UNKNOWN_CHOICE),
                Err(why) => Err(why),
            },
            "STEPS" => match object.get("steps") {
                Some(steps) => parse_plan(steps).map(Intake::Split),
                None => Err("the model's plan has no steps"),
            },
            "ANSWER" => match object.text("answer").filter(|text| !text.trim().is_empty()) {
                Some(text) => Ok(Intake::Answer { text }),
                None => Err("the model's answer is empty"),
            },
            "LOCAL" => match object.text("tool_name") {
                Some(tool_name) => parse_params(object).map(|params| {
                    Intake::Local(ToolChoice {
                        tool_name,
                        params: params.unwrap_or_default(),
                    })
                }),
                None => Err("the model names no tool"),
            },
            "REMOTE" => remote_agent(object).map(|agent| Intake::Remote { agent }),
            _ => Ok(Intake::Reject {
                reason: reason_or_default(&object.text("reason").unwrap_or_default()),
            }),
        })
    }
}
