//! Server-side request forgery: the server never connects to forbidden addresses. A listener there
//! sees no connection.

use std::sync::Arc;
use std::time::Duration;

use callboard_a2a::inbound::A2aOptions;
use callboard_runtime::{MemoryAuditStore, Store};
use serde_json::{Value, json};

use crate::inside::INSIDE;
use crate::kit::{Peer, Served, given, said, serving, soon};
use crate::receiver::{Answers, Receiver};

async fn task(peer: &Peer) -> Value {
    let sent = peer
        .result(
            "SendMessage",
            json!({ "message": said("m", "hello", "echo") }),
        )
        .await;
    sent["task"]["id"].clone()
}

/// Creates a push configuration. Returns the code of the error; `null` if there is none.
async fn made(peer: &Peer, task: &Value, url: &str) -> Value {
    let config = json!({ "taskId": task, "url": url });
    peer.rpc("CreateTaskPushNotificationConfig", config).await["error"]["code"].take()
}

/// Goal: no spelling of an internal address is accepted. Method: each, over both schemes, on the
/// port of a listener, as a configuration of its own, of a message, and in the formats of older
/// versions.
#[tokio::test]
async fn no_spelling_leads_inside() {
    let served = Served::start().await;
    let victim = Receiver::start("127.0.0.1", &["200 OK"]).await;
    let peer = served.client();
    let task = task(&peer).await;
    let port = victim.address.port();
    for host in INSIDE {
        for scheme in ["http", "https"] {
            let url = format!("{scheme}://{host}:{port}/");
            assert_eq!(made(&peer, &task, &url).await, -32_602, "{url}");
            let params = json!({ "message": said("m", "hello", "echo"),
                "configuration": { "taskPushNotificationConfig": { "url": url } } });
            assert_eq!(peer.code("SendMessage", params).await, -32_602, "{url}");
            let old = json!({ "taskId": task, "pushNotificationConfig": { "url": url } });
            assert_eq!(
                peer.code("tasks/pushNotificationConfig/set", old).await,
                -32_602,
                "{url}"
            );
        }
    }
    for url in [
        "http://hook.example/",
        "ftp://hook.example/",
        "file:///etc/passwd",
        "javascript:1",
        "/hook",
        "hook",
    ] {
        assert_eq!(made(&peer, &task, url).await, -32_602, "{url}");
    }
    assert_eq!(victim.connections(), 0);
    served.stop().await;
}

fn with(lookup: Arc<Answers>, store: Store) -> impl FnOnce(&mut A2aOptions) {
    move |options| {
        options.push.resolver = Some(lookup);
        options.push.retry_delay = Duration::from_millis(1);
        options.tasks.store = Some(store);
    }
}

/// Goal: a host name is checked by its addresses when it is configured. Method: names with internal
/// addresses are rejected at once, one without an answer isn't.
#[tokio::test]
async fn names_that_lead_inside() {
    let victim = Receiver::start("127.0.0.1", &["200 OK"]).await;
    let url = format!("https://hook.example:{}/", victim.address.port());
    for (answer, expected) in [
        (Some("127.0.0.1"), json!(-32_602)),
        (Some("10.0.0.1 169.254.169.254"), json!(-32_602)),
        (Some("::ffff:10.0.0.1"), json!(-32_602)),
        (Some("93.184.216.34"), Value::Null),
        (None, Value::Null),
    ] {
        let (served, peer) = serving(with(Answers::new(&[answer]), Store::in_memory())).await;
        assert_eq!(
            made(&peer, &task(&peer).await, &url).await,
            expected,
            "{answer:?}"
        );
        served.stop().await;
    }
    assert_eq!(victim.connections(), 0);
}

/// Waits for the audit entry of a dropped event and returns its reason.
async fn dropped(audit: &MemoryAuditStore) -> String {
    soon(async {
        loop {
            let entries = audit.entries();
            if let Some(entry) = entries
                .iter()
                .find(|entry| entry.event == "a2a.push_dropped")
            {
                return entry.outcome.clone().unwrap_or_default().into_owned();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

/// Goal: a name whose address changes after the check leads nowhere. Method: a public address at
/// configuration, a local one at delivery.
#[tokio::test]
async fn a_name_that_flips() {
    let victim = Receiver::start("127.0.0.1", &["200 OK"]).await;
    let audit = Arc::new(MemoryAuditStore::default());
    let store = Store {
        audit: audit.clone(),
        ..Store::in_memory()
    };
    let lookup = Answers::new(&[Some("93.184.216.34"), Some("127.0.0.1")]);
    let served = Served::with(with(lookup, store)).await;
    let url = format!("https://flip.example:{}/", victim.address.port());
    let params = json!({ "message": given("m", json!({}), "book"),
        "configuration": { "taskPushNotificationConfig": { "url": url } } });
    served.client().result("SendMessage", params).await;
    assert_eq!(dropped(&audit).await, "not allowed");
    assert_eq!(victim.connections(), 0);
    served.stop().await;
}

/// Goal: redirects aren't followed. Method: an allowed receiver redirects to a forbidden address,
/// and to an allowed one.
#[tokio::test]
async fn redirects_are_not_followed() {
    for status in ["301 Moved", "302 Found", "307 Elsewhere", "308 Elsewhere"] {
        let victim = Receiver::start("127.0.0.2", &["200 OK"]).await;
        let answer = format!("{status}\r\nLocation: {}", victim.url());
        let mut receiver = Receiver::start("127.0.0.1", &[&answer]).await;
        let audit = Arc::new(MemoryAuditStore::default());
        let store = Store {
            audit: audit.clone(),
            ..Store::in_memory()
        };
        let served = Served::with(|options| {
            // The whole loopback network is allowed: the test is about the redirect, not the
            // address.
            options.push.allowed_networks = vec!["127.0.0.0/8".parse().unwrap()];
            options.tasks.store = Some(store);
        })
        .await;
        let params = json!({ "message": given("m", json!({}), "book"),
            "configuration": { "taskPushNotificationConfig": { "url": receiver.url() } } });
        served.client().result("SendMessage", params).await;
        receiver.post().await;
        assert_eq!(dropped(&audit).await, "redirected", "{status}");
        assert_eq!(victim.connections(), 0, "{status}");
        served.stop().await;
    }
}

/// Goal: `http` is accepted for the allowed networks only. Method: a network of one address.
#[tokio::test]
async fn http_stays_where_it_is_allowed() {
    let (served, peer) =
        serving(|options| options.push.allowed_networks = vec!["127.0.0.3/32".parse().unwrap()])
            .await;
    let task = task(&peer).await;
    for (url, expected) in [
        ("http://127.0.0.3:1/", Value::Null),
        ("https://127.0.0.3:1/", Value::Null),
        ("http://127.0.0.4:1/", json!(-32_602)),
        ("http://93.184.216.34:1/", json!(-32_602)),
        ("https://93.184.216.34:1/", Value::Null),
    ] {
        assert_eq!(made(&peer, &task, url).await, expected, "{url}");
    }
    served.stop().await;
}
