//! What a request must be before its body is read: from this machine's own pages, to this machine, in JSON.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderMap, HeaderName};
use actix_web::web::Payload;
use bytes::BytesMut;
use callboard_message::Principal;
use callboard_rpc::{Credential, Trust};
use futures::StreamExt;
use tokio::time::timeout;

/// A request that never became a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) status: StatusCode,
    pub(crate) message: &'static str,
}

pub(crate) const fn refused(status: StatusCode, message: &'static str) -> Refused {
    Refused { status, message }
}

/// Keeps web pages away from a service that trusts its machine: foreign pages (`Origin`) and foreign names for this
/// machine (`Host`: DNS rebinding). MCP 2025-11-25, transports, security warning.
pub(crate) fn check_source(request: &HttpRequest, sources: &Sources) -> Result<(), Refused> {
    let headers = request.headers();
    if !headers.get_all(header::ORIGIN).all(|o| o.to_str().is_ok_and(|o| sources.has_origin(o))) {
        return Err(refused(StatusCode::FORBIDDEN, "the page's origin is not this machine"));
    }
    if sources.hosts.is_empty() && !request.app_config().local_addr().ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let mut hosts = headers.get_all(header::HOST).map(|h| h.to_str().unwrap_or_default()).peekable();
    let target = request.uri().authority().map(|a| a.as_str());
    let named = hosts.peek().is_some() || target.is_some();
    if named && hosts.chain(target).all(|host| sources.has_host(host)) {
        return Ok(());
    }
    Err(refused(StatusCode::FORBIDDEN, "the host's name is not this machine's"))
}

/// Names beside this machine's own, under which a service may be reached and from whose pages it may be used.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// `host` or `host:port`, as clients write them in `Host`. Where there is one, other names are refused on every
    /// address; without any, they are refused on loopback only.
    pub hosts: Vec<String>,
    /// `https://host[:port]` of web pages, as browsers write them in `Origin`.
    pub origins: Vec<String>,
}

impl Sources {
    fn has_origin(&self, origin: &str) -> bool {
        is_loopback_origin(origin) || self.origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin))
    }

    fn has_host(&self, host: &str) -> bool {
        is_loopback_authority(host) || self.hosts.iter().any(|allowed| allowed.eq_ignore_ascii_case(host))
    }
}

/// Who is behind the request.
pub(crate) fn principal(request: &HttpRequest, trust: Trust) -> Result<Principal, Refused> {
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
pub(crate) fn check_content(headers: &HeaderMap) -> Result<(), Refused> {
    if !headers.get_all(header::CONTENT_TYPE).all(|t| t.to_str().is_ok_and(is_json)) {
        return Err(refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "content type must be application/json in UTF-8"));
    }
    if !headers.get_all(header::CONTENT_ENCODING).all(|e| e.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(refused(StatusCode::UNSUPPORTED_MEDIA_TYPE, "compressed bodies are not accepted"));
    }
    Ok(())
}

const TOO_LARGE: Refused = refused(StatusCode::PAYLOAD_TOO_LARGE, "the body is over the limit");

/// The body, as far as it keeps to the limits.
pub(crate) async fn read_body(
    request: &HttpRequest,
    payload: Payload,
    bytes_max: usize,
    body_timeout: Duration,
) -> Result<BytesMut, Refused> {
    let declared = declared_bytes(request.headers());
    if declared.is_some_and(|declared| declared > bytes_max as u64) {
        return Err(TOO_LARGE);
    }
    let late = refused(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time");
    // What is declared is only believed as far as one read.
    let room = declared.map_or(0, |declared| declared.min(ROOM_BYTES_MAX) as usize);
    timeout(body_timeout, collect(payload, room, bytes_max)).await.map_err(|_| late)?
}

/// Most bytes that a body gets before any of it has arrived.
const ROOM_BYTES_MAX: u64 = 16 * 1024;

async fn collect(mut payload: Payload, room: usize, bytes_max: usize) -> Result<BytesMut, Refused> {
    let mut body = BytesMut::with_capacity(room);
    while let Some(chunk) = payload.next().await {
        let chunk = chunk.map_err(|_| refused(StatusCode::BAD_REQUEST, "the body did not arrive whole"))?;
        // Counted before it is kept: a body that lies about its length, or has none, costs no more than the limit.
        if body.len() + chunk.len() > bytes_max {
            return Err(TOO_LARGE);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// How many bytes the client says it sends.
fn declared_bytes(headers: &HeaderMap) -> Option<u64> {
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
