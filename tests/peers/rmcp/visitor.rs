//! rmcp's client, call by call.

use std::sync::{Arc, Mutex};

use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientInfo, ElicitRequestParams, ElicitResult,
    ElicitationAction, Implementation, ListRootsResult, ProtocolVersion, Root,
};
use rmcp::service::{NotificationContext, RequestContext, RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, ErrorData};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::kit::soon;
use crate::round::NAME;

/// Lends a folder, and fills in forms by a name.
#[derive(Clone)]
struct Host {
    root: Arc<Mutex<String>>,
    /// Number of times that the server has announced a change of its tools.
    changes: watch::Sender<u32>,
}

impl ClientHandler for Host {
    fn get_info(&self) -> ClientInfo {
        let can = ClientCapabilities::builder()
            .enable_elicitation()
            .enable_roots()
            .enable_roots_list_changed()
            .build();
        ClientInfo::new(can, Implementation::new("visitor", "1"))
            .with_protocol_version(ProtocolVersion::V_2025_11_25)
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(json!({ "name": NAME })))
    }

    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        Ok(ListRootsResult::new(vec![Root::new(
            self.root.lock().unwrap().clone(),
        )]))
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changes.send_modify(|times| *times += 1);
    }
}

/// A connected client.
pub struct Visitor {
    host: Host,
    client: RunningService<RoleClient, Host>,
}

impl Visitor {
    /// Connects to the server at `url`. `root` is the URI of the folder that it lends.
    pub async fn connect(url: &str, lifecycle: ClientLifecycleMode, root: &str) -> Self {
        let host = Host {
            root: Arc::new(Mutex::new(root.to_owned())),
            changes: watch::Sender::new(0),
        };
        let config = StreamableHttpClientTransportConfig::with_uri(url.to_owned());
        let transport = StreamableHttpClientTransport::from_config(config);
        let connecting = host.clone().serve_with_lifecycle(transport, lifecycle);
        let client = soon("a connection", connecting).await.unwrap();
        Self { host, client }
    }

    /// Returns the names of the tools, sorted.
    pub async fn tools(&self) -> Vec<String> {
        let tools = soon("the tools", self.client.list_all_tools())
            .await
            .unwrap();
        let mut names: Vec<_> = tools.into_iter().map(|tool| tool.name.into()).collect();
        names.sort();
        names
    }

    /// Returns the text that a tool answers; `Err` if it reports an error.
    pub async fn call(&self, tool: &'static str, arguments: Value) -> Result<String, String> {
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        let params = CallToolRequestParams::new(tool).with_arguments(arguments);
        let result = soon(tool, self.client.call_tool(params)).await;
        let result = result.unwrap_or_else(|e| panic!("{tool}: {e}"));
        let blocks = result.content.iter().filter_map(|block| block.as_text());
        let text = blocks.map(|block| &*block.text).collect::<Vec<_>>();
        match result.is_error {
            Some(true) => Err(text.join("\n")),
            _ => Ok(text.join("\n")),
        }
    }

    /// Lends another folder. In a session it says so.
    pub async fn lend(&self, root: &str, has_session: bool) {
        root.clone_into(&mut self.host.root.lock().unwrap());
        if has_session {
            self.client.notify_roots_list_changed().await.unwrap();
        }
    }

    /// Returns how often the server has said that its tools are others.
    pub fn changes(&self) -> u32 {
        *self.host.changes.borrow()
    }

    /// Waits until it has said so more often than `before`.
    pub async fn changed_since(&self, before: u32) {
        let mut changes = self.host.changes.subscribe();
        let later = changes.wait_for(|times| *times > before);
        soon("other tools", later).await.unwrap();
    }

    pub async fn end(self) {
        let _ = self.client.cancel().await;
    }
}
