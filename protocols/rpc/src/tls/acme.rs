//! Certificates of an ACME authority (RFC 8555), which checks the domains over TLS (RFC 8737; feature
//! `acme`).

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use futures::StreamExt;
use parking_lot::Mutex;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::ServerSessionMemoryCache;
use rustls_acme::caches::DirCache;
use rustls_acme::{AcmeConfig, AcmeState};
use tokio_util::task::AbortOnDropHandle;
use url::Url;

use super::files::{TlsFileError, create_private_folder};
use super::{ClientTls, TLS_SESSIONS_MAX};

/// Name of the protocol by which the authority checks a domain (ALPN). Nothing is sent in it.
pub(crate) const ACME_TLS_1: &[u8] = b"acme-tls/1";
/// Directory of the authority that is asked by default: Let's Encrypt.
pub const ACME_DIRECTORY_DEFAULT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// Certificate of an ACME authority, to be ordered and renewed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AcmeSettings {
    /// Host names of the certificate. Each must lead to port 443 of a listener with the certificate.
    pub domains: Vec<String>,
    /// Contacts of the account, such as `mailto:ops@example.com`.
    pub contacts: Vec<String>,
    /// URL of the authority's directory.
    pub directory: Url,
    /// PEM file with the authorities of the directory's own certificate. `None` for the public ones.
    pub ca: Option<PathBuf>,
    /// Folder for account key and certificate, which only its owner can read. It is created if missing.
    pub folder: PathBuf,
}

/// Certificates that are ordered and renewed in the background, each once, as long as a listener has
/// it. Clones share the certificates.
#[derive(Clone, Default)]
pub struct AcmeRegistry(Arc<Mutex<HashMap<AcmeSettings, Weak<AcmeCertificate>>>>);

/// A certificate that is renewed as long as this exists.
pub(crate) struct AcmeCertificate {
    pub(crate) config: Arc<ServerConfig>,
    _renewal: AbortOnDropHandle<()>,
}

impl AcmeRegistry {
    /// Returns the certificate with these settings. A new one is ordered in the background: until it
    /// has been issued, handshakes fail. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`TlsFileError`] if the folder can't be created or others can read it, or the file of authorities
    /// can't be used.
    pub(crate) fn certificate(
        &self,
        settings: &AcmeSettings,
    ) -> Result<Arc<AcmeCertificate>, TlsFileError> {
        let mut all = self.0.lock();
        if let Some(known) = all.get(settings).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let certificate = Arc::new(AcmeCertificate::order(settings)?);
        all.retain(|_, certificate| certificate.strong_count() > 0);
        all.insert(settings.clone(), Arc::downgrade(&certificate));
        Ok(certificate)
    }
}

impl AcmeCertificate {
    fn order(settings: &AcmeSettings) -> Result<Self, TlsFileError> {
        create_private_folder(&settings.folder)?;
        let tls = match &settings.ca {
            Some(file) => ClientTls::default().with_ca(file)?,
            None => ClientTls::default(),
        };
        let unusable = |error: rustls::Error| TlsFileError::Unusable {
            path: settings.ca.clone().unwrap_or_default(),
            why: error.to_string(),
        };
        let client = tls.config().map_err(unusable)?;
        let state = AcmeConfig::new_with_client_config(&settings.domains, Arc::new(client))
            .contact(&settings.contacts)
            .directory(&settings.directory)
            .cache(DirCache::new(settings.folder.clone()))
            .state();
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(unusable)?;
        let mut config = builder
            .with_no_client_auth()
            .with_cert_resolver(state.resolver());
        config.session_storage = ServerSessionMemoryCache::new(TLS_SESSIONS_MAX);
        let renewal = tokio::spawn(renew(state, settings.domains.join(", ")));
        Ok(Self {
            config: Arc::new(config),
            _renewal: AbortOnDropHandle::new(renewal),
        })
    }
}

/// Orders and renews a certificate for ever, and logs how it goes.
async fn renew(mut state: AcmeState<io::Error>, domains: String) {
    while let Some(event) = state.next().await {
        match event {
            Ok(done) => {
                callboard_message::log::info!(domains, ?done, "an ACME certificate was handled");
            }
            Err(error) => {
                callboard_message::log::error!(domains, %error, "failed to get an ACME certificate: trying again later");
            }
        }
    }
}
