//! Who sends a request, and what its headers want.

use std::sync::Arc;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderMap, HeaderName};
use actix_web::web::Payload;
use bytes::BytesMut;
use callboard_message::Principal;
use callboard_rpc::serve::accept;
use callboard_rpc::serve::guard::{self, Refused, refused};
use url::form_urlencoded;

use super::calls::Who;
use super::options::A2aOptions;
use crate::{A2aError, Dialect, ErrorKind};

/// The header of the protocol's version; a query may have it too.
const VERSION: &str = "a2a-version";
/// A key, where `Authorization` can't be sent: an API key of the card's security schemes.
static API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// The last event that a client has seen (WHATWG HTML, section 9.2.4).
static LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// The caller's place in a trace (W3C Trace Context).
static TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");
/// The protocol extensions that a client wants, in 1.0 and before.
static EXTENSIONS: [HeaderName; 2] = [
    HeaderName::from_static("a2a-extensions"),
    HeaderName::from_static("x-a2a-extensions"),
];

/// The types that a body may have.
const TYPES: [&str; 2] = [guard::JSON, A2A_JSON];
/// A2A's own type of JSON.
pub(super) const A2A_JSON: &str = "application/a2a+json";

/// What a request is apart from its body, from a source that may ask.
pub(super) struct Head {
    /// Who asks; in which dialect isn't known yet.
    pub(super) who: Who,
    /// Where a stream goes on.
    pub(super) last_event: Option<u64>,
    /// Whether it reads event streams by name, and JSON not at all.
    pub(super) reads_events_only: bool,
    /// Whether what it says of versions and extensions can be served.
    pub(super) agreed: Result<(), A2aError>,
}

impl Head {
    /// # Errors
    /// 401, 403, 503: nobody knows who it is, or it comes from where nobody may.
    pub(super) fn of(request: &HttpRequest, options: &A2aOptions) -> Result<Self, Refused> {
        guard::check_source(request, &options.hosts, &options.origins)?;
        let principal = Arc::new(principal(request, options)?);
        let headers = request.headers();
        let word = |name: &HeaderName| {
            headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .map(str::trim)
        };
        let trace = word(&TRACE_PARENT).and_then(|parent| parent.parse().ok());
        Ok(Self {
            who: Who::new(principal, Dialect::V10).traced(trace),
            last_event: word(&LAST_EVENT_ID).and_then(|id| id.parse().ok()),
            reads_events_only: reads_events_only(headers),
            agreed: agree(request, options),
        })
    }
}

/// Who is behind a request: by `Authorization`, or by `X-API-Key`, which is the same key.
fn principal(request: &HttpRequest, options: &A2aOptions) -> Result<Principal, Refused> {
    const TWICE: Refused = refused(
        StatusCode::BAD_REQUEST,
        "send one credential: `Authorization` or `X-API-Key`",
    );
    let mut keys = request.headers().get_all(&API_KEY);
    let Some(key) = keys.next() else {
        return guard::principal(request, &options.access);
    };
    if keys.next().is_some() || request.headers().contains_key(header::AUTHORIZATION) {
        return Err(TWICE);
    }
    let shown = [b"Bearer ", key.as_bytes()].concat();
    guard::principal_showing(request, Some(&shown), &options.access)
}

/// Whoever asks for what is there for all: nobody in particular, where it isn't known who it is.
pub(super) fn anybody(request: &HttpRequest, options: &A2aOptions) -> Who {
    let principal = principal(request, options).unwrap_or_else(|_| Principal::anonymous());
    Who::new(Arc::new(principal), Dialect::V10)
}

/// The version that a request names, in its header or its query; empty where it names none.
fn version(request: &HttpRequest) -> String {
    if let Some(value) = request.headers().get(VERSION) {
        return String::from_utf8_lossy(value.as_bytes()).trim().to_owned();
    }
    let mut query = form_urlencoded::parse(request.query_string().as_bytes());
    query
        .find(|(name, _)| name.eq_ignore_ascii_case(VERSION))
        .map(|(_, value)| value.trim().to_owned())
        .unwrap_or_default()
}

/// Whether a client says that it reads 1.0's card.
pub(super) fn reads_1(request: &HttpRequest) -> bool {
    version(request).split('.').next() == Some("1")
}

fn agree(request: &HttpRequest, options: &A2aOptions) -> Result<(), A2aError> {
    if !Dialect::is_served(&version(request)) {
        return Err(
            ErrorKind::VersionNotSupported.error("versions 1.0, 0.3 and 0.1 are spoken here")
        );
    }
    knows_required(options, || names(request.headers()))
}

/// Whether a client that wants these extensions knows all that it must.
pub(super) fn knows_required<'a, N: Iterator<Item = &'a str>>(
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

/// The extensions that a client wants.
fn names(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let lists = EXTENSIONS
        .iter()
        .flat_map(|name| headers.get_all(name))
        .filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',')).map(str::trim)
}

/// Whether a client reads A2A's own type of JSON, and plain JSON not by name.
pub(super) fn wants_a2a_json(headers: &HeaderMap) -> bool {
    let (mut own, mut plain) = (false, false);
    accept::each_range(headers, |kind| {
        own |= kind.eq_ignore_ascii_case(A2A_JSON.as_bytes());
        plain |= kind.eq_ignore_ascii_case(guard::JSON.as_bytes())
            || kind.eq_ignore_ascii_case(b"application/*");
    });
    own && !plain
}

fn reads_events_only(headers: &HeaderMap) -> bool {
    let (mut events, mut other) = (false, false);
    accept::each_range(headers, |kind| {
        match kind.eq_ignore_ascii_case(b"text/event-stream") {
            true => events = true,
            false => other = true,
        }
    });
    events && !other
}

/// The body of a request that may have one.
///
/// # Errors
/// 400, 408, 413, 415.
pub(super) async fn body(
    request: &HttpRequest,
    payload: Payload,
    options: &A2aOptions,
) -> Result<BytesMut, Refused> {
    guard::read_json(
        request,
        payload,
        &TYPES,
        options.limits.body_bytes_max,
        options.body_timeout,
    )
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::{ACCEPT, HeaderValue};

    /// Goal: A2A's own type goes to those who name it and nothing plainer. Method: rows.
    #[test]
    fn types_that_are_wanted() {
        for (accept, own) in [
            ("application/a2a+json", true),
            ("Application/A2A+JSON, text/event-stream", true),
            ("application/a2a+json, */*;q=0.1", true),
            ("application/json, application/a2a+json", false),
            ("application/a2a+json;q=0", false),
            ("application/*, application/a2a+json", false),
            ("*/*", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(wants_a2a_json(&headers), own, "{accept}");
        }
        assert!(!wants_a2a_json(&HeaderMap::new()));
    }
}
