//! Clients that a listener authenticates by the names of their certificates.

use std::collections::HashMap;

use callboard_message::{PATIENT_SCOPE_PREFIX, Principal, PrincipalKind};
use rustls::pki_types::{DnsName, UnixTime};

use crate::credential::{BearerVerifier, CredentialError};
use crate::keys::{
    KEY_NAME_BYTES_MAX, KEY_SCOPE_BYTES_MAX, KEY_SCOPES_MAX, is_valid_name, is_valid_scope,
};
use crate::tls::ClientCertificate;

#[cfg(all(test, feature = "serve"))]
mod tests;

/// Client that is known by a name of its certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateClient {
    /// DNS name that its certificate must have (subject alternative name). It is compared byte by
    /// byte, so a certificate with a wildcard stands for no client.
    pub name: String,
    /// Id of its principal, by the rules for names of keys.
    pub principal: String,
    /// Scopes of its principal, by the rules for scopes of keys.
    pub scopes: Vec<String>,
}

/// Invalid field of a [`CertificateClient`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateClientError {
    /// The name is not a DNS name.
    #[error(
        "`name` must be a DNS name of the certificate, such as robot.example, without wildcards"
    )]
    Name,
    /// The principal is not 1 to [`KEY_NAME_BYTES_MAX`] letters, digits, `-`, `_` and `.`.
    #[error(
        "`principal`, by default the name, must have 1 to {KEY_NAME_BYTES_MAX} letters, digits, -, _ and ."
    )]
    Principal,
    /// There are more than [`KEY_SCOPES_MAX`] scopes, or one is invalid
    /// ([`is_valid_scope`](crate::is_valid_scope)).
    #[error(
        "`scopes` may have at most {KEY_SCOPES_MAX} scopes, each of 1 to {KEY_SCOPE_BYTES_MAX} printable characters without spaces, \" and \\"
    )]
    Scope,
    /// A scope begins with [`PATIENT_SCOPE_PREFIX`].
    #[error("`scopes` can't have `{PATIENT_SCOPE_PREFIX}…`: a certificate names no patient")]
    PatientScope,
}

impl CertificateClient {
    /// Checks name, principal and scopes.
    ///
    /// # Errors
    /// Returns the first invalid field.
    pub fn validate(&self) -> Result<(), CertificateClientError> {
        if DnsName::try_from_str(&self.name).is_err() {
            return Err(CertificateClientError::Name);
        }
        if !is_valid_name(&self.principal) {
            return Err(CertificateClientError::Principal);
        }
        let scopes = &self.scopes;
        if scopes.len() > KEY_SCOPES_MAX || !scopes.iter().all(|scope| is_valid_scope(scope)) {
            return Err(CertificateClientError::Scope);
        }
        match scopes
            .iter()
            .any(|scope| scope.starts_with(PATIENT_SCOPE_PREFIX))
        {
            true => Err(CertificateClientError::PatientScope),
            false => Ok(()),
        }
    }
}

/// Verifier of client certificates. A certificate with the name of a client authenticates its
/// principal, as long as it is valid for the authorities of the listener.
#[derive(Debug)]
pub struct CertificateClients {
    /// Position in the list and principal of each client, by the name of its certificate.
    by_name: HashMap<String, (usize, Principal)>,
}

impl CertificateClients {
    /// Creates a verifier of the certificates of these clients. If a certificate has the names of
    /// several, the first of them counts.
    pub fn new(clients: impl IntoIterator<Item = CertificateClient>) -> Self {
        let mut by_name = HashMap::new();
        for (at, client) in clients.into_iter().enumerate() {
            let principal = Principal {
                id: client.principal,
                kind: PrincipalKind::Certificate,
                scopes: client.scopes,
                purpose: None,
            };
            by_name.entry(client.name).or_insert((at, principal));
        }
        Self { by_name }
    }

    /// Returns the principal of a certificate at the time `now`; `None` if it has no name of a
    /// client, or isn't valid.
    fn principal_at(&self, certificate: &ClientCertificate, now: UnixTime) -> Option<Principal> {
        let names = certificate.dns_names().into_iter();
        let known = names.filter_map(|name| self.by_name.get(name));
        let (_, principal) = known.min_by_key(|(at, _)| *at)?;
        certificate.is_valid_at(now).then(|| principal.clone())
    }
}

impl BearerVerifier for CertificateClients {
    fn verify(&self, _: &[u8]) -> Option<Result<Principal, CredentialError>> {
        None
    }

    fn verify_certificate(&self, certificate: &ClientCertificate) -> Option<Principal> {
        self.principal_at(certificate, UnixTime::now())
    }

    fn is_for_certificates(&self) -> bool {
        true
    }
}
