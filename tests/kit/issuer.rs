//! An authorization server within a test: keys, documents over HTTP, and tokens, good and bad.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384,
    RSA_PSS_SHA512, RsaEncoding, RsaKeyPair,
};
use ring::{digest, hmac};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// RSA key of the tests: ring makes none.
const RSA_PEM: &str = include_str!("issuer_rsa.pem");

/// Status and body of a document.
type Document = (u16, String);

/// An authorization server. Its documents may be changed while it runs.
pub struct TestIssuer {
    pub url: String,
    documents: Arc<Mutex<HashMap<String, Document>>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl TestIssuer {
    /// Starts a server with metadata, without keys.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            documents: Arc::default(),
            requests: Arc::default(),
        };
        let metadata = json!({ "issuer": issuer.url, "jwks_uri": format!("{}/jwks", issuer.url) });
        issuer.set(
            "/.well-known/oauth-authorization-server",
            200,
            &metadata.to_string(),
        );
        let (documents, requests) = (issuer.documents.clone(), issuer.requests.clone());
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = listener.accept().await {
                let mut request = vec![0; 8_192];
                let bytes = connection.read(&mut request).await.unwrap_or(0);
                let head = String::from_utf8_lossy(&request[..bytes]).into_owned();
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                let found = documents.lock().unwrap().get(&path).cloned();
                let (status, body) = found.unwrap_or((404, "nothing here".to_owned()));
                requests.lock().unwrap().push(path);
                let answer = format!(
                    "HTTP/1.1 {status} S\r\nContent-Length: {}\r\nLocation: /elsewhere\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
                let _ = connection.write_all(answer.as_bytes()).await;
            }
        });
        issuer
    }

    /// Starts a server that publishes these keys.
    pub async fn with_keys(keys: &[&SigningKey]) -> Self {
        let issuer = Self::start().await;
        issuer.publish(keys);
        issuer
    }

    pub fn set(&self, path: &str, status: u16, body: &str) {
        let document = (status, body.to_owned());
        self.documents
            .lock()
            .unwrap()
            .insert(path.to_owned(), document);
    }

    pub fn publish(&self, keys: &[&SigningKey]) {
        let keys: Vec<_> = keys.iter().map(|key| key.jwk()).collect();
        self.set("/jwks", 200, &json!({ "keys": keys }).to_string());
    }

    /// Number of requests for a path.
    pub fn requests(&self, path: &str) -> usize {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|asked| *asked == path).count()
    }

    /// Claims of a token that is valid for ten minutes.
    pub fn claims(&self, audience: &str) -> Value {
        let now = now_s();
        json!({
            "iss": self.url, "aud": audience, "sub": "alice", "iat": now, "exp": now + 600,
            "scope": "callboard other",
        })
    }
}

pub fn now_s() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_secs()
}

enum Pair {
    Ecdsa(EcdsaKeyPair, &'static str),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair, &'static dyn RsaEncoding),
}

/// Private key of an issuer.
pub struct SigningKey {
    pub id: String,
    pub algorithm: &'static str,
    pair: Pair,
}

impl SigningKey {
    /// Makes a key for an algorithm. All RSA keys are the same one.
    pub fn new(id: &str, algorithm: &'static str) -> Self {
        let random = SystemRandom::new();
        let ecdsa = |curve, name| {
            let key = EcdsaKeyPair::generate_pkcs8(curve, &random).unwrap();
            let pair = EcdsaKeyPair::from_pkcs8(curve, key.as_ref(), &random).unwrap();
            Pair::Ecdsa(pair, name)
        };
        let rsa = |padding| Pair::Rsa(RsaKeyPair::from_pkcs8(&rsa_key()).unwrap(), padding);
        let pair = match algorithm {
            "ES256" => ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING, "P-256"),
            "ES384" => ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING, "P-384"),
            "EdDSA" => {
                let key = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
                Pair::Ed25519(Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap())
            }
            "RS256" => rsa(&RSA_PKCS1_SHA256),
            "RS384" => rsa(&RSA_PKCS1_SHA384),
            "RS512" => rsa(&RSA_PKCS1_SHA512),
            "PS256" => rsa(&RSA_PSS_SHA256),
            "PS384" => rsa(&RSA_PSS_SHA384),
            "PS512" => rsa(&RSA_PSS_SHA512),
            _ => panic!("no key of {algorithm}"),
        };
        Self {
            id: id.to_owned(),
            algorithm,
            pair,
        }
    }

    pub fn jwk(&self) -> Value {
        let mut key = match &self.pair {
            Pair::Ecdsa(pair, curve) => {
                let point = &pair.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                json!({ "kty": "EC", "crv": curve, "x": part(x), "y": part(y) })
            }
            Pair::Ed25519(pair) => {
                json!({ "kty": "OKP", "crv": "Ed25519", "x": part(pair.public_key().as_ref()) })
            }
            Pair::Rsa(pair, _) => {
                let key = PublicKeyComponents::<Vec<u8>>::from(pair.public());
                json!({ "kty": "RSA", "n": part(&key.n), "e": part(&key.e) })
            }
        };
        key["kid"] = self.id.as_str().into();
        key
    }

    /// A token of these claims.
    pub fn token(&self, claims: &Value) -> String {
        let head = json!({ "alg": self.algorithm, "kid": self.id, "typ": "at+jwt" });
        self.sign(&head, &claims.to_string())
    }

    /// A token with another head, whose claims are this text.
    pub fn sign(&self, head: &Value, claims: &str) -> String {
        let message = message(head, claims);
        let random = SystemRandom::new();
        let bytes = message.as_bytes();
        let signature = match &self.pair {
            Pair::Ecdsa(pair, _) => pair.sign(&random, bytes).unwrap().as_ref().to_vec(),
            Pair::Ed25519(pair) => pair.sign(bytes).as_ref().to_vec(),
            Pair::Rsa(pair, padding) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(*padding, &random, bytes, &mut signature).unwrap();
                signature
            }
        };
        format!("{message}.{}", part(&signature))
    }
}

/// Part of a token.
pub fn part(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn message(head: &Value, claims: &str) -> String {
    format!(
        "{}.{}",
        part(head.to_string().as_bytes()),
        part(claims.as_bytes())
    )
}

fn rsa_key() -> Vec<u8> {
    let (_, body) = RSA_PEM.split_once("-----BEGIN PRIVATE KEY-----").unwrap();
    let (body, _) = body.split_once("-----END").unwrap();
    let body: String = body.split_ascii_whitespace().collect();
    STANDARD.decode(body).unwrap()
}

/// Tokens that no listener may accept, each with its name. `key` is one of the issuer's keys, of
/// another algorithm than `other`, which the issuer has not published.
pub fn bad_tokens(
    issuer: &TestIssuer,
    audience: &str,
    key: &SigningKey,
    other: &SigningKey,
) -> Vec<(&'static str, String)> {
    let good = issuer.claims(audience);
    let with = |name: &str, value: Value| {
        let mut claims = good.clone();
        claims[name] = value;
        key.token(&claims)
    };
    let without = |name: &str| {
        let mut claims = good.clone();
        claims.as_object_mut().unwrap().remove(name);
        key.token(&claims)
    };
    let head = |name: &str, value: Value| {
        let mut head = json!({ "alg": key.algorithm, "kid": key.id, "typ": "JWT" });
        head[name] = value;
        head
    };
    let text = good.to_string();
    let right = key.token(&good);
    let (signed, signature) = right.rsplit_once('.').unwrap();
    let (first, claims) = signed.split_once('.').unwrap();
    let jwk = key.jwk();
    let secret = jwk["x"].as_str().or(jwk["n"].as_str()).unwrap().to_owned();
    let as_secret = |algorithm: &str, secret: &[u8]| {
        let message = message(&json!({ "alg": algorithm, "kid": key.id }), &text);
        let shared = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let tag = hmac::sign(&shared, message.as_bytes());
        format!("{message}.{}", part(tag.as_ref()))
    };
    let unsigned = message(&json!({ "alg": "none" }), &text);
    let embedded = {
        let head = json!({ "alg": other.algorithm, "jwk": other.jwk(), "jku": format!("{}/evil", issuer.url) });
        other.sign(&head, &text)
    };
    let twice = text.replacen('{', "{\"aud\":\"other\",", 1);
    let hash = digest::digest(&digest::SHA256, signed.as_bytes());
    let now = now_s();
    vec![
        ("another issuer", with("iss", json!("https://evil.example"))),
        (
            "an issuer with a slash",
            with("iss", json!(format!("{}/", issuer.url))),
        ),
        ("no issuer", without("iss")),
        (
            "another audience",
            with("aud", json!("https://other.example")),
        ),
        ("no audience", without("aud")),
        ("expired", with("exp", json!(now - 3_600))),
        ("no expiry", without("exp")),
        ("an expiry as text", with("exp", json!("9999999999"))),
        ("not yet valid", with("nbf", json!(now + 3_600))),
        ("issued later", with("iat", json!(now + 3_600))),
        ("no subject", without("sub")),
        ("an ID token", with("at_hash", json!("x"))),
        ("an ID token of a code", with("c_hash", json!("x"))),
        ("alg none", format!("{unsigned}.")),
        (
            "alg none with a signature",
            format!("{unsigned}.{signature}"),
        ),
        (
            "alg None",
            format!("{}.{signature}", message(&json!({ "alg": "None" }), &text)),
        ),
        ("no alg", key.sign(&json!({ "kid": key.id }), &text)),
        (
            "HS256 with the public key",
            as_secret("HS256", secret.as_bytes()),
        ),
        (
            "HS256 with the public key as JSON",
            as_secret("HS256", key.jwk().to_string().as_bytes()),
        ),
        ("HS256 with nothing", as_secret("HS256", b"")),
        (
            "the right alg with a shared secret",
            as_secret(key.algorithm, secret.as_bytes()),
        ),
        (
            "another algorithm",
            key.sign(&head("alg", json!(other.algorithm)), &text),
        ),
        ("an unknown key", other.token(&good)),
        (
            "an unknown key with a known id",
            other.sign(&head("alg", json!(other.algorithm)), &text),
        ),
        ("a key in the head", embedded),
        (
            "an unknown id",
            key.sign(&head("kid", json!("nobody")), &text),
        ),
        (
            "an id that is no text",
            key.sign(&head("kid", json!(7)), &text),
        ),
        (
            "critical extensions",
            key.sign(&head("crit", json!(["exp"])), &text),
        ),
        (
            "unencoded claims",
            key.sign(&head("b64", json!(false)), &text),
        ),
        (
            "another type",
            key.sign(&head("typ", json!("logout+jwt")), &text),
        ),
        (
            "duplicate claims",
            key.sign(&head("typ", json!("JWT")), &twice),
        ),
        (
            "claims that are no object",
            key.sign(&head("typ", json!("JWT")), "[]"),
        ),
        (
            "other claims",
            format!(
                "{first}.{}.{signature}",
                part(text.replace("alice", "admin").as_bytes())
            ),
        ),
        (
            "another signature",
            format!("{signed}.{}", part(hash.as_ref())),
        ),
        (
            "a shorter signature",
            format!("{signed}.{}", &signature[..signature.len() - 4]),
        ),
        ("no signature", format!("{signed}.")),
        (
            "broken base64",
            format!("{first}.{claims}!.{signature}").replace('!', "="),
        ),
        ("padded base64", format!("{first}==.{claims}.{signature}")),
        ("too long", with("pad", json!("x".repeat(8_000)))),
        ("two parts", signed.to_owned()),
        ("four parts", format!("{right}.{signature}")),
        ("only dots", "..".to_owned()),
        ("opaque", "0123456789abcdef".to_owned()),
        ("like an API key", "cbk_0123456789abcdef".to_owned()),
    ]
}
