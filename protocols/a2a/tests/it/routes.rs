//! Paths, versions, media types and credentials of requests.

use callboard_a2a::inbound::NAMED_AGENT_PATH;
use callboard_a2a::wire::AgentExtension;
use reqwest::Method;
use serde_json::{Value, json};

use crate::kit::{named_keys, said, serving, soon};

fn echo() -> Value {
    json!({ "message": said("m-1", "hello", "echo") })
}

/// Goal: an agent is served at its path with and without the slash, at its name, at the base paths
/// of both (JSON-RPC only), and (0.3 over HTTP+JSON) at the root. Method: the same message to each;
/// then other paths.
#[tokio::test]
async fn every_address() {
    let (served, peer) = serving(|_| {}).await;
    served.name([("east", served.watched.spawn(&served.system))], |_| {});
    let named = peer.at(&NAMED_AGENT_PATH.replace("{name}", "east"));
    let bases = ["", "/", "/agents/east", "/agents/east/"].map(|path| peer.at(path));
    for peer in [
        &peer,
        &peer.at("/a2a/"),
        &named,
        &named.at("/agents/east/a2a/"),
    ]
    .into_iter()
    .chain(&bases)
    {
        assert_eq!(
            peer.result("SendMessage", echo()).await["task"]["status"]["state"],
            "TASK_STATE_COMPLETED"
        );
    }
    for peer in [&peer, &named] {
        let (status, answer) = peer.rest(Method::POST, "/message:send", Some(echo())).await;
        assert_eq!(
            (status, &answer["task"]["status"]["state"]),
            (200, &json!("TASK_STATE_COMPLETED")),
            "{answer}"
        );
    }
    let old = json!({ "request": { "messageId": "m", "role": "ROLE_USER", "content": [{ "text": "hello" }],
        "metadata": { "skill": "echo" } } });
    for peer in [&peer, &named, &peer.at("")] {
        let (status, answer) = peer
            .rest(Method::POST, "/v1/message:send", Some(old.clone()))
            .await;
        assert_eq!(
            (status, &answer["task"]["status"]["state"]),
            (200, &json!("TASK_STATE_COMPLETED")),
            "{answer}"
        );
    }
    let nowhere = [
        (&peer, "/nothing"),
        (&peer.at("/agents/west/a2a"), ""),
        (&peer.at(""), "/a2ab"),
        (&named, "/a/b/c"),
    ];
    for (peer, tail) in nowhere {
        assert_eq!(
            peer.rest(Method::POST, tail, Some(echo())).await.0,
            404,
            "{tail}"
        );
    }
    assert_eq!(
        peer.at("/agents/west")
            .rest(Method::POST, "", Some(echo()))
            .await
            .0,
        404
    );
    for base in bases {
        assert_eq!(
            base.rest(Method::GET, "", None).await.0,
            404,
            "nothing else is there"
        );
    }
    for (method, tail, allow) in [
        (Method::GET, "", "POST"),
        (Method::DELETE, "/", "POST"),
        (Method::PUT, "/message:send", "POST"),
        (Method::DELETE, "/tasks/t", "GET"),
        (Method::PATCH, "/tasks/t:subscribe", "GET, POST"),
    ] {
        let response = soon(peer.request(method, tail).send()).await.unwrap();
        assert_eq!(
            (response.status().as_u16(), &response.headers()["allow"]),
            (405, &allow.parse().unwrap()),
            "{tail}"
        );
    }
    served.named.set(Default::default());
    assert_eq!(named.rest(Method::POST, "", Some(echo())).await.0, 404);
    served.stop().await;
}

/// Goal: an unsupported version is rejected by name, in the header and in the query; otherwise the
/// method decides over JSON-RPC. Method: rows.
#[tokio::test]
async fn versions() {
    let (served, peer) = serving(|_| {}).await;
    for version in [
        "1.0", " 1.0 ", "1.0.1", "1", "v1.0", "0.3", "0.3.0", "0.2.6", "0.1", "",
    ] {
        let peer = peer.with("A2A-Version", version);
        assert!(
            peer.rpc("SendMessage", echo()).await["error"].is_null(),
            "{version}"
        );
        assert_eq!(
            peer.rest(Method::POST, "/message:send", Some(echo()))
                .await
                .0,
            200,
            "{version}"
        );
    }
    for version in [
        "2.0",
        "1.1",
        "0.4",
        "0",
        "x",
        "vv1.0",
        "1.0;0.3",
        "99999999999999999999.0",
    ] {
        let other = peer.with("A2A-Version", version);
        assert_eq!(
            other.code("SendMessage", echo()).await,
            -32_009,
            "{version}"
        );
        // 0.3 has no code for this error, but its clients don't name versions.
        assert_eq!(
            other.code("message/send", echo()).await,
            -32_009,
            "{version}"
        );
        let (status, answer) = other
            .rest(Method::POST, "/message:send", Some(echo()))
            .await;
        assert_eq!(
            (status, &answer["error"]["status"]),
            (400, &json!("FAILED_PRECONDITION")),
            "{answer}"
        );
        assert_eq!(
            answer["error"]["details"][0]["reason"], "VERSION_NOT_SUPPORTED",
            "{answer}"
        );
        let of_query = peer.at(&format!("/a2a?A2A-Version={version}"));
        assert_eq!(
            of_query.code("SendMessage", echo()).await,
            -32_009,
            "{version}"
        );
    }
    served.stop().await;
}

/// Goal: JSON is accepted under both media types, and returned over HTTP+JSON under A2A's unless only
/// the plain one is accepted. Method: rows.
#[tokio::test]
async fn types() {
    let (served, peer) = serving(|_| {}).await;
    for (sent, status) in [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("application/a2a+json", 200),
        ("text/plain", 415),
        ("application/json; charset=latin1", 415),
        ("application/xml", 415),
    ] {
        for tail in ["", "/message:send"] {
            let body = if tail.is_empty() { rpc(echo()) } else { echo() };
            let request = peer
                .request(Method::POST, tail)
                .header("Content-Type", sent)
                .body(body.to_string());
            let response = soon(request.send()).await.unwrap();
            assert_eq!(response.status(), status, "{sent} {tail}");
            let answer: Value =
                serde_json::from_slice(&soon(response.bytes()).await.unwrap()).unwrap();
            let details = if tail.is_empty() {
                &answer["error"]["data"]
            } else {
                &answer["error"]["details"]
            };
            let refused = status == 415;
            assert_eq!(
                details[0]["reason"] == "CONTENT_TYPE_NOT_SUPPORTED",
                refused,
                "{sent}: {answer}"
            );
            assert_eq!(
                answer["error"]["code"] == json!(if tail.is_empty() { -32_005 } else { 415 }),
                refused
            );
        }
    }
    for (accept, given) in [
        ("*/*", "application/a2a+json"),
        ("application/json", "application/json"),
        (
            "application/json, application/a2a+json",
            "application/a2a+json",
        ),
        ("application/a2a+json", "application/a2a+json"),
        ("application/a2a+json, */*;q=0.1", "application/a2a+json"),
    ] {
        let request = peer
            .request(Method::POST, "/message:send")
            .header("Accept", accept);
        let request = request
            .header("Content-Type", "application/json")
            .body(echo().to_string());
        let response = soon(request.send()).await.unwrap();
        assert_eq!(response.headers()["content-type"], given, "{accept}");
        assert_eq!(response.headers()["cache-control"], "no-store");
    }
    served.stop().await;
}

fn rpc(params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params })
}

/// Goal: a key is required; it is accepted in either header, one at a time. Method: rows, both
/// bindings.
#[tokio::test]
async fn credentials() {
    let (served, peer) = serving(|options| options.access = named_keys()).await;
    for (peer, status) in [
        (peer.key("alice"), 200),
        (peer.with("X-API-Key", "bob"), 200),
        (peer.clone(), 401),
        (peer.key("mallory"), 401),
        (peer.with("X-API-Key", "mallory"), 401),
        (peer.with("X-API-Key", ""), 400),
        (peer.with("Authorization", "Basic YWxpY2U6"), 400),
        (peer.key("alice").with("X-API-Key", "alice"), 400),
        (
            peer.with("X-API-Key", "alice").with("X-API-Key", "bob"),
            400,
        ),
    ] {
        for (tail, body) in [("", rpc(echo())), ("/message:send", echo())] {
            let response = peer.post(tail, body.to_string()).await;
            assert_eq!(response.status(), status, "{tail}");
            assert_eq!(
                response.headers().contains_key("www-authenticate"),
                status == 401
            );
        }
    }
    let (status, answer) = peer.rest(Method::GET, "/tasks", None).await;
    assert_eq!(
        (status, &answer["error"]["status"]),
        (401, &json!("UNAUTHENTICATED"))
    );
    served.stop().await;
}

/// Goal: a client that doesn't name a required extension is told which; other extensions are
/// optional. Method: rows.
#[tokio::test]
async fn required_extensions() {
    let extension = |uri: &str, required| AgentExtension {
        uri: uri.into(),
        required,
        ..Default::default()
    };
    let extensions = vec![
        extension("https://x.example/must", true),
        extension("https://x.example/may", false),
    ];
    let (served, peer) = serving(|options| options.extensions = extensions).await;
    assert_eq!(peer.code("SendMessage", echo()).await, -32_008);
    assert_eq!(
        peer.with("A2A-Extensions", "https://x.example/may")
            .code("SendMessage", echo())
            .await,
        -32_008
    );
    for (name, list) in [
        ("A2A-Extensions", "https://x.example/must"),
        (
            "a2a-extensions",
            "https://x.example/other, https://x.example/must",
        ),
        ("X-A2A-Extensions", "https://x.example/must"),
    ] {
        peer.with(name, list).result("SendMessage", echo()).await;
    }
    served.stop().await;
}
