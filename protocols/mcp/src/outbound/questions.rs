//! A server's questions as questions of the call that caused them.

use callboard_message::{Answer, Elicitation, Failure, FailureKind, Question, Sample};
use callboard_rpc::{Id, Nulls, encode_response};
use callboard_runtime::{CallMeta, Caller, Cx, Direction};
use serde_json::value::RawValue;

use super::dialect::Asked;
use crate::wire::failure;

/// Asks whoever called. The answer is MCP's result, just as it was given, in the words of the server's dialect.
///
/// # Errors
/// Where nobody answers; the answerer's own failure.
pub(super) async fn ask(caller: &dyn Caller, asked: Asked) -> Result<Box<RawValue>, Failure> {
    let Asked { question, manner } = asked;
    let sent = std::mem::discriminant(&question);
    let fits = |asked: Question| std::mem::discriminant(&asked) == sent;
    let (body, fits) = match caller.ask(question).await? {
        Answer::Sample(answer) => (answer.0, fits(Question::Sample(Sample::default()))),
        Answer::Elicit(answer) => (answer.0, fits(Question::Elicit(Elicitation::default()))),
        Answer::Roots(answer) => (answer.0, fits(Question::roots())),
        _ => return Err(Failure::invalid("the answer doesn't fit the question")),
    };
    match fits {
        true => Ok(manner.word(body).to_raw()),
        false => Err(Failure::invalid("the answer doesn't fit the question")),
    }
}

/// The message that answers request `id`.
pub(super) fn response(id: &Id, answer: Result<Box<RawValue>, Failure>) -> Vec<u8> {
    let outcome = answer.map_err(failure::to_rpc);
    encode_response(Some(id), outcome.as_deref(), Nulls::Omit)
}

/// Asks whoever made the call `cx`.
///
/// # Errors
/// Like [`ask`]; `NobodyToAsk` where nobody did.
pub(super) async fn ask_in(cx: &Cx, asked: Asked) -> Result<Box<RawValue>, Failure> {
    // What a server asks crosses a boundary as its replies do.
    let call = cx.call().map(|call| {
        let server = cx.me().to_string();
        CallMeta::clone(call).judged(cx.system(), Direction::Outbound, &server)
    });
    match call.and_then(|call| call.caller) {
        Some(caller) => ask(&*caller, asked).await,
        None => Err(Failure::new(FailureKind::NobodyToAsk, "nobody to ask")),
    }
}
