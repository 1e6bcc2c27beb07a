//! Authentication of requests: the principal comes from a credential, never from the request's
//! body.
//!
//! A listener uses [`AccessControl`]. API keys are one kind of bearer token; access tokens of
//! authorization servers are another ([`TokenVerifier`](crate::TokenVerifier)). A client without a
//! token may be known by its certificate ([`CertificateClients`](crate::CertificateClients)).

use derive_more::Debug;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use callboard_message::Principal;

use crate::ReloadingKeyStore;
use crate::tls::ClientCertificate;
use crate::token_resource::TokenResource;

/// Maximum length of the `Authorization` header's value, in bytes. A longer value is rejected.
pub const AUTHORIZATION_BYTES_MAX: usize = 8 * 1024;

/// Treatment of peers by a listener that requires no credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnauthenticatedAccess {
    /// All peers are anonymous. Requests forwarded by a proxy are rejected.
    #[default]
    Anonymous,
    /// All peers are anonymous. Requests forwarded by a proxy are accepted, because the listener is
    /// behind one.
    BehindProxy,
    /// A peer that connects from this machine over loopback is the local operator; others are
    /// anonymous. Requests forwarded by a proxy are rejected, because they seem to come from this
    /// machine. For development and demonstrations.
    LoopbackOperator,
}

/// Authentication method of a listener.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum AccessControl {
    /// No credentials; the principal follows from the connection alone. Requests with a credential
    /// are rejected, because it can't be verified. The listener may bind loopback addresses only.
    Open(UnauthenticatedAccess),
    /// No credentials; all peers are anonymous, and the listener may bind any address. Requests
    /// forwarded by a proxy are accepted. For services that are deliberately public.
    Anyone,
    /// Every request must have a bearer token (RFC 6750), or come over a connection whose client
    /// certificate is known. The verifiers are tried in order; the first that recognises the kind of
    /// token, or the certificate, decides. With a token, the certificate doesn't count.
    #[debug("Bearer({} verifiers)", _0.len())]
    Bearer(Arc<[Box<dyn BearerVerifier>]>),
}

impl AccessControl {
    /// Creates access control that requires a key of the key store `ring` with every request.
    pub fn with_keys(ring: ReloadingKeyStore) -> Self {
        Self::Bearer(Arc::new([Box::new(ring)]))
    }

    /// Creates access control that requires a credential with every request, which one of the
    /// verifiers knows.
    pub fn with_verifiers(verifiers: Vec<Box<dyn BearerVerifier>>) -> Self {
        Self::Bearer(verifiers.into())
    }

    /// Waits until what the verification of a credential needs has been fetched; usually it returns at
    /// once. Each issuer has [`INTROSPECTION_TIMEOUT`](crate::INTROSPECTION_TIMEOUT) or as much as its
    /// settings say, and at most four are asked. To be called before [`Self::authenticate`].
    pub async fn prepare(&self, credential: &PresentedCredential<'_>) {
        let Self::Bearer(verifiers) = self else {
            return;
        };
        let Some(Ok(token)) = credential.authorization.map(bearer_token) else {
            return;
        };
        for ready in verifiers
            .iter()
            .filter_map(|verifier| verifier.prepare(token, credential.peer))
        {
            ready.await;
        }
    }

    /// Returns what clients are told of the access tokens that are accepted; `None` if none are.
    pub fn token_resource(&self) -> Option<&TokenResource> {
        match self {
            Self::Bearer(verifiers) => verifiers
                .iter()
                .find_map(|verifier| verifier.token_resource()),
            Self::Open(_) | Self::Anyone => None,
        }
    }

    /// Authenticates a request by its credential and connection, and returns its principal.
    ///
    /// # Errors
    /// Returns a [`CredentialError`] if the request must be rejected. A credential sent to a
    /// listener that requires none is rejected as [`CredentialError::Unverifiable`], because
    /// ignoring it would hide a mistake.
    pub fn authenticate(
        &self,
        credential: &PresentedCredential<'_>,
    ) -> Result<Principal, CredentialError> {
        let principal = self.identify(credential);
        // A client that doesn't know yet that a key is needed sends none.
        if let Err(error) = &principal
            && *error != CredentialError::Missing
        {
            let peer = credential.peer.map(|peer| peer.to_string());
            callboard_message::log::warn!(by: peer.as_deref().unwrap_or_default(), peer, reason = error.message(), "rejected a request by its credential");
        }
        principal
    }

    fn identify(&self, credential: &PresentedCredential<'_>) -> Result<Principal, CredentialError> {
        let trust = match self {
            Self::Open(trust) => *trust,
            Self::Anyone => UnauthenticatedAccess::BehindProxy,
            Self::Bearer(verifiers) => {
                let Some(authorization) = credential.authorization else {
                    let known = credential.own_certificate().and_then(|certificate| {
                        let mut verifiers = verifiers.iter();
                        verifiers.find_map(|verifier| verifier.verify_certificate(certificate))
                    });
                    // Where tokens are accepted too, a client's first request may lack one.
                    let is_unknown = credential.own_certificate().is_some()
                        && self.accepts_certificates()
                        && !self.accepts_tokens();
                    return known.ok_or(match is_unknown {
                        true => CredentialError::UnknownCertificate,
                        false => CredentialError::Missing,
                    });
                };
                let token = bearer_token(authorization)?;
                let verified = verifiers.iter().find_map(|verifier| verifier.verify(token));
                return verified.unwrap_or(Err(CredentialError::Wrong));
            }
        };
        if credential.is_forwarded && trust != UnauthenticatedAccess::BehindProxy {
            return Err(CredentialError::Forwarded);
        }
        if credential.authorization.is_some() {
            return Err(CredentialError::Unverifiable);
        }
        let on_loopback = |ip: Option<IpAddr>| ip.is_some_and(|ip| ip.to_canonical().is_loopback());
        Ok(match trust {
            UnauthenticatedAccess::LoopbackOperator
                if on_loopback(credential.peer) && on_loopback(credential.local) =>
            {
                Principal::local_operator()
            }
            _ => Principal::anonymous(),
        })
    }

    /// Returns whether requests can be authenticated by bearer tokens.
    pub fn accepts_tokens(&self) -> bool {
        self.has_verifier(false)
    }

    /// Returns whether requests can be authenticated by client certificates.
    pub fn accepts_certificates(&self) -> bool {
        self.has_verifier(true)
    }

    fn has_verifier(&self, for_certificates: bool) -> bool {
        let Self::Bearer(verifiers) = self else {
            return false;
        };
        verifiers
            .iter()
            .any(|verifier| verifier.is_for_certificates() == for_certificates)
    }

    /// Returns whether a listener with this access control may bind an address.
    /// [`AccessControl::Open`] permits loopback addresses only; the others permit any.
    pub fn may_listen_on(&self, address: IpAddr) -> bool {
        match self {
            Self::Open(_) => address.to_canonical().is_loopback(),
            Self::Anyone | Self::Bearer(_) => true,
        }
    }
}

impl Default for AccessControl {
    fn default() -> Self {
        Self::Open(UnauthenticatedAccess::default())
    }
}

impl From<UnauthenticatedAccess> for AccessControl {
    fn from(trust: UnauthenticatedAccess) -> Self {
        Self::Open(trust)
    }
}

/// Verifier of one kind of bearer token, for example of API keys, or of client certificates.
pub trait BearerVerifier: Send + Sync + 'static {
    /// Verifies a token and returns its principal, or the error if it is invalid. Returns `None` if
    /// the token is of another kind, so that the next verifier is tried. Must not block: data such
    /// as a key set must be fetched beforehand.
    fn verify(&self, token: &[u8]) -> Option<Result<Principal, CredentialError>>;

    /// Returns the principal of a client certificate; `None` if it is unknown, or not valid any more.
    /// Must not block.
    fn verify_certificate(&self, _certificate: &ClientCertificate) -> Option<Principal> {
        None
    }

    /// Returns whether the verifier knows client certificates, and no tokens.
    fn is_for_certificates(&self) -> bool {
        false
    }

    /// Returns a future that fetches what [`Self::verify`] needs for the token; `None` if it needs
    /// nothing. It ends in a bounded time, whether or not it succeeds. `peer` is the address of
    /// the client, if it has one, whose share of what is fetched may be limited.
    fn prepare<'a>(
        &'a self,
        _token: &'a [u8],
        _peer: Option<IpAddr>,
    ) -> Option<CredentialFuture<'a>> {
        None
    }

    /// Returns what clients are told of the tokens; `None` if they are told nothing.
    fn token_resource(&self) -> Option<&TokenResource> {
        None
    }
}

/// Future of [`BearerVerifier::prepare`].
pub type CredentialFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Credential of a request, with the connection data that authentication needs.
#[derive(Debug, Clone, Copy)]
#[debug(
    "Credential {{ peer: {peer:?}, authorization: {:?}, .. }}",
    if authorization.is_some() { "shown" } else { "none" }
)]
pub struct PresentedCredential<'a> {
    /// Address of the peer; `None` if the transport has none.
    pub peer: Option<IpAddr>,
    /// Local address that the peer connected to; `None` if the transport has none.
    pub local: Option<IpAddr>,
    /// Value of the `Authorization` header; `None` if there is none. The caller must reject
    /// requests with several such headers.
    pub authorization: Option<&'a [u8]>,
    /// Certificate of the connection's client; `None` if the listener demands none.
    pub certificate: Option<&'a ClientCertificate>,
    /// Whether a proxy forwarded the request, according to its headers (see
    /// [`is_forwarding_header`](crate::is_forwarding_header)). HTTP servers must also set it for
    /// requests older than HTTP/1.1, because some proxies use HTTP/1.0 and add no header.
    pub is_forwarded: bool,
}

impl<'a> PresentedCredential<'a> {
    /// Returns the certificate of the client; `None` if it is that of a proxy.
    fn own_certificate(&self) -> Option<&'a ClientCertificate> {
        self.certificate.filter(|_| !self.is_forwarded)
    }
}

/// Rejection of a request's credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.message())]
#[non_exhaustive]
pub enum CredentialError {
    /// The request has a credential, but the listener requires none and can't verify it. The client
    /// should send the request without it.
    Unverifiable,
    /// The request has no credential. The client should send a key or token.
    Missing,
    /// The request comes over a connection whose client certificate isn't listed, or is no longer valid, and
    /// only certificates are accepted. The operator should list it.
    UnknownCertificate,
    /// The credential is not `Bearer` and one token.
    Malformed,
    /// The token is unknown, revoked or expired. The same error is used for all of these.
    Wrong,
    /// The token is valid, but lacks a scope that the listener requires. The client should get a
    /// token with the scopes that the challenge names.
    InsufficientScope,
    /// The request was forwarded by a proxy, so the connection doesn't identify the client. The
    /// listener must require keys, or the client must connect directly.
    Forwarded,
    /// Credentials can't be verified at the moment. The client should try again later.
    Unavailable,
}

impl CredentialError {
    /// Returns an explanation of the error and its remedy, for a person.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Unverifiable => {
                "no credentials are configured here: send the request without `Authorization`"
            }
            Self::Missing => {
                "a key is needed, or a client certificate that is listed here: send `Authorization: Bearer KEY`"
            }
            Self::UnknownCertificate => {
                "the client certificate isn't listed here, or is no longer valid: name one of its DNS names in `[[listener.tls.client]]`"
            }
            Self::Malformed => "`Authorization` must be `Bearer` and one token",
            Self::Wrong => {
                "the key or token is not valid here, or no longer: ask the operator for another"
            }
            Self::InsufficientScope => {
                "the token lacks a scope that is required here: get a token with the scopes that `WWW-Authenticate` names"
            }
            Self::Forwarded => {
                "a proxy passed this request on, and this listener only takes callers of its own machine \
                 without a key: configure `keys` for it, or connect to it directly"
            }
            Self::Unavailable => "credentials can't be verified at the moment: try again later",
        }
    }

    /// Returns the HTTP status of the response: 400, 401, 403 or 503.
    pub fn http_status(self) -> u16 {
        match self {
            Self::Malformed => 400,
            Self::Forwarded | Self::InsufficientScope => 403,
            Self::Unavailable => 503,
            Self::Unverifiable | Self::Missing | Self::UnknownCertificate | Self::Wrong => 401,
        }
    }

    /// Returns the value of the response header `WWW-Authenticate` (RFC 6750, section 3); `None` if
    /// a token would not help.
    pub fn challenge(self) -> Option<&'static str> {
        match self {
            Self::Missing | Self::UnknownCertificate => Some("Bearer"),
            Self::Malformed => Some("Bearer error=\"invalid_request\""),
            Self::Wrong => Some("Bearer error=\"invalid_token\""),
            Self::InsufficientScope => Some("Bearer error=\"insufficient_scope\""),
            Self::Unverifiable | Self::Forwarded | Self::Unavailable => None,
        }
    }
}

/// Parses `Bearer TOKEN` (RFC 6750, section 2.1) and returns the token.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn credential(peer: &str, local: &str) -> PresentedCredential<'static> {
        PresentedCredential {
            peer: peer.parse().ok(),
            local: local.parse().ok(),
            authorization: None,
            certificate: None,
            is_forwarded: false,
        }
    }

    /// Goal: only a peer on this machine, on a listener that says so, is the operator. Method:
    /// every other mix.
    #[test]
    fn operator_needs_loopback_at_both_ends() {
        let operator = Ok(Principal::local_operator());
        for (peer, local) in [
            ("127.0.0.1", "127.0.0.1"),
            ("::1", "::1"),
            ("::ffff:127.0.0.1", "::ffff:127.0.0.1"),
        ] {
            assert_eq!(
                AccessControl::Open(UnauthenticatedAccess::LoopbackOperator)
                    .authenticate(&credential(peer, local)),
                operator
            );
            assert_eq!(
                AccessControl::Open(UnauthenticatedAccess::Anonymous)
                    .authenticate(&credential(peer, local)),
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
                AccessControl::Open(UnauthenticatedAccess::LoopbackOperator)
                    .authenticate(&credential(peer, local)),
                Ok(Principal::anonymous())
            );
        }
    }

    /// Goal: a request that came through a proxy isn't treated as local, even on a loopback
    /// connection. Method: each mode.
    #[test]
    fn forwarded_requests_are_not_of_this_machine() {
        let forwarded = PresentedCredential {
            is_forwarded: true,
            ..credential("127.0.0.1", "127.0.0.1")
        };
        for trust in [
            UnauthenticatedAccess::LoopbackOperator,
            UnauthenticatedAccess::Anonymous,
        ] {
            assert_eq!(
                AccessControl::from(trust).authenticate(&forwarded),
                Err(CredentialError::Forwarded)
            );
        }
        for access in [
            AccessControl::from(UnauthenticatedAccess::BehindProxy),
            AccessControl::Anyone,
        ] {
            assert_eq!(access.authenticate(&forwarded), Ok(Principal::anonymous()));
        }
        let bearer = AccessControl::Bearer(Arc::new([Box::new(Known("a"))]));
        assert_eq!(
            bearer.authenticate(&forwarded),
            Err(CredentialError::Missing)
        );
        let shown = PresentedCredential {
            authorization: Some(b"Bearer a-ok"),
            ..forwarded
        };
        assert_eq!(bearer.authenticate(&shown), Ok(Principal::agent("a")));
        assert_eq!(CredentialError::Forwarded.http_status(), 403);
    }

    /// Goal: a credential that can't be verified grants nothing and is never printed. Method: a
    /// bearer token.
    #[test]
    fn unverifiable_credential_is_refused() {
        let shown = PresentedCredential {
            authorization: Some(b"Bearer s3cret"),
            ..credential("127.0.0.1", "127.0.0.1")
        };
        assert_eq!(
            AccessControl::Open(UnauthenticatedAccess::LoopbackOperator).authenticate(&shown),
            Err(CredentialError::Unverifiable)
        );
        assert!(!format!("{shown:?}").contains("s3cret"));
    }

    /// Verifier of tokens that begin with its word; it accepts those that end with `ok`.
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

    /// Goal: the verifier of a token's kind decides, and nothing else is taken for a token. Method:
    /// rows, two verifiers.
    #[test]
    fn bearer_tokens_are_required() {
        let access = AccessControl::Bearer(Arc::new([Box::new(Known("a")), Box::new(Known("b"))]));
        let try_with = |value: Option<&str>| {
            let shown = credential("127.0.0.1", "127.0.0.1");
            access.authenticate(&PresentedCredential {
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

    /// Goal: access without authentication is bound to loopback. Method: each mode at three
    /// addresses.
    #[test]
    fn open_access_stays_on_loopback() {
        let bearer = AccessControl::Bearer(Arc::new([Box::new(Known("a"))]));
        for (address, open) in [
            ("127.0.0.1", true),
            ("::ffff:127.0.0.1", true),
            ("0.0.0.0", false),
            ("10.0.0.7", false),
        ] {
            let address = address.parse().unwrap();
            for trust in [
                UnauthenticatedAccess::Anonymous,
                UnauthenticatedAccess::BehindProxy,
                UnauthenticatedAccess::LoopbackOperator,
            ] {
                assert_eq!(AccessControl::from(trust).may_listen_on(address), open);
            }
            assert!(bearer.may_listen_on(address) && AccessControl::Anyone.may_listen_on(address));
        }
    }
}
