use std::time::Duration;

use callboard_rpc::{Access, AllowedHosts, AllowedOrigins};

use super::log::StreamLimits;
use crate::bare;
use crate::inbound::legacy::REQUESTS_IN_FLIGHT_MAX;
use crate::inbound::options::InboundOptions;

/// Where an agent is served, by default.
pub const PATH_DEFAULT: &str = "/mcp";
/// How long a body may take to arrive, by default.
pub const BODY_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// Most sessions (legacy) of one server, by default.
pub const SESSIONS_MAX_DEFAULT: usize = 4_096;
/// Most sessions of one principal, by default: whoever has a key leaves room for others.
pub const SESSIONS_OF_PRINCIPAL_MAX_DEFAULT: usize = 3_072;
/// How long a session without requests and streams is kept, by default.
pub const SESSION_IDLE_DEFAULT: Duration = Duration::from_secs(30 * 60);
/// Most event streams of one server that are open at once, by default: fewer than a listener's connections, so that who
/// comes next is told.
pub const STREAMS_MAX_DEFAULT: usize = 896;
/// Most event streams of one session that are open at once, by default: every request in flight, and its GET stream.
pub const SESSION_STREAMS_MAX_DEFAULT: usize = REQUESTS_IN_FLIGHT_MAX + 1;
/// Most finished streams of one session that can still be read again, by default.
pub const REPLAY_STREAMS_MAX_DEFAULT: usize = 4;
/// How long a legacy call may run before its answer becomes an event stream, by default.
pub const STREAM_AFTER_DEFAULT: Duration = Duration::from_millis(200);
/// The pause that readers of event streams are told to make before they come back, by default.
pub const RETRY_DEFAULT: Duration = Duration::from_secs(1);
/// How often an idle event stream shows that it is alive, by default.
pub const KEEP_ALIVE_COMMENT_DEFAULT: Duration = Duration::from_secs(15);

/// How an agent is served over HTTP.
#[derive(Debug, Clone)]
pub struct McpServerOptions {
    /// What is the same on every transport.
    pub inbound: InboundOptions,
    /// Where it is served.
    pub path: String,
    /// How it is known who is behind a request.
    pub access: Access,
    /// Names (`Host`) beside this machine's own.
    pub hosts: AllowedHosts,
    /// Web pages (`Origin`) beside this machine's own.
    pub origins: AllowedOrigins,
    /// Whether `X-Agent-ID`, where a request has it, must be its credential's id. In front of a mailroom alone it must,
    /// whatever this says.
    pub claims_must_match: bool,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// Sessions of the legacy era.
    pub sessions: SessionOptions,
    /// Event streams.
    pub streams: StreamOptions,
    /// Transports beside streamable HTTP.
    pub compat: Compat,
}

/// Sessions of the legacy era.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// Most sessions of the server; more are refused with 503.
    pub sessions_max: usize,
    /// Most of them of one principal; more are refused with 503.
    pub of_principal_max: usize,
    /// How long a session without requests and streams is kept.
    pub idle_max: Duration,
    /// Most event streams of one session that are open at once; more are refused with 429.
    pub streams_max: usize,
    /// Most finished streams of one session that can still be read again.
    pub replay_streams_max: usize,
}

/// Event streams, of both eras.
#[derive(Debug, Clone)]
pub struct StreamOptions {
    /// Most event streams of the server that are open at once; more are refused with 503.
    pub streams_max: usize,
    /// How much each keeps.
    pub limits: StreamLimits,
    /// How long a legacy call may run before its answer becomes an event stream, which can be resumed.
    pub after: Duration,
    /// After how long the connection of a call's stream is closed while the call goes on: the client comes back for the
    /// rest (2025-11-25, transports). `None` keeps it open.
    pub poll_after: Option<Duration>,
    /// The pause that readers are told to make before they come back.
    pub retry: Duration,
    /// How often an idle stream shows that it is alive.
    pub keep_alive: Duration,
}

/// Transports that aren't MCP's any more, or never were. All are off by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Compat {
    /// WebSocket, subprotocol `mcp`, at the server's path.
    pub websocket: bool,
    /// HTTP+SSE (2024-11-05), at `sse` and `messages` beside the server's path.
    pub sse: bool,
    /// The [bare dialect](crate::bare) in place of streamable HTTP. Served on loopback addresses only, whatever the access.
    pub bare: bool,
}

impl Default for McpServerOptions {
    fn default() -> Self {
        Self {
            inbound: InboundOptions::default(),
            path: PATH_DEFAULT.into(),
            access: Access::default(),
            hosts: AllowedHosts::default(),
            origins: AllowedOrigins::default(),
            claims_must_match: false,
            body_timeout: BODY_TIMEOUT_DEFAULT,
            sessions: SessionOptions::default(),
            streams: StreamOptions::default(),
            compat: Compat::default(),
        }
    }
}

impl McpServerOptions {
    /// The defaults of the [bare dialect](crate::bare).
    pub fn bare() -> Self {
        let inbound = InboundOptions { call_deadline: bare::CALL_DEADLINE_DEFAULT, ..InboundOptions::default() };
        Self { inbound, compat: Compat { bare: true, ..Compat::default() }, ..Self::default() }
    }
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            sessions_max: SESSIONS_MAX_DEFAULT,
            of_principal_max: SESSIONS_OF_PRINCIPAL_MAX_DEFAULT,
            idle_max: SESSION_IDLE_DEFAULT,
            streams_max: SESSION_STREAMS_MAX_DEFAULT,
            replay_streams_max: REPLAY_STREAMS_MAX_DEFAULT,
        }
    }
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            streams_max: STREAMS_MAX_DEFAULT,
            limits: StreamLimits::default(),
            after: STREAM_AFTER_DEFAULT,
            poll_after: None,
            retry: RETRY_DEFAULT,
            keep_alive: KEEP_ALIVE_COMMENT_DEFAULT,
        }
    }
}
