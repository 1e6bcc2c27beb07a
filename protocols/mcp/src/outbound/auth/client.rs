use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use callboard_message::RawObject;
use callboard_rpc::{KeyPair, basic_authorization};
use reqwest::Url;
use reqwest::header::HeaderValue;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use super::discovery::{AuthorizationServer, is_listed};
use super::fetch::OAuthHttpClient;
use super::{AuthError, OAuthDocument};

pub use callboard_rpc::SigningAlgorithm;

/// Client registered at an authorization server (RFC 6749, section 2.2).
#[derive(Debug, Clone)]
pub struct OAuthClient {
    id: String,
    proof: ClientSecret,
}

/// Method and secret by which a client authenticates at the token endpoint.
#[derive(Debug, Clone)]
pub(crate) enum ClientSecret {
    /// Public client: no authentication.
    None,
    /// Shared secret. `method` is the authentication method assigned in the response to a dynamic
    /// registration, if any.
    Secret {
        secret: SecretString,
        method: Option<String>,
    },
    /// Private key that signs an assertion for each token request (`private_key_jwt`).
    Key(Arc<ClientSigningKey>),
}

impl OAuthClient {
    /// Creates a public client: one that can't keep a secret, such as a program on a user's
    /// machine.
    #[must_use]
    pub fn public(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            proof: ClientSecret::None,
        }
    }

    /// Creates a client with a secret. The secret is sent by a method that the authorization server
    /// lists in its metadata: HTTP Basic if listed, otherwise in the request's body.
    #[must_use]
    pub fn with_secret(id: impl Into<String>, secret: SecretString) -> Self {
        Self {
            id: id.into(),
            proof: ClientSecret::Secret {
                secret,
                method: None,
            },
        }
    }

    /// Creates a client with a private key (`private_key_jwt`, RFC 7523). The key never leaves this
    /// process.
    #[must_use]
    pub fn with_key(id: impl Into<String>, key: ClientSigningKey) -> Self {
        Self {
            id: id.into(),
            proof: ClientSecret::Key(Arc::new(key)),
        }
    }

    /// Returns the client identifier.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the form fields and the header that identify and authenticate the client in a token
    /// request to `issuer`. `methods` lists the authentication methods that the server has
    /// published, if any.
    pub(crate) fn authenticate_to(
        &self,
        issuer: &str,
        methods: Option<&[String]>,
    ) -> Result<ClientAuthentication, AuthError> {
        let mut proven = ClientAuthentication {
            fields: vec![("client_id", self.id.as_str().into())],
            authorization: None,
        };
        match &self.proof {
            ClientSecret::None => {}
            ClientSecret::Key(key) => {
                let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
                proven.fields.push(("client_assertion_type", kind.into()));
                proven
                    .fields
                    .push(("client_assertion", key.assertion(&self.id, issuer)?));
            }
            ClientSecret::Secret { secret, method } => {
                // The method assigned at registration, otherwise the safest one that the server
                // lists. Without a list, the server accepts Basic (RFC 8414).
                let takes = |name: &str| match (method, methods) {
                    (Some(assigned), _) => assigned == name,
                    (None, Some(list)) => is_listed(list, name),
                    (None, None) => name == CLIENT_SECRET_BASIC,
                };
                if takes(CLIENT_SECRET_BASIC) {
                    let header = basic_authorization(&self.id, secret);
                    proven = ClientAuthentication {
                        fields: Vec::new(),
                        authorization: Some(header.map_err(|_| AuthError::Token)?),
                    };
                } else if takes(CLIENT_SECRET_POST) {
                    proven.fields.push(("client_secret", secret.clone()));
                }
            }
        }
        Ok(proven)
    }
}

/// Form fields and header that identify and authenticate the client in a token request.
pub(crate) struct ClientAuthentication {
    fields: Vec<(&'static str, SecretString)>,
    pub authorization: Option<HeaderValue>,
}

impl ClientAuthentication {
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.fields
            .iter()
            .map(|(name, value)| (*name, value.expose_secret()))
    }
}

const CLIENT_SECRET_BASIC: &str = "client_secret_basic";
const CLIENT_SECRET_POST: &str = "client_secret_post";

/// Lifetime of a signed client assertion, in seconds; long enough for small clock differences.
const ASSERTION_LIFETIME_S: u64 = 60;

/// Returns 256 random bits in URL-safe Base64.
pub(crate) fn random_token() -> Result<SecretString, AuthError> {
    let mut bytes = Zeroizing::new([0_u8; 32]);
    SystemRandom::new()
        .fill(bytes.as_mut())
        .map_err(|_| AuthError::Randomness)?;
    Ok(SecretString::from(URL_SAFE_NO_PAD.encode(bytes.as_ref())))
}

/// Returns the `S256` challenge of a PKCE verifier (RFC 7636, section 4.2).
pub(crate) fn pkce_challenge(verifier: &SecretString) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.expose_secret().as_bytes()))
}

/// Private key for client authentication (`private_key_jwt`, RFC 7523). Never logged.
pub struct ClientSigningKey {
    pair: KeyPair,
    key_id: Option<String>,
}

impl ClientSigningKey {
    /// Parses a PKCS#8 key in PEM (`-----BEGIN PRIVATE KEY-----`). `key_id` becomes the JWT's
    /// `kid`.
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

    /// Signs a new JWT that authenticates the client `client_id`. It is valid for
    /// [`ASSERTION_LIFETIME_S`] and for `audience` only.
    fn assertion(&self, client_id: &str, audience: &str) -> Result<SecretString, AuthError> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let jti = random_token()?;
        let mut header = RawObject::single("alg", self.pair.algorithm().name()).with("typ", "JWT");
        header.set_some("kid", &self.key_id);
        let claims = RawObject::single("iss", client_id)
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

impl fmt::Debug for ClientSigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientSigningKey")
            .field("algorithm", &self.pair.algorithm())
            .finish_non_exhaustive()
    }
}

/// Maximum number of dynamic client registrations kept for one upstream. Beyond it, the oldest is
/// dropped.
const REGISTRATIONS_MAX: usize = 8;

/// Client that was registered at an authorization server in advance.
#[derive(Debug, Clone)]
pub struct PreregisteredClient {
    /// The registered client.
    pub client: OAuthClient,
    /// Issuer at which the client is registered, spelled as in the metadata of that authorization
    /// server. The client is used at no other. If `None`, the client is bound to the first
    /// authorization server that the upstream names. Set it for a client with a secret.
    pub issuer: Option<String>,
}

/// Sources of the client identity at authorization servers that ask for a user's consent, in order
/// of precedence.
#[derive(Debug, Clone)]
pub struct ClientIdentity {
    /// A client registered in advance. If set, no other source is used.
    pub preregistered: Option<PreregisteredClient>,
    /// URL of a client-id metadata document that you publish: https, with a path. The document must
    /// contain this URL as `client_id`, and the redirect URI of the
    /// [`ConsentProvider`](super::ConsentProvider) in `redirect_uris`.
    pub metadata_document_url: Option<Url>,
    /// Client name for dynamic registration. If `None`, the client isn't registered dynamically.
    pub registration_name: Option<String>,
}

impl Default for ClientIdentity {
    /// Identity that is registered dynamically with the client name "callboard".
    fn default() -> Self {
        Self {
            preregistered: None,
            metadata_document_url: None,
            registration_name: Some("callboard".to_owned()),
        }
    }
}

impl ClientIdentity {
    pub(crate) fn validate(&self) -> Result<(), AuthError> {
        let fits =
            |url: &Url| url.scheme() == "https" && url.path() != "/" && url.fragment().is_none();
        if self.metadata_document_url.as_ref().is_none_or(fits) {
            Ok(())
        } else {
            Err(AuthError::ClientIdDocument)
        }
    }
}

/// Client registrations of one upstream, each bound to the issuer of its authorization server.
#[derive(Debug, Default)]
pub(crate) struct ClientRegistrations {
    /// Issuer to which the preregistered client was bound at its first use, because the
    /// configuration names none.
    known_to: Option<String>,
    dynamic: Vec<RegisteredClient>,
}

#[derive(Debug)]
struct RegisteredClient {
    issuer: String,
    client: OAuthClient,
    /// Expiry in seconds since 1970; `None` if the registration never expires.
    expires_at: Option<u64>,
}

impl ClientRegistrations {
    /// Returns the client to use at `server`: the preregistered one, otherwise the client-id
    /// metadata document, otherwise a dynamic registration. Fails with
    /// [`AuthError::NoRegistration`] if none is possible.
    pub async fn client_for(
        &mut self,
        fetch: &OAuthHttpClient,
        server: &AuthorizationServer,
        identity: &ClientIdentity,
        redirect_uri: &str,
    ) -> Result<OAuthClient, AuthError> {
        if let Some(known) = &identity.preregistered {
            return self.preregistered_client(known, server);
        }
        if let (true, Some(document)) = (
            server.client_id_metadata_document_supported,
            &identity.metadata_document_url,
        ) {
            return Ok(OAuthClient::public(document.as_str()));
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
        let (Some(endpoint), Some(name)) =
            (&server.registration_endpoint, &identity.registration_name)
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

    /// Removes the dynamic registration at `issuer`, because that server no longer knows the
    /// client.
    pub fn forget(&mut self, issuer: &str) {
        self.dynamic
            .retain(|registered| registered.issuer != issuer);
    }

    /// Returns the preregistered client `known` if it is bound to the issuer of `server`. A client
    /// without a configured issuer is bound to the first server. Fails with
    /// [`AuthError::ForeignClient`] for any other server.
    pub fn preregistered_client(
        &mut self,
        known: &PreregisteredClient,
        server: &AuthorizationServer,
    ) -> Result<OAuthClient, AuthError> {
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
struct RegistrationResponse {
    client_id: String,
    client_secret: Option<SecretString>,
    /// Expiry of the client secret in seconds since 1970; 0 if it never expires.
    client_secret_expires_at: Option<u64>,
    token_endpoint_auth_method: Option<String>,
}

async fn register(
    fetch: &OAuthHttpClient,
    endpoint: &str,
    server: &AuthorizationServer,
    name: &str,
    redirect_uri: &str,
) -> Result<RegisteredClient, AuthError> {
    let document = OAuthDocument::Registration;
    let endpoint = fetch.parse_url(endpoint, document)?;
    let request = RawObject::single("client_name", name)
        .with("redirect_uris", [redirect_uri])
        .with("grant_types", ["authorization_code", "refresh_token"])
        .with("response_types", ["code"])
        .with("token_endpoint_auth_method", auth_method_for(server))
        .with("application_type", application_type(redirect_uri));
    let body = request.to_raw().get().into();
    let answer = fetch.post_json(&endpoint, document, body).await?;
    let response: RegistrationResponse = answer.parse_success()?;
    let proof = match response.client_secret {
        Some(secret) => ClientSecret::Secret {
            secret,
            method: response.token_endpoint_auth_method,
        },
        None => ClientSecret::None,
    };
    Ok(RegisteredClient {
        issuer: server.issuer.clone(),
        client: OAuthClient {
            id: response.client_id,
            proof,
        },
        expires_at: response.client_secret_expires_at.filter(|at| *at != 0),
    })
}

/// Returns the authentication method to request at dynamic registration: `none` (public client) if
/// the server permits it, because this process can't hide a secret from the machine's owner. A
/// server that lists no methods requires Basic (RFC 8414).
fn auth_method_for(server: &AuthorizationServer) -> &'static str {
    let Some(methods) = &server.token_endpoint_auth_methods_supported else {
        return CLIENT_SECRET_BASIC;
    };
    ["none", CLIENT_SECRET_BASIC, CLIENT_SECRET_POST]
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

    /// Goal: a secret is sent by the method that the server wants, Basic first. Method: a table of
    /// servers.
    #[test]
    fn secret_goes_as_the_server_wants() -> Result<(), AuthError> {
        let assigned = |method: &str| OAuthClient {
            id: "me".to_owned(),
            proof: ClientSecret::Secret {
                secret: "s3cret".into(),
                method: Some(method.to_owned()),
            },
        };
        let untold = OAuthClient::with_secret("me", "s3cret".into());
        for (client, methods, in_header, fields) in [
            (&untold, None, true, vec![]),
            (
                &untold,
                Some(&[CLIENT_SECRET_POST, CLIENT_SECRET_BASIC][..]),
                true,
                vec![],
            ),
            (
                &untold,
                Some(&[CLIENT_SECRET_POST]),
                false,
                vec![("client_id", "me"), ("client_secret", "s3cret")],
            ),
            (&untold, Some(&["none"]), false, vec![("client_id", "me")]),
            (
                &assigned(CLIENT_SECRET_POST),
                Some(&[CLIENT_SECRET_BASIC]),
                false,
                vec![("client_id", "me"), ("client_secret", "s3cret")],
            ),
            (&assigned("none"), None, false, vec![("client_id", "me")]),
            (
                &OAuthClient::public("me"),
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
            let proven = client.authenticate_to("https://a.example", listed.as_deref())?;
            assert_eq!(proven.authorization.is_some(), in_header, "{methods:?}");
            assert_eq!(proven.fields().collect::<Vec<_>>(), fields, "{methods:?}");
            assert!(!format!("{client:?} {:?}", proven.authorization).contains("s3cret"));
        }
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
            pkce_challenge(&verifier),
            "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
        );
    }

    /// Goal: an assertion authenticates the client to one server, once, for a minute. Method:
    /// decode and verify it.
    #[test]
    fn assertion_is_signed_and_bound() -> Result<(), AuthError> {
        let der =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new())
                .expect("a key");
        let body = STANDARD.encode(&der);
        let pem = SecretString::from(format!(
            "-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n"
        ));
        let key = ClientSigningKey::from_pem(&pem, SigningAlgorithm::Es256, Some("k1".to_owned()))?;
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

    /// Goal: an unsuitable key is rejected when it is configured. Method: no PEM, no key in it,
    /// another algorithm's.
    #[test]
    fn unfit_keys_are_refused() {
        for pem in [
            "",
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----",
            "-----BEGIN PRIVATE KEY-----",
        ] {
            for name in ["ES256", "ES384", "RS256", "EdDSA"] {
                let algorithm = SigningAlgorithm::from_name(name).expect(name);
                assert!(matches!(
                    ClientSigningKey::from_pem(&pem.into(), algorithm, None),
                    Err(AuthError::Key)
                ));
            }
        }
    }
}
