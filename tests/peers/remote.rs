//! mcp-remote: the program by which a client that only starts servers reaches one elsewhere.

use rmcp::ClientLifecycleMode;

use crate::kit::{peers, with};
use crate::rmcp::{caller, without_session};
use crate::round::steps;
use crate::server;

/// A client's round by a pipe to mcp-remote, which speaks `protocol` to our server.
async fn round(protocol: &str, lifecycle: ClientLifecycleMode) {
    let Some(peers) = peers() else { return };
    let (ours, plan) = (server::start(), server::plan());
    let home = tempfile::tempdir().unwrap();
    let program = peers.package("mcp-remote/dist/proxy.js");
    let mut command = with(peers.command(&peers.node()), [program]);
    command
        .arg(&ours.url)
        .args(["--transport", "http-only", "--protocol", protocol])
        // Where it keeps credentials.
        .env("MCP_REMOTE_CONFIG_DIR", home.path());
    caller::round_of_child(command, lifecycle, steps(&plan))
        .await
        .assert_whole(&plan);
}

/// Goal: a client that reaches our `/mcp` by mcp-remote loses nothing. Method: a round through a pipe; live questions.
#[actix_web::test]
async fn remote_with_a_session() {
    round("legacy", ClientLifecycleMode::Initialize).await;
}

/// Goal: nor in the newer era. Method: the same; questions are answered by calling again.
#[actix_web::test]
async fn remote_without_session() {
    round("auto", without_session()).await;
}
