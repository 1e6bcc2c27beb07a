//! What a request must be before its body is read: from this machine's own pages, to this machine, in JSON.

use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::{StatusCode, Version, header};
use actix_web::web::Payload;
use bytes::BytesMut;
use callboard_message::Principal;
use futures::StreamExt;
use tokio::time::timeout;

use crate::{
    Access, AllowedHosts, AllowedOrigins, Credential, CredentialError, is_forwarding_header,
};

/// A request that never became a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// The HTTP status.
    pub status: StatusCode,
    /// What to change, for a person.
    pub message: &'static str,
    /// What `WWW-Authenticate` says, where a token would help.
    pub challenge: Option<&'static str>,
}

/// A refusal without a challenge.
pub const fn refused(status: StatusCode, message: &'static str) -> Refused {
    Refused {
        status,
        message,
        challenge: None,
    }
}

/// Keeps web pages away from a service that trusts its machine: foreign pages (`Origin`) and foreign names for this
/// machine (`Host`: DNS rebinding). MCP 2025-11-25, transports, security warning.
///
/// # Errors
/// 403.
pub fn check_source(
    request: &HttpRequest,
    hosts: &AllowedHosts,
    origins: &AllowedOrigins,
) -> Result<(), Refused> {
    let headers = request.headers();
    let pages = headers.get_all(header::ORIGIN).map(|o| o.as_bytes());
    if origins.check(pages).is_err() {
        return Err(refused(
            StatusCode::FORBIDDEN,
            "the page's origin is not allowed here",
        ));
    }
    let target = request.uri().authority().map(|a| a.as_str().as_bytes());
    let names = headers
        .get_all(header::HOST)
        .map(|h| h.as_bytes())
        .chain(target);
    if hosts
        .check(names, request.app_config().local_addr().ip())
        .is_err()
    {
        return Err(refused(
            StatusCode::FORBIDDEN,
            "the host's name is not allowed here",
        ));
    }
    Ok(())
}

/// Who is behind the request, by its one `Authorization`.
///
/// # Errors
/// 401; 403 where a proxy passed on what may only come from this machine; 503 where credentials can't be verified now.
pub fn principal(request: &HttpRequest, access: &Access) -> Result<Principal, Refused> {
    let mut shown = request.headers().get_all(header::AUTHORIZATION);
    let authorization = shown.next().map(|v| v.as_bytes());
    if shown.next().is_some() {
        return Err(unproven(CredentialError::Malformed));
    }
    principal_showing(request, authorization, access)
}

/// The same, where the credential came in another way: `authorization` is what `Authorization` would have said.
///
/// # Errors
/// As [`principal`].
pub fn principal_showing(
    request: &HttpRequest,
    authorization: Option<&[u8]>,
    access: &Access,
) -> Result<Principal, Refused> {
    let credential = Credential {
        peer: request.peer_addr().map(|a| a.ip()),
        local: Some(request.app_config().local_addr().ip()),
        authorization,
        // Clients of ours speak HTTP/1.1 or later; nginx forwards by HTTP/1.0 unless it is told otherwise, and adds no header.
        is_forwarded: request.version() < Version::HTTP_11
            || request
                .headers()
                .keys()
                .any(|name| is_forwarding_header(name.as_str())),
    };
    access.principal(&credential).map_err(unproven)
}

fn unproven(error: CredentialError) -> Refused {
    let status = StatusCode::from_u16(error.http_status()).unwrap_or(StatusCode::UNAUTHORIZED);
    Refused {
        challenge: error.challenge(),
        ..refused(status, error.message())
    }
}

/// The type of JSON.
pub const JSON: &str = "application/json";

/// The body of a request, which is JSON in UTF-8 of one of these `types`, not compressed. A client that names no type is
/// taken at its word.
///
/// # Errors
/// 415 for other content; 413 over `bytes_max`, 408 after `body_timeout`, 400 where it ends early.
pub async fn read_json(
    request: &HttpRequest,
    mut payload: Payload,
    types: &[&str],
    bytes_max: usize,
    body_timeout: Duration,
) -> Result<BytesMut, Refused> {
    const TOO_LARGE: Refused = refused(StatusCode::PAYLOAD_TOO_LARGE, "the body is over the limit");
    let headers = request.headers();
    if !headers
        .get_all(header::CONTENT_TYPE)
        .all(|t| t.to_str().is_ok_and(|t| is_json(t, types)))
    {
        return Err(refused(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "content type must be application/json in UTF-8",
        ));
    }
    if !headers
        .get_all(header::CONTENT_ENCODING)
        .all(|e| e.as_bytes().eq_ignore_ascii_case(b"identity"))
    {
        return Err(refused(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "compressed bodies are not accepted",
        ));
    }
    let declared: Option<u64> = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|declared| declared.to_str().ok()?.parse().ok());
    if declared.is_some_and(|declared| declared > bytes_max as u64) {
        return Err(TOO_LARGE);
    }
    // What is declared is only believed as far as one read.
    let room = declared.map_or(0, |declared| declared.min(ROOM_BYTES_MAX) as usize);
    let collect = async {
        let mut body = BytesMut::with_capacity(room);
        while let Some(chunk) = payload.next().await {
            let chunk = chunk
                .map_err(|_| refused(StatusCode::BAD_REQUEST, "the body did not arrive whole"))?;
            // Counted before it is kept: a body that lies about its length, or has none, costs no more than the limit.
            if body.len() + chunk.len() > bytes_max {
                return Err(TOO_LARGE);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    };
    let late = refused(
        StatusCode::REQUEST_TIMEOUT,
        "the body did not arrive in time",
    );
    timeout(body_timeout, collect).await.map_err(|_| late)?
}

/// Most bytes that a body gets before any of it has arrived.
const ROOM_BYTES_MAX: u64 = 16 * 1024;

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

    /// Goal: a type is taken where it is named, and there only. Method: rows.
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

    /// Goal: JSON in UTF-8 and nothing else. Method: rows.
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
