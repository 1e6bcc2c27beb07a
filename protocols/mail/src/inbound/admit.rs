//! Who calls: the credential, and the claim that must match it.

use std::sync::Arc;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderMap, HeaderName};
use callboard_message::mail::{AGENT_ID_HEADER, GUARDIAN, GUARDIAN_SCOPE};
use callboard_message::{Principal, PrincipalKind, TraceContext};
use callboard_rpc::serve::guard::{self, Refused, refused};

use super::options::MailServerOptions;

static AGENT_ID: HeaderName = HeaderName::from_static(AGENT_ID_HEADER);
/// The caller's place in a trace (W3C Trace Context).
static TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");

/// Who calls.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) principal: Arc<Principal>,
    pub(super) trace: TraceContext,
}

/// Who is behind a request, from a source that may ask, under the id that it claims.
///
/// # Errors
/// 401 without a good credential, or without one claim; 403 where the claim isn't the credential's, which is the same
/// answer whether there is such an agent or not.
pub(super) fn caller(request: &HttpRequest, options: &MailServerOptions) -> Result<Caller, Refused> {
    guard::check_source(request, &options.hosts, &options.origins)?;
    let principal = guard::principal(request, &options.access).map_err(unproven)?;
    let claimed = claim(request.headers())?;
    if id_of(&principal).ok_or(NOBODY)?.as_bytes() != claimed {
        return Err(refused(StatusCode::FORBIDDEN, "`X-Agent-ID` is not the id of the credential that was shown"));
    }
    let word = request.headers().get(&TRACE_PARENT).and_then(|value| value.to_str().ok());
    let trace = word.and_then(|parent| parent.trim().parse::<TraceContext>().ok());
    let trace = trace.as_ref().map_or_else(TraceContext::root, TraceContext::child);
    Ok(Caller { principal: Arc::new(principal), trace })
}

const NOBODY: Refused = Refused {
    challenge: Some("Bearer"),
    ..refused(StatusCode::UNAUTHORIZED, "a key is needed: send `Authorization: Bearer KEY`")
};

/// Whatever is wrong with a credential, its sender is not known: 401, but for credentials that can't be verified now.
fn unproven(mut refusal: Refused) -> Refused {
    if refusal.status == StatusCode::BAD_REQUEST {
        refusal.status = StatusCode::UNAUTHORIZED;
    }
    refusal
}

/// The one id that a request claims.
fn claim(headers: &HeaderMap) -> Result<&[u8], Refused> {
    const NEEDED: Refused = refused(StatusCode::UNAUTHORIZED, "`X-Agent-ID` is needed once: your own id");
    let mut claims = headers.get_all(&AGENT_ID);
    match (claims.next().map(|claim| claim.as_bytes().trim_ascii()), claims.next()) {
        (Some(claim), None) if !claim.is_empty() => Ok(claim),
        _ => Err(NEEDED),
    }
}

/// The id that a credential stands for; `None` for nobody's.
fn id_of(principal: &Principal) -> Option<&str> {
    let is_guardian = || principal.scopes.iter().any(|scope| scope == GUARDIAN_SCOPE);
    match principal.kind {
        PrincipalKind::Anonymous => None,
        PrincipalKind::ApiKey | PrincipalKind::Agent if is_guardian() => Some(GUARDIAN),
        _ => Some(&principal.id),
    }
}
