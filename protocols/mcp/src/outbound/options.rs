//! How an MCP server is reached, and what bounds that.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callboard_message::{Abilities, LogLevel, RawObject};
use callboard_rpc::Limits;
use callboard_runtime::Caller;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};

use super::auth::Authorizer;
use super::dialect::Dialect;
use crate::wire::{Era, Revision};

/// How long a connection may take, and a child its start, by default.
pub const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// How long a call may take that has no deadline of its own, questions included, by default.
pub const CALL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(300);
/// Most calls that one client has in flight; others wait in its mailbox.
pub const CALLS_IN_FLIGHT_MAX: u32 = 64;
/// Most questions of one call that are open at once; more are refused.
pub const QUESTIONS_AT_ONCE_MAX: usize = 16;
/// How long a server of the legacy era may take after its handshake to ask for the roots of a client that has declared
/// some, before the first call is sent.
pub const ROOTS_ASKED_WITHIN: Duration = Duration::from_millis(300);
/// How long that call waits for the client's answer, once the server has asked.
pub const ROOTS_GIVEN_WITHIN: Duration = Duration::from_secs(10);
/// How long the server has to take up the roots that it was given, before that call is sent.
pub const ROOTS_TAKEN_UP_WITHIN: Duration = Duration::from_millis(20);
/// Most answers of one call that are on their way to the server at once, refusals and answers to pings too; then no more
/// of what it says in that call is read.
pub const ANSWERS_AT_ONCE_MAX: usize = 32;
/// Most times in a row that a broken stream is taken up again without anything new on it, by default.
pub const RECONNECTS_MAX_DEFAULT: u32 = 5;
/// Most pages that are fetched of one list, by default: a server that never ends one is stopped there.
pub const PAGES_MAX_DEFAULT: u32 = 100;
/// Most resources whose changes one client is told of.
pub const SUBSCRIPTIONS_MAX: usize = 1_000;
/// Most tools of one server that are remembered (their names, and which arguments go into headers).
pub const TOOLS_REMEMBERED_MAX: usize = 10_000;
/// The longest that a tool may have its results kept by saying so itself.
pub const TOOL_CACHE_TIME_MAX: Duration = Duration::from_secs(3_600);
/// What of this process's environment a child gets, by default.
pub const ENVIRONMENT_DEFAULT: [&str; 5] = ["HOME", "LANG", "PATH", "TMPDIR", "USER"];
/// Most times that one request is sent again because its authorization was refused.
pub const AUTH_REFUSALS_MAX: u32 = 8;
/// How long a child may take to end once its standard input is closed, and again after it was asked to.
pub const CHILD_END_GRACE: Duration = Duration::from_secs(2);

/// Where an MCP server is.
#[derive(Clone)]
pub enum Endpoint {
    /// Streamable HTTP; a server of 2024-11-05 at the same URL is found too.
    Http(Url),
    /// HTTP+SSE (2024-11-05): the URL of the event stream. Legacy only.
    Sse(Url),
    /// WebSocket, subprotocol `mcp`.
    WebSocket(Url),
    /// A child process that speaks over its standard input and output.
    Child(ChildCommand),
}

impl Endpoint {
    /// The server at `url`: `http`, `https`, `ws` or `wss`.
    ///
    /// # Errors
    /// [`ClientError::Url`].
    pub fn url(url: &str) -> Result<Self, ClientError> {
        let url = Url::parse(url).map_err(|_| ClientError::Url)?;
        if !url.username().is_empty() || url.password().is_some() || !url.has_host() {
            return Err(ClientError::Url);
        }
        match url.scheme() {
            "http" | "https" => Ok(Self::Http(url)),
            "ws" | "wss" => Ok(Self::WebSocket(url)),
            _ => Err(ClientError::Url),
        }
    }

    /// The server of 2024-11-05 whose event stream is at `url`.
    ///
    /// # Errors
    /// [`ClientError::Url`].
    pub fn sse(url: &str) -> Result<Self, ClientError> {
        match Self::url(url)? {
            Self::Http(url) => Ok(Self::Sse(url)),
            _ => Err(ClientError::Url),
        }
    }
}

impl fmt::Display for Endpoint {
    /// For logs and policies: without query, which may hold a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(url) | Self::Sse(url) | Self::WebSocket(url) => {
                write!(
                    f,
                    "{}://{}{}",
                    url.scheme(),
                    url.host_str().unwrap_or_default(),
                    url.path()
                )
            }
            Self::Child(child) => write!(f, "{}", child.program.to_string_lossy()),
        }
    }
}

/// A program that is an MCP server over standard input and output.
#[derive(Clone)]
pub struct ChildCommand {
    /// Looked up in `PATH` where it has no slash.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Variables of this process that it gets; it gets no others but `set`.
    pub inherit: Vec<String>,
    /// Variables that it gets beside them.
    pub set: Vec<(String, SecretString)>,
    /// Where it runs; here by default.
    pub directory: Option<PathBuf>,
}

impl ChildCommand {
    /// `program` with `arguments`, in the environment of [`ENVIRONMENT_DEFAULT`].
    pub fn new(
        program: impl Into<OsString>,
        arguments: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            inherit: ENVIRONMENT_DEFAULT.map(String::from).to_vec(),
            set: Vec::new(),
            directory: None,
        }
    }
}

/// Which of the two MCPs a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EraChoice {
    /// Asks the server (`server/discover`), and remembers.
    #[default]
    Auto,
    /// This one only.
    Only(Era),
}

/// How a client behaves.
#[derive(Clone)]
pub struct ClientOptions {
    /// What the log calls the server; its address or program by default.
    pub name: Option<String>,
    /// Which of the two MCPs.
    pub era: EraChoice,
    /// How the server words its questions.
    pub dialect: Dialect,
    /// What `initialize` offers in the legacy era; the server may choose an older one.
    pub revision: Revision,
    /// What the client says of itself: MCP's `Implementation`.
    pub info: RawObject,
    /// What `initialize` says that a caller can answer, in the legacy era: there, it is said before any caller is known.
    /// In the modern era each call says what its own caller can.
    pub offers: Abilities,
    /// The least grave lines that a server is asked to log; `None`: it isn't asked.
    pub log_level: Option<LogLevel>,
    /// Whether to listen for what changes at the server, where it tells.
    pub listen: bool,
    /// Sent with each HTTP request.
    pub headers: HeaderMap,
    /// What authorises each HTTP request.
    pub authorizer: Option<Arc<dyn Authorizer>>,
    /// Who is told and asked what no call, or none for sure, has caused (legacy): for a client that serves one caller
    /// only. `None`: such questions are refused.
    pub only_caller: Option<Arc<dyn Caller>>,
    /// What a message from the server may measure.
    pub limits: Limits,
    /// How long a connection may take.
    pub connect_timeout: Duration,
    /// How long `server/discover` and `initialize` may take, together.
    pub handshake_timeout: Duration,
    /// How long `server/discover` may stay unanswered, where the era isn't known.
    pub probe_timeout: Duration,
    /// How long a call may take that has no deadline of its own.
    pub call_timeout: Duration,
    /// Most rounds of questions of one call.
    pub rounds_max: u32,
    /// Most times in a row that a broken stream is taken up again.
    pub reconnects_max: u32,
    /// Most pages of one list.
    pub pages_max: u32,
}

impl EraChoice {
    /// The era, where it is not to be found out.
    pub(crate) fn only(self) -> Option<Era> {
        match self {
            Self::Only(era) => Some(era),
            Self::Auto => None,
        }
    }
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            name: None,
            era: EraChoice::Auto,
            dialect: Dialect::Mcp,
            revision: Revision::LATEST_LEGACY,
            info: RawObject::of("name", "callboard").with("version", env!("CARGO_PKG_VERSION")),
            offers: Abilities::all(),
            log_level: Some(LogLevel::Info),
            listen: true,
            headers: HeaderMap::new(),
            authorizer: None,
            only_caller: None,
            limits: Limits::default(),
            connect_timeout: CONNECT_TIMEOUT_DEFAULT,
            // A child may have to be loaded first.
            handshake_timeout: Duration::from_secs(30),
            probe_timeout: Duration::from_secs(5),
            call_timeout: CALL_TIMEOUT_DEFAULT,
            rounds_max: 16,
            reconnects_max: RECONNECTS_MAX_DEFAULT,
            pages_max: PAGES_MAX_DEFAULT,
        }
    }
}

impl ClientOptions {
    /// Whether a server at `endpoint` can be spoken to so.
    ///
    /// # Errors
    /// [`ClientError::Era`].
    pub(crate) fn fit(&self, endpoint: &Endpoint) -> Result<(), ClientError> {
        let wants_modern = self.era == EraChoice::Only(Era::Modern);
        match self.revision.era() == Era::Modern
            || wants_modern && matches!(endpoint, Endpoint::Sse(_))
        {
            true => Err(ClientError::Era),
            false => Ok(()),
        }
    }

    /// The same options with a header that goes with each HTTP request. Its value is never printed.
    ///
    /// # Errors
    /// [`ClientError::Header`].
    pub fn header(mut self, name: &str, value: &SecretString) -> Result<Self, ClientError> {
        let name: HeaderName = name.parse().map_err(|_| ClientError::Header)?;
        let mut value =
            HeaderValue::from_str(value.expose_secret()).map_err(|_| ClientError::Header)?;
        value.set_sensitive(true);
        self.headers.append(name, value);
        Ok(self)
    }
}

/// Why a client can't be configured so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Give a URL like `https://tools.example/mcp`, without user and password.
    #[error("not an http, https, ws or wss URL without user and password")]
    Url,
    /// Give a header's name and a value of visible characters.
    #[error("not a header")]
    Header,
    /// This transport has the legacy era only, or `revision` is none of it: choose another.
    #[error("the era doesn't fit the transport or the revision")]
    Era,
    /// The HTTP client can't be built, for TLS has no safe version here: see the cause.
    #[error("can't build the HTTP client")]
    Client(#[source] rustls::Error),
}
