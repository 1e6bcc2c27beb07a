//! Who is behind a request. Keys and tokens come with the full MCP adapter: they get their place here.

use std::fmt;
use std::net::IpAddr;

use callboard_message::Principal;

/// What a listener makes of a peer that shows no credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Trust {
    /// It is nobody.
    #[default]
    Anonymous,
    /// From this machine to this machine, it is whoever started the process. For development and demonstrations.
    LoopbackOperator,
}

/// What a peer shows of itself on one request.
#[derive(Clone, Copy)]
pub struct Credential<'a> {
    /// The peer's address; `None` when the transport has none.
    pub peer: Option<IpAddr>,
    /// The address it reached.
    pub local: Option<IpAddr>,
    /// The value of `Authorization`.
    pub authorization: Option<&'a [u8]>,
}

/// A credential that doesn't count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialError {
    /// Nothing here can verify it: send the request without.
    #[error("no credentials are configured here: send the request without `Authorization`")]
    Unverifiable,
}

impl Trust {
    /// The principal behind a request.
    ///
    /// # Errors
    /// [`CredentialError::Unverifiable`] for any credential: taking it for no credential would hide the mistake.
    pub fn principal(self, credential: &Credential<'_>) -> Result<Principal, CredentialError> {
        if credential.authorization.is_some() {
            return Err(CredentialError::Unverifiable);
        }
        let on_loopback = |ip: Option<IpAddr>| ip.is_some_and(|ip| ip.to_canonical().is_loopback());
        Ok(match self {
            Self::LoopbackOperator if on_loopback(credential.peer) && on_loopback(credential.local) => {
                Principal::local_operator()
            }
            _ => Principal::anonymous(),
        })
    }
}

impl fmt::Debug for Credential<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = if self.authorization.is_some() { "shown" } else { "none" };
        f.debug_struct("Credential").field("peer", &self.peer).field("authorization", &shown).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(peer: &str, local: &str) -> Credential<'static> {
        Credential { peer: peer.parse().ok(), local: local.parse().ok(), authorization: None }
    }

    /// Goal: only a peer on this machine, on a listener that says so, is the operator. Method: every other mix.
    #[test]
    fn operator_needs_loopback_at_both_ends() {
        let operator = Ok(Principal::local_operator());
        for (peer, local) in [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::ffff:127.0.0.1", "::ffff:127.0.0.1")] {
            assert_eq!(Trust::LoopbackOperator.principal(&credential(peer, local)), operator);
            assert_eq!(Trust::Anonymous.principal(&credential(peer, local)), Ok(Principal::anonymous()));
        }
        for (peer, local) in [("10.0.0.7", "10.0.0.1"), ("10.0.0.7", "127.0.0.1"), ("127.0.0.1", "0.0.0.0"), ("", "")] {
            assert_eq!(Trust::LoopbackOperator.principal(&credential(peer, local)), Ok(Principal::anonymous()));
        }
    }

    /// Goal: a credential that nobody checks grants nothing and is never printed. Method: a bearer token.
    #[test]
    fn unverifiable_credential_is_refused() {
        let shown = Credential { authorization: Some(b"Bearer s3cret"), ..credential("127.0.0.1", "127.0.0.1") };
        assert_eq!(Trust::LoopbackOperator.principal(&shown), Err(CredentialError::Unverifiable));
        assert!(!format!("{shown:?}").contains("s3cret"));
    }
}
