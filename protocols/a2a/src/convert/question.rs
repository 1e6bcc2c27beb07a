//! Questions of a call as status messages of a task (text for people, the question itself for
//! programs), and messages as their answers.

use callboard_message::capabilities::SOURCE_MESSAGE_META_KEY;
use callboard_message::{
    Answer, Elicitation, ElicitationAction, ElicitationAnswer, Question, RawObject, SamplingAnswer,
    parse_yes_no,
};
use serde_json::Value;

use super::answer_parts::{accepts_parts, file_parts};
use super::content::put_meta;
use super::{ObjectSchema, parts_to_content};
use crate::wire::{A2aMessage, Part, PartContent};
use crate::{A2aError, ErrorKind};

/// Key in a message's metadata. In a message with a question, its value is the question's key. In
/// an answer, it optionally names the question that is answered.
pub(crate) const QUESTION_METADATA: &str = "callboard/question";

/// Returns the parts of a message with a question: a text part for people, and a data part
/// `{"question": {key, kind, body}}` for programs.
pub(crate) fn question_parts(key: &str, question: &Question) -> Vec<Part> {
    // `{kind, body}`
    let written = serde_json::to_string(question).ok();
    let body = written
        .and_then(|written| serde_json::from_str::<RawObject>(&written).ok())
        .unwrap_or_default();
    let data = RawObject::single("question", body.with("key", key));
    vec![
        Part::text(question_text(question)),
        Part::data(data.to_raw()),
    ]
}

fn question_text(question: &Question) -> String {
    match question {
        Question::Elicit(elicitation) => match elicitation.target_url() {
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

/// Returns whether the question asks the person to visit a URL. A2A represents this by the state
/// AUTH_REQUIRED.
pub(crate) fn is_url_question(question: &Question) -> bool {
    matches!(question, Question::Elicit(elicitation) if elicitation.target_url().is_some())
}

/// Model name in a sampling answer that didn't come from a model but from a person or another
/// agent.
const UNKNOWN_MODEL: &str = "unknown";

/// Parses a message as the answer to a question. The answer's metadata includes the message itself,
/// for agents that handle conversations.
///
/// # Errors
/// Names of the missing fields, else what is wrong with the values, if the message doesn't answer
/// the question.
pub(crate) fn parse_answer(
    question: &Question,
    message: &A2aMessage,
) -> Result<Answer, Vec<String>> {
    let said = AnswerMessage::of(message);
    let mut body = match question {
        Question::Elicit(elicitation) if accepts_parts(question) => {
            whole_answer(elicitation, &said, message)
        }
        Question::Elicit(elicitation) => {
            let schema = elicitation.schema().unwrap_or_default();
            let form = ObjectSchema::from_schema(&schema);
            elicit_answer(elicitation, &said.with_files(&form, message))
        }
        Question::Sample(_) => sample_answer(&said),
        Question::Roots(_) => said
            .object_with("roots")
            .ok_or_else(|| vec!["roots".to_owned()]),
        _ => Err(vec![
            "an answer of a kind that this server doesn't know".to_owned(),
        ]),
    }?;
    let mut said = RawObject::single("key", &message.message_id)
        .with("content", parts_to_content(&message.parts));
    said.set_some("metadata", &message.metadata);
    if !message.extensions.is_empty() {
        said.set("extensions", &message.extensions);
    }
    put_meta(&mut body, SOURCE_MESSAGE_META_KEY, said);
    Ok(question.answer_with(body))
}

/// Content of a message, as needed to parse an answer from it.
struct AnswerMessage {
    /// Value of the message's data part, if there is exactly one and it is an object.
    data: Option<RawObject>,
    /// Texts of all text parts of the message, joined with line breaks.
    text: String,
}

impl AnswerMessage {
    fn of(message: &A2aMessage) -> Self {
        let mut data = message.parts.iter().filter_map(Part::as_data);
        let only = data.next().filter(|_| data.next().is_none());
        Self {
            data: only.and_then(|data| RawObject::parse(data).ok()),
            text: message.text().trim().to_owned(),
        }
    }

    /// Returns the message with its files in the form's properties for files. Then a text becomes
    /// the property that takes one.
    fn with_files(self, form: &ObjectSchema<'_>, message: &A2aMessage) -> Self {
        let files = file_parts(message);
        if files.is_empty() || form.file_properties().next().is_none() {
            return self;
        }
        let mut object = self.object().unwrap_or_default();
        if object.is_empty()
            && let Some(property) = form.text_property().filter(|_| !self.text.is_empty())
        {
            object.set(property, &self.text);
        }
        // More files than properties have been refused by `check_answer_files`.
        form.set_files(&mut object, &files);
        Self {
            data: Some(object),
            text: String::new(),
        }
    }

    /// Returns the data part's object, else the object that the text contains as JSON.
    fn object(&self) -> Option<RawObject> {
        self.data.clone().or_else(|| {
            let text = Some(&self.text).filter(|text| text.starts_with('{'))?;
            serde_json::from_str(text).ok()
        })
    }

    /// Returns the message's object, if it has the member `name`.
    fn object_with(&self, name: &str) -> Option<RawObject> {
        self.object().filter(|object| object.has(name))
    }
}

/// Parses a message as the answer to an elicitation that any message answers.
///
/// # Errors
/// `text` if the message is blank.
fn whole_answer(
    elicitation: &Elicitation,
    said: &AnswerMessage,
    message: &A2aMessage,
) -> Result<RawObject, Vec<String>> {
    let answer = said.object().filter(is_elicit_answer);
    let text = said.text.to_lowercase();
    let is_blank =
        |part: &Part| matches!(&part.content, PartContent::Text(text) if text.trim().is_empty());
    Ok(match (&*message.parts, &*text) {
        _ if answer.is_some() => answer.unwrap_or_default(),
        ([_], "decline") => ElicitationAnswer::decline().0,
        ([_], "cancel") => ElicitationAnswer::cancel().0,
        _ if elicitation.target_url().is_some() => ElicitationAnswer::agree().0,
        (parts, _) if parts.iter().all(is_blank) => return Err(vec!["text".to_owned()]),
        _ => accept_answer(RawObject::single("text", &said.text)),
    })
}

/// Returns whether an object is an answer in the format of an elicitation's.
pub(crate) fn is_elicit_answer(object: &RawObject) -> bool {
    let action = object.text("action");
    matches!(action.as_deref(), Some("accept" | "decline" | "cancel"))
}

/// Checks that the question has a field for each file of the message that answers it.
///
/// # Errors
/// `ContentTypeNotSupported`.
pub(crate) fn check_answer_files(
    question: &Question,
    message: &A2aMessage,
) -> Result<(), A2aError> {
    let files = file_parts(message).len();
    if files == 0 || accepts_parts(question) {
        return Ok(());
    }
    let schema = match question {
        Question::Elicit(elicitation) => elicitation.schema().unwrap_or_default(),
        _ => Value::Null,
    };
    let given = AnswerMessage::of(message).object().unwrap_or_default();
    let places = ObjectSchema::from_schema(&schema)
        .file_properties()
        .filter(|name| !given.has(name))
        .count();
    if files <= places {
        return Ok(());
    }
    Err(ErrorKind::ContentTypeNotSupported.error(format!(
        "the message has {files} files, and the question has fields for {places} (base64 strings): answer it by text or data"
    )))
}

/// Parses a message as the answer to an elicitation.
///
/// # Errors
/// Names of missing fields; else the reasons of [`Elicitation::check_answer`].
fn elicit_answer(
    elicitation: &Elicitation,
    said: &AnswerMessage,
) -> Result<RawObject, Vec<String>> {
    let schema = elicitation.schema().unwrap_or_default();
    let form = ObjectSchema::from_schema(&schema);
    let answer = read_elicit_answer(elicitation, &form, said)?;
    let faults = elicitation.check_answer(&ElicitationAnswer(answer.clone()));
    if faults.is_empty() {
        return Ok(answer);
    }
    let content = answer.object("content").unwrap_or_default();
    let is_absent = |name: &&&str| content.get(name).is_none_or(|value| value.get() == "null");
    let lacks: Vec<_> = match answer.text("action").as_deref() {
        Some("accept") => form.required.iter().filter(is_absent).collect(),
        _ => Vec::new(),
    };
    Err(match lacks.is_empty() {
        true => faults,
        false => lacks.into_iter().map(|name| (*name).to_owned()).collect(),
    })
}

fn read_elicit_answer(
    elicitation: &Elicitation,
    form: &ObjectSchema<'_>,
    said: &AnswerMessage,
) -> Result<RawObject, Vec<String>> {
    let object = said.object();
    let is_field = |name: &str| form.properties.iter().any(|(known, _)| *known == name);
    if let Some(answer) = &object
        && let Some(action) = answer.text("action")
        && (matches!(&*action, "accept" | "decline" | "cancel")
            || answer.has("content") && !is_field("action"))
    {
        // The object is already in the format of an elicitation answer.
        return Ok(answer.clone());
    }
    match said.text.to_lowercase().as_str() {
        "decline" => return Ok(ElicitationAnswer::decline().0),
        "cancel" => return Ok(ElicitationAnswer::cancel().0),
        _ => {}
    }
    if elicitation.target_url().is_some() {
        return Ok(ElicitationAnswer::agree().0);
    }
    if let Some(object) =
        object.filter(|object| said.data.is_some() || form.has_known_property(object))
    {
        return Ok(accept_answer(object));
    }
    if form.properties.is_empty() {
        return Ok(match said.text.is_empty() {
            true => ElicitationAnswer::agree().0,
            false => accept_answer(RawObject::single("text", &said.text)),
        });
    }
    let value = only_field(form).and_then(|(name, schema)| {
        Some(RawObject::single(
            name,
            parse_field_value(schema, &said.text)?,
        ))
    });
    let lacks = || form.expected_properties().into_iter().map(str::to_owned);
    value.map(accept_answer).ok_or_else(|| lacks().collect())
}

fn accept_answer(content: RawObject) -> RawObject {
    RawObject::single("action", ElicitationAction::Accept).with("content", content)
}

/// Returns name and schema of the form field that a plain text fills in: the form's only field, or
/// its only required one. `None` if there are several candidates.
fn only_field<'a>(form: &ObjectSchema<'a>) -> Option<(&'a str, &'a Value)> {
    match (&*form.required, &*form.properties) {
        (_, [only]) => Some(*only),
        ([name], all) => all.iter().find(|(known, _)| known == name).copied(),
        _ => None,
    }
}

/// Parses a text as the value of a form field. If the field has a list of allowed values, the text
/// must be the value or title of one of them. Otherwise it is parsed as the field's type. Returns
/// `None` if that fails.
fn parse_field_value(schema: &Value, text: &str) -> Option<Value> {
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
        "boolean" => parse_yes_no(text).map(Value::from),
        _ => None,
    }
}

fn sample_answer(said: &AnswerMessage) -> Result<RawObject, Vec<String>> {
    if let Some(answer) = said
        .object_with("content")
        .filter(|object| object.has("role"))
    {
        return Ok(answer);
    }
    match said.text.is_empty() {
        true => Err(vec!["a text".to_owned()]),
        false => Ok(SamplingAnswer::text(UNKNOWN_MODEL, &said.text, None).0),
    }
}
