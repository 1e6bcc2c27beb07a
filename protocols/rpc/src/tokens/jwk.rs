//! Public keys of a token issuer (JSON Web Key Set, RFC 7517), and verification of signatures.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use callboard_message::RawObject;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents,
    UnparsedPublicKey,
};

use crate::json::{DecodeLimits, check_json};

/// Maximum size of a token issuer's key set or metadata, in bytes. A larger document is refused, and
/// the previous keys stay in force.
pub const ISSUER_DOCUMENT_BYTES_MAX: usize = 256 * 1024;
/// Maximum number of keys in a token issuer's key set, unusable ones included. A set with more is
/// refused, and the previous keys stay in force.
pub const ISSUER_KEYS_MAX: usize = 64;
/// Maximum number of keys that are tried for one token. Several fit only if the issuer's keys have
/// no ids.
/// At the limit: further keys are ignored.
pub const TOKEN_KEYS_TRIED_MAX: usize = 4;

/// Signature algorithm of a token (RFC 7518, RFC 8037). `none` and algorithms with a shared secret
/// have no value, so they can't be allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum JwsAlgorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256.
    Rs256,
    /// RSASSA-PKCS1-v1_5 with SHA-384.
    Rs384,
    /// RSASSA-PKCS1-v1_5 with SHA-512.
    Rs512,
    /// RSASSA-PSS with SHA-256.
    Ps256,
    /// RSASSA-PSS with SHA-384.
    Ps384,
    /// RSASSA-PSS with SHA-512.
    Ps512,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// Ed25519.
    EdDsa,
}

impl JwsAlgorithm {
    /// All algorithms.
    pub const ALL: [Self; 9] = [
        Self::Rs256,
        Self::Rs384,
        Self::Rs512,
        Self::Ps256,
        Self::Ps384,
        Self::Ps512,
        Self::Es256,
        Self::Es384,
        Self::EdDsa,
    ];
    /// Algorithms that are allowed unless an issuer has a list of its own.
    pub const DEFAULT: [Self; 4] = [Self::Rs256, Self::Es256, Self::Ps256, Self::EdDsa];

    /// Returns the algorithm with this JOSE name, such as `ES256`; `None` if there is none.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.name() == name)
    }

    /// Returns the algorithm's JOSE name, such as `ES256`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Rs384 => "RS384",
            Self::Rs512 => "RS512",
            Self::Ps256 => "PS256",
            Self::Ps384 => "PS384",
            Self::Ps512 => "PS512",
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::EdDsa => "EdDSA",
        }
    }

    /// Returns the parameters of an RSA algorithm; `None` for another one.
    fn rsa_parameters(self) -> Option<&'static RsaParameters> {
        match self {
            Self::Rs256 => Some(&RSA_PKCS1_2048_8192_SHA256),
            Self::Rs384 => Some(&RSA_PKCS1_2048_8192_SHA384),
            Self::Rs512 => Some(&RSA_PKCS1_2048_8192_SHA512),
            Self::Ps256 => Some(&RSA_PSS_2048_8192_SHA256),
            Self::Ps384 => Some(&RSA_PSS_2048_8192_SHA384),
            Self::Ps512 => Some(&RSA_PSS_2048_8192_SHA512),
            Self::Es256 | Self::Es384 | Self::EdDsa => None,
        }
    }
}

/// Usable public keys of a token issuer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct JwkSet(Vec<Jwk>);

#[derive(Debug, PartialEq, Eq)]
struct Jwk {
    id: Option<String>,
    /// The only algorithm of the key, if the set states it.
    algorithm: Option<JwsAlgorithm>,
    material: JwkMaterial,
}

#[derive(Debug, PartialEq, Eq)]
enum JwkMaterial {
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
    Rsa { n: Vec<u8>, e: Vec<u8> },
}

impl JwkSet {
    /// Parses a key set. Keys for encryption, of another type or with an algorithm that isn't
    /// supported are skipped. `None` if the text isn't a key set, or exceeds a limit.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let set = parse_document(text)?;
        let keys: Vec<RawObject> = set.read("keys")?;
        (keys.len() <= ISSUER_KEYS_MAX).then(|| Self(keys.iter().filter_map(Jwk::parse).collect()))
    }

    /// Whether a key may have made a signature of this algorithm, by its type and id.
    pub(super) fn has_key(&self, id: Option<&str>, algorithm: JwsAlgorithm) -> bool {
        self.fitting_keys(id, algorithm).next().is_some()
    }

    /// Whether one of the keys that fit made the signature.
    pub(super) fn verify(
        &self,
        id: Option<&str>,
        algorithm: JwsAlgorithm,
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        self.fitting_keys(id, algorithm)
            .take(TOKEN_KEYS_TRIED_MAX)
            .any(|key| key.material.verify(algorithm, message, signature))
    }

    /// Returns the keys of the algorithm's type with this id. Without an id, or if a key has none,
    /// the type alone counts.
    fn fitting_keys<'a>(
        &'a self,
        id: Option<&'a str>,
        algorithm: JwsAlgorithm,
    ) -> impl Iterator<Item = &'a Jwk> {
        self.0.iter().filter(move |key| {
            let same_id = match (&key.id, id) {
                (Some(own), Some(id)) => own == id,
                _ => true,
            };
            let same_algorithm = key.algorithm.is_none_or(|only| only == algorithm);
            same_id && same_algorithm && key.material.fits(algorithm)
        })
    }
}

impl Jwk {
    fn parse(key: &RawObject) -> Option<Self> {
        if key.has("use") && key.text("use").as_deref() != Some("sig") {
            return None;
        }
        if key.has("key_ops") {
            let operations: Vec<String> = key.read("key_ops")?;
            operations
                .iter()
                .any(|name| name == "verify")
                .then_some(())?;
        }
        let algorithm = match key.get("alg") {
            Some(_) => Some(JwsAlgorithm::from_name(&key.text("alg")?)?),
            None => None,
        };
        let material = JwkMaterial::parse(key)?;
        if !algorithm.is_none_or(|algorithm| material.fits(algorithm)) {
            return None;
        }
        Some(Self {
            id: key.text("kid"),
            algorithm,
            material,
        })
    }
}

impl JwkMaterial {
    fn parse(key: &RawObject) -> Option<Self> {
        let bytes = |name: &str| {
            let text = key.text(name)?;
            URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()
        };
        let point = |length: usize| {
            let (x, y) = (bytes("x")?, bytes("y")?);
            (x.len() == length && y.len() == length).then(|| [&[4], &*x, &*y].concat())
        };
        match (key.text("kty")?.as_str(), key.text("crv").as_deref()) {
            ("EC", Some("P-256")) => point(32).map(Self::P256),
            ("EC", Some("P-384")) => point(48).map(Self::P384),
            ("OKP", Some("Ed25519")) => bytes("x").map(Self::Ed25519),
            ("RSA", _) => Some(Self::Rsa {
                n: bytes("n")?,
                e: bytes("e")?,
            }),
            _ => None,
        }
    }

    /// Whether the key's type is that of the algorithm. So a public key is never taken for another
    /// algorithm's, or for a shared secret.
    fn fits(&self, algorithm: JwsAlgorithm) -> bool {
        match self {
            Self::P256(_) => algorithm == JwsAlgorithm::Es256,
            Self::P384(_) => algorithm == JwsAlgorithm::Es384,
            Self::Ed25519(_) => algorithm == JwsAlgorithm::EdDsa,
            Self::Rsa { .. } => algorithm.rsa_parameters().is_some(),
        }
    }

    fn verify(&self, algorithm: JwsAlgorithm, message: &[u8], signature: &[u8]) -> bool {
        let verified =
            match self {
                Self::P256(point) => UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point)
                    .verify(message, signature),
                Self::P384(point) => UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, point)
                    .verify(message, signature),
                Self::Ed25519(x) => UnparsedPublicKey::new(&ED25519, x).verify(message, signature),
                Self::Rsa { n, e } => {
                    let Some(parameters) = algorithm.rsa_parameters() else {
                        return false;
                    };
                    RsaPublicKeyComponents { n, e }.verify(parameters, message, signature)
                }
            };
        verified.is_ok()
    }
}

/// Parses a document of an issuer: one JSON object without duplicate keys, within the limits. `None`
/// if it isn't one.
pub(super) fn parse_document(text: &[u8]) -> Option<RawObject> {
    let limits = DecodeLimits {
        body_bytes_max: ISSUER_DOCUMENT_BYTES_MAX,
        ..DecodeLimits::default()
    };
    serde_json::from_str(check_json(text, &limits).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(keys: &str) -> Option<JwkSet> {
        JwkSet::parse(format!(r#"{{"keys":[{keys}]}}"#).as_bytes())
    }

    /// Goal: a set has the keys that can verify tokens, and no others. Method: rows, each with the
    /// algorithms that its key fits.
    #[test]
    fn usable_keys() {
        let (x, long) = (
            URL_SAFE_NO_PAD.encode([7; 32]),
            URL_SAFE_NO_PAD.encode([7; 48]),
        );
        let all_rsa = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"];
        for (key, fits) in [
            (
                format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{x}"}}"#),
                &["EdDSA"][..],
            ),
            (
                format!(r#"{{"kty":"EC","crv":"P-256","x":"{x}","y":"{x}"}}"#),
                &["ES256"],
            ),
            (
                format!(r#"{{"kty":"EC","crv":"P-384","x":"{long}","y":"{long}"}}"#),
                &["ES384"],
            ),
            (r#"{"kty":"RSA","n":"AQAB","e":"AQAB"}"#.into(), &all_rsa),
            (
                r#"{"kty":"RSA","n":"AQAB","e":"AQAB","alg":"PS256","use":"sig"}"#.into(),
                &["PS256"],
            ),
            (
                r#"{"kty":"RSA","n":"AQAB","e":"AQAB","key_ops":["verify"]}"#.into(),
                &all_rsa,
            ),
            (
                r#"{"kty":"RSA","n":"AQAB","e":"AQAB","key_ops":["encrypt"]}"#.into(),
                &[],
            ),
            (
                r#"{"kty":"RSA","n":"AQAB","e":"AQAB","use":"enc"}"#.into(),
                &[],
            ),
            (
                r#"{"kty":"RSA","n":"AQAB","e":"AQAB","alg":"HS256"}"#.into(),
                &[],
            ),
            (
                r#"{"kty":"RSA","n":"AQAB","e":"AQAB","alg":"ES256"}"#.into(),
                &[],
            ),
            (
                format!(r#"{{"kty":"EC","crv":"P-256","x":"{x}","y":"AQ"}}"#),
                &[],
            ),
            (
                format!(r#"{{"kty":"EC","crv":"secp256k1","x":"{x}","y":"{x}"}}"#),
                &[],
            ),
            (format!(r#"{{"kty":"oct","k":"{x}"}}"#), &[]),
            (format!(r#"{{"kty":"oct","k":"{x}","alg":"HS256"}}"#), &[]),
        ] {
            let set = set(&key).unwrap();
            for algorithm in JwsAlgorithm::ALL {
                let fits = fits.contains(&algorithm.name());
                assert_eq!(set.has_key(None, algorithm), fits, "{key} {algorithm:?}");
            }
        }
    }

    /// Goal: keys are found by their ids. Method: keys with and without one.
    #[test]
    fn ids() {
        let key = |id: &str| format!(r#"{{"kty":"RSA","n":"AQAB","e":"AQAB"{id}}}"#);
        let named = set(&key(r#","kid":"a""#)).unwrap();
        let has = |set: &JwkSet, id| set.has_key(id, JwsAlgorithm::Rs256);
        assert!(has(&named, Some("a")) && has(&named, None) && !has(&named, Some("b")));
        let nameless = set(&key("")).unwrap();
        assert!(has(&nameless, Some("a")) && has(&nameless, None));
    }

    /// Goal: a set within the limits is read, a larger one isn't. Method: each limit, and one more.
    #[test]
    fn limits() {
        let key = r#"{"kty":"RSA","n":"AQAB","e":"AQAB"}"#;
        assert!(set(&vec![key; ISSUER_KEYS_MAX].join(",")).is_some());
        assert!(set(&vec![key; ISSUER_KEYS_MAX + 1].join(",")).is_none());
        let padded = |bytes: usize| format!(r#"{{"keys":[]{}}}"#, " ".repeat(bytes - 11));
        assert!(JwkSet::parse(padded(ISSUER_DOCUMENT_BYTES_MAX).as_bytes()).is_some());
        assert!(JwkSet::parse(padded(ISSUER_DOCUMENT_BYTES_MAX + 1).as_bytes()).is_none());
        for wrong in ["[]", r#"{"keys":{}}"#, r#"{"keys":[],"keys":[]}"#, "{}", ""] {
            assert!(JwkSet::parse(wrong.as_bytes()).is_none(), "{wrong}");
        }
    }

    /// Goal: only so many keys without ids are tried for a token. Method: the right key as the last
    /// one within the limit, and after it.
    #[test]
    fn few_keys_are_tried() {
        use ring::signature::{Ed25519KeyPair, KeyPair};
        let pair = Ed25519KeyPair::from_seed_unchecked(&[1; 32]).unwrap();
        let key = |x: &[u8]| {
            let x = URL_SAFE_NO_PAD.encode(x);
            format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{x}"}}"#)
        };
        let other = Ed25519KeyPair::from_seed_unchecked(&[2; 32]).unwrap();
        let signature = pair.sign(b"m");
        for (others, verified) in [
            (TOKEN_KEYS_TRIED_MAX - 1, true),
            (TOKEN_KEYS_TRIED_MAX, false),
        ] {
            let mut keys = vec![key(other.public_key().as_ref()); others];
            keys.push(key(pair.public_key().as_ref()));
            let set = set(&keys.join(",")).unwrap();
            let found = set.verify(None, JwsAlgorithm::EdDsa, b"m", signature.as_ref());
            assert_eq!(found, verified, "{others}");
        }
    }
}
