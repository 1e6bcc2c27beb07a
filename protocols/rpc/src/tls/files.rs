//! Certificates and private keys in PEM files.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use secrecy::zeroize::Zeroizing;

/// Maximum size of a file with certificates or a private key, in bytes. A larger one fails with
/// [`TlsFileError::TooLarge`]. The bundle of all public authorities has a quarter of it.
pub const TLS_FILE_BYTES_MAX: usize = 1024 * 1024;

/// Failure to use a file with certificates or a private key. Messages contain nothing of a key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsFileError {
    /// The file can't be read.
    #[error("failed to read {path}: {source}", path = path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// Other users than the owner can write the private key. Remedy: `chmod 600`.
    #[error("other users may write the private key {path}: run chmod 600", path = path.display())]
    Writable {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file has more than [`TLS_FILE_BYTES_MAX`] bytes.
    #[error(
        "{path} has more than {TLS_FILE_BYTES_MAX} bytes: leave out certificates that aren't needed",
        path = path.display()
    )]
    TooLarge {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file isn't valid PEM.
    #[error("{path} is damaged: a section of it isn't valid PEM", path = path.display())]
    Damaged {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file holds no certificate.
    #[error("{path} holds no certificate in PEM (BEGIN CERTIFICATE)", path = path.display())]
    NoCertificate {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file holds no private key that can be read.
    #[error(
        "{path} holds no private key in PEM without a password (BEGIN PRIVATE KEY)",
        path = path.display()
    )]
    NoKey {
        /// Path of the file.
        path: PathBuf,
    },
    /// A certificate of the file can't be used.
    #[error("{path} can't be used: {why}", path = path.display())]
    Unusable {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        why: String,
    },
    /// The private key doesn't belong to the certificate.
    #[error(
        "the private key {key} doesn't belong to the first certificate of {certificate}",
        key = key.display(),
        certificate = certificate.display()
    )]
    OtherKey {
        /// Path of the certificates.
        certificate: PathBuf,
        /// Path of the private key.
        key: PathBuf,
    },
}

/// Reads a certificate and those of its issuers.
pub(super) fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let pem = read_bounded(path, false)?;
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<_, _>>()
        .map_err(|_| TlsFileError::Damaged { path: path.into() })?;
    match certificates.is_empty() {
        true => Err(TlsFileError::NoCertificate { path: path.into() }),
        false => Ok(certificates),
    }
}

/// Reads the certificates of authorities.
pub(super) fn read_authorities(path: &Path) -> Result<Arc<RootCertStore>, TlsFileError> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(path)? {
        roots
            .add(certificate)
            .map_err(|error| TlsFileError::Unusable {
                path: path.into(),
                why: error.to_string(),
            })?;
    }
    Ok(Arc::new(roots))
}

/// Reads the first private key: PKCS#8, PKCS#1 or SEC 1.
pub(super) fn read_private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsFileError> {
    let pem = Zeroizing::new(read_bounded(path, true)?);
    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| match error {
        PemError::NoItemsFound => TlsFileError::NoKey { path: path.into() },
        // The parser's own message may quote the file.
        _ => TlsFileError::Damaged { path: path.into() },
    })
}

/// Returns the error of a certificate and key that rustls refuses together.
pub(super) fn pair_error(certificate: &Path, key: &Path, error: &rustls::Error) -> TlsFileError {
    match error {
        rustls::Error::InconsistentKeys(_) => TlsFileError::OtherKey {
            certificate: certificate.into(),
            key: key.into(),
        },
        error => TlsFileError::Unusable {
            path: certificate.into(),
            why: error.to_string(),
        },
    }
}

fn read_bounded(path: &Path, is_private: bool) -> Result<Vec<u8>, TlsFileError> {
    let failed = |source| TlsFileError::Io {
        path: path.into(),
        source,
    };
    let file = File::open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    if !about.is_file() {
        return Err(failed(io::Error::other("not a file")));
    }
    #[cfg(unix)]
    if is_private && std::os::unix::fs::PermissionsExt::mode(&about.permissions()) & 0o022 != 0 {
        return Err(TlsFileError::Writable { path: path.into() });
    }
    #[cfg(not(unix))]
    let _ = is_private;
    let mut bytes = Vec::new();
    file.take(TLS_FILE_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    match bytes.len() > TLS_FILE_BYTES_MAX {
        true => Err(TlsFileError::TooLarge { path: path.into() }),
        false => Ok(bytes),
    }
}
