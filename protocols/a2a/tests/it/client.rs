//! Remote agents behave like local ones in every version and binding; callboard's own server plays
//! the remote agent.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use callboard_a2a::outbound::{
    A2aClientError, ProtocolVersion, PushInbox, RemoteAuth, RemoteOptions,
};
use callboard_a2a::wire::AgentInterface;
use callboard_message::{
    Answer, Artifact, Content, ElicitationAnswer, Failure, FailureKind, Principal, Progress,
    Question,
};
use callboard_runtime::{CallContext, CallEvent, Caller};
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::client_kit::{Played, Remote, WAYS, joined, only, quick, task, tool};
use crate::kit::{Add, Echo, Seen, Served, Sum, soon};
use crate::streams::{CUTS, Cutting};

async fn beside(served: &Served, options: RemoteOptions) -> Remote {
    Remote::at(&format!("http://{}/a2a", served.address), options)
}

/// Goal: a typed message to a remote agent looks like one to a local agent. Method: a text and an
/// object as typed replies, every way.
#[tokio::test]
async fn typed_messages_are_answered() {
    let served = Served::start().await;
    for way in WAYS {
        let remote = beside(&served, only(way)).await;
        let sum = soon(remote.agent.ask(Add { a: 2, b: 3 }))
            .await
            .unwrap_or_else(|error| panic!("{way:?}: {error}"));
        assert_eq!(sum, Sum { sum: 5 }, "{way:?}");
        // A text stays a text, even if it looks like a number.
        assert_eq!(
            soon(remote.agent.ask(Echo { text: "5".into() }))
                .await
                .unwrap(),
            "5",
            "{way:?}"
        );
        remote.stop().await;
    }
    served.stop().await;
}

/// Goal: skills are tools with the schemas of the agent's messages; their results have text, value
/// and task reference. Method: list, use and describe every way; a tool that doesn't exist.
#[tokio::test]
async fn skills_are_tools() {
    let served = Served::start().await;
    for way in WAYS {
        let remote = beside(&served, only(way)).await;
        let listed = remote.ask("callboard.tools.list", json!({})).await.unwrap();
        let tools = listed["tools"].as_array().unwrap();
        let add = tools
            .iter()
            .find(|tool| tool["name"] == "add")
            .unwrap_or_else(|| panic!("{way:?}: {listed}"));
        assert!(add["inputSchema"]["properties"]["a"].is_object(), "{way:?}");
        assert!(
            add["outputSchema"]["properties"]["sum"].is_object(),
            "{way:?}"
        );
        let result = remote
            .ask(
                "callboard.tools.call",
                tool("add", json!({ "a": 1, "b": 1 })),
            )
            .await
            .unwrap();
        assert_eq!(result["structuredContent"], json!({ "sum": 2 }), "{way:?}");
        assert_eq!(result["content"][0]["text"], r#"{"sum":2}"#, "{way:?}");
        let place = &result["_meta"]["a2a"];
        assert_eq!(place["state"], "completed", "{way:?}");
        assert!(
            place["taskId"].is_string() && place["contextId"].is_string(),
            "{way:?}"
        );
        let about = remote.ask("callboard.describe", json!({})).await.unwrap();
        assert_eq!(about["serverInfo"]["name"], "everything");
        let none = remote
            .ask("callboard.tools.call", tool("none", json!({})))
            .await
            .unwrap_err();
        assert_eq!(none.kind, FailureKind::NotFound);
        remote.stop().await;
    }
    served.stop().await;
}

/// Goal: a remote agent's question is answered by the caller, and the call continues. Method: a
/// form, every way.
#[tokio::test]
async fn questions_go_to_the_caller() {
    let served = Served::start().await;
    for way in WAYS {
        let remote = beside(&served, only(way)).await;
        let mut call = remote.call("book", json!({}));
        let mut asked = 0;
        while let Some(event) = soon(call.next()).await {
            let CallEvent::Question(pending) = event else {
                continue;
            };
            let Question::Elicit(form) = &pending.question else {
                panic!("{way:?}: no form")
            };
            assert_eq!(form.message(), "Which name?", "{way:?}");
            assert!(
                form.schema().unwrap()["properties"]["name"].is_object(),
                "{way:?}: its own form"
            );
            pending.answer(Answer::Elicit(ElicitationAnswer::accept(
                json!({ "name": "Ann" }),
            )));
            asked += 1;
        }
        let answer: Value =
            serde_json::from_str(soon(call.reply()).await.unwrap().unwrap().get()).unwrap();
        assert_eq!((answer, asked), (json!("booked for Ann"), 1), "{way:?}");
        remote.stop().await;
    }
    served.stop().await;
}

/// Goal: the failure for an unanswered question contains the ids to continue with; with `keep` the
/// task waits, else it is cancelled. Method: both, then the task's state.
#[tokio::test]
async fn unanswered_questions_can_wait() {
    let served = Served::start().await;
    let remote = beside(&served, only(WAYS[0])).await;
    for (keep, state) in [
        (true, "TASK_STATE_INPUT_REQUIRED"),
        (false, "TASK_STATE_CANCELED"),
    ] {
        let mut params = tool("book", json!({}));
        params["_meta"] = json!({ "a2a": { "keep": keep } });
        let failure = remote
            .ask("callboard.tools.call", params)
            .await
            .unwrap_err();
        assert_eq!(failure.kind, FailureKind::NoResponder);
        let id = failure.data.unwrap()["taskId"].clone();
        let mut found = Value::Null;
        for _ in 0..500 {
            found = served.client().result("GetTask", json!({ "id": id })).await["status"]["state"]
                .clone();
            if found == state {
                break;
            }
            tokio::task::yield_now().await;
        }
        assert_eq!(found, state);
    }
    remote.stop().await;
    served.stop().await;
}

/// Goal: progress and artifacts arrive before the reply, which contains all of them, pieces of a text
/// as one. Method: pieces every way that streams; their number.
#[tokio::test]
async fn artifacts_come_early() {
    let served = Served::start().await;
    for way in WAYS {
        let remote = beside(&served, only(way)).await;
        let mut call = remote.call(
            "callboard.tools.call",
            tool("pieces", json!({ "count": 5 })),
        );
        let mut early = Vec::new();
        while let Some(event) = soon(call.next()).await {
            if let CallEvent::Artifact(artifact) = event {
                early.extend(
                    artifact
                        .content()
                        .iter()
                        .filter_map(|block| block.as_text()),
                );
            }
        }
        let reply: Value =
            serde_json::from_str(soon(call.reply()).await.unwrap().unwrap().get()).unwrap();
        let texts: Vec<_> = reply["content"]
            .as_array()
            .unwrap()
            .iter()
            .map(|block| block["text"].clone())
            .collect();
        assert_eq!(texts[0], "12345", "{way:?}: {reply}");
        assert_eq!(&early[..5], ["1", "2", "3", "4", "5"], "{way:?}");
        remote.stop().await;
    }
    served.stop().await;
}

/// Goal: cancelling a call cancels the remote task. Method: cancelled every way; the agent sees it.
#[tokio::test]
async fn cancelled_calls_are_cancelled_there() {
    let mut served = Served::start().await;
    for way in WAYS {
        let remote = beside(&served, only(way)).await;
        let call = CallContext::new(Arc::new(Principal::local_operator()));
        let cancel = call.cancel.clone();
        let asked = remote.ask_in("linger", json!({}), call);
        assert_eq!(served.watched.watch.event().await, Seen::Began, "{way:?}");
        cancel.cancel();
        assert_eq!(
            joined(asked).await.unwrap_err().kind,
            FailureKind::Cancelled,
            "{way:?}"
        );
        assert_eq!(
            served.watched.watch.event().await,
            Seen::Cancelled,
            "{way:?}"
        );
        remote.stop().await;
    }
    served.stop().await;
}

/// Goal: failures keep their kind and message. Method: each kind that an agent fails with, as a
/// tool and typed, every way; arguments that don't fit.
#[tokio::test]
async fn failures_are_told() {
    let served = Served::start().await;
    for way in WAYS {
        let remote = beside(&served, only(way)).await;
        let mut states = Vec::new();
        for kind in ["rejected", "unavailable"] {
            let result = remote
                .ask(
                    "callboard.tools.call",
                    tool("fail", json!({ "kind": kind })),
                )
                .await
                .unwrap();
            // 0.1 has no state for rejected tasks: the message says it.
            let said = if way.0 == ProtocolVersion::V01 && kind == "rejected" {
                "Task rejected: as told"
            } else {
                "as told"
            };
            assert_eq!(
                (&result["isError"], &result["content"][0]["text"]),
                (&json!(true), &json!(said)),
                "{way:?}"
            );
            states.push(
                result["structuredContent"]["state"]
                    .as_str()
                    .unwrap()
                    .to_owned(),
            );
            let failure = remote
                .ask("fail", json!({ "kind": kind }))
                .await
                .unwrap_err();
            assert_eq!(
                (failure.kind, failure.message.as_str()),
                (FailureKind::Rejected, said),
                "{way:?}"
            );
        }
        let refused = if way.0 == ProtocolVersion::V01 {
            "failed"
        } else {
            "rejected"
        };
        assert_eq!(states, [refused, "failed"], "{way:?}");
        let wrong = remote
            .ask("callboard.tools.call", tool("add", json!({ "a": 1 })))
            .await
            .unwrap();
        assert_eq!(wrong["isError"], true, "{way:?}: {wrong}");
        remote.stop().await;
    }
    served.stop().await;
}

/// Goal: credentials are sent, and their absence is reported. Method: a server with keys, and each
/// way to send one.
#[tokio::test]
async fn keys_are_shown() {
    let served = Served::with(|options| options.access = crate::kit::named_keys()).await;
    let bearer = || RemoteAuth::Bearer("alice".into());
    let key = || RemoteAuth::ApiKey {
        header: "X-API-Key".into(),
        key: "alice".into(),
    };
    for (auth, kind) in [
        (bearer(), None),
        (key(), None),
        (RemoteAuth::None, Some(FailureKind::Denied)),
        (
            RemoteAuth::Bearer("mallory".into()),
            Some(FailureKind::Denied),
        ),
    ] {
        let shown = format!("{auth:?}");
        let remote = beside(
            &served,
            RemoteOptions {
                auth,
                ..RemoteOptions::default()
            },
        )
        .await;
        let answered = remote.ask("echo", json!({ "text": "hi" })).await;
        assert_eq!(
            answered.as_ref().err().map(|failure| failure.kind),
            kind,
            "{shown}: {answered:?}"
        );
        remote.stop().await;
    }
    served.stop().await;
}

/// Goal: a call's trace continues at a remote agent. Method: the requests that an agent gets during
/// a call.
#[tokio::test]
async fn traces_go_on() {
    let (mut peer, remote) = Played::with(quick()).await;
    let call = CallContext::new(Arc::new(Principal::local_operator()));
    let trace = format!("{:032x}", call.trace.trace_id());
    let asked = remote.ask_in(
        "callboard.tools.call",
        tool("message", json!({ "text": "hi" })),
        call,
    );
    let card = peer.card("1.0", "/a2a", false);
    peer.show(&card).await;
    let hit = peer.expect("SendMessage").await;
    assert_eq!(
        hit.header("traceparent")
            .and_then(|said| said.split('-').nth(1)),
        Some(&*trace)
    );
    hit.result(task("t", "TASK_STATE_COMPLETED")).await;
    joined(asked).await.unwrap();
    remote.stop().await;
}

/// Goal: a message for no skill arrives complete, in a conversation of its own, and a reply without a
/// task is a direct reply. Method: blocks, a key, a skill and metadata; an agent that replies with a
/// message.
#[tokio::test]
async fn conversations_arrive_whole() {
    let (mut peer, remote) = Played::with(quick()).await;
    let image = Content::image(b"x", "image/png");
    let said = json!({
        "content": [Content::text("look"), image], "key": "k1", "context": uuid::Uuid::new_v4().to_string(), "skill": "see", "metadata": { "m": 1 },
    });
    let asked = remote.asking("callboard.converse", said);
    let card = peer.card("1.0", "/a2a", false);
    peer.show(&card).await;
    let hit = peer.expect("SendMessage").await;
    let message = &hit.body["params"]["message"];
    assert_eq!(message["messageId"], "k1");
    let context = message["contextId"].as_str().unwrap();
    assert!(uuid::Uuid::try_parse(context).is_ok(), "{context}");
    assert_eq!(message["metadata"], json!({ "m": 1, "skill": "see" }));
    assert_eq!(
        message["parts"],
        json!([{ "text": "look" }, { "raw": "eA==", "mediaType": "image/png" }])
    );
    let answer = json!({ "messageId": "m", "role": "ROLE_AGENT", "parts": [{ "text": "a cat" }, { "data": { "n": 1 } }] });
    hit.result(json!({ "message": answer })).await;
    let result = joined(asked).await.unwrap();
    assert_eq!(
        (&result["content"][0]["text"], &result["structuredContent"]),
        (&json!("a cat"), &json!({ "n": 1 }))
    );
    assert_eq!(result["_meta"]["callboard/message"], true);
    remote.stop().await;
}

/// Goal: where both sides support it, a push notification triggers the next poll. Method: an agent
/// that pushes, and a client that would poll only after an hour.
#[tokio::test]
async fn pushes_are_reason_to_look() {
    let mut peer = Played::start().await;
    let inbox = PushInbox::new("https://here.example/a2a-push".parse().unwrap());
    let hour = Duration::from_secs(3_600);
    let options = RemoteOptions {
        push: Some(inbox.clone()),
        poll_interval: (hour, hour),
        ..RemoteOptions::default()
    };
    let remote = Remote::at(&peer.url, options);
    let mut card = peer.card("1.0", "/a2a", false);
    card["capabilities"]["pushNotifications"] = json!(true);
    let asked = remote.asking(
        "callboard.tools.call",
        tool("message", json!({ "text": "hi" })),
    );
    peer.show(&card).await;
    peer.expect("SendMessage")
        .await
        .result(task("t", "TASK_STATE_WORKING"))
        .await;
    let hit = peer.expect("CreateTaskPushNotificationConfig").await;
    let config = hit.body["params"].clone();
    assert_eq!(config["taskId"], "t");
    hit.result(config.clone()).await;
    peer.expect("GetTask")
        .await
        .result(task("t", "TASK_STATE_WORKING")["task"].clone())
        .await;
    let id = config["url"].as_str().unwrap().rsplit('/').next().unwrap();
    assert!(!inbox.deliver(id, Some("wrong")));
    assert!(inbox.deliver(id, config["token"].as_str()));
    for _ in 0..2 {
        // The second request gets the history, because there is no other answer.
        peer.expect("GetTask")
            .await
            .result(task("t", "TASK_STATE_COMPLETED")["task"].clone())
            .await;
    }
    joined(asked).await.unwrap();
    assert!(
        !inbox.deliver(id, config["token"].as_str()),
        "nobody waits any more"
    );
    remote.stop().await;
}

/// Caller that records the texts of artifacts.
#[derive(Default)]
struct ArtifactRecorder(Mutex<Vec<String>>);

impl Caller for ArtifactRecorder {
    fn progress(&self, _: Progress) {}

    fn artifact(&self, artifact: Artifact) {
        self.0.lock().unwrap().extend(
            artifact
                .content()
                .iter()
                .filter_map(|block| block.as_text()),
        );
    }

    fn ask(&self, _: Question) -> BoxFuture<'_, Result<Answer, Failure>> {
        Box::pin(async { Err(Failure::no_responder("nobody")) })
    }
}

/// Goal: a caller gets every event once, however often the connection is cut. Method: the proxy of
/// the server's test, which cuts 20 times, the first time in a response's head, before the task is
/// known: that call fails, because it is unknown whether the agent acted.
#[tokio::test]
async fn twenty_cuts_are_not_heard() {
    const PIECES: u32 = 200;
    let served = Served::start().await;
    let way = Cutting::before(served.address).await;
    let url = format!("http://{}/a2a", way.address);
    let interface = AgentInterface {
        url: url.clone(),
        protocol_binding: "JSONRPC".into(),
        protocol_version: "1.0".into(),
        ..AgentInterface::default()
    };
    let remote = Remote::at(
        &url,
        RemoteOptions {
            interface: Some(interface),
            ..quick()
        },
    );
    let ask = |caller: &Arc<ArtifactRecorder>| {
        let call =
            CallContext::new(Arc::new(Principal::local_operator())).with_caller(caller.clone());
        let said = json!({ "content": [json!({ "type": "text", "text": format!("{{\"count\":{PIECES}}}") })], "skill": "pieces" });
        remote.ask_in("callboard.converse", said, call)
    };
    let lost = joined(ask(&Arc::default())).await.unwrap_err();
    assert_eq!(lost.kind, FailureKind::Unavailable);
    let caller = Arc::<ArtifactRecorder>::default();
    let result = joined(ask(&caller)).await.unwrap();
    assert!(
        way.cut.load(SeqCst) >= CUTS,
        "cut {} times",
        way.cut.load(SeqCst)
    );
    let mut expected: Vec<String> = (1..=PIECES).map(|piece| piece.to_string()).collect();
    expected.push("done".into());
    assert_eq!(*caller.0.lock().unwrap(), expected);
    let texts: Vec<_> = result["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["text"].clone())
        .collect();
    let whole = expected[..expected.len() - 1].concat();
    assert_eq!(texts, [whole, "done".into()]);
    remote.stop().await;
    served.stop().await;
}

/// Goal: a remote agent gets the number of hops, and a call with too many isn't sent. Method: the
/// message of a call with five hops; one that has used up its hops.
#[tokio::test]
async fn hops_travel() {
    let (mut peer, remote) = Played::with(quick()).await;
    let call = |hops| CallContext {
        hops,
        ..CallContext::new(Arc::new(Principal::local_operator()))
    };
    let arguments = || tool("message", json!({ "text": "hello" }));
    let asked = remote.ask_in("callboard.tools.call", arguments(), call(5));
    let mut card = peer.card("1.0", "/a2a", false);
    card["skills"] = json!([]);
    peer.show(&card).await;
    let hit = peer.expect("SendMessage").await;
    assert_eq!(
        hit.body["params"]["message"]["metadata"]["callboard/hops"], 6,
        "{}",
        hit.body
    );
    hit.result(json!({ "task": task("t", "TASK_STATE_COMPLETED")["task"] }))
        .await;
    joined(asked).await.unwrap();
    let hops_max = call(0).hops_max;
    let refused = joined(remote.ask_in("callboard.tools.call", arguments(), call(hops_max)))
        .await
        .unwrap_err();
    assert_eq!(refused.kind, FailureKind::Rejected);
    remote.stop().await;
}

/// Goal: authenticated clients get the extended card, whose skills are tools too. Method: a server
/// with keys that has such a card; with a key and without.
#[tokio::test]
async fn the_known_see_more() {
    let served = Served::with(|options| {
        options.access = crate::kit::named_keys();
        options.extended_card = true;
    })
    .await;
    let remote = beside(
        &served,
        RemoteOptions {
            auth: RemoteAuth::Bearer("alice".into()),
            ..RemoteOptions::default()
        },
    )
    .await;
    let card = soon(remote.client.client().extended_card()).await.unwrap();
    assert!(card.skills.iter().any(|skill| skill.id == "add"));
    let kept = soon(remote.client.card()).await.unwrap();
    assert_eq!(*kept, card);
    remote.stop().await;
    let remote = beside(&served, RemoteOptions::default()).await;
    assert!(matches!(
        soon(remote.client.client().extended_card()).await,
        Err(A2aClientError::HttpStatus(401))
    ));
    assert!(soon(remote.client.card()).await.is_ok(), "the public one");
    remote.stop().await;
    served.stop().await;
}
