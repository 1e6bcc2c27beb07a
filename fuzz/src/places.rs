//! Key files, names of this machine, and places to connect to.

use callboard_rpc::{AllowedHosts, AllowedOrigins, Egress, KEYS_IN_FILE_MAX, KeyStore, Reach};
use url::{Host, Url};

pub fn keys(bytes: &[u8]) {
    match KeyStore::from_text("keys.toml", bytes) {
        Ok(store) => {
            assert!(store.list().len() <= KEYS_IN_FILE_MAX);
            assert!(store.list().iter().all(|key| !key.name.is_empty()));
        }
        // Where, not what: somebody may have put a key into it.
        Err(error) => assert!(error.to_string().len() < 120),
    }
}

/// What passes for a name of this machine leads to this machine, to a browser too.
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
    if let Ok(hosts) = AllowedHosts::default().with(text) {
        assert!(
            hosts.allows(text) || !text.contains(':'),
            "{text:?} doesn't allow itself"
        );
        assert!(!hosts.allows("evil.example") || text.starts_with("evil.example"));
    }
}

/// What may be requested is no address of this machine or network, read twice or once.
pub fn url(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let egress = Egress::public();
    let Ok(url) = egress.read(text) else { return };
    let again = egress
        .read(url.as_str())
        .expect("what may be requested may be again");
    assert_eq!(again, url);
    match url.host().expect("a host") {
        Host::Ipv4(ip) => assert_eq!(Reach::of(ip.into()), Reach::Public),
        Host::Ipv6(ip) => assert_eq!(Reach::of(ip.into()), Reach::Public),
        Host::Domain(name) => assert_ne!(
            name.trim_end_matches('.').rsplit('.').next(),
            Some("localhost")
        ),
    }
    assert!(
        url.username().is_empty() && url.password().is_none() && url.scheme().starts_with("http")
    );
}
