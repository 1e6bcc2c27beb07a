//! Options and limits for remote agents.

use std::time::Duration;

use callboard_rpc::{ClientTls, DecodeLimits, EgressPolicy};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::push::PushInbox;
use crate::card::Jwks;
use crate::wire::AgentInterface;

/// Default timeout for establishing a connection.
/// At the limit: `Unavailable`. Changed by `RemoteOptions::connect_timeout`.
const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// Default timeout of a call without a deadline of its own, questions included.
/// At the limit: `TimedOut`, and the remote task is cancelled. Changed by
/// `RemoteOptions::call_timeout`.
pub const CALL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(300);
/// Timeout for fetching a card and for operations other than messages and streams.
/// At the limit: `TimedOut`.
pub const CONTROL_REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
/// Default delays between two polls of a task without a stream: the first one, and the maximum
/// after doubling.
const POLL_INTERVAL_DEFAULT: (Duration, Duration) =
    (Duration::from_millis(250), Duration::from_secs(5));
/// Maximum number of concurrent calls of one remote agent, and of concurrent conversational
/// messages to it. At the limit: further calls wait in its mailbox.
pub const PENDING_CALLS_MAX: u32 = 64;
/// Maximum number of question rounds in one call.
/// At the limit: `Rejected`, and the remote task is cancelled.
pub const QUESTION_ROUNDS_MAX: u32 = 16;
/// Maximum number of messages that are read from a task's history.
/// At the limit: older messages are ignored.
pub const HISTORY_MESSAGES_MAX: i32 = 256;
/// Maximum number of stream events in one call.
/// At the limit: `Overloaded`, and the remote task is cancelled.
pub const CALL_EVENTS_MAX: u32 = 10_000;
/// Maximum number of consecutive attempts to resume a stream without any new event.
/// At the limit: the task is polled instead.
pub const STREAM_RESUMES_MAX: u32 = 5;
/// Delays between two attempts to resume a stream: the first one, and the maximum after doubling.
/// Half of each delay is random.
pub const STREAM_RESUME_DELAY: (Duration, Duration) =
    (Duration::from_millis(100), Duration::from_secs(5));
/// Minimum and maximum time for which a card is cached, whatever its server's `max-age`.
/// At the limit: the bound is used.
pub const CARD_CACHE_AGE: (Duration, Duration) =
    (Duration::from_secs(60), Duration::from_secs(3_600));
/// Maximum size of a card, in bytes.
/// At the limit: `Overloaded`.
pub const CARD_BYTES_MAX: usize = 1024 * 1024;
/// Time for which a failed interface is skipped.
/// At the limit: it is tried again.
pub const FAILED_INTERFACE_TTL: Duration = Duration::from_secs(3_600);
/// Timeout for cancelling the remote task of a dropped call.
/// At the limit: the task isn't cancelled.
pub const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

/// Protocol binding that the client supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProtocolBinding {
    /// JSON-RPC 2.0 over HTTP.
    JsonRpc,
    /// HTTP+JSON: paths and methods of HTTP, bodies in JSON.
    HttpJson,
}

/// Protocol version that the client supports. Newer versions order before older ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProtocolVersion {
    /// Version 1.0.
    V10,
    /// Version 0.3, also used for agents that state 0.2.
    V03,
    /// Version 0.1, with `tasks/send`.
    V01,
}

/// Condition under which an agent card is trusted.
#[derive(Debug, Clone, Default)]
pub enum CardTrust {
    /// Any card that the agent's server returns.
    #[default]
    Any,
    /// Cards signed by one of `keys`, or by a key of a key set that the card names (`jku`) on one
    /// of `jku_hosts`.
    Signed {
        /// Trusted public keys.
        keys: Jwks,
        /// Hosts whose key sets are trusted too.
        jku_hosts: Vec<String>,
    },
}

/// Options for a remote agent. `Default` trusts any card and sends no credentials.
#[derive(Clone)]
pub struct RemoteOptions {
    /// Bindings to use, the preferred one first. A newer version takes precedence over a preferred
    /// binding.
    pub bindings: Vec<ProtocolBinding>,
    /// Protocol versions to use.
    pub versions: Vec<ProtocolVersion>,
    /// Interface of an agent without a card. If set, no card is fetched.
    pub interface: Option<AgentInterface>,
    /// Headers sent with each request.
    pub headers: HeaderMap,
    /// Credentials of this client.
    pub auth: RemoteAuth,
    /// Origins besides the card's own that receive `auth` and `headers`.
    pub trusted_origins: Vec<Url>,
    /// Condition under which a card is trusted.
    pub card_trust: CardTrust,
    /// Destinations that a card may name besides its own origin.
    pub egress: EgressPolicy,
    /// Authorities that the certificate of the agent's server may be of. Servers that its card names
    /// at other origins may have a certificate of the public authorities too. Default: the public
    /// authorities.
    pub tls: ClientTls,
    /// Whether the agent's URL comes from someone other than the operator. If true, the egress
    /// policy must allow the URL's own origin too.
    pub is_url_untrusted: bool,
    /// Timeout of a call without a deadline of its own, questions included. Default: 300 s.
    pub call_timeout: Duration,
    /// Timeout for establishing a connection. Default: 10 s.
    pub connect_timeout: Duration,
    /// Delays between two polls of a task without a stream: the first one, and the maximum after
    /// doubling. Default: 250 ms and 5 s.
    pub poll_interval: (Duration, Duration),
    /// Receiver for push notifications, so that tasks are polled less often; `None` for polling
    /// only.
    pub push: Option<PushInbox>,
    /// Limits on messages from the agent.
    pub limits: DecodeLimits,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            bindings: vec![ProtocolBinding::JsonRpc, ProtocolBinding::HttpJson],
            versions: vec![
                ProtocolVersion::V10,
                ProtocolVersion::V03,
                ProtocolVersion::V01,
            ],
            interface: None,
            headers: HeaderMap::new(),
            auth: RemoteAuth::None,
            trusted_origins: Vec::new(),
            card_trust: CardTrust::Any,
            egress: EgressPolicy::public_internet(),
            tls: ClientTls::default(),
            is_url_untrusted: false,
            call_timeout: CALL_TIMEOUT_DEFAULT,
            connect_timeout: CONNECT_TIMEOUT_DEFAULT,
            poll_interval: POLL_INTERVAL_DEFAULT,
            push: None,
            limits: DecodeLimits::default(),
        }
    }
}

impl RemoteOptions {
    /// Returns the options with a header to be sent with each request. Its value is never printed.
    ///
    /// # Errors
    /// [`RemoteOptionsError::Header`] if name or value is invalid.
    pub fn with_header(
        mut self,
        name: &str,
        value: &SecretString,
    ) -> Result<Self, RemoteOptionsError> {
        let name: HeaderName = name.parse().map_err(|_| RemoteOptionsError::Header)?;
        let mut value =
            HeaderValue::from_str(value.expose_secret()).map_err(|_| RemoteOptionsError::Header)?;
        value.set_sensitive(true);
        self.headers.append(name, value);
        Ok(self)
    }
}

/// Reason why the options for a remote agent are invalid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteOptionsError {
    /// The URL isn't http or https, or contains a user or password. Remedy: use a URL like
    /// `https://agent.example/a2a`.
    #[error(
        "not an http or https URL without user and password: write it like https://agent.example/a2a"
    )]
    Url,
    /// A header's name or value is invalid. Remedy: use a valid name, and a value of visible
    /// characters.
    #[error("not a valid header name, or a value with other characters than visible ASCII")]
    Header,
    /// No version or no binding is selected. Remedy: select at least one of each.
    #[error("no protocol version or no binding is selected: select at least one of each")]
    NoProtocolSelected,
    /// The TLS client couldn't be built, see the cause.
    #[error("can't build the HTTP client: {0}")]
    Tls(#[source] rustls::Error),
}

/// Credentials for a remote agent. Secrets are never printed.
#[derive(Debug, Clone, Default)]
pub enum RemoteAuth {
    /// No credentials are sent.
    #[default]
    None,
    /// Bearer token in the header `Authorization`.
    Bearer(SecretString),
    /// API key in a header.
    ApiKey {
        /// Name of the header, for example `X-API-Key`.
        header: String,
        /// The API key.
        key: SecretString,
    },
    /// User and password in the header `Authorization` (HTTP Basic).
    Basic {
        /// User name; must not contain a colon.
        user: String,
        /// The password.
        password: SecretString,
    },
    /// OAuth 2.0 client credentials flow (RFC 6749, section 4.4).
    ClientCredentials {
        /// URL of the token endpoint; `None` for the one on the agent's card.
        token_url: Option<Url>,
        /// Client id at the token endpoint.
        client_id: String,
        /// Client secret at the token endpoint.
        secret: SecretString,
        /// Requested scopes; empty for the server's default.
        scopes: Vec<String>,
    },
}

/// Returns whether the scheme is http or https, and the URL has a host and neither user nor
/// password.
pub(super) fn is_plain_http_url(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
        && url.username().is_empty()
        && url.password().is_none()
        && url.has_host()
}
