use bytes::Bytes;
use callboard_message::{Answer, Failure, Progress, Question, RawObject};
use callboard_rpc::encode_notification;
use serde_json::value::RawValue;

use crate::wire::meta::PROGRESS_TOKEN;

/// The way to a peer: a response stream, a pipe, a socket. What a request causes before it ends goes by the link that the
/// request came with; what nobody asked for goes by the peer's own.
pub(crate) trait MessageSink: Send + Sync {
    /// Sends one JSON-RPC message, without framing. Never waits; `false` where the peer is gone, or so slow that its queue
    /// is full.
    fn send(&self, message: Bytes) -> bool;

    /// Sends what may be lost (progress, lines of a log): left out while the peer is slow, so that it never costs the
    /// link.
    fn offer(&self, message: Bytes) -> bool {
        self.send(message)
    }

    /// Whether a peer that is asked something could see it at all.
    fn can_ask(&self) -> bool {
        true
    }
}

/// Reports of one request's progress, each further than the one before it.
pub(crate) struct Reports {
    token: Box<RawValue>,
    done: f64,
}

impl Reports {
    /// Under the token that the request gave.
    pub fn under(token: &RawValue) -> Self {
        Self {
            token: token.to_owned(),
            done: f64::NEG_INFINITY,
        }
    }

    /// Whether a member can be such a token: a string or a number.
    pub fn is_token(raw: &RawValue) -> bool {
        raw.get()
            .starts_with(|c: char| matches!(c, '"' | '-') || c.is_ascii_digit())
    }

    /// The next report as a notification; `None` where it says no more than the last.
    pub fn next(&mut self, progress: Progress) -> Option<Vec<u8>> {
        if !(progress.done > self.done && progress.done.is_finite()) {
            return None;
        }
        self.done = progress.done;
        let mut params =
            RawObject::of(PROGRESS_TOKEN, &self.token).with("progress", number(progress.done));
        params.set_some(
            "total",
            &progress.total.filter(|total| total.is_finite()).map(number),
        );
        params.set_some("message", &progress.message);
        Some(encode_notification(
            "notifications/progress",
            Some(&params.to_raw()),
        ))
    }
}

/// A whole number without a point, as people write it.
fn number(value: f64) -> serde_json::Value {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    match value.fract() == 0.0 && value.abs() <= EXACT_MAX {
        #[expect(clippy::cast_possible_truncation, reason = "whole, and at most 2^53")]
        true => (value as i64).into(),
        false => value.into(),
    }
}

/// The method of MCP's request for a question; `None` where MCP has none.
pub(crate) fn question_method(question: &Question) -> Option<&'static str> {
    match question {
        Question::Sample(_) => Some("sampling/createMessage"),
        Question::Elicit(_) => Some("elicitation/create"),
        Question::Roots(_) => Some("roots/list"),
        _ => None,
    }
}

/// MCP's request for a question, as a result holds it.
pub(crate) fn question_request(question: &Question) -> Option<RawObject> {
    Some(RawObject::of("method", question_method(question)?).with("params", question.body()))
}

/// The answer to a question, from the result of its request.
///
/// # Errors
/// `InvalidInput` where it is no object, or can't be an answer to that question.
pub(crate) fn parse_answer(question: &Question, result: &RawValue) -> Result<Answer, Failure> {
    let result = RawObject::parse(result)
        .map_err(|_| Failure::invalid("the client's answer is no object"))?;
    let fits = |member: &str| match result.has(member) {
        true => Ok(()),
        false => Err(Failure::invalid(format!(
            "the client's answer has no `{member}`"
        ))),
    };
    match question {
        Question::Sample(_) => fits("content")?,
        Question::Elicit(_) => fits("action")?,
        _ => fits("roots")?,
    }
    Ok(question.answered(result))
}

/// The same question, with a member more in its `_meta`.
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

pub(crate) fn nobody_answers() -> Failure {
    Failure::nobody_to_ask("the client has nobody to answer that")
}
