//! What a model's answer says: by the tool that was offered, as JSON with whatever around it, or in lines of words. Anything that
//! can be read in two ways is unclear.

use callboard_message::text::cut_chars;
use callboard_message::{RawObject, SampleAnswer};
use callboard_models::USAGE_KEY;
use serde_json::Value;
use serde_json::value::RawValue;

use super::prompt::Material;
use crate::decide::limits::CONFIDENCE_UNSAID;
use crate::decide::{Cost, Decided, Decision};

/// Maximum bytes of a model's answer that decides. A longer one is unclear. Fixed.
pub const DECISION_BYTES_MAX: usize = 16 * 1024;
/// The tool by which a model gives its decision.
pub(super) const TOOL: &str = "decide";
/// Beginnings of JSON that turn out to be none, before looking for more is given up.
const BROKEN_MAX: usize = 64;

/// Answer of a model, before it is read.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// Inputs that it gave to the tool.
    pub inputs: Vec<RawObject>,
    /// Whether it used a tool that nobody offered.
    pub uses_others: bool,
    pub text: String,
    pub stop: Option<String>,
    pub cost: Cost,
}

impl Said {
    pub fn of(answer: &SampleAnswer) -> Self {
        let blocks: Vec<RawObject> = match answer.0.get("content").map(RawValue::get) {
            Some(several) if several.starts_with('[') => {
                answer.0.read("content").unwrap_or_default()
            }
            _ => answer.0.object("content").into_iter().collect(),
        };
        let mut said = Self {
            stop: answer.0.text("stopReason"),
            cost: cost(answer),
            ..Self::default()
        };
        said.text = answer.written().unwrap_or_default();
        for block in blocks
            .iter()
            .filter(|block| block.text("type").as_deref() == Some("tool_use"))
        {
            match block.text("name").as_deref() {
                Some(TOOL) => said.inputs.push(block.object("input").unwrap_or_default()),
                _ => said.uses_others = true,
            }
        }
        said
    }
}

fn cost(answer: &SampleAnswer) -> Cost {
    let usage = answer
        .0
        .object("_meta")
        .and_then(|meta| meta.object(USAGE_KEY))
        .unwrap_or_default();
    Cost {
        tokens_in: usage.read("inputTokens").unwrap_or_default(),
        tokens_out: usage.read("outputTokens").unwrap_or_default(),
        micro_usd: usage.read("microUsd").unwrap_or_default(),
    }
}

/// An answer, or why what looks like one is none.
pub(super) type Read<T> = Result<T, &'static str>;

/// The decision of an object: its `confidence`, and why by the first of `reason`, `justification`.
fn of_object<T>(outcome: T, object: &RawObject) -> Decided<T> {
    let why = ["reason", "justification"]
        .iter()
        .find_map(|name| object.text(name));
    decided(outcome, object.read("confidence"), why.unwrap_or_default())
}

/// The decision of lines: what `CONFIDENCE`, `REASON` or `JUSTIFICATION` say.
fn of_lines<T>(outcome: T, lines: &[Line], has_reason: bool) -> Decided<T> {
    let said = |key: &str| lines.iter().find_map(|line| line.value(key));
    let why = said("REASON")
        .or_else(|| said("JUSTIFICATION"))
        .filter(|_| has_reason);
    decided(
        outcome,
        said("CONFIDENCE").and_then(|sure| sure.parse().ok()),
        why.map(bare).unwrap_or_default(),
    )
}

fn decided<T>(outcome: T, confidence: Option<f32>, why: impl Into<String>) -> Decided<T> {
    let confidence = confidence.filter(|sure| (0.0..=1.0).contains(sure));
    Decided::sure(outcome, confidence.unwrap_or(CONFIDENCE_UNSAID), why)
}

/// Reads a model's decision.
pub(super) fn read<D: PromptSpec>(asked: &D, said: &Said) -> Decided<D::Outcome> {
    answers(asked, said)
        .unwrap_or_else(Decided::unclear)
        .at_cost(said.cost)
}

fn answers<D: PromptSpec>(asked: &D, said: &Said) -> Read<Decided<D::Outcome>> {
    match said.stop.as_deref() {
        Some("maxTokens") => return Err("the model's answer was cut off"),
        Some("refusal" | "contentFilter") => return Err("the model refused to answer"),
        _ => {}
    }
    if said.uses_others {
        return Err("the model used a tool that it wasn't offered");
    }
    if said.text.len()
        + said
            .inputs
            .iter()
            .map(|input| input.to_raw().get().len())
            .sum::<usize>()
        > DECISION_BYTES_MAX
    {
        return Err("the model's answer is over its limit");
    }
    if said.inputs.is_empty() && said.text.trim().is_empty() {
        return Err("the model's answer is empty");
    }
    let found = match &*said.inputs {
        [] => in_text(asked, &said.text),
        inputs => inputs
            .iter()
            .map(|input| in_object(asked, input).unwrap_or(Err(LACKS)))
            .collect(),
    };
    let mut found = found.into_iter();
    let first = found
        .next()
        .unwrap_or(Err("the model's answer has no known form"))?;
    for other in found {
        if other?.outcome != first.outcome {
            return Err("the model's answer says two things");
        }
    }
    Ok(first)
}

/// An object without what makes it an answer.
const LACKS: &str = "the model's answer lacks what was asked for";

fn in_object<D: PromptSpec>(asked: &D, object: &RawObject) -> Option<Read<Decided<D::Outcome>>> {
    asked
        .object(object)
        .map(|read| Ok(of_object(read?, object)))
}

/// Every answer in a text: JSON objects and lists, and words in what is left.
fn in_text<D: PromptSpec>(asked: &D, text: &str) -> Vec<Read<Decided<D::Outcome>>> {
    let mut found = Vec::new();
    let mut rest = String::new();
    let mut from = 0;
    let (values, breaks_off) = json_in(text);
    if breaks_off {
        found.push(Err("the model's answer breaks off"));
    }
    for (start, raw) in values {
        let answer = match raw.get().starts_with('[') {
            true => asked
                .list(raw)
                .map(|read| Ok(of_object(read?, &RawObject::new()))),
            false => match RawObject::parse(raw) {
                Ok(object) => in_object(asked, &object),
                // A key that is there twice says two things.
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
    let lines: Vec<Line> = rest
        .lines()
        .map(Line::of)
        .filter(|line| !line.0.is_empty())
        .collect();
    found.extend(
        asked
            .lines(&lines)
            .into_iter()
            .map(|read| Ok(of_lines(read?, &lines, D::HAS_REASON_LINE))),
    );
    found
}

/// The JSON objects and lists in a text that aren't inside of others, with where they begin; and whether one goes on where the text
/// ends.
fn json_in(text: &str) -> (Vec<(usize, &RawValue)>, bool) {
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
                if broken == BROKEN_MAX {
                    break;
                }
                at = start + 1;
            }
        }
    }
    (found, false)
}

/// A line without what only makes it look well: bullets, numbers, bold type, backticks.
#[derive(Debug, Clone)]
pub(super) struct Line(String);

impl Line {
    fn of(line: &str) -> Self {
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

    /// Its text.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Text behind `key:`, in any case.
    pub fn value(&self, key: &str) -> Option<&str> {
        let (name, behind) = self.0.split_once(':')?;
        bare(name)
            .eq_ignore_ascii_case(key)
            .then_some(behind.trim())
    }

    /// Whether it is only that word, in any case.
    pub fn is(&self, word: &str) -> bool {
        word_of(&self.0) == word
    }
}

/// A word as the formats have it: in capitals, without quotes or a point behind it.
pub(super) fn word_of(text: &str) -> String {
    bare(text.trim().trim_end_matches(['.', ','])).to_uppercase()
}

/// The text without the quotes or brackets around it.
pub(super) fn bare(text: &str) -> &str {
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

/// What a model wrote for people, on one line: cut to so many characters, without what moves a terminal's cursor.
pub(super) fn sentence(text: &str, chars_max: usize) -> String {
    let words = bare(text)
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty());
    let line = words.collect::<Vec<_>>().join(" ");
    cut_chars(&line, chars_max).to_owned()
}

/// Prompt of a point: the material it may show, and how its answer is read.
pub(super) trait PromptSpec: Decision {
    /// Maximum tokens of the answer.
    const TOKENS_MAX: u32;
    /// Whether the line `REASON:` of an answer in words is the decision's reason.
    const HAS_REASON_LINE: bool = true;

    /// Material that the prompt may show.
    fn material(&self) -> Material;

    /// JSON Schema of the answer: an object.
    fn schema(&self) -> Value;

    /// The answer as an object; `None` where the object is something else.
    fn object(&self, object: &RawObject) -> Option<Read<Self::Outcome>>;

    /// The answer as a list; `None` where the list is something else.
    fn list(&self, _list: &RawValue) -> Option<Read<Self::Outcome>> {
        None
    }

    /// The answers as words.
    fn lines(&self, _lines: &[Line]) -> Vec<Read<Self::Outcome>> {
        Vec::new()
    }
}
