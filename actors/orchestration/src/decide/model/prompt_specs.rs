//! Prompt data, answer schema and answer parser of each decision point.

use callboard_message::{RawObject, TaskState};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::answer_parser::{
    AnswerLine, ParseResult, PromptSpec, normalize_word, strip_quotes, to_single_line,
};
use super::prompt::{PROMPT_TOKENS_MAX, PlaceholderValue, PromptData, cut_middle, one_line};
use crate::decide::limits::STEPS_MAX;
use crate::decide::{
    Action, Clarity, Confirm, ConfirmReason, DecideClarity, DecideConfirm, DecideFollowUp,
    DecideRecovery, DecideRoute, DecideSplit, DecideTool, FollowUp, MakeSteps, Recovery, Route,
    RoutingContext, Split, StepDefinition, StepPlan, StepReport, Synthesis, Synthesize, ToolChoice,
    Turn, replacement_text,
};

/// Maximum characters of a model's reason for rejecting a request. A longer one is cut.
const REASON_CHARS_MAX: usize = 500;
/// Maximum characters kept of a model's clarifying question. This exceeds the limit for such
/// questions, so that validation rejects a question that is too long instead of accepting a cut
/// one.
const QUESTION_CHARS_READ: usize = 1_000;
/// Maximum agent ids listed as choices in the JSON Schema of a route. With more agents, the schema
/// allows any text.
const SCHEMA_IDS_MAX: usize = 64;
/// Reason for a rejection to which the model gave no reason. A missing reason must not turn a
/// rejection into an approval.
const DEFAULT_REASON: &str = "This request was refused.";
/// Maximum characters of the question or reason in a recovery strategy. A longer one is cut.
const MESSAGE_CHARS_MAX: usize = 500;
/// Maximum bytes of all step results in a synthesis prompt: three quarters of the prompt limit.
const RESULTS_BYTES_MAX: usize = PROMPT_TOKENS_MAX * 3;

const STRATEGIES: [&str; 5] = [
    "RETRY_SAME",
    "RETRY_MODIFIED",
    "USE_ALTERNATIVE",
    "ASK_HUMAN",
    "ABANDON",
];
pub(super) const UNKNOWN_CHOICE: &str =
    "the model's answer isn't one of the words that it had to choose from";
const PARAMS_NOT_OBJECT: &str = "the model's parameters are no object";

/// Builds the JSON Schema of an object with these members and an optional `confidence`. Other
/// members aren't allowed. `required` has the names of the required members.
pub(super) fn object_schema(members: &[(&str, Value)], required: &[&str]) -> Value {
    let mut properties: serde_json::Map<String, Value> = members
        .iter()
        .map(|(name, schema)| ((*name).to_owned(), schema.clone()))
        .collect();
    properties
        .entry("confidence")
        .or_insert(json!({ "type": "number", "minimum": 0, "maximum": 1 }));
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

pub(super) fn enum_schema(words: &[&str]) -> Value {
    json!({ "type": "string", "enum": words })
}

pub(super) fn string_schema() -> Value {
    json!({ "type": "string" })
}

/// Returns the outcome named by a word, ignoring case and quotes, or an error for any other word.
/// The names in `outcomes` are in upper case.
fn outcome_by_word<T>(word: &str, outcomes: [(&str, T); 2]) -> ParseResult<T> {
    let word = normalize_word(word);
    outcomes
        .into_iter()
        .find(|(known, _)| *known == word)
        .map(|(_, outcome)| outcome)
        .ok_or(UNKNOWN_CHOICE)
}

pub(super) fn parse_params(object: &RawObject) -> ParseResult<Option<RawObject>> {
    object
        .get("params")
        .map(RawObject::parse)
        .transpose()
        .map_err(|_| PARAMS_NOT_OBJECT)
}

/// Collects the prompt data for routing a request, with all tools and agents.
pub(super) fn routing_prompt_data(
    request: &str,
    world: &RoutingContext,
    history: &[Turn],
) -> PromptData {
    let (tools, agents) = (world.tools.clone(), world.agents.clone());
    PromptData {
        history: history.to_vec(),
        tools,
        agents,
        ..PromptData::for_request(request)
    }
}

impl PromptSpec for DecideFollowUp {
    const TOKENS_MAX: u32 = 256;

    fn prompt_data(&self) -> PromptData {
        let mut material = PromptData {
            history: self.history.clone(),
            ..PromptData::for_request(&self.message)
        };
        material.texts.push(("reason", self.reason.clone()));
        material
    }

    fn schema(&self) -> Value {
        let words = enum_schema(&["HANDLE_DIRECTLY", "NEED_HUMAN_INPUT"]);
        object_schema(
            &[("decision", words), ("question", string_schema())],
            &["decision"],
        )
    }

    fn parse_object(&self, object: &RawObject) -> Option<ParseResult<FollowUp>> {
        let question = object
            .text("question")
            .filter(|question| !question.trim().is_empty());
        let outcome = match &*normalize_word(&object.text("decision")?) {
            "HANDLE_DIRECTLY" => FollowUp::HandleDirectly,
            "NEED_HUMAN_INPUT" => FollowUp::NeedHumanInput {
                question: question.map(|text| to_single_line(&text, QUESTION_CHARS_READ)),
            },
            _ => return Some(Err(UNKNOWN_CHOICE)),
        };
        Some(Ok(outcome))
    }

    fn parse_lines(&self, lines: &[AnswerLine]) -> Vec<ParseResult<FollowUp>> {
        let asked = lines.iter().find_map(|line| {
            line.value("QUESTION")
                .or_else(|| line.value("NEED_HUMAN_INPUT"))
        });
        let asked = asked.map(|question| to_single_line(question, QUESTION_CHARS_READ));
        let question = asked.filter(|question| !question.is_empty());
        let outcome = |line: &AnswerLine| match () {
            () if line.is_word("HANDLE_DIRECTLY") => Some(FollowUp::HandleDirectly),
            () if line.is_word("NEED_HUMAN_INPUT") || line.value("NEED_HUMAN_INPUT").is_some() => {
                Some(FollowUp::NeedHumanInput {
                    question: question.clone(),
                })
            }
            () => None,
        };
        lines.iter().filter_map(outcome).map(Ok).collect()
    }
}

/// Returns the agent that an object in a model's answer names.
pub(super) fn remote_agent(object: &RawObject) -> ParseResult<String> {
    object.text("agent_id").ok_or("the model names no agent")
}

pub(super) fn agent_id_schema(world: &RoutingContext) -> Value {
    let ids: Vec<&str> = world.agents.iter().map(|agent| &*agent.id).collect();
    match ids.len() {
        1..=SCHEMA_IDS_MAX => enum_schema(&ids),
        _ => string_schema(),
    }
}

pub(super) fn name_schema(names: &[&str]) -> Value {
    match names {
        [] => string_schema(),
        names => enum_schema(names),
    }
}

pub(super) fn steps_schema() -> Value {
    let needs = json!({ "type": "object", "properties": { "depends_on": { "type": "array", "items": string_schema() } },
        "required": ["depends_on"], "additionalProperties": false });
    let step = json!({ "type": "object", "properties": { "id": string_schema(), "input_message": string_schema(), "metadata": needs },
        "required": ["id", "input_message", "metadata"], "additionalProperties": false });
    json!({ "type": "array", "items": step, "minItems": 1, "maxItems": STEPS_MAX })
}

impl PromptSpec for DecideClarity {
    const TOKENS_MAX: u32 = 256;

    fn prompt_data(&self) -> PromptData {
        PromptData {
            history: self.history.clone(),
            ..PromptData::for_request(&self.request)
        }
    }

    fn schema(&self) -> Value {
        object_schema(
            &[
                ("clarity", enum_schema(&["CLEAR", "NEEDS_CLARIFY"])),
                ("question", string_schema()),
            ],
            &["clarity"],
        )
    }

    fn parse_object(&self, object: &RawObject) -> Option<ParseResult<Clarity>> {
        Some(parse_clarity(
            &object.text("clarity")?,
            object.text("question").as_deref(),
        ))
    }

    fn parse_lines(&self, lines: &[AnswerLine]) -> Vec<ParseResult<Clarity>> {
        let question = lines.iter().find_map(|line| line.value("QUESTION"));
        let is_word = |line: &&AnswerLine| line.is_word("CLEAR") || line.is_word("NEEDS_CLARIFY");
        let bare_words = lines.iter().filter(is_word).map(AnswerLine::text);
        let words = lines
            .iter()
            .filter_map(|line| line.value("CLARITY"))
            .chain(bare_words);
        words.map(|word| parse_clarity(word, question)).collect()
    }
}

pub(super) fn parse_clarity(word: &str, question: Option<&str>) -> ParseResult<Clarity> {
    match &*normalize_word(word) {
        "CLEAR" => Ok(Clarity::Clear),
        "NEEDS_CLARIFY" => {
            let question = question
                .map(|question| to_single_line(question, QUESTION_CHARS_READ))
                .unwrap_or_default();
            match question.is_empty() {
                true => Err("the model wants to ask something and doesn't say what"),
                false => Ok(Clarity::NeedsClarify { question }),
            }
        }
        _ => Err(UNKNOWN_CHOICE),
    }
}

impl PromptSpec for DecideSplit {
    const TOKENS_MAX: u32 = 256;

    fn prompt_data(&self) -> PromptData {
        routing_prompt_data(&self.request, &self.world, &self.history)
    }

    fn schema(&self) -> Value {
        object_schema(
            &[
                ("should_decompose", enum_schema(&["YES", "NO"])),
                ("reason", string_schema()),
            ],
            &["should_decompose"],
        )
    }

    fn parse_object(&self, object: &RawObject) -> Option<ParseResult<Split>> {
        let said = match object.read::<bool>("should_decompose") {
            Some(true) => "YES".to_owned(),
            Some(false) => "NO".to_owned(),
            None => object.text("should_decompose")?,
        };
        Some(parse_split(&said))
    }

    fn parse_lines(&self, lines: &[AnswerLine]) -> Vec<ParseResult<Split>> {
        lines
            .iter()
            .filter_map(|line| line.value("SHOULD_DECOMPOSE"))
            .map(parse_split)
            .collect()
    }
}

fn parse_split(word: &str) -> ParseResult<Split> {
    outcome_by_word(word, [("YES", Split::Yes), ("NO", Split::No)])
}

impl PromptSpec for MakeSteps {
    const TOKENS_MAX: u32 = 2_048;

    fn prompt_data(&self) -> PromptData {
        routing_prompt_data(&self.request, &self.world, &[])
    }

    fn schema(&self) -> Value {
        object_schema(&[("steps", steps_schema())], &["steps"])
    }

    fn parse_object(&self, object: &RawObject) -> Option<ParseResult<StepPlan>> {
        Some(parse_plan(object.get("steps")?))
    }

    fn parse_list(&self, list: &RawValue) -> Option<ParseResult<StepPlan>> {
        Some(parse_plan(list))
    }
}

pub(super) fn parse_plan(steps: &RawValue) -> ParseResult<StepPlan> {
    let steps: Vec<StepDefinition> = serde_json::from_str(steps.get())
        .map_err(|_| "a step of the model's plan has missing or unknown keys")?;
    StepPlan::try_new(steps).map_err(
        |_| "the model's plan has no step, too many, or steps with invalid ids, inputs or dependencies",
    )
}

impl PromptSpec for DecideRoute {
    const TOKENS_MAX: u32 = 512;
    const HAS_REASON_LINE: bool = false;

    fn prompt_data(&self) -> PromptData {
        routing_prompt_data(&self.request, &self.world, &self.history)
    }

    fn schema(&self) -> Value {
        let words = enum_schema(&["LOCAL", "REMOTE", "REJECT"]);
        object_schema(
            &[
                ("decision", words),
                ("agent_id", agent_id_schema(&self.world)),
                ("reason", string_schema()),
            ],
            &["decision"],
        )
    }

    fn parse_object(&self, object: &RawObject) -> Option<ParseResult<Route>> {
        let outcome = match &*normalize_word(&object.text("decision")?) {
            "LOCAL" => Route::Local,
            "REMOTE" => match remote_agent(object) {
                Ok(agent) => Route::Remote { agent },
                Err(why) => return Some(Err(why)),
            },
            "REJECT" => Route::Reject {
                reason: reason_or_default(&object.text("reason").unwrap_or_default()),
            },
            _ => return Some(Err(UNKNOWN_CHOICE)),
        };
        Some(Ok(outcome))
    }

    fn parse_lines(&self, lines: &[AnswerLine]) -> Vec<ParseResult<Route>> {
        let mut found: Vec<ParseResult<Route>> = Vec::new();
        for line in lines {
            let answer = match line {
                line if line.is_word("LOCAL") => Ok(Route::Local),
                line if line.is_word("REJECT") => Ok(Route::Reject {
                    reason: String::new(),
                }),
                line => match (
                    line.value("REMOTE").map(strip_quotes),
                    line.value("REJECT").map(strip_quotes),
                ) {
                    (Some(""), _) => Err("the model names no agent"),
                    (Some(agent), _) => Ok(Route::Remote {
                        agent: agent.to_owned(),
                    }),
                    (None, Some(reason)) => Ok(Route::Reject {
                        reason: reason.to_owned(),
                    }),
                    (None, None) => {
                        // The reason may continue on further lines.
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
                *said = reason_or_default(said);
            }
        }
        found
    }
}

pub(super) fn reason_or_default(said: &str) -> String {
    match to_single_line(said, REASON_CHARS_MAX) {
        none if none.is_empty() => DEFAULT_REASON.to_owned(),
        reason => reason,
    }
}

impl PromptSpec for DecideTool {
    const TOKENS_MAX: u32 = 2_048;

    fn prompt_data(&self) -> PromptData {
        PromptData {
            history: self.history.clone(),
            tools: self.tools.clone(),
            with_params: true,
            ..PromptData::for_request(&self.request)
        }
    }

    fn schema(&self) -> Value {
        let names: Vec<&str> = self.tools.iter().map(|tool| &*tool.name).collect();
        object_schema(
            &[
                ("tool_name", name_schema(&names)),
                ("params", json!({ "type": "object" })),
            ],
            &["tool_name", "params"],
        )
    }

    fn parse_object(&self, object: &RawObject) -> Option<ParseResult<ToolChoice>> {
        let tool_name = object.text("tool_name")?;
        Some(parse_params(object).map(|params| ToolChoice {
            tool_name,
            params: params.unwrap_or_default(),
        }))
    }
}

fn yes_or_no(value: bool) -> PlaceholderValue {
    PlaceholderValue::Trusted(if value { "yes" } else { "no" }.to_owned())
}

impl PromptSpec for DecideRecovery {
    const TOKENS_MAX: u32 = 1_024;

    fn prompt_data(&self) -> PromptData {
        let ids = |ids: &[String]| {
            PlaceholderValue::Untrusted(
                ids.iter()
                    .map(|id| format!("- {id}"))
                    .collect::<Vec<_>>()
                    .join("\n"),
            )
        };
        let action = serde_json::to_string(&self.action).unwrap_or_default();
        PromptData {
            subject: self.root_goal.clone(),
            texts: vec![
                ("root_goal", self.root_goal.clone()),
                ("action_json", action),
                ("err_string", one_line(&self.error, MESSAGE_CHARS_MAX)),
            ],
            fixed_values: vec![
                (
                    "task_id",
                    PlaceholderValue::Trusted(one_line(&self.task_id, MESSAGE_CHARS_MAX)),
                ),
                (
                    "attempts",
                    PlaceholderValue::Trusted(self.attempts.to_string()),
                ),
                ("may_ask", yes_or_no(self.may_ask)),
                ("class", PlaceholderValue::Trusted(self.class.to_string())),
                ("list", ids(&self.tools)),
                ("list", ids(&self.agents)),
            ],
            ..PromptData::default()
        }
    }

    fn schema(&self) -> Value {
        let mut words = vec!["RETRY_SAME", "RETRY_MODIFIED", "USE_ALTERNATIVE", "ABANDON"];
        if self.may_ask {
            words.push("ASK_HUMAN");
        }
        object_schema(
            &[
                ("strategy", enum_schema(&words)),
                ("params", json!({ "type": "object" })),
            ],
            &["strategy", "params"],
        )
    }

    fn parse_object(&self, object: &RawObject) -> Option<ParseResult<Recovery>> {
        let strategy = normalize_word(&object.text("strategy")?);
        Some(parse_params(object).and_then(|params| self.parse_strategy(&strategy, params, None)))
    }

    fn parse_lines(&self, lines: &[AnswerLine]) -> Vec<ParseResult<Recovery>> {
        let strategy = |line: &AnswerLine| {
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
            let said =
                Some(strip_quotes(behind)).filter(|said| params.is_none() && !said.is_empty());
            Some(self.parse_strategy(&word, params, said))
        };
        lines.iter().filter_map(strategy).collect()
    }
}

impl DecideRecovery {
    /// Builds the recovery strategy `name`. `said` is the text behind the strategy's name in a
    /// plain-text answer. Returns an error for an unknown name, or if a text or parameters that the
    /// strategy needs are missing.
    fn parse_strategy(
        &self,
        name: &str,
        params: Option<RawObject>,
        said: Option<&str>,
    ) -> ParseResult<Recovery> {
        let text = |member: &str| {
            params
                .as_ref()
                .and_then(|params| params.text(member))
                .or(said.map(str::to_owned))
        };
        let said = |member: &str| {
            text(member)
                .map(|text| to_single_line(&text, MESSAGE_CHARS_MAX))
                .unwrap_or_default()
        };
        Ok(match name {
            "RETRY_SAME" => Recovery::RetrySame,
            "RETRY_MODIFIED" => match (&self.action, params) {
                (_, None) => {
                    return Err("the model chooses RETRY_MODIFIED and gives no parameters");
                }
                (Action::Remote { .. }, Some(params)) if replacement_text(&params).is_none() => {
                    return Err(
                        "the model gives new parameters for an agent, which takes one text",
                    );
                }
                (_, Some(params)) => Recovery::RetryModified { params },
            },
            "USE_ALTERNATIVE" => match text("which") {
                Some(which) => Recovery::UseAlternative { which },
                None => return Err("the model chooses USE_ALTERNATIVE and names none"),
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
            _ => return Err(UNKNOWN_CHOICE),
        })
    }
}

impl PromptSpec for Synthesize {
    const TOKENS_MAX: u32 = 4_096;

    fn prompt_data(&self) -> PromptData {
        let bytes_max = RESULTS_BYTES_MAX / self.results.len().max(1);
        let line = |report: &StepReport| {
            let text = cut_middle(&report.text, bytes_max).unwrap_or_default();
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
        PromptData {
            subject: self.goal.clone(),
            texts: vec![
                ("original_goal", self.goal.clone()),
                ("bullet_point_each_subtask_with_key_findings", results),
            ],
            ..PromptData::default()
        }
    }

    fn schema(&self) -> Value {
        object_schema(
            &[
                ("final_answer", string_schema()),
                ("notes", string_schema()),
            ],
            &["final_answer", "confidence"],
        )
    }

    fn parse_object(&self, object: &RawObject) -> Option<ParseResult<Synthesis>> {
        let final_answer = object.text("final_answer")?;
        // Required, because a synthesis without confidence would never be confirmed.
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

    fn prompt_data(&self) -> PromptData {
        let action = serde_json::to_string_pretty(&self.action).unwrap_or_default();
        let why = match self.why {
            ConfirmReason::Confidence => "the answer isn't sure enough",
            ConfirmReason::Risk => "the action may do harm",
            ConfirmReason::Cost => "it may cost more than was meant",
        };
        PromptData {
            subject: serde_json::to_string(&self.action).unwrap_or_default(),
            texts: vec![("json_dump_action", action)],
            fixed_values: vec![
                ("why", PlaceholderValue::Trusted(why.to_owned())),
                (
                    "numeric",
                    PlaceholderValue::Trusted(format!("{:.2}", self.risk)),
                ),
                ("bool", yes_or_no(self.preference_known)),
            ],
            ..PromptData::default()
        }
    }

    fn schema(&self) -> Value {
        let words = enum_schema(&["CONFIRM_NEEDED", "SAFE_TO_PROCEED"]);
        object_schema(
            &[("confirmation", words), ("justification", string_schema())],
            &["confirmation"],
        )
    }

    fn parse_object(&self, object: &RawObject) -> Option<ParseResult<Confirm>> {
        Some(confirm(&object.text("confirmation")?))
    }

    fn parse_lines(&self, lines: &[AnswerLine]) -> Vec<ParseResult<Confirm>> {
        lines
            .iter()
            .filter_map(|line| line.value("CONFIRMATION"))
            .map(confirm)
            .collect()
    }
}

fn confirm(word: &str) -> ParseResult<Confirm> {
    outcome_by_word(
        word,
        [
            ("CONFIRM_NEEDED", Confirm::ConfirmNeeded),
            ("SAFE_TO_PROCEED", Confirm::SafeToProceed),
        ],
    )
}
