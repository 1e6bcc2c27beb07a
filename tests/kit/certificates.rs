//! Certificates for tests: authorities, and certificates that they issue, as PEM files.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, IsCa, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};

/// Names of a server on this machine.
pub const LOCAL: [&str; 2] = ["localhost", "127.0.0.1"];

/// An authority with its own certificate.
pub struct Authority {
    certificate: Certificate,
    key: KeyPair,
}

/// Paths of a certificate and its private key.
#[derive(Clone)]
pub struct Issued {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self { certificate, key }
    }

    /// Writes the authority's certificate to `name.pem` in a folder.
    pub fn write(&self, folder: &Path, name: &str) -> PathBuf {
        let path = folder.join(format!("{name}.pem"));
        fs::write(&path, self.certificate.pem()).unwrap();
        path
    }

    /// Issues a certificate for these host names, and writes it with its key to files in a folder.
    pub fn issue(&self, names: &[&str], folder: &Path, name: &str) -> Issued {
        self.issue_until(2_100, names, folder, name)
    }

    /// Issues a certificate that is valid until the beginning of a year.
    pub fn issue_until(&self, year: i32, names: &[&str], folder: &Path, name: &str) -> Issued {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_after = date_time_ymd(year, 1, 1);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let issued = params
            .signed_by(&key, &self.certificate, &self.key)
            .unwrap();
        let paths = Issued {
            certificate: folder.join(format!("{name}.pem")),
            key: folder.join(format!("{name}-key.pem")),
        };
        // Replaced rather than overwritten, as programs that renew certificates do.
        for (path, text) in [
            (&paths.certificate, issued.pem()),
            (&paths.key, key.serialize_pem()),
        ] {
            let new = path.with_extension("new");
            fs::write(&new, text).unwrap();
            fs::rename(&new, path).unwrap();
        }
        paths
    }
}
