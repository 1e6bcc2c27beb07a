//! The OpenAPI description against the routes that exist.

use serde_json::Value;

use crate::kit::Served;

/// Collects every `$ref` in a value.
fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(target) if name == "$ref" => found.push(target.clone()),
                    member => references(member, found),
                }
            }
        }
        Value::Array(entries) => entries.iter().for_each(|entry| references(entry, found)),
        _ => {}
    }
}

/// Goal: every change of the description is visible in review. Method: a snapshot.
#[tokio::test]
async fn description() {
    let served = Served::start().await;
    let mut description = served.nobody().get("/api/openapi.json").await.json();
    description["info"]["version"] = "VERSION".into();
    insta::assert_json_snapshot!(description);
    served.stop().await;
}

/// Goal: all described routes exist and no other methods of their paths, all named schemas are
/// included, and nothing of the node is disclosed. Method: each path with each method, with a key.
#[tokio::test]
async fn routes_and_schemas() {
    let served = Served::start().await;
    let alice = served.agent("alice");
    let description = served.nobody().get("/api/openapi.json").await.json();
    let paths = description["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 13);
    for (path, methods) in paths {
        let path = path
            .replace("{agent_id}", "bob")
            .replace("{message_id}", "m-1");
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH"] {
            let is_described = methods.get(method.to_lowercase()).is_some();
            let reply = alice
                .request(method.parse().unwrap(), &path)
                .send()
                .await
                .unwrap();
            assert_eq!(
                reply.status() == 405,
                !is_described,
                "{method} {path}: {}",
                reply.status()
            );
        }
    }
    for nowhere in [
        "/api",
        "/api/",
        "/api/nowhere",
        "/api/messages/m-1/unread",
        "/api/agents/bob/end/x",
    ] {
        assert_eq!(alice.get(nowhere).await.status, 404, "{nowhere}");
    }
    let mut named = Vec::new();
    references(&description, &mut named);
    assert!(named.len() > 50);
    for target in named {
        let pointer = target.strip_prefix('#').unwrap();
        assert!(
            description.pointer(pointer).is_some_and(Value::is_object),
            "{target}"
        );
    }
    for (path, methods) in paths {
        for (method, described) in methods.as_object().unwrap() {
            let has_body = described.get("requestBody").is_some();
            assert!(!has_body || method == "post", "{path}");
            assert!(
                described["responses"].get("401").is_some() == (path != "/api/openapi.json"),
                "{path}"
            );
        }
    }
    assert!(!description.to_string().contains("127.0.0.1"));
    served.stop().await;
}
