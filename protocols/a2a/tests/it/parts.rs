//! Messages through the server to a remote agent: their parts, metadata, extensions and references
//! arrive as they are, and the conversation goes on there.

use std::net::TcpListener;

use callboard_a2a::inbound::{A2aServer, ListenOptions};
use callboard_a2a::outbound::{ProtocolBinding, ProtocolVersion, RemoteA2aAgent};
use callboard_message::Failure;
use callboard_message::capabilities::CallTool;
use callboard_message::{Message as _, RawObject};
use callboard_runtime::{Policy, PolicyRequest, System};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::client_kit::{Hit, Played, Remote, joined, only, quick, tool};
use crate::everything::Watched;
use crate::kit::{Peer, Served, named_keys, options, said, soon};

/// A server of a remote agent that the test plays, and a client of it.
struct Front {
    served: Served,
    client: RemoteA2aAgent,
    peer: Peer,
    played: Played,
}

impl Front {
    /// Starts a server, with keys, of a played agent with these skills.
    async fn start() -> Self {
        let played = Played::start().await;
        let system = System::start(1).unwrap();
        let client = RemoteA2aAgent::new(played.url.parse().unwrap(), quick()).unwrap();
        let spawned = client.clone();
        let agent = system.spawn_with(move || spawned.clone());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut options = options(&listener);
        options.access = named_keys();
        let server = A2aServer::new(agent, options);
        let served = Served::serving(
            listener,
            system,
            Watched::new(),
            server,
            &ListenOptions::default(),
        );
        let peer = served.client().key("alice");
        Self {
            served,
            client,
            peer,
            played,
        }
    }

    /// Answers the request for the agent's card, which a first message causes.
    async fn show(&mut self, skills: Value) {
        let mut card = self.played.card("1.0", "/a2a", false);
        card["skills"] = skills;
        self.played.show(&card).await;
    }

    /// Sends a message in the background and returns its whole response.
    fn send(&self, peer: &Peer, message: Value) -> JoinHandle<Value> {
        self.send_with(peer, json!({ "message": message }))
    }

    fn send_with(&self, peer: &Peer, params: Value) -> JoinHandle<Value> {
        let peer = peer.with("A2A-Extensions", "urn:requested, https://e.example/a");
        tokio::spawn(async move { peer.rpc("SendMessage", params).await })
    }

    async fn arrived(&mut self) -> Hit {
        self.played.expect("SendMessage").await
    }

    async fn stop(self) {
        self.served.stop().await;
        soon(self.client.drained()).await;
    }
}

fn skill(id: &str) -> Value {
    json!({ "id": id, "name": id, "description": "does", "tags": [] })
}

fn message(id: &str, parts: Value) -> Value {
    json!({ "messageId": id, "role": "ROLE_USER", "parts": parts })
}

fn all_parts() -> Value {
    json!([
        { "text": "look" },
        { "data": { "n": 1.50 } },
        { "raw": "eA==", "mediaType": "application/x-odd", "filename": "x.bin" },
        { "data": [1, "two"] },
        { "data": 7 },
        { "data": null },
        { "url": "https://x.example/y", "mediaType": "text/csv" },
        { "text": "and compare", "metadata": { "m": 2 } },
    ])
}

fn done(id: &str, context: &str) -> Value {
    let artifact = json!({ "artifactId": "a", "parts": [{ "text": "seen" }] });
    json!({ "task": { "id": id, "contextId": context, "status": { "state": "TASK_STATE_COMPLETED" }, "artifacts": [artifact] } })
}

/// Goal: a message arrives with its parts, metadata and extensions as they are, whatever kinds and
/// number of parts it has, and its skill is named if it names one. Method: all kinds of parts, each
/// alone and all at once; an agent without skills, with one, and with two, of which one is named.
#[tokio::test]
async fn parts_arrive_as_they_are() {
    for (skills, named, told) in [
        (json!([]), None, None),
        (json!([skill("see")]), None, Some("see")),
        (json!([skill("see"), skill("hear")]), None, None),
        (
            json!([skill("see"), skill("hear")]),
            Some("hear"),
            Some("hear"),
        ),
    ] {
        let mut front = Front::start().await;
        let alone = all_parts().as_array().unwrap().clone();
        let cases = alone.iter().map(|part| json!([part])).chain([all_parts()]);
        for (nth, parts) in cases.enumerate() {
            let mut message = message(&format!("m{nth}"), parts.clone());
            message["metadata"] = json!({ "own": { "deep": [1] } });
            if let Some(named) = named {
                message["metadata"]["skill"] = json!(named);
            }
            message["extensions"] = json!(["https://e.example/a", "https://e.example/b"]);
            let params = json!({ "message": message, "metadata": { "beside": true } });
            let asked = front.send_with(&front.peer, params);
            if nth == 0 {
                front.show(skills.clone()).await;
            }
            let hit = front.arrived().await;
            let params = &hit.body["params"];
            let arrived = &params["message"];
            assert_eq!(arrived["parts"], parts, "{skills}");
            assert_eq!(arrived["messageId"], format!("m{nth}"));
            assert_eq!(arrived["metadata"]["own"], json!({ "deep": [1] }));
            assert_eq!(
                arrived["metadata"].get("skill").and_then(Value::as_str),
                told
            );
            assert_eq!(params["metadata"], json!({ "beside": true }));
            assert_eq!(arrived["extensions"], message["extensions"]);
            assert_eq!(
                hit.header("a2a-extensions"),
                Some("https://e.example/a, https://e.example/b, urn:requested")
            );
            hit.result(done("t", "c")).await;
            let answer = joined(asked).await;
            assert_eq!(
                answer["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED",
                "{answer}"
            );
        }
        front.stop().await;
    }
}

/// Goal: one conversation of a caller is one of the agent, other callers have others, and the ids of
/// the agent are shown and stand for the tasks that a message refers to. Method: turns in one
/// context by two callers; an agent that accepts the proposed id, chooses another, and refuses one.
#[tokio::test]
async fn conversations_go_on() {
    let mut front = Front::start().await;
    let (alice, bob) = (front.peer.clone(), front.served.client().key("bob"));
    let mut ids = Vec::<String>::new();
    let turn = |nth: usize, refers: &[String]| {
        let mut message = message(&format!("m{nth}"), json!([{ "text": nth.to_string() }]));
        message["contextId"] = json!("shared");
        message["referenceTaskIds"] = json!(refers);
        message
    };
    let mut seen = Vec::new();
    for (nth, (who, theirs)) in [
        (&alice, None),
        (&alice, None),
        (&bob, None),
        (&alice, Some("chosen")),
        (&alice, Some("chosen")),
        (&bob, None),
    ]
    .into_iter()
    .enumerate()
    {
        let asked = front.send(who, turn(nth, &ids));
        if nth == 0 {
            front.show(json!([])).await;
        }
        let hit = front.arrived().await;
        let sent = hit.body["params"]["message"].clone();
        let context = sent["contextId"].as_str().unwrap().to_owned();
        let context_there = theirs.map_or(context.clone(), str::to_owned);
        hit.result(done(&format!("t{nth}"), &context_there)).await;
        let answer = joined(asked).await["result"]["task"].clone();
        assert_eq!(answer["contextId"], "shared");
        let place = json!({ "taskId": format!("t{nth}"), "contextId": context_there });
        assert_eq!(answer["metadata"]["callboard/remote"], place, "{answer}");
        ids.push(answer["id"].as_str().unwrap().to_owned());
        seen.push((context, sent["referenceTaskIds"].clone()));
    }
    let contexts: Vec<_> = seen.iter().map(|(context, _)| &**context).collect();
    let (hers, his) = (contexts[0], contexts[2]);
    assert!(hers != his && hers != "shared" && his != "shared");
    assert_eq!(contexts, [hers, hers, his, hers, "chosen", his]);
    let refers: Vec<_> = seen.iter().map(|(_, refers)| refers.clone()).collect();
    assert_eq!(refers[1], json!(["t0"]));
    assert_eq!(refers[2], Value::Null, "tasks of another caller");
    assert_eq!(refers[3], json!(["t0", "t1"]));
    assert_eq!(refers[5], json!(["t2"]));

    // The agent no longer knows its own id.
    let asked = front.send(&alice, turn(6, &[]));
    let hit = front.arrived().await;
    assert_eq!(hit.body["params"]["message"]["contextId"], "chosen");
    hit.error(-32602, "unknown context").await;
    let hit = front.arrived().await;
    assert_eq!(hit.body["params"]["message"].get("contextId"), None);
    hit.result(done("t6", "anew")).await;
    joined(asked).await;
    let asked = front.send(&alice, turn(7, &[]));
    let hit = front.arrived().await;
    assert_eq!(hit.body["params"]["message"]["contextId"], "anew");
    // Another error isn't the id's fault, and after one repetition the error is told.
    hit.error(-32602, "no").await;
    let hit = front.arrived().await;
    hit.error(-32602, "no").await;
    let failed = joined(asked).await;
    assert_eq!(
        failed["result"]["task"]["status"]["state"], "TASK_STATE_FAILED",
        "{failed}"
    );
    let asked = front.send(&alice, turn(8, &[]));
    let hit = front.arrived().await;
    assert_eq!(hit.body["params"]["message"]["contextId"], "anew");
    hit.result(done("t8", "anew")).await;
    joined(asked).await;
    assert!(front.played.is_quiet());
    front.stop().await;
}

/// Goal: the ids of the agent that a caller names are sent as they are. Method: `_meta.a2a` and the
/// argument, in a conversation of its own.
#[tokio::test]
async fn named_conversations_stay_raw() {
    let (mut played, remote) = Played::with(quick()).await;
    let text = json!({ "text": "hi" });
    let meta = json!({ "a2a": { "contextId": "raw" } });
    let mut call = tool("message", text.clone());
    call["_meta"] = meta.clone();
    let said =
        json!({ "content": [{ "type": "text", "text": "hi" }], "context": "c", "_meta": meta });
    let argument = tool("message", json!({ "text": "hi", "contextId": "raw" }));
    for (nth, (name, payload)) in [
        ("callboard.tools.call", call),
        ("callboard.converse", said),
        ("callboard.tools.call", argument),
    ]
    .into_iter()
    .enumerate()
    {
        let asked = remote.asking(name, payload);
        if nth == 0 {
            let card = played.card("1.0", "/a2a", false);
            played.show(&card).await;
        }
        let hit = played.expect("SendMessage").await;
        let message = &hit.body["params"]["message"];
        assert_eq!(message["contextId"], "raw", "{nth}");
        assert_eq!(message["parts"], json!([text]));
        hit.result(done("t", "raw")).await;
        joined(asked).await.unwrap();
    }
    remote.stop().await;
}

/// Goal: agents of 0.3 get the extensions in their header, agents of 0.1 in none; what a header
/// can't hold is left out. Method: a message to each.
#[tokio::test]
async fn extensions_are_named_in_each_version() {
    for (version, name) in [
        (ProtocolVersion::V03, Some("x-a2a-extensions")),
        (ProtocolVersion::V01, None),
    ] {
        let mut played = Played::start().await;
        let remote = Remote::at(&played.url, only((version, ProtocolBinding::JsonRpc)));
        let said = json!({
            "content": [{ "type": "text", "text": "hi" }],
            "extensions": ["urn:e", "two words", "a,b", "", "urn:f"],
        });
        let asked = remote.asking("callboard.converse", said);
        let number = if version == ProtocolVersion::V03 {
            "0.3"
        } else {
            "0.1"
        };
        let card = played.card(number, "/a2a", false);
        played.show(&card).await;
        let hit = played.hit().await;
        for header in ["a2a-extensions", "x-a2a-extensions"] {
            let wanted = (Some(header) == name).then_some("urn:e, urn:f");
            assert_eq!(hit.header(header), wanted, "{number}");
        }
        hit.error(-32603, "enough").await;
        let _ = joined(asked).await;
        remote.stop().await;
    }
}

/// Goal: the answer to a remote agent's question arrives with its parts as they are. Method: a text
/// with a file and values; a value alone; a text alone; an answer in the format of a form.
#[tokio::test]
async fn answers_arrive_as_they_are() {
    for (nth, (parts, wanted)) in [
        (all_parts(), all_parts()),
        (json!([{ "data": [1] }]), json!([{ "data": [1] }])),
        (json!([{ "text": " yes " }]), json!([{ "text": " yes " }])),
        (
            json!([{ "data": { "action": "accept", "content": { "text": "Monday" } } }]),
            json!([{ "text": "Monday" }]),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let mut front = Front::start().await;
        let asked = front.send(&front.peer, message("m0", json!([{ "text": "book" }])));
        front.show(json!([])).await;
        let hit = front.arrived().await;
        let question =
            json!({ "messageId": "q", "role": "ROLE_AGENT", "parts": [{ "text": "Which day?" }] });
        let status = json!({ "state": "TASK_STATE_INPUT_REQUIRED", "message": question });
        hit.result(json!({ "task": { "id": "t", "contextId": "c", "status": status } }))
            .await;
        let paused = joined(asked).await["result"]["task"].clone();
        assert_eq!(
            paused["status"]["state"], "TASK_STATE_INPUT_REQUIRED",
            "{paused}"
        );
        let mut answer = message("m1", parts);
        answer["taskId"] = paused["id"].clone();
        answer["metadata"] = json!({ "own": nth });
        let asked = front.send(&front.peer, answer);
        let hit = front.arrived().await;
        let arrived = &hit.body["params"]["message"];
        assert_eq!(arrived["parts"], wanted);
        assert_eq!(
            (&arrived["taskId"], &arrived["contextId"]),
            (&json!("t"), &json!("c"))
        );
        assert_eq!(arrived["metadata"], json!({ "own": nth }));
        hit.result(done("t", "c")).await;
        let ended = joined(asked).await;
        assert_eq!(
            ended["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED",
            "{ended}"
        );
        front.stop().await;
    }
}

/// Goal: a file for a form without a field for it is refused, and the question stays open. Method: a
/// form of one text field, answered by text and file, then by text.
#[tokio::test]
async fn forms_refuse_files() {
    let served = Served::start().await;
    let peer = served.client();
    let first = json!({ "message": said("m0", "{}", "book") });
    let asked = peer.result("SendMessage", first).await["task"].clone();
    assert_eq!(asked["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    let file = json!({ "raw": "eA==", "mediaType": "image/png" });
    let answer = |id: &str, parts: Value| {
        let mut answer = message(id, parts);
        answer["taskId"] = asked["id"].clone();
        json!({ "message": answer })
    };
    let refused = answer("m1", json!([{ "text": "Ann" }, file]));
    assert_eq!(peer.code("SendMessage", refused).await, -32005);
    let given = answer("m2", json!([{ "text": "Ann" }]));
    let booked = peer.result("SendMessage", given).await["task"].clone();
    assert_eq!(
        booked["status"]["state"], "TASK_STATE_COMPLETED",
        "{booked}"
    );
    served.stop().await;
}

/// Policy that forbids the tool `see` wherever its name tells.
struct NotSee;

impl Policy for NotSee {
    fn check<'a>(&'a self, crossing: PolicyRequest<'a>) -> BoxFuture<'a, Result<(), Failure>> {
        let name = || RawObject::parse(crossing.payload).ok()?.text("name");
        let tool = match crossing.message {
            CallTool::NAME => name(),
            message => Some(message.to_owned()),
        };
        let allowed = match tool.as_deref() {
            Some("see") => Err(Failure::denied("not see")),
            _ => Ok(()),
        };
        Box::pin(std::future::ready(allowed))
    }
}

/// Goal: policies for a tool hold for messages that name it as a skill, in each way, and a skill that
/// isn't listed can't be named. Method: a policy that forbids one of two; each way; the other one.
#[tokio::test]
async fn policies_know_the_skill() {
    let mut front = Front::start().await;
    front.served.system.policy().push(NotSee);
    let named = |id: &str, skill: &str| said(id, "hi", skill);
    let asked = front.send(&front.peer, named("m0", "see"));
    front.show(json!([skill("see"), skill("hear")])).await;
    assert!(joined(asked).await["error"].is_object());
    let other_name = json!({
        "messageId": "m1", "role": "ROLE_USER", "parts": [{ "text": "hi" }], "metadata": { "skillId": "see" },
    });
    let call = message(
        "m2",
        json!([{ "data": { "skill": "see", "arguments": {} } }]),
    );
    for refused in [other_name, call, named("m3", "smell")] {
        let answer = front
            .peer
            .rpc("SendMessage", json!({ "message": refused }))
            .await;
        assert!(answer["error"].is_object(), "{answer}");
    }
    assert!(front.played.is_quiet());
    let asked = front.send(&front.peer, named("m4", "hear"));
    front.arrived().await.result(done("t", "c")).await;
    assert!(joined(asked).await["result"].is_object());
    front.stop().await;
}
