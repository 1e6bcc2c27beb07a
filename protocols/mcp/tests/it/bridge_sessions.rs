//! One session with the server for each client session: lists, calls, subscriptions, log level.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use callboard_mcp::bridge::BridgeOptions;
use callboard_mcp::inbound::McpServerOptions;
use callboard_mcp::outbound::{Era, EraChoice, McpClient, McpClientOptions, ServerEndpoint};
use callboard_message::{CallerCapabilities, CapabilityChange, LogLevel};
use callboard_runtime::testkit::Probe;
use callboard_runtime::{AgentChanged, AgentRef};
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;

use crate::bridge_kit::{Person, Site, child, of, send_as, text};
use crate::kit::soon;
use crate::mcp_client::Client;

/// Server that keeps state for its client: `unlock` shows another tool, `touch` reports a change of
/// the resource that is subscribed to, `level` returns the log level, `pid` the process.
const STATEFUL: &str = r#"
    echo "$$" >> "$STARTS"; while [ -e "$STARTS.closed" ]; do sleep 0.02; done; level=unset; more=''
    hear; say "$id" '{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true},"logging":{}},"serverInfo":{"name":"p","version":"1"},"instructions":"i"}'; hear
    while hear; do case "$line" in
        *tools/list*) say "$id" "{\"tools\":[{\"name\":\"ask\",\"inputSchema\":{\"type\":\"object\"}}$more]}";;
        *logging/setLevel*) level=$(part level); say "$id" '{}';;
        *resources/subscribe*) uri=$(part uri); say "$id" '{}';;
        *resources/unsubscribe*) uri=none; say "$id" '{}';;
        *'"unlock"'*) more=',{"name":"more","inputSchema":{"type":"object"}}'
            printf '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n'; text "$id" done;;
        *'"touch"'*) printf '{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"%s"}}\n' "$uri"; text "$id" "$uri";;
        *'"level"'*) text "$id" "$level";;
        *'"die"'*) exit 1;;
        *) text "$id" "$$";;
    esac; done
"#;

/// A [`STATEFUL`] server behind a bridge, served to clients.
struct Stage {
    site: Site,
    url: String,
    /// File with a line for each process that was started.
    starts: PathBuf,
}

impl Stage {
    fn new(test: &str, options: BridgeOptions) -> Self {
        Self::with_deadline(
            test,
            options,
            McpServerOptions::default().inbound.call_deadline,
        )
    }

    /// Creates a stage whose clients' calls end after `call_deadline`.
    fn with_deadline(test: &str, options: BridgeOptions, call_deadline: Duration) -> Self {
        let starts = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("starts-{test}"));
        // A former run may have left them.
        let _ = std::fs::remove_file(&starts);
        let _ = std::fs::remove_file(starts.with_extension("closed"));
        let script = format!("STARTS='{}'\n{STATEFUL}", starts.display());
        let mut site = Site::new();
        let bridge = site.bridge(child(&script), options);
        let mut served = McpServerOptions::default();
        served.inbound.call_deadline = call_deadline;
        let url = site.serve(bridge, served);
        Self { site, url, starts }
    }

    /// Returns the number of processes that have been started.
    fn started(&self) -> usize {
        std::fs::read_to_string(&self.starts).map_or(0, |starts| starts.lines().count())
    }

    /// Returns a legacy client and the changes that it is notified of.
    fn client(&self) -> (AgentRef, Receiver<AgentChanged>) {
        let options = McpClientOptions {
            era: EraChoice::Only(Era::Legacy),
            offered_capabilities: CallerCapabilities::default(),
            log_level: Some(LogLevel::Error),
            ..McpClientOptions::default()
        };
        let endpoint = ServerEndpoint::from_url(&self.url).unwrap();
        let client = McpClient::new(endpoint, options).unwrap();
        let client = self.site.system.spawn_with(move || client.clone());
        let (follower, changes) = Probe::<AgentChanged>::spawn(&self.site.system, |_| ());
        client.follow(follower.recipient().unwrap());
        (client, changes)
    }
}

async fn send(client: &AgentRef, name: &str, params: Value) -> Value {
    let call = Person::new("a", "{}").call();
    send_as(client, call, &format!("callboard.{name}"), params)
        .await
        .unwrap()
}

async fn say(client: &AgentRef, what: &str) -> String {
    let params = json!({ "name": "ask", "arguments": { what: 1 } });
    text(&send(client, "tools.call", params).await).to_owned()
}

async fn tools(client: &AgentRef) -> usize {
    let listed = send(client, "tools.list", json!({})).await;
    listed["tools"].as_array().unwrap().len()
}

async fn next(changes: &mut Receiver<AgentChanged>) -> CapabilityChange {
    soon(changes.recv()).await.unwrap().change
}

/// Goal: a client session has one session with the server, started once: for the description, lists,
/// subscriptions, the log level and calls. Its changes are told to that client and to no other.
/// Method: two clients of a server that shows another tool after a call; one subscribes.
#[tokio::test]
async fn clients_see_their_own_session() {
    let stage = Stage::new("own", of(Era::Legacy));
    let ((one, mut changes), (other, mut others)) = (stage.client(), stage.client());
    let about = send(&one, "describe", json!({})).await;
    assert_eq!(about["instructions"], "i");
    assert_eq!((tools(&one).await, stage.started()), (1, 1));
    assert_eq!(say(&one, "level").await, "error");
    assert_eq!(say(&one, "unlock").await, "done");
    assert_eq!(next(&mut changes).await, CapabilityChange::Tools);
    assert_eq!((tools(&one).await, tools(&other).await), (2, 1));
    send(&one, "resources.subscribe", json!({ "uri": "x:1" })).await;
    for _ in 0..3 {
        assert_eq!(say(&one, "touch").await, "x:1");
        let updated = CapabilityChange::Resource("x:1".into());
        assert_eq!(next(&mut changes).await, updated);
    }
    assert_eq!(stage.started(), 2, "one for each client");
    assert!(say(&one, "pid").await != say(&other, "pid").await);
    assert!(others.try_recv().is_err());
    stage.site.end().await;
}

/// Goal: a client that only begins a session starts no process of a server that runs. Method: one client
/// lists tools; another one asks for the description, and lists tools after that.
#[tokio::test]
async fn a_begun_session_starts_no_process() {
    let stage = Stage::new("begun", of(Era::Legacy));
    let ((one, _changes), (other, _others)) = (stage.client(), stage.client());
    assert_eq!((tools(&one).await, stage.started()), (1, 1));
    let about = send(&other, "describe", json!({})).await;
    assert_eq!((&about["instructions"], stage.started()), (&json!("i"), 1));
    assert_eq!((tools(&other).await, stage.started()), (1, 2));
    stage.site.end().await;
}

/// Goal: the last unsubscription of a resource reaches the server. Method: subscribe, unsubscribe,
/// and ask the server for the resource that it watches.
#[tokio::test]
async fn subscriptions_end() {
    let stage = Stage::new("end", of(Era::Legacy));
    let (client, _changes) = stage.client();
    send(&client, "resources.subscribe", json!({ "uri": "x:1" })).await;
    send(&client, "resources.unsubscribe", json!({ "uri": "x:1" })).await;
    soon(async { while say(&client, "touch").await != "none" {} }).await;
    stage.site.end().await;
}

/// Goal: after a server has been started again, its client is told that the lists may be others, and
/// keeps subscriptions and log level. Method: a call that ends the server, and the next call.
#[tokio::test]
async fn restarts_are_told() {
    let stage = Stage::new("restart", of(Era::Legacy));
    let (client, mut changes) = stage.client();
    send(&client, "resources.subscribe", json!({ "uri": "x:1" })).await;
    let call = Person::new("a", "{}").call();
    let params = json!({ "name": "ask", "arguments": { "die": 1 } });
    let _ = send_as(&client, call, "callboard.tools.call", params).await;
    assert_eq!(say(&client, "level").await, "error");
    assert_eq!(stage.started(), 2);
    assert_eq!(next(&mut changes).await, CapabilityChange::Tools);
    assert_eq!(next(&mut changes).await, CapabilityChange::Resources);
    assert_eq!(say(&client, "touch").await, "x:1");
    let updated = CapabilityChange::Resource("x:1".into());
    assert_eq!(next(&mut changes).await, updated);
    stage.site.end().await;
}

/// Goal: a client hears that a server is still starting, and is notified when it is there; the server is
/// started once. Method: a server that answers nothing until a file is removed, for longer than the
/// client's `initialize` waits.
#[tokio::test]
async fn slow_starts_are_told() {
    let stage = Stage::with_deadline("slow", of(Era::Legacy), Duration::from_secs(4));
    let gate = stage.starts.with_extension("closed");
    std::fs::write(&gate, "").unwrap();
    let (client, mut changes) = stage.client();
    let about = send(&client, "describe", json!({})).await;
    assert_eq!(about["instructions"], "far: still starting");
    assert!(about["capabilities"]["tools"].is_object());
    std::fs::remove_file(&gate).unwrap();
    assert_eq!(next(&mut changes).await, CapabilityChange::Tools);
    assert_eq!((tools(&client).await, stage.started()), (1, 1));
    stage.site.end().await;
}

/// Returns the address in a URL.
fn address(url: &str) -> SocketAddr {
    let address = url.strip_prefix("http://").unwrap();
    address.strip_suffix("/mcp").unwrap().parse().unwrap()
}

/// Goal: a server learns of its client's extensions, and its requests of them reach the client
/// unchanged, as the client's answers reach the server. Tasks aren't declared, and no method of MCP
/// itself is forwarded. Method: a server that shows what was declared, and sends one request of each
/// kind during a call; clients with and without extensions.
#[tokio::test]
async fn extensions_reach_both_sides() {
    let script = r#"
        hear; declared=$line
        say "$id" '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"p","version":"1"}}'; hear
        hear; call=$id; answers=''
        for method in ui/open tasks/get tools/call; do
            printf '{"jsonrpc":"2.0","id":"x","method":"%s","params":{"a":1.0}}\n' "$method"
            hear; answers="$answers,$line"
        done
        say "$call" "{\"content\":[],\"said\":[$declared$answers]}"; hear
    "#;
    let own = json!({ "extensions": { "example/ui": { "n": 1.0 } }, "experimental": { "e": {} }, "tasks": { "list": {} } });
    for (capabilities, declared) in [
        (
            own,
            json!({ "extensions": { "example/ui": { "n": 1.0 } }, "experimental": { "e": {} } }),
        ),
        (json!({}), json!({})),
    ] {
        let mut site = Site::new();
        let bridge = site.bridge(child(script), of(Era::Legacy));
        let url = site.serve(bridge, McpServerOptions::default());
        let mut client = Client::open(address(&url), "2025-11-25", &capabilities).await;
        let is_forwarded = declared != json!({});
        let message = if is_forwarded {
            let mut stream = client.call("t", json!({})).await;
            let request = stream.message().await;
            assert_eq!(request["method"], "ui/open");
            assert_eq!(request["params"], json!({ "a": 1.0 }));
            client.answer(&request, json!({ "opened": 1.0 })).await;
            stream.message().await
        } else {
            let params = json!({ "name": "t", "arguments": {} });
            client.ask("tools/call", params).await
        };
        let said = &message["result"]["said"];
        assert_eq!(said[0]["params"]["capabilities"], declared);
        if is_forwarded {
            assert_eq!(said[1]["result"], json!({ "opened": 1.0 }));
        } else {
            assert_eq!(said[1]["error"]["code"], -32601);
        }
        for answer in [&said[2], &said[3]] {
            assert_eq!(answer["error"]["code"], -32601, "{said}");
        }
        site.end().await;
    }
}

/// Goal: a legacy client whose refusal of a modern server's question ends its request gets its own
/// code and data back. Method: each request in which a modern server may ask; errors that refuse, and
/// one that says that the client can't answer.
#[tokio::test]
async fn own_refusals_come_back() {
    let script = r#"
        hear; say "$id" '{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"prompts":{},"resources":{}}}'
        while hear; do say "$id" '{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{"message":"m","requestedSchema":{"type":"object","properties":{}}}}},"requestState":"s"}'; done
    "#;
    let mut site = Site::new();
    let bridge = site.bridge(child(script), of(Era::Modern));
    let url = site.serve(bridge, McpServerOptions::default());
    let can = json!({ "elicitation": {} });
    let mut client = Client::open(address(&url), "2025-11-25", &can).await;
    for (method, params) in [
        ("prompts/get", json!({ "name": "p" })),
        ("resources/read", json!({ "uri": "x:1" })),
        ("tools/call", json!({ "name": "t", "arguments": {} })),
    ] {
        for (code, is_own) in [(-1, true), (-32603, true), (-32601, false)] {
            let error =
                json!({ "code": code, "message": "User rejected", "data": { "by": "user" } });
            let request = client.request(method, params.clone());
            let mut stream = client.stream(&request).await;
            let question = stream.message().await;
            assert_eq!(question["method"], "elicitation/create");
            client.refuse(&question, error.clone()).await;
            let response = stream.message().await;
            assert_eq!(response["error"] == error, is_own, "{method} {response}");
        }
    }
    site.end().await;
}

/// Goal: clients whom the server can't ask share a server that is declared stateless. Method: two
/// clients of one.
#[tokio::test]
async fn stateless_servers_are_shared() {
    let options = BridgeOptions {
        is_stateless: true,
        ..of(Era::Legacy)
    };
    let stage = Stage::new("stateless", options);
    let (one, other) = (stage.client().0, stage.client().0);
    assert_eq!(say(&one, "pid").await, say(&other, "pid").await);
    assert_eq!((tools(&one).await, stage.started()), (1, 1));
    stage.site.end().await;
}

/// Goal: a modern client's list shows what it can call. Method: a legacy server that shows each tool
/// to clients with one capability, and a client that declares some of them in each request.
#[tokio::test]
async fn modern_lists_show_what_can_be_called() {
    let script = r#"
        hear; tools=''
        for can in sampling elicitation roots; do case "$line" in *"\"$can\""*)
            tools="$tools${tools:+,}{\"name\":\"$can\",\"inputSchema\":{\"type\":\"object\"}}";; esac; done
        say "$id" '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"p","version":"1"}}'; hear
        while hear; do say "$id" "{\"tools\":[$tools]}"; done
    "#;
    let mut site = Site::new();
    let bridge = site.bridge(child(script), of(Era::Legacy));
    let client = site.beyond(bridge, Era::Modern);
    for (can, names) in [
        ("{}", vec![]),
        (r#"{"sampling":{},"roots":{}}"#, vec!["sampling", "roots"]),
        (r#"{"elicitation":{}}"#, vec!["elicitation"]),
    ] {
        let call = Person::new("a", can).call();
        let listed = send_as(&client, call, "callboard.tools.list", json!({})).await;
        let listed = listed.unwrap()["tools"].as_array().unwrap().clone();
        let listed: Vec<_> = listed.iter().map(|tool| &tool["name"]).collect();
        assert_eq!(listed, names, "{can}");
    }
    site.end().await;
}
