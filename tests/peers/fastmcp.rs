//! FastMCP 3 and 4, which show each session tools of its own, and ask in mid-call.

use rmcp::ClientLifecycleMode;
use serde_json::json;

use crate::gateway::{Gateway, Topology};
use crate::kit::{Peers, Served, peers, script, with};
use crate::rmcp::visitor::Visitor;
use crate::rmcp::without_session;
use crate::round::{FOLDER, NAME};

/// Versions, and the environment of each.
const VERSIONS: [(&str, &str); 2] = [("3", "python-old"), ("4", "python")];

/// Callboard in front of both versions over both transports, whose eras it finds out.
struct Vaults {
    ids: Vec<String>,
    gateway: Gateway,
    _served: Vec<Served>,
}

impl Vaults {
    async fn start(peers: &Peers) -> Self {
        let (mut ids, mut served, mut sections) = (Vec::new(), Vec::new(), String::new());
        for (version, environment) in VERSIONS {
            let (python, file) = (peers.python(environment), script("server_fastmcp.py"));
            let arguments = |port: u16| [file.clone(), "http".to_owned(), port.to_string()];
            let http = Served::start(|port| with(peers.command(&python), arguments(port))).await;
            let url = format!("url = {}", json!(http.url("http", "/mcp")));
            let command = format!("command = {}", json!([python, file, "stdio"]));
            served.push(http);
            for (transport, reach) in [("stdio", command), ("http", url)] {
                let id = format!("fastmcp-{version}-{transport}");
                sections +=
                    &format!("[[upstream]]\nid = \"{id}\"\n{reach}\nsupports_elicitation = true\n");
                ids.push(id);
            }
        }
        Self {
            ids,
            gateway: Gateway::start(peers, Topology::new(&sections)).await,
            _served: served,
        }
    }
}

/// Goal: a session of a client is one session of the server, for calls, lists and what the server says of them. Method: a tool
/// that a call unlocks for its session appears in that client's list, after `list_changed`, and can be called; for another
/// client it stays away.
#[actix_web::test]
async fn fastmcp_shows_a_session_what_it_unlocked() {
    let Some(peers) = peers() else { return };
    let vaults = Vaults::start(&peers).await;
    for id in &vaults.ids {
        let url = vaults.gateway.mcp(id);
        let connect = || Visitor::connect(&url, ClientLifecycleMode::Initialize, FOLDER);
        let (client, other) = (connect().await, connect().await);
        for client in [&client, &other] {
            assert_eq!(client.tools().await, ["ask_name", "unlock"], "{id}");
        }
        let before = client.changes();
        let unlocked = client.call("unlock", json!({})).await;
        assert_eq!(unlocked.as_deref(), Ok("unlocked"), "{id}");
        client.changed_since(before).await;
        let all = ["ask_name", "treasure", "unlock"];
        assert_eq!(client.tools().await, all, "{id}");
        let treasure = client.call("treasure", json!({})).await;
        assert_eq!(treasure.as_deref(), Ok("gold"), "{id}");
        assert_eq!(other.tools().await, ["ask_name", "unlock"], "{id}");
        client.end().await;
        other.end().await;
    }
    vaults.gateway.end().await;
}

/// Goal: its question in mid-call reaches the caller, whatever eras the server and the client speak. Method: a form for a name.
#[actix_web::test]
async fn fastmcp_asks_the_caller() {
    let Some(peers) = peers() else { return };
    let vaults = Vaults::start(&peers).await;
    for id in &vaults.ids {
        for lifecycle in [ClientLifecycleMode::Initialize, without_session()] {
            let client = Visitor::connect(&vaults.gateway.mcp(id), lifecycle, FOLDER).await;
            let greeted = client.call("ask_name", json!({})).await;
            assert_eq!(greeted, Ok(format!("Hello, {NAME}!")), "{id}");
            client.end().await;
        }
    }
    vaults.gateway.end().await;
}
