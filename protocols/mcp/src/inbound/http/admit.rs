//! What a request must be before it is read: its source, its headers, its session.

use std::sync::Arc;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderMap, HeaderName};
use actix_web::web::Payload;
use bytes::BytesMut;
use callboard_message::Principal;
use callboard_message::mail::Join;

use super::Server;
use super::sessions::HttpSession;
use crate::wire::{Era, Revision};
use callboard_rpc::serve::guard::{self, Refused, refused};
use callboard_rpc::serve::{accept, claim};

/// The header of a legacy session's id.
pub(super) static SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// The header of the revision.
pub(super) static PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// The header of the last event that a client has seen (WHATWG HTML, section 9.2.4).
pub(super) static LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// What a client can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Accepts {
    pub(super) json: bool,
    pub(super) events: bool,
}

impl Accepts {
    /// Reads `Accept`, which MCP wants to be there. Weights are only looked at for being zero.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut accepts = Self { json: false, events: false };
        accept::each_range(headers, |kind| {
            let is = |name: &str| kind.eq_ignore_ascii_case(name.as_bytes());
            accepts.json |= is("application/json") || is("application/*") || is("*/*");
            accepts.events |= is("text/event-stream") || is("text/*") || is("*/*");
        });
        accepts
    }
}

/// What `MCP-Protocol-Version` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version<'a> {
    Missing,
    Known(Revision),
    Unknown(&'a str),
}

impl<'a> Version<'a> {
    pub(super) fn of(headers: &'a HeaderMap) -> Self {
        let Some(value) = headers.get(&PROTOCOL_VERSION) else { return Self::Missing };
        let text = value.to_str().unwrap_or_default().trim();
        Revision::parse(text).map_or(Self::Unknown(text), Self::Known)
    }

    pub(super) fn is_modern(self) -> bool {
        matches!(self, Self::Known(revision) if revision.era() == Era::Modern)
    }
}

/// Who is behind a request from a source that may ask. In front of a mailroom it may say so again (`X-Agent-ID`), and only
/// truly.
pub(super) fn principal(request: &HttpRequest, server: &Server) -> Result<Principal, Refused> {
    guard::check_source(request, &server.options.hosts, &server.options.origins)?;
    let principal = guard::principal(request, &server.options.access)?;
    let leads_to_mail = || server.endpoint.surface().agent().recipient::<Join>().is_some();
    if claim::is_there(request.headers()) && (server.options.claims_must_match || leads_to_mail()) {
        claim::check(request.headers(), &principal)?;
    }
    Ok(principal)
}

/// The body of a request.
pub(super) async fn body(request: &HttpRequest, payload: Payload, server: &Server) -> Result<BytesMut, Refused> {
    let bytes_max = server.options.inbound.limits.body_bytes_max;
    guard::read_json(request, payload, &[guard::JSON], bytes_max, server.options.body_timeout).await
}

/// The session that a request names. Another principal's is as unknown as none.
pub(super) fn session(
    headers: &HeaderMap,
    principal: &Principal,
    server: &Server,
) -> Result<Option<Arc<HttpSession>>, Refused> {
    let Some(id) = headers.get(&SESSION_ID) else { return Ok(None) };
    let found = std::str::from_utf8(id.as_bytes()).ok().and_then(|id| server.sessions.get(id, principal));
    found.map(Some).ok_or(refused(StatusCode::NOT_FOUND, "no such session: send `initialize` without one"))
}

/// What a request of a session is that names none.
pub(super) const NO_SESSION: Refused =
    refused(StatusCode::BAD_REQUEST, "the header `Mcp-Session-Id` is missing: send `initialize` first");

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::{ACCEPT, HeaderValue};

    /// Goal: what a client can read is told from `Accept`. Method: rows.
    #[test]
    fn accepts() {
        for (accept, json, events) in [
            ("application/json, text/event-stream", true, true),
            ("Text/Event-Stream;q=0.5 , APPLICATION/json", true, true),
            ("*/*", true, true),
            ("application/*", true, false),
            ("text/event-stream", false, true),
            ("application/json;q=0, text/event-stream", false, true),
            ("*/*;q=0.0", false, false),
            ("text/html", false, false),
            ("", false, false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            assert_eq!(Accepts::of(&headers), Accepts { json, events }, "{accept}");
        }
        assert_eq!(Accepts::of(&HeaderMap::new()), Accepts { json: false, events: false });
    }
}
