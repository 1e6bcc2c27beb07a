use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use actix_web::{HttpResponse, web};
use callboard_message::Principal;
use callboard_rpc::serve::tls::ListenerTls;
use callboard_rpc::serve::{CredentialWatch, ListenOptions, serve};
use callboard_rpc::{
    ADDRESS_INTROSPECTIONS_MAX, ADDRESS_REFUSED_TOKENS_MAX, AccessControl, ClaimNames,
    CredentialError, INTROSPECTING_ISSUERS_MAX, INTROSPECTION_BYTES_MAX, IntrospectionLimits,
    IssuerRegistry, KEY_PREFIX, NEW_INTROSPECTIONS_MAX, PresentedCredential, TOKEN_BYTES_MAX,
    TlsFiles, TokenIntrospection, TokenIssuer,
};
use futures::future::join_all;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::certificates::{Authority, LOCAL};
use crate::introspection_server::{CLIENT, IntrospectionServer};
use crate::issuer::{SigningKey, TestIssuer, bad_tokens, now_s, part};
use crate::tokens::{AUDIENCE, LATER, access_with, alice, ask, ask_from, settings};

/// Maximum time for something that has to happen.
const SOON: Duration = Duration::from_secs(30);
/// Time between two looks for it.
const PAUSE: Duration = Duration::from_millis(5);
const WRONG: Result<Principal, CredentialError> = Err(CredentialError::Wrong);
const UNAVAILABLE: Result<Principal, CredentialError> = Err(CredentialError::Unavailable);

/// An issuer whose tokens are introspected.
struct Place {
    issuer: TestIssuer,
    endpoint: IntrospectionServer,
}

impl Place {
    async fn start() -> Self {
        Self {
            issuer: TestIssuer::start().await,
            endpoint: IntrospectionServer::start().await,
        }
    }

    fn claims(&self) -> Value {
        self.issuer.claims(AUDIENCE)
    }

    fn activate(&self, token: &str) {
        self.endpoint.activate(token, &self.claims());
    }

    fn settings(&self) -> TokenIssuer {
        TokenIssuer {
            keys: None,
            introspection: Some(introspection(&self.endpoint.url)),
            ..settings(&self.issuer)
        }
    }

    fn access(&self) -> AccessControl {
        access_with(vec![self.settings()], &IssuerRegistry::default())
    }

    fn access_within(&self, limits: IntrospectionLimits) -> AccessControl {
        let settings = TokenIssuer {
            introspection: Some(TokenIntrospection {
                limits,
                ..introspection(&self.endpoint.url)
            }),
            ..self.settings()
        };
        access_with(vec![settings], &IssuerRegistry::default())
    }
}

fn introspection(url: &str) -> TokenIntrospection {
    let (client_id, secret) = CLIENT;
    TokenIntrospection {
        endpoint: url.parse().unwrap(),
        client_id: client_id.to_owned(),
        secret: secret.into(),
        limits: IntrospectionLimits::default(),
    }
}

/// Asks until the answer is the expected one.
async fn ask_until(
    access: &AccessControl,
    token: &str,
    expected: Result<Principal, CredentialError>,
) {
    let asked = async {
        while ask(access, token).await != expected {
            sleep(PAUSE).await;
        }
    };
    let answered = timeout(SOON, asked).await;
    assert!(answered.is_ok(), "never {expected:?}");
}

/// Goal: what an endpoint tells of a token is judged as the claims of a signed token, and an answer that
/// can't be used isn't the client's fault. Method: rows of changed claims, and of answers.
/// Rows: H-37.
#[tokio::test]
async fn answers_are_judged_as_claims() {
    let place = Place::start().await;
    let access = place.access();
    let lacking = Err(CredentialError::InsufficientScope);
    let now = now_s();
    for (number, (change, expected)) in [
        (json!({}), Ok(alice())),
        (json!({ "iss": null }), WRONG),
        (json!({ "iss": "https://other.example" }), WRONG),
        (json!({ "iss": format!("{}/", place.issuer.url) }), WRONG),
        (json!({ "aud": "https://other.example" }), WRONG),
        (json!({ "aud": ["other", "more"] }), Ok(alice())),
        (json!({ "exp": now - 3_600 }), WRONG),
        (json!({ "exp": "9999999999" }), WRONG),
        (json!({ "exp": now - 10 }), Ok(alice())),
        (json!({ "nbf": now + 3_600 }), WRONG),
        (json!({ "sub": "a b" }), WRONG),
        (json!({ "scope": "other" }), lacking.clone()),
        (json!({ "token_type": "DPoP" }), WRONG),
        (json!({ "token_type": "bearer" }), Ok(alice())),
        (json!({ "token_type": ["Bearer"] }), WRONG),
        (json!({ "cnf": { "x5t#S256": "abc" } }), WRONG),
        (json!({ "active": false }), WRONG),
        (json!({ "active": "true" }), UNAVAILABLE),
        (json!({ "active": null }), UNAVAILABLE),
    ]
    .into_iter()
    .enumerate()
    {
        let mut told = place.claims();
        told["active"] = true.into();
        let change = change.as_object().unwrap().clone();
        told.as_object_mut().unwrap().extend(change.clone());
        let token = format!("token-{number}");
        place.endpoint.set(&token, 200, &told.to_string());
        assert_eq!(ask(&access, &token).await, expected, "{change:?}");
    }
    let without = ["iss", "aud", "exp", "sub", "scope"];
    let expected = [Ok(alice()), WRONG, WRONG, WRONG, lacking];
    for (name, expected) in without.into_iter().zip(expected) {
        let mut claims = place.claims();
        claims.as_object_mut().unwrap().remove(name);
        place.endpoint.activate(name, &claims);
        assert_eq!(ask(&access, name).await, expected, "without {name}");
    }
    assert_eq!(ask(&access, "unknown").await, WRONG);
    place
        .endpoint
        .set("unsupported", 400, r#"{"error":"unsupported_token_type"}"#);
    assert_eq!(ask(&access, "unsupported").await, WRONG);
    let settings = TokenIssuer {
        claims: ClaimNames {
            principal: "client_id".to_owned(),
            ..ClaimNames::default()
        },
        ..place.settings()
    };
    let by_client = access_with(vec![settings], &IssuerRegistry::default());
    let mut claims = place.claims();
    claims["client_id"] = "robot".into();
    place.endpoint.activate("client", &claims);
    place.activate("nobody");
    assert_eq!(ask(&by_client, "client").await.unwrap().id, "corp.robot");
    assert_eq!(ask(&by_client, "nobody").await, WRONG);
}

/// Goal: an answer that isn't one is answered 503, and isn't remembered. Method: rows of status and body,
/// the size at its limit and one more; then a right answer.
#[tokio::test]
async fn answers_that_cannot_be_used() {
    let place = Place::start().await;
    let access = place.access();
    let mut told = place.claims();
    told["active"] = true.into();
    let told = told.to_string();
    let padded = |bytes: usize| told.clone() + &" ".repeat(bytes - told.len());
    for (status, body, is_used) in [
        (200, padded(INTROSPECTION_BYTES_MAX), true),
        (200, padded(INTROSPECTION_BYTES_MAX + 1), false),
        (200, String::new(), false),
        (200, "<html>".to_owned(), false),
        (200, "[]".to_owned(), false),
        (200, told.replacen('{', "{\"active\":false,", 1), false),
        (307, told.clone(), false),
        (400, told.clone(), false),
        (400, r#"{"error":"invalid_client"}"#.to_owned(), false),
        (400, "<html>".to_owned(), false),
        (401, told.clone(), false),
        (429, told.clone(), false),
        (500, told.clone(), false),
    ] {
        let token = format!("{status}-{}", body.len());
        place.endpoint.set(&token, status, &body);
        let expected = if is_used { Ok(alice()) } else { UNAVAILABLE };
        assert_eq!(ask(&access, &token).await, expected, "{status} {body:.40}");
        assert_eq!(place.endpoint.asked_about(&token), 1, "{status}");
        place.activate(&token);
        assert_eq!(ask(&access, &token).await, Ok(alice()), "{status}");
    }
}

/// Goal: the endpoint is asked with the client's secret, which is never printed, and only if the
/// certificate's authority is trusted. Method: a wrong secret; a private authority, without it, with a missing file, and with it.
#[tokio::test]
async fn endpoints_and_their_clients() {
    let place = Place::start().await;
    place.activate("token");
    let with = |introspection: TokenIntrospection| {
        let settings = TokenIssuer {
            introspection: Some(introspection),
            ..place.settings()
        };
        access_with(vec![settings], &IssuerRegistry::default())
    };
    let right = introspection(&place.endpoint.url);
    let shown = format!("{:?} {right:?}", place.settings());
    assert!(!shown.contains(CLIENT.1), "{shown}");
    assert_eq!(ask(&with(right.clone()), "token").await, Ok(alice()));
    let wrong = TokenIntrospection {
        secret: "other".into(),
        ..right.clone()
    };
    assert_eq!(ask(&with(wrong), "token").await, UNAVAILABLE);

    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("own");
    let issued = authority.issue(&LOCAL, folder.path(), "server");
    let files = TlsFiles {
        certificate: issued.certificate,
        key: issued.key,
        client_ca: None,
    };
    let listen = ListenOptions {
        tls: Some(ListenerTls::open(files).unwrap()),
        ..ListenOptions::default()
    };
    let mut told = place.claims();
    told["active"] = true.into();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let bound = serve(listener, &listen, move |config| {
        let told = told.to_string();
        let answer = move || std::future::ready(HttpResponse::Ok().body(told.clone()));
        config.route("/introspect", web::post().to(answer));
    })
    .unwrap();
    let server = bound.server.handle();
    tokio::spawn(bound.server);
    let url = format!("https://localhost:{}/introspect", bound.address.port());
    let with = |ca: Option<PathBuf>| {
        let settings = TokenIssuer {
            introspection: Some(introspection(&url)),
            ca,
            ..place.settings()
        };
        access_with(vec![settings], &IssuerRegistry::default())
    };
    assert_eq!(ask(&with(None), "token").await, UNAVAILABLE);
    let trusting = with(Some(folder.path().join("ca.pem")));
    assert_eq!(ask(&trusting, "token").await, UNAVAILABLE);
    authority.write(folder.path(), "ca");
    assert_eq!(ask(&trusting, "token").await, Ok(alice()));
    server.stop(true).await;
}

/// Goal: a token is introspected once, whatever its answer, also for requests that arrive at the same
/// time. Method: several requests one after the other, and several that wait, with the requests counted.
#[tokio::test]
async fn answers_are_remembered() {
    let place = Place::start().await;
    let access = place.access_within(IntrospectionLimits {
        refused_age_max: LATER,
        ..IntrospectionLimits::default()
    });
    place.activate("one");
    for _ in 0..5 {
        assert_eq!(ask(&access, "one").await, Ok(alice()));
        assert_eq!(ask(&access, "none").await, WRONG);
    }
    assert_eq!(place.endpoint.asked_about("one"), 1);
    assert_eq!(place.endpoint.asked_about("none"), 1);
    place.activate("many");
    place.endpoint.hold(true);
    let asked = join_all((0..20).map(|_| ask(&access, "many")));
    let (answers, ()) = tokio::join!(asked, async {
        place.endpoint.open_requests(1).await;
        place.endpoint.hold(false);
    });
    assert!(answers.iter().all(|answer| *answer == Ok(alice())));
    assert_eq!(place.endpoint.asked_about("many"), 1);
}

/// Goal: a revoked token is noticed once its answer is too old, one that has expired by then too, and one that
/// becomes active after a refusal. Method: short ages; an expiry before a long age.
#[tokio::test]
async fn answers_become_too_old() {
    let place = Place::start().await;
    let short = Duration::from_millis(20);
    let access = place.access_within(IntrospectionLimits {
        age_max: short,
        refused_age_max: short,
        ..IntrospectionLimits::default()
    });
    place.activate("revoked");
    ask_until(&access, "revoked", Ok(alice())).await;
    place.endpoint.revoke("revoked");
    ask_until(&access, "revoked", WRONG).await;
    place.activate("revoked");
    ask_until(&access, "revoked", Ok(alice())).await;

    let access = place.access_within(IntrospectionLimits {
        age_max: LATER,
        refused_age_max: short,
        ..IntrospectionLimits::default()
    });
    let mut claims = place.claims();
    claims["exp"] = (now_s() + 2).into();
    place.endpoint.activate("brief", &claims);
    assert_eq!(ask(&access, "brief").await, Ok(alice()));
    place.endpoint.revoke("brief");
    ask_until(&access, "brief", WRONG).await;
}

/// Goal: while an endpoint is slow or fails, its tokens are answered 503 within its timeout, remembered ones
/// too once they are too old, and 401 once they have expired. Method: a short age and timeout; answers held
/// back, then failures.
#[tokio::test]
async fn endpoints_that_do_not_answer() {
    let place = Place::start().await;
    let access = place.access_within(IntrospectionLimits {
        age_max: Duration::from_millis(20),
        timeout: Duration::from_millis(100),
        ..IntrospectionLimits::default()
    });
    place.activate("token");
    let mut claims = place.claims();
    claims["exp"] = (now_s() - 55).into();
    place.endpoint.activate("expiring", &claims);
    let patient = place.access_within(IntrospectionLimits {
        age_max: Duration::from_millis(20),
        ..IntrospectionLimits::default()
    });
    ask_until(&patient, "expiring", Ok(alice())).await;
    place.endpoint.hold(true);
    let slow = timeout(SOON, ask(&access, "token")).await;
    assert_eq!(slow.unwrap(), UNAVAILABLE);
    place.endpoint.hold(false);
    ask_until(&access, "token", Ok(alice())).await;
    for token in ["token", "expiring"] {
        place.endpoint.set(token, 500, "");
    }
    ask_until(&access, "token", UNAVAILABLE).await;
    ask_until(&patient, "expiring", WRONG).await;
    assert_eq!(CredentialError::Unavailable.http_status(), 503);
}

/// Goal: introspections at once are bounded, for an address and in all, and a token that was active before
/// has a place among them. Method: answers held back; as many unknown tokens as the limits and one more,
/// then one whose answer is too old.
#[tokio::test]
async fn floods_are_bounded_at_once() {
    let place = Place::start().await;
    let access = place.access_within(IntrospectionLimits {
        age_max: Duration::ZERO,
        timeout: LATER,
        ..IntrospectionLimits::default()
    });
    place.activate("known");
    // Its answer is too old at once.
    assert_eq!(ask(&access, "known").await, UNAVAILABLE);
    place.endpoint.hold(true);
    let peer = |number: usize| {
        let address = number / ADDRESS_INTROSPECTIONS_MAX;
        Ipv4Addr::from_bits(0x0a00_0001 + u32::try_from(address).unwrap())
    };
    let begin = |number: usize, peer: Ipv4Addr| {
        let access = access.clone();
        tokio::spawn(async move { ask_from(&access, &format!("guess-{number}"), peer).await })
    };
    let mut guesses = Vec::new();
    for number in 0..NEW_INTROSPECTIONS_MAX {
        guesses.push(begin(number, peer(number)));
        place.endpoint.open_requests(number + 1).await;
        if number + 1 == ADDRESS_INTROSPECTIONS_MAX {
            let more = timeout(SOON, ask_from(&access, "more", peer(0))).await;
            assert_eq!(more.unwrap(), UNAVAILABLE);
        }
    }
    let more = timeout(SOON, ask_from(&access, "more", Ipv4Addr::LOCALHOST)).await;
    assert_eq!(more.unwrap(), UNAVAILABLE);
    assert_eq!(place.endpoint.asked_about("more"), 0);
    let before = access.clone();
    let known = tokio::spawn(async move { ask_from(&before, "known", peer(0)).await });
    place
        .endpoint
        .open_requests(NEW_INTROSPECTIONS_MAX + 1)
        .await;
    place.endpoint.hold(false);
    for guess in guesses {
        assert_eq!(guess.await.unwrap(), WRONG);
    }
    assert_eq!(known.await.unwrap(), UNAVAILABLE);
    assert_eq!(place.endpoint.asked_about("known"), 2);
}

/// Goal: an address that sends wrong tokens isn't let through to the endpoint any more, which others aren't
/// aware of, nor its own active tokens. Method: the limit of wrong tokens, and one more.
#[tokio::test]
async fn floods_are_bounded_in_a_window() {
    let place = Place::start().await;
    let access = place.access();
    let (peer, other) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    place.activate("one");
    place.activate("two");
    assert_eq!(ask_from(&access, "one", peer).await, Ok(alice()));
    for number in 0..ADDRESS_REFUSED_TOKENS_MAX {
        let guess = format!("guess-{number}");
        assert_eq!(ask_from(&access, &guess, peer).await, WRONG);
    }
    let before = place.endpoint.requests();
    assert_eq!(ask_from(&access, "more", peer).await, UNAVAILABLE);
    assert_eq!(ask_from(&access, "two", peer).await, UNAVAILABLE);
    assert_eq!(place.endpoint.requests(), before);
    assert_eq!(ask_from(&access, "one", peer).await, Ok(alice()));
    assert_eq!(ask_from(&access, "two", other).await, Ok(alice()));
}

/// Goal: several issuers are asked in order, up to the limit, until one knows the token; a signed token goes
/// only to the issuer that it names. Method: an issuer more than the limit; tokens that the first, the last and
/// the one beyond know, with endpoints that fail and that tell of tokens of others.
#[tokio::test]
async fn issuers_are_asked_in_order() {
    let mut places = Vec::new();
    for _ in 0..=INTROSPECTING_ISSUERS_MAX {
        places.push(Place::start().await);
    }
    let named = places
        .iter()
        .enumerate()
        .map(|(number, place)| TokenIssuer {
            name: format!("n{number}"),
            ..place.settings()
        });
    let access = access_with(named.collect(), &IssuerRegistry::default());
    let last = INTROSPECTING_ISSUERS_MAX - 1;
    for (known_at, asked) in [(0, 1), (last, last + 1), (last + 1, last + 1)] {
        let token = format!("at-{known_at}");
        places[known_at].activate(&token);
        let found = ask(&access, &token).await;
        let expected = (known_at <= last).then(|| format!("n{known_at}.alice"));
        assert_eq!(found.ok().map(|principal| principal.id), expected);
        for (number, place) in places.iter().enumerate() {
            let count = usize::from(number < asked);
            assert_eq!(
                place.endpoint.asked_about(&token),
                count,
                "{token} {number}"
            );
        }
    }
    places[0].endpoint.set("failing", 500, "");
    assert_eq!(ask(&access, "failing").await, UNAVAILABLE);
    places[1].activate("failing");
    assert_eq!(ask(&access, "failing").await.unwrap().id, "n1.alice");
    // The first tells of a token of the second.
    places[0].endpoint.activate("foreign", &places[1].claims());
    places[1].activate("foreign");
    assert_eq!(ask(&access, "foreign").await.unwrap().id, "n1.alice");

    let key = SigningKey::new("k1", "EdDSA");
    let signed = key.token(&places[last].claims());
    places[last].activate(&signed);
    let found = ask(&access, &signed).await.unwrap();
    assert_eq!(found.id, format!("n{last}.alice"));
    let asked = places
        .iter()
        .map(|place| place.endpoint.asked_about(&signed));
    assert_eq!(asked.sum::<usize>(), 1);
}

/// Goal: with keys and an endpoint, signed tokens are verified by keys alone, others are introspected, and what
/// can't be a token of the issuer is sent nowhere. Method: the table of bad tokens; opaque tokens of
/// several forms; an API key; the limit of length and one more.
#[tokio::test]
async fn keys_and_an_endpoint() {
    let (key, other) = (
        SigningKey::new("k1", "EdDSA"),
        SigningKey::new("k1", "ES256"),
    );
    let place = Place::start().await;
    place.issuer.publish(&[&key]);
    let both = TokenIssuer {
        introspection: Some(introspection(&place.endpoint.url)),
        ..settings(&place.issuer)
    };
    let access = access_with(vec![both], &IssuerRegistry::default());
    let good = key.token(&place.claims());
    assert_eq!(ask(&access, &good).await, Ok(alice()));
    let opaque = [
        "no issuer",
        "padded base64",
        "two parts",
        "four parts",
        "only dots",
        "opaque",
    ];
    for (what, token) in bad_tokens(&place.issuer, AUDIENCE, &key, &other) {
        place.activate(&token);
        if opaque.contains(&what) || token.len() > TOKEN_BYTES_MAX {
            continue;
        }
        assert_eq!(ask(&access, &token).await, WRONG, "{what}");
    }
    assert_eq!(place.endpoint.requests(), 0);
    let encoded = part(b"opaque");
    for token in [
        "0123456789abcdef".to_owned(),
        format!("v4.local.{encoded}"),
        format!("{encoded}.{encoded}.{encoded}.{encoded}.{encoded}"),
        "x".repeat(TOKEN_BYTES_MAX),
    ] {
        place.activate(&token);
        assert_eq!(ask(&access, &token).await, Ok(alice()), "{token:.40}");
        assert_eq!(place.endpoint.asked_about(&token), 1);
    }
    for token in [
        "x".repeat(TOKEN_BYTES_MAX + 1),
        format!("{KEY_PREFIX}{encoded}"),
    ] {
        place.activate(&token);
        assert_eq!(ask(&access, &token).await, WRONG, "{token:.40}");
        assert_eq!(place.endpoint.asked_about(&token), 0);
    }
}

/// Goal: a stream ends once its introspected token is revoked, and not while the endpoint fails. Method: a
/// watch of a token with a short age; failures, then the revocation.
#[tokio::test]
async fn streams_notice_a_revoked_token() {
    let place = Place::start().await;
    let access = place.access_within(IntrospectionLimits {
        age_max: Duration::from_millis(20),
        ..IntrospectionLimits::default()
    });
    place.activate("token");
    ask_until(&access, "token", Ok(alice())).await;
    let shown = PresentedCredential {
        peer: Some(Ipv4Addr::LOCALHOST.into()),
        local: None,
        authorization: Some(b"Bearer token"),
        certificate: None,
        is_forwarded: false,
    };
    let mut watch = CredentialWatch::of_credential(&shown, &access);
    place.endpoint.set("token", 500, "");
    let before = place.endpoint.requests();
    let failing = async {
        while place.endpoint.requests() < before + 3 {
            sleep(PAUSE).await;
        }
    };
    tokio::select! {
        () = watch.wait_revoked() => panic!("a failure isn't a revocation"),
        failed = timeout(SOON, failing) => failed.unwrap(),
    }
    place.endpoint.revoke("token");
    timeout(SOON, watch.wait_revoked()).await.unwrap();
}
