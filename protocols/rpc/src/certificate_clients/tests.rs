use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tempfile::TempDir;
use tokio::time::timeout;

use super::*;
use crate::certificates::{Authority, LOCAL};
use crate::serve::{CREDENTIAL_CHECK_INTERVAL, CredentialWatch};
use crate::{AccessControl, PresentedCredential, ReloadingServerConfig, TlsFiles};

/// Year at whose beginning the certificates expire.
const EXPIRY_YEAR: i32 = 2_090;

/// A listener's authority for client certificates, whose file is read again at each verification.
struct TestListener {
    folder: TempDir,
    authority: Authority,
    config: Arc<ReloadingServerConfig>,
}

impl TestListener {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let authority = Authority::new("clients");
        let server = authority.issue(&LOCAL, folder.path(), "server");
        let files = TlsFiles {
            certificate: server.certificate,
            key: server.key,
            client_ca: Some(authority.write(folder.path(), "clients")),
        };
        let config = ReloadingServerConfig::open(files, Duration::ZERO).unwrap();
        Self {
            folder,
            authority,
            config: Arc::new(config),
        }
    }

    /// Returns a certificate with these names, as a client shows it.
    fn certificate(&self, names: &[&str]) -> ClientCertificate {
        let folder = self.folder.path();
        let issued = self
            .authority
            .issue_until(EXPIRY_YEAR, names, folder, "client");
        let pem = fs::read(issued.certificate).unwrap();
        let own = CertificateDer::from_pem_slice(&pem).unwrap();
        ClientCertificate::new(vec![own], self.config.clone())
    }
}

/// Returns a time some days after the beginning of a year.
fn in_year(year: u64) -> UnixTime {
    const SECONDS_PER_DAY: u64 = 24 * 60 * 60;
    UnixTime::since_unix_epoch(Duration::from_secs(
        ((year - 1_970) * 366 + 2) * SECONDS_PER_DAY,
    ))
}

fn client(name: &str, principal: &str, scopes: &[&str]) -> CertificateClient {
    CertificateClient {
        name: name.to_owned(),
        principal: principal.to_owned(),
        scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
    }
}

fn two_clients() -> CertificateClients {
    CertificateClients::new([
        client("robot.example", "robot", &["mail.watch"]),
        client("second.example", "second", &[]),
    ])
}

/// Goal: a listed name is its principal with its scopes, the first of the list counts, and no other
/// name counts. Method: certificates with names in rows.
#[test]
fn names_of_certificates() {
    let (listener, clients) = (TestListener::new(), two_clients());
    for (names, expected) in [
        (&["robot.example"][..], Some("robot")),
        (&["second.example"], Some("second")),
        (&["second.example", "robot.example"], Some("robot")),
        (&["other.example", "second.example"], Some("second")),
        (&["other.example"], None),
        (&["*.example"], None),
        (&["sub.robot.example"], None),
        (&["127.0.0.1"], None),
    ] {
        let found = clients.principal_at(&listener.certificate(names), in_year(2_050));
        let id = found.as_ref().map(|principal| &*principal.id);
        assert_eq!(id, expected, "{names:?}");
    }
    let robot = listener.certificate(&["robot.example"]);
    let expected = Principal {
        id: "robot".to_owned(),
        kind: PrincipalKind::Certificate,
        scopes: vec!["mail.watch".to_owned()],
        purpose: None,
    };
    let found = clients.principal_at(&robot, in_year(2_050));
    assert_eq!(found, Some(expected));
}

/// Goal: a certificate counts while it is valid, whatever was known of it before. Method: one
/// certificate before its expiry, after it and before it again; then with another authority in the
/// listener's file.
#[test]
fn certificates_are_verified_again() {
    let (listener, clients) = (TestListener::new(), two_clients());
    let robot = listener.certificate(&["robot.example"]);
    let is_known = |year: u64| clients.principal_at(&robot, in_year(year)).is_some();
    assert!(is_known(2_050) && !is_known(2_150) && is_known(2_050));
    Authority::new("another authority").write(listener.folder.path(), "clients");
    assert!(!is_known(2_051));
}

/// Goal: names, principals and scopes follow their rules. Method: rows, with the limits and one
/// beyond.
#[test]
fn rules_for_clients() {
    use CertificateClientError as Error;
    let long = |length: usize| "a".repeat(length);
    let name = "robot.example";
    let scoped = |scope: &str| client(name, "robot", &[scope]);
    let many = |count: usize| CertificateClient {
        scopes: vec!["s".to_owned(); count],
        ..client(name, "robot", &[])
    };
    for (client, expected) in [
        (client(name, "robot", &["tenant:a", "mail.watch"]), Ok(())),
        (client("", "robot", &[]), Err(Error::Name)),
        (client("*.example", "robot", &[]), Err(Error::Name)),
        (client("127.0.0.1", "robot", &[]), Err(Error::Name)),
        (client("a robot", "robot", &[]), Err(Error::Name)),
        (client(name, "", &[]), Err(Error::Principal)),
        (client(name, "a robot", &[]), Err(Error::Principal)),
        (client(name, &long(KEY_NAME_BYTES_MAX), &[]), Ok(())),
        (
            client(name, &long(KEY_NAME_BYTES_MAX + 1), &[]),
            Err(Error::Principal),
        ),
        (scoped(""), Err(Error::Scope)),
        (scoped("a b"), Err(Error::Scope)),
        (scoped("patient:PT1"), Err(Error::PatientScope)),
        (scoped(&long(KEY_SCOPE_BYTES_MAX)), Ok(())),
        (scoped(&long(KEY_SCOPE_BYTES_MAX + 1)), Err(Error::Scope)),
        (many(KEY_SCOPES_MAX), Ok(())),
        (many(KEY_SCOPES_MAX + 1), Err(Error::Scope)),
    ] {
        assert_eq!(client.validate(), expected, "{client:?}");
    }
}

/// Verifier of [`two_clients`] whose time is set.
struct AtTime(CertificateClients, Arc<AtomicU64>);

impl BearerVerifier for AtTime {
    fn verify(&self, _: &[u8]) -> Option<Result<Principal, CredentialError>> {
        None
    }

    fn verify_certificate(&self, certificate: &ClientCertificate) -> Option<Principal> {
        let now = Duration::from_secs(self.1.load(Ordering::Relaxed));
        self.0
            .principal_at(certificate, UnixTime::since_unix_epoch(now))
    }

    fn is_for_certificates(&self) -> bool {
        true
    }
}

/// Goal: a stream that was opened by a certificate ends when that expires, and not before. Method: a
/// watch in paused time, and a verifier whose time passes the expiry.
#[tokio::test(start_paused = true)]
async fn streams_end_with_their_certificate() {
    let listener = TestListener::new();
    let robot = listener.certificate(&["robot.example"]);
    let now = Arc::new(AtomicU64::new(in_year(2_050).as_secs()));
    let verifier = Box::new(AtTime(two_clients(), now.clone()));
    let access = AccessControl::with_verifiers(vec![verifier]);
    let shown = PresentedCredential {
        peer: None,
        local: None,
        authorization: None,
        certificate: Some(&robot),
        is_forwarded: false,
    };
    assert_eq!(access.authenticate(&shown).unwrap().id, "robot");
    let mut watch = CredentialWatch::of_credential(&shown, &access);
    let standing = timeout(CREDENTIAL_CHECK_INTERVAL * 10, watch.wait_revoked()).await;
    assert!(standing.is_err());
    now.store(in_year(2_150).as_secs(), Ordering::Relaxed);
    let ended = timeout(CREDENTIAL_CHECK_INTERVAL * 2, watch.wait_revoked()).await;
    assert!(ended.is_ok());
    assert_eq!(
        access.authenticate(&shown),
        Err(CredentialError::UnknownCertificate)
    );
}
