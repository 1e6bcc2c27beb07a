//! What a request must be before its body is read: from this machine's own pages, to this machine, in JSON.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderMap, HeaderName};
use callboard_message::Principal;
use callboard_rpc::{AllowedHosts, AllowedOrigins, Credential, Trust};

/// A request that never became a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) status: StatusCode,
    pub(super) message: &'static str,
}

const fn refused(status: StatusCode, message: &'static str) -> Refused {
    Refused { status, message }
}

/// Keeps web pages away from a service that trusts its machine: foreign pages (`Origin`) and foreign names for this
/// machine (`Host`: DNS rebinding). MCP 2025-11-25, transports, security warning.
pub(super) fn check_source(request: &HttpRequest) -> Result<(), Refused> {
    let headers = request.headers();
    let origins = headers.get_all(header::ORIGIN).map(|o| o.as_bytes());
    if AllowedOrigins::default().check(origins).is_err() {
        return Err(refused(StatusCode::FORBIDDEN, "the page's origin is not this machine"));
    }
    let target = request.uri().authority().map(|a| a.as_str().as_bytes());
    let hosts = headers.get_all(header::HOST).map(|h| h.as_bytes()).chain(target);
    if AllowedHosts::default().check(hosts, request.app_config().local_addr().ip()).is_err() {
        return Err(refused(StatusCode::FORBIDDEN, "the host's name is not this machine's"));
    }
    Ok(())
}

/// Who is behind the request.
pub(super) fn principal(request: &HttpRequest, trust: Trust) -> Result<Principal, Refused> {
    let credential = Credential {
        peer: request.peer_addr().map(|a| a.ip()),
        local: Some(request.app_config().local_addr().ip()),
        authorization: request.headers().get(header::AUTHORIZATION).map(|v| v.as_bytes()),
    };
    trust.principal(&credential).map_err(|_| {
        refused(
            StatusCode::UNAUTHORIZED,
            "no credentials are configured here: send the request without `Authorization`",
        )
    })
}

/// JSON in UTF-8, not compressed. A client that names no type is taken at its word.
pub(super) fn check_content(headers: &HeaderMap) -> Result<(), Refused> {
    if !headers.get_all(header::CONTENT_TYPE).all(|t| t.to_str().is_ok_and(is_json)) {
        return Err(refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content type must be application/json in UTF-8"));
    }
    if !headers.get_all(header::CONTENT_ENCODING).all(|e| e.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "compressed bodies are not accepted"));
    }
    Ok(())
}

/// How many bytes the client says it sends.
pub(super) fn declared_bytes(headers: &HeaderMap) -> Option<u64> {
    let name: HeaderName = header::CONTENT_LENGTH;
    headers.get(name)?.to_str().ok()?.parse().ok()
}

fn is_json(content_type: &str) -> bool {
    let mut parts = content_type.split(';').map(str::trim);
    let is_json = parts.next().is_some_and(|essence| essence.eq_ignore_ascii_case("application/json"));
    is_json
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

    /// Goal: JSON in UTF-8 and nothing else. Method: rows.
    #[test]
    fn content_types() {
        for good in ["application/json", "Application/JSON; charset=UTF-8", "application/json;charset=\"utf-8\"; x=y"] {
            assert!(is_json(good), "{good}");
        }
        for bad in ["text/plain", "application/jsonp", "", "application/json; charset=utf-16", "x; application/json"] {
            assert!(!is_json(bad), "{bad}");
        }
    }
}
