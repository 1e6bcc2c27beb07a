//! Heads of requests and responses between the host, on `http` 1, and actix-web, on `http` 0.2.

use std::net::SocketAddr;

use actix_http::{BoxedPayloadStream, ConnectionType, Method, Payload, Uri, Version};
use actix_web::HttpResponse;
use actix_web::http::header::{HeaderName, HeaderValue};
use bytes::Bytes;
use http::header::UPGRADE;
use http::request::Parts;

use super::body::MountedBody;

/// Converts the head of a request, with `base_path` in front of its path. `None` if actix-web doesn't
/// accept its target, method or headers.
pub(super) fn actix_request(
    head: &Parts,
    base_path: &str,
    payload: BoxedPayloadStream,
) -> Option<actix_http::Request> {
    let mut request = actix_http::Request::with_payload(Payload::Stream { payload });
    let made = request.head_mut();
    made.method = Method::from_bytes(head.method.as_str().as_bytes()).ok()?;
    made.uri = target(&head.uri, base_path)?;
    made.version = match head.version {
        http::Version::HTTP_09 => Version::HTTP_09,
        http::Version::HTTP_10 => Version::HTTP_10,
        http::Version::HTTP_2 => Version::HTTP_2,
        http::Version::HTTP_3 => Version::HTTP_3,
        _ => Version::HTTP_11,
    };
    made.peer_addr = head.extensions.get::<SocketAddr>().copied();
    for (name, value) in head.headers.iter().filter(|(name, _)| **name != UPGRADE) {
        let name = HeaderName::from_bytes(name.as_str().as_bytes()).ok()?;
        let value = HeaderValue::from_bytes(value.as_bytes()).ok()?;
        made.headers.append(name, value);
    }
    Some(request)
}

/// Returns the target of a request with `base_path` in front of its path. A path `/` that follows a base
/// path is left out.
fn target(uri: &http::Uri, base_path: &str) -> Option<Uri> {
    if base_path.is_empty() {
        return uri.to_string().parse().ok();
    }
    let origin = match (uri.scheme_str(), uri.authority()) {
        (Some(scheme), Some(authority)) => format!("{scheme}://{authority}"),
        _ => String::new(),
    };
    let path = Some(uri.path()).filter(|path| *path != "/");
    let query = uri.query().map(|query| format!("?{query}"));
    let (path, query) = (path.unwrap_or_default(), query.unwrap_or_default());
    format!("{origin}{base_path}{path}{query}").parse().ok()
}

/// Converts the head of a response to a request of the given version.
pub(super) fn host_response(
    head: &HttpResponse<()>,
    version: http::Version,
    body: MountedBody,
) -> http::Response<MountedBody> {
    let mut response = http::Response::new(body);
    let status = http::StatusCode::from_u16(head.status().as_u16());
    *response.status_mut() = status.unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    for (name, value) in head.headers() {
        let name = http::HeaderName::from_bytes(name.as_str().as_bytes());
        let value = http::HeaderValue::from_bytes(value.as_bytes());
        if let (Ok(name), Ok(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    // Later versions have no such header.
    if head.head().connection_type() == ConnectionType::Close && version <= http::Version::HTTP_11 {
        let close = http::HeaderValue::from_static("close");
        headers.insert(http::header::CONNECTION, close);
    }
    response
}

/// Creates a response without a body.
pub(super) fn empty_response(status: http::StatusCode) -> http::Response<MountedBody> {
    let mut response = http::Response::new(MountedBody::whole(Bytes::new()));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::COOKIE;
    use futures::stream;

    use super::*;

    /// Goal: the application sees the target that the client requested. Method: rows of what is left of
    /// it, and of the removed prefix.
    #[test]
    fn targets() {
        for (seen, base_path, expected) in [
            ("/mcp", "", "/mcp"),
            ("/mcp?x=1", "", "/mcp?x=1"),
            ("/", "/mcp", "/mcp"),
            ("/?x=%20", "/mcp", "/mcp?x=%20"),
            ("/tasks/7?x=1", "/a2a", "/a2a/tasks/7?x=1"),
            ("http://localhost:1/", "/mcp", "http://localhost:1/mcp"),
        ] {
            let target = target(&seen.parse().unwrap(), base_path).unwrap();
            assert_eq!(target.to_string(), expected, "{seen} below {base_path:?}");
        }
    }

    /// Goal: a request keeps its version, its client and all values of its headers, but for upgrades.
    /// Method: a request with a repeated header and one that wants a WebSocket.
    #[test]
    fn heads_of_requests() {
        let client = SocketAddr::from(([192, 0, 2, 7], 1));
        let request = http::Request::get("/mcp")
            .version(http::Version::HTTP_10)
            .extension(client)
            .header("cookie", "a")
            .header("cookie", &b"\xFF"[..])
            .header("upgrade", "websocket");
        let (head, ()) = request.body(()).unwrap().into_parts();
        let made = actix_request(&head, "", Box::pin(stream::empty())).unwrap();
        assert_eq!(
            (made.version(), made.peer_addr()),
            (Version::HTTP_10, Some(client))
        );
        let cookies = made.head().headers.get_all(COOKIE);
        let cookies: Vec<_> = cookies.map(|value| value.as_bytes()).collect();
        assert_eq!(cookies, [&b"a"[..], b"\xFF"]);
        assert_eq!(made.head().headers.len(), 2);
    }
}
