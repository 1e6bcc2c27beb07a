//! A server's questions as questions of the call that caused them.

use callboard_message::{Answer, Elicitation, Failure, FailureKind, Question, RawObject, RootsRequest, Sample};
use callboard_runtime::{CallMeta, Caller, Cx, Direction};
use serde_json::value::RawValue;

/// The question that a request of the server's is.
///
/// # Errors
/// `NotFound` where it is none, `InvalidInput` where its params are no object.
pub(super) fn read(method: &str, params: Option<&RawValue>) -> Result<Question, Failure> {
    let body = match params {
        Some(params) => RawObject::parse(params).map_err(|_| Failure::invalid("`params` must be an object"))?,
        None => RawObject::new(),
    };
    match method {
        "sampling/createMessage" => Ok(Question::Sample(Sample(body))),
        "elicitation/create" => Ok(Question::Elicit(Elicitation(body))),
        "roots/list" => Ok(Question::Roots(RootsRequest(body))),
        _ => Err(Failure::not_found("no such question")),
    }
}

/// Asks whoever called. The answer is MCP's result, just as it was given: nothing is added to it.
///
/// # Errors
/// Where nobody answers; the answerer's own failure.
pub(super) async fn ask(caller: &dyn Caller, question: Question) -> Result<Box<RawValue>, Failure> {
    let sent = std::mem::discriminant(&question);
    let fits = |asked: Question| std::mem::discriminant(&asked) == sent;
    let (body, fits) = match caller.ask(question).await? {
        Answer::Sample(answer) => (answer.0, fits(Question::Sample(Sample::default()))),
        Answer::Elicit(answer) => (answer.0, fits(Question::Elicit(Elicitation::default()))),
        Answer::Roots(answer) => (answer.0, fits(Question::roots())),
        _ => return Err(Failure::invalid("the answer doesn't fit the question")),
    };
    match fits {
        true => Ok(body.to_raw()),
        false => Err(Failure::invalid("the answer doesn't fit the question")),
    }
}

/// Asks whoever made the call `cx`.
///
/// # Errors
/// Like [`ask`]; `NobodyToAsk` where nobody did.
pub(super) async fn ask_in(cx: &Cx, question: Question) -> Result<Box<RawValue>, Failure> {
    // What a server asks crosses a boundary as its replies do.
    let call = cx.call().map(|call| {
        let server = cx.me().to_string();
        CallMeta::clone(call).judged(cx.system(), Direction::Outbound, &server)
    });
    match call.and_then(|call| call.caller) {
        Some(caller) => ask(&*caller, question).await,
        None => Err(Failure::new(FailureKind::NobodyToAsk, "nobody to ask")),
    }
}
