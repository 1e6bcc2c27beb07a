use std::time::Duration;

/// Most calls of one endpoint that wait for answers at once, by default.
pub const PARKED_CALLS_MAX_DEFAULT: usize = 1_024;
/// Most of them of one principal, by default: whoever has a key leaves room for others.
pub const PARKED_CALLS_OF_PRINCIPAL_MAX_DEFAULT: usize = 768;
/// How long a call waits for the answers to its questions, by default.
pub const PARKED_FOR_DEFAULT: Duration = Duration::from_secs(300);
/// Most subscriptions of one endpoint that are open at once, by default.
pub const SUBSCRIPTIONS_MAX_DEFAULT: usize = 1_024;
/// Most resources that one subscription is about, by default.
pub const SUBSCRIPTION_URIS_MAX_DEFAULT: usize = 256;
/// How long a client may keep what the server says of itself, by default.
pub const DISCOVER_TTL_DEFAULT: Duration = Duration::from_secs(3_600);
/// How long a client may keep a list, by default.
pub const LIST_TTL_DEFAULT: Duration = Duration::from_secs(60);

/// How the stateless era of MCP (2026-07-28) is served.
#[derive(Debug, Clone)]
pub struct ModernOptions {
    /// Most calls that wait for answers at once.
    pub parked_calls_max: usize,
    /// Most of them of one principal.
    pub parked_calls_of_principal_max: usize,
    /// How long a call waits for the answers to its questions, each round anew, within its deadline.
    pub parked_for: Duration,
    /// Most subscriptions that are open at once.
    pub subscriptions_max: usize,
    /// Most resources that one subscription is about.
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
        Self { ttl, scope: CacheScope::Private }
    }

    /// Milliseconds, and the word on the wire.
    pub(crate) fn members(self) -> (u64, &'static str) {
        let scope = match self.scope {
            CacheScope::Public => "public",
            CacheScope::Private => "private",
        };
        (u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX), scope)
    }
}

impl Default for ModernOptions {
    fn default() -> Self {
        Self {
            parked_calls_max: PARKED_CALLS_MAX_DEFAULT,
            parked_calls_of_principal_max: PARKED_CALLS_OF_PRINCIPAL_MAX_DEFAULT,
            parked_for: PARKED_FOR_DEFAULT,
            subscriptions_max: SUBSCRIPTIONS_MAX_DEFAULT,
            subscription_uris_max: SUBSCRIPTION_URIS_MAX_DEFAULT,
            discover_cache: CacheHint::private(DISCOVER_TTL_DEFAULT),
            list_cache: CacheHint::private(LIST_TTL_DEFAULT),
            read_cache: CacheHint::private(Duration::ZERO),
            names_server: true,
        }
    }
}
