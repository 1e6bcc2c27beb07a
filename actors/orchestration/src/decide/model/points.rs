//! Prompts and answers of each point.

use callboard_message::{RawObject, TaskState};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::prompt::{Fill, Material, PROMPT_TOKENS_MAX, one_line, without_middle};
use super::read::{Line, PromptSpec, Read, bare, sentence, word_of};
use crate::decide::limits::STEPS_MAX;
use crate::decide::{
    Action, Clarity, Confirm, ConfirmWhy, DecideClarity, DecideConfirm, DecideFollowUp,
    DecideRecovery, DecideRoute, DecideSplit, DecideTool, FollowUp, MakeSteps, Recovery, Route,
    Split, StepDefinition, StepPlan, StepReport, Synthesis, Synthesize, ToolChoice, Turn, World,
    told_instead,
};

/// Longest reason of a rejection, in characters.
const REASON_CHARS_MAX: usize = 500;
/// Longest question, in characters: more than is let pass, so that a longer one is seen to be.
const QUESTION_CHARS_READ: usize = 1_000;
/// Ids that a schema lists.
const IDS_LISTED_MAX: usize = 64;
/// Reason given where the model rejects without one: a request must not be done for want of a reason.
const NO_REASON: &str = "This request was refused.";
/// Longest question or reason of a recovery, in characters.
const MESSAGE_CHARS_MAX: usize = 500;
/// Bytes of all results together that a synthesis is shown: less than the whole prompt.
const RESULTS_BYTES_MAX: usize = PROMPT_TOKENS_MAX * 3;

const STRATEGIES: [&str; 5] = [
    "RETRY_SAME",
    "RETRY_MODIFIED",
    "USE_ALTERNATIVE",
    "ASK_HUMAN",
    "ABANDON",
];
const UNKNOWN_WORD: &str = "the model's answer isn't one of the words that it had to choose from";
const NO_PARAMS_OBJECT: &str = "the model's parameters are no object";

/// Schema of an object with these members and `confidence`, those in `required` needed.
fn shape(members: &[(&str, Value)], required: &[&str]) -> Value {
    let mut properties: serde_json::Map<String, Value> = members
        .iter()
        .map(|(name, schema)| ((*name).to_owned(), schema.clone()))
        .collect();
    properties
        .entry("confidence")
        .or_insert(json!({ "type": "number", "minimum": 0, "maximum": 1 }));
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

fn one_of(words: &[&str]) -> Value {
    json!({ "type": "string", "enum": words })
}

fn string() -> Value {
    json!({ "type": "string" })
}

/// The outcome that a word stands for.
fn by_word<T>(word: &str, outcomes: [(&str, T); 2]) -> Read<T> {
    let word = word_of(word);
    outcomes
        .into_iter()
        .find(|(known, _)| *known == word)
        .map(|(_, outcome)| outcome)
        .ok_or(UNKNOWN_WORD)
}

fn params_of(object: &RawObject) -> Read<Option<RawObject>> {
    object
        .get("params")
        .map(RawObject::parse)
        .transpose()
        .map_err(|_| NO_PARAMS_OBJECT)
}

/// A request with all who could do it.
fn in_world(request: &str, world: &World, history: &[Turn]) -> Material {
    let (tools, agents) = (world.tools.clone(), world.agents.clone());
    Material {
        history: history.to_vec(),
        tools,
        agents,
        ..Material::said(request)
    }
}

impl PromptSpec for DecideFollowUp {
    const TOKENS_MAX: u32 = 256;

    fn material(&self) -> Material {
        let mut material = Material {
            history: self.history.clone(),
            ..Material::said(&self.message)
        };
        material.texts.push(("reason", self.reason.clone()));
        material
    }

    fn schema(&self) -> Value {
        let words = one_of(&["HANDLE_DIRECTLY", "NEED_HUMAN_INPUT"]);
        shape(
            &[("decision", words), ("question", string())],
            &["decision"],
        )
    }

    fn object(&self, object: &RawObject) -> Option<Read<FollowUp>> {
        let question = object
            .text("question")
            .filter(|question| !question.trim().is_empty());
        let outcome = match &*word_of(&object.text("decision")?) {
            "HANDLE_DIRECTLY" => FollowUp::HandleDirectly,
            "NEED_HUMAN_INPUT" => FollowUp::NeedHumanInput {
                question: question.map(|text| sentence(&text, QUESTION_CHARS_READ)),
            },
            _ => return Some(Err(UNKNOWN_WORD)),
        };
        Some(Ok(outcome))
    }

    fn lines(&self, lines: &[Line]) -> Vec<Read<FollowUp>> {
        let asked = lines.iter().find_map(|line| {
            line.value("QUESTION")
                .or_else(|| line.value("NEED_HUMAN_INPUT"))
        });
        let asked = asked.map(|question| sentence(question, QUESTION_CHARS_READ));
        let question = asked.filter(|question| !question.is_empty());
        let outcome = |line: &Line| match () {
            () if line.is("HANDLE_DIRECTLY") => Some(FollowUp::HandleDirectly),
            () if line.is("NEED_HUMAN_INPUT") || line.value("NEED_HUMAN_INPUT").is_some() => {
                Some(FollowUp::NeedHumanInput {
                    question: question.clone(),
                })
            }
            () => None,
        };
        lines.iter().filter_map(outcome).map(Ok).collect()
    }
}

impl PromptSpec for DecideClarity {
    const TOKENS_MAX: u32 = 256;

    fn material(&self) -> Material {
        Material {
            history: self.history.clone(),
            ..Material::said(&self.request)
        }
    }

    fn schema(&self) -> Value {
        shape(
            &[
                ("clarity", one_of(&["CLEAR", "NEEDS_CLARIFY"])),
                ("question", string()),
            ],
            &["clarity"],
        )
    }

    fn object(&self, object: &RawObject) -> Option<Read<Clarity>> {
        Some(clarity(
            &object.text("clarity")?,
            object.text("question").as_deref(),
        ))
    }

    fn lines(&self, lines: &[Line]) -> Vec<Read<Clarity>> {
        let question = lines.iter().find_map(|line| line.value("QUESTION"));
        let is_word = |line: &&Line| line.is("CLEAR") || line.is("NEEDS_CLARIFY");
        let bare_words = lines.iter().filter(is_word).map(Line::text);
        let words = lines
            .iter()
            .filter_map(|line| line.value("CLARITY"))
            .chain(bare_words);
        words.map(|word| clarity(word, question)).collect()
    }
}

fn clarity(word: &str, question: Option<&str>) -> Read<Clarity> {
    match &*word_of(word) {
        "CLEAR" => Ok(Clarity::Clear),
        "NEEDS_CLARIFY" => {
            let question = question
                .map(|question| sentence(question, QUESTION_CHARS_READ))
                .unwrap_or_default();
            match question.is_empty() {
                true => Err("the model wants to ask something and doesn't say what"),
                false => Ok(Clarity::NeedsClarify { question }),
            }
        }
        _ => Err(UNKNOWN_WORD),
    }
}

impl PromptSpec for DecideSplit {
    const TOKENS_MAX: u32 = 256;

    fn material(&self) -> Material {
        in_world(&self.request, &self.world, &self.history)
    }

    fn schema(&self) -> Value {
        shape(
            &[
                ("should_decompose", one_of(&["YES", "NO"])),
                ("reason", string()),
            ],
            &["should_decompose"],
        )
    }

    fn object(&self, object: &RawObject) -> Option<Read<Split>> {
        let said = match object.read::<bool>("should_decompose") {
            Some(true) => "YES".to_owned(),
            Some(false) => "NO".to_owned(),
            None => object.text("should_decompose")?,
        };
        Some(split(&said))
    }

    fn lines(&self, lines: &[Line]) -> Vec<Read<Split>> {
        lines
            .iter()
            .filter_map(|line| line.value("SHOULD_DECOMPOSE"))
            .map(split)
            .collect()
    }
}

fn split(word: &str) -> Read<Split> {
    by_word(word, [("YES", Split::Yes), ("NO", Split::No)])
}

impl PromptSpec for MakeSteps {
    const TOKENS_MAX: u32 = 2_048;

    fn material(&self) -> Material {
        in_world(&self.request, &self.world, &[])
    }

    fn schema(&self) -> Value {
        let needs = json!({ "type": "object", "properties": { "depends_on": { "type": "array", "items": string() } },
            "required": ["depends_on"], "additionalProperties": false });
        let step = json!({ "type": "object", "properties": { "id": string(), "input_message": string(), "metadata": needs },
            "required": ["id", "input_message", "metadata"], "additionalProperties": false });
        let steps = json!({ "type": "array", "items": step, "minItems": 1, "maxItems": STEPS_MAX });
        shape(&[("steps", steps)], &["steps"])
    }

    fn object(&self, object: &RawObject) -> Option<Read<StepPlan>> {
        Some(plan(object.get("steps")?))
    }

    fn list(&self, list: &RawValue) -> Option<Read<StepPlan>> {
        Some(plan(list))
    }
}

fn plan(steps: &RawValue) -> Read<StepPlan> {
    let steps: Vec<StepDefinition> = serde_json::from_str(steps.get())
        .map_err(|_| "a step of the model's plan hasn't exactly the keys of one")?;
    StepPlan::checked(steps).map_err(
        |_| "the model's plan has no step, too many, or steps that can't follow each other",
    )
}

impl PromptSpec for DecideRoute {
    const TOKENS_MAX: u32 = 512;
    const HAS_REASON_LINE: bool = false;

    fn material(&self) -> Material {
        in_world(&self.request, &self.world, &self.history)
    }

    fn schema(&self) -> Value {
        let ids: Vec<&str> = self.world.agents.iter().map(|agent| &*agent.id).collect();
        let agent_id = if (1..=IDS_LISTED_MAX).contains(&ids.len()) {
            one_of(&ids)
        } else {
            string()
        };
        let words = one_of(&["LOCAL", "REMOTE", "REJECT"]);
        shape(
            &[
                ("decision", words),
                ("agent_id", agent_id),
                ("reason", string()),
            ],
            &["decision"],
        )
    }

    fn object(&self, object: &RawObject) -> Option<Read<Route>> {
        let outcome = match &*word_of(&object.text("decision")?) {
            "LOCAL" => Route::Local,
            "REMOTE" => match object.text("agent_id") {
                Some(agent) => Route::Remote { agent },
                None => return Some(Err("the model names no agent")),
            },
            "REJECT" => Route::Reject {
                reason: reason(&object.text("reason").unwrap_or_default()),
            },
            _ => return Some(Err(UNKNOWN_WORD)),
        };
        Some(Ok(outcome))
    }

    fn lines(&self, lines: &[Line]) -> Vec<Read<Route>> {
        let mut found: Vec<Read<Route>> = Vec::new();
        for line in lines {
            let answer = match line {
                line if line.is("LOCAL") => Ok(Route::Local),
                line if line.is("REJECT") => Ok(Route::Reject {
                    reason: String::new(),
                }),
                line => match (
                    line.value("REMOTE").map(bare),
                    line.value("REJECT").map(bare),
                ) {
                    (Some(""), _) => Err("the model names no agent"),
                    (Some(agent), _) => Ok(Route::Remote {
                        agent: agent.to_owned(),
                    }),
                    (None, Some(reason)) => Ok(Route::Reject {
                        reason: reason.to_owned(),
                    }),
                    (None, None) => {
                        // A reason may go on in the lines behind it.
                        if let Some(Ok(Route::Reject { reason })) = found.last_mut()
                            && line.value("CONFIDENCE").is_none()
                        {
                            reason.push(' ');
                            reason.push_str(line.text());
                        }
                        continue;
                    }
                },
            };
            found.push(answer);
        }
        for answer in found.iter_mut().flatten() {
            if let Route::Reject { reason: said } = answer {
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

impl PromptSpec for DecideTool {
    const TOKENS_MAX: u32 = 2_048;

    fn material(&self) -> Material {
        Material {
            history: self.history.clone(),
            tools: self.tools.clone(),
            with_params: true,
            ..Material::said(&self.request)
        }
    }

    fn schema(&self) -> Value {
        let names: Vec<&str> = self.tools.iter().map(|tool| &*tool.name).collect();
        let tool_name = if names.is_empty() {
            string()
        } else {
            one_of(&names)
        };
        shape(
            &[
                ("tool_name", tool_name),
                ("params", json!({ "type": "object" })),
            ],
            &["tool_name", "params"],
        )
    }

    fn object(&self, object: &RawObject) -> Option<Read<ToolChoice>> {
        let tool_name = object.text("tool_name")?;
        Some(params_of(object).map(|params| ToolChoice {
            tool_name,
            params: params.unwrap_or_default(),
        }))
    }
}

fn yes_or_no(value: bool) -> Fill {
    Fill::Bare(if value { "yes" } else { "no" }.to_owned())
}

impl PromptSpec for DecideRecovery {
    const TOKENS_MAX: u32 = 1_024;

    fn material(&self) -> Material {
        let ids = |ids: &[String]| {
            Fill::Data(
                ids.iter()
                    .map(|id| format!("- {id}"))
                    .collect::<Vec<_>>()
                    .join("\n"),
            )
        };
        let action = serde_json::to_string(&self.action).unwrap_or_default();
        Material {
            subject: self.root_goal.clone(),
            texts: vec![
                ("root_goal", self.root_goal.clone()),
                ("action_json", action),
                ("err_string", one_line(&self.error, MESSAGE_CHARS_MAX)),
            ],
            fixed: vec![
                (
                    "task_id",
                    Fill::Bare(one_line(&self.task_id, MESSAGE_CHARS_MAX)),
                ),
                ("attempts", Fill::Bare(self.attempts.to_string())),
                ("may_ask", yes_or_no(self.may_ask)),
                ("class", Fill::Bare(self.class.to_string())),
                ("list", ids(&self.tools)),
                ("list", ids(&self.agents)),
            ],
            ..Material::default()
        }
    }

    fn schema(&self) -> Value {
        let mut words = vec!["RETRY_SAME", "RETRY_MODIFIED", "USE_ALTERNATIVE", "ABANDON"];
        if self.may_ask {
            words.push("ASK_HUMAN");
        }
        shape(
            &[
                ("strategy", one_of(&words)),
                ("params", json!({ "type": "object" })),
            ],
            &["strategy", "params"],
        )
    }

    fn object(&self, object: &RawObject) -> Option<Read<Recovery>> {
        let strategy = word_of(&object.text("strategy")?);
        Some(params_of(object).and_then(|params| self.strategy(&strategy, params, None)))
    }

    fn lines(&self, lines: &[Line]) -> Vec<Read<Recovery>> {
        let strategy = |line: &Line| {
            let text = line.text();
            let end = text
                .find(|c: char| !c.is_ascii_alphabetic() && c != '_')
                .unwrap_or(text.len());
            let (word, behind) = text.split_at_checked(end)?;
            let word = word.to_uppercase();
            if !STRATEGIES.contains(&&*word) {
                return None;
            }
            let behind = behind.trim_start_matches(':').trim();
            let params = serde_json::from_str::<RawObject>(behind).ok();
            let said = Some(bare(behind)).filter(|said| params.is_none() && !said.is_empty());
            Some(self.strategy(&word, params, said))
        };
        lines.iter().filter_map(strategy).collect()
    }
}

impl DecideRecovery {
    /// The strategy of that name; `said`: what stands behind it in words.
    fn strategy(
        &self,
        name: &str,
        params: Option<RawObject>,
        said: Option<&str>,
    ) -> Read<Recovery> {
        let text = |member: &str| {
            params
                .as_ref()
                .and_then(|params| params.text(member))
                .or(said.map(str::to_owned))
        };
        let said = |member: &str| {
            text(member)
                .map(|text| sentence(&text, MESSAGE_CHARS_MAX))
                .unwrap_or_default()
        };
        Ok(match name {
            "RETRY_SAME" => Recovery::RetrySame,
            "RETRY_MODIFIED" => match (&self.action, params) {
                (_, None) => return Err("the model gives no parameters"),
                (Action::Remote { .. }, Some(params)) if told_instead(&params).is_none() => {
                    return Err("an agent is told one text");
                }
                (_, Some(params)) => Recovery::RetryModified { params },
            },
            "USE_ALTERNATIVE" => match text("which") {
                Some(which) => Recovery::UseAlternative { which },
                None => return Err("the model names nobody else"),
            },
            "ASK_HUMAN" => match said("message") {
                none if none.is_empty() => {
                    return Err("the model wants to ask something and doesn't say what");
                }
                message => Recovery::AskHuman { message },
            },
            "ABANDON" => match said("reason") {
                none if none.is_empty() => Recovery::Abandon {
                    reason: self.error.clone(),
                },
                reason => Recovery::Abandon { reason },
            },
            _ => return Err(UNKNOWN_WORD),
        })
    }
}

impl PromptSpec for Synthesize {
    const TOKENS_MAX: u32 = 4_096;

    fn material(&self) -> Material {
        let bytes_max = RESULTS_BYTES_MAX / self.results.len().max(1);
        let line = |report: &StepReport| {
            let text = without_middle(&report.text, bytes_max).unwrap_or_default();
            let state = match report.state {
                TaskState::Completed => String::new(),
                state => format!(" [{state}]"),
            };
            format!(
                "- {} by {}{state}: {}\n  {}",
                report.id,
                report.by,
                one_line(&report.goal, MESSAGE_CHARS_MAX),
                text
            )
        };
        let results = self.results.iter().map(line).collect::<Vec<_>>().join("\n");
        Material {
            subject: self.goal.clone(),
            texts: vec![
                ("original_goal", self.goal.clone()),
                ("bullet_point_each_subtask_with_key_findings", results),
            ],
            ..Material::default()
        }
    }

    fn schema(&self) -> Value {
        shape(
            &[("final_answer", string()), ("notes", string())],
            &["final_answer", "confidence"],
        )
    }

    fn object(&self, object: &RawObject) -> Option<Read<Synthesis>> {
        let final_answer = object.text("final_answer")?;
        // Without it nobody would be asked where it is low.
        let Some(confidence) = object.read::<f32>("confidence") else {
            return Some(Err("the model doesn't say how sure it is"));
        };
        let notes = object
            .text("notes")
            .filter(|notes| !notes.trim().is_empty());
        Some(Ok(Synthesis {
            final_answer,
            confidence,
            notes,
        }))
    }
}

impl PromptSpec for DecideConfirm {
    const TOKENS_MAX: u32 = 256;

    fn material(&self) -> Material {
        let action = serde_json::to_string_pretty(&self.action).unwrap_or_default();
        let why = match self.why {
            ConfirmWhy::Confidence => "the answer isn't sure enough",
            ConfirmWhy::Risk => "the action may do harm",
            ConfirmWhy::Cost => "it may cost more than was meant",
        };
        Material {
            subject: serde_json::to_string(&self.action).unwrap_or_default(),
            texts: vec![("json_dump_action", action)],
            fixed: vec![
                ("why", Fill::Bare(why.to_owned())),
                ("numeric", Fill::Bare(format!("{:.2}", self.risk))),
                ("bool", yes_or_no(self.preference_known)),
            ],
            ..Material::default()
        }
    }

    fn schema(&self) -> Value {
        let words = one_of(&["CONFIRM_NEEDED", "SAFE_TO_PROCEED"]);
        shape(
            &[("confirmation", words), ("justification", string())],
            &["confirmation"],
        )
    }

    fn object(&self, object: &RawObject) -> Option<Read<Confirm>> {
        Some(confirm(&object.text("confirmation")?))
    }

    fn lines(&self, lines: &[Line]) -> Vec<Read<Confirm>> {
        lines
            .iter()
            .filter_map(|line| line.value("CONFIRMATION"))
            .map(confirm)
            .collect()
    }
}

fn confirm(word: &str) -> Read<Confirm> {
    by_word(
        word,
        [
            ("CONFIRM_NEEDED", Confirm::ConfirmNeeded),
            ("SAFE_TO_PROCEED", Confirm::SafeToProceed),
        ],
    )
}
