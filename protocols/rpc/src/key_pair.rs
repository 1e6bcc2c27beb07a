//! Signing keys: of OAuth clients for authorization servers, and of agents for their cards.

use derive_more::Debug;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret, SecretString};

/// Signature algorithm of a [`KeyPair`] (RFC 7518, RFC 8037).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SigningAlgorithm {
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// ECDSA on P-384 with SHA-384.
    Es384,
    /// RSASSA-PKCS1-v1_5 with SHA-256, for keys of 2,048 bits or more.
    Rs256,
    /// Ed25519.
    EdDsa,
}

impl SigningAlgorithm {
    /// All algorithms.
    pub const ALL: [Self; 4] = [Self::Es256, Self::Es384, Self::Rs256, Self::EdDsa];

    /// Returns the algorithm with the given JOSE name, such as `ES256`; `None` if there is none.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.name() == name)
    }

    /// Returns the algorithm's JOSE name, such as `ES256`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Es256 => "ES256",
            Self::Es384 => "ES384",
            Self::Rs256 => "RS256",
            Self::EdDsa => "EdDSA",
        }
    }
}

/// Error of a [`KeyPair`]: the text is no PKCS#8 key in PEM (`-----BEGIN PRIVATE KEY-----`), the
/// key doesn't fit the algorithm, or signing failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the signing key must be an unencrypted PKCS#8 key in PEM (`BEGIN PRIVATE KEY`) that fits its algorithm"
)]
pub struct KeyPairError;

/// Asymmetric key pair for signatures. `Debug` never prints the private key.
#[derive(Debug)]
pub struct KeyPair {
    #[debug(skip)]
    pair: PrivateKey,
    algorithm: SigningAlgorithm,
}

enum PrivateKey {
    Ecdsa(EcdsaKeyPair),
    Rsa(RsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl KeyPair {
    /// Parses a private key from PKCS#8 in PEM (`-----BEGIN PRIVATE KEY-----`).
    ///
    /// # Errors
    /// [`KeyPairError`] if the text is no such key, or the key doesn't fit the algorithm.
    pub fn from_pem(pem: &SecretString, algorithm: SigningAlgorithm) -> Result<Self, KeyPairError> {
        let der = decode_pkcs8(pem.expose_secret()).ok_or(KeyPairError)?;
        let ecdsa = |curve: &'static EcdsaSigningAlgorithm| {
            EcdsaKeyPair::from_pkcs8(curve, &der, &SystemRandom::new()).map(PrivateKey::Ecdsa)
        };
        let pair = match algorithm {
            SigningAlgorithm::Es256 => ecdsa(&ECDSA_P256_SHA256_FIXED_SIGNING),
            SigningAlgorithm::Es384 => ecdsa(&ECDSA_P384_SHA384_FIXED_SIGNING),
            SigningAlgorithm::Rs256 => RsaKeyPair::from_pkcs8(&der).map(PrivateKey::Rsa),
            SigningAlgorithm::EdDsa => {
                Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der).map(PrivateKey::Ed25519)
            }
        };
        Ok(Self {
            pair: pair.map_err(|_| KeyPairError)?,
            algorithm,
        })
    }

    /// Returns the signature algorithm.
    #[must_use]
    pub fn algorithm(&self) -> SigningAlgorithm {
        self.algorithm
    }

    /// Signs a message and returns the signature in JWS form (RFC 7518, section 3.4: for ECDSA, r
    /// followed by s).
    ///
    /// # Errors
    /// [`KeyPairError`] if signing fails, for example if the system has no random numbers.
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyPairError> {
        let rng = SystemRandom::new();
        match &self.pair {
            PrivateKey::Ecdsa(pair) => pair
                .sign(&rng, message)
                .map(|s| s.as_ref().to_vec())
                .map_err(|_| KeyPairError),
            PrivateKey::Ed25519(pair) => Ok(pair.sign(message).as_ref().to_vec()),
            PrivateKey::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &rng, message, &mut signature)
                    .map_err(|_| KeyPairError)?;
                Ok(signature)
            }
        }
    }

    /// Returns the members of the public key's JWK that its thumbprint requires, as names and
    /// values in the required order (RFC 7638, section 3.2). The values need no escapes in JSON.
    #[must_use]
    pub fn public_members(&self) -> Vec<(&'static str, String)> {
        let encoded = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match &self.pair {
            PrivateKey::Ecdsa(pair) => {
                // An uncompressed point: 0x04, x, y (SEC 1, section 2.3.3).
                let point = pair.public_key().as_ref().get(1..).unwrap_or_default();
                let (x, y) = point.split_at(point.len() / 2);
                let curve = if self.algorithm == SigningAlgorithm::Es384 {
                    "P-384"
                } else {
                    "P-256"
                };
                vec![
                    ("crv", curve.to_owned()),
                    ("kty", "EC".to_owned()),
                    ("x", encoded(x)),
                    ("y", encoded(y)),
                ]
            }
            PrivateKey::Ed25519(pair) => {
                let x = encoded(pair.public_key().as_ref());
                vec![
                    ("crv", "Ed25519".to_owned()),
                    ("kty", "OKP".to_owned()),
                    ("x", x),
                ]
            }
            PrivateKey::Rsa(pair) => {
                let key = PublicKeyComponents::<Vec<u8>>::from(pair.public());
                vec![
                    ("e", encoded(&key.e)),
                    ("kty", "RSA".to_owned()),
                    ("n", encoded(&key.n)),
                ]
            }
        }
    }
}

fn decode_pkcs8(pem: &str) -> Option<Zeroizing<Vec<u8>>> {
    let (_, rest) = pem.split_once("-----BEGIN PRIVATE KEY-----")?;
    let (body, _) = rest.split_once("-----END PRIVATE KEY-----")?;
    let base64: Zeroizing<String> = Zeroizing::new(body.split_ascii_whitespace().collect());
    STANDARD.decode(base64.as_bytes()).ok().map(Zeroizing::new)
}

#[cfg(test)]
mod tests {
    use ring::signature::{
        ECDSA_P256_SHA256_FIXED, ED25519, UnparsedPublicKey, VerificationAlgorithm,
    };

    use super::*;

    fn pem(der: &[u8]) -> SecretString {
        format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
            STANDARD.encode(der)
        )
        .into()
    }

    /// Goal: signatures verify with the published members of the public key, and the private key
    /// isn't printed. Method: a fresh key of each kind that can be made here.
    #[test]
    fn signatures_verify_by_the_public_members() {
        let rng = SystemRandom::new();
        let ecdsa =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &rng).expect("a key");
        let ed25519 = Ed25519KeyPair::generate_pkcs8(&rng).expect("a key");
        let rows: [(&[u8], _, &'static dyn VerificationAlgorithm, _); 2] = [
            (
                ecdsa.as_ref(),
                SigningAlgorithm::Es256,
                &ECDSA_P256_SHA256_FIXED,
                "crv kty x y",
            ),
            (
                ed25519.as_ref(),
                SigningAlgorithm::EdDsa,
                &ED25519,
                "crv kty x",
            ),
        ];
        for (der, algorithm, verification, names) in rows {
            let key = KeyPair::from_pem(&pem(der), algorithm).expect("a key");
            let members = key.public_members();
            let found: Vec<_> = members.iter().map(|(name, _)| *name).collect();
            assert_eq!(found.join(" "), names);
            let mut public = if names.ends_with('y') {
                vec![4]
            } else {
                Vec::new()
            };
            for (_, value) in members.iter().skip(2) {
                public.extend(URL_SAFE_NO_PAD.decode(value).expect("base64url"));
            }
            let public = UnparsedPublicKey::new(verification, public);
            let signature = key.sign(b"a card").expect("a signature");
            assert!(
                public.verify(b"a card", &signature).is_ok()
                    && public.verify(b"a cord", &signature).is_err()
            );
            assert!(!format!("{key:?}").contains(&STANDARD.encode(der)[..16]));
        }
    }

    /// Goal: a key that doesn't fit is reported at configuration. Method: no PEM, no key in it,
    /// another algorithm's.
    #[test]
    fn unfit_keys_are_refused() {
        let ed25519 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
        for algorithm in SigningAlgorithm::ALL {
            for text in [
                "",
                "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----",
                "-----BEGIN PRIVATE KEY-----",
            ] {
                assert!(KeyPair::from_pem(&text.into(), algorithm).is_err());
            }
            assert_eq!(
                KeyPair::from_pem(&pem(ed25519.as_ref()), algorithm).is_ok(),
                algorithm == SigningAlgorithm::EdDsa
            );
            assert_eq!(
                SigningAlgorithm::from_name(algorithm.name()),
                Some(algorithm)
            );
        }
        assert_eq!(
            (
                SigningAlgorithm::from_name("none"),
                SigningAlgorithm::from_name("HS256")
            ),
            (None, None)
        );
    }
}
