use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::{HttpResponse, web};
use callboard_message::{Principal, PrincipalKind};
use callboard_rpc::serve::tls::ListenerTls;
use callboard_rpc::serve::{ListenOptions, serve};
use callboard_rpc::{
    AccessControl, ClaimNames, CredentialError, ISSUER_DOCUMENT_BYTES_MAX, ISSUER_KEYS_MAX,
    IssuerKeyTimes, IssuerRegistry, JwsAlgorithm, KeySource, PresentedCredential, TOKEN_BYTES_MAX,
    TlsFiles, TokenIssuer, TokenVerifier, VERIFIED_TOKENS_MAX,
};
use serde_json::{Value, json};

use crate::certificates::{Authority, LOCAL};
use crate::issuer::{SigningKey, TestIssuer, bad_tokens};

pub const AUDIENCE: &str = "https://agents.example/mcp";
pub const LATER: Duration = Duration::from_secs(3_600);

/// Times with which each unknown key is fetched.
fn eager() -> IssuerKeyTimes {
    IssuerKeyTimes {
        fetch_interval: Duration::ZERO,
        ..IssuerKeyTimes::default()
    }
}

pub fn settings(issuer: &TestIssuer) -> TokenIssuer {
    TokenIssuer {
        name: "corp".to_owned(),
        issuer: issuer.url.clone(),
        audiences: vec!["other".to_owned(), AUDIENCE.to_owned()],
        keys: Some(KeySource::Metadata(issuer.url.clone())),
        introspection: None,
        networks: Vec::new(),
        ca: None,
        algorithms: JwsAlgorithm::DEFAULT.to_vec(),
        scopes_required: vec!["callboard".to_owned()],
        claims: ClaimNames::default(),
    }
}

pub fn access_with(issuers: Vec<TokenIssuer>, registry: &IssuerRegistry) -> AccessControl {
    let tokens = TokenVerifier::new(issuers, None, registry);
    AccessControl::with_verifiers(vec![Box::new(Arc::new(tokens))])
}

fn access(issuer: &TestIssuer) -> AccessControl {
    access_with(vec![settings(issuer)], &IssuerRegistry::with_times(eager()))
}

pub async fn ask(access: &AccessControl, token: &str) -> Result<Principal, CredentialError> {
    ask_from(access, token, Ipv4Addr::LOCALHOST).await
}

/// Authenticates a request of an address.
pub async fn ask_from(
    access: &AccessControl,
    token: &str,
    peer: Ipv4Addr,
) -> Result<Principal, CredentialError> {
    let authorization = format!("Bearer {token}");
    let shown = PresentedCredential {
        peer: Some(IpAddr::V4(peer)),
        local: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        authorization: Some(authorization.as_bytes()),
        certificate: None,
        is_forwarded: false,
    };
    access.prepare(&shown).await;
    access.authenticate(&shown)
}

pub fn alice() -> Principal {
    Principal {
        id: "corp.alice".to_owned(),
        kind: PrincipalKind::Token,
        scopes: vec!["callboard".to_owned(), "other".to_owned()],
        purpose: None,
    }
}

/// Goal: a valid token of each algorithm that is allowed by default is accepted, and one of another
/// algorithm only where it is allowed. Method: a key and a token of each, with both lists; the keys
/// by metadata, by URL, and from a file.
/// Rows: H-37.
#[tokio::test]
async fn valid_tokens_of_each_algorithm() {
    let folder = tempfile::tempdir().unwrap();
    for algorithm in JwsAlgorithm::ALL {
        let key = SigningKey::new("k1", algorithm.name());
        let issuer = TestIssuer::with_keys(&[&key]).await;
        let token = key.token(&issuer.claims(AUDIENCE));
        let file = folder.path().join(algorithm.name());
        std::fs::write(&file, json!({ "keys": [key.jwk()] }).to_string()).unwrap();
        let url = format!("{}/jwks", issuer.url).parse().unwrap();
        for keys in [
            KeySource::Metadata(issuer.url.clone()),
            KeySource::Url(url),
            KeySource::File(file),
        ] {
            let by_default = TokenIssuer {
                keys: Some(keys),
                ..settings(&issuer)
            };
            let all = TokenIssuer {
                algorithms: JwsAlgorithm::ALL.to_vec(),
                ..by_default.clone()
            };
            let only_others: Vec<_> = JwsAlgorithm::ALL
                .into_iter()
                .filter(|other| *other != algorithm)
                .collect();
            let others = TokenIssuer {
                algorithms: only_others,
                ..by_default.clone()
            };
            let is_default = JwsAlgorithm::DEFAULT.contains(&algorithm);
            for (settings, is_valid) in [(by_default, is_default), (all, true), (others, false)] {
                let access = access_with(vec![settings], &IssuerRegistry::default());
                let expected = is_valid.then(alice).ok_or(CredentialError::Wrong);
                assert_eq!(ask(&access, &token).await, expected, "{algorithm:?}");
            }
        }
    }
}

/// Goal: an issuer with a certificate of a private authority is reached only by those who trust it, and
/// a renewed file of authorities counts at the next fetch. Method: keys behind TLS; without `ca`, with a
/// file that is missing, of another authority, and then of the right one.
#[tokio::test]
async fn keys_behind_a_private_authority() {
    let folder = tempfile::tempdir().unwrap();
    let (own, other) = (Authority::new("own"), Authority::new("other"));
    let issued = own.issue(&LOCAL, folder.path(), "server");
    let key = SigningKey::new("k1", "EdDSA");
    let document = json!({ "keys": [key.jwk()] }).to_string();
    let files = TlsFiles {
        certificate: issued.certificate,
        key: issued.key,
        client_ca: None,
    };
    let listen = ListenOptions {
        tls: Some(ListenerTls::open(files).unwrap()),
        ..ListenOptions::default()
    };
    let bound = serve(
        TcpListener::bind("127.0.0.1:0").unwrap(),
        &listen,
        move |config| {
            let document = document.clone();
            let answer = move || std::future::ready(HttpResponse::Ok().body(document.clone()));
            config.route("/jwks", web::get().to(answer));
        },
    )
    .unwrap();
    let server = bound.server.handle();
    tokio::spawn(bound.server);
    let issuer = TestIssuer::start().await;
    let token = key.token(&issuer.claims(AUDIENCE));
    let url = format!("https://localhost:{}/jwks", bound.address.port());
    let with = |ca: Option<PathBuf>| {
        let settings = TokenIssuer {
            keys: Some(KeySource::Url(url.parse().unwrap())),
            ca,
            ..settings(&issuer)
        };
        access_with(vec![settings], &IssuerRegistry::with_times(eager()))
    };
    let refused = Err(CredentialError::Unavailable);
    assert_eq!(ask(&with(None), &token).await, refused);
    let trusting = with(Some(folder.path().join("ca.pem")));
    assert_eq!(ask(&trusting, &token).await, refused);
    other.write(folder.path(), "ca");
    assert_eq!(ask(&trusting, &token).await, refused);
    own.write(folder.path(), "ca");
    assert_eq!(ask(&trusting, &token).await, Ok(alice()));
    server.stop(true).await;
}

/// Goal: no bad token is accepted, and none of them makes a good one count less. Method: the table,
/// with keys of three algorithms; then the good token.
#[tokio::test]
async fn bad_tokens_are_refused() {
    for (algorithm, other) in [("EdDSA", "ES256"), ("ES256", "RS256"), ("RS256", "EdDSA")] {
        let (key, other) = (
            SigningKey::new("k1", algorithm),
            SigningKey::new("k1", other),
        );
        let issuer = TestIssuer::with_keys(&[&key]).await;
        let access = access(&issuer);
        for (what, token) in bad_tokens(&issuer, AUDIENCE, &key, &other) {
            let expected = match what {
                "too long" => CredentialError::Malformed,
                _ => CredentialError::Wrong,
            };
            assert_eq!(
                ask(&access, &token).await,
                Err(expected),
                "{algorithm}: {what}"
            );
        }
        let good = key.token(&issuer.claims(AUDIENCE));
        assert_eq!(ask(&access, &good).await, Ok(alice()), "{algorithm}");
        assert_eq!(issuer.requests("/evil"), 0);
        let mut claims = issuer.claims(AUDIENCE);
        for scope in [json!("other"), json!(""), json!("callboard2"), Value::Null] {
            claims["scope"] = scope;
            if claims["scope"].is_null() {
                claims.as_object_mut().unwrap().remove("scope");
            }
            let lacking = key.token(&claims);
            let expected = Err(CredentialError::InsufficientScope);
            assert_eq!(ask(&access, &lacking).await, expected, "{claims}");
        }
    }
    assert_eq!(CredentialError::InsufficientScope.http_status(), 403);
}

/// Goal: a token counts to its limit of length. Method: the limit, and one more byte.
#[tokio::test]
async fn token_length() {
    let key = SigningKey::new("k1", "EdDSA");
    let issuer = TestIssuer::with_keys(&[&key]).await;
    let access = access(&issuer);
    let padded = |bytes: usize| {
        let mut claims = issuer.claims(AUDIENCE);
        claims["pad"] = "".into();
        let empty = key.token(&claims).len();
        // Each three bytes of claims are four of the token; the head takes up the rest.
        let mut head = json!({ "alg": "EdDSA", "kid": "k1" });
        for pad in 0.. {
            claims["pad"] = "x".repeat((bytes - empty) / 4 * 3 - 60 + pad).into();
            for extra in 0..4 {
                head["x"] = "x".repeat(extra).into();
                let token = key.sign(&head, &claims.to_string());
                if token.len() == bytes {
                    return token;
                }
            }
        }
        unreachable!()
    };
    let (longest, longer) = (padded(TOKEN_BYTES_MAX), padded(TOKEN_BYTES_MAX + 1));
    assert_eq!(ask(&access, &longest).await, Ok(alice()));
    assert_eq!(ask(&access, &longer).await, Err(CredentialError::Wrong));
}

/// Goal: keys are fetched when they are needed: once for all tokens of a key, again for a new key's
/// token, and a removed key's token counts no more, also if it was accepted before. Method: rotation
/// of three keys, with the requests counted.
#[tokio::test]
async fn keys_rotate() {
    let keys = ["k1", "k2", "k3"].map(|id| SigningKey::new(id, "EdDSA"));
    let [first, second, third] = &keys;
    let issuer = TestIssuer::with_keys(&[first]).await;
    let access = access(&issuer);
    let tokens = keys
        .each_ref()
        .map(|key| key.token(&issuer.claims(AUDIENCE)));
    assert_eq!(issuer.requests("/jwks"), 0, "nothing is fetched in vain");
    for _ in 0..3 {
        assert_eq!(ask(&access, &tokens[0]).await, Ok(alice()));
    }
    assert_eq!(issuer.requests("/jwks"), 1);
    assert_eq!(ask(&access, &tokens[1]).await, Err(CredentialError::Wrong));
    issuer.publish(&[first, second]);
    assert_eq!(ask(&access, &tokens[1]).await, Ok(alice()));
    assert_eq!(ask(&access, &tokens[0]).await, Ok(alice()));
    issuer.publish(&[second, third]);
    assert_eq!(ask(&access, &tokens[2]).await, Ok(alice()));
    assert_eq!(ask(&access, &tokens[0]).await, Err(CredentialError::Wrong));
    assert_eq!(ask(&access, &tokens[1]).await, Ok(alice()));
}

/// Goal: unknown key ids cause at most one fetch an interval. Method: many tokens with ids of their
/// own, at once and one after the other; two listeners share the keys.
#[tokio::test]
async fn unknown_keys_are_fetched_rarely() {
    let (key, other) = (
        SigningKey::new("k1", "EdDSA"),
        SigningKey::new("k2", "EdDSA"),
    );
    let issuer = TestIssuer::with_keys(&[&key]).await;
    let registry = IssuerRegistry::with_times(IssuerKeyTimes {
        fetch_interval: LATER,
        ..IssuerKeyTimes::default()
    });
    let both = [0, 1].map(|_| access_with(vec![settings(&issuer)], &registry));
    let unknown = |id: u32| {
        let head = json!({ "alg": "EdDSA", "kid": id.to_string() });
        other.sign(&head, &issuer.claims(AUDIENCE).to_string())
    };
    let guesses: Vec<_> = (0..50).map(unknown).collect();
    let at_once = guesses.iter().map(|token| ask(&both[0], token));
    for refused in futures::future::join_all(at_once).await {
        assert_eq!(refused, Err(CredentialError::Wrong));
    }
    for token in &guesses {
        assert_eq!(ask(&both[1], token).await, Err(CredentialError::Wrong));
    }
    let good = key.token(&issuer.claims(AUDIENCE));
    for access in &both {
        assert_eq!(ask(access, &good).await, Ok(alice()));
    }
    assert_eq!(issuer.requests("/jwks"), 1);
}

/// Goal: keys that can't be fetched again count until their age, and then no token does, with an
/// error that says that it isn't the client's. Method: an issuer that fails; an age that is over at
/// once, and one that isn't.
#[tokio::test]
async fn old_keys_do_not_count() {
    let key = SigningKey::new("k1", "EdDSA");
    for (age_max, expected) in [
        (LATER, Ok(alice())),
        (Duration::from_nanos(1), Err(CredentialError::Unavailable)),
    ] {
        let issuer = TestIssuer::with_keys(&[&key]).await;
        let registry = IssuerRegistry::with_times(IssuerKeyTimes {
            refresh_after: Duration::ZERO,
            age_max,
            ..eager()
        });
        let access = access_with(vec![settings(&issuer)], &registry);
        let token = key.token(&issuer.claims(AUDIENCE));
        drop(ask(&access, &token).await);
        issuer.set("/jwks", 500, "");
        assert_eq!(ask(&access, &token).await, expected);
    }
    assert_eq!(CredentialError::Unavailable.http_status(), 503);
}

/// Goal: a request waits for keys within a bound. Method: an issuer that never answers.
#[tokio::test]
async fn waiting_is_bounded() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let key = SigningKey::new("k1", "EdDSA");
    let mut issuer = TestIssuer::with_keys(&[&key]).await;
    issuer.url = format!("http://{}", silent.local_addr().unwrap());
    let registry = IssuerRegistry::with_times(IssuerKeyTimes {
        wait_max: Duration::from_millis(50),
        ..IssuerKeyTimes::default()
    });
    let access = access_with(vec![settings(&issuer)], &registry);
    let begun = Instant::now();
    let token = key.token(&issuer.claims(AUDIENCE));
    assert_eq!(
        ask(&access, &token).await,
        Err(CredentialError::Unavailable)
    );
    assert!(begun.elapsed() < Duration::from_secs(5));
}

/// Goal: an issuer's documents count only within the limits and if they are its own; redirects aren't
/// followed, and addresses that aren't allowed aren't asked. Method: rows of documents, each with
/// whether its keys count.
#[tokio::test]
async fn documents_of_issuers() {
    let key = SigningKey::new("k1", "EdDSA");
    let many = |count: usize| {
        let mut keys = vec![json!({ "kty": "oct" }); count - 1];
        keys.push(key.jwk());
        json!({ "keys": keys }).to_string()
    };
    let long = |bytes: usize| {
        let set = json!({ "keys": [key.jwk()] }).to_string();
        let pad = " ".repeat(bytes - set.len());
        format!("{set}{pad}")
    };
    for (status, set, counts) in [
        (200, many(1), true),
        (200, many(ISSUER_KEYS_MAX), true),
        (200, many(ISSUER_KEYS_MAX + 1), false),
        (200, long(ISSUER_DOCUMENT_BYTES_MAX), true),
        (200, long(ISSUER_DOCUMENT_BYTES_MAX + 1), false),
        (200, String::new(), false),
        (200, "<html>".to_owned(), false),
        (200, many(1).replacen('{', "{\"keys\":[],", 1), false),
        (302, many(1), false),
        (500, many(1), false),
    ] {
        let issuer = TestIssuer::start().await;
        issuer.set("/jwks", status, &set);
        let token = key.token(&issuer.claims(AUDIENCE));
        let expected = counts.then(alice).ok_or(CredentialError::Unavailable);
        let found = ask(&access(&issuer), &token).await;
        assert_eq!(found, expected, "{status} {:.60}", set);
        assert_eq!(issuer.requests("/elsewhere"), 0);
    }
    const METADATA: &str = "/.well-known/oauth-authorization-server";
    const OPENID: &str = "/.well-known/openid-configuration";
    for (path, issuer_said, jwks_uri, counts) in [
        (METADATA, None, None, true),
        (OPENID, None, None, true),
        (METADATA, Some("https://other.example"), None, false),
        (METADATA, Some("SELF/"), None, false),
        (METADATA, None, Some("http://10.0.0.1/jwks"), false),
        (METADATA, None, Some("http://169.254.169.254/jwks"), false),
        (METADATA, None, Some("https://u:p@a.example/jwks"), false),
        (METADATA, None, Some("file:///etc/passwd"), false),
        (METADATA, None, Some("/jwks"), false),
        (METADATA, None, Some(""), false),
    ] {
        let issuer = TestIssuer::with_keys(&[&key]).await;
        let own = format!("{}/jwks", issuer.url);
        let said = issuer_said.map_or(issuer.url.clone(), |said| said.replace("SELF", &issuer.url));
        let metadata = json!({ "issuer": said, "jwks_uri": jwks_uri.unwrap_or(&own) });
        issuer.set(METADATA, 404, "");
        issuer.set(path, 200, &metadata.to_string());
        let token = key.token(&issuer.claims(AUDIENCE));
        let expected = counts.then(alice).ok_or(CredentialError::Unavailable);
        let found = ask(&access(&issuer), &token).await;
        assert_eq!(found, expected, "{path} {issuer_said:?} {jwks_uri:?}");
    }
}

/// Goal: an issuer's keys verify only its own tokens. Method: two issuers, each with the key of the
/// other as well, and tokens that name either.
#[tokio::test]
async fn issuers_are_apart() {
    let (one, two) = (
        SigningKey::new("k1", "EdDSA"),
        SigningKey::new("k2", "ES256"),
    );
    let first = TestIssuer::with_keys(&[&one]).await;
    let second = TestIssuer::with_keys(&[&two]).await;
    let other = TokenIssuer {
        name: "partner".to_owned(),
        scopes_required: Vec::new(),
        ..settings(&second)
    };
    let registry = IssuerRegistry::with_times(eager());
    let access = access_with(vec![settings(&first), other], &registry);
    let of = |key: &SigningKey, issuer: &TestIssuer| key.token(&issuer.claims(AUDIENCE));
    assert_eq!(ask(&access, &of(&one, &first)).await, Ok(alice()));
    let partner = ask(&access, &of(&two, &second)).await.unwrap();
    assert_eq!(partner.id, "partner.alice");
    for token in [of(&one, &second), of(&two, &first)] {
        assert_eq!(ask(&access, &token).await, Err(CredentialError::Wrong));
    }
    let told = access.token_resource().unwrap();
    assert_eq!(told.issuers, [first.url.clone(), second.url.clone()]);
    assert_eq!(told.scopes, ["callboard"]);
}

/// Goal: more tokens than are remembered are accepted as well, and none is printed. Method: one more
/// than the limit, by one key; the printed verifier.
#[tokio::test]
async fn remembered_tokens_are_bounded() {
    let key = SigningKey::new("k1", "EdDSA");
    let issuer = TestIssuer::with_keys(&[&key]).await;
    let registry = IssuerRegistry::with_times(eager());
    let tokens = Arc::new(TokenVerifier::new(vec![settings(&issuer)], None, &registry));
    let access = AccessControl::with_verifiers(vec![Box::new(tokens.clone())]);
    let mut claims = issuer.claims(AUDIENCE);
    for number in 0..=VERIFIED_TOKENS_MAX {
        claims["jti"] = number.into();
        assert_eq!(ask(&access, &key.token(&claims)).await, Ok(alice()));
        if [VERIFIED_TOKENS_MAX - 1, VERIFIED_TOKENS_MAX].contains(&number) {
            let expected = if number < VERIFIED_TOKENS_MAX {
                number + 1
            } else {
                1
            };
            assert_eq!(tokens.remembered_tokens(), expected);
        }
    }
    let shown = format!("{tokens:?} {access:?}");
    assert!(!shown.contains(&key.token(&claims)[..20]), "{shown}");
}
