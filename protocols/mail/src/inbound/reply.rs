//! What the mailroom said, as HTTP.

use std::borrow::Cow;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, HeaderValue, RETRY_AFTER, VARY, WWW_AUTHENTICATE};
use callboard_message::mail::{NEEDED_SCOPE, RETRY_AFTER_S};
use callboard_message::{Failure, FailureKind, RawObject};
use callboard_rpc::serve::guard::{JSON, Refused};
use callboard_rpc::serve::reply;
use callboard_rpc::serve::reply::RETRY_AFTER_S as RETRY_AFTER_S_DEFAULT;
use serde::Serialize;

/// Why a request has no other answer: `{"detail": "…"}`.
#[derive(Debug, PartialEq)]
pub(super) struct Problem {
    status: StatusCode,
    detail: Cow<'static, str>,
    challenge: Option<&'static str>,
    /// The scope that would have done.
    scope: Option<String>,
    allow: Option<String>,
    retry_after_s: Option<u64>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { status, detail: detail.into(), challenge: None, scope: None, allow: None, retry_after_s: None }
    }

    /// A body, query or header that doesn't fit. `detail` names what it is about, and never says what was sent.
    pub(super) fn unfit(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }

    /// There is none, or none that the caller may see: which of them isn't said.
    pub(super) fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "there is none such for you")
    }

    /// The path has other methods.
    pub(super) fn only(allow: String) -> Self {
        let problem = Self::new(StatusCode::METHOD_NOT_ALLOWED, "this path has other methods: see `Allow`");
        Self { allow: Some(allow), ..problem }
    }

    /// There are too many already.
    pub(super) fn full(detail: &'static str) -> Self {
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, detail);
        Self { retry_after_s: Some(RETRY_AFTER_S_DEFAULT), ..problem }
    }

    #[cfg(test)]
    pub(super) fn detail(&self) -> &str {
        &self.detail
    }

    pub(super) fn respond(self) -> HttpResponse {
        let mut response = json(self.status, &RawObject::new().with("detail", &*self.detail));
        let headers = response.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(self.challenge.unwrap_or("Bearer")));
            headers.insert(VARY, HeaderValue::from_static("Authorization, X-Agent-ID"));
        }
        if let Some(scope) = self.scope {
            let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{scope}\"");
            if let Ok(challenge) = HeaderValue::from_str(&challenge) {
                headers.insert(WWW_AUTHENTICATE, challenge);
            }
        }
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(allow) = self.allow.and_then(|methods| HeaderValue::from_str(&methods).ok()) {
            headers.insert(ALLOW, allow);
        }
        response
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        let retry_after_s = (refused.status == StatusCode::SERVICE_UNAVAILABLE).then_some(RETRY_AFTER_S_DEFAULT);
        Self { challenge: refused.challenge, retry_after_s, ..Self::new(refused.status, refused.message) }
    }
}

/// What an agent answered in place of a reply. A rate that was passed is told by the seconds to wait, and is the sender's
/// own affair (429); anything else that is full is not (503).
impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        let wait = failure.data.as_ref().and_then(|data| data.get(RETRY_AFTER_S)?.as_u64());
        let needed = failure.data.as_ref().and_then(|data| data.get(NEEDED_SCOPE)?.as_str().map(str::to_owned));
        let status = match failure.kind {
            FailureKind::InvalidInput | FailureKind::Rejected => StatusCode::UNPROCESSABLE_ENTITY,
            FailureKind::NotFound => return Self::not_found(),
            FailureKind::Denied | FailureKind::Blocked => StatusCode::FORBIDDEN,
            FailureKind::Overloaded if wait.is_some() => StatusCode::TOO_MANY_REQUESTS,
            FailureKind::Overloaded | FailureKind::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
            FailureKind::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            // A store that is away or damaged, or a bug.
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let waits = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        let retry_after_s = waits.then(|| wait.unwrap_or(RETRY_AFTER_S_DEFAULT).max(1));
        let Failure { kind, mut message, .. } = failure;
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            callboard_message::log::warn!(%kind, why = message, "a request failed");
            // After the colon stand the words of a database or a network, which are this node's own affair.
            message.truncate(message.find(": ").unwrap_or(message.len()));
        }
        let scope = needed.filter(|_| status == StatusCode::FORBIDDEN);
        Self { scope, retry_after_s, ..Self::new(status, message) }
    }
}

/// An answer that is nobody's to keep.
pub(super) fn json(status: StatusCode, body: &impl Serialize) -> HttpResponse {
    let Ok(body) = serde_json::to_vec(body) else {
        return HttpResponse::InternalServerError().finish();
    };
    reply::json(status, JSON, body)
}
