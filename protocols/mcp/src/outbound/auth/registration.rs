//! How we become known to an authorization server, in the order of the specification: a client registered beforehand, a
//! client-id metadata document, dynamic registration (RFC 7591).

use std::time::{SystemTime, UNIX_EPOCH};

use reqwest::Url;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::client::{BASIC, Client, POST, Proof};
use super::discovery::Server;
use super::fetch::Fetch;
use super::{AuthError, Document};

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
        Self { known: None, document: None, register_as: Some("callboard".to_owned()) }
    }
}

impl Identity {
    pub(super) fn check(&self) -> Result<(), AuthError> {
        let fits = |url: &Url| url.scheme() == "https" && url.path() != "/" && url.fragment().is_none();
        if self.document.as_ref().is_none_or(fits) { Ok(()) } else { Err(AuthError::ClientIdDocument) }
    }
}

/// The clients that we are, each bound to the issuer that knows it.
#[derive(Debug, Default)]
pub(super) struct Registrations {
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
    pub(super) async fn client(
        &mut self,
        fetch: &Fetch,
        server: &Server,
        identity: &Identity,
        redirect_uri: &str,
    ) -> Result<Client, AuthError> {
        if let Some(known) = &identity.known {
            return self.known(known, server);
        }
        if let (true, Some(document)) = (server.client_id_documents, &identity.document) {
            return Ok(Client::public(document.as_str()));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.dynamic.retain(|registered| registered.expires_at.is_none_or(|at| at > now));
        if let Some(registered) = self.dynamic.iter().find(|registered| registered.issuer == server.issuer) {
            return Ok(registered.client.clone());
        }
        let (Some(endpoint), Some(name)) = (&server.registration_endpoint, &identity.register_as) else {
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
    pub(super) fn forget(&mut self, issuer: &str) {
        self.dynamic.retain(|registered| registered.issuer != issuer);
    }

    /// The configured client, if it is `server`'s.
    pub(super) fn known(&mut self, known: &KnownClient, server: &Server) -> Result<Client, AuthError> {
        let its_issuer = match &known.issuer {
            Some(issuer) => issuer,
            None => self.known_to.get_or_insert_with(|| server.issuer.clone()),
        };
        if *its_issuer == server.issuer { Ok(known.client.clone()) } else { Err(AuthError::ForeignClient) }
    }
}

#[derive(Serialize)]
struct Request<'a> {
    client_name: &'a str,
    redirect_uris: [&'a str; 1],
    grant_types: [&'static str; 2],
    response_types: [&'static str; 1],
    token_endpoint_auth_method: &'static str,
    application_type: &'static str,
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
    let request = Request {
        client_name: name,
        redirect_uris: [redirect_uri],
        grant_types: ["authorization_code", "refresh_token"],
        response_types: ["code"],
        token_endpoint_auth_method: method_for(server),
        application_type: application_type(redirect_uri),
    };
    let body = serde_json::to_vec(&request).map_err(|_| AuthError::Malformed(document))?;
    let answer = fetch.post_json(&endpoint, document, body).await?;
    let response: Response = answer.accepted()?;
    let proof = match response.client_secret {
        Some(secret) => Proof::Secret { secret, method: response.token_endpoint_auth_method },
        None => Proof::None,
    };
    Ok(Registered {
        issuer: server.issuer.clone(),
        client: Client { id: response.client_id, proof },
        expires_at: response.client_secret_expires_at.filter(|at| *at != 0),
    })
}

/// We have nowhere to keep a secret from the machine's owner, so without one where the server lets us; a server that
/// doesn't say wants Basic (RFC 8414).
fn method_for(server: &Server) -> &'static str {
    let Some(methods) = &server.authentication_methods else { return BASIC };
    ["none", BASIC, POST].into_iter().find(|&known| methods.iter().any(|m| m == known)).unwrap_or("none")
}

fn application_type(redirect_uri: &str) -> &'static str {
    let native = Url::parse(redirect_uri).is_ok_and(|url| url.scheme() != "https");
    if native { "native" } else { "web" }
}
