//! Key files, credentials, host names of this machine, and URLs for outgoing connections.

use std::sync::Arc;

use callboard_message::Principal;
use callboard_rpc::{
    AUTHORIZATION_BYTES_MAX, AccessControl, AddressScope, AllowedHosts, AllowedOrigins,
    BearerVerifier, CredentialError, EgressPolicy, KEYS_IN_FILE_MAX, KeyStore, PresentedCredential,
};
use url::{Host, Url};

pub fn keys(bytes: &[u8]) {
    match KeyStore::from_text("keys.toml", bytes) {
        Ok(store) => {
            assert!(store.list().len() <= KEYS_IN_FILE_MAX);
            assert!(store.list().iter().all(|key| !key.name.is_empty()));
        }
        // The error names the position, not the content, which may be a key.
        Err(error) => assert!(error.to_string().len() < 120),
    }
}

/// Verifier of one token, which checks that nothing else than a token reaches it.
struct OneToken;

impl BearerVerifier for OneToken {
    fn verify(&self, token: &[u8]) -> Option<Result<Principal, CredentialError>> {
        assert!(!token.is_empty() && token.len() <= AUTHORIZATION_BYTES_MAX);
        let is_graphic = token.iter().all(u8::is_ascii_graphic);
        assert!(is_graphic && !token.contains(&b','), "not one token");
        let is_known = token == b"cb_known";
        Some(if is_known {
            Ok(Principal::agent("known"))
        } else {
            Err(CredentialError::Wrong)
        })
    }
}

/// Checks that a header authenticates only with the scheme `Bearer` and the one known token.
pub fn authorization(bytes: &[u8]) {
    let access = AccessControl::Bearer(Arc::new([Box::new(OneToken)]));
    let presented = PresentedCredential {
        peer: None,
        local: None,
        authorization: Some(bytes),
        certificate: None,
        is_forwarded: false,
    };
    if access.authenticate(&presented).is_ok() {
        let text = std::str::from_utf8(bytes)
            .expect("ASCII")
            .to_ascii_lowercase();
        let words: Vec<_> = text.split_ascii_whitespace().collect();
        assert_eq!(words, ["bearer", "cb_known"]);
    }
    let open = AccessControl::default();
    assert!(
        open.authenticate(&presented).is_err(),
        "a credential is ignored"
    );
}

/// Checks that host names and origins accepted as this machine's are loopback addresses, also for a
/// browser.
pub fn host(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let is_here = |url: &Url| match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.to_canonical().is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    if AllowedHosts::default().allows(text) {
        let url = Url::parse(&format!("http://{text}")).expect("a host");
        assert!(
            is_here(&url) && url.username().is_empty() && url.path() == "/",
            "{text:?} leads elsewhere"
        );
    }
    if AllowedOrigins::default().allows(text) {
        assert!(
            is_here(&Url::parse(text).expect("an origin")),
            "{text:?} is elsewhere"
        );
    }
    if let Ok(hosts) = AllowedHosts::default().with_host(text) {
        assert!(
            hosts.allows(text) || !text.contains(':'),
            "{text:?} doesn't allow itself"
        );
        let is_evil = text.to_ascii_lowercase().starts_with("evil.example");
        assert!(!hosts.allows("evil.example") || is_evil);
    }
}

/// Checks that an accepted URL isn't an internal address, also after it is parsed again.
pub fn url(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let egress = EgressPolicy::public_internet();
    let Ok(url) = egress.parse_url(text) else {
        return;
    };
    let again = egress
        .parse_url(url.as_str())
        .expect("what may be requested may be again");
    assert_eq!(again, url);
    match url.host().expect("a host") {
        Host::Ipv4(ip) => assert_eq!(AddressScope::of(ip.into()), AddressScope::Public),
        Host::Ipv6(ip) => assert_eq!(AddressScope::of(ip.into()), AddressScope::Public),
        Host::Domain(name) => assert_ne!(
            name.trim_end_matches('.').rsplit('.').next(),
            Some("localhost")
        ),
    }
    assert!(
        url.username().is_empty() && url.password().is_none() && url.scheme().starts_with("http")
    );
}
