//! Header with the agent id that a request claims as its sender (`X-Agent-ID`). It is not a
//! credential, but a claim that must match the credential.

use std::borrow::Cow;

use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderMap, HeaderName};
use callboard_message::mail::{AGENT_ID_HEADER, GUARDIAN_ID, GUARDIAN_SCOPE};
use callboard_message::{Principal, PrincipalKind};

use super::guard::{HttpRejection, http_rejection};
use crate::CredentialError;

static AGENT_ID: HeaderName = HeaderName::from_static(AGENT_ID_HEADER);

/// Returns whether the request has an `X-Agent-ID` header.
pub fn is_present(headers: &HeaderMap) -> bool {
    headers.contains_key(&AGENT_ID)
}

/// Checks that a request has exactly one `X-Agent-ID` header, with the agent id of its principal.
///
/// # Errors
/// 401 if the header is missing, empty or repeated, or the principal is anonymous. 403 if the id is
/// not that of the principal, whether or not such an agent exists.
pub fn check_matches_principal(
    headers: &HeaderMap,
    principal: &Principal,
) -> Result<(), HttpRejection> {
    const OTHER: HttpRejection = http_rejection(
        StatusCode::FORBIDDEN,
        "`X-Agent-ID` must be the name of the key that the request has, or the principal of its certificate",
    );
    let claimed = claimed_id(headers)?;
    let id = principal_id(principal).ok_or(MISSING_CREDENTIAL)?;
    if id.as_bytes() == claimed {
        Ok(())
    } else {
        Err(OTHER)
    }
}

const MISSING_CREDENTIAL: HttpRejection = HttpRejection {
    status: StatusCode::UNAUTHORIZED,
    message: Cow::Borrowed(CredentialError::Missing.message()),
    challenge: Some(Cow::Borrowed("Bearer")),
};

/// Returns the value of the only `X-Agent-ID` header.
///
/// # Errors
/// 401 if the header is missing, empty or repeated.
fn claimed_id(headers: &HeaderMap) -> Result<&[u8], HttpRejection> {
    const NEEDED: HttpRejection = http_rejection(
        StatusCode::UNAUTHORIZED,
        "send `X-Agent-ID` exactly once, with the name of your key",
    );
    let mut claims = headers.get_all(&AGENT_ID);
    match (
        claims.next().map(|claim| claim.as_bytes().trim_ascii()),
        claims.next(),
    ) {
        (Some(claim), None) if !claim.is_empty() => Ok(claim),
        _ => Err(NEEDED),
    }
}

/// Returns the agent id of a principal: `guardian` for the holder of the Guardian's scope, `None`
/// for an anonymous principal, and else the principal's own id.
fn principal_id(principal: &Principal) -> Option<&str> {
    let is_guardian = || principal.scopes.iter().any(|scope| scope == GUARDIAN_SCOPE);
    match principal.kind {
        PrincipalKind::Anonymous => None,
        PrincipalKind::ApiKey
        | PrincipalKind::Token
        | PrincipalKind::Certificate
        | PrincipalKind::Agent
            if is_guardian() =>
        {
            Some(GUARDIAN_ID)
        }
        _ => Some(&principal.id),
    }
}
