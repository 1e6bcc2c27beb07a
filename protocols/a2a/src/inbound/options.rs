//! Options and defaults for serving an agent.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use callboard_message::DataClass;
use callboard_rpc::{AccessControl, AllowedHosts, AllowedOrigins, DecodeLimits, IpNetwork};
use callboard_runtime::{MemoryTaskStore, PRINCIPAL_SHARE_PERCENT_DEFAULT, Store};
use reqwest::dns::Resolve;
use url::Url;

use crate::card::CardSigningKey;
use crate::wire::{AgentExtension, AgentProvider};

/// Default delay before the first retry of a push notification. Each further delay is twice as
/// long.
/// Changed by `PushOptions::retry_delay`.
pub const PUSH_RETRY_DELAY_DEFAULT: Duration = Duration::from_secs(1);
/// Default time for which a request waits for its call, questions included.
/// At the limit: the response is the task in its current state; the call continues. Changed by
/// `A2aOptions::call_deadline`.
pub const CALL_DEADLINE_DEFAULT: Duration = Duration::from_secs(300);
/// Default timeout for receiving a request's body.
/// At the limit: HTTP status 408. Changed by `A2aOptions::body_timeout`.
pub const BODY_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// Default retention of a task from its beginning.
/// At the limit: the task is deleted. Changed by `A2aTaskOptions::ttl`.
pub const TASK_TTL_DEFAULT: Duration = Duration::from_secs(24 * 3_600);
/// Default maximum number of an agent's stored tasks, ended ones included.
/// At the limit: the owner's oldest ended tasks are deleted; if there are none, error -32603, HTTP
/// status 503 with `Retry-After`. Changed by `A2aTaskOptions::tasks_max`.
pub const TASKS_MAX_DEFAULT: usize = 10_000;
/// Default maximum number of stored tasks of one owner.
/// At the limit: the owner's oldest ended tasks are deleted; if there are none, error -32603, HTTP
/// status 503 with `Retry-After`. Changed by `A2aTaskOptions::owner_tasks_max`.
pub const OWNER_TASKS_MAX_DEFAULT: usize = 1_000;
/// Default time from a task's beginning for which a repetition of its message is answered by that
/// task.
/// At the limit: the message begins a new task. Changed by `A2aTaskOptions::idempotency_window`.
pub const IDEMPOTENCY_WINDOW_DEFAULT: Duration = Duration::from_secs(600);
/// Default maximum number of open event streams of one agent. It is lower than a listener's maximum
/// of connections, so that further clients get an error response.
/// At the limit: HTTP status 503; at a principal's limit, 429. Changed by `A2aOptions::streams_max`
/// and `A2aOptions::principal_share_percent`.
pub const STREAMS_MAX_DEFAULT: usize = 896;
/// Default interval of keep-alive comments on an idle event stream.
/// Changed by `A2aOptions::keep_alive_interval`.
pub const KEEP_ALIVE_INTERVAL_DEFAULT: Duration = Duration::from_secs(15);

/// Options for serving an agent over A2A.
#[derive(Debug, Clone)]
pub struct A2aOptions {
    /// Description of the agent for its card, besides its skills.
    pub agent: AgentDescription,
    /// Base URL for the card, to which `/a2a` is appended: the listener's own address or that of a
    /// reverse proxy, followed by `/agents/NAME` for a named agent. It is never taken from a
    /// request.
    pub base_url: Url,
    /// Address of the gRPC binding for the card, as `host:port`; `None` if gRPC isn't served.
    pub grpc_target: Option<String>,
    /// Authentication of callers.
    pub access: AccessControl,
    /// Whether all anonymous callers count as one owner, for listeners that only this machine can
    /// reach.
    ///
    /// If true, anonymous callers can list tasks, and they see each other's tasks that began under
    /// this option. If false, an anonymous caller must know the ids of its tasks, and its repeated
    /// messages are recognised only if the message's id is a UUID.
    pub shares_anonymous_tasks: bool,
    /// Accepted host names (`Host`) besides this machine's own.
    pub hosts: AllowedHosts,
    /// Accepted origins of web pages (`Origin`) besides this machine's own.
    pub origins: AllowedOrigins,
    /// Limits on messages.
    pub limits: DecodeLimits,
    /// Timeout for receiving a request's body. Then the request is rejected with 408. Default: 10
    /// s.
    pub body_timeout: Duration,
    /// Time for which a request waits for its call, questions included. Then the response is the
    /// task in its current state, and the call continues. Default: 300 s.
    pub call_deadline: Duration,
    /// Options for storing calls as tasks.
    pub tasks: A2aTaskOptions,
    /// Options for push notifications.
    pub push: PushOptions,
    /// Key that signs the agent's card; `None` for unsigned cards.
    pub signer: Option<CardSigningKey>,
    /// Whether authenticated principals can get an extended card with further skills.
    pub extended_card: bool,
    /// Protocol extensions that the agent's card lists. A request is rejected if its header
    /// `A2A-Extensions` lacks an extension that is marked as required.
    pub extensions: Vec<AgentExtension>,
    /// Maximum number of open event streams; further ones are rejected with 503. Default: 896.
    pub streams_max: usize,
    /// Share of a principal in the event streams, in percent, 1 to 100. Beyond its share, a
    /// principal may have more as long as a share is left for others: 672 of 896 if no other has
    /// any. Further ones are rejected with 429. With 100, one principal may have all. Default: 25.
    pub principal_share_percent: u8,
    /// Interval of keep-alive comments on an idle event stream. Default: 15 s.
    pub keep_alive_interval: Duration,
}

impl A2aOptions {
    /// Returns the default options with this base URL.
    pub fn new(base_url: Url) -> Self {
        Self {
            agent: AgentDescription::default(),
            base_url,
            grpc_target: None,
            access: AccessControl::default(),
            shares_anonymous_tasks: false,
            hosts: AllowedHosts::default(),
            origins: AllowedOrigins::default(),
            limits: DecodeLimits::default(),
            body_timeout: BODY_TIMEOUT_DEFAULT,
            call_deadline: CALL_DEADLINE_DEFAULT,
            tasks: A2aTaskOptions::default(),
            push: PushOptions::default(),
            signer: None,
            extended_card: false,
            extensions: Vec::new(),
            streams_max: STREAMS_MAX_DEFAULT,
            principal_share_percent: PRINCIPAL_SHARE_PERCENT_DEFAULT,
            keep_alive_interval: KEEP_ALIVE_INTERVAL_DEFAULT,
        }
    }

    /// Returns the scope under which the agent's tasks are stored.
    pub(crate) fn task_scope(&self) -> String {
        task_scope(&self.agent.name)
    }
}

/// Returns the scope under which the tasks of the agent `name` are stored.
pub(crate) fn task_scope(name: &str) -> String {
    format!("a2a:{name}")
}

/// Description of an agent for its card, besides its skills.
#[derive(Debug, Clone)]
pub struct AgentDescription {
    /// Name of the agent. Its tasks are stored under this name.
    pub name: String,
    /// Version of the agent, not of callboard.
    pub version: String,
    /// Purpose of the agent; if empty, it is derived from the skills.
    pub description: String,
    /// Organization that provides the agent.
    pub provider: Option<AgentProvider>,
    /// URL of the documentation.
    pub documentation_url: Option<String>,
    /// URL of the icon.
    pub icon_url: Option<String>,
}

impl Default for AgentDescription {
    fn default() -> Self {
        Self {
            name: "callboard".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            description: String::new(),
            provider: None,
            documentation_url: None,
            icon_url: None,
        }
    }
}

/// Options for storing an agent's calls as tasks.
#[derive(Debug, Clone)]
pub struct A2aTaskOptions {
    /// Store of tasks and push configurations; `None` for memory.
    pub store: Option<Store>,
    /// Store in memory that several servers share, used without `store`; `None` for one of the
    /// server's own, which ends with it.
    pub memory: Option<Store>,
    /// Data class of the tasks' messages and artifacts.
    pub data_class: DataClass,
    /// Retention of a task from its beginning. Then it is deleted. Default: 86,400 s.
    pub ttl: Duration,
    /// Maximum number of stored tasks, ended ones included. At the limit the owner's oldest ended
    /// tasks are deleted; if there are none, a message fails with `Overloaded`. Default: 10,000.
    pub tasks_max: usize,
    /// Maximum number of stored tasks of one owner, ended ones included. At the limit the owner's
    /// oldest ended tasks are deleted; if there are none, a message fails with `Overloaded`.
    /// Default: 1,000.
    pub owner_tasks_max: usize,
    /// Time from a task's beginning for which a repeated message is answered by that task; zero
    /// disables recognition. Default: 600 s.
    pub idempotency_window: Duration,
}

impl A2aTaskOptions {
    /// Returns the configured store, or a new store in memory if none is configured.
    pub(crate) fn store_or_in_memory(&self) -> Store {
        let configured = self.store.as_ref().or(self.memory.as_ref());
        configured.cloned().unwrap_or_else(|| Store {
            tasks: Arc::new(MemoryTaskStore::with_capacity(self.tasks_max)),
            ..Store::in_memory()
        })
    }
}

impl Default for A2aTaskOptions {
    fn default() -> Self {
        Self {
            store: None,
            memory: None,
            data_class: DataClass::default(),
            ttl: TASK_TTL_DEFAULT,
            tasks_max: TASKS_MAX_DEFAULT,
            owner_tasks_max: OWNER_TASKS_MAX_DEFAULT,
            idempotency_window: IDEMPOTENCY_WINDOW_DEFAULT,
        }
    }
}

/// Options for push notifications. Receivers may be on the public internet over `https`, and in
/// `allowed_networks`.
#[derive(Clone)]
pub struct PushOptions {
    /// Further networks that receivers may be in, there over `http` too.
    pub allowed_networks: Vec<IpNetwork>,
    /// DNS resolver in place of the system's. Its results are checked against the same rules.
    pub resolver: Option<Arc<dyn Resolve>>,
    /// Delay before the first retry of a push notification. Each further delay is twice as long.
    /// Default: 1 s.
    pub retry_delay: Duration,
}

impl Default for PushOptions {
    fn default() -> Self {
        Self {
            allowed_networks: Vec::new(),
            resolver: None,
            retry_delay: PUSH_RETRY_DELAY_DEFAULT,
        }
    }
}

impl fmt::Debug for PushOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushOptions")
            .field("allow", &self.allowed_networks)
            .finish_non_exhaustive()
    }
}
