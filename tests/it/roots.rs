//! Roots of a client of rmcp's, which a server behind a bridge must keep to.

#![expect(
    deprecated,
    reason = "rmcp deprecates sampling and roots, which clients of 2025 still use"
)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use callboard_mcp::bridge::BridgeOptions;
use callboard_mcp::inbound::McpServerOptions;
use callboard_runtime::System;
use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ClientConfig, Implementation, ListRootsResult,
    ProtocolVersion, Root,
};
use rmcp::service::{RequestContext, RoleClient, RunningService};
use rmcp::{ClientHandler, ClientLifecycleMode, ErrorData};
use serde_json::json;

use crate::kit::{mcp, soon};

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
        let can = ClientCapabilities::builder()
            .enable_roots()
            .enable_roots_list_changed()
            .build();
        ClientConfig::new(can, Implementation::new("lender", "1"))
            .with_protocol_version(ProtocolVersion::V_2025_11_25)
    }

    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        Ok(ListRootsResult::new(vec![Root::new(
            *self.0.lock().unwrap(),
        )]))
    }
}

async fn read(client: &RunningService<RoleClient, Lender>, path: &str) -> String {
    let arguments = json!({ "path": path }).as_object().cloned().unwrap();
    let call = client.call_tool(CallToolRequestParams::new("read").with_arguments(arguments));
    let result = soon("an answer", call).await.unwrap();
    result.content[0].as_text().unwrap().text.clone()
}

/// Goal: an SDK's client is as safe behind a bridge as at the server itself: its first call finds its roots in force, and so
/// do calls after it has changed them. Method: a first call that reads outside; other roots; both eras.
#[tokio::test(flavor = "multi_thread")]
async fn roots_are_kept_to() {
    for (lifecycle, has_session) in [
        (ClientLifecycleMode::Initialize, true),
        (mcp::stateless(), false),
    ] {
        let system = System::start(1).unwrap();
        let bridge = mcp::bridge("files", SCRIPT, "", BridgeOptions::default());
        let listening = mcp::serve(system.spawn(bridge.clone()), McpServerOptions::default());

        let lender = Lender(Arc::new(Mutex::new("file:///a")));
        let client = mcp::connect(&lender, lifecycle, &listening.url).await;
        assert_eq!(read(&client, "file:///b/secret").await, "denied");
        assert_eq!(read(&client, "file:///a/file").await, "read");
        *lender.0.lock().unwrap() = "file:///b";
        if has_session {
            client.notify_roots_list_changed().await.unwrap();
        }
        let changed = async { while read(&client, "file:///b/secret").await != "read" {} };
        soon("the new roots", changed).await;
        assert_eq!(read(&client, "file:///a/file").await, "denied");

        let _ = client.cancel().await;
        system.shutdown(Duration::ZERO).await;
        bridge.drained().await;
    }
}
