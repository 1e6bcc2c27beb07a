//! Cards: content, audience, caching and signatures.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use callboard_a2a::Dialect;
use callboard_a2a::card::{
    CardSigningKey, CardVerifyError, Jwks, SIGNATURE_HEADER_BYTES_MAX, sign_card, verify_card,
    verify_card_with_jku,
};
use callboard_a2a::wire::{AgentCard, AgentCardSignature, WireType};
use callboard_message::Failure;
use callboard_rpc::{AccessControl, CertificateClients, EgressPolicy};
use callboard_runtime::{Policy, PolicyRequest};
use futures::future::BoxFuture;
use reqwest::{Method, Response};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair, UnparsedPublicKey,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::kit::{Peer, Served, named_keys, serving, soon};
use crate::receiver::Receiver;

const CARD: &str = "/.well-known/agent-card.json";

fn pem(der: &[u8]) -> String {
    format!(
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
        STANDARD.encode(der)
    )
}

fn p256() -> CardSigningKey {
    let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
        .unwrap();
    CardSigningKey::from_pem(&pem(der.as_ref()).into()).unwrap()
}

fn keys(key: &CardSigningKey) -> Jwks {
    Jwks::parse(key.jwks().to_raw().get().as_bytes()).unwrap()
}

async fn get(peer: &Peer, path: &str) -> Response {
    soon(peer.at("").request(Method::GET, path).send())
        .await
        .unwrap()
}

async fn read(response: Response) -> AgentCard {
    let text = soon(response.text()).await.unwrap();
    Dialect::read_card(&RawValue::from_string(text).unwrap()).unwrap()
}

/// Starts a server whose cards don't depend on its port.
async fn somewhere() -> Served {
    Served::with(|options| {
        options.base_url = "https://agents.example/".parse().unwrap();
        options.access = named_keys();
        options.extended_card = true;
    })
    .await
}

/// Goal: clients of 1.0 get the card of 1.0 only; all others one with the members of all versions.
/// Method: snapshots of both.
#[tokio::test]
async fn a_card_is_in_its_readers_words() {
    let served = somewhere().await;
    let peer = served.client();
    let new: Value = soon(get(&peer.with("A2A-Version", "1.0"), CARD).await.json())
        .await
        .unwrap();
    insta::assert_json_snapshot!("card_1_0", new);
    let mut all: Value = soon(get(&peer, CARD).await.json()).await.unwrap();
    for version in ["1.0.1", "1.0"] {
        let same: Value = soon(get(&peer.with("A2A-Version", version), CARD).await.json())
            .await
            .unwrap();
        assert_eq!(same, new, "{version}");
    }
    for version in ["0.3", "0.3.0", "0.1", ""] {
        let same: Value = soon(get(&peer.with("A2A-Version", version), CARD).await.json())
            .await
            .unwrap();
        assert_eq!(same, all, "{version}");
    }
    let old: Value = soon(get(&peer, "/.well-known/agent.json").await.json())
        .await
        .unwrap();
    assert_eq!(old, all);
    // The combined card has the members of 1.0 unchanged, except the schemes, which are written in
    // both formats.
    let (members, of_new) = (all.as_object_mut().unwrap(), new.as_object().unwrap());
    for (name, value) in of_new.iter().filter(|(name, _)| *name != "securitySchemes") {
        assert_eq!(members.remove(name).as_ref(), Some(value), "{name}");
    }
    insta::assert_json_snapshot!("card_of_older_versions", members);
    served.stop().await;
}

/// Goal: a card has the configured description, else one derived from the skills. Method: without a
/// configured description, and with one.
#[tokio::test]
async fn a_card_tells_what_the_agent_is_for() {
    let served = Served::start().await;
    let description = async || read(get(&served.client(), CARD).await).await.description;
    let told = description().await;
    assert!(
        told.contains("add: Adds.") && told.contains("echo: Says it again."),
        "{told}"
    );
    served.server.update_description("Adds and echoes.");
    assert_eq!(description().await, "Adds and echoes.");
    served.stop().await;
}

/// Goal: a client with a current card isn't sent it again, and caches know what it depends on.
/// Method: the headers; every form of a condition.
#[tokio::test]
async fn a_known_card_is_not_sent() {
    let (served, peer) = serving(|options| options.signer = Some(p256())).await;
    let first = get(&peer, CARD).await;
    let header =
        |response: &Response, name: &str| response.headers()[name].to_str().unwrap().to_owned();
    assert_eq!(header(&first, "vary"), "A2A-Version, Authorization");
    assert_eq!(header(&first, "cache-control"), "public, max-age=60");
    let (tag, modified) = (header(&first, "etag"), header(&first, "last-modified"));
    assert!(tag.starts_with('"') && tag.len() == 66, "{tag}");
    let other = header(&get(&peer.with("A2A-Version", "1.0"), CARD).await, "etag");
    assert_ne!(tag, other);
    let weak = format!("W/{tag}");
    let several = format!("\"x\", {tag}");
    for (name, value, status) in [
        ("If-None-Match", &*tag, 304),
        ("If-None-Match", &weak, 304),
        ("If-None-Match", &several, 304),
        ("If-None-Match", "*", 304),
        ("If-None-Match", &other, 200),
        ("If-None-Match", "nonsense", 200),
        ("If-Modified-Since", &modified, 304),
        ("If-Modified-Since", "Wed, 21 Oct 2015 07:28:00 GMT", 200),
        ("If-Modified-Since", "nonsense", 200),
    ] {
        let again = get(&peer.with(name, value), CARD).await;
        assert_eq!(again.status(), status, "{name}: {value}");
        assert_eq!(
            (header(&again, "etag"), header(&again, "vary")),
            (tag.clone(), "A2A-Version, Authorization".into())
        );
        assert_eq!(soon(again.bytes()).await.unwrap().is_empty(), status == 304);
    }
    let both = peer
        .with("If-None-Match", &other)
        .with("If-Modified-Since", &modified);
    assert_eq!(
        get(&both, CARD).await.status(),
        200,
        "tags count, not dates"
    );
    served.stop().await;
}

/// Goal: served cards verify with the served keys, in every version and at every address. Method:
/// both kinds of key.
#[tokio::test]
async fn served_cards_verify() {
    let ed25519 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    let ed25519 = CardSigningKey::from_pem(&pem(ed25519.as_ref()).into()).unwrap();
    for key in [p256(), ed25519] {
        let (served, peer) = serving(|options| {
            options.signer = Some(key.clone());
            options.access = named_keys();
        })
        .await;
        served.name([("east", served.watched.spawn(&served.system))], |east| {
            east.base_url = format!("http://{}/agents/east", served.address)
                .parse()
                .unwrap();
            east.signer = Some(key.clone());
        });
        let jwks = soon(get(&peer, "/.well-known/jwks.json").await.bytes())
            .await
            .unwrap();
        let trusted = Jwks::parse(&jwks).unwrap();
        assert_eq!(trusted.len(), 1);
        for path in [CARD, "/agents/east/.well-known/agent-card.json"] {
            for version in ["1.0", "0.3"] {
                let card = read(get(&peer.with("A2A-Version", version), path).await).await;
                let signed = verify_card(&card, &trusted).unwrap();
                assert_eq!(signed.key_id.as_deref(), Some(key.id()));
                let header = URL_SAFE_NO_PAD
                    .decode(&card.signatures[0].protected)
                    .unwrap();
                let header: Value = serde_json::from_slice(&header).unwrap();
                let place = format!("http://{}/.well-known/jwks.json", served.address);
                assert_eq!(
                    (&header["typ"], &header["jku"]),
                    (&json!("JOSE"), &json!(place))
                );
            }
        }
        served.stop().await;
    }
    let served = Served::start().await;
    assert_eq!(
        get(&served.client(), "/.well-known/jwks.json")
            .await
            .status(),
        404
    );
    served.stop().await;
}

/// Returns the canonical JSON of RFC 8785, for ASCII names and whole numbers.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let sorted: std::collections::BTreeMap<_, _> = members.iter().collect();
            let members = sorted.into_iter();
            let members: Vec<_> = members
                .map(|(name, value)| format!("{}:{}", json!(name), canonical(value)))
                .collect();
            format!("{{{}}}", members.join(","))
        }
        Value::Array(entries) => {
            let entries: Vec<_> = entries.iter().map(canonical).collect();
            format!("[{}]", entries.join(","))
        }
        scalar => scalar.to_string(),
    }
}

/// Goal: a verifier that knows nothing of versions can verify the card that is served without
/// `A2A-Version`, and each version's card: the first signature covers the JSON as it is. Method: the
/// members without `signatures`, sorted, and the key of the set.
#[tokio::test]
async fn cards_verify_as_they_are_served() {
    let (served, peer) = serving(|options| options.signer = Some(p256())).await;
    let text = |name: &'static str| async {
        let bytes = soon(get(&peer, name).await.bytes()).await.unwrap();
        serde_json::from_slice::<Value>(&bytes).unwrap()
    };
    let jwks = text("/.well-known/jwks.json").await;
    let decode = |text: &Value| URL_SAFE_NO_PAD.decode(text.as_str().unwrap()).unwrap();
    let jwk = &jwks["keys"][0];
    let point = [vec![4], decode(&jwk["x"]), decode(&jwk["y"])].concat();
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point);
    let hybrid = text(CARD).await;
    assert!(hybrid["protocolVersion"].is_string() && hybrid["supportedInterfaces"].is_array());
    let new = get(&peer.with("A2A-Version", "1.0"), CARD).await;
    let new: Value = serde_json::from_slice(&soon(new.bytes()).await.unwrap()).unwrap();
    for mut card in [hybrid, new] {
        let signatures = card.as_object_mut().unwrap().remove("signatures").unwrap();
        let protected = signatures[0]["protected"].as_str().unwrap();
        let payload = URL_SAFE_NO_PAD.encode(canonical(&card));
        let signed = format!("{protected}.{payload}");
        let signature = decode(&signatures[0]["signature"]);
        key.verify(signed.as_bytes(), &signature).unwrap();
    }
    served.stop().await;
}

fn a_card() -> AgentCard {
    let text = r#"{"name":"Ünïcode 😀","description":"","supportedInterfaces":[{"url":"https://a.example/a2a",
        "protocolBinding":"JSONRPC","protocolVersion":"1.0"}],"version":"1","capabilities":{"streaming":false,
        "extensions":[{"uri":"urn:x","params":{"small":1e-05,"big":1e16,"list":[],"text":""}}]},
        "securityRequirements":[{"schemes":{"bearer":{}}}],"defaultInputModes":["text/plain"],"defaultOutputModes":[],
        "skills":[{"id":"s","name":"s","description":"d","tags":[]}]}"#;
    AgentCard::from_raw(serde_json::from_str(text).unwrap()).unwrap()
}

/// Goal: a card that was altered, or signed by another key, or with an unsafe header, isn't
/// trusted. Method: each alteration; headers of each kind, signed by the trusted key itself where
/// that is possible.
#[test]
fn bad_signatures_are_refused() {
    let key = p256();
    let trusted = keys(&key);
    let mut card = a_card();
    assert_eq!(
        verify_card(&card, &trusted),
        Err(CardVerifyError::NotSigned)
    );
    sign_card(&mut card, &key, None).unwrap();
    assert!(verify_card(&card, &trusted).is_ok());
    assert_eq!(
        verify_card(&card, &keys(&p256())),
        Err(CardVerifyError::UnknownKey)
    );
    let alter: [fn(&mut AgentCard); 6] = [
        |card| card.name.push('x'),
        |card| card.supported_interfaces[0].url = "https://evil.example/".into(),
        |card| card.skills[0].description.push('x'),
        |card| card.capabilities.streaming = Some(true),
        |card| card.security_requirements.clear(),
        |card| card.skills[0].tags.push("x".into()),
    ];
    for alter in alter {
        let mut altered = card.clone();
        alter(&mut altered);
        assert_eq!(
            verify_card(&altered, &trusted),
            Err(CardVerifyError::InvalidSignature)
        );
    }
    let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
        .unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(
        &ECDSA_P256_SHA256_FIXED_SIGNING,
        der.as_ref(),
        &SystemRandom::new(),
    )
    .unwrap();
    let key = CardSigningKey::from_pem(&pem(der.as_ref()).into()).unwrap();
    let trusted = keys(&key);
    // The key's signature over this payload; only the header differs.
    let payload = r#"{"capabilities":{"extensions":[{"params":{"big":10000000000000000,"list":[],"small":0.00001,"text":""},"uri":"urn:x"}],"streaming":false},"defaultInputModes":["text/plain"],"defaultOutputModes":[],"description":"","name":"Ünïcode 😀","securityRequirements":[{"schemes":{"bearer":{}}}],"skills":[{"description":"d","id":"s","name":"s","tags":[]}],"supportedInterfaces":[{"protocolBinding":"JSONRPC","protocolVersion":"1.0","url":"https://a.example/a2a"}],"version":"1"}"#;
    let signed = |header: &str| {
        let protected = URL_SAFE_NO_PAD.encode(header);
        let message = format!("{protected}.{}", URL_SAFE_NO_PAD.encode(payload));
        let made = pair.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        let signature = URL_SAFE_NO_PAD.encode(made);
        AgentCard {
            signatures: vec![AgentCardSignature {
                protected,
                signature,
                header: None,
            }],
            ..a_card()
        }
    };
    let padded = |bytes: usize| {
        let header = json!({ "alg": "ES256", "x": "" }).to_string();
        header.replace("\"\"", &format!("\"{}\"", "x".repeat(bytes - header.len())))
    };
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    for (header, expected) in [
        (json!({ "alg": "ES256" }).to_string(), Ok(())),
        (
            json!({ "alg": "ES256", "kid": key.id() }).to_string(),
            Ok(()),
        ),
        (
            json!({ "alg": "ES256", "exp": now + 60 }).to_string(),
            Ok(()),
        ),
        (padded(SIGNATURE_HEADER_BYTES_MAX), Ok(())),
        (
            padded(SIGNATURE_HEADER_BYTES_MAX + 1),
            Err(CardVerifyError::Unsupported),
        ),
        (
            json!({ "alg": "ES256", "exp": now - 1 }).to_string(),
            Err(CardVerifyError::Expired),
        ),
        (
            json!({ "alg": "ES256", "exp": "tomorrow" }).to_string(),
            Err(CardVerifyError::Unsupported),
        ),
        (
            json!({ "alg": "ES256", "nbf": now + 60 }).to_string(),
            Err(CardVerifyError::Expired),
        ),
        (
            json!({ "alg": "ES256", "kid": "another" }).to_string(),
            Err(CardVerifyError::UnknownKey),
        ),
        (
            json!({ "alg": "none" }).to_string(),
            Err(CardVerifyError::Unsupported),
        ),
        (
            json!({ "alg": "HS256" }).to_string(),
            Err(CardVerifyError::Unsupported),
        ),
        (
            json!({ "alg": "es256" }).to_string(),
            Err(CardVerifyError::Unsupported),
        ),
        (
            json!({ "alg": "EdDSA" }).to_string(),
            Err(CardVerifyError::InvalidSignature),
        ),
        (
            json!({ "alg": "RS256" }).to_string(),
            Err(CardVerifyError::InvalidSignature),
        ),
        (
            json!({ "alg": "ES256", "crit": ["x"], "x": 1 }).to_string(),
            Err(CardVerifyError::Unsupported),
        ),
        (
            json!({ "alg": "ES256", "b64": false }).to_string(),
            Err(CardVerifyError::Unsupported),
        ),
        (
            r#"{"alg":"none","alg":"ES256"}"#.to_owned(),
            Err(CardVerifyError::Unsupported),
        ),
        ("{}".to_owned(), Err(CardVerifyError::Unsupported)),
        ("[]".to_owned(), Err(CardVerifyError::Unsupported)),
        (String::new(), Err(CardVerifyError::Unsupported)),
    ] {
        assert_eq!(
            verify_card(&signed(&header), &trusted).map(drop),
            expected,
            "{header}"
        );
    }
    // One good signature is enough, even beside an unreadable one.
    let mut several = signed(r#"{"alg":"none"}"#);
    several
        .signatures
        .extend(signed(r#"{"alg":"ES256"}"#).signatures);
    assert!(verify_card(&several, &trusted).is_ok());
    let empty = AgentCardSignature {
        protected: several.signatures[1].protected.clone(),
        ..Default::default()
    };
    assert_eq!(
        verify_card(
            &AgentCard {
                signatures: vec![empty],
                ..a_card()
            },
            &trusted
        ),
        Err(CardVerifyError::InvalidSignature)
    );
}

/// Card signed by the Python SDK 1.3.0 (`create_agent_card_signer`), with its key.
const PYTHONS_CARD: &str = r#"{"name":"Ünïcode 😀","supportedInterfaces":[{"url":"https://a.example/a2a","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],"version":"1","capabilities":{"streaming":false,"extensions":[{"uri":"urn:x","params":{"half":0.5,"n":3.0,"big":1e+16,"text":"","list":[],"small":1e-05}}]},"securitySchemes":{"bearer":{"httpAuthSecurityScheme":{"scheme":"Bearer"}}},"securityRequirements":[{"schemes":{"bearer":{}}}],"defaultInputModes":["text/plain"],"skills":[{"id":"s","name":"s","description":"d"}],"signatures":[{"protected":"eyJhbGciOiJFUzI1NiIsImprdSI6bnVsbCwia2lkIjoiazEiLCJ0eXAiOiJKT1NFIn0","signature":"HSuEjqKUkMQSgQsSfV51NlbPWVhF9FfBzWID_WQq42HwO37S3nn9ghlzqkWQ0gFWFHdjzE_-0sIcPtb5mIhNVw"}]}"#;
const PYTHONS_KEYS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","x":"V3E-xwEI9c9mlH6RjmqAtQ5lzvl9pOXNU6K-eugINok","y":"G4KDbS_PQaCuR0h1F0l4wyUkWLVQMXD3lZmHj8uKIa0","kid":"k1"}]}"#;

/// Goal: cards of the Python SDK verify, and the SDK can verify cards of callboard. Method: one
/// signed by its 1.3.0; a signature over the canonical text of earlier versions (written by its
/// `json.dumps`); callboard's second signature covers the canonical text of 1.3.
#[test]
fn pythons_signatures_count() {
    let theirs = AgentCard::from_raw(serde_json::from_str(PYTHONS_CARD).unwrap()).unwrap();
    let trusted = Jwks::parse(PYTHONS_KEYS.as_bytes()).unwrap();
    assert_eq!(
        verify_card(&theirs, &trusted).unwrap().key_id.as_deref(),
        Some("k1")
    );
    let mut altered = theirs.clone();
    altered.skills[0].description.push('x');
    assert_eq!(
        verify_card(&altered, &trusted),
        Err(CardVerifyError::InvalidSignature)
    );

    let older = r#"{"capabilities":{"extensions":[{"params":{"big":1e+16,"small":1e-05},"uri":"urn:x"}],"streaming":false},"defaultInputModes":["text/plain"],"name":"\u00dcn\u00efcode \ud83d\ude00","skills":[{"description":"d","id":"s","name":"s"}],"supportedInterfaces":[{"protocolBinding":"JSONRPC","protocolVersion":"1.0","url":"https://a.example/a2a"}],"version":"1"}"#;
    let newer = r#"{"capabilities":{"extensions":[{"params":{"big":10000000000000000,"small":0.00001},"uri":"urn:x"}],"streaming":false},"defaultInputModes":["text/plain"],"name":"Ünïcode 😀","skills":[{"description":"d","id":"s","name":"s"}],"supportedInterfaces":[{"protocolBinding":"JSONRPC","protocolVersion":"1.0","url":"https://a.example/a2a"}],"version":"1"}"#;
    let der = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    let pair = Ed25519KeyPair::from_pkcs8(der.as_ref()).unwrap();
    let key = CardSigningKey::from_pem(&pem(der.as_ref()).into()).unwrap();
    let x = URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
    assert_eq!(key.jwks().to_raw().get().matches(&x).count(), 1);
    let signed = |protected: &str, payload: &str| {
        let message = format!("{protected}.{}", URL_SAFE_NO_PAD.encode(payload));
        URL_SAFE_NO_PAD.encode(pair.sign(message.as_bytes()))
    };
    let protected =
        URL_SAFE_NO_PAD.encode(r#"{"kid": "k", "alg": "EdDSA", "jku": null, "typ": "JOSE"}"#);
    let signature = signed(&protected, older);
    let theirs = AgentCard {
        signatures: vec![AgentCardSignature {
            protected,
            signature,
            header: None,
        }],
        ..a_card()
    };
    let trusted = format!(r#"{{"keys":[{{"kty":"OKP","crv":"Ed25519","x":"{x}"}}]}}"#);
    assert!(verify_card(&theirs, &Jwks::parse(trusted.as_bytes()).unwrap()).is_ok());
    let mut ours = a_card();
    sign_card(&mut ours, &key, None).unwrap();
    let [_, second] = &*ours.signatures else {
        panic!("{} signatures", ours.signatures.len())
    };
    // The second signature alone isn't accepted: it wouldn't change if a security requirement were
    // removed.
    let alone = AgentCard {
        signatures: vec![second.clone()],
        ..ours.clone()
    };
    assert_eq!(
        verify_card(&alone, &keys(&key)),
        Err(CardVerifyError::Unsupported)
    );
    // Ed25519 signatures are deterministic.
    assert_eq!(second.signature, signed(&second.protected, newer));
}

/// Goal: a key set that a signature names is fetched only from a trusted host, and only if the
/// egress policy allows it. Method: a card whose signature names a URL; its host trusted or not,
/// reachable or not.
#[tokio::test]
async fn named_key_sets() {
    let key = p256();
    let served = Served::with(|options| options.signer = Some(key.clone())).await;
    let card = read(get(&served.client(), CARD).await).await;
    let here = EgressPolicy::public_internet().with_loopback();
    let hosts = ["127.0.0.1".to_owned()];
    assert!(
        verify_card_with_jku(&card, &Jwks::default(), &hosts, &here)
            .await
            .is_ok()
    );
    let untrusted = verify_card_with_jku(
        &card,
        &Jwks::default(),
        &["agents.example".to_owned()],
        &here,
    )
    .await;
    assert_eq!(untrusted, Err(CardVerifyError::UnknownKey));
    let victim = Receiver::start("127.0.0.1", &["200 OK"]).await;
    let mut card = a_card();
    sign_card(&mut card, &key, Some(&victim.url().parse().unwrap())).unwrap();
    for (hosts, egress) in [
        (&hosts[..], EgressPolicy::public_internet()),
        (&[], here.clone()),
    ] {
        assert_eq!(
            verify_card_with_jku(&card, &Jwks::default(), hosts, &egress).await,
            Err(CardVerifyError::UnknownKey)
        );
    }
    assert_eq!(victim.connections(), 0);
    // The document there isn't a key set.
    assert_eq!(
        verify_card_with_jku(&card, &Jwks::default(), &hosts, &here).await,
        Err(CardVerifyError::UnknownKey)
    );
    assert_eq!(victim.connections(), 1);
    served.stop().await;
}

/// Goal: the extended card is for authenticated callers, if there is one. Method: with and without,
/// each kind of caller, 1.0 and 0.3.
#[tokio::test]
async fn extended_card() {
    let served = somewhere().await;
    let alice = served.client().key("alice");
    let card = alice.result("GetExtendedAgentCard", json!({})).await;
    assert_eq!(card["capabilities"]["extendedAgentCard"], true);
    assert!(card.get("protocolVersion").is_none());
    let old = alice
        .result("agent/getAuthenticatedExtendedCard", json!({}))
        .await;
    assert_eq!(
        (&old["supportsAuthenticatedExtendedCard"], &old["name"]),
        (&json!(true), &card["name"])
    );
    let (status, over_rest) = alice.rest(Method::GET, "/extendedAgentCard", None).await;
    assert_eq!((status, &over_rest), (200, &card));
    let (status, _) = served
        .client()
        .rest(Method::GET, "/extendedAgentCard", None)
        .await;
    assert_eq!(status, 401);
    served.stop().await;
    let (served, peer) = serving(|_| {}).await;
    assert_eq!(peer.code("GetExtendedAgentCard", json!({})).await, -32_004);
    assert_eq!(
        peer.code("agent/getAuthenticatedExtendedCard", json!({}))
            .await,
        -32_007
    );
    served.stop().await;
}

/// Goal: a listener's catalogue lists its agents to callers that may see them. Method: the
/// catalogue with two agents; each entry's card exists; then a policy that hides one of them.
#[tokio::test]
async fn catalogue() {
    let (served, peer) = serving(|_| {}).await;
    let empty: Value = soon(get(&peer, "/.well-known/ai-catalog.json").await.json())
        .await
        .unwrap();
    assert_eq!(
        (&empty["specVersion"], &empty["entries"]),
        (&json!("1.0"), &json!([]))
    );
    let [east, west] = [0, 1].map(|_| served.watched.spawn(&served.system));
    served.name([("west", west.clone()), ("east", east)], |options| {
        options.agent.name.insert_str(0, "the ");
        options.access = named_keys();
    });
    let catalog: Value = soon(get(&peer, "/.well-known/ai-catalog.json").await.json())
        .await
        .unwrap();
    let entries = catalog["entries"].as_array().unwrap();
    assert_eq!(
        entries
            .iter()
            .map(|entry| &entry["name"])
            .collect::<Vec<_>>(),
        ["east", "west"]
    );
    for entry in entries {
        assert_eq!(entry["mediaType"], "application/a2a-agent-card+json");
        let url = entry["url"].as_str().unwrap();
        let path = url
            .strip_prefix(&format!("http://{}", served.address))
            .unwrap();
        assert_eq!(
            read(get(&peer, path).await).await.name,
            entry["displayName"].as_str().unwrap()
        );
    }

    served.system.policy().push(OnlyAlice(west.to_string()));
    for (key, wanted) in [
        (None, &["east"][..]),
        (Some("bob"), &["east"]),
        (Some("alice"), &["east", "west"]),
    ] {
        let peer = key.map_or_else(|| peer.clone(), |key| peer.with("X-API-Key", key));
        let response = get(&peer, "/.well-known/ai-catalog.json").await;
        assert!(
            response.headers()["cache-control"]
                .to_str()
                .unwrap()
                .starts_with("private")
        );
        let catalog: Value = soon(response.json()).await.unwrap();
        let names: Vec<_> = catalog["entries"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| entry["name"].clone())
            .collect();
        assert_eq!(names, wanted, "{key:?}");
    }
    served.stop().await;
}

/// Goal: a card names the credentials that its listener takes. Method: listeners with keys, with client
/// certificates, and with neither.
#[tokio::test]
async fn cards_name_credentials() {
    let certificates = Box::new(CertificateClients::new([]));
    for (access, names) in [
        (named_keys(), &["bearer", "apiKey"][..]),
        (
            AccessControl::with_verifiers(vec![certificates]),
            &["mutualTls"],
        ),
        (AccessControl::default(), &[]),
    ] {
        let served = Served::with(|options| options.access = access).await;
        let peer = served.client().with("A2A-Version", "1.0");
        let card: Value = soon(get(&peer, CARD).await.json()).await.unwrap();
        let listed = card["securityRequirements"].as_array();
        let expected: Vec<_> = names
            .iter()
            .map(|name| json!({ "schemes": { *name: {} } }))
            .collect();
        assert_eq!(listed.cloned().unwrap_or_default(), expected);
        let schemes = card["securitySchemes"].as_object();
        assert_eq!(schemes.map_or(0, |schemes| schemes.len()), names.len());
        served.stop().await;
    }
}

/// Policy that lets only alice use a certain agent.
struct OnlyAlice(String);

impl Policy for OnlyAlice {
    fn check<'a>(&'a self, crossing: PolicyRequest<'a>) -> BoxFuture<'a, Result<(), Failure>> {
        let is_let_in = crossing.agent != self.0 || crossing.principal.id == "alice";
        let denied = || Failure::denied("not yours");
        Box::pin(std::future::ready(if is_let_in {
            Ok(())
        } else {
            Err(denied())
        }))
    }
}
