//! Agents that answer in the messages of a task that is working, and complete it without more.

use callboard_a2a::outbound::{RemoteOptions, Version};
use callboard_message::Progress;
use callboard_runtime::CallEvent;
use serde_json::{Value, json};

use crate::bad_peer::{SAY, hello, text_of};
use crate::client_kit::{Played, joined, piece, quick, status, task, tool};
use crate::kit::soon;

/// The three versions: a card, the methods that stream and that don't, and how a result is written.
const VERSIONS: [(Version, &str, &str, &str); 3] = [
    (Version::V10, "1.0", "SendStreamingMessage", "SendMessage"),
    (Version::V03, "0.3", "message/stream", "message/send"),
    (Version::V01, "0.1", "tasks/sendSubscribe", "tasks/send"),
];

fn message(version: Version, text: &str) -> Value {
    match version {
        Version::V10 => {
            json!({ "messageId": text, "role": "ROLE_AGENT", "parts": [{ "text": text }] })
        }
        Version::V03 => {
            json!({ "kind": "message", "messageId": text, "role": "agent", "parts": [{ "kind": "text", "text": text }] })
        }
        Version::V01 => json!({ "role": "agent", "parts": [{ "type": "text", "text": text }] }),
    }
}

/// A status event: working with words, or completed without.
fn event(version: Version, id: &str, said: Option<&str>) -> Value {
    let state = if said.is_some() {
        "working"
    } else {
        "completed"
    };
    let mut status = json!({ "state": state });
    if let Some(text) = said {
        status["message"] = message(version, text);
    }
    match version {
        Version::V10 => {
            status["state"] = json!(format!("TASK_STATE_{}", state.to_uppercase()));
            json!({ "statusUpdate": { "taskId": id, "contextId": "c", "status": status } })
        }
        Version::V03 => json!({
            "kind": "status-update", "taskId": id, "contextId": "c", "status": status, "final": said.is_none(),
        }),
        Version::V01 => json!({ "id": id, "status": status, "final": said.is_none() }),
    }
}

/// A completed task with this history and nothing else.
fn completed(version: Version, id: &str, history: &[Value]) -> Value {
    match version {
        Version::V10 => {
            let mut task = task(id, "TASK_STATE_COMPLETED");
            task["task"]["history"] = json!(history);
            task
        }
        Version::V03 => json!({
            "kind": "task", "id": id, "contextId": "c", "status": { "state": "completed" }, "history": history,
        }),
        Version::V01 => json!({ "id": id, "status": { "state": "completed" }, "history": history }),
    }
}

fn card(peer: &Played, version: &str, streaming: bool) -> Value {
    match version {
        "0.1" => json!({
            "name": "old", "url": format!("{}/a2a", peer.url), "version": "1",
            "capabilities": { "streaming": streaming }, "skills": [],
        }),
        "0.3" => json!({
            "name": "older", "url": format!("{}/a2a", peer.url), "version": "1", "protocolVersion": "0.3.0",
            "preferredTransport": "JSONRPC", "capabilities": { "streaming": streaming }, "skills": [],
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"], "description": "",
        }),
        version => peer.card(version, "/a2a", streaming),
    }
}

/// The task's id: the client's own in 0.1.
fn id_of(body: &Value) -> String {
    body["params"]["id"].as_str().unwrap_or("t").to_owned()
}

/// Goal: an answer in messages of a working task is the reply, in order, and progress as it comes; in every version. Method:
/// two such messages on a stream that ends without more.
#[tokio::test]
async fn streamed_answers_are_kept() {
    for (version, name, stream, _) in VERSIONS {
        let (mut peer, remote) = Played::with(RemoteOptions {
            versions: vec![version],
            ..quick()
        })
        .await;
        let mut call = remote.call(SAY, hello());
        let heard = tokio::spawn(async move {
            let mut progress = Vec::new();
            while let Some(event) = soon(call.next()).await {
                if let CallEvent::Progress(Progress {
                    message: Some(text),
                    ..
                }) = event
                {
                    progress.push(text);
                }
            }
            (progress, soon(call.reply()).await.unwrap().unwrap())
        });
        let card = card(&peer, name, true);
        peer.show(&card).await;
        let hit = peer.expect(stream).await;
        let id = id_of(&hit.body);
        let mut said = hit.stream().await;
        for words in [Some("THE ANSWER"), Some("and more"), None] {
            said.say(event(version, &id, words)).await;
        }
        let (progress, reply) = joined(heard).await;
        let result: Value = serde_json::from_str(reply.get()).unwrap();
        assert_eq!(
            text_of(&result),
            ["THE ANSWER", "and more"],
            "{name}: {result}"
        );
        assert_eq!(progress, ["THE ANSWER", "and more"], "{name}");
        remote.stop().await;
    }
}

/// Goal: the same without a stream, where history alone has the answer. Method: a task that is completed at once, in every
/// version; one that is looked at, with a message that nobody saw between two looks.
#[tokio::test]
async fn answers_in_the_history_are_kept() {
    for (version, name, _, send) in VERSIONS {
        let (mut peer, remote) = Played::with(RemoteOptions {
            versions: vec![version],
            ..quick()
        })
        .await;
        let asked = remote.asking(SAY, hello());
        let card = card(&peer, name, false);
        peer.show(&card).await;
        let hit = peer.expect(send).await;
        let params = &hit.body["params"];
        let limit = params["historyLength"]
            .as_u64()
            .or(params["configuration"]["historyLength"].as_u64());
        assert!(limit.is_some_and(|limit| limit > 0), "{name}: {params}");
        let mut question = message(version, "hello");
        question["role"] = json!(if version == Version::V10 {
            "ROLE_USER"
        } else {
            "user"
        });
        let id = id_of(&hit.body);
        let history = [question, message(version, "THE ANSWER")];
        hit.result(completed(version, &id, &history)).await;
        assert_eq!(
            text_of(&joined(asked).await.unwrap()),
            ["THE ANSWER"],
            "{name}"
        );
        remote.stop().await;
    }
    let (mut peer, remote, asked) = Played::asked(quick(), false).await;
    peer.expect("SendMessage")
        .await
        .result(task("t", "TASK_STATE_WORKING"))
        .await;
    let mut working = task("t", "TASK_STATE_WORKING")["task"].take();
    working["status"]["message"] = message(Version::V10, "seen");
    peer.expect("GetTask").await.result(working).await;
    peer.expect("GetTask")
        .await
        .result(task("t", "TASK_STATE_COMPLETED")["task"].clone())
        .await;
    let hit = peer.expect("GetTask").await;
    assert!(hit.body["params"]["historyLength"].as_u64().unwrap() > 0);
    let history = [
        message(Version::V10, "seen"),
        message(Version::V10, "missed"),
    ];
    hit.result(completed(Version::V10, "t", &history)["task"].clone())
        .await;
    assert_eq!(text_of(&joined(asked).await.unwrap()), ["seen", "missed"]);
    remote.stop().await;
}

/// Goal: where there are artifacts or a last message, what was said before is progress alone; a typed message gets the words.
/// Method: each end.
#[tokio::test]
async fn answers_are_not_doubled() {
    for (end, expect) in [
        (
            vec![
                piece("t", "a", "made", false),
                event(Version::V10, "t", None),
            ],
            json!(["made"]),
        ),
        (
            vec![status("t", "TASK_STATE_COMPLETED", "bye")],
            json!(["bye"]),
        ),
    ] {
        let (mut peer, remote, asked) = Played::asked(quick(), true).await;
        let mut said = peer.expect("SendStreamingMessage").await.stream().await;
        said.say(event(Version::V10, "t", Some("at it"))).await;
        for event in end {
            said.say(event).await;
        }
        assert_eq!(json!(text_of(&joined(asked).await.unwrap())), expect);
        remote.stop().await;
    }
    let (mut peer, remote) = Played::with(quick()).await;
    let asked = remote.asking("message", tool("message", json!({}))["arguments"].take());
    let card = peer.card("1.0", "/a2a", true);
    peer.show(&card).await;
    let mut said = peer.expect("SendStreamingMessage").await.stream().await;
    said.say(event(Version::V10, "t", Some("THE ANSWER"))).await;
    said.say(event(Version::V10, "t", None)).await;
    assert_eq!(joined(asked).await.unwrap(), json!("THE ANSWER"));
    remote.stop().await;
}
