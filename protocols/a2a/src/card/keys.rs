//! Keys for card signatures: the private signing key, and public keys as a JSON Web Key Set (RFC
//! 7517).

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use callboard_message::RawObject;
use callboard_rpc::{DecodeLimits, KeyPair, KeyPairError, SigningAlgorithm};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use secrecy::SecretString;
use sha2::{Digest, Sha256};

/// Maximum number of keys in a key set.
/// At the limit: `JwksError`.
pub const JWKS_KEYS_MAX: usize = 64;
/// Maximum size of a key set, in bytes.
/// At the limit: `JwksError`.
pub const JWKS_BYTES_MAX: usize = 256 * 1024;

/// Signature algorithms for cards. `none` and algorithms with a shared secret are never accepted.
const ALGORITHMS: [SigningAlgorithm; 3] = [
    SigningAlgorithm::Es256,
    SigningAlgorithm::EdDsa,
    SigningAlgorithm::Rs256,
];

/// Private key that signs cards: P-256, Ed25519 or RSA. Its `Debug` output never contains the key.
#[derive(Debug, Clone)]
pub struct CardSigningKey {
    pair: Arc<KeyPair>,
    id: Arc<str>,
}

impl CardSigningKey {
    /// Reads a key in PKCS#8 PEM (`-----BEGIN PRIVATE KEY-----`).
    ///
    /// # Errors
    /// [`KeyPairError`] if the text isn't such a key, or its type can't sign cards.
    pub fn from_pem(pem: &SecretString) -> Result<Self, KeyPairError> {
        let pair = ALGORITHMS
            .into_iter()
            .find_map(|algorithm| KeyPair::from_pem(pem, algorithm).ok());
        let pair = pair.ok_or(KeyPairError)?;
        let id = thumbprint(&pair.public_members()).into();
        Ok(Self {
            pair: Arc::new(pair),
            id,
        })
    }

    /// Returns the key's id in signatures: the thumbprint of its public key (RFC 7638).
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the JSON Web Key Set that contains only this key's public part.
    pub fn jwks(&self) -> RawObject {
        let mut key = RawObject::new();
        for (name, value) in self.pair.public_members() {
            key.set(name, value);
        }
        let key = key
            .with("alg", self.algorithm())
            .with("use", "sig")
            .with("kid", self.id());
        RawObject::single("keys", [key])
    }

    pub(super) fn algorithm(&self) -> &'static str {
        self.pair.algorithm().name()
    }

    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyPairError> {
        self.pair.sign(message)
    }
}

/// Returns the JWK thumbprint of a key's required members: SHA-256 in base64url (RFC 7638, section
/// 3). `members` must be in lexicographic order.
fn thumbprint(members: &[(&'static str, String)]) -> String {
    let members: Vec<_> = members
        .iter()
        .map(|(name, value)| format!("\"{name}\":\"{value}\""))
        .collect();
    URL_SAFE_NO_PAD.encode(Sha256::digest(format!("{{{}}}", members.join(","))))
}

/// Error of parsing a key set: the text isn't a JSON Web Key Set of at most [`JWKS_KEYS_MAX`] keys
/// and [`JWKS_BYTES_MAX`] bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a JSON Web Key Set (an object with `keys`) of at most {JWKS_KEYS_MAX} keys and {JWKS_BYTES_MAX} bytes"
)]
pub struct JwksError;

/// Public keys that are trusted to sign cards.
#[derive(Debug, Clone, Default)]
pub struct Jwks {
    keys: Vec<PublicKey>,
}

#[derive(Debug, Clone)]
pub(super) struct PublicKey {
    id: Option<String>,
    /// Expiry in seconds since 1970, if the set states it.
    expires: Option<f64>,
    material: KeyMaterial,
}

#[derive(Debug, Clone)]
enum KeyMaterial {
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
    Rsa { n: Vec<u8>, e: Vec<u8> },
}

impl Jwks {
    /// Reads a key set from JSON. Keys of unsupported types, and keys for encryption, are skipped.
    ///
    /// # Errors
    /// [`JwksError`] if the text isn't a key set or exceeds a limit.
    pub fn parse(text: &[u8]) -> Result<Self, JwksError> {
        let limits = DecodeLimits {
            body_bytes_max: JWKS_BYTES_MAX,
            ..DecodeLimits::default()
        };
        let text = callboard_rpc::check_json(text, &limits).map_err(|_| JwksError)?;
        let set: RawObject = serde_json::from_str(text).map_err(|_| JwksError)?;
        let keys: Vec<RawObject> = set.read("keys").ok_or(JwksError)?;
        if keys.len() > JWKS_KEYS_MAX {
            return Err(JwksError);
        }
        Ok(Self {
            keys: keys.iter().filter_map(PublicKey::from_jwk).collect(),
        })
    }

    /// Returns the number of usable keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns whether there are no usable keys.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the unexpired keys that may have made a signature: keys with the id `id`, and keys
    /// without an id. If `id` is `None`, all unexpired keys are returned. `now` is in seconds since
    /// 1970.
    pub(super) fn matching_keys<'a>(
        &'a self,
        id: Option<&'a str>,
        now: f64,
    ) -> impl Iterator<Item = &'a PublicKey> {
        self.keys
            .iter()
            .filter(move |key| {
                key.id
                    .as_deref()
                    .is_none_or(|of| id.is_none_or(|id| id == of))
            })
            .filter(move |key| key.expires.is_none_or(|expires| expires > now))
    }
}

impl PublicKey {
    fn from_jwk(key: &RawObject) -> Option<Self> {
        if key.text("use").is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let bytes = |name: &str| {
            URL_SAFE_NO_PAD
                .decode(key.text(name)?.trim_end_matches('='))
                .ok()
        };
        let material = match (key.text("kty")?.as_str(), key.text("crv").as_deref()) {
            ("EC", Some("P-256")) => {
                let (x, y) = (bytes("x")?, bytes("y")?);
                (x.len() == 32 && y.len() == 32)
                    .then(|| KeyMaterial::P256([&[4], &*x, &*y].concat()))?
            }
            ("OKP", Some("Ed25519")) => KeyMaterial::Ed25519(bytes("x")?),
            ("RSA", _) => KeyMaterial::Rsa {
                n: bytes("n")?,
                e: bytes("e")?,
            },
            _ => return None,
        };
        let algorithm = key.text("alg");
        let fits = |alg: &String| *alg == material.algorithm().name();
        algorithm.as_ref().is_none_or(fits).then_some(())?;
        Some(Self {
            id: key.text("kid"),
            expires: key.read("exp"),
            material,
        })
    }

    /// Returns whether the signature is valid and made by this key. Only the algorithm of the key's
    /// type is accepted.
    pub(super) fn verify_signature(
        &self,
        algorithm: &str,
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        if self.material.algorithm().name() != algorithm {
            return false;
        }
        let verified = match &self.material {
            KeyMaterial::P256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            KeyMaterial::Ed25519(x) => {
                UnparsedPublicKey::new(&ED25519, x).verify(message, signature)
            }
            KeyMaterial::Rsa { n, e } => RsaPublicKeyComponents { n, e }.verify(
                &RSA_PKCS1_2048_8192_SHA256,
                message,
                signature,
            ),
        };
        verified.is_ok()
    }
}

impl KeyMaterial {
    fn algorithm(&self) -> SigningAlgorithm {
        match self {
            Self::P256(_) => SigningAlgorithm::Es256,
            Self::Ed25519(_) => SigningAlgorithm::EdDsa,
            Self::Rsa { .. } => SigningAlgorithm::Rs256,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a thumbprint matches the RFC. Method: the example of RFC 7638, section 3.1.
    #[test]
    fn thumbprint_is_the_one_of_the_rfc() {
        let n = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw";
        let members = [
            ("e", "AQAB".to_owned()),
            ("kty", "RSA".to_owned()),
            ("n", n.to_owned()),
        ];
        assert_eq!(
            thumbprint(&members),
            "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"
        );
    }

    /// Goal: a set has its usable keys, and no more keys than the limit. Method: rows.
    #[test]
    fn sets_are_read() {
        let x = URL_SAFE_NO_PAD.encode([7; 32]);
        let ed = format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{x}"}}"#);
        let set = |keys: &str| Jwks::parse(format!(r#"{{"keys":[{keys}]}}"#).as_bytes());
        for (key, usable) in [
            (ed.clone(), 1),
            (
                format!(
                    r#"{{"kty":"EC","crv":"P-256","x":"{x}","y":"{x}","use":"sig","alg":"ES256"}}"#
                ),
                1,
            ),
            (r#"{"kty":"RSA","n":"AQAB","e":"AQAB"}"#.to_owned(), 1),
            (
                format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{x}","alg":"HS256"}}"#),
                0,
            ),
            (
                format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{x}","use":"enc"}}"#),
                0,
            ),
            (
                format!(r#"{{"kty":"EC","crv":"P-256","x":"{x}","y":"AQ"}}"#),
                0,
            ),
            (format!(r#"{{"kty":"oct","k":"{x}","alg":"HS256"}}"#), 0),
        ] {
            assert_eq!(set(&key).map(|set| set.len()), Ok(usable), "{key}");
        }
        assert_eq!(
            set(&vec![&*ed; JWKS_KEYS_MAX].join(",")).map(|set| set.len()),
            Ok(JWKS_KEYS_MAX)
        );
        assert!(set(&vec![&*ed; JWKS_KEYS_MAX + 1].join(",")).is_err());
        let padded = |bytes: usize| format!(r#"{{"keys":[]{}}}"#, " ".repeat(bytes - 11));
        assert!(Jwks::parse(padded(JWKS_BYTES_MAX).as_bytes()).is_ok());
        assert!(Jwks::parse(padded(JWKS_BYTES_MAX + 1).as_bytes()).is_err());
        assert!(Jwks::parse(b"[]").is_err() && Jwks::parse(br#"{"keys":[],"keys":[]}"#).is_err());
    }
}
