//! How an agent is served.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use callboard_message::DataClass;
use callboard_rpc::{Access, AllowedHosts, AllowedOrigins, Limits, Network};
use callboard_runtime::{MemoryTasks, Store};
use reqwest::dns::Resolve;
use url::Url;

use crate::card::SigningKey;
use crate::wire::{AgentExtension, AgentProvider};

/// How long to wait before the first time, by default. Each further wait is twice as long.
/// At the limit: given up, on record. Changed by `PushOptions::retry_after`.
pub const PUSH_RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);
/// How long a call may take, questions included, by default.
/// At the limit: it gets the task as it is; the call goes on. Changed by `A2aOptions::call_deadline`.
pub const CALL_DEADLINE_DEFAULT: Duration = Duration::from_secs(300);
/// How long a body may take to arrive, by default.
/// At the limit: HTTP status 408. Changed by `A2aOptions::body_timeout`.
pub const BODY_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
/// How long a task is kept from its beginning, by default.
/// At the limit: it is forgotten. Changed by `TaskOptions::ttl`.
pub const TASK_TTL_DEFAULT: Duration = Duration::from_secs(24 * 3_600);
/// Most tasks of one agent that are kept, ended ones included, by default.
/// At the limit: the owner's oldest that have ended are forgotten; where there are none, error -32603, HTTP status 503
/// with `Retry-After`. Changed by `TaskOptions`.
pub const TASKS_MAX_DEFAULT: usize = 10_000;
/// Most of them that belong to one owner, by default.
/// At the limit: the owner's oldest that have ended are forgotten; where there are none, error -32603, HTTP status 503
/// with `Retry-After`. Changed by `TaskOptions`.
pub const OWNER_TASKS_MAX_DEFAULT: usize = 1_000;
/// For how long a message that comes again is answered by the task that it began, by default.
/// At the limit: it begins a task. Changed by `TaskOptions::repeat_within`.
pub const REPEAT_WITHIN_DEFAULT: Duration = Duration::from_secs(600);
/// Most event streams of one agent that are open at once, by default: fewer than a listener's connections, so that who
/// comes next is told.
/// At the limit: HTTP status 503. Changed by `A2aOptions::streams_max`.
pub const STREAMS_MAX_DEFAULT: usize = 896;
/// Most event streams of one principal that are open at once, by default.
/// At the limit: HTTP status 429. Changed by `A2aOptions::principal_streams_max`.
pub const PRINCIPAL_STREAMS_MAX_DEFAULT: usize = 64;
/// How often an idle event stream shows that it is alive, by default.
/// At the limit: a comment. Changed by `A2aOptions::keep_alive`.
pub const KEEP_ALIVE_COMMENT_DEFAULT: Duration = Duration::from_secs(15);

/// How an agent is served over A2A.
#[derive(Debug, Clone)]
pub struct A2aOptions {
    /// What its card says of it, beside its skills.
    pub info: Info,
    /// What stands before `/a2a` in its card: the listener's own address, or that of whatever stands before it, and for an
    /// agent that is served by its name `/agents/NAME`. Never taken from a request.
    pub base_url: Url,
    /// Where the gRPC binding is, if it is served: told in the card. `host:port`, as gRPC's clients want it.
    pub grpc_target: Option<String>,
    /// How it is known who is behind a request.
    pub access: Access,
    /// Whether all who show no credential are one party, as where nobody but this machine's own comes in: they see the list of
    /// their tasks, and each other's, which began where this holds, and what one of them says again is known whatever its id. Otherwise they have to know the ids
    /// of their tasks, and a message is known again by an id that is a UUID.
    pub one_anonymous: bool,
    /// Names (`Host`) beside this machine's own.
    pub hosts: AllowedHosts,
    /// Web pages (`Origin`) beside this machine's own.
    pub origins: AllowedOrigins,
    /// What a message may measure.
    pub limits: Limits,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// How long a call may take, questions included.
    pub call_deadline: Duration,
    /// How calls are kept as tasks.
    pub tasks: TaskOptions,
    /// Where push notifications may go.
    pub push: PushOptions,
    /// What signs its card; `None`: nothing does.
    pub signer: Option<SigningKey>,
    /// Whether principals see a card with what else they may use.
    pub extended: bool,
    /// Protocol extensions of the agent's own. Who doesn't name a required one in `A2A-Extensions` is refused.
    pub extensions: Vec<AgentExtension>,
    /// Most event streams that are open at once; more are refused with 503.
    pub streams_max: usize,
    /// Most of them of one principal; more are refused with 429.
    pub principal_streams_max: usize,
    /// How often an idle event stream shows that it is alive.
    pub keep_alive: Duration,
}

impl A2aOptions {
    /// The defaults, served at `base_url`.
    pub fn at(base_url: Url) -> Self {
        Self {
            info: Info::default(),
            base_url,
            grpc_target: None,
            access: Access::default(),
            one_anonymous: false,
            hosts: AllowedHosts::default(),
            origins: AllowedOrigins::default(),
            limits: Limits::default(),
            body_timeout: BODY_TIMEOUT_DEFAULT,
            call_deadline: CALL_DEADLINE_DEFAULT,
            tasks: TaskOptions::default(),
            push: PushOptions::default(),
            signer: None,
            extended: false,
            extensions: Vec::new(),
            streams_max: STREAMS_MAX_DEFAULT,
            principal_streams_max: PRINCIPAL_STREAMS_MAX_DEFAULT,
            keep_alive: KEEP_ALIVE_COMMENT_DEFAULT,
        }
    }

    /// What its tasks are kept under.
    pub(crate) fn scope(&self) -> String {
        format!("a2a:{}", self.info.name)
    }
}

/// What a card says of an agent, beside its skills.
#[derive(Debug, Clone)]
pub struct Info {
    /// Its name. Its tasks are kept under it.
    pub name: String,
    /// Of the agent, not of callboard.
    pub version: String,
    /// What it is for; empty: what its skills say.
    pub description: String,
    /// Who runs it.
    pub provider: Option<AgentProvider>,
    /// Where people read more.
    pub documentation_url: Option<String>,
    /// Its picture.
    pub icon_url: Option<String>,
}

impl Default for Info {
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

/// How calls are kept as tasks.
#[derive(Debug, Clone)]
pub struct TaskOptions {
    /// Where they are kept, and with them push configurations. `None`: in memory, as long as the server.
    pub store: Option<Store>,
    /// What their messages and artifacts may hold.
    pub class: DataClass,
    /// How long a task is kept from its beginning.
    pub ttl: Duration,
    /// Most tasks that are kept, ended ones included.
    pub tasks_max: usize,
    /// Most of them that belong to one owner.
    pub owner_tasks_max: usize,
    /// For how long a message that comes again is answered by the task that it began, from its beginning on; zero: never.
    pub repeat_within: Duration,
}

impl TaskOptions {
    /// The store; one in memory that begins empty where there is none.
    pub(crate) fn store(&self) -> Store {
        self.store.clone().unwrap_or_else(|| Store {
            tasks: Arc::new(MemoryTasks::with_capacity(self.tasks_max)),
            ..Store::in_memory()
        })
    }
}

impl Default for TaskOptions {
    fn default() -> Self {
        Self {
            store: None,
            class: DataClass::default(),
            ttl: TASK_TTL_DEFAULT,
            tasks_max: TASKS_MAX_DEFAULT,
            owner_tasks_max: OWNER_TASKS_MAX_DEFAULT,
            repeat_within: REPEAT_WITHIN_DEFAULT,
        }
    }
}

/// Where push notifications may go: to the public internet over `https`, and where this allows.
#[derive(Clone)]
pub struct PushOptions {
    /// Networks that receivers may be in too, there over `http` as well.
    pub allow: Vec<Network>,
    /// The name service that is asked in place of the system's; its answers are judged all the same.
    pub lookup: Option<Arc<dyn Resolve>>,
    /// How long to wait before an event is posted for the second time; each further wait is twice as long.
    pub retry_after: Duration,
}

impl Default for PushOptions {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            lookup: None,
            retry_after: PUSH_RETRY_AFTER_DEFAULT,
        }
    }
}

impl fmt::Debug for PushOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushOptions")
            .field("allow", &self.allow)
            .finish_non_exhaustive()
    }
}
