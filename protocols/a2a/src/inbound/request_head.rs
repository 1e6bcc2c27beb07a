//! Authentication and negotiation from a request's headers.

use std::sync::Arc;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, ACCEPT, HeaderMap, HeaderName};
use actix_web::web::Payload;
use callboard_message::Principal;
use callboard_rpc::serve::accept_header;
use callboard_rpc::serve::buffers::RequestBody;
use callboard_rpc::serve::guard::{self, HttpRejection, http_rejection};
use url::form_urlencoded;

use super::calls::RequestContext;
use super::options::A2aOptions;
use crate::{A2aError, Dialect, ErrorKind};

/// Header with the protocol version, which may also be a query parameter.
const VERSION_HEADER: &str = "a2a-version";
/// Header with an API key, for clients that can't send `Authorization`. It is one of the card's
/// security schemes.
static API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// Header with the id of the last event that a client received (WHATWG HTML, section 9.2.4).
static LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Header with the caller's trace context (W3C Trace Context).
static TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");
/// Headers with the protocol extensions that a client requests: the one of 1.0, and the one of
/// older versions.
static EXTENSIONS: [HeaderName; 2] = [
    HeaderName::from_static("a2a-extensions"),
    HeaderName::from_static("x-a2a-extensions"),
];

/// Accepted media types of bodies.
const BODY_TYPES: [&str; 2] = [guard::JSON, A2A_JSON];
/// A2A's own media type for JSON.
pub(super) const A2A_JSON: &str = "application/a2a+json";

/// Authenticated head of a request, after its source (`Host`, `Origin`) was checked. The body
/// hasn't been read.
pub(super) struct RequestHead {
    /// Context of the request. Its dialect is provisional until the operation is known.
    pub(super) context: RequestContext,
    /// Number of the event after which a stream resumes.
    pub(super) last_event: Option<u64>,
    /// Whether the client accepts event streams and nothing else.
    pub(super) accepts_events_only: bool,
    /// Result of checking the client's version and extensions. It is reported in the format of the
    /// request's binding, which is determined later.
    pub(super) negotiated: Result<(), A2aError>,
}

impl RequestHead {
    /// Checks the source of a request, authenticates it, and reads its headers.
    ///
    /// # Errors
    /// 401, 403 or 503 if the principal can't be determined or the request's source isn't allowed;
    /// 400 if there are two credentials.
    pub(super) async fn from_request(
        request: &HttpRequest,
        options: &A2aOptions,
    ) -> Result<Self, HttpRejection> {
        guard::check_source(request, &options.hosts, &options.origins)?;
        let principal = Arc::new(authenticate(request, options).await?);
        let headers = request.headers();
        let word = |name: &HeaderName| {
            headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .map(str::trim)
        };
        let trace = word(&TRACE_PARENT).and_then(|parent| parent.parse().ok());
        Ok(Self {
            context: RequestContext::new(principal, Dialect::V10)
                .with_parent_trace(trace)
                .with_extensions(requested_extensions(headers)),
            last_event: word(&LAST_EVENT_ID).and_then(|id| id.parse().ok()),
            accepts_events_only: accepts_events_only(headers),
            negotiated: negotiate(request, options),
        })
    }
}

/// Authenticates a request by `Authorization` or `X-API-Key`, which take the same keys. Fails with
/// 400 if there is more than one credential.
async fn authenticate(
    request: &HttpRequest,
    options: &A2aOptions,
) -> Result<Principal, HttpRejection> {
    const TWICE: HttpRejection = http_rejection(
        StatusCode::BAD_REQUEST,
        "send one credential: `Authorization` or `X-API-Key`",
    );
    let mut keys = request.headers().get_all(&API_KEY);
    let Some(key) = keys.next() else {
        return guard::authenticate(request, None, &options.access).await;
    };
    if keys.next().is_some() || request.headers().contains_key(header::AUTHORIZATION) {
        return Err(TWICE);
    }
    let shown = [b"Bearer ", key.as_bytes()].concat();
    guard::authenticate(request, Some(&shown), &options.access).await
}

/// Returns the context of a request for a public document: with its principal, or with an anonymous
/// one if authentication fails.
pub(super) async fn caller_or_anonymous(
    request: &HttpRequest,
    options: &A2aOptions,
) -> RequestContext {
    let principal = authenticate(request, options).await;
    let principal = principal.unwrap_or_else(|_| Principal::anonymous());
    RequestContext::new(Arc::new(principal), Dialect::V10)
}

/// Returns the version that a request names in its header or query; empty if it names none.
fn requested_version(request: &HttpRequest) -> String {
    if let Some(value) = request.headers().get(VERSION_HEADER) {
        return String::from_utf8_lossy(value.as_bytes()).trim().to_owned();
    }
    let mut query = form_urlencoded::parse(request.query_string().as_bytes());
    query
        .find(|(name, _)| name.eq_ignore_ascii_case(VERSION_HEADER))
        .map(|(_, value)| value.trim().to_owned())
        .unwrap_or_default()
}

/// Returns whether a request asks for the card in the format of 1.0.
pub(super) fn accepts_v1_card(request: &HttpRequest) -> bool {
    requested_version(request).split('.').next() == Some("1")
}

fn negotiate(request: &HttpRequest, options: &A2aOptions) -> Result<(), A2aError> {
    if !Dialect::is_supported(&requested_version(request)) {
        return Err(
            ErrorKind::VersionNotSupported.error("unsupported version: use 1.0, 0.3 or 0.1")
        );
    }
    check_required_extensions(options, || requested_extensions(request.headers()))
}

/// Checks that a client named all required extensions. Fails with `ExtensionSupportRequired`.
pub(super) fn check_required_extensions<'a, N: Iterator<Item = &'a str>>(
    options: &A2aOptions,
    names: impl Fn() -> N,
) -> Result<(), A2aError> {
    let is_known = |uri: &str| names().any(|name| name.eq_ignore_ascii_case(uri));
    match options
        .extensions
        .iter()
        .find(|extension| extension.required && !is_known(&extension.uri))
    {
        Some(extension) => Err(ErrorKind::ExtensionSupportRequired.error(format!(
            "the extension {} is required: name it in `A2A-Extensions`",
            extension.uri
        ))),
        None => Ok(()),
    }
}

/// Returns the extensions that a client requests.
fn requested_extensions(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lists = EXTENSIONS
        .iter()
        .flat_map(|name| headers.get_all(name))
        .filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',')).map(str::trim)
}

/// Returns whether a response of the HTTP+JSON binding has A2A's own media type, as section 11.1
/// says: in 1.0, unless the client names plain JSON without it, or refuses it.
pub(super) fn uses_a2a_json(headers: &HeaderMap, dialect: Dialect) -> bool {
    let (mut own, mut plain) = (false, false);
    accept_header::for_each_media_range(headers, |kind| {
        own |= kind.eq_ignore_ascii_case(A2A_JSON.as_bytes());
        plain |= kind.eq_ignore_ascii_case(guard::JSON.as_bytes());
    });
    // A range of weight zero isn't among the accepted ones.
    let refuses = || {
        let mut lists = headers
            .get_all(ACCEPT)
            .filter_map(|value| value.to_str().ok());
        lists.any(|list| list.to_ascii_lowercase().contains(A2A_JSON))
    };
    dialect == Dialect::V10 && (own || !plain && !refuses())
}

fn accepts_events_only(headers: &HeaderMap) -> bool {
    let (mut events, mut other) = (false, false);
    accept_header::for_each_media_range(headers, |kind| {
        match kind.eq_ignore_ascii_case(b"text/event-stream") {
            true => events = true,
            false => other = true,
        }
    });
    events && !other
}

/// Reads the body of a request, which may be empty.
///
/// # Errors
/// 400, 408, 413, 415 or 503.
pub(super) async fn read_body(
    request: &HttpRequest,
    payload: Payload,
    options: &A2aOptions,
) -> Result<RequestBody, HttpRejection> {
    guard::read_json(
        request,
        payload,
        &BODY_TYPES,
        options.limits.body_bytes_max,
        options.body_timeout,
    )
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::HeaderValue;

    /// Goal: in 1.0 A2A's own media type is used unless a client names plain JSON without it or
    /// refuses it; never in 0.3. Method: rows.
    #[test]
    fn types_that_are_wanted() {
        for (accept, own) in [
            ("application/a2a+json", true),
            ("Application/A2A+JSON, text/event-stream", true),
            ("application/a2a+json, */*;q=0.1", true),
            ("application/json, application/a2a+json", true),
            ("application/json", false),
            ("application/json, text/event-stream", false),
            ("application/json, */*", false),
            ("application/json;q=0", true),
            ("application/a2a+json;q=0", false),
            ("application/*", true),
            ("*/*", true),
            ("text/event-stream", true),
            ("", true),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(uses_a2a_json(&headers, Dialect::V10), own, "{accept}");
            assert!(!uses_a2a_json(&headers, Dialect::V03Rest), "{accept}");
        }
        assert!(uses_a2a_json(&HeaderMap::new(), Dialect::V10));
    }
}
