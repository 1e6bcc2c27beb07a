//! Questions of a task, and what comes back.

use callboard_message::{Answer, Elicitation, Failure, FailureKind, Question, RawObject, RootsRequest, Sample};
use serde_json::value::RawValue;

/// MCP's request for a question: its method and its params. `None` where MCP has none.
pub(crate) fn request(question: &Question) -> Option<(&'static str, &RawObject)> {
    Some(match question {
        Question::Sample(Sample(body)) => ("sampling/createMessage", body),
        Question::Elicit(Elicitation(body)) => ("elicitation/create", body),
        Question::Roots(RootsRequest(body)) => ("roots/list", body),
        _ => return None,
    })
}

/// The answer to a question, from the result of its request.
///
/// # Errors
/// `InvalidInput` where it is no object, or can't be an answer to that question.
pub(super) fn answer(question: &Question, result: &RawValue) -> Result<Answer, Failure> {
    let result = RawObject::parse(result).map_err(|_| Failure::invalid("the client's answer is no object"))?;
    let fits = |member: &str| match result.has(member) {
        true => Ok(()),
        false => Err(Failure::invalid(format!("the client's answer has no `{member}`"))),
    };
    match question {
        Question::Sample(_) => fits("content")?,
        Question::Elicit(_) => fits("action")?,
        _ => fits("roots")?,
    }
    Ok(question.answered(result))
}

/// The same question, with a member more in its `_meta`.
pub(super) fn with_meta(question: &Question, name: &str, value: &RawObject) -> Question {
    let mut question = question.clone();
    let body = match &mut question {
        Question::Sample(sample) => &mut sample.0,
        Question::Elicit(elicitation) => &mut elicitation.0,
        Question::Roots(roots) => &mut roots.0,
        _ => return question,
    };
    let meta = body.object("_meta").unwrap_or_default();
    body.set("_meta", meta.with(name, value));
    question
}

pub(super) fn nobody() -> Failure {
    Failure::new(FailureKind::NobodyToAsk, "the client has nobody to answer that")
}
