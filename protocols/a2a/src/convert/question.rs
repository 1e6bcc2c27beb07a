//! Questions of a call as what a task says (words for people, the question itself for programs), and messages as their answers.

use callboard_message::surface::SAID;
use callboard_message::{
    Answer, ElicitAction, ElicitAnswer, Elicitation, Question, RawObject, SampleAnswer, assent,
};
use serde_json::Value;

use super::content::put_meta;
use super::{Form, content_of};
use crate::wire::{Message, Part};

/// Member of the metadata of a message that asks: the question's key. Whoever answers may name it the same way.
pub(crate) const QUESTION: &str = "callboard/question";

/// What asks: a text, and a data part `{"question": {key, kind, body}}`.
pub(crate) fn question_parts(key: &str, question: &Question) -> Vec<Part> {
    // `{kind, body}`
    let written = serde_json::to_string(question).ok();
    let body = written
        .and_then(|written| serde_json::from_str::<RawObject>(&written).ok())
        .unwrap_or_default();
    let data = RawObject::of("question", body.with("key", key));
    vec![Part::text(text(question)), Part::data(data.to_raw())]
}

fn text(question: &Question) -> String {
    match question {
        Question::Elicit(elicitation) => match elicitation.address() {
            Some(address) => format!("{}\n{address}", elicitation.message())
                .trim()
                .to_owned(),
            None => elicitation.message(),
        },
        Question::Sample(sample) => sample
            .texts()
            .pop()
            .map(|(_, text)| text)
            .unwrap_or_default(),
        Question::Roots(_) => "Which folders may the agent use?".to_owned(),
        _ => String::new(),
    }
}

/// Whether it sends the person to an address: A2A's AUTH_REQUIRED.
pub(crate) fn is_address(question: &Question) -> bool {
    matches!(question, Question::Elicit(elicitation) if elicitation.address().is_some())
}

/// Who wrote what a person or another agent answers in place of a model, as far as that is known.
const UNKNOWN_MODEL: &str = "unknown";

/// What a message says to a question. The answer carries the message too, for agents that converse.
///
/// # Errors
/// What is still needed.
pub(crate) fn answered(question: &Question, message: &Message) -> Result<Answer, Vec<String>> {
    let said = Said::of(message);
    let mut body = match question {
        Question::Elicit(elicitation) => elicited(elicitation, &said),
        Question::Sample(_) => sampled(&said),
        Question::Roots(_) => said
            .object_with("roots")
            .ok_or_else(|| vec!["roots".to_owned()]),
        _ => Err(vec![
            "an answer of a kind that this server doesn't know".to_owned(),
        ]),
    }?;
    let mut said =
        RawObject::of("key", &message.message_id).with("content", content_of(&message.parts));
    said.set_some("metadata", &message.metadata);
    put_meta(&mut body, SAID, said);
    Ok(question.answered(body))
}

/// What a message says, as far as it can be an answer.
struct Said {
    /// Its only data part.
    data: Option<RawObject>,
    /// Its texts, one a line.
    text: String,
}

impl Said {
    fn of(message: &Message) -> Self {
        let mut data = message.parts.iter().filter_map(Part::as_data);
        let only = data.next().filter(|_| data.next().is_none());
        Self {
            data: only.and_then(|data| RawObject::parse(data).ok()),
            text: message.text().trim().to_owned(),
        }
    }

    /// Its data part, or its text where that is an object.
    fn object(&self) -> Option<RawObject> {
        self.data.clone().or_else(|| {
            let text = Some(&self.text).filter(|text| text.starts_with('{'))?;
            serde_json::from_str(text).ok()
        })
    }

    /// The same, if it has that member.
    fn object_with(&self, name: &str) -> Option<RawObject> {
        self.object().filter(|object| object.has(name))
    }
}

fn elicited(elicitation: &Elicitation, said: &Said) -> Result<RawObject, Vec<String>> {
    let object = said.object();
    if let Some(action) = &object
        && let Some("accept" | "decline" | "cancel") = action.text("action").as_deref()
    {
        // As it is: it speaks the question's own words.
        return Ok(action.clone());
    }
    match said.text.to_lowercase().as_str() {
        "decline" => return Ok(ElicitAnswer::decline().0),
        "cancel" => return Ok(ElicitAnswer::cancel().0),
        _ => {}
    }
    if elicitation.address().is_some() {
        return Ok(ElicitAnswer::agree().0);
    }
    let schema = elicitation.schema().unwrap_or_default();
    let form = Form::of(&schema);
    let lack = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
    if let Some(object) = object.filter(|object| said.data.is_some() || form.knows(object)) {
        let lacks = form.lacks(&object);
        return if lacks.is_empty() {
            Ok(accepted(object))
        } else {
            Err(lack(lacks))
        };
    }
    if form.properties.is_empty() {
        return Ok(match said.text.is_empty() {
            true => ElicitAnswer::agree().0,
            false => accepted(RawObject::of("text", &said.text)),
        });
    }
    let value = only_field(&form)
        .and_then(|(name, schema)| Some(RawObject::of(name, typed(schema, &said.text)?)));
    value.map(accepted).ok_or_else(|| lack(form.wanted()))
}

fn accepted(content: RawObject) -> RawObject {
    RawObject::of("action", ElicitAction::Accept).with("content", content)
}

/// The field that a text alone can fill in: the only one, or the only one that must be.
fn only_field<'a>(form: &Form<'a>) -> Option<(&'a str, &'a Value)> {
    match (&*form.required, &*form.properties) {
        (_, [only]) => Some(*only),
        ([name], all) => all.iter().find(|(known, _)| known == name).copied(),
        _ => None,
    }
}

/// A text as a value of a field: one of those that it may have, by its value or its title; else of the field's type.
fn typed(schema: &Value, text: &str) -> Option<Value> {
    let same = |other: &Value| {
        other
            .as_str()
            .is_some_and(|other| other.eq_ignore_ascii_case(text))
    };
    let list = |name| schema.get(name).and_then(Value::as_array);
    if text.is_empty() {
        return None;
    }
    if let Some(titled) = list("oneOf") {
        let is_it = |one: &&Value| {
            ["const", "title"]
                .iter()
                .any(|name| one.get(name).is_some_and(same))
        };
        return titled.iter().find(is_it)?.get("const").cloned();
    }
    if let Some(values) = list("enum") {
        let nth = values
            .iter()
            .position(same)
            .or_else(|| list("enumNames")?.iter().position(same))?;
        return values.get(nth).cloned();
    }
    match schema.get("type").and_then(Value::as_str)? {
        "string" => Some(text.into()),
        "integer" => text.parse::<i64>().ok().map(Value::from),
        "number" => text
            .parse::<f64>()
            .ok()
            .filter(|number| number.is_finite())
            .map(Value::from),
        "boolean" => assent(text).map(Value::from),
        _ => None,
    }
}

fn sampled(said: &Said) -> Result<RawObject, Vec<String>> {
    if let Some(answer) = said
        .object_with("content")
        .filter(|object| object.has("role"))
    {
        return Ok(answer);
    }
    match said.text.is_empty() {
        true => Err(vec!["a text".to_owned()]),
        false => Ok(SampleAnswer::text(UNKNOWN_MODEL, &said.text, None).0),
    }
}
