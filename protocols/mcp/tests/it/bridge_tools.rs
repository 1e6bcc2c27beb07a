//! Retries of tool calls, and cached results.

use std::time::Duration;

use callboard_mcp::bridge::{BridgeOptions, BridgeToolOptions};
use callboard_mcp::outbound::Era;
use callboard_message::FailureKind;
use serde_json::json;

use crate::bridge_kit::{Person, Site, ask_as, child, of, send_as, text};

/// Server whose tool has the annotations `$says`. It is overloaded at its first call, and counts
/// the others.
const BUSY: &str = r#"
    initialize
    n=0
    while hear; do case "$line" in
        *tools/list*) say "$id" "{\"tools\":[{\"name\":\"ask\",\"inputSchema\":{\"type\":\"object\"},$says}]}";;
        *) n=$((n+1))
           if [ $n = 1 ]
           then printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-3,"message":"busy"}}\n' "$id"
           else text "$id" $n
           fi;;
    esac; done
"#;

fn busy(says: &str) -> callboard_mcp::outbound::ServerEndpoint {
    child(&format!("says='{says}'\n{BUSY}"))
}

fn retrying(era: Era) -> BridgeOptions {
    let tools = BridgeToolOptions {
        retry_tools: vec!["ask".into()],
        ..BridgeToolOptions::default()
    };
    BridgeOptions { tools, ..of(era) }
}

/// Goal: a call of a read-only tool that the operator lists is retried, and its result is cached as the
/// tool's metadata say, per caller. Method: a server that is overloaded at first; the same call again,
/// another one, and another caller's.
#[tokio::test]
async fn tools_that_change_nothing() {
    let site = Site::new();
    let says = r#""annotations":{"readOnlyHint":true},"_meta":{"callboard/cache":60}"#;
    let bridge = site.bridge(busy(says), retrying(Era::Legacy));
    let [ann, bob] = ["ann", "bob"].map(Person::thinker);
    send_as(&bridge, ann.call(), "callboard.tools.list", json!({}))
        .await
        .unwrap();
    for (person, arguments, answer) in [
        (&ann, json!({ "a": 1, "b": 2 }), "2"),
        (&ann, json!({ "b": 2, "a": 1 }), "2"),
        (&ann, json!({ "a": 1 }), "3"),
        // On his own connection.
        (&bob, json!({ "a": 1 }), "2"),
    ] {
        assert_eq!(
            text(&ask_as(&bridge, person.call(), arguments).await.unwrap()),
            answer
        );
    }
    let seen = bridge.observe().await;
    assert_eq!(
        (&seen["tools"]["retried"], &seen["tools"]["cache"]["hits"]),
        (&json!(2), &json!(1))
    );
    site.end().await;
}

/// Goal: a server can't have its calls repeated by hints alone, because the first may have had its
/// effect. Method: a tool with both hints of an overloaded server; the counter of its calls.
#[tokio::test]
async fn a_hint_alone_repeats_nothing() {
    let site = Site::new();
    let says = r#""annotations":{"readOnlyHint":true,"idempotentHint":true}"#;
    let bridge = site.bridge(busy(says), of(Era::Legacy));
    let ann = Person::thinker("ann");
    send_as(&bridge, ann.call(), "callboard.tools.list", json!({}))
        .await
        .unwrap();
    let busy = ask_as(&bridge, ann.call(), json!({})).await.unwrap_err();
    assert_eq!(busy.kind, FailureKind::Overloaded);
    let next = ask_as(&bridge, ann.call(), json!({})).await.unwrap();
    assert_eq!(text(&next), "2");
    assert_eq!(bridge.observe().await["tools"]["retried"], 0);
    site.end().await;
}

/// Goal: a tool that may change something is called once, even if the server is overloaded; the
/// operator may still enable its cache. Method: an overloaded server with a tool without hints.
#[tokio::test]
async fn tools_that_may_change_something() {
    let site = Site::new();
    let cache_ttl = [("as*".to_owned(), Duration::from_secs(60))].into();
    let tools = BridgeToolOptions {
        cache_ttl,
        ..BridgeToolOptions::default()
    };
    let bridge = site.bridge(
        busy(r#""title":"Ask""#),
        BridgeOptions {
            tools,
            ..of(Era::Legacy)
        },
    );
    let ann = Person::thinker("ann");
    send_as(&bridge, ann.call(), "callboard.tools.list", json!({}))
        .await
        .unwrap();
    let busy = ask_as(&bridge, ann.call(), json!({})).await.unwrap_err();
    assert_eq!(busy.kind, FailureKind::Overloaded);
    for _ in 0..2 {
        assert_eq!(
            text(&ask_as(&bridge, ann.call(), json!({})).await.unwrap()),
            "2"
        );
    }
    site.end().await;
}

/// Goal: a client of the legacy era gets no members of modern results, whoever set them. Method: a
/// modern server behind the bridge, listed and called by a client of each era.
#[tokio::test]
async fn legacy_clients_get_legacy_results() {
    let mut site = Site::new();
    let (endpoint, _) = site.asker();
    let bridge = site.bridge(endpoint, of(Era::Modern));
    let ann = Person::thinker("ann");
    for (era, has_members) in [(Era::Legacy, false), (Era::Modern, true)] {
        let client = site.beyond(bridge.clone(), era);
        let listed = send_as(&client, ann.call(), "callboard.tools.list", json!({})).await;
        let listed = listed.unwrap();
        assert!(listed["tools"][0].is_object(), "{listed}");
        for name in ["resultType", "ttlMs", "cacheScope"] {
            assert_eq!(listed.get(name).is_some(), has_members, "{era:?}: {listed}");
        }
    }
    site.end().await;
}
