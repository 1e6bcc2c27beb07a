//! Remote agents that send wrong, broken or repeated data or know only half of the protocol, played
//! by the test.

use std::time::Duration;

use callboard_a2a::outbound::{CALL_EVENTS_MAX, QUESTION_ROUNDS_MAX, RemoteOptions};
use callboard_message::{Answer, ElicitationAnswer, FailureKind};
use callboard_rpc::DecodeLimits;
use callboard_runtime::CallEvent;
use serde_json::{Value, json};

use crate::client_kit::{Hit, Played, joined, piece, quick, status, task, tool};
use crate::kit::soon;

pub const SAY: &str = "callboard.tools.call";

pub fn hello() -> Value {
    tool("message", json!({ "text": "hello" }))
}

pub fn text_of(result: &Value) -> Vec<&str> {
    result["content"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|block| block["text"].as_str())
        .collect()
}

/// Goal: a response that isn't A2A is reported as such, and nothing hangs. Method: each kind of
/// response to a message.
#[tokio::test]
async fn nonsense_is_told() {
    let wrong_id =
        json!({ "jsonrpc": "2.0", "id": 99, "result": task("t", "TASK_STATE_COMPLETED") });
    let no_id =
        json!({ "jsonrpc": "2.0", "id": null, "result": task("t", "TASK_STATE_COMPLETED") });
    let twice = r#"{"jsonrpc":"2.0","id":1,"id":2,"result":{}}"#;
    for (kind, body, why) in [
        ("text/html", "<html>Welcome</html>", "text/html"),
        ("application/json", "", "can't be read"),
        ("application/json", "{", "can't be read"),
        ("application/json", twice, "can't be read"),
        (
            "application/json",
            &*wrong_id.to_string(),
            "another request",
        ),
        ("application/json", &*no_id.to_string(), "`id`"),
        (
            "application/json",
            r#"{"jsonrpc":"2.0","id":1,"method":"x"}"#,
            "request",
        ),
        ("text/event-stream", "data: nonsense\n\n", "can't be read"),
        ("text/event-stream", "data: []\n\n", "isn't a JSON object"),
        ("text/event-stream", "", "broke"),
        ("text/event-stream", ": only a comment\n\n", "broke"),
    ] {
        let (mut peer, remote, asked) = Played::asked(quick(), true).await;
        peer.expect("SendStreamingMessage")
            .await
            .write(200, "", kind, body)
            .await;
        let failure = joined(asked).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::Unavailable, "{body}");
        assert!(failure.message.contains(why), "{body}: {}", failure.message);
        remote.stop().await;
    }
}

/// Goal: a server that never stops sending is abandoned. Method: one event too many; a body that is
/// too long; an endless line.
#[tokio::test]
async fn endless_answers_are_left() {
    let limits = DecodeLimits {
        body_bytes_max: 4_096,
        ..DecodeLimits::default()
    };
    let options = || RemoteOptions { limits, ..quick() };
    let begin = async || {
        let (mut peer, remote, asked) = Played::asked(options(), true).await;
        let hit = peer.expect("SendStreamingMessage").await;
        (peer, remote, asked, hit)
    };
    // Endless events, each of them new.
    let (peer, remote, asked, hit) = begin().await;
    let mut said = hit.stream().await;
    let talking = tokio::spawn(async move {
        let mut nth = 0;
        while said
            .say(status("t", "TASK_STATE_WORKING", &format!("{nth}")))
            .await
        {
            nth += 1;
        }
        nth
    });
    assert_eq!(
        joined(asked).await.unwrap_err().kind,
        FailureKind::Overloaded
    );
    assert!(joined(talking).await > CALL_EVENTS_MAX - 1);
    drop(peer);
    remote.stop().await;
    // An endless line.
    let (peer, remote, asked, hit) = begin().await;
    let mut said = hit.stream().await;
    said.raw("data: ").await;
    let talking = tokio::spawn(async move { while said.raw(&"x".repeat(1_024)).await {} });
    assert_eq!(
        joined(asked).await.unwrap_err().kind,
        FailureKind::Overloaded
    );
    joined(talking).await;
    drop(peer);
    remote.stop().await;
    // A body of the limit, and one byte more.
    for (over, kind) in [(0, FailureKind::Unavailable), (1, FailureKind::Overloaded)] {
        let (peer, remote, asked, hit) = begin().await;
        hit.write(200, "", "application/json", &" ".repeat(4_096 + over))
            .await;
        assert_eq!(joined(asked).await.unwrap_err().kind, kind);
        drop(peer);
        remote.stop().await;
    }
}

/// Goal: events of other tasks are ignored; a stream may begin with a status. Method: a stream with
/// both.
#[tokio::test]
async fn other_tasks_are_skipped() {
    let (mut peer, remote, asked) = Played::asked(quick(), true).await;
    let mut said = peer.expect("SendStreamingMessage").await.stream().await;
    said.say(status("mine", "TASK_STATE_WORKING", "at it"))
        .await;
    said.say(piece("theirs", "a", "not mine", false)).await;
    said.say(status("theirs", "TASK_STATE_FAILED", "not mine"))
        .await;
    said.say(task("theirs", "TASK_STATE_COMPLETED")).await;
    said.say(piece("mine", "a", "mine", false)).await;
    said.say(status("mine", "TASK_STATE_COMPLETED", "bye"))
        .await;
    let result = joined(asked).await.unwrap();
    assert_eq!(text_of(&result), ["mine", "bye"]);
    assert_eq!(result["_meta"]["a2a"]["taskId"], "mine");
    remote.stop().await;
}

/// Goal: an interrupted stream is resumed at its position, and repeated events count once. Method:
/// an agent with event ids and numbers that breaks off twice; then one without, whose task contains
/// what was missed.
#[tokio::test]
async fn broken_streams_are_taken_up() {
    let numbered = |mut event: Value, number: u64| {
        let inner = event.as_object_mut().unwrap().values_mut().next().unwrap();
        inner["metadata"] = json!({ "callboard/event": number });
        event
    };
    let (mut peer, remote, asked) = Played::asked(quick(), true).await;
    let say = async |hit: Hit, events: Vec<(u64, Value)>| {
        let mut said = hit.stream().await;
        for (number, event) in events {
            let event = json!({ "jsonrpc": "2.0", "id": said.request["id"], "result": numbered(event, number) });
            said.raw(&format!("id: {number}\ndata: {event}\n\n")).await;
        }
    };
    let hit = peer.expect("SendStreamingMessage").await;
    say(
        hit,
        vec![
            (1, task("t", "TASK_STATE_WORKING")),
            (2, piece("t", "a", "1", false)),
        ],
    )
    .await;
    let hit = peer.expect("SubscribeToTask").await;
    assert_eq!(
        (hit.header("last-event-id"), &hit.body["params"]["id"]),
        (Some("2"), &json!("t"))
    );
    say(
        hit,
        vec![
            (4, task("t", "TASK_STATE_WORKING")),
            (2, piece("t", "a", "1", false)),
            (3, piece("t", "a", "2", true)),
        ],
    )
    .await;
    let hit = peer.expect("SubscribeToTask").await;
    assert_eq!(hit.header("last-event-id"), Some("3"));
    say(
        hit,
        vec![
            (4, piece("t", "a", "3", true)),
            (5, status("t", "TASK_STATE_COMPLETED", "bye")),
        ],
    )
    .await;
    // The pieces are one text.
    assert_eq!(text_of(&joined(asked).await.unwrap()), ["123", "bye"]);

    let asked = remote.asking(SAY, hello());
    let mut said = peer.expect("SendStreamingMessage").await.stream().await;
    said.say(task("t", "TASK_STATE_WORKING")).await;
    said.say(piece("t", "a", "1", false)).await;
    drop(said);
    let whole = |state: &str| {
        let artifact = json!({ "artifactId": "a", "parts": [{ "text": "1" }, { "text": "2" }] });
        json!({ "id": "t", "contextId": "c", "status": { "state": state }, "artifacts": [artifact] })
    };
    peer.expect("GetTask")
        .await
        .result(whole("TASK_STATE_WORKING"))
        .await;
    peer.expect("SubscribeToTask")
        .await
        .error(-32004, "no")
        .await;
    peer.expect("GetTask")
        .await
        .result(whole("TASK_STATE_COMPLETED"))
        .await;
    // The missed events are requested once more after the end.
    assert_eq!(text_of(&joined(asked).await.unwrap()), ["12"]);
    remote.stop().await;
}

/// Goal: an agent that can't stream, whatever its card says, is used without streams; one that
/// returns a running task is polled until it ends. Method: both.
#[tokio::test]
async fn tasks_without_a_stream_are_looked_at() {
    let (mut peer, remote, asked) = Played::asked(quick(), true).await;
    peer.expect("SendStreamingMessage")
        .await
        .error(-32601, "no such method")
        .await;
    peer.expect("SendMessage")
        .await
        .result(task("t", "TASK_STATE_WORKING"))
        .await;
    // A temporary failure of a proxy isn't the end.
    peer.expect("GetTask").await.empty(503).await;
    for state in ["TASK_STATE_WORKING", "TASK_STATE_COMPLETED"] {
        let hit = peer.expect("GetTask").await;
        let mut task = task("t", state)["task"].take();
        task["artifacts"] = json!([{ "artifactId": "a", "parts": [{ "text": "made" }] }]);
        hit.result(task).await;
    }
    assert_eq!(text_of(&joined(asked).await.unwrap()), ["made"]);
    remote.stop().await;
}

/// Goal: an address that works only with a trailing slash is found, once, without following
/// redirects. Method: 404, then a redirect to another path, which must not be requested.
#[tokio::test]
async fn slashes_are_tried() {
    for status in [404, 405, 307, 308] {
        let (mut peer, remote, asked) = Played::asked(quick(), false).await;
        let hit = peer.get("/a2a").await;
        hit.write(
            status,
            "Location: http://127.0.0.1:9/elsewhere\r\n",
            "text/plain",
            "",
        )
        .await;
        peer.get("/a2a/")
            .await
            .result(task("t", "TASK_STATE_COMPLETED"))
            .await;
        joined(asked).await.unwrap();
        // It is remembered.
        let asked = remote.asking(SAY, hello());
        peer.get("/a2a/")
            .await
            .result(task("t", "TASK_STATE_COMPLETED"))
            .await;
        joined(asked).await.unwrap();
        remote.stop().await;
    }
}

/// Goal: if an agent's best interface fails, the next one is used, and that is remembered. Method:
/// each reason.
#[tokio::test]
async fn other_interfaces_are_tried() {
    for code in [-32009, -32601] {
        let (mut peer, remote) = Played::with(quick()).await;
        let mut card = peer.card("1.0", "/new", false);
        let old = json!({ "url": format!("{}/old", peer.url), "protocolBinding": "JSONRPC", "protocolVersion": "0.3" });
        card["supportedInterfaces"]
            .as_array_mut()
            .unwrap()
            .push(old);
        let asked = remote.asking(SAY, hello());
        peer.show(&card).await;
        let hit = peer.expect("SendMessage").await;
        assert_eq!(
            (hit.target.as_str(), hit.header("a2a-version")),
            ("/new", Some("1.0"))
        );
        hit.error(code, "no").await;
        let done = || {
            let status = json!({ "state": "completed" });
            json!({ "kind": "task", "id": "t", "contextId": "c", "status": status })
        };
        let hit = peer.expect("message/send").await;
        assert_eq!(
            (hit.target.as_str(), hit.header("a2a-version")),
            ("/old", Some("0.3"))
        );
        hit.result(done()).await;
        joined(asked).await.unwrap();
        let asked = remote.asking(SAY, hello());
        peer.expect("message/send").await.result(done()).await;
        joined(asked).await.unwrap();
        remote.stop().await;
    }
}

/// Goal: an agent can't ask without end, and declining cancels the task. Method: questions past the
/// limit; one that is declined.
#[tokio::test]
async fn questions_are_bounded() {
    let (mut peer, remote) = Played::with(quick()).await;
    let card = peer.card("1.0", "/a2a", false);
    let mut call = remote.call(SAY, hello());
    let answering = tokio::spawn(async move {
        let mut asked = 0;
        while let Some(event) = call.next().await {
            if let CallEvent::Question(pending) = event {
                asked += 1;
                pending.answer(Answer::Elicit(ElicitationAnswer::accept(
                    json!({ "text": "this" }),
                )));
            }
        }
        (asked, call.reply().await.unwrap().unwrap_err())
    });
    peer.show(&card).await;
    for nth in 0..=QUESTION_ROUNDS_MAX {
        let hit = peer.expect("SendMessage").await;
        let said = hit.body["params"]["message"].clone();
        if nth > 0 {
            assert_eq!(
                (&said["taskId"], &said["contextId"]),
                (&json!("t"), &json!("c"))
            );
            assert_eq!(said["parts"][0]["text"], "this");
        }
        let mut answer = task("t", "TASK_STATE_INPUT_REQUIRED");
        answer["task"]["status"]["message"] = json!({ "messageId": format!("q{nth}"), "role": "ROLE_AGENT", "parts": [{ "text": "Which?" }] });
        hit.result(answer).await;
    }
    let hit = peer.expect("CancelTask").await;
    assert_eq!(hit.body["params"]["id"], "t");
    hit.result(task("t", "TASK_STATE_CANCELED")["task"].clone())
        .await;
    let (asked, failure) = joined(answering).await;
    assert_eq!(
        (asked, failure.kind),
        (QUESTION_ROUNDS_MAX + 1, FailureKind::Rejected)
    );

    let mut call = remote.call(SAY, hello());
    let declining = tokio::spawn(async move {
        while let Some(event) = call.next().await {
            if let CallEvent::Question(pending) = event {
                pending.answer(Answer::Elicit(ElicitationAnswer::decline()));
            }
        }
        call.reply().await.unwrap().unwrap_err()
    });
    peer.expect("SendMessage")
        .await
        .result(task("t", "TASK_STATE_INPUT_REQUIRED"))
        .await;
    peer.expect("CancelTask")
        .await
        .result(task("t", "TASK_STATE_CANCELED")["task"].clone())
        .await;
    assert_eq!(joined(declining).await.kind, FailureKind::Rejected);
    remote.stop().await;
}

/// Goal: a call ends at its deadline, and the remote task is cancelled. Method: an agent that only
/// keeps the connection open.
#[tokio::test]
async fn silence_ends() {
    let (mut peer, remote, asked) = Played::asked(
        RemoteOptions {
            call_timeout: Duration::from_millis(300),
            ..quick()
        },
        true,
    )
    .await;
    let mut said = peer.expect("SendStreamingMessage").await.stream().await;
    said.say(task("t", "TASK_STATE_WORKING")).await;
    assert_eq!(joined(asked).await.unwrap_err().kind, FailureKind::TimedOut);
    let hit = soon(peer.expect("CancelTask")).await;
    hit.result(task("t", "TASK_STATE_CANCELED")["task"].clone())
        .await;
    remote.stop().await;
    assert!(peer.is_quiet());
}
