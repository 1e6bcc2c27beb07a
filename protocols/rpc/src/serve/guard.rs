//! Checks of a request before its body is read: origin, host, credential, media type and size.

use std::borrow::Cow;
use std::time::Duration;

use actix_web::http::header::HeaderValue;
use actix_web::http::{StatusCode, Version, header};
use actix_web::web::Payload;
use actix_web::{HttpMessage, HttpRequest};
use callboard_message::Principal;
use futures::StreamExt;
use tokio::time::timeout;
use url::Url;

use super::buffers::{self, RequestBody};
use super::client_address::client_address;
use super::rejections::mark_rejected;
use super::tls::client_certificate;
use super::{OtherCredential, bound_address, contradicts_address, is_tls};
use crate::{
    AccessControl, AllowedHosts, AllowedOrigins, BUFFERS_FULL, CredentialError,
    PresentedCredential, TokenResource, UNCOUNTED_REQUEST_BYTES_MAX, is_forwarding_header,
    is_valid_scope,
};

/// Rejection of an HTTP request by the checks before its handler, with the data for the response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRejection {
    /// HTTP status of the response.
    pub status: StatusCode,
    /// Explanation of the rejection and its remedy, for a person.
    pub message: Cow<'static, str>,
    /// Value of the response header `WWW-Authenticate`; `None` if a token would not help.
    pub challenge: Option<Cow<'static, str>>,
}

/// Creates a rejection without `WWW-Authenticate`.
pub const fn http_rejection(status: StatusCode, message: &'static str) -> HttpRejection {
    HttpRejection {
        status,
        message: Cow::Borrowed(message),
        challenge: None,
    }
}

/// Checks the `Origin` and `Host` of a request. This protects a listener that trusts its own
/// machine from foreign web pages and DNS rebinding (MCP 2025-11-25, transports, security warning).
/// A request for another protocol, such as WebSocket, is checked more strictly: see
/// [`AllowedOrigins::check_upgrade`].
///
/// # Errors
/// 403 if the origin or the host is not allowed.
pub fn check_source(
    request: &HttpRequest,
    hosts: &AllowedHosts,
    origins: &AllowedOrigins,
) -> Result<(), HttpRejection> {
    let headers = request.headers();
    let local = bound_address(request);
    let pages = headers.get_all(header::ORIGIN).map(|o| o.as_bytes());
    let is_foreign = match headers.contains_key(header::UPGRADE) {
        true => origins.check_upgrade(pages, local.port()).is_err(),
        false => origins.check(pages).is_err(),
    };
    if is_foreign {
        return Err(http_rejection(
            StatusCode::FORBIDDEN,
            "the page's origin is not allowed here: the listener's `origins` must name it",
        ));
    }
    let target = request.uri().authority().map(|a| a.as_str().as_bytes());
    let names = headers
        .get_all(header::HOST)
        .map(|h| h.as_bytes())
        .chain(target);
    if hosts.check(names, local.ip()).is_err() {
        return Err(http_rejection(
            StatusCode::FORBIDDEN,
            "the host name is not allowed here: the listener's `hosts` must name it",
        ));
    }
    Ok(())
}

/// Authenticates a request and returns its principal. The credential is the value of the
/// `Authorization` header, or `shown` if the client sent it in another way; `shown` has the same
/// format. Without either it is the certificate of the connection's client.
///
/// # Errors
/// 400 for several credentials; 401 for a missing or wrong one; 403 if a token lacks a scope, or if
/// the request was forwarded by a proxy and the listener accepts direct connections only, or if a
/// mounted service without credentials that is said to be at a loopback address has a client elsewhere;
/// 503 if credentials can't be verified at the moment.
pub async fn authenticate(
    request: &HttpRequest,
    shown: Option<&[u8]>,
    access: &AccessControl,
) -> Result<Principal, HttpRejection> {
    if matches!(access, AccessControl::Open(_)) && contradicts_address(request) {
        return Err(http_rejection(
            StatusCode::FORBIDDEN,
            "without credentials only clients of the server's own machine are served: configure \
             credentials for the mounted service",
        ));
    }
    let unproven = |error: CredentialError| {
        mark_rejected(request, error);
        let status = StatusCode::from_u16(error.http_status()).unwrap_or(StatusCode::UNAUTHORIZED);
        HttpRejection {
            challenge: challenge(request, access, error),
            ..http_rejection(status, error.message())
        }
    };
    let mut headers = request
        .headers()
        .get_all(header::AUTHORIZATION)
        .map(|value| value.as_bytes());
    let authorization = shown.or_else(|| headers.next());
    if headers.next().is_some() {
        return Err(unproven(CredentialError::Malformed));
    }
    let credential = PresentedCredential {
        peer: client_address(request),
        local: Some(bound_address(request).ip()),
        authorization,
        certificate: client_certificate(request),
        // Our clients use HTTP/1.1 or later. By default nginx forwards with HTTP/1.0 and adds no
        // header.
        is_forwarded: request.version() < Version::HTTP_11
            || request
                .headers()
                .keys()
                .any(|name| is_forwarding_header(name.as_str())),
    };
    access.prepare(&credential).await;
    let principal = access.authenticate(&credential).map_err(unproven)?;
    if let Some(shown) = shown {
        // A stream verifies it again.
        let shown = OtherCredential(shown.to_vec());
        request.extensions_mut().insert(shown);
    }
    buffers::record_owner(request, &principal);
    Ok(principal)
}

/// Returns the value of `WWW-Authenticate` for a rejected credential, with the place of the
/// listener's metadata if it accepts access tokens.
fn challenge(
    request: &HttpRequest,
    access: &AccessControl,
    error: CredentialError,
) -> Option<Cow<'static, str>> {
    let plain = error.challenge()?;
    let Some(resource) = access.token_resource() else {
        return Some(plain.into());
    };
    let metadata = metadata_url(request, resource);
    Some(
        resource
            .extend_challenge(plain, metadata.as_ref(), None)
            .into(),
    )
}

/// Returns the value of `WWW-Authenticate` for a request whose credential is valid and lacks the
/// scope `needed` for what it asks; the status is 403. Returns `None` if the listener takes no
/// credentials, or the scope isn't one of RFC 6749.
pub fn scope_challenge(
    request: &HttpRequest,
    access: &AccessControl,
    needed: &str,
) -> Option<HeaderValue> {
    if !matches!(access, AccessControl::Bearer(_)) || !is_valid_scope(needed) {
        return None;
    }
    let plain = CredentialError::InsufficientScope.challenge()?;
    let keys_only = TokenResource::default();
    let resource = access.token_resource();
    let metadata = resource.and_then(|resource| metadata_url(request, resource));
    let challenge =
        resource
            .unwrap_or(&keys_only)
            .extend_challenge(plain, metadata.as_ref(), Some(needed));
    HeaderValue::from_str(&challenge).ok()
}

fn metadata_url(request: &HttpRequest, resource: &TokenResource) -> Option<Url> {
    let (host, is_tls) = request_origin(request);
    resource.metadata_url(host, is_tls, request.path())
}

/// Returns the host of a request, and whether it came over TLS.
pub(super) fn request_origin(request: &HttpRequest) -> (Option<&str>, bool) {
    let host = request.headers().get(header::HOST);
    let host = host.and_then(|host| host.to_str().ok());
    let authority = || request.uri().authority().map(|name| name.as_str());
    (host.or_else(authority), is_tls(request))
}

/// Media type of JSON.
pub const JSON: &str = "application/json";

/// Reads the body of a request. It must have one of the media types `types`, or none if it doesn't
/// come from a web page, and be uncompressed. Its content isn't parsed. Its bytes count for the
/// principal that the request was authenticated as.
///
/// # Errors
/// 415 for another media type, charset or encoding, or none with an `Origin`; 413 for more than
/// `bytes_max` bytes; 408 if the body isn't complete after `body_timeout`; 400 if it ends early;
/// 503 if the listener's [`BufferBudget`](crate::BufferBudget) is used up.
pub async fn read_json(
    request: &HttpRequest,
    mut payload: Payload,
    types: &[&str],
    bytes_max: usize,
    body_timeout: Duration,
) -> Result<RequestBody, HttpRejection> {
    const TOO_LARGE: HttpRejection = http_rejection(
        StatusCode::PAYLOAD_TOO_LARGE,
        "the body is larger than the listener's `body_bytes_max`",
    );
    const FULL: HttpRejection = http_rejection(StatusCode::SERVICE_UNAVAILABLE, BUFFERS_FULL);
    let headers = request.headers();
    // Without a media type a browser sends a page's request without asking first (CORS preflight),
    // so any page of this machine could use the listener.
    let is_unnamed =
        headers.contains_key(header::ORIGIN) && !headers.contains_key(header::CONTENT_TYPE);
    if is_unnamed
        || !headers
            .get_all(header::CONTENT_TYPE)
            .all(|t| t.to_str().is_ok_and(|t| is_json(t, types)))
    {
        return Err(http_rejection(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "content type must be application/json in UTF-8",
        ));
    }
    if !headers
        .get_all(header::CONTENT_ENCODING)
        .all(|e| e.as_bytes().eq_ignore_ascii_case(b"identity"))
    {
        return Err(http_rejection(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "compressed bodies are not accepted: send it without `Content-Encoding`",
        ));
    }
    let declared = declared_length(headers);
    if declared.is_some_and(|declared| declared > bytes_max as u64) {
        return Err(TOO_LARGE);
    }
    // A declared length is not trusted beyond the size of one read.
    let declared = declared.map(|declared| declared as usize);
    let room = declared.map_or(0, |declared| declared.min(UNCOUNTED_REQUEST_BYTES_MAX));
    let collect = async {
        let mut body = RequestBody::new(request, room, declared.unwrap_or(bytes_max));
        while let Some(chunk) = payload.next().await {
            let chunk = chunk.map_err(|_| {
                http_rejection(
                    StatusCode::BAD_REQUEST,
                    "the body did not arrive whole: send the request again",
                )
            })?;
            // Checked before it is stored, so a body with a wrong length or none uses no more
            // memory than the limit.
            if body.len() + chunk.len() > bytes_max {
                return Err(TOO_LARGE);
            }
            body.push(&chunk).map_err(|_| FULL)?;
        }
        Ok(body)
    };
    let late = http_rejection(
        StatusCode::REQUEST_TIMEOUT,
        "the body did not arrive in time",
    );
    timeout(body_timeout, collect).await.map_err(|_| late)?
}

/// Returns the length of a body that its request declares; `None` without a valid one.
pub(super) fn declared_length(headers: &header::HeaderMap) -> Option<u64> {
    let declared = headers.get(header::CONTENT_LENGTH)?;
    declared.to_str().ok()?.parse().ok()
}

fn is_json(content_type: &str, types: &[&str]) -> bool {
    let mut parts = content_type.split(';').map(str::trim);
    let is_one = parts
        .next()
        .is_some_and(|essence| types.iter().any(|t| essence.eq_ignore_ascii_case(t)));
    is_one
        && parts.all(|parameter| match parameter.split_once('=') {
            Some((name, value)) if name.eq_ignore_ascii_case("charset") => {
                value.trim_matches('"').eq_ignore_ascii_case("utf-8")
            }
            _ => true,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a media type is accepted only if it is listed. Method: rows.
    #[test]
    fn other_types() {
        for (sent, types, taken) in [
            (
                "application/a2a+json",
                &[JSON, "application/a2a+json"][..],
                true,
            ),
            ("application/json", &[JSON, "application/a2a+json"], true),
            ("application/a2a+json", &[JSON], false),
        ] {
            assert_eq!(is_json(sent, types), taken, "{sent}");
        }
    }

    /// Goal: only JSON in UTF-8 is accepted. Method: rows.
    #[test]
    fn content_types() {
        for good in [
            "application/json",
            "Application/JSON; charset=UTF-8",
            "application/json;charset=\"utf-8\"; x=y",
        ] {
            assert!(is_json(good, &[JSON]), "{good}");
        }
        for bad in [
            "text/plain",
            "application/jsonp",
            "",
            "application/json; charset=utf-16",
            "x; application/json",
        ] {
            assert!(!is_json(bad, &[JSON]), "{bad}");
        }
    }
}
