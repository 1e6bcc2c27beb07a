//! Event sockets: visibility and order of events, and reasons for closing.

use std::time::Duration;

use callboard_mail::inbound::INCOMING_MESSAGES_MAX;
use callboard_message::mail::{DeliveryMethod, MailEvent, Priority};
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use crate::kit::{Served, SocketItem, soon};

/// Events of a message to several recipients.
pub fn broadcast(sender: &str) -> [MailEvent; 2] {
    let accepted = MailEvent::MessageAccepted {
        message_id: "m-1".into(),
        thread: "m-1".into(),
        sender_agent_id: sender.into(),
        recipient_count: 3,
        priority: Priority::Normal,
        topic: None,
    };
    let (sender_agent_id, message_preview) = (sender.into(), "First 100 chars...".into());
    [
        accepted,
        MailEvent::AgentBroadcast {
            sender_agent_id,
            recipient_count: 3,
            message_preview,
        },
    ]
}

/// Events of a message to one recipient.
pub fn direct(sender: &str, recipient: &str) -> [MailEvent; 2] {
    let accepted = MailEvent::MessageAccepted {
        message_id: "m-2".into(),
        thread: "m-1".into(),
        sender_agent_id: sender.into(),
        recipient_count: 1,
        priority: Priority::Urgent,
        topic: Some("builds".into()),
    };
    let (sender_agent_id, recipient_agent_id) = (sender.into(), recipient.into());
    let message_preview = "First 100 chars...".into();
    [
        accepted,
        MailEvent::AgentDirectMessage {
            sender_agent_id,
            recipient_agent_id,
            message_preview,
        },
    ]
}

fn frame(text: &str) -> SocketItem {
    SocketItem::Frame(text.to_owned())
}

/// Goal: each event is sent live and in order, in exactly the agreed frame. Method: one of each
/// type, compared byte for byte.
/// Rows: P-25.
#[tokio::test]
async fn exact_frames() {
    let served = Served::start().await;
    served.happen(broadcast("before"));
    let mut ears = served.agent("watcher").listen("").await.unwrap();
    served.happen(broadcast("agent-123"));
    served.happen(direct("agent-123", "agent-456"));
    let recipient_agent_ids = vec!["agent-456".to_owned()];
    let (message_id, sender_agent_id) = ("m-2".to_owned(), "agent-123".to_owned());
    let ids = (
        message_id.clone(),
        sender_agent_id.clone(),
        recipient_agent_ids.clone(),
    );
    served.happen([MailEvent::MessageDelivered {
        message_id,
        sender_agent_id,
        recipient_agent_ids,
    }]);
    let (message_id, sender_agent_id, recipient_agent_ids) = ids;
    served.happen([MailEvent::MessageRead {
        message_id,
        sender_agent_id,
        recipient_agent_ids,
    }]);
    served.happen([MailEvent::AgentJoined {
        agent_id: "agent-9".into(),
        way: DeliveryMethod::Tmux,
    }]);
    served.happen([MailEvent::AgentLeft {
        agent_id: "agent-9".into(),
        reason: "ended".into(),
    }]);
    for text in [
        r#"{"type":"message_accepted","message_id":"m-1","thread":"m-1","sender_agent_id":"agent-123","recipient_count":3,"priority":"normal"}"#,
        r#"{"type":"agent_broadcast","sender_agent_id":"agent-123","recipient_count":3,"message_preview":"First 100 chars..."}"#,
        r#"{"type":"message_accepted","message_id":"m-2","thread":"m-1","sender_agent_id":"agent-123","recipient_count":1,"priority":"urgent","topic":"builds"}"#,
        r#"{"type":"agent_direct_message","sender_agent_id":"agent-123","recipient_agent_id":"agent-456","message_preview":"First 100 chars..."}"#,
        r#"{"type":"message_delivered","message_id":"m-2","sender_agent_id":"agent-123","recipient_agent_ids":["agent-456"]}"#,
        r#"{"type":"message_read","message_id":"m-2","sender_agent_id":"agent-123","recipient_agent_ids":["agent-456"]}"#,
        r#"{"type":"agent_joined","agent_id":"agent-9","way":"tmux"}"#,
        r#"{"type":"agent_left","agent_id":"agent-9","reason":"ended"}"#,
    ] {
        assert_eq!(ears.next().await, frame(text));
    }
    served.stop().await;
}

/// Goal: a socket with a position gets the numbered events after it, then new ones; a position that
/// doesn't exist is 400. Method: 0, a number, `now`, the newest number and one above it, with and
/// without types.
#[tokio::test]
async fn places() {
    let served = Served::start().await;
    for n in 1..=200 {
        assert_eq!(served.happen(broadcast(&format!("agent-{n}"))), n);
    }
    let watcher = served.agent("watcher");
    let mut from_0 = watcher.listen("?after=0").await.unwrap();
    let mut from_150 = watcher
        .listen("?after=150&types=agent_broadcast")
        .await
        .unwrap();
    let mut from_now = watcher.listen("?after=now").await.unwrap();
    let mut from_last = watcher.listen("?after=200").await.unwrap();
    for after in ["201", "9007199254740991"] {
        assert_eq!(
            watcher.listen(&format!("?after={after}")).await.err(),
            Some(400)
        );
    }
    served.happen(broadcast("agent-201"));
    for n in 1..=201 {
        for kind in ["message_accepted", "agent_broadcast"] {
            let event = from_0.json().await;
            let told = (
                &event["sequence"],
                &event["event"]["type"],
                &event["event"]["sender_agent_id"],
            );
            assert_eq!(
                told,
                (&json!(n), &json!(kind), &json!(format!("agent-{n}")))
            );
        }
        if n > 150 {
            let event = from_150.json().await;
            assert_eq!(
                (&event["sequence"], &event["event"]["type"]),
                (&json!(n), &json!("agent_broadcast"))
            );
        }
    }
    for ears in [&mut from_now, &mut from_last] {
        assert_eq!(ears.json().await["sequence"], 201);
    }
    served.stop().await;
}

/// Goal: watchers see all events, others those that the mailroom shows them; sockets with the same
/// view share reads. Method: two agents and eight watchers.
#[tokio::test]
async fn who_sees_what() {
    let served = Served::start().await;
    let mut alice = served.agent("alice").listen("?after=0").await.unwrap();
    let mut bob = served.agent("bob").listen("?after=0").await.unwrap();
    let mut watchers = Vec::new();
    for _ in 0..8 {
        watchers.push(served.agent("watcher").listen("?after=0").await.unwrap());
    }
    for watcher in &mut watchers {
        // Each socket has read the earlier events before any new one.
        watcher.say(Message::Ping(Default::default())).await;
    }
    for n in 0..20 {
        served.happen(direct(if n % 2 == 0 { "alice" } else { "bob" }, "carol"));
    }
    for n in 0..20_u64 {
        let (mine, sender) = if n % 2 == 0 {
            (&mut alice, "alice")
        } else {
            (&mut bob, "bob")
        };
        for _ in 0..2 {
            for ears in [&mut *mine].into_iter().chain(&mut watchers) {
                let event = ears.json().await;
                assert_eq!(
                    (&event["sequence"], &event["event"]["sender_agent_id"]),
                    (&json!(n + 1), &json!(sender))
                );
            }
        }
    }
    // A handshake and a first read each; then one read for each event and view, not 200 for single
    // sockets. On a busy machine some read once more.
    assert!(
        served.room.reads() <= 10 + 10 + 3 * 20 + 50,
        "{}",
        served.room.reads()
    );
    served.stop().await;
}

/// Goal: messages of clients are limited in size and number. Method: at each limit, and one over.
#[tokio::test]
async fn what_clients_say() {
    let served = Served::start().await;
    let alice = served.agent("alice");
    let mut talks = alice.listen("?after=0").await.unwrap();
    for _ in 0..INCOMING_MESSAGES_MAX {
        talks.say(Message::text("x".repeat(1_024))).await;
    }
    served.happen(broadcast("alice"));
    assert_eq!(talks.json().await["sequence"], 1);
    talks.json().await;
    talks.say(Message::text("x")).await;
    assert_eq!(
        talks.next().await,
        SocketItem::Closed(1008, "too many messages: this socket reads none".into())
    );
    for large in [
        Message::text("x".repeat(1_025)),
        Message::binary(vec![0; 1_025]),
    ] {
        let mut shouts = alice.listen("").await.unwrap();
        shouts.say(large).await;
        assert_eq!(
            shouts.next().await,
            SocketItem::Closed(1009, "the frame is too large".into())
        );
    }
    for declared in [1_025, 1 << 40] {
        let mut boasts = alice.listen("").await.unwrap();
        boasts
            .raw(
                &[
                    &[0x82, 0x80 | 127][..],
                    &u64::to_be_bytes(declared),
                    &[0; 4],
                ]
                .concat(),
            )
            .await;
        assert_eq!(
            boasts.next().await,
            SocketItem::Closed(1009, "the frame is too large".into()),
            "{declared}"
        );
        assert_eq!(boasts.next().await, SocketItem::Gone);
    }
    let mut leaves = alice.listen("").await.unwrap();
    leaves.say(Message::Close(None)).await;
    assert!(matches!(
        leaves.next().await,
        SocketItem::Gone | SocketItem::Closed(..)
    ));
    served.stop().await;
}

/// Goal: the number of sockets is limited, and a closed one releases its place. Method: the limit,
/// one more, one less.
#[tokio::test]
async fn sockets_are_bounded() {
    let served = Served::with(|options| options.sockets_max = 2).await;
    let alice = served.agent("alice");
    let (mut first, _second) = (
        alice.listen("").await.unwrap(),
        alice.listen("").await.unwrap(),
    );
    assert_eq!(alice.listen("").await.err(), Some(503));
    assert_eq!(alice.get("/api/agents").await.status, 200, "requests go on");
    first.say(Message::Close(None)).await;
    while first.next().await != SocketItem::Gone {}
    let again = async {
        loop {
            match alice.listen("").await {
                Ok(ears) => return ears,
                Err(status) => assert_eq!(status, 503),
            }
        }
    };
    soon(again).await;
    let plain = alice.get("/api/events").await;
    assert_eq!((plain.status, plain.detail().is_empty()), (400, false));
    served.stop().await;
}

/// Goal: one agent can't hold all sockets, and one that closes makes room for others. Method: of
/// four, as many as one agent gets, one of another, one more of each; one closes, and a third agent
/// comes.
#[tokio::test]
async fn sockets_are_shared() {
    let served = Served::with(|options| options.sockets_max = 4).await;
    let agents = ["alice", "bob", "watcher"].map(|name| served.agent(name));
    let [alice, bob, watcher] = &agents;
    let mut open = Vec::new();
    let refused = loop {
        match alice.listen("").await {
            Ok(socket) => open.push(socket),
            Err(status) => break status,
        }
    };
    assert_eq!((open.len(), refused), (3, 429));
    let _bobs = bob.listen("").await.unwrap();
    assert_eq!(bob.listen("").await.err(), Some(503));
    let mut first = open.remove(0);
    first.say(Message::Close(None)).await;
    while first.next().await != SocketItem::Gone {}
    soon(async { while watcher.listen("").await.is_err() {} }).await;
    served.stop().await;
}

/// Goal: a socket closes with a reason if its client is gone, its key is revoked, its agent is
/// terminated or the server stops. Method: each.
#[tokio::test]
async fn how_sockets_end() {
    let served = Served::with(|options| options.ping_interval = Duration::from_millis(50)).await;
    let mut revoked = served.agent("bob").listen("").await.unwrap();
    served.names.revoke("bob");
    assert_eq!(
        revoked.next().await,
        SocketItem::Closed(1008, "the credential was revoked or has expired".into())
    );
    assert_eq!(served.agent("gone").listen("").await.err(), Some(403));
    // A client that answers pings stays; one that doesn't read them is dropped after three.
    let mut stays = served.agent("alice").listen("").await.unwrap();
    let silent = served.agent("alice").listen("").await.unwrap();
    let (mut answering, mut watching) =
        (std::pin::pin!(stays.next()), std::pin::pin!(ends(&silent)));
    tokio::select! {
        told = &mut answering => panic!("{told:?}"),
        () = &mut watching => {}
    }
    served.server.stop().await;
    assert_eq!(
        answering.await,
        SocketItem::Closed(1001, "the server stops".into())
    );
    assert_eq!(served.agent("alice").listen("").await.err(), Some(503));
    served.stop().await;
}

/// Waits for the end of the server's data, without reading it as a client.
async fn ends(ears: &crate::kit::EventSocketClient) {
    let mut seen = vec![0; 4_096];
    let mut last = None;
    loop {
        soon(ears.stream().readable()).await.unwrap();
        // A peek consumes nothing: an unchanged result means that no more data comes.
        let found = ears.stream().peek(&mut seen).await.unwrap();
        let closing = seen[..found].windows(2).any(|bytes| bytes[0] == 0x88);
        if closing || last == Some(0) {
            return;
        }
        last = Some(found);
        tokio::task::yield_now().await;
    }
}
