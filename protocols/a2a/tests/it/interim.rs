//! Agents that put their answer into messages of a working task and complete it without more.

use callboard_a2a::outbound::{ProtocolVersion, RemoteOptions};
use callboard_message::Progress;
use callboard_runtime::CallEvent;
use serde_json::{Value, json};

use crate::bad_peer::{SAY, hello, text_of};
use crate::client_kit::{Played, joined, piece, quick, status, task, tool};
use crate::kit::soon;

/// The three versions, each with the path of its card, its methods with and without streaming, and
/// the format of its results.
const VERSIONS: [(ProtocolVersion, &str, &str, &str); 3] = [
    (
        ProtocolVersion::V10,
        "1.0",
        "SendStreamingMessage",
        "SendMessage",
    ),
    (
        ProtocolVersion::V03,
        "0.3",
        "message/stream",
        "message/send",
    ),
    (
        ProtocolVersion::V01,
        "0.1",
        "tasks/sendSubscribe",
        "tasks/send",
    ),
];

fn message(version: ProtocolVersion, text: &str) -> Value {
    match version {
        ProtocolVersion::V10 => {
            json!({ "messageId": text, "role": "ROLE_AGENT", "parts": [{ "text": text }] })
        }
        ProtocolVersion::V03 => {
            json!({ "kind": "message", "messageId": text, "role": "agent", "parts": [{ "kind": "text", "text": text }] })
        }
        ProtocolVersion::V01 => {
            json!({ "role": "agent", "parts": [{ "type": "text", "text": text }] })
        }
    }
}

/// Returns a status event: working with a text, or completed without.
fn event(version: ProtocolVersion, id: &str, said: Option<&str>) -> Value {
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
        ProtocolVersion::V10 => {
            status["state"] = json!(format!("TASK_STATE_{}", state.to_uppercase()));
            json!({ "statusUpdate": { "taskId": id, "contextId": "c", "status": status } })
        }
        ProtocolVersion::V03 => json!({
            "kind": "status-update", "taskId": id, "contextId": "c", "status": status, "final": said.is_none(),
        }),
        ProtocolVersion::V01 => json!({ "id": id, "status": status, "final": said.is_none() }),
    }
}

/// Returns a completed task with this history and nothing else.
fn completed(version: ProtocolVersion, id: &str, history: &[Value]) -> Value {
    match version {
        ProtocolVersion::V10 => {
            let mut task = task(id, "TASK_STATE_COMPLETED");
            task["task"]["history"] = json!(history);
            task
        }
        ProtocolVersion::V03 => json!({
            "kind": "task", "id": id, "contextId": "c", "status": { "state": "completed" }, "history": history,
        }),
        ProtocolVersion::V01 => {
            json!({ "id": id, "status": { "state": "completed" }, "history": history })
        }
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

/// Returns the task's id, which the client assigns in 0.1.
fn id_of(body: &Value) -> String {
    body["params"]["id"].as_str().unwrap_or("t").to_owned()
}

/// Goal: an answer in messages of a working task is the reply, in order, and is reported as
/// progress as it comes, in every version. Method: two such messages on a stream that ends without
/// more.
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

/// Goal: what an agent keeps in the task is the answer if its stream has only states, as fasta2a's
/// does. Method: a stream that ends without more than the state, and the task beside it.
#[tokio::test]
async fn an_answer_beside_the_stream_is_found() {
    let (mut peer, remote, asked) = Played::asked(quick(), true).await;
    let mut said = peer.expect("SendStreamingMessage").await.stream().await;
    said.say(task("t", "TASK_STATE_SUBMITTED")).await;
    said.say(event(ProtocolVersion::V10, "t", None)).await;
    let mut ended = task("t", "TASK_STATE_COMPLETED")["task"].take();
    ended["artifacts"] = json!([{ "artifactId": "a", "parts": [{ "text": "THE ANSWER" }] }]);
    peer.expect("GetTask").await.result(ended).await;
    assert_eq!(text_of(&joined(asked).await.unwrap()), ["THE ANSWER"]);
    remote.stop().await;
}

/// Goal: the same without a stream, where only the history contains the answer. Method: a task that
/// is completed at once, in every version; one that is polled, with a message that came between two
/// polls.
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
        // Servers of 0.2, which clients of 0.3 meet, require it.
        let modes = &params["configuration"]["acceptedOutputModes"];
        assert_eq!(
            modes.is_array(),
            version == ProtocolVersion::V03,
            "{name}: {params}"
        );
        let mut question = message(version, "hello");
        question["role"] = json!(if version == ProtocolVersion::V10 {
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
    working["status"]["message"] = message(ProtocolVersion::V10, "seen");
    peer.expect("GetTask").await.result(working).await;
    peer.expect("GetTask")
        .await
        .result(task("t", "TASK_STATE_COMPLETED")["task"].clone())
        .await;
    let hit = peer.expect("GetTask").await;
    assert!(hit.body["params"]["historyLength"].as_u64().unwrap() > 0);
    let history = [
        message(ProtocolVersion::V10, "seen"),
        message(ProtocolVersion::V10, "missed"),
    ];
    hit.result(completed(ProtocolVersion::V10, "t", &history)["task"].clone())
        .await;
    assert_eq!(text_of(&joined(asked).await.unwrap()), ["seen", "missed"]);
    remote.stop().await;
}

/// Goal: if there are artifacts or a last message, earlier messages are only progress; a typed
/// message gets the text. Method: each end.
#[tokio::test]
async fn answers_are_not_doubled() {
    for (end, expect) in [
        (
            vec![
                piece("t", "a", "made", false),
                event(ProtocolVersion::V10, "t", None),
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
        said.say(event(ProtocolVersion::V10, "t", Some("at it")))
            .await;
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
    said.say(event(ProtocolVersion::V10, "t", Some("THE ANSWER")))
        .await;
    said.say(event(ProtocolVersion::V10, "t", None)).await;
    assert_eq!(joined(asked).await.unwrap(), json!("THE ANSWER"));
    remote.stop().await;
}

/// Goal: in 0.1 the user's message, which some agents repeat beside or in the status, isn't taken
/// for the answer. Method: events with the message in both places before the answer, on a stream; a
/// completed task with it and an artifact, without a stream.
#[tokio::test]
async fn the_users_words_are_no_answer() {
    let version = ProtocolVersion::V01;
    let user = json!({ "role": "user", "parts": [{ "type": "text", "text": "hello" }] });
    for streaming in [true, false] {
        let (mut peer, remote) = Played::with(RemoteOptions {
            versions: vec![version],
            ..quick()
        })
        .await;
        let asked = remote.asking(SAY, hello());
        let card = card(&peer, "0.1", streaming);
        peer.show(&card).await;
        if streaming {
            let hit = peer.expect("tasks/sendSubscribe").await;
            let id = id_of(&hit.body);
            let mut said = hit.stream().await;
            let working = json!({ "state": "working" });
            said.say(json!({ "id": id, "sessionId": "c", "status": working, "message": user }))
                .await;
            let repeated = json!({ "state": "working", "message": user });
            said.say(json!({ "id": id, "status": repeated, "final": false }))
                .await;
            let answer = message(version, "THE ANSWER");
            let done = json!({ "state": "completed", "message": answer });
            said.say(json!({ "id": id, "status": done, "message": user, "final": true }))
                .await;
        } else {
            let hit = peer.expect("tasks/send").await;
            let parts = json!([{ "type": "text", "text": "THE ANSWER" }]);
            let task = json!({
                "id": id_of(&hit.body), "status": { "state": "completed", "message": user },
                "artifacts": [{ "index": 0, "parts": parts }], "message": user,
            });
            hit.result(task).await;
        }
        assert_eq!(text_of(&joined(asked).await.unwrap()), ["THE ANSWER"]);
        remote.stop().await;
    }
}
