//! Address, options and limits of an MCP client.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use callboard_message::{CallerCapabilities, LogLevel, RawObject};
use callboard_rpc::{ClientTls, DecodeLimits};
use callboard_runtime::Caller;
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};

use super::auth::Authorizer;
use super::dialect::ServerDialect;
use crate::wire::{Era, Revision};

/// Default time limit of connecting to a server over HTTP or WebSocket.
pub const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// Default time limit of `server/discover` while the era of a server over HTTP is unknown. A modern
/// server that needs longer rejects `initialize`, and is recognized by that. One that accepts it is
/// probed again with each further connection.
pub const PROBE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(1);
/// Default time limit of a call that has no deadline of its own. It includes the time for answering
/// the server's questions.
pub const CALL_TIMEOUT_DEFAULT: Duration = Duration::from_secs(300);
/// Maximum number of calls that one client executes concurrently. Further calls wait in its
/// mailbox.
pub const PENDING_CALLS_MAX: u32 = 64;
/// Maximum number of a call's questions that are open at the same time. Further questions are
/// rejected.
pub const CONCURRENT_QUESTIONS_MAX: usize = 16;
/// Time that a legacy server has after the handshake to request the caller's roots. The first call
/// of a caller with roots waits for it.
pub const ROOTS_REQUEST_TIMEOUT: Duration = Duration::from_millis(300);
/// Time limit for answering a legacy server's `roots/list` request. The first call waits until it
/// is answered.
pub const ROOTS_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time between the answer to a `roots/list` request and the waiting call, so that the server can
/// apply the roots.
pub const ROOTS_SETTLE_DELAY: Duration = Duration::from_millis(20);
/// Maximum number of a call's answers that are being prepared or sent, including rejections and
/// answers to pings. Beyond it, no more of the server's messages for the call are read.
pub const CONCURRENT_ANSWERS_MAX: usize = 32;
/// Default maximum number of consecutive attempts to open a broken event stream again.
pub const RECONNECTS_MAX_DEFAULT: u32 = 5;
/// Default maximum number of pages fetched of one list, against servers whose lists never end.
pub const PAGES_MAX_DEFAULT: u32 = 100;
/// Maximum number of resources that one client is subscribed to. One more fails with `Overloaded`.
pub const SUBSCRIPTIONS_MAX: usize = 1_000;
/// Maximum number of cached tools of one server. Further ones are listed, but their hints and
/// headers aren't known.
pub const CACHED_TOOLS_MAX: usize = 10_000;
/// Maximum time to live that a tool can set for its cached results. A longer one is cut to it.
pub const TOOL_CACHE_TTL_MAX: Duration = Duration::from_secs(3_600);
/// Default minimum time between two notifications of the same change of a server: of one of its
/// lists, or of one resource. Reports in between are combined into one.
pub const CHANGE_INTERVAL_DEFAULT: Duration = Duration::from_secs(1);
/// Time limit of fetching a list that the server has reported as changed. A list that can't be
/// fetched in time counts as unreadable.
pub(crate) const LIST_COMPARE_TIMEOUT: Duration = Duration::from_secs(10);
/// Environment variables that a child process inherits by default.
pub const ENV_PASSTHROUGH_DEFAULT: [&str; 5] = ["HOME", "LANG", "PATH", "TMPDIR", "USER"];
/// Maximum number of times that one HTTP request is sent again after status 401 or 403.
pub const AUTH_REJECTIONS_MAX: u32 = 8;
/// Time that a child process has to exit after its standard input is closed, and again after
/// SIGTERM.
pub const CHILD_EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// Address of an MCP server.
#[derive(Clone)]
pub enum ServerEndpoint {
    /// Streamable HTTP. A server of 2024-11-05 (HTTP+SSE) at the same URL is detected.
    Http(Url),
    /// HTTP+SSE (2024-11-05). The URL is that of the event stream. Only the legacy era is
    /// supported.
    Sse(Url),
    /// WebSocket with subprotocol `mcp`. If it can't be opened, HTTP at the same URL is tried, unless
    /// the transport is fixed.
    WebSocket(Url),
    /// Child process that reads messages on standard input and writes them on standard output.
    Child(ChildCommand),
}

impl ServerEndpoint {
    /// Parses the URL of a server: `http`, `https`, `ws` or `wss`, without user and password.
    ///
    /// # Errors
    /// [`McpClientError::Url`].
    pub fn from_url(url: &str) -> Result<Self, McpClientError> {
        let url = Url::parse(url).map_err(|_| McpClientError::Url)?;
        if !url.username().is_empty() || url.password().is_some() || !url.has_host() {
            return Err(McpClientError::Url);
        }
        match url.scheme() {
            "http" | "https" => Ok(Self::Http(url)),
            "ws" | "wss" => Ok(Self::WebSocket(url)),
            _ => Err(McpClientError::Url),
        }
    }

    /// Creates an HTTP+SSE endpoint from the http or https URL of the event stream of a server of
    /// 2024-11-05.
    ///
    /// # Errors
    /// [`McpClientError::Url`].
    pub fn sse(url: &str) -> Result<Self, McpClientError> {
        match Self::from_url(url)? {
            Self::Http(url) => Ok(Self::Sse(url)),
            _ => Err(McpClientError::Url),
        }
    }

    /// Returns the address over HTTP of a server that has a WebSocket address; `None` for any other.
    pub(crate) fn over_http(&self) -> Option<Self> {
        let Self::WebSocket(url) = self else {
            return None;
        };
        let scheme = if url.scheme() == "wss" {
            "https"
        } else {
            "http"
        };
        let mut url = url.clone();
        url.set_scheme(scheme).ok()?;
        Some(Self::Http(url))
    }
}

impl fmt::Display for ServerEndpoint {
    /// Writes the address or program for logs and policies. The query is left out, because it may
    /// hold a secret.
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

/// Command that starts an MCP server as a child process, with messages on standard input and
/// output.
#[derive(Clone)]
pub struct ChildCommand {
    /// Program; looked up in `PATH` if it has no slash.
    pub program: OsString,
    /// Arguments of the program.
    pub arguments: Vec<OsString>,
    /// Names of environment variables inherited from this process. No others are inherited.
    pub env_passthrough: Vec<String>,
    /// Additional environment variables.
    pub env: Vec<(String, SecretString)>,
    /// Working directory; that of this process if `None`.
    pub working_directory: Option<PathBuf>,
}

impl ChildCommand {
    /// Creates the command `program` with `arguments`, which inherits the variables of
    /// [`ENV_PASSTHROUGH_DEFAULT`].
    pub fn new(
        program: impl Into<OsString>,
        arguments: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            env_passthrough: ENV_PASSTHROUGH_DEFAULT.map(String::from).to_vec(),
            env: Vec::new(),
            working_directory: None,
        }
    }
}

/// Era of the protocol that a client speaks: detected or fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EraChoice {
    /// Detects the server's era and remembers it for later connections. A server of both eras is met
    /// in the legacy era over pipes and WebSocket, and in the modern era over HTTP.
    #[default]
    Auto,
    /// Uses only the given era.
    Only(Era),
}

/// Options of an [`McpClient`](super::McpClient).
#[derive(Clone)]
pub struct McpClientOptions {
    /// Name of the server in logs. Its address or program by default.
    pub name: Option<String>,
    /// Era of the protocol to speak.
    pub era: EraChoice,
    /// True if only the transport of the server's address is used. Otherwise a server whose WebSocket
    /// can't be opened is met at the same URL over HTTP.
    pub is_transport_fixed: bool,
    /// True if the server may ask questions. One of both eras is then met in the legacy era, if it
    /// has sessions there, because some ask only in these.
    pub expects_questions: bool,
    /// Dialect of the server's questions.
    pub dialect: ServerDialect,
    /// Revision offered in `initialize` (legacy era). The server may choose an older one.
    pub revision: Revision,
    /// Name and version of the client: MCP's `Implementation`.
    pub client_info: RawObject,
    /// Client capabilities offered in `initialize` (legacy era), before any caller is known. In the
    /// modern era each request declares the capabilities of its own caller instead.
    pub offered_capabilities: CallerCapabilities,
    /// Minimum level of log messages requested from the server. If `None`, no level is requested.
    /// Default: info.
    pub log_level: Option<LogLevel>,
    /// If true, subscribes to the server's notifications of changed lists, where the server offers
    /// them. Default: true.
    pub listen: bool,
    /// Minimum time between two notifications of the same change. Default:
    /// [`CHANGE_INTERVAL_DEFAULT`].
    pub change_interval: Duration,
    /// If true, a list that the server reports as changed is fetched, and its change is told only
    /// if the list is another one than at the report before. Default: true.
    pub compares_lists: bool,
    /// Additional headers of each HTTP request.
    pub headers: HeaderMap,
    /// Authorities that the server's certificate may be of, and the client's own certificate.
    /// Default: the public authorities, and no certificate.
    pub tls: ClientTls,
    /// Source of the `Authorization` header of each HTTP request. If `None`, none is sent.
    pub authorizer: Option<Arc<dyn Authorizer>>,
    /// Caller for the server's questions and notifications that can't be assigned to a pending call
    /// (legacy era). Set it if the client serves one caller only. If `None`, such questions are
    /// rejected.
    pub only_caller: Option<Arc<dyn Caller>>,
    /// Limits for the size and nesting depth of a message from the server.
    pub limits: DecodeLimits,
    /// Time limit of connecting to the server over HTTP or WebSocket. Default: 10 s.
    pub connect_timeout: Duration,
    /// Time limit of opening a session in total: connecting, `server/discover`, `initialize` and
    /// renewing subscriptions. Default: 30 s.
    pub handshake_timeout: Duration,
    /// Time limit of `server/discover` while the era of a server over HTTP is unknown. A server
    /// that doesn't answer in time counts as legacy. Default: 1 s.
    pub probe_timeout: Duration,
    /// Time limit of a call without a deadline of its own, questions included. Default: 300 s.
    pub call_timeout: Duration,
    /// Maximum number of times in one call that the server may answer with questions (modern era).
    /// Then the call fails with `Overloaded`. Default: 16.
    pub rounds_max: u32,
    /// Maximum number of consecutive attempts to open a broken event stream again. Default: 5.
    pub reconnects_max: u32,
    /// Maximum number of pages that are fetched of one list. Default: 100.
    pub pages_max: u32,
}

impl EraChoice {
    /// Returns the era if it is fixed, or `None` if it is to be detected.
    pub(crate) fn fixed_era(self) -> Option<Era> {
        match self {
            Self::Only(era) => Some(era),
            Self::Auto => None,
        }
    }
}

impl Default for McpClientOptions {
    fn default() -> Self {
        Self {
            name: None,
            era: EraChoice::Auto,
            is_transport_fixed: false,
            expects_questions: false,
            dialect: ServerDialect::Mcp,
            revision: Revision::LATEST_LEGACY,
            client_info: RawObject::single("name", "callboard")
                .with("version", env!("CARGO_PKG_VERSION")),
            offered_capabilities: CallerCapabilities::all(),
            log_level: Some(LogLevel::Info),
            listen: true,
            change_interval: CHANGE_INTERVAL_DEFAULT,
            compares_lists: true,
            headers: HeaderMap::new(),
            tls: ClientTls::default(),
            authorizer: None,
            only_caller: None,
            limits: DecodeLimits::default(),
            connect_timeout: CONNECT_TIMEOUT_DEFAULT,
            // A child process may have to load first.
            handshake_timeout: Duration::from_secs(30),
            probe_timeout: PROBE_TIMEOUT_DEFAULT,
            call_timeout: CALL_TIMEOUT_DEFAULT,
            rounds_max: 16,
            reconnects_max: RECONNECTS_MAX_DEFAULT,
            pages_max: PAGES_MAX_DEFAULT,
        }
    }
}

impl McpClientOptions {
    /// Checks that the era, the revision and the transport of `endpoint` can be used together.
    ///
    /// # Errors
    /// [`McpClientError::Era`].
    pub(crate) fn validate(&self, endpoint: &ServerEndpoint) -> Result<(), McpClientError> {
        let wants_modern = self.era == EraChoice::Only(Era::Modern);
        match self.revision.era() == Era::Modern
            || wants_modern && matches!(endpoint, ServerEndpoint::Sse(_))
        {
            true => Err(McpClientError::Era),
            false => Ok(()),
        }
    }

    /// Adds a header to each HTTP request. The value is never logged.
    ///
    /// # Errors
    /// [`McpClientError::Header`].
    pub fn with_header(mut self, name: &str, value: &SecretString) -> Result<Self, McpClientError> {
        let name: HeaderName = name.parse().map_err(|_| McpClientError::Header)?;
        let mut value =
            HeaderValue::from_str(value.expose_secret()).map_err(|_| McpClientError::Header)?;
        value.set_sensitive(true);
        self.headers.append(name, value);
        Ok(self)
    }
}

/// Errors in the configuration of a client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum McpClientError {
    /// The address isn't an http, https, ws or wss URL with a host and without user and password.
    /// Use one like `https://tools.example/mcp`.
    #[error(
        "not an http, https, ws or wss URL without user and password: write it like https://tools.example/mcp"
    )]
    Url,
    /// The name isn't a header name, or the value has characters that aren't visible ASCII.
    #[error("not a header name, or a value with other characters than visible ASCII")]
    Header,
    /// The transport supports the legacy era only, or the option `revision` isn't of the legacy
    /// era. Choose another era or revision.
    #[error(
        "the era doesn't fit: the transport supports the legacy era only, or `revision` is of the modern era"
    )]
    Era,
    /// The HTTP client can't be built, because the TLS library supports none of the safe protocol
    /// versions.
    #[error("can't build the HTTP client: {0}")]
    Client(#[source] rustls::Error),
}
