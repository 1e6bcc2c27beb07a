//! Certificates of the callers, and certificates that open nothing.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

#[cfg(feature = "grpc")]
use callboard::rpc::ClientTls;
use callboard::rpc::serve::tls::ListenerTls;
use callboard::rpc::{CertificateClient, TlsFiles};
use reqwest::{Certificate, Client, Identity};

use super::site::CALLERS;
use crate::certificates::{Authority, Issued, LOCAL};
use crate::kit::Home;

/// Owner of a certificate that isn't listed.
pub const UNLISTED: &str = "mallory";
/// Holder of alice's certificate who sends a wrong token too.
pub const GUESSER: &str = "guesser";
/// Clients that no handshake accepts: without a certificate, and with one that has alice's name and is of another authority or has
/// expired.
pub const REFUSED: [&str; 3] = ["nobody", "stranger", "expired"];

/// Names of the listeners' certificate, its key and its authority.
const FILES: [&str; 3] = ["server.pem", "server-key.pem", "ca.pem"];

/// Certificates by their owners, in a home's folder.
pub struct CallerCertificates {
    folder: PathBuf,
    /// Authority of the listeners.
    authority: Certificate,
    issued: BTreeMap<&'static str, Issued>,
    /// Clients of the callers.
    clients: BTreeMap<&'static str, Client>,
}

impl CallerCertificates {
    /// Issues the certificates of the listeners, the callers and others.
    pub fn issue(home: &Home) -> Self {
        let folder = home.path("");
        let [authority, foreign] = [(); 2].map(|()| Authority::new("test authority"));
        let ca = authority.write(&folder, "ca");
        authority.issue(&LOCAL, &folder, "server");
        let names = listed().map(|client| client.name);
        let callers = CALLERS.into_iter().map(|(who, _)| who).zip(names);
        let mut issued: BTreeMap<_, _> = callers
            .map(|(who, name)| (who, authority.issue(&[name.as_str()], &folder, who)))
            .collect();
        let alice = ["alice.example"];
        let [_, stranger, expired] = REFUSED;
        issued.insert(GUESSER, issued["alice"].clone());
        issued.insert(
            UNLISTED,
            authority.issue(&["mallory.example"], &folder, UNLISTED),
        );
        issued.insert(stranger, foreign.issue(&alice, &folder, stranger));
        issued.insert(
            expired,
            authority.issue_until(2_001, &alice, &folder, expired),
        );
        let mut certificates = Self {
            folder,
            authority: Certificate::from_pem(&fs::read(ca).unwrap()).unwrap(),
            issued,
            clients: BTreeMap::new(),
        };
        let clients = CALLERS.map(|(who, _)| (who, certificates.new_client(who, None)));
        certificates.clients.extend(clients);
        certificates
    }

    /// Client that shows a certificate. One that isn't a caller's comes from an address of its own, so that no failure before it
    /// delays its answer.
    pub fn client(&self, who: &str) -> Client {
        static NEXT: AtomicU32 = AtomicU32::new(0x7F01_0001);
        match self.clients.get(who) {
            Some(client) => client.clone(),
            None => {
                let from = Ipv4Addr::from(NEXT.fetch_add(1, Relaxed));
                self.new_client(who, Some(from.into()))
            }
        }
    }

    fn new_client(&self, who: &str, from: Option<IpAddr>) -> Client {
        let mut client = Client::builder().no_proxy().local_address(from);
        client = client.add_root_certificate(self.authority.clone());
        if let Some(issued) = self.issued.get(who) {
            let pem = [&issued.certificate, &issued.key].map(|path| fs::read(path).unwrap());
            client = client.identity(Identity::from_pem(&pem.concat()).unwrap());
        }
        client.build().unwrap()
    }

    /// TLS of a client that shows a certificate.
    #[cfg(feature = "grpc")]
    pub fn client_tls(&self, who: &str) -> ClientTls {
        let [_, _, ca] = FILES;
        let tls = ClientTls::default().with_ca(&self.folder.join(ca)).unwrap();
        match self.issued.get(who) {
            Some(issued) => tls
                .with_certificate(&issued.certificate, &issued.key)
                .unwrap(),
            None => tls,
        }
    }

    /// TLS of a server in this process.
    pub fn listener_tls(&self) -> ListenerTls {
        let [certificate, key, ca] = FILES.map(|name| self.folder.join(name));
        let files = TlsFiles {
            certificate,
            key,
            client_ca: Some(ca),
        };
        ListenerTls::open(files).unwrap()
    }
}

/// Clients that the listeners know: the callers, with the principals that they have with tokens.
pub fn listed() -> impl Iterator<Item = CertificateClient> {
    CALLERS.into_iter().map(|(who, scopes)| CertificateClient {
        name: format!("{who}.example"),
        principal: format!("corp.{who}"),
        scopes: scopes.split_whitespace().map(str::to_owned).collect(),
    })
}

/// TLS of a listener in a topology.
pub fn listener_lines() -> String {
    let clients = listed().map(|client| {
        let CertificateClient {
            name,
            principal,
            scopes,
        } = client;
        format!("{{ name = {name:?}, principal = {principal:?}, scopes = {scopes:?} }}")
    });
    let clients: Vec<_> = clients.collect();
    let [certificate, key, ca] = FILES;
    format!(
        "tls = {{ certificate = \"{certificate}\", key = \"{key}\", client_ca = \"{ca}\", client = [{}] }}\n",
        clients.join(", ")
    )
}
