use serde_json::{Value, json};

use super::kit::{error_code, with_peer};

fn with_meta(meta: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 7, "method": "server/discover", "params": { "_meta": meta } })
}

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// Goal: discovery is complete as the specification requires. Method: a snapshot.
#[test]
fn discovery() {
    with_peer(async |peer| {
        let (status, mut response) = peer.post("server/discover", json!({})).await;
        assert_eq!(status, 200);
        response["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["version"] =
            "[version]".into();
        insta::assert_json_snapshot!(response);
    });
}

/// Goal: each error of `_meta` has its code, status, id and data. Method: one row per error.
#[test]
fn what_a_request_must_say() {
    with_peer(async |peer| {
        let bare = json!({ "jsonrpc": "2.0", "id": 7, "method": "server/discover" });
        let empty = json!({ "jsonrpc": "2.0", "id": 7, "method": "server/discover", "params": {} });
        let listed =
            json!({ "jsonrpc": "2.0", "id": 7, "method": "server/discover", "params": [1] });
        for (request, code) in [
            (bare, -32602),
            (empty, -32602),
            (listed, -32602),
            (with_meta(json!(1)), -32602),
            (with_meta(json!({ CAPABILITIES: {} })), -32602),
            (with_meta(json!({ VERSION: 1, CAPABILITIES: {} })), -32602),
            (with_meta(json!({ VERSION: "2026-07-28" })), -32602),
            (
                with_meta(json!({ VERSION: "2026-07-28", CAPABILITIES: [] })),
                -32602,
            ),
            (
                with_meta(json!({ VERSION: "2026-07-28", CAPABILITIES: {}, "progressToken": {} })),
                -32602,
            ),
            (
                with_meta(
                    json!({ VERSION: "2026-07-28", CAPABILITIES: {}, "io.modelcontextprotocol/logLevel": "loud" }),
                ),
                -32602,
            ),
            (
                with_meta(json!({ VERSION: "2025-11-25", CAPABILITIES: {} })),
                -32022,
            ),
            (with_meta(json!({ VERSION: "v999.0.0" })), -32022),
        ] {
            let (status, response) = peer.send(&request).await;
            assert_eq!(
                (status, error_code(&response), &response["id"]),
                (400, code, &json!(7)),
                "{request}"
            );
            if code == -32022 {
                let version = &request["params"]["_meta"][VERSION];
                assert_eq!(
                    response["error"]["data"],
                    json!({ "supported": ["2026-07-28"], "requested": version })
                );
            }
        }
        let (status, _) = peer
            .send(&with_meta(
                json!({ VERSION: "2026-07-28", CAPABILITIES: {} }),
            ))
            .await;
        assert_eq!(status, 200, "clientInfo isn't required");
    });
}

/// Goal: methods removed in this era don't exist. Method: each method, and an unknown one.
#[test]
fn removed_methods_are_unknown() {
    with_peer(async |peer| {
        for method in [
            "initialize",
            "ping",
            "logging/setLevel",
            "resources/subscribe",
            "resources/unsubscribe",
            "unknown/method",
            "completion/complete",
        ] {
            let (status, response) = peer.post(method, json!({})).await;
            assert_eq!((status, error_code(&response)), (404, -32601), "{method}");
        }
    });
}

/// Goal: every result has its type and the server's name, cacheable ones their time; the agent's
/// own members stay. Method: one row per method.
#[test]
fn results_say_what_they_must() {
    with_peer(async |peer| {
        for (method, params, cache) in [
            ("tools/list", json!({}), Some((60_000, "private"))),
            ("prompts/list", json!({}), Some((60_000, "private"))),
            ("resources/list", json!({}), Some((7, "public"))),
            (
                "resources/templates/list",
                json!({}),
                Some((60_000, "private")),
            ),
            (
                "resources/read",
                json!({ "uri": "test://a" }),
                Some((0, "private")),
            ),
            (
                "tools/call",
                json!({ "name": "echo", "arguments": { "text": "a" } }),
                None,
            ),
        ] {
            let (status, response) = peer.post(method, params).await;
            let result = &response["result"];
            assert_eq!(
                (status, &result["resultType"]),
                (200, &json!("complete")),
                "{method}: {response}"
            );
            assert_eq!(
                result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
                "callboard"
            );
            let found = result["ttlMs"].as_u64().zip(result["cacheScope"].as_str());
            assert_eq!(found, cache, "{method}");
        }
        let (status, response) = peer
            .post("resources/read", json!({ "uri": "test://none" }))
            .await;
        assert_eq!((status, error_code(&response)), (200, -32602));
        assert_eq!(response["error"]["data"], json!({ "uri": "test://none" }));
        let (_, response) = peer.post("tools/list", json!({})).await;
        let tools = response["result"]["tools"].as_array().unwrap();
        assert!(
            !tools.is_empty() && tools.iter().all(|tool| tool["name"] != "misnamed"),
            "its header can't exist"
        );
    });
}

/// Goal: log messages come if requested, from the level on; progress with its token, increasing.
/// Method: a tool that sends both.
#[test]
fn lines_and_progress_come_when_asked_for() {
    with_peer(async |peer| {
        peer.call("tell", json!({})).await;
        assert_eq!(peer.link.take(), Vec::<Value>::new());
        let meta = json!({ "progressToken": 1.5, "io.modelcontextprotocol/logLevel": "warning" });
        peer.call("tell", json!({ "_meta": meta })).await;
        let sent = peer.link.take();
        let progress: Vec<_> = sent
            .iter()
            .filter(|m| m["method"] == "notifications/progress")
            .collect();
        let told: Vec<_> = progress
            .iter()
            .map(|m| m["params"]["progress"].as_i64().unwrap())
            .collect();
        assert_eq!(told, [0, 50, 100]);
        assert!(
            progress
                .iter()
                .all(|m| m["params"]["progressToken"] == json!(1.5))
        );
        let lines = sent
            .iter()
            .filter(|m| m["method"] == "notifications/message");
        assert_eq!(
            lines
                .map(|m| m["params"]["level"].as_str().unwrap())
                .collect::<Vec<_>>(),
            ["warning", "error"]
        );
    });
}
