use bytes::Bytes;
use callboard_message::{
    Answer, Failure, Progress, Question, RawObject, RootsAnswer, SamplingAnswer,
};
use callboard_rpc::encode_notification;
use serde_json::value::RawValue;

use crate::wire::meta::PROGRESS_TOKEN;

/// Destination of messages to a client: a response stream, a pipe or a socket. Messages caused by a
/// request go to the sink of that request, all others to the sink of the session.
pub(crate) trait MessageSink: Send + Sync {
    /// Sends one JSON-RPC message, without framing. Never blocks. Returns false if the client is
    /// gone, or its queue is full.
    fn send(&self, message: Bytes) -> bool;

    /// Sends a message that may be lost, such as progress or a log message. It is dropped while the
    /// client reads slowly, so that it never fills the queue.
    fn send_lossy(&self, message: Bytes) -> bool {
        self.send(message)
    }

    /// Sends a message as [`Self::send_lossy`] does, unless the same one waits to be read.
    fn send_once(&self, message: Bytes) -> bool {
        self.send_lossy(message)
    }

    /// Returns true if the client can receive questions on this sink.
    fn can_ask(&self) -> bool {
        true
    }
}

/// Creator of the progress notifications of one request. The reported progress always increases, as
/// MCP requires.
pub(crate) struct ProgressReporter {
    token: Box<RawValue>,
    done: f64,
}

impl ProgressReporter {
    /// Creates a reporter for the progress token of a request.
    pub fn for_token(token: &RawValue) -> Self {
        Self {
            token: token.to_owned(),
            done: f64::NEG_INFINITY,
        }
    }

    /// Returns true if the value is a valid progress token: a string or a number.
    pub fn is_progress_token(raw: &RawValue) -> bool {
        raw.get()
            .starts_with(|c: char| matches!(c, '"' | '-') || c.is_ascii_digit())
    }

    /// Returns the notification of a progress; `None` if the progress hasn't increased.
    pub fn next_notification(&mut self, progress: Progress) -> Option<Vec<u8>> {
        if !(progress.done > self.done && progress.done.is_finite()) {
            return None;
        }
        self.done = progress.done;
        let mut params = RawObject::single(PROGRESS_TOKEN, &self.token)
            .with("progress", json_number(progress.done));
        params.set_some(
            "total",
            &progress
                .total
                .filter(|total| total.is_finite())
                .map(json_number),
        );
        params.set_some("message", &progress.message);
        Some(encode_notification(
            "notifications/progress",
            Some(&params.to_raw()),
        ))
    }
}

/// Converts a number to JSON. Whole numbers up to 2^53 have no decimal point.
fn json_number(value: f64) -> serde_json::Value {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    match value.fract() == 0.0 && value.abs() <= EXACT_MAX {
        #[expect(clippy::cast_possible_truncation, reason = "whole, and at most 2^53")]
        true => (value as i64).into(),
        false => value.into(),
    }
}

/// Returns the MCP method that asks the client a question; `None` if MCP has no such method.
pub(crate) fn question_method(question: &Question) -> Option<&'static str> {
    match question {
        Question::Sample(_) => Some("sampling/createMessage"),
        Question::Elicit(_) => Some("elicitation/create"),
        Question::Roots(_) => Some("roots/list"),
        _ => None,
    }
}

/// Returns a question as an MCP request object with method and params; `None` if MCP has no method
/// for it.
pub(crate) fn question_request(question: &Question) -> Option<RawObject> {
    Some(RawObject::single("method", question_method(question)?).with("params", question.body()))
}

/// Parses the answer to a question from the result of its request.
///
/// # Errors
/// `InvalidInput` if the result isn't an object, or doesn't fit the question: an elicitation's
/// action and values ([`Elicitation::check_answer`]), a sampling's `content`, the `uri` of roots.
///
/// [`Elicitation::check_answer`]: callboard_message::Elicitation::check_answer
pub(crate) fn parse_answer(question: &Question, result: &RawValue) -> Result<Answer, Failure> {
    let unfit = |why: &str| {
        Err(Failure::invalid(format!(
            "the client's answer is invalid: {why}"
        )))
    };
    let Ok(body) = RawObject::parse(result) else {
        return unfit("it must be an object");
    };
    let answer = question.answer_with(body);
    match (question, &answer) {
        (Question::Elicit(elicitation), Answer::Elicit(given)) => {
            let faults = elicitation.check_answer(given);
            if !faults.is_empty() {
                return unfit(&faults.join("; "));
            }
        }
        (_, Answer::Sample(SamplingAnswer(body))) => {
            let content = body.get("content");
            if !content.is_some_and(|content| content.get().starts_with(['{', '['])) {
                return unfit("`content` must be an object or a list");
            }
        }
        (_, Answer::Roots(RootsAnswer(body))) => {
            let roots = body.read::<Vec<RawObject>>("roots");
            if !roots.is_some_and(|roots| roots.iter().all(|root| root.text("uri").is_some())) {
                return unfit("`roots` must be a list of objects with a `uri`");
            }
        }
        _ => {}
    }
    Ok(answer)
}

/// Returns the question with an additional member in its `_meta`.
pub(crate) fn question_with_meta(question: &Question, name: &str, value: &RawObject) -> Question {
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

pub(crate) fn no_responder() -> Failure {
    Failure::no_responder(
        "the client can't answer this question: call from a client that supports such questions",
    )
}
