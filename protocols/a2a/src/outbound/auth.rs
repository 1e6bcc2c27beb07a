//! What shows a remote agent who asks.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use callboard_message::RawObject;
use callboard_rpc::check;
use reqwest::Method;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret, SecretString};
use tokio::time::Instant;
use url::Url;

use super::choose::is_same_place;
use super::connection::Door;
use super::error::PeerError;
use super::lock;
use super::options::RemoteError;
use crate::wire::{AgentCard, OAuthFlows, SecurityScheme};

/// Largest answer of a token endpoint, in bytes.
const TOKEN_BYTES_MAX: usize = 64 * 1024;
/// How long before its end a token is replaced.
const TOKEN_MARGIN: Duration = Duration::from_secs(30);
/// How long a token is used whose server doesn't say.
const TOKEN_AGE_DEFAULT: Duration = Duration::from_secs(300);

/// What shows a remote agent who asks. No secret of it is ever printed.
#[derive(Debug, Clone, Default)]
pub enum Auth {
    /// Nothing.
    #[default]
    None,
    /// `Authorization: Bearer …`.
    Bearer(SecretString),
    /// A key in a header.
    ApiKey {
        /// The header's name, for example `X-API-Key`.
        header: String,
        /// The key.
        key: SecretString,
    },
    /// `Authorization: Basic …`.
    Basic {
        /// Who.
        user: String,
        /// Their password.
        password: SecretString,
    },
    /// A token of an OAuth 2.0 server, got as oneself (RFC 6749, section 4.4).
    ClientCredentials {
        /// Where tokens are given out; `None`: where the card says.
        token_url: Option<Url>,
        /// The client's name there.
        client_id: String,
        /// The client's secret there.
        secret: SecretString,
        /// What is asked for; empty: what the server gives by itself.
        scopes: Vec<String>,
    },
}

/// An agent's card, and a place that is trusted as it is.
type Shown<'a> = (&'a AgentCard, &'a Url);

/// A token, until when it may be used.
type Token = (HeaderValue, Instant);

/// Credentials as headers.
pub(super) struct Badge {
    auth: Auth,
    /// What needs no token.
    fixed: HeaderMap,
    token: Mutex<Option<Token>>,
    /// One token is asked for at a time.
    asking: tokio::sync::Mutex<()>,
}

impl Badge {
    /// # Errors
    /// [`RemoteError::Header`].
    pub(super) fn new(auth: &Auth, headers: &HeaderMap) -> Result<Arc<Self>, RemoteError> {
        let mut fixed = headers.clone();
        match auth {
            Auth::None | Auth::ClientCredentials { .. } => {}
            Auth::Bearer(token) => drop(fixed.insert(AUTHORIZATION, secret("Bearer ", token.expose_secret())?)),
            Auth::ApiKey { header, key } => {
                let name: HeaderName = header.parse().map_err(|_| RemoteError::Header)?;
                fixed.insert(name, secret("", key.expose_secret())?);
            }
            Auth::Basic { user, password } => {
                fixed.insert(AUTHORIZATION, basic(user, password)?);
            }
        }
        Ok(Arc::new(Self { auth: auth.clone(), fixed, token: Mutex::default(), asking: Default::default() }))
    }

    /// Whether there is anything to show.
    pub(super) fn shows(&self) -> bool {
        !matches!(self.auth, Auth::None) || !self.fixed.is_empty()
    }

    /// The headers to show, of which a token may have to be got first, by `door`. `card`: the agent's, and a place that is
    /// trusted as it is.
    pub(super) async fn headers(&self, card: Option<Shown<'_>>, door: &Door) -> Result<HeaderMap, PeerError> {
        let mut headers = self.fixed.clone();
        if let Auth::ClientCredentials { .. } = self.auth {
            headers.insert(AUTHORIZATION, self.token(card, door).await?);
        }
        Ok(headers)
    }

    /// Forgets the token: the agent doesn't take it. Whether another can be got.
    pub(super) fn refused(&self) -> bool {
        lock(&self.token).take().is_some()
    }

    fn kept(&self) -> Option<HeaderValue> {
        let kept = lock(&self.token);
        kept.as_ref().filter(|(_, until)| Instant::now() < *until).map(|(token, _)| token.clone())
    }

    async fn token(&self, card: Option<Shown<'_>>, door: &Door) -> Result<HeaderValue, PeerError> {
        if let Some(token) = self.kept() {
            return Ok(token);
        }
        let _turn = self.asking.lock().await;
        if let Some(token) = self.kept() {
            return Ok(token);
        }
        let (token, age) = self.ask(card, door).await?;
        let until = Instant::now() + age.saturating_sub(TOKEN_MARGIN);
        *lock(&self.token) = Some((token.clone(), until));
        Ok(token)
    }

    async fn ask(&self, card: Option<Shown<'_>>, door: &Door) -> Result<(HeaderValue, Duration), PeerError> {
        let Auth::ClientCredentials { token_url, client_id, secret: password, scopes } = &self.auth else {
            return Err(PeerError::Auth("no token can be asked for"));
        };
        // One that the operator named may be anywhere; one that the card names, where cards may lead.
        let named = card.and_then(|(card, place)| Some((token_url_of(card)?, place)));
        let (url, is_ours) = match (token_url, named) {
            (Some(url), _) => (url.clone(), true),
            (None, Some((url, place))) => {
                let url: Url = url.parse().map_err(|_| PeerError::Auth("the card's token URL is none"))?;
                let is_ours = is_same_place(&url, place);
                (url, is_ours)
            }
            (None, None) => return Err(PeerError::Auth("the card doesn't say where tokens are given out")),
        };
        let is_local = url.host_str().is_some_and(|host| matches!(host, "localhost" | "127.0.0.1" | "[::1]"));
        if url.scheme() != "https" && !is_local {
            return Err(PeerError::Auth("tokens are asked for over https only"));
        }
        let mut form = "grant_type=client_credentials".to_owned();
        if !scopes.is_empty() {
            form = url::form_urlencoded::Serializer::new(form).append_pair("scope", &scopes.join(" ")).finish();
        }
        let encoded = |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let who = basic(&encoded(client_id), &SecretString::from(encoded(password.expose_secret())));
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, who.map_err(|_| PeerError::Auth("the client's id or secret is no header"))?);
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        let answered = door.send(&url, is_ours, Method::POST, headers, form.into()).await?;
        if !answered.status().is_success() {
            return Err(PeerError::Auth("the token endpoint refused"));
        }
        let body = Zeroizing::new(answered.body(TOKEN_BYTES_MAX).await?);
        let malformed = || PeerError::Auth("the token endpoint's answer holds no bearer token");
        let text = check(&body, &callboard_rpc::Limits::default()).map_err(|_| malformed())?;
        let answer: RawObject = serde_json::from_str(text).map_err(|_| malformed())?;
        let is_bearer = answer.text("token_type").is_none_or(|kind| kind.eq_ignore_ascii_case("bearer"));
        let token = Zeroizing::new(answer.text("access_token").filter(|_| is_bearer).ok_or_else(malformed)?);
        let age = answer.read("expires_in").map_or(TOKEN_AGE_DEFAULT, Duration::from_secs);
        Ok((secret("Bearer ", &token).map_err(|_| malformed())?, age))
    }
}

fn secret(scheme: &str, value: &str) -> Result<HeaderValue, RemoteError> {
    let whole = Zeroizing::new(format!("{scheme}{value}"));
    let mut value = HeaderValue::from_str(&whole).map_err(|_| RemoteError::Header)?;
    value.set_sensitive(true);
    Ok(value)
}

fn basic(user: &str, password: &SecretString) -> Result<HeaderValue, RemoteError> {
    if user.contains(':') {
        return Err(RemoteError::Header);
    }
    let pair = Zeroizing::new(format!("{user}:{}", password.expose_secret()));
    secret("Basic ", &Zeroizing::new(STANDARD.encode(pair.as_bytes())))
}

/// Where a card says that clients get tokens as themselves.
fn token_url_of(card: &AgentCard) -> Option<&str> {
    card.security_schemes.values().find_map(|scheme| match scheme {
        SecurityScheme::OAuth2(scheme) => match &scheme.flows {
            OAuthFlows::ClientCredentials(flow) => Some(flow.token_url.as_str()),
            _ => None,
        },
        _ => None,
    })
}
