//! Calls of tools that are sent again, and results that are known already.

use std::time::Duration;

use callboard_mcp::bridge::{BridgeOptions, ToolOptions};
use callboard_mcp::outbound::Era;
use callboard_message::FailureKind;
use serde_json::json;

use crate::bridge_kit::{Person, Site, ask_as, child, of, send_as, text};

/// Its tool says `$says` of itself; it has too much to do for its first call, and counts the others.
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

fn busy(says: &str) -> callboard_mcp::outbound::Endpoint {
    child(&format!("says='{says}'\n{BUSY}"))
}

/// Goal: a call of a tool that changes nothing is sent again, and its result kept where the tool says so, for whoever asked.
/// Method: a server that is busy at first; the same call again, another one, and another's.
#[tokio::test]
async fn tools_that_change_nothing() {
    let site = Site::new();
    let says = r#""annotations":{"readOnlyHint":true},"_meta":{"callboard/cache":60}"#;
    let bridge = site.bridge(busy(says), of(Era::Legacy));
    let [ann, bob] = ["ann", "bob"].map(Person::thinker);
    send_as(&bridge, ann.call(), "callboard.tools.list", json!({}))
        .await
        .unwrap();
    for (person, arguments, answer) in [
        (&ann, json!({ "a": 1, "b": 2 }), "2"),
        (&ann, json!({ "b": 2, "a": 1 }), "2"),
        (&ann, json!({ "a": 1 }), "3"),
        // By a connection of his own.
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

/// Goal: what may change something is sent once, whatever the server says of its load; the operator may have results kept
/// all the same. Method: a busy server of a tool that says nothing of itself.
#[tokio::test]
async fn tools_that_may_change_something() {
    let site = Site::new();
    let cache = [("as*".to_owned(), Duration::from_secs(60))].into();
    let tools = ToolOptions {
        cache,
        ..ToolOptions::default()
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
