//! The bridge: one MCP server elsewhere as one agent, for any number of clients at once.
//!
//! [`Bridge`] is the agent. Its messages are those of [`McpClient`](crate::outbound::McpClient); beside what that does, it
//! holds as many connections as it takes for every question to have one possible owner:
//!
//! - *shared*: lists, what the server is, changes of resources; and every call to a modern server, where each request says
//!   what its caller can answer, and questions are results. To a legacy server there is one for each set of abilities
//!   that `initialize` may offer, for it shows and asks only what was offered.
//! - *a session's own*: the calls of one client's session to a legacy server. Questions that name no call are the
//!   session's.
//! - *leased*: the calls of clients without a session to a legacy server, by principal and abilities. Where all requests
//!   share a channel, one that can be asked has it alone while it runs.
//!
//! Connections are made when they are needed, or at boot. While the server is away its breaker is open, and whatever is
//! asked of it fails at once with a sentence that says when it is tried again.

mod breaker;
mod cache;
mod options;
mod pool;
pub(crate) mod questions;
mod tools;
mod upstream_proxy;

use std::sync::Arc;

use callboard_message::{Failure, Named, RawObject};
use callboard_runtime::outward::exchange;
use callboard_runtime::{Agent, ConcurrentHandler, Cx, Handlers, Profile};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::outbound::{ClientError, ClientOperation, ClientOptions, Endpoint, Server};
use options::BRIDGE_CALLS_MAX;
use upstream_proxy::{UpstreamProxy, start_keepers};

pub use options::{BridgeOptions, CONNECTIONS_MAX_AT_ADDRESS_DEFAULT, Start, ToolOptions};

/// An MCP server elsewhere, as one agent for all its clients. See the [module](super).
#[derive(Clone)]
pub struct Bridge {
    name: String,
    server: Server,
    options: Arc<BridgeOptions>,
    /// What the server said of itself.
    about: Arc<Mutex<Option<RawObject>>>,
    /// Of this incarnation; made when it starts, so that it ends with it.
    live: Option<Arc<Live>>,
}

struct Live {
    hub: Arc<UpstreamProxy>,
    _keepers: Vec<AbortOnDropHandle<()>>,
}

impl Bridge {
    /// A bridge to the server at `endpoint`. `name` is its agent's: policy, answerers and log know the server by it.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn new(
        name: impl Into<String>,
        endpoint: Endpoint,
        options: BridgeOptions,
    ) -> Result<Self, ClientError> {
        let server = Server::new(endpoint, &options.client)?;
        Ok(Self {
            name: name.into(),
            server,
            options: Arc::new(options),
            about: Arc::default(),
            live: None,
        })
    }

    /// Ends when all that bridges like this one (its clones) had to end has ended: children, sessions with servers. Call
    /// it once the agents have been stopped, on a clone kept for that.
    pub async fn said_goodbye(&self) {
        self.server.said_goodbye().await;
    }
}

impl Agent for Bridge {
    fn handlers(on: &mut Handlers<Self>) {
        on.anything(BRIDGE_CALLS_MAX);
    }

    fn profile() -> Profile {
        // What is given up is given up on the wire too; the state is a handle to the connections.
        Profile::default().cancel_safe().with_askers()
    }

    fn started(&mut self, cx: &mut Cx) {
        let client = ClientOptions {
            name: Some(self.name.clone()),
            ..self.options.client.clone()
        };
        let wiring = self.server.wiring(Arc::new(client), cx);
        let hub = Arc::new(UpstreamProxy::new(
            self.name.clone(),
            self.options.clone(),
            wiring,
            self.about.clone(),
            cx,
        ));
        let _keepers = start_keepers(&hub);
        self.live = Some(Arc::new(Live { hub, _keepers }));
    }

    fn observe(&self) -> serde_json::Value {
        self.live
            .as_ref()
            .map_or(serde_json::Value::Null, |live| live.hub.observe())
    }
}

impl ConcurrentHandler<Named> for Bridge {
    fn handle(
        &mut self,
        message: Named,
        cx: Cx,
    ) -> impl Future<Output = Result<Box<RawValue>, Failure>> + Send + 'static {
        let hub = self.live.as_ref().map(|live| live.hub.clone());
        let limit = self.options.client.call_timeout;
        async move {
            let hub = hub.ok_or_else(|| Failure::internal("the bridge hasn't started"))?;
            let deadline = || {
                let limited = Instant::now() + limit;
                cx.deadline()
                    .map_or(limited, |deadline| deadline.min(limited))
            };
            let work = |message| async { hub.perform(ClientOperation::read(message)?, &cx).await };
            exchange(message, &cx, &hub.name, deadline, work).await
        }
    }
}
