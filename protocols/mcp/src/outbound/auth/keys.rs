//! Randomness, hashes and signatures.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use callboard_rpc::KeyPair;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;

use super::AuthError;

pub use callboard_rpc::SigningAlgorithm;

/// How long a signed assertion counts. Long enough for clocks that differ a little.
const ASSERTION_LIFETIME_S: u64 = 60;

/// 256 random bits as text that fits a URL.
pub(super) fn random_text() -> Result<SecretString, AuthError> {
    let mut bytes = Zeroizing::new([0_u8; 32]);
    SystemRandom::new().fill(bytes.as_mut()).map_err(|_| AuthError::Randomness)?;
    Ok(SecretString::from(URL_SAFE_NO_PAD.encode(bytes.as_ref())))
}

/// The `S256` challenge to a PKCE verifier (RFC 7636, section 4.2).
pub(super) fn s256(verifier: &SecretString) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.expose_secret().as_bytes()))
}

/// A private key that proves who the client is (`private_key_jwt`, RFC 7523). Never printed.
pub struct SigningKey {
    pair: KeyPair,
    key_id: Option<String>,
}

#[derive(Serialize)]
struct Header<'a> {
    alg: &'static str,
    typ: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    kid: Option<&'a str>,
}

#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    sub: &'a str,
    aud: &'a str,
    jti: &'a str,
    /// Seconds since 1970, like `exp`.
    iat: u64,
    exp: u64,
}

fn part(content: &impl Serialize) -> Result<String, AuthError> {
    serde_json::to_vec(content).map(|json| URL_SAFE_NO_PAD.encode(json)).map_err(|_| AuthError::Key)
}

impl SigningKey {
    /// From PKCS#8 in PEM (`-----BEGIN PRIVATE KEY-----`); `key_id` becomes `kid`.
    ///
    /// # Errors
    /// [`AuthError::Key`] if the text is no such key or doesn't fit the algorithm.
    pub fn from_pem(
        pem: &SecretString,
        algorithm: SigningAlgorithm,
        key_id: Option<String>,
    ) -> Result<Self, AuthError> {
        let pair = KeyPair::from_pem(pem, algorithm).map_err(|_| AuthError::Key)?;
        Ok(Self { pair, key_id })
    }

    /// A fresh assertion that the client is `client_id`, for `audience` only.
    pub(super) fn assertion(&self, client_id: &str, audience: &str) -> Result<SecretString, AuthError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let header = Header { alg: self.pair.algorithm().name(), typ: "JWT", kid: self.key_id.as_deref() };
        let jti = random_text()?;
        let claims = Claims {
            iss: client_id,
            sub: client_id,
            aud: audience,
            jti: jti.expose_secret(),
            iat: now,
            exp: now + ASSERTION_LIFETIME_S,
        };
        let signed = format!("{}.{}", part(&header)?, part(&claims)?);
        let signature = self.pair.sign(signed.as_bytes()).map_err(|_| AuthError::Key)?;
        Ok(SecretString::from(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))))
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey").field("algorithm", &self.pair.algorithm()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;
    use ring::signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
    };
    use serde_json::{Value, json};

    use super::*;

    /// Goal: the challenge is the RFC's. Method: the example of RFC 7636, appendix B.
    #[test]
    fn challenge_is_the_one_of_the_rfc() {
        let verifier = SecretString::from("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk");
        assert_eq!(s256(&verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    /// Goal: an assertion proves the client to one server, once, for a minute. Method: take it apart and verify it.
    #[test]
    fn assertion_is_signed_and_bound() -> Result<(), AuthError> {
        let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).expect("a key");
        let body = STANDARD.encode(&der);
        let pem = SecretString::from(format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n"));
        let key = SigningKey::from_pem(&pem, SigningAlgorithm::Es256, Some("k1".to_owned()))?;
        assert!(!format!("{key:?}").contains(&body[..16]));

        let (first, second) = (key.assertion("me", "https://a.example")?, key.assertion("me", "https://a.example")?);
        assert_ne!(first.expose_secret(), second.expose_secret());
        let text = first.expose_secret();
        let (signed, signature) = text.rsplit_once('.').expect("three parts");
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der.as_ref(), &SystemRandom::new());
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, pair.expect("the key").public_key().as_ref())
            .verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).expect("base64"))
            .expect("the signature is right");
        let part = |part: &str| -> Value {
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).expect("base64")).expect("JSON")
        };
        let (header, claims) = signed.split_once('.').expect("two parts");
        let (header, claims) = (part(header), part(claims));
        assert_eq!(header, json!({ "alg": "ES256", "typ": "JWT", "kid": "k1" }));
        assert_eq!(
            (&claims["iss"], &claims["sub"], &claims["aud"]),
            (&json!("me"), &json!("me"), &json!("https://a.example"))
        );
        assert_eq!(claims["exp"].as_u64(), claims["iat"].as_u64().map(|iat| iat + ASSERTION_LIFETIME_S));
        Ok(())
    }

    /// Goal: a key that doesn't fit is told when it is configured. Method: no PEM, no key in it, another algorithm's.
    #[test]
    fn unfit_keys_are_refused() {
        for pem in ["", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----"] {
            for name in ["ES256", "ES384", "RS256", "EdDSA"] {
                let algorithm = SigningAlgorithm::named(name).expect(name);
                assert!(matches!(SigningKey::from_pem(&pem.into(), algorithm, None), Err(AuthError::Key)));
            }
        }
    }
}
