//! Requests to a remote agent's server, and the credentials that they show.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use callboard_message::RawObject;
use callboard_rpc::http1::{Clients, Connector, Response, Target};
use callboard_rpc::{Egress, Limits, check};
use reqwest::Method;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use url::Url;

use super::choose::{Candidate, is_same_place};
use super::error::PeerError;
use super::options::{Auth, RemoteError, RemoteOptions, Version};
use crate::wire::{AgentCard, OAuthFlows, SecurityScheme};

const VERSION: HeaderName = HeaderName::from_static("a2a-version");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// W3C Trace Context.
const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");

/// HTTP clients: for what the operator named, and for what a card names. They follow no redirects.
pub(super) struct Door {
    own: Clients,
    guarded: Clients,
    egress: Egress,
    is_hearsay: bool,
}

impl Door {
    /// # Errors
    /// [`RemoteError::Tls`].
    pub(super) fn new(options: &RemoteOptions) -> Result<Self, RemoteError> {
        let (timeout, egress) = (options.connect_timeout, options.egress.clone());
        let own = Connector::new(timeout).map_err(RemoteError::Tls)?;
        let guarded = Connector::guarded(timeout, egress.clone()).map_err(RemoteError::Tls)?;
        Ok(Self {
            own: Clients::new(own),
            guarded: Clients::new(guarded),
            egress,
            is_hearsay: options.is_hearsay,
        })
    }

    /// Sends a request. `is_ours`: the operator named the place, unless all of it is hearsay; else it must be one that the
    /// guard allows.
    pub(super) async fn send(
        &self,
        url: &Url,
        is_ours: bool,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response, PeerError> {
        let is_ours = is_ours && !self.is_hearsay;
        if !is_ours {
            self.egress.check(url).map_err(PeerError::Egress)?;
        }
        let target = Target::new(url)
            .ok_or_else(|| PeerError::Protocol("a URL can't be used over HTTP".into()))?;
        let clients = if is_ours { &self.own } else { &self.guarded };
        Ok(clients.here().send(&target, method, headers, body).await?)
    }
}

/// What every request to one interface needs.
pub(super) struct Connection {
    pub(super) to: Candidate,
    pub(super) door: Arc<Door>,
    pub(super) badge: Arc<Badge>,
    pub(super) card: Arc<AgentCard>,
    /// The server answers under the URL with a slash more, or less, than its card says.
    pub(super) slash: AtomicBool,
}

/// One request of HTTP.
pub(super) struct Sent<'a> {
    pub(super) method: Method,
    /// The URL's, behind the interface's own.
    pub(super) tail: &'a str,
    pub(super) body: Bytes,
    pub(super) streams: bool,
    pub(super) beside: Beside<'a>,
}

/// What a request says beside what it asks.
#[derive(Clone, Copy, Default)]
pub(super) struct Beside<'a> {
    /// Where a stream is taken up.
    pub(super) last_event_id: Option<&'a str>,
    /// The call's place in a trace.
    pub(super) trace: Option<&'a HeaderValue>,
}

impl Connection {
    /// Sends a request and waits for the head of its response: what refuses is one too.
    pub(super) async fn send(&self, sent: &Sent<'_>) -> Result<Response, PeerError> {
        let mut may_renew = true;
        let known = self.slash.load(Relaxed);
        let mut slash = known;
        loop {
            // What shows who asks goes to the card's own server, and to those that the operator names.
            let shown = match self.to.is_trusted {
                true => {
                    self.badge
                        .headers(Some((&self.card, &self.to.url)), &self.door)
                        .await?
                }
                false => HeaderMap::new(),
            };
            let begun = Instant::now();
            let response = self.send_once(sent, slash, shown).await?;
            let status = response.status().as_u16();
            if status == 401 && may_renew && self.to.is_trusted && self.badge.refused(begun).await {
                may_renew = false;
                continue;
            }
            match status {
                // Some servers know their address in one of the two spellings only.
                404 | 405 | 307 | 308 if sent.tail.is_empty() && !is_json(&response) => {
                    match slash == known {
                        true => slash = !known,
                        false => return Ok(response),
                    }
                }
                _ => {
                    self.slash.store(slash, Relaxed);
                    return Ok(response);
                }
            }
        }
    }

    /// One request, with those `headers` beside its own.
    async fn send_once(
        &self,
        sent: &Sent<'_>,
        slash: bool,
        mut headers: HeaderMap,
    ) -> Result<Response, PeerError> {
        headers.insert(ACCEPT, if sent.streams { STREAM } else { JSON });
        if !sent.body.is_empty() {
            headers.insert(CONTENT_TYPE, JSON);
        }
        // 0.1 knew of no versions.
        if self.to.version != Version::V01 {
            headers.insert(
                VERSION,
                HeaderValue::from_static(self.to.dialect().version()),
            );
        }
        if let Some(id) = sent
            .beside
            .last_event_id
            .and_then(|id| HeaderValue::from_str(id).ok())
        {
            headers.insert(LAST_EVENT_ID, id);
        }
        if let Some(trace) = sent.beside.trace {
            headers.insert(TRACE_PARENT, trace.clone());
        }
        let url = self.url(sent.tail, slash);
        self.door
            .send(
                &url,
                self.to.is_trusted,
                sent.method.clone(),
                headers,
                sent.body.clone(),
            )
            .await
    }

    fn url(&self, tail: &str, slash: bool) -> Url {
        let mut url = self.to.url.clone();
        let path = url.path();
        if tail.is_empty() {
            if slash {
                let turned = path
                    .strip_suffix('/')
                    .map_or_else(|| format!("{path}/"), str::to_owned);
                url.set_path(&turned);
            }
            return url;
        }
        let (tail, query) = tail
            .split_once('?')
            .map_or((tail, None), |(tail, query)| (tail, Some(query)));
        let path = format!("{}{tail}", path.trim_end_matches('/'));
        url.set_path(&path);
        if query.is_some() {
            url.set_query(query);
        }
        url
    }
}

pub(super) fn is_json(response: &Response) -> bool {
    let kind = response.media_type();
    kind == "application/json" || kind.starts_with("application/") && kind.ends_with("+json")
}

/// What comes of `work`, in `limit`.
pub(super) async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, PeerError>>,
) -> Result<T, PeerError> {
    timeout(limit, work)
        .await
        .unwrap_or(Err(PeerError::TimedOut(limit)))
}

/// Largest answer of a token endpoint, in bytes.
/// At the limit: `Overloaded`.
const TOKEN_BYTES_MAX: usize = 64 * 1024;
/// How long before its end a token is replaced.
const TOKEN_MARGIN: Duration = Duration::from_secs(30);
/// How long a token is used whose server doesn't say.
const TOKEN_AGE_DEFAULT: Duration = Duration::from_secs(300);

/// An agent's card, and a place that is trusted as it is.
type Shown<'a> = (&'a AgentCard, &'a Url);

/// A token as a header, when it came, and until when it may be used.
struct Token {
    header: HeaderValue,
    came: Instant,
    until: Instant,
}

/// Credentials as headers.
pub(super) struct Badge {
    auth: Auth,
    /// What needs no token.
    fixed: HeaderMap,
    /// One is asked for at a time.
    token: Mutex<Option<Token>>,
}

impl Badge {
    /// # Errors
    /// [`RemoteError::Header`].
    pub(super) fn new(auth: &Auth, headers: &HeaderMap) -> Result<Arc<Self>, RemoteError> {
        let mut fixed = headers.clone();
        match auth {
            Auth::None | Auth::ClientCredentials { .. } => {}
            Auth::Bearer(token) => {
                drop(fixed.insert(AUTHORIZATION, secret("Bearer ", token.expose_secret())?))
            }
            Auth::ApiKey { header, key } => {
                let name: HeaderName = header.parse().map_err(|_| RemoteError::Header)?;
                fixed.insert(name, secret("", key.expose_secret())?);
            }
            Auth::Basic { user, password } => {
                fixed.insert(AUTHORIZATION, basic(user, password)?);
            }
        }
        Ok(Arc::new(Self {
            auth: auth.clone(),
            fixed,
            token: Mutex::default(),
        }))
    }

    /// Whether there is anything to show.
    pub(super) fn shows(&self) -> bool {
        !matches!(self.auth, Auth::None) || !self.fixed.is_empty()
    }

    /// The headers to show, of which a token may have to be got first, by `door`. `card`: the agent's, and a place that is
    /// trusted as it is.
    pub(super) async fn headers(
        &self,
        card: Option<Shown<'_>>,
        door: &Door,
    ) -> Result<HeaderMap, PeerError> {
        let mut headers = self.fixed.clone();
        if let Auth::ClientCredentials { .. } = self.auth {
            headers.insert(AUTHORIZATION, self.token(card, door).await?);
        }
        Ok(headers)
    }

    /// Forgets the token that a request of that time showed: the agent doesn't take it. Whether there is another, or one can be got.
    async fn refused(&self, begun: Instant) -> bool {
        let mut kept = self.token.lock().await;
        let is_newer = kept.as_ref().is_some_and(|token| token.came > begun);
        is_newer || kept.take().is_some()
    }

    async fn token(&self, card: Option<Shown<'_>>, door: &Door) -> Result<HeaderValue, PeerError> {
        let mut kept = self.token.lock().await;
        if let Some(token) = kept.as_ref().filter(|token| Instant::now() < token.until) {
            return Ok(token.header.clone());
        }
        let (header, age) = self.ask(card, door).await?;
        let came = Instant::now();
        *kept = Some(Token {
            header: header.clone(),
            came,
            until: came + age.saturating_sub(TOKEN_MARGIN),
        });
        Ok(header)
    }

    async fn ask(
        &self,
        card: Option<Shown<'_>>,
        door: &Door,
    ) -> Result<(HeaderValue, Duration), PeerError> {
        let Auth::ClientCredentials {
            token_url,
            client_id,
            secret: password,
            scopes,
        } = &self.auth
        else {
            return Err(PeerError::Auth("no token can be asked for"));
        };
        let (url, is_ours) = token_endpoint(token_url.as_ref(), card)?;
        let mut form = "grant_type=client_credentials".to_owned();
        if !scopes.is_empty() {
            form = url::form_urlencoded::Serializer::new(form)
                .append_pair("scope", &scopes.join(" "))
                .finish();
        }
        let encoded =
            |text: &str| url::form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let who = basic(
            &encoded(client_id),
            &SecretString::from(encoded(password.expose_secret())),
        );
        let mut headers = HeaderMap::new();
        headers.insert(
            AUTHORIZATION,
            who.map_err(|_| PeerError::Auth("the client's id or secret is no header"))?,
        );
        headers.insert(ACCEPT, JSON);
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-www-form-urlencoded"),
        );
        let answered = door
            .send(&url, is_ours, Method::POST, headers, form.into())
            .await?;
        if !answered.status().is_success() {
            return Err(PeerError::Auth("the token endpoint refused"));
        }
        let body = Zeroizing::new(answered.body(TOKEN_BYTES_MAX).await?);
        read_token(&body).ok_or(PeerError::Auth(
            "the token endpoint's answer holds no bearer token",
        ))
    }
}

/// The URL where tokens are given out, and whether the operator named its place: such a one may be anywhere, one that the card
/// names where cards may lead.
fn token_endpoint(named: Option<&Url>, card: Option<Shown<'_>>) -> Result<(Url, bool), PeerError> {
    let of_card = card.and_then(|(card, place)| Some((token_url_of(card)?, place)));
    let (url, is_ours) = match (named, of_card) {
        (Some(url), _) => (url.clone(), true),
        (None, Some((url, place))) => {
            let url: Url = url
                .parse()
                .map_err(|_| PeerError::Auth("the card's token URL is none"))?;
            let is_ours = is_same_place(&url, place);
            (url, is_ours)
        }
        (None, None) => {
            return Err(PeerError::Auth(
                "the card doesn't say where tokens are given out",
            ));
        }
    };
    let is_local = url
        .host_str()
        .is_some_and(|host| matches!(host, "localhost" | "127.0.0.1" | "[::1]"));
    if url.scheme() != "https" && !is_local {
        return Err(PeerError::Auth("tokens are asked for over https only"));
    }
    Ok((url, is_ours))
}

/// The bearer token of a token endpoint's answer, as a header, and its age.
fn read_token(body: &[u8]) -> Option<(HeaderValue, Duration)> {
    let text = check(body, &Limits::default()).ok()?;
    let answer: RawObject = serde_json::from_str(text).ok()?;
    let is_bearer = answer
        .text("token_type")
        .is_none_or(|kind| kind.eq_ignore_ascii_case("bearer"));
    let token = Zeroizing::new(answer.text("access_token").filter(|_| is_bearer)?);
    let age = answer
        .read("expires_in")
        .map_or(TOKEN_AGE_DEFAULT, Duration::from_secs);
    Some((secret("Bearer ", &token).ok()?, age))
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
    card.security_schemes
        .values()
        .find_map(|scheme| match scheme {
            SecurityScheme::OAuth2(scheme) => match &scheme.flows {
                OAuthFlows::ClientCredentials(flow) => Some(flow.token_url.as_str()),
                _ => None,
            },
            _ => None,
        })
}
