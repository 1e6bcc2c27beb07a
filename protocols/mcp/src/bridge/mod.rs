//! The bridge: one remote MCP server as one agent, for any number of clients at once.
//!
//! [`Bridge`] is the agent. It accepts the messages of [`McpClient`](crate::outbound::McpClient).
//! Beyond that, it opens as many connections as are needed for the state that a server keeps for a
//! client to be that client's, and for every question of the server to have one possible addressee:
//!
//! - *shared*: everything to a modern server, whose requests carry the caller's capabilities and
//!   whose questions are results. To a legacy server: requests that belong to no call, and, if it is
//!   declared stateless, those of callers whom it can't ask.
//! - *owned by a session*: everything that one client session requests of a legacy server. Its
//!   changes, and questions that name no call, belong to the session.
//! - *owned by a principal*: requests of clients without a session to a legacy server, one
//!   connection per principal and set of capabilities. On transports whose requests share one
//!   channel, a caller that can answer questions has a connection alone while its call runs.
//!
//! Calls and connections are shared among principals ([`BridgeOptions::principal_share_percent`]). A
//! call whose server waits for an answer counts against neither the calls nor the others' share.
//!
//! Connections are opened on demand, or at boot. While the server is unavailable its circuit
//! breaker is open, and requests fail at once with the time of the next attempt.

mod argument_schema;
mod call_check;
mod call_slots;
mod circuit_breaker;
mod listed_tools;
mod options;
mod pool;
pub(crate) mod questions;
mod result_cache;
mod tools;
mod upstream_proxy;

use std::sync::Arc;

use callboard_message::{Failure, RawMessage, RawObject};
use callboard_runtime::outbound_policy::exchange;
use callboard_runtime::{
    Agent, AgentProfile, CallOrigin, ConcurrentHandler, Context, Handlers,
    PRINCIPAL_SHARE_PERCENT_DEFAULT, SyncHandler,
};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::outbound::{
    ClientOperation, McpClientError, McpClientOptions, ServerEndpoint, UpstreamServer,
};
use options::BRIDGE_CALLS_MAX;
use upstream_proxy::{UpstreamProxy, WholeListing, spawn_maintenance};

pub use options::{BridgeOptions, BridgeToolOptions, REMOTE_CONNECTIONS_DEFAULT, StartMode};
pub use upstream_proxy::UpstreamCommand;

/// Agent that represents one remote MCP server and forwards the requests of all clients to it. See
/// the [module](self).
#[derive(Clone)]
pub struct Bridge {
    name: String,
    server: UpstreamServer,
    options: Arc<BridgeOptions>,
    /// The server's description: its latest `initialize` or `server/discover` result.
    about: Arc<Mutex<Option<RawObject>>>,
    /// Connections and maintenance tasks while the agent runs; `None` before its start.
    running: Option<Arc<RunningBridge>>,
}

struct RunningBridge {
    proxy: Arc<UpstreamProxy>,
    _maintenance: Vec<AbortOnDropHandle<()>>,
}

impl Bridge {
    /// Creates a bridge to the server at `endpoint`. `name` is the agent's name in policies,
    /// question routing and logs. Doesn't connect yet.
    ///
    /// # Errors
    /// [`McpClientError`] if `endpoint` or `options` are invalid, or TLS is unavailable.
    pub fn new(
        name: impl Into<String>,
        endpoint: ServerEndpoint,
        options: BridgeOptions,
    ) -> Result<Self, McpClientError> {
        let server = UpstreamServer::new(endpoint, &options.client)?;
        Ok(Self {
            name: name.into(),
            server,
            options: Arc::new(options),
            about: Arc::default(),
            running: None,
        })
    }

    /// Returns the profile for the bridge's agent: the default one, with the principals' share of
    /// [`BridgeOptions::principal_share_percent`].
    pub fn agent_profile(&self) -> AgentProfile {
        <Self as Agent>::profile().principal_share(self.options.principal_share_percent)
    }

    /// Waits until the child processes and server sessions of this bridge and all its clones have
    /// ended. To use it, keep a clone of the bridge, stop the agents, and call it on that clone.
    pub async fn drained(&self) {
        self.server.drained().await;
    }
}

impl Agent for Bridge {
    fn handlers(on: &mut Handlers<Self>) {
        on.fallback(BRIDGE_CALLS_MAX).sync::<UpstreamCommand>();
    }

    fn profile() -> AgentProfile {
        // A cancelled call is cancelled on the wire too; the state is a handle to the connections.
        AgentProfile::default()
            .cancel_safe()
            .inline_concurrent()
            .principal_share(PRINCIPAL_SHARE_PERCENT_DEFAULT)
    }

    fn started(&mut self, cx: &mut Context) {
        let client = McpClientOptions {
            name: Some(self.name.clone()),
            ..self.options.client.clone()
        };
        let connection_params = self.server.connection_params(Arc::new(client), cx);
        let proxy = Arc::new(UpstreamProxy::new(
            self.name.clone(),
            self.options.clone(),
            connection_params,
            self.about.clone(),
            cx,
        ));
        let _maintenance = spawn_maintenance(&proxy);
        self.running = Some(Arc::new(RunningBridge {
            proxy,
            _maintenance,
        }));
    }

    fn observe(&self) -> serde_json::Value {
        self.running
            .as_ref()
            .map_or(serde_json::Value::Null, |running| running.proxy.observe())
    }
}

impl SyncHandler<UpstreamCommand> for Bridge {
    fn handle(&mut self, command: UpstreamCommand, _: &mut Context) {
        if let Some(running) = &self.running {
            running.proxy.clone().command(command);
        }
    }
}

impl ConcurrentHandler<RawMessage> for Bridge {
    fn handle(
        &mut self,
        message: RawMessage,
        cx: Context,
    ) -> impl Future<Output = Result<Box<RawValue>, Failure>> + Send + 'static {
        let proxy = self.running.as_ref().map(|running| running.proxy.clone());
        let limit = self.options.client.call_timeout;
        async move {
            let proxy = proxy
                .ok_or_else(|| Failure::internal("`Bridge` got a message before it was started"))?;
            let deadline = || {
                let limited = Instant::now() + limit;
                cx.deadline()
                    .map_or(limited, |deadline| deadline.min(limited))
            };
            let listing = WholeListing::default();
            let work = |message| async {
                proxy
                    .perform(ClientOperation::from_message(message)?, &cx, &listing)
                    .await
            };
            let reply = exchange(message, &cx, &proxy.name, CallOrigin::MCP, deadline, work).await;
            if let Ok(reply) = &reply {
                listing.record(reply);
            }
            reply
        }
    }
}
