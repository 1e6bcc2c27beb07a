//! Heads of requests and responses between the host, on `http` 1, and actix-web, on `http` 0.2.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use actix_http::{BoxedPayloadStream, ConnectionType, Method, Payload, Uri, Version};
use actix_web::HttpResponse;
use actix_web::http::header::{HeaderName, HeaderValue};
use bytes::Bytes;
use http::header::UPGRADE;
use http::request::Parts;

use super::ClientAddress;
use super::body::MountedBody;

/// Address of a client whose address the host doesn't tell. Without one, failed authentications wouldn't
/// count; a loopback address would make the client the operator.
const UNKNOWN_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Converts the head of a request, with `base_path` in front of its path. `None` if actix-web doesn't
/// accept its target, method or headers.
pub(super) fn actix_request(
    parts: Parts,
    base_path: &str,
    payload: BoxedPayloadStream,
) -> Option<actix_http::Request> {
    let mut request = actix_http::Request::with_payload(Payload::Stream { payload });
    let head = request.head_mut();
    head.method = Method::from_bytes(parts.method.as_str().as_bytes()).ok()?;
    head.uri = target(&parts.uri, base_path)?;
    head.version = match parts.version {
        http::Version::HTTP_09 => Version::HTTP_09,
        http::Version::HTTP_10 => Version::HTTP_10,
        http::Version::HTTP_2 => Version::HTTP_2,
        http::Version::HTTP_3 => Version::HTTP_3,
        _ => Version::HTTP_11,
    };
    let client = parts.extensions.get::<ClientAddress>();
    head.peer_addr = Some(client.map_or(UNKNOWN_ADDRESS, |ClientAddress(address)| *address));
    let headers = parts.headers.iter();
    for (name, value) in headers.filter(|(name, _)| **name != UPGRADE) {
        let name = HeaderName::from_bytes(name.as_str().as_bytes()).ok()?;
        let value = HeaderValue::from_bytes(value.as_bytes()).ok()?;
        head.headers.append(name, value);
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
            .extension(ClientAddress(client))
            .header("cookie", "a")
            .header("cookie", &b"\xFF"[..])
            .header("upgrade", "websocket");
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let request = actix_request(parts, "", Box::pin(stream::empty())).unwrap();
        assert_eq!(
            (request.version(), request.peer_addr()),
            (Version::HTTP_10, Some(client))
        );
        let cookies = request.head().headers.get_all(COOKIE);
        let cookies: Vec<_> = cookies.map(|value| value.as_bytes()).collect();
        assert_eq!(cookies, [&b"a"[..], b"\xFF"]);
        assert_eq!(request.head().headers.len(), 2);
    }

    /// Goal: a connection that is to be closed is told so in the versions that have a header for it.
    /// Method: rows of versions.
    #[test]
    fn ends_of_connections() {
        let response = HttpResponse::TooManyRequests().force_close().finish();
        let head = response.drop_body();
        for (version, expected) in [
            (http::Version::HTTP_10, Some("close")),
            (http::Version::HTTP_11, Some("close")),
            (http::Version::HTTP_2, None),
            (http::Version::HTTP_3, None),
        ] {
            let response = host_response(&head, version, MountedBody::whole(Bytes::new()));
            let connection = response.headers().get(http::header::CONNECTION);
            let connection = connection.map(|value| value.to_str().unwrap());
            assert_eq!(connection, expected, "{version:?}");
            assert_eq!(response.status(), http::StatusCode::TOO_MANY_REQUESTS);
        }
    }
}
