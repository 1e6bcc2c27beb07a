//! Every operation in every version and binding.

use std::time::Duration;

use callboard_a2a::Operation as Op;
use serde_json::{Value, json};

use crate::kit::{Peer, Seen, Served, Stream, serving, soon};
use crate::tongue::{About, HOOK, Reply, Tongue};

/// Returns the state of a task in 1.0's format, without the prefix.
fn state(task: &Value) -> String {
    let written = task["status"]["state"]
        .as_str()
        .unwrap_or_else(|| panic!("{task}"));
    written
        .trim_start_matches("TASK_STATE_")
        .to_ascii_uppercase()
        .replace('-', "_")
        .replace("CANCELLED", "CANCELED")
}

/// Returns the texts of a task's artifacts.
fn texts(task: &Value) -> Vec<&str> {
    let artifacts = task["artifacts"].as_array().into_iter().flatten();
    artifacts
        .flat_map(|a| a["parts"].as_array().into_iter().flatten())
        .filter_map(|p| p["text"].as_str())
        .collect()
}

async fn begun(tongue: Tongue, peer: &Peer, about: About<'_>) -> String {
    let result = tongue
        .result(
            peer,
            Op::SendMessage,
            About {
                waits: false,
                ..about
            },
        )
        .await;
    tongue.task(&result)["id"].as_str().unwrap().to_owned()
}

/// Goal: a message is answered by an ended task, which can be read again and not cancelled. Method:
/// every version and binding.
#[tokio::test]
async fn send_get_cancel() {
    let (served, peer) = serving(|_| {}).await;
    for tongue in Tongue::ALL {
        let message = format!("m-{tongue:?}");
        let about = About {
            message: &message,
            text: "said",
            ..About::default()
        };
        let result = tongue.result(&peer, Op::SendMessage, about).await;
        let task = tongue.task(&result);
        assert_eq!(
            (state(&task), texts(&task)),
            ("COMPLETED".into(), vec!["said"]),
            "{tongue:?}: {task}"
        );
        let id = task["id"].as_str().unwrap();
        assert_eq!(
            id == message,
            tongue == Tongue::Rpc01,
            "only 0.1's clients name tasks"
        );
        let of_task = About { task: id, ..about };
        let again = tongue.result(&peer, Op::GetTask, of_task).await;
        assert_eq!(
            (&again["id"], state(&again), texts(&again)),
            (&task["id"], state(&task), texts(&task)),
            "{tongue:?}"
        );
        let cancelled = tongue.ask(&peer, Op::CancelTask, of_task).await;
        assert_eq!(
            tongue.code(&cancelled),
            Some(-32_002),
            "{tongue:?}: {cancelled:?}"
        );
        let followed = tongue.ask(&peer, Op::SubscribeToTask, of_task).await;
        assert_eq!(
            tongue.code(&followed),
            Some(-32_004),
            "{tongue:?}: {followed:?}"
        );
    }
    served.stop().await;
}

/// Goal: a running task is shown as such and can be cancelled. Method: a call that waits, in every
/// version and binding.
#[tokio::test]
async fn cancel_what_runs() {
    let (mut served, peer) = serving(|_| {}).await;
    for tongue in Tongue::ALL {
        let message = format!("m-{tongue:?}");
        let (about, waits) = (
            About {
                message: &message,
                skill: "linger",
                ..About::default()
            },
            tongue == Tongue::Rpc01,
        );
        // 0.1 always waits for the end.
        let waiting =
            waits.then(|| tokio::spawn(tongue.request(&peer, Op::SendMessage, about).send()));
        let id = if waits {
            message.clone()
        } else {
            begun(tongue, &peer, about).await
        };
        assert_eq!(served.watched.watch.event().await, Seen::Began);
        let of_task = About { task: &id, ..about };
        assert_eq!(
            state(&tongue.result(&peer, Op::GetTask, of_task).await),
            "WORKING",
            "{tongue:?}"
        );
        assert_eq!(
            state(&tongue.result(&peer, Op::CancelTask, of_task).await),
            "CANCELED",
            "{tongue:?}"
        );
        assert_eq!(served.watched.watch.event().await, Seen::Cancelled);
        if let Some(waiting) = waiting {
            let answer: Value =
                serde_json::from_str(&soon(waiting).await.unwrap().unwrap().text().await.unwrap())
                    .unwrap();
            assert_eq!(state(&answer["result"]), "CANCELED");
        }
    }
    served.stop().await;
}

/// Goal: a stream begins with the task and ends with it, and marks the end if the version can.
/// Method: every version and binding.
#[tokio::test]
async fn streams() {
    let (served, peer) = serving(|_| {}).await;
    for tongue in Tongue::ALL {
        let message = format!("m-{tongue:?}");
        let about = About {
            message: &message,
            text: "said",
            ..About::default()
        };
        let mut stream = Stream::of(
            soon(
                tongue
                    .request(&peer, Op::SendStreamingMessage, about)
                    .send(),
            )
            .await
            .unwrap(),
        );
        let (mut events, mut ids) = (Vec::new(), Vec::new());
        while let Some(event) = stream.next().await {
            ids.push(
                event
                    .id
                    .clone()
                    .expect("each has a number")
                    .parse::<u64>()
                    .unwrap(),
            );
            let event: Value = serde_json::from_slice(&event.data).unwrap();
            events.push(if tongue.is_rpc() {
                event["result"].clone()
            } else {
                event
            });
        }
        assert!(ids.is_sorted(), "{ids:?}");
        let (first, last) = (events.first().unwrap(), events.last().unwrap());
        let (task, end) = match tongue {
            Tongue::Rpc10 | Tongue::Rest10 | Tongue::Rest03 => {
                (&first["task"], &last["statusUpdate"])
            }
            Tongue::Rpc03 | Tongue::Rpc01 => (first, last),
        };
        assert!(task["id"].is_string(), "{tongue:?}: {first}");
        assert_eq!(state(end), "COMPLETED", "{tongue:?}: {last}");
        match tongue {
            Tongue::Rpc10 | Tongue::Rest10 => assert!(end.get("final").is_none(), "{end}"),
            _ => assert_eq!(end["final"], true, "{tongue:?}: {end}"),
        }
        let shown = json!(events).to_string();
        assert!(shown.contains("said"), "{tongue:?}: {shown}");
    }
    served.stop().await;
}

/// Goal: a silent stream sends keep-alive comments and isn't cut. Method: a comment every 20 ms,
/// read raw from a call that waits.
#[tokio::test]
async fn silent_streams() {
    let served =
        Served::with(|options| options.keep_alive_interval = Duration::from_millis(20)).await;
    let params = json!({ "message": crate::kit::said("m-1", "wait", "linger") });
    let body =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": params })
            .to_string();
    let mut response = served.client().post("", body).await;
    let mut comments = 0;
    while comments < 3 {
        let chunk = soon(response.chunk()).await.unwrap().expect("it goes on");
        comments += usize::from(chunk.starts_with(b":\n\n"));
    }
    served.watched.watch.go_on.send(true).unwrap();
    let mut rest = Vec::new();
    while let Some(chunk) = soon(response.chunk()).await.unwrap() {
        rest.extend_from_slice(&chunk);
    }
    assert!(
        String::from_utf8(rest)
            .unwrap()
            .contains("TASK_STATE_COMPLETED")
    );
    served.stop().await;
}

/// Goal: an error before a stream is JSON; clients of old versions that accept only event streams
/// get it as an event. Method: a missing task, by the accepted types, in every version over
/// JSON-RPC.
#[tokio::test]
async fn errors_of_streams() {
    let served = Served::start().await;
    for tongue in [Tongue::Rpc10, Tongue::Rpc03, Tongue::Rpc01] {
        for (accept, only_events) in [
            ("text/event-stream", true),
            ("application/json, text/event-stream", false),
            ("*/*", false),
        ] {
            let peer = served.client().with("Accept", accept);
            let about = About {
                task: "none",
                ..About::default()
            };
            let response = soon(tongue.request(&peer, Op::SubscribeToTask, about).send())
                .await
                .unwrap();
            let error = if only_events && tongue != Tongue::Rpc10 {
                let mut stream = Stream::of(response);
                let event = stream.event().await.unwrap();
                assert!(stream.next().await.is_none());
                event
            } else {
                assert_eq!(response.headers()["content-type"], "application/json");
                serde_json::from_slice(&soon(response.bytes()).await.unwrap()).unwrap()
            };
            assert_eq!(
                (&error["id"], &error["error"]["code"]),
                (&json!(1), &json!(-32_001)),
                "{tongue:?} {accept}"
            );
        }
    }
    served.stop().await;
}

/// Goal: push configurations of 0.3 without an id share one, which the next replaces; an empty
/// authentication counts as none. Method: set twice, over both bindings.
#[tokio::test]
async fn the_only_push_configuration() {
    let (served, peer) =
        serving(|options| options.push.allowed_networks = vec!["127.0.0.0/8".parse().unwrap()])
            .await;
    let id = begun(
        Tongue::Rpc03,
        &peer,
        About {
            skill: "linger",
            ..About::default()
        },
    )
    .await;
    let set = |url: &str| json!({ "taskId": id, "pushNotificationConfig": { "url": url, "authentication": {} } });
    peer.result("tasks/pushNotificationConfig/set", set(HOOK))
        .await;
    let (status, made) = peer
        .rest(
            reqwest::Method::POST,
            &format!("/v1/tasks/{id}/pushNotificationConfigs"),
            Some(json!({
        "config": { "pushNotificationConfig": { "url": format!("{HOOK}2"), "token": "", "authentication": {} } } })),
        )
        .await;
    assert_eq!(status, 200, "{made}");
    let all = peer
        .result("tasks/pushNotificationConfig/list", json!({ "id": id }))
        .await;
    let urls: Vec<_> = all
        .as_array()
        .unwrap()
        .iter()
        .map(|c| c["pushNotificationConfig"]["url"].clone())
        .collect();
    assert_eq!(urls, [format!("{HOOK}2")]);
    served.stop().await;
}

/// Goal: push configurations are stored, read, listed and deleted. Method: every version and
/// binding that has them.
#[tokio::test]
async fn push_configurations() {
    let (mut served, peer) =
        serving(|options| options.push.allowed_networks = vec!["127.0.0.0/8".parse().unwrap()])
            .await;
    for tongue in Tongue::ALL
        .into_iter()
        .filter(|tongue| *tongue != Tongue::Rpc01)
    {
        let message = format!("m-{tongue:?}");
        let id = begun(
            tongue,
            &peer,
            About {
                message: &message,
                skill: "linger",
                ..About::default()
            },
        )
        .await;
        assert_eq!(served.watched.watch.event().await, Seen::Began);
        let about = About {
            task: &id,
            ..About::default()
        };
        let made = tongue
            .result(&peer, Op::CreateTaskPushNotificationConfig, about)
            .await;
        assert!(made.to_string().contains(HOOK), "{tongue:?}: {made}");
        let read = tongue
            .result(&peer, Op::GetTaskPushNotificationConfig, about)
            .await;
        assert_eq!(read, made, "{tongue:?}");
        let all = tongue
            .result(&peer, Op::ListTaskPushNotificationConfigs, about)
            .await;
        assert!(all.to_string().contains(HOOK), "{tongue:?}: {all}");
        for _ in 0..2 {
            let gone = tongue
                .result(&peer, Op::DeleteTaskPushNotificationConfig, about)
                .await;
            assert_eq!(
                gone,
                if tongue == Tongue::Rpc03 {
                    Value::Null
                } else {
                    json!({})
                },
                "{tongue:?}"
            );
        }
        let missing = tongue
            .ask(&peer, Op::GetTaskPushNotificationConfig, about)
            .await;
        assert_eq!(
            tongue.code(&missing),
            Some(-32_001),
            "{tongue:?}: {missing:?}"
        );
        let none = tongue
            .result(&peer, Op::ListTaskPushNotificationConfigs, about)
            .await;
        assert!(!none.to_string().contains(HOOK), "{tongue:?}: {none}");
        tongue.result(&peer, Op::CancelTask, about).await;
        assert_eq!(served.watched.watch.event().await, Seen::Cancelled);
    }
    served.stop().await;
}

/// Goal: tasks are listed by filters, the last changed first, a page at a time; an invalid size or
/// token is rejected. Method: 5 tasks in two contexts, over JSON-RPC and HTTP+JSON.
#[tokio::test]
async fn lists() {
    let (served, peer) = serving(|_| {}).await;
    let mut made = Vec::new();
    for nth in 0..5 {
        let mut message = crate::kit::said(&format!("m-{nth}"), "said", "echo");
        message["contextId"] = json!(if nth % 2 == 0 { "even" } else { "odd" });
        let task = peer
            .result("SendMessage", json!({ "message": message }))
            .await["task"]
            .take();
        made.insert(0, task["id"].as_str().unwrap().to_owned());
    }
    let ids = |page: &Value| -> Vec<String> {
        page["tasks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|task| task["id"].as_str().unwrap().to_owned())
            .collect()
    };
    let mut token = String::new();
    let mut seen = Vec::new();
    for size in [2, 2, 1] {
        let page = peer
            .result("ListTasks", json!({ "pageSize": 2, "pageToken": token }))
            .await;
        assert_eq!(
            (&page["totalSize"], ids(&page).len()),
            (&json!(5), size),
            "{page}"
        );
        assert!(
            page["tasks"][0].get("artifacts").is_none(),
            "only where they are asked for: {page}"
        );
        seen.extend(ids(&page));
        token = page["nextPageToken"].as_str().unwrap().to_owned();
    }
    assert_eq!((seen, &*token), (made.clone(), ""));
    let odd = peer
        .result(
            "ListTasks",
            json!({ "contextId": "odd", "includeArtifacts": true }),
        )
        .await;
    assert_eq!(ids(&odd), [&*made[1], &*made[3]]);
    assert_eq!(texts(&odd["tasks"][0]), ["said"]);
    let tail =
        "/tasks?contextId=even&status=TASK_STATE_COMPLETED&page_size=2&includeArtifacts=false";
    let (status, even) = peer.rest(reqwest::Method::GET, tail, None).await;
    assert_eq!(
        (status, ids(&even)),
        (200, vec![made[0].clone(), made[2].clone()]),
        "{even}"
    );
    peer.result(
        "SendMessage",
        json!({ "message": crate::kit::given("m-5", json!({ "kind": "rejected" }), "fail") }),
    )
    .await;
    for (state, count) in [("WORKING", 0), ("REJECTED", 1), ("COMPLETED", 5)] {
        let found = peer
            .result(
                "ListTasks",
                json!({ "status": format!("TASK_STATE_{state}") }),
            )
            .await;
        assert_eq!(
            (&found["totalSize"], ids(&found).len()),
            (&json!(count), count),
            "{state}"
        );
    }
    for params in [
        json!({ "pageSize": 0 }),
        json!({ "pageSize": 101 }),
        json!({ "pageSize": -1 }),
        json!({ "historyLength": -1 }),
        json!({ "pageToken": "nonsense" }),
        json!({ "statusTimestampAfter": "yesterday" }),
        json!({ "status": "TASK_STATE_NEVER" }),
    ] {
        assert_eq!(
            peer.code("ListTasks", params.clone()).await,
            -32_602,
            "{params}"
        );
    }
    served.stop().await;
}

/// Goal: an id of every form that JSON-RPC allows is returned unchanged. Method: rows.
#[tokio::test]
async fn ids_are_echoed() {
    let (served, peer) = serving(|_| {}).await;
    for id in [
        "1",
        "-7",
        "9223372036854775808",
        "\"1\"",
        "\"a\\u0062c\"",
        "\"\"",
        "0",
    ] {
        let body =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"GetTask","params":{{"id":"none"}}}}"#);
        let reply = soon(peer.post("", body).await.text()).await.unwrap();
        assert!(reply.contains(&format!("\"id\":{id},")), "{id}: {reply}");
        let reply = Reply {
            status: 200,
            text: reply,
        };
        assert_eq!(Tongue::Rpc10.code(&reply), Some(-32_001), "{id}");
    }
    served.stop().await;
}
