//! How a remote agent is reached, and what bounds that.

use std::time::Duration;

use callboard_rpc::{Egress, Limits};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::push::PushInbox;
use crate::card::Jwks;
use crate::wire::AgentInterface;

/// How long a connection may take, by default.
/// At the limit: `Unavailable`. Changed by `RemoteOptions`.
const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// How long a call may take that has no deadline of its own, questions included, by default.
/// At the limit: `TimedOut`, the agent is told. Changed by `RemoteOptions`.
pub const CALL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(300);
/// How long a card, a token or the end of a task may take.
/// At the limit: `TimedOut`.
pub const ASIDE_TIMEOUT: Duration = Duration::from_secs(15);
/// The pause between two looks at a task without a stream, by default: the first, and the longest after doubling.
const POLL_DEFAULT: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));
/// Most calls that one client has in flight; others wait in its mailbox.
/// At the limit: others wait in its mailbox.
pub const CALLS_IN_FLIGHT_MAX: u32 = 64;
/// Most rounds of questions of one call.
/// At the limit: `Rejected`, the agent is told.
pub const ROUNDS_MAX: u32 = 16;
/// Most messages of a task's history that are asked for.
/// At the limit: the older ones aren't read.
pub const HISTORY_MESSAGES_MAX: i32 = 256;
/// Most events of one call's streams.
/// At the limit: `Overloaded`, the agent is told.
pub const EVENTS_MAX: u32 = 10_000;
/// Most times in a row that a stream is taken up again without anything new on it; then the task is looked at instead.
/// At the limit: the task is looked at instead.
pub const RESUMES_MAX: u32 = 5;
/// The pause before that: the first, and the longest after doubling; half of it random.
/// At the limit: the task is looked at instead.
pub const RESUME_PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How long a card is used without another look at it: at least, and at most, whatever its server says.
/// At the limit: the bound is taken.
pub const CARD_AGE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(3_600));
/// Largest card, in bytes.
/// At the limit: `Overloaded`.
pub const CARD_BYTES_MAX: usize = 1024 * 1024;
/// How long an interface that didn't work is passed over.
/// At the limit: it is tried again.
pub const PASSED_OVER: Duration = Duration::from_secs(3_600);
/// How long telling a remote agent of a cancelled call may take.
/// At the limit: it isn't told.
pub const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);

/// How messages are carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Binding {
    /// JSON-RPC 2.0 over HTTP.
    JsonRpc,
    /// Paths and methods of HTTP.
    HttpJson,
}

/// A version of A2A, newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// 1.0.
    V10,
    /// 0.3; what says 0.2 is spoken to in its words.
    V03,
    /// 0.1: `tasks/send`.
    V01,
}

/// Which cards are believed.
#[derive(Debug, Clone, Default)]
pub enum CardTrust {
    /// Any that the agent's own server gives.
    #[default]
    Any,
    /// Those with a signature by one of `keys`, or by a key of a set that the card names on one of `jku_hosts`.
    Signed {
        /// The keys that are known.
        keys: Jwks,
        /// Hosts whose key sets count too.
        jku_hosts: Vec<String>,
    },
}

/// How a remote agent is reached. `Default` takes any card and shows no credential.
#[derive(Clone)]
pub struct RemoteOptions {
    /// What is spoken, as far as the agent speaks it too; its card's order decides, after the version.
    pub bindings: Vec<Binding>,
    /// The same of versions.
    pub versions: Vec<Version>,
    /// Where the agent is, in place of a card: for agents that have none.
    pub interface: Option<AgentInterface>,
    /// Sent with each request.
    pub headers: HeaderMap,
    /// What shows who asks.
    pub auth: Auth,
    /// Origins beside the card's own that are shown `auth` and `headers`.
    pub trusted_origins: Vec<Url>,
    /// Which cards are believed.
    pub trust: CardTrust,
    /// Where a card may send requests beside its own origin.
    pub egress: Egress,
    /// Somebody else than the operator named the agent: its own origin has to pass the guard too.
    pub is_hearsay: bool,
    /// How long a call may take that has no deadline of its own.
    pub call_timeout: Duration,
    /// How long a connection may take.
    pub connect_timeout: Duration,
    /// The pause between two looks at a task without a stream: the first, and the longest.
    pub poll: (Duration, Duration),
    /// Where the agent may push, so that it needn't be asked so often.
    pub push: Option<PushInbox>,
    /// What a message of the agent's may measure.
    pub limits: Limits,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            bindings: vec![Binding::JsonRpc, Binding::HttpJson],
            versions: vec![Version::V10, Version::V03, Version::V01],
            interface: None,
            headers: HeaderMap::new(),
            auth: Auth::None,
            trusted_origins: Vec::new(),
            trust: CardTrust::Any,
            egress: Egress::public(),
            is_hearsay: false,
            call_timeout: CALL_TIMEOUT_DEFAULT,
            connect_timeout: CONNECT_TIMEOUT_DEFAULT,
            poll: POLL_DEFAULT,
            push: None,
            limits: Limits::default(),
        }
    }
}

impl RemoteOptions {
    /// The same options with a header that goes with each request. Its value is never printed.
    ///
    /// # Errors
    /// [`RemoteError::Header`].
    pub fn header(mut self, name: &str, value: &SecretString) -> Result<Self, RemoteError> {
        let name: HeaderName = name.parse().map_err(|_| RemoteError::Header)?;
        let mut value =
            HeaderValue::from_str(value.expose_secret()).map_err(|_| RemoteError::Header)?;
        value.set_sensitive(true);
        self.headers.append(name, value);
        Ok(self)
    }
}

/// Why a remote agent can't be configured so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// Give a URL like `https://agent.example/a2a`, without user and password.
    #[error("not an http or https URL without user and password")]
    Url,
    /// Give a header's name and a value of visible characters.
    #[error("not a header")]
    Header,
    /// Name one version and one binding at least.
    #[error("no version or no binding is left to speak")]
    NothingSpoken,
    /// TLS has no safe version here: see the cause.
    #[error("can't build the HTTP client")]
    Tls(#[source] rustls::Error),
}

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

/// Whether requests can go there, and it says nothing of who asks.
pub(super) fn is_plain(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
        && url.username().is_empty()
        && url.password().is_none()
        && url.has_host()
}
