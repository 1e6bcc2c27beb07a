//! Options of the server, on every transport and in both eras, with their defaults.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use callboard_message::surface::About;
use callboard_message::{DataClass, Principal, RawObject};
use callboard_rpc::{Access, AllowedHosts, AllowedOrigins, Limits};
use callboard_runtime::live::LiveScopes;
use callboard_runtime::{MemoryTasks, Store, Tasks};
use uuid::Uuid;

use crate::bare;

/// How long a call may take, questions included, by default.
pub const CALL_DEADLINE_DEFAULT: Duration = Duration::from_secs(300);

/// How an agent is served over MCP.
#[derive(Debug, Clone)]
pub struct InboundOptions {
    /// What the server says of itself.
    pub info: Info,
    /// What a message may measure.
    pub limits: Limits,
    /// How long a call may take, questions included.
    pub call_deadline: Duration,
    /// Most items on one page of a list.
    /// Default: 200.
    pub page_items_max: usize,
    /// How the stateless era is served.
    pub modern: ModernOptions,
    /// How calls run as tasks.
    pub tasks: TaskOptions,
}

impl Default for InboundOptions {
    fn default() -> Self {
        Self {
            info: Info::default(),
            limits: Limits::default(),
            call_deadline: CALL_DEADLINE_DEFAULT,
            page_items_max: 200,
            modern: ModernOptions::default(),
            tasks: TaskOptions::default(),
        }
    }
}

/// What a server says of itself.
#[derive(Debug, Clone)]
pub struct Info {
    /// For programs.
    pub name: String,
    /// Of what is served, not of callboard.
    pub version: String,
    /// For people.
    pub title: Option<String>,
    /// For the model that uses it: when to use what.
    pub instructions: Option<String>,
    /// Other members of MCP's `Implementation`: `icons`, `websiteUrl`, `description`.
    pub more: RawObject,
}

impl Default for Info {
    fn default() -> Self {
        Self {
            name: "callboard".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            title: None,
            instructions: None,
            more: RawObject::new(),
        }
    }
}

impl Info {
    /// What clients are told of the use of an agent: the agent's own word, else the configured one.
    pub(crate) fn instructions_of(&self, about: &About) -> Option<String> {
        about
            .0
            .text("instructions")
            .or_else(|| self.instructions.clone())
    }

    /// MCP's `Implementation`.
    pub fn implementation(&self) -> RawObject {
        let mut info = RawObject::of("name", &self.name);
        info.set_some("title", &self.title);
        info.set("version", &self.version);
        for (name, value) in self.more.iter() {
            info.set_raw(name, value.to_owned());
        }
        info
    }
}

/// How long a client may keep what the server says of itself, by default.
pub const DISCOVER_TTL_DEFAULT: Duration = Duration::from_secs(3_600);
/// How long a client may keep a list, by default.
pub const LIST_TTL_DEFAULT: Duration = Duration::from_secs(60);

/// How the stateless era of MCP (2026-07-28) is served.
#[derive(Debug, Clone)]
pub struct ModernOptions {
    /// Most calls that wait for answers at once.
    /// Default: 1,024.
    pub parked_calls_max: usize,
    /// Most of them of one principal.
    /// Default: 768.
    pub parked_calls_of_principal_max: usize,
    /// How long a call waits for the answers to its questions, each round anew, within its deadline.
    /// Default: 300 s.
    pub parked_for: Duration,
    /// Most subscriptions that are open at once.
    /// Default: 1,024.
    pub subscriptions_max: usize,
    /// Most resources that one subscription is about.
    /// Default: 256.
    pub subscription_uris_max: usize,
    /// How long and for whom `server/discover` may be kept.
    pub discover_cache: CacheHint,
    /// How long and for whom lists may be kept.
    pub list_cache: CacheHint,
    /// How long and for whom the content of a resource may be kept, where the agent doesn't say.
    pub read_cache: CacheHint,
    /// Whether results say who answered (`_meta` `io.modelcontextprotocol/serverInfo`).
    pub names_server: bool,
}

/// For how long and for whom a result may be kept (MCP, server/utilities/caching).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheHint {
    /// How long; zero is not at all.
    pub ttl: Duration,
    /// For whom.
    pub scope: CacheScope,
}

/// For whom a result may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheScope {
    /// Anybody: it is the same for all.
    Public,
    /// The principal that asked.
    Private,
}

impl CacheHint {
    /// For the principal that asked.
    pub const fn private(ttl: Duration) -> Self {
        Self {
            ttl,
            scope: CacheScope::Private,
        }
    }

    /// Milliseconds, and the word on the wire.
    pub(crate) fn members(self) -> (u64, &'static str) {
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
            parked_calls_max: 1_024,
            parked_calls_of_principal_max: 768,
            parked_for: Duration::from_secs(300),
            subscriptions_max: 1_024,
            subscription_uris_max: 256,
            discover_cache: CacheHint::private(DISCOVER_TTL_DEFAULT),
            list_cache: CacheHint::private(LIST_TTL_DEFAULT),
            read_cache: CacheHint::private(Duration::ZERO),
            names_server: true,
        }
    }
}

/// How long a task is kept from its beginning, by default, where its client doesn't say.
pub const TASK_TTL_DEFAULT: Duration = Duration::from_secs(600);
/// Shortest that a task is kept: whoever began it must be able to see it.
pub const TASK_TTL_MIN: Duration = Duration::from_secs(1);
/// Most tasks of one endpoint that are kept, ended ones included, by default.
pub const TASKS_MAX_DEFAULT: usize = 1_024;

/// How calls run as tasks.
#[derive(Debug, Clone)]
pub struct TaskOptions {
    /// How long a task is kept from its beginning where its client doesn't say. It is also its deadline.
    pub ttl: Duration,
    /// Longest that a client can have.
    /// Default: 86400 s.
    pub ttl_max: Duration,
    /// How long clients are asked to wait between two looks.
    /// Default: 1 s.
    pub poll_interval: Duration,
    /// Most tasks that are kept, ended ones included.
    pub tasks_max: usize,
    /// Most of them that belong to one owner.
    /// Default: 128.
    pub of_owner_max: usize,
    /// Where they are kept. `None`: in memory, as long as the endpoint.
    pub store: Option<TaskStore>,
    /// What the requests and outcomes of this endpoint's agent may hold.
    pub class: DataClass,
}

impl Default for TaskOptions {
    fn default() -> Self {
        Self {
            ttl: TASK_TTL_DEFAULT,
            ttl_max: Duration::from_secs(24 * 3_600),
            poll_interval: Duration::from_secs(1),
            tasks_max: TASKS_MAX_DEFAULT,
            of_owner_max: 128,
            store: None,
            class: DataClass::default(),
        }
    }
}

/// Where tasks are kept, and by which run of the process.
#[derive(Clone)]
pub struct TaskStore {
    pub(crate) tasks: Arc<dyn Tasks>,
    /// Sessions are counted anew in each run: this tells those of one from those of another.
    pub(crate) run: Arc<str>,
    /// Whose the tasks are that run; `None`: each endpoint's that they began at.
    pub(crate) live: Option<LiveScopes>,
}

impl TaskStore {
    /// `run` is another one at each start of the process. The work on a task ends with the endpoint where it began.
    pub fn new(tasks: Arc<dyn Tasks>, run: impl Into<Arc<str>>) -> Self {
        Self {
            tasks,
            run: run.into(),
            live: None,
        }
    }

    /// Tasks that last as long as this value.
    pub(crate) fn in_memory(tasks_max: usize) -> Self {
        Self::new(
            Arc::new(MemoryTasks::with_capacity(tasks_max)),
            Uuid::new_v4().to_string(),
        )
    }
}

impl From<&Store> for TaskStore {
    /// Tasks go on when the endpoint ends where they began, until [`LiveScopes::stop`] of the store.
    fn from(store: &Store) -> Self {
        Self {
            tasks: store.tasks.clone(),
            run: store.run.clone(),
            live: Some(store.live.clone()),
        }
    }
}

impl fmt::Debug for TaskStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskStore({})", self.tasks.worker())
    }
}

/// Where an agent is served, by default.
pub const PATH_DEFAULT: &str = "/mcp";
/// How long a body may take to arrive, by default.
pub const BODY_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// Most event streams of one server that are open at once, by default: fewer than a listener's connections, so that who
/// comes next is told.
pub const STREAMS_MAX_DEFAULT: usize = 896;
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
    /// Default: 4,096.
    pub sessions_max: usize,
    /// Most of them of one principal; more are refused with 503.
    /// Default: 3,072.
    pub of_principal_max: usize,
    /// How long a session without requests and streams is kept.
    /// Default: 1800 s.
    pub idle_max: Duration,
    /// Most event streams of one session that are open at once; more are refused with 429.
    /// Default: 257, one more than requests in flight.
    pub streams_max: usize,
    /// Most finished streams of one session that can still be read again.
    /// Default: 4.
    pub replay_streams_max: usize,
}

/// Event streams, of both eras.
#[derive(Debug, Clone)]
pub struct StreamOptions {
    /// Most event streams of the server that are open at once; more are refused with 503.
    /// Default: 896.
    pub streams_max: usize,
    /// How much each keeps.
    pub limits: StreamLimits,
    /// How long a legacy call may run before its answer becomes an event stream, which can be resumed.
    /// Default: 200 ms.
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
        let inbound = InboundOptions {
            call_deadline: bare::CALL_DEADLINE_DEFAULT,
            ..InboundOptions::default()
        };
        Self {
            inbound,
            compat: Compat {
                bare: true,
                ..Compat::default()
            },
            ..Self::default()
        }
    }
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            sessions_max: 4_096,
            of_principal_max: 3_072,
            idle_max: Duration::from_secs(30 * 60),
            streams_max: REQUESTS_IN_FLIGHT_MAX + 1,
            replay_streams_max: 4,
        }
    }
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            streams_max: STREAMS_MAX_DEFAULT,
            limits: StreamLimits::default(),
            after: Duration::from_millis(200),
            poll_after: None,
            retry: RETRY_DEFAULT,
            keep_alive: KEEP_ALIVE_COMMENT_DEFAULT,
        }
    }
}

/// Most messages of one stream that wait for its reader, by default.
pub const STREAM_EVENTS_MAX_DEFAULT: usize = 256;

/// How much a stream keeps. Each bound is inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamLimits {
    /// Messages that wait for the reader, and as many that it has read.
    pub events_max: usize,
    /// Bytes that wait for the reader.
    /// Default: 8,388,608.
    pub bytes_max: usize,
    /// Bytes that are kept after they were read, for a reader that comes back.
    /// Default: 1,048,576.
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

/// Most requests of one pipe that run at once, by default.
pub const STDIO_REQUESTS_MAX_DEFAULT: usize = 256;
/// Most bytes that wait for a peer that doesn't read, by default. One message may be larger, then it waits alone.
pub const STDIO_QUEUE_BYTES_MAX_DEFAULT: usize = 16 * 1024 * 1024;
/// How long running calls may take to tidy up once the pipe's end is reached, by default.
pub const STDIO_DRAIN_DEFAULT: Duration = Duration::from_secs(5);

/// How an agent is served over a pipe.
#[derive(Debug, Clone)]
pub struct StdioOptions {
    /// What is served, and how.
    pub inbound: InboundOptions,
    /// Who is at the other end: by default whoever started this process.
    pub principal: Principal,
    /// Most requests that run at once; further ones are told that it is too much.
    pub requests_max: usize,
    /// Most bytes that wait for a peer that doesn't read. Then notifications are left out, answers wait, and nothing more
    /// is read.
    pub queue_bytes_max: usize,
    /// How long running calls may take to tidy up once the pipe's end is reached.
    pub drain: Duration,
}

impl Default for StdioOptions {
    fn default() -> Self {
        Self {
            inbound: InboundOptions::default(),
            principal: Principal::local_operator(),
            requests_max: STDIO_REQUESTS_MAX_DEFAULT,
            queue_bytes_max: STDIO_QUEUE_BYTES_MAX_DEFAULT,
            drain: STDIO_DRAIN_DEFAULT,
        }
    }
}

/// Most requests of one session that run at once.
pub const REQUESTS_IN_FLIGHT_MAX: usize = 256;
/// Most questions of one session that wait for an answer.
pub const QUESTIONS_PENDING_MAX: usize = 64;
/// Most resources that one session subscribes to.
pub const SUBSCRIPTIONS_MAX: usize = 1_000;
/// Most bytes of a resource's address that a session subscribes to.
pub const SUBSCRIPTION_URI_BYTES_MAX: usize = 8 * 1024;
