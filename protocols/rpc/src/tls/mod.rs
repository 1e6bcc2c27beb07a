//! TLS of clients and listeners by rustls, versions 1.2 and 1.3, on `ring`.

mod client;
mod files;
#[cfg(feature = "serve")]
mod server;

#[cfg(feature = "client")]
pub(crate) use client::find_tls_error;
pub use client::{CertificateFault, ClientTls};
pub use files::{TLS_FILE_BYTES_MAX, TlsFileError};
#[cfg(feature = "serve")]
pub(crate) use server::ReloadingServerConfig;
#[cfg(feature = "serve")]
pub use server::{TLS_FILE_POLL_INTERVAL, TLS_SESSIONS_MAX, TlsFiles};
