//! Strict parsing of bodies, queries and headers. Error messages name the invalid part, but never
//! repeat its value.

use std::borrow::Cow;

use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, HeaderValue, RETRY_AFTER, VARY, WWW_AUTHENTICATE};
use actix_web::{HttpRequest, HttpResponse};
use callboard_message::mail::RETRY_AFTER_DATA_KEY;
use callboard_message::{Failure, FailureKind, RawMembers, RawObject};
use callboard_rpc::serve::guard::{self, HttpRejection, JSON};
use callboard_rpc::serve::http_response::{self, RETRY_AFTER_S as RETRY_AFTER_S_DEFAULT};
use callboard_rpc::{AccessControl, DecodeLimits, check_json};
use callboard_runtime::ShareError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use url::form_urlencoded;

/// Maximum number of query parameters. A request with more is rejected with 422.
const PARAMETERS_MAX: usize = 32;
/// Maximum length of a member's or parameter's name in an error message, in characters. Longer
/// names are truncated.
const NAME_CHARS_MAX: usize = 64;

/// Parses a request body, which must be one JSON object that fits the type `T`.
///
/// # Errors
/// 422 with an explanation that names the wrong member, where there is one.
pub(super) fn parse_body<T: DeserializeOwned>(
    body: &[u8],
    limits: &DecodeLimits,
) -> Result<T, ProblemResponse> {
    let text = check_json(body, limits).map_err(|error| {
        ProblemResponse::unprocessable(format!("the body can't be read as JSON: {error}"))
    })?;
    let object: &RawValue = serde_json::from_str(text)
        .map_err(|_| ProblemResponse::unprocessable("the body is not JSON"))?;
    let members = RawMembers::parse(object)
        .map_err(|_| ProblemResponse::unprocessable("the body must be a JSON object"))?;
    serde_json::from_str(object.get()).map_err(|error| {
        ProblemResponse::unprocessable(mismatch_detail(object.get(), &members, &error))
    })
}

/// Builds the explanation for a body that doesn't fit its type, with the name of the wrong member.
/// serde's own message isn't used, because it may contain input.
fn mismatch_detail(text: &str, members: &RawMembers<'_>, error: &serde_json::Error) -> String {
    let description = error.to_string();
    if description.starts_with("missing field") {
        // This name is a field of our type.
        let name = description.split('`').nth(1).unwrap_or_default();
        return format!("`{name}` is needed");
    }
    let place = error_offset(text, error);
    // The parser stops after the name of an unknown member, before its value.
    let unknown = description.starts_with("unknown field");
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
        Some((name, _)) => format!(
            "`{}` has a wrong type or value: see /api/openapi.json",
            printable(name)
        ),
        None => "the body has a wrong type or value: see /api/openapi.json".to_owned(),
    }
}

/// Returns the byte offset in `text` at which serde reported the error.
fn error_offset(text: &str, error: &serde_json::Error) -> usize {
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

/// Parsed query parameters of a request. Each is known to the route and occurs once.
#[derive(Debug, Default)]
pub(super) struct QueryParameters<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> QueryParameters<'a> {
    /// Parses a query string. `known` tells whether the route has a parameter of a name.
    ///
    /// # Errors
    /// 422, with the name of a parameter that is unknown or repeated.
    pub fn read(query: &'a str, known: impl Fn(&str) -> bool) -> Result<Self, ProblemResponse> {
        let mut found = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let name_of = || printable(&name);
            if !known(&name) {
                return Err(ProblemResponse::unprocessable(format!(
                    "the parameter `{}` is not known here",
                    name_of()
                )));
            }
            if found.text(&name).is_some() || found.0.len() == PARAMETERS_MAX {
                return Err(ProblemResponse::unprocessable(format!(
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

    /// Parses a parameter's value as JSON, or else as the content of a JSON string, so that
    /// numbers, `true`, `false` and unquoted names are accepted. Returns `None` if the parameter is
    /// missing.
    ///
    /// # Errors
    /// 422 with the parameter's name if the value doesn't fit the type.
    pub fn parse<T: DeserializeOwned>(
        &self,
        name: &'static str,
    ) -> Result<Option<T>, ProblemResponse> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let quoted = || serde_json::from_value(serde_json::Value::from(text));
        let read = serde_json::from_str(text).or_else(|_| quoted());
        read.map(Some).map_err(|_| {
            ProblemResponse::unprocessable(format!(
                "the parameter `{name}` has a wrong type or value: see /api/openapi.json"
            ))
        })
    }
}

/// Returns the value of a header; `None` if it is missing.
///
/// # Errors
/// 422 if the header is repeated, empty or not printable ASCII.
pub(super) fn header(
    request: &HttpRequest,
    name: &'static str,
) -> Result<Option<String>, ProblemResponse> {
    let mut values = request.headers().get_all(name);
    let Some(value) = values.next() else {
        return Ok(None);
    };
    match (value.to_str(), values.next()) {
        (Ok(value), None) if !value.trim().is_empty() => Ok(Some(value.trim().to_owned())),
        _ => Err(ProblemResponse::unprocessable(format!(
            "the header `{name}` must be there once, in printable ASCII"
        ))),
    }
}

/// HTTP error response: a status, the body `{"detail": "…"}` and headers.
#[derive(Debug, PartialEq)]
pub(super) struct ProblemResponse {
    status: StatusCode,
    detail: Cow<'static, str>,
    challenge: Option<Cow<'static, str>>,
    /// Scope that the caller lacks, named in `WWW-Authenticate`.
    scope: Option<String>,
    allow: Option<String>,
    retry_after_s: Option<u64>,
}

impl ProblemResponse {
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

    /// Creates a 422 response for an invalid body, query or header. `detail` may name the invalid
    /// part, but must not contain its value.
    pub fn unprocessable(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }

    /// Creates a 404 response. The text is the same whether the item doesn't exist or isn't visible
    /// to the caller.
    pub fn not_found() -> Self {
        Self::new(StatusCode::NOT_FOUND, "not found, or not visible to you")
    }

    /// Creates a 405 response. `allow` lists the methods of the path, for the header `Allow`.
    pub fn method_not_allowed(allow: String) -> Self {
        let problem = Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "this path has other methods: see `Allow`",
        );
        Self {
            allow: Some(allow),
            ..problem
        }
    }

    /// Creates a 503 response with `Retry-After`, for a server at a limit.
    pub fn at_capacity(detail: impl Into<Cow<'static, str>>) -> Self {
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, detail);
        Self {
            retry_after_s: Some(RETRY_AFTER_S_DEFAULT),
            ..problem
        }
    }

    /// Creates the response to a caller that gets no place among the server's `items`: 429 at the
    /// caller's limit, 503 at the server's.
    pub fn no_place(items: &str, error: ShareError) -> Self {
        let problem = Self::at_capacity(format!("too many {items}: {error}"));
        match error.is_own_limit() {
            true => Self {
                status: StatusCode::TOO_MANY_REQUESTS,
                ..problem
            },
            false => problem,
        }
    }

    #[cfg(test)]
    fn detail(&self) -> &str {
        &self.detail
    }

    /// Creates the response to a request at a listener with this access control. A caller that lacks a
    /// scope is told where a credential with it is issued.
    pub fn respond_to(mut self, request: &HttpRequest, access: &AccessControl) -> HttpResponse {
        let scope = self.scope.take();
        let challenge = scope.and_then(|scope| guard::scope_challenge(request, access, &scope));
        let mut response = self.respond();
        if let Some(challenge) = challenge {
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        response
    }

    pub fn respond(self) -> HttpResponse {
        let mut response =
            json_response(self.status, &RawObject::new().with("detail", &*self.detail));
        let headers = response.headers_mut();
        let challenge = self.challenge.as_deref();
        if let Some(challenge) = http_response::challenge_header(self.status, challenge) {
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(VARY, HeaderValue::from_static("Authorization, X-Agent-ID"));
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

impl From<HttpRejection> for ProblemResponse {
    fn from(refused: HttpRejection) -> Self {
        let retry_after_s =
            (refused.status == StatusCode::SERVICE_UNAVAILABLE).then_some(RETRY_AFTER_S_DEFAULT);
        Self {
            challenge: refused.challenge,
            retry_after_s,
            ..Self::new(refused.status, refused.message)
        }
    }
}

/// Converts a failure of the mailroom. `Overloaded` becomes 429 if the failure's data has a delay
/// (a rate limit of the sender), and otherwise 503.
impl From<Failure> for ProblemResponse {
    fn from(failure: Failure) -> Self {
        let wait = failure
            .data
            .as_ref()
            .and_then(|data| data.get(RETRY_AFTER_DATA_KEY)?.as_u64());
        let scope = failure.needed_scope().map(str::to_owned);
        let status = match failure.kind {
            FailureKind::InvalidInput | FailureKind::Rejected => StatusCode::UNPROCESSABLE_ENTITY,
            FailureKind::NotFound => return Self::not_found(),
            FailureKind::Denied | FailureKind::Blocked => StatusCode::FORBIDDEN,
            FailureKind::Overloaded if wait.is_some() => StatusCode::TOO_MANY_REQUESTS,
            FailureKind::Overloaded | FailureKind::Cancelled => StatusCode::SERVICE_UNAVAILABLE,
            FailureKind::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            // A store that is unavailable or damaged, or a defect.
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
            callboard_message::log::warn!(%kind, why = message, "a request of mail failed");
            // The text after the colon comes from a database or network and must not leave the
            // node.
            message.truncate(message.find(": ").unwrap_or(message.len()));
        }
        Self {
            scope,
            retry_after_s,
            ..Self::new(status, message)
        }
    }
}

/// Creates a JSON response that caches must not store.
pub(super) fn json_response(status: StatusCode, body: &impl Serialize) -> HttpResponse {
    let Ok(body) = serde_json::to_vec(body) else {
        return HttpResponse::InternalServerError().finish();
    };
    http_response::json_response(status, JSON, body)
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

    /// Goal: an invalid part is named, and its value is never repeated. Method: rows, each with a
    /// secret in it.
    #[test]
    fn misfits_are_named() {
        for (sent, named) in [
            (
                r#"{"message": "secret", "lmit": 3}"#,
                "`lmit` is not known here",
            ),
            (
                "{\"message\":\n \"x\",\n\n \"limit\":\n \"secret\", \"names\": []}",
                "`limit` has a wrong type or value",
            ),
            (
                r#"{"limit": 300, "message": "secret"}"#,
                "`limit` has a wrong type or value",
            ),
            (
                r#"{"message": "x", "names": ["a", 1, "secret"]}"#,
                "`names` has a wrong type or value",
            ),
            (
                r#"{"message": {"secret": 1}}"#,
                "`message` has a wrong type or value",
            ),
            (
                r#"{"message": ["secret"], "limit": 1}"#,
                "`message` has a wrong type or value",
            ),
            (r#"{"limit": 1}"#, "`message` is needed"),
            ("{}", "`message` is needed"),
            (r#"["secret"]"#, "must be a JSON object"),
            (r#""secret""#, "must be a JSON object"),
            ("", "the body can't be read as JSON: "),
            (r#"{"message": "secret", "message": "x"}"#, "duplicate key"),
            (
                "{\"message\": \"secret\"",
                "the body can't be read as JSON: ",
            ),
        ] {
            let problem =
                parse_body::<Sample>(sent.as_bytes(), &DecodeLimits::default()).unwrap_err();
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
        let problem = parse_body::<Sample>(long.as_bytes(), &DecodeLimits::default()).unwrap_err();
        assert_eq!(
            problem.detail(),
            format!("`{}` is not known here", "n".repeat(NAME_CHARS_MAX))
        );
        assert!(
            parse_body::<Sample>(
                br#"{"message": "x", "limit": null}"#,
                &DecodeLimits::default()
            )
            .is_ok()
        );
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
        /// Goal: any input is parsed or rejected, and no part of it is repeated. Method: any JSON,
        /// in two layouts.
        #[test]
        fn nothing_is_repeated(sent in json(), pretty in any::<bool>()) {
            let text = if pretty { format!("{sent:#}") } else { sent.to_string() };
            if let Err(problem) = parse_body::<Sample>(text.as_bytes(), &DecodeLimits::default()) {
                prop_assert!(!problem.detail().contains("secret"), "{}", problem.detail());
                // A member that is named was sent, or is required.
                let named = problem.detail().split('`').nth(1);
                let is_there = named.is_none_or(|named| sent.get(named).is_some() || named == "message");
                prop_assert!(is_there, "{}", problem.detail());
            }
        }
    }

    /// Goal: queries have known parameters, once each, and values are parsed by kind. Method: rows.
    #[test]
    fn queries() {
        let known = |name: &str| name == "a" || name == "b";
        let query = QueryParameters::read("a=1&b=x%20y", known).unwrap();
        assert_eq!(
            (query.parse::<u64>("a").unwrap(), query.text("b")),
            (Some(1), Some("x y"))
        );
        assert_eq!(query.parse::<String>("b").unwrap().as_deref(), Some("x y"));
        assert!(query.parse::<u64>("b").is_err());
        assert_eq!(query.parse::<bool>("c").unwrap(), None);
        for bad in ["c=1", "a=1&a=1", "a=1&c"] {
            assert!(QueryParameters::read(bad, known).is_err(), "{bad}");
        }
    }
}
