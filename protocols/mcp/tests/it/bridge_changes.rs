//! Change notifications of servers that flood them, and of gateways in a circle.

use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use callboard_mcp::bridge::{BridgeOptions, BridgeToolOptions};
use callboard_mcp::inbound::McpServerOptions;
use callboard_mcp::outbound::{Era, McpClient, McpClientOptions, ServerEndpoint};
use callboard_message::capabilities::{CallTool, ListTools};
use callboard_message::{CapabilityChange, Failure, RawObject, ToolResult};
use callboard_runtime::testkit::{Probe, eventually};
use callboard_runtime::{
    Agent, AgentChanged, AgentRef, ConcurrentHandler, Context, Handlers, SyncHandler,
};
use futures::future::join_all;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;
use tokio::time::{sleep, timeout};

use crate::bridge_kit::{Person, Site, child, of, send_as, text};
use crate::kit::{SOON, soon};

/// Interval of damping in these tests.
const INTERVAL: Duration = Duration::from_millis(50);

/// Returns options of a gateway, with a short interval.
fn gateway(era: Era) -> BridgeOptions {
    BridgeOptions {
        client: damped(of(era).client),
        tools: BridgeToolOptions::default(),
        ..of(era)
    }
}

fn damped(options: McpClientOptions) -> McpClientOptions {
    McpClientOptions {
        change_interval: INTERVAL,
        compares_lists: true,
        ..options
    }
}

/// Waits until `count` has stayed the same for ten intervals.
async fn until_quiet(count: impl Fn() -> usize) -> usize {
    let quiet = async {
        loop {
            let before = count();
            sleep(INTERVAL * 10).await;
            if count() == before {
                return before;
            }
        }
    };
    soon(quiet).await
}

/// Server that reports 10,000 changes during a call of `flood`, shows another tool from the call of
/// `unlock` on, which reports 100 changes, and answers any other call with its number of lists.
const FLOODS: &str = r#"
    hear; say "$id" '{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"p","version":"1"}}'; hear
    lists=0; more=''
    flood() { yes '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}' | head -n "$1"; }
    while hear; do case "$line" in
        *tools/list*) lists=$((lists+1)); say "$id" "{\"tools\":[{\"name\":\"ask\",\"inputSchema\":{\"type\":\"object\"}}$more]}";;
        *'"flood"'*) flood 10000; text "$id" done;;
        *'"unlock"'*) more=',{"name":"more","inputSchema":{"type":"object"}}'; flood 100; text "$id" done;;
        *) text "$id" "$lists";;
    esac; done
"#;

/// Client of a gateway, and the changes that it is notified of.
fn client(site: &Site, url: &str) -> (AgentRef, Receiver<AgentChanged>) {
    // What the client itself would leave out isn't counted.
    let options = McpClientOptions {
        change_interval: Duration::ZERO,
        compares_lists: false,
        listen: true,
        ..of(Era::Legacy).client
    };
    let client = McpClient::new(ServerEndpoint::from_url(url).unwrap(), options).unwrap();
    let client = site.system.spawn_with(move || client.clone());
    let (follower, changes) = Probe::<AgentChanged>::spawn(&site.system, |_| ());
    client.follow(follower.recipient().unwrap());
    (client, changes)
}

async fn say(client: &AgentRef, what: &str) -> String {
    let params = json!({ "name": "ask", "arguments": { what: 1 } });
    let call = Arc::new(Person::new("a", "{}").call());
    let params = to_raw_value(&params).unwrap();
    // A client reads a flood slowly.
    let said = client.ask_named("callboard.tools.call", params, Some(call));
    let said = timeout(SOON * 6, said).await.unwrap().unwrap();
    let said: Value = serde_json::from_str(said.get()).unwrap();
    text(&said).to_owned()
}

/// Goal: a flood of changes costs each session a few notifications and the server a few lists; a
/// change after it isn't lost, and none is told where nothing changed. Method: three sessions at
/// once, each with a server that reports 10,000 changes in a call, and then another list; the
/// sessions' notifications, and the servers' counts of lists.
#[tokio::test]
async fn floods_are_damped() {
    let mut site = Site::new();
    let mut options = gateway(Era::Legacy);
    options.client.change_interval = INTERVAL * 8;
    let bridge = site.bridge(child(FLOODS), options);
    let url = site.serve(bridge, McpServerOptions::default());
    let clients: Vec<_> = (0..3).map(|_| client(&site, &url)).collect();
    let flooded = clients.into_iter().map(|(client, mut changes)| async move {
        say(&client, "lists").await;
        assert_eq!(say(&client, "flood").await, "done");
        soon(changes.recv()).await.unwrap();
        until_quiet(|| changes.len()).await;
        assert!(changes.is_empty(), "{} more", changes.len());
        assert_eq!(say(&client, "unlock").await, "done");
        soon(changes.recv()).await.unwrap();
        until_quiet(|| changes.len()).await;
        assert!(changes.is_empty(), "{} more", changes.len());
        let lists: usize = say(&client, "lists").await.parse().unwrap();
        lists
    });
    for lists in join_all(flooded).await {
        // Once per interval while the flood is read, and for the calls.
        assert!((2..=50).contains(&lists), "{lists} lists");
    }
    site.end().await;
}

/// Gateway of one server: its own tools, and those of the server under a prefix. It passes on the
/// server's changes, as an aggregate does.
struct Gateway {
    own: Arc<Mutex<Vec<Value>>>,
    server: AgentRef,
    told: Arc<AtomicUsize>,
}

/// Adds a tool and reports the change.
const ADD: &str = "add";

impl Agent for Gateway {
    fn handlers(on: &mut Handlers<Self>) {
        on.sync::<AgentChanged>()
            .concurrent::<ListTools>(64)
            .sync::<CallTool>();
    }

    fn started(&mut self, cx: &mut Context) {
        if let Some(recipient) = cx.me().recipient::<AgentChanged>() {
            self.server.follow(recipient);
        }
    }
}

impl SyncHandler<AgentChanged> for Gateway {
    fn handle(&mut self, changed: AgentChanged, cx: &mut Context) {
        self.told.fetch_add(1, SeqCst);
        cx.notify_changed(changed.change);
    }
}

impl SyncHandler<CallTool> for Gateway {
    fn handle(&mut self, call: CallTool, cx: &mut Context) -> Result<ToolResult, Failure> {
        let name = call.0.object("arguments").unwrap().text(ADD).unwrap();
        let tool = json!({ "name": name, "inputSchema": { "type": "object" } });
        self.own.lock().unwrap().push(tool);
        cx.notify_changed(CapabilityChange::Tools);
        Ok(ToolResult::text("added"))
    }
}

impl ConcurrentHandler<ListTools> for Gateway {
    fn handle(
        &mut self,
        _: ListTools,
        cx: Context,
    ) -> impl Future<Output = Result<RawObject, Failure>> + Send + 'static {
        let (own, server) = (self.own.lock().unwrap().clone(), self.server.clone());
        async move {
            let theirs = cx.ask(&server, ListTools(RawObject::new())).await;
            let theirs: Vec<Value> = match theirs {
                Ok(Ok(theirs)) => theirs.read("tools").unwrap_or_default(),
                _ => Vec::new(),
            };
            let renamed = theirs.into_iter().map(|mut tool| {
                tool["name"] = format!("x_{}", tool["name"].as_str().unwrap()).into();
                tool
            });
            let tools: Vec<_> = own.into_iter().chain(renamed).collect();
            Ok(RawObject::single("tools", tools))
        }
    }
}

/// Goal: gateways in a circle come to rest after a list and after each change, and a change reaches
/// the other one. Method: two gateways, each the server of the other; a list; two tools added to
/// one; the number of notifications that each gets.
#[tokio::test]
async fn circles_come_to_rest() {
    for era in [Era::Modern, Era::Legacy] {
        let mut site = Site::new();
        let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let urls = listeners
            .each_ref()
            .map(|listener| format!("http://{}/mcp", listener.local_addr().unwrap()));
        let told = [(); 2].map(|()| Arc::<AtomicUsize>::default());
        let mut gateways = Vec::new();
        for (at, listener) in listeners.into_iter().enumerate() {
            let other = ServerEndpoint::from_url(&urls[1 - at]).unwrap();
            let server = site.bridge(other, gateway(era));
            let own = Arc::new(Mutex::new(Vec::new()));
            let told = told[at].clone();
            let gateway = site.system.spawn_with(move || Gateway {
                own: own.clone(),
                server: server.clone(),
                told: told.clone(),
            });
            site.serve_on(listener, gateway.clone(), McpServerOptions::default());
            gateways.push(gateway);
        }
        let all = || told[0].load(SeqCst) + told[1].load(SeqCst);
        let list = |at: usize| {
            let call = Person::new("a", "{}").call();
            let gateway = &gateways[at];
            async move {
                let listed = send_as(gateway, call, "callboard.tools.list", json!({})).await;
                listed.unwrap()["tools"].as_array().unwrap().len()
            }
        };
        for at in [0, 1] {
            assert_eq!(list(at).await, 0, "{era:?}");
        }
        until_quiet(all).await;
        for name in ["one", "two"] {
            let (before, of_other) = (all(), told[1].load(SeqCst));
            let params = json!({ "name": ADD, "arguments": { ADD: name } });
            let call = Person::new("a", "{}").call();
            let added = send_as(&gateways[0], call, "callboard.tools.call", params);
            added.await.unwrap();
            // A legacy session's changes are told to that session alone.
            let is_told = || told[1].load(SeqCst) > of_other || era == Era::Legacy;
            eventually("the other gateway is told", SOON, is_told).await;
            let after = until_quiet(all).await;
            assert!(
                after - before <= 8,
                "{era:?}: {} notifications",
                after - before
            );
            assert!(list(1).await > 0);
        }
        site.end().await;
    }
}
