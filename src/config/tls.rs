//! TLS in topologies: certificates of listeners, and authorities and certificates of clients.

use std::path::{Path, PathBuf};

use callboard_rpc::{ClientTls, TlsFiles};
use serde::Deserialize;

use super::problem::ProblemCollector;
use super::tree::ConfigTree;

/// TLS of a listener (`[listener.tls]`). Paths are relative to the topology file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListenerTlsDeclaration {
    /// PEM file with the certificate, followed by those of its issuers.
    pub certificate: PathBuf,
    /// PEM file with the private key of the certificate, which only its owner may write.
    pub key: PathBuf,
    /// PEM file with the authorities of client certificates. If set, every client must show a
    /// certificate of one of them.
    pub client_ca: Option<PathBuf>,
}

impl ListenerTlsDeclaration {
    /// Returns the files.
    pub(crate) fn files(&self) -> TlsFiles {
        TlsFiles {
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            client_ca: self.client_ca.clone(),
        }
    }

    /// Resolves relative paths against `folder`.
    pub(super) fn resolve_paths(&mut self, folder: &Path) {
        let client_ca = self.client_ca.iter_mut();
        for path in [&mut self.certificate, &mut self.key]
            .into_iter()
            .chain(client_ca)
        {
            // A missing path was reported before.
            if !path.as_os_str().is_empty() {
                *path = folder.join(&*path);
            }
        }
    }

    /// Reports files that this machine lacks, or that can't be used. `tree` is the listener's table.
    pub(super) fn check_machine(&self, tree: &ConfigTree, problems: &mut ProblemCollector<'_>) {
        let is_whole = [&self.certificate, &self.key]
            .iter()
            .all(|path| !path.as_os_str().is_empty());
        if is_whole && let Err(error) = self.files().check() {
            problems.error(tree.span_of("tls"), format!("`tls`: {error}"));
        }
    }
}

/// Reports a file of the key `ca` that this machine lacks, or that can't be used.
pub(super) fn check_ca_file(
    ca: Option<&Path>,
    tree: &ConfigTree,
    problems: &mut ProblemCollector<'_>,
) {
    if let Some(Err(error)) = ca.map(|file| ClientTls::default().with_ca(file)) {
        problems.error(tree.span_of("ca"), format!("`ca`: {error}"));
    }
}

/// Returns the TLS settings of a client that trusts the authorities in the file `ca`, or the public
/// ones without it.
///
/// # Errors
/// Returns the reason why the file can't be used.
pub(crate) fn client_tls(ca: Option<&Path>) -> Result<ClientTls, String> {
    match ca {
        None => Ok(ClientTls::default()),
        Some(file) => ClientTls::default()
            .with_ca(file)
            .map_err(|error| error.to_string()),
    }
}
