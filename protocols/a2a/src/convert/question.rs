//! A question of a call as what a task says: words for people, and the question itself for programs.

use callboard_message::{Question, RawObject};

use crate::wire::Part;

/// Member of the metadata of a message that asks: the question's key. Whoever answers may name it the same way.
pub(crate) const QUESTION: &str = "callboard/question";

/// What asks: a text, and a data part `{"question": {key, kind, body}}`.
pub(crate) fn question_parts(key: &str, question: &Question) -> Vec<Part> {
    // `{kind, body}`
    let written = serde_json::to_string(question).ok();
    let body = written.and_then(|written| serde_json::from_str::<RawObject>(&written).ok()).unwrap_or_default();
    let data = RawObject::new().with("question", body.with("key", key));
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
