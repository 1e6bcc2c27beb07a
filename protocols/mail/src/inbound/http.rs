//! Bodies, queries and headers, read strictly. What is refused is named, and what it said is never repeated.

use std::borrow::Cow;

use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, HeaderValue, RETRY_AFTER, VARY, WWW_AUTHENTICATE};
use actix_web::{HttpRequest, HttpResponse};
use callboard_message::mail::{NEEDED_SCOPE, RETRY_AFTER_S};
use callboard_message::{Failure, FailureKind, RawMembers, RawObject};
use callboard_rpc::serve::guard::{JSON, Refused};
use callboard_rpc::serve::reply::{self, RETRY_AFTER_S as RETRY_AFTER_S_DEFAULT};
use callboard_rpc::{Limits, check};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use url::form_urlencoded;

/// Number of parameters of a query. One more is refused with 422.
const PARAMETERS_MAX: usize = 32;
/// Most characters of a name that is repeated to whoever sent it.
const NAME_CHARS_MAX: usize = 64;

/// A body that is one JSON object, of this type.
///
/// # Errors
/// 422, which names the member.
pub(super) fn body<T: DeserializeOwned>(body: &[u8], limits: &Limits) -> Result<T, Problem> {
    let text = check(body, limits).map_err(|error| Problem::unfit(format!("the body: {error}")))?;
    let object: &RawValue =
        serde_json::from_str(text).map_err(|_| Problem::unfit("the body is not JSON"))?;
    let members =
        RawMembers::parse(object).map_err(|_| Problem::unfit("the body must be a JSON object"))?;
    serde_json::from_str(object.get())
        .map_err(|error| Problem::unfit(misfit(object.get(), &members, &error)))
}

/// Which member doesn't fit. serde's own words may hold what was sent.
fn misfit(text: &str, members: &RawMembers<'_>, error: &serde_json::Error) -> String {
    let told = error.to_string();
    if told.starts_with("missing field") {
        // A name of ours.
        let name = told.split('`').nth(1).unwrap_or_default();
        return format!("`{name}` is needed");
    }
    let place = place_of(text, error);
    // Of a member that isn't known the reader has seen the name only.
    let unknown = told.starts_with("unknown field");
    let starts =
        |value: &RawValue| (value.get().as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    let found = if unknown {
        members.iter().find(|(_, value)| starts(value) >= place)
    } else {
        members
            .iter()
            .filter(|(_, value)| starts(value) <= place)
            .last()
    };
    match found {
        Some((name, _)) if unknown => format!("`{}` is not known here", printable(name)),
        Some((name, _)) => format!("`{}` doesn't fit: see /api/openapi.json", printable(name)),
        None => "the body doesn't fit: see /api/openapi.json".to_owned(),
    }
}

/// How many bytes of the text the reader had read when it gave up.
fn place_of(text: &str, error: &serde_json::Error) -> usize {
    let before: usize = text
        .split_inclusive('\n')
        .take(error.line().saturating_sub(1))
        .map(str::len)
        .sum();
    before + error.column()
}

fn printable(name: &str) -> String {
    name.chars()
        .filter(|c| !c.is_control() && *c != '`')
        .take(NAME_CHARS_MAX)
        .collect()
}

/// The parameters of a query: each known, and there once.
#[derive(Debug, Default)]
pub(super) struct Query<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Query<'a> {
    /// # Errors
    /// 422, which names the parameter.
    pub fn read(query: &'a str, known: impl Fn(&str) -> bool) -> Result<Self, Problem> {
        let mut found = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let name_of = || printable(&name);
            if !known(&name) {
                return Err(Problem::unfit(format!(
                    "the parameter `{}` is not known here",
                    name_of()
                )));
            }
            if found.text(&name).is_some() || found.0.len() == PARAMETERS_MAX {
                return Err(Problem::unfit(format!(
                    "the parameter `{}` is there twice",
                    name_of()
                )));
            }
            found.0.push((name, value));
        }
        Ok(found)
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.0
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| &**value)
    }

    pub fn owned(&self, name: &str) -> Option<String> {
        self.text(name).map(str::to_owned)
    }

    /// A word of JSON: a number, `true`, `false`, or a name without its quotes.
    ///
    /// # Errors
    /// 422, which names the parameter.
    pub fn word<T: DeserializeOwned>(&self, name: &'static str) -> Result<Option<T>, Problem> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let quoted = || serde_json::from_value(serde_json::Value::from(text));
        let read = serde_json::from_str(text).or_else(|_| quoted());
        read.map(Some).map_err(|_| {
            Problem::unfit(format!(
                "the parameter `{name}` doesn't fit: see /api/openapi.json"
            ))
        })
    }
}

/// The value of a header that may be there once.
///
/// # Errors
/// 422.
pub(super) fn header(request: &HttpRequest, name: &'static str) -> Result<Option<String>, Problem> {
    let mut values = request.headers().get_all(name);
    let Some(value) = values.next() else {
        return Ok(None);
    };
    match (value.to_str(), values.next()) {
        (Ok(value), None) if !value.trim().is_empty() => Ok(Some(value.trim().to_owned())),
        _ => Err(Problem::unfit(format!(
            "the header `{name}` must be there once, in printable ASCII"
        ))),
    }
}

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
    pub fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status,
            detail: detail.into(),
            challenge: None,
            scope: None,
            allow: None,
            retry_after_s: None,
        }
    }

    /// A body, query or header that doesn't fit. `detail` names what it is about, and never says what was sent.
    pub fn unfit(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }

    /// There is none, or none that the caller may see: which of them isn't said.
    pub fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "there is none such for you")
    }

    /// The path has other methods.
    pub fn only(allow: String) -> Self {
        let problem = Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "this path has other methods: see `Allow`",
        );
        Self {
            allow: Some(allow),
            ..problem
        }
    }

    /// There are too many already.
    pub fn full(detail: &'static str) -> Self {
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, detail);
        Self {
            retry_after_s: Some(RETRY_AFTER_S_DEFAULT),
            ..problem
        }
    }

    #[cfg(test)]
    fn detail(&self) -> &str {
        &self.detail
    }

    pub fn respond(self) -> HttpResponse {
        let mut response = json(self.status, &RawObject::new().with("detail", &*self.detail));
        let headers = response.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(
                WWW_AUTHENTICATE,
                HeaderValue::from_static(self.challenge.unwrap_or("Bearer")),
            );
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
        if let Some(allow) = self
            .allow
            .and_then(|methods| HeaderValue::from_str(&methods).ok())
        {
            headers.insert(ALLOW, allow);
        }
        response
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        let retry_after_s =
            (refused.status == StatusCode::SERVICE_UNAVAILABLE).then_some(RETRY_AFTER_S_DEFAULT);
        Self {
            challenge: refused.challenge,
            retry_after_s,
            ..Self::new(refused.status, refused.message)
        }
    }
}

/// What an agent answered in place of a reply. A rate that was passed is told by the seconds to wait, and is the sender's
/// own affair (429); anything else that is full is not (503).
impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        let wait = failure
            .data
            .as_ref()
            .and_then(|data| data.get(RETRY_AFTER_S)?.as_u64());
        let needed = failure
            .data
            .as_ref()
            .and_then(|data| data.get(NEEDED_SCOPE)?.as_str().map(str::to_owned));
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
        let waits = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        );
        let retry_after_s = waits.then(|| wait.unwrap_or(RETRY_AFTER_S_DEFAULT).max(1));
        let Failure {
            kind, mut message, ..
        } = failure;
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            callboard_message::log::warn!(%kind, why = message, "a request failed");
            // After the colon stand the words of a database or a network, which are this node's own affair.
            message.truncate(message.find(": ").unwrap_or(message.len()));
        }
        let scope = needed.filter(|_| status == StatusCode::FORBIDDEN);
        Self {
            scope,
            retry_after_s,
            ..Self::new(status, message)
        }
    }
}

/// An answer that is nobody's to keep.
pub(super) fn json(status: StatusCode, body: &impl Serialize) -> HttpResponse {
    let Ok(body) = serde_json::to_vec(body) else {
        return HttpResponse::InternalServerError().finish();
    };
    reply::json(status, JSON, body)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;
    use serde_json::Value;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its shape matters")]
    struct Sample {
        message: String,
        limit: Option<u8>,
        names: Option<Vec<String>>,
    }

    /// Goal: what doesn't fit is named, and what it said isn't told. Method: rows, each with a secret in it.
    #[test]
    fn misfits_are_named() {
        for (sent, named) in [
            (
                r#"{"message": "secret", "lmit": 3}"#,
                "`lmit` is not known here",
            ),
            (
                "{\"message\":\n \"x\",\n\n \"limit\":\n \"secret\", \"names\": []}",
                "`limit` doesn't fit",
            ),
            (
                r#"{"limit": 300, "message": "secret"}"#,
                "`limit` doesn't fit",
            ),
            (
                r#"{"message": "x", "names": ["a", 1, "secret"]}"#,
                "`names` doesn't fit",
            ),
            (r#"{"message": {"secret": 1}}"#, "`message` doesn't fit"),
            (
                r#"{"message": ["secret"], "limit": 1}"#,
                "`message` doesn't fit",
            ),
            (r#"{"limit": 1}"#, "`message` is needed"),
            ("{}", "`message` is needed"),
            (r#"["secret"]"#, "must be a JSON object"),
            (r#""secret""#, "must be a JSON object"),
            ("", "the body: "),
            (r#"{"message": "secret", "message": "x"}"#, "stands twice"),
            ("{\"message\": \"secret\"", "the body: "),
        ] {
            let problem = body::<Sample>(sent.as_bytes(), &Limits::default()).unwrap_err();
            assert!(
                problem.detail().contains(named),
                "{sent}: {}",
                problem.detail()
            );
            assert!(
                !problem.detail().contains("secret"),
                "{sent}: {}",
                problem.detail()
            );
        }
        let long = format!(
            r#"{{"message": "x", "{}": 1}}"#,
            "n".repeat(NAME_CHARS_MAX + 1)
        );
        let problem = body::<Sample>(long.as_bytes(), &Limits::default()).unwrap_err();
        assert_eq!(
            problem.detail(),
            format!("`{}` is not known here", "n".repeat(NAME_CHARS_MAX))
        );
        assert!(body::<Sample>(br#"{"message": "x", "limit": null}"#, &Limits::default()).is_ok());
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "secret[ -~é\n]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("message|limit|names|[a-z]{1,4}", inner, 0..4)
                    .prop_map(Value::from_iter),
            ]
        })
    }

    proptest! {
        /// Goal: whatever is sent is read or refused, and no word of it is told. Method: any JSON, in two layouts.
        #[test]
        fn nothing_is_repeated(sent in json(), pretty in any::<bool>()) {
            let text = if pretty { format!("{sent:#}") } else { sent.to_string() };
            if let Err(problem) = body::<Sample>(text.as_bytes(), &Limits::default()) {
                prop_assert!(!problem.detail().contains("secret"), "{}", problem.detail());
                // A member that is named was sent, or is needed.
                let named = problem.detail().split('`').nth(1);
                let is_there = named.is_none_or(|named| sent.get(named).is_some() || named == "message");
                prop_assert!(is_there, "{}", problem.detail());
            }
        }
    }

    /// Goal: a query has known parameters, once each, and words are read as what they are. Method: rows.
    #[test]
    fn queries() {
        let known = |name: &str| name == "a" || name == "b";
        let query = Query::read("a=1&b=x%20y", known).unwrap();
        assert_eq!(
            (query.word::<u64>("a").unwrap(), query.text("b")),
            (Some(1), Some("x y"))
        );
        assert_eq!(query.word::<String>("b").unwrap().as_deref(), Some("x y"));
        assert!(query.word::<u64>("b").is_err());
        assert_eq!(query.word::<bool>("c").unwrap(), None);
        for bad in ["c=1", "a=1&a=1", "a=1&c"] {
            assert!(Query::read(bad, known).is_err(), "{bad}");
        }
    }
}
