//! Parser of a model's decision: from the call of the offered tool, from JSON within text, or from
//! lines of keywords. Ambiguous answers count as unclear.

use callboard_message::text::cut_chars;
use callboard_message::{RawObject, SamplingAnswer};
use callboard_models::USAGE_KEY;
use serde_json::Value;
use serde_json::value::RawValue;

use super::prompt::PromptData;
use crate::decide::limits::CONFIDENCE_DEFAULT;
use crate::decide::{DeciderReply, DecisionCost, DecisionRequest};

/// Maximum bytes of a model's text that is parsed as a decision. A longer one counts as unclear.
/// Fixed.
pub const DECISION_BYTES_MAX: usize = 16 * 1024;
/// Name of the tool through which a model returns its decision.
pub(super) const DECISION_TOOL: &str = "decide";
/// Maximum invalid JSON fragments skipped in one answer of a model. The text after them is not
/// searched for JSON.
const INVALID_JSON_MAX: usize = 64;

/// Content of a model's answer, before it is parsed as a decision.
#[derive(Debug, Default)]
pub(super) struct ModelAnswer {
    /// Inputs of the calls of [`DECISION_TOOL`].
    pub tool_inputs: Vec<RawObject>,
    /// Whether the model called a tool that wasn't offered.
    pub used_unknown_tool: bool,
    pub text: String,
    pub stop_reason: Option<String>,
    pub cost: DecisionCost,
}

impl ModelAnswer {
    pub fn from_sample(answer: &SamplingAnswer) -> Self {
        let blocks: Vec<RawObject> = match answer.0.get("content").map(RawValue::get) {
            Some(several) if several.starts_with('[') => {
                answer.0.read("content").unwrap_or_default()
            }
            _ => answer.0.object("content").into_iter().collect(),
        };
        let mut said = Self {
            stop_reason: answer.0.text("stopReason"),
            cost: answer_cost(answer),
            ..Self::default()
        };
        said.text = answer.written_text().unwrap_or_default();
        for block in blocks
            .iter()
            .filter(|block| block.text("type").as_deref() == Some("tool_use"))
        {
            match block.text("name").as_deref() {
                Some(DECISION_TOOL) => said
                    .tool_inputs
                    .push(block.object("input").unwrap_or_default()),
                _ => said.used_unknown_tool = true,
            }
        }
        said
    }
}

fn answer_cost(answer: &SamplingAnswer) -> DecisionCost {
    let usage = answer
        .0
        .object("_meta")
        .and_then(|meta| meta.object(USAGE_KEY))
        .unwrap_or_default();
    DecisionCost {
        tokens_in: usage.read("inputTokens").unwrap_or_default(),
        tokens_out: usage.read("outputTokens").unwrap_or_default(),
        micro_usd: usage.read("microUsd").unwrap_or_default(),
    }
}

/// Parsed outcome, or the reason that a part of a model's answer has the form of a decision but is
/// invalid.
pub(super) type ParseResult<T> = Result<T, &'static str>;

/// Builds a decision from a JSON object in a model's answer. The member `confidence` holds the
/// confidence ([`CONFIDENCE_DEFAULT`] if missing or not from 0 to 1), `reason` or `justification`
/// the reason (empty if missing).
fn decision_from_object<T>(outcome: T, object: &RawObject) -> DeciderReply<T> {
    let why = ["reason", "justification"]
        .iter()
        .find_map(|name| object.text(name));
    build_decision(outcome, object.read("confidence"), why.unwrap_or_default())
}

/// Builds a decision from the lines of a model's answer. `CONFIDENCE:` precedes the confidence
/// ([`CONFIDENCE_DEFAULT`] if missing or not from 0 to 1). If `has_reason`, `REASON:` or
/// `JUSTIFICATION:` precedes the reason (empty if missing).
fn decision_from_lines<T>(outcome: T, lines: &[AnswerLine], has_reason: bool) -> DeciderReply<T> {
    let said = |key: &str| lines.iter().find_map(|line| line.value(key));
    let why = said("REASON")
        .or_else(|| said("JUSTIFICATION"))
        .filter(|_| has_reason);
    build_decision(
        outcome,
        said("CONFIDENCE").and_then(|sure| sure.parse().ok()),
        why.map(strip_quotes).unwrap_or_default(),
    )
}

fn build_decision<T>(
    outcome: T,
    confidence: Option<f32>,
    why: impl Into<String>,
) -> DeciderReply<T> {
    let confidence = confidence.filter(|sure| (0.0..=1.0).contains(sure));
    DeciderReply::clear(outcome, confidence.unwrap_or(CONFIDENCE_DEFAULT), why)
}

/// Parses a model's answer as a decision. An invalid or ambiguous answer yields an unclear reply
/// that states the problem.
pub(super) fn parse_decision<D: PromptSpec>(
    asked: &D,
    said: &ModelAnswer,
) -> DeciderReply<D::Outcome> {
    unanimous_decision(asked, said)
        .unwrap_or_else(DeciderReply::unclear)
        .with_cost(said.cost)
}

fn unanimous_decision<D: PromptSpec>(
    asked: &D,
    said: &ModelAnswer,
) -> ParseResult<DeciderReply<D::Outcome>> {
    match said.stop_reason.as_deref() {
        Some("maxTokens") => return Err("the model's answer was cut off"),
        Some("refusal" | "contentFilter") => return Err("the model refused to answer"),
        _ => {}
    }
    if said.used_unknown_tool {
        return Err("the model used a tool that it wasn't offered");
    }
    if said.text.len()
        + said
            .tool_inputs
            .iter()
            .map(|input| input.to_raw().get().len())
            .sum::<usize>()
        > DECISION_BYTES_MAX
    {
        return Err("the model's answer is over its limit");
    }
    if said.tool_inputs.is_empty() && said.text.trim().is_empty() {
        return Err("the model's answer is empty");
    }
    let found = match &*said.tool_inputs {
        [] => parse_text(asked, &said.text),
        inputs => inputs
            .iter()
            .map(|input| parse_object(asked, input).unwrap_or(Err(MISSING_MEMBERS)))
            .collect(),
    };
    let mut found = found.into_iter();
    let first = found.next().unwrap_or(Err(
        "the model's answer has no form that the prompt asks for",
    ))?;
    for other in found {
        if other?.outcome != first.outcome {
            return Err("the model's answer has two different decisions");
        }
    }
    Ok(first)
}

/// Error message for an object in a model's answer that lacks required members.
const MISSING_MEMBERS: &str = "the model's answer lacks keys that the decision needs";

fn parse_object<D: PromptSpec>(
    asked: &D,
    object: &RawObject,
) -> Option<ParseResult<DeciderReply<D::Outcome>>> {
    asked
        .parse_object(object)
        .map(|read| Ok(decision_from_object(read?, object)))
}

/// Finds and parses all decisions in a model's text: first JSON objects and lists, then keywords in
/// the remaining lines. An invalid decision, or JSON that is cut off, is an error in the list.
fn parse_text<D: PromptSpec>(asked: &D, text: &str) -> Vec<ParseResult<DeciderReply<D::Outcome>>> {
    let mut found = Vec::new();
    let mut rest = String::new();
    let mut from = 0;
    let (values, breaks_off) = find_json_values(text);
    if breaks_off {
        found.push(Err("the model's answer has unfinished JSON"));
    }
    for (start, raw) in values {
        let answer = match raw.get().starts_with('[') {
            true => asked
                .parse_list(raw)
                .map(|read| Ok(decision_from_object(read?, &RawObject::new()))),
            false => match RawObject::parse(raw) {
                Ok(object) => parse_object(asked, &object),
                // A repeated key makes the object ambiguous.
                Err(_) => Some(Err("the model's answer has a key twice")),
            },
        };
        if let Some(answer) = answer {
            rest.push_str(text.get(from..start).unwrap_or_default());
            rest.push('\n');
            from = start + raw.get().len();
            found.push(answer);
        }
    }
    rest.push_str(text.get(from..).unwrap_or_default());
    let lines: Vec<AnswerLine> = rest
        .lines()
        .map(AnswerLine::parse)
        .filter(|line| !line.0.is_empty())
        .collect();
    found.extend(
        asked
            .parse_lines(&lines)
            .into_iter()
            .map(|read| Ok(decision_from_lines(read?, &lines, D::HAS_REASON_LINE))),
    );
    found
}

/// Finds the outermost JSON objects and lists in a text, with their byte offsets. The flag tells
/// whether one is cut off at the end of the text.
fn find_json_values(text: &str) -> (Vec<(usize, &RawValue)>, bool) {
    let mut found = Vec::new();
    let (mut at, mut broken) = (0, 0);
    while let Some(next) = text.get(at..).and_then(|rest| rest.find(['{', '['])) {
        let start = at + next;
        let here = text.get(start..).unwrap_or_default();
        match serde_json::Deserializer::from_str(here)
            .into_iter::<&RawValue>()
            .next()
        {
            Some(Ok(raw)) => {
                found.push((start, raw));
                at = start + raw.get().len();
            }
            Some(Err(error)) if error.is_eof() => return (found, true),
            _ => {
                broken += 1;
                if broken == INVALID_JSON_MAX {
                    break;
                }
                at = start + 1;
            }
        }
    }
    (found, false)
}

/// Line of a model's answer without Markdown: bullets, numbers, bold type and backticks are
/// removed.
#[derive(Debug, Clone)]
pub(super) struct AnswerLine(String);

impl AnswerLine {
    fn parse(line: &str) -> Self {
        let line = line.replace("**", "").replace('`', "");
        let mut line = line.trim();
        for bullet in ["- ", "* ", "> ", "• ", "# "] {
            line = line.strip_prefix(bullet).unwrap_or(line).trim_start();
        }
        let number = line.trim_start_matches(|c: char| c.is_ascii_digit());
        if number.len() < line.len() {
            line = number.strip_prefix(['.', ')']).unwrap_or(line).trim_start();
        }
        Self(line.to_owned())
    }

    pub fn text(&self) -> &str {
        &self.0
    }

    /// Returns the text after `key:` in this line, ignoring case; `None` if the line doesn't begin
    /// with `key:`.
    pub fn value(&self, key: &str) -> Option<&str> {
        let (name, behind) = self.0.split_once(':')?;
        strip_quotes(name)
            .eq_ignore_ascii_case(key)
            .then_some(behind.trim())
    }

    /// Whether the line consists of this word only, ignoring case, quotes and trailing punctuation.
    /// `word` must be in upper case.
    pub fn is_word(&self, word: &str) -> bool {
        normalize_word(&self.0) == word
    }
}

/// Normalizes a keyword: upper case, without quotes or trailing punctuation.
pub(super) fn normalize_word(text: &str) -> String {
    strip_quotes(text.trim().trim_end_matches(['.', ','])).to_uppercase()
}

/// Removes quotes or brackets around a text.
pub(super) fn strip_quotes(text: &str) -> &str {
    let mut text = text.trim();
    for (open, close) in [
        ('[', ']'),
        ('<', '>'),
        ('"', '"'),
        ('“', '”'),
        ('\'', '\''),
        ('[', ']'),
    ] {
        text = text
            .strip_prefix(open)
            .and_then(|text| text.strip_suffix(close))
            .unwrap_or(text)
            .trim();
    }
    text
}

/// Joins a model's text into one line of at most `chars_max` characters, without control
/// characters.
pub(super) fn to_single_line(text: &str, chars_max: usize) -> String {
    let words = strip_quotes(text)
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty());
    let line = words.collect::<Vec<_>>().join(" ");
    cut_chars(&line, chars_max).to_owned()
}

/// Prompt and answer format that a model uses for a decision point.
pub(super) trait PromptSpec: DecisionRequest {
    /// Maximum output tokens of the answer.
    const TOKENS_MAX: u32;
    /// Whether a line `REASON:` holds the reason for the decision. `false` if such a line is part
    /// of the outcome.
    const HAS_REASON_LINE: bool = true;

    /// Returns the data that fill the prompt template.
    fn prompt_data(&self) -> PromptData;

    /// Returns the JSON Schema of the answer, an object.
    fn schema(&self) -> Value;

    /// Parses a JSON object in a model's answer as an outcome. `None` if the object doesn't have
    /// the form of an outcome; an error if it has, but is invalid.
    fn parse_object(&self, object: &RawObject) -> Option<ParseResult<Self::Outcome>>;

    /// Parses a JSON list in a model's answer as an outcome. `None` if the list doesn't have the
    /// form of an outcome; an error if it has, but is invalid.
    fn parse_list(&self, _list: &RawValue) -> Option<ParseResult<Self::Outcome>> {
        None
    }

    /// Parses the lines of a model's answer outside of JSON as outcomes: one entry for each outcome
    /// found, an error if it is invalid.
    fn parse_lines(&self, _lines: &[AnswerLine]) -> Vec<ParseResult<Self::Outcome>> {
        Vec::new()
    }
}
