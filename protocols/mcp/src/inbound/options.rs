//! Options of the server and their defaults, for every transport and both eras.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use callboard_message::capabilities::DescribeAgentResult;
use callboard_message::{DataClass, Principal, RawObject};
use callboard_rpc::{AccessControl, AllowedHosts, AllowedOrigins, DecodeLimits};
use callboard_runtime::running::RunningTaskScopes;
use callboard_runtime::{MemoryTaskStore, PRINCIPAL_SHARE_PERCENT_DEFAULT, Store, TaskStore};
use uuid::Uuid;

use crate::bare;

/// Default time limit of a call, including the time that the client takes to answer questions.
pub const CALL_DEADLINE_DEFAULT: Duration = Duration::from_secs(300);

/// Options of serving an agent over MCP, on any transport.
#[derive(Debug, Clone)]
pub struct InboundOptions {
    /// Name, version and instructions of the server.
    pub info: ServerDescription,
    /// Size and depth limits of a message.
    pub limits: DecodeLimits,
    /// Time limit of a call, including the time that the client takes to answer questions. Default:
    /// 300 s.
    pub call_deadline: Duration,
    /// Maximum number of items on one page of a list. Default: 200.
    pub page_items_max: usize,
    /// Share of a principal in the sessions, event streams, subscriptions and suspended calls of
    /// the server, in percent, 1 to 100. Beyond its share, a principal may have more as long as a
    /// share is left for others: with 25, one alone has three quarters at most. With 100, one
    /// principal may have all. Default: 25.
    pub principal_share_percent: u8,
    /// Options of the modern era.
    pub modern: ModernOptions,
    /// Options of calls that run as tasks.
    pub tasks: McpTaskOptions,
}

impl Default for InboundOptions {
    fn default() -> Self {
        Self {
            info: ServerDescription::default(),
            limits: DecodeLimits::default(),
            call_deadline: CALL_DEADLINE_DEFAULT,
            page_items_max: 200,
            principal_share_percent: PRINCIPAL_SHARE_PERCENT_DEFAULT,
            modern: ModernOptions::default(),
            tasks: McpTaskOptions::default(),
        }
    }
}

/// Name, version and instructions that a server reports.
#[derive(Debug, Clone)]
pub struct ServerDescription {
    /// Name for programs.
    pub name: String,
    /// Version reported to clients: that of the served agent, not of callboard.
    pub version: String,
    /// Name for people.
    pub title: Option<String>,
    /// Instructions for the model that uses the server, such as when to use which tool.
    pub instructions: Option<String>,
    /// Other members of MCP's `Implementation`: `icons`, `websiteUrl`, `description`.
    pub more: RawObject,
    /// Members that replace those that the agent reports of itself.
    pub declared: DeclaredDescription,
}

/// Name, version and instructions that an operator has declared. Unlike the other members of
/// [`ServerDescription`], they replace those that the agent reports of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeclaredDescription {
    /// Name for programs. The agent's name for people is then left out.
    pub name: Option<String>,
    /// Version reported to clients.
    pub version: Option<String>,
    /// Instructions for the model that uses the server.
    pub instructions: Option<String>,
}

impl Default for ServerDescription {
    fn default() -> Self {
        Self {
            name: "callboard".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            title: None,
            instructions: None,
            more: RawObject::new(),
            declared: DeclaredDescription::default(),
        }
    }
}

impl ServerDescription {
    /// Returns the instructions for the client's model: the declared ones, or else the agent's own,
    /// or else the configured ones.
    pub(crate) fn instructions_of(&self, about: &DescribeAgentResult) -> Option<String> {
        let declared = self.declared.instructions.clone();
        declared
            .or_else(|| about.0.text("instructions"))
            .or_else(|| self.instructions.clone())
    }

    /// Returns the `Implementation` object that an agent reports of itself, with the declared
    /// members; `None` if the agent reports none.
    pub(crate) fn implementation_of(&self, about: &DescribeAgentResult) -> Option<RawObject> {
        about
            .0
            .object("serverInfo")
            .map(|info| self.with_declared(info))
    }

    fn with_declared(&self, mut info: RawObject) -> RawObject {
        if let Some(name) = &self.declared.name {
            info.set("name", name);
            info.remove("title");
        }
        info.set_some("version", &self.declared.version);
        info
    }

    /// Returns MCP's `Implementation` object: name, title, version and further members.
    pub fn implementation(&self) -> RawObject {
        let mut info = RawObject::single("name", &self.name);
        info.set_some("title", &self.title);
        info.set("version", &self.version);
        for (name, value) in self.more.iter() {
            info.set_raw(name, value.to_owned());
        }
        self.with_declared(info)
    }
}

/// Default time that a client may cache the result of `server/discover`.
pub const DISCOVER_TTL_DEFAULT: Duration = Duration::from_secs(3_600);
/// Default time that a client may cache a list.
pub const LIST_TTL_DEFAULT: Duration = Duration::from_secs(60);

/// Options of the modern, stateless era (2026-07-28).
#[derive(Debug, Clone)]
pub struct ModernOptions {
    /// Maximum number of suspended calls: calls that wait for the client's answers to their
    /// questions. Further ones fail with `OVERLOADED`. Default: 1,024.
    pub suspended_calls_max: usize,
    /// Time that a suspended call waits for the client's answers in each round of questions.
    /// Default: 300 s.
    pub suspended_ttl: Duration,
    /// Maximum number of open change subscriptions (`subscriptions/listen`). Further ones fail with
    /// `OVERLOADED`. Default: 1,024.
    pub subscriptions_max: usize,
    /// Maximum number of resources, and of tasks, in one subscription. Default: 256.
    pub subscription_uris_max: usize,
    /// Cache hint of `server/discover` results. Default: 3,600 s for the requesting principal.
    pub discover_cache: CacheHint,
    /// Cache hint of lists. Default: 60 s for the requesting principal.
    pub list_cache: CacheHint,
    /// Cache hint of resource contents, unless the agent sets its own. Default: not cached.
    pub read_cache: CacheHint,
    /// True if results name the server (`_meta` member `io.modelcontextprotocol/serverInfo`).
    /// Default: true.
    pub includes_server_info: bool,
}

/// Time and scope for which clients may cache a result (MCP, server/utilities/caching).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheHint {
    /// Time to live; zero disables caching.
    pub ttl: Duration,
    /// Callers that may share the cached result.
    pub scope: CacheScope,
}

/// Callers that may share a cached result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheScope {
    /// All callers: the result doesn't depend on the principal.
    Public,
    /// The requesting principal only.
    Private,
}

impl CacheHint {
    /// Creates a hint for the requesting principal only.
    pub const fn private(ttl: Duration) -> Self {
        Self {
            ttl,
            scope: CacheScope::Private,
        }
    }

    /// Returns the time in milliseconds, and the scope as `public` or `private`, as written in
    /// results.
    pub(crate) fn wire_members(self) -> (u64, &'static str) {
        let scope = match self.scope {
            CacheScope::Public => "public",
            CacheScope::Private => "private",
        };
        (
            u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX),
            scope,
        )
    }
}

impl Default for ModernOptions {
    fn default() -> Self {
        Self {
            suspended_calls_max: 1_024,
            suspended_ttl: Duration::from_secs(300),
            subscriptions_max: 1_024,
            subscription_uris_max: 256,
            discover_cache: CacheHint::private(DISCOVER_TTL_DEFAULT),
            list_cache: CacheHint::private(LIST_TTL_DEFAULT),
            read_cache: CacheHint::private(Duration::ZERO),
            includes_server_info: true,
        }
    }
}

/// Default time that a task is kept after its creation, if the client requests none.
pub const TASK_TTL_DEFAULT: Duration = Duration::from_secs(600);
/// Minimum time that a task is kept, so that its creator can fetch it. A shorter requested time is
/// raised to it.
pub const TASK_TTL_MIN: Duration = Duration::from_secs(1);
/// Default maximum number of tasks of one served agent, including finished ones.
pub const TASKS_MAX_DEFAULT: usize = 1_024;

/// Options of calls that run as tasks.
#[derive(Debug, Clone)]
pub struct McpTaskOptions {
    /// Time that a task is kept after its creation, if the client requests none. A task that still
    /// runs then is ended. Default: 600 s.
    pub ttl: Duration,
    /// Maximum time that a client may request for keeping a task. A longer one is cut. Default:
    /// 86400 s.
    pub ttl_max: Duration,
    /// Interval at which clients are told to poll a task. Default: 1 s.
    pub poll_interval: Duration,
    /// Maximum number of tasks of the served agent, including finished ones. Default: 1,024.
    pub tasks_max: usize,
    /// Maximum number of tasks of one owner. Default: 128.
    pub tasks_per_owner_max: usize,
    /// Store of the tasks. `None` keeps them in memory until the server is dropped.
    pub store: Option<McpTaskStore>,
    /// Data class under which requests and results of tasks are stored.
    pub class: DataClass,
}

impl Default for McpTaskOptions {
    fn default() -> Self {
        Self {
            ttl: TASK_TTL_DEFAULT,
            ttl_max: Duration::from_secs(24 * 3_600),
            poll_interval: Duration::from_secs(1),
            tasks_max: TASKS_MAX_DEFAULT,
            tasks_per_owner_max: 128,
            store: None,
            class: DataClass::default(),
        }
    }
}

/// Store of tasks, with an identifier of this run of the process.
#[derive(Clone)]
pub struct McpTaskStore {
    pub(crate) tasks: Arc<dyn TaskStore>,
    /// Identifier of this run of the process. It distinguishes sessions of different runs, because
    /// session numbers start again with each run.
    pub(crate) run: Arc<str>,
    /// Running tasks of the whole process, which continue when the server that started them ends.
    /// `None` if tasks end with that server.
    pub(crate) live_scopes: Option<RunningTaskScopes>,
}

impl McpTaskStore {
    /// Creates a store whose running tasks end with the server that started them. `run` identifies
    /// this run of the process, and must differ for each start.
    pub fn new(tasks: Arc<dyn TaskStore>, run: impl Into<Arc<str>>) -> Self {
        Self {
            tasks,
            run: run.into(),
            live_scopes: None,
        }
    }

    /// Creates an in-memory store for at most `tasks_max` tasks.
    pub(crate) fn in_memory(tasks_max: usize) -> Self {
        Self::new(
            Arc::new(MemoryTaskStore::with_capacity(tasks_max)),
            Uuid::new_v4().to_string(),
        )
    }
}

impl From<&Store> for McpTaskStore {
    /// Uses the system's store. Its running tasks continue when the server that started them ends,
    /// until [`RunningTaskScopes::stop`].
    fn from(store: &Store) -> Self {
        Self {
            tasks: store.tasks.clone(),
            run: store.run.clone(),
            live_scopes: Some(store.running_tasks.clone()),
        }
    }
}

impl fmt::Debug for McpTaskStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "McpTaskStore({})", self.tasks.worker_id())
    }
}

/// Default path of a served agent.
pub const PATH_DEFAULT: &str = "/mcp";
/// Default time limit of reading a request body.
pub const BODY_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// Default maximum number of open event streams of one server. It is below the maximum number of
/// connections of a listener, so that further requests still get an error response.
pub const STREAMS_MAX_DEFAULT: usize = 896;
/// Default time that clients are told to wait before they reconnect to an event stream.
pub const RETRY_DEFAULT: Duration = Duration::from_secs(1);
/// Default interval of keep-alive comments on idle event streams.
pub const KEEP_ALIVE_COMMENT_DEFAULT: Duration = Duration::from_secs(15);

/// Options of serving an agent over HTTP.
#[derive(Debug, Clone)]
pub struct McpServerOptions {
    /// Options that apply to every transport.
    pub inbound: InboundOptions,
    /// URL path at which the agent is served. Default: `/mcp`.
    pub path: String,
    /// Authentication of requests.
    pub access: AccessControl,
    /// Accepted values of `Host`, in addition to this machine's own names.
    pub hosts: AllowedHosts,
    /// Accepted values of `Origin`, in addition to this machine's own.
    pub origins: AllowedOrigins,
    /// Rejects requests whose `X-Agent-ID` header differs from the id of their credential. Requests
    /// without the header pass. A mailroom agent always requires this.
    pub agent_id_must_match: bool,
    /// Time limit of reading a request body. Then the request is rejected with 408. Default: 10 s.
    pub body_timeout: Duration,
    /// Sessions of the legacy era.
    pub sessions: SessionOptions,
    /// Limits and timing of event streams.
    pub streams: StreamOptions,
    /// Transports besides streamable HTTP.
    pub compat: CompatOptions,
}

/// Limits of legacy sessions.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// Maximum number of sessions of the server. Further ones are rejected with 503, or 429 at the
    /// principal's limit ([`InboundOptions::principal_share_percent`]). Default: 4,096.
    pub sessions_max: usize,
    /// Time after which a session without requests and streams ends. Default: 1800 s.
    pub idle_timeout: Duration,
    /// Maximum number of open event streams of one session. Further ones are rejected with 429.
    /// Default: 257, one more than requests in flight.
    pub streams_max: usize,
    /// Maximum number of finished streams of one session that are kept for replay after a
    /// reconnect. Default: 4.
    pub replay_streams_max: usize,
}

/// Limits and timing of event streams, in both eras.
#[derive(Debug, Clone)]
pub struct StreamOptions {
    /// Maximum number of open event streams of the server. Further ones are rejected with 503, or
    /// 429 at the principal's limit ([`InboundOptions::principal_share_percent`]). Default: 896.
    pub streams_max: usize,
    /// Buffer limits of each event stream.
    pub limits: StreamLimits,
    /// Time after which a running legacy call is answered with an event stream, which the client
    /// can resume. Default: 200 ms.
    pub stream_after: Duration,
    /// Time after which the connection of a call's stream is closed. The call continues, and the
    /// client reconnects for the rest (2025-11-25, transports). `None` keeps the connection open.
    pub close_after: Option<Duration>,
    /// Time that clients are told to wait before they reconnect. Default: 1 s.
    pub retry: Duration,
    /// Interval of keep-alive comments on idle streams. Default: 15 s.
    pub keep_alive: Duration,
}

/// Additional transports, which current MCP doesn't have. All are off by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompatOptions {
    /// WebSocket with subprotocol `mcp`, at the server's path.
    pub websocket: bool,
    /// HTTP+SSE (2024-11-05), at `sse` and `messages` in the folder of the server's path.
    pub sse: bool,
    /// The [bare dialect](crate::bare) instead of streamable HTTP. Served on loopback addresses
    /// only, whatever `access` says.
    pub bare: bool,
}

impl Default for McpServerOptions {
    fn default() -> Self {
        Self {
            inbound: InboundOptions::default(),
            path: PATH_DEFAULT.into(),
            access: AccessControl::default(),
            hosts: AllowedHosts::default(),
            origins: AllowedOrigins::default(),
            agent_id_must_match: false,
            body_timeout: BODY_TIMEOUT_DEFAULT,
            sessions: SessionOptions::default(),
            streams: StreamOptions::default(),
            compat: CompatOptions::default(),
        }
    }
}

impl McpServerOptions {
    /// Returns the default options of the [bare dialect](crate::bare).
    pub fn bare() -> Self {
        let inbound = InboundOptions {
            call_deadline: bare::CALL_DEADLINE_DEFAULT,
            ..InboundOptions::default()
        };
        Self {
            inbound,
            compat: CompatOptions {
                bare: true,
                ..CompatOptions::default()
            },
            ..Self::default()
        }
    }
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            sessions_max: 4_096,
            idle_timeout: Duration::from_secs(30 * 60),
            streams_max: PENDING_REQUESTS_MAX + 1,
            replay_streams_max: 4,
        }
    }
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            streams_max: STREAMS_MAX_DEFAULT,
            limits: StreamLimits::default(),
            stream_after: Duration::from_millis(200),
            close_after: None,
            retry: RETRY_DEFAULT,
            keep_alive: KEEP_ALIVE_COMMENT_DEFAULT,
        }
    }
}

/// Default maximum number of unread messages of one stream.
pub const STREAM_EVENTS_MAX_DEFAULT: usize = 256;

/// Buffer limits of a stream. Each limit is inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamLimits {
    /// Maximum number of unread messages, and separately of read messages kept for replay. Default:
    /// 256.
    pub events_max: usize,
    /// Maximum size of unread messages, in bytes. Default: 8,388,608.
    pub bytes_max: usize,
    /// Maximum size of the buffer, in bytes, up to which messages that the client has received are
    /// kept for replay. Above it, the oldest of these are dropped; a client that reconnects can't
    /// resume before them. Default: 1,048,576.
    pub replay_bytes_max: usize,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self {
            events_max: STREAM_EVENTS_MAX_DEFAULT,
            bytes_max: 8 * 1024 * 1024,
            replay_bytes_max: 1024 * 1024,
        }
    }
}

/// Default maximum number of concurrent requests of one pipe.
pub const STDIO_REQUESTS_MAX_DEFAULT: usize = 256;
/// Default maximum size of the messages queued for a peer that doesn't read, in bytes. A message
/// over the limit is queued only while the queue is empty.
pub const STDIO_QUEUE_BYTES_MAX_DEFAULT: usize = 16 * 1024 * 1024;
/// Default time that running calls have to finish after the end of input.
pub const STDIO_DRAIN_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

/// Options of serving an agent over standard input and output.
#[derive(Debug, Clone)]
pub struct StdioOptions {
    /// Options that apply to every transport.
    pub inbound: InboundOptions,
    /// Principal at the other end. By default the local operator who started this process.
    pub principal: Principal,
    /// Maximum number of concurrent requests. Further ones are rejected with `OVERLOADED`. Default:
    /// 256.
    pub requests_max: usize,
    /// Maximum size of the messages queued for a peer that doesn't read, in bytes. Beyond it,
    /// notifications are dropped, responses wait, and no further input is read. Default: 16 MiB.
    pub queue_bytes_max: usize,
    /// Time that running calls have to finish after the end of input; then they are cancelled.
    /// Default: 5 s.
    pub drain_timeout: Duration,
}

impl Default for StdioOptions {
    fn default() -> Self {
        Self {
            inbound: InboundOptions::default(),
            principal: Principal::local_operator(),
            requests_max: STDIO_REQUESTS_MAX_DEFAULT,
            queue_bytes_max: STDIO_QUEUE_BYTES_MAX_DEFAULT,
            drain_timeout: STDIO_DRAIN_TIMEOUT_DEFAULT,
        }
    }
}

/// Maximum number of concurrent requests of one session. One more fails with `OVERLOADED`.
pub const PENDING_REQUESTS_MAX: usize = 256;
/// Maximum number of unanswered questions of one session. One more fails with `Overloaded`.
pub const PENDING_ELICITATIONS_MAX: usize = 64;
/// Minimum time between two notifications of the same change to one client. Changes in between are
/// combined into one.
pub const CHANGE_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of resources that one session subscribes to. One more fails with `OVERLOADED`.
pub const SUBSCRIPTIONS_MAX: usize = 1_000;
/// Maximum length of a subscribed resource's URI, in bytes. A longer one fails with
/// `INVALID_PARAMS`.
pub const SUBSCRIPTION_URI_BYTES_MAX: usize = 8 * 1024;
