//! Negotiation headers: accepted media types and WebSocket upgrades.

use actix_web::http::header::{ACCEPT, HeaderMap, UPGRADE};

/// Calls `range` with each media range of the `Accept` headers, without its parameters. Ranges with
/// weight zero (`q=0`) are left out; other weights are ignored.
pub fn for_each_media_range(headers: &HeaderMap, mut range: impl FnMut(&[u8])) {
    let lists = headers
        .get_all(ACCEPT)
        .filter_map(|value| value.to_str().ok());
    for written in lists.flat_map(|list| list.as_bytes().split(|byte| *byte == b',')) {
        let mut parts = written.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let kind = parts.next().unwrap_or_default();
        if !parts.any(is_zero_weight) {
            range(kind);
        }
    }
}

/// Returns whether a GET request is a WebSocket handshake (RFC 6455, section 4.2.1).
pub fn wants_websocket(headers: &HeaderMap) -> bool {
    headers
        .get(UPGRADE)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// Returns whether a parameter is a weight of zero, such as `q=0` or `q=0.000`.
fn is_zero_weight(parameter: &[u8]) -> bool {
    let weight = parameter
        .strip_prefix(b"q=")
        .or_else(|| parameter.strip_prefix(b"Q="));
    let weight = weight.and_then(|weight| std::str::from_utf8(weight).ok());
    weight.is_some_and(|weight| weight.parse::<f32>() == Ok(0.0))
}
