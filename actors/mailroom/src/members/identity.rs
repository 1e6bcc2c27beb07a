//! Mail identity of callers, by their credentials.

use std::sync::Arc;

use callboard_message::mail::{GUARDIAN_ID, MemberId, OPERATOR_ID};
use callboard_message::{Failure, Principal, PrincipalKind};

use crate::options::MemberRights;
use crate::text::is_reserved;

/// URI prefix of the members' inboxes, as resources.
pub(crate) const INBOX_URI_PREFIX: &str = "callboard://inbox/";

/// Mail identity and rights of a caller.
#[derive(Debug, Clone)]
pub(crate) struct MemberIdentity {
    pub id: Arc<str>,
    pub is_guardian: bool,
    /// Whether the caller may see all mail and events (scope `mail.watch`).
    pub watches: bool,
    /// Whether the caller may mark agents as ended or as back (scope `mail.admin`).
    pub administers: bool,
}

impl MemberIdentity {
    pub fn from_principal(principal: &Principal) -> Result<Self, Failure> {
        let rights = MemberRights::of(&principal.scopes);
        let identity = |id: &str, is_guardian, may_all| Self {
            id: id.into(),
            is_guardian,
            watches: may_all || rights.can_watch,
            administers: may_all || rights.can_administer,
        };
        match principal.kind {
            PrincipalKind::LocalOperator => Ok(identity(OPERATOR_ID, false, true)),
            PrincipalKind::ApiKey
            | PrincipalKind::Token
            | PrincipalKind::Certificate
            | PrincipalKind::Agent
                if rights.is_guardian =>
            {
                Ok(identity(GUARDIAN_ID, true, false))
            }
            PrincipalKind::ApiKey
            | PrincipalKind::Token
            | PrincipalKind::Certificate
            | PrincipalKind::Agent
                if MemberId::parse(&*principal.id).is_ok() && !is_reserved(&principal.id) =>
            {
                Ok(identity(&principal.id, false, false))
            }
            PrincipalKind::Agent => Err(denied(
                "the calling agent is no member of the mailroom: send its requests through a `Mailbox`",
            )),
            PrincipalKind::ApiKey => Err(denied(
                "this key's name can't be a member's id: use a key with another name (1 to 64 characters of A-Z a-z 0-9 . _ -, and not `guardian`, `operator` or `system`)",
            )),
            PrincipalKind::Token => Err(denied(
                "this token's principal can't be a member's id: use a claim of 1 to 64 characters of A-Z a-z 0-9 . _ -, with the issuer's name",
            )),
            PrincipalKind::Certificate => Err(denied(
                "this certificate's principal can't be a member's id: give it another `principal` (1 to 64 characters of A-Z a-z 0-9 . _ -, and not `guardian`, `operator` or `system`)",
            )),
            _ => Err(denied(
                "the mailroom doesn't know who you are: send an API key",
            )),
        }
    }

    /// Returns the identity of the member `id`, without the rights to watch and to administer and
    /// not as the Guardian.
    pub fn of_member(id: &str) -> Self {
        Self {
            id: id.into(),
            is_guardian: false,
            watches: false,
            administers: false,
        }
    }

    /// Returns whether the caller is an agent: neither the Guardian nor the operator.
    pub fn is_agent(&self) -> bool {
        !is_reserved(&self.id)
    }
}

pub(crate) fn denied(why: &str) -> Failure {
    Failure::denied(why)
}

/// Returns the URI of a member's inbox.
pub(crate) fn inbox_uri(id: &str) -> String {
    format!("{INBOX_URI_PREFIX}{id}")
}
