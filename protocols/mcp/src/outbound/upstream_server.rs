//! Server of a client, and the parameters of its connections.

use std::sync::Arc;
use std::time::SystemTime;

use callboard_rpc::http1::{Connector, Http1Clients};
use callboard_runtime::{Context, NodeEvent, NodeEvents, UpstreamChange};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use super::change_route::ChangeRoute;
use super::options::{McpClientError, McpClientOptions, ServerEndpoint};
use super::tool_cache::ToolCache;
use super::transport::child;
use crate::wire::Era;

/// Server of a client, with the state that is kept when the client's agent restarts.
#[derive(Clone)]
pub(crate) struct UpstreamServer {
    pub endpoint: ServerEndpoint,
    pub(super) http: Http1Clients,
    /// Era of the server; `None` until detected.
    pub detected_era: Arc<Mutex<Option<Era>>>,
    /// Tasks that end child processes and server sessions of closed connections.
    pub(super) cleanup_tasks: TaskTracker,
    /// Last lines of its program's standard error.
    pub(super) stderr: child::StderrLines,
}

impl UpstreamServer {
    /// Creates the server's state without connecting.
    ///
    /// # Errors
    /// See [`McpClientError`].
    pub fn new(
        endpoint: ServerEndpoint,
        options: &McpClientOptions,
    ) -> Result<Self, McpClientError> {
        options.validate(&endpoint)?;
        let http = Http1Clients::new(
            Connector::with_tls(options.connect_timeout, &options.tls)
                .map_err(McpClientError::Client)?,
        );
        Ok(Self {
            endpoint,
            http,
            detected_era: Arc::default(),
            cleanup_tasks: TaskTracker::new(),
            stderr: child::StderrLines::default(),
        })
    }

    /// Returns the parameters for connecting to the server from the agent `cx`. Its followers are
    /// notified of the server's changes.
    pub fn connection_params(
        &self,
        options: Arc<McpClientOptions>,
        cx: &Context,
    ) -> ConnectionParams {
        let runtime = Handle::try_current().ok();
        ConnectionParams {
            server: self.clone(),
            changes: ChangeRoute::to_followers(cx, &options, runtime.clone()),
            options,
            runtime,
            tools: Arc::default(),
            events: cx.system().node_events().clone(),
            hops: 0,
        }
    }

    /// Waits until the child processes and server sessions of closed connections have ended.
    pub async fn drained(&self) {
        self.cleanup_tasks.close();
        self.cleanup_tasks.wait().await;
    }
}

/// Parameters of the connections to a server.
#[derive(Clone)]
pub(crate) struct ConnectionParams {
    pub server: UpstreamServer,
    pub options: Arc<McpClientOptions>,
    /// Runtime for tasks that outlive a call. A call may run on another runtime, which may end
    /// earlier.
    pub runtime: Option<Handle>,
    pub changes: ChangeRoute,
    pub tools: Arc<ToolCache>,
    /// Event stream of the node, which is told of the connection.
    pub events: Arc<NodeEvents>,
    /// Number of agents that the request which opens a legacy session has passed through; 0 for
    /// sessions of several callers.
    pub hops: u16,
}

impl ConnectionParams {
    /// Tells readers of the node's events that the server is connected.
    pub(super) fn emit_connected(&self) {
        self.events.emit(|| NodeEvent::Upstream {
            at: SystemTime::now(),
            change: Box::new(UpstreamChange {
                server: self.options.name.as_deref().unwrap_or_default().into(),
                is_up: true,
            }),
        });
    }

    /// Spawns `work` on `runtime`, so that it outlives the current call; on the current runtime if
    /// that is `None`.
    pub fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        match &self.runtime {
            Some(runtime) => runtime.spawn(work),
            None => tokio::spawn(work),
        }
    }
}
