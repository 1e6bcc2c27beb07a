use std::time::Duration;

use callboard_runtime::testkit::eventually;
use serde_json::{Value, json};

use super::kit::{Peer, error_code, with_options, with_peer};
use crate::inbound::options::{InboundOptions, ModernOptions};

const SOON: Duration = Duration::from_secs(5);
const ID: &str = "io.modelcontextprotocol/subscriptionId";

async fn until_sent(peer: &Peer, count: usize) -> Vec<Value> {
    let mut sent = Vec::new();
    eventually("it was sent", SOON, || {
        sent.extend(peer.link.take());
        sent.len() >= count
    })
    .await;
    sent
}

/// Goal: the acknowledgement comes first, then the requested changes only, each with the
/// subscription's id; the server ends it with a result. Method: a filter of one list and one
/// resource, changes of all.
#[test]
fn a_subscriber_hears_what_it_asked_for() {
    with_peer(async |peer| {
        let wanted = json!({ "toolsListChanged": true, "resourcesListChanged": false, "resourceSubscriptions": ["test://a"] });
        let listening = peer.post("subscriptions/listen", json!({ "notifications": wanted }));
        let other = peer.other("b");
        let (ended, sent) = futures::join!(listening, async {
            let acknowledged = until_sent(&peer, 1).await;
            assert_eq!(
                acknowledged[0]["method"],
                "notifications/subscriptions/acknowledged"
            );
            let honoured =
                json!({ "toolsListChanged": true, "resourceSubscriptions": ["test://a"] });
            assert_eq!(acknowledged[0]["params"]["notifications"], honoured);
            assert_eq!(acknowledged[0]["params"]["_meta"][ID], "r1");
            other.call("touch", json!({})).await;
            let sent = until_sent(&peer, 2).await;
            peer.service.close();
            sent
        });
        let methods: Vec<_> = sent.iter().map(|m| m["method"].as_str().unwrap()).collect();
        assert_eq!(
            methods,
            [
                "notifications/tools/list_changed",
                "notifications/resources/updated"
            ]
        );
        assert!(sent.iter().all(|m| m["params"]["_meta"][ID] == "r1"));
        assert_eq!(sent[1]["params"]["uri"], "test://a");
        assert_eq!(peer.link.take(), Vec::<Value>::new());
        let (status, response) = ended;
        assert_eq!(
            (status, &response["result"]["resultType"]),
            (200, &json!("complete"))
        );
        assert_eq!(response["result"]["_meta"][ID], "r1");
    });
}

/// Goal: disconnecting ends the subscription, and the agent is no longer followed. Method:
/// listeners before and after.
#[test]
fn hanging_up_ends_it() {
    with_peer(async |peer| {
        let agents = || {
            peer.service
                .tasks
                .endpoint
                .adapter()
                .agent
                .system()
                .snapshot()
                .len()
        };
        let before = agents();
        let listening = peer.post("subscriptions/listen", json!({ "notifications": {} }));
        let ((_, response), ()) = futures::join!(listening, async {
            until_sent(&peer, 1).await;
            assert_eq!(agents(), before + 1);
            peer.hung_up.cancel();
        });
        assert_eq!(error_code(&response), -8);
        eventually("nobody follows", SOON, || agents() == before).await;
    });
}

/// Goal: subscriptions and their resources are limited; a filter must be valid. Method: limit and
/// limit + 1; wrong filters.
#[test]
fn subscriptions_are_bounded() {
    let modern = ModernOptions {
        subscriptions_max: 1,
        subscription_uris_max: 2,
        ..ModernOptions::default()
    };
    with_options(
        InboundOptions {
            modern,
            ..InboundOptions::default()
        },
        async |peer| {
            let uris =
                json!({ "notifications": { "resourceSubscriptions": ["test://a", "test://b"] } });
            let listening = peer.post("subscriptions/listen", uris);
            let other = peer.other("b");
            futures::join!(listening, async {
                until_sent(&peer, 1).await;
                let (_, response) = other
                    .post("subscriptions/listen", json!({ "notifications": {} }))
                    .await;
                assert_eq!(error_code(&response), -3);
                peer.hung_up.cancel();
            });
            for wrong in [
                json!({}),
                json!({ "notifications": [] }),
                json!({ "notifications": { "toolsListChanged": 1 } }),
                json!({ "notifications": { "resourceSubscriptions": "test://a" } }),
                json!({ "notifications": { "resourceSubscriptions": ["a", "b", "c"] } }),
            ] {
                assert_eq!(
                    error_code(&other.post("subscriptions/listen", wrong).await.1),
                    -32602
                );
            }
        },
    );
}
