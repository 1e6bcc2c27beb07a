//! The client as an agent.

use std::sync::Arc;

use callboard_message::{Failure, Named};
use callboard_runtime::outward::exchange;
use callboard_runtime::{Agent, ConcurrentHandler, Cx, Handlers, Profile};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::connect::Server;
use super::errand::Errand;
use super::options::{CALLS_IN_FLIGHT_MAX, ClientError, ClientOptions, Endpoint};
use super::unwrap::plain_value;
use super::upstream::Upstream;

/// An MCP server elsewhere, as an agent of this system.
///
/// - `callboard.tools.call` and its kind ([`callboard_message::surface`]) are MCP's requests: params go as they came,
///   results come as they are.
/// - Any other message is a tool of its name. Its reply is the plain value, so that asking a remote agent a typed message
///   looks like asking a local one.
///
/// The server's questions go to whoever called, as do progress and the lines of its log; whoever follows the agent
/// ([`AgentRef::follow`](callboard_runtime::AgentRef::follow)) is told when what it shows changes. It connects when it
/// is first asked and ends its connection, or its child process, when it ends. It follows no redirects and no proxy
/// variables.
#[derive(Clone)]
pub struct McpClient {
    server: Server,
    options: Arc<ClientOptions>,
    /// Of this incarnation; made when it starts, so that it ends with it.
    upstream: Option<Arc<Upstream>>,
}

impl McpClient {
    /// A client of the server at `endpoint`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn new(endpoint: Endpoint, options: ClientOptions) -> Result<Self, ClientError> {
        Ok(Self { server: Server::new(endpoint, &options)?, options: Arc::new(options), upstream: None })
    }

    /// Ends when all that clients like this one (its clones) had to end has ended: children, sessions with servers. Call
    /// it once the agents have been stopped, on a clone kept for that.
    pub async fn said_goodbye(&self) {
        self.server.said_goodbye().await;
    }
}

impl Agent for McpClient {
    fn handlers(on: &mut Handlers<Self>) {
        on.anything(CALLS_IN_FLIGHT_MAX);
    }

    fn profile() -> Profile {
        // What is given up is given up on the wire too; the state is a handle to the connection.
        Profile::default().cancel_safe().with_askers()
    }

    fn started(&mut self, cx: &mut Cx) {
        self.upstream = Some(Arc::new(Upstream::new(self.server.wiring(self.options.clone(), cx))));
    }

    fn observe(&self) -> serde_json::Value {
        self.upstream.as_ref().map_or(serde_json::Value::Null, |upstream| upstream.observe())
    }
}

impl ConcurrentHandler<Named> for McpClient {
    fn handle(
        &mut self,
        message: Named,
        cx: Cx,
    ) -> impl Future<Output = Result<Box<RawValue>, Failure>> + Send + 'static {
        let (upstream, limit) = (self.upstream.clone(), self.options.call_timeout);
        let endpoint = self.server.endpoint.to_string();
        async move {
            let upstream = upstream.ok_or_else(|| Failure::internal("the client hasn't started"))?;
            let server = cx.me().name().unwrap_or(&endpoint);
            let deadline = || cx.deadline().unwrap_or_else(|| Instant::now() + limit);
            exchange(message, &cx, server, deadline, |message| answer(&upstream, message, &cx)).await
        }
    }
}

async fn answer(upstream: &Upstream, message: Named, cx: &Cx) -> Result<Box<RawValue>, Failure> {
    Ok(match Errand::read(message)? {
        Errand::Describe => upstream.session().await?.about.to_raw(),
        Errand::ListTools(params) => upstream.list_tools(&params, cx).await?,
        Errand::Subscribe { on, params } => upstream.subscribe(on, &params, cx).await?,
        Errand::Request { method, params } => upstream.request(&method, &params, cx).await?,
        Errand::Use { tool, params } => {
            let result = upstream.request("tools/call", &params, cx).await?;
            plain_value(&result, || upstream.is_wrapped(&tool)).await?
        }
    })
}
