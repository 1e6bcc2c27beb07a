//! Several agents behind one address, selected by the request's tenant.

use callboard_a2a::Operation as Op;
use reqwest::Method;
use serde_json::{Value, json};

use crate::kit::{Peer, Served, named_keys, said, serving};
use crate::tongue::{About, Tongue};

/// Starts a server with two more agents, `east` and `west`.
async fn two() -> (Served, Peer) {
    let (served, peer) = serving(|_| {}).await;
    served.name(
        ["east", "west"].map(|name| (name, served.watched.spawn(&served.system))),
        |_| {},
    );
    (served, peer)
}

fn send(tenant: &str) -> Value {
    json!({ "tenant": tenant, "message": said("m-1", "hello", "echo") })
}

async fn begun(peer: &Peer, tenant: &str) -> String {
    peer.result("SendMessage", send(tenant)).await["task"]["id"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Goal: a tenant, in the body or in the path, selects the agent of that name, and tasks belong to
/// one agent. Method: a task of one agent requested from every other.
#[tokio::test]
async fn a_tenant_is_an_agent() {
    let (served, peer) = two().await;
    let task = begun(&peer, "east").await;
    let found = peer
        .result("GetTask", json!({ "tenant": "east", "id": task }))
        .await;
    assert_eq!(found["id"], *task);
    let named = peer.at("/agents/east/a2a");
    assert_eq!(
        named.result("GetTask", json!({ "id": task })).await["id"],
        *task
    );
    assert_eq!(
        named
            .result("GetTask", json!({ "id": task, "tenant": "east" }))
            .await["id"],
        *task
    );
    for (method, tail, status) in [
        (Method::GET, format!("/east/tasks/{task}"), 200),
        (Method::GET, format!("/tasks/{task}?tenant=east"), 200),
        (Method::GET, format!("/east/tasks/{task}?tenant=east"), 200),
        (Method::GET, format!("/tasks/{task}"), 404),
        (Method::GET, format!("/west/tasks/{task}"), 404),
        (Method::POST, format!("/west/tasks/{task}:cancel"), 404),
    ] {
        let (found, answer) = peer.rest(method, &tail, None).await;
        assert_eq!(found, status, "{tail}: {answer}");
    }
    for (peer, tenant) in [
        (&peer, ""),
        (&peer, "west"),
        (&peer.at("/agents/west/a2a"), ""),
    ] {
        for method in ["GetTask", "CancelTask", "SubscribeToTask"] {
            assert_eq!(
                peer.code(method, json!({ "tenant": tenant, "id": task }))
                    .await,
                -32_001,
                "{method} {tenant}"
            );
        }
        let mut message = said("m-2", "more", "echo");
        message["taskId"] = json!(task);
        assert_eq!(
            peer.code(
                "SendMessage",
                json!({ "tenant": tenant, "message": message })
            )
            .await,
            -32_001
        );
        assert_eq!(
            peer.result("ListTasks", json!({ "tenant": tenant })).await["totalSize"],
            0
        );
    }
    assert_eq!(
        peer.result("ListTasks", json!({ "tenant": "east" })).await["totalSize"],
        1
    );
    served.stop().await;
}

/// Goal: an unknown tenant, or one that differs from the path's, is an invalid request. Method:
/// rows; all operations for an unknown one.
#[tokio::test]
async fn other_tenants() {
    let (served, peer) = two().await;
    for op in Op::ALL {
        let mut params = Tongue::Rpc10.params(
            op,
            About {
                task: "t",
                ..About::default()
            },
        );
        params["tenant"] = json!("north");
        assert_eq!(
            peer.code(&format!("{op:?}"), params).await,
            -32_602,
            "{op:?}"
        );
    }
    assert_eq!(
        peer.at("/agents/east/a2a")
            .code("SendMessage", send("west"))
            .await,
        -32_602
    );
    for (tail, tenant, status) in [
        ("/east/message:send", "", 200),
        ("/east/message:send", "east", 200),
        ("/east/message:send", "west", 400),
        ("/north/message:send", "", 400),
        ("/message:send", "north", 400),
    ] {
        let (found, answer) = peer.rest(Method::POST, tail, Some(send(tenant))).await;
        assert_eq!(found, status, "{tail} {tenant}: {answer}");
    }
    served.named.set(Default::default());
    assert_eq!(peer.code("SendMessage", send("east")).await, -32_602);
    served.stop().await;
}

/// Goal: access to an address isn't access to every agent behind it. Method: an open address,
/// before an agent that requires a key; over both bindings.
#[tokio::test]
async fn a_tenant_has_keys_of_its_own() {
    let (served, peer) = serving(|_| {}).await;
    served.name(
        [("closed", served.watched.spawn(&served.system))],
        |options| options.access = named_keys(),
    );
    peer.result("SendMessage", send("")).await;
    let body =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": send("closed") });
    assert_eq!(peer.post("", body.to_string()).await.status(), 401);
    assert_eq!(
        peer.rest(Method::POST, "/closed/message:send", Some(send("")))
            .await
            .0,
        401
    );
    assert_eq!(
        peer.at("/agents/closed/a2a")
            .key("alice")
            .result("ListTasks", json!({}))
            .await["totalSize"],
        0
    );
    served.stop().await;
}
