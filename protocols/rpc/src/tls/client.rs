//! TLS of clients: the authorities that they trust, and their own certificate.

use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::Arc;

use derive_more::Debug;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};

use super::files::{TlsFileError, pair_error, read_bundle, read_certificates, read_private_key};

/// TLS settings of a client. The default trusts the public authorities that this program was built
/// with (those of Mozilla) and shows no certificate. Clones share the certificates.
#[derive(Debug, Clone, Default)]
#[debug("ClientTls {{ own authorities: {}, certificate: {} }}", roots.is_some(), identity.is_some())]
pub struct ClientTls {
    /// Trusted authorities; `None` for the public ones.
    roots: Option<Arc<RootCertStore>>,
    identity: Option<Arc<ClientIdentity>>,
}

/// Certificate of a client with those of its issuers, and its private key.
struct ClientIdentity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl ClientTls {
    /// Trusts the authorities of a PEM file in place of the public ones.
    ///
    /// # Errors
    /// [`TlsFileError`] if the file can't be used.
    pub fn with_ca(mut self, file: &Path) -> Result<Self, TlsFileError> {
        self.roots = Some(read_bundle(file)?);
        Ok(self)
    }

    /// Shows a certificate to servers that ask for one. `certificate` holds it and those of its
    /// issuers, `key` its private key, both in PEM.
    ///
    /// # Errors
    /// [`TlsFileError`] if a file can't be used, or the key doesn't belong to the certificate.
    pub fn with_certificate(
        mut self,
        certificate: &Path,
        key: &Path,
    ) -> Result<Self, TlsFileError> {
        self.identity = Some(Arc::new(ClientIdentity {
            chain: read_certificates(certificate)?,
            key: read_private_key(key)?,
        }));
        self.config()
            .map_err(|error| pair_error(certificate, key, &error))?;
        Ok(self)
    }

    /// Returns settings for servers that the operator didn't name: the public authorities are
    /// trusted too, and no certificate is shown.
    pub fn for_other_servers(&self) -> Self {
        let roots = self.roots.as_ref().map(|own| {
            let mut all = public_authorities();
            all.roots.extend(own.roots.iter().cloned());
            Arc::new(all)
        });
        Self {
            roots,
            identity: None,
        }
    }

    /// Returns whether these are the default settings.
    pub fn is_default(&self) -> bool {
        self.roots.is_none() && self.identity.is_none()
    }

    /// Returns the configuration for rustls, without ALPN.
    ///
    /// # Errors
    /// Fails if the TLS library refuses the certificate or supports none of the safe protocol
    /// versions.
    pub fn config(&self) -> Result<ClientConfig, rustls::Error> {
        let roots = match &self.roots {
            Some(roots) => roots.clone(),
            None => Arc::new(public_authorities()),
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots);
        match &self.identity {
            None => Ok(builder.with_no_client_auth()),
            Some(own) => builder.with_client_auth_cert(own.chain.clone(), own.key.clone_key()),
        }
    }
}

fn public_authorities() -> RootCertStore {
    RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
    }
}

/// Reason why a TLS handshake failed over a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateFault {
    /// The server's certificate is of an authority that isn't trusted.
    #[error(
        "the server's certificate is of an authority that isn't trusted here: name a file with the authority's certificate in `ca`"
    )]
    Untrusted,
    /// The server's certificate is for other names than that of the URL.
    #[error(
        "the server's certificate is for other host names than that of the URL: use one of those, or have the certificate issued for this one"
    )]
    WrongName,
    /// The server's certificate has expired, or isn't valid yet.
    #[error(
        "the server's certificate has expired or isn't valid yet: have it renewed, and check the clocks of both machines"
    )]
    Expired,
    /// The server's certificate isn't one for servers, for example that of an authority.
    #[error(
        "the server's certificate isn't one for servers: have one issued by an authority, and name the authority's in `ca`"
    )]
    Invalid,
    /// The server demands a certificate of the client, or refuses the one shown.
    #[error(
        "the server demands a client certificate, or refuses the one shown: check `client_certificate` and `client_key`"
    )]
    ClientRefused,
}

impl CertificateFault {
    /// Returns the fault that caused an error; `None` if it has another cause.
    pub fn find_in_causes(error: &(dyn Error + 'static)) -> Option<Self> {
        find_tls_error(error).and_then(Self::from_tls)
    }

    fn from_tls(error: &rustls::Error) -> Option<Self> {
        match error {
            rustls::Error::InvalidCertificate(why) => Some(match why {
                CertificateError::UnknownIssuer => Self::Untrusted,
                CertificateError::NotValidForName
                | CertificateError::NotValidForNameContext { .. } => Self::WrongName,
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. } => Self::Expired,
                _ => Self::Invalid,
            }),
            rustls::Error::AlertReceived(
                AlertDescription::CertificateRequired
                | AlertDescription::NoCertificate
                | AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnknownCA
                | AlertDescription::AccessDenied,
            ) => Some(Self::ClientRefused),
            _ => None,
        }
    }
}

/// Returns the error of the TLS library among the causes of an error. An [`io::Error`] isn't the
/// source of its own content, so that is searched too.
pub(crate) fn find_tls_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        let content = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        next = match content {
            Some(content) => Some(content),
            None => error.source(),
        };
    }
    None
}
