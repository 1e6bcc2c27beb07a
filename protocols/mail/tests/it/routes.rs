//! Each route: the request to the mailroom, and the response.

use std::sync::Arc;

use callboard_message::mail::MailEvent;
use callboard_message::{Failure, FailureKind};
use callboard_runtime::{JournalError, Policy, PolicyRequest};
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::kit::Served;
use crate::room::{Room, view};

/// Returns the requests to the mailroom with only the members that are set.
fn asked(room: &Room) -> Vec<(&'static str, Value)> {
    let set = |body: Value| {
        let members = body.as_object().cloned().unwrap_or_default();
        Value::from_iter(members.into_iter().filter(|(_, value)| !value.is_null()))
    };
    room.asked()
        .into_iter()
        .map(|(name, body, _)| (name, set(body)))
        .collect()
}

/// Goal: the sending routes return exactly the agreed responses. Method: compared byte for byte.
/// Rows: P-4, P-11, P-12, P-13.
#[tokio::test]
async fn exact_answers() {
    let served = Served::start().await;
    let alice = served.agent("alice");
    let reply = alice
        .post(
            "/api/broadcast_message",
            r#"{"message":"Your message here"}"#,
        )
        .await;
    assert_eq!(reply.status, 200);
    assert_eq!(
        reply.text,
        r#"{"success":true,"recipient_count":3,"message":"Message broadcast to 3 agent(s)"}"#
    );
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.header("x-message-id"), Some("m-1"));
    assert_eq!(reply.header("location"), Some("/api/messages/m-1"));
    assert_eq!(
        asked(&served.room),
        [(
            "broadcast_message",
            json!({ "message": "Your message here" })
        )]
    );
    let direct = |id: &str| json!({ "recipient_agent_id": id, "message": "x" }).to_string();
    let reply = alice.post("/api/send_message", direct("agent-456")).await;
    assert_eq!(
        (reply.status, &*reply.text),
        (
            200,
            r#"{"success":true,"message":"Message sent to agent agent-45"}"#
        )
    );
    let reply = alice
        .post("/api/send_message", direct("87654321-0000"))
        .await;
    let text = r#"{"success":false,"message":"Failed to send message - recipient agent 87654321 may not exist or is terminated"}"#;
    assert_eq!((reply.status, &*reply.text), (200, text));
    assert_eq!(
        (reply.header("x-message-id"), reply.header("location")),
        (None, None)
    );
    served.stop().await;
}

/// Goal: clients of the agent that this mail was modelled on reach it at their own paths. Method: the
/// three paths, with the answers of the described ones; another method; no credentials.
#[tokio::test]
async fn other_paths() {
    let served = Served::start().await;
    let alice = served.agent("alice");
    for (path, body, name) in [
        (
            "/broadcast_message",
            json!({ "message": "x" }),
            "broadcast_message",
        ),
        (
            "/send_message",
            json!({ "recipient_agent_id": "bob", "message": "x" }),
            "send_message",
        ),
    ] {
        let reply = alice.post(path, body.to_string()).await;
        let described = alice.post(&format!("/api{path}"), body.to_string()).await;
        assert_eq!(
            (reply.status, &reply.text),
            (200, &described.text),
            "{path}"
        );
        assert_eq!(asked(&served.room), [(name, body.clone()), (name, body)]);
        assert_eq!(alice.get(path).await.status, 405, "{path}");
        let unknown = served.nobody().post(path, "{}").await;
        assert_eq!(unknown.status, 401, "{path}");
    }
    assert_eq!(served.nobody().get("/ws").await.status, 401);
    let mut events = served.agent("watcher").listen_at("/ws").await.unwrap();
    served.happen([MailEvent::AgentBroadcast {
        sender_agent_id: "bob".into(),
        recipient_count: 1,
        message_preview: "x".into(),
    }]);
    assert_eq!(events.json().await["sender_agent_id"], "bob");
    served.stop().await;
}

/// Goal: the full receipt is returned on request by each sending route. Method: `detail`, set and
/// unset.
/// Rows: X-22.
#[tokio::test]
async fn details() {
    let served = Served::start().await;
    let alice = served.agent("alice");
    for path in [
        "/api/broadcast_message",
        "/api/send_message",
        "/api/messages/m-9/reply",
    ] {
        let body = json!({ "message": "x" }).to_string();
        let whole = alice
            .post(&format!("{path}?detail=true"), body.clone())
            .await
            .json();
        assert_eq!(
            (&whole["message_id"], &whole["thread"], &whole["refused"]),
            (&json!("m-1"), &json!("t-1"), &json!(["full"]))
        );
        let brief = alice
            .post(&format!("{path}?detail=false"), body)
            .await
            .json();
        assert!(
            brief.get("message_id").is_none() && brief["success"] == true,
            "{brief}"
        );
    }
    served.stop().await;
}

/// Goal: all parameters reach the mailroom, under the caller's identity. Method: rows of an HTTP
/// request and the resulting request to the mailroom.
#[tokio::test]
async fn what_is_asked() {
    let served = Served::start().await;
    let alice = served.agent("alice");
    let send = json!({
        "message": "x", "recipient_agent_ids": ["bob", "carol"], "topic": "t", "priority": "urgent", "reply_to": "m-0",
        "idempotency_key": "k", "expires_in_s": 60, "sender_agent_id": "alice", "guidance": "STUCK",
    });
    let broadcast =
        json!({ "message": "x", "group": "phase:2", "topic": "t", "priority": "normal" });
    let reply =
        json!({ "message": "x", "to_all": true, "priority": "urgent", "idempotency_key": "k" });
    let replied = json!({ "message_id": "m-9", "message": "x", "to_all": true, "priority": "urgent", "idempotency_key": "k" });
    for (path, body, name, expected) in [
        ("/api/send_message", send.clone(), "send_message", send),
        (
            "/api/broadcast_message",
            broadcast.clone(),
            "broadcast_message",
            broadcast,
        ),
        ("/api/messages/m-9/reply", reply, "reply", replied),
        (
            "/api/messages/m-9/read",
            json!({}),
            "callboard.mail.mark",
            json!({ "message_id": "m-9", "state": "read" }),
        ),
        (
            "/api/agents/bob/end",
            json!({}),
            "callboard.mail.end",
            json!({ "agent_id": "bob", "back": false }),
        ),
        (
            "/api/agents/bob/back",
            json!({}),
            "callboard.mail.end",
            json!({ "agent_id": "bob", "back": true }),
        ),
    ] {
        let answer = alice.post(path, body.to_string()).await;
        assert_eq!(
            (answer.status, &answer.json()["success"]),
            (200, &json!(true)),
            "{path}"
        );
        assert_eq!(asked(&served.room), [(name, expected)], "{path}");
    }
    for path in ["/api/messages/m-9/read", "/api/agents/bob/end"] {
        assert_eq!(
            alice.post(path, "").await.status,
            200,
            "a body that says nothing may be none"
        );
    }
    served.room.asked();
    let all = "with=bob&from=bob&topic=a%20b&thread=m-1&text=caf%C3%A9&since=2026-01-01T00:00:00Z\
        &until=2026-02-01T00:00:00Z&state=read&after=9&limit=10";
    let page = alice.get(&format!("/api/messages?box=all&{all}")).await;
    let history = json!({
        "with": "bob", "from": "bob", "topic": "a b", "thread": "m-1", "text": "café", "direction": "all", "state": "read",
        "since": "2026-01-01T00:00:00Z", "until": "2026-02-01T00:00:00Z", "after": 9, "limit": 10,
    });
    let fetch = |ids: Value, receipts: bool| json!({ "message_ids": ids, "receipts": receipts });
    let fetched = ("callboard.mail.fetch", fetch(json!(["m-2", "m-1"]), false));
    assert_eq!(
        asked(&served.room),
        [("message_history", history), fetched.clone()]
    );
    assert_eq!(
        (
            page.json()["next"].as_u64(),
            page.json()["messages"][1]["message"].as_str()
        ),
        (Some(6), Some("hello"))
    );
    for (query, direction) in [("", "in"), ("?box=out", "out")] {
        assert_eq!(
            alice.get(&format!("/api/messages{query}")).await.status,
            200
        );
        assert_eq!(
            asked(&served.room),
            [
                ("message_history", json!({ "direction": direction })),
                fetched.clone()
            ]
        );
    }
    assert_eq!(
        alice.get("/api/messages?topic=none").await.text,
        r#"{"messages":[]}"#
    );
    served.room.asked();
    let one = alice.get("/api/messages/m-3?receipts=true").await.json();
    let mut expected = serde_json::to_value(view("m-3")).unwrap();
    expected["message"] = json!("hello");
    assert_eq!(one, expected);
    assert_eq!(
        asked(&served.room),
        [("callboard.mail.fetch", fetch(json!(["m-3"]), true))]
    );
    let logs = alice
        .get("/api/agent_logs?agent_id=alice&after=3&limit=9")
        .await
        .json();
    assert_eq!(logs["logs"][0]["details"]["sender_id"], "bob");
    assert_eq!(
        asked(&served.room),
        [(
            "callboard.mail.logs",
            json!({ "agent_id": "alice", "after": 3, "limit": 9 })
        )]
    );
    served.stop().await;
}

/// Goal: agents are listed by state and returned one by one; an unknown one is 404. Method: rows.
/// Rows: P-8.
#[tokio::test]
async fn agents() {
    let served = Served::start().await;
    let alice = served.agent("alice");
    let all = alice.get("/api/agents").await.json();
    assert_eq!(
        (&all["count"], &all["agents"][1]["agent_id"]),
        (&json!(2), &json!("bob"))
    );
    let away = alice.get("/api/agents?state=away").await.json();
    assert_eq!(
        (&away["count"], &away["agents"][0]["agent_id"]),
        (&json!(1), &json!("bob"))
    );
    assert_eq!(alice.get("/api/agents/bob").await.json()["state"], "away");
    for nobody in [
        "/api/agents/carol",
        "/api/agents/a%20b",
        "/api/agents/..%2Fbob",
        "/api/messages/nowhere",
    ] {
        let reply = alice.get(nobody).await;
        assert_eq!(
            (reply.status, reply.detail().is_empty()),
            (404, false),
            "{nobody}"
        );
    }
    served.stop().await;
}

/// Goal: the idempotency key can be in the header or the body, and must not differ. Method: rows.
#[tokio::test]
async fn idempotency_keys() {
    let served = Served::start().await;
    let alice = served.agent("alice");
    for (header, member, key) in [
        (None, None, Some(Value::Null)),
        (Some("a"), None, Some(json!("a"))),
        (None, Some("a"), Some(json!("a"))),
        (Some("a"), Some("a"), Some(json!("a"))),
        (Some("a"), Some("b"), None),
        (Some(" "), None, None),
    ] {
        let peer = header.map_or(alice.clone(), |key| alice.with("Idempotency-Key", key));
        let body = json!({ "message": "x", "idempotency_key": member }).to_string();
        let status = peer.post("/api/send_message", body).await.status;
        assert_eq!(
            status,
            if key.is_some() { 200 } else { 422 },
            "{header:?} {member:?}"
        );
        assert_eq!(
            served
                .room
                .asked()
                .pop()
                .map(|(_, body, _)| body["idempotency_key"].clone()),
            key
        );
    }
    let twice = alice
        .with("Idempotency-Key", "a")
        .with("Idempotency-Key", "a");
    assert_eq!(
        twice
            .post("/api/send_message", json!({ "message": "x" }).to_string())
            .await
            .status,
        422
    );
    served.stop().await;
}

/// Goal: a failure of the mailroom becomes the right status with its message, without internals of
/// the node. Method: each kind of failure; a store that is unavailable.
/// Rows: P-14.
#[tokio::test]
async fn failures() {
    let served = Served::start().await;
    let alice = served.agent("alice");
    let needs = "Bearer error=\"insufficient_scope\", scope=\"mail.admin\"";
    for (kind, data, status, told) in [
        (FailureKind::InvalidInput, Value::Null, 422, None),
        (FailureKind::Rejected, Value::Null, 422, None),
        (FailureKind::NotFound, Value::Null, 404, None),
        (FailureKind::Denied, Value::Null, 403, None),
        (
            FailureKind::Denied,
            json!({ "needed_scope": "mail.admin" }),
            403,
            Some(needs),
        ),
        (
            FailureKind::Denied,
            json!({ "needed_scope": "a\nb" }),
            403,
            None,
        ),
        (FailureKind::Blocked, Value::Null, 403, None),
        (
            FailureKind::Overloaded,
            json!({ "retry_after_s": 7 }),
            429,
            Some("7"),
        ),
        (
            FailureKind::Overloaded,
            json!({ "retry_after_s": 0 }),
            429,
            Some("1"),
        ),
        (FailureKind::Overloaded, Value::Null, 503, Some("5")),
        (FailureKind::Unavailable, Value::Null, 500, None),
        (FailureKind::Internal, Value::Null, 500, None),
        (FailureKind::TimedOut, Value::Null, 504, None),
    ] {
        served.room.refuse(Some(Failure {
            kind,
            message: "Error message here".into(),
            data: Some(data),
        }));
        let reply = alice
            .post("/api/broadcast_message", r#"{"message":"x"}"#)
            .await;
        let header = if status == 403 {
            "www-authenticate"
        } else {
            "retry-after"
        };
        assert_eq!(
            (reply.status, reply.header(header)),
            (status, told),
            "{kind}"
        );
        if status != 404 {
            assert_eq!(reply.text, r#"{"detail":"Error message here"}"#);
        }
    }
    let away = JournalError::Unavailable("10.0.0.3:5432 refused the connection".into());
    served.room.refuse(Some(away.into()));
    let reply = alice
        .post("/api/broadcast_message", r#"{"message":"x"}"#)
        .await;
    assert_eq!(
        (reply.status, &*reply.text),
        (
            500,
            r#"{"detail":"the store is unavailable and nothing was written, try again later"}"#
        )
    );
    served.stop().await;
}

/// Policy that blocks every message with a certain word, in both directions.
struct NoSecrets;

impl Policy for NoSecrets {
    fn check<'a>(&'a self, crossing: PolicyRequest<'a>) -> BoxFuture<'a, Result<(), Failure>> {
        let found =
            crossing.payload.get().contains("xyzzy") || crossing.message == "callboard.mail.events";
        let blocked = || Failure::new(FailureKind::Blocked, "blocked by guardrails");
        Box::pin(std::future::ready(if found {
            Err(blocked())
        } else {
            Ok(())
        }))
    }
}

/// Goal: a request that a policy blocks never reaches the mailroom, event sockets included (F1).
/// Method: a word in a message; a message type that is forbidden.
#[tokio::test]
async fn policies() {
    let served = Served::start().await;
    served.system.policy().push(NoSecrets);
    let alice = served.agent("alice");
    let reply = alice
        .post("/api/broadcast_message", r#"{"message":"say xyzzy"}"#)
        .await;
    assert_eq!(
        (reply.status, &*reply.text),
        (403, r#"{"detail":"blocked by guardrails"}"#)
    );
    assert_eq!(alice.listen("").await.err(), Some(403));
    assert!(served.room.asked().is_empty());
    assert_eq!(
        alice
            .post("/api/broadcast_message", r#"{"message":"hello"}"#)
            .await
            .status,
        200
    );
    served.stop().await;
}

/// Goal: another agent can replace the mailroom while the server runs. Method: a second one, which
/// gets the requests from then on.
#[tokio::test]
async fn replacing() {
    let served = Served::start().await;
    let other = Room::default();
    let made = Arc::new(other.clone());
    served
        .server
        .replace_agent(served.system.spawn_with(move || Room::clone(&made)));
    assert_eq!(served.agent("alice").get("/api/agents").await.status, 200);
    assert_eq!((served.room.asked().len(), other.asked().len()), (0, 1));
    served.stop().await;
}
