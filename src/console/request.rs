//! Requests to the console that have been checked, and the responses to them.

use std::borrow::Cow;
use std::fmt::Display;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, LOCATION,
};
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use callboard_message::{Failure, FailureKind};
use callboard_rpc::serve::guard::{self, HttpRejection, JSON};
use callboard_rpc::serve::http_response::{json_response, rejection_response};
use maud::Markup;
use serde::Serialize;
use serde_json::{Map, Value, json};
use url::form_urlencoded;

use super::ConsoleState;
use super::access::{ConsoleClient, Role};
use super::form::FORM_VALUES_MAX;
use super::pages::{self, PageFrame};
use crate::monitor::view::Overview;

/// Maximum size of the body of a request, in bytes: a mail of 64 KiB with each byte escaped fits.
const BODY_BYTES_MAX: usize = 256 * 1024;
/// Time within which the body of a request must arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of fields of a form: its values, and those that all forms have. A form with more is refused.
const FIELDS_MAX: usize = FORM_VALUES_MAX + 16;
/// Maximum number of parameters of a query. Further ones are left out.
const PARAMETERS_MAX: usize = 64;
/// Media type of forms.
const FORM: &str = "application/x-www-form-urlencoded";
const HTML: &str = "text/html; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
/// Member of a JSON body with the values of a form.
const VALUES_MEMBER: &str = "values";

/// Header that all browsers keep: scripts, styles and requests are the console's own.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
static CONTENT_SECURITY_POLICY_HEADER: HeaderName =
    HeaderName::from_static("content-security-policy");
static CONTENT_TYPE_OPTIONS_HEADER: HeaderName = HeaderName::from_static("x-content-type-options");
static REFERRER_POLICY_HEADER: HeaderName = HeaderName::from_static("referrer-policy");
static RESOURCE_POLICY_HEADER: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
/// Header by which htmx tells that a request is its own.
const HTMX_HEADER: &str = "hx-request";
/// Header by which htmx loads another page in place of a part of this one.
static HTMX_REDIRECT_HEADER: HeaderName = HeaderName::from_static("hx-redirect");

/// Fields of a form, or members of a JSON object.
#[derive(Default)]
pub(super) struct Fields {
    pairs: Vec<(String, String)>,
    values: Option<Map<String, Value>>,
}

impl Fields {
    /// Reads the parameters of a query.
    pub(super) fn of_query(query: &str) -> Self {
        let pairs = form_urlencoded::parse(query.as_bytes()).into_owned();
        Self {
            pairs: pairs.take(PARAMETERS_MAX).collect(),
            values: None,
        }
    }

    /// Reads the body of a request: a form, or a JSON object, whose member `values` has the values of
    /// a form by name.
    ///
    /// # Errors
    /// Those of [`guard::read_json`]; 422 for JSON that isn't an object, and for too many fields.
    pub(super) async fn of_body(
        request: &HttpRequest,
        payload: Payload,
    ) -> Result<Self, ConsoleError> {
        let types = [FORM, JSON];
        let body = guard::read_json(request, payload, &types, BODY_BYTES_MAX, BODY_TIMEOUT).await?;
        let kind = request.headers().get(CONTENT_TYPE);
        let is_json = kind
            .and_then(|kind| kind.to_str().ok())
            .is_some_and(|kind| kind.to_ascii_lowercase().starts_with(JSON));
        if !is_json {
            return Self::of_form(&body);
        }
        let mut members: Map<String, Value> = serde_json::from_slice(&body)
            .map_err(|_| ConsoleError::invalid("the body must be a JSON object"))?;
        let values = match members.remove(VALUES_MEMBER) {
            None => None,
            Some(Value::Object(values)) => Some(values),
            Some(_) => return Err(ConsoleError::invalid("`values` must be an object")),
        };
        let text = |value: Value| match value {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let pairs = members.into_iter().map(|(name, value)| (name, text(value)));
        Ok(Self {
            pairs: pairs.collect(),
            values,
        })
    }

    fn of_form(body: &[u8]) -> Result<Self, ConsoleError> {
        let pairs = form_urlencoded::parse(body).into_owned();
        let pairs: Vec<_> = pairs.take(FIELDS_MAX + 1).collect();
        if pairs.len() > FIELDS_MAX {
            return Err(ConsoleError::invalid(format!(
                "the form has more than {FIELDS_MAX} fields: send fewer"
            )));
        }
        Ok(Self {
            pairs,
            values: None,
        })
    }

    /// Returns a field; empty if it is missing.
    pub(super) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// Returns a field; `None` if it is missing.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let mut pairs = self.pairs.iter();
        let found = pairs.find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns all fields in order.
    pub(super) fn pairs(&self) -> &[(String, String)] {
        &self.pairs
    }

    /// Returns the values of a form that came as JSON; `None` if they came as fields.
    pub(super) fn values(&self) -> Option<&Map<String, Value>> {
        self.values.as_ref()
    }
}

/// Request of a client that may use its route.
pub(super) struct ConsoleRequest<'a> {
    pub(super) request: &'a HttpRequest,
    pub(super) console: &'a ConsoleState,
    pub(super) client: ConsoleClient,
    pub(super) query: Fields,
    /// Fields of the body; none for a route without one.
    pub(super) body: Fields,
    /// Number of questions that wait in the inboxes of people.
    pub(super) inbox_questions: usize,
}

impl ConsoleRequest<'_> {
    /// Returns a part of the path, such as `id`; empty if the route has none.
    pub(super) fn path_part(&self, name: &str) -> &str {
        self.request.match_info().get(name).unwrap_or_default()
    }

    /// Checks that the client has a role.
    ///
    /// # Errors
    /// 403 if it hasn't, with the scope that it lacks.
    pub(super) fn require(&self, role: Role) -> Result<(), ConsoleError> {
        if self.client.has(role) {
            return Ok(());
        }
        let scope = role.scope().unwrap_or_default();
        let name = callboard_runtime::visible(&self.client.principal.id);
        let access = &self.console.access.access;
        let challenge = guard::scope_challenge(self.request, access, scope);
        let error = ConsoleError::denied(format!(
            "{name} lacks the scope {scope}, which this needs: ask the operator for a key with it (`callboard keys add NAME --scope {scope}`)"
        ));
        Err(error.with_challenge(challenge))
    }

    /// Returns the summary of the node, with the questions in the inboxes of people.
    pub(super) fn overview(&self) -> Overview {
        let mut overview = self.console.monitor.overview();
        overview.questions += self.inbox_questions;
        overview
    }

    /// Renders a page for the client.
    pub(super) fn page(&self, render: impl FnOnce(&PageFrame<'_>) -> Markup) -> HttpResponse {
        self.page_with(StatusCode::OK, render)
    }

    fn page_with(
        &self,
        status: StatusCode,
        render: impl FnOnce(&PageFrame<'_>) -> Markup,
    ) -> HttpResponse {
        let overview = self.overview();
        let viewer = self.client.viewer();
        let frame = PageFrame {
            overview: &overview,
            viewer: &viewer,
            csrf: self.client.csrf(),
            path: self.request.path(),
        };
        html(status, render(&frame))
    }

    /// Returns the response to a request that changed something: to a browser the page `location`, to
    /// programs JSON with `done`, and `id` unless it is empty.
    pub(super) fn done(&self, location: &str, done: &str, id: &str) -> HttpResponse {
        if !wants_json(self.request) {
            return redirect(location);
        }
        let mut body = json!({ "done": done });
        if !id.is_empty() {
            body["id"] = id.into();
        }
        json_body(StatusCode::OK, &body)
    }

    /// Returns the response to a request that failed: a page if its reader may see the node, which its frame shows.
    pub(super) fn failed(&self, error: ConsoleError) -> HttpResponse {
        let is_page = error.status != StatusCode::UNAUTHORIZED && wants_page(self.request);
        if !is_page || !self.client.has(Role::Read) {
            return error.respond(self.request);
        }
        let title = error.status.canonical_reason().unwrap_or("Error");
        let text = error.text.clone();
        self.page_with(error.status, |frame| pages::message(frame, title, &text))
    }
}

/// Failure of a request, as its client is told.
#[derive(Debug)]
pub(super) struct ConsoleError {
    status: StatusCode,
    text: Cow<'static, str>,
    challenge: Option<Cow<'static, str>>,
}

impl ConsoleError {
    fn new(status: StatusCode, text: impl Into<Cow<'static, str>>) -> Self {
        Self {
            status,
            text: text.into(),
            challenge: None,
        }
    }

    /// Returns the failure of a request that is wrong: 422.
    pub(super) fn invalid(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, text)
    }

    /// Returns the failure of a request for something that isn't there: 404.
    pub(super) fn not_found(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::NOT_FOUND, text)
    }

    /// Returns the failure of a request for something that has changed meanwhile: 409.
    pub(super) fn conflict(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::CONFLICT, text)
    }

    /// Returns the failure of a client that lacks a right: 403.
    pub(super) fn denied(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::FORBIDDEN, text)
    }

    /// Adds a value of `WWW-Authenticate`, if there is one.
    pub(super) fn with_challenge(mut self, challenge: Option<HeaderValue>) -> Self {
        let text = challenge.and_then(|value| value.to_str().ok().map(str::to_owned));
        self.challenge = text.map(Cow::Owned);
        self
    }

    /// Returns the failure of a request with another method: 405.
    pub(super) fn wrong_method() -> Self {
        let text = "this path has another method: GET reads, POST changes";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, text)
    }

    /// Returns the failure of a request at a limit, or while the node stops: 503.
    pub(super) fn unavailable(text: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, text)
    }

    /// Returns the failure of the store, which is logged: 503.
    pub(super) fn of_store(error: impl Display) -> Self {
        callboard_message::log::error!(%error, "the console can't read or write the store");
        Self::unavailable("the node's store doesn't answer: try again later")
    }

    /// Returns the response: JSON for programs, the sign-in page for a browser that must sign in, and
    /// text for others.
    pub(super) fn respond(&self, request: &HttpRequest) -> HttpResponse {
        let rejection = HttpRejection {
            status: self.status,
            message: self.text.clone(),
            challenge: self.challenge.clone(),
        };
        if wants_json(request) {
            let body = json!({ "detail": &*self.text }).to_string().into_bytes();
            return rejection_response(&rejection, JSON, body);
        }
        if self.status == StatusCode::UNAUTHORIZED && wants_page(request) {
            // The first request of a browser has no credential, which is no mistake.
            let is_first = !request.path().starts_with("/login");
            let error = (!is_first).then_some(&*self.text);
            let body = pages::login(error).into_string().into_bytes();
            return rejection_response(&rejection, HTML, body);
        }
        let body = self.text.as_bytes().to_vec();
        let mut response = rejection_response(&rejection, TEXT, body);
        if self.status == StatusCode::UNAUTHORIZED && is_htmx(request) {
            let login = HeaderValue::from_static("/login");
            response
                .headers_mut()
                .insert(HTMX_REDIRECT_HEADER.clone(), login);
        }
        response
    }
}

impl From<HttpRejection> for ConsoleError {
    fn from(rejection: HttpRejection) -> Self {
        Self {
            status: rejection.status,
            text: rejection.message,
            challenge: rejection.challenge,
        }
    }
}

impl From<Failure> for ConsoleError {
    fn from(failure: Failure) -> Self {
        let status = match failure.kind {
            FailureKind::NotFound => StatusCode::NOT_FOUND,
            FailureKind::Denied | FailureKind::Blocked => StatusCode::FORBIDDEN,
            FailureKind::Overloaded | FailureKind::Unavailable | FailureKind::Cancelled => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            FailureKind::TimedOut => StatusCode::GATEWAY_TIMEOUT,
            FailureKind::InvalidInput | FailureKind::Rejected | FailureKind::NoResponder => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self::new(status, failure.message)
    }
}

/// Returns a JSON response.
pub(super) fn json_body(status: StatusCode, body: &impl Serialize) -> HttpResponse {
    match serde_json::to_vec(body) {
        Ok(body) => json_response(status, JSON, body),
        Err(_) => HttpResponse::InternalServerError().finish(),
    }
}

/// Returns a response with a page, or a part of one.
pub(super) fn html(status: StatusCode, markup: Markup) -> HttpResponse {
    json_response(status, HTML, markup.into_string().into_bytes())
}

/// Returns a text response.
pub(super) fn text(status: StatusCode, text: &str) -> HttpResponse {
    json_response(status, TEXT, text.as_bytes().to_vec())
}

/// Returns the response that makes a browser load a page of the console.
pub(super) fn redirect(location: &str) -> HttpResponse {
    let mut response = HttpResponse::SeeOther();
    response.insert_header((LOCATION, location));
    response.finish()
}

/// Adds the headers that each response of the console has.
pub(super) fn with_security_headers(mut response: HttpResponse) -> HttpResponse {
    let headers = response.headers_mut();
    for (name, value) in [
        (&CONTENT_SECURITY_POLICY_HEADER, CONTENT_SECURITY_POLICY),
        (&CONTENT_TYPE_OPTIONS_HEADER, "nosniff"),
        // With `no-referrer` browsers name no origin in forms, and their requests are refused.
        (&REFERRER_POLICY_HEADER, "same-origin"),
        (&RESOURCE_POLICY_HEADER, "same-origin"),
    ] {
        headers.insert(name.clone(), HeaderValue::from_static(value));
    }
    response
}

/// Returns a text as a value of a query.
pub(super) fn query_value(text: &str) -> String {
    form_urlencoded::byte_serialize(text.as_bytes()).collect()
}

/// Returns whether a request comes from a program, which reads JSON.
fn wants_json(request: &HttpRequest) -> bool {
    request.path().starts_with("/api/")
        || request.headers().contains_key(AUTHORIZATION)
        || accepts(request, JSON)
}

/// Returns whether a request comes from a browser that shows its response as a page.
fn wants_page(request: &HttpRequest) -> bool {
    !wants_json(request) && !is_htmx(request) && accepts(request, "text/html")
}

fn is_htmx(request: &HttpRequest) -> bool {
    request.headers().contains_key(HTMX_HEADER)
}

fn accepts(request: &HttpRequest, kind: &str) -> bool {
    let accepted = request.headers().get(ACCEPT);
    let accepted = accepted.and_then(|value| value.to_str().ok());
    accepted.is_some_and(|accepted| accepted.contains(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: no field of a form is left out in silence. Method: as many as are allowed, and one more.
    #[test]
    fn fields_are_bounded() {
        let form = |count: usize| vec!["v.f=1"; count].join("&").into_bytes();
        let whole = Fields::of_form(&form(FIELDS_MAX)).unwrap();
        assert_eq!(whole.pairs().len(), FIELDS_MAX);
        let refused = Fields::of_form(&form(FIELDS_MAX + 1)).err().unwrap();
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    }
}
