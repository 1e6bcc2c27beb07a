//! HTTP requests to a remote agent's server, and their credentials.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use callboard_message::RawObject;
use callboard_rpc::http1::{ClientResponse, Connector, Http1Clients, RequestTarget};
use callboard_rpc::{DecodeLimits, EgressPolicy, basic_authorization, check_json};
use reqwest::Method;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use url::Url;

use super::error::A2aClientError;
use super::interface_selection::{InterfaceCandidate, is_same_origin};
use super::options::{ProtocolVersion, RemoteAuth, RemoteOptions, RemoteOptionsError};
use crate::wire::{AgentCard, OAuthFlows, SecurityScheme};

const A2A_VERSION: HeaderName = HeaderName::from_static("a2a-version");
/// Header with the protocol extensions that a message uses, since 1.0.
const EXTENSIONS: HeaderName = HeaderName::from_static("a2a-extensions");
/// Header with the protocol extensions that a message uses, in 0.3.
const EXTENSIONS_03: HeaderName = HeaderName::from_static("x-a2a-extensions");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Header of W3C Trace Context.
const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");

/// HTTP client with two sets of connections: `own` for URLs that the operator configured, and
/// `guarded`, limited by the egress policy, for URLs from an agent card. It follows no redirects.
pub(super) struct HttpClient {
    own: Http1Clients,
    guarded: Http1Clients,
    egress: EgressPolicy,
    is_url_untrusted: bool,
}

impl HttpClient {
    /// Creates the client with the timeouts and egress policy of the options.
    ///
    /// # Errors
    /// [`RemoteOptionsError::Tls`].
    pub(super) fn new(options: &RemoteOptions) -> Result<Self, RemoteOptionsError> {
        let (timeout, egress) = (options.connect_timeout, options.egress.clone());
        let own = Connector::with_tls(timeout, &options.tls).map_err(RemoteOptionsError::Tls)?;
        let others = options.tls.for_other_servers();
        let guarded = Connector::with_egress(timeout, egress.clone(), &others)
            .map_err(RemoteOptionsError::Tls)?;
        Ok(Self {
            own: Http1Clients::new(own),
            guarded: Http1Clients::new(guarded),
            egress,
            is_url_untrusted: options.is_url_untrusted,
        })
    }

    /// Sends a request. `is_ours` tells that the operator configured the URL. The egress policy
    /// must allow any other URL, and all URLs if [`RemoteOptions::is_url_untrusted`] is set.
    pub(super) async fn send(
        &self,
        url: &Url,
        is_ours: bool,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<ClientResponse, A2aClientError> {
        let is_ours = is_ours && !self.is_url_untrusted;
        if !is_ours {
            self.egress.check_url(url).map_err(A2aClientError::Egress)?;
        }
        let target = RequestTarget::new(url).ok_or_else(|| {
            A2aClientError::Protocol(format!(
                "the URL {}{} can't be used over HTTP",
                url.origin().ascii_serialization(),
                url.path()
            ))
        })?;
        let clients = if is_ours { &self.own } else { &self.guarded };
        Ok(clients
            .for_current_runtime()
            .send(&target, method, headers, body)
            .await?)
    }
}

/// Connection to one interface of a remote agent: HTTP client, credentials and card.
pub(super) struct InterfaceConnection {
    pub(super) interface: InterfaceCandidate,
    pub(super) http_client: Arc<HttpClient>,
    pub(super) credentials: Arc<RequestCredentials>,
    pub(super) card: Arc<AgentCard>,
    /// Whether the server accepted the URL only with its trailing slash added or removed. Then
    /// later requests do the same.
    pub(super) flips_trailing_slash: AtomicBool,
}

/// One HTTP request.
pub(super) struct OutboundRequest<'a> {
    pub(super) method: Method,
    /// Path and query, relative to the interface's URL.
    pub(super) path: &'a str,
    pub(super) body: Bytes,
    pub(super) is_stream: bool,
    pub(super) extra_headers: ExtraHeaders<'a>,
}

/// Headers that differ from call to call.
#[derive(Clone, Copy, Default)]
pub(super) struct ExtraHeaders<'a> {
    /// Id of the event after which a stream is resumed (`Last-Event-ID`).
    pub(super) last_event_id: Option<&'a str>,
    /// Trace context of the call.
    pub(super) trace: Option<&'a HeaderValue>,
    /// Protocol extensions that the call's message uses, as a list of URIs.
    pub(super) extensions: Option<&'a HeaderValue>,
}

impl InterfaceConnection {
    /// Sends a request and waits for the head of the response, which may have an error status.
    /// After HTTP status 401 the request is retried once, if a new access token can be requested.
    /// After 404, 405, 307 or 308 a request to the interface's own URL is sent once more with or
    /// without the trailing slash, unless the response is JSON.
    pub(super) async fn send(
        &self,
        sent: &OutboundRequest<'_>,
    ) -> Result<ClientResponse, A2aClientError> {
        let mut may_renew = true;
        let known = self.flips_trailing_slash.load(Relaxed);
        let mut slash = known;
        loop {
            // Credentials are sent only to the card's own server and to origins that the operator
            // trusts.
            let shown = match self.interface.is_trusted {
                true => {
                    self.credentials
                        .auth_headers(Some((&self.card, &self.interface.url)), &self.http_client)
                        .await?
                }
                false => HeaderMap::new(),
            };
            let begun = Instant::now();
            let response = self.send_once(sent, slash, shown).await?;
            let status = response.status().as_u16();
            if status == 401
                && may_renew
                && self.interface.is_trusted
                && self.credentials.discard_token(begun).await
            {
                may_renew = false;
                continue;
            }
            match status {
                // Some servers accept only one of the two spellings of their address.
                404 | 405 | 307 | 308 if sent.path.is_empty() && !is_json(&response) => {
                    match slash == known {
                        true => slash = !known,
                        false => return Ok(response),
                    }
                }
                _ => {
                    self.flips_trailing_slash.store(slash, Relaxed);
                    return Ok(response);
                }
            }
        }
    }

    /// Sends one request with `headers` in addition to the standard ones.
    async fn send_once(
        &self,
        sent: &OutboundRequest<'_>,
        slash: bool,
        mut headers: HeaderMap,
    ) -> Result<ClientResponse, A2aClientError> {
        headers.insert(ACCEPT, if sent.is_stream { EVENT_STREAM } else { JSON });
        if !sent.body.is_empty() {
            headers.insert(CONTENT_TYPE, JSON);
        }
        // 0.1 has no version header.
        if self.interface.version != ProtocolVersion::V01 {
            headers.insert(
                A2A_VERSION,
                HeaderValue::from_static(self.interface.dialect().version()),
            );
        }
        if let Some(id) = sent
            .extra_headers
            .last_event_id
            .and_then(|id| HeaderValue::from_str(id).ok())
        {
            headers.insert(LAST_EVENT_ID, id);
        }
        if let Some(trace) = sent.extra_headers.trace {
            headers.insert(TRACE_PARENT, trace.clone());
        }
        // 0.1 has no extensions.
        let name = match self.interface.version {
            ProtocolVersion::V10 => Some(EXTENSIONS),
            ProtocolVersion::V03 => Some(EXTENSIONS_03),
            ProtocolVersion::V01 => None,
        };
        if let (Some(name), Some(extensions)) = (name, sent.extra_headers.extensions) {
            headers.insert(name, extensions.clone());
        }
        let url = self.url(sent.path, slash);
        self.http_client
            .send(
                &url,
                self.interface.is_trusted,
                sent.method.clone(),
                headers,
                sent.body.clone(),
            )
            .await
    }

    fn url(&self, tail: &str, slash: bool) -> Url {
        let mut url = self.interface.url.clone();
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

pub(super) fn is_json(response: &ClientResponse) -> bool {
    let kind = response.media_type();
    kind == "application/json" || kind.starts_with("application/") && kind.ends_with("+json")
}

/// Runs `work` with the timeout `limit`. Fails with [`A2aClientError::TimedOut`].
pub(super) async fn with_timeout<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, A2aClientError>>,
) -> Result<T, A2aClientError> {
    timeout(limit, work)
        .await
        .unwrap_or(Err(A2aClientError::TimedOut(limit)))
}

/// Maximum size of a token endpoint's response, in bytes.
/// At the limit: `Overloaded`.
const TOKEN_BYTES_MAX: usize = 64 * 1024;
/// Time before its expiry at which an access token is replaced.
const TOKEN_REFRESH_MARGIN: Duration = Duration::from_secs(30);
/// Assumed lifetime of an access token if the token endpoint states none.
const TOKEN_LIFETIME_DEFAULT: Duration = Duration::from_secs(300);

/// An agent card, and a URL of the agent. A token endpoint of the same origin as the URL is
/// trusted.
type CardOrigin<'a> = (&'a AgentCard, &'a Url);

/// An access token as the value of `Authorization`, with the time when it was obtained and the time
/// from which it must be replaced.
struct AccessToken {
    header: HeaderValue,
    obtained_at: Instant,
    expires_at: Instant,
}

/// Credentials of a client, sent as headers of its requests.
pub(super) struct RequestCredentials {
    auth: RemoteAuth,
    /// Headers with fixed values, which don't depend on an access token.
    fixed: HeaderMap,
    /// Cached token; the lock ensures that one caller at a time requests it.
    token: Mutex<Option<AccessToken>>,
}

impl RequestCredentials {
    /// Creates the credentials from `auth` and the additional `headers`. Access tokens are
    /// requested later.
    ///
    /// # Errors
    /// [`RemoteOptionsError::Header`].
    pub(super) fn new(
        auth: &RemoteAuth,
        headers: &HeaderMap,
    ) -> Result<Arc<Self>, RemoteOptionsError> {
        let mut fixed = headers.clone();
        match auth {
            RemoteAuth::None | RemoteAuth::ClientCredentials { .. } => {}
            RemoteAuth::Bearer(token) => drop(fixed.insert(
                AUTHORIZATION,
                secret_header("Bearer ", token.expose_secret())?,
            )),
            RemoteAuth::ApiKey { header, key } => {
                let name: HeaderName = header.parse().map_err(|_| RemoteOptionsError::Header)?;
                fixed.insert(name, secret_header("", key.expose_secret())?);
            }
            RemoteAuth::Basic { user, password } => {
                fixed.insert(AUTHORIZATION, basic_header(user, password)?);
            }
        }
        Ok(Arc::new(Self {
            auth: auth.clone(),
            fixed,
            token: Mutex::default(),
        }))
    }

    /// Returns whether any credentials are configured.
    pub(super) fn has_credentials(&self) -> bool {
        !matches!(self.auth, RemoteAuth::None) || !self.fixed.is_empty()
    }

    /// Returns the headers with credentials. If an access token is needed and none is cached, it is
    /// requested by `http_client`. If the operator configured no token endpoint, that of `card` is
    /// used.
    pub(super) async fn auth_headers(
        &self,
        card: Option<CardOrigin<'_>>,
        http_client: &HttpClient,
    ) -> Result<HeaderMap, A2aClientError> {
        let mut headers = self.fixed.clone();
        if let RemoteAuth::ClientCredentials { .. } = self.auth {
            headers.insert(AUTHORIZATION, self.access_token(card, http_client).await?);
        }
        Ok(headers)
    }

    /// Discards the cached access token after the agent rejected a request with it. `begun` is the
    /// time when the request was sent. Returns whether a retry makes sense: a token was discarded,
    /// or a newer one had already replaced it.
    async fn discard_token(&self, begun: Instant) -> bool {
        let mut kept = self.token.lock().await;
        let is_newer = kept.as_ref().is_some_and(|token| token.obtained_at > begun);
        is_newer || kept.take().is_some()
    }

    async fn access_token(
        &self,
        card: Option<CardOrigin<'_>>,
        http_client: &HttpClient,
    ) -> Result<HeaderValue, A2aClientError> {
        let mut kept = self.token.lock().await;
        if let Some(token) = kept
            .as_ref()
            .filter(|token| Instant::now() < token.expires_at)
        {
            return Ok(token.header.clone());
        }
        let (header, age) = self.request_token(card, http_client).await?;
        let came = Instant::now();
        *kept = Some(AccessToken {
            header: header.clone(),
            obtained_at: came,
            expires_at: came + age.saturating_sub(TOKEN_REFRESH_MARGIN),
        });
        Ok(header)
    }

    async fn request_token(
        &self,
        card: Option<CardOrigin<'_>>,
        http_client: &HttpClient,
    ) -> Result<(HeaderValue, Duration), A2aClientError> {
        let RemoteAuth::ClientCredentials {
            token_url,
            client_id,
            secret: password,
            scopes,
        } = &self.auth
        else {
            return Err(A2aClientError::Auth(
                "no client credentials are configured: set `oauth`",
            ));
        };
        let (url, is_ours) = token_endpoint(token_url.as_ref(), card)?;
        let mut form = "grant_type=client_credentials".to_owned();
        if !scopes.is_empty() {
            form = url::form_urlencoded::Serializer::new(form)
                .append_pair("scope", &scopes.join(" "))
                .finish();
        }
        let who = basic_authorization(client_id, password);
        let mut headers = HeaderMap::new();
        headers.insert(
            AUTHORIZATION,
            who.map_err(|_| {
                A2aClientError::Auth("the client id or secret has characters that a header can't hold: correct `oauth`")
            })?,
        );
        headers.insert(ACCEPT, JSON);
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-www-form-urlencoded"),
        );
        let answered = http_client
            .send(&url, is_ours, Method::POST, headers, form.into())
            .await?;
        if !answered.status().is_success() {
            return Err(A2aClientError::Auth(
                "the token endpoint rejected the request: check client id, secret and scopes in `oauth`",
            ));
        }
        let body = Zeroizing::new(answered.body(TOKEN_BYTES_MAX).await?);
        parse_token_response(&body).ok_or(A2aClientError::Auth(
            "the token endpoint's answer holds no bearer token: check `token_url`",
        ))
    }
}

/// Returns the URL of the token endpoint and whether it is trusted. `named` is the URL that the
/// operator configured; it is trusted. Otherwise the card's URL is used, which is trusted on the
/// card's own origin only. An untrusted URL must pass the egress policy.
fn token_endpoint(
    named: Option<&Url>,
    card: Option<CardOrigin<'_>>,
) -> Result<(Url, bool), A2aClientError> {
    let of_card = card.and_then(|(card, place)| Some((card_token_url(card)?, place)));
    let (url, is_ours) = match (named, of_card) {
        (Some(url), _) => (url.clone(), true),
        (None, Some((url, place))) => {
            let url: Url = url.parse().map_err(|_| {
                A2aClientError::Auth("the card's token URL is invalid: set `token_url` in `oauth`")
            })?;
            let is_ours = is_same_origin(&url, place);
            (url, is_ours)
        }
        (None, None) => {
            return Err(A2aClientError::Auth(
                "the card names no token endpoint: set `token_url` in `oauth`",
            ));
        }
    };
    let is_local = url
        .host_str()
        .is_some_and(|host| matches!(host, "localhost" | "127.0.0.1" | "[::1]"));
    if url.scheme() != "https" && !is_local {
        return Err(A2aClientError::Auth(
            "token endpoints must use https, except on this machine",
        ));
    }
    Ok((url, is_ours))
}

/// Parses the response of a token endpoint. Returns the bearer token as a value for
/// `Authorization`, and its lifetime.
fn parse_token_response(body: &[u8]) -> Option<(HeaderValue, Duration)> {
    let text = check_json(body, &DecodeLimits::default()).ok()?;
    let answer: RawObject = serde_json::from_str(text).ok()?;
    let is_bearer = answer
        .text("token_type")
        .is_none_or(|kind| kind.eq_ignore_ascii_case("bearer"));
    let token = Zeroizing::new(answer.text("access_token").filter(|_| is_bearer)?);
    let age = answer
        .read("expires_in")
        .map_or(TOKEN_LIFETIME_DEFAULT, Duration::from_secs);
    Some((secret_header("Bearer ", &token).ok()?, age))
}

fn secret_header(scheme: &str, value: &str) -> Result<HeaderValue, RemoteOptionsError> {
    let whole = Zeroizing::new(format!("{scheme}{value}"));
    let mut value = HeaderValue::from_str(&whole).map_err(|_| RemoteOptionsError::Header)?;
    value.set_sensitive(true);
    Ok(value)
}

fn basic_header(user: &str, password: &SecretString) -> Result<HeaderValue, RemoteOptionsError> {
    if user.contains(':') {
        return Err(RemoteOptionsError::Header);
    }
    let pair = Zeroizing::new(format!("{user}:{}", password.expose_secret()));
    secret_header("Basic ", &Zeroizing::new(STANDARD.encode(pair.as_bytes())))
}

/// Returns the URL of the token endpoint in the card's OAuth client credentials flow.
fn card_token_url(card: &AgentCard) -> Option<&str> {
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
