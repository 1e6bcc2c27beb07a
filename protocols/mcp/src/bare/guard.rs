//! What a request must be before its body is read: from this machine's own pages, to this machine, in JSON.

use std::net::{IpAddr, SocketAddr};

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderMap, HeaderName};
use callboard_message::Principal;
use callboard_rpc::{Credential, Trust};

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
    if !headers.get_all(header::ORIGIN).all(|o| o.to_str().is_ok_and(is_loopback_origin)) {
        return Err(refused(StatusCode::FORBIDDEN, "the page's origin is not this machine"));
    }
    if !request.app_config().local_addr().ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let mut hosts = headers.get_all(header::HOST).map(|h| h.to_str().unwrap_or_default()).peekable();
    let target = request.uri().authority().map(|a| a.as_str());
    let named = hosts.peek().is_some() || target.is_some();
    if named && hosts.chain(target).all(is_loopback_authority) {
        return Ok(());
    }
    Err(refused(StatusCode::FORBIDDEN, "the host's name is not this machine's"))
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

fn is_loopback_origin(origin: &str) -> bool {
    let authority = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    authority.is_some_and(is_loopback_authority)
}

/// `host` or `host:port`, of this machine: `localhost` or a loopback address, written plainly.
fn is_loopback_authority(authority: &str) -> bool {
    if let Ok(address) = authority.parse::<SocketAddr>() {
        return address.ip().to_canonical().is_loopback();
    }
    if let Some(v6) = authority.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return v6.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback());
    }
    let host = match authority.split_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => host,
        Some(_) => return false,
        None => authority,
    };
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: only this machine's names pass, and none that only begin like one. Method: rows.
    #[test]
    fn names_of_this_machine() {
        for host in ["localhost", "LOCALHOST:80", "127.0.0.1", "127.0.0.1:8001", "127.8.9.1", "[::1]", "[::1]:8001"] {
            assert!(is_loopback_authority(host), "{host}");
            assert!(is_loopback_origin(&format!("http://{host}")), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost.",
            "127.1",
            "0x7f.1",
            "2130706433",
            "0.0.0.0",
            "192.168.0.1",
            "[::]",
            "user@localhost",
            "localhost:80@evil.example",
            "localhost:",
            "localhost:x",
            "[::1",
            "localhost/path",
            "null",
        ] {
            assert!(!is_loopback_authority(host), "{host}");
            assert!(!is_loopback_origin(&format!("https://{host}")), "{host}");
        }
        for origin in ["null", "", "localhost", "file://", "ftp://localhost", "http://localhost/x"] {
            assert!(!is_loopback_origin(origin), "{origin}");
        }
    }

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
