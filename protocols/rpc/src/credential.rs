//! Who is behind a request: from its credential, never from its body.
//!
//! [`Access`] is what a listener asks. Keys are one kind of bearer token; those of an authorization server (OAuth
//! resource server, JWT) will be another [`BearerVerifier`] beside them. Client certificates would be a field of
//! [`Credential`] and a variant of [`Access`].

use derive_more::Debug;
use std::net::IpAddr;
use std::sync::Arc;

use callboard_message::Principal;

use crate::KeyRing;

/// Most bytes of the value of `Authorization`.
pub const AUTHORIZATION_BYTES_MAX: usize = 8 * 1024;

/// What a listener makes of a peer that shows no credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Trust {
    /// It is nobody. A request that a proxy passed on is refused.
    #[default]
    Anonymous,
    /// It is nobody, and a proxy may pass its requests on: the listener is declared to be reached through one.
    BehindProxy,
    /// From this machine to this machine, it is whoever started the process. For development and demonstrations. A request
    /// that a proxy passed on is refused: through a proxy everybody comes from this machine.
    LoopbackOperator,
}

/// How a listener learns who is behind a request.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Access {
    /// By the connection alone: credentials are refused, for nobody here can tell what they are worth.
    Open(Trust),
    /// Like [`Trust::Anonymous`], and also beyond this machine: whoever runs it wants anybody who reaches it to use it.
    Anyone,
    /// By a bearer token (RFC 6750), which every request must have. The first verifier whose kind of token it is decides.
    #[debug("Bearer({} verifiers)", _0.len())]
    Bearer(Arc<[Box<dyn BearerVerifier>]>),
}

impl Access {
    /// Requires a key of this ring with every request.
    pub fn keys(ring: KeyRing) -> Self {
        Self::Bearer(Arc::new([Box::new(ring)]))
    }

    /// The principal behind a request.
    ///
    /// # Errors
    /// See [`CredentialError`]: the request may not go on.
    pub fn principal(&self, credential: &Credential<'_>) -> Result<Principal, CredentialError> {
        let verifiers = match self {
            Self::Open(trust) => return trust.principal(credential),
            Self::Anyone => return Trust::BehindProxy.principal(credential),
            Self::Bearer(verifiers) => verifiers,
        };
        let token = bearer_token(credential.authorization.ok_or(CredentialError::Missing)?)?;
        verifiers
            .iter()
            .find_map(|verifier| verifier.verify(token))
            .unwrap_or(Err(CredentialError::Wrong))
    }

    /// Whether a listener on this address is safe: beyond this machine, peers must show who they are.
    pub fn may_listen_on(&self, address: IpAddr) -> bool {
        match self {
            Self::Open(_) => address.to_canonical().is_loopback(),
            Self::Anyone | Self::Bearer(_) => true,
        }
    }
}

impl Default for Access {
    fn default() -> Self {
        Self::Open(Trust::default())
    }
}

impl From<Trust> for Access {
    fn from(trust: Trust) -> Self {
        Self::Open(trust)
    }
}

/// Knows one kind of bearer token.
pub trait BearerVerifier: Send + Sync + 'static {
    /// Whom a token stands for; `None` when it is of another kind, for the next verifier. Must not wait: what it needs
    /// (a key set) is fetched beforehand.
    fn verify(&self, token: &[u8]) -> Option<Result<Principal, CredentialError>>;
}

/// What a peer shows of itself on one request.
#[derive(Debug, Clone, Copy)]
#[debug(
    "Credential {{ peer: {peer:?}, authorization: {:?}, .. }}",
    if authorization.is_some() { "shown" } else { "none" }
)]
pub struct Credential<'a> {
    /// The peer's address; `None` when the transport has none.
    pub peer: Option<IpAddr>,
    /// The address it reached.
    pub local: Option<IpAddr>,
    /// The value of `Authorization`. A request that has two is to be refused.
    pub authorization: Option<&'a [u8]>,
    /// Whether a proxy passed the request on, by its headers (see [`is_forwarding_header`](crate::is_forwarding_header)) or its
    /// HTTP version: servers by HTTP count requests older than HTTP/1.1.
    pub is_forwarded: bool,
}

/// A credential that doesn't count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.message())]
#[non_exhaustive]
pub enum CredentialError {
    /// Nothing here can verify it: send the request without.
    Unverifiable,
    /// Send a key or token.
    Missing,
    /// Send `Bearer` and one token.
    Malformed,
    /// Send another: this one is unknown, revoked or expired, and which of them isn't said.
    Wrong,
    /// Configure keys, or connect directly: the connection is the proxy's and says nothing about who sends the request.
    Forwarded,
    /// Try again later: this end can't verify anything now.
    Unavailable,
}

impl CredentialError {
    /// What to do, for a person.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Unverifiable => {
                "no credentials are configured here: send the request without `Authorization`"
            }
            Self::Missing => "a key is needed: send `Authorization: Bearer KEY`",
            Self::Malformed => "`Authorization` must be `Bearer` and one token",
            Self::Wrong => "the key or token is not valid",
            Self::Forwarded => {
                "a proxy passed this request on, and this listener only takes callers of its own machine \
                 without a key: configure `keys` for it, or connect to it directly"
            }
            Self::Unavailable => "credentials can't be verified now",
        }
    }

    /// The HTTP status that says so.
    pub fn http_status(self) -> u16 {
        match self {
            Self::Malformed => 400,
            Self::Forwarded => 403,
            Self::Unavailable => 503,
            Self::Unverifiable | Self::Missing | Self::Wrong => 401,
        }
    }

    /// The value of `WWW-Authenticate` that goes with it (RFC 6750, section 3); `None` where no token would help.
    pub fn challenge(self) -> Option<&'static str> {
        match self {
            Self::Missing => Some("Bearer"),
            Self::Malformed => Some("Bearer error=\"invalid_request\""),
            Self::Wrong => Some("Bearer error=\"invalid_token\""),
            Self::Unverifiable | Self::Forwarded | Self::Unavailable => None,
        }
    }
}

/// `Bearer TOKEN` (RFC 6750, section 2.1).
fn bearer_token(authorization: &[u8]) -> Result<&[u8], CredentialError> {
    if authorization.len() > AUTHORIZATION_BYTES_MAX {
        return Err(CredentialError::Malformed);
    }
    let (scheme, token) = authorization
        .split_at_checked(7)
        .ok_or(CredentialError::Malformed)?;
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(byte);
    let token = token.trim_ascii_start();
    let is_token =
        scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty() && token.iter().all(is_part);
    if is_token {
        Ok(token)
    } else {
        Err(CredentialError::Malformed)
    }
}

impl Trust {
    /// The principal behind a request.
    ///
    /// # Errors
    /// [`CredentialError::Forwarded`] for a request that a proxy passed on, but for [`Trust::BehindProxy`].
    /// [`CredentialError::Unverifiable`] for any credential: taking it for no credential would hide the mistake.
    pub fn principal(self, credential: &Credential<'_>) -> Result<Principal, CredentialError> {
        if credential.is_forwarded && self != Self::BehindProxy {
            return Err(CredentialError::Forwarded);
        }
        if credential.authorization.is_some() {
            return Err(CredentialError::Unverifiable);
        }
        let on_loopback = |ip: Option<IpAddr>| ip.is_some_and(|ip| ip.to_canonical().is_loopback());
        Ok(match self {
            Self::LoopbackOperator
                if on_loopback(credential.peer) && on_loopback(credential.local) =>
            {
                Principal::local_operator()
            }
            _ => Principal::anonymous(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(peer: &str, local: &str) -> Credential<'static> {
        Credential {
            peer: peer.parse().ok(),
            local: local.parse().ok(),
            authorization: None,
            is_forwarded: false,
        }
    }

    /// Goal: only a peer on this machine, on a listener that says so, is the operator. Method: every other mix.
    #[test]
    fn operator_needs_loopback_at_both_ends() {
        let operator = Ok(Principal::local_operator());
        for (peer, local) in [
            ("127.0.0.1", "127.0.0.1"),
            ("::1", "::1"),
            ("::ffff:127.0.0.1", "::ffff:127.0.0.1"),
        ] {
            assert_eq!(
                Trust::LoopbackOperator.principal(&credential(peer, local)),
                operator
            );
            assert_eq!(
                Trust::Anonymous.principal(&credential(peer, local)),
                Ok(Principal::anonymous())
            );
        }
        for (peer, local) in [
            ("10.0.0.7", "10.0.0.1"),
            ("10.0.0.7", "127.0.0.1"),
            ("127.0.0.1", "0.0.0.0"),
            ("", ""),
        ] {
            assert_eq!(
                Trust::LoopbackOperator.principal(&credential(peer, local)),
                Ok(Principal::anonymous())
            );
        }
    }

    /// Goal: who comes through a proxy is no caller of this machine, whatever the connection looks like. Method: each mode.
    #[test]
    fn forwarded_requests_are_not_of_this_machine() {
        let forwarded = Credential {
            is_forwarded: true,
            ..credential("127.0.0.1", "127.0.0.1")
        };
        for trust in [Trust::LoopbackOperator, Trust::Anonymous] {
            assert_eq!(
                Access::from(trust).principal(&forwarded),
                Err(CredentialError::Forwarded)
            );
        }
        for access in [Access::from(Trust::BehindProxy), Access::Anyone] {
            assert_eq!(access.principal(&forwarded), Ok(Principal::anonymous()));
        }
        let bearer = Access::Bearer(Arc::new([Box::new(Known("a"))]));
        assert_eq!(bearer.principal(&forwarded), Err(CredentialError::Missing));
        let shown = Credential {
            authorization: Some(b"Bearer a-ok"),
            ..forwarded
        };
        assert_eq!(bearer.principal(&shown), Ok(Principal::agent("a")));
        assert_eq!(CredentialError::Forwarded.http_status(), 403);
    }

    /// Goal: a credential that nobody checks grants nothing and is never printed. Method: a bearer token.
    #[test]
    fn unverifiable_credential_is_refused() {
        let shown = Credential {
            authorization: Some(b"Bearer s3cret"),
            ..credential("127.0.0.1", "127.0.0.1")
        };
        assert_eq!(
            Trust::LoopbackOperator.principal(&shown),
            Err(CredentialError::Unverifiable)
        );
        assert!(!format!("{shown:?}").contains("s3cret"));
    }

    /// Knows the tokens that begin with its word, and lets in what ends with `ok`.
    struct Known(&'static str);

    impl BearerVerifier for Known {
        fn verify(&self, token: &[u8]) -> Option<Result<Principal, CredentialError>> {
            let of_kind = token.starts_with(self.0.as_bytes());
            of_kind.then(|| {
                if token.ends_with(b"ok") {
                    Ok(Principal::agent(self.0))
                } else {
                    Err(CredentialError::Wrong)
                }
            })
        }
    }

    /// Goal: the verifier of a token's kind decides, and nothing else is taken for a token. Method: rows, two verifiers.
    #[test]
    fn bearer_tokens_are_required() {
        let access = Access::Bearer(Arc::new([Box::new(Known("a")), Box::new(Known("b"))]));
        let try_with = |value: Option<&str>| {
            let shown = credential("127.0.0.1", "127.0.0.1");
            access.principal(&Credential {
                authorization: value.map(str::as_bytes),
                ..shown
            })
        };
        assert_eq!(try_with(None), Err(CredentialError::Missing));
        for (value, whose) in [
            ("Bearer a-ok", "a"),
            ("bearer b.ok", "b"),
            ("BEARER  b/+~_=ok", "b"),
        ] {
            assert_eq!(
                try_with(Some(value)),
                Ok(Principal::agent(whose)),
                "{value}"
            );
        }
        for value in ["Bearer a", "Bearer bo", "Bearer cok", "Bearer okay-ok"] {
            assert_eq!(
                try_with(Some(value)),
                Err(CredentialError::Wrong),
                "{value}"
            );
        }
        for value in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer  ",
            "Basic a-ok",
            "Bearera-ok",
            "a-ok",
            "Bearer a ok",
            "Bearer a,ok",
        ] {
            assert_eq!(
                try_with(Some(value)),
                Err(CredentialError::Malformed),
                "{value}"
            );
        }
        let of = |bytes: usize| format!("Bearer {}ok", "a".repeat(bytes - 9));
        assert!(try_with(Some(&of(AUTHORIZATION_BYTES_MAX))).is_ok());
        assert_eq!(
            try_with(Some(&of(AUTHORIZATION_BYTES_MAX + 1))),
            Err(CredentialError::Malformed)
        );
    }

    /// Goal: whoever can't tell peers apart stays on this machine. Method: each mode at three addresses.
    #[test]
    fn open_access_stays_on_loopback() {
        let bearer = Access::Bearer(Arc::new([Box::new(Known("a"))]));
        for (address, open) in [
            ("127.0.0.1", true),
            ("::ffff:127.0.0.1", true),
            ("0.0.0.0", false),
            ("10.0.0.7", false),
        ] {
            let address = address.parse().unwrap();
            for trust in [
                Trust::Anonymous,
                Trust::BehindProxy,
                Trust::LoopbackOperator,
            ] {
                assert_eq!(Access::from(trust).may_listen_on(address), open);
            }
            assert!(bearer.may_listen_on(address) && Access::Anyone.may_listen_on(address));
        }
    }
}
