use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use callboard_message::RawObject;
use callboard_rpc::KeyPair;
use reqwest::Url;
use reqwest::header::HeaderValue;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use url::form_urlencoded::byte_serialize;

use super::discovery::{Server, is_listed};
use super::fetch::Fetch;
use super::{AuthError, Document};

pub use callboard_rpc::SigningAlgorithm;

/// A client that an authorization server knows (RFC 6749, section 2.2).
#[derive(Debug, Clone)]
pub struct Client {
    id: String,
    proof: Proof,
}

/// How a client proves itself at the token endpoint.
#[derive(Debug, Clone)]
pub(crate) enum Proof {
    /// A public client: not at all.
    None,
    /// By a secret; `method` is what the authorization server told this client to use.
    Secret {
        secret: SecretString,
        method: Option<String>,
    },
    /// By a signature.
    Key(Arc<SigningKey>),
}

impl Client {
    /// A client without a secret, like every program on somebody's desk.
    #[must_use]
    pub fn public(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            proof: Proof::None,
        }
    }

    /// A client with a secret. It is sent in the way that the authorization server's metadata ask for: HTTP Basic
    /// before the request's body.
    #[must_use]
    pub fn with_secret(id: impl Into<String>, secret: SecretString) -> Self {
        Self {
            id: id.into(),
            proof: Proof::Secret {
                secret,
                method: None,
            },
        }
    }

    /// A client with a private key (`private_key_jwt`, RFC 7523): the key never leaves this process.
    #[must_use]
    pub fn with_key(id: impl Into<String>, key: SigningKey) -> Self {
        Self {
            id: id.into(),
            proof: Proof::Key(Arc::new(key)),
        }
    }

    /// Its identifier.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What a token request to `issuer` carries to say, and prove, who sends it; `methods` are those that it takes, if it
    /// says so.
    pub(crate) fn proven_to(
        &self,
        issuer: &str,
        methods: Option<&[String]>,
    ) -> Result<Proven, AuthError> {
        let mut proven = Proven {
            fields: vec![("client_id", self.id.as_str().into())],
            authorization: None,
        };
        match &self.proof {
            Proof::None => {}
            Proof::Key(key) => {
                let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
                proven.fields.push(("client_assertion_type", kind.into()));
                proven
                    .fields
                    .push(("client_assertion", key.assertion(&self.id, issuer)?));
            }
            Proof::Secret { secret, method } => {
                // What this client was told, else the safest that the server takes; a server that doesn't say takes Basic
                // (RFC 8414).
                let takes = |name: &str| match (method, methods) {
                    (Some(told), _) => told == name,
                    (None, Some(list)) => is_listed(list, name),
                    (None, None) => name == BASIC,
                };
                if takes(BASIC) {
                    proven = Proven {
                        fields: Vec::new(),
                        authorization: Some(basic(&self.id, secret)?),
                    };
                } else if takes(POST) {
                    proven.fields.push(("client_secret", secret.clone()));
                }
            }
        }
        Ok(proven)
    }
}

/// The part of a token request that is about the client.
pub(crate) struct Proven {
    fields: Vec<(&'static str, SecretString)>,
    pub authorization: Option<HeaderValue>,
}

impl Proven {
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields
            .iter()
            .map(|(name, value)| (*name, value.expose_secret()))
    }
}

const BASIC: &str = "client_secret_basic";
const POST: &str = "client_secret_post";

/// RFC 6749, section 2.3.1: both parts are form-encoded before they are joined.
fn basic(id: &str, secret: &SecretString) -> Result<HeaderValue, AuthError> {
    let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    let pair = SecretString::from(format!(
        "{}:{}",
        encoded(id),
        encoded(secret.expose_secret())
    ));
    let value = SecretString::from(format!("Basic {}", STANDARD.encode(pair.expose_secret())));
    let mut header = HeaderValue::from_str(value.expose_secret()).map_err(|_| AuthError::Token)?;
    header.set_sensitive(true);
    Ok(header)
}

/// How long a signed assertion counts. Long enough for clocks that differ a little.
const ASSERTION_LIFETIME_S: u64 = 60;

/// 256 random bits as text that fits a URL.
pub(crate) fn random_text() -> Result<SecretString, AuthError> {
    let mut bytes = Zeroizing::new([0_u8; 32]);
    SystemRandom::new()
        .fill(bytes.as_mut())
        .map_err(|_| AuthError::Randomness)?;
    Ok(SecretString::from(URL_SAFE_NO_PAD.encode(bytes.as_ref())))
}

/// The `S256` challenge to a PKCE verifier (RFC 7636, section 4.2).
pub(crate) fn s256(verifier: &SecretString) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.expose_secret().as_bytes()))
}

/// A private key that proves who the client is (`private_key_jwt`, RFC 7523). Never printed.
pub struct SigningKey {
    pair: KeyPair,
    key_id: Option<String>,
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
    fn assertion(&self, client_id: &str, audience: &str) -> Result<SecretString, AuthError> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let jti = random_text()?;
        let mut header = RawObject::of("alg", self.pair.algorithm().name()).with("typ", "JWT");
        header.set_some("kid", &self.key_id);
        let claims = RawObject::of("iss", client_id)
            .with("sub", client_id)
            .with("aud", audience)
            .with("jti", jti.expose_secret())
            .with("iat", now)
            .with("exp", now + ASSERTION_LIFETIME_S);
        let [header, claims] =
            [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_raw().get()));
        let signed = format!("{header}.{claims}");
        let signature = self
            .pair
            .sign(signed.as_bytes())
            .map_err(|_| AuthError::Key)?;
        Ok(SecretString::from(format!(
            "{signed}.{}",
            URL_SAFE_NO_PAD.encode(signature)
        )))
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey")
            .field("algorithm", &self.pair.algorithm())
            .finish_non_exhaustive()
    }
}

/// How many authorization servers' registrations are kept for one upstream.
const REGISTRATIONS_MAX: usize = 8;

/// A client that was registered beforehand.
#[derive(Debug, Clone)]
pub struct KnownClient {
    /// The client.
    pub client: Client,
    /// The issuer where it is registered, as its metadata spell it. It is shown to nobody else. Without it, the
    /// authorization server that the upstream names first is taken for it, so give it for a client with a secret.
    pub issuer: Option<String>,
}

/// Who we may be to authorization servers where people consent.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Registered beforehand; then it is this or nothing.
    pub known: Option<KnownClient>,
    /// An https URL with a path, at which you publish who we are (client-id metadata document), with this URL as its
    /// `client_id` and the consent's redirect URI among its `redirect_uris`.
    pub document: Option<Url>,
    /// The name under which to register dynamically; `None`: never.
    pub register_as: Option<String>,
}

impl Default for Identity {
    /// Registers dynamically as "callboard".
    fn default() -> Self {
        Self {
            known: None,
            document: None,
            register_as: Some("callboard".to_owned()),
        }
    }
}

impl Identity {
    pub(crate) fn check(&self) -> Result<(), AuthError> {
        let fits =
            |url: &Url| url.scheme() == "https" && url.path() != "/" && url.fragment().is_none();
        if self.document.as_ref().is_none_or(fits) {
            Ok(())
        } else {
            Err(AuthError::ClientIdDocument)
        }
    }
}

/// The clients that we are, each bound to the issuer that knows it.
#[derive(Debug, Default)]
pub(crate) struct Registrations {
    /// Whose the client of the configuration is, where the configuration doesn't say.
    known_to: Option<String>,
    dynamic: Vec<Registered>,
}

#[derive(Debug)]
struct Registered {
    issuer: String,
    client: Client,
    /// In seconds since 1970.
    expires_at: Option<u64>,
}

impl Registrations {
    /// Who we are to `server`; registers where need be.
    pub async fn client(
        &mut self,
        fetch: &Fetch,
        server: &Server,
        identity: &Identity,
        redirect_uri: &str,
    ) -> Result<Client, AuthError> {
        if let Some(known) = &identity.known {
            return self.known(known, server);
        }
        if let (true, Some(document)) = (
            server.client_id_metadata_document_supported,
            &identity.document,
        ) {
            return Ok(Client::public(document.as_str()));
        }
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        self.dynamic
            .retain(|registered| registered.expires_at.is_none_or(|at| at > now));
        if let Some(registered) = self
            .dynamic
            .iter()
            .find(|registered| registered.issuer == server.issuer)
        {
            return Ok(registered.client.clone());
        }
        let (Some(endpoint), Some(name)) = (&server.registration_endpoint, &identity.register_as)
        else {
            return Err(AuthError::NoRegistration);
        };
        let registered = register(fetch, endpoint, server, name, redirect_uri).await?;
        let client = registered.client.clone();
        if self.dynamic.len() == REGISTRATIONS_MAX {
            self.dynamic.remove(0);
        }
        self.dynamic.push(registered);
        Ok(client)
    }

    /// `issuer` doesn't know us any more.
    pub fn forget(&mut self, issuer: &str) {
        self.dynamic
            .retain(|registered| registered.issuer != issuer);
    }

    /// The configured client, if it is `server`'s.
    pub fn known(&mut self, known: &KnownClient, server: &Server) -> Result<Client, AuthError> {
        let its_issuer = match &known.issuer {
            Some(issuer) => issuer,
            None => self.known_to.get_or_insert_with(|| server.issuer.clone()),
        };
        if *its_issuer == server.issuer {
            Ok(known.client.clone())
        } else {
            Err(AuthError::ForeignClient)
        }
    }
}

#[derive(Deserialize)]
struct Response {
    client_id: String,
    client_secret: Option<SecretString>,
    /// 0: never.
    client_secret_expires_at: Option<u64>,
    token_endpoint_auth_method: Option<String>,
}

async fn register(
    fetch: &Fetch,
    endpoint: &str,
    server: &Server,
    name: &str,
    redirect_uri: &str,
) -> Result<Registered, AuthError> {
    let document = Document::Registration;
    let endpoint = fetch.url(endpoint, document)?;
    let request = RawObject::of("client_name", name)
        .with("redirect_uris", [redirect_uri])
        .with("grant_types", ["authorization_code", "refresh_token"])
        .with("response_types", ["code"])
        .with("token_endpoint_auth_method", method_for(server))
        .with("application_type", application_type(redirect_uri));
    let body = request.to_raw().get().into();
    let answer = fetch.post_json(&endpoint, document, body).await?;
    let response: Response = answer.accepted()?;
    let proof = match response.client_secret {
        Some(secret) => Proof::Secret {
            secret,
            method: response.token_endpoint_auth_method,
        },
        None => Proof::None,
    };
    Ok(Registered {
        issuer: server.issuer.clone(),
        client: Client {
            id: response.client_id,
            proof,
        },
        expires_at: response.client_secret_expires_at.filter(|at| *at != 0),
    })
}

/// We have nowhere to keep a secret from the machine's owner, so without one where the server lets us; a server that
/// doesn't say wants Basic (RFC 8414).
fn method_for(server: &Server) -> &'static str {
    let Some(methods) = &server.token_endpoint_auth_methods_supported else {
        return BASIC;
    };
    ["none", BASIC, POST]
        .into_iter()
        .find(|known| is_listed(methods, known))
        .unwrap_or("none")
}

fn application_type(redirect_uri: &str) -> &'static str {
    let native = Url::parse(redirect_uri).is_ok_and(|url| url.scheme() != "https");
    if native { "native" } else { "web" }
}

#[cfg(test)]
mod client_tests {
    use super::*;

    /// Goal: a secret goes the way that the server wants, Basic first. Method: a table of servers.
    #[test]
    fn secret_goes_as_the_server_wants() -> Result<(), AuthError> {
        let told = |method: &str| Client {
            id: "me".to_owned(),
            proof: Proof::Secret {
                secret: "s3cret".into(),
                method: Some(method.to_owned()),
            },
        };
        let untold = Client::with_secret("me", "s3cret".into());
        for (client, methods, in_header, fields) in [
            (&untold, None, true, vec![]),
            (&untold, Some(&[POST, BASIC][..]), true, vec![]),
            (
                &untold,
                Some(&[POST]),
                false,
                vec![("client_id", "me"), ("client_secret", "s3cret")],
            ),
            (&untold, Some(&["none"]), false, vec![("client_id", "me")]),
            (
                &told(POST),
                Some(&[BASIC]),
                false,
                vec![("client_id", "me"), ("client_secret", "s3cret")],
            ),
            (&told("none"), None, false, vec![("client_id", "me")]),
            (
                &Client::public("me"),
                None,
                false,
                vec![("client_id", "me")],
            ),
        ] {
            let listed = methods.map(|list| {
                list.iter()
                    .map(|&method| method.to_owned())
                    .collect::<Vec<_>>()
            });
            let proven = client.proven_to("https://a.example", listed.as_deref())?;
            assert_eq!(proven.authorization.is_some(), in_header, "{methods:?}");
            assert_eq!(proven.fields().collect::<Vec<_>>(), fields, "{methods:?}");
            assert!(!format!("{client:?} {:?}", proven.authorization).contains("s3cret"));
        }
        Ok(())
    }

    /// Goal: Basic is encoded as the RFC says. Method: characters that form encoding changes.
    #[test]
    fn basic_is_form_encoded() -> Result<(), AuthError> {
        let header = basic("a:b", &"c d%".into())?;
        let encoded = header
            .to_str()
            .ok()
            .and_then(|value| value.strip_prefix("Basic "))
            .expect("Basic");
        assert_eq!(STANDARD.decode(encoded).expect("base64"), b"a%3Ab:c+d%25");
        Ok(())
    }
}

#[cfg(test)]
mod keys_tests {
    use base64::engine::general_purpose::STANDARD;
    use ring::signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
        UnparsedPublicKey,
    };
    use serde_json::{Value, json};

    use super::*;

    /// Goal: the challenge is the RFC's. Method: the example of RFC 7636, appendix B.
    #[test]
    fn challenge_is_the_one_of_the_rfc() {
        let verifier = SecretString::from("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk");
        assert_eq!(
            s256(&verifier),
            "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
        );
    }

    /// Goal: an assertion proves the client to one server, once, for a minute. Method: take it apart and verify it.
    #[test]
    fn assertion_is_signed_and_bound() -> Result<(), AuthError> {
        let der =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
                .expect("a key");
        let body = STANDARD.encode(&der);
        let pem = SecretString::from(format!(
            "-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n"
        ));
        let key = SigningKey::from_pem(&pem, SigningAlgorithm::Es256, Some("k1".to_owned()))?;
        assert!(!format!("{key:?}").contains(&body[..16]));

        let (first, second) = (
            key.assertion("me", "https://a.example")?,
            key.assertion("me", "https://a.example")?,
        );
        assert_ne!(first.expose_secret(), second.expose_secret());
        let text = first.expose_secret();
        let (signed, signature) = text.rsplit_once('.').expect("three parts");
        let pair = EcdsaKeyPair::from_pkcs8(
            &ECDSA_P256_SHA256_FIXED_SIGNING,
            der.as_ref(),
            &SystemRandom::new(),
        );
        UnparsedPublicKey::new(
            &ECDSA_P256_SHA256_FIXED,
            pair.expect("the key").public_key().as_ref(),
        )
        .verify(
            signed.as_bytes(),
            &URL_SAFE_NO_PAD.decode(signature).expect("base64"),
        )
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
        assert_eq!(
            claims["exp"].as_u64(),
            claims["iat"].as_u64().map(|iat| iat + ASSERTION_LIFETIME_S)
        );
        Ok(())
    }

    /// Goal: a key that doesn't fit is told when it is configured. Method: no PEM, no key in it, another algorithm's.
    #[test]
    fn unfit_keys_are_refused() {
        for pem in [
            "",
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----",
            "-----BEGIN PRIVATE KEY-----",
        ] {
            for name in ["ES256", "ES384", "RS256", "EdDSA"] {
                let algorithm = SigningAlgorithm::named(name).expect(name);
                assert!(matches!(
                    SigningKey::from_pem(&pem.into(), algorithm, None),
                    Err(AuthError::Key)
                ));
            }
        }
    }
}
