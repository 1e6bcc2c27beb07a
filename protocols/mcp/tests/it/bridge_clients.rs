//! Many clients of one bridge, isolated from each other.

use callboard_mcp::inbound::McpServerOptions;
use callboard_mcp::outbound::Era;
use callboard_message::CallerCapabilities;
use callboard_runtime::AgentRef;
use futures::future::join_all;

use crate::bridge_kit::{Site, call, child, converse, of};
use crate::kit::soon;

/// Number of clients of each era.
const CLIENTS: usize = 25;

async fn fifty(site: &mut Site, bridge: AgentRef, calls: usize) {
    let url = site.serve(bridge, McpServerOptions::default());
    let clients = (0..2 * CLIENTS).map(|at| {
        let era = if at % 2 == 0 {
            Era::Legacy
        } else {
            Era::Modern
        };
        (at, site.client(&url, era, CallerCapabilities::all()))
    });
    let all = clients.map(|(at, client)| async move {
        for round in 0..calls {
            let (secret, answer) = (format!("s-{at}-{round}"), format!("a-{at}-{round}"));
            let (said, asked) = converse(&client, &secret, &answer).await;
            assert_eq!(asked.join(","), secret, "client {at}");
            assert_eq!(
                said.unwrap().texts(),
                format!("{secret}:{answer}"),
                "client {at}"
            );
        }
    });
    join_all(all).await;
}

/// Goal: a question reaches the client whose call caused it, and no other. Method: fifty clients of
/// both eras on one legacy server over HTTP, each with its own secret in question and answer.
/// Rows: M-53.
#[tokio::test]
async fn nothing_crosses_over_http() {
    let mut site = Site::new();
    let (far, _) = site.asker();
    let bridge = site.bridge(far, of(Era::Legacy));
    fifty(&mut site, bridge.clone(), 4).await;
    let seen = soon(bridge.observe()).await;
    assert!(
        seen["connections"]["own"].as_u64().unwrap() >= CLIENTS as u64,
        "{seen}"
    );
    site.end().await;
}

/// Goal: a question reaches its client even if all requests of a connection share a channel, which
/// doesn't name the call. Method: the same fifty clients on a child process.
/// Rows: M-53.
#[tokio::test]
async fn nothing_crosses_over_pipes() {
    let script = r#"
        initialize
        while hear; do
            case "$line" in *tools/list*) tools; continue;; esac
            call=$id; secret=$(part secret); ask "$secret"; hear; text "$call" "$secret:$(part answer)"
        done
    "#;
    let mut site = Site::new();
    let bridge = site.bridge(child(script), of(Era::Legacy));
    fifty(&mut site, bridge, 2).await;
    site.end().await;
}

/// Goal: the state that a server keeps for one client is invisible to others, whether they can
/// answer questions or not. Method: a server that counts the calls of a connection; two clients of
/// each kind.
#[tokio::test]
async fn no_state_is_shared() {
    let script = r#"initialize; while hear; do n=$((n+1)); text "$id" "$n"; done"#;
    for offers in [CallerCapabilities::all(), CallerCapabilities::default()] {
        let mut site = Site::new();
        let bridge = site.bridge(child(script), of(Era::Legacy));
        let url = site.serve(bridge, McpServerOptions::default());
        let clients = [(); 2].map(|()| site.client(&url, Era::Legacy, offers.clone()));
        for expected in ["1", "2"] {
            for client in &clients {
                let said = soon(call(client, serde_json::json!({})).reply())
                    .await
                    .unwrap()
                    .unwrap();
                assert_eq!(said.texts(), expected);
            }
        }
        site.end().await;
    }
}
