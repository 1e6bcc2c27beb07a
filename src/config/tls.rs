//! TLS in topologies: certificates of listeners, and authorities and certificates of clients.

use std::path::{Path, PathBuf};

use callboard_rpc::{CertificateClient, ClientTls, TlsFiles};
use schemars::JsonSchema;
use serde::Deserialize;

use super::address::WebUrl;
use super::problem::ProblemCollector;
use super::tree::ConfigTree;

/// TLS of a listener (`[listener.tls]`). Paths are relative to the topology file.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListenerTlsDeclaration {
    /// PEM file with the certificate, followed by those of its issuers. Empty with `acme`.
    #[serde(default)]
    pub certificate: PathBuf,
    /// PEM file with the private key of the certificate, which only its owner may write. Empty with
    /// `acme`.
    #[serde(default)]
    pub key: PathBuf,
    /// Certificate of an ACME authority, in place of the files.
    pub acme: Option<AcmeDeclaration>,
    /// PEM file with the authorities of client certificates. If set, every client must show a
    /// certificate of one of them.
    pub client_ca: Option<PathBuf>,
    /// Clients that are authenticated by their certificates. If set, every request needs one of
    /// these, or another credential of the listener.
    #[serde(default)]
    pub client: Vec<CertificateClientDeclaration>,
}

/// Client that is known by a name of its certificate (`[[listener.tls.client]]`).
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CertificateClientDeclaration {
    /// DNS name of the certificate.
    pub name: String,
    /// Id of its principal. Default: the name.
    pub principal: Option<String>,
    /// Scopes of its principal.
    #[serde(default)]
    pub scopes: Vec<String>,
}

/// Maximum number of clients that a listener knows by their certificates. A topology with more is
/// refused.
pub(super) const CERTIFICATE_CLIENTS_MAX: usize = 256;

impl CertificateClientDeclaration {
    /// Returns the client as the verifier of certificates takes it.
    pub(crate) fn to_client(&self) -> CertificateClient {
        CertificateClient {
            name: self.name.clone(),
            principal: self.principal.as_ref().unwrap_or(&self.name).clone(),
            scopes: self.scopes.clone(),
        }
    }
}

/// Certificate that an ACME authority issues (`[listener.tls.acme]`). Paths are relative to the topology
/// file.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AcmeDeclaration {
    /// Host names of the certificate, at most [`ACME_DOMAINS_MAX`].
    pub domains: Vec<String>,
    /// Contacts of the account, such as `mailto:ops@example.com`.
    #[serde(default)]
    pub contact: Vec<String>,
    /// URL of the authority's directory. Default: Let's Encrypt's.
    pub directory: Option<WebUrl>,
    /// PEM file with the authorities of the directory's own certificate. Default: the public ones.
    pub ca: Option<PathBuf>,
    /// Folder for account key and certificate. Default: `acme`.
    #[serde(default = "default_acme_folder")]
    pub folder: PathBuf,
}

/// Maximum number of domains of an ACME certificate. A topology with more is refused. Let's Encrypt has
/// the same limit.
pub const ACME_DOMAINS_MAX: usize = 100;

fn default_acme_folder() -> PathBuf {
    "acme".into()
}

impl AcmeDeclaration {
    /// Returns the settings of the certificate.
    #[cfg(feature = "acme")]
    pub(crate) fn settings(&self) -> Result<callboard_rpc::AcmeSettings, String> {
        let directory = match &self.directory {
            Some(url) => url.url().clone(),
            None => callboard_rpc::ACME_DIRECTORY_DEFAULT
                .parse()
                .map_err(|_| "the default directory isn't a URL".to_owned())?,
        };
        Ok(callboard_rpc::AcmeSettings {
            domains: self.domains.clone(),
            contacts: self.contact.clone(),
            directory,
            ca: self.ca.clone(),
            folder: self.folder.clone(),
        })
    }
}

impl ListenerTlsDeclaration {
    /// Returns what is wrong, one sentence for each mistake.
    pub(super) fn errors(&self) -> Vec<String> {
        [self.certificate_errors(), self.client_errors()].concat()
    }

    fn client_errors(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if !self.client.is_empty() && self.client_ca.is_none() {
            wrong.push(
                "`client` needs `client_ca`: without it no client shows a certificate".to_owned(),
            );
        }
        if self.client.len() > CERTIFICATE_CLIENTS_MAX {
            wrong.push(format!(
                "`client` has {} entries, and {CERTIFICATE_CLIENTS_MAX} are allowed: give further clients keys",
                self.client.len()
            ));
        }
        for (at, client) in self.client.iter().enumerate() {
            let name = &client.name;
            let mut earlier = self.client.iter().take(at);
            if earlier.any(|other| other.name == *name) {
                wrong.push(format!("the client {name:?} is there twice: leave one out"));
            }
            if let Err(error) = client.to_client().validate() {
                wrong.push(format!("the client {name:?}: {error}"));
            }
        }
        wrong
    }

    fn certificate_errors(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let [certificate, key] =
            [&self.certificate, &self.key].map(|path| !path.as_os_str().is_empty());
        let Some(acme) = &self.acme else {
            if !certificate || !key {
                wrong.push("write `certificate` and `key`, or `acme`".to_owned());
            }
            return wrong;
        };
        if certificate || key {
            wrong.push("write either `certificate` and `key`, or `acme`".to_owned());
        }
        if !cfg!(feature = "acme") {
            wrong
                .push("this callboard knows no `acme`: build it with `--features acme`".to_owned());
        }
        if self.client_ca.is_some() {
            wrong.push(
                "with `client_ca` the authority of `acme` can't check the domains: leave one out"
                    .to_owned(),
            );
        }
        if acme.domains.is_empty() || acme.domains.len() > ACME_DOMAINS_MAX {
            wrong.push(format!(
                "`acme`: `domains` must have 1 to {ACME_DOMAINS_MAX} host names"
            ));
        }
        // As certificates have it: in lower case, in ASCII, without a final dot.
        let is_name = |name: &String| {
            let parsed = url::Host::parse(name);
            parsed.is_ok_and(|host| host == url::Host::Domain(name.clone()))
                && !name.contains('*')
                && !name.ends_with('.')
        };
        if let Some(domain) = acme.domains.iter().find(|domain| !is_name(domain)) {
            wrong.push(format!(
                "`acme`: {domain:?} must be a host name in lower case, in ASCII (xn--…), without a final dot: addresses and wildcards can't be checked over TLS"
            ));
        }
        if let Some(contact) = acme.contact.iter().find(|contact| !contact.contains(':')) {
            wrong.push(format!(
                "`acme`: the contact {contact:?} must be a URL, such as `mailto:{contact}`"
            ));
        }
        wrong
    }

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
        if let Some(acme) = &mut self.acme {
            acme.folder = folder.join(&acme.folder);
            acme.ca = acme.ca.take().map(|file| resolve_ca(&file, folder));
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
        let ca = self.acme.as_ref().and_then(|acme| acme.ca.as_deref());
        if let Err(error) = client_tls(ca) {
            problems.error(tree.span_of("tls"), format!("`tls`: `acme`: {error}"));
        }
    }
}

/// Value of a key `ca` that stands for the authorities of the operating system.
const SYSTEM_AUTHORITIES: &str = "system";
/// File of the operating system's authorities, where none is found and the environment names none.
const SYSTEM_AUTHORITIES_FILE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Resolves the file of a key `ca` against `folder`. `"system"` is the file of the operating system's
/// authorities: that of the environment variable `SSL_CERT_FILE`, or the one of the distribution.
pub(crate) fn resolve_ca(ca: &Path, folder: &Path) -> PathBuf {
    if ca != Path::new(SYSTEM_AUTHORITIES) {
        return folder.join(ca);
    }
    if let Some(named) = std::env::var_os("SSL_CERT_FILE").filter(|named| !named.is_empty()) {
        return named.into();
    }
    let found = openssl_probe::probe().cert_file;
    found.unwrap_or_else(|| SYSTEM_AUTHORITIES_FILE.into())
}

/// Reports a file of the key `ca` that this machine lacks, or that can't be used.
pub(super) fn check_ca_file(
    ca: Option<&Path>,
    tree: &ConfigTree,
    problems: &mut ProblemCollector<'_>,
) {
    if let Err(error) = client_tls(ca) {
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
