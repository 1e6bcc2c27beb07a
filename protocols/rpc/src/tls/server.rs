//! TLS of listeners: certificate files that may be replaced while the listener runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache, WebPkiClientVerifier};

use super::client_certificate::ClientAuthorities;
use super::files::{
    TlsFileError, pair_error, read_authorities, read_certificates, read_private_key,
};
use crate::file_version::FileVersion;

/// Interval at which a listener checks its certificate files for changes, when a client connects or
/// its certificate is verified again.
pub const TLS_FILE_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of TLS sessions that a listener remembers, so that clients can resume them. Beyond
/// it, the oldest is forgotten, and its client makes a full handshake.
pub const TLS_SESSIONS_MAX: usize = 256;

/// Certificate files of a listener, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificate, followed by those of its issuers.
    pub certificate: PathBuf,
    /// Private key of the certificate.
    pub key: PathBuf,
    /// Authorities of client certificates. If set, every client must show one of theirs.
    pub client_ca: Option<PathBuf>,
}

impl TlsFiles {
    /// Reads and checks the files.
    ///
    /// # Errors
    /// [`TlsFileError`] if a file can't be used, or the key doesn't belong to the certificate.
    pub fn check(&self) -> Result<(), TlsFileError> {
        self.load().map(drop)
    }

    fn load(&self) -> Result<ServerSettings, TlsFileError> {
        let refused = |error: &rustls::Error| pair_error(&self.certificate, &self.key, error);
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| refused(&error))?;
        let client_verifier = self
            .client_ca
            .as_ref()
            .map(|file| {
                let authorities = read_authorities(file)?;
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(authorities, provider).build();
                verifier.map_err(|error| TlsFileError::Unusable {
                    path: file.clone(),
                    why: error.to_string(),
                })
            })
            .transpose()?;
        let builder = match &client_verifier {
            None => builder.with_no_client_auth(),
            Some(verifier) => builder.with_client_cert_verifier(verifier.clone()),
        };
        let (chain, key) = (
            read_certificates(&self.certificate)?,
            read_private_key(&self.key)?,
        );
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|error| refused(&error))?;
        if client_verifier.is_some() {
            // A resumed session isn't verified again, so that a certificate would outlive its expiry.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        } else {
            config.session_storage = ServerSessionMemoryCache::new(TLS_SESSIONS_MAX);
        }
        Ok(ServerSettings {
            config: Arc::new(config),
            client_verifier,
        })
    }

    fn versions(&self) -> [Option<FileVersion>; 3] {
        let client_ca = self.client_ca.as_deref();
        [Some(&*self.certificate), Some(&*self.key), client_ca]
            .map(|file: Option<&Path>| file.and_then(FileVersion::of))
    }
}

/// Settings that are made from the files of a listener.
struct ServerSettings {
    config: Arc<ServerConfig>,
    /// Verifier of client certificates; `None` if the listener demands none.
    client_verifier: Option<Arc<dyn ClientCertVerifier>>,
}

/// TLS configuration of a listener, which follows changes of its files. While the files can't be
/// used, the previous version stays in force.
pub(crate) struct ReloadingServerConfig {
    files: TlsFiles,
    poll_interval: Duration,
    loaded: Mutex<LoadedConfig>,
}

struct LoadedConfig {
    settings: ServerSettings,
    versions: [Option<FileVersion>; 3],
    looked: Instant,
}

impl ReloadingServerConfig {
    /// Reads the files. They are checked for changes at most once per `poll_interval`.
    ///
    /// # Errors
    /// [`TlsFileError`] if a file can't be used.
    pub(crate) fn open(files: TlsFiles, poll_interval: Duration) -> Result<Self, TlsFileError> {
        // Taken before the files are read, so that a change in between is detected later.
        let versions = files.versions();
        let loaded = Mutex::new(LoadedConfig {
            settings: files.load()?,
            versions,
            looked: Instant::now(),
        });
        Ok(Self {
            files,
            poll_interval,
            loaded,
        })
    }

    /// Returns the configuration of the current files, which are read again if they have changed.
    pub(crate) fn current(&self) -> Arc<ServerConfig> {
        self.refresh().settings.config.clone()
    }

    /// Reads the files again if they have changed.
    fn refresh(&self) -> MutexGuard<'_, LoadedConfig> {
        let mut loaded = self.loaded.lock();
        if loaded.looked.elapsed() >= self.poll_interval {
            let versions = self.files.versions();
            if versions != loaded.versions {
                match self.files.load() {
                    Ok(settings) => {
                        loaded.settings = settings;
                        callboard_message::log::info!(certificate = %self.files.certificate.display(), "read the changed certificate");
                    }
                    Err(error) => {
                        callboard_message::log::error!(%error, "failed to read the changed certificate: the previous one stays in use")
                    }
                }
                // A broken version is reported once.
                loaded.versions = versions;
            }
            loaded.looked = Instant::now();
        }
        loaded
    }
}

impl ClientAuthorities for ReloadingServerConfig {
    fn current_verifier(&self) -> Option<Arc<dyn ClientCertVerifier>> {
        self.refresh().settings.client_verifier.clone()
    }
}
