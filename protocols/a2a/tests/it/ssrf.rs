//! Nobody makes this server connect to a place that it isn't allowed to: a listener there sees no connection.

use std::sync::Arc;
use std::time::Duration;

use callboard_a2a::inbound::A2aOptions;
use callboard_runtime::{MemoryAudit, Store};
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

/// The code that a configuration is refused with; `null` where it isn't.
async fn made(peer: &Peer, task: &Value, url: &str) -> Value {
    let config = json!({ "taskId": task, "url": url });
    peer.rpc("CreateTaskPushNotificationConfig", config).await["error"]["code"].take()
}

/// Goal: no spelling of a place of this machine or network is taken. Method: each, over both schemes, on a victim's port, as
/// a configuration of its own, of a message, and in the words of older versions.
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
        options.push.lookup = Some(lookup);
        options.push.retry_after = Duration::from_millis(1);
        options.tasks.store = Some(store);
    }
}

/// Goal: a name is what it leads to, when it is said. Method: names that lead inside are refused at once, one without an
/// answer isn't.
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

/// Waits for the record of an event that was given up; why.
async fn dropped(audit: &MemoryAudit) -> String {
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

/// Goal: a name that leads elsewhere once it was judged leads nowhere. Method: public when it is said, this machine when it
/// is posted to.
#[tokio::test]
async fn a_name_that_flips() {
    let victim = Receiver::start("127.0.0.1", &["200 OK"]).await;
    let audit = Arc::new(MemoryAudit::default());
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

/// Goal: a receiver sends nobody on. Method: an allowed one redirects to a place that isn't, and to one that is.
#[tokio::test]
async fn redirects_are_not_followed() {
    for status in ["301 Moved", "302 Found", "307 Elsewhere", "308 Elsewhere"] {
        let victim = Receiver::start("127.0.0.2", &["200 OK"]).await;
        let answer = format!("{status}\r\nLocation: {}", victim.url());
        let mut receiver = Receiver::start("127.0.0.1", &[&answer]).await;
        let audit = Arc::new(MemoryAudit::default());
        let store = Store {
            audit: audit.clone(),
            ..Store::in_memory()
        };
        let served = Served::with(|options| {
            // All of this machine: it is the redirect that isn't followed, not the place.
            options.push.allow = vec!["127.0.0.0/8".parse().unwrap()];
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

/// Goal: `http` is for the networks that are allowed, and for no others. Method: a network of one address.
#[tokio::test]
async fn http_stays_where_it_is_allowed() {
    let (served, peer) =
        serving(|options| options.push.allow = vec!["127.0.0.3/32".parse().unwrap()]).await;
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
