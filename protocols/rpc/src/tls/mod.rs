//! TLS of clients and listeners by rustls, versions 1.2 and 1.3, on `ring`.

#[cfg(feature = "acme")]
mod acme;
mod client;
mod client_certificate;
mod files;
#[cfg(feature = "serve")]
mod server;

#[cfg(feature = "acme")]
pub use acme::{ACME_DIRECTORY_DEFAULT, AcmeRegistry, AcmeSettings};
#[cfg(feature = "acme")]
pub(crate) use acme::{ACME_TLS_1, AcmeCertificate};
#[cfg(feature = "client")]
pub(crate) use client::find_tls_error;
pub use client::{CertificateFault, ClientTls};
pub use client_certificate::ClientCertificate;
pub use files::{TLS_FILE_BYTES_MAX, TlsFileError};
#[cfg(feature = "serve")]
pub(crate) use server::ReloadingServerConfig;
#[cfg(feature = "serve")]
pub use server::{TLS_FILE_POLL_INTERVAL, TLS_SESSIONS_MAX, TlsFiles};
