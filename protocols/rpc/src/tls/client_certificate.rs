//! Certificates that clients show to a listener.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use webpki::EndEntityCert;

/// Authorities of a listener's client certificates, which may change while it runs.
pub(crate) trait ClientAuthorities: Send + Sync {
    /// Returns the verifier with the current authorities; `None` if there are none.
    fn current_verifier(&self) -> Option<Arc<dyn ClientCertVerifier>>;
}

/// Certificate that the client of a TLS connection has shown, with those of its issuers. The listener
/// verified it in the handshake; since then it may have expired. Clones share the certificates.
#[derive(Clone)]
pub struct ClientCertificate(Arc<VerifiedChain>);

struct VerifiedChain {
    /// Certificate of the client, followed by those of its issuers.
    certificates: Vec<CertificateDer<'static>>,
    authorities: Arc<dyn ClientAuthorities>,
    /// Time of the latest successful verification after the handshake, in seconds since the Unix
    /// epoch; 0 before the first.
    verified_unix_s: AtomicU64,
}

impl ClientCertificate {
    /// Creates the certificate of a connection from what its client has shown.
    #[cfg(feature = "serve")]
    pub(crate) fn new(
        certificates: Vec<CertificateDer<'static>>,
        authorities: Arc<dyn ClientAuthorities>,
    ) -> Self {
        Self(Arc::new(VerifiedChain {
            certificates,
            authorities,
            verified_unix_s: AtomicU64::new(0),
        }))
    }

    /// Returns the DNS names of the certificate (subject alternative names), as written in it;
    /// wildcards are among them.
    pub(crate) fn dns_names(&self) -> Vec<&str> {
        let Some(own) = self.0.certificates.first() else {
            return Vec::new();
        };
        let Ok(own) = EndEntityCert::try_from(own) else {
            return Vec::new();
        };
        own.valid_dns_names().collect()
    }

    /// Verifies the certificate again, and returns whether it is valid at `now` for the current
    /// authorities. A success holds for the rest of the second: validity is in whole seconds.
    pub(crate) fn is_valid_at(&self, now: UnixTime) -> bool {
        let chain = &*self.0;
        if chain.verified_unix_s.load(Ordering::Relaxed) == now.as_secs() {
            return true;
        }
        let (Some(verifier), Some((own, issuers))) = (
            chain.authorities.current_verifier(),
            chain.certificates.split_first(),
        ) else {
            return false;
        };
        let is_valid = verifier.verify_client_cert(own, issuers, now).is_ok();
        if is_valid {
            chain
                .verified_unix_s
                .store(now.as_secs(), Ordering::Relaxed);
        }
        is_valid
    }
}
