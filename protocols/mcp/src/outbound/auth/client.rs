use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::HeaderValue;
use secrecy::{ExposeSecret, SecretString};
use url::form_urlencoded::byte_serialize;

use super::AuthError;
use super::keys::SigningKey;

/// A client that an authorization server knows (RFC 6749, section 2.2).
#[derive(Debug, Clone)]
pub struct Client {
    pub(super) id: String,
    pub(super) proof: Proof,
}

/// How a client proves itself at the token endpoint.
#[derive(Debug, Clone)]
pub(super) enum Proof {
    /// A public client: not at all.
    None,
    /// By a secret; `method` is what the authorization server told this client to use.
    Secret { secret: SecretString, method: Option<String> },
    /// By a signature.
    Key(Arc<SigningKey>),
}

impl Client {
    /// A client without a secret, like every program on somebody's desk.
    #[must_use]
    pub fn public(id: impl Into<String>) -> Self {
        Self { id: id.into(), proof: Proof::None }
    }

    /// A client with a secret. It is sent in the way that the authorization server's metadata ask for: HTTP Basic
    /// before the request's body.
    #[must_use]
    pub fn with_secret(id: impl Into<String>, secret: SecretString) -> Self {
        Self { id: id.into(), proof: Proof::Secret { secret, method: None } }
    }

    /// A client with a private key (`private_key_jwt`, RFC 7523): the key never leaves this process.
    #[must_use]
    pub fn with_key(id: impl Into<String>, key: SigningKey) -> Self {
        Self { id: id.into(), proof: Proof::Key(Arc::new(key)) }
    }

    /// Its identifier.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What a token request to `issuer` carries to say, and prove, who sends it; `methods` are those that it takes, if it
    /// says so.
    pub(super) fn proven_to(&self, issuer: &str, methods: Option<&[String]>) -> Result<Proven<'_>, AuthError> {
        let mut proven = Proven { id: Some(&self.id), secret: None, assertion: None, authorization: None };
        match &self.proof {
            Proof::None => {}
            Proof::Key(key) => proven.assertion = Some(key.assertion(&self.id, issuer)?),
            Proof::Secret { secret, method } => {
                // What this client was told, else the safest that the server takes; a server that doesn't say takes Basic
                // (RFC 8414).
                let takes = |name: &str| match (method, methods) {
                    (Some(told), _) => told == name,
                    (None, Some(list)) => list.iter().any(|listed| listed == name),
                    (None, None) => name == BASIC,
                };
                if takes(BASIC) {
                    proven.authorization = Some(basic(&self.id, secret)?);
                    proven.id = None;
                } else if takes(POST) {
                    proven.secret = Some(secret);
                }
            }
        }
        Ok(proven)
    }
}

/// The part of a token request that is about the client.
pub(super) struct Proven<'a> {
    id: Option<&'a str>,
    secret: Option<&'a SecretString>,
    assertion: Option<SecretString>,
    pub(super) authorization: Option<HeaderValue>,
}

impl Proven<'_> {
    pub(super) fn fields(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let assertion = self.assertion.as_ref().map(ExposeSecret::expose_secret);
        let kind = assertion.map(|_| "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
        [
            ("client_id", self.id),
            ("client_secret", self.secret.map(ExposeSecret::expose_secret)),
            ("client_assertion_type", kind),
            ("client_assertion", assertion),
        ]
        .into_iter()
        .filter_map(|(name, value)| value.map(|value| (name, value)))
    }
}

pub(super) const BASIC: &str = "client_secret_basic";
pub(super) const POST: &str = "client_secret_post";

/// RFC 6749, section 2.3.1: both parts are form-encoded before they are joined.
fn basic(id: &str, secret: &SecretString) -> Result<HeaderValue, AuthError> {
    let encoded = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    let pair = SecretString::from(format!("{}:{}", encoded(id), encoded(secret.expose_secret())));
    let value = SecretString::from(format!("Basic {}", STANDARD.encode(pair.expose_secret())));
    let mut header = HeaderValue::from_str(value.expose_secret()).map_err(|_| AuthError::Token)?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a secret goes the way that the server wants, Basic first. Method: a table of servers.
    #[test]
    fn secret_goes_as_the_server_wants() -> Result<(), AuthError> {
        let told = |method: &str| Client {
            id: "me".to_owned(),
            proof: Proof::Secret { secret: "s3cret".into(), method: Some(method.to_owned()) },
        };
        let untold = Client::with_secret("me", "s3cret".into());
        for (client, methods, in_header, fields) in [
            (&untold, None, true, vec![]),
            (&untold, Some(&[POST, BASIC][..]), true, vec![]),
            (&untold, Some(&[POST]), false, vec![("client_id", "me"), ("client_secret", "s3cret")]),
            (&untold, Some(&["none"]), false, vec![("client_id", "me")]),
            (&told(POST), Some(&[BASIC]), false, vec![("client_id", "me"), ("client_secret", "s3cret")]),
            (&told("none"), None, false, vec![("client_id", "me")]),
            (&Client::public("me"), None, false, vec![("client_id", "me")]),
        ] {
            let listed = methods.map(|list| list.iter().map(|&method| method.to_owned()).collect::<Vec<_>>());
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
        let encoded = header.to_str().ok().and_then(|value| value.strip_prefix("Basic ")).expect("Basic");
        assert_eq!(STANDARD.decode(encoded).expect("base64"), b"a%3Ab:c+d%25");
        Ok(())
    }
}
