//! Questions of a call as what a task says (words for people, the question itself for programs), and messages as their answers.

use callboard_message::surface::SAID;
use callboard_message::{
    Answer, ElicitAction, ElicitAnswer, Elicitation, Question, RawObject, RootsAnswer, SampleAnswer, assent,
};
use serde_json::{Map, Value};

use super::content_of;
use crate::wire::{Message, Part};

/// Member of the metadata of a message that asks: the question's key. Whoever answers may name it the same way.
pub(crate) const QUESTION: &str = "callboard/question";

/// What asks: a text, and a data part `{"question": {key, kind, body}}`.
pub(crate) fn question_parts(key: &str, question: &Question) -> Vec<Part> {
    // `{kind, body}`
    let written = serde_json::to_string(question).ok();
    let body = written.and_then(|written| serde_json::from_str::<RawObject>(&written).ok()).unwrap_or_default();
    let data = RawObject::of("question", body.with("key", key));
    vec![Part::text(text(question)), Part::data(data.to_raw())]
}

fn text(question: &Question) -> String {
    match question {
        Question::Elicit(elicitation) => match elicitation.address() {
            Some(address) => format!("{}\n{address}", elicitation.message()).trim().to_owned(),
            None => elicitation.message(),
        },
        Question::Sample(sample) => sample.texts().pop().map(|(_, text)| text).unwrap_or_default(),
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

/// Whether a message answers.
#[derive(Debug)]
pub(crate) enum Fit {
    /// It does.
    Answer(Answer),
    /// It doesn't: this is still needed.
    Lacks(Vec<String>),
}

/// What a message says to a question. The answer carries the message too, for agents that converse.
pub(crate) fn answered(question: &Question, message: &Message) -> Fit {
    let said = Said::of(message);
    let answer = match question {
        Question::Elicit(elicitation) => elicited(elicitation, &said).map(Answer::Elicit),
        Question::Sample(_) => sampled(&said).map(Answer::Sample),
        Question::Roots(_) => rooted(&said).map(Answer::Roots),
        _ => Err(vec!["an answer of a kind that this server doesn't know".to_owned()]),
    };
    match answer {
        Ok(answer) => Fit::Answer(with_message(answer, message)),
        Err(lacks) => Fit::Lacks(lacks),
    }
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
        let texts: Vec<&str> = message.parts.iter().filter_map(Part::as_text).collect();
        let mut data = message.parts.iter().filter_map(Part::as_data);
        let only = data.next().filter(|_| data.next().is_none());
        Self { data: only.and_then(|data| RawObject::parse(data).ok()), text: texts.join("\n").trim().to_owned() }
    }

    /// Its data part, or its text where that is an object.
    fn object(&self) -> Option<RawObject> {
        self.data.clone().or_else(|| {
            let text = Some(&self.text).filter(|text| text.starts_with('{'))?;
            serde_json::from_str(text).ok()
        })
    }
}

fn elicited(elicitation: &Elicitation, said: &Said) -> Result<ElicitAnswer, Vec<String>> {
    let object = said.object();
    if let Some(action) = object.as_ref().filter(|object| object.has("action"))
        && let Some("accept" | "decline" | "cancel") = action.text("action").as_deref()
    {
        // As it is: it speaks the question's own words.
        return Ok(ElicitAnswer(action.clone()));
    }
    match said.text.to_lowercase().as_str() {
        "decline" => return Ok(ElicitAnswer::decline()),
        "cancel" => return Ok(ElicitAnswer::cancel()),
        _ => {}
    }
    if elicitation.address().is_some() {
        return Ok(ElicitAnswer::agree());
    }
    let form = Form::of(elicitation);
    if let Some(object) = object.filter(|object| said.data.is_some() || form.knows(object)) {
        let lacks: Vec<_> = form.required.iter().filter(|name| !object.has(name)).cloned().collect();
        return match lacks.is_empty() {
            true => Ok(ElicitAnswer(action(ElicitAction::Accept).with("content", object))),
            false => Err(lacks),
        };
    }
    if form.properties.is_empty() {
        return match said.text.is_empty() {
            true => Ok(ElicitAnswer::agree()),
            false => Ok(ElicitAnswer(action(ElicitAction::Accept).with("content", RawObject::of("text", &said.text)))),
        };
    }
    let Some((name, value)) = form.only().and_then(|(name, schema)| Some((name, typed(schema, &said.text)?))) else {
        return Err(form.wanted());
    };
    Ok(ElicitAnswer::accept(Value::Object(Map::from_iter([(name.to_owned(), value)]))))
}

fn action(action: ElicitAction) -> RawObject {
    RawObject::of("action", action)
}

/// The flat form that an elicitation asks to be filled in.
struct Form {
    properties: Map<String, Value>,
    required: Vec<String>,
}

impl Form {
    fn of(elicitation: &Elicitation) -> Self {
        let mut schema = elicitation.schema().unwrap_or_default();
        let properties = match schema.get_mut("properties").map(Value::take) {
            Some(Value::Object(properties)) => properties,
            _ => Map::new(),
        };
        let names = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        Self { properties, required: names.filter_map(Value::as_str).map(str::to_owned).collect() }
    }

    fn knows(&self, object: &RawObject) -> bool {
        self.properties.is_empty() || object.iter().any(|(name, _)| self.properties.contains_key(name))
    }

    /// The field that a text alone can fill in: the only one, or the only one that must be.
    fn only(&self) -> Option<(&str, &Value)> {
        let name = match (&*self.required, self.properties.len()) {
            (_, 1) => self.properties.keys().next()?,
            ([name], _) => name,
            _ => return None,
        };
        Some((name, self.properties.get(name)?))
    }

    fn wanted(&self) -> Vec<String> {
        match self.required.is_empty() {
            true => self.properties.keys().cloned().collect(),
            false => self.required.clone(),
        }
    }
}

/// A text as a value of a field.
fn typed(schema: &Value, text: &str) -> Option<Value> {
    if text.is_empty() {
        return None;
    }
    if let Some(choice) = choice(schema, text) {
        return choice;
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("string") => Some(text.into()),
        Some("integer") => text.parse::<i64>().ok().map(Value::from),
        Some("number") => text.parse::<f64>().ok().filter(|number| number.is_finite()).map(Value::from),
        Some("boolean") => assent(text).map(Value::from),
        _ => None,
    }
}

/// One of the values that a field may have, by its value or by its title; `None` where any will do.
fn choice(schema: &Value, text: &str) -> Option<Option<Value>> {
    let same = |other: &Value| other.as_str().is_some_and(|other| other.eq_ignore_ascii_case(text));
    if let Some(titled) = schema.get("oneOf").and_then(Value::as_array) {
        let is_it = |one: &&Value| ["const", "title"].iter().any(|name| one.get(name).is_some_and(same));
        return Some(titled.iter().find(is_it).and_then(|one| one.get("const")).cloned());
    }
    let values = schema.get("enum").and_then(Value::as_array)?;
    let titles = schema.get("enumNames").and_then(Value::as_array);
    let nth = values.iter().position(same).or_else(|| titles?.iter().position(same));
    Some(nth.and_then(|nth| values.get(nth)).cloned())
}

fn sampled(said: &Said) -> Result<SampleAnswer, Vec<String>> {
    if let Some(answer) = said.object().filter(|object| object.has("content") && object.has("role")) {
        return Ok(SampleAnswer(answer));
    }
    match said.text.is_empty() {
        true => Err(vec!["a text".to_owned()]),
        false => Ok(SampleAnswer::text(UNKNOWN_MODEL, &said.text, None)),
    }
}

fn rooted(said: &Said) -> Result<RootsAnswer, Vec<String>> {
    said.object().filter(|object| object.has("roots")).map(RootsAnswer).ok_or_else(|| vec!["roots".to_owned()])
}

fn with_message(mut answer: Answer, message: &Message) -> Answer {
    let mut said = RawObject::of("key", &message.message_id).with("content", content_of(&message.parts));
    said.set_some("metadata", &message.metadata);
    let body = match &mut answer {
        Answer::Elicit(answer) => &mut answer.0,
        Answer::Sample(answer) => &mut answer.0,
        Answer::Roots(answer) => &mut answer.0,
        _ => return answer,
    };
    let meta = body.object("_meta").unwrap_or_default();
    body.set("_meta", meta.with(SAID, said));
    answer
}
