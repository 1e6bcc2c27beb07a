//! The bridge as an agent.

use std::sync::{Arc, Mutex};

use callboard_message::{Failure, Named, RawObject};
use callboard_runtime::outward::exchange;
use callboard_runtime::{Agent, ConcurrentHandler, Cx, Handlers, Profile};
use serde_json::value::RawValue;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::hub::Hub;
use super::keeper;
use super::options::{BRIDGE_CALLS_MAX, BridgeOptions};
use crate::outbound::{ClientError, ClientOptions, Endpoint, Errand, Server};

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
    hub: Arc<Hub>,
    _keepers: Vec<AbortOnDropHandle<()>>,
}

impl Bridge {
    /// A bridge to the server at `endpoint`. `name` is its agent's: policy, answerers and log know the server by it.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn new(name: impl Into<String>, endpoint: Endpoint, options: BridgeOptions) -> Result<Self, ClientError> {
        let server = Server::new(endpoint, &options.client)?;
        Ok(Self { name: name.into(), server, options: Arc::new(options), about: Arc::default(), live: None })
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
        let client = ClientOptions { name: Some(self.name.clone()), ..self.options.client.clone() };
        let wiring = self.server.wiring(Arc::new(client), cx);
        let hub = Arc::new(Hub::new(self.name.clone(), self.options.clone(), wiring, self.about.clone()));
        let _keepers = keeper::start(&hub);
        self.live = Some(Arc::new(Live { hub, _keepers }));
    }

    fn observe(&self) -> serde_json::Value {
        self.live.as_ref().map_or(serde_json::Value::Null, |live| live.hub.observe())
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
                cx.deadline().map_or(limited, |deadline| deadline.min(limited))
            };
            let work = |message| async { hub.perform(Errand::read(message)?, &cx).await };
            exchange(message, &cx, &hub.name, deadline, work).await
        }
    }
}
