//! Isolation between the tasks of different owners.

use callboard_a2a::Operation as Op;
use callboard_rpc::UnauthenticatedAccess;
use serde_json::json;

use crate::kit::{Peer, Seen, Served, Stream, named_keys, said, serving, soon};
use crate::tongue::{About, Tongue};

const OF_A_TASK: [Op; 8] = [
    Op::SendMessage,
    Op::SendStreamingMessage,
    Op::GetTask,
    Op::CancelTask,
    Op::SubscribeToTask,
    Op::CreateTaskPushNotificationConfig,
    Op::GetTaskPushNotificationConfig,
    Op::ListTaskPushNotificationConfigs,
];

async fn two() -> Served {
    Served::with(|options| {
        options.access = named_keys();
        options.push.allowed_networks = vec!["127.0.0.0/8".parse().unwrap()];
    })
    .await
}

/// Begins a task of alice that runs and has a push configuration.
async fn of_alice(served: &mut Served, alice: &Peer) -> String {
    let params = json!({ "message": said("m-a", "wait", "linger"), "configuration": { "returnImmediately": true } });
    let task = alice.result("SendMessage", params).await["task"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(served.watched.watch.event().await, Seen::Began);
    let about = About {
        task: &task,
        ..About::default()
    };
    Tongue::Rpc10
        .result(alice, Op::CreateTaskPushNotificationConfig, about)
        .await;
    task
}

/// Goal: another owner's task gets the same response as a missing one, to the byte. Method: every
/// operation that names a task, in every version and binding, with an id of another owner's and a
/// missing one of the same length.
#[tokio::test]
async fn anothers_task_is_no_task() {
    let mut served = two().await;
    let (alice, bob) = (served.client().key("alice"), served.client().key("bob"));
    let task = of_alice(&mut served, &alice).await;
    let nobodys = "00000000-0000-4000-8000-000000000000";
    assert_eq!(task.len(), nobodys.len());
    let mut tried = 0;
    for tongue in Tongue::ALL {
        for op in OF_A_TASK
            .into_iter()
            .chain([Op::DeleteTaskPushNotificationConfig])
            .filter(|op| tongue.has(*op))
        {
            // In 0.1 a message with a free id begins a task: an id in use is rejected.
            let begins =
                tongue == Tongue::Rpc01 && matches!(op, Op::SendMessage | Op::SendStreamingMessage);
            let theirs = tongue
                .ask(
                    &bob,
                    op,
                    About {
                        task: &task,
                        ..About::default()
                    },
                )
                .await;
            assert_eq!(
                tongue.code(&theirs),
                Some(-32_001),
                "{tongue:?} {op:?}: {theirs:?}"
            );
            if !begins {
                let none = tongue
                    .ask(
                        &bob,
                        op,
                        About {
                            task: nobodys,
                            ..About::default()
                        },
                    )
                    .await;
                assert_eq!(theirs.status, none.status);
                assert_eq!(
                    theirs.text.replace(&task, "ID"),
                    none.text.replace(nobodys, "ID"),
                    "{tongue:?} {op:?}"
                );
            }
            tried += 1;
        }
    }
    assert_eq!(tried, 9 * 4 + 7);
    let again = bob.with("Last-Event-ID", "0");
    assert_eq!(
        again.code("SubscribeToTask", json!({ "id": task })).await,
        -32_001
    );
    // None of these requests had an effect.
    let about = About {
        task: &task,
        ..About::default()
    };
    let kept = Tongue::Rpc10.result(&alice, Op::GetTask, about).await;
    assert_eq!(kept["status"]["state"], "TASK_STATE_WORKING");
    assert_eq!(kept["history"].as_array().map(Vec::len), Some(1), "{kept}");
    Tongue::Rpc10
        .result(&alice, Op::GetTaskPushNotificationConfig, about)
        .await;
    served.stop().await;
}

/// Goal: anonymous callers can list their tasks only if they count as one owner; a task can always
/// be read by its id. Method: a message, then the list, on both kinds of server.
#[tokio::test]
async fn lists_of_the_anonymous() {
    for is_one in [false, true] {
        let (served, peer) = serving(|options| {
            options.access = UnauthenticatedAccess::Anonymous.into();
            options.shares_anonymous_tasks = is_one;
        })
        .await;
        let sent = peer
            .result(
                "SendMessage",
                json!({ "message": said("m", "hello", "echo") }),
            )
            .await;
        let listed = peer.result("ListTasks", json!({})).await;
        assert_eq!(listed["totalSize"], u32::from(is_one), "{listed}");
        assert_eq!(
            listed["tasks"].get(0).map(|task| &task["id"]),
            is_one.then_some(&sent["task"]["id"])
        );
        peer.result("GetTask", json!({ "id": sent["task"]["id"] }))
            .await;
        served.stop().await;
    }
}

/// Goal: another owner's tasks don't show in a list, in a context of the same name, or by
/// reference; a stream contains only its own task. Method: bob asks for all, for alice's context,
/// and refers to alice's task.
#[tokio::test]
async fn lists_contexts_and_references() {
    let mut served = two().await;
    let (alice, bob) = (served.client().key("alice"), served.client().key("bob"));
    let task = of_alice(&mut served, &alice).await;
    let context = alice.result("GetTask", json!({ "id": task })).await["contextId"].clone();
    for params in [
        json!({}),
        json!({ "contextId": context }),
        json!({ "status": "TASK_STATE_WORKING" }),
    ] {
        let page = bob.result("ListTasks", params.clone()).await;
        assert_eq!(
            (&page["totalSize"], &page["tasks"]),
            (&json!(0), &json!([])),
            "{params}"
        );
        assert_eq!(alice.result("ListTasks", params).await["totalSize"], 1);
    }
    for reference in [task.as_str(), "00000000-0000-4000-8000-000000000000"] {
        let mut message = said("m-b", "mine", "echo");
        message["referenceTaskIds"] = json!([reference]);
        message["contextId"] = context.clone();
        let answer = bob
            .result("SendMessage", json!({ "message": message }))
            .await
            .to_string();
        assert!(
            answer.contains("COMPLETED") && !answer.contains("linger"),
            "{answer}"
        );
    }
    let mut message = said("m-s", "streamed", "echo");
    message["contextId"] = context.clone();
    let mut stream = bob
        .stream("SendStreamingMessage", json!({ "message": message }))
        .await;
    let events = json!(stream.results().await).to_string();
    assert!(
        events.contains("streamed") && !events.contains(&task),
        "{events}"
    );
    let page = bob
        .result("ListTasks", json!({ "contextId": context }))
        .await;
    assert_eq!(
        page["totalSize"], 3,
        "in the context of the same name are bob's own: {page}"
    );
    assert_eq!(
        alice
            .result("ListTasks", json!({ "contextId": context }))
            .await["totalSize"],
        1
    );
    served.stop().await;
}

/// Goal: only the owner can answer a task's question. Method: a task of alice's that asks; bob
/// answers it by its id, then alice does.
#[tokio::test]
async fn anothers_question() {
    let served = two().await;
    let (alice, bob) = (served.client().key("alice"), served.client().key("bob"));
    let asked = alice
        .result(
            "SendMessage",
            json!({ "message": said("m-1", "please", "book") }),
        )
        .await;
    let task = asked["task"]["id"].as_str().unwrap().to_owned();
    assert_eq!(
        asked["task"]["status"]["state"], "TASK_STATE_INPUT_REQUIRED",
        "{asked}"
    );
    let answer = |text: &str| {
        let mut message = said("m-2", text, "book");
        message["taskId"] = json!(task);
        json!({ "message": message })
    };
    assert_eq!(bob.code("SendMessage", answer("Bob")).await, -32_001);
    assert_eq!(
        bob.code("SendStreamingMessage", answer("Bob")).await,
        -32_001
    );
    let done = alice.result("SendMessage", answer("Alice")).await;
    assert_eq!(
        done["task"]["artifacts"][0]["parts"][0]["text"], "booked for Alice",
        "{done}"
    );
    served.stop().await;
}

/// Goal: open streams are limited for each principal and for the server, so that one principal
/// leaves room for others; beyond the limits there is an error that names them, and an ended stream
/// makes room. Method: the limit of 4, of which one principal alone has 3, and one more of each.
#[tokio::test]
async fn streams_are_bounded() {
    let mut served = Served::with(|options| {
        options.access = named_keys();
        options.streams_max = 4;
    })
    .await;
    let (alice, bob) = (served.client().key("alice"), served.client().key("bob"));
    let mut open = Vec::new();
    let refused = async |peer, status, message: &str| {
        for tongue in [Tongue::Rpc10, Tongue::Rest10, Tongue::Rpc03] {
            let response = soon(
                tongue
                    .request(peer, Op::SendStreamingMessage, About::default())
                    .send(),
            )
            .await
            .unwrap();
            assert_eq!(response.status(), status, "{tongue:?}");
            assert!(response.headers().contains_key("retry-after"));
            let text = soon(response.text()).await.unwrap();
            assert!(text.contains(message), "{text}");
        }
    };
    for (nth, peer) in [&alice, &alice, &alice, &bob].into_iter().enumerate() {
        if nth == 3 {
            let own = "3 of 4 are in use, 3 by this principal; the last 1 are for others (`principal_share_percent`)";
            refused(&alice, 429, own).await;
        }
        let message = said(&format!("m-{nth}"), "wait", "linger");
        let mut stream = peer
            .stream("SendStreamingMessage", json!({ "message": message }))
            .await;
        assert!(stream.next().await.is_some());
        assert_eq!(served.watched.watch.event().await, Seen::Began);
        open.push(stream);
    }
    refused(&bob, 503, "all 4 are in use").await;
    let about = About {
        message: "m-9",
        ..About::default()
    };
    open.clear();
    let again = async {
        loop {
            let response = Tongue::Rpc10
                .request(&alice, Op::SendStreamingMessage, about)
                .send()
                .await
                .unwrap();
            if response.status() == 200 {
                return Stream::of(response).results().await;
            }
            tokio::task::yield_now().await;
        }
    };
    assert!(!soon(again).await.is_empty());
    served.stop().await;
}
