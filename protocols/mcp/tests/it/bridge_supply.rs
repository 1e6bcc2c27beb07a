//! Supply of tools: what a server lists decides what can be called, and with which arguments.

use callboard_mcp::bridge::{BridgeOptions, BridgeToolOptions};
use callboard_mcp::inbound::McpServerOptions;
use callboard_mcp::outbound::Era;
use callboard_message::{Failure, FailureKind};
use callboard_runtime::{AgentRef, ExchangePart, Policy, PolicyRequest};
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::bridge_kit::{Person, Site, child, of, send_as, text};
use crate::mcp_client::Client;

/// Server that lists the tools `$first`, and from its second list on `$then`. It answers each call
/// with its number of calls and lists so far.
const LISTS: &str = r#"
    initialize; calls=0; lists=0
    while hear; do case "$line" in
        *'"method":"tools/list"'*) lists=$((lists+1))
            if [ $lists = 1 ]; then tools=$first; else tools=$then; fi
            say "$id" "{\"tools\":[$tools]}";;
        *'"method":"tools/call"'*) calls=$((calls+1)); text "$id" "$calls/$lists";;
        *) say "$id" '{}';;
    esac; done
"#;

/// Returns a bridge with the checks of a gateway to a server that lists `first`, and later `then`.
fn bridge(site: &Site, first: &[Value], then: &[Value], tools: BridgeToolOptions) -> AgentRef {
    let list = |tools: &[Value]| {
        let tools: Vec<_> = tools.iter().map(Value::to_string).collect();
        tools.join(",")
    };
    let script = format!("first='{}'\nthen='{}'\n{LISTS}", list(first), list(then));
    let options = BridgeOptions {
        tools,
        ..of(Era::Legacy)
    };
    site.bridge(child(&script), options)
}

fn tool(name: &str) -> Value {
    json!({ "name": name, "inputSchema": { "type": "object" } })
}

async fn call(bridge: &AgentRef, name: &str, arguments: Value) -> Result<String, Failure> {
    let params = json!({ "name": name, "arguments": arguments });
    let called = send_as(
        bridge,
        Person::new("ann", "{}").call(),
        "callboard.tools.call",
        params,
    );
    Ok(text(&called.await?).to_owned())
}

async fn list(bridge: &AgentRef) -> Vec<Value> {
    let call = Person::new("ann", "{}").call();
    let listed = send_as(bridge, call, "callboard.tools.list", json!({}));
    let listed = listed.await.unwrap();
    let tools = listed["tools"].as_array().unwrap().iter();
    tools.map(|tool| tool["name"].clone()).collect()
}

#[track_caller]
fn assert_unknown(called: Result<String, Failure>, name: &str) {
    let refused = called.unwrap_err();
    assert_eq!(refused.kind, FailureKind::InvalidInput, "{name:?}");
    assert!(refused.message.starts_with("unknown tool: "), "{refused:?}");
    assert_eq!(refused.data.unwrap()["rpc"]["code"], -32602);
}

/// Goal: a tool that is left out of the list can't be called, whatever it is left out for. Method:
/// a server that offers a tool of each kind beside a good one; calls of each before and after the
/// list; the server's own count of its calls.
#[tokio::test]
async fn tools_left_out_cannot_be_called() {
    let site = Site::new();
    let header = |name: &str| {
        let marked = json!({ "type": "string", "x-mcp-header": name });
        json!({ "name": "header", "inputSchema": { "type": "object", "properties": { "a": marked } } })
    };
    let long = "n".repeat(129);
    let mut bad: Vec<Value> = [
        "",
        "a\r\nX-Evil: 1",
        "\u{1b}[2J",
        "../etc/passwd",
        "/a",
        &long,
    ]
    .map(tool)
    .into();
    bad.push(json!({ "name": "hidden", "description": "Adds\u{200b}numbers" }));
    bad.push(json!({ "name": "elsewhere", "inputSchema": { "$ref": "https://a.example/x" } }));
    bad.push(header("A\r\nX-Evil: 1"));
    let mut offered = bad.clone();
    offered.push(tool("good"));
    for is_listed_first in [false, true] {
        let bridge = bridge(&site, &offered, &offered, BridgeToolOptions::default());
        if is_listed_first {
            assert_eq!(list(&bridge).await, ["good"]);
        }
        for tool in &bad {
            let name = tool["name"].as_str().unwrap();
            assert_unknown(call(&bridge, name, json!({})).await, name);
        }
        let called = call(&bridge, "good", json!({})).await.unwrap();
        assert!(called.starts_with("1/"), "{called}");
    }
    site.end().await;
}

/// Goal: a tool can be called once it is listed, without a notification; the list is fetched before
/// the first call, and once more before a call is refused, but not with each such call. Method: a
/// server whose second list has another tool; its counts of calls and lists.
#[tokio::test]
async fn lists_are_fetched_before_a_refusal() {
    let site = Site::new();
    let both = [tool("one"), tool("two")];
    let bridge = bridge(&site, &both[..1], &both, BridgeToolOptions::default());
    for (name, said) in [
        ("one", Some("1/1")),
        ("one", Some("2/1")),
        ("two", Some("3/2")),
        ("three", None),
        ("two", Some("4/")),
    ] {
        let called = call(&bridge, name, json!({})).await;
        match said {
            Some(said) => {
                let called = called.unwrap();
                assert!(called.starts_with(said), "{called}");
            }
            None => assert_unknown(called, name),
        }
    }
    site.end().await;
}

/// Goal: a server without a list isn't checked, and isn't asked for it with each call. Method: a
/// server that refuses to list; its count of requests.
#[tokio::test]
async fn servers_without_lists_are_called() {
    let script = r#"
        initialize; lists=0
        while hear; do case "$line" in
            *tools/list*) lists=$((lists+1)); printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}\n' "$id";;
            *) text "$id" "$lists";;
        esac; done
    "#;
    let site = Site::new();
    let options = BridgeOptions {
        tools: BridgeToolOptions::default(),
        ..of(Era::Legacy)
    };
    let bridge = site.bridge(child(script), options);
    for _ in 0..3 {
        assert_eq!(call(&bridge, "any", json!({})).await.unwrap(), "1");
    }
    site.end().await;
}

/// Goal: a list that can't be fetched or read opens no way around it: the latest one counts, and
/// without one the call fails. Method: a server whose list is another error, or no list, or is
/// refused after it was read; calls of a listed tool and of one that isn't.
#[tokio::test]
async fn unreadable_lists_open_nothing() {
    let busy = r#"printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-3,"message":"busy"}}\n' "$id""#;
    let no_list = r#"say "$id" '{"content":[]}'"#;
    for (first, then, is_called) in [
        (busy, busy, false),
        (no_list, no_list, false),
        ("tools", busy, true),
    ] {
        let script = format!(
            r#"
            initialize; lists=0
            while hear; do case "$line" in
                *tools/list*) lists=$((lists+1)); if [ $lists = 1 ]; then {first}; else {then}; fi;;
                *) text "$id" called;;
            esac; done
            "#
        );
        let site = Site::new();
        let options = BridgeOptions {
            tools: BridgeToolOptions::default(),
            ..of(Era::Legacy)
        };
        let bridge = site.bridge(child(&script), options);
        for _ in 0..2 {
            let called = call(&bridge, "ask", json!({})).await;
            assert_eq!(called.is_ok(), is_called, "{called:?}");
            assert!(call(&bridge, "other", json!({})).await.is_err());
        }
        site.end().await;
    }
}

/// Policy that blocks descriptions with a word.
struct BlocksSteering;

impl Policy for BlocksSteering {
    fn check<'a>(&'a self, _: PolicyRequest<'a>) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async { Ok(()) })
    }

    fn checks_parts(&self) -> bool {
        true
    }

    fn check_part<'a>(
        &'a self,
        _: ExchangePart,
        request: PolicyRequest<'a>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        let is_blocked = request.payload.get().contains("steering");
        Box::pin(async move {
            match is_blocked {
                true => Err(Failure::new(FailureKind::Blocked, "blocked")),
                false => Ok(()),
            }
        })
    }
}

/// Goal: a tool whose description a policy blocks isn't listed and can't be called. Method: such a
/// tool beside a good one.
#[tokio::test]
async fn blocked_descriptions_cannot_be_called() {
    let site = Site::new();
    site.system.policy().push(BlocksSteering);
    let offered = [
        tool("good"),
        json!({ "name": "bad", "description": "steering text", "inputSchema": { "type": "object" } }),
    ];
    let bridge = bridge(&site, &offered, &offered, BridgeToolOptions::default());
    assert_unknown(call(&bridge, "bad", json!({})).await, "bad");
    assert_eq!(list(&bridge).await, ["good"]);
    assert_unknown(call(&bridge, "bad", json!({})).await, "bad");
    assert!(call(&bridge, "good", json!({})).await.is_ok());
    site.end().await;
}

fn integer(rule: Value) -> Value {
    json!({ "name": "t", "inputSchema": { "type": "object", "properties": { "n": rule }, "required": ["n"] } })
}

/// Goal: arguments that don't fit aren't sent, and the error names place and rule; the schema is
/// that of the latest list; the check can be switched off. Method: a tool whose second list is
/// laxer; the server's count of its calls.
#[tokio::test]
async fn arguments_fit_the_schema() {
    let site = Site::new();
    let strict = [integer(json!({ "type": "integer" }))];
    let lax = [integer(json!({ "type": ["integer", "string"] }))];
    let checked = bridge(&site, &strict, &lax, BridgeToolOptions::default());
    assert_eq!(call(&checked, "t", json!({ "n": 1 })).await.unwrap(), "1/1");
    assert_eq!(
        call(&checked, "t", json!({ "n": "x" })).await.unwrap(),
        "2/2"
    );
    for (arguments, place) in [
        (
            json!({ "n": [] }),
            "`/n` breaks the rule `/properties/n/type`",
        ),
        (json!({}), "the object breaks the rule `/required`"),
    ] {
        let refused = call(&checked, "t", arguments).await.unwrap_err();
        assert_eq!(refused.kind, FailureKind::InvalidInput);
        assert!(refused.message.contains(place), "{refused:?}");
    }
    let called = call(&checked, "t", json!({ "n": 1 })).await.unwrap();
    assert!(called.starts_with("3/"), "{called}");
    let off = BridgeToolOptions {
        checks_arguments: false,
        ..BridgeToolOptions::default()
    };
    let unchecked = bridge(&site, &strict, &strict, off);
    assert_eq!(call(&unchecked, "t", json!({})).await.unwrap(), "1/1");
    site.end().await;
}

/// Goal: a schema that doesn't compile isn't enforced, and is counted once. Method: calls of such a
/// tool; the bridge's counters.
#[tokio::test]
async fn broken_schemas_are_not_enforced() {
    let site = Site::new();
    let broken = [integer(json!({ "type": "whole" }))];
    let bridge = bridge(&site, &broken, &broken, BridgeToolOptions::default());
    for said in ["1/1", "2/1"] {
        assert_eq!(call(&bridge, "t", json!({ "n": "x" })).await.unwrap(), said);
    }
    let seen = bridge.observe().await;
    assert_eq!(seen["arguments"]["unenforced"], 1, "{seen}");
    site.end().await;
}

/// Goal: clients are told of wrong calls as their revision says: an unknown tool is an error of the
/// protocol, arguments that don't fit are one up to 2025-06-18, and later a result for the model.
/// Method: both calls by a client of each revision.
#[tokio::test]
async fn refusals_on_the_wire() {
    let mut site = Site::new();
    let offered = [integer(json!({ "type": "integer" }))];
    let bridge = bridge(&site, &offered, &offered, BridgeToolOptions::default());
    let url = site.serve(bridge, McpServerOptions::default());
    let address = url.strip_prefix("http://").unwrap();
    let address = address.strip_suffix("/mcp").unwrap().parse().unwrap();
    for (revision, is_result) in [("2025-06-18", false), ("2025-11-25", true)] {
        let mut client = Client::open(address, revision, &json!({})).await;
        let params = json!({ "name": "other", "arguments": {} });
        let unknown = client.ask("tools/call", params).await;
        assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
        let params = json!({ "name": "t", "arguments": { "n": "x" } });
        let misfit = client.ask("tools/call", params).await;
        let told = match is_result {
            true => text(&misfit["result"]),
            false => {
                assert_eq!(misfit["error"]["code"], -32602, "{misfit}");
                misfit["error"]["message"].as_str().unwrap()
            }
        };
        assert!(told.contains("`/n` breaks the rule"), "{misfit}");
        assert_eq!(misfit["result"]["isError"] == true, is_result);
    }
    site.end().await;
}

/// Goal: a server can send a person to encrypted pages only. Method: a server that asks a client
/// who can visit to visit an address; the client's questions, and the server's answer.
#[tokio::test]
async fn visits_are_encrypted() {
    for (address, passes) in [
        ("https://a.example/x", true),
        ("http://localhost:1/", true),
        ("http://a.example/x", false),
        ("javascript:alert(1)", false),
    ] {
        let script = format!(
            r#"
            initialize
            while hear; do call=$id
                printf '{{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{{"mode":"url","message":"m","elicitationId":"e","url":"{address}"}}}}\n'
                hear; case "$line" in *'"error"'*) text "$call" refused;; *) text "$call" asked;; esac
            done
            "#
        );
        let site = Site::new();
        let bridge = site.bridge(child(&script), of(Era::Legacy));
        let person = Person::new("ann", r#"{"elicitation":{"url":{}}}"#);
        let params = json!({ "name": "t", "arguments": {} });
        let called = send_as(&bridge, person.call(), "callboard.tools.call", params);
        let said = if passes { "asked" } else { "refused" };
        assert_eq!(text(&called.await.unwrap()), said, "{address}");
        assert_eq!(person.asked.lock().unwrap().len(), usize::from(passes));
        site.end().await;
    }
}

/// Goal: a request that has passed through too many gateways is refused, so that circles end.
/// Method: a client that states the most hops, and one more.
#[tokio::test]
async fn hops_are_limited_on_the_wire() {
    let mut site = Site::new();
    let offered = [tool("t")];
    let bridge = bridge(&site, &offered, &offered, BridgeToolOptions::default());
    let url = site.serve(bridge, McpServerOptions::default());
    let address = url.strip_prefix("http://").unwrap();
    let address = address.strip_suffix("/mcp").unwrap().parse().unwrap();
    let mut client = Client::open(address, "2025-06-18", &json!({})).await;
    for (hops, is_served) in [
        (0, true),
        (15, true),
        (16, false),
        (17, false),
        (60_000, false),
    ] {
        let params = json!({ "_meta": { "callboard/hops": hops } });
        let listed = client.ask("tools/list", params).await;
        assert_eq!(
            listed["result"]["tools"].is_array(),
            is_served,
            "{hops}: {listed}"
        );
    }
    site.end().await;
}
