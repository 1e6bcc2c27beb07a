//! How a bridge behaves, and what bounds it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use callboard_runtime::{Answering, AuditLog, Backoff};

use crate::outbound::ClientOptions;

/// The pause before a call is sent again, by default; it doubles from one time to the next, and half of it is random.
pub const RETRY_PAUSE_DEFAULT: Duration = Duration::from_millis(200);
/// Most results of one server that are kept, by default.
pub const CACHE_ENTRIES_MAX_DEFAULT: usize = 4_096;
/// Most bytes of results of one server that are kept, by default.
pub const CACHE_BYTES_MAX_DEFAULT: usize = 16 << 20;

/// How an upstream's tools are called.
#[derive(Debug, Clone)]
pub struct ToolOptions {
    /// Most times that a call is sent again, where the server is away or has too much to do. Only of tools that say
    /// `idempotentHint` or `readOnlyHint`, within the call's deadline, and never once somebody was asked something. 0:
    /// never.
    /// Default: 2.
    pub retries_max: u32,
    /// The pause before the first of them.
    pub retry_pause: Duration,
    /// For how long results are kept, by tool or pattern ([`callboard_runtime::Patterns`]); zero: not at all. A tool
    /// that says `readOnlyHint` may say it itself, in seconds: `_meta["callboard/cache"]`.
    pub cache: HashMap<String, Duration>,
    /// Tools, or patterns, whose results are the same whoever asks. Those of others are kept for each principal.
    pub cache_shared: Vec<String>,
    /// Most results that are kept; 0: none.
    pub cache_entries_max: usize,
    /// Most bytes of results that are kept.
    pub cache_bytes_max: usize,
}

impl Default for ToolOptions {
    fn default() -> Self {
        Self {
            retries_max: 2,
            retry_pause: RETRY_PAUSE_DEFAULT,
            cache: HashMap::new(),
            cache_shared: Vec::new(),
            cache_entries_max: CACHE_ENTRIES_MAX_DEFAULT,
            cache_bytes_max: CACHE_BYTES_MAX_DEFAULT,
        }
    }
}

/// Calls that one server may have under way, at most: past it they wait in the agent's mailbox.
pub const BRIDGE_CALLS_MAX: u32 = 4_096;
/// Connections of one bridge beside the one that hears of changes, by default.
pub const CONNECTIONS_MAX_DEFAULT: usize = 64;
/// The same of a server that is at an address, in a topology: as many as its clients may well have sessions.
pub const CONNECTIONS_MAX_AT_ADDRESS_DEFAULT: usize = 1_024;
/// How long a server is left alone the first time, and the pause before the first restart, by default; each is twice the one
/// before.
const BACKOFF_FIRST_DEFAULT: Duration = Duration::from_millis(500);
/// The longest, by default.
const BACKOFF_MAX_DEFAULT: Duration = Duration::from_secs(60);
/// A connection that lived so long was a good one: pauses begin at the first again.
pub const STABLE_AFTER: Duration = Duration::from_secs(60);
/// How long a bridge waits for a server to say what it is, before it says what it knew last.
pub const DESCRIBE_WAIT: Duration = Duration::from_secs(2);
/// How long a server may leave a sign of life unanswered.
pub const PING_TIMEOUT: Duration = Duration::from_secs(5);

/// When a server is connected to, or started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Start {
    /// When something is asked of it; again likewise, once it has ended.
    #[default]
    Demand,
    /// With the agent; again by itself, after a pause, whenever it has ended.
    Boot,
}

/// How a bridge behaves.
#[derive(Clone)]
pub struct BridgeOptions {
    /// How it speaks to the server. `name`, `offers` and `only_caller` are set by the bridge.
    pub client: ClientOptions,
    /// Who answers the server's questions. `None`: the call's own caller, what it can.
    pub answering: Option<Arc<dyn Answering>>,
    /// When it connects.
    pub start: Start,
    /// Calls that the server may have under way, at least 1; one more is refused as `Overloaded` after `calls_wait`.
    pub calls_max: u32,
    /// How long a call waits for a place among those, and for a connection.
    pub calls_wait: Duration,
    /// Connections beside the one that hears of changes, at least 1; one more takes the place of the one that was idle
    /// longest, or waits for one.
    pub connections_max: usize,
    /// How long a connection that nobody uses is kept; the one that hears of changes stays.
    pub idle_timeout: Duration,
    /// Failures in a row after which the server is left alone, at least 1. A server that doesn't answer a handshake in
    /// time is left alone at once.
    pub failures_max: u32,
    /// For how long, and how long before a restart.
    pub backoff: Backoff,
    /// How often the server is asked for a sign of life, where it is connected. `None`: never.
    pub ping_every: Option<Duration>,
    /// Which calls of tools are sent again, and which results are kept.
    pub tools: ToolOptions,
    /// The audit that is told what a server is up to. `None`: the one of the bridge's system.
    pub audit: Option<AuditLog>,
}

impl Default for BridgeOptions {
    fn default() -> Self {
        Self {
            client: ClientOptions::default(),
            answering: None,
            start: Start::Demand,
            calls_max: 64,
            calls_wait: Duration::from_secs(5),
            connections_max: CONNECTIONS_MAX_DEFAULT,
            idle_timeout: Duration::from_secs(600),
            failures_max: 3,
            backoff: Backoff {
                first: BACKOFF_FIRST_DEFAULT,
                max: BACKOFF_MAX_DEFAULT,
                jitter: 0.2,
            },
            ping_every: None,
            tools: ToolOptions::default(),
            audit: None,
        }
    }
}
