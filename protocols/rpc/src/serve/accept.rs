//! What a client can read, and what it wants to speak.

use actix_web::http::header::{ACCEPT, HeaderMap, UPGRADE};

/// Hands over each media range of `Accept`, without its parameters. Weights are only looked at for being zero: such a
/// range is left out.
pub fn each_range(headers: &HeaderMap, mut range: impl FnMut(&[u8])) {
    let lists = headers
        .get_all(ACCEPT)
        .filter_map(|value| value.to_str().ok());
    for written in lists.flat_map(|list| list.as_bytes().split(|byte| *byte == b',')) {
        let mut parts = written.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let kind = parts.next().unwrap_or_default();
        if !parts.any(is_zero) {
            range(kind);
        }
    }
}

/// Whether a GET is the beginning of a WebSocket (RFC 6455, section 4.2.1).
pub fn wants_websocket(headers: &HeaderMap) -> bool {
    headers
        .get(UPGRADE)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// `q=0`, `q=0.000`.
fn is_zero(parameter: &[u8]) -> bool {
    let weight = parameter
        .strip_prefix(b"q=")
        .or_else(|| parameter.strip_prefix(b"Q="));
    let weight = weight.and_then(|weight| std::str::from_utf8(weight).ok());
    weight.is_some_and(|weight| weight.parse::<f32>() == Ok(0.0))
}
