use callboard_message::{Progress, RawObject};
use callboard_rpc::encode_notification;
use serde_json::value::RawValue;

use crate::wire::meta::PROGRESS_TOKEN;

/// Reports of one request's progress, each further than the one before it.
pub(crate) struct Reports {
    token: Box<RawValue>,
    done: f64,
}

impl Reports {
    /// Under the token that the request gave.
    pub(crate) fn under(token: &RawValue) -> Self {
        Self { token: token.to_owned(), done: f64::NEG_INFINITY }
    }

    /// Whether a member can be such a token: a string or a number.
    pub(crate) fn is_token(raw: &RawValue) -> bool {
        raw.get().starts_with(|c: char| matches!(c, '"' | '-') || c.is_ascii_digit())
    }

    /// The next report as a notification; `None` where it says no more than the last.
    pub(crate) fn next(&mut self, progress: Progress) -> Option<Vec<u8>> {
        if !(progress.done > self.done && progress.done.is_finite()) {
            return None;
        }
        self.done = progress.done;
        let mut params = RawObject::new().with(PROGRESS_TOKEN, &self.token).with("progress", number(progress.done));
        if let Some(total) = progress.total.filter(|total| total.is_finite()) {
            params.set("total", number(total));
        }
        if let Some(message) = progress.message {
            params.set("message", message);
        }
        Some(encode_notification("notifications/progress", Some(&params.to_raw())))
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
