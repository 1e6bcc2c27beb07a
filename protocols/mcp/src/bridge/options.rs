//! Options and limits of a bridge.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use callboard_runtime::{AuditLog, Backoff, PRINCIPAL_SHARE_PERCENT_DEFAULT, QuestionRouter};

use crate::outbound::McpClientOptions;

/// Default pause before the first retry of a call. It doubles with each retry, and half of it is
/// random.
pub const RETRY_PAUSE_DEFAULT: Duration = Duration::from_millis(200);
/// Default maximum number of cached results of one server.
pub const CACHE_ENTRIES_MAX_DEFAULT: usize = 4_096;
/// Default maximum size of the cached results of one server, in bytes.
pub const CACHE_BYTES_MAX_DEFAULT: usize = 16 << 20;

/// Options for retries and the result cache of tool calls through a bridge.
#[derive(Debug, Clone)]
pub struct BridgeToolOptions {
    /// Maximum number of retries of a call to an unavailable or overloaded server, within the call's
    /// deadline, and never after the server has asked a question. Only calls to the tools of
    /// `retry_tools` are retried, and those that couldn't be sent, because no connection came about,
    /// to tools with `idempotentHint`. 0 disables retries. Default: 2.
    pub retries_max: u32,
    /// Tools, by name or pattern ([`callboard_runtime::NamePatterns`]), whose calls may be repeated
    /// although the server may have executed them. Hints of the server don't count, because they are
    /// unverified.
    pub retry_tools: Vec<String>,
    /// Pause before the first retry. It doubles with each retry.
    pub retry_pause: Duration,
    /// Time to live of cached results, by tool name or pattern
    /// ([`callboard_runtime::NamePatterns`]). Zero disables the cache for a tool. For tools not
    /// named here, the server may set a time in seconds in the tool's `_meta["callboard/cache"]`,
    /// if the tool has `readOnlyHint`.
    pub cache_ttl: HashMap<String, Duration>,
    /// Tools or patterns whose cached results are shared by all callers. Results of other tools are
    /// cached per principal.
    pub cache_shared: Vec<String>,
    /// If true, only tools that the server lists can be called. Tools that are left out of its
    /// list, such as misleading ones and those that a policy blocks, can't. Default: true.
    pub checks_listed: bool,
    /// If true, the arguments of a call must fit the input schema of its tool, where the schema can
    /// be enforced within the limits. Default: true.
    pub checks_arguments: bool,
    /// Maximum number of cached results; 0 disables the cache.
    pub cache_entries_max: usize,
    /// Maximum size of all cached results, in bytes.
    pub cache_bytes_max: usize,
}

impl Default for BridgeToolOptions {
    fn default() -> Self {
        Self {
            retries_max: 2,
            retry_tools: Vec::new(),
            retry_pause: RETRY_PAUSE_DEFAULT,
            cache_ttl: HashMap::new(),
            cache_shared: Vec::new(),
            checks_listed: true,
            checks_arguments: true,
            cache_entries_max: CACHE_ENTRIES_MAX_DEFAULT,
            cache_bytes_max: CACHE_BYTES_MAX_DEFAULT,
        }
    }
}

/// Largest value of `BridgeOptions::calls_max`, and maximum number of requests that a bridge
/// handles at a time. Further requests wait in the agent's mailbox.
pub const BRIDGE_CALLS_MAX: u32 = 4_096;
/// Default maximum number of connections of one bridge, not counting the one that all callers share.
pub const CONNECTIONS_MAX_DEFAULT: usize = 64;
/// Default of `BridgeOptions::connections_max` for servers that a topology file declares with an
/// HTTP address instead of a command. It is higher because each client session may need a
/// connection of its own.
pub const REMOTE_CONNECTIONS_DEFAULT: usize = 1_024;
/// Default first pause while the circuit breaker is open or before a reconnect. Each pause is twice
/// the one before.
const BACKOFF_FIRST_DEFAULT: Duration = Duration::from_millis(500);
/// Default longest pause while the circuit breaker is open or before a reconnect.
const BACKOFF_MAX_DEFAULT: Duration = Duration::from_secs(60);
/// Duration after which a connection counts as stable. If it ends later, the reconnect pauses start
/// again at the shortest.
pub const STABLE_CONNECTION_AGE: Duration = Duration::from_secs(60);
/// Maximum time for which `initialize` of a client waits for a server that is starting. After it, the
/// bridge returns the last known description, or says that the server is still starting. Clients give up
/// after 10 s at the earliest.
pub const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(6);
/// Part of a call's remaining time for which a list or description waits for a server that is starting.
pub const START_WAIT_SHARE: f64 = 0.75;
/// Time limit for the answer to a ping.
pub const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// Time at which a bridge connects to its server, or starts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StartMode {
    /// On the first request, and on the first request after the connection ended.
    #[default]
    Demand,
    /// When the agent starts, and again after a pause whenever the connection ended.
    Boot,
}

/// Options of a [`Bridge`](super::Bridge).
#[derive(Clone)]
pub struct BridgeOptions {
    /// Options of the bridge's MCP client. The bridge overrides `name`, `offered_capabilities` and
    /// `only_caller`.
    pub client: McpClientOptions,
    /// Router that answers the server's questions. `None`: the call's own caller answers, within
    /// its capabilities.
    pub question_router: Option<Arc<dyn QuestionRouter>>,
    /// True if the server keeps no state for a client, so that all clients whom it can't ask may use
    /// one connection.
    pub is_stateless: bool,
    /// Time at which the bridge connects to its server.
    pub start: StartMode,
    /// Maximum number of concurrent calls to the server, 1 to 4,096. A further call fails with
    /// `Overloaded` after `call_slot_timeout`.
    pub calls_max: u32,
    /// Share of a principal in the calls, in the calls that wait for an answer, in the connections,
    /// and with [`Bridge::agent_profile`](super::Bridge::agent_profile) in the requests that the
    /// bridge handles at a time, in percent, 1 to 100. Beyond its share, a principal may use places
    /// as long as a share is left for others. With 100, one principal may use all.
    pub principal_share_percent: u8,
    /// Maximum time that a call waits for one of the `calls_max` slots, and then again for a free
    /// connection.
    pub call_slot_timeout: Duration,
    /// Maximum number of connections, at least 1, not counting the one that all callers share. At the
    /// limit, a new connection replaces the one that has been idle longest. If none is idle, the call
    /// waits.
    pub connections_max: usize,
    /// Time after which an unused connection without subscriptions is closed. The one that all
    /// callers share stays open.
    pub idle_timeout: Duration,
    /// Number of consecutive failures that open the circuit breaker, at least 1. A time-out, such
    /// as that of the handshake, opens it at once.
    pub failures_max: u32,
    /// Pauses while the circuit breaker is open, and before reconnecting with [`StartMode::Boot`].
    pub backoff: Backoff,
    /// Interval between pings of a connected server. `None` disables them.
    pub ping_interval: Option<Duration>,
    /// Retries and result cache of tool calls.
    pub tools: BridgeToolOptions,
    /// Audit log for events that concern the server. `None` uses the audit log of the system that
    /// runs the bridge.
    pub audit: Option<AuditLog>,
}

impl Default for BridgeOptions {
    fn default() -> Self {
        Self {
            client: McpClientOptions::default(),
            question_router: None,
            is_stateless: false,
            start: StartMode::Demand,
            calls_max: 64,
            principal_share_percent: PRINCIPAL_SHARE_PERCENT_DEFAULT,
            call_slot_timeout: Duration::from_secs(5),
            connections_max: CONNECTIONS_MAX_DEFAULT,
            idle_timeout: Duration::from_secs(600),
            failures_max: 3,
            backoff: Backoff {
                first: BACKOFF_FIRST_DEFAULT,
                max: BACKOFF_MAX_DEFAULT,
                jitter: 0.2,
            },
            ping_interval: None,
            tools: BridgeToolOptions::default(),
            audit: None,
        }
    }
}
