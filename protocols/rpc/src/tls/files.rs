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
    /// Other users than the owner can read the folder of private keys. Remedy: `chmod 700`.
    #[error("other users may read the folder of private keys {path}: run chmod 700", path = path.display())]
    Readable {
        /// Path of the folder.
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
///
/// # Errors
/// Fails if one can't be used.
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

/// Reads the certificates of a bundle of authorities. Those that can't be used, such as old ones in that of
/// an operating system, are left out with a warning.
///
/// # Errors
/// Fails if none can be used.
pub(super) fn read_bundle(path: &Path) -> Result<Arc<RootCertStore>, TlsFileError> {
    let mut roots = RootCertStore::empty();
    let (mut unusable, mut why) = (0, String::new());
    for certificate in read_certificates(path)? {
        if let Err(error) = roots.add(certificate) {
            unusable += 1;
            why = error.to_string();
        }
    }
    if roots.is_empty() {
        return Err(TlsFileError::Unusable {
            path: path.into(),
            why,
        });
    }
    if unusable > 0 {
        callboard_message::log::warn!(file = %path.display(), unusable, why, "left certificates of authorities out that can't be used");
    }
    Ok(Arc::new(roots))
}

/// Creates a folder that only its owner can read, unless it is there.
///
/// # Errors
/// Fails if it can't be created, or others can read it.
#[cfg(any(test, feature = "acme"))]
pub(super) fn create_private_folder(folder: &Path) -> Result<(), TlsFileError> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    let created = builder
        .create(folder)
        .and_then(|()| std::fs::metadata(folder));
    let about = created.map_err(|source| TlsFileError::Io {
        path: folder.into(),
        source,
    })?;
    #[cfg(unix)]
    if std::os::unix::fs::PermissionsExt::mode(&about.permissions()) & 0o077 != 0 {
        return Err(TlsFileError::Readable {
            path: folder.into(),
        });
    }
    #[cfg(not(unix))]
    let _ = about;
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: private keys are kept in no folder that others can read. Method: a new folder, and the same
    /// with other modes.
    #[cfg(unix)]
    #[test]
    fn private_folders() {
        use std::fs::{Permissions, set_permissions};
        use std::os::unix::fs::PermissionsExt;

        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("a/b");
        create_private_folder(&folder).unwrap();
        let mode = folder.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        create_private_folder(&folder).unwrap();
        for mode in [0o755, 0o710, 0o701, 0o720] {
            set_permissions(&folder, Permissions::from_mode(mode)).unwrap();
            let refused = create_private_folder(&folder).unwrap_err();
            assert!(matches!(refused, TlsFileError::Readable { .. }), "{mode:o}");
        }
    }

    /// Goal: a bundle of authorities is used without those of its certificates that can't be; authorities of
    /// clients aren't. Method: one certificate, with and without a section that is none; then that section
    /// alone.
    #[test]
    fn unusable_authorities_are_left_out() {
        let params = rcgen::CertificateParams::default();
        let key = rcgen::KeyPair::generate().unwrap();
        let good = params.self_signed(&key).unwrap().pem();
        let bad = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        for (text, usable) in [(good.clone(), 1), (good + bad, 1), (bad.to_owned(), 0)] {
            std::fs::write(&file, &text).unwrap();
            let read = read_bundle(&file).map_or(0, |roots| roots.len());
            assert_eq!(read, usable, "{text}");
            assert_eq!(read_authorities(&file).is_ok(), !text.contains(bad));
        }
    }
}
