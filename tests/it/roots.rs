//! Roots of a client of rmcp's, which a server behind a bridge must keep to.

#![expect(deprecated, reason = "rmcp deprecates sampling and roots, which clients of 2025 still use")]

use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use callboard_mcp::bridge::{Bridge, BridgeOptions};
use callboard_mcp::inbound::{ListenOptions, McpServerOptions, serve};
use callboard_mcp::outbound::{ChildCommand, ClientOptions, Endpoint, Era, EraChoice};
use callboard_runtime::System;
use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, Implementation, ListRootsResult, ProtocolVersion, Root,
};
use rmcp::service::{RequestContext, RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, ClientLifecycleMode, ClientServiceExt, ErrorData};
use serde_json::json;

const SOON: Duration = Duration::from_secs(30);

/// A server like server-filesystem: it asks for roots once it is initialized and when they have changed, and allows all as
/// long as it has none.
const SCRIPT: &str = r#"
hear() { IFS= read -r line || exit 0; id=$(printf '%s' "$line" | sed 's/^{"jsonrpc":"2.0","id":\([0-9]*\),.*/\1/'); }
say() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$1" "$2"; }
part() { printf '%s' "$line" | sed "s/.*\"$1\":\"\([^\"]*\)\".*/\1/"; }
question() { printf '{"jsonrpc":"2.0","id":"roots","method":"roots/list"}\n'; }
hear
say "$id" '{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"p","version":"1"}}'
hear; root=none; question
while hear; do
    case "$line" in
        *'"id":"roots"'*) root=$(part uri);;
        *roots/list_changed*) question;;
        *) path=$(part path); case "$root:$path" in
            none:*) said=read;; *) case "$path" in "$root"/*) said=read;; *) said=denied;; esac;;
        esac
        say "$id" "{\"content\":[{\"type\":\"text\",\"text\":\"$said\"}]}";;
    esac
done
"#;

/// Lends one folder.
#[derive(Clone)]
struct Lender(Arc<Mutex<&'static str>>);

impl ClientHandler for Lender {
    fn get_info(&self) -> ClientConfig {
        let can = ClientCapabilities::builder().enable_roots().enable_roots_list_changed().build();
        ClientConfig::new(can, Implementation::new("lender", "1")).with_protocol_version(ProtocolVersion::V_2025_11_25)
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Ok(ListRootsResult::new(vec![Root::new(*self.0.lock().unwrap())]))
    }
}

async fn read(client: &RunningService<RoleClient, Lender>, path: &str) -> String {
    let arguments = json!({ "path": path }).as_object().cloned().unwrap();
    let call = client.call_tool(CallToolRequestParams::new("read").with_arguments(arguments));
    let result = tokio::time::timeout(SOON, call).await.unwrap().unwrap();
    result.content[0].as_text().unwrap().text.clone()
}

/// Goal: an SDK's client is as safe behind a bridge as at the server itself: its first call finds its roots in force, and so
/// do calls after it has changed them. Method: a first call that reads outside; other roots; both eras.
#[tokio::test(flavor = "multi_thread")]
async fn roots_are_kept_to() {
    let stateless = ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] };
    for (lifecycle, has_session) in [(ClientLifecycleMode::Initialize, true), (stateless, false)] {
        let system = System::start(1).unwrap();
        let client = ClientOptions { era: EraChoice::Only(Era::Legacy), ..ClientOptions::default() };
        let options = BridgeOptions { client, ..BridgeOptions::default() };
        let bridge = Bridge::new("files", Endpoint::Child(ChildCommand::new("sh", ["-c", SCRIPT])), options).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let agent = system.spawn(bridge.clone());
        let serving = serve(listener, agent, McpServerOptions::default(), &ListenOptions::default()).unwrap();
        let (url, handle) = (format!("http://{}/mcp", serving.address), serving.server.handle());
        tokio::spawn(serving.server);

        let lender = Lender(Arc::new(Mutex::new("file:///a")));
        let transport = StreamableHttpClientTransport::from_config(StreamableHttpClientTransportConfig::with_uri(url));
        let client = lender.clone().serve_with_lifecycle(transport, lifecycle);
        let client = tokio::time::timeout(SOON, client).await.unwrap().unwrap();
        assert_eq!(read(&client, "file:///b/secret").await, "denied");
        assert_eq!(read(&client, "file:///a/file").await, "read");
        *lender.0.lock().unwrap() = "file:///b";
        if has_session {
            client.notify_roots_list_changed().await.unwrap();
        }
        let changed = async { while read(&client, "file:///b/secret").await != "read" {} };
        tokio::time::timeout(SOON, changed).await.unwrap();
        assert_eq!(read(&client, "file:///a/file").await, "denied");

        let _ = client.cancel().await;
        handle.stop(false).await;
        system.shutdown(Duration::ZERO).await;
        bridge.said_goodbye().await;
    }
}
