//! Who a request says that it comes from (`X-Agent-ID`), beside its credential: no credential, but a claim that must match.

use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderMap, HeaderName};
use callboard_message::mail::{AGENT_ID_HEADER, GUARDIAN, GUARDIAN_SCOPE};
use callboard_message::{Principal, PrincipalKind};

use super::guard::{Refused, refused};
use crate::CredentialError;

static AGENT_ID: HeaderName = HeaderName::from_static(AGENT_ID_HEADER);

/// Whether a request claims anything.
pub fn is_there(headers: &HeaderMap) -> bool {
    headers.contains_key(&AGENT_ID)
}

/// A request that claims one id, its credential's own.
///
/// # Errors
/// 401 without one claim, or for nobody's; 403 where the claim isn't the credential's, which is the same answer whether there
/// is such an agent or not.
pub fn check(headers: &HeaderMap, principal: &Principal) -> Result<(), Refused> {
    const OTHER: Refused = refused(
        StatusCode::FORBIDDEN,
        "`X-Agent-ID` is not the id of the credential that was shown",
    );
    let claimed = claim(headers)?;
    let id = id_of(principal).ok_or(NOBODY)?;
    if id.as_bytes() == claimed {
        Ok(())
    } else {
        Err(OTHER)
    }
}

const NOBODY: Refused = Refused {
    challenge: Some("Bearer"),
    ..refused(StatusCode::UNAUTHORIZED, CredentialError::Missing.message())
};

/// The one id that a request claims.
fn claim(headers: &HeaderMap) -> Result<&[u8], Refused> {
    const NEEDED: Refused = refused(
        StatusCode::UNAUTHORIZED,
        "`X-Agent-ID` is needed once: your own id",
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

/// The id that a credential stands for; `None` for nobody's.
fn id_of(principal: &Principal) -> Option<&str> {
    let is_guardian = || principal.scopes.iter().any(|scope| scope == GUARDIAN_SCOPE);
    match principal.kind {
        PrincipalKind::Anonymous => None,
        PrincipalKind::ApiKey | PrincipalKind::Agent if is_guardian() => Some(GUARDIAN),
        _ => Some(&principal.id),
    }
}
